// The profile against counts that were taken apart from it. Its times are not tested.
#include "ulpscope/core/observe/profile.h"

#include <gmock/gmock.h>

#include "tests/support/counting_backend.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

using Calls = std::map<std::pair<std::string, Phase>, uint64_t>;

class CallCounter : public Observer {
 public:
  void after(const OpEvent& event) override { ++calls[{std::string(event.op.name), event.phase}]; }
  Calls calls;
};

Calls calls_of(const Profile& profile) {
  Calls calls;
  for (const ProfileEntry& entry : profile.entries) calls[{std::string(entry.op), entry.phase}] += entry.calls;
  return calls;
}

class ProfileTest : public EngineTest {};

TEST_F(ProfileTest, CountsWhatTheBackendRuns) {
  CountingBackend counting(*context_.backend);
  context_.backend = &counting;
  Profiler profiler(counting);
  context_.observers = profiler.around({});
  Tensor x = random(DType::f32, {4, 3});
  x.set_requires_grad(true);
  const Tensor wide = cast(x, DType::f64);
  backward(mean(mul(wide, reshape(wide, std::vector<int64_t>{4, 3}))));
  {
    const PhaseGuard phase(Phase::evaluation);
    add(x, x);
  }
  std::map<std::string, int> calls;
  for (const ProfileEntry& entry : profiler.profile().entries) calls[std::string(entry.op)] += static_cast<int>(entry.calls);
  EXPECT_EQ(calls, counting.calls);
  EXPECT_GT(calls.size(), 3u);
}

TEST(Profiles, DeriveWhatTheTimesAddUpTo) {
  const Profile profile{{{"a", Phase::forward, 4, 6.0}, {"b", Phase::backward, 1, 2.0}}, 1.0, 16.0, {}, {}};
  EXPECT_EQ(profile.computing_seconds(), 8.0);
  EXPECT_EQ(profile.other_seconds(), 7.0);
  EXPECT_EQ(profile.share_of(profile.entries[0]), 0.75);
  EXPECT_EQ(profile.entries[0].seconds_per_call(), 1.5);
  const Profile nothing{{{"a", Phase::forward, 0, 0.0}}, 0, 0, {}, {}};
  EXPECT_EQ(nothing.share_of(nothing.entries[0]), 0);
  EXPECT_EQ(nothing.entries[0].seconds_per_call(), 0);
}

// y = x w^T + b for x [6, 20] and w [10, 20] in FP16, by hand.
TEST_F(ProfileTest, CountsOperationsBytesAndExtentsOfProducts) {
  Profiler profiler(*context_.backend);
  const Tensor x = cast(random(DType::f32, {6, 20}), DType::f16), w = cast(random(DType::f32, {10, 20}), DType::f16);
  const Tensor b = cast(random(DType::f32, {10}), DType::f16);
  const Tensor row = random(DType::f32, {1, 20}), tall = random(DType::f32, {30, 20});
  context_.observers = profiler.around({});
  const auto in_module = [&](const char* module, auto body) {
    const ContextGuard<&Context::module> guard(intern(module));
    body();
  };
  in_module("first", [&] { call("linear", {x, w, b}); });
  in_module("first", [&] { call("linear", {x, w, b}); });
  in_module("second", [&] { call("linear", {x, w, b}); });
  in_module("second", [&] { add(tall, row); });
  const Profile profile = profiler.profile();
  const auto find = [](const std::vector<ProfileEntry>& entries, std::string_view op, std::string_view module) {
    return *std::find_if(entries.begin(), entries.end(),
                         [&](const auto& entry) { return entry.op == op && entry.module == module; });
  };
  const double linear_flop = 2.0 * 6 * 10 * 20, linear_bytes = 2.0 * (6 * 20 + 10 * 20 + 10 + 6 * 10);
  const double add_flop = 30 * 20, add_bytes = 4.0 * (30 * 20 + 20 + 30 * 20);
  const ProfileEntry first = find(profile.entries, "linear", "first");
  EXPECT_EQ(first.calls, 2u);
  EXPECT_EQ(first.flop, 2 * linear_flop);
  EXPECT_EQ(first.bytes, 2 * linear_bytes);
  EXPECT_EQ(find(profile.entries, "add", "second").flop, add_flop);
  EXPECT_EQ(find(profile.entries, "add", "second").bytes, add_bytes);
  EXPECT_EQ(find(profile.by_op(), "linear", "").calls, 3u);
  const ProfileEntry second = find(profile.by_module(), "", "second");
  EXPECT_EQ(second.calls, 2u);
  EXPECT_EQ(second.flop, linear_flop + add_flop);
  EXPECT_EQ(second.bytes, linear_bytes + add_bytes);

  ASSERT_EQ(profile.products.size(), 2u);
  const ProfiledProduct& product = profile.products[0];
  EXPECT_EQ(product.module, "first");
  EXPECT_EQ(product.calls, 2u);
  EXPECT_EQ(product.dtype, DType::f16);
  EXPECT_EQ(product.shape.padding(), "M 6 -> 8, N 10 -> 16, K 20 -> 24");
  EXPECT_FALSE(product.is_eligible());
}

// Operations on each element, counted in the formulas of docs/ops.md: softmax is max, -, exp, + and /, for instance.
TEST_F(ProfileTest, CountsTheOperationsOfReductionsNormalizationsAndLosses) {
  Profiler profiler(*context_.backend);
  const auto input = [&](std::vector<int64_t> shape) {
    Tensor tensor = random(DType::f32, std::move(shape));
    tensor.set_requires_grad(true);
    return tensor;
  };
  const Tensor logits = input({192, 256}), x = input({30, 50}), weight = input({50}), bias = input({50});
  Tensor running_mean = random(DType::f32, {50}), running_variance = random(DType::f32, {50});
  std::vector<int64_t> classes(192);
  for (size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<int64_t>(i);
  const Tensor target = labels(classes);
  context_.observers = profiler.around({});
  backward(cross_entropy(logits, target));
  backward(sum(call("layer_norm", {x, weight, bias}, {{"eps", 1e-5}})));
  softmax(x);
  mse(x, x.detach());
  call("gradient_norm", {x.detach(), weight.detach()});
  const NoGrad no_grad;
  const Attributes evaluation{{"training", 0}, {"momentum", 0.1}, {"eps", 1e-5}},
      training{{"training", 1}, {"momentum", 0.1}, {"eps", 1e-5}};
  const ContextGuard<&Context::phase> phase(Phase::evaluation);
  call("batch_norm", {x, weight, bias, running_mean, running_variance}, evaluation);
  std::map<std::string, double> flop;
  for (const ProfileEntry& entry : profiler.profile().entries) flop[std::string(entry.op)] += entry.flop;
  EXPECT_EQ(flop["cross_entropy"], 4.0 * 192 * 256);  // max, -, exp, +
  EXPECT_EQ(flop["cross_entropy_backward"], 3.0 * 192 * 256);
  EXPECT_EQ(flop["sum"], 30 * 50);
  EXPECT_EQ(flop["layer_norm"], 8.0 * 30 * 50);  // a sum; -, *, +; -, *, *, +
  EXPECT_EQ(flop["layer_norm_backward_weight"], 5.0 * 30 * 50);
  EXPECT_EQ(flop["softmax"], 5.0 * 30 * 50);
  EXPECT_EQ(flop["mse"], 3.0 * 30 * 50);
  EXPECT_EQ(flop["gradient_norm"], 2.0 * (30 * 50 + 50));
  EXPECT_EQ(flop["batch_norm"], 3.0 * 30 * 50);
  call("batch_norm", {x, weight, bias, running_mean, running_variance}, training);
  flop.clear();
  for (const ProfileEntry& entry : profiler.profile().entries) flop[std::string(entry.op)] += entry.flop;
  EXPECT_EQ(flop["batch_norm"], (3.0 + 7) * 30 * 50);
}

TEST(Profiles, ReachAShareOfTheRoofline) {
  const Roofline roofline{100, 10};                                                   // 10 operations a byte balance both
  EXPECT_EQ(roofline.share_reached({.seconds = 4, .flop = 200, .bytes = 1}), 0.5);    // bound by computing: 2 s at least
  EXPECT_EQ(roofline.share_reached({.seconds = 4, .flop = 200, .bytes = 30}), 0.75);  // by memory: 3 s
  ProfiledProduct product{.op = "linear", .dtype = DType::bf16, .shape = {.m = 8, .n = 16, .k = 24}};
  EXPECT_TRUE(product.is_eligible());
  product.dtype = DType::f32;
  EXPECT_FALSE(product.is_eligible());
}

TEST_F(ProfileTest, SlowTheRooflineIsMeasured) {
  const Roofline roofline = measure_roofline(*context_.backend);
  // Any machine of this century, and none of it.
  EXPECT_GT(roofline.flop_per_second, 1e8);
  EXPECT_LT(roofline.flop_per_second, 1e15);
  EXPECT_GT(roofline.bytes_per_second, 1e8);
  EXPECT_LT(roofline.bytes_per_second, 1e14);
}

// Two heads of 12 features on 16 places, and 16 steps of an LSTM of 20 units, by hand: what is padded, and how much more work that
// is.
TEST(TrainingProfile, AndReportOfTheTraceTellTheSameProducts) {
  constexpr const char* kModel = R"(
precision = "fp16"
[model]
layers = [
  { type = "reshape", shape = [16, 24] },
  { type = "attention", name = "heads", heads = 2, kind = "explicit" },
  { type = "lstm", name = "rnn", hidden_size = 20, return_sequences = false },
  { type = "linear", name = "head", out_features = 10 },
]
[data]
kind = "random_classification"
shape = [384]
train_size = 64
[training]
batch_size = 8
steps = 3
evaluation = "never"
)";
  const TemporaryFolder folder;
  TrainerOptions options;
  options.profile = true;
  options.trace_path = folder.file("run.h5");
  const TrainResult result = train(parse_experiment(kModel, "run.toml"), options, [](const StepResult&) {});

  struct Row {
    const char* module;
    int64_t m, n, k, batch, calls;
    const char* padding;
    double padded_over_real;
    double flop() const { return 2.0 * static_cast<double>(m * n * k * batch * calls); }
  };
  const Row rows[] = {
      {"heads.qkv", 8 * 16, 72, 24, 1, 1, "", 1},
      {"heads", 16, 16, 12, 8 * 2, 1, "K 12 -> 16", 16.0 / 12},
      {"heads", 16, 12, 16, 8 * 2, 1, "N 12 -> 16", 16.0 / 12},
      {"heads.out", 8 * 16, 24, 24, 1, 1, "", 1},
      {"rnn", 8 * 16, 80, 24, 1, 1, "", 1},
      {"rnn", 8, 80, 20, 1, 16, "K 20 -> 24", 24.0 / 20},
      {"head", 8, 10, 20, 1, 1, "N 10 -> 16, K 20 -> 24", 16.0 / 10 * (24.0 / 20)},
  };
  ASSERT_EQ(result.profile->products.size(), std::size(rows));
  double work = 0, padded_work = 0;
  for (const Row& row : rows) {
    SCOPED_TRACE(fmt::format("{} {} {} {}", row.module, row.m, row.n, row.k));
    work += row.flop();
    padded_work += row.flop() * row.padded_over_real;
    const ProductShape shape{row.m, row.n, row.k, row.batch, true};
    const auto product = std::find_if(result.profile->products.begin(), result.profile->products.end(),
                                      [&](const ProfiledProduct& p) { return p.module == row.module && p.shape == shape; });
    ASSERT_NE(product, result.profile->products.end());
    EXPECT_EQ(product->calls, static_cast<uint64_t>(3 * row.calls));
    EXPECT_EQ(product->dtype, DType::f16);
    EXPECT_EQ(product->shape.padding(), row.padding);
    EXPECT_DOUBLE_EQ(product->shape.padded_over_real(), row.padded_over_real);
  }

  ReportOptions only;
  only.only = {"tensor_cores"};
  const Report report = analyze_all(Snapshot(options.trace_path), only);
  ASSERT_EQ(report.findings.size(), 1u);
  const Finding& finding = report.findings[0];
  EXPECT_THAT(finding.title, ::testing::StartsWith("19 FP16 "));
  EXPECT_THAT(finding.title, ::testing::HasSubstr(" have dimensions that are not multiples of 8."));
  EXPECT_THAT(finding.title, ::testing::HasSubstr(fmt::format(" costs {:.3g}x the ", padded_work / work)));
  ASSERT_EQ(finding.evidence.size(), 4u);
  for (const Evidence& evidence : finding.evidence) {
    const auto row = std::find_if(std::begin(rows), std::end(rows), [&](const Row& candidate) {
      return candidate.module == evidence.key.module && evidence.values[0].value == Cell(std::string(candidate.padding));
    });
    ASSERT_NE(row, std::end(rows)) << evidence.key.name;
    EXPECT_DOUBLE_EQ(std::get<double>(evidence.values[1].value), row->padded_over_real);
    EXPECT_DOUBLE_EQ(std::get<double>(evidence.values[2].value), row->flop() / work);
    EXPECT_EQ(evidence.values[3].value, count_cell(static_cast<uint64_t>(row->calls)));
  }
}

// Linear layers in FP8 beside a product in BF16, by hand: M, N and K of FP8 products are padded to multiples of 16.
TEST(TrainingProfile, AndReportOfTheTraceKnowWhatFp8Pads) {
  constexpr const char* kModel = R"(
precision = "fp8"
[model]
layers = [
  { type = "linear", name = "first", out_features = 24 },
  { type = "linear", name = "second", out_features = 48 },
  { type = "linear", name = "head", out_features = 12, dtype = "bf16" },
]
[data]
kind = "random_classification"
shape = [64]
train_size = 64
[training]
batch_size = 16
steps = 2
evaluation = "never"
)";
  const TemporaryFolder folder;
  TrainerOptions options;
  options.profile = true;
  options.trace_path = folder.file("run.h5");
  const TrainResult result = train(parse_experiment(kModel, "run.toml"), options, [](const StepResult&) {});
  struct Row {
    const char* module;
    DType dtype;
    const char* padding;
    double flop, padded_over_real;
  };
  const Row rows[] = {{"first", DType::f8_e4m3, "N 24 -> 32", 2.0 * 16 * 24 * 64, 32.0 / 24},
                      {"second", DType::f8_e4m3, "K 24 -> 32", 2.0 * 16 * 48 * 24, 32.0 / 24},
                      {"head", DType::bf16, "N 12 -> 16", 2.0 * 16 * 12 * 48, 16.0 / 12}};
  ASSERT_EQ(result.profile->products.size(), std::size(rows));
  double work = 0, padded_work = 0;
  for (const Row& row : rows) {
    SCOPED_TRACE(row.module);
    work += row.flop;
    padded_work += row.flop * row.padded_over_real;
    const auto product = std::find_if(result.profile->products.begin(), result.profile->products.end(),
                                      [&](const ProfiledProduct& p) { return p.module == row.module; });
    ASSERT_NE(product, result.profile->products.end());
    EXPECT_EQ(product->dtype, row.dtype);
    EXPECT_EQ(product->shape.padding(), row.padding);
    EXPECT_DOUBLE_EQ(product->shape.flop(), row.flop);
    EXPECT_FALSE(product->is_eligible());
  }
  ReportOptions only;
  only.only = {"tensor_cores"};
  const Report report = analyze_all(Snapshot(options.trace_path), only);
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(
      report.findings[0].title,
      fmt::format("3 BF16 and FP8 matmuls have dimensions that are not multiples of 8 and 16. Padding them for tensor cores costs "
                  "{:.3g}x the forward pass's matmul FLOPs.",
                  padded_work / work));
  EXPECT_THAT(report.findings[0].suggestion,
              ::testing::StartsWith("Use feature, channel and batch sizes that are multiples of 16. cuBLASLt and"));
  EXPECT_EQ(report.findings[0].evidence[0].values[0].value, Cell(std::string("N 24 -> 32")));
}

TEST(TrainingProfile, ShowsWhatCheckpointsComputeAgain) {
  Experiment experiment = *find_preset("checkpointing");
  experiment.training.steps = 2;
  experiment.training.batch_size = 16;
  experiment.training.evaluation = Evaluation::never;
  const auto profile_of = [&] {
    TrainerOptions options;
    options.profile = true;
    return *train(experiment, options, [](const StepResult&) {}).profile;
  };
  using Totals = std::map<std::string, std::pair<uint64_t, double>>;  // calls and FLOP of an op
  const auto totals = [](const Profile& profile, Phase phase) {
    Totals ops;
    for (const ProfileEntry& entry : profile.entries) {
      if (entry.phase != phase || !entry.module.starts_with("blocks")) continue;
      auto& [calls, flop] = ops[std::string(entry.op)];
      calls += entry.calls;
      flop += entry.flop;
    }
    return ops;
  };
  const Profile with = profile_of();
  const Totals forward = totals(with, Phase::forward);
  EXPECT_EQ(forward.at("linear").first, 2u * 12 * 2);
  EXPECT_EQ(totals(with, Phase::recompute), forward);
  experiment.model.layers[0].set("checkpoint", false);
  const Profile without = profile_of();
  EXPECT_TRUE(totals(without, Phase::recompute).empty());
  EXPECT_EQ(totals(without, Phase::forward), forward);
}

TEST(TrainingProfile, HasEveryOpInItsPhase) {
  Experiment experiment = *find_preset("mlp");
  experiment.precision = Precision::fp16;
  experiment.training.steps = 3;
  experiment.training.evaluation = Evaluation::never;
  TrainerOptions options;
  options.profile = true;
  Trainer trainer(experiment, options);
  CallCounter counter;
  trainer.context().observers.push_back(&counter);
  while (!trainer.finished()) trainer.step();
  EXPECT_EQ(calls_of(*trainer.finish().profile), counter.calls);
  for (const Phase phase : {Phase::data, Phase::forward, Phase::loss, Phase::backward, Phase::scaling, Phase::optimizer}) {
    EXPECT_TRUE(std::any_of(counter.calls.begin(), counter.calls.end(), [&](const auto& item) {
      return item.first.second == phase;
    })) << name_of(phase);
  }

  experiment.training.evaluation = Evaluation::end;
  Trainer evaluated(experiment, options);
  while (!evaluated.finished()) evaluated.step();
  const Calls with_evaluation = calls_of(*evaluated.finish().profile);
  EXPECT_EQ((with_evaluation.count({"correct_count", Phase::evaluation})), 1u);

  options.profile = false;
  Trainer bare(experiment, options);
  EXPECT_TRUE(bare.context().observers.empty());
  EXPECT_FALSE(bare.finish().profile);
}

}  // namespace
}  // namespace ulpscope
