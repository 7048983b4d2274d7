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
#include "ulpscope/analyzers/judgements/loss_ends.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/captured_sample.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/step_losses.h"
#include "ulpscope/analyzers/subject/trend.h"
#include "ulpscope/trace/sources.h"

namespace ulpscope::findings {

namespace {

constexpr Template kOneBatchUnlike{"data.outlier.one_batch", "One of {batches} batches of {tensor} is unlike all others"};
constexpr Template kBatchesUnlike{"data.outlier.batches", "{outliers} of {batches} batches of {tensor} are unlike all others"};
constexpr Template kOutlierOfRank{"data.outlier.of_rank", " of rank {rank}"};
constexpr Template kOutliers{"data.outlier",
                             "{unlike}, first in step {step}{rank}: the largest magnitude is {largest:.4g}, and {others:.4g} in "
                             "the others."};
constexpr Template kOutlierIsSample{"data.outlier.is_sample", "It is {sample}."};
constexpr Template kFirstOutlierIsSample{"data.outlier.first_is_sample", "The first is {sample}."};
constexpr Template kOutliersAreSamples{"data.outlier.are_samples", "{samples} samples make them so, the first is {sample}."};
constexpr Template kOutliersShareSample{"data.outlier.share_sample",
                                        "Of the samples that no other batch has, one is in all {batches} of them: {sample}."};
constexpr Template kOneOfSamplesAtFault{"data.outlier.one_of_samples",
                                        "At least one of the {samples} samples that no other batch has is at fault."};
constexpr Template kThatSample{"place.that_sample", "that sample"};
constexpr Template kThatSampleAndOthers{"place.that_sample_and_others", "that sample and those of the other batches"};
constexpr Template kTheseSamples{"place.these_samples", "these samples"};
constexpr Template kSamplesOfThatBatch{"place.samples_of_that_batch", "the samples of that batch"};
constexpr Template kMendOutlier{"advice.mend_outlier",
                                "Look at {samples}: mend or leave out what is wrong, or bring its values among the others."};

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

std::optional<Outliers> outliers_of(const Snapshot& trace, uint32_t tensor, StepRange steps) {
  std::vector<Batch> batches;
  for (const int32_t rank : trace.ranks())
    trace.of_rank(rank).visit_history(tensor, steps, [&](std::span<const TensorRow> rows) {
      for (const TensorRow& row : rows)
        if (row.known == StatisticsLevel::values) batches.push_back({row.step, rank, row.micro_batch, row.statistics.largest});
      return true;
    });
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

  // "It is sample 60 of train: inputs in x.csv, row 60 (from 0). Look at that sample: mend or leave out what is wrong ...".
  // `tensor`: the batches'; `batch`: of them, the one that is named where a capture alone tells the sample.
  Sentences advice(const Snapshot& trace, uint32_t tensor, const Batch& batch) const {
    const auto name_of_sample = [&](const Id& id) {
      const Sample& sample = samples_.at(id);
      return Name{NameKind::data, find_sample(trace.of_rank(sample.rank), sample.row).text()};
    };
    const auto look_at = [](const Template& samples) { return kMendOutlier({{"samples", samples()}}); };
    const auto has_all = [&](const auto& has) { return std::all_of(of_batch_.begin(), of_batch_.end(), has); };
    // Where the data are not what they were, a sample of another batch may be unlike the others in this one.
    if (!has_all([](const std::set<Id>& samples) { return !samples.empty(); })) return look_at(kSamplesOfThatBatch);
    if (has_all([](const std::set<Id>& samples) { return samples.size() == 1; })) {
      const Name first = name_of_sample(*of_batch_.front().begin());
      if (samples_.size() == 1) return {kOutlierIsSample({{"sample", first}}), look_at(kThatSample)};
      return {kOutliersAreSamples({{"samples", samples_.size()}, {"sample", first}}), look_at(kTheseSamples)};
    }
    std::vector<Id> shared;
    for (const auto& [id, unused] : samples_)
      if (has_all([&, &wanted = id](const std::set<Id>& samples) { return samples.contains(wanted); })) shared.push_back(id);
    if (of_batch_.size() > 1 && shared.size() == 1)
      return {kOutliersShareSample({{"batches", of_batch_.size()}, {"sample", name_of_sample(shared.front())}}),
              look_at(kThatSample)};
    if (const std::string captured = captured_sample(trace, tensor, batch); !captured.empty()) {
      const Name sample{NameKind::data, captured};
      if (of_batch_.size() == 1) return {kOutlierIsSample({{"sample", sample}}), look_at(kThatSample)};
      return {kFirstOutlierIsSample({{"sample", sample}}), look_at(kThatSampleAndOthers)};
    }
    return {kOneOfSamplesAtFault({{"samples", samples_.size()}}), look_at(kTheseSamples)};
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

void find_outliers(const RunFacts& facts, Findings& found) {
  const Snapshot& trace = facts.context.trace;
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
    std::set<uint64_t> steps;
    for (const Batch& batch : outliers->batches) steps.insert(batch.step);
    const Value batches = n + outliers->others.size();
    const Name name = tensor_name(facts.selection, i);
    const Sentence unlike = n == 1 ? kOneBatchUnlike({{"batches", batches}, {"tensor", name}})
                                   : kBatchesUnlike({{"outliers", n}, {"batches", batches}, {"tensor", name}});
    const Sentence rank = trace.ranks().size() > 1 ? kOutlierOfRank({{"rank", ordinal(first.rank)}}) : Sentence();
    Sentences advice = SuspectedSamples(trace, *outliers).advice(trace, i, first);
    advice += kExportListsBatch({{"trace", trace_name(trace)}, {"step", ordinal(first.step)}});
    found.add(do_harm(facts, outliers->batches) ? Severity::warning : Severity::info,
              kOutliers({{"unlike", unlike},
                         {"step", ordinal(first.step)},
                         {"rank", rank},
                         {"largest", outliers->largest},
                         {"others", outliers->largest_of_others}}),
              {{facts.selection.key(i, first.step, first.rank), {{"largest", first.largest}}}}, std::move(advice),
              {.tensors = {i}, .first_step = first.step, .steps = steps.size(), .value = Quantity{"largest", outliers->largest}});
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
