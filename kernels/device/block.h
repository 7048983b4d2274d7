// What device code may use of the machine. Kernels are functions over a Block,
//
//   template <class Block>
//   ULPSCOPE_DEVICE void kernel(Block& block, const Params& params);
//
// that every thread of every block of a grid runs. There are two: CUDA's (cuda_block-inl.h), and one that runs the threads of a
// block as coroutines on the host and finds races (host_block.h). A Block has
//
//   block(), blocks()            which block of the grid this is, and how many there are
//   thread(), threads()          which thread of the block, and how many: a multiple of kWarpThreads
//   lane(), warp(), warps()      which thread of the warp, which warp of the block, how many
//   barrier()                    waits until all threads of the block are there. What they wrote to memory before it is seen by
//                                all of them behind it
//   sync_warp()                  the same of the threads of the warp
//   shuffle(v, lane)             the v of the thread with that lane, 32 bits. No barrier: it orders no access to memory
//   shuffle_down(v, n)           the v of the lane that is n further on; of the last n lanes, their own
//   ballot(b)                    bit i: the b of lane i
//   sum(v), smallest(v), largest(v)   of uint32_t, over the warp
//   shared<A>()                  the block's array A in shared memory, which is undefined at first: A::Element, A::kSize elements
//                                and A::kName. read(i), write(i, value), and add(i, n) of integers, in any order among other add()s
//   multiply_add<instruction>(sums, a, b)   sums += a b by the matrix units: kRowsOfProduct rows of a for each warp, times
//                                kColumnsOfProduct columns of b. Each line has kWholeWords words of terms, or kShortWords, of which
//                                a thread has in a[i] word lane() % 4 + 4 (i / 2) of row lane() / 4 + 8 (i % 2), in b[i] word
//                                lane() % 4 + 4 i of column lane() / 4, and in sums[i] row lane() / 4 + 8 (i / 2) of column
//                                lane() % 4 * 2 + i % 2; of FP16 sums two of one row are in a word. mma is of a warp, wgmma of
//                                kWarpsOfGroup ones, which are the block, with the same columns
//   add(p, n), raise(p, n)       *p += n and *p = max(*p, n) of uint64_t in global memory, in any order among other threads
//   to_f16(x), to_bf16(x), from_f16(e)   conversions, to nearest even, as emulation/rounding.h has them
//
// All threads of a block pass the same barriers, and all threads of a warp the same operations of a warp. Between a write to an
// element of shared memory and another thread's access to it there is a barrier, or a sync_warp() where both are of one warp.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/matrix_instructions.h"

#if defined(__CUDACC__)
#define ULPSCOPE_DEVICE __device__
#define ULPSCOPE_UNROLL _Pragma("unroll")
#define ULPSCOPE_DEVICE_NOINLINE __device__ __noinline__
#else
#define ULPSCOPE_DEVICE
#define ULPSCOPE_UNROLL
#define ULPSCOPE_DEVICE_NOINLINE __attribute__((noinline))
#endif

namespace ulpscope::device {

inline constexpr int kWarpThreads = 32;
inline constexpr int kMostThreads = 256;  // of a block

inline constexpr int kRowsOfProduct = 16, kColumnsOfProduct = 8, kWarpsOfGroup = 4;

// What a thread has of the sums of an instruction.
template <MatrixInstruction instruction>
struct SumsOfThread {
  using Element = float;
  static constexpr int kSize = 4;
};
template <MatrixInstruction instruction>
requires(instruction.sums == DType::f16) struct SumsOfThread<instruction> {
  using Element = uint32_t;  // two of them
  static constexpr int kSize = 2;
};

struct Grid {
  int64_t blocks = 1;
  int threads = kWarpThreads;  // of a block: whole warps, at most kMostThreads
};

}  // namespace ulpscope::device
