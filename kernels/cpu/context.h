// What the CPU kernels share: memory, threads, and the table that the backend builds from the families of kernels.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/kernels/backend.h"
#include "ulpscope/kernels/cpu/allocator.h"
#include "ulpscope/kernels/op_call.h"

namespace ulpscope::cpu {

class Crowd;
class GemmCache;
class ConvolutionCache;

// The instruction set and the number of threads hold for the whole process, as Highway, oneDNN and OpenMP have them: the last
// backend that was made decides, but oneDNN keeps the instruction set of the first.
struct Context {
  explicit Context(const CpuOptions& options);
  ~Context();

  std::string description() const;

  CachingAllocator allocator;
  int threads = 1;
  std::shared_ptr<Crowd> crowd;
  std::unique_ptr<GemmCache> gemms;
  std::unique_ptr<ConvolutionCache> convolutions;
};

using Kernel = std::function<void(Context&, const OpCall&)>;
struct NamedKernel {
  std::string_view op;
  Kernel run;
  bool takes_fingerprints = false;  // that the call wants, where the call's arithmetic is the default
};

// For calls whose tensors are f32, f16 and bf16 (and integers where the op has them).
std::vector<NamedKernel> elementwise_ops();
std::vector<NamedKernel> product_ops();
std::vector<NamedKernel> convolution_ops();
std::vector<NamedKernel> pooling_ops();
std::vector<NamedKernel> normalization_ops();
std::vector<NamedKernel> row_ops();
std::vector<NamedKernel> indexing_ops();
std::vector<NamedKernel> reduction_ops();
std::vector<NamedKernel> loss_ops();
std::vector<NamedKernel> quantization_ops();
std::vector<NamedKernel> training_ops();

}  // namespace ulpscope::cpu
