// The options that all verbs share which answer with a report, and what is done with the report.
#pragma once

#include "ulpscope/analyzers/subject/analysis.h"
#include "ulpscope/analyzers/tables/range_tables.h"
#include "ulpscope/cli/verb.h"

namespace ulpscope::cli {

// How a report is printed: as asked, or as the name of the file ends that is written. Throws Error (usage) where two ways are
// asked for.
enum class OutputKind : uint8_t { text, json, html };
OutputKind output_kind(const Arguments& arguments);

std::vector<std::string> phase_names();
// --step, --module, --op, --phase, --role.
std::vector<OptionSpec> selection_options();
// Rows of a table, where --limit is not given; a report that judges a run then also leaves out rows that do not fit one page.
constexpr size_t kDefaultLimit = 10;
// The same of HTML, in which tables are sorted and filtered.
constexpr size_t kHtmlLimit = 200;
// --by, and what it asks for.
std::vector<OptionSpec> group_option();
GroupBy group_by(const Arguments& arguments);
// --limit, --format (text, json and html), --json, --output, --force, --fail-on, --ascii.
std::vector<OptionSpec> output_options(size_t limit = kDefaultLimit);
// Of these, what is about printing: --limit, --format, --json, --ascii.
std::vector<OptionSpec> print_options();
// The same as output_options; --format also takes the number formats that a what-if can be about.
std::vector<OptionSpec> what_if_options();
// They are output_options but for those named in `without`; --format takes any number format beside how to print, as `meaning`
// says.
std::vector<OptionSpec> number_options(std::string meaning, std::string default_text, const std::vector<std::string>& without);
std::vector<OptionSpec> join(std::initializer_list<std::vector<OptionSpec>> lists);

AnalysisOptions analysis_options(const Arguments& arguments, size_t limit = kDefaultLimit);
// The number formats that --format names.
std::vector<const FloatFormat*> asked_formats(const Arguments& arguments);
// The same where it takes any (number_options): throws Error (usage) for another name that is no way to print.
std::vector<const FloatFormat*> any_formats(const Arguments& arguments);

// Writes the report to stdout, as print_options ask.
void print(const Report& report, const Arguments& arguments);
// kFindings where --fail-on is met.
int exit_code(const Report& report, const Arguments& arguments);
// Writes the report as asked for; its exit code.
int finish(const Report& report, const Arguments& arguments);

}  // namespace ulpscope::cli
