// The files that `ulpscope train` writes besides the numbers in them: what it replaces, checkpoints, weights.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/support/python.h"
#include "train_fixture.h"
#include "ulpscope/core/run/checkpoint.h"

namespace ulpscope::cli_test {
namespace {

using ::testing::HasSubstr;

TEST_F(Train, KeepsAnExistingTrace) {
  ASSERT_EQ(train({"mlp", "--steps", "2"}).exit_code, 0);
  const std::string precious = read_file(file("run.h5"));
  EXPECT_EQ(train({"mlp", "--steps", "1"}).exit_code, 2);
  EXPECT_EQ(read_file(file("run.h5")), precious);
  EXPECT_EQ(train({"mlp", "--steps", "1", "--force"}).exit_code, 0);
  EXPECT_EQ(info(file("run.h5"))["steps"], 1);
  write_file(file("run.h5"), "no trace");
  EXPECT_EQ(train({"mlp", "--steps", "1", "--force"}).exit_code, 2);
  EXPECT_EQ(read_file(file("run.h5")), "no trace");
}

TEST_F(Train, ForceReplacesFilesOfTheSameKindOnly) {
  const std::string length_beyond_the_end("\x10\0\0\0\0\0\0\0{}", 10);
  const auto outcome = [&](const char* option, const std::string& old, const char* expected) {
    write_file(file("kept"), old);
    const Result result = train({"mlp", "--steps", "1", "--record", "off", option, "kept", "--force"});
    const bool replaced = read_file(file("kept")) != old;
    EXPECT_EQ(replaced, *expected == '\0') << option;
    EXPECT_EQ(result.exit_code, replaced ? 0 : 2) << result.err;
    if (replaced) return;
    EXPECT_EQ(result.err, fmt::format("ulpscope: 'kept' is not {}, so none replaces it; remove it first\n", expected));
  };
  for (const std::string& other : {std::string("a thesis"), std::string("x"), std::string("notes: { }"), length_beyond_the_end}) {
    outcome("--checkpoint", other, "a checkpoint");
    outcome("--save-weights", other, "a safetensors file");
  }
  for (const char* option : {"--checkpoint", "--save-weights"}) {
    outcome(option, "", "");
    EXPECT_EQ(train({"mlp", "--steps", "2", "--record", "off", option, option + 2, "--force"}).exit_code, 0);
    outcome(option, read_file(file(option + 2)), "");
  }
  outcome("--checkpoint", read_file(file("save-weights")), "a checkpoint");
  outcome("--save-weights", read_file(file("checkpoint")), "a safetensors file");
}

TEST_F(Train, GoesOnFromACheckpoint) {
  const auto fingerprint = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--threads", "1", "--json"});
    const Result result = train(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out)["weights_fingerprint"].get<std::string>();
  };
  const std::string whole = fingerprint({"mlp", "--precision", "fp16", "--steps", "6"});
  EXPECT_NE(fingerprint({"mlp", "--precision", "fp16", "--steps", "3", "--checkpoint", "half", "-o", "a.h5"}), whole);
  EXPECT_EQ(fingerprint({"--resume", "half", "--steps", "6", "-o", "b.h5"}), whole);
  EXPECT_EQ(fingerprint({"mlp", "--resume", "half", "--precision", "fp16", "--steps", "6", "-o", "c.h5"}), whole);
  const Json trace = info(file("b.h5"));
  EXPECT_EQ(trace["parent_run"], info(file("a.h5"))["run_id"]);
  EXPECT_EQ(trace["parent_step"], 3);
  EXPECT_EQ(trace["first_step"], 3);
  EXPECT_EQ(trace["steps"], 3);
  EXPECT_EQ(trace["precision"], "fp16");
  // A run may replace the checkpoint that it goes on from, and no other file of its own.
  EXPECT_EQ(train({"--resume", "half", "--steps", "5", "--checkpoint", "half", "-o", "d.h5"}).exit_code, 0);
  EXPECT_EQ(fingerprint({"--resume", "half", "--steps", "6", "-o", "e.h5"}), whole);
  EXPECT_EQ(train({"--resume", "half", "--steps", "6", "-o", "half", "--force"}).exit_code, 2);
  EXPECT_EQ(train({"--resume", "half", "--steps", "6", "--save-weights", "half", "--force"}).exit_code, 2);
  EXPECT_EQ(train({"mlp", "--steps", "1", "-o", "x", "--checkpoint", "./x"}).exit_code, 2);
}

// With delayed scales, what FP8 values are multiplied by after the checkpoint follows from the largest magnitudes of the steps
// before.
TEST_F(Train, Fp8RunsGoOnWithTheMagnitudesThatTheyRemember) {
  const auto arguments = [](const char* history, std::vector<std::string> more) {
    std::vector<std::string> all{"mlp", "--precision", "fp8", "--set", "fp8.recipe=delayed", "--set", history, "--steps", "16"};
    all.insert(all.end(), {"--threads", "1", "--json"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto weights = [](const Result& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out)["weights_fingerprint"].get<std::string>();
  };
  const std::string whole = weights(train(arguments("fp8.amax_history=8", {"-o", "whole.h5"})));
  EXPECT_NE(weights(train(arguments("fp8.amax_history=1", {"--record", "off"}))), whole);
  RunOptions killed;
  killed.interrupt_after = "step 10/";
  killed.signal = SIGKILL;
  EXPECT_EQ(
      train(arguments("fp8.amax_history=8", {"-o", "a.h5", "--checkpoint", "last", "--checkpoint-every", "3"}), killed).signal,
      SIGKILL);
  EXPECT_GT(read_checkpoint_info(file("last")).step, 0u);
  EXPECT_EQ(weights(train({"--resume", "last", "--steps", "16", "--threads", "1", "--json", "-o", "b.h5"})), whole);
}

TEST_F(Train, DataAreNotReplaced) {
  const std::string data = "a,b\n1,0\n2,1\n";
  write_file(file("table.csv"), data);
  write_file(file("table.toml"),
             "data = { kind = \"csv\", path = \"table.csv\", classes = 2, test_share = 0 }\n"
             "model.layers = [{ type = \"linear\", out_features = 2 }]\ntraining.steps = 2\n");
  EXPECT_EQ(train({"table.toml"}).exit_code, 0);
  for (const char* option : {"-o", "--checkpoint", "--save-weights"}) {
    const Result result = train({"table.toml", option, "table.csv", "--force"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("'table.csv' is another file of this command, and is not replaced"));
    EXPECT_EQ(read_file(file("table.csv")), data);
  }
}

// A run that was killed, and the one that went on from its checkpoint, are reported as one that went through: a checkpoint commits
// the steps of the trace before it, however rarely the trace is flushed.
TEST_F(Train, AFolderOfResumedTracesReadsAsOneRun) {
  const std::vector<std::string> run{"mlp", "--precision", "fp16", "--steps", "12", "--threads", "1"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = run;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  std::filesystem::create_directory(file("parts"));
  ASSERT_EQ(train(with({"-o", "whole.h5"})).exit_code, 0);
  RunOptions killed;
  killed.interrupt_after = "step 9/";
  killed.signal = SIGKILL;
  EXPECT_EQ(
      train(with({"-o", "parts/b.h5", "--checkpoint", "last", "--checkpoint-every", "4", "--set", "recording.flush_interval=3600"}),
            killed)
          .signal,
      SIGKILL);
  ASSERT_EQ(train({"--resume", "last", "--steps", "12", "--threads", "1", "-o", "parts/a.h5"}).exit_code, 0);

  const Json whole = info(file("whole.h5")), merged = info(file("parts"));
  for (const auto& [name, value] : whole.items()) {
    static const std::set<std::string> kOther{"run_id",        "started", "seconds", "seconds_per_step", "file_bytes",
                                              "bytes_per_row", "sources", "tables",  "settings_given"};
    if (kOther.contains(name)) continue;
    EXPECT_EQ(merged[name], value) << name;
  }
  EXPECT_EQ(merged["run_id"], info(file("parts/a.h5"))["run_id"]);
  const Json& parts = merged["tables"][0]["rows"];
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0]["values"]["trace"], file("parts/b.h5"));
  EXPECT_EQ(parts[1]["values"]["trace"], file("parts/a.h5"));
  EXPECT_EQ(parts[1]["values"]["first_step"], info(file("parts/a.h5"))["first_step"]);
  // What is not about time is the same in every line.
  const auto lines = [&](std::vector<std::string> arguments, const std::string& trace) {
    arguments.insert(arguments.begin() + 1, {trace, "--limit", "0"});
    const Result result = run_program(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::istringstream text(result.out);
    std::vector<std::string> kept;
    for (std::string line; std::getline(text, line);) {
      if (line.find(" (run ") == std::string::npos && line.find("seconds") == std::string::npos) kept.push_back(line);
    }
    return kept;
  };
  for (const char* verb : {"ranges", "report", "scale"})
    EXPECT_EQ(lines({verb}, file("parts")), lines({verb}, file("whole.h5"))) << verb;
  const Result compared = run_program({"compare", file("whole.h5"), file("parts")});
  EXPECT_THAT(compared.out, HasSubstr("The losses of all 12 common steps are bit-equal."));
  const Result refused = run_program({"report", file("parts"), "-o", file("parts/a.h5"), "--force"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("is another file of this command"));
}

TEST_F(Train, TheExampleOfTheDocsReadsACheckpoint) {
  const std::string python = find_python("h5py");
  if (python.empty()) GTEST_SKIP() << "no python3 with h5py";
  ASSERT_EQ(train({"mlp", "--steps", "2", "--checkpoint", "mlp.ckpt"}).exit_code, 0);
  write_file(file("example.py"), "import re\nexec(re.search(r'^```python\\n(.*?)^```', open('" ULPSCOPE_SOURCE_DIR
                                 "/docs/checkpoint_format.md').read(), re.M | re.S)[1])\n");
  ASSERT_EQ(std::system(("cd " + folder_.path() + " && " + python + " example.py > printed").c_str()), 0);
  const std::string printed = read_file(file("printed"));
  EXPECT_THAT(printed, ::testing::StartsWith("2 steps\n"));
  EXPECT_THAT(printed, HasSubstr("2.weight (256, 256) float32 2\n"));
}

TEST_F(Train, ACheckpointIsThereWhenTheProgramIsKilled) {
  RunOptions options;
  options.interrupt_after = "step 5/";
  options.signal = SIGKILL;
  const Result result = train({"mlp", "--steps", "100", "--checkpoint", "last", "--checkpoint-every", "2"}, options);
  EXPECT_EQ(result.signal, SIGKILL);
  const uint64_t step = read_checkpoint_info(file("last")).step;
  EXPECT_GE(step, 4u);
  EXPECT_EQ(step % 2, 0u);
}

// As readers of the layout demand: the values begin at a multiple of 8, and each tensor's where the one before ends.
TEST_F(Train, SavesWeightsThatOthersCanRead) {
  const std::string path = file("weights.safetensors"), name = "a\"b\\c\nd\u00e9";
  write_file(file("named.toml"), R"(
[data]
kind = "random_classification"
shape = [4]
classes = 3
[model]
layers = [{ type = "batch_norm", name = "a\"b\\c\nd\u00e9" }, { type = "linear", name = "last", out_features = 3, bias = false }]
)");
  const std::vector<std::string> words{"named.toml", "--steps", "1", "--set", "optimizer.learning_rate=0", "--save-weights", path};
  ASSERT_EQ(train(words).exit_code, 0);
  const std::string bytes = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  EXPECT_EQ(length % 8, 0u);
  const auto header = nlohmann::ordered_json::parse(bytes.substr(8, length));
  uint64_t end = 0;
  std::vector<std::string> names;
  for (const auto& [tensor_name, tensor] : header.items()) {
    names.push_back(tensor_name);
    uint64_t elements = 1;
    for (const uint64_t extent : tensor["shape"]) elements *= extent;
    EXPECT_EQ(tensor["dtype"], "F32") << tensor_name;
    EXPECT_EQ(tensor["data_offsets"], (std::vector<uint64_t>{end, end + 4 * elements})) << tensor_name;
    end += 4 * elements;
  }
  EXPECT_EQ(bytes.size(), 8 + length + end);
  EXPECT_THAT(names, ::testing::UnorderedElementsAre(name + ".weight", name + ".bias", name + ".running_mean",
                                                     name + ".running_var", "last.weight"));
  EXPECT_EQ(header["last.weight"]["shape"], (std::vector<uint64_t>{3, 4}));
  float ones[4] = {};
  std::memcpy(ones, bytes.data() + 8 + length + header[name + ".weight"]["data_offsets"][0].get<uint64_t>(), sizeof ones);
  EXPECT_THAT(ones, ::testing::Each(1.0f));
  EXPECT_EQ(train({"mlp", "--steps", "1", "--record", "off", "--save-weights", path}).exit_code, 2);  // kept
}

}  // namespace
}  // namespace ulpscope::cli_test
