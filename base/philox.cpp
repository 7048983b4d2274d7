#include "ulpscope/base/philox.h"

#include <cmath>
#include <numbers>

namespace ulpscope {

template <int kRounds>
double PhiloxStream<kRounds>::normal(uint64_t element) const {
  // u in (0, 1], so that the logarithm is finite.
  const double u = (static_cast<double>(bits(2 * element)) + 1.0) * 0x1p-32;
  const double v = static_cast<double>(bits(2 * element + 1)) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

template class PhiloxStream<10>;

}  // namespace ulpscope
