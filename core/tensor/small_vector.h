// A vector that keeps its first N elements in place: argument lists of op calls, which are short and made a million times.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

namespace ulpscope {

template <typename T, size_t N>
class SmallVector {
 public:
  SmallVector() = default;
  explicit SmallVector(size_t count) { resize(count); }
  SmallVector(std::initializer_list<T> items) {
    for (const T& item : items) push_back(item);
  }
  explicit SmallVector(std::span<const T> items) {
    for (const T& item : items) push_back(item);
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return on_heap() ? heap_.data() : inline_.data(); }
  const T* data() const { return on_heap() ? heap_.data() : inline_.data(); }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  operator std::span<const T>() const { return {data(), size_}; }

  void push_back(T item) {
    if (size_ == N && !on_heap()) {
      heap_.assign(std::make_move_iterator(inline_.begin()), std::make_move_iterator(inline_.end()));
      inline_ = {};
    }
    if (on_heap() || size_ >= N) {
      heap_.push_back(std::move(item));
    } else {
      inline_[size_] = std::move(item);
    }
    ++size_;
  }
  void resize(size_t count) {
    while (size_ < count) push_back(T{});
    while (size_ > count) {
      if (on_heap()) {
        heap_.pop_back();
      } else {
        inline_[size_ - 1] = T{};
      }
      --size_;
      if (size_ == 0) heap_.clear();
    }
  }

 private:
  bool on_heap() const { return !heap_.empty(); }

  std::array<T, N> inline_{};
  std::vector<T> heap_;  // all elements, once there have been more than N
  size_t size_ = 0;
};

}  // namespace ulpscope
