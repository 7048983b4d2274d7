// Random operands of tensor cores: any bit patterns, numbers of like size, cancellation, subnormals, zeros of both signs, Inf, NaN.
#pragma once

#include <algorithm>
#include <vector>

#include "tests/emulation/tensor_core_twin.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/tensor_core.h"

namespace ulpscope {

inline TensorCore core_of(const twin::Row& row, const twin::Format& a, const twin::Format& b) {
  return find_tensor_core(row.gpu, parse_format(a.name), parse_format(b.name),
                          row.conversion == twin::Conversion::rne_fp16 ? binary16 : binary32, parse_instruction_family(row.family),
                          parse_block_scales(row.scales));
}

struct RandomCase {
  std::vector<uint32_t> a, b;
  uint32_t c = 0;
  std::vector<uint8_t> a_scales, b_scales;
};

class RandomCases {
 public:
  explicit RandomCases(uint64_t seed) : random_(seed, 0) {}

  RandomCase next(const TensorCore& core, size_t length) {
    RandomCase result;
    const uint32_t kind = below(5);
    finite_ = below(3) > 0;
    like_size_ = kind == 1 || kind == 2;
    like_scales_ = kind == 1;
    // Products with exponents next to that of zero.
    tiny_ = kind == 4 ? core.model->zero_exponent / 2 - 8 : kNotTiny;
    for (size_t i = 0; i < length; ++i) {
      result.a.push_back(element(*core.a));
      result.b.push_back(element(*core.b));
      // The same product with the other sign.
      if (kind == 2 && i % 2 == 1 && below(8) > 0) {
        result.a[i] = result.a[i - 1] ^ sign_bit(*core.a);
        result.b[i] = result.b[i - 1];
      }
      if (kind == 3 && below(2) == 0) result.a[i] &= sign_bit(*core.a);  // zeros
    }
    if (kind == 4) tiny_ = core.model->zero_exponent - 4;
    result.c = element(*core.model->output);
    if (below(3) == 0) result.c &= sign_bit(*core.model->output);
    if (const int each = elements_of_scale(core.model->scales); each > 0) {
      for (size_t i = 0; i < (length + each - 1) / each; ++i) {
        result.a_scales.push_back(scale(core.model->scales));
        result.b_scales.push_back(scale(core.model->scales));
      }
    }
    return result;
  }

  uint32_t element(const FloatFormat& format) {
    const bool is_tf32 = &format == &tensor_float32;
    const FloatFormat& stored = is_tf32 ? binary32 : format;
    for (;;) {
      uint32_t encoding = bits() & static_cast<uint32_t>(stored.sign_bit() | stored.last_magnitude());
      const auto exponent_mask = static_cast<uint32_t>(stored.infinity_encoding());
      const int largest_field = static_cast<int>(stored.largest_encoding() >> stored.fraction_bits);
      if (like_size_ || tiny_ != kNotTiny) {  // one of few exponents
        const int first = like_size_ ? std::max(1, stored.bias - 2) : std::max(0, tiny_ + stored.bias);
        const int field = std::min(first + static_cast<int>(below(like_size_ ? 5 : 9)), largest_field);
        encoding = (encoding & ~exponent_mask) | static_cast<uint32_t>(field) << stored.fraction_bits;
      } else if (below(16) == 0) {
        encoding &= ~exponent_mask;  // subnormal
      }
      if (!finite_ || (encoding & stored.last_magnitude()) <= stored.largest_encoding()) return encoding;
    }
  }

 private:
  static uint32_t sign_bit(const FloatFormat& format) {
    return static_cast<uint32_t>((&format == &tensor_float32 ? binary32 : format).sign_bit());
  }
  uint8_t scale(BlockScales scales) {
    const uint32_t any = bits() & 0xFF;
    if (scales == BlockScales::nvf4) return static_cast<uint8_t>(finite_ && (any & 0x7F) == 0x7F ? 0x38 : any);
    return static_cast<uint8_t>(like_scales_ ? 122 + any % 10 : finite_ && any == 0xFF ? 127 : any);
  }
  uint32_t bits() { return random_.bits(draw_++); }
  uint32_t below(uint32_t bound) { return random_.below(draw_++, bound); }

  Philox random_;
  uint64_t draw_ = 0;
  bool finite_ = true, like_size_ = false, like_scales_ = false;
  static constexpr int kNotTiny = 1000;
  int tiny_ = kNotTiny;
};

}  // namespace ulpscope
