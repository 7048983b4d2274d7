#include "ulpscope/kernels/cpu/allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "ulpscope/base/error.h"

namespace ulpscope {
namespace {
constexpr size_t kAlignment = 64;
}

CachingAllocator::~CachingAllocator() { trim(); }

CachingAllocator::SizeClass CachingAllocator::size_class(size_t bytes) {
  if (bytes <= 8 * kAlignment) {
    const size_t units = bytes == 0 ? 1 : (bytes + kAlignment - 1) / kAlignment;
    return {static_cast<int>(units) - 1, units * kAlignment};
  }
  // 2^k < bytes <= 2^(k + 1), k >= 9, cut into eight steps of 2^(k - 3).
  const int k = std::bit_width(bytes - 1) - 1;
  const size_t step = size_t{1} << (k - 3);
  const size_t steps = (bytes - (size_t{1} << k) + step - 1) / step;
  return {8 + 8 * (k - 9) + static_cast<int>(steps) - 1, (size_t{1} << k) + steps * step};
}

void* CachingAllocator::allocate(size_t bytes) {
  if (bytes > size_t{1} << 50) throw failed_error("cannot allocate {} bytes", bytes);
  const SizeClass size = size_class(bytes);
  auto& list = free_[static_cast<size_t>(size.index)];
  void* memory = nullptr;
  if (!list.empty()) {
    memory = list.back();
    list.pop_back();
  } else {
    memory = std::aligned_alloc(kAlignment, size.bytes);
    if (memory == nullptr) {
      trim();
      memory = std::aligned_alloc(kAlignment, size.bytes);
    }
    if (memory == nullptr) throw failed_error("cannot allocate {} bytes ({} are in use)", bytes, in_use_);
  }
  in_use_ += size.bytes;
  peak_ = std::max(peak_, in_use_);
  return memory;
}

void CachingAllocator::release(void* memory, size_t bytes) {
  if (memory == nullptr) return;
  const SizeClass size = size_class(bytes);
  in_use_ -= size.bytes;
  free_[static_cast<size_t>(size.index)].push_back(memory);
}

void CachingAllocator::trim() {
  for (auto& list : free_) {
    for (void* memory : list) std::free(memory);
    list.clear();
  }
}

}  // namespace ulpscope
