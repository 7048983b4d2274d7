#include "ulpscope/emulation/narrow_format.h"

#include "ulpscope/base/error.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/emulation/simd_rounding.h"

namespace ulpscope {

namespace {

constexpr NarrowFormat kNarrowFormats[] = {
    {&binary16, round_to_f16, f16_to_float, round_to_f16, f16_to_float},
    {&bfloat16, round_to_bf16, bf16_to_float, round_to_bf16, bf16_to_float},
};

}  // namespace

const NarrowFormat& narrow_format(const FloatFormat& format) {
  for (const NarrowFormat& narrow : kNarrowFormats) {
    if (narrow.format == &format) return narrow;
  }
  throw failed_error("internal: {} has no 16-bit encodings", format.name);
}

}  // namespace ulpscope
