// Faults that an experiment injects: each changes the one element that it says, when it says, and nothing before.
#include "ulpscope/core/run/fault_injector.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <filesystem>

#include "ulpscope/base/error.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kRun = R"(precision = "fp32"
[model]
layers = [
  { type = "linear", name = "first", out_features = 8 },
  { type = "relu", name = "relu" },
  { type = "linear", name = "head", out_features = 4 },
]
[data]
kind = "random_classification"
shape = [6]
classes = 4
train_size = 64
test_size = 16
shuffle = false
[training]
batch_size = 16
steps = 8
evaluation = "never"
)";

Experiment with(const std::string& faults) { return parse_experiment(kRun + faults, "run.toml"); }

std::vector<double> losses_of(const Experiment& experiment, const std::string& trace = "") {
  TrainerOptions options;
  options.cpu.threads = 1;
  options.trace_path = trace;
  options.overwrite = true;
  std::vector<double> losses;
  train(experiment, options, [&](const StepResult& step) { losses.push_back(step.loss); });
  return losses;
}

// From which step on losses differ; 8: nowhere.
size_t first_difference(const std::vector<double>& losses) {
  static const std::vector<double> clean = losses_of(with(""));
  size_t step = 0;
  while (step < clean.size() && losses[step] == clean[step]) ++step;
  return step;
}

std::string error_of(const std::string& faults) {
  try {
    const Experiment experiment = with(faults);
    validate(experiment);
    losses_of(experiment);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "no error";
}

TEST(FaultInjector, ChangesWhatAndWhenItSays) {
  EXPECT_EQ(first_difference(losses_of(with("[[inject]]\nparameter = \"head.weight\"\nelement = 5\nstep = 3\nset = 2.5\n"))), 3u);
  EXPECT_EQ(first_difference(losses_of(with("[[inject]]\nop = \"relu\"\nmodule = \"relu\"\nstep = 4\nset = 100\n"))), 4u);
  // Sample 20 is in batches 1, 5, ... of 16 each.
  EXPECT_EQ(first_difference(losses_of(with("[[inject]]\nsample = 20\nstep = 2\nsteps = 0\nscale = 1000\n"))), 5u);
  EXPECT_EQ(first_difference(losses_of(with("[[inject]]\nsample = 20\nstep = 2\nscale = 1000\n"))), 8u);
  // What backward reads changes the next step's loss.
  EXPECT_EQ(first_difference(losses_of(with(
                "[[inject]]\nop = \"matmul\"\nmodule = \"head\"\nphase = \"backward\"\nstep = 2\nelement = 1\nscale = -50\n"))),
            3u);
  const std::vector<double> nan =
      losses_of(with("[[inject]]\nop = \"linear\"\nmodule = \"he*\"\ninput = 1\nstep = 6\nset = nan\n"));
  EXPECT_EQ(first_difference(nan), 6u);
  EXPECT_TRUE(std::isnan(nan[6]));
}

TEST(FaultInjector, TheTraceSaysWhatBecameOfWhichElement) {
  const std::string path = fmt::format("{}ulpscope_faults_{}.h5", ::testing::TempDir(), getpid());
  losses_of(with("[[inject]]\nparameter = \"head.weight\"\nelement = 9\nstep = 2\nsteps = 3\nflip_bit = 31\n"), path);
  const Snapshot trace(path);
  std::vector<std::string> notes, changes;
  for (const EventRow& event : trace.events()) {
    if (event.kind == EventKind::note) notes.push_back(fmt::format("{}: {}", event.step, event.text));
    if (event.kind == EventKind::memory_changed) changes.push_back(event.text);
  }
  ASSERT_EQ(notes.size(), 1u);  // the first time
  float before = 0, after = 0;
  ASSERT_EQ(std::sscanf(notes[0].c_str(), "2: inject[0] changed element 9 of parameter head.weight from %f to %f", &before, &after),
            2);
  EXPECT_EQ(std::bit_cast<uint32_t>(before) ^ std::bit_cast<uint32_t>(after), 0x80000000u);
  ASSERT_EQ(changes.size(), 3u);
  EXPECT_THAT(changes[0], AllOf(HasSubstr("head.weight changed"), HasSubstr("in step 1, which wrote it"),
                                HasSubstr("in step 2, which read it")));
  std::filesystem::remove(path);
}

TEST(FaultInjector, AnExperimentKeepsItsFaults) {
  const Experiment experiment = with(
      "[[inject]]\nparameter = \"head.bias\"\nstep = 7\nset = nan\n[[inject]]\nop = \"add\"\nphase = \"backward\"\ncall = "
      "2\nflip_bit "
      "= 14\n[[inject]]\nsample = 3\nsteps = 0\nscale = -inf\n");
  ASSERT_EQ(experiment.inject.size(), 3u);
  EXPECT_TRUE(std::isnan(*experiment.inject[0].set));
  EXPECT_EQ(experiment.inject[1].phase, Phase::backward);
  EXPECT_EQ(parse_experiment(to_toml(experiment), "again"), experiment);
  std::vector<std::string> settings;
  for (const SettingInfo& setting : describe_settings(experiment))
    if (setting.name.starts_with("inject[1]")) settings.push_back(setting.name + " = " + setting.value);
  EXPECT_THAT(settings, ElementsAre("inject[1].op = \"add\"", "inject[1].phase = \"backward\"", "inject[1].call = 2",
                                    "inject[1].flip_bit = 14"));
}

TEST(FaultInjector, SaysWhatIsNotThere) {
  EXPECT_EQ(error_of("[[inject]]\nset = 1\n"), "run.toml:19: inject[0]: expected one of parameter, sample and op");
  EXPECT_EQ(error_of("[[inject]]\nparameter = \"head.weight\"\n"),
            "run.toml:19: inject[0]: expected one of set, scale and flip_bit");
  EXPECT_EQ(error_of("[[inject]]\nsample = 1\ninput = 1\nset = 1\n"),
            "run.toml:19: inject[0]: expected op, to which module, phase, input and call belong");
  EXPECT_EQ(error_of("[[inject]]\nparameter = \"head.wait\"\nset = 1\n"),
            "run.toml:19: inject[0]: the model has no parameter 'head.wait'; did you mean 'head.weight'?");
  EXPECT_EQ(error_of("[[inject]]\nparameter = \"head.bias\"\nelement = 4\nset = 1\n"),
            "run.toml:19: inject[0]: element: expected one below 4, the size of parameter head.bias, found 4");
  EXPECT_EQ(error_of("[[inject]]\nparameter = \"head.bias\"\nflip_bit = 32\n"),
            "run.toml:19: inject[0]: flip_bit: expected one below 32, the bits of fp32, found 32");
  EXPECT_EQ(error_of("[[inject]]\nsample = 64\nset = 1\n"),
            "run.toml:19: inject[0]: sample: expected one below 64, of which the data are, found 64");
  EXPECT_THAT(error_of("[[inject]]\nop = \"lienar\"\nset = 1\n"), HasSubstr("run.toml:19: inject[0]: "));
  EXPECT_EQ(error_of("[[inject]]\nop = \"relu\"\ncall = 1\nset = 1\n"),
            "run.toml:19: inject[0]: step 0 has 1 call of relu in modules '*' in phase forward, expected more than 1");
  EXPECT_EQ(error_of("[[inject]]\nop = \"matmul\"\nmodule = \"head\"\nset = 1\n"),
            "run.toml:19: inject[0]: step 0 has 0 calls of matmul in modules 'head' in phase forward, expected more than 0; "
            "expected linear");
  EXPECT_EQ(error_of("[[inject]]\nop = \"relu\"\nstep = 8\nset = 1\n"),
            "run.toml:19: inject[0]: step: expected one below 8, the steps of the run, found 8");
  EXPECT_EQ(error_of("[[inject]]\nop = \"relu\"\ninput = 1\nset = 1\n"),
            "run.toml:19: inject[0]: input: expected one below 1, the inputs of relu, found 1");
  EXPECT_THAT(error_of("[[inject]]\nparameter = \"head.bias\"\nstepp = 1\nset = 1\n"),
              HasSubstr("unknown key 'stepp'; did you mean 'step'?"));
}

}  // namespace
}  // namespace ulpscope
