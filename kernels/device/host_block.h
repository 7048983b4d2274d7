// Runs kernels on the host, to prove what they do without a GPU: the threads of a block are coroutines (Boost.Context), and what a
// GPU leaves undefined is an error.
//
// Each warp runs ahead alone to its next barrier, its lanes one after the other to the warp's next operation, warps and lanes in an
// order that the seed decides. Shared memory remembers who used each element since the last barrier, so that a conflict is found in
// any order. Errors (failed) are
//   a read or write of an element that another thread wrote, and a write to one that another read or added to, without a barrier
//   between, or a sync_warp() within one warp
//   a read of an element that no thread of the block wrote, and an index beyond the array
//   a barrier that not all threads of the block reach, an operation of a warp that not all of its lanes reach, and one of a group
//   of warps that not all of the block reach
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <source_location>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ulpscope/emulation/rounding.h"
#include "ulpscope/emulation/tensor_core.h"
#include "ulpscope/kernels/device/block.h"

namespace ulpscope::device {

// What multiply_add gives: the bits of a GPU's matrix units, or an Error (failed) where it has no such instruction.
class MatrixUnits {
 public:
  // `gpu`: as tensor_core_gpus() names it; "": they have none.
  explicit MatrixUnits(std::string_view gpu = "");
  // nullptr: there is none.
  const TensorCore* find(const MatrixInstruction& instruction) const;

 private:
  std::vector<std::pair<MatrixInstruction, TensorCore>> cores_;
};

class HostBlock;
class HostBlockRunner;
class HostShared;

template <typename T>
class HostSharedArray {
 public:
  HostSharedArray(HostBlock& block, HostShared& memory) : block_(block), memory_(memory) {}
  T read(int index) const;
  void write(int index, T value) const;
  void add(int index, T value) const;

 private:
  HostBlock& block_;
  HostShared& memory_;
};

// What one thread of a block sees of it (block.h).
class HostBlock {
 public:
  enum class Access : uint8_t { read, write, add };
  enum class Operation : uint8_t { sync, shuffle, ballot, sum, smallest, largest, multiply_add };

  HostBlock(HostBlockRunner& runner, const Grid& grid, int64_t block, int thread)
      : runner_(runner), grid_(grid), block_(block), thread_(thread) {}
  HostBlock(const HostBlock&) = delete;

  int64_t block() const { return block_; }
  int64_t blocks() const { return grid_.blocks; }
  int thread() const { return thread_; }
  int threads() const { return grid_.threads; }
  int lane() const { return thread_ % kWarpThreads; }
  int warp() const { return thread_ / kWarpThreads; }
  int warps() const { return grid_.threads / kWarpThreads; }

  void barrier(std::source_location place = std::source_location::current());
  void sync_warp() { at_warp(Operation::sync, 0, 0); }
  template <typename T>
  T shuffle(T value, int lane) {
    return std::bit_cast<T>(at_warp(Operation::shuffle, std::bit_cast<uint32_t>(value), lane));
  }
  template <typename T>
  T shuffle_down(T value, int lanes) {
    return shuffle(value, lane() + lanes < kWarpThreads ? lane() + lanes : lane());
  }
  uint32_t ballot(bool value) { return at_warp(Operation::ballot, value, 0); }
  uint32_t sum(uint32_t value) { return at_warp(Operation::sum, value, 0); }
  uint32_t smallest(uint32_t value) { return at_warp(Operation::smallest, value, 0); }
  uint32_t largest(uint32_t value) { return at_warp(Operation::largest, value, 0); }
  template <MatrixInstruction instruction, typename Sum, size_t of_sums, size_t words>
  void multiply_add(Sum (&sums)[of_sums], const uint32_t (&a)[words], const uint32_t (&b)[words / 2]) {
    static_assert(std::is_same_v<Sum, typename SumsOfThread<instruction>::Element> && of_sums == SumsOfThread<instruction>::kSize);
    static_assert(words == kWholeWords / 2 || (words == kShortWords / 2 && has_short_form(instruction)));
    multiply_add(instruction, sums, a, b);
  }

  template <class Array>
  HostSharedArray<typename Array::Element> shared() {
    static constexpr char kKey = 0;  // whose address stands for the array
    return {*this, shared_memory(&kKey, Array::kName, Array::kSize, sizeof(typename Array::Element))};
  }
  // The element of shared memory that the thread is about to use so.
  void* use(HostShared& memory, Access access, int index);

  // Threads run one after the other.
  void add(uint64_t* place, uint64_t value) { *place += value; }
  void raise(uint64_t* place, uint64_t value) {
    if (value > *place) *place = value;
  }

  static uint16_t to_f16(float value) { return round_to_f16(value); }
  static uint16_t to_bf16(float value) { return round_to_bf16(value); }
  static float from_f16(uint16_t encoding) { return f16_to_float(encoding); }

 private:
  uint32_t at_warp(Operation operation, uint32_t value, int lane);
  void multiply_add(const MatrixInstruction& instruction, void* sums, std::span<const uint32_t> a, std::span<const uint32_t> b);
  HostShared& shared_memory(const void* key, std::string_view name, int size, size_t element_bytes);

  HostBlockRunner& runner_;
  const Grid& grid_;
  int64_t block_;
  int thread_;
};

template <typename T>
T HostSharedArray<T>::read(int index) const {
  return *static_cast<T*>(block_.use(memory_, HostBlock::Access::read, index));
}
template <typename T>
void HostSharedArray<T>::write(int index, T value) const {
  *static_cast<T*>(block_.use(memory_, HostBlock::Access::write, index)) = value;
}
template <typename T>
void HostSharedArray<T>::add(int index, T value) const {
  *static_cast<T*>(block_.use(memory_, HostBlock::Access::add, index)) += value;
}

// Throws Error (failed) where a GPU takes no such grid.
void check_grid(const Grid& grid);
// Runs `kernel` as every thread of every block. Throws the first Error.
void run_on_host(const Grid& grid, const std::function<void(HostBlock&)>& kernel, uint64_t seed = 0,
                 const MatrixUnits& units = MatrixUnits());

}  // namespace ulpscope::device
