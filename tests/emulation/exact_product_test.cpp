// Exact matrix products against exact rational arithmetic, and, for what is no finite number, against sums of one term after the
// other, on every SIMD target.
#include "ulpscope/emulation/exact_product.h"

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulation/rational_rounding.h"
#include "tests/support/simd_targets.h"
#include "tests/support/usage_error.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/exact_sum.h"

namespace ulpscope {
namespace {

struct ProductOperands {
  int64_t m, k, n;
  std::vector<float> a, b, c;  // row-major; c may be empty

  float a_at(int64_t i, int64_t l) const { return a[static_cast<size_t>(i * k + l)]; }
  float b_at(int64_t l, int64_t j) const { return b[static_cast<size_t>(l * n + j)]; }
};

std::vector<uint64_t> product(const ProductOperands& of, RoundingMode mode = RoundingMode::nearest_even) {
  const ExactProduct prepared({of.b.data(), of.n, 1}, of.k, of.n, of.c.empty() ? nullptr : of.c.data());
  std::vector<double> d(static_cast<size_t>(of.m * of.n));
  prepared.compute({of.a.data(), of.k, 1}, d.data(), 0, of.m, mode);
  std::vector<uint64_t> encodings;
  for (const double value : d) encodings.push_back(std::bit_cast<uint64_t>(value));
  return encodings;
}

uint64_t by_definition(const ProductOperands& of, int64_t i, int64_t j) {
  Integer total = 0;
  const Rational unit = power_of_two(-149);
  const auto integer = [&](float value) { return numerator(Rational(exact_value(binary32, encoding_of(value)) / unit)); };
  for (int64_t l = 0; l < of.k; ++l) total += integer(of.a_at(i, l)) * integer(of.b_at(l, j));
  if (!of.c.empty()) total += integer(of.c[static_cast<size_t>(j)]) * Integer(numerator(Rational(1 / unit)));
  return rounded_encoding(binary64, Rational(total) * unit * unit, {RoundingMode::to_odd});
}

uint64_t term_by_term(const ProductOperands& of, int64_t i, int64_t j, RoundingMode mode) {
  ExactSum sum;
  const auto number = [](float value) { return decode(binary32, encoding_of(value)); };
  for (int64_t l = 0; l < of.k; ++l) sum.add_product(number(of.a_at(i, l)), number(of.b_at(l, j)));
  if (!of.c.empty()) sum.add(number(of.c[static_cast<size_t>(j)]));
  return encode(binary64, sum.total(mode), {RoundingMode::to_odd});
}

// Finite numbers of a format whose exponents span so many binades, at most; one in `sparse` is not zero.
std::vector<float> random_factors(const FloatFormat& format, int64_t count, uint64_t stream, int spread, uint32_t sparse = 1) {
  const Philox random(31, stream);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    if (random.below(4 * i + 3, sparse) != 0) continue;
    const int lowest = std::max(-spread / 2, format.smallest_exponent()), highest = std::min(spread / 2, format.largest_exponent());
    const int exponent = lowest + static_cast<int>(random.below(4 * i, static_cast<uint32_t>(highest - lowest + 1)));
    const double value = std::ldexp(1 + random.bits(4 * i + 1) * 0x1p-32, exponent) * ((random.bits(4 * i + 2) & 1) != 0 ? -1 : 1);
    values[i] = static_cast<float>(value_of(format, round_to_encoding(format, value, {.overflow = Overflow::saturate})));
  }
  return values;
}

ProductOperands random_operands(const FloatFormat& format, int64_t m, int64_t k, int64_t n, uint64_t stream, int spread,
                                bool with_c) {
  ProductOperands of{
      m, k, n, random_factors(format, m * k, 3 * stream, spread), random_factors(format, k * n, 3 * stream + 1, spread), {}};
  if (with_c) of.c = random_factors(binary32, n, 3 * stream + 2, spread);
  return of;
}

// What the products of the first half leave to the last, whatever came before: the second half takes them away again.
void cancel(ProductOperands& of) {
  const int64_t half = (of.k - 1) / 2;
  for (int64_t l = 0; l < half; ++l) {
    for (int64_t i = 0; i < of.m; ++i) of.a[static_cast<size_t>(i * of.k + half + l)] = -of.a_at(i, half - 1 - l);
    for (int64_t j = 0; j < of.n; ++j) of.b[static_cast<size_t>((half + l) * of.n + j)] = of.b_at(half - 1 - l, j);
  }
}

void expect_by_definition(const ProductOperands& of, const std::string& where) {
  const std::vector<uint64_t> actual = product(of);
  for (int64_t i = 0; i < of.m; ++i)
    for (int64_t j = 0; j < of.n; ++j)
      ASSERT_EQ(actual[static_cast<size_t>(i * of.n + j)], by_definition(of, i, j)) << where << " at " << i << ", " << j;
}

TEST(ExactProduct, IsTheExactSumRoundedToOdd) {
  on_every_target([](const std::string& target) {
    uint64_t stream = 0;
    for (const FloatFormat* format : {&e4m3, &e5m2, &binary16, &bfloat16, &binary32}) {
      for (const int spread : {2, 12, 30, 60, 250}) {
        for (const int64_t k : {1, 2, 7, 130}) {
          for (const bool cancels : {false, true}) {
            ++stream;
            ProductOperands of = random_operands(*format, 3, k, k == 7 ? 37 : 5, stream, spread, stream % 3 == 0);
            if (cancels) cancel(of);
            expect_by_definition(of, target + " " + std::string(format->name) + " " + std::to_string(spread));
          }
        }
      }
    }
  });
}

// Numbers of 24 bits times 2^distance beside numbers next to 1, with and without its negative: terms lie as far apart as one, two,
// three and four accumulators reach, and farther.
TEST(ExactProduct, LosesNothingWhateverTheDistanceOfTerms) {
  on_every_target([](const std::string& target) {
    for (int distance = 0; distance < 126; ++distance) {
      for (const bool cancels : {false, true}) {
        ProductOperands of = random_operands(binary32, 2, 20, 3, static_cast<uint64_t>(distance), 4, false);
        for (int64_t i = 0; i < of.m; ++i) {
          float* row = of.a.data() + i * of.k;
          row[3] = std::ldexp(row[3], distance);
          row[11] = cancels ? -row[3] : std::ldexp(row[11], -distance / 2);
        }
        for (int64_t j = 0; j < of.n; ++j) {
          float* column = of.b.data() + j;
          column[3 * of.n] = std::ldexp(column[3 * of.n], distance - 4);
          column[11 * of.n] = cancels ? column[3 * of.n] : std::ldexp(column[11 * of.n], -distance / 2);
        }
        expect_by_definition(of, target + " " + std::to_string(distance));
      }
    }
  });
}

// Equal terms of one sign, of 48 bits that are not zero at both ends, in one to four groups that lie so far apart: what is left of
// each group's terms adds up, so that every accumulator gets as full as it may for some distance.
TEST(ExactProduct, AccumulatorsHoldSumsOfEqualTerms) {
  on_every_target([](const std::string& target) {
    const Philox random(32, 0);
    uint64_t draw = 0;
    const auto factor = [&] { return 2 - static_cast<float>(2 * random.below(draw++, 1 << 12) + 1) * 0x1p-23f; };
    for (const int64_t k : {31, 63, 1023}) {
      for (int64_t groups = 1; groups <= 5; ++groups) {
        for (int distance = k > 100 ? 3 : 1; distance<56; distance += k> 100 ? 7 : 1) {
          const int64_t n = k > 100 ? 1 : 2;
          ProductOperands of{1, k, n, std::vector<float>(static_cast<size_t>(k)), std::vector<float>(static_cast<size_t>(k * n)),
                             {}};
          for (int64_t group = 0; group < groups; ++group) {
            const int exponent = 60 - distance * static_cast<int>(group);
            const float a = std::ldexp(factor(), exponent / 2);
            for (int64_t l = group; l < k; l += groups) of.a[static_cast<size_t>(l)] = a;
            for (int64_t j = 0; j < n; ++j) {
              const float b = std::ldexp(factor(), exponent - exponent / 2);
              for (int64_t l = group; l < k; l += groups) of.b[static_cast<size_t>(l * n + j)] = b;
            }
          }
          expect_by_definition(of, target + " " + std::to_string(groups) + " " + std::to_string(distance));
        }
      }
    }
  });
}

TEST(ExactProduct, TakesWhatIsAddedForATerm) {
  on_every_target([](const std::string& target) {
    ProductOperands of{1, 1, 4, {0x1p-40f}, {0x1p-40f, -1, 3, 0}, {1, 0x1p-40f, 0x1p100f, 0x1p-149f}};
    expect_by_definition(of, target);
    EXPECT_EQ(product(of)[1], 0u);
    of.k = 0;
    of.a.clear();
    of.b.clear();
    expect_by_definition(of, target);
  });
}

// Every combination of zeros, Inf, NaN and two numbers, in pairs of terms; other columns and rows keep their finite sums.
TEST(ExactProduct, ZerosInfinitiesAndNansAreThoseOfExactSums) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> kinds{0.0f, -0.0f, 1.0f, -3.0f, kInfinity, -kInfinity, -kNan, 0x1p-100f};
  const auto count = static_cast<int64_t>(kinds.size());
  for (const bool with_c : {false, true}) {
    ProductOperands of{count * count, 2, count * count, {}, std::vector<float>(static_cast<size_t>(2 * count * count)), {}};
    for (int64_t i = 0; i < count * count; ++i) {
      for (const int64_t l : {i / count, i % count}) of.a.push_back(kinds[static_cast<size_t>(l)]);
      of.b[static_cast<size_t>(i)] = kinds[static_cast<size_t>(i / count)];
      of.b[static_cast<size_t>(of.n + i)] = kinds[static_cast<size_t>(i % count)];
      if (with_c) of.c.push_back(kinds[static_cast<size_t>(i * 5 % count)]);
    }
    on_every_target([&](const std::string& target) {
      for (const RoundingMode mode : {RoundingMode::nearest_even, RoundingMode::down, RoundingMode::up, RoundingMode::stochastic}) {
        const std::vector<uint64_t> actual = product(of, mode);
        for (int64_t i = 0; i < of.m; ++i)
          for (int64_t j = 0; j < of.n; ++j)
            ASSERT_EQ(actual[static_cast<size_t>(i * of.n + j)], term_by_term(of, i, j, mode))
                << target << ' ' << name_of(mode) << ' ' << i << ' ' << j;
      }
    });
  }
}

TEST(ExactProduct, OfNothingIsZero) {
  const ExactProduct product(FloatMatrix{}, 0, 3);
  std::vector<double> d(6, 7.0);
  product.compute(FloatMatrix{}, d.data(), 0, 2, RoundingMode::down);
  for (const double value : d) EXPECT_EQ(std::bit_cast<uint64_t>(value), 0u);
  ExactProduct(FloatMatrix{}, 4, 0).compute(FloatMatrix{}, nullptr, 0, 2);
}

// Whatever the strides, the threads, the rows that are asked for and the CPU's mode.
TEST(ExactProduct, DependsOnItsNumbersOnly) {
  ProductOperands of = random_operands(binary32, 21, 40, 35, 5, 60, true);
  for (size_t i = 0; i < of.a.size(); i += 3) of.a[i] = std::ldexp(of.a[i], -120);  // subnormal ones among them
  const std::vector<uint64_t> expected = product(of);
  std::vector<float> a_columns, b_columns;
  for (int64_t l = 0; l < of.k; ++l)
    for (int64_t i = 0; i < of.m; ++i) a_columns.push_back(of.a_at(i, l));
  for (int64_t j = 0; j < of.n; ++j)
    for (int64_t l = 0; l < of.k; ++l) b_columns.push_back(of.b_at(l, j));
  const unsigned before = _mm_getcsr();
  for (const unsigned mode : {0u, 0x8040u, 0x8040u | 0x6000u, 0x2000u, 0x4000u}) {
    _mm_setcsr(before | mode);
    const ParallelFor on_threads = [&](int64_t n, const std::function<void(int64_t)>& body) {
      std::vector<std::thread> threads;
      for (int64_t i = n; i-- > 0;) threads.emplace_back(body, i);
      for (std::thread& thread : threads) thread.join();
    };
    const ExactProduct prepared({b_columns.data(), 1, of.k}, of.k, of.n, of.c.data(), on_threads);
    std::vector<double> d(expected.size());
    on_threads(3, [&](int64_t part) { prepared.compute({a_columns.data(), 1, of.m}, d.data(), 7 * part, 7 * part + 7); });
    const unsigned after = _mm_getcsr() & ~0x3Fu;
    _mm_setcsr(before);
    EXPECT_EQ(after, (before | mode) & ~0x3Fu);
    for (size_t i = 0; i < d.size(); ++i) ASSERT_EQ(std::bit_cast<uint64_t>(d[i]), expected[i]) << mode << ' ' << i;
  }
}

TEST(ExactProduct, RefusesWhatIsNoMatrix) {
  const float one = 1;
  double d = 0;
  EXPECT_EQ(usage_error_of([&] { ExactProduct({&one}, -1, 1); }), "exact matrix product: k is -1, expected at least 0");
  EXPECT_EQ(usage_error_of([&] { ExactProduct({&one}, 1, -2); }), "exact matrix product: n is -2, expected at least 0");
  EXPECT_EQ(usage_error_of([&] { ExactProduct({}, 1, 1); }), "exact matrix product: b is a null pointer");
  const ExactProduct product({&one}, 1, 1);
  EXPECT_EQ(usage_error_of([&] { product.compute({}, &d, 0, 1); }), "exact matrix product: a is a null pointer");
  EXPECT_EQ(usage_error_of([&] { product.compute({&one}, nullptr, 0, 1); }), "exact matrix product: d is a null pointer");
  EXPECT_EQ(usage_error_of([&] { product.compute({&one}, &d, 2, 1); }),
            "exact matrix product: the number of rows is -1, expected at least 0");
}

}  // namespace
}  // namespace ulpscope
