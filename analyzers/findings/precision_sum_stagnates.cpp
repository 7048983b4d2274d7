#include <algorithm>
#include <map>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"

namespace ulpscope::findings {

namespace {

constexpr Template kGradientsLost{"precision.sum_stagnates",
                                  "{lost} of what was added to sums of gradients in {formats} did not arrive: below half an ulp, "
                                  "a + b == a."};
constexpr Template kOthersLost{"precision.sum_stagnates.others",
                               "{lost} of what was added to running sums in {formats} did not arrive: below half an ulp, a + b == "
                               "a."};
constexpr Template kSumsLost{
    "precision.sum_stagnates.sums",
    "{sums} of {all:count sum} lost {limit:%} or more (worst: {worst}, {worst_share} over {additions:count "
    "addition})."};
constexpr Template kAddGradientsInFp32{"advice.add_gradients_in_fp32",
                                       "Keep weights, and so their gradients, in FP32 with ops in BF16 under autocast"
                                       "{precision:brackets}, or use fewer micro-batches{accumulation:brackets}."};
constexpr Template kKeepSumInFp32{"advice.keep_sum_in_fp32", "Keep the sum in FP32."};

using Sum = UpdateJudgement::Sum;

void tell(const RunFacts& facts, bool of_gradients, const Template& title, Severity severity, const Advice& advice,
          Findings& found) {
  double asked = 0, arrived = 0;
  std::map<std::string, Name> formats;
  std::vector<const Sum*> lost;
  size_t all = 0;
  for (const Sum& sum : facts.updates().sums()) {
    if (sum.of_gradients != of_gradients) continue;
    ++all;
    if (!sum.is_stagnant()) continue;
    lost.push_back(&sum);
    asked += sum.totals.asked;
    arrived += sum.totals.arrived;
    const Name format = format_name(*info(facts.selection.tensor(sum.tensor).dtype).format);
    formats.emplace(format.text, format);
  }
  if (lost.empty()) return;
  std::stable_sort(lost.begin(), lost.end(), [](const Sum* a, const Sum* b) { return a->totals.lost() > b->totals.lost(); });
  std::vector<Evidence> evidence;
  Extent extent;
  for (const Sum* sum : lost) {
    if (evidence.size() < kMostEvidence)
      evidence.push_back({facts.selection.key(sum->tensor),
                          {{"lost", sum->totals.lost(), Unit::share},
                           {"absorbed_addends", count_cell(sum->totals.absorbed), Unit::count},
                           {"addends", count_cell(sum->totals.addends), Unit::count}}});
    extent.tensors.push_back(sum->tensor);
    keep_first(extent.first_step, sum->totals.first_lost);
  }
  Value::List names;
  for (const auto& [unused, format] : formats) names.push_back(format);
  const Sum& worst = *lost.front();
  Sentences text{title({{"lost", {1 - arrived / asked, Unit::share}}, {"formats", Value::list(std::move(names))}})};
  text += kSumsLost({{"sums", lost.size()},
                     {"all", all},
                     {"limit", {SumTotals::kLimit, Unit::share}},
                     {"worst", tensor_place(facts.selection, worst.tensor)},
                     {"worst_share", {worst.totals.lost(), Unit::share}},
                     {"additions", worst.totals.additions}});
  found.add_judged(severity, std::move(text), std::move(evidence), advice, std::move(extent));
}

void find_stagnant_sums(const RunFacts& facts, Findings& found) {
  const SettingNames& settings = facts.context.settings;
  Advice advice;
  Setting precision;
  if (const std::string_view policy = settings.words().bf16_with_wide_weights; !policy.empty())
    precision = advice.set(settings.proposed(SettingKind::precision, policy));
  const SettingMention accumulation = settings.now(SettingKind::micro_batches);
  advice.text = kAddGradientsInFp32({{"precision", precision}, {"accumulation", accumulation}});
  tell(facts, true, kGradientsLost, Severity::warning, advice, found);
  tell(facts, false, kOthersLost, Severity::info, kKeepSumInFp32(), found);
}

}  // namespace

extern constinit const FindingRule precision_sum_stagnates{
    .code = "precision.sum_stagnates",
    .part = Part::updates,
    .raised =
        "10% or more of what was added to a sum in FP16 or BF16 did not arrive, of 26 additions or more in BF16 and 205 in FP16: a "
        "warning of the gradients of a step, a note of other sums that a program keeps in place.",
    .meaning =
        "An addend below half an ulp of the sum leaves it as it was: a + b == a. A sum of equal addends stops at 2^8 of them in "
        "BF16, at 2^11 in FP16.",
    .help = "Sums in FP32, or fewer addends.",
    .explains = {"run.no_better_than_guessing", "run.loss_rose", "run.loss_stayed"},
    .shown_by = "experiments/failures/gradients_added_in_bf16.toml",
    .find = find_stagnant_sums,
};

}  // namespace ulpscope::findings
