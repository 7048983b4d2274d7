// What `ulpscope scale` concludes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/precision_facts.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/scale.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

constexpr uint64_t kCollapse = StepTotals::kStuck;
// PyTorch's growth interval, where the trace shows none.
constexpr uint64_t kGrowthInterval = 2000;

std::string scale_text(double scale) { return cell_text(scale, Unit::scale); }
const char* was(uint64_t count) { return count == 1 ? "was" : "were"; }
std::string power_text(int exponent) { return scale_text(std::ldexp(1.0, exponent)); }

}  // namespace

void ScaleReport::find_thresholds(Report& report, bool flushed) const {
  struct ZoneText {
    const char* code;
    const char* text;
    const ScaleZone& zone;  // of the steps before the run broke
    const ScaleZone& all;
    bool trouble;
    std::string suggestion;
  };
  const auto& [below_100, below_1000, above_100000] = zones_;
  // Low scales are trouble where steps are still skipped or gradients are flushed; a high one where it costs more than a skipped
  // step now and then. Gradients that are flushed in spite of it ask for a higher one still.
  const bool high_skips = is_thrashing() && above_100000.skipped > 0;
  // Where nothing overflowed, no value keeps the scale low.
  const std::string began = fmt::format("Nothing overflowed: it began at {}{}.", scale_text(steps_.first.scale_before),
                                        context_.trace.run().dynamic_loss_scale ? ", and grows after each growth interval" : "");
  const ZoneText zones[] = {
      {"scale.below_100", "below 100", below_100, steps_.zones[0], below_100.skipped > 0 || flushed,
       steps_.skipped.size() == 0
           ? began
           : "Some values are far larger than the others: look at the tensor that overflows first, and keep its op in "
             "FP32."},
      {"scale.below_1000", "below 1000", below_1000, steps_.zones[1], below_1000.skipped > 0 || flushed,
       steps_.skipped.size() == 0
           ? began
           : "Look at the tensor that makes the scale back off: a few large values keep the scale low for all gradients."},
      {"scale.above_100000", "above 100000", above_100000, steps_.zones[2], high_skips || losses_.saturated_above_100000,
       losses_.saturated_above_100000  // which the scaler does not see
           ? "Gradients overflowed, and the rounding mode kept them at the largest number, so that no step was skipped for it: "
             "a smaller scale keeps them."
           : high_skips ? "Grow less often (a longer growth interval), or cap the scale."
                        : "The gradients are very small. That is healthy as long as few steps are skipped."}};
  for (const ZoneText& entry : zones) {
    if (entry.zone.steps == 0) continue;
    if (&entry.zone == &below_1000 && below_100.steps == below_1000.steps) continue;  // said already
    Finding finding{entry.code,
                    entry.trouble ? Severity::warning : Severity::info,
                    fmt::format("The loss scale was {} in {} of {}; {} of these {} skipped.", entry.text, entry.all.steps,
                                count_of(steps_.count, "step"), entry.all.skipped, was(entry.all.skipped)),
                    {},
                    entry.suggestion};
    finding.evidence.push_back({{},
                                {{"steps", count_cell(entry.all.steps), Unit::count},
                                 {"skipped_steps", count_cell(entry.all.skipped), Unit::count},
                                 {"lowest_scale", steps_.lowest_scale, Unit::scale},
                                 {"highest_scale", steps_.highest_scale, Unit::scale}}});
    report.findings.push_back(std::move(finding));
  }
}

// Of the whole trace: the first steps of a search for a scale may all be skipped.
bool ScaleReport::find_no_step_taken(Report& report, const std::vector<Evidence>& blame) const {
  if (steps_.skipped.size() < steps_.count || steps_.count < context_.trace.step_count() / context_.trace.ranks().size())
    return false;
  // A run that goes on may be looking for its scale.
  if (context_.trace.writer_state() == WriterState::alive && !steps_.is_stuck()) return false;
  const bool losses_broke = steps_.nonfinite_losses.size() > 0;
  std::string suggestion = losses_broke ? "The losses themselves were NaN or infinite: another scale would not help."
                                        : "The first gradient with NaN or infinity is where to look: `ulpscope ranges`.";
  if (!std::isfinite(steps_.last.scale_after)) {
    suggestion = "An infinite loss scale makes every gradient infinite or NaN: start with a finite one.";
  } else if (!losses_broke && context_.trace.run().dynamic_loss_scale && steps_.last.scale_after > 1 &&
             steps_.last.scale_after < steps_.first.scale_before) {
    suggestion = fmt::format("The loss scale was still coming down, from {} to {}: start with a smaller one, or train longer.",
                             scale_text(steps_.first.scale_before), scale_text(steps_.last.scale_after));
  }
  report.findings.push_back(
      {"scale.no_step_taken", Severity::error,
       fmt::format("No step was taken: {} skipped, so the run learned nothing.",
                   steps_.count == 1 ? std::string("the only step was") : fmt::format("all {} steps were", steps_.count)),
       blame, std::move(suggestion)});
  return true;
}

void ScaleReport::find_pathologies(Report& report) const {
  std::vector<Evidence> blame;
  if (auto blamed = most_blamed()) blame.push_back(std::move(*blamed));
  const bool none_taken = find_no_step_taken(report, blame);
  // A search that started far too high skips every step until it has come down; at its floor the scale is kept.
  const auto is_kept = [](const ScaleChange& change) { return change.before == change.after; };
  const bool at_floor =
      steps_.changes.size() >= kCollapse && std::all_of(steps_.changes.end() - kCollapse, steps_.changes.end(), is_kept);
  const bool searching = steps_.leading_skips == steps_.count && steps_.lowest_scale >= 1 && !at_floor;
  const bool collapsed = context_.trace.run().dynamic_loss_scale && steps_.trailing_skips >= kCollapse && !searching;
  const bool broken = broken_from_ != UINT64_MAX;
  if (collapsed) {
    report.findings.push_back(
        {"scale.collapse", Severity::error,
         fmt::format("The loss scale collapsed: the last {} in a row were skipped, and it fell to {}.",
                     count_of(steps_.trailing_skips, "step"), scale_text(steps_.lowest_scale)),
         blame,
         broken ? fmt::format("Another scale would not help: from step {} on the losses themselves were NaN or infinite.",
                              broken_from_)
                : std::string(
                      "Gradients that overflow at any scale hold NaN or infinity for another reason: the first of them is where "
                      "to look (`ulpscope ranges`).")});
  }
  const uint64_t settled_steps = steps_.count - steps_.leading_skips, settled_skips = steps_.skipped.size() - steps_.leading_skips;
  if (!collapsed && !broken && is_thrashing()) {
    const auto grown = std::find_if(steps_.changes.begin(), steps_.changes.end(),
                                    [](const ScaleChange& change) { return change.after > change.before; });
    const auto skipped = std::find_if(grown, steps_.changes.end(), [](const ScaleChange& change) { return change.skipped; });
    report.findings.push_back(
        {"scale.thrashing",
         Severity::warning,
         fmt::format("The loss scale thrashes: {} of {} steps were skipped after it had been found.", settled_skips, settled_steps),
         blame,
         "Grow less often" + in_brackets({context_.settings.name(SettingKind::scale_growth_interval)}) + ", or cap the scale.",
         {{}, skipped->step}});
  }
  if (!collapsed && !none_taken && steps_.skipped.size() > 0) {
    // A scale that comes down to one that fits costs a few steps of many.
    const bool many = 5 * steps_.skipped.size() > steps_.count;
    const bool began_too_high = 2 * steps_.leading_skips > steps_.skipped.size();
    report.findings.push_back(
        {"scale.backoffs",
         many ? Severity::warning : Severity::info,
         fmt::format("{} of {} {} skipped{}.", steps_.skipped.size(), count_of(steps_.count, "step"), was(steps_.skipped.size()),
                     began_too_high ? fmt::format(", the first {} of them until the scale had come down from {}",
                                                  steps_.leading_skips, scale_text(steps_.first.scale_before))
                                    : ""),
         blame,
         many && began_too_high
             ? "Begin with a smaller scale" + in_brackets({context_.settings.now(SettingKind::scale_initial)}) + "."
             : "",
         {{}, steps_.skipped.first()}});
  }
  const uint64_t interval = growth_interval();
  if (context_.trace.run().dynamic_loss_scale && !broken && steps_.clean_steps > 2 * interval) {
    report.findings.push_back({"scale.stalled",
                               Severity::info,
                               fmt::format("The loss scale has stood at {} for {} without overflow, more than twice the growth "
                                           "interval of {}.",
                                           scale_text(steps_.last.scale_after), count_of(steps_.clean_steps, "step"), interval),
                               {},
                               "It is at its cap, or its growth interval is longer than that."});
  }
}

// Of the steps after the scale was found, more than a tenth were skipped because it had grown.
bool ScaleReport::is_thrashing() const {
  if (!context_.trace.run().dynamic_loss_scale) return false;
  uint64_t grown = 0, skipped = 0;
  for (const ScaleChange& change : steps_.changes) {
    grown += change.after > change.before;
    skipped += change.skipped && grown > 0;
  }
  return skipped < steps_.count && 10 * std::min(skipped, 2 * grown) > steps_.count - steps_.leading_skips;
}

// The scaler's, or where the producer did not tell, that of a growth whose clean steps began after a change that was seen. Those
// before the first change may have begun before the first step seen: in the run that this one resumed from.
uint64_t ScaleReport::growth_interval() const {
  if (const int64_t told = context_.trace.run().growth_interval; told > 0) return static_cast<uint64_t>(told);
  for (size_t i = 1; i < steps_.changes.size(); ++i) {
    if (steps_.changes[i].after > steps_.changes[i].before) return steps_.changes[i].clean_steps + 1;
  }
  return kGrowthInterval;
}

bool ScaleReport::none_fits() const {
  const auto& [unused, largest, smallest, hidden] = fitting_.run;
  return largest && smallest && largest->upper != ExponentBounds::kNoUpper && smallest->lower != ExponentBounds::kNoLower &&
         smallest->lower > largest->upper;
}

void ScaleReport::find_fit(Report& report, bool flushed) const {
  const auto& [unused, largest, smallest, hidden] = fitting_.run;
  const auto key_of = [&](std::optional<uint32_t> tensor) { return tensor ? selection_.key(*tensor) : RowKey{}; };
  const Evidence least{key_of(fitting_.decides_smallest), {{"smallest_fitting_scale", scale_cell(smallest), Unit::scale}}};
  const Evidence most{key_of(fitting_.decides_largest), {{"largest_fitting_scale", scale_cell(largest), Unit::scale}}};
  if (none_fits()) {
    report.findings.push_back({"scale.no_scale_fits",
                               Severity::info,
                               fmt::format("No single loss scale fits {}: one gradient needs at least {}, another "
                                           "overflows above {}.",
                                           context_.options.restricts_steps() ? "all of these steps" : "the whole run",
                                           power_text(smallest->lower), power_text(largest->upper)),
                               {least, most},
                               "A dynamic scale follows the gradients from step to step, and BF16 needs none."});
  }
  const double exponent = std::log2(judged_scale_);
  if (flushed && steps_.scaled && smallest && smallest->lower != ExponentBounds::kNoLower && exponent < smallest->lower &&
      !none_fits()) {
    report.findings.push_back(
        {"scale.under_scaled",
         Severity::warning,
         fmt::format("The loss scale, {}, is too small: gradients are flushed. The smallest fitting scale is {}.",
                     scale_text(judged_scale_), cell_text(scale_cell(smallest), Unit::scale)),
         {least, most},
         "Start with a larger scale, or let it grow sooner (a shorter growth interval)."});
  }
  const bool fixed = !context_.trace.run().dynamic_loss_scale;
  if ((fixed || losses_.saturated) && steps_.scaled && largest && largest->upper != ExponentBounds::kNoUpper &&
      exponent > largest->upper) {
    const bool most_skipped = 2 * steps_.skipped.size() > steps_.count;
    std::vector<uint32_t> gradients;
    for (uint32_t i = 0; i < selection_.size(); ++i)
      if (is_computed_gradient(selection_.tensor(i).role)) gradients.push_back(i);
    std::vector<Evidence> evidence{most};
    if (auto blamed = most_blamed()) evidence.insert(evidence.begin(), std::move(*blamed));
    report.findings.push_back(
        {"scale.over_scaled",
         most_skipped ? Severity::error : Severity::warning,
         fmt::format("The {}loss scale, {}, is too large: the largest that fits is {}.", fixed ? "fixed " : "",
                     scale_text(judged_scale_), cell_text(scale_cell(largest), Unit::scale)),
         std::move(evidence),
         losses_.saturated ? "The rounding mode keeps what overflows at the largest number, which no scaler sees: use a "
                             "smaller scale that stays" +
                                 in_brackets({context_.settings.name(SettingKind::scale_initial),
                                              context_.settings.switched(SettingKind::scale_dynamic, false)}) +
                                 ", or a mode that makes infinities."
                           : "Use a smaller scale, or a dynamic one.",
         {std::move(gradients), steps_.skipped.empty() ? steps_.first.step : steps_.skipped.first()}});
  }
}

void ScaleReport::find_hidden(Report& report) const {
  if (fitting_.hidden_steps == 0) return;
  std::vector<uint32_t> hidden_tensors;
  for (uint32_t i = 0; i < selection_.size(); ++i) {
    const auto& fit = fitting_.tensors[i];
    if (fit && fit->hidden && is_computed_gradient(selection_.tensor(i).role)) hidden_tensors.push_back(i);
  }
  const size_t hidden = selection_.count_outputs(hidden_tensors);
  const std::vector<uint64_t>& flushed_rows = fitting_.flushed_rows;
  const auto worst = std::max_element(flushed_rows.begin(), flushed_rows.end());  // the first of equals
  const auto worst_tensor = static_cast<uint32_t>(worst - flushed_rows.begin());
  // Over the run, as ranges judges.
  const GradientLosses::Flushed* const losses = losses_.flushed.find(worst_tensor);
  const RoundingBounds worst_seen = losses ? losses->seen : RoundingBounds();
  const bool is_found = share(worst_seen.flushed.lower, worst_seen.base) > context_.options.flushed_limit;
  Finding finding{
      "scale.fit_hidden",
      Severity::info,
      fmt::format("In {} of {} {} {} computed from gradients of which more than {:g}% had been flushed: "
                  "what scale they need is not known, so the smallest fitting scale is only a lower bound, and the largest "
                  "an upper one.",
                  fitting_.hidden_steps, count_of(steps_.count, "step"), count_of(hidden, "gradient tensor"), was(hidden),
                  100 * context_.options.flushed_limit),
      {},
      is_quantized(selection_.tensor(worst_tensor).dtype)
          ? fmt::format("FP8 flushed them at its quantisation scales, which no loss scale changes{}. Record the run with "
                        "`--precision bf16` for what was flushed.",
                        is_found ? ": `ulpscope ranges` tells why" : "")
          : "Record the run with `--precision fp32`, where nothing is flushed: `ulpscope scale` of that trace tells which scales "
            "FP16 needs, and `ulpscope ranges --format fp16` where its gradients lie."};
  finding.evidence.push_back({selection_.key(worst_tensor), {{"rows_flushed", count_cell(*worst), Unit::count}}});
  report.findings.push_back(std::move(finding));
}

void ScaleReport::find_unknown_fit(Report& report) const {
  if (fitting_.run.largest || fitting_.run.smallest || losses_.rows_without_values == 0) return;
  report.findings.push_back({"scale.fit_unknown",
                             Severity::info,
                             "Which loss scales fit is not known: of the gradients only counts were recorded.",
                             {},
                             "Record with `--record stats`, which keeps their magnitudes."});
}

void ScaleReport::add_findings(Report& report) const {
  if (steps_.count == 0) {
    report.findings.push_back({"scale.none", Severity::info, "No step was recorded in what was asked for.", {}, ""});
    return;
  }
  const double worst = flushed_share();
  const bool flushed = worst > context_.options.flushed_limit;
  if (!steps_.scaled) {
    find_no_step_taken(report, {});
    const FloatFormat* const what_if = fitting_.what_if;
    const bool missing = flushed && !what_if && !context_.trace.run().dynamic_loss_scale;
    const auto& [unused, largest, smallest, hidden] = fitting_.run;
    const std::string_view types = what_if ? what_if->name : std::string_view("the recorded types");
    std::string fitting;
    if (none_fits()) {
      fitting = fmt::format(" For {}, no single scale fits: one gradient needs at least {}, another overflows above {}.", types,
                            power_text(smallest->lower), power_text(largest->upper));
    } else if (smallest && smallest->lower != ExponentBounds::kNoLower && largest && largest->upper != ExponentBounds::kNoUpper) {
      fitting = fmt::format(" For {}, the smallest fitting scale is {} and the largest {}.", types,
                            cell_text(scale_cell(smallest), Unit::scale), cell_text(scale_cell(largest), Unit::scale));
    }
    if (!fitting.empty() && broken_from_ != UINT64_MAX) {
      fitting.back() = ',';
      fitting += fmt::format(" judged by the steps before step {}.", broken_from_);
    }
    Finding finding{
        missing ? "scale.missing" : "scale.none",
        missing ? Severity::warning : Severity::info,
        (missing ? "The loss was not scaled, and gradients were flushed to zero." : "The loss was not scaled.") + fitting,
        {},
        missing ? scaling_advice(precision_facts(context_.trace, step_facts_), context_.settings) + ", or use BF16." : ""};
    if (missing) finding.evidence.push_back({{}, {{"flushed_of_the_worst_gradient", worst, Unit::share}}});
    report.findings.push_back(std::move(finding));
    find_hidden(report);
    find_unknown_fit(report);
    return;
  }
  find_pathologies(report);
  find_thresholds(report, flushed);
  find_fit(report, flushed);
  find_hidden(report);
  find_unknown_fit(report);
}

}  // namespace ulpscope
