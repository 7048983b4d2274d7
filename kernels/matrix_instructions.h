// The matrix instructions of a GPU, one by one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ulpscope/emulation/format.h"
#include "ulpscope/emulation/tensor_core.h"

namespace ulpscope {

// d = c + a b of that family: factors in f16, bf16, f32 (which is read as TF32), or two of FP8, sums in f32 or f16.
struct MatrixInstruction {
  InstructionFamily family = InstructionFamily::mma;
  DType a = DType::f16, b = DType::f16;
  DType sums = DType::f32;

  bool operator==(const MatrixInstruction&) const = default;
};

// All pairs of factors that device code has instructions for, with the types of their sums.
struct ProductTypes {
  DType a, b, sums;
};
inline constexpr std::array<ProductTypes, 12> kProductTypes{{
    {DType::f16, DType::f16, DType::f32},
    {DType::f16, DType::f16, DType::f16},
    {DType::bf16, DType::bf16, DType::f32},
    {DType::f32, DType::f32, DType::f32},
    {DType::f8_e4m3, DType::f8_e4m3, DType::f32},
    {DType::f8_e4m3, DType::f8_e4m3, DType::f16},
    {DType::f8_e4m3, DType::f8_e5m2, DType::f32},
    {DType::f8_e4m3, DType::f8_e5m2, DType::f16},
    {DType::f8_e5m2, DType::f8_e4m3, DType::f32},
    {DType::f8_e5m2, DType::f8_e4m3, DType::f16},
    {DType::f8_e5m2, DType::f8_e5m2, DType::f32},
    {DType::f8_e5m2, DType::f8_e5m2, DType::f16},
}};

// What factors of such elements are multiplied as.
constexpr const FloatFormat& factor_format(DType dtype) { return dtype == DType::f32 ? tensor_float32 : *info(dtype).format; }
// The row of a GPU; nothing where it has none.
inline std::optional<TensorCore> tensor_core_of(std::string_view gpu, const MatrixInstruction& instruction) {
  return tensor_core_of(gpu, factor_format(instruction.a), factor_format(instruction.b), *info(instruction.sums).format,
                        instruction.family);
}

// What a thread holds of an instruction's factors are words of 32 bits. Lines of factors have kWholeWords of them; of mma with
// factors of 16 and 32 bits there is one with kShortWords, too.
inline constexpr int kWholeWords = 8, kShortWords = 4;
constexpr bool has_short_form(const MatrixInstruction& instruction) {
  return instruction.family == InstructionFamily::mma && !is_quantized(instruction.a);
}
// How many terms a line of its shortest form has.
constexpr int64_t terms_of_step(const MatrixInstruction& instruction) {
  const int words = has_short_form(instruction) ? kShortWords : kWholeWords;
  return words * static_cast<int64_t>(sizeof(uint32_t) / info(instruction.a).size);
}

// Encodings in the host's memory, side by side: a[rows][terms], b[columns][terms], c[rows][columns], and d of c's shape. `terms`
// is a multiple of terms_of_step().
struct MatrixOperands {
  const void *a, *b, *c;
  void* d;
  int64_t rows, columns, terms;
};

class MatrixInstructions {
 public:
  virtual ~MatrixInstructions() = default;
  // That the device has.
  virtual std::vector<MatrixInstruction> all() const = 0;
  // Throws Error (failed) for another one. A chain of the instruction from c on, terms in their order, the last of it in the short
  // form where that is enough.
  virtual void multiply(const MatrixInstruction& instruction, const MatrixOperands& operands) = 0;
};

}  // namespace ulpscope
