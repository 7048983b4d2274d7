#include <algorithm>
#include <cmath>
#include <utility>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/flushed_values.h"
#include "ulpscope/analyzers/findings/tensor_place.h"
#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::findings {

namespace {

constexpr Template kGradientsRaised{
    "range.gradients_raised",
    "Rounding mode {modes} raises gradients to the smallest subnormal: over {limit:%} of the elements "
    "in {gradients} of {all:count tensor}, most in {place}."};
constexpr Template kRaisedFromBelow{"range.gradients_raised.from_below",
                                    "They are below half of it ({half} in {format}), and would be 0 in round-to-nearest."};
constexpr Template kRaisedOnAverage{"range.gradients_raised.on_average", "Stochastic rounding keeps their mean only."};
constexpr Template kRaisedScaleOrFp32{"advice.scale_to_normal_or_fp32",
                                      "{said}, so that gradients are normal numbers, or use FP32{precision:brackets}."};
constexpr Template kRaisedScaleOrBf16{"advice.scale_to_normal_or_bf16",
                                      "{said}, so that gradients are normal numbers, or use BF16{precision:brackets}."};

// Numbers that to nearest would be zero, and that the mode makes the smallest subnormal, which is up to any factor too large.
void find_raised(const RunFacts& facts, Findings& found) {
  Suspects suspects(facts.selection);
  double most = 0;
  for (const uint32_t i : facts.gradients().raised) {
    const TensorRanges& judged = facts.ranges().find(i)->judged;
    const TensorInfo& tensor = facts.selection.tensor(i);
    const double how_many = share(judged.raised.lower, judged.totals.seen.base);
    most = std::max(most, how_many);
    suspects.add(how_many, i,
                 {{"raised", share_cell(judged.raised, judged.totals.seen.base), Unit::share},
                  {"rounding", std::string(name_of(tensor.rounding))},
                  {"smallest_subnormal", std::log2(info(tensor.dtype).format->smallest_positive()), Unit::exponent}});
  }
  if (suspects.empty()) return;
  const SettingNames& settings = facts.context.settings;
  const TensorInfo& worst = facts.selection.tensor(suspects.worst_tensor());
  const FloatFormat& format = *info(worst.dtype).format;
  const bool takes_fp32 = has_range_of_fp32(worst.dtype);
  Advice advice = scaling_advice(facts.precision(), settings);
  advice.text.begin_with(
      takes_fp32 ? kRaisedScaleOrFp32 : kRaisedScaleOrBf16,
      {{"precision", settings.proposed(SettingKind::precision, takes_fp32 ? settings.words().fp32 : settings.words().bf16)}});
  advice.text += wide_recording_tells(settings);
  Sentences title{
      kGradientsRaised({{"modes", rounding_modes(facts, facts.gradients().raised)},
                        {"limit", {facts.context.options.flushed_limit, Unit::share}},
                        {"gradients", suspects.size()},
                        {"all", rounded_gradients(facts)},
                        {"place", tensor_place(facts, suspects.worst_tensor())}}),
      kRaisedFromBelow({{"half", {std::log2(format.smallest_positive()) - 1, Unit::exponent}}, {"format", format_name(format)}})};
  if (std::any_of(facts.gradients().raised.begin(), facts.gradients().raised.end(),
                  [&](uint32_t i) { return facts.selection.tensor(i).rounding == RoundingMode::stochastic; }))
    title += kRaisedOnAverage();
  found.add_judged(2 * most > 1 ? Severity::warning : Severity::info, std::move(title), suspects.worst(), std::move(advice),
                   suspects.extent());
}

}  // namespace

extern constinit const FindingRule range_gradients_raised{
    .code = "range.gradients_raised",
    .part = Part::ranges,
    .raised = "The rounding mode raised gradient elements to the smallest subnormal, where round-to-nearest would make them zero.",
    .meaning = "These gradients are larger than computed.",
    .help = "Use a larger loss scale or BF16.",
    .picture = Picture::flushed,
    .shown_by = "experiments/failures/vanishing_gradients_fp16.toml --set arithmetic.rounding=ru",
    .find = find_raised,
};

}  // namespace ulpscope::findings
