#include "ulpscope/emulation/block_format.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "ulpscope/base/error.h"
#include "ulpscope/base/floating_point_mode.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/block_kernel.h"
#include "ulpscope/emulation/error_measures.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

namespace {

// body(block, first, count, stride) for every block in order: its elements are first, first + stride, ...
template <typename Body>
void for_blocks(const BlockAxis& axis, size_t block_size, Body body) {
  size_t block = 0;
  for (size_t outer = 0; outer < axis.outer; ++outer)
    for (size_t inner = 0; inner < axis.inner; ++inner)
      for (size_t begin = 0; begin < axis.length; begin += block_size)
        body(block++, (outer * axis.length + begin) * axis.inner + inner, std::min(block_size, axis.length - begin), axis.inner);
}

// What a block's values reach with the largest scale and element.
double largest_product(const BlockFormat& format) { return format.element->largest_finite() * format.scale->largest_finite(); }

void check_array(const BlockArray& array, const float* values, size_t count) {
  const BlockFormat& format = *array.format;
  const BlockAxis& axis = array.axis;
  if (format.block_size == 0) throw usage_error("{}: expected a block size of at least 1, got 0", format.name);
  for (const FloatFormat* part : {format.element, format.scale})
    if (part->storage_bits() > 8)
      throw usage_error("{}: expected elements and scales of up to 8 bits, got {}, which has {}", format.name, part->name,
                        part->storage_bits());
  if (!format.scale->has_nan())
    throw usage_error("{}: expected scales in a format with NaN, which blocks with NaN or Inf have, got {}", format.name,
                      format.scale->name);
  if (format.has_tensor_scale && largest_product(format) > binary32.largest_finite())
    throw usage_error("{}: a tensor scale is for block scales within the range of fp32, got {}", format.name, format.scale->name);
  size_t size = 0;
  if (__builtin_mul_overflow(axis.outer, axis.length, &size) || __builtin_mul_overflow(size, axis.inner, &size) || size != count)
    throw usage_error("{}: expected {} x {} x {} values, got {}", format.name, axis.outer, axis.length, axis.inner, count);
  if (values == nullptr && count > 0) throw usage_error("{}: {} values at a null pointer", format.name, count);
}

// The same of an array that quantize() has filled.
void check_filled(const BlockArray& array, const float* values, size_t count) {
  check_array(array, values, count);
  const size_t blocks = array.axis.blocks(array.format->block_size);
  if (array.elements.size() != count || array.scales.size() != blocks)
    throw usage_error("{}: expected a quantized array of {} elements and {} scales, got {} and {}", array.format->name, count,
                      blocks, array.elements.size(), array.scales.size());
}

// The largest magnitude of a block; NaN where one of its values is NaN or Inf.
float largest_of(std::span<const float> values, size_t first, size_t count, size_t stride) {
  float largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const float value = values[first + i * stride];
    if (!std::isfinite(value)) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

double scale_of(const BlockFormat& format, float largest, float tensor_scale) {
  // The product is exact, and so is the question whether the quotient of two numbers of so few bits is a power of two, or on which
  // side of one it lies.
  const double most = format.element->largest_finite(), scaled = static_cast<double>(tensor_scale);
  const double quotient = static_cast<double>(largest) / (most * scaled);
  switch (format.rule) {
    case ScaleRule::floor:
      return std::ldexp(1.0, std::ilogb(static_cast<double>(largest) / scaled) - std::ilogb(most));
    case ScaleRule::round_up: {
      const double below = std::ldexp(1.0, std::ilogb(quotient));
      return below < quotient ? 2 * below : below;
    }
    case ScaleRule::nearest:
      break;
  }
  return quotient;
}

uint8_t scale_encoding(const BlockFormat& format, float largest, float tensor_scale) {
  if (std::isnan(largest)) return static_cast<uint8_t>(format.scale->nan_encoding());
  const double scale = largest == 0 ? format.scale->smallest_positive() : scale_of(format, largest, tensor_scale);
  const auto encoding = static_cast<uint8_t>(round_to_encoding(*format.scale, scale, {.overflow = Overflow::saturate}));
  // A divisor of zero would make every element saturate.
  const auto smallest = static_cast<uint8_t>(round_to_encoding(*format.scale, format.scale->smallest_positive()));
  return std::max(encoding, smallest);
}

// By which a block's values are divided: exact, or the FP32 product of two scales.
double divisor_of(const BlockArray& array, size_t block) {
  const double scale = value_of(*array.format->scale, array.scales[block]);
  return array.format->has_tensor_scale ? static_cast<double>(static_cast<float>(scale) * array.tensor_scale) : scale;
}

float value_of_element(const BlockArray& array, size_t element, double divisor) {
  return round_to_f32(value_of(*array.format->element, array.elements[element]) * divisor);
}

// `largest`: largest_of_lanes(values).
float tensor_scale_of(const BlockArray& array, std::span<const float> values, float largest) {
  if (std::isnan(largest)) {
    largest = 0;
    for_blocks(array.axis, array.format->block_size, [&](size_t, size_t first, size_t count, size_t stride) {
      const float of_block = largest_of(values, first, count, stride);
      if (!std::isnan(of_block)) largest = std::max(largest, of_block);
    });
  }
  if (largest == 0) return 1;
  const auto scale = static_cast<float>(static_cast<double>(largest) / largest_product(*array.format));
  return std::max(scale, static_cast<float>(binary32.smallest_positive()));
}

}  // namespace

double QuantizationLoss::signal_to_noise() const { return ulpscope::signal_to_noise(signal, noise); }

const BlockFormat& find_block_format(std::string_view given) {
  const std::string name = lower_case(given);
  std::vector<std::string> names;
  for (const BlockFormat* format : kBlockFormats) {
    if (format->name == name) return *format;
    names.emplace_back(format->name);
  }
  throw usage_error("block format '{}': expected {}{}", one_line(given), join_words(names, "or"), did_you_mean(name, names));
}

void quantize(BlockArray& array, std::span<const float> values, const Rounding& rounding, const RandomStream& random) {
  check_array(array, values.data(), values.size());
  const BlockFormat& format = *array.format;
  array.elements.resize(values.size());
  array.scales.resize(array.axis.blocks(format.block_size));
  const FloatingPointMode mode;
  const float largest = format.has_tensor_scale ? largest_of_lanes(values) : 0;
  array.tensor_scale = format.has_tensor_scale ? tensor_scale_of(array, values, largest) : 1;
  Rounding saturating = rounding;
  saturating.overflow = Overflow::saturate;
  const bool is_stochastic = rounding.mode == RoundingMode::stochastic;
  const bool is_plain = rounding.mode == RoundingMode::nearest_even && rounding.subnormals == SubnormalResults::keep;
  const bool lie_together = array.axis.inner == 1 && (array.axis.outer == 1 || array.axis.length % format.block_size == 0);
  const size_t done =
      is_plain && lie_together ? quantize_lanes(array, values, largest, array.elements.data(), array.scales.data()) : 0;
  if (done == array.scales.size()) return;
  for_blocks(array.axis, format.block_size, [&](size_t block, size_t first, size_t count, size_t stride) {
    if (block < done) return;
    array.scales[block] = scale_encoding(format, largest_of(values, first, count, stride), array.tensor_scale);
    const double divisor = divisor_of(array, block);
    for (size_t i = first; count > 0; --count, i += stride) {
      const uint32_t bits = is_stochastic ? random_bits_of(random, i) : 0;
      // FP64 holds the quotient by a power of two. That of 24-bit numbers that is not halfway between two elements, which have few
      // bits, differs from it by more than FP64's rounding.
      // Zeros stay as they are by a divisor that is zero as well.
      const auto value = static_cast<double>(values[i]);
      const double quotient = std::isnan(divisor) ? 0 : value == 0 ? value : value / divisor;
      array.elements[i] = static_cast<uint8_t>(round_to_encoding(*format.element, quotient, saturating, bits));
    }
  });
}

void dequantize(const BlockArray& array, std::span<float> values) {
  check_filled(array, values.data(), values.size());
  const FloatingPointMode mode;
  for_blocks(array.axis, array.format->block_size, [&](size_t block, size_t first, size_t count, size_t stride) {
    const double divisor = divisor_of(array, block);
    for (size_t i = first; count > 0; --count, i += stride) values[i] = value_of_element(array, i, divisor);
  });
}

QuantizationLoss loss_of(const BlockArray& array, std::span<const float> values) {
  check_filled(array, values.data(), values.size());
  const FloatingPointMode mode;
  const FloatFormat& element = *array.format->element;
  QuantizationLoss loss;
  loss.elements = values.size();
  for_blocks(array.axis, array.format->block_size, [&](size_t block, size_t first, size_t count, size_t stride) {
    const double divisor = divisor_of(array, block);
    if (std::isnan(divisor)) {
      ++loss.nonfinite_blocks;
      return;
    }
    for (size_t i = first; count > 0; --count, i += stride) {
      const double before = static_cast<double>(values[i]), number = value_of(element, array.elements[i]);
      const double after = static_cast<double>(value_of_element(array, i, divisor)), error = std::fabs(after - before);
      loss.inexact += error != 0;
      loss.saturated += divisor > 0 && std::fabs(before) > element.largest_finite() * divisor;
      loss.flushed += after == 0 && before != 0;
      loss.subnormal += after != 0 && std::fabs(number) < element.smallest_normal();
      loss.signal += before * before;
      loss.noise += error * error;
      loss.largest_error = std::max(loss.largest_error, error);
    }
  });
  return loss;
}

}  // namespace ulpscope
