// How an op call computes where that is not the default. By default sums of products are kept in FP32, an output is rounded once,
// to nearest even, and subnormals are numbers like any other.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ulpscope/emulation/format.h"
#include "ulpscope/emulation/number.h"

namespace ulpscope {

// What the sum of a matrix product or convolution is kept in.
enum class Accumulator : uint8_t {
  fp32,         // in the order that is fastest
  narrow,       // in a 16-bit format, from the first term to the last; a product and its addition are rounded together, to
                // nearest even
  fp64,         // from the first term to the last
  exact,        // not rounded before the output is
  tensor_core,  // as the tensor cores of a GPU (tensor_core.h)
};

// A row of the table of names that `accumulate` takes.
struct Accumulation {
  std::string_view name;  // of Accumulator::tensor_core: the GPU's (tensor_core_gpus)
  Accumulator accumulator;
  std::string_view meaning;
  const FloatFormat* narrow = nullptr;   // the format of Accumulator::narrow
  bool flushes_narrow_products = false;  // FP16 and BF16 factors and results that are subnormal become zero
};
std::span<const Accumulation> accumulations();
// nullptr where there is none.
const Accumulation* find_accumulation(std::string_view name);

// Where subnormals of a tensor's own format become zero of their sign.
enum class Subnormals : uint8_t { keep, flush_inputs, flush_outputs, flush };
const char* name_of(Subnormals subnormals);
constexpr bool flushes_inputs(Subnormals subnormals) {
  return subnormals == Subnormals::flush_inputs || subnormals == Subnormals::flush;
}
constexpr bool flushes_outputs(Subnormals subnormals) {
  return subnormals == Subnormals::flush_outputs || subnormals == Subnormals::flush;
}

struct Arithmetic {
  const Accumulation* accumulation = &accumulations()[0];
  RoundingMode rounding = RoundingMode::nearest_even;  // of outputs; accumulators have their own
  Subnormals subnormals = Subnormals::keep;
  bool tf32 = true;  // with Accumulator::tensor_core: FP32 factors are multiplied as TF32 where the GPU does that

  // Whether outputs or inputs become others than by one rounding to nearest even.
  bool rounds_otherwise() const { return rounding != RoundingMode::nearest_even || subnormals != Subnormals::keep; }
  bool operator==(const Arithmetic&) const = default;
};

// Ops that `accumulate` and `tf32` act on: matrix products, convolutions, and the backward ops that are.
std::span<const std::string_view> arithmetic_products();
bool is_product(std::string_view op);
// Ops that only move elements, so that no arithmetic acts on them; views, which nothing computes, are not among them.
std::span<const std::string_view> moving_ops();
bool only_moves(std::string_view op);

}  // namespace ulpscope
