#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "ulpscope/kernels/output_rounding.h"
#include "ulpscope/kernels/plain/bounds_reader.h"
#include "ulpscope/kernels/plain/plain.h"
#include "ulpscope/kernels/plain/twins.h"

namespace ulpscope {

namespace plain {

std::vector<double> values_read(const OpCall& call, size_t input) {
  const TensorView& view = call.inputs[input];
  std::vector<double> values = widen<double>(view);
  if (!is_float(view.dtype) || !flushes_input(call, view.dtype)) return values;
  const double smallest = info(view.dtype).format->smallest_normal();
  for (double& value : values)
    if (std::fabs(value) < smallest) value = std::copysign(0.0, value);
  return values;
}

ElementBound stored_bound(const OpCall& call, int slot, const Real& exact, double error, const FloatFormat& computed,
                          const FloatFormat* held) {
  const auto made = [error](const Real& of, double bound) {
    const double value = of.value();
    return ElementBound{value, of.is_finite() ? (of - Real(value)).value() : 0, bound, error};
  };
  if (!(error < kUnknownBound)) return made(exact, kUnknownBound);
  const DType type = call.outputs[static_cast<size_t>(slot)].dtype;
  const FloatFormat& format = *info(type).format;
  const Rounding rounding = output_rounding(call, slot, type);
  const double largest = format.largest_finite(), size = std::fabs(exact.value());
  if (rounding.overflow == Overflow::saturate && !exact.is_nan() && size > largest)
    return stored_bound(call, slot, Real(exact.is_negative() ? -largest : largest), error, computed, held);
  if (!exact.is_finite()) return made(exact, 0);
  const bool nearest = rounding.mode == RoundingMode::nearest_even || rounding.mode == RoundingMode::nearest_away;
  const double reach = reach_of(exact, error);
  double bound = error + exact.radius();
  if (rounding.overflow != Overflow::saturate && reach >= (nearest ? format.overflow_threshold() : largest)) {
    const bool is_certain = nearest && size / kBoundSlack - bound >= format.overflow_threshold();
    return is_certain ? made(Real(exact.is_negative() ? -HUGE_VAL : HUGE_VAL), 0) : made(exact, kUnknownBound);
  }
  const auto is_within = [](const FloatFormat& narrow, const FloatFormat& wide) {
    return narrow.fraction_bits <= wide.fraction_bits && narrow.smallest_exponent() >= wide.smallest_exponent() &&
           narrow.largest_exponent() <= wide.largest_exponent();
  };
  const bool is_kept = is_within(computed, format) || (held != nullptr && is_within(*held, format));
  if (!is_kept && (bound > 0 || !exact.is_in(format))) bound += ulp(format, reach) * (nearest ? 0.5 : 1);
  const bool flushes = rounding.subnormals == SubnormalResults::flush ||
                       (slot == 0 && flushes_narrow_products(call) && (type == DType::f16 || type == DType::bf16));
  if (flushes && reach - 2 * bound < format.smallest_normal()) bound += format.smallest_normal();
  return made(exact, bound * (bound > 0 ? kBoundSlack : 1));
}

}  // namespace plain

double ElementBound::error_of(double stored) const {
  if (!std::isfinite(exact) || !std::isfinite(stored))
    return stored == exact || (std::isnan(stored) && std::isnan(exact)) ? 0 : HUGE_VAL;
  return std::fabs((stored - exact) - rest);
}

std::vector<ElementBound> bounds_of(const OpCall& call, int slot, std::span<const int64_t> elements) {
  const plain::Twin& twin = plain::twin_of(call);
  if (twin.bounds == nullptr || !is_float(call.outputs[static_cast<size_t>(slot)].dtype)) return {};
  return twin.bounds(call, slot, elements, nullptr);
}

std::vector<ElementBound> bounds_of(const OpCall& call, int slot) {
  std::vector<int64_t> all(static_cast<size_t>(call.outputs[static_cast<size_t>(slot)].size()));
  std::iota(all.begin(), all.end(), int64_t{0});
  return bounds_of(call, slot, all);
}

std::string bound_formula(const OpCall& call, int slot, int64_t element) {
  if (only_moves(call.op)) return "0: elements are moved";
  std::string formula = computes_in_double(call)
                            ? "running error analysis: half an ulp of FP64 an operation, 2^-49 of a function's result"
                            : "running error analysis: half an ulp of FP32 an operation, 2^-32 of a function's result, in FP64";
  plain::twin_of(call).bounds(call, slot, {&element, 1}, &formula);
  return formula;
}

}  // namespace ulpscope
