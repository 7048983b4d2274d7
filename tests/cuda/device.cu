#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <stdexcept>

#include "tests/cuda/device.h"
#include "ulpscope/kernels/formulas.h"

namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(std::string(what) + ": " + cublasGetStatusString(status));
}

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) { check(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc"); }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    check(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), "copy to the device");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return data_; }
  std::vector<T> values() const {
    std::vector<T> values(count_);
    check(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "copy from the device");
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

template <typename F>
__host__ __device__ float evaluate(const F& formula, float a, float b, float c) {
  if constexpr (F::kInputs == 0) {
    return formula.template operator()<float>();
  } else if constexpr (F::kInputs == 1) {
    return formula(a);
  } else if constexpr (F::kInputs == 2) {
    return formula(a, b);
  } else {
    return formula(a, b, c);
  }
}

template <typename F>
__global__ void evaluate_all(F formula, const float* a, const float* b, const float* c, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = evaluate(formula, a[i], b[i], c[i]);
}

template <typename F>
FormulaRun formula_run() {
  const F formula;
  const auto on_host = [formula](const Floats& a, const Floats& b, const Floats& c) {
    Floats out(a.size());
    for (size_t i = 0; i < a.size(); ++i) out[i] = evaluate(formula, a[i], b[i], c[i]);
    return out;
  };
  const auto on_device = [formula](const Floats& a, const Floats& b, const Floats& c) {
    DeviceArray<float> device_a(a), device_b(b), device_c(c), out(a.size());
    const int n = static_cast<int>(a.size());
    evaluate_all<<<(n + 255) / 256, 256>>>(formula, device_a.data(), device_b.data(), device_c.data(), out.data(), n);
    check(cudaGetLastError(), F::kName);
    return out.values();
  };
  return {F::kName, on_host, on_device};
}

template <typename... F>
std::vector<FormulaRun> runs_of(ulpscope::lanes::FormulaList<F...>) {
  return {formula_run<F>()...};
}

}  // namespace

std::string why_no_device() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) return cudaGetErrorString(status);
  return count > 0 ? "" : "no CUDA device";
}

std::vector<FormulaRun> formula_runs() { return runs_of(ulpscope::lanes::Formulas()); }

std::vector<uint16_t> gemm_f16(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b, int m, int n, int k) {
  DeviceArray<uint16_t> device_a(a), device_b(b), c(static_cast<size_t>(m) * n);
  cublasHandle_t handle;
  check(cublasCreate(&handle), "cublasCreate");
  const float one = 1, zero = 0;
  // cuBLAS is column-major: the row-major C = A B is C^T = B^T A^T to it.
  const cublasStatus_t status =
      cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &one, device_b.data(), CUDA_R_16F, n, device_a.data(), CUDA_R_16F, k,
                   &zero, c.data(), CUDA_R_16F, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  cublasDestroy(handle);
  check(status, "cublasGemmEx");
  return c.values();
}
