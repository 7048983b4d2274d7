#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOutputsUnmatched{"compare.ops_unmatched", "Not compared: {outputs} (casts are not counted)."};
constexpr Template kOnlyInFirst{"compare.only_in_first", "{outputs:count output} of the first run only"};
constexpr Template kOnlyInSecond{"compare.only_in_second", "{outputs:count output} of the second run only"};

void find_unmatched(const ComparedRuns& runs, Findings& found) {
  std::vector<Evidence> evidence;
  // Casts come and go with the precision.
  const auto name_some = [&](const ComparedRun& run, const ComparedOutput& output, const char* which) {
    if (run.selection().op(output.tensor).kind == OpKind::cast) return 0;  // backward ones too
    if (evidence.size() < kMostEvidence) evidence.push_back({run.output_key(output.tensor), {{"only_in", std::string(which)}}});
    return 1;
  };
  uint64_t only_a = 0, only_b = 0;
  for (const auto& [unused, match] : runs.outputs) {
    if (!match.b) only_a += name_some(runs.a, *match.a, "a");
    if (!match.a) only_b += name_some(runs.b, *match.b, "b");
  }
  if (only_a + only_b == 0) return;
  Value::List outputs;
  if (only_a > 0) outputs.push_back(kOnlyInFirst({{"outputs", only_a}}));
  if (only_b > 0) outputs.push_back(kOnlyInSecond({{"outputs", only_b}}));
  found.add(Severity::info, kOutputsUnmatched({{"outputs", Value::list(std::move(outputs))}}), std::move(evidence));
}

}  // namespace

extern constinit const FindingRule compare_ops_unmatched{
    .code = "compare.ops_unmatched",
    .part = Part::compare,
    .raised = "One run recorded outputs of ops that the other did not.",
    .meaning = "They are not compared.",
    .is_about_run = false,
    .compare = find_unmatched,
};

}  // namespace ulpscope::findings
