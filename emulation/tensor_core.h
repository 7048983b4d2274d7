// Dot products as NVIDIA's tensor cores compute them, bit for bit. What a GPU does is a row of numbers; one algorithm reads it:
//
//   1. The products of a block are exact. A product's exponent is the sum of its factors' exponent fields, so its significand is
//      in [1, 4), or less where a factor is subnormal.
//   2. The largest exponent of all terms that are not zero, the accumulator C among them, and of the row's zero_exponent is e_max.
//   3. Every term is cut off, towards zero, after fraction_bits bits below 2^e_max. There are no guard and no sticky bits.
//   4. The integers that are left are added exactly, and the sum is converted once. What is too large becomes Inf, also where the
//      conversion rounds towards zero. Subnormal results are kept. A zero is +0, whatever its terms:
//      measured of Hopper, and taken to hold for others.
//   5. The result is the accumulator of the next block.
//
// NaN results have one encoding, 0x7FFFFFFF or 0x7FFF. Everything is integer arithmetic.
//
// Sources: Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores" (PeerJ Computer Science, 2021); Khattak and
// Mikaitis, "Accurate models of NVIDIA tensor cores" (arXiv:2512.07004), whose GPU results the tests read; Xie et al.,
// "Bit-accurate modeling of GPU matrix multiply-accumulate units" (arXiv:2511.10909) and its reference models, microsoft/MMA-Sim.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "ulpscope/emulation/format.h"
#include "ulpscope/emulation/number.h"

namespace ulpscope {

// The families of matrix instructions of the PTX instruction set.
enum class InstructionFamily : uint8_t { mma, wgmma, tcgen05 };

// How factors are scaled in blocks along k. All scales are one byte.
enum class BlockScales : uint8_t {
  none,
  mx,    // a power of two (E8M0) for 32 elements, whose exponent is added to those of the products
  mxf4,  // the same scales; the terms are sums of 16 products, exact, and their exponents those of the scales alone
  nvf4,  // an unsigned E4M3 number for 16 elements; terms as for mxf4
};

// FP32 with a significand that has 13 bits after the point.
inline constexpr FloatFormat e8m13{"e8m13", 8, 13, 127};

inline constexpr int kProductsOfGroup = 16;

struct TensorCoreModel {
  std::string_view generation;
  InstructionFamily family;
  BlockScales scales;
  std::span<const FloatFormat* const> inputs;  // of A and B, one for both, or any two of 8 bits or fewer
  const FloatFormat* output;                   // and of C
  int products;                                // of a block
  int fraction_bits;                           // that terms keep below 2^e_max
  int zero_exponent;                           // e_max where all terms are zero, and never less
  const FloatFormat* conversion;               // of the sum: to a format of the output's exponents,
  RoundingMode rounding;                       // in this mode
  // Instructions that the GPU does not have are made of others: FP8 factors become those of binary16, `passes` sums follow each
  // other, each over two of 2 * passes consecutive products, and start from zero; C is added at the end, rounded to nearest even.
  const FloatFormat* factors = nullptr;  // what factors are converted to, exactly; nullptr: they stay what they are
  int passes = 1;
  bool adds_c_last = false;
  bool has_hardware_data = false;  // the project's tests compare this row with results of such a GPU

  bool takes(const FloatFormat& a, const FloatFormat& b) const;  // as the factors of a product
  int products_of_instruction() const { return products * passes; }
  bool adds_groups() const { return scales == BlockScales::mxf4 || scales == BlockScales::nvf4; }  // of kProductsOfGroup
};

// All rows.
std::span<const TensorCoreModel> tensor_core_models();

// A row, and the formats of its factors.
struct TensorCore {
  const TensorCoreModel* model;
  const FloatFormat* a;
  const FloatFormat* b;
};

struct TensorCoreGpu {
  std::string_view name, generation;
  InstructionFamily of_libraries;  // that cuBLASLt and Transformer Engine multiply matrices with
};
std::span<const TensorCoreGpu> tensor_core_gpus();
// Its row; nullptr: there is none of that name.
const TensorCoreGpu* find_tensor_core_gpu(std::string_view name);
// The row's name of what a driver calls "NVIDIA H100 80GB HBM3" or "NVIDIA GeForce RTX 4090"; "": none of them.
std::string_view tensor_core_gpu_of(std::string_view device);
std::string_view name_of(InstructionFamily family);
std::string_view name_of(BlockScales scales);
// Both throw a usage Error that names all there are.
InstructionFamily parse_instruction_family(std::string_view name);
BlockScales parse_block_scales(std::string_view name);

// Nothing where there is no such GPU, or it multiplies no such formats.
std::optional<TensorCore> tensor_core_of(std::string_view gpu, const FloatFormat& a, const FloatFormat& b,
                                         const FloatFormat& output, InstructionFamily family = InstructionFamily::mma,
                                         BlockScales scales = BlockScales::none);
// Throws a usage Error instead, which says what the GPU has. Its name may be in capital letters.
TensorCore find_tensor_core(std::string_view gpu, const FloatFormat& a, const FloatFormat& b, const FloatFormat& output,
                            InstructionFamily family = InstructionFamily::mma, BlockScales scales = BlockScales::none);

// That of the instructions which libraries multiply matrices of these formats with on a GPU (a row's name), sums in FP32 and no
// scales; nothing where it has none.
std::optional<TensorCore> library_tensor_core(std::string_view gpu, const FloatFormat& a, const FloatFormat& b);

// How many elements have one scale; 0: there are none.
int elements_of_scale(BlockScales scales);
// What the byte of a scale stands for, and in what: nvfp4's in E4M3 have no sign.
const FloatFormat& format_of_scale(BlockScales scales);
Number decode_scale(BlockScales scales, uint8_t encoding);
struct ScaleFactors {
  std::span<const uint8_t> a, b;  // one for each elements_of_scale elements, the last for what is left
};

// c + sum of a[i] b[i]: an encoding of the model's output, as `c` is. The factors are encodings of their formats, those of TF32
// FP32 encodings whose 13 low bits are not read. Lengths that the instruction does not have are filled up with zeros. Throws a
// usage Error where lengths differ, or scales are missing or too many.
uint32_t dot(const TensorCore& core, std::span<const uint32_t> a, std::span<const uint32_t> b, uint32_t c,
             const ScaleFactors& scales = {});

// x + y in an output's format, to nearest even: the last addition of C where the model has it.
uint32_t add_accumulators(const FloatFormat& output, uint32_t x, uint32_t y);

// What became of one term.
struct TensorCoreTerm {
  static constexpr int64_t kAccumulator = -1;
  int64_t element = 0;  // its index in a and b, or that of the first of a group; kAccumulator
  Number value;         // exact
  int exponent = 0;     // that it is aligned by; of zero the model's zero_exponent
  int64_t kept = 0;     // what is left of it, in units of 2^(e_max - fraction_bits)
};

// One fused sum, or (where is_addition) the last addition of C.
struct TensorCoreSum {
  bool is_addition = false;
  std::vector<TensorCoreTerm> terms;  // the accumulator last
  int max_exponent = 0;
  int64_t sum = 0;      // of what is left of the terms
  uint32_t result = 0;  // encoding of the output format
};

// The same sums, in their order: the last result is dot's. Sums with NaN or Inf among their terms have no max_exponent and sum.
std::vector<TensorCoreSum> explain_dot(const TensorCore& core, std::span<const uint32_t> a, std::span<const uint32_t> b, uint32_t c,
                                       const ScaleFactors& scales = {});

}  // namespace ulpscope
