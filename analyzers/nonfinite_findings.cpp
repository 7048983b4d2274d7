// Where NaN and infinities came from.
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

NonfiniteRows RangeReport::nonfinite(uint32_t tensor) const {
  NonfiniteRows rows = tensors_[tensor]->nonfinite;
  if (broken_tensors_[tensor]) rows.add(broken_tensors_[tensor]->nonfinite);
  return rows;
}

std::vector<uint32_t> RangeReport::nonfinite_in_order() const {
  std::vector<std::pair<RowPosition, uint32_t>> first;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i]) continue;
    if (const auto position = nonfinite(i).first) first.emplace_back(*position, i);
  }
  std::sort(first.begin(), first.end());
  std::vector<uint32_t> in_order;
  for (const auto& [unused, tensor] : first) in_order.push_back(tensor);
  return in_order;
}

// Where the op and what was recorded beside it leave one way only in which the first NaN or infinity came about: that, and what
// helps. "" otherwise.
std::string RangeReport::cause_of_nonfinite(uint32_t tensor) const {
  const OpInfo& op = selection_.op(tensor);
  const TensorInfo& made = selection_.tensor(tensor);
  const auto any_of = [&](std::span<const uint32_t> some) {
    const auto found = std::find_if(some.begin(), some.end(), [&](uint32_t i) { return tensors_[i] != nullptr; });
    return found == some.end() ? std::nullopt : std::optional(*found);
  };
  const auto read = [&](uint8_t input) -> std::optional<uint32_t> {
    const GraphEdge* const edge = context_.graph.read_by(made.op, input);
    return edge ? any_of(context_.graph.made_by(edge->producer, edge->slot)) : std::nullopt;
  };
  const auto beside = [&](std::string_view name) -> std::optional<uint32_t> {
    for (const uint32_t i : context_.graph.made_by(made.op))
      if (tensors_[i] && selection_.tensor(i).name == name) return i;
    return std::nullopt;
  };
  if (op.function == OpFunction::adam_update && is_narrow(made.dtype)) {
    const auto stepwise = attribute(op, "stepwise"), eps = attribute(op, "eps"), beta2 = attribute(op, "beta2");
    const FloatFormat& format = *info(made.dtype).format;
    const double flushed = magnitude_thresholds(format, rounding_of(made)).flushed.surely_below;
    const auto squares = beside("exp_avg_sq");
    if (stepwise.value_or(0) == 0 || !eps || *eps > flushed || !beta2 || !squares) return "";
    const RangeTotals& totals = tensors_[*squares]->totals;
    if (totals.seen.flushed.lower + totals.zeros == 0) return "";
    const SettingNames& settings = context_.settings;
    std::string once = settings.changed(SettingKind::update_math, "\"param\"", "\"fp32\"");
    std::string masters = settings.switched(SettingKind::master_weights, true);
    if (once.empty()) once = "An update in FP32" + in_brackets({settings.name(SettingKind::update_math)});
    masters = masters.empty() ? "FP32 master weights are updated in FP32" : masters + " updates in FP32";
    return fmt::format(
        "The update divides by 0: each of its operations is rounded to {0}{4}, which makes eps = {1:g} zero, "
        "as all up to 2^{2:g} are, and (1 - beta2) g^2 too for gradients g up to 2^{3:.3g}; exp_avg / (sqrt(exp_avg_sq) + eps) is "
        "then exp_avg / 0. {5} rounds once at the end; {6}. ",
        format.name, *eps, std::log2(flushed), 0.5 * std::log2(flushed / (1 - *beta2)),
        in_brackets({settings.with_value(SettingKind::update_math)}), once, masters);
  }
  const bool is_nan =
      tensors_[tensor]->totals.infinities == 0 && (!broken_tensors_[tensor] || broken_tensors_[tensor]->totals.infinities == 0);
  const auto was_finite = [&](uint32_t other) {
    const auto first = nonfinite(other).first;
    return !first || first->step > nonfinite(tensor).first->step;
  };
  if (op.function == OpFunction::binary_cross_entropy && made.slot == 0 && is_nan) {
    const auto probability = read(0), target = read(1);
    if (!probability || !was_finite(*probability) || (target && !was_finite(*target))) return "";
    return "The model's output was finite but no probability: binary_cross_entropy takes the logarithm of it and of 1 minus it, "
           "and "
           "below 0 a logarithm is NaN. End the model with a sigmoid, or use bce_with_logits. ";
  }
  if (op.function == OpFunction::cross_entropy && made.slot == 0 && is_nan) {
    const auto sums = beside("logsumexp");
    if (!sums || !was_finite(*sums)) return "";
    return fmt::format("All logits were finite, so the mean was one over no target, 0 / 0: {} every target of the batch. ",
                       context_.settings.has("loss.ignore_index") ? "loss.ignore_index ignored" : "the loss ignored");
  }
  return "";
}

void RangeReport::find_nonfinite(Report& report) const {
  const std::vector<uint32_t> in_order = nonfinite_in_order();
  if (in_order.empty()) return;
  std::vector<Evidence> evidence;
  for (const uint32_t i : in_order) {
    if (evidence.size() == kMostEvidence) break;
    const RangeTotals none, &judged = tensors_[i]->totals, &broken = broken_tensors_[i] ? broken_tensors_[i]->totals : none;
    const NonfiniteRows rows = nonfinite(i);
    evidence.push_back({selection_.key(i, *rows.first),
                        {{"rows_with_nan_or_infinity", count_cell(rows.rows), Unit::count},
                         {"nan", count_cell(judged.nan + broken.nan), Unit::count},
                         {"infinity", count_cell(judged.infinities + broken.infinities), Unit::count}}});
  }
  const uint32_t first = in_order.front();
  const std::string name = selection_.name(first), phase = name_of(selection_.op(first).phase);
  const NonfiniteRows rows = nonfinite(first);
  std::string how;
  if (rows.overflowed > 0) {
    how = fmt::format(", where {} became infinite when rounded to {}", count_of(rows.overflowed, "finite value"),
                      info(selection_.tensor(first).dtype).format->name);
  }
  report.findings.push_back(
      {"range.nonfinite", Severity::error,
       fmt::format("{} held NaN or infinity. The first, in step {}, was made by {}{}{}.",
                   count_of(selection_.count_outputs(in_order), "tensor"), rows.first->step, name,
                   name.find(phase) == std::string::npos ? fmt::format(" in {}", phase) : "", how),
       std::move(evidence),
       cause_of_nonfinite(first) +
           fmt::format(
               "What made the first is the cause, the others follow from it. `ulpscope export {} --table captures --step {}` shows "
               "its element and operands.",
               shell_word(context_.trace.path()), rows.first->step)});
}

}  // namespace ulpscope
