// Every op of the CPU backend against its plain twin: equal bits for our own kernels, a bound around FP64 for oneDNN's products,
// and equal patterns of NaN and Inf wherever one enters.
#include <fmt/format.h>
#include <gtest/gtest-spi.h>

#include <cmath>
#include <limits>
#include <set>

#include "cpu_support.h"
#include "ulpscope/kernels/cases/op_cases.h"

namespace ulpscope::testing_support {
namespace {

TEST(CpuTwin, ElementwiseOpsGiveTheSameBits) {
  for (const std::string& isa : instruction_sets()) {
    const auto backend = make_cpu_backend({.threads = 2, .isa = isa});
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{}, {0}, {3, 0}, {1}, {7}, {16}, {33}, {1025}, {5, 13, 129}, {40003}}) {
      for (const Case& what : elementwise_cases(shape)) {
        for (const DType dtype : kFloats) expect_twin(what, dtype, *backend, isa);
      }
    }
  }
}

TEST(CpuTwin, ElementwiseOpsReadAnyLayout) {
  const auto backend = make_cpu_backend({.threads = 2});
  const std::vector<int64_t> shape{3, 5, 9, 11};
  for (const Lay out : {Lay::contiguous, Lay::channels_last, Lay::transposed}) {
    for (const Lay lay : {Lay::contiguous, Lay::channels_last, Lay::strided, Lay::transposed, Lay::broadcast}) {
      for (Case what : elementwise_cases(shape)) {
        if (what.outputs[0].in_place_of >= 0) continue;
        what.outputs[0].lay = out;
        for (size_t i = 0; i < what.inputs.size(); ++i) what.inputs[i].lay = i % 2 == 0 ? lay : out;
        for (const DType dtype : kFloats) expect_twin(what, dtype, *backend, fmt::format("to layout {}", static_cast<int>(out)));
      }
    }
  }
}

// Shapes that fill a block of 16 lanes and leave a rest.
constexpr int64_t kSmall = 450;

// Cases of ops that are ours, or of those that oneDNN computes: its instruction set is the process's first.
std::vector<Case> ours() {
  std::vector<Case> cases = other_cases();
  std::erase_if(cases, [](const Case& what) { return what.terms > 0; });
  return cases;
}
std::vector<Case> products() {
  std::vector<Case> cases = other_cases();
  std::erase_if(cases, [](const Case& what) { return what.terms == 0; });
  return cases;
}

TEST(CpuTwin, OtherOpsGiveTheSameBits) {
  for (const std::string& isa : instruction_sets()) {
    const auto backend = make_cpu_backend({.threads = 2, .isa = isa});
    for (const Case& what : ours()) {
      for (const DType dtype : kFloats) expect_twin(what, dtype, *backend, isa);
    }
  }
}

// Inputs that the op does not change, in gaps, turned round, repeated, and channels-last: each alone, since a kernel may leave a
// layout of one to the plain twin, and all at once.
TEST(CpuTwin, OtherOpsReadAnyLayout) {
  const auto backend = make_cpu_backend({.threads = 1});
  for (const Lay lay : {Lay::strided, Lay::transposed, Lay::broadcast, Lay::channels_last}) {
    for (const Case& row : small_cases(other_cases(), kSmall)) {
      Case all = row;
      for (size_t i = 0; i < row.inputs.size(); ++i) {
        const bool changes = std::any_of(row.outputs.begin(), row.outputs.end(),
                                         [&](const OutputSpec& output) { return output.in_place_of == static_cast<int>(i); });
        if (changes) continue;
        Case alone = row;
        alone.inputs[i].lay = all.inputs[i].lay = lay;
        for (const DType dtype : {DType::f32, DType::f16}) expect_twin(alone, dtype, *backend, "");
      }
      expect_twin(all, DType::f32, *backend, "");
    }
  }
}

TEST(CpuTwin, ProductsStayWithinTheBound) {
  const auto backend = make_cpu_backend({.threads = 2});
  for (const Case& what : products()) {
    for (const DType dtype : kFloats) expect_twin(what, dtype, *backend, "");
  }
}

TEST(CpuTwin, ReductionsDoNotDependOnThreads) {
  for (const Case& what : ours()) {
    const Instance instance(what, DType::f32);
    const Result one = instance.run(*make_cpu_backend({.threads = 1}), StatisticsLevel::values);
    const Result three = instance.run(*make_cpu_backend({.threads = 3}), StatisticsLevel::values);
    for (size_t slot = 0; slot < what.outputs.size(); ++slot) {
      if (!what.outputs[slot].record_only) expect_same(three.outputs[slot], one.outputs[slot], what.name());
      expect_same_record(three.records[slot], one.records[slot], what.name());
    }
  }
}

// Twins share their formulas: here is what the formulas mean, said once more by other means.
TEST(CpuFormulas, MeanWhatTheTableSays) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  struct Meaning {
    const char* op;
    std::vector<double> inputs;
    double value;
  };
  const Meaning meanings[] = {
      {"add", {1.5, 0.25}, 1.75},
      {"add", {infinity, -infinity}, nan},
      {"sub", {1.5, 0.25}, 1.25},
      {"mul", {1.5, -0.5}, -0.75},
      {"mul", {0, infinity}, nan},
      {"div", {1.5, -0.5}, -3},
      {"div", {1, 0}, infinity},
      {"div", {0, 0}, nan},
      {"neg", {2}, -2},
      {"maximum", {1, 2}, 2},
      {"maximum", {2, 1}, 2},
      {"maximum", {nan, 1}, nan},
      {"maximum", {1, nan}, nan},
      {"maximum_backward", {4, 2, 1}, 4},
      {"maximum_backward", {4, 1, 1}, 2},
      {"maximum_backward", {4, 1, 2}, 0},
      {"maximum_backward", {4, nan, 2}, nan},
      {"maximum_backward", {4, 1, nan}, nan},
      {"maximum_backward", {nan, 1, 2}, 0},
      {"relu", {3}, 3},
      {"relu", {-3}, 0},
      {"relu", {nan}, nan},
      {"relu", {infinity}, infinity},
      {"relu", {-infinity}, 0},
      {"relu_backward", {5, 2}, 5},
      {"relu_backward", {5, 0}, 0},
      {"relu_backward", {5, nan}, nan},
      {"relu_backward", {nan, 0}, 0},
      {"relu_backward", {nan, 1}, nan},
      {"clamp", {0.125}, 0.125},
      {"clamp", {7}, 0.5},
      {"clamp", {-7}, -0.25},
      {"clamp", {nan}, nan},
      {"clamp", {infinity}, 0.5},
      {"clamp_backward", {5, 0.125}, 5},
      {"clamp_backward", {5, 0.5}, 5},
      {"clamp_backward", {5, 7}, 0},
      {"clamp_backward", {5, -7}, 0},
      {"clamp_backward", {5, nan}, nan},
      {"abs", {-3}, 3},
      {"abs", {-infinity}, infinity},
      {"abs_backward", {2, -3}, -2},
      {"abs_backward", {2, 0}, 0},
      {"abs_backward", {2, nan}, nan},
      {"sqrt", {9}, 3},
      {"sqrt", {-1}, nan},
      {"sqrt_backward", {3, 2}, 0.75},
      {"sqrt_backward", {1, 0}, infinity},
      {"rsqrt", {4}, 0.5},
      {"rsqrt", {0}, infinity},
      {"rsqrt", {infinity}, 0},
      {"rsqrt", {-1}, nan},
      {"rsqrt_backward", {2, 0.5}, -0.125},
      {"reciprocal", {-4}, -0.25},
      {"reciprocal", {0}, infinity},
      {"reciprocal_backward", {2, 0.5}, -0.5},
      {"exp", {0}, 1},
      {"exp", {infinity}, infinity},
      {"exp", {-infinity}, 0},
      {"exp", {nan}, nan},
      {"log", {1}, 0},
      {"log", {0}, -infinity},
      {"log", {-1}, nan},
      {"log", {-infinity}, nan},
      {"log", {infinity}, infinity},
      {"log", {nan}, nan},
      {"pow", {2, -3}, 0.125},
      {"pow", {-2, 3}, -8},
      {"pow", {-2, 2}, 4},
      {"pow", {-2, 0.5}, nan},
      {"pow", {0, 0}, 1},
      {"pow", {0, -1}, infinity},
      {"pow", {nan, 0}, 1},
      {"pow", {1, nan}, 1},
      {"pow", {nan, 1}, nan},
      {"pow", {2, nan}, nan},
      {"pow", {-1, infinity}, 1},
      {"pow", {0.5, infinity}, 0},
      {"pow", {-infinity, 3}, -infinity},
      {"pow", {-infinity, -1}, 0},
      {"pow_backward_base", {5, 2, 3}, 60},
      {"pow_backward_base", {5, 0, 0}, 0},
      {"pow_backward_exponent", {5, 1, 3}, 0},
      {"pow_backward_exponent", {5, 0, 2}, 0},
      {"pow_backward_exponent", {5, 0, -2}, -infinity},
      {"minimum", {1, 2}, 1},
      {"minimum", {nan, 1}, nan},
      {"minimum", {1, nan}, nan},
      {"minimum_backward", {4, 1, 2}, 4},
      {"minimum_backward", {4, 1, 1}, 2},
      {"minimum_backward", {4, 2, 1}, 0},
      {"minimum_backward", {4, 1, nan}, nan},
      {"where", {1, 2, 3}, 2},
      {"where", {0, 2, 3}, 3},
      {"where", {1, 2, nan}, 2},
      {"where_backward", {4, 1}, 4},
      {"where_backward", {nan, 0}, 0},
      {"masked_fill", {4, 0}, 4},
      {"masked_fill", {nan, 1}, 0.75},
      {"tanh", {0}, 0},
      {"tanh", {infinity}, 1},
      {"tanh", {-infinity}, -1},
      {"tanh", {nan}, nan},
      {"tanh_backward", {4, 0.5}, 3},
      {"sigmoid", {0}, 0.5},
      {"sigmoid", {infinity}, 1},
      {"sigmoid", {-infinity}, 0},
      {"sigmoid", {nan}, nan},
      {"sigmoid_backward", {8, 0.5}, 2},
      {"silu", {0}, 0},
      {"silu", {infinity}, infinity},
      {"silu", {-infinity}, nan},
      {"silu_backward", {4, 0}, 2},
      {"softplus", {infinity}, infinity},
      {"softplus", {-infinity}, 0},
      {"softplus", {nan}, nan},
      {"softplus_backward", {4, 0}, 2},
      {"gelu", {0}, 0},
      {"gelu", {infinity}, infinity},
      {"gelu", {-infinity}, nan},
      {"gelu", {nan}, nan},
      {"gelu_backward", {4, 0}, 2},
      {"gelu_backward", {4, infinity}, nan},
      {"gelu_tanh", {0}, 0},
      {"gelu_tanh", {nan}, nan},
      {"gelu_tanh_backward", {4, 0}, 2},
      {"scale", {3}, 6},
      {"copy", {3}, 3},
      {"cast", {3}, 3},
      {"fill", {}, 0.75},
      {"accumulate", {1, 2}, 3},
      {"clip_norm", {8, 0.5}, 8},
      {"clip_norm", {8, nan}, nan},
  };
  const std::vector<Attributes::Item> attributes{{"min", -0.25},  {"max", 0.5},    {"factor", 2},
                                                 {"value", 0.75}, {"max_norm", 1}, {"chosen", 1}};
  for (const std::string& isa : instruction_sets()) {
    const auto backend = make_cpu_backend({.threads = 1, .isa = isa});
    for (const Meaning& meaning : meanings) {
      Instance instance({meaning.op, std::vector<TensorSpec>(meaning.inputs.size(), TensorSpec{{19}}), {{{19}}}, attributes},
                        DType::f16);
      for (size_t input = 0; input < meaning.inputs.size(); ++input) {
        for (int64_t i = 0; i < 19; ++i) instance.inputs()[input].set(i, meaning.inputs[input]);
      }
      const Result result = instance.run(*backend);
      for (int64_t i = 0; i < 19; ++i) {
        const double value = result.outputs[0].get(i);
        EXPECT_TRUE(std::isnan(meaning.value) ? std::isnan(value) : value == meaning.value)
            << fmt::format("{} of {}: {}, expected {}", meaning.op, fmt::join(meaning.inputs, ", "), value, meaning.value);
      }
    }
  }
}

TEST(CpuTwin, Fp64RunsInFp64) {
  const auto backend = make_cpu_backend({.threads = 1});
  const Case what{"mul", {{{5}}, {{5}}}, {{{5}}}};
  const Instance instance(what, DType::f64);
  const Result result = instance.run(*backend);
  Instance copy = instance;
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(result.outputs[0].get(i), copy.inputs()[0].get(i) * copy.inputs()[1].get(i));
}

// What the tests here loop over are rows: an op that had none would pass them all.
TEST(CpuTwin, EveryOpOfTheBackendHasARowSmallEnoughForNanAndInf) {
  std::set<std::string> rows;
  for (const Case& what : elementwise_cases({37})) rows.insert(what.op);
  for (const Case& what : small_cases(other_cases(), kSmall)) rows.insert(what.op);
  const auto ops = make_cpu_backend()->ops();
  EXPECT_EQ(ops.size(), rows.size());
  for (const std::string_view op : ops) {
    EXPECT_TRUE(rows.contains(std::string(op)))
        << op << " has no row, or none of at most " << kSmall << " elements, in tests/kernels/cpu_support.cpp";
  }
}

void check_specials(const std::vector<Case>& cases, DType dtype, const std::string& isa, int64_t first, int64_t step) {
  expect_specials_of_twin(cases, dtype, *make_cpu_backend({.threads = 1, .isa = isa}), isa, first, step);
}

TEST(CpuTwin, NanAndInfComeThroughElementwiseOpsFromEveryElement) {
  for (const std::string& isa : instruction_sets()) {
    for (const DType dtype : kFloats) check_specials(elementwise_cases({37}), dtype, isa, 37, 1);
  }
}

TEST(CpuTwin, NanAndInfComeThroughOurOps) {
  for (const std::string& isa : instruction_sets()) check_specials(small_cases(ours(), kSmall), DType::f32, isa, 17, 67);
  for (const DType dtype : {DType::f16, DType::bf16}) check_specials(small_cases(ours(), kSmall), dtype, "", 1, 67);
}

TEST(CpuTwin, NanAndInfComeThroughProducts) {
  for (const DType dtype : kFloats) check_specials(small_cases(products(), kSmall), dtype, "", dtype == DType::f32 ? 17 : 1, 67);
}

// Without convolutions in groups: oneDNN multiplies the padding of these by zeros (docs/ops.md).
TEST(CpuTwin, SlowNanAndInfComeThroughProductsFromEveryElement) {
  std::vector<Case> cases = small_cases(products(), 700);
  std::erase_if(cases, [](const Case& what) {
    return std::any_of(what.attributes.begin(), what.attributes.end(),
                       [](const Attributes::Item& item) { return item.name == "groups" && item.value > 1; });
  });
  for (const DType dtype : kFloats) check_specials(cases, dtype, "", dtype == DType::f32 ? 700 : 1, 5);
}

TEST(CpuTwin, SlowNanAndInfComeThroughOurOpsFromEveryElement) {
  for (const std::string& isa : instruction_sets()) {
    for (const DType dtype : kFloats) check_specials(small_cases(ours(), 1600), dtype, isa, dtype == DType::f32 ? 1600 : 1, 5);
  }
}

TEST(CpuTwin, NanIsNotDroppedByReluMaxPoolMaximumAndClip) {
  const auto backend = make_cpu_backend();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<Case> cases = elementwise_cases({37});
  for (const Case& what : ours()) cases.push_back(what);
  for (const Case& what : cases) {
    if (what.op != "relu" && what.op != "maximum" && what.op != "clamp" && what.op != "max_pool2d") continue;
    Instance instance(what, DType::f16);
    instance.inputs()[0].set(0, nan);
    EXPECT_TRUE(std::isnan(instance.run(*backend).outputs[0].get(0))) << what.name();
    // The second place of the first window.
    if (what.op != "max_pool2d") continue;
    instance.inputs()[0].set(0, 1);
    instance.inputs()[0].set(1, nan);
    EXPECT_TRUE(std::isnan(instance.run(*backend).outputs[0].get(0))) << what.name();
  }
}

// Last: oneDNN keeps the instruction set that a process gives it first. NaN and Inf are not tried: without AVX2 most convolutions
// multiply factors by padded zeros (docs/ops.md).
TEST(CpuTwin, SlowProductsStayWithinTheBoundOnNarrowInstructionSets) {
  const auto backend = make_cpu_backend({.threads = 1, .isa = "sse4"});
  for (const Case& what : products()) {
    for (const DType dtype : kFloats) expect_twin(what, dtype, *backend, "sse4");
  }
}

// A comparison that let a NaN pass would prove nothing.
TEST(CpuTwin, ComparatorsFailOnNan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(within(nan, 1));
  EXPECT_FALSE(within(0, nan));
  EXPECT_TRUE(within(1, 1));

  const auto of = [](double value) {
    HostTensor tensor({3}, DType::f32, Lay::contiguous);
    tensor.set(1, value);
    return tensor;
  };
  const HostTensor one = of(1), not_a_number = of(nan), infinite = of(std::numeric_limits<double>::infinity());
  const auto copied = [](const HostTensor& from) {
    Instance instance({"copy", {{{3}}}, {{{3}}}}, DType::f32);
    instance.inputs()[0] = from.copy();
    return instance;
  };
  const Instance of_one = copied(one), of_nan = copied(not_a_number);
  const CaseCall copy_one = of_one.prepare(), copy_nan = of_nan.prepare();
  EXPECT_NONFATAL_FAILURE(expect_within_bound(not_a_number, copy_one.call(), 0, 1, "x"), "element 1 is nan, exactly 1");
  EXPECT_NONFATAL_FAILURE(expect_within_bound(one, copy_nan.call(), 0, 1, "x"), "element 1 is 1, exactly nan");
  EXPECT_NONFATAL_FAILURE(expect_same(not_a_number, one, "x"), "element 1 is nan");
  EXPECT_NONFATAL_FAILURE(expect_same(one, not_a_number, "x"), "expected nan");
  EXPECT_NONFATAL_FAILURE(expect_same_pattern(not_a_number, one, "x"), "element 1 is nan, expected 1");
  EXPECT_NONFATAL_FAILURE(expect_same_pattern(not_a_number, infinite, "x"), "element 1 is nan, expected inf");
  expect_within_bound(one, copy_one.call(), 0, 1, "x");
  expect_within_bound(not_a_number, copy_nan.call(), 0, 1, "x");
  expect_same(not_a_number, not_a_number, "x");
  expect_same_pattern(not_a_number, not_a_number, "x");
}

}  // namespace
}  // namespace ulpscope::testing_support
