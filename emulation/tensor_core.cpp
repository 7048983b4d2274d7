#include "ulpscope/emulation/tensor_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <string>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/arithmetic.h"

namespace ulpscope {

namespace {

using enum InstructionFamily;

constexpr const FloatFormat* kFp16[] = {&binary16};
constexpr const FloatFormat* kHalf[] = {&binary16, &bfloat16};
constexpr const FloatFormat* kTf32[] = {&tensor_float32};
constexpr const FloatFormat* kFp8[] = {&e4m3, &e5m2};
constexpr const FloatFormat* kFp8To4[] = {&e4m3, &e5m2, &e3m2, &e2m3, &e2m1};
constexpr const FloatFormat* kFp4[] = {&e2m1};

constexpr BlockScales kNone = BlockScales::none;
constexpr RoundingMode kTowardZero = RoundingMode::toward_zero, kNearestEven = RoundingMode::nearest_even;
constexpr bool kData = true;

// generation, instructions, scales, inputs, output, products, fraction bits, zero exponent, conversion
constexpr TensorCoreModel kModels[] = {
    {"volta", mma, kNone, kFp16, &binary32, 4, 23, -131, &binary32, kTowardZero, nullptr, 1, false, kData},
    {"volta", mma, kNone, kFp16, &binary16, 4, 23, -20, &binary16, kNearestEven, nullptr, 1, false, kData},

    {"turing", mma, kNone, kFp16, &binary32, 8, 24, -132, &binary32, kTowardZero},
    {"turing", mma, kNone, kFp16, &binary16, 8, 24, -21, &binary16, kNearestEven},

    {"ampere", mma, kNone, kHalf, &binary32, 8, 24, -132, &binary32, kTowardZero, nullptr, 1, false, kData},
    {"ampere", mma, kNone, kTf32, &binary32, 4, 24, -132, &binary32, kTowardZero, nullptr, 1, false, kData},
    {"ampere", mma, kNone, kFp16, &binary16, 8, 24, -21, &binary16, kNearestEven, nullptr, 1, false, kData},

    {"ada", mma, kNone, kHalf, &binary32, 8, 24, -132, &binary32, kTowardZero},
    {"ada", mma, kNone, kTf32, &binary32, 4, 24, -132, &binary32, kTowardZero},
    {"ada", mma, kNone, kFp16, &binary16, 8, 24, -21, &binary16, kNearestEven},
    {"ada", mma, kNone, kFp8, &binary32, 16, 13, -132, &e8m13, kTowardZero, nullptr, 1, false, kData},
    {"ada", mma, kNone, kFp8, &binary16, 16, 13, -21, &binary16, kNearestEven, nullptr, 1, false, kData},

    {"hopper", mma, kNone, kHalf, &binary32, 16, 25, -133, &binary32, kTowardZero, nullptr, 1, false, kData},
    {"hopper", mma, kNone, kTf32, &binary32, 8, 25, -133, &binary32, kTowardZero, nullptr, 1, false, kData},
    {"hopper", mma, kNone, kFp16, &binary16, 16, 25, -21, &binary16, kNearestEven, nullptr, 1, false, kData},
    {"hopper", mma, kNone, kFp8, &binary32, 16, 25, -133, &binary32, kTowardZero, &binary16, 2, true, kData},
    {"hopper", mma, kNone, kFp8, &binary16, 16, 25, -21, &binary16, kNearestEven, &binary16, 2, true, kData},
    {"hopper", wgmma, kNone, kHalf, &binary32, 16, 25, -133, &binary32, kTowardZero, nullptr, 1, false, kData},
    {"hopper", wgmma, kNone, kTf32, &binary32, 8, 25, -133, &binary32, kTowardZero, nullptr, 1, false, kData},
    {"hopper", wgmma, kNone, kFp16, &binary16, 16, 25, -21, &binary16, kNearestEven, nullptr, 1, false, kData},
    {"hopper", wgmma, kNone, kFp8, &binary32, 32, 13, -133, &e8m13, kTowardZero, nullptr, 1, false, kData},
    {"hopper", wgmma, kNone, kFp8, &binary16, 32, 13, -133, &binary16, kNearestEven, nullptr, 1, false, kData},

    {"blackwell", mma, kNone, kHalf, &binary32, 16, 25, -133, &binary32, kTowardZero},
    {"blackwell", mma, kNone, kTf32, &binary32, 8, 25, -133, &binary32, kTowardZero},
    {"blackwell", mma, kNone, kFp16, &binary16, 16, 25, -22, &binary16, kNearestEven},
    {"blackwell", mma, kNone, kFp8, &binary32, 32, 25, -133, &binary32, kTowardZero, nullptr, 1, true},
    {"blackwell", mma, kNone, kFp8, &binary16, 16, 25, -22, &binary16, kNearestEven, &binary16, 2, true},
    {"blackwell", tcgen05, kNone, kHalf, &binary32, 16, 25, -133, &binary32, kTowardZero},
    {"blackwell", tcgen05, kNone, kTf32, &binary32, 8, 25, -133, &binary32, kTowardZero},
    {"blackwell", tcgen05, kNone, kFp16, &binary16, 16, 25, -133, &binary16, kNearestEven},
    {"blackwell", tcgen05, kNone, kFp8To4, &binary32, 32, 25, -133, &binary32, kTowardZero},
    {"blackwell", tcgen05, kNone, kFp8To4, &binary16, 32, 25, -133, &binary16, kNearestEven},
    {"blackwell", tcgen05, BlockScales::mx, kFp8To4, &binary32, 32, 25, -133, &binary32, kTowardZero},
    {"blackwell", tcgen05, BlockScales::mxf4, kFp4, &binary32, 64, 35, -139, &binary32, kTowardZero},
    {"blackwell", tcgen05, BlockScales::nvf4, kFp4, &binary32, 64, 35, -139, &binary32, kTowardZero},

    {"rtx blackwell", mma, kNone, kHalf, &binary32, 16, 25, -133, &binary32, kTowardZero},
    {"rtx blackwell", mma, kNone, kTf32, &binary32, 8, 25, -133, &binary32, kTowardZero},
    {"rtx blackwell", mma, kNone, kFp16, &binary16, 16, 25, -22, &binary16, kNearestEven},
    {"rtx blackwell", mma, kNone, kFp8To4, &binary32, 32, 25, -133, &binary32, kTowardZero},
    {"rtx blackwell", mma, kNone, kFp8To4, &binary16, 32, 25, -22, &binary16, kNearestEven},
    {"rtx blackwell", mma, BlockScales::mx, kFp8To4, &binary32, 32, 25, -133, &binary32, kTowardZero},
    {"rtx blackwell", mma, BlockScales::mxf4, kFp4, &binary32, 64, 35, -139, &binary32, kTowardZero},
    {"rtx blackwell", mma, BlockScales::nvf4, kFp4, &binary32, 64, 35, -139, &binary32, kTowardZero},
};

constexpr TensorCoreGpu kGpus[] = {
    {"v100", "volta", mma},
    {"t4", "turing", mma},
    {"a100", "ampere", mma},
    {"a30", "ampere", mma},
    {"a10", "ampere", mma},
    {"a2", "ampere", mma},
    {"rtx3090", "ampere", mma},
    {"rtx4090", "ada", mma},
    {"rtx4080", "ada", mma},
    {"l40s", "ada", mma},
    {"l4", "ada", mma},
    {"rtx1000ada", "ada", mma},
    {"h100", "hopper", wgmma},
    {"h200", "hopper", wgmma},
    {"h20", "hopper", wgmma},
    {"gh200", "hopper", wgmma},
    {"b200", "blackwell", tcgen05},
    {"b100", "blackwell", tcgen05},
    {"gb200", "blackwell", tcgen05},
    {"rtx5090", "rtx blackwell", mma},
};

constexpr std::string_view kFamilies[] = {"mma", "wgmma", "tcgen05"};
constexpr std::string_view kScales[] = {"none", "mx", "mxfp4", "nvfp4"};

template <typename Enum, size_t n>
Enum parse(const std::string_view (&names)[n], std::string_view given, std::string_view what) {
  const std::string name = lower_case(given);
  const auto* found = std::find(std::begin(names), std::end(names), name);
  if (found != std::end(names)) return static_cast<Enum>(found - std::begin(names));
  const std::vector<std::string> all(std::begin(names), std::end(names));
  throw usage_error("{} '{}': expected {}{}", what, one_line(given), join_words(all, "or"), did_you_mean(name, all));
}

// "fp16 or bf16 -> fp32", and what has to be asked for by name.
std::string describe(const TensorCoreModel& model) {
  std::vector<std::string> inputs;
  for (const FloatFormat* input : model.inputs) inputs.emplace_back(input->name);
  std::string text = fmt::format("{} -> {}", join_words(inputs, "or"), model.output->name);
  const bool named = model.family != mma, scaled = model.scales != kNone;
  if (!named && !scaled) return text;
  const std::string family = named ? fmt::format("instruction {}", name_of(model.family)) : "";
  const std::string scales = scaled ? fmt::format("scales {}", name_of(model.scales)) : "";
  return fmt::format("{} ({}{}{})", text, family, named && scaled ? " and " : "", scales);
}

constexpr int kMostTerms = 32 + 1;

// An element of A or B, or a scale: its number, and the exponent that its field stands for.
struct Factor {
  Number number;
  int exponent;
};
Factor read(const FloatFormat& format, uint32_t encoding) {
  const Number number = decode(format, encoding);
  return {number, number.exponent + format.fraction_bits};
}
Factor read_factor(const TensorCoreModel& model, const FloatFormat& format, uint32_t encoding) {
  if (&format == &tensor_float32) encoding >>= binary32.fraction_bits - tensor_float32.fraction_bits;
  if (model.factors == nullptr) return read(format, encoding);
  return read(*model.factors, static_cast<uint32_t>(convert(format, *model.factors, encoding)));
}
Factor read_scale(BlockScales scales, uint8_t encoding) {
  const Number number = decode_scale(scales, encoding);
  return {number, number.exponent + format_of_scale(scales).fraction_bits};
}

Factor multiply(const Factor& x, const Factor& y) { return {multiply(x.number, y.number), x.exponent + y.exponent}; }

uint32_t nan_of(const FloatFormat& output) { return static_cast<uint32_t>(output.last_magnitude()); }
uint32_t infinity_of(const FloatFormat& output, bool negative) {
  return static_cast<uint32_t>(output.infinity_encoding() | (negative ? output.sign_bit() : 0));
}

// The result where it does not depend on finite terms.
struct SpecialSum {
  bool has_nan = false, has_positive = false, has_negative = false;

  void add(const Number& number) {
    has_nan |= number.kind == Number::Kind::nan;
    if (number.kind == Number::Kind::infinite) (number.negative ? has_negative : has_positive) = true;
  }
  explicit operator bool() const { return has_nan || has_positive || has_negative; }
  uint32_t result(const FloatFormat& output) const {
    return has_nan || (has_positive && has_negative) ? nan_of(output) : infinity_of(output, has_negative);
  }
};

uint32_t convert_sum(const TensorCoreModel& model, int64_t sum, int exponent) {
  if (sum == 0) return 0;
  const FloatFormat& format = *model.conversion;
  const Number number{.kind = Number::Kind::finite,
                      .negative = sum < 0,
                      .exponent = exponent,
                      .significand = static_cast<uint64_t>(sum < 0 ? -sum : sum)};
  const int leading = exponent + 63 - std::countl_zero(number.significand);
  if (leading > format.largest_exponent()) return infinity_of(*model.output, number.negative);
  const auto encoding = static_cast<uint32_t>(encode(format, number, {.mode = model.rounding}));
  if ((encoding & ~format.sign_bit()) == 0) return 0;
  return encoding << (model.output->fraction_bits - format.fraction_bits);
}

// significand * 2^exponent in whole units of 2^unit, towards zero. Nothing is lost to the left: the unit is at most fraction_bits
// below the number's own exponent.
int64_t cut_off(const Number& number, int unit) {
  if (number.kind != Number::Kind::finite) return 0;
  const int shift = number.exponent - unit;
  const uint64_t kept = shift >= 0 ? number.significand << shift : shift > -64 ? number.significand >> -shift : 0;
  return number.negative ? -static_cast<int64_t>(kept) : static_cast<int64_t>(kept);
}

// One fused sum. The terms' values and exponents are given; it fills in the rest.
uint32_t fused_sum(const TensorCoreModel& model, std::span<TensorCoreTerm> terms, TensorCoreSum* explained) {
  SpecialSum special;
  int max_exponent = model.zero_exponent;
  for (const TensorCoreTerm& term : terms) {
    special.add(term.value);
    max_exponent = std::max(max_exponent, term.exponent);
  }
  if (special) return special.result(*model.output);
  const int unit = max_exponent - model.fraction_bits;
  int64_t sum = 0;
  for (TensorCoreTerm& term : terms) {
    term.kept = cut_off(term.value, unit);
    sum += term.kept;
  }
  if (explained) {
    explained->max_exponent = max_exponent;
    explained->sum = sum;
  }
  return convert_sum(model, sum, unit);
}

TensorCoreTerm accumulator_term(const TensorCoreModel& model, uint32_t accumulator) {
  const Factor c = read(*model.output, accumulator);
  return {TensorCoreTerm::kAccumulator, c.number, c.number.kind == Number::Kind::finite ? c.exponent : model.zero_exponent};
}

class Dot {
 public:
  Dot(const TensorCore& core, std::span<const uint32_t> a, std::span<const uint32_t> b, const ScaleFactors& scales,
      std::vector<TensorCoreSum>* explained)
      : core_(core), model_(*core.model), a_(a), b_(b), scales_(scales), explained_(explained) {
    if (a.size() != b.size()) throw usage_error("dot product: a has {}, b has {}", count_of(a.size(), "element"), b.size());
    const auto each = static_cast<size_t>(elements_of_scale(model_.scales));
    const size_t expected = each == 0 ? 0 : (a.size() + each - 1) / each;
    for (const auto& [name, given] : {std::pair("a", scales.a.size()), std::pair("b", scales.b.size())}) {
      if (given != expected)
        throw usage_error("dot product: expected {} of {} for {}, got {}", count_of(expected, "scale"), name,
                          count_of(a.size(), "element"), given);
    }
  }

  uint32_t run(uint32_t c) {
    uint32_t accumulator = c;
    for (size_t first = 0; first < a_.size(); first += model_.products_of_instruction()) {
      uint32_t sum = model_.adds_c_last ? 0 : accumulator;
      for (int pass = 0; pass < model_.passes; ++pass) sum = run_block(first, pass, sum);
      accumulator = model_.adds_c_last ? add_c(sum, accumulator) : sum;
    }
    return accumulator;
  }

 private:
  Factor product(size_t element) const {
    const uint32_t a = element < a_.size() ? a_[element] : 0, b = element < b_.size() ? b_[element] : 0;
    return multiply(read_factor(model_, *core_.a, a), read_factor(model_, *core_.b, b));
  }
  Factor scale(size_t element) const {
    const size_t index = element / elements_of_scale(model_.scales);
    if (index >= scales_.a.size()) return {};
    return multiply(read_scale(model_.scales, scales_.a[index]), read_scale(model_.scales, scales_.b[index]));
  }

  TensorCoreTerm product_term(size_t element) const {
    Factor term = product(element);
    if (model_.scales == BlockScales::mx) term = multiply(term, scale(element));
    return make_term(element, term.number, term.exponent);
  }
  // A group that adds up to zero keeps the scales' exponent, unless all of it is zero.
  TensorCoreTerm group_term(size_t element) const {
    const int unit = core_.a->smallest_exponent() + core_.b->smallest_exponent();
    int64_t sum = 0;
    bool is_zero = true;
    for (size_t i = element; i < element + kProductsOfGroup; ++i) {
      const Number number = product(i).number;
      sum += cut_off(number, unit);
      is_zero &= number.kind == Number::Kind::zero;
    }
    const Number group{.kind = sum == 0 ? Number::Kind::zero : Number::Kind::finite,
                       .negative = sum < 0,
                       .exponent = unit,
                       .significand = static_cast<uint64_t>(sum < 0 ? -sum : sum)};
    const Factor by = scale(element);
    is_zero |= by.number.kind == Number::Kind::zero;
    return {static_cast<int64_t>(element), multiply(group, by.number), is_zero ? model_.zero_exponent : by.exponent};
  }
  TensorCoreTerm make_term(size_t element, const Number& number, int exponent) const {
    return {static_cast<int64_t>(element), number, number.kind == Number::Kind::finite ? exponent : model_.zero_exponent};
  }

  uint32_t run_block(size_t first, int pass, uint32_t accumulator) {
    std::array<TensorCoreTerm, kMostTerms> terms;
    size_t count = 0;
    if (model_.adds_groups()) {
      for (int i = 0; i < model_.products; i += kProductsOfGroup) terms[count++] = group_term(first + i);
    } else {
      for (int i = 0; i < model_.products; ++i) terms[count++] = product_term(first + i / 2 * 2 * model_.passes + 2 * pass + i % 2);
    }
    terms[count++] = accumulator_term(model_, accumulator);
    const std::span<TensorCoreTerm> used(terms.data(), count);
    if (!explained_) return fused_sum(model_, used, nullptr);
    TensorCoreSum& sum = explained_->emplace_back();
    sum.result = fused_sum(model_, used, &sum);
    sum.terms.assign(used.begin(), used.end());
    return sum.result;
  }

  uint32_t add_c(uint32_t sum, uint32_t c) {
    const uint32_t result = add_accumulators(*model_.output, sum, c);
    if (explained_) {
      TensorCoreSum& addition = explained_->emplace_back();
      addition.is_addition = true;
      addition.terms = {accumulator_term(model_, sum), accumulator_term(model_, c)};
      addition.result = result;
    }
    return result;
  }

  const TensorCore& core_;
  const TensorCoreModel& model_;
  std::span<const uint32_t> a_, b_;
  const ScaleFactors& scales_;
  std::vector<TensorCoreSum>* explained_;
};

}  // namespace

std::span<const TensorCoreModel> tensor_core_models() { return kModels; }
bool TensorCoreModel::takes(const FloatFormat& a, const FloatFormat& b) const {
  const auto has = [&](const FloatFormat& format) { return std::find(inputs.begin(), inputs.end(), &format) != inputs.end(); };
  return has(a) && has(b) && (&a == &b || (a.storage_bits() <= 8 && b.storage_bits() <= 8));
}

std::span<const TensorCoreGpu> tensor_core_gpus() { return kGpus; }

std::string_view tensor_core_gpu_of(std::string_view device) {
  std::vector<std::string> words(1);
  for (const char c : device) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else {
      words.emplace_back();
    }
  }
  // A name is some of the words that follow each other.
  std::string_view longest;
  for (size_t first = 0; first < words.size(); ++first) {
    std::string joined;
    for (size_t last = first; last < words.size(); ++last) {
      joined += words[last];
      for (const TensorCoreGpu& gpu : kGpus)
        if (gpu.name == joined && gpu.name.size() > longest.size()) longest = gpu.name;
    }
  }
  return longest;
}
std::string_view name_of(InstructionFamily family) { return kFamilies[static_cast<size_t>(family)]; }
std::string_view name_of(BlockScales scales) { return kScales[static_cast<size_t>(scales)]; }
InstructionFamily parse_instruction_family(std::string_view name) {
  return parse<InstructionFamily>(kFamilies, name, "instruction");
}
BlockScales parse_block_scales(std::string_view name) { return parse<BlockScales>(kScales, name, "scales"); }

const TensorCoreGpu* find_tensor_core_gpu(std::string_view name) {
  const auto* known = std::find_if(std::begin(kGpus), std::end(kGpus), [&](const TensorCoreGpu& row) { return row.name == name; });
  return known == std::end(kGpus) ? nullptr : known;
}

std::optional<TensorCore> tensor_core_of(std::string_view gpu, const FloatFormat& a, const FloatFormat& b,
                                         const FloatFormat& output, InstructionFamily family, BlockScales scales) {
  const TensorCoreGpu* known = find_tensor_core_gpu(gpu);
  for (const TensorCoreModel& model : kModels) {
    const bool fits = known != nullptr && model.generation == known->generation && model.family == family &&
                      model.scales == scales && model.output == &output && model.takes(a, b);
    if (fits) return TensorCore{&model, &a, &b};
  }
  return std::nullopt;
}

TensorCore find_tensor_core(std::string_view gpu, const FloatFormat& a, const FloatFormat& b, const FloatFormat& output,
                            InstructionFamily family, BlockScales scales) {
  const std::string name = lower_case(gpu);
  if (const auto core = tensor_core_of(name, a, b, output, family, scales)) return *core;
  const TensorCoreGpu* known = find_tensor_core_gpu(name);
  if (known == nullptr) {
    std::vector<std::string> names;
    for (const TensorCoreGpu& row : kGpus) names.emplace_back(row.name);
    throw usage_error("GPU '{}': expected {}{}", one_line(gpu), join_words(names, "or"), did_you_mean(gpu, names));
  }
  std::vector<std::string> has;
  for (const TensorCoreModel& model : kModels)
    if (model.generation == known->generation) has.push_back(describe(model));
  throw usage_error("{} has no {}{} -> {} with instruction {} and scales {}: it has {}", gpu, a.name,
                    &a == &b ? std::string() : fmt::format(" by {}", b.name), output.name, name_of(family), name_of(scales),
                    fmt::join(has, "; "));
}

std::optional<TensorCore> library_tensor_core(std::string_view gpu, const FloatFormat& a, const FloatFormat& b) {
  const TensorCoreGpu* known = find_tensor_core_gpu(gpu);
  return known == nullptr ? std::nullopt : tensor_core_of(gpu, a, b, binary32, known->of_libraries);
}

int elements_of_scale(BlockScales scales) {
  switch (scales) {
    case BlockScales::none:
      return 0;
    case BlockScales::mx:
    case BlockScales::mxf4:
      return 32;
    case BlockScales::nvf4:
      return 16;
  }
  return 0;
}

const FloatFormat& format_of_scale(BlockScales scales) { return scales == BlockScales::nvf4 ? e4m3 : e8m0; }
Number decode_scale(BlockScales scales, uint8_t encoding) {
  const FloatFormat& format = format_of_scale(scales);
  return decode(format, encoding & format.last_magnitude());
}

uint32_t dot(const TensorCore& core, std::span<const uint32_t> a, std::span<const uint32_t> b, uint32_t c,
             const ScaleFactors& scales) {
  return Dot(core, a, b, scales, nullptr).run(c);
}

uint32_t add_accumulators(const FloatFormat& output, uint32_t x, uint32_t y) {
  const Number sum = add(decode(output, x), decode(output, y));
  return sum.kind == Number::Kind::nan ? nan_of(output) : static_cast<uint32_t>(encode(output, sum));
}

std::vector<TensorCoreSum> explain_dot(const TensorCore& core, std::span<const uint32_t> a, std::span<const uint32_t> b, uint32_t c,
                                       const ScaleFactors& scales) {
  std::vector<TensorCoreSum> sums;
  Dot(core, a, b, scales, &sums).run(c);
  return sums;
}

}  // namespace ulpscope
