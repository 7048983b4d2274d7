#include "ulpscope/studies/guessing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ulpscope/analyzers/subject/trend.h"

namespace ulpscope {

namespace {

// Of the first samples, few enough that their inputs take little memory.
std::vector<double> first_targets(const Dataset& data) {
  constexpr int64_t kMostSamples = 1024, kMostInputs = 1 << 22;
  int64_t inputs = 1;
  for (const int64_t extent : data.input_shape()) inputs *= extent;
  std::vector<int64_t> samples(
      static_cast<size_t>(std::min({data.size(), kMostSamples, std::max<int64_t>(kMostInputs / inputs, 1)})));
  std::iota(samples.begin(), samples.end(), 0);
  Batch batch;
  data.fill_batch(samples, batch);
  std::vector<double> targets;
  for (const float value : batch.values)
    if (std::isfinite(value)) targets.push_back(value);
  return targets;
}

template <typename Loss>
double mean_of(const std::vector<double>& targets, Loss&& loss) {
  double sum = 0;
  for (const double target : targets) sum += loss(target);
  return sum / static_cast<double>(targets.size());
}

// Without loss.factor.
std::optional<double> least_by_guessing(const LossSettings& loss, const Dataset& data, const SampleShape& output) {
  switch (loss.function) {
    case LossFunction::cross_entropy:
    case LossFunction::nll:
      return output.empty() ? std::nullopt : std::optional(std::log(static_cast<double>(output.back())));
    case LossFunction::bce_with_logits:
    case LossFunction::binary_cross_entropy:
      return std::log(2);
    case LossFunction::kl_div:
      return std::nullopt;
    default:
      break;
  }
  const std::vector<double> targets = first_targets(data);
  if (targets.empty()) return std::nullopt;
  if (loss.function == LossFunction::mse) {
    const double mean = mean_of(targets, [](double target) { return target; });
    return mean_of(targets, [&](double target) { return (target - mean) * (target - mean); });
  }
  const double middle = median(targets);
  return mean_of(targets, [&](double target) {
    const double off = std::abs(target - middle);
    if (loss.function == LossFunction::l1) return off;
    return off < loss.delta ? off * off / 2 : loss.delta * (off - loss.delta / 2);
  });
}

}  // namespace

std::optional<double> loss_of_guessing(const Experiment& experiment, const Dataset& data, const SampleShape& output) {
  const std::optional<double> loss = least_by_guessing(experiment.loss, data, output);
  return loss ? std::optional(*loss * experiment.loss.factor) : std::nullopt;
}

}  // namespace ulpscope
