// Kernels that read a tensor as it is stored: its counts, its fingerprint, the hash of its bits, and samples of it.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/bit_hash.h"
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

ULPSCOPE_DEVICE inline uint64_t bits_at(const Input& input, int64_t offset) {
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

// Modulo 2^64, in parts of 16 bits, whose sums over a warp stay below 2^21.
template <class Block>
ULPSCOPE_DEVICE uint64_t sum_over_warp(Block& block, uint64_t value) {
  uint64_t sum = 0;
  for (int part = 0; part < 64; part += 16) sum += uint64_t{block.sum(static_cast<uint32_t>(value >> part & 0xFFFF))} << part;
  return sum;
}

// Adds the sum of the bit patterns of `size` elements to *sum, which is zero at first (fingerprint.h).
struct SumBits {
  Input input;
  int64_t size;
  uint64_t* sum;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    uint64_t total = 0;
    for (int64_t i = block.block() * block.threads() + block.thread(); i < size; i += block.blocks() * block.threads())
      total += bits_at(input, input.elements.offset_of(i));
    total = sum_over_warp(block, total);
    if (block.lane() == 0) block.add(sum, total);
  }
};

// Adds what the blocks of a tensor of `bytes` bytes add to its bit hash to *total, which is zero at first (bit_hash.h). A warp
// hashes a block at a time.
struct HashBits {
  Input input;
  int64_t bytes;
  uint64_t* total;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    const int64_t step = int64_t{block.blocks()} * block.warps();
    for (int64_t at = int64_t{block.block()} * block.warps() + block.warp(); at * kBitHashBytes < bytes; at += step) {
      const int64_t begin = at * kBitHashBytes;
      uint64_t sum = 0;
      for (int64_t word = block.lane(); word < kBitHashWords && begin + 4 * word < bytes; word += kWarpThreads)
        sum += uint64_t{word_at(begin + 4 * word)} * bit_hash_coefficient(word);
      sum = sum_over_warp(block, sum);
      if (block.lane() == 0) block.add(total, bit_hash_of_block(at, sum));
    }
  }

 private:
  // The four bytes from `begin` on, behind the last one zeros.
  ULPSCOPE_DEVICE uint32_t word_at(int64_t begin) const {
    const int64_t size = size_of(input.dtype);
    if (size >= 4) return static_cast<uint32_t>(bits_at(input, input.elements.offset_of(begin / size)) >> 8 * (begin % size));
    uint32_t word = 0;
    for (int64_t byte = 0; byte < 4 && begin + byte < bytes; byte += size)
      word |= static_cast<uint32_t>(bits_at(input, input.elements.offset_of((begin + byte) / size))) << 8 * byte;
    return word;
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
