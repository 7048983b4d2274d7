#include <algorithm>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/findings/update_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"

namespace ulpscope::findings {

namespace {

// Weights that are added to something once or twice are no running average.
constexpr uint64_t kFewestAdditions = 5;

constexpr Template kAverageLost{"updates.average_lost",
                                "{lost} of the additions to running averages of weights in {formats} were rounded away: below half "
                                "an ulp, a + da == a."};
constexpr Template kAveragesLost{"updates.average_lost.averages",
                                 "{averages} of {all:count average} lost more than {limit:%} (worst: that of `{worst}`, "
                                 "{worst_share})."};
constexpr Template kAverageInFp32{"advice.average_in_fp32",
                                  "Keep the average in FP32, and add the weights to it in FP32: its own type need not be theirs."};

void find_lost_averages(const RunFacts& facts, Findings& found) {
  CountedUpdates sum;
  FormatNames formats;
  std::vector<UpdateJudgement::Lost> lost;
  size_t all = 0;
  for (const UpdateJudgement::Weight& average : facts.updates().averages()) {
    const CountedUpdates& counts = average.totals.all;
    if (average.totals.rows < kFewestAdditions || counts.nonzero == 0) continue;
    ++all;
    sum += counts;
    formats.add(facts.selection.tensor(average.tensor).dtype);
    const double share = static_cast<double>(counts.lost) / static_cast<double>(counts.nonzero);
    if (share > kLostLimit) lost.push_back({share, &average});
  }
  if (lost.empty()) return;
  std::stable_sort(lost.begin(), lost.end(), [](const auto& a, const auto& b) { return a.share > b.share; });
  std::vector<Evidence> evidence;
  Extent extent;
  for (const auto& [share, average] : lost) {
    if (evidence.size() < kMostEvidence)
      evidence.push_back(
          {facts.selection.key(average->tensor),
           {{"lost", share, Unit::share}, {"nonzero_updates", count_cell(average->totals.all.nonzero), Unit::count}}});
    extent.tensors.push_back(average->tensor);
    if (average->totals.first_lost) keep_first(extent.first_step, std::optional(average->totals.first_lost->step));
  }
  Sentences title{kAverageLost({{"lost", share_value(sum.lost, sum.nonzero)}, {"formats", formats.list()}})};
  title += kAveragesLost({{"averages", lost.size()},
                          {"all", all},
                          {"limit", {kLostLimit, Unit::share}},
                          {"worst", parameter_name(facts.selection, lost.front().weight->tensor)},
                          {"worst_share", {lost.front().share, Unit::share}}});
  found.add_judged(Severity::warning, std::move(title), std::move(evidence), Advice(kAverageInFp32()), std::move(extent));
}

}  // namespace

extern constinit const FindingRule updates_average_lost{
    .code = "updates.average_lost",
    .part = Part::updates,
    .raised =
        "More than 50% of the nonzero additions to a running average of weights in 16 bits left it as it was, of those that "
        "the program made outside of its optimizer, with add_ or lerp_ and a factor below 1, in five steps or more.",
    .meaning =
        "A part of the weights below half an ulp of their average is rounded away: a + da == a. The average stays where it was.",
    .help = "Keep the average in FP32.",
    .find = find_lost_averages,
};

}  // namespace ulpscope::findings
