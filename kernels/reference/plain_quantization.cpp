// FP8 tensors in plain loops: their scales, their encodings, and their products.
#include <cmath>

#include "ulpscope/kernels/quantization.h"
#include "ulpscope/kernels/reference/plain_access.h"

namespace ulpscope::plain {
namespace {

template <typename C>
void quantize(const OpCall& call) {
  const TensorView& x = call.inputs[0];
  C amax{};
  for (int64_t i = 0; i < x.size(); ++i) {
    const C magnitude = std::abs(at<C>(x, i));
    if (magnitude > amax) amax = magnitude;
  }
  const float scale =
      call.inputs.size() > 1
          ? at<float>(call.inputs[1], 0)
          : QuantizationScale(*info(call.outputs[0].dtype).format, *call.attributes).of(static_cast<float>(amax), 1.0f);
  Output<C> out(call, 0), scale_out(call, 1), inverse_out(call, 2), amax_out(call, 3);
  for (int64_t i = 0; i < x.size(); ++i) out[i] = at<C>(x, i) * scale;
  out.store();
  if (OutputRecord* record = wanted_record(call, 0)) record->quantization_scale = scale;
  scale_out[0] = scale;
  inverse_out[0] = 1 / scale;
  amax_out[0] = amax;
  for (Output<C>* scalar : {&scale_out, &inverse_out, &amax_out}) scalar->store();
}

template <typename C>
void scaled_matmul(const OpCall& call) {
  const TensorView &a = call.inputs[0], &b = call.inputs[1];
  const int64_t rows = a.shape[0], depth = a.shape[1], columns = b.shape[1];
  const auto wide_a = widen<C>(a), wide_b = widen<C>(b);
  const C scale_a = at<C>(call.inputs[2], 0), scale_b = at<C>(call.inputs[3], 0);
  Output<C> out(call, 0);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      C total{};
      for (int64_t k = 0; k < depth; ++k) total += wide_a[i * depth + k] * wide_b[k * columns + j];
      total = total * scale_a * scale_b;
      out[i * columns + j] = call.inputs.size() > 4 ? total + at<C>(call.inputs[4], j) : total;
    }
  }
  out.store();
}

// The newest amax comes to the front of the history, and the scale follows it.
template <typename C>
void amax_history_update(const OpCall& call) {
  const TensorView &history = call.inputs[0], &amax = call.inputs[2];
  const DType type = static_cast<DType>(call.attribute("dtype"));
  std::vector<float> shifted{at<float>(amax, 0)};
  for (int64_t i = 0; i + 1 < history.size(); ++i) shifted.push_back(at<float>(history, i));
  const float scale = QuantizationScale(*info(type).format, *call.attributes)
                          .of(amax_of(shifted, call.attribute("most_recent") != 0), at<float>(call.inputs[1], 0));
  Output<C> history_out(call, 0), scale_out(call, 1);
  for (int64_t i = 0; i < history.size(); ++i) history_out[i] = shifted[static_cast<size_t>(i)];
  scale_out[0] = scale;
  history_out.store();
  scale_out.store();
}

}  // namespace

std::vector<NamedKernel> quantization_kernels() {
  return {{"quantize", quantize<float>, quantize<double>, capture::quantize},
          {"scaled_matmul", scaled_matmul<float>, scaled_matmul<double>, capture::scaled_matmul},
          {"amax_history_update", amax_history_update<float>, amax_history_update<double>, capture::whole_tensors}};
}

}  // namespace ulpscope::plain
