#include "ulpscope/kernels/bounds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cpu_support.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/kernels/cases/op_cases.h"
#include "ulpscope/kernels/plain/bounded.h"
#include "ulpscope/kernels/plain/plain.h"

namespace ulpscope::testing_support {
namespace {

std::vector<Case> checked_cases() {
  std::vector<Case> all = elementwise_cases({3, 37});
  for (const Case& each : small_cases(other_cases(), 800)) all.push_back(each);
  return all;
}

// How many elements were compared, how near the bounds the worst one came, and of how many nothing is known.
struct Compared {
  size_t elements = 0, unknown = 0;
  double worst = 0;
};

void compare(const Case& what, DType dtype, Backend& backend, const Arithmetic& how, Compared& compared) {
  const Instance instance(what, dtype);
  const Result stored = run(instance.prepare(), backend, how);
  const CaseCall before = instance.prepare();
  OpCall call = before.call();
  call.arithmetic = &how;
  for (size_t slot = 0; slot < what.outputs.size(); ++slot) {
    if (what.outputs[slot].record_only) continue;
    const std::vector<ElementBound> bounds = bounds_of(call, static_cast<int>(slot));
    for (size_t e = 0; e < bounds.size(); ++e) {
      ++compared.elements;
      compared.unknown += !bounds[e].is_known();
      if (!bounds[e].is_known()) continue;
      const double got = stored.outputs[slot].get(static_cast<int64_t>(e)), error = bounds[e].error_of(got);
      ASSERT_LE(error, bounds[e].bound) << fmt::format("{} {} {} output {} element {}: {} beside {}", what.name(), info(dtype).name,
                                                       how.accumulation->name, slot, e, got, bounds[e].exact);
      if (bounds[e].bound > 0) compared.worst = std::max(compared.worst, error / bounds[e].bound);
    }
  }
}

class BoundsOf : public ::testing::TestWithParam<DType> {};

TEST_P(BoundsOf, HoldForTheBackend) {
  const auto backend = make_cpu_backend({.threads = 1});
  Compared compared;
  for (const Case& what : checked_cases()) compare(what, GetParam(), *backend, {}, compared);
  EXPECT_GT(compared.worst, 0.9);
  EXPECT_LT(static_cast<double>(compared.unknown), 0.01 * static_cast<double>(compared.elements));
}

// The definition in FP64 is another way to the same numbers. It errs by less than its own bound, and so does the other way.
TEST_P(BoundsOf, AreAboutWhatTheDefinitionGives) {
  if (GetParam() == DType::f64) return;  // it would be the same call
  for (const Case& what : checked_cases()) {
    const Instance instance(what, GetParam());
    const Result wide = instance.run_exact();
    const CaseCall before = instance.prepare();
    for (size_t slot = 0; slot < what.outputs.size(); ++slot) {
      if (what.outputs[slot].record_only || wide.outputs[slot].view().dtype != DType::f64) continue;
      const std::vector<ElementBound> bounds = bounds_of(before.call(), static_cast<int>(slot));
      for (size_t e = 0; e < bounds.size(); ++e) {
        if (!bounds[e].is_known() || !std::isfinite(bounds[e].exact)) continue;
        // FP64's roundings are 2^-29 of FP32's, of which `computed` has some, and those of functions 2^-17 of 2^-32.
        const double allowed = 0x1p-16 * bounds[e].computed + 0x1p-52 * std::fabs(bounds[e].exact);
        ASSERT_LE(bounds[e].error_of(wide.outputs[slot].get(static_cast<int64_t>(e))), allowed)
            << what.name() << " output " << slot << " element " << e;
      }
    }
  }
}

TEST_P(BoundsOf, HoldInEveryArithmetic) {
  const auto backend = make_cpu_backend({.threads = 1});
  std::vector<Case> cases;
  for (const Case& what : small_cases(other_cases(), 300))
    if (is_product(what.op)) cases.push_back(what);
  const TensorSpec wide{{5, 37}, Lay::contiguous, {}, 0, -300, 300}, tiny{{37, 9}, Lay::contiguous, {}, 0, -1e-7, 1e-7};
  cases.push_back({"matmul", {wide, tiny}, {{{5, 9}}}});
  cases.push_back({"linear", {wide, {{9, 37}, Lay::contiguous, {}, 0, -1e-3, 1e-3}, {{9}}}, {{{5, 9}}}});
  Compared compared;
  size_t number = 0;
  for (const Accumulation& accumulation : accumulations()) {
    for (const Case& what : cases) {
      Arithmetic how = nth_rounding(number++);
      how.accumulation = &accumulation;
      compare(what, GetParam(), *backend, how, compared);
    }
  }
  for (size_t n = 0; n < 28; ++n)
    for (const char* op : {"softmax", "layer_norm_backward", "gelu", "sum", "div"})
      for (const Case& what : checked_cases())
        if (what.op == op && !what.inputs.empty()) compare(what, GetParam(), *backend, nth_rounding(n), compared);
  EXPECT_LT(static_cast<double>(compared.unknown), 0.1 * static_cast<double>(compared.elements));
}

INSTANTIATE_TEST_SUITE_P(Kernels, BoundsOf, ::testing::Values(DType::f32, DType::f16, DType::bf16, DType::f64),
                         [](const auto& tested) { return std::string(::ulpscope::info(tested.param).name); });

TEST(Bounds, ZerosHaveSigns) {
  const auto backend = make_cpu_backend({.threads = 1});
  for (const char* op : {"div", "reciprocal", "rsqrt"}) {
    Case what{op, {{{2}}}, {{{2}}}};
    if (std::string_view(op) == "div") what.inputs.insert(what.inputs.begin(), TensorSpec{{2}, Lay::contiguous, {}, 0, 1, 2});
    for (const DType type : {DType::f32, DType::bf16}) {
      Instance instance(what, type);
      instance.inputs().back().set(0, -0.0);
      instance.inputs().back().set(1, 0.0);
      const Result stored = instance.run(*backend);
      const CaseCall before = instance.prepare();
      const std::vector<ElementBound> bounds = bounds_of(before.call(), 0);
      EXPECT_EQ(bounds[0].exact, stored.outputs[0].get(0)) << op;
      EXPECT_EQ(bounds[1].exact, HUGE_VAL) << op;
    }
  }
}

// A result that is certain to overflow is Inf, or the largest number where the format saturates.
TEST(Bounds, KnowWhatIsBeyondTheFormat) {
  const auto bound = [](const Case& what, DType type, double x) {
    Instance instance(what, type);
    for (HostTensor& input : instance.inputs()) input.set(0, x);
    const CaseCall before = instance.prepare();
    return bounds_of(before.call(), 0).at(0);
  };
  EXPECT_EQ(bound({"mul", {{{1}}, {{1}}}, {{{1}}}}, DType::f16, 300).exact, HUGE_VAL);
  EXPECT_EQ(bound({"linear", {{{1, 1}}, {{1, 1}}}, {{{1, 1}}}, {}, 1}, DType::f16, 300).exact, HUGE_VAL);
  EXPECT_EQ(bound({"mul", {{{1}}, {{1}}}, {{{1}}}}, DType::f16, 256).exact, HUGE_VAL);  // 65536
  EXPECT_EQ(bound({"mul", {{{1}}, {{1}}}, {{{1}}}}, DType::f16, 255.5).exact, 65280.25);
  const Case quantize{"quantize",
                      {{{1}}, {{}, Lay::contiguous, DType::f32}},
                      {{{1}, Lay::contiguous, DType::f8_e4m3},
                       {{}, Lay::contiguous, DType::f32},
                       {{}, Lay::contiguous, DType::f32},
                       {{}, Lay::contiguous, DType::f32}}};
  EXPECT_EQ(bound(quantize, DType::f32, 1000).exact, 448);
}

using plain::Bounded, plain::InDouble, plain::InFloat, plain::InWide;

// A computed value anywhere within the bounds of the operands has a result within the bound of the result.
template <class A>
void expect_operations_enclose(double most_error) {
  using Value = Bounded<A>;
  using Machine = typename A::Machine;
  const Philox random(21, 22);
  uint64_t at = 0;
  const auto uniform = [&] { return static_cast<double>(random.uniform(at++)); };
  for (int i = 0; i < 2000; ++i) {
    struct Operand {
      Value value;
      Machine computed;
    };
    const auto operand = [&](double size) {
      const auto exact = static_cast<double>(static_cast<Machine>((uniform() * 2 - 1) * size));
      const double error = uniform() < 0.3 ? 0 : uniform() * most_error * size;
      Machine computed = static_cast<Machine>(exact + (uniform() * 2 - 1) * error);
      if (std::fabs(static_cast<double>(computed) - exact) > error) computed = static_cast<Machine>(exact);
      return Operand{Value(Real(exact), error), computed};
    };
    const Operand a = operand(4), b = operand(4), c = operand(4);
    const auto expect = [&](const Value& value, double computed, const char* name) {
      if (!value.is_known()) return;
      if (!value.exact().is_finite()) {
        EXPECT_EQ(std::isnan(computed), value.exact().is_nan()) << name;
        return;
      }
      EXPECT_LE(std::fabs((Real(computed) - value.exact()).value()), value.error())
          << name << " of " << a.computed << ", " << b.computed << ", " << c.computed;
    };
    expect(a.value + b.value, a.computed + b.computed, "+");
    expect(a.value - b.value, a.computed - b.computed, "-");
    expect(a.value * b.value, a.computed * b.computed, "*");
    expect(a.value / b.value, a.computed / b.computed, "/");
    expect(fused(a.value, b.value, c.value), std::fma(a.computed, b.computed, c.computed), "fused");
    expect(square_root(a.value), std::sqrt(a.computed), "sqrt");
    expect(select(a.value > b.value, a.value, c.value), a.computed > b.computed ? a.computed : c.computed, "select");
    expect(select((a.value >= b.value) & (b.value < c.value), a.value, c.value),
           a.computed >= b.computed && b.computed < c.computed ? a.computed : c.computed, "select &");
    if constexpr (A::kFunction > 0) {
      expect(exp(a.value), std::exp(a.computed), "exp");
      expect(log(a.value), std::log(a.computed), "log");
      expect(tanh(a.value), std::tanh(a.computed), "tanh");
      expect(erfc(a.value), std::erfc(a.computed), "erfc");
      expect(pow(magnitude(a.value), b.value), std::pow(std::fabs(a.computed), b.computed), "pow");
      expect(log_of_complement(a.value), std::log1p(-a.computed), "log(1 - x)");
    }
  }
}

TEST(Bounds, OperationsEncloseWhatIsComputed) {
  expect_operations_enclose<InFloat>(0x1p-12);
  expect_operations_enclose<InFloat>(0.5);
  expect_operations_enclose<InDouble>(0x1p-40);
  expect_operations_enclose<InDouble>(0.5);
  expect_operations_enclose<InWide>(0x1p-20);
}

}  // namespace
}  // namespace ulpscope::testing_support
