#include "ulpscope/analyzers/tables/scaling_replay.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace ulpscope {

namespace {

// Ways to go on that are followed side by side.
constexpr size_t kMostWays = 4096;
// Of how many binades around a dynamic scale's beginning what is flushed is known.
constexpr int kReach = 32;

int exponent_of(double power_of_two) { return std::ilogb(power_of_two); }

}  // namespace

std::vector<int> replayed_exponents(std::span<const Scaling> scalings) {
  if (scalings.empty()) return {};
  int first = kMostScaleExponent, last = kLeastScaleExponent;
  for (const auto& [name, rule] : scalings) {
    const int begin = exponent_of(rule.initial), reach = rule.dynamic ? kReach : 0;
    first = std::min(first, std::max(begin - reach, kLeastScaleExponent));
    last = std::max(last, std::min(begin + reach, kMostScaleExponent));
  }
  std::vector<int> exponents;
  for (int k = first; k <= last; ++k) exponents.push_back(k);
  return exponents;
}

namespace {

// Where a scaler may stand, and what may have happened on the way there.
struct Way {
  Between<uint64_t> skipped;
  Between<double> lowest, highest;
  CountBounds flushed;

  void include(const Way& other) {
    skipped.include(other.skipped);
    lowest.include(other.lowest);
    highest.include(other.highest);
    flushed = {std::min(flushed.lower, other.flushed.lower), std::max(flushed.upper, other.flushed.upper)};
  }
};
using Stand = std::tuple<double, int64_t, int64_t, double>;  // a LossScaleState

// More is flushed at a smaller scale, so that beyond those that are known one bound is.
CountBounds flushed_at(int exponent, const StepGradients& step, size_t format, std::span<const int> exponents) {
  const CountBounds* const counts = step.flushed.data() + format * exponents.size();
  if (exponent < exponents.front()) return {counts[0].lower, step.base};
  if (exponent > exponents.back()) return {0, counts[exponents.size() - 1].upper};
  return counts[exponent - exponents.front()];
}

}  // namespace

ReplayedScaling replay_scaling(const LossScaleRule& rule, std::span<const StepGradients> steps, size_t format,
                               std::span<const int> exponents) {
  ReplayedScaling result;
  result.steps = steps.size();
  result.is_known = !steps.empty();
  const LossScaleState begin = initial_state(rule);
  const auto stand_of = [](const LossScaleState& state) {
    return Stand{state.scale, state.growth_tracker, state.hysteresis_left, state.next_scale};
  };
  std::map<Stand, Way> ways{{stand_of(begin), {{}, {begin.scale, begin.scale}, {begin.scale, begin.scale}, {}}}};
  for (const StepGradients& step : steps) {
    Between<double> scale{std::get<0>(ways.begin()->first), std::get<0>(ways.rbegin()->first)};
    const bool changes =
        result.scales.empty() || result.scales.back().least != scale.least || result.scales.back().most != scale.most;
    if (changes) {
      result.changes.push_back(step.step);
      result.scales.push_back(scale);
    }
    std::map<Stand, Way> next;
    bool undecided = false;
    for (const auto& [stand, way] : ways) {
      const auto& [at, tracker, hysteresis, next_scale] = stand;
      const int exponent = exponent_of(at);
      const ExponentBounds& fits = step.largest[format];
      const bool may_fit = exponent <= fits.upper, may_overflow = exponent > fits.lower;
      undecided = undecided || (may_fit && may_overflow);
      for (const bool overflows : {false, true}) {
        if (overflows ? !may_overflow : !may_fit) continue;
        LossScaleState state{at, tracker, hysteresis, next_scale};
        update(rule, state, overflows);
        Way then = way;
        then.skipped = {way.skipped.least + overflows, way.skipped.most + overflows};
        then.lowest = {std::min(way.lowest.least, state.scale), std::min(way.lowest.most, state.scale)};
        then.highest = {std::max(way.highest.least, state.scale), std::max(way.highest.most, state.scale)};
        then.flushed += flushed_at(exponent, step, format, exponents);
        const auto [found, is_new] = next.try_emplace(stand_of(state), then);
        if (!is_new) found->second.include(then);
      }
    }
    result.undecided += undecided;
    result.base += step.base;
    ways = std::move(next);
    if (ways.size() > kMostWays) {
      result.is_known = false;
      return result;
    }
  }
  Way all = ways.begin()->second;
  for (const auto& [stand, way] : ways) all.include(way);
  result.skipped = all.skipped;
  result.lowest = all.lowest;
  result.highest = all.highest;
  result.flushed = all.flushed;
  result.final = {std::get<0>(ways.begin()->first), std::get<0>(ways.rbegin()->first)};
  return result;
}

}  // namespace ulpscope
