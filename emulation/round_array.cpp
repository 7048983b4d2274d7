#include "ulpscope/emulation/round_array.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/detect_compiler_arch.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/round_kernel.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

namespace {

constexpr int kFp32Bias = 127;

RoundingCore core_of(const FloatFormat& format, const Rounding& rounding, bool to_values) {
#if HWY_ARCH_X86
  const int discarded = binary32.fraction_bits - format.fraction_bits, normal = format.smallest_normal_exponent();
  if (format.zero_field != ZeroField::subnormals || discarded < 1) return RoundingCore::none;
  if (!to_values && format.storage_bits() > 16) return RoundingCore::none;
  const bool is_usual = rounding.overflow == Overflow::ieee && rounding.subnormals == SubnormalResults::keep;
  if (&format == &binary16 && is_usual && rounding.mode == RoundingMode::nearest_even) return RoundingCore::converted;
  if (normal == binary32.smallest_normal_exponent()) {
    const bool ends_in_infinity = format.has_infinity() && format.largest_encoding() + 1 == format.infinity_encoding() &&
                                  format.largest_exponent() == binary32.largest_exponent();
    const bool enough = rounding.mode == RoundingMode::stochastic ? discarded == 16 : discarded >= 2 && discarded <= 16;
    const bool is_carried = is_usual && !is_directed(rounding.mode) && ends_in_infinity && enough;
    // Without fraction bits all significands are odd, which no bit of FP32's encoding says.
    const bool by_parity = rounding.mode == RoundingMode::nearest_even || rounding.mode == RoundingMode::to_odd;
    if (format.fraction_bits == 0 && by_parity) return RoundingCore::none;
    return is_carried ? RoundingCore::carried : RoundingCore::shifted;
  }
  // The power of two that is added, and the parts of a step that ties and random numbers are, are ordinary numbers.
  const bool has_power = format.largest_exponent() + 2 + discarded <= binary32.largest_exponent();
  const bool has_parts = normal - format.fraction_bits - 24 >= binary32.smallest_normal_exponent();
  if (has_power && has_parts)
    return rounding.mode == RoundingMode::stochastic && discarded > 16 ? RoundingCore::counted : RoundingCore::scaled;
#endif
  return RoundingCore::none;
}

template <typename In, typename Out>
void round_array(const FloatFormat& format, const Rounding& rounding, std::span<const In> in, std::span<Out> out,
                 const RandomStream& random) {
  constexpr bool kToValues = std::is_floating_point_v<Out>;
  if (in.size() != out.size()) throw usage_error("rounding to {}: {} values, but room for {}", format.name, in.size(), out.size());
  if ((in.data() == nullptr || out.data() == nullptr) && !in.empty())
    throw usage_error("rounding to {}: expected arrays of {} elements, got a null pointer", format.name, in.size());
  const bool is_stochastic = rounding.mode == RoundingMode::stochastic;
  if (is_stochastic && (rounding.random_bits < 1 || rounding.random_bits > 24))
    throw usage_error("rounding to {}: expected 1 to 24 random bits, got {}", format.name, rounding.random_bits);
  if (format.storage_bits() > static_cast<int>(8 * sizeof(Out)))
    throw usage_error("rounding to {}: its encodings have {} bits, expected at most {}", format.name, format.storage_bits(),
                      8 * sizeof(Out));

  const auto one_by_one = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const uint32_t bits = is_stochastic ? random_bits_of(random, i) : 0;
      if constexpr (kToValues) {
        out[i] = round_to_format(format, in[i], rounding, bits);
      } else {
        out[i] = static_cast<Out>(round_to_encoding(format, in[i], rounding, bits));
      }
    }
  };
  if constexpr (std::is_same_v<In, float> && (sizeof(Out) < 4 || kToValues)) {
    const RoundConstants constants = round_constants(format, rounding, kToValues);
    if (constants.core != RoundingCore::none) {
      // Vectors begin where a block of random numbers does.
      const uint64_t into_block = random.first % kRandomBlock;
      const size_t head = is_stochastic && into_block != 0 ? std::min<size_t>(kRandomBlock - into_block, in.size()) : 0;
      one_by_one(0, head);
      const FloatingPointMode mode(cpu_rounding(rounding.mode));
      round_lanes(constants, in.data() + head, out.data() + head, in.size() - head,
                  {random.seed, random.stream, random.first + head});
      return;
    }
  }
  one_by_one(0, in.size());
}

}  // namespace

RoundConstants round_constants(const FloatFormat& format, const Rounding& rounding, bool to_values) {
  RoundConstants constants;
  constants.core = core_of(format, rounding, to_values);
  if (constants.core == RoundingCore::none) return constants;
  constants.mode = rounding.mode;
  constants.discarded = binary32.fraction_bits - format.fraction_bits;
  constants.smallest_field = static_cast<uint32_t>(format.smallest_normal_exponent() + kFp32Bias) << binary32.fraction_bits;
  constants.clamp = constants.core == RoundingCore::scaled || constants.core == RoundingCore::counted
                        ? static_cast<uint32_t>(format.largest_exponent() + 2 + kFp32Bias) << binary32.fraction_bits
                        : static_cast<uint32_t>(binary32.infinity_encoding());
  constants.random_bits = rounding.random_bits;
  constants.usual = static_cast<uint32_t>(convert(format, binary32, format.largest_encoding())) - 1;
  if (rounding.random_bits > 16 && constants.discarded > 16) constants.undecided = uint32_t{0xFFFF} << (constants.discarded - 16);

  const auto in_units = [&](uint64_t encoding) {
    return static_cast<uint32_t>(to_values ? convert(format, binary32, encoding) : encoding);
  };
  Rounding of_finite = rounding;
  if (rounding.mode == RoundingMode::stochastic)
    of_finite.mode = RoundingMode::nearest_even;  // beyond the last step it is no matter
  const auto beyond = [&](double value) { return in_units(round_to_encoding(format, value, of_finite)); };
  constexpr double kHuge = std::numeric_limits<double>::max();
  constants.largest = in_units(format.largest_encoding());
  constants.over_positive = beyond(kHuge);
  constants.over_negative = beyond(-kHuge);
  constants.infinite = beyond(std::numeric_limits<double>::infinity());
  const bool flushes = rounding.subnormals == SubnormalResults::flush && format.exponent_bits > 0;
  if (flushes) {
    // Where all finite numbers are subnormal, what is above them overflows.
    const uint64_t normal = uint64_t{1} << format.fraction_bits;
    constants.smallest_kept = normal <= format.largest_encoding() ? in_units(normal) : constants.largest + 1;
  }
  const bool keeps_sign = format.special_values != SpecialValues::negative_zero;
  constants.zero_sign = keeps_sign ? ~uint32_t{0} : 0;
  constants.is_simple = !flushes && keeps_sign;
  if (!format.has_nan()) {
    constants.nan_set = constants.largest;
  } else {
    constants.nan_set = in_units(format.nan_encoding());
    constants.nan_sign = ~uint32_t{0};
    if (format.has_infinity()) {
      const uint32_t payload = (uint32_t{1} << format.fraction_bits) - 1;
      constants.nan_shift = to_values ? 0 : constants.discarded;
      constants.nan_payload = to_values ? payload << constants.discarded : payload;
    }
  }
  constants.sign_shift = to_values ? 0 : 32 - format.storage_bits();
  return constants;
}

void round_values(const FloatFormat& format, const Rounding& rounding, ConstValues in, Values out, const RandomStream& random) {
  std::visit(
      [&](auto from) {
        using Value = std::remove_const_t<typename decltype(from)::element_type>;
        auto* to = std::get_if<std::span<Value>>(&out);
        if (to == nullptr) throw usage_error("rounding to {}: values in FP32 and in FP64, expected one type", format.name);
        round_array(format, rounding, from, *to, random);
      },
      in);
}

void round_encodings(const FloatFormat& format, const Rounding& rounding, ConstValues in, Encodings out,
                     const RandomStream& random) {
  std::visit([&](auto from, auto to) { round_array(format, rounding, from, to, random); }, in, out);
}

}  // namespace ulpscope
