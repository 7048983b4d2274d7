// Element access and sums that the plain twins share. Slow and simple.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/emulation/narrow_format.h"
#include "ulpscope/kernels/op_call.h"
#include "ulpscope/kernels/reduction_order.h"
#include "ulpscope/kernels/store.h"

namespace ulpscope::plain {

// The element at `offset` from the view's start, widened to C.
template <typename C>
C load(const TensorView& view, int64_t offset) {
  switch (view.dtype) {
    case DType::f64:
      return static_cast<C>(view.as<const double>()[offset]);
    case DType::f32:
      return static_cast<C>(view.as<const float>()[offset]);
    case DType::f16:
    case DType::bf16:
    case DType::f8_e4m3:
    case DType::f8_e5m2:
      return static_cast<C>(narrow_format(*info(view.dtype).format).widen_at(view.data, offset));
    case DType::i64:
      return static_cast<C>(view.as<const int64_t>()[offset]);
    case DType::i32:
      return static_cast<C>(view.as<const int32_t>()[offset]);
    case DType::u8:
    case DType::boolean:
      return static_cast<C>(view.as<const uint8_t>()[offset]);
  }
  return C{};
}

// The element at logical index `index`.
template <typename C>
C at(const TensorView& view, int64_t index) {
  return load<C>(view, offset_of(view, index));
}

// All elements, widened, in logical order.
template <typename C>
std::vector<C> widen(const TensorView& view) {
  std::vector<C> values(static_cast<size_t>(view.size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = at<C>(view, static_cast<int64_t>(i));
  return values;
}

// The wide values of one output, stored when store() is called.
template <typename C>
class Output {
 public:
  Output(const OpCall& call, int slot)
      : call_(&call), slot_(slot), values_(static_cast<size_t>(view().size())), contiguous_(is_contiguous(view())) {}
  C& operator[](int64_t index) { return values_[static_cast<size_t>(contiguous_ ? index : offset_of(view(), index))]; }
  void store() { store_output(*call_, slot_, values_.data()); }
  // Of values that were rounded at every step; `wide`, which is overwritten, is the output without that.
  void store_stepwise(Output& wide) {
    StepwiseOutput out(*call_, slot_);
    const int64_t size = view().size();
    for (int64_t begin = 0; begin < size; begin += kStatisticsBlock)
      out.put(begin / kStatisticsBlock, values_.data() + begin, wide.values_.data() + begin,
              std::min(kStatisticsBlock, size - begin));
    out.finish();
  }

 private:
  const TensorView& view() const { return call_->outputs[static_cast<size_t>(slot_)]; }

  const OpCall* call_;
  int slot_;
  std::vector<C> values_;
  bool contiguous_;
};

template <typename C, typename Term>
C block_sum(int64_t n, Term term) {
  std::array<C, kSumLanes> lanes{};
  for (int64_t i = 0; i < n; ++i) lanes[i % kSumLanes] += term(i);
  add_lanes(lanes.data());
  return lanes[0];
}

// term(0) + ... + term(n - 1) in the order of reduction_order.h, with blocks of this size.
template <typename C, int64_t block = kReductionBlock, typename Term>
C ordered_sum(int64_t n, Term term) {
  if (n == 0) return C{};
  std::vector<C> blocks;
  for (int64_t begin = 0; begin < n; begin += block) {
    blocks.push_back(block_sum<C>(std::min(block, n - begin), [&](int64_t i) { return term(begin + i); }));
  }
  merge_by_tree(blocks.data(), static_cast<int64_t>(blocks.size()), [](C a, C b) { return a + b; });
  return blocks[0];
}

// The logical indices of the elements over some dimensions of a tensor, the others at 0, in the order of a list of dimensions.
class IndexList {
 public:
  IndexList(const TensorView& view, const DimensionList& list) {
    const TensorView logical = contiguous(view);
    for (int k = 0; k < list.count; ++k) {
      const int64_t extent = view.shape[list.dimensions[k]], stride = logical.strides[list.dimensions[k]];
      size_ *= extent;
      if (count_ > 0 && parts_[count_ - 1].stride == extent * stride) {
        parts_[count_ - 1] = {parts_[count_ - 1].extent * extent, stride};
      } else {
        parts_[count_++] = {extent, stride};
      }
    }
  }
  // The dimensions in `mask`, in memory order.
  static IndexList reduced(const TensorView& view, unsigned mask = ~0u) { return {view, dimensions_in_memory_order(view, mask)}; }
  // Those that are not, in logical order.
  static IndexList kept(const TensorView& view, unsigned mask) {
    return {view, dimensions_in_memory_order(contiguous(view), ~mask)};
  }

  int64_t size() const { return size_; }
  int64_t operator[](int64_t i) const {
    int64_t index = 0;
    for (int k = count_ - 1; k > 0; --k) {
      index += i % parts_[k].extent * parts_[k].stride;
      i /= parts_[k].extent;
    }
    return count_ > 0 ? index + i * parts_[0].stride : index;
  }

 private:
  struct Part {
    int64_t extent, stride;
  };
  std::array<Part, kMaxRank> parts_{};
  int count_ = 0;
  int64_t size_ = 1;
};

}  // namespace ulpscope::plain
