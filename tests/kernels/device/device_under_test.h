// The device that the tests beside this run on: device code on the host, or in the tests of CUDA a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ulpscope/kernels/backend.h"

namespace ulpscope::testing_support {

// Takes calls whose tensors lie in memory of the host. `seed`: of the order in which threads run, where that is chosen.
std::unique_ptr<Backend> make_device_under_test(uint64_t seed = 0);
// Why there is no device to run on, or "".
std::string why_no_device_under_test();

}  // namespace ulpscope::testing_support
