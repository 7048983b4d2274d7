// Exact dot products and sums, correctly rounded, one thread, beside plain ones in FP32 and FP64 of the same data. Items are
// multiply-adds.
#include <benchmark/benchmark.h>

#include <cmath>
#include <vector>

#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/exact_product.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/emulation/summation.h"

namespace ulpscope {

namespace {

constexpr size_t kInCache = 4096, kLarge = size_t{1} << 22;

// Standard normal; or all exponents that the format has.
enum class Data { normal, wide };

std::vector<float> values(size_t count, uint64_t stream, Data data) {
  const Philox random(1, stream);
  std::vector<float> result(count);
  for (size_t i = 0; i < count; ++i) {
    const auto exponent = static_cast<int>(random.below(2 * i, 254)) - 126;
    result[i] = data == Data::normal ? static_cast<float>(random.normal(i)) : std::ldexp(1 + random.uniform(2 * i + 1), exponent);
  }
  return result;
}

template <typename T>
std::vector<T> encodings(const FloatFormat& format, const std::vector<float>& in) {
  std::vector<T> result;
  for (const float value : in) result.push_back(static_cast<T>(round_to_encoding(format, value, {.overflow = Overflow::saturate})));
  return result;
}

template <typename T>
void run_dot(benchmark::State& state, const FloatFormat& format, size_t count, Data data, const Summation& summation) {
  const auto a = encodings<T>(format, values(count, 1, data)), b = encodings<T>(format, values(count, 2, data));
  const EncodedArray left(format, std::span<const T>(a)), right(format, std::span<const T>(b));
  for (auto _ : state) benchmark::DoNotOptimize(dot(left, right, summation));
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * count));
}

const Summation kExact{.order = SumOrder::exact};

void exact_dot_f16(benchmark::State& state) { run_dot<uint16_t>(state, binary16, state.range(0), Data::normal, kExact); }
void exact_dot_f16_wide(benchmark::State& state) { run_dot<uint16_t>(state, binary16, state.range(0), Data::wide, kExact); }
void exact_dot_bf16(benchmark::State& state) { run_dot<uint16_t>(state, bfloat16, state.range(0), Data::normal, kExact); }
void exact_dot_e4m3(benchmark::State& state) { run_dot<uint8_t>(state, e4m3, state.range(0), Data::normal, kExact); }
void exact_dot_f32(benchmark::State& state) { run_dot<uint32_t>(state, binary32, state.range(0), Data::normal, kExact); }
void exact_dot_f32_wide(benchmark::State& state) { run_dot<uint32_t>(state, binary32, state.range(0), Data::wide, kExact); }
void exact_dot_f64(benchmark::State& state) { run_dot<uint64_t>(state, binary64, state.range(0), Data::normal, kExact); }

void exact_sum_f32(benchmark::State& state) {
  const std::vector<float> terms = values(static_cast<size_t>(state.range(0)), 1, Data::normal);
  for (auto _ : state) benchmark::DoNotOptimize(sum(EncodedArray(std::span(terms)), kExact));
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * terms.size()));
}

// Matrix products, that is many short dot products, the preparation of the second factor included. Numbers of all exponents are
// summed one dot product after the other.
void run_product(benchmark::State& state, const FloatFormat& format, Data data) {
  constexpr int64_t kRows = 256, kColumns = 256;
  const int64_t inner = state.range(0);
  std::vector<float> a = values(static_cast<size_t>(kRows * inner), 1, data),
                     b = values(static_cast<size_t>(kColumns * inner), 2, data);
  for (std::vector<float>* factor : {&a, &b})
    for (float& value : *factor)
      value = static_cast<float>(value_of(format, round_to_encoding(format, value, {.overflow = Overflow::saturate})));
  std::vector<double> d(kRows * kColumns);
  for (auto _ : state) {
    ExactProduct({b.data(), 1, inner}, inner, kColumns).compute({a.data(), inner, 1}, d.data(), 0, kRows);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kRows * kColumns * inner);
}

void exact_product_f16(benchmark::State& state) { run_product(state, binary16, Data::normal); }
void exact_product_f16_wide(benchmark::State& state) { run_product(state, binary16, Data::wide); }
void exact_product_f32(benchmark::State& state) { run_product(state, binary32, Data::normal); }
void exact_product_f32_wide(benchmark::State& state) { run_product(state, binary32, Data::wide); }

// What rounds after every term, emulated.
void sequential_dot_f16(benchmark::State& state) {
  run_dot<uint16_t>(state, binary16, state.range(0), Data::normal, {.accumulator = &binary16});
}
void compensated_dot_f32(benchmark::State& state) {
  run_dot<uint32_t>(state, binary32, state.range(0), Data::normal, {.order = SumOrder::compensated});
}

// The CPU's own additions, one after the other, as C++ orders them.
void plain_dot_f32(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  const std::vector<float> a = values(count, 1, Data::normal), b = values(count, 2, Data::normal);
  for (auto _ : state) {
    float total = 0;
    for (size_t i = 0; i < count; ++i) total += a[i] * b[i];
    benchmark::DoNotOptimize(total);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * count));
}

BENCHMARK(plain_dot_f32)->Arg(kInCache)->Arg(kLarge);
BENCHMARK(exact_dot_f16)->Arg(16)->Arg(kInCache)->Arg(kLarge);
BENCHMARK(exact_dot_f16_wide)->Arg(kInCache);
BENCHMARK(exact_dot_bf16)->Arg(kInCache)->Arg(kLarge);
BENCHMARK(exact_dot_e4m3)->Arg(kInCache);
BENCHMARK(exact_dot_f32)->Arg(16)->Arg(kInCache)->Arg(kLarge);
BENCHMARK(exact_dot_f32_wide)->Arg(kInCache);
BENCHMARK(exact_dot_f64)->Arg(kInCache);
BENCHMARK(exact_sum_f32)->Arg(kInCache)->Arg(kLarge);
BENCHMARK(exact_product_f16)->Arg(32)->Arg(128)->Arg(512);
BENCHMARK(exact_product_f16_wide)->Arg(128);
BENCHMARK(exact_product_f32)->Arg(32)->Arg(128)->Arg(512);
BENCHMARK(exact_product_f32_wide)->Arg(128);
BENCHMARK(sequential_dot_f16)->Arg(kInCache);
BENCHMARK(compensated_dot_f32)->Arg(kInCache);

}  // namespace

}  // namespace ulpscope

BENCHMARK_MAIN();
