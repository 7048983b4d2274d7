#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/rate_text.h"
#include "ulpscope/analyzers/judgements/origin_facts.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope::findings {

namespace {

constexpr Template kNoneApplied{"updates.none_applied",
                                "No weight changed in any of {updates:count recorded update} of {parameters:count parameter}."};
constexpr Template kRateWasZero{"updates.none_applied.rate_was_zero", "The learning rate is 0 in every step."};
constexpr Template kUpdatesWereZero{"updates.none_applied.were_zero", "Every update is zero."};
constexpr Template kAskedUnknown{
    "updates.none_applied.asked_unknown",
    "What `{optimizer}` asked for is not recorded: updates below half an ulp of a weight are rounded away."};
constexpr Template kRoundedAway{"updates.none_applied.rounded_away", "Every nonzero update was rounded away: w + dw == w."};
constexpr Template kZerosFrom{"updates.none_applied.zeros_from",
                              "{place} is all zero in step {step}, though the gradient that its op reads is not."};
constexpr Template kReplaced{"updates.none_applied.replaced",
                             "The `{op}` itself held NaN or Inf there, which the op that reads it replaces: no gradient comes back "
                             "from that."};
constexpr Template kMendReplaced{"advice.mend_replaced", "Find where that NaN or Inf comes from: `ulpscope nan {trace}`."};
constexpr Template kSaturated{"updates.none_applied.saturated",
                              "The `{activation}` gave nothing but its limits: it is saturated, and its slope is 0 there."};
constexpr Template kLossOfLogits{"advice.loss_of_logits",
                                 "Compute the loss from what the sigmoid reads, as binary_cross_entropy_with_logits does."};
constexpr Template kLargerRate{"advice.raise_learning_rate", "Raise the learning rate{rate:brackets}."};
constexpr Template kScheduleIsZero{"advice.schedule_makes_rate_zero",
                                   "Change the schedule{schedule:brackets}: it makes the learning rate 0."};
constexpr Template kWhereGradientsVanish{"advice.where_gradients_vanish",
                                         "`ulpscope ranges {trace}` shows where gradients become zero."};
constexpr Template kMastersOrRate{"advice.masters_or_learning_rate",
                                  "Use FP32 master weights{masters:brackets}, or raise the learning rate{rate:brackets}."};

// The gradient with which they end in the first step: all zeros, made of one that is not.
std::optional<uint32_t> where_gradients_end(const RunFacts& facts) {
  const Snapshot& trace = facts.context.trace;
  const Snapshot of_rank = trace.of_rank(trace.ranks().front());
  const uint64_t first = facts.steps().first.step;
  std::vector<bool> has_values(facts.selection.size());  // some that are not zero
  std::optional<uint32_t> found;
  of_rank.visit_rows_without_histograms({first, first + 1}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      const TensorInfo& made = facts.selection.tensor(row.tensor);
      if (!is_gradient(made.role) || row.known == StatisticsLevel::none || row.statistics.count == 0) continue;
      has_values[row.tensor] = row.statistics.zeros < row.statistics.count;
      if (has_values[row.tensor] || found) continue;
      const std::span<const uint32_t> read = facts.context.graph.tensors_read_by(made.op, 0);
      if (std::any_of(read.begin(), read.end(), [&](uint32_t i) { return has_values[i]; })) found = row.tensor;
    }
    return true;
  });
  return found;
}

// The activation that this gradient goes back through, where all that it gave was 0 or of magnitude 1; nullptr: it is none.
const OpInfo* saturated(const RunFacts& facts, uint32_t gradient) {
  const OpInfo& op = facts.selection.op(gradient);
  if (op.function != OpFunction::sigmoid_backward && op.function != OpFunction::tanh_backward) return nullptr;
  const uint64_t step = facts.steps().first.step;
  const Snapshot& trace = facts.context.trace;
  for (const uint32_t result : facts.context.graph.tensors_read_by(facts.selection.tensor(gradient).op, 1)) {
    bool is_saturated = false;
    trace.of_rank(trace.ranks().front()).visit_history(result, {step, step + 1}, [&](std::span<const TensorRow> rows) {
      for (const TensorRow& row : rows) {
        const TensorStatistics& held = row.statistics;
        const bool has_ones = held.zeros == held.count || (held.smallest == 1 && held.largest == 1);
        is_saturated = row.known == StatisticsLevel::values && held.count > 0 && has_ones;
      }
      return true;
    });
    if (is_saturated) return &facts.selection.op(result);
  }
  return nullptr;
}

// The op whose result the gradient is of, where that result was NaN or infinite throughout in the first step, and what reads it
// puts numbers in the place of such values; nullptr: it was not.
const OpInfo* replaced_result(const RunFacts& facts, uint32_t gradient) {
  static constexpr std::string_view kReplace[] = {"nan_to_num", "where", "masked_fill", "clamp", "clamp_min", "clamp_max"};
  const uint64_t step = facts.steps().first.step;
  const Snapshot& trace = facts.context.trace;
  const std::vector<OpInfo>& ops = trace.ops();
  const uint64_t of = facts.selection.tensor(gradient).gradient_of;
  const auto forward = std::find_if(ops.begin(), ops.end(), [&](const OpInfo& op) { return of != 0 && op.id == of; });
  if (forward == ops.end()) return nullptr;
  const auto number = static_cast<uint32_t>(forward - ops.begin());
  const std::span<const GraphEdge> uses = trace.graph().uses(number);
  const bool is_replaced = std::any_of(uses.begin(), uses.end(), [&](const GraphEdge& use) {
    return std::find(std::begin(kReplace), std::end(kReplace), plain_name(ops[use.consumer])) != std::end(kReplace);
  });
  if (!is_replaced) return nullptr;
  uint64_t count = 0, nonfinite = 0;
  for (const uint32_t result : facts.context.graph.made_by(number, 0))
    trace.of_rank(trace.ranks().front()).visit_history(result, {step, step + 1}, [&](std::span<const TensorRow> rows) {
      for (const TensorRow& row : rows) {
        count += row.statistics.count;
        nonfinite += stored_nonfinite(row, facts.selection.tensor(result).dtype);
      }
      return true;
    });
  return count > 0 && nonfinite == count ? &*forward : nullptr;
}

// Its probabilities are those that a binary cross entropy reads.
bool feeds_cross_entropy(const RunFacts& facts, const OpInfo& activation) {
  const std::vector<OpInfo>& ops = facts.context.trace.ops();
  for (uint32_t i = 0; i < ops.size(); ++i) {
    if (ops[i].function != OpFunction::binary_cross_entropy) continue;
    const std::span<const uint32_t> read = facts.context.graph.tensors_read_by(i, 0);
    if (std::any_of(read.begin(), read.end(), [&](uint32_t tensor) { return &facts.selection.op(tensor) == &activation; }))
      return true;
  }
  return false;
}

// Where the gradients end that come to no parameter, and what of the forward pass ends them.
struct End {
  std::optional<uint32_t> gradient;
  const OpInfo* activation = nullptr;  // saturated
  const OpInfo* replaced = nullptr;
};

End end_of(const RunFacts& facts) {
  End end{where_gradients_end(facts)};
  if (!end.gradient) return end;
  end.activation = saturated(facts, *end.gradient);
  end.replaced = replaced_result(facts, *end.gradient);
  return end;
}

// An optimizer of which the changes of weights are recorded, and not what it asked for; nullptr: there is none.
const OpInfo* optimizer_of_unknown_rule(const RunFacts& facts) {
  for (const UpdateJudgement::Weight& weight : facts.updates().weights())
    if (const OpInfo& op = facts.selection.op(weight.tensor); op.function == OpFunction::assign) return &op;
  return nullptr;
}

Sentences why_none(const RunFacts& facts, const End& end) {
  if (facts.judged_steps().rate_was_zero) return kRateWasZero();
  if (facts.updates().sum().all.nonzero > 0) return kRoundedAway();
  if (const OpInfo* const optimizer = optimizer_of_unknown_rule(facts))
    return kAskedUnknown({{"optimizer", Name{NameKind::op, optimizer->name}}});
  Sentences why = kUpdatesWereZero();
  if (!end.gradient) return why;
  why += kZerosFrom({{"place", tensor_place(facts.selection, *end.gradient)}, {"step", ordinal(facts.steps().first.step)}});
  if (end.activation != nullptr) why += kSaturated({{"activation", Name{NameKind::op, end.activation->name}}});
  if (end.replaced != nullptr) why += kReplaced({{"op", Name{NameKind::op, end.replaced->name}}});
  return why;
}

Advice advice_on_none(const RunFacts& facts, const End& end) {
  const UpdateJudgement& updates = facts.updates();
  const SettingNames& settings = facts.context.settings;
  const SettingMention rate = settings.only_now(SettingKind::learning_rate);
  if (facts.judged_steps().rate_was_zero) {
    if (settings.number(SettingKind::learning_rate).value_or(0) == 0) return kLargerRate({{"rate", rate}});
    return kScheduleIsZero({{"schedule", Value::list(settings.given_beside(SettingKind::warmup))}});
  }
  const bool is_sigmoid = end.activation != nullptr && end.activation->function == OpFunction::sigmoid;
  if (is_sigmoid && feeds_cross_entropy(facts, *end.activation)) return kLossOfLogits();
  const bool narrow = std::any_of(updates.weights().begin(), updates.weights().end(), [&](const UpdateJudgement::Weight& weight) {
    return is_narrow(facts.selection.tensor(weight.tensor).dtype);
  });
  const bool may_be_rounded_away = narrow && optimizer_of_unknown_rule(facts) != nullptr;
  if (!may_be_rounded_away) {
    if (end.replaced != nullptr) return kMendReplaced({{"trace", trace_name(facts.context.trace)}});
    if (updates.sum().all.nonzero == 0) return kWhereGradientsVanish({{"trace", trace_name(facts.context.trace)}});
    if (Advice why = why_updates_are_short(facts); !why.text.empty()) return why;
  }
  Advice advice = kLargerRate({{"rate", rate}});
  if (narrow)
    advice.text = kMastersOrRate({{"masters", advice.set(settings.switched(SettingKind::master_weights, true))}, {"rate", rate}});
  advice.note({.kind = SettingKind::learning_rate, .way = SettingChange::Way::raise});
  return advice;
}

void find_none_applied(const RunFacts& facts, Findings& found) {
  const UpdateJudgement& updates = facts.updates();
  if (!updates.none_applied()) return;
  const End end = updates.sum().all.nonzero == 0 ? end_of(facts) : End();
  Extent extent{.first_step = facts.steps().first.step,
                .value = Quantity{"recorded_updates", count_cell(updates.sum().rows), Unit::count}};
  std::vector<Evidence> evidence;
  for (const UpdateJudgement::Weight& weight : updates.weights()) {
    extent.tensors.push_back(weight.tensor);
    if (evidence.size() < kMostEvidence)
      evidence.push_back({facts.selection.key(weight.tensor),
                          {{"updates", count_cell(weight.totals.rows), Unit::count},
                           {"nonzero_updates", count_cell(weight.totals.all.nonzero), Unit::count}}});
  }
  found.add_judged(
      Severity::error,
      Sentences{kNoneApplied({{"updates", updates.sum().rows}, {"parameters", updates.weights().size()}})} + why_none(facts, end),
      std::move(evidence), advice_on_none(facts, end), std::move(extent));
}

}  // namespace

extern constinit const FindingRule updates_none_applied{
    .code = "updates.none_applied",
    .part = Part::updates,
    .raised = "No recorded update changed any weight.",
    .meaning = "The run learns nothing: the learning rate is 0, every gradient is 0, or every update is rounded away.",
    .help = "A larger learning rate, or FP32 master weights; where gradients are 0, see the findings on ranges.",
    .explains = {"run.no_better_than_guessing", "updates.lost", "run.loss_stayed"},
    .shown_by = "experiments/failures/learning_rate_zero.toml",
    .find = find_none_applied,
};

}  // namespace ulpscope::findings
