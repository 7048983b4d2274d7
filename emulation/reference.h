// Elementary functions, correctly rounded into any format in any mode: what a library's result is compared with.
//
// Each is computed with an error bound that is carried through every operation (midpoint-radius arithmetic on big integers), and,
// while the bound leaves the rounding open, again with twice as many bits (A. Ziv, "Fast evaluation of elementary mathematical
// functions with correctly rounded last bit", ACM TOMS 1991). It ends because no result lies on a border between roundings but
// those that are known and treated as exact: by the theorems of Lindemann, Gelfond and (of erf and gelu) Siegel these functions of
// a rational number are irrational elsewhere, or, as rsqrt(9), rational with a denominator that is no power of two.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ulpscope/emulation/format.h"
#include "ulpscope/emulation/number.h"

namespace ulpscope {

enum class ElementaryFunction : uint8_t {
  exp,
  exp2,
  expm1,  // e^x - 1
  log,
  log2,
  log10,
  log1p,  // log(1 + x)
  sqrt,
  rsqrt,  // 1 / sqrt(x)
  sin,
  cos,
  tan,
  asin,
  acos,
  atan,
  sinh,
  cosh,
  tanh,
  asinh,
  acosh,
  atanh,
  sigmoid,   // 1 / (1 + e^-x)
  silu,      // x / (1 + e^-x)
  softplus,  // log(1 + e^x)
  erf,
  erfc,  // 1 - erf(x)
  gelu,  // x erfc(-x / sqrt(2)) / 2
};

// By the names above, in their order.
struct ElementaryFunctionName {
  std::string_view name;
  ElementaryFunction function;
};
std::span<const ElementaryFunctionName> elementary_functions();
// Throws a usage Error that names all of them for another name.
ElementaryFunction parse_elementary_function(std::string_view name);

// The encoding of function(x) in `format`, of any x as decode() makes it. Zeros, Inf and what is outside a function's domain are
// treated as IEEE 754-2019, section 9.2, says (log(-0) = -Inf, log(-1) and sin(Inf) = NaN, positive and without a payload), and
// what it does not name by the limit (silu(-Inf) = -0); a NaN stays itself. `random`: uniform bits, for stochastic rounding.
uint64_t evaluate(ElementaryFunction function, const Number& x, const FloatFormat& format, const Rounding& rounding = {},
                  uint32_t random = 0);
// The same of x^y. x^0 and 1^y are 1, of NaN as well.
uint64_t evaluate_pow(const Number& x, const Number& y, const FloatFormat& format, const Rounding& rounding = {},
                      uint32_t random = 0);

}  // namespace ulpscope
