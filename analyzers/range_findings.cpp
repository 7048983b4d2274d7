// What `ulpscope ranges` concludes. Each finding gathers its tensors as evidence, worst first.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/ranges.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/suspects.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

namespace {

std::string tensors(size_t n) { return count_of(n, "tensor"); }
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

RowKey RangeAnalysis::key_at(uint32_t tensor, const Place& place) const {
  return selection_.key(tensor, place.step, place.micro_batch, place.pass);
}

// Where the op and what was recorded beside it leave one way only in which the first NaN or infinity came about: that, and what
// helps. "" otherwise.
std::string RangeAnalysis::cause_of_nonfinite(uint32_t tensor) const {
  const OpInfo& op = selection_.op(tensor);
  const TensorInfo& made = selection_.tensor(tensor);
  const auto read_by = [&](uint32_t consumer, uint8_t input) -> const TensorFacts* {
    for (const GraphEdge& edge : reader_.graph().inputs(consumer)) {
      if (edge.input != input) continue;
      for (uint32_t i = 0; i < tensors_.size(); ++i)
        if (tensors_[i] && selection_.tensor(i).op == edge.producer && selection_.tensor(i).slot == edge.slot)
          return tensors_[i].get();
    }
    return nullptr;
  };
  const auto beside = [&](std::string_view name) -> const TensorFacts* {
    for (uint32_t i = 0; i < tensors_.size(); ++i)
      if (tensors_[i] && selection_.tensor(i).op == made.op && selection_.tensor(i).name == name) return tensors_[i].get();
    return nullptr;
  };
  if (op.name == "adam_update" && is_narrow(made.dtype)) {
    const auto stepwise = attribute(op, "stepwise"), eps = attribute(op, "eps"), beta2 = attribute(op, "beta2");
    const FloatFormat& format = *info(made.dtype).format;
    const double flushed = magnitude_thresholds(format, rounding_of(made)).flushed.surely_below;
    const TensorFacts* squares = beside("exp_avg_sq");
    if (stepwise.value_or(0) == 0 || !eps || *eps > flushed || !beta2 || squares == nullptr) return "";
    if (squares->totals.seen.flushed.lower + squares->totals.zeros == 0) return "";
    return fmt::format(
        "The update divides by 0: each of its operations is rounded to {0} (optimizer.math = \"param\"), which makes eps = {1:g} "
        "zero, "
        "as all up to 2^{2:g} are, and (1 - beta2) g^2 too for gradients g up to 2^{3:.3g}; exp_avg / (sqrt(exp_avg_sq) + eps) is "
        "then exp_avg / 0. optimizer.math = \"fp32\" rounds once at the end; optimizer.master_weights = true updates in FP32. ",
        format.name, *eps, std::log2(flushed), 0.5 * std::log2(flushed / (1 - *beta2)));
  }
  const bool is_nan =
      tensors_[tensor]->totals.infinities == 0 && (!tensors_[tensor]->broken || tensors_[tensor]->broken->infinities == 0);
  const auto was_finite = [&](const TensorFacts* facts) {
    return !facts->first_nonfinite || facts->first_nonfinite->step > tensors_[tensor]->first_nonfinite->step;
  };
  if (op.name == "binary_cross_entropy" && made.slot == 0 && is_nan) {
    const TensorFacts *probability = read_by(made.op, 0), *target = read_by(made.op, 1);
    if (probability == nullptr || !was_finite(probability) || (target && !was_finite(target))) return "";
    return "The model's output was finite but no probability: binary_cross_entropy takes the logarithm of it and of 1 minus it, "
           "and "
           "below 0 a logarithm is NaN. End the model with a sigmoid, or use bce_with_logits. ";
  }
  if (op.name == "cross_entropy" && made.slot == 0 && is_nan) {
    const TensorFacts* sums = beside("logsumexp");
    if (sums == nullptr || !was_finite(sums)) return "";
    return "All logits were finite, so the mean was one over no target, 0 / 0: loss.ignore_index ignored every target of the "
           "batch. ";
  }
  return "";
}

void RangeAnalysis::find_nonfinite(Report& report) const {
  const std::vector<uint32_t> in_order = nonfinite_in_order();
  if (in_order.empty()) return;
  std::vector<Evidence> evidence;
  for (const uint32_t i : in_order) {
    if (evidence.size() == kMostEvidence) break;
    const TensorFacts& facts = *tensors_[i];
    const RangeTotals none, &broken = facts.broken ? *facts.broken : none;
    evidence.push_back({key_at(i, *facts.first_nonfinite),
                        {{"rows_with_nan_or_infinity", count_cell(facts.nonfinite_steps), Unit::count},
                         {"nan", count_cell(facts.totals.nan + broken.nan), Unit::count},
                         {"infinity", count_cell(facts.totals.infinities + broken.infinities), Unit::count}}});
  }
  const uint32_t first = in_order.front();
  const std::string name = selection_.name(first), phase = name_of(selection_.op(first).phase);
  const TensorFacts& facts = *tensors_[first];
  std::string how;
  if (facts.first_overflowed > 0) {
    how = fmt::format(", where {} became infinite when rounded to {}", count_of(facts.first_overflowed, "finite value"),
                      info(selection_.tensor(first).dtype).format->name);
  }
  report.findings.push_back(
      {"range.nonfinite", Severity::error,
       fmt::format("{} held NaN or infinity. The first, in step {}, was made by {}{}{}.",
                   tensors(selection_.count_outputs(in_order)), facts.first_nonfinite->step, name,
                   name.find(phase) == std::string::npos ? fmt::format(" in {}", phase) : "", how),
       std::move(evidence),
       cause_of_nonfinite(first) +
           fmt::format(
               "What made the first is the cause, the others follow from it. `ulpscope export {} --table captures --step {}` shows "
               "its element and operands.",
               shell_word(reader_.path()), facts.first_nonfinite->step)});
}

bool RangeAnalysis::find_vanished(Report& report) const {
  Suspects suspects;
  uint64_t vanished = 0, most = 0;
  uint32_t worst = 0;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i] || tensors_[i]->vanished_steps == 0) continue;
    const TensorFacts& facts = *tensors_[i];
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
    suspects.add(static_cast<double>(facts.vanished_steps), selection_.key(i), std::move(values));
  }
  if (suspects.empty()) return false;
  const std::string name = selection_.name(worst);
  report.findings.push_back(
      {"range.gradients_vanish", 2 * vanished >= backward_passes_ ? Severity::error : Severity::warning,
       fmt::format("In {} of {} backward passes every nonzero gradient was flushed to zero at the first rounding, in {}: nothing "
                   "behind it learns.",
                   vanished, backward_passes_, name),
       suspects.worst(),
       fmt::format(
           "{}, or run in BF16, whose range is that of FP32. Which scale fits, a recording in FP32 tells (`--precision fp32`, "
           "then `ulpscope scale`): here all that is computed from this rounding is zero.",
           scaling_advice(precision_facts(reader_)))});
  return true;
}

// What can be done about gradients that flushing hurts: which loss scale do they need, and do the others leave room for it?
std::string RangeAnalysis::flushed_advice(const std::vector<uint32_t>& flushed, uint32_t worst) const {
  std::optional<ExponentBounds> smallest;
  bool is_hidden = false, has_values = true;
  bool is_sure = true;  // signs and random bits have no part in what is flushed, so that the lower bound means something
  for (const uint32_t i : flushed) {
    if (const auto& fit = fitting_.tensors()[i]; fit && fit->smallest) raise(smallest, *fit->smallest);
    is_hidden = is_hidden || (fitting_.tensors()[i] && fitting_.tensors()[i]->hidden);
    has_values = has_values && tensors_[i]->totals.rows_with_values > 0;
    const TensorInfo& tensor = selection_.tensor(i);
    const MagnitudeThreshold zero = magnitude_thresholds(*info(tensor.dtype).format, rounding_of(tensor)).flushed;
    is_sure = is_sure && zero.surely_below == zero.perhaps_below;
  }
  const bool hidden = fitting_.run().hidden;
  const std::optional<ExponentBounds>& largest = fitting_.run().largest;
  const bool limited = largest && largest->upper != ExponentBounds::kNoUpper;
  const auto text = [](const std::optional<ExponentBounds>& bounds) { return cell_text(scale_cell(bounds), Unit::scale); };
  const auto power = [&](int exponent) { return text(ExponentBounds{exponent, exponent}); };
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
  if (const OpInfo* served = precision_facts(reader_).casts_weights ? selection_.serves(worst) : nullptr) {
    advice += served->module.empty() ? fmt::format(", and so has FP32 for the op {} (autocast.ops)", served->name)
                                     : fmt::format(", and so has FP32 for the module {} (autocast.modules)", served->module);
  }
  return advice + ".";
}

bool RangeAnalysis::find_gradient_trouble(Report& report) const {
  Suspects flushed, harmless, kept, skipped;
  double worst_share = 0;
  uint32_t worst = 0;
  std::vector<uint32_t> felt;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i]) continue;
    const TensorInfo& tensor = selection_.tensor(i);
    if (!is_gradient(tensor.role) || !is_plainly_narrow(tensor.dtype)) continue;
    const TensorFacts& facts = *tensors_[i];
    const RoundingBounds& seen = facts.totals.seen;
    if (share(seen.flushed.lower, seen.base) > options_.flushed_limit) {
      const double lost = share(seen.flushed.lower, seen.base);
      const bool matters = facts.flush_loss.matters();
      std::vector<Quantity> values{share_of("flushed", seen.flushed.lower, seen.base),
                                   {"of_the_norm_at_most", facts.flush_loss.most_norm, Unit::share}};
      const OpInfo* served = selection_.op(i).module.empty() ? selection_.serves(i) : nullptr;
      if (served) values.push_back({"gradient_of", served->module + (served->module.empty() ? "" : " ") + served->name});
      (matters ? flushed : harmless).add(lost, selection_.key(i), std::move(values));
      if (matters) felt.push_back(i);
      if (matters && lost > worst_share) {
        worst_share = lost;
        worst = i;
      }
    }
    const RowKey key = facts.first_overflow ? key_at(i, *facts.first_overflow) : selection_.key(i);
    const std::vector<Quantity> overflow{
        {"steps", count_cell(facts.overflow_steps_kept + facts.overflow_steps_skipped), Unit::count},
        {"elements", count_cell(seen.overflowed.lower - facts.totals.saturated), Unit::count}};
    if (facts.overflow_steps_kept > 0) {
      kept.add(static_cast<double>(facts.overflow_steps_kept), key, overflow);
    } else if (facts.overflow_steps_skipped > 0) {
      skipped.add(static_cast<double>(facts.overflow_steps_skipped), key, overflow);
    }
  }
  if (!flushed.empty()) {
    report.findings.push_back(
        {"range.gradients_flushed", Severity::warning,
         fmt::format("{} lost more than {:g}% of the nonzero elements to zero when rounded, and more than rounding noise of "
                     "the norm.",
                     gradient_tensors(flushed.size()), 100 * options_.flushed_limit),
         flushed.worst(), flushed_advice(felt, worst)});
  }
  if (!harmless.empty()) {
    report.findings.push_back(
        {"range.gradients_flushed", Severity::info,
         fmt::format("{} lost more than {:g}% of the nonzero elements to zero when rounded, but these are so small that the norm "
                     "lost less than rounding changes anyway.",
                     gradient_tensors(harmless.size()), 100 * options_.flushed_limit),
         harmless.worst(), ""});
  }
  if (!kept.empty()) {
    report.findings.push_back(
        {"range.gradients_overflow", Severity::error,
         fmt::format("{} overflowed in steps that were not skipped.", gradient_tensors(kept.size())), kept.worst(),
         "Infinities reached the weights. Use a dynamic loss scale, which skips such steps, or a lower one."});
  }
  if (!skipped.empty()) {
    report.findings.push_back(
        {"range.gradients_overflow", Severity::info,
         fmt::format("{} overflowed, only in steps that the scaler skipped.", gradient_tensors(skipped.size())), skipped.worst(),
         ""});
  }
  return !flushed.empty() || !harmless.empty() || !kept.empty();
}

// Numbers that to nearest would be zero, and that the mode makes the smallest subnormal, which is up to any factor too large.
bool RangeAnalysis::find_raised(Report& report) const {
  Suspects suspects;
  double most = 0;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i] || !is_gradient(selection_.tensor(i).role) || !is_plainly_narrow(selection_.tensor(i).dtype)) continue;
    const RangeTotals& totals = tensors_[i]->totals;
    const CountBounds raised = tensors_[i]->raised;
    const double how_many = share(raised.lower, totals.seen.base);
    if (how_many <= options_.flushed_limit) continue;
    most = std::max(most, how_many);
    const FloatFormat& format = *info(selection_.tensor(i).dtype).format;
    suspects.add(how_many, selection_.key(i),
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
       scaling_advice(precision_facts(reader_)) +
           ", so that gradients are normal numbers (a recording with `--precision fp32`, then `ulpscope scale`, tells which scale "
           "fits), or use BF16. To nearest these elements are zero."});
  return true;
}

void RangeAnalysis::find_value_trouble(Report& report) const {
  Suspects overflowed, flushed;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i] || is_gradient(selection_.tensor(i).role) || !is_plainly_narrow(selection_.tensor(i).dtype)) continue;
    const TensorFacts& facts = *tensors_[i];
    const RoundingBounds& seen = facts.totals.seen;
    // Weights and states that an update made infinite are a matter of range.nonfinite, and no forward values.
    if (const uint64_t infinite = seen.overflowed.lower - facts.totals.saturated;
        infinite > 0 && selection_.op(i).phase != Phase::optimizer) {
      overflowed.add(static_cast<double>(infinite), key_at(i, *facts.first_overflow),
                     {{"elements", count_cell(infinite), Unit::count}, share_of("overflowed", infinite, seen.base)});
    }
    if (share(seen.flushed.lower, seen.base) > options_.flushed_limit) {
      flushed.add(share(seen.flushed.lower, seen.base), selection_.key(i), {share_of("flushed", seen.flushed.lower, seen.base)});
    }
  }
  if (!overflowed.empty()) {
    report.findings.push_back({"range.values_overflow", Severity::error,
                               fmt::format("{} other than gradients overflowed when rounded.", tensors(overflowed.size())),
                               overflowed.worst(),
                               "No loss scale helps a forward value. Keep the op in FP32, use BF16, or make its inputs smaller."});
  }
  if (!flushed.empty()) {
    report.findings.push_back(
        {"range.values_flushed", Severity::info,
         fmt::format("{} other than gradients lost more than {:g}% of the nonzero elements to zero when rounded.",
                     tensors(flushed.size()), 100 * options_.flushed_limit),
         flushed.worst(), ""});
  }
}

// Subnormals that ops read as zero: what flushing takes where no rounding does.
bool RangeAnalysis::find_inputs_flushed(Report& report) const {
  Suspects backward, forward;
  std::vector<int> slot_of(reader_.ops().size(), -1);  // outputs of one op share the counts
  uint64_t starved = 0, rows = 0;
  const std::optional<ExponentBounds>& smallest = fitting_.run().smallest;
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
        .add(share(input.flushed, input.nonzero), selection_.key(i),
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
             "or a weight. BF16 has the range of FP32, subnormals too. Without flushing (arithmetic.subnormals = \"keep\", an "
             "arithmetic.accumulate other than "
             "mi200) they are read as they are.",
             scaling_advice(precision_facts(reader_)),
             known ? fmt::format(": here to at least {}", cell_text(std::ldexp(1.0, least), Unit::scale)) : "")});
  }
  if (!forward.empty()) {
    report.findings.push_back(
        {"range.inputs_flushed", Severity::info,
         fmt::format("{} outside the backward pass read {} as zero: they were subnormal.", count_of(forward.size(), "op"), which),
         forward.worst(), ""});
  }
  return !backward.empty();
}

// Values that a directed mode keeps at the largest number, which no NaN or infinity tells of.
void RangeAnalysis::find_saturated(Report& report) const {
  Suspects suspects;
  uint64_t elements = 0;
  bool most_of_a_gradient = false;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i] || tensors_[i]->totals.saturated == 0) continue;
    const RangeTotals& totals = tensors_[i]->totals;
    elements += totals.saturated;
    most_of_a_gradient = most_of_a_gradient || (is_gradient(selection_.tensor(i).role) && 2 * totals.saturated >= totals.seen.base);
    std::vector<Quantity> values{{"elements", count_cell(totals.saturated), Unit::count},
                                 share_of("saturated", totals.saturated, totals.seen.base),
                                 {"rounding", std::string(name_of(selection_.tensor(i).rounding))}};
    if (totals.recorded.largest > 0) {
      values.push_back({"largest", std::log2(totals.recorded.largest), Unit::exponent});
      values.push_back({"stored_as", std::log2(info(selection_.tensor(i).dtype).format->largest_finite()), Unit::exponent});
    }
    suspects.add(share(totals.saturated, totals.seen.base), selection_.key(i), std::move(values));
  }
  if (suspects.empty()) return;
  report.findings.push_back(
      {"range.saturated", most_of_a_gradient ? Severity::error : Severity::warning,
       fmt::format("{} held {} beyond the largest number of the type, at which the rounding mode keeps them: no infinity tells a "
                   "scaler, or a check, of it.",
                   tensors(suspects.size()), count_of(elements, "finite value")),
       suspects.worst(),
       "These are overflows. For gradients a lower loss scale helps, for other values BF16, FP32 for the op, or smaller inputs; in "
       "mode rne they become infinite and are seen."});
}

void RangeAnalysis::find_what_if_trouble(Report& report) const {
  Suspects suspects;
  std::vector<uint32_t> judged;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i] || !is_computed_gradient(selection_.tensor(i).role)) continue;
    if (is_narrow(selection_.tensor(i).dtype)) return;  // the roundings themselves were recorded
    const RangeTotals& totals = tensors_[i]->totals;
    if (totals.rows == 0 || selection_.tensor(i).stays_wide) continue;
    const WhatIfTotals& what_if = totals.what_if[what_if_index(binary16)].as_true;
    if (what_if.rows == 0) continue;
    // A sum that is zero but for rounding, as that of a bias before batch_norm, asks for nothing.
    if (tensors_[i]->noise_rows == totals.rows) continue;
    judged.push_back(i);
    const RoundingBounds &rounded = what_if.bounds, &read = tensors_[i]->read_in_fp16;
    const double by_rounding = share(rounded.flushed.lower, rounded.base), by_reading = share(read.flushed.lower, read.base);
    if (std::max(by_rounding, by_reading) <= options_.flushed_limit) continue;
    std::vector<Quantity> values{{"flushed_in_fp16", share_cell(rounded.flushed, rounded.base), Unit::share}};
    if (read.base > 0) values.push_back({"flushed_or_read_as_zero", share_cell(read.flushed, read.base), Unit::share});
    suspects.add(std::max(by_rounding, by_reading), selection_.key(i), std::move(values));
  }
  if (suspects.empty()) return;
  report.findings.push_back(
      {"range.gradients_would_flush", Severity::info,
       fmt::format("In FP16 without a loss scale, {} of {} would lose more than {:g}% of the nonzero elements "
                   "to zero.",
                   suspects.size(), gradient_tensors(selection_.count_outputs(judged)), 100 * options_.flushed_limit),
       suspects.worst(), "FP16 needs a loss scale here (`ulpscope scale` shows which); BF16 does not."});
}

void RangeAnalysis::find_gradients_fit(Report& report) const {
  std::vector<uint32_t> judged, unjudged;
  double most_flushed = 0, least_headroom = kUnknown;
  uint32_t tightest = 0, most_flushed_tensor = 0;
  bool skipped = false, any_values = false;
  std::string formats;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i] || !is_gradient(selection_.tensor(i).role)) continue;
    if (tensors_[i]->nonfinite_steps > 0) return;  // in a step that was not skipped
    if (tensors_[i]->totals.saturated > 0) return;
    if (!is_plainly_narrow(selection_.tensor(i).dtype)) continue;
    const RangeTotals& totals = tensors_[i]->totals;
    if (totals.rows_seen == 0 || totals.rows_unseen > 0) {
      if (totals.rows_unseen > 0) unjudged.push_back(i);
      continue;
    }
    // Without magnitudes: subnormals, in a mode that makes such of what to nearest is zero.
    if (raises_small(selection_.tensor(i)) && 2 * totals.seen.subnormal.lower > totals.seen.base) return;
    judged.push_back(i);
    skipped = skipped || tensors_[i]->overflow_steps_skipped > 0;
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

void RangeAnalysis::find_unknown(Report& report) const {
  uint64_t unseen = 0, narrow = 0;
  for (const auto& facts : tensors_) {
    if (!facts) continue;
    unseen += facts->totals.rows_unseen;
    narrow += facts->totals.rows_unseen + facts->totals.rows_seen;
  }
  if (unseen == 0) return;
  report.findings.push_back(
      {"range.rounding_unknown",
       Severity::info,
       fmt::format("What {} of {} recorded roundings lost is not known: the backend did not count it.", unseen, narrow),
       {},
       ""});
}

void RangeAnalysis::add_findings(Report& report) const {
  if (std::none_of(tensors_.begin(), tensors_.end(), [](const auto& facts) { return facts != nullptr; })) {
    report.findings.push_back({"range.no_rows", Severity::info, "No tensor row was recorded in what was asked for.", {}, ""});
    return;
  }
  find_nonfinite(report);
  const bool vanished = find_vanished(report);
  const bool starved = find_inputs_flushed(report);
  const bool flushed = find_gradient_trouble(report), raised = find_raised(report);
  const bool trouble = flushed || raised || starved;
  find_saturated(report);
  find_value_trouble(report);
  find_quantization_trouble(report);
  find_what_if_trouble(report);
  const bool broke = steps_.broken_from != UINT64_MAX;
  if (!vanished && !trouble && !broke) find_gradients_fit(report);
  find_unknown(report);
}

}  // namespace ulpscope
