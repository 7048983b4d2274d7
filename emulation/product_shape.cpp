#include "ulpscope/emulation/product_shape.h"

#include <fmt/format.h>

#include <algorithm>

namespace ulpscope {

namespace {

using Shape = std::span<const int64_t>;

int64_t padded(int64_t extent, int64_t multiple) { return (extent + multiple - 1) / multiple * multiple; }

int64_t elements(Shape shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

std::optional<ProductShape> linear(Shape a, Shape b, Shape output) {
  if (output.empty()) return std::nullopt;
  ProductShape product{.n = output.back(), .k = ProductShape::kUnknown};
  product.m = elements(output.first(output.size() - 1));
  if (b.size() == 2 && b[0] == product.n) {
    product.k = b[1];
  } else if (a.size() == output.size() && elements(a.first(a.size() - 1)) == product.m) {
    product.k = a.back();
  }
  return product;
}

std::optional<ProductShape> matmul(Shape a, Shape b, Shape output) {
  if (output.size() < 2) return std::nullopt;
  const size_t outer = output.size() - 2;
  const auto fits = [&](Shape input) {
    return input.size() == output.size() &&
           std::equal(output.begin(), output.begin() + static_cast<std::ptrdiff_t>(outer), input.begin());
  };
  ProductShape product{
      .m = output[outer], .n = output[outer + 1], .k = ProductShape::kUnknown, .batch = elements(output.first(outer))};
  if (fits(a) && a[outer] == product.m) {
    product.k = a[outer + 1];
  } else if (fits(b) && b[outer + 1] == product.n) {
    product.k = b[outer];
  }
  return product;
}

std::optional<ProductShape> convolution(Shape a, Shape b, Shape output, bool is_transposed) {
  if (b.size() < 3 || a.size() != b.size() || output.size() != b.size() || elements(b) == 0) return std::nullopt;
  const Shape image = is_transposed ? a : output;
  const int64_t groups = std::max<int64_t>(1, (is_transposed ? output[1] : a[1]) / b[1]);
  ProductShape product{
      .m = image[0] * elements(image.subspan(2)), .n = output[1] / groups, .k = a[1] / groups, .m_is_padded = false};
  product.batch = groups * elements(b.subspan(2));  // a product of channels for each place of the window
  return product;
}

}  // namespace

double ProductShape::flop() const {
  double flop = 2.0 * static_cast<double>(batch);
  for (const int64_t extent : {m, n, k == kUnknown ? 1 : k}) flop *= static_cast<double>(extent);
  return flop;
}

double ProductShape::padded_over_real() const {
  double ratio = 1;
  for (const int64_t extent : {m_is_padded ? m : 0, n, k})
    if (extent > 0) ratio *= static_cast<double>(padded(extent, multiple)) / static_cast<double>(extent);
  return ratio;
}

std::string ProductShape::padding() const {
  std::string text;
  const auto add = [&](char name, int64_t extent) {
    if (extent % multiple != 0)
      text += fmt::format("{}{} {} -> {}", text.empty() ? "" : ", ", name, extent, padded(extent, multiple));
  };
  if (m_is_padded) add('M', m);
  add('N', n);
  if (k != kUnknown) add('K', k);
  return text;
}

std::vector<int64_t> ProductShape::numbers() const { return {m, n, k, batch, m_is_padded ? 1 : 0, multiple}; }

std::optional<ProductShape> ProductShape::of(std::span<const int64_t> numbers) {
  if (numbers.size() != 5 && numbers.size() != 6) return std::nullopt;
  ProductShape product{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4] != 0};
  if (numbers.size() == 6) product.multiple = numbers[5];
  return product.multiple > 0 ? std::optional(product) : std::nullopt;
}

std::optional<ProductShape> product_shape(ProductKind kind, Shape a, Shape b, Shape output) {
  if (elements(output) == 0) return std::nullopt;
  switch (kind) {
    case ProductKind::linear:
      return linear(a, b, output);
    case ProductKind::matmul:
      return matmul(a, b, output);
    case ProductKind::convolution:
    case ProductKind::transposed_convolution:
      return convolution(a, b, output, kind == ProductKind::transposed_convolution);
    case ProductKind::none:
      break;
  }
  return std::nullopt;
}

}  // namespace ulpscope
