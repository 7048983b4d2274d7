#include "ulpscope/kernels/device/host_machine.h"

#include <cstring>
#include <new>
#include <utility>

#include "ulpscope/base/error.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::device {
namespace {

constexpr std::align_val_t kAlignment{64};

void widen(const GemmFactor& factor, int64_t batch, int64_t lines, int64_t terms, std::vector<float>& values) {
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

}  // namespace

void* HostMachine::allocate(size_t bytes) { return std::memset(::operator new(bytes, kAlignment), 0xFF, bytes); }
void HostMachine::release(void* memory, size_t) { ::operator delete(memory, kAlignment); }
void HostMachine::clear(void* memory, size_t bytes) { std::memset(memory, 0, bytes); }
void HostMachine::to_host(const void* from, void* to, size_t bytes) { std::memcpy(to, from, bytes); }
void HostMachine::from_host(const void* from, void* to, size_t bytes) { std::memcpy(to, from, bytes); }

void HostMachine::multiply(const Gemm& gemm) {
  for (const auto& [factor, lines] : {std::pair{gemm.a, gemm.rows}, {gemm.b, gemm.columns}})
    if (const std::string problem = problem_of(factor, lines, gemm.terms); !problem.empty())
      throw failed_error("a product of {} x {} x {}: {}", gemm.rows, gemm.columns, gemm.terms, problem);
  if (is_quantized(gemm.a.dtype) && gemm.columns % kFp8Multiple != 0)
    throw failed_error("a product of FP8 of {} columns: expected a multiple of {}", gemm.columns, kFp8Multiple);
  products_.use(gemm, {}, [&] { return LibraryProduct{describe_gemm(gemm), "a chain in the order of the terms, in FP32"}; });
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

}  // namespace ulpscope::device
