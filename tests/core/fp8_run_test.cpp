// What training runs in FP8 have to keep: their bits, what their traces say of scales, and their losses.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/support/temporary_folder.h"
#include "tests/support/usage_error.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kExperiment = R"(
name = "small"
seed = 5
precision = "fp8"
[data]
kind = "random_classification"
shape = [24]
train_size = 64
test_size = 32
[model]
layers = [
  { type = "sequential", name = "body", layers = [
    { type = "linear", name = "fc1", out_features = 32 },
    { type = "relu" },
    { type = "linear", name = "fc2", out_features = 32, bias = false },
    { type = "gelu" },
  ] },
  { type = "linear", name = "head", out_features = 10 },
]
[training]
batch_size = 16
steps = 8
evaluation = "epoch"
)";

class Fp8Runs : public ::testing::TestWithParam<const char*> {
 protected:
  static Experiment experiment(std::vector<std::string> assignments = {}) {
    assignments.push_back(std::string("fp8.recipe=") + GetParam());
    const std::vector<Override> overrides(assignments.begin(), assignments.end());
    return parse_experiment(kExperiment, "small", overrides);
  }
  TrainerOptions options(const std::string& trace = "") const {
    TrainerOptions chosen;
    chosen.cpu.threads = 2;
    chosen.overwrite = true;
    chosen.trace_path = trace.empty() ? "" : folder_.file(trace);
    return chosen;
  }
  TrainResult run(const Experiment& settings, const std::string& trace = "") const { return train(settings, options(trace)); }

  TemporaryFolder folder_;
};

TEST_P(Fp8Runs, RecordingChangesNoBit) {
  const TrainResult off = run(experiment());
  for (const char* level : {"health", "stats", "full"}) {
    const TrainResult recorded = run(experiment({std::string("recording.level=") + level}), "run.h5");
    EXPECT_EQ(recorded.weights_fingerprint, off.weights_fingerprint) << level;
    EXPECT_EQ(recorded.final_loss, off.final_loss) << level;
  }
}

TEST_P(Fp8Runs, GoesOnFromACheckpointAsIfItHadNotStopped) {
  const TrainResult whole = run(experiment());
  const std::string file = folder_.file("half.ckpt");
  Trainer first(experiment(), options());
  for (int i = 0; i < 3; ++i) first.step();
  first.save_checkpoint(file);
  first.finish();
  TrainerOptions resumed = options();
  resumed.resume_from = file;
  EXPECT_EQ(train(experiment(), resumed).weights_fingerprint, whole.weights_fingerprint);
}

// What is computed again has the scales that it had; and evaluation, in the run after every epoch, changes none.
TEST_P(Fp8Runs, CheckpointedActivationsAndEvaluationChangeNoBit) {
  const TrainResult kept = run(experiment({"training.evaluation=never"}));
  EXPECT_EQ(run(experiment()).weights_fingerprint, kept.weights_fingerprint);
  Experiment again = experiment();
  again.model.layers[0].set("checkpoint", true);
  EXPECT_EQ(run(again).weights_fingerprint, kept.weights_fingerprint);
}

struct Recorded {
  std::map<std::string, std::vector<TensorRow>> rows;  // by "module op role name dtype", of FP8 tensors and buffers
  std::map<std::string, std::vector<TensorRow>> scales;
};

TEST_P(Fp8Runs, RowsHaveTheirQuantizationScaleApartFromTheLossScale) {
  const bool delayed = std::string(GetParam()) == "delayed";
  run(experiment({"scaler.enabled=on", "scaler.initial=1024", "training.evaluation=never"}), "run.h5");
  const Snapshot reader(folder_.file("run.h5"));
  EXPECT_EQ(reader.run().dtypes, "f32,bf16,e4m3,e5m2");
  uint64_t quantized = 0;
  std::map<std::pair<uint64_t, uint32_t>, double> amaxes;  // by step and op
  const auto op_of = [&](const TensorRow& row) { return reader.tensors()[row.tensor].op; };
  reader.visit_rows({}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows)
      if (reader.tensors()[row.tensor].name == "amax") amaxes[{row.step, op_of(row)}] = row.statistics.largest;
    return true;
  });
  reader.visit_rows({}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      const TensorInfo& tensor = reader.tensors()[row.tensor];
      if (!is_quantized(tensor.dtype)) {
        EXPECT_EQ(row.quantization_scale, 1.0);
        continue;
      }
      ++quantized;
      const bool gradient = tensor.role == Role::activation_gradient;
      EXPECT_EQ(tensor.dtype, gradient ? DType::f8_e5m2 : DType::f8_e4m3);
      EXPECT_EQ(row.scale, gradient ? 1024.0 : 1.0);
      const double largest = info(tensor.dtype).format->largest_finite(), amax = amaxes.at({row.step, op_of(row)});
      if (delayed && row.step == 0) {
        EXPECT_EQ(row.quantization_scale, 1.0);
      } else if (!delayed) {
        EXPECT_EQ(row.quantization_scale, static_cast<float>(largest / amax));
        EXPECT_EQ(row.rounding.overflowed, 0u);
        // The statistics are of the scaled values.
        EXPECT_EQ(row.statistics.largest, static_cast<float>(amax) * static_cast<float>(row.quantization_scale));
      }
    }
    return true;
  });
  EXPECT_EQ(quantized, 8u * 9);  // input, weight and gradient of three layers
}

TEST_P(Fp8Runs, LayersStayOutWhereATypeIsAskedFor) {
  const auto quantizes = [&](const Experiment& settings) {
    run(settings, "run.h5");
    const Snapshot reader(folder_.file("run.h5"));
    std::set<std::string> modules;
    for (const OpInfo& op : reader.ops())
      if (op.name == "quantize") modules.insert(op.module);
    return modules;
  };
  EXPECT_THAT(quantizes(experiment()), ElementsAre("body.fc1", "body.fc2", "head"));
  EXPECT_THAT(quantizes(experiment({"autocast.modules.head=fp32"})), ElementsAre("body.fc1", "body.fc2"));
  EXPECT_THAT(quantizes(experiment({"autocast.ops.linear=bf16"})), ElementsAre());
  Experiment layer = experiment();
  layer.model.layers[0].dtype = DType::bf16;
  EXPECT_THAT(quantizes(layer), ElementsAre("head"));
}

// What arithmetic.ops says of linear holds for the ops that it is made of in FP8, in forward and backward.
TEST_P(Fp8Runs, TheArithmeticOfLinearIsThatOfItsFp8Form) {
  const auto weights = [&](std::vector<std::string> assignments) {
    return run(experiment(std::move(assignments))).weights_fingerprint;
  };
  const uint64_t as_default = weights({});
  EXPECT_NE(weights({"arithmetic.ops.linear.accumulate=h100"}), as_default);
  EXPECT_NE(weights({"arithmetic.ops.linear.rounding=rz"}), weights({"arithmetic.ops.scaled_matmul.rounding=rz"}));  // quantize too
  EXPECT_EQ(weights({"arithmetic.ops.linear.accumulate=h100"}), weights({"arithmetic.ops.scaled_matmul.accumulate=h100"}));
  // The op's own name comes first.
  EXPECT_EQ(weights({"arithmetic.ops.linear.accumulate=h100", "arithmetic.ops.scaled_matmul.accumulate=fp32"}), as_default);
}

// Stochastic rounding of what is quantized: another run than to nearest, and the same one whatever is recorded, whatever the
// threads.
TEST_P(Fp8Runs, StochasticRoundingOfQuantizationIsReproducible) {
  const Experiment settings = experiment({"arithmetic.ops.quantize.rounding=sr"});
  const uint64_t weights = run(settings).weights_fingerprint;
  EXPECT_NE(weights, run(experiment()).weights_fingerprint);
  EXPECT_EQ(run(settings, "run.h5").weights_fingerprint, weights);
  Experiment again = settings;
  again.model.layers[0].set("checkpoint", true);
  EXPECT_EQ(run(again).weights_fingerprint, weights);
  Experiment other = settings;
  other.seed = 6;
  EXPECT_NE(run(other).weights_fingerprint, weights);
}

INSTANTIATE_TEST_SUITE_P(Recipes, Fp8Runs, ::testing::Values("current", "delayed"),
                         [](const auto& tested) { return std::string(tested.param); });

// The layer's scale is what the largest amax of the steps before gives.
TEST(Fp8Delayed, ScalesOfARunFollowTheirHistories) {
  const TemporaryFolder folder;
  const std::vector<Override> overrides{"fp8.recipe=delayed", "fp8.amax_history=2", "training.evaluation=never"};
  TrainerOptions options;
  options.cpu.threads = 2;
  options.trace_path = folder.file("run.h5");
  train(parse_experiment(kExperiment, "small", overrides), options);
  const Snapshot reader(options.trace_path);
  std::map<uint32_t, std::vector<double>> amaxes, scales;  // by op: of each step
  reader.visit_rows({}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      const TensorInfo& tensor = reader.tensors()[row.tensor];
      if (reader.ops()[tensor.op].name != "quantize") continue;
      if (tensor.name == "amax") amaxes[tensor.op].push_back(row.statistics.largest);
      if (tensor.slot == 0) scales[tensor.op].push_back(row.quantization_scale);
    }
    return true;
  });
  ASSERT_EQ(scales.size(), 9u);
  for (const auto& [op, of_op] : scales) {
    ASSERT_EQ(of_op.size(), 8u);
    EXPECT_EQ(of_op[0], 1.0);
    for (size_t step = 1; step < of_op.size(); ++step) {
      const double amax = std::max(amaxes[op][step - 1], step > 1 ? amaxes[op][step - 2] : 0.0);
      const auto dtype = std::find_if(reader.tensors().begin(), reader.tensors().end(), [&, wanted = op](const TensorInfo& tensor) {
                           return tensor.op == wanted && tensor.slot == 0;
                         })->dtype;
      EXPECT_EQ(of_op[step], static_cast<float>(info(dtype).format->largest_finite() / amax)) << step;
    }
  }
}

// The histories are buffers of the model: a run without them, or with longer ones, cannot go on.
TEST(Fp8Delayed, ACheckpointIsOfItsRecipeAndHistory) {
  const TemporaryFolder folder;
  const std::string file = folder.file("delayed.ckpt");
  const auto experiment = [](const std::vector<Override>& overrides) { return parse_experiment(kExperiment, "small", overrides); };
  Trainer first(experiment({"fp8.recipe=delayed"}), {});
  first.step();
  first.save_checkpoint(file);
  first.finish();
  const auto error = [&](const std::vector<Override>& overrides) {
    TrainerOptions resumed;
    resumed.resume_from = file;
    return usage_error_of([&] { train(experiment(overrides), resumed); });
  };
  const auto buffers = HasSubstr("expected the same precision, fp8.recipe and fp8.amax_history");
  EXPECT_THAT(error({"precision=bf16"}), AllOf(HasSubstr("amax_history'"), HasSubstr("which this one lacks"), buffers));
  EXPECT_THAT(error({"fp8.recipe=current"}), buffers);
  EXPECT_THAT(error({"fp8.recipe=delayed", "fp8.amax_history=3"}), AllOf(HasSubstr("[1024]"), HasSubstr("[3]"), buffers));
  EXPECT_EQ(error({"fp8.recipe=delayed"}), "no error");
}

TEST(Fp8Settings, KeysOfAnotherRecipeAreErrors) {
  const auto error = [](const std::string& assignment) {
    const std::vector<Override> overrides{assignment};
    return usage_error_of([&] { validate(parse_experiment(kExperiment, "small", overrides)); });
  };
  EXPECT_THAT(error("fp8.amax_history=16"), HasSubstr("fp8.amax_history belongs to delayed; fp8.recipe is current"));
  EXPECT_THAT(error("fp8.recipe=delayd"), AllOf(HasSubstr("fp8.recipe"), HasSubstr("delayed")));
  EXPECT_THAT(error("fp8.margin=7"), HasSubstr("fp8.margin"));
}

Experiment gpt(Precision precision, ScalingRecipe recipe, int64_t steps) {
  Experiment settings = *find_preset("gpt_mini");
  settings.precision = precision;
  settings.fp8.recipe = recipe;
  settings.training.steps = steps;
  settings.training.evaluation = Evaluation::never;
  return settings;
}

double mean_of_last(const Experiment& settings, size_t last) {
  std::vector<double> losses;
  TrainerOptions options;
  options.cpu.threads = 2;
  train(settings, options, [&](const StepResult& step) { losses.push_back(step.loss); });
  double total = 0;
  for (size_t i = losses.size() - last; i < losses.size(); ++i) total += losses[i];
  return total / static_cast<double>(last);
}

TEST(Fp8Gpt, TheFirstStepsLearn) {
  for (const ScalingRecipe recipe : {ScalingRecipe::current, ScalingRecipe::delayed}) {
    Experiment settings = gpt(Precision::fp8, recipe, 3);
    const TrainResult result = train(settings, {});
    EXPECT_TRUE(std::isfinite(result.final_loss)) << name_of(recipe);
    EXPECT_LT(result.final_loss, result.first_loss) << name_of(recipe);
  }
}

// Where BF16 has come from its first loss, FP8 comes within a twentieth of the way.
TEST(Fp8Gpt, SlowReachesTheLossOfBf16) {
  const Experiment bf16 = gpt(Precision::bf16, ScalingRecipe::current, 240);
  const double first = mean_of_last(gpt(Precision::bf16, ScalingRecipe::current, 1), 1), reached = mean_of_last(bf16, 20);
  for (const ScalingRecipe recipe : {ScalingRecipe::current, ScalingRecipe::delayed}) {
    const double loss = mean_of_last(gpt(Precision::fp8, recipe, 240), 20);
    EXPECT_LT(loss, reached + 0.05 * (first - reached)) << name_of(recipe);
  }
}

}  // namespace
}  // namespace ulpscope
