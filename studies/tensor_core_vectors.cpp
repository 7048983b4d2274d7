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

constexpr ProbedFactors kFactors[] = {
    {&binary16, &binary16, DType::f16}, {&bfloat16, &bfloat16, DType::bf16}, {&tensor_float32, &binary32, DType::f32}};

// Of a product: few enough to be computed in a moment by threads that run one after the other, more than one tile of a warp.
constexpr int64_t kLines = 32;

struct Term {
  int64_t place;
  double a, b;
};
struct MadeSum {
  std::string_view shows;
  std::vector<Term> terms;
};

// 2^exponent times `significand`, of two normal numbers.
Term power(int64_t place, int exponent, double significand = 1) {
  const int of_a = exponent >= 0 ? exponent / 2 : -(-exponent / 2);
  return {place, std::ldexp(significand, of_a), std::ldexp(1.0, exponent - of_a)};
}
Term negative(Term term) { return {term.place, -term.a, term.b}; }
Term at(int64_t place, Term term) { return {place, term.a, term.b}; }

// Terms that are far below the largest one are lost in its block; kFarBelow: in every model's.
constexpr int kFewestBits = 20, kMostBits = 30, kFarBelow = 28;
// Places so far apart that they are in different blocks of every model's for sums in FP32.
constexpr int64_t kNextBlock = 16, kBlockAfter = 32;

class MadeSums {
 public:
  explicit MadeSums(const ProbedFactors& factors) : format_(*factors.format), is_wide_(format_.exponent_bits == 8) {
    for (const int scale : is_wide_ ? std::vector<int>{0, -90, 90} : std::vector<int>{0, 24}) {
      add_widths(scale);
      add_alignments(scale);
    }
    add_subnormal_factors();
    add_zero_products();
    add_blocks();
    add_roundings();
    if (is_wide_) {
      add_small_results();
      add_overflows();
    }
    if (factors.stored->fraction_bits > format_.fraction_bits) add_low_bits();
    add_zeros();
    add_specials();
  }

  std::vector<MadeSum> sums;

 private:
  void add(std::string_view shows, std::vector<Term> terms) { sums.push_back({shows, std::move(terms)}); }
  void add_both_signs(std::string_view shows, const std::vector<Term>& terms) {
    add(shows, terms);
    std::vector<Term> opposite;
    for (const Term& term : terms) opposite.push_back(negative(term));
    add(shows, std::move(opposite));
  }
  // `small` beside a `large` that another term takes away again, before it, behind it, and both behind an accumulator that is
  // large.
  void add_beside(std::string_view shows, const Term& large, const Term& small) {
    add_both_signs(shows, {at(0, large), at(1, small), at(2, negative(large))});
    add_both_signs(shows, {at(0, small), at(1, negative(large)), at(3, large)});
    add_both_signs(shows, {at(0, large), at(kNextBlock, small), at(kNextBlock + 1, negative(large))});
  }

  void add_widths(int scale) {
    for (int bits = kFewestBits; bits <= kMostBits; ++bits) {
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
    for (int bits = kFewestBits; bits <= kMostBits; ++bits) {
      // Significands of products lie in [1, 4), and above that the exponent of the largest term is no other.
      for (const double significand : {1.5, 1.984375}) {
        Term large = power(0, scale, significand);
        large.b *= significand;
        add_beside("the exponent of a product", large, power(0, scale - bits));
      }
      const Term large = power(0, scale);
      add_both_signs("the exponent of a product", {at(0, large), at(1, large), power(2, scale + 1, -1), power(3, scale - bits)});
    }
  }

  // They have the least normal exponent, whatever their magnitude.
  void add_subnormal_factors() {
    const int least = format_.smallest_normal_exponent(), fraction = format_.fraction_bits;
    for (const double significand : {1.0, std::ldexp(1.0, fraction - 1), std::ldexp(1.0, fraction) - 1}) {
      const double subnormal = std::ldexp(significand, least - fraction), one = std::ldexp(1.0, -least);
      for (int bits = kFewestBits; bits <= kMostBits; ++bits) {
        add_beside("the exponent of subnormal factors", {0, subnormal, one}, power(0, -bits));
        add_beside("the exponent of subnormal factors", {0, one, subnormal}, power(0, -bits));
      }
      for (const double other : {1.0, 1.5, std::ldexp(1.0, least), one, subnormal, format_.largest_finite()}) {
        if (is_wide_ && other < 1) continue;  // the result would be zero
        add_both_signs("subnormal factors are numbers", {{0, subnormal, other}});
      }
    }
  }

  void add_zero_products() {
    const double large = std::ldexp(1.0, format_.largest_exponent());
    for (const double zero : {0.0, -0.0}) {
      add_both_signs("zeros have no exponent", {{0, large, zero}, power(1, -kFarBelow)});
      add_both_signs("zeros have no exponent", {{0, zero, large}, power(1, -kFarBelow)});
    }
  }

  // A small term is there in the end iff no block has it beside a large one, or in its accumulator.
  void add_blocks() {
    const Term large = power(0, 0), small = power(0, -kFarBelow);
    for (int64_t taken = 1; taken <= kBlockAfter; ++taken) {
      for (int64_t place = 1; place <= kBlockAfter + 1; ++place) {
        const bool is_near = taken <= kNextBlock && place <= kNextBlock + 1;
        if (place == taken || (!is_near && place != taken + 1)) continue;
        add("which terms are a block", {at(0, large), at(taken, negative(large)), at(place, small)});
      }
    }
    for (const int64_t step : {int64_t{4}, int64_t{8}, kNextBlock}) {
      std::vector<int64_t> places{0, step, 2 * step};
      do {
        add("the order of blocks", {at(places[0], large), at(places[1], negative(large)), at(places[2], small)});
      } while (std::next_permutation(places.begin(), places.end()));
    }
  }

  // The place behind the last one of an FP32 result, and the next.
  void add_roundings() {
    constexpr std::string_view kShows = "how results are rounded";
    const int half = -(binary32.fraction_bits + 1);
    const Term one = power(0, 0);
    for (const int place : {half, half - 1}) {
      add_both_signs(kShows, {one, power(1, place)});
      add_both_signs(kShows, {one, power(1, place), power(2, place, -0.5)});
      add_both_signs(kShows, {one, power(1, place), power(2, place - 1)});
      add_both_signs(kShows, {one, power(1, half + 1), power(2, place)});
      add_both_signs(kShows, {power(0, 1), power(1, place, -1)});
      add_both_signs(kShows, {one, power(kNextBlock, place), power(kBlockAfter, place)});
      add_both_signs(kShows, {one, power(kNextBlock, place), power(kNextBlock + 1, place)});
    }
    // Sums beyond the largest exponent, of which a result has fewer bits than terms keep.
    for (int count = 1; count <= 3; ++count) {
      for (int bits = half; bits <= half + 4; ++bits) {
        std::vector<Term> terms;
        for (int i = 0; i < count; ++i) terms.push_back({i, 1.984375, 1.984375});
        for (const double significand : {1.0, 1.5}) {
          std::vector<Term> with = terms;
          with.push_back(power(count, bits, significand));
          add_both_signs(kShows, with);
        }
      }
    }
  }

  void add_small_results() {
    constexpr std::string_view kShows = "subnormal results";
    const int least = binary32.smallest_exponent(), normal = binary32.smallest_normal_exponent();
    for (const int exponent : {normal, normal - 1, -140, least}) add_both_signs(kShows, {power(0, exponent)});
    add_both_signs(kShows, {power(0, normal), power(1, least, -1)});
    add_both_signs(kShows, {power(0, least), power(1, least, 0.5)});
    add_both_signs(kShows, {power(0, least - 1), power(1, least - 1)});
    for (const int below : {1, 2, 3, 9, 40}) {
      add("positive sums that become zero", {power(0, least - below)});
      add("positive sums that become zero", {power(0, least - below), power(kNextBlock, least - below)});
      add("negative sums that become zero", {power(0, least - below, -1)});
      add("negative sums that become zero", {power(0, least - below, -1), power(kNextBlock, least - below, -1)});
    }
    // The least result in units of what terms keep there, less one unit, and one: only where both are kept is the result that.
    const int64_t most = int64_t{1} << (format_.fraction_bits + 1);
    for (int bits = 1; bits <= 16; ++bits) {
      const int64_t units = (int64_t{1} << bits) - 1;
      for (int64_t factor = 1; factor < most; ++factor) {
        if (units % factor != 0 || units / factor >= most) continue;
        Term term = power(0, least - bits, static_cast<double>(factor));
        term.b *= static_cast<double>(units / factor);
        add("the least exponent that terms are cut off by", {term, power(1, least - bits)});
        break;
      }
    }
  }

  void add_overflows() {
    constexpr std::string_view kShows = "what is too large";
    const int beyond = binary32.largest_exponent() + 1;
    const Term large = power(0, beyond), half = power(0, beyond - 1);
    add_both_signs(kShows, {large});
    add_both_signs(kShows, {half, at(1, half)});
    add_both_signs(kShows, {large, at(1, negative(large))});
    add_both_signs(kShows, {large, at(kNextBlock, negative(large))});
    add_both_signs(kShows, {half, at(1, half), at(2, negative(half))});
    add_both_signs(kShows, {half, at(kNextBlock, half), at(kBlockAfter, negative(half))});
    for (int bits = binary32.fraction_bits + 1; bits <= binary32.fraction_bits + 4; ++bits)
      add_both_signs(kShows, {large, power(1, beyond - bits, -1)});
  }

  void add_low_bits() {
    constexpr std::string_view kShows = "the low bits of FP32 factors";
    const int last = format_.fraction_bits;
    for (const double factor : {1 + std::ldexp(1.0, -last - 1), 1 + std::ldexp(1.5, -last), 2 - std::ldexp(1.0, -23),
                                std::ldexp(1.0, binary32.smallest_exponent()), std::ldexp(1.0, format_.smallest_exponent()),
                                std::ldexp(0.5, format_.smallest_exponent()), std::ldexp(1.5, format_.smallest_exponent())}) {
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
      for (Term& term : terms) std::swap(term.a, term.b);
      add(kShows, terms);
      for (Term& term : terms) term = {term.place, -0.0, -1};
      add(kShows, terms);
    }
    add_both_signs(kShows, {power(0, 0), power(1, 0, -1)});
    add_both_signs(kShows, {power(0, 0), power(kNextBlock, 0, -1)});
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
        add(kShows, {{0, special, 1}, {kNextBlock, second, 1}});
        add(kShows, {{0, second, 1}, {kNextBlock, special, 1}});
      }
    }
  }

  const FloatFormat& format_;
  bool is_wide_;  // with the exponents of FP32, so that results can be too large or too small
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
uint32_t random_number(Draws& draws, const ProbedFactors& factors, int exponent, int64_t spread, bool is_signed) {
  const FloatFormat& format = *factors.stored;
  if (draws.one_of(16)) return draws.one_of(2) ? static_cast<uint32_t>(format.sign_bit()) : 0;
  const int64_t field = std::max<int64_t>(exponent + format.bias - draws.between(0, spread), 0);
  uint32_t fraction = draws.bits() & ((1u << format.fraction_bits) - 1);
  if (draws.one_of(4)) fraction &= ~0u << draws.between(1, format.fraction_bits);
  const uint32_t sign = is_signed && draws.one_of(2) ? static_cast<uint32_t>(format.sign_bit()) : 0;
  return sign | static_cast<uint32_t>(field << format.fraction_bits) | fraction;
}

}  // namespace

std::span<const ProbedFactors> probed_factors() { return kFactors; }

std::span<const uint32_t> ProbedProduct::a_of(int64_t row) const {
  return std::span(a).subspan(static_cast<size_t>(row * terms), static_cast<size_t>(terms));
}
std::span<const uint32_t> ProbedProduct::b_of(int64_t column) const {
  return std::span(b).subspan(static_cast<size_t>(column * terms), static_cast<size_t>(terms));
}

std::vector<ProbedProduct> made_products(const ProbedFactors& factors) {
  const std::vector<MadeSum> sums = MadeSums(factors).sums;
  std::vector<ProbedProduct> products;
  for (size_t first = 0; first < sums.size(); first += kLines) {
    const std::span<const MadeSum> part = std::span(sums).subspan(first, std::min<size_t>(kLines, sums.size() - first));
    ProbedProduct& product = products.emplace_back();
    product.rows = product.columns = static_cast<int64_t>(part.size());
    for (const MadeSum& sum : part)
      for (const Term& term : sum.terms) product.terms = std::max(product.terms, term.place + 1);
    product.a.resize(part.size() * static_cast<size_t>(product.terms));
    product.b.resize(product.a.size());
    for (size_t line = 0; line < part.size(); ++line) {
      product.shows.push_back(part[line].shows);
      for (const Term& term : part[line].terms) {
        const size_t place = line * static_cast<size_t>(product.terms) + static_cast<size_t>(term.place);
        product.a[place] = static_cast<uint32_t>(round_to_encoding(*factors.stored, term.a));
        product.b[place] = static_cast<uint32_t>(round_to_encoding(*factors.stored, term.b));
      }
    }
  }
  return products;
}

ProbedProduct random_product(const ProbedFactors& factors, uint64_t seed, uint64_t index) {
  Draws draws(seed, hash_combine(static_cast<uint64_t>(factors.dtype), index));
  static constexpr int64_t kTerms[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 127, 128, 129};
  static constexpr int64_t kSpreads[] = {0, 1, 2, 4, 8, 12, 20, 30, 60};
  ProbedProduct product{.rows = kLines, .columns = kLines, .terms = kTerms[draws.below(std::size(kTerms))], .a = {}, .b = {}};
  // A product is below 4 times 2^(sum of exponents), and 129 of them are below 2^(7.02 + 2 + 117): no sum overflows. Those below
  // 2^-160 are of no use.
  const FloatFormat& format = *factors.format;
  const int least = format.smallest_normal_exponent(), largest = format.largest_exponent();
  const auto both = static_cast<int>(draws.between(std::max(2 * least, -160), std::min(2 * largest, 117)));
  const auto of_a = static_cast<int>(draws.between(std::max(least, both - largest), std::min(largest, both - least)));
  const int64_t spread = kSpreads[draws.below(std::size(kSpreads))];
  const bool is_signed = !draws.one_of(4);
  for (int64_t i = 0; i < kLines * product.terms; ++i) {
    product.a.push_back(random_number(draws, factors, of_a, spread, is_signed));
    product.b.push_back(random_number(draws, factors, both - of_a, spread, is_signed));
  }
  // Pairs of terms cancel, or nearly do.
  const bool cancels = product.terms > 1 && draws.one_of(2);
  const uint32_t last_bit = 1u << (factors.stored->fraction_bits - format.fraction_bits);
  for (int64_t pair = 0; cancels && pair < (product.terms + 3) / 4; ++pair) {
    const auto one = static_cast<size_t>(draws.below(product.terms)), other = static_cast<size_t>(draws.below(product.terms));
    if (one == other) continue;
    for (size_t line = 0; line < kLines; ++line) {
      const size_t from = line * static_cast<size_t>(product.terms) + one, to = line * static_cast<size_t>(product.terms) + other;
      product.a[to] = product.a[from] ^ static_cast<uint32_t>(factors.stored->sign_bit()) ^ (draws.one_of(2) ? last_bit : 0);
      product.b[to] = product.b[from];
    }
  }
  return product;
}

}  // namespace ulpscope
