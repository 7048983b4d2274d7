#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/tensor_place.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::findings {

namespace {

constexpr Template kSaturatedValues{
    "range.saturated",
    "Rounding mode {modes} hides overflow: {values:count value} in {tensors:count tensor} became the largest number ({maxima}), "
    "first in {place}, step {step}."};
constexpr Template kSaturatedSomewhere{
    "range.saturated.somewhere",
    "Rounding mode {modes} hides overflow: {values:count value} in {tensors:count tensor} became the largest number ({maxima})."};
constexpr Template kNothingSeesOverflow{"range.saturated.nothing_sees_it", "No loss scaler or NaN check sees an Inf."};
constexpr Template kLowerScaleThatSaturates{"advice.lower_scale_that_saturates", "Lower the loss scale{initial:brackets}."};
constexpr Template kLowerScaleForGradients{
    "advice.lower_scale_for_gradients", "For the gradients lower the loss scale{initial:brackets}, for the other values {wider}."};
constexpr Template kWidenSaturated{"advice.widen_saturated", "For these values {wider}."};
constexpr Template kSmallerInputsForSaturated{"advice.smaller_saturated_inputs", "use smaller inputs"};
constexpr Template kWiderTypeForSaturated{"advice.wider_saturated_values",
                                          "use BF16{precision:brackets}, FP32 for the op, or smaller inputs"};
constexpr Template kNearestShowsOverflow{"advice.nearest_shows_overflow",
                                         "Rounding to nearest{rounding:brackets} makes them Inf, which a loss scaler sees."};

// Values that a directed mode keeps at the largest number, which no NaN or infinity tells of.
void find_saturated(const RunFacts& facts, Findings& found) {
  Suspects suspects(facts.selection);
  uint64_t elements = 0;
  bool most_of_a_gradient = false;
  // The first in order of execution made the others' inputs.
  std::vector<std::pair<std::optional<RowPosition>, uint32_t>> in_order;
  for (const auto& [i, judged, unused] : facts.ranges().tensors())
    if (judged.totals.saturated > 0 && is_float(facts.selection.tensor(i).dtype)) in_order.emplace_back(judged.first_saturated, i);
  std::sort(in_order.begin(), in_order.end(),
            [](const auto& a, const auto& b) { return a.first.has_value() != b.first.has_value() ? a.first.has_value() : a < b; });
  for (const auto& [first, i] : in_order) {
    const TensorRanges& judged = facts.ranges().find(i)->judged;
    const RangeTotals& totals = judged.totals;
    const TensorInfo& tensor = facts.selection.tensor(i);
    elements += totals.saturated;
    most_of_a_gradient = most_of_a_gradient || (is_gradient(tensor.role) && 2 * totals.saturated >= totals.seen.base);
    std::vector<Quantity> values{{"elements", count_cell(totals.saturated), Unit::count},
                                 share_of("saturated", totals.saturated, totals.seen.base),
                                 {"rounding", std::string(name_of(tensor.rounding))}};
    if (totals.recorded.largest > 0) {
      values.push_back({"largest", std::log2(totals.recorded.largest), Unit::exponent});
      values.push_back({"stored_as", info(tensor.dtype).format->largest_finite()});
    }
    suspects.add(0, i, std::move(values), first);
  }
  if (suspects.empty()) return;
  const SettingNames& settings = facts.context.settings;
  const std::vector<uint32_t> tensors = suspects.extent().tensors;
  const uint32_t worst = suspects.worst_tensor();
  const auto are_gradients = [&](uint32_t i) { return is_gradient(facts.selection.tensor(i).role); };
  const Value initial = scale_setting(settings, SettingKind::scale_initial);
  const Sentence wider =
      has_range_of_fp32(facts.selection.tensor(worst).dtype)
          ? kSmallerInputsForSaturated()
          : kWiderTypeForSaturated({{"precision", settings.proposed(SettingKind::precision, settings.words().bf16)}});
  Sentences advice;
  if (std::all_of(tensors.begin(), tensors.end(), are_gradients))
    advice = kLowerScaleThatSaturates({{"initial", initial}});
  else if (std::any_of(tensors.begin(), tensors.end(), are_gradients))
    advice = kLowerScaleForGradients({{"initial", initial}, {"wider", wider}});
  else
    advice = kWidenSaturated({{"wider", wider}});
  advice += kNearestShowsOverflow({{"rounding", settings.now(SettingKind::rounding)}});
  const Value modes = rounding_modes(facts, tensors), maxima = maxima_of(facts, tensors);
  const std::optional<RowPosition> first = facts.ranges().find(worst)->judged.first_saturated;
  const Sentence title =
      first ? kSaturatedValues({{"modes", modes},
                                {"values", elements},
                                {"tensors", suspects.size()},
                                {"maxima", maxima},
                                {"place", tensor_place(facts, worst)},
                                {"step", ordinal(first->step)}})
            : kSaturatedSomewhere({{"modes", modes}, {"values", elements}, {"tensors", suspects.size()}, {"maxima", maxima}});
  found.add_judged(most_of_a_gradient ? Severity::error : Severity::warning, {title, kNothingSeesOverflow()}, suspects.worst(),
                   advice, suspects.extent());
}

}  // namespace

extern constinit const FindingRule range_saturated{
    .code = "range.saturated",
    .part = Part::ranges,
    .raised = "Values overflowed, and the rounding mode stored the format's largest number instead of Inf.",
    .meaning = "These values are too small, and no Inf tells the loss scaler or a NaN check of the overflow.",
    .help = "Use a smaller loss scale, round to nearest, or use BF16 or FP32.",
    .picture = Picture::overflowed,
    .explains = {"scale.over_scaled", "scale.above_100000"},
    .shown_by = "experiments/failures/rounding_hides_overflow.toml",
    .find = find_saturated,
};

}  // namespace ulpscope::findings
