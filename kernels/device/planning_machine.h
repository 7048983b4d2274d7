// A machine (launcher-inl.h) on which nothing runs: what is asked of it is only whether it can be.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "ulpscope/kernels/backend.h"
#include "ulpscope/kernels/device/block.h"
#include "ulpscope/kernels/device/gemm.h"

namespace ulpscope::device {

class PlanningMachine {
 public:
  // As that of which it has the name.
  template <class Machine>
  explicit PlanningMachine(const Machine& machine)
      : name_(machine.name()),
        gpu_(machine.gpu()),
        multiplies_fp8_(machine.multiplies_fp8()),
        workspace_bytes_(machine.workspace_bytes()) {}

  std::string name() const { return name_; }
  std::string description() const { return name_; }
  std::string_view gpu() const { return gpu_; }
  bool multiplies_fp8() const { return multiplies_fp8_; }
  size_t workspace_bytes() const { return workspace_bytes_; }
  // Addresses that nothing is behind.
  void* allocate(size_t bytes) {
    void* const memory = mmap(nullptr, bytes > 0 ? bytes : 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return memory;
  }
  void release(void* memory, size_t bytes) { munmap(memory, bytes > 0 ? bytes : 1); }
  void clear(void*, size_t) {}
  void wait() {}
  void to_host(const void*, void* to, size_t bytes) { std::memset(to, 0, bytes); }
  void from_host(const void*, void*, size_t) {}
  template <class Kernel>
  void launch(const Grid&, const Kernel&) {}
  void multiply(const Gemm&) {}
  std::span<const LibraryProduct> library_products() const { return {}; }

 private:
  std::string name_, gpu_;
  bool multiplies_fp8_;
  size_t workspace_bytes_;
};

}  // namespace ulpscope::device
