#include "ulpscope/kernels/fingerprint.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/kernels/fingerprint.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which says which target is being compiled.
#include "hwy/highway.h"
#include "ulpscope/kernels/sum_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using U64 = hn::ScalableTag<uint64_t>;
using U32 = hn::RepartitionToNarrow<U64>;
using U16 = hn::RepartitionToNarrow<U32>;
using U8 = hn::RepartitionToNarrow<U16>;
constexpr int64_t kBytes = hn::MaxLanes(U8());
// Vectors at a time, each with sums of its own, so that one addition does not wait for another.
constexpr int64_t kTogether = 4;

template <typename Element>
uint64_t SumOfRest(const char* bytes, int64_t size) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < size; i += static_cast<int64_t>(sizeof(Element))) {
    Element element;
    std::memcpy(&element, bytes + i, sizeof element);
    sum += element;
  }
  return sum;
}

template <typename Element>
uint64_t Sum(const char* bytes, int64_t size) {
  const U64 d;
  const U32 d32;
  const auto load = [&](int64_t i)
                        HWY_ATTR { return hn::BitCast(d, hn::LoadU(U8(), reinterpret_cast<const uint8_t*>(bytes + i))); };
  constexpr int64_t kStep = kTogether * kBytes;
  // Lanes of 32 bits hold the sum of 2^16 elements of 16 bits.
  constexpr int64_t kMost = sizeof(Element) == 2 ? kStep << 16 : INT64_MAX;
  uint64_t total = 0;
  int64_t i = 0;
  while (i + kStep <= size) {
    const int64_t end = size - i < kMost ? size : i + kMost;
    hn::Vec<U64> low[kTogether], high[kTogether];
    for (int64_t k = 0; k < kTogether; ++k) low[k] = high[k] = hn::Zero(d);
    for (; i + kStep <= end; i += kStep) {
      for (int64_t k = 0; k < kTogether; ++k) {
        const auto v = load(i + k * kBytes);
        if constexpr (sizeof(Element) == 8) {
          low[k] = hn::Add(low[k], v);
        } else if constexpr (sizeof(Element) == 4) {
          low[k] = hn::Add(low[k], v);  // with 2^32 times the upper halves
          high[k] = hn::Add(high[k], hn::ShiftRight<32>(v));
        } else if constexpr (sizeof(Element) == 2) {
          const auto pairs = hn::BitCast(d32, v);
          low[k] = hn::BitCast(d, hn::Add(hn::BitCast(d32, low[k]), hn::And(pairs, hn::Set(d32, 0xFFFF))));
          high[k] = hn::BitCast(d, hn::Add(hn::BitCast(d32, high[k]), hn::ShiftRight<16>(pairs)));
        } else {
          low[k] = hn::Add(low[k], hn::SumsOf8(hn::BitCast(U8(), v)));
        }
      }
    }
    for (int64_t k = 0; k < kTogether; ++k) {
      if constexpr (sizeof(Element) == 4) {
        const uint64_t upper = SumLanes(high[k]);
        total += SumLanes(low[k]) - (upper << 32) + upper;
      } else if constexpr (sizeof(Element) == 2) {
        for (const auto& lanes : {low[k], high[k]}) {
          total += SumLanes(hn::Add(hn::And(lanes, hn::Set(d, 0xFFFFFFFF)), hn::ShiftRight<32>(lanes)));
        }
      } else {
        total += SumLanes(low[k]);
      }
    }
  }
  return total + SumOfRest<Element>(bytes + i, size - i);
}

uint64_t SumOf(const void* elements, int64_t n, size_t element_bytes) {
  const auto* bytes = static_cast<const char*>(elements);
  const int64_t size = n * static_cast<int64_t>(element_bytes);
  switch (element_bytes) {
    case sizeof(uint8_t):
      return Sum<uint8_t>(bytes, size);
    case sizeof(uint16_t):
      return Sum<uint16_t>(bytes, size);
    case sizeof(uint32_t):
      return Sum<uint32_t>(bytes, size);
    default:
      return Sum<uint64_t>(bytes, size);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulpscope {
namespace {

HWY_EXPORT(SumOf);

// A share of a dense tensor for one thread: large enough to be worth it, and to stay in cache.
constexpr int64_t kShare = 32768;

uint64_t bits_at(const TensorView& view, int64_t offset) {
  switch (info(view.dtype).size) {
    case sizeof(uint8_t):
      return view.as<const uint8_t>()[offset];
    case sizeof(uint16_t):
      return view.as<const uint16_t>()[offset];
    case sizeof(uint32_t):
      return view.as<const uint32_t>()[offset];
    default:
      return view.as<const uint64_t>()[offset];
  }
}

}  // namespace

uint64_t fingerprint_of(const void* elements, int64_t n, size_t element_bytes) {
  return HWY_DYNAMIC_DISPATCH(SumOf)(elements, n, element_bytes);
}

TensorView without_repeats(TensorView view) {
  for (int i = 0; i < view.rank; ++i)
    if (view.strides[i] == 0 && view.shape[i] > 1) view.shape[i] = 1;
  return view;
}

uint64_t fingerprint_of(const TensorView& repeated, const ParallelFor& parallel_for) {
  const TensorView view = without_repeats(repeated);
  const int64_t size = view.size();
  if (!is_dense(view)) return reference_fingerprint(view);
  const size_t bytes = info(view.dtype).size;
  const int64_t shares = (size + kShare - 1) / kShare;
  if (shares < 2) return fingerprint_of(view.data, size, bytes);
  std::atomic<uint64_t> sum = 0;
  parallel_for(shares, [&](int64_t share) {
    const int64_t begin = share * kShare;
    const uint64_t of_share =
        fingerprint_of(view.as<const char>() + begin * static_cast<int64_t>(bytes), std::min(kShare, size - begin), bytes);
    sum.fetch_add(of_share, std::memory_order_relaxed);
  });
  return sum;
}

void sum_inputs(const OpCall& call, const ParallelFor& parallel_for) {
  for (size_t input = 0; input < call.input_fingerprints.size(); ++input) {
    Fingerprint& fingerprint = *call.input_fingerprints[input];
    if (fingerprint.wanted && !fingerprint.known) fingerprint = {true, true, fingerprint_of(call.inputs[input], parallel_for)};
  }
}

void sum_outputs(const OpCall& call, const ParallelFor& parallel_for) {
  for (size_t slot = 0; slot < call.records.size(); ++slot) {
    if (call.records[slot] == nullptr || call.outputs[slot].data == nullptr) continue;
    Fingerprint& fingerprint = call.records[slot]->fingerprint;
    if (fingerprint.wanted && !fingerprint.known) fingerprint = {true, true, fingerprint_of(call.outputs[slot], parallel_for)};
  }
}

uint64_t reference_fingerprint(const TensorView& repeated) {
  const TensorView view = without_repeats(repeated);
  uint64_t sum = 0;
  for (int64_t i = 0; i < view.size(); ++i) sum += bits_at(view, offset_of(view, i));
  return sum;
}

}  // namespace ulpscope
#endif
