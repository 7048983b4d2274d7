// Tensor cores: products beside their plain twins, FP16 numbers, normally distributed. Items are multiply-adds.
#include <benchmark/benchmark.h>

#include <thread>
#include <vector>

#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/emulation/tensor_core_product.h"

namespace ulpscope {

namespace {

constexpr int64_t kRows = 512, kColumns = 512, kInner = 512;

std::vector<uint16_t> normal_f16(uint64_t stream, int64_t count) {
  const Philox random(1, stream);
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = round_to_f16(random.normal(i));
  return values;
}

TensorCore fp16_core(const char* gpu) { return find_tensor_core(gpu, binary16, binary16, binary32); }

// dot() of two vectors, again and again.
void tensor_core_dot(benchmark::State& state, const char* gpu) {
  const TensorCore core = fp16_core(gpu);
  const std::vector<uint16_t> a = normal_f16(1, kInner), b = normal_f16(2, kInner);
  const std::vector<uint32_t> left(a.begin(), a.end()), right(b.begin(), b.end());
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(dot(core, left, right, 0));
  state.SetItemsProcessed(state.iterations() * kInner);
}

// The preparation of B included.
void tensor_core_product(benchmark::State& state, const char* gpu, int threads) {
  const TensorCore core = fp16_core(gpu);
  const std::vector<uint16_t> a = normal_f16(1, kRows * kInner), b = normal_f16(2, kInner * kColumns);
  std::vector<float> d(kRows * kColumns);
  // One contiguous share a thread.
  const ParallelFor on_threads = [threads](int64_t n, const std::function<void(int64_t)>& body) {
    const auto share = [&](int index) {
      for (int64_t i = n * index / threads; i < n * (index + 1) / threads; ++i) body(i);
    };
    std::vector<std::thread> others;
    for (int index = 1; index < threads; ++index) others.emplace_back(share, index);
    share(0);
    for (std::thread& other : others) other.join();
  };
  for ([[maybe_unused]] auto _ : state) {
    const TensorCoreProduct product(core, {b.data(), kColumns}, kInner, kColumns, {}, on_threads);
    on_threads(threads, [&](int64_t part) {
      product.compute({a.data(), kInner}, {}, d.data(), kRows * part / threads, kRows * (part + 1) / threads);
    });
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kRows * kColumns * kInner);
}

BENCHMARK_CAPTURE(tensor_core_dot, h100, "h100");
BENCHMARK_CAPTURE(tensor_core_dot, a100, "a100");
BENCHMARK_CAPTURE(tensor_core_product, h100, "h100", 1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(tensor_core_product, a100, "a100", 1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(tensor_core_product, h100_2_threads, "h100", 2)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

}  // namespace ulpscope

BENCHMARK_MAIN();
