#include "ulpscope/kernels/devices.h"

#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/base/parse_number.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/tensor_core.h"
#if defined(ULPSCOPE_EMULATED_DEVICES)
#include "ulpscope/kernels/device/emulated_backend.h"
#endif
#if defined(ULPSCOPE_CUDA)
#include "ulpscope/kernels/device/cuda_backend.h"
#endif

namespace ulpscope {
namespace {

Error no_such_device(std::string_view device) {
  return usage_error("device: expected cpu, cuda, cuda:N, emulated or emulated:GPU, got '{}'", device);
}

// What a name stands for.
struct Chosen {
  enum class Kind : uint8_t { cpu, cuda, emulated };
  Kind kind = Kind::cpu;
  int number = 0;   // of cuda
  std::string gpu;  // of emulated
};

Chosen parse(std::string_view device) {
  const size_t colon = device.find(':');
  const std::string_view kind = device.substr(0, colon);
  const bool has_choice = colon != std::string_view::npos;
  const std::string_view choice = has_choice ? device.substr(colon + 1) : "";
  if (device == "cpu") return {};
  if (kind == "cuda") {
    const std::optional<int> number = has_choice ? parse_number<int>(choice) : 0;
    if (!number || *number < 0) throw no_such_device(device);
    return {Chosen::Kind::cuda, *number, {}};
  }
  if (kind != "emulated") throw no_such_device(device);
  const std::string gpu = has_choice ? std::string(choice) : "h100";
  if (find_tensor_core_gpu(gpu) == nullptr) {
    std::vector<std::string> names;
    for (const TensorCoreGpu& known : tensor_core_gpus()) names.emplace_back(known.name);
    throw usage_error("device: expected one of {} after emulated:, got '{}'{}", fmt::join(names, ", "), gpu,
                      did_you_mean(gpu, names));
  }
  return {Chosen::Kind::emulated, 0, gpu};
}

#if !defined(ULPSCOPE_CUDA)
Error built_without_cuda(int device) {
  return failed_error("cuda:{}: this ulpscope was built without CUDA (./dev build cuda builds it with CUDA; emulated needs no GPU)",
                      device);
}
std::unique_ptr<Backend> make_cuda_backend(int device) { throw built_without_cuda(device); }
std::string gpu_of_device(int device) { throw built_without_cuda(device); }
#endif
#if !defined(ULPSCOPE_EMULATED_DEVICES)
std::unique_ptr<Backend> make_emulated_device_backend(uint64_t /*seed*/, std::string_view gpu) {
  throw failed_error(
      "emulated:{}: this ulpscope was built without the kernels of GPUs for the host (a quick build); `./dev build` builds them",
      gpu);
}
#endif

}  // namespace

std::function<std::unique_ptr<Backend>()> maker_of_device(std::string_view device) {
  const Chosen chosen = parse(device);
  switch (chosen.kind) {
    case Chosen::Kind::cpu:
      return {};
    case Chosen::Kind::cuda:
      return [number = chosen.number] { return make_cuda_backend(number); };
    case Chosen::Kind::emulated:
      return [gpu = chosen.gpu] { return make_emulated_device_backend(0, gpu); };
  }
  return {};
}

std::string gpu_of_device(std::string_view device) {
  const Chosen chosen = parse(device);
  return chosen.kind == Chosen::Kind::cuda ? gpu_of_device(chosen.number) : chosen.gpu;
}

}  // namespace ulpscope
