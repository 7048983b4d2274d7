// Pictures over steps: what a column holds is what its rows add up to, computed here one row at a time.
#include "ulpscope/analyzers/history/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "synthetic_trace.h"
#include "ulpscope/analyzers/history/pictures.h"
#include "ulpscope/analyzers/history/plots.h"
#include "ulpscope/analyzers/history/tensor_flow.h"
#include "ulpscope/analyzers/totals/followed.h"

namespace ulpscope::analyzers_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// An FP16 gradient that shrinks step by step and an FP32 weight, in `steps` steps; every seventh is skipped.
class HistoryTest : public ::testing::Test {
 protected:
  Snapshot make(uint64_t steps) {
    gradient_ = trace_.add_tensor("head", "linear_backward", Phase::backward, Role::activation_gradient, DType::f16);
    weight_ = trace_.add_tensor("head", "source", Phase::data, Role::weight, DType::f32, "weight");
    std::mt19937 random(7);
    for (uint64_t step = 0; step < steps; ++step) {
      TensorRow row = make_row(lognormal(random, -10 - static_cast<double>(step) / 40, 6, 50), DType::f16, 1024);

      rows_.push_back(row);
      trace_.add(gradient_, row);
      trace_.add(weight_, make_row(lognormal(random, 0, 1, 20), DType::f32));
      StepRow end = SyntheticTrace::default_step(2.0 / (1 + static_cast<double>(step)), 1024);
      end.skipped = step % 7 == 3;
      if (end.skipped) trace_.add_event(EventKind::scale_backoff, gradient_, 3, 512);
      trace_.end_step(end);
    }
    return trace_.read();
  }
  static Followed<History> history_of(const Snapshot& snapshot, size_t most_columns, size_t threads = 1) {
    Followed<History> followed([=] { return History(most_columns); }, {}, threads);
    EXPECT_TRUE(followed.update(snapshot));
    return followed;
  }

  SyntheticTrace trace_;
  uint32_t gradient_ = 0, weight_ = 0;
  std::vector<TensorRow> rows_;  // of the gradient, by step
};

TEST_F(HistoryTest, ColumnsAreTheSumsAndExtremesOfTheirRows) {
  const Followed<History> followed = history_of(make(100), 16);
  const History& history = followed.analysis();
  const StepColumns columns = history.columns();
  ASSERT_EQ(columns.width, 8u) << "the least power of two that 100 steps fit 16 columns with";
  ASSERT_EQ(columns.count, 13u);
  for (size_t column = 0; column < columns.count; ++column) {
    uint64_t base = 0, flushed = 0, subnormal = 0, zeros = 0, elements = 0, skipped = 0;
    double largest = 0, lowest_headroom = INFINITY;
    for (uint64_t step = columns.step(column); step < std::min<uint64_t>(100, columns.step(column) + 8); ++step) {
      const TensorRow& row = rows_[step];
      base += row.statistics.finite_nonzero();
      flushed += row.rounding.flushed;
      subnormal += row.rounding.subnormal;
      zeros += row.statistics.zeros;
      elements += row.statistics.count;
      largest = std::max(largest, row.statistics.largest);
      lowest_headroom = std::min(lowest_headroom, std::log2(65504.0) - std::log2(row.statistics.largest));
      skipped += step % 7 == 3;
    }
    const HistoryCell cell = history.cell(gradient_, column);
    EXPECT_EQ(cell.elements, elements);
    EXPECT_EQ(cell.value(Measured::flushed), static_cast<double>(flushed) / static_cast<double>(base)) << column;
    EXPECT_EQ(cell.value(Measured::subnormal), static_cast<double>(subnormal) / static_cast<double>(base));
    EXPECT_EQ(cell.value(Measured::zeros), static_cast<double>(zeros) / static_cast<double>(elements));
    EXPECT_EQ(cell.value(Measured::largest_exponent), std::floor(std::log2(largest)));
    EXPECT_NEAR(cell.value(Measured::headroom), lowest_headroom, 1e-12);
    EXPECT_TRUE(std::isnan(history.cell(weight_, column).value(Measured::flushed))) << "nothing is rounded into FP32";
    EXPECT_EQ(history.step(column).skipped, skipped);
    EXPECT_EQ(history.step(column).loss, 2.0 / (1 + static_cast<double>(std::min<uint64_t>(99, columns.step(column) + 7))));
    EXPECT_EQ(history.step(column).highest_loss, 2.0 / (1 + static_cast<double>(columns.step(column))));
  }
}

// Counts of a column are kept in 32 bits until one needs more.
TEST_F(HistoryTest, CountsBeyond32BitsAreExact) {
  constexpr uint64_t kMore = uint64_t{1} << 31, kSteps = 64;
  weight_ = trace_.add_tensor("head", "source", Phase::data, Role::weight, DType::f32, "weight");
  std::mt19937 random(7);
  for (uint64_t step = 0; step < kSteps; ++step) {
    TensorRow row = make_row(lognormal(random, 0, 1, 20), DType::f32);
    if (step >= kSteps / 2) {
      row.statistics.zeros += kMore;
      row.statistics.count += kMore;
    }
    rows_.push_back(row);
    trace_.add(weight_, row);
    trace_.end_step(SyntheticTrace::default_step(1, 1));
  }
  const Followed<History> followed = history_of(trace_.read(), 16);
  const History& history = followed.analysis();
  ASSERT_EQ(history.columns().width, 4u);
  uint64_t all = 0;
  for (size_t column = 0; column < history.columns().count; ++column) {
    uint64_t elements = 0, zeros = 0;
    double largest = 0;
    for (size_t step = 4 * column; step < 4 * column + 4; ++step) {
      elements += rows_[step].statistics.count;
      zeros += rows_[step].statistics.zeros;
      largest = std::max(largest, rows_[step].statistics.largest);
    }
    EXPECT_EQ(history.cell(weight_, column).elements, elements);
    EXPECT_EQ(history.cell(weight_, column).zeros, zeros);
    EXPECT_EQ(history.cell(weight_, column).largest, largest);
    EXPECT_EQ(history.cell(weight_, column).rows, 4u);
    all += elements;
  }
  EXPECT_GT(all, uint64_t{UINT32_MAX});
  EXPECT_EQ(history.total(weight_).elements, all);
}

TEST_F(HistoryTest, PartsThatAreMergedAreTheWhole) {
  const Snapshot snapshot = make(200);
  const Followed<History> whole = history_of(snapshot, 32);
  const AnalysisContext& context = whole.context();
  for (const uint64_t cut : {1, 64, 77, 199}) {
    History first(32), second(32);
    first.begin(context);
    second.begin(context);
    for (const auto& [history, steps] : {std::pair{&first, StepRange{0, cut}}, std::pair{&second, StepRange{cut, 200}}})
      visit_blocks(
          context, {0, steps}, history->reads(), [&](const Block& block) { history->update(block); }, [](size_t) { return true; });
    for (const bool backwards : {false, true}) {
      History joined = backwards ? second : first;
      joined.merge(History(backwards ? first : second));
      ASSERT_EQ(joined.columns().count, whole.analysis().columns().count);
      for (size_t column = 0; column < joined.columns().count; ++column) {
        EXPECT_EQ(joined.cell(gradient_, column).flushed, whole.analysis().cell(gradient_, column).flushed);
        EXPECT_EQ(joined.cell(gradient_, column).largest, whole.analysis().cell(gradient_, column).largest);
        EXPECT_EQ(joined.step(column).loss, whole.analysis().step(column).loss) << cut << " " << column << " " << backwards;
        EXPECT_EQ(joined.step(column).steps, whole.analysis().step(column).steps);
      }
    }
  }
}

TEST_F(HistoryTest, HeatmapsHaveTheWorstFirst) {
  const Followed<History> followed = history_of(make(50), 64);
  const auto worst = ordered_tensors(followed.analysis(), followed.context(), Measured::headroom, TensorOrder::worst);
  EXPECT_THAT(worst, ElementsAre(gradient_, weight_)) << "FP16 has less room than FP32";
  const auto flushed = ordered_tensors(followed.analysis(), followed.context(), Measured::flushed, TensorOrder::worst);
  EXPECT_THAT(flushed, ElementsAre(gradient_)) << "an FP32 tensor cannot be flushed";
  const Plot plot = tensor_heatmap(followed.analysis(), followed.context(), Measured::flushed, flushed);
  ASSERT_THAT(plot.series, SizeIs(1));
  EXPECT_THAT(plot.series[0].y, SizeIs(50));
  EXPECT_EQ(plot.x_end, 50);
  EXPECT_EQ(plot.series[0].y[17],
            static_cast<double>(rows_[17].rounding.flushed) / static_cast<double>(rows_[17].statistics.finite_nonzero()));
}

TEST_F(HistoryTest, ExponentsAreThoseOfTheHistograms) {
  const Snapshot snapshot = make(40);
  for (const bool is_true : {false, true}) {
    const Plot plot =
        exponent_heatmap(snapshot, gradient_, "g", {.most_columns = 10, .is_true = is_true, .formats = {info(DType::f16).format}});
    ASSERT_FALSE(plot.series.empty());
    ASSERT_THAT(plot.series[0].x, SizeIs(10));
    for (size_t i = 0; i < plot.series.size(); ++i) {
      const int exponent = plot.first_exponent + static_cast<int>(i);
      for (size_t column = 0; column < 10; ++column) {
        uint64_t count = 0;
        for (uint64_t step = 4 * column; step < 4 * column + 4; ++step) {
          const int bin = exponent + ExponentHistogram::kBias + (is_true ? 10 : 0);
          if (bin >= 0 && bin < ExponentHistogram::kBins) count += rows_[step].statistics.histogram.bins[bin];
        }
        const double shown = plot.series[i].y[column];
        EXPECT_EQ(std::isnan(shown) ? 0 : shown, static_cast<double>(count)) << exponent << " in column " << column;
      }
    }
    EXPECT_EQ(plot.limits.back().exponent, 16) << "FP16 overflows from 2^16 on";
  }
}

TEST_F(HistoryTest, TheCourseOfARunHasItsBackoffs) {
  const Followed<History> followed = history_of(make(30), 64);
  const std::vector<Plot> plots = course_plots(followed.analysis(), followed.context());
  const auto named = [&](const std::string& name) {
    return std::find_if(plots.begin(), plots.end(), [&](const Plot& plot) { return plot.name == name; });
  };
  ASSERT_NE(named("loss"), plots.end());
  EXPECT_EQ(named("loss")->series[0].y[4], 2.0 / 5);
  ASSERT_NE(named("loss_scale"), plots.end());
  EXPECT_EQ(named("loss_scale")->series[0].y[0], 10);
  ASSERT_THAT(named("loss_scale")->marks, SizeIs(4));
  EXPECT_EQ(named("loss_scale")->marks[1].from, 10);
  EXPECT_THAT(named("loss_scale")->marks[1].text, HasSubstr("loss scale down to 512: head linear_backward"));
  EXPECT_EQ(named("learning_rate"), plots.end()) << "it was not recorded";
  const Table table = step_table(followed.context(), 12);
  ASSERT_THAT(table.rows, SizeIs(2));
  EXPECT_EQ(table.rows[0].key.step, 12u);
  EXPECT_EQ(std::get<double>(table.rows[0].cells[7]),
            static_cast<double>(rows_[12].rounding.flushed) / static_cast<double>(rows_[12].statistics.finite_nonzero()));
  EXPECT_TRUE(std::holds_alternative<NotApplicable>(table.rows[1].cells[7]));
}

// What is not known is no point of the course; what is not finite is one, in however many steps a column is one of them.
TEST(HistoryOfLosses, UnknownAndNonfiniteAreToldApart) {
  SyntheticTrace trace;
  for (uint64_t step = 0; step < 64; ++step) {
    StepRow row = SyntheticTrace::default_step(step == 21 ? NAN : step == 37 ? INFINITY : 1.0 + static_cast<double>(step % 4));
    row.loss_known = step % 4 != 3;
    row.norm_known = false;
    trace.end_step(row);
  }
  const Snapshot snapshot = trace.read();
  const auto loss_in = [&](size_t most_columns) {
    Followed<History> followed([=] { return History(most_columns); }, {});
    EXPECT_TRUE(followed.update(snapshot));
    const std::vector<Plot> plots = course_plots(followed.analysis(), followed.context());
    EXPECT_TRUE(std::none_of(plots.begin(), plots.end(), [](const Plot& plot) { return plot.name == "gradient_norm"; }));
    return *std::find_if(plots.begin(), plots.end(), [](const Plot& plot) { return plot.name == "loss"; });
  };
  const Plot each = loss_in(64);
  ASSERT_THAT(each.series, SizeIs(1));
  EXPECT_THAT(each.series[0].x, SizeIs(48)) << "every fourth is not known";
  const auto in_step = [&](double step) {
    const auto found = std::find(each.series[0].x.begin(), each.series[0].x.end(), step);
    return each.series[0].y.at(static_cast<size_t>(found - each.series[0].x.begin()));
  };
  EXPECT_TRUE(std::isnan(in_step(21)));
  EXPECT_EQ(in_step(37), INFINITY);
  const Plot wide = loss_in(8);
  ASSERT_THAT(wide.series, SizeIs(2));
  EXPECT_THAT(wide.series[0].name, HasSubstr("last of 8 steps"));
  for (size_t column = 0; column < 8; ++column) {
    EXPECT_EQ(wide.series[0].y[column], 3) << "the last that is known";
    if (column == 2)
      EXPECT_TRUE(std::isnan(wide.series[1].y[column]));
    else
      EXPECT_EQ(wide.series[1].y[column], column == 4 ? INFINITY : 3);
  }
}

// The course first, then who lost what, then the exponents of those that findings are about.
TEST_F(HistoryTest, PicturesAreOfWhatLostMost) {
  const Snapshot snapshot = make(60);
  Report report;
  report.findings.resize(1);
  report.findings[0].extent.origin = gradient_;
  report.causes = {{0, {}}};
  const auto names = [&] {
    std::vector<std::string> all;
    for (const Plot& plot : report.plots) all.push_back(plot.name);
    return all;
  };
  add_pictures(snapshot, {}, report);
  EXPECT_THAT(names(), ::testing::IsSupersetOf({"loss", "loss_scale", "skipped_steps", "flushed", "headroom"}));
  EXPECT_EQ(names().back(), "exponents_over_steps");
  EXPECT_THAT(report.plots.back().title, HasSubstr("head linear_backward"));
  const auto flushed =
      std::find_if(report.plots.begin(), report.plots.end(), [](const Plot& plot) { return plot.name == "flushed"; });
  EXPECT_THAT(flushed->series, SizeIs(1)) << "the weight lost nothing";
  // Only of the steps, and of the tensors, that are asked for.
  report.plots.clear();
  AnalysisOptions options;
  options.steps = {10, 20};
  options.roles = {Role::weight};
  add_pictures(snapshot, options, report);
  EXPECT_THAT(names(), ::testing::Not(::testing::Contains("flushed")));
  EXPECT_THAT(names(), ::testing::Not(::testing::Contains("exponents_over_steps")));
  EXPECT_EQ(report.plots[0].series[0].x.front(), 10);
  EXPECT_EQ(report.plots[0].x_end, 20);
}

// What was measured of tensors beyond their statistics, by its name; of several rows in a column the largest.
TEST_F(HistoryTest, MeasuresAreHeatmapsByName) {
  gradient_ = trace_.add_tensor("head", "linear_backward", Phase::backward, Role::activation_gradient, DType::f16);
  weight_ = trace_.add_tensor("head", "source", Phase::data, Role::weight, DType::f32, "weight");
  for (uint64_t step = 0; step < 10; ++step) {
    const auto value = static_cast<double>(step);
    trace_.sink().add_measure({step, 0, 0, gradient_, "error_injected", 0.5 * value});
    trace_.sink().add_measure({step, 1, 0, gradient_, "error_injected", 0.25 * value});
    if (step == 3) trace_.sink().add_measure({step, 0, 0, weight_, "error_inherited", 7});
    trace_.end_step();
  }
  const Snapshot snapshot = trace_.read();
  const AnalysisContext context(snapshot, {});
  const std::vector<Plot> plots = measure_plots(context, {});
  ASSERT_THAT(plots, SizeIs(2));
  EXPECT_EQ(plots[0].y.name, "error_inherited");
  EXPECT_EQ(plots[1].y.name, "error_injected");
  ASSERT_THAT(plots[1].series, SizeIs(1));
  EXPECT_EQ(plots[1].series[0].key.name, context.selection.name(gradient_));
  EXPECT_THAT(plots[1].series[0].y, ElementsAre(0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5));
  EXPECT_THAT(plots[0].series[0].x, ElementsAre(3));
  EXPECT_THAT(measure_plots(context, {5, 7})[0].series[0].y, ElementsAre(2.5, 3));
}

}  // namespace
}  // namespace ulpscope::analyzers_test
