#include "ulpscope/kernels/bit_hash.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/kernels/bit_hash.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which says which target is being compiled.
#include "hwy/highway.h"
#include "ulpscope/kernels/sum_lanes-inl.h"

#ifndef ULPSCOPE_KERNELS_BIT_HASH_COEFFICIENTS
#define ULPSCOPE_KERNELS_BIT_HASH_COEFFICIENTS
namespace ulpscope {
namespace {
// The lower halves of the coefficients, or the upper ones; one more than there are, which a load from the second on touches.
using Halves = std::array<uint32_t, kBitHashWords + 1>;
constexpr Halves halves_of_coefficients(int shift) {
  Halves made{};
  for (int64_t word = 0; word < kBitHashWords; ++word)
    made[static_cast<size_t>(word)] = static_cast<uint32_t>(bit_hash_coefficient(word) >> shift);
  return made;
}
alignas(64) constexpr Halves kLower = halves_of_coefficients(0), kUpper = halves_of_coefficients(32);
}  // namespace
}  // namespace ulpscope
#endif

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using U64 = hn::ScalableTag<uint64_t>;
using U32 = hn::RepartitionToNarrow<U64>;

// The weighted sum of `size` bytes, which are at most a block.
uint64_t SumOfBlock(const uint8_t* bytes, int64_t size) {
  const U64 d;
  const U32 d32;
  constexpr auto kWords = static_cast<int64_t>(hn::MaxLanes(U32()));
  const int64_t words = size / 4;
  // Each is the sum of one half of the coefficients times the words at even or odd places.
  hn::Vec<U64> lower_even = hn::Zero(d), lower_odd = hn::Zero(d), upper_even = hn::Zero(d), upper_odd = hn::Zero(d);
  int64_t word = 0;
  for (; word + kWords <= words; word += kWords) {
    const auto values = hn::BitCast(d32, hn::LoadU(hn::Repartition<uint8_t, U32>(), bytes + 4 * word));
    // Odd words at even places, and beside them their coefficients, which are loaded from one on.
    const auto odd = hn::BitCast(d32, hn::ShiftRight<32>(hn::BitCast(d, values)));
    lower_even = hn::Add(lower_even, hn::MulEven(values, hn::Load(d32, kLower.data() + word)));
    lower_odd = hn::Add(lower_odd, hn::MulEven(odd, hn::LoadU(d32, kLower.data() + word + 1)));
    upper_even = hn::Add(upper_even, hn::MulEven(values, hn::Load(d32, kUpper.data() + word)));
    upper_odd = hn::Add(upper_odd, hn::MulEven(odd, hn::LoadU(d32, kUpper.data() + word + 1)));
  }
  uint64_t sum = SumLanes(hn::Add(hn::Add(lower_even, lower_odd), hn::ShiftLeft<32>(hn::Add(upper_even, upper_odd))));
  for (; 4 * word < size; ++word) {
    uint32_t value = 0;
    std::memcpy(&value, bytes + 4 * word, static_cast<size_t>(std::min<int64_t>(4, size - 4 * word)));
    sum += uint64_t{value} * bit_hash_coefficient(word);
  }
  return sum;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulpscope {
namespace {

HWY_EXPORT(SumOfBlock);

// Blocks for one thread: enough to be worth it, and to stay in cache.
constexpr int64_t kBlocksOfShare = 32;

// The n elements of `bytes` bytes from `begin` on, in logical order. `elements`: that order. Where the last dimension but one lies
// together in memory, as channels do that come last there, rows of it are taken several at a time, so that what is loaded is used.
template <size_t bytes>
void gather(const uint8_t* from, const ElementOrder& elements, int64_t begin, int64_t n, uint8_t* to) {
  constexpr int64_t kTogether = 64 / bytes, kSize = bytes;
  const int last = elements.rank - 1;
  const int64_t row = last < 0 ? n : elements.shape[last], stride = last < 0 ? 0 : elements.strides[last];
  const bool lie_together = last > 0 && elements.strides[last - 1] == 1;
  while (n > 0) {
    const uint8_t* const first = from + elements.offset_of(begin) * kSize;
    const int64_t in_row = begin % row;
    int64_t rows = 1, count = std::min(n, row - in_row);
    if (lie_together && in_row == 0 && n >= row) {
      rows = std::min({kTogether, n / row, elements.shape[last - 1] - begin / row % elements.shape[last - 1]});
      count = row;
    }
    for (int64_t i = 0; i < count; ++i)
      for (int64_t k = 0; k < rows; ++k) std::memcpy(to + (k * row + i) * kSize, first + (i * stride + k) * kSize, bytes);
    to += rows * count * kSize;
    begin += rows * count;
    n -= rows * count;
  }
}

void gather(const TensorView& view, const ElementOrder& elements, int64_t begin, int64_t n, uint8_t* to) {
  const auto* const from = view.as<const uint8_t>();
  switch (info(view.dtype).size) {
    case sizeof(uint8_t):
      return gather<sizeof(uint8_t)>(from, elements, begin, n, to);
    case sizeof(uint16_t):
      return gather<sizeof(uint16_t)>(from, elements, begin, n, to);
    case sizeof(uint32_t):
      return gather<sizeof(uint32_t)>(from, elements, begin, n, to);
    default:
      return gather<sizeof(uint64_t)>(from, elements, begin, n, to);
  }
}

}  // namespace

uint64_t bit_hash_of(const TensorView& view, const ParallelFor& parallel_for) {
  const auto element_bytes = static_cast<int64_t>(info(view.dtype).size);
  const int64_t bytes = view.size() * element_bytes, blocks = (bytes + kBitHashBytes - 1) / kBitHashBytes;
  const bool is_direct = is_contiguous(view);
  const ElementOrder elements = is_direct ? ElementOrder() : elements_in_order(view, contiguous(view));
  std::atomic<uint64_t> total = 0;
  const auto add_share = [&](int64_t share) {
    const int64_t begin = share * kBlocksOfShare * kBitHashBytes, size = std::min(kBlocksOfShare * kBitHashBytes, bytes - begin);
    std::unique_ptr<uint8_t[]> gathered;
    if (!is_direct) {
      gathered = std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(size));
      gather(view, elements, begin / element_bytes, size / element_bytes, gathered.get());
    }
    const uint8_t* const from = is_direct ? view.as<const uint8_t>() + begin : gathered.get();
    uint64_t of_share = 0;
    for (int64_t at = 0; at < size; at += kBitHashBytes)
      of_share += bit_hash_of_block((begin + at) / kBitHashBytes,
                                    HWY_DYNAMIC_DISPATCH(SumOfBlock)(from + at, std::min(kBitHashBytes, size - at)));
    total.fetch_add(of_share, std::memory_order_relaxed);
  };
  const int64_t shares = (blocks + kBlocksOfShare - 1) / kBlocksOfShare;
  if (shares > 1) {
    parallel_for(shares, add_share);
  } else if (shares == 1) {
    add_share(0);
  }
  return bit_hash_of_total(total, bytes);
}

uint64_t reference_bit_hash(const TensorView& view) {
  const auto element_bytes = static_cast<int64_t>(info(view.dtype).size);
  const int64_t bytes = view.size() * element_bytes;
  uint64_t total = 0, sum = 0;
  for (int64_t byte = 0; byte < bytes; ++byte) {
    const int64_t offset = offset_of(view, byte / element_bytes) * element_bytes + byte % element_bytes;
    const int64_t in_block = byte % kBitHashBytes;
    sum += (uint64_t{view.as<const uint8_t>()[offset]} << 8 * (in_block % 4)) * bit_hash_coefficient(in_block / 4);
    if (in_block + 1 == kBitHashBytes || byte + 1 == bytes) {
      total += bit_hash_of_block(byte / kBitHashBytes, sum);
      sum = 0;
    }
  }
  return bit_hash_of_total(total, bytes);
}

void hash_outputs(const OpCall& call, const ParallelFor& parallel_for) {
  for (size_t slot = 0; slot < call.records.size(); ++slot) {
    if (call.records[slot] == nullptr || call.outputs[slot].data == nullptr) continue;
    BitHash& bits = call.records[slot]->bits;
    if (bits.wanted && !bits.known) bits = {true, true, bit_hash_of(call.outputs[slot], parallel_for)};
  }
}

}  // namespace ulpscope
#endif
