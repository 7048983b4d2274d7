// What was read of tensor rows, within a number of bytes: what was not used for longest goes first. Internal to trace/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace ulpscope::trace_detail {

// Something that stands for the first `rows` rows of a segment.
struct Cached {
  uint64_t rows = 0;
  size_t bytes = 0;
};

class RowCache {
 public:
  struct Key {
    uint32_t part = 0, item = 0;
    uint64_t segment = 0;
    bool operator==(const Key&) const = default;
  };

  explicit RowCache(uint64_t bytes) : most_bytes_(bytes) {}

  // What is kept under the key, where it stands for at least so many rows; else what `make` returns, which is kept from now on. A
  // key always has the same type.
  template <typename T, typename Make>
  std::shared_ptr<const T> get(const Key& key, uint64_t rows, Make&& make) {
    if (auto found = find(key, rows)) return std::static_pointer_cast<const T>(std::move(found));
    std::shared_ptr<const T> made = make();
    keep(key, made);
    return made;
  }
  uint64_t bytes() const;
  uint64_t most_bytes() const { return most_bytes_; }

 private:
  struct Hash {
    size_t operator()(const Key& key) const {
      return static_cast<size_t>((key.segment * 0x9E3779B97F4A7C15u) ^ (uint64_t{key.part} << 40) ^ (uint64_t{key.item} << 20));
    }
  };
  struct Entry {
    Key key;
    std::shared_ptr<const Cached> value;
  };

  std::shared_ptr<const Cached> find(const Key& key, uint64_t rows);
  void keep(const Key& key, std::shared_ptr<const Cached> value);

  const uint64_t most_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // what was used last stands first
  std::unordered_map<Key, std::list<Entry>::iterator, Hash> places_;
  uint64_t bytes_ = 0;
};

}  // namespace ulpscope::trace_detail
