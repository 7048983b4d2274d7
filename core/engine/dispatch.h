// The one door: every computation on tensors, forward, backward, casts, optimizer and loss scaling included, passes dispatch().
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ulpscope/core/engine/context.h"
#include "ulpscope/core/engine/op.h"

namespace ulpscope {

struct CallOptions {
  std::optional<DType> dtype = {};         // the output type, for ops that take one
  std::span<const OutputHint> hints = {};  // what the outputs are, in their order; missing ones follow from the op's definition
  std::optional<uint64_t> id = {};         // an id that does not come from the call counter (casts that autocast adds)
  std::optional<uint64_t> stream = {};     // what the random bits of roundings follow from; nothing: the id
};

// Computes `op` on `inputs` in the current context:
//   1. in forward and loss, autocast decides the dtype of each input; casts are dispatched too
//   2. the backend computes, filling in what observers asked for
//   3. observers see inputs and outputs
//   4. the tape remembers how to go back, if an input requires a gradient
// Throws a usage Error that names op and module where shapes or types do not fit.
Tensors dispatch(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes = {}, const CallOptions& options = {});

// The type that the floating-point inputs of the op would have in the current context: that of autocast, or the widest of their
// own.
DType type_of_inputs(const Op& op, std::span<const Tensor> inputs);

// The first output of the op called `name`.
Tensor call(std::string_view name, std::initializer_list<Tensor> inputs, const Attributes& attributes = {},
            const CallOptions& options = {});

// A cast that autocast adds, of the input `index` of the call with the id `served`: named after what it serves, so that it counts
// for nothing else, and for parameters kept for the next call. The random bits of a kept one follow from the parameter, so that a
// checkpoint, which begins with none kept, makes the same one again.
Tensor autocast_input(const Tensor& input, DType dtype, uint64_t served, size_t index);

// The values of scalar tensors, read by the host in one wait. The only place where a step waits for the device.
std::vector<double> read_scalars(std::span<const Tensor> scalars);

}  // namespace ulpscope
