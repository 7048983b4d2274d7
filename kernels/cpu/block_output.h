// Takes the wide values of one dense output, piece by piece and from any thread, rounds and stores them once, and collects what the
// call's record asks for while they are in cache.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "ulpscope/emulation/narrow_format.h"
#include "ulpscope/kernels/cpu/context.h"
#include "ulpscope/kernels/op_call.h"
#include "ulpscope/kernels/output_rounding.h"
#include "ulpscope/kernels/store.h"

namespace ulpscope::cpu {

class BlockOutput {
 public:
  // How many rows of so many elements a thread should hand over at a time: whole blocks of statistics, where these are no more than
  // `most_blocks`, which should stay in cache with what a row is made from; else what fills a block.
  static int64_t rows_of_piece(int64_t row, int64_t most_blocks);

  // Pieces begin at multiples of `piece` elements (the last is shorter). Where that is no multiple of kStatisticsBlock, blocks that
  // two pieces share are counted by finish(): from the output, or, where it is narrower, from values kept till then.
  BlockOutput(Context& context, const OpCall& call, int slot, int64_t piece = kStatisticsBlock);

  int64_t size() const { return size_; }
  // FP32 outputs may be computed in place, and put() be told so by passing place(begin). nullptr for other types.
  float* place(int64_t begin) const { return floats_ == nullptr ? nullptr : floats_ + begin; }

  // The values of elements begin, ..., begin + n - 1 in memory order: one piece.
  void put(int64_t begin, const float* values, int64_t n);
  // Once, after all pieces, from one thread.
  void finish();

 private:
  void store(int64_t begin, const float* values, int64_t n);
  void put_block(int64_t block, const float* values, int64_t n);
  bool shares_blocks() const { return piece_ < size_ && piece_ % kStatisticsBlock != 0; }
  // Where all wide values of a block that pieces share are to be found.
  float* kept(int64_t block_begin) const;

  Context& context_;
  float* floats_ = nullptr;
  void* encodings_ = nullptr;
  const NarrowFormat* narrow_ = nullptr;    // of the encodings
  std::optional<OutputRounding> rounding_;  // of them, where the call's arithmetic has another than to nearest even
  OutputRecord* record_ = nullptr;
  RoundingCounts counts_;  // of rounding_
  std::mutex mutex_;
  int64_t size_, piece_;
  std::optional<StatisticsCollector> collector_;
  std::optional<Scratch> shared_;  // narrow outputs: one block for each boundary between pieces
};

// Where threads compute pieces of `values` elements for an output: in place, or each in a buffer of its own.
class ThreadTiles {
 public:
  ThreadTiles(Context& context, const BlockOutput& out, int threads, int64_t values)
      : out_(out), wide_(context.allocator, threads, out.place(0) != nullptr ? 0 : bytes_of(values)) {}
  float* at(int thread, int64_t begin) const { return out_.place(0) != nullptr ? out_.place(begin) : wide_.of(thread); }

 private:
  const BlockOutput& out_;
  ThreadScratch wide_;
};

}  // namespace ulpscope::cpu
