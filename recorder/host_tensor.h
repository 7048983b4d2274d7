// Tensors of the host's memory that producers describe, of any rank, and what is counted of them: what a cast, an update and an
// addition did.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "ulpscope/kernels/statistics.h"
#include "ulpscope/kernels/view.h"
#include "ulpscope/recorder/running_sum.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

// A tensor of the host's memory, of any rank. `data` may be nullptr where its statistics are given.
struct HostTensor {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::span<const int64_t> shape = {};
  std::span<const int64_t> strides = {};  // in elements; empty: contiguous
};
// The tensor with at most kMaxRank dimensions: those that lie behind each other are one. Throws Error (usage) where there are more,
// of a negative extent or stride, and of more elements than a trace can have.
TensorView folded(const HostTensor& tensor);
// How many elements a tensor of the shape has. Throws as folded() does.
int64_t elements_in(std::span<const int64_t> shape);
std::string shape_text(std::span<const int64_t> shape);  // "[2, 3]"
// The n values from `begin` on, in logical order, as FP64.
void read_values(const TensorView& view, int64_t begin, int64_t n, double* out);

// An update of a parameter w. All have one shape.
struct HostUpdate {
  double learning_rate = kUnknown;
  HostTensor before, after;
  std::optional<HostTensor> gradient = {};  // as the update read it; nothing: not known
  std::optional<HostTensor> update = {};    // d as it was asked for, FP32 or FP64; nothing: after - before
};
UpdateCounts count_update(const HostUpdate& update);

// Counts a' = round(a + factor b), all of one shape.
SumCounts count_addition(const HostTensor& before, const HostTensor& addend, double factor, const HostTensor& after);

// Tells what a cast of `from` to `to`, its values in FP16 or BF16, did: the statistics of the values before and the counts of the
// rounding. Where it did not round to the nearest value the counts are unknown, and the statistics those of `to`. `scale`: the loss
// scale that the values contain.
OutputRecord count_cast(const HostTensor& from, const HostTensor& to, double scale);

}  // namespace ulpscope
