#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/tensor_place.h"
#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::findings {

namespace {

constexpr Template kGradientsFit{"range.gradients_fit",
                                 "Gradients fit {formats}{taken}: {lost} in {gradients:count gradient tensor}{room}."};
constexpr Template kQuantizedGradientsFit{"range.gradients_fit.quantized",
                                          "Gradients fit {formats} at their quantization scales: {lost} and {saturated} in "
                                          "{gradients:count gradient tensor}."};
constexpr Template kGradientsUnjudged{"range.gradients_fit.unjudged",
                                      "The backend did not count the rounding of {gradients:count other}."};
constexpr Template kInStepsTaken{"range.gradients_fit.skipped", " in the steps taken"};
constexpr Template kNoUnderflow{"range.gradients_fit.no_underflow", "no underflow"};
constexpr Template kUnderflowBelow{"range.gradients_fit.underflow_below", "underflow below {share:%}"};
constexpr Template kUnderflowAtMost{"range.gradients_fit.underflow_at_most", "underflow of at most {share}"};
constexpr Template kNoSaturation{"range.gradients_fit.no_saturation", "no saturation"};
constexpr Template kSaturationBelow{"range.gradients_fit.saturation_below", "saturation below {share:%}"};
constexpr Template kSaturationAtMost{"range.gradients_fit.saturation_at_most", "saturation of at most {share}"};
constexpr Template kHeadroomLeft{"range.gradients_fit.headroom", ", and {headroom} bits of headroom"};
constexpr Template kNoHeadroom{"range.gradients_fit.no_headroom",
                               ", but no headroom (largest value {largest:.5g}, maximum {limit:.5g})"};
constexpr Template kRoomUnknown{"range.gradients_fit.room_unknown", "; headroom is not known without magnitudes{level:brackets}"};

// A phrase: "no underflow", "underflow below 0.01%", "underflow of at most 0.105%".
Sentence at_most(double lost, const Template& none, const Template& below, const Template& most) {
  constexpr double kLeastShown = 1e-4;  // below it a share is shown as "<0.01%"
  if (!(lost > 0)) return none();
  return lost < kLeastShown ? below({{"share", {kLeastShown, Unit::share}}}) : most({{"share", {lost, Unit::share}}});
}
Sentence underflow(double lost) { return at_most(lost, kNoUnderflow, kUnderflowBelow, kUnderflowAtMost); }
Sentence saturation(double lost) { return at_most(lost, kNoSaturation, kSaturationBelow, kSaturationAtMost); }

// Whether the op's rounding makes subnormals of some of what to nearest is zero.
bool raises_small(const TensorInfo& tensor) {
  const FloatFormat& format = *info(tensor.dtype).format;
  const Rounding rounding = rounding_of(tensor), nearest{.subnormals = rounding.subnormals};
  return 2 * magnitude_thresholds(format, rounding).flushed.surely_below <
         magnitude_thresholds(format, nearest).flushed.surely_below;
}

// Gradients in FP8 at scales that follow from a history, or from themselves, of which much was lost nowhere.
struct QuantizedFit {
  std::vector<uint32_t> tensors;  // none: some lost much, or there are none
  double most_flushed = 0, most_saturated = 0;
  uint32_t most_flushed_tensor = 0, most_saturated_tensor = 0;
};

QuantizedFit judge_quantized(const RunFacts& facts) {
  QuantizedFit fit;
  for (const auto& [i, judged, unused] : facts.ranges().tensors()) {
    const TensorInfo& tensor = facts.selection.tensor(i);
    if (!is_gradient(tensor.role) || !is_quantized(tensor.dtype)) continue;
    const RoundingBounds& seen = judged.scaled.seen;
    const double flushed = share(seen.flushed.lower, seen.base), saturated = share(seen.overflowed.lower, seen.base);
    if (std::max(flushed, saturated) > facts.context.options.flushed_limit) return {};
    if (seen.base > 0) fit.tensors.push_back(i);
    if (flushed > fit.most_flushed) std::tie(fit.most_flushed, fit.most_flushed_tensor) = std::tuple(flushed, i);
    if (saturated > fit.most_saturated) std::tie(fit.most_saturated, fit.most_saturated_tensor) = std::tuple(saturated, i);
  }
  return fit;
}

// What is said of the gradients of a run of which none lost anything.
struct Fit {
  std::vector<uint32_t> judged, unjudged;
  double most_flushed = 0, least_headroom = kUnknown;
  uint32_t most_flushed_tensor = 0, tightest = 0;
  bool skipped = false, any_values = false;
};

// Nothing where some gradient was lost after all: infinite in a step that was not skipped, or at a limit that nothing tells of.
std::optional<Fit> judge_fit(const RunFacts& facts) {
  Fit fit;
  for (const auto& [i, judged, unused] : facts.ranges().tensors()) {
    const TensorInfo& tensor = facts.selection.tensor(i);
    const RangeTotals& totals = judged.totals;
    if (!is_gradient(tensor.role)) continue;
    if (facts.ranges().nonfinite(i).rows > 0 || totals.saturated > 0) return std::nullopt;
    if (!is_plainly_narrow(tensor.dtype)) continue;
    if (totals.rows_seen == 0 || totals.rows_unseen > 0) {
      if (totals.rows_unseen > 0) fit.unjudged.push_back(i);
      continue;
    }
    // Without magnitudes: subnormals, in a mode that makes such of what to nearest is zero.
    if (raises_small(tensor) && 2 * totals.seen.subnormal.lower > totals.seen.base) return std::nullopt;
    fit.judged.push_back(i);
    fit.skipped = fit.skipped || !judged.scaled.overflow_skipped.empty();
    fit.any_values = fit.any_values || totals.rows_with_values > 0;
    const double flushed = share(judged.used.flushed.lower, judged.used.base);
    if (flushed > fit.most_flushed) {
      fit.most_flushed = flushed;
      fit.most_flushed_tensor = i;
    }
    if (!std::isnan(judged.kept_headroom) && !(judged.kept_headroom >= fit.least_headroom)) {
      fit.least_headroom = judged.kept_headroom;
      fit.tightest = i;
    }
  }
  // A few that fit say nothing of a run whose other roundings nobody counted.
  if (fit.judged.size() < fit.unjudged.size()) return std::nullopt;
  if (fit.judged.empty() || (fit.any_values && std::isnan(fit.least_headroom))) return std::nullopt;
  return fit;
}

bool is_in_fp8(const RunFacts& facts) {
  return std::any_of(facts.ranges().tensors().begin(), facts.ranges().tensors().end(),
                     [&](const RangeJudgement::Tensor& each) { return is_quantized(facts.selection.tensor(each.index).dtype); });
}

// How far the largest value is from the format's limit. In FP8 runs that limits no gradient in a type with the range of FP32.
Sentence room_of(const RunFacts& facts, const Fit& fit) {
  constexpr double kLeastShown = 0.05;  // bits, below which a tenth is not shown
  const TensorInfo& tightest = facts.selection.tensor(fit.any_values ? fit.tightest : fit.judged.front());
  if (is_in_fp8(facts) && has_range_of_fp32(tightest.dtype)) return {};
  if (!fit.any_values) return kRoomUnknown({{"level", facts.context.settings.now(SettingKind::recording_level)}});
  if (std::isinf(fit.least_headroom)) return {};  // all are zero
  if (fit.least_headroom >= kLeastShown) return kHeadroomLeft({{"headroom", {fit.least_headroom, Unit::bits}}});
  const double limit = info(tightest.dtype).format->largest_finite();
  return kNoHeadroom({{"largest", limit * std::exp2(-fit.least_headroom)}, {"limit", limit}});
}

void find_fit(const RunFacts& facts, Findings& found) {
  if (facts.gradients().lost_something() || facts.broke()) return;
  const std::optional<Fit> fit = judge_fit(facts);
  if (!fit) return;
  Sentences title;
  std::vector<Evidence> evidence;
  const auto add_share = [&](uint32_t tensor, const char* name, double share_lost) {
    if (share_lost > 0) evidence.push_back({facts.selection.key(tensor), {{name, share_lost, Unit::share}}});
  };
  if (const QuantizedFit quantized = judge_quantized(facts); !quantized.tensors.empty()) {
    title += kQuantizedGradientsFit({{"formats", formats_of(facts, quantized.tensors)},
                                     {"lost", underflow(quantized.most_flushed)},
                                     {"saturated", saturation(quantized.most_saturated)},
                                     {"gradients", facts.selection.count_outputs(quantized.tensors)}});
    add_share(quantized.most_flushed_tensor, "flushed", quantized.most_flushed);
    add_share(quantized.most_saturated_tensor, "saturated", quantized.most_saturated);
  }
  const Sentence room = room_of(facts, *fit);
  title += kGradientsFit({{"formats", formats_of(facts, fit->judged)},
                          {"taken", fit->skipped ? kInStepsTaken() : Sentence()},
                          {"lost", underflow(fit->most_flushed)},
                          {"gradients", facts.selection.count_outputs(fit->judged)},
                          {"room", room}});
  if (fit->any_values && !room.empty())
    evidence.push_back({facts.selection.key(fit->tightest), {{"headroom", fit->least_headroom, Unit::bits}}});
  add_share(fit->most_flushed_tensor, "flushed", fit->most_flushed);
  if (!fit->unjudged.empty()) title += kGradientsUnjudged({{"gradients", facts.selection.count_outputs(fit->unjudged)}});
  found.add(Severity::info, std::move(title), std::move(evidence));
}

}  // namespace

extern constinit const FindingRule range_gradients_fit{
    .code = "range.gradients_fit",
    .part = Part::ranges,
    .raised = "No gradient lost more than 1% of its nonzero elements to underflow, and none overflowed in a step that was taken.",
    .meaning = "The gradients fit their formats.",
    .is_about_run = false,
    .shown_by = "experiments/failures/scale_recovers.toml",
    .find = find_fit,
};

}  // namespace ulpscope::findings
