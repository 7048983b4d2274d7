// One row per differentiable op: how to call it on FP64 inputs that keep away from its kinks. Gradient tests run over all rows, and
// a test fails where an op with a gradient has none.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

struct OpRow {
  struct Input {
    std::vector<int64_t> shape;
    double low = -2, high = 2;
    bool differentiable = true;
    std::vector<int64_t> integers = {};  // not empty: the elements, of type i64
  };
  std::string op;
  std::string variant;  // "" or what is special about the row
  std::vector<Input> inputs;
  Attributes attributes = {};
};

inline OpRow::Input integers(std::vector<int64_t> shape, std::vector<int64_t> values) {
  return {std::move(shape), 0, 0, false, std::move(values)};
}

inline std::vector<OpRow> op_rows() {
  const Attributes conv{{"stride_y", 1}, {"stride_x", 1}, {"padding_y", 1}, {"padding_x", 1}};
  const Attributes strided{{"stride_y", 2}, {"stride_x", 1}, {"padding_y", 0}, {"padding_x", 2}};
  const auto window = [](double stride, double padding, double dilation, double groups) {
    return Attributes{{"stride_y", stride},     {"stride_x", 1},   {"padding_y", padding}, {"padding_x", 1},
                      {"dilation_y", dilation}, {"dilation_x", 2}, {"groups", groups}};
  };
  Attributes transposed = window(3, 1, 1, 2), transposed_far = window(1, 0, 2, 1);
  transposed.set("output_padding_y", 2);
  transposed.set("output_padding_x", 1);  // below the dilation, and not below the stride
  Attributes padded{{"kernel_y", 3},  {"kernel_x", 2},  {"stride_y", 2},         {"stride_x", 1},
                    {"padding_y", 1}, {"padding_x", 1}, {"count_include_pad", 1}};
  Attributes not_counted = padded;
  not_counted.set("count_include_pad", 0);
  const Attributes pool{{"kernel_y", 2}, {"kernel_x", 2}, {"stride_y", 2}, {"stride_x", 2}, {"padding_y", 0}, {"padding_x", 0}};
  const Attributes overlapping{{"kernel_y", 3}, {"kernel_x", 3},  {"stride_y", 2},
                               {"stride_x", 1}, {"padding_y", 1}, {"padding_x", 1}};
  Attributes beyond = padded;
  beyond.set("ceil_mode", 1);
  const Attributes norm{{"eps", 1e-5}, {"momentum", 0.1}, {"training", 1}};
  const Attributes norm_evaluation{{"eps", 1e-5}, {"momentum", 0.1}, {"training", 0}};
  return {
      {"add", "", {{{3, 4}}, {{3, 4}}}},
      {"add", "broadcast", {{{2, 3, 4}}, {{3, 1}}}},
      {"sub", "broadcast", {{{4}}, {{3, 4}}}},
      {"mul", "broadcast", {{{3, 4}}, {{1, 4}}}},
      {"mul", "scalar", {{{3, 4}}, {{}}}},
      {"div", "broadcast", {{{3, 4}}, {{4}, 0.5, 2}}},
      {"neg", "", {{{5}}}},
      {"maximum", "broadcast", {{{3, 4}}, {{4}}}},
      {"relu", "", {{{37}}}},
      {"clamp", "", {{{37}}}, {{"min", -1}, {"max", 1.25}}},
      {"minimum", "broadcast", {{{3, 4}}, {{4}}}},
      {"where", "broadcast", {integers({3, 1}, {1, 0, 1}), {{3, 4}}, {{4}}}},
      {"masked_fill", "broadcast", {{{3, 4}}, integers({4}, {0, 1, 1, 0})}, {{"value", -7}}},
      {"abs", "", {{{37}}}},
      {"sqrt", "", {{{37}, 0.25, 4}}},
      {"rsqrt", "", {{{37}, 0.25, 4}}},
      {"reciprocal", "", {{{37}, 0.5, 2}}},
      {"exp", "", {{{37}}}},
      {"log", "", {{{37}, 0.25, 4}}},
      {"pow", "broadcast", {{{3, 4}, 0.25, 2}, {{4}}}},
      {"tanh", "", {{{37}}}},
      {"sigmoid", "", {{{37}}}},
      {"silu", "", {{{37}}}},
      {"softplus", "", {{{37}}}},
      {"gelu", "", {{{37}}}},
      {"gelu_tanh", "", {{{37}}}},
      {"scale", "", {{{5}}}, {{"factor", -3}}},
      {"copy", "", {{{3, 4}}}},
      {"sum", "all", {{{3, 4}}}, {{"dims", 3}, {"keep", 0}}},
      {"sum", "middle", {{{2, 3, 4}}}, {{"dims", 2}, {"keep", 0}}},
      {"sum", "kept", {{{2, 3, 4}}}, {{"dims", 5}, {"keep", 1}}},
      {"mean", "", {{{2, 3, 4}}}, {{"dims", 6}, {"keep", 0}}},
      {"matmul", "", {{{3, 5}}, {{5, 4}}}},
      {"matmul", "batched", {{{2, 3, 5}}, {{2, 5, 4}}}},
      {"linear", "", {{{3, 5}}, {{4, 5}}, {{4}}}},
      {"linear", "without bias", {{{3, 5}}, {{4, 5}}}},
      {"conv2d", "", {{{2, 3, 5, 4}}, {{4, 3, 3, 3}}, {{4}}}, conv},
      {"conv2d", "strided", {{{2, 3, 5, 4}}, {{4, 3, 2, 3}}, {{4}}}, strided},
      {"conv2d",
       "1x1 without bias",
       {{{2, 3, 5, 4}}, {{4, 3, 1, 1}}},
       {{"stride_y", 1}, {"stride_x", 1}, {"padding_y", 0}, {"padding_x", 0}}},
      {"conv2d", "dilated, in groups", {{{2, 4, 7, 6}}, {{6, 2, 3, 2}}, {{6}}}, window(2, 1, 2, 2)},
      {"conv2d", "depthwise", {{{2, 3, 7, 6}}, {{6, 1, 3, 2}}}, window(1, 0, 1, 3)},
      {"conv_transpose2d", "in groups", {{{2, 4, 3, 4}}, {{4, 3, 3, 2}}, {{6}}}, transposed},
      {"conv_transpose2d", "without bias", {{{2, 2, 3, 4}}, {{2, 3, 2, 3}}}, transposed_far},
      {"avg_pool2d", "", {{{2, 3, 5, 6}}}, padded},
      {"avg_pool2d", "without padding in the mean", {{{2, 3, 5, 6}}}, not_counted},
      {"adaptive_avg_pool2d", "", {{{2, 3, 5, 6}}}, {{"height", 3}, {"width", 4}}},
      {"adaptive_avg_pool2d", "more than there are", {{{2, 3, 2, 3}}}, {{"height", 3}, {"width", 3}}},
      {"adaptive_max_pool2d", "", {{{2, 3, 5, 6}}}, {{"height", 3}, {"width", 4}}},
      {"avg_pool2d", "beyond the image", {{{2, 3, 6, 6}}}, beyond},
      {"max_pool2d", "", {{{2, 3, 4, 6}}}, pool},
      {"max_pool2d", "beyond the image", {{{2, 3, 6, 6}}}, beyond},
      {"max_pool2d", "overlapping", {{{2, 3, 5, 6}}}, overlapping},
      {"batch_norm", "", {{{3, 2, 4, 3}}, {{2}}, {{2}}, {{2}, -1, 1, false}, {{2}, 0.5, 2, false}}, norm},
      {"batch_norm", "evaluation", {{{3, 2, 4, 3}}, {{2}}, {{2}}, {{2}, -1, 1, false}, {{2}, 0.5, 2, false}}, norm_evaluation},
      {"group_norm", "", {{{2, 6, 3, 2}}, {{6}}, {{6}}}, {{"groups", 3}, {"eps", 1e-5}}},
      {"group_norm", "one group", {{{3, 4}}, {{4}}, {{4}}}, {{"groups", 1}, {"eps", 1e-5}}},
      {"softmax", "", {{{3, 4}}}},
      {"masked_softmax", "", {{{3, 4}}, integers({3, 4}, {0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1})}},
      {"log_softmax", "", {{{3, 4}}}},
      {"logsumexp", "", {{{2, 3, 4}}}},
      {"layer_norm", "", {{{2, 3, 5}}, {{5}}, {{5}}}, {{"eps", 1e-5}}},
      {"rms_norm", "", {{{2, 3, 5}}, {{5}}}, {{"eps", 1e-5}}},
      {"lstm_cell", "", {{{2, 12}}, {{2, 12}}, {{2, 3}}}},
      {"gru_cell", "", {{{2, 9}}, {{2, 9}}, {{2, 3}}}},
      {"cat", "", {{{2, 3}}, {{2, 1}}, {{2, 4}}}, {{"dim", 1}}},
      {"embedding", "", {{{4, 3}}, integers({4}, {2, 0, 2, 3})}},
      {"gather", "", {{{3, 4}}, integers({2, 3}, {3, 0, 3, 1, 1, 2})}, {{"dim", 1}}},
      {"scatter_add", "", {{{3, 4}}, integers({2, 4}, {2, 0, 2, 1, 2, 2, 0, 1}), {{2, 4}}}, {{"dim", 0}}},
      {"dropout", "", {{{37}}}, {{"p", 0.4}, {"seed", 3}, {"stream", 5}}},
      {"var", "", {{{2, 5, 3}}}, {{"dims", 5}, {"keep", 0}, {"correction", 1}}},
      {"var", "population", {{{2, 5, 3}}}, {{"dims", 2}, {"keep", 1}, {"correction", 0}}},
      {"max", "", {{{2, 5, 3}}}, {{"dims", 2}, {"keep", 0}}},
      {"norm", "", {{{2, 5, 3}, 0.5, 2}}, {{"dims", 3}, {"keep", 0}}},
      {"cross_entropy", "", {{{4, 5}}, integers({4}, {1, 0, 4, 2})}},
      {"cross_entropy",
       "smoothed, one ignored",
       {{{4, 5}}, integers({4}, {1, 0, -7, 2})},
       {{"label_smoothing", 0.2}, {"ignore_index", -7}}},
      {"nll", "one ignored", {{{4, 5}}, integers({4}, {1, -100, 4, 2})}},
      {"l1", "", {{{3, 4}}, {{3, 4}}}},
      {"huber", "", {{{3, 4}}, {{3, 4}}}, {{"delta", 0.7}}},
      {"bce_with_logits", "", {{{3, 4}}, {{3, 4}, 0, 1, false}}},
      {"binary_cross_entropy", "", {{{3, 4}, 0.2, 0.8}, {{3, 4}, 0, 1, false}}},
      {"kl_div", "", {{{3, 4}, -3, -0.5}, {{3, 4}, 0, 1, false}}},
      {"mse", "", {{{3, 4}}, {{3, 4}}}},
  };
}

}  // namespace ulpscope
