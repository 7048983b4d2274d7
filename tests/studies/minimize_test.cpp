// The smallest part of a capsule that fails, of runs in which it is known what it takes.
#include "ulpscope/studies/minimize.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>

#include "tests/support/temporary_folder.h"
#include "ulpscope/analyzers/verbs/nan.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/hdf5/hdf5.h"
#include "ulpscope/studies/fewest.h"
#include "ulpscope/studies/trial.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class MinimizeTest : public ::testing::Test {
 protected:
  std::string file(const char* name) const { return folder_.file(name); }

  // Trains until the capsule is written.
  void train_with(const std::string& precision, const std::string& tables, const CapsuleOptions& capsule = {},
                  const std::string& layer = "") {
    const Experiment experiment = parse_experiment("precision = \"" + precision + R"("
[model]
layers = [
  { type = "linear", name = "first", out_features = 32 },
)" + layer + R"(
  { type = "relu", name = "relu" },
  { type = "linear", name = "head", out_features = 10 },
]
[data]
kind = "random_classification"
shape = [16]
train_size = 256
shuffle = false
)" + tables,
                                                   "test");
    TrainerOptions options;
    options.cpu.threads = 1;
    options.capsule = capsule;
    options.capsule.path = file("whole.capsule");
    train(experiment, options);
    ASSERT_TRUE(std::filesystem::exists(options.capsule.path));
  }
  static CapsuleOptions at_step(uint64_t step) { return {"", CapsuleEvent::step, step, 1}; }
  Minimized minimized(double budget = 1e9) {
    return minimize(file("whole.capsule"), {.output = file("small.capsule"), .scratch = file("scratch.ckpt"), .budget = budget});
  }

  Experiment small() const { return parse_experiment(read_checkpoint_info(file("small.capsule")).experiment, "small"); }
  std::vector<std::string> layer_names() const {
    std::vector<std::string> names;
    for (const LayerSpec& layer : small().model.layers) names.push_back(layer.name);
    return names;
  }
  void train_text(const std::string& text, const CapsuleOptions& capsule = {}) {
    TrainerOptions options;
    options.cpu.threads = 1;
    options.capsule = capsule;
    options.capsule.path = file("whole.capsule");
    train(parse_experiment(text, "test"), options);
    ASSERT_TRUE(std::filesystem::exists(options.capsule.path));
  }
  // Of a tensor in a capsule.
  std::vector<float> tensor(const char* capsule, const std::string& member, size_t size) const {
    std::vector<float> values(size);
    hdf5::File::open(file(capsule), capsule).open_dataset(member, ElementType::f32).read_all(values.data());
    return values;
  }

  TemporaryFolder folder_;
};

// Sample 37 is in the third batch of 16.
constexpr const char* kOneSample = R"(
[training]
batch_size = 16
steps = 6
evaluation = "never"
[scaler]
enabled = "off"
[[inject]]
sample = 37
element = 3
steps = 0
set = 1e6
)";

// The same op casts inputs and weights: what fails is one of them.
TEST_F(MinimizeTest, WhatFailsIsTheSameTensor) {
  train_with("fp16", std::string(kOneSample) + R"([[inject]]
parameter = "first.weight"
element = 0
step = 2
set = 1e6
)");
  const Minimized found = minimized();
  EXPECT_EQ(found.failure.name, "cast");
  EXPECT_EQ(found.failure.parameter, "");
  EXPECT_EQ(found.step, 2u);
  EXPECT_THAT(found.samples, ElementsAre(37));
}

TEST_F(MinimizeTest, OneSampleThatIsAtFaultIsFound) {
  train_with("fp16", kOneSample);
  const Minimized found = minimized();
  EXPECT_EQ(found.failure.name, "cast");
  EXPECT_EQ(found.failure.module, "first");
  EXPECT_EQ(found.step, 2u);
  EXPECT_EQ(found.before.steps, 3u);
  EXPECT_EQ(found.before.samples, 16u);
  EXPECT_EQ(found.after.steps, 1u);
  EXPECT_THAT(found.samples, ElementsAre(37));
  EXPECT_TRUE(found.is_smallest);
  EXPECT_EQ(found.cause, "overflow_on_cast");
  // Halves of halves of the samples, once all of them, and once each of three layers.
  EXPECT_LE(found.trials, 1 + 2 * std::log2(16) + 3 + 1);
  // It is a capsule like any other: it fails by itself, as it says.
  Trial trial;
  trial.capsule = file("small.capsule");
  const TrialOutcome again = run(trial);
  EXPECT_TRUE(again.is_as_before());
  ASSERT_EQ(again.steps.size(), 1u);
  EXPECT_EQ(again.steps[0].result.step, 2u);
  EXPECT_FALSE(std::isfinite(again.steps[0].result.loss));
  ASSERT_TRUE(again.steps[0].result.nonfinite);
  EXPECT_EQ(again.steps[0].result.nonfinite->module, "first");
  ASSERT_EQ(again.original.steps.back().batches.size(), 1u);
  EXPECT_THAT(again.original.steps.back().batches[0].samples, ElementsAre(0));  // of those that are in the capsule
  // What the first layer gives can be the logits of ten classes, and the sample is what the fault made of it.
  EXPECT_THAT(layer_names(), ElementsAre("first"));
  const KeptSamples kept = read_capsule_samples(file("small.capsule"), 0);
  EXPECT_THAT(kept.batch.input_shape, ElementsAre(1, 16));
  EXPECT_EQ(kept.batch.inputs[3], 1e6f);
  EXPECT_EQ(std::count(kept.batch.inputs.begin(), kept.batch.inputs.end(), 1e6f), 1);
  EXPECT_THAT(kept.origins, ElementsAre(37));
}

// batch_norm, in which it fails, takes no single sample: what cannot be tried is no part that fails.
TEST_F(MinimizeTest, WhatTheModelRefusesIsLeftOut) {
  std::string fault = kOneSample;
  fault.replace(fault.find("1e6"), 3, "1e30");
  train_with("fp32", fault, at_step(2), "{ type = \"batch_norm\", name = \"norm\" },");
  const Minimized found = minimized();
  EXPECT_EQ(found.failure.module, "norm");
  EXPECT_EQ(found.after.samples, 2u);
  EXPECT_THAT(found.samples, ::testing::Contains(37));
}

// The gradient of one sample among sixteen stays a sixteenth: what overflows alone is what overflowed in the mean.
TEST_F(MinimizeTest, MeansKeepTheirDivisor) {
  train_with("fp16", R"(
[training]
batch_size = 16
steps = 3
evaluation = "never"
[scaler]
initial = 1048576
dynamic = false
)",
             at_step(1));
  const Minimized found = minimized();
  // The gradients of the logits are at most scale / 16, which is 65536 and too large for FP16, for a probability near 1 or 0 only.
  EXPECT_EQ(found.failure.phase, Phase::backward);
  EXPECT_EQ(found.after.samples, 1u);
  const Experiment small = parse_experiment(read_checkpoint_info(file("small.capsule")).experiment, "small");
  EXPECT_EQ(small.training.batch_size, 1);
  EXPECT_EQ(small.loss.factor, 1.0 / 16);
}

// The sum over micro-batches overflows, and no batch does by itself.
TEST_F(MinimizeTest, BatchesThatFailTogetherStay) {
  train_with("apex_o2", R"(
[training]
batch_size = 8
accumulation = 16
steps = 2
evaluation = "never"
[scaler]
initial = 1048576
dynamic = false
)",
             at_step(0));
  const Minimized found = minimized();
  EXPECT_EQ(found.failure.name, "accumulate");
  EXPECT_EQ(found.after.batches, found.before.batches);
  EXPECT_EQ(found.after.samples, found.before.samples);
}

// What the layers gave that are cut off is the data of what is left: held against a product in FP64, of the same weights.
TEST_F(MinimizeTest, LayersBeforeTheFailureGiveWayToWhatTheyGave) {
  train_text(R"(
precision = "fp32"
[model]
layers = [
  { type = "linear", name = "first", out_features = 3 },
  { type = "relu", name = "relu" },
  { type = "linear", name = "blown", out_features = 4 },
  { type = "relu", name = "after" },
  { type = "linear", name = "head", out_features = 10 },
]
[data]
kind = "random_classification"
shape = [4]
train_size = 64
shuffle = false
[training]
batch_size = 8
steps = 3
evaluation = "never"
[[inject]]
parameter = "blown.weight"
element = 2
steps = 0
set = 3e38
[[inject]]
parameter = "first.bias"
element = 2
steps = 0
set = 10
)",
             at_step(0));
  const Minimized found = minimized();
  EXPECT_EQ(found.failure.name, "linear");
  EXPECT_EQ(found.failure.module, "blown");
  EXPECT_EQ(found.replaced_up_to, "relu");
  EXPECT_THAT(layer_names(), ElementsAre("blown", "head"));
  EXPECT_EQ(found.before.layers, 5u);
  EXPECT_EQ(found.after.layers, 2u);
  ASSERT_EQ(found.samples.size(), 1u);

  const Experiment whole = parse_experiment(read_checkpoint_info(file("whole.capsule")).experiment, "whole");
  Batch sample;
  open_data(whole.data, whole.seed).train->fill_batch(found.samples, sample);
  const KeptSamples kept = read_capsule_samples(file("small.capsule"), 0);
  EXPECT_EQ(kept.batch.labels, sample.labels);
  ASSERT_THAT(kept.batch.input_shape, ElementsAre(1, 3));
  const auto weight = tensor("scratch.ckpt", "parameters/first.weight", 12);
  auto bias = tensor("scratch.ckpt", "parameters/first.bias", 3);
  bias[2] = 10;  // as it is in the step
  for (size_t i = 0; i < 3; ++i) {
    double sum = bias[i], magnitude = std::abs(sum);
    for (size_t k = 0; k < 4; ++k) {
      const double term = static_cast<double>(weight[4 * i + k]) * sample.inputs[k];
      sum += term;
      magnitude += std::abs(term);
    }
    EXPECT_LE(std::abs(kept.batch.inputs[i] - std::max(sum, 0.0)), 5 * 0x1p-24 * magnitude) << i;
  }
  EXPECT_EQ(tensor("small.capsule", "parameters/head.bias", 10), tensor("scratch.ckpt", "parameters/head.bias", 10));

  // What "first" and "relu" give is 8 samples of 3 values each; with less room than that none of it is kept, and no layer cut off.
  constexpr size_t kEnough = 2 * 8 * 3 * sizeof(float);
  for (const size_t room : {kEnough, kEnough - 1}) {
    const Minimized bounded =
        minimize(file("whole.capsule"),
                 {.output = file("bounded.capsule"), .scratch = file("scratch.ckpt"), .budget = 1e9, .most_bytes = room});
    EXPECT_EQ(bounded.replaced_up_to, room == kEnough ? "relu" : "");
    EXPECT_EQ(bounded.failure.module, "blown");
    EXPECT_EQ(bounded.samples.size(), 1u);
  }
}

// What has nothing to do with the part that is tried ends the search, and is told.
TEST_F(MinimizeTest, ATrialThatCannotBeRunIsNoPartThatFails) {
  train_with("fp16", kOneSample);
  MinimizeOptions options{.output = file("small.capsule"), .scratch = file("scratch.ckpt"), .budget = 1e9};
  // In the first trial there is nothing to begin with; in the others there is.
  size_t trials = 0;
  options.watch = [&](std::string_view) {
    const std::string& scratch = options.scratch;
    if (trials++ == 0) {
      std::filesystem::rename(scratch, scratch + ".away");
    } else if (!std::filesystem::exists(scratch)) {
      std::filesystem::rename(scratch + ".away", scratch);
    }
    return true;
  };
  try {
    minimize(file("whole.capsule"), options);
    FAIL() << "the checkpoint that trials begin with is gone";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unreadable);
    EXPECT_THAT(error.what(), HasSubstr("scratch.ckpt"));
  }
}

// Layers that are repeated keep their paths; of what comes in 16 bits stays what it was.
TEST_F(MinimizeTest, OfRepeatedBlocksOneIsLeft) {
  train_text(R"(
precision = "fp16"
[model]
layers = [
  { type = "linear", name = "in", out_features = 16 },
  { type = "sequential", name = "blocks", repeat = 4, layers = [
    { type = "residual", name = "inner", layers = [
      { type = "relu", name = "relu" },
      { type = "sequential", name = "pair", layers = [
        { type = "linear", name = "a", out_features = 16 },
        { type = "linear", name = "b", out_features = 16 },
      ] },
    ] },
  ] },
  { type = "linear", name = "head", out_features = 10 },
]
[data]
kind = "random_classification"
shape = [8]
train_size = 64
[training]
batch_size = 8
steps = 3
evaluation = "never"
[scaler]
enabled = "off"
[[optimizers]]
modules = ["in"]
learning_rate = 0.1
[autocast.modules]
"head" = "fp32"
[[inject]]
parameter = "blocks.2.inner.pair.b.bias"
element = 5
step = 0
set = 1e5
)");
  const Minimized found = minimized();
  EXPECT_EQ(found.failure.name, "cast");
  EXPECT_EQ(found.failure.module, "blocks.2.inner.pair.b");
  EXPECT_EQ(found.replaced_up_to, "blocks.1.inner");
  EXPECT_EQ(found.before.layers, 1u + 4 * 3 + 1);
  EXPECT_EQ(found.after.layers, 1u);
  EXPECT_THAT(layer_names(), ElementsAre("blocks.2.inner"));
  ASSERT_THAT(small().model.layers[0].lists[0], SizeIs(1));
  EXPECT_EQ(small().model.layers[0].lists[0][0].name, "pair.b");
  EXPECT_TRUE(small().optimizers.empty());
  EXPECT_TRUE(small().autocast.modules.empty());
  EXPECT_EQ(read_capsule_samples(file("small.capsule"), 0).batch.input_type, DType::f16);
  Trial trial;
  trial.capsule = file("small.capsule");
  EXPECT_TRUE(run(trial).is_as_before());
}

// Of a sequence of 16 places the one whose row of the embedding is out of range, with the target of that place.
TEST_F(MinimizeTest, OfASequenceThePlaceIsLeftThatItTakes) {
  std::string text;
  while (text.size() < 400) text += "abcdefgh";
  text[16 * 9 + 5] = 'z';
  text[16 * 9 + 6] = 'y';
  write_file(file("text"), text);
  train_text(fmt::format(R"(
precision = "fp16"
[model]
layers = [
  {{ type = "embedding", name = "tokens", num_embeddings = 256, features = 4 }},
  {{ type = "position_embedding", name = "places" }},
  {{ type = "linear", name = "hidden", out_features = 6 }},
  {{ type = "linear", name = "head", out_features = 256 }},
]
[data]
kind = "text"
path = "{}"
context = 16
test_share = 0
[training]
batch_size = 12
steps = 2
evaluation = "never"
[scaler]
enabled = "off"
[[inject]]
parameter = "tokens.weight"
element = {}
steps = 0
set = 1e6
)",
                         file("text"), 4 * 'z' + 2));
  const Minimized found = minimized();
  EXPECT_EQ(found.failure.name, "cast");
  EXPECT_EQ(found.failure.module, "hidden");
  EXPECT_EQ(found.replaced_up_to, "places");
  EXPECT_THAT(found.samples, ElementsAre(9));
  EXPECT_THAT(found.before.sample, ElementsAre(16, 4));
  EXPECT_THAT(found.after.sample, ElementsAre(1, 4));
  const KeptSamples kept = read_capsule_samples(file("small.capsule"), 0);
  EXPECT_THAT(kept.batch.input_shape, ElementsAre(1, 1, 4));
  // Of place 5: a sum of two numbers in FP32.
  EXPECT_EQ(kept.batch.inputs[2], 1e6f + tensor("scratch.ckpt", "parameters/places.weight", 16 * 4)[5 * 4 + 2]);
  EXPECT_THAT(kept.batch.labels, ElementsAre('y'));
  EXPECT_EQ(small().loss.factor, 1.0 / (12 * 16));
}

// Of an image the pixel, where the model takes any size.
TEST_F(MinimizeTest, OfAnImageThePixelIsLeft) {
  train_text(R"(
precision = "fp16"
[model]
layers = [
  { type = "conv2d", name = "conv", out_channels = 3, kernel = 3, padding = 1 },
  { type = "batch_norm", name = "norm" },
  { type = "adaptive_avg_pool2d", name = "pool", output_size = 1 },
  { type = "flatten", name = "flat" },
  { type = "linear", name = "head", out_features = 10 },
]
[data]
kind = "random_classification"
shape = [2, 9, 7]
train_size = 32
shuffle = false
[training]
batch_size = 8
steps = 2
evaluation = "never"
[scaler]
enabled = "off"
[[inject]]
sample = 3
element = 96
set = 1e6
)");
  const Minimized found = minimized();
  EXPECT_EQ(found.failure.module, "conv");
  EXPECT_THAT(found.samples, ElementsAre(3));
  EXPECT_THAT(found.before.sample, ElementsAre(2, 9, 7));
  EXPECT_THAT(found.after.sample, ElementsAre(2, 1, 1));
  const KeptSamples kept = read_capsule_samples(file("small.capsule"), 0);
  EXPECT_EQ(kept.batch.inputs[1], 1e6f);  // element 96 is in the second channel
  EXPECT_EQ(small().loss.factor, 1.0 / 8) << "a label is one of the image, whatever its size";
}

// A NaN in the data is not to be had from what layers made of it.
TEST_F(MinimizeTest, SamplesThatAreNotFiniteStay) {
  std::string fault = kOneSample;
  fault.replace(fault.find("1e6"), 3, "nan");
  train_with("fp32", fault);
  const Minimized found = minimized();
  EXPECT_EQ(found.failure.phase, Phase::data);
  EXPECT_EQ(found.cause, "bad_data");
  EXPECT_EQ(found.replaced_up_to, "");
  EXPECT_THAT(found.samples, ElementsAre(37));
  EXPECT_TRUE(std::isnan(read_capsule_samples(file("small.capsule"), 0).batch.inputs[3]));
}

// That memory was changed shows beside what an earlier step had written: the last step alone would begin with a bad weight.
TEST_F(MinimizeTest, TheCauseStaysWhereItTakesAnEarlierStep) {
  train_with("fp32", "[training]\nsteps = 8\n[[inject]]\nparameter = \"first.weight\"\nelement = 3\nstep = 6\nset = inf\n");
  const Minimized found = minimized();
  EXPECT_EQ(found.cause, "memory_changed");
  EXPECT_EQ(found.failure.name, "linear");
  EXPECT_THAT(found.other_failure, HasSubstr("bad_start"));
  EXPECT_EQ(found.before.steps, 7u);
  EXPECT_EQ(found.after.steps, 2u);
  Trial trial;
  trial.capsule = file("small.capsule");
  trial.trace_path = file("small.h5");
  EXPECT_TRUE(run(trial).is_as_before());
  EXPECT_EQ(find_fact<std::string>(analyze_nan(Snapshot(trial.trace_path)), "cause"), "memory_changed");
}

TEST_F(MinimizeTest, SaysWhenTheTimeWasUp) {
  train_with("fp16", kOneSample);
  const Minimized found = minimized(0);
  EXPECT_FALSE(found.is_smallest);
  EXPECT_EQ(found.after.samples, 16u);
  EXPECT_EQ(found.after.steps, 1u);
}

TEST_F(MinimizeTest, WhereNothingFailedThereIsNothingToKeep) {
  train_with("fp32", "[training]\nbatch_size = 16\nsteps = 3\nevaluation = \"never\"\n", at_step(1));
  try {
    minimized();
    FAIL() << "all was finite";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), HasSubstr("whole.capsule' ends with step 1, in which nothing was NaN or Inf"));
  }
  EXPECT_FALSE(std::filesystem::exists(file("small.capsule")));
}

// Held against counting up, which tries each.
TEST(Fewest, AreFoundInFewTrials) {
  for (size_t all = 2; all <= 130; ++all) {
    for (size_t wanted = 2; wanted <= all; ++wanted) {
      double trials = 0;
      const auto is_enough = [&](size_t tried) {
        EXPECT_GT(tried, 1u);
        EXPECT_LT(tried, all) << "that is known";
        ++trials;
        return tried >= wanted;
      };
      ASSERT_EQ(fewest(
                    1, all, [] { return true; }, is_enough),
                wanted)
          << all;
      EXPECT_LE(trials, 2 * std::log2(static_cast<double>(wanted)) + 1) << wanted << " of " << all;
    }
  }
}

TEST(Fewest, IsWhatIsKnownWhenTheTimeIsUp) {
  size_t may = 0;
  const auto after = [&](size_t trials) {
    may = trials;
    return fewest(
        1, 100, [&] { return may-- > 0; }, [](size_t tried) { return tried >= 7; });
  };
  EXPECT_EQ(after(0), 100u);
  EXPECT_EQ(after(2), 100u) << "2 and 4 are too few";
  EXPECT_EQ(after(3), 8u);
  EXPECT_EQ(after(4), 8u) << "6 are too few";
  EXPECT_EQ(after(5), 7u);
}

}  // namespace
}  // namespace ulpscope
