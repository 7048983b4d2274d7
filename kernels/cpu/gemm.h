// FP32 matrix products by oneDNN, each on the calling thread. Primitives and their memory objects are kept by shape; no primitive
// is made in a steady step.
#pragma once

#include <cstdint>
#include <memory>

namespace ulpscope::cpu {

// One factor or result: element (i, j) lies at i * row + j * column, and one of the two strides is 1.
struct MatrixLayout {
  int64_t row = 0, column = 1;
  bool operator==(const MatrixLayout&) const = default;
};

struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  MatrixLayout a, b;        // m x k, k x n
  int64_t c_row = 0;        // c is row-major
  bool bias = false;        // c(i, j) += bias(j)
  bool accumulate = false;  // c += a b
  bool operator==(const GemmShape&) const = default;
  uint64_t hash() const;
};

class Gemm {
 public:
  Gemm(const GemmShape& shape, int slots);
  ~Gemm();
  Gemm(const Gemm&) = delete;

  size_t scratch_bytes() const;
  // Different slots may run at the same time.
  void run(int slot, const float* a, const float* b, const float* bias, float* c, void* scratch) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulpscope::cpu
