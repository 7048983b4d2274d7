// How wide values become an output: rounded once into its type, with the counts and statistics that the call asks for.
#pragma once

#include <mutex>
#include <optional>

#include "ulpscope/emulation/narrow_format.h"
#include "ulpscope/kernels/counted_rounding.h"
#include "ulpscope/kernels/op_call.h"
#include "ulpscope/kernels/output_rounding.h"
#include "ulpscope/kernels/statistics.h"

namespace ulpscope {

// The record to fill in for output `slot`, or nullptr where nothing was asked for.
OutputRecord* wanted_record(const OpCall& call, int slot);

// Stores all values of output `slot`, which is dense, given in the order in which they lie in memory. A slot without memory is only
// recorded, as it would be before rounding.
void store_output(const OpCall& call, int slot, const float* values, const ParallelFor& parallel_for = serial_for);
void store_output(const OpCall& call, int slot, const double* values, const ParallelFor& parallel_for = serial_for);

// Takes the values of a dense output that every operation on the way rounded to its type, f16 or bf16: by blocks of
// kStatisticsBlock, in any order and from any threads. The record says what the roundings made of the values that the same
// operations give without.
class StepwiseOutput {
 public:
  StepwiseOutput(const OpCall& call, int slot);

  // Whether put() is to be given the values without roundings.
  bool recorded() const { return collector_.has_value(); }
  // What became NaN counts as NaN: `wide`, nullptr where nothing is recorded, is overwritten there.
  void put(int64_t block, const float* values, float* wide, int64_t n);
  // Once, after all blocks, from one thread.
  void finish();

 private:
  const TensorView& view_;
  const NarrowFormat& narrow_;
  OutputRecord* record_;
  StepwiseRounding rounding_;
  std::optional<StatisticsCollector> collector_;
  std::mutex mutex_;  // of counts_
  RoundingCounts counts_;
};

// Fills in the record of an output that is stored already and was not rounded on the way, or whose type is an integer.
void record_stored(const OpCall& call, int slot, const ParallelFor& parallel_for = serial_for);

// The same of an output whose values came from its own type: its rounding is known, and lost nothing.
void record_moved(const OpCall& call, int slot, const ParallelFor& parallel_for = serial_for);

}  // namespace ulpscope
