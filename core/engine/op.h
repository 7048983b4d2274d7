// The definition of an op: everything that the engine knows of it. Backends know how to compute it, by its name.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "ulpscope/base/hash.h"
#include "ulpscope/core/tensor/small_vector.h"
#include "ulpscope/core/tensor/tensor.h"
#include "ulpscope/emulation/product_shape.h"
#include "ulpscope/kernels/op_call.h"
#include "ulpscope/trace/op_semantics.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

struct Op;
class BackwardCall;

using Tensors = SmallVector<Tensor, 5>;

// What autocast does with an op's floating-point inputs in the forward pass (docs/numerics.md).
enum class AutocastClass : uint8_t {
  input_type,         // runs in the type of its inputs; mixed inputs are cast to the widest
  lower_precision,    // inputs are cast to the autocast type
  fp32,               // inputs are cast to FP32
  fp32_unless_dtype,  // the same, unless the call asks for a type
  loss,               // FP32 as well; policies that treat the other FP32 ops otherwise know by it what is a loss
  forbidden,          // an error, which says why (Op::forbidden_because)
  exempt,             // inputs are taken as they are, mixed too (optimizer updates)
  inferred,           // of policies only: the autocast type where an input has it and none comes from an op kept in FP32
};

struct OutputSpec {
  DType dtype = DType::f32;
  int rank = 0;
  Extents shape{};
  Extents strides{};   // of a view op's output; else the layout decides
  int64_t offset = 0;  // of a view op's output: its first element within the input
  Layout layout = Layout::contiguous;
  int like = -1;             // the strides of this input, where it is dense and of the same shape; before `layout`
  int alias = -1;            // in place: the output is this input
  bool record_only = false;  // no memory: the backend only fills in its record
  int loss_scale_power = 1;  // of the loss scale that the call's outputs contain (Op::loss_scale), the one that this output does
  bool stays_wide = false;   // the type does not follow that of the inputs that autocast casts (batch_norm's statistics)
  // What the output is, where the caller does not say (OutputHint); nothing: a gradient in backward, else an activation.
  std::optional<Role> role = {};
  std::string_view name = {};  // "exp_avg"; "": it is the op's only one, or says nothing more than the op and its parameter do
};
using OutputSpecs = SmallVector<OutputSpec, 5>;

// A call before it runs: inputs after autocast.
struct OpArguments {
  const Op& op;
  std::span<const Tensor> inputs;
  const Attributes& attributes;
  std::optional<DType> dtype;  // asked for by the caller (cast, fill, sum)
};

// Whether bit i of a mask over an op's inputs or outputs is set; of those beyond the mask the last bit speaks.
constexpr bool has_bit(uint32_t mask, size_t i) { return (mask >> (i < 31 ? i : 31) & 1) != 0; }

struct Op {
  std::string_view name;
  int inputs = 1;           // how many; optional ones included
  int optional_inputs = 0;  // of those, trailing ones that may be missing
  AutocastClass autocast = AutocastClass::input_type;
  // Of an op that is forbidden under autocast: what goes wrong, and what to use instead.
  std::string_view forbidden_because = {};
  bool takes_quantized = false;  // inputs may be FP8 tensors, whose values are not what they stand for without their scales
  uint32_t cast_inputs = ~0u;    // bit i: input i is one that is cast; the others are taken as they are (batch_norm's parameters)
  // Appends the outputs' specs, or throws a usage Error that says which shapes came and which were expected.
  void (*shape_rule)(const OpArguments&, OutputSpecs&) = nullptr;
  // Sets the gradients of the inputs that need one, with public ops. nullptr: the op has no gradient.
  void (*backward)(BackwardCall&) = nullptr;
  // The loss scale that the outputs contain. nullptr: that of the first input.
  double (*loss_scale)(std::span<const Tensor> inputs, const Attributes&) = nullptr;
  bool broadcasts = false;        // inputs are expanded to the first output's shape
  bool is_view = false;           // shape_rule gives strides of the same memory; nothing is computed, no row is recorded
  bool needs_attributes = false;  // a call without them means nothing
  uint32_t saves_inputs = 0;      // bit i: backward reads the values of input i
  uint32_t saves_outputs = 0;
  uint32_t differentiable_outputs = 0b1;  // bit i: backward takes a gradient of output i; the others are constants to the tape
  // Floating-point operations of a call that is no product; nullptr: one per element of the first output.
  double (*flops)(std::span<const Tensor> inputs, std::span<const Tensor> outputs) = nullptr;

  // What it is, whatever it is called: where its name is not one of the functions', it says so itself.
  OpFunction function = function_named(name);
  uint64_t hash = hash_text(name);
};

inline constexpr int kVariadic = -1;  // Op::inputs of an op that takes any number of them

// All ops (ops/list.cpp).
std::span<const Op* const> all_ops();
// The op called `name`; a usage Error with the nearest name where there is none.
const Op& find_op(std::string_view name);

}  // namespace ulpscope
