// Roundings of arrays, one thread, against the memory traffic that they cannot avoid: values that stay in FP32 against loading and
// storing each vector in place, encodings against memcpy of the values.
#include <benchmark/benchmark.h>

#include <cstring>
#include <span>
#include <string>

#include "hwy/aligned_allocator.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/block_format.h"
#include "ulpscope/emulation/round_array.h"
#include "ulpscope/emulation/rounding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/rounding_bench.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The least that a rounding in place can do.
void LoadAndStore(float* values, size_t count) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    auto v = hn::LoadU(d, values + i);
    asm volatile("" : "+x"(v.raw));
    hn::StoreU(v, d, values + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ulpscope {

HWY_EXPORT(LoadAndStore);

namespace {

constexpr size_t kLarge = 1 << 24, kInCache = 1 << 16;
struct Size {
  const char* name;
  size_t count;
};
constexpr Size kSizes[] = {{"large", kLarge}, {"in_cache", kInCache}};

std::span<float> values(size_t count) {
  static const auto filled = [] {
    auto numbers = hwy::AllocateAligned<float>(kLarge);
    const Philox random(1, 2);
    for (size_t i = 0; i < kLarge; ++i) numbers[i] = static_cast<float>(random.normal(i));
    return numbers;
  }();
  return {filled.get(), count};
}

template <typename T>
std::span<T> room(size_t count) {
  static const auto memory = [] {
    auto bytes = hwy::AllocateAligned<T>(kLarge);
    std::memset(bytes.get(), 0, kLarge * sizeof(T));
    return bytes;
  }();
  return {memory.get(), count};
}

template <typename Body>
void add(const std::string& name, size_t count, Body body) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    values(count);
    for (auto _ : state) {
      body(count);
      benchmark::ClobberMemory();
    }
    state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * count));
  });
}

void register_all() {
  for (const Size& size : kSizes) {
    const std::string end = std::string("/") + size.name;
    add("in_place_copy" + end, size.count, [](size_t n) { HWY_DYNAMIC_DISPATCH(LoadAndStore)(values(n).data(), n); });
    add("memcpy" + end, size.count, [](size_t n) { std::memcpy(room<float>(n).data(), values(n).data(), n * sizeof(float)); });
    for (const BlockFormat* format : {&mxfp8_e4m3, &mxfp4, &nvfp4}) {
      add("blocks/" + std::string(format->name) + end, size.count, [=](size_t n) {
        static BlockArray array(*format, {1, n, 1});
        array.format = format;
        array.axis.length = n;
        quantize(array, values(n));
      });
    }
    for (const RoundingModeName& mode : rounding_modes()) {
      const Rounding rounding{.mode = mode.mode};
      for (const FloatFormat* format : {&binary16, &bfloat16, &e4m3, &e5m2, &parse_format("e6m9")}) {
        const std::string what = std::string(format->name) + '/' + std::string(mode.name);
        add("in_place/" + what + end, size.count,
            [=](size_t n) { round_values(*format, rounding, room<float>(n), room<float>(n)); });
        if (format->storage_bits() == 8) {
          add("encodings/" + what + end, size.count,
              [=](size_t n) { round_encodings(*format, rounding, values(n), room<uint8_t>(n)); });
        } else {
          add("encodings/" + what + end, size.count,
              [=](size_t n) { round_encodings(*format, rounding, values(n), room<uint16_t>(n)); });
        }
      }
    }
  }
}

}  // namespace
}  // namespace ulpscope

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  ulpscope::register_all();
  benchmark::RunSpecifiedBenchmarks();
}

#endif
