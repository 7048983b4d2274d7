#include "ulpscope/studies/tensor_core_vectors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ulpscope/base/hash.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {
namespace {

// Of a made product, as many columns as an instruction has; of a random one.
constexpr int64_t kMadeLines = 8, kRandomLines = 16;

// What encodings of factors are in: of TF32 FP32.
const FloatFormat& stored_format(DType dtype) { return *info(dtype).format; }

struct Term {
  int64_t place;
  double a, b;
};
// The place of what the sum begins with: a times b.
constexpr int64_t kAccumulator = -1;
struct MadeSum {
  std::string_view shows;
  std::vector<Term> terms;
  double begins_with = 0;
};

int64_t length_of(const std::vector<Term>& terms) {
  int64_t length = 1;
  for (const Term& term : terms) length = std::max(length, term.place + 1);
  return length;
}
int64_t rounded_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

Term negative(Term term) { return {term.place, -term.a, term.b}; }
Term at(int64_t place, Term term) { return {place, term.a, term.b}; }

bool holds(const FloatFormat& format, double value) {
  return std::isnan(value) || value_of(format, static_cast<uint32_t>(round_to_encoding(format, value))) == value;
}

class MadeSums {
 public:
  explicit MadeSums(const MatrixInstruction& instruction)
      : a_(factor_format(instruction.a)),
        b_(factor_format(instruction.b)),
        output_(*info(instruction.sums).format),
        stored_a_(stored_format(instruction.a)),
        stored_b_(stored_format(instruction.b)),
        top_(a_.largest_exponent() + b_.largest_exponent() - 1),
        is_fp8_(is_quantized(instruction.a)),
        step_(terms_of_step(instruction)),
        next_block_(is_fp8_ ? 32 : 16) {
    for (const int scale : scales()) {
      add_widths(scale);
      add_alignments(scale);
    }
    add_subnormal_factors();
    add_zero_products();
    add_blocks();
    add_roundings();
    add_small_results();
    add_overflows();
    add_accumulators();
    if (&stored_a_ != &a_) add_low_bits();
    add_zeros();
    add_specials();
  }

  std::vector<MadeSum> sums;

 private:
  // Exponents of the largest terms of sums: as large as leaves room below for all that is cut off, and for results above what they
  // can hold least.
  std::vector<int> scales() const {
    if (is_fp8_) return {8, &output_ == &binary16 ? 13 : top_};
    if (&output_ == &binary16) return {0, 10};
    if (a_.exponent_bits == 8) return {0, -90, 90};
    return {0, 24};
  }
  int fewest_bits() const { return is_fp8_ ? 8 : 20; }
  static constexpr int kMostBits = 30;

  // significand * 2^exponent, times another factor with the significand `other`: the exponents as alike as both formats allow.
  Term power(int64_t place, int exponent, double significand = 1, double other = 1) const {
    const int least = std::max(a_.smallest_normal_exponent(), exponent - b_.largest_exponent());
    const int most = std::min(a_.largest_exponent(), exponent - b_.smallest_normal_exponent());
    const int of_a = std::clamp(exponent / 2, std::min(least, most), most);
    return {place, std::ldexp(significand, of_a), std::ldexp(other, exponent - of_a)};
  }
  // The same of factors that may be subnormal.
  Term tiny(int64_t place, int exponent) const {
    const int of_a = std::max(exponent / 2, a_.smallest_exponent());
    return {place, std::ldexp(1.0, of_a), std::ldexp(1.0, exponent - of_a)};
  }
  // Near the largest numbers below 2.
  double almost_two_of(const FloatFormat& format) const {
    return 2 - std::ldexp(1.0, -std::min(format.fraction_bits, is_fp8_ ? e5m2.fraction_bits : 6));
  }

  // What the types do not hold is left out: it would show something else.
  void add(std::string_view shows, std::vector<Term> terms) {
    MadeSum sum{shows, {}};
    for (const Term& term : terms) {
      if (term.place == kAccumulator) {
        sum.begins_with = term.a * term.b;
        if (!holds(output_, sum.begins_with)) return;
        continue;
      }
      if (!holds(stored_a_, term.a) || !holds(stored_b_, term.b)) return;
      sum.terms.push_back(term);
    }
    sums.push_back(std::move(sum));
  }
  void add_both_signs(std::string_view shows, const std::vector<Term>& terms) {
    add(shows, terms);
    std::vector<Term> opposite;
    for (const Term& term : terms) opposite.push_back(negative(term));
    add(shows, std::move(opposite));
  }
  // Also as the last terms of an instruction: behind others the zeros that fill it up are a block, which cuts off the sum again.
  void add_as_last(std::string_view shows, std::vector<Term> terms) {
    add_both_signs(shows, terms);
    const int64_t length = length_of(terms), shift = rounded_up(length, step_) - length;
    if (shift == 0) return;
    for (Term& term : terms)
      if (term.place != kAccumulator) term.place += shift;
    add_both_signs(shows, terms);
  }
  // `small` beside a `large` that another term takes away again: before it, behind it, both behind an accumulator that is large,
  // and in places of one block also where an instruction is made of two.
  void add_beside(std::string_view shows, const Term& large, const Term& small) {
    add_both_signs(shows, {at(0, large), at(1, small), at(2, negative(large))});
    add_both_signs(shows, {at(0, small), at(1, negative(large)), at(3, large)});
    add_both_signs(shows, {at(0, large), at(next_block_, small), at(next_block_ + 1, negative(large))});
    add_both_signs(shows, {at(kAccumulator, large), at(0, small), at(1, negative(large))});
    add_both_signs(shows, {at(0, large), at(1, negative(large)), at(4, small)});
  }

  void add_widths(int scale) {
    for (int bits = fewest_bits(); bits <= kMostBits; ++bits) {
      const Term large = power(0, scale), small = power(0, scale - bits);
      add_beside("the bits that terms keep", large, small);
      for (const double significand : {1.5, 1.75, -1.5, -1.25})
        add_beside("terms are cut off towards zero", large, power(0, scale - bits, significand));
      // What is cut off of several terms adds up to nothing.
      add_both_signs("terms are cut off towards zero",
                     {at(0, large), power(1, scale - bits, 1.5), power(2, scale - bits, 1.5), at(3, negative(large))});
    }
  }

  void add_alignments(int scale) {
    for (int bits = fewest_bits(); bits <= kMostBits; ++bits) {
      // Significands of products lie in [1, 4), and above that the exponent of the largest term is no other.
      add_beside("the exponent of a product", power(0, scale, 1.5, 1.5), power(0, scale - bits));
      add_beside("the exponent of a product", power(0, scale, almost_two_of(a_), almost_two_of(b_)), power(0, scale - bits));
      const Term large = power(0, scale);
      add_both_signs("the exponent of a product", {at(0, large), at(1, large), power(2, scale + 1, -1), power(3, scale - bits)});
    }
  }

  // They have the least normal exponent, whatever their magnitude.
  void add_subnormal_factors() {
    for (const bool is_a : {true, false}) {
      const FloatFormat &format = is_a ? a_ : b_, &others = is_a ? b_ : a_;
      const auto term = [&](double factor, double other) { return is_a ? Term{0, factor, other} : Term{0, other, factor}; };
      const int least = format.smallest_normal_exponent(), fraction = format.fraction_bits;
      // Of FP8 as far up as there is room for small terms below.
      const int up = is_fp8_ ? others.largest_exponent() : std::min(-least, others.largest_exponent());
      for (const double significand : {1.0, std::ldexp(1.0, fraction - 1), std::ldexp(1.0, fraction) - 1}) {
        const double subnormal = std::ldexp(significand, least - fraction), one = std::ldexp(1.0, up);
        for (int bits = fewest_bits(); bits <= kMostBits; ++bits)
          add_beside("the exponent of subnormal factors", term(subnormal, one), power(0, least + up - bits));
        // More than half of FP16's smallest number is cut off, and less than all of it.
        if (&output_ == &binary16 && !is_fp8_) {
          const int largest = others.largest_exponent();
          for (int bits = fewest_bits(); bits <= kMostBits; ++bits)
            add_beside("the exponent of subnormal factors", term(subnormal, std::ldexp(1.0, largest)),
                       power(0, least + largest - bits, 1.5));
        }
        for (const double other :
             {1.0, 1.5, std::ldexp(1.0, others.smallest_normal_exponent()), one, subnormal, others.largest_finite()}) {
          if (subnormal * other < std::ldexp(1.0, output_.smallest_exponent())) continue;  // the result would be zero
          add_both_signs("subnormal factors are numbers", {term(subnormal, other)});
        }
      }
    }
  }

  void add_zero_products() {
    const double of_a = std::ldexp(1.0, a_.largest_exponent()), of_b = std::ldexp(1.0, b_.largest_exponent());
    // One and a half of what the sums hold least is rounded to two of them, and is one where its last bit is cut off.
    const int least =
        std::max({-kFarBelow, a_.smallest_normal_exponent() + b_.smallest_normal_exponent(), output_.smallest_exponent()});
    const Term small = power(1, least, 1.5);
    for (const double zero : {0.0, -0.0}) {
      add_both_signs("zeros have no exponent", {{0, of_a, zero}, small});
      add_both_signs("zeros have no exponent", {{0, zero, of_b}, small});
      add_both_signs("zeros have no exponent", {{kAccumulator, 1, zero}, small});
    }
  }

  // A small term is there in the end iff no block has it beside a large one, or in its accumulator.
  void add_blocks() {
    const int scale = is_fp8_ ? top_ + 1 : &output_ == &binary16 ? 10 : 0;
    const Term large = power(0, scale), small = power(0, scale - kFarBelow);
    for (int64_t taken = 1; taken <= 2 * next_block_; ++taken) {
      for (int64_t place = 1; place <= 2 * next_block_ + 1; ++place) {
        const bool is_near = taken <= next_block_ && place <= next_block_ + 1;
        if (place == taken || (!is_near && place != taken + 1)) continue;
        add("which terms are a block", {at(0, large), at(taken, negative(large)), at(place, small)});
      }
    }
    for (int64_t place = 0; place <= next_block_; ++place)
      add("which terms are a block", {at(kAccumulator, large), at(0, negative(large)), at(place + 1, small)});
    for (int64_t step = 2; step <= next_block_; step *= 2) {
      std::vector<int64_t> places{0, step, 2 * step};
      do {
        add("the order of blocks", {at(places[0], large), at(places[1], negative(large)), at(places[2], small)});
      } while (std::next_permutation(places.begin(), places.end()));
    }
  }

  // The place behind the last one of a result, and the next.
  void add_roundings() {
    add_roundings_to(output_.fraction_bits);
    if (is_fp8_) add_roundings_to(e8m13.fraction_bits);
  }
  void add_roundings_to(int fraction_bits) {
    constexpr std::string_view kShows = "how results are rounded";
    const int scale = &output_ == &binary16 ? 4 : is_fp8_ ? top_ - 1 : 0;
    const int half = -(fraction_bits + 1);
    const Term one = power(0, scale);
    const auto below = [&](int64_t place, int exponent, double significand = 1) {
      return power(place, scale + exponent, significand);
    };
    for (const int place : {half, half - 1}) {
      add_as_last(kShows, {one, below(1, place)});
      add_as_last(kShows, {one, below(1, place), below(2, place, -0.5)});
      add_as_last(kShows, {one, below(1, place), below(2, place - 1)});
      add_as_last(kShows, {one, below(1, half + 1), below(2, place)});
      add_as_last(kShows, {below(0, 1), below(1, place, -1)});
      add_as_last(kShows, {one, below(next_block_, place), below(2 * next_block_, place)});
      add_as_last(kShows, {one, below(next_block_, place), below(next_block_ + 1, place)});
      add_as_last(kShows, {at(kAccumulator, one), below(0, place)});
      add_as_last(kShows, {at(kAccumulator, one), below(0, half + 1), below(1, place)});
    }
    // Sums beyond the largest exponent, of which a result has fewer bits than terms keep.
    for (int count = 1; count <= 3; ++count) {
      for (int bits = half; bits <= half + 4; ++bits) {
        std::vector<Term> terms;
        for (int i = 0; i < count; ++i) terms.push_back(power(i, scale, almost_two_of(a_), almost_two_of(b_)));
        for (const double significand : {1.0, 1.5}) {
          std::vector<Term> with = terms;
          with.push_back(below(count, bits, significand));
          add_as_last(kShows, with);
        }
      }
    }
  }

  void add_small_results() {
    constexpr std::string_view kShows = "subnormal results";
    const int least = output_.smallest_exponent(), normal = output_.smallest_normal_exponent();
    for (const int exponent : {normal, normal - 1, (normal + least) / 2, least}) add_both_signs(kShows, {power(0, exponent)});
    add_both_signs(kShows, {power(0, normal), power(1, least, -1)});
    add_both_signs(kShows, {power(0, least), power(1, least, 0.5)});
    add_both_signs(kShows, {power(0, least - 1), power(1, least - 1)});
    for (const int below : {1, 2, 3, 9, 40}) {
      add("positive sums that become zero", {power(0, least - below)});
      add("positive sums that become zero", {power(0, least - below), power(next_block_, least - below)});
      add("negative sums that become zero", {power(0, least - below, -1)});
      add("negative sums that become zero", {power(0, least - below, -1), power(next_block_, least - below, -1)});
    }
    // Whether a last unit of what terms keep is there decides the result: where results are cut off a least one less a unit, and
    // the unit; where they are rounded half of one, and the unit.
    constexpr std::string_view kLeast = "the least exponent that terms are cut off by";
    const int64_t most = int64_t{1} << (std::min(a_.fraction_bits, b_.fraction_bits) + 1);
    for (int bits = 1; bits <= 24; ++bits) {
      add_both_signs(kLeast, {power(0, least - 1), tiny(1, least - 1 - bits)});
      if (bits > 16) continue;
      const int64_t units = (int64_t{1} << bits) - 1;
      for (int64_t factor = 1; factor < most; ++factor) {
        if (units % factor != 0 || units / factor >= most) continue;
        add(kLeast,
            {power(0, least - bits, static_cast<double>(factor), static_cast<double>(units / factor)), power(1, least - bits)});
        break;
      }
    }
  }

  void add_overflows() {
    constexpr std::string_view kShows = "what is too large";
    const int beyond = output_.largest_exponent() + 1;
    const Term large = power(0, beyond), half = power(0, beyond - 1);
    add_both_signs(kShows, {large});
    add_both_signs(kShows, {half, at(1, half)});
    add_both_signs(kShows, {large, at(1, negative(large))});
    add_both_signs(kShows, {large, at(next_block_, negative(large))});
    add_both_signs(kShows, {half, at(1, half), at(2, negative(half))});
    add_both_signs(kShows, {half, at(next_block_, half), at(2 * next_block_, negative(half))});
    for (int bits = output_.fraction_bits + 1; bits <= output_.fraction_bits + 4; ++bits)
      add_both_signs(kShows, {large, power(1, beyond - bits, -1)});
  }

  // Numbers that nothing is added to, and such beside a term of their magnitude.
  void add_accumulators() {
    constexpr std::string_view kShows = "what the sum begins with";
    const double last = std::ldexp(1.0, -output_.fraction_bits);
    const int least = output_.smallest_exponent(), normal = output_.smallest_normal_exponent();
    for (const double begins_with :
         {1 + last, 2 - last, 1 + std::ldexp(1.0, -e8m13.fraction_bits), output_.largest_finite(), std::ldexp(1.0, normal),
          std::ldexp(1.0, normal) - std::ldexp(1.0, least), std::ldexp(1.0, (normal + least) / 2), std::ldexp(1.0, least)}) {
      add_both_signs(kShows, {{kAccumulator, begins_with, 1}});
      add_both_signs(kShows, {{kAccumulator, begins_with, 1}, {0, -0.0, 1}});
    }
    for (const double significand : {1 + last, 1.5, 2 - last}) {
      add_both_signs(kShows, {{kAccumulator, significand, 1}, power(0, 0)});
      add_both_signs(kShows, {{kAccumulator, significand, 1}, power(0, 0, -1)});
      add_both_signs(kShows, {{kAccumulator, significand, 1}, power(0, 4)});
    }
  }

  void add_low_bits() {
    constexpr std::string_view kShows = "the low bits of FP32 factors";
    const int last = a_.fraction_bits;
    for (const double factor : {1 + std::ldexp(1.0, -last - 1), 1 + std::ldexp(1.5, -last), 2 - std::ldexp(1.0, -23),
                                std::ldexp(1.0, binary32.smallest_exponent()), std::ldexp(1.0, a_.smallest_exponent()),
                                std::ldexp(0.5, a_.smallest_exponent()), std::ldexp(1.5, a_.smallest_exponent())}) {
      add_both_signs(kShows, {{0, factor, 1}});
      add_both_signs(kShows, {{0, 1, factor}});
      add_both_signs(kShows, {{0, factor, 0x1p30}});
    }
  }

  void add_zeros() {
    constexpr std::string_view kShows = "signs of zeros";
    for (const int count : {1, 4, 8, 16, 32}) {
      std::vector<Term> terms;
      for (int i = 0; i < count; ++i) terms.push_back({i, -0.0, 1});
      add(kShows, terms);
      terms.push_back({kAccumulator, -0.0, 1});
      add(kShows, terms);
      terms.pop_back();
      for (Term& term : terms) std::swap(term.a, term.b);
      add(kShows, terms);
      for (Term& term : terms) term = {term.place, -0.0, -1};
      add(kShows, terms);
    }
    add_both_signs(kShows, {power(0, 0), power(1, 0, -1)});
    add_both_signs(kShows, {power(0, 0), power(next_block_, 0, -1)});
    add_both_signs(kShows, {{kAccumulator, 1, 1}, power(0, 0, -1)});
    add_both_signs(kShows, {{kAccumulator, 0.0, 1}});
  }

  void add_specials() {
    constexpr std::string_view kShows = "infinities and NaN";
    constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
    for (const double special : {kInf, -kInf, kNan}) {
      for (const double other : {1.0, -1.0, 0.0, -0.0, kInf, kNan}) {
        add(kShows, {{0, special, other}});
        add(kShows, {{0, other, special}});
      }
      for (const double second : {1.0, kInf, -kInf, kNan}) {
        add(kShows, {{0, special, 1}, {1, second, 1}});
        add(kShows, {{0, special, 1}, {next_block_, second, 1}});
        add(kShows, {{0, second, 1}, {next_block_, special, 1}});
        add(kShows, {{kAccumulator, special, 1}, {0, second, 1}});
        add(kShows, {{kAccumulator, second, 1}, {0, special, 1}});
      }
    }
  }

  static constexpr int kFarBelow = 28;  // what lies so far below the largest term is lost in its block, in every model

  const FloatFormat &a_, &b_, &output_, &stored_a_, &stored_b_;
  int top_;  // an exponent of products near the largest ones
  bool is_fp8_;
  int64_t step_;        // the terms of an instruction
  int64_t next_block_;  // a place that is in another block than the first, in every model
};

// Numbers of one stream, one after the other.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t stream) : random_(seed, stream) {}
  uint32_t bits() { return random_.bits(next_++); }
  int64_t below(int64_t bound) { return random_.below(next_++, static_cast<uint32_t>(bound)); }
  int64_t between(int64_t first, int64_t last) { return first + below(last - first + 1); }
  bool one_of(uint32_t count) { return below(count) == 0; }

 private:
  Philox random_;
  uint64_t next_ = 0;
};

// The encoding of a number with at most that exponent, and at least that less `spread`, or zero.
uint32_t random_number(Draws& draws, const FloatFormat& format, int exponent, int64_t spread, bool is_signed) {
  if (draws.one_of(16)) return draws.one_of(2) ? static_cast<uint32_t>(format.sign_bit()) : 0;
  const int64_t field = std::max<int64_t>(exponent + format.bias - draws.between(0, spread), 0);
  uint32_t fraction = draws.bits() & ((1u << format.fraction_bits) - 1);
  if (draws.one_of(4)) fraction &= ~0u << draws.between(1, format.fraction_bits);
  const uint32_t sign = is_signed && draws.one_of(2) ? static_cast<uint32_t>(format.sign_bit()) : 0;
  return sign | static_cast<uint32_t>(field << format.fraction_bits) | fraction;
}
// The largest finite number instead of what is beyond.
uint32_t finite(const FloatFormat& format, uint32_t encoding) {
  const auto sign = static_cast<uint32_t>(format.sign_bit());
  const auto largest = static_cast<uint32_t>(round_to_encoding(format, format.largest_finite()));
  return (encoding & sign) | std::min(encoding & ~sign, largest);
}

}  // namespace

std::span<const uint32_t> ProbedProduct::a_of(int64_t row) const {
  return std::span(a).subspan(static_cast<size_t>(row * terms), static_cast<size_t>(terms));
}
std::span<const uint32_t> ProbedProduct::b_of(int64_t column) const {
  return std::span(b).subspan(static_cast<size_t>(column * terms), static_cast<size_t>(terms));
}

std::vector<ProbedProduct> made_products(const MatrixInstruction& instruction) {
  std::vector<MadeSum> sums = MadeSums(instruction).sums;
  const auto terms_of = [&](const MadeSum& sum) { return rounded_up(length_of(sum.terms), terms_of_step(instruction)); };
  std::stable_sort(sums.begin(), sums.end(), [&](const MadeSum& x, const MadeSum& y) { return terms_of(x) < terms_of(y); });
  const auto encoding = [](const FloatFormat& format, double value) {
    return static_cast<uint32_t>(round_to_encoding(format, value));
  };
  std::vector<ProbedProduct> products;
  size_t count = 0;
  for (size_t first = 0; first < sums.size(); first += count) {
    // Zeros behind the terms of a sum would be blocks of their own.
    count = 1;
    while (count < kMadeLines && first + count < sums.size() && terms_of(sums[first + count]) == terms_of(sums[first])) ++count;
    const std::span<const MadeSum> part = std::span(sums).subspan(first, count);
    ProbedProduct& product = products.emplace_back();
    product.rows = product.columns = static_cast<int64_t>(part.size());
    product.terms = terms_of(part.front());
    product.a.resize(part.size() * static_cast<size_t>(product.terms));
    product.b.resize(product.a.size());
    product.c.resize(part.size() * part.size());
    for (size_t line = 0; line < part.size(); ++line) {
      product.shows.push_back(part[line].shows);
      product.c[line * part.size() + line] = encoding(*info(instruction.sums).format, part[line].begins_with);
      for (const Term& term : part[line].terms) {
        const size_t place = line * static_cast<size_t>(product.terms) + static_cast<size_t>(term.place);
        product.a[place] = encoding(stored_format(instruction.a), term.a);
        product.b[place] = encoding(stored_format(instruction.b), term.b);
      }
    }
  }
  return products;
}

ProbedProduct random_product(const MatrixInstruction& instruction, uint64_t seed, uint64_t index) {
  const uint64_t stream =
      hash_combine(hash_combine(static_cast<uint64_t>(instruction.a), static_cast<uint64_t>(instruction.b)), index);
  Draws draws(seed, hash_combine(stream, static_cast<uint64_t>(instruction.sums)));
  static constexpr int64_t kTerms[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 127, 128, 129};
  static constexpr int64_t kSpreads[] = {0, 1, 2, 4, 8, 12, 20, 30, 60};
  const int64_t terms = kTerms[draws.below(std::size(kTerms))];
  ProbedProduct product{.rows = kRandomLines,
                        .columns = kRandomLines,
                        .terms = rounded_up(terms, terms_of_step(instruction)),
                        .a = {},
                        .b = {},
                        .c = {}};
  const FloatFormat &a = factor_format(instruction.a), &b = factor_format(instruction.b), &output = *info(instruction.sums).format;
  // A product is below 4 times 2^(sum of exponents), and 129 of them are below 2^(7.02 + 2) times that, which with what the sum
  // begins with is below 2^(largest exponent): no sum overflows. Those far below the least result are of no use.
  const int largest = output.largest_exponent() - 11;
  const int least_of_a = a.smallest_normal_exponent(), least_of_b = b.smallest_normal_exponent();
  const auto both = static_cast<int>(draws.between(std::max(least_of_a + least_of_b, output.smallest_exponent() - 11),
                                                   std::min(a.largest_exponent() + b.largest_exponent(), largest)));
  const auto of_a = static_cast<int>(
      draws.between(std::max(least_of_a, both - b.largest_exponent()), std::min(a.largest_exponent(), both - least_of_b)));
  const FloatFormat &stored_a = stored_format(instruction.a), &stored_b = stored_format(instruction.b);
  const auto add_line = [&](std::vector<uint32_t>& numbers, const FloatFormat& format, int exponent) {
    const int64_t spread = kSpreads[draws.below(std::size(kSpreads))];
    const bool is_signed = !draws.one_of(4);
    for (int64_t k = 0; k < product.terms; ++k)
      numbers.push_back(k < terms ? finite(format, random_number(draws, format, exponent, spread, is_signed)) : 0);
  };
  for (int64_t row = 0; row < product.rows; ++row) add_line(product.a, stored_a, of_a);
  for (int64_t column = 0; column < product.columns; ++column) add_line(product.b, stored_b, both - of_a);
  // Pairs of terms cancel, or nearly do.
  const bool cancels = terms > 1 && draws.one_of(2);
  const uint32_t last_bit = 1u << (stored_a.fraction_bits - a.fraction_bits);
  for (int64_t pair = 0; cancels && pair < (terms + 3) / 4; ++pair) {
    const auto one = static_cast<size_t>(draws.below(terms)), other = static_cast<size_t>(draws.below(terms));
    if (one == other) continue;
    const auto width = static_cast<size_t>(product.terms);
    for (size_t first = 0; first < product.a.size(); first += width) {
      const uint32_t opposite = product.a[first + one] ^ static_cast<uint32_t>(stored_a.sign_bit());
      product.a[first + other] = finite(stored_a, opposite ^ (draws.one_of(2) ? last_bit : 0));
    }
    for (size_t first = 0; first < product.b.size(); first += width) product.b[first + other] = product.b[first + one];
  }
  product.c.resize(static_cast<size_t>(product.rows * product.columns));
  const int exponent = std::min(both + 9, output.largest_exponent() - 1);
  for (uint32_t& encoding : product.c)
    if (draws.one_of(2)) encoding = random_number(draws, output, exponent, 40, true);
  return product;
}

}  // namespace ulpscope
