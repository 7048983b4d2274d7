// Findings on what a run came to: divergence, batches unlike others, guessing, clipping and decay.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "report_access.h"
#include "synthetic_trace.h"
#include "ulpscope/analyzers/verbs/all_findings.h"

namespace ulpscope::analyzers_test {
namespace {

// A weight of 4 x 4, updated by SGD.
uint32_t add_updated_weight(SyntheticTrace& trace) {
  TensorInfo matrix;
  matrix.role = Role::weight;
  matrix.parameter = "fc.weight";
  matrix.shape = {4, 4};
  return trace.add_output({100, 0, "sgd_update", "fc", Phase::optimizer, "", {}, OpKind::update, OpFunction::sgd_update}, matrix);
}

// The update is as large as the weight, and the loss does not come down: no format is to blame.
TEST(RunFindings, UpdatesAsLargeAsTheWeightsAreADivergence) {
  for (const double ratio : {0.1, 2.0}) {
    for (const bool learns : {false, true}) {
      SyntheticTrace trace;
      const uint32_t weight = add_updated_weight(trace);
      for (int step = 0; step < 40; ++step) {
        trace.add(weight, make_row({1.0}, DType::f32));
        ParameterRow row;
        row.step = trace.step();
        row.tensor = weight;
        row.weight_norm = 1;
        row.update_norm = step == 2 ? ratio : 0.01;
        row.nonzero = 16;
        trace.sink().add_parameter(row);
        trace.end_step(SyntheticTrace::default_step(learns ? 1.0 / (1 + step) : 1.0 + 0.01 * step));
      }
      const Report report = analyze_all(trace.read());
      const Finding* const diverged = find_finding(report, "run.diverged");
      ASSERT_EQ(diverged != nullptr, ratio >= 1 && !learns);
      if (!diverged) continue;
      EXPECT_EQ(diverged->extent.first_step, 2u);
      EXPECT_EQ(diverged->title.front().text(),
                "The run diverged at step 2, and precision is not the cause: the update of `fc.weight` was 2x the weight's norm.");
      EXPECT_EQ(report.verdict, Verdict::broken);
    }
  }
}

// One update that is out of all proportion to those before is the matter of its step, and no rate that is too large.
TEST(RunFindings, OneUpdateThatThrowsTheRunIsNoDivergence) {
  struct Case {
    uint64_t step;
    double before;
    bool losses_grew, is_leap;
  };
  for (const auto& [at, before, losses_grew, is_leap] :
       {Case{15, 0.01, false, true}, Case{9, 0.01, false, false}, Case{15, 0.03, false, false}, Case{15, 0.01, true, false}}) {
    SyntheticTrace trace;
    TensorInfo gradient;
    gradient.role = Role::weight_gradient;
    const uint32_t bad = trace.add_output({99, 0, "matmul", "fc", Phase::backward, "", {}}, gradient);
    const uint32_t weight = add_updated_weight(trace);
    trace.sink().add_edge({0, 1, 1, 0, 0});
    for (uint64_t step = 0; step < 40; ++step) {
      trace.add(bad, make_row({step == at ? 64.0 : 2.0}, DType::f32));
      trace.add(weight, make_row({1.0}, DType::f32));
      ParameterRow row;
      row.step = step;
      row.tensor = weight;
      row.weight_norm = 1;
      row.update_norm = step == at ? 2.0 : before;
      trace.sink().add_parameter(row);
      trace.end_step(SyntheticTrace::default_step(step > at ? 9.0 : losses_grew && step > 5 ? 3.0 : 1.0));
    }
    const Report report = analyze_all(trace.read());
    const Finding* const leapt = find_finding(report, "run.update_leapt");
    ASSERT_EQ(leapt != nullptr, is_leap) << at << " " << before;
    EXPECT_NE(is_leap, find_finding(report, "run.diverged") != nullptr);
    if (!leapt) continue;
    EXPECT_EQ(
        leapt->title,
        "One update is far out of line: at step 15 that of `fc.weight` was 2x the weight's norm. In the 15 steps before, no update "
        "exceeded 0.01x its weight's norm. The first tensor out of line is `fc` (matmul in backward): 64 at most, against 2 in the "
        "steps before.");
    EXPECT_EQ(leapt->extent.origin, bad);
    EXPECT_EQ(report.verdict, Verdict::broken);
  }
}

// The steps before it are those of its own rank: as many of another one make it no surer.
TEST(RunFindings, TheStepsBeforeALeapAreThoseOfItsRank) {
  for (const uint64_t at : {8, 12}) {
    RankedTraces traces(2);
    for (const size_t rank : {0, 1}) {
      SyntheticTrace& trace = traces[rank];
      const uint32_t weight = add_updated_weight(trace);
      for (uint64_t step = 0; step < 40; ++step) {
        trace.add(weight, make_row({1.0}, DType::f32));
        trace.sink().add_parameter(
            {.step = step, .tensor = weight, .weight_norm = 1, .update_norm = rank == 1 && step == at ? 2.0 : 0.01});
        trace.end_step(SyntheticTrace::default_step(step > at ? 9.0 : 1.0));
      }
    }
    EXPECT_EQ(find_finding(analyze_all(Snapshot("run", traces.close()), {}), "run.update_leapt") != nullptr, at == 12) << at;
  }
}

uint32_t add_inputs(SyntheticTrace& trace) {
  TensorInfo input;
  input.role = Role::input;
  input.name = "inputs";
  OpInfo source{1, 0, "source", "", Phase::data, "", {}};
  source.kind = OpKind::source;
  return trace.add_output(source, input);
}

// Sample 4 of every second batch of 8: known where the batches that have it are those that are out of line.
TEST(RunFindings, ABatchUnlikeAllOthersIsTheMatterOfItsSample) {
  for (const bool leaps : {true, false}) {
    for (const double far : {31.0, 29.0}) {
      SyntheticTrace trace;
      trace.sink().add_source({.source = 0, .name = "train", .part = "inputs", .file = "x.csv", .samples = 64});
      const uint32_t batch = add_inputs(trace);
      for (uint64_t step = 0; step < 20; ++step) {
        const bool is_bad = step == 12 || step == 17;
        for (uint64_t i = 0; i < 4; ++i)
          trace.sink().add_batch({.step = step, .source = 0, .sample = i == 1 && is_bad ? 60 : (4 * step + i) % 48});
        trace.add(batch, make_row({is_bad ? far : 0.5, 1.0}, DType::f32));
        trace.end_step(SyntheticTrace::default_step(is_bad && leaps ? 20.0 : 1.0));
      }
      const Report report = analyze_all(trace.read());
      const Finding* const outlier = find_finding(report, "data.outlier");
      ASSERT_EQ(outlier != nullptr, far > 30);
      if (!outlier) continue;
      EXPECT_EQ(
          outlier->title,
          "Outlier in `inputs`: sample 60 of train (inputs in x.csv, row 60, counted from 0) reaches 31, while all other batches "
          "stay within 1. It is in 2 of 20 batches, first in step 12.");
      EXPECT_EQ(outlier->suggestion, "Fix or drop the sample; if its value is right, normalize the data.");
      EXPECT_EQ(outlier->severity, leaps ? Severity::warning : Severity::info);
    }
  }
}

// Several samples may be unlike the others: in batches of their own, each behind samples that are like them, or some in one batch;
// and with another that is always beside one of them nothing tells which it is.
TEST(RunFindings, SeveralSamplesMayBeUnlikeTheOthers) {
  struct Case {
    std::vector<std::vector<uint64_t>> bad;  // the new samples of the batches that are out of line
    std::string id;                          // of the sentence on them
    std::string text;
  };
  const Case cases[] = {
      {{{60}, {61}, {60}},
       "data.outlier.own_samples",
       "2 samples are in these batches alone, one in each; the first is sample 60 of "},
      {{{60, 61}, {60, 61}, {60, 61}}, "data.outlier.one_of_samples", "At least one of the 2 samples that are in no other batch "},
      {{{60, 61}, {60, 62}, {60}},
       "data.outlier.share_sample",
       "Of the samples that are in no other batch, one is in all 3 of them: sample 60 "},
      {{{60, 61}, {62, 63}, {60}}, "data.outlier.one_of_samples", "At least one of the 4 samples that are in no other batch "},
      {{{60}, {}, {60}}, "data.outlier.first_in_step", "The first of them is in step 3."},
      {{{60}},
       "data.outlier.sample",
       "Outlier in `inputs`: sample 60 of train (inputs in x.csv, row 60, counted from 0) reaches 31, "},
  };
  for (const Case& one : cases) {
    SyntheticTrace trace;
    trace.sink().add_source({.source = 0, .name = "train", .part = "inputs", .file = "x.csv", .samples = 64});
    const uint32_t batch = add_inputs(trace);
    for (uint64_t step = 0; step < 24; ++step) {
      const size_t which = step % 6 == 3 ? step / 6 : one.bad.size();
      const bool is_bad = which < one.bad.size();
      // In step 20 the samples were not recorded as they are: nothing is known of that batch.
      std::vector<uint64_t> samples = is_bad ? one.bad[which] : step == 20 ? std::vector<uint64_t>{60} : std::vector<uint64_t>();
      while (samples.size() < 4) samples.push_back(step == 20 ? 50 : samples.size());
      for (const uint64_t sample : samples) trace.sink().add_batch({.step = step, .source = 0, .sample = sample});
      if (step != 20) trace.add(batch, make_row({is_bad ? 31.0 : 0.5, 1.0}, DType::f32));
      trace.end_step(SyntheticTrace::default_step(is_bad ? 20.0 : 1.0));
    }
    const Report report = analyze_all(trace.read());
    const Finding* const outlier = find_finding(report, "data.outlier");
    ASSERT_NE(outlier, nullptr);
    const Sentence* const told = sentence_of(outlier->title, one.id);
    ASSERT_NE(told, nullptr) << outlier->title;
    EXPECT_TRUE(told->text().starts_with(one.text)) << outlier->title;
    // Which batch has them is listed where no sample is named.
    EXPECT_EQ(sentence_of(outlier->suggestion, "advice.export_lists_batch") == nullptr, one.id == "data.outlier.sample");
    EXPECT_EQ(outlier->extent.steps, one.bad.size());
  }
}

// Ranks train on samples of their own: what one has that is out of line is told as its, and so is what its loss says.
TEST(RunFindings, ABatchOfAnyRankMayBeUnlikeAllOthers) {
  for (const bool leaps : {true, false}) {
    for (const bool is_shared : {true, false}) {  // the file, or each rank has one
      RankedTraces traces(2);
      for (const size_t rank : {0, 1}) {
        SyntheticTrace& trace = traces[rank];
        trace.sink().add_source(
            {.source = 0, .name = "train", .part = "inputs", .file = is_shared || rank == 0 ? "x.csv" : "y.csv", .samples = 64});
        const uint32_t batch = add_inputs(trace);
        for (uint64_t step = 0; step < 20; ++step) {
          const bool is_bad = rank == 1 && step == 12;
          // Rank 0 has sample 61 of what it reads as well, in another step; the bad one it has not.
          for (uint64_t i = 0; i < 3; ++i)
            trace.sink().add_batch({.step = step,
                                    .source = 0,
                                    .sample = is_bad && i < 2                     ? 60 + i
                                              : rank == 0 && step == 15 && i == 1 ? 61
                                                                                  : (3 * step + i) % 6});
          trace.add(batch, make_row({is_bad ? 31.0 : 0.5, 1.0}, DType::f32));
          trace.end_step(SyntheticTrace::default_step(is_bad && leaps ? 20.0 : 1.0));
        }
      }
      const Report report = analyze_all(Snapshot("run", traces.close()), {});
      const Finding* const outlier = find_finding(report, "data.outlier");
      ASSERT_NE(outlier, nullptr);
      EXPECT_NE(outlier->title.text().find("one of 40 batches, rank 1"), std::string::npos) << outlier->title;
      EXPECT_EQ(outlier->evidence.at(0).key.rank, 1);
      EXPECT_EQ(outlier->severity, leaps ? Severity::warning : Severity::info);
      EXPECT_EQ(outlier->title.text().starts_with("Outlier in `inputs`: sample 60 of train (inputs in x.csv"), is_shared)
          << outlier->title;
      EXPECT_EQ(sentence_of(outlier->title, "data.outlier.one_of_samples") == nullptr, is_shared) << outlier->title;
    }
  }
}

// Guessing is compared with one loss, and with a mean: log_softmax and nll are a cross entropy, and any other logarithms are
// not.
TEST(RunFindings, GuessingIsOfTheOneLossThatBackwardBeganFrom) {
  struct Case {
    const char* before;
    const char* loss;
    const char* attributes;
    bool has_other;
    bool is_told;
  };
  const Case cases[] = {{"linear", "cross_entropy", "", false, true},
                        {"linear", "cross_entropy", "", true, false},
                        {"log_softmax", "nll", "", false, true},
                        {"log_softmax", "nll", "reduction=mean", false, true},
                        {"log_softmax", "nll", "reduction=sum", false, false},
                        {"log", "nll", "", false, false}};
  for (const Case& each : cases) {
    SyntheticTrace trace;
    TensorInfo logits, loss;
    logits.shape = {32, 8};
    loss.role = Role::loss;
    trace.add_output({1, 0, each.before, "head", Phase::forward, "", {}}, logits);
    trace.add_output({2, 0, each.loss, "", Phase::loss, each.attributes, {}}, loss);
    trace.sink().add_edge({0, 1, 0, 0, 0});
    if (each.has_other) trace.add_output({3, 0, "mse", "", Phase::loss, "", {}}, loss);
    for (int step = 0; step < 40; ++step) trace.end_step(SyntheticTrace::default_step(2.08 + step % 2 * 0.01));
    const Report report = analyze_all(trace.read());
    EXPECT_EQ(find_finding(report, "run.no_better_than_guessing") != nullptr, each.is_told)
        << each.before << " " << each.loss << " " << each.attributes;
  }
}

// The peak is among the first losses, and some of the test set is right by chance.
TEST(RunFindings, ALossThatEndsFarAboveItsBeginningIsADivergence) {
  for (const bool classifies : {true, false}) {
    for (const double end : {30.0, 6.0, 3.0}) {
      SyntheticTrace trace;
      TensorInfo logits, loss;
      logits.shape = {32, 8};
      loss.role = Role::loss;
      trace.add_output({1, 0, "linear", "head", Phase::forward, "", {}}, logits);
      trace.add_output({2, 0, classifies ? "cross_entropy" : "mse", "", Phase::loss, "", {}}, loss);
      trace.sink().add_edge({0, 1, 0, 0, 0});
      for (int step = 0; step < 40; ++step) {
        if (step == 39) trace.add_event(EventKind::metric, -1, 0, 0.17, "test_accuracy");
        trace.end_step(SyntheticTrace::default_step(step == 0 ? 2.08 : step < 20 ? 4573.0 : end + step % 3));
      }
      const Report report = analyze_all(trace.read());
      // Ten times the first loss, or twice that of guessing, log(8) = 2.08, which is twice the first one as well.
      const bool worse = classifies && end > 4.16;
      EXPECT_EQ(find_finding(report, "run.diverged") != nullptr, end > 20.8 || worse) << end;
      const Finding* const guessing = find_finding(report, "run.no_better_than_guessing");
      ASSERT_EQ(guessing != nullptr, classifies) << end;
      if (guessing) {
        EXPECT_EQ(
            guessing->title,
            fmt::format("The run ended {} than guessing: its last 10 losses are {} or more, and guessing among 8 classes gives "
                        "log(8) = 2.079. Test accuracy is 17%.",
                        worse ? "worse" : "hardly better", end));
        EXPECT_TRUE(guessing->suggestion.text().ends_with("the loss rose from 2.08 (step 0) to 4,573 (step 1)."))
            << guessing->suggestion;
      }
    }
  }
}

// Updates of SGD are as long as what clipping left of the gradients, or a program that divides them by itself: by the loss scale
// once more where it is that.
TEST(RunFindings, ClippingThatLeavesNextToNothingIsACause) {
  struct Case {
    const char *rule, *op;
    double clipped, scale;  // clipped: 0: the scale-th part of the norm
    bool moves;
    const char *title = nullptr, *suggestion = nullptr;  // nullptr: nothing is found
  };
  constexpr const char
      *kClips = "Clipping shrinks the gradient norm at least 4,090x in each of 39 steps: ",
      *kDivides = "Before the update the program shrinks the gradient norm at least 4,090x in each of 39 steps: ",
      *kTwice =
          "Gradients were divided by the loss scale once more: between the backward pass and the update their norm "
          "shrinks 1,020x in each of 39 steps, which is the loss scale. ",
      *kLarger = "Clip to a larger norm: gradient norms are 0.5 to 0.7.",
      *kLook =
          "Look for what changes gradients between the backward pass and the optimizer's step: norms are 0.5 to "
          "0.7 before.",
      *kOnce = "Divide gradients by the loss scale once: `scaler.unscale_` and `scaler.step` do it.";
  for (const auto& [rule, op, clipped, scale, moves, title, suggestion] :
       {Case{"sgd_update", "clip_norm", 0x1p-13, 1, false, kClips, kLarger}, Case{"sgd_update", "clip_norm", 0x1p-13, 1, true},
        Case{"sgd_update", "clip_norm", 1e-2, 1, false}, Case{"adam_update", "clip_norm", 0x1p-13, 1, false},
        Case{"sgd_update", "_foreach_norm", 0x1p-13, 1, false, kClips, kLarger},
        Case{"sgd_update", "div", 0x1p-13, 1024, false, kDivides, kLook},
        Case{"sgd_update", "clip_norm", 0, 1024, false, kTwice, kOnce}}) {
    SCOPED_TRACE(fmt::format("{} {} {} {}", rule, op, clipped, scale));
    SyntheticTrace trace;
    trace.add_tensor("fc", op, Phase::scaling, Role::unscaled_gradient, DType::f32, "fc.weight");
    const uint32_t weight = trace.add_tensor("fc", rule, Phase::optimizer, Role::weight, DType::f32, "fc.weight");
    for (int step = 0; step < 40; ++step) {
      trace.add(weight, make_row({1.0}, DType::f32));
      StepRow row = SyntheticTrace::default_step(moves ? 1.0 / (1 + step) : 2.0 + 0.001 * (step % 2), scale);
      row.norm_known = true;
      row.gradient_norm = 0.5 + 0.1 * (step % 3);
      row.clipped_gradient_norm = clipped > 0 ? clipped : row.gradient_norm / scale;
      if (step == 7) row.gradient_norm = row.clipped_gradient_norm = INFINITY;
      row.skipped = step == 7;
      trace.end_step(row);
    }
    const Report report = analyze_all(trace.read());
    const Finding* const found = find_finding(report, "updates.clipped_away");
    ASSERT_EQ(found != nullptr, title != nullptr);
    if (!found) continue;
    EXPECT_EQ(found->title,
              fmt::format("{}SGD's updates are too small to train. The loss did not fall: 2 at the start, 2 at the end "
                          "(medians).",
                          title));
    EXPECT_EQ(found->suggestion, suggestion);
    EXPECT_EQ(report.verdict, Verdict::broken);
  }
}

TEST(RunFindings, ClippingBeforeUnscalingIsToldByItsReader) {
  for (const bool before : {true, false}) {
    SyntheticTrace trace;
    TensorInfo tensor;
    tensor.role = Role::weight_gradient;
    tensor.parameter = "fc.weight";
    std::vector<uint32_t> made{trace.add_output({1, 0, "matmul", "fc", Phase::backward, "", {}}, tensor)};
    for (const char* name : {before ? "clip_norm" : "unscale", before ? "unscale" : "clip_norm"}) {
      made.push_back(trace.add_output({made.size() + 1, 0, name, "fc", Phase::scaling, "", {}}, tensor));
      trace.sink().add_edge({0, static_cast<uint32_t>(made.size() - 1), 0, static_cast<uint32_t>(made.size() - 2), 0});
    }
    for (int step = 0; step < 12; ++step) {
      for (const uint32_t each : made) trace.add(each, make_row({1.0}, DType::f32));
      StepRow row = SyntheticTrace::default_step(1.0 / (1 + step), 0x1p14);
      row.norm_known = true;
      row.gradient_norm = 0.5;
      row.clipped_gradient_norm = 0x1p-14;
      trace.end_step(row);
    }
    const Report report = analyze_all(trace.read(), {});
    const Finding* const found = find_finding(report, "updates.clipped_while_scaled");
    ASSERT_EQ(found != nullptr, before) << report.verdict_text;
    if (!before) continue;
    EXPECT_EQ(found->title,
              "Gradients are clipped before they are unscaled, so that the loss scale counts as a part of their norm. It shrinks "
              "the norm at least 8,190x in each of 12 steps.");
    EXPECT_EQ(report.verdict, Verdict::warning);
  }
}

// The gradients hold a loss scale in both cases: in one of them the rule of the update divides by it, which the norm shows.
TEST(RunFindings, UpdatesThatReadScaledGradientsAreToldByTheNorm) {
  for (const bool divides : {true, false}) {
    SyntheticTrace trace;
    TensorInfo gradient, weight;
    gradient.role = Role::weight_gradient;
    weight.role = Role::weight;
    gradient.parameter = weight.parameter = "fc.weight";
    const uint32_t read = trace.add_output({1, 0, "matmul", "fc", Phase::backward, "", {}}, gradient);
    const uint32_t updated = trace.add_output({2, 0, "sgd_update", "fc", Phase::optimizer, "", {}}, weight);
    trace.sink().add_edge({0, 1, 1, 0, 0});
    for (int step = 0; step < 12; ++step) {
      TensorRow row = make_row({0x1p9}, DType::f32);
      row.scale = 0x1p10;
      trace.add(read, row);
      trace.add(updated, make_row({1.0}, DType::f32));
      StepRow end = SyntheticTrace::default_step(1.0 + step, 0x1p10);
      end.norm_known = true;
      end.gradient_norm = end.clipped_gradient_norm = divides ? 0.5 : 0x1p9;
      trace.end_step(end);
    }
    const Report report = analyze_all(trace.read(), {});
    const Finding* const found = find_finding(report, "updates.still_scaled");
    ASSERT_EQ(found != nullptr, !divides) << report.verdict_text;
    if (divides) continue;
    EXPECT_EQ(found->title.front().text(),
              "Optimizers read gradients of the scaled loss that nothing had unscaled: in step 0 the loss scale was 1,024.");
    EXPECT_EQ(found->severity, Severity::error);
  }
}

// A scaler that multiplied a loss from which nothing went back, one from which all did, and a program that scales by itself.
TEST(RunFindings, GradientsThatNeverHadTheScaleAreToldWhereALossHasIt) {
  struct Case {
    double of_loss, of_gradient;
    bool is_told;
  };
  for (const auto& [of_loss, of_gradient, is_told] : {Case{0x1p10, 1, true}, Case{0x1p10, 0x1p10, false}, Case{1, 1, false}}) {
    SCOPED_TRACE(fmt::format("{} {}", of_loss, of_gradient));
    SyntheticTrace trace;
    TensorInfo loss, gradient, unscaled;
    loss.role = Role::loss;
    gradient.role = Role::weight_gradient;
    unscaled.role = Role::unscaled_gradient;
    gradient.parameter = unscaled.parameter = "fc.weight";
    const uint32_t scaled = trace.add_output({1, 0, "scale", "", Phase::scaling, "", {}}, loss);
    const uint32_t read = trace.add_output({2, 0, "matmul", "fc", Phase::backward, "", {}}, gradient);
    const uint32_t made = trace.add_output({3, 0, "unscale", "fc", Phase::scaling, "", {}}, unscaled);
    trace.sink().add_edge({0, 2, 0, 1, 0});
    for (int step = 0; step < 12; ++step) {
      TensorRow of_scaled = make_row({1024}, DType::f32), of_read = make_row({0.5}, DType::f32);
      of_scaled.scale = of_loss;
      of_read.scale = of_gradient;
      trace.add(scaled, of_scaled);
      trace.add(read, of_read);
      trace.add(made, make_row({0x1p-11}, DType::f32));
      trace.end_step(SyntheticTrace::default_step(1.0 + step, 0x1p10));
    }
    const Report report = analyze_all(trace.read(), {});
    const Finding* const found = find_finding(report, "updates.never_scaled");
    ASSERT_EQ(found != nullptr, is_told) << report.verdict_text;
    if (!is_told) continue;
    EXPECT_EQ(found->title.front().text(),
              "Gradients were divided by the loss scale, and no loss that they come from had been multiplied by it: in 12 of the "
              "first 12 steps, `fc.weight` (unscaled gradient) was 1,024x too small.");
    EXPECT_EQ(found->severity, Severity::error);
  }
}

// Four outputs as a column and four targets as a row: all pairs, which draw the outputs to one number. Not told of pairs whose
// outputs differ as the targets do, of two tensors of the model, of equal shapes, nor where the loss does not depend on it.
TEST(RunFindings, TargetsThatBroadcastAreTold) {
  struct Case {
    std::vector<int64_t> pairs;
    bool spread, of_data, goes_back, is_told;
  };
  const std::vector<int64_t> all{4, 4}, own{4};
  for (const auto& [pairs, spread, of_data, goes_back, is_told] :
       {Case{all, false, true, true, true}, Case{all, true, true, true, false}, Case{all, false, false, true, false},
        Case{own, false, true, true, false}, Case{all, false, true, false, false}}) {
    SCOPED_TRACE(fmt::format("{} {} {} {}", pairs.size(), spread, of_data, goes_back));
    SyntheticTrace trace;
    TensorInfo output, target, difference, gradient;
    output.shape = {4, 1};
    target.shape = {4};
    target.role = of_data ? Role::input : Role::activation;
    difference.shape = gradient.shape = pairs;
    gradient.role = Role::activation_gradient;
    const std::vector<uint32_t> tensors{
        trace.add_output({1, 0, "linear", "head", Phase::forward, "", {}}, output),
        trace.add_output({2, 0, of_data ? "source" : "linear", "", of_data ? Phase::data : Phase::forward, "", {}}, target),
        trace.add_output({3, 0, "sub", "", Phase::loss, "", {}}, difference),
        trace.add_output({4, goes_back ? 3u : 9u, "mul", "", Phase::backward, "", {}}, gradient)};
    trace.sink().add_edge({0, 2, 0, 0, 0});
    trace.sink().add_edge({0, 2, 1, 1, 0});
    for (int step = 0; step < 40; ++step) {
      trace.add(tensors[0],
                make_row(spread ? std::vector<double>{-1, 1, -1, 1} : std::vector<double>{0.25, 0.25, 0.25, 0.25}, DType::f32));
      trace.add(tensors[1], make_row({-1, 1, -1, 1}, DType::f32));
      trace.add(tensors[2], make_row(std::vector<double>(4, 1.0), DType::f32));
      trace.add(tensors[3], make_row(std::vector<double>(4, 1.0), DType::f32));
      trace.end_step(SyntheticTrace::default_step(1.0, 1));
    }
    const Report report = analyze_all(trace.read(), {});
    const Finding* const found = find_finding(report, "data.targets_broadcast");
    ASSERT_EQ(found != nullptr, is_told) << report.verdict_text;
    if (!is_told) continue;
    EXPECT_EQ(
        found->title.text(),
        "The loss sets each of 4 outputs against 4 numbers of the data: their shapes broadcast to [4, 4] in `sub`. At the end "
        "outputs had a standard deviation of 0, and the data 1.");
    EXPECT_EQ(found->severity, Severity::error);
  }
}

// The result of a softmax or a sigmoid, also by way of a cast, is no logits; that of another op may be. Not told where the loss
// does not go back from there, or a log_softmax serves no nll.
TEST(RunFindings, ProbabilitiesThatALossTakesForLogitsAreTold) {
  struct Case {
    const char *activation, *loss;
    double least;  // NaN: nothing is told
    bool goes_back = true, has_nll = true;
  };
  for (const auto& [activation, loss, least, goes_back, has_nll] :
       {Case{"softmax", "cross_entropy", std::log(1 + 3 / std::exp(1.0))},
        Case{"softmax", "log_softmax", std::log(1 + 3 / std::exp(1.0))}, Case{"sigmoid", "bce_with_logits", std::log(2.0)},
        Case{"tanh", "cross_entropy", NAN}, Case{"softmax", "nll", NAN}, Case{"softmax", "cross_entropy", NAN, false},
        Case{"softmax", "log_softmax", NAN, true, false}}) {
    SCOPED_TRACE(fmt::format("{} {} {} {}", activation, loss, goes_back, has_nll));
    SyntheticTrace trace;
    TensorInfo values, scalar;
    values.shape = {2, 4};
    const bool is_apart = loss == std::string_view("log_softmax");
    const std::vector<uint32_t> tensors{trace.add_output({1, 0, activation, "last", Phase::forward, "", {}}, values),
                                        trace.add_output({2, 0, "cast", "", Phase::loss, "", {}}, values),
                                        trace.add_output({3, 0, loss, "", Phase::loss, "", {}}, is_apart ? values : scalar),
                                        trace.add_output({4, 0, has_nll ? "nll" : "mean", "", Phase::loss, "", {}}, scalar),
                                        trace.add_output({5, goes_back ? 3u : 9u, "mul", "", Phase::backward, "", {}}, values)};
    trace.sink().add_edge({0, 1, 0, 0, 0});
    trace.sink().add_edge({0, 2, 0, 1, 0});
    if (is_apart) trace.sink().add_edge({0, 3, 0, 2, 0});
    for (int step = 0; step < 12; ++step) {
      for (const uint32_t tensor : tensors) trace.add(tensor, make_row({0.25}, DType::f32));
      trace.end_step(SyntheticTrace::default_step(5.0 / (1 + step), 1));
    }
    const Report report = analyze_all(trace.read(), {});
    const Finding* const found = find_finding(report, "model.probabilities_as_logits");
    ASSERT_EQ(found != nullptr, !std::isnan(least)) << report.verdict_text;
    if (found == nullptr) continue;
    EXPECT_EQ(found->severity, Severity::warning);
    EXPECT_DOUBLE_EQ(std::get<double>(found->evidence.front().values.front().value), least);
  }
}

// A sum that reads itself reads what an earlier step left, unless one gradient more was made in the step than was added, which the
// first sum read, or the first sum is what was added to zeros.
TEST(RunFindings, GradientsOfEarlierStepsAreToldOfSumsThatBeginWithThem) {
  struct Case {
    int gradients, sums;
    bool begins_with_zeros, is_told;
  };
  for (const auto& [gradients, sums, begins_with_zeros, is_told] :
       {Case{1, 1, false, true}, Case{3, 2, false, false}, Case{2, 2, false, true}, Case{2, 2, true, false}}) {
    SCOPED_TRACE(fmt::format("{} {} {}", gradients, sums, begins_with_zeros));
    SyntheticTrace trace;
    TensorInfo gradient, sum, weight;
    gradient.role = Role::weight_gradient;
    sum.role = Role::accumulated_gradient;
    weight.role = Role::weight;
    gradient.parameter = sum.parameter = weight.parameter = "fc.weight";
    const uint32_t made = trace.add_output({1, 0, "matmul", "fc", Phase::backward, "", {}}, gradient);
    const uint32_t added = trace.add_output({2, 0, "accumulate", "fc", Phase::backward, "", {}}, sum);
    const uint32_t updated = trace.add_output({3, 0, "sgd_update", "fc", Phase::optimizer, "", {}}, weight);
    trace.sink().add_edge({0, 1, 0, 1, 0});
    trace.sink().add_edge({0, 1, 1, 0, 0});
    trace.sink().add_edge({0, 2, 1, 1, 0});
    for (int step = 0; step < 12; ++step) {
      for (int i = 0; i < gradients; ++i) {
        trace.add(made, make_row({1.0}, DType::f32));
        if (i >= gradients - sums) trace.add(added, make_row({begins_with_zeros && i == 0 ? 1.0 : 2.0 + step}, DType::f32));
      }
      trace.add(updated, make_row({1.0}, DType::f32));
      trace.end_step(SyntheticTrace::default_step(1.0 + step, 1));
    }
    const Report report = analyze_all(trace.read(), {});
    const Finding* const found = find_finding(report, "updates.gradients_kept");
    ASSERT_EQ(found != nullptr, is_told) << report.verdict_text;
    if (!is_told) continue;
    EXPECT_EQ(found->severity, Severity::error);
    EXPECT_NE(found->title.text().find("in 11 of the first 12 steps"), std::string::npos) << found->title.text();
  }
}

TEST(RunFindings, DecayThatRoundingTookIsAWarning) {
  for (const double applied : {0.9, 0.2, -0.1}) {
    SyntheticTrace trace;
    const uint32_t weight = trace.add_tensor("fc", "adam_update", Phase::optimizer, Role::weight, DType::bf16, "fc.weight");
    trace.add(weight, make_row({1.0}, DType::bf16));
    ParameterRow row;
    row.tensor = weight;
    row.weight_norm = row.update_norm = 1;
    row.nonzero = row.lost_to_decay = row.lost = 10;
    row.nonzero = 20;
    row.decay_known = true;
    row.decay_asked = 1;
    row.decay_applied = applied;
    trace.sink().add_parameter(row);
    trace.end_step();
    const Report report = analyze_all(trace.read());
    const Finding* const lost = find_finding(report, "updates.decay_lost");
    ASSERT_EQ(lost != nullptr, applied < 0.5);
    if (lost) {
      EXPECT_EQ(lost->title.front().id(), applied > 0 ? "updates.decay_lost" : "updates.decay_lost.all");
    }
  }
}

// Edges lead from each parameter to all others in later steps; updates that one lost take no decay of another.
TEST(RunFindings, DecayIsLostWithTheUpdatesOfItsOwnParameterOnly) {
  for (const bool other_decays : {false, true}) {
    SyntheticTrace trace;
    const auto add_weight = [&](uint64_t id, const std::string& module) {
      TensorInfo weight;
      weight.role = Role::weight;
      weight.dtype = DType::bf16;
      weight.parameter = module + ".weight";
      weight.shape = {10, 10};
      return trace.add_output({id, 0, "adam_update", module, Phase::optimizer, "", {}}, weight);
    };
    const uint32_t small = add_weight(1, "fc"), large = add_weight(2, "head");
    for (const auto& [from, to] : {std::pair(0, 1), {1, 0}})
      trace.sink().add_edge({0, static_cast<uint32_t>(to), 0, static_cast<uint32_t>(from), 0});
    for (const uint32_t weight : {small, large}) {
      trace.add(weight, make_row({1.0}, DType::bf16));
      ParameterRow row;
      row.tensor = weight;
      row.weight_norm = row.update_norm = 1;
      row.nonzero = 20;
      row.lost = weight == small ? 18 : 1;
      row.lost_to_decay = weight == small ? 0 : 1;
      row.decay_known = true;
      row.decay_asked = 1;
      row.decay_applied = weight == large && !other_decays ? 1 : 0;
      trace.sink().add_parameter(row);
    }
    trace.end_step();
    const Report report = analyze_all(trace.read());
    const auto is_cause = [&](const char* code) {
      return std::any_of(report.causes.begin(), report.causes.end(),
                         [&](const Cause& cause) { return report.findings[cause.finding].code == code; });
    };
    ASSERT_NE(find_finding(report, "updates.lost"), nullptr);
    ASSERT_NE(find_finding(report, "updates.decay_lost"), nullptr);
    EXPECT_EQ(is_cause("updates.decay_lost"), other_decays);
  }
}

}  // namespace
}  // namespace ulpscope::analyzers_test
