// What advice proposes becomes runs that have it, and what came of them is said of the advice.
#include "ulpscope/studies/setting_changes.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/support/project_files.h"
#include "tests/support/said.h"
#include "ulpscope/studies/trial_report.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Kind = SettingKind;
using Way = SettingChange::Way;

Experiment changed_experiment(const std::string& text) {
  return parse_experiment(
      text + "[model]\nlayers = [{ type = \"linear\", name = \"head\", out_features = 10 }]\n[data]\nshape = [16]\n", "test");
}

std::vector<ChangedExperiment> changed(const Experiment& original, const SettingChange& change) {
  ChangedExperiments experiments(original);
  experiments.add(change);
  std::vector<ChangedExperiment> all = experiments.take();
  for (const ChangedExperiment& each : all) EXPECT_THAT(each.by, ElementsAre(change)) << each.text();
  return all;
}

// One number of each of them.
template <typename Number>
std::vector<double> numbers(const std::vector<ChangedExperiment>& all, Number&& number) {
  std::vector<double> found;
  for (const ChangedExperiment& each : all) found.push_back(static_cast<double>(number(each.experiment)));
  return found;
}

TEST(SettingChanges, NumbersOfTheRunAreLoweredAndRaised) {
  const Experiment sgd =
      changed_experiment("[optimizer]\ntype = \"sgd\"\nmomentum = 1.5\nweight_decay = 50\nlearning_rate = 0.5\n");
  EXPECT_THAT(numbers(changed(sgd, {.kind = Kind::momentum, .way = Way::lower}), [](auto& e) { return e.optimizer.momentum; }),
              ElementsAre(0.9, 0.5));
  EXPECT_THAT(
      numbers(changed(sgd, {.kind = Kind::weight_decay, .way = Way::lower}), [](auto& e) { return *e.optimizer.weight_decay; }),
      ElementsAre(5, 0.5, 0.05));
  EXPECT_THAT(
      numbers(changed(sgd, {.kind = Kind::learning_rate, .way = Way::raise}), [](auto& e) { return e.optimizer.learning_rate; }),
      ElementsAre(5, 50));
  EXPECT_THAT(numbers(changed(sgd, {.kind = Kind::warmup, .way = Way::raise}), [](auto& e) { return e.schedule.warmup; }),
              ElementsAre(20, 100));
  EXPECT_THAT(numbers(changed(sgd, {.kind = Kind::clip_norm, .value = "1"}), [](auto& e) { return e.clipping.norm; }),
              ElementsAre(1));
  EXPECT_THAT(changed(sgd, {.kind = Kind::epsilon, .way = Way::raise}), IsEmpty()) << "SGD has none";
  const Experiment factor = changed_experiment("[loss]\nfactor = 1000\n");
  EXPECT_THAT(numbers(changed(factor, {.kind = Kind::loss_factor, .way = Way::lower}), [](auto& e) { return e.loss.factor; }),
              ElementsAre(100, 10, 1));
  const Experiment adam = changed_experiment("[optimizer]\neps = 0\n");
  EXPECT_THAT(numbers(changed(adam, {.kind = Kind::epsilon, .way = Way::raise}), [](auto& e) { return e.optimizer.eps; }),
              ElementsAre(1e-5, 1e-4));
}

TEST(SettingChanges, ScalesAreThoseOfAScaler) {
  const Experiment fixed = changed_experiment("precision = \"fp16\"\n[scaler]\ninitial = 65536\ndynamic = false\n");
  const SettingChange smaller{.kind = Kind::scale_initial, .way = Way::lower};
  EXPECT_THAT(numbers(changed(fixed, smaller), [](auto& e) { return *e.scaler.initial; }), ElementsAre(4096, 256, 1));
  EXPECT_THAT(changed(changed_experiment("precision = \"fp32\"\n"), smaller), IsEmpty());
  const std::vector<ChangedExperiment> dynamic = changed(fixed, {.kind = Kind::scale_dynamic, .value = "true"});
  ASSERT_EQ(dynamic.size(), 1u);
  EXPECT_TRUE(dynamic[0].experiment.scaler_rule().dynamic);
  const Experiment fp8 = changed_experiment("precision = \"fp8\"\n[fp8]\nrecipe = \"delayed\"\n");
  EXPECT_THAT(numbers(changed(fp8, {.kind = Kind::quantization_margin, .value = "3"}), [](auto& e) { return e.fp8.margin; }),
              ElementsAre(3));
}

TEST(SettingChanges, GroupsFollowWhereTheyHaveOneOfTheirOwn) {
  const Experiment run = changed_experiment(
      "[optimizer]\nweight_decay = 10\n[[optimizers]]\nmodules = [\"head\"]\nweight_decay = 100\n[[optimizers]]\n"
      "modules = [\"head*\"]\nlearning_rate = 1\n");
  for (const ChangedExperiment& each : changed(run, {.kind = Kind::weight_decay, .way = Way::lower})) {
    const auto& groups = each.experiment.optimizers;
    EXPECT_EQ(each.experiment.settings_of(groups[0]).weight_decay, each.experiment.optimizer.weight_decay);
    EXPECT_EQ(groups[1], run.optimizers[1]);
  }
}

TEST(SettingChanges, ConstantsOfLayersAreThoseOfTheModule) {
  const Experiment run = parse_experiment(R"([model]
layers = [{ type = "residual", name = "block", layers = [
  { type = "layer_norm", name = "norm", eps = 0 }, { type = "attention", name = "attention", heads = 1, causal = true, mask_value = -1e9 },
] }, { type = "layer_norm", name = "other", eps = 0 }]
)",
                                          "test");
  const auto within = [](const Experiment& e, size_t i) -> const LayerSpec& { return e.model.layers[0].layers("layers")[i]; };
  const auto norms = changed(run, {.kind = Kind::epsilon, .way = Way::raise, .module = "block.norm"});
  EXPECT_THAT(numbers(norms, [&](auto& e) { return within(e, 0).number("eps"); }), ElementsAre(1e-5, 1e-4));
  for (const ChangedExperiment& each : norms) EXPECT_EQ(each.experiment.model.layers[1], run.model.layers[1]);
  const auto masks = changed(run, {.way = Way::lower, .module = "block.attention", .now = -1e9});
  EXPECT_THAT(numbers(masks, [&](auto& e) { return within(e, 1).number("mask_value"); }), ElementsAre(-1e8, -1e7, -1e6));
  EXPECT_THAT(changed(run, {.way = Way::lower, .module = "elsewhere", .now = -1e9}), IsEmpty());
}

TEST(SettingChanges, ASettingIsFoundByItsNameToo) {
  Experiment run = changed_experiment("");
  run.loss.function = LossFunction::binary_cross_entropy;
  const auto losses = changed(run, {.value = "\"bce_with_logits\"", .name = "loss.function"});
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(losses[0].experiment.loss.function, LossFunction::bce_with_logits);
  EXPECT_THAT(changed(run, {.value = "\"bce_with_logits\"", .name = "no.such"}), IsEmpty());
  EXPECT_THAT(changed(run, {.value = "\"bce_with_logits\""}), IsEmpty());
}

TEST(SettingChanges, TheClosestToWhatWasAskedForIsFirst) {
  const Experiment run = changed_experiment("precision = \"pure_bf16\"\n");
  ChangedExperiments experiments(run);
  for (const SettingChange& change : {SettingChange{.kind = Kind::learning_rate, .way = Way::lower},
                                      {.kind = Kind::clip_norm, .value = "1"},
                                      {.kind = Kind::precision, .value = "\"fp32\""},
                                      {.kind = Kind::master_weights, .value = "true"},
                                      {.kind = Kind::update_math, .value = "\"fp32\""},
                                      {.kind = Kind::clip_norm, .value = "1"}})
    experiments.add(change);
  std::vector<std::string> texts;
  for (const ChangedExperiment& each : experiments.take()) texts.push_back(each.text().substr(0, 8));
  EXPECT_THAT(texts, ElementsAre("update c", "FP32 mas", "FP32: pr", "gradient", "learning", "learning", "learning"));
}

// What is told can be copied: it is the experiment that was tried.
TEST(ChangedExperiments, NumbersReadBackExactly) {
  const std::vector<Override> changes{Override("optimizer.learning_rate=0.0123456789"), Override("scaler.initial=2^16")};
  const Experiment original = load_experiment(project_file("experiments/failures/activations_overflow_fp16.toml"), changes);
  ChangedExperiments experiments(original);
  for (const Way way : {Way::lower, Way::raise}) {
    experiments.add({.kind = Kind::learning_rate, .way = way});
    experiments.add({.kind = Kind::scale_initial, .way = way});
  }
  std::set<std::string> settings;
  for (const ChangedExperiment& each : experiments.take()) {
    const std::string setting = each.settings.front().text();
    settings.insert(setting);
    Experiment copied = original;
    apply_override(copied, Override(setting.substr(0, setting.find(" = ")) + "=" + setting.substr(setting.find(" = ") + 3)));
    EXPECT_TRUE(copied == each.experiment) << setting;
  }
  EXPECT_TRUE(settings.contains("scaler.initial = \"2^20\""));
  EXPECT_TRUE(settings.contains("scaler.initial = 4096"));
}

// Advice on a run that diverged.
constexpr Template kDiverged{"test.diverged", "It diverged{precision}."};
constexpr Template kOrNoFormat{"test.or_no_format", "Do it{or}."};

Report report_with(std::vector<SettingChange> changes) {
  Report report;
  report.findings.push_back(
      {"run.diverged", Severity::error, said("It diverged."), {}, said("Do it. Look."), {}, std::move(changes)});
  report.causes.push_back({0, {}});
  report.verdict_text = said("It diverged.");
  return report;
}

TEST(Advice, ThatWasTriedSaysWhatCameOfIt) {
  const SettingChange rate{.kind = Kind::learning_rate, .way = Way::lower}, clip{.kind = Kind::clip_norm, .value = "1"};
  const TriedChange slow{.text = "slower: a = 1", .settings = {{.name = "a", .to = "1"}}, .by = {rate}, .helps = Helps::no},
      slower{.text = "slower: a = 2", .settings = {{.name = "a", .to = "2"}}, .by = {rate}, .helps = Helps::yes},
      clipped{.text = "clipped: b = 1", .settings = {{.name = "b", .to = "1"}}, .by = {clip}, .helps = Helps::no};
  const auto judged = [](const std::vector<TriedChange>& tried, std::vector<SettingChange> changes, const Reference& reference) {
    Report report = report_with(std::move(changes));
    judge_advice(tried, reference, report);
    // The first line keeps the cause.
    EXPECT_EQ(report.verdict_text, "It diverged.");
    return report.findings[0].suggestion.text();
  };
  // Of several values of one setting one is enough.
  EXPECT_EQ(judged({slow, slower}, {rate}, {}), "Do it. Look. Verified: a = 2.");
  EXPECT_EQ(judged({slow, slower, clipped}, {rate, clip}, {}), "Do it. Look. Verified: a = 2. Tried, fails: b = 1.");
  EXPECT_EQ(judged({slow, clipped}, {rate, clip}, {}), "Do it. Look. Tried, fails: a = 1 and b = 1.");
  // What could not be told is neither, and what no time was left for is not tried.
  const TriedChange open{.text = "slower: a = 3", .settings = {{.name = "a", .to = "3"}}, .by = {rate}, .result = "stays_finite"};
  EXPECT_EQ(judged({slow, open}, {rate}, {}), "Do it. Look. Tried, stays finite, but nothing tells whether it trains: a = 3.");
  // Where nothing is there to hold it against, it is known that it learned nothing.
  TriedChange guesses = open;
  guesses.result = "trains_worse";
  EXPECT_EQ(judged({guesses}, {rate}, {}), "Do it. Look. Tried, stays finite, but ends no better than guessing: a = 3.");
  TriedChange left = open;
  left.result = "not_tried";
  EXPECT_EQ(judged({slow, left}, {rate}, {}), "Do it. Look. Not tried, no time was left: a = 3.");
  // Nor does it fail where what it leaves is another matter.
  const TriedChange other{.text = "b = 1",
                          .settings = {{.name = "b", .to = "1"}},
                          .by = {clip},
                          .helps = Helps::no,
                          .left = {"updates.decay_lost"},
                          .result = "still_loses"};
  EXPECT_EQ(judged({other}, {clip}, {}), "Do it. Look.");
  // Losses are told beside that of the reference.
  TriedChange ends = slower;
  ends.end_loss = 0.44;
  Reference fp32;
  fp32.name = "FP32";
  fp32.end = 0.37;
  EXPECT_EQ(judged({ends}, {rate}, fp32), "Do it. Look. Verified: a = 2 (loss 0.44); FP32 ends at 0.37.");
  // Trials may refute that no format helps.
  for (const auto& [helps, expected] : {std::pair(Helps::yes, "Do it."), {Helps::no, "Do it, and precision is not the cause."}}) {
    Report report = report_with({rate});
    report.findings[0].suggestion = kOrNoFormat({{"or", kNoFormatHelps()}});
    judge_advice({{.text = "wide: c = 1", .helps = helps, .is_type = true}}, {}, report);
    EXPECT_EQ(report.findings[0].suggestion, expected);
    // Nor that it is not the cause, in the title or the verdict.
    Report diverged = report_with({rate});
    diverged.findings[0].title = diverged.verdict_text = kDiverged({{"precision", kNoFormatHelps()}});
    judge_advice({{.text = "wide: c = 1", .helps = helps, .is_type = true}}, {}, diverged);
    EXPECT_EQ(diverged.findings[0].title, helps == Helps::yes ? "It diverged." : "It diverged, and precision is not the cause.");
    EXPECT_EQ(diverged.verdict_text, diverged.findings[0].title);
  }
}

}  // namespace
}  // namespace ulpscope
