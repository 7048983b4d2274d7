#include "tests/kernels/device/device_under_test.h"
#include "tests/support/copying_backend.h"
#include "ulpscope/kernels/device/emulated_backend.h"

namespace ulpscope::testing_support {

std::unique_ptr<Backend> make_device_under_test(uint64_t seed, const std::string& gpu) {
  return make_copying_backend(make_emulated_device_backend(seed, gpu.empty() ? gpus_under_test().front() : gpu));
}
std::vector<std::string> gpus_under_test() { return {"h100", "a100"}; }
std::string why_no_device_under_test() { return ""; }

}  // namespace ulpscope::testing_support
