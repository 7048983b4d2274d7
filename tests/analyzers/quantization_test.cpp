// Rows of FP8 tensors: what-ifs without their quantization scale against one rounding at a time, and what is said of them.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "report_access.h"
#include "synthetic_trace.h"
#include "tests/support/said.h"
#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/totals/what_if.h"
#include "ulpscope/analyzers/verbs/info.h"
#include "ulpscope/analyzers/verbs/ranges.h"
#include "ulpscope/analyzers/verbs/scale.h"

namespace ulpscope::analyzers_test {
namespace {

// As the op quantize records `values`, which contain the loss scale `scale`.
TensorRow make_quantized_row(std::vector<double> values, DType dtype, double quantization_scale, double scale = 1.0) {
  for (double& value : values) value *= quantization_scale;
  TensorRow row = make_row(values, dtype, scale);
  row.quantization_scale = quantization_scale;
  return row;
}

TEST(Quantization, WhatIfsAreOfTheValuesWithoutTheirScale) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const double q = round % 3 == 0 ? 1024.0 : std::exp2(std::uniform_real_distribution(-10.0, 20.0)(random));
    const double scale = round % 2 == 0 ? 1.0 : 256.0;
    std::vector<double> scaled = lognormal(random, 3, 6, 60);
    std::vector<double> values;
    for (const double value : scaled) values.push_back(value / q);
    TensorInfo tensor;
    tensor.dtype = DType::f8_e4m3;
    TensorRow row = make_row(scaled, DType::f8_e4m3, scale);
    row.quantization_scale = q;
    for (const FloatFormat* format : {&binary16, &bfloat16, &e4m3, &e5m2}) {
      for (const double divided : {1.0, scale}) {
        const RoundingTruth truth = round_all(values, *format, divided);
        const auto bounds = what_if(row, tensor, *format, divided);
        ASSERT_TRUE(bounds);
        EXPECT_EQ(bounds->base, truth.base);
        const auto holds = [](const CountBounds& bound, uint64_t count) { return bound.lower <= count && count <= bound.upper; };
        EXPECT_TRUE(holds(bounds->flushed, truth.flushed)) << format->name << " " << q;
        EXPECT_TRUE(holds(bounds->subnormal, truth.subnormal)) << format->name << " " << q;
        EXPECT_TRUE(holds(bounds->overflowed, truth.overflowed)) << format->name << " " << q;
      }
    }
  }
}

TEST(Quantization, TablesHaveTheRecordedRoundingAndMagnitudesWithoutTheScale) {
  SyntheticTrace trace;
  const uint32_t x = trace.add_tensor("fc", "quantize", Phase::forward, Role::activation, DType::f8_e4m3);
  trace.add(x, make_quantized_row({1.0, -3.5, 1e-6}, DType::f8_e4m3, 128));
  trace.end_step();
  const Report report = analyze_ranges(trace.read(), what_ifs());
  const Table& recorded = table(report, "recorded");
  EXPECT_DOUBLE_EQ(lower(cell(recorded, 0, "flushed")), 1.0 / 3);
  EXPECT_DOUBLE_EQ(lower(cell(recorded, 0, "headroom")), 0);  // 3.5 * 128 is 448
  EXPECT_NE(recorded.note.find("FP8"), std::string::npos);
  const Table& fp16 = table(report, "what_if_fp16");
  EXPECT_DOUBLE_EQ(lower(cell(fp16, 0, "flushed")), 0);  // 1e-6 is subnormal there
  EXPECT_DOUBLE_EQ(lower(cell(fp16, 0, "headroom")), std::log2(65504 / 3.5));
}

// The advice for what FP8 loses is about quantization scales. Of counts alone: that the tensor's own scale would have kept them is
// not known.
TEST(Quantization, FlushedGradientsAreNoMatterOfTheLossScale) {
  SyntheticTrace trace;
  const uint32_t wide = trace.add_tensor("fc", "matmul", Phase::backward, Role::activation_gradient, DType::bf16);
  const uint32_t g = trace.add_tensor("fc", "quantize", Phase::backward, Role::activation_gradient, DType::f8_e5m2);
  const std::vector<double> values{1e-4, 1e-4, 2e-4, 4e-5};
  trace.add(wide, make_row(values, DType::bf16));
  TensorRow quantized = make_quantized_row(values, DType::f8_e5m2, 0.125);  // a quarter is flushed, the rest subnormal
  quantized.known = StatisticsLevel::health;
  trace.add(g, quantized);
  trace.end_step();
  const Snapshot reader = trace.read();
  const Report report = analyze_ranges(reader);
  EXPECT_EQ(find_finding(report, "range.gradients_flushed"), nullptr);
  EXPECT_EQ(find_finding(report, "range.gradients_vanish"), nullptr);
  const Finding* finding = find_finding(report, "range.quantization_flushed");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::warning);
  EXPECT_EQ(finding->evidence[0].key.op_name, "quantize");
  // A quarter of 2^-17, and three subnormals of 2^-17 at least: the norm may have been flushed whole.
  EXPECT_NE(finding->title.text().find(", and up to "), std::string::npos) << finding->title;
  EXPECT_NE(finding->suggestion.text().find("Loss scaling does not help"), std::string::npos);
  // The BF16 gradients fit, whatever FP8 did; their range was never the limit.
  const Finding* fit = find_finding(report, "range.gradients_fit");
  ASSERT_NE(fit, nullptr);
  EXPECT_EQ(fit->title, "Gradients fit BF16: no underflow in 1 gradient tensor.");
  EXPECT_TRUE(fit->evidence.empty());
}

// Of FP8 it is told first, at the scales of its tensors.
TEST(Quantization, GradientsThatFitFp8AreSaidToFitIt) {
  SyntheticTrace trace;
  const uint32_t wide = trace.add_tensor("fc", "matmul", Phase::backward, Role::activation_gradient, DType::bf16);
  const uint32_t g = trace.add_tensor("fc", "quantize", Phase::backward, Role::activation_gradient, DType::f8_e5m2);
  std::vector<double> values(1000, 1.0);
  trace.add(wide, make_row(values, DType::bf16));
  values[7] = 1e-10;
  values[8] = 2.0;
  trace.add(g, make_quantized_row(values, DType::f8_e5m2, 32768));  // 2 is stored as 57344
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Finding* fit = find_finding(report, "range.gradients_fit");
  ASSERT_NE(fit, nullptr);
  EXPECT_EQ(
      fit->title,
      "Gradients fit E5M2 at their quantization scales: underflow of at most 0.1% and saturation of at most 0.1% in 1 gradient "
      "tensor. Gradients fit BF16: no underflow in 1 gradient tensor.");
  ASSERT_EQ(fit->evidence.size(), 2u);
  EXPECT_EQ(fit->evidence[0].key.op_name, "quantize");
  EXPECT_EQ(fit->evidence[1].values[0].name, "saturated");
}

// One table has their largest magnitudes and scales, and each format a picture of what was rounded, against its own limits.
TEST(Quantization, RangesShowAmaxAndScales) {
  SyntheticTrace trace;
  const uint32_t x = trace.add_tensor("fc", "quantize", Phase::forward, Role::activation, DType::f8_e4m3);
  const uint32_t g = trace.add_tensor("fc", "quantize", Phase::backward, Role::activation_gradient, DType::f8_e5m2);
  for (const double scale : {64.0, 16.0}) {
    trace.add(x, make_quantized_row({3.0, 448 / scale}, DType::f8_e4m3, scale));
    trace.add(g, make_quantized_row({1.0}, DType::f8_e5m2, 2));
    trace.end_step();
  }
  const Snapshot reader = trace.read();
  const Report report = analyze_ranges(reader);
  const Table& fp8 = table(report, "quantization");
  ASSERT_EQ(fp8.rows.size(), 2u);
  const size_t row = row_of(fp8, "fc quantize");
  EXPECT_EQ(cell(fp8, row, "smallest_amax"), Cell(7.0));
  EXPECT_EQ(cell(fp8, row, "largest_amax"), Cell(28.0));
  EXPECT_EQ(cell(fp8, row, "smallest_scale"), Cell(16.0));
  EXPECT_EQ(cell(fp8, row, "largest_scale"), Cell(64.0));
  ASSERT_EQ(report.plots.size(), 2u);
  EXPECT_EQ(report.plots[0].name, "exponents_e4m3");
  EXPECT_EQ(report.plots[0].limits[2].exponent, 9);  // 2^9 is above 448
  ASSERT_EQ(report.plots[0].series.size(), 1u);
  EXPECT_EQ(report.plots[0].series[0].x, (std::vector<double>{5, 7, 8}));  // 48, 192 and twice 448
  EXPECT_EQ(report.plots[1].name, "exponents_e5m2");
  EXPECT_EQ(report.plots[1].limits[2].exponent, 16);
  RangeOptions options;
  options.formats = {&binary16};
  EXPECT_EQ(analyze_ranges(reader, options).plots[0].name, "exponents");
}

// One outlier in the history of delayed scaling: the scale of the steps after it is far too small, though one fits.
TEST(Quantization, AScaleFarBelowWhatTheValuesAskForIsStale) {
  const auto report_of = [](const std::vector<double>& values, double scale) {
    SyntheticTrace trace;
    const uint32_t x = trace.add_tensor("fc", "quantize", Phase::forward, Role::activation, DType::f8_e4m3);
    trace.add(x, make_quantized_row({1e7}, DType::f8_e4m3, 1));
    trace.end_step();
    trace.add(x, make_quantized_row(values, DType::f8_e4m3, scale));
    trace.end_step();
    return analyze_ranges(trace.read());
  };
  const double outlier = 448 / 1e7;
  const Report stale = report_of({0.5, 1.0, 2.0, -1.5}, outlier);
  const Finding* finding = find_finding(stale, "range.quantization_stale");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(find_finding(stale, "range.quantization_flushed"), nullptr);
  EXPECT_NE(finding->suggestion.text().find("fp8.amax_history"), std::string::npos);
  // Values over more binades than E4M3 has are flushed at any scale.
  const Report spread = report_of({1e-9, 1e-9, 1.0, -1.5}, 448 / 1.5);
  EXPECT_EQ(find_finding(spread, "range.quantization_stale"), nullptr);
  const Report both = report_of({1e-9, 1e-9, 1.0, -1.5}, outlier);
  EXPECT_EQ(find_finding(both, "range.quantization_stale"), nullptr);
  EXPECT_NE(find_finding(both, "range.quantization_flushed"), nullptr);
}

// The step that is told is the first of a stale scale, not one that lost an element or two at a scale that fitted; and what the run
// came to comes of it.
TEST(Quantization, AStaleScaleIsToldFromItsFirstStepOn) {
  SyntheticTrace trace;
  const uint32_t x = trace.add_tensor("fc", "quantize", Phase::forward, Role::activation, DType::f8_e4m3);
  std::vector<double> values(200, 1.0);
  values[7] = 1e-9;
  for (uint64_t step = 0; step < 8; ++step) {
    trace.add(x, make_quantized_row(values, DType::f8_e4m3, step < 3 ? 448 : 448 / 1e7));
    trace.end_step();
  }
  const Report report = analyze_ranges(trace.read());
  const Finding* const finding = find_finding(report, "range.quantization_stale");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->evidence[0].key.step, 3u);
  EXPECT_EQ(finding->extent.first_step, 3u);
  const Codes& explains = finding_rule("range.quantization_stale").explains;
  for (const char* code : {"run.no_better_than_guessing", "run.loss_stayed", "run.loss_rose"}) EXPECT_TRUE(explains.contain(code));
}

// One outlier takes the scale of current scaling, and is all of the norm.
TEST(Quantization, WhatOneOutlierFlushesIsANote) {
  SyntheticTrace trace;
  const uint32_t x = trace.add_tensor("fc", "quantize", Phase::forward, Role::activation, DType::f8_e4m3);
  std::vector<double> values(100, 1.0);
  values[7] = 1e7;
  trace.add(x, make_quantized_row(values, DType::f8_e4m3, 448 / 1e7));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Finding* finding = find_finding(report, "range.quantization_flushed");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::info);
  EXPECT_NE(finding->title.text().find(", but at most 6.25% of its norm."), std::string::npos)
      << finding->title;  // half an ulp of E4M3
  EXPECT_EQ(finding->evidence[0].values[0].value, Cell(0.99));
}

// Delayed scaling begins without a history, at scale 1: that is no outlier's doing, and no margin helps.
TEST(Quantization, TheFirstStepOfDelayedScalingIsSaidToHaveNoHistory) {
  SyntheticTrace trace;
  trace.add_tensor("fc", "amax_history_update", Phase::backward, Role::buffer, DType::f32);
  const uint32_t x = trace.add_tensor("fc", "quantize", Phase::forward, Role::activation, DType::f8_e4m3);
  const uint32_t y = trace.add_tensor("fc", "quantize", Phase::backward, Role::activation, DType::f8_e4m3);
  for (const double scale : {1.0, 4e6}) {
    trace.add(x, make_quantized_row({1e-5, 1.1e-4, -1e-4}, DType::f8_e4m3, scale));
    trace.add(y, make_quantized_row({1e4, 1.1e4}, DType::f8_e4m3, scale == 1 ? 1 : 0.04));
    trace.end_step();
  }
  const Report report = analyze_ranges(trace.read());
  const Finding* finding = find_finding(report, "range.quantization_unscaled");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->evidence.size(), 2u);
  for (const char* code : {"range.quantization_stale", "range.quantization_flushed", "range.quantization_saturated"})
    EXPECT_EQ(find_finding(report, code), nullptr) << code;
}

// What saturates in current scaling is no matter of a history, and a margin is advised where it is enough.
TEST(Quantization, AdviceOnSaturationIsOfTheRecipe) {
  for (const bool delayed : {true, false}) {
    for (const double largest : {500.0, 1e6}) {
      SyntheticTrace trace;
      if (delayed) trace.add_tensor("fc", "amax_history_update", Phase::backward, Role::buffer, DType::f32);
      const uint32_t x = trace.add_tensor("fc", "quantize", Phase::forward, Role::activation, DType::f8_e4m3);
      trace.add(x, make_quantized_row({100, largest / 2}, DType::f8_e4m3, 2));
      trace.end_step();
      const Report report = analyze_ranges(trace.read());
      const Finding& finding = *find_finding(report, "range.quantization_saturated");
      const std::string advice = finding.suggestion;
      EXPECT_EQ(finding.title.text().find("Delayed scaling") != std::string::npos, delayed) << finding.title;
      EXPECT_EQ(advice.find("se current scaling (fp8.recipe = ") != std::string::npos, delayed) << advice;
      EXPECT_EQ(advice.find("Raise the margin by 1 (fp8.margin, now 0).") != std::string::npos, delayed && largest == 500)
          << advice;
    }
  }
}

TEST(Quantization, InfoTellsTheScales) {
  SyntheticTrace trace;
  const uint32_t x = trace.add_tensor("fc", "quantize", Phase::forward, Role::activation, DType::f8_e4m3);
  const uint32_t g = trace.add_tensor("fc", "quantize", Phase::backward, Role::activation_gradient, DType::f8_e5m2);
  for (const double scale : {64.0, 16.0, 32.0}) {
    trace.add(x, make_quantized_row({1.0}, DType::f8_e4m3, scale));
    trace.add(g, make_quantized_row({1.0}, DType::f8_e5m2, 2));
    trace.end_step();
  }
  const Report report = analyze_info(trace.read());
  EXPECT_EQ(fact(report, "quantization_scaling"), Cell(std::string("current")));
  const Table& scales = table(report, "quantization_scales");
  ASSERT_EQ(scales.rows.size(), 2u);
  EXPECT_EQ(cell(scales, 0, "largest"), Cell(2.0));  // the smallest stands first
  EXPECT_EQ(cell(scales, 1, "smallest"), Cell(16.0));
  EXPECT_EQ(cell(scales, 1, "largest"), Cell(64.0));
  EXPECT_EQ(cell(scales, 1, "last"), Cell(32.0));
  SyntheticTrace without;
  without.add(without.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16), make_row({1.0}, DType::f16));
  without.end_step();
  const Report none = analyze_info(without.read());
  for (const Table& other : none.tables) EXPECT_NE(other.name, "quantization_scales");
}

// Gradients behind one that FP8 flushed are not known, and no advice on the scales of FP16 follows from it.
TEST(Quantization, GradientsBehindAFlushedOneAreHiddenByItsScale) {
  SyntheticTrace trace;
  const uint32_t loss = trace.add_tensor("", "cross_entropy_backward", Phase::backward, Role::activation_gradient, DType::f32);
  const uint32_t g = trace.add_tensor("fc", "quantize", Phase::backward, Role::activation_gradient, DType::f8_e5m2);
  const uint32_t weight = trace.add_tensor("fc", "scaled_matmul", Phase::backward, Role::weight_gradient, DType::f16);
  trace.sink().add_edge({0, g, 0, loss, 0});
  trace.sink().add_edge({0, weight, 0, g, 0});
  trace.add(loss, make_row({1e-7, 1e-7}, DType::f32));
  trace.add(g, make_quantized_row({1e-7, 1e-7}, DType::f8_e5m2, 1));
  trace.add(weight, make_row({0.0, 0.0}, DType::f16));
  trace.end_step();
  const Report report = analyze_scale(trace.read());
  const Finding* finding = find_finding(report, "scale.fit_hidden");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->evidence[0].key.op_name, "quantize");
  EXPECT_EQ(finding->suggestion.front().id(), "advice.flushed_by_fp8");
  EXPECT_EQ(finding->suggestion.text().find("FP16"), std::string::npos);
}

TEST(Quantization, SaturationIsNoInfinity) {
  SyntheticTrace trace;
  const uint32_t x = trace.add_tensor("fc", "quantize", Phase::forward, Role::activation, DType::f8_e4m3);
  const uint32_t g = trace.add_tensor("fc", "quantize", Phase::backward, Role::activation_gradient, DType::f8_e5m2);
  trace.add(x, make_quantized_row({1.0, 500.0, INFINITY}, DType::f8_e4m3, 1));
  trace.add(g, make_quantized_row({1e6, 1.0}, DType::f8_e5m2, 1, 16.0));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  for (const char* code : {"range.nonfinite", "range.values_overflow", "range.gradients_overflow"})
    EXPECT_EQ(find_finding(report, code), nullptr) << code;
  const Finding* finding = find_finding(report, "range.quantization_saturated");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->evidence.size(), 2u);
  EXPECT_EQ(finding->severity, Severity::warning);
  EXPECT_EQ(cell(table(report, "recorded"), row_of(table(report, "recorded"), "fc quantize"), "nonfinite"), Cell(int64_t{0}));
}

// Delayed scaling saturates a few elements of healthy runs.
TEST(Quantization, FewSaturatedElementsAreANote) {
  SyntheticTrace trace;
  const uint32_t x = trace.add_tensor("fc", "quantize", Phase::forward, Role::activation, DType::f8_e4m3);
  std::vector<double> values(1000, 1.0);
  values[7] = 500.0;
  trace.add(x, make_quantized_row(values, DType::f8_e4m3, 1));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Finding* finding = find_finding(report, "range.quantization_saturated");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::info);
}

// A NaN stays one.
TEST(Quantization, NanIsNonfinite) {
  SyntheticTrace trace;
  const uint32_t x = trace.add_tensor("fc", "quantize", Phase::forward, Role::activation, DType::f8_e4m3);
  trace.add(x, make_quantized_row({1.0, NAN, 500.0}, DType::f8_e4m3, 1));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Finding* finding = find_finding(report, "range.nonfinite");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->title.text().find("became infinite"), std::string::npos) << finding->title;
}

TEST(Quantization, HasNoPartInFittingScales) {
  const auto scales = [](bool quantized) {
    SyntheticTrace trace;
    const uint32_t wide = trace.add_tensor("fc", "matmul", Phase::backward, Role::activation_gradient, DType::f16);
    const uint32_t g = trace.add_tensor("fc", "quantize", Phase::backward, Role::activation_gradient, DType::f8_e5m2);
    trace.add(wide, make_row({1e-3, 2.0, 5.0}, DType::f16, 1024));
    if (quantized) trace.add(g, make_quantized_row({1e-3, 2.0, 5.0}, DType::f8_e5m2, 8192, 1024));
    trace.end_step(SyntheticTrace::default_step(1, 1024));
    const Report report = analyze_scale(trace.read());
    std::string text;
    for (const Quantity& quantity : report.facts)
      if (quantity.name.ends_with("_fitting_scale")) text += quantity.name + " " + std::to_string(lower(quantity.value)) + "\n";
    return text;
  };
  EXPECT_FALSE(scales(false).empty());
  EXPECT_EQ(scales(true), scales(false));
}

}  // namespace
}  // namespace ulpscope::analyzers_test
