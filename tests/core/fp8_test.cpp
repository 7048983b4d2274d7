// FP8: scales and encodings against the scalar routines of emulation, products against FP64, delayed scaling against histories made
// by hand.
#include "ulpscope/core/ops/fp8.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "tests/support/engine_fixture.h"
#include "tests/support/usage_error.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/core/engine/autocast.h"
#include "ulpscope/emulation/round_array.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/emulation/summation.h"
#include "ulpscope/emulation/tensor_core.h"
#include "ulpscope/kernels/op_call_arithmetic.h"

namespace ulpscope {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
constexpr Rounding kSaturate{.overflow = Overflow::saturate};

class Fp8Test : public EngineTest {
 protected:
  Tensors quantized(const Tensor& x, DType type, const Attributes& attributes = {}, const Tensor& scale = {}) {
    const Tensors inputs = scale ? Tensors{x, scale} : Tensors{x};
    return dispatch(find_op("quantize"), inputs, attributes, {.dtype = type});
  }
  static float value(const Tensor& scalar) { return static_cast<float>(to_host(scalar)[0]); }
  // Bit for bit, and with the statistics' counts: x * scale in FP32, then the scalar routine.
  void expect_encodings(const Tensor& x, const Tensors& result, float scale) {
    const FloatFormat& format = *info(result[0].dtype()).format;
    const std::vector<double> values = to_host(x), actual = to_host(result[0]);
    for (size_t i = 0; i < values.size(); ++i) {
      const double expected = value_of(format, round_to_encoding(format, static_cast<float>(values[i]) * scale, kSaturate));
      if (std::isnan(expected) && std::isnan(actual[i])) continue;
      ASSERT_EQ(std::bit_cast<uint64_t>(actual[i]), std::bit_cast<uint64_t>(expected)) << i << ": " << values[i] << " * " << scale;
    }
  }
};

TEST_F(Fp8Test, CurrentScalingTakesTheLargestMagnitudeToTheLargestValue) {
  for (const DType type : {DType::f8_e4m3, DType::f8_e5m2}) {
    const double largest = type == DType::f8_e4m3 ? 448 : 57344;
    for (const DType of_x : {DType::f32, DType::bf16, DType::f16}) {
      for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1}, {7, 3}, {3, 5, 4, 9}, {300, 301}}) {
        const Tensor x = random(of_x, shape, 1, -3e-3, 2e-3);
        const std::vector<double> values = to_host(x);
        double amax = 0;
        for (const double v : values) amax = std::max(amax, std::fabs(v));
        const Tensors result = quantized(x, type);
        // FP64 holds enough bits that the quotient of two FP32 numbers is rounded to FP32 as the exact one.
        const auto scale = static_cast<float>(largest / amax);
        EXPECT_EQ(value(result[1]), scale);
        EXPECT_EQ(value(result[2]), static_cast<float>(1.0 / scale));
        EXPECT_EQ(value(result[3]), static_cast<float>(amax));
        expect_encodings(x, result, scale);
      }
    }
  }
}

TEST_F(Fp8Test, MarginAndPowersOfTwoLowerTheScale) {
  const Tensor x = tensor(DType::f32, {3}, {0.5, -3, 1});
  EXPECT_EQ(value(quantized(x, DType::f8_e4m3, {{"margin", 3}, {"power_of_two", 0}})[1]), 448.0f / 8 / 3);
  EXPECT_EQ(value(quantized(x, DType::f8_e4m3, {{"margin", 0}, {"power_of_two", 1}})[1]), 128.0f);   // below 149.3
  EXPECT_EQ(value(quantized(x, DType::f8_e5m2, {{"margin", 1}, {"power_of_two", 1}})[1]), 8192.0f);  // below 9557.3
}

TEST_F(Fp8Test, AScaleWithoutAMagnitudeIsOne) {
  EXPECT_EQ(value(quantized(tensor(DType::f32, {2}, {0, -0.0}), DType::f8_e4m3)[1]), 1.0f);
  EXPECT_EQ(value(quantized(tensor(DType::f32, {0}, {}), DType::f8_e4m3)[1]), 1.0f);
  EXPECT_EQ(value(quantized(tensor(DType::f32, {2}, {kNan, kNan}), DType::f8_e5m2)[1]), 1.0f);
  EXPECT_EQ(value(quantized(tensor(DType::f32, {2}, {1, -kInfinity}), DType::f8_e5m2)[1]), 1.0f);
  // Beyond FP32 the largest FP32 number stands for it.
  const Tensors tiny = quantized(tensor(DType::f32, {1}, {0x1p-149}), DType::f8_e4m3);
  EXPECT_EQ(value(tiny[1]), std::numeric_limits<float>::max());
  EXPECT_EQ(to_host(tiny[0])[0], 0);  // 2^-149 * 2^128 is 2^-21
}

TEST_F(Fp8Test, WhatIsBeyondTheLargestValueSaturatesAndNanStays) {
  const Tensor x = tensor(DType::f32, {6}, {464, 465, -1e30, kInfinity, -kInfinity, kNan});
  const std::vector<double> values = to_host(quantized(x, DType::f8_e4m3, {}, scalar(DType::f32, 1))[0]);
  EXPECT_THAT(std::vector(values.begin(), values.end() - 1), ElementsAre(448, 448, -448, 448, -448));
  EXPECT_TRUE(std::isnan(values[5]));
  const std::vector<double> wide = to_host(quantized(x, DType::f8_e5m2, {}, scalar(DType::f32, 1))[0]);
  EXPECT_THAT(std::vector(wide.begin(), wide.end() - 1), ElementsAre(448, 448, -57344, 57344, -57344));
  EXPECT_TRUE(std::isnan(wide[5]));
  // NaN has no part in the amax.
  EXPECT_EQ(value(quantized(tensor(DType::f32, {3}, {kNan, -2, 1}), DType::f8_e4m3)[3]), 2);
}

TEST_F(Fp8Test, RoundingsAreCounted) {
  // At scale 1, E4M3's smallest number is 2^-9, and up to half of it is flushed; above 464 saturates.
  const Tensor x = tensor(DType::f32, {9}, {0x1p-10, -0x1p-11, 0x1.8p-10, 0x1.4p-9, 0x1p-7, 448, 464, 464.5, -1e9});
  OutputRecord record, others[3];
  record.wanted = StatisticsLevel::values;
  record.scale = 4;
  OutputRecord* records[] = {&record, &others[0], &others[1], &others[2]};
  const Tensor scale = scalar(DType::f32, 1), encodings = empty(*backend_, DType::f8_e4m3, x.shape());
  const Tensor outputs[] = {scalar(DType::f32, 0), scalar(DType::f32, 0), scalar(DType::f32, 0)};
  for (const StatisticsLevel level : {StatisticsLevel::values, StatisticsLevel::health}) {
    record.wanted = level;
    const TensorView in[] = {x.view(), scale.view()};
    const TensorView out[] = {encodings.view(), outputs[0].view(), outputs[1].view(), outputs[2].view()};
    const Attributes none;
    ulpscope::run(*backend_, {"quantize", in, out, &none, records});
    EXPECT_TRUE(record.before_rounding && record.rounding_known);
    EXPECT_EQ(record.rounding.flushed, 2u);
    EXPECT_EQ(record.rounding.subnormal, 3u);
    EXPECT_EQ(record.rounding.inexact_subnormal, 2u);
    EXPECT_EQ(record.rounding.overflowed, 2u);
    // With the loss scale 4 in them: 0x1.8p-10 and 0x1.4p-9 without it are at most 2^-10.
    EXPECT_EQ(record.rounding.rescued, 2u);
    EXPECT_EQ(record.quantization_scale, 1.0);
    EXPECT_EQ(record.statistics.count, 9u);
    EXPECT_EQ(record.statistics.largest, level == StatisticsLevel::values ? 1e9 : 0);
    EXPECT_EQ(stored_nonfinite(record, DType::f8_e4m3), 0u);
    record.clear();
  }
}

TEST_F(Fp8Test, ProductsAreThoseOfTheValuesScaledBack) {
  for (const DType type : {DType::f8_e4m3, DType::f8_e5m2}) {
    for (const DType out : {DType::f32, DType::bf16, DType::f16}) {
      const QuantizedTensor a = quantize(random(DType::f32, {33, 70}, 1), type, {}),
                            b = quantize(random(DType::bf16, {40, 70}, 2), DType::f8_e4m3, {});
      const Tensor bias = random(DType::bf16, {40}, 3);
      const std::vector<double> wide_a = to_host(a.values), wide_b = to_host(b.values), wide_bias = to_host(bias);
      const double scale = to_host(a.inverse_scale)[0] * to_host(b.inverse_scale)[0];
      const std::vector<double> actual = to_host(scaled_matmul(a, {transpose(b.values), b.inverse_scale, b.amax}, out, bias));
      // k products, two scales and the bias; then the rounding of the store.
      const double k = 70 + 3, gamma = k * 0x1p-24 / (1 - k * 0x1p-24);
      const FloatFormat& format = *info(out).format;
      for (size_t i = 0; i < 33; ++i) {
        for (size_t j = 0; j < 40; ++j) {
          double exact = wide_bias[j], magnitude = std::fabs(exact);
          for (size_t l = 0; l < 70; ++l) {
            const double term = wide_a[i * 70 + l] * wide_b[j * 70 + l] * scale;
            exact += term;
            magnitude += std::fabs(term);
          }
          const double reach = std::fabs(exact) + gamma * magnitude;
          const double half_ulp =
              std::ldexp(0.5, std::max(std::ilogb(reach), format.smallest_normal_exponent()) - format.fraction_bits);
          ASSERT_TRUE(std::fabs(actual[i * 40 + j] - exact) <= gamma * magnitude + half_ulp)
              << info(out).name << " " << i << " " << j;
        }
      }
    }
  }
}

// scaled_matmul and quantize as calls of a run with such an arithmetic.
class Fp8Arithmetic : public Fp8Test {
 protected:
  static constexpr uint64_t kSeed = 3, kStream = 99;

  Tensor multiplied(const QuantizedTensor& a, const Tensor& b, const Tensor& inverse_b, DType type, const Arithmetic* how) {
    Tensor out = empty(*backend_, type, std::vector<int64_t>{a.values.shape(0), b.shape(1)});
    const TensorView in[] = {a.values.view(), b.view(), a.inverse_scale.view(), inverse_b.view()}, outputs[] = {out.view()};
    run({"scaled_matmul", in, outputs, nullptr, {}}, how);
    return out;
  }
  void run(OpCall call, const Arithmetic* how) {
    const Attributes none;
    if (call.attributes == nullptr) call.attributes = &none;
    call.arithmetic = how;
    call.seed = kSeed;
    call.stream = kStream;
    ulpscope::run(*backend_, call);
  }
  static std::vector<uint32_t> encodings(const Tensor& x) {
    std::vector<uint32_t> codes;
    const HostView host(x);
    for (const std::byte byte : host.bytes()) codes.push_back(static_cast<uint32_t>(byte));
    return codes;
  }
  // What element `place` of output `slot` becomes.
  static uint64_t rounded(const FloatFormat& format, float value, const Arithmetic& how, int slot, uint64_t place) {
    const Rounding rounding{.mode = how.rounding,
                            .overflow = format.storage_bits() <= 8 ? Overflow::saturate : Overflow::ieee,
                            .subnormals = flushes_outputs(how.subnormals) ? SubnormalResults::flush : SubnormalResults::keep};
    const RandomStream random{kSeed, hash_combine(kStream, static_cast<uint64_t>(slot))};
    return round_to_encoding(format, value, rounding, random_bits_of(random, place));
  }
  static double flushed(const FloatFormat& format, double value) {
    return std::fabs(value) < format.smallest_normal() ? std::copysign(0.0, value) : value;
  }
};

// Bit for bit: the sum as it is named, in FP32, then both scales. GPUs add with the instructions that libraries use for FP8; those
// without FP8 add in FP32, as the default does.
TEST_F(Fp8Arithmetic, ProductsAddAsIsNamed) {
  constexpr size_t m = 5, n = 7, k = 77;
  const std::map<std::string_view, InstructionFamily> gpus{
      {"rtx4090", InstructionFamily::mma},  {"l40s", InstructionFamily::mma},     {"rtx5090", InstructionFamily::mma},
      {"h100", InstructionFamily::wgmma},   {"h200", InstructionFamily::wgmma},   {"h20", InstructionFamily::wgmma},
      {"gh200", InstructionFamily::wgmma},  {"b100", InstructionFamily::tcgen05}, {"b200", InstructionFamily::tcgen05},
      {"gb200", InstructionFamily::tcgen05}};
  for (const DType type : {DType::f8_e4m3, DType::f8_e5m2}) {
    const FloatFormat& format = *info(type).format;
    // Within FP16's range: larger products overflow its accumulator.
    const Tensor one = scalar(DType::f32, 1);
    const QuantizedTensor a = quantize(random(DType::f32, {m, k}, 1, -4, 4), type, {}, one),
                          b = quantize(random(DType::f32, {n, k}, 2, -4, 4), DType::f8_e4m3, {}, one);
    const QuantizedTensor scaled{a.values, scalar(DType::f32, 0.3), {}};
    const Tensor inverse_b = scalar(DType::f32, 0.7), columns = transpose(b.values);
    const auto run_as = [&](const Arithmetic* how) { return to_host(multiplied(scaled, columns, inverse_b, DType::f32, how)); };
    const std::vector<uint32_t> rows = encodings(a.values), others = encodings(b.values);
    std::set<std::vector<double>> distinct;
    for (const char* name :
         {"rtx4090", "l40s", "rtx5090", "h100", "h200", "h20", "gh200", "b100", "b200", "gb200", "fp16", "bf16", "fp64", "exact"}) {
      const Arithmetic how{find_accumulation(name)};
      const std::vector<double> actual = run_as(&how);
      distinct.insert(actual);
      for (size_t i = 0; i < m; ++i) {
        for (size_t j = 0; j < n; ++j) {
          const std::span<const uint32_t> left = std::span(rows).subspan(i * k, k), right = std::span(others).subspan(j * k, k);
          const EncodedArray left_array(format, left), right_array(e4m3, right);
          float sum = 0;
          if (const auto gpu = gpus.find(name); gpu != gpus.end()) {
            sum = std::bit_cast<float>(dot(find_tensor_core(name, format, e4m3, binary32, gpu->second), left, right, 0));
          } else if (how.accumulation->accumulator == Accumulator::narrow) {
            const FloatFormat& kept = *how.accumulation->narrow;
            sum = static_cast<float>(value_of(kept, dot(left_array, right_array, {.accumulator = &kept})));
          } else {
            const SumOrder order = how.accumulation->accumulator == Accumulator::exact ? SumOrder::exact : SumOrder::sequential;
            sum = static_cast<float>(value_of(binary64, dot(left_array, right_array, {.order = order, .accumulator = &binary64})));
          }
          ASSERT_EQ(actual[i * n + j], sum * 0.3f * 0.7f) << name << " " << i << " " << j;
        }
      }
    }
    EXPECT_GE(distinct.size(), 3u);
    const Arithmetic ampere{find_accumulation("a100")};
    EXPECT_EQ(run_as(&ampere), run_as(nullptr));
  }
}

// 1 * 1 + 4095 * (2^-7 * 2^-7) is 1.24993896484375, as in examples/accumulators. Hopper's FP8 instructions keep 13 bits below the
// largest term, so all the small ones of a block but the first are cut off with the accumulator at 1.
TEST_F(Fp8Arithmetic, HopperLosesWhatItsFp8InstructionsLose) {
  std::vector<double> values(4096, 0x1p-7);
  values[0] = 1;
  const Tensor one = scalar(DType::f32, 1);
  const QuantizedTensor x = quantize(tensor(DType::f32, {1, 4096}, values), DType::f8_e4m3, {}, one);
  const auto sum_as = [&](std::string_view name) {
    const Arithmetic how{find_accumulation(name)};
    return to_host(multiplied(x, transpose(x.values), one, DType::f32, &how))[0];
  };
  EXPECT_EQ(sum_as("h100"), 1);
  EXPECT_EQ(sum_as("h20"), 1);
  EXPECT_EQ(sum_as("fp16"), 1);
  EXPECT_EQ(sum_as("b200"), 1.24993896484375);
  EXPECT_EQ(sum_as("exact"), 1.24993896484375);
}

// Products of scaled values reach 448 * 448, and FP16 ends at 65504.
TEST_F(Fp8Arithmetic, Fp16AccumulatorsOverflow) {
  const QuantizedTensor x = quantize(tensor(DType::f32, {1, 2}, {1, -1}), DType::f8_e4m3, {}),
                        y = quantize(tensor(DType::f32, {1, 2}, {1, 1}), DType::f8_e4m3, {});
  const Arithmetic how{find_accumulation("fp16")};
  EXPECT_EQ(to_host(multiplied(x, transpose(y.values), y.inverse_scale, DType::f32, &how))[0], kInfinity);
  EXPECT_EQ(to_host(multiplied(x, transpose(y.values), y.inverse_scale, DType::f32, nullptr))[0], 0);
}

// In every mode and with every treatment of subnormals: the encodings, and the counts by hand.
TEST_F(Fp8Arithmetic, QuantizeRoundsAsIsAsked) {
  for (const DType type : {DType::f8_e4m3, DType::f8_e5m2}) {
    const FloatFormat& format = *info(type).format;
    const FloatFormat unbounded = parse_format(fmt::format("e8m{}", format.fraction_bits));
    for (int mode = 0; mode < kRoundingModes; ++mode) {
      for (const Subnormals subnormals :
           {Subnormals::keep, Subnormals::flush_inputs, Subnormals::flush_outputs, Subnormals::flush}) {
        const Arithmetic how{find_accumulation("fp32"), static_cast<RoundingMode>(mode), subnormals};
        const std::string where = fmt::format("{} {} {}", format.name, name_of(how.rounding), name_of(subnormals));
        // Some saturate, many are subnormal or flushed, and more than a block of statistics.
        const float scale = 3.0f, loss_scale = 8;
        std::vector<double> values = to_host(random(DType::bf16, {9001}, 7));
        for (size_t i = 0; i < values.size(); ++i)
          values[i] = std::ldexp(values[i], static_cast<int>(i % 40) - 30) * format.largest_finite() / 16;
        values[5] = 0x1p-130;  // subnormal in BF16
        values[6] = kNan;
        values[7] = -kInfinity;
        values[8] = -0.0;
        const Tensor x = tensor(DType::bf16, {9001}, values), given = scalar(DType::f32, scale);
        const std::vector<double> stored = to_host(x);
        for (const StatisticsLevel level : {StatisticsLevel::none, StatisticsLevel::values}) {
          const Tensor codes = empty(*backend_, type, x.shape());
          const Tensor scalars[] = {scalar(DType::f32, 0), scalar(DType::f32, 0), scalar(DType::f32, 0)};
          OutputRecord record, others[3];
          record.wanted = level;
          record.scale = loss_scale;
          OutputRecord* records[] = {&record, &others[0], &others[1], &others[2]};
          const TensorView in[] = {x.view(), given.view()},
                           out[] = {codes.view(), scalars[0].view(), scalars[1].view(), scalars[2].view()};
          run({"quantize", in, out, nullptr, records}, &how);
          const std::vector<uint32_t> actual = encodings(codes);
          RoundingCounts counts;
          for (size_t i = 0; i < stored.size(); ++i) {
            const double read = flushes_inputs(subnormals) ? flushed(bfloat16, stored[i]) : stored[i];
            const float wide = static_cast<float>(read) * scale;
            ASSERT_EQ(actual[i], rounded(format, wide, how, 0, i)) << where << " " << i;
            if (wide == 0 || !std::isfinite(wide)) continue;
            const double is = std::fabs(value_of(format, actual[i]));
            const RandomStream random{kSeed, hash_combine(kStream, 0)};
            counts.flushed += is == 0;
            // Beyond the largest number as rounded with FP32's exponents (IEEE 754-2019, 7.4).
            counts.overflowed += std::fabs(round_to_format(unbounded, static_cast<double>(wide), {.mode = how.rounding},
                                                           random_bits_of(random, i))) > format.largest_finite();
            const bool subnormal = is > 0 && is < format.smallest_normal();
            counts.subnormal += subnormal;
            counts.inexact_subnormal += subnormal && is != std::fabs(wide);
            counts.rescued += is > 0 && value_of(format, rounded(format, wide / loss_scale, how, 0, i)) == 0;
          }
          if (level == StatisticsLevel::none) continue;
          EXPECT_TRUE(record.before_rounding && record.rounding_known) << where;
          EXPECT_EQ(record.rounding, counts) << where;
          EXPECT_EQ(record.quantization_scale, scale);
          EXPECT_EQ(record.statistics.count, 9001u);
          EXPECT_EQ(record.statistics.nan, 1u);
          EXPECT_EQ(counts.flushed > 0, how.rounding != RoundingMode::to_odd || flushes_outputs(subnormals)) << where;
        }
      }
    }
  }
}

// FP8 factors flush as all others do, and results round as is asked.
TEST_F(Fp8Arithmetic, ProductsFlushAndRoundAsIsAsked) {
  constexpr size_t m = 3, n = 4, k = 9;
  const Tensor one = scalar(DType::f32, 1);
  const QuantizedTensor a = quantize(random(DType::f32, {m, k}, 1, -0x1p-5, 0x1p-5), DType::f8_e4m3, {}, one),
                        b = quantize(random(DType::f32, {n, k}, 2, -0x1p-5, 0x1p-5), DType::f8_e4m3, {}, one);
  const QuantizedTensor scaled{a.values, scalar(DType::f32, 0x1p-4f), {}};
  const Tensor columns = transpose(b.values);
  const std::vector<double> rows = to_host(a.values), others = to_host(b.values);
  size_t subnormal = 0;
  for (const double value : rows) subnormal += value != 0 && std::fabs(value) < e4m3.smallest_normal();
  ASSERT_GT(subnormal, 2u);
  for (int mode = 0; mode < kRoundingModes; ++mode) {
    for (const Subnormals subnormals : {Subnormals::keep, Subnormals::flush_inputs, Subnormals::flush_outputs, Subnormals::flush}) {
      const Arithmetic how{find_accumulation("fp32"), static_cast<RoundingMode>(mode), subnormals};
      const Tensor out = multiplied(scaled, columns, one, DType::f16, &how);
      const std::vector<double> actual = to_host(out);
      for (size_t i = 0; i < m; ++i) {
        for (size_t j = 0; j < n; ++j) {
          double sum = 0;  // so few and small products are exact in FP32, whatever their order
          for (size_t l = 0; l < k; ++l) {
            const double x = rows[i * k + l], y = others[j * k + l];
            sum += flushes_inputs(subnormals) ? flushed(e4m3, x) * flushed(e4m3, y) : x * y;
          }
          const double expected = value_of(binary16, rounded(binary16, static_cast<float>(sum) * 0x1p-4f, how, 0, i * n + j));
          ASSERT_EQ(actual[i * n + j], expected) << name_of(how.rounding) << " " << name_of(subnormals);
        }
      }
    }
  }
}

// The loss scale S of a gradient: current scaling's scale contains 1 / S, a given one none.
TEST_F(Fp8Test, ScalesContainTheInverseLossScale) {
  const Tensor x = random(DType::f32, {8}, 1);
  x.body()->loss_scale = 1024;
  const auto loss_scales = [&](const Tensor& given) {
    std::vector<double> all;
    for (const Tensor& output : quantized(x, DType::f8_e5m2, {}, given)) all.push_back(output.body()->loss_scale);
    return all;
  };
  EXPECT_THAT(loss_scales({}), ElementsAre(1024, 1.0 / 1024, 1024, 1024));
  EXPECT_THAT(loss_scales(scalar(DType::f32, 2)), ElementsAre(1024, 1, 1, 1024));
}

TEST_F(Fp8Test, HistoriesMoveAndScalesFollow) {
  const Tensor history = tensor(DType::f32, {3}, {0, 0, 0}), scale = scalar(DType::f32, 1);
  const auto update = [&](double amax, double most_recent, double margin = 0) {
    call("amax_history_update", {history, scale, scalar(DType::f32, amax)},
         {{"dtype", static_cast<double>(DType::f8_e4m3)}, {"most_recent", most_recent}, {"margin", margin}, {"power_of_two", 0}});
  };
  update(0, 0);
  EXPECT_EQ(value(scale), 1);  // nothing is known yet
  update(7, 0);
  EXPECT_THAT(to_host(history), ElementsAre(7, 0, 0));
  EXPECT_EQ(value(scale), 64);
  update(2, 0);
  EXPECT_THAT(to_host(history), ElementsAre(2, 7, 0));
  EXPECT_EQ(value(scale), 64);
  update(2, 1);
  EXPECT_THAT(to_host(history), ElementsAre(2, 2, 7));
  EXPECT_EQ(value(scale), 224);
  update(3.5, 0, 1);  // the 7 is forgotten
  EXPECT_THAT(to_host(history), ElementsAre(3.5, 2, 2));
  EXPECT_EQ(value(scale), 64);
  update(kInfinity, 0);
  EXPECT_EQ(value(scale), 64);  // kept
  update(0, 1);
  EXPECT_EQ(value(scale), 64);
}

TEST_F(Fp8Test, OtherOpsRefuseFp8Tensors) {
  const Tensor x = random(DType::f32, {4, 4});
  const QuantizedTensor q = quantize(x, DType::f8_e4m3, {});
  EXPECT_EQ(usage_error_of([&] { add(q.values, x); }),
            "add: expected no FP8 tensor, which only scaled_matmul reads, got e4m3 [4, 4]");
  EXPECT_THAT(usage_error_of([&] { matmul(q.values, q.values); }), HasSubstr("matmul: expected no FP8 tensor"));
  EXPECT_THAT(usage_error_of([&] { quantize(q.values, DType::f8_e5m2, {}); }), HasSubstr("quantize: expected no FP8 tensor"));
  EXPECT_THAT(usage_error_of([&] { quantize(x, DType::bf16, {}); }),
              HasSubstr("quantize: expected the type e4m3 or e5m2, got bf16"));
  EXPECT_THAT(usage_error_of([&] { scaled_matmul(q, q, DType::f8_e4m3); }),
              HasSubstr("scaled_matmul: expected the type f32, f16 or bf16, got e4m3"));
  EXPECT_THAT(usage_error_of([&] {
                scaled_matmul(q, {x, q.inverse_scale, q.amax}, DType::f32);
              }),
              HasSubstr("expected a [M, K] and b [K, N] in FP8"));
  EXPECT_EQ(transpose(q.values).dtype(), DType::f8_e4m3);  // views read nothing
}

// The layer's own products with the factors that the scalar routines give, in FP64.
TEST_F(Fp8Test, GradientsOfALinearLayerComeFromQuantizedFactors) {
  constexpr size_t m = 24, n = 20, k = 36;
  Autocast autocast({.dtype = DType::bf16, .lists = nullptr, .ops = {}, .modules = {}});
  const AutocastScope scope(&autocast);
  Tensor x = random(DType::f32, {m, k}, 1), w = random(DType::f32, {n, k}, 2, -0.3, 0.3), b = random(DType::f32, {n}, 3);
  for (Tensor* leaf : {&x, &w, &b}) leaf->set_requires_grad(true);
  DelayedScales none;
  const Tensor y = fp8_linear(x, w, b, {}, none);
  EXPECT_EQ(y.dtype(), DType::bf16);
  const Tensor factors = random(DType::bf16, {m, n}, 4, -1e-4, 1e-4);
  backward(sum(mul(y, factors)));
  // Rounded by scalar routines and taken back to its range.
  const auto dequantized = [](std::vector<double> values, const FloatFormat& format, bool through_bf16) {
    double amax = 0;
    for (double& v : values) {
      if (through_bf16) v = round_to_format(bfloat16, v);
      amax = std::max(amax, std::fabs(v));
    }
    const auto scale = static_cast<float>(format.largest_finite() / amax);
    for (double& v : values)
      v = round_to_format(format, static_cast<float>(v) * scale, kSaturate) * static_cast<double>(static_cast<float>(1.0 / scale));
    return values;
  };
  const auto x8 = dequantized(to_host(x), e4m3, true), w8 = dequantized(to_host(w), e4m3, false);
  const auto g = to_host(factors), g8 = dequantized(g, e5m2, false);
  const auto expect_product = [](const std::vector<double>& actual, size_t rows, size_t columns, size_t depth, auto&& left,
                                 auto&& right, auto&& more, const char* what) {
    const double terms = static_cast<double>(depth) + 3, gamma = terms * 0x1p-24 / (1 - terms * 0x1p-24);
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; ++j) {
        double exact = more(j), magnitude = std::fabs(exact);
        for (size_t l = 0; l < depth; ++l) {
          exact += left(i, l) * right(l, j);
          magnitude += std::fabs(left(i, l) * right(l, j));
        }
        const double wide = gamma * magnitude, half_ulp = std::ldexp(0.5, std::ilogb(std::fabs(exact) + wide) - 7);  // of BF16
        ASSERT_TRUE(std::fabs(actual[i * columns + j] - exact) <= wide + half_ulp) << what << " " << i << " " << j;
      }
    }
  };
  const auto nothing = [](size_t) { return 0.0; };
  const auto bias = to_host(b);
  expect_product(
      to_host(y), m, n, k, [&](size_t i, size_t l) { return x8[i * k + l]; }, [&](size_t l, size_t j) { return w8[j * k + l]; },
      [&](size_t j) { return round_to_format(bfloat16, bias[j]); }, "y");
  expect_product(
      to_host(x.grad()), m, k, n, [&](size_t i, size_t l) { return g8[i * n + l]; },
      [&](size_t l, size_t j) { return w8[l * k + j]; }, nothing, "dx");
  expect_product(
      to_host(w.grad()), n, k, m, [&](size_t i, size_t l) { return g8[l * n + i]; },
      [&](size_t l, size_t j) { return x8[l * k + j]; }, nothing, "dw");
  // The bias's comes from the gradient as it was.
  expect_product(
      to_host(b.grad()), 1, n, m, [](size_t, size_t) { return 1.0; }, [&](size_t l, size_t j) { return g[l * n + j]; }, nothing,
      "db");
  EXPECT_EQ(w.grad().dtype(), DType::f32);
}

// Of the unrounded layer: each factor errs by the unit roundoff u = 2^-4 of E4M3, or half its smallest subnormal.
TEST_F(Fp8Test, TheLayerStaysWithinTheUnitRoundoffOfFp8) {
  constexpr size_t m = 16, n = 12, k = 50;
  Autocast autocast({.dtype = DType::bf16, .lists = nullptr, .ops = {}, .modules = {}});
  const AutocastScope scope(&autocast);
  const Tensor x = random(DType::f32, {m, k}, 1), w = random(DType::f32, {n, k}, 2);
  DelayedScales none;
  const std::vector<double> y = to_host(fp8_linear(x, w, {}, {}, none)), a = to_host(x), b = to_host(w);
  const double u8 = 0x1p-4, u16 = 0x1p-8, u32 = 0x1p-24;
  const double subnormal = 0x1p-10 * 2 / 448;  // of either factor: amax is at most 2
  const auto error_of_factor = [&](double v, bool narrowed) {
    return ((1 + u8) * (1 + (narrowed ? u16 : 0)) * (1 + 3 * u32) - 1) * std::fabs(v) + subnormal;
  };
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      double exact = 0, bound = 0, magnitude = 0;
      for (size_t l = 0; l < k; ++l) {
        const double left = a[i * k + l], right = b[j * k + l], of_left = error_of_factor(left, true),
                     of_right = error_of_factor(right, false);
        exact += left * right;
        bound += of_left * std::fabs(right) + std::fabs(left) * of_right + of_left * of_right;
        magnitude += (std::fabs(left) + of_left) * (std::fabs(right) + of_right);
      }
      const double terms = k + 3, gamma = terms * u32 / (1 - terms * u32);
      bound += gamma * magnitude;
      bound += u16 * (std::fabs(exact) + bound);
      ASSERT_TRUE(std::fabs(y[i * n + j] - exact) <= bound) << i << " " << j;
      EXPECT_LT(bound, 0.25 * magnitude);  // it says something
    }
  }
}

}  // namespace
}  // namespace ulpscope
