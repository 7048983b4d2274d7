// Chains of one matrix instruction.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/device/block.h"
#include "ulpscope/kernels/device/launcher-inl.h"
#include "ulpscope/kernels/matrix_instructions.h"

namespace ulpscope::device {

// d = c + a b of matrices whose lines are words of terms, which are a multiple of those of the shortest form.
template <MatrixInstruction instruction>
struct ChainInstruction {
  const uint32_t *a, *b;
  const void* c;
  void* d;
  int64_t rows, columns, words;

  static constexpr int kTileRows = kRowsOfProduct * kWarpsOfGroup;
  Grid grid() const {
    const auto tiles = [](int64_t n, int64_t each) { return (n + each - 1) / each; };
    return {tiles(rows, kTileRows) * tiles(columns, kColumnsOfProduct), kWarpThreads * kWarpsOfGroup};
  }

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    const int64_t across = (columns + kColumnsOfProduct - 1) / kColumnsOfProduct;
    const int64_t row = block.block() / across * kTileRows + kRowsOfProduct * block.warp();
    const int64_t column = block.block() % across * kColumnsOfProduct;
    // All warps of a group multiply, the others where they have rows.
    if (instruction.family == InstructionFamily::mma && row >= rows) return;
    SumsOfLane<Block> sums(*this, block, row, column);
    int64_t word = 0;
    for (; words - word > kShortWords || (word < words && !has_short_form(instruction)); word += kWholeWords)
      sums.template add<kWholeWords>(word);
    if constexpr (has_short_form(instruction)) {
      if (word < words) sums.template add<kShortWords>(word);
    }
    sums.store();
  }

 private:
  using Sums = SumsOfThread<instruction>;
  using Stored = std::conditional_t<instruction.sums == DType::f16, uint16_t, float>;

  template <class Block>
  class SumsOfLane {
   public:
    ULPSCOPE_DEVICE SumsOfLane(const ChainInstruction& chain, Block& block, int64_t row, int64_t column)
        : chain_(chain), block_(block), row_(row + block.lane() / 4), column_(column) {
      const auto* stored = static_cast<const Stored*>(chain_.c);
      for_each([&](Stored& sum, int64_t place) { sum = stored[place]; });
    }
    template <int count>
    ULPSCOPE_DEVICE void add(int64_t word) {
      uint32_t of_a[count / 2], of_b[count / 4];
      const int64_t column = column_ + block_.lane() / 4;
      ULPSCOPE_UNROLL
      for (int i = 0; i < count / 2; ++i) of_a[i] = word_of(chain_.a, row_ + 8 * (i % 2), chain_.rows, word + 4 * (i / 2));
      ULPSCOPE_UNROLL
      for (int i = 0; i < count / 4; ++i) of_b[i] = word_of(chain_.b, column, chain_.columns, word + 4 * i);
      block_.template multiply_add<instruction>(sums_, of_a, of_b);
    }
    ULPSCOPE_DEVICE void store() {
      auto* stored = static_cast<Stored*>(chain_.d);
      for_each([&](Stored sum, int64_t place) { stored[place] = sum; });
    }

   private:
    ULPSCOPE_DEVICE uint32_t word_of(const uint32_t* words, int64_t line, int64_t lines, int64_t word) const {
      return line < lines ? words[line * chain_.words + word + block_.lane() % 4] : 0;
    }
    // body(sum, its place) of those that are there.
    template <typename Body>
    ULPSCOPE_DEVICE void for_each(const Body& body) {
      ULPSCOPE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int64_t row = row_ + 8 * (i / 2), column = column_ + block_.lane() % 4 * 2 + i % 2;
        if (row >= chain_.rows || column >= chain_.columns) continue;
        const int64_t place = row * chain_.columns + column;
        if constexpr (instruction.sums == DType::f16) {
          const int shift = i % 2 * 16;
          uint16_t half = static_cast<uint16_t>(sums_[i / 2] >> shift);
          body(half, place);
          sums_[i / 2] = (sums_[i / 2] & ~(0xFFFFu << shift)) | static_cast<uint32_t>(half) << shift;
        } else {
          body(sums_[i], place);
        }
      }
    }

    const ChainInstruction& chain_;
    Block& block_;
    int64_t row_, column_;
    typename Sums::Element sums_[Sums::kSize] = {};
  };
};

template <class Machine>
class DeviceMatrixInstructions final : public MatrixInstructions {
 public:
  explicit DeviceMatrixInstructions(Launcher<Machine>& launcher) : launcher_(launcher) { add_all(); }

  std::vector<MatrixInstruction> all() const override {
    std::vector<MatrixInstruction> instructions;
    for (const auto& [instruction, run] : runs_)
      if (launcher_.machine().has(instruction)) instructions.push_back(instruction);
    return instructions;
  }

  void multiply(const MatrixInstruction& instruction, const MatrixOperands& operands) override {
    const auto known = std::find_if(runs_.begin(), runs_.end(), [&](const auto& each) { return each.first == instruction; });
    if (known == runs_.end() || !launcher_.machine().has(instruction))
      throw failed_error("the device {} has no such matrix instruction", launcher_.machine().name());
    known->second(launcher_, operands);
  }

 private:
  using Run = void (*)(Launcher<Machine>& launcher, const MatrixOperands& operands);
  using Scratch = typename Launcher<Machine>::Scratch;

  template <InstructionFamily family, size_t... types>
  void add_family(std::index_sequence<types...>) {
    const auto add = [&]<size_t i>() {
      constexpr MatrixInstruction kInstruction{family, kProductTypes[i].a, kProductTypes[i].b, kProductTypes[i].sums};
      runs_.emplace_back(kInstruction, &run<kInstruction>);
    };
    (add.template operator()<types>(), ...);
  }
  void add_all() {
    constexpr auto kTypes = std::make_index_sequence<kProductTypes.size()>();
    add_family<InstructionFamily::mma>(kTypes);
    add_family<InstructionFamily::wgmma>(kTypes);
  }

  template <MatrixInstruction instruction>
  static void run(Launcher<Machine>& launcher, const MatrixOperands& operands) {
    const auto& [from_a, from_b, from_c, to_d, rows, columns, terms] = operands;
    const size_t line = static_cast<size_t>(terms) * info(instruction.a).size;
    const size_t bytes_of_a = static_cast<size_t>(rows) * line, bytes_of_b = static_cast<size_t>(columns) * line;
    const size_t bytes_of_sums = static_cast<size_t>(rows * columns) * info(instruction.sums).size;
    const Scratch a(launcher, bytes_of_a), b(launcher, bytes_of_b), sums(launcher, bytes_of_sums);
    Machine& machine = launcher.machine();
    machine.from_host(from_a, a.template as<void>(), bytes_of_a);
    machine.from_host(from_b, b.template as<void>(), bytes_of_b);
    machine.from_host(from_c, sums.template as<void>(), bytes_of_sums);
    const ChainInstruction<instruction> kernel{a.template as<uint32_t>(),
                                               b.template as<uint32_t>(),
                                               sums.template as<void>(),
                                               sums.template as<void>(),
                                               rows,
                                               columns,
                                               static_cast<int64_t>(line / sizeof(uint32_t))};
    if (rows > 0 && columns > 0) machine.launch(kernel.grid(), kernel);
    machine.to_host(sums.template as<void>(), to_d, bytes_of_sums);
  }

  Launcher<Machine>& launcher_;
  std::vector<std::pair<MatrixInstruction, Run>> runs_;
};

}  // namespace ulpscope::device
