// A product of two matrices into one dense output: cut into tiles that stay in L2, so that widening, multiplying, rounding and
// counting find the numbers in cache. Each thread multiplies tiles of its own. What is cut, and where, depends on shapes, types and
// the number of threads only, never on what is recorded: so results do not depend on recording.
#pragma once

#include <functional>
#include <memory>

#include "ulpscope/kernels/cpu/context.h"
#include "ulpscope/kernels/cpu/gemm.h"
#include "ulpscope/kernels/cpu/matrix.h"
#include "ulpscope/kernels/cpu/primitive_cache.h"

namespace ulpscope::cpu {

class GemmCache : public PrimitiveCache<GemmShape, Gemm> {
  using PrimitiveCache::PrimitiveCache;
};

// The first output of the call (row-major) = a b + bias. `bias`: a value for each column, or nullptr.
void multiply(Context& context, const OpCall& call, const Matrix& a, const Matrix& b, const float* bias);
// The same for `batch` products of one size without bias, which lie one after the other in the output: a(i) and b(i), which lie
// alike for all i, are the factors of the i-th.
using MatrixAt = std::function<Matrix(int64_t)>;
void multiply_batch(Context& context, const OpCall& call, int64_t batch, const MatrixAt& a, const MatrixAt& b);

}  // namespace ulpscope::cpu
