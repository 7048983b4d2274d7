#include "ulpscope/analyzers/totals/measures_of_passes.h"

#include <algorithm>

#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

MeasuresOfPasses measures_of_passes(const AnalysisContext& context, std::initializer_list<std::string_view> names) {
  MeasuresOfPasses measures;
  context.trace.visit_measures(context.options.steps, [&](std::span<const MeasureRow> some) {
    for (const MeasureRow& row : some) {
      const auto name = std::find(names.begin(), names.end(), row.name);
      if (name == names.end() || !context.selection.contains(row.tensor) || !(row.value >= 0)) continue;
      std::vector<std::optional<double>>& of_pass = measures[row.tensor][{row.step, row.micro_batch, row.loss_index}];
      of_pass.resize(names.size());
      of_pass[static_cast<size_t>(name - names.begin())] = row.value;
    }
    return true;
  });
  return measures;
}

}  // namespace ulpscope
