// What traces say of the settings that a run has.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/temporary_folder.h"
#include "tests/support/train_settings.h"
#include "ulpscope/core/run/experiment.h"
#include "ulpscope/core/run/experiment_options.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const std::string kModel = R"(
[model]
layers = [{ type = "linear", name = "body", out_features = 8 }, { type = "linear", name = "head", out_features = 10 }]
)";

Experiment parsed_settings(const std::string& text, const std::vector<Override>& overrides = {}) {
  return parse_experiment(text + kModel, "run.toml", overrides);
}

std::map<std::string, SettingInfo> settings_of(const Experiment& experiment) {
  std::map<std::string, SettingInfo> by_name;
  for (const SettingInfo& setting : describe_settings(experiment)) EXPECT_TRUE(by_name.emplace(setting.name, setting).second);
  return by_name;
}

std::set<std::string> given_in(const Experiment& experiment) {
  std::set<std::string> given;
  for (const auto& [name, setting] : settings_of(experiment))
    if (setting.given) given.insert(name);
  return given;
}

TEST(Settings, AreAllThatTheChosenKindsTake) {
  const auto settings = settings_of(parsed_settings(""));
  std::vector<std::string> missing;
  for (const auto& option : experiment_options())
    if (!settings.contains(option.key)) missing.push_back(option.key);
  // random_classification, cross_entropy, adam, a constant schedule and current scaling: these and no others do not take them.
  EXPECT_THAT(
      missing,
      ElementsAre("model.preset", "data.path", "data.train_images", "data.train_labels", "data.test_images", "data.test_labels",
                  "data.test_path", "data.inputs", "data.targets", "data.test_inputs", "data.test_targets", "data.target_kind",
                  "data.input_indices", "data.header", "data.delimiter", "data.target_columns", "data.input_columns", "data.mean",
                  "data.std", "data.context", "data.stride", "data.test_share", "data.height", "data.width", "data.frequency",
                  "data.levels", "loss.delta", "optimizer.momentum", "optimizer.dampening", "optimizer.nesterov",
                  "schedule.end_factor", "schedule.steps", "schedule.step_size", "schedule.gamma", "fp8.amax_history", "fp8.amax"));
  EXPECT_EQ(settings.size(), experiment_options().size() - missing.size() + 4);  // and the tables of free names
}

TEST(Settings, HaveTheValuesThatHold) {
  const auto value = [](const Experiment& experiment, const std::string& name) { return settings_of(experiment).at(name).value; };
  const Experiment fp16 = parsed_settings("precision = \"fp16\"\noptimizer.type = \"adamw\"\n");
  EXPECT_EQ(value(fp16, "precision"), "\"fp16\"");
  EXPECT_EQ(value(fp16, "scaler.preset"), "\"pytorch\"");
  EXPECT_EQ(value(fp16, "scaler.initial"), "65536");
  EXPECT_EQ(value(fp16, "scaler.growth_interval"), "2000");
  EXPECT_EQ(value(fp16, "scaler.dynamic"), "true");
  EXPECT_EQ(value(fp16, "optimizer.weight_decay"), "0.01");
  EXPECT_EQ(value(fp16, "optimizer.master_weights"), "false");
  EXPECT_EQ(value(fp16, "autocast.ops"), "{}");
  const Experiment apex = parsed_settings("precision = \"apex_o2\"\n[scaler]\ninitial = \"2^10\"\n[optimizer]\ntype = \"lion\"\n");
  EXPECT_EQ(value(apex, "scaler.preset"), "\"apex\"");
  EXPECT_EQ(value(apex, "scaler.initial"), "1024");
  EXPECT_EQ(value(apex, "optimizer.beta2"), "0.99");
  EXPECT_EQ(value(apex, "optimizer.weight_decay"), "0");
  EXPECT_EQ(value(apex, "optimizer.master_weights"), "true");
}

// What reads values as TOML gets the settings that they are of.
TEST(Settings, AreReadAsTheExperimentIs) {
  const Experiment experiment = parsed_settings(R"(
precision = "fp8"
name = "a \"name\""
optimizer = { type = "sgd", momentum = 0.9, learning_rate = 0.3 }
recording = { modules = ["a*", "b"], max_size = "3M", phases = ["forward"] }
data.shape = [3, 4, 5]
autocast.ops = { "linear" = "fp32" }
autocast.modules = { "head" = "bf16", "b*" = "fp16" }
arithmetic = { accumulate = "a100", ops = { "matmul" = { accumulate = "fp16", rounding = "rz" } } }
[fp8]
recipe = "delayed"
)");
  const std::vector<SettingInfo> settings = describe_settings(experiment);
  std::string text;
  for (const SettingInfo& setting : settings) text += fmt::format("{} = {}\n", setting.name, setting.value);
  const std::vector<SettingInfo> again = describe_settings(parsed_settings(text));
  ASSERT_EQ(settings.size(), again.size());
  for (size_t i = 0; i < settings.size(); ++i) {
    EXPECT_EQ(settings[i].name, again[i].name);
    EXPECT_EQ(settings[i].value, again[i].value) << settings[i].name;
    EXPECT_EQ(settings[i].kind, again[i].kind) << settings[i].name;
  }
  EXPECT_EQ(settings_of(experiment).at("arithmetic.ops").value, R"({ "matmul" = { accumulate = "fp16", rounding = "rz" } })");
  EXPECT_EQ(settings_of(experiment).at("autocast.modules").value, R"({ "head" = "bf16", "b*" = "fp16" })");
}

TEST(Settings, AreGivenWhereSomeoneSetThem) {
  EXPECT_THAT(given_in(parsed_settings("")), UnorderedElementsAre("name"));  // that of the file
  // A default that is asked for is given, too.
  EXPECT_THAT(given_in(parsed_settings("[optimizer]\nlearning_rate = 0.001\n", {"scaler.initial=4", "autocast.ops.linear=fp16"})),
              UnorderedElementsAre("name", "optimizer.learning_rate", "scaler.initial", "autocast.ops"));
  // Settings that no text had.
  Experiment built = parsed_settings("");
  built.optimizer.learning_rate = 0.5;
  built.scaler.initial = 8;
  EXPECT_THAT(given_in(built), UnorderedElementsAre("name", "optimizer.learning_rate", "scaler.initial"));
  const std::set<std::string> of_preset = given_in(*find_preset("mlp"));
  EXPECT_TRUE(of_preset.contains("optimizer.learning_rate"));
  EXPECT_FALSE(of_preset.contains("optimizer.eps"));
}

TEST(Settings, OfFurtherOptimizersHaveTheirPlaceInTheList) {
  const Experiment experiment = parsed_settings(R"(
[optimizer]
type = "adamw"
learning_rate = 0.25
[[optimizers]]
modules = ["head*"]
type = "sgd"
momentum = 0.5
[[optimizers]]
modules = ["body", "other"]
learning_rate = 0.75
)");
  const auto settings = settings_of(experiment);
  const auto is = [&](const std::string& name, const std::string& value, SettingKind kind, bool given) {
    ASSERT_TRUE(settings.contains(name)) << name;
    EXPECT_EQ(settings.at(name).value, value) << name;
    EXPECT_EQ(settings.at(name).kind, kind) << name;
    EXPECT_EQ(settings.at(name).given, given) << name;
  };
  is("optimizer.learning_rate", "0.25", SettingKind::learning_rate, true);
  is("optimizers[0].modules", "[\"head*\"]", SettingKind::other, true);
  is("optimizers[0].type", "\"sgd\"", SettingKind::optimizer, true);
  is("optimizers[0].learning_rate", "0.25", SettingKind::learning_rate, false);
  is("optimizers[0].momentum", "0.5", SettingKind::momentum, true);
  is("optimizers[0].weight_decay", "0", SettingKind::weight_decay, false);  // of sgd
  is("optimizers[1].learning_rate", "0.75", SettingKind::learning_rate, true);
  is("optimizers[1].weight_decay", "0.01", SettingKind::weight_decay, false);
  EXPECT_FALSE(settings.contains("optimizers[0].beta1"));
  EXPECT_FALSE(settings.contains("optimizers[1].momentum"));
}

TEST(Settings, SayWhatTheyAre) {
  std::map<SettingKind, std::set<std::string>> names;
  for (const std::string type : {"sgd", "adamw"})
    for (const SettingInfo& setting :
         describe_settings(parsed_settings("precision = \"fp8\"\nfp8.recipe = \"delayed\"\n", {"optimizer.type=" + type})))
      names[setting.kind].insert(setting.name);
  using Kind = SettingKind;
  const std::map<Kind, std::set<std::string>> expected{{Kind::precision, {"precision"}},
                                                       {Kind::scale_enabled, {"scaler.enabled"}},
                                                       {Kind::scale_dynamic, {"scaler.dynamic"}},
                                                       {Kind::scale_initial, {"scaler.initial"}},
                                                       {Kind::scale_growth_interval, {"scaler.growth_interval"}},
                                                       {Kind::scale_growth_factor, {"scaler.growth_factor"}},
                                                       {Kind::scale_backoff_factor, {"scaler.backoff_factor"}},
                                                       {Kind::optimizer, {"optimizer.type"}},
                                                       {Kind::learning_rate, {"optimizer.learning_rate"}},
                                                       {Kind::weight_decay, {"optimizer.weight_decay"}},
                                                       {Kind::epsilon, {"optimizer.eps"}},
                                                       {Kind::momentum, {"optimizer.momentum", "optimizer.beta1"}},
                                                       {Kind::second_moment, {"optimizer.beta2"}},
                                                       {Kind::master_weights, {"optimizer.master_weights"}},
                                                       {Kind::update_math, {"optimizer.math"}},
                                                       {Kind::clip_norm, {"clipping.norm"}},
                                                       {Kind::batch_size, {"training.batch_size"}},
                                                       {Kind::arithmetic, {"arithmetic.tf32", "arithmetic.modules"}},
                                                       {Kind::accumulation, {"arithmetic.accumulate"}},
                                                       {Kind::rounding, {"arithmetic.rounding"}},
                                                       {Kind::subnormals, {"arithmetic.subnormals"}},
                                                       {Kind::arithmetic_of_ops, {"arithmetic.ops"}},
                                                       {Kind::precision_of_ops, {"autocast.ops"}},
                                                       {Kind::precision_of_modules, {"autocast.modules"}},
                                                       {Kind::clip_value, {"clipping.value"}},
                                                       {Kind::warmup, {"schedule.warmup"}},
                                                       {Kind::loss_factor, {"loss.factor"}},
                                                       {Kind::scale_cap, {"scaler.cap"}},
                                                       {Kind::scale_floor, {"scaler.floor"}},
                                                       {Kind::micro_batches, {"training.accumulation"}},
                                                       {Kind::quantization_recipe, {"fp8.recipe"}},
                                                       {Kind::quantization_margin, {"fp8.margin"}},
                                                       {Kind::quantization_history, {"fp8.amax_history"}},
                                                       {Kind::recording_level, {"recording.level"}},
                                                       {Kind::recording_interval, {"recording.every"}},
                                                       {Kind::recording_limit, {"recording.max_size"}}};
  names.erase(Kind::other);
  EXPECT_EQ(names, expected);
  EXPECT_EQ(names.size() + 1, static_cast<size_t>(kSettingKinds));
}

// Tests of advice take these for what a run records.
TEST(Settings, ThatAdviceNamesAreThere) {
  const auto settings = settings_of(parsed_settings("precision = \"fp8\"\nfp8.recipe = \"delayed\"\n"));
  for (const SettingInfo& named : train_settings()) {
    ASSERT_TRUE(settings.contains(named.name)) << named.name;
    const SettingInfo& setting = settings.at(named.name);
    EXPECT_EQ(setting.value, named.value) << named.name;
    EXPECT_EQ(setting.kind, named.kind) << named.name;
    EXPECT_EQ(setting.given, named.given) << named.name;
  }
}

TEST(Settings, AreInTheTrace) {
  const TemporaryFolder folder;
  const Experiment experiment = parsed_settings("training = { steps = 1, batch_size = 4 }\ndata.train_size = 8\n");
  TrainerOptions options;
  options.cpu.threads = 1;
  options.trace_path = folder.file("trace.h5");
  train(experiment, options);
  const std::vector<SettingInfo> expected = describe_settings(experiment), found = Snapshot(options.trace_path).settings();
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].name, expected[i].name);
    EXPECT_EQ(found[i].value, expected[i].value);
    EXPECT_EQ(found[i].kind, expected[i].kind);
    EXPECT_EQ(found[i].given, expected[i].given);
  }
}

}  // namespace
}  // namespace ulpscope
