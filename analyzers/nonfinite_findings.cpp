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

bool RangeReport::reached_weights() const {
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    const Role role = selection_.tensor(i).role;
    const bool is_kept = role == Role::weight || role == Role::master_weight || role == Role::optimizer_state;
    if (tensors_[i] && is_kept && nonfinite(i).rows > 0) return true;
  }
  return false;
}

Severity RangeReport::harm_of_nonfinite() const {
  const StepTotals steps = steps_.whole();
  if (steps_.broken_from() != UINT64_MAX || reached_weights() || steps.is_stuck()) return Severity::error;
  // Of the gradients those that updates are made from: others may hold what a mask takes away.
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    const Role role = selection_.tensor(i).role;
    const bool is_parameters =
        role == Role::weight_gradient || role == Role::accumulated_gradient || role == Role::unscaled_gradient;
    if (tensors_[i] && is_parameters && nonfinite(i).rows > 0) return Severity::warning;
  }
  return wastes_many(steps.nonfinite_losses.size(), steps.count) ? Severity::warning : Severity::info;
}

// The first of the run; where it broke, or no step was taken to its end, the first of the steps that led there one after the other:
// what was nonfinite before them was gone by then. Of skipped steps it is their gradients too.
std::optional<RangeReport::NonfiniteOrigin> RangeReport::origin_of_nonfinite() const {
  const std::vector<uint32_t>& in_order = nonfinite_in_order_;
  const StepTotals steps = steps_.whole();
  std::optional<NonfiniteOrigin> origin;
  if (!in_order.empty()) {
    const NonfiniteRows first = nonfinite(in_order.front());
    origin = {in_order.front(), *first.first, first.overflowed};
  }
  const uint64_t broke = steps_.broken_from();
  // Events of several ranks do not say whose they are.
  if ((broke == UINT64_MAX && !steps.is_stuck()) || context_.trace.ranks().size() > 1) return origin;
  const EventRow* earliest = nullptr;
  const std::vector<EventRow>& events = context_.trace.events();
  uint64_t last = steps.last.step;
  for (auto event = events.rbegin(); event != events.rend(); ++event) {
    if (event->kind != EventKind::nonfinite || event->tensor < 0 || event->step > last || event->step < options_.steps.first)
      continue;
    // A step that was skipped did nothing to the next one, unless all from there on were.
    const uint64_t next = earliest ? earliest->step : last + 1;
    if (event->step + 1 < next || (steps.skipped.contains(event->step) && !steps.skipped.contains(next) && next <= last)) break;
    earliest = &*event;
  }
  if (earliest == nullptr || (origin && earliest->step == origin->position.step && !steps.skipped.contains(earliest->step)))
    return origin;
  const auto tensor = static_cast<uint32_t>(earliest->tensor);
  if (!selection_.contains(tensor) || !tensors_[tensor] || (origin && origin->tensor == tensor)) return origin;
  origin = {tensor, {earliest->step, context_.trace.run().rank, 0, earliest->micro_batch, earliest->loss_index}, 0};
  context_.trace.visit_rows_without_histograms({earliest->step, earliest->step + 1}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      if (row.tensor != tensor || row.micro_batch != earliest->micro_batch || row.loss_index != earliest->loss_index) continue;
      origin->position.sequence = row.sequence;
      if (row.known != StatisticsLevel::none && row.statistics.nonfinite() == 0 && !is_quantized(selection_.tensor(tensor).dtype))
        origin->overflowed = row.rounding.infinite();
      return false;
    }
    return true;
  });
  return origin;
}

// How the first captured element came about, where the trace has that: "element 5 is log(0) = -Infinity. ". Of a sum what it was
// before its rounding.
std::string RangeReport::story_of(const NonfiniteOrigin& origin) const {
  const std::vector<CaptureRow> captures = context_.trace.captures({origin.position.step, origin.position.step + 1});
  const CaptureRow* root = nullptr;
  std::vector<const CaptureRow*> operands;
  for (const CaptureRow& node : captures) {
    if (node.tensor != origin.tensor || node.micro_batch != origin.position.micro_batch) continue;
    if (node.node == 0) {
      if (root != nullptr) break;
      root = &node;
    } else if (root != nullptr && node.parent == 0) {
      operands.push_back(&node);
    }
  }
  if (root == nullptr) return "";
  const OpInfo& op = selection_.op(origin.tensor);
  const std::string value = std::isnan(root->value) ? "NaN" : root->value > 0 ? "infinity" : "-infinity";
  if (std::isfinite(root->partial_sum) && root->terms > 0) {
    return fmt::format("Element {} is a sum of {} that was {:.6g} before it was rounded. ", root->element,
                       count_of(static_cast<uint64_t>(root->terms), "term"), root->partial_sum);
  }
  const bool is_plain = op.kind == OpKind::elementwise || op.kind == OpKind::cast;
  if (!is_plain || operands.empty() || operands.size() > 3) return "";
  std::string arguments;
  for (const CaptureRow* operand : operands) {
    if (operand->overwritten || operand->row.count > 0) return "";
    arguments += fmt::format("{}{:.6g}", arguments.empty() ? "" : ", ", operand->value);
  }
  return fmt::format("Element {} is {}({}) = {}. ", root->element, op.name, arguments, value);
}

// Where the op and what was recorded beside it leave one way only in which the first NaN or infinity came about: that, and what
// helps. "" otherwise.
std::string RangeReport::cause_of_nonfinite(const NonfiniteOrigin& origin) const {
  const uint32_t tensor = origin.tensor;
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
  if (op.kind == OpKind::source && made.role != Role::input)
    return fmt::format("It was so before the first op that was recorded in step {}: look at how it was made or loaded. ",
                       origin.position.step);
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
  const auto held = [&](uint64_t RangeTotals::*count) {
    return tensors_[tensor]->totals.*count + (broken_tensors_[tensor] ? broken_tensors_[tensor]->totals.*count : 0);
  };
  const bool is_nan = held(&RangeTotals::infinities) == 0;
  const auto was_finite = [&](uint32_t other) {
    const auto first = nonfinite(other).first;
    return !first || first->step > origin.position.step;
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
  const std::optional<NonfiniteOrigin>& origin = origin_;
  if (!origin) return;
  const std::vector<uint32_t>& in_order = nonfinite_in_order_;
  std::vector<Evidence> evidence;
  const auto add_evidence = [&](uint32_t i, const RowPosition& position) {
    const RangeTotals none, &judged = tensors_[i]->totals, &broken = broken_tensors_[i] ? broken_tensors_[i]->totals : none;
    evidence.push_back({selection_.key(i, position),
                        {{"nan", count_cell(judged.nan + broken.nan), Unit::count},
                         {"infinity", count_cell(judged.infinities + broken.infinities), Unit::count}}});
  };
  add_evidence(origin->tensor, origin->position);
  for (const uint32_t i : in_order) {
    if (evidence.size() == kMostEvidence) break;
    if (i != origin->tensor) add_evidence(i, *nonfinite(i).first);
  }
  // As the table of ranges has them: gradients of skipped steps too.
  std::vector<uint32_t> all;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i] && (tensors_[i]->totals.nonfinite() > 0 || (broken_tensors_[i] && broken_tensors_[i]->totals.nonfinite() > 0)))
      all.push_back(i);
  }
  const uint32_t tensor = origin->tensor;
  const TensorInfo& made = selection_.tensor(tensor);
  const OpInfo& op = selection_.op(tensor);
  const std::string name = selection_.name(tensor), phase = name_of(op.phase);
  const std::string where = name + (name.find(phase) == std::string::npos ? fmt::format(" in {}", phase) : "");
  const Severity harm = harm_;
  const std::string count = count_of(selection_.count_outputs(all), "tensor"), story = story_of(*origin);
  std::string advice = fmt::format("`ulpscope export {} --table captures --step {}` shows the element and its operands.",
                                   shell_word(context_.trace.path()), origin->position.step);
  Extent extent{in_order, origin->position.step, tensor};
  if (std::find(in_order.begin(), in_order.end(), tensor) == in_order.end()) extent.tensors.push_back(tensor);
  // Told with the steps that were taken with them (find_overflow_kept).
  if (origin->overflowed > 0 && harm == Severity::warning && is_gradient(made.role) && is_plainly_narrow(made.dtype)) return;
  // The tensor that they came from says more than that there are some.
  if (origin->overflowed > 0 && harm > Severity::info && is_plainly_narrow(made.dtype) && op.phase != Phase::optimizer) {
    const std::string format(info(made.dtype).format->name);
    const bool is_scaled = is_gradient(made.role) || (made.role == Role::loss && op.phase != Phase::forward);
    const std::string help =
        is_scaled ? "A smaller loss scale keeps it, and so does BF16"
                  : fmt::format("No loss scale helps a forward value: run this op in FP32 or BF16, or make its inputs smaller");
    report.findings.push_back({is_gradient(made.role) ? "range.gradients_overflow" : "range.values_overflow", harm,
                               fmt::format("{} became too large for {} in step {}, {}: {} held NaN or infinity in the run.", where,
                                           format, origin->position.step, count_of(origin->overflowed, "element"), count),
                               std::move(evidence), fmt::format("{}. {}{}", help, story, advice), std::move(extent)});
    return;
  }
  const char* const which =
      origin->position.step == 0 || in_order.empty() || nonfinite(in_order.front()).first->step == origin->position.step
          ? "The first"
          : "The one that lasted";
  report.findings.push_back({"range.nonfinite", harm,
                             fmt::format("{} held NaN or infinity{}. {}, in step {}, {}{}.", count,
                                         harm == Severity::info && !is_filtered() ? ", and none of it reached a weight" : "", which,
                                         origin->position.step, op.kind == OpKind::source ? "came in as " : "was made by ", where),
                             std::move(evidence), story + cause_of_nonfinite(*origin) + advice, std::move(extent)});
}

}  // namespace ulpscope
