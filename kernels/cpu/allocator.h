// A caching allocator: freed blocks wait in a list of their size class and are handed out again, so that a steady step allocates
// nothing. Used by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ulpscope {

class CachingAllocator {
 public:
  CachingAllocator() = default;
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;
  ~CachingAllocator();

  // 64-byte aligned. Throws Error, naming the size, where there is no memory.
  void* allocate(size_t bytes);
  // `bytes` as given to allocate.
  void release(void* memory, size_t bytes);

  size_t in_use() const { return in_use_; }
  size_t peak() const { return peak_; }
  void reset_peak() { peak_ = in_use_; }
  // Returns the memory in the lists to the system.
  void trim();

 private:
  // Eight classes to a power of two above 512 bytes: at most an eighth is unused.
  static constexpr int kClasses = 8 * 56;
  struct SizeClass {
    int index;
    size_t bytes;
  };
  static SizeClass size_class(size_t bytes);

  std::array<std::vector<void*>, kClasses> free_;
  size_t in_use_ = 0, peak_ = 0;
};

// A block that is released with its owner.
class Scratch {
 public:
  Scratch(CachingAllocator& allocator, size_t bytes) : allocator_(allocator), bytes_(bytes), memory_(allocator.allocate(bytes)) {}
  ~Scratch() { allocator_.release(memory_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  CachingAllocator& allocator_;
  size_t bytes_;
  void* memory_;
};

// Memory for each thread, so aligned that two threads share no cache line.
class ThreadScratch {
 public:
  ThreadScratch(CachingAllocator& allocator, int threads, size_t bytes)
      : stride_((bytes + 63) / 64 * 64), scratch_(allocator, stride_ * static_cast<size_t>(threads)) {}
  float* of(int thread) const { return reinterpret_cast<float*>(scratch_.as<char>() + stride_ * static_cast<size_t>(thread)); }

 private:
  size_t stride_;
  Scratch scratch_;
};

// The size of `values` FP32 values.
inline size_t bytes_of(int64_t values) { return static_cast<size_t>(values) * sizeof(float); }

}  // namespace ulpscope
