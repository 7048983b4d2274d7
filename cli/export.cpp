#include "ulpscope/analyzers/verbs/export.h"

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/output.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/trace_path.h"
#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

namespace {

int run_export(const Arguments& arguments) {
  const std::string table = arguments.text("--table");
  if (table.empty()) throw usage_error("export needs --table: {}", join_words(export_tables(), "or"));
  const ExportFormat format =
      arguments.has("--json") || arguments.text("--format") == "json" ? ExportFormat::json : ExportFormat::csv;
  const AnalysisOptions options = analysis_options(arguments);
  const Snapshot reader = open_trace(arguments.positional(0));
  check_asked_for({&reader}, options);
  if (!arguments.has("--output")) {
    export_table(reader, table, format, options, [](std::string_view text) { return write_stdout(text); });
    return kClean;
  }
  const std::string path = arguments.text("--output");
  check_replaceable(path, arguments.has("--force"), {reader.path()});
  std::string contents;
  export_table(reader, table, format, options, [&](std::string_view text) {
    contents += text;
    return true;
  });
  write_text_file(path, contents);
  return kClean;
}

}  // namespace

Verb export_verb() {
  return {"export",
          "a table of a trace as CSV or JSON",
          "Unknown values are empty fields (null in JSON); NaN, Infinity and -Infinity are written as these words.",
          {{"TRACE", "a trace file, or a folder of a run's trace and of those resumed from it"}},
          join({{{"--table", "", "NAME", "which table", "", export_tables()},
                 {"--format", "", "NAME", "how to print", "csv", {"csv", "json"}},
                 {"--json", "", "", "the same as --format json"},
                 {"--output", "-o", "FILE", "write there instead of to stdout"},
                 {"--force", "", "", "replace FILE where it exists"}},
                selection_options()}),
          {{"ulpscope export run.h5 --table steps", "loss, scale and time of each step"},
           {"ulpscope export run.h5 --table stats --phase backward --json -o rows.json", "every recorded gradient"}},
          run_export};
}

}  // namespace ulpscope::cli
