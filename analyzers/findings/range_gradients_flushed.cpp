#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/norm_text.h"
#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/totals/fitting_scale.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::findings {

namespace {

// Which loss scale do gradients that flushing hurts need, and do the others leave room for it?
std::string advice_on_scale(const RunFacts& facts) {
  const SettingNames& settings = facts.context.settings;
  const std::vector<uint32_t>& flushed = facts.gradients().flushed;
  const FittingScales& fitting = facts.fitting();
  std::optional<ExponentBounds> smallest;
  bool is_hidden = false, has_values = true;
  bool is_sure = true;  // signs and random bits have no part in what is flushed, so that the lower bound means something
  for (const uint32_t i : flushed) {
    if (const auto& fit = fitting.tensors[i]; fit && fit->smallest) raise(smallest, *fit->smallest);
    is_hidden = is_hidden || (fitting.tensors[i] && fitting.tensors[i]->hidden);
    has_values = has_values && facts.ranges().find(i)->judged.totals.rows_with_values > 0;
    const TensorInfo& tensor = facts.selection.tensor(i);
    const MagnitudeThreshold zero = magnitude_thresholds(*info(tensor.dtype).format, rounding_of(tensor)).flushed;
    is_sure = is_sure && zero.surely_below == zero.perhaps_below;
  }
  const bool hidden = fitting.run.hidden;
  const std::optional<ExponentBounds>& largest = fitting.run.largest;
  const bool limited = largest && largest->upper != ExponentBounds::kNoUpper;
  if (!smallest || (is_sure && smallest->lower == ExponentBounds::kNoLower)) {
    return is_hidden
               ? fmt::format(
                     "Which loss scales fit is not known: they were computed from gradients that had been flushed. Which do, {}.",
                     wide_recording_tells(settings))
           : has_values ? "Which loss scales fit is not known: the magnitudes before the rounding were not seen."
                        : fmt::format("Which loss scales fit is not known; magnitudes before the rounding tell{}.",
                                      in_brackets({settings.now(SettingKind::recording_level)}));
  }
  if (limited && smallest->lower > largest->upper) {
    return fmt::format(
        "No single loss scale keeps them: it would have to be at least {}, and the largest gradients overflow above {}.",
        power_text(smallest->lower), power_text(largest->upper));
  }
  std::string advice;
  if (hidden || smallest->upper == ExponentBounds::kNoUpper) {
    advice = is_sure ? fmt::format("They need a loss scale of at least {}", power_text(smallest->lower))
                     : "They need a larger loss scale";
  } else {
    advice = fmt::format("A loss scale of {} keeps them", power_text(smallest->upper));
  }
  if (hidden) {
    advice += ", and what was computed from them may need a larger one: " + wide_recording_tells(settings);
  }
  if (limited) advice += fmt::format("; the largest that fits is {}", cell_text(scale_cell(largest), Unit::scale));
  return advice + '.';
}

// `worst`: the tensor that lost most.
Advice flushed_advice(const RunFacts& facts, uint32_t worst) {
  const SettingNames& settings = facts.context.settings;
  const PrecisionFacts& precision = facts.precision();
  Advice advice;
  if (!precision.scales_loss) advice = scaling_advice(precision, settings) + ". ";
  advice += advice_on_scale(facts);
  if (has_range_of_fp32(facts.selection.tensor(worst).dtype)) return advice + " FP32 reaches lower.";
  advice += " BF16 has the range";
  advice.note({.kind = SettingKind::precision, .value = "\"bf16\""});
  // Without autocast its settings change nothing.
  const OpInfo* const served = precision.casts_weights ? facts.context.graph.served_by(facts.selection.op(worst)) : nullptr;
  if (served) {
    const bool is_op = served->module.empty();
    const std::string& where = is_op ? served->name : served->module;
    const std::string setting = in_brackets(
        {advice.set(settings.name(is_op ? SettingKind::precision_of_ops : SettingKind::precision_of_modules), "\"fp32\"", where)});
    advice += fmt::format(", and so has FP32 for the {} {}{}", is_op ? "op" : "module", where, setting);
  }
  return advice + ".";
}

Suspects flushed_gradients(const RunFacts& facts, std::span<const uint32_t> tensors) {
  Suspects suspects(facts.selection);
  for (const uint32_t i : tensors) {
    const TensorRanges& judged = facts.ranges().find(i)->judged;
    const RoundingBounds& used = judged.used;
    std::vector<Quantity> values{share_of("flushed", used.flushed.lower, used.base),
                                 {"of_the_norm_at_most", judged.scaled.flush_loss.most_norm, Unit::share}};
    const OpInfo& op = facts.selection.op(i);
    const OpInfo* const served = op.module.empty() ? facts.context.graph.served_by(op) : nullptr;
    if (served) values.push_back({"gradient_of", served->module + (served->module.empty() ? "" : " ") + served->name});
    suspects.add(share(used.flushed.lower, used.base), i, std::move(values), judged.first_flushed);
  }
  return suspects;
}

void find_flushed(const RunFacts& facts, Findings& found) {
  const double limit = facts.context.options.flushed_limit;
  if (const Suspects flushed = flushed_gradients(facts, facts.gradients().flushed); !flushed.empty()) {
    Extent extent = flushed.extent();
    const std::vector<uint32_t>& tensors = facts.gradients().flushed;
    extent.since_scale_fell = std::all_of(tensors.begin(), tensors.end(), [&](uint32_t i) {
      return began_with_fallen_scale(facts, i, facts.ranges().find(i)->judged.first_flushed);
    });
    found.add_judged(
        Severity::warning,
        fmt::format("{} lost more than {:g}% of the nonzero elements to zero when rounded, and {}.",
                    count_of(flushed.size(), "gradient tensor"), 100 * limit, most_of_norm(facts, facts.gradients().flushed)),
        flushed.worst(), flushed_advice(facts, flushed.worst_tensor()), std::move(extent));
  }
  if (const Suspects unfelt = flushed_gradients(facts, facts.gradients().flushed_unfelt); !unfelt.empty()) {
    found.add_judged(Severity::info,
                     fmt::format("{} lost more than {:g}% of the nonzero elements to zero when rounded, but {}.",
                                 count_of(unfelt.size(), "gradient tensor"), 100 * limit,
                                 little_of_norm(facts, facts.gradients().flushed_unfelt)),
                     unfelt.worst(), "", unfelt.extent());
  }
}

}  // namespace

extern constinit const FindingRule range_gradients_flushed{
    .code = "range.gradients_flushed",
    .part = Part::ranges,
    .raised = "A gradient lost more than a share of its nonzero elements to zero when it was rounded.",
    .meaning = "A warning where the gradient's norm can feel it; a note where what was lost is less than roundings change anyway.",
    .help = "A larger loss scale, BF16, or FP32 for the op.",
    .picture = Picture::flushed,
    .explains = {"scale.missing", "scale.none", "scale.under_scaled", "scale.below_100", "scale.below_1000", "scale.fit_*",
                 "updates.none_applied"},
    .shown_by = "experiments/failures/loss_scale_too_small.toml",
    .find = find_flushed,
};

}  // namespace ulpscope::findings
