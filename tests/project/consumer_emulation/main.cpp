// Rounds a number to FP16: uses emulation alone.
#include <ulpscope/emulation/rounding.h>

#include <cstdio>

int main() {
  const float third = ulpscope::f16_to_float(ulpscope::round_to_f16(1.0f / 3.0f));
  std::printf("1/3 in FP16: %.9g\n", third);
  return third == 1365.0f / 4096.0f ? 0 : 1;
}
