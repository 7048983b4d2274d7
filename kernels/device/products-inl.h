// Matrix products and convolutions.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/device/gemm.h"
#include "ulpscope/kernels/device/ops-inl.h"
#include "ulpscope/kernels/device/products.h"
#include "ulpscope/kernels/output_rounding.h"
#include "ulpscope/kernels/product_arithmetic.h"

namespace ulpscope::device {

// A part of a product.
struct ProductPart {
  int64_t batch, row, term;  // the first ones
  int64_t batches, rows, terms;
};

// Calls body(part) for parts of a product, the terms of each sum in their order, so that `bytes` are enough for the factors of a
// part with their terms side by side. Parts of several batches are whole, and parts of the terms are whole tiles.
template <typename Body>
void in_parts(const ProductFactors& product, size_t term_bytes, size_t bytes, const Body& body) {
  const auto room = static_cast<int64_t>(bytes / term_bytes),
             least = static_cast<int64_t>(kTileWords * sizeof(uint32_t) / term_bytes);
  const int64_t rows = std::clamp<int64_t>(room / 2 / least, std::min<int64_t>(product.rows, kTileRows), product.rows);
  const int64_t lines = rows + product.columns;
  const int64_t terms = std::min(product.terms, std::max<int64_t>(room / lines / least, 1) * least);
  const bool is_whole = rows == product.rows && terms == product.terms;
  const int64_t batches = is_whole ? std::clamp<int64_t>(room / lines / terms, 1, product.batches) : 1;
  for (int64_t batch = 0; batch < product.batches; batch += batches)
    for (int64_t row = 0; row < product.rows; row += rows)
      for (int64_t term = 0; term < product.terms; term += terms)
        body(ProductPart{batch, row, term, std::min(batches, product.batches - batch), std::min(rows, product.rows - row),
                         std::min(terms, product.terms - term)});
}

// The stride of an order that is one dimension.
inline std::optional<int64_t> only_stride(const ElementOrder& order) {
  if (order.rank > 1) return std::nullopt;
  return order.rank == 0 ? 0 : order.strides[0];
}
// The factor as a library takes it, where its elements lie so. FP8 is packed always.
inline std::optional<GemmFactor> as_it_lies(const Factor& factor, int64_t lines, int64_t terms) {
  const auto batch = only_stride(factor.batch), line = only_stride(factor.line), term = only_stride(factor.term);
  if (factor.is_windowed || is_quantized(factor.dtype) || !batch || !line || !term) return std::nullopt;
  const GemmFactor lies{factor.data, factor.dtype, *batch, *line, *term};
  if (*problem_of(lies, lines, terms) != 0) return std::nullopt;
  return lies;
}

inline int64_t rounded_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// How many columns the sums of a product have in memory.
inline int64_t columns_of_sums(const OpCall& call, const ProductFactors& product) {
  return is_quantized(factor_types(call)[0]) ? rounded_up(product.columns, kFp8Multiple) : product.columns;
}

template <class L>
class ProductLauncher {
 public:
  ProductLauncher(L& launcher, const OpCall& call, const ProductFactors& product, float* sums)
      : launcher_(launcher),
        call_(call),
        product_(product),
        dtypes_(factor_types(call)),
        columns_(columns_of_sums(call, product)),
        sums_(sums) {}

  void run() {
    if (product_.terms == 0) {
      const auto sums = static_cast<size_t>(product_.batches * product_.rows * columns_);
      return launcher_.machine().clear(sums_, sums * sizeof(float));
    }
    check();
    const std::optional<AccumulatedProduct> accumulated = accumulated_product(call_);
    if (!accumulated) return by_library();
    switch (accumulated->factors[0]) {
      case DType::f16:
        return by_matrix_units<DType::f16>();
      case DType::bf16:
        return by_matrix_units<DType::bf16>();
      default:
        return by_matrix_units<DType::f32>();
    }
  }

 private:
  using Scratch = typename L::Scratch;

  // Sums are those of the library, or of the GPU's matrix units where these multiply such factors.
  void check() const {
    const std::string_view gpu = launcher_.machine().gpu();
    const std::string name = launcher_.machine().name();
    const bool is_fp8 = is_quantized(dtypes_[0]);
    const Accumulation& kept = call_.arithmetic == nullptr ? accumulations()[0] : *call_.arithmetic->accumulation;
    if (kept.accumulator != Accumulator::fp32 && (is_fp8 || kept.name != gpu))
      throw usage_error(
          "{0}: arithmetic.accumulate = {1}: expected {2}{3} for factors in {4} on the device {5} "
          "(arithmetic.ops.{0}.accumulate is for this op alone)",
          call_.op, kept.name, accumulations()[0].name, !is_fp8 && !gpu.empty() ? fmt::format(" or {}", gpu) : "",
          info(dtypes_[0]).name, name);
    if (is_fp8 && !launcher_.machine().multiplies_fp8())
      throw usage_error("{}: the device {} multiplies no FP8: expected a GPU of compute capability 8.9 or more", call_.op, name);
    if (dtypes_[0] == DType::f8_e5m2 && dtypes_[1] == DType::f8_e5m2)
      throw usage_error("{}: the device {} multiplies no two factors in e5m2: expected e4m3 for one", call_.op, name);
  }

  size_t term_bytes() const { return info(dtypes_[0]).size; }
  int64_t words_of(int64_t terms, int64_t multiple) const {
    constexpr auto kWordBytes = static_cast<int64_t>(sizeof(uint32_t));
    return rounded_up(static_cast<int64_t>(term_bytes()) * terms, multiple * kWordBytes) / kWordBytes;
  }
  float* sums_of(const ProductPart& part) const { return sums_ + (part.batch * product_.rows + part.row) * columns_; }
  bool is_flushed(const Factor& factor) const { return flushes_input(call_, factor.dtype); }
  // `lines` lines from `line` on, of which the factor has `known`.
  PackedLines pack(const Factor& factor, DType dtype, const ProductPart& part, int64_t line, int64_t lines, int64_t known,
                   int64_t words, std::optional<Scratch>& scratch) {
    const int64_t size = part.batches * lines * words;
    PackLines kernel{factor, is_flushed(factor), dtype, part.batch, line,   part.term, part.batches,
                     lines,  part.terms,         words, known,      nullptr};
    kernel.packed = scratch.emplace(launcher_, static_cast<size_t>(size) * sizeof(uint32_t)).template as<uint32_t>();
    launcher_.machine().launch(grid_over(size), kernel);
    return {kernel.packed, lines * words, words};
  }
  // As they lie where that is as they would be packed: no zeros are to follow.
  PackedLines lines_of(const Factor& factor, DType dtype, const ProductPart& part, int64_t line, int64_t lines, int64_t words,
                       std::optional<Scratch>& scratch) {
    const auto batch = only_stride(factor.batch), between = only_stride(factor.line), within = only_stride(factor.term);
    const auto terms_of_word = static_cast<int64_t>(sizeof(uint32_t) / term_bytes());
    const bool lies_so = !factor.is_windowed && batch && between && within == 1 && factor.dtype == dtype && !is_flushed(factor) &&
                         *batch % terms_of_word == 0 && *between % terms_of_word == 0 && words * terms_of_word == part.terms &&
                         reinterpret_cast<uintptr_t>(factor.data) % sizeof(uint32_t) == 0;
    if (!lies_so) return pack(factor, dtype, part, line, lines, lines, words, scratch);
    const int64_t first = part.batch * *batch + line * *between + part.term;
    return {static_cast<const uint32_t*>(factor.data) + first / terms_of_word, *batch / terms_of_word, *between / terms_of_word};
  }

  template <DType type>
  void by_matrix_units() {
    in_parts(product_, term_bytes(), launcher_.machine().workspace_bytes(), [&](const ProductPart& part) {
      const int64_t words = words_of(part.terms, kShortWords);
      std::optional<Scratch> of_a, of_b;
      const PackedLines a = lines_of(product_.a, dtypes_[0], part, part.row, part.rows, words, of_a);
      const PackedLines b = lines_of(product_.b, dtypes_[1], part, 0, product_.columns, words, of_b);
      const MultiplyPacked<type> kernel{a, b, part.batches, part.rows, product_.columns, words, sums_of(part), part.term > 0};
      launcher_.machine().launch(kernel.grid(), kernel);
    });
  }

  // What the library does not take as it lies is packed first.
  void by_library() {
    const auto lies = [&](const Factor& factor, DType dtype, int64_t lines) {
      return factor.dtype == dtype && !is_flushed(factor) ? as_it_lies(factor, lines, product_.terms) : std::nullopt;
    };
    const auto a = lies(product_.a, dtypes_[0], product_.rows), b = lies(product_.b, dtypes_[1], product_.columns);
    if (a && b)
      return launcher_.machine().multiply(
          {*a, *b, product_.batches, product_.rows, product_.columns, product_.terms, sums_, false});
    in_parts(product_, term_bytes(), launcher_.machine().workspace_bytes(), [&](const ProductPart& part) {
      std::optional<Scratch> of_a, of_b;
      const GemmFactor first =
          a ? from(*a, part, part.row) : packed(product_.a, dtypes_[0], part, part.row, part.rows, part.rows, of_a);
      const GemmFactor second = b ? from(*b, part, 0) : packed(product_.b, dtypes_[1], part, 0, columns_, product_.columns, of_b);
      // FP8 with the zeros behind it.
      const int64_t terms = is_quantized(dtypes_[0]) ? first.line_stride : part.terms;
      launcher_.machine().multiply({first, second, part.batches, part.rows, columns_, terms, sums_of(part), part.term > 0});
    });
  }
  static GemmFactor from(const GemmFactor& factor, const ProductPart& part, int64_t line) {
    GemmFactor of_part = factor;
    const int64_t offset = part.batch * factor.batch_stride + line * factor.line_stride + part.term * factor.term_stride;
    of_part.data = static_cast<const char*>(factor.data) + offset * static_cast<int64_t>(info(factor.dtype).size);
    return of_part;
  }
  GemmFactor packed(const Factor& factor, DType dtype, const ProductPart& part, int64_t line, int64_t lines, int64_t known,
                    std::optional<Scratch>& scratch) {
    constexpr int64_t kAlignedWords = kFp8Multiple / sizeof(uint32_t);  // also what the library reads other types by
    const int64_t words = words_of(part.terms, kAlignedWords);
    const int64_t stride = words * static_cast<int64_t>(sizeof(uint32_t) / info(dtype).size);
    return {pack(factor, dtype, part, line, lines, known, words, scratch).words, dtype, lines * stride, stride, 1};
  }

  L& launcher_;
  const OpCall& call_;
  const ProductFactors& product_;
  std::array<DType, 2> dtypes_;
  int64_t columns_;  // of the sums in memory
  float* sums_;
};

template <class F, class L>
void put_sums(L& launcher, const OpCall& call, const ProductFactors& product, std::initializer_list<TensorView> values) {
  Elementwise<F> kernel{{}, {{}, output_of(call, 0)}};
  size_t i = 0;
  for (const TensorView& view : values) {
    Input& input = kernel.tensors.inputs[i++];
    input = input_of(view, product.output);
    // Sums are FP32 numbers on their way; the others are inputs of the call.
    input.flushes = i > 1 && flushes_input(call, view.dtype);
  }
  launcher.launch(kernel, kernel.tensors.output, L::record_of(call, 0), product.sums.data == call.outputs[0].data);
  launcher.sample(call, 0);
}

// Whether the output is stored as its sums are, in FP32 without another rounding.
inline bool lies_as_sums(const OpCall& call, const ProductFactors& product) {
  if (call.outputs[0].dtype != DType::f32 || output_of(call, 0).is_special) return false;
  for (int i = 0; i < product.output.rank; ++i)
    if (product.output.shape[i] > 1 && product.output.strides[i] != product.sums.strides[i]) return false;
  return true;
}

template <class L>
void product(L& launcher, const OpCall& call) {
  ProductFactors product = product_factors(call);
  const bool is_scaled = call.op == "scaled_matmul";
  const int64_t size = product.batches * product.rows * columns_of_sums(call, product);
  if (is_scaled) product.sums.strides[0] = columns_of_sums(call, product);
  const bool is_stored = lies_as_sums(call, product) && !is_scaled && !product.bias;
  std::optional<typename L::Scratch> scratch;
  product.sums.dtype = DType::f32;
  product.sums.data =
      is_stored ? call.outputs[0].data : scratch.emplace(launcher, sizeof(float) * static_cast<size_t>(size)).template as<void>();
  if (size > 0) ProductLauncher<L>(launcher, call, product, product.sums.template as<float>()).run();
  const auto scale = [&](size_t input) {
    TensorView view = product.output;
    view.data = call.inputs[input].data;
    view.dtype = call.inputs[input].dtype;
    view.strides = {};
    return view;
  };
  if (is_scaled && product.bias)
    return put_sums<BiasedScaledSum>(launcher, call, product, {product.sums, scale(2), scale(3), *product.bias});
  if (is_scaled) return put_sums<ScaledSum>(launcher, call, product, {product.sums, scale(2), scale(3)});
  if (product.bias) return put_sums<lanes::Add>(launcher, call, product, {product.sums, *product.bias});
  put_sums<lanes::Copy>(launcher, call, product, {product.sums});
}

// With the gradient of the bias, a sum over the pixels of each channel.
template <class L>
void product_and_bias(L& launcher, const OpCall& call) {
  product(launcher, call);
  if (call.outputs.size() < 2) return;
  constexpr unsigned kAllButChannels = ~2u;
  std::deque<typename L::Scratch> scratch;
  Reduction<SumOfTerms> kernel{{false}, reduction_tensors(call, 0, kAllButChannels)};
  kernel.tensors.values[0] = launcher.wide_output(call, 1, scratch);
  if (kernel.tensors.outputs > 0) launcher.machine().launch(grid_of(kernel.tensors), kernel);
  launcher.put(call, 1, kernel.tensors.values[0]);
}

template <class L>
void add_products(Kernels<L>& kernels) {
  for (const std::string_view op : arithmetic_products()) kernels.emplace(op, &product_and_bias<L>);
}

}  // namespace ulpscope::device
