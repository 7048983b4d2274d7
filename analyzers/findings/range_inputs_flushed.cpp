#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/totals/fitting_scale.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

namespace {

// Subnormals that ops read as zero: what flushing takes where no rounding does.
Suspects read_as_zero(const RunFacts& facts, std::span<const uint32_t> outputs) {
  Suspects suspects(facts.selection);
  for (const uint32_t i : outputs) {
    const TensorRanges& judged = facts.ranges().find(i)->judged;
    suspects.add(share(judged.input.flushed, judged.input.nonzero), i,
                 {share_of("read_as_zero", judged.input.flushed, judged.input.nonzero),
                  {"rows_with_all_of_an_input", count_cell(judged.starved_rows), Unit::count}});
  }
  return suspects;
}

// The loss scale that gradients have to have at least, where something is known of it.
std::string least_scale(const RunFacts& facts) {
  const std::optional<ExponentBounds>& smallest = facts.fitting().run.smallest;
  bool known = smallest && smallest->lower != ExponentBounds::kNoLower;
  int least = smallest ? smallest->lower : ExponentBounds::kNoLower;
  for (const uint32_t i : facts.gradients().read_as_zero_in_backward) {
    // At the least scale of its rows the share is no smaller.
    const double scale = facts.ranges().find(i)->judged.least_scale;
    if (!(scale > 0) || !std::isfinite(scale)) continue;
    least = std::max(least, std::ilogb(scale) + 1);
    known = known || scale != 1;
  }
  return known ? fmt::format(": here to at least {}", cell_text(std::ldexp(1.0, least), Unit::scale)) : "";
}

void find_inputs_flushed(const RunFacts& facts, Findings& found) {
  const GradientJudgement& gradients = facts.gradients();
  const SettingNames& settings = facts.context.settings;
  const std::string which =
      fmt::format("more than {:g}% of the nonzero elements of an input", 100 * facts.context.options.flushed_limit);
  if (const Suspects backward = read_as_zero(facts, gradients.read_as_zero_in_backward); !backward.empty()) {
    uint64_t starved = 0, rows = 0;
    for (const uint32_t i : gradients.read_as_zero_in_backward) {
      starved += facts.ranges().find(i)->judged.starved_rows;
      rows += facts.ranges().find(i)->judged.totals.rows;
    }
    Advice advice = scaling_advice(facts.precision(), settings);
    advice.text = fmt::format(
        "{}, for which the loss scale has to lift gradients above the smallest normal number{}; no scale lifts an activation "
        "or a weight.{} Without flushing{} they are read as they are.",
        advice.text, least_scale(facts), facts.precision().has_short_range ? " BF16 has the range of FP32, subnormals too." : "",
        in_brackets({settings.now(SettingKind::subnormals), settings.now(SettingKind::accumulation)}));
    found.add_judged(
        2 * starved >= rows ? Severity::error : Severity::warning,
        fmt::format("{} of the backward pass read {} as zero: they were subnormal, and the arithmetic of the run flushes those. "
                    "In {} of {} of their rows all of an input was.",
                    count_of(backward.size(), "op"), which, starved, rows),
        backward.worst(), std::move(advice), backward.extent());
  }
  if (const Suspects elsewhere = read_as_zero(facts, gradients.read_as_zero_elsewhere); !elsewhere.empty()) {
    found.add_judged(
        Severity::info,
        fmt::format("{} outside the backward pass read {} as zero: they were subnormal.", count_of(elsewhere.size(), "op"), which),
        elsewhere.worst(), "", elsewhere.extent());
  }
}

}  // namespace

extern constinit const FindingRule range_inputs_flushed{
    .code = "range.inputs_flushed",
    .part = Part::ranges,
    .raised = "Ops read subnormal numbers as zero, as the run's arithmetic says.",
    .meaning = "What they compute from them is missing.",
    .help = "A loss scale that lifts gradients above the smallest normal number, or arithmetic that keeps subnormals.",
    .picture = Picture::flushed,
    .explains = kOfLostGradients,
    .shown_by = "experiments/failures/subnormals_flushed.toml --set arithmetic.subnormals=flush-inputs",
    .find = find_inputs_flushed,
};

}  // namespace ulpscope::findings
