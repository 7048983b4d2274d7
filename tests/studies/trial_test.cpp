// What a capsule keeps is enough to run its steps again, bit by bit; and what is changed shows.
#include "ulpscope/studies/trial.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "capsule_fixture.h"
#include "tests/support/project_files.h"
#include "tests/support/python.h"
#include "ulpscope/analyzers/verbs/trace_difference.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/hdf5/hdf5.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/studies/replay.h"

namespace ulpscope {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Trials = CapsuleTest;

const std::vector<std::vector<std::string>>& precisions() {
  static const std::vector<std::vector<std::string>> all{
      {"precision=fp32"}, {"precision=fp16"}, {"precision=bf16"}, {"precision=fp8"}, {"precision=fp8", "fp8.recipe=delayed"}};
  return all;
}

TEST_F(Trials, AreBitEqualInEveryPrecisionAndAccumulation) {
  for (std::vector<std::string> overrides : precisions()) {
    overrides.push_back("arithmetic.accumulate=fp32");
    for (const char* accumulate : {"fp32", "h100"}) {
      overrides.back() = fmt::format("arithmetic.accumulate={}", accumulate);
      expect_bit_equal(train(experiment(overrides), at_step(8, 3)), fmt::format("{}", fmt::join(overrides, " ")));
    }
  }
  expect_bit_equal(train(experiment({"precision=pure_bf16", "optimizer.math=fp32", "arithmetic.rounding=sr"}), at_step(8, 3)),
                   "stochastic rounding");
  expect_bit_equal(train(experiment({"precision=apex_o2", "optimizer.type=sgd", "optimizer.momentum=0.9"}), at_step(8, 3)),
                   "apex_o2");
}

// The last snapshot that lies keep_steps before the event, where they are taken every keep_steps steps from the run's first on.
TEST_F(Trials, BeginAsManyStepsBeforeTheEventAsAreKept) {
  const Experiment settings = experiment({"training.steps=12", "training.evaluation=never", "recording.level=off"});
  for (const uint64_t keep : {1, 2, 3, 5, 20}) {
    for (uint64_t step = 0; step < 12; ++step) {
      const std::optional<CapsuleOutcome> capsule = train(settings, at_step(step, keep)).capsule;
      uint64_t expected = 0;
      while (expected + 2 * keep <= step) expected += keep;
      ASSERT_TRUE(capsule->written) << capsule->failure;
      EXPECT_EQ(capsule->first_step, expected) << step << " " << keep;
      EXPECT_EQ(capsule->last_step, step);
      EXPECT_GE(step - capsule->first_step, std::min(step, keep));
      EXPECT_EQ(read_capsule_steps(file("capsule")).steps.size(), step - expected + 1);
    }
  }
}

// The first output of the step, in order of execution, that the recording says is not finite.
struct Place {
  std::string op, module;
  uint64_t step = 0;
  bool operator==(const Place&) const = default;
};
std::optional<Place> first_nonfinite(const Snapshot& trace, uint64_t from) {
  std::optional<Place> first;
  trace.visit_rows({from, UINT64_MAX}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      const TensorInfo& tensor = trace.tensors()[row.tensor];
      const OpInfo& op = trace.ops()[tensor.op];
      if (stored_nonfinite(row, tensor.dtype) == 0) continue;
      first = Place{op.name, op.module, row.step};
      return false;
    }
    return true;
  });
  return first;
}

TEST_F(Trials, WhatFailedFailsAgainInTheSameStepAndOp) {
  for (const char* name : {"log_of_zero", "sqrt_backward_at_zero_fp32", "diverges_fp16", "loss_factor_overflows_without_scaler",
                           "activations_overflow_fp16", "nan_in_data", "reciprocal_of_zero"}) {
    SCOPED_TRACE(name);
    const Experiment settings = load_experiment(project_file(fmt::format("experiments/failures/{}.toml", name)));
    const TrainResult trained = train(settings, {file("capsule"), CapsuleEvent::nan, 0, 4});
    ASSERT_TRUE(trained.capsule->written) << trained.capsule->event << trained.capsule->failure;
    const TrialOutcome outcome = run(trial());
    EXPECT_TRUE(outcome.is_as_before());
    const TrialStep* step = outcome.first_nonfinite_step();
    ASSERT_NE(step, nullptr);
    const NonfiniteOutput& found = *step->result.nonfinite;
    EXPECT_EQ((Place{found.name, found.module, step->result.step}),
              first_nonfinite(Snapshot(file("run.h5")), trained.capsule->first_step));
    EXPECT_FALSE(outcome.weights_are_finite && std::isfinite(outcome.steps.back().result.loss));
    // Nothing was wrong before the last step, or the capsule would have been of an earlier one.
    for (size_t i = 0; i + 1 < outcome.steps.size(); ++i) EXPECT_TRUE(std::isfinite(outcome.steps[i].result.loss)) << i;
    EXPECT_FALSE(difference().difference);
  }
}

TEST_F(Trials, CapsulesAreOfWhatIsAskedFor) {
  const auto failing = [&](const std::string& name, CapsuleEvent event, const std::vector<std::string>& more = {}) {
    const std::vector<Override> overrides(more.begin(), more.end());
    const std::string path = project_file(fmt::format("experiments/failures/{}.toml", name));
    return *train(load_experiment(path, overrides), {file("capsule"), event, 0, 5}).capsule;
  };
  const auto step_of = [&](auto matches) {
    std::optional<uint64_t> first;
    Snapshot(file("run.h5")).visit_steps({}, [&](std::span<const StepRow> rows) {
      for (const StepRow& row : rows)
        if (!first && matches(row)) first = row.step;
      return !first;
    });
    return first;
  };
  const CapsuleOutcome backoff = failing("scaler_thrashes", CapsuleEvent::backoff);
  EXPECT_TRUE(backoff.written);
  EXPECT_EQ(backoff.last_step, step_of([](const StepRow& row) { return row.scale_after < row.scale_before; }));
  EXPECT_THAT(backoff.event, StartsWith("the loss scale went from"));
  // All that overflows is skipped.
  EXPECT_FALSE(failing("scaler_thrashes", CapsuleEvent::overflow).written);
  EXPECT_FALSE(failing("scaler_thrashes", CapsuleEvent::nan).written);
  // Infinities that come to nothing.
  const CapsuleOutcome overflow = failing("infinity_hidden_by_relu", CapsuleEvent::overflow);
  EXPECT_TRUE(overflow.written);
  EXPECT_EQ(overflow.last_step, first_nonfinite(Snapshot(file("run.h5")), 0)->step);
  EXPECT_FALSE(failing("infinity_hidden_by_relu", CapsuleEvent::nan).written);
  EXPECT_FALSE(failing("infinity_hidden_by_relu", CapsuleEvent::overflow, {"precision=bf16"}).written);
}

TEST_F(Trials, AChangeOfArithmeticShowsInTheFirstOpThatItChanges) {
  train(experiment({"precision=fp16"}), at_step(8, 3));
  const TrialOutcome outcome = run(trial({"arithmetic.accumulate=h100"}));
  EXPECT_FALSE(outcome.is_as_before());
  EXPECT_EQ(outcome.steps.size(), 6u);
  const TraceDifference found = difference();
  ASSERT_TRUE(found.difference);
  EXPECT_EQ(found.difference->key.step, 3u);
  EXPECT_EQ(found.difference->key.phase, "forward");
  // What comes before the first product that the tensor core rounds otherwise is bit-equal.
  EXPECT_THAT(found.difference->key.module, ::testing::AnyOf("conv", "hidden"));
  EXPECT_THAT(found.difference->key.op_name, ::testing::AnyOf("conv2d", "matmul"));
  const AgainstTrace against{Snapshot(file("run.h5")).run(), found};
  EXPECT_THAT(report_of(trial({"arithmetic.accumulate=h100"}), outcome, against, 3).title, HasSubstr("with"));
}

TEST_F(Trials, OtherPrecisionsAndScalesRunTheSameSteps) {
  train(experiment({"precision=fp16"}), at_step(8, 3));
  const CapsuleSteps original = read_capsule_steps(file("capsule"));
  for (const std::vector<std::string>& changes :
       std::vector<std::vector<std::string>>{{"precision=fp32"}, {"precision=bf16"}, {"precision=fp8"}}) {
    const TrialOutcome outcome = run(trial(changes));
    EXPECT_FALSE(outcome.is_as_before()) << changes[0];
    ASSERT_EQ(outcome.steps.size(), original.steps.size());
    // Batches differ in their losses by more than precisions do, until the weights differ too: the first is nearest to that of its
    // own samples.
    const double first = outcome.steps[0].result.loss;
    for (const CapsuleStep& step : original.steps)
      EXPECT_LE(std::abs(first - original.steps[0].loss), std::abs(first - step.loss)) << changes[0];
    for (size_t i = 0; i < outcome.steps.size(); ++i) {
      EXPECT_TRUE(std::isfinite(outcome.steps[i].result.loss));
      EXPECT_EQ(outcome.steps[i].result.scale, 1.0);
    }
  }
  const TrialOutcome scaled = run(trial({"scaler.initial=2^30", "scaler.enabled=on", "scaler.dynamic=false"}));
  ASSERT_EQ(scaled.steps.size(), original.steps.size());
  for (const TrialStep& step : scaled.steps) {
    EXPECT_EQ(step.result.scale, std::ldexp(1.0, 30));
    EXPECT_TRUE(step.result.skipped);
  }
  // Another order of the data is none: the capsule says which samples a batch has.
  const std::vector<double> losses = [&] {
    std::vector<double> all;
    for (const TrialStep& step : run(trial({"data.shuffle=false"})).steps) all.push_back(step.result.loss);
    return all;
  }();
  ASSERT_EQ(losses.size(), original.steps.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_EQ(losses[i], original.steps[i].loss) << i;
}

TEST_F(Trials, RowsThatOneTraceLacksDifferAndColumnsDoNot) {
  train(experiment({"precision=fp32"}), at_step(8, 3));
  run(trial({"precision=bf16"}));
  const TraceDifference found = difference();
  ASSERT_TRUE(found.difference);
  EXPECT_EQ(found.difference->key.op_name, "cast");
  EXPECT_EQ(found.difference->key.step, 3u);
  EXPECT_EQ(found.difference->what, "");
  EXPECT_EQ(found.difference->first, "not there");
  const TraceDifference reversed = find_difference(Snapshot(file("replay.h5")), Snapshot(file("run.h5")));
  ASSERT_TRUE(reversed.difference);

  train(experiment({"recording.level=health"}), at_step(8, 3));
  Trial detailed = trial();
  detailed.level = RecordLevel::stats;
  run(detailed);
  EXPECT_FALSE(difference().difference);
  EXPECT_GT(difference().rows, 100u);
}

// Fewer steps than the capsule has, and more, up to where the run went.
TEST_F(Trials, TakeAsManyStepsAsAreAskedFor) {
  const TrainResult whole = train(experiment({"precision=fp16"}), at_step(8, 3));
  Trial asked = trial();
  asked.steps = 2;
  const TrialOutcome fewer = run(asked);
  ASSERT_EQ(fewer.steps.size(), 2u);
  EXPECT_EQ(fewer.first_different_step(), nullptr);
  EXPECT_FALSE(fewer.is_as_before()) << "the weights of another step";
  asked.steps = 100;
  const TrialOutcome more = run(asked);
  ASSERT_EQ(more.steps.size(), 14u - 3u);
  EXPECT_EQ(more.steps.back().result.step, 13u);
  EXPECT_FALSE(more.steps.back().original);
  EXPECT_EQ(more.weights_fingerprint, whole.weights_fingerprint);
  EXPECT_FALSE(difference().difference);
}

// In two parts: up to a checkpoint, and from there on with the capsule's batches, of which another capsule is kept.
TEST_F(Trials, GoOnFromWhereAnotherOneEnded) {
  train(experiment({"precision=fp16"}), at_step(8, 3));
  const CapsuleSteps original = read_capsule_steps(file("capsule"));
  ASSERT_EQ(original.steps.size(), 6u);
  Trial first = trial();
  std::vector<uint64_t> taken_before;
  first.before_step = [&](Trainer& trainer, uint64_t taken) {
    taken_before.push_back(taken);
    if (taken == 4) trainer.save_checkpoint(file("checkpoint"));
    return taken < 4;
  };
  EXPECT_EQ(run(first).steps.size(), 4u);
  EXPECT_EQ(taken_before, (std::vector<uint64_t>{0, 1, 2, 3, 4}));

  Trial rest;
  rest.capsule = file("checkpoint");
  EXPECT_THAT(refusal(rest, ErrorKind::usage), HasSubstr("a checkpoint without steps to run again"));
  rest.batches.assign(original.steps.begin() + 4, original.steps.end());
  rest.cpu.threads = 2;
  rest.kept = {file("end"), CapsuleEvent::step, 8, 2};
  const TrialOutcome outcome = run(rest);
  ASSERT_EQ(outcome.steps.size(), 2u);
  EXPECT_EQ(outcome.steps[0].result.step, 7u);
  EXPECT_EQ(outcome.weights_fingerprint, original.weights_fingerprint);
  const CapsuleSteps end = read_capsule_steps(file("end"));
  EXPECT_EQ(end.steps.size(), 2u);
  EXPECT_EQ(end.weights_fingerprint, original.weights_fingerprint);
  rest.kept.path = file("no/such/folder");
  EXPECT_THAT(refusal(rest, ErrorKind::failed), HasSubstr("no/such/folder"));
}

// Also a capsule is a checkpoint.
TEST_F(Trials, ACapsuleIsACheckpointOfItsFirstStep) {
  const TrainResult whole = train(experiment(), at_step(8, 3));
  TrainerOptions options;
  options.cpu.threads = 2;
  options.resume_from = file("capsule");
  const TrainResult resumed = ulpscope::train(experiment(), options);
  EXPECT_EQ(resumed.first_step, 3u);
  EXPECT_EQ(resumed.weights_fingerprint, whole.weights_fingerprint);
}

TEST_F(Trials, KeepingACapsuleChangesNothing) {
  const Experiment settings = experiment({"precision=fp16"});
  const uint64_t plain = train(settings, {}).weights_fingerprint;
  std::filesystem::rename(file("run.h5"), file("plain.h5"));
  for (const CapsuleEvent event : {CapsuleEvent::nan, CapsuleEvent::overflow, CapsuleEvent::backoff}) {
    EXPECT_EQ(train(settings, {file("capsule"), event, 0, 2}).weights_fingerprint, plain);
    EXPECT_FALSE(find_difference(Snapshot(file("plain.h5")), Snapshot(file("run.h5"))).difference);
  }
}

TEST_F(Trials, TrainingGoesOnWithoutTheCapsuleThatCannotBeWritten) {
  const uint64_t plain = train(experiment(), {}).weights_fingerprint;
  const TrainResult trained = train(experiment(), {file("no/such/folder"), CapsuleEvent::step, 5, 2});
  EXPECT_FALSE(trained.capsule->written);
  EXPECT_THAT(trained.capsule->failure, HasSubstr("no/such/folder"));
  EXPECT_EQ(trained.steps, 14u);
  EXPECT_EQ(trained.weights_fingerprint, plain);
}

TEST_F(Trials, OtherDataAreRefused) {
  write_file(file("data.csv"), "a,b,label\n1,2,0\n3,4,1\n5,6,2\n7,8,3\n9,1,4\n");
  const std::string text = fmt::format(R"(
[data]
kind = "csv"
path = "{}"
test_share = 0
[model]
layers = [{{ type = "linear", name = "fc", out_features = 10 }}]
[training]
batch_size = 2
steps = 8
evaluation = "never"
)",
                                       file("data.csv"));
  train(experiment({}, text), at_step(6, 2));
  EXPECT_TRUE(run(trial()).is_as_before());
  write_file(file("data.csv"), "a,b,label\n1,2,0\n3,4,1\n5,6,2\n7,8.5,3\n9,1,4\n");
  EXPECT_THAT(refusal(trial(), ErrorKind::unreadable), StartsWith("the data are not those of step"));
  // Of the steps that run again beside those of the trial, too.
  Trial by_op = trial({"precision=fp32"});
  by_op.by_op = true;
  EXPECT_THAT(refusal(by_op, ErrorKind::unreadable), StartsWith("the data are not those of step"));
  write_file(file("data.csv"), "a,b,label\n1,2,0\n3,4,1\n5,6,2\n");
  EXPECT_THAT(refusal(trial(), ErrorKind::usage), HasSubstr("and the data 3 samples: they are other data"));
  std::filesystem::remove(file("data.csv"));
  EXPECT_THAT(refusal(trial(), ErrorKind::unreadable), HasSubstr("data.csv"));
}

TEST_F(Trials, WhatDoesNotFitIsNamed) {
  train(experiment(), at_step(8, 3));
  EXPECT_THAT(refusal(trial({"training.accumulation=4"}), ErrorKind::usage),
              HasSubstr("expected training.accumulation = 2, got 4"));
  for (const char* key : {"training.steps", "training.epochs", "training.batch_size"})
    EXPECT_THAT(refusal(trial({fmt::format(" {} = 3", key)}), ErrorKind::usage),
                AllOf(StartsWith("--set"), HasSubstr(fmt::format("{} cannot be changed", key))));
  EXPECT_THAT(refusal(trial({"optimizer.type=sgd"}), ErrorKind::usage), HasSubstr("is of another optimizer"));
  EXPECT_THAT(refusal(trial({"precision=fp8", "fp8.recipe=delayed"}), ErrorKind::usage), HasSubstr("delayed scaling of FP8"));
  // The steps as they were would run with what is asked for as well: a process has one instruction set.
  for (const CpuOptions& cpu : {CpuOptions{0, "sse4"}, CpuOptions{1, ""}}) {
    Trial by_op = trial();
    by_op.by_op = true;
    by_op.cpu = cpu;
    EXPECT_THAT(refusal(by_op, ErrorKind::usage), HasSubstr("expected neither --device nor --threads nor --isa"));
  }
  TrainerOptions options;
  Trainer trainer(experiment({"training.steps=2"}), options);
  trainer.step();
  trainer.save_checkpoint(file("capsule"));
  EXPECT_THAT(refusal(trial(), ErrorKind::usage), HasSubstr("is a checkpoint without steps to run again"));
}

// With its samples in it a capsule runs where the data are not: labels, indices, images and values, and one that a fault changes.
TEST_F(Trials, CapsulesWithSamplesNeedNoData) {
  const auto keep = [&](uint64_t last, uint64_t steps) {
    CapsuleOptions options = at_step(last, steps);
    options.keep_samples = true;
    return options;
  };
  const auto expect_samples = [&](size_t count) {
    const CheckpointInfo info = read_checkpoint_info(file("capsule"));
    EXPECT_EQ(parse_experiment(info.experiment, "capsule").data.kind, DataKind::capsule);
    EXPECT_EQ(info.data.samples, static_cast<int64_t>(count));
    EXPECT_EQ(read_capsule_samples(file("capsule"), 0).batch.input_shape[0], static_cast<int64_t>(count));
  };
  expect_bit_equal(train(experiment({"training.evaluation=never", "precision=fp16"},
                                    std::string(kSmall) + "[[inject]]\nsample = 30\nelement = 5\nsteps = 0\nset = 99\n"),
                         keep(8, 3)),
                   "images");
  const CapsuleSteps steps = read_capsule_steps(file("capsule"));
  std::set<int64_t> numbers;
  for (const CapsuleStep& step : steps.steps)
    for (const CapsuleBatch& batch : step.batches) numbers.insert(batch.samples.begin(), batch.samples.end());
  EXPECT_EQ(*numbers.rbegin() + 1, static_cast<int64_t>(numbers.size())) << "numbered from 0 on";
  expect_samples(numbers.size());

  std::string rows = "a,b,c\n";
  for (int i = 0; i < 20; ++i) rows += fmt::format("{},{},{}\n", i, i * i, 0.5 * i);
  write_file(file("data.csv"), rows);
  const std::string text = fmt::format(R"(
[data]
kind = "csv"
path = "{}"
target_kind = "values"
test_share = 0
[loss]
function = "mse"
[model]
layers = [{{ type = "linear", name = "fc", out_features = 1 }}]
[training]
batch_size = 4
steps = 5
evaluation = "never"
)",
                                       file("data.csv"));
  const TrainResult trained = train(experiment({}, text), keep(2, 1));
  std::filesystem::remove(file("data.csv"));
  expect_bit_equal(trained, "values");
  expect_samples(8);
  const KeptSamples kept = read_capsule_samples(file("capsule"), 0);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(kept.batch.inputs[2 * i + 1], kept.batch.inputs[2 * i] * kept.batch.inputs[2 * i]);
    EXPECT_EQ(kept.batch.values[i], 0.5f * kept.batch.inputs[2 * i]);
    EXPECT_EQ(kept.origins[i], static_cast<int64_t>(kept.batch.inputs[2 * i])) << "column a has the row's number";
  }

  write_file(file("text"), "It was the best of times, it was the worst of times, it was the age of wisdom");
  const TrainResult read = train(experiment({}, fmt::format(R"(
[data]
kind = "text"
path = "{}"
context = 5
test_share = 0
[model]
layers = [
  {{ type = "embedding", name = "tokens", num_embeddings = 256, features = 4 }},
  {{ type = "linear", name = "fc", out_features = 256 }},
]
[training]
batch_size = 4
steps = 5
evaluation = "never"
)",
                                                            file("text"))),
                                 keep(2, 1));
  std::filesystem::remove(file("text"));
  expect_bit_equal(read, "indices");
  // What comes after its steps are the same samples again, from a checkpoint on as well.
  Trial more = trial();
  more.steps = 4;
  const TrialOutcome outcome = run(more);
  EXPECT_EQ(outcome.steps.size(), 4u);
  const Experiment within = parse_experiment(read_checkpoint_info(file("capsule")).experiment, "capsule");
  TrainerOptions options;
  options.cpu.threads = 2;
  options.resume_from = file("capsule");
  const uint64_t whole = ulpscope::train(within, options).weights_fingerprint;
  Trainer trainer(within, options);
  for (int i = 0; i < 3; ++i) trainer.step();
  trainer.save_checkpoint(file("checkpoint"));
  options.resume_from = file("checkpoint");
  EXPECT_EQ(ulpscope::train(within, options).weights_fingerprint, whole);
}

// The same steps in FP64, held against NumPy's: two layers, a ReLU, cross-entropy and SGD with momentum.
TEST_F(Trials, Fp64IsWhatNumpyComputes) {
  const std::string python = find_python("h5py, numpy");
  if (python.empty()) GTEST_SKIP() << "no python3 with h5py and numpy";
  CapsuleOptions options = at_step(9, 6);
  options.keep_samples = true;
  train(experiment({"precision=fp16"}, R"(
[data]
kind = "random_classification"
shape = [12]
classes = 4
train_size = 64
[model]
layers = [
  { type = "linear", name = "first", out_features = 9 },
  { type = "relu", name = "relu" },
  { type = "linear", name = "head", out_features = 4 },
]
[optimizer]
type = "sgd"
learning_rate = 0.2
momentum = 0.9
[training]
batch_size = 8
steps = 20
evaluation = "never"
)"),
        options);
  write_file(file("reference.py"), R"(import h5py, numpy
with h5py.File('capsule') as f:
    w = {name: value[()].astype('f8') for name, value in f['parameters'].items()}
    v = {name: f['optimizer/momentum'][name][()].astype('f8') if 'momentum' in f['optimizer'] and name in f['optimizer/momentum']
         else numpy.zeros_like(value) for name, value in w.items()}
    had = {name: f['parameters'][name].attrs['updates'] > 0 for name in w}
    x, y, samples = f['data/inputs'][()].astype('f8'), f['data/targets'][()], f['steps/samples'][()]
    sizes = f['steps/batch_size'][()]
first = 0
for size in sizes:
    rows = samples[first:first + size]
    first += size
    a = x[rows] @ w['first.weight'].T + w['first.bias']
    h = numpy.maximum(a, 0)
    z = h @ w['head.weight'].T + w['head.bias']
    z = z - z.max(1, keepdims=True)
    p = numpy.exp(z) / numpy.exp(z).sum(1, keepdims=True)
    print(repr(float(-numpy.log(p[numpy.arange(size), y[rows]]).mean())))
    g = p
    g[numpy.arange(size), y[rows]] -= 1
    g /= size
    d = (g @ w['head.weight']) * (a > 0)
    for name, gradient in (('head.weight', g.T @ h), ('head.bias', g.sum(0)), ('first.weight', d.T @ x[rows]), ('first.bias', d.sum(0))):
        v[name] = 0.9 * v[name] + gradient if had[name] else gradient
        had[name] = True
        w[name] = w[name] - 0.2 * v[name]
)");
  ASSERT_EQ(std::system(fmt::format("cd {} && {} reference.py > losses", folder_.path(), python).c_str()), 0);
  std::istringstream lines(read_file(file("losses")));
  const TrialOutcome outcome = run(trial({"precision=fp64"}));
  ASSERT_GT(outcome.steps.size(), 6u);
  for (const TrialStep& step : outcome.steps) {
    double expected = 0;
    ASSERT_TRUE(lines >> expected);
    EXPECT_NEAR(step.result.loss, expected, 1e-13 * expected) << step.result.step;
    EXPECT_GT(std::abs(step.original->loss - expected), 1e-9) << "FP16 is not that near";
  }
  // FP32, with 13 bits more than FP16, is nearer in every step.
  const TrialOutcome fp32 = run(trial({"precision=fp32"}));
  for (size_t i = 0; i < fp32.steps.size(); ++i) {
    const double exact = outcome.steps[i].result.loss;
    EXPECT_LT(std::abs(fp32.steps[i].result.loss - exact), std::abs(fp32.steps[i].original->loss - exact)) << i;
  }
}

// What FP32 and FP16 round off each product, by their own values: y = w x of one feature, so that nothing is summed.
TEST_F(Trials, DifferencesOfOpsAreWhatRoundingMade) {
  for (const char* precision : {"fp32", "fp16", "bf16"}) {
    CapsuleOptions options = at_step(0, 1);
    options.keep_samples = true;
    train(experiment({std::string("precision=") + precision}, R"(
[data]
kind = "random_classification"
shape = [1]
classes = 2
train_size = 64
[model]
layers = [{ type = "linear", name = "product", out_features = 2, bias = false }]
[training]
batch_size = 64
steps = 1
evaluation = "never"
)"),
          options);
    std::vector<float> weight(2);
    hdf5::File::open(file("capsule"), "capsule")
        .open_dataset("parameters/product.weight", ElementType::f32)
        .read_all(weight.data());
    const std::vector<float> inputs = read_capsule_samples(file("capsule"), 0).batch.inputs;
    const FloatFormat& format = precision == std::string("fp32")   ? binary32
                                : precision == std::string("fp16") ? binary16
                                                                   : bfloat16;
    double apart = 0, original = 0, exact = 0;
    for (const float x : inputs) {
      for (const float w : weight) {
        const double y = round_to_format(format, round_to_format(format, x) * round_to_format(format, w));
        const double reference = static_cast<double>(x) * w;
        apart += (y - reference) * (y - reference);
        original += y * y;
        exact += reference * reference;
      }
    }
    Trial asked = trial({"precision=fp64"});
    asked.by_op = true;
    const TrialOutcome outcome = run(asked);
    EXPECT_TRUE(outcome.has_all_ops);
    EXPECT_FALSE(outcome.original_differs_in);
    const auto found = std::find_if(outcome.ops.begin(), outcome.ops.end(),
                                    [](const OpDifference& op) { return op.op == "linear" && op.phase == Phase::forward; });
    ASSERT_NE(found, outcome.ops.end());
    // One that contained the loss scale of FP16, of 2^24, and were held against one without would be 1 - 2^-24 apart; rounding
    // takes nothing half as far.
    for (const OpDifference& op : outcome.ops) EXPECT_LT(op.first, 0.5) << op.op << " in " << name_of(op.phase);
    EXPECT_EQ(found->type, DType::f64);
    EXPECT_EQ(found->module, "product");
    EXPECT_NEAR(found->first, std::sqrt(apart / std::max(original, exact)), 1e-14) << precision;
    EXPECT_EQ(found->largest, found->first);
    EXPECT_GT(found->in_roundings(), 0.1);
    EXPECT_LT(found->in_roundings(), 3);  // of two factors and a product
    // Nothing was changed, and nothing differs.
    Trial same = trial();
    same.by_op = true;
    for (const OpDifference& op : run(same).ops) EXPECT_EQ(op.largest, 0) << op.op;
    // A trace has the differences beside the rows of the outputs.
    asked.trace_path = file("measured.h5");
    asked.overwrite = true;
    const TrialOutcome recorded = run(asked);
    using Output = std::tuple<std::string, Phase, uint32_t, int>;
    std::map<Output, double> told, measured;
    for (const OpDifference& op : recorded.ops) {
      double& farthest = told[{op.op, op.phase, op.micro_batch, op.slot}];
      farthest = std::max(farthest, op.largest);
    }
    const Snapshot trace(asked.trace_path);
    trace.visit_measures({}, [&](std::span<const MeasureRow> rows) {
      for (const MeasureRow& row : rows) {
        if (row.name != kRelativeDifference) continue;
        const TensorInfo& tensor = trace.tensors()[row.tensor];
        const OpInfo& op = trace.ops()[tensor.op];
        double& farthest = measured[{op.name, op.phase, row.micro_batch, tensor.slot}];
        farthest = std::max(farthest, row.value);
      }
      return true;
    });
    EXPECT_EQ(measured, told);
  }
}

// Every preset runs in FP64, and FP32 is as near to it in every op as BF16, which rounds to 16 bits less, or nearer.
TEST_F(Trials, Fp32IsNearerToFp64ThanBf16InEveryPreset) {
  for (const char* preset : {"mlp", "gpt_mini", "gru_text", "lstm_text", "transformer_seq2seq", "fashion_cnn", "autoencoder"}) {
    SCOPED_TRACE(preset);
    using Output = std::tuple<std::string, std::string, std::string, uint32_t, int>;
    const auto differences = [&](const char* precision) {
      Experiment settings = *find_preset(preset);
      for (const char* setting : {precision, "training.steps=2", "training.batch_size=2", "training.evaluation=never"})
        apply_override(settings, std::string(setting));
      if (preset == std::string("gpt_mini")) apply_override(settings, "data.context=16");
      train(settings, at_step(1, 1));
      Trial asked = trial({"precision=fp64"});
      asked.by_op = true;
      std::map<Output, double> all;
      for (const OpDifference& op : run(asked).ops) {
        EXPECT_EQ(op.nonfinite_in_one, 0u) << op.op;
        EXPECT_FALSE(op.has_other_shape) << op.op;
        // Of an op that a module calls several times, the farthest.
        double& farthest = all[{op.op, op.module, op.output, op.micro_batch, op.slot}];
        if (op.phase == Phase::forward) farthest = std::max(farthest, op.first);
      }
      return all;
    };
    const std::map<Output, double> fp32 = differences("precision=fp32"), bf16 = differences("precision=bf16");
    size_t apart = 0;
    for (const auto& [output, difference] : fp32) {
      const auto other = bf16.find(output);
      if (other == bf16.end()) continue;
      EXPECT_LE(difference, other->second) << std::get<0>(output) << " of " << std::get<1>(output);
      apart += difference < other->second;
    }
    EXPECT_GT(apart, 4u);
  }
}

class SlowPresets : public Trials, public ::testing::WithParamInterface<std::string> {};

// In four precisions and two accumulations. Three steps, of which the last two are run again. A model need not take a precision,
// as a loss that autocast forbids in FP16; what it takes it takes with either accumulation.
TEST_P(SlowPresets, AreBitEqual) {
  size_t trained = 0;
  for (const char* precision : {"fp32", "fp16", "bf16", "fp8"}) {
    for (const char* accumulate : {"fp32", "h100"}) {
      const std::string what = fmt::format("{} {}", precision, accumulate);
      SCOPED_TRACE(what);
      Experiment settings = *find_preset(GetParam());
      std::optional<TrainResult> result;
      try {
        for (const std::string& setting :
             {fmt::format("precision={}", precision), fmt::format("arithmetic.accumulate={}", accumulate),
              std::string("training.steps=3"), std::string("training.evaluation=never")}) {
          apply_override(settings, setting);
        }
        result = train(settings, at_step(2, 1));
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
      }
      if (!result) continue;
      ++trained;
      expect_bit_equal(*result, what);
    }
  }
  EXPECT_TRUE(trained >= 2 && trained % 2 == 0) << trained;
}
INSTANTIATE_TEST_SUITE_P(Trials, SlowPresets, ::testing::ValuesIn(preset_names()),
                         [](const ::testing::TestParamInfo<std::string>& tested) { return tested.param; });

}  // namespace
}  // namespace ulpscope
