// What bit-equality on a CPU depends on besides the machine.
#pragma once

#include "ulpscope/kernels/backend.h"

namespace ulpscope {

// With which make_cpu_backend gives a backend that computes as the last one of this process does: no field is left to choose.
CpuOptions cpu_options_in_use();

}  // namespace ulpscope
