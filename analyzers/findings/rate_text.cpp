#include "ulpscope/analyzers/findings/rate_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "ulpscope/analyzers/judgements/learning_rates.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

// Its learning rate over that of the step.
std::optional<std::pair<double, double>> rates_with(const RunFacts& facts, uint32_t weight) {
  std::optional<std::pair<double, double>> rates;
  std::optional<LearningRate> own;
  facts.context.trace.visit_parameters(facts.context.options.steps, [&](std::span<const ParameterRow> rows) {
    for (const ParameterRow& row : rows)
      if (!own && row.tensor == weight && row.learning_rate > 0) own = {row.step, row.learning_rate};
    return !own;
  });
  if (!own) return std::nullopt;
  facts.context.trace.visit_steps({own->step, own->step + 1}, [&](std::span<const StepRow> rows) {
    if (rows.front().learning_rate > 0) rates = {own->value, rows.front().learning_rate};
    return false;
  });
  return rates;
}

bool updates_follow_gradients(const RunFacts& facts) {
  if (facts.context.settings.number(SettingKind::clip_norm).value_or(0) > 0) return false;
  const std::vector<OpInfo>& ops = facts.context.trace.ops();
  return std::any_of(ops.begin(), ops.end(), [](const OpInfo& op) { return op.function == OpFunction::sgd_update; });
}

double loss_factor(const RunFacts& facts) { return facts.context.settings.number(SettingKind::loss_factor).value_or(1); }
SettingMention loss_factor_now(const RunFacts& facts) { return facts.context.settings.now(SettingKind::loss_factor); }

// From so far from 1 on a factor of the loss is told.
constexpr double kFactor = 10;

// What multiplies the learning rate, step by step, was largest then.
std::vector<LearningRate>::const_iterator largest_of(const std::vector<LearningRate>& rates,
                                                     std::vector<LearningRate>::const_iterator end) {
  return std::max_element(rates.begin(), end, [](const LearningRate& a, const LearningRate& b) { return a.value < b.value; });
}

}  // namespace

SettingMention learning_rate_now(const RunFacts& facts, std::optional<uint32_t> weight) {
  const SettingNames& settings = facts.context.settings;
  if (const SettingMention only = settings.only_now(SettingKind::learning_rate); !only.empty()) return only;
  if (!weight && facts.sees_updates() && facts.updates().whole().longest) weight = facts.updates().whole().longest->tensor;
  const SettingMention none{SettingKind::learning_rate};
  const auto rates = weight ? rates_with(facts, *weight) : std::nullopt;
  if (!rates) return none;
  // A schedule multiplies all of them alike, and the step's is that of one of them.
  std::map<std::string, SettingMention> fitting;
  for (const double base : settings.numbers(SettingKind::learning_rate)) {
    const SettingMention one = settings.now_where(SettingKind::learning_rate, rates->first / rates->second * base);
    if (!one.empty() && rates->second <= base * (1 + 1e-6)) fitting.emplace(one.text, one);
  }
  return fitting.size() == 1 ? fitting.begin()->second : none;
}

Advice or_lower_loss_factor(const RunFacts& facts) {
  Advice advice;
  if (loss_factor(facts) > 1)
    advice.text = ", or lower the factor of the loss" + in_brackets({advice.lower(loss_factor_now(facts))});
  return advice;
}

Advice smaller_scale_of_loss(const RunFacts& facts) {
  constexpr double kSlow = 0.9;  // a scaler that backs off by less takes ten steps and more to halve its scale
  const SettingNames& settings = facts.context.settings;
  const bool has_factor = loss_factor(facts) > 1;
  Advice advice;
  if (has_factor && !facts.precision().scales_loss) {
    advice.text = "A smaller factor of the loss" + in_brackets({advice.lower(loss_factor_now(facts))}) + " keeps it";
    return advice;
  }
  advice.text = "A smaller loss scale";
  advice.note({.kind = SettingKind::scale_initial, .way = SettingChange::Way::lower});
  if (facts.precision().adapts_scale && facts.context.trace.run().backoff_factor > kSlow)
    advice += ", or one that falls faster" + in_brackets({advice.lower(settings.now(SettingKind::scale_backoff_factor))}) + ",";
  if (has_factor) advice += " or factor of the loss" + in_brackets({advice.lower(loss_factor_now(facts))});
  return std::move(advice) + " keeps it";
}

Advice shorten_updates(const RunFacts& facts, std::optional<uint32_t> weight, uint64_t step) {
  const SettingNames& settings = facts.context.settings;
  Advice advice;
  if (settings.number(SettingKind::momentum).value_or(0) >= 1) {
    advice.text = fmt::format("A momentum of 1 or more forgets nothing{}: set it below 1",
                              in_brackets({advice.lower(settings.now(SettingKind::momentum))}));
    return advice;
  }
  const double decay = settings.number(SettingKind::weight_decay).value_or(0),
               rate = settings.number(SettingKind::learning_rate).value_or(0);
  if (decay * rate > 1) {
    advice.text = fmt::format(
        "Lower the weight decay{}: times the learning rate{} it is {:.3g}, and above 1 it turns weights around by itself",
        in_brackets({advice.lower(settings.now(SettingKind::weight_decay))}),
        in_brackets({settings.now(SettingKind::learning_rate)}), decay * rate);
    return advice;
  }
  // Updates of Adam and Lion are as long, however long the gradients are.
  const OpFunction rule = weight ? facts.selection.op(*weight).function : OpFunction::other;
  const SettingMention rate_now = learning_rate_now(facts, weight);
  if (rule == OpFunction::sgd_update && loss_factor(facts) >= kFactor && updates_follow_gradients(facts)) {
    const std::string factor = in_brackets({advice.lower(loss_factor_now(facts))});
    advice.text = fmt::format(
        "Lower the factor of the loss{}, which multiplies the gradients and the updates of SGD with them, or the learning "
        "rate{}",
        factor, in_brackets({advice.lower(rate_now)}));
    return advice;
  }
  const std::vector<LearningRate>& rates = facts.learning_rates();
  const auto behind = std::find_if(rates.begin(), rates.end(), [&](const LearningRate& one) { return one.step > step; });
  const auto at = largest_of(rates, behind);
  advice.text = "Lower the learning rate" + in_brackets({advice.lower(rate_now)});
  if (at != behind && at->value > 2 * rates.front().value) {
    const bool warms_up = settings.number(SettingKind::warmup).value_or(0) > 0;
    advice += fmt::format(", which had risen from {:.4g} in step {} to {:.4g} in step {}{}", rates.front().value,
                          rates.front().step, at->value, at->step,
                          in_brackets({warms_up ? settings.now(SettingKind::warmup) : SettingMention{SettingKind::warmup}}));
    return advice;
  }
  advice += ", or warm it up";
  advice.note({.kind = SettingKind::warmup, .way = SettingChange::Way::raise});
  if (rule == OpFunction::sgd_update)
    advice += ", or clip the gradients" + in_brackets({advice.set(settings.name(SettingKind::clip_norm), "1")});
  return advice;
}

Advice why_updates_are_short(const RunFacts& facts) {
  constexpr double kSmall = 0.01;  // of the rate that it was meant to be
  const SettingNames& settings = facts.context.settings;
  Advice why;
  if (loss_factor(facts) <= 1 / kFactor && updates_follow_gradients(facts))
    why += fmt::format("The factor of the loss{} makes the gradients as small, and the updates of SGD with them: raise it. ",
                       in_brackets({why.raise(loss_factor_now(facts))}));
  const std::vector<LearningRate>& rates = facts.learning_rates();
  const auto most = largest_of(rates, rates.end());
  if (!rates.empty()) {
    const auto small =
        std::count_if(rates.begin(), rates.end(), [&](const LearningRate& one) { return one.value < kSmall * most->value; });
    const double full = settings.number(SettingKind::learning_rate).value_or(0);
    if (most->value > 0 && 2 * static_cast<size_t>(small) > rates.size() && most->step < rates.size() / 2 + rates.front().step)
      why += fmt::format(
          "The learning rate was below a hundredth of {:.4g}, which it was in step {}, in {} of {} steps{}: let it "
          "fall later, or by less. ",
          most->value, most->step, small, rates.size(), in_brackets({settings.given_beside(SettingKind::warmup)}));
    else if (settings.number(SettingKind::warmup).value_or(0) > 0 && rates.back().value < kSmall * full &&
             most->step == rates.back().step)
      why += fmt::format("The learning rate had risen to {:.4g} by step {}, and goes up to {:.4g}{}: warm it up in fewer steps. ",
                         rates.back().value, rates.back().step, full, in_brackets({why.lower(settings.now(SettingKind::warmup))}));
  }
  const double taken = rates.empty() ? 0 : settings.number(SettingKind::weight_decay).value_or(0) * most->value;
  if (taken > kSmall)
    why += fmt::format(
        "Weight decay{} times the learning rate is up to {:.3g}: lower it, for it draws weights to 0 faster than "
        "they learn. ",
        in_brackets({why.lower(settings.now(SettingKind::weight_decay))}), taken);
  return why;
}

}  // namespace ulpscope::findings
