// Whole runs: what recording must not change, what underflow does, and what accuracy training reaches.
#include "ulpscope/core/run/trainer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include "tests/support/project_files.h"
#include "tests/support/trace_contents.h"
#include "ulpscope/analyzers/verbs/scale.h"
#include "ulpscope/base/error.h"
#include "ulpscope/core/engine/context.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

struct Training {
  std::vector<double> losses;
  TrainResult result;
};

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest()
      : trace_(::testing::TempDir() + "ulpscope_trainer_" + ::testing::UnitTest::GetInstance()->current_test_info()->name() + "_" +
               std::to_string(getpid()) + ".h5") {}
  ~TrainerTest() override { std::filesystem::remove(trace_); }

  Training run(const Experiment& experiment, bool recorded = true) {
    TrainerOptions options;
    options.cpu.threads = 2;
    options.overwrite = true;
    if (recorded) options.trace_path = trace_;
    Training run;
    run.result = train(experiment, options, [&](const StepResult& step) { run.losses.push_back(step.loss); });
    return run;
  }

  static Experiment preset(const char* name, int64_t steps, Precision precision = Precision::fp32) {
    Experiment experiment = *find_preset(name);
    experiment.training.steps = steps;
    experiment.training.evaluation = Evaluation::never;
    experiment.precision = precision;
    return experiment;
  }

  // fashion_cnn's shapes on generated images, so that no file is needed.
  static Experiment small_images(int64_t steps, Precision precision) {
    Experiment experiment = preset("fashion_cnn", steps, precision);
    experiment.data.kind = DataKind::random_classification;
    experiment.data.shape = {1, 28, 28};
    experiment.data.train_size = 256;
    experiment.data.test_size = 64;
    experiment.training.batch_size = 16;
    return experiment;
  }

  std::string trace_;
};

// No file of this process grows beyond it, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(uint64_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

bool have_fashion_mnist() { return std::filesystem::exists("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"); }

TEST_F(TrainerTest, RecordingChangesNoBit) {
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
    Experiment experiment = small_images(6, precision);
    const Training bare = run(experiment, false);
    ASSERT_EQ(bare.losses.size(), 6u);
    const auto expect_unchanged = [&](const std::string& what) {
      const Training recorded = run(experiment);
      EXPECT_EQ(recorded.losses, bare.losses) << name_of(precision) << " " << what;
      EXPECT_EQ(recorded.result.weights_fingerprint, bare.result.weights_fingerprint) << name_of(precision) << " " << what;
      EXPECT_FALSE(recorded.result.trace.failed) << what;
    };
    for (const RecordLevel level : {RecordLevel::off, RecordLevel::health, RecordLevel::stats, RecordLevel::full}) {
      experiment.recording.level = level;
      expect_unchanged(name_of(level));
    }
    if (precision != Precision::fp16) continue;
    experiment.recording.every = 4;
    expect_unchanged("every 4 steps");
    experiment.recording.modules = {"0", "7"};
    experiment.recording.phases = {Phase::backward};
    expect_unchanged("filtered");
    experiment.recording = {};
    experiment.recording.max_size = 2 << 20;
    expect_unchanged("near its size limit");
    experiment.training.evaluation = Evaluation::end;
    expect_unchanged("with an evaluation");
  }
}

// The same where captures are made, and events written, and after so many steps no more: everything is NaN from the second step on.
TEST_F(TrainerTest, RecordingChangesNoBitOfADivergingRun) {
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    Experiment experiment = preset("mlp", 30, precision);
    experiment.optimizer.type = OptimizerType::sgd;
    experiment.optimizer.learning_rate = 1e30;
    const Training bare = run(experiment, false);
    ASSERT_FALSE(std::isfinite(bare.losses.back()));
    for (const RecordLevel level : {RecordLevel::health, RecordLevel::full}) {
      experiment.recording.level = level;
      const Training recorded = run(experiment);
      ASSERT_EQ(recorded.losses.size(), bare.losses.size());
      for (size_t i = 0; i < bare.losses.size(); ++i)
        EXPECT_EQ(std::bit_cast<uint64_t>(recorded.losses[i]), std::bit_cast<uint64_t>(bare.losses[i])) << "step " << i;
      EXPECT_EQ(recorded.result.weights_fingerprint, bare.result.weights_fingerprint) << name_of(level);
      EXPECT_FALSE(Snapshot(trace_).captures().empty());
    }
  }
}

// With batches that are all the same, halves of losses and gradients add up to the whole, exactly.
TEST_F(TrainerTest, AccumulationAddsUpTheGradientsOfItsBatches) {
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    Experiment experiment = preset("mlp", 6, precision);
    experiment.data.train_size = experiment.training.batch_size;
    experiment.data.shuffle = false;
    experiment.scaler.initial = 0x1p40;  // overflows in FP16: steps are skipped as a whole, and the scale halves once a step
    const Training alone = run(experiment);
    experiment.training.accumulation = 2;
    const Training accumulated = run(experiment);
    ASSERT_EQ(accumulated.losses, alone.losses);
    EXPECT_EQ(accumulated.result.weights_fingerprint, alone.result.weights_fingerprint);
    EXPECT_EQ(accumulated.result.skipped_steps, alone.result.skipped_steps);
    EXPECT_EQ(accumulated.result.skipped_steps > 0, precision == Precision::fp16);
    uint64_t accumulations = 0;
    std::array<uint64_t, 2> of_batch{};
    const Snapshot reader(trace_);
    reader.visit_rows({}, [&](std::span<const TensorRow> rows) {
      for (const TensorRow& row : rows) {
        const OpInfo& op = reader.ops().at(reader.tensors().at(row.tensor).op);
        if (op.phase == Phase::forward) ++of_batch.at(row.micro_batch);
        accumulations += op.name == "accumulate";
      }
      return true;
    });
    EXPECT_GT(of_batch[0], 0u);
    EXPECT_EQ(of_batch[0], of_batch[1]);
    EXPECT_EQ(accumulations, 6u * 6u);  // six parameters
  }
}

TEST_F(TrainerTest, AFullDiskChangesNoBitAndLeavesAReadableTrace) {
  Experiment experiment = small_images(120, Precision::fp16);
  experiment.recording.flush_interval = 0.001;
  const Training bare = run(experiment);
  Experiment one_step = experiment;
  one_step.training.steps = 1;
  const uint64_t smallest = run(one_step).result.trace.bytes;
  ASSERT_GT(bare.result.trace.bytes, smallest);
  const Training recorded = [&] {
    const FileSizeLimit limit((smallest + bare.result.trace.bytes) / 2);
    return run(experiment);
  }();
  EXPECT_TRUE(recorded.result.trace.failed) << "the limit should have been reached: " << recorded.result.trace.bytes << " bytes";
  EXPECT_EQ(recorded.losses, bare.losses);
  EXPECT_EQ(recorded.result.weights_fingerprint, bare.result.weights_fingerprint);
  const Snapshot reader(trace_);
  EXPECT_EQ(reader.step_count(), recorded.result.trace.committed_steps);
}

TEST_F(TrainerTest, TheSameSeedGivesTheSameRecordingTwice) {
  Experiment experiment = small_images(6, Precision::fp16);
  experiment.data.train_size = 64;  // four batches an epoch
  experiment.training.evaluation = Evaluation::epoch;
  experiment.recording.level = RecordLevel::full;
  experiment.recording.bits = true;
  experiment.scaler.initial = 0x1p30;  // overflows, so that there are captures and changes of the scale
  experiment.scaler.backoff_factor = 0x1p-10;
  std::vector<std::string> first, second;
  for (auto* each : {&first, &second}) {
    run(experiment);
    *each = trace_contents(trace_);
  }
  for (size_t i = 0; i < first.size(); ++i) {
    const std::string& name = export_tables()[i];
    EXPECT_TRUE(first[i] == second[i]) << name;
    // Products are of a device that has a library, and sums of gradients in 16 bits.
    const bool has_rows = name != "measures" && name != "products" && name != "sums";
    EXPECT_GT(first[i].size(), has_rows ? 200u : 0u) << name << " has no rows: nothing was compared";
  }
  Experiment other = experiment;
  other.seed = experiment.seed + 1;
  EXPECT_NE(run(other, false).losses, run(experiment, false).losses);
}

struct RowsOfPhase {
  std::set<uint64_t> steps;
  std::map<std::pair<uint64_t, uint32_t>, uint64_t> inputs;  // elements of the batch, by step and micro-batch
};

TEST_F(TrainerTest, AnEvaluationIsRecordedAsPartOfItsStep) {
  Experiment experiment = small_images(7, Precision::fp16);
  experiment.data.train_size = 40;  // batches of 16, 16 and 8
  experiment.data.test_size = 20;   // of 16 and 4
  experiment.data.drop_last = false;
  experiment.training.evaluation_batch_size = 0;
  const Training without = run(experiment);
  experiment.training.evaluation = Evaluation::epoch;
  for (const bool only_evaluation : {false, true}) {
    if (only_evaluation) experiment.recording.phases = {Phase::evaluation};
    const Training with = run(experiment);
    EXPECT_EQ(with.losses, without.losses);
    EXPECT_EQ(with.result.weights_fingerprint, without.result.weights_fingerprint);
    const Snapshot reader(trace_);
    std::map<Phase, RowsOfPhase> phases;
    reader.visit_rows({}, [&](std::span<const TensorRow> rows) {
      for (const TensorRow& row : rows) {
        const TensorInfo& tensor = reader.tensors()[row.tensor];
        RowsOfPhase& of_phase = phases[reader.ops()[tensor.op].phase];
        of_phase.steps.insert(row.step);
        // A row says how many elements there were; the table of tensors only what shape came first.
        if (tensor.role == Role::input) {
          EXPECT_EQ(tensor.shape, (std::vector<int64_t>{16, 1, 28, 28}));
          of_phase.inputs[{row.step, row.micro_batch}] = row.statistics.count;
        }
      }
      return true;
    });
    const uint64_t image = 28 * 28;
    EXPECT_EQ(phases[Phase::evaluation].steps, (std::set<uint64_t>{2, 5, 6}));
    std::map<std::pair<uint64_t, uint32_t>, uint64_t> evaluated, trained;
    for (const uint64_t step : {2, 5, 6}) {
      evaluated[{step, 0}] = 16 * image;
      evaluated[{step, 1}] = 4 * image;
    }
    for (const uint64_t step : {0, 1, 2, 3, 4, 5, 6}) trained[{step, 0}] = (step % 3 == 2 ? 8 : 16) * image;
    EXPECT_EQ(phases[Phase::evaluation].inputs, evaluated);
    EXPECT_EQ(phases[Phase::data].inputs, only_evaluation ? decltype(trained)() : trained);
    EXPECT_EQ(phases[Phase::forward].steps.empty(), only_evaluation);
  }
}

using Slots = std::set<std::pair<uint64_t, int>>;  // outputs, by the id of their op

// The gradients that the what-ifs of a recording are about.
Slots judged_gradients(const Snapshot& reader) {
  ScaleOptions options;
  options.limit = 0;
  Slots slots;
  const Report report = analyze_scale(reader, options);
  for (const Table& table : report.tables) {
    if (table.name != "fitting_scales") continue;
    for (const TableRow& row : table.rows) {
      if (is_computed_gradient(*find_role(row.key.role))) slots.emplace(*row.key.op, *row.key.slot);
    }
  }
  return slots;
}

// The gradients that the run rounded: as their op stored them, or in the cast that took them on.
Slots rounded_gradients(const Snapshot& reader) {
  Slots slots;
  for (const TensorInfo& tensor : reader.tensors()) {
    if (!is_computed_gradient(tensor.role) || (tensor.dtype != DType::f16 && tensor.dtype != DType::bf16)) continue;
    if (reader.ops()[tensor.op].name != "cast") {
      slots.emplace(reader.ops()[tensor.op].id, tensor.slot);
      continue;
    }
    for (const GraphEdge& edge : reader.edges()) {
      if (edge.consumer == tensor.op) slots.emplace(reader.ops()[edge.producer].id, edge.slot);
    }
  }
  return slots;
}

TEST_F(TrainerTest, AnFp32RecordingJudgesTheGradientsThatMixedPrecisionRounds) {
  const std::string conv = R"({ type = "conv2d", out_channels = 4, kernel = 3, padding = 1 })", norm = R"({ type = "batch_norm" })",
                    relu = R"({ type = "relu" })", pool = R"({ type = "max_pool2d", kernel = 2 })",
                    flat = R"({ type = "flatten" })", linear = R"({ type = "linear", out_features = 10 })",
                    neg = R"({ type = "neg" })";
  const std::vector<std::vector<std::string>> models{{conv, norm, relu, pool, flat, linear, relu, linear},
                                                     {norm, relu, conv, norm, flat, linear, neg},
                                                     {flat, linear, norm, relu, linear}};
  for (const std::vector<std::string>& model : models) {
    const std::string text = fmt::format(
        "[data]\nkind = \"random_classification\"\nshape = [1, 8, 8]\ntrain_size = 32\n[model]\nlayers = [{}]\n"
        "[training]\nbatch_size = 16\nsteps = 2\nevaluation = \"never\"\n[loss]\nfactor = 0.5\n",
        fmt::join(model, ", "));
    Experiment experiment = parse_experiment(text, "small");
    run(experiment);
    const Slots judged = judged_gradients(Snapshot(trace_));
    for (const Precision precision : {Precision::fp16, Precision::bf16}) {
      experiment.precision = precision;
      run(experiment);
      const Snapshot reader(trace_);
      EXPECT_EQ(judged, rounded_gradients(reader)) << text << name_of(precision);
      EXPECT_EQ(reader.run().growth_interval, precision == Precision::fp16 ? 2000 : 0);
    }
  }
}

// Steps that an optimizer made too large: its rate is infinite in FP32.
TEST_F(TrainerTest, ACaptureSaysHowItsCallWent) {
  Experiment experiment = small_images(1, Precision::fp32);
  experiment.optimizer.learning_rate = 1e39;
  run(experiment);
  const Snapshot reader(trace_);
  const std::vector<CaptureRow> captures = reader.captures();
  ASSERT_GE(captures.size(), 5u) << "the weight, and weight, gradient and two states of the update";
  const TensorInfo& weight = reader.tensors()[captures[0].tensor];
  EXPECT_EQ(reader.ops()[weight.op].name, "adam_update");
  EXPECT_EQ(reader.ops()[weight.op].attributes, "beta1=0.9 beta2=0.999 eps=1e-08 weight_decay=0 decoupled=0 lr=varies step=varies");
  EXPECT_EQ(captures[0].attributes, "beta1=0.9 beta2=0.999 eps=1e-08 weight_decay=0 decoupled=0 lr=1e+39 step=1");
  EXPECT_EQ(captures[0].shape, weight.shape);
  for (int input = 0; input < 4; ++input) {
    const CaptureRow& operand = captures[static_cast<size_t>(input) + 1];
    EXPECT_EQ(operand.parent, 0);
    EXPECT_EQ(operand.operand, input);
    EXPECT_EQ(operand.tensor, captures[0].tensor);
    EXPECT_EQ(operand.element, captures[0].element);
    EXPECT_EQ(operand.shape, weight.shape);
    EXPECT_EQ(operand.overwritten, input != 1) << "the gradient is only read";
  }
  EXPECT_EQ(captures[2].follow, CaptureFollow::gone) << "what the backward op read or wrote holds other values by now";
  EXPECT_EQ(reader.ops()[reader.tensors()[static_cast<size_t>(captures[2].made_by)].op].phase, Phase::backward);
  // After the first step the mean is (1 - beta1) g: 0.1 and the product are rounded.
  const double g = captures[2].value, mean = captures[3].value;
  EXPECT_TRUE(std::abs(mean - 0.1 * g) <= 3 * 0x1p-24 * std::abs(mean)) << mean << " of " << g;
}

TEST_F(TrainerTest, AStepReadsTheDeviceOnce) {
  Experiment experiment = small_images(3, Precision::fp16);
  experiment.clipping.norm = 1;
  experiment.clipping.value = 0.5;
  TrainerOptions options;
  options.trace_path = trace_;
  options.overwrite = true;
  Trainer trainer(experiment, options);
  while (!trainer.finished()) trainer.step();
  EXPECT_EQ(trainer.context().host_reads, 3u);
  trainer.finish();
}

// What grows with the image are tensors of 256 channels, of 2 bytes an element instead of 4, and beside them what the model begins
// and ends with, in FP32 still: per pixel 8 bytes of positions, 4 each of prediction, target and the loss's gradient, and their
// casts of 4, 2 and 2 bytes.
TEST_F(TrainerTest, HalfPrecisionHalvesTheMemoryOfActivations) {
  const auto peak = [&](Precision precision, int64_t size) {
    Experiment experiment = preset("conv_sine", 2, precision);
    experiment.data.height = experiment.data.width = size;
    return static_cast<int64_t>(run(experiment, false).result.peak_memory_bytes);
  };
  const int64_t pixels = 96 * 96 - 64 * 64;
  const int64_t full = peak(Precision::fp32, 96) - peak(Precision::fp32, 64);
  for (const Precision precision : {Precision::fp16, Precision::bf16}) {
    const int64_t half = peak(precision, 96) - peak(precision, 64);
    EXPECT_LE(half, full / 2 + pixels * (8 + 3 * 4 + 4 + 2 + 2)) << name_of(precision) << ", FP32: " << full;
  }
}

// What a user of the article's size sees: the peak of a whole run, scratch, weights and all.
TEST_F(TrainerTest, SlowPeakMemoryOfHalfPrecisionIsAtMostTwoThirds) {
  uint64_t peak[2] = {};
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    Experiment experiment = preset("conv_sine", 2, precision);
    experiment.data.height = experiment.data.width = 512;
    peak[precision == Precision::fp16] = run(experiment).result.peak_memory_bytes;
  }
  EXPECT_LE(static_cast<double>(peak[1]), 0.65 * static_cast<double>(peak[0])) << peak[1] << " of " << peak[0];
}

// Steps on one batch bring its loss down.
TEST_F(TrainerTest, ModelsOfImagesTrain) {
  for (const char* name : {"resnet20", "autoencoder"}) {
    for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
      Experiment experiment = preset(name, 12, precision);
      const bool autoencoder = experiment.data.target == TargetSource::input;
      experiment.data.kind = DataKind::random_classification;
      experiment.data.shape = autoencoder ? std::vector<int64_t>{1, 28, 28} : std::vector<int64_t>{3, 16, 16};
      experiment.data.train_size = experiment.training.batch_size = 8;
      if (!autoencoder) experiment.optimizer.learning_rate = 0.01;
      const Training trained = run(experiment, false);
      EXPECT_LT(trained.losses.back(), 0.9 * trained.losses.front()) << name << " " << name_of(precision);
    }
  }
}

TEST_F(TrainerTest, ADivergingRunEndsWithoutACrashAndIsStoppedWhereAsked) {
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    Experiment experiment = small_images(12, precision);
    experiment.optimizer.type = OptimizerType::sgd;
    experiment.optimizer.learning_rate = 1e30;
    const Training diverged = run(experiment);
    EXPECT_EQ(diverged.losses.size(), 12u);
    EXPECT_FALSE(std::isfinite(diverged.losses.back()));
    experiment.recording.stop_on = StopOn::nan;
    const Training stopped = run(experiment);
    EXPECT_LT(stopped.losses.size(), 12u);
    EXPECT_THAT(stopped.result.stop_reason, ::testing::HasSubstr("NaN"));
  }
}

TEST_F(TrainerTest, TheLossFactorIsExactInFP32AndWithoutAScalerFP16ChangesNoWeight) {
  Experiment plain = small_images(8, Precision::fp32);
  plain.training.batch_size = 64;  // gradients of logits are at most 2^-20 / 64 = 2^-26: FP16 flushes them
  plain.optimizer.type = OptimizerType::sgd;
  plain.optimizer.learning_rate = 0.0625;
  Experiment small = plain;
  small.loss.factor = 0x1p-20;
  small.optimizer.learning_rate = 0x1p16;
  const Training reference = run(plain, false), scaled = run(small, false);
  for (size_t i = 0; i < reference.losses.size(); ++i) EXPECT_EQ(scaled.losses[i] * 0x1p20, reference.losses[i]) << "step " << i;
  EXPECT_EQ(scaled.result.weights_fingerprint, reference.result.weights_fingerprint);

  small.precision = Precision::fp16;
  small.scaler.enabled = Switch::off;
  small.training.steps = 1;
  const uint64_t after_one = run(small, false).result.weights_fingerprint;
  small.training.steps = 8;
  EXPECT_EQ(run(small, false).result.weights_fingerprint, after_one);
  small.optimizer.learning_rate = 0;
  EXPECT_EQ(run(small, false).result.weights_fingerprint, after_one) << "no step changed a weight, not even the first";

  run(small);
  uint64_t flushed = 0, nonzero = 0;
  const Snapshot reader(trace_);
  bool seen = false;
  reader.visit_rows({0, 1}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      const TensorInfo& tensor = reader.tensors()[row.tensor];
      if (seen || tensor.dtype != DType::f16 || reader.ops()[tensor.op].phase != Phase::backward) continue;
      seen = true;  // the first rounding of the backward pass
      flushed = row.rounding.flushed;
      nonzero = row.statistics.finite_nonzero();
    }
    return true;
  });
  EXPECT_TRUE(seen);
  EXPECT_GT(nonzero, 0u);
  EXPECT_EQ(flushed, nonzero);
}

// 2^40 epochs of 16 batches.
TEST_F(TrainerTest, MoreBatchesThanCanBeCountedAreAnError) {
  Experiment experiment = small_images(0, Precision::fp32);
  experiment.training.epochs = int64_t{1} << 40;
  try {
    run(experiment);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("training.epochs: expected at most 2^40 batches in all, found 1099511627776 epochs of 16"));
  }
}

TEST_F(TrainerTest, ShapesThatDoNotFitAreErrorsBeforeTheFirstStep) {
  Experiment experiment = small_images(1, Precision::fp32);
  experiment.data.shape = {3, 28, 28};
  experiment.model.layers[0].set("in_channels", int64_t{1});
  try {
    run(experiment);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("model.layers[0] (conv2d): expected in_channels = 1, got [3, 28, 28]"));
  }
  EXPECT_FALSE(std::filesystem::exists(trace_)) << "nothing is left behind";
  experiment = small_images(1, Precision::fp32);
  experiment.model.layers[7].set("out_features", int64_t{2147483647});
  try {
    run(experiment);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("model.layers[7] (linear)"));
  }
}

// After one epoch of Adam at a constant rate the accuracy still moves from step to step (seed 0: 0.878 after 930 steps, 0.836 after
// 938), so the median of three seeds stands for FP32. The same network in PyTorch 2.13 ends at 0.875 with a standard deviation of
// 0.0061 (tests/torch/fashion_accuracy.py, seeds 0 to 5): ours may be three of these below. Two runs whose roundings differ are as
// two seeds where the end of the run is chance: the mean difference of three pairs has a deviation of sqrt(2 / 3) of that, and may
// be three of these.
TEST_F(TrainerTest, SlowFashionAccuracyInEveryPrecision) {
  if (!have_fashion_mnist()) GTEST_SKIP() << "Fashion-MNIST is not installed (Debian package dataset-fashion-mnist)";
  constexpr double kMean = 0.875, kDeviation = 0.0061;
  std::array<double, 3> wide;
  std::map<Precision, double> difference;  // a mean over the seeds
  for (uint64_t seed = 0; seed < wide.size(); ++seed) {
    Experiment experiment = *find_preset("fashion_cnn");
    experiment.seed = seed;
    const auto accuracy = [&](Precision precision) {
      experiment.precision = precision;
      return *run(experiment, false).result.test->accuracy;
    };
    wide[seed] = accuracy(Precision::fp32);
    for (const Precision precision : {Precision::fp16, Precision::bf16})
      difference[precision] += (accuracy(precision) - wide[seed]) / static_cast<double>(wide.size());
  }
  for (const auto& [precision, mean] : difference)
    EXPECT_LE(std::abs(mean), 3 * std::sqrt(2.0 / 3) * kDeviation) << name_of(precision) << ": " << mean;
  std::sort(wide.begin(), wide.end());
  EXPECT_GE(wide[1], kMean - 3 * kDeviation);
}

// Over the last 400 of 512 steps. From about step 100 on the loss leaps up now and then, by a factor of up to six and for a dozen
// steps, in every precision and at other steps for each seed, as it does with Adam and a constant learning rate. Where the last
// leap falls decides a mean of 50 steps: in FP16 that of the last 50 was 1.13, 1.27 and 1.48 times FP32's (seeds 0 to 2), and of
// the 50 before 0.97 and 0.74 times (seeds 1 and 2); the mean of 400 was 0.99 and 1.00 times.
// As far as the losses of two seeds tell them apart: within three standard errors of the difference of their means. BF16 does not
// hold the coordinates that the model reads, and trains worse.
TEST_F(TrainerTest, SlowConvSineLossOfFP16IsThatOfFP32) {
  const auto mean_of_last = [&](Precision precision, int64_t seed) {
    Experiment experiment = preset("conv_sine", 512, precision);
    experiment.seed = seed;
    const std::vector<double> losses = run(experiment, false).losses;
    return std::accumulate(losses.end() - 400, losses.end(), 0.0) / 400;
  };
  const double first = mean_of_last(Precision::fp32, 0), second = mean_of_last(Precision::fp32, 1);
  const double deviation = std::abs(first - second) / std::sqrt(2);
  const double mean = (mean_of_last(Precision::fp16, 0) + mean_of_last(Precision::fp16, 1)) / 2;
  EXPECT_LE(std::abs(mean - (first + second) / 2), 3 * deviation) << mean << ", and " << first << " and " << second << " in FP32";
}

TEST_F(TrainerTest, SlowTheScalerRescuesTheUnderflowExperiment) {
  if (!have_fashion_mnist()) GTEST_SKIP() << "Fashion-MNIST is not installed (Debian package dataset-fashion-mnist)";
  Experiment experiment = load_experiment(project_file("experiments/underflow.toml"));
  experiment.precision = Precision::fp32;
  const double reference = *run(experiment, false).result.test->accuracy;
  experiment.precision = Precision::fp16;
  experiment.scaler.enabled = Switch::on;
  const double rescued = *run(experiment, false).result.test->accuracy;
  EXPECT_LE(std::abs(rescued - reference), 0.02) << rescued << " with the scaler, " << reference << " in FP32";
}

}  // namespace
}  // namespace ulpscope
