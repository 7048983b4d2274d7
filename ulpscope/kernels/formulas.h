// Elementwise formulas, one each, shared by host and device. A formula is a template over a lane type V: a Highway vector, a float
// or a double (the plain twin, also what a device thread runs). Arithmetic uses the operations of lanes.h only, and never a fused
// multiply-add: twins must round at the same places. A formula has a name (its op's), a number of inputs, and one value out; what
// it needs of the attributes it takes in its constructor.
//
// To add one: write it here and give it a row in the list at the bottom. Backends build their tables from that list.
#if defined(ULPSCOPE_KERNELS_FORMULAS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ULPSCOPE_KERNELS_FORMULAS_H
#undef ULPSCOPE_KERNELS_FORMULAS_H
#else
#define ULPSCOPE_KERNELS_FORMULAS_H
#endif

#include "ulpscope/kernels/lanes.h"
#include "ulpscope/kernels/op_call.h"

ULPSCOPE_LANES_BEGIN

template <int inputs>
struct Formula {
  static constexpr int kInputs = inputs;
  Formula() = default;
  explicit Formula(const Attributes&) {}
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

struct Clip : Formula<1> {
  static constexpr const char* kName = "clip";
  double min = 0, max = 0;
  Clip() = default;
  explicit Clip(const Attributes& attributes) : min(attributes["min"]), max(attributes["max"]) {}
  template <class V>
  ULPSCOPE_LANE_FUNCTION V operator()(V x) const {
    const V raised = select(x < constant<V>(min), constant<V>(min), x);
    return select(raised > constant<V>(max), constant<V>(max), raised);
  }
};

struct ClipBackward : Formula<2> {
  static constexpr const char* kName = "clip_backward";
  double min = 0, max = 0;
  ClipBackward() = default;
  explicit ClipBackward(const Attributes& attributes) : min(attributes["min"]), max(attributes["max"]) {}
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

template <class... F>
struct FormulaList {};

using Formulas = FormulaList<  //
    Add,                       //
    Accumulate,                //
    Subtract,                  //
    Multiply,                  //
    Divide,                    //
    Negate,                    //
    Maximum,                   //
    MaximumBackward,           //
    Relu,                      //
    ReluBackward,              //
    Clip,                      //
    ClipBackward,              //
    Scale,                     //
    Copy,                      //
    Cast,                      //
    Fill,                      //
    ClipNorm>;

ULPSCOPE_LANES_END

#endif
