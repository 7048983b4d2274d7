// Counts the allocations of the program.
#pragma once

#include <cstddef>

namespace ulpscope {

size_t allocation_count();

}  // namespace ulpscope
