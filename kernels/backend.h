// Computes op calls on one device. cpu/ computes wide and stores the real 16-bit encodings, rounding once.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/kernels/op_call.h"

namespace ulpscope {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;         // "cpu"
  virtual std::string description() const = 0;  // machine, instruction set, threads, library versions: what bit-equality depends on

  virtual std::vector<std::string_view> ops() const = 0;  // that it computes, by name
  // Computes the call. Shapes and dtypes were checked by the op's shape rule. Views may have any non-negative strides.
  virtual void run(const OpCall& call) = 0;

  // The first element of output `slot` (in logical order) that is not finite, with its operands. After run, inputs unchanged.
  virtual ElementCapture capture_nonfinite(const OpCall& call, int slot) = 0;
  // The same of a given element.
  virtual ElementCapture capture_element(const OpCall& call, int slot, int64_t element) = 0;

  virtual void* allocate(size_t bytes) = 0;  // 64-byte aligned; never nullptr
  virtual void release(void* memory, size_t bytes) = 0;
  virtual size_t allocated_bytes() const = 0;  // in use now, scratch included
  virtual size_t peak_bytes() const = 0;       // the largest of that since reset_peak
  virtual void reset_peak() = 0;
  virtual void synchronize() = 0;
};

struct CpuOptions {
  int threads = 0;       // 0: all cores
  std::string isa = {};  // "" the best there is; "sse4", "avx2", "avx512": our kernels and oneDNN are held to it
};
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options = {});

}  // namespace ulpscope
