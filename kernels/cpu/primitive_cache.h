// What oneDNN planned, by shape, so that a steady step plans nothing. Shapes that change from call to call (lengths of sequences,
// last batches) would fill memory without end, so only those used last are kept.
#pragma once

#include <cstddef>
#include <list>
#include <unordered_map>
#include <utility>

namespace ulpscope::cpu {

// `Shape` has hash() and ==. `Planned` is made from a shape and the number of threads that may run it at the same time.
template <typename Shape, typename Planned>
class PrimitiveCache {
 public:
  static constexpr size_t kCapacity = 1024;

  explicit PrimitiveCache(int slots) : slots_(slots) {}

  // Valid until kCapacity - 1 other shapes were asked for.
  const Planned& find(const Shape& shape) {
    const auto found = by_shape_.find(shape);
    if (found != by_shape_.end()) {
      by_use_.splice(by_use_.begin(), by_use_, found->second);
      return found->second->second;
    }
    by_use_.emplace_front(std::piecewise_construct, std::forward_as_tuple(shape), std::forward_as_tuple(shape, slots_));
    by_shape_.emplace(shape, by_use_.begin());
    if (by_use_.size() > kCapacity) {
      by_shape_.erase(by_use_.back().first);
      by_use_.pop_back();
    }
    return by_use_.front().second;
  }
  size_t size() const { return by_use_.size(); }

 private:
  struct Hash {
    size_t operator()(const Shape& shape) const { return shape.hash(); }
  };
  using Entry = std::pair<const Shape, Planned>;

  int slots_;
  std::list<Entry> by_use_;  // the last used first
  std::unordered_map<Shape, typename std::list<Entry>::iterator, Hash> by_shape_;
};

}  // namespace ulpscope::cpu
