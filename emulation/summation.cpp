#include "ulpscope/emulation/summation.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "ulpscope/base/error.h"
#include "ulpscope/emulation/arithmetic.h"
#include "ulpscope/emulation/exact_sum.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/emulation/simd_rounding.h"

namespace ulpscope {

namespace {

constexpr size_t kBlock = 1024;  // elements that are widened at a time: they stay in the first cache
constexpr Number kOne{.kind = Number::Kind::finite, .significand = 1};

void check_summation(const Summation& summation) {
  if (summation.accumulator == nullptr) throw usage_error("sum: expected the format of an accumulator, got a null pointer");
  const Rounding& rounding = summation.rounding;
  if (rounding.mode == RoundingMode::stochastic && (rounding.random_bits < 1 || rounding.random_bits > 24))
    throw usage_error("sum in {}: expected 1 to 24 random bits, got {}", summation.accumulator->name, rounding.random_bits);
}

// Rounds partial results, each with random bits of its own.
class Accumulator {
 public:
  explicit Accumulator(const Summation& summation)
      : format_(*summation.accumulator), rounding_(summation.rounding), random_(summation.random) {}

  RoundingMode mode() const { return rounding_.mode; }
  uint64_t encoding(const Number& number) {
    const bool is_stochastic = rounding_.mode == RoundingMode::stochastic;
    return encode(format_, number, rounding_, is_stochastic ? random_bits_of(random_, roundings_++) : 0);
  }
  Number rounded(const Number& number) { return decode(format_, encoding(number)); }
  Number add(const Number& a, const Number& b) { return rounded(ulpscope::add(a, b, mode())); }
  Number subtract(const Number& a, const Number& b) { return rounded(ulpscope::subtract(a, b, mode())); }

 private:
  const FloatFormat& format_;
  const Rounding& rounding_;
  RandomStream random_;
  uint64_t roundings_ = 0;
};

// A term is the product of two numbers: of a sum, of the element and 1.
struct Term {
  Number a, b;
};

class ProductTerms {
 public:
  ProductTerms(const EncodedArray& a, const EncodedArray& b) : a_(a), b_(b) {}
  size_t size() const { return a_.size(); }
  Term operator[](size_t i) const { return {decode(a_.format(), a_[i]), decode(b_.format(), b_[i])}; }

 private:
  const EncodedArray &a_, &b_;
};

class SingleTerms {
 public:
  explicit SingleTerms(const EncodedArray& array) : array_(array) {}
  size_t size() const { return array_.size(); }
  Term operator[](size_t i) const { return {decode(array_.format(), array_[i]), kOne}; }

 private:
  const EncodedArray& array_;
};

// As they enter additions.
template <typename Source>
class EnteringTerms {
 public:
  EnteringTerms(const Source& source, const Summation& summation, Accumulator& accumulator)
      : source_(source), is_rounded_(summation.terms == Terms::rounded), accumulator_(accumulator) {}
  size_t size() const { return source_.size(); }
  Term operator[](size_t i) const {
    const Term term = source_[i];
    return is_rounded_ ? Term{accumulator_.rounded(multiply(term.a, term.b)), kOne} : term;
  }

 private:
  const Source& source_;
  bool is_rounded_;
  Accumulator& accumulator_;
};

Number rounded(const Term& term, Accumulator& accumulator) { return accumulator.rounded(multiply(term.a, term.b)); }

template <typename Source>
Number sequential_sum(const EnteringTerms<Source>& terms, Accumulator& accumulator) {
  Number total = rounded(terms[0], accumulator);
  for (size_t i = 1; i < terms.size(); ++i) {
    const Term term = terms[i];
    total = accumulator.rounded(sum_of_products(total, kOne, term.a, term.b, accumulator.mode()));
  }
  return total;
}

template <typename Source>
Number compensated_sum(const EnteringTerms<Source>& terms, Accumulator& accumulator) {
  Number total = rounded(terms[0], accumulator);
  Number excess = {};  // how much `total` is too large
  for (size_t i = 1; i < terms.size(); ++i) {
    const Term term = terms[i];
    const Number corrected = accumulator.rounded(fused_multiply_add(term.a, term.b, detail::opposite(excess), accumulator.mode()));
    const Number next = accumulator.add(total, corrected);
    excess = accumulator.subtract(accumulator.subtract(next, total), corrected);
    total = next;
  }
  return total;
}

template <typename Source>
Number pairwise_sum(const EnteringTerms<Source>& terms, size_t begin, size_t count, Accumulator& accumulator) {
  if (count == 1) return rounded(terms[begin], accumulator);
  if (count == 2) {
    const Term first = terms[begin], second = terms[begin + 1];
    return accumulator.rounded(sum_of_products(first.a, first.b, second.a, second.b, accumulator.mode()));
  }
  const size_t half = std::bit_floor(count - 1);
  const Number left = pairwise_sum(terms, begin, half, accumulator);
  if (count - half > 1) return accumulator.add(left, pairwise_sum(terms, begin + half, count - half, accumulator));
  const Term last = terms[begin + half];
  return accumulator.rounded(sum_of_products(left, kOne, last.a, last.b, accumulator.mode()));
}

template <typename Source>
uint64_t rounded_sum(const Source& source, const Summation& summation) {
  Accumulator accumulator(summation);
  if (source.size() == 0) return encode(*summation.accumulator, {});
  const EnteringTerms<Source> terms(source, summation, accumulator);
  const auto total = [&] {
    if (summation.order == SumOrder::pairwise) return pairwise_sum(terms, 0, terms.size(), accumulator);
    return summation.order == SumOrder::compensated ? compensated_sum(terms, accumulator) : sequential_sum(terms, accumulator);
  };
  return encode(*summation.accumulator, total());
}

uint64_t rounded_total(const ExactSum& total, const Summation& summation) {
  return Accumulator(summation).encoding(total.total(summation.rounding.mode));
}

}  // namespace

EncodedArray::EncodedArray(const FloatFormat& format, const void* data, size_t size, size_t bytes)
    : format_(&format), data_(static_cast<const std::byte*>(data)), size_(size), bytes_(bytes) {
  if (format.storage_bits() > 8 * static_cast<int>(bytes))
    throw usage_error("array of {}: expected elements of {} bits or more, got {}", format.name, format.storage_bits(), 8 * bytes);
  if (data == nullptr && size > 0) throw usage_error("array of {}: {} elements at a null pointer", format.name, size);
}

uint64_t EncodedArray::operator[](size_t i) const {
  static_assert(std::endian::native == std::endian::little);
  uint64_t encoding = 0;
  std::memcpy(&encoding, data_ + i * bytes_, bytes_);
  return encoding;
}

const float* EncodedArray::values(size_t begin, size_t count, float* buffer) const {
  const std::byte* first = data_ + begin * bytes_;
  if (format_ == &binary32 && bytes_ == sizeof(float)) return reinterpret_cast<const float*>(first);
  if (format_ == &binary16 && bytes_ == sizeof(uint16_t)) {
    f16_to_float(reinterpret_cast<const uint16_t*>(first), buffer, count);
  } else if (format_ == &bfloat16 && bytes_ == sizeof(uint16_t)) {
    bf16_to_float(reinterpret_cast<const uint16_t*>(first), buffer, count);
  } else {
    for (size_t i = 0; i < count; ++i)
      buffer[i] = std::bit_cast<float>(static_cast<uint32_t>(convert(*format_, binary32, (*this)[begin + i])));
  }
  return buffer;
}

uint64_t sum(const EncodedArray& terms, const Summation& summation) {
  check_summation(summation);
  if (summation.order != SumOrder::exact) return rounded_sum(SingleTerms(terms), summation);
  ExactSum total;
  if (&terms.format() == &binary64) {
    for (size_t i = 0; i < terms.size(); ++i) total.add(decode(binary64, terms[i]));
    return rounded_total(total, summation);
  }
  alignas(64) float buffer[kBlock];
  for (size_t begin = 0; begin < terms.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, terms.size() - begin);
    total.add(std::span(terms.values(begin, count, buffer), count));
  }
  return rounded_total(total, summation);
}

uint64_t dot(const EncodedArray& a, const EncodedArray& b, const Summation& summation) {
  check_summation(summation);
  if (a.size() != b.size())
    throw usage_error("dot product of {} and {}: lengths {} and {} differ", a.format().name, b.format().name, a.size(), b.size());
  if (summation.order != SumOrder::exact) return rounded_sum(ProductTerms(a, b), summation);
  ExactSum total;
  if (&a.format() == &binary64 || &b.format() == &binary64) {
    for (size_t i = 0; i < a.size(); ++i) total.add_product(decode(a.format(), a[i]), decode(b.format(), b[i]));
    return rounded_total(total, summation);
  }
  alignas(64) float left[kBlock], right[kBlock];
  for (size_t begin = 0; begin < a.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, a.size() - begin);
    total.add_products(std::span(a.values(begin, count, left), count), std::span(b.values(begin, count, right), count));
  }
  return rounded_total(total, summation);
}

}  // namespace ulpscope
