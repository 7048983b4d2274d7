// Layers that slide a window over images [channels, height, width].
#include <fmt/format.h>

#include <cmath>

#include "ulpscope/core/nn/layers.h"
#include "ulpscope/kernels/pool_window.h"

namespace ulpscope {

namespace {

struct ImageWindow {
  HeightWidth kernel, stride, padding;

  // The extents of the output. Throws where the padded image is smaller than the window.
  HeightWidth outputs(const LayerArguments& a) const {
    if (a.input.size() != 3) throw a.mismatch("samples of [channels, height, width]");
    const HeightWidth extents{Window{kernel.y, stride.y, padding.y}.outputs(a.input[1]),
                              Window{kernel.x, stride.x, padding.x}.outputs(a.input[2])};
    if (extents.y < 1 || extents.x < 1) {
      throw a.mismatch(
          fmt::format("an image of at least the kernel, {} x {}, with padding {} x {}", kernel.y, kernel.x, padding.y, padding.x));
    }
    return extents;
  }

  // As attributes; the kernel is the weight's where there is one.
  Attributes attributes() const {
    return {{"stride_y", static_cast<double>(stride.y)},
            {"stride_x", static_cast<double>(stride.x)},
            {"padding_y", static_cast<double>(padding.y)},
            {"padding_x", static_cast<double>(padding.x)}};
  }
};

// Weight and bias begin as in PyTorch, uniform in +-1 / sqrt(in * kernel_y * kernel_x).
class Conv2d : public Layer {
 public:
  explicit Conv2d(const LayerArguments& a) : Layer(a) {
    const ImageWindow window{a.spec.extents("kernel"), a.spec.extents("stride"), a.spec.extents("padding")};
    const HeightWidth extents = window.outputs(a);
    const int64_t in = a.input[0], out = a.spec.integer("out_channels");
    a.expect("in_channels", in);
    const auto initial = InitialValues::uniform(
        1.0 / std::sqrt(static_cast<double>(in) * static_cast<double>(window.kernel.y) * static_cast<double>(window.kernel.x)));
    add_parameter(weight_, "weight", {out, in, window.kernel.y, window.kernel.x}, initial);
    if (a.spec.flag("bias")) add_parameter(bias_, "bias", {out}, initial);
    attributes_ = window.attributes();
    set_output_shape({out, extents.y, extents.x});
  }

 private:
  Tensor forward(const Tensor& x, bool) override {
    return bias_ ? call("conv2d", {x, weight_, bias_}, attributes_) : call("conv2d", {x, weight_}, attributes_);
  }

  Attributes attributes_;
  Tensor weight_, bias_;
};

class MaxPool2d : public Layer {
 public:
  explicit MaxPool2d(const LayerArguments& a) : Layer(a) {
    const HeightWidth kernel = a.spec.extents("kernel");
    const ImageWindow window{kernel, a.spec.has("stride") ? a.spec.extents("stride") : kernel, a.spec.extents("padding")};
    const std::string problem =
        PoolWindow{kernel.y, kernel.x, window.stride.y, window.stride.x, window.padding.y, window.padding.x}.problem();
    if (!problem.empty()) throw usage_error("{}", problem);
    const HeightWidth extents = window.outputs(a);
    attributes_ = window.attributes();
    attributes_.set("kernel_y", static_cast<double>(kernel.y));
    attributes_.set("kernel_x", static_cast<double>(kernel.x));
    set_output_shape({a.input[0], extents.y, extents.x});
  }

 private:
  Tensor forward(const Tensor& x, bool) override { return call("max_pool2d", {x}, attributes_); }

  Attributes attributes_;
};

}  // namespace

std::vector<LayerType> window_layers() {
  return {{"conv2d",
           {input_extent("in_channels"), output_extent("out_channels"), required_pair("kernel", 1), pair("stride", 1, 1),
            pair("padding", 0, 0, "zeros on each side"), flag("bias", true)},
           make_layer<Conv2d>},
          {"max_pool2d",
           {required_pair("kernel", 1, fmt::format("at most {} elements", kPoolPlaces)), dependent_pair("stride", 1, "the kernel"),
            pair("padding", 0, 0, "at most half the kernel")},
           make_layer<MaxPool2d>}};
}

}  // namespace ulpscope
