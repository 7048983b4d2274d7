// The probe of matrix units: those of each GPU are told, and so is every unit that adds in another way, by the sums that are made
// to show it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>

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

using EncodingList = std::span<const uint32_t>;
// What an instruction gives: c + a b.
using Unit = std::function<uint32_t(const MatrixInstruction& instruction, EncodingList a, EncodingList b, uint32_t c)>;

const FloatFormat& output_of(const MatrixInstruction& instruction) { return *info(instruction.sums).format; }

// The instructions of a GPU that device code has.
std::vector<MatrixInstruction> instructions_of(const char* gpu) {
  return make_emulated_device_backend(0, gpu)->matrix_instructions()->all();
}

// Matrix units that are a function. They compute the sums along the diagonal, where those lie that are made to show something.
class FunctionInstructions final : public MatrixInstructions {
 public:
  FunctionInstructions(std::vector<MatrixInstruction> all, Unit unit) : all_(std::move(all)), unit_(std::move(unit)) {}

  std::vector<MatrixInstruction> all() const override { return all_; }
  void multiply(const MatrixInstruction& instruction, const MatrixOperands& operands) override {
    const auto encodings = [](const void* memory, DType dtype, int64_t first, int64_t count) {
      const size_t bytes = info(dtype).size;
      std::vector<uint32_t> read(static_cast<size_t>(count));
      for (size_t i = 0; i < read.size(); ++i)
        std::memcpy(&read[i], static_cast<const char*>(memory) + (static_cast<size_t>(first) + i) * bytes, bytes);
      return read;
    };
    const int64_t terms = operands.terms;
    for (int64_t i = 0; i < std::min(operands.rows, operands.columns); ++i) {
      const int64_t place = i * operands.columns + i;
      const uint32_t sum =
          unit_(instruction, encodings(operands.a, instruction.a, i * terms, terms),
                encodings(operands.b, instruction.b, i * terms, terms), encodings(operands.c, instruction.sums, place, 1)[0]);
      const size_t bytes = info(instruction.sums).size;
      std::memcpy(static_cast<char*>(operands.d) + static_cast<size_t>(place) * bytes, &sum, bytes);
    }
  }

 private:
  std::vector<MatrixInstruction> all_;
  Unit unit_;
};

// One bit of one sum of the product number `product` is another.
class FlippingInstructions final : public MatrixInstructions {
 public:
  FlippingInstructions(MatrixInstructions& inner, int product, size_t sum) : inner_(inner), left_(product), sum_(sum) {}
  std::vector<MatrixInstruction> all() const override { return inner_.all(); }
  void multiply(const MatrixInstruction& instruction, const MatrixOperands& operands) override {
    inner_.multiply(instruction, operands);
    if (left_-- == 0) static_cast<unsigned char*>(operands.d)[sum_ * info(instruction.sums).size] ^= 1;
  }

 private:
  MatrixInstructions& inner_;
  int left_;
  size_t sum_;
};

std::string text_of(const Report& report) { return render_text(report, {.width = 400}); }
std::string probe_text(const char* gpu, std::span<const ProbedInstruction> probed) {
  return text_of(describe_probe({fmt::format("emulated:{}", gpu), "", gpu}, probed, 10));
}
std::string name_of_instruction(const MatrixInstruction& instruction) {
  return fmt::format("{} {} {} {}", name_of(instruction.family), info(instruction.a).name, info(instruction.b).name,
                     info(instruction.sums).name);
}

// Whether a row is another than the GPU's own only in an exponent below that of every product, or that cuts off nothing of them.
bool differs_below_all_terms(const ProbedBehaviour& behaviour, const ProbedInstruction& probed) {
  const TensorCoreModel &one = *behaviour.core.model, &own = *probed.own().core.model;
  const FloatFormat &a = *behaviour.core.a, &b = *behaviour.core.b;
  const int zero_exponent = std::max(one.zero_exponent, own.zero_exponent);
  const bool decides = a.smallest_normal_exponent() + b.smallest_normal_exponent() < zero_exponent &&
                       a.smallest_exponent() + b.smallest_exponent() < zero_exponent - own.fraction_bits;
  return !decides && one.products == own.products && one.fraction_bits == own.fraction_bits && one.conversion == own.conversion &&
         one.rounding == own.rounding && one.passes == own.passes && one.adds_c_last == own.adds_c_last;
}

TEST(TensorCoreProbe, TellsGpusApart) {
  struct Expected {
    size_t instructions, missing;
    std::vector<std::string> verdicts;
  };
  const std::map<std::string_view, Expected> expected{
      {"v100", {2, 0, {"explained by volta (4 products, 23 fraction bits)"}}},
      {"t4", {2, 0, {"turing, ampere and ada (8 products, 24 fraction bits)"}}},
      {"a100",
       {4,
        0,
        {"turing, ampere and ada (8 products, 24", "by ampere and ada (8 products, 24", "by ampere and ada (4 products, 24"}}},
      {"rtx4090", {12, 0, {"by ampere and ada (4 products, 24", "explained by ada (16 products, 13 fraction bits)"}}},
      {"h100",
       {24,
        0,
        {"by hopper, hopper wgmma, blackwell, blackwell tcgen05 and rtx blackwell (16 products, 25 fraction bits)",
         "explained by hopper wgmma (32 products, 13 fraction bits)", "explained by hopper and hopper wgmma (16 products"}}},
      {"b200", {24, 12, {"tcgen05", "not probed: this program has no such kernel for b200"}}},
      {"rtx5090", {12, 0, {"explained by blackwell tcgen05 and rtx blackwell (32 products, 25 fraction bits)"}}},
  };
  for (const auto& [gpu, expects] : expected) {
    const auto device = make_emulated_device_backend(1, gpu);
    const auto probed = probe_tensor_cores(*device->matrix_instructions(), gpu, 2000);
    EXPECT_TRUE(is_explained(probed)) << gpu;
    const std::string text = probe_text(std::string(gpu).c_str(), probed);
    for (const std::string& verdict : expects.verdicts) EXPECT_THAT(text, HasSubstr(verdict)) << gpu;
    EXPECT_THAT(text, Not(HasSubstr("no row"))) << gpu;
    EXPECT_EQ(probed.size(), expects.instructions) << gpu;
    EXPECT_EQ(std::count_if(probed.begin(), probed.end(), [](const ProbedInstruction& each) { return each.is_missing; }),
              static_cast<int64_t>(expects.missing));
    for (const ProbedInstruction& each : probed) {
      if (each.is_missing) continue;
      EXPECT_EQ(each.random, 2000u);
      for (const ProbedBehaviour& behaviour : each.behaviours)
        EXPECT_EQ(behaviour.made_differ == 0, behaviour.is_own || differs_below_all_terms(behaviour, each))
            << gpu << " " << name_of_instruction(each.instruction) << ": " << behaviour.rows[0];
    }
  }
}

// A device with the units of an A100 that says it is an H100.
TEST(TensorCoreProbe, TellsTheUnitsOfAnotherGpu) {
  const auto device = make_emulated_device_backend(3, "a100");
  const auto probed = probe_tensor_cores(*device->matrix_instructions(), "h100", 1000);
  EXPECT_FALSE(is_explained(probed));
  const std::string text = probe_text("h100", probed);
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("explained by turing, ampere and ada (8 products, 24 fraction bits), not by the own row of h100, hopper, "
                      "hopper wgmma, blackwell, blackwell tcgen05 and rtx blackwell (16 products, 25 fraction bits), which has "
                      "products 16 instead of 8, fraction bits 25 instead of 24 and zero exponent -133 instead of -132"),
            HasSubstr("The first sums that differ"), HasSubstr("Terms of that sum of tf32 products by mma in fp32"),
            HasSubstr("not probed: this program has no such kernel")));
  // What is shown is that sum: the units of an A100 give the one, those of an H100 the other.
  int compared = 0;
  for (const ProbedInstruction& each : probed) {
    if (each.is_missing) continue;
    ASSERT_TRUE(each.own().first) << name_of_instruction(each.instruction);
    const ProbedDifference& first = *each.own().first;
    EXPECT_EQ(first.result, dot(*tensor_core_of("a100", each.instruction), first.a, first.b, first.c));
    EXPECT_EQ(first.predicted, dot(*tensor_core_of("h100", each.instruction), first.a, first.b, first.c));
    EXPECT_NE(first.result, first.predicted);
    ++compared;
  }
  EXPECT_EQ(compared, 4);
}

TEST(TensorCoreProbe, TellsABitOfARandomSum) {
  const auto device = make_emulated_device_backend(2, "h100");
  const size_t made = made_products({}).size();
  FlippingInstructions flipping(*device->matrix_instructions(), static_cast<int>(made), 7);
  const auto probed = probe_tensor_cores(flipping, "h100", 1500);
  EXPECT_FALSE(is_explained(probed));
  ASSERT_EQ(probed[0].instruction, MatrixInstruction{});
  const ProbedBehaviour& own = probed[0].own();
  EXPECT_EQ(own.made_differ, 0u);
  EXPECT_EQ(own.random_differ, 1u);
  ASSERT_TRUE(own.first);
  EXPECT_EQ(own.first->result ^ own.first->predicted, 1u);
  for (size_t i = 1; i < probed.size(); ++i) EXPECT_TRUE(probed[i].own().explains());
  EXPECT_THAT(
      probe_text("h100", probed),
      HasSubstr(fmt::format("explained by no row; 1 of {} results differ from the closest, hopper", probed[0].made + 1500)));
}

// Rows that differ in what their names do not tell.
TEST(TensorCoreProbe, TellsWhatTheOwnRowHasOtherwise) {
  const auto device = make_emulated_device_backend(3, "rtx5090");
  EXPECT_THAT(probe_text("b200", probe_tensor_cores(*device->matrix_instructions(), "b200", 1)),
              HasSubstr("explained by blackwell tcgen05 and rtx blackwell (32 products, 25 fraction bits), not by the own row of "
                        "b200, blackwell (32 products, 25 fraction bits), which has c added last instead of with the products"));
}

// A way in which a unit could add that is no row's: told by sums that are made to show that, alone.
struct Way {
  std::vector<std::string_view> shows;  // what some of the sums show that tell it; none: whichever
  Unit unit;
  // For which instructions there can be no such sums: what they would need their factors do not reach.
  std::function<bool(const MatrixInstruction&)> is_hidden = [](const MatrixInstruction&) { return false; };
};

Unit changed(const char* gpu, const std::function<void(TensorCoreModel&)>& change) {
  return [=](const MatrixInstruction& instruction, EncodingList a, EncodingList b, uint32_t c) {
    const TensorCore core = *tensor_core_of(gpu, instruction);
    TensorCoreModel model = *core.model;
    change(model);
    return dot({&model, core.a, core.b}, a, b, c);
  };
}

// The rules of tensor_core.h again, in FP64, whose integers are large enough for them, with what else one might take for a rule.
struct Rules {
  bool normalizes_products = false;   // their exponent is that of their value
  bool normalizes_factors = false;    // a subnormal one has the exponent of its value
  bool counts_zeros = false;          // zeros have the exponents of their factors
  bool floors = false;                // terms are cut off towards -Inf
  bool is_sticky = false;             // what is cut off makes the last bit one
  bool keeps_signs_of_zeros = false;  // a sum of zeros that are all negative is -0, and so is a negative one that is too small
};
class PlainSum {
 public:
  PlainSum(const TensorCore& core, const Rules& rules) : core_(core), model_(*core.model), rules_(rules) {}

  uint32_t operator()(EncodingList a, EncodingList b, uint32_t c) const {
    const FloatFormat& output = *model_.output;
    double accumulator = value_of(output, c);
    const auto products = static_cast<size_t>(model_.products), passes = static_cast<size_t>(model_.passes);
    for (size_t first = 0; first < a.size(); first += products * passes) {
      double sum = model_.adds_c_last ? 0 : accumulator;
      for (size_t pass = 0; pass < passes; ++pass) {
        std::vector<Value> terms{{sum, sum == 0 ? model_.zero_exponent : exponent_of(output, sum)}};
        // Pairs of neighbours go to the passes in turns.
        for (size_t k = first; k < first + products * passes; ++k)
          if ((k - first) / 2 % passes == pass) terms.push_back(product(k < a.size() ? a[k] : 0, k < b.size() ? b[k] : 0));
        sum = fused(terms);
      }
      // FP32 numbers are added by the processor, FP16 ones without an error in FP64.
      if (!model_.adds_c_last) {
        accumulator = sum;
      } else if (&output == &binary32) {
        accumulator = static_cast<float>(sum) + static_cast<float>(accumulator);
      } else {
        accumulator = round_to_format(binary16, sum + accumulator);
      }
    }
    return std::isnan(accumulator) ? static_cast<uint32_t>(output.last_magnitude())
                                   : static_cast<uint32_t>(round_to_encoding(output, accumulator));
  }

 private:
  struct Value {
    double value;
    int exponent;
  };
  static int exponent_of(const FloatFormat& format, double value) {
    return std::isfinite(value) ? std::max(std::ilogb(value), format.smallest_normal_exponent()) : 0;
  }
  Value factor(const FloatFormat& format, uint32_t encoding) const {
    const bool is_tf32 = &format == &tensor_float32;
    const double value = value_of(is_tf32 ? binary32 : format, is_tf32 ? encoding & ~0x1FFFu : encoding);
    const FloatFormat& as = model_.factors == nullptr ? format : *model_.factors;
    if (value == 0) return {value, as.smallest_normal_exponent()};
    return {value, rules_.normalizes_factors && std::isfinite(value) ? std::ilogb(value) : exponent_of(as, value)};
  }
  Value product(uint32_t a, uint32_t b) const {
    const Value of_a = factor(*core_.a, a), of_b = factor(*core_.b, b);
    const double value = of_a.value * of_b.value;
    if (value == 0 && !rules_.counts_zeros) return {value, model_.zero_exponent};
    if (value != 0 && rules_.normalizes_products && std::isfinite(value)) return {value, std::ilogb(value)};
    return {value, of_a.exponent + of_b.exponent};
  }
  double fused(const std::vector<Value>& terms) const {
    int exponent = model_.zero_exponent;
    bool is_finite = true, is_negative_zero = true;
    double specials = 0;
    for (const Value& term : terms) {
      exponent = std::max(exponent, term.exponent);
      is_finite &= std::isfinite(term.value);
      is_negative_zero &= term.value == 0 && std::signbit(term.value);
      specials += std::isfinite(term.value) ? 0 : term.value;
    }
    if (!is_finite) return specials;
    const int unit = exponent - model_.fraction_bits;
    double sum = 0;
    for (const Value& term : terms) {
      const double units = std::ldexp(term.value, -unit);
      double kept = rules_.floors ? std::floor(units) : std::trunc(units);
      if (rules_.is_sticky && kept != units && std::fmod(kept, 2) == 0) kept += units < 0 ? -1 : 1;
      sum += kept;
    }
    const double exact = std::ldexp(sum, unit);
    if (std::abs(exact) >= std::ldexp(1.0, model_.output->largest_exponent() + 1)) return exact * INFINITY;
    const double result = round_to_format(*model_.conversion, exact, {.mode = model_.rounding});
    if (!rules_.keeps_signs_of_zeros) return result == 0 ? 0 : result;
    return sum == 0 && is_negative_zero ? -0.0 : result;
  }

  const TensorCore& core_;
  const TensorCoreModel& model_;
  const Rules& rules_;
};
Unit by_rules(const char* gpu, const Rules& rules) {
  return [=](const MatrixInstruction& instruction, EncodingList a, EncodingList b, uint32_t c) {
    return PlainSum(*tensor_core_of(gpu, instruction), rules)(a, b, c);
  };
}

TEST(TensorCoreProbe, TheSameRulesInOtherWordsAreExplained) {
  for (const char* gpu : {"v100", "a100", "rtx4090", "h100", "b200", "rtx5090"}) {
    FunctionInstructions device(instructions_of(gpu), by_rules(gpu, {}));
    const auto probed = probe_tensor_cores(device, gpu, 0);
    EXPECT_TRUE(is_explained(probed)) << probe_text(gpu, probed);
  }
}

std::vector<Way> ways(const char* gpu) {
  const auto as_it_is = changed(gpu, [](TensorCoreModel&) {});
  const auto result = [=](const std::function<uint32_t(const FloatFormat&, uint32_t)>& change) -> Unit {
    return [=](const MatrixInstruction& instruction, EncodingList a, EncodingList b, uint32_t c) {
      return change(output_of(instruction), as_it_is(instruction, a, b, c));
    };
  };
  const auto magnitude = [](const FloatFormat& format, uint32_t encoding) {
    return encoding & static_cast<uint32_t>(format.last_magnitude());
  };
  const auto is_subnormal = [=](const FloatFormat& format, uint32_t encoding) {
    return magnitude(format, encoding) >> format.fraction_bits == 0;
  };
  // Where products are larger than what the least exponent decides about, or nothing of them lies below what is kept there.
  const auto has_no_small_terms = [=](const MatrixInstruction& instruction) {
    const FloatFormat &a = factor_format(instruction.a), &b = factor_format(instruction.b);
    const TensorCoreModel& model = *tensor_core_of(gpu, instruction)->model;
    return a.smallest_normal_exponent() + b.smallest_normal_exponent() > model.zero_exponent ||
           a.smallest_exponent() + b.smallest_exponent() >= model.zero_exponent - model.fraction_bits;
  };
  // FP8 factors that become FP16: of E4M3 none is subnormal there, and its exponents are too few for what lies beside zeros to get
  // lost; of E5M2 what lies beside subnormal ones is less than FP16 results hold.
  const auto becomes_f16 = [=](const MatrixInstruction& instruction) {
    return tensor_core_of(gpu, instruction)->model->factors != nullptr;
  };
  const auto has_e4m3 = [](const MatrixInstruction& instruction) {
    return instruction.a == DType::f8_e4m3 || instruction.b == DType::f8_e4m3;
  };
  const auto has_e4m3_or_f16 = [=](const MatrixInstruction& instruction) {
    return has_e4m3(instruction) || instruction.sums == DType::f16;
  };
  // Then the sum that C is added to begins with +0.
  const auto adds_c_last = [=](const MatrixInstruction& instruction) {
    return tensor_core_of(gpu, instruction)->model->adds_c_last;
  };
  return {
      {{"the bits that terms keep"}, changed(gpu, [](TensorCoreModel& model) { ++model.fraction_bits; })},
      {{"the bits that terms keep"}, changed(gpu, [](TensorCoreModel& model) { --model.fraction_bits; })},
      {{"which terms are a block"},
       changed(gpu, [](TensorCoreModel& model) { model.products *= model.products < 32 ? 2 : 1; }),
       [=](const MatrixInstruction& instruction) { return tensor_core_of(gpu, instruction)->model->products == 32; }},
      {{"which terms are a block"}, changed(gpu, [](TensorCoreModel& model) { model.products /= 2; })},
      {{"which terms are a block"}, changed(gpu, [](TensorCoreModel& model) { model.passes = 3 - model.passes; })},
      {{}, changed(gpu, [](TensorCoreModel& model) { model.adds_c_last = !model.adds_c_last; })},
      {{"how results are rounded"},
       changed(gpu,
               [](TensorCoreModel& model) {
                 model.rounding =
                     model.rounding == RoundingMode::nearest_even ? RoundingMode::toward_zero : RoundingMode::nearest_even;
               })},
      {{"how results are rounded"}, changed(gpu, [](TensorCoreModel& model) { model.rounding = RoundingMode::nearest_away; })},
      {{"how results are rounded"}, changed(gpu, [](TensorCoreModel& model) { model.rounding = RoundingMode::up; })},
      {{"how results are rounded"}, changed(gpu, [](TensorCoreModel& model) { model.rounding = RoundingMode::down; })},
      {{"how results are rounded"},
       changed(gpu,
               [](TensorCoreModel& model) {
                 if (model.output == &binary32) model.conversion = model.conversion == &e8m13 ? &binary32 : &e8m13;
               }),
       [](const MatrixInstruction& instruction) { return instruction.sums == DType::f16; }},
      {{"the least exponent that terms are cut off by"},
       changed(gpu, [](TensorCoreModel& model) { ++model.zero_exponent; }),
       has_no_small_terms},
      {{"the least exponent that terms are cut off by"},
       changed(gpu, [](TensorCoreModel& model) { --model.zero_exponent; }),
       has_no_small_terms},
      {{"the exponent of a product"}, by_rules(gpu, {.normalizes_products = true})},
      {{"the exponent of subnormal factors"},
       by_rules(gpu, {.normalizes_factors = true}),
       [=](const MatrixInstruction& instruction) { return becomes_f16(instruction) && has_e4m3_or_f16(instruction); }},
      {{"zeros have no exponent"},
       by_rules(gpu, {.counts_zeros = true}),
       [=](const MatrixInstruction& instruction) { return becomes_f16(instruction) && has_e4m3(instruction); }},
      {{"terms are cut off towards zero"}, by_rules(gpu, {.floors = true})},
      {{"terms are cut off towards zero"}, by_rules(gpu, {.is_sticky = true})},
      {{"the order of blocks"},
       [=](const MatrixInstruction& instruction, EncodingList a, EncodingList b, uint32_t c) {
         const std::vector<uint32_t> of_a(a.rbegin(), a.rend()), of_b(b.rbegin(), b.rend());
         return as_it_is(instruction, of_a, of_b, c);
       }},
      {{"subnormal factors are numbers"},
       [=](const MatrixInstruction& instruction, EncodingList a, EncodingList b, uint32_t c) {
         const auto flushed = [&](DType dtype, EncodingList encodings) {
           const FloatFormat& format = *info(dtype).format;
           std::vector<uint32_t> numbers(encodings.begin(), encodings.end());
           for (uint32_t& each : numbers)
             if (is_subnormal(format, each)) each &= static_cast<uint32_t>(format.sign_bit());
           return numbers;
         };
         return as_it_is(instruction, flushed(instruction.a, a), flushed(instruction.b, b), c);
       }},
      {{"what the sum begins with"},
       [=](const MatrixInstruction& instruction, EncodingList a, EncodingList b, uint32_t c) {
         const FloatFormat& output = output_of(instruction);
         return as_it_is(instruction, a, b, is_subnormal(output, c) ? c & static_cast<uint32_t>(output.sign_bit()) : c);
       }},
      {{},
       [=](const MatrixInstruction& instruction, EncodingList a, EncodingList b, uint32_t c) {
         return add_accumulators(output_of(instruction), as_it_is(instruction, a, b, 0), c);
       },
       adds_c_last},
      {{}, result([=](const FloatFormat& output, uint32_t sum) {
         return is_subnormal(output, sum) ? sum & static_cast<uint32_t>(output.sign_bit()) : sum;
       })},
      {{"signs of zeros"},
       result([](const FloatFormat& output, uint32_t sum) { return sum == 0 ? static_cast<uint32_t>(output.sign_bit()) : sum; })},
      {{"negative sums that become zero", "signs of zeros"}, by_rules(gpu, {.keeps_signs_of_zeros = true}), adds_c_last},
      {{"infinities and NaN"}, result([=](const FloatFormat& output, uint32_t sum) {
         const auto infinity = static_cast<uint32_t>(output.infinity_encoding());
         return magnitude(output, sum) > infinity ? infinity + (1u << (output.fraction_bits - 1)) : sum;
       })},
      {{"infinities and NaN"}, result([=](const FloatFormat& output, uint32_t sum) {
         return magnitude(output, sum) == output.infinity_encoding() ? static_cast<uint32_t>(output.last_magnitude()) : sum;
       })},
      {{"what is too large", "infinities and NaN"}, result([=](const FloatFormat& output, uint32_t sum) {
         return magnitude(output, sum) == output.infinity_encoding() ? sum - 1 : sum;
       })},
  };
}

void expect_every_other_way_told(std::initializer_list<const char*> gpus) {
  for (const char* gpu : gpus) {
    // Of FP8 one that has another type for each factor, and one that has not.
    std::vector<MatrixInstruction> instructions = instructions_of(gpu);
    std::erase_if(instructions, [](const MatrixInstruction& each) { return is_quantized(each.a) && each.b == DType::f8_e4m3; });
    size_t number = 0;
    for (const Way& way : ways(gpu)) {
      const std::string name = fmt::format("{}: way {}: {}", gpu, number++, fmt::join(way.shows, " or "));
      FunctionInstructions device(instructions, way.unit);
      for (const ProbedInstruction& each : probe_tensor_cores(device, gpu, 0)) {
        if (each.is_missing || way.is_hidden(each.instruction)) continue;
        EXPECT_GT(each.own().made_differ, 0u) << name << ", " << name_of_instruction(each.instruction);
        bool is_shown = way.shows.empty();
        for (const ShownCount& shown : each.shown)
          is_shown |= shown.differ > 0 && std::count(way.shows.begin(), way.shows.end(), shown.shows) > 0;
        EXPECT_TRUE(is_shown) << name << ", " << name_of_instruction(each.instruction);
      }
    }
  }
}

TEST(TensorCoreProbe, TellsEveryOtherWayToAdd) { expect_every_other_way_told({"v100", "h100"}); }

TEST(TensorCoreProbe, TellsEveryOtherWayToAddSlow) { expect_every_other_way_told({"a100", "rtx4090", "b200"}); }

// FP32 factors are cut off, not rounded, to TF32.
TEST(TensorCoreProbe, TellsHowFp32FactorsBecomeTf32) {
  const auto read = [](const std::function<uint32_t(uint32_t)>& as) {
    const MatrixInstruction tf32{InstructionFamily::mma, DType::f32, DType::f32, DType::f32};
    FunctionInstructions device({tf32}, [&](const MatrixInstruction&, EncodingList a, EncodingList b, uint32_t c) {
      std::vector<uint32_t> of_a(a.begin(), a.end()), of_b(b.begin(), b.end());
      for (auto* each : {&of_a, &of_b})
        for (uint32_t& encoding : *each) encoding = as(encoding);
      return dot(*tensor_core_of("h100", tf32), of_a, of_b, c);
    });
    return probe_tensor_cores(device, "h100", 0);
  };
  EXPECT_TRUE(is_explained(read([](uint32_t encoding) { return encoding; })));
  const auto rounded = read([](uint32_t encoding) {
    return static_cast<uint32_t>(convert(binary32, tensor_float32, encoding))
           << (binary32.fraction_bits - tensor_float32.fraction_bits);
  });
  EXPECT_FALSE(is_explained(rounded));
  const auto tf32 = std::find_if(rounded.begin(), rounded.end(), [](const ProbedInstruction& each) { return !each.is_missing; });
  ASSERT_NE(tf32, rounded.end());
  for (const ShownCount& shown : tf32->shown)
    EXPECT_EQ(shown.differ > 0, shown.shows == "the low bits of FP32 factors") << shown.shows;
}

TEST(TensorCoreProbe, RandomSumsAreOfAllMagnitudesAndNoneOverflows) {
  for (const MatrixInstruction& instruction : instructions_of("h100")) {
    if (instruction.family != InstructionFamily::mma) continue;
    const std::string name = name_of_instruction(instruction);
    const FloatFormat &of_a = *info(instruction.a).format, &of_b = *info(instruction.b).format, &output = output_of(instruction);
    int64_t sums = 0, zeros = 0, subnormal = 0, longest = 0, shortest = 1000, beginnings = 0;
    double least = INFINITY, largest = 0;
    for (uint64_t index = 0; index < 400; ++index) {
      const ProbedProduct product = random_product(instruction, 5, index);
      EXPECT_EQ(product.terms % terms_of_step(instruction), 0);
      longest = std::max(longest, product.terms);
      shortest = std::min(shortest, product.terms);
      for (int64_t line = 0; line < product.columns; ++line) {
        // The sum of magnitudes, which bounds every partial sum, in FP64, where neither products nor sums get lost or too large.
        double magnitudes = 0;
        const EncodingList a = product.a_of(line), b = product.b_of(line);
        for (size_t k = 0; k < a.size(); ++k) {
          magnitudes += std::abs(value_of(of_a, a[k])) * std::abs(value_of(of_b, b[k]));
          subnormal += a[k] != 0 && (a[k] & of_a.last_magnitude()) >> of_a.fraction_bits == 0;
        }
        const double begins_with = value_of(output, product.c[static_cast<size_t>(line * product.columns + line)]);
        EXPECT_LT(magnitudes + std::abs(begins_with), output.largest_finite()) << name;
        ++sums;
        zeros += magnitudes < std::ldexp(1.0, output.smallest_exponent());
        beginnings += begins_with != 0;
        if (magnitudes > 0) least = std::min(least, magnitudes);
        largest = std::max(largest, magnitudes);
      }
    }
    EXPECT_EQ(shortest, terms_of_step(instruction)) << name;
    EXPECT_EQ(longest, (129 + terms_of_step(instruction) - 1) / terms_of_step(instruction) * terms_of_step(instruction)) << name;
    EXPECT_GT(subnormal, 100) << name;
    EXPECT_LT(zeros, sums / 4) << name;
    EXPECT_GT(beginnings, sums / 4) << name;
    EXPECT_LT(beginnings, sums * 3 / 4) << name;
    // Near what the factors or the sums hold least and most, whichever comes first.
    const FloatFormat &factor_a = factor_format(instruction.a), &factor_b = factor_format(instruction.b);
    const int lowest =
        std::max(factor_a.smallest_normal_exponent() + factor_b.smallest_normal_exponent(), output.smallest_exponent());
    const int highest = std::min(factor_a.largest_exponent() + factor_b.largest_exponent(), output.largest_exponent());
    EXPECT_LT(least, std::ldexp(1.0, lowest + 2)) << name;
    EXPECT_GT(largest, std::ldexp(1.0, highest - 12)) << name;
    EXPECT_NE(random_product(instruction, 5, 0).a, random_product(instruction, 6, 0).a);
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
