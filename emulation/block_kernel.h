// The vector loops of block_format.h: to nearest even, of blocks that lie together in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ulpscope/emulation/block_format.h"

namespace ulpscope {

// Scales that are powers of two, for the vector loop.
struct PowerScales {
  size_t block_size;
  uint32_t element_exponent;  // of the largest element
  uint32_t rounded_up_from;   // fractions from here on take the next scale; 2^23: none
};

// Quantizes the whole blocks at the beginning of `values` as quantize() does, and says how many; none where there is no loop for
// the format. Of formats with a tensor scale, `largest` is largest_of_lanes(values).
size_t quantize_lanes(const BlockArray& array, std::span<const float> values, float largest, uint8_t* elements, uint8_t* scales);

// The largest magnitude of `values`, or NaN where one of them is not finite.
float largest_of_lanes(std::span<const float> values);

}  // namespace ulpscope
