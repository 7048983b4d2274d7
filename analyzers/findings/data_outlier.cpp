#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/loss_ends.h"
#include "ulpscope/analyzers/run_analysis.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/trend.h"
#include "ulpscope/base/text.h"
#include "ulpscope/trace/sources.h"

namespace ulpscope::findings {

namespace {

// A batch of which something is so many times as large as in all others is none of them; of so few as one in five, and of ten at
// least.
constexpr double kOutOfLine = 30;
constexpr size_t kLeastBatches = 10;

struct Batch {
  uint64_t step;
  uint32_t micro_batch;
  double largest;
  auto place() const { return std::pair(step, micro_batch); }
};

// Batches of one tensor that are unlike all others, in order.
struct Outliers {
  std::vector<Batch> batches;
  size_t all = 0;
  double largest = 0, others = 0;  // magnitudes: of them, and of all others
};

std::optional<Outliers> outliers_of(const Snapshot& trace, uint32_t tensor, StepRange steps) {
  std::vector<Batch> batches;
  trace.visit_history(tensor, steps, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows)
      if (row.known == StatisticsLevel::values) batches.push_back({row.step, row.micro_batch, row.statistics.largest});
    return true;
  });
  const size_t n = batches.size();
  if (n < kLeastBatches) return std::nullopt;
  std::vector<double> sorted;
  for (const Batch& batch : batches) sorted.push_back(batch.largest);
  std::sort(sorted.begin(), sorted.end());
  size_t first = n - n / 5;
  while (first < n && !(sorted[first - 1] > 0 && sorted[first] > kOutOfLine * sorted[first - 1])) ++first;
  if (first == n) return std::nullopt;
  std::erase_if(batches, [&](const Batch& batch) { return batch.largest < sorted[first]; });
  return Outliers{std::move(batches), n, sorted.back(), sorted[first - 1]};
}

// The samples that all these batches have, and none behind the first of them that is not among them.
std::vector<BatchRow> samples_of(const Snapshot& trace, const std::vector<Batch>& batches) {
  std::vector<BatchRow> shared;
  const auto is_among = [&](const BatchRow& row) {
    const std::pair place(row.step, row.micro_batch);
    return std::any_of(batches.begin(), batches.end(), [&](const Batch& batch) { return batch.place() == place; });
  };
  std::set<std::pair<uint32_t, uint64_t>> elsewhere;
  std::map<std::pair<uint32_t, uint64_t>, std::pair<size_t, BatchRow>> counts;
  trace.visit_batches({batches.front().step, UINT64_MAX}, [&](std::span<const BatchRow> rows) {
    for (const BatchRow& row : rows) {
      if (row.phase == Phase::evaluation) continue;
      if (is_among(row))
        ++counts.try_emplace({row.source, row.sample}, 0, row).first->second.first;
      else
        elsewhere.insert({row.source, row.sample});
    }
    return true;
  });
  for (const auto& [sample, counted] : counts)
    if (counted.first == batches.size() && !elsewhere.contains(sample)) shared.push_back(counted.second);
  return shared;
}

// In their steps the loss was far above that of the steps before, or of the run where there are none, or the step was skipped.
bool does_harm(const RunFacts& facts, const std::vector<Batch>& batches) {
  constexpr double kFar = 10;
  std::vector<double> before, all;
  double worst = 0;
  bool skipped = false;
  const auto is_among = [&](uint64_t step) {
    return std::any_of(batches.begin(), batches.end(), [&](const Batch& batch) { return batch.step == step; });
  };
  facts.context.trace.of_rank(facts.context.trace.ranks().front())
      .visit_steps(facts.context.options.steps, [&](std::span<const StepRow> rows) {
        for (const StepRow& row : rows) {
          if (!row.loss_known) continue;
          if (is_among(row.step)) {
            worst = std::isfinite(row.loss) ? std::max(worst, row.loss) : INFINITY;
            skipped |= row.skipped;
          } else {
            all.push_back(row.loss);
            if (row.step < batches.front().step) before.push_back(row.loss);
          }
        }
        return true;
      });
  if (skipped || all.empty()) return true;
  if (before.size() > kEndLosses) before.erase(before.begin(), before.end() - kEndLosses);
  return !(worst <= kFar * median(before.empty() ? all : before));
}

std::string told_samples(const Snapshot& trace, const Outliers& outliers) {
  const std::vector<BatchRow> samples = samples_of(trace, outliers.batches);
  if (samples.empty()) return "";
  if (samples.size() == 1) return fmt::format("It is {}. ", find_sample(trace, samples.front()).text());
  return fmt::format("It is one of {} of that batch. ", count_of(samples.size(), "sample"));
}

void find_outliers(const RunFacts& facts, Findings& found) {
  const Snapshot& run = facts.context.trace;
  const Snapshot trace = run.of_rank(run.ranks().front());
  for (uint32_t i = 0; i < facts.selection.size(); ++i) {
    const TensorInfo& tensor = facts.selection.tensor(i);
    const OpInfo& op = facts.selection.op(i);
    if (!facts.selection.contains(i) || tensor.role != Role::input || op.kind != OpKind::source || op.phase == Phase::evaluation ||
        !is_float(tensor.dtype))
      continue;
    const std::optional<Outliers> outliers = outliers_of(trace, i, facts.context.options.steps);
    if (!outliers) continue;
    const Batch& first = outliers->batches.front();
    const size_t n = outliers->batches.size();
    RowKey key = facts.selection.key(i);
    key.step = first.step;
    found.add(
        does_harm(facts, outliers->batches) ? Severity::warning : Severity::info,
        fmt::format("{} of {} batches of {} {} unlike all others, first in step {}: the largest magnitude is {:.4g}, and {:.4g} in "
                    "the others.",
                    n == 1 ? "One" : fmt::format("{}", n), outliers->all, facts.selection.name(i), n == 1 ? "is" : "are",
                    first.step, outliers->largest, outliers->others),
        {{key, {{"largest", first.largest}}}},
        fmt::format("{}Look at that sample: mend it, leave it out, or bring its features among the others. `ulpscope export "
                    "{} --table batches --step {}` lists the batch.",
                    told_samples(trace, *outliers), shell_word(run.path()), first.step),
        {{i}, first.step});
  }
}

}  // namespace

extern constinit const FindingRule data_outlier{
    .code = "data.outlier",
    .part = Part::ranges,
    .raised =
        "Of ten batches or more a fifth at most held a value 30 times as large as all others: a warning where the loss of these "
        "was far "
        "above that of the steps before, or their steps were skipped.",
    .meaning = "One sample, or a few, is not what the others are: a wrong value, or a feature that is not normalised.",
    .help = "Look at the samples that the finding names: mend or leave them out, or normalise the features.",
    .explains = kOfHugeValue + Codes{"run.diverged", "run.update_leapt", "model.values_grow", "model.dead_output", "updates.lost",
                                     "range.gradients_flushed", "range.quantization_*", "data.targets_far", "scale.no_scale_fits"},
    .shown_by = "experiments/failures/target_wrong_in_one_sample.toml",
    .find_start = find_outliers,
};

}  // namespace ulpscope::findings
