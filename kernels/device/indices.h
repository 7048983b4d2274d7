// Indices into rows, and the classes that rows are to be of: read by kernels as they are, and checked apart, so that one that is
// out of range is told when all is complete. Kernels take such a one for none.
#pragma once

#include <cstdint>

#include "ulpscope/kernels/device/input.h"
#include "ulpscope/kernels/device/output.h"

namespace ulpscope::device {

// Zero at first.
struct IndexFacts {
  uint64_t counted;  // that are not ignored
  uint64_t first_bad_complement;
  int64_t bad;  // the value of that one
};

struct Indices {
  static constexpr int64_t kNone = -1;

  Input input;
  int64_t size, limit;  // each in [0, limit)
  bool may_ignore;      // the value `ignored`
  int64_t ignored;
  IndexFacts* facts;

  template <class Block>
  ULPSCOPE_DEVICE int64_t value(int64_t i) const {
    return read<Block, int64_t>(input, i);
  }
  ULPSCOPE_DEVICE bool is_ignored(int64_t value) const { return may_ignore && value == ignored; }
  ULPSCOPE_DEVICE bool is_bad(int64_t value) const { return !is_ignored(value) && (value < 0 || value >= limit); }

  // kNone where it is ignored, or out of range.
  template <class Block>
  ULPSCOPE_DEVICE int64_t at(int64_t i) const {
    const int64_t index = value<Block>(i);
    return is_ignored(index) || is_bad(index) ? kNone : index;
  }
  ULPSCOPE_DEVICE float counted() const { return static_cast<float>(static_cast<int64_t>(facts->counted)); }
};

struct CheckIndices {
  Indices indices;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    constexpr uint64_t kAllGood = ~uint64_t{0};
    uint32_t counted = 0;
    uint64_t first_bad = kAllGood;
    for (int64_t i = block.block() * block.threads() + block.thread(); i < indices.size; i += block.blocks() * block.threads()) {
      const int64_t value = indices.value<Block>(i);
      counted += !indices.is_ignored(value);
      if (indices.is_bad(value) && static_cast<uint64_t>(i) < first_bad) first_bad = static_cast<uint64_t>(i);
    }
    const uint32_t of_warp = block.sum(counted);
    const uint64_t first_of_warp = smallest(block, first_bad);
    if (block.lane() != 0) return;
    block.add(&indices.facts->counted, uint64_t{of_warp});
    if (first_of_warp != kAllGood) block.raise(&indices.facts->first_bad_complement, ~first_of_warp);
  }
};

// After it, on one thread.
struct TellBadIndex {
  Indices indices;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    IndexFacts& facts = *indices.facts;
    if (block.thread() == 0 && facts.first_bad_complement != 0)
      facts.bad = indices.value<Block>(static_cast<int64_t>(~facts.first_bad_complement));
  }
};

}  // namespace ulpscope::device
