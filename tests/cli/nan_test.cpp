// `ulpscope nan` as its users have it: of traces and capsules, with and without trials, and what it refuses.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "train_fixture.h"
#include "ulpscope/trace/sink.h"

namespace ulpscope::cli_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// No time of this machine decides what is tried.
constexpr const char* kNoLimit = "--budget=1000000000";

class Nan : public Train {
 protected:
  Result nan(std::vector<std::string> arguments) { return run_verb("nan", std::move(arguments)); }
  static Json table(const Json& report, const std::string& name) {
    for (const Json& each : report["tables"])
      if (each["name"] == name) return each;
    return Json();
  }
  // A learning rate that no format bears: FP16 breaks in step 1.
  Result break_run(std::vector<std::string> more) {
    more.insert(more.begin(),
                {"mlp", "--precision", "fp16", "--steps", "8", "--threads", "1", "--set", "optimizer.learning_rate=1e6"});
    return train(more);
  }
};

TEST_F(Nan, OfATraceTellsTheBeginningAndTries) {
  ASSERT_EQ(break_run({}).exit_code, 0);
  const Result result = nan({"run.h5", kNoLimit});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(StartsWith("BROKEN: "), HasSubstr("overflow_on_cast"), HasSubstr("Changes tried, "),
                                HasSubstr("from step 0 on"), HasSubstr("Operands of element 0 of 0.weight (FP16), step 1"),
                                HasSubstr("Path to the loss")));
  EXPECT_THAT(result.err, HasSubstr("trying as it was\n"));
  const Json json = Json::parse(nan({"run.h5", "--json", kNoLimit}).out);
  EXPECT_EQ(json["tensor"], "0.weight (FP16)");
  EXPECT_EQ(json["step"], 1);
  EXPECT_EQ(json["cause"], "overflow_on_cast");
  EXPECT_EQ(json["type"], "f16");
  EXPECT_THAT(json["run_again"].get<std::string>(), StartsWith("fails again: "));
  const Json fixes = table(json, "fixes")["rows"];
  ASSERT_FALSE(fixes.empty());
  for (const Json& row : fixes)
    EXPECT_FALSE(row["values"]["change"] == "BF16: precision = \"bf16\"" && row["values"]["result"] == "verified");
  // The cast of a weight that is beyond FP16.
  const Json operands = table(json, "operands")["rows"];
  ASSERT_EQ(operands.size(), 2u);
  EXPECT_EQ(operands[0]["values"]["encoding"].get<std::string>().substr(1, 5), "x7c00");
  EXPECT_GE(std::abs(std::stod(operands[1]["values"]["value"].get<std::string>())), 65520);
}

// A path in an experiment is from where the run was trained. Trials in another folder look beside the trace or capsule, and above.
TEST_F(Nan, DataAreLookedForBesideWhatWasWrittenOfTheRun) {
  for (const char* folder : {"project/runs", "elsewhere"}) std::filesystem::create_directories(file(folder));
  std::string rows = "x,y\n";
  for (int i = 0; i < 64; ++i) rows += std::to_string(i % 8 - 3.5) + "," + std::to_string(i % 2) + "\n";
  write_file(file("project/points.csv"), rows);
  write_file(file("project/run.toml"), R"(precision = "fp16"
[model]
layers = [{ type = "linear", name = "head", out_features = 2 }]
[data]
kind = "csv"
path = "points.csv"
target_columns = ["y"]
classes = 2
[training]
batch_size = 8
steps = 8
[optimizer]
learning_rate = 1e6
)");
  const auto in = [&](const std::string& folder, std::vector<std::string> arguments) {
    RunOptions options;
    options.working_directory = folder;
    return run_program(arguments, options);
  };
  ASSERT_EQ(in(file("project"), {"train", "run.toml", "--threads", "1", "-o", "runs/run.h5", "--capsule", "runs/kept"}).exit_code,
            0);
  const auto run_again = [&](const std::string& folder, const std::string& path) {
    const Result result = in(folder, {"nan", path, "--json", kNoLimit});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out)["run_again"].get<std::string>();
  };
  for (const char* written : {"run.h5", "kept"}) {
    EXPECT_THAT(run_again(folder_.path(), std::string("project/runs/") + written), StartsWith("fails again")) << written;
    EXPECT_THAT(run_again("/", file("project/runs/") + written), StartsWith("fails again")) << written;
  }
  // Where neither is, it is said where they were looked for; a file beside the trace is found by its name.
  std::filesystem::copy(file("project/runs/run.h5"), file("elsewhere/run.h5"));
  EXPECT_THAT(run_again(folder_.path(), "elsewhere/run.h5"),
              AllOf(HasSubstr("cannot read 'points.csv'"), HasSubstr("looked in '" + file("elsewhere") + "'"),
                    HasSubstr("in the current folder, '"), HasSubstr("in the folders above it"),
                    HasSubstr("put the file beside 'elsewhere/run.h5'")));
  std::filesystem::copy(file("project/points.csv"), file("elsewhere/points.csv"));
  EXPECT_THAT(run_again(folder_.path(), "elsewhere/run.h5"), StartsWith("fails again"));
}

// What findings advise is tried, and where it fails they say so.
TEST_F(Nan, AdviceThatFailsIsWithdrawn) {
  ASSERT_EQ(break_run({"--set", "optimizer.type=sgd"}).exit_code, 0);
  const Json json = Json::parse(nan({"run.h5", "--json", "--limit", "0", kNoLimit}).out);
  std::map<std::string, std::string> tried;
  const Json rows = table(json, "fixes")["rows"];
  for (const Json& row : rows) tried[row["values"]["change"]] = row["values"]["result"];
  bool is_advised = false;
  for (const Json& finding : json["findings"])
    for (const Json& change : finding["changes"]) is_advised |= change["setting"] == "warmup" && change["way"] == "raise";
  ASSERT_TRUE(is_advised);
  ASSERT_TRUE(tried.contains("larger warm-up: schedule.warmup = 20"));
  ASSERT_EQ(tried["larger warm-up: schedule.warmup = 20"], "fails");
  const std::string text = nan({"run.h5", kNoLimit}).out;
  EXPECT_THAT(text, ::testing::ContainsRegex("Tried,\\s+fails:"));
}

TEST_F(Nan, WithoutTrialsRunsNothing) {
  ASSERT_EQ(break_run({}).exit_code, 0);
  const Result result = nan({"run.h5", "--no-trials"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, AllOf(HasSubstr("overflow_on_cast"), Not(HasSubstr("Changes tried"))));
  EXPECT_EQ(nan({"run.h5", "--no-trials", "--fail-on", "error"}).exit_code, 1);
}

TEST_F(Nan, OfACapsuleIsTheSame) {
  ASSERT_EQ(break_run({"--capsule", "kept"}).exit_code, 0);
  const Json trace = Json::parse(nan({"run.h5", "--no-trials", "--json"}).out);
  const Result result = nan({"kept", "--json", kNoLimit});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json capsule = Json::parse(result.out);
  for (const char* verb : {"report", "ranges", "scale"}) {
    const Result refused = run_verb(verb, {"kept"});
    EXPECT_EQ(refused.exit_code, 3) << verb;
    EXPECT_EQ(refused.err,
              "ulpscope: 'kept' is a capsule, and no trace: `ulpscope nan kept`, `ulpscope updates kept`, `ulpscope errors kept` "
              "and `ulpscope replay kept` take it\n");
  }
  for (const char* fact : {"tensor", "step", "element", "cause", "phase", "module"}) EXPECT_EQ(capsule[fact], trace[fact]) << fact;
  EXPECT_EQ(capsule["sources"][0]["path"], "kept");
  EXPECT_TRUE(table(capsule, "fixes").contains("rows"));
}

// What trials from weights that are ruined already fail at is no word on what would have kept the run from that.
TEST_F(Nan, OfACapsuleThatBeginsTooLateSaysSo) {
  ASSERT_EQ(train({"mlp", "--precision", "bf16", "--threads", "1", "--steps", "60", "--set", "optimizer.type=sgd", "--set",
                   "optimizer.learning_rate=30", "--set", "optimizer.momentum=0.9", "--capsule", "kept", "--keep-steps", "2"})
                .exit_code,
            0);
  const Result late = nan({"kept", kNoLimit});
  EXPECT_THAT(late.out, AllOf(HasSubstr("weights may be ruined already"), Not(HasSubstr("Tried, fails"))));
}

// The value that makes a batch unlike the others was captured, and its sample is known.
TEST_F(Nan, ASampleThatWasCapturedIsNamed) {
  ASSERT_EQ(train({"mlp", "--precision", "fp16", "--threads", "1", "--steps", "64", "--set", "data.train_size=2048", "--set",
                   "training.evaluation=never"})
                .exit_code,
            0);
  const std::string experiment = Json::parse(run_verb("export", {"run.h5", "--table", "run", "--json"}).out)[0]["experiment"];
  write_file(file("bad.toml"), experiment + "\n[[inject]]\nsample = 77\nelement = 3\nsteps = 0\nset = 1e30\n");
  ASSERT_EQ(train({"bad.toml", "--threads", "1", "--force"}).exit_code, 0);
  EXPECT_THAT(run_verb("report", {"run.h5"}).out, HasSubstr("element 3 of sample 77 of train"));
  // As the layer reads it, [64, 8, 8] is [512, 8].
  write_file(file("places.toml"), R"(precision = "fp16"
[model]
layers = [
  { type = "reshape", shape = [8, 8] },
  { type = "linear", name = "each", out_features = 4 },
  { type = "flatten" },
  { type = "linear", name = "head", out_features = 10 },
]
[data]
kind = "random_classification"
shape = [64]
train_size = 2048
[training]
batch_size = 64
steps = 32
evaluation = "never"
[[inject]]
sample = 77
element = 19
steps = 0
set = 1e30
)");
  ASSERT_EQ(train({"places.toml", "--threads", "1", "--force"}).exit_code, 0);
  EXPECT_THAT(run_verb("report", {"run.h5"}).out, HasSubstr("element 19 of sample 77 of train"));
}

// A sum in FP8 that its scales make too large, and a variance beyond FP32.
TEST_F(Nan, WhatOverflowsBehindASumIsSaid) {
  ASSERT_EQ(train({"mlp", "--precision", "fp8", "--threads", "1", "--steps", "30", "--set", "optimizer.type=sgd", "--set",
                   "optimizer.learning_rate=1e5", "--set", "optimizer.momentum=0.9", "--set", "training.evaluation=never"})
                .exit_code,
            0);
  Json json = Json::parse(nan({"run.h5", "--json", "--no-trials"}).out);
  EXPECT_EQ(json["made_by"], "scaled_matmul");
  EXPECT_EQ(json["cause"], "overflow_of_a_sum");
  write_file(file("norm.toml"), R"([model]
layers = [{ type = "linear", name = "wide", out_features = 8 }, { type = "batch_norm", name = "norm" }]
[data]
kind = "random_classification"
shape = [4]
classes = 8
[training]
steps = 2
[[inject]]
parameter = "wide.weight"
element = 0
steps = 0
set = 1e25
)");
  ASSERT_EQ(train({"norm.toml", "--threads", "1", "--force"}).exit_code, 0);
  json = Json::parse(nan({"run.h5", "--json", "--no-trials"}).out);
  EXPECT_EQ(json["tensor"], "norm.running_var");
  EXPECT_EQ(json["cause"], "overflow_of_a_sum");
}

TEST_F(Nan, OfAHealthyRunSaysSo) {
  ASSERT_EQ(train({"mlp", "--steps", "3"}).exit_code, 0);
  const Result result = nan({"run.h5"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, StartsWith("OK: No recorded tensor holds NaN or Inf.\n"));
}

// The report says once that the run cannot be run again, and nothing goes before it.
TEST_F(Nan, OfATraceOfAnotherProducerSaysOnceThatNothingWasTried) {
  RunInfo run;
  run.run_id = "0123456789abcdef0123456789abcdef";
  run.producer = "torch";
  const auto sink = create_trace(file("torch.h5"), run);
  for (uint64_t step = 0; step < 3; ++step) {
    StepRow row;
    row.step = step;
    row.loss_known = true;
    row.loss = step == 0 ? 1 : NAN;
    sink->end_step(row);
  }
  ASSERT_TRUE(sink->close());
  const Result result = nan({"torch.h5"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, StartsWith("BROKEN: "));
  const std::string said = "only runs of `ulpscope train` and capsules can be run again; nothing was tried";
  EXPECT_EQ(Json::parse(nan({"torch.h5", "--json"}).out)["run_again"], said);
  EXPECT_THAT(result.out, HasSubstr("nothing was tried"));
  EXPECT_EQ(result.out.find("nothing was tried"), result.out.rfind("nothing was tried"));
}

// A run of several ranks fails where any of them does, and a loss is one where it is told by its tensor alone.
TEST_F(Nan, ARunThatEndsInNanIsNotSaidToEndOtherwise) {
  std::filesystem::create_directory(file("ranks"));
  for (const int rank : {0, 1}) {
    RunInfo run;
    run.run_id = "0123456789abcdef0123456789abcdef";
    run.producer = "torch";
    run.rank = rank;
    run.world_size = 2;
    const auto sink = create_trace(file(fmt::format("ranks/{}.h5", rank)), run);
    for (uint64_t step = 0; step < 3; ++step) {
      StepRow row;
      row.step = step;
      row.loss_known = true;
      row.loss = rank == 1 && step > 0 ? NAN : 1;
      sink->end_step(row);
    }
    ASSERT_TRUE(sink->close());
  }
  EXPECT_EQ(Json::parse(nan({"ranks", "--json"}).out)["run_again"],
            "only runs of `ulpscope train` and capsules can be run again; nothing was tried");
}

TEST_F(Nan, OfAResumedRunSaysWhatIsMissing) {
  ASSERT_EQ(train({"mlp", "--steps", "2", "--checkpoint", "c"}).exit_code, 0);
  ASSERT_EQ(train({"--resume", "c", "--steps", "6", "--set", "optimizer.learning_rate=1e30", "-o", "b.h5"}).exit_code, 0);
  const Result result = nan({"b.h5"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, AllOf(StartsWith("ulpscope: nothing was tried: 'b.h5' begins in step 2"), HasSubstr("--capsule")));
  EXPECT_THAT(result.out, StartsWith("BROKEN: "));
}

// What a run did after it was resumed is run again as well: it fails as it did in one piece.
TEST_F(Nan, OfAFolderOfResumedPartsRunsToTheirEnd) {
  std::filesystem::create_directory(file("parts"));
  const std::vector<std::string> run{"mlp", "--precision", "fp16", "--threads", "1", "--set", "optimizer.learning_rate=1e6"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), run.begin(), run.end());
    return train(more).exit_code;
  };
  ASSERT_EQ(with({"--steps", "1", "--checkpoint", "c", "-o", "parts/a.h5"}), 0);
  ASSERT_EQ(train({"--resume", "c", "--threads", "1", "--steps", "8", "-o", "parts/b.h5"}).exit_code, 0);
  ASSERT_EQ(with({"--steps", "8", "-o", "whole.h5"}), 0);
  const auto fact = [&](const std::string& trace) {
    return Json::parse(nan({trace, "--json", kNoLimit}).out)["run_again"].get<std::string>();
  };
  EXPECT_THAT(fact("whole.h5"), StartsWith("fails again"));
  EXPECT_EQ(fact("parts"), fact("whole.h5"));
  // Otherwise than it began it cannot be run from its beginning.
  ASSERT_EQ(train({"--resume", "c", "--threads", "1", "--steps", "8", "--set", "optimizer.learning_rate=1e30", "-o", "parts/b.h5",
                   "--force"})
                .exit_code,
            0);
  EXPECT_THAT(nan({"parts"}).err, HasSubstr("with other settings"));
}

TEST_F(Nan, RefusesWhatItCannotRead) {
  ASSERT_EQ(train({"mlp", "--steps", "2", "--checkpoint", "plain"}).exit_code, 0);
  const auto expect = [&](std::vector<std::string> arguments, int code, const std::string& part) {
    const Result result = nan(arguments);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, AllOf(StartsWith("ulpscope: "), HasSubstr(part)));
  };
  expect({"missing"}, 3, "missing");
  expect({"plain"}, 2, "'plain' is a checkpoint without steps");
  expect({"run.h5", "--budget", "0"}, 2, "--budget");
  expect({"run.h5", "--step", "5.."}, 2, "step");
  expect({"run.h5", "--follow"}, 2, "--follow");
  expect({}, 2, "TRACE");
}

class Updates : public Train {
 protected:
  Result updates(std::vector<std::string> arguments) { return run_verb("updates", std::move(arguments)); }
  Result lose_updates(std::vector<std::string> more, const std::string& steps = "12") {
    more.insert(more.begin(), {"mlp", "--precision", "pure_bf16", "--steps", steps, "--threads", "1", "--set",
                               "optimizer.learning_rate=1e-6", "--set", "training.evaluation=never"});
    return train(more);
  }
};

TEST_F(Updates, ThatAreLostAreTriedOtherwise) {
  ASSERT_EQ(lose_updates({"--capsule", "kept", "--capsule-on", "step=9"}).exit_code, 0);
  for (const char* path : {"run.h5", "kept"}) {
    const Result result = updates({path, "--json", kNoLimit});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("trying FP32 master weights: optimizer.master_weights = true\n"));
    const Json json = Json::parse(result.out);
    EXPECT_EQ(json["run_again"], "loses updates again");
    EXPECT_EQ(json["sources"][0]["path"], path);
    ASSERT_EQ(json["tables"][0]["name"], "fixes");
    const Json rows = json["tables"][0]["rows"];
    EXPECT_EQ(rows.size(), 6u);
    EXPECT_EQ(rows[0]["values"]["change"], "as it was");
    EXPECT_GT(rows[0]["values"]["lost"], 0.5);
    EXPECT_EQ(rows[3]["values"]["change"], "FP32 master weights: optimizer.master_weights = true");
    EXPECT_LT(rows[3]["values"]["lost"], 0.1);
  }
}

TEST_F(Updates, WithoutTrialsRunsNothing) {
  ASSERT_EQ(lose_updates({}).exit_code, 0);
  const Result result = updates({"run.h5", "--no-trials"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, Not(HasSubstr("Changes tried")));
  EXPECT_THAT(updates({"run.h5", "run.h5", "--no-trials"}).err, HasSubstr("--no-trials belongs to one trace or capsule"));
  EXPECT_EQ(updates({"run.h5", "--budget", "0"}).exit_code, 2);
}

// The disk is full while a trial is recorded: it is refused, and judged by nothing that is left of its trace.
TEST_F(Updates, AreNotJudgedByATraceThatStopped) {
  // More than there is room for in an empty trace.
  ASSERT_EQ(lose_updates({}, "200").exit_code, 0);
  bool has_stopped = false;
  for (uint64_t limit = 1480 << 10; limit <= 1660 << 10; limit += 60 << 10) {
    RunOptions full;
    full.file_limit = limit;
    const Result result = run_verb("updates", {"run.h5", "--json", kNoLimit}, full);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::string run_again = Json::parse(result.out)["run_again"];
    EXPECT_THAT(run_again, ::testing::AnyOf(StartsWith("cannot be run again: "), "loses updates again")) << limit;
    has_stopped |= run_again.starts_with("cannot be run again: recording stopped");
  }
  EXPECT_TRUE(has_stopped);
}

// What was selected is what trials are judged by.
TEST_F(Updates, OfTheModulesThatAreAskedFor) {
  ASSERT_EQ(lose_updates({}).exit_code, 0);
  const auto lost = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"run.h5", "--json", kNoLimit});
    const Json json = Json::parse(updates(more).out);
    return std::pair(json["lost"].get<double>(), json["tables"][0]["rows"][0]["values"]["lost"].get<double>());
  };
  const auto all = lost({}), first = lost({"--module", "0"}), later = lost({"--step", "6.."});
  EXPECT_EQ(all.first, all.second);
  EXPECT_EQ(first.first, first.second);
  EXPECT_EQ(later.first, later.second);
  EXPECT_NE(first.first, all.first);
  EXPECT_NE(later.first, all.first);
}

}  // namespace
}  // namespace ulpscope::cli_test
