// Reads the elements of a view as FP32, in the memory order of a dense tensor of the same shape: a pointer where they lie so
// already, else widened or gathered into a buffer, a block at a time.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/view.h"

namespace ulpscope::cpu {

struct Context;

// Elements at offset, offset + stride, ... of an array of this type, widened.
void widen_run(const void* data, DType dtype, int64_t offset, int64_t stride, int64_t n, float* out);

class Reader {
 public:
  Reader() = default;
  // `order` is dense. A scalar stands for every element; other views have the shape of `order`. Integers are converted.
  Reader(const TensorView& view, const TensorView& order);

  // Reader::read gives pointers into the view and needs no buffer.
  bool direct() const { return linear_ && dtype_ == DType::f32; }
  // The elements first, ..., first + n - 1 in the memory order of `order`. `buffer` has room for n.
  const float* read(int64_t first, int64_t n, float* buffer) const;

 private:
  void gather(int64_t first, int64_t n, float* out) const;

  const void* data_ = nullptr;
  DType dtype_ = DType::f32;
  bool linear_ = false;  // element i lies at offset i
  ElementOrder elements_;
};

// Widens all elements of `view`, in the memory order of `order`, into `out`.
void read_all(const Context& context, const TensorView& view, const TensorView& order, float* out);

}  // namespace ulpscope::cpu
