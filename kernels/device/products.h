// Kernels of matrix products: factors whose terms are put side by side, and products of such factors by the matrix units.
#pragma once

#include <bit>
#include <cstdint>

#include "ulpscope/kernels/device/input.h"
#include "ulpscope/kernels/formulas.h"
#include "ulpscope/kernels/product_factors.h"

namespace ulpscope::device {

// Terms of lines of a factor, as encodings that follow each other, with zeros behind them: `words` words for each line.
struct PackLines {
  Factor factor;
  bool flushes;  // subnormals are zeros
  DType dtype;   // that terms are stored as: the factor's or f32
  int64_t first_batch, first_line, first_term;
  int64_t batches, lines, terms, words;
  int64_t known_lines;  // those from here on are zero
  uint32_t* packed;

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    const Input input{factor.data, factor.dtype, true, flushes, {}};
    const int bytes = static_cast<int>(size_of(dtype)), terms_of_word = 4 / bytes;
    const int64_t size = batches * lines * words;
    for (int64_t i = block.block() * block.threads() + block.thread(); i < size; i += block.blocks() * block.threads()) {
      const int64_t first = i % words * terms_of_word, line = i / words % lines, batch = i / words / lines;
      const int64_t there = line < known_lines ? terms : 0;
      uint32_t word = 0;
      for (int k = 0; k < terms_of_word && first + k < there; ++k) {
        const int64_t offset = factor.offset_of(first_batch + batch, first_line + line, first_term + first + k);
        if (offset >= 0) word |= encoding_at<Block>(input, offset) << (8 * bytes * k);
      }
      packed[i] = word;
    }
  }

 private:
  template <class Block>
  ULPSCOPE_DEVICE uint32_t encoding_at(const Input& input, int64_t offset) const {
    if (dtype == input.dtype) return stored_at(input, offset);
    return std::bit_cast<uint32_t>(read_at<Block>(input, offset));
  }
};

// Lines whose terms follow each other, in words.
struct PackedLines {
  const uint32_t* words;
  int64_t batch_stride, line_stride;

  ULPSCOPE_DEVICE int64_t offset_of(int64_t batch, int64_t line) const { return batch * batch_stride + line * line_stride; }
};

// What a block of MultiplyPacked computes, and what it has of the factors at a time.
inline constexpr int kTileRows = 128, kTileColumns = 64, kTileWords = 16;

struct FactorTile {
  using Element = uint32_t;
  // Lines are so far apart that the threads of a warp find theirs in different banks of shared memory.
  static constexpr int kLine = kTileWords + 4;
  static constexpr int kSize = (kTileRows + kTileColumns) * kLine;
  static constexpr const char* kName = "factors";
};

// sums[batch][row][column] += a[batch][row] b[batch][column], of packed lines: a chain of instructions from the first terms to the
// last, that begins with +0, or with what is there. Whole blocks of terms that lie behind the last are left out.
template <DType type>
struct MultiplyPacked {
  PackedLines a, b;
  int64_t batches, rows, columns, words;  // words: of a line, a multiple of kShortWords
  float* sums;
  bool continues;

  static constexpr MatrixInstruction kInstruction{InstructionFamily::mma, type, type, DType::f32};
  static constexpr int kThreads = 256;
  static constexpr int kBlocksAtOnce = 2;  // that share the registers of a multiprocessor: sums need many
  int64_t row_tiles() const { return (rows + kTileRows - 1) / kTileRows; }
  int64_t column_tiles() const { return (columns + kTileColumns - 1) / kTileColumns; }
  Grid grid() const { return {batches * row_tiles() * column_tiles(), kThreads}; }

  template <class Block>
  ULPSCOPE_DEVICE void operator()(Block& block) const {
    const int64_t across = (columns + kTileColumns - 1) / kTileColumns, down = (rows + kTileRows - 1) / kTileRows;
    const int64_t batch = block.block() / across / down;
    const int64_t row = block.block() / across % down * kTileRows, column = block.block() % across * kTileColumns;
    // Warps lie four down and two across.
    const int warp_row = block.warp() / 2 * kWarpRows, warp_column = block.warp() % 2 * kWarpColumns;
    Results results(*this, batch, row + warp_row, column + warp_column, block.lane());
    if (continues) results.load();
    const auto tile = block.template shared<FactorTile>();
    const int line_of_thread = block.thread() / kTileWords, word_of_thread = block.thread() % kTileWords;
    const int lines_of_a = lines_from(row, rows, kTileRows), lines_of_b = lines_from(column, columns, kTileColumns);
    const int64_t begin_of_a = a.offset_of(batch, row + line_of_thread) + word_of_thread;
    const int64_t begin_of_b = b.offset_of(batch, column + line_of_thread) + word_of_thread;
    for (int64_t first = 0; first < words; first += kTileWords) {
      // All of a thread's words are asked for before the first is needed: the compiler knows how many there are.
      uint32_t loaded[kWordsOfThread];
      const bool is_word = first + word_of_thread < words;
      ULPSCOPE_UNROLL
      for (int i = 0; i < kWordsOfThread; ++i) {
        const bool is_of_a = i * kLinesAtOnce < kTileRows;
        const int further = is_of_a ? i * kLinesAtOnce : i * kLinesAtOnce - kTileRows;
        const bool is_inside = is_word && line_of_thread + further < (is_of_a ? lines_of_a : lines_of_b);
        const PackedLines& factor = is_of_a ? a : b;
        loaded[i] = is_inside ? factor.words[(is_of_a ? begin_of_a : begin_of_b) + further * factor.line_stride + first] : 0;
      }
      if (first > 0) block.barrier();
      ULPSCOPE_UNROLL
      for (int i = 0; i < kWordsOfThread; ++i)
        tile.write((line_of_thread + i * kLinesAtOnce) * FactorTile::kLine + word_of_thread, loaded[i]);
      block.barrier();
      for (int word = 0; word < kTileWords && first + word < words; word += kWholeWords) {
        if (words - first - word < kWholeWords) {
          results.template add<kShortWords>(block, tile, warp_row, warp_column, word);
        } else {
          results.template add<kWholeWords>(block, tile, warp_row, warp_column, word);
        }
      }
    }
    results.store();
  }

 private:
  static constexpr int kWarpRows = 32, kWarpColumns = 32;
  // Of the lines of a tile, and of its words those that a thread loads.
  static constexpr int kLinesAtOnce = kThreads / kTileWords, kWordsOfThread = (kTileRows + kTileColumns) / kLinesAtOnce;
  static_assert(kTileRows % kLinesAtOnce == 0 && kTileColumns % kLinesAtOnce == 0);

  // How many of the next `most` lines from `line` on there are: 0 or fewer behind the last.
  ULPSCOPE_DEVICE static int lines_from(int64_t line, int64_t lines, int most) {
    return lines - line < most ? static_cast<int>(lines - line) : most;
  }

  // The sums of a warp, as its threads have them.
  class Results {
   public:
    ULPSCOPE_DEVICE Results(const MultiplyPacked& product, int64_t batch, int64_t row, int64_t column, int lane)
        : product_(product),
          begin_((batch * product.rows + row) * product.columns + column),
          rows_(lines_from(row, product.rows, kWarpRows)),
          columns_(lines_from(column, product.columns, kWarpColumns)),
          lane_(lane) {}

    ULPSCOPE_DEVICE void load() {
      for_each([](float& sum, float& stored) { sum = stored; });
    }
    ULPSCOPE_DEVICE void store() {
      for_each([](float& sum, float& stored) { stored = sum; });
    }
    // The terms of `count` words from `word` on.
    template <int count, class Block, class Lines>
    ULPSCOPE_DEVICE void add(Block& block, const Lines& tile, int warp_row, int warp_column, int word) {
      constexpr int kParts = count / kShortWords;
      const int line = lane_ / 4, first = word + lane_ % 4;
      uint32_t of_b[kAcross][kParts];
      ULPSCOPE_UNROLL
      for (int j = 0; j < kAcross; ++j) {
        ULPSCOPE_UNROLL
        for (int part = 0; part < kParts; ++part)
          of_b[j][part] =
              tile.read((kTileRows + warp_column + kColumnsOfProduct * j + line) * FactorTile::kLine + first + 4 * part);
      }
      ULPSCOPE_UNROLL
      for (int i = 0; i < kDown; ++i) {
        if (kRowsOfProduct * i >= rows_) continue;
        uint32_t of_a[2 * kParts];
        ULPSCOPE_UNROLL
        for (int part = 0; part < 2 * kParts; ++part) {
          const int of_line = warp_row + kRowsOfProduct * i + line + 8 * (part % 2);
          of_a[part] = tile.read(of_line * FactorTile::kLine + first + 4 * (part / 2));
        }
        ULPSCOPE_UNROLL
        for (int j = 0; j < kAcross; ++j) {
          if (kColumnsOfProduct * j < columns_) block.template multiply_add<kInstruction>(sums_[i][j], of_a, of_b[j]);
        }
      }
    }

   private:
    static constexpr int kDown = kWarpRows / kRowsOfProduct, kAcross = kWarpColumns / kColumnsOfProduct;

    // body(sum, stored) for each that is there.
    template <typename Body>
    ULPSCOPE_DEVICE void for_each(const Body& body) {
      ULPSCOPE_UNROLL
      for (int i = 0; i < kDown; ++i) {
        ULPSCOPE_UNROLL
        for (int j = 0; j < kAcross; ++j) {
          ULPSCOPE_UNROLL
          for (int k = 0; k < 4; ++k) {
            const int row = kRowsOfProduct * i + lane_ / 4 + 8 * (k / 2), column = kColumnsOfProduct * j + lane_ % 4 * 2 + k % 2;
            if (row < rows_ && column < columns_) body(sums_[i][j][k], product_.sums[begin_ + row * product_.columns + column]);
          }
        }
      }
    }

    const MultiplyPacked& product_;
    int64_t begin_;       // of the first sum
    int rows_, columns_;  // how many there are, or 0 or fewer
    int lane_;
    float sums_[kDown][kAcross][4] = {};
  };
};

// A sum of products, scaled back: by the inverse scale of each factor, one after the other.
struct ScaledSum : lanes::Formula<3> {
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V sum, V of_a, V of_b) const {
    return sum * of_a * of_b;
  }
};
struct BiasedScaledSum : lanes::Formula<4> {
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V sum, V of_a, V of_b, V bias) const {
    return sum * of_a * of_b + bias;
  }
};

}  // namespace ulpscope::device
