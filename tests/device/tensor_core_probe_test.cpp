// The probe of matrix units: those of each GPU are told, and so is every unit that adds in another way, by the sums that are made
// to show it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "tests/support/counting_backend.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/device/emulated_backend.h"
#include "ulpscope/kernels/devices.h"
#include "ulpscope/studies/tensor_core_report.h"

namespace ulpscope {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Encodings = std::span<const uint32_t>;
using Unit32 = std::function<uint32_t(const FloatFormat& factors, Encodings a, Encodings b)>;

// A device in the host's memory whose matrix units are a function. It computes the sums along the diagonal, where those lie that
// are made to show something.
class UnitBackend final : public CountingBackend {
 public:
  explicit UnitBackend(Unit32 unit) : UnitBackend(make_cpu_backend({.threads = 1}), std::move(unit)) {}

  void submit(const OpCall& call) override {
    const TensorView &a = call.inputs[0], &b = call.inputs[1], &out = call.outputs[0];
    const FloatFormat& factors = a.dtype == DType::f32 ? tensor_float32 : *info(a.dtype).format;
    const auto line = [](const TensorView& view, int64_t first, int64_t stride, int64_t terms) {
      std::vector<uint32_t> encodings;
      for (int64_t k = 0; k < terms; ++k) {
        const int64_t at = first + k * stride;
        encodings.push_back(view.dtype == DType::f32 ? view.as<uint32_t>()[at] : view.as<uint16_t>()[at]);
      }
      return encodings;
    };
    for (int64_t i = 0; i < out.shape[0]; ++i)
      out.as<uint32_t>()[i * (out.strides[0] + out.strides[1])] =
          unit_(factors, line(a, i * a.strides[0], a.strides[1], a.shape[1]), line(b, i * b.strides[1], b.strides[0], a.shape[1]));
  }

 private:
  UnitBackend(std::unique_ptr<Backend> cpu, Unit32 unit) : CountingBackend(*cpu), cpu_(std::move(cpu)), unit_(std::move(unit)) {}
  std::unique_ptr<Backend> cpu_;
  Unit32 unit_;
};

// The kernels on the host, with the matrix units of one GPU under the name of another.
class DisguisedBackend final : public CountingBackend {
 public:
  explicit DisguisedBackend(const char* gpu) : DisguisedBackend(gpu, make_emulated_device_backend(3, gpu)) {}
  void submit(const OpCall& call) override {
    OpCall honest = call;
    arithmetic_.accumulation = find_accumulation(gpu_);
    honest.arithmetic = &arithmetic_;
    CountingBackend::submit(honest);
  }

 private:
  DisguisedBackend(const char* gpu, std::unique_ptr<Backend> inner)
      : CountingBackend(*inner), gpu_(gpu), inner_(std::move(inner)) {}
  const char* gpu_;
  std::unique_ptr<Backend> inner_;
  Arithmetic arithmetic_;
};

// One bit of one sum of the copy number `copy` is another.
class FlippingBackend final : public CountingBackend {
 public:
  FlippingBackend(std::unique_ptr<Backend> inner, int copy, size_t sum)
      : CountingBackend(*inner), inner_(std::move(inner)), left_(copy), sum_(sum) {}
  void copy_to_host(const void* from, void* to, size_t bytes) override {
    CountingBackend::copy_to_host(from, to, bytes);
    if (left_-- == 0) static_cast<uint32_t*>(to)[sum_] ^= 1;
  }

 private:
  std::unique_ptr<Backend> inner_;
  int left_;
  size_t sum_;
};

std::string text_of(const Report& report) { return render_text(report, {.width = 400}); }
std::string probe_text(Backend& device, const char* gpu, std::span<const ProbedFamily> families) {
  return text_of(describe_probe({fmt::format("emulated:{}", gpu), device.description(), gpu}, families, 10));
}

TEST(TensorCoreProbe, TellsGpusApart) {
  const std::map<std::string_view, std::vector<std::string>> expected{
      {"v100", {"volta (4 products, 23 fraction bits)", "the table has no bf16 for v100", "the table has no tf32 for v100"}},
      {"t4", {"turing, ampere and ada (8 products, 24", "the table has no bf16 for t4", "the table has no tf32 for t4"}},
      {"a100",
       {"turing, ampere and ada (8 products, 24", "by ampere and ada (8 products, 24", "by ampere and ada (4 products, 24"}},
      {"rtx4090", {"turing, ampere and ada (8 products", "by ampere and ada (8 products", "by ampere and ada (4 products"}},
      {"h100", {"by hopper, blackwell and rtx blackwell (16 products, 25", "rtx blackwell (8 products, 25 fraction bits)"}},
      {"b200", {"by hopper, blackwell and rtx blackwell (16 products, 25", "rtx blackwell (8 products, 25 fraction bits)"}},
  };
  for (const auto& [gpu, verdicts] : expected) {
    const auto device = make_emulated_device_backend(1, gpu);
    const auto families = probe_tensor_cores(*device, gpu, 3000);
    EXPECT_TRUE(is_explained(families)) << gpu;
    const std::string text = probe_text(*device, std::string(gpu).c_str(), families);
    for (const std::string& verdict : verdicts) EXPECT_THAT(text, HasSubstr(verdict)) << gpu;
    EXPECT_THAT(text, Not(HasSubstr("no row"))) << gpu;
    for (const ProbedFamily& family : families) {
      if (family.is_missing) continue;
      EXPECT_EQ(family.random, 3000u);
      for (const ProbedBehaviour& behaviour : family.behaviours) {
        EXPECT_EQ(behaviour.explains(), behaviour.is_own) << gpu << " " << family.factors->format->name;
        EXPECT_EQ(behaviour.made_differ == 0, behaviour.is_own) << gpu << " " << family.factors->format->name;
        EXPECT_EQ(behaviour.random_differ == 0, behaviour.is_own) << gpu << " " << family.factors->format->name;
      }
    }
  }
}

TEST(TensorCoreProbe, TellsTheUnitsOfAnotherGpu) {
  DisguisedBackend device("a100");
  const auto families = probe_tensor_cores(device, "h100", 1000);
  EXPECT_FALSE(is_explained(families));
  const std::string text = probe_text(device, "h100", families);
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("explained by turing, ampere and ada (8 products, 24 fraction bits), not by the own row of h100, hopper, "
                      "blackwell and rtx blackwell (16 products, 25 fraction bits)"),
            HasSubstr("The first sums that differ"), HasSubstr("Terms of that sum of tf32 products")));
  // What is shown is that sum: the units of an A100 give the one, those of an H100 the other.
  for (const ProbedFamily& family : families) {
    const FloatFormat& format = *family.factors->format;
    ASSERT_TRUE(family.own().first) << format.name;
    const ProbedDifference& first = *family.own().first;
    EXPECT_EQ(first.result, dot(find_tensor_core("a100", format, format, binary32), first.a, first.b, 0)) << format.name;
    EXPECT_EQ(first.predicted, dot(find_tensor_core("h100", format, format, binary32), first.a, first.b, 0)) << format.name;
    EXPECT_NE(first.result, first.predicted);
  }
}

TEST(TensorCoreProbe, TellsABitOfARandomSum) {
  size_t made = 0;
  for (const ProbedFactors& factors : probed_factors())
    if (factors.dtype == DType::f16) made = made_products(factors).size();
  FlippingBackend device(make_emulated_device_backend(2, "h100"), static_cast<int>(made), 7);
  const auto families = probe_tensor_cores(device, "h100", 1500);
  EXPECT_FALSE(is_explained(families));
  const ProbedBehaviour& own = families[0].own();
  EXPECT_EQ(own.made_differ, 0u);
  EXPECT_EQ(own.random_differ, 1u);
  ASSERT_TRUE(own.first);
  EXPECT_EQ(own.first->result ^ own.first->predicted, 1u);
  EXPECT_TRUE(families[1].own().explains() && families[2].own().explains());
  EXPECT_THAT(
      probe_text(device, "h100", families),
      HasSubstr(fmt::format("explained by no row; 1 of {} results differ from the closest, hopper", families[0].made + 1500)));
}

// A way in which a unit could add that is no row's: told by sums that are made to show that, alone.
struct Way {
  std::string_view shows;  // that some of them show; "": whichever
  Unit32 unit;
  bool is_narrow = true;  // it can be told with FP16 factors
};

Unit32 changed(const char* gpu, const std::function<void(TensorCoreModel&)>& change) {
  return [=](const FloatFormat& factors, Encodings a, Encodings b) {
    const TensorCore core = find_tensor_core(gpu, factors, factors, binary32);
    TensorCoreModel model = *core.model;
    change(model);
    return dot({&model, core.a, core.b}, a, b, 0);
  };
}

// The rules of tensor_core.h again, in FP64, whose integers are large enough for them, with what else one might take for a rule.
struct Rules {
  bool normalizes_products = false;  // their exponent is that of their value
  bool normalizes_factors = false;   // a subnormal one has the exponent of its value
  bool counts_zeros = false;         // zeros have the exponents of their factors
  bool floors = false;               // terms are cut off towards -Inf
  bool is_sticky = false;            // what is cut off makes the last bit one
};
uint32_t plain_sum(const TensorCore& core, const Rules& rules, Encodings a, Encodings b) {
  const TensorCoreModel& model = *core.model;
  const bool is_tf32 = core.a == &tensor_float32;
  const FloatFormat& stored = is_tf32 ? binary32 : *core.a;
  struct Value {
    double value;
    int exponent;
  };
  const auto read = [&](uint32_t encoding) -> Value {
    if (is_tf32) encoding &= ~0x1FFFu;
    const double value = value_of(stored, encoding);
    const auto field = static_cast<int>((encoding & stored.last_magnitude()) >> stored.fraction_bits);
    return {value,
            rules.normalizes_factors && value != 0 && std::isfinite(value) ? std::ilogb(value) : std::max(field, 1) - stored.bias};
  };
  double accumulator = 0;
  for (size_t first = 0; first < a.size(); first += static_cast<size_t>(model.products)) {
    std::vector<Value> terms{{accumulator, accumulator == 0 ? model.zero_exponent : std::max(std::ilogb(accumulator), -126)}};
    for (size_t k = first; k < first + static_cast<size_t>(model.products); ++k) {
      const Value of_a = read(k < a.size() ? a[k] : 0), of_b = read(k < b.size() ? b[k] : 0);
      const double value = of_a.value * of_b.value;
      int exponent = of_a.exponent + of_b.exponent;
      if (value == 0 && !rules.counts_zeros) exponent = model.zero_exponent;
      if (value != 0 && rules.normalizes_products) exponent = std::ilogb(value);
      terms.push_back({value, exponent});
    }
    int exponent = model.zero_exponent;
    bool is_finite = true, is_negative_zero = true;
    double specials = 0;
    for (const Value& term : terms) {
      exponent = std::max(exponent, term.exponent);
      is_finite &= std::isfinite(term.value);
      is_negative_zero &= term.value == 0 && std::signbit(term.value);
      specials += std::isfinite(term.value) ? 0 : term.value;
    }
    if (!is_finite) {
      accumulator = specials;
      continue;
    }
    const int unit = exponent - model.fraction_bits;
    double sum = 0;
    for (const Value& term : terms) {
      const double units = std::ldexp(term.value, -unit);
      double kept = rules.floors ? std::floor(units) : std::trunc(units);
      if (rules.is_sticky && kept != units && std::fmod(kept, 2) == 0) kept += units < 0 ? -1 : 1;
      sum += kept;
    }
    const double exact = std::ldexp(sum, unit);
    accumulator =
        std::abs(exact) >= 0x1p128 ? exact * INFINITY : round_to_format(binary32, exact, {.mode = RoundingMode::toward_zero});
    if (sum == 0) accumulator = is_negative_zero ? -0.0 : 0.0;
  }
  return std::isnan(accumulator) ? 0x7FFFFFFFu : static_cast<uint32_t>(round_to_encoding(binary32, accumulator));
}
Unit32 by_rules(const char* gpu, const Rules& rules) {
  return [=](const FloatFormat& factors, Encodings a, Encodings b) {
    return plain_sum(find_tensor_core(gpu, factors, factors, binary32), rules, a, b);
  };
}

TEST(TensorCoreProbe, TheSameRulesInOtherWordsAreExplained) {
  for (const char* gpu : {"v100", "a100", "h100"}) {
    UnitBackend device(by_rules(gpu, {}));
    const auto families = probe_tensor_cores(device, gpu, 0);
    EXPECT_TRUE(is_explained(families)) << probe_text(device, gpu, families);
  }
}

std::vector<Way> ways(const char* gpu) {
  const auto as_it_is = changed(gpu, [](TensorCoreModel&) {});
  const auto result = [=](const std::function<uint32_t(uint32_t)>& change) -> Unit32 {
    return [=](const FloatFormat& factors, Encodings a, Encodings b) { return change(as_it_is(factors, a, b)); };
  };
  const auto inputs = [=](const std::function<uint32_t(const FloatFormat&, uint32_t)>& change) -> Unit32 {
    return [=](const FloatFormat& factors, Encodings a, Encodings b) {
      std::vector<uint32_t> of_a(a.begin(), a.end()), of_b(b.begin(), b.end());
      for (auto* each : {&of_a, &of_b})
        for (uint32_t& encoding : *each) encoding = change(factors, encoding);
      return as_it_is(factors, of_a, of_b);
    };
  };
  const auto is_subnormal = [](const FloatFormat& stored, uint32_t encoding) {
    return (encoding & stored.last_magnitude()) >> stored.fraction_bits == 0;
  };
  const auto stored = [](const FloatFormat& factors) -> const FloatFormat& {
    return &factors == &tensor_float32 ? binary32 : factors;
  };
  return {
      {"the bits that terms keep", changed(gpu, [](TensorCoreModel& model) { ++model.fraction_bits; })},
      {"the bits that terms keep", changed(gpu, [](TensorCoreModel& model) { --model.fraction_bits; })},
      {"which terms are a block", changed(gpu, [](TensorCoreModel& model) { model.products *= 2; })},
      {"which terms are a block", changed(gpu, [](TensorCoreModel& model) { model.products /= 2; })},
      {"which terms are a block", changed(gpu, [](TensorCoreModel& model) { model.passes = 2; })},
      {"", changed(gpu, [](TensorCoreModel& model) { model.adds_c_last = true; })},
      {"how results are rounded", changed(gpu, [](TensorCoreModel& model) { model.rounding = RoundingMode::nearest_even; })},
      {"how results are rounded", changed(gpu, [](TensorCoreModel& model) { model.rounding = RoundingMode::nearest_away; })},
      {"how results are rounded", changed(gpu, [](TensorCoreModel& model) { model.rounding = RoundingMode::up; })},
      {"how results are rounded", changed(gpu, [](TensorCoreModel& model) { model.rounding = RoundingMode::down; })},
      {"how results are rounded", changed(gpu, [](TensorCoreModel& model) { model.conversion = &e8m13; })},
      {"the least exponent that terms are cut off by", changed(gpu, [](TensorCoreModel& model) { ++model.zero_exponent; }), false},
      {"the least exponent that terms are cut off by", changed(gpu, [](TensorCoreModel& model) { --model.zero_exponent; }), false},
      {"the exponent of a product", by_rules(gpu, {.normalizes_products = true})},
      {"the exponent of subnormal factors", by_rules(gpu, {.normalizes_factors = true})},
      {"zeros have no exponent", by_rules(gpu, {.counts_zeros = true})},
      {"terms are cut off towards zero", by_rules(gpu, {.floors = true})},
      {"terms are cut off towards zero", by_rules(gpu, {.is_sticky = true})},
      {"the order of blocks",
       [=](const FloatFormat& factors, Encodings a, Encodings b) {
         const std::vector<uint32_t> of_a(a.rbegin(), a.rend()), of_b(b.rbegin(), b.rend());
         return as_it_is(factors, of_a, of_b);
       }},
      {"subnormal factors are numbers", inputs([=](const FloatFormat& factors, uint32_t encoding) {
         const auto sign = static_cast<uint32_t>(stored(factors).sign_bit());
         return is_subnormal(stored(factors), encoding) ? encoding & sign : encoding;
       })},
      {"subnormal results", result([=](uint32_t sum) { return is_subnormal(binary32, sum) ? sum & 0x80000000u : sum; }), false},
      {"signs of zeros", result([](uint32_t sum) { return sum == 0 ? 0x80000000u : sum; })},
      {"negative sums that become zero", result([](uint32_t sum) { return sum == 0x80000000u ? 0 : sum; }), false},
      {"infinities and NaN", result([](uint32_t sum) { return sum == 0x7FFFFFFFu ? 0x7FC00000u : sum; })},
      {"infinities and NaN", result([](uint32_t sum) { return (sum & 0x7FFFFFFFu) == 0x7F800000u ? 0x7FFFFFFFu : sum; })},
      {"what is too large", result([](uint32_t sum) { return (sum & 0x7FFFFFFFu) == 0x7F800000u ? sum - 1 : sum; }), false},
  };
}

TEST(TensorCoreProbe, TellsEveryOtherWayToAdd) {
  for (const char* gpu : {"v100", "a100", "h100"}) {
    size_t number = 0;
    for (const Way& way : ways(gpu)) {
      const std::string name = fmt::format("{}: way {}: {}", gpu, number++, way.shows);
      UnitBackend device([&](const FloatFormat& factors, Encodings a, Encodings b) { return way.unit(factors, a, b); });
      const auto families = probe_tensor_cores(device, gpu, 0);
      for (const ProbedFamily& family : families) {
        if (family.is_missing || (family.factors->dtype == DType::f16 && !way.is_narrow)) continue;
        for (const ProbedBehaviour& behaviour : family.behaviours)
          EXPECT_GT(behaviour.made_differ, 0u) << name << ", " << family.factors->format->name;
        bool is_shown = way.shows.empty();
        for (const ShownCount& shown : family.shown) is_shown |= shown.shows == way.shows && shown.differ > 0;
        EXPECT_TRUE(is_shown) << name << ", " << family.factors->format->name;
      }
    }
  }
}

// FP32 factors are cut off, not rounded, to TF32.
TEST(TensorCoreProbe, TellsHowFp32FactorsBecomeTf32) {
  const auto read = [](const std::function<uint32_t(uint32_t)>& as) {
    UnitBackend device([&](const FloatFormat& factors, Encodings a, Encodings b) {
      std::vector<uint32_t> of_a(a.begin(), a.end()), of_b(b.begin(), b.end());
      for (auto* each : {&of_a, &of_b})
        for (uint32_t& encoding : *each)
          if (&factors == &tensor_float32) encoding = as(encoding);
      return dot(find_tensor_core("h100", factors, factors, binary32), of_a, of_b, 0);
    });
    return probe_tensor_cores(device, "h100", 0);
  };
  EXPECT_TRUE(is_explained(read([](uint32_t encoding) { return encoding; })));
  const auto rounded = read([](uint32_t encoding) {
    return static_cast<uint32_t>(convert(binary32, tensor_float32, encoding))
           << (binary32.fraction_bits - tensor_float32.fraction_bits);
  });
  EXPECT_FALSE(is_explained(rounded));
  for (const ShownCount& shown : rounded[2].shown)
    EXPECT_EQ(shown.differ > 0, shown.shows == "the low bits of FP32 factors") << shown.shows;
}

TEST(TensorCoreProbe, RandomSumsAreOfAllMagnitudesAndNoneOverflows) {
  for (const ProbedFactors& factors : probed_factors()) {
    int64_t sums = 0, zeros = 0, subnormal = 0, longest = 0, shortest = 1000;
    double least = INFINITY, largest = 0;
    for (uint64_t index = 0; index < 300; ++index) {
      const ProbedProduct product = random_product(factors, 5, index);
      longest = std::max(longest, product.terms);
      shortest = std::min(shortest, product.terms);
      for (int64_t row = 0; row < product.rows; ++row) {
        // The sum of magnitudes, which bounds every partial sum, in FP64, where neither products nor sums get lost or too large.
        double magnitudes = 0;
        const Encodings a = product.a_of(row), b = product.b_of(row);
        for (size_t k = 0; k < a.size(); ++k) {
          magnitudes += std::abs(value_of(*factors.stored, a[k])) * std::abs(value_of(*factors.stored, b[k]));
          subnormal += a[k] != 0 && (a[k] & factors.stored->last_magnitude()) >> factors.stored->fraction_bits == 0;
        }
        EXPECT_LT(magnitudes, 0x1p127);
        ++sums;
        zeros += magnitudes < 0x1p-149;
        if (magnitudes > 0) least = std::min(least, magnitudes);
        largest = std::max(largest, magnitudes);
      }
    }
    EXPECT_EQ(shortest, 1);
    EXPECT_EQ(longest, 129);
    EXPECT_GT(subnormal, 100) << factors.format->name;
    EXPECT_LT(zeros, sums / 4) << factors.format->name;
    const bool is_wide = factors.format->exponent_bits == 8;
    EXPECT_LT(least, is_wide ? 0x1p-149 : 0x1p-25) << factors.format->name;
    EXPECT_GT(largest, is_wide ? 0x1p115 : 0x1p32) << factors.format->name;
    EXPECT_NE(random_product(factors, 5, 0).a, random_product(factors, 6, 0).a);
  }
}

TEST(TensorCoreProbe, AGpuThatTheTableDoesNotKnowIsSaidToBeThat) {
  const std::string text = text_of(describe_device({"cuda:0", "a GPU of some day", ""}));
  EXPECT_THAT(text, AllOf(HasSubstr("a GPU of some day"), HasSubstr("none of the GPUs that the table knows: v100, t4, ")));
}

TEST(TensorCoreProbe, DevicesSayWhoseUnitsTheyHave) {
  EXPECT_EQ(gpu_of_device("cpu"), "");
  EXPECT_EQ(gpu_of_device("emulated"), "h100");
  EXPECT_EQ(gpu_of_device("emulated:a100"), "a100");
}

}  // namespace
}  // namespace ulpscope
