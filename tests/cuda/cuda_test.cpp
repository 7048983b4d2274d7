// The formulas and roundings shared by host and device, and a cuBLAS product, on a GPU. Skipped where there is none.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/cuda/device.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {
namespace {

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_device(); !why.empty()) GTEST_SKIP() << "skipped: " << why;
  }
};

// Every combination of three special values, then random encodings.
Floats operands() {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const Floats special = {0.0f, -0.0f, 1.0f, -1.0f, 0x1p-149f, -0x1p-126f, 0x1.fffffep127f, infinity, -infinity, NAN, 0.5f, 1e-6f};
  std::array<Floats, kOperands> arrays;
  for (const float a : special)
    for (const float b : special)
      for (const float c : special)
        for (int which = 0; which < kOperands; ++which) arrays[which].push_back(which == 0 ? a : which == 1 ? b : c);
  Floats values;
  for (int which = 0; which < kOperands; ++which) {
    const Philox random(1, static_cast<uint64_t>(which));
    for (uint64_t i = 0; i < 100000; ++i) arrays[which].push_back(std::bit_cast<float>(random.bits(i)));
    values.insert(values.end(), arrays[which].begin(), arrays[which].end());
  }
  return values;
}

// NaN is NaN: a device makes no promise on its payload. Everything else has the same bits.
bool same(float a, float b) { return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

TEST_F(Cuda, EveryFormulaGivesTheBitsOfTheHost) {
  const Floats inputs = operands();
  for (const FormulaRun& formula : formula_runs()) {
    const Floats host = formula.on_host(inputs), device = formula.on_device(inputs);
    for (size_t i = 0; i < host.size(); ++i) {
      ASSERT_TRUE(same(host[i], device[i])) << formula.name << " of " << inputs[i] << ", " << inputs[host.size() + i]
                                            << ", ...: " << host[i] << " on the host, " << device[i] << " on the device";
    }
  }
}

// From FP32 to every format in every mode, and back; NaN's payloads too, since only integers are computed with.
TEST_F(Cuda, ConversionsGiveTheBitsOfTheHost) {
  const Philox bits(3, 0);
  std::vector<uint64_t> encodings;
  std::vector<uint32_t> random;
  for (uint64_t i = 0; i < 100000; ++i) {
    // One in eight is of a format with few bits, as numbers and midpoints of narrow formats are.
    encodings.push_back(bits.bits(2 * i) & (i % 8 == 0 ? 0xFFF80000 : 0xFFFFFFFF));
    random.push_back(bits.bits(2 * i + 1));
  }
  for (const FloatFormat* format : kFormats) {
    for (const RoundingModeName& mode : rounding_modes()) {
      for (const Overflow overflow : {Overflow::ieee, Overflow::saturate}) {
        for (const SubnormalResults subnormals : {SubnormalResults::keep, SubnormalResults::flush}) {
          const Rounding rounding{.mode = mode.mode, .overflow = overflow, .subnormals = subnormals};
          const std::vector<uint64_t> found = convert_on_device(binary32, *format, rounding, encodings, random);
          const std::vector<uint64_t> back = convert_on_device(*format, binary32, rounding, found, random);
          for (size_t i = 0; i < encodings.size(); ++i) {
            ASSERT_EQ(found[i], convert(binary32, *format, encodings[i], rounding, random[i])) << format->name << ' ' << mode.name;
            ASSERT_EQ(back[i], convert(*format, binary32, found[i], rounding, random[i])) << format->name << ' ' << mode.name;
          }
        }
      }
    }
  }
}

TEST_F(Cuda, ProductInFp16IsWithinItsBound) {
  constexpr int m = 48, n = 40, k = 72;
  const Philox random(2, 0);
  std::vector<uint16_t> a(m * k), b(k * n);
  for (size_t i = 0; i < a.size(); ++i) a[i] = round_to_f16(random.normal(i));
  for (size_t i = 0; i < b.size(); ++i) b[i] = round_to_f16(random.normal(a.size() + i));
  const std::vector<uint16_t> c = gemm_f16(a, b, m, n, k);
  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < n; ++column) {
      double exact = 0, magnitude = 0;  // FP64 holds products of FP16 values exactly, and sums of 72 of them to 2^-45
      for (int i = 0; i < k; ++i) {
        const double term = double{f16_to_float(a[row * k + i])} * f16_to_float(b[i * n + column]);
        exact += term;
        magnitude += std::abs(term);
      }
      // Tensor cores truncate sums: each of the k additions errs by at most 2^-23 of the magnitudes added so far. Then one rounding
      // to FP16: half an ulp, 2^-11 of the value, or half the smallest subnormal, 2^-25.
      const double accumulated = k * 0x1p-23 * magnitude;
      const double bound = accumulated + (std::abs(exact) + accumulated) * 0x1p-11 + 0x1p-25;
      const double error = std::abs(f16_to_float(c[row * n + column]) - exact);
      ASSERT_TRUE(error <= bound) << "element " << row << ", " << column << ": error " << error << ", bound " << bound;
    }
  }
}

}  // namespace
}  // namespace ulpscope
