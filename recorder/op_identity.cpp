#include "ulpscope/recorder/op_identity.h"

#include <bit>

namespace ulpscope {

CallCounters::CallCounters() : entries_(1024) {}

CallCounters::CallCounters(std::span<const Call> calls) : entries_(std::bit_ceil(2 * calls.size() + 16)) {
  for (size_t i = calls.size(); i > 0; --i) count_of(calls[i - 1].key) = calls[i - 1].count;  // the first call of a key counts
}

uint32_t CallCounters::next(uint64_t key) {
  const uint32_t count = count_of(key)++;
  if (noted_ != nullptr) noted_->push_back({key, count});
  return count;
}

CallCounters::Notes::~Notes() {
  if (outer_ != nullptr) outer_->insert(outer_->end(), counters_.noted_->begin(), counters_.noted_->end());
  counters_.noted_ = outer_;
}

uint32_t& CallCounters::count_of(uint64_t key) {
  if (2 * used_ > entries_.size()) grow();
  const size_t mask = entries_.size() - 1;
  for (size_t i = key & mask;; i = (i + 1) & mask) {
    Entry& entry = entries_[i];
    if (entry.generation == 0) {
      entry = {key, generation_, 0};
      ++used_;
      return entry.count;
    }
    if (entry.key != key) continue;
    if (entry.generation != generation_) entry = {key, generation_, 0};
    return entry.count;
  }
}

void CallCounters::grow() {
  std::vector<Entry> old(entries_.size() * 2);
  std::swap(old, entries_);
  const size_t mask = entries_.size() - 1;
  for (const Entry& entry : old) {
    if (entry.generation == 0) continue;
    size_t i = entry.key & mask;
    while (entries_[i].generation != 0) i = (i + 1) & mask;
    entries_[i] = entry;
  }
}

}  // namespace ulpscope
