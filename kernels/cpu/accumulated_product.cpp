#include "ulpscope/kernels/cpu/accumulated_product.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/cpu/accumulators.h"
#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/cpu/reader.h"
#include "ulpscope/kernels/cpu/reductions.h"
#include "ulpscope/kernels/store.h"
#include "ulpscope/kernels/windows.h"

namespace ulpscope::cpu {
namespace {

// Multiplications below which a second thread costs more than it brings, and rows that a thread takes at a time.
constexpr int64_t kSerialWork = 1 << 14;
constexpr int64_t kTileRows = 32;

// Writes the rows first, ..., first + count - 1 of a factor, one after the other, in its own type.
using Gather = std::function<void(int64_t first, int64_t count, void* to)>;

// One product of an op call, of rows and columns that are gathered. Element (i, j) of it is the one at
// row_offset(i) + j * column_stride of the output.
struct Product {
  int64_t rows = 0, columns = 0, terms = 0;
  Gather a, b;  // rows of the first factor; columns of the second
  std::function<int64_t(int64_t row)> row_offset;
  int64_t column_stride = 1;
  const float* bias = nullptr;  // one for each column: a term of its sums
};

// `n` elements that lie this far apart; E holds an encoding.
template <typename E>
void copy_strided(const E* from, int64_t stride, int64_t n, E* to) {
  if (stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(E));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
  }
}

// Rows of a matrix that lies in memory.
template <typename E>
Gather rows_of(const void* data, int64_t row_stride, int64_t column_stride, int64_t terms) {
  return [=](int64_t first, int64_t count, void* to) {
    for (int64_t i = 0; i < count; ++i)
      copy_strided(static_cast<const E*>(data) + (first + i) * row_stride, column_stride, terms, static_cast<E*>(to) + i * terms);
  };
}

template <typename E>
std::vector<Product> matmul_products(const OpCall& call) {
  const TensorView &a = call.inputs[0], &b = call.inputs[1], &out = call.outputs[0];
  const int rank = a.rank;
  const int64_t m = a.shape[rank - 2], k = a.shape[rank - 1], n = b.shape[rank - 1], row = out.strides[rank - 2];
  std::vector<Product> products(static_cast<size_t>(out.size() / (m * n)));
  for (size_t i = 0; i < products.size(); ++i) {
    const auto batch = static_cast<int64_t>(i);
    const int64_t base = offset_of(out, batch * m * n);
    products[i] = {.rows = m,
                   .columns = n,
                   .terms = k,
                   .a = rows_of<E>(a.as<const E>() + offset_of(a, batch * m * k), a.strides[rank - 2], a.strides[rank - 1], k),
                   .b = rows_of<E>(b.as<const E>() + offset_of(b, batch * k * n), b.strides[rank - 1], b.strides[rank - 2], k),
                   .row_offset = [=](int64_t r) { return base + r * row; },
                   .column_stride = out.strides[rank - 1]};
  }
  return products;
}

template <typename E>
std::vector<Product> linear_products(const OpCall& call, const float* bias) {
  const TensorView &x = call.inputs[0], &w = call.inputs[1], &out = call.outputs[0];
  const int64_t k = x.shape[1], row = out.strides[0];
  return {{.rows = x.shape[0],
           .columns = w.shape[0],
           .terms = k,
           .a = rows_of<E>(x.data, x.strides[0], x.strides[1], k),
           .b = rows_of<E>(w.data, w.strides[0], w.strides[1], k),
           .row_offset = [=](int64_t r) { return r * row; },
           .column_stride = out.strides[1],
           .bias = bias}};
}

// The tensors of a convolution by their parts in it (see convolutions.cpp of core/ops): an image, a map of it, a weight
// [filters, channels of a group, KH, KW].
struct Convolution {
  TensorView image, map, weight;
  Windows windows;
  int64_t groups, channels, filters;  // the last two of a group

  Convolution(const Attributes& attributes, const TensorView& of_image, const TensorView& of_map, const TensorView& of_weight)
      : image(of_image),
        map(of_map),
        weight(of_weight),
        windows(Windows::of(attributes, of_weight.shape[2], of_weight.shape[3])),
        groups(groups_of(attributes)),
        channels(of_weight.shape[1]),
        filters(of_weight.shape[0] / groups) {}
  int64_t kernel_y() const { return weight.shape[2]; }
  int64_t kernel_x() const { return weight.shape[3]; }
};

// Where pixel `row` (row-major over image, row and column) of a view [N, C, H, W] lies.
int64_t pixel_offset(const TensorView& view, int64_t row) {
  const int64_t x = row % view.shape[3], y = row / view.shape[3] % view.shape[2], n = row / (view.shape[3] * view.shape[2]);
  return n * view.strides[0] + y * view.strides[2] + x * view.strides[3];
}

// For each pixel of `to`, what its terms meet of `from`: `count` channels from `first_channel` on for each place of the kernel, or
// zeros. place(window, output, k, extent): the coordinate there, or one outside of it.
template <typename E, typename Place>
Gather windows_of(const Convolution& c, const TensorView& from, const TensorView& to, int64_t first_channel, int64_t count,
                  Place place) {
  return [=](int64_t first, int64_t rows, void* out) {
    auto* at = static_cast<E*>(out);
    const auto* base = from.as<const E>() + first_channel * from.strides[1];
    for (int64_t row = first; row < first + rows; ++row) {
      const int64_t x = row % to.shape[3], y = row / to.shape[3] % to.shape[2], n = row / (to.shape[3] * to.shape[2]);
      for (int64_t ky = 0; ky < c.kernel_y(); ++ky) {
        const int64_t from_y = place(c.windows.y, y, ky, from.shape[2]);
        for (int64_t kx = 0; kx < c.kernel_x(); ++kx, at += count) {
          const int64_t from_x = place(c.windows.x, x, kx, from.shape[3]);
          if (from_y < 0 || from_y >= from.shape[2] || from_x < 0 || from_x >= from.shape[3]) {
            std::fill_n(at, count, E{});
          } else {
            copy_strided(base + n * from.strides[0] + from_y * from.strides[2] + from_x * from.strides[3], from.strides[1], count,
                         at);
          }
        }
      }
    }
  };
}

// The weights of a group, whose filters begin with `filter`: for each index of dimension `outer` and place of the kernel, the first
// `count` of dimension `inner`.
template <typename E>
Gather weights_of(const Convolution& c, int64_t filter, int outer, int inner, int64_t count) {
  return [=](int64_t first, int64_t rows, void* to) {
    auto* at = static_cast<E*>(to);
    const auto& strides = c.weight.strides;
    for (int64_t row = first; row < first + rows; ++row)
      for (int64_t ky = 0; ky < c.kernel_y(); ++ky)
        for (int64_t kx = 0; kx < c.kernel_x(); ++kx, at += count)
          copy_strided(c.weight.as<const E>() + filter * strides[0] + row * strides[outer] + ky * strides[2] + kx * strides[3],
                       strides[inner], count, at);
  };
}

int64_t input_of(const Window& window, int64_t output, int64_t k, int64_t) { return window.input(output, k); }
int64_t output_of(const Window& window, int64_t input, int64_t k, int64_t outputs) { return window.output(input, k, outputs); }

// A map of an image: conv2d, and the gradient of a transposed convolution's input.
template <typename E>
std::vector<Product> map_products(const OpCall& call, const float* bias) {
  const TensorView& map = call.outputs[0];
  const Convolution c(*call.attributes, call.inputs[0], map, call.inputs[1]);
  std::vector<Product> products;
  for (int64_t group = 0; group < c.groups; ++group) {
    const int64_t filter = group * c.filters, base = filter * map.strides[1];
    products.push_back({.rows = map.shape[0] * map.shape[2] * map.shape[3],
                        .columns = c.filters,
                        .terms = c.kernel_y() * c.kernel_x() * c.channels,
                        .a = windows_of<E>(c, c.image, map, group * c.channels, c.channels, input_of),
                        .b = weights_of<E>(c, filter, 0, 1, c.channels),
                        .row_offset = [=](int64_t row) { return base + pixel_offset(map, row); },
                        .column_stride = map.strides[1],
                        .bias = bias != nullptr ? bias + filter : nullptr});
  }
  return products;
}

// An image of a map: conv_transpose2d, and the gradient of a convolution's input.
template <typename E>
std::vector<Product> image_products(const OpCall& call, const float* bias) {
  const TensorView& image = call.outputs[0];
  const Convolution c(*call.attributes, image, call.inputs[0], call.inputs[1]);
  std::vector<Product> products;
  for (int64_t group = 0; group < c.groups; ++group) {
    const int64_t filter = group * c.filters, channel = group * c.channels, base = channel * image.strides[1];
    products.push_back({.rows = image.shape[0] * image.shape[2] * image.shape[3],
                        .columns = c.channels,
                        .terms = c.kernel_y() * c.kernel_x() * c.filters,
                        .a = windows_of<E>(c, c.map, image, filter, c.filters, output_of),
                        .b = weights_of<E>(c, filter, 1, 0, c.filters),
                        .row_offset = [=](int64_t row) { return base + pixel_offset(image, row); },
                        .column_stride = image.strides[1],
                        .bias = bias != nullptr ? bias + channel : nullptr});
  }
  return products;
}

// The gradient of a weight: a row for each place of the kernel and channel of a group, a column for each of its filters.
template <typename E>
std::vector<Product> weight_products(const OpCall& call, const TensorView& image, const TensorView& map) {
  const TensorView& weight = call.outputs[0];
  const Convolution c(*call.attributes, image, map, weight);
  const int64_t pixels = map.shape[0] * map.shape[2] * map.shape[3];
  std::vector<Product> products;
  for (int64_t group = 0; group < c.groups; ++group) {
    const int64_t filter = group * c.filters, base = filter * weight.strides[0];
    products.push_back(
        {.rows = c.kernel_y() * c.kernel_x() * c.channels,
         .columns = c.filters,
         .terms = pixels,
         .a =
             [=](int64_t first, int64_t count, void* to) {
               auto* at = static_cast<E*>(to);
               for (int64_t row = first; row < first + count; ++row) {
                 const int64_t channel = row % c.channels, kx = row / c.channels % c.kernel_x(),
                               ky = row / (c.channels * c.kernel_x());
                 const E* base_of_channel = image.as<const E>() + (group * c.channels + channel) * image.strides[1];
                 for (int64_t n = 0; n < map.shape[0]; ++n)
                   for (int64_t y = 0; y < map.shape[2]; ++y) {
                     const int64_t image_y = c.windows.y.input(y, ky);
                     const bool in_image = image_y >= 0 && image_y < image.shape[2];
                     for (int64_t x = 0; x < map.shape[3]; ++x) {
                       const int64_t image_x = c.windows.x.input(x, kx);
                       *at++ = in_image && image_x >= 0 && image_x < image.shape[3]
                                   ? base_of_channel[n * image.strides[0] + image_y * image.strides[2] + image_x * image.strides[3]]
                                   : E{};
                     }
                   }
               }
             },
         .b =
             [=](int64_t first, int64_t count, void* to) {
               auto* at = static_cast<E*>(to);
               for (int64_t o = filter + first; o < filter + first + count; ++o)
                 for (int64_t pixel = 0; pixel < pixels; ++pixel)
                   *at++ = map.as<const E>()[o * map.strides[1] + pixel_offset(map, pixel)];
             },
         .row_offset =
             [=](int64_t row) {
               return base + row % c.channels * weight.strides[1] + row / c.channels % c.kernel_x() * weight.strides[3] +
                      row / (c.channels * c.kernel_x()) * weight.strides[2];
             },
         .column_stride = weight.strides[0]});
  }
  return products;
}

// An op that is a product: how to see it as one, for elements of 1, 2 and 4 bytes.
struct ProductOp {
  using Products = std::vector<Product> (*)(const OpCall& call, const float* bias);
  std::string_view name;
  std::array<Products, 3> products;
};

// `products`: a function object with a template of the element's type.
template <class Of>
constexpr ProductOp product_op(std::string_view name, Of) {
  return {name,
          {[](const OpCall& call, const float* bias) { return Of().template operator()<uint8_t>(call, bias); },
           [](const OpCall& call, const float* bias) { return Of().template operator()<uint16_t>(call, bias); },
           [](const OpCall& call, const float* bias) { return Of().template operator()<uint32_t>(call, bias); }}};
}

constexpr auto kMatmul = []<typename E>(const OpCall& call, const float*) { return matmul_products<E>(call); };
constexpr auto kMap = []<typename E>(const OpCall& call, const float* bias) { return map_products<E>(call, bias); };
constexpr auto kImage = []<typename E>(const OpCall& call, const float* bias) { return image_products<E>(call, bias); };

constexpr ProductOp kProductOps[] = {
    product_op("matmul", kMatmul),
    product_op("scaled_matmul", kMatmul),
    product_op("linear", []<typename E>(const OpCall& call, const float* bias) { return linear_products<E>(call, bias); }),
    product_op("conv2d", kMap),
    product_op("conv2d_backward_input", kImage),
    product_op(
        "conv2d_backward_weight",
        []<typename E>(const OpCall& call, const float*) { return weight_products<E>(call, call.inputs[1], call.inputs[0]); }),
    product_op("conv_transpose2d", kImage),
    product_op("conv_transpose2d_backward_input", kMap),
    product_op(
        "conv_transpose2d_backward_weight",
        []<typename E>(const OpCall& call, const float*) { return weight_products<E>(call, call.inputs[0], call.inputs[1]); }),
};

const ProductOp& product_op_of(std::string_view op) {
  const auto* found =
      std::find_if(std::begin(kProductOps), std::end(kProductOps), [&](const ProductOp& known) { return known.name == op; });
  if (found == std::end(kProductOps)) throw failed_error("internal: {} is no product", op);
  return *found;
}

// finish(sum, column): what is stored of it, in FP32 or FP64.
template <class Sums, class Finish>
void multiply_all(Context& context, const OpCall& call, const AccumulatedProduct& how, const std::vector<Product>& products,
                  Finish finish) {
  using Sum = typename Sums::Sum;
  using Value = decltype(finish(Sum(), int64_t()));
  std::vector<Value> values(static_cast<size_t>(call.outputs[0].size()));
  const auto bytes = static_cast<int64_t>(info(how.factors[0]).size);
  const auto work = [&](const Product& product) { return product.rows * product.columns * product.terms; };
  const bool many = static_cast<int64_t>(products.size()) >= context.threads;
  const bool large = work(products[0]) * static_cast<int64_t>(products.size()) >= kSerialWork;
  const ParallelFor within = [&](int64_t n, const std::function<void(int64_t)>& body) {
    parallel_for(context, n, !many && large, body);
  };
  // Rows or columns are gathered and summed so many at a time.
  const auto in_tiles = [&](int64_t n, const auto& body) {
    within(blocks_of(n, kTileRows), [&](int64_t tile) {
      const int64_t first = tile * kTileRows;
      body(first, std::min(kTileRows, n - first));
    });
  };
  parallel_for(context, static_cast<int64_t>(products.size()), many && large, [&](int64_t i) {
    const Product& product = products[static_cast<size_t>(i)];
    const int64_t n = product.columns, k = product.terms;
    std::vector<char> columns(static_cast<size_t>(n * k * bytes));
    in_tiles(n, [&](int64_t first, int64_t count) { product.b(first, count, columns.data() + first * k * bytes); });
    const Sums sums(how, {columns.data(), n, k, product.bias, call.arithmetic->rounding}, within);
    in_tiles(product.rows, [&](int64_t first, int64_t count) {
      std::vector<char> factors(static_cast<size_t>(count * k * bytes));
      product.a(first, count, factors.data());
      std::vector<Sum> of_tile(static_cast<size_t>(count * n));
      sums.rows(factors.data(), count, of_tile.data());
      for (int64_t row = 0; row < count; ++row) {
        Value* to = values.data() + product.row_offset(first + row);
        for (int64_t j = 0; j < n; ++j) to[j * product.column_stride] = finish(of_tile[static_cast<size_t>(row * n + j)], j);
      }
    });
  });
  const ParallelFor by_blocks = [&](int64_t n, const std::function<void(int64_t)>& body) { parallel_for(context, n, n > 4, body); };
  store_output(call, 0, values.data(), by_blocks);
}

template <class Sums>
void multiply(Context& context, const OpCall& call, const AccumulatedProduct& how, const float* bias) {
  using Sum = typename Sums::Sum;
  const auto width = static_cast<size_t>(std::countr_zero(info(how.factors[0]).size));
  const std::vector<Product> products = product_op_of(call.op).products[width](call, bias);
  if (!how.is_scaled) return multiply_all<Sums>(context, call, how, products, [](Sum sum, int64_t) { return sum; });
  const float a = *call.inputs[2].as<const float>(), b = *call.inputs[3].as<const float>();
  multiply_all<Sums>(context, call, how, products, [=](Sum sum, int64_t column) {
    const float scaled = static_cast<float>(sum) * a * b;
    return bias != nullptr ? scaled + bias[column] : scaled;
  });
}

// body.operator()<Kept>() with the class of accumulators that keeps the product's sums.
template <typename Body>
void with_accumulator(const AccumulatedProduct& product, const Body& body) {
  switch (product.accumulator) {
    case Accumulator::tensor_core:
      return body.template operator()<TensorCoreAccumulator>();
    case Accumulator::fp16:
      return body.template operator()<Fp16Accumulator>();
    case Accumulator::fp64:
      return body.template operator()<Fp64Accumulator>();
    case Accumulator::exact:
      return body.template operator()<ExactAccumulator>();
    case Accumulator::fp32:  // accumulated_product() leaves it to the call's own kernel
      return;
  }
}

}  // namespace

bool sums_in_double(const AccumulatedProduct& product) {
  bool is_double = false;
  with_accumulator(product, [&]<typename Kept>() { is_double = std::is_same_v<typename Kept::Sum, double>; });
  return is_double && !product.is_scaled;
}

void multiply_accumulated(Context& context, const OpCall& call, const AccumulatedProduct& how) {
  std::vector<TensorView> inputs(call.inputs.begin(), call.inputs.end());
  std::optional<Scratch> widened[2];
  for (size_t i = 0; i < std::size(widened); ++i) {
    if (inputs[i].dtype == how.factors[i]) continue;
    TensorView wide = contiguous(inputs[i]);
    wide.dtype = how.factors[i];
    wide.data = widened[i].emplace(context.allocator, bytes_of(wide.size())).as<void>();
    read_all(context, inputs[i], wide, wide.as<float>());
    inputs[i] = wide;
  }
  OpCall inner = call;
  inner.inputs = inputs;
  std::vector<float> bias;
  if (const size_t last = how.is_scaled ? 4 : 2; inputs.size() > last) {
    const TensorView& view = inputs[last];
    bias.resize(static_cast<size_t>(view.size()));
    widen_run(view.data, view.dtype, 0, view.strides[0], view.size(), bias.data());
  }
  const float* added = bias.empty() ? nullptr : bias.data();
  with_accumulator(how, [&]<typename Kept>() { multiply<Kept>(context, inner, how, added); });
  if (call.outputs.size() < 2) return;
  // The gradient of the bias is a sum and no product.
  const TensorView& gradient = call.inputs[0];
  const Scratch sums(context.allocator, bytes_of(gradient.shape[1]));
  sum_rows(context, gradient, ~2u, sums.as<float>());
  store_output(call, 1, sums.as<float>());
}

}  // namespace ulpscope::cpu
