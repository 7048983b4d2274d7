// Counts what arrives of the terms b that are added to a running sum a in 16 bits: a' = round(a + b), over and over, as the
// gradients of micro-batches are. Once a is 2^p times as large as b, p the bits of its significand, b is below half its last place
// and lost.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ulpscope/kernels/view.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

class TraceSink;

// Whether it is FP16 or BF16: FP32 loses as much of sums of 2^24 terms, which nobody has.
bool loses_terms(DType stored);

// So many elements of a larger tensor are looked at: runs of neighbours, evenly spaced in logical order, the same ones in each
// addition of a sum.
inline constexpr int64_t kMostSummed = 4096;
// Reads their values, or those of `most` elements, a multiple of 16, FP64 ones rounded to FP32.
std::vector<float> summed_values(const TensorView& view, int64_t most = kMostSummed);

// Counts a' = round(a + factor b), by values of the same elements.
SumCounts count_sum(std::span<const float> before, std::span<const float> addend, double factor, std::span<const float> after);

// The rows of a step.
class SumsOfStep {
 public:
  // `tensor`: the index in the trace's tensor table.
  void add(uint32_t tensor, const SumCounts& counts);
  size_t size() const { return rows_.size(); }
  void clear() { rows_.clear(); }
  void write(uint64_t step, TraceSink& sink);

 private:
  std::map<uint32_t, SumRow> rows_;
};

}  // namespace ulpscope
