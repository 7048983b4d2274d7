// Samples in memory, whatever data they come from: what a capsule has of them, and what stands for the data of part of a run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ulpscope/core/data/dataset.h"

namespace ulpscope {

struct KeptSamples {
  Batch batch;  // all of them; its numbers are those that they had in the data that they come from, ascending
  TargetKind target_kind = TargetKind::labels;
  int64_t input_indices = 0, classes = 0;  // as Dataset has them
  std::vector<int64_t> origins = {};       // of each, as Dataset::origin_of

  // Where among them the sample is that had this number; -1: it is not there.
  int64_t place_of(int64_t number) const;
};

// These samples of a data set, their numbers ascending.
KeptSamples keep_samples(const Dataset& data, std::span<const int64_t> numbers);

class KeptDataset : public Dataset {
 public:
  explicit KeptDataset(KeptSamples samples);
  int64_t size() const override { return samples_.batch.samples(); }
  const std::vector<int64_t>& input_shape() const override { return input_shape_; }
  const std::vector<int64_t>& target_shape() const override { return target_shape_; }
  int64_t input_indices() const override { return samples_.input_indices; }
  TargetKind target_kind() const override { return samples_.target_kind; }
  int64_t classes() const override { return samples_.classes; }
  std::vector<SourceInfo> sources() const override;
  int64_t origin_of(int64_t index) const override { return samples_.origins[static_cast<size_t>(index)]; }
  void fill_batch(std::span<const int64_t> indices, Batch& batch) const override;
  const KeptSamples& samples() const { return samples_; }

 private:
  KeptSamples samples_;
  std::vector<int64_t> input_shape_, target_shape_;  // of one sample
};

}  // namespace ulpscope
