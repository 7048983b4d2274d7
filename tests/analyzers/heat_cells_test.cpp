// However few pixels a heatmap has, no cell of it disappears: the worst of those that fall on one pixel is seen, and counts add up.
#include "ulpscope/analyzers/report/heat_cells.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace ulpscope {
namespace {

Plot heatmap(Unit unit, size_t rows, const std::vector<double>& x) {
  Plot plot{"heat", "Heat", PlotKind::heatmap, {"step", Unit::count}, {"value", unit}};
  plot.series.resize(rows);
  for (Series& series : plot.series) {
    series.x = x;
    series.y.assign(x.size(), NAN);
  }
  return plot;
}

std::vector<double> count_up(size_t count, double first, double width) {
  std::vector<double> x;
  for (size_t i = 0; i < count; ++i) x.push_back(first + width * static_cast<double>(i));
  return x;
}

TEST(HeatCells, OneBadCellIsSeenInAnyWidth) {
  std::mt19937 random(3);
  for (const auto& [unit, good, bad] : {std::tuple{Unit::share, 1e-5, 0.5}, {Unit::bits, 8.0, -3.0}, {Unit::exponent, 2.0, 15.0}}) {
    for (int round = 0; round < 300; ++round) {
      const size_t columns = 1 + random() % 600, row = random() % 3, column = random() % columns;
      Plot plot = heatmap(unit, 3, count_up(columns, static_cast<double>(random() % 5000), static_cast<double>(1 + random() % 9)));
      plot.x_end = plot.series[0].x.back() + (columns > 1 ? plot.series[0].x[1] - plot.series[0].x[0] : 1);
      for (Series& series : plot.series)
        for (double& y : series.y) y = random() % 4 == 0 ? NAN : good;
      plot.series[row].y[column] = bad;
      const size_t most = 1 + random() % 700;
      const HeatCells cells = heat_cells(plot, most, 1);
      ASSERT_LE(cells.columns, most);
      ASSERT_EQ(cells.rows, 3u) << "rows that have names are not joined";
      const auto at = static_cast<size_t>((plot.series[row].x[column] - cells.first) / cells.width);
      ASSERT_EQ(cells.at(row, at), bad) << columns << " columns in " << most << " pixels";
      ASSERT_GE(cells.end(), plot.x_end);
      // And where nothing is known in any column of a cell, the cell says so.
      for (size_t cell = 0; cell < cells.columns; ++cell) {
        bool is_known = false;
        for (size_t i = cell * cells.joined_columns; i < std::min(columns, (cell + 1) * cells.joined_columns); ++i)
          is_known = is_known || !std::isnan(plot.series[row].y[i]);
        ASSERT_EQ(!std::isnan(cells.at(row, cell)), is_known);
      }
    }
  }
}

TEST(HeatCells, CountsOfExponentsAddUpInColumnsAndRows) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    const size_t columns = 1 + random() % 300, rows = 1 + random() % 280;
    Plot plot = heatmap(Unit::count, rows, count_up(columns, 7, 4));
    plot.rows = {"exponent", Unit::exponent};
    double total = 0;
    for (Series& series : plot.series)
      for (double& y : series.y)
        if (random() % 3 == 0) total += y = static_cast<double>(1 + random() % 1000);
    const size_t most_columns = 1 + random() % 400, most_rows = 1 + random() % 400;
    const HeatCells cells = heat_cells(plot, most_columns, most_rows);
    ASSERT_LE(cells.columns, most_columns);
    ASSERT_LE(cells.rows, most_rows);
    double sum = 0, highest = -INFINITY;
    for (const double value : cells.values) {
      if (std::isnan(value)) continue;
      sum += value;
      highest = std::max(highest, value);
    }
    ASSERT_EQ(sum, total);
    ASSERT_EQ(cells.is_empty() ? -INFINITY : cells.highest, highest);
  }
}

TEST(HeatCells, ColumnsStandWhereTheirStepsAre) {
  // Steps 0, 1 and 2, and then none before 8: what was last holds until there.
  Plot plot = heatmap(Unit::share, 1, {0, 1, 2, 8});
  plot.x_end = 10;
  plot.series[0].y = {0.1, 0.2, 0.3, 0.4};
  const HeatCells cells = heat_cells(plot, 1000, 1);
  EXPECT_EQ(cells.width, 1);
  ASSERT_EQ(cells.columns, 10u);
  const std::vector<double> expected{0.1, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.4, 0.4};
  EXPECT_EQ(cells.values, expected);
  // Two steps a cell: the last one begins at 8.
  const HeatCells fewer = heat_cells(plot, 5, 1);
  EXPECT_EQ(fewer.values, (std::vector<double>{0.2, 0.3, 0.3, 0.3, 0.4}));
}

TEST(HeatCells, SomeOfTheRowsAreAsked) {
  Plot plot = heatmap(Unit::count, 6, {0, 1});
  plot.rows = {"exponent", Unit::exponent};
  for (size_t row = 0; row < 6; ++row) plot.series[row].y = {std::ldexp(1.0, static_cast<int>(row)), NAN};
  const HeatCells cells = heat_cells(plot, 10, 2, {1, 5});
  EXPECT_EQ(cells.first_row, 1u);
  EXPECT_EQ(cells.joined_rows, 2u);
  ASSERT_EQ(cells.rows, 2u);
  EXPECT_EQ(cells.at(0, 0), 2 + 4);
  EXPECT_EQ(cells.at(1, 0), 8 + 16);
}

// Nobody counted anything between steps 1 and 100.
TEST(HeatCells, CountsAreNotHeld) {
  Plot plot = heatmap(Unit::count, 1, {0, 1, 100});
  plot.series[0].y = {64, 64, 64};
  double sum = 0;
  for (const double value : heat_cells(plot, 1000, 1).values) sum += std::isnan(value) ? 0 : value;
  EXPECT_EQ(sum, 192);
}

TEST(HeatCells, PlacesNextToEachOtherAreOne) {
  Plot plot = heatmap(Unit::share, 1, {0, 5e-324, 1});
  plot.series[0].y = {0.1, 0.3, 0.2};
  const HeatCells cells = heat_cells(plot, 100, 1);
  ASSERT_GT(cells.columns, 0u);
  EXPECT_LE(cells.columns, 100u);
  EXPECT_EQ(cells.highest, 0.3);
}

// The worst is seen most: of headroom the least.
TEST(HeatCells, StrengthIsThatOfTheWorst) {
  Plot plot = heatmap(Unit::bits, 1, {0, 1, 2});
  plot.series[0].y = {-2, 4, 10};
  const HeatCells headroom = heat_cells(plot, 3, 1);
  EXPECT_EQ(headroom.strength(-2), 1);
  EXPECT_EQ(headroom.strength(10), 0);
  EXPECT_DOUBLE_EQ(headroom.strength(4), 0.5);
  plot.y.unit = Unit::share;
  plot.series[0].y = {0, 0.01, 0.04};
  const HeatCells shares = heat_cells(plot, 3, 1);
  EXPECT_EQ(shares.strength(0), 0);
  EXPECT_DOUBLE_EQ(shares.strength(0.01), 0.5);
  EXPECT_EQ(shares.strength(INFINITY), 1);
}

TEST(HeatCells, PlacesThatAreNoNumbersAreLeftOut) {
  Plot plot = heatmap(Unit::share, 1, {0, INFINITY, 2, NAN, -INFINITY});
  plot.series[0].y = {0.5, 0.6, 0.7, 0.8, 0.9};
  const HeatCells cells = heat_cells(plot, 10, 1);
  EXPECT_EQ(cells.first, 0);
  EXPECT_EQ(cells.highest, 0.7);
}

TEST(HeatCells, WhatIsNothingIsEmpty) {
  Plot plot{"heat", "Heat", PlotKind::heatmap, {"step"}, {"share", Unit::share}};
  EXPECT_EQ(heat_cells(plot, 10, 10).columns, 0u);
  plot = heatmap(Unit::share, 2, {});
  EXPECT_EQ(heat_cells(plot, 10, 10).columns, 0u);
  plot = heatmap(Unit::share, 2, {5});
  const HeatCells cells = heat_cells(plot, 10, 10);
  EXPECT_TRUE(cells.is_empty());
  EXPECT_EQ(cells.columns, 1u);
}

}  // namespace
}  // namespace ulpscope
