// Element access and loops that the plain kernels share. Slow and simple.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/emulation/narrow_format.h"
#include "ulpscope/kernels/capture.h"
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

// The element at logical index `index`; a scalar stands for every index.
template <typename C>
C at(const TensorView& view, int64_t index) {
  return load<C>(view, view.rank == 0 ? 0 : offset_of(view, index));
}
template <typename C>
C at(const TensorView& view, const std::array<int64_t, 4>& place) {
  int64_t offset = 0;
  for (int i = 0; i < view.rank; ++i) offset += place[i] * view.strides[i];
  return load<C>(view, offset);
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
  Output(const OpCall& call, int slot) : call_(call), slot_(slot), values_(static_cast<size_t>(view().size())) {}
  C& operator[](int64_t index) { return values_[static_cast<size_t>(offset_of(view(), index))]; }
  void store() { store_output(call_, slot_, values_.data()); }
  // Of values that were rounded at every step; `wide`, which is overwritten, is the output without that.
  void store_stepwise(Output& wide) {
    StepwiseOutput out(call_, slot_);
    const int64_t size = view().size();
    for (int64_t begin = 0; begin < size; begin += kStatisticsBlock)
      out.put(begin / kStatisticsBlock, values_.data() + begin, wide.values_.data() + begin,
              std::min(kStatisticsBlock, size - begin));
    out.finish();
  }

 private:
  const TensorView& view() const { return call_.outputs[slot_]; }

  const OpCall& call_;
  int slot_;
  std::vector<C> values_;
};

template <typename C, typename Term>
C block_sum(int64_t n, Term term) {
  std::array<C, kSumLanes> lanes{};
  for (int64_t i = 0; i < n; ++i) lanes[i % kSumLanes] += term(i);
  add_lanes(lanes.data());
  return lanes[0];
}

// term(0) + ... + term(n - 1) in the order of reduction_order.h.
template <typename C, typename Term>
C ordered_sum(int64_t n, Term term) {
  if (n == 0) return C{};
  std::vector<C> blocks;
  for (int64_t begin = 0; begin < n; begin += kReductionBlock) {
    blocks.push_back(block_sum<C>(std::min(kReductionBlock, n - begin), [&](int64_t i) { return term(begin + i); }));
  }
  merge_by_tree(blocks.data(), static_cast<int64_t>(blocks.size()), [](C a, C b) { return a + b; });
  return blocks[0];
}

// Offsets within `view` over the dimensions of `list`, in their order.
inline std::vector<int64_t> offsets_of(const TensorView& view, const DimensionList& list) {
  std::vector<int64_t> offsets{0};
  for (int k = 0; k < list.count; ++k) {
    const int dimension = list.dimensions[k];
    std::vector<int64_t> next;
    for (const int64_t offset : offsets) {
      for (int64_t i = 0; i < view.shape[dimension]; ++i) next.push_back(offset + i * view.strides[dimension]);
    }
    offsets = std::move(next);
  }
  return offsets;
}

using Kernel = void (*)(const OpCall&);
struct NamedKernel {
  std::string_view name;
  Kernel in_float, in_double;
  CaptureOperands& operands;  // a reference, so that no row can leave it out
};
std::vector<NamedKernel> elementwise_kernels();
std::vector<NamedKernel> reduction_kernels();
std::vector<NamedKernel> product_kernels();
std::vector<NamedKernel> window_kernels();
std::vector<NamedKernel> normalization_kernels();
std::vector<NamedKernel> row_kernels();
std::vector<NamedKernel> indexing_kernels();
std::vector<NamedKernel> loss_kernels();
std::vector<NamedKernel> quantization_kernels();
std::vector<NamedKernel> training_kernels();

}  // namespace ulpscope::plain
