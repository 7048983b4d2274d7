// What one scale a tensor could not keep. FP8 has its own scales, so that a loss scale is no remedy.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/precision_facts.h"
#include "ulpscope/analyzers/ranges.h"
#include "ulpscope/analyzers/suspects.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

// "3 tensors lost more than 1% of the nonzero elements"
std::string lost_much(const Suspects& suspects, double limit) {
  return fmt::format("{} lost more than {:g}% of the nonzero elements", count_of(suspects.size(), "tensor"), 100 * limit);
}

// As the beginning of a sentence.
std::string current_scaling(const SettingNames& settings) {
  return settings.has("fp8.recipe") ? "fp8.recipe = \"current\"" : "Current scaling";
}
// What keeps layers in BF16.
std::string types_of_layers(const SettingNames& settings) {
  return settings.has("autocast.modules") ? " (a layer's dtype, autocast.modules)" : "";
}

// `largest_excess`: the largest magnitude over what the scale left room for; 0: only counts are known.
std::string saturated_advice(bool delays_scales, double largest_excess, const SettingNames& settings) {
  if (!delays_scales) {
    return "Current scaling takes the largest magnitude to the largest FP8 value; beyond it lies a value only where NaN "
           "or infinity hide the largest magnitude, or where a directed mode rounds it up. Look for nonfinite values first.";
  }
  constexpr int kMostMargin = 4;  // beyond that, room above takes more binades than E4M3 has to give
  const int margin = largest_excess > 1 ? std::ilogb(largest_excess) + 1 : 0;
  std::string room;
  const bool named = settings.has("fp8.margin");
  const std::string end = named ? " leaves room above them; " : " leaves room above them. ";
  if (margin == 0) room = fmt::format("A larger {}", named ? "fp8.margin" : "margin") + end;
  if (margin > 0 && margin <= kMostMargin)
    room = (named ? fmt::format("fp8.margin larger by {}", margin) : fmt::format("A scale divided by 2^{}", margin)) + end;
  return fmt::format("The scale of delayed scaling follows from earlier steps. {}{} saturates nothing.", room,
                     current_scaling(settings));
}

}  // namespace

std::vector<uint32_t> RangeReport::quantized_tensors() const {
  std::vector<uint32_t> quantized;
  for (uint32_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i] && is_quantized(selection_.tensor(i).dtype)) quantized.push_back(i);
  return quantized;
}

void RangeReport::find_quantization_trouble(Report& report) const {
  find_quantized_without_scale(report);
  find_quantized_to_zero(report);
  find_quantized_beyond_range(report);
}

void RangeReport::find_quantized_without_scale(Report& report) const {
  Suspects suspects(selection_);
  for (const uint32_t i : quantized_tensors()) {
    const TensorRanges& facts = *tensors_[i];
    const RoundingBounds& first = facts.before_history.seen;
    const uint64_t lost = std::max(first.flushed.lower, first.overflowed.lower);
    if (share(lost, first.base) <= options_.flushed_limit) continue;
    suspects.add(share(lost, first.base), i,
                 {{"rows", count_cell(facts.before_history.rows), Unit::count},
                  share_of("flushed", first.flushed.lower, first.base),
                  share_of("saturated", first.overflowed.lower, first.base)});
  }
  if (suspects.empty()) return;
  report.findings.push_back(
      {"range.quantization_unscaled", Severity::info,
       lost_much(suspects, options_.flushed_limit) +
           " in the first steps of delayed scaling, whose quantisation scale is 1: there was no history yet.",
       suspects.worst(),
       fmt::format("Later steps have scales. {} has one at once; a first step with learning rate 0 fills the histories without an "
                   "update.",
                   current_scaling(context_.settings)),
       suspects.extent()});
}

// A scale is stale where the one that follows from the tensor itself would have kept what it flushed.
void RangeReport::find_quantized_to_zero(Report& report) const {
  Suspects flushed(selection_), harmless(selection_), stale(selection_);
  double worst_stale = 0;
  for (const uint32_t i : quantized_tensors()) {
    const TensorRanges& facts = *tensors_[i];
    const RoundingBounds &seen = facts.scaled.seen, &own = facts.scaled.at_own_scale;
    const double lost = share(seen.flushed.lower, seen.base);
    if (lost <= options_.flushed_limit) continue;
    std::vector<Quantity> values{share_of("flushed", seen.flushed.lower, seen.base),
                                 {"of_the_norm_at_most", facts.scaled.flush_loss.most_norm, Unit::share}};
    const bool matters = facts.scaled.flush_loss.matters();
    // Of what was lost, at most a quarter would have been at the tensor's own scale.
    const bool is_stale =
        matters && own.base > 0 && share(own.flushed.upper, own.base) <= std::max(options_.flushed_limit, 0.25 * lost);
    worst_stale = std::max(worst_stale, is_stale ? lost : 0.0);
    if (is_stale) values.push_back(share_of("flushed_at_its_own_scale_at_most", own.flushed.upper, own.base));
    (is_stale ? stale : matters ? flushed : harmless).add(lost, i, std::move(values), facts.first_flushed);
  }
  const auto find = [&](const char* code, Severity severity, const Suspects& suspects, const char* why, const std::string& advice) {
    if (suspects.empty()) return;
    report.findings.push_back({code, severity,
                               lost_much(suspects, options_.flushed_limit) + " to zero when quantised to FP8, " + why,
                               suspects.worst(), advice, suspects.extent()});
  };
  find(
      "range.quantization_stale", worst_stale > 0.5 ? Severity::error : Severity::warning, stale,
      "and more than 1% of the norm: their quantisation scale was far below what their largest magnitude asked for.",
      context_.settings.has("fp8.recipe")
          ? "A scale that follows from earlier steps (fp8.recipe = \"delayed\") is as small as the largest amax of the history, "
            "perhaps one outlier, makes it. \"current\" follows the values of each step; a shorter fp8.amax_history, or fp8.amax = "
            "\"most_recent\", forgets sooner."
          : "A scale that follows from earlier steps is as small as the largest magnitude of its history, perhaps one outlier, "
            "makes "
            "it. One from the tensor itself follows the values of each step; a shorter history forgets sooner.");
  find("range.quantization_flushed", Severity::warning, flushed, "and more than 1% of the norm.",
       "Their values spread over more binades than FP8 has at one quantisation scale a tensor; a loss scale changes nothing. "
       "Keep these layers in BF16" +
           types_of_layers(context_.settings) + ".");
  find("range.quantization_flushed", Severity::info, harmless,
       "but these are so small beside the largest that the norm hardly felt it.",
       "A few large values, perhaps one, decide a tensor's quantisation scale. Where the small ones matter keep these layers in "
       "BF16" +
           types_of_layers(context_.settings) + ".");
}

void RangeReport::find_quantized_beyond_range(Report& report) const {
  Suspects suspects(selection_);
  double most_saturated = 0, largest_excess = 0;
  for (const uint32_t i : quantized_tensors()) {
    const TensorRanges& facts = *tensors_[i];
    const RoundingBounds& seen = facts.scaled.seen;
    if (seen.overflowed.lower == 0) continue;
    const double saturated = share(seen.overflowed.lower, seen.base);
    most_saturated = std::max(most_saturated, saturated);
    largest_excess = std::max(largest_excess, facts.scaled.largest_excess);
    suspects.add(saturated, i,
                 {{"steps", count_cell(facts.scaled.overflow_kept.size() + facts.scaled.overflow_skipped.size()), Unit::count},
                  {"elements", count_cell(seen.overflowed.lower), Unit::count},
                  share_of("saturated", seen.overflowed.lower, seen.base)},
                 facts.scaled.first_overflow);
  }
  if (suspects.empty()) return;
  report.findings.push_back(
      {"range.quantization_saturated", most_saturated > options_.flushed_limit ? Severity::warning : Severity::info,
       fmt::format("{} had elements beyond the largest FP8 value at their quantisation scale, which they became.",
                   count_of(suspects.size(), "tensor")),
       suspects.worst(), saturated_advice(quantization_recipe(context_.trace) == "delayed", largest_excess, context_.settings),
       suspects.extent()});
}

}  // namespace ulpscope
