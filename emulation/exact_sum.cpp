#include "ulpscope/emulation/exact_sum.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/base/error.h"
#include "ulpscope/base/floating_point_mode.h"
#include "ulpscope/emulation/exact_block.h"

namespace ulpscope {

void ExactSum::add_bits(bool negative, detail::uint128 significand, int exponent) {
  if (pending_ == kMostPending) carry();
  ++pending_;
  const int position = exponent - kLowest;
  int64_t* chunk = &chunks_[static_cast<size_t>(position / kChunkBits)];
  const int shift = position % kChunkBits;
  constexpr uint64_t kMask = 0xFFFFFFFF;
  const detail::uint128 low = detail::uint128{static_cast<uint64_t>(significand)} << shift;  // 95 bits
  const detail::uint128 high = (significand >> 64) << shift;                                 // from bit 64 on
  const uint64_t middle = static_cast<uint64_t>(low >> 64), next = static_cast<uint64_t>(high);
  const int64_t sign = negative ? -1 : 1;
  chunk[0] += sign * static_cast<int64_t>(static_cast<uint64_t>(low) & kMask);
  chunk[1] += sign * static_cast<int64_t>(static_cast<uint64_t>(low) >> 32);
  chunk[2] += sign * static_cast<int64_t>(middle + (next & kMask));
  chunk[3] += sign * static_cast<int64_t>(next >> 32);
  chunk[4] += sign * static_cast<int64_t>(high >> 64);
}

void ExactSum::note(const Number& term) {
  switch (term.kind) {
    case Number::Kind::zero:
      (term.negative ? has_negative_zero_ : has_zero_) = true;
      break;
    case Number::Kind::finite:
      has_finite_ = true;
      break;
    case Number::Kind::infinite:
      (term.negative ? has_negative_infinity_ : has_infinity_) = true;
      break;
    case Number::Kind::nan:
      has_nan_ = true;
      break;
  }
}

void ExactSum::add(const Number& term) {
  note(term);
  if (term.kind == Number::Kind::finite) add_bits(term.negative, term.significand, term.exponent);
}

void ExactSum::add_product(const Number& a, const Number& b) {
  if (a.kind != Number::Kind::finite || b.kind != Number::Kind::finite) return note(multiply(a, b));
  has_finite_ = true;
  add_bits(a.negative != b.negative, detail::uint128{a.significand} * b.significand, a.exponent + b.exponent);
}

template <bool kProducts>
void ExactSum::add_blocks(const float* a, const float* b, size_t count) {
  const FloatingPointMode mode;
  alignas(64) double terms[kExactBlock];
  for (size_t begin = 0; begin < count; begin += kExactBlock) {
    const size_t size = std::min(kExactBlock, count - begin);
    const uint64_t largest = make_terms(a + begin, kProducts ? b + begin : nullptr, size, terms);
    if (largest == 0 || largest >= binary64.infinity_encoding()) {
      for (size_t i = 0; i < size; ++i) add(terms[i]);
      continue;
    }
    has_finite_ = true;
    // Products of FP32 numbers are normal in FP64.
    int exponent = static_cast<int>(largest >> binary64.fraction_bits) - binary64.bias;
    for (bool left = true; left; exponent = lower_exponent(lower_exponent(exponent))) {
      ExtractedSums sums;
      left = extract(terms, size, exponent, sums);
      for (const double sum : {sums.upper, sums.lower})
        if (sum != 0) add(sum);
    }
  }
}

void ExactSum::add(std::span<const float> terms) {
  if (terms.data() == nullptr && !terms.empty()) throw usage_error("exact sum: {} terms at a null pointer", terms.size());
  add_blocks<false>(terms.data(), nullptr, terms.size());
}

void ExactSum::add_products(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) throw usage_error("exact dot product: lengths {} and {} differ", a.size(), b.size());
  if ((a.data() == nullptr || b.data() == nullptr) && !a.empty())
    throw usage_error("exact dot product: {} factors at a null pointer", a.size());
  add_blocks<true>(a.data(), b.data(), a.size());
}

void ExactSum::carry() {
  for (size_t i = 0; i + 1 < chunks_.size(); ++i) {
    chunks_[i + 1] += chunks_[i] >> kChunkBits;
    chunks_[i] &= (int64_t{1} << kChunkBits) - 1;
  }
  pending_ = 1;  // chunks are as large as one addition can make them
}

ExactSum& ExactSum::operator+=(const ExactSum& other) {
  ExactSum term = other;
  term.carry();
  carry();
  for (size_t i = 0; i < chunks_.size(); ++i) chunks_[i] += term.chunks_[i];
  pending_ = 2;
  has_nan_ |= other.has_nan_;
  has_infinity_ |= other.has_infinity_;
  has_negative_infinity_ |= other.has_negative_infinity_;
  has_zero_ |= other.has_zero_;
  has_negative_zero_ |= other.has_negative_zero_;
  has_finite_ |= other.has_finite_;
  return *this;
}

Number ExactSum::total(RoundingMode mode) const {
  if (has_nan_ || (has_infinity_ && has_negative_infinity_)) return detail::invalid();
  if (has_infinity_ || has_negative_infinity_) return detail::infinity(has_negative_infinity_);
  ExactSum magnitude = *this;
  magnitude.carry();
  const bool negative = magnitude.chunks_.back() < 0;
  if (negative) {
    for (int64_t& chunk : magnitude.chunks_) chunk = -chunk;
    magnitude.carry();
  }
  const auto& chunks = magnitude.chunks_;
  size_t top = chunks.size();
  while (top > 0 && chunks[top - 1] == 0) --top;
  if (top == 0) {
    const bool has_one_sign = !has_finite_ && !(has_zero_ && has_negative_zero_);
    return has_one_sign ? detail::zero(has_negative_zero_) : detail::cancelled(mode);
  }
  // Three chunks have 64 bits or more below the leading one.
  const size_t lowest = top < 3 ? 0 : top - 3;
  detail::uint128 significand = 0;
  for (size_t i = top; i-- > lowest;) significand = significand << kChunkBits | static_cast<uint64_t>(chunks[i]);
  const bool sticky =
      std::any_of(chunks.begin(), chunks.begin() + static_cast<ptrdiff_t>(lowest), [](int64_t c) { return c != 0; });
  return detail::leading_bits(negative, significand, kLowest + static_cast<int>(lowest) * kChunkBits, sticky);
}

}  // namespace ulpscope
