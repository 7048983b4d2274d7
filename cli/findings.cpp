#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/output.h"
#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

namespace {

std::string section(const FindingRule& rule) {
  std::string text = fmt::format("## {}\n{}\n", rule.code, rule.raised);
  if (!rule.meaning.empty()) text += fmt::format("\n*What it means.* {}\n", rule.meaning);
  if (!rule.help.empty()) text += fmt::format("\n*What helps.* {}\n", rule.help);
  std::string explained;
  for (const std::string_view code : rule.explains)
    if (code != rule.code) explained += fmt::format("{}`{}`", explained.empty() ? "" : ", ", code);
  if (!explained.empty()) text += fmt::format("\n*Possible consequences.* {}\n", explained);
  if (!rule.shown_by.empty()) text += fmt::format("\n*Shown by.* `ulpscope train {}`\n", rule.shown_by);
  if (!rule.is_about_run) text += "\nIt has no part in the verdict.\n";
  return text;
}

int run_findings(const Arguments& arguments) {
  if (arguments.positionals().empty()) {
    std::string text;
    for (const FindingRule* rule : finding_rules()) text += (text.empty() ? "" : "\n") + section(*rule);
    write_stdout(text);
    return kClean;
  }
  std::vector<std::string> codes;
  for (const FindingRule* rule : finding_rules()) codes.emplace_back(rule->code);
  const std::string& wanted = arguments.positional(0);
  if (std::find(codes.begin(), codes.end(), wanted) == codes.end())
    throw usage_error("there is no finding '{}'{}", one_line(wanted), did_you_mean(wanted, codes));
  write_stdout(section(finding_rule(wanted)));
  return kClean;
}

}  // namespace

Verb findings_verb() {
  return {"findings",
          "what the findings of reports mean: when each is raised, and what helps",
          "In Markdown, in order of rank: of two that may each come of the other, the first one is the cause.",
          {{"CODE", "of one finding: range.gradients_vanish", true}},
          {},
          {{"ulpscope findings range.gradients_vanish", "one of them"}, {"ulpscope findings", "all"}},
          run_findings};
}

}  // namespace ulpscope::cli
