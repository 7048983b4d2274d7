#include <cmath>
#include <span>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope::findings {

namespace {

constexpr Template kLossIsHigher{"compare.loss_higher",
                                 "The second run's loss is higher: in the last {steps} common steps its losses have the mean "
                                 "{mean_b:.4g}, those of the first run {mean_a:.4g}."};
constexpr Template kTableOfTensorsBelow{"advice.table_of_tensors_below",
                                        "The table of tensors below begins with those whose ranges differ most; `ulpscope "
                                        "report` of the second trace looks for causes."};

struct Losses {
  double mean = 0, variance = 0;
};
Losses of(std::span<const LossComparison::Step> steps, double LossComparison::Step::*loss) {
  const auto n = static_cast<double>(steps.size());
  Losses losses;
  for (const LossComparison::Step& step : steps) losses.mean += step.*loss / n;
  for (const LossComparison::Step& step : steps)
    losses.variance += (step.*loss - losses.mean) * (step.*loss - losses.mean) / (n - 1);
  return losses;
}

// Whether the second run's losses in the last common steps are higher than the first's by more than these vary: twice the error of
// the difference of their means, and a twentieth.
void find_higher_loss(const ComparedRuns& runs, Findings& found) {
  if (!runs.are_comparable() || !runs.have_enough_losses()) return;
  const size_t n = runs.losses.last.size() / 2;
  const std::span<const LossComparison::Step> last = std::span(runs.losses.last).last(n);
  const Losses a = of(last, &LossComparison::Step::a), b = of(last, &LossComparison::Step::b);
  const double error = std::sqrt((a.variance + b.variance) / static_cast<double>(n));
  if (!(b.mean - a.mean > 2 * error) || !(b.mean - a.mean > 0.05 * std::fabs(a.mean))) return;
  found.add(Severity::warning, kLossIsHigher({{"steps", n}, {"mean_b", b.mean}, {"mean_a", a.mean}}),
            {{{}, {{"mean_a", a.mean}, {"mean_b", b.mean}, {"error_of_the_difference", error}}}}, kTableOfTensorsBelow());
}

}  // namespace

extern constinit const FindingRule compare_loss_higher{
    .code = "compare.loss_higher",
    .part = Part::compare,
    .raised =
        "The second run's losses in the last common steps are higher than the first's by more than they vary, and by a twentieth. "
        "Both have one seed and, as far as samples were recorded, trained on the same ones.",
    .meaning = "It learns less.",
    .help = "The table of tensors, which begins with those whose ranges differ most, and `ulpscope report` of the second trace.",
    .compare = find_higher_loss,
};

}  // namespace ulpscope::findings
