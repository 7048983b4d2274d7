// The observer that says where a step first had what is not finite. It asks for counts, which cost next to nothing beside a
// recorder that asks for them too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/base/text.h"
#include "ulpscope/core/engine/context.h"

namespace ulpscope {

// An output with infinities or NaNs.
struct NonfiniteOutput {
  uint64_t op = 0;  // its id
  std::string name, module, parameter;
  Phase phase = Phase::forward;
  Role role = Role::activation;
  uint32_t micro_batch = 0;
  int slot = 0;
  uint64_t nan = 0, infinite = 0;

  std::string place() const { return op_place(name, module, name_of(phase)); }
};

// Of each step's training, not of its evaluation.
class NonfiniteWatch : public Observer {
 public:
  void before(const OpEvent& event, std::span<OutputRecord* const> records) override;
  void begin_step();
  // The backend is complete since the pass's last op.
  void end_pass();

  // In order of execution.
  const std::optional<NonfiniteOutput>& first() const { return first_; }
  const std::optional<NonfiniteOutput>& first_infinite() const { return first_infinite_; }

 private:
  struct Output {
    const OutputRecord* record;
    DType dtype;
    const Op* op;
    uint64_t id;
    const std::string *module, *parameter;
    Phase phase;
    Role role;
    uint32_t micro_batch;
    int slot;
  };

  std::vector<Output> outputs_;  // of the pass
  std::optional<NonfiniteOutput> first_, first_infinite_;
};

}  // namespace ulpscope
