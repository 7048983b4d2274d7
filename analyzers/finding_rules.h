// Every finding that a report may have: what raises it, what it means and what helps, and which others may come of it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace ulpscope {

struct FindingRule {
  std::string_view code;
  std::string_view raised;   // the condition, a sentence
  std::string_view meaning;  // for the run
  std::string_view help;     // what to do, or ""
  // Codes of findings that come of it where the recorded graph leads from its tensors to theirs (verdict.h); with a '*' at the end,
  // all codes that begin so.
  std::vector<std::string_view> explains = {};
  // It says how the recording went or what might be, and has no part in the verdict on the run.
  bool is_about_run = true;
};

// In order of rank: of two findings that may each come of the other, the first one is the cause.
std::span<const FindingRule> finding_rules();
// Throws Error (failed) where there is none with that code.
const FindingRule& finding_rule(std::string_view code);
bool explains(const FindingRule& rule, std::string_view code);

}  // namespace ulpscope
