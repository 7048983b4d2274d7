// The records of one step. They keep their addresses until the step ends, and their memory from step to step: a step that asks for
// as many records as an earlier one allocates nothing.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "ulpscope/kernels/statistics.h"

namespace ulpscope {

class RecordArena {
 public:
  void begin_step() {
    block_ = 0;
    used_ = 0;
  }

  // `count` cleared records; their pointers lie together.
  OutputRecord* const* take(size_t count) {
    while (block_ < blocks_.size() && used_ + count > blocks_[block_].pointers.size()) {
      ++block_;
      used_ = 0;
    }
    if (block_ == blocks_.size()) add_block(std::max<size_t>(count, kBlock));
    OutputRecord* const* taken = blocks_[block_].pointers.data() + used_;
    used_ += count;
    for (size_t i = 0; i < count; ++i) reset(*taken[i]);
    return taken;
  }

 private:
  static constexpr size_t kBlock = 64;
  struct Block {
    std::unique_ptr<OutputRecord[]> records;
    std::vector<OutputRecord*> pointers;
  };

  void add_block(size_t size) {
    Block block;
    block.records = std::make_unique<OutputRecord[]>(size);
    for (size_t i = 0; i < size; ++i) block.pointers.push_back(&block.records[i]);
    blocks_.push_back(std::move(block));
  }

  // Clears what the last step filled in. Most of a record is its histogram, which only level full touches.
  static void reset(OutputRecord& record) {
    if (record.known == StatisticsLevel::full) {
      record.clear();
      return;
    }
    record.wanted = StatisticsLevel::none;
    record.samples_wanted = 0;
    record.scale = 1.0;
    record.known = StatisticsLevel::none;
    record.before_rounding = record.rounding_known = record.update_known = false;
    record.samples = 0;
    TensorStatistics& statistics = record.statistics;
    statistics.count = statistics.nan = statistics.positive_infinity = statistics.negative_infinity = 0;
    statistics.zeros = statistics.negatives = 0;
    statistics.smallest = statistics.largest = statistics.sum = statistics.sum_of_squares = 0;
    record.rounding = {};
    record.update = {};
  }

  std::vector<Block> blocks_;
  size_t block_ = 0, used_ = 0;
};

}  // namespace ulpscope
