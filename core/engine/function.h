// Functions with a backward rule of their own, as torch.autograd.Function has them, and activation checkpointing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "ulpscope/core/engine/op.h"

namespace ulpscope {

// One object serves one application: what forward keeps for backward are members of it.
class Function {
 public:
  virtual ~Function() = default;
  // Runs with gradients off: its ops are recorded, and leave nothing on the tape.
  virtual Tensors forward(std::span<const Tensor> inputs) = 0;
  // The gradients of the inputs, of their shapes, from those of the outputs. Undefined: none, or that none arrived. A gradient of
  // another type than its input's is cast to it. Autocast is as it was for forward.
  virtual Tensors backward(std::span<const Tensor> gradients) = 0;
  // The type that floating-point inputs are cast to where autocast is on; it is off within forward and backward then. Nothing:
  // autocast stays on in them. As custom_fwd(cast_inputs=...) and custom_bwd.
  virtual std::optional<DType> cast_inputs() const { return {}; }
  // Whether the outputs depend on what requires a gradient and is not among the inputs.
  virtual bool uses_parameters() const { return false; }
};

// The function's outputs, on the tape where an input requires a gradient. Throws Error (failed) in backward where the function
// gives another number of gradients, or other shapes, than it had inputs.
Tensors apply(std::shared_ptr<Function> function, std::span<const Tensor> inputs);

// body(inputs), of which only the inputs are kept: backward computes it again, which saves the memory of what lies between. The
// gradients have the same bits, and the ops the same ids; what is computed again is not recorded. `body` gives the same each time
// that it is called, as modules do.
Tensors checkpoint(std::function<Tensors(std::span<const Tensor>)> body, std::span<const Tensor> inputs);

}  // namespace ulpscope
