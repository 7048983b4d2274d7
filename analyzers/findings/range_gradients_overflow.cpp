#include <utility>
#include <vector>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/findings/nonfinite_text.h"
#include "ulpscope/analyzers/findings/overflow_text.h"
#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"

namespace ulpscope::findings {

namespace {

constexpr Template kGradientsOverflow{"range.gradients_overflow",
                                      "{format} overflow in the backward pass: {place}{others}, in {steps:count step} that "
                                      "{steps:either was|were} not skipped."};
constexpr Template kOverflowSkipped{"range.gradients_overflow.skipped",
                                    "{format} overflow in the backward pass: {place}{others}, in skipped steps alone."};
constexpr Template kInfReached{"range.gradients_overflow.reached_weights", "Inf reached the weights."};
constexpr Template kNoWeightInf{"range.gradients_overflow.no_weight", "No weight became Inf."};
constexpr Template kInfTakenAway{"range.gradients_overflow.taken_away", "No gradient of a parameter became Inf."};

// The gradient that NaN and Inf began with.
void find_first_gradient(const RunFacts& facts, Findings& found) {
  for (const NonfiniteOrigin& origin : facts.ranges().origins())
    if (facts.ranges().start_of(origin) == NonfiniteStart::gradient_overflowed) tell_overflow(facts, origin, found);
}

// In steps that were taken an op took the infinities away before they got to a gradient of a parameter, as where relu's is 0.
bool were_taken_away(const RunFacts& facts) {
  const RangeJudgement& ranges = facts.ranges();
  if (ranges.is_filtered() || ranges.harm() != Severity::info) return false;
  bool are_known = false;
  for (const RangeJudgement::Tensor& tensor : ranges.tensors()) {
    if (!is_gradient_of_parameters(facts.selection.tensor(tensor.index).role)) continue;
    if (ranges.nonfinite(tensor.index).rows > 0) return false;
    are_known = true;
  }
  return are_known;
}

Sentence overflow_title(const Template& form, const RunFacts& facts, const Suspects& gradients, Value steps) {
  const uint32_t worst = gradients.worst_tensor();
  std::vector<Argument> words{{"format", format_name(*info(facts.selection.tensor(worst).dtype).format)},
                              {"place", tensor_place(facts.selection, worst)},
                              {"others", and_others(gradients.size())}};
  if (!steps.empty()) words.push_back({"steps", std::move(steps)});
  return Sentence(form, std::move(words));
}

// What stands between gradients of Inf and the weights decides what became of them.
void find_gradients_overflow(const RunFacts& facts, Findings& found) {
  const RangeJudgement& ranges = facts.ranges();
  const GradientJudgement& gradients = facts.gradients();
  if (!gradients.overflow_kept.empty() && !gradients.clipping_hides_infinity) {
    const Suspects kept = overflowed_gradients(facts, gradients.overflow_kept);
    Sentences title = overflow_title(kGradientsOverflow, facts, kept, gradients.overflow_kept_steps.size());
    if (were_taken_away(facts)) {
      title += kInfTakenAway();
      found.add_judged(Severity::info, std::move(title), kept.worst(), {}, kept_extent(facts, kept));
      return;
    }
    if (ranges.reached_weights())
      title += kInfReached();
    else if (!ranges.is_filtered())
      title += kNoWeightInf();
    found.add_judged(ranges.reached_weights() ? Severity::error : Severity::warning, std::move(title), kept.worst(),
                     overflow_kept_advice(facts, kept.worst_tensor()), kept_extent(facts, kept));
  }
  if (!gradients.overflow_skipped.empty()) {
    const Suspects skipped = overflowed_gradients(facts, gradients.overflow_skipped);
    found.add_judged(Severity::info, overflow_title(kOverflowSkipped, facts, skipped, {}), skipped.worst(), {}, skipped.extent());
  }
}

}  // namespace

extern constinit const FindingRule range_gradients_overflow{
    .code = "range.gradients_overflow",
    .part = Part::ranges,
    .raised = "A gradient overflowed: it was finite before rounding, and Inf after it.",
    .meaning =
        "An error where Inf reached a weight, a warning where the step was taken. A note where the scaler skipped the step, which "
        "is "
        "how a dynamic loss scale finds its level, or where no gradient of a parameter became Inf.",
    .help = "Enable dynamic loss scaling, which skips such steps, or lower the loss scale.",
    .picture = Picture::overflowed,
    .explains = kOfNonfinite,
    .shown_by = "experiments/failures/loss_factor_overflows_without_scaler.toml",
    .find_start = find_first_gradient,
    .find = find_gradients_overflow,
};

}  // namespace ulpscope::findings
