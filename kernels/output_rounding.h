// Roundings of outputs by the mode and with the subnormals that a call's arithmetic asks for, and exact counts of what they lost.
#pragma once

#include <cstdint>

#include "ulpscope/emulation/round_array.h"
#include "ulpscope/emulation/tensor_statistics.h"
#include "ulpscope/kernels/counted_rounding.h"
#include "ulpscope/kernels/op_call.h"

namespace ulpscope {

// Subnormals of `dtype` (of up to f32) become zeros of their sign. Returns how many there were.
uint64_t flush_subnormals(DType dtype, void* elements, int64_t n);

// Whether a call reads subnormals of inputs of that type as zero.
bool flushes_input(const OpCall& call, DType dtype);
// Whether it is a product whose FP16 and BF16 factors and results that are subnormal become zero; it may have neither.
bool flushes_narrow_products(const OpCall& call);

// How the values of output `slot` of a call become elements of the type `stored`.
Rounding output_rounding(const OpCall& call, int slot, DType stored);

// Of output `slot` of an update that rounds to the output's type after every operation.
StepwiseRounding stepwise_rounding(const OpCall& call, int slot);
// Throws Error (usage) where a call would do that in another way than to nearest even with subnormals kept.
void check_stepwise(const OpCall& call);

// What a tensor of this format loses where its subnormals are read as zero, and whether `a` lost a larger share than `b`.
InputFlushCounts flush_counts(const FloatFormat& format, const TensorStatistics& statistics);
bool lost_more(const InputFlushCounts& a, const InputFlushCounts& b);

// How the wide values of output `slot` of a call become elements of the type `stored`: f16, bf16, f32, or of FP8, which saturates.
class OutputRounding {
 public:
  OutputRounding(const OpCall& call, int slot, DType stored);

  // False: to nearest even with subnormals kept, as every kernel rounds by itself.
  bool is_special() const { return rounding_.mode != RoundingMode::nearest_even || flushes(); }
  bool flushes() const { return rounding_.subnormals == SubnormalResults::flush; }

  // The elements first, ..., first + n - 1 of the output in memory order, which the random bits of stochastic rounding depend on.
  // FP32 values that stay FP32 are only flushed.
  void round(const float* values, int64_t first, int64_t n, void* elements) const;
  void round(const double* values, int64_t first, int64_t n, void* elements) const;
  // The value that one of them becomes.
  double rounded(double value, int64_t element) const;
  // That rounding of FP32 values, or of FP64 ones, that contain the loss scale `scale`, and its counts.
  CountedRounding counted(double scale, bool of_double = false) const;
  // The random bits of an element of it.
  const RandomStream& random() const { return random_; }
  // What it did. Numbers beyond the largest one that a directed mode keeps at it are those that saturated; those that FP8 keeps at
  // it have overflowed.
  RoundingCounts count(const float* values, int64_t first, int64_t n, const void* elements, double scale) const;
  RoundingCounts count(const double* values, int64_t first, int64_t n, const void* elements, double scale) const;

 private:
  template <typename C>
  void round_all(const C* values, int64_t first, int64_t n, void* elements) const;
  template <typename C>
  RoundingCounts count_all(const C* values, int64_t first, int64_t n, const void* elements, double scale) const;

  DType stored_;
  const FloatFormat& format_;
  Rounding rounding_;
  RandomStream random_;
};

}  // namespace ulpscope
