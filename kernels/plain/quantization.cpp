// FP8 tensors: their scales and their encodings. Their products are in products.cpp.
#include "ulpscope/kernels/quantization.h"

#include "ulpscope/kernels/lanes.h"
#include "ulpscope/kernels/plain/element.h"

namespace ulpscope::plain {
namespace {

using lanes::magnitude;

// Outputs the encodings, the scale, its inverse, and the largest magnitude. The scale is input 1, or follows from that.
struct Quantize {
  int64_t size;
  bool scale_given;
  QuantizationScale rule;

  explicit Quantize(const OpCall& call)
      : size(call.inputs[0].size()),
        scale_given(call.inputs.size() > 1),
        rule(*info(call.outputs[0].dtype).format, *call.attributes) {}
  template <class In>
  float scale(In& in) const {
    if (scale_given) return static_cast<float>(in(1, 0));
    return rule.of(static_cast<float>(in.output(3, 0)), 1.0f);
  }
  template <class In>
  typename In::Value operator()(In& in, int slot, int64_t e) const {
    using C = typename In::Value;
    switch (slot) {
      case 0:
        return in(0, e) * static_cast<C>(scale(in));
      case 1:
        return static_cast<C>(scale(in));
      case 2:
        return C{1} / static_cast<C>(scale(in));
      default:
        return in.statistic([&] {
          C amax{};
          for (int64_t i = 0; i < size; ++i)
            if (const C each = magnitude(in(0, i)); each > amax) amax = each;
          return amax;
        });
    }
  }
};

template <typename C>
void quantize(const OpCall& call) {
  run<Quantize, C>(call);
  if (OutputRecord* record = wanted_record(call, 0)) record->quantization_scale = read_element(call.outputs[1], 0);
}

// The newest amax, input 2, comes to the front of the history, and the scale follows it.
struct AmaxHistoryUpdate {
  int64_t size;
  bool most_recent;
  QuantizationScale rule;

  explicit AmaxHistoryUpdate(const OpCall& call)
      : size(call.inputs[0].size()),
        most_recent(call.attribute("most_recent") != 0),
        rule(*info(static_cast<DType>(call.attribute("dtype"))).format, *call.attributes) {}
  template <class In>
  typename In::Value operator()(In& in, int slot, int64_t e) const {
    if (slot == 0) return e == 0 ? in(2, 0) : in(0, e - 1);
    const auto before = static_cast<float>(in(1, 0)), amax = in.statistic([&] {
      std::vector<float> shifted{static_cast<float>(in(2, 0))};
      for (int64_t i = 0; i + 1 < size && !most_recent; ++i) shifted.push_back(static_cast<float>(in(0, i)));
      return amax_of(shifted, most_recent);
    });
    return static_cast<typename In::Value>(rule.of(amax, before));
  }
};

}  // namespace

std::vector<Twin> quantization_twins() {
  return {{"quantize", quantize<float>, quantize<double>, capture<Quantize>, bounds<Quantize>},
          twin<AmaxHistoryUpdate>("amax_history_update")};
}

}  // namespace ulpscope::plain
