#include "ulpscope/kernels/cpu/block_output.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "ulpscope/kernels/cpu/parallel.h"

namespace ulpscope::cpu {

int64_t BlockOutput::rows_of_piece(int64_t row, int64_t most_blocks) {
  const int64_t aligned = kStatisticsBlock / std::gcd(kStatisticsBlock, row);
  return aligned * row <= most_blocks * kStatisticsBlock ? aligned : blocks_of(kStatisticsBlock, row);
}

BlockOutput::BlockOutput(Context& context, const OpCall& call, int slot, int64_t piece)
    : context_(context), size_(call.outputs[slot].size()), piece_(std::min(piece, std::max<int64_t>(size_, 1))) {
  const TensorView& view = call.outputs[slot];
  if (view.dtype == DType::f32 || view.data == nullptr) {
    floats_ = view.as<float>();
  } else {
    encodings_ = view.data;
    narrow_ = &narrow_format(*info(view.dtype).format);
    if (const OutputRounding rounding(call, slot, view.dtype); rounding.is_special()) rounding_.emplace(rounding);
  }
  record_ = wanted_record(call, slot);
  if (record_ == nullptr) return;
  collector_.emplace(*record_, size_, narrow_ != nullptr && !rounding_ ? narrow_->format : nullptr);
  if (encodings_ != nullptr && shares_blocks()) {
    shared_.emplace(context.allocator, static_cast<size_t>(blocks_of(size_, piece_) * kStatisticsBlock) * sizeof(float));
  }
}

void BlockOutput::store(int64_t begin, const float* values, int64_t n) {
  if (encodings_ == nullptr) {
    if (floats_ != nullptr && values != floats_ + begin)
      std::memcpy(floats_ + begin, values, static_cast<size_t>(n) * sizeof(float));
  } else if (rounding_) {
    void* elements = narrow_->at(encodings_, begin);
    rounding_->round(values, begin, n, elements);
    if (record_ == nullptr) return;
    const RoundingCounts of_piece = rounding_->count(values, begin, n, elements, record_->scale);
    const std::lock_guard lock(mutex_);
    counts_.merge(of_piece);
  } else {
    narrow_->round_all(values, narrow_->at(encodings_, begin), static_cast<size_t>(n));
  }
}

// The first boundary between pieces within the block names its place among the shared ones.
float* BlockOutput::kept(int64_t block_begin) const {
  if (floats_ != nullptr) return floats_ + block_begin;
  return shared_->as<float>() + (block_begin / piece_) * kStatisticsBlock;
}

void BlockOutput::put_block(int64_t block, const float* values, int64_t n) {
  const int64_t begin = block * kStatisticsBlock;
  if (encodings_ != nullptr && !rounding_) {
    collector_->add_and_encode(block, values, n, narrow_->at(encodings_, begin));
  } else {
    collector_->add(block, values, n);
    store(begin, values, n);
  }
}

void BlockOutput::put(int64_t begin, const float* values, int64_t n) {
  if (!collector_) return store(begin, values, n);
  const int64_t end = begin + n;
  while (begin < end) {
    const int64_t block = begin / kStatisticsBlock, block_begin = block * kStatisticsBlock;
    const int64_t block_end = std::min(block_begin + kStatisticsBlock, size_);
    const int64_t count = std::min(end, block_end) - begin;
    if (begin == block_begin && begin + count == block_end) {
      put_block(block, values, count);
    } else {
      if (shared_) {
        std::memcpy(kept(block_begin) + (begin - block_begin), values, static_cast<size_t>(count) * sizeof(float));
      }
      store(begin, values, count);
    }
    begin += count;
    values += count;
  }
}

void BlockOutput::finish() {
  if (!collector_) return;
  if (shares_blocks()) {
    parallel_for(context_, blocks_of(size_, piece_) - 1, true, [&](int64_t i) {
      const int64_t boundary = (i + 1) * piece_, block = boundary / kStatisticsBlock, block_begin = block * kStatisticsBlock;
      const bool first_of_block = boundary - piece_ <= block_begin;
      if (boundary == block_begin || !first_of_block) return;
      collector_->add(block, kept(block_begin), std::min(kStatisticsBlock, size_ - block_begin));
    });
  }
  collector_->finish();
  if (!rounding_) return;
  record_->before_rounding = record_->rounding_known = true;
  record_->rounding.merge(counts_);
}

}  // namespace ulpscope::cpu
