#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/compared_runs.h"
#include "ulpscope/analyzers/findings/finding_rule.h"

namespace ulpscope::findings {

namespace {

// Whether the second run's last losses are higher than the first's by more than these vary: twice the error of the difference of
// their means, and a twentieth.
void find_higher_loss(const ComparedRuns& runs, Findings& found) {
  if (!runs.have_enough_losses()) return;
  const StepTotals &a = runs.a.steps, &b = runs.b.steps;
  const size_t n = std::min(a.last_losses.size(), b.last_losses.size()) / 2;
  const double mean_a = a.mean_loss(n), mean_b = b.mean_loss(n);
  const auto variance = [n](const std::vector<double>& losses, double mean) {
    double sum = 0;
    for (size_t i = losses.size() - n; i < losses.size(); ++i) sum += (losses[i] - mean) * (losses[i] - mean);
    return sum / static_cast<double>(n - 1);
  };
  const double error = std::sqrt((variance(a.last_losses, mean_a) + variance(b.last_losses, mean_b)) / static_cast<double>(n));
  if (!(mean_b - mean_a > 2 * error) || !(mean_b - mean_a > 0.05 * std::fabs(mean_a))) return;
  found.add(Severity::warning,
            fmt::format("The second run's loss is higher: its last {} losses have the mean {:.4g}, those of the first run {:.4g}.",
                        n, mean_b, mean_a),
            {{{}, {{"mean_a", mean_a}, {"mean_b", mean_b}, {"error_of_the_difference", error}}}},
            "`ulpscope report` of the second trace says what was lost there; the table below, where its numbers differ most.");
}

}  // namespace

extern constinit const FindingRule compare_loss_higher{
    .code = "compare.loss_higher",
    .part = Part::compare,
    .raised = "The second run's last losses are higher than the first's by more than they vary, and by a twentieth.",
    .meaning = "It learns less.",
    .help = "`ulpscope report` of the second trace.",
    .compare = find_higher_loss,
};

}  // namespace ulpscope::findings
