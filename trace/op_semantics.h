// The table has a row for each op function: what its inputs and outputs are, what it reduces over, which attributes it has. Whoever
// asks what an op does asks here: the engine, the recorder, the rules and docs/trace_format.md, which shows this table.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ulpscope/emulation/product_shape.h"
#include "ulpscope/trace/op_kind.h"

namespace ulpscope {

// A meaning is what a tensor is to the function that reads or makes it.
enum class Meaning : uint8_t {
  value,       // what the function is of, and what it gives
  factor,      // of a product
  addend,      // of a sum
  subtrahend,  // what is taken from the first
  dividend,
  divisor,  // what the result is divided by, or its root
  base,     // of a power
  exponent,
  mask,    // decides what is taken, and enters no arithmetic
  index,   // the place of what is taken, or where it goes
  shape,   // a tensor that gives its shape alone
  target,  // what a loss compares with
  weight,
  bias,
  query,
  key,
  gradient,       // of an output where it is read, of an input where it is made
  bias_gradient,  // sums of the elements of the gradient that was read
  result,         // of the forward op, read by its backward
  loss,
  mean,
  variance,
  inverse_deviation,  // 1 / sqrt(variance + eps)
  running_mean,       // kept from step to step, in place
  running_variance,
  norm,
  count,
  log_sum_exp,  // the logarithm of the sum of a row's exponentials
  scale,        // what values are multiplied by before they are quantized
  inverse_scale,
  amax,  // the largest magnitude
  amax_history,
  found_nonfinite,
  state,  // what goes from call to call: hidden and cell states, accumulated gradients
  gates,
  parameter,  // changed in place
  momentum,
  first_moment,
  second_moment,
  update,  // what a parameter was changed by
};
inline constexpr int kMeanings = static_cast<int>(Meaning::update) + 1;
const char* name_of(Meaning meaning);

// Over which elements a result is formed.
enum class Reduction : uint8_t {
  nothing,          // those at the same place
  dimensions,       // those that the attribute `dims` names, or all
  last_dimension,   // a row
  rows,             // all but the last dimension
  inner_dimension,  // that which both factors have
  windows,          // of a kernel, or the places that a weight of one is used at
  all_but_channels,
  groups,         // of channels, in each sample
  equal_indices,  // all that go to one place
  all_elements,
  ranks,
};
inline constexpr int kReductionKinds = static_cast<int>(Reduction::ranks) + 1;
const char* name_of(Reduction reduction);

// Bits of OpSemantics::traits.
inline constexpr uint16_t kSameValues = 1 << 0;  // the result is the value at the same place, in the output's type
inline constexpr uint16_t kSumsProducts =
    1 << 1;                                   // sums of products of the inputs: of finite ones infinite only for being too large
inline constexpr uint16_t kBounded = 1 << 2;  // however large the inputs are, the result is not (batch_norm: in training)
inline constexpr uint16_t kMayDrop = 1 << 3;  // the result is zero for some values, and carries the others on
inline constexpr uint16_t kTakesConstants = 1 << 4;  // some elements are replaced
inline constexpr uint16_t kWeighsRow = 1 << 5;       // values of a row get shares of 1, and of -Inf none
inline constexpr uint16_t kHasVariance = 1 << 6;     // the value is divided by the root of a variance and eps

// A few meanings, in the order of the op's inputs or of its slots.
class Meanings {
 public:
  constexpr Meanings(std::initializer_list<Meaning> meanings) : size_(static_cast<uint8_t>(meanings.size())) {
    std::copy(meanings.begin(), meanings.end(), items_.begin());
  }
  constexpr operator std::span<const Meaning>() const { return {items_.data(), size_}; }

 private:
  std::array<Meaning, 6> items_{};
  uint8_t size_ = 0;
};

struct OpSemantics {
  OpFunction function;
  std::string_view name;
  OpKind kind;
  Reduction reduces;
  uint16_t traits;
  Meanings inputs;
  Meanings outputs;
  std::string_view attributes = {};         // the words that rules know them by; an op may have others
  uint8_t optional_inputs = 0;              // trailing ones that may be missing
  bool last_repeats = false;                // there may be any number of inputs like the last
  ProductKind product = ProductKind::none;  // of the first two inputs
};

// Names of ops whose functions the table does not have: log(1 + x), log(x / (1 - x)), and products of all values up to each.
inline constexpr std::string_view kLog1p = "log1p", kLogit = "logit", kCumulativeProduct = "cumprod", kProduct = "prod";

const OpSemantics& semantics_of(OpFunction function);
inline std::string_view name_of(OpFunction function) { return semantics_of(function).name; }
inline OpKind kind_of(OpFunction function) { return semantics_of(function).kind; }
// The function of that name, or `other`.
OpFunction function_named(std::string_view name);

inline bool has_trait(OpFunction function, uint16_t trait) { return (semantics_of(function).traits & trait) != 0; }
// Whether that input of the function, or what it makes in that slot, is this.
bool reads_as(OpFunction function, uint64_t input, Meaning meaning);
bool makes_as(OpFunction function, uint64_t slot, Meaning meaning);
// The number of the first input, or the slot of the first output, that is this. There is none: nullopt.
std::optional<uint32_t> input_of(OpFunction function, Meaning meaning);
std::optional<uint32_t> slot_of(OpFunction function, Meaning meaning);

// The attributes of an op, "stride=1 padding=1", of which several calls or runs are known: name=varies where two differ, or one
// does not have it. In the order in which they are first given.
std::string merged_attributes(std::string_view first, std::string_view second);

}  // namespace ulpscope
