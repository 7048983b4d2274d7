// The ops that C++ code calls by a function, and what definitions share. docs/ops.md says what each op computes; list.cpp lists
// them.
#pragma once

#include <cstdint>
#include <span>

#include "ulpscope/core/engine/dispatch.h"
#include "ulpscope/core/engine/op.h"
#include "ulpscope/core/engine/tape.h"
#include "ulpscope/kernels/targets.h"
#include "ulpscope/kernels/windows.h"

namespace ulpscope {

// One array per family.
std::span<const Op> elementwise_ops();
std::span<const Op> shape_ops();
std::span<const Op> indexing_ops();
std::span<const Op> reduction_ops();
std::span<const Op> row_ops();
std::span<const Op> product_ops();
std::span<const Op> convolution_ops();
std::span<const Op> pooling_ops();
std::span<const Op> normalization_ops();
std::span<const Op> recurrent_ops();
std::span<const Op> loss_ops();
std::span<const Op> quantization_ops();
std::span<const Op> training_ops();

Tensor add(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor relu(const Tensor& x);
Tensor matmul(const Tensor& a, const Tensor& b);  // [..., M, K] and [..., K, N]; what comes before the last two broadcasts
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});  // x w^T + bias: [M, K], [N, K] and [N]
Tensor bmm(const Tensor& a, const Tensor& b);                                   // [B, M, K] and [B, K, N]
// Sum over the dimensions whose bit is set in `dims`; `keep` leaves them with extent 1.
Tensor sum(const Tensor& x, uint32_t dims, bool keep = false);
Tensor sum(const Tensor& x);  // over all
Tensor mean(const Tensor& x, uint32_t dims, bool keep = false);
Tensor mean(const Tensor& x);
Tensor max(const Tensor& x, uint32_t dims, bool keep = false);   // NaN where there is one; equal ones share the gradient
Tensor norm(const Tensor& x, uint32_t dims, bool keep = false);  // Euclidean
Tensor var(const Tensor& x, uint32_t dims, double correction = 1, bool keep = false);  // over the count less `correction`
// Each element 0 with probability p, else divided by 1 - p. What is dropped follows from the context's seed, the step, the module
// and the number of the call, so that it is the same in every precision.
Tensor dropout(const Tensor& x, double p);
Tensor scale(const Tensor& x, double factor);
Tensor cast(const Tensor& x, DType dtype);
Tensor reshape(const Tensor& x, std::span<const int64_t> shape);  // one extent may be -1; copies where a view cannot do it
Tensor transpose(const Tensor& x);                                // of the last two dimensions, a view
// Views: the dimensions in another order; `extent` elements of a dimension; `parts` equal parts of it; elements repeated to a shape
// that x broadcasts to. Dimensions are counted from the end where they are negative, here and below.
Tensor permute(const Tensor& x, std::span<const int> order);
Tensor slice(const Tensor& x, int dim, int64_t start, int64_t extent, int64_t step = 1);
Tensors split(const Tensor& x, int64_t parts, int dim);
Tensor expand(const Tensor& x, std::span<const int64_t> shape);
Tensor cat(std::span<const Tensor> tensors, int dim);
Tensor softmax(const Tensor& x, int dim = -1);
Tensor log_softmax(const Tensor& x, int dim = -1);
Tensor embedding(const Tensor& weight, const Tensor& indices);  // rows of weight [N, C]: indices' shape, and C
// The kernel of the windows is the weight's. `bias` may be undefined. A convolution of one dimension is one of height 1, and
// recorded so.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Windows& windows = {}, int64_t groups = 1);
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Window& window = {}, int64_t groups = 1);
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Windows& windows = {},
                        int64_t groups = 1, int64_t output_padding_y = 0, int64_t output_padding_x = 0);
Tensor max_pool2d(const Tensor& x, const Windows& windows);
Tensor avg_pool2d(const Tensor& x, const Windows& windows, bool count_include_pad = true);
// To a height and a width.
Tensor adaptive_avg_pool2d(const Tensor& x, int64_t height, int64_t width);
Tensor adaptive_max_pool2d(const Tensor& x, int64_t height, int64_t width);
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps = 1e-5);
// Elements of x that indices name along a dimension: for each index one (gather), a slice of x (index_select); and values added to
// what they name (scatter_add).
Tensor gather(const Tensor& x, int dim, const Tensor& indices);
Tensor index_select(const Tensor& x, int dim, const Tensor& indices);
Tensor scatter_add(const Tensor& x, int dim, const Tensor& indices, const Tensor& values);
// Where attention divides its scores by sqrt(E), and which type it keeps them in.
enum class AttentionKind : uint8_t {
  sdpa,            // the math path of PyTorch's scaled_dot_product_attention: both factors are multiplied by E^-1/4, and from there
                   // to the result all is FP32 of 16-bit inputs; a query whose keys are all masked gets zeros
  mha,             // as torch.nn.MultiheadAttention: the query is divided, and each op has its type of autocast
  explicit_scores  // the scores are divided, and each op has its type of autocast
};
const char* name_of(AttentionKind kind);  // "sdpa", "mha", "explicit"
struct AttentionOptions {
  AttentionKind kind = AttentionKind::sdpa;
  Tensor masked = {};                     // broadcasts to [..., L, S]: where it is not 0, the score is -Inf,
  std::optional<double> mask_value = {};  // or has this added to it, in its own type; of sdpa, in the query's
};
// softmax(query key^T / sqrt(E)) value for query [..., L, E], key [..., S, E] and value [..., S, V]. Every op of it is recorded.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {});
// One step of a recurrent network, gates in PyTorch's order: from what the input and the hidden state give to the gates, their
// products with the weights, [N, gates H] both.
struct LstmState {
  Tensor hidden, cell;  // [N, H]
};
// Gates i, f, g, o: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c').
LstmState lstm_cell(const Tensor& of_input, const Tensor& of_hidden, const Tensor& cell);
// Gates r, z, n: n = tanh(n_x + sigmoid(r) n_h), h' = n + sigmoid(z) (h - n).
Tensor gru_cell(const Tensor& of_input, const Tensor& of_hidden, const Tensor& hidden);
// [queries, keys], true where the key is one of the first `padding` or, if causal, comes after the query.
Tensor attention_mask(int64_t queries, int64_t keys, bool causal, int64_t padding = 0);
Tensor copy(const Tensor& x);  // dense, last dimension fastest
// Means over the rows whose target is not ignore_index.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, double label_smoothing = 0, int64_t ignore_index = kIgnoredTarget);
Tensor nll(const Tensor& log_probabilities, const Tensor& target, int64_t ignore_index = kIgnoredTarget);
// Means over the elements.
Tensor mse(const Tensor& prediction, const Tensor& target);
Tensor l1(const Tensor& prediction, const Tensor& target);
Tensor huber(const Tensor& prediction, const Tensor& target, double delta = 1);
Tensor bce_with_logits(const Tensor& logits, const Tensor& target);
Tensor binary_cross_entropy(const Tensor& probability, const Tensor& target);
Tensor kl_div(const Tensor& log_probability, const Tensor& target);
// Enters a batch, an initial weight, a state or a buffer into the recording. The same tensor, now an op's output, called `name`.
Tensor source(const Tensor& x, Role role, const std::string* parameter = nullptr, std::string_view name = {});
// What the states that an optimizer's update takes are called, as PyTorch does; some may be left out, from the end.
std::span<const std::string_view> update_states(const Op& update);

// For definitions: the names of attributes that are extents or dimensions.
inline constexpr std::string_view kExtentNames[kMaxRank] = {"d0", "d1", "d2", "d3", "d4", "d5"};
// The type that sums and statistics of tensors of a type are in: FP64 for FP64, else FP32.
inline DType wide_type(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }
// The spec of an output of this type and shape.
OutputSpec make_spec(DType dtype, std::span<const int64_t> shape, Layout layout = Layout::contiguous);
OutputSpec spec_like(const Tensor& tensor, int input);  // of tensor's type, shape and, where it is dense, layout
// For Op::shape_rule: one output of that input's type and shape, the last dimension fastest; and one that lies like the input as
// well.
template <size_t input>
void shaped_as_input(const OpArguments& arguments, OutputSpecs& specs) {
  specs.push_back(make_spec(arguments.inputs[input].dtype(), arguments.inputs[input].shape()));
}
template <size_t input>
void like_input(const OpArguments& arguments, OutputSpecs& specs) {
  specs.push_back(spec_like(arguments.inputs[input], static_cast<int>(input)));
}
// That of an input which the op changes. Throws a usage Error where it does not fill its memory: kernels write what is dense.
OutputSpec in_place_spec(const OpArguments& arguments, int input);
OutputSpec with_role(OutputSpec spec, Role role);
OutputSpec with_name(OutputSpec spec, std::string_view name);
// Of a parameter of this type.
Role weight_role(DType dtype);
// For Op::flops: so many for each element of one of the inputs, where what remains (a row's or channel's mean) is little.
template <int per_element, size_t input>
double flops_per_element(std::span<const Tensor> inputs, std::span<const Tensor>) {
  return per_element * static_cast<double>(inputs[input].size());
}

// For Op::loss_scale: of a product, the product of the loss scales that the first two inputs contain.
double multiplied_loss_scales(std::span<const Tensor> inputs, const Attributes& attributes);
// Throws a usage Error: "OP: expected EXPECTED, got GOT".
[[noreturn]] void wrong_shape(const OpArguments& arguments, std::string_view expected);
// The dimension that `dim` names, counted from the end where it is negative. Throws a usage Error that names `op` where there is
// none.
int checked_dimension(std::string_view op, const Tensor& x, int dim);
// Whether the four-dimensional tensor lies channels-last in memory.
Layout layout_of(const Tensor& tensor);
// Sums a gradient over the dimensions along which an input of that shape was broadcast.
Tensor sum_to(const Tensor& gradient, const Tensor& like, std::span<const OutputHint> hints);

}  // namespace ulpscope
