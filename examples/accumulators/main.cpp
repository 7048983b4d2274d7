// 1 * 1 + 4095 * (2^-7 * 2^-7), in E4M3: what different accumulators make of 1.24993896484375.
#include <ulpscope/emulation/rounding.h>
#include <ulpscope/emulation/summation.h>
#include <ulpscope/emulation/tensor_core.h>

#include <cstdio>
#include <vector>

using namespace ulpscope;

int main() {
  std::vector<float> values(4096, 0x1p-7f);
  values[0] = 1;
  std::vector<uint32_t> factors(values.size());
  round_encodings(e4m3, {.mode = RoundingMode::nearest_even}, values, factors);
  const EncodedArray array(e4m3, std::span<const uint32_t>(factors));
  for (const FloatFormat* format : {&binary16, &binary32})
    std::printf("%s, one after the other: %.9g\n", format->name.data(),
                value_of(*format, dot(array, array, {.accumulator = format})));
  std::printf("exact: %.9g\n", value_of(binary64, dot(array, array, {.order = SumOrder::exact, .accumulator = &binary64})));
  const TensorCore h100 = find_tensor_core("h100", e4m3, e4m3, binary32, InstructionFamily::wgmma);
  std::printf("h100, wgmma: %.9g\n", value_of(binary32, dot(h100, factors, factors, 0)));
}
