// Findings on NaN, Inf and what overflowed in traces made of known values: each provoked and absent.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "report_access.h"
#include "synthetic_trace.h"
#include "tests/support/said.h"
#include "ulpscope/analyzers/report/json.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
#include "ulpscope/analyzers/verbs/ranges.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::analyzers_test {
namespace {

// An element of the op that is not finite, with what was captured of its operands: what the report says of it, and then what to do.
std::string told_of_captured(OpInfo op, double value, std::vector<CaptureRow> operands, OpFunction forward = OpFunction::other) {
  SyntheticTrace trace;
  TensorInfo tensor;
  if (forward != OpFunction::other)
    trace.add_output({1, 0, std::string(name_of(forward)), "fc", Phase::forward, "", {}, OpKind::elementwise, forward}, tensor);
  op.id = 2;
  op.forward_id = forward == OpFunction::other ? 0 : 1;
  op.name = name_of(op.function);
  const uint32_t made = trace.add_output(op, tensor);
  trace.add(made, make_row({value, 1.0}, DType::f32));
  trace.sink().add_capture({.tensor = made, .made_by = made, .element = 7, .shape = {8}, .value = value});
  for (CaptureRow& operand : operands) {
    operand.tensor = made;
    operand.node = static_cast<uint32_t>(&operand - operands.data()) + 1;
    operand.parent = 0;
    trace.sink().add_capture(operand);
  }
  trace.end_step(SyntheticTrace::default_step(NAN));
  const Report report = analyze_all(trace.read());
  const Finding* const finding = find_finding(report, "range.nonfinite");
  return finding == nullptr ? std::string() : finding->title.text() + " " + finding->suggestion.text();
}

// No loss scale had to do with a loss that was too large before it was scaled.
TEST(OverflowFindings, AdviceOnALossFollowsWhatMadeIt) {
  for (const std::string function : {"mse", "scale"}) {
    SyntheticTrace trace;
    const OpInfo op{1, 0, function, "", Phase::loss, "", {}};
    TensorInfo made;
    made.role = Role::loss;
    made.dtype = DType::f16;
    const uint32_t loss = trace.add_output(op, made);
    trace.add(loss, make_row({1e6}, DType::f16));
    trace.end_step(SyntheticTrace::default_step(INFINITY));
    const Report report = analyze_all(trace.read());
    const Finding* const found = find_finding(report, "range.values_overflow");
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(sentence_of(found->suggestion, "advice.no_scale_helps_forward") == nullptr, function == "scale") << found->suggestion;
    EXPECT_EQ(found->suggestion.text().find("loss scal") != std::string::npos && function == "scale", function == "scale");
  }
}

// BF16 is no way out of BF16, and where nothing scales the loss, a loss scale is none either.
TEST(OverflowFindings, AdviceOnOverflowFollowsTheType) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const bool is_gradient : {false, true}) {
      RunInfo run;
      run.dynamic_loss_scale = false;
      SyntheticTrace trace(run);
      const uint32_t tensor = is_gradient
                                  ? trace.add_tensor("fc", "matmul", Phase::backward, Role::weight_gradient, dtype, "fc.weight")
                                  : trace.add_tensor("fc", "linear", Phase::forward, Role::activation, dtype);
      const uint32_t weight = trace.add_tensor("fc", "sgd_update", Phase::optimizer, Role::weight, DType::f32, "fc.weight");
      for (int step = 0; step < 2; ++step) {
        trace.add(tensor, make_row({step == 0 ? 1.0 : 3.4e38, 1.0}, dtype));  // beyond half an ulp above BF16's largest number
        trace.add(weight, make_row({step == 0 ? 1.0 : NAN}, DType::f32));
        trace.end_step();
      }
      for (const Finding& finding : analyze_ranges(trace.read()).findings) {
        if (finding.severity != Severity::error) continue;
        const bool names_it = finding.suggestion.text().find("BF16") != std::string::npos;
        const bool says_none = sentence_of(finding.suggestion, "advice.no_type_helps") != nullptr;
        if (!says_none) {
          EXPECT_EQ(names_it, dtype == DType::f16) << finding.suggestion;
        }
        EXPECT_EQ(says_none, dtype == DType::bf16) << finding.suggestion;
      }
    }
  }
}

TEST(OverflowFindings, OverflowIsAnErrorUnlessTheStepWasSkipped) {
  for (const bool skipped : {false, true}) {
    SyntheticTrace trace;
    const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
    trace.add(gradient, make_row({1.0, 32.0}, DType::f16, 1024.0));
    trace.end_step();
    trace.add(gradient, make_row({70000.0, 1.0}, DType::f16, 65536.0));
    StepRow step = SyntheticTrace::default_step(1.0, 65536.0);
    step.skipped = skipped;
    trace.end_step(step);
    const Report report = analyze_ranges(trace.read());
    const Finding* finding = find_finding(report, "range.gradients_overflow");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->severity, skipped ? Severity::info : Severity::warning);
    // No weight held any.
    EXPECT_EQ(sentence_of(finding->title, "range.gradients_overflow.reached_weights"), nullptr) << finding->title;
    EXPECT_EQ(finding->evidence[0].key.step, 1u);
    const Finding* fit = find_finding(report, "range.gradients_fit");
    ASSERT_EQ(fit != nullptr, skipped);
    // Of the step that was kept.
    if (fit) {
      EXPECT_DOUBLE_EQ(lower(fit->evidence[0].values[0].value), std::log2(65504.0 / 32.0));
    }
  }
}

// 70000 is finite before its rounding to FP16 and Inf after it: it is the cause, though its statistics hold no Inf.
TEST(OverflowFindings, AnOverflowAtTheStoreIsTheFirstNonfiniteValue) {
  SyntheticTrace trace;
  const uint32_t consumer = trace.add_tensor("b", "relu", Phase::forward, Role::activation, DType::f16);
  const uint32_t overflowing = trace.add_tensor("a", "linear", Phase::forward, Role::activation, DType::f16);
  TensorRow first = make_row({70000.0, 1.0}, DType::f16);
  first.micro_batch = 2;
  first.loss_index = 1;
  trace.add(overflowing, first);
  trace.add(consumer, make_row({INFINITY, 1.0}, DType::f16));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Finding* finding = find_finding(report, "range.nonfinite");
  ASSERT_NE(finding, nullptr);
  ASSERT_EQ(finding->evidence.size(), 2u);
  EXPECT_EQ(finding->evidence[0].key.op_name, "linear");
  EXPECT_EQ(finding->evidence[0].key.micro_batch, 2u);
  EXPECT_EQ(finding->evidence[0].key.loss_index, 1);
  EXPECT_EQ(finding->evidence[1].key.op_name, "relu");
  const Table& recorded = table(report, "recorded");
  EXPECT_EQ(cell(recorded, row_of(recorded, "a linear"), "nonfinite"), Cell(int64_t{1}));
  EXPECT_EQ(cell(recorded, row_of(recorded, "b relu"), "nonfinite"), Cell(int64_t{1}));
}

// A backward cast of autocast's is in no module: the finding is of that whose gradient it holds. How much it was is the number of
// the title, also where it is no number of the first evidence.
TEST(OverflowFindings, ACauseIsToldToPrograms) {
  for (const bool is_cast : {true, false}) {
    SyntheticTrace trace;
    TensorInfo tensor;
    tensor.dtype = DType::f16;
    trace.add_output({1, 0, "linear", "out", Phase::forward, "", {}}, tensor);
    tensor.role = is_cast ? Role::activation_gradient : Role::activation;
    const OpInfo cast{2, 1, "cast", "", Phase::backward, "", {}, OpKind::cast};
    const OpInfo divide{3, 0, "reciprocal", "rc", Phase::forward, "", {}, OpKind::elementwise, OpFunction::reciprocal};
    const uint32_t made = trace.add_output(is_cast ? cast : divide, tensor);
    for (int step = 0; step < 9; ++step) {
      const double bad = is_cast ? 70000.0 : INFINITY;
      trace.add(made, step < 3 ? make_row({1.0, 1.0}, DType::f16) : make_row({bad, bad, 1.0}, DType::f16));
      trace.end_step(SyntheticTrace::default_step(step < 3 ? 1.0 : NAN));
    }
    const auto causes = nlohmann::json::parse(render_json(analyze_all(trace.read())))["causes"];
    ASSERT_EQ(causes.size(), 1u);
    const auto& cause = causes[0];
    EXPECT_EQ(cause["code"], is_cast ? "range.gradients_overflow" : "range.nonfinite");
    EXPECT_EQ(cause["module"], is_cast ? "out" : "rc");
    EXPECT_EQ(cause["op"], is_cast ? "cast" : "reciprocal");
    EXPECT_EQ(cause["step"], 3);
    EXPECT_EQ(cause["steps"], 6);
    // Of one tensor what it held is the number.
    EXPECT_EQ(cause["value"]["name"], is_cast ? "elements" : "nan");
    EXPECT_EQ(cause["value"]["value"], is_cast ? 2 : 0);
    for (const char* const field : {"title", "severity", "advice", "consequences"}) EXPECT_TRUE(cause.contains(field)) << field;
  }
}

// Who made NaN or Inf comes before those that carry it on, whatever their shares; the first of all even where it was computed as
// NaN.
TEST(OverflowFindings, WorstFirstIsWhoMadeTheFirstInfinity) {
  SyntheticTrace trace;
  const uint32_t loss = trace.add_tensor("c", "softmax", Phase::forward, Role::activation, DType::f32);
  const uint32_t carried = trace.add_tensor("b", "relu", Phase::forward, Role::activation, DType::f16);
  const uint32_t made = trace.add_tensor("a", "linear", Phase::forward, Role::activation, DType::f16);
  const uint32_t later = trace.add_tensor("d", "linear", Phase::forward, Role::activation, DType::f16);
  trace.add(made, make_row({70000.0, 1.0, 1.0, 1.0}, DType::f16));
  trace.add(carried, make_row({INFINITY, 1.0}, DType::f16));
  trace.add(loss, make_row({NAN, NAN}, DType::f32));
  trace.add(later, make_row({80000.0, 1.0, 1.0, 1.0, 1.0}, DType::f16));
  trace.end_step(SyntheticTrace::default_step(NAN));
  const Report report = analyze_ranges(trace.read());
  std::vector<std::string> names;
  for (const TableRow& row : table(report, "recorded").rows) names.push_back(std::get<std::string>(row.cells[0]));
  EXPECT_EQ(names, (std::vector<std::string>{"a linear", "d linear", "c softmax", "b relu"}));
}

// Of a function outside its domain the report says what keeps its operands inside; of a gradient, that of what it is the gradient
// of.
TEST(OverflowFindings, WhatKeepsOperandsInTheDomainIsTold) {
  struct Case {
    OpFunction function, forward;
    std::vector<double> operands;
    double value;
    std::string help;
  };
  const Case cases[] = {
      {OpFunction::reciprocal, OpFunction::other, {0}, INFINITY, "Keep the divisor away from 0: clamp it, or add an eps."},
      {OpFunction::div, OpFunction::other, {3, 0}, INFINITY, "Keep the divisor away from 0"},
      {OpFunction::log, OpFunction::other, {0}, -INFINITY, "Keep the argument of log above 0"},
      {OpFunction::log, OpFunction::other, {-1}, NAN, "Keep the argument of log at 0 or above"},
      {OpFunction::sqrt, OpFunction::other, {-1}, NAN, "Keep the argument of sqrt at 0 or above"},
      {OpFunction::rsqrt, OpFunction::other, {0}, INFINITY, "Keep the argument of rsqrt above 0"},
      {OpFunction::pow, OpFunction::other, {0, -1}, INFINITY, "Keep the base of pow away from 0"},
      {OpFunction::div, OpFunction::log, {0, 0}, NAN, "Keep the argument of log above 0"},
      {OpFunction::sqrt_backward, OpFunction::sqrt, {1, 0}, INFINITY, "Keep the argument of sqrt above 0"},
      {OpFunction::exp, OpFunction::other, {1000}, INFINITY, "Bound the argument of exp, so that exp and what"},
  };
  for (const Case& one : cases) {
    std::vector<CaptureRow> operands;
    for (const double value : one.operands)
      operands.push_back({.operand = static_cast<int32_t>(operands.size()), .element = 7, .shape = {8}, .value = value});
    OpInfo op;
    op.phase = one.forward == OpFunction::other ? Phase::forward : Phase::backward;
    op.kind = OpKind::elementwise;
    op.function = one.function;
    const std::string told = told_of_captured(op, one.value, operands, one.forward);
    // The logarithm of zero stands in the headline, with how many there are.
    const bool is_log_of_zero = one.function == OpFunction::log && one.operands[0] == 0;
    EXPECT_NE(told.find(is_log_of_zero ? "log(0) = -Inf in 1 of 2 elements" : "Element [7]: "), std::string::npos) << told;
    EXPECT_NE(told.find(one.help), std::string::npos) << name_of(one.function) << ": " << told;
  }
}

// The largest value may be subtracted where something is divided by a sum of what exp gave, and nowhere else.
TEST(OverflowFindings, TheLargestIsSubtractedWhereASumDivides) {
  struct Case {
    OpFunction second, third;
    uint32_t input;  // of the third, that is the sum
    bool subtracts;
  };
  for (const Case& one : {Case{OpFunction::sum, OpFunction::div, 1, true},
                          {OpFunction::sum, OpFunction::reciprocal, 0, true},
                          {OpFunction::sum, OpFunction::div, 0, false},
                          {OpFunction::sum, OpFunction::log, 0, false},
                          {OpFunction::cast, OpFunction::div, 1, false},
                          {OpFunction::mul, OpFunction::div, 1, false}}) {
    SyntheticTrace trace;
    std::vector<uint32_t> tensors;
    for (const OpFunction function : {OpFunction::exp, one.second, OpFunction::cast, one.third}) {
      OpInfo op{tensors.size() + 1, 0, std::string(name_of(function)), "m", Phase::forward, "", {}};
      op.kind = OpKind::elementwise;
      op.function = function;
      tensors.push_back(trace.add_output(op, TensorInfo()));
    }
    for (uint32_t op = 1; op < 4; ++op) trace.sink().add_edge({0, op, op == 3 ? one.input : 0, op - 1, 0});
    for (const uint32_t tensor : tensors) trace.add(tensor, make_row({INFINITY, 1.0}, DType::f32));
    trace.sink().add_capture({.tensor = tensors[0], .made_by = static_cast<int32_t>(tensors[0]), .shape = {2}, .value = INFINITY});
    trace.sink().add_capture({.tensor = tensors[0], .node = 1, .parent = 0, .operand = 0, .shape = {2}, .value = 1000});
    trace.end_step(SyntheticTrace::default_step(NAN));
    const Report report = analyze_all(trace.read());
    const Finding* const finding = find_finding(report, "range.nonfinite");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(sentence_of(finding->suggestion, "advice.subtract_largest") != nullptr, one.subtracts) << finding->suggestion;
    EXPECT_EQ(sentence_of(finding->suggestion, "advice.bound_exponent") == nullptr, one.subtracts) << finding->suggestion;
  }
}

// An equality holds for the digits that stand there; else the result is about that.
TEST(OverflowFindings, AnEqualityHoldsForItsDigits) {
  const auto told = [](double x, double y) {
    SyntheticTrace trace;
    TensorInfo tensor;
    tensor.dtype = DType::f16;
    OpInfo op{1, 0, "mul", "m", Phase::forward, "", {}};
    op.kind = OpKind::elementwise;
    op.function = OpFunction::mul;
    const uint32_t made = trace.add_output(op, tensor);
    trace.add(made, make_row({x * y, 1.0}, DType::f16));
    trace.sink().add_capture({.tensor = made, .made_by = static_cast<int32_t>(made), .shape = {2}, .value = INFINITY});
    for (const double operand : {x, y})
      trace.sink().add_capture({.tensor = made,
                                .node = operand == x ? 1u : 2u,
                                .parent = 0,
                                .operand = operand == x ? 0 : 1,
                                .shape = {2},
                                .value = operand});
    trace.end_step(SyntheticTrace::default_step(NAN));
    const Report report = analyze_all(trace.read());
    const Finding* const finding = find_finding(report, "range.values_overflow");
    return finding == nullptr ? std::string() : finding->title.text();
  };
  EXPECT_NE(told(7316, 7317).find("7,316 * 7,317 = 53,531,172 exceeds 65,504"), std::string::npos) << told(7316, 7317);
  // 1.00048828125 has more digits than stand there.
  EXPECT_NE(told(1.00048828125, 100000).find("1.00049 * 100,000 is about 100,049, which exceeds"), std::string::npos)
      << told(1.00048828125, 100000);
}

// A softmax over no value is NaN; where the mask left one, something else was at fault.
TEST(OverflowFindings, ARowThatTheMaskTookIsTold) {
  for (const bool is_whole : {true, false}) {
    OpInfo op;
    op.kind = OpKind::normalization;
    op.function = OpFunction::masked_softmax;
    CaptureRow values{.operand = 0}, mask{.operand = 1};
    values.row = {.count = 4, .largest = 0.5, .smallest = -2};
    mask.row = {.count = 4, .largest = 1, .smallest = is_whole ? 1.0 : 0.0};
    const std::string told = told_of_captured(op, NAN, {values, mask});
    EXPECT_EQ(
        told.find("Element [7]: all 4 values of its softmax row are masked, and exp(-Inf - -Inf) is NaN.") != std::string::npos,
        is_whole)
        << told;
    EXPECT_EQ(told.find("Leave at least one value of each row unmasked") != std::string::npos, is_whole) << told;
  }
}

// What decides the type of a cast is the module that it was made for: without autocast there is no setting for it.
TEST(OverflowFindings, TheModuleThatAValueWasCastForIsNamed) {
  for (const bool has_autocast : {true, false}) {
    SyntheticTrace trace;
    TensorInfo tensor;
    tensor.dtype = DType::f16;
    const uint32_t cast = trace.add_output({100, 0, "cast", "l2", Phase::forward, "", {}, OpKind::cast}, tensor);
    if (has_autocast) trace.add_tensor("l2", "cast", Phase::forward, Role::weight_cast, DType::f16);
    trace.add(cast, make_row({70000.0, 1.0}, DType::f16));
    trace.end_step(SyntheticTrace::default_step(NAN));
    const Report report = analyze_all(trace.read());
    const Finding* const finding = find_finding(report, "range.values_overflow");
    ASSERT_NE(finding, nullptr);
    EXPECT_TRUE(finding->suggestion.text().starts_with(
        fmt::format("Loss scaling does not affect forward values. {}",
                    has_autocast ? "Keep `l2` in FP32 (autocast.modules" : "Train in BF16 or FP32 (precision, now")))
        << finding->suggestion;
  }
}

// With finite logits a mean over targets is NaN where there is none. With others it says nothing.
TEST(OverflowFindings, ALossThatIgnoredEveryTargetIsExplained) {
  RunInfo run;
  run.run_id = "0123456789abcdef0123456789abcdef";
  run.producer = "ulpscope train";
  for (const double sum : {1.5, static_cast<double>(NAN)}) {
    SyntheticTrace trace(run);
    const OpInfo op{.id = 900, .name = "cross_entropy", .module = "", .phase = Phase::loss, .attributes = "", .product = {}};
    TensorInfo loss, sums;
    loss.role = Role::loss;
    sums.slot = 1;
    sums.name = "logsumexp";
    const uint32_t of_loss = trace.add_output(op, loss), of_sums = trace.add_output(op, sums);
    trace.add(of_loss, make_row({NAN}, DType::f32));
    trace.add(of_sums, make_row({sum, 2.5}, DType::f32));
    trace.end_step(SyntheticTrace::default_step(NAN));
    const Report report = analyze_ranges(trace.read());
    const Finding* finding = find_finding(report, "range.nonfinite");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(sentence_of(finding->title, "cause.no_target") != nullptr, sum == 1.5) << finding->title;
  }
}

// Of finite p and targets, only the logarithm of a negative number is NaN.
TEST(OverflowFindings, AnOutputThatIsNoProbabilityIsExplained) {
  for (const double output : {1.5, static_cast<double>(NAN)}) {
    SyntheticTrace trace;
    const OpInfo linear{.id = 900, .name = "linear", .module = "fc", .phase = Phase::forward, .attributes = "", .product = {}},
        bce{.id = 901, .name = "binary_cross_entropy", .module = "", .phase = Phase::loss, .attributes = "", .product = {}};
    TensorInfo probability, loss;
    loss.role = Role::loss;
    const uint32_t of_linear = trace.add_output(linear, probability), of_loss = trace.add_output(bce, loss);
    trace.sink().add_edge({0, 1, 0, 0, 0});
    trace.add(of_linear, make_row({output, 0.5}, DType::f32));
    trace.add(of_loss, make_row({NAN}, DType::f32));
    trace.end_step(SyntheticTrace::default_step(NAN));
    const Report report = analyze_ranges(trace.read());
    const Finding* finding = find_finding(report, "range.nonfinite");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(sentence_of(finding->title, "cause.no_probability") != nullptr, output == 1.5) << finding->title;
  }
}

TEST(OverflowFindings, NonfiniteValuesAreFoundWhereTheyCount) {
  SyntheticTrace trace;
  const uint32_t forward = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  trace.add(gradient, make_row({INFINITY, 1.0}, DType::f16, 64.0));
  StepRow skipped = SyntheticTrace::default_step(1.0, 64.0);
  skipped.skipped = true;
  const uint32_t norm = trace.add_tensor("", "gradient_norm", Phase::scaling, Role::buffer, DType::f32);
  trace.add(norm, make_row({INFINITY}, DType::f32));
  trace.end_step(skipped);  // how the scaler works: nothing to report
  trace.add(forward, make_row({1.0}, DType::f16));
  trace.end_step();
  trace.add(forward, make_row({NAN, NAN}, DType::f16));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Finding* finding = find_finding(report, "range.nonfinite");
  ASSERT_NE(finding, nullptr);
  ASSERT_EQ(finding->evidence.size(), 1u);
  EXPECT_EQ(finding->evidence[0].key.op_name, "linear");
  EXPECT_EQ(finding->evidence[0].key.step, 2u);
}

// An infinity that an op takes away, as relu does a negative one, harms nothing; one that the loss becomes does.
TEST(OverflowFindings, ForwardOverflowIsAnErrorWhereTheRunBrokeAndFlushingANote) {
  for (const bool breaks : {false, true}) {
    SyntheticTrace trace;
    const uint32_t forward = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
    const uint32_t cast = trace.add_tensor("fc", "cast", Phase::forward, Role::weight_cast, DType::f16);
    trace.add(forward, make_row({1.0, 1.0}, DType::f16));
    trace.add(cast, make_row({1e-9, 1.0}, DType::f16));
    trace.end_step();
    trace.add(forward, make_row({70000.0, 1.0}, DType::f16));
    trace.add(cast, make_row({1e-9, 1.0}, DType::f16));
    trace.end_step(SyntheticTrace::default_step(breaks ? NAN : 1.0));
    const Report report = analyze_ranges(trace.read());
    const Finding* const overflow = find_finding(report, "range.values_overflow");
    ASSERT_NE(overflow, nullptr);
    EXPECT_EQ(overflow->severity, breaks ? Severity::error : Severity::info);
    EXPECT_EQ(overflow->evidence[0].key.step, 1u);
    EXPECT_EQ(report.verdict, breaks ? Verdict::broken : Verdict::ok);
    EXPECT_EQ(report.findings.back().severity, Severity::info);  // errors first
    ASSERT_NE(find_finding(report, "range.values_flushed"), nullptr);
    EXPECT_EQ(find_finding(report, "range.values_flushed")->severity, Severity::info);
    EXPECT_EQ(find_finding(report, "range.values_flushed")->evidence[0].key.role, "weight_cast");
  }
}

// What stands between infinite gradients and the weights decides what became of them: an op that clips by value hides those that it
// reads, and hands on as numbers.
TEST(OverflowFindings, InfinitiesReachedTheWeightsOnlyWhereAWeightHeldOne) {
  enum class Clips { nothing, it, another, to_infinity };
  for (const Clips clips : {Clips::nothing, Clips::it, Clips::another, Clips::to_infinity}) {
    for (const bool ruined : {false, true}) {
      SyntheticTrace trace;
      const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
      const OpInfo clamp{100, 0, "clamp", "fc", Phase::scaling, "", {}, OpKind::elementwise, OpFunction::clamp};
      TensorInfo clipped;
      clipped.role = Role::unscaled_gradient;
      const uint32_t other = trace.add_tensor("head", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
      const uint32_t limited = clips != Clips::nothing ? trace.add_output(clamp, clipped) : 0;
      const uint32_t weight = trace.add_tensor("fc", "adam_update", Phase::optimizer, Role::weight, DType::f32, "fc.weight");
      if (clips != Clips::nothing) trace.sink().add_edge({0, 2, 0, clips == Clips::another ? 1u : 0u, 0});
      for (int step = 0; step < 3; ++step) {
        trace.add(gradient, make_row({step == 1 ? 70000.0 : 1.0, 1.0}, DType::f16));
        trace.add(other, make_row({1.0}, DType::f16));
        if (clips != Clips::nothing)
          trace.add(limited, make_row({step == 1 && clips == Clips::to_infinity ? INFINITY : 1.0}, DType::f32));
        trace.add(weight, make_row({step > 0 && ruined ? INFINITY : 1.0}, DType::f32));
        trace.end_step();
      }
      const Report report = analyze_ranges(trace.read());
      const Finding* const overflow = find_finding(report, "range.gradients_overflow");
      const Finding* const clipping = find_finding(report, "range.clipping_hides_infinity");
      EXPECT_EQ(clipping != nullptr, clips == Clips::it && !ruined);
      ASSERT_EQ(overflow != nullptr, ruined || clips != Clips::it);
      if (ruined) {
        EXPECT_EQ(overflow->severity, Severity::error);
      }
      const Finding& finding = overflow ? *overflow : *clipping;
      if (!ruined) {
        EXPECT_NE(finding.title.text().find("in 1 step that was not skipped"), std::string::npos) << finding.title;
      }
    }
  }
}

// Behind it a relu's gradient is 0 where the infinity is: no loss scale is at fault, and no scaler skips the step.
TEST(OverflowFindings, AnInfinityThatReachesNoGradientOfAParameterIsANote) {
  for (const bool arrives : {false, true}) {
    SyntheticTrace trace;
    const uint32_t hidden = trace.add_tensor("relu", "relu_backward", Phase::backward, Role::activation_gradient, DType::f16);
    const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
    for (int step = 0; step < 8; ++step) {
      trace.add(hidden, make_row({step == 3 ? 70000.0 : 1.0}, DType::f16, 1024.0));
      trace.add(gradient, make_row({step == 3 && arrives ? INFINITY : 1.0}, DType::f16, 1024.0));
      trace.end_step(SyntheticTrace::default_step(1.0, 1024.0));
    }
    const Report report = analyze_ranges(trace.read());
    const Finding* const finding = find_finding(report, "range.gradients_overflow");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->severity, arrives ? Severity::warning : Severity::info);
    EXPECT_EQ(sentence_of(finding->title, "range.gradients_overflow.taken_away") != nullptr, !arrives) << finding->title;
    EXPECT_EQ(finding->suggestion.empty(), !arrives) << finding->suggestion;
  }
}

// Five micro-batches of a step are one step.
TEST(OverflowFindings, OverflowsAreCountedInSteps) {
  SyntheticTrace trace;
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  for (int step = 0; step < 4; ++step) {
    for (uint32_t micro_batch = 0; micro_batch < 5; ++micro_batch) {
      TensorRow row = make_row({step % 2 == 1 ? 70000.0 : 1.0}, DType::f16);
      row.micro_batch = micro_batch;
      trace.add(gradient, row);
    }
    trace.end_step();
  }
  const Report report = analyze_ranges(trace.read());
  const Finding* const finding = find_finding(report, "range.gradients_overflow");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->title.text().find("in 2 steps that were not skipped"), std::string::npos) << finding->title;
  EXPECT_EQ(finding->evidence[0].values[0].value, Cell(int64_t{2}));
}

}  // namespace
}  // namespace ulpscope::analyzers_test
