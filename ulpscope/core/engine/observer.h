// Sees every op call, before and after it runs. Recording, shadow execution and NaN watching are observers.
#pragma once

#include <span>
#include <string>

#include "ulpscope/core/engine/op.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

// What an output is, where dispatch cannot tell by itself.
struct OutputHint {
  Role role = Role::activation;
  const std::string* parameter = nullptr;  // its parameter's name
};

struct OpEvent {
  const Op& op;
  uint64_t id;
  uint64_t forward_id;  // of a backward op; else 0
  Phase phase;
  const std::string& module;
  uint32_t micro_batch;
  uint8_t pass;
  const Attributes& attributes;
  std::span<const Tensor> inputs;
  std::span<const Tensor> outputs;
  std::span<const OutputHint> hints;  // one per output
  const OpCall& call;
};

class Observer {
 public:
  virtual ~Observer() = default;
  // Inputs have their values, outputs have memory. What it wants to know of the outputs it asks for: one record per output, or
  // none. The first observer that asks provides the records. Valid until the end of the step.
  virtual std::span<OutputRecord* const> before(const OpEvent&) { return {}; }
  virtual void after(const OpEvent&) {}
};

}  // namespace ulpscope
