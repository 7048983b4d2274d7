// What the CUDA tests run on the device, without CUDA's types.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/emulation/number.h"

// Why there is no device to run on, or "".
std::string why_no_device();

using Floats = std::vector<float>;

// One elementwise formula, on the host or on the device. Its operands lie one array after the other, kOperands of equal length, of
// which it takes as many as it has inputs.
inline constexpr int kOperands = 4;
struct FormulaRun {
  std::string_view name;
  std::function<Floats(const Floats& operands)> on_host;
  std::function<Floats(const Floats& operands)> on_device;
};
// All of kernels/formulas.h, with their default attributes.
std::vector<FormulaRun> formula_runs();

// C = A B with cublasGemmEx: row-major FP16 encodings, FP32 accumulation, A of m x k and B of k x n.
std::vector<uint16_t> gemm_f16(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b, int m, int n, int k);

// convert() of emulation/number.h, of each encoding with the random bits beside it.
std::vector<uint64_t> convert_on_device(const ulpscope::FloatFormat& from, const ulpscope::FloatFormat& to,
                                        const ulpscope::Rounding& rounding, const std::vector<uint64_t>& encodings,
                                        const std::vector<uint32_t>& random);
