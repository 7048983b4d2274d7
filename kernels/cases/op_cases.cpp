#include "ulpscope/kernels/cases/op_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ulpscope/base/philox.h"
#include "ulpscope/kernels/formulas.h"
#include "ulpscope/kernels/pool_windows.h"

namespace ulpscope::cases {

namespace {

// Inputs for which the formula is finite.
TensorSpec formula_input(std::string_view op, const std::vector<int64_t>& shape) {
  constexpr std::string_view kOfPositive[] = {
      "sqrt", "rsqrt", "log", "pow", "pow_backward_exponent", "pow_backward_base", "binary_cross_entropy_backward"};
  const bool positive = std::find(std::begin(kOfPositive), std::end(kOfPositive), op) != std::end(kOfPositive);
  return {shape, Lay::contiguous, {}, 0, positive ? 0.0625 : -1.0, 1};
}

// Every formula, with attributes for any of them.
template <typename... F>
std::vector<Case> formula_cases(const std::vector<int64_t>& shape, lanes::FormulaList<F...>) {
  const std::vector<Attributes::Item> attributes{{"min", -0.25},    {"max", 0.5},  {"factor", 0.3}, {"value", 0.1},
                                                 {"max_norm", 0.7}, {"chosen", 1}, {"delta", 0.3}};
  return {Case{F::kName, std::vector<TensorSpec>(F::kInputs, formula_input(F::kName, shape)), {{shape}}, attributes}...};
}

}  // namespace

std::vector<Case> elementwise_cases(const std::vector<int64_t>& shape) {
  std::vector<Case> cases = formula_cases(shape, lanes::Formulas());
  const OutputSpec in_place{shape, Lay::contiguous, {}, 0};
  cases.push_back({"source", {{shape}}, {in_place}});
  cases.push_back({"accumulate", {{shape}, {shape}}, {in_place}});
  cases.push_back({"assign", {{shape}, {shape, Lay::contiguous, DType::f32}}, {in_place}});
  const TensorSpec mask{shape, Lay::contiguous, DType::boolean, 2};
  cases.push_back({"masked_fill", {{shape}, mask}, {{shape}}, {{"value", 0.3}}});
  cases.push_back(
      {"masked_fill", {{shape}, {shape, Lay::contiguous, DType::boolean, 1}}, {{shape}}, {{"value", 0.3}}});  // all stay
  cases.push_back({"where", {mask, {shape}, {shape}}, {{shape}}});
  cases.push_back({"where_backward", {{shape}, mask}, {{shape}}, {{"chosen", 0}}});
  cases.push_back({"cast", {{shape, Lay::contiguous, DType::f32, 0, -70000, 70000}}, {{shape}}});
  cases.push_back({"cast", {{shape}}, {{shape, Lay::contiguous, DType::f32}}});
  cases.push_back({"clip_norm", {{shape}, {{}, Lay::contiguous, DType::f32, 0, 0.5, 4}}, {in_place}, {{"max_norm", 0.7}}});
  cases.push_back({"unscale",
                   {{shape}, {{}, Lay::contiguous, DType::f32, 0, 0, 0}},
                   {in_place, {{}, Lay::contiguous, DType::f32, 1}},
                   {{"inverse_scale", 0.125}}});
  return cases;
}

namespace {

void add_reductions(std::vector<Case>& cases) {
  for (const char* op : {"var", "max", "norm"}) {
    for (const auto& [x, lay, out, dims] :
         {std::tuple<std::vector<int64_t>, Lay, std::vector<int64_t>, double>{{37}, Lay::contiguous, {}, 1},
          {{7, 530}, Lay::transposed, {7}, 2},
          {{1100, 33}, Lay::contiguous, {33}, 1},
          {{9, 1500}, Lay::broadcast, {}, 3},
          {{3, 17, 5, 7}, Lay::channels_last, {17}, 13}}) {
      std::vector<OutputSpec> outputs{{out}};
      if (std::string_view(op) != "norm") outputs.push_back({out, Lay::contiguous, DType::f32});
      cases.push_back({op, {{x, lay}}, outputs, {{"dims", dims}, {"keep", 0}, {"correction", 1}}});
    }
  }
  for (const char* op : {"sum", "mean"}) {
    cases.push_back({op, {{{37}}}, {{{}}}, {{"dims", 1}, {"keep", 0}}});
    cases.push_back({op, {{{1500}}}, {{{}}}, {{"dims", 1}, {"keep", 0}}});
    cases.push_back({op, {{{37, 10}}}, {{{10}}}, {{"dims", 1}, {"keep", 0}}});
    cases.push_back({op, {{{1100, 33}}}, {{{33}}}, {{"dims", 1}, {"keep", 0}}});
    cases.push_back({op, {{{70, 300}}}, {{{300}}}, {{"dims", 1}, {"keep", 0}}});
    cases.push_back({op, {{{7, 530}}}, {{{7, 1}}}, {{"dims", 2}, {"keep", 1}}});
    cases.push_back({op, {{{600, 5}, Lay::transposed}}, {{{5}}}, {{"dims", 1}, {"keep", 0}}});
    cases.push_back({op, {{{3, 17, 5, 7}, Lay::channels_last}}, {{{17}}}, {{"dims", 13}, {"keep", 0}}});
    cases.push_back({op, {{{3, 4, 5, 7}, Lay::channels_last}}, {{{}}}, {{"dims", 15}, {"keep", 0}}});
    cases.push_back({op, {{{3, 4, 5, 7}, Lay::strided}}, {{{3, 5}}}, {{"dims", 10}, {"keep", 0}}});
    cases.push_back({op, {{{9, 6}, Lay::broadcast}}, {{{6}}}, {{"dims", 1}, {"keep", 0}}});
    cases.push_back({op, {{{1}}}, {{{}}}, {{"dims", 1}, {"keep", 0}}});
    cases.push_back({op, {{{}}}, {{{}}}, {{"dims", 0}, {"keep", 0}}});
    cases.push_back({op, {{{0}}}, {{{}}}, {{"dims", 1}, {"keep", 0}}});
    cases.push_back({op, {{{3, 0, 2}}}, {{{3, 1, 2}}}, {{"dims", 2}, {"keep", 1}}});
    cases.push_back({op, {{{3, 0, 2}}}, {{{3, 0}}}, {{"dims", 4}, {"keep", 0}}});
  }
  cases.push_back({"gradient_norm", {{{0}}, {{1}}}, {{{}, Lay::contiguous, DType::f32}}});
  cases.push_back({"correct_count", {{{0, 4}}, {{0}, Lay::contiguous, DType::i64, 4}}, {{{}, Lay::contiguous, DType::i64}}});
  cases.push_back({"gradient_norm", {{{37}}, {{3, 5}}}, {{{}, Lay::contiguous, DType::f32}}});
  cases.push_back({"gradient_norm", {{{1500}}, {{3, 5}}, {{2, 3, 5, 7}, Lay::channels_last}}, {{{}, Lay::contiguous, DType::f32}}});
  cases.push_back({"correct_count", {{{33, 10}}, {{33}, Lay::contiguous, DType::i64, 10}}, {{{}, Lay::contiguous, DType::i64}}});
}

void add_quantization(std::vector<Case>& cases) {
  const OutputSpec scalar{{}, Lay::contiguous, DType::f32};
  for (const DType type : {DType::f8_e4m3, DType::f8_e5m2}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{37}, {9, 16}, {0}, {3, 5, 7, 4}, {70, 600}}) {
      const std::vector<OutputSpec> outputs{{shape, Lay::contiguous, type}, scalar, scalar, scalar};
      for (const double power_of_two : {0.0, 1.0})
        cases.push_back({"quantize", {{shape}}, outputs, {{"margin", 2 * power_of_two}, {"power_of_two", power_of_two}}});
      // A scale that flushes, and one that saturates.
      for (const double scale : {1e-3, 1e6})
        cases.push_back({"quantize", {{shape}, {{}, Lay::contiguous, DType::f32, 0, scale, scale}}, outputs});
    }
    for (const double most_recent : {0.0, 1.0}) {
      cases.push_back({"amax_history_update",
                       {{{5}, Lay::contiguous, DType::f32, 0, 0, 3},
                        {{}, Lay::contiguous, DType::f32, 0, 7, 8},
                        {{}, Lay::contiguous, DType::f32, 0, 0, 3}},
                       {{{5}, Lay::contiguous, DType::f32, 0}, {{}, Lay::contiguous, DType::f32, 1}},
                       {{"dtype", static_cast<double>(type)}, {"most_recent", most_recent}}});
    }
    for (const auto& [m, n, k] :
         {std::array<int64_t, 3>{3, 5, 7}, {32, 10, 100}, {301, 50, 60}, {20, 700, 60}, {16, 24, 2500}, {0, 4, 5}}) {
      Case product{"scaled_matmul",
                   {{{m, k}, Lay::contiguous, type, 0, -300, 300},
                    {{k, n}, Lay::transposed, DType::f8_e4m3, 0, -300, 300},
                    {{}, Lay::contiguous, DType::f32, 0, 1e-4, 1e-3},
                    {{}, Lay::contiguous, DType::f32, 0, 1e-4, 1e-3}},
                   {{{m, n}}},
                   {},
                   k + 3};  // two scales and the bias besides
      cases.push_back(product);
      product.inputs.push_back({{n}});
      cases.push_back(product);
    }
  }
}

void add_products(std::vector<Case>& cases) {
  const auto matmul = [&](int64_t m, int64_t n, int64_t k, Lay a = Lay::contiguous, Lay b = Lay::contiguous) {
    cases.push_back({"matmul", {{{m, k}, a}, {{k, n}, b}}, {{{m, n}}}, {}, k});
  };
  matmul(1, 8, 8);
  matmul(3, 5, 7);
  matmul(17, 33, 65, Lay::transposed, Lay::contiguous);
  matmul(31, 10, 129, Lay::contiguous, Lay::transposed);
  matmul(19, 23, 40, Lay::strided, Lay::strided);
  matmul(12, 14, 16, Lay::contiguous, Lay::broadcast);
  matmul(1, 1, 40);
  matmul(1, 1, 1);
  matmul(0, 5, 4);
  matmul(4, 0, 5);
  matmul(4, 5, 0);
  matmul(5, 1, 3, Lay::transposed, Lay::transposed);
  // Large enough to be cut, along each of the three extents, with a rest.
  matmul(701, 64, 70, Lay::contiguous, Lay::transposed);
  matmul(40, 900, 70);
  matmul(24, 40, 3001, Lay::transposed, Lay::contiguous);
  cases.push_back({"matmul", {{{2, 3, 9, 20}}, {{2, 3, 20, 11}}}, {{{2, 3, 9, 11}}}, {}, 20});
  cases.push_back({"matmul", {{{70, 33, 40}}, {{70, 40, 35}, Lay::broadcast}}, {{{70, 33, 35}}}, {}, 40});
  for (const bool bias : {false, true}) {
    for (const auto& [m, n, k] :
         {std::array<int64_t, 3>{32, 10, 100}, {1, 8, 8}, {301, 50, 60}, {20, 700, 60}, {16, 24, 2500}, {1, 1, 1}, {0, 4, 5}}) {
      Case linear{"linear", {{{m, k}}, {{n, k}}}, {{{m, n}}}, {}, k + 1};
      if (bias) linear.inputs.push_back({{n}});
      cases.push_back(linear);
    }
  }
}

struct ConvolutionSizes {
  int64_t images, channels, height, width, filters, kernel_y, kernel_x, stride_y, stride_x, padding_y, padding_x;
  int64_t dilation_y = 1, dilation_x = 1, groups = 1;
  int64_t more_y = 0, more_x = 0;  // output padding of the transposed convolution
};

void add_convolutions(std::vector<Case>& cases) {
  const ConvolutionSizes sizes[] = {
      {2, 3, 9, 7, 5, 3, 3, 1, 1, 1, 1},
      {3, 1, 12, 10, 32, 3, 3, 1, 1, 1, 1},
      {5, 32, 8, 8, 17, 3, 2, 2, 1, 0, 1, 1, 1, 1, 1, 0},
      {1, 4, 11, 5, 8, 5, 5, 2, 3, 2, 2, 1, 1, 1, 0, 2},
      {2, 2, 17, 19, 40, 1, 1, 1, 1, 0, 0},
      {1, 33, 30, 31, 1, 1, 1, 1, 1, 0, 0},
      {3, 16, 6, 6, 16, 1, 1, 2, 2, 0, 0, 1, 1, 1, 1, 1},
      {17, 8, 5, 5, 24, 3, 3, 1, 1, 0, 0},
      {2, 5, 12, 11, 7, 3, 2, 1, 2, 2, 1, 2, 3},
      {3, 16, 9, 8, 32, 3, 3, 1, 1, 1, 1, 1, 1, 2},
      {2, 6, 7, 8, 9, 2, 3, 2, 1, 0, 1, 2, 1, 3},
      {4, 16, 10, 9, 16, 3, 3, 1, 1, 1, 1, 1, 1, 16},
      {2, 3, 6, 5, 6, 2, 2, 1, 1, 0, 0, 3, 3, 3, 2, 1},  // output padding below the dilation, not below the stride
      {3, 8, 6, 6, 4, 1, 1, 1, 1, 0, 0, 1, 1, 4},
      {1, 2, 56, 82, 59, 1, 1, 1, 2, 0, 0, 1, 1, 1, 0, 1},  // few channels under a stride, shared out to threads by oneDNN
  };
  for (const ConvolutionSizes& s : sizes) {
    const int64_t reach_y = (s.kernel_y - 1) * s.dilation_y + 1, reach_x = (s.kernel_x - 1) * s.dilation_x + 1;
    const int64_t out_height = (s.height + 2 * s.padding_y - reach_y) / s.stride_y + 1;
    const int64_t out_width = (s.width + 2 * s.padding_x - reach_x) / s.stride_x + 1;
    const std::vector<int64_t> x{s.images, s.channels, s.height, s.width}, y{s.images, s.filters, out_height, out_width};
    const std::vector<int64_t> w{s.filters, s.channels / s.groups, s.kernel_y, s.kernel_x};
    std::vector<Attributes::Item> attributes{{"stride_y", static_cast<double>(s.stride_y)},
                                             {"stride_x", static_cast<double>(s.stride_x)},
                                             {"padding_y", static_cast<double>(s.padding_y)},
                                             {"padding_x", static_cast<double>(s.padding_x)}};
    if (s.dilation_y * s.dilation_x * s.groups > 1) {
      attributes.push_back({"dilation_y", static_cast<double>(s.dilation_y)});
      attributes.push_back({"dilation_x", static_cast<double>(s.dilation_x)});
      attributes.push_back({"groups", static_cast<double>(s.groups)});
    }
    // The image that a transposed convolution makes of a map.
    const std::vector<int64_t> image{s.images, s.channels, (out_height - 1) * s.stride_y + reach_y - 2 * s.padding_y + s.more_y,
                                     (out_width - 1) * s.stride_x + reach_x - 2 * s.padding_x + s.more_x};
    const int64_t window = s.kernel_y * s.kernel_x, places = s.images * out_height * out_width;
    const int64_t of_map = s.channels / s.groups * window, of_image = s.filters / s.groups * window;
    for (const Lay lay : {Lay::channels_last, Lay::contiguous}) {
      const OutputSpec map_out{y, Lay::channels_last};
      cases.push_back({"conv2d", {{x, lay}, {w}, {{s.filters}}}, {map_out}, attributes, of_map + 1});
      cases.push_back({"conv2d_backward_input", {{y, lay}, {w}}, {{x, Lay::channels_last}}, attributes, of_image});
      cases.push_back({"conv2d_backward_weight", {{y, lay}, {x, lay}}, {{w}, {{s.filters}}}, attributes, places});
      cases.push_back(
          {"conv_transpose2d", {{y, lay}, {w}, {{s.channels}}}, {{image, Lay::channels_last}}, attributes, of_image + 1});
      cases.push_back({"conv_transpose2d_backward_input", {{image, lay}, {w}}, {map_out}, attributes, of_map});
      const int64_t area = s.images * image[2] * image[3];
      cases.push_back({"conv_transpose2d_backward_weight",
                       {{image, lay}, {y, lay}},
                       {{w}, {{s.channels}}},
                       attributes,
                       std::max(places, area)});
    }
    cases.push_back({"conv2d", {{x, Lay::channels_last}, {w, Lay::channels_last}}, {{y, Lay::channels_last}}, attributes, of_map});
    cases.push_back({"conv_transpose2d", {{y, Lay::channels_last}, {w}}, {{image, Lay::channels_last}}, attributes, of_image});
  }
}

// Of adaptive_max_pool2d: each of an element that its window covers.
TensorSpec adaptive_indices(const std::vector<int64_t>& image, const std::vector<int64_t>& pooled, Lay lay) {
  const PoolAxis y{image[2], pooled[2], true, {}}, x{image[3], pooled[3], true, {}};
  TensorSpec indices{pooled, lay, DType::i32, image[2] * image[3]};
  const Philox random(3, 1);
  const int64_t count = pooled[0] * pooled[1] * pooled[2] * pooled[3];
  for (int64_t i = 0; i < count; ++i) {
    const PoolSpan rows = y.span(i / pooled[3] % pooled[2]), columns = x.span(i % pooled[3]);
    const auto of = [&](const PoolSpan& span, int64_t number) {
      return span.begin + random.below(static_cast<uint64_t>(number), static_cast<uint32_t>(span.end - span.begin));
    };
    const int64_t place = of(rows, 2 * i) * image[3] + of(columns, 2 * i + 1);
    indices.values.push_back(static_cast<double>(place));
  }
  return indices;
}

void add_pooling(std::vector<Case>& cases) {
  struct Sizes {
    int64_t images, channels, height, width, kernel_y, kernel_x, stride_y, stride_x, padding_y, padding_x;
    int64_t beyond_y = 0, beyond_x = 0;  // ceil_mode: the last window's place that lies beyond the padding
  };
  for (const Sizes& s :
       {Sizes{3, 32, 8, 8, 2, 2, 2, 2, 0, 0}, Sizes{5, 7, 27, 28, 3, 2, 3, 2, 0, 0}, Sizes{2, 5, 7, 9, 2, 2, 2, 2, 0, 0},
        Sizes{1, 19, 4, 5, 2, 3, 2, 1, 1, 1}, Sizes{2, 7, 9, 11, 3, 3, 2, 2, 1, 1}, Sizes{1, 19, 6, 7, 3, 2, 1, 1, 1, 0},
        Sizes{2, 1, 20, 20, 5, 4, 3, 3, 2, 2}, Sizes{2, 19, 6, 7, 3, 2, 2, 2, 0, 0, 1, 1},
        Sizes{1, 7, 8, 7, 3, 3, 2, 3, 1, 1, 1, 0}}) {
    const int64_t out_height = (s.height + 2 * s.padding_y + s.beyond_y - s.kernel_y) / s.stride_y + 1;
    const int64_t out_width = (s.width + 2 * s.padding_x + s.beyond_x - s.kernel_x) / s.stride_x + 1;
    const std::vector<int64_t> x{s.images, s.channels, s.height, s.width}, y{s.images, s.channels, out_height, out_width};
    const std::vector<Attributes::Item> attributes{
        {"kernel_y", static_cast<double>(s.kernel_y)},         {"kernel_x", static_cast<double>(s.kernel_x)},
        {"stride_y", static_cast<double>(s.stride_y)},         {"stride_x", static_cast<double>(s.stride_x)},
        {"padding_y", static_cast<double>(s.padding_y)},       {"padding_x", static_cast<double>(s.padding_x)},
        {"ceil_mode", s.beyond_y + s.beyond_x > 0 ? 1.0 : 0.0}};
    for (const Lay lay : {Lay::channels_last, Lay::contiguous}) {
      cases.push_back({"max_pool2d", {{x, lay}}, {{y, Lay::channels_last}, {y, Lay::channels_last, DType::u8}}, attributes});
      cases.push_back({"max_pool2d_backward",
                       {{y, lay}, {y, Lay::channels_last, DType::u8, s.kernel_y * s.kernel_x}},
                       {{x, Lay::channels_last}},
                       attributes});
    }
    cases.push_back({"max_pool2d", {{x}}, {{y}, {y, Lay::contiguous, DType::u8}}, attributes});
    for (const double counted : {0.0, 1.0}) {
      std::vector<Attributes::Item> average = attributes;
      average.push_back({"count_include_pad", counted});
      for (const Lay lay : {Lay::channels_last, Lay::contiguous}) {
        cases.push_back({"avg_pool2d", {{x, lay}}, {{y, Lay::channels_last}}, average});
        cases.push_back({"avg_pool2d_backward", {{y, lay}}, {{x, Lay::channels_last}}, average});
      }
    }
  }
  // To as many parts as there are, fewer, more, and one.
  struct Parts {
    int64_t images, channels, height, width, rows, columns;
  };
  for (const Parts& s : {Parts{2, 5, 7, 6, 7, 6}, Parts{3, 19, 9, 7, 4, 3}, Parts{1, 33, 2, 3, 5, 4}, Parts{17, 40, 7, 7, 1, 1},
                         Parts{2, 3, 8, 9, 1, 3}}) {
    const std::vector<int64_t> x{s.images, s.channels, s.height, s.width}, y{s.images, s.channels, s.rows, s.columns};
    for (const Lay lay : {Lay::channels_last, Lay::contiguous}) {
      for (const Lay out : {Lay::channels_last, Lay::contiguous}) {
        cases.push_back({"adaptive_avg_pool2d", {{x, lay}}, {{y, out}}});
        cases.push_back({"adaptive_avg_pool2d_backward", {{y, lay}}, {{x, out}}});
        cases.push_back({"adaptive_max_pool2d", {{x, lay}}, {{y, out}, {y, out, DType::i32}}});
        cases.push_back({"adaptive_max_pool2d_backward", {{y, lay}, adaptive_indices(x, y, Lay::channels_last)}, {{x, out}}});
      }
    }
  }
}

void add_normalization(std::vector<Case>& cases) {
  const std::vector<std::pair<std::vector<int64_t>, Lay>> shapes{
      {{4, 17, 5, 7}, Lay::channels_last}, {{3, 130, 13, 14}, Lay::channels_last}, {{2, 1, 30, 30}, Lay::channels_last},
      {{2, 19, 3, 3}, Lay::channels_last}, {{700, 40}, Lay::contiguous},           {{600, 3}, Lay::contiguous},
      {{3, 6, 4, 5}, Lay::contiguous}};
  for (const auto& [x, lay] : shapes) {
    const std::vector<int64_t> c{x[1]};
    const auto parameter = [&](double low, double high) { return TensorSpec{c, Lay::contiguous, DType::f32, 0, low, high}; };
    const auto of_x = [&](double low, double high) {
      return TensorSpec{c, Lay::contiguous, {}, 0, low, high};
    };  // of the type of x
    const OutputSpec wide{c, Lay::contiguous, DType::f32};
    cases.push_back({"batch_norm",
                     {{x, lay, {}, 0, 1, 3}, of_x(0.5, 2), of_x(-1, 1), of_x(-1, 1), of_x(0.5, 2)},
                     {{x, lay}, wide, wide, {c, Lay::contiguous, {}, 3}, {c, Lay::contiguous, {}, 4}},
                     {{"eps", 1e-5}, {"momentum", 0.1}, {"training", 1}}});
    cases.push_back({"batch_norm_backward",
                     {{x, lay}, {x, lay, {}, 0, 1, 3}, of_x(0.5, 2), parameter(1.9, 2.1), parameter(0.5, 2)},
                     {{x, lay}, {c}, {c}},
                     {{"training", 1}}});
    for (const double training : {0.0, 1.0}) {
      OutputSpec mean = wide, variance = wide;
      mean.in_place_of = 3;
      variance.in_place_of = 4;
      cases.push_back({"batch_norm",
                       {{x, lay, {}, 0, 1, 3}, parameter(0.5, 2), parameter(-1, 1), parameter(-1, 1), parameter(0.5, 2)},
                       training != 0 ? std::vector<OutputSpec>{{x, lay}, wide, wide, mean, variance}
                                     : std::vector<OutputSpec>{{x, lay}, wide, wide},
                       {{"eps", 1e-5}, {"momentum", 0.1}, {"training", training}}});
      cases.push_back({"batch_norm_backward",
                       {{x, lay}, {x, lay, {}, 0, 1, 3}, parameter(0.5, 2), parameter(1.9, 2.1), parameter(0.5, 2)},
                       {{x, lay}, wide, wide},
                       {{"training", training}}});
    }
    cases.push_back({"batch_norm_backward",
                     {{x, Lay::strided}, {x, lay, {}, 0, 1, 3}, parameter(0.5, 2), parameter(1.9, 2.1), parameter(0.5, 2)},
                     {{x, lay}, wide, wide},
                     {{"training", 1}}});
  }
}

void add_group_norm(std::vector<Case>& cases) {
  struct Sizes {
    std::vector<int64_t> x;
    int64_t groups;
    Lay lay;
  };
  for (const Sizes& s : {Sizes{{4, 18, 5, 7}, 3, Lay::channels_last}, Sizes{{1, 260, 23, 23}, 4, Lay::channels_last},
                         Sizes{{3, 5, 4, 6}, 1, Lay::channels_last}, Sizes{{2, 6, 3, 3}, 6, Lay::channels_last},
                         Sizes{{1, 2, 30, 30}, 2, Lay::channels_last}, Sizes{{33, 40}, 5, Lay::contiguous},
                         Sizes{{2, 6, 4, 5}, 2, Lay::contiguous}}) {
    const std::vector<int64_t> c{s.x[1]}, statistic{s.x[0], s.groups};
    const OutputSpec wide{statistic, Lay::contiguous, DType::f32};
    cases.push_back({"group_norm",
                     {{s.x, s.lay, {}, 0, 1, 3}, {c, Lay::contiguous, {}, 0, 0.5, 2}, {c}},
                     {{s.x, s.lay}, wide, wide},
                     {{"groups", static_cast<double>(s.groups)}, {"eps", 1e-5}}});
    for (const Lay of_gradient : {s.lay, Lay::strided}) {
      cases.push_back({"group_norm_backward",
                       {{s.x, of_gradient},
                        {s.x, s.lay, {}, 0, 1, 3},
                        {c, Lay::contiguous, {}, 0, 0.5, 2},
                        {statistic, Lay::contiguous, DType::f32, 0, 1.9, 2.1},
                        {statistic, Lay::contiguous, DType::f32, 0, 0.5, 2}},
                       {{s.x, s.lay}, {c}, {c}}});
    }
  }
}

void add_row_ops(std::vector<Case>& cases) {
  const std::vector<Attributes::Item> eps{{"eps", 1e-5}};
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{5, 17}, {3, 2, 37}, {2, 1500}, {70, 128}, {1, 1}, {40000}, {0, 17}}) {
    const std::vector<int64_t> vector{shape.back()}, scalars(shape.begin(), shape.end() - 1);
    const TensorSpec positive{scalars, Lay::contiguous, DType::f32, 0, 0.5, 2};
    const OutputSpec wide_scalars{scalars, Lay::contiguous, DType::f32};
    for (const char* op : {"softmax", "log_softmax"}) {
      cases.push_back({op, {{shape, Lay::contiguous, {}, 0, -8, 8}}, {{shape}}});
      cases.push_back({std::string(op) + "_backward", {{shape}, {shape}}, {{shape}}});
    }
    cases.push_back(
        {"masked_softmax", {{shape, Lay::contiguous, {}, 0, -8, 8}, {shape, Lay::contiguous, DType::boolean, 2}}, {{shape}}});
    cases.push_back({"logsumexp", {{shape, Lay::contiguous, {}, 0, -8, 8}}, {{scalars}}});
    cases.push_back({"logsumexp_backward", {{scalars}, {shape}, {scalars}}, {{shape}}});
    cases.push_back({"layer_norm", {{shape}, {vector}, {vector}}, {{shape}, wide_scalars, wide_scalars}, eps});
    cases.push_back({"layer_norm_backward", {{shape}, {shape}, {vector}, {scalars}, positive}, {{shape}}});
    cases.push_back({"layer_norm_backward_weight", {{shape}, {shape}, {scalars}, positive}, {{vector}, {vector}}});
    cases.push_back({"rms_norm", {{shape}, {vector}}, {{shape}, wide_scalars}, eps});
    cases.push_back({"rms_norm_backward", {{shape}, {shape}, {vector}, positive}, {{shape}}});
    cases.push_back({"rms_norm_backward_weight", {{shape}, {shape}, positive}, {{vector}}});
    const auto gates = [&](int64_t count) {
      std::vector<int64_t> whole = shape;
      whole.back() *= count;
      return whole;
    };
    const std::vector<int64_t> four = gates(4), three = gates(3);
    cases.push_back({"lstm_cell", {{four}, {four}, {shape}}, {{shape}, {shape}, {four}}});
    cases.push_back({"lstm_cell_backward", {{shape}, {shape}, {four}, {shape}, {shape}}, {{four}, {shape}}});
    cases.push_back({"gru_cell", {{three}, {three}, {shape}}, {{shape}, {three}}});
    cases.push_back({"gru_cell_backward", {{shape}, {three}, {three}, {shape}}, {{three}, {three}, {shape}}});
  }
  cases.push_back({"lstm_cell",
                   {{{6, 76}, Lay::transposed}, {{6, 76}, Lay::broadcast}, {{6, 19}, Lay::strided}},
                   {{{6, 19}}, {{6, 19}}, {{6, 76}}}});
  cases.push_back({"masked_softmax", {{{6, 5, 19}}, {{6, 5, 19}, Lay::broadcast, DType::boolean, 2}}, {{{6, 5, 19}}}});
  // Rows that are masked throughout, as half of those of one value are, and long ones.
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{64, 1}, {64, 2}, {2, 40000}})
    cases.push_back({"masked_softmax", {{shape}, {shape, Lay::contiguous, DType::boolean, 2}}, {{shape}}, {{"safe", 1}}});
  cases.push_back({"softmax", {{{6, 19}}}, {{{6, 19}}}, {{"safe", 1}}});
  // Rows that do not lie together.
  cases.push_back({"softmax", {{{6, 5, 19}, Lay::transposed}}, {{{6, 5, 19}}}});
  cases.push_back({"softmax_backward", {{{6, 5, 19}, Lay::broadcast}, {{6, 5, 19}, Lay::strided}}, {{{6, 5, 19}}}});
  cases.push_back({"layer_norm_backward_weight",
                   {{{6, 5, 19}, Lay::transposed}, {{6, 5, 19}}, {{6, 5}}, {{6, 5}, Lay::contiguous, DType::f32, 0, 0.5, 2}},
                   {{{19}}, {{19}}}});
}

void add_indexing(std::vector<Case>& cases) {
  cases.push_back({"cat", {{{3, 5}}, {{3, 2}, Lay::strided}, {{3, 7}, Lay::transposed}}, {{{3, 14}}}, {{"dim", 1}}});
  cases.push_back({"cat", {{{2, 3, 4}}, {{5, 3, 4}, Lay::channels_last}}, {{{7, 3, 4}}}, {{"dim", 0}}});
  cases.push_back({"cat", {{{0, 5}}, {{2, 5}}, {{0, 5}}}, {{{2, 5}}}, {{"dim", 0}}});
  cases.push_back({"cat", {{{8, 64, 70}}, {{8, 64, 130}}}, {{{8, 64, 200}}}, {{"dim", 2}}});
  const auto slice = [](double dim, double start, double step) {
    return std::vector<Attributes::Item>{{"dim", dim}, {"start", start}, {"step", step}};
  };
  cases.push_back({"slice_backward", {{{3, 4, 5}}}, {{{3, 10, 5}}}, slice(1, 2, 2)});
  cases.push_back({"slice_backward", {{{4}, Lay::strided}}, {{{9}}}, slice(0, 5, 1)});
  cases.push_back({"slice_backward", {{{300, 130}, Lay::transposed}}, {{{300, 200}}}, slice(1, 7, 1)});
  for (const std::vector<int64_t>& indices : {std::vector<int64_t>{}, {0}, {7}, {4, 9}, {20, 30}}) {
    std::vector<int64_t> out = indices;
    out.push_back(17);
    const TensorSpec rows{indices, Lay::contiguous, DType::i64, 11};
    cases.push_back({"embedding", {{{11, 17}}, rows}, {{out}}});
    cases.push_back({"embedding_backward", {{out, indices.size() == 2 ? Lay::transposed : Lay::contiguous}, rows}, {{{11, 17}}}});
  }
  const TensorSpec below_4{{5, 3, 4}, Lay::contiguous, DType::i64, 4};
  cases.push_back({"gather", {{{6, 4, 4}, Lay::transposed}, below_4}, {{{5, 3, 4}}}, {{"dim", 1}}});
  cases.push_back({"gather", {{{6, 4, 4}}, {{6, 2, 4}, Lay::contiguous, DType::i64, 1}}, {{{6, 2, 4}}}, {{"dim", 1}}});
  cases.push_back({"gather_backward", {{{5, 3, 4}, Lay::strided}, below_4}, {{{6, 4, 4}}}, {{"dim", 1}}});
  cases.push_back({"scatter_add", {{{6, 4, 4}}, below_4, {{5, 4, 5}, Lay::transposed}}, {{{6, 4, 4}}}, {{"dim", 1}}});
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {37}, {3, 4001}})
    cases.push_back({"dropout", {{shape}}, {{shape}}, {{"p", 0.3}, {"seed", 7}, {"stream", 11}}});
  for (const std::vector<int64_t>& images : {std::vector<int64_t>{2, 3, 4, 5}, {3, 33, 20, 21}})
    cases.push_back({"dropout", {{images}}, {{images, Lay::channels_last}}, {{"p", 0.3}, {"seed", 7}, {"stream", 11}}});
  cases.push_back({"embedding_backward", {{{4000, 19}}, {{4000}, Lay::contiguous, DType::i64, 30}}, {{{30, 19}}}});
}

void add_losses(std::vector<Case>& cases) {
  const TensorSpec g{{}, Lay::contiguous, DType::f32, 0, 1, 2};
  for (const auto& [rows, classes] : {std::pair<int64_t, int64_t>{33, 10}, {1, 1}, {0, 4}, {600, 3}, {5, 700}}) {
    const std::vector<int64_t> shape{rows, classes}, row{rows};
    const TensorSpec target{row, Lay::contiguous, DType::i64, classes};
    const OutputSpec scalar{{}, Lay::contiguous, DType::f32}, sums{row, Lay::contiguous, DType::f32};
    for (const Lay lay : {Lay::contiguous, Lay::strided}) {
      for (const double smoothing : {0.0, 0.1}) {
        // Of ten classes, targets of class 3 are ignored.
        const std::vector<Attributes::Item> attributes{{"label_smoothing", smoothing},
                                                       {"ignore_index", classes == 10 ? 3.0 : -100.0}};
        cases.push_back({"cross_entropy", {{shape, lay, {}, 0, -5, 5}, target}, {scalar, sums}, attributes});
        cases.push_back({"cross_entropy_backward",
                         {g, {shape, lay, {}, 0, -5, 5}, target, {row, Lay::contiguous, DType::f32, 0, 1, 3}},
                         {{shape}},
                         attributes});
      }
      cases.push_back({"nll", {{shape, lay, {}, 0, -5, 0}, target}, {scalar}, {{"ignore_index", 3}}});
    }
    cases.push_back({"nll_backward", {g, target}, {{shape}}, {{"ignore_index", classes == 1 ? -1.0 : 0.0}}});
  }
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1500}, {37}, {1}, {0}, {2, 3, 20, 21}}) {
    const Lay lay = shape.size() == 4 ? Lay::channels_last : Lay::contiguous;
    for (const Lay other : {lay, Lay::strided}) {
      // Inputs within (0, 1) fit every one of them.
      for (const char* op : {"mse", "l1", "huber", "bce_with_logits", "binary_cross_entropy", "kl_div"})
        cases.push_back({op,
                         {{shape, lay, {}, 0, 0.01, 0.99}, {shape, other, {}, 0, 0.01, 0.99}},
                         {{{}, Lay::contiguous, DType::f32}},
                         {{"delta", 0.3}}});
      cases.push_back({"mse_backward", {g, {shape, lay}, {shape, other}}, {{shape, lay}}, {{"factor", 0.01}}});
    }
  }
}

void add_updates(std::vector<Case>& cases) {
  for (const int64_t n : {0, 1, 37, 20000}) {
    const std::vector<int64_t> shape{n};
    const OutputSpec d{shape, Lay::contiguous, {}, -1, true};
    const auto in_place = [&](int input) { return OutputSpec{shape, Lay::contiguous, {}, input}; };
    const TensorSpec state{shape, Lay::contiguous, {}, 0, 0, 0.1};
    for (const double decay : {0.0, 0.01}) {
      for (const double decoupled : {0.0, 1.0}) {
        for (const double stepwise : {0.0, 1.0}) {
          cases.push_back({"adam_update",
                           {{shape}, {shape}, {shape}, state},
                           {in_place(0), in_place(2), in_place(3), d},
                           {{"lr", 1e-3},
                            {"beta1", 0.9},
                            {"beta2", 0.999},
                            {"eps", 1e-8},
                            {"weight_decay", decay},
                            {"decoupled", decoupled},
                            {"step", 3},
                            {"stepwise", stepwise}}});
        }
      }
      for (const double stepwise : {0.0, 1.0}) {
        cases.push_back({"lion_update",
                         {{shape}, {shape}, {shape}},
                         {in_place(0), in_place(2), d},
                         {{"lr", 1e-3}, {"beta1", 0.9}, {"beta2", 0.99}, {"weight_decay", decay}, {"stepwise", stepwise}}});
        const auto sgd = [&](double momentum, double damping, double flag) {
          return std::vector<Attributes::Item>{
              {"lr", 0.1},        {"momentum", momentum}, {"dampening", damping}, {"weight_decay", decay},
              {"nesterov", flag}, {"first", flag},        {"stepwise", stepwise}};
        };
        cases.push_back({"sgd_update", {{shape}, {shape}}, {in_place(0), d}, sgd(0, 0, 0)});
        for (const double first : {0.0, 1.0})
          cases.push_back({"sgd_update", {{shape}, {shape}, {shape}}, {in_place(0), in_place(2), d}, sgd(0.9, 0.1, first)});
      }
    }
  }
}

}  // namespace

std::vector<Case> other_cases() {
  std::vector<Case> cases;
  add_reductions(cases);
  add_quantization(cases);
  add_products(cases);
  add_convolutions(cases);
  add_pooling(cases);
  add_normalization(cases);
  add_group_norm(cases);
  add_indexing(cases);
  add_row_ops(cases);
  add_losses(cases);
  add_updates(cases);
  return cases;
}

std::vector<Case> small_cases(const std::vector<Case>& all, int64_t largest) {
  std::vector<Case> cases;
  for (const Case& what : all) {
    int64_t elements = 0;
    for (const TensorSpec& input : what.inputs) {
      int64_t size = 1;
      for (const int64_t extent : input.shape) size *= extent;
      elements = std::max(elements, size);
    }
    if (elements <= largest) cases.push_back(what);
  }
  return cases;
}

}  // namespace ulpscope::cases
