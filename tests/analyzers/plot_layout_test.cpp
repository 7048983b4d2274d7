// Where numbers stand at an axis, and boxes of a graph: the same in a window, a page and a terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/report/graph_layout.h"
#include "ulpscope/analyzers/report/value_scale.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;

Plot over_steps(Unit unit, const std::vector<double>& values) {
  Plot plot{"plot", "Plot", PlotKind::steps, {"step"}, {"value", unit}};
  Series& series = plot.series.emplace_back();
  for (const double value : values) {
    series.x.push_back(static_cast<double>(series.x.size()));
    series.y.push_back(value);
  }
  return plot;
}

ValueScale scale_of(Unit unit, const std::vector<double>& values, size_t ticks = 4) {
  return value_scale(over_steps(unit, values), SIZE_MAX, -INFINITY, INFINITY, ticks);
}

TEST(ValueScale, TicksAreRoundNumbersBetweenTheValues) {
  std::mt19937 random(5);
  std::lognormal_distribution<double> magnitude(0, 6);
  for (int round = 0; round < 2000; ++round) {
    const double lowest = magnitude(random) * (round % 2 == 0 ? 1 : -1), highest = lowest + magnitude(random);
    if (!(highest > lowest)) continue;
    for (const size_t most : {1, 2, 4, 9}) {
      const ValueScale scale = scale_of(Unit::none, {lowest, highest}, most);
      ASSERT_FALSE(scale.is_empty);
      ASSERT_GE(scale.ticks.size(), 1u);
      ASSERT_LE(scale.ticks.size(), most + 5) << lowest << " to " << highest;
      for (size_t i = 0; i < scale.ticks.size(); ++i) {
        ASSERT_GE(scale.ticks[i], lowest * (1 - 1e-12));
        ASSERT_LE(scale.ticks[i], highest + std::fabs(highest) * 1e-12);
        // Some power of ten times 1, 2 or 5 divides it, as large as their distance.
        if (scale.ticks.size() > 2 && !scale.is_logarithmic && std::fabs(lowest) < 1e3 * (highest - lowest)) {
          const double distance = scale.ticks[1] - scale.ticks[0],
                       leading = distance / std::pow(10, std::floor(std::log10(distance) + 1e-9));
          ASSERT_TRUE(std::fabs(leading - 1) < 1e-6 || std::fabs(leading - 2) < 1e-6 || std::fabs(leading - 5) < 1e-6) << leading;
          const double times = scale.ticks[i] / distance;
          ASSERT_NEAR(times, std::round(times), 1e-6 + std::fabs(times) * 1e-9);
        }
        if (i > 0) {
          ASSERT_GT(scale.ticks[i], scale.ticks[i - 1]);
        }
      }
      ASSERT_NEAR(scale.place(lowest), 0, 1e-9);
      ASSERT_NEAR(scale.place(highest), 1, 1e-9);
    }
  }
}

TEST(ValueScale, AConstantHasItsOwnNumberAlone) {
  for (const double value : {0.0, 0.25, -7.0, 65536.0}) {
    const ValueScale scale = scale_of(Unit::none, {value, value, value});
    EXPECT_THAT(scale.ticks, ElementsAre(value));
    EXPECT_GT(scale.highest, scale.lowest);
    EXPECT_GE(scale.place(value), 0);
    EXPECT_LE(scale.place(value), 1);
  }
}

TEST(ValueScale, MagnitudesOverManyBinadesAreLogarithmic) {
  const ValueScale loss = scale_of(Unit::none, {0.5, 2000});
  EXPECT_TRUE(loss.is_logarithmic);
  EXPECT_THAT(loss.ticks, ElementsAre(1, 10, 100, 1000));
  EXPECT_NEAR(loss.place(std::sqrt(0.5 * 2000)), 0.5, 1e-12);
  EXPECT_FALSE(scale_of(Unit::none, {0.5, 400}).is_logarithmic);
  EXPECT_FALSE(scale_of(Unit::none, {-0.5, 4000}).is_logarithmic);
  // Loss scales double and halve.
  EXPECT_THAT(scale_of(Unit::scale, {1024, 4096}).ticks, ElementsAre(1024, 2048, 4096));
}

TEST(ValueScale, WhatIsCountedBeginsAtZero) {
  EXPECT_EQ(scale_of(Unit::share, {0.5, 0.6}).lowest, 0);
  EXPECT_THAT(scale_of(Unit::count, {3}).ticks, ElementsAre(3));
  EXPECT_THAT(scale_of(Unit::count, {1, 3}).ticks, ElementsAre(0, 1, 2, 3));
}

TEST(ValueScale, OfTheStepsThatAreShown) {
  const Plot plot = over_steps(Unit::none, {1, NAN, 5, 6, 100});
  const ValueScale shown = value_scale(plot, SIZE_MAX, 2, 4, 4);
  EXPECT_EQ(shown.lowest, 5);
  EXPECT_EQ(shown.highest, 6);
  EXPECT_FALSE(shown.has_nonfinite);
  EXPECT_TRUE(value_scale(plot, SIZE_MAX, 1, 3, 4).has_nonfinite);
  const ValueScale nothing = value_scale(plot, SIZE_MAX, 1, 2, 4);
  EXPECT_TRUE(nothing.is_empty && nothing.has_nonfinite);
  // What holds until the next step is seen there.
  Plot held = over_steps(Unit::none, {1});
  held.x_end = 50;
  EXPECT_FALSE(value_scale(held, SIZE_MAX, 20, 30, 4).is_empty);
}

// The widest range that there is has places too.
TEST(ValueScale, OfNumbersOfAllSizes) {
  const ValueScale scale = scale_of(Unit::none, {-1.7e308, 1.7e308});
  EXPECT_NEAR(scale.place(0), 0.5, 1e-12);
}

Plot graph(size_t nodes, const std::vector<PlotLink>& links) {
  Plot plot{"graph", "Graph", PlotKind::graph};
  plot.nodes.resize(nodes);
  plot.links = links;
  return plot;
}

TEST(GraphLayout, EachNodeStandsBelowWhatItComesOf) {
  std::mt19937 random(6);
  for (int round = 0; round < 200; ++round) {
    const size_t nodes = 1 + random() % 40;
    Plot plot = graph(nodes, {});
    for (size_t to = 1; to < nodes; ++to)
      for (size_t i = random() % 4; i > 0; --i) plot.links.push_back({random() % to, to, false});
    for (PlotNode& node : plot.nodes) node.marked = random() % 5 == 0;
    const size_t most = 1 + random() % 6;
    const GraphLayout layout = graph_layout(plot, nodes, plot.links, most);
    for (const PlotLink& link : plot.links) ASSERT_LT(layout.row[link.from], layout.row[link.to]);
    std::set<std::pair<size_t, size_t>> places;
    for (size_t node = 0; node < nodes; ++node) {
      ASSERT_TRUE(places.emplace(layout.row[node], layout.column[node]).second) << "no two at one place";
      ASSERT_LT(layout.column[node], most);
      ASSERT_LT(layout.column[node], layout.in_row.at(layout.row[node]));
    }
  }
}

TEST(GraphLayout, TheMarkedPathRunsDownTheLeftSide) {
  // Three operands, the last of which is on the path, an op and what came of it.
  Plot plot = graph(5, {{0, 3}, {1, 3}, {2, 3, true}, {3, 4, true}});
  for (const size_t node : {2, 3, 4}) plot.nodes[node].marked = true;
  const GraphLayout layout = graph_layout(plot, 5, plot.links, 8);
  EXPECT_THAT(layout.row, ElementsAre(0, 0, 0, 1, 2));
  EXPECT_THAT(layout.column, ElementsAre(1, 2, 0, 0, 0));
  // Where two have room beside each other, the third goes on in the next row.
  const GraphLayout narrow = graph_layout(plot, 5, plot.links, 2);
  EXPECT_THAT(narrow.row, ElementsAre(0, 1, 0, 2, 3));
  EXPECT_THAT(narrow.in_row, ElementsAre(2, 1, 1, 1));
}

}  // namespace
}  // namespace ulpscope
