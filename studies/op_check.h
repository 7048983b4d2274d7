// Which ops err by more than their arithmetic allows: calls of every op on inputs that are searched for the worst, elements beside
// their exact values and bounds (kernels/bounds.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ulpscope/kernels/backend.h"
#include "ulpscope/kernels/bounds.h"
#include "ulpscope/kernels/cases/op_case.h"
#include "ulpscope/studies/op_inputs.h"

namespace ulpscope {

struct OpCheckOptions {
  std::vector<std::string> ops;                                   // patterns of names; none: all
  std::vector<DType> types{DType::f32, DType::f16, DType::bf16};  // that tensors have: f32, f16, bf16 or f64
  std::vector<const Accumulation*> accumulations{
      &ulpscope::accumulations().front()};  // that sums of products are kept in; of FP64 there is one
  uint64_t seed = 0;
  int rounds = 24;    // changes of the worst inputs found, after inputs of each class
  double budget = 0;  // seconds, shared out to all calls, of which one is made of each op at least; 0: as long as it takes
  // Makes a backend with memory of the host, of which each thread has its own; nothing: the CPU's, on one thread.
  std::function<std::unique_ptr<Backend>()> backend;
  std::function<void(const std::string& op, double done)> progress;  // called from the thread that asked
  std::function<bool()> stopped;                                     // whether to end now; called from any thread
};

// An op in one type and one arithmetic.
struct CheckedOp {
  std::string op;
  DType type = DType::f32;
  const Accumulation* accumulation = nullptr;  // of products; nullptr: it is none, or in FP64
  std::vector<const cases::Case*> cases;       // that are called, the largest first
  uint64_t calls = 0;

  std::string name() const;  // "linear.f16.fp32"
};

// The call of a checked op on inputs, with memory of its own.
class CheckedCall {
 public:
  CheckedCall(const CheckedOp& op, const cases::Case& what, const std::vector<cases::HostTensor>& inputs);
  CheckedCall(const CheckedCall&) = delete;
  const OpCall& call() const { return call_; }
  cases::Result result() const { return prepared_.result(); }

 private:
  Arithmetic arithmetic_;
  cases::CaseCall prepared_;
  OpCall call_;
};

// The element of an output that came nearest to its bound, or farthest beyond it.
struct WorstElement {
  size_t op = 0;  // its place in OpCheck::ops
  size_t slot = 0;
  const cases::Case* of = nullptr;  // nullptr: nothing was known of any element
  InputClass input_class = InputClass::uniform;
  std::vector<cases::HostTensor> inputs;
  int64_t element = 0;
  double stored = 0, error = 0, ulps = 0;  // of the output's type, at the exact value
  ElementBound bound;
  double over_bound = -1;              // error / bound; 0 of 0
  double largest_ulps = 0;             // of all elements of the output
  uint64_t elements = 0, unknown = 0;  // that were looked at; of which nothing is known
  uint64_t broken = 0;                 // beyond their bounds
};

struct OpCheck {
  std::vector<CheckedOp> ops;       // those that were called
  std::vector<WorstElement> worst;  // one for each output: broken ones first, then the largest errors in ulps
  uint64_t calls = 0, elements = 0, unknown = 0, broken = 0;
  size_t not_called = 0;  // ops that the user's stop left out
};

// A check gives the same again, but where the budget or the user ends it: the search of an op depends on the seed alone. Throws a
// usage Error where no op has a name that was asked for, and what a call throws.
OpCheck check_ops(const OpCheckOptions& options);

}  // namespace ulpscope
