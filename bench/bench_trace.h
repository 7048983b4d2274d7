// What benchmarks write into traces: rows of a training step, as many tensors as asked for.
#pragma once

#include <cstdint>
#include <vector>

#include "ulpscope/trace/sink.h"

namespace ulpscope::bench {

class BenchTrace {
 public:
  // Tensors of 10 to a million normally distributed elements, whose exponents span 16 binades and more. Rows of so many steps are
  // prepared, and come again and again.
  BenchTrace(int tensors, int steps);

  uint64_t rows_per_step() const { return static_cast<uint64_t>(tensors_); }
  // Once, before the first step.
  void add_tables(TraceSink& sink) const;
  // `is_nan`: its loss is NaN, and so is an element of each tensor.
  void add_step(TraceSink& sink, uint64_t step, bool is_nan = false) const;

 private:
  int tensors_;
  std::vector<TensorRow> rows_;
};

}  // namespace ulpscope::bench
