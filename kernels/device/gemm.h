// Matrix products that a machine's library computes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulpscope/emulation/format.h"

namespace ulpscope::device {

// Element `term` of line `line` in a batch lies at batch * batch_stride + line * line_stride + term * term_stride.
struct GemmFactor {
  const void* data;
  DType dtype;  // of both: f32, f16, bf16, or any two of FP8
  int64_t batch_stride, line_stride, term_stride;
};

// sums[batch][row][column] of FP32: each row of a times each column of b, in FP32.
struct Gemm {
  GemmFactor a, b;
  int64_t batches, rows, columns, terms;  // none is 0
  float* sums;
  bool continues;  // adds to what is there
};

}  // namespace ulpscope::device
