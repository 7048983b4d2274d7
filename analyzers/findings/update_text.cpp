#include "ulpscope/analyzers/findings/update_text.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLargerNorm{"advice.clip_to_larger_norm", "Clip to a larger norm{norm:brackets}"};
constexpr Template kLargerValues{"advice.clip_to_larger_values", "Clip to larger values{value:brackets}"};
constexpr Template kLargerNormAndValues{"advice.clip_to_larger_norm_and_values",
                                        "Clip to a larger norm{norm:brackets} and larger values{value:brackets}"};
constexpr Template kStochasticOps{"advice.stochastic_ops", "{ops} of the update"};
constexpr Template kStochasticOpsWithMath{"advice.stochastic_ops_with_math", "{ops} of the update, with {math}"};

}  // namespace

bool clips_gradients(const RunFacts& facts) {
  const std::vector<OpInfo>& ops = facts.context.trace.ops();
  return std::any_of(ops.begin(), ops.end(), [](const OpInfo& op) {
    // By its function a product of gradients in place is one too, whatever its factor comes from.
    if (op.name == "clip_norm" || clips_by_value(op)) return true;
    const bool is_between = op.phase == Phase::scaling || op.phase == Phase::optimizer;
    return is_between && (op.name.find("norm") != std::string::npos || op.name.find("clamp") != std::string::npos);
  });
}

bool is_stuck_gain(const RunFacts& facts, const UpdateJudgement::Weight& weight) {
  constexpr uint64_t kLeastUpdates = 10;
  const TensorInfo& tensor = facts.selection.tensor(weight.tensor);
  const UpdateTotals& totals = weight.totals;
  if (weight.rounding != SmallUpdates::nearest || tensor.shape.size() != 1 || totals.rows < kLeastUpdates ||
      totals.all.nonzero == 0 || totals.all.lost < totals.all.nonzero)
    return false;
  const std::vector<OpInfo>& ops = facts.context.trace.ops();
  const auto reads_it = [&](uint32_t op, uint32_t input) {
    const std::span<const uint32_t> read = facts.context.graph.tensors_read_by(op, input);
    return std::any_of(read.begin(), read.end(),
                       [&](uint32_t each) { return facts.context.trace.tensors()[each].parameter == tensor.parameter; });
  };
  for (uint32_t i = 0; i < ops.size(); ++i) {
    if (ops[i].phase != Phase::forward) continue;
    const auto gain = ops[i].kind == OpKind::normalization ? input_of(ops[i].function, Meaning::weight) : std::nullopt;
    if (gain && reads_it(i, *gain)) return true;
    if (ops[i].function == OpFunction::mul && (reads_it(i, 0) || reads_it(i, 1))) return true;
  }
  return false;
}

void tell_lost_updates(const RunFacts& facts, SmallUpdates rounding, double limit, Severity severity,
                       const std::function<Sentences(std::span<const UpdateJudgement::Lost>)>& title, const Advice& advice,
                       Findings& found) {
  if (facts.updates().none_applied()) return;
  const std::vector<UpdateJudgement::Lost> lost = facts.updates().lost(rounding, limit);
  if (lost.empty()) return;
  std::vector<Evidence> evidence;
  Extent extent;
  for (const auto& [share, weight] : lost) {
    const UpdateTotals& totals = weight->totals;
    if (evidence.size() < kMostEvidence)
      evidence.push_back({facts.selection.key(weight->tensor),
                          {{"lost", share, Unit::share},
                           {"nonzero_updates", count_cell(totals.missed.nonzero), Unit::count},
                           {"lost_to_decay", count_cell(totals.missed.lost_to_decay), Unit::count}}});
    extent.tensors.push_back(weight->tensor);
    if (totals.first_lost) keep_first(extent.first_step, std::optional(totals.first_lost->step));
  }
  // A bias before a normalization has gradients of rounding noise, and nothing is lost with them.
  const bool has_matrix = std::any_of(lost.begin(), lost.end(), [&](const UpdateJudgement::Lost& each) {
    return facts.selection.tensor(each.weight->tensor).shape.size() >= 2;
  });
  const bool has_gain =
      std::any_of(lost.begin(), lost.end(), [&](const UpdateJudgement::Lost& each) { return is_stuck_gain(facts, *each.weight); });
  if (!has_matrix && !has_gain) severity = Severity::info;
  found.add_judged(severity, title(lost), std::move(evidence), advice, std::move(extent));
}

Sentence stochastic_rounding(const SettingNames& settings, Advice& advice) {
  const Setting ops = advice.set(settings.name(SettingKind::arithmetic_of_ops), std::string(settings.words().stochastic_updates));
  if (ops.empty()) return {};
  const SettingMention math = settings.changed(SettingKind::update_math, settings.words().parameter_math, settings.words().fp32);
  return math.empty() ? kStochasticOps({{"ops", ops}}) : kStochasticOpsWithMath({{"ops", ops}, {"math", math}});
}

bool uses_sgd(const RunFacts& facts) {
  const std::vector<OpInfo>& ops = facts.context.trace.ops();
  return std::any_of(ops.begin(), ops.end(), [](const OpInfo& op) { return op.function == OpFunction::sgd_update; });
}

double floored(double ratio) {
  const double unit = std::pow(10.0, std::floor(std::log10(ratio)) - 2);
  return std::floor(ratio / unit) * unit;
}

Value shortened_by(const Clipping& clipping) { return {floored(clipping.least), Unit::ratio}; }

Advice clip_less(const RunFacts& facts) {
  const SettingNames& settings = facts.context.settings;
  const bool by_norm = settings.number(SettingKind::clip_norm).value_or(0) != 0;
  const bool by_value = settings.number(SettingKind::clip_value).value_or(0) != 0;
  Advice advice;
  const Setting norm = by_value && !by_norm ? Setting() : advice.raise(settings.now(SettingKind::clip_norm));
  const Setting value = by_value ? advice.raise(settings.now(SettingKind::clip_value)) : Setting();
  advice.text = by_norm && by_value ? kLargerNormAndValues({{"norm", norm}, {"value", value}})
                : by_value          ? kLargerValues({{"value", value}})
                                    : kLargerNorm({{"norm", norm}});
  return advice;
}

}  // namespace ulpscope::findings
