// Loss scales and scalers as they are asked for in words: "2^0..2^24", "static:2^12", "dynamic:init=2^16,growth_interval=500".
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/emulation/loss_scale.h"

namespace ulpscope {

// A scaler, under the text that asked for it.
struct Scaling {
  std::string name;
  LossScaleRule rule;
};

// "static:2^12"; "dynamic", which is PyTorch's, or the name of a library that a rule is known of, each with changes behind a colon:
// "dynamic:init=2^16,growth_interval=2000". Throws Error (usage) for anything else, and for scales that are no powers of two.
Scaling parse_scaling(const std::string& text);

// 1 / S and S are normal FP32 numbers.
inline constexpr int kLeastScaleExponent = -126, kMostScaleExponent = 127;
// k of 2^k. Throws Error (usage) for what is none, or what no loss scale can be.
int parse_scale_exponent(std::string_view what, const std::string& text);
// The exponents of scales and of ranges of them, ascending, each once. Throws Error (usage) as above, for a range that ends before
// it begins, and for more than kMostScales.
inline constexpr size_t kMostScales = 64;
std::vector<int> parse_scale_exponents(std::string_view what, std::span<const std::string> texts);

}  // namespace ulpscope
