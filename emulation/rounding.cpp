#include "ulpscope/emulation/rounding.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <string>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

constexpr RoundingModeName kModes[] = {
    {"rne", RoundingMode::nearest_even, "to nearest, ties to even"},
    {"rna", RoundingMode::nearest_away, "to nearest, ties away from zero"},
    {"rz", RoundingMode::toward_zero, "towards zero"},
    {"ru", RoundingMode::up, "towards +Inf"},
    {"rd", RoundingMode::down, "towards -Inf"},
    {"ro", RoundingMode::to_odd, "to odd"},
    {"sr", RoundingMode::stochastic, "stochastic"},
};

}  // namespace

float f16_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t magnitude = bits & 0x7FFFu;
  if (magnitude >= 0x7C00) {
    const uint32_t quiet = magnitude > 0x7C00 ? 0x400000u : 0;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | ((magnitude & 0x3FFu) << 13));
  }
  // Exponents differ by the biases: 127 - 15.
  if (magnitude >= 0x400) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  if (magnitude == 0) return std::bit_cast<float>(sign);
  // magnitude * 2^-24; its leading bit becomes the implicit one.
  const int leading = 31 - std::countl_zero(magnitude);
  return std::bit_cast<float>(sign | (static_cast<uint32_t>(leading - 24 + 127) << 23) |
                              ((magnitude << (23 - leading)) & 0x7FFFFFu));
}

std::span<const RoundingModeName> rounding_modes() { return kModes; }

RoundingMode parse_rounding_mode(std::string_view given) {
  const std::string name = lower_case(given);
  const auto* found =
      std::find_if(std::begin(kModes), std::end(kModes), [&](const RoundingModeName& mode) { return mode.name == name; });
  if (found != std::end(kModes)) return found->mode;
  std::vector<std::string> names;
  for (const RoundingModeName& mode : kModes) names.emplace_back(mode.name);
  throw usage_error("rounding mode '{}': expected {}{}", one_line(given), join_words(names, "or"), did_you_mean(name, names));
}

std::string_view name_of(RoundingMode mode) { return kModes[static_cast<size_t>(mode)].name; }

}  // namespace ulpscope
