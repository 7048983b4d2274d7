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
__host__ __device__ float evaluate(const F& formula, const float (&values)[kOperands]) {
  using ulpscope::lanes::evaluate;
  if constexpr (F::kInputs == 0) {
    return evaluate<float>(formula);
  } else if constexpr (F::kInputs == 1) {
    return evaluate<float>(formula, values[0]);
  } else if constexpr (F::kInputs == 2) {
    return evaluate<float>(formula, values[0], values[1]);
  } else if constexpr (F::kInputs == 3) {
    return evaluate<float>(formula, values[0], values[1], values[2]);
  } else {
    static_assert(F::kInputs == kOperands);
    return evaluate<float>(formula, values[0], values[1], values[2], values[3]);
  }
}

// `operands`: one array of n after the other.
template <typename F>
__global__ void evaluate_all(F formula, const float* operands, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = evaluate(formula, {operands[i], operands[n + i], operands[2 * n + i], operands[3 * n + i]});
}

template <typename F>
FormulaRun formula_run() {
  const F formula;
  const auto on_host = [formula](const Floats& operands) {
    const size_t n = operands.size() / kOperands;
    Floats out(n);
    for (size_t i = 0; i < n; ++i)
      out[i] = evaluate(formula, {operands[i], operands[n + i], operands[2 * n + i], operands[3 * n + i]});
    return out;
  };
  const auto on_device = [formula](const Floats& operands) {
    const int n = static_cast<int>(operands.size() / kOperands);
    DeviceArray<float> device_operands(operands), out(static_cast<size_t>(n));
    evaluate_all<<<(n + 255) / 256, 256>>>(formula, device_operands.data(), out.data(), n);
    check(cudaGetLastError(), F::kName);
    return out.values();
  };
  return {F::kName, on_host, on_device};
}

__global__ void convert_all(ulpscope::FloatFormat from, ulpscope::FloatFormat to, ulpscope::Rounding rounding,
                            const uint64_t* encodings, const uint32_t* random, uint64_t* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = ulpscope::convert(from, to, encodings[i], rounding, random[i]);
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

std::vector<uint64_t> convert_on_device(const ulpscope::FloatFormat& from, const ulpscope::FloatFormat& to,
                                        const ulpscope::Rounding& rounding, const std::vector<uint64_t>& encodings,
                                        const std::vector<uint32_t>& random) {
  DeviceArray<uint64_t> device_encodings(encodings), out(encodings.size());
  DeviceArray<uint32_t> device_random(random);
  const int n = static_cast<int>(encodings.size());
  convert_all<<<(n + 255) / 256, 256>>>(from, to, rounding, device_encodings.data(), device_random.data(), out.data(), n);
  check(cudaGetLastError(), "convert");
  return out.values();
}

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
