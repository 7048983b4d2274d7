#include "ulpscope/kernels/op_call_arithmetic.h"

#include <algorithm>
#include <vector>

#include "ulpscope/emulation/tensor_core.h"

namespace ulpscope {
namespace {

constexpr std::string_view kProducts[] = {"matmul",
                                          "linear",
                                          "conv2d",
                                          "conv2d_backward_input",
                                          "conv2d_backward_weight",
                                          "conv_transpose2d",
                                          "conv_transpose2d_backward_input",
                                          "conv_transpose2d_backward_weight",
                                          "scaled_matmul"};
constexpr std::string_view kMoves[] = {"cat", "copy", "embedding", "gather", "slice_backward", "source"};

bool stands_in(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::span<const Accumulation> accumulations() {
  static const std::vector<Accumulation> rows = [] {
    std::vector<Accumulation> all{
        {"fp32", Accumulator::fp32, "in FP32, as the cores of CPUs and GPUs do"},
        {"fp16", Accumulator::narrow, "in FP16, one term after the other", &binary16},
        {"bf16", Accumulator::narrow, "in BF16, one term after the other", &bfloat16},
        {"fp64", Accumulator::fp64, "in FP64, one term after the other"},
        {"exact", Accumulator::exact, "exactly, with no rounding before that of the output"},
        {"mi200", Accumulator::fp32, "in FP32, with subnormal FP16 and BF16 factors and results flushed, as AMD's MI200", nullptr,
         true},
    };
    for (const TensorCoreGpu& gpu : tensor_core_gpus())
      all.push_back({gpu.name, Accumulator::tensor_core, "as the tensor cores of that GPU"});
    return all;
  }();
  return rows;
}

const Accumulation* find_accumulation(std::string_view name) {
  const auto rows = accumulations();
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Accumulation& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

const char* name_of(Subnormals subnormals) {
  static constexpr const char* kNames[] = {"keep", "flush-inputs", "flush-outputs", "flush"};
  return kNames[static_cast<size_t>(subnormals)];
}

std::span<const std::string_view> arithmetic_products() { return kProducts; }
bool is_product(std::string_view op) { return stands_in(kProducts, op); }
std::span<const std::string_view> moving_ops() { return kMoves; }
bool only_moves(std::string_view op) { return stands_in(kMoves, op); }

}  // namespace ulpscope
