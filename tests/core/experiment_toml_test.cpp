// Experiments from TOML: what is read, what is refused and how, and that what is written back is the same.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/project_files.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "ulpscope/core/run/experiment.h"
#include "ulpscope/core/run/experiment_options.h"

namespace ulpscope {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kPrecisions =
    "fp32, fp64, fp16, bf16, mixed_float16, mixed_bfloat16, apex_o0, apex_o1, apex_o2, apex_o3, tf_auto_mixed, mxnet, pure_fp16, "
    "pure_bf16 or fp8";

Experiment parse(const std::string& text, const std::vector<Override>& overrides = {}) {
  return parse_experiment(text, "run.toml", overrides);
}

template <typename Body>
std::string message_of(Body body, ErrorKind kind = ErrorKind::usage) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "no error";
}
std::string parse_error(const std::string& text) {
  return message_of([&] { parse(text); });
}
std::string override_error(const std::string& assignment) {
  return message_of([&] {
    Experiment experiment = *find_preset("mlp");
    apply_override(experiment, assignment);
  });
}

TEST(ExperimentToml, ReadsEveryKindOfValue) {
  const Experiment experiment = parse(R"(
name = "all kinds"
seed = 7
precision = "fp16"
[model]
layers = [
  { type = "conv2d", out_channels = 8, kernel = [3, 5], padding = [1, 2], bias = false, name = "first" },
  { type = "batch_norm", momentum = 0.2 },
  { type = "max_pool2d", kernel = 2 },
  { type = "flatten" },
  { type = "linear", in_features = 72, out_features = 3 },
]
[data]
shape = [1, 6, 6]
classes = 3
shuffle = false
[loss]
factor = "2^-20"
[optimizer]
type = "adamw"
learning_rate = 1
weight_decay = 0.25
[scaler]
preset = "megatron"
growth_interval = 10
[autocast.ops]
linear = "fp32"
[autocast.modules]
"z.*" = "bf16"
"first" = "fp32"
[recording]
level = "full"
ops = ["conv2d*"]
phases = ["forward", "backward"]
max_size = "512M"
stop_on = "nan"
)");
  EXPECT_EQ(experiment.name, "all kinds");
  EXPECT_EQ(experiment.seed, 7u);
  EXPECT_EQ(experiment.precision, Precision::fp16);
  ASSERT_EQ(experiment.model.layers.size(), 5u);
  const LayerSpec& conv = experiment.model.layers[0];
  EXPECT_EQ(conv.type, find_layer_type("conv2d"));
  EXPECT_EQ(conv.name, "first");
  EXPECT_EQ(conv.integer("out_channels"), 8);
  EXPECT_EQ(conv.integer("in_channels"), 0);
  EXPECT_EQ(conv.extents("kernel").y, 3);
  EXPECT_EQ(conv.extents("kernel").x, 5);
  EXPECT_EQ(conv.extents("padding").y, 1);
  EXPECT_EQ(conv.extents("padding").x, 2);
  EXPECT_EQ(conv.extents("stride").y, 1);
  EXPECT_FALSE(conv.flag("bias"));
  EXPECT_EQ(experiment.model.layers[1].name, "1");
  EXPECT_EQ(experiment.model.layers[1].number("momentum"), 0.2);
  EXPECT_FALSE(experiment.model.layers[2].has("stride"));  // it is the kernel
  EXPECT_EQ(experiment.model.layers[4].integer("in_features"), 72);
  EXPECT_EQ(experiment.data.shape, (std::vector<int64_t>{1, 6, 6}));
  EXPECT_FALSE(experiment.data.shuffle);
  EXPECT_EQ(experiment.loss.factor, 0x1p-20);
  EXPECT_EQ(experiment.optimizer.learning_rate, 1.0);
  EXPECT_EQ(experiment.optimizer.effective_weight_decay(), 0.25);
  const LossScaleRule rule = experiment.scaler_rule();
  EXPECT_EQ(rule.initial, 0x1p32);  // Megatron's
  EXPECT_EQ(rule.growth_interval, 10);
  EXPECT_TRUE(experiment.scaler_enabled());
  EXPECT_EQ(experiment.autocast.ops.at("linear"), Precision::fp32);
  ASSERT_EQ(experiment.autocast.modules.size(), 2u);
  EXPECT_EQ(experiment.autocast.modules[0].first, "z.*");  // in the order of the file
  EXPECT_EQ(experiment.recording.max_size, 512u << 20);
  EXPECT_EQ(experiment.recording.filters(), "op=conv2d* phase=forward,backward");
  EXPECT_EQ(experiment.recording.recorder_options().stop_on, StopOn::nan);
  EXPECT_EQ(parse(to_toml(experiment)), experiment);
}

TEST(ExperimentToml, ChoicesAreReadInAnyCase) {
  const Experiment loud = parse(
      "precision = \"FP16\"\nrecording.phases = [\"Forward\"]\n[model]\npreset = \"mlp\"\n[arithmetic]\naccumulate = "
      "\"A100\"\nrounding = "
      "\"RZ\"\n");
  const Experiment quiet = parse(
      "precision = \"fp16\"\nrecording.phases = [\"forward\"]\n[model]\npreset = \"mlp\"\n[arithmetic]\naccumulate = "
      "\"a100\"\nrounding = "
      "\"rz\"\n");
  EXPECT_EQ(to_toml(loud), to_toml(quiet));
}

TEST(ExperimentToml, DefaultsArePyTorchs) {
  const Experiment sgd = parse("model.preset = \"mlp\"\noptimizer.type = \"sgd\"");
  EXPECT_EQ(sgd.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(sgd.optimizer.effective_weight_decay(), 0);
  EXPECT_EQ(sgd.name, "run");  // the file's
  EXPECT_FALSE(sgd.scaler_enabled());
  const Experiment adamw = parse("model.preset = \"mlp\"\noptimizer.type = \"adamw\"");
  EXPECT_EQ(adamw.optimizer.effective_weight_decay(), 0.01);
  EXPECT_EQ(adamw.optimizer.effective_beta2(), 0.999);
  EXPECT_EQ(parse("model.preset = \"mlp\"\noptimizer.type = \"lion\"").optimizer.effective_beta2(), 0.99);
  EXPECT_EQ(adamw.optimizer.eps, 1e-8);
  EXPECT_EQ(adamw.scaler_rule().initial, 65536);
}

TEST(ExperimentToml, UnknownKeysNameTheLineAndTheLikelyKey) {
  EXPECT_EQ(parse_error("[model]\npreset = \"mlp\"\n[optimizer]\nlearning_rat = 1"),
            "run.toml:4: unknown key 'optimizer.learning_rat'; did you mean 'optimizer.learning_rate'?");
  EXPECT_EQ(parse_error("optimizer.lr = 1"), "run.toml:1: unknown key 'optimizer.lr'; did you mean 'optimizer.learning_rate'?");
  EXPECT_EQ(parse_error("training.seed = 1"), "run.toml:1: unknown key 'training.seed'; did you mean 'seed'?");
  EXPECT_EQ(parse_error("autocast.lists = 1"), "run.toml:1: unknown key 'autocast.lists'; expected ops or modules");
  EXPECT_EQ(parse_error("learning_rate = 1"), "run.toml:1: unknown key 'learning_rate'; did you mean 'optimizer.learning_rate'?");
  EXPECT_EQ(parse_error("[optimiser]\ntype = \"sgd\""), "run.toml:1: unknown key 'optimiser'; did you mean 'optimizer'?");
  EXPECT_THAT(parse_error("[model]\nlayer = []"), HasSubstr("unknown key 'model.layer'; did you mean 'model.layers'?"));
  EXPECT_EQ(parse_error("zzzzzzzzzzzz = 1"), "run.toml:1: unknown key 'zzzzzzzzzzzz'");
  EXPECT_EQ(parse_error("\"zzzzzzzzzzzz\\n\" = 1"), "run.toml:1: unknown key 'zzzzzzzzzzzz\\u000A'");
}

TEST(ExperimentToml, WrongValuesSayWhatWasExpectedAndWhatCame) {
  EXPECT_EQ(parse_error("[training]\nbatch_size = \"many\""),
            "run.toml:2: training.batch_size: expected an integer >= 1 and <= 16777216, found \"many\"");
  EXPECT_EQ(parse_error("[training]\nbatch_size = 0"),
            "run.toml:2: training.batch_size: expected an integer >= 1 and <= 16777216, found 0");
  EXPECT_EQ(parse_error("[training]\nbatch_size = 1.5"),
            "run.toml:2: training.batch_size: expected an integer >= 1 and <= 16777216, found 1.5");
  EXPECT_EQ(parse_error("[training]\nbatch_size = 3.0"),
            "run.toml:2: training.batch_size: expected an integer >= 1 and <= 16777216, found 3.0");
  EXPECT_EQ(parse_error("optimizer.learning_rate = nan"),
            "run.toml:1: optimizer.learning_rate: expected a number >= 0 and <= 3.4028234663852886e+38, found nan");
  EXPECT_EQ(parse_error("optimizer.learning_rate = inf"),
            "run.toml:1: optimizer.learning_rate: expected a number >= 0 and <= 3.4028234663852886e+38, found inf");
  EXPECT_THAT(parse_error("scaler.initial = 1e39"), HasSubstr("found 1e+39")) << "Inf in FP32";
  EXPECT_THAT(parse_error("loss.factor = 1e-60"), HasSubstr("found 1e-60")) << "0 in FP32";
  EXPECT_THAT(parse_error("seed = 9007199254740993"), HasSubstr("found 9007199254740993"));
  EXPECT_EQ(parse_error("optimizer.beta1 = 1"), "run.toml:1: optimizer.beta1: expected a number >= 0 and < 1, found 1");
  EXPECT_EQ(parse_error("optimizer.nesterov = 1"), "run.toml:1: optimizer.nesterov: expected true or false, found 1");
  EXPECT_EQ(parse_error("precision = \"fp61\""),
            "run.toml:1: precision: expected " + kPrecisions + ", found \"fp61\"; did you mean 'fp16'?");
  EXPECT_EQ(parse_error("precision = [\"fp16\"]"), "run.toml:1: precision: expected " + kPrecisions + ", found [\"fp16\"]");
  EXPECT_THAT(parse_error("[precision]\nof = 1"), HasSubstr("expected " + kPrecisions + ", found a table"));
  EXPECT_EQ(parse_error("optimizer = \"adam\""), "run.toml:1: optimizer: expected a table, found \"adam\"");
  EXPECT_THAT(parse_error("model.preset = \"fashion_cn\""), HasSubstr("did you mean 'fashion_cnn'?"));
  EXPECT_THAT(parse_error("data.shape = [1, \"a\"]"),
              HasSubstr("expected a list of integers >= 1 and <= 1099511627776, found [1, \"a\"]"));
  EXPECT_THAT(parse_error("recording.phases = [\"forwards\"]"), HasSubstr("did you mean 'forward'?"));
  EXPECT_THAT(parse_error("recording.max_size = \"12Q\""), HasSubstr("expected a number of bytes, or a string like \"512M\""));
  EXPECT_THAT(parse_error("recording.max_size = \"1.5\""), HasSubstr("expected a number of bytes, or a string like \"512M\""));
  EXPECT_THAT(parse_error("recording.max_size = \"nanM\""), HasSubstr("expected a number of bytes, or a string like \"512M\""));
  EXPECT_EQ(parse_experiment("recording.max_size = \"1.75M\"\n[model]\npreset = \"mlp\"\n", "a.toml").recording.max_size, 7u << 18);
  EXPECT_THAT(parse_error("recording.max_size = -1"), HasSubstr("found -1"));
  EXPECT_THAT(parse_error("recording.max_size = \"99999999999T\""), HasSubstr("found \"99999999999T\""));
  EXPECT_THAT(parse_error("loss.factor = \"2^-99999\""),
              HasSubstr("expected a number >= 1.1754943508222875e-38 and <= 3.4028234663852886e+38, found \"2^-99999\""));
  EXPECT_THAT(parse_error("[autocast.ops]\nlinear = \"fp8\""), HasSubstr("autocast.ops.linear: expected fp32, fp16 or bf16"));
}

TEST(ExperimentToml, WrongLayersSayWhichOne) {
  const auto layers = [](const std::string& text) { return "[model]\nlayers = [\n  { type = \"relu\" },\n  " + text + "\n]"; };
  // Every elementwise op of one input is a layer too.
  EXPECT_EQ(parse_error(layers("{ type = \"conv\" }")), "run.toml:4: model.layers[1].type: found \"conv\"; did you mean 'conv2d'?");
  EXPECT_THAT(parse_error(layers("{ type = \"quux\" }")),
              AllOf(StartsWith("run.toml:4: model.layers[1].type: expected linear, conv2d, conv1d, conv_transpose2d, max_pool2d, "),
                    EndsWith(", found \"quux\"")));
  EXPECT_EQ(parse_error("model.preset = \"gpt_mimi\""), "run.toml:1: model.preset: found \"gpt_mimi\"; did you mean 'gpt_mini'?");
  EXPECT_THAT(parse_error(layers("{ type = \"rleu\" }")), HasSubstr("did you mean 'relu'?"));  // an op that is a layer as it is
  EXPECT_THAT(parse_error(layers("{ name = \"a\" }")), HasSubstr("run.toml:4: model.layers[1]: no type: expected linear"));
  EXPECT_EQ(parse_error(layers("{ type = \"linear\" }")),
            "run.toml:4: model.layers[1]: linear needs out_features: expected an integer >= 1 and <= 2147483648");
  EXPECT_EQ(parse_error(layers("{ type = \"linear\", out_feature = 3 }")),
            "run.toml:4: model.layers[1]: linear has no key 'out_feature'; did you mean 'out_features'?");
  EXPECT_EQ(parse_error(layers("{ type = \"linear\", out_features = 3, qqqqqq = 3 }")),
            "run.toml:4: model.layers[1]: linear has no key 'qqqqqq'; expected name, dtype, in_features, out_features or bias");
  EXPECT_THAT(parse_error(layers("{ type = \"max_pool2d\", kernel = [2, 2, 2] }")), HasSubstr("expected an integer or [y, x]"));
  EXPECT_THAT(parse_error(layers("{ type = \"max_pool2d\", kernel = 0 }")), HasSubstr("model.layers[1].kernel"));
  EXPECT_THAT(parse_error(layers("3")), HasSubstr("model.layers[1]: expected a table, found 3"));
  EXPECT_THAT(parse_error("model.layers = 3"), HasSubstr("model.layers: expected a list of tables, found 3"));
  EXPECT_THAT(parse_error(layers("{ type = \"relu\", name = \"0\" }")), HasSubstr("the name \"0\" stands twice"));
  EXPECT_EQ(parse_error("[model]\nlayers = []"), "run.toml:2: model.layers: expected at least one layer, found []");
  EXPECT_THAT(parse_error("[model]\npreset = \"mlp\"\nlayers = []"),
              HasSubstr("expected model.preset or model.layers, found both"));
  EXPECT_EQ(parse_error(""), "run.toml: no model: expected model.preset or model.layers");
}

TEST(ExperimentToml, SettingsThatContradictEachOther) {
  const std::string mlp = "model.preset = \"mlp\"\n";
  EXPECT_THAT(parse_error("model.layers = [{ type = \"sequential\", repeat = 1000, layers = [{ type = \"sequential\", repeat = "
                          "1000, layers = [{ type = \"relu\" }] }] }]"),
              HasSubstr("expected at most 10000 layers, repeated ones included, found 2001000"));
  EXPECT_THAT(parse_error("model.layers = [{ type = \"sequential\", layers = [{ type = \"relu\", name = \"a\" }, { type = \"neg\", "
                          "name = \"a\" }] }]"),
              HasSubstr("the name \"a\" stands twice"));
  EXPECT_THAT(parse_error(mlp + "data.kind = \"text\""), HasSubstr("data.kind = \"text\" needs data.path"));
  EXPECT_THAT(parse_error(mlp + "optimizer = { type = \"sgd\", nesterov = true }"),
              HasSubstr("nesterov needs optimizer.momentum > 0"));
  EXPECT_THAT(parse_error(mlp + "scaler = { initial = 8, cap = 4 }"), HasSubstr("scaler.initial: expected at most scaler.cap, 4"));
  EXPECT_THAT(parse_error(mlp + "scaler = { initial = 8, floor = 16 }"), HasSubstr("at least scaler.floor, 16, found 8"));
  EXPECT_THAT(parse_error(mlp + "data.kind = \"idx\""), HasSubstr("needs data.train_images"));
  EXPECT_THAT(parse_error(mlp + "data.kind = \"hdf5\""), HasSubstr("data.kind = \"hdf5\" needs data.path"));
  EXPECT_THAT(parse_error(mlp + "data.kind = \"npy\"\ndata.inputs = \"x\""), HasSubstr("needs data.inputs and data.targets"));
  EXPECT_THAT(parse_error(mlp + "data.kind = \"npy\"\ndata.inputs = \"x\"\ndata.targets = \"y\"\ndata.test_inputs = \"z\""),
              HasSubstr("expected data.test_inputs and data.test_targets together, or neither"));
  EXPECT_THAT(parse_error(mlp + "data.kind = \"csv\"\ndata.path = \"x\"\ndata.delimiter = \"ab\""),
              HasSubstr("data.delimiter: expected one character that ends no line and is no quote, found \"ab\""));
  EXPECT_THAT(parse_error(mlp + "data.shape = [2, 3]"), HasSubstr("found 2 extents"));
  EXPECT_THAT(parse_error(mlp + "data.shape = [1000000, 1000, 1000]"), HasSubstr("at most 2^31 generated elements"));
}

// Of every kind a key that another one takes, and one that it takes.
TEST(ExperimentToml, KeysThatTheKindDoesNotTakeAreRefused) {
  const std::string mlp = "model.preset = \"mlp\"\n";
  const auto error = [&](const std::string& text) { return parse_error(mlp + text); };
  EXPECT_EQ(error("optimizer.momentum = 0.9"), "run.toml: optimizer.momentum belongs to sgd; optimizer.type is adam");
  EXPECT_EQ(error("optimizer = { type = \"sgd\", beta1 = 0.5 }"),
            "run.toml: optimizer.beta1 belongs to adam, adamw and lion; optimizer.type is sgd");
  EXPECT_EQ(error("optimizer = { type = \"sgd\", beta2 = 0.999 }"),
            "run.toml: optimizer.beta2 belongs to adam, adamw and lion; optimizer.type is sgd");
  EXPECT_EQ(error("optimizer = { type = \"lion\", eps = 1e-3 }"),
            "run.toml: optimizer.eps belongs to adam and adamw; optimizer.type is lion");
  EXPECT_EQ(error("schedule.gamma = 0.5"), "run.toml: schedule.gamma belongs to step; schedule.type is constant");
  EXPECT_EQ(error("schedule.end_factor = 0.5"),
            "run.toml: schedule.end_factor belongs to linear and cosine; schedule.type is constant");
  EXPECT_EQ(error("schedule = { type = \"step\", steps = 5 }"),
            "run.toml: schedule.steps belongs to linear and cosine; schedule.type is step");
  EXPECT_EQ(error("schedule = { type = \"step\", gamma = 0.5, step_size = 7, warmup = 2 }"), "no error");
  EXPECT_EQ(error("loss.delta = 2"), "run.toml: loss.delta belongs to huber; loss.function is cross_entropy");
  EXPECT_EQ(error("loss = { function = \"nll\", label_smoothing = 0.1 }"),
            "run.toml: loss.label_smoothing belongs to cross_entropy; loss.function is nll");
  EXPECT_EQ(error("loss = { function = \"mse\", ignore_index = 3 }"),
            "run.toml: loss.ignore_index belongs to cross_entropy and nll; loss.function is mse");
  EXPECT_EQ(error("loss = { function = \"nll\", ignore_index = 3, factor = 2 }"), "no error");
  const std::string random = "; data.kind is random_classification";
  EXPECT_EQ(error("data.context = 64"), "run.toml: data.context belongs to text and copy_task" + random);
  EXPECT_EQ(error("data.levels = 8"), "run.toml: data.levels belongs to quantized_sine" + random);
  EXPECT_EQ(error("data.mean = 0.5"), "run.toml: data.mean belongs to fashion_mnist, idx, hdf5, npy and csv" + random);
  EXPECT_EQ(error("data.path = \"x\""), "run.toml: data.path belongs to fashion_mnist, hdf5, csv and text" + random);
  EXPECT_EQ(error("data = { kind = \"npy\", inputs = \"x\", targets = \"y\", delimiter = \";\" }"),
            "run.toml: data.delimiter belongs to csv; data.kind is npy");
  EXPECT_EQ(error("data = { kind = \"copy_task\", context = 8, classes = 5, drop_last = true }"), "no error");
  // A default has no effect anywhere, and what the precision has no use for may stand.
  EXPECT_EQ(error("optimizer.momentum = 0\nschedule.gamma = 0.1\ndata.context = 128"), "no error");
  EXPECT_EQ(error("scaler.initial = 8\noptimizer = { math = \"fp32\", master_weights = true }"), "no error");
}

TEST(ExperimentToml, AScalerTakesMasterWeightsWhereParametersAreFP16) {
  const auto error = [](const std::string& text) { return parse_error("model.preset = \"mlp\"\n" + text); };
  for (const char* precision : {"pure_fp16", "apex_o3"}) {
    const std::string on = fmt::format("precision = \"{}\"\nscaler.enabled = \"on\"\n", precision);
    EXPECT_EQ(error(on), fmt::format("run.toml: a gradient scaler cannot unscale the FP16 gradients of {}, as in PyTorch; expected "
                                     "optimizer.master_weights = true, or no scaler",
                                     precision));
    EXPECT_EQ(error(on + "optimizer.master_weights = true"), "no error");
  }
  EXPECT_THAT(error("precision = \"apex_o2\"\n[[optimizers]]\nmodules = [\"0\"]\nmaster_weights = false"),
              StartsWith("run.toml:3: optimizers[0]: a gradient scaler cannot"));
  EXPECT_EQ(error("precision = \"pure_bf16\"\nscaler.enabled = \"on\""), "no error");
  EXPECT_EQ(error("precision = \"fp16\"\noptimizer.master_weights = false"), "no error");
}

TEST(ExperimentOverrides, AreNamedWhereTheyContradictTheRest) {
  const std::string mlp = "model.preset = \"mlp\"\n";
  const auto error = [&](const std::string& text, const std::vector<Override>& overrides) {
    return message_of([&] { parse(mlp + text, overrides); });
  };
  const std::string belong = "optimizer.momentum belongs to sgd; optimizer.type is adam";
  EXPECT_EQ(error("", {"optimizer.momentum=0.5", "optimizer.learning_rate=1"}),
            "run.toml, --set optimizer.momentum=0.5: " + belong);
  EXPECT_EQ(error("optimizer.momentum = 0.5", {"optimizer.learning_rate=1"}), "run.toml: " + belong);
  EXPECT_EQ(error("", {"optimizer.momentum=0.5", {"optimizer.type=adamw", "--fast"}}),
            "run.toml, --set optimizer.momentum=0.5, --fast: optimizer.momentum belongs to sgd; optimizer.type is adamw");
  EXPECT_THAT(error("", {{"recording.max_size=100KB", "--max-size 100KB"}}),
              StartsWith("run.toml, --max-size 100KB: recording.max_size: expected 0 or at least"));
  EXPECT_THAT(error("", {"data.kind=idx"}), StartsWith("run.toml, --set data.kind=idx: data.kind = \"idx\" needs"));
  // Of a key that is set twice, the last.
  EXPECT_THAT(error("", {"data.shape=1,2", "data.shape=3,4"}), StartsWith("run.toml, --set data.shape=3,4: data.shape: expected"));
}

TEST(ExperimentToml, LayersOfAPresetStandWhereItIsNamed) {
  EXPECT_EQ(parse("\nmodel.preset = \"mlp\"").model.layers[0].place.text, "run.toml:2: preset mlp:7: model.layers[0]");
  EXPECT_EQ(parse("", {"model.preset=mlp"}).model.layers[0].place.text, "--set model.preset=mlp: preset mlp:7: model.layers[0]");
}

// A name or path that is no text would make traces and checkpoints of the run unreadable.
TEST(ExperimentToml, NamesOfFilesThatAreNoUtf8) {
  TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::filesystem::path path = std::filesystem::path(folder.path()) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  };
  EXPECT_EQ(load_experiment(write("\xFFx.toml", "model.preset = 'mlp'")).name, "\uFFFDx");
  const std::string data = write("\xFE/run.toml", "[data]\nkind = 'idx'\ntrain_images = 'a'\n");
  try {
    load_experiment(data);
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), HasSubstr("no UTF-8"));
  }
}

TEST(ExperimentToml, PathsAreRelativeToTheFile) {
  const TemporaryFolder folder;
  const std::string path = folder.file("run.toml");
  write_file(path, R"(
model.preset = "mlp"
[data]
kind = "idx"
train_images = "../images"
train_labels = "/data/labels"
test_images = "sub/images"
test_labels = "./labels"
)");
  DataSettings data = load_experiment(path).data;
  EXPECT_EQ(data.train_images, folder.file("../images"));  // not shortened: what lies above a link is not where it stands
  EXPECT_EQ(data.train_labels, "/data/labels");
  EXPECT_EQ(data.test_images, folder.file("sub/images"));
  EXPECT_EQ(data.test_labels, folder.file("./labels"));
  // Overrides are given where the command runs, and the text of a checkpoint has paths as they were used.
  const std::vector<Override> overrides{"data.train_images=here/images"};
  data = load_experiment(path, overrides).data;
  EXPECT_EQ(data.train_images, "here/images");
  const std::string csv = "model.preset = \"mlp\"\ndata = { kind = \"csv\", path = \"a\" }";
  EXPECT_EQ(parse(csv).data.path, "a");
  write_file(path, csv);
  EXPECT_EQ(load_experiment(path).data.path, folder.file("a"));
}

TEST(ExperimentToml, UnreadableFiles) {
  EXPECT_THAT(message_of([] { parse("a = = 1"); }, ErrorKind::unreadable), StartsWith("run.toml:1:5: not TOML:"));
  message_of([] { parse("a = tr\n"); }, ErrorKind::unreadable);  // one line, though toml++ quotes the line break
  EXPECT_THAT(message_of([] { load_experiment("/nowhere/run.toml"); }, ErrorKind::unreadable),
              StartsWith("/nowhere/run.toml: cannot"));
  EXPECT_THAT(message_of([] { load_experiment(project_file("")); }, ErrorKind::unreadable), HasSubstr("a folder"));
  EXPECT_EQ(message_of([] { load_experiment("/dev/zero"); }, ErrorKind::unreadable),
            "/dev/zero: expected an experiment file of at most 4194304 bytes, found more");
}

// Far fewer than a stack holds, however they are written: what toml++ makes of them it takes apart by recursion.
TEST(ExperimentToml, DepthIsLimitedBeforeParsing) {
  const auto times = [](int count, const std::string& text) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  for (const std::string& text :
       {"a" + times(40000, ".a") + " = 1", "[a" + times(40000, ".a") + "]\n", "[[a" + times(40000, " . \"b.\"") + "]]\n",
        "a = " + times(40000, "["), "a = " + times(40000, "{ a = "), "a = [" + times(300, "{ a.b.c.d = [") + "1",
        "[a" + times(60, ".a") + "]\nb" + times(60, ".b") + " = 1",
        "[a" + times(60, ".a") + "]\nb = [1,\n{ b" + times(60, ".b") + " = 1 }]",
        "a = '''\n'''\nb" + times(40000, ".a") + " = 1"}) {
    const std::string message = message_of([&] { parse("# a comment. with [ and ' and \"\n" + text); }, ErrorKind::unreadable);
    EXPECT_THAT(message, AllOf(StartsWith("run.toml:"), HasSubstr("tables or lists more than 100 deep"))) << text.substr(0, 40);
  }
  EXPECT_THAT(message_of([&] { parse("\n\n" + times(200, "[") + "]"); }, ErrorKind::unreadable), StartsWith("run.toml:3"));
  // Depth is not length, and neither strings nor comments nest.
  EXPECT_THAT(parse_error("a.b.c" + times(90, ".d") + " = 1"), HasSubstr("unknown key 'a'"));
  const std::string mlp = "model.preset = \"mlp\"\n";
  EXPECT_EQ(parse("name = \"" + times(400, "[{.") + "\" # " + times(400, "[{.") + "\n" + mlp).name, times(400, "[{."));
  EXPECT_EQ(parse("name = '''" + times(400, "[{.\n''") + "''' # '''\n" + mlp).name, times(400, "[{.\n''"));
  EXPECT_EQ(parse("name = \"\\\"" + times(400, "[") + "\"\n" + mlp).name, "\"" + times(400, "["));
  EXPECT_EQ(parse(mlp + "recording.ops = [" + times(400, "\"a.b\", ") + "]").recording.ops.size(), 400u);
  EXPECT_EQ(parse(mlp + times(400, "# a.b\n") + "seed = 3").seed, 3u);
  // Of --set, what is no TOML is a text.
  EXPECT_THAT(override_error("optimizer.learning_rate=" + times(40000, "[")), HasSubstr("expected"));
  EXPECT_THAT(override_error("name=\xFF"), HasSubstr("expected UTF-8, found other bytes"));
}

TEST(ExperimentToml, APipeIsReadToItsEnd) {
  const TemporaryFolder folder;
  const std::string path = folder.file("pipe.toml");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { write_file(path, "seed = 3\nmodel.preset = \"mlp\"\n"); });
  const Experiment experiment = load_experiment(path);
  writer.join();
  EXPECT_EQ(experiment.seed, 3u);
  EXPECT_EQ(experiment.model.layers.size(), 5u);
}

TEST(ExperimentOverrides, SetKeysLikeTheFileDoes) {
  const Experiment experiment =
      parse("model.preset = \"mlp\"\noptimizer.learning_rate = 1",
            {"optimizer.learning_rate=0.1", "optimizer.type=sgd", "optimizer.nesterov = true", "optimizer.momentum=0.5",
             "loss.factor=2^-3", "name=123", "recording.ops=conv2d*,linear", "recording.modules=[\"a,b\"]", "data.shape=1,28,28",
             "recording.max_size=2G", "autocast.ops.linear=fp32", "autocast.modules.features.0=bf16", "model.preset=fashion_cnn"});
  EXPECT_EQ(experiment.optimizer.learning_rate, 0.1);
  EXPECT_EQ(experiment.optimizer.type, OptimizerType::sgd);
  EXPECT_TRUE(experiment.optimizer.nesterov);
  EXPECT_EQ(experiment.loss.factor, 0.125);
  EXPECT_EQ(experiment.name, "123");
  EXPECT_EQ(experiment.recording.ops, (std::vector<std::string>{"conv2d*", "linear"}));
  EXPECT_EQ(experiment.recording.modules, (std::vector<std::string>{"a,b"}));
  EXPECT_EQ(experiment.data.shape, (std::vector<int64_t>{1, 28, 28}));
  EXPECT_EQ(experiment.recording.max_size, uint64_t{2} << 30);
  EXPECT_EQ(experiment.autocast.ops.at("linear"), Precision::fp32);
  EXPECT_EQ(experiment.autocast.modules.at(0), std::pair(std::string("features.0"), Precision::bf16));
  EXPECT_EQ(experiment.model.layers.size(), 10u);
}

TEST(ExperimentOverrides, RefuseWhatTheFileWouldRefuse) {
  EXPECT_EQ(override_error("optimizer.lerning_rate=1"),
            "--set optimizer.lerning_rate=1: unknown key 'optimizer.lerning_rate'; did you mean 'optimizer.learning_rate'?");
  EXPECT_EQ(override_error("optimiser.lr=1"),
            "--set optimiser.lr=1: unknown key 'optimiser.lr'; did you mean 'optimizer.learning_rate'?");
  EXPECT_EQ(override_error("optimizer.learning_rate=fast"),
            "--set optimizer.learning_rate=fast: optimizer.learning_rate: expected a number >= 0 and <= 3.4028234663852886e+38, "
            "found \"fast\"");
  EXPECT_EQ(override_error("optimizer.learning_rate"), "--set optimizer.learning_rate: expected key=value");
  EXPECT_THAT(override_error("optimizer=adam"), HasSubstr("optimizer is a table: expected one of its keys"));
  for (const char* key : {"model.layers=[]", "model.layers[0].type=relu"})
    EXPECT_THAT(override_error(key), HasSubstr(": layers are set in a file only"));
  for (const char* key : {"optimizers=[]", "optimizers.learning_rate=1", "optimizers[x].learning_rate=1", "optimizers[0]=1"})
    EXPECT_THAT(override_error(key),
                HasSubstr(": optimizers are tables of a list: expected a key of one, like optimizers[0].learning_rate"));
  EXPECT_THAT(override_error("optimizers[0].learning_rate=1"), HasSubstr(": the experiment has 0 tables in optimizers"));
  EXPECT_THAT(override_error("autocast.ops=fp32"), HasSubstr("autocast.ops is a table"));
  EXPECT_THAT(override_error("seed=1\nname=2"), HasSubstr("seed: expected an integer"));
}

// Another valid value than the default, for any key.
std::string other_value(const Option<Experiment>& option) {
  const std::optional<OptionValue> held = option.get(Experiment{});
  switch (option.type.kind) {
    case OptionKind::boolean:
      return held && std::get<bool>(*held) ? "false" : "true";
    case OptionKind::integer:
    case OptionKind::size:
      return option.type.range.contains(17) ? "17" : "3";
    case OptionKind::number:
      return option.type.range.contains(17.1) ? "17.1" : "0.2";
    case OptionKind::text:
      return "a \"quoted\" \\ text\twith signs";
    case OptionKind::choice:
      return held && std::get<std::string>(*held) == option.type.choices.back() ? option.type.choices.front()
                                                                                : option.type.choices.back();
    case OptionKind::integer_list:
      return "[5, 6, 7]";
    case OptionKind::text_list:
      return "[\"a*\", \"b,c\"]";
    case OptionKind::choice_list:
      return "[\"" + option.type.choices.back() + "\"]";
    case OptionKind::extent_pair:
      break;
  }
  return "[3, 4]";
}

TEST(ExperimentToml, EveryKeyIsKeptWhenWrittenBack) {
  Experiment base = *find_preset("mlp");
  base.optimizer.type = OptimizerType::sgd;
  for (const auto& option : experiment_options()) {
    Experiment changed = base;
    const std::string value = other_value(option);
    SCOPED_TRACE(option.key + "=" + value);
    apply_override(changed, option.key + "=" + value);
    EXPECT_NE(changed, base);
    // Parsing validates, which a single changed key need not pass; the text is read all the same, through overrides of nothing.
    try {
      EXPECT_EQ(parse(to_toml(changed)), changed);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), StartsWith("run.toml: ")) << "not refused by validate";
    }
  }
}

constexpr const char* kTwoOptimizers = R"(
model.preset = "mlp"
[optimizer]
type = "adamw"
learning_rate = 0.5
[[optimizers]]
modules = ["0", "2"]
weight_decay = 0.125
[[optimizers]]
modules = ["*"]
type = "sgd"
momentum = 0.9
)";

TEST(ExperimentToml, OptimizersTakeWhatTheyDoNotSayFromTheOptimizer) {
  const Experiment experiment = parse(kTwoOptimizers);
  ASSERT_EQ(experiment.optimizers.size(), 2u);
  const OptimizerSettings first = experiment.settings_of(experiment.optimizers[0]),
                          second = experiment.settings_of(experiment.optimizers[1]);
  EXPECT_EQ(first.type, OptimizerType::adamw);
  EXPECT_EQ(first.learning_rate, 0.5);
  EXPECT_EQ(first.effective_weight_decay(), 0.125);
  EXPECT_EQ(second.type, OptimizerType::sgd);
  EXPECT_EQ(second.learning_rate, 0.5);
  EXPECT_EQ(second.momentum, 0.9);
  EXPECT_EQ(second.effective_weight_decay(), 0);
  EXPECT_EQ(parse(to_toml(experiment)), experiment);
  // What is set on the command line holds for all.
  const Override rate("optimizer.learning_rate=0.25");
  const Experiment changed = parse_experiment(kTwoOptimizers, "run.toml", {&rate, 1});
  EXPECT_EQ(changed.settings_of(changed.optimizers[1]).learning_rate, 0.25);
  // Or for one: a value that it has, or another one.
  const Override group[] = {Override("optimizers[0].weight_decay=0.5"), Override("optimizers[1].learning_rate=2")};
  const Experiment one = parse_experiment(kTwoOptimizers, "run.toml", group);
  EXPECT_EQ(one.settings_of(one.optimizers[0]).effective_weight_decay(), 0.5);
  EXPECT_EQ(one.settings_of(one.optimizers[0]).learning_rate, 0.5);
  EXPECT_EQ(one.settings_of(one.optimizers[1]).learning_rate, 2);
  const auto error = [](const char* assignment) -> std::string {
    const Override wrong(assignment);
    try {
      parse_experiment(kTwoOptimizers, "run.toml", {&wrong, 1});
    } catch (const Error& refused) {
      return refused.what();
    }
    return "no error";
  };
  EXPECT_THAT(error("optimizers[2].learning_rate=1"), HasSubstr(": the experiment has 2 tables in optimizers"));
  EXPECT_THAT(error("optimizers[0].learning_rat=1"), HasSubstr("did you mean 'learning_rate'?"));
  EXPECT_THAT(error("optimizers[0].modules=[]"), HasSubstr(": modules of an optimizer are set in a file only"));
  EXPECT_THAT(error("optimizers[0].eps=-1"), HasSubstr("optimizers[0].eps: expected a number >= 0, found -1"));
}

TEST(ExperimentToml, WrongOptimizersSayWhichOne) {
  const auto error = [](const char* text) { return parse_error(std::string("model.preset = \"mlp\"\n") + text); };
  EXPECT_EQ(error("optimizers = 3"), "run.toml:2: optimizers: expected a list of tables, found 3");
  EXPECT_EQ(error("optimizers = [3]"), "run.toml:2: optimizers[0]: expected a table, found 3");
  EXPECT_EQ(error("[[optimizers]]\ntype = \"sgd\""), "run.toml:2: optimizers[0]: expected modules, a list of patterns");
  EXPECT_EQ(error("[[optimizers]]\nmodules = [\"0\"]\nlearning_rat = 1"),
            "run.toml:2: optimizers[0]: an optimizer has no key 'learning_rat'; did you mean 'learning_rate'?");
  EXPECT_EQ(error("[[optimizers]]\nmodules = [\"0\"]\neps = -1"),
            "run.toml:4: optimizers[0].eps: expected a number >= 0, found -1");
  EXPECT_EQ(error("[[optimizers]]\nmodules = [\"0\"]\nmomentum = 0.9"),
            "run.toml:2: optimizers[0]: optimizer.momentum belongs to sgd; optimizer.type is adam");
  // What it has from [optimizer], and has no use for, is not its mistake.
  EXPECT_EQ(error("optimizer.eps = 1e-6\n[[optimizers]]\nmodules = [\"0\"]\ntype = \"sgd\""), "no error");
}

TEST(ExperimentToml, EveryPresetIsKeptWhenWrittenBack) {
  for (const std::string& name : preset_names()) {
    const Experiment experiment = *find_preset(name);
    EXPECT_EQ(parse(to_toml(experiment)), experiment);
  }
}

TEST(ExperimentFiles, AreThePresets) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(project_file("experiments"))) {
    if (!entry.is_regular_file()) continue;  // failures/
    ++files;
    EXPECT_EQ(find_preset(entry.path().stem().string()), load_experiment(entry.path().string())) << entry.path();
  }
  EXPECT_GT(files, 0u);
  EXPECT_EQ(preset_names().size(), files);
  EXPECT_EQ(find_preset("fashion"), std::nullopt);
}

// Each --set of a comment, for itself, but for what the comment says is refused.
TEST(ExperimentFiles, CommentsNameSettingsThatAreTaken) {
  const std::string set = "--set ";
  size_t taken = 0;
  for (const auto& entry : std::filesystem::directory_iterator(project_file("experiments"))) {
    if (!entry.is_regular_file()) continue;  // failures/
    std::ifstream file(entry.path());
    const std::string name = entry.path().stem().string(), text{std::istreambuf_iterator<char>(file), {}};
    for (size_t at = text.find(set); at != std::string::npos; at = text.find(set, at + 1), ++taken) {
      // A word, without what the sentence around it ends with.
      std::string assignment = text.substr(at + set.size());
      assignment.erase(assignment.find_first_of(" \n),"));
      while (assignment.ends_with('.') || assignment.ends_with(':')) assignment.pop_back();
      if (assignment.ends_with("=FILE")) assignment.replace(assignment.size() - 4, 4, "x");
      const Override override{assignment};
      if (name == "pure_fp16" && assignment == "scaler.enabled=on") {
        EXPECT_THROW(parse_experiment(text, name, {&override, 1}), Error);
      } else {
        EXPECT_NO_THROW(parse_experiment(text, name, {&override, 1})) << name << ": " << assignment;
      }
    }
  }
  EXPECT_GT(taken, 20u);
}

TEST(ExperimentFiles, UnderflowScalesBackToThePlainRun) {
  const Experiment experiment = load_experiment(project_file("experiments/underflow.toml"));
  EXPECT_EQ(experiment.model, find_preset("fashion_cnn")->model);
  EXPECT_EQ(experiment.loss.factor, 0x1p-20);
  EXPECT_EQ(experiment.loss.factor * experiment.optimizer.learning_rate, 0.1);
  EXPECT_EQ(experiment.optimizer.type, OptimizerType::sgd);
  EXPECT_EQ(experiment.optimizer.momentum, 0);
  EXPECT_EQ(experiment.optimizer.effective_weight_decay(), 0);
  // So that gradients of the loss, at most factor / batch_size, are flushed in FP16, which flushes up to 2^-25.
  EXPECT_LE(experiment.loss.factor / static_cast<double>(experiment.training.batch_size), binary16.flush_threshold());
}

TEST(ExperimentReference, DocumentIsGeneratedFromTheTable) {
  const std::string path = project_file("docs/experiments.md");
  if (std::getenv("ULPSCOPE_UPDATE_DOCS") != nullptr) std::ofstream(path, std::ios::binary) << experiment_reference();
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text, experiment_reference()) << "run this test with ULPSCOPE_UPDATE_DOCS=1";
}

TEST(ExperimentReference, NamesEveryKey) {
  const std::string text = experiment_reference();
  for (const auto& option : experiment_options()) {
    EXPECT_THAT(text, HasSubstr("| `" + option.key + "` |"));
    EXPECT_FALSE(option.type.description().empty());
  }
}

}  // namespace
}  // namespace ulpscope
