// Whole runs: what recording must not change, what underflow does, and what accuracy training reaches.
#include "ulpscope/core/run/trainer.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "ulpscope/base/error.h"
#include "ulpscope/core/engine/context.h"
#include "ulpscope/trace/reader.h"

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
    for (const RecordLevel level : {RecordLevel::off, RecordLevel::health, RecordLevel::stats, RecordLevel::full}) {
      experiment.recording.level = level;
      const Training recorded = run(experiment);
      EXPECT_EQ(recorded.losses, bare.losses) << name_of(precision) << " " << name_of(level);
      EXPECT_EQ(recorded.result.weights_fingerprint, bare.result.weights_fingerprint)
          << name_of(precision) << " " << name_of(level);
    }
  }
}

TEST_F(TrainerTest, AFullDiskChangesNoBitAndLeavesAReadableTrace) {
  Experiment experiment = small_images(40, Precision::fp16);
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
  const TraceReader reader(trace_);
  EXPECT_EQ(reader.step_count(), recorded.result.trace.committed_steps);
}

TEST_F(TrainerTest, TheSameSeedGivesTheSameRecordingTwice) {
  const Experiment experiment = small_images(5, Precision::fp16);
  std::vector<TensorRow> rows[2];
  for (auto& each : rows) {
    run(experiment);
    TraceReader(trace_).visit_rows({}, [&](std::span<const TensorRow> batch) {
      each.insert(each.end(), batch.begin(), batch.end());
      return true;
    });
  }
  ASSERT_GT(rows[0].size(), 5u * 40);
  ASSERT_EQ(rows[0].size(), rows[1].size());
  for (size_t i = 0; i < rows[0].size(); ++i) {
    EXPECT_EQ(rows[0][i].tensor, rows[1][i].tensor);
    EXPECT_EQ(rows[0][i].statistics, rows[1][i].statistics) << "row " << i;
    EXPECT_EQ(rows[0][i].rounding, rows[1][i].rounding) << "row " << i;
  }
  Experiment other = experiment;
  other.seed = experiment.seed + 1;
  EXPECT_NE(run(other, false).losses, run(experiment, false).losses);
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

TEST_F(TrainerTest, HalfPrecisionActivationsTakeLessMemory) {
  Experiment experiment = preset("conv_sine", 2);
  experiment.data.height = experiment.data.width = 64;
  const Training full = run(experiment, false);
  experiment.precision = Precision::fp16;
  const Training half = run(experiment, false);
  // Activations dominate: half of them, and FP32 copies of weights and single tiles.
  EXPECT_LT(static_cast<double>(half.result.peak_memory_bytes), 0.65 * static_cast<double>(full.result.peak_memory_bytes));
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
  const TraceReader reader(trace_);
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

// Mean of three seeds, one epoch, as docs/performance.md states it.
TEST_F(TrainerTest, SlowFashionAccuracyInEveryPrecision) {
  if (!have_fashion_mnist()) GTEST_SKIP() << "Fashion-MNIST is not installed (Debian package dataset-fashion-mnist)";
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
    double accuracy = 0;
    for (uint64_t seed = 0; seed < 3; ++seed) {
      Experiment experiment = *find_preset("fashion_cnn");
      experiment.precision = precision;
      experiment.seed = seed;
      accuracy += *run(experiment, false).result.test_accuracy / 3;
    }
    RecordProperty(std::string("accuracy_") + name_of(precision), std::to_string(accuracy));
    EXPECT_GE(accuracy, 0.865) << name_of(precision);
  }
}

TEST_F(TrainerTest, SlowConvSineLossOfMixedPrecisionIsThatOfFP32) {
  double mean[3] = {};
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
    const Training each = run(preset("conv_sine", 512, precision), false);
    for (size_t i = each.losses.size() - 50; i < each.losses.size(); ++i) mean[static_cast<int>(precision)] += each.losses[i] / 50;
  }
  EXPECT_LE(std::abs(mean[1] - mean[0]), 0.1 * mean[0]) << mean[1] << " in FP16, " << mean[0] << " in FP32";
  EXPECT_LE(std::abs(mean[2] - mean[0]), 0.1 * mean[0]) << mean[2] << " in BF16, " << mean[0] << " in FP32";
}

TEST_F(TrainerTest, SlowTheScalerRescuesTheUnderflowExperiment) {
  if (!have_fashion_mnist()) GTEST_SKIP() << "Fashion-MNIST is not installed (Debian package dataset-fashion-mnist)";
  Experiment experiment = load_experiment(ULPSCOPE_SOURCE_DIR "/experiments/underflow.toml");
  experiment.precision = Precision::fp32;
  const double reference = *run(experiment, false).result.test_accuracy;
  experiment.precision = Precision::fp16;
  experiment.scaler.enabled = Switch::on;
  const double rescued = *run(experiment, false).result.test_accuracy;
  EXPECT_LE(std::abs(rescued - reference), 0.02) << rescued << " with the scaler, " << reference << " in FP32";
}

}  // namespace
}  // namespace ulpscope
