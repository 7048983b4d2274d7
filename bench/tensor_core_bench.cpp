// Tensor cores: products beside their plain twins, numbers normally distributed. Items are multiply-adds.
#include <benchmark/benchmark.h>

#include <functional>
#include <vector>

#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/emulation/tensor_core_product.h"

namespace ulpscope {

namespace {

constexpr int64_t kRows = 512, kColumns = 512, kInner = 512;

TensorCore core_of(const char* gpu) { return find_tensor_core(gpu, binary16, binary16, binary32); }
TensorCore nvfp4_core() { return find_tensor_core("b200", e2m1, e2m1, binary32, InstructionFamily::tcgen05, BlockScales::nvf4); }

std::vector<uint32_t> normal_numbers(const FloatFormat& format, uint64_t stream, int64_t count) {
  const Philox random(1, stream);
  std::vector<uint32_t> encodings(static_cast<size_t>(count));
  for (size_t i = 0; i < encodings.size(); ++i) encodings[i] = static_cast<uint32_t>(round_to_encoding(format, random.normal(i)));
  return encodings;
}
// Scales of `count` elements, if any: between 1/2 and 2 in E4M3.
std::vector<uint8_t> scales_for(const TensorCore& core, uint64_t stream, int64_t count) {
  const Philox random(2, stream);
  const int each = elements_of_scale(core.model->scales);
  std::vector<uint8_t> scales(static_cast<size_t>(each == 0 ? 0 : count / each));
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<uint8_t>(0x30 + random.below(i, 16));
  return scales;
}

// dot() of two vectors, again and again.
void tensor_core_dot(benchmark::State& state, const TensorCore& core) {
  const std::vector<uint32_t> a = normal_numbers(*core.a, 1, kInner), b = normal_numbers(*core.b, 2, kInner);
  const std::vector<uint8_t> a_scales = scales_for(core, 1, kInner), b_scales = scales_for(core, 2, kInner);
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(dot(core, a, b, 0, {a_scales, b_scales}));
  state.SetItemsProcessed(state.iterations() * kInner);
}

// Encodings as a product takes them, of one or two bytes.
std::vector<uint8_t> matrix(const FloatFormat& format, uint64_t stream, int64_t count) {
  std::vector<uint8_t> bytes;
  for (const uint32_t encoding : normal_numbers(format, stream, count)) {
    bytes.push_back(static_cast<uint8_t>(encoding));
    if (format.storage_bits() > 8) bytes.push_back(static_cast<uint8_t>(encoding >> 8));
  }
  return bytes;
}

// The preparation of B included.
void tensor_core_product(benchmark::State& state, const TensorCore& core, int threads) {
  const std::vector<uint8_t> a = matrix(*core.a, 1, kRows * kInner), b = matrix(*core.b, 2, kInner * kColumns);
  const std::vector<uint8_t> a_scales = scales_for(core, 1, kRows * kInner), b_scales = scales_for(core, 2, kInner * kColumns);
  const auto scales_of = [](const std::vector<uint8_t>& scales, int64_t stride) {
    return scales.empty() ? EncodedMatrix{} : EncodedMatrix{scales.data(), stride};
  };
  const EncodedMatrix of_a = scales_of(a_scales, static_cast<int64_t>(a_scales.size()) / kRows),
                      of_b = scales_of(b_scales, kColumns);
  std::vector<float> d(kRows * kColumns);
  // One contiguous share a thread, of threads that wait for work, as the engine's do.
  const ParallelFor on_threads = [threads](int64_t n, const std::function<void(int64_t)>& body) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < n; ++i) body(i);
  };
  for ([[maybe_unused]] auto _ : state) {
    const TensorCoreProduct product(core, {b.data(), kColumns}, kInner, kColumns, of_b, on_threads);
    on_threads(threads, [&](int64_t part) {
      product.compute({a.data(), kInner}, {}, d.data(), kRows * part / threads, kRows * (part + 1) / threads, of_a);
    });
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kRows * kColumns * kInner);
}

BENCHMARK_CAPTURE(tensor_core_dot, h100, core_of("h100"));
BENCHMARK_CAPTURE(tensor_core_dot, a100, core_of("a100"));
BENCHMARK_CAPTURE(tensor_core_dot, nvfp4, nvfp4_core());
BENCHMARK_CAPTURE(tensor_core_product, h100, core_of("h100"), 1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(tensor_core_product, a100, core_of("a100"), 1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(tensor_core_product, nvfp4, nvfp4_core(), 1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(tensor_core_product, h100_2_threads, core_of("h100"), 2)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

}  // namespace ulpscope

BENCHMARK_MAIN();
