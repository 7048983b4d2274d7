// The half of compare_fp8.py that is ours: quantizes FP32 numbers, and multiplies quantized matrices.
//
//   run_fp8 quantize TYPE VALUES RESULT           the encodings at scale 1, and at the current scale; then that scale as FP32
//   run_fp8 multiply TYPE_A TYPE_B M K N A B RESULT  the FP32 product of FP32 matrices A [M, K] and B [N, K], quantized
#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/torch/engine_program.h"
#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/fp8.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {
namespace {

DType type_called(const std::string& name) {
  for (size_t i = 0; i < kDTypes.size(); ++i)
    if (kDTypes[i].name == name && is_quantized(static_cast<DType>(i))) return static_cast<DType>(i);
  throw usage_error("expected e4m3 or e5m2, got '{}'", name);
}

Tensor read(const std::string& path, std::vector<int64_t> shape) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const auto* values = reinterpret_cast<const float*>(bytes.data());
  if (shape.empty()) shape = {static_cast<int64_t>(bytes.size() / sizeof(float))};
  return from_host(*context().backend, DType::f32, shape, std::span(values, bytes.size() / sizeof(float)));
}

void write(std::ofstream& file, const Tensor& tensor) {
  const HostView host(tensor);
  const std::span<const std::byte> bytes = host.bytes();
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

void run(const std::vector<std::string>& arguments) {
  std::ofstream result(arguments.back(), std::ios::binary);
  if (arguments[0] == "quantize") {
    const DType type = type_called(arguments[1]);
    const Tensor x = read(arguments[2], {});
    const float one[] = {1};
    const Tensors current = dispatch(find_op("quantize"), Tensors{x}, {}, {.dtype = type});
    write(result, quantize(x, type, {}, from_host(*context().backend, DType::f32, {}, one)).values);
    write(result, current[0]);
    write(result, current[1]);
    return;
  }
  const int64_t m = std::stoll(arguments[3]), k = std::stoll(arguments[4]), n = std::stoll(arguments[5]);
  const QuantizedTensor a = quantize(read(arguments[6], {m, k}), type_called(arguments[1]), {}),
                        b = quantize(read(arguments[7], {n, k}), type_called(arguments[2]), {});
  write(result, scaled_matmul(a, {transpose(b.values), b.inverse_scale, b.amax}, DType::f32));
}

}  // namespace
}  // namespace ulpscope

int main(int argc, char** argv) {
  using namespace ulpscope;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool quantizes = arguments.size() == 4 && arguments[0] == "quantize";
  if (!quantizes && !(arguments.size() == 9 && arguments[0] == "multiply")) {
    fmt::print(stderr, "usage: run_fp8 quantize TYPE VALUES RESULT, or run_fp8 multiply TYPE_A TYPE_B M K N A B RESULT\n");
    return 2;
  }
  return run_with_engine("run_fp8", [&] { run(arguments); });
}
