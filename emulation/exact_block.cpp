#include "ulpscope/emulation/exact_block.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ulpscope/emulation/exact_block.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ulpscope {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <bool kProducts>
uint64_t MakeTerms(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, size_t count, double* HWY_RESTRICT terms) {
  const hn::ScalableTag<double> d;
  const hn::RebindToSigned<decltype(d)> i64;
  const hn::Rebind<float, decltype(d)> d32;
  const size_t lanes = hn::Lanes(d);
  const auto value = [&](size_t i) HWY_ATTR {
    const auto x = hn::PromoteTo(d, hn::LoadU(d32, a + i));
    if constexpr (kProducts) {
      return hn::Mul(x, hn::PromoteTo(d, hn::LoadU(d32, b + i)));
    } else {
      return x;
    }
  };
  auto largest = hn::Zero(i64);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto term = value(i);
    hn::StoreU(term, d, terms + i);
    const auto magnitude = hn::BitCast(i64, hn::Abs(term));
    largest = hn::IfThenElse(hn::Gt(magnitude, largest), magnitude, largest);
  }
  int64_t largest_bits = hn::GetLane(hn::MaxOfLanes(i64, largest));
  for (; i < count; ++i) {
    const double term = kProducts ? static_cast<double>(a[i]) * static_cast<double>(b[i]) : static_cast<double>(a[i]);
    terms[i] = term;
    int64_t magnitude;
    const double absolute = std::fabs(term);
    hwy::CopySameSize(&absolute, &magnitude);
    largest_bits = magnitude > largest_bits ? magnitude : largest_bits;
  }
  for (; i % kExactPadding != 0; ++i) terms[i] = 0;
  return static_cast<uint64_t>(largest_bits);
}

uint64_t MakeProducts(const float* a, const float* b, size_t count, double* terms) { return MakeTerms<true>(a, b, count, terms); }
uint64_t MakeValues(const float* a, size_t count, double* terms) { return MakeTerms<false>(a, nullptr, count, terms); }

// The sum of a number and 1.5 * 2^(52 + u) has a last place of 2^u: taking the large one away again leaves the number rounded to
// multiples of 2^u, at most 2^(u - 1) from it.
bool Extract(double* HWY_RESTRICT terms, size_t count, double upper_cut, double lower_cut, double* HWY_RESTRICT sums) {
  const hn::ScalableTag<double> d;
  const auto upper = hn::Set(d, upper_cut), lower = hn::Set(d, lower_cut);
  auto upper_sum = hn::Zero(d), lower_sum = upper_sum, left = upper_sum;
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto term = hn::LoadU(d, terms + i);
    const auto first = hn::Sub(hn::Add(term, upper), upper);
    const auto rest = hn::Sub(term, first);
    const auto second = hn::Sub(hn::Add(rest, lower), lower);
    const auto last = hn::Sub(rest, second);
    upper_sum = hn::Add(upper_sum, first);
    lower_sum = hn::Add(lower_sum, second);
    hn::StoreU(last, d, terms + i);
    left = hn::Or(left, hn::Abs(last));
  }
  sums[0] = hn::GetLane(hn::SumOfLanes(d, upper_sum));
  sums[1] = hn::GetLane(hn::SumOfLanes(d, lower_sum));
  return !hn::AllTrue(d, hn::Eq(left, hn::Zero(d)));
}

}  // namespace HWY_NAMESPACE
}  // namespace ulpscope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ulpscope {

HWY_EXPORT(MakeProducts);
HWY_EXPORT(MakeValues);
HWY_EXPORT(Extract);

uint64_t make_terms(const float* a, const float* b, size_t count, double* terms) {
  return b != nullptr ? HWY_DYNAMIC_DISPATCH(MakeProducts)(a, b, count, terms) : HWY_DYNAMIC_DISPATCH(MakeValues)(a, count, terms);
}

bool extract(double* terms, size_t count, int exponent, ExtractedSums& sums) {
  const int upper_unit = exponent - kExtractedBits, lower_unit = lower_exponent(exponent) - kExtractedBits;
  double both[2];
  const size_t padded = (count + kExactPadding - 1) / kExactPadding * kExactPadding;
  const bool left =
      HWY_DYNAMIC_DISPATCH(Extract)(terms, padded, std::ldexp(1.5, 52 + upper_unit), std::ldexp(1.5, 52 + lower_unit), both);
  sums = {both[0], both[1]};
  return left;
}

}  // namespace ulpscope

#endif
