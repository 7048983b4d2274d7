// The bound on the error of a sum of products, in what its call keeps it in (docs/numerics.md, "Bounds").
#pragma once

#include <cstdint>
#include <optional>

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
  double error() const;

 private:
  void add(const Real& value, bool is_product);
  double in_tensor_cores(const TensorCoreModel& model, double reach) const;

  bool is_any_, in_double_, narrow_, to_float_;
  bool in_order_;  // whether sums run from the first term to the last as the definition has them; those of windows do not
  bool flushes_;
  std::optional<AccumulatedProduct> how_;
  int a_smallest_ = 0, b_smallest_ = 0;  // normal exponents of the factors
  Real exact_;
  double magnitudes_ = 0;  // the sum of |terms|
  double truncated_ = 0;   // what TF32 cuts off
  int64_t terms_ = 0;
  double running_ = 0;  // the error of a sum in 16 bits, in order
  int largest_exponent_;
};

}  // namespace ulpscope::plain
