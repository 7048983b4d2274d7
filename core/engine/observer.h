// Sees every op call, before and after it runs. Recording, shadow execution and NaN watching are observers.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "ulpscope/core/engine/op.h"
#include "ulpscope/trace/op_semantics.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

// What a caller knows of an output.
struct OutputHint {
  std::optional<Role> role = {};           // nothing: what the op's definition says
  const std::string* parameter = nullptr;  // its parameter's name
  std::optional<bool> lowered = {};        // TensorBody::lowered; nothing: as the op's inputs have it
  // Of a gradient: of which value, and as which input of the op that is differentiated (TensorInfo).
  ValueKey gradient_of = {};
  int32_t gradient_input = -1;
  std::string_view name = {};  // "": as the op calls it (OutputSpec::name)
};

// What an output is.
struct OutputLabel {
  Role role = Role::activation;
  const std::string* parameter = nullptr;
  bool stays_wide = false;  // of a wide type, under autocast too
  std::string_view name = {};
  ValueKey gradient_of = {};
  int32_t gradient_input = -1;
};

struct OpEvent {
  const Op& op;
  uint64_t id;
  uint64_t forward_id;  // of a backward op; else 0
  Phase phase;
  const std::string& module;
  uint32_t micro_batch;
  uint8_t loss_index;
  const Attributes& attributes;
  std::span<const Tensor> inputs;
  std::span<const Tensor> outputs;
  std::span<const OutputLabel> labels;  // one per output
  const OpCall& call;
  // Of the inputs, one each, as the records are of the outputs: what an observer wants it marks as wanted.
  std::span<Fingerprint* const> input_fingerprints = {};

  // Of a matrix product.
  std::optional<ProductShape> product() const {
    const ProductKind kind = semantics_of(op.function).product;
    if (kind == ProductKind::none) return std::nullopt;
    std::optional<ProductShape> product = product_shape(kind, inputs[0].shape(), inputs[1].shape(), outputs[0].shape());
    if (product) product->multiple = multiple_for(*info(inputs[0].dtype()).format);
    return product;
  }
};

class Observer {
 public:
  virtual ~Observer() = default;
  // Inputs have their values once the backend is complete, outputs have memory. What it wants to know of the outputs it asks for by
  // raising the requests in `records`, one per output, which all observers share: another may have asked for more, and never gets
  // less. They are filled in once the backend is complete, and valid until the next pass begins.
  virtual void before(const OpEvent&, std::span<OutputRecord* const> /*records*/) {}
  // The op may not have run yet: what looks at values or records here waits for it first (Backend::complete).
  virtual void after(const OpEvent&) {}
  // Whether it is shown what a checkpoint computes again: in phase recompute, under the ids that the ops had in the forward pass.
  virtual bool sees_recomputed() const { return false; }
};

}  // namespace ulpscope
