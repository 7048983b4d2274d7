#include "ulpscope/analyzers/totals/rounding_bound.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {

namespace {

constexpr double kUnitOfSums = 0x1p-24;  // FP32

double unit_of(DType dtype) { return std::ldexp(1.0, -info(dtype).format->fraction_bits - 1); }

// The sum of k roundings.
std::optional<double> gamma(double k) {
  const double error = k * kUnitOfSums;
  if (error >= 1) return std::nullopt;
  return error / (1 - error);
}

// Whether each result is the rounding of one exact operation on FP32 numbers, so that two of them are a rounding apart each.
bool is_rounded_once(OpFunction function) {
  switch (function) {
    case OpFunction::cast:
    case OpFunction::copy:
    case OpFunction::add:
    case OpFunction::sub:
    case OpFunction::mul:
    case OpFunction::div:
    case OpFunction::neg:
    case OpFunction::scale:
    case OpFunction::abs:
    case OpFunction::sqrt:
    case OpFunction::relu:
    case OpFunction::relu_backward:
    case OpFunction::maximum:
    case OpFunction::minimum:
    case OpFunction::accumulate:
      return true;
    default:
      return false;
  }
}

// The most that the sums of products may be off, each of two results.
std::optional<double> error_of_product(const OpInfo& op, const TensorNorms& result,
                                       std::span<const std::optional<TensorNorms>> inputs) {
  const std::optional<ProductShape> shape = ProductShape::of(op.product);
  if (!shape || shape->k <= 0 || shape->n <= 0 || inputs.size() < 2 || !inputs[0] || !inputs[1]) return std::nullopt;
  double k = 0, read_again = 1;
  if (op.function == OpFunction::matmul || op.function == OpFunction::linear) {
    k = static_cast<double>(shape->k);
    if (static_cast<double>(shape->m * shape->n * shape->batch) != result.elements) return std::nullopt;
  } else if (op.function == OpFunction::convolution) {
    // The weights of an output channel, or with groups of several; no element is read more often in one channel than these are.
    k = inputs[1]->elements / static_cast<double>(shape->n);
    read_again = std::sqrt(k);
  } else {
    return std::nullopt;
  }
  const std::optional<double> error = gamma(k + 1);
  if (!error) return std::nullopt;
  double terms = inputs[0]->most * inputs[1]->most * read_again;
  if (inputs.size() > 2) {
    if (!reads_as(op.function, 2, Meaning::bias) || !inputs[2] || inputs[2]->elements == 0) return std::nullopt;
    terms += inputs[2]->most * std::sqrt(result.elements / inputs[2]->elements);  // for each row, or each place of a channel
  }
  return *error * terms;
}

// The most that sums of as many elements each may be off.
std::optional<double> error_of_sum(const OpInfo& op, const TensorNorms& result,
                                   std::span<const std::optional<TensorNorms>> inputs) {
  if (inputs.size() != 1 || !inputs[0] || result.elements == 0) return std::nullopt;
  const double terms = inputs[0]->elements / result.elements;
  if (terms <= 1) return std::nullopt;  // sums of all elements up to each
  const std::optional<double> error = gamma(terms + 1);
  if (!error) return std::nullopt;
  return *error * std::sqrt(terms) * inputs[0]->most / (op.function == OpFunction::mean ? terms : 1);
}

}  // namespace

std::optional<TensorNorms> TensorNorms::of(const TensorRow& row, DType dtype) {
  if (row.known != StatisticsLevel::values || stored_nonfinite(row, dtype) > 0) return std::nullopt;
  const TensorStatistics& of = row.statistics;
  const double elements = static_cast<double>(of.count), norm = std::sqrt(of.sum_of_squares);
  const FloatFormat& format = *info(dtype).format;
  const double raised = row.before_rounding ? unit_of(dtype) * norm + std::sqrt(elements) * format.smallest_positive() / 2 : 0;
  return TensorNorms{elements, norm, norm + raised, of.sum, of.largest};
}

double TensorNorms::least_distance(const TensorNorms& other) const {
  const double by_sum = elements > 0 ? std::fabs(sum - other.sum) / std::sqrt(elements) : 0;
  return std::max({std::fabs(norm - other.norm), by_sum, std::fabs(largest - other.largest)});
}

std::optional<double> rounding_bound(const OpInfo& op, const TensorInfo& tensor, const TensorNorms& result,
                                     std::span<const std::optional<TensorNorms>> inputs) {
  const bool is_known_type = tensor.dtype == DType::f32 || tensor.dtype == DType::f16 || tensor.dtype == DType::bf16;
  const bool is_plain = tensor.rounding == RoundingMode::nearest_even && !tensor.flushes_results && !tensor.flushes_inputs &&
                        !tensor.flushes_narrow_products;
  const auto has = [&](std::string_view attribute) { return op.attributes.find(attribute) != std::string::npos; };
  if (!is_known_type || !is_plain || has("alpha=") || has("beta=") || has("rounding_mode=")) return std::nullopt;
  std::optional<double> error;
  if (is_rounded_once(op.function)) {
    error = kUnitOfSums * result.norm;
  } else if (semantics_of(op.function).product != ProductKind::none) {
    error = error_of_product(op, result, inputs);
  } else if (op.function == OpFunction::sum || op.function == OpFunction::mean) {
    error = error_of_sum(op, result, inputs);
  }
  if (!error) return std::nullopt;
  const FloatFormat& format = *info(tensor.dtype).format;
  // Each of the two has the error of its sums, of rounding to the type, and below its normal range half of the smallest number. The
  // exact norm is at most what was stored and these errors.
  const double unit = unit_of(tensor.dtype), subnormal = std::sqrt(result.elements) * format.smallest_positive() / 2;
  const double exact = (result.norm + *error + subnormal) / (1 - unit);
  return 2 * (*error + unit * exact + subnormal);
}

}  // namespace ulpscope
