// Layers that slide a window over images [channels, height, width] or sequences [channels, length].
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/core/nn/layers.h"
#include "ulpscope/kernels/pool_windows.h"

namespace ulpscope {

namespace {

Windows windows_of(HeightWidth kernel, HeightWidth stride, HeightWidth padding, HeightWidth dilation = {1, 1}) {
  return {{kernel.y, stride.y, padding.y, dilation.y}, {kernel.x, stride.x, padding.x, dilation.x}};
}

Windows windows_of(const LayerSpec& spec) {
  return windows_of(spec.extents("kernel"), spec.extents("stride"), spec.extents("padding"), spec.extents("dilation"));
}

void expect_image(const LayerArguments& a) {
  if (a.input.size() != 3) throw a.mismatch("samples of [channels, height, width]");
}

// The extents of the output. Throws where the padded image is smaller than the window.
HeightWidth outputs_of(const Windows& windows, const LayerArguments& a) {
  expect_image(a);
  const auto& [y, x] = windows;
  const HeightWidth extents{y.outputs(a.input[1]), x.outputs(a.input[2])};
  if (extents.y < 1 || extents.x < 1) {
    throw a.mismatch(
        fmt::format("an image of at least the kernel, {} x {}, with padding {} x {}", y.reach(), x.reach(), y.padding, x.padding));
  }
  return extents;
}

// A weight and a bias over the channels of the input, which `groups` share equally.
class Convolution : public Layer {
 protected:
  explicit Convolution(const LayerArguments& a)
      : Layer(a), groups_(a.spec.integer("groups")), in_(a.input.at(0)), out_(a.spec.integer("out_channels")) {
    a.expect("in_channels", in_);
    if (in_ % groups_ != 0) throw a.mismatch(fmt::format("channels that {} groups share equally", groups_));
    if (out_ % groups_ != 0) throw usage_error("expected out_channels that {} groups share equally, got {}", groups_, out_);
  }

  // They begin as in PyTorch, uniform in +-1 / sqrt(the elements of the weight's first index).
  void add_parameters(const LayerArguments& a, std::vector<int64_t> weight) {
    double fan_in = 1;
    for (size_t i = 1; i < weight.size(); ++i) fan_in *= static_cast<double>(weight[i]);
    const auto initial = InitialValues::uniform(1.0 / std::sqrt(fan_in));
    add_parameter(weight_, "weight", std::move(weight), initial);
    if (a.spec.flag("bias")) add_parameter(bias_, "bias", {out_}, initial);
  }

  int64_t groups_, in_, out_;
  Tensor weight_, bias_;
};

const LayerArguments& checked_image(const LayerArguments& a) {
  expect_image(a);
  return a;
}

class Conv2d : public Convolution {
 public:
  explicit Conv2d(const LayerArguments& a) : Convolution(checked_image(a)), windows_(windows_of(a.spec)) {
    const HeightWidth extents = outputs_of(windows_, a);
    add_parameters(a, {out_, in_ / groups_, windows_.y.kernel, windows_.x.kernel});
    set_output_shape({out_, extents.y, extents.x});
  }

 private:
  Tensor forward(const Tensor& x, bool) override { return conv2d(x, weight_, bias_, windows_, groups_); }

  Windows windows_;
};

class ConvTranspose2d : public Convolution {
 public:
  explicit ConvTranspose2d(const LayerArguments& a)
      : Convolution(checked_image(a)), windows_(windows_of(a.spec)), output_padding_(a.spec.extents("output_padding")) {
    const auto& [y, x] = windows_;
    if (output_padding_.y >= std::max(y.stride, y.dilation) || output_padding_.x >= std::max(x.stride, x.dilation))
      throw usage_error("output_padding: expected less than the stride or the dilation, found {} x {}", output_padding_.y,
                        output_padding_.x);
    const HeightWidth extents{y.extent_of(a.input[1]) + output_padding_.y, x.extent_of(a.input[2]) + output_padding_.x};
    if (extents.y < 1 || extents.x < 1)
      throw a.mismatch(fmt::format("an image of which a padding of {} x {} leaves something", y.padding, x.padding));
    add_parameters(a, {in_, out_ / groups_, y.kernel, x.kernel});
    set_output_shape({out_, extents.y, extents.x});
  }

 private:
  Tensor forward(const Tensor& x, bool) override {
    return conv_transpose2d(x, weight_, bias_, windows_, groups_, output_padding_.y, output_padding_.x);
  }

  Windows windows_;
  HeightWidth output_padding_;
};

const LayerArguments& checked_sequence(const LayerArguments& a) {
  if (a.input.size() != 2) throw a.mismatch("samples of [channels, length]");
  return a;
}

class Conv1d : public Convolution {
 public:
  explicit Conv1d(const LayerArguments& a)
      : Convolution(checked_sequence(a)),
        window_{a.spec.integer("kernel"), a.spec.integer("stride"), a.spec.integer("padding"), a.spec.integer("dilation")} {
    const int64_t length = window_.outputs(a.input[1]);
    if (length < 1)
      throw a.mismatch(fmt::format("a length of at least the kernel, {}, with padding {}", window_.reach(), window_.padding));
    add_parameters(a, {out_, in_ / groups_, window_.kernel});
    set_output_shape({out_, length});
  }

 private:
  Tensor forward(const Tensor& x, bool) override { return conv1d(x, weight_, bias_, window_, groups_); }

  Window window_;
};

// Windows of a pooling layer, checked.
Windows pooling_windows(const LayerArguments& a, std::string (*problem_of)(const Windows&)) {
  const HeightWidth kernel = a.spec.extents("kernel");
  Windows windows = windows_of(kernel, a.spec.has("stride") ? a.spec.extents("stride") : kernel, a.spec.extents("padding"));
  windows.y.ceil_mode = windows.x.ceil_mode = a.spec.flag("ceil_mode");
  if (const std::string problem = problem_of(windows); !problem.empty()) throw usage_error("{}", problem);
  return windows;
}

class MaxPool2d : public Layer {
 public:
  explicit MaxPool2d(const LayerArguments& a) : Layer(a), windows_(pooling_windows(a, max_pooling_problem)) {
    const HeightWidth extents = outputs_of(windows_, a);
    set_output_shape({a.input[0], extents.y, extents.x});
  }

 private:
  Tensor forward(const Tensor& x, bool) override { return max_pool2d(x, windows_); }

  Windows windows_;
};

class AvgPool2d : public Layer {
 public:
  explicit AvgPool2d(const LayerArguments& a)
      : Layer(a), windows_(pooling_windows(a, pooling_problem)), count_include_pad_(a.spec.flag("count_include_pad")) {
    const HeightWidth extents = outputs_of(windows_, a);
    set_output_shape({a.input[0], extents.y, extents.x});
  }

 private:
  Tensor forward(const Tensor& x, bool) override { return avg_pool2d(x, windows_, count_include_pad_); }

  Windows windows_;
  bool count_include_pad_;
};

using AdaptivePooling = Tensor (*)(const Tensor&, int64_t, int64_t);

template <AdaptivePooling pool>
class AdaptivePool2d : public Layer {
 public:
  explicit AdaptivePool2d(const LayerArguments& a) : Layer(a), extents_(a.spec.extents("output_size")) {
    expect_image(a);
    set_output_shape({a.input[0], extents_.y, extents_.x});
  }

 private:
  Tensor forward(const Tensor& x, bool) override { return pool(x, extents_.y, extents_.x); }

  HeightWidth extents_;
};

}  // namespace

std::vector<LayerType> window_layers() {
  const LayerOption bias = flag("bias", true), in = input_extent("in_channels"), out = output_extent("out_channels");
  const LayerOption groups = integer("groups", 1, 1, "each sees its share of the channels");
  const LayerOption ceil_mode = flag("ceil_mode", false, "the last window may go beyond the padding where it begins in the image");
  const std::string apart = "from one element of the kernel to the next";
  return {{"conv2d",
           {in, out, required_pair("kernel", 1), pair("stride", 1, 1), pair("padding", 0, 0, "zeros on each side"),
            pair("dilation", 1, 1, apart), groups, bias},
           make_layer<Conv2d>},
          {"conv1d",
           {in, out, output_extent("kernel"), integer("stride", 1, 1), integer("padding", 0, 0, "zeros on each side"),
            integer("dilation", 1, 1, apart), groups, bias},
           make_layer<Conv1d>},
          {"conv_transpose2d",
           {in, out, required_pair("kernel", 1), pair("stride", 1, 1), pair("padding", 0, 0, "taken off on each side"),
            pair("output_padding", 0, 0, "added at the bottom and on the right"), pair("dilation", 1, 1, apart), groups, bias},
           make_layer<ConvTranspose2d>},
          {"max_pool2d",
           {required_pair("kernel", 1, fmt::format("at most {} elements", kPoolPlaces)), dependent_pair("stride", 1, "the kernel"),
            pair("padding", 0, 0, "at most half the kernel"), ceil_mode},
           make_layer<MaxPool2d>},
          {"avg_pool2d",
           {required_pair("kernel", 1), dependent_pair("stride", 1, "the kernel"), pair("padding", 0, 0, "at most half the kernel"),
            ceil_mode, flag("count_include_pad", true)},
           make_layer<AvgPool2d>},
          {"adaptive_avg_pool2d", {required_pair("output_size", 1)}, make_layer<AdaptivePool2d<adaptive_avg_pool2d>>},
          {"adaptive_max_pool2d", {required_pair("output_size", 1)}, make_layer<AdaptivePool2d<adaptive_max_pool2d>>}};
}

}  // namespace ulpscope
