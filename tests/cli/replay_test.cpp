// Capsules and replays as their users have them: what is printed, what is refused, and the exit codes.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "train_fixture.h"

namespace ulpscope::cli_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Replay : public Train {
 protected:
  Result replay(std::vector<std::string> arguments) { return run_verb("replay", std::move(arguments)); }
  // Steps 2 to 7 of mlp in FP16.
  Result make_capsule(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"mlp",  "--precision",  "fp16",   "--steps",      "9", "--threads", "1", "--capsule",
                                       "kept", "--capsule-on", "step=7", "--keep-steps", "2", "--force"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return train(arguments);
  }
};

TEST_F(Replay, MinimizeLeavesTheSampleThatItTakes) {
  write_file(file("bad.toml"), R"(precision = "fp16"
[model]
layers = [{ type = "linear", name = "first", out_features = 8 }, { type = "relu" }, { type = "linear", name = "head", out_features = 4 }]
[data]
kind = "random_classification"
shape = [6]
classes = 4
train_size = 64
shuffle = false
[training]
batch_size = 16
steps = 8
evaluation = "never"
[scaler]
enabled = "off"
[[inject]]
sample = 37
steps = 0
set = 1e6
)");
  ASSERT_EQ(train({"bad.toml", "--capsule", "kept", "--threads", "1"}).exit_code, 0);
  const Result result = replay({"kept", "--minimize", "small", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["fails_in"], "cast in first (forward)");
  EXPECT_EQ(json["steps"], "3 to 1");
  EXPECT_EQ(json["samples"], "16 to 1");
  EXPECT_EQ(json["samples_left"], "37");
  EXPECT_EQ(replay({"small"}).exit_code, 0);
  EXPECT_THAT(replay({"small", "--as", "fp32"}).out, HasSubstr("losses finite                 yes"));
  // Any change that keeps it finite learns its one sample by heart.
  EXPECT_THAT(run_verb("nan", {"small"}).out,
              AllOf(HasSubstr("fails again"), HasSubstr("none: the capsule has the samples of one step alone"),
                    HasSubstr("stays_finite"), Not(HasSubstr("verified")), Not(HasSubstr("Verified"))));
  EXPECT_EQ(replay({"kept", "--minimize", "small"}).exit_code, 2);  // it is there
  EXPECT_EQ(replay({"kept", "--minimize", "other", "--as", "fp32"}).exit_code, 2);
  EXPECT_THAT(replay({"kept", "--budget", "3"}).err, HasSubstr("--budget belongs to --minimize"));
}

// The logarithm of what relu made 0, of which another relu makes 0 again: `nan` says that nothing fails, and so does this.
TEST_F(Replay, MinimizeSaysThatWhatIsHarmlessDoesNotFail) {
  write_file(file("mask.toml"), R"(precision = "fp16"
seed = 2
[model]
layers = [
  { type = "linear", name = "first", out_features = 16 },
  { type = "branches", name = "split", join = "add", layers = [
    { type = "relu", name = "main" },
    { type = "sequential", name = "side", layers = [{ type = "relu" }, { type = "log", name = "log" }, { type = "relu" }] },
  ] },
  { type = "linear", name = "head", out_features = 8 },
]
[data]
kind = "random_classification"
shape = [16]
classes = 8
train_size = 64
[training]
batch_size = 16
steps = 4
evaluation = "never"
)");
  ASSERT_EQ(train({"mask.toml", "--capsule", "kept", "--capsule-on", "overflow", "--threads", "1"}).exit_code, 0);
  EXPECT_THAT(replay({"kept"}).out, HasSubstr("log in split.side.log (forward) had "));
  EXPECT_EQ(Json::parse(run_verb("nan", {"kept", "--json"}).out)["verdict"], "ok");
  const Result result = replay({"kept", "--minimize", "small", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_FALSE(json.contains("fails_in"));
  EXPECT_EQ(json["not_finite"], "log in split.side.log (forward)");
  EXPECT_THAT(json["title"].get<std::string>(), ::testing::Not(HasSubstr("fails")));
  EXPECT_THAT(json["harm"].get<std::string>(), ::testing::StartsWith("none"));
  EXPECT_EQ(json["samples"], "16 to 1");
  EXPECT_EQ(Json::parse(run_verb("nan", {"small", "--json"}).out)["verdict"], "ok");
}

// The experiment's path of its data is relative to the folder in which it was trained, and whoever asks stands in another.
TEST_F(Replay, DataAreFoundBesideWhatWasWrittenOfTheRun) {
  namespace fs = std::filesystem;
  for (const char* folder : {"project/data", "project/experiments", "project/runs/first", "elsewhere"})
    fs::create_directories(file(folder));
  write_file(file("project/data/rows.csv"), "a,b,label\n1,2,0\n3,4,1\n5,6,2\n7,8,3\n9,1,4\n2,3,1\n");
  write_file(file("project/experiments/run.toml"), R"(precision = "fp16"
[data]
kind = "csv"
path = "../data/rows.csv"
test_share = 0
[model]
layers = [{ type = "linear", name = "head", out_features = 10 }]
[optimizer]
learning_rate = 1e6
[training]
batch_size = 2
steps = 12
evaluation = "never"
)");
  RunOptions in_project, elsewhere;
  in_project.working_directory = file("project");
  elsewhere.working_directory = file("elsewhere");
  ASSERT_EQ(run_program({"train", "experiments/run.toml", "--threads", "1", "--capsule", "runs/first/kept", "--capsule-on",
                         "step=6", "-o", "runs/first/run.h5"},
                        in_project)
                .exit_code,
            0);
  const auto again = [&](const std::string& folder) { return run_program({"replay", file(folder) + "/kept"}, elsewhere); };
  const auto fixes = [&](const std::string& folder) {
    return run_program({"nan", file(folder) + "/run.h5", "--json", "--budget", "1000000000"}, elsewhere);
  };
  EXPECT_EQ(again("project/runs/first").exit_code, 0) << again("project/runs/first").err;
  EXPECT_THAT(fixes("project/runs/first").out, HasSubstr("fails again"));

  fs::create_directory(file("moved"));
  for (const char* name : {"kept", "run.h5"})
    fs::rename(file(std::string("project/runs/first/") + name), file(std::string("moved/") + name));
  for (const Result& refused : {again("moved"), fixes("moved")})
    EXPECT_THAT(refused.err + refused.out,
                HasSubstr("data/rows.csv', data of the run: looked in '" + file("moved") + "' and in the current folder, '" +
                          file("elsewhere") + "', and in the folders above it"));
  EXPECT_EQ(again("moved").exit_code, 3);
  fs::copy_file(file("project/data/rows.csv"), file("moved/rows.csv"));
  EXPECT_EQ(again("moved").exit_code, 0) << again("moved").err;
  EXPECT_THAT(fixes("moved").out, HasSubstr("fails again"));
  // Data that are others under the same name are none of the capsule's.
  write_file(file("moved/rows.csv"), "a,b,label\n1,2,0\n3,4,1\n5,6,2\n7,8.5,3\n9,1,4\n2,3,1\n");
  EXPECT_THAT(again("moved").err, HasSubstr("the data are not those of step"));
}

TEST_F(Replay, ModulesCanBeKeptInFp32) {
  ASSERT_EQ(make_capsule().exit_code, 0);
  const Result kept = replay({"kept", "--keep-fp32", "0", "--keep-fp32", "2*", "-o", "again.h5"});
  ASSERT_EQ(kept.exit_code, 0) << kept.err;
  EXPECT_THAT(kept.out, HasSubstr("with --keep-fp32 0 and --keep-fp32 2*\n"));
  EXPECT_THAT(replay({"kept", "--keep-fp32", "nowhere"}).err, HasSubstr("no module of the model matches 'nowhere'"));
}

TEST_F(Replay, OpsAreComparedWithFp64) {
  ASSERT_EQ(make_capsule().exit_code, 0);
  const auto ops = [&](const std::vector<std::string>& change) {
    std::vector<std::string> arguments{"kept", "--json", "--limit", "0"};
    arguments.insert(arguments.end(), change.begin(), change.end());
    const Result result = replay(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Json json = Json::parse(result.out);
    EXPECT_EQ(json["tables"][1]["name"], "ops");
    EXPECT_EQ(json["tables"][1]["rows"].size(), json["outputs_compared"]);
    return json["tables"][1]["rows"];
  };
  for (const Json& row : ops({"--as", "fp64"})) {
    EXPECT_EQ(row["values"]["type"], "f64");
    EXPECT_LE(row["values"]["first_difference"], row["values"]["largest_difference"]);
  }
  for (const Json& row : ops({"--by-op"})) EXPECT_EQ(row["values"]["largest_difference"], 0);
  const Json accumulated = ops({"--by-op", "--set", "arithmetic.accumulate=h100"});
  EXPECT_GT(accumulated[0]["values"]["largest_difference"], 0);
  EXPECT_EQ(Json::parse(replay({"kept", "--as", "bf16", "--json"}).out)["tables"].size(), 1u);
  EXPECT_THAT(replay({"kept", "--as", "fp64", "--threads", "1"}).err,
              HasSubstr("expected neither --device nor --threads nor --isa"));
  EXPECT_THAT(replay({"kept", "--minimize", "small", "--by-op"}).err, HasSubstr("--by-op: --minimize looks for"));
}

TEST_F(Replay, TellsWhetherItIsTheSame) {
  const Result trained = make_capsule();
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("capsule of steps 4 to 7 in kept: `ulpscope replay kept`\n"));
  const Result same = replay({"kept", "--against", "run.h5"});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_EQ(same.err, "");
  EXPECT_THAT(same.out, ::testing::StartsWith("Replayed steps 4 to 7 of mlp: bit-equal\n"));
  const Json json = Json::parse(replay({"kept", "--against", "run.h5", "--json"}).out);
  EXPECT_EQ(json["identical"], true);
  EXPECT_EQ(json["rows_identical"], true);
  EXPECT_EQ(json["run_of_trace"], "that of the capsule");
  EXPECT_EQ(json["steps_compared"], 4);
  EXPECT_FALSE(json.contains("steps_not_in_trace"));
  EXPECT_EQ(json["tables"][0]["rows"].size(), 4u);

  const Result changed = replay({"kept", "--set", "arithmetic.accumulate=h100", "--against", "run.h5"});
  EXPECT_EQ(changed.exit_code, 1);
  EXPECT_THAT(changed.out, AllOf(HasSubstr("linear in 0 (forward) in step 4: "), HasSubstr("in the replay")));
  EXPECT_EQ(replay({"kept", "--set", "arithmetic.accumulate=h100"}).exit_code, 0);
  for (const char* precision : {"fp32", "bf16", "fp8"}) {
    const Result other = replay({"kept", "--as", precision});
    EXPECT_EQ(other.exit_code, 0) << other.err;
    EXPECT_THAT(other.out, HasSubstr(fmt::format("with --as {}\n", precision)));
  }
  EXPECT_THAT(replay({"kept", "--scale", "2^40"}).out,
              AllOf(HasSubstr("with --scale 2^40\n"), HasSubstr("first nonfinite op            cast\n")));

  EXPECT_EQ(replay({"kept", "-o", "again.h5"}).exit_code, 0);
  EXPECT_EQ(info(file("again.h5"))["first_step"], 4);
  EXPECT_EQ(info(file("again.h5"))["steps"], 4);
  EXPECT_EQ(info(file("again.h5"))["parent_run"], info(file("run.h5"))["run_id"]);
}

// What is compared with another trace says which run's it is, and which steps it has.
TEST_F(Replay, TellsWhatItWasComparedWith) {
  const std::vector<std::string> plain{"--set", "training.evaluation=never"};
  ASSERT_EQ(make_capsule(plain).exit_code, 0);
  const auto train_other = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"mlp", "--precision", "fp16", "--threads", "1"});
    arguments.insert(arguments.end(), plain.begin(), plain.end());
    ASSERT_EQ(train(arguments).exit_code, 0);
  };
  const auto against = [&](const char* trace) {
    const Result result = replay({"kept", "--against", trace, "--json"});
    const Json json = Json::parse(result.out);
    EXPECT_EQ(result.exit_code, json["rows_identical"] == true ? 0 : 1) << result.out;
    return json;
  };
  train_other({"--steps", "6", "-o", "short.h5"});
  const Json shorter = against("short.h5");
  EXPECT_THAT(shorter["run_of_trace"].get<std::string>(),
              AllOf(::testing::StartsWith("another run ("), HasSubstr("another experiment")));
  EXPECT_EQ(shorter["rows_identical"], true);
  EXPECT_EQ(shorter["steps_compared"], 2);
  EXPECT_EQ(shorter["steps_not_in_trace"], 2);
  EXPECT_EQ(shorter["first_step_not_in_trace"], 6);
  ASSERT_EQ(replay({"kept", "-o", "again.h5"}).exit_code, 0);
  const Json again = against("again.h5");
  EXPECT_THAT(again["run_of_trace"].get<std::string>(), ::testing::StartsWith("another run, which resumed that of the capsule ("));
  EXPECT_EQ(again["rows_identical"], true);
  train_other({"--steps", "9", "--seed", "9", "-o", "other.h5"});
  EXPECT_EQ(against("other.h5")["rows_identical"], false);
}

TEST_F(Replay, OfOtherStepsIsRefused) {
  ASSERT_EQ(make_capsule().exit_code, 0);
  ASSERT_EQ(train({"mlp", "--precision", "fp16", "--steps", "3", "-o", "short.h5"}).exit_code, 0);
  const auto expect = [&](std::vector<std::string> arguments, int code, const std::string& part) {
    const Result result = replay(arguments);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, AllOf(::testing::StartsWith("ulpscope: "), HasSubstr(part)));
  };
  expect({"kept", "--against", "short.h5"}, 2, "'short.h5' has none of the steps 4 to 7 of 'kept'");
  expect({"kept", "-o", "run.h5"}, 2, "run.h5");
  expect({"kept", "-o", "kept", "--force"}, 2, "is another file of this command");
  expect({"kept", "--scale", "much"}, 2, "--scale much");
  expect({"kept", "--as", "fp12"}, 2, "fp64, fp32, fp16, bf16 or fp8");
  expect({"kept", "--set", "training.batch_sise=3"}, 2, "did you mean");
  expect({"kept", "--set", "training.batch_size=3"}, 2, "--set training.batch_size=3: training.batch_size cannot be changed");
  expect({"kept", "--set", "training.steps=2"}, 2, "--set training.steps=2: training.steps cannot be changed");
  expect({"missing"}, 3, "missing");
  expect({"run.h5"}, 3, "'run.h5' is a trace; expected a capsule, as `ulpscope train --capsule FILE` writes");
  expect({}, 2, "CAPSULE");
}

// The preset records evaluations only, of which there is none before the end of an epoch.
TEST_F(Replay, WithoutARowToCompareNothingIsSaidToBeIdentical) {
  const auto compare = [&](const char* event) {
    EXPECT_EQ(train({"inference", "--threads", "1", "--capsule", "kept", "--capsule-on", event, "--force"}).exit_code, 0);
    return replay({"kept", "--against", "run.h5", "--json"});
  };
  const Result none = compare("step=3");
  EXPECT_EQ(none.exit_code, 2) << none.out;
  EXPECT_THAT(none.err, HasSubstr("'run.h5' has no row of the steps 0 to 3 of 'kept', so that nothing can be compared"));
  const Result evaluated = compare("step=31");
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.err;
  EXPECT_GT(Json::parse(evaluated.out)["rows_compared"], 0);
}

TEST_F(Replay, CapsuleOptionsAreChecked) {
  const auto expect = [&](std::vector<std::string> arguments, const std::string& part) {
    arguments.insert(arguments.begin(), {"mlp", "--steps", "1", "--record", "off"});
    const Result result = train(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(part));
  };
  expect({"--capsule-on", "nan"}, "--capsule-on needs --capsule");
  expect({"--keep-steps", "3"}, "--keep-steps needs --capsule");
  expect({"--keep-samples"}, "--keep-samples needs --capsule");
  expect({"--capsule", "c", "--keep-steps", "0"}, "--keep-steps");
  expect({"--capsule", "c", "--keep-steps", "99999999"}, "expected at most 1048576");
  expect({"--capsule", "c", "--capsule-on", "inf"}, "nan, overflow, backoff or step=N, not 'inf'");
  expect({"--capsule", "c", "--capsule-on", "step=-1"}, "takes a step, not '-1'");
  expect({"--capsule", "c", "--checkpoint", "c"}, "is another file of this command");
  write_file(file("thesis"), "precious");
  expect({"--capsule", "thesis", "--force"}, "is not a checkpoint");
  write_file(file("kept"), "");
  expect({"--capsule", "kept"}, "--force");
}

// Without one that happens, and without one that can be written, training ends as it would.
TEST_F(Replay, TrainingSaysWhatCameOfTheCapsule) {
  const Result none = train({"mlp", "--steps", "2", "--record", "off", "--capsule", "none"});
  EXPECT_EQ(none.exit_code, 0);
  EXPECT_THAT(none.err, HasSubstr("\nno capsule: what --capsule-on names did not happen\n"));
  EXPECT_FALSE(std::filesystem::exists(file("none")));
  RunOptions full;
  full.file_limit = 16384;
  const Result failed = train({"mlp", "--steps", "4", "--record", "off", "--capsule", "large", "--capsule-on", "step=1"}, full);
  EXPECT_EQ(failed.exit_code, 0) << failed.err;
  EXPECT_THAT(failed.err, HasSubstr("\nulpscope: warning: no capsule: cannot write capsule 'large'"));
  EXPECT_THAT(failed.err, HasSubstr("step 3  4/4"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

}  // namespace
}  // namespace ulpscope::cli_test
