// Sums and dot products in a stated order, against the CPU's own additions in that order, and against roundings of rationals.
#include "ulpscope/emulation/summation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/emulation/rational_rounding.h"
#include "tests/support/usage_error.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/exact_sum.h"

namespace ulpscope {
namespace {

std::vector<float> normal_values(size_t count, uint64_t stream) {
  const Philox random(31, stream);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(random.normal(i));
  return values;
}

// The CPU's roundings of FP32 operations are the reference here.
template <typename Add>
float tree(const std::vector<float>& terms, size_t begin, size_t count, const Add& add) {
  if (count == 1) return terms[begin];
  size_t half = 1;
  while (2 * half < count) half *= 2;
  return add(tree(terms, begin, half, add), tree(terms, begin + half, count - half, add));
}

TEST(Summation, InFp32IsWhatTheCpuComputesInThatOrder) {
  for (const size_t count : {1u, 2u, 3u, 7u, 64u, 100u, 1000u}) {
    const std::vector<float> a = normal_values(count, 2 * count), b = normal_values(count, 2 * count + 1);
    const EncodedArray x{std::span<const float>(a)}, y{std::span<const float>(b)};

    float sequential = a[0], fused = a[0] * b[0], separate = a[0] * b[0], compensated = a[0] * b[0], excess = 0;
    double wide = static_cast<double>(a[0]) * static_cast<double>(b[0]);
    std::vector<float> products{separate};
    for (size_t i = 1; i < count; ++i) {
      sequential += a[i];
      fused = std::fma(a[i], b[i], fused);
      products.push_back(a[i] * b[i]);
      separate += products.back();
      wide = std::fma(static_cast<double>(a[i]), static_cast<double>(b[i]), wide);
      const volatile float corrected = products.back() - excess, next = compensated + corrected, grown = next - compensated;
      excess = grown - corrected;
      compensated = next;
    }
    const auto plus = [](float p, float q) { return p + q; };
    EXPECT_EQ(sum(x, {}), encoding_of(sequential)) << count;
    EXPECT_EQ(sum(x, {.order = SumOrder::pairwise}), encoding_of(tree(a, 0, count, plus))) << count;
    EXPECT_EQ(dot(x, y, {}), encoding_of(fused)) << count;
    EXPECT_EQ(dot(x, y, {.terms = Terms::rounded}), encoding_of(separate)) << count;
    EXPECT_EQ(dot(x, y, {.accumulator = &binary64}), encoding_of(wide)) << count;
    EXPECT_EQ(dot(x, y, {.order = SumOrder::pairwise, .terms = Terms::rounded}), encoding_of(tree(products, 0, count, plus)))
        << count;
    EXPECT_EQ(dot(x, y, {.order = SumOrder::compensated, .terms = Terms::rounded}), encoding_of(compensated)) << count;
  }
}

// In FP16, in every mode: each partial result is the rational one, rounded.
TEST(Summation, InFp16RoundsEachPartialResultOnce) {
  const std::vector<float> values = normal_values(60, 7), others = normal_values(60, 8);
  std::vector<uint16_t> a, b;
  for (const float value : values) a.push_back(round_to_f16(value));
  for (const float value : others) b.push_back(round_to_f16(value));
  const EncodedArray x(binary16, std::span<const uint16_t>(a)), y(binary16, std::span<const uint16_t>(b));
  for (const Rounding& rounding : deterministic_roundings()) {
    const auto rounded = [&](const Rational& value) { return exact_value(binary16, rounded_encoding(binary16, value, rounding)); };
    const auto product = [&](size_t i) { return Rational(exact_value(binary16, a[i]) * exact_value(binary16, b[i])); };
    Rational sequential = rounded(product(0));
    Rational compensated = sequential, excess = 0;
    std::vector<Rational> nodes;
    for (size_t i = 0; i < a.size(); ++i) {
      if (i > 0) {
        sequential = rounded(sequential + product(i));
        const Rational corrected = rounded(product(i) - excess), next = rounded(compensated + corrected);
        excess = rounded(rounded(next - compensated) - corrected);
        compensated = next;
      }
      if (i % 2 == 1) nodes.push_back(rounded(product(i - 1) + product(i)));
    }
    // 30 nodes: 16 and 14, which is 8 and 6, which is 4 and 2.
    const auto full = [&](auto&& self, size_t begin, size_t count) -> Rational {
      if (count == 1) return nodes[begin];
      return rounded(self(self, begin, count / 2) + self(self, begin + count / 2, count / 2));
    };
    const Rational pairwise =
        rounded(full(full, 0, 16) + rounded(full(full, 16, 8) + rounded(full(full, 24, 4) + full(full, 28, 2))));
    const auto expect = [&](SumOrder order, const Rational& expected) {
      const uint64_t encoding = dot(x, y, {.order = order, .accumulator = &binary16, .rounding = rounding});
      EXPECT_EQ(exact_value(binary16, encoding), expected) << name_of(rounding.mode) << ' ' << static_cast<int>(order);
    };
    expect(SumOrder::sequential, sequential);
    expect(SumOrder::compensated, compensated);
    expect(SumOrder::pairwise, pairwise);
    // Of three terms the last is fused with the addition, as it is.
    const EncodedArray three(binary16, std::span<const uint16_t>(a).first(3)),
        with(binary16, std::span<const uint16_t>(b).first(3));
    const uint64_t odd = dot(three, with, {.order = SumOrder::pairwise, .accumulator = &binary16, .rounding = rounding});
    EXPECT_EQ(exact_value(binary16, odd), rounded(nodes[0] + product(2))) << name_of(rounding.mode);
  }
}

// 4096 ones: FP16 stops where 1 is half an ulp, a tree and Kahan's correction do not.
TEST(Summation, OfOnesShowsWhereAnAccumulatorStagnates) {
  const std::vector<uint16_t> ones(4096, 0x3C00);
  const EncodedArray array(binary16, std::span<const uint16_t>(ones));
  const auto total = [&](SumOrder order) { return value_of(binary16, sum(array, {.order = order, .accumulator = &binary16})); };
  EXPECT_EQ(total(SumOrder::sequential), 2048);
  EXPECT_EQ(total(SumOrder::pairwise), 4096);
  EXPECT_EQ(total(SumOrder::compensated), 4096);
  EXPECT_EQ(total(SumOrder::exact), 4096);
  // The sum is the same whatever the elements' format.
  const std::vector<float> wide(4096, 1.0f);
  EXPECT_EQ(value_of(binary16, sum(EncodedArray(std::span(wide)), {.accumulator = &binary16})), 2048);
  EXPECT_EQ(value_of(binary32, sum(array, {})), 4096);
}

// The same sum with stochastic rounding goes on: its mean is the sum, its bits depend on seed and stream only.
TEST(Summation, StochasticRoundingIsReproducibleAndUnbiased) {
  const std::vector<uint16_t> ones(4096, 0x3C00);
  const EncodedArray array(binary16, std::span<const uint16_t>(ones));
  double total = 0;
  constexpr int kRuns = 100;
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    const Summation summation{
        .accumulator = &binary16, .rounding = {.mode = RoundingMode::stochastic}, .random = {.seed = seed, .stream = 3}};
    const uint64_t result = sum(array, summation);
    EXPECT_EQ(sum(array, summation), result);
    total += value_of(binary16, result);
  }
  // Each addition from 2048 on becomes 0 or 2, and from 4096 on 0 or 4: 2048 roundings of variance 3 at most.
  EXPECT_NEAR(total / kRuns, 4096, 5 * std::sqrt(3 * 2048.0 / kRuns));
}

TEST(Summation, KeepsSignsOfZeroAndNans) {
  const std::vector<uint16_t> zeros{0x8000, 0x8000}, mixed{0x8000, 0}, nans{0x3C00, 0xFE05, 0x7E06};
  for (const SumOrder order : {SumOrder::sequential, SumOrder::pairwise}) {
    const Summation summation{.order = order, .accumulator = &binary16};
    EXPECT_EQ(sum(EncodedArray(binary16, std::span(zeros)), summation), 0x8000u);
    EXPECT_EQ(sum(EncodedArray(binary16, std::span(mixed)), summation), 0u);
    EXPECT_EQ(sum(EncodedArray(binary16, std::span(nans)), summation), 0xFE05u);
    EXPECT_EQ(sum(EncodedArray(binary16, std::span<const uint16_t>()), summation), 0u);
  }
  EXPECT_EQ(sum(EncodedArray(binary16, std::span(nans)), {.order = SumOrder::compensated, .accumulator = &binary16}), 0xFE05u);
}

TEST(Summation, SaysWhatIsWrongWithItsArguments) {
  const std::vector<float> three(3), four(4);
  const std::vector<uint8_t> bytes(3);
  EXPECT_EQ(usage_error_of([&] { dot(EncodedArray(std::span(three)), EncodedArray(std::span(four)), {}); }),
            "dot product of fp32 and fp32: lengths 3 and 4 differ");
  EXPECT_EQ(usage_error_of([&] { EncodedArray(binary16, std::span<const uint8_t>(bytes)); }),
            "array of fp16: expected elements of 16 bits or more, got 8");
  EXPECT_EQ(usage_error_of([&] { EncodedArray(binary16, std::span<const uint16_t>(static_cast<const uint16_t*>(nullptr), 3)); }),
            "array of fp16: 3 elements at a null pointer");
  EXPECT_EQ(usage_error_of(
                [&] { sum(EncodedArray(std::span(three)), {.rounding = {.mode = RoundingMode::stochastic, .random_bits = 25}}); }),
            "sum in fp32: expected 1 to 24 random bits, got 25");
  EXPECT_EQ(usage_error_of([&] { sum(EncodedArray(std::span(three)), {.accumulator = nullptr}); }),
            "sum: expected the format of an accumulator, got a null pointer");
  ExactSum total;
  EXPECT_EQ(usage_error_of([&] { total.add_products(three, four); }), "exact dot product: lengths 3 and 4 differ");
  const std::span<const float> nowhere(static_cast<const float*>(nullptr), 3);
  EXPECT_EQ(usage_error_of([&] { total.add_products(three, nowhere); }), "exact dot product: 3 factors at a null pointer");
  EXPECT_EQ(usage_error_of([&] { total.add(nowhere); }), "exact sum: 3 terms at a null pointer");
}

}  // namespace
}  // namespace ulpscope
