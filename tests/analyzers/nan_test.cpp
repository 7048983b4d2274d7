// Where NaN and infinities begin, how they go on, and what of the steps before tells of them, in graphs and series made by hand.
#include "ulpscope/analyzers/verbs/nan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "report_access.h"
#include "synthetic_trace.h"
#include "tests/support/said.h"
#include "ulpscope/analyzers/judgements/nonfinite_flow.h"
#include "ulpscope/analyzers/totals/headroom.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::analyzers_test {
namespace {

// A model of one weight: each op by its module's name, in order of execution.
//   data -> cast -> linear -> relu -> loss -> gradient -> update, which writes the weight that the next step's linear reads
//   data -> side -> clamp -> loss
class Model {
 public:
  Model() {
    add("data", OpKind::source, Phase::data, Role::input, {});
    add("cast", OpKind::cast, Phase::forward, Role::activation, {"data"});
    add("side", OpKind::elementwise, Phase::forward, Role::activation, {"data"});
    add("clamp", OpKind::elementwise, Phase::forward, Role::activation, {"side"});
    add("linear", OpKind::product, Phase::forward, Role::activation, {"cast"});
    add("relu", OpKind::elementwise, Phase::forward, Role::activation, {"linear"});
    add("loss", OpKind::loss, Phase::loss, Role::loss, {"relu", "clamp"});
    add("gradient", OpKind::product, Phase::backward, Role::weight_gradient, {"loss", "cast"});
    add("update", OpKind::update, Phase::optimizer, Role::weight, {"gradient", "update"});
    edge("linear", 1, "update");
  }
  // A step in which these tensors are not finite, and all others are 1 and 2.
  void step(const std::vector<std::string>& nonfinite, bool skipped = false) {
    for (const std::string& name : order_) {
      const bool is_bad = std::find(nonfinite.begin(), nonfinite.end(), name) != nonfinite.end();
      const std::vector<double> values = is_bad ? std::vector<double>{INFINITY, NAN, 1} : std::vector<double>{1, 2};
      trace_.add(tensors_.at(name), make_stored_row(values, DType::f16));
      if (is_bad) trace_.add_event(EventKind::nonfinite, tensors_.at(name), 2);
    }
    const bool has_loss = std::find(nonfinite.begin(), nonfinite.end(), "loss") == nonfinite.end();
    StepRow row = SyntheticTrace::default_step(has_loss ? 1.0 : NAN);
    row.skipped = skipped;
    trace_.end_step(row);
  }
  Snapshot read() { return trace_.read(); }
  uint32_t tensor(const std::string& name) const { return tensors_.at(name); }

 private:
  void add(const std::string& name, OpKind kind, Phase phase, Role role, const std::vector<std::string>& inputs) {
    OpInfo op{order_.size() + 1, 0, name, name, phase, "", {}};
    op.kind = kind;
    TensorInfo tensor;
    tensor.role = role;
    tensor.dtype = DType::f16;
    if (role == Role::weight) tensor.parameter = "weight";
    tensors_[name] = trace_.add_output(op, tensor);
    ops_[name] = static_cast<uint32_t>(order_.size());
    order_.push_back(name);
    for (size_t i = 0; i < inputs.size(); ++i) edge(name, static_cast<uint32_t>(i), inputs[i]);
  }
  void edge(const std::string& consumer, uint32_t input, const std::string& producer) {
    trace_.sink().add_edge({0, ops_.at(consumer), input, ops_.at(producer), 0});
  }

  SyntheticTrace trace_;
  std::vector<std::string> order_;
  std::map<std::string, uint32_t> tensors_, ops_;
};

TEST(NonfiniteFlow, WhatGoesOnIsNoBeginningAndWhatIsTakenAwayEnds) {
  Model model;
  model.step({"side"});                                                      // clamp takes it away
  model.step({"side", "cast", "linear", "relu", "loss", "gradient"}, true);  // skipped
  model.step({"cast", "linear", "relu", "loss", "gradient", "update"});      // taken
  model.step({"linear", "relu", "loss", "gradient", "update"});              // from the weight
  const Snapshot trace = model.read();
  const AnalysisContext context(trace, {});
  const std::vector<NonfiniteBeginning> found = find_beginnings(context);
  ASSERT_EQ(found.size(), 2u);

  EXPECT_EQ(found[0].tensor, model.tensor("side"));
  EXPECT_EQ(found[0].rows, 2u);
  EXPECT_EQ(found[0].first.step, 0u);
  EXPECT_EQ(found[0].last_step, 1u);
  EXPECT_EQ(found[0].skipped, 1u);
  EXPECT_EQ(found[0].nan, 2u);
  EXPECT_EQ(found[0].infinities, 2u);
  EXPECT_FALSE(found[0].loss);
  EXPECT_FALSE(found[0].weights);

  EXPECT_EQ(found[1].tensor, model.tensor("cast"));
  EXPECT_EQ(found[1].rows, 2u);
  EXPECT_EQ(found[1].first.step, 1u);
  EXPECT_EQ(found[1].last_step, 2u);
  EXPECT_EQ(found[1].loss, 1u);
  EXPECT_EQ(found[1].weights, 2u);
}

// An op that reads several has what it gives of one that it did not give a finite output with before.
// Attention as other producers tell it: scores, to which a mask adds infinities, or in which it puts them, and their softmax.
class Attention {
 public:
  enum class By { buffer, argument, fill };
  explicit Attention(By by) {
    TensorInfo tensor;
    tensor.dtype = DType::f32;
    const auto add = [&](uint64_t id, const char* name, Phase phase, Role role) {
      tensor.role = role;
      return trace_.add_output({id, 0, name, "attention", phase, "", {}}, tensor);
    };
    mask_ = add(1, "source", Phase::data, by == By::argument ? Role::input : Role::buffer);
    scores_ = add(2, "matmul", Phase::forward, Role::activation);
    masked_ = add(3, by == By::fill ? "masked_fill" : "add", Phase::forward, Role::activation);
    softmax_ = add(4, "softmax", Phase::forward, Role::activation);
    loss_ = add(5, "mse", Phase::loss, Role::loss);
    if (by != By::fill) trace_.sink().add_edge({0, 2, 1, 0, 0});
    for (const uint32_t op : {2, 3, 4}) trace_.sink().add_edge({0, op, 0, op - 1, 0});
    mask_holds_it_ = by != By::fill;
  }
  void step(double score, bool leaves_row = true) {
    trace_.add(mask_, row({0, mask_holds_it_ ? -INFINITY : 1}));
    trace_.add(scores_, row({score, score}));
    trace_.add(masked_, row({leaves_row ? score : -INFINITY, -INFINITY}));
    const bool is_nan = std::isnan(score) || !leaves_row;
    trace_.add(softmax_, row(is_nan ? std::vector<double>{NAN, NAN} : std::vector<double>{1, 0}));
    trace_.add(loss_, row({is_nan ? NAN : 1}));
    trace_.add_event(EventKind::nonfinite, mask_holds_it_ ? mask_ : masked_, 1);
    trace_.end_step(SyntheticTrace::default_step(is_nan ? NAN : 1.0 / static_cast<double>(1 + trace_.step())));
  }
  Snapshot read() { return trace_.read(); }

 private:
  static TensorRow row(const std::vector<double>& values) { return make_stored_row(values, DType::f32); }

  SyntheticTrace trace_;
  uint32_t mask_ = 0, scores_ = 0, masked_ = 0, softmax_ = 0, loss_ = 0;
  bool mask_holds_it_ = true;
};

TEST(SoftmaxMasks, AreNoFaultOfTheDataAndNoBeginning) {
  for (const Attention::By by : {Attention::By::buffer, Attention::By::argument, Attention::By::fill}) {
    Attention attention(by);
    for (int step = 0; step < 5; ++step) attention.step(2);
    const Snapshot trace = attention.read();
    const Report report = analyze_all(trace, {});
    EXPECT_EQ(report.verdict, Verdict::ok) << report.verdict_text;
    for (const char* code : {"data.nonfinite", "range.nonfinite"}) EXPECT_EQ(find_finding(report, code), nullptr) << code;
    const Report nan = analyze_nan(trace, {});
    EXPECT_EQ(fact(nan, "beginnings"), Cell(int64_t{0}));
    EXPECT_EQ(nan.verdict_text, "No NaN or Inf does harm.");
  }
}

TEST(SoftmaxMasks, AreNotBlamedForWhatComesLater) {
  Attention attention(Attention::By::buffer);
  for (int step = 0; step < 6; ++step) attention.step(step < 4 ? 2 : NAN);
  const Report nan = analyze_nan(attention.read(), {});
  EXPECT_EQ(nan.verdict, Verdict::broken);
  EXPECT_EQ(fact(nan, "tensor"), Cell(std::string("attention matmul")));
  EXPECT_EQ(fact(nan, "step"), Cell(int64_t{4}));
}

TEST(SoftmaxMasks, ThatLeaveASoftmaxNothingAreNone) {
  Attention attention(Attention::By::fill);
  for (int step = 0; step < 3; ++step) attention.step(2, false);
  const Report nan = analyze_nan(attention.read(), {});
  EXPECT_EQ(nan.verdict, Verdict::broken);
  EXPECT_EQ(fact(nan, "tensor"), Cell(std::string("attention softmax")));
  EXPECT_EQ(fact(nan, "cause"), Cell(std::string("masked_row")));
  const Finding* const found = find_finding(nan, "range.nonfinite");
  ASSERT_NE(found, nullptr);
  EXPECT_NE(sentence_of(found->title, "range.nonfinite.filled_in"), nullptr) << found->title;
}

// Ops in a row, each of which reads the one before and `also`, an output that is 0 and 1.
class Chain {
 public:
  struct Op {
    const char *function, *attributes;
    Phase phase;
    Role role;
    std::vector<double> values;
    DType dtype = DType::f32;
    bool reads_also = false;
  };
  static Snapshot trace(const std::vector<Op>& ops, double loss, bool skipped = false) {
    SyntheticTrace trace;
    TensorInfo tensor;
    std::vector<uint32_t> made{trace.add_output({100, 0, "source", "data", Phase::data, "", {}}, tensor)};
    for (const Op& op : ops) {
      tensor.dtype = op.dtype;
      tensor.role = op.role;
      if (op.role == Role::weight) tensor.parameter = "weight";
      made.push_back(trace.add_output({made.size(), 0, op.function, "", op.phase, op.attributes, {}}, tensor));
      const auto index = static_cast<uint32_t>(made.size() - 1);
      trace.sink().add_edge({0, index, 0, index - 1, 0});
      if (op.reads_also) trace.sink().add_edge({0, index, 1, 0, 0});
    }
    for (int step = 0; step < 8; ++step) {
      trace.add(made[0], make_stored_row({0, 1}, DType::f32));
      for (size_t i = 0; i < ops.size(); ++i) {
        const bool is_finite = step != 3 && std::isfinite(loss);
        trace.add(made[i + 1], make_stored_row(is_finite ? std::vector<double>{1} : ops[i].values, ops[i].dtype));
      }
      StepRow row = SyntheticTrace::default_step(step == 3 || !std::isfinite(loss) ? NAN : loss);
      row.skipped = step == 3 && skipped;
      trace.end_step(row);
    }
    return trace.read();
  }
};

TEST(FilledInfinities, AreNamedBesideTheOpThatMadeNanOfThem) {
  for (const auto& [function, cause] :
       {std::pair{"mul", "cause.zero_times_infinity_by_rows"}, std::pair{"sub", "cause.infinity_minus_infinity_by_rows"}}) {
    const Snapshot trace = Chain::trace({{"masked_fill", "value=-inf", Phase::forward, Role::activation, {-INFINITY, 1}},
                                         {"copy", "", Phase::forward, Role::activation, {-INFINITY, 1}},
                                         {function, "", Phase::forward, Role::activation, {NAN, 1}, DType::f32, true},
                                         {"mse", "", Phase::loss, Role::loss, {NAN}}},
                                        NAN);
    const Report report = analyze_all(trace, {});
    ASSERT_EQ(report.causes.size(), 1u) << report.verdict_text;
    const Finding& found = report.findings[report.causes.front().finding];
    EXPECT_EQ(found.code, "range.nonfinite");
    EXPECT_EQ(trace.ops()[trace.tensors()[*found.extent.origin].op].name, function);
    EXPECT_NE(sentence_of(found.title, cause), nullptr) << found.title;
    ASSERT_NE(sentence_of(found.title, "range.nonfinite.filled_in"), nullptr) << found.title;
    EXPECT_EQ(sentence_of(found.title, "range.nonfinite.filled_in")->text(),
              "`masked_fill` fills in the Inf that this NaN comes from.");
  }
}

TEST(UncountedOverflow, OfARunningVarianceIsTold) {
  SyntheticTrace trace;
  TensorInfo tensor;
  tensor.dtype = DType::f16;
  tensor.role = Role::input;
  const uint32_t input = trace.add_output({1, 0, "source", "", Phase::data, "", {}}, tensor);
  tensor.role = Role::activation;
  const uint32_t output = trace.add_output({2, 0, "batch_norm", "norm", Phase::forward, "training=1", {}}, tensor);
  tensor.role = Role::buffer;
  tensor.parameter = "norm.running_var";
  tensor.slot = static_cast<decltype(tensor.slot)>(slot_of(OpFunction::batch_norm, Meaning::running_variance).value());
  const uint32_t variance = trace.add_output({2, 0, "batch_norm", "norm", Phase::forward, "training=1", {}}, tensor);
  trace.sink().add_edge({0, 1, 0, 0, 0});
  for (int step = 0; step < 4; ++step) {
    trace.add(input, make_stored_row({4000, 1}, DType::f16));
    trace.add(output, make_stored_row({1, -1}, DType::f16));
    trace.add(variance, make_stored_row({INFINITY}, DType::f16));
    trace.end_step();
  }
  const Report report = analyze_all(trace.read(), {});
  const Finding* const found = find_finding(report, "range.nonfinite");
  ASSERT_NE(found, nullptr);
  EXPECT_NE(sentence_of(found->title, "cause.running_statistic"), nullptr) << found->title;
  EXPECT_NE(sentence_of(found->suggestion, "advice.wide_statistics"), nullptr) << found->suggestion;
}

TEST(NonfiniteLosses, WarnWhereTheStepWasTaken) {
  const auto report_of = [](bool skipped) {
    return analyze_all(Chain::trace({{"log_softmax", "", Phase::forward, Role::activation, {-1, -2}},
                                     {"nll", "reduction=mean", Phase::loss, Role::loss, {NAN}}},
                                    1.0, skipped),
                       {});
  };
  const Report taken = report_of(false);
  EXPECT_EQ(taken.verdict, Verdict::warning) << taken.verdict_text;
  const Finding* const found = find_finding(taken, "range.nonfinite");
  ASSERT_NE(found, nullptr);
  EXPECT_NE(sentence_of(found->title, "cause.no_weight_of_targets"), nullptr) << found->title;
  ASSERT_NE(find_finding(taken, "run.loss_nonfinite"), nullptr);
  EXPECT_EQ(find_finding(taken, "run.loss_nonfinite")->severity, Severity::warning);
  EXPECT_EQ(report_of(true).verdict, Verdict::ok);
}

// A target that is missing is NaN, and a loss may leave it out.
TEST(BadData, ThatReachedNothingIsANote) {
  for (const bool reaches : {false, true}) {
    SyntheticTrace trace;
    TensorInfo tensor;
    tensor.role = Role::input;
    const uint32_t target = trace.add_output({1, 0, "source", "", Phase::data, "", {}}, tensor);
    tensor.role = Role::loss;
    const uint32_t loss = trace.add_output({2, 0, "mse", "", Phase::loss, "", {}}, tensor);
    trace.sink().add_edge({0, 1, 0, 0, 0});
    for (int step = 0; step < 6; ++step) {
      const bool is_bad = reaches && step == 2;
      trace.add(target, make_stored_row({NAN, 1}, DType::f32));
      trace.add(loss, make_stored_row({is_bad ? NAN : 1}, DType::f32));
      trace.end_step(SyntheticTrace::default_step(is_bad ? NAN : 1.0));
    }
    const Report report = analyze_all(trace.read(), {});
    const Finding* const found = find_finding(report, "data.nonfinite");
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->severity, reaches ? Severity::warning : Severity::info);
    EXPECT_EQ(sentence_of(found->title, "data.nonfinite.harmless") != nullptr, !reaches) << found->title;
    // The trace has no batches to list.
    EXPECT_EQ(sentence_of(found->suggestion, "advice.export_lists_batch"), nullptr) << found->suggestion;
  }
}

// A product of another producer, of which no rounding was counted and no element captured.
class Uncounted {
 public:
  struct Given {
    const char* function = "matmul";
    double output = INFINITY, input = 300;
    bool told = true;
    DType dtype = DType::f16;
    double second = 400, third = 1;  // that its other input holds
  };
  static Report report(const Given& given) {
    SyntheticTrace trace;
    TensorInfo tensor;
    tensor.dtype = given.dtype;
    tensor.role = Role::activation;
    std::vector<uint32_t> made;
    for (uint64_t id = 1; id <= 2; ++id) made.push_back(trace.add_output({id, 0, "relu", "in", Phase::forward, "", {}}, tensor));
    made.push_back(trace.add_output({3, 0, given.function, "out", Phase::forward, "", {}}, tensor));
    tensor.role = Role::loss;
    made.push_back(trace.add_output({4, 0, "mse", "", Phase::loss, "", {}}, tensor));
    if (given.told)
      for (const uint8_t input : {0, 1}) trace.sink().add_edge({0, 2, input, input, 0});
    trace.sink().add_edge({0, 3, 0, 2, 0});
    for (int step = 0; step < 2; ++step) {
      trace.add(made[0], make_stored_row({given.input, 1}, given.dtype));
      trace.add(made[1], make_stored_row({given.second, given.third}, given.dtype));
      trace.add(made[2], make_stored_row({given.output, 1}, given.dtype));
      trace.add(made[3], make_stored_row({NAN}, given.dtype));
      trace.end_step(SyntheticTrace::default_step(NAN));
    }
    return analyze_nan(trace.read(), {});
  }
};

TEST(UncountedOverflow, IsKnownByFiniteInputsAndAnInfiniteOutput) {
  const auto cause = [](const Uncounted::Given& given) { return fact(Uncounted::report(given), "cause"); };
  EXPECT_EQ(cause({}), Cell(std::string("overflow_in_arithmetic")));
  EXPECT_EQ(cause({.function = "mul", .output = -INFINITY}), Cell(std::string("overflow_in_arithmetic")));
  EXPECT_EQ(cause({.function = "cast"}), Cell(std::string("overflow_on_cast")));
  for (const Uncounted::Given& given :
       {Uncounted::Given{.output = NAN}, Uncounted::Given{.function = "div"}, Uncounted::Given{.function = "log"},
        Uncounted::Given{.told = false}, Uncounted::Given{.dtype = DType::f32}})
    EXPECT_EQ(cause(given), Cell(std::string("unknown"))) << given.function << ' ' << given.output << ' ' << given.told;
}

// Finite numbers, of which a function is not defined everywhere: what it read and what it holds leave one cause, or none is told.
TEST(UncountedDomain, IsKnownByWhatWasReadAndWhatCameOfIt) {
  struct Case {
    const char *function, *cause;
    double output, first, second, third = 1;
  };
  for (const Case& each : {Case{"log", "log_of_zero", -INFINITY, 0, 2},
                           {"log", "log_of_negative", NAN, -3, 2},
                           {"log", "unknown", -INFINITY, 3, 2},
                           {"sqrt", "sqrt_of_negative", NAN, -3, 2},
                           {"sqrt", "unknown", NAN, 3, 2},
                           {"rsqrt", "division_by_zero", INFINITY, 0, 2},
                           {"exp", "overflow_of_exp", INFINITY, 300, 2},
                           {"div", "division_by_zero", INFINITY, 300, 0},
                           {"div", "unknown", INFINITY, 300, 0x1p-10},
                           {"div", "unknown", INFINITY, 300, 0, 0x1p-10},  // 300 * 1024 is too large as well
                           {"div", "zero_over_zero", NAN, 0, 0},
                           {"div", "unknown", NAN, 300, 0},
                           {"reciprocal", "division_by_zero", INFINITY, 0, 2}}) {
    const Report report = Uncounted::report(
        {.function = each.function, .output = each.output, .input = each.first, .second = each.second, .third = each.third});
    EXPECT_EQ(fact(report, "cause"), Cell(std::string(each.cause))) << each.function << ' ' << each.output << ' ' << each.first;
  }
}

TEST(UncountedOverflow, IsToldWithoutANumberThatIsNotKnown) {
  const auto told = [](const char* function, const char* id) {
    const Report report = Uncounted::report({.function = function});
    const Finding* const found = find_finding(report, "range.nonfinite");
    EXPECT_NE(found, nullptr);
    if (found == nullptr) return std::string();
    // Nothing in this trace casts, so that the run as a whole is what can be in another type.
    EXPECT_NE(sentence_of(found->suggestion, "advice.train_wide"), nullptr) << found->suggestion;
    const Sentence* const story = sentence_of(found->title, id);
    EXPECT_NE(story, nullptr) << found->title;
    return story == nullptr ? "" : story->text();
  };
  EXPECT_EQ(told("mul", "cause.exceeded"),
            "Its inputs were finite, and it holds Inf but no NaN: a result exceeded 65,504 (FP16 max).");
  EXPECT_EQ(told("matmul", "cause.sum_exceeded"),
            "Its inputs were finite, and it holds Inf but no NaN: a sum, or a part of it, exceeded 65,504 (FP16 max).");
}

TEST(NonfiniteFlow, WhatWasHarmlessBeforeIsNotTheCause) {
  for (const bool is_harmless : {true, false}) {
    Model model;
    // The clamp's goes nowhere where the loss is finite.
    model.step(is_harmless ? std::vector<std::string>{"side", "clamp"} : std::vector<std::string>{"side"});
    model.step({"side", "clamp", "cast", "linear", "relu", "loss"}, true);
    const Snapshot trace = model.read();
    const AnalysisContext context(trace, {});
    const std::vector<NonfiniteBeginning> found = find_beginnings(context);
    ASSERT_EQ(found.size(), 2u);
    for (const NonfiniteBeginning& one : found)
      EXPECT_EQ(one.loss.has_value(), one.tensor == model.tensor(is_harmless ? "cast" : "side")) << is_harmless;
  }
}

// Of some steps, what began in them: what had begun before and goes on did not.
TEST(NonfiniteFlow, OfSomeStepsWhatBeganInThem) {
  Model model;
  model.step({"side"});
  model.step({"side", "cast", "linear", "relu", "loss", "gradient", "update"});
  model.step({"linear", "relu", "loss", "gradient", "update"});  // from the weight
  const Snapshot trace = model.read();
  AnalysisOptions options;
  options.steps = {1, 2};
  const AnalysisContext second(trace, options);
  const std::vector<NonfiniteBeginning> found = find_beginnings(second);
  ASSERT_EQ(found.size(), 2u);
  for (const NonfiniteBeginning& one : found) {
    EXPECT_EQ(one.first.step, 1u);
    EXPECT_EQ(one.rows, 1u);
    EXPECT_EQ(one.loss.has_value(), one.tensor == model.tensor("cast"));
  }
  options.steps = {2, 3};
  const AnalysisContext third(trace, options);
  EXPECT_TRUE(find_beginnings(third).empty());
  const Report report = analyze_nan(trace, options);
  EXPECT_EQ(find_fact<std::string>(report, "began"), "before these steps, in step 1");
  EXPECT_FALSE(find_fact<std::string>(report, "tensor"));
}

// What went away before, though it began in the same place, did not do the harm, and neither did what never got anywhere.
TEST(NonfiniteFlow, HarmIsDoneByWhatGotThere) {
  Model model;
  model.step({"side"});
  model.step({"cast", "linear", "relu", "loss", "gradient"}, true);  // skipped
  model.step({"side"});
  model.step({"side", "cast", "linear", "relu", "loss", "gradient", "update"});
  model.step({"linear", "relu", "loss", "gradient", "update"});  // from the weight
  const Snapshot trace = model.read();
  const AnalysisContext context(trace, {});
  const auto harmed = [&](const NonfiniteHarm& harm, const char* name) {
    for (const NonfiniteBeginning& one : find_beginnings(context, harm))
      if (one.tensor == model.tensor(name)) return one.harmed;
    return std::optional<NonfiniteOrigin>();
  };
  const NonfiniteHarm broke{.loss = true, .weights = true, .from = 3};
  EXPECT_FALSE(harmed(broke, "side"));
  ASSERT_TRUE(harmed(broke, "cast"));
  EXPECT_EQ(harmed(broke, "cast")->position.step, 3u);
  // Where skipped steps are the harm, theirs is.
  ASSERT_TRUE(harmed({.gradients = true}, "cast"));
  EXPECT_EQ(harmed({.gradients = true}, "cast")->position.step, 1u);
  EXPECT_FALSE(harmed({}, "cast"));
}

// x / infinity is 0, whatever x was and would have been divided by.
TEST(NonfiniteFlow, DivisionsByInfinityAreCounted) {
  SyntheticTrace trace;
  const uint32_t square = trace.add_tensor("square", "mul", Phase::forward, Role::activation, DType::f16);
  const uint32_t inverse = trace.add_tensor("inverse", "rsqrt", Phase::forward, Role::activation, DType::f16);
  const uint32_t hidden = trace.add_tensor("hidden", "relu", Phase::forward, Role::activation, DType::f16);
  trace.sink().add_edge({0, 1, 0, 0, 0});
  trace.sink().add_edge({0, 2, 0, 0, 0});
  for (const double value : {4.0, static_cast<double>(INFINITY), static_cast<double>(INFINITY)}) {
    trace.add(square, make_stored_row({value, 1}, DType::f16));
    trace.add(inverse, make_stored_row({1 / std::sqrt(value), 1}, DType::f16));
    trace.add(hidden, make_stored_row({0, 1}, DType::f16));  // zeros of a relu are none of a division
    trace.end_step();
  }
  const Snapshot read = trace.read();
  const std::vector<NonfiniteBeginning> found = find_beginnings(AnalysisContext(read, {}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].zeros.tensor, inverse);
  EXPECT_EQ(found[0].zeros.steps, 2u);
  EXPECT_EQ(found[0].zeros.origin.position.step, 1u);
}

// Two ranks that sum up their gradients:
//   data -> gradient -> all_reduce -> update
// `gradients`: the ranks whose gradient is NaN in step `at`, where all sums are. A second exchange comes first, of what is finite.
class TwoRanks {
 public:
  explicit TwoRanks(const std::vector<int>& gradients, bool has_edges = true, uint32_t more_ops = 0, uint64_t at = 1) : traces_(2) {
    for (const int rank : {0, 1}) {
      SyntheticTrace& trace = traces_[static_cast<size_t>(rank)];
      const auto add = [&](const char* name, Phase phase, Role role) {
        return trace.add_tensor("fc", name, phase, role, DType::f32);
      };
      const uint32_t data = add("source", Phase::data, Role::input);
      const uint32_t norm = add("all_reduce", Phase::forward, Role::activation);
      gradient = add("linear", Phase::backward, Role::weight_gradient);
      sum = add("all_reduce", Phase::communication, Role::weight_gradient);
      const uint32_t weight = add("sgd_update", Phase::optimizer, Role::weight);
      const uint32_t extra = add("relu", Phase::forward, Role::activation);
      for (uint32_t op = 1; op < 5 && has_edges; ++op) trace.sink().add_edge({0, op, 0, op - 1, 0});
      if (has_edges) trace.sink().add_edge({0, 4, 1, 4, 0});
      for (uint64_t step = 0; step < at + 2; ++step) {
        const bool is_bad = step == at && std::find(gradients.begin(), gradients.end(), rank) != gradients.end();
        const auto row = [&](bool bad) { return make_stored_row({bad ? NAN : 1.0, 2.0}, DType::f32); };
        trace.add(data, row(false));
        // One rank may have computed more than the other before they meet.
        for (uint32_t i = 0; rank == 1 && i < more_ops; ++i) trace.add(extra, row(false));
        trace.add(norm, row(false));
        trace.add(gradient, row(is_bad));
        trace.add(sum, row(step == at));
        trace.add(weight, row(step >= at));
        trace.end_step();
      }
    }
  }
  std::vector<NonfiniteBeginning> beginnings() {
    const Snapshot run("run", traces_.close());
    return find_beginnings(AnalysisContext(run, {}), {.weights = true});
  }
  uint32_t gradient = 0, sum = 0;

 private:
  RankedTraces traces_;
};

TEST(NonfiniteFlow, WhatAnExchangeBroughtBeganOnTheRankThatSentIt) {
  for (const bool has_edges : {true, false}) {
    for (const uint32_t more_ops : {0u, 5u}) {
      for (const int rank : {0, 1}) {
        TwoRanks run({rank}, has_edges, more_ops);
        const std::vector<NonfiniteBeginning> found = run.beginnings();
        // Without edges what a weight keeps for the next step is not known to come from it.
        ASSERT_EQ(found.size(), has_edges ? 1u : 3u) << rank << ' ' << more_ops;
        EXPECT_EQ(found[0].tensor, run.gradient);
        EXPECT_EQ(found[0].first.rank, rank);
        EXPECT_EQ(found[0].first.step, 1u);
        ASSERT_TRUE(found[0].harmed);
        EXPECT_EQ(found[0].harmed->position.rank, rank);
        EXPECT_EQ(found[0].rows, 1u);
      }
    }
  }
}

// More steps than are read at once.
TEST(NonfiniteFlow, AnExchangeIsFollowedInEveryStep) {
  for (const uint64_t at : {1, 999, 1000, 2500}) {
    TwoRanks run({1}, true, 0, at);
    const std::vector<NonfiniteBeginning> found = run.beginnings();
    ASSERT_EQ(found.size(), 1u) << at;
    EXPECT_EQ(found[0].tensor, run.gradient);
    EXPECT_EQ(found[0].first.rank, 1);
    EXPECT_EQ(found[0].first.step, at);
    EXPECT_EQ(found[0].weights, at);
  }
}

TEST(NonfiniteFlow, EachRankThatMadeItsOwnIsABeginning) {
  TwoRanks run({0, 1});
  const std::vector<NonfiniteBeginning> found = run.beginnings();
  ASSERT_EQ(found.size(), 2u);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(found[static_cast<size_t>(rank)].tensor, run.gradient);
    EXPECT_EQ(found[static_cast<size_t>(rank)].first.rank, rank);
  }
}

// Finite gradients whose sum is not began in the sum, once.
TEST(NonfiniteFlow, WhatAnExchangeMadeBeganThereOnce) {
  TwoRanks run({});
  const std::vector<NonfiniteBeginning> found = run.beginnings();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].tensor, run.sum);
  EXPECT_EQ(found[0].first.rank, 0);
}

// What stands first in the order of execution is the first, on whatever rank.
TEST(NonfiniteFlow, RanksBeginInTheOrderOfTheirOps) {
  RankedTraces traces(2);
  uint32_t early = 0;
  for (const size_t rank : {0, 1}) {
    SyntheticTrace& trace = traces[rank];
    early = trace.add_tensor("a", "log", Phase::forward, Role::activation, DType::f32);
    const uint32_t late = trace.add_tensor("b", "sqrt", Phase::forward, Role::activation, DType::f32);
    trace.sink().add_edge({0, 1, 0, 0, 0});
    trace.add(early, make_stored_row({rank == 1 ? NAN : 1.0}, DType::f32));
    trace.add(late, make_stored_row({rank == 0 ? NAN : 1.0}, DType::f32));
    trace.end_step();
  }
  const Snapshot run("run", traces.close());
  const std::vector<NonfiniteBeginning> found = find_beginnings(AnalysisContext(run, {}));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].tensor, early);
  EXPECT_EQ(found[0].first.rank, 1);
}

std::vector<std::string> names(const Model& model, const std::vector<NonfiniteStop>& way) {
  std::vector<std::string> found;
  for (const NonfiniteStop& stop : way)
    for (const char* name : {"data", "cast", "side", "clamp", "linear", "relu", "loss", "gradient", "update"})
      if (model.tensor(name) == stop.tensor) found.push_back(name + std::to_string(stop.position.step));
  return found;
}

TEST(NonfiniteFlow, TheWaysLeadToTheLossAndTheWeightsAlongEdges) {
  Model model;
  model.step({});
  model.step({"gradient", "update"});
  model.step({"linear", "relu", "loss", "gradient", "update"});
  const Snapshot trace = model.read();
  const AnalysisContext context(trace, {});
  const std::vector<NonfiniteBeginning> found = find_beginnings(context);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].tensor, model.tensor("gradient"));
  EXPECT_EQ(found[0].weights, 1u);
  EXPECT_EQ(found[0].loss, 2u);
  const NonfiniteWays ways = ways_from(context, found[0].tensor, found[0].first);
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(model, ways.to_weights), (Names{"gradient1", "update1"}));
  EXPECT_EQ(names(model, ways.to_loss), (Names{"gradient1", "update1", "linear2", "relu2", "loss2"}));
  EXPECT_EQ(ways.to_loss.back().nonfinite, 2u);
  EXPECT_EQ(ways.to_loss.back().count, 3u);
}

// What held it in the step before and was not recomputed tells nothing of this step.
TEST(NonfiniteFlow, AnOutputOfTheStepBeforeIsNoInput) {
  SyntheticTrace trace;
  const uint32_t side = trace.add_tensor("side", "log", Phase::forward, Role::activation, DType::f16);
  const uint32_t next = trace.add_tensor("next", "relu", Phase::forward, Role::activation, DType::f16);
  trace.sink().add_edge({0, 1, 0, 0, 0});
  trace.add(side, make_stored_row({INFINITY}, DType::f16));
  trace.add(next, make_stored_row({0}, DType::f16));
  trace.end_step();
  trace.add(next, make_stored_row({NAN}, DType::f16));
  trace.end_step();
  const Snapshot read = trace.read();
  EXPECT_EQ(find_beginnings(AnalysisContext(read, {})).size(), 2u);
}

// What ends in every step is no reason to look there for what a loss came of later, whether the run broke or went on.
TEST(NonfiniteFlow, AReportLeadsToWhatReachedTheLoss) {
  const std::vector<std::string> fatal{"side", "cast", "linear", "relu", "loss", "gradient"};
  for (const bool breaks : {true, false}) {
    Model model;
    for (int step = 0; step < 4; ++step) model.step({"side"});
    if (breaks) {
      std::vector<std::string> taken = fatal;
      taken.push_back("update");
      model.step(taken);
      model.step({"side", "linear", "relu", "loss", "gradient", "update"});
    } else {
      model.step(fatal, true);
      for (int step = 5; step < 40; ++step) model.step({"side"});
    }
    const Snapshot trace = model.read();
    const Report report = analyze_all(trace);
    const Finding* const finding = find_finding(report, "run.loss_nonfinite");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->suggestion.text().find("It began in step 4: `ulpscope ranges "), 0u) << finding->suggestion;
    const Report nan = analyze_nan(trace);
    const auto told =
        std::find_if(nan.findings.begin(), nan.findings.end(), [](const Finding& each) { return each.code == "range.nonfinite"; });
    ASSERT_NE(told, nan.findings.end());
    // The step before the place: evidence has both.
    EXPECT_EQ(told->evidence.front().key.step, 4u) << told->title;
    EXPECT_EQ(told->evidence.front().key.name, "data data (FP16)");
  }
}

TEST(Headroom, ATrendIsToldWhereThereIsOne) {
  SyntheticTrace trace;
  const uint32_t grows = trace.add_tensor("grows", "linear", Phase::forward, Role::activation, DType::f16);
  const uint32_t varies = trace.add_tensor("varies", "linear", Phase::forward, Role::activation, DType::f16);
  for (int step = 0; step < 20; ++step) {
    // 2^(step / 2), and in one step an outlier that a least-squares line would follow.
    trace.add(grows, make_stored_row({step == 10 ? 0x1p-10 : std::exp2(step / 2)}, DType::f16));
    trace.add(varies, make_stored_row({step % 2 ? 3.0 : 2.0}, DType::f16));
    trace.end_step();
  }
  const Snapshot read = trace.read();
  const RowPosition end(20, 0);
  const HeadroomHistory history = headroom_before(read, grows, end);
  ASSERT_EQ(history.steps.size(), 20u);
  EXPECT_EQ(history.steps.front().bits, std::log2(65504.0));
  ASSERT_TRUE(history.shrinks);
  EXPECT_NEAR(*history.shrinks, 0.5, 0.05);
  EXPECT_FALSE(history.low_since);
  EXPECT_FALSE(headroom_before(read, varies, end).shrinks);
  EXPECT_EQ(headroom_before(read, grows, end, 5).steps.size(), 5u);
  // Not what comes with the position or behind it.
  EXPECT_EQ(headroom_before(read, grows, RowPosition(7, 0)).steps.back().step, 6u);
}

// What a value is made of has rows in the step of that value, before it: these are not those of a step before.
TEST(Headroom, OfSoManyStepsBefore) {
  SyntheticTrace trace;
  const uint32_t tensor = trace.add_tensor("a", "linear", Phase::forward, Role::activation, DType::f16);
  const uint32_t later = trace.add_tensor("b", "linear", Phase::forward, Role::activation, DType::f16);
  for (const double largest : {1.0, 2.0, 0.0, 8.0, 40000.0}) {
    trace.add(tensor, make_stored_row({largest}, DType::f16));
    trace.add(later, make_stored_row({1}, DType::f16));
    trace.end_step();
  }
  const Snapshot read = trace.read();
  const HeadroomHistory history = headroom_before(read, tensor, RowPosition(4, 0, 1));
  ASSERT_TRUE(history.last);
  EXPECT_EQ(history.last->step, 4u);
  EXPECT_NEAR(history.last->bits, std::log2(65504.0 / 40000), 1e-12);
  EXPECT_EQ(history.low_since, 4u);
  EXPECT_NEAR(history.before(4, 1).value_or(0), std::log2(65504.0 / 8), 1e-12);
  EXPECT_NEAR(history.before(4, 2).value_or(0), std::log2(65504.0 / 2), 1e-12) << "all are zero in step 2";
  EXPECT_NEAR(history.before(4, 4).value_or(0), std::log2(65504.0), 1e-12);
  EXPECT_FALSE(history.before(4, 5));
  // A step without what it is asked for, and the first one.
  EXPECT_FALSE(headroom_before(read, tensor, RowPosition(4, 0)).last);
  const HeadroomHistory first = headroom_before(read, tensor, RowPosition(0, 0, 1));
  EXPECT_TRUE(first.last && first.steps.empty() && !first.before(0, 1));
}

TEST(Headroom, LowIsWhatStaysLow) {
  SyntheticTrace trace;
  const uint32_t tensor = trace.add_tensor("a", "linear", Phase::forward, Role::activation, DType::f16);
  for (const double largest : {20000.0, 30000.0, 10.0, 17000.0, 60000.0}) {
    trace.add(tensor, make_stored_row({largest}, DType::f16));
    trace.end_step();
  }
  EXPECT_EQ(headroom_before(trace.read(), tensor, {5, 0}).low_since, 3u);  // 65504 / 4 = 16376
}

TEST(Nan, ARunWithoutAnySaysSo) {
  Model model;
  model.step({});
  const Report report = analyze_nan(model.read());
  EXPECT_EQ(report.verdict, Verdict::ok);
  EXPECT_EQ(report.verdict_text, "No recorded tensor holds NaN or Inf.");
  EXPECT_TRUE(report.tables.empty());
}

}  // namespace
}  // namespace ulpscope::analyzers_test
