#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/findings/batch_text.h"
#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/findings/nonfinite_text.h"
#include "ulpscope/analyzers/judgements/loss_ends.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/run_memory.h"
#include "ulpscope/analyzers/subject/captured_sample.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/step_losses.h"
#include "ulpscope/analyzers/subject/tensor_place.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/subject/trend.h"
#include "ulpscope/emulation/magnitude_thresholds.h"
#include "ulpscope/trace/sources.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOutlierSample{"data.outlier.sample",
                                  "Outlier in {place}: {sample} reaches {largest}, while all other batches stay within {others}."};
constexpr Template kOutlierInOneBatch{"data.outlier.sample_in_one_batch",
                                      "It is in one of {batches} batches{rank}, in step {step}."};
constexpr Template kOutlierInBatches{"data.outlier.sample_in_batches",
                                     "It is in {outliers} of {batches} batches{rank}, first in step {step}."};
constexpr Template kOutlierFirstOfBatches{
    "data.outlier.first_of_batches",
    "Its batch, in step {step}{rank}, is the first of {outliers} such batches; there are {batches} in all."};
constexpr Template kOutlierBatch{
    "data.outlier.one_batch",
    "Outlier in {place}: one of {batches} batches{rank} reaches {largest}, while all others stay within {others}."};
constexpr Template kOutlierBatches{
    "data.outlier.batches",
    "Outliers in {place}: {outliers} of {batches} batches{rank} reach up to {largest}, while all others stay within {others}."};
constexpr Template kOutlierInStep{"data.outlier.in_step", "It is in step {step}."};
constexpr Template kOutliersFirstInStep{"data.outlier.first_in_step", "The first of them is in step {step}."};
constexpr Template kOutliersOwnSamples{"data.outlier.own_samples",
                                       "{samples} samples are in these batches alone, one in each; the first is {sample}."};
constexpr Template kOutliersShareSample{"data.outlier.share_sample",
                                        "Of the samples that are in no other batch, one is in all {batches} of them: {sample}."};
constexpr Template kOutlierAmongSamples{"data.outlier.one_of_samples",
                                        "At least one of the {samples} samples that are in no other batch is at fault."};
constexpr Template kOutliersOverflow{"data.outlier.overflows", "{format} overflows in {batches} of these batches."};
constexpr Template kOutlierOverflows{"data.outlier.overflows_each", "{format} overflows in each of these batches."};
constexpr Template kOneOutlierOverflows{"data.outlier.overflows_once", "It overflows {format}."};
constexpr Template kOutlierStepsSkipped{"data.outlier.skipped", "{skipped} of their {steps:count step} were skipped{scale}."};
constexpr Template kAllOutlierStepsSkipped{"data.outlier.all_skipped", "Their {steps:count step} were skipped{scale}."};
constexpr Template kOutlierStepSkipped{"data.outlier.step_skipped", "The step was skipped{scale}."};
constexpr Template kOutliersLowerScale{"data.outlier.scale_fell", ", and the loss scale fell to {scale}"};
constexpr Template kFixOutlier{"advice.fix_outlier", "Fix or drop the sample; if its value is right, normalize the data."};
constexpr Template kFixFirstOutlier{
    "advice.fix_first_outlier",
    "Fix or drop the sample, and check the other batches; if the values are right, normalize the data."};
constexpr Template kFixOutliers{"advice.fix_outliers",
                                "Fix or drop the samples at fault; if the values are right, normalize the data."};

// A batch of which something is so many times as large as in all others is none of them; of so few as one in five, and of ten at
// least.
constexpr double kOutOfLine = 30;
constexpr size_t kLeastBatches = 10;

struct Batch {
  uint64_t step;
  int32_t rank;
  uint32_t micro_batch;
  double largest;
};

// Batches of one tensor that are unlike all others, in order of their steps; each rank has its own.
struct Outliers {
  std::vector<Batch> batches, others;
  double largest = 0, largest_of_others = 0;  // magnitudes
};

std::optional<Outliers> outliers_of(const RunFacts& facts, uint32_t tensor) {
  std::vector<Batch> batches;
  for (const int32_t rank : facts.context.trace.ranks())
    for (const DataRow& row : facts.memory.data.rows(facts.context, tensor, rank))
      if (row.has_values && facts.context.options.asks_for(row.step))
        batches.push_back({row.step, rank, row.micro_batch, row.largest});
  std::stable_sort(batches.begin(), batches.end(), [](const Batch& a, const Batch& b) { return a.step < b.step; });
  const size_t n = batches.size();
  if (n < kLeastBatches) return std::nullopt;
  std::vector<double> sorted;
  for (const Batch& batch : batches) sorted.push_back(batch.largest);
  std::sort(sorted.begin(), sorted.end());
  size_t first = n - n / 5;
  while (first < n && !(sorted[first - 1] > 0 && sorted[first] > kOutOfLine * sorted[first - 1])) ++first;
  if (first == n) return std::nullopt;
  const auto others =
      std::stable_partition(batches.begin(), batches.end(), [&](const Batch& batch) { return batch.largest >= sorted[first]; });
  return Outliers{{batches.begin(), others}, {others, batches.end()}, sorted.back(), sorted[first - 1]};
}

// Where the largest value of the batch was captured, as an operand of what it broke: the sample that it is of.
std::string captured_sample(const Snapshot& trace, uint32_t tensor, const Batch& batch) {
  const Snapshot of_rank = trace.of_rank(batch.rank);
  for (const CaptureRow& node : of_rank.captures({batch.step, batch.step + 1})) {
    if (node.made_by != tensor || node.micro_batch != batch.micro_batch || node.overwritten ||
        std::abs(node.value) != batch.largest)
      continue;
    if (std::string sample = sample_of(of_rank, tensor, node); !sample.empty()) return sample;
  }
  return "";
}

// A sample, and the rank whose batch had it.
struct Sample {
  int32_t rank;
  BatchRow row;
};

// The samples that only these batches have, as far as was recorded: each of them holds what makes it unlike the others in one of
// these at least.
class SuspectedSamples {
 public:
  SuspectedSamples(const Snapshot& trace, const Outliers& outliers) : of_batch_(outliers.batches.size()) {
    // The sources of the ranks, all that differ: of one whose data are others the same numbers are other samples.
    std::vector<std::vector<SourceInfo>> kinds;
    std::set<Id> elsewhere;
    for (const int32_t rank : trace.ranks()) {
      const Snapshot of_rank = trace.of_rank(rank);
      const std::vector<SourceInfo> sources = of_rank.sources();
      const auto kind = static_cast<size_t>(std::find(kinds.begin(), kinds.end(), sources) - kinds.begin());
      if (kind == kinds.size()) kinds.push_back(sources);
      // Of a batch that was not recorded nothing is known.
      std::map<std::pair<uint64_t, uint32_t>, std::optional<size_t>> places;
      for (const Batch& batch : outliers.others)
        if (batch.rank == rank) places[{batch.step, batch.micro_batch}];
      for (size_t i = 0; i < outliers.batches.size(); ++i)
        if (const Batch& batch = outliers.batches[i]; batch.rank == rank) places[{batch.step, batch.micro_batch}] = i;
      of_rank.visit_batches({0, UINT64_MAX}, [&](std::span<const BatchRow> rows) {
        for (const BatchRow& row : rows) {
          if (row.phase == Phase::evaluation) continue;
          const Id id(kind, row.source, row.sample);
          const auto place = places.find({row.step, row.micro_batch});
          if (place == places.end()) continue;
          if (!place->second) {
            elsewhere.insert(id);
          } else {
            of_batch_[*place->second].insert(id);
            samples_.try_emplace(id, Sample{rank, row});
          }
        }
        return true;
      });
    }
    for (const Id& id : elsewhere) {
      samples_.erase(id);
      for (std::set<Id>& samples : of_batch_) samples.erase(id);
    }
  }

  // One that makes all these batches unlike the others, or the first of them.
  struct Found {
    std::string sample = {};  // as sentences have it; "": none is known to
    bool is_in_all = false;
    Sentence others = {};  // of several samples what is known, where none is
  };
  // `tensor`: the batches'; `batch`: of them, the one that is named where a capture alone tells the sample.
  Found find(const Snapshot& trace, uint32_t tensor, const Batch& batch) const {
    const auto found = [&](const Id& id) {
      const Sample& sample = samples_.at(id);
      return find_sample(trace.of_rank(sample.rank), sample.row);
    };
    const auto name_of = [&](const Id& id) { return Name{NameKind::data, sample_text(found(id))}; };
    const auto has_all = [&](const auto& has) { return std::all_of(of_batch_.begin(), of_batch_.end(), has); };
    // Where the data are not what they were, a sample of another batch may be unlike the others in this one.
    if (!has_all([](const std::set<Id>& samples) { return !samples.empty(); })) return {};
    const Id& first = *of_batch_.front().begin();
    if (has_all([](const std::set<Id>& samples) { return samples.size() == 1; })) {
      if (samples_.size() == 1) return {.sample = name_of(first).text, .is_in_all = true};
      return {.others = kOutliersOwnSamples({{"samples", samples_.size()}, {"sample", name_of(first)}})};
    }
    std::vector<Id> shared;
    for (const auto& [id, unused] : samples_)
      if (has_all([&, &wanted = id](const std::set<Id>& samples) { return samples.contains(wanted); })) shared.push_back(id);
    const bool is_shared = of_batch_.size() > 1 && shared.size() == 1;
    if (std::string captured = captured_sample(trace, tensor, batch); !captured.empty()) {
      const bool is_in_all = std::any_of(shared.begin(), shared.end(), [&](const Id& id) {
        return captured.find(fmt::format(" of {} ", found(id).name)) != std::string::npos;
      });
      return {.sample = std::move(captured), .is_in_all = is_in_all || of_batch_.size() == 1};
    }
    if (is_shared) return {.others = kOutliersShareSample({{"batches", of_batch_.size()}, {"sample", name_of(shared.front())}})};
    return {.others = kOutlierAmongSamples({{"samples", samples_.size()}})};
  }

 private:
  using Id = std::tuple<size_t, uint32_t, uint64_t>;  // the kind of sources, the source and its sample

  std::vector<std::set<Id>> of_batch_;
  std::map<Id, Sample> samples_;
};

// Of a rank: in the steps of these batches, all of them its own, the loss was far above that of the steps before, or of the run
// where there are none, or the step was skipped.
bool does_harm(const Snapshot& of_rank, StepRange asked, const std::vector<Batch>& batches) {
  constexpr double kFar = 10;
  std::vector<double> before, all;
  double worst = 0;
  bool skipped = false;
  const auto is_among = [&](uint64_t step) {
    return std::any_of(batches.begin(), batches.end(), [&](const Batch& batch) { return batch.step == step; });
  };
  visit_steps_with_losses(of_rank, asked, [&](std::span<const StepRow> rows) {
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

bool do_harm(const RunFacts& facts, const std::vector<Batch>& batches) {
  std::map<int32_t, std::vector<Batch>> by_rank;
  for (const Batch& batch : batches) by_rank[batch.rank].push_back(batch);
  return std::any_of(by_rank.begin(), by_rank.end(), [&](const auto& one) {
    return does_harm(facts.context.trace.of_rank(one.first), facts.context.options.steps, one.second);
  });
}

Sentences outlier_title(const RunFacts& facts, uint32_t tensor, const Outliers& outliers, const SuspectedSamples::Found& suspect) {
  const Batch& first = outliers.batches.front();
  const size_t n = outliers.batches.size();
  const Argument place{"place", tensor_place(facts.selection, tensor)}, others{"others", outliers.largest_of_others};
  const Argument batches{"batches", n + outliers.others.size()}, rank{"rank", of_rank(facts, first.rank)}, all{"outliers", n};
  const Argument step{"step", ordinal(first.step)};
  if (!suspect.sample.empty()) {
    const Argument sample{"sample", Name{NameKind::data, suspect.sample}};
    Sentences title = kOutlierSample({place, sample, {"largest", first.largest}, others});
    title += !suspect.is_in_all ? kOutlierFirstOfBatches({step, rank, all, batches})
             : n == 1           ? kOutlierInOneBatch({batches, rank, step})
                                : kOutlierInBatches({all, batches, rank, step});
    return title;
  }
  const Argument largest{"largest", outliers.largest};
  Sentences title = n == 1 ? kOutlierBatch({place, batches, rank, largest, others})
                           : kOutlierBatches({place, all, batches, rank, largest, others});
  title += (n == 1 ? kOutlierInStep : kOutliersFirstInStep)({step});
  title += suspect.others;
  return title;
}

// In how many of them a cast of the batch to a narrow type overflows.
Sentence overflow_of_outliers(const RunFacts& facts, uint32_t tensor, const Outliers& outliers) {
  const auto& context = facts.context;
  for (const GraphEdge& edge : context.trace.graph().uses(facts.selection.tensor(tensor).op)) {
    if (context.trace.ops()[edge.consumer].kind != OpKind::cast || edge.slot != facts.selection.tensor(tensor).slot) continue;
    for (const uint32_t cast : context.graph.made_by(edge.consumer)) {
      const TensorInfo& made = facts.selection.tensor(cast);
      if (!is_plainly_narrow(made.dtype)) continue;
      const FloatFormat& format = *info(made.dtype).format;
      const double limit = magnitude_thresholds(format, rounding_of(made)).beyond.surely_above();
      const auto count = std::count_if(outliers.batches.begin(), outliers.batches.end(),
                                       [&](const Batch& batch) { return batch.largest >= limit; });
      if (count == 0) continue;
      const Argument name{"format", format_name(format)};
      if (outliers.batches.size() == 1) return kOneOutlierOverflows({name});
      if (static_cast<size_t>(count) == outliers.batches.size()) return kOutlierOverflows({name});
      return kOutliersOverflow({name, {"batches", count}});
    }
  }
  return {};
}

Sentence skipped_for_outliers(const RunFacts& facts, const std::set<uint64_t>& steps) {
  const StepTotals& run = facts.steps();
  const auto skipped =
      static_cast<uint64_t>(std::count_if(steps.begin(), steps.end(), [&](uint64_t step) { return run.skipped.contains(step); }));
  if (skipped == 0) return {};
  const double lowest = std::fmin(run.lowest_scale, run.lowest_scale_after);
  // Where no other step was skipped, these alone took it down.
  const bool fell_for_them = skipped == run.skipped.size() && lowest < run.first.scale_before;
  const Argument scale{"scale", fell_for_them ? kOutliersLowerScale({{"scale", Value(lowest, Unit::scale)}}) : Sentence()};
  if (steps.size() == 1) return kOutlierStepSkipped({scale});
  if (skipped == steps.size()) return kAllOutlierStepsSkipped({{"steps", steps.size()}, scale});
  return kOutlierStepsSkipped({{"skipped", skipped}, {"steps", steps.size()}, scale});
}

void find_outliers(const RunFacts& facts, Findings& found) {
  const Snapshot& trace = facts.context.trace;
  for (uint32_t i = 0; i < facts.selection.size(); ++i) {
    if (!facts.selection.contains(i) || !is_training_data(facts.selection, i)) continue;
    const std::optional<Outliers> outliers = outliers_of(facts, i);
    if (!outliers) continue;
    const Batch& first = outliers->batches.front();
    std::set<uint64_t> steps;
    for (const Batch& batch : outliers->batches) steps.insert(batch.step);
    const bool has_samples = is_of_batch(facts.selection.op(i));
    const SuspectedSamples::Found suspect =
        has_samples ? SuspectedSamples(trace, *outliers).find(trace, i, first) : SuspectedSamples::Found();
    // Of a sample what its batch reaches, of several batches what any does.
    const double largest = suspect.sample.empty() ? outliers->largest : first.largest;
    Sentences title = outlier_title(facts, i, *outliers, suspect);
    title += overflow_of_outliers(facts, i, *outliers);
    title += skipped_for_outliers(facts, steps);
    const bool is_named = !suspect.sample.empty();
    Sentences advice = !is_named ? kFixOutliers() : suspect.is_in_all ? kFixOutlier() : kFixFirstOutlier();
    if (!is_named && has_samples && trace.row_count("batches") > 0)
      advice += kExportListsBatch({{"trace", trace_name(trace)}, {"step", ordinal(first.step)}});
    found.add(do_harm(facts, outliers->batches) ? Severity::warning : Severity::info, std::move(title),
              {{facts.selection.key(i, first.step, first.rank), {{"largest", first.largest}}}}, std::move(advice),
              {.tensors = {i}, .first_step = first.step, .steps = steps.size(), .value = Quantity{"largest", largest}});
  }
}

}  // namespace

extern constinit const FindingRule data_outlier{
    .code = "data.outlier",
    .part = Part::ranges,
    .raised =
        "Of ten batches or more, a fifth at most held a value 30 times as large as all others. A warning where the loss of these "
        "batches was 10 times that of the steps before, or their steps were skipped.",
    .meaning = "One sample, or a few, has a wrong value, or a feature is not normalized.",
    .help = "Fix or drop the samples that the finding names, or normalize the features.",
    .explains = kOfHugeValue + Codes{"run.diverged", "run.update_leapt", "model.values_grow", "model.dead_output", "updates.lost",
                                     "range.gradients_flushed", "range.quantization_flushed", "range.quantization_saturated",
                                     "range.quantization_unscaled", "data.targets_far", "scale.no_scale_fits"},
    .shown_by = "experiments/failures/target_wrong_in_one_sample.toml",
    .find_start = find_outliers,
};

}  // namespace ulpscope::findings
