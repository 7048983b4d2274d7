#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::findings {

namespace {

constexpr Template kGradientsFit{
    "range.gradients_fit",
    "The gradients fit {formats}{quantized}: of {gradients:count gradient tensor}, none lost {lost} to zero, and the largest "
    "values leave {room}."};
constexpr Template kTakenGradientsFit{"range.gradients_fit.skipped",
                                      "In the steps that were not skipped the gradients fit {formats}{quantized}: of "
                                      "{gradients:count gradient tensor}, none lost {lost} to zero, and the largest values leave "
                                      "{room}."};
constexpr Template kGradientsUnjudged{"range.gradients_fit.unjudged", "{gradients:count gradient tensor} could not be judged."};
constexpr Template kQuantizedGradientsFit{"range.gradients_fit.quantized", ", {formats:commas}"};
constexpr Template kAtQuantisationScales{"range.gradients_fit.at_own_scales", "and {format} at their quantisation scales"};
constexpr Template kLostAnything{"range.gradients_fit.lost_anything", "anything"};
constexpr Template kLostAsMuchAs{"range.gradients_fit.lost_as_much_as", "as much as {share:%}"};
constexpr Template kLostMoreThan{"range.gradients_fit.lost_more_than", "more than {share}"};
constexpr Template kHeadroomLeft{"range.gradients_fit.headroom", "{headroom} bits of headroom"};
constexpr Template kRoomUnknown{"range.gradients_fit.room_unknown",
                                "room, how much is not known without magnitudes{level:brackets}"};

// A phrase: "anything", "as much as 0.01%", "more than 0.105%".
Sentence at_most(double lost) {
  constexpr double kLeastShown = 1e-4;  // below it a share is shown as "<0.01%"
  if (!(lost > 0)) return kLostAnything();
  return lost < kLeastShown ? kLostAsMuchAs({{"share", {kLeastShown, Unit::share}}})
                            : kLostMoreThan({{"share", {lost, Unit::share}}});
}

// Whether the op's rounding makes subnormals of some of what to nearest is zero.
bool raises_small(const TensorInfo& tensor) {
  const FloatFormat& format = *info(tensor.dtype).format;
  const Rounding rounding = rounding_of(tensor), nearest{.subnormals = rounding.subnormals};
  return 2 * magnitude_thresholds(format, rounding).flushed.surely_below <
         magnitude_thresholds(format, nearest).flushed.surely_below;
}

// What is said of the gradients of a run of which none lost anything.
struct Fit {
  std::vector<uint32_t> judged, unjudged;
  double most_flushed = 0, least_headroom = kUnknown;
  uint32_t most_flushed_tensor = 0, tightest = 0;
  bool skipped = false, any_values = false;
  std::vector<std::string_view> formats;
  Sentence quantized;  // quantized_formats
};

// A phrase: ", and e4m3 at their quantisation scales", of which much was lost nowhere; or nothing.
Sentence quantized_formats(const RunFacts& facts) {
  std::set<std::string_view> formats;
  for (const auto& [i, judged, unused] : facts.ranges().tensors()) {
    const TensorInfo& tensor = facts.selection.tensor(i);
    if (!is_gradient(tensor.role) || !is_quantized(tensor.dtype)) continue;
    const RoundingBounds& seen = judged.scaled.seen;
    if (share(std::max(seen.flushed.lower, seen.overflowed.lower), seen.base) > facts.context.options.flushed_limit) return {};
    if (seen.base > 0) formats.insert(info(tensor.dtype).format->name);
  }
  if (formats.empty()) return {};
  Value::List phrases;
  for (const std::string_view format : formats)
    phrases.push_back(kAtQuantisationScales({{"format", Name{NameKind::format, upper_case(format)}}}));
  return kQuantizedGradientsFit({{"formats", Value::list(std::move(phrases))}});
}

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
    const std::string_view format = info(tensor.dtype).format->name;
    if (std::find(fit.formats.begin(), fit.formats.end(), format) == fit.formats.end()) fit.formats.push_back(format);
  }
  // A few that fit say nothing of a run whose other roundings nobody counted.
  if (fit.judged.size() < fit.unjudged.size()) return std::nullopt;
  if (fit.judged.empty() || (fit.any_values && std::isnan(fit.least_headroom))) return std::nullopt;
  fit.quantized = quantized_formats(facts);
  return fit;
}

void find_fit(const RunFacts& facts, Findings& found) {
  if (facts.gradients().lost_something() || facts.broke()) return;
  const std::optional<Fit> fit = judge_fit(facts);
  if (!fit) return;
  std::vector<Evidence> evidence;
  if (fit->any_values) evidence.push_back({facts.selection.key(fit->tightest), {{"headroom", fit->least_headroom, Unit::bits}}});
  if (fit->most_flushed > 0)
    evidence.push_back({facts.selection.key(fit->most_flushed_tensor), {{"flushed", fit->most_flushed, Unit::share}}});
  Value::List formats;
  for (const std::string_view format : fit->formats) formats.push_back(Name{NameKind::format, upper_case(format)});
  Sentences title = (fit->skipped ? kTakenGradientsFit : kGradientsFit)(
      {{"formats", Value::list(std::move(formats))},
       {"quantized", fit->quantized},
       {"gradients", facts.selection.count_outputs(fit->judged)},
       {"lost", at_most(fit->most_flushed)},
       {"room", fit->any_values ? kHeadroomLeft({{"headroom", {fit->least_headroom, Unit::bits}}})
                                : kRoomUnknown({{"level", facts.context.settings.now(SettingKind::recording_level)}})}});
  if (!fit->unjudged.empty()) title += kGradientsUnjudged({{"gradients", facts.selection.count_outputs(fit->unjudged)}});
  found.add(Severity::info, std::move(title), std::move(evidence));
}

}  // namespace

extern constinit const FindingRule range_gradients_fit{
    .code = "range.gradients_fit",
    .part = Part::ranges,
    .raised = "No gradient lost anything that matters, and none overflowed.",
    .meaning = "The format fits.",
    .is_about_run = false,
    .shown_by = "experiments/failures/scale_recovers.toml",
    .find = find_fit,
};

}  // namespace ulpscope::findings
