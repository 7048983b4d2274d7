// Images [N, C, H, W] as the kernels want them: channels-last.
#pragma once

#include "ulpscope/kernels/cpu/context.h"
#include "ulpscope/kernels/cpu/matrix.h"
#include "ulpscope/kernels/cpu/reader.h"

namespace ulpscope::cpu {

// True iff the elements lie as pixels of C channels, image after image.
bool is_channels_last(const TensorView& x);
// The same shape, laid out so.
TensorView channels_last(TensorView x);

// A tensor of images: as it lies where that is channels-last, else brought into that order (as FP32).
class Images {
 public:
  Images(Context& context, const TensorView& view);

  bool direct() const { return dtype_ == DType::f32; }
  // The elements first, ..., first + n - 1 in memory order, in place or widened into `buffer`.
  const float* read(int64_t first, int64_t n, float* buffer) const;
  // All of it as a matrix of pixels and channels, or its transpose.
  Matrix pixels(int64_t rows, int64_t channels) const { return Matrix(data_, dtype_, rows, channels, channels, 1); }
  Matrix transposed_pixels(int64_t rows, int64_t channels) const { return Matrix(data_, dtype_, channels, rows, 1, channels); }

 private:
  const void* data_;
  DType dtype_;
  Scratch scratch_;
};

}  // namespace ulpscope::cpu
