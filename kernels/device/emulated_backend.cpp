#include "ulpscope/kernels/device/emulated_backend.h"

#include "ulpscope/kernels/device/backend-inl.h"
#include "ulpscope/kernels/device/host_machine.h"

namespace ulpscope {

std::unique_ptr<Backend> make_emulated_device_backend(uint64_t seed, std::string_view gpu) {
  return std::make_unique<device::DeviceBackend<device::HostMachine>>(device::HostMachine(seed, gpu));
}

}  // namespace ulpscope
