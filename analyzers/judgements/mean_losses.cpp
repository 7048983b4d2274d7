#include "ulpscope/analyzers/judgements/mean_losses.h"

#include <span>
#include <tuple>
#include <utility>

#include "ulpscope/analyzers/totals/compared_runs.h"

namespace ulpscope {

namespace {

constexpr Template kChange{"compare.change", ", {change:+.1f%}"};
constexpr Template kHardlyApart{"compare.hardly_apart", ", less than {least:%} apart"};

}  // namespace

Sentence MeanLosses::change() const {
  constexpr double kLeast = 0.001;
  if (a == 0) return {};
  const double change = (b - a) / std::fabs(a);
  if (std::fabs(change) < kLeast) return kHardlyApart({{"least", {kLeast, Unit::share}}});
  return kChange({{"change", {change, Unit::share}}});
}

MeanLosses mean_losses(const ComparedRuns& runs) {
  const std::vector<LossComparison::Step>& kept = runs.losses.last;
  const size_t n = kept.size() / 2;
  MeanLosses found{.steps = n};
  const auto mean_and_variance = [&](double LossComparison::Step::*loss) {
    double mean = 0, variance = 0;
    for (const LossComparison::Step& step : std::span(kept).last(n)) mean += step.*loss / static_cast<double>(n);
    for (const LossComparison::Step& step : std::span(kept).last(n))
      variance += (step.*loss - mean) * (step.*loss - mean) / static_cast<double>(n - 1);
    return std::pair(mean, variance);
  };
  double of_a = 0, of_b = 0;
  std::tie(found.a, of_a) = mean_and_variance(&LossComparison::Step::a);
  std::tie(found.b, of_b) = mean_and_variance(&LossComparison::Step::b);
  found.error = std::sqrt((of_a + of_b) / static_cast<double>(n));
  return found;
}

}  // namespace ulpscope
