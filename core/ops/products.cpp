// Matrix products: what autocast runs in the lower precision.
#include <algorithm>

#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {

namespace {

void matmul_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& a = arguments.inputs[0];
  const Tensor& b = arguments.inputs[1];
  const int rank = a.rank();
  const bool batches_fit = rank >= 2 && b.rank() == rank && std::equal(a.shape().begin(), a.shape().end() - 2, b.shape().begin());
  if (!batches_fit || a.shape(-1) != b.shape(-2)) wrong_shape(arguments, "a [..., M, K] and b [..., K, N]");
  OutputSpec spec = make_spec(a.dtype(), a.shape());
  spec.shape[rank - 1] = b.shape(-1);
  specs.push_back(spec);
}

void matmul_backward(BackwardCall& b) {
  const Tensor& gradient = b.gradient();
  if (b.needs(0)) b.set(0, call("matmul", {gradient, transpose(b.input(1))}, {}, {.hints = b.into({0})}));
  if (b.needs(1)) b.set(1, call("matmul", {transpose(b.input(0)), gradient}, {}, {.hints = b.into({1})}));
}

void linear_shape(const OpArguments& arguments, OutputSpecs& specs) {
  const Tensor& x = arguments.inputs[0];
  const Tensor& weight = arguments.inputs[1];
  const bool with_bias = arguments.inputs.size() > 2;
  if (x.rank() != 2 || weight.rank() != 2 || x.shape(1) != weight.shape(1) ||
      (with_bias && (arguments.inputs[2].rank() != 1 || arguments.inputs[2].shape(0) != weight.shape(0))))
    wrong_shape(arguments, "x [M, K], weight [N, K] and bias [N]");
  const int64_t shape[] = {x.shape(0), weight.shape(0)};
  specs.push_back(make_spec(x.dtype(), shape));
}

void linear_backward(BackwardCall& b) {
  const Tensor& gradient = b.gradient();
  if (b.needs(0)) b.set(0, call("matmul", {gradient, b.input(1)}, {}, {.hints = b.into({0})}));
  if (b.needs(1)) b.set(1, call("matmul", {transpose(gradient), b.input(0)}, {}, {.hints = b.into({1})}));
  if (b.needs(2)) b.set(2, call("sum", {gradient}, {{"dims", 1}, {"keep", 0}}, {.hints = b.into({2})}));
}

const Op kProducts[] = {
    {.name = "matmul",
     .inputs = 2,
     .autocast = AutocastClass::lower_precision,
     .shape_rule = matmul_shape,
     .backward = matmul_backward,
     .loss_scale = multiplied_loss_scales,
     .saves_inputs = 0b11},
    {.name = "linear",
     .inputs = 3,
     .optional_inputs = 1,
     .autocast = AutocastClass::lower_precision,
     .shape_rule = linear_shape,
     .backward = linear_backward,
     .saves_inputs = 0b11},
};

}  // namespace

std::span<const Op> product_ops() { return kProducts; }

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return bias ? call("linear", {x, weight, bias}) : call("linear", {x, weight});
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  if (a.rank() < 2 || b.rank() < 2)
    throw usage_error("matmul: expected a [..., M, K] and b [..., K, N], got {} and {}", a.describe(), b.describe());
  const int rank = std::max(a.rank(), b.rank());
  // Dimensions before the last two broadcast.
  const auto batched = [&](const Tensor& x, const Tensor& other) {
    Extents shape{};
    bool same = x.rank() == rank;
    for (int i = 0; i < rank; ++i) {
      const int own = i - (rank - x.rank()), others = i - (rank - other.rank());
      const int64_t extent = own >= 0 ? x.shape(own) : 1;
      shape[i] = i < rank - 2 && extent == 1 && others >= 0 ? other.shape(others) : extent;
      same = same && shape[i] == extent;
    }
    return same ? x : expand(x, {shape.data(), static_cast<size_t>(rank)});
  };
  return call("matmul", {batched(a, b), batched(b, a)});
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  if (a.rank() != 3 || b.rank() != 3 || a.shape(0) != b.shape(0))
    throw usage_error("bmm: expected a [B, M, K] and b [B, K, N], got {} and {}", a.describe(), b.describe());
  return call("matmul", {a, b});
}

}  // namespace ulpscope
