// The statistics of FP32 values: the SIMD kernels against their plain twin, bit by bit, on every target; the twin against counts by
// other means.
#include "ulpscope/kernels/statistics.h"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <cmath>
#include <map>

#include "tests/kernels/statistics_support.h"
#include "ulpscope/kernels/statistics_reference.h"

namespace ulpscope {
namespace {

using namespace testing_support;

TensorStatistics collected(const float* values, int64_t n) { return collect(vector_view(values, DType::f32, n)).statistics; }

void expect_twin(const std::vector<float>& values) {
  const TensorStatistics expected = reference_statistics(values.data(), static_cast<int64_t>(values.size()));
  expect_same(collected(values.data(), static_cast<int64_t>(values.size())), expected);
}

// The twin itself, by <cmath> and exact sums of a few values.
TEST(Statistics, CountWhatTheirDefinitionsSay) {
  const std::vector<float> values = make(Data::every_bit_pattern, 100000);
  uint64_t nan = 0, infinities = 0, zeros = 0, negatives = 0;
  double smallest = HUGE_VAL, largest = 0;
  std::map<int, uint64_t> exponents;
  for (const float value : values) {
    if (std::isnan(value)) {
      ++nan;
    } else if (std::isinf(value)) {
      ++infinities;
    } else if (value == 0) {
      ++zeros;
    } else {
      negatives += value < 0;
      smallest = std::min(smallest, std::abs(static_cast<double>(value)));
      largest = std::max(largest, std::abs(static_cast<double>(value)));
      ++exponents[std::max(std::ilogb(value), -127)];
    }
  }
  const TensorStatistics counted = collected(values.data(), static_cast<int64_t>(values.size()));
  EXPECT_EQ(counted.nan, nan);
  EXPECT_EQ(counted.infinities(), infinities);
  EXPECT_EQ(counted.zeros, zeros);
  EXPECT_EQ(counted.negatives, negatives);
  EXPECT_EQ(counted.smallest, smallest);
  EXPECT_EQ(counted.largest, largest);
  for (int bin = 0; bin < ExponentHistogram::kBins; ++bin) {
    EXPECT_EQ(counted.histogram.bins[bin], exponents[ExponentHistogram::exponent(bin)]) << bin;
  }
  EXPECT_EQ(counted.histogram.total(), counted.finite_nonzero());
}

TEST(Statistics, SumsAreThoseOfFp64) {
  // Whole numbers below 2^24, whose squares add up to less than 2^53 for 30 of them: any order gives the exact sum.
  const std::vector<float> values{16777215, -3, 0.5, 1024, -16777215, 7};
  const TensorStatistics counted = collected(values.data(), static_cast<int64_t>(values.size()));
  EXPECT_EQ(counted.sum, 1028.5);
  EXPECT_EQ(counted.sum_of_squares, 2 * 16777215.0 * 16777215.0 + 9 + 0.25 + 1048576 + 49);

  // Any order of n additions errs by at most gamma_n times the sum of magnitudes, u = 2^-53.
  const std::vector<float> many = make(Data::normal, 100001);
  long double exact = 0, magnitudes = 0;
  for (const float value : many) {
    exact += value;
    magnitudes += std::abs(value);
  }
  const double gamma = many.size() * 0x1p-53 / (1 - many.size() * 0x1p-53);
  EXPECT_LE(std::abs(collected(many.data(), 100001).sum - static_cast<double>(exact)), gamma * static_cast<double>(magnitudes));
}

// 2^60 swallows a 1 that is added to it, so the order of additions shows.
TEST(Statistics, SumsAreFormedInTheDocumentedOrder) {
  const auto sum_of = [](int64_t n, std::initializer_list<std::pair<int64_t, float>> elements) {
    std::vector<float> values(n);
    for (const auto& [place, value] : elements) values[place] = value;
    return collected(values.data(), n).sum;
  };
  on_every_target([&] {
    // Elements 0 and 16 share lane 0, which is added up before lane 8 joins it.
    EXPECT_EQ(sum_of(40, {{0, 0x1p60f}, {8, -0x1p60f}, {16, 1.0f}}), 0);
    // Lane 8 joins lane 0 before lanes 4, 2 and 1 do.
    EXPECT_EQ(sum_of(40, {{0, 0x1p60f}, {8, -0x1p60f}, {1, 1.0f}}), 1);
    EXPECT_EQ(sum_of(40, {{0, 0x1p60f}, {4, -0x1p60f}, {8, 1.0f}}), 0);
    EXPECT_EQ(sum_of(40, {{0, 0x1p60f}, {4, -0x1p60f}, {2, 1.0f}}), 1);
    EXPECT_EQ(sum_of(40, {{0, 0x1p60f}, {2, -0x1p60f}, {4, 1.0f}}), 0);
    // Blocks: neighbours first, an odd one later.
    const int64_t block = kStatisticsBlock;
    EXPECT_EQ(sum_of(3 * block, {{0, 0x1p60f}, {block, 1.0f}, {2 * block, -0x1p60f}}), 0);
    EXPECT_EQ(sum_of(3 * block, {{0, 0x1p60f}, {block, -0x1p60f}, {2 * block, 1.0f}}), 1);
    EXPECT_EQ(sum_of(4 * block, {{0, 0x1p60f}, {block, -0x1p60f}, {2 * block, 1.0f}, {3 * block, 1.0f}}), 2);
    EXPECT_EQ(sum_of(5 * block, {{0, 0x1p60f}, {2 * block, 1.0f}, {4 * block, -0x1p60f}}), 0);
  });
}

TEST(Statistics, EqualTheirTwinAtEveryShortLength) {
  on_every_target([] {
    for (const Data kind : kAllData) {
      for (int64_t n = 0; n <= 200; ++n) expect_twin(make(kind, n));
      if (testing::Test::HasFailure()) FAIL() << "data " << static_cast<int>(kind);
    }
  });
}

TEST(Statistics, EqualTheirTwinAroundBlockBoundaries) {
  on_every_target([] {
    for (const Data kind : kAllData) {
      for (const int64_t n : {8191, 8192, 8193, 8192 + 63, 8192 + 64, 8192 + 65, 3 * 8192 - 1, 3 * 8192 + 17, 7 * 8192})
        expect_twin(make(kind, n));
      if (testing::Test::HasFailure()) FAIL() << "data " << static_cast<int>(kind);
    }
  });
}

TEST(Statistics, EqualTheirTwinAtAnyAlignment) {
  const std::vector<float> values = make(Data::normal, 9000);
  on_every_target([&] {
    for (int64_t offset = 0; offset < 17; ++offset) {
      expect_same(collected(values.data() + offset, 8200), reference_statistics(values.data() + offset, 8200));
    }
  });
}

// Each special value at each position of a group of vectors, in otherwise ordinary data with and without zeros, and in the rest of
// a block that does not fill its vectors.
TEST(Statistics, SeeASpecialValueAtEveryPosition) {
  const float specials[] = {
      from_bits(0x7FC00000), from_bits(0x7F800001), from_bits(0xFFFFFFFF), HUGE_VALF, -HUGE_VALF, 0.0f, -0.0f, from_bits(1),
      from_bits(0x80000001), from_bits(0x7FFFFF),   from_bits(0x7F7FFFFF)};
  on_every_target([&] {
    for (const Data kind : {Data::normal, Data::relu}) {
      std::vector<float> values = make(kind, 151);
      for (size_t position = 0; position < values.size(); ++position) {
        const float ordinary = values[position];
        for (const float special : specials) {
          values[position] = special;
          expect_twin(values);
        }
        values[position] = ordinary;
        if (testing::Test::HasFailure()) FAIL() << "position " << position;
      }
    }
  });
}

// Blocks whose exponents span 1, 2, ... binades at every place of the range take every way of counting.
TEST(Statistics, EqualTheirTwinForEverySpanOfBinades) {
  on_every_target([] {
    for (int span = 1; span <= 254; span += span < 40 ? 1 : 7) {
      for (const int first : {1, (255 - span) / 2, 255 - span}) {
        const Philox random(span, first);
        std::vector<float> values(8192 + 100);
        for (size_t i = 0; i < values.size(); ++i) {
          const uint32_t exponent = first + random.below(2 * i, span);
          values[i] = from_bits(exponent << 23 | (random.bits(2 * i + 1) & 0x807FFFFF));
        }
        expect_twin(values);
        // The same with one value in the lowest binade only, and with zeros.
        for (size_t i = 0; i < values.size(); ++i) values[i] = from_bits(i == 4097 ? first << 23 : (first + span - 1) << 23);
        expect_twin(values);
        for (size_t i = 0; i < values.size(); i += 3) values[i] = 0;
        expect_twin(values);
        if (testing::Test::HasFailure()) FAIL() << "binades " << first << " to " << first + span - 1;
      }
    }
  });
}

// A full block of one value: no counter of the second pass may run over.
TEST(Statistics, CountABlockOfEqualValues) {
  on_every_target([] {
    for (const float value : {1.0f, -1.5f, 3e38f, 1e-38f, from_bits(1)}) expect_twin(std::vector<float>(3 * 8192, value));
  });
}

TEST(Statistics, AreTheSameOnAnyNumberOfThreads) {
  for (const Data kind : kAllData) {
    const std::vector<float> values = make(kind, 50 * 8192 + 321);
    const TensorView view = vector_view(values.data(), DType::f32, static_cast<int64_t>(values.size()));
    const TensorStatistics expected = collect(view).statistics;
    for (const int threads : {2, 5, 40}) {
      SCOPED_TRACE(threads);
      expect_same(collect(view, StatisticsLevel::values, threads_for(threads)).statistics, expected);
    }
  }
}

// Flush-to-zero, denormals-are-zero and rounding towards zero, as a training loop may have set them.
TEST(Statistics, DoNotDependOnTheFloatingPointMode) {
  on_every_target([] {
    for (const Data kind : {Data::subnormal, Data::every_finite, Data::normal}) {
      const std::vector<float> values = make(kind, 8192 + 77);
      const TensorStatistics expected = reference_statistics(values.data(), 8192 + 77);
      const RoundingCounts expected_counts = reference_rounding(bfloat16, values.data(), 8192 + 77, 1024.0);
      std::vector<uint16_t> out(values.size());
      OutputRecord record = wanting(StatisticsLevel::values, 1024.0);
      const unsigned before = _mm_getcsr();
      _mm_setcsr(before | 0x8040 | 0x6000);
      StatisticsCollector collector(record, 8192 + 77, &bfloat16);
      collector.add_and_encode(0, values.data(), 8192, out.data());
      collector.add_and_encode(1, values.data() + 8192, 77, out.data() + 8192);
      collector.finish();
      const unsigned after = _mm_getcsr();
      _mm_setcsr(before);
      EXPECT_EQ(after & 0xE040, 0xE040u);  // and leave it as it was
      expect_same(record.statistics, expected);
      expect_same(record.rounding, expected_counts);
    }
  });
}

TEST(Statistics, OfHealthAreThoseOfFull) {
  on_every_target([] {
    for (const Data kind : kAllData) {
      for (const int64_t n : {0, 1, 63, 64, 65, 8192, 8192 * 2 + 33}) {
        const std::vector<float> values = make(kind, n);
        TensorStatistics expected;
        const TensorStatistics full = reference_statistics(values.data(), n);
        expected.count = full.count;
        expected.nan = full.nan;
        expected.positive_infinity = full.positive_infinity;
        expected.negative_infinity = full.negative_infinity;
        expected.zeros = full.zeros;
        const OutputRecord record = collect(vector_view(values.data(), DType::f32, n), StatisticsLevel::health);
        EXPECT_EQ(record.known, StatisticsLevel::health);
        expect_same(record.statistics, expected);
        const std::vector<double> wide(values.begin(), values.end());
        expect_same(collect(vector_view(wide.data(), DType::f64, n), StatisticsLevel::health).statistics, expected);
      }
    }
  });
}

TEST(Statistics, OfFp64CountWhatLiesOutsideTheRangeOfFp32) {
  const std::vector<double> values{0x1p-150, -0x1p-1074, 0x1p-149, -0x1.8p-127, 0x1p-126, 1.5, 0x1.fp127,
                                   0x1p128,  -1e300,     0.0,      -0.0,        HUGE_VAL, NAN};
  const TensorStatistics counted = collect(vector_view(values.data(), DType::f64, static_cast<int64_t>(values.size()))).statistics;
  EXPECT_EQ(counted.count, values.size());
  EXPECT_EQ(counted.histogram.below_range, 2u);
  EXPECT_EQ(counted.histogram.above_range, 2u);
  EXPECT_EQ(counted.histogram.bins[0], 2u);
  EXPECT_EQ(counted.histogram.bins[1], 1u);
  EXPECT_EQ(counted.histogram.bins[127], 1u);
  EXPECT_EQ(counted.histogram.bins[254], 1u);
  EXPECT_EQ(counted.histogram.total(), counted.finite_nonzero());
  EXPECT_EQ(counted.smallest, 0x1p-1074);
  EXPECT_EQ(counted.largest, 1e300);
  EXPECT_EQ(counted.negatives, 3u);
  EXPECT_EQ(counted.zeros, 2u);
  EXPECT_EQ(counted.nan, 1u);
  EXPECT_EQ(counted.positive_infinity, 1u);
}

TEST(Statistics, NotWantedLeaveTheRecordAlone) {
  const std::vector<float> values(100, 1.0f);
  OutputRecord record = wanting(StatisticsLevel::none);
  record.statistics.count = 7;
  collect_statistics(vector_view(values.data(), DType::f32, 100), record);
  EXPECT_EQ(record.statistics.count, 7u);
  EXPECT_EQ(record.known, StatisticsLevel::none);
  StatisticsCollector collector(record, 100, &binary16);
  EXPECT_FALSE(collector.active());
  std::vector<uint16_t> out(100);
  collector.add_and_encode(0, values.data(), 100, out.data());
  collector.finish();
  EXPECT_EQ(out[99], 0x3C00);
  EXPECT_FALSE(record.rounding_known);
}

}  // namespace
}  // namespace ulpscope
