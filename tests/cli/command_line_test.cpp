// The program as its users run it: exit codes, messages, pipes, files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>

#include "child_process.h"
#include "tests/analyzers/synthetic_trace.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/analyzers/report/text_layout.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/verb.h"

namespace ulpscope::cli_test {
namespace {

using analyzers_test::make_health_row;
using analyzers_test::make_row;
using analyzers_test::SyntheticTrace;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

class CommandLine : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.file(name); }
  void write(const std::string& name, const std::string& text) { write_file(file(name), text); }

  // A trace with one error among its findings.
  std::string trace_with_error() {
    if (!trace_) {
      trace_.emplace();
      const uint32_t tensor = trace_->add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
      for (int step = 0; step < 4; ++step) {
        trace_->add(tensor, make_row({70000.0, 1.0}, DType::f16));
        trace_->end_step(SyntheticTrace::default_step(step == 3 ? NAN : 1.0));
      }
      trace_->read();
    }
    return trace_->path();
  }

  // One line on stderr, nothing on stdout, this exit code.
  void expect_error(const std::vector<std::string>& arguments, int code, const std::string& message,
                    const RunOptions& options = {}) {
    const Result result = run_program(arguments, options);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, StartsWith("ulpscope: "));
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_THAT(result.out, IsEmpty());
  }

  TemporaryFolder folder_;
  std::optional<SyntheticTrace> trace_;
};

TEST_F(CommandLine, HelpAndVersionGoToStdout) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--help"}, {"help"}, {"help", "ranges"}, {"ranges", "--help"}, {"info", "-h"}, {"--version"}}) {
    const Result result = run_program(words);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.out, HasSubstr("ulpscope"));
    EXPECT_THAT(result.err, IsEmpty());
  }
  EXPECT_THAT(run_program({"ranges", "--help"}).out, HasSubstr("ulpscope ranges run.h5"));
}

TEST_F(CommandLine, MisspeltWordsGetASuggestion) {
  expect_error({}, 2, "--help");
  expect_error({"rnages"}, 2, "did you mean 'ranges'?");
  expect_error({"--hepl"}, 2, "did you mean '--help'?");
  expect_error({"ranges", "x.h5", "--phse", "backward"}, 2, "did you mean '--phase'?");
  expect_error({"ranges", "x.h5", "--phase", "backwrad"}, 2, "did you mean 'backward'?");
  expect_error({"ranges", "x.h5", "--by=tenosr"}, 2, "did you mean 'tensor'?");
  expect_error({"report", "x.h5", "--only", "ranges,sclae"}, 2, "did you mean 'scale'?");
  expect_error({"export", "x.h5", "--table", "stpes"}, 2, "did you mean 'steps'?");
}

TEST_F(CommandLine, WrongArgumentsAreUsageErrors) {
  expect_error({"info"}, 2, "TRACE");
  expect_error({"compare", "a.h5"}, 2, "B");
  expect_error({"info", "a.h5", "b.h5"}, 2, "b.h5");
  expect_error({"ranges", "a.h5", "--limit", "many"}, 2, "--limit");
  expect_error({"ranges", "a.h5", "--limit", "-1"}, 2, "--limit");
  expect_error({"ranges", "a.h5", "--step", "5..2"}, 2, "--step");
  expect_error({"ranges", "a.h5", "--step", "x"}, 2, "--step");
  expect_error({"ranges", "a.h5", "--phase", ""}, 2, "--phase");
  expect_error({"ranges", "a.h5", "--phase"}, 2, "--phase");
  expect_error({"export", "a.h5"}, 2, "--table");
  expect_error({"float"}, 2, "VALUE");
  expect_error({"float", "0.1x"}, 2, "0.1x");
  expect_error({"float", "1", "--format", "fp61"}, 2, "fp16");
  expect_error({"float", "1", "--format", "jsn"}, 2, "did you mean 'json'?");
  expect_error({"float", "--table", "foo"}, 2, "expected a name (fp16, bf16, ");
  expect_error({"float", "1", "--round", "rx"}, 2, "rz");
  expect_error({"float", "1", "--table", "all"}, 2, "'1'");
}

TEST_F(CommandLine, WhatIfsAreAskedForInFormatsAndScales) {
  const std::string trace = trace_with_error();
  const auto refused = [&](std::vector<std::string> words, const std::string& why) {
    words.insert(words.begin(), {"whatif", trace});
    expect_error(words, 2, why);
  };
  refused({"--format", "bf61"}, "did you mean 'bf16'?");
  refused({"--scale", "2^5..2^1"}, "2^5..2^1 ends before it begins");
  refused({"--scale", "0"}, "'0' is no loss scale");
  refused({"--scale", "nan"}, "'nan' is no loss scale");
  refused({"--scale=-2"}, "'-2' is no loss scale");
  refused({"--scale", "1000"}, "1000 is no power of two; near it are 2^9 and 2^10");
  refused({"--scale", "2^0..2^64"}, "asks for 65 scales; at most 64");
  refused({"--scale", "2^200"}, "beyond what a loss scale can be");
  refused({"--scale", "two"}, "takes a scale like 2^16 or 65536, not 'two'");
  refused({"--scaling", "dynamc"}, "did you mean 'dynamic'?");
  refused({"--scaling", "static"}, "static:2^12");
  refused({"--scaling", "dynamic:growth_fcator=3"}, "did you mean 'growth_factor'?");
  refused({"--scaling", "dynamic:growth_interval=0"}, "growth_interval takes an integer of at least 1, not '0'");
  refused({"--scaling", "dynamic:init=2^4,floor=1,init=2^5"}, "init is set twice");
  refused({"--scaling", "dynamic:backoff_factor=2"}, "backoff_factor takes a power of two below 1");
  refused({"--scaling", "dynamic:"}, "where a setting is expected");
  const Json answers = Json::parse(
      run_program({"whatif", trace, "--format", "fp16,bf16,json", "--scale", "2^0..2^2,65536", "--scaling", "dynamic"}).out);
  EXPECT_EQ(answers["analysis"], "whatif");
  EXPECT_EQ(answers["scales"], "2^0..2^2, 2^16");

  SyntheticTrace counts;
  const uint32_t tensor = counts.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  counts.add(tensor, make_health_row({1.0, 2.0}, DType::f16));
  counts.end_step();
  ASSERT_TRUE(counts.sink().close());
  expect_error({"whatif", counts.path()}, 3, "record with --record stats");
}

TEST_F(CommandLine, NumbersAreExplained) {
  const auto out = [&](std::vector<std::string> words) {
    const Result result = run_program(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  EXPECT_THAT(out({"float", "-0.1", "--format", "fp16"}), HasSubstr("-0.0999755859375"));
  EXPECT_THAT(out({"float", "65520", "1e-8", "--format", "fp16,e4m3"}), AllOf(HasSubstr("overflow"), HasSubstr("flushed to zero")));
  EXPECT_THAT(out({"float", "--format", "e4m3", "--", "-nan"}), HasSubstr("0xFF"));
  EXPECT_THAT(out({"float", "-inf", "-.5", "--format", "BF16", "--round", "RZ"}), AllOf(HasSubstr("0xFF80"), HasSubstr("0xBF00")));
  const Json several = Json::parse(out({"float", "0.1", "--format", "FP32,FP64,JSON"}));
  EXPECT_EQ(several["tables"][0]["rows"][0]["values"]["value"], "0.100000001490116119384765625");
  EXPECT_EQ(several["tables"][0]["rows"][1]["values"]["next_below"], "0.09999999999999999167332731531132594682276248931884765625");
  EXPECT_THAT(out({"float", "0x3C00", "--format", "fp16", "--json"}), HasSubstr("\"value\": \"1\""));
  EXPECT_THAT(out({"float", "--table", "all"}), AllOf(HasSubstr("e4m3fnuz"), HasSubstr("65504")));
}

TEST_F(CommandLine, WhatIsNoTraceIsUnreadable) {
  write("text", "not HDF5");
  write("empty", "");
  const std::string whole = read_file(trace_with_error());
  write("truncated", whole.substr(0, whole.size() / 2));
  for (const char* verb : {"info", "report", "ranges", "scale", "whatif", "updates"}) {
    expect_error({verb, file("missing")}, 3, file("missing"));
    for (const char* name : {"text", "empty", "truncated"}) expect_error({verb, file(name)}, 3, file(name));
  }
  expect_error({"compare", trace_with_error(), file("text")}, 3, file("text"));
  expect_error({"export", file("text"), "--table", "steps"}, 3, file("text"));
  expect_error({"recover", file("text"), file("new")}, 3, file("text"));
  EXPECT_FALSE(std::filesystem::exists(file("new")));
  expect_error({"info", folder_.path()}, 3, folder_.path());
}

// A misspelt filter should not look like an empty answer.
TEST_F(CommandLine, WhatIsAskedForHasToBeInTheTrace) {
  const std::string trace = trace_with_error();
  for (std::vector<std::string> words : {std::vector<std::string>{"report", trace},
                                         {"ranges", trace},
                                         {"scale", trace},
                                         {"updates", trace},
                                         {"compare", trace, trace},
                                         {"export", trace, "--table", "stats"}}) {
    const auto refuse = [&](const char* option, const char* value, const char* message) {
      std::vector<std::string> asked = words;
      asked.insert(asked.end(), {option, value});
      expect_error(asked, 2, message);
    };
    refuse("--module", "nope", "no module of the trace matches 'nope'; expected fc");
    refuse("--op", "linaer", "no op of the trace matches 'linaer'; did you mean 'linear'?");
    refuse("--step", "1000", "expected one of 0 to 3");
    words.insert(words.end(), {"--module", "f*", "--op", "linear", "--step", "3..1000"});
    EXPECT_EQ(run_program(words).exit_code, 0) << words[0];
  }
}

TEST_F(CommandLine, NamesFromAFileDoNotMoveTheCursorInErrors) {
  SyntheticTrace trace;
  trace.add_tensor("e\033[31m", "linear", Phase::forward, Role::activation, DType::f16);
  trace.end_step();
  trace.read();
  const Result result = run_program({"report", trace.path(), "--module", "nope"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("expected e\\u001B[31m"));
}

// Names of files have any bytes. What is printed and written is UTF-8 all the same.
TEST_F(CommandLine, NamesThatAreNoUtf8BecomeReplacementCharacters) {
  const std::string path = file(
                        "\xFF"
                        "run\xC3.h5"),
                    replaced =
                        "\xEF\xBF\xBD"
                        "run\xEF\xBF\xBD.h5";
  std::filesystem::copy_file(trace_with_error(), path);
  for (const std::string verb : {"report", "ranges", "scale", "updates"}) {
    const Result printed = run_program({verb, path, "--json"});
    ASSERT_EQ(printed.exit_code, 0) << verb << printed.err;
    EXPECT_THAT(Json::parse(printed.out)["sources"][0]["path"].get<std::string>(), HasSubstr(replaced)) << verb;
    ASSERT_EQ(run_program({verb, path, "--json", "-o", file("output"), "--force"}).exit_code, 0) << verb;
    EXPECT_TRUE(is_utf8(read_file(file("output")))) << verb;
    EXPECT_TRUE(is_utf8(run_program({verb, path}).out)) << verb;
  }
  EXPECT_TRUE(is_utf8(run_program({"report", "no\xFFwhere"}).err));
}

// What a producer calls its modules is recorded, and shown, as UTF-8.
TEST_F(CommandLine, TextsOfAProducerThatAreNoUtf8AreShownAsSuch) {
  SyntheticTrace trace;
  const uint32_t tensor = trace.add_tensor(
      "\xFF"
      "fc\xC3",
      "linear", Phase::forward, Role::activation, DType::f16);
  trace.add(tensor, make_row({70000.0, 1.0}, DType::f16));
  trace.end_step();
  trace.read();
  for (const std::string verb : {"report", "export"}) {
    std::vector<std::string> words{verb, trace.path(), "--json"};
    if (verb == "export") words.insert(words.end(), {"--table", "ops"});
    const Result result = run_program(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(is_utf8(result.out)) << verb;
    EXPECT_THAT(result.out, HasSubstr("\xEF\xBF\xBD"
                                      "fc\xEF\xBF\xBD"));
  }
}

// ulimit -f ends a program by a signal that nobody takes.
TEST_F(CommandLine, FilesBeyondTheLimitOfTheirSizeAreOneLine) {
  SyntheticTrace trace;
  const uint32_t tensor = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
  for (int step = 0; step < 300; ++step) {
    trace.add(tensor, make_row({70000.0, 1.0}, DType::f16));
    trace.end_step();
  }
  trace.read();
  RunOptions options;
  options.file_limit = 16384;
  options.working_directory = folder_.path();
  expect_error({"recover", trace.path(), "recovered.h5"}, 4, "File too large", options);
  expect_error({"export", trace.path(), "--table", "stats", "--json", "-o", "stats.json"}, 4, "stats.json", options);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  // What training needs to go on, and what it gave, are lost with an error, the trace with a warning.
  for (const char* option : {"--checkpoint", "--save-weights"}) {
    const Result result = run_program({"train", "mlp", "--steps", "1", "--record", "off", option, "state"}, options);
    EXPECT_EQ(result.exit_code, 4) << result.signal << result.err;
    EXPECT_THAT(result.err, HasSubstr("\nulpscope: cannot write ")) << option;
  }
  const Result recorded = run_program({"train", "mlp", "--steps", "20", "--threads", "1"}, options);
  EXPECT_EQ(recorded.signal, 0);
  EXPECT_THAT(recorded.err, HasSubstr("ulpscope: "));
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) EXPECT_EQ(entry.path().filename(), "run.h5");
}

TEST_F(CommandLine, ATraceCanBeAFolderWithOne) {
  const std::string trace = trace_with_error(), folder = file("traces");
  std::filesystem::create_directory(folder);
  expect_error({"info", folder}, 3, folder);
  std::filesystem::copy_file(trace, folder + "/rank0.h5");
  write("traces/notes.txt", "no trace");
  for (const char* verb : {"info", "report", "ranges", "scale", "updates"})
    EXPECT_EQ(run_program({verb, folder}).exit_code, 0) << verb;
  EXPECT_EQ(run_program({"export", folder, "--table", "steps"}).out, run_program({"export", trace, "--table", "steps"}).out);
  EXPECT_EQ(run_program({"compare", folder, trace}).exit_code, 0);
  EXPECT_EQ(run_program({"recover", folder, file("recovered.h5")}).exit_code, 0);
  // It stays what it is.
  const std::string before = read_file(folder + "/rank0.h5");
  expect_error({"report", folder, "-o", folder + "/rank0.h5", "--force"}, 2, "is another file of this command");
  expect_error({"export", folder, "--table", "steps", "-o", folder + "/rank0.h5", "--force"}, 2, "is another file of this command");
  expect_error({"recover", folder, folder + "/rank0.h5", "--force"}, 2, "is another file of this command");
  EXPECT_EQ(read_file(folder + "/rank0.h5"), before);
  std::filesystem::copy_file(trace, folder + "/rank1.h5");
  expect_error({"info", folder}, 2, "2 traces, and one is read at a time: '" + folder + "/rank0.h5'");
}

TEST_F(CommandLine, ATruncatedTraceIsSaidToBeOneAndRecovered) {
  const std::string whole = read_file(trace_with_error());
  write("truncated", whole.substr(0, whole.size() - 500));
  expect_error({"info", file("truncated")}, 3,
               "is truncated: it has " + std::to_string(whole.size() - 500) + " of " + std::to_string(whole.size()) + " bytes");
  const Result result = run_program({"recover", file("truncated"), file("new.h5")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("is truncated"));
  EXPECT_EQ(run_program({"export", file("new.h5"), "--table", "stats"}).out,
            run_program({"export", trace_with_error(), "--table", "stats"}).out);
}

// A run of a small model keeps steps wherever most of its trace is there, and more where more is.
TEST_F(CommandLine, ATraceCutAnywhereKeepsSteps) {
  // The smaller trace has the larger part before its first chunks.
  for (const auto& [level, least] : {std::pair("stats", 30), std::pair("health", 40)}) {
    const Result trained =
        run_program({"train", "mlp", "--precision", "fp16", "--steps", "400", "--record", level, "--force", "-o", file("run.h5")});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    const std::string whole = read_file(file("run.h5"));
    uint64_t before = 0;
    for (const int percent : {least, 50, 70, 90, 98}) {
      SCOPED_TRACE(fmt::format("{} {}%", level, percent));
      write("cut.h5", whole.substr(0, whole.size() * static_cast<size_t>(percent) / 100));
      ASSERT_EQ(run_program({"recover", file("cut.h5"), file("saved.h5"), "--force"}).exit_code, 0);
      const auto steps = Json::parse(run_program({"info", file("saved.h5"), "--json"}).out)["steps"].get<uint64_t>();
      EXPECT_GE(steps, before);
      EXPECT_GT(steps, 0u);
      before = steps;
    }
    EXPECT_EQ(before, 400u);
  }
}

TEST_F(CommandLine, FindingsDecideTheExitCodeOnlyWhenAskedTo) {
  EXPECT_EQ(run_program({"report", trace_with_error()}).exit_code, 0);
  EXPECT_EQ(run_program({"report", trace_with_error(), "--fail-on", "error"}).exit_code, 1);
  EXPECT_EQ(run_program({"report", trace_with_error(), "--fail-on", "warn"}).exit_code, 1);
  EXPECT_EQ(run_program({"report", trace_with_error(), "--fail-on", "warn", "--only", "recording"}).exit_code, 0);
  EXPECT_EQ(run_program({"ranges", trace_with_error(), "--fail-on", "error"}).exit_code, 1);
  EXPECT_EQ(run_program({"info", trace_with_error(), "--fail-on", "warn"}).exit_code, 0);
}

TEST_F(CommandLine, EveryReportIsHtmlToo) {
  const std::string trace = trace_with_error();
  for (const std::vector<std::string>& words : {std::vector<std::string>{"info", trace},
                                                {"report", trace},
                                                {"ranges", trace},
                                                {"scale", trace},
                                                {"whatif", trace},
                                                {"updates", trace},
                                                {"nan", trace, "--no-trials"},
                                                {"float", "0.1"},
                                                {"compare", trace, trace}}) {
    std::vector<std::string> to_stdout = words, to_file = words;
    to_stdout.insert(to_stdout.end(), {"--format", "html"});
    to_file.insert(to_file.end(), {"-o", file("page.html"), "--force"});
    const Result result = run_program(to_stdout);
    EXPECT_EQ(result.exit_code, 0) << words[0] << result.err;
    EXPECT_THAT(result.out, StartsWith("<!DOCTYPE html>\n")) << words[0];
    EXPECT_EQ(run_program(to_file).exit_code, 0) << words[0];
    EXPECT_EQ(read_file(file("page.html")), result.out) << "the ending says how, too";
  }
  // Pictures over the steps, which text has no room for; and more rows, for they can be sorted.
  EXPECT_THAT(run_program({"report", trace, "--format", "html"}).out, HasSubstr("<section class=\"card plot heatmap\""));
  EXPECT_THAT(run_program({"ranges", trace, "--format", "bf16,html"}).out, HasSubstr("What if every tensor were BF16"));
  EXPECT_THAT(run_program({"report", trace, "--format", "text", "-o", file("text.html")}).err, IsEmpty());
  EXPECT_THAT(read_file(file("text.html")), StartsWith("BROKEN"));
  expect_error({"report", trace, "--json", "--format", "html"}, 2, "one of text, json and html at a time");
  expect_error({"ranges", trace, "--format", "text,html"}, 2, "one of text, json and html at a time");
  expect_error({"report", trace, trace, "--format", "html"}, 2, "HTML is of one trace, and there are 2");
  expect_error({"report", trace, "--format", "html", "--follow"}, 2, "--follow prints lines");
  expect_error({"report", trace, "--format", "html", "-o", file("page.html")}, 2, "--force");
}

TEST_F(CommandLine, EveryReportIsJsonToo) {
  const std::string trace = trace_with_error();
  for (const std::vector<std::string>& words : {std::vector<std::string>{"info", trace},
                                                {"report", trace},
                                                {"ranges", trace},
                                                {"scale", trace},
                                                {"whatif", trace},
                                                {"updates", trace},
                                                {"compare", trace, trace}}) {
    std::vector<std::string> short_form = words, long_form = words;
    short_form.push_back("--json");
    long_form.insert(long_form.end(), {"--format", "json"});
    const Result result = run_program(short_form);
    EXPECT_EQ(result.exit_code, 0) << words[0] << result.err;
    EXPECT_EQ(Json::parse(result.out)["report_version"], 3);
    EXPECT_EQ(result.out, run_program(long_form).out);
  }
  const Json info = Json::parse(run_program({"info", trace, "--json"}).out);
  for (const char* name : {"schema_version", "writer", "steps", "first_loss", "final_loss", "ops", "tensor_rows", "bytes_per_row",
                           "backend", "precision", "skipped_steps", "peak_memory_bytes"}) {
    EXPECT_TRUE(info.contains(name)) << name;
  }
  EXPECT_FALSE(info.contains("test_accuracy"));
  EXPECT_EQ(info["steps"], 4);
  const Json ranges = Json::parse(run_program({"ranges", trace, "--format", "bf16,json", "--step", "1..2"}).out);
  EXPECT_EQ(ranges["tables"].size(), 2u);
  EXPECT_EQ(ranges["tables"][0]["rows"][0]["values"]["rows"], 2);
}

TEST_F(CommandLine, AClosedPipeIsNoError) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"info", trace_with_error()}, {"export", trace_with_error(), "--table", "stats"}, {"--help"}}) {
    RunOptions options;
    options.stdout_closed = true;
    const Result result = run_program(words, options);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.err, IsEmpty());
  }
  RunOptions full;
  full.stdout_path = "/dev/full";
  const Result result = run_program({"info", trace_with_error()}, full);
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr("stdout"));
}

// Neither crashes, nor takes another file for stdout.
TEST_F(CommandLine, AClosedStdoutIsAnError) {
  RunOptions options;
  options.closed = {STDOUT_FILENO};
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"info", trace_with_error()}, {"--help"}, {"man", "train"}, {"completion", "bash"}}) {
    const Result result = run_program(words, options);
    EXPECT_EQ(result.exit_code, 4);
    EXPECT_THAT(result.err, StartsWith("ulpscope: stdout cannot be written"));
  }
  options.closed = {STDERR_FILENO};
  EXPECT_EQ(run_program({"info", file("missing")}, options).exit_code, 3);
}

TEST_F(CommandLine, ManPagesSayWhatHelpSays) {
  ASSERT_EQ(run_program({"man", "--output", folder_.path()}).exit_code, 0);
  const std::string overview = read_file(file("ulpscope.1"));
  EXPECT_EQ(run_program({"man"}).out, overview);
  for (const cli::Verb& verb : cli::verbs()) {
    const std::string page = read_file(file("ulpscope-" + verb.name + ".1"));
    EXPECT_THAT(page, StartsWith(".TH \"ULPSCOPE\\-"));
    EXPECT_EQ(run_program({"man", verb.name}).out, page);
    EXPECT_THAT(overview, HasSubstr(verb.summary.substr(0, verb.summary.find('-'))));
    for (const char* section : {"NAME", "SYNOPSIS", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"}) {
      EXPECT_THAT(page, HasSubstr(std::string("\n.SH ") + section + "\n")) << verb.name;
    }
    for (const cli::OptionSpec& option : verb.options) {
      std::string name;
      for (const char c : option.name) name += c == '-' ? std::string("\\-") : std::string(1, c);
      EXPECT_THAT(page, HasSubstr("\\fB" + name + "\\fR")) << verb.name;
    }
    // A line that starts with a dot is a request, and there are three of them.
    std::istringstream lines(page);
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty() && (line[0] == '.' || line[0] == '\'')) {
        EXPECT_TRUE(line.starts_with(".TH ") || line.starts_with(".SH ") || line == ".TP") << line;
      }
    }
  }
  expect_error({"man", "trian"}, 2, "did you mean 'train'?");
  expect_error({"man", "--output", folder_.path()}, 2, "--force");
  expect_error({"man", "train", "--output", folder_.path()}, 2, "COMMAND");
}

TEST_F(CommandLine, FilesAreWrittenWholeAndKept) {
  const std::string trace = trace_with_error();
  const Result first = run_program({"report", trace, "--json", "-o", file("report.json")});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, IsEmpty());
  EXPECT_EQ(Json::parse(read_file(file("report.json")))["analysis"], "report");
  write("mine", "precious");
  expect_error({"report", trace, "-o", file("mine")}, 2, "--force");
  expect_error({"export", trace, "--table", "steps", "-o", file("mine")}, 2, "--force");
  expect_error({"recover", trace, file("mine")}, 2, "--force");
  EXPECT_EQ(read_file(file("mine")), "precious");
  EXPECT_EQ(run_program({"report", trace, "-o", file("mine"), "--force"}).exit_code, 0);
  EXPECT_THAT(read_file(file("mine")), HasSubstr("values_overflow"));
  expect_error({"report", trace, "-o", file("no/such/folder/report")}, 4, "no/such/folder");
  EXPECT_EQ(run_program({"report", trace, "--fail-on", "error", "-o", file("other")}).exit_code, 1);
}

TEST_F(CommandLine, SeveralTracesEachHaveTheirReport) {
  const std::string trace = trace_with_error();
  SyntheticTrace healthy;
  healthy.end_step();
  healthy.read();
  const Result both = run_program({"report", healthy.path(), trace, "--fail-on", "warning"});
  EXPECT_EQ(both.exit_code, 1);
  EXPECT_THAT(both.out, StartsWith(healthy.path() + "\nOK: "));
  EXPECT_THAT(both.out, HasSubstr("\n\n" + trace + "\nBROKEN: "));
  // Other reports name it themselves.
  EXPECT_THAT(run_program({"ranges", healthy.path(), trace}).out, StartsWith("OK: "));
  expect_error({"report", trace, healthy.path(), "--json"}, 2, "JSON is of one trace, and there are 2");
  expect_error({"ranges", trace, healthy.path(), "-o", file("x")}, 2, "--output takes one trace");
  expect_error({"scale", trace, healthy.path(), "--follow"}, 2, "--follow takes one trace");
}

// What is said while the trace grows depends on when it is looked at; the last line, and the exit code, do not.
TEST_F(CommandLine, FollowsATraceUntilItsWriterEnds) {
  for (const bool json : {false, true}) {
    SyntheticTrace trace;
    trace.sink().flush();  // there are no ops yet
    std::vector<std::string> words{"report", trace.path(), "--follow", "--fail-on", "error"};
    if (json) words.push_back("--json");
    std::future<Result> follower = std::async(std::launch::async, [&] { return run_program(words); });
    const uint32_t tensor = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
    trace.add(tensor, make_row({1.0}, DType::f16));
    trace.end_step();
    trace.sink().flush();
    for (int step = 0; step < 20; ++step) {
      trace.add(tensor, make_row({70000.0, 1.0}, DType::f16));
      trace.end_step(SyntheticTrace::default_step(NAN));
      trace.sink().flush();
    }
    trace.read();
    const Result result = follower.get();
    EXPECT_EQ(result.exit_code, 1) << result.err;
    ASSERT_FALSE(result.out.empty());
    const std::string last = result.out.substr(result.out.rfind('\n', result.out.size() - 2) + 1);
    if (json) {
      EXPECT_EQ(Json::parse(last)["verdict"], "broken");
      EXPECT_EQ(Json::parse(last)["causes"], Json({"range.values_overflow"}));
    } else {
      EXPECT_THAT(last, HasSubstr(": BROKEN: ")) << result.out;
    }
    EXPECT_LE(std::count(result.out.begin(), result.out.end(), '\n'), 3) << "a line where something changed: " << result.out;
  }
}

TEST_F(CommandLine, TablesKeepToTheWidthWhereThereIsOne) {
  SyntheticTrace trace;
  const std::string module = "encoder.layers.11.attention.projections.query";
  const uint32_t tensor = trace.add_tensor(module, "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  trace.add(tensor, make_row({1.0, 1e-9}, DType::f16, 8.0));
  trace.end_step();
  trace.read();
  RunOptions narrow;
  for (const bool by_variable : {true, false}) {
    narrow.environment = {by_variable ? "COLUMNS=" + std::to_string(kTerminalColumns) : "TERM=dumb"};
    narrow.terminal = !by_variable;
    std::istringstream lines(run_program({"ranges", trace.path()}, narrow).out);
    bool table = false;
    for (std::string line; std::getline(lines, line);) {
      table = table || line.find("linear_backward") != std::string::npos;
      line.erase(line.find_last_not_of('\r') + 1);
      const bool is_path = line.find(trace.path()) != std::string::npos;
      EXPECT_TRUE(is_path || text_width(line) <= kTerminalColumns) << line;
    }
    EXPECT_TRUE(table);
  }
  EXPECT_THAT(run_program({"ranges", trace.path()}).out, HasSubstr("  " + module + " linear_backward  f16"));
}

TEST_F(CommandLine, ColorsAreForTerminals) {
  const std::string trace = trace_with_error();
  EXPECT_THAT(run_program({"report", trace}).out, Not(HasSubstr("\033")));
  RunOptions terminal;
  terminal.terminal = true;
  terminal.environment = {"TERM=xterm"};
  EXPECT_THAT(run_program({"report", trace}, terminal).out, HasSubstr("\033["));
  terminal.environment = {"TERM=xterm", "NO_COLOR=1"};
  EXPECT_THAT(run_program({"report", trace}, terminal).out, Not(HasSubstr("\033")));
  terminal.environment = {"TERM=dumb"};
  EXPECT_THAT(run_program({"report", trace}, terminal).out, Not(HasSubstr("\033")));
  for (const char c : run_program({"ranges", trace, "--ascii"}).out) ASSERT_LT(static_cast<unsigned char>(c), 0x80);
}

TEST_F(CommandLine, CompletionKnowsVerbsOptionsAndChoices) {
  expect_error({"completion", "bsh"}, 2, "did you mean 'bash'?");
  write("completion", run_program({"completion", "bash"}).out);
  const auto complete = [&](const std::string& words, int index) {
    const std::string script = ". " + file("completion") + "; COMP_WORDS=(ulpscope " + words +
                               "); COMP_CWORD=" + std::to_string(index) + "; _ulpscope; echo \"${COMPREPLY[@]}\" > " +
                               file("reply");
    EXPECT_EQ(std::system(("bash -c '" + script + "'").c_str()), 0);
    return read_file(file("reply"));
  };
  EXPECT_EQ(complete("ran", 1), "ranges\n");
  EXPECT_EQ(complete("ranges t.h5 --ph", 3), "--phase\n");
  EXPECT_EQ(complete("ranges t.h5 --phase back", 4), "backward\n");
  EXPECT_EQ(complete("train mlp --precision f", 4), "fp32 fp64 fp16 fp8\n");
  EXPECT_EQ(complete("info " + file("comp"), 2), file("completion") + "\n");
  EXPECT_EQ(complete("completion z", 2), "zsh\n");
  EXPECT_EQ(complete("man ra", 2), "ranges\n");
  for (const std::string shell : {"zsh", "fish"}) {
    write(shell, run_program({"completion", shell}).out);
    for (const char* word : {"ranges", "phase", "backward"}) EXPECT_THAT(read_file(file(shell)), HasSubstr(word)) << shell;
    if (std::system(("command -v " + shell + " >/dev/null").c_str()) != 0) continue;
    EXPECT_EQ(std::system((shell + " -n " + file(shell)).c_str()), 0) << "a script that " << shell << " does not read";
  }
}

TEST_F(CommandLine, ExportAndRecoverAgreeWithTheTrace) {
  const std::string trace = trace_with_error();
  const Json steps = Json::parse(run_program({"export", trace, "--table", "steps", "--json"}).out);
  EXPECT_EQ(steps.size(), 4u);
  const Result recovered = run_program({"recover", trace, file("new.h5")});
  EXPECT_EQ(recovered.exit_code, 0) << recovered.err;
  EXPECT_THAT(recovered.err, HasSubstr("4 steps"));
  EXPECT_THAT(recovered.err, HasSubstr("; all of the file could be read"));
  for (const char* table : {"stats", "steps", "ops", "tensors", "events"}) {
    ASSERT_EQ(run_program({"export", trace, "--table", table}).exit_code, 0);
    EXPECT_EQ(run_program({"export", trace, "--table", table}).out, run_program({"export", file("new.h5"), "--table", table}).out);
  }
}

}  // namespace
}  // namespace ulpscope::cli_test
