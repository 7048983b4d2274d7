#include <algorithm>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/tensor_evidence.h"
#include "ulpscope/analyzers/judgements/guesses.h"
#include "ulpscope/analyzers/judgements/loss_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/value_losses.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"

namespace ulpscope::findings {

namespace {

constexpr Template kSamplesMerged{
    "precision.values_merged",
    "A cast rounds {place} by half of what samples deviate by, or more, at {share} of the places that were looked at."};
constexpr Template kOnePlace{"precision.values_merged.one", "One is element {element} of a sample."};
constexpr Template kNormalizeFirst{"advice.normalize_before_cast",
                                   "Subtract the mean and divide by the deviation before the cast, or do without it."};

constexpr Template kWholeNumbersMerged{
    "precision.values_merged.whole_numbers",
    "{rounded} of the whole numbers of {place} that were looked at were rounded, and {merged} of "
    "neighbours became equal."};
constexpr Template kWholeNumbersUpTo{"precision.values_merged.limit", "{format} has all whole numbers up to {limit}."};
constexpr Template kOfAngles{"precision.values_merged.angles", "Sines or cosines are taken of them, or of multiples."};
constexpr Template kSubtractFirst{"advice.subtract_first",
                                  "Keep them as integers or in FP64 until the first one, or their mean, is subtracted."};
constexpr Template kKeepWholeNumbers{"advice.keep_whole_numbers",
                                     "Keep positions, indices, and time steps in FP32 or as integers, outside of autocast too."};

void find_features(const RunFacts& facts, Findings& found) {
  for (const auto& [loss, feature] : facts.value_losses().features) {
    Sentences title{kSamplesMerged({{"place", tensor_place(facts.selection, loss.tensor)}, {"share", {loss.share, Unit::share}}})};
    if (feature) title += kOnePlace({{"element", *feature}});
    found.add(loss.share >= ValueLoss::kFelt ? Severity::warning : Severity::info, std::move(title),
              {{facts.selection.key(loss.tensor),
                {{"features_merged", loss.share, Unit::share}, {"measured_steps", count_cell(loss.steps), Unit::count}}}},
              kNormalizeFirst(), {.tensors = {loss.tensor}, .first_step = loss.first_step});
  }
}

// Neighbours that are one number say as little as noise does: that harms a run which is no better than guessing.
bool is_harmful(const RunFacts& facts, const WholeNumbersLoss& loss) {
  constexpr double kMost = 0.5;
  const MeanGuess* const guess = facts.mean_guess();
  const bool learned_nothing = (guess != nullptr && guess->is_not_beaten()) || ended_no_better(facts);
  return loss.is_harmful() || (loss.merged_pairs >= kMost && facts.judged_steps().count >= kLeastJudged && learned_nothing);
}

// One finding of those that do harm, or else of the others.
void find_whole_numbers(const RunFacts& facts, Findings& found) {
  const std::vector<WholeNumbersLoss>& all = facts.value_losses().whole_numbers;  // the largest first
  const bool do_harm = std::any_of(all.begin(), all.end(), [&](const WholeNumbersLoss& each) { return is_harmful(facts, each); });
  const WholeNumbersLoss* worst = nullptr;
  TensorEvidence told;
  for (const WholeNumbersLoss& each : all) {
    if (is_harmful(facts, each) != do_harm) continue;
    if (worst == nullptr) worst = &each;
    told.add(facts.selection, each.loss.tensor, each.loss.first_step,
             {{"rounded", each.loss.share, Unit::share},
              {"neighbours_merged", each.merged_pairs, Unit::share},
              {"measured_steps", count_cell(each.loss.steps), Unit::count}});
  }
  if (worst == nullptr) return;
  const FloatFormat& format = *info(facts.selection.tensor(worst->loss.tensor).dtype).format;
  Sentences title{kWholeNumbersMerged({{"place", tensor_place(facts.selection, worst->loss.tensor)},
                                       {"rounded", {worst->loss.share, Unit::share}},
                                       {"merged", {worst->merged_pairs, Unit::share}}})};
  title += kWholeNumbersUpTo({{"format", format_name(format)}, {"limit", uint64_t{2} << format.fraction_bits}});
  if (worst->makes_angles) title += kOfAngles();
  const bool is_narrow = format.storage_bits() < 32;
  found.add(do_harm ? Severity::warning : Severity::info, std::move(title), std::move(told.evidence),
            is_narrow ? kKeepWholeNumbers() : kSubtractFirst(), std::move(told.extent));
}

void find_merged(const RunFacts& facts, Findings& found) {
  find_features(facts, found);
  find_whole_numbers(facts, found);
}

}  // namespace

extern constinit const FindingRule precision_values_merged{
    .code = "precision.values_merged",
    .part = Part::errors,
    .raised =
        "A cast of data makes samples equal that differ, at some of the places of a sample: a warning from 10% of them on. Or a "
        "cast "
        "rounds whole numbers: a warning where 10% of them, or of neighbours, are others, and sines or cosines are taken of them, "
        "or "
        "where half of all neighbours become equal and the run learned nothing.",
    .meaning =
        "Numbers are further apart the larger they are. What differs by less than an ulp, as prices around 10,000, time stamps, or "
        "positions above 256 in BF16, is one number to the model.",
    .help = "Values around 0 before the cast, or no cast.",
    .explains = {"run.no_better_than_guessing", "run.loss_rose", "run.loss_stayed"},
    .shown_by = "experiments/failures/inputs_equal_in_bf16.toml",
    .find = find_merged,
};

}  // namespace ulpscope::findings
