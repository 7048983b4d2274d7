// The device's kernels on the host: what a GPU would compute, its races found (host_block.h). For tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "ulpscope/kernels/backend.h"

namespace ulpscope {

// Records are filled in when it is complete. `seed`: of the order in which threads run; `gpu`: whose matrix units it has, as
// Arithmetic::accumulation names it.
std::unique_ptr<Backend> make_emulated_device_backend(uint64_t seed = 0, std::string_view gpu = "h100");

}  // namespace ulpscope
