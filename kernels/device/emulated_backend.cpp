#include "ulpscope/kernels/device/emulated_backend.h"

#include <cstring>
#include <new>

#include "ulpscope/kernels/device/backend-inl.h"
#include "ulpscope/kernels/device/host_block.h"

namespace ulpscope {
namespace {

class HostMachine {
 public:
  explicit HostMachine(uint64_t seed) : seed_(seed) {}

  std::string name() const { return "emulated device"; }
  std::string description() const { return "device code on the host"; }
  // Memory that nobody wrote holds NaN, in FP32 and 16-bit types.
  void* allocate(size_t bytes) { return std::memset(::operator new(bytes, kAlignment), 0xFF, bytes); }
  void release(void* memory, size_t) { ::operator delete(memory, kAlignment); }
  void clear(void* memory, size_t bytes) { std::memset(memory, 0, bytes); }
  void to_host(const void* from, void* to, size_t bytes) { std::memcpy(to, from, bytes); }
  void from_host(const void* from, void* to, size_t bytes) { std::memcpy(to, from, bytes); }
  template <class Kernel>
  void launch(const device::Grid& grid, const Kernel& kernel) {
    device::run_on_host(
        grid, [&](device::HostBlock& block) { kernel(block); }, seed_++);
  }

 private:
  static constexpr std::align_val_t kAlignment{64};

  uint64_t seed_;
};

}  // namespace

std::unique_ptr<Backend> make_emulated_device_backend(uint64_t seed) {
  return std::make_unique<device::DeviceBackend<HostMachine>>(HostMachine(seed));
}

}  // namespace ulpscope
