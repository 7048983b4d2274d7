// What dispatch needs besides its arguments, in one object. Guards change it, and only dispatch and the tape read it. There is one
// engine thread in a process, so there is one current context.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ulpscope/core/engine/arithmetic.h"
#include "ulpscope/core/engine/autocast.h"
#include "ulpscope/core/engine/observer.h"
#include "ulpscope/kernels/backend.h"
#include "ulpscope/recorder/op_identity.h"
#include "ulpscope/recorder/record_arena.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

struct Context {
  Backend* backend = nullptr;
  std::vector<Observer*> observers;
  Autocast* autocast = nullptr;           // nullptr: off
  ArithmeticRules* arithmetic = nullptr;  // nullptr: the default for every op
  bool grad_enabled = true;
  bool recomputing = false;  // within a checkpoint's second forward pass: what changes state in place leaves it as it is

  uint64_t seed = 0;  // of what ops draw at random (dropout, stochastic rounding), an integer below 2^53
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  uint8_t loss_index = 0;  // which loss
  Phase phase = Phase::forward;
  const std::string* module = intern("");
  uint64_t module_hash = 0;         // of *module
  std::optional<DType> layer_type;  // that the layer asks autocast for; nothing: what the lists say
  uint64_t forward_id = 0;          // in backward: the id of the forward op that is differentiated
  const Op* forward_op = nullptr;   // and that op; in forward too where ops stand for another (FP8's for linear)
  CallCounters counters;
  RecordsOfPasses records;  // of the calls, for observers
  uint64_t calls = 0;       // dispatched so far
  uint64_t host_reads = 0;  // of read_scalars so far

  // Starts a step: ids count from here.
  void begin_step(uint64_t number);
  // Starts the forward pass of another micro-batch or loss of the same step. A backend that runs behind has still to fill in
  // records of the one before: who reads them releases them.
  void begin_pass(uint32_t micro_batch_number, uint8_t loss_number);
};

// The current context. There has to be one.
Context& context();
// For messages: " in module 'PATH'", or "" outside of modules.
std::string in_module();

// Makes `context` the current one for its lifetime.
class ContextScope {
 public:
  explicit ContextScope(Context& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;

 private:
  Context* previous_;
};

// Sets a field of the context for its lifetime.
template <auto Field>
class ContextGuard {
 public:
  using Value = std::remove_reference_t<decltype(std::declval<Context&>().*Field)>;
  explicit ContextGuard(Value value) : previous_(std::exchange(context().*Field, std::move(value))) {}
  ~ContextGuard() { context().*Field = std::move(previous_); }
  ContextGuard(const ContextGuard&) = delete;

 private:
  Value previous_;
};

using PhaseGuard = ContextGuard<&Context::phase>;

// No tape within its lifetime.
class NoGrad : ContextGuard<&Context::grad_enabled> {
 public:
  NoGrad() : ContextGuard(false) {}
};

// Enters the module with the interned path `path`.
class ModuleScope {
 public:
  explicit ModuleScope(const std::string* path);
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;

 private:
  const std::string* previous_;
  uint64_t previous_hash_;
};

// Autocast is on within its lifetime; the casts of parameters are forgotten at its end.
class AutocastScope {
 public:
  explicit AutocastScope(Autocast* autocast);  // nullptr: off
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;

 private:
  Autocast* previous_;
};

}  // namespace ulpscope
