// Which ops err by more than their arithmetic allows: calls of every op on inputs that are searched for the worst, each element
// beside its exact value and its bound (bounds.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/kernels/backend.h"
#include "ulpscope/kernels/op_call_arithmetic.h"
#include "ulpscope/kernels/view.h"

namespace ulpscope {

struct OpCheckOptions {
  std::vector<std::string> ops;                                   // patterns of names; none: all
  std::vector<DType> types{DType::f32, DType::f16, DType::bf16};  // that tensors have
  std::vector<const Accumulation*> accumulations;                 // of sums of products
  uint64_t seed = 0;
  int rounds = 24;       // changes of the worst inputs found, after inputs of each class
  double budget = 0;     // seconds, after which nothing is searched any more; 0: as long as it takes
  size_t limit = 10;     // rows of the table; 0: all
  bool explain = false;  // a table of the bounds' formulas
  std::string save;      // a folder, which is there, for the inputs, outputs and exact numbers of the rows shown; "": none
  // What the calls are made on, on one thread; nothing: the CPU backend.
  std::function<std::unique_ptr<Backend>()> backend;
  std::function<void(const std::string& op, double done)> progress;
  std::function<bool()> stopped;
};

struct OpCheck {
  Report report;
  uint64_t broken = 0;  // calls of which an element is beyond its bound
};

// The same for the same options, but where the budget or the user ends it. Throws a usage Error where no op has
// a name that was asked for.
OpCheck check_ops(const OpCheckOptions& options);

}  // namespace ulpscope
