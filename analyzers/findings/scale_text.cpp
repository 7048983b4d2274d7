#include "ulpscope/analyzers/findings/scale_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLowerFloor{"advice.lower_scale_floor",
                               "Lower the floor of the loss scale from {floor}{setting:brackets}: gradients overflow above "
                               "{largest}."};
constexpr Template kMostBlamed{"scale.first_nonfinite",
                               "{tensor} has the first NaN or Inf in {skipped} of {all:count skipped step}."};
constexpr Template kSteepGrowth{"scale.steep_growth",
                                "Each growth multiplies the loss scale by {growth} and takes {backoffs:.3g} backoffs to undo, one "
                                "skipped step each."};
constexpr Template kGrowByLess{"advice.grow_by_less", "Lower the growth factor to 2{growth:brackets}."};
constexpr Template kSetInterval{"advice.set_growth_interval", "Set {interval}, or cap the loss scale{cap}."};
constexpr Template kRaiseInterval{"advice.raise_growth_interval",
                                  "Raise the growth interval to 2000{interval:brackets}, or cap the loss scale{cap}."};
constexpr Template kCapAt{"advice.cap_at", " at {cap}{setting:brackets}, the largest that never overflowed"};
constexpr Template kScaleBelow{"scale.stood_below", "The loss scale was below {limit:g} in {steps} of {all:count step} ({share})."};
constexpr Template kScaleAbove{"scale.stood_above", "The loss scale was above {limit:g} in {steps} of {all:count step} ({share})."};
constexpr Template kSkippedOfThese{"scale.stood.skipped", "{skipped} of these {skipped:either was|were} skipped."};
constexpr Template kBeganLow{"scale.began_low", "No step was skipped: the loss scale started at {scale}."};
constexpr Template kBeganLowAndGrows{"scale.began_low_and_grows",
                                     "No step was skipped: the dynamic loss scale started at {scale}."};
constexpr Template kStartedLow{"scale.started_low", "It started at {scale}."};
constexpr Template kTooLittleToFeel{"scale.flushed_too_little", "Underflow at this loss scale is negligible."};

// Two backoffs by 2 undo a growth by 4.
constexpr double kMostBackoffs = 2;
// PyTorch's.
constexpr const char* kUsualInterval = "2000";

// How many undo one growth, where that is more than a usual scaler has.
std::optional<double> backoffs_of_steep_growth(const RunInfo& run) {
  if (!run.dynamic_loss_scale || !(run.growth_factor > 1) || !(run.backoff_factor > 0 && run.backoff_factor < 1))
    return std::nullopt;
  const double backoffs = std::log(run.growth_factor) / -std::log(run.backoff_factor);
  return backoffs > kMostBackoffs ? std::optional(backoffs) : std::nullopt;
}

// The largest that a step had, below the smallest of skipped steps, and at most the largest that fits, where that is known.
std::optional<double> largest_without_overflow(const RunFacts& facts) {
  const StepTotals& steps = facts.steps();
  double smallest_skipped = INFINITY;
  for (const ScaleChange& change : steps.changes)
    if (change.skipped) smallest_skipped = std::min(smallest_skipped, change.before);
  std::optional<double> largest;
  const auto add = [&](double scale) {
    if (scale < smallest_skipped && !(largest && *largest >= scale)) largest = scale;
  };
  add(steps.first.scale_before);
  add(steps.last.scale_before);
  for (const ScaleChange& change : steps.changes) add(change.before);
  const std::optional<ExponentBounds>& fitting = facts.fitting().run.largest;
  if (largest && fitting && fitting->lower == fitting->upper) largest = std::min(*largest, std::ldexp(1.0, fitting->lower));
  return largest;
}

// Where some tensor is to blame.
Sentences most_blamed(const RunFacts& facts) {
  if (facts.scale().blamed().empty()) return {};
  const ScaleJudgement::Blamed& most = facts.scale().blamed().front();
  return kMostBlamed({{"tensor", tensor_place(facts.selection, most.tensor)},
                      {"skipped", most.skipped_steps},
                      {"all", facts.steps().skipped.size()}});
}

Evidence fitting_evidence(const RunFacts& facts, const char* name, const std::optional<ExponentBounds>& bounds,
                          const std::optional<uint32_t>& tensor) {
  return {tensor ? facts.selection.key(*tensor) : RowKey{}, {{name, scale_cell(bounds), Unit::scale}}};
}

}  // namespace

Value scale_value(double scale) { return {scale, Unit::scale}; }
Value power_value(int exponent) { return scale_value(std::ldexp(1.0, exponent)); }
Value scale_value(const std::optional<ExponentBounds>& fitting) { return {scale_cell(fitting), Unit::scale}; }
Value share_value(uint64_t part, uint64_t all) { return {share(part, all), Unit::share}; }

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
  if (!largest || facts.fitting().what_if != nullptr) return std::nullopt;
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

Sentence steep_growth(const RunFacts& facts) {
  const RunInfo& run = facts.context.trace.run();
  const std::optional<double> backoffs = backoffs_of_steep_growth(run);
  return backoffs ? kSteepGrowth({{"growth", run.growth_factor}, {"backoffs", *backoffs}}) : Sentence();
}

Advice grow_by_less(const RunFacts& facts) {
  Advice advice;
  if (!backoffs_of_steep_growth(facts.context.trace.run())) return advice;
  advice.text = kGrowByLess({{"growth", advice.set(facts.context.settings.now(SettingKind::scale_growth_factor), "2")}});
  return advice;
}

Advice grow_less_often(const RunFacts& facts) {
  const SettingNames& settings = facts.context.settings;
  Advice advice;
  SettingMention interval = settings.name(SettingKind::scale_growth_interval);
  const bool is_set = settings.number(SettingKind::scale_growth_interval).has_value();
  if (is_set) interval.words.to = kUsualInterval;
  advice.set(interval, kUsualInterval);
  Value cap;
  if (const std::optional<double> largest = largest_without_overflow(facts))
    cap = kCapAt({{"cap", scale_value(*largest)},
                  {"setting", advice.set(settings.name(SettingKind::scale_cap), fmt::format("{}", *largest))}});
  else
    advice.note({.kind = SettingKind::scale_cap, .way = SettingChange::Way::lower});
  advice.text = (is_set ? kSetInterval : kRaiseInterval)({{"interval", interval}, {"cap", cap}});
  return advice;
}

Evidence smallest_fitting_evidence(const RunFacts& facts) {
  return fitting_evidence(facts, "smallest_fitting_scale", facts.fitting().run.smallest, facts.fitting().decides_smallest);
}

Evidence largest_fitting_evidence(const RunFacts& facts) {
  return fitting_evidence(facts, "largest_fitting_scale", facts.fitting().run.largest, facts.fitting().decides_largest);
}

void tell_zone(const RunFacts& facts, size_t zone, bool is_trouble, const Sentences& why, const Advice& advice, Findings& found) {
  constexpr size_t kAbove = 2;  // of the zones
  const StepTotals& steps = facts.steps();
  const ScaleZone& all = steps.zones[zone];
  Sentences title = (zone == kAbove ? kScaleAbove : kScaleBelow)({{"limit", {StepTotals::kZones[zone], Unit::scale}},
                                                                  {"steps", all.steps},
                                                                  {"all", steps.count},
                                                                  {"share", share_value(all.steps, steps.count)}});
  if (all.skipped > 0) title += kSkippedOfThese({{"skipped", all.skipped}});
  title += why;
  Extent extent;
  const bool is_above = zone == kAbove;
  if (is_above ? steps.first.scale_before > StepTotals::kZones[zone] : steps.first.scale_before < StepTotals::kZones[zone])
    extent.first_step = steps.first.step;
  found.add(is_trouble ? Severity::warning : Severity::info, std::move(title),
            {{{},
              {{"steps", count_cell(all.steps), Unit::count},
               {"skipped_steps", count_cell(all.skipped), Unit::count},
               {"lowest_scale", steps.lowest_scale, Unit::scale},
               {"highest_scale", steps.highest_scale, Unit::scale}}}},
            advice, std::move(extent));
}

void tell_low_zone(const RunFacts& facts, size_t zone, const Sentence& look, Findings& found) {
  const StepTotals& steps = facts.steps();
  const bool flushes = facts.scale().flushes();
  // Steps that are skipped for a loss of NaN are no matter of the scale, and those in which the scale came down from its start are
  // told elsewhere.
  const ScaleZone& judged = facts.scale().zones[zone];
  const bool wastes = wastes_many(judged.skipped - std::min(judged.skipped, steps.leading_skips), judged.steps);
  const bool adapts = facts.context.trace.run().dynamic_loss_scale;
  const bool is_trouble = flushes || wastes;
  if (steps.first.scale_before < StepTotals::kZones[zone] && !steps.skipped.empty()) {
    Sentences why = kStartedLow({{"scale", scale_value(steps.first.scale_before)}});
    if (judged.skipped > 0) why += most_blamed(facts);
    tell_zone(facts, zone, is_trouble, why, judged.skipped > 0 ? Advice(look) : Advice(), found);
  } else if (steps.skipped.empty()) {
    const Template& began = adapts ? kBeganLowAndGrows : kBeganLow;
    tell_zone(facts, zone, is_trouble, began({{"scale", scale_value(steps.first.scale_before)}}), {}, found);
  } else if (!is_trouble && facts.fitting().run.smallest) {
    tell_zone(facts, zone, is_trouble, kTooLittleToFeel(), {}, found);
  } else {
    tell_zone(facts, zone, is_trouble, most_blamed(facts), look, found);
  }
}

}  // namespace ulpscope::findings
