// Which elements dropout keeps.
#pragma once

#include <cstdint>

#include "ulpscope/base/philox.h"
#include "ulpscope/kernels/op_call.h"

namespace ulpscope {

// Attributes: p, the share that is dropped, and seed and stream (docs/ops.md), which decide together with an element's logical
// index.
class Dropout {
 public:
  explicit Dropout(const Attributes& attributes)
      : random_(static_cast<uint64_t>(attributes["seed"]), static_cast<uint64_t>(attributes["stream"])),
        p_(attributes["p"]),
        kept_(p_ < 1 ? 1 / (1 - p_) : 0) {}

  // 1 / (1 - p) for a kept element, else 0.
  constexpr double factor(uint64_t element) const { return factor_of(random_.bits(element)); }

  // Those of the elements first, ..., first + n - 1 in FP32; first is a multiple of 4.
  void factors(uint64_t first, int64_t n, float* out) const {
    for (int64_t begin = 0; begin < n; begin += 4) {
      const auto bits = random_.four_bits((first + static_cast<uint64_t>(begin)) / 4);
      for (int64_t i = begin; i < n && i < begin + 4; ++i)
        out[i] = static_cast<float>(factor_of(bits[static_cast<size_t>(i - begin)]));
    }
  }

 private:
  constexpr double factor_of(uint32_t bits) const { return Philox::uniform_of(bits) >= p_ ? kept_ : 0; }

  Philox random_;
  double p_, kept_;
};

}  // namespace ulpscope
