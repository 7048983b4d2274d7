// Matrix products and convolutions on devices: of whole numbers, whose sums are exact in any order, against the plain twins;
// of others within the bound of their sums; and those of matrix units against the CPU, bit for bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/cpu_support.h"
#include "tests/kernels/device/device_under_test.h"
#include "tests/support/usage_error.h"
#include "ulpscope/kernels/cases/op_cases.h"

namespace ulpscope {
namespace {

using namespace testing_support;

class DeviceProducts : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_device_under_test(); !why.empty()) GTEST_SKIP() << "skipped: " << why;
  }
};

// Those that are done in a moment where threads are run one after the other.
std::vector<Case> device_products(double most_multiplications) {
  std::vector<Case> cases = other_cases();
  std::erase_if(cases, [&](const Case& what) {
    double elements = 1;
    for (const int64_t extent : what.outputs[0].shape) elements *= static_cast<double>(extent);
    return !is_product(what.op) || elements * static_cast<double>(what.terms) > most_multiplications;
  });
  return cases;
}
std::vector<Case> of_narrow_factors(std::vector<Case> cases) {
  std::erase_if(cases, [](const Case& what) { return what.op == "scaled_matmul"; });
  return cases;
}

void expect_same_products(const Case& what, const Result& actual, const Result& expected, const std::string& name) {
  for (size_t slot = 0; slot < what.outputs.size(); ++slot) {
    const std::string output = fmt::format("{} output {}", name, slot);
    expect_same(actual.outputs[slot], expected.outputs[slot], output);
    expect_same_record(actual.records[slot], expected.records[slot], output);
  }
}

TEST_F(DeviceProducts, SumsOfWholeNumbersAreThoseOfTheirTwins) {
  const auto backend = make_device_under_test(31);
  for (const Case& what : device_products(1e7)) {
    for (const DType dtype : kFloats) {
      Instance instance(what, dtype);
      for (size_t input = 0; input < what.inputs.size(); ++input) {
        HostTensor& tensor = instance.inputs()[input];
        if (what.inputs[input].shape.empty()) continue;  // a scale: any number
        for (int64_t i = 0; i < tensor.view().size(); ++i) tensor.set(i, std::round(4 * tensor.get(i) / what.inputs[input].high));
      }
      expect_same_products(what, instance.run(*backend, StatisticsLevel::values), instance.run_plain(StatisticsLevel::values),
                           fmt::format("{} {}", what.name(), info(dtype).name));
    }
  }
}

// But FP8, whose sums a GPU adds with fewer bits.
TEST_F(DeviceProducts, KeepTheBoundOfTheirSums) {
  const auto backend = make_device_under_test(32);
  for (const Case& what : of_narrow_factors(device_products(1e6))) {
    for (const DType dtype : kFloats) expect_twin(what, dtype, *backend, "");
  }
}

TEST_F(DeviceProducts, GiveNonfiniteSumsWhereTheirTwinsDo) {
  const auto backend = make_device_under_test(33);
  std::vector<Case> cases = of_narrow_factors(device_products(3000));
  // A convolution multiplies its padding with weights that may be infinite (docs/ops.md).
  std::erase_if(cases, [](const Case& what) { return what.op.starts_with("conv"); });
  expect_specials_of_twin(cases, DType::f16, *backend, "", 2, 37);
}

TEST_F(DeviceProducts, SumsOfMatrixUnitsAreThoseThatTheCpuPredicts) {
  const auto cpu = make_cpu_backend();
  for (const std::string& gpu : gpus_under_test()) {
    const auto backend = make_device_under_test(34, gpu);
    for (const Case& what : of_narrow_factors(device_products(3e5))) {
      for (const DType dtype : kFloats) {
        const std::string name = fmt::format("{} {} {}", what.name(), info(dtype).name, gpu);
        const Instance instance(what, dtype);
        const CaseCall prepared = instance.prepare(StatisticsLevel::values);
        const Arithmetic how{find_accumulation(gpu)};
        const Result expected = run(prepared, *cpu, how);
        const CaseCall again = instance.prepare(StatisticsLevel::values);
        expect_same_products(what, run(again, *backend, how), expected, name);
      }
    }
  }
}

// In convolutions also where only the padding meets them: it is multiplied.
TEST_F(DeviceProducts, NonfiniteConvolutionsOfMatrixUnitsAreThoseOfTheCpu) {
  const auto cpu = make_cpu_backend();
  for (const std::string& gpu : gpus_under_test()) {
    const auto backend = make_device_under_test(39, gpu);
    const Arithmetic how{find_accumulation(gpu)};
    for (const Case& what : of_narrow_factors(device_products(2e4))) {
      if (!what.op.starts_with("conv")) continue;
      for (size_t input = 0; input < 2; ++input) {
        for (const double special : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
          Instance instance(what, DType::bf16);
          instance.inputs()[input].set(instance.inputs()[input].view().size() / 3, special);
          const CaseCall prepared = instance.prepare(StatisticsLevel::values), again = instance.prepare(StatisticsLevel::values);
          const Result expected = run(prepared, *cpu, how);
          expect_same_products(what, run(again, *backend, how), expected, fmt::format("{} {} {}", what.name(), input, special));
        }
      }
    }
  }
}

// Infinities, NaN, subnormals, and sums that are cut off.
TEST_F(DeviceProducts, MatrixUnitsTakeNumbersOfAllSizes) {
  const auto cpu = make_cpu_backend();
  for (const std::string& gpu : gpus_under_test()) {
    const auto backend = make_device_under_test(35, gpu);
    for (const DType dtype : kFloats) {
      for (const int64_t k : {1, 7, 8, 9, 16, 17, 40, 129}) {
        const Case what{"matmul", {{{19, k}}, {{k, 13}}}, {{{19, 13}}}, {}, k};
        Instance instance(what, dtype);
        const FloatFormat& format = *info(dtype).format;
        const int range = format.largest_exponent() - format.smallest_exponent();
        for (size_t input = 0; input < 2; ++input) {
          HostTensor& tensor = instance.inputs()[input];
          for (int64_t i = 0; i < tensor.view().size(); ++i) {
            const auto step = static_cast<int>((i * 37 + static_cast<int64_t>(input) * 11) % (range + format.fraction_bits));
            tensor.set(
                i, std::ldexp(tensor.get(i), (i % 5 == 0 ? step : range / 2) + format.smallest_exponent() - format.fraction_bits));
          }
          tensor.set(tensor.view().size() / 2, input == 0 ? INFINITY : NAN);
        }
        const Arithmetic how{find_accumulation(gpu)};
        const CaseCall prepared = instance.prepare(StatisticsLevel::values), again = instance.prepare(StatisticsLevel::values);
        const Result expected = run(prepared, *cpu, how);
        expect_same_products(what, run(again, *backend, how), expected,
                             fmt::format("{} {} {}", what.name(), info(dtype).name, gpu));
      }
    }
  }
}

TEST_F(DeviceProducts, RoundOtherwiseAsTheCpu) {
  const auto cpu = make_cpu_backend();
  if (gpus_under_test().empty()) GTEST_SKIP() << "skipped: nothing predicts this GPU's matrix units";
  const std::string gpu = gpus_under_test().front();
  const auto backend = make_device_under_test(36, gpu);
  size_t n = 0;
  for (Case what : of_narrow_factors(device_products(2e4))) {
    // Of every other one the sums are subnormal in FP32 and BF16.
    const double largest = n % 2 == 0 ? 1 : 0x1p-65;
    for (TensorSpec& input : what.inputs) input.low = -(input.high = largest);
    for (const DType dtype : kFloats) {
      Arithmetic how = nth_rounding(n++);
      how.accumulation = find_accumulation(gpu);
      const Instance instance(what, dtype);
      const CaseCall prepared = instance.prepare(StatisticsLevel::values), again = instance.prepare(StatisticsLevel::values);
      const Result expected = run(prepared, *cpu, how), actual = run(again, *backend, how);
      expect_same_products(what, actual, expected, fmt::format("{} {} {}", what.name(), info(dtype).name, n));
      EXPECT_EQ(actual.records[0].input, expected.records[0].input) << what.name();
    }
  }
}

// Multiples of the smallest subnormal, whose sums are exact.
TEST_F(DeviceProducts, OfFp8ReadSubnormalsAsTheCpu) {
  const auto backend = make_device_under_test(38), cpu = make_cpu_backend();
  for (Case what : device_products(1e5)) {
    if (what.op != "scaled_matmul") continue;
    for (size_t input = 2; input < 4; ++input) what.inputs[input].low = what.inputs[input].high = 0x1p-3;
    for (const Subnormals subnormals : {Subnormals::keep, Subnormals::flush_inputs, Subnormals::flush}) {
      Instance instance(what, DType::f16);
      for (size_t input = 0; input < 2; ++input) {
        HostTensor& tensor = instance.inputs()[input];
        const double step =
            info(tensor.view().dtype).format->smallest_normal() / (1 << info(tensor.view().dtype).format->fraction_bits);
        for (int64_t i = 0; i < tensor.view().size(); ++i) tensor.set(i, static_cast<double>(i * 7 % 15 - 7) * step);
      }
      const Arithmetic how{&accumulations()[0], RoundingMode::nearest_even, subnormals};
      const CaseCall prepared = instance.prepare(StatisticsLevel::values), again = instance.prepare(StatisticsLevel::values);
      const Result expected = run(prepared, *cpu, how), actual = run(again, *backend, how);
      expect_same_products(what, actual, expected, fmt::format("{} {}", what.name(), name_of(subnormals)));
      EXPECT_EQ(actual.records[0].input, expected.records[0].input) << what.name();
    }
  }
}

TEST_F(DeviceProducts, RefuseSumsOfOtherKinds) {
  const auto backend = make_device_under_test(37);
  const Case what{"matmul", {{{3, 4}}, {{4, 5}}}, {{{3, 5}}}, {}, 4};
  for (const char* accumulate : {"fp16", "bf16", "fp64", "exact", "v100"}) {
    const Instance instance(what, DType::f16);
    const CaseCall prepared = instance.prepare();
    const std::string error = usage_error_of([&] { run(prepared, *backend, {find_accumulation(accumulate)}); });
    EXPECT_NE(error.find(accumulate), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace ulpscope
