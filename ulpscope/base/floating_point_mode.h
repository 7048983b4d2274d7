// The CPU's floating-point mode, for results that must not depend on what the caller set: with subnormals taken for zero, for
// example, FP32 ones become zero in FP64.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace ulpscope {

// Restores the default mode (round to nearest, subnormals kept, exceptions masked) while it lives.
class DefaultFloatingPointMode {
 public:
#if defined(__SSE__)
  DefaultFloatingPointMode() : caller_(_mm_getcsr()) {
    if (caller_ != kDefault) _mm_setcsr(kDefault);
  }
  ~DefaultFloatingPointMode() {
    if (caller_ != kDefault) _mm_setcsr(caller_);
  }
#else
  DefaultFloatingPointMode() {}
#endif
  DefaultFloatingPointMode(const DefaultFloatingPointMode&) = delete;
  DefaultFloatingPointMode& operator=(const DefaultFloatingPointMode&) = delete;

#if defined(__SSE__)
 private:
  static constexpr unsigned kDefault = 0x1F80;
  unsigned caller_;
#endif
};

}  // namespace ulpscope
