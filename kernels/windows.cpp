#include "ulpscope/kernels/windows.h"

#include <fmt/format.h>

namespace ulpscope {

Windows Windows::of(const Attributes& attributes, int64_t kernel_y, int64_t kernel_x) {
  const auto of_dimension = [&](int64_t kernel, std::string_view stride, std::string_view padding, std::string_view dilation) {
    return Window{kernel, static_cast<int64_t>(attributes[stride]), static_cast<int64_t>(attributes[padding]),
                  static_cast<int64_t>(attributes.value_or(dilation, 1)), attributes.value_or("ceil_mode", 0) != 0};
  };
  return {of_dimension(kernel_y, "stride_y", "padding_y", "dilation_y"),
          of_dimension(kernel_x, "stride_x", "padding_x", "dilation_x")};
}

Windows Windows::of(const Attributes& attributes) {
  return of(attributes, static_cast<int64_t>(attributes["kernel_y"]), static_cast<int64_t>(attributes["kernel_x"]));
}

Attributes Windows::attributes() const {
  Attributes all;
  const auto set = [&](std::string_view name, int64_t value) { all.set(name, static_cast<double>(value)); };
  set("stride_y", y.stride);
  set("stride_x", x.stride);
  set("padding_y", y.padding);
  set("padding_x", x.padding);
  if (y.ceil_mode) set("ceil_mode", 1);
  if (y.dilation == 1 && x.dilation == 1) return all;
  set("dilation_y", y.dilation);
  set("dilation_x", x.dilation);
  return all;
}

std::string Windows::problem() const {
  const auto below = [](std::string_view what, int64_t low, int64_t of_y, int64_t of_x) {
    return of_y >= low && of_x >= low ? "" : fmt::format("{}: expected at least {}, found {} x {}", what, low, of_y, of_x);
  };
  for (const std::string& text : {below("kernel", 1, y.kernel, x.kernel), below("stride", 1, y.stride, x.stride),
                                  below("padding", 0, y.padding, x.padding), below("dilation", 1, y.dilation, x.dilation)}) {
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace ulpscope
