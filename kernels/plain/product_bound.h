// The bound on the error of a sum of products, in what its call keeps it in (docs/numerics.md, "Bounds").
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ulpscope/emulation/real.h"
#include "ulpscope/kernels/product_arithmetic.h"

namespace ulpscope::plain {

class ProductBound {
 public:
  explicit ProductBound(const OpCall& call);

  // Whether the call is a product at all.
  bool is_any() const { return is_any_; }
  void product(const Real& a, const Real& b);
  void term(const Real& value);  // one that is added as it is, as a bias

  const Real& exact() const { return exact_; }
  // On |sum - exact()|; Inf where nothing is known.
  double error() const { return bound().error; }
  std::string formula() const { return bound().formula; }
  // The format that the sum is a number of, where that is narrower than what computes with it; nullptr: none.
  const FloatFormat* held() const { return has_bias_ ? nullptr : narrow(); }

 private:
  struct Bound {
    double error;
    std::string formula;
  };
  Bound bound() const;
  Bound summed(double unit, const char* unit_text, double tiny, double largest) const;
  Bound narrow_sum() const;
  Bound in_tensor_cores() const;

  const FloatFormat* narrow() const { return how_ ? how_->narrow : nullptr; }
  void add(const Real& value, bool is_product);

  bool is_any_, in_double_;
  std::optional<AccumulatedProduct> how_;  // nothing: FP32, or FP64
  bool factors_are_narrow_ = false;        // of 16 bits or fewer, so that their products are exact in FP32
  bool is_rounded_ = false;                // sums in FP64, and exact ones, become FP32 numbers
  bool rounds_to_nearest_ = true;          // then
  bool in_order_ = false;  // whether sums run from the first term to the last as the definition has them; those of windows do not
  bool flushes_[2] = {};   // factors that are subnormal
  int smallest_[2] = {};   // normal exponents of the factors
  bool cuts_to_tf32_ = false;

  Real exact_;
  double magnitudes_ = 0;  // the sum of |terms|
  double cut_ = 0;         // what factors lose that are cut to TF32, or flushed
  int64_t terms_ = 0;      // with the bias
  bool has_bias_ = false;
  double running_ = 0;    // the error of a sum in 16 bits, in order
  int largest_exponent_;  // of a product's factors together
};

}  // namespace ulpscope::plain
