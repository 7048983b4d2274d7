#include "ulpscope/kernels/devices.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/base/parse_number.h"
#include "ulpscope/emulation/tensor_core.h"
#include "ulpscope/kernels/device/emulated_backend.h"
#if defined(ULPSCOPE_CUDA)
#include "ulpscope/kernels/device/cuda_backend.h"
#endif

namespace ulpscope {
namespace {

Error no_such_device(std::string_view device) {
  return usage_error("device: expected cpu, cuda, cuda:N, emulated or emulated:GPU, got '{}'", device);
}

std::unique_ptr<Backend> make_cuda(int device) {
#if defined(ULPSCOPE_CUDA)
  return make_cuda_backend(device);
#else
  throw failed_error("cuda:{}: this ulpscope was built without CUDA; docs/building.md says how to build it with", device);
#endif
}

}  // namespace

std::function<std::unique_ptr<Backend>()> maker_of_device(std::string_view device) {
  const size_t colon = device.find(':');
  const std::string_view kind = device.substr(0, colon);
  const bool has_choice = colon != std::string_view::npos;
  const std::string_view choice = has_choice ? device.substr(colon + 1) : "";
  if (device == "cpu") return {};
  if (kind == "cuda") {
    const std::optional<int> number = has_choice ? parse_number<int>(choice) : 0;
    if (!number || *number < 0) throw no_such_device(device);
    return [number = *number] { return make_cuda(number); };
  }
  if (kind != "emulated") throw no_such_device(device);
  const std::string gpu = has_choice ? std::string(choice) : "h100";
  const auto gpus = tensor_core_gpus();
  if (std::none_of(gpus.begin(), gpus.end(), [&](const TensorCoreGpu& known) { return known.name == gpu; })) {
    std::vector<std::string_view> names;
    for (const TensorCoreGpu& known : gpus) names.push_back(known.name);
    throw usage_error("device: expected one of {} after emulated:, got '{}'", fmt::join(names, ", "), gpu);
  }
  return [gpu] { return make_emulated_device_backend(0, gpu); };
}

}  // namespace ulpscope
