// What products report of their wide values and of rounding them, against plain counts of values that are known exactly:
// factors are small integers times powers of two, and every term of an output element has the same power, so FP32 sums are exact in
// any order.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "cpu_support.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/kernels/statistics_reference.h"

namespace ulpscope::testing_support {
namespace {

// A product and the dimension of each factor that its sums do not run over: indices along it have a power of two each.
struct Product {
  Case what;
  int dimensions[2];
};

// All sums without padding have 511 terms: 511 * 2^119 is finite in FP32, and BF16 rounds it to Inf.
std::vector<Product> counted_products() {
  constexpr int64_t kTerms = 511;
  std::vector<Product> all;
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{12, 10}, {301, 70}, {37, 300}}) {
    all.push_back({{"matmul", {{{m, kTerms}}, {{kTerms, n}}}, {{{m, n}}}}, {0, 1}});
    all.push_back({{"matmul", {{{m, kTerms}, Lay::transposed}, {{kTerms, n}, Lay::transposed}}, {{{m, n}}}}, {0, 1}});
    all.push_back({{"linear", {{{m, kTerms}}, {{n, kTerms}}}, {{{m, n}}}}, {0, 0}});
  }
  const std::vector<Attributes::Item> attributes{{"stride_y", 1}, {"stride_x", 1}, {"padding_y", 0}, {"padding_x", 0}};
  for (const Lay lay : {Lay::contiguous, Lay::channels_last}) {
    const std::vector<int64_t> x{13, 73, 9, 5}, w{20, 73, 7, 1}, y{13, 20, 3, 5};
    all.push_back({{"conv2d", {{x, lay}, {w}}, {{y, Lay::channels_last}}, attributes}, {0, 0}});
    const std::vector<int64_t> g{13, 73, 9, 5}, w_back{73, 20, 7, 1}, x_back{13, 20, 15, 5};
    all.push_back({{"conv2d_backward_input", {{g, lay}, {w_back}}, {{x_back, Lay::channels_last}}, attributes}, {0, 1}});
    const std::vector<int64_t> g_sum{7, 20, 73, 1}, x_sum{7, 13, 75, 3}, w_sum{20, 13, 3, 3};
    all.push_back({{"conv2d_backward_weight", {{g_sum, lay}, {x_sum, lay}}, {{w_sum}, {{20}}}, attributes}, {1, 1}});
  }
  return all;
}

// Integers of at most 3, most of them 0, so that sums are small, and ones throughout where the index along `dimension` is 0. Low
// exponents are the most frequent.
void fill(HostTensor& tensor, int dimension, int input, DType dtype) {
  const TensorView view = tensor.view();
  const int lowest = dtype == DType::f16 ? -14 : -70, highest = dtype == DType::f16 ? 13 : 55, of_ones = input == 0 ? 60 : 59;
  const int64_t last = view.shape[dimension] - 1;
  int64_t inner = 1;
  for (int i = dimension + 1; i < view.rank; ++i) inner *= view.shape[i];
  const Philox random(7, static_cast<uint64_t>(input));
  for (int64_t i = 0; i < view.size(); ++i) {
    const int64_t index = i / inner % view.shape[dimension];
    const auto draw = static_cast<int>(random.below(static_cast<uint64_t>(i), index % 2 == 0 ? 56 : 448));
    double integer = draw < 7 ? draw - 3 : 0;
    int exponent = lowest + static_cast<int>((highest - lowest) * index * index * index * index / (last * last * last * last));
    if (index == 0) {
      integer = 1;
      if (dtype == DType::bf16) exponent = of_ones;
    }
    tensor.set(i, std::ldexp(integer, exponent));
  }
}

void expect_product_counts(const OutputRecord& record, const std::vector<float>& wide, DType dtype, const std::string& where) {
  const auto count = static_cast<int64_t>(wide.size());
  const TensorStatistics statistics = reference_statistics(wide.data(), count);
  EXPECT_TRUE(record.rounding_known && record.before_rounding) << where;
  EXPECT_EQ(record.rounding, reference_rounding(*info(dtype).format, wide.data(), count, record.scale)) << where;
  EXPECT_EQ(record.statistics.count, statistics.count) << where;
  EXPECT_EQ(record.statistics.nonfinite(), 0u) << where;
  EXPECT_EQ(record.statistics.zeros, statistics.zeros) << where;
  if (record.known != StatisticsLevel::values) return;
  EXPECT_EQ(record.statistics.negatives, statistics.negatives) << where;
  EXPECT_EQ(record.statistics.smallest, statistics.smallest) << where;
  EXPECT_EQ(record.statistics.largest, statistics.largest) << where;
  EXPECT_EQ(record.statistics.histogram, statistics.histogram) << where;
}

TEST(CpuProducts, CountWhatRoundingDoesToExactlyKnownValues) {
  const auto backend = make_cpu_backend({.threads = 2});
  for (const Product& product : counted_products()) {
    for (const DType dtype : {DType::f16, DType::bf16}) {
      Instance instance(product.what, dtype);
      for (int input = 0; input < 2; ++input) {
        fill(instance.inputs()[static_cast<size_t>(input)], product.dimensions[input], input, dtype);
      }
      const Result exact = instance.run_exact();
      for (const StatisticsLevel level : {StatisticsLevel::health, StatisticsLevel::values}) {
        const Result result = instance.run(*backend, level);
        for (size_t slot = 0; slot < exact.outputs.size(); ++slot) {
          const std::string where = fmt::format("{} {} output {}", product.what.name(), info(dtype).name, slot);
          const HostTensor& values = exact.outputs[slot];
          std::vector<float> wide;
          for (int64_t i = 0; i < values.view().size(); ++i) {
            wide.push_back(static_cast<float>(values.get(i)));
            ASSERT_EQ(wide.back(), values.get(i)) << where << ": not exact in FP32";
          }
          EXPECT_EQ(result.records[slot].known, level) << where;
          expect_product_counts(result.records[slot], wide, dtype, where);
          expect_same(result.outputs[slot], values.as(dtype), where);
        }
        const RoundingCounts& counts = result.records[0].rounding;
        EXPECT_TRUE(counts.flushed > 0 && counts.subnormal > counts.inexact_subnormal && counts.inexact_subnormal > 0 &&
                    counts.overflowed > 0)
            << product.what.name() << " " << info(dtype).name << " must provoke every count";
      }
    }
  }
}

}  // namespace
}  // namespace ulpscope::testing_support
