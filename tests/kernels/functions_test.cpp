// The accuracy that docs/numerics.md states for elementary functions: against the C library's in 80 bits, for every FP16 value and
// for FP32 values of any magnitude, on each instruction set.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>

#include "cpu_support.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/narrow_format.h"

namespace ulpscope::testing_support {
namespace {

using Real = long double;

struct Function {
  const char* op;
  Real (*exact)(Real);
};
const Function kFunctions[] = {
    {"sqrt", [](Real x) { return std::sqrt(x); }},
    {"rsqrt", [](Real x) { return 1 / std::sqrt(x); }},
    {"reciprocal", [](Real x) { return 1 / x; }},
    {"exp", [](Real x) { return std::exp(x); }},
    {"log", [](Real x) { return std::log(x); }},
    {"tanh", [](Real x) { return std::tanh(x); }},
    {"sigmoid", [](Real x) { return 1 / (1 + std::exp(-x)); }},
    {"silu", [](Real x) { return x / (1 + std::exp(-x)); }},
    {"softplus", [](Real x) { return std::fmax(x, Real{0}) + std::log1p(std::exp(-std::fabs(x))); }},
    {"gelu", [](Real x) { return x * std::erfc(-x * std::sqrt(Real{0.5})) / 2; }},
    {"gelu_tanh",
     [](Real x) {
       const Real u = std::sqrt(2 / std::acos(Real{-1})) * (x + Real{0.044715} * x * x * x);
       return x / (1 + std::exp(-2 * u));
     }},
};

Real ulp_of(Real exact) {
  const int exponent = exact == 0 ? -126 : std::max(std::ilogb(exact), -126);
  return std::ldexp(Real{1}, exponent - 23);
}

constexpr Real kStated = 0.51;  // ulp

void expect_accurate(float actual, Real exact, const std::string& what) {
  if (std::isnan(exact)) {
    EXPECT_TRUE(std::isnan(actual)) << what << ": " << actual;
    return;
  }
  constexpr Real kLargest = std::numeric_limits<float>::max();
  if (std::isinf(exact) || std::fabs(exact) > kLargest + ulp_of(kLargest)) {
    EXPECT_EQ(actual, exact > 0 ? HUGE_VALF : -HUGE_VALF) << what;
    return;
  }
  if (std::isinf(actual) && std::fabs(exact) > kLargest) return;  // rounds to the neighbour that FP32 does not have
  const Real error = std::fabs(static_cast<Real>(actual) - exact);
  EXPECT_TRUE(error <= kStated * ulp_of(exact)) << what << ": " << actual << ", off by " << error / ulp_of(exact) << " ulp";
}

// Every FP16 value, and as many FP32 values of any sign, exponent and fraction.
std::vector<float> arguments() {
  std::vector<float> values(65536);
  for (size_t i = 0; i < values.size(); ++i) values[i] = narrow_format(binary16).widen(static_cast<uint16_t>(i));
  const Philox random(7, 1);
  for (uint64_t i = 0; i < 65536; ++i) {
    const uint32_t bits = random.below(2 * i, 1u << 16) << 16 | random.below(2 * i + 1, 1u << 16);
    values.push_back(std::bit_cast<float>(bits));
    // Functions bend here: exponents from -16 to 8.
    values.push_back(std::ldexp(static_cast<float>(2 * random.uniform((1 << 20) + i) - 1), static_cast<int>(i % 25) - 16));
  }
  return values;
}

TEST(Functions, AreWithinTheStatedUlpOnEveryInstructionSet) {
  const std::vector<float> values = arguments();
  const auto count = static_cast<int64_t>(values.size());
  for (const std::string& isa : instruction_sets()) {
    const auto backend = make_cpu_backend({.threads = 2, .isa = isa});
    for (const Function& function : kFunctions) {
      Instance instance({function.op, {{{count}}}, {{{count}}}}, DType::f32);
      for (int64_t i = 0; i < count; ++i) instance.inputs()[0].set(i, values[static_cast<size_t>(i)]);
      const Result result = instance.run(*backend);
      for (int64_t i = 0; i < count && !HasFailure(); ++i) {
        const float x = values[static_cast<size_t>(i)];
        expect_accurate(static_cast<float>(result.outputs[0].get(i)), function.exact(x),
                        fmt::format("{}({:a}) {}", function.op, x, isa));
      }
    }
  }
}

TEST(Functions, PowIsWithinTheStatedUlp) {
  const auto backend = make_cpu_backend({.threads = 2});
  const std::vector<float> values = arguments();
  constexpr int64_t kCount = 200000;
  Instance instance({"pow", {{{kCount}}, {{kCount}}}, {{{kCount}}}}, DType::f32);
  const Philox random(11, 1);
  for (int64_t i = 0; i < kCount; ++i) {
    const auto index = static_cast<uint64_t>(i);
    instance.inputs()[0].set(i, values[random.below(2 * index, static_cast<uint32_t>(values.size()))]);
    // Half of the exponents are small integers, as in networks.
    instance.inputs()[1].set(i, i % 2 == 0 ? random.below(2 * index + 1, 9) - 4.0 : 16 * random.uniform(2 * index + 1) - 8);
  }
  const Result result = instance.run(*backend);
  for (int64_t i = 0; i < kCount && !HasFailure(); ++i) {
    const double a = instance.inputs()[0].get(i), b = instance.inputs()[1].get(i);
    expect_accurate(static_cast<float>(result.outputs[0].get(i)), std::pow(static_cast<Real>(a), static_cast<Real>(b)),
                    fmt::format("pow({:a}, {:a})", a, b));
  }
}

// Gradients whose terms may cancel: the error is one of the terms, and of the rounding.
TEST(Functions, GradientsAreWithinTheStatedErrorOfTheirTerms) {
  const auto backend = make_cpu_backend({.threads = 2});
  const std::vector<float> values = arguments();
  const auto count = static_cast<int64_t>(values.size());
  for (const char* op : {"silu_backward", "gelu_backward", "gelu_tanh_backward", "softplus_backward"}) {
    Instance instance({op, {{{count}}, {{count}}}, {{{count}}}}, DType::f32);
    for (int64_t i = 0; i < count; ++i) {
      instance.inputs()[0].set(i, 1);
      instance.inputs()[1].set(i, values[static_cast<size_t>(i)]);
    }
    const Result result = instance.run(*backend), exact = instance.run_exact();
    for (int64_t i = 0; i < count; ++i) {
      const double e = exact.outputs[0].get(i), a = result.outputs[0].get(i), x = values[static_cast<size_t>(i)];
      if (!std::isfinite(x)) {
        EXPECT_TRUE(std::isnan(e) ? std::isnan(a) : a == e) << op << " at " << x << ": " << a << ", expected " << e;
        continue;
      }
      const double bound = static_cast<double>(kStated * ulp_of(e)) + 0x1p-30 * (1 + std::fabs(x) * std::exp(-std::fabs(x)));
      ASSERT_TRUE(within(std::fabs(a - e), bound)) << op << " at " << x << ": " << a << ", exactly " << e;
    }
  }
}

TEST(Functions, TheComparisonSeesAWrongBit) {
  const float pi = 3.14159274f;
  expect_accurate(pi, std::acos(Real{-1}), "pi");
  const Real off = std::fabs(static_cast<Real>(std::nextafter(pi, 4.0f)) - std::acos(Real{-1}));
  EXPECT_GT(off, kStated * ulp_of(pi));
}

}  // namespace
}  // namespace ulpscope::testing_support
