// Matrix products that a machine's library computes.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ulpscope/emulation/format.h"

namespace ulpscope::device {

// Element `term` of line `line` in a batch lies at batch * batch_stride + line * line_stride + term * term_stride. Terms or lines
// follow each other, and the others lie apart; of FP8 terms follow each other, and lines begin at multiples of kFp8Multiple.
struct GemmFactor {
  const void* data;
  DType dtype;  // of both: f32, f16, bf16, or two of FP8, one of them e4m3
  int64_t batch_stride, line_stride, term_stride;
};

// Of columns and terms of FP8, and of the bytes that their lines begin at.
inline constexpr int64_t kFp8Multiple = 16;

// sums[batch][row][column] of FP32: each row of a times each column of b, added in FP32; of FP8 in what its matrix units add in,
// which may have fewer bits (tensor_core.h).
struct Gemm {
  GemmFactor a, b;
  int64_t batches, rows, columns, terms;  // none is 0; of FP8 columns and terms are multiples of kFp8Multiple
  float* sums;
  bool continues;  // adds to what is there
};

// What LibraryProduct::product says of it: "m 4, n 8, k 16, a f16 (strides 16, 1), b f16 (strides 16, 1)", with the number of
// batches and their strides where there are several. `of_a`, `of_b`: what else is said of the factors, ", aligned to 256".
inline std::string describe_gemm(const Gemm& gemm, std::string_view of_a = {}, std::string_view of_b = {}) {
  const auto factor = [&](const GemmFactor& each, std::string_view more) {
    const std::string batch = gemm.batches > 1 ? fmt::format("{}, ", each.batch_stride) : "";
    return fmt::format("{} (strides {}{}, {}{})", info(each.dtype).name, batch, each.line_stride, each.term_stride, more);
  };
  const std::string batches = gemm.batches > 1 ? fmt::format("{} batches, ", gemm.batches) : "";
  return fmt::format("{}m {}, n {}, k {}, a {}, b {}", batches, gemm.rows, gemm.columns, gemm.terms, factor(gemm.a, of_a),
                     factor(gemm.b, of_b));
}

// Why a factor is none that a library takes, or "".
inline const char* problem_of(const GemmFactor& factor, int64_t lines, int64_t terms) {
  const bool by_lines = (factor.term_stride == 1 || terms == 1) && (factor.line_stride >= terms || lines == 1);
  const bool by_terms = (factor.line_stride == 1 || lines == 1) && (factor.term_stride >= lines || terms == 1);
  if (!by_lines && !by_terms) return "neither lines nor terms follow each other";
  if (!is_quantized(factor.dtype)) return "";
  if (factor.term_stride != 1 || terms % kFp8Multiple != 0 || factor.line_stride % kFp8Multiple != 0)
    return "FP8 whose lines do not begin at multiples of 16";
  return "";
}

}  // namespace ulpscope::device
