#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::findings {

namespace {

constexpr Template kSaturatedValues{
    "range.saturated",
    "{tensors:count tensor} held {values:count finite value} beyond the largest number of the type, "
    "at which the rounding mode keeps them: no infinity tells a scaler, or a check, of it."};
constexpr Template kSmallerSaturatedInputs{"advice.smaller_saturated_inputs",
                                           "For gradients a lower loss scale helps, for other values smaller inputs."};
constexpr Template kWiderSaturatedValues{"advice.wider_saturated_values",
                                         "For gradients a lower loss scale helps, for other values BF16, FP32 for the op, or "
                                         "smaller inputs."};
constexpr Template kNearestShowsOverflow{"advice.nearest_shows_overflow", "In mode rne they would become infinite, and be seen."};

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
      values.push_back({"stored_as", std::log2(info(tensor.dtype).format->largest_finite()), Unit::exponent});
    }
    suspects.add(0, i, std::move(values), first);
  }
  if (suspects.empty()) return;
  const bool none_is_wider = has_range_of_fp32(facts.selection.tensor(suspects.worst_tensor()).dtype);
  const Sentences advice{(none_is_wider ? kSmallerSaturatedInputs : kWiderSaturatedValues)(), kNearestShowsOverflow()};
  found.add_judged(most_of_a_gradient ? Severity::error : Severity::warning,
                   kSaturatedValues({{"tensors", suspects.size()}, {"values", elements}}), suspects.worst(), advice,
                   suspects.extent());
}

}  // namespace

extern constinit const FindingRule range_saturated{
    .code = "range.saturated",
    .part = Part::ranges,
    .raised = "Values beyond the largest number of their type were kept at it by the rounding mode.",
    .meaning = "No infinity tells a scaler, or a check, that they overflowed.",
    .help = "A smaller loss scale, a mode that makes infinities, BF16 or FP32.",
    .picture = Picture::overflowed,
    .explains = {"scale.over_scaled", "scale.above_100000"},
    .shown_by = "experiments/failures/rounding_hides_overflow.toml",
    .find = find_saturated,
};

}  // namespace ulpscope::findings
