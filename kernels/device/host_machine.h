// The machine (launcher-inl.h) that runs kernels on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/kernels/device/block.h"
#include "ulpscope/kernels/device/gemm.h"
#include "ulpscope/kernels/device/host_block.h"
#include "ulpscope/kernels/device/used_products.h"

namespace ulpscope::device {

class HostMachine {
 public:
  // `seed`: of the order in which threads run; `gpu`: whose matrix units it has.
  HostMachine(uint64_t seed, std::string_view gpu) : seed_(seed), gpu_(gpu), units_(gpu) {}

  std::string name() const { return "emulated:" + gpu_; }
  std::string_view gpu() const { return gpu_; }
  bool multiplies_fp8() const { return has({InstructionFamily::mma, DType::f8_e4m3, DType::f8_e4m3, DType::f32}); }
  bool has(const MatrixInstruction& instruction) const { return units_.find(instruction) != nullptr; }
  const MatrixUnits& units() const { return units_; }
  // Little, so that products have parts.
  size_t workspace_bytes() const { return 64 << 10; }
  std::string description() const { return "kernels of GPUs on the host, with the matrix units of " + gpu_; }
  // Memory that nobody wrote holds NaN, in FP32 and 16-bit types.
  void* allocate(size_t bytes);
  void release(void* memory, size_t bytes);
  void clear(void* memory, size_t bytes);
  void wait() {}
  void to_host(const void* from, void* to, size_t bytes);
  void from_host(const void* from, void* to, size_t bytes);
  template <class Kernel>
  void launch(const Grid& grid, const Kernel& kernel) {
    run_on_host(
        grid, [&](HostBlock& block) { kernel(block); }, seed_++, units_);
  }
  // Terms are added in their order.
  void multiply(const Gemm& gemm);
  const std::vector<LibraryProduct>& library_products() const { return products_.products(); }

 private:
  uint64_t seed_;
  std::string gpu_;
  MatrixUnits units_;
  UsedProducts products_;
};

}  // namespace ulpscope::device
