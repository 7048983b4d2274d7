// What instructions of PTX compute of registers.
#pragma once

#include <string>

#include "tests/ptx/program.h"

namespace ulpscope::ptx {

// Of an instruction with that name and types, as "add.s32"; or nullptr. Where PTX leaves open what it gives, or it is not what a
// host gives, it throws Error (failed): a division by 0, a conversion to an integer that has no room for the number.
Instruction::Compute operation(const std::string& name);

}  // namespace ulpscope::ptx
