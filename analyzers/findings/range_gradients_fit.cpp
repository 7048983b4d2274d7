#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::findings {

namespace {

// "more than 0.105%", "as much as 0.01%"
std::string at_most(double lost) {
  const std::string text = cell_text(lost, Unit::share);
  return text.starts_with('<') ? "as much as " + text.substr(1) : "more than " + text;
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
  std::string formats;
};

// "FP8 and E5M2 at their quantisation scales", of which much was lost nowhere.
std::string quantized_formats(const RunFacts& facts) {
  std::set<std::string_view> formats;
  for (const auto& [i, judged, unused] : facts.ranges().tensors()) {
    const TensorInfo& tensor = facts.selection.tensor(i);
    if (!is_gradient(tensor.role) || !is_quantized(tensor.dtype)) continue;
    const RoundingBounds& seen = judged.scaled.seen;
    if (share(std::max(seen.flushed.lower, seen.overflowed.lower), seen.base) > facts.context.options.flushed_limit) return "";
    if (seen.base > 0) formats.insert(info(tensor.dtype).format->name);
  }
  std::string text;
  for (const std::string_view format : formats) text += fmt::format(", and {} at their quantisation scales", format);
  return text;
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
    const std::string format(info(tensor.dtype).format->name);
    if (fit.formats.find(format) == std::string::npos) fit.formats += (fit.formats.empty() ? "" : " and ") + format;
  }
  if (fit.judged.empty() || (fit.any_values && std::isnan(fit.least_headroom))) return std::nullopt;
  fit.formats += quantized_formats(facts);
  return fit;
}

void find_fit(const RunFacts& facts, Findings& found) {
  if (facts.gradients().lost_something() || facts.broke()) return;
  const std::optional<Fit> fit = judge_fit(facts);
  if (!fit) return;
  const auto tensors = [&](const std::vector<uint32_t>& some) {
    return count_of(facts.selection.count_outputs(some), "gradient tensor");
  };
  std::vector<Evidence> evidence;
  if (fit->any_values) evidence.push_back({facts.selection.key(fit->tightest), {{"headroom", fit->least_headroom, Unit::bits}}});
  if (fit->most_flushed > 0)
    evidence.push_back({facts.selection.key(fit->most_flushed_tensor), {{"flushed", fit->most_flushed, Unit::share}}});
  found.add(Severity::info,
            fmt::format("{} {}: of {}, none lost {} to zero, and the largest values leave {}.{}",
                        fit->skipped ? "In the steps that were not skipped the gradients fit" : "The gradients fit", fit->formats,
                        tensors(fit->judged), fit->most_flushed > 0 ? at_most(fit->most_flushed) : "anything",
                        fit->any_values ? cell_text(fit->least_headroom, Unit::bits) + " bits of headroom"
                                        : "room, how much is not known without magnitudes" +
                                              in_brackets({facts.context.settings.now(SettingKind::recording_level)}),
                        fit->unjudged.empty() ? "" : fmt::format(" {} could not be judged.", tensors(fit->unjudged))),
            std::move(evidence));
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
