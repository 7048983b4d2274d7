// A function with a backward rule of its own under FP16 autocast, as torch.autograd.Function with custom_fwd and custom_bwd: the
// length of a vector, whose squares overflow FP16 although the length does not. With cast_inputs the function runs in FP32, forward
// and backward, and autocast is off within.
#include <ulpscope/core/engine/function.h>
#include <ulpscope/core/ops/ops.h>

#include <array>
#include <cstdio>
#include <memory>
#include <optional>

using namespace ulpscope;

class Length : public Function {
 public:
  explicit Length(std::optional<DType> type) : type_(type) {}
  std::optional<DType> cast_inputs() const override { return type_; }

  Tensors forward(std::span<const Tensor> inputs) override {
    x_ = inputs[0];
    length_ = call("sqrt", {sum(mul(x_, x_))});
    return {length_};
  }
  // d|x| / dx = x / |x|
  Tensors backward(std::span<const Tensor> gradients) override { return {mul(x_, call("div", {gradients[0], length_}))}; }

 private:
  std::optional<DType> type_;
  Tensor x_, length_;
};

int main() {
  const auto backend = make_cpu_backend();
  Context context;
  context.backend = backend.get();
  const ContextScope scope(context);

  for (const std::optional<DType> type : {std::optional<DType>(), std::optional<DType>(DType::f32)}) {
    Tensor weight = from_host(*backend, DType::f32, std::array<int64_t, 2>{2, 1}, std::array<float, 2>{300, 400});
    weight.set_requires_grad(true);
    const Tensor one = from_host(*backend, DType::f32, std::array<int64_t, 2>{1, 1}, std::array<float, 1>{1});

    Autocast autocast({.dtype = DType::f16, .ops = {}, .modules = {}});
    Tensor length;
    {
      const AutocastScope on(&autocast);
      const Tensor x = linear(one, weight);  // (300, 400) in FP16
      length = apply(std::make_shared<Length>(type), {&x, 1})[0];
    }
    backward(length);
    const auto gradient = to_host(weight.grad());
    std::printf("%s: length %g, gradient %.4f %.4f\n", type ? "cast_inputs = FP32" : "in FP16", to_host(length)[0], gradient[0],
                gradient[1]);
  }
}
