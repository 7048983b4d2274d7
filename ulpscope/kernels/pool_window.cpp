#include "ulpscope/kernels/pool_window.h"

#include <fmt/format.h>

namespace ulpscope {

PoolWindow PoolWindow::of(const Attributes& attributes) {
  const auto integer = [&](std::string_view name) { return static_cast<int64_t>(attributes[name]); };
  return {integer("kernel_y"), integer("kernel_x"),  integer("stride_y"),
          integer("stride_x"), integer("padding_y"), integer("padding_x")};
}

std::string PoolWindow::problem() const {
  if (kernel_y < 1 || kernel_x < 1 || kernel_y > kPoolPlaces || kernel_x > kPoolPlaces || kernel_y * kernel_x > kPoolPlaces)
    return fmt::format("kernel: expected at most {} elements, found {} x {}", kPoolPlaces, kernel_y, kernel_x);
  if (2 * padding_y > kernel_y || 2 * padding_x > kernel_x) {
    return fmt::format("padding: expected at most half the kernel of {} x {}, found {} x {}", kernel_y, kernel_x, padding_y,
                       padding_x);
  }
  return "";
}

}  // namespace ulpscope
