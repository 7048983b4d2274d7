#include "ulpscope/cli/analyze.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "ulpscope/analyzers/report/json.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/output.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/trace_path.h"

namespace ulpscope::cli {

namespace {

// How long to wait before looking whether a trace has grown.
constexpr std::chrono::milliseconds kInterval{200};

int follow(const Arguments& arguments, const AnalysisOptions& options, const Analyze& analyze) {
  RunSet run = open_run(arguments.positional(0));
  std::string told;
  Report report;
  for (;;) {
    const Snapshot snapshot = run.snapshot();
    report = analyze(snapshot);
    if (report.verdict) {
      std::string state = name_of(*report.verdict);
      for (const Cause& cause : report.causes) state += " " + report.findings[cause.finding].code;
      if (state != told) {
        write_stdout(output_kind(arguments) == OutputKind::json
                         ? verdict_json(report, snapshot.step_count())
                         : fmt::format("after {}: {}\n", count_of(snapshot.step_count(), "step"), verdict_line(report)));
        told = state;
      }
    }
    if (snapshot.writer_state() != WriterState::alive) {
      check_asked_for({&snapshot}, options);  // only now is it known that it never came
      if (snapshot.writer_state() == WriterState::dead) say("ulpscope: the program that wrote the trace ended without closing it");
      break;
    }
    while (!run.refresh()) std::this_thread::sleep_for(kInterval);
  }
  if (!report.verdict) print(report, arguments);
  return exit_code(report, arguments);
}

}  // namespace

std::vector<PositionalSpec> traces_positional() {
  return {{"TRACE",
           "a trace file, or a folder of a run's trace and of those resumed from it; of several each has its report",
           false,
           {},
           true}};
}

std::vector<OptionSpec> follow_option() {
  return {{"--follow", "", "", "print a line whenever the verdict or a cause changes, until the writer of the trace ends"}};
}

int run_analysis(const Arguments& arguments, const AnalysisOptions& options, const std::function<Analyze()>& make) {
  const std::vector<std::string>& traces = arguments.positionals();
  if (traces.size() > 1) {
    for (const char* option : {"--follow", "--output"})
      if (arguments.has(option)) throw usage_error("{} takes one trace, and there are {}", option, traces.size());
    if (const OutputKind kind = output_kind(arguments); kind != OutputKind::text)
      throw usage_error("{} is of one trace, and there are {}", kind == OutputKind::json ? "JSON" : "HTML", traces.size());
  }
  if (arguments.has("--follow")) {
    if (arguments.has("--output")) throw usage_error("--follow prints to stdout: there is no --output with it");
    if (output_kind(arguments) == OutputKind::html) throw usage_error("--follow prints lines: there is no HTML of them");
    return follow(arguments, options, make());
  }
  int code = kClean;
  for (size_t i = 0; i < traces.size(); ++i) {
    try {
      const Snapshot reader = open_trace(traces[i]);
      check_asked_for({&reader}, options);
      const Report report = make()(reader);
      if (i > 0) write_stdout("\n");
      // A page of one run does not name it.
      if (traces.size() > 1 && report.facts_in_brief) write_stdout(one_line(traces[i]) + "\n");
      code = std::max(code, finish(report, arguments));
    } catch (const Error& error) {
      if (traces.size() == 1 || error.kind() != ErrorKind::unreadable) throw;
      say("ulpscope: {}", one_line(error.what()));  // the others can be read
      code = std::max<int>(code, kUnreadable);
    }
  }
  return code;
}

}  // namespace ulpscope::cli
