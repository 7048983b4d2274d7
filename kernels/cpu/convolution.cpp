#include "ulpscope/kernels/cpu/convolution.h"

#include <algorithm>

#include "ulpscope/base/hash.h"
#include "ulpscope/kernels/cpu/onednn.h"

namespace ulpscope::cpu {

struct Convolution::State {
  PlannedPrimitive primitive, reorder;
  size_t scratch_bytes = 0, weight_bytes = 0;
};

namespace {

using dnnl::memory;

memory::desc images(int64_t n, int64_t c, int64_t h, int64_t w) {
  return memory::desc({n, c, h, w}, memory::data_type::f32, memory::format_tag::nhwc);
}

// The descriptors of a convolution. Those of the weights leave the layout to oneDNN.
struct Descriptors {
  memory::desc x, y, weights, plain_weights, bias;
  memory::dims strides, dilations, padding;

  explicit Descriptors(const ConvolutionShape& s)
      : x(images(s.images, s.channels, s.height, s.width)),
        y(images(s.images, s.filters, s.out_height, s.out_width)),
        weights(weight_extents(s), memory::data_type::f32, memory::format_tag::any),
        plain_weights(weight_extents(s), memory::data_type::f32,
                      s.groups > 1 ? memory::format_tag::goihw : memory::format_tag::oihw),
        bias({s.filters}, memory::data_type::f32, memory::format_tag::a),
        strides{s.windows.y.stride, s.windows.x.stride},
        dilations{s.windows.y.dilation - 1, s.windows.x.dilation - 1},
        padding{s.windows.y.padding, s.windows.x.padding} {}

  static memory::dims weight_extents(const ConvolutionShape& s) {
    const memory::dims of_group{s.filters / s.groups, s.channels / s.groups, s.windows.y.kernel, s.windows.x.kernel};
    if (s.groups == 1) return of_group;
    memory::dims extents{s.groups};
    extents.insert(extents.end(), of_group.begin(), of_group.end());
    return extents;
  }

  dnnl::convolution_forward::primitive_desc forward(bool with_bias) const {
    using Forward = dnnl::convolution_forward;
    const auto kind = dnnl::prop_kind::forward_training;
    const auto direct = dnnl::algorithm::convolution_direct;
    const Forward::desc description = with_bias
                                          ? Forward::desc(kind, direct, x, weights, bias, y, strides, dilations, padding, padding)
                                          : Forward::desc(kind, direct, x, weights, y, strides, dilations, padding, padding);
    return {description, user_scratchpad(), onednn_engine()};
  }
};

}  // namespace

Convolution::Convolution(const ConvolutionShape& shape, int slots) : state_(std::make_unique<State>()) {
  planned("convolution", [&] {
    const ThreadsForPlanning threads(shape.threads);
    const Descriptors of(shape);
    const auto direct = dnnl::algorithm::convolution_direct;
    const auto keep = [&](const dnnl::primitive& primitive, const memory::desc& weights, const memory::desc& scratch,
                          std::vector<PlannedPrimitive::Argument> arguments) {
      arguments.push_back({DNNL_ARG_SCRATCHPAD, scratch});
      if (shape.bias) arguments.push_back({DNNL_ARG_BIAS, of.bias});
      state_->primitive = PlannedPrimitive(primitive, arguments, slots);
      state_->weight_bytes = weights.get_size();
      const bool back = shape.pass == Pass::backward_weight;
      const memory::desc from = back ? weights : of.plain_weights, to = back ? of.plain_weights : weights;
      const dnnl::reorder::primitive_desc reorder(onednn_engine(), from, onednn_engine(), to, user_scratchpad());
      state_->reorder =
          PlannedPrimitive(dnnl::reorder(reorder),
                           {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {DNNL_ARG_SCRATCHPAD, reorder.scratchpad_desc()}}, slots);
      state_->scratch_bytes = std::max(scratch.get_size(), reorder.scratchpad_desc().get_size());
    };
    const auto forward = of.forward(shape.bias);
    if (shape.pass == Pass::forward) {
      keep(dnnl::convolution_forward(forward), forward.weights_desc(), forward.scratchpad_desc(),
           {{DNNL_ARG_SRC, of.x}, {DNNL_ARG_WEIGHTS, forward.weights_desc()}, {DNNL_ARG_DST, of.y}});
    } else if (shape.pass == Pass::backward_input) {
      const dnnl::convolution_backward_data::primitive_desc plan(
          dnnl::convolution_backward_data::desc(direct, of.x, of.weights, of.y, of.strides, of.dilations, of.padding, of.padding),
          user_scratchpad(), onednn_engine(), forward);
      keep(dnnl::convolution_backward_data(plan), plan.weights_desc(), plan.scratchpad_desc(),
           {{DNNL_ARG_DIFF_DST, of.y}, {DNNL_ARG_WEIGHTS, plan.weights_desc()}, {DNNL_ARG_DIFF_SRC, of.x}});
    } else {
      const dnnl::convolution_backward_weights::primitive_desc plan(
          dnnl::convolution_backward_weights::desc(direct, of.x, of.weights, of.y, of.strides, of.dilations, of.padding,
                                                   of.padding),
          user_scratchpad(), onednn_engine(), forward);
      keep(dnnl::convolution_backward_weights(plan), plan.diff_weights_desc(), plan.scratchpad_desc(),
           {{DNNL_ARG_SRC, of.x}, {DNNL_ARG_DIFF_DST, of.y}, {DNNL_ARG_DIFF_WEIGHTS, plan.diff_weights_desc()}});
    }
  });
}

Convolution::~Convolution() = default;

size_t Convolution::scratch_bytes() const { return state_->scratch_bytes; }
size_t Convolution::weight_bytes() const { return state_->weight_bytes; }

void Convolution::reorder_weights(int slot, const void* from, void* to, void* scratch) const {
  state_->reorder.run(slot, {from, to, scratch});
}

void Convolution::run(int slot, const float* first, const void* second, const void* third, const float* bias, void* scratch) const {
  state_->primitive.run(slot, {first, second, third, scratch, bias});
}

uint64_t ConvolutionShape::hash() const {
  uint64_t hash = static_cast<uint64_t>(pass) * 2 + (bias ? 1 : 0);
  const auto add = [&](int64_t value) { hash = hash_combine(hash, static_cast<uint64_t>(value)); };
  for (const int64_t value : {images, channels, height, width, filters, out_height, out_width, groups}) add(value);
  for (const Window& window : {windows.y, windows.x}) {
    for (const int64_t value : {window.kernel, window.stride, window.padding, window.dilation}) add(value);
  }
  add(threads);
  return hash;
}

}  // namespace ulpscope::cpu
