#include "ulpscope/kernels/plain/product_bound.h"

#include <cmath>

#include "ulpscope/emulation/error_measures.h"
#include "ulpscope/kernels/output_rounding.h"
#include "ulpscope/kernels/plain/bounds_reader.h"

namespace ulpscope::plain {

namespace {

constexpr double kUnknown = HUGE_VAL;

double gamma(int64_t roundings, double unit) {
  const double product = static_cast<double>(roundings) * unit;
  return product < 1 ? product / (1 - product) : kUnknown;
}

bool is_below_normal(const Real& x, int smallest_exponent) {
  return !x.is_zero() && std::fabs(x.value()) < std::ldexp(1, smallest_exponent);
}

}  // namespace

ProductBound::ProductBound(const OpCall& call)
    : is_any_(is_product(call.op)),
      in_double_(computes_in_double(call)),
      narrow_(is_any_ && info(call.inputs[0].dtype).size <= 2 && info(call.inputs[1].dtype).size <= 2),
      to_float_(call.outputs[0].dtype == DType::f32),
      in_order_(call.op == "matmul" || call.op == "linear" || call.op == "scaled_matmul"),
      flushes_(is_any_ && flushes_narrow_products(call)),
      how_(accumulated_product(call)),
      largest_exponent_(how_ && how_->core ? how_->core->model->zero_exponent : 0) {
  if (!is_any_) return;
  const auto smallest = [&](int input) {
    return info(call.inputs[static_cast<size_t>(input)].dtype).format->smallest_normal_exponent();
  };
  a_smallest_ = smallest(0);
  b_smallest_ = smallest(1);
}

void ProductBound::add(const Real& value, bool is_product) {
  exact_ = exact_ + value;
  magnitudes_ += std::fabs(value.value()) * (1 + 0x1p-50);
  ++terms_;
  if (how_ && how_->narrow != nullptr && in_order_) {
    const FloatFormat& kept = is_product ? *how_->narrow : binary32;
    const double reach = std::fabs(exact_.value()) + running_;
    running_ = reach < kept.overflow_threshold() ? running_ + kept.epsilon() / 2 * reach + kept.smallest_positive() / 2 : kUnknown;
  }
}

void ProductBound::product(const Real& a, const Real& b) {
  if (flushes_ && (is_below_normal(a, a_smallest_) || is_below_normal(b, b_smallest_))) running_ = kUnknown;
  const Real value = a * b;
  add(value, true);
  if (!how_ || !how_->core || value.is_zero() || !value.is_finite()) return;
  const auto exponent = [](const Real& x, int smallest) { return std::max(std::ilogb(x.value()), smallest); };
  largest_exponent_ = std::max(largest_exponent_, exponent(a, a_smallest_) + exponent(b, b_smallest_));
  if (!narrow_) truncated_ += std::fabs(value.value()) * (0x1p-9 + 0x1p-20);
}

// A bias is added in FP32.
void ProductBound::term(const Real& value) { add(value, false); }

// In each block every term is cut off below 2^e_max, and the sum is converted once.
double ProductBound::in_tensor_cores(const TensorCoreModel& model, double reach) const {
  const int exponent = std::max(largest_exponent_, reach > 0 ? std::ilogb(reach) : model.zero_exponent);
  const double unit = std::ldexp(model.rounding == RoundingMode::nearest_even ? 0.5 : 1, -model.conversion->fraction_bits);
  const double cut = static_cast<double>(model.products + 1) * std::ldexp(1, exponent - model.fraction_bits);
  const double converted = unit * reach + model.output->smallest_positive();
  const auto blocks = static_cast<double>((terms_ + model.products - 1) / model.products + 2);
  if (reach * (1 + blocks * unit) + blocks * cut >= model.output->largest_finite()) return kUnknown;
  // Where C is added last, and where the bias is, there is a rounding more.
  return blocks * (cut + converted) + 2 * converted;
}

double ProductBound::error() const {
  if (!exact_.is_finite()) return running_ < kUnknown ? 0 : kUnknown;
  if (terms_ == 0 || !(running_ < kUnknown)) return running_;
  const double reach = magnitudes_;
  // A sum in FP64, or an exact one, becomes FP32 where that is stored.
  const double stored = to_float_ ? 0x1p-24 * reach + binary32.smallest_positive() : 0;
  const auto summed = [&](double unit, double tiny, double largest) {
    // Products of narrow numbers are exact, unless they are below the range.
    const double bound = gamma(terms_ - (narrow_ ? 1 : 0), unit) * reach + static_cast<double>(terms_) * tiny;
    return reach + bound < largest ? bound : kUnknown;
  };
  switch (how_ ? how_->accumulator : Accumulator::fp32) {
    case Accumulator::fp32:
      return in_double_ ? summed(0x1p-53, 0x1p-1074, binary64.largest_finite())
                        : summed(0x1p-24, 0x1p-150, binary32.largest_finite());
    case Accumulator::narrow: {
      if (in_order_) return running_;
      const FloatFormat& kept = *how_->narrow;
      const double bound = reach * std::expm1(static_cast<double>(terms_) * std::log1p(kept.epsilon() / 2)) +
                           static_cast<double>(terms_) * kept.smallest_positive() / 2;
      return reach + bound < kept.overflow_threshold() ? bound : kUnknown;
    }
    case Accumulator::fp64:
      return summed(0x1p-53, 0x1p-1074, binary32.largest_finite()) + stored;
    case Accumulator::exact:
      return stored;
    case Accumulator::tensor_core:
      return in_tensor_cores(*how_->core->model, reach) + truncated_;
  }
  return kUnknown;
}

ElementBound stored_bound(const OpCall& call, int slot, const Real& exact, double error, const FloatFormat& computed) {
  if (!(error < kUnknown)) return {exact, kUnknown, error};
  if (!exact.is_finite()) return {exact};
  const DType type = call.outputs[static_cast<size_t>(slot)].dtype;
  const FloatFormat& format = *info(type).format;
  const Rounding rounding = output_rounding(call, slot, type);
  const bool nearest = rounding.mode == RoundingMode::nearest_even || rounding.mode == RoundingMode::nearest_away;
  const double reach = std::fabs(exact.value()) + error;
  double bound = error + exact.radius();
  if (format.fraction_bits < computed.fraction_bits) {
    if (reach >= (nearest ? format.overflow_threshold() : format.largest_finite())) return {exact, kUnknown, error};
    if (bound > 0 || !exact.is_in(format)) bound += ulp(format, reach) * (nearest ? 0.5 : 1);
  } else if (reach > format.largest_finite()) {
    return {exact, kUnknown, error};
  }
  if (rounding.subnormals == SubnormalResults::flush && reach - 2 * bound < format.smallest_normal())
    bound += format.smallest_normal();
  return {exact, bound, error};
}

}  // namespace ulpscope::plain
