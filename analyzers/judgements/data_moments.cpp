#include "ulpscope/analyzers/judgements/data_moments.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/run_memory.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/training_loss.h"

namespace ulpscope {

double DataMoments::deviation() const { return std::sqrt(std::max(mean_square - mean * mean, 0.0)); }

bool DataMoments::is_constant() const {
  constexpr double kRounding = 1e-10;
  return mean_square - mean * mean <= kRounding * mean_square;
}

bool DataMoments::is_far_from_1() const {
  constexpr double kFar = 30;
  return mean_square > kFar * kFar || mean_square * kFar * kFar < 1;
}

std::optional<std::vector<DataMoments>> input_moments(const RunFacts& facts) {
  const Selection& selection = facts.selection;
  const StepRange judged = facts.judged_range();
  std::vector<uint32_t> targets;
  for (const uint32_t loss : loss_ops(facts.context)) {
    const std::span<const uint32_t> read = sources_read_as(facts.context, loss, Meaning::target);
    targets.insert(targets.end(), read.begin(), read.end());
  }
  std::vector<DataMoments> inputs;
  for (uint32_t i = 0; i < selection.size(); ++i) {
    if (!is_training_data(selection, i) || facts.context.masks.may_be(i)) continue;
    double count = 0, sum = 0, squares = 0;
    bool is_known = true;
    for (const int rank : facts.context.trace.ranks()) {
      for (const DataRow& row : facts.memory.data.rows(facts.context, i, rank)) {
        if (!judged.contains(row.step)) continue;
        is_known = is_known && row.has_values && row.nonfinite == 0;
        count += static_cast<double>(row.count);
        sum += row.sum;
        squares += row.sum_of_squares;
      }
    }
    if (!is_known || !(count > 0)) return std::nullopt;
    inputs.push_back({i, sum / count, squares / count, std::find(targets.begin(), targets.end(), i) != targets.end()});
  }
  return inputs;
}

}  // namespace ulpscope
