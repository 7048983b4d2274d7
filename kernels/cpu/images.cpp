#include "ulpscope/kernels/cpu/images.h"

namespace ulpscope::cpu {

bool is_channels_last(const TensorView& x) {
  int64_t stride = 1;
  for (const int dimension : {1, 3, 2, 0}) {
    if (x.shape[dimension] != 1 && x.strides[dimension] != stride) return false;
    stride *= x.shape[dimension];
  }
  return true;
}

TensorView channels_last(TensorView x) {
  x.strides = {x.shape[1] * x.shape[2] * x.shape[3], 1, x.shape[3] * x.shape[1], x.shape[1]};
  return x;
}

Images::Images(Context& context, const TensorView& view)
    : data_(view.data), dtype_(view.dtype), scratch_(context.allocator, is_channels_last(view) ? 0 : bytes_of(view.size())) {
  if (is_channels_last(view)) return;
  read_all(context, view, channels_last(view), scratch_.as<float>());
  data_ = scratch_.as<float>();
  dtype_ = DType::f32;
}

const float* Images::read(int64_t first, int64_t n, float* buffer) const {
  if (direct()) return static_cast<const float*>(data_) + first;
  widen_run(data_, dtype_, first, 1, n, buffer);
  return buffer;
}

}  // namespace ulpscope::cpu
