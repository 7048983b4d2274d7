#include "ulpscope/kernels/device/emulated_backend.h"

#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "ulpscope/kernels/device/backend-inl.h"
#include "ulpscope/kernels/device/host_block.h"
#include "ulpscope/kernels/device/used_products.h"

namespace ulpscope {
namespace {

class HostMachine {
 public:
  HostMachine(uint64_t seed, std::string_view gpu) : seed_(seed), gpu_(gpu), units_(gpu) {}

  std::string name() const { return "emulated:" + gpu_; }
  std::string_view gpu() const { return gpu_; }
  bool multiplies_fp8() const { return has({InstructionFamily::mma, DType::f8_e4m3, DType::f8_e4m3, DType::f32}); }
  bool has(const MatrixInstruction& instruction) const { return units_.find(instruction) != nullptr; }
  size_t workspace_bytes() const { return kWorkspaceBytes; }
  std::string description() const { return "kernels of GPUs on the host, with the matrix units of " + gpu_; }
  // Memory that nobody wrote holds NaN, in FP32 and 16-bit types.
  void* allocate(size_t bytes) { return std::memset(::operator new(bytes, kAlignment), 0xFF, bytes); }
  void release(void* memory, size_t) { ::operator delete(memory, kAlignment); }
  void clear(void* memory, size_t bytes) { std::memset(memory, 0, bytes); }
  void to_host(const void* from, void* to, size_t bytes) { std::memcpy(to, from, bytes); }
  void from_host(const void* from, void* to, size_t bytes) { std::memcpy(to, from, bytes); }
  template <class Kernel>
  void launch(const device::Grid& grid, const Kernel& kernel) {
    device::run_on_host(
        grid, [&](device::HostBlock& block) { kernel(block); }, seed_++, units_);
  }
  // Terms are added in their order.
  void multiply(const device::Gemm& gemm) {
    for (const auto& [factor, lines] : {std::pair{gemm.a, gemm.rows}, {gemm.b, gemm.columns}})
      if (const std::string problem = device::problem_of(factor, lines, gemm.terms); !problem.empty())
        throw failed_error("a product of {} x {} x {}: {}", gemm.rows, gemm.columns, gemm.terms, problem);
    if (is_quantized(gemm.a.dtype) && gemm.columns % device::kFp8Multiple != 0)
      throw failed_error("a product of FP8 of {} columns: expected a multiple of {}", gemm.columns, device::kFp8Multiple);
    products_.use(gemm, {}, [&] {
      return LibraryProduct{device::describe_gemm(gemm), "a chain in the order of the terms, in FP32"};
    });
    std::vector<float> a, b;
    for (int64_t batch = 0; batch < gemm.batches; ++batch) {
      widen(gemm.a, batch, gemm.rows, gemm.terms, a);
      widen(gemm.b, batch, gemm.columns, gemm.terms, b);
      float* sums = gemm.sums + batch * gemm.rows * gemm.columns;
      for (int64_t row = 0; row < gemm.rows; ++row) {
        for (int64_t column = 0; column < gemm.columns; ++column) {
          float& sum = sums[row * gemm.columns + column];
          if (!gemm.continues) sum = 0;
          for (int64_t term = 0; term < gemm.terms; ++term) sum += a[row * gemm.terms + term] * b[column * gemm.terms + term];
        }
      }
    }
  }
  const std::vector<LibraryProduct>& library_products() const { return products_.products(); }

 private:
  static void widen(const device::GemmFactor& factor, int64_t batch, int64_t lines, int64_t terms, std::vector<float>& values) {
    const size_t bytes = info(factor.dtype).size;
    values.resize(static_cast<size_t>(lines * terms));
    for (int64_t line = 0; line < lines; ++line) {
      for (int64_t term = 0; term < terms; ++term) {
        const int64_t offset = batch * factor.batch_stride + line * factor.line_stride + term * factor.term_stride;
        uint32_t encoding = 0;
        std::memcpy(&encoding, static_cast<const char*>(factor.data) + static_cast<size_t>(offset) * bytes, bytes);
        values[static_cast<size_t>(line * terms + term)] = static_cast<float>(value_of(*info(factor.dtype).format, encoding));
      }
    }
  }

  static constexpr std::align_val_t kAlignment{64};
  static constexpr size_t kWorkspaceBytes = 64 << 10;  // little, so that products have parts

  uint64_t seed_;
  std::string gpu_;
  device::MatrixUnits units_;
  device::UsedProducts products_;
};

}  // namespace

std::unique_ptr<Backend> make_emulated_device_backend(uint64_t seed, std::string_view gpu) {
  return std::make_unique<device::DeviceBackend<HostMachine>>(HostMachine(seed, gpu));
}

}  // namespace ulpscope
