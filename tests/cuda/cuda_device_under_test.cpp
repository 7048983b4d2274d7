#include "tests/cuda/device.h"
#include "tests/kernels/device/device_under_test.h"
#include "tests/support/copying_backend.h"
#include "ulpscope/kernels/device/cuda_backend.h"

namespace ulpscope::testing_support {

std::unique_ptr<Backend> make_device_under_test(uint64_t, const std::string&) { return make_copying_backend(make_cuda_backend()); }
std::vector<std::string> gpus_under_test() {
  const std::string gpu = gpu_of_device();
  return gpu.empty() ? std::vector<std::string>{} : std::vector{gpu};
}
std::string why_no_device_under_test() { return why_no_device(); }

}  // namespace ulpscope::testing_support
