// Fingerprints of tensors (Fingerprint, statistics.h): what changes one bit of a tensor changes its fingerprint, and its layout
// does not matter.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ulpscope/base/parallel_for.h"
#include "ulpscope/kernels/op_call.h"
#include "ulpscope/kernels/view.h"

namespace ulpscope {

// Of n elements of 1, 2, 4 or 8 bytes.
uint64_t fingerprint_of(const void* elements, int64_t n, size_t element_bytes);
// Of a view.
uint64_t fingerprint_of(const TensorView& view, const ParallelFor& parallel_for = serial_for);
// The same, element by element.
uint64_t reference_fingerprint(const TensorView& view);

// Those that a call wants of its inputs and outputs and that are not known yet: before it changes what it reads, and after it.
void sum_inputs(const OpCall& call, const ParallelFor& parallel_for = serial_for);
void sum_outputs(const OpCall& call, const ParallelFor& parallel_for = serial_for);

// The view without the repeats of elements that strides of 0 are.
TensorView without_repeats(TensorView view);

}  // namespace ulpscope
