// What roundings did to gradients, and which loss scale or format would help.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ulpscope/analyzers/precision_facts.h"
#include "ulpscope/analyzers/ranges.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/suspects.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

namespace {

std::string gradient_tensors(size_t n) { return count_of(n, "gradient tensor"); }

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

}  // namespace

bool RangeReport::find_vanished(Report& report) const {
  Suspects suspects(selection_);
  uint64_t vanished = 0, most = 0;
  uint32_t worst = 0;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i] || tensors_[i]->vanished_steps == 0) continue;
    const TensorRanges& facts = *tensors_[i];
    vanished += facts.vanished_steps;
    if (facts.vanished_steps > most) {
      most = facts.vanished_steps;
      worst = i;
    }
    std::vector<Quantity> values{{"backward_passes", count_cell(facts.vanished_steps), Unit::count},
                                 share_of("flushed", facts.totals.seen.flushed.lower, facts.totals.seen.base)};
    if (facts.totals.recorded.largest > 0) {
      values.push_back({"largest", std::log2(facts.totals.recorded.largest), Unit::exponent});
      const FloatFormat& format = *info(selection_.tensor(i).dtype).format;
      const double flushed = magnitude_thresholds(format, rounding_of(selection_.tensor(i))).flushed.perhaps_below;
      values.push_back({"flushed_up_to", std::log2(flushed), Unit::exponent});
    }
    if (facts.vanished_after) values.push_back({"made_after", selection_.name(*facts.vanished_after)});
    suspects.add(static_cast<double>(facts.vanished_steps), i, std::move(values), facts.first_vanished);
  }
  if (suspects.empty()) return false;
  const std::string name = selection_.name(worst);
  report.findings.push_back(
      {"range.gradients_vanish",
       2 * vanished >= judged_.backward_passes    ? Severity::error
       : 20 * vanished >= judged_.backward_passes ? Severity::warning
                                                  : Severity::info,
       fmt::format("In {} of {} backward passes every nonzero gradient was flushed to zero at the first rounding, in {}: nothing "
                   "behind it learns.",
                   vanished, judged_.backward_passes, name),
       suspects.worst(),
       fmt::format(
           "{}, or run in BF16, whose range is that of FP32. Which scale fits, a recording in FP32 tells (`--precision fp32`, "
           "then `ulpscope scale`): here all that is computed from this rounding is zero.",
           scaling_advice(precision_facts(context_.trace, steps_), context_.settings)),
       suspects.extent()});
  return true;
}

// What can be done about gradients that flushing hurts: which loss scale do they need, and do the others leave room for it?
std::string RangeReport::flushed_advice(const std::vector<uint32_t>& flushed, uint32_t worst) const {
  std::optional<ExponentBounds> smallest;
  bool is_hidden = false, has_values = true;
  bool is_sure = true;  // signs and random bits have no part in what is flushed, so that the lower bound means something
  for (const uint32_t i : flushed) {
    if (const auto& fit = fitting_.tensors[i]; fit && fit->smallest) raise(smallest, *fit->smallest);
    is_hidden = is_hidden || (fitting_.tensors[i] && fitting_.tensors[i]->hidden);
    has_values = has_values && tensors_[i]->totals.rows_with_values > 0;
    const TensorInfo& tensor = selection_.tensor(i);
    const MagnitudeThreshold zero = magnitude_thresholds(*info(tensor.dtype).format, rounding_of(tensor)).flushed;
    is_sure = is_sure && zero.surely_below == zero.perhaps_below;
  }
  const bool hidden = fitting_.run.hidden;
  const std::optional<ExponentBounds>& largest = fitting_.run.largest;
  const bool limited = largest && largest->upper != ExponentBounds::kNoUpper;
  const auto text = [](const std::optional<ExponentBounds>& bounds) { return cell_text(scale_cell(bounds), Unit::scale); };
  const auto power = [&](int exponent) { return text(ExponentBounds{exponent, exponent}); };
  const PrecisionFacts precision = precision_facts(context_.trace, steps_);
  const std::string scaling = precision.scales_loss ? "" : scaling_advice(precision, context_.settings) + ". ";
  std::string advice;
  if (!smallest || (is_sure && smallest->lower == ExponentBounds::kNoLower)) {
    advice =
        is_hidden
            ? "Which loss scales fit is not known: they were computed from gradients that had been flushed. A recording in FP32 "
              "tells (`--precision fp32`, then `ulpscope scale`)."
        : has_values ? "Which loss scales fit is not known: the magnitudes before the rounding were not seen."
                     : "Which loss scales fit is not known; magnitudes before the rounding (`--record stats`) tell.";
  } else if (limited && smallest->lower > largest->upper) {
    advice = fmt::format(
        "No single loss scale keeps them: it would have to be at least {}, and the largest gradients overflow above {}.",
        power(smallest->lower), power(largest->upper));
  } else {
    if (hidden || smallest->upper == ExponentBounds::kNoUpper) {
      advice =
          is_sure ? fmt::format("They need a loss scale of at least {}", power(smallest->lower)) : "They need a larger loss scale";
    } else {
      advice = fmt::format("A loss scale of {} keeps them", power(smallest->upper));
    }
    if (hidden) {
      advice +=
          ", and what was computed from them may need a larger one: a recording in FP32 tells (`--precision fp32`, then "
          "`ulpscope scale`)";
    }
    if (limited) advice += fmt::format("; the largest that fits is {}", text(largest));
    advice += '.';
  }
  advice += " BF16 has the range";
  // Without autocast its settings change nothing.
  if (const OpInfo* served =
          precision_facts(context_.trace, steps_).casts_weights ? context_.graph.served_by(selection_.op(worst)) : nullptr) {
    const bool is_op = served->module.empty();
    const char* const key = is_op ? "autocast.ops" : "autocast.modules";
    advice += fmt::format(", and so has FP32 for the {} {}{}", is_op ? "op" : "module", is_op ? served->name : served->module,
                          in_brackets({context_.settings.has(key) ? key : ""}));
  }
  return scaling + advice + ".";
}

bool RangeReport::find_gradient_trouble(Report& report) const {
  Suspects flushed(selection_), harmless(selection_), kept(selection_), skipped(selection_);
  StepSet kept_steps;
  double worst_share = 0, most_norm = 0;
  uint32_t worst = 0;
  std::vector<uint32_t> felt;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i]) continue;
    const TensorInfo& tensor = selection_.tensor(i);
    if (!is_gradient(tensor.role) || !is_plainly_narrow(tensor.dtype)) continue;
    const TensorRanges& facts = *tensors_[i];
    const RoundingBounds& seen = facts.totals.seen;
    if (share(seen.flushed.lower, seen.base) > options_.flushed_limit) {
      const double lost = share(seen.flushed.lower, seen.base);
      const bool matters = facts.scaled.flush_loss.matters();
      std::vector<Quantity> values{share_of("flushed", seen.flushed.lower, seen.base),
                                   {"of_the_norm_at_most", facts.scaled.flush_loss.most_norm, Unit::share}};
      const OpInfo* served = selection_.op(i).module.empty() ? context_.graph.served_by(selection_.op(i)) : nullptr;
      if (served) values.push_back({"gradient_of", served->module + (served->module.empty() ? "" : " ") + served->name});
      (matters ? flushed : harmless).add(lost, i, std::move(values), facts.first_flushed);
      if (matters) felt.push_back(i);
      if (matters) most_norm = std::max(most_norm, facts.scaled.flush_loss.most_norm);
      if (matters && lost > worst_share) {
        worst_share = lost;
        worst = i;
      }
    }
    const std::vector<Quantity> overflow{
        {"steps", count_cell(facts.scaled.overflow_kept.size() + facts.scaled.overflow_skipped.size()), Unit::count},
        {"elements", count_cell(seen.overflowed.lower - facts.totals.saturated), Unit::count}};
    if (!facts.scaled.overflow_kept.empty()) {
      kept.add(static_cast<double>(facts.scaled.overflow_kept.size()), i, overflow, facts.scaled.first_overflow);
      kept_steps.add(facts.scaled.overflow_kept);
    } else if (!facts.scaled.overflow_skipped.empty()) {
      skipped.add(static_cast<double>(facts.scaled.overflow_skipped.size()), i, overflow, facts.scaled.first_overflow);
    }
  }
  if (!flushed.empty()) {
    report.findings.push_back(
        {"range.gradients_flushed", Severity::warning,
         fmt::format("{} lost more than {:g}% of the nonzero elements to zero when rounded, and up to {} of the norm.",
                     gradient_tensors(flushed.size()), 100 * options_.flushed_limit, cell_text(most_norm, Unit::share)),
         flushed.worst(), flushed_advice(felt, worst), flushed.extent()});
  }
  if (!harmless.empty()) {
    report.findings.push_back(
        {"range.gradients_flushed", Severity::info,
         fmt::format("{} lost more than {:g}% of the nonzero elements to zero when rounded, but these are so small that the norm "
                     "hardly felt it.",
                     gradient_tensors(harmless.size()), 100 * options_.flushed_limit),
         harmless.worst(), "", harmless.extent()});
  }
  if (!kept.empty()) find_overflow_kept(report, kept, kept_steps);
  if (!skipped.empty()) {
    report.findings.push_back(
        {"range.gradients_overflow", Severity::info,
         fmt::format("{} overflowed, only in steps that the scaler skipped.", gradient_tensors(skipped.size())), skipped.worst(),
         "", skipped.extent()});
  }
  return !flushed.empty() || !harmless.empty() || !kept.empty();
}

// Steps that were taken with infinite gradients: what stands between these and the weights decides what became of them.
void RangeReport::find_overflow_kept(Report& report, const Suspects& kept, const StepSet& steps) const {
  const std::string title = fmt::format("{} overflowed in {} that {} not skipped", gradient_tensors(kept.size()),
                                        count_of(steps.size(), "step"), steps.size() == 1 ? "was" : "were");
  const std::string advice = "A dynamic loss scale skips such steps" +
                             in_brackets({context_.settings.switched(SettingKind::scale_dynamic, true)}) +
                             "; a lower one keeps the gradients finite.";
  if (reached_weights()) {
    report.findings.push_back({"range.gradients_overflow", Severity::error, title + ", and infinities reached the weights.",
                               kept.worst(), advice, kept.extent()});
    return;
  }
  const std::vector<OpInfo>& ops = context_.trace.ops();
  const bool clipped = std::any_of(ops.begin(), ops.end(),
                                   [](const OpInfo& op) { return op.phase == Phase::scaling && op.function == OpFunction::clamp; });
  if (clipped) {
    report.findings.push_back(
        {"range.clipping_hides_infinity", Severity::warning,
         title +
             ": clipping by value made finite numbers of the infinities, whatever the gradients were, and the updates took them.",
         kept.worst(), advice, kept.extent()});
    return;
  }
  report.findings.push_back({"range.gradients_overflow", Severity::warning,
                             title + (is_filtered() ? "." : "; no weight became infinite."), kept.worst(), advice, kept.extent()});
}

// Numbers that to nearest would be zero, and that the mode makes the smallest subnormal, which is up to any factor too large.
bool RangeReport::find_raised(Report& report) const {
  Suspects suspects(selection_);
  double most = 0;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i] || !is_gradient(selection_.tensor(i).role) || !is_plainly_narrow(selection_.tensor(i).dtype)) continue;
    const RangeTotals& totals = tensors_[i]->totals;
    const CountBounds raised = tensors_[i]->raised;
    const double how_many = share(raised.lower, totals.seen.base);
    if (how_many <= options_.flushed_limit) continue;
    most = std::max(most, how_many);
    const FloatFormat& format = *info(selection_.tensor(i).dtype).format;
    suspects.add(how_many, i,
                 {{"raised", share_cell(raised, totals.seen.base), Unit::share},
                  {"rounding", std::string(name_of(selection_.tensor(i).rounding))},
                  {"smallest_subnormal", std::log2(format.smallest_positive()), Unit::exponent}});
  }
  if (suspects.empty()) return false;
  report.findings.push_back(
      {"range.gradients_raised", 2 * most > 1 ? Severity::warning : Severity::info,
       fmt::format(
           "{} had more than {:g}% of the nonzero elements below half the smallest subnormal number, which the rounding mode "
           "raised to it: they are larger than they were computed, and in mode sr right on average only.",
           gradient_tensors(suspects.size()), 100 * options_.flushed_limit),
       suspects.worst(),
       scaling_advice(precision_facts(context_.trace, steps_), context_.settings) +
           ", so that gradients are normal numbers (a recording with `--precision fp32`, then `ulpscope scale`, tells which scale "
           "fits), or use BF16. To nearest these elements are zero.",
       suspects.extent()});
  return true;
}

// Subnormals that ops read as zero: what flushing takes where no rounding does.
bool RangeReport::find_inputs_flushed(Report& report) const {
  Suspects backward(selection_), forward(selection_);
  std::vector<int> slot_of(context_.trace.ops().size(), -1);  // outputs of one op share the counts
  uint64_t starved = 0, rows = 0;
  const std::optional<ExponentBounds>& smallest = fitting_.run.smallest;
  bool in_force = false;  // of some rows that do not fit a loss scale is known
  int least = smallest ? smallest->lower : ExponentBounds::kNoLower;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i]) continue;
    const TensorInfo& output = selection_.tensor(i);
    if (slot_of[output.op] >= 0 && slot_of[output.op] != output.slot) continue;
    slot_of[output.op] = output.slot;
    const auto& [input, starved_rows] = std::pair(tensors_[i]->input, tensors_[i]->starved_rows);
    if (share(input.flushed, input.nonzero) <= options_.flushed_limit) continue;
    const bool is_backward = selection_.op(i).phase == Phase::backward;
    (is_backward ? backward : forward)
        .add(share(input.flushed, input.nonzero), i,
             {share_of("read_as_zero", input.flushed, input.nonzero),
              {"rows_with_all_of_an_input", count_cell(starved_rows), Unit::count}});
    if (!is_backward) continue;
    starved += starved_rows;
    rows += tensors_[i]->totals.rows;
    // At the least scale of its rows the share is no smaller.
    if (const double scale = tensors_[i]->least_scale; scale > 0 && std::isfinite(scale)) {
      least = std::max(least, std::ilogb(scale) + 1);
      in_force = in_force || scale != 1;
    }
  }
  const std::string which = fmt::format("more than {:g}% of the nonzero elements of an input", 100 * options_.flushed_limit);
  if (!backward.empty()) {
    const SettingNames& settings = context_.settings;
    const bool known = in_force || (smallest && smallest->lower != ExponentBounds::kNoLower);
    report.findings.push_back(
        {"range.inputs_flushed", 2 * starved >= rows ? Severity::error : Severity::warning,
         fmt::format(
             "{} of the backward pass read {} as zero: they were subnormal, and the arithmetic of the run flushes those. In {} "
             "of {} of their rows all of an input was.",
             count_of(backward.size(), "op"), which, starved, rows),
         backward.worst(),
         fmt::format(
             "{}, for which the loss scale has to lift gradients above the smallest normal number{}; no scale lifts an activation "
             "or a weight. BF16 has the range of FP32, subnormals too. Without flushing{} they are read as they are.",
             scaling_advice(precision_facts(context_.trace, steps_), context_.settings),
             known ? fmt::format(": here to at least {}", cell_text(std::ldexp(1.0, least), Unit::scale)) : "",
             in_brackets({settings.has("arithmetic.subnormals") ? "arithmetic.subnormals = \"keep\"" : "",
                          settings.has("arithmetic.accumulate") ? "an arithmetic.accumulate other than mi200" : ""})),
         backward.extent()});
  }
  if (!forward.empty()) {
    report.findings.push_back(
        {"range.inputs_flushed", Severity::info,
         fmt::format("{} outside the backward pass read {} as zero: they were subnormal.", count_of(forward.size(), "op"), which),
         forward.worst(), "", forward.extent()});
  }
  return !backward.empty();
}

void RangeReport::find_what_if_trouble(Report& report) const {
  Suspects suspects(selection_);
  std::vector<uint32_t> judged;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i] || !is_computed_gradient(selection_.tensor(i).role)) continue;
    if (is_narrow(selection_.tensor(i).dtype)) return;  // the roundings themselves were recorded
    const RangeTotals& totals = tensors_[i]->totals;
    if (totals.rows == 0 || selection_.tensor(i).stays_wide) continue;
    const WhatIfTotals& what_if = totals.what_if[facts_.what_if_index(binary16)].as_true;
    if (what_if.rows == 0) continue;
    // A sum that is zero but for rounding, as that of a bias before batch_norm, asks for nothing.
    if (tensors_[i]->noise_rows == totals.rows) continue;
    judged.push_back(i);
    const RoundingBounds &rounded = what_if.bounds, &read = tensors_[i]->read_in_fp16;
    const double by_rounding = share(rounded.flushed.lower, rounded.base), by_reading = share(read.flushed.lower, read.base);
    if (std::max(by_rounding, by_reading) <= options_.flushed_limit) continue;
    std::vector<Quantity> values{{"flushed_in_fp16", share_cell(rounded.flushed, rounded.base), Unit::share}};
    if (read.base > 0) values.push_back({"flushed_or_read_as_zero", share_cell(read.flushed, read.base), Unit::share});
    suspects.add(std::max(by_rounding, by_reading), i, std::move(values));
  }
  if (suspects.empty()) return;
  report.findings.push_back(
      {"range.gradients_would_flush", Severity::info,
       fmt::format("In FP16 without a loss scale, {} of {} would lose more than {:g}% of the nonzero elements "
                   "to zero.",
                   suspects.size(), gradient_tensors(selection_.count_outputs(judged)), 100 * options_.flushed_limit),
       suspects.worst(), "FP16 needs a loss scale here (`ulpscope scale` shows which); BF16 does not."});
}

void RangeReport::find_gradients_fit(Report& report) const {
  std::vector<uint32_t> judged, unjudged;
  double most_flushed = 0, least_headroom = kUnknown;
  uint32_t tightest = 0, most_flushed_tensor = 0;
  bool skipped = false, any_values = false;
  std::string formats;
  std::set<std::string_view> quantized;
  bool lost_quantized = false;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i] || !is_gradient(selection_.tensor(i).role)) continue;
    if (nonfinite(i).rows > 0) return;  // in a step that was not skipped
    if (tensors_[i]->totals.saturated > 0) return;
    const RangeTotals& totals = tensors_[i]->totals;
    if (is_quantized(selection_.tensor(i).dtype)) {
      const RoundingBounds& seen = tensors_[i]->scaled.seen;
      lost_quantized =
          lost_quantized || share(std::max(seen.flushed.lower, seen.overflowed.lower), seen.base) > options_.flushed_limit;
      if (seen.base > 0) quantized.insert(info(selection_.tensor(i).dtype).format->name);
    }
    if (!is_plainly_narrow(selection_.tensor(i).dtype)) continue;
    if (totals.rows_seen == 0 || totals.rows_unseen > 0) {
      if (totals.rows_unseen > 0) unjudged.push_back(i);
      continue;
    }
    // Without magnitudes: subnormals, in a mode that makes such of what to nearest is zero.
    if (raises_small(selection_.tensor(i)) && 2 * totals.seen.subnormal.lower > totals.seen.base) return;
    judged.push_back(i);
    skipped = skipped || !tensors_[i]->scaled.overflow_skipped.empty();
    any_values = any_values || totals.rows_with_values > 0;
    const double flushed = share(totals.seen.flushed.lower, totals.seen.base);
    if (flushed > most_flushed) {
      most_flushed = flushed;
      most_flushed_tensor = i;
    }
    const double kept = tensors_[i]->kept_headroom;
    if (!std::isnan(kept) && !(kept >= least_headroom)) {
      least_headroom = kept;
      tightest = i;
    }
    const std::string format(info(selection_.tensor(i).dtype).format->name);
    if (formats.find(format) == std::string::npos) formats += (formats.empty() ? "" : " and ") + format;
  }
  if (judged.empty() || (any_values && std::isnan(least_headroom))) return;
  if (lost_quantized) quantized.clear();
  for (const std::string_view format : quantized) formats += fmt::format(", and {} at their quantisation scales", format);
  Finding finding{
      "range.gradients_fit",
      Severity::info,
      fmt::format("{} {}: of {}, none lost {} to zero, and the largest values leave {}.{}",
                  skipped ? "In the steps that were not skipped the gradients fit" : "The gradients fit", formats,
                  gradient_tensors(selection_.count_outputs(judged)), most_flushed > 0 ? at_most(most_flushed) : "anything",
                  any_values ? cell_text(least_headroom, Unit::bits) + " bits of headroom"
                             : std::string("room, how much is not known without magnitudes (`--record stats`)"),
                  !unjudged.empty() ? fmt::format(" {} could not be judged.", gradient_tensors(selection_.count_outputs(unjudged)))
                                    : std::string()),
      {},
      ""};
  if (any_values) finding.evidence.push_back({selection_.key(tightest), {{"headroom", least_headroom, Unit::bits}}});
  if (most_flushed > 0) finding.evidence.push_back({selection_.key(most_flushed_tensor), {{"flushed", most_flushed, Unit::share}}});
  report.findings.push_back(std::move(finding));
}

}  // namespace ulpscope
