// Sums of matrix products by cuBLASLt, in FP32 numbers.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "ulpscope/kernels/backend.h"
#include "ulpscope/kernels/device/gemm.h"

struct CUstream_st;

namespace ulpscope::device {

// The algorithm follows from shapes, types and alignment alone, and splits no sum, so that equal calls have equal bits on one GPU
// with one version of the library. Sums are added in FP32, those of FP8 with the few bits of its matrix units ("fast
// accumulation").
class CublasLt {
 public:
  explicit CublasLt(CUstream_st* stream);
  CublasLt(CublasLt&&) noexcept;
  ~CublasLt();

  std::string version() const;
  // `workspace`: kWorkspaceBytes that no call before uses any more.
  void multiply(const Gemm& gemm, void* workspace);
  const std::vector<LibraryProduct>& products() const;

  static constexpr size_t kWorkspaceBytes = 32 << 20;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulpscope::device
