// What the state of an optimizer says of its updates.
#include <fmt/format.h>

#include <cmath>

#include "ulpscope/analyzers/precision_facts.h"
#include "ulpscope/analyzers/ranges.h"

namespace ulpscope {

// Adam divides by the root of the second moment, corrected for its bias, plus eps. Where eps is larger than that root of every
// element, each update is less than half of what it would be without.
void RangeReport::find_damped(Report& report) const {
  Suspects suspects(selection_);
  double eps_of_worst = 0, worst = 0;
  uint64_t damped = 0, all = 0;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    const TensorInfo& tensor = selection_.tensor(i);
    const OpInfo& op = selection_.op(i);
    constexpr uint8_t kSecondMoment = 2;  // the outputs are the weight and the two moments
    if (!tensors_[i] || op.function != OpFunction::adam_update || tensor.slot != kSecondMoment) continue;
    const RangeTotals& totals = tensors_[i]->totals;
    const auto eps = attribute(op, "eps"), beta2 = attribute(op, "beta2");
    if (totals.rows == 0 || !eps || !beta2 || !(*beta2 >= 0 && *beta2 < 1)) continue;
    const uint64_t elements = totals.elements / totals.rows;
    all += elements;
    const double corrected = totals.recorded.largest / (1 - std::pow(*beta2, static_cast<double>(totals.rows)));
    if (!(totals.recorded.largest > 0) || !(*eps > std::sqrt(corrected))) continue;
    damped += elements;
    const double ratio = *eps / std::sqrt(corrected);
    if (ratio > worst) eps_of_worst = *eps;
    worst = std::max(worst, ratio);
    suspects.add(ratio, i, {{"eps_over_largest_root", ratio}, {"largest_second_moment", totals.recorded.largest}});
  }
  // Single parameters whose gradients are next to nothing, as of a bias before a normalisation, are no harm.
  if (2 * damped <= all || suspects.empty()) return;
  report.findings.push_back({"updates.damped_by_epsilon", Severity::warning,
                             fmt::format("Adam's eps, {:g}, was larger than the root of every second moment of {} of {} elements: "
                                         "it made their updates less than "
                                         "half as large.",
                                         eps_of_worst, damped, all),
                             suspects.worst(),
                             fmt::format("A smaller eps{}: where a loss is multiplied by a factor, eps has to be as well.",
                                         in_brackets({context_.settings.now(SettingKind::epsilon)})),
                             suspects.extent()});
}

}  // namespace ulpscope
