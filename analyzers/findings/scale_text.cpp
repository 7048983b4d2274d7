#include "ulpscope/analyzers/findings/scale_text.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLowerFloor{"advice.lower_scale_floor",
                               "The loss scale may fall no further than {floor}{setting:brackets}, and the gradients bear "
                               "{largest} at most: lower that floor."};
constexpr Template kGrowByLess{"advice.grow_by_less",
                               "Grow by less{growth:brackets}: one growth is as much as {backoffs:.3g} "
                               "backoffs{backoff:brackets}, a skipped step each, and has to be taken back where the gradients "
                               "do not fit it."};
constexpr Template kScaleBelow{"scale.stood_below",
                               "The loss scale was below {limit:g} in {steps} of {all:count step}; {skipped} of these "
                               "{skipped:either was|were} skipped."};
constexpr Template kScaleAbove{"scale.stood_above",
                               "The loss scale was above {limit:g} in {steps} of {all:count step}; {skipped} of these "
                               "{skipped:either was|were} skipped."};
constexpr Template kBeganLow{"scale.began_low", "Nothing overflowed: it began at {scale}."};
constexpr Template kBeganLowAndGrows{"scale.began_low_and_grows",
                                     "Nothing overflowed: it began at {scale}, and grows after each growth interval."};
constexpr Template kTooLittleToFeel{"scale.flushed_too_little",
                                    "What was flushed at it is too little for any gradient's norm to feel."};

Evidence fitting_evidence(const RunFacts& facts, const char* name, const std::optional<ExponentBounds>& bounds,
                          const std::optional<uint32_t>& tensor) {
  return {tensor ? facts.selection.key(*tensor) : RowKey{}, {{name, scale_cell(bounds), Unit::scale}}};
}

}  // namespace

Value scale_value(double scale) { return {scale, Unit::scale}; }
Value power_value(int exponent) { return scale_value(std::ldexp(1.0, exponent)); }
Value scale_value(const std::optional<ExponentBounds>& fitting) { return {scale_cell(fitting), Unit::scale}; }

Quantity skipped_steps(uint64_t count) { return {"skipped_steps", count_cell(count), Unit::count}; }

std::vector<Evidence> blame_evidence(const RunFacts& facts) {
  std::vector<Evidence> evidence;
  for (const auto& [tensor, skipped] : facts.scale().blamed())
    evidence.push_back({facts.selection.key(tensor), {findings::skipped_steps(skipped)}});
  return evidence;
}

bool began_with_fallen_scale(const RunFacts& facts, uint32_t gradient, const std::optional<RowPosition>& since) {
  const auto& fit = facts.fitting().tensors[gradient];
  const bool needs_more = fit && fit->smallest && fit->smallest->lower != ExponentBounds::kNoLower &&
                          std::ldexp(1.0, fit->smallest->lower) > facts.steps().highest_scale;
  if (!since || needs_more) return false;
  const StepTotals::ScaleThen then = facts.steps().scale_at(since->step);
  return then.scale < then.highest;
}

std::optional<bool> last_scale_is_too_large(const RunFacts& facts) {
  const std::optional<ExponentBounds>& largest = facts.fitting().run.largest;
  if (!largest) return std::nullopt;
  return std::log2(facts.steps().last.scale_before) > largest->upper;
}

Advice advice_on_floor(const RunFacts& facts) {
  if (!facts.scale().is_at_floor() || !last_scale_is_too_large(facts).value_or(false)) return {};
  Advice advice;
  advice.text = kLowerFloor({{"floor", scale_value(facts.steps().last.scale_after)},
                             {"setting", advice.lower(facts.context.settings.name(SettingKind::scale_floor))},
                             {"largest", power_value(facts.fitting().run.largest->upper)}});
  return advice;
}

Advice advice_on_steep_growth(const RunFacts& facts) {
  constexpr double kMostBackoffs = 2;  // a factor of 4, which a backoff by 2 takes two steps to undo
  const RunInfo& run = facts.context.trace.run();
  if (!run.dynamic_loss_scale || !(run.growth_factor > 1) || !(run.backoff_factor > 0 && run.backoff_factor < 1)) return {};
  const double backoffs = std::log(run.growth_factor) / -std::log(run.backoff_factor);
  if (!(backoffs > kMostBackoffs)) return {};
  const SettingNames& settings = facts.context.settings;
  Advice advice;
  advice.text = kGrowByLess({{"growth", advice.lower(settings.now(SettingKind::scale_growth_factor))},
                             {"backoffs", backoffs},
                             {"backoff", settings.now(SettingKind::scale_backoff_factor)}});
  return advice;
}

Evidence smallest_fitting_evidence(const RunFacts& facts) {
  return fitting_evidence(facts, "smallest_fitting_scale", facts.fitting().run.smallest, facts.fitting().decides_smallest);
}

Evidence largest_fitting_evidence(const RunFacts& facts) {
  return fitting_evidence(facts, "largest_fitting_scale", facts.fitting().run.largest, facts.fitting().decides_largest);
}

void tell_zone(const RunFacts& facts, size_t zone, bool is_trouble, const Advice& advice, Findings& found) {
  constexpr size_t kAbove = 2;  // of the zones
  const StepTotals& steps = facts.steps();
  const ScaleZone& all = steps.zones[zone];
  found.add(is_trouble ? Severity::warning : Severity::info,
            (zone == kAbove ? kScaleAbove : kScaleBelow)({{"limit", {StepTotals::kZones[zone], Unit::scale}},
                                                          {"steps", all.steps},
                                                          {"all", steps.count},
                                                          {"skipped", all.skipped}}),
            {{{},
              {{"steps", count_cell(all.steps), Unit::count},
               {"skipped_steps", count_cell(all.skipped), Unit::count},
               {"lowest_scale", steps.lowest_scale, Unit::scale},
               {"highest_scale", steps.highest_scale, Unit::scale}}}},
            advice);
}

void tell_low_zone(const RunFacts& facts, size_t zone, const Advice& look, Findings& found) {
  const StepTotals& steps = facts.steps();
  const ScaleZone& all = steps.zones[zone];
  const bool flushes = facts.scale().flushes();
  // What was skipped while the scale came down from its start is told elsewhere.
  const bool wastes = wastes_many(all.skipped - std::min(all.skipped, steps.leading_skips), all.steps);
  Advice advice = look;
  if (steps.skipped.empty())
    advice = (facts.context.trace.run().dynamic_loss_scale ? kBeganLowAndGrows
                                                           : kBeganLow)({{"scale", scale_value(steps.first.scale_before)}});
  else if (!flushes && !wastes && facts.fitting().run.smallest)
    advice = kTooLittleToFeel();
  tell_zone(facts, zone, flushes || wastes, advice, found);
}

}  // namespace ulpscope::findings
