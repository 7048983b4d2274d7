// Windows that slide over images [N, C, H, W]: where they lie and how many there are, said once for the shape rules, kernels, plain
// twins and captures of convolutions and pooling.
#pragma once

#include <cstdint>
#include <string>

#include "ulpscope/kernels/op_call.h"

namespace ulpscope {

// Along one dimension, which is padded on both sides. The elements of a window are `dilation` apart.
struct Window {
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
  bool ceil_mode = false;  // the last one may go beyond the padding where it begins in the extent

  constexpr int64_t reach() const { return dilation * (kernel - 1) + 1; }
  // The places that it takes; 0 where it is larger than the padded extent.
  constexpr int64_t outputs(int64_t extent) const {
    const int64_t room = extent + 2 * padding - reach() + (ceil_mode ? stride - 1 : 0);
    const int64_t last = room < 0 ? -1 : room / stride;
    return ceil_mode && input(last, 0) >= extent ? last : last + 1;
  }
  // The smallest extent in which it takes so many places.
  constexpr int64_t extent_of(int64_t outputs) const { return (outputs - 1) * stride + reach() - 2 * padding; }
  // Where element k of the window at place `output` lies; outside of the extent in the padding.
  constexpr int64_t input(int64_t output, int64_t k) const { return output * stride + k * dilation - padding; }
  // The place at which element k of the window lies on `input`, or -1.
  constexpr int64_t output(int64_t input, int64_t k, int64_t outputs) const {
    const int64_t start = input + padding - k * dilation;
    return start >= 0 && start % stride == 0 && start / stride < outputs ? start / stride : -1;
  }
  bool operator==(const Window&) const = default;
};

struct Windows {
  Window y, x;

  // From the attributes of an op: stride_y, stride_x, padding_y, padding_x and, 1 where missing, dilation_y and dilation_x; of
  // pooling ceil_mode. The kernel is that of a weight, or kernel_y and kernel_x.
  static Windows of(const Attributes& attributes, int64_t kernel_y, int64_t kernel_x);
  static Windows of(const Attributes& attributes);
  // As attributes, without the kernel.
  Attributes attributes() const;
  // What no backend takes: "stride: expected at least 1, found 0 x 1"; or "".
  std::string problem() const;

  bool operator==(const Windows&) const = default;
};

// The attribute `groups` of a convolution, 1 where it is missing.
inline int64_t groups_of(const Attributes& attributes) { return static_cast<int64_t>(attributes.value_or("groups", 1)); }

}  // namespace ulpscope
