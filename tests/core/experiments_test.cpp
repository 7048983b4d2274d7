// The scenarios in experiments/: what the comment of each file says is to be seen is seen, in fewer steps where those show it.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "tests/support/temporary_folder.h"
#include "ulpscope/analyzers/subject/selection.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
#include "ulpscope/analyzers/verbs/compare.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

// How near two runs come, and how far a loss falls, no bound tells: those limits are from runs of seeds 1 to 6, and beside each
// stands the worst that was seen there. A difference may be up to ten times as large.
class Scenarios : public ::testing::Test {
 protected:
  struct Run {
    std::vector<StepResult> steps;
    TrainResult result;
    std::vector<double> losses() const {
      std::vector<double> all;
      for (const StepResult& step : steps) all.push_back(step.loss);
      return all;
    }
    // Mean loss of the last ten steps.
    double end() const {
      double sum = 0;
      for (size_t i = steps.size() - 10; i < steps.size(); ++i) sum += steps[i].loss;
      return sum / 10;
    }
  };

  static Experiment preset(const char* name, std::initializer_list<Override> overrides = {}) {
    Experiment experiment = *find_preset(name);
    for (const Override& setting : overrides) apply_override(experiment, setting);
    return experiment;
  }
  // Recorded where `trace` names a file.
  Run run(const Experiment& experiment, const std::string& trace = "") {
    TrainerOptions options;
    options.cpu.threads = 1;
    if (!trace.empty()) options.trace_path = folder_.file(trace);
    Run run;
    run.result = train(experiment, options, [&](const StepResult& step) { run.steps.push_back(step); });
    return run;
  }
  std::string file(const std::string& name) const { return folder_.file(name); }

  TemporaryFolder folder_;
};

TEST_F(Scenarios, ScalerMlpGrowsUntilItOverflowsAndBacksOff) {
  const Run seen = run(preset("scaler_mlp"));
  double largest = 0;
  for (size_t i = 0; i + 1 < seen.steps.size(); ++i) {
    const double now = seen.steps[i].scale, next = seen.steps[i + 1].scale;
    largest = std::max(largest, now);
    EXPECT_TRUE(next == now || next == 2 * now || next == now / 2) << i;
    EXPECT_EQ(next == now / 2, seen.steps[i].skipped) << i;
  }
  EXPECT_GT(largest, 0x1p18);
  EXPECT_GT(seen.result.skipped_steps, 0u);
  EXPECT_LT(seen.end(), seen.steps[0].loss / 2);  // 0.24
}

TEST_F(Scenarios, ClippingKeepsTheNormWithinItsLimit) {
  run(preset("clipping", {"training.steps=30"}), "clipping.h5");
  const Snapshot reader(file("clipping.h5"));
  std::map<uint64_t, double> squares;  // of the gradients that clip_norm left, by step
  reader.visit_rows({}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows)
      if (reader.ops()[reader.tensors()[row.tensor].op].name == "clip_norm") squares[row.step] += row.statistics.sum_of_squares;
    return true;
  });
  // FP32 rounds the norm, the norm plus 1e-6, that constant, the limit over the sum, and each gradient times the ratio.
  const double u = 0x1p-24, gamma = 5 * u / (1 - 5 * u);
  uint64_t steps = 0, clipped = 0;
  reader.visit_steps({}, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) {
      ++steps;
      clipped += row.gradient_norm > 0.5;
      const double norm = std::sqrt(squares[row.step]);
      EXPECT_LE(norm, 0.5 * (1 + gamma));
      EXPECT_LE(std::abs(norm - row.clipped_gradient_norm), gamma * row.clipped_gradient_norm);
      EXPECT_LE(row.clipped_gradient_norm, row.gradient_norm);
    }
    return true;
  });
  EXPECT_EQ(steps, 30u);
  EXPECT_EQ(clipped, steps);
}

TEST_F(Scenarios, AccumulationOfFourBatchesIsOneOfFourTimesTheSize) {
  const Run four = run(preset("accumulation", {"training.steps=5"}));
  const Run one = run(preset("accumulation", {"training.steps=5", "training.batch_size=32", "training.accumulation=1"}));
  // Sums of the same FP16 products in another order: an ulp of FP16 in each of some hundred gradients at most, of a loss of
  // about 2.
  EXPECT_LE(std::abs(four.steps[0].loss - one.steps[0].loss), 4 * 0x1p-24 * one.steps[0].loss);
  EXPECT_LE(std::abs(four.steps[4].loss - one.steps[4].loss), 3e-4 * one.steps[4].loss);  // 2.6e-5
}

TEST_F(Scenarios, CheckpointingGivesTheSameWeightsInLessMemory) {
  std::vector<LayerSpec> kept = preset("checkpointing").model.layers;
  kept.at(0).set("checkpoint", false);
  Experiment without = preset("checkpointing", {"training.steps=5"});
  without.model.layers = kept;
  const Run again = run(preset("checkpointing", {"training.steps=5"})), all = run(without);
  EXPECT_EQ(again.losses(), all.losses());
  EXPECT_EQ(again.result.weights_fingerprint, all.result.weights_fingerprint);
  // What is not kept: of all blocks but the one under way, the inputs of both linear layers and of gelu in FP16.
  const size_t not_kept = size_t{11} * 3 * 1024 * 64 * sizeof(uint16_t);
  EXPECT_LE(again.result.peak_memory_bytes + not_kept, all.result.peak_memory_bytes);
}

TEST_F(Scenarios, SeveralOptimizersShareOneScaler) {
  const Run seen = run(preset("several_optimizers"), "several.h5");
  EXPECT_GT(seen.result.skipped_steps, 0u) << "it begins with an overflow";
  EXPECT_LT(seen.end(), seen.steps[0].loss / 2);  // 0.20
  const Snapshot reader(file("several.h5"));
  std::map<std::string, std::set<std::string>> updates;
  for (const OpInfo& op : reader.ops())
    if (op.name.ends_with("_update")) updates[op.module].insert(op.name);
  EXPECT_EQ(updates, (decltype(updates){{"below", {"adam_update"}}, {"head", {"sgd_update"}}}));
}

TEST_F(Scenarios, PureFP16StallsWhereMasterWeightsAndAScalerLearn) {
  const Run stalled = run(preset("pure_fp16", {"training.steps=40"})),
            still = run(preset("pure_fp16", {"training.steps=40", "optimizer.learning_rate=0"}));
  EXPECT_EQ(stalled.losses(), still.losses()) << "its weights should never change";
  EXPECT_EQ(stalled.result.weights_fingerprint, still.result.weights_fingerprint);
  EXPECT_THROW(run(preset("pure_fp16", {"scaler.enabled=on"})), Error) << "there is nothing to unscale into";
  EXPECT_THROW(run(preset("pure_fp16", {"optimizer.learning_rate=65505"})), Error) << "FP16 ends at 65504";
  const Run kept = run(preset("pure_fp16", {"scaler.enabled=on", "optimizer.master_weights=true"}));
  EXPECT_LT(kept.end(), 0.7 * kept.steps[0].loss);  // 0.51
  const Run wide = run(preset("pure_fp16", {"precision=fp32"})), amp = run(preset("pure_fp16", {"precision=fp16"}));
  EXPECT_LT(wide.end(), 0.7 * wide.steps[0].loss);                 // 0.50
  EXPECT_LE(std::abs(amp.end() - wide.end()), 3e-3 * wide.end());  // 1.5e-4
}

TEST_F(Scenarios, BF16TrainsWithoutAScalerWhereFP16DoesNot) {
  const Run bf16 = run(preset("bf16_without_scaler")), fp32 = run(preset("bf16_without_scaler", {"precision=fp32"}));
  EXPECT_LE(std::abs(bf16.end() - fp32.end()), 1e-2 * fp32.end());  // 9.3e-4
  EXPECT_LT(bf16.end(), 0.7 * bf16.steps[0].loss);                  // 0.60
  const Run fp16 = run(preset("bf16_without_scaler", {"precision=fp16", "scaler.enabled=off", "training.steps=20"}));
  Experiment whole = preset("bf16_without_scaler", {"precision=fp16", "scaler.enabled=off", "training.steps=20"});
  whole.optimizer.learning_rate = 0;
  EXPECT_EQ(fp16.losses(), run(whole).losses()) << "its weights should never change";
}

TEST_F(Scenarios, KerasComputesSoftmaxInFP16AndItsLastLayerInFP32) {
  run(preset("keras_policy", {"training.steps=2"}), "keras.h5");
  run(preset("keras_policy", {"training.steps=2", "precision=fp16"}), "torch.h5");
  const auto type_of_output = [&](const char* trace, const char* op, const char* module) {
    const Snapshot reader(file(trace));
    std::string types;
    for (const TensorInfo& tensor : reader.tensors()) {
      const OpInfo& made_by = reader.ops()[tensor.op];
      if (made_by.phase == Phase::forward && made_by.name == op && made_by.module == module) types += info(tensor.dtype).name;
    }
    return types;
  };
  EXPECT_EQ(type_of_output("keras.h5", "masked_softmax", "attention.heads"), "f16");
  EXPECT_EQ(type_of_output("torch.h5", "masked_softmax", "attention.heads"), "f32");
  EXPECT_EQ(type_of_output("keras.h5", "linear", "head"), "f32");
  EXPECT_EQ(type_of_output("keras.h5", "linear", "attention.heads.qkv"), "f16");
}

TEST_F(Scenarios, ApexLevelsLearnAndO3BreaksDown) {
  const auto level = [&](const char* precision) {
    return run(preset("apex_levels", {std::string("precision=") + precision, "training.steps=60"}));
  };
  const Run o0 = level("apex_o0"), o1 = level("apex_o1"), o2 = level("apex_o2"), o3 = level("apex_o3");
  EXPECT_EQ(o0.losses(), level("fp32").losses());
  EXPECT_LT(o0.end(), 0.7 * o0.steps[0].loss);                // 0.56
  EXPECT_LE(std::abs(o1.end() - o0.end()), 6e-4 * o0.end());  // 5.8e-5
  EXPECT_LE(std::abs(o2.end() - o0.end()), 3e-3 * o0.end());  // 2.5e-4
  EXPECT_FALSE(std::isfinite(o3.steps.back().loss));
  const Run wide = run(preset("apex_levels", {"precision=apex_o3", "optimizer.math=fp32", "training.steps=60"}));
  EXPECT_TRUE(std::isfinite(wide.steps.back().loss));
}

// What the report of a broken run says, followed.
TEST_F(Scenarios, AdviceOnPureFp16IsWorthFollowing) {
  const auto problems = [&](const char* trace) {
    std::map<std::string, std::string> said;  // of errors and warnings, by code
    for (const Finding& finding : analyze_all(Snapshot(file(trace))).findings)
      if (finding.severity != Severity::info && finding.code != "recording.warning")
        said[finding.code] = finding.title.text() + " " + finding.suggestion.text();
    return said;
  };
  run(preset("pure_fp16", {"training.steps=40"}), "stalled.h5");
  const auto stalled = problems("stalled.h5");
  EXPECT_THAT(stalled.at("updates.none_applied"), HasSubstr("where gradients become zero"));
  EXPECT_THAT(stalled.at("scale.missing"), HasSubstr("optimizer.master_weights = true, scaler.enabled = \"on\""));
  for (const auto& [code, suggestion] : stalled) EXPECT_THAT(suggestion, Not(HasSubstr("autocast."))) << code;
  const Run mended =
      run(preset("pure_fp16", {"training.steps=40", "optimizer.master_weights=true", "scaler.enabled=on"}), "mended.h5");
  EXPECT_TRUE(problems("mended.h5").empty()) << problems("mended.h5").begin()->first;
  EXPECT_LT(mended.end(), mended.steps[0].loss);

  // Adam with a rounding after every operation divides by zero, and the report says which number was zero, and why.
  run(preset("apex_levels", {"precision=apex_o3", "training.steps=3"}), "adam.h5");
  EXPECT_FALSE(problems("adam.h5").contains("range.values_overflow")) << "an update is no forward value";
  const std::string cause = problems("adam.h5").at("range.nonfinite");
  EXPECT_THAT(cause, HasSubstr("Adam divides by zero"));
  EXPECT_THAT(cause, HasSubstr("eps = 1e-08"));
  EXPECT_THAT(cause, HasSubstr(fmt::format("up to 2^{:.1f}", std::log2(std::sqrt(0x1p-25 / 0.001)))));
  EXPECT_THAT(cause, HasSubstr("optimizer.math = \"fp32\""));
  for (const Override& advice : {Override("optimizer.math=fp32"), Override("optimizer.master_weights=true")}) {
    run(preset("apex_levels", {"precision=apex_o3", "training.steps=3", advice}), "finite.h5");
    EXPECT_FALSE(problems("finite.h5").contains("range.nonfinite"));
    std::filesystem::remove(file("finite.h5"));
  }
  const Snapshot reader(file("adam.h5"));
  const Selection selection(reader, {});
  std::set<std::string> names;
  for (uint32_t i = 0; i < selection.size(); ++i)
    if (selection.op(i).name == "adam_update") names.insert(selection.name(i));
  EXPECT_THAT(names, Contains("head.weight"));
  EXPECT_THAT(names, Contains("head.weight exp_avg_sq"));
}

TEST_F(Scenarios, OddDimensionsComputeTheSame) {
  const Run seen = run(preset("odd_dimensions"), "odd.h5"), wide = run(preset("odd_dimensions", {"precision=fp32"}));
  EXPECT_LE(std::abs(seen.end() - wide.end()), 1e-3 * wide.end());  // 1.0e-4
  const Snapshot reader(file("odd.h5"));
  int products = 0;
  for (const TensorInfo& tensor : reader.tensors()) {
    if (tensor.role != Role::weight_cast || tensor.shape.size() != 2) continue;
    ++products;
    EXPECT_TRUE(tensor.shape[0] % 8 != 0 || tensor.shape[1] % 8 != 0) << reader.ops()[tensor.op].module;
  }
  EXPECT_EQ(products, 2 * 3) << "in training and evaluation";
  // 250 x 100, 250 x 250 and 10 x 250 multiply-adds a sample, of which tensor cores make 256 x 104, 256 x 256 and 16 x 256.
  ReportOptions options;
  options.only = {"tensor_cores"};
  const Report report = analyze_all(reader, options);
  ASSERT_EQ(report.findings.size(), 1u);
  const Finding& finding = report.findings[0];
  EXPECT_EQ(finding.code, "tensor_cores.padding");
  EXPECT_EQ(finding.severity, Severity::info);
  EXPECT_EQ(
      finding.title,
      fmt::format("3 FP16 matmuls have dimensions that are not multiples of 8. Padding them for tensor cores costs {:.3g}x the "
                  "forward pass's matmul FLOPs.",
                  (256.0 * 104 + 256 * 256 + 16 * 256) / (250 * 100 + 250 * 250 + 10 * 250)));
  ASSERT_EQ(finding.evidence.size(), 3u);  // the most work that padding adds first
  const std::pair<const char*, const char*> expected[] = {
      {"second", "N 250 -> 256, K 250 -> 256"}, {"first", "N 250 -> 256, K 100 -> 104"}, {"head", "N 10 -> 16, K 250 -> 256"}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(finding.evidence[i].key.module, expected[i].first);
    EXPECT_EQ(finding.evidence[i].values[0].value, Cell(std::string(expected[i].second)));
  }
  EXPECT_EQ(finding.evidence[2].values[1].value, Cell(16.0 / 10 * (256.0 / 250)));
  EXPECT_EQ(finding.evidence[2].values[2].value, Cell(2500.0 / 90000));
  // FP32 has no tensor cores to feed, and extents that fit need no padding.
  run(preset("odd_dimensions", {"precision=fp32"}), "wide.h5");
  EXPECT_TRUE(analyze_all(Snapshot(file("wide.h5")), options).findings.empty());
}

TEST_F(Scenarios, InferenceRunsUnderAutocastAndNothingElseIsRecorded) {
  const Run seen = run(preset("inference"), "inference.h5");
  ASSERT_TRUE(seen.result.test);
  const Run wide = run(preset("inference", {"precision=fp32"}));
  EXPECT_LE(std::abs(*seen.result.test->accuracy - *wide.result.test->accuracy), 12.0 / 256);  // 3 of 256 samples
  const Snapshot reader(file("inference.h5"));
  std::set<std::string> linear;
  reader.visit_rows({}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      const TensorInfo& tensor = reader.tensors()[row.tensor];
      const OpInfo& op = reader.ops()[tensor.op];
      EXPECT_EQ(op.phase, Phase::evaluation);
      EXPECT_FALSE(is_gradient(tensor.role));
      if (op.name == "linear") linear.insert(std::string(info(tensor.dtype).name));
    }
    return true;
  });
  EXPECT_EQ(linear, std::set<std::string>{"f16"});
}

// The article's table: time, loss and memory of FP32 and mixed precision side by side.
TEST_F(Scenarios, CompareShowsTimeLossAndMemoryOfConvSine) {
  const std::initializer_list<Override> small{"data.height=32", "data.width=32", "training.steps=30"};
  Experiment experiment = preset("conv_sine", small);
  run(experiment, "fp32.h5");
  experiment.precision = Precision::fp16;
  run(experiment, "fp16.h5");
  const Snapshot a(file("fp32.h5")), b(file("fp16.h5"));
  const Report report = analyze_compare(a, b, {});
  std::map<std::string, double> ratios;
  for (const Table& table : report.tables) {
    if (table.name != "summary") continue;
    for (const TableRow& row : table.rows)
      if (const double* ratio = std::get_if<double>(&row.cells[3])) ratios[std::get<std::string>(row.cells[0])] = *ratio;
  }
  EXPECT_GT(ratios.at("seconds_per_step"), 0);
  EXPECT_LE(std::abs(ratios.at("final_loss") - 1), 0.1);  // 0.023
  EXPECT_GT(ratios.at("mean_loss_of_last_30_steps"), 0);
  EXPECT_LT(ratios.at("peak_memory_bytes"), 0.8);  // 0.66
}

}  // namespace
}  // namespace ulpscope
