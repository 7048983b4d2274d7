// A run that goes on from a checkpoint is the run that never stopped, bit by bit; and what is no checkpoint of it is refused.
#include "ulpscope/core/run/checkpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>

#include "tests/support/python.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/hdf5/hdf5.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Seven batches an epoch, so that a checkpoint after ten steps stands within the second one; running statistics; and names that
// need care in a file.
constexpr const char* kResumed = R"(
name = "small"
seed = 5
[data]
kind = "random_classification"
shape = [1, 8, 8]
train_size = 56
test_size = 8
[model]
layers = [
  { type = "conv2d", name = "features/0", out_channels = 4, kernel = 3, padding = 1 },
  { type = "batch_norm", name = "50%" },
  { type = "relu" },
  { type = "flatten" },
  { type = "linear", name = "fc", out_features = 10 },
]
[training]
batch_size = 8
steps = 20
evaluation = "never"
[scaler]
initial = "2^24"
growth_interval = 3
)";

constexpr uint64_t kHalf = 10;

Experiment experiment(const std::vector<std::string>& assignments = {}, const std::string& text = kResumed) {
  const std::vector<Override> overrides(assignments.begin(), assignments.end());
  return parse_experiment(text, "small", overrides);
}

struct ResumableTraining {
  std::vector<double> losses;
  std::vector<bool> skipped;
  TrainResult result;
};

class Checkpoints : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.file(name); }

  // Trains until `last`, and writes the checkpoint where there is a name for it.
  ResumableTraining run(const Experiment& settings, const std::string& trace, const std::string& resume_from = "",
                        const std::string& checkpoint = "", uint64_t last = UINT64_MAX) {
    TrainerOptions options;
    options.cpu.threads = 2;
    options.trace_path = trace;
    options.resume_from = resume_from;
    Trainer trainer(settings, options);
    ResumableTraining training;
    uint64_t next = trainer.first_step();
    while (!trainer.finished() && next < last) {
      const StepResult step = trainer.step();
      EXPECT_EQ(step.step, next++);
      training.losses.push_back(step.loss);
      training.skipped.push_back(step.skipped);
    }
    if (!checkpoint.empty()) trainer.save_checkpoint(checkpoint);
    training.result = trainer.finish();
    return training;
  }

  // A checkpoint in the middle of the experiment.
  std::string half(const Experiment& settings = experiment()) {
    run(settings, "", "", file("half"), kHalf);
    return file("half");
  }

  // The message of the error that resuming gives.
  std::string refusal(const Experiment& settings, const std::string& checkpoint, ErrorKind kind) {
    try {
      run(settings, "", checkpoint);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
    return "accepted";
  }

  // The message of the error that writing another step's checkpoint gives.
  std::string refusal_to_write(const std::string& checkpoint) {
    try {
      run(experiment(), "", checkpoint, checkpoint, kHalf + 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::failed);
      return error.what();
    }
    return "written";
  }

  TemporaryFolder folder_;
};

std::vector<std::string> step_lines(const Snapshot& reader) {
  std::vector<std::string> lines;
  reader.visit_steps({kHalf, UINT64_MAX}, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) {
      lines.push_back(fmt::format("{} loss {:a} rate {:a} scale {:a} {:a} skipped {} norm {:a} {:a} level {}", row.step, row.loss,
                                  row.learning_rate, row.scale_before, row.scale_after, row.skipped, row.gradient_norm,
                                  row.clipped_gradient_norm, name_of(row.level)));
    }
    return true;
  });
  return lines;
}

struct RecordedSteps {
  uint64_t step, op;
  uint32_t slot;
  double scale;
  TensorStatistics statistics;
  RoundingCounts rounding;
  bool operator==(const RecordedSteps&) const = default;
};

// What the second half recorded; the values with which a run begins are no part of it.
std::vector<RecordedSteps> tensor_rows(const Snapshot& reader) {
  std::vector<RecordedSteps> all;
  reader.visit_rows({kHalf, UINT64_MAX}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      const TensorInfo& tensor = reader.tensors()[row.tensor];
      const OpInfo& op = reader.ops()[tensor.op];
      if (op.name == "source" && tensor.role != Role::input) continue;
      all.push_back({row.step, op.id, tensor.slot, row.scale, row.statistics, row.rounding});
    }
    return true;
  });
  return all;
}

TEST_F(Checkpoints, AResumedRunIsTheRunThatNeverStopped) {
  const std::vector<std::vector<std::string>> optimizers{
      {"optimizer.type=sgd"},
      {"optimizer.type=sgd", "optimizer.momentum=0.9", "optimizer.dampening=0.5"},
      {"optimizer.type=adamw"},
  };
  // The first scaler stands between two growths after ten steps, the second one has used up some of its patience.
  const std::vector<std::vector<std::string>> precisions{
      {"precision=fp32"},
      {"precision=bf16"},
      {"precision=fp16", "scaler.hysteresis=2"},
      {"precision=fp16", "scaler.initial=2^22", "scaler.growth_interval=2", "scaler.hysteresis=3"},
      {"precision=mxnet", "scaler.initial=2^22", "scaler.growth_interval=3"},
  };
  std::vector<std::pair<std::string, std::vector<std::string>>> runs;
  for (const std::vector<std::string>& precision : precisions) {
    for (std::vector<std::string> overrides : optimizers) {
      overrides.insert(overrides.end(), precision.begin(), precision.end());
      runs.emplace_back(kResumed, overrides);
    }
  }
  // 16-bit parameters with and without master weights, and two optimizers.
  runs.emplace_back(kResumed, std::vector<std::string>{"precision=apex_o2"});
  runs.emplace_back(kResumed, std::vector<std::string>{"precision=pure_bf16", "optimizer.math=fp32"});
  runs.emplace_back(std::string(kResumed) + "[[optimizers]]\nmodules = [\"fc\"]\ntype = \"sgd\"\nmomentum = 0.9\n",
                    std::vector<std::string>{"precision=fp16"});
  for (const auto& [text, overrides] : runs) {
    const std::string name = fmt::format("{}", fmt::join(overrides, " "));
    const Experiment settings = experiment(overrides, text);
    for (const char* trace : {"whole.h5", "first.h5", "second.h5"}) std::filesystem::remove(file(trace));
    const ResumableTraining whole = run(settings, file("whole.h5"));
    const ResumableTraining first = run(settings, file("first.h5"), "", file("half"), kHalf);
    const ResumableTraining second = run(settings, file("second.h5"), file("half"));
    EXPECT_EQ(second.result.first_step, kHalf);

    std::vector<double> losses = first.losses;
    losses.insert(losses.end(), second.losses.begin(), second.losses.end());
    EXPECT_EQ(losses, whole.losses) << name;
    EXPECT_EQ(second.result.weights_fingerprint, whole.result.weights_fingerprint) << name;
    EXPECT_NE(first.result.weights_fingerprint, whole.result.weights_fingerprint) << name;
    if (settings.scaler_enabled()) {
      for (const ResumableTraining* half : {&first, &second}) {
        EXPECT_THAT(half->skipped, AllOf(::testing::Contains(true), ::testing::Contains(false))) << name;
      }
    }
    const Snapshot straight(file("whole.h5")), resumed(file("second.h5")), parent(file("first.h5"));
    EXPECT_EQ(step_lines(resumed).size(), 20 - kHalf);
    EXPECT_EQ(step_lines(resumed), step_lines(straight)) << name;
    EXPECT_GT(tensor_rows(resumed).size(), 100u);
    EXPECT_TRUE(tensor_rows(resumed) == tensor_rows(straight)) << name;
    EXPECT_EQ(resumed.run().parent_run, parent.run().run_id);
    EXPECT_EQ(resumed.run().parent_step, static_cast<int64_t>(kHalf));
    EXPECT_EQ(straight.run().parent_run, "");
  }
}

// The state that an optimizer goes on with is recorded once, like the weights that a run begins with.
TEST_F(Checkpoints, TheStateThatARunBeginsWithIsRecorded) {
  const std::string checkpoint = half();
  run(experiment(), file("second.h5"), checkpoint);
  const Snapshot reader(file("second.h5"));
  std::map<Role, int> sources;
  reader.visit_rows({}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      const TensorInfo& tensor = reader.tensors()[row.tensor];
      if (reader.ops()[tensor.op].name != "source" || tensor.role == Role::input) continue;
      EXPECT_EQ(row.step, kHalf);
      ++sources[tensor.role];
    }
    return true;
  });
  const std::map<Role, int> expected{{Role::master_weight, 6}, {Role::buffer, 2}, {Role::optimizer_state, 2 * 6}};
  EXPECT_EQ(sources, expected);
}

// Whoever goes on from it records the steps after it only.
TEST_F(Checkpoints, TheTraceHasTheStepsBeforeIt) {
  TrainerOptions options;
  options.trace_path = file("trace.h5");
  options.trace.flush_interval = std::chrono::hours(1);
  Trainer trainer(experiment(), options);
  for (uint64_t step = 1; step <= 3; ++step) {
    trainer.step();
    trainer.save_checkpoint(file("checkpoint"));
    EXPECT_EQ(Snapshot(file("trace.h5")).step_count(), step);
  }
}

TEST_F(Checkpoints, SayWhatTheyAreOf) {
  const ResumableTraining first = run(experiment({"precision=fp16"}), file("first.h5"), "", file("half"), kHalf);
  const CheckpointInfo info = read_checkpoint_info(file("half"));
  EXPECT_EQ(info.run_id, Snapshot(file("first.h5")).run().run_id);
  EXPECT_EQ(info.step, kHalf);
  EXPECT_EQ(info.seed, 5u);
  EXPECT_EQ(parse_experiment(info.experiment, "checkpoint"), experiment({"precision=fp16"}));
}

TEST_F(Checkpoints, AnotherPrecisionMayGoOn) {
  const std::string checkpoint = half(experiment({"precision=fp16"}));
  EXPECT_EQ(run(experiment({"precision=fp32"}), "", checkpoint).losses.size(), 20 - kHalf);
  const std::string plain = half(experiment({"precision=fp32"}));
  EXPECT_EQ(run(experiment({"precision=fp16", "training.steps=30"}), "", plain).losses.size(), 30 - kHalf);
}

TEST_F(Checkpoints, OtherDataAreNoticed) {
  write_file(file("data.csv"), "a,b,label\n1,2,0\n3,4,1\n5,6,2\n7,8,3\n");
  const std::string text = fmt::format(R"(
[data]
kind = "csv"
path = "{}"
test_share = 0
[model]
layers = [{{ type = "linear", name = "fc", out_features = 10 }}]
[training]
batch_size = 2
steps = 20
evaluation = "never"
)",
                                       file("data.csv"));
  const Experiment settings = experiment({}, text);
  const std::string checkpoint = half(settings);
  const auto warning = [&](const std::vector<std::string>& assignments = {}) {
    TrainerOptions options;
    options.resume_from = checkpoint;
    return Trainer(experiment(assignments, text), options).warning();
  };
  EXPECT_EQ(warning(), "");
  EXPECT_THAT(warning({"data.train_size=3"}), HasSubstr("not those of '" + checkpoint + "': 4 samples then, 3 now"));
  for (const char* changed : {"1,2,0\n3,4,1\n5,6,2\n7,8,4\n", "1,2.5,0\n3,4,1\n5,6,2\n7,8,3\n"}) {
    write_file(file("data.csv"), std::string("a,b,label\n") + changed);
    EXPECT_THAT(warning(), HasSubstr("the first or last of the 4 samples differ")) << changed;
  }
}

TEST_F(Checkpoints, WhatDoesNotFitIsNamed) {
  const std::string checkpoint = half();
  const auto refused = [&](const std::string& override) { return refusal(experiment({override}), checkpoint, ErrorKind::usage); };
  std::string other = kResumed;
  other.replace(other.find("out_channels = 4"), 16, "out_channels = 6");
  EXPECT_THAT(refusal(parse_experiment(other, "other"), checkpoint, ErrorKind::usage),
              AllOf(HasSubstr(checkpoint), HasSubstr("'parameters/features%2F0.weight' is [4, 1, 3, 3], expected [6, 1, 3, 3]")));
  other = kResumed;
  other.replace(other.find("\"fc\""), 4, "\"head\"");
  EXPECT_THAT(refusal(parse_experiment(other, "other"), checkpoint, ErrorKind::usage),
              HasSubstr("it has 'parameters/fc.bias', which this one lacks"));
  other = kResumed;
  other.replace(other.find("{ type = \"flatten\" }"), 20,
                "{ type = \"flatten\" },{ type = \"linear\", name = \"more\", out_features = 9 }");
  EXPECT_THAT(refusal(parse_experiment(other, "other"), checkpoint, ErrorKind::usage),
              HasSubstr("it has no 'parameters/more.bias'"));
  EXPECT_THAT(refused("optimizer.type=sgd"), HasSubstr("it keeps mean and square of 'features/0.weight', this one nothing"));
  EXPECT_THAT(refused("training.batch_size=32"), HasSubstr("training.batch_size"));
  EXPECT_THAT(refused("training.steps=10"), AllOf(HasSubstr("step 10"), HasSubstr("training.steps")));
}

// Which parameter has what: the names of all states together are the same in each case.
TEST_F(Checkpoints, WhatAnOptimizerKeepsIsThatOfEachParameter) {
  const auto with_head = [&](const std::string& body, const std::string& head) {
    return experiment({}, std::string(kResumed) + "[optimizer]\n" + body + "\n[[optimizers]]\nmodules = [\"fc\"]\n" + head);
  };
  const std::string adam = "type = \"adam\"", momentum = "type = \"sgd\"\nmomentum = 0.9", plain = "type = \"sgd\"\nmomentum = 0";
  const auto refused = [&](const std::string& body, const std::string& head, const std::string& other_body,
                           const std::string& other) {
    return refusal(with_head(other_body, other), half(with_head(body, head)), ErrorKind::usage);
  };
  EXPECT_THAT(refused(adam, momentum, momentum, adam),
              HasSubstr("it keeps mean and square of 'features/0.weight', this one momentum"));
  EXPECT_THAT(refused(momentum, momentum, momentum, plain), HasSubstr("it keeps momentum of 'fc.weight', this one nothing"));
  EXPECT_EQ(refused(adam, momentum, "type = \"adamw\"", momentum), "accepted");
}

TEST_F(Checkpoints, WhatIsNoCheckpointIsUnreadable) {
  const auto refused = [&](const std::string& path) { return refusal(experiment(), path, ErrorKind::unreadable); };
  EXPECT_THAT(refused(file("missing")), HasSubstr(file("missing")));
  EXPECT_THAT(refused(folder_.path()), HasSubstr("is not a file"));
  write_file(file("text"), "not HDF5, but long enough");
  EXPECT_THAT(refused(file("text")), HasSubstr("is not a checkpoint: not an HDF5 file"));
  write_file(file("empty"), "");
  EXPECT_THAT(refused(file("empty")), HasSubstr("is empty"));
  run(experiment({"training.steps=1"}), file("trace.h5"));
  EXPECT_THAT(refused(file("trace.h5")), HasSubstr("is not a checkpoint: an HDF5 file of other contents"));
  hdf5::File newer = hdf5::File::create(file("newer"), "newer");
  newer.set_attribute("/", "checkpoint_version", kCheckpointVersion + 1);
  newer.close();
  EXPECT_THAT(refused(file("newer")), AllOf(HasSubstr(fmt::format("version {}", kCheckpointVersion + 1)),
                                            HasSubstr(fmt::format("version {}", kCheckpointVersion))));
}

// Numbers that no run has, with checksums that fit.
TEST_F(Checkpoints, NumbersThatNoRunHasAreUnreadable) {
  const std::string python = find_python("h5py, numpy");
  if (python.empty()) GTEST_SKIP() << "no python3 with h5py and numpy";
  const std::string checkpoint = half(experiment({"precision=fp16"}));
  struct Change {
    const char *object, *attribute, *value, *found;
  };
  const std::vector<Change> changes{{"scaler", "scale", "0.0", "0, expected 1.1754943508222875e-38 to 3.4028234663852886e+38"},
                                    {"scaler", "scale", "-8.0", "-8, expected"},
                                    {"scaler", "scale", "float('nan')", "nan, expected"},
                                    {"scaler", "scale", "float('inf')", "inf, expected"},
                                    {"scaler", "growth_tracker", "-1", "-1, expected 0 to 1099511627776"},
                                    {"scaler", "growth_tracker", "numpy.uint64(2**63)", "9223372036854775807, expected"},
                                    {"scaler", "hysteresis_left", "0", "0, expected 1 to"},
                                    {"scaler", "next_scale", "float('nan')", "nan, expected"},
                                    {"parameters/fc.bias", "updates", "-3", "-3, expected 0 to"},
                                    {"parameters/fc.bias", "updates", "numpy.uint64(2**63)", "9223372036854775807, expected"},
                                    {"/", "step", "-5", "-5, expected 0 to"},
                                    {"/", "step", "2**62", "4611686018427387904, expected"},
                                    {"/", "epoch", "-1", "-1, expected 0 to"},
                                    {"/", "batch", "-1", "-1, expected 0 to"},
                                    {"/", "samples", "0", "0, expected 1 to"},
                                    {"/", "data_hash", "numpy.bytes_(b'f00d!')", "'f00d!', expected a hexadecimal number"},
                                    {"/", "seed", "-1", "-1, expected 0 to"}};
  std::string script =
      "import h5py, numpy, shutil\ndef change(name, object, attribute, value):\n    shutil.copy('half', name)\n"
      "    with h5py.File(name, 'a') as file:\n        file[object].attrs[attribute] = value\n";
  for (size_t i = 0; i < changes.size(); ++i)
    script += fmt::format("change('{}', '{}', '{}', {})\n", i, changes[i].object, changes[i].attribute, changes[i].value);
  write_file(file("change.py"), script);
  ASSERT_EQ(std::system(fmt::format("cd {} && {} change.py", folder_.path(), python).c_str()), 0);
  for (size_t i = 0; i < changes.size(); ++i) {
    const Change& change = changes[i];
    EXPECT_THAT(refusal(experiment({"precision=fp16"}), file(std::to_string(i)), ErrorKind::unreadable),
                StartsWith(fmt::format("'{}' is damaged: the attribute '{}' of '{}' is {}", file(std::to_string(i)),
                                       change.attribute, change.object, change.found)));
  }
}

// HDF5 does not survive every damage of a group whose links stand in a heap and a tree, or leaves the file for another one.
TEST_F(Checkpoints, LinksThatTheyDoNotHaveAreUnreadable) {
  const std::string python = find_python("h5py, numpy");
  if (python.empty()) GTEST_SKIP() << "no python3 with h5py and numpy";
  const std::string checkpoint = half();
  const std::vector<std::string> changes{
      "del file['parameters']; [file.require_group('parameters').create_dataset(str(i), data=[1.0]) for i in range(20)]",
      "del file['parameters/fc.bias']; file['parameters/fc.bias'] = h5py.SoftLink('/parameters/fc.weight')",
      "del file['parameters/fc.bias']; file['parameters/fc.bias'] = h5py.ExternalLink('half', '/parameters/fc.bias')",
      "del file['parameters']; file['parameters'] = h5py.SoftLink('/optimizer/mean')",
      "del file['experiment']; file['experiment'] = h5py.SoftLink('/experiment')",
      "del file['experiment']; file.create_dataset('experiment', (2**40,), 'u1', chunks=(2**20,))",
      "del file['experiment']; file['experiment'] = numpy.frombuffer(b'a' + 40000 * b'.a' + b' = 1', 'u1')",
  };
  std::string script =
      "import h5py, numpy, shutil\ndef change(name, what):\n    shutil.copy('half', name)\n"
      "    with h5py.File(name, 'a', libver='latest') as file:\n        exec(what, {'file': file, 'h5py': h5py, 'numpy': numpy})\n";
  for (size_t i = 0; i < changes.size(); ++i) script += fmt::format("change('{}', \"\"\"{}\"\"\")\n", i, changes[i]);
  write_file(file("change.py"), script);
  ASSERT_EQ(std::system(fmt::format("cd {} && {} change.py", folder_.path(), python).c_str()), 0);
  for (size_t i = 0; i + 1 < changes.size(); ++i) {
    EXPECT_THAT(refusal(experiment(), file(std::to_string(i)), ErrorKind::unreadable),
                StartsWith("'" + file(std::to_string(i)) + "'"))
        << changes[i];
  }
  const std::string deep = file(std::to_string(changes.size() - 1));
  try {
    parse_experiment(read_checkpoint_info(deep).experiment, deep);
    FAIL() << "40,000 tables within each other were read";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), deep + ":1: tables or lists more than 100 deep");
  }
}

TEST_F(Checkpoints, DamageIsNoticedOrChangesNothing) {
  const std::string whole = read_file(half());
  const uint64_t expected = run(experiment(), "", file("half")).result.weights_fingerprint;
  int noticed = 0;
  const auto examine = [&](const std::string& bytes, const std::string& what) {
    write_file(file("damaged"), bytes);
    try {
      EXPECT_EQ(run(experiment(), "", file("damaged")).result.weights_fingerprint, expected) << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unreadable) << what << ": " << error.what();
      EXPECT_THAT(error.what(), StartsWith("'" + file("damaged") + "'")) << what;
      ++noticed;
    }
  };
  for (size_t i = 1; i < 40; ++i) examine(whole.substr(0, whole.size() * i / 40), fmt::format("the first {}/40", i));
  EXPECT_EQ(noticed, 39);
  noticed = 0;
  const size_t stride = whole.size() / 150;
  for (size_t at = 0; at < whole.size(); at += stride) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    examine(damaged, fmt::format("byte {}", at));
  }
  EXPECT_GT(noticed, 20);
}

TEST_F(Checkpoints, LinksToElsewhereAreDamage) {
  const std::string python = find_python("h5py");
  if (python.empty()) GTEST_SKIP() << "no python3 with h5py";
  const std::string whole = read_file(half());
  for (const char* link : {"ExternalLink('other.h5', '/x')", "SoftLink('/parameters')"}) {
    write_file(file("linked"), whole);
    write_file(file("link.py"),
               fmt::format("import h5py\nwith h5py.File('linked', 'r+') as c:\n    c['parameters/zz'] = h5py.{}\n", link));
    ASSERT_EQ(std::system(fmt::format("cd {} && {} link.py", folder_.path(), python).c_str()), 0);
    try {
      run(experiment(), "", file("linked"));
      ADD_FAILURE() << "it was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unreadable);
      EXPECT_THAT(error.what(), StartsWith("'" + file("linked") + "': group '"));
      EXPECT_THAT(error.what(), HasSubstr("parameters' is damaged or made otherwise: its member 'zz' is a link to elsewhere"));
    }
  }
}

TEST_F(Checkpoints, AFullDiskKeepsTheOneThatWasThere) {
  const std::string before = read_file(half());
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (uint64_t share = 0; share < 8; ++share) {
    const rlimit small{before.size() * share / 8, limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    EXPECT_THAT(refusal_to_write(file("half")), HasSubstr("'" + file("half") + "'"));
    setrlimit(RLIMIT_FSIZE, &limit);
    EXPECT_EQ(read_file(file("half")), before);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), std::filesystem::directory_iterator()), 1);
  }
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(refusal_to_write(file("half")), "written");
  EXPECT_EQ(read_checkpoint_info(file("half")).step, kHalf + 1);
}

}  // namespace
}  // namespace ulpscope
