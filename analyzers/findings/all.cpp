#include "ulpscope/analyzers/findings/all.h"

#include <algorithm>
#include <array>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/snippets.h"
#include "ulpscope/analyzers/subject/step_facts.h"
#include "ulpscope/base/error.h"

namespace ulpscope {

namespace findings {
#define FINDING(name) extern const FindingRule name;
#include "ulpscope/analyzers/findings/list.inc"
#undef FINDING
}  // namespace findings

const char* name_of(Part part) {
  static constexpr std::array<const char*, 8> kNames{"recording", "run",    "ranges",       "scale",
                                                     "updates",   "errors", "tensor_cores", "compare"};
  return kNames[static_cast<size_t>(part)];
}

namespace {

constexpr Template kJudgedBeforeBreak{"finding.judged_before_break",
                                      "Judged on the steps before step {step}, from where on the loss is NaN or Inf."};

Picture picture_of(Part part) {
  switch (part) {
    case Part::run:
    case Part::scale:
      return Picture::course;
    case Part::ranges:
      return Picture::largest_exponents;
    case Part::updates:
      return Picture::updates;
    case Part::recording:
    case Part::errors:
    case Part::tensor_cores:
    case Part::compare:
      break;
  }
  return Picture::none;
}

}  // namespace

void Findings::add(Severity severity, Sentences title, std::vector<Evidence> evidence, Advice advice, Extent extent) {
  report_.findings.push_back({std::string(rule_.code),
                              severity,
                              std::move(title),
                              std::move(evidence),
                              std::move(advice.text),
                              std::move(extent),
                              std::move(advice.changes),
                              {},
                              rule_.picture.value_or(picture_of(rule_.part))});
}

void Findings::add_judged(Severity severity, Sentences title, std::vector<Evidence> evidence, Advice advice, Extent extent) {
  if (broken_from_ != UINT64_MAX) title += kJudgedBeforeBreak({{"step", ordinal(broken_from_)}});
  add(severity, std::move(title), std::move(evidence), std::move(advice), std::move(extent));
}

bool Codes::contain(std::string_view code) const {
  return std::any_of(begin(), end(), [&](std::string_view pattern) {
    return pattern.ends_with('*') ? code.starts_with(pattern.substr(0, pattern.size() - 1)) : code == pattern;
  });
}

std::span<const FindingRule* const> finding_rules() {
  static constexpr const FindingRule* kAll[] = {
#define FINDING(name) &findings::name,
#include "ulpscope/analyzers/findings/list.inc"
#undef FINDING
  };
  return kAll;
}

const FindingRule& finding_rule(std::string_view code) {
  const std::span<const FindingRule* const> all = finding_rules();
  const auto found = std::find_if(all.begin(), all.end(), [&](const FindingRule* rule) { return rule->code == code; });
  if (found == all.end()) throw failed_error("no rule for findings with the code {}", code);
  return **found;
}

namespace {

void name_modules(const RunFacts& facts, Report& report) {
  const std::vector<OpInfo>& ops = facts.context.trace.ops();
  for (Finding& finding : report.findings) {
    if (finding.evidence.empty() || !finding.module.empty()) continue;
    const RowKey& key = finding.evidence.front().key;
    finding.module = key.module;
    if (!key.op || !key.module.empty()) continue;
    const auto op = std::find_if(ops.begin(), ops.end(), [&](const OpInfo& one) { return one.id == *key.op; });
    const OpInfo* const served = op == ops.end() ? nullptr : facts.context.graph.served_by(*op);
    if (served != nullptr) finding.module = served->module;
  }
}

void write_snippets(const RunFacts& facts, Report& report) {
  const SettingNames& settings = facts.context.settings;
  const PrecisionFacts& precision = facts.precision();
  const Program program{facts.context.trace.run().backend, settings.all(), precision.casts_weights, precision.scales_loss};
  for (Finding& finding : report.findings)
    finding.snippets = snippets_of(finding.suggestion, finding.changes, settings.words(), program);
}

}  // namespace

void find_all(std::span<const Part> parts, const RunFacts& facts, Report& report) {
  for (const Part part : parts) {
    for (const auto find : {&FindingRule::find_start, &FindingRule::find}) {
      for (const FindingRule* rule : finding_rules()) {
        if (rule->part != part || rule->*find == nullptr) continue;
        Findings found(*rule, facts.step_facts.broken_from(), report);
        (rule->*find)(facts, found);
      }
    }
  }
  name_modules(facts, report);
  write_snippets(facts, report);
}

void find_all(const ComparedRuns& runs, Report& report) {
  for (const FindingRule* rule : finding_rules()) {
    if (rule->compare == nullptr) continue;
    Findings found(*rule, UINT64_MAX, report);
    rule->compare(runs, found);
  }
}

void find_one(std::string_view code, const RunFacts& facts, Report& report) {
  const FindingRule& rule = finding_rule(code);
  Findings found(rule, facts.step_facts.broken_from(), report);
  if (rule.find_start) rule.find_start(facts, found);
  if (rule.find) rule.find(facts, found);
  name_modules(facts, report);
  write_snippets(facts, report);
}

}  // namespace ulpscope
