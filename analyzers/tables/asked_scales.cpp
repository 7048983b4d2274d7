#include "ulpscope/analyzers/tables/asked_scales.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>

#include "ulpscope/base/error.h"
#include "ulpscope/base/parse_number.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

// "2^16" or "65536".
std::optional<double> read_scale(const std::string& text) {
  if (!text.starts_with("2^")) return parse_number<double>(text);
  const auto exponent = parse_number<int>(std::string_view(text).substr(2));
  return exponent && std::abs(*exponent) <= 1000 ? std::optional(std::ldexp(1.0, *exponent)) : std::nullopt;
}

double parse_factor(const std::string& name, const std::string& text, bool above_one) {
  const std::optional<double> value = read_scale(text);
  int exponent = 0;
  if (!value || !std::isfinite(*value) || std::frexp(*value, &exponent) != 0.5 || (above_one ? *value <= 1 : *value >= 1))
    throw usage_error("{} takes a power of two {} 1, not '{}'", name, above_one ? "above" : "below", text);
  return *value;
}

int64_t parse_count(const std::string& name, const std::string& text) {
  const auto value = parse_number<int64_t>(text);
  if (!value || *value < 1) throw usage_error("{} takes an integer of at least 1, not '{}'", name, text);
  return *value;
}

void set(LossScaleRule& rule, const std::string& name, const std::string& value) {
  const auto scale = [&] { return std::ldexp(1.0, parse_scale_exponent(name, value)); };
  static const std::vector<std::string> names{"init", "growth_factor", "backoff_factor", "growth_interval", "hysteresis", "floor",
                                              "cap"};
  if (name == "init") {
    rule.initial = scale();
  } else if (name == "growth_factor") {
    rule.growth_factor = parse_factor(name, value, true);
  } else if (name == "backoff_factor") {
    rule.backoff_factor = parse_factor(name, value, false);
  } else if (name == "growth_interval") {
    rule.growth_interval = parse_count(name, value);
  } else if (name == "hysteresis") {
    rule.hysteresis = parse_count(name, value);
  } else if (name == "floor") {
    rule.floor = scale();
  } else if (name == "cap") {
    rule.cap = scale();
  } else {
    throw usage_error("a scaler has no '{}'{}", name, did_you_mean_or_expected(name, names));
  }
}

}  // namespace

int parse_scale_exponent(std::string_view what, const std::string& text) {
  const std::optional<double> value = read_scale(text);
  if (!value) throw usage_error("{} takes a scale like 2^16 or 65536, not '{}'", what, text);
  int exponent = 0;
  if (!(*value > 0) || !std::isfinite(*value))
    throw usage_error("{}: '{}' is no loss scale: those are above 0, and finite", what, text);
  if (std::frexp(*value, &exponent) != 0.5)
    throw usage_error("{}: {} is no power of two; near it are 2^{} and 2^{}", what, text, exponent - 1, exponent);
  if (exponent - 1 < kLeastScaleExponent || exponent - 1 > kMostScaleExponent)
    throw usage_error("{}: {} is beyond what a loss scale can be: 2^{} to 2^{}", what, text, kLeastScaleExponent,
                      kMostScaleExponent);
  return exponent - 1;
}

Scaling parse_scaling(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon), rest = colon == std::string::npos ? "" : text.substr(colon + 1);
  Scaling scaling{text, {}};
  if (kind == "static") {
    if (rest.empty()) throw usage_error("--scaling static takes a scale: static:2^12");
    scaling.rule.dynamic = false;
    scaling.rule.initial = std::ldexp(1.0, parse_scale_exponent("--scaling static", rest));
    return scaling;
  }
  if (kind != "dynamic") {
    const auto rule = find_loss_scale_rule(kind);
    static const std::vector<std::string> kinds{"static",    "dynamic",  "pytorch", "keras", "tensorflow",
                                                "deepspeed", "megatron", "apex",    "mxnet"};
    if (!rule) throw usage_error("--scaling: there is no scaler '{}'{}", kind, did_you_mean_or_expected(kind, kinds));
    scaling.rule = *rule;
  }
  if (colon != std::string::npos && rest.empty())
    throw usage_error("--scaling {} ends where a setting is expected: init=2^16", text);
  std::set<std::string> given;
  for (size_t begin = 0; begin < rest.size();) {
    const size_t end = std::min(rest.find(',', begin), rest.size());
    const std::string part = rest.substr(begin, end - begin);
    const size_t equals = part.find('=');
    if (equals == std::string::npos)
      throw usage_error("--scaling: '{}' is no setting of a scaler: they are written like init=2^16", part);
    const std::string name = part.substr(0, equals);
    if (!given.insert(name).second) throw usage_error("--scaling: {} is set twice in '{}'", name, text);
    set(scaling.rule, name, part.substr(equals + 1));
    begin = end + 1;
  }
  return scaling;
}

std::vector<int> parse_scale_exponents(std::string_view what, std::span<const std::string> texts) {
  std::set<int> exponents;
  for (const std::string& text : texts) {
    const size_t dots = text.find("..");
    const int first = parse_scale_exponent(what, text.substr(0, dots));
    const int last = dots == std::string::npos ? first : parse_scale_exponent(what, text.substr(dots + 2));
    if (last < first) throw usage_error("{}: {} ends before it begins", what, text);
    for (int k = first; k <= last; ++k) exponents.insert(k);
  }
  if (exponents.size() > kMostScales)
    throw usage_error("{} asks for {} scales; at most {} are answered at once", what, exponents.size(), kMostScales);
  return {exponents.begin(), exponents.end()};
}

}  // namespace ulpscope
