#include "ulpscope/emulation/exact_lanes.h"

#include <algorithm>
#include <bit>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/emulation/exact_lanes.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which says which target is being compiled.
#include "hwy/highway.h"
#include "ulpscope/emulation/to_odd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<double, kExactPanel>;
using V = hn::Vec<D>;

// Of what the accumulators hold, the last one first: what the one above it has room for goes there, so that each is at most half a
// unit of the one above. Then the leading ones are added as long as that is exact, and what follows decides the last bit.
template <int kAccumulators>
HWY_INLINE V RoundedSum(V* parts, const double* start) {
  const D d;
  for (int i = kAccumulators - 1; i > 0; --i) {
    const auto cut = hn::Set(d, start[i - 1]);
    const auto high = hn::Sub(hn::Add(parts[i], cut), cut);
    parts[i - 1] = hn::Add(parts[i - 1], high);
    parts[i] = hn::Sub(parts[i], high);
  }
  auto sum = parts[0];
  for (int i = 1; i < kAccumulators; ++i) {
    const auto next = hn::Add(sum, parts[i]);
    parts[i] = LostBySum(sum, parts[i], next);
    sum = next;
  }
  auto lost = hn::Zero(d);
  for (int i = kAccumulators - 1; i > 0; --i) lost = hn::Add(parts[i], lost);
  return ToOdd(d, sum, lost);
}

template <int kAccumulators>
HWY_INLINE void SumColumns(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t terms, const double* start,
                           double* HWY_RESTRICT sums) {
  const D d;
  const hn::Rebind<float, D> d32;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(D())), kVectors = HWY_MIN(4, kExactPanel / kLanes);
  for (int64_t column = 0; column < kExactPanel; column += kVectors * kLanes) {
    V parts[kVectors][kAccumulators];
    for (auto& of_vector : parts)
      for (int i = 0; i < kAccumulators; ++i) of_vector[i] = i + 1 < kAccumulators ? hn::Set(d, start[i]) : hn::Zero(d);
    for (int64_t l = 0; l < terms; ++l) {
      const auto factor = hn::Set(d, static_cast<double>(a[l]));
      for (int v = 0; v < kVectors; ++v) {
        auto term = hn::Mul(factor, hn::PromoteTo(d, hn::LoadU(d32, b + l * kExactPanel + column + v * kLanes)));
        for (int i = 0; i + 1 < kAccumulators; ++i) {
          const auto next = hn::Add(parts[v][i], term);
          term = hn::Sub(term, hn::Sub(next, parts[v][i]));
          parts[v][i] = next;
        }
        parts[v][kAccumulators - 1] = hn::Add(parts[v][kAccumulators - 1], term);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      for (int i = 0; i + 1 < kAccumulators; ++i) parts[v][i] = hn::Sub(parts[v][i], hn::Set(d, start[i]));
      hn::StoreU(RoundedSum<kAccumulators>(parts[v], start), d, sums + column + v * kLanes);
    }
  }
}

void SumExactly(const float* a, const float* b, int64_t terms, int accumulators, const double* start, double* sums) {
  switch (accumulators) {
    case 1:
      return SumColumns<1>(a, b, terms, start, sums);
    case 2:
      return SumColumns<2>(a, b, terms, start, sums);
    case 3:
      return SumColumns<3>(a, b, terms, start, sums);
    default:
      static_assert(kMostAccumulators == 4);
      return SumColumns<4>(a, b, terms, start, sums);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ulpscope {

HWY_EXPORT(SumExactly);

BitRange bit_range(const float* values, int64_t count, int64_t stride) {
  constexpr uint32_t kMagnitude = 0x7FFFFFFF, kFraction = 0x7FFFFF;
  constexpr int kBias = 127, kFractionBits = 23;
  uint32_t largest = 0, smallest = kMagnitude;  // of magnitudes, and of the weights of last bits
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(values[i * stride]) & kMagnitude;
    if (magnitude == 0) continue;
    largest = std::max(largest, magnitude);
    // Without its last bit, the number is smaller by what that weighs.
    const float without = std::bit_cast<float>((magnitude & kFraction) != 0 ? magnitude & (magnitude - 1) : 0);
    smallest = std::min(smallest, std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) - without));
  }
  if (largest == 0) return {};
  // Of a weight, whose only bit is its leading one.
  const auto exponent = [](uint32_t weight) {
    const int field = static_cast<int>(weight >> kFractionBits);
    return field > 0 ? field - kBias : std::countr_zero(weight) + 1 - kBias - kFractionBits;
  };
  const int largest_field = static_cast<int>(std::max(largest >> kFractionBits, 1u));
  return {exponent(smallest), largest_field - kBias + 1};
}

// With fewer than 2^bits terms below 2^end, multiples of 2^(end + bits - 50) add up to less than 2^50 units, so that an accumulator
// stays in its binade, where they are its last place; sums of what the last one takes are exact below 2^53 units.
std::optional<ExactAccumulators> exact_accumulators(const BitRange& terms, int64_t count) {
  const int bits = std::bit_width(static_cast<uint64_t>(count));
  ExactAccumulators accumulators;
  int end = terms.end;
  while (end + bits - terms.lowest > 53) {
    if (accumulators.count == kMostAccumulators) return std::nullopt;
    const int unit = end + bits - 50;
    accumulators.start[static_cast<size_t>(accumulators.count - 1)] = std::ldexp(1.5, 52 + unit);
    ++accumulators.count;
    end = unit - 1;  // of what is left, half a unit or less
  }
  return accumulators;
}

void sum_exactly(const float* a, const float* b, int64_t terms, const ExactAccumulators& accumulators, double* sums) {
  HWY_DYNAMIC_DISPATCH(SumExactly)(a, b, terms, accumulators.count, accumulators.start.data(), sums);
}

}  // namespace ulpscope

#endif
