// What the CUDA tests run on the device, without CUDA's types.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

// Why there is no device to run on, or "".
std::string why_no_device();

using Floats = std::vector<float>;

// One elementwise formula over inputs a, b and c (as many as it takes), on the host or on the device.
struct FormulaRun {
  std::string_view name;
  std::function<Floats(const Floats& a, const Floats& b, const Floats& c)> on_host;
  std::function<Floats(const Floats& a, const Floats& b, const Floats& c)> on_device;
};
// All of ulpscope/kernels/formulas.h, with their default attributes.
std::vector<FormulaRun> formula_runs();

// C = A B with cublasGemmEx: row-major FP16 encodings, FP32 accumulation, A of m x k and B of k x n.
std::vector<uint16_t> gemm_f16(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b, int m, int n, int k);
