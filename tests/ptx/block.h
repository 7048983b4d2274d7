// Runs kernels in PTX on the host, a thread after the other, each to the next operation that threads do together. Memory is the
// host's. Errors (failed), with the line in PTX, are
//   an operation of a warp that not all of its lanes reach, a barrier that not all threads of the block reach
//   an access to shared memory where there is no array, one at an address that its size does not divide, and one near null
//   a shuffle of part of a warp, wgmma without its fences and waits, a grid that no GPU takes
//   a trap, and what operations.h has
#pragma once

#include <cstddef>

#include "tests/ptx/program.h"
#include "ulpscope/kernels/device/block.h"
#include "ulpscope/kernels/device/host_block.h"

namespace ulpscope::ptx {

// Every thread of every block. `kernel`: what it is given, of `bytes` bytes; `backwards`: the last block, warp and lane first.
void run(const Program& program, const Function& function, const device::Grid& grid, const void* kernel, size_t bytes,
         const device::MatrixUnits& units, bool backwards = false);

}  // namespace ulpscope::ptx
