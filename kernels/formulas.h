// Elementwise formulas, one each, shared by host and device. A formula is a template over a lane type V: a Highway vector, a float
// or a double (the plain twin, also what a device thread runs). Arithmetic uses the operations of lanes.h only, and never a fused
// multiply-add: twins must round at the same places. A formula has a name (its op's), a number of inputs, and one value out; what
// it needs of the attributes it takes in its constructor. A formula that uses elementary functions is a WideFormula: its FP32
// inputs are widened, everything is computed in FP64, and the result is rounded to FP32 once.
//
// To add one: write it here and give it a row in the list at the bottom. Backends build their tables from that list.
#if defined(ULPSCOPE_KERNELS_FORMULAS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ULPSCOPE_KERNELS_FORMULAS_H
#undef ULPSCOPE_KERNELS_FORMULAS_H
#else
#define ULPSCOPE_KERNELS_FORMULAS_H
#endif

#include "ulpscope/kernels/functions.h"
#include "ulpscope/kernels/lanes.h"
#include "ulpscope/kernels/op_call.h"

ULPSCOPE_LANES_BEGIN

template <int inputs>
struct Formula {
  static constexpr int kInputs = inputs;
  static constexpr bool kWide = false;
  Formula() = default;
  explicit Formula(const Attributes&) {}
};

template <int inputs>
struct WideFormula : Formula<inputs> {
  static constexpr bool kWide = true;
  using Formula<inputs>::Formula;
};

struct Add : Formula<2> {
  static constexpr const char* kName = "add";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V a, V b) const {
    return a + b;
  }
};

struct Accumulate : Add {
  static constexpr const char* kName = "accumulate";
  using Add::Add;
};

// In place of a.
struct Assign : Formula<2> {
  static constexpr const char* kName = "assign";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V, V b) const {
    return b;
  }
};

struct Subtract : Formula<2> {
  static constexpr const char* kName = "sub";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V a, V b) const {
    return a - b;
  }
};

struct Multiply : Formula<2> {
  static constexpr const char* kName = "mul";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V a, V b) const {
    return a * b;
  }
};

struct Divide : Formula<2> {
  static constexpr const char* kName = "div";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V a, V b) const {
    return a / b;
  }
};

struct Negate : Formula<1> {
  static constexpr const char* kName = "neg";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return -x;
  }
};

struct Maximum : Formula<2> {
  static constexpr const char* kName = "maximum";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V a, V b) const {
    return select((a > b) | is_nan(a), a, b);  // a NaN in b fails a > b
  }
};

struct MaximumBackward : Formula<3> {
  static constexpr const char* kName = "maximum_backward";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V a, V b) const {
    const V gate = select(a == b, g * constant<V>(0.5), constant<V>(0));
    const V open = select(a > b, g, gate);
    return select(is_nan(a), a, select(is_nan(b), b, open));
  }
};

struct Relu : Formula<1> {
  static constexpr const char* kName = "relu";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return select(x <= constant<V>(0), constant<V>(0), x);
  }
};

struct ReluBackward : Formula<2> {
  static constexpr const char* kName = "relu_backward";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V y) const {
    return select(y > constant<V>(0), g, select(is_nan(y), y, constant<V>(0)));
  }
};

struct Clamp : Formula<1> {
  static constexpr const char* kName = "clamp";
  double min = 0, max = 0;
  Clamp() = default;
  explicit Clamp(const Attributes& attributes) : min(attributes["min"]), max(attributes["max"]) {}
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    const V raised = select(x < constant<V>(min), constant<V>(min), x);
    return select(raised > constant<V>(max), constant<V>(max), raised);
  }
};

struct ClampBackward : Formula<2> {
  static constexpr const char* kName = "clamp_backward";
  double min = 0, max = 0;
  ClampBackward() = default;
  explicit ClampBackward(const Attributes& attributes) : min(attributes["min"]), max(attributes["max"]) {}
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V x) const {
    const V open = select((x >= constant<V>(min)) & (x <= constant<V>(max)), g, constant<V>(0));
    return select(is_nan(x), x, open);
  }
};

struct Scale : Formula<1> {
  static constexpr const char* kName = "scale";
  double factor = 1;
  Scale() = default;
  explicit Scale(const Attributes& attributes) : factor(attributes["factor"]) {}
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return x * constant<V>(factor);
  }
};

struct Copy : Formula<1> {
  static constexpr const char* kName = "copy";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return x;
  }
};

struct Cast : Copy {
  static constexpr const char* kName = "cast";
  using Copy::Copy;
};

struct Fill : Formula<0> {
  static constexpr const char* kName = "fill";
  double value = 0;
  Fill() = default;
  explicit Fill(const Attributes& attributes) : value(attributes["value"]) {}
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()() const {
    return constant<V>(value);
  }
};

// The norm is a scalar; a norm that is NaN gives NaN.
struct ClipNorm : Formula<2> {
  static constexpr const char* kName = "clip_norm";
  double max_norm = 1;
  ClipNorm() = default;
  explicit ClipNorm(const Attributes& attributes) : max_norm(attributes["max_norm"]) {}
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V norm) const {
    const V ratio = constant<V>(max_norm) / (norm + constant<V>(1e-6));
    return g * select(ratio > constant<V>(1), constant<V>(1), ratio);
  }
};

struct AbsoluteValue : Formula<1> {
  static constexpr const char* kName = "abs";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return magnitude(x);
  }
};

// The sign of a zero is a zero, that of a NaN a NaN.
struct AbsoluteValueBackward : Formula<2> {
  static constexpr const char* kName = "abs_backward";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V x) const {
    const V zero = constant<V>(0), one = constant<V>(1);
    return g * select(x > zero, one, select(x < zero, -one, x));
  }
};

struct SquareRoot : Formula<1> {
  static constexpr const char* kName = "sqrt";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return square_root(x);
  }
};

struct SquareRootBackward : Formula<2> {
  static constexpr const char* kName = "sqrt_backward";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V y) const {
    return g / (y + y);
  }
};

struct ReciprocalSquareRoot : WideFormula<1> {
  static constexpr const char* kName = "rsqrt";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return constant<V>(1) / square_root(x);
  }
};

struct ReciprocalSquareRootBackward : WideFormula<2> {
  static constexpr const char* kName = "rsqrt_backward";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V y) const {
    return constant<V>(-0.5) * g * (y * y * y);
  }
};

struct Reciprocal : Formula<1> {
  static constexpr const char* kName = "reciprocal";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return constant<V>(1) / x;
  }
};

struct ReciprocalBackward : WideFormula<2> {
  static constexpr const char* kName = "reciprocal_backward";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V y) const {
    return -g * (y * y);
  }
};

struct Exponential : WideFormula<1> {
  static constexpr const char* kName = "exp";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return exp(x);
  }
};

struct Logarithm : WideFormula<1> {
  static constexpr const char* kName = "log";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return log(x);
  }
};

struct Power : WideFormula<2> {
  static constexpr const char* kName = "pow";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V a, V b) const {
    return pow(a, b);
  }
};

// The gradient of the base: 0 where the exponent is 0.
struct PowerBackwardBase : WideFormula<3> {
  static constexpr const char* kName = "pow_backward_base";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V a, V b) const {
    const V zero = constant<V>(0);
    return select(b == zero, zero, g * (b * pow(a, b - constant<V>(1))));
  }
};

// The gradient of the exponent: g times 0 where the base is 0 and the exponent not negative.
struct PowerBackwardExponent : WideFormula<3> {
  static constexpr const char* kName = "pow_backward_exponent";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V a, V b) const {
    const V zero = constant<V>(0);
    return g * select((a == zero) & (b >= zero), zero, pow(a, b) * log(a));
  }
};

struct Minimum : Formula<2> {
  static constexpr const char* kName = "minimum";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V a, V b) const {
    return select((a < b) | is_nan(a), a, b);  // a NaN in b fails a < b
  }
};

struct MinimumBackward : Formula<3> {
  static constexpr const char* kName = "minimum_backward";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V a, V b) const {
    const V gate = select(a == b, g * constant<V>(0.5), constant<V>(0));
    const V open = select(a < b, g, gate);
    return select(is_nan(a), a, select(is_nan(b), b, open));
  }
};

struct Where : Formula<3> {
  static constexpr const char* kName = "where";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V condition, V a, V b) const {
    return select(condition == constant<V>(0), b, a);
  }
};

// The gradient of a (chosen = 1) or of b (chosen = 0).
struct WhereBackward : Formula<2> {
  static constexpr const char* kName = "where_backward";
  bool chosen = true;
  WhereBackward() = default;
  explicit WhereBackward(const Attributes& attributes) : chosen(attributes["chosen"] != 0) {}
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V condition) const {
    const V zero = constant<V>(0);
    return chosen ? select(condition == zero, zero, g) : select(condition == zero, g, zero);
  }
};

struct MaskedFill : Formula<2> {
  static constexpr const char* kName = "masked_fill";
  double value = 0;
  MaskedFill() = default;
  explicit MaskedFill(const Attributes& attributes) : value(attributes["value"]) {}
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x, V mask) const {
    return select(mask == constant<V>(0), x, constant<V>(value));
  }
};

struct HyperbolicTangent : WideFormula<1> {
  static constexpr const char* kName = "tanh";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return tanh(x);
  }
};

struct HyperbolicTangentBackward : WideFormula<2> {
  static constexpr const char* kName = "tanh_backward";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V y) const {
    return g * (constant<V>(1) - y * y);
  }
};

struct Sigmoid : WideFormula<1> {
  static constexpr const char* kName = "sigmoid";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return sigmoid(x);
  }
};

struct SigmoidBackward : WideFormula<2> {
  static constexpr const char* kName = "sigmoid_backward";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V y) const {
    return g * ((constant<V>(1) - y) * y);
  }
};

struct Silu : WideFormula<1> {
  static constexpr const char* kName = "silu";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return x * sigmoid(x);
  }
};

struct SiluBackward : WideFormula<2> {
  static constexpr const char* kName = "silu_backward";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V x) const {
    const Sigmoids<V> s = sigmoids(x);
    return g * (s.of_x * (constant<V>(1) + x * s.of_negative));
  }
};

struct Softplus : WideFormula<1> {
  static constexpr const char* kName = "softplus";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return softplus(x);
  }
};

struct SoftplusBackward : WideFormula<2> {
  static constexpr const char* kName = "softplus_backward";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V x) const {
    return g * sigmoid(x);
  }
};

struct Gelu : WideFormula<1> {
  static constexpr const char* kName = "gelu";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return x * normal_distribution(x);
  }
};

struct GeluBackward : WideFormula<2> {
  static constexpr const char* kName = "gelu_backward";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V x) const {
    return g * (normal_distribution(x) + x * normal_density(x));
  }
};

// (1 + tanh(u)) / 2 = sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
template <class V>
ULPSCOPE_LANE_FUNCTION V twice_gelu_argument(V x) {
  return constant<V>(2 * 0x1.9884533d43651p-1) * (x + constant<V>(0.044715) * (x * x * x));
}

struct GeluTanh : WideFormula<1> {
  static constexpr const char* kName = "gelu_tanh";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return x * sigmoid(twice_gelu_argument(x));
  }
};

struct GeluTanhBackward : WideFormula<2> {
  static constexpr const char* kName = "gelu_tanh_backward";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V x) const {
    const Sigmoids<V> s = sigmoids(twice_gelu_argument(x));
    const V slope = constant<V>(2 * 0x1.9884533d43651p-1) * (constant<V>(1) + constant<V>(3 * 0.044715) * (x * x));
    return g * (s.of_x + x * (s.of_x * s.of_negative) * slope);
  }
};

// The terms of losses that are a mean over elements, f(prediction, target), and their gradients by the prediction. `factor` is what
// the sum of terms is multiplied by, g the gradient of the loss.
struct LossGradient : Formula<3> {
  double factor = 1;
  LossGradient() = default;
  explicit LossGradient(const Attributes& attributes) : factor(attributes["factor"]) {}
};

struct WideLossGradient : WideFormula<3> {
  double factor = 1;
  WideLossGradient() = default;
  explicit WideLossGradient(const Attributes& attributes) : factor(attributes["factor"]) {}
};

struct SquaredError : Formula<2> {
  static constexpr const char* kName = "mse";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V p, V t) const {
    const V difference = p - t;
    return difference * difference;
  }
};

struct SquaredErrorBackward : LossGradient {
  static constexpr const char* kName = "mse_backward";
  using LossGradient::LossGradient;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V p, V t) const {
    return (p - t) * (g * constant<V>(2 * factor));
  }
};

struct AbsoluteError : Formula<2> {
  static constexpr const char* kName = "l1";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V p, V t) const {
    return magnitude(p - t);
  }
};

struct AbsoluteErrorBackward : LossGradient {
  static constexpr const char* kName = "l1_backward";
  using LossGradient::LossGradient;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V p, V t) const {
    const V zero = constant<V>(0), one = constant<V>(1), difference = p - t;
    return g * constant<V>(factor) * select(difference > zero, one, select(difference < zero, -one, difference));
  }
};

// d^2 / 2 for d = |p - t| < delta, and beyond it the line that goes on from there.
struct HuberError : Formula<2> {
  static constexpr const char* kName = "huber";
  double delta = 1;
  HuberError() = default;
  explicit HuberError(const Attributes& attributes) : delta(attributes["delta"]) {}
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V p, V t) const {
    const V half = constant<V>(0.5), limit = constant<V>(delta), d = magnitude(p - t);
    return select(d < limit, half * d * d, limit * (d - half * limit));
  }
};

struct HuberErrorBackward : LossGradient {
  static constexpr const char* kName = "huber_backward";
  double delta = 1;
  HuberErrorBackward() = default;
  explicit HuberErrorBackward(const Attributes& attributes) : LossGradient(attributes), delta(attributes["delta"]) {}
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V p, V t) const {
    const V limit = constant<V>(delta), d = p - t;
    return g * constant<V>(factor) * select(d > limit, limit, select(d < -limit, -limit, d));
  }
};

// -t log(sigmoid(x)) - (1 - t) log(1 - sigmoid(x))
struct BinaryCrossEntropyWithLogits : WideFormula<2> {
  static constexpr const char* kName = "bce_with_logits";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x, V t) const {
    // Of both terms at most one is large, so that nothing cancels.
    return select(x > constant<V>(0), x * (constant<V>(1) - t), -x * t) + softplus(-magnitude(x));
  }
};

struct BinaryCrossEntropyWithLogitsBackward : WideLossGradient {
  static constexpr const char* kName = "bce_with_logits_backward";
  using WideLossGradient::WideLossGradient;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V x, V t) const {
    return (sigmoid(x) - t) * (g * constant<V>(factor));
  }
};

// -t log(p) - (1 - t) log(1 - p), logarithms no less than -100, as PyTorch has it.
struct BinaryCrossEntropy : WideFormula<2> {
  static constexpr const char* kName = "binary_cross_entropy";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V p, V t) const {
    const V one = constant<V>(1), least = constant<V>(-100), yes = log(p), no = log_of_complement(p);
    return (t - one) * select(no < least, least, no) - t * select(yes < least, least, yes);
  }
};

struct BinaryCrossEntropyBackward : WideLossGradient {
  static constexpr const char* kName = "binary_cross_entropy_backward";
  using WideLossGradient::WideLossGradient;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V p, V t) const {
    const V least = constant<V>(1e-12), variance = (constant<V>(1) - p) * p;
    return (p - t) / select(variance < least, least, variance) * (g * constant<V>(factor));
  }
};

// t (log(t) - x) for x the logarithm of a probability; t log(t) is 0 for t = 0.
struct KullbackLeibler : WideFormula<2> {
  static constexpr const char* kName = "kl_div";
  using WideFormula::WideFormula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x, V t) const {
    const V zero = constant<V>(0);
    return select(t == zero, zero, t * log(t)) - t * x;
  }
};

struct KullbackLeiblerBackward : LossGradient {
  static constexpr const char* kName = "kl_div_backward";
  using LossGradient::LossGradient;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V, V t) const {
    return -t * (g * constant<V>(factor));
  }
};

// dx = g factor (x - mean)
struct VarianceBackward : LossGradient {
  static constexpr const char* kName = "var_backward";
  using LossGradient::LossGradient;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V x, V mean) const {
    return g * constant<V>(factor) * (x - mean);
  }
};

// The gradient of the largest value y, of which there are `count`: each gets its share.
struct MaxBackward : Formula<4> {
  static constexpr const char* kName = "max_backward";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V x, V y, V count) const {
    return select(x == y, g / count, select(is_nan(y), y, constant<V>(0)));
  }
};

// The gradient of the Euclidean norm y: 0 where it is 0.
struct NormBackward : Formula<3> {
  static constexpr const char* kName = "norm_backward";
  using Formula::Formula;
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V x, V y) const {
    const V zero = constant<V>(0);
    return select(y == zero, zero, g * (x / y));
  }
};

template <class... F>
struct FormulaList {};

using Formulas = FormulaList<  //
    Add, Accumulate, Assign, Subtract, Multiply, Divide, Negate, Maximum, MaximumBackward, Relu, ReluBackward, Clamp, ClampBackward,
    Scale, Copy, Cast, Fill, ClipNorm, AbsoluteValue, AbsoluteValueBackward, SquareRoot, SquareRootBackward, ReciprocalSquareRoot,
    ReciprocalSquareRootBackward, Reciprocal, ReciprocalBackward, Exponential, Logarithm, Power, PowerBackwardBase,
    PowerBackwardExponent, Minimum, MinimumBackward, Where, WhereBackward, MaskedFill, HyperbolicTangent, HyperbolicTangentBackward,
    Sigmoid, SigmoidBackward, Silu, SiluBackward, Softplus, SoftplusBackward, Gelu, GeluBackward, GeluTanh, GeluTanhBackward,
    SquaredErrorBackward, AbsoluteErrorBackward, HuberErrorBackward, BinaryCrossEntropyWithLogitsBackward,
    BinaryCrossEntropyBackward, KullbackLeiblerBackward, VarianceBackward, MaxBackward, NormBackward>;

// Of the losses by element: the loss is the mean of these terms over the elements.
using LossTerms =
    FormulaList<SquaredError, AbsoluteError, HuberError, BinaryCrossEntropyWithLogits, BinaryCrossEntropy, KullbackLeibler>;

ULPSCOPE_LANES_END

#endif
