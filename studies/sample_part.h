// Part of what a step read: some rows of its batches, and of each row part of a sequence or image.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ulpscope/core/data/kept_samples.h"

namespace ulpscope {

// Of a dimension, from one on.
struct Places {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
};

// What a step read of a batch, and the rows of it that are taken.
struct RowsOfBatch {
  size_t batch = 0;
  std::vector<size_t> rows;
};

// The dimensions of a sample that may be shorter: places of a sequence, which is [places] of indices or [places, features], or
// height and width of an image, [channels, height, width].
std::vector<size_t> dimensions_of(std::span<const int64_t> sample, bool is_indices);

// The same places of the sample's target, where it has them; whole otherwise.
std::vector<Places> target_extents(std::span<const int64_t> sample, std::span<const int64_t> target, std::span<const Places> taken,
                                   bool is_indices);

// `batches`: all that the step read, their numbers those that Dataset::origin_of gives; `like`: what kind of samples they are.
// `extents`: one for each dimension of a sample.
KeptSamples part_of(std::span<const Batch> batches, const KeptSamples& like, std::span<const RowsOfBatch> rows,
                    std::span<const Places> extents);

}  // namespace ulpscope
