#include "ulpscope/analyzers/findings/quantization_text.h"

#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope::findings {

namespace {

constexpr Template kUseCurrentScaling{"advice.current_scaling", "Use current scaling{recipe:brackets}."};
constexpr Template kOrUseCurrentScaling{"advice.or_current_scaling", "Or use current scaling{recipe:brackets}."};

}  // namespace

Suspects flushed_in_fp8(const RunFacts& facts, std::span<const uint32_t> tensors, bool at_own_scale) {
  Suspects suspects(facts.selection);
  for (const uint32_t i : tensors) {
    const TensorRanges& judged = facts.ranges().find(i)->judged;
    const RoundingBounds &seen = judged.scaled.seen, &own = judged.scaled.at_own_scale;
    std::vector<Quantity> values{share_of("flushed", seen.flushed.lower, seen.base),
                                 {"of_the_norm_at_most", judged.scaled.flush_loss.most_norm, Unit::share}};
    if (at_own_scale) values.push_back(share_of("flushed_at_its_own_scale_at_most", own.flushed.upper, own.base));
    // The share that is told is that of all rows: where no row was stale alone, the first that lost as much is told.
    const auto& first_stale = judged.scaled.first_stale;
    suspects.add(share(seen.flushed.lower, seen.base), i, std::move(values),
                 at_own_scale && first_stale ? first_stale : judged.scaled.first_lossy);
  }
  return suspects;
}

size_t quantized_tensors(const RunFacts& facts) {
  std::vector<uint32_t> tensors;
  for (const auto& [i, unused, broken] : facts.ranges().tensors())
    if (is_quantized(facts.selection.tensor(i).dtype)) tensors.push_back(i);
  return facts.selection.count_outputs(tensors);
}

Value flushed_of(const RunFacts& facts, uint32_t tensor) {
  const RoundingBounds& seen = facts.ranges().find(tensor)->judged.scaled.seen;
  return {share(seen.flushed.lower, seen.base), Unit::share};
}

Advice use_current_scaling(const SettingNames& settings, bool is_other_way) {
  Advice advice;
  const Setting recipe = advice.set(settings.proposed(SettingKind::quantization_recipe, settings.words().current_scaling));
  advice.text = (is_other_way ? kOrUseCurrentScaling : kUseCurrentScaling)({{"recipe", recipe}});
  return advice;
}

}  // namespace ulpscope::findings
