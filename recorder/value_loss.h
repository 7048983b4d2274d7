// Measures what casts, additions and subtractions lose of the values that they read, by a sample of elements. trace/measure_names.h
// says what each measure is.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ulpscope/kernels/view.h"

namespace ulpscope {

// One measure of an output.
struct ValueMeasure {
  std::string_view name;
  double value = 0;
};

// Whether they are measured in a step of that number: below 8, and in each 16th.
bool measures_value_loss(uint64_t step);

// Some elements of a floating-point tensor, the same ones of all of one shape; or a number, which is no result of a rounding.
struct SampledValues {
  std::vector<float> values;
  DType dtype = DType::f32;
  bool is_number = false;

  double value(size_t i) const { return values[is_number ? 0 : i]; }
  double unit(double value) const;  // in the last place of an element of that value; 0 of a number
};
SampledValues sampled_values(const TensorView& view);

// Measures a + factor b, stored as `sum`, by the same elements of each.
std::vector<ValueMeasure> measure_addition(const SampledValues& a, const SampledValues& b, double factor, const SampledValues& sum);

// Whether a cast may change numbers that are within the range of both types.
bool may_round(DType from, DType to);
// Measures a cast of `from`, which may hold integers, to a floating-point type. Both have one shape, in memory of the host.
// `samples`: so many of the data are behind each other in it; 0: it is no data.
std::vector<ValueMeasure> measure_cast(const TensorView& from, const TensorView& to, int64_t samples = 0);

// Measures whole numbers start, start + step, ... that an op made in a floating-point type.
std::vector<ValueMeasure> measure_range(double start, double step, const TensorView& made);

}  // namespace ulpscope
