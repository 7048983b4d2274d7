// FP32 convolutions by oneDNN's direct algorithm, on channels-last images. Primitives and their memory objects are kept by shape.
#pragma once

#include <cstdint>
#include <memory>

#include "ulpscope/kernels/cpu/primitive_cache.h"
#include "ulpscope/kernels/windows.h"

namespace ulpscope::cpu {

enum class Pass : uint8_t { forward, backward_input, backward_weight };

struct ConvolutionShape {
  Pass pass = Pass::forward;
  int64_t images = 0, channels = 0, height = 0, width = 0;
  int64_t filters = 0, out_height = 0, out_width = 0;
  int64_t groups = 1;
  Windows windows;
  int threads = 1;  // 1: to be run inside a parallel region
  bool bias = false;
  bool operator==(const ConvolutionShape&) const = default;
  uint64_t hash() const;

  // Multiplications for an element of the output.
  int64_t terms() const { return channels / groups * windows.y.kernel * windows.x.kernel; }
  int64_t weights() const { return filters * terms(); }
  int64_t input_image() const { return channels * height * width; }
  int64_t output_image() const { return filters * out_height * out_width; }
};

// oneDNN chooses how the weights lie; they are brought there, or back, by a call of their own.
class Convolution {
 public:
  Convolution(const ConvolutionShape& shape, int slots);
  ~Convolution();
  Convolution(const Convolution&) = delete;

  size_t scratch_bytes() const;  // of run and of reorder_weights
  size_t weight_bytes() const;   // of the weights as oneDNN has them
  // Weights from [O, C / groups, KH, KW] (forward, backward_input), or to it (backward_weight).
  void reorder_weights(int slot, const void* from, void* to, void* scratch) const;
  // forward: x, weights, y (and bias); backward_input: y, weights, x; backward_weight: x, y, weights. Different slots may run at
  // the same time.
  void run(int slot, const float* first, const void* second, const void* third, const float* bias, void* scratch) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class ConvolutionCache : public PrimitiveCache<ConvolutionShape, Convolution> {
  using PrimitiveCache::PrimitiveCache;
};

}  // namespace ulpscope::cpu
