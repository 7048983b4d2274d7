// Ops on rows, the values along the last dimension: what is done with one row, said once for the SIMD kernels and for the plain
// twin. A row op is a class with a name, the kinds of its operands, and operator() over loops: the SIMD loops of cpu/rows_simd.cpp
// or the plain ones of plain/rows.cpp, which differ in no bit. Loops have
//
//   Value                     float, or double for FP64 tensors
//   map(f, n, out, in...)     out[i] = f(in[i]...); out may be one of `in`
//   sum(f, n, in...)          the sum of f(in[i]...) in the order of reduction_order.h
//   largest(n, in)            a NaN where there is one
//   apply(f, value...)        f of single values
//
// f is a class with an operator() over lanes (lanes.h). One with kWide is a formula of elementary functions (functions.h): computed
// in FP64, rounded to FP32 once.
//
// To add one: write it here and give it a row in the list at the bottom.
#if defined(ULPSCOPE_KERNELS_ROWS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ULPSCOPE_KERNELS_ROWS_H
#undef ULPSCOPE_KERNELS_ROWS_H
#else
#define ULPSCOPE_KERNELS_ROWS_H
#endif

#include "ulpscope/kernels/functions.h"
#include "ulpscope/kernels/op_call.h"
#include "ulpscope/kernels/row_call.h"

ULPSCOPE_LANES_BEGIN

struct Narrow {
  static constexpr bool kWide = false;
};
struct Widened {
  static constexpr bool kWide = true;
};

struct Itself : Narrow {
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return x;
  }
};

struct Product : Narrow {
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V a, V b) const {
    return a * b;
  }
};

struct ThreefoldProduct : Narrow {
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V a, V b, V c) const {
    return a * b * c;
  }
};

struct LogarithmOf : Widened {
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return log(x);
  }
};

// e^(x - origin)
template <class T>
struct ExponentialFrom : Widened {
  T origin;
  ULPSCOPE_LANE_FUNCTION explicit ExponentialFrom(T origin_) : origin(origin_) {}
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return exp(x - constant<V>(origin));
  }
};

template <class T>
struct DividedBy : Narrow {
  T divisor;
  ULPSCOPE_LANE_FUNCTION explicit DividedBy(T divisor_) : divisor(divisor_) {}
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return x / constant<V>(divisor);
  }
};

// (x - a) - b
template <class T>
struct LessTwo : Narrow {
  T a, b;
  ULPSCOPE_LANE_FUNCTION LessTwo(T a_, T b_) : a(a_), b(b_) {}
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return (x - constant<V>(a)) - constant<V>(b);
  }
};

template <class T>
struct SquaredDifference : Narrow {
  T center;
  ULPSCOPE_LANE_FUNCTION explicit SquaredDifference(T center_) : center(center_) {}
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    const V difference = x - constant<V>(center);
    return difference * difference;
  }
};

// 1 / sqrt(mean_square + eps)
struct InverseDeviation : Widened {
  double eps;
  ULPSCOPE_LANE_FUNCTION explicit InverseDeviation(double eps_) : eps(eps_) {}
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V mean_square) const {
    return constant<V>(1) / square_root(mean_square + constant<V>(eps));
  }
};

struct RowOp {
  RowOp() = default;
  explicit RowOp(const Attributes&) {}
};

// x / divisor, and 0 in a row of nothing but -Inf.
template <class T>
struct DividedOrZero : Narrow {
  T divisor, largest;
  ULPSCOPE_LANE_FUNCTION DividedOrZero(T divisor_, T largest_) : divisor(divisor_), largest(largest_) {}
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    return select(constant<V>(largest) == constant<V>(-kInfinity), constant<V>(0), x / constant<V>(divisor));
  }
};

// Ops that compute y = softmax(x); y may be x. With the attribute `safe` a row of nothing but -Inf has only zeros, as PyTorch's
// _safe_softmax makes them; else it is NaN.
struct SoftmaxOp {
  bool safe;
  explicit SoftmaxOp(const Attributes& attributes) : safe(attributes.value_or("safe", 0) != 0) {}
  template <class L>
  ULPSCOPE_LANE_FUNCTION void weigh(const L& loops, int64_t n, const typename L::Value* x, typename L::Value* y) const {
    const auto largest = loops.largest(n, x);
    loops.map(ExponentialFrom(largest), n, y, x);
    const auto sum = loops.sum(Itself(), n, y);
    if (safe)
      loops.map(DividedOrZero(sum, largest), n, y, y);
    else
      loops.map(DividedBy(sum), n, y, y);
  }
};

struct Softmax : SoftmaxOp {
  static constexpr const char* kName = "softmax";
  static constexpr RowOperand kInputs[] = {RowOperand::row}, kOutputs[] = {RowOperand::row};
  using SoftmaxOp::SoftmaxOp;
  template <class L>
  ULPSCOPE_LANE_FUNCTION void operator()(const L& loops, const RowCall<typename L::Value>& row) const {
    weigh(loops, row.n, row.inputs[0], row.outputs[0]);
  }
};

// The softmax of the elements whose mask is 0; the others are 0. Nothing infinite is stored on the way.
struct MaskedSoftmax : SoftmaxOp {
  static constexpr const char* kName = "masked_softmax";
  static constexpr RowOperand kInputs[] = {RowOperand::row, RowOperand::row}, kOutputs[] = {RowOperand::row};
  using SoftmaxOp::SoftmaxOp;
  struct Masked : Narrow {
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V x, V mask) const {
      return select(mask == constant<V>(0), x, constant<V>(-kInfinity));
    }
  };
  template <class L>
  ULPSCOPE_LANE_FUNCTION void operator()(const L& loops, const RowCall<typename L::Value>& row) const {
    auto* y = row.outputs[0];
    loops.map(Masked(), row.n, y, row.inputs[0], row.inputs[1]);
    weigh(loops, row.n, y, y);
  }
};

// dx = y (g - sum(g y)), of masked_softmax too, where y is 0.
struct SoftmaxBackward : RowOp {
  static constexpr const char* kName = "softmax_backward";
  static constexpr RowOperand kInputs[] = {RowOperand::row, RowOperand::row}, kOutputs[] = {RowOperand::row};
  using RowOp::RowOp;
  template <class T>
  struct Gradient : Narrow {
    T sum;
    ULPSCOPE_LANE_FUNCTION explicit Gradient(T sum_) : sum(sum_) {}
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V g, V y) const {
      return y * (g - constant<V>(sum));
    }
  };
  template <class L>
  ULPSCOPE_LANE_FUNCTION void operator()(const L& loops, const RowCall<typename L::Value>& row) const {
    const auto *g = row.inputs[0], *y = row.inputs[1];
    loops.map(Gradient(loops.sum(Product(), row.n, g, y)), row.n, row.outputs[0], g, y);
  }
};

struct LogSoftmax : RowOp {
  static constexpr const char* kName = "log_softmax";
  static constexpr RowOperand kInputs[] = {RowOperand::row}, kOutputs[] = {RowOperand::row};
  using RowOp::RowOp;
  template <class L>
  ULPSCOPE_LANE_FUNCTION void operator()(const L& loops, const RowCall<typename L::Value>& row) const {
    const auto* x = row.inputs[0];
    auto* y = row.outputs[0];
    const auto largest = loops.largest(row.n, x);
    loops.map(ExponentialFrom(largest), row.n, y, x);
    const auto logarithm = loops.apply(LogarithmOf(), loops.sum(Itself(), row.n, y));
    loops.map(LessTwo(largest, logarithm), row.n, y, x);
  }
};

// dx = g - e^y sum(g)
struct LogSoftmaxBackward : RowOp {
  static constexpr const char* kName = "log_softmax_backward";
  static constexpr RowOperand kInputs[] = {RowOperand::row, RowOperand::row}, kOutputs[] = {RowOperand::row};
  using RowOp::RowOp;
  template <class T>
  struct Gradient : Widened {
    T sum;
    ULPSCOPE_LANE_FUNCTION explicit Gradient(T sum_) : sum(sum_) {}
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V g, V y) const {
      return g - exp(y) * constant<V>(sum);
    }
  };
  template <class L>
  ULPSCOPE_LANE_FUNCTION void operator()(const L& loops, const RowCall<typename L::Value>& row) const {
    const auto *g = row.inputs[0], *y = row.inputs[1];
    loops.map(Gradient(loops.sum(Itself(), row.n, g)), row.n, row.outputs[0], g, y);
  }
};

// log(sum(e^x)) as softmax sums it up: NaN where the largest value is infinite.
struct LogarithmBeside : Widened {
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V largest, V sum) const {
    return largest + log(sum);
  }
};
template <class L>
ULPSCOPE_LANE_FUNCTION typename L::Value log_of_softmax_sum(const L& loops, int64_t n, const typename L::Value* x) {
  const auto largest = loops.largest(n, x);
  return loops.apply(LogarithmBeside(), largest, loops.sum(ExponentialFrom(largest), n, x));
}

// A row of which all is -Inf gives -Inf, one with an Inf gives Inf.
struct LogSumExp : RowOp {
  static constexpr const char* kName = "logsumexp";
  static constexpr RowOperand kInputs[] = {RowOperand::row}, kOutputs[] = {RowOperand::scalar};
  using RowOp::RowOp;
  struct Total : Widened {
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V largest, V sum) const {
      const auto infinite = magnitude(largest) == constant<V>(kInfinity);
      return select(infinite, largest, largest + log(sum));
    }
  };
  template <class L>
  ULPSCOPE_LANE_FUNCTION void operator()(const L& loops, const RowCall<typename L::Value>& row) const {
    const auto largest = loops.largest(row.n, row.inputs[0]);
    const auto sum = loops.sum(ExponentialFrom(largest), row.n, row.inputs[0]);
    row.outputs[0][0] = loops.apply(Total(), largest, sum);
  }
};

// dx = g e^(x - y)
struct LogSumExpBackward : RowOp {
  static constexpr const char* kName = "logsumexp_backward";
  static constexpr RowOperand kInputs[] = {RowOperand::scalar, RowOperand::row, RowOperand::scalar}, kOutputs[] = {RowOperand::row};
  using RowOp::RowOp;
  template <class T>
  struct Gradient : Widened {
    T g, y;
    ULPSCOPE_LANE_FUNCTION Gradient(T g_, T y_) : g(g_), y(y_) {}
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
      return constant<V>(g) * exp(x - constant<V>(y));
    }
  };
  template <class L>
  ULPSCOPE_LANE_FUNCTION void operator()(const L& loops, const RowCall<typename L::Value>& row) const {
    loops.map(Gradient(row.inputs[0][0], row.inputs[2][0]), row.n, row.outputs[0], row.inputs[1]);
  }
};

// y = (x - mean) / sqrt(variance + eps) weight + bias, the biased variance about the mean; also mean and 1 / sqrt(variance + eps).
struct LayerNorm : RowOp {
  static constexpr const char* kName = "layer_norm";
  static constexpr RowOperand kInputs[] = {RowOperand::row, RowOperand::vector, RowOperand::vector},
                              kOutputs[] = {RowOperand::row, RowOperand::scalar, RowOperand::scalar};
  double eps = 0;
  LayerNorm() = default;
  explicit LayerNorm(const Attributes& attributes) : eps(attributes["eps"]) {}
  template <class T>
  struct Normalized : Narrow {
    T mean, inverse;
    ULPSCOPE_LANE_FUNCTION Normalized(T mean_, T inverse_) : mean(mean_), inverse(inverse_) {}
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V x, V weight, V bias) const {
      return (x - constant<V>(mean)) * constant<V>(inverse) * weight + bias;
    }
  };
  template <class L>
  ULPSCOPE_LANE_FUNCTION void operator()(const L& loops, const RowCall<typename L::Value>& row) const {
    using C = typename L::Value;
    const auto* x = row.inputs[0];
    const C n = static_cast<C>(row.n), mean = loops.sum(Itself(), row.n, x) / n;
    const C inverse = loops.apply(InverseDeviation(eps), loops.sum(SquaredDifference(mean), row.n, x) / n);
    loops.map(Normalized(mean, inverse), row.n, row.outputs[0], x, row.inputs[1], row.inputs[2]);
    row.outputs[1][0] = mean;
    row.outputs[2][0] = inverse;
  }
};

// With u = g weight and z = (x - mean) inverse: dx = inverse (u - mean(u) - z mean(u z)).
struct LayerNormBackward : RowOp {
  static constexpr const char* kName = "layer_norm_backward";
  static constexpr RowOperand kInputs[] = {RowOperand::row, RowOperand::row, RowOperand::vector, RowOperand::scalar,
                                           RowOperand::scalar},
                              kOutputs[] = {RowOperand::row};
  using RowOp::RowOp;
  template <class T>
  struct Projection : Narrow {
    T mean, inverse;
    ULPSCOPE_LANE_FUNCTION Projection(T mean_, T inverse_) : mean(mean_), inverse(inverse_) {}
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V g, V x, V weight) const {
      return g * weight * ((x - constant<V>(mean)) * constant<V>(inverse));
    }
  };
  template <class T>
  struct Gradient : Narrow {
    T mean, inverse, offset, slope;
    ULPSCOPE_LANE_FUNCTION Gradient(T mean_, T inverse_, T offset_, T slope_)
        : mean(mean_), inverse(inverse_), offset(offset_), slope(slope_) {}
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V g, V x, V weight) const {
      const V normalized = (x - constant<V>(mean)) * constant<V>(inverse);
      return constant<V>(inverse) * ((g * weight - constant<V>(offset)) - normalized * constant<V>(slope));
    }
  };
  template <class L>
  ULPSCOPE_LANE_FUNCTION void operator()(const L& loops, const RowCall<typename L::Value>& row) const {
    using C = typename L::Value;
    const auto *g = row.inputs[0], *x = row.inputs[1], *weight = row.inputs[2];
    const C n = static_cast<C>(row.n), mean = row.inputs[3][0], inverse = row.inputs[4][0];
    const C offset = loops.sum(Product(), row.n, g, weight) / n;
    const C slope = loops.sum(Projection(mean, inverse), row.n, g, x, weight) / n;
    loops.map(Gradient(mean, inverse, offset, slope), row.n, row.outputs[0], g, x, weight);
  }
};

// y = x / sqrt(mean(x^2) + eps) weight; also 1 / sqrt(mean(x^2) + eps).
struct RmsNorm : RowOp {
  static constexpr const char* kName = "rms_norm";
  static constexpr RowOperand kInputs[] = {RowOperand::row, RowOperand::vector}, kOutputs[] = {RowOperand::row, RowOperand::scalar};
  double eps = 0;
  RmsNorm() = default;
  explicit RmsNorm(const Attributes& attributes) : eps(attributes["eps"]) {}
  template <class T>
  struct Normalized : Narrow {
    T inverse;
    ULPSCOPE_LANE_FUNCTION explicit Normalized(T inverse_) : inverse(inverse_) {}
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V x, V weight) const {
      return x * constant<V>(inverse) * weight;
    }
  };
  template <class L>
  ULPSCOPE_LANE_FUNCTION void operator()(const L& loops, const RowCall<typename L::Value>& row) const {
    using C = typename L::Value;
    const auto* x = row.inputs[0];
    const C inverse = loops.apply(InverseDeviation(eps), loops.sum(Product(), row.n, x, x) / static_cast<C>(row.n));
    loops.map(Normalized(inverse), row.n, row.outputs[0], x, row.inputs[1]);
    row.outputs[1][0] = inverse;
  }
};

// With u = g weight: dx = inverse (u - x inverse^2 mean(u x)).
struct RmsNormBackward : RowOp {
  static constexpr const char* kName = "rms_norm_backward";
  static constexpr RowOperand kInputs[] = {RowOperand::row, RowOperand::row, RowOperand::vector, RowOperand::scalar},
                              kOutputs[] = {RowOperand::row};
  using RowOp::RowOp;
  template <class T>
  struct Gradient : Narrow {
    T inverse, slope;
    ULPSCOPE_LANE_FUNCTION Gradient(T inverse_, T slope_) : inverse(inverse_), slope(slope_) {}
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V g, V x, V weight) const {
      return constant<V>(inverse) * (g * weight - x * constant<V>(slope));
    }
  };
  template <class L>
  ULPSCOPE_LANE_FUNCTION void operator()(const L& loops, const RowCall<typename L::Value>& row) const {
    using C = typename L::Value;
    const auto *g = row.inputs[0], *x = row.inputs[1], *weight = row.inputs[2];
    const C inverse = row.inputs[3][0], mean = loops.sum(ThreefoldProduct(), row.n, g, x, weight) / static_cast<C>(row.n);
    const C slope = inverse * inverse * mean;
    loops.map(Gradient(inverse, slope), row.n, row.outputs[0], g, x, weight);
  }
};

// One row's terms of the gradient of a normalization's weight, g (x - mean) inverse; without a mean, g x inverse.
template <class T>
struct WeightTerms : Narrow {
  T mean, inverse;
  ULPSCOPE_LANE_FUNCTION WeightTerms(T mean_, T inverse_) : mean(mean_), inverse(inverse_) {}
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V g, V x) const {
    return g * ((x - constant<V>(mean)) * constant<V>(inverse));
  }
};

// Cells of recurrent networks, gates in PyTorch's order. What gradients are made of is kept as it is stored: the gates after their
// functions, and the states.
struct CellOp : RowOp {
  using RowOp::RowOp;
  struct SigmoidOfSum : Widened {
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V a, V b) const {
      return sigmoid(a + b);
    }
  };
  struct TanhOfSum : Widened {
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V a, V b) const {
      return tanh(a + b);
    }
  };
  // Times the derivative of a sigmoid or of a tanh, from its value.
  struct ThroughSigmoid : Narrow {
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V a, V b, V y) const {
      return a * b * (y * (constant<V>(1) - y));
    }
  };
  struct ThroughTanh : Narrow {
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V a, V b, V y) const {
      return a * b * (constant<V>(1) - y * y);
    }
  };
};

// Inputs: the gates' shares from the input and from the hidden state, i f g o, and the cell c.
// c' = f c + i g and h' = o tanh(c'), with i, f, o = sigmoid and g = tanh of the two shares' sum; outputs h', c' and the gates.
struct LstmCell : CellOp {
  static constexpr const char* kName = "lstm_cell";
  static constexpr RowOperand kInputs[] = {RowOperand::rows(4), RowOperand::rows(4), RowOperand::row},
                              kOutputs[] = {RowOperand::row, RowOperand::row, RowOperand::rows(4)};
  using CellOp::CellOp;
  struct Cell : Narrow {
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V i, V f, V g, V c) const {
      return f * c + i * g;
    }
  };
  struct Hidden : Widened {
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V o, V c) const {
      return o * tanh(c);
    }
  };
  template <class L>
  ULPSCOPE_LANE_FUNCTION void operator()(const L& loops, const RowCall<typename L::Value>& row) const {
    const int64_t n = row.n;
    const auto *of_input = row.inputs[0], *of_hidden = row.inputs[1];
    auto *h = row.outputs[0], *c = row.outputs[1], *i = row.outputs[2], *f = i + n, *g = f + n, *o = g + n;
    loops.map(SigmoidOfSum(), 2 * n, i, of_input, of_hidden);
    loops.map(TanhOfSum(), n, g, of_input + 2 * n, of_hidden + 2 * n);
    loops.map(SigmoidOfSum(), n, o, of_input + 3 * n, of_hidden + 3 * n);
    loops.map(Cell(), n, c, i, f, g, row.inputs[2]);
    loops.map(Hidden(), n, h, o, c);
  }
};

// Inputs: the gradients of h' and c', the gates, c and c'. With t = tanh(c') and s = dc' + dh' o (1 - t^2): the gradients of the
// gates before their functions, di = s g i (1 - i), df = s c f (1 - f), dg = s i (1 - g^2), do = dh' t o (1 - o), and dc = s f.
struct LstmCellBackward : CellOp {
  static constexpr const char* kName = "lstm_cell_backward";
  static constexpr RowOperand kInputs[] = {RowOperand::row, RowOperand::row, RowOperand::rows(4), RowOperand::row, RowOperand::row},
                              kOutputs[] = {RowOperand::rows(4), RowOperand::row};
  using CellOp::CellOp;
  struct Tanh : Widened {
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V c) const {
      return tanh(c);
    }
  };
  struct OfCell : Narrow {
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V hidden, V cell, V o, V t) const {
      return cell + hidden * o * (constant<V>(1) - t * t);
    }
  };
  template <class L>
  ULPSCOPE_LANE_FUNCTION void operator()(const L& loops, const RowCall<typename L::Value>& row) const {
    const int64_t n = row.n;
    const auto *hidden = row.inputs[0], *cell = row.inputs[1], *i = row.inputs[2], *f = i + n, *g = f + n, *o = g + n;
    auto *of_i = row.outputs[0], *of_f = of_i + n, *of_g = of_f + n, *of_o = of_g + n, *of_c = row.outputs[1];
    loops.map(Tanh(), n, of_o, row.inputs[4]);
    loops.map(OfCell(), n, of_c, hidden, cell, o, of_o);
    loops.map(ThroughSigmoid(), n, of_o, hidden, of_o, o);
    loops.map(ThroughSigmoid(), n, of_i, of_c, g, i);
    loops.map(ThroughSigmoid(), n, of_f, of_c, row.inputs[3], f);
    loops.map(ThroughTanh(), n, of_g, of_c, i, g);
    loops.map(Product(), n, of_c, of_c, f);
  }
};

// Inputs: the gates' shares from the input and from the hidden state, r z n, and the hidden state h.
// r, z = sigmoid of the two shares' sum, n = tanh(n_x + r n_h), h' = n + z (h - n); outputs h' and the gates.
struct GruCell : CellOp {
  static constexpr const char* kName = "gru_cell";
  static constexpr RowOperand kInputs[] = {RowOperand::rows(3), RowOperand::rows(3), RowOperand::row},
                              kOutputs[] = {RowOperand::row, RowOperand::rows(3)};
  using CellOp::CellOp;
  struct Proposed : Widened {
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V of_input, V r, V of_hidden) const {
      return tanh(of_input + r * of_hidden);
    }
  };
  struct Hidden : Narrow {
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V z, V proposed, V h) const {
      return proposed + z * (h - proposed);
    }
  };
  template <class L>
  ULPSCOPE_LANE_FUNCTION void operator()(const L& loops, const RowCall<typename L::Value>& row) const {
    const int64_t n = row.n;
    const auto *of_input = row.inputs[0], *of_hidden = row.inputs[1];
    auto *r = row.outputs[1], *z = r + n, *proposed = z + n;
    loops.map(SigmoidOfSum(), 2 * n, r, of_input, of_hidden);
    loops.map(Proposed(), n, proposed, of_input + 2 * n, r, of_hidden + 2 * n);
    loops.map(Hidden(), n, row.outputs[0], z, proposed, row.inputs[2]);
  }
};

// Inputs: the gradient of h', the gates, the shares from the hidden state, and h. The gradients of the gates' shares from the
// input, dn = dh' (1 - z) (1 - n^2), dr = dn n_h r (1 - r) and dz = dh' (h - n) z (1 - z); from the hidden state, where the last is
// dn r; and dh = dh' z.
struct GruCellBackward : CellOp {
  static constexpr const char* kName = "gru_cell_backward";
  static constexpr RowOperand kInputs[] = {RowOperand::row, RowOperand::rows(3), RowOperand::rows(3), RowOperand::row},
                              kOutputs[] = {RowOperand::rows(3), RowOperand::rows(3), RowOperand::row};
  using CellOp::CellOp;
  struct OfProposed : Narrow {
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V gradient, V z, V proposed) const {
      return gradient * (constant<V>(1) - z) * (constant<V>(1) - proposed * proposed);
    }
  };
  struct OfUpdate : Narrow {
    template <class V>
    ULPSCOPE_LANE_FUNCTION V operator()(V gradient, V z, V proposed, V h) const {
      return gradient * (h - proposed) * (z * (constant<V>(1) - z));
    }
  };
  template <class L>
  ULPSCOPE_LANE_FUNCTION void operator()(const L& loops, const RowCall<typename L::Value>& row) const {
    const int64_t n = row.n;
    const auto *gradient = row.inputs[0], *r = row.inputs[1], *z = r + n, *proposed = z + n, *of_hidden = row.inputs[2];
    auto *by_input = row.outputs[0], *by_hidden = row.outputs[1];
    loops.map(OfProposed(), n, by_input + 2 * n, gradient, z, proposed);
    loops.map(ThroughSigmoid(), n, by_input, by_input + 2 * n, of_hidden + 2 * n, r);
    loops.map(OfUpdate(), n, by_input + n, gradient, z, proposed, row.inputs[3]);
    loops.map(Itself(), 2 * n, by_hidden, by_input);
    loops.map(Product(), n, by_hidden + 2 * n, by_input + 2 * n, r);
    loops.map(Product(), n, row.outputs[2], gradient, z);
  }
};

template <class... R>
struct RowOpList {};

using RowOps =
    RowOpList<Softmax, MaskedSoftmax, SoftmaxBackward, LogSoftmax, LogSoftmaxBackward, LogSumExp, LogSumExpBackward, LayerNorm,
              LayerNormBackward, RmsNorm, RmsNormBackward, LstmCell, LstmCellBackward, GruCell, GruCellBackward>;

ULPSCOPE_LANES_END

#endif
