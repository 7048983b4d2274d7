#include <algorithm>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/findings/tensor_evidence.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"

namespace ulpscope::findings {

namespace {

constexpr Template kGradientsLost{"precision.sum_stagnates",
                                  "{sums} of {all:count sum} of gradients in {formats} lost {limit:%} or more of what was added to "
                                  "{sums:either it|them}."};
constexpr Template kOthersLost{"precision.sum_stagnates.others",
                               "{sums} of {all:count running sum} in {formats} lost {limit:%} or more of what was added to "
                               "{sums:either it|them}."};
constexpr Template kWorstSum{"precision.sum_stagnates.worst", "Worst: {worst}, {share} over {additions:count addition}."};
constexpr Template kAbsorbed{"precision.sum_stagnates.absorbed",
                             "{absorbed} of {addends:count addend} left it as it was: below half an ulp, a + b == a."};
constexpr Template kAddGradientsInFp32{"advice.add_gradients_in_fp32",
                                       "Keep weights, and so their gradients, in FP32 with ops in 16 bits under autocast"
                                       "{precision:brackets}, or use fewer micro-batches{accumulation:brackets}."};
constexpr Template kKeepSumInFp32{"advice.keep_sum_in_fp32", "Keep the sum in FP32."};

using Sum = UpdateJudgement::RunningSum;

struct Telling {
  bool of_gradients;
  const Template& title;
  Severity severity;
  Advice advice;
};

void tell(const RunFacts& facts, const Telling& telling, Findings& found) {
  FormatNames formats;
  std::vector<const Sum*> lost;
  size_t all = 0;
  for (const Sum& sum : facts.updates().running_sums()) {
    if (sum.of_gradients != telling.of_gradients) continue;
    ++all;
    if (!sum.is_stagnant()) continue;
    lost.push_back(&sum);
    formats.add(facts.selection.tensor(sum.tensor).dtype);
  }
  if (lost.empty()) return;
  std::stable_sort(lost.begin(), lost.end(),
                   [](const Sum* a, const Sum* b) { return a->totals.lost_share() > b->totals.lost_share(); });
  TensorEvidence told;
  for (const Sum* sum : lost) {
    const SumCounts& counts = sum->totals.counts;
    told.add(facts.selection, sum->tensor, sum->totals.first_lost,
             {{"lost", sum->totals.lost_share(), Unit::share},
              {"absorbed_addends", count_cell(counts.absorbed), Unit::count},
              {"addends", count_cell(counts.addends), Unit::count}});
  }
  const SumTotals& worst = lost.front()->totals;
  Sentences text{telling.title(
      {{"sums", lost.size()}, {"all", all}, {"formats", formats.list()}, {"limit", {SumTotals::kMostLost, Unit::share}}})};
  text += kWorstSum({{"worst", tensor_place(facts.selection, lost.front()->tensor)},
                     {"share", {worst.lost_share(), Unit::share}},
                     {"additions", worst.additions}});
  if (worst.counts.absorbed > 0)
    text += kAbsorbed({{"absorbed", share_value(worst.counts.absorbed, worst.counts.addends)}, {"addends", worst.counts.addends}});
  found.add_judged(telling.severity, std::move(text), std::move(told.evidence), telling.advice, std::move(told.extent));
}

void find_stagnant_sums(const RunFacts& facts, Findings& found) {
  const SettingNames& settings = facts.context.settings;
  Advice advice;
  const std::string_view policy = settings.words().bf16_with_wide_weights;
  const Setting precision = advice.set(policy.empty() ? settings.switched(SettingKind::master_weights, true)
                                                      : settings.proposed(SettingKind::precision, policy));
  advice.text = kAddGradientsInFp32({{"precision", precision}, {"accumulation", settings.now(SettingKind::micro_batches)}});
  tell(facts, {true, kGradientsLost, Severity::warning, advice}, found);
  tell(facts, {false, kOthersLost, Severity::info, kKeepSumInFp32()}, found);
}

}  // namespace

extern constinit const FindingRule precision_sum_stagnates{
    .code = "precision.sum_stagnates",
    .part = Part::updates,
    .raised =
        "10% or more of what was added to a sum in FP16 or BF16 did not arrive, and 10% or more of the sum: a warning of the "
        "gradients of a step, a note of other sums that a program keeps in place.",
    .meaning =
        "An addend below half an ulp of the sum leaves it as it was: a + b == a. A sum of equal addends stops at 2^8 of them in "
        "BF16, at 2^11 in FP16.",
    .help = "Sums in FP32, or fewer addends.",
    .explains = {"run.no_better_than_guessing", "run.loss_rose", "run.loss_stayed"},
    .shown_by = "experiments/failures/gradients_added_in_bf16.toml",
    .find = find_stagnant_sums,
};

}  // namespace ulpscope::findings
