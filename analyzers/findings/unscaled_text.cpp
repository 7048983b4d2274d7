#include "ulpscope/analyzers/findings/unscaled_text.h"

#include <fmt/format.h>

#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/report/text.h"

namespace ulpscope::findings {

std::string scales_that_would_fit(const RunFacts& facts) {
  const FittingScales& fitting = facts.fitting();
  const auto& [unused, largest, smallest, hidden] = fitting.run;
  const std::string_view types = fitting.what_if ? fitting.what_if->name : std::string_view("the recorded types");
  std::string text;
  if (facts.scale().none_fits()) {
    text = fmt::format(" For {}, no single scale fits: one gradient needs at least {}, another overflows above {}.", types,
                       power_text(smallest->lower), power_text(largest->upper));
  } else if (smallest && smallest->lower != ExponentBounds::kNoLower && largest && largest->upper != ExponentBounds::kNoUpper) {
    text = fmt::format(" For {}, the smallest fitting scale is {} and the largest {}.", types,
                       cell_text(scale_cell(smallest), Unit::scale), cell_text(scale_cell(largest), Unit::scale));
  }
  if (!text.empty() && facts.broke()) {
    text.back() = ',';
    text += fmt::format(" judged by the steps before step {}.", facts.scale().broken_from);
  }
  return text;
}

}  // namespace ulpscope::findings
