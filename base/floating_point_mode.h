// The CPU's floating-point mode, for results that must not depend on what the caller set: with subnormals taken for zero, for
// example, FP32 ones become zero in FP64.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace ulpscope {

// How additions and other operations on floats are rounded, as the bits of the CPU's control register.
enum class CpuRounding : unsigned { nearest = 0, down = 0x2000, up = 0x4000, toward_zero = 0x6000 };

// While it lives: this rounding, by default that of every program, subnormals kept, exceptions masked. Then what the caller had.
class FloatingPointMode {
 public:
#if defined(__SSE__)
  explicit FloatingPointMode(CpuRounding rounding = CpuRounding::nearest)
      : caller_(_mm_getcsr()), mode_(kExceptionsMasked | static_cast<unsigned>(rounding)) {
    if (caller_ != mode_) _mm_setcsr(mode_);
  }
  ~FloatingPointMode() {
    if (caller_ != mode_) _mm_setcsr(caller_);
  }
#else
  explicit FloatingPointMode(CpuRounding = CpuRounding::nearest) {}
#endif
  FloatingPointMode(const FloatingPointMode&) = delete;
  FloatingPointMode& operator=(const FloatingPointMode&) = delete;

#if defined(__SSE__)
 private:
  static constexpr unsigned kExceptionsMasked = 0x1F80;
  unsigned caller_, mode_;
#endif
};

}  // namespace ulpscope
