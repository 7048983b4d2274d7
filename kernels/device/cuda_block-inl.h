// The block (block.h) of a GPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

#include "ulpscope/kernels/device/block.h"
#include "ulpscope/kernels/device/cuda_multiply_add-inl.h"

namespace ulpscope::device {

template <typename T>
class CudaSharedArray {
 public:
  __device__ explicit CudaSharedArray(T* elements) : elements_(elements) {}
  __device__ T read(int index) const { return elements_[index]; }
  __device__ void write(int index, T value) const { elements_[index] = value; }
  __device__ void add(int index, T value) const { atomicAdd(elements_ + index, value); }

 private:
  T* elements_;
};

class CudaBlock {
 public:
  __device__ int64_t block() const { return blockIdx.x; }
  __device__ int64_t blocks() const { return gridDim.x; }
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ int lane() const { return thread() % kWarpThreads; }
  __device__ int warp() const { return thread() / kWarpThreads; }
  __device__ int warps() const { return threads() / kWarpThreads; }

  __device__ void barrier() { __syncthreads(); }
  __device__ void sync_warp() { __syncwarp(); }
  template <typename T>
  __device__ T shuffle(T value, int lane) {
    return __shfl_sync(kAll, value, lane);
  }
  template <typename T>
  __device__ T shuffle_down(T value, int lanes) {
    return __shfl_down_sync(kAll, value, lanes);
  }
  __device__ uint32_t ballot(bool value) { return __ballot_sync(kAll, value); }
  __device__ uint32_t sum(uint32_t value) { return __reduce_add_sync(kAll, value); }
  __device__ uint32_t smallest(uint32_t value) { return __reduce_min_sync(kAll, value); }
  __device__ uint32_t largest(uint32_t value) { return __reduce_max_sync(kAll, value); }

  template <MatrixInstruction instruction, typename Sum, size_t of_sums, size_t words>
  __device__ void multiply_add(Sum (&sums)[of_sums], const uint32_t (&a)[words], const uint32_t (&b)[words / 2]) {
    if constexpr (instruction.family == InstructionFamily::mma) {
      multiply_add_by_mma<instruction>(sums, a, b);
    } else {
      multiply_add_by_wgmma<instruction>(sums, a, b);
    }
  }

  template <class Array>
  __device__ CudaSharedArray<typename Array::Element> shared() {
    __shared__ typename Array::Element elements[Array::kSize];  // one for each Array
    return CudaSharedArray<typename Array::Element>(elements);
  }

  __device__ void add(uint64_t* place, uint64_t value) { atomicAdd(as_cuda(place), value); }
  __device__ void raise(uint64_t* place, uint64_t value) { atomicMax(as_cuda(place), value); }

  __device__ static uint16_t to_f16(float value) { return __half_as_ushort(__float2half_rn(value)); }
  __device__ static uint16_t to_bf16(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
  __device__ static float from_f16(uint16_t encoding) { return __half2float(__ushort_as_half(encoding)); }

 private:
  static constexpr unsigned kAll = ~0u;
  // CUDA's atomic functions have it as another type of the same size.
  __device__ static unsigned long long* as_cuda(uint64_t* place) { return reinterpret_cast<unsigned long long*>(place); }
};

}  // namespace ulpscope::device
