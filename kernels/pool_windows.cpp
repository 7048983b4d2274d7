#include "ulpscope/kernels/pool_windows.h"

#include <fmt/format.h>

#include "ulpscope/base/error.h"

namespace ulpscope {

std::string pooling_problem(const Windows& windows) {
  std::string problem = windows.problem();
  if (!problem.empty()) return problem;
  const auto& [y, x] = windows;
  if (2 * y.padding > y.kernel || 2 * x.padding > x.kernel) {
    return fmt::format("padding: expected at most half the kernel of {} x {}, found {} x {}", y.kernel, x.kernel, y.padding,
                       x.padding);
  }
  return "";
}

std::string max_pooling_problem(const Windows& windows) {
  const auto& [y, x] = windows;
  if (y.kernel > kPoolPlaces || x.kernel > kPoolPlaces || y.kernel * x.kernel > kPoolPlaces)
    return fmt::format("kernel: expected at most {} elements, found {} x {}", kPoolPlaces, y.kernel, x.kernel);
  return pooling_problem(windows);
}

PoolAxes::PoolAxes(const Attributes& attributes, const TensorView& image, const TensorView& pooled)
    : count_padding(attributes.value_or("count_include_pad", 0) != 0) {
  const bool adaptive = attributes.value_or("kernel_y", 0) == 0;
  const Windows windows = adaptive ? Windows{} : Windows::of(attributes);
  y = {image.shape[2], pooled.shape[2], adaptive, windows.y};
  x = {image.shape[3], pooled.shape[3], adaptive, windows.x};
}

PlaceInWindow::PlaceInWindow(const OpCall& call, int64_t /*width*/) : windows(Windows::of(*call.attributes)) {
  if (const std::string problem = max_pooling_problem(windows); !problem.empty()) throw usage_error("{}: {}", call.op, problem);
}

}  // namespace ulpscope
