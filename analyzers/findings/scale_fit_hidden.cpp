#include <algorithm>

#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"

namespace ulpscope::findings {

namespace {

constexpr Template kFromFlushedGradients{"scale.fit_hidden",
                                         "{gradients:count gradient tensor} {gradients:either was|were} computed from gradients "
                                         "with more than {limit:%} flushed to zero, in {hidden} of {steps:count step}."};
constexpr Template kFitIsBounded{"scale.fit_hidden.bounds",
                                 "The loss scales that fit are bounds: the smallest may be larger, and the largest smaller."};
constexpr Template kFlushedByFp8{"advice.flushed_by_fp8", "The FP8 quantization flushed them, which no loss scale changes{why}."};
constexpr Template kRangesTellsWhy{"advice.ranges_tells_why", "; `ulpscope ranges {trace}` shows why"};
constexpr Template kRecordInBf16{"advice.record_in_bf16", "A recording in BF16{precision:brackets} shows what was flushed."};
constexpr Template kRecordInFp32{"advice.record_in_fp32",
                                 "Record the run in FP32{precision:brackets}, where nothing underflows. `ulpscope scale` of that "
                                 "trace gives the loss scales that FP16 needs, and `ulpscope ranges --format fp16` of it the "
                                 "magnitudes of its gradients."};

void find_hidden_fit(const RunFacts& facts, Findings& found) {
  const FittingScales& fitting = facts.fitting();
  const double limit = facts.context.options.flushed_limit;
  if (facts.scale().scaling == LossScaling::no_steps || fitting.hidden_steps == 0) return;
  std::vector<uint32_t> hidden_tensors;
  for (uint32_t i = 0; i < facts.selection.size(); ++i) {
    const auto& fit = fitting.tensors[i];
    if (fit && fit->hidden && is_computed_gradient(facts.selection.tensor(i).role)) hidden_tensors.push_back(i);
  }
  const size_t hidden = facts.selection.count_outputs(hidden_tensors);
  const auto worst = std::max_element(fitting.flushed_rows.begin(), fitting.flushed_rows.end());  // the first of equals
  const auto worst_tensor = static_cast<uint32_t>(worst - fitting.flushed_rows.begin());
  // Over the run, as ranges judges.
  const TensorRanges* const ranges = facts.scale().ranges().tensors.find(worst_tensor);
  const RoundingBounds worst_seen = ranges ? ranges->used : RoundingBounds();
  const bool is_found = share(worst_seen.flushed.lower, worst_seen.base) > limit;
  const SettingMention precision = facts.context.settings.now(SettingKind::precision);
  Advice advice;
  if (is_quantized(facts.selection.tensor(worst_tensor).dtype)) {
    Value why;
    if (is_found) why = kRangesTellsWhy({{"trace", trace_name(facts.context.trace)}});
    advice.text = {kFlushedByFp8({{"why", why}}), kRecordInBf16({{"precision", precision}})};
  } else {
    advice.text = kRecordInFp32({{"precision", precision}});
  }
  found.add(Severity::info,
            {kFromFlushedGradients({{"hidden", fitting.hidden_steps},
                                    {"steps", facts.steps().with_ops},
                                    {"gradients", hidden},
                                    {"limit", {limit, Unit::share}}}),
             kFitIsBounded()},
            {{facts.selection.key(worst_tensor), {{"rows_flushed", count_cell(*worst), Unit::count}}}}, std::move(advice));
}

}  // namespace

extern constinit const FindingRule scale_fit_hidden{
    .code = "scale.fit_hidden",
    .part = Part::scale,
    .raised = "Gradients were computed from others that had been flushed to zero.",
    .meaning = "The loss scales that fit are known as bounds only.",
    .help = "Record the run in FP32, or in BF16 where FP8 flushed them.",
    .is_about_run = false,
    .shown_by = "experiments/failures/vanishing_gradients_fp16.toml",
    .find = find_hidden_fit,
};

}  // namespace ulpscope::findings
