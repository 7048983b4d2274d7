#include "ulpscope/analyzers/findings/rate_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "ulpscope/analyzers/findings/update_text.h"
#include "ulpscope/analyzers/judgements/learning_rates.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOrLowerFactor{"advice.or_lower_loss_factor", ", or lower the loss factor{factor:brackets}"};
constexpr Template kMomentumOfOne{"advice.momentum_of_one",
                                  "Lower the momentum below 1{momentum:brackets}: at 1 or more, old gradients never decay"};
constexpr Template kLowerDecay{"advice.lower_decay",
                               "Lower the weight decay{decay:brackets}: times the learning rate{rate:brackets} it is "
                               "{product:.3g}, and above 1 it flips the sign of the weights"};
constexpr Template kLowerFactorOrRate{"advice.lower_loss_factor_or_rate",
                                      "Lower the loss factor{factor:brackets}, which scales SGD's updates, or the learning "
                                      "rate{rate:brackets}"};
constexpr Template kLowerRisenRate{"advice.lower_risen_rate",
                                   "Lower the learning rate{rate:brackets}: it rose from {first:.4g} in step {first_step} to "
                                   "{largest:.4g} in step {largest_step}{warmup:brackets}"};
constexpr Template kLowerRate{"advice.lower_rate", "Lower the learning rate{rate:brackets}, or warm it up"};
constexpr Template kLowerRateOrClip{"advice.lower_rate_or_clip",
                                    "Lower the learning rate{rate:brackets}, warm it up, or clip gradients{norm:brackets}"};
constexpr Template kFactorShortens{"advice.loss_factor_shortens",
                                   "Raise the loss factor{factor:brackets}: it scales the gradients, and SGD's updates with them."};
constexpr Template kClippingShortens{"advice.clipping_shortens",
                                     "{said}: gradient norms are {least:.4g} to {largest:.4g}, and clipping makes SGD's updates at "
                                     "least {ratio} shorter."};
constexpr Template kRateWasSmall{"advice.rate_was_small",
                                 "Decay the learning rate later or less{schedule:brackets}: in {small} of {steps} steps it is "
                                 "below 1% of its maximum ({largest:.4g}, step {step})."};
constexpr Template kRateRisesSlowly{
    "advice.rate_rises_slowly",
    "Shorten the warmup{warmup:brackets}: by step {step} the learning rate has reached {rate:.4g} of "
    "{full:.4g}."};
constexpr Template kDecayDraws{"advice.decay_draws_to_zero",
                               "Lower the weight decay{decay:brackets}: times the learning rate it takes up to {product:.3g} of "
                               "each weight per step."};

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
  return !(facts.context.settings.number(SettingKind::clip_norm).value_or(0) > 0) && uses_sgd(facts);
}

double loss_factor(const RunFacts& facts) { return facts.context.settings.number(SettingKind::loss_factor).value_or(1); }
SettingMention loss_factor_now(const RunFacts& facts) { return facts.context.settings.now(SettingKind::loss_factor); }

// From so far from 1 on a factor that makes updates longer, and one that makes them shorter, is told. Losses of four micro-batches
// that are not divided are the usual smallest one of the first kind.
constexpr double kLongerFactor = 4, kFactor = 10;

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
    if (!one.empty() && rates->second <= base * (1 + 1e-6)) fitting.emplace(one.text(), one);
  }
  return fitting.size() == 1 ? fitting.begin()->second : none;
}

Sentence or_lower_loss_factor(const RunFacts& facts, Advice& advice) {
  if (!(loss_factor(facts) > 1)) return {};
  return kOrLowerFactor({{"factor", advice.lower(loss_factor_now(facts))}});
}

Advice shorten_updates(const RunFacts& facts, std::optional<uint32_t> weight, uint64_t step) {
  const SettingNames& settings = facts.context.settings;
  Advice advice;
  if (settings.number(SettingKind::momentum).value_or(0) >= 1) {
    advice.text = kMomentumOfOne({{"momentum", advice.lower(settings.now(SettingKind::momentum))}});
    return advice;
  }
  const double decay = settings.number(SettingKind::weight_decay).value_or(0),
               rate = settings.number(SettingKind::learning_rate).value_or(0);
  if (decay * rate > 1 && decay > rate) {  // else the rate is what is out of place
    advice.text = kLowerDecay({{"decay", advice.lower(settings.now(SettingKind::weight_decay))},
                               {"rate", settings.now(SettingKind::learning_rate)},
                               {"product", decay * rate}});
    return advice;
  }
  // Updates of Adam and Lion are as long, however long the gradients are.
  const OpFunction rule = weight ? facts.selection.op(*weight).function : OpFunction::other;
  const SettingMention rate_now = learning_rate_now(facts, weight);
  if (rule == OpFunction::sgd_update && loss_factor(facts) >= kLongerFactor && updates_follow_gradients(facts)) {
    const Setting factor = advice.lower(loss_factor_now(facts));
    advice.text = kLowerFactorOrRate({{"factor", factor}, {"rate", advice.lower(rate_now)}});
    return advice;
  }
  const std::vector<LearningRate>& rates = facts.learning_rates();
  const auto behind = std::find_if(rates.begin(), rates.end(), [&](const LearningRate& one) { return one.step > step; });
  const auto at = largest_of(rates, behind);
  const Setting rate_words = advice.lower(rate_now);
  if (at != behind && at->value > 2 * rates.front().value) {
    const bool warms_up = settings.number(SettingKind::warmup).value_or(0) > 0;
    advice.text = kLowerRisenRate({{"rate", rate_words},
                                   {"first", rates.front().value},
                                   {"first_step", ordinal(rates.front().step)},
                                   {"largest", at->value},
                                   {"largest_step", ordinal(at->step)},
                                   {"warmup", warms_up ? Value(settings.now(SettingKind::warmup)) : Value()}});
    return advice;
  }
  advice.note({.kind = SettingKind::warmup, .way = SettingChange::Way::raise});
  if (rule != OpFunction::sgd_update)
    advice.text = kLowerRate({{"rate", rate_words}});
  else
    advice.text = kLowerRateOrClip({{"rate", rate_words}, {"norm", advice.set(settings.name(SettingKind::clip_norm), "1")}});
  return advice;
}

Advice why_updates_are_short(const RunFacts& facts) {
  constexpr double kSmall = 0.01;  // of the rate that it was meant to be
  const SettingNames& settings = facts.context.settings;
  Advice why;
  if (loss_factor(facts) <= 1 / kFactor && updates_follow_gradients(facts))
    why.text += kFactorShortens({{"factor", why.raise(loss_factor_now(facts))}});
  const Clipping& clipping = facts.judged_steps().clipping;
  if (clipping.steps > 0 && clipping.least >= kFactor && uses_sgd(facts) && clips_gradients(facts) &&
      !clipping.divides_by_scale()) {
    Advice clip = clip_less(facts);
    clip.text.begin_with(kClippingShortens,
                         {{"least", clipping.least_norm}, {"largest", clipping.largest_norm}, {"ratio", shortened_by(clipping)}});
    why += clip;
  }
  const std::vector<LearningRate>& rates = facts.learning_rates();
  const auto most = largest_of(rates, rates.end());
  if (!rates.empty()) {
    const auto small =
        std::count_if(rates.begin(), rates.end(), [&](const LearningRate& one) { return one.value < kSmall * most->value; });
    const double full = settings.number(SettingKind::learning_rate).value_or(0);
    if (most->value > 0 && 2 * static_cast<size_t>(small) > rates.size() && most->step < rates.size() / 2 + rates.front().step)
      why.text += kRateWasSmall({{"largest", most->value},
                                 {"step", ordinal(most->step)},
                                 {"small", small},
                                 {"steps", rates.size()},
                                 {"schedule", Value::list(settings.given_beside(SettingKind::warmup))}});
    else if (settings.number(SettingKind::warmup).value_or(0) > 0 && rates.back().value < kSmall * full &&
             most->step == rates.back().step)
      why.text += kRateRisesSlowly({{"rate", rates.back().value},
                                    {"step", ordinal(rates.back().step)},
                                    {"full", full},
                                    {"warmup", why.lower(settings.now(SettingKind::warmup))}});
  }
  return why + why_weights_shrink(facts);
}

Advice why_weights_shrink(const RunFacts& facts) {
  constexpr double kMuch = 0.01;  // of a weight in a step: half of it is gone after 69
  const SettingNames& settings = facts.context.settings;
  const std::vector<LearningRate>& rates = facts.learning_rates();
  Advice why;
  if (rates.empty()) return why;
  const double taken = settings.number(SettingKind::weight_decay).value_or(0) * largest_of(rates, rates.end())->value;
  if (taken > kMuch) why.text = kDecayDraws({{"decay", why.lower(settings.now(SettingKind::weight_decay))}, {"product", taken}});
  return why;
}

}  // namespace ulpscope::findings
