// The records of one pass. They keep their addresses until it ends, and their memory from pass to pass: one that asks for as many
// records as an earlier one allocates nothing.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "ulpscope/kernels/statistics.h"

namespace ulpscope {

inline void clear_request(OutputRecord& record) {
  record.wanted = StatisticsLevel::none;
  record.samples_wanted = 0;
  record.scale = 1.0;
  record.fingerprint.wanted = record.bits.wanted = false;
  record.clear();
}
inline void clear_request(Fingerprint& fingerprint) { fingerprint = {}; }

template <typename Record>
class Arena {
 public:
  // All records may be taken again.
  void reset() {
    block_ = 0;
    used_ = 0;
  }

  // Cleared records; their pointers lie together.
  std::span<Record* const> take(size_t count) {
    while (block_ < blocks_.size() && used_ + count > blocks_[block_].pointers.size()) {
      ++block_;
      used_ = 0;
    }
    if (block_ == blocks_.size()) add_block(std::max<size_t>(count, kBlock));
    Record* const* taken = blocks_[block_].pointers.data() + used_;
    used_ += count;
    for (size_t i = 0; i < count; ++i) clear_request(*taken[i]);
    return {taken, count};
  }

 private:
  static constexpr size_t kBlock = 64;
  struct Block {
    std::unique_ptr<Record[]> records;
    std::vector<Record*> pointers;
  };

  void add_block(size_t size) {
    Block block;
    block.records = std::make_unique<Record[]>(size);
    for (size_t i = 0; i < size; ++i) block.pointers.push_back(&block.records[i]);
    blocks_.push_back(std::move(block));
  }

  std::vector<Block> blocks_;
  size_t block_ = 0, used_ = 0;
};

using RecordArena = Arena<OutputRecord>;
using FingerprintArena = Arena<Fingerprint>;

// The records of passes: of the one that goes on, and of those before it that a device has still to fill in.
class RecordsOfPasses {
 public:
  // Of the calls of this pass, and of their inputs.
  RecordArena& outputs() { return current_->outputs; }
  FingerprintArena& inputs() { return current_->inputs; }

  // Those of the pass before are taken again, or, where `keep`, kept until release().
  void begin_pass(bool keep) {
    if (keep) {
      kept_.push_back(std::move(current_));
      if (idle_.empty()) idle_.push_back(std::make_unique<Pass>());
      current_ = std::move(idle_.back());
      idle_.pop_back();
    }
    current_->outputs.reset();
    current_->inputs.reset();
  }
  void release() {
    for (std::unique_ptr<Pass>& pass : kept_) idle_.push_back(std::move(pass));
    kept_.clear();
  }

 private:
  struct Pass {
    RecordArena outputs;
    FingerprintArena inputs;
  };
  std::unique_ptr<Pass> current_ = std::make_unique<Pass>();
  std::vector<std::unique_ptr<Pass>> kept_, idle_;
};

}  // namespace ulpscope
