// Which findings are causes, and which came of them: by recorded edges, in order of execution.
#include "ulpscope/analyzers/findings/verdict.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report_access.h"
#include "synthetic_trace.h"
#include "tests/support/said.h"
#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/verbs/all_findings.h"

namespace ulpscope::analyzers_test {
namespace {

constexpr Template kCalm{"test.calm", "they were calm."};

// Ops 0 -> 1 -> 2 in a step, and 2, an update, -> 1 in the next one; 3 stands alone.
class Verdicts : public ::testing::Test {
 protected:
  Verdicts() {
    for (uint64_t op = 0; op < 4; ++op)
      tensors_.push_back(trace_.add_tensor("m" + std::to_string(op), "linear", Phase::forward, Role::activation, DType::f16));
    for (const uint32_t tensor : tensors_) trace_.add(tensor, make_row({1.0}, DType::f16));
    trace_.sink().add_edge({0, 1, 0, 0, 0});
    trace_.sink().add_edge({0, 2, 0, 1, 0});
    trace_.sink().add_edge({0, 1, 1, 2, 0});
    trace_.end_step();
  }

  Report judge(std::vector<Finding> findings) {
    Report report;
    report.findings = std::move(findings);
    add_verdict(read(), report, said("nothing was found."));
    return report;
  }
  Report judge_on(Part part, std::vector<Finding> findings) {
    Report report;
    report.findings = std::move(findings);
    add_verdict_on(Matter::of(part, kCalm()), read(), report);
    return report;
  }
  Finding finding(const char* code, std::optional<uint32_t> tensor, std::optional<uint64_t> step,
                  Severity severity = Severity::error) {
    Finding made{code, severity, said(std::string(code) + " title."), {}, said("Do this. And that."), {}};
    if (tensor) made.extent.tensors = {tensors_[*tensor]};
    made.extent.first_step = step;
    return made;
  }
  static std::vector<std::string> causes(const Report& report) {
    std::vector<std::string> codes;
    for (const Cause& cause : report.causes) codes.push_back(report.findings[cause.finding].code);
    return codes;
  }

 private:
  const Snapshot& read() {
    if (!snapshot_) snapshot_.emplace(trace_.read());
    return *snapshot_;
  }
  SyntheticTrace trace_;
  std::optional<Snapshot> snapshot_;
  std::vector<uint32_t> tensors_;
};

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

TEST_F(Verdicts, NothingAboveInfoIsHealthy) {
  const Report report = judge({finding("range.values_flushed", 0, 0, Severity::info)});
  EXPECT_EQ(report.verdict, Verdict::ok);
  EXPECT_THAT(causes(report), IsEmpty());
  EXPECT_EQ(judge({finding("recording.dead", {}, {}, Severity::warning)}).verdict, Verdict::ok) << "of the recording";
  EXPECT_EQ(judge({finding("updates.lost", 0, 0, Severity::warning)}).verdict, Verdict::warning);
}

TEST_F(Verdicts, AFindingBehindAnotherOneCameOfIt) {
  const Report report = judge({finding("range.nonfinite", 2, 5), finding("range.values_overflow", 0, 5)});
  EXPECT_EQ(report.verdict, Verdict::broken);
  ASSERT_THAT(causes(report), ElementsAre("range.values_overflow"));
  ASSERT_EQ(report.causes[0].consequences.size(), 1u);
  EXPECT_EQ(report.findings[report.causes[0].consequences[0]].code, "range.nonfinite");
  EXPECT_EQ(report.verdict_text, "range.values_overflow title.");
}

// The verdict tells the worst that became of the run.
TEST_F(Verdicts, TheWorstOutcomeIsTold) {
  for (const bool test_is_worse : {true, false}) {
    const Report report = judge({finding("run.loss_nonfinite", {}, 6, Severity::warning),
                                 finding("run.test_loss_nonfinite", {}, 9, test_is_worse ? Severity::error : Severity::warning),
                                 finding("data.outlier", 0, 5, Severity::warning)});
    ASSERT_THAT(causes(report), ElementsAre("data.outlier"));
    EXPECT_EQ(report.verdict_text, fmt::format("run.{}loss_nonfinite title. data.outlier title.", test_is_worse ? "test_" : ""));
  }
}

TEST_F(Verdicts, TwoCausesThatNoEdgesConnectStayTwo) {
  EXPECT_THAT(causes(judge({finding("range.nonfinite", 3, 5), finding("range.values_overflow", 0, 5)})),
              ElementsAre("range.nonfinite", "range.values_overflow"));
}

TEST_F(Verdicts, WhatWasSeenBeforeDidNotComeOfIt) {
  EXPECT_THAT(causes(judge({finding("range.nonfinite", 2, 4), finding("range.values_overflow", 0, 5)})),
              ElementsAre("range.nonfinite", "range.values_overflow"));
}

// Op 2 runs behind op 1; what it makes is read by op 1 in the next step.
TEST_F(Verdicts, AnUpdateLeadsIntoTheNextStep) {
  EXPECT_EQ(causes(judge({finding("range.nonfinite", 1, 5), finding("data.nonfinite", 2, 5)})).size(), 2u);
  EXPECT_EQ(causes(judge({finding("range.nonfinite", 1, 6), finding("data.nonfinite", 2, 5)})).size(), 1u);
}

TEST_F(Verdicts, WhatIsAboutTheRunCanComeOfAnyCauseThatExplainsIt) {
  const Report report = judge({finding("run.loss_nonfinite", {}, 6), finding("range.values_overflow", 3, 5),
                               finding("updates.lost", 0, 0, Severity::warning)});
  EXPECT_THAT(causes(report), ElementsAre("range.values_overflow", "updates.lost"));
  EXPECT_EQ(report.verdict_text, "run.loss_nonfinite title. range.values_overflow title.");
}

TEST_F(Verdicts, ACauseIsAsSevereAsWhatCameOfIt) {
  const Report report = judge({finding("updates.none_applied", {}, 0), finding("range.gradients_vanish", 1, 0, Severity::warning)});
  ASSERT_THAT(causes(report), ElementsAre("range.gradients_vanish"));
  EXPECT_EQ(report.findings[report.causes[0].finding].severity, Severity::error);
  EXPECT_EQ(report.verdict, Verdict::broken);
}

// What is divided by an infinity is zero, and gradients behind it are.
TEST_F(Verdicts, ZerosOfADivisionLoseGradients) {
  for (const bool gives_zeros : {false, true}) {
    std::vector<Finding> findings{finding("range.values_overflow", 0, 0), finding("range.gradients_flushed", 2, 3),
                                  finding("updates.lost", 3, 3)};
    findings[0].extent.gives_zeros = gives_zeros;
    std::vector<std::string> expected{"range.values_overflow", "range.gradients_flushed", "updates.lost"};
    if (gives_zeros) expected.erase(expected.begin() + 1);  // no edge leads to the last
    EXPECT_THAT(causes(judge(findings)), ElementsAreArray(expected));
  }
}

// A note is no cause of harm: overflows in steps that the scaler skipped, of a run that broke for another reason.
TEST_F(Verdicts, ANoteIsNoCause) {
  EXPECT_THAT(causes(judge({finding("run.loss_nonfinite", {}, 6), finding("range.gradients_overflow", 1, 0, Severity::info)})),
              ElementsAre("run.loss_nonfinite"));
}

// Two findings of one code, each of which could come of the other, are not both consequences.
TEST_F(Verdicts, SomeFindingIsAlwaysTheCause) {
  const Report report = judge(
      {finding("range.gradients_overflow", 1, 5), finding("range.gradients_overflow", 1, 5), finding("range.nonfinite", 1, 5)});
  EXPECT_THAT(causes(report), ElementsAre("range.gradients_overflow"));
}

// `report --only updates` has what is called updates. What has no part in the verdict, as that a run was asked to stop, may be told
// with the recording.
TEST(FindingRules, ArePartsOfWhatTheirCodesBeginWith) {
  for (const FindingRule* rule : finding_rules()) {
    if (!rule->is_about_run) continue;
    const std::string_view begins = rule->code.substr(0, rule->code.find('.'));
    for (const Part part :
         {Part::recording, Part::run, Part::ranges, Part::scale, Part::updates, Part::errors, Part::tensor_cores, Part::compare}) {
      const std::string_view name = part == Part::ranges ? "range" : name_of(part);
      EXPECT_TRUE(begins != name || rule->part == part) << rule->code;
    }
  }
}

TEST(FindingRules, ExplainOnlyWhatThereIs) {
  for (const FindingRule* rule : finding_rules()) {
    EXPECT_FALSE(rule->raised.empty()) << rule->code;
    EXPECT_EQ(rule->part == Part::compare, rule->compare != nullptr) << rule->code;
    EXPECT_EQ(rule->part != Part::compare, rule->find_start || rule->find) << rule->code;
    EXPECT_EQ(&finding_rule(rule->code), rule) << "a code stands twice: " << rule->code;
    for (const std::string_view code : rule->explains) {
      const bool known = std::any_of(finding_rules().begin(), finding_rules().end(), [&](const FindingRule* other) {
        return code.ends_with('*') ? other->code.starts_with(code.substr(0, code.size() - 1)) : other->code == code;
      });
      EXPECT_TRUE(known) << rule->code << " explains " << code << ", which is no finding";
    }
  }
}

// A relu that goes silent: of ops that read one input that was not zero. What reads zeros is silent for another reason.
TEST(ModelFindings, ADeadOutputIsTheFirstThatIsZeroThoughItsInputIsNot) {
  SyntheticTrace trace;
  const auto relu = [](uint64_t id, const char* module) {
    return OpInfo{id, 0, "relu", module, Phase::forward, "", {}, OpKind::elementwise, OpFunction::relu};
  };
  const uint32_t input = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f32);
  TensorInfo made;
  made.role = Role::activation;
  const uint32_t first = trace.add_output(relu(100, "first"), made), second = trace.add_output(relu(101, "second"), made);
  trace.sink().add_edge({0, 1, 0, 0, 0});
  trace.sink().add_edge({0, 2, 0, 1, 0});
  for (int step = 0; step < 15; ++step) {
    trace.add(input, make_row({-1.0, -2.0}, DType::f32));
    trace.add(first, make_row({step < 3 ? 1.0 : 0.0, 0.0}, DType::f32));
    trace.add(second, make_row({step < 3 ? 1.0 : 0.0, 0.0}, DType::f32));
    trace.end_step();
  }
  const Report report = analyze_all(trace.read());
  const Finding* const dead = find_finding(report, "model.dead_output");
  ASSERT_NE(dead, nullptr);
  EXPECT_EQ(dead->evidence.size(), 1u);
  EXPECT_EQ(dead->evidence[0].key.module, "first");
  EXPECT_EQ(dead->extent.first_step, 3u);
}

// Whether the loss sees anything of the batch: its targets say nothing of it, whatever multiplies the loss, and a way around does.
TEST(ModelFindings, ADeadReluThatHidesTheBatchBreaksTheRun) {
  for (const bool is_scaled : {false, true}) {
    for (const bool has_way_around : {false, true}) {
      SyntheticTrace trace;
      TensorInfo batch, made, loss;
      batch.role = Role::input;
      made.role = Role::activation;
      loss.role = Role::loss;
      trace.add_output({1, 0, "source", "", Phase::data, "", {}}, batch);
      trace.add_output({2, 0, "source", "", Phase::data, "", {}}, batch);  // the targets
      const uint32_t input = trace.add_output({3, 0, "linear", "fc", Phase::forward, "", {}}, made);
      const uint32_t relu = trace.add_output({4, 0, "relu", "dead", Phase::forward, "", {}}, made);
      trace.add_output({5, 0, "add", "", Phase::forward, "", {}}, made);
      trace.add_output({6, 0, "mse", "", Phase::loss, "", {}}, loss);
      if (is_scaled) trace.add_output({7, 0, "scale", "", Phase::loss, "factor=0.5", {}}, loss);
      for (const GraphEdge& edge : {GraphEdge{0, 2, 0, 0, 0}, GraphEdge{0, 3, 0, 2, 0}, GraphEdge{0, 4, 0, 3, 0}})
        trace.sink().add_edge(edge);
      if (has_way_around) trace.sink().add_edge({0, 4, 1, 0, 0});
      trace.sink().add_edge({0, 5, 0, 4, 0});
      trace.sink().add_edge({0, 5, 1, 1, 0});
      if (is_scaled) trace.sink().add_edge({0, 6, 0, 5, 0});
      for (int step = 0; step < 15; ++step) {
        trace.add(input, make_row({-1.0, -2.0}, DType::f32));
        trace.add(relu, make_row({step < 3 ? 1.0 : 0.0, 0.0}, DType::f32));
        trace.end_step();
      }
      const Report report = analyze_all(trace.read());
      const Finding* const dead = find_finding(report, "model.dead_output");
      ASSERT_NE(dead, nullptr);
      EXPECT_EQ(dead->severity, has_way_around ? Severity::warning : Severity::error) << is_scaled;
    }
  }
}

// By the expectation, with the share of a step left to chance: less than one element of a sample, and less than one in ten.
TEST(ModelFindings, ADropoutThatKeepsNextToNothingIsTold) {
  struct Case {
    std::string p;
    std::vector<int64_t> shape;
    bool is_told;
  };
  const Case cases[] = {{"0.998", {32, 16, 5, 5}, true}, {"0.997", {32, 400}, false}, {"0.9995", {8, 48}, true},
                        {"0.95", {32, 2}, true},         {"0.5", {32, 1}, false},     {"varies", {32, 2}, false}};
  for (const Case& one : cases) {
    SyntheticTrace trace;
    TensorInfo made;
    made.shape = one.shape;
    const uint32_t dropout = trace.add_output({1,
                                               0,
                                               "dropout",
                                               "drop",
                                               Phase::forward,
                                               fmt::format("p={} seed=varies", one.p),
                                               {},
                                               OpKind::elementwise,
                                               OpFunction::dropout},
                                              made);
    for (int step = 0; step < 5; ++step) {
      trace.add(dropout, make_row({500.0, 0.0, 0.0}, DType::f32));
      trace.end_step();
    }
    const Report report = analyze_all(trace.read());
    const Finding* const finding = find_finding(report, "model.drops_everything");
    ASSERT_EQ(finding != nullptr, one.is_told) << one.p;
    if (one.p != "0.998") continue;
    EXPECT_EQ(
        finding->title,
        "`drop` (dropout) keeps 0.8 of 400 elements of a sample on average, and multiplies them by 500. Layers before it hardly "
        "learn through it.");
    EXPECT_EQ(finding->suggestion, "Lower the dropped share (now 0.998).");
    EXPECT_EQ(finding->severity, Severity::warning);
    EXPECT_EQ(finding->extent.first_step, 0u);
  }
}

// A report on one matter: the verdict is the run's, and findings on other matters stay where they are cause or company.
TEST_F(Verdicts, AMatterShowsItsOwnFindingsAndTheirCauses) {
  const auto all = [&] {
    return std::vector{finding("data.nonfinite", 0, 0), finding("range.nonfinite", 1, 0),
                       finding("updates.lost", std::nullopt, 3, Severity::warning),
                       finding("scale.none", std::nullopt, 0, Severity::info)};
  };
  const Report ranges = judge_on(Part::ranges, all());
  EXPECT_EQ(ranges.verdict, Verdict::broken);
  EXPECT_EQ(ranges.verdict_text, "data.nonfinite title.");
  EXPECT_THAT(causes(ranges), ElementsAre("data.nonfinite"));
  ASSERT_EQ(ranges.findings.size(), 2u);
  ASSERT_EQ(ranges.causes[0].consequences.size(), 1u);
  EXPECT_EQ(ranges.findings[ranges.causes[0].consequences[0]].code, "range.nonfinite");

  const Report updates = judge_on(Part::updates, all());
  EXPECT_EQ(updates.verdict, Verdict::broken);
  EXPECT_EQ(updates.verdict_text, "data.nonfinite title. updates.lost title.");
  EXPECT_THAT(causes(updates), ElementsAre("updates.lost"));
  EXPECT_EQ(updates.findings.size(), 1u);

  const Report scale = judge_on(Part::scale, all());
  EXPECT_EQ(scale.verdict, Verdict::broken);
  EXPECT_EQ(scale.verdict_text, "data.nonfinite title. they were calm.");
  EXPECT_TRUE(scale.causes.empty());
  ASSERT_EQ(scale.findings.size(), 1u);
  EXPECT_EQ(scale.findings[0].code, "scale.none");

  const Report healthy = judge_on(Part::ranges, {finding("scale.none", std::nullopt, 0, Severity::info)});
  EXPECT_EQ(healthy.verdict, Verdict::ok);
  EXPECT_EQ(healthy.verdict_text, "they were calm.");
  EXPECT_TRUE(healthy.findings.empty());

  SyntheticTrace empty;
  Report report;
  add_verdict_on(Matter::of(Part::ranges, kCalm()), empty.read(), report);
  EXPECT_FALSE(report.verdict);
}

}  // namespace
}  // namespace ulpscope::analyzers_test
