// Values of a tensor, block by block, in the type that is computed in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "ulpscope/recorder/host_tensor.h"

namespace ulpscope {

template <typename Number>
class ValueBlocks {
 public:
  ValueBlocks() = default;  // of no tensor
  explicit ValueBlocks(const TensorView& view) : view_(view), is_direct_(view.dtype == kOwn && is_contiguous(view)) {}

  // The n values from `begin` on, in logical order, valid until it is asked again; nullptr where there is no tensor.
  const Number* at(int64_t begin, int64_t n) {
    if (is_direct_) return view_.as<const Number>() + begin;
    if (view_.data == nullptr) return nullptr;
    if constexpr (std::is_same_v<Number, double>) {
      wide_.resize(static_cast<size_t>(n));
      read_values(view_, begin, n, wide_.data());
      return wide_.data();
    } else {
      wide_.resize(static_cast<size_t>(n));
      values_.resize(static_cast<size_t>(n));
      read_values(view_, begin, n, wide_.data());
      std::transform(wide_.begin(), wide_.end(), values_.begin(), [](double value) { return static_cast<Number>(value); });
      return values_.data();
    }
  }

 private:
  static constexpr DType kOwn = std::is_same_v<Number, float> ? DType::f32 : DType::f64;

  TensorView view_;
  bool is_direct_ = false;
  std::vector<double> wide_;
  std::vector<Number> values_;
};

}  // namespace ulpscope
