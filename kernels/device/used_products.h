// What a machine's library multiplied so far, and how.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "ulpscope/kernels/backend.h"
#include "ulpscope/kernels/device/gemm.h"

namespace ulpscope::device {

using Alignment = std::array<uint32_t, 3>;  // of a, b and the sums of a product, in bytes

class UsedProducts {
 public:
  // Counts a call of a product, of which this is the place among all. Equal ones differ in the addresses of their matrices alone,
  // and not in their alignment; describe(), a LibraryProduct without calls, is asked for at the first.
  template <class Describe>
  size_t use(const Gemm& gemm, const Alignment& alignment, const Describe& describe) {
    const auto of = [&](const GemmFactor& factor) {
      const int64_t batch_stride = gemm.batches > 1 ? factor.batch_stride : 0;
      return std::array{static_cast<int64_t>(factor.dtype), batch_stride, factor.line_stride, factor.term_stride};
    };
    const Key key{{gemm.batches, gemm.rows, gemm.columns, gemm.terms}, of(gemm.a), of(gemm.b), alignment};
    auto found = places_.find(key);
    if (found == places_.end()) {
      products_.push_back(describe());
      found = places_.emplace(key, products_.size() - 1).first;
    }
    ++products_[found->second].calls;
    return found->second;
  }
  const std::vector<LibraryProduct>& products() const { return products_; }

 private:
  struct Key {
    std::array<int64_t, 4> shape, a, b;
    Alignment alignment;
    auto operator<=>(const Key&) const = default;
  };

  std::vector<LibraryProduct> products_;
  std::map<Key, size_t> places_;
};

}  // namespace ulpscope::device
