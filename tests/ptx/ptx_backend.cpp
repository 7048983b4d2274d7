// With ULPSCOPE_TEST_PTX naming a file in PTX, every emulated device runs its kernels as nvcc compiled them: the linker puts this
// in the place of make_emulated_device_backend (ulpscope_test_ptx).
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "tests/ptx/block.h"
#include "tests/ptx/program.h"
#include "ulpscope/kernels/device/backend-inl.h"
#include "ulpscope/kernels/device/host_machine.h"

namespace ulpscope {
namespace {

const ptx::Program& program() {
  static const ptx::Program program = ptx::read_program(std::getenv("ULPSCOPE_TEST_PTX"));
  return program;
}

class PtxMachine : public device::HostMachine {
 public:
  using HostMachine::HostMachine;
  std::string description() const { return HostMachine::description() + ", as nvcc compiled them"; }
  template <class Kernel>
  void launch(const device::Grid& grid, const Kernel& kernel) {
    static const ptx::Function& function = program().kernel(typeid(Kernel));
    ptx::run(program(), function, grid, &kernel, sizeof kernel, units(), launches_++ % 2 == 1);
  }

 private:
  uint64_t launches_ = 0;
};

}  // namespace
}  // namespace ulpscope

// The names are those of the C++ function, mangled.
extern "C" std::unique_ptr<ulpscope::Backend>
__real__ZN8ulpscope28make_emulated_device_backendEmSt17basic_string_viewIcSt11char_traitsIcEE(uint64_t seed, std::string_view gpu);
extern "C" std::unique_ptr<ulpscope::Backend>
__wrap__ZN8ulpscope28make_emulated_device_backendEmSt17basic_string_viewIcSt11char_traitsIcEE(uint64_t seed, std::string_view gpu) {
  if (std::getenv("ULPSCOPE_TEST_PTX") != nullptr)
    return std::make_unique<ulpscope::device::DeviceBackend<ulpscope::PtxMachine>>(ulpscope::PtxMachine(seed, gpu));
  return __real__ZN8ulpscope28make_emulated_device_backendEmSt17basic_string_viewIcSt11char_traitsIcEE(seed, gpu);
}
