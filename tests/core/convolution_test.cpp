// Convolutions as they are called from C++: conv1d by its definition, views of parameters under autocast, and messages.
#include <gmock/gmock.h>

#include "tests/support/engine_fixture.h"
#include "ulpscope/base/error.h"
#include "ulpscope/core/ops/ops.h"

namespace ulpscope {
namespace {

using ::testing::HasSubstr;

class ConvolutionTest : public EngineTest {
 protected:
  template <typename F>
  static std::string error_of(F f) {
    try {
      f();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

// y[n, o, t] = bias[o] + sum over c and k of x[n, group's c, t stride + k dilation - padding] w[o, c, k], and the gradient of its
// weighted sum, in FP64. Sums of at most 12 products of numbers below 4, of 2^-53 each.
TEST_F(ConvolutionTest, OneDimensionIsWhatItsDefinitionSays) {
  constexpr int64_t kSamples = 2, kChannels = 4, kLength = 9, kFilters = 6, kKernel = 3, kGroups = 2;
  constexpr double kBound = 12 * 16 * 0x1p-53 * 12;
  const Window window{kKernel, 2, 3, 2};
  Tensor x = random(DType::f64, {kSamples, kChannels, kLength}, 1),
         w = random(DType::f64, {kFilters, kChannels / kGroups, kKernel}, 2);
  Tensor b = random(DType::f64, {kFilters}, 3);
  for (Tensor* tensor : {&x, &w, &b}) tensor->set_requires_grad(true);
  const Tensor y = conv1d(x, w, b, window, kGroups);
  const int64_t length = (kLength + 2 * 3 - 5) / 2 + 1;
  ASSERT_EQ(std::vector<int64_t>(y.shape().begin(), y.shape().end()), (std::vector<int64_t>{kSamples, kFilters, length}));
  const Tensor weights = random(DType::f64, {kSamples, kFilters, length}, 4);
  backward(sum(mul(y, weights)));

  const auto in = to_host(x), factors = to_host(w), biases = to_host(b), g = to_host(weights), out = to_host(y);
  std::vector<double> dx(in.size()), dw(factors.size()), db(biases.size());
  for (int64_t n = 0; n < kSamples; ++n)
    for (int64_t o = 0; o < kFilters; ++o)
      for (int64_t t = 0; t < length; ++t) {
        const auto to = static_cast<size_t>((n * kFilters + o) * length + t);
        double value = biases[static_cast<size_t>(o)];
        db[static_cast<size_t>(o)] += g[to];
        for (int64_t c = 0; c < kChannels / kGroups; ++c)
          for (int64_t k = 0; k < kKernel; ++k) {
            const int64_t place = t * 2 + k * 2 - 3, channel = o / (kFilters / kGroups) * (kChannels / kGroups) + c;
            if (place < 0 || place >= kLength) continue;
            const auto i = static_cast<size_t>((n * kChannels + channel) * kLength + place);
            const auto f = static_cast<size_t>((o * (kChannels / kGroups) + c) * kKernel + k);
            value += in[i] * factors[f];
            dx[i] += g[to] * factors[f];
            dw[f] += g[to] * in[i];
          }
        EXPECT_NEAR(out[to], value, kBound);
      }
  EXPECT_THAT(to_host(x.grad()), testing::Pointwise(testing::DoubleNear(kBound), dx));
  EXPECT_THAT(to_host(w.grad()), testing::Pointwise(testing::DoubleNear(kBound), dw));
  EXPECT_THAT(to_host(b.grad()), testing::Pointwise(testing::DoubleNear(kBound), db));
}

// The weight of conv1d reaches conv2d as a view: its cast and its gradient are a weight's all the same.
TEST_F(ConvolutionTest, AViewOfAParameterIsCastAsAWeight) {
  class Roles : public Observer {
   public:
    void after(const OpEvent& event) override {
      for (size_t i = 0; i < event.outputs.size(); ++i)
        if (event.labels[i].parameter)
          roles.push_back(std::string(event.op.name) + " " + std::to_string(static_cast<int>(event.labels[i].role)));
    }
    std::vector<std::string> roles;
  } roles;
  Tensor w = random(DType::f32, {3, 2, 3}, 1);
  w.body()->parameter = intern("conv.weight");
  w.set_requires_grad(true);
  AutocastPolicy policy;
  policy.dtype = DType::f16;
  Autocast autocast(policy);
  context_.observers.push_back(&roles);
  const Tensor y = [&] {
    const AutocastScope scope(&autocast);
    return sum(conv1d(random(DType::f32, {2, 2, 7}, 2), w));
  }();
  backward(y);
  context_.observers.pop_back();
  const auto role = [](Role value) { return std::to_string(static_cast<int>(value)); };
  EXPECT_THAT(roles.roles,
              testing::IsSupersetOf({"cast " + role(Role::weight_cast), "conv2d_backward_weight " + role(Role::weight_gradient),
                                     "cast " + role(Role::accumulated_gradient)}));
}

TEST_F(ConvolutionTest, AReshapeCopiesOnlyWhereItMust) {
  const Tensor x = random(DType::f32, {4, 6, 5}, 1);
  constexpr int kOrder[] = {0, 2, 1};
  const Tensor turned = permute(x, kOrder);  // [4, 5, 6], dimension 1 fastest
  const auto shares_memory = [](const Tensor& a, const Tensor& b) { return a.storage().serial() == b.storage().serial(); };
  struct Row {
    Tensor from;
    std::vector<int64_t> shape;
    bool view;
  };
  const Tensor part = slice(x, 2, 1, 3);
  for (const Row& row : {Row{x, {24, 5}, true}, Row{turned, {2, 2, 5, 3, 2}, true}, Row{turned, {4, 1, 5, 6, 1}, true},
                         Row{turned, {4, 30}, false}, Row{part, {24, 3}, true}, Row{part, {2, 2, 18}, false},
                         Row{slice(turned, 1, 2, 1), {24}, true}, Row{slice(x, 1, 2, 1), {4, 5}, true}}) {
    const Tensor shaped = reshape(row.from, row.shape);
    EXPECT_EQ(shares_memory(shaped, row.from), row.view) << row.from.describe() << " to " << shaped.describe();
    EXPECT_EQ(to_host(shaped), to_host(row.from)) << row.from.describe() << " to " << shaped.describe();
  }
}

TEST_F(ConvolutionTest, MessagesSayWhatCameAndWhatWasExpected) {
  const Tensor x = random(DType::f32, {2, 4, 5, 6}), w = random(DType::f32, {6, 2, 3, 3});
  Windows windows;
  EXPECT_EQ(error_of([&] { conv2d(x, w); }),
            "conv2d: expected x [N, C, H, W], weight [O, C, KH, KW] and bias [O], got f32 [2, 4, 5, 6] and f32 [6, 2, 3, 3]");
  EXPECT_EQ(
      error_of([&] { conv2d(x, w, {}, windows, 4); }),
      "conv2d: expected x [N, C, H, W], weight [O, C / groups, KH, KW] and bias [O], with groups = 4 that divide C and O, got "
      "f32 [2, 4, 5, 6] and f32 [6, 2, 3, 3]");
  windows.y.stride = 0;
  EXPECT_EQ(error_of([&] { conv2d(x, w, {}, windows, 2); }), "conv2d: stride: expected at least 1, found 0 x 1");
  windows = {{.dilation = 3}, {}};
  EXPECT_THAT(error_of([&] { conv2d(x, w, {}, windows, 2); }), HasSubstr("a padded image at least as large as the kernel"));
  EXPECT_EQ(
      error_of([&] { conv_transpose2d(x, w); }),
      "conv_transpose2d: expected x [N, C, H, W], weight [C, O, KH, KW] and bias [O], got f32 [2, 4, 5, 6] and f32 [6, 2, 3, 3]");
  const Tensor back = random(DType::f32, {4, 3, 3, 3});
  EXPECT_EQ(error_of([&] { conv_transpose2d(x, back, {}, {}, 1, 1, 0); }),
            "conv_transpose2d: output_padding: expected less than the stride, 1 x 1, or the dilation, 1 x 1, found 1 x 0");
  EXPECT_EQ(error_of([&] { conv1d(x, w); }),
            "conv1d: expected x [N, C, L] and weight [O, C / groups, K], got f32 [2, 4, 5, 6] and f32 [6, 2, 3, 3]");
  EXPECT_EQ(error_of([&] {
              avg_pool2d(x, {{.kernel = 2, .padding = 2}, {.kernel = 2}});
            }),
            "avg_pool2d: padding: expected at most half the kernel of 2 x 2, found 2 x 0");
  EXPECT_EQ(error_of([&] { adaptive_avg_pool2d(x, 0, 3); }),
            "adaptive_avg_pool2d: expected an output of at least 1 x 1, got 0 x 3");
  const Tensor four = random(DType::f32, {4});
  EXPECT_EQ(
      error_of([&] { group_norm(x, 3, four, four); }),
      "group_norm: expected x [N, C, ...], weight [C] and bias [C], with groups = 3 that divide C, got f32 [2, 4, 5, 6], f32 [4] "
      "and f32 [4]");
}

}  // namespace
}  // namespace ulpscope
