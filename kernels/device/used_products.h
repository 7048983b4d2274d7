// What a machine's library multiplied so far, and how.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ulpscope/kernels/backend.h"

namespace ulpscope::device {

class UsedProducts {
 public:
  // Counts a call of a product, of which this is the place among all; its algorithm is asked for at the first.
  template <class Algorithm>
  size_t use(const std::string& product, const Algorithm& algorithm) {
    auto found = places_.find(product);
    if (found == places_.end()) {
      products_.push_back({product, algorithm(), 0});
      found = places_.emplace(product, products_.size() - 1).first;
    }
    ++products_[found->second].calls;
    return found->second;
  }
  const std::vector<LibraryProduct>& products() const { return products_; }

 private:
  std::vector<LibraryProduct> products_;
  std::unordered_map<std::string, size_t> places_;
};

}  // namespace ulpscope::device
