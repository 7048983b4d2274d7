#include <algorithm>
#include <cmath>
#include <utility>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/findings/tensor_place.h"
#include "ulpscope/analyzers/judgements/gradient_judgement.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/totals/fitting_scale.h"

namespace ulpscope::findings {

namespace {

constexpr Template kInputsFlushed{"range.inputs_flushed",
                                  "Subnormal inputs are read as zero: {ops:count op} of the backward pass lost more than {limit:%} "
                                  "of an input's nonzero elements, most for {place}."};
constexpr Template kAllOfInputWas{"range.inputs_flushed.all_of_one",
                                  "In {starved} of {rows:count execution} of these ops an input was lost entirely."};
constexpr Template kInputsFlushedOutside{"range.inputs_flushed.outside",
                                         "Subnormal inputs are read as zero: {ops:count op} outside the backward pass lost more "
                                         "than {limit:%} of an input's nonzero elements, most for {place}."};
constexpr Template kLiftAboveNormal{"advice.lift_above_smallest_normal",
                                    "The scale has to lift gradients above the smallest normal number{least}."};
constexpr Template kHereToAtLeast{"advice.here_to_at_least", ": at least {scale} here"};
constexpr Template kLiftsGradientsOnly{"advice.lifts_gradients_only", "A loss scale lifts no activations or weights."};
constexpr Template kBf16HasSubnormals{"advice.bf16_has_subnormals",
                                      "Or use BF16{precision:brackets}, whose range is that of FP32."};
constexpr Template kWithoutFlushing{"advice.without_flushing", "Or keep subnormals{settings:brackets}."};

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

Sentence place_of_worst(const RunFacts& facts, const Suspects& suspects) { return tensor_place(facts, suspects.worst_tensor()); }

// The loss scale that gradients have to have at least, as a phrase, where something is known of it; or nothing.
Sentence least_scale(const RunFacts& facts) {
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
  if (!known) return {};
  return kHereToAtLeast({{"scale", power_value(least)}});
}

void find_inputs_flushed(const RunFacts& facts, Findings& found) {
  const GradientJudgement& gradients = facts.gradients();
  const SettingNames& settings = facts.context.settings;
  const Value limit{facts.context.options.flushed_limit, Unit::share};
  if (const Suspects backward = read_as_zero(facts, gradients.read_as_zero_in_backward); !backward.empty()) {
    uint64_t starved = 0, rows = 0;
    for (const uint32_t i : gradients.read_as_zero_in_backward) {
      starved += facts.ranges().find(i)->judged.starved_rows;
      rows += facts.ranges().find(i)->judged.totals.rows;
    }
    Advice advice = scaling_advice(facts.precision(), settings);
    advice.text.begin_with(kScaleTheLoss);
    advice.text += Sentences{kLiftAboveNormal({{"least", least_scale(facts)}}), kLiftsGradientsOnly()};
    if (facts.precision().has_short_range)
      advice.text += kBf16HasSubnormals({{"precision", settings.proposed(SettingKind::precision, settings.words().bf16)}});
    advice.text += kWithoutFlushing(
        {{"settings", Value::list({settings.now(SettingKind::subnormals), settings.now(SettingKind::accumulation)})}});
    Sentences title = kInputsFlushed({{"ops", backward.size()}, {"limit", limit}, {"place", place_of_worst(facts, backward)}});
    if (starved > 0) title += kAllOfInputWas({{"starved", starved}, {"rows", rows}});
    found.add_judged(2 * starved >= rows ? Severity::error : Severity::warning, title, backward.worst(), std::move(advice),
                     backward.extent());
  }
  if (const Suspects elsewhere = read_as_zero(facts, gradients.read_as_zero_elsewhere); !elsewhere.empty()) {
    found.add_judged(
        Severity::info,
        kInputsFlushedOutside({{"ops", elsewhere.size()}, {"limit", limit}, {"place", place_of_worst(facts, elsewhere)}}),
        elsewhere.worst(), {}, elsewhere.extent());
  }
}

}  // namespace

extern constinit const FindingRule range_inputs_flushed{
    .code = "range.inputs_flushed",
    .part = Part::ranges,
    .raised =
        "Ops read more than 1% of an input's nonzero elements as zero: they are subnormal, and the run's arithmetic flushes "
        "subnormal inputs.",
    .meaning = "Products of these elements are zero.",
    .help = "Use a loss scale that lifts gradients above the smallest normal number, or arithmetic that keeps subnormals.",
    .picture = Picture::flushed,
    .explains = kOfLostGradients,
    .shown_by = "experiments/failures/subnormals_flushed.toml --set arithmetic.subnormals=flush-inputs",
    .find = find_inputs_flushed,
};

}  // namespace ulpscope::findings
