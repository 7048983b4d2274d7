#include <algorithm>
#include <cmath>
#include <utility>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::findings {

namespace {

constexpr Template kGradientsVanish{
    "range.gradients_vanish",
    "In {vanished} of {passes} backward passes every nonzero gradient was flushed to zero at the first rounding, {place}: "
    "nothing behind it learns from these."};
constexpr Template kVanishedIn{"place.vanished_in", "in {tensor}"};
constexpr Template kVanishedInMost{"place.vanished_in_most", "{times} times in {tensor}, else in {others:count other tensor}"};
constexpr Template kScaleHadFallen{
    "advice.scale_had_fallen",
    "The loss scale had come down from {first} to {scale} by then: what overflowed in the steps that were skipped is to be "
    "mended first."};
constexpr Template kOrRunInFp32{"advice.scale_or_run_in_fp32", "{said}, or run in FP32, which reaches lower."};
constexpr Template kOrRunInBf16{"advice.scale_or_run_in_bf16", "{said}, or run in BF16, whose range is that of FP32."};
constexpr Template kVanishedTellNoScale{"advice.vanished_tell_no_scale",
                                        "Which scale fits, {tells}: here all that is computed from this rounding is zero."};

// What to do about gradients that first vanished in `step`.
Advice advice_on(const RunFacts& facts, uint32_t tensor, uint64_t step) {
  const StepTotals& steps = facts.steps();
  const double scale = steps.scale_at(step).scale;
  if (scale < steps.first.scale_before)
    return kScaleHadFallen({{"first", scale_value(steps.first.scale_before)}, {"scale", scale_value(scale)}});
  const bool takes_fp32 = has_range_of_fp32(facts.selection.tensor(tensor).dtype);
  Advice advice = scaling_advice(facts.precision(), facts.context.settings);
  advice.note({.kind = SettingKind::precision,
               .value = std::string(takes_fp32 ? facts.context.settings.words().fp32 : facts.context.settings.words().bf16)});
  advice.text.begin_with(takes_fp32 ? kOrRunInFp32 : kOrRunInBf16);
  advice.text += kVanishedTellNoScale({{"tells", wide_recording_tells(facts.context.settings)}});
  return advice;
}

void find_vanished(const RunFacts& facts, Findings& found) {
  const RangeJudgement& ranges = facts.ranges();
  const GradientJudgement& gradients = facts.gradients();
  if (gradients.vanished.empty()) return;
  Suspects suspects(facts.selection);
  for (const uint32_t i : gradients.vanished) {
    const TensorRanges& judged = ranges.find(i)->judged;
    std::vector<Quantity> values{{"backward_passes", count_cell(judged.vanished_steps), Unit::count},
                                 share_of("flushed", judged.totals.seen.flushed.lower, judged.totals.seen.base)};
    if (judged.totals.recorded.largest > 0) {
      const TensorInfo& tensor = facts.selection.tensor(i);
      const double flushed = magnitude_thresholds(*info(tensor.dtype).format, rounding_of(tensor)).flushed.perhaps_below;
      values.push_back({"largest", std::log2(judged.totals.recorded.largest), Unit::exponent});
      values.push_back({"flushed_up_to", std::log2(flushed), Unit::exponent});
    }
    if (judged.vanished_after) values.push_back({"made_after", facts.selection.name(*judged.vanished_after)});
    suspects.add(static_cast<double>(judged.vanished_steps), i, std::move(values), judged.first_vanished);
  }
  Extent extent = suspects.extent();
  extent.since_scale_fell = std::all_of(gradients.vanished.begin(), gradients.vanished.end(), [&](uint32_t i) {
    return began_with_fallen_scale(facts, i, ranges.find(i)->judged.first_vanished);
  });
  const uint64_t vanished = gradients.vanished_passes, passes = ranges.backward_passes();
  const Name tensor = tensor_name(facts.selection, suspects.worst_tensor());
  const Sentence place = suspects.size() == 1
                             ? kVanishedIn({{"tensor", tensor}})
                             : kVanishedInMost({{"times", ranges.find(suspects.worst_tensor())->judged.vanished_steps},
                                                {"tensor", tensor},
                                                {"others", suspects.size() - 1}});
  found.add_judged(2 * vanished >= passes    ? Severity::error
                   : 20 * vanished >= passes ? Severity::warning
                                             : Severity::info,
                   kGradientsVanish({{"vanished", vanished}, {"passes", passes}, {"place", place}}), suspects.worst(),
                   advice_on(facts, suspects.worst_tensor(), extent.first_step.value_or(0)), std::move(extent));
}

}  // namespace

extern constinit const FindingRule range_gradients_vanish{
    .code = "range.gradients_vanish",
    .part = Part::ranges,
    .raised = "A backward pass lost every nonzero gradient at its first rounding.",
    .meaning = "Nothing behind that rounding learns.",
    .help = "A larger loss scale, a gradient scaler, or BF16.",
    .picture = Picture::flushed,
    .explains = kOfLostGradients,
    .shown_by = "experiments/failures/vanishing_gradients_fp16.toml",
    .find = find_vanished,
};

}  // namespace ulpscope::findings
