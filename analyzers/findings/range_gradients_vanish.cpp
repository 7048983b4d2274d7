#include <algorithm>
#include <cmath>
#include <utility>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/findings/tensor_place.h"
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
    "All gradients underflow to zero in {formats}, in {vanished} of {passes} backward {passes:either pass|passes}."};
constexpr Template kSomeGradientsVanish{
    "range.gradients_vanish.some",
    "{formats} underflow: {place} is all zero in {vanished} of {passes} backward {passes:either pass|passes}."};
constexpr Template kFirstGradientsVanish{
    "range.gradients_vanish.several",
    "{formats} underflow: in {vanished} of {passes} backward {passes:either pass|passes} the first rounded "
    "gradient is all zero, {times} times in {place}."};
constexpr Template kNeverAboveLimit{"range.gradients_vanish.never_above",
                                    "{format} rounds everything up to {limit} to 0, and {place} is at most {largest}, so no "
                                    "gradient passes back through it."};
constexpr Template kNothingPasses{"range.gradients_vanish.nothing_passes", "No gradient passes back through a tensor of zeros."};
constexpr Template kScaleHadFallen{"advice.scale_had_fallen",
                                   "The loss scale had fallen from {first} to {scale} by then. First fix the overflow in the "
                                   "skipped steps."};
constexpr Template kScaleOrUseFp32{"advice.scale_or_run_in_fp32", "{said}, or use FP32{precision:brackets}, which reaches lower."};
constexpr Template kScaleOrUseBf16{"advice.scale_or_run_in_bf16", "{said}, or use BF16{precision:brackets}."};

// What to do about gradients that first vanished in `step`.
Advice advice_on(const RunFacts& facts, uint32_t tensor, uint64_t step) {
  const StepTotals& steps = facts.steps();
  const double scale = steps.scale_at(step).scale;
  if (scale < steps.first.scale_before)
    return kScaleHadFallen({{"first", scale_value(steps.first.scale_before)}, {"scale", scale_value(scale)}});
  const SettingNames& settings = facts.context.settings;
  const bool takes_fp32 = has_range_of_fp32(facts.selection.tensor(tensor).dtype);
  Advice advice = scaling_advice(facts.precision(), settings, true);
  const Setting precision =
      advice.set(settings.proposed(SettingKind::precision, takes_fp32 ? settings.words().fp32 : settings.words().bf16));
  advice.text.begin_with(takes_fp32 ? kScaleOrUseFp32 : kScaleOrUseBf16, {{"precision", precision}});
  // All that was computed from zeros is zero, and tells of no scale.
  advice.text += wide_recording_tells(settings);
  return advice;
}

// Whether every rounding of a gradient to 16 bits made zeros of all.
bool all_vanish(const RunFacts& facts) {
  return std::all_of(facts.ranges().tensors().begin(), facts.ranges().tensors().end(), [&](const RangeJudgement::Tensor& each) {
    const TensorInfo& tensor = facts.selection.tensor(each.index);
    const RoundingBounds& seen = each.judged.totals.seen;
    return !is_gradient(tensor.role) || !is_plainly_narrow(tensor.dtype) || seen.flushed.lower == seen.base;
  });
}

// What `worst` came to, and why.
Sentences title_of(const RunFacts& facts, size_t tensors, uint32_t worst) {
  const GradientJudgement& gradients = facts.gradients();
  const TensorRanges& judged = facts.ranges().find(worst)->judged;
  const TensorInfo& tensor = facts.selection.tensor(worst);
  const uint64_t vanished = gradients.vanished_passes, passes = facts.ranges().backward_passes();
  const Value formats = formats_of(facts, gradients.vanished);
  const Sentence place = tensor_place(facts, worst);
  Sentences title;
  if (vanished == passes && all_vanish(facts))
    title = kGradientsVanish({{"formats", formats}, {"vanished", vanished}, {"passes", passes}});
  else if (tensors == 1)
    title = kSomeGradientsVanish({{"formats", formats}, {"place", place}, {"vanished", vanished}, {"passes", passes}});
  else
    title = kFirstGradientsVanish(
        {{"formats", formats}, {"vanished", vanished}, {"passes", passes}, {"times", judged.vanished_steps}, {"place", place}});
  const MagnitudeThreshold zero = magnitude_thresholds(*info(tensor.dtype).format, rounding_of(tensor)).flushed;
  const double largest = judged.totals.recorded.largest;
  if (largest > 0 && largest <= zero.surely_below)
    title += kNeverAboveLimit({{"format", format_name(*info(tensor.dtype).format)},
                               {"limit", {std::log2(zero.surely_below), Unit::exponent}},
                               {"place", place},
                               {"largest", {std::log2(largest), Unit::exponent}}});
  else
    title += kNothingPasses();
  return title;
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
    if (judged.vanished_after) values.push_back({"rounded_after", facts.selection.name(*judged.vanished_after)});
    suspects.add(static_cast<double>(judged.vanished_steps), i, std::move(values), judged.first_vanished);
  }
  Extent extent = suspects.extent();
  extent.since_scale_fell = std::all_of(gradients.vanished.begin(), gradients.vanished.end(), [&](uint32_t i) {
    return began_with_fallen_scale(facts, i, ranges.find(i)->judged.first_vanished);
  });
  const uint64_t vanished = gradients.vanished_passes, passes = ranges.backward_passes();
  found.add_judged(2 * vanished >= passes    ? Severity::error
                   : 20 * vanished >= passes ? Severity::warning
                                             : Severity::info,
                   title_of(facts, suspects.size(), suspects.worst_tensor()), suspects.worst(),
                   advice_on(facts, suspects.worst_tensor(), extent.first_step.value_or(0)), std::move(extent));
}

}  // namespace

extern constinit const FindingRule range_gradients_vanish{
    .code = "range.gradients_vanish",
    .part = Part::ranges,
    .raised = "Underflow: the first rounding of a backward pass to FP16 or BF16 made every nonzero gradient zero.",
    .meaning = "No gradient passes back through that tensor, so the layers before it do not learn from it.",
    .help = "Enable loss scaling, use a larger loss scale, or use BF16.",
    .picture = Picture::flushed,
    .explains = kOfLostGradients,
    .shown_by = "experiments/failures/vanishing_gradients_fp16.toml",
    .find = find_vanished,
};

}  // namespace ulpscope::findings
