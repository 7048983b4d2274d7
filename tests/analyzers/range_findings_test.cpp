// Findings of ranges in traces made of known values: each provoked and absent.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "report_access.h"
#include "synthetic_trace.h"
#include "tests/support/said.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
#include "ulpscope/analyzers/verbs/ranges.h"
#include "ulpscope/analyzers/verbs/scale.h"

namespace ulpscope::analyzers_test {
namespace {

// What follows once all losses are NaN says nothing about formats and scales.
TEST(RangeFindings, RowsOfABrokenRunAreNoEvidence) {
  SyntheticTrace trace;
  const uint32_t forward = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  for (int step = 0; step < 6; ++step) {
    const bool broken = step >= 3;
    trace.add(forward, make_row({1.0, broken ? 1e6 : 2.0}, DType::f16));
    trace.add(gradient, make_row(broken ? std::vector{NAN, 1e-9} : std::vector{0.25, 0.5}, DType::f16, 8.0));
    trace.end_step(SyntheticTrace::default_step(step == 1 || broken ? NAN : 1.0, 8.0));  // in step 1 it was the data
  }
  const Report report = analyze_ranges(trace.read());
  const Finding* finding = find_finding(report, "range.values_overflow");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->title.front().text(), "FP16 overflow in the forward pass: `fc` (linear), step 3, 1 of 2 elements.");
  EXPECT_NE(sentence_of(finding->title, "nonfinite.tensors"), nullptr) << finding->title;
  ASSERT_EQ(finding->evidence.size(), 2u);
  EXPECT_EQ(finding->evidence[0].key.op_name, "linear");
  EXPECT_EQ(finding->evidence[0].values[1].value, Cell(int64_t{1}));  // infinities of that row
  for (const Finding& other : report.findings)
    EXPECT_EQ(other.code.starts_with("range."), &other == finding) << other.code;  // of what came of it, none is on ranges
  // The tables have all rows.
  EXPECT_EQ(cell(table(report, "recorded"), 0, "rows"), Cell(int64_t{6}));
}

// A gradient of subnormals that its own op kept, and the op that reads it flushed: every product is zero, and no rounding tells.
TEST(RangeFindings, SubnormalInputsReadAsZeroAreAnErrorWithTheScaleThatMendsIt) {
  SyntheticTrace trace;
  const OpInfo loss{1, 0, "cross_entropy_backward", "", Phase::backward, "", {}},
      matmul{2, 0, "matmul", "fc", Phase::backward, "", {}};
  TensorInfo small, product;
  small.role = product.role = Role::activation_gradient;
  small.dtype = product.dtype = DType::f16;
  small.shape = product.shape = {100};
  product.flushes_results = product.flushes_inputs = true;
  const uint32_t read = trace.add_output(loss, small), made = trace.add_output(matmul, product);
  trace.sink().add_edge({0, 1, 0, 0, 0});
  trace.add(read, make_row(std::vector<double>(100, 0x1p-20), DType::f16));
  TensorRow zeros = make_row(std::vector<double>(100, 0.0), DType::f16);
  zeros.input = {100, 100};
  trace.add(made, zeros);
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Finding* finding = find_finding(report, "range.inputs_flushed");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::error);
  ASSERT_EQ(finding->evidence.size(), 1u);
  EXPECT_EQ(finding->evidence[0].key.op_name, "matmul");
  EXPECT_EQ(finding->evidence[0].values[0].value, Cell(1.0));
  // 2^-20 is normal from 2^6 on.
  EXPECT_NE(finding->suggestion.text().find("smallest normal number: at least 2^6 here."), std::string::npos)
      << finding->suggestion;
  EXPECT_EQ(find_finding(report, "range.gradients_fit"), nullptr);
}

// The gradient of a weight of `size` elements in FP16, which op sum makes in this mode.
uint32_t add_rounded_gradient(SyntheticTrace& trace, int64_t size, RoundingMode mode) {
  TensorInfo gradient;
  gradient.role = Role::weight_gradient;
  gradient.dtype = DType::f16;
  gradient.shape = {size};
  gradient.rounding = mode;
  return trace.add_output({1, 0, "sum", "fc", Phase::backward, "", {}}, gradient);
}

TEST(RangeFindings, ValuesKeptAtTheLargestNumberDoNotFit) {
  SyntheticTrace trace;
  const uint32_t sum = add_rounded_gradient(trace, 3, RoundingMode::toward_zero);
  TensorRow row = make_row({1.0, 300000.0, 2.0}, DType::f16);
  row.rounding.saturated = row.rounding.overflowed;  // 1, as to nearest it would be infinite
  trace.add(sum, row);
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Finding* finding = find_finding(report, "range.saturated");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->severity, Severity::warning);
  EXPECT_EQ(finding->evidence[0].values[0].value, Cell(int64_t{1}));
  for (const char* code : {"range.gradients_fit", "range.gradients_overflow", "range.nonfinite"})
    EXPECT_EQ(find_finding(report, code), nullptr) << code;
}

// The first in order of execution made the others' inputs, however many rows a step has.
TEST(RangeFindings, TheFirstThatSaturatedIsTold) {
  SyntheticTrace trace;
  const OpInfo op{1, 0, "sum", "early", Phase::backward, "", {}}, other{2, 0, "sum", "late", Phase::backward, "", {}};
  TensorInfo gradient;
  gradient.role = Role::weight_gradient;
  gradient.dtype = DType::f16;
  gradient.rounding = RoundingMode::toward_zero;
  const uint32_t late = trace.add_output(other, gradient), early = trace.add_output(op, gradient);
  TensorRow row = make_row({1.0, 300000.0}, DType::f16);
  row.rounding.saturated = row.rounding.overflowed;
  for (const uint32_t tensor : {early, late}) {
    row.tensor = tensor;
    row.step = trace.step();
    row.sequence = tensor == early ? 2000000 : 0;
    trace.sink().add_row(row);
    trace.end_step();
  }
  const Report report = analyze_ranges(trace.read());
  const Finding* finding = find_finding(report, "range.saturated");
  ASSERT_NE(finding, nullptr);
  ASSERT_EQ(finding->evidence.size(), 2u);
  EXPECT_EQ(finding->evidence[0].key.module, "early");
}

// The phase is said once, whatever modules are called.
TEST(RangeFindings, TheOriginsPhaseIsSaidOnce) {
  struct Case {
    const char* module;
    Phase phase;
    Role role;
    const char* parameter;
    const char* place;
  };
  for (const auto& [module, phase, role, parameter, place] :
       {Case{"forward_net", Phase::forward, Role::activation, "", "`forward_net` (matmul, forward)"},
        Case{"fc", Phase::backward, Role::weight_gradient, "fc.weight", "`fc.weight` (gradient)"},
        Case{"fc", Phase::scaling, Role::unscaled_gradient, "fc.weight", "`fc.weight` (unscaled gradient, scaling)"},
        Case{"fc", Phase::backward, Role::activation_gradient, "", "`fc` (matmul in backward)"},
        Case{"lossy", Phase::loss, Role::activation, "", "`lossy` (matmul, loss)"},
        Case{"", Phase::loss, Role::loss, "", "`matmul` (loss)"},
        Case{"fc", Phase::evaluation, Role::activation, "", "`fc` (matmul, evaluation)"}}) {
    SyntheticTrace trace;
    trace.add(trace.add_tensor(module, "matmul", phase, role, DType::f32, parameter), make_row({NAN}, DType::f32));
    trace.end_step();
    const Report report = analyze_ranges(trace.read());
    const Finding* finding = find_finding(report, "range.nonfinite");
    ASSERT_NE(finding, nullptr) << place;
    EXPECT_EQ(finding->title.front().text(), std::string("First NaN: ") + place + ", step 0.");
  }
}

// 2^-30 is zero to nearest; to odd all of them become 2^-24.
TEST(RangeFindings, GradientsThatTheModeRaisedDoNotFit) {
  for (const bool small : {true, false}) {
    for (const RoundingMode mode : {RoundingMode::to_odd, RoundingMode::stochastic, RoundingMode::nearest_even}) {
      SyntheticTrace trace;
      const uint32_t sum = add_rounded_gradient(trace, 100, mode);
      TensorRow row = make_row(std::vector<double>(100, small ? 0x1p-30 : 1.0), DType::f16);
      if (small && mode != RoundingMode::nearest_even) row.rounding = {.flushed = 0, .subnormal = 100, .inexact_subnormal = 100};
      trace.add(sum, row);
      trace.end_step();
      const Report report = analyze_ranges(trace.read());
      const Finding* finding = find_finding(report, "range.gradients_raised");
      const bool raised = small && mode != RoundingMode::nearest_even;
      ASSERT_EQ(finding != nullptr, raised);
      EXPECT_EQ(find_finding(report, "range.gradients_fit") != nullptr, !small);
      if (!raised) continue;
      EXPECT_EQ(finding->severity, Severity::warning);
      EXPECT_EQ(finding->evidence[0].values[0].value, Cell(1.0));
    }
  }
}

// Nothing is rounded to integers, whatever a trace says.
TEST(RangeFindings, IntegersThatAreSaidToBeSaturatedAreNone) {
  SyntheticTrace trace;
  const uint32_t counts = trace.add_tensor("fc", "count", Phase::forward, Role::activation, DType::i32);
  TensorRow row = make_row({1.0, 300000.0}, DType::f16);
  ASSERT_GT(row.rounding.overflowed, 0u);
  row.rounding.saturated = row.rounding.overflowed;
  trace.add(counts, row);
  trace.end_step(SyntheticTrace::default_step(1.0));
  EXPECT_EQ(find_finding(analyze_ranges(trace.read()), "range.saturated"), nullptr);
}

TEST(RangeFindings, MostOfAGradientKeptAtTheLargestNumberIsAnError) {
  for (const bool most : {true, false}) {
    SyntheticTrace trace;
    const uint32_t sum = add_rounded_gradient(trace, 4, RoundingMode::toward_zero);
    TensorRow row = make_row({1.0, 300000.0, most ? 300000.0 : 2.0, 1.0}, DType::f16, 0x1p26);
    row.rounding.saturated = row.rounding.overflowed;
    trace.add(sum, row);
    trace.end_step(SyntheticTrace::default_step(1.0, 0x1p26));
    const Snapshot reader = trace.read();
    EXPECT_EQ(find_finding(analyze_ranges(reader), "range.saturated")->severity, most ? Severity::error : Severity::warning);
    // The scaler saw no overflow, and the scale is too large all the same: 300000 fits from 2^23 on downwards.
    const Report scale = analyze_scale(reader);
    EXPECT_EQ(find_finding(scale, "scale.above_100000")->severity, Severity::warning);
    ASSERT_NE(find_finding(scale, "scale.over_scaled"), nullptr);
    EXPECT_NE(find_finding(scale, "scale.over_scaled")->title.text().find("gradients overflow above 2^23"), std::string::npos);
  }
}

// The scale in force is known not to fit, and it is there already.
TEST(RangeFindings, AdviceOnInputsReadAsZeroIsAboveTheScaleInForce) {
  RunInfo run;
  run.dynamic_loss_scale = false;
  SyntheticTrace trace(run);
  TensorInfo product;
  product.role = Role::activation_gradient;
  product.dtype = DType::f16;
  product.shape = {100};
  product.flushes_inputs = true;
  const uint32_t made = trace.add_output({2, 0, "matmul", "fc", Phase::backward, "", {}}, product);
  TensorRow zeros = make_row(std::vector<double>(100, 0.0), DType::f16, 128.0);
  zeros.input = {100, 100};
  trace.add(made, zeros);
  trace.end_step(SyntheticTrace::default_step(1.0, 128.0));
  const Report report = analyze_ranges(trace.read());
  const std::string& advice = find_finding(report, "range.inputs_flushed")->suggestion;
  EXPECT_TRUE(advice.starts_with("Use a larger loss scale (scaler.initial, now ")) << advice;
  EXPECT_NE(advice.find("smallest normal number: at least 2^8 here."), std::string::npos) << advice;
}

TEST(RangeFindings, OneSurvivingElementIsNoVanishing) {
  SyntheticTrace trace;
  const uint32_t first = trace.add_tensor("fc", "cast", Phase::backward, Role::activation_gradient, DType::f16);
  trace.add(first, make_row({1e-9, 2e-9, 1e-3}, DType::f16));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  EXPECT_EQ(find_finding(report, "range.gradients_vanish"), nullptr);
  EXPECT_NE(find_finding(report, "range.gradients_flushed"), nullptr);
}

// Where the loss is 0 nothing is left to learn: what gradients lose is no loss, nor a reason for a scale.
TEST(RangeFindings, WhatVanishesInFittedStepsIsNotMissed) {
  for (const bool is_fitted : {false, true}) {
    RunInfo run;
    run.dynamic_loss_scale = false;
    SyntheticTrace trace(run);
    const uint32_t first = trace.add_tensor("fc", "cast", Phase::backward, Role::activation_gradient, DType::f16);
    for (int step = 0; step < 10; ++step) {
      trace.add(first, step < 2 ? make_row({1, 2}, DType::f16) : make_row({1e-9, 2e-9}, DType::f16));
      trace.end_step(SyntheticTrace::default_step(step < 2 ? 1 : is_fitted ? 0 : 0.5));
    }
    const Report report = analyze_all(trace.read());
    for (const char* const code : {"range.gradients_vanish", "scale.missing"})
      EXPECT_EQ(find_finding(report, code) == nullptr, is_fitted) << code;
  }
}

// Each number is of the tensor that it stands beside.
TEST(RangeFindings, GradientsThatVanishInSeveralTensorsAreCountedForEach) {
  SyntheticTrace trace;
  const uint32_t a = trace.add_tensor("a", "cast", Phase::backward, Role::activation_gradient, DType::f16);
  const uint32_t b = trace.add_tensor("b", "cast", Phase::backward, Role::activation_gradient, DType::f16);
  for (int step = 0; step < 5; ++step) {
    trace.add(step < 3 ? b : a, make_row({1e-9, 2e-9}, DType::f16));
    trace.end_step();
  }
  const Report report = analyze_ranges(trace.read());
  const Finding* finding = find_finding(report, "range.gradients_vanish");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->title.front().text(), "All gradients underflow to zero in FP16, in 5 of 5 backward passes.");
  ASSERT_EQ(finding->evidence.size(), 2u);
  EXPECT_EQ(finding->evidence[0].key.module, "b");
  EXPECT_EQ(finding->evidence[0].values[0].value, Cell(int64_t{3}));
  EXPECT_EQ(finding->evidence[1].values[0].value, Cell(int64_t{2}));
}

TEST(RangeFindings, GradientsThatFitAreSaidToFitWithTheirHeadroom) {
  SyntheticTrace trace;
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  trace.add(gradient, make_row({1.0, 4.0, 0.5}, DType::f16, 1024.0));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].code, "range.gradients_fit");
  EXPECT_EQ(report.findings[0].severity, Severity::info);
  EXPECT_DOUBLE_EQ(lower(report.findings[0].evidence[0].values[0].value), std::log2(65504.0 / 4.0));
  EXPECT_EQ(report.findings[0].title, "Gradients fit FP16: no underflow in 1 gradient tensor, and 14.0 bits of headroom.");
}

TEST(RangeFindings, GradientsWithoutHeadroomAreSaidToHaveNone) {
  SyntheticTrace trace;
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  trace.add(gradient, make_row({1.0, 65000.0}, DType::f16));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Finding* fit = find_finding(report, "range.gradients_fit");
  ASSERT_NE(fit, nullptr);
  EXPECT_EQ(fit->title,
            "Gradients fit FP16: no underflow in 1 gradient tensor, but no headroom (largest value 65,000, maximum 65,504).");
}

// With 100 elements, r of them flushed and the others m: the norm flushed is at most sqrt(r) 2^-25, the tensor's at least
// sqrt(100 - r) m. So m = 2^-14 hides the flush of 2 below 2^-11 of the norm, and m = 2^-18 does not.
TEST(RangeFindings, FlushedGradientsAreAFindingAboveTheLimitAndAWarningWhereTheNormFeelsIt) {
  for (const auto& [flushed, others] : {std::pair{2, 0x1p-14}, {2, 0x1p-23}, {1, 0x1p-23}}) {  // 1 of 100 is at the limit of 1%
    SyntheticTrace trace;
    const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
    std::vector<double> values(100, others);
    std::fill_n(values.begin(), flushed, 1.2e-8);
    trace.add(gradient, make_row(values, DType::f16, 8.0));
    trace.end_step();
    const Report report = analyze_ranges(trace.read());
    const Finding* finding = find_finding(report, "range.gradients_flushed");
    ASSERT_EQ(finding != nullptr, flushed == 2);
    if (finding) {
      const bool felt = others == 0x1p-23;
      EXPECT_EQ(finding->severity, felt ? Severity::warning : Severity::info);
      EXPECT_EQ(finding->title.front().text(),
                "FP16 underflow in 1 of 1 gradient tensor: `fc` (linear_backward) lost 2% of "
                "its nonzero elements to zero.");
      // At most sqrt(2) 2^-26 of sqrt(98) 2^-23: 1.8%. Both lie in one bin, of 2^-27 to 2^-26.
      EXPECT_EQ(finding->title.from(1), felt ? "It lost more than 1% of its nonzero elements, and up to 1.79% of its norm."
                                             : "It lost more than 1% of its nonzero elements, but at most 1% of its norm.");
      EXPECT_EQ(finding->evidence[0].values[0].value, Cell(0.02));
      // At the scale 2^3, 1.2e-8 lies in [2^-27, 2^-26): two powers of two lift it above 2^-25, and 2^-23 stays below 2^16 for 38.
      EXPECT_EQ(finding->suggestion.text().find("A loss scale of 2^5 keeps them (now 1). The largest that fits is 2^41.") !=
                    std::string::npos,
                felt)
          << finding->suggestion;
      EXPECT_EQ(finding->suggestion.empty(), !felt);
    }
  }
}

// A tenth of the rows may feel what was flushed before it is a warning: the others are what is told.
TEST(RangeFindings, AFewRowsThatFeelTheFlushMakeNoWarning) {
  for (const int felt : {2, 3}) {
    SyntheticTrace trace;
    const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
    for (int step = 0; step < 20; ++step) {
      std::vector<double> values(100, step < felt ? 0x1p-23 : 0x1p-14);
      std::fill_n(values.begin(), 2, 1.2e-8);
      trace.add(gradient, make_row(values, DType::f16));
      trace.end_step();
    }
    const Report report = analyze_ranges(trace.read());
    const Finding* finding = find_finding(report, "range.gradients_flushed");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->severity, felt == 3 ? Severity::warning : Severity::info);
    EXPECT_TRUE(finding->title.text().ends_with(felt == 3 ? ", and up to 1.79% of its norm."
                                                          : ", but at most 1% of its norm in 9 of 10 rows or more."))
        << finding->title;
  }
}

// A scale that collapsed flushes everything, in steps of which nothing is used.
TEST(RangeFindings, WhatASkippedStepFlushedIsNoLoss) {
  for (const bool skipped : {true, false}) {
    SyntheticTrace trace;
    const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
    const uint32_t value = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
    for (int step = 0; step < 20; ++step) {
      const bool flushes = step >= 5;
      for (const uint32_t tensor : {gradient, value})
        trace.add(tensor, make_row(std::vector<double>(100, flushes ? 0x1p-26 : 0x1p-4), DType::f16));
      StepRow row = SyntheticTrace::default_step(1.0, 2.0);
      row.skipped = skipped && flushes;
      trace.end_step(row);
    }
    const Snapshot snapshot = trace.read();
    const Report report = analyze_ranges(snapshot);
    EXPECT_EQ(find_finding(report, "range.gradients_flushed") == nullptr, skipped);
    EXPECT_NE(find_finding(report, "range.activations_flushed"), nullptr);  // they are computed all the same
    EXPECT_EQ(find_finding(analyze_scale(snapshot), "scale.under_scaled") == nullptr, skipped);
  }
}

// Where the largest gradients leave no room, a larger scale is no advice; the op that can be changed is the one behind the cast,
// where autocast is what casts.
// Gradients of module head flushed, while others are as large as FP16 holds.
Report flushed_behind_head(SyntheticTrace& trace, bool autocast) {
  OpInfo linear{11, 0, "linear", "head", Phase::forward, "", {}}, widen{12, 0, "cast", "", Phase::loss, "", {}},
      narrow{13, 12, "cast", "", Phase::backward, "", {}};
  widen.kind = narrow.kind = OpKind::cast;
  const uint32_t made = trace.sink().add_op(linear), widened = trace.sink().add_op(widen);
  TensorInfo small;
  small.op = trace.sink().add_op(narrow);
  small.role = Role::activation_gradient;
  small.dtype = DType::f16;
  small.shape = {100};
  const uint32_t cast = trace.sink().add_tensor(small);
  if (autocast) trace.add_tensor("head", "cast", Phase::forward, Role::weight_cast, DType::f16, "head.weight");
  const uint32_t large = trace.add_tensor("body", "matmul", Phase::backward, Role::weight_gradient, DType::f16);
  trace.sink().add_edge({0, widened, 0, made, 0});
  std::vector<double> values(100, 0x1.8p-60);
  trace.add(large, make_row({60000.0}, DType::f16, 8.0));
  trace.add(cast, make_row(values, DType::f16, 8.0));
  trace.end_step();
  return analyze_ranges(trace.read());
}

TEST(RangeFindings, AdviceOnFlushedGradientsCanBeFollowed) {
  for (const bool autocast : {true, false}) {
    SyntheticTrace trace;
    const Report report = flushed_behind_head(trace, autocast);
    const Finding* finding = find_finding(report, "range.gradients_flushed");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->severity, Severity::warning);
    EXPECT_EQ(finding->suggestion,
              std::string("No single loss scale fits: these gradients need at least 2^38, and the largest overflow above 2^3. Use "
                          "BF16 (precision = bf16, now \"fp8\")") +
                  (autocast ? ", or keep `head` in FP32 (autocast.modules)." : "."));
    EXPECT_EQ(finding->evidence[0].values.back().value, Cell(std::string("head linear")));
  }
}

// Whose settings no trace has: advice is what they type.
TEST(RangeFindings, AdviceToUsersOfTorchIsPython) {
  RunInfo run;
  run.run_id = "0123456789abcdef0123456789abcdef";
  run.producer = "torch";
  SyntheticTrace trace(run, {});
  const Report report = flushed_behind_head(trace, true);
  const Finding* finding = find_finding(report, "range.gradients_flushed");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(
      finding->suggestion.text().find("Use BF16, or keep `head` in FP32 (torch.autocast(\"cuda\", enabled=False) around head, and "
                                      ".float() on its inputs)."),
      std::string::npos)
      << finding->suggestion;
  std::vector<std::string> values;
  for (const SettingChange& change : finding->changes)
    if (change.way == SettingChange::Way::set) values.push_back(change.value);
  EXPECT_EQ(values, (std::vector<std::string>{"torch.bfloat16", "torch.float32"}));
}

// What was computed from a flushed gradient tells neither which scale it needs nor how large it would be.
TEST(RangeFindings, AdviceOnFlushedGradientsIsABoundWhereTheyHideOthers) {
  for (const bool hides : {true, false}) {
    SyntheticTrace trace;
    const uint32_t first =
        trace.add_tensor("head", "cast", Phase::backward, hides ? Role::activation_gradient : Role::weight_gradient, DType::f16);
    const uint32_t behind = trace.add_tensor("body", "matmul", Phase::backward, Role::weight_gradient, DType::f16);
    std::vector<double> values(100, 0x1p-22);
    std::fill_n(values.begin(), 50, 0x1.8p-28);
    trace.add(first, make_row(values, DType::f16, 8.0));
    trace.add(behind, make_row(std::vector<double>(100, 0x1p-24), DType::f16, 8.0));
    trace.end_step();
    const Report report = analyze_ranges(trace.read());
    const Finding* finding = find_finding(report, "range.gradients_flushed");
    ASSERT_NE(finding, nullptr);
    // At the scale 2^3, 1.5 2^-28 passes 2^-25 from 2^6 on, and 2^-22 stays below 2^16 up to 2^40.
    const char* const expected =
        hides ? "They need a loss scale of at least 2^6 (now 1). Gradients computed from them may need a larger one. The largest "
                "that fits is at most 2^40. Record the run in FP32 (precision = fp32): `ulpscope scale` of that trace shows "
                "which loss scale fits. Or use BF16"
              : "A loss scale of 2^6 keeps them (now 1). The largest that fits is 2^40. Or use BF16";
    EXPECT_TRUE(finding->suggestion.text().starts_with(expected)) << finding->suggestion;
  }
}

// Underflow is judged at the rounding of the FP16 gradient, never at the FP32 gradient made from it.
TEST(RangeFindings, WideGradientsAreNotJudged) {
  SyntheticTrace trace;
  const uint32_t wide = trace.add_tensor("fc", "accumulate", Phase::backward, Role::accumulated_gradient, DType::f32);
  trace.add(wide, make_row({1e-9, 1e-9, 1.0}, DType::f32, 1024.0));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  EXPECT_TRUE(report.findings.empty()) << report.findings[0].code;
}

// At level health the counts still say that nothing was lost.
TEST(RangeFindings, GradientsFitByTheirCountsToo) {
  SyntheticTrace trace;
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  trace.add(gradient, make_health_row({1.0, 4.0, 0.5}, DType::f16, 1024.0));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Finding* fit = find_finding(report, "range.gradients_fit");
  ASSERT_NE(fit, nullptr);
  EXPECT_EQ(fit->title,
            "Gradients fit FP16: no underflow in 1 gradient tensor; headroom is not known without magnitudes "
            "(recording.level, now \"stats\").");
  EXPECT_TRUE(fit->evidence.empty());
}

// One of 100,000 is less than a hundredth of a percent.
TEST(RangeFindings, AShareThatIsTooSmallToPrintIsSaidToBeBelowOneThatIsNot) {
  SyntheticTrace trace;
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  std::vector<double> values(100000, 0.25);
  values[3] = 1e-9;
  trace.add(gradient, make_row(values, DType::f16));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Finding* fit = find_finding(report, "range.gradients_fit");
  ASSERT_NE(fit, nullptr);
  EXPECT_TRUE(fit->title.text().starts_with("Gradients fit FP16: underflow below 0.01% in 1 gradient tensor, and ")) << fit->title;
}

// A bias before a normalization: its true gradient is 0, and the sum of 1,000 terms of 2^-24 holds what their last bits leave, at
// most (2^-24 + gamma_1000) * 1000 * 2^-24 = 2^-28.07. A gradient of 2^-26 is more than that.
TEST(RangeFindings, RoundingNoiseAsksForNoLossScale) {
  for (const bool noise : {true, false}) {
    SyntheticTrace trace;
    const auto op = [](uint64_t id, const char* name) {
      return OpInfo{.id = id, .name = name, .module = "fc", .phase = Phase::backward, .attributes = "", .product = {}};
    };
    TensorInfo terms, bias, weight;
    terms.role = Role::activation_gradient;
    bias.role = weight.role = Role::weight_gradient;
    bias.parameter = "fc.bias";
    const uint32_t of_terms = trace.add_output(op(900, "batch_norm_backward"), terms),
                   of_bias = trace.add_output(op(901, "sum"), bias), of_weight = trace.add_output(op(902, "matmul"), weight);
    trace.sink().add_edge({0, 1, 0, 0, 0});
    std::vector<double> values;
    for (int i = 0; i < 1000; ++i) values.push_back(i % 2 == 0 ? 0x1p-24 : -0x1p-24);
    trace.add(of_terms, make_row(values, DType::f32));
    trace.add(of_bias, make_row({noise ? 0x1p-30 : 0x1p-26}, DType::f32));
    trace.add(of_weight, make_row({1.0}, DType::f32));
    trace.end_step();
    const Report report = analyze_ranges(trace.read());
    EXPECT_EQ(find_finding(report, "range.gradients_would_flush") == nullptr, noise);
  }
}

// Each number stands with the tensor that it is of.
TEST(RangeFindings, TheFitsEvidencePairsTensorsWithTheirOwnNumbers) {
  SyntheticTrace trace;
  const uint32_t large = trace.add_tensor("a", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  const uint32_t small = trace.add_tensor("b", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  std::vector<double> values(1000, 0.25);
  values[3] = 1e-9;
  trace.add(large, make_row({4096.0, 1.0}, DType::f16));
  trace.add(small, make_row(values, DType::f16));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Finding* fit = find_finding(report, "range.gradients_fit");
  ASSERT_NE(fit, nullptr);
  ASSERT_EQ(fit->evidence.size(), 2u);
  EXPECT_EQ(fit->evidence[0].key.module, "a");
  EXPECT_DOUBLE_EQ(lower(fit->evidence[0].values[0].value), std::log2(65504.0 / 4096.0));
  EXPECT_EQ(fit->evidence[1].key.module, "b");
  EXPECT_EQ(fit->evidence[1].values[0].value, Cell(0.001));
}

TEST(RangeFindings, GradientsDoNotFitWhereOneWasNotFiniteOrCouldNotBeJudged) {
  for (const bool nan : {true, false}) {
    SyntheticTrace trace;
    const uint32_t good = trace.add_tensor("a", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
    const uint32_t wide = trace.add_tensor("b", "linear_backward", Phase::backward, Role::weight_gradient, DType::f32);
    const uint32_t unseen = trace.add_tensor("c", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
    trace.add(good, make_row({1.0, 2.0}, DType::f16));
    trace.add(wide, make_row({nan ? NAN : 1.0, 2.0}, DType::f32));
    trace.add(unseen, make_stored_row({1.0, 2.0}, DType::f16));
    trace.end_step();
    const Report report = analyze_ranges(trace.read());
    const Finding* finding = find_finding(report, "range.gradients_fit");
    ASSERT_EQ(finding == nullptr, nan);
    if (nan) continue;
    EXPECT_NE(finding->title.text().find("did not count the rounding of 1 other."), std::string::npos) << finding->title;
  }
}

TEST(RangeFindings, AnFp32RunIsAskedWhatFp16WouldDo) {
  std::mt19937 random(14);
  for (const bool small : {true, false}) {
    SyntheticTrace trace;
    const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f32);
    trace.add(gradient, make_row(lognormal(random, small ? -26 : -5, 2, 500), DType::f32));
    trace.end_step();
    const Report report = analyze_ranges(trace.read());
    EXPECT_EQ(find_finding(report, "range.gradients_would_flush") != nullptr, small);
    EXPECT_EQ(find_finding(report, "range.gradients_flushed"), nullptr);
    EXPECT_EQ(find_finding(report, "range.gradients_fit"), nullptr);
  }
}

// An output that runs which are read as one rounded in two ways is two tensors in tables, and one in counts.
TEST(RangeFindings, CountOutputsOnce) {
  SyntheticTrace trace;
  const OpInfo op{1, 0, "matmul", "fc", Phase::backward, "", {}};
  TensorInfo nearest, toward_zero;
  nearest.dtype = toward_zero.dtype = DType::f16;
  nearest.role = toward_zero.role = Role::activation_gradient;
  toward_zero.rounding = RoundingMode::toward_zero;
  for (const TensorInfo& gradient : {nearest, toward_zero}) {
    trace.add(trace.add_output(op, gradient), make_row({1.0, 1e-12, 1e-12}, DType::f16));
    trace.end_step();
  }
  const Snapshot reader = trace.read();
  const Report report = analyze_ranges(reader);
  const auto flushed = std::find_if(report.findings.begin(), report.findings.end(),
                                    [](const Finding& finding) { return finding.code == "range.gradients_flushed"; });
  ASSERT_NE(flushed, report.findings.end());
  EXPECT_TRUE(flushed->title.text().starts_with("FP16 underflow in 1 of 1 gradient tensor: ")) << flushed->title;
  EXPECT_EQ(flushed->evidence.size(), 2u);
}

// Roundings that nobody counted: what stands at the smallest number tells that the values below it are gone. A gradient that ends
// above it, one whose zeros would change nothing of its norm, and one whose roundings are counted have no part in it.
TEST(RangeFindings, GradientsThatEndAtTheSmallestNumberAreCutOff) {
  std::mt19937 random(7);
  SyntheticTrace trace;
  const auto add = [&](const char* module, const std::vector<double>& values) {
    const uint32_t tensor = trace.add_tensor(module, "matmul", Phase::backward, Role::activation_gradient, DType::f16);
    trace.add(tensor, make_stored_row(values, DType::f16));
    return tensor;
  };
  const std::vector<double> small = lognormal(random, -25, 1, 1000);
  std::vector<double> large_too = small;
  large_too.push_back(1.0);
  add("fits", lognormal(random, -15, 1, 1000));
  const uint32_t cut = add("cut", small);
  add("unfelt", large_too);
  add("nothing", std::vector<double>(1000, 0x1p-30));
  trace.end_step();
  const Report report = analyze_all(trace.read());
  const Finding* const finding = find_finding(report, "range.gradients_cut_off");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->extent.tensors, std::vector{cut});
  // To nearest even: 2^-25 and less is 0, less than 1.5 times 2^-24 the smallest number.
  double zeros = 0, smallest = 0;
  for (const double value : small) {
    zeros += std::abs(value) <= 0x1p-25;
    smallest += std::abs(value) > 0x1p-25 && std::abs(value) < 1.5 * 0x1p-24;
  }
  ASSERT_EQ(finding->evidence.size(), 1u);
  EXPECT_THAT(finding->title, testing::HasSubstr("1 more gradient tensor is 0 throughout: `nothing` (matmul in backward)."));
  EXPECT_EQ(finding->evidence[0].values[0].value, Cell(smallest / (1000 - zeros)));
  EXPECT_EQ(finding->evidence[0].values[1].value, Cell(zeros / 1000));

  SyntheticTrace counted;
  counted.add(counted.add_tensor("cut", "matmul", Phase::backward, Role::activation_gradient, DType::f16),
              make_row(small, DType::f16));
  counted.end_step();
  EXPECT_EQ(find_finding(analyze_all(counted.read()), "range.gradients_cut_off"), nullptr);
}

}  // namespace
}  // namespace ulpscope::analyzers_test
