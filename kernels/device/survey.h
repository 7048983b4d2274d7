// Kernels that read a tensor as it is stored: its counts, its fingerprint, and samples of it.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/device/input.h"
#include "ulpscope/kernels/device/output.h"

namespace ulpscope::device {

struct CountStored {
  Input input;
  Output output;  // without memory

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    put_values(block, output, [this](int64_t i) { return read_stored<Block>(input, i); });
  }
};

// Adds the sum of the bit patterns of `size` elements to *sum, which is zero at first (fingerprint.h).
struct SumBits {
  Input input;
  int64_t size;
  uint64_t* sum;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    uint64_t total = 0;
    for (int64_t i = block.block() * block.threads() + block.thread(); i < size; i += block.blocks() * block.threads())
      total += bits_at(input.elements.offset_of(i));
    // In parts of 16 bits, whose sums over a warp stay below 2^21.
    uint64_t of_warp = 0;
    for (int part = 0; part < 64; part += 16) of_warp += uint64_t{block.sum(static_cast<uint32_t>(total >> part & 0xFFFF))} << part;
    if (block.lane() == 0) block.add(sum, of_warp);
  }

 private:
  ULPSCOPE_DEVICE uint64_t bits_at(int64_t offset) const {
    switch (size_of(input.dtype)) {
      case sizeof(uint8_t):
        return input.at<uint8_t>(offset);
      case sizeof(uint16_t):
        return input.at<uint16_t>(offset);
      case sizeof(uint32_t):
        return input.at<uint32_t>(offset);
      default:
        return input.at<uint64_t>(offset);
    }
  }
};

// values[k] = element k * size / count, one for each thread.
struct TakeSamples {
  Input input;
  int64_t size;
  int count;
  double* values;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    if (block.thread() < count) values[block.thread()] = read_stored<Block, double>(input, block.thread() * size / count);
  }
};

}  // namespace ulpscope::device
