#include "ulpscope/emulation/product_shape.h"

#include <fmt/format.h>

#include <algorithm>

namespace ulpscope {

namespace {

using Shape = std::span<const int64_t>;

constexpr int64_t kMultiple = 8;

int64_t padded(int64_t extent) { return (extent + kMultiple - 1) / kMultiple * kMultiple; }

int64_t elements(Shape shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

// x [..., K] by weight [N, K].
std::optional<ProductShape> linear(Shape a, Shape b, Shape output) {
  if (output.empty()) return std::nullopt;
  ProductShape product{.n = output.back()};
  product.m = elements(output.first(output.size() - 1));
  if (b.size() == 2 && b[0] == product.n) {
    product.k = b[1];
  } else if (a.size() == output.size() && elements(a.first(a.size() - 1)) == product.m) {
    product.k = a.back();
  }
  return product;
}

// a [..., M, K] by b [..., K, N].
std::optional<ProductShape> matmul(Shape a, Shape b, Shape output) {
  if (output.size() < 2) return std::nullopt;
  const size_t outer = output.size() - 2;
  const auto fits = [&](Shape input) {
    return input.size() == output.size() &&
           std::equal(output.begin(), output.begin() + static_cast<std::ptrdiff_t>(outer), input.begin());
  };
  ProductShape product{.m = output[outer], .n = output[outer + 1], .batch = elements(output.first(outer))};
  if (fits(a) && a[outer] == product.m) {
    product.k = a[outer + 1];
  } else if (fits(b) && b[outer + 1] == product.n) {
    product.k = b[outer];
  }
  return product;
}

// Weight [out, in of a group, window...], or of a transposed one [in, out of a group, window...]. Each output pixel is a row of M.
std::optional<ProductShape> convolution(Shape a, Shape b, Shape output, bool is_transposed) {
  if (b.size() < 3 || output.size() != b.size() || elements(b) == 0) return std::nullopt;
  const int64_t pixels = output[0] * elements(output.subspan(2));
  const int64_t groups = is_transposed ? output[1] / b[1] : a.size() == b.size() ? std::max<int64_t>(1, a[1] / b[1]) : 1;
  ProductShape product{.m = pixels, .n = output[1] / groups, .k = is_transposed ? b[0] / groups : b[1], .m_is_padded = false};
  product.batch = groups * elements(b.subspan(2));  // a product of channels for each place of the window
  return product;
}

}  // namespace

double ProductShape::flop() const {
  double flop = 2.0 * static_cast<double>(batch);
  for (const int64_t extent : {m, n, k}) flop *= static_cast<double>(std::max<int64_t>(1, extent));
  return flop;
}

double ProductShape::padded_over_real() const {
  double ratio = 1;
  for (const int64_t extent : {m_is_padded ? m : 0, n, k})
    if (extent > 0) ratio *= static_cast<double>(padded(extent)) / static_cast<double>(extent);
  return ratio;
}

std::string ProductShape::padding() const {
  std::string text;
  const auto add = [&](char name, int64_t extent) {
    if (extent % kMultiple != 0) text += fmt::format("{}{} {} -> {}", text.empty() ? "" : ", ", name, extent, padded(extent));
  };
  if (m_is_padded) add('M', m);
  add('N', n);
  add('K', k);
  return text;
}

std::optional<ProductShape> product_shape(std::string_view op, Shape a, Shape b, Shape output) {
  std::optional<ProductShape> product;
  if (op == "linear") {
    product = linear(a, b, output);
  } else if (op == "matmul" || op == "bmm") {
    product = matmul(a, b, output);
  } else if (op == "conv1d" || op == "conv2d" || op == "conv3d") {
    product = convolution(a, b, output, false);
  } else if (op.starts_with("conv_transpose")) {
    product = convolution(a, b, output, true);
  }
  if (product && elements(output) == 0) return std::nullopt;
  return product;
}

}  // namespace ulpscope
