#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

// "13.0"
std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }
int driver_version() {
  int version = 0;
  check(cudaDriverGetVersion(&version), "asking for the driver's version");
  return version;
}

// Throws Error (failed) where there is no such GPU.
cudaDeviceProp properties_of(int device) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver && driver_version() > 0)
    throw failed_error("cuda:{}: the driver is too old: it has CUDA {}, expected {} or later", device,
                       version_text(driver_version()), version_text(CUDART_VERSION));
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver || (status == cudaSuccess && count == 0))
    throw failed_error("cuda:{}: CUDA finds no GPU here, or no driver of one", device);
  check(status, "looking for GPUs");
  if (device >= count)
    throw failed_error("cuda:{}: expected a number below {}, since there {}", device, count,
                       count == 1 ? "is one GPU" : fmt::format("are {} GPUs", count));
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "asking for the GPU's properties");
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

// What its kernels were compiled for: binaryVersion 80 is compute capability 8.0. Throws Error (failed) where the program has none
// for this GPU.
cudaFuncAttributes kernels_for(int device, const cudaDeviceProp& properties) {
  check(cudaSetDevice(device), "choosing a GPU");
  cudaFuncAttributes attributes;
  const cudaError_t status = cudaFuncGetAttributes(&attributes, run_on_gpu<device::SumBits>);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction)
    throw failed_error("cuda:{}: {} has compute capability {}.{}, for which this ulpscope was not built (CMAKE_CUDA_ARCHITECTURES)",
                       device, properties.name, properties.major, properties.minor);
  check(status, "looking for its kernels");
  return attributes;
}

// A stream of a GPU, which stays the thread's.
class Stream {
 public:
  explicit Stream(int device) {
    check(cudaSetDevice(device), "choosing a GPU");
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

// Memory that is released stays the pool's, and is given to later calls of the stream without asking the driver.
cudaMemPool_t keep_released_memory(int device) {
  cudaMemPool_t pool = nullptr;
  check(cudaDeviceGetDefaultMemPool(&pool, device), "asking for the pool of memory");
  uint64_t all = std::numeric_limits<uint64_t>::max();
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all), "keeping released memory");
  return pool;
}

// One GPU and a stream of it.
class CudaMachine {
 public:
  explicit CudaMachine(int device)
      : properties_(properties_of(device)), kernels_(kernels_for(device, properties_)), stream_(device), library_(stream_.get()) {
    pool_ = keep_released_memory(device);
    gpu_ = tensor_core_gpu_of(properties_.name);
    name_ = fmt::format("cuda:{}", device);
    description_ = fmt::format("{}, compute capability {}.{}, driver with CUDA {}, {}", properties_.name, properties_.major,
                               properties_.minor, version_text(driver_version()), library_.version());
  }

  std::string name() const { return name_; }
  std::string description() const { return description_; }
  std::string_view gpu() const { return gpu_; }
  bool multiplies_fp8() const { return properties_.major * 10 + properties_.minor >= 89; }
  bool has(const MatrixInstruction& instruction) const {
    if (instruction.family == InstructionFamily::wgmma) return kHasWgmma && kernels_.binaryVersion == 90;
    // The driver may have compiled kernels again for a later GPU than they were written for.
    const int written_for = std::min(kernels_.binaryVersion, kernels_.ptxVersion);
    return instruction.family == InstructionFamily::mma && (!is_quantized(instruction.a) || written_for >= 89);
  }
  size_t workspace_bytes() const { return kPackedBytes; }
  void* allocate(size_t bytes) {
    void* memory = nullptr;
    const auto ask = [&] { return cudaMallocAsync(&memory, bytes > 0 ? bytes : 1, stream_.get()); };
    cudaError_t status = ask();
    if (status == cudaErrorMemoryAllocation) {
      // Once more without what the pool keeps, which may lie in pieces.
      cudaGetLastError();  // or the next launch would find it
      check(cudaStreamSynchronize(stream_.get()), "waiting for the device");
      check(cudaMemPoolTrimTo(pool_, 0), "giving kept memory back");
      status = ask();
      if (status == cudaErrorMemoryAllocation) throw out_of_memory(bytes);
    }
    check(status, "allocating memory");
    return memory;
  }
  void release(void* memory, size_t) {
    if (cudaFreeAsync(memory, stream_.get()) != cudaSuccess) cudaGetLastError();  // or the next launch would find it
  }
  void clear(void* memory, size_t bytes) {
    if (bytes > 0) check(cudaMemsetAsync(memory, 0, bytes, stream_.get()), "clearing memory");
  }
  void wait() { check(cudaStreamSynchronize(stream_.get()), "waiting for the device"); }
  void to_host(const void* from, void* to, size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_.get()), "copying to the host");
    wait();
  }
  void from_host(const void* from, void* to, size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_.get()), "copying from the host");
    // Elsewhere `from` is read into memory of the driver's before the call returns.
    if (properties_.pageableMemoryAccessUsesHostPageTables != 0) wait();
  }
  template <class Kernel>
  void launch(const device::Grid& grid, const Kernel& kernel) {
    run_on_gpu<<<static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.threads), 0, stream_.get()>>>(kernel);
    check(cudaGetLastError(), "launching a kernel");
  }
  void multiply(const device::Gemm& gemm) {
    const auto give_back = [this](void* memory) { release(memory, device::CublasLt::kWorkspaceBytes); };
    const std::unique_ptr<void, decltype(give_back)> workspace(allocate(device::CublasLt::kWorkspaceBytes), give_back);
    library_.multiply(gemm, workspace.get());
  }
  const std::vector<LibraryProduct>& library_products() const { return library_.products(); }

 private:
  static constexpr size_t kPackedBytes = 256 << 20;
#if defined(ULPSCOPE_SM_90A)
  static constexpr bool kHasWgmma = true;
#else
  static constexpr bool kHasWgmma = false;  // nothing was compiled for 90a, which alone has it
#endif

  Error out_of_memory(size_t bytes) const {
    cudaGetLastError();  // or the next launch would find it
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for free memory");
    constexpr double kMebibyte = 1 << 20;
    return failed_error("{}: out of memory: {:.0f} MiB more were asked for, {:.0f} of {:.0f} MiB are free", name_,
                        static_cast<double>(bytes) / kMebibyte, static_cast<double>(free) / kMebibyte,
                        static_cast<double>(total) / kMebibyte);
  }

  cudaDeviceProp properties_;
  cudaFuncAttributes kernels_;
  cudaMemPool_t pool_ = nullptr;
  Stream stream_;
  device::CublasLt library_;
  std::string_view gpu_;
  std::string name_, description_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(int device) {
  return std::make_unique<device::DeviceBackend<CudaMachine>>(CudaMachine(device));
}

std::string gpu_of_device(int device) { return std::string(tensor_core_gpu_of(properties_of(device).name)); }

}  // namespace ulpscope
