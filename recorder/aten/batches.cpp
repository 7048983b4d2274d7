#include "ulpscope/recorder/aten/batches.h"

#include <algorithm>

namespace ulpscope::aten {
namespace {

// The bytes from a row to the next, along the first dimension.
int64_t row_of(const Tensor& tensor) { return tensor.strides[0] * element_size(tensor); }

// The bytes that a row spans, along the first dimension.
int64_t span_of_row(const Tensor& tensor) {
  int64_t last = 0;
  for (int32_t i = 1; i < tensor.rank; ++i) last += (tensor.shape[i] - 1) * tensor.strides[i];
  return (last + 1) * element_size(tensor);
}

}  // namespace

Batches::~Batches() {
  for (const auto& [storage, held] : held_) adapter_.release(adapter_.context, storage);
}

void Batches::deliver(const Tensor& tensor, const BatchPart& part) {
  if (!tensor.is_present || tensor.unreadable != nullptr || tensor.storage == 0 || count_of_elements(tensor) == 0) return;
  BatchPart of_tensor = part;
  // All that comes of one sample is that sample's, whatever its shape.
  of_tensor.is_in_rows = part.count == 1 || (part.is_in_rows && tensor.rank > 0 && tensor.shape[0] == part.count);
  Held held{of_tensor, extent_of(tensor), count_of_elements(tensor), tensor.rank == 0 ? 0 : row_of(tensor)};
  if (held_.insert_or_assign(tensor.storage, held).second) adapter_.retain(adapter_.context, tensor.storage);
}

void Batches::forget(const Tensor& tensor) {
  if (held_.erase(tensor.storage) > 0) adapter_.release(adapter_.context, tensor.storage);
}

std::optional<BatchPart> Batches::find(const Tensor& tensor) const {
  const auto at = held_.find(tensor.storage);
  if (at == held_.end() || tensor.unreadable != nullptr || count_of_elements(tensor) == 0) return std::nullopt;
  const Held& held = at->second;
  BatchPart part = held.part;
  const Extent extent = extent_of(tensor);
  if (extent.begin < held.extent.begin || extent.end > held.extent.end) return std::nullopt;
  if (part.count == 1) return part;
  if (part.is_in_rows && tensor.rank > 0 && held.row > 0) {
    const auto offset = static_cast<int64_t>(extent.begin - held.extent.begin);
    const bool has_rows = tensor.shape[0] == 1 || row_of(tensor) == held.row;
    if (has_rows && offset % held.row + span_of_row(tensor) <= held.row && offset / held.row + tensor.shape[0] <= part.count) {
      part.first += offset / held.row;
      part.count = tensor.shape[0];
      return part;
    }
  }
  // In another order it is still of these samples, where it is all of them.
  const bool is_all =
      extent.begin == held.extent.begin && extent.end == held.extent.end && count_of_elements(tensor) == held.elements;
  if (!is_all) return std::nullopt;
  // A tensor whose rows are not the samples, as of a batch that was transposed before it was handed over, stays what it was said to
  // be.
  part.is_in_rows = part.is_in_rows && row_of(tensor) == held.row && tensor.shape[0] == part.count;
  return part;
}

void Batches::follow(std::span<const Tensor* const> reads, std::span<const Tensor* const> results, bool keeps_rows) {
  if (held_.empty()) return;
  std::optional<BatchPart> part;
  bool is_one = true;
  std::optional<int32_t> rank;
  for (const Tensor* const tensor : reads) {
    const std::optional<BatchPart> each = find(*tensor);
    if (!each) {
      is_one = is_one && !held_.contains(tensor->storage);  // a part of a batch that cannot be told
      continue;
    }
    if (part) is_one = is_one && each->batch == part->batch && each->first == part->first && each->count == part->count;
    keeps_rows = keeps_rows && each->is_in_rows;
    part = each;
    rank = std::max(rank.value_or(0), tensor->rank);
  }
  for (const Tensor* const result : results) {
    const auto shape = shape_of(*result);
    // Where no dimension has as many places as there are samples, some may have been left out.
    if (!part || !is_one || std::find(shape.begin(), shape.end(), part->count) == shape.end()) {
      forget(*result);
      continue;
    }
    BatchPart of_result = *part;
    of_result.is_in_rows = keeps_rows && result->rank > 0 && result->rank <= *rank && result->shape[0] == part->count;
    deliver(*result, of_result);
  }
}

void Batches::prune() {
  std::erase_if(held_, [&](const auto& each) {
    if (adapter_.is_expired(adapter_.context, each.first) == 0) return false;
    adapter_.release(adapter_.context, each.first);
    return true;
  });
}

}  // namespace ulpscope::aten
