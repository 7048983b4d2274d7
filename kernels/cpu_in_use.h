// What bit-equality on a CPU depends on besides the machine.
#pragma once

#include <optional>
#include <string_view>

#include "ulpscope/kernels/backend.h"

namespace ulpscope {

// With which make_cpu_backend gives a backend that computes as the last one of this process does: no field is left to choose.
CpuOptions cpu_options_in_use();

// With which a backend on the CPU has the description (Backend::description), on a machine with that instruction set; nothing: it
// is none of ours.
std::optional<CpuOptions> cpu_options_of(std::string_view description);
// Whether the instruction set is that in use, or one that every CPU with that has.
bool is_in_use(std::string_view isa);

}  // namespace ulpscope
