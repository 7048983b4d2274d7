// Pooling.
#pragma once

#include "ulpscope/kernels/device/launcher-inl.h"
#include "ulpscope/kernels/device/ops-inl.h"
#include "ulpscope/kernels/device/pooling.h"

namespace ulpscope::device {

inline ImageStrides strides_of(const TensorView& view) {
  return {view.strides[0], view.strides[1], view.strides[2], view.strides[3]};
}
inline ImageInput image_of(const OpCall& call, size_t input) {
  const TensorView& view = call.inputs[input];
  return {input_of(call, input, contiguous(view)), strides_of(view)};
}
inline Pooling pooling_of(const OpCall& call, const TensorView& image, const TensorView& pooled) {
  return {PoolAxes(*call.attributes, image, pooled), image.shape[1], output_of(call, 0)};
}

template <class Places, class L>
void max_pooling(L& launcher, const OpCall& call) {
  const TensorView &x = call.inputs[0], &indices = call.outputs[1];
  MaxPooling<Places> kernel{pooling_of(call, x, call.outputs[0]), Places(call, x.shape[3]), image_of(call, 0),
                            indices.as<typename Places::Index>(), strides_of(indices)};
  on_elements(launcher, call, kernel);
  count_integers(launcher, call, 1);
}

template <class Places, class L>
void max_pooling_backward(L& launcher, const OpCall& call) {
  const TensorView& dx = call.outputs[0];
  MaxPoolingGradient<Places> kernel{pooling_of(call, dx, call.inputs[0]), Places(call, dx.shape[3]), image_of(call, 0),
                                    image_of(call, 1)};
  on_elements(launcher, call, kernel);
}

template <class L>
void average_pooling(L& launcher, const OpCall& call) {
  AveragePooling kernel{pooling_of(call, call.inputs[0], call.outputs[0]), image_of(call, 0)};
  on_elements(launcher, call, kernel);
}

template <class L>
void average_pooling_backward(L& launcher, const OpCall& call) {
  AveragePoolingGradient kernel{pooling_of(call, call.outputs[0], call.inputs[0]), image_of(call, 0)};
  on_elements(launcher, call, kernel);
}

template <class L>
void add_pooling(Kernels<L>& kernels) {
  kernels.emplace("max_pool2d", &max_pooling<PlaceInWindow, L>);
  kernels.emplace("max_pool2d_backward", &max_pooling_backward<PlaceInWindow, L>);
  kernels.emplace("adaptive_max_pool2d", &max_pooling<PlaceInImage, L>);
  kernels.emplace("adaptive_max_pool2d_backward", &max_pooling_backward<PlaceInImage, L>);
  for (const char* op : {"avg_pool2d", "adaptive_avg_pool2d"}) kernels.emplace(op, &average_pooling<L>);
  for (const char* op : {"avg_pool2d_backward", "adaptive_avg_pool2d_backward"}) kernels.emplace(op, &average_pooling_backward<L>);
}

}  // namespace ulpscope::device
