// The fewest of something that it takes, where each trial costs much.
#pragma once

#include <algorithm>
#include <cstddef>

namespace ulpscope {

// The least number above `too_few` for which `is_enough` holds: it does for `enough`, and for each number above one for which it
// does. Few are tried first, in steps that double, and then halves. Where `goes_on`, which is asked before each trial, says no:
// what is known to be enough by then.
template <typename GoesOn, typename IsEnough>
size_t fewest(size_t too_few, size_t enough, GoesOn&& goes_on, IsEnough&& is_enough) {
  for (size_t more = 1; too_few + 1 < enough && goes_on();) {
    const size_t tried = too_few + std::min(more, (enough - too_few) / 2);
    if (is_enough(tried)) {
      enough = tried;
    } else {
      too_few = tried;
      more *= 2;
    }
  }
  return enough;
}

}  // namespace ulpscope
