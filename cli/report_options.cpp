#include "ulpscope/cli/report_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/analyzers/report/html.h"
#include "ulpscope/analyzers/report/json.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/help.h"
#include "ulpscope/cli/output.h"

namespace ulpscope::cli {

namespace {

constexpr const char* kFormatOption = "--format";
constexpr size_t kPageLines = 40, kLinesOfRun = 15;

template <typename Enum>
std::vector<std::string> names(int count) {
  std::vector<std::string> all;
  for (int i = 0; i < count; ++i) all.push_back(name_of(static_cast<Enum>(i)));
  return all;
}

std::string render(const Report& report, const Arguments& arguments, TextOptions text) {
  text.unicode = !arguments.has("--ascii");
  text.all = arguments.has("--all");
  // What judges a run stands on one page, and the verdict on it is read in a glance.
  if (report.verdict && !report.keeps_all_rows && !arguments.has("--limit") && !text.all)
    text.most_lines = report.facts_in_brief ? kLinesOfRun : kPageLines;
  switch (output_kind(arguments)) {
    case OutputKind::json:
      return render_json(report);
    case OutputKind::html:
      return render_html(report);
    case OutputKind::text:
      break;
  }
  return render_text(report, text);
}

}  // namespace

OutputKind output_kind(const Arguments& arguments) {
  static constexpr std::pair<const char*, OutputKind> kKinds[] = {
      {"text", OutputKind::text}, {"json", OutputKind::json}, {"html", OutputKind::html}};
  std::vector<std::string> words = arguments.list(kFormatOption);
  if (arguments.has("--json")) words.emplace_back("json");
  std::optional<OutputKind> asked;
  for (const auto& [word, kind] : kKinds) {
    if (std::none_of(words.begin(), words.end(), [&](const std::string& given) { return lower_case(given) == word; })) continue;
    if (asked) throw usage_error("one of text, json and html at a time");
    asked = kind;
  }
  if (asked) return *asked;
  const std::string path = lower_case(arguments.text("--output"));
  for (const auto& [word, kind] : kKinds)
    if (kind != OutputKind::text && path.ends_with(fmt::format(".{}", word))) return kind;
  return OutputKind::text;
}

std::vector<std::string> phase_names() { return names<Phase>(kPhases); }

std::vector<OptionSpec> selection_options() {
  return {{"--step", "", "A..B", "steps to look at: 7, 3..7, 3.. or ..7", "all"},
          {"--module", "", "GLOB", "modules, with everything inside them: features or 'features.*'", "all", {}, true},
          {"--op", "", "GLOB", "ops by name: 'conv2d*'", "all", {}, true},
          {"--phase", "", "NAME", "phases", "all", phase_names(), true},
          {"--role", "", "NAME", "roles of tensors", "all", names<Role>(kRoles), true}};
}

std::vector<OptionSpec> group_option() {
  return {{"--by", "", "WHAT", "what a row of the tables is", "tensor", {"tensor", "module", "phase", "role"}}};
}

GroupBy group_by(const Arguments& arguments) {
  const std::string by = arguments.text("--by", "tensor");
  for (const GroupBy group : {GroupBy::module, GroupBy::phase, GroupBy::role})
    if (by == name_of(group)) return group;
  return GroupBy::tensor;
}

std::vector<OptionSpec> output_options(size_t limit) {
  return {
      {"--limit", "", "N", "rows of a table at most; 0: all", fmt::format("{}, in HTML {}", limit, kHtmlLimit)},
      {kFormatOption,
       "",
       "NAME",
       "how to print; html: one file with pictures, for a browser",
       "as FILE ends, else text",
       {"text", "json", "html"}},
      {"--json", "", "", "the same as --format json"},
      {"--all", "", "", "all notes, all evidence and the consequences of each cause; without it they are counted"},
      {"--output", "-o", "FILE", "write there instead of to stdout"},
      {"--force", "", "", "replace FILE where it exists"},
      {"--fail-on",
       "",
       "SEVERITY",
       "exit with 1: warning where the verdict is WARNING or BROKEN, error where it is BROKEN; findings on the recording have no "
       "part in it",
       "never",
       {"warn", "warning", "error"}},
      {"--ascii", "", "", "no characters beyond ASCII"}};
}

std::vector<OptionSpec> print_options() {
  std::vector<OptionSpec> options = output_options();
  std::erase_if(options, [](const OptionSpec& o) { return o.name == "--output" || o.name == "--force" || o.name == "--fail-on"; });
  for (OptionSpec& option : options)
    if (option.name == kFormatOption) option.default_text = "text";
  return options;
}

std::vector<OptionSpec> what_if_options() {
  std::vector<OptionSpec> options = output_options();
  const auto format = std::find_if(options.begin(), options.end(), [](const OptionSpec& o) { return o.name == kFormatOption; });
  format->meaning = "how to print (html: one file with pictures, for a browser), and which formats to answer for";
  format->list = true;
  for (const FloatFormat* narrow : kFormats) {
    if (is_narrow(*narrow) && narrow->is_signed) format->choices.emplace_back(narrow->name);
  }
  return options;
}

std::vector<OptionSpec> number_options(std::string meaning, std::string default_text, const std::vector<std::string>& without) {
  std::vector<OptionSpec> options = output_options();
  std::erase_if(options, [&](const OptionSpec& o) { return std::find(without.begin(), without.end(), o.name) != without.end(); });
  const auto format = std::find_if(options.begin(), options.end(), [](const OptionSpec& o) { return o.name == kFormatOption; });
  format->meaning = std::move(meaning);
  format->default_text = std::move(default_text);
  format->choices.clear();
  format->list = true;
  return options;
}

std::vector<OptionSpec> join(std::initializer_list<std::vector<OptionSpec>> lists) {
  std::vector<OptionSpec> all;
  for (const std::vector<OptionSpec>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

AnalysisOptions analysis_options(const Arguments& arguments, size_t limit) {
  AnalysisOptions options;
  if (arguments.has("--step")) options.steps = parse_step_range("--step", arguments.text("--step"));
  options.modules = arguments.list("--module");
  options.ops = arguments.list("--op");
  for (const std::string& name : arguments.list("--phase")) options.phases.push_back(*find_phase(name));
  for (const std::string& name : arguments.list("--role")) options.roles.push_back(*find_role(name));
  const size_t otherwise = output_kind(arguments) == OutputKind::html ? kHtmlLimit : limit;
  options.limit = static_cast<size_t>(arguments.integer("--limit", 0).value_or(static_cast<int64_t>(otherwise)));
  return options;
}

std::vector<const FloatFormat*> asked_formats(const Arguments& arguments) {
  std::vector<const FloatFormat*> formats;
  for (const std::string& name : arguments.list(kFormatOption)) {
    if (const FloatFormat* format = find_format(name)) formats.push_back(format);
  }
  return formats;
}

std::vector<const FloatFormat*> any_formats(const Arguments& arguments) {
  std::vector<const FloatFormat*> formats;
  for (const std::string& given : arguments.list(kFormatOption)) {
    const std::string name = lower_case(given);
    if (name != "text" && name != "json" && name != "html") formats.push_back(&parse_format(given));
  }
  return formats;
}

void print(const Report& report, const Arguments& arguments) { write_stdout(render(report, arguments, text_options_of_stdout())); }

int finish(const Report& report, const Arguments& arguments) {
  if (arguments.has("--output")) {
    const std::string rendered = render(report, arguments, {});
    const std::string path = arguments.text("--output");
    std::vector<std::string> inputs;
    for (const ReportSource& source : report.sources) inputs.push_back(source.path);
    check_replaceable(path, arguments.has("--force"), inputs);
    write_text_file(path, rendered);
  } else {
    print(report, arguments);
  }
  return exit_code(report, arguments);
}

int exit_code(const Report& report, const Arguments& arguments) {
  if (!arguments.has("--fail-on")) return kClean;
  const Severity limit = arguments.text("--fail-on") == "error" ? Severity::error : Severity::warning;
  // Of a run that was judged the verdict decides: how its recording went is no fault of the run.
  if (report.verdict)
    return *report.verdict >= (limit == Severity::error ? Verdict::broken : Verdict::warning) ? kFindings : kClean;
  return has_finding(report, limit) ? kFindings : kClean;
}

}  // namespace ulpscope::cli
