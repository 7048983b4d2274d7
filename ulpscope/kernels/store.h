// How wide values become an output: rounded once into its type, with the counts and statistics that the call asks for.
#pragma once

#include "ulpscope/kernels/op_call.h"
#include "ulpscope/kernels/statistics.h"

namespace ulpscope {

// The record to fill in for output `slot`, or nullptr where nothing was asked for.
OutputRecord* wanted_record(const OpCall& call, int slot);

// Stores all values of output `slot`, which is dense, given in the order in which they lie in memory. A slot without memory is only
// recorded, as it would be before rounding.
void store_output(const OpCall& call, int slot, const float* values, const ParallelFor& parallel_for = serial_for);
void store_output(const OpCall& call, int slot, const double* values, const ParallelFor& parallel_for = serial_for);

// Stores values of output `slot` that every operation on the way rounded to its type, f16 or bf16. `wide` are those that the same
// operations give without: the record says what the roundings made of them. What became NaN counts as NaN.
void store_stepwise(const OpCall& call, int slot, const float* values, const float* wide);

// Fills in the record of an output that is stored already and was not rounded on the way, or whose type is an integer.
void record_stored(const OpCall& call, int slot, const ParallelFor& parallel_for = serial_for);

// The same of an output whose values came from its own type: its rounding is known, and lost nothing.
void record_moved(const OpCall& call, int slot, const ParallelFor& parallel_for = serial_for);

}  // namespace ulpscope
