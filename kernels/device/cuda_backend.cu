#include <cuda_runtime.h>

#include <string>
#include <utility>

#include "ulpscope/kernels/device/backend-inl.h"
#include "ulpscope/kernels/device/cuda_backend.h"
#include "ulpscope/kernels/device/cuda_block-inl.h"

namespace ulpscope {
namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw failed_error("CUDA: {}: {}", what, cudaGetErrorString(status));
}

// Three blocks, whose shared memory every multiprocessor has room for, share its registers.
template <class Kernel>
__global__ void __launch_bounds__(device::kMostThreads, 3) run_on_gpu(const __grid_constant__ Kernel kernel) {
  device::CudaBlock block;
  kernel(block);
}

// One GPU and a stream of it.
class CudaMachine {
 public:
  explicit CudaMachine(int device) {
    check(cudaSetDevice(device), "choosing a device");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, device), "asking for the device's properties");
    description_ = properties.name;
  }
  CudaMachine(CudaMachine&& other) noexcept
      : stream_(std::exchange(other.stream_, nullptr)), description_(std::move(other.description_)) {}
  ~CudaMachine() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  std::string name() const { return "cuda"; }
  std::string description() const { return description_; }
  void* allocate(size_t bytes) {
    void* memory = nullptr;
    check(cudaMallocAsync(&memory, bytes > 0 ? bytes : 1, stream_), "allocating memory");
    return memory;
  }
  void release(void* memory, size_t) { cudaFreeAsync(memory, stream_); }
  void clear(void* memory, size_t bytes) { check(cudaMemsetAsync(memory, 0, bytes, stream_), "clearing memory"); }
  void to_host(const void* from, void* to, size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "copying to the host");
    check(cudaStreamSynchronize(stream_), "waiting for the device");
  }
  void from_host(const void* from, void* to, size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "copying from the host");
  }
  template <class Kernel>
  void launch(const device::Grid& grid, const Kernel& kernel) {
    run_on_gpu<<<static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.threads), 0, stream_>>>(kernel);
    check(cudaGetLastError(), "launching a kernel");
  }

 private:
  cudaStream_t stream_ = nullptr;
  std::string description_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(int device) {
  return std::make_unique<device::DeviceBackend<CudaMachine>>(CudaMachine(device));
}

}  // namespace ulpscope
