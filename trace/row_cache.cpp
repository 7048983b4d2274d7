#include "ulpscope/trace/row_cache.h"

namespace ulpscope::trace_detail {

uint64_t RowCache::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

std::shared_ptr<const Cached> RowCache::find(const Key& key, uint64_t rows) {
  std::lock_guard lock(mutex_);
  const auto found = places_.find(key);
  if (found == places_.end() || found->second->value->rows < rows) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->value;
}

void RowCache::keep(const Key& key, std::shared_ptr<const Cached> value) {
  std::lock_guard lock(mutex_);
  if (value->bytes > most_bytes_) return;
  if (const auto known = places_.find(key); known != places_.end()) {
    // Another thread may have read more rows of it.
    if (known->second->value->rows >= value->rows) return;
    bytes_ -= known->second->value->bytes;
    entries_.erase(known->second);
    places_.erase(known);
  }
  bytes_ += value->bytes;
  entries_.push_front({key, std::move(value)});
  places_[key] = entries_.begin();
  while (bytes_ > most_bytes_) {
    bytes_ -= entries_.back().value->bytes;
    places_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

}  // namespace ulpscope::trace_detail
