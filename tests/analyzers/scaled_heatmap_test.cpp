// Heatmaps at other loss scales, against roundings of the values one by one.
#include "ulpscope/analyzers/history/scaled_heatmap.h"

#include <gtest/gtest.h>

#include <cmath>

#include "synthetic_trace.h"
#include "ulpscope/analyzers/history/module_rows.h"
#include "ulpscope/analyzers/history/scale_shares.h"
#include "ulpscope/analyzers/totals/followed.h"

namespace ulpscope {
namespace {

using analyzers_test::round_all;
using analyzers_test::RoundingTruth;
using analyzers_test::SyntheticTrace;

constexpr int kSteps = 12;
constexpr Measured kFollowing[] = {Measured::flushed, Measured::subnormal, Measured::overflowed};

class ScaledHeatmapTest : public ::testing::Test {
 protected:
  ScaledHeatmapTest() {
    std::mt19937 random(5);
    for (int step = 0; step < kSteps; ++step) {
      const double scale = scale_at(step);
      for (const uint32_t tensor : {first_, second_}) {
        std::vector<double> values = analyzers_test::lognormal(random, tensor == first_ ? -14 : -2, 6, 300);
        for (double& value : values) value *= scale / 1024;
        values = analyzers_test::as_floats(values);
        trace_.add(tensor, analyzers_test::make_row(values, DType::f16, scale));
        values_[tensor].push_back(values);
      }
      const std::vector<double> values = analyzers_test::lognormal(random, -20, 6, 300);
      trace_.add(activation_, analyzers_test::make_row(values, DType::f16));
      values_[activation_].push_back(analyzers_test::as_floats(values));
      trace_.end_step(SyntheticTrace::default_step(1, scale));
    }
    snapshot_.emplace(trace_.read());
    history_.update(*snapshot_);
  }
  // The scale backs off once.
  static double scale_at(int step) { return step < 7 ? 1024 : 512; }
  double share_of(uint32_t tensor, int step, Measured measured, const FloatFormat& format, double divisor) const {
    const RoundingTruth truth = round_all(values_.at(tensor)[static_cast<size_t>(step)], format, divisor);
    const uint64_t count = measured == Measured::flushed     ? truth.flushed
                           : measured == Measured::subnormal ? truth.subnormal
                                                             : truth.overflowed;
    return static_cast<double>(count) / static_cast<double>(truth.base);
  }

  SyntheticTrace trace_;
  const uint32_t first_ = trace_.add_tensor("body.a", "linear_backward", Phase::backward, Role::activation_gradient, DType::f16);
  const uint32_t second_ = trace_.add_tensor("body.b", "linear_backward", Phase::backward, Role::activation_gradient, DType::f16);
  const uint32_t activation_ = trace_.add_tensor("body.a", "linear", Phase::forward, Role::activation, DType::f16);
  std::map<uint32_t, std::vector<std::vector<double>>> values_;  // by tensor and step
  std::optional<Snapshot> snapshot_;
  Followed<History> history_{[] { return History(); }};
};

TEST_F(ScaledHeatmapTest, CellsAreBoundedByTheRoundings) {
  const std::vector<uint32_t> tensors{first_, second_};
  const std::vector<std::vector<uint32_t>> rows{{first_}, {second_}};
  for (const FloatFormat* format : {&binary16, &bfloat16}) {
    for (const Measured measured : kFollowing) {
      const Plot recorded = tensor_heatmap(history_.analysis(), history_.context(), measured, tensors);
      const ScaledHeatmap heatmap = scaled_heatmap(*snapshot_, recorded, rows, measured, format->name);
      for (int k = kLeastScale; k <= kLargestScale; ++k) {
        const Plot plot = heatmap.at(k);
        for (size_t row = 0; row < 2; ++row) {
          ASSERT_EQ(plot.series.at(row).x, recorded.series.at(row).x);
          for (int step = 0; step < kSteps; ++step) {
            const double shown = plot.series[row].y[static_cast<size_t>(step)];
            const auto truth_at = [&](int exponent) {
              return share_of(tensors[row], step, measured, *format, std::ldexp(scale_at(step), -exponent));
            };
            ASSERT_GE(shown, truth_at(k)) << name_of(measured) << " 2^" << k << " step " << step;
            // The histogram has binades: at most what the next scale would take as well.
            const double most = measured == Measured::flushed      ? truth_at(k - 1)
                                : measured == Measured::overflowed ? truth_at(k + 1)
                                                                   : 1;
            ASSERT_LE(shown, most) << name_of(measured) << " 2^" << k << " step " << step;
          }
        }
      }
    }
  }
}

// At the scale that was, what was counted: of tensors, and of the module that they lie in. What has no loss scale stays as it was.
TEST_F(ScaledHeatmapTest, TheRecordedScaleHasTheRecordedValues) {
  const std::vector<uint32_t> tensors{first_, second_, activation_};
  const std::vector<ModuleRow> modules = module_rows(history_.context(), tensors, [](const std::string&) { return false; });
  std::vector<std::vector<uint32_t>> rows;
  for (const ModuleRow& row : modules) rows.push_back(row.tensors);
  ASSERT_EQ(rows.front().size(), 3u);
  for (const Measured measured : kFollowing) {
    const Plot recorded = module_heatmap(history_.analysis(), history_.context(), measured, modules);
    const ScaledHeatmap heatmap = scaled_heatmap(*snapshot_, recorded, rows, measured, "");
    const Plot before = heatmap.at(10), after = heatmap.at(9);
    for (size_t row = 0; row < rows.size(); ++row) {
      const bool is_scaled = rows[row] != std::vector<uint32_t>{activation_};
      for (size_t step = 0; step < kSteps; ++step) {
        const double own = recorded.series[row].y[step];
        EXPECT_EQ((step < 7 ? before : after).series[row].y[step], own) << name_of(measured) << " " << row << " " << step;
        if (!is_scaled) {
          EXPECT_EQ(heatmap.at(-3).series[row].y[step], own);
        }
      }
    }
  }
  // And it does follow.
  const Plot recorded = module_heatmap(history_.analysis(), history_.context(), Measured::flushed, modules);
  const ScaledHeatmap heatmap = scaled_heatmap(*snapshot_, recorded, rows, Measured::flushed, "");
  EXPECT_LT(heatmap.at(20).series[0].y[0], recorded.series[0].y[0]);
  EXPECT_GT(heatmap.at(0).series[0].y[0], recorded.series[0].y[0]);
}

// More cells than 64k are joined in columns.
TEST_F(ScaledHeatmapTest, ManyRowsHaveFewerColumns) {
  const std::vector<uint32_t> tensors(20000, first_);
  const std::vector<std::vector<uint32_t>> rows(tensors.size(), {first_});
  const Plot recorded = tensor_heatmap(history_.analysis(), history_.context(), Measured::flushed, tensors);
  const Plot plot = scaled_heatmap(*snapshot_, recorded, rows, Measured::flushed, "").at(10);
  ASSERT_EQ(plot.series.front().x, (std::vector<double>{0, 4, 8}));
  double sum = 0;
  for (int step = 0; step < 4; ++step) sum += share_of(first_, step, Measured::flushed, binary16, 1);
  EXPECT_NEAR(plot.series.back().y[0], sum / 4, 1e-12);
}

}  // namespace
}  // namespace ulpscope
