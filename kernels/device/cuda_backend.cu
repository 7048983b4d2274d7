#include <cuda_runtime.h>

#include <string>
#include <string_view>
#include <utility>

#include "ulpscope/emulation/tensor_core.h"
#include "ulpscope/kernels/device/backend-inl.h"
#include "ulpscope/kernels/device/cublas_lt.h"
#include "ulpscope/kernels/device/cuda_backend.h"
#include "ulpscope/kernels/device/cuda_block-inl.h"

namespace ulpscope {
namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw failed_error("CUDA: {}: {}", what, cudaGetErrorString(status));
}

cudaDeviceProp properties_of(int device) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "asking for the device's properties");
  return properties;
}

// How many blocks share the registers of a multiprocessor: three, whose shared memory each has room for, or what a kernel says.
template <class Kernel>
constexpr int blocks_at_once() {
  if constexpr (requires { Kernel::kBlocksAtOnce; }) {
    return Kernel::kBlocksAtOnce;
  } else {
    return 3;
  }
}

template <class Kernel>
__global__ void __launch_bounds__(device::kMostThreads, blocks_at_once<Kernel>())
    run_on_gpu(const __grid_constant__ Kernel kernel) {
  device::CudaBlock block;
  kernel(block);
}

class Stream {
 public:
  explicit Stream(int device) {
    check(cudaSetDevice(device), "choosing a device");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  }
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  ~Stream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// One GPU and a stream of it.
class CudaMachine {
 public:
  explicit CudaMachine(int device) : stream_(device), library_(stream_.get()) {
    const cudaDeviceProp properties = properties_of(device);
    gpu_ = tensor_core_gpu_of(properties.name);
    description_ = properties.name + (", " + library_.version());
  }

  std::string name() const { return "cuda"; }
  std::string description() const { return description_; }
  std::string_view gpu() const { return gpu_; }
  size_t workspace_bytes() const { return kPackedBytes; }
  void* allocate(size_t bytes) {
    void* memory = nullptr;
    check(cudaMallocAsync(&memory, bytes > 0 ? bytes : 1, stream_.get()), "allocating memory");
    return memory;
  }
  void release(void* memory, size_t) { cudaFreeAsync(memory, stream_.get()); }
  void clear(void* memory, size_t bytes) { check(cudaMemsetAsync(memory, 0, bytes, stream_.get()), "clearing memory"); }
  void to_host(const void* from, void* to, size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_.get()), "copying to the host");
    check(cudaStreamSynchronize(stream_.get()), "waiting for the device");
  }
  void from_host(const void* from, void* to, size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_.get()), "copying from the host");
  }
  template <class Kernel>
  void launch(const device::Grid& grid, const Kernel& kernel) {
    run_on_gpu<<<static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.threads), 0, stream_.get()>>>(kernel);
    check(cudaGetLastError(), "launching a kernel");
  }
  void multiply(const device::Gemm& gemm) {
    void* const workspace = allocate(device::CublasLt::kWorkspaceBytes);
    library_.multiply(gemm, workspace);
    release(workspace, device::CublasLt::kWorkspaceBytes);
  }

 private:
  static constexpr size_t kPackedBytes = 256 << 20;

  Stream stream_;
  device::CublasLt library_;
  std::string_view gpu_;
  std::string description_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(int device) {
  return std::make_unique<device::DeviceBackend<CudaMachine>>(CudaMachine(device));
}

std::string gpu_of_device(int device) { return std::string(tensor_core_gpu_of(properties_of(device).name)); }

}  // namespace ulpscope
