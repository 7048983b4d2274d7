// What `ulpscope ranges` concludes. Each finding gathers its tensors as evidence, worst first.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/precision_facts.h"
#include "ulpscope/analyzers/ranges.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/suspects.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

namespace {

std::string tensors(size_t n) { return count_of(n, "tensor"); }

}  // namespace

void RangeReport::find_value_trouble(Report& report) const {
  Suspects overflowed(selection_), flushed(selection_), felt(selection_);
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i] || is_gradient(selection_.tensor(i).role) || !is_plainly_narrow(selection_.tensor(i).dtype)) continue;
    const TensorRanges& facts = *tensors_[i];
    const RoundingBounds& seen = facts.totals.seen;
    // Weights and states that an update made infinite are a matter of range.nonfinite, and no forward values.
    if (const uint64_t infinite = seen.overflowed.lower - facts.totals.saturated;
        infinite > 0 && selection_.op(i).phase != Phase::optimizer) {
      overflowed.add(static_cast<double>(infinite), i,
                     {{"elements", count_cell(infinite), Unit::count}, share_of("overflowed", infinite, seen.base)},
                     facts.scaled.first_overflow);
    }
    if (share(seen.flushed.lower, seen.base) > options_.flushed_limit) {
      // What the loss is computed from, and lost most of.
      const Role role = selection_.tensor(i).role;
      const bool is_felt = (role == Role::activation || role == Role::input) && selection_.op(i).phase != Phase::evaluation &&
                           facts.scaled.flush_loss.matters() && 2 * seen.flushed.lower > seen.base;
      (is_felt ? felt : flushed)
          .add(share(seen.flushed.lower, seen.base), i, {share_of("flushed", seen.flushed.lower, seen.base)}, facts.first_flushed);
    }
  }
  if (!overflowed.empty()) {
    // Where the run broke of something else, these did no harm.
    const std::vector<uint32_t> tensors_of = overflowed.extent().tensors;
    const bool began_here = !origin_ || std::find(tensors_of.begin(), tensors_of.end(), origin_->tensor) != tensors_of.end();
    const Severity harm = began_here ? harm_ : Severity::info;
    report.findings.push_back(
        {"range.values_overflow", harm,
         fmt::format("{} other than gradients overflowed when rounded{}.", tensors(overflowed.size()),
                     harm == Severity::info && !is_filtered() ? ", and no infinity reached a weight" : ""),
         overflowed.worst(),
         harm == Severity::info ? ""
                                : "No loss scale helps a forward value. Keep the op in FP32, use BF16, or make its inputs smaller.",
         overflowed.extent()});
  }
  if (!felt.empty()) {
    report.findings.push_back({"range.activations_flushed", Severity::warning,
                               fmt::format("{} of the forward pass lost more than half of the nonzero elements to zero when "
                                           "rounded, and more than 1% of the norm.",
                                           tensors(felt.size())),
                               felt.worst(),
                               "No loss scale helps a forward value: scale the inputs up, use BF16, or keep the op in FP32.",
                               felt.extent()});
  }
  if (!flushed.empty()) {
    report.findings.push_back(
        {"range.values_flushed", Severity::info,
         fmt::format("{} other than gradients lost more than {:g}% of the nonzero elements to zero when rounded.",
                     tensors(flushed.size()), 100 * options_.flushed_limit),
         flushed.worst(), "", flushed.extent()});
  }
}

// Values that a directed mode keeps at the largest number, which no NaN or infinity tells of.
void RangeReport::find_saturated(Report& report) const {
  Suspects suspects(selection_);
  uint64_t elements = 0;
  bool most_of_a_gradient = false;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i] || tensors_[i]->totals.saturated == 0) continue;
    const RangeTotals& totals = tensors_[i]->totals;
    elements += totals.saturated;
    most_of_a_gradient = most_of_a_gradient || (is_gradient(selection_.tensor(i).role) && 2 * totals.saturated >= totals.seen.base);
    std::vector<Quantity> values{{"elements", count_cell(totals.saturated), Unit::count},
                                 share_of("saturated", totals.saturated, totals.seen.base),
                                 {"rounding", std::string(name_of(selection_.tensor(i).rounding))}};
    if (totals.recorded.largest > 0) {
      values.push_back({"largest", std::log2(totals.recorded.largest), Unit::exponent});
      values.push_back({"stored_as", std::log2(info(selection_.tensor(i).dtype).format->largest_finite()), Unit::exponent});
    }
    // The first in order of execution made the others' inputs.
    const std::optional<RowPosition>& first = tensors_[i]->first_saturated;
    suspects.add(first ? -(1e6 * static_cast<double>(first->step) + first->sequence) : -INFINITY, i, std::move(values), first);
  }
  if (suspects.empty()) return;
  report.findings.push_back(
      {"range.saturated", most_of_a_gradient ? Severity::error : Severity::warning,
       fmt::format("{} held {} beyond the largest number of the type, at which the rounding mode keeps them: no infinity tells a "
                   "scaler, or a check, of it.",
                   tensors(suspects.size()), count_of(elements, "finite value")),
       suspects.worst(),
       "For gradients a lower loss scale helps, for other values BF16, FP32 for the op, or smaller inputs. In mode rne they would "
       "become infinite, and be seen.",
       suspects.extent()});
}

void RangeReport::find_unknown(Report& report) const {
  uint64_t unseen = 0, narrow = 0;
  for (const auto& facts : tensors_) {
    if (!facts) continue;
    unseen += facts->totals.rows_unseen;
    narrow += facts->totals.rows_unseen + facts->totals.rows_seen;
  }
  if (unseen == 0) return;
  report.findings.push_back(
      {"range.rounding_unknown",
       Severity::info,
       fmt::format("What {} of {} recorded roundings lost is not known: the backend did not count it.", unseen, narrow),
       {},
       ""});
}

void RangeReport::add_findings(Report& report) const {
  if (std::none_of(tensors_.begin(), tensors_.end(), [](const auto& facts) { return facts != nullptr; })) {
    report.findings.push_back({"range.no_rows", Severity::info, "No tensor row was recorded in what was asked for.", {}, ""});
    return;
  }
  find_bad_data(report);
  find_dead(report);
  find_nonfinite(report);
  const bool vanished = find_vanished(report);
  const bool starved = find_inputs_flushed(report);
  const bool flushed = find_gradient_trouble(report), raised = find_raised(report);
  const bool trouble = flushed || raised || starved;
  find_saturated(report);
  find_value_trouble(report);
  find_quantization_trouble(report);
  find_damped(report);
  find_what_if_trouble(report);
  const bool broke = steps_.broken_from() != UINT64_MAX;
  if (!vanished && !trouble && !broke) find_gradients_fit(report);
  find_unknown(report);
}

}  // namespace ulpscope
