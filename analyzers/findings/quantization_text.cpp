#include "ulpscope/analyzers/findings/quantization_text.h"

#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLostMuch{"quantization.lost_much", "{tensors:count tensor} lost more than {limit:%} of the nonzero elements"};
constexpr Template kCurrentScaling{"advice.current_scaling", "Current scaling{recipe:brackets}"};

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

Sentence lost_much(const RunFacts& facts, const Suspects& suspects) {
  return kLostMuch({{"tensors", suspects.size()}, {"limit", {facts.context.options.flushed_limit, Unit::share}}});
}

Advice current_scaling(const SettingNames& settings) {
  Advice advice;
  advice.text = kCurrentScaling(
      {{"recipe", advice.set(settings.now(SettingKind::quantization_recipe), std::string(settings.words().current_scaling))}});
  return advice;
}

}  // namespace ulpscope::findings
