// What is beyond the largest number of a type (IEEE 754-2019, 7.4): the same rounding into a format of the same precision, whose
// exponents go further, says so.
#include "ulpscope/kernels/output_rounding.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ulpscope/base/hash.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::testing_support {
namespace {

// Magnitudes in eighths of a step about the largest number, and far from it, in both signs.
std::vector<double> values_about_largest(const FloatFormat& format) {
  const double largest = format.largest_finite();
  const double step = std::ldexp(1.0, format.largest_exponent() - format.fraction_bits);
  std::vector<double> magnitudes{step, 1.0, 16 * largest, HUGE_VAL};
  for (int eighths = -16; eighths <= 24; ++eighths) magnitudes.push_back(largest + step * eighths / 8);
  std::vector<double> values;
  for (const double magnitude : magnitudes)
    for (const double near : {std::nextafter(magnitude, 0.0), magnitude, std::nextafter(magnitude, HUGE_VAL)})
      values.insert(values.end(), {near, -near});
  return values;
}

TEST(OutputRounding, CountsWhatIsBeyondTheLargestNumberInEveryMode) {
  const struct {
    DType dtype;
    const char* further;
  } types[] = {{DType::f8_e4m3, "e8m3"}, {DType::f8_e5m2, "e8m2"}, {DType::f16, "e8m10"}};
  for (const auto& [dtype, further] : types) {
    const FloatFormat& format = *info(dtype).format;
    const FloatFormat& unbounded = parse_format(further);
    const std::vector<double> values = values_about_largest(format);
    const auto n = static_cast<int64_t>(values.size());
    for (int mode = 0; mode < kRoundingModes; ++mode) {
      const auto rounding = static_cast<RoundingMode>(mode);
      const Arithmetic how{.accumulation = find_accumulation("fp32"), .rounding = rounding};
      OpCall call;
      call.op = "quantize";
      call.arithmetic = &how;
      call.seed = 3;
      call.stream = 4;
      const OutputRounding output(call, 1, dtype);
      std::vector<uint16_t> stored(values.size());
      output.round(values.data(), 7, n, stored.data());
      const RandomStream random{call.seed, hash_combine(call.stream, 1)};
      uint64_t overflowed = 0, saturated = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double value = values[static_cast<size_t>(i)];
        if (std::isinf(value)) continue;
        const uint32_t bits = random_bits_of(random, static_cast<uint64_t>(7 + i));
        const bool beyond = std::abs(round_to_format(unbounded, value, Rounding{.mode = rounding}, bits)) > format.largest_finite();
        overflowed += beyond;
        saturated += beyond && !is_quantized(dtype) && std::isfinite(output.rounded(value, 7 + i));
      }
      const RoundingCounts counts = output.count(values.data(), 7, n, stored.data(), 1);
      const std::string where = fmt::format("{} {}", format.name, name_of(rounding));
      EXPECT_GT(overflowed, 0u) << where;
      EXPECT_EQ(counts.overflowed, overflowed) << where;
      EXPECT_EQ(counts.saturated, saturated) << where;
    }
  }
}

}  // namespace
}  // namespace ulpscope::testing_support
