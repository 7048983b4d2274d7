#include "ulpscope/core/data/kept_samples.h"

#include <algorithm>

#include "ulpscope/base/error.h"
#include "ulpscope/core/data/sources.h"

namespace ulpscope {

namespace {

// The rows of `from` by their numbers; each has the same size, and there are `count` of them.
template <typename T>
void take_rows(const std::vector<T>& from, size_t count, std::span<const int64_t> rows, std::vector<T>& to) {
  const size_t size = from.size() / count;
  to.resize(rows.size() * size);
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy_n(from.begin() + rows[i] * static_cast<std::ptrdiff_t>(size), size,
                to.begin() + static_cast<std::ptrdiff_t>(i * size));
}

}  // namespace

int64_t KeptSamples::place_of(int64_t number) const {
  const auto place = std::lower_bound(batch.numbers.begin(), batch.numbers.end(), number);
  return place != batch.numbers.end() && *place == number ? place - batch.numbers.begin() : -1;
}

KeptSamples keep_samples(const Dataset& data, std::span<const int64_t> numbers) {
  KeptSamples kept{{}, data.target_kind(), data.input_indices(), data.classes()};
  data.fill_batch(numbers, kept.batch);
  kept.batch.numbers.assign(numbers.begin(), numbers.end());
  for (const int64_t number : numbers) kept.origins.push_back(data.origin_of(number));
  return kept;
}

KeptDataset::KeptDataset(KeptSamples samples)
    : samples_(std::move(samples)),
      input_shape_(samples_.batch.input_shape.begin() + 1, samples_.batch.input_shape.end()),
      target_shape_(samples_.batch.target_shape.begin() + 1, samples_.batch.target_shape.end()) {}

std::vector<SourceInfo> KeptDataset::sources() const {
  // One for all that stood one behind the other.
  std::vector<SourceInfo> sources;
  for (int64_t i = 0; i < size(); ++i) {
    if (i == 0 || origin_of(i) != origin_of(i - 1) + 1) {
      sources.push_back(source_in("the data that the capsule was trained on"));
      sources.back().first_sample = static_cast<uint64_t>(i);
      sources.back().first_row = static_cast<uint64_t>(origin_of(i));
    }
    ++sources.back().samples;
  }
  return sources;
}

void KeptDataset::fill_batch(std::span<const int64_t> indices, Batch& batch) const {
  const Batch& all = samples_.batch;
  const auto count = static_cast<size_t>(size());
  take_rows(all.inputs, count, indices, batch.inputs);
  take_rows(all.indices, count, indices, batch.indices);
  take_rows(all.labels, count, indices, batch.labels);
  take_rows(all.values, count, indices, batch.values);
  batch.input_type = all.input_type;
  batch.input_shape = all.input_shape;
  batch.target_shape = all.target_shape;
  batch.input_shape[0] = batch.target_shape[0] = static_cast<int64_t>(indices.size());
}

DataSplits open_capsule(const DataSettings&, const DataUse&) {
  throw usage_error(
      "data.kind = \"capsule\": these are the samples that a capsule holds, for `ulpscope replay` of it or `ulpscope train "
      "--resume`; expected another kind");
}

}  // namespace ulpscope
