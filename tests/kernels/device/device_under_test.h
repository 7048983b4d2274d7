// The device that the tests beside this run on: device code on the host, or in the tests of CUDA a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ulpscope/kernels/backend.h"

namespace ulpscope::testing_support {

// Takes calls whose tensors lie in memory of the host. `seed`: of the order in which threads run, where that is chosen; `gpu`: one
// of gpus_under_test(), or "" for the first of them.
std::unique_ptr<Backend> make_device_under_test(uint64_t seed = 0, const std::string& gpu = "");
// Whose matrix units there are, as Arithmetic::accumulation names them; none where the table of them has no such GPU.
std::vector<std::string> gpus_under_test();
// Why there is no device to run on, or "".
std::string why_no_device_under_test();

}  // namespace ulpscope::testing_support
