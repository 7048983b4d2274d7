// Instructions of the matrix units of a GPU, as the PTX instruction set has them: mma.sync with the fragments of block.h, and
// wgmma.mma_async with the same fragments for a, and b in shared memory.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/device/block.h"

namespace ulpscope::device {

// What no GPU that the code is compiled for reaches. Apart, for it to have a name: another trap is where nvcc found that device
// code reads what only the host has (scripts/check_device_code.py).
__device__ __noinline__ inline void not_for_this_gpu() { __trap(); }

// Volatile, so that none is left out or joined with another. All threads have to be there: callers are under no condition that
// differs between threads.
#define ULPSCOPE_MMA_F32(shape, of_a, of_b)                                           \
  asm volatile("mma.sync.aligned." shape ".row.col.f32." of_a "." of_b                \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#define ULPSCOPE_SHORT_MMA_F32(shape, of_a, of_b)                                                                                 \
  asm volatile("mma.sync.aligned." shape ".row.col.f32." of_a "." of_b ".f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" \
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                                       \
               : "r"(a[0]), "r"(a[1]), "r"(b[0]))
#define ULPSCOPE_MMA_F16(shape, of_a, of_b)                                                                                   \
  asm volatile("mma.sync.aligned." shape ".row.col.f16." of_a "." of_b ".f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};" \
               : "+r"(sums[0]), "+r"(sums[1])                                                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#define ULPSCOPE_SHORT_MMA_F16(shape, of_a, of_b)                                                                 \
  asm volatile("mma.sync.aligned." shape ".row.col.f16." of_a "." of_b ".f16 {%0, %1}, {%2, %3}, {%4}, {%0, %1};" \
               : "+r"(sums[0]), "+r"(sums[1])                                                                     \
               : "r"(a[0]), "r"(a[1]), "r"(b[0]))
// With its fence and its wait in one statement: between them registers are the instruction's.
// `transposes`: ", 0" where the instruction says whether b in shared memory is transposed.
#define ULPSCOPE_WGMMA_F32(shape, of_a, of_b, transposes)                                                                          \
  asm volatile(                                                                                                                    \
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %9, 0;\nwgmma.fence.sync.aligned;\n"                                                 \
      "wgmma.mma_async.sync.aligned." shape ".f32." of_a "." of_b " {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, adds, 1, 1" transposes \
      ";\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n}"                                                   \
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                                                 \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor), "r"(1)                                                        \
      : "memory")
#define ULPSCOPE_WGMMA_F16(shape, of_a, of_b, transposes)                                                                  \
  asm volatile(                                                                                                            \
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %7, 0;\nwgmma.fence.sync.aligned;\n"                                         \
      "wgmma.mma_async.sync.aligned." shape ".f16." of_a "." of_b " {%0, %1}, {%2, %3, %4, %5}, %6, adds, 1, 1" transposes \
      ";\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n}"                                           \
      : "+r"(sums[0]), "+r"(sums[1])                                                                                       \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor), "r"(1)                                                \
      : "memory")
// The instruction for any two FP8 types.
#define ULPSCOPE_OF_FP8(what, ...)                              \
  if constexpr (kA == DType::f8_e4m3 && kB == DType::f8_e4m3) { \
    what(__VA_ARGS__, "e4m3", "e4m3");                          \
  } else if constexpr (kA == DType::f8_e4m3) {                  \
    what(__VA_ARGS__, "e4m3", "e5m2");                          \
  } else if constexpr (kB == DType::f8_e4m3) {                  \
    what(__VA_ARGS__, "e5m2", "e4m3");                          \
  } else {                                                      \
    what(__VA_ARGS__, "e5m2", "e5m2");                          \
  }
#define ULPSCOPE_FP8_WGMMA_F32(shape, of_a, of_b) ULPSCOPE_WGMMA_F32(shape, of_a, of_b, "")
#define ULPSCOPE_FP8_WGMMA_F16(shape, of_a, of_b) ULPSCOPE_WGMMA_F16(shape, of_a, of_b, "")

template <MatrixInstruction instruction, typename Sum, size_t of_sums, size_t words>
__device__ void multiply_add_by_mma(Sum (&sums)[of_sums], const uint32_t (&a)[words], const uint32_t (&b)[words / 2]) {
  [[maybe_unused]] constexpr DType kA = instruction.a, kB = instruction.b;
  constexpr bool is_whole = words == kWholeWords / 2, is_narrow = instruction.sums == DType::f16;
  if constexpr (is_quantized(kA)) {
#if __CUDA_ARCH__ >= 890
    if constexpr (is_narrow) {
      ULPSCOPE_OF_FP8(ULPSCOPE_MMA_F16, "m16n8k32")
    } else {
      ULPSCOPE_OF_FP8(ULPSCOPE_MMA_F32, "m16n8k32")
    }
#else
    not_for_this_gpu();
#endif
  } else if constexpr (kA == DType::f16 && is_narrow && is_whole) {
    ULPSCOPE_MMA_F16("m16n8k16", "f16", "f16");
  } else if constexpr (kA == DType::f16 && is_narrow) {
    ULPSCOPE_SHORT_MMA_F16("m16n8k8", "f16", "f16");
  } else if constexpr (kA == DType::f16 && is_whole) {
    ULPSCOPE_MMA_F32("m16n8k16", "f16", "f16");
  } else if constexpr (kA == DType::f16) {
    ULPSCOPE_SHORT_MMA_F32("m16n8k8", "f16", "f16");
  } else if constexpr (kA == DType::bf16 && is_whole) {
    ULPSCOPE_MMA_F32("m16n8k16", "bf16", "bf16");
  } else if constexpr (kA == DType::bf16) {
    ULPSCOPE_SHORT_MMA_F32("m16n8k8", "bf16", "bf16");
  } else if constexpr (is_whole) {
    ULPSCOPE_MMA_F32("m16n8k8", "tf32", "tf32");
  } else {
    ULPSCOPE_SHORT_MMA_F32("m16n8k4", "tf32", "tf32");
  }
}

// Where wgmma finds b in shared memory: 8 columns by 16 bytes after another, not swizzled, both parts of a column kPartBytes apart.
__device__ inline uint64_t descriptor_of(const uint32_t* shared) {
  constexpr uint64_t kPartBytes = 128;
  const auto address = static_cast<uint64_t>(__cvta_generic_to_shared(shared));
  const auto encoded = [](uint64_t bytes) { return (bytes & 0x3FFFF) >> 4; };
  return encoded(address) | encoded(kPartBytes) << 16 | encoded(kPartBytes) << 32;
}

template <MatrixInstruction instruction, typename Sum, size_t of_sums>
__device__ void multiply_add_by_wgmma(Sum (&sums)[of_sums], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  [[maybe_unused]] constexpr DType kA = instruction.a, kB = instruction.b;
  constexpr bool is_narrow = instruction.sums == DType::f16;
  __shared__ alignas(128) uint32_t columns[kColumnsOfProduct * kWholeWords];
  // All warps have the same columns. Word lane % 4 + 4 i of column lane / 4 is that of a part of 8 columns by 4 words.
  if (threadIdx.x < kWarpThreads) {
    columns[threadIdx.x] = b[0];
    columns[kWarpThreads + threadIdx.x] = b[1];
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const uint64_t descriptor = descriptor_of(columns);
  if constexpr (is_quantized(kA) && is_narrow) {
    ULPSCOPE_OF_FP8(ULPSCOPE_FP8_WGMMA_F16, "m64n8k32")
  } else if constexpr (is_quantized(kA)) {
    ULPSCOPE_OF_FP8(ULPSCOPE_FP8_WGMMA_F32, "m64n8k32")
  } else if constexpr (is_narrow) {
    ULPSCOPE_WGMMA_F16("m64n8k16", "f16", "f16", ", 0");
  } else if constexpr (kA == DType::f16) {
    ULPSCOPE_WGMMA_F32("m64n8k16", "f16", "f16", ", 0");
  } else if constexpr (kA == DType::bf16) {
    ULPSCOPE_WGMMA_F32("m64n8k16", "bf16", "bf16", ", 0");
  } else {
    ULPSCOPE_WGMMA_F32("m64n8k8", "tf32", "tf32", "");
  }
  __syncthreads();
#else
  not_for_this_gpu();
#endif
}

#undef ULPSCOPE_MMA_F32
#undef ULPSCOPE_SHORT_MMA_F32
#undef ULPSCOPE_MMA_F16
#undef ULPSCOPE_SHORT_MMA_F16
#undef ULPSCOPE_WGMMA_F32
#undef ULPSCOPE_WGMMA_F16
#undef ULPSCOPE_OF_FP8
#undef ULPSCOPE_FP8_WGMMA_F32
#undef ULPSCOPE_FP8_WGMMA_F16

}  // namespace ulpscope::device
