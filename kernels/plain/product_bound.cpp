#include "ulpscope/kernels/plain/product_bound.h"

#include <fmt/format.h>

#include <cmath>

#include "ulpscope/kernels/output_rounding.h"
#include "ulpscope/kernels/plain/bounded.h"

namespace ulpscope::plain {

namespace {

double gamma(int64_t roundings, double unit) {
  const double product = static_cast<double>(roundings) * unit;
  return product < 1 ? product / (1 - product) : kUnknownBound;
}

}  // namespace

ProductBound::ProductBound(const OpCall& call) : is_any_(is_product(call.op)), in_double_(computes_in_double(call)) {
  if (!is_any_) return;
  if (!in_double_) how_ = accumulated_product(call);
  largest_exponent_ = how_ && how_->core ? how_->core->model->zero_exponent : 0;
  const DType types[] = {call.inputs[0].dtype, call.inputs[1].dtype};
  factors_are_narrow_ = info(types[0]).size <= 2 && info(types[1]).size <= 2;
  in_order_ = call.op == "matmul" || call.op == "linear" || call.op == "scaled_matmul";
  for (int i = 0; i < 2; ++i) {
    flushes_[i] = flushes_narrow_products(call) && (types[i] == DType::f16 || types[i] == DType::bf16);
    smallest_[i] = info(types[i]).format->smallest_normal_exponent();
  }
  if (!how_) return;
  cuts_to_tf32_ = how_->core && how_->factors[0] == DType::f32;
  const RoundingMode mode = output_rounding(call, 0, DType::f32).mode;
  is_rounded_ = how_->is_scaled || call.outputs[0].dtype == DType::f32;
  rounds_to_nearest_ = how_->is_scaled || mode == RoundingMode::nearest_even || mode == RoundingMode::nearest_away;
}

void ProductBound::add(const Real& value, bool is_product) {
  exact_ = exact_ + value;
  magnitudes_ = (magnitudes_ + reach_of(value, 0)) * (1 + 0x1p-52);
  ++terms_;
  if (narrow() == nullptr || !in_order_) return;
  // A bias is added in FP32.
  const FloatFormat& kept = is_product ? *narrow() : binary32;
  const double reach = reach_of(exact_, running_);
  running_ = reach < kept.overflow_threshold() ? (running_ + ulp(kept, reach) / 2) * kBoundSlack : kUnknownBound;
}

void ProductBound::product(const Real& a, const Real& b) {
  const Real value = a * b;
  add(value, true);
  const Real* const factors[] = {&a, &b};
  for (int i = 0; i < 2; ++i) {
    const Real &factor = *factors[i], &other = *factors[1 - i];
    if (cuts_to_tf32_) cut_ += (0x1p-10 + 0x1p-21) * reach_of(value, 0) + 0x1p-136 * reach_of(other, 0);
    if (flushes_[i] && !factor.is_zero() && std::fabs(factor.value()) < std::ldexp(1, smallest_[i])) cut_ += reach_of(value, 0);
  }
  if (!how_ || !how_->core || value.is_zero() || !value.is_finite()) return;
  const auto exponent = [&](int i) { return std::max(std::ilogb(factors[i]->value()), smallest_[i]); };
  largest_exponent_ = std::max(largest_exponent_, exponent(0) + exponent(1));
}

void ProductBound::term(const Real& value) {
  add(value, false);
  has_bias_ = true;
}

// In any order.
ProductBound::Bound ProductBound::summed(double unit, const char* unit_text, double tiny, double largest) const {
  const int64_t roundings = terms_ - (factors_are_narrow_ ? 1 : 0);
  const double bound = gamma(roundings, unit) * magnitudes_ + static_cast<double>(terms_) * tiny;
  return {magnitudes_ + bound < largest ? bound * kBoundSlack : kUnknownBound,
          fmt::format("gamma_{}({}) S, S = sum |terms| = {:.4g}", roundings, unit_text, magnitudes_)};
}

ProductBound::Bound ProductBound::narrow_sum() const {
  const FloatFormat& kept = *narrow();
  const double unit = kept.epsilon() / 2;
  const int power = -kept.fraction_bits - 1;
  const std::string bias = has_bias_ ? ", and of the bias in FP32" : "";
  if (in_order_)
    return {running_, fmt::format("over {} products half an ulp of {} at |partial sum| + the error so far{}",
                                  terms_ - (has_bias_ ? 1 : 0), kept.name, bias)};
  const double growth = std::expm1(static_cast<double>(terms_) * std::log1p(unit));
  const double bound = magnitudes_ * growth + (1 + growth) * static_cast<double>(terms_) * kept.smallest_positive() / 2;
  return {magnitudes_ + bound < kept.overflow_threshold() ? bound * kBoundSlack : kUnknownBound,
          fmt::format("((1 + 2^{})^{} - 1) S, S = sum |terms| = {:.4g}, in any order", power, terms_, magnitudes_)};
}

// In each block every term is cut off below 2^e_max, and the sum is converted once.
ProductBound::Bound ProductBound::in_tensor_cores() const {
  const TensorCoreModel& model = *how_->core->model;
  const int exponent = std::max(largest_exponent_, magnitudes_ > 0 ? std::ilogb(magnitudes_) : model.zero_exponent);
  const bool nearest = model.rounding == RoundingMode::nearest_even;
  const double unit = std::ldexp(nearest ? 0.5 : 1, -model.conversion->fraction_bits);
  const double cut = static_cast<double>(model.products + 1) * std::ldexp(1, exponent - model.fraction_bits);
  const double converted = unit * magnitudes_ + model.output->smallest_positive();
  // A block more where terms of the padding come in between, and conversions more where C, and where the bias is added last.
  const auto blocks = static_cast<double>((terms_ + model.products - 1) / model.products + 1);
  const double conversions = blocks * (model.adds_c_last ? 2 : 1) + (has_bias_ ? 1 : 0);
  const double bound = blocks * cut + conversions * converted;
  return {
      magnitudes_ + bound < model.output->largest_finite() ? bound * kBoundSlack : kUnknownBound,
      fmt::format("{} blocks of {} products: {} * 2^({} - {}) each, and {} conversions: {:.3g} S each, S = sum |terms| = {:.4g}",
                  blocks, model.products, model.products + 1, exponent, model.fraction_bits, conversions, unit, magnitudes_)};
}

ProductBound::Bound ProductBound::bound() const {
  if (!exact_.is_finite()) return {kUnknownBound, "nothing is known of sums that are not finite"};
  if (terms_ == 0) return {0, "there are no terms"};
  Bound found;
  switch (how_ ? how_->accumulator : Accumulator::fp32) {
    case Accumulator::fp32:
      found = in_double_ ? summed(0x1p-53, "2^-53", 0x1p-1074, binary64.largest_finite())
                         : summed(0x1p-24, "2^-24", 0x1p-150, binary32.largest_finite());
      break;
    case Accumulator::narrow:
      found = narrow_sum();
      break;
    case Accumulator::fp64:
      found = summed(0x1p-53, "2^-53", 0x1p-1074, binary64.largest_finite());
      break;
    case Accumulator::exact:
      found = {0, "the sum is exact"};
      break;
    case Accumulator::tensor_core:
      found = in_tensor_cores();
      break;
  }
  if (cut_ > 0) {
    found.error += cut_ * (1 + static_cast<double>(terms_) * 0x1p-7) * kBoundSlack;
    found.formula += fmt::format(", and {:.3g} of factors that are cut or flushed", cut_);
  }
  const bool in_fp64 = how_ && (how_->accumulator == Accumulator::fp64 || how_->accumulator == Accumulator::exact);
  if (in_fp64 && is_rounded_ && found.error < kUnknownBound) {
    const double reach = reach_of(exact_, found.error);
    found.error += ulp(binary32, reach) * (rounds_to_nearest_ ? 0.5 : 1);
    if (reach >= binary32.largest_finite()) found.error = kUnknownBound;
    found.formula += rounds_to_nearest_ ? ", and half an ulp of FP32" : ", and an ulp of FP32";
  }
  return found;
}

}  // namespace ulpscope::plain
