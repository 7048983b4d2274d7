#include "ulpscope/kernels/cpu/accumulated_product.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/cpu/accumulators.h"
#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/cpu/reader.h"
#include "ulpscope/kernels/cpu/reductions.h"
#include "ulpscope/kernels/product_factors.h"
#include "ulpscope/kernels/store.h"

namespace ulpscope::cpu {
namespace {

// Multiplications below which a second thread costs more than it brings, and rows that a thread takes at a time.
constexpr int64_t kSerialAccumulations = 1 << 14;
constexpr int64_t kTileRows = 32;

// `n` elements that lie this far apart; E holds an encoding.
template <typename E>
void copy_strided(const E* from, int64_t stride, int64_t n, E* to) {
  if (stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(E));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
  }
}

// Lines of a factor, one after the other.
template <typename E>
void gather_as(const Factor& factor, int64_t batch, int64_t first, int64_t count, int64_t terms, E* to) {
  for (int64_t line = first; line < first + count; ++line) {
    factor.for_each_run(batch, line, terms, [&](int64_t offset, int64_t stride, int64_t n) {
      if (offset < 0) {
        std::fill_n(to, n, E{});
      } else {
        copy_strided(static_cast<const E*>(factor.data) + offset, stride, n, to);
      }
      to += n;
    });
  }
}
// In the factor's own type.
void gather(const Factor& factor, int64_t batch, int64_t first, int64_t count, int64_t terms, void* to) {
  switch (info(factor.dtype).size) {
    case sizeof(uint8_t):
      return gather_as(factor, batch, first, count, terms, static_cast<uint8_t*>(to));
    case sizeof(uint16_t):
      return gather_as(factor, batch, first, count, terms, static_cast<uint16_t*>(to));
    default:
      return gather_as(factor, batch, first, count, terms, static_cast<uint32_t*>(to));
  }
}

// `bias`: a term of each column's sums, or nullptr. finish(sum, column): what is stored of it, in FP32 or FP64.
template <class Sums, class Finish>
void multiply_all(Context& context, const OpCall& call, const AccumulatedProduct& how, const float* bias, Finish finish) {
  using Sum = typename Sums::Sum;
  using Value = decltype(finish(Sum(), int64_t()));
  const ProductFactors product = product_factors(call);
  const int64_t n = product.columns, k = product.terms;
  std::vector<Value> values(static_cast<size_t>(call.outputs[0].size()));
  const auto bytes = static_cast<int64_t>(info(how.factors[0]).size);
  const bool many = product.batches >= context.threads;
  const bool large = product.rows * n * k * product.batches >= kSerialAccumulations;
  const ParallelFor within = [&](int64_t count, const std::function<void(int64_t)>& body) {
    parallel_for(context, count, !many && large, body);
  };
  // Rows or columns are gathered and summed so many at a time.
  const auto in_tiles = [&](int64_t count, const auto& body) {
    within(blocks_of(count, kTileRows), [&](int64_t tile) {
      const int64_t first = tile * kTileRows;
      body(first, std::min(kTileRows, count - first));
    });
  };
  parallel_for(context, product.batches, many && large, [&](int64_t batch) {
    std::vector<char> columns(static_cast<size_t>(n * k * bytes));
    in_tiles(n,
             [&](int64_t first, int64_t count) { gather(product.b, batch, first, count, k, columns.data() + first * k * bytes); });
    const float* added = bias != nullptr ? bias + batch * n : nullptr;
    const Sums sums(how, {columns.data(), n, k, added, call.arithmetic->rounding}, within);
    in_tiles(product.rows, [&](int64_t first, int64_t count) {
      std::vector<char> factors(static_cast<size_t>(count * k * bytes));
      gather(product.a, batch, first, count, k, factors.data());
      std::vector<Sum> of_tile(static_cast<size_t>(count * n));
      sums.rows(factors.data(), count, of_tile.data());
      for (int64_t row = 0; row < count; ++row) {
        Value* to = values.data() + product.batch.offset_of(batch) + product.row.offset_of(first + row);
        for (int64_t j = 0; j < n; ++j) to[product.column.offset_of(j)] = finish(of_tile[static_cast<size_t>(row * n + j)], j);
      }
    });
  });
  const ParallelFor by_blocks = [&](int64_t count, const std::function<void(int64_t)>& body) {
    parallel_for(context, count, count > 4, body);
  };
  store_output(call, 0, values.data(), by_blocks);
}

template <class Sums>
void multiply(Context& context, const OpCall& call, const AccumulatedProduct& how, const float* bias) {
  using Sum = typename Sums::Sum;
  if (!how.is_scaled) return multiply_all<Sums>(context, call, how, bias, [](Sum sum, int64_t) { return sum; });
  const float a = *call.inputs[2].as<const float>(), b = *call.inputs[3].as<const float>();
  multiply_all<Sums>(context, call, how, nullptr, [=](Sum sum, int64_t column) {
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
    case Accumulator::narrow:
      return body.template operator()<NarrowAccumulator>();
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
