// Linear layers in FP8, as NVIDIA's Transformer Engine has them: inputs and weights are quantized for the forward product, the
// gradient that comes in for the two of the backward pass, each tensor with one scale.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "ulpscope/core/tensor/tensor.h"

namespace ulpscope {

// Where scales come from (kernels/quantization.h).
enum class ScalingRecipe : uint8_t { current, delayed };
const char* name_of(ScalingRecipe recipe);
// The keys of Fp8Settings that not all recipes take.
std::span<const std::string_view> keys_of(ScalingRecipe recipe);
// What delayed scaling takes from the history of amaxes.
enum class AmaxChoice : uint8_t { max, most_recent };
const char* name_of(AmaxChoice choice);
// hybrid: E4M3 in the forward pass, E5M2 for gradients.
enum class Fp8Format : uint8_t { hybrid, e4m3_only };
const char* name_of(Fp8Format format);

struct Fp8Settings {
  ScalingRecipe recipe = ScalingRecipe::current;
  Fp8Format format = Fp8Format::hybrid;
  int64_t margin = 0;         // scales are divided by 2^margin
  bool power_of_two = false;  // scales are rounded down to one
  int64_t amax_history = 1024;
  AmaxChoice amax = AmaxChoice::max;

  DType forward_type() const { return DType::f8_e4m3; }
  DType backward_type() const { return format == Fp8Format::hybrid ? DType::f8_e5m2 : DType::f8_e4m3; }
  bool operator==(const Fp8Settings&) const = default;
};

// What is quantized in a linear layer.
enum class Fp8Operand : uint8_t { input, weight, gradient };
inline constexpr size_t kFp8Operands = 3;
const char* name_of(Fp8Operand operand);

// The state of delayed scaling: of each operand the amaxes of the passes before, the newest first, and the scale that follows from
// them. It changes in backward alone, so that evaluation leaves it as it is, and what a checkpoint computes again has the scales
// that it had.
struct DelayedScales {
  struct OfOperand {
    Tensor amax_history, scale;  // [settings.amax_history] and [1]
  };
  std::array<OfOperand, kFp8Operands> of;
};

struct QuantizedTensor {
  Tensor values, inverse_scale, amax;  // amax: of the tensor before, NaN left out
};
// With current scaling, or the scale that is given.
QuantizedTensor quantize(const Tensor& x, DType type, const Fp8Settings& settings, const Tensor& scale = {});
// (a b) times both inverse scales, plus bias, in FP32 and rounded once to `type`: [M, K], [K, N] and [N].
Tensor scaled_matmul(const QuantizedTensor& a, const QuantizedTensor& b, DType type, const Tensor& bias = {});

// x w^T + bias: [M, K], [N, K] and [N]. Under autocast; x and bias are cast to its type, which the result has. `scales` are what
// delayed scaling needs, and outlive the backward pass.
Tensor fp8_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Fp8Settings& settings, DelayedScales& scales);

}  // namespace ulpscope
