// How the errors of a step come together: against sums that are formed here, and against what must hold of any split.
#include "ulpscope/studies/error_study.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "capsule_fixture.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {
namespace {

class ErrorStudyTest : public CapsuleTest {
 protected:
  // A capsule of the first step; the trial from it.
  Trial first_step_of(const Experiment& settings) {
    const TrainResult trained = train(settings, at_step(0, 1));
    EXPECT_TRUE(trained.capsule->written) << trained.capsule->failure;
    Trial trial;
    trial.capsule = file("capsule");
    return trial;
  }
  // One weight, of which the output is the product with 1 and the target 3; all samples are alike.
  Experiment alike(int samples, const std::vector<std::string>& assignments) {
    std::ofstream data(file("alike.csv"));
    data << "x,y\n";
    for (int i = 0; i < samples; ++i) data << "1,3\n";
    data.close();
    const std::string text =
        "precision = \"fp16\"\n[model]\nlayers = [{ type = \"linear\", name = \"head\", out_features = 1, bias = false }]\n"
        "[data]\nkind = \"csv\"\npath = \"" +
        file("alike.csv") +
        "\"\ntarget_columns = [\"y\"]\ntarget_kind = \"values\"\ntest_share = 0\n"
        "[training]\nbatch_size = " +
        std::to_string(samples) +
        "\nsteps = 1\nevaluation = \"never\"\n[loss]\nfunction = \"mse\"\n"
        "[optimizer]\ntype = \"sgd\"\n[scaler]\nenabled = \"off\"\n";
    return experiment(assignments, text);
  }
};

// The gradient is a sum of equal terms, which stops in FP16: formed here term by term.
TEST_F(ErrorStudyTest, ASumInFp16IsOffByWhatItsTermsLeaveOut) {
  constexpr int kSamples = 4096;
  const Trial start = first_step_of(alike(kSamples, {"arithmetic.accumulate=fp16"}));
  const ErrorStudy study = study_errors(start, {});
  ASSERT_EQ(study.gradients.size(), 1u);
  EXPECT_EQ(study.gradients[0].parameter, "head.weight");
  EXPECT_EQ(study.split.notes.size(), 0u);

  const double exact = study.split.reference.gradients.at("head.weight").values.at(0);
  // d of the mean of (w - 3)^2 is 2 (w - 3), and w is what that makes of it.
  const double weight = exact / 2 + 3, stored_weight = round_to_format(binary16, weight);
  const float output = round_to_format(binary16, static_cast<float>(stored_weight));
  const float term = round_to_format(binary16, 2 * (output - 3) / kSamples);
  float sum = 0;
  for (int i = 0; i < kSamples; ++i) sum = static_cast<float>(round_to_format(binary16, double{sum} + double{term}));
  EXPECT_EQ(study.split.values.gradients.at("head.weight").values.at(0), sum);
  EXPECT_NEAR(study.gradients[0].error.value(), std::abs(sum - exact) / std::abs(exact), 1e-15);
  EXPECT_GT(study.gradients[0].error.value(), 0.3);

  // In FP32 the sum of so many equal terms is within its bound, and what is left comes of three roundings to FP16.
  ASSERT_EQ(study.suspects.size(), 2u);
  const Suspect& first = study.suspects.front();
  EXPECT_EQ(first.module, "head");
  EXPECT_EQ(first.settings.front().text(), "arithmetic.modules.\"head\".accumulate = \"fp32\"");
  ASSERT_TRUE(first.ran && first.only_it_wide && first.only_it_narrow) << first.refusal;
  EXPECT_LE(*first.only_it_wide, 4 * std::abs(3 / (weight - 3)) * 0x1p-11 + kSamples * 0x1p-24);
  EXPECT_EQ(*first.only_it_narrow, study.gradients[0].error) << "there is no other module";

  Report report;
  add_study(study, 0, report);
  ASSERT_EQ(report.tables.size(), 3u);
  EXPECT_EQ(report.tables[0].name, "suspects");
}

// The sums are those of a pattern, and the report names the suspect by its own.
TEST_F(ErrorStudyTest, ASuspectIsNamedByItsModule) {
  const Trial start = first_step_of(alike(4096, {"arithmetic.modules.\"h*\".accumulate=fp16"}));
  const ErrorStudy study = study_errors(start, {});
  ASSERT_FALSE(study.suspects.empty());
  const auto of_sums = std::find_if(study.suspects.begin(), study.suspects.end(),
                                    [](const Suspect& each) { return each.settings.front().name.starts_with("arithmetic"); });
  ASSERT_NE(of_sums, study.suspects.end());
  EXPECT_EQ(of_sums->only_it_narrow, study.gradients[0].error) << "all others are in FP32 as it is";

  Report report;
  report.verdict = Verdict::warning;
  add_study(study, 0, report);
  const std::string text = report.verdict_text.text();
  EXPECT_THAT(text, testing::HasSubstr("The gradient of head.weight is "));
  EXPECT_THAT(text, testing::HasSubstr(" off in step 0: with arithmetic.modules.\"head\".accumulate = \"fp32\", "));
}

// The squares of the parts make that of the whole, of every output in each precision; what is rounded once is at its floor.
TEST_F(ErrorStudyTest, PartsMakeTheWhole) {
  for (const char* precision : {"fp16", "bf16", "pure_bf16", "apex_o2"}) {
    const Trial start =
        first_step_of(experiment({std::string("precision=") + precision, "training.steps=1", "scaler.initial=1024"}));
    const ErrorSplit split = split_errors(start);
    EXPECT_TRUE(split.is_whole);
    EXPECT_THAT(split.notes, testing::IsEmpty()) << precision;
    size_t parts = 0;
    for (const OutputSplit& output : split.outputs) {
      if (!output.injected) continue;
      ++parts;
      const double injected = *output.injected, inherited = *output.inherited;
      // Each of the sums is of at most 4,608 squares, in FP64.
      const double bound = 1e-11 * (injected + inherited) * (injected + inherited);
      EXPECT_NEAR(output.total * output.total, injected * injected + inherited * inherited + *output.cross, bound)
          << precision << " " << output.module << " " << output.op;
      EXPECT_LE(std::abs(*output.cross), 2 * injected * inherited + bound);
      if (output.function == OpFunction::cast || output.function == OpFunction::relu) {
        EXPECT_NEAR(injected, *output.floor, 1e-12) << precision << " " << output.module << " " << output.op;
      }
      EXPECT_EQ(output.flipped.has_value(), output.function == OpFunction::relu || output.function == OpFunction::relu_backward);
    }
    EXPECT_GT(parts, 8u) << precision;
  }
}

// Both runs begin with the same weights, and FP32 is as near to FP64 as its sums of at most 576 terms are.
TEST_F(ErrorStudyTest, ARunInFp32HasItsOwnRoundingOnly) {
  const Trial start = first_step_of(experiment({"precision=fp32", "training.steps=1"}));
  const ErrorStudy study = study_errors(start, {});
  EXPECT_FALSE(study.is_worth_suspects());
  EXPECT_THAT(study.suspects, testing::IsEmpty());
  ASSERT_EQ(study.gradients.size(), 8u);
  for (const GradientError& gradient : study.gradients) {
    // A normalization takes out what a bias in front of it adds.
    EXPECT_EQ(gradient.error.has_value(), gradient.parameter != "conv.bias");
    EXPECT_LT(gradient.error.value_or(0), 1e-4) << gradient.parameter;
  }
}

// Nothing is said of what is NaN or infinite in one of the two.
TEST_F(ErrorStudyTest, WhatOverflowsIsCountedApart) {
  const Trial start = first_step_of(experiment({"precision=fp16", "training.steps=1", "scaler.initial=2^40"}));
  const ErrorStudy study = study_errors(start, {});
  uint64_t nonfinite = 0;
  for (const GradientError& gradient : study.gradients) {
    nonfinite += gradient.nonfinite;
    EXPECT_TRUE(std::isfinite(gradient.error.value_or(0)));
  }
  EXPECT_GT(nonfinite, 0u);
}

TEST_F(ErrorStudyTest, WithoutTimeSuspectsAreNamedAndNotTried) {
  const Trial start = first_step_of(alike(4096, {"arithmetic.accumulate=fp16"}));
  const ErrorStudy study = study_errors(start, {.budget = 0, .watch = {}});
  ASSERT_FALSE(study.suspects.empty());
  for (const Suspect& suspect : study.suspects) EXPECT_FALSE(suspect.ran || suspect.only_it_wide);
}

}  // namespace
}  // namespace ulpscope
