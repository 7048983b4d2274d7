// The statistics kernel and the roundings, one thread, against the memory traffic that they cannot avoid: a read-only scan, a copy.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "hwy/aligned_allocator.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/simd_rounding.h"
#include "ulpscope/kernels/statistics.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/statistics_bench.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The least that a scan can do with each value: a maximum of integers.
uint32_t Scan(const uint32_t* HWY_RESTRICT values, int64_t n) {
  const hn::ScalableTag<uint32_t> d;
  const int64_t lanes = hn::Lanes(d);
  auto a = hn::Zero(d), b = a, e = a, f = a;
  for (int64_t i = 0; i < n; i += 4 * lanes) {
    a = hn::Max(a, hn::LoadU(d, values + i));
    b = hn::Max(b, hn::LoadU(d, values + i + lanes));
    e = hn::Max(e, hn::LoadU(d, values + i + 2 * lanes));
    f = hn::Max(f, hn::LoadU(d, values + i + 3 * lanes));
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(a, b), hn::Max(e, f))));
}

}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ulpscope {

HWY_EXPORT(Scan);

namespace {

constexpr int64_t kLarge = 1 << 24;  // 64 MiB: beyond every cache

enum class Data { normal, relu, wide, nan };

// Aligned to cache lines, as tensors are.
const float* data(Data kind) {
  static hwy::AlignedFreeUniquePtr<float[]> filled[4];
  auto& values = filled[static_cast<int>(kind)];
  if (values) return values.get();
  values = hwy::AllocateAligned<float>(kLarge);
  const Philox random(1, static_cast<uint64_t>(kind));
  for (int64_t i = 0; i < kLarge; ++i) {
    switch (kind) {
      case Data::normal:
        values[i] = static_cast<float>(random.normal(i));
        break;
      case Data::relu:
        values[i] = std::max(0.0f, static_cast<float>(random.normal(i)));
        break;
      // Every exponent alike: a block spans all 254 binades.
      case Data::wide:
        values[i] = std::bit_cast<float>(0x800000 + random.below(i, 0x7F000000));
        break;
      case Data::nan:
        values[i] = std::bit_cast<float>(0x7FC00000u);
        break;
    }
  }
  return values.get();
}

void items(benchmark::State& state, int64_t count) {
  state.SetItemsProcessed(state.iterations() * count);
  state.SetBytesProcessed(state.iterations() * count * 4);
}

void scan(benchmark::State& state, Data kind) {
  const float* values = data(kind);
  for ([[maybe_unused]] auto _ : state)
    benchmark::DoNotOptimize(HWY_DYNAMIC_DISPATCH(Scan)(reinterpret_cast<const uint32_t*>(values), kLarge));
  items(state, kLarge);
}

void collect(benchmark::State& state, Data kind, StatisticsLevel level) {
  const float* values = data(kind);
  TensorView view;
  view.data = const_cast<float*>(values);
  view.rank = 1;
  view.shape = {state.range(0)};
  view.strides = {1};
  OutputRecord record;
  record.wanted = level;
  for ([[maybe_unused]] auto _ : state) {
    collect_statistics(view, record);
    benchmark::DoNotOptimize(record);
  }
  items(state, state.range(0));
}

void copy(benchmark::State& state) {
  const float* values = data(Data::normal);
  const auto out = hwy::AllocateAligned<float>(kLarge);
  for ([[maybe_unused]] auto _ : state) {
    std::memcpy(out.get(), values, kLarge * sizeof(float));
    benchmark::ClobberMemory();
  }
  items(state, kLarge);
}

void round_values(benchmark::State& state, const FloatFormat& format, StatisticsLevel level) {
  const float* values = data(Data::normal);
  const auto out = hwy::AllocateAligned<uint16_t>(kLarge);
  OutputRecord record;
  record.wanted = level;
  for ([[maybe_unused]] auto _ : state) {
    StatisticsCollector collector(record, kLarge, &format);
    for (int64_t i = 0; i < kLarge; i += kStatisticsBlock) {
      collector.add_and_encode(i / kStatisticsBlock, values + i, kStatisticsBlock, out.get() + i);
    }
    collector.finish();
    benchmark::ClobberMemory();
  }
  items(state, kLarge);
}

BENCHMARK_CAPTURE(scan, normal, Data::normal)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(collect, normal, Data::normal, StatisticsLevel::values)->Unit(benchmark::kMillisecond)->Arg(kLarge);
BENCHMARK_CAPTURE(collect, relu, Data::relu, StatisticsLevel::values)->Unit(benchmark::kMillisecond)->Arg(kLarge);
BENCHMARK_CAPTURE(collect, wide, Data::wide, StatisticsLevel::values)->Unit(benchmark::kMillisecond)->Arg(kLarge);
BENCHMARK_CAPTURE(collect, nan, Data::nan, StatisticsLevel::values)->Unit(benchmark::kMillisecond)->Arg(kLarge);
BENCHMARK_CAPTURE(collect, health, Data::normal, StatisticsLevel::health)->Unit(benchmark::kMillisecond)->Arg(kLarge);
BENCHMARK_CAPTURE(collect, small, Data::normal, StatisticsLevel::values)
    ->Arg(16)
    ->Arg(256)
    ->Arg(kStatisticsBlock)
    ->Arg(1 << 16)
    ->Arg(1 << 19)
    ->Arg(1 << 22);
BENCHMARK_CAPTURE(collect, small_health, Data::normal, StatisticsLevel::health)
    ->Arg(16)
    ->Arg(256)
    ->Arg(kStatisticsBlock)
    ->Arg(1 << 16)
    ->Arg(1 << 19)
    ->Arg(1 << 22);
BENCHMARK(copy)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(round_values, f16, binary16, StatisticsLevel::none)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(round_values, f16_health, binary16, StatisticsLevel::health)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(round_values, f16_full, binary16, StatisticsLevel::values)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(round_values, bf16, bfloat16, StatisticsLevel::none)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(round_values, bf16_health, bfloat16, StatisticsLevel::health)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(round_values, bf16_full, bfloat16, StatisticsLevel::values)->Unit(benchmark::kMillisecond);

}  // namespace

}  // namespace ulpscope

BENCHMARK_MAIN();

#endif
