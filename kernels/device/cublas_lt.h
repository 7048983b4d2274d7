// FP32 sums of matrix products by cuBLASLt.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "ulpscope/kernels/device/gemm.h"

struct CUstream_st;

namespace ulpscope::device {

// The algorithm follows from shapes, types and the alignment of the factors alone: it splits no sum and adds in FP32, so that equal
// calls have equal bits on one GPU with one version of the library.
class CublasLt {
 public:
  explicit CublasLt(CUstream_st* stream);
  CublasLt(CublasLt&&) noexcept;
  ~CublasLt();

  std::string version() const;
  // `workspace`: kWorkspaceBytes that no call before uses any more.
  void multiply(const Gemm& gemm, void* workspace);

  static constexpr size_t kWorkspaceBytes = 32 << 20;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulpscope::device
