#include "ulpscope/studies/sample_part.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace ulpscope {

namespace {

// Appends the elements of `values`, a row-major block of `shape`, that lie within the extents.
template <typename T>
void append(const T* values, std::span<const int64_t> shape, std::span<const Places> extents, std::vector<T>& to) {
  if (shape.empty()) {
    to.push_back(*values);
    return;
  }
  const int64_t stride = std::accumulate(shape.begin() + 1, shape.end(), int64_t{1}, std::multiplies<>());
  for (int64_t i = extents[0].begin; i < extents[0].end; ++i) append(values + i * stride, shape.subspan(1), extents.subspan(1), to);
}

template <typename T>
void append_row(const std::vector<T>& from, std::span<const int64_t> batch_shape, size_t row, std::span<const Places> extents,
                std::vector<T>& to) {
  if (from.empty()) return;
  const size_t size = from.size() / static_cast<size_t>(batch_shape[0]);
  append(from.data() + row * size, batch_shape.subspan(1), extents, to);
}

std::vector<int64_t> shape_of(int64_t count, std::span<const Places> extents) {
  std::vector<int64_t> shape{count};
  for (const Places& extent : extents) shape.push_back(extent.size());
  return shape;
}

}  // namespace

std::vector<size_t> dimensions_of(std::span<const int64_t> sample, bool is_indices) {
  if (sample.size() == 3) return {1, 2};
  if (sample.size() == 2 || (sample.size() == 1 && is_indices)) return {0};
  return {};
}

std::vector<Places> target_extents(std::span<const int64_t> sample, std::span<const int64_t> target, std::span<const Places> taken,
                                   bool is_indices) {
  std::vector<Places> extents;
  for (const int64_t extent : target) extents.push_back({0, extent});
  const std::vector<size_t> dimensions = dimensions_of(sample, is_indices);
  // Labels of an image's places have no channels.
  const size_t shift = sample.size() == 3 && target.size() == 2 ? 1 : 0;
  for (const size_t dimension : dimensions) {
    const size_t there = dimension - shift;
    if (there >= target.size() || target[there] != sample[dimension]) return extents;
  }
  for (const size_t dimension : dimensions) extents[dimension - shift] = taken[dimension];
  return extents;
}

KeptSamples part_of(std::span<const Batch> batches, const KeptSamples& like, std::span<const RowsOfBatch> rows,
                    std::span<const Places> extents) {
  KeptSamples part{{}, like.target_kind, like.input_indices, like.classes};
  Batch& to = part.batch;
  std::vector<Places> of_target;
  for (const RowsOfBatch& taken : rows) {
    const Batch& from = batches[taken.batch];
    const std::span<const int64_t> sample(from.input_shape), target(from.target_shape);
    of_target = target_extents(sample.subspan(1), target.subspan(1), extents, like.input_indices > 0);
    to.input_type = from.input_type;
    for (const size_t row : taken.rows) {
      append_row(from.inputs, sample, row, extents, to.inputs);
      append_row(from.indices, sample, row, extents, to.indices);
      append_row(from.labels, target, row, of_target, to.labels);
      append_row(from.values, target, row, of_target, to.values);
      to.numbers.push_back(static_cast<int64_t>(to.numbers.size()));
      part.origins.push_back(from.numbers[row]);
    }
  }
  to.input_shape = shape_of(static_cast<int64_t>(to.numbers.size()), extents);
  to.target_shape = shape_of(static_cast<int64_t>(to.numbers.size()), of_target);
  return part;
}

}  // namespace ulpscope
