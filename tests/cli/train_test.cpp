// `ulpscope train` as its users run it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <utility>

#include "tests/support/project_files.h"
#include "train_fixture.h"
#include "ulpscope/cli/progress.h"
#include "ulpscope/core/run/checkpoint.h"

namespace ulpscope::cli_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(Train, RecordsARunThatInfoReads) {
  const Result result = train({"mlp", "--steps", "5", "--precision", "fp16", "--seed", "3", "-o", file("a.h5"), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json summary = Json::parse(result.out);
  EXPECT_EQ(summary["steps"], 5);
  const Json trace = info(file("a.h5"));
  EXPECT_EQ(trace["steps"], 5);
  EXPECT_EQ(trace["precision"], "fp16");
  EXPECT_EQ(trace["seed"], 3);
  EXPECT_EQ(trace["writer"], "closed");
  EXPECT_EQ(trace["final_loss"], summary["final_loss"]);
  EXPECT_THAT(result.err, HasSubstr("step 4  5/5"));
}

// Gradients contain the loss scale once, from the loss to unscaling, and nothing else does.
TEST_F(Train, EndsWithAVerdict) {
  const Json healthy = Json::parse(train({"mlp", "--steps", "20", "--precision", "fp16", "-o", file("a.h5"), "--json"}).out);
  EXPECT_EQ(healthy["verdict"], "ok");
  EXPECT_TRUE(healthy["causes"].empty());
  // Weights of 10^30 make NaN of every logit; a row of NaN names no class.
  const Json broken = Json::parse(
      train({"mlp", "--steps", "6", "--precision", "fp32", "--set", "optimizer.learning_rate=1e30", "-o", file("b.h5"), "--json"})
          .out);
  EXPECT_EQ(broken["verdict"], "broken");
  EXPECT_EQ(broken["causes"][0]["code"], "run.diverged");
  EXPECT_EQ(broken["causes"][0]["step"], 0);
  EXPECT_EQ(broken["test_accuracy"], 0);
}

TEST_F(Train, RowsCarryTheScaleThatTheirValuesContain) {
  ASSERT_EQ(train({"mlp", "--steps", "2", "--precision", "fp16"}).exit_code, 0);
  const Json rows = Json::parse(run_program({"export", file("run.h5"), "--table", "stats", "--json"}).out);
  int gradients = 0;
  for (const Json& row : rows) {
    const std::string role = row["role"], phase = row["phase"];
    const bool scaled = role == "activation_gradient" || role == "weight_gradient" || role == "accumulated_gradient";
    gradients += scaled;
    if (scaled || role == "unscaled_gradient" || phase == "forward" || phase == "optimizer") {
      EXPECT_EQ(row["scale"], scaled ? 65536.0 : 1.0) << row["op_name"] << " " << role;
    }
  }
  EXPECT_GT(gradients, 10);
}

TEST_F(Train, OptionsChangeTheExperimentAndSetComesBefore) {
  const Result result = train({"mlp", "--set", "training.steps=9", "--steps", "2", "--set", "optimizer.learning_rate=0.5",
                               "--record", "health", "--filter-phase", "forward,backward", "--filter-module", "0"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json trace = info(file("run.h5"));  // the default name
  EXPECT_EQ(trace["steps"], 2);
  EXPECT_EQ(trace["level"], "health");
  EXPECT_THAT(trace["filters"].get<std::string>(), HasSubstr("forward"));
  const Json ops = Json::parse(run_program({"export", file("run.h5"), "--table", "steps", "--json"}).out);
  EXPECT_EQ(ops[0]["learning_rate"], 0.5);
}

TEST_F(Train, RecordingOffWritesNoTrace) {
  EXPECT_EQ(train({"mlp", "--steps", "1", "--record", "off"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(file("run.h5")));
}

TEST_F(Train, RefusesWhatItDoesNotKnow) {
  const auto expect = [&](const std::vector<std::string>& arguments, int code, const std::string& text) {
    const Result result = train(arguments);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_FALSE(std::filesystem::exists(file("run.h5")));
  };
  expect({"mpl"}, 2, "did you mean 'mlp'?");
  expect({"missing.toml"}, 3, "missing.toml");
  expect({"mlp", "--set", "optimizer.learning_rte=1"}, 2, "learning_rate");
  expect({"mlp", "--set", "nonsense"}, 2, "nonsense");
  expect({"mlp", "--precision", "fp17"}, 2, "fp16");
  expect(
      {"mlp", "--precision", "fp9"}, 2,
      "--precision takes fp32, fp64, fp16, bf16, mixed_float16, mixed_bfloat16, apex_o0, apex_o1, apex_o2, apex_o3, tf_auto_mixed, "
      "mxnet, pure_fp16, pure_bf16 or fp8, not 'fp9'\n");
  expect({"mlp", "--set", "precision=e4m3"}, 2,
         "precision: expected fp32, fp64, fp16, bf16, mixed_float16, mixed_bfloat16, apex_o0, apex_o1, apex_o2, apex_o3, "
         "tf_auto_mixed, "
         "mxnet, pure_fp16, pure_bf16 or fp8, found \"e4m3\"\n");
  expect({"mlp", "--steps", "-1"}, 2, "--steps takes an integer of at least 1");
  expect({"mlp", "--steps", "0"}, 2, "--steps takes an integer of at least 1, not '0'");
  expect({"mlp", "--epochs", "0"}, 2, "--epochs 0: training.epochs: expected an integer >= 1 and <= 1099511627776, found 0");
  expect({"mlp", "--filter-module", "fc"}, 2, "no module of the model matches 'fc'");
  expect({"mlp", "--filter-op", "lineer"}, 2, "did you mean 'linear'?");
  expect({"/dev/full"}, 3, "/dev/full: expected an experiment file of at most");
  expect({"mlp", "--steps", "1", "--epochs", "1"}, 2, "--epochs");
  expect({"mlp", "--isa", "avx1024"}, 2, "avx512");
  expect({"mlp", "--max-size", "lots"}, 2, "max_size");
  expect({}, 2, "--resume");
  expect({"--resume", "missing"}, 3, "missing");
  expect({"mlp", "--resume", "missing"}, 3, "missing");
  expect({"mlp", "--checkpoint-every", "5"}, 2, "--checkpoint");
  expect({"mlp", "--checkpoint", "last", "--checkpoint-every", "0"}, 2, "--checkpoint-every");
  expect({"mlp", "--steps", "1", "--checkpoint", "no/such/folder/last"}, 4, "no/such/folder");
  expect({"mlp", "--steps", "1", "--save-weights", "no/such/folder/weights"}, 4, "no/such/folder");
  expect({"mlp", "--steps", "1", "--checkpoint", "/proc/last"}, 4, "cannot create a file beside '/proc/last'");
  expect({"mlp", "--steps", "1", "--save-weights", "/proc/weights"}, 4, "cannot create a file beside '/proc/weights'");
  write_file(file("text"), "no checkpoint");
  expect({"--resume", "text"}, 3, "text");
  expect({"mlp", "--max-size", "100KB"}, 2, "recording.max_size: expected 0 or at least");
  write_file(file("bad.toml"), "name = \n");
  expect({file("bad.toml")}, 3, "bad.toml");
  expect({"mlp", "--steps", "1", "-o", file("no/such/folder/run.h5")}, 4, "no/such/folder");
}

TEST_F(Train, OutOfMemoryIsOneLine) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer reserves more than any limit";
#endif
  RunOptions options;
  options.memory_limit = uint64_t{2} << 30;
  const Result result = train({"mlp", "--set", "data.train_size=10000000"}, options);  // 5 GB
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_EQ(result.err, "generating 1280001280 numbers\nulpscope: out of memory: smaller batches or models need less\n");
  // Shapes that do not fit are found before the data are generated.
  const Result misfit = train({"mlp", "--set", "data.train_size=1000000", "--set", "data.shape=1024"}, options);
  EXPECT_EQ(misfit.exit_code, 2) << misfit.err;
  EXPECT_THAT(misfit.err, HasSubstr("expected in_features = 128, got [1024]"));
}

TEST_F(Train, SaysWhereTheSizeLimitMadeItRecordLess) {
  // Without an evaluation, a step is written as a whole or not at all.
  const Result result = train({"mlp", "--steps", "300", "--set", "training.evaluation=never", "--max-size", "1600KB", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string said = Json::parse(result.out)["recorded_less"];
  EXPECT_THAT(said, ::testing::AllOf(::testing::StartsWith("level health from step "), HasSubstr(", no tensor rows from step ")));
  EXPECT_THAT(said, HasSubstr("the size limit is 1638400 bytes"));
  EXPECT_THAT(result.err, HasSubstr("warning: less was recorded: " + said + "\n"));
  EXPECT_LE(std::filesystem::file_size(file("run.h5")), 1638400u);
  // From that step on there are none.
  const uint64_t from = std::stoull(said.substr(said.find("rows from step ") + 15));
  const Json rows = Json::parse(run_program({"export", file("run.h5"), "--table", "stats", "--json"}).out);
  EXPECT_EQ(rows.back()["step"], from - 1);
  // And from the first one on no histograms: the chunk that they would have begun is most of what room there was.
  const uint64_t lowered = std::stoull(said.substr(said.find("step ") + 5));
  for (const Json& row : rows) EXPECT_EQ(row["known"], row["step"] < lowered ? "values" : "health") << row;
  EXPECT_FALSE(Json::parse(train({"mlp", "--steps", "5", "--force", "--json"}).out).contains("recorded_less"));
}

TEST_F(Train, SignalsFinishTheStepAndCloseTheTrace) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    RunOptions options;
    options.interrupt_after = "step 0  1/";
    options.signal = signal;
    const Result result = train({"mlp", "--steps", "100000000", "--force", "--checkpoint", "last"}, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const char* const name = signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "SIGHUP";
    EXPECT_THAT(result.err, HasSubstr(fmt::format("stopped early: interrupted by {} after ", name)));
    const Json trace = info(file("run.h5"));
    const Json events = Json::parse(run_program({"export", file("run.h5"), "--table", "events", "--json"}).out);
    EXPECT_EQ(events.back()["kind"], "stopped");
    EXPECT_EQ(events.back()["text"],
              fmt::format("training stopped: interrupted by {} after {} of 100,000,000 steps", name, trace["steps"].get<int>()));
    EXPECT_EQ(events.back()["step"], trace["steps"].get<int>() - 1);
    EXPECT_EQ(trace["writer"], "closed");
    EXPECT_GE(trace["steps"].get<int>(), 1);
    EXPECT_EQ(read_checkpoint_info(file("last")).step, trace["steps"].get<uint64_t>());
    EXPECT_THAT(result.err,
                HasSubstr(fmt::format("\ngo on with: ulpscope train --resume last -o run-{}.h5\n", trace["steps"].get<int>())));
  }
}

TEST_F(Train, TheCommandThatAnInterruptNamesGoesOn) {
  RunOptions options;
  options.interrupt_after = "step 0  1/";
  std::filesystem::create_directory(file("a folder"));
  const Result result = train({"mlp", "--steps", "100000000", "-o", "a folder/run.h5", "--checkpoint", "it's last"}, options);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string prefix = "go on with: ulpscope";
  const size_t at = result.err.find(prefix);
  ASSERT_NE(at, std::string::npos) << result.err;
  const std::string command = result.err.substr(at + prefix.size(), result.err.find('\n', at) - at - prefix.size());
  const uint64_t step = read_checkpoint_info(file("it's last")).step;
  const std::string shell = fmt::format("cd {} && {}{} --steps {} 2> said", folder_.path(), program_file(), command, step + 2);
  ASSERT_EQ(std::system((shell + " > printed").c_str()), 0) << read_file(file("said"));
  EXPECT_EQ(info(file("a folder"))["steps"], step + 2);
}

TEST_F(Train, AnInterruptThatKeepsNoStateSaysWhatKeepsIt) {
  RunOptions options;
  options.interrupt_after = "step 0  1/";
  const Result result = train({"mlp", "--steps", "100000000"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("\nthe state of training was not kept; --checkpoint FILE keeps it\n"));
}

// The first one has been handled when the program says so; that it cannot write its result yet keeps it alive for the second.
TEST_F(Train, ASecondInterruptEndsAtOnce) {
  RunOptions options;
  options.interrupt_after = "step 0  1/";
  options.interrupt_again_after = "stopped early";
  const Result result = train({"mlp", "--steps", "100000000", "--threads", "1"}, options);
  EXPECT_EQ(result.signal, SIGINT) << result.exit_code;
  EXPECT_THAT(result.err, HasSubstr("ulpscope: ended at once by SIGINT, the second signal\n"));
}

// As timeout(1) asks.
TEST_F(Train, SignalsThatComeTogetherAreOneRequest) {
  RunOptions options;
  options.interrupt_after = "step 0  1/";
  options.signal = SIGTERM;
  options.signals = 10;
  const Result result = train({"mlp", "--steps", "100000000", "-o", "run.h5", "--threads", "1"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(info(file("run.h5"))["writer"], "closed");
}

TEST_F(Train, ProfilesTheOpsOfTheRun) {
  const Result result = train({"mlp", "--steps", "3", "--profile", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json report = Json::parse(result.out);
  ASSERT_EQ(report["tables"].size(), 3u);
  EXPECT_EQ(report["tables"][0]["name"], "profile");
  EXPECT_EQ(report["tables"][1]["name"], "profile_modules");
  // Sums over ops and over modules are of the same calls.
  for (const char* column : {"calls", "flop", "bytes"}) {
    double sums[2] = {};
    for (size_t table = 0; table < 2; ++table)
      for (const Json& row : report["tables"][table]["rows"]) sums[table] += row["values"][column].get<double>();
    EXPECT_GT(sums[0], 0) << column;
    EXPECT_EQ(sums[0], sums[1]) << column;
  }
  EXPECT_EQ(report["tables"][2]["name"], "products");
  const Json& products = report["tables"][2]["rows"];  // of layers of 128 to 256, 256 and 10, in FP32
  ASSERT_EQ(products.size(), 3u);
  EXPECT_EQ(products[2]["values"]["padding"], "N 10 -> 16");
  EXPECT_EQ(products[2]["values"]["k"], 256);
  EXPECT_EQ(products[0]["values"]["padding"], "");
  EXPECT_EQ(products[0]["values"]["tensor_cores"], false);
  int updates = 0;
  double share = 0;
  for (const Json& row : report["tables"][0]["rows"]) {
    if (row["values"]["op"] == "adam_update") updates += row["values"]["calls"].get<int>();
    share += row["values"]["share"].get<double>();
  }
  EXPECT_EQ(updates, 3 * 6);  // weight and bias of three layers
  EXPECT_NEAR(share, 1, 1e-12);
  for (const char* fact : {"profiled_seconds", "computing_seconds", "recording_seconds", "other_seconds", "writer_seconds",
                           "roofline_flop_per_second", "roofline_bytes_per_second"}) {
    EXPECT_TRUE(report.contains(fact)) << fact;
  }
  EXPECT_TRUE(Json::parse(train({"mlp", "--steps", "1", "--force", "--json"}).out)["tables"].empty());
}

TEST_F(Train, GoesOnWithoutStandardFiles) {
  RunOptions options;
  options.closed = {STDERR_FILENO};
  EXPECT_EQ(train({"mlp", "--steps", "2"}, options).exit_code, 0);
  options.closed = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
  EXPECT_EQ(train({"mlp", "--steps", "2", "-o", "b.h5"}, options).exit_code, 4);  // the result is lost, the trace is not
  for (const char* trace : {"run.h5", "b.h5"}) {
    EXPECT_EQ(info(file(trace))["writer"], "closed");
    EXPECT_EQ(info(file(trace))["steps"], 2);
  }
}

TEST_F(Train, ShowsABarOnATerminalOnly) {
  RunOptions terminal;
  terminal.terminal = true;
  terminal.environment = {"TERM=xterm"};
  const Result on_terminal = train({"mlp", "--steps", "3"}, terminal);
  EXPECT_THAT(on_terminal.out, HasSubstr("█"));
  EXPECT_THAT(on_terminal.out, HasSubstr("3/3"));
  EXPECT_THAT(train({"mlp", "--steps", "3", "--force"}).err, ::testing::Not(HasSubstr("█")));
}

TEST_F(Train, GeneratingDataIsAnnouncedAndInterrupted) {
  RunOptions options;
  options.interrupt_after = "generating 76801280 numbers\n";
  const Result result = train({"mlp", "--set", "data.train_size=600000"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("stopped early: interrupted by SIGINT before the first step; nothing was written\n"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

// Shows what is written, with a clock that the test sets.
class FakeScreen {
 public:
  cli::ProgressScreen screen(bool terminal) {
    return {terminal, [this] { return std::chrono::steady_clock::time_point() + time; },
            [this](std::string_view text) { written += text; }};
  }
  // What was written since the last call.
  std::string take() { return std::exchange(written, ""); }

  std::chrono::seconds time{1000};
  std::string written;
};

TEST(Progress, AnnouncesWorkAndTellsALineAMinute) {
  FakeScreen fake;
  cli::Progress progress(fake.screen(false));
  progress.work("generating", 0);
  EXPECT_EQ(fake.take(), "generating\n");
  for (int second = 1; second <= 150; ++second) {
    fake.time += std::chrono::seconds(1);
    progress.work("generating", second / 200.0);
    EXPECT_EQ(fake.take(), second == 60 ? "generating: 30%\n" : second == 120 ? "generating: 60%\n" : "") << second;
  }
  // Steps of 40 s in a run of a thousand: of the first 51, the first is told, every 50th, and else one a minute.
  progress.begin(0, 1000, false);
  StepResult step;
  std::string told;
  for (step.step = 0; step.step < 51; ++step.step) {
    fake.time += std::chrono::seconds(40);
    progress.update(step);
    if (!fake.take().empty()) told += std::to_string(step.step + 1) + " ";
  }
  EXPECT_EQ(told, "1 3 5 7 9 11 13 15 17 19 21 23 25 27 29 31 33 35 37 39 41 43 45 47 49 50 ");
  // An evaluation of two minutes between steps.
  for (int second = 1; second <= 120; ++second) {
    fake.time += std::chrono::seconds(1);
    progress.work("evaluating", second / 120.0);
  }
  EXPECT_EQ(fake.take(), "evaluating: 16%\nevaluating: 66%\n");
}

TEST(Progress, ATerminalHasOneLineThatChanges) {
  FakeScreen fake;
  {
    cli::Progress progress(fake.screen(true));
    progress.work("generating", 0);
    fake.time += std::chrono::seconds(1);
    progress.work("generating", 0.999);
    EXPECT_EQ(fake.take(), "\r\033[Kgenerating\r\033[Kgenerating: 99%");
    progress.begin(0, 10, false);
    EXPECT_EQ(fake.take(), "\n");
    progress.work("generating", 0);
  }
  EXPECT_EQ(fake.take(), "\r\033[Kgenerating\n");
}

TEST(Progress, LinesHoldTheNumbersAndFit) {
  StepResult step;
  step.step = 49;
  step.loss = 0.123456;
  step.scale = 65536;
  const std::string bar = cli::Progress::bar_line(step, 100, 2, true, 10.0, 100);
  for (const char* part : {"50/100", "loss 0.1235", "scale 2^16", "skipped 2", "10.0 steps/s", "0:05 left", "█", "░"}) {
    EXPECT_THAT(bar, HasSubstr(part));
  }
  EXPECT_THAT(cli::Progress::bar_line(step, 100, 0, false, 10.0, 100), ::testing::Not(HasSubstr("scale")));
  for (int width = 20; width < 200; width += 9) {
    const std::string line = cli::Progress::bar_line(step, 100, 2, true, 0.0, width);
    EXPECT_LT(std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }),
              width);
  }
  EXPECT_THAT(cli::Progress::plain_line(step, 100, 0, false, 3.0), HasSubstr("step 49  50/100  loss 0.1235  3.0 steps/s"));
}

}  // namespace
}  // namespace ulpscope::cli_test
