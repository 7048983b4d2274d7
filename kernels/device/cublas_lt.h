// FP32 sums of matrix products by cuBLASLt.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <string>
#include <unordered_map>

#include "ulpscope/kernels/device/gemm.h"

namespace ulpscope::device {

// The algorithm follows from shapes, types and the alignment of the factors alone: it splits no sum and adds in FP32, so that equal
// calls have equal bits on one GPU with one version of the library.
class CublasLt {
 public:
  explicit CublasLt(cudaStream_t stream);
  CublasLt(CublasLt&& other) noexcept;
  ~CublasLt();

  std::string version() const;
  // `workspace`: kWorkspaceBytes that no call before uses any more.
  void multiply(const Gemm& gemm, void* workspace);

  static constexpr size_t kWorkspaceBytes = 32 << 20;

 private:
  const cublasLtMatmulAlgo_t& algorithm(const std::string& key, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                        cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t sums, const Gemm& gemm);

  cublasLtHandle_t handle_ = nullptr;
  cudaStream_t stream_;
  std::unordered_map<std::string, cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace ulpscope::device
