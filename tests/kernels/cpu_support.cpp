#include "cpu_support.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "ulpscope/base/error.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/bit_hash.h"
#include "ulpscope/kernels/formulas.h"
#include "ulpscope/kernels/plain/plain.h"

namespace ulpscope::testing_support {
namespace {

double read(const TensorView& view, int64_t index) { return read_element(view, index); }

void write(const TensorView& view, int64_t index, double value) {
  const int64_t at = offset_of(view, index);
  switch (view.dtype) {
    case DType::f64:
      view.as<double>()[at] = value;
      break;
    case DType::f32:
      view.as<float>()[at] = static_cast<float>(value);
      break;
    case DType::f16:
      view.as<uint16_t>()[at] = round_to_f16(value);
      break;
    case DType::bf16:
      view.as<uint16_t>()[at] = round_to_bf16(value);
      break;
    case DType::f8_e4m3:
    case DType::f8_e5m2:
      view.as<uint8_t>()[at] =
          static_cast<uint8_t>(round_to_encoding(*info(view.dtype).format, value, {.overflow = Overflow::saturate}));
      break;
    case DType::i64:
      view.as<int64_t>()[at] = static_cast<int64_t>(value);
      break;
    case DType::i32:
      view.as<int32_t>()[at] = static_cast<int32_t>(value);
      break;
    case DType::u8:
    case DType::boolean:
      view.as<uint8_t>()[at] = static_cast<uint8_t>(value);
      break;
  }
}

// Strides for dimensions listed from the slowest to the fastest.
void lay_out(TensorView& view, const std::vector<int>& order, int64_t stride) {
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    view.strides[*i] = stride;
    stride *= view.shape[*i];
  }
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("{}", fmt::join(shape, "x")); }

}  // namespace

std::string Case::name() const {
  std::string text = op;
  for (const TensorSpec& input : inputs) text += fmt::format(" {}/{}", shape_text(input.shape), static_cast<int>(input.lay));
  return text;
}

HostTensor::HostTensor(const std::vector<int64_t>& shape, DType dtype, Lay lay) {
  view_.dtype = dtype;
  view_.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), view_.shape.begin());
  std::vector<int> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  if (lay == Lay::channels_last && shape.size() == 4) order = {0, 2, 3, 1};
  if (lay == Lay::transposed) std::reverse(order.begin(), order.end());
  lay_out(view_, order, lay == Lay::strided ? 2 : 1);
  if (lay == Lay::broadcast && !shape.empty()) view_.strides[0] = 0;
  bytes_.resize(static_cast<size_t>(std::max<int64_t>(1, view_.size())) * 2 * info(dtype).size);
  view_.data = bytes_.data();
}

double HostTensor::get(int64_t index) const { return read(view_, index); }
void HostTensor::set(int64_t index, double value) { write(view_, index, value); }

HostTensor HostTensor::copy() const {
  HostTensor other = *this;
  other.view_.data = other.bytes_.data();
  return other;
}

HostTensor HostTensor::as(DType dtype) const {
  HostTensor other;
  other.view_ = view_;
  other.view_.dtype = dtype;
  other.bytes_.resize(bytes_.size() / info(view_.dtype).size * info(dtype).size);
  other.view_.data = other.bytes_.data();
  for (int64_t i = 0; i < view_.size(); ++i) other.set(i, get(i));
  return other;
}

ArbitraryBits::ArbitraryBits(DType dtype, int64_t n, int64_t shift) : bytes(static_cast<size_t>(n + shift) * info(dtype).size) {
  uint64_t state = 1;
  for (char& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<char>(state >> 56);
  }
  view.data = bytes.data() + shift * static_cast<int64_t>(info(dtype).size);
  view.dtype = dtype;
  view.rank = 1;
  view.shape[0] = n;
  view.strides[0] = 1;
}

uint64_t sum_of_bits(const TensorView& view) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < view.size(); ++i) {
    bool is_repeat = false;
    for (int64_t dimension = view.rank - 1, rest = i; dimension >= 0; --dimension) {
      is_repeat = is_repeat || (view.strides[dimension] == 0 && rest % view.shape[dimension] > 0);
      rest /= view.shape[dimension];
    }
    if (is_repeat) continue;
    const size_t bytes = info(view.dtype).size;
    uint64_t bits = 0;
    std::memcpy(&bits, view.as<const char>() + offset_of(view, i) * static_cast<int64_t>(bytes), bytes);
    sum += bits;
  }
  return sum;
}

Instance::Instance(const Case& what, DType dtype, uint64_t seed) : case_(what), dtype_(dtype) {
  uint64_t stream = 0;
  for (const TensorSpec& spec : what.inputs) {
    HostTensor tensor(spec.shape, spec.dtype.value_or(dtype), spec.lay);
    const Philox random(seed, ++stream);
    for (int64_t i = 0; i < tensor.view().size(); ++i) {
      const auto at = static_cast<uint64_t>(i);
      double value = spec.low + (spec.high - spec.low) * random.uniform(at);
      if (spec.integers > 0) value = random.below(at, static_cast<uint32_t>(spec.integers));
      tensor.set(i, spec.values.empty() ? value : spec.values[at]);
    }
    inputs_.push_back(tensor.copy());
  }
}

CaseCall::CaseCall(const Case& what, const std::vector<HostTensor>& inputs, DType dtype, StatisticsLevel level) : case_(what) {
  for (const HostTensor& input : inputs) inputs_.push_back(input.copy());
  for (HostTensor& input : inputs_) input_views_.push_back(input.view());
  for (const OutputSpec& spec : what.outputs) {
    const DType wanted = spec.dtype.value_or(dtype);
    result_.outputs.emplace_back(spec.shape, wanted == DType::f32 && dtype == DType::f64 ? DType::f64 : wanted, spec.lay);
  }
  for (size_t i = 0; i < what.outputs.size(); ++i) {
    const OutputSpec& spec = what.outputs[i];
    output_views_.push_back(spec.in_place_of >= 0 ? input_views_[static_cast<size_t>(spec.in_place_of)]
                                                  : result_.outputs[i].view());
    if (spec.record_only) output_views_.back().data = nullptr;
  }
  for (const auto& item : what.attributes) attributes_.set(item.name, item.value);
  result_.records.resize(what.outputs.size());
  for (OutputRecord& record : result_.records) {
    record.wanted = level;
    record.scale = 1024;
    record.fingerprint.wanted = record.bits.wanted = true;
    records_.push_back(&record);
  }
  result_.input_fingerprints.resize(what.inputs.size());
  for (Fingerprint& fingerprint : result_.input_fingerprints) {
    fingerprint.wanted = true;
    input_fingerprints_.push_back(&fingerprint);
  }
  call_ = {what.op, input_views_, output_views_, &attributes_, {}};
  if (level == StatisticsLevel::none) return;
  call_.records = records_;
  call_.input_fingerprints = input_fingerprints_;
}

Result CaseCall::result() const {
  Result result;
  result.records = result_.records;
  result.input_fingerprints = result_.input_fingerprints;
  for (size_t i = 0; i < case_.outputs.size(); ++i) {
    const int input = case_.outputs[i].in_place_of;
    result.outputs.push_back((input >= 0 ? inputs_[static_cast<size_t>(input)] : result_.outputs[i]).copy());
  }
  return result;
}

Result Instance::run(Backend& backend, StatisticsLevel level) const {
  const CaseCall prepared = prepare(level);
  ulpscope::run(backend, prepared.call());
  return prepared.result();
}

Result Instance::run_plain(StatisticsLevel level) const {
  const CaseCall prepared = prepare(level);
  ulpscope::run_plain(prepared.call());
  return prepared.result();
}

Result Instance::in_double(double (*change)(double)) const {
  std::vector<HostTensor> inputs;
  for (const HostTensor& input : inputs_) {
    inputs.push_back(is_float(input.view().dtype) ? input.as(DType::f64) : input.copy());
    if (!is_float(input.view().dtype)) continue;
    for (int64_t i = 0; i < input.view().size(); ++i) inputs.back().set(i, change(input.get(i)));
  }
  const CaseCall prepared(case_, inputs, DType::f64, StatisticsLevel::none);
  ulpscope::run_plain(prepared.call());
  return prepared.result();
}

Result Instance::run_exact() const {
  return in_double([](double x) { return x; });
}
Result Instance::run_magnitudes() const {
  return in_double([](double x) { return std::fabs(x); });
}

Result run(const CaseCall& prepared, Backend& backend, const Arithmetic& how, uint64_t stream) {
  OpCall call = prepared.call();
  call.arithmetic = &how;
  call.seed = kCallSeed;
  call.stream = stream;
  ulpscope::run(backend, call);
  return prepared.result();
}

void expect_same(const HostTensor& actual, const HostTensor& expected, const std::string& what) {
  int failures = 0;
  for (int64_t i = 0; i < expected.view().size() && failures < 3; ++i) {
    const double a = actual.get(i), e = expected.get(i);
    if (std::isnan(e) && std::isnan(a)) continue;
    if (std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(e)) continue;
    ADD_FAILURE() << fmt::format("{}: element {} is {:a} ({}), expected {:a} ({})", what, i, a, a, e, e);
    ++failures;
  }
}

void expect_same_record(const OutputRecord& actual, const OutputRecord& expected, const std::string& what) {
  EXPECT_EQ(actual.known, expected.known) << what;
  EXPECT_EQ(actual.before_rounding, expected.before_rounding) << what;
  EXPECT_EQ(actual.rounding_known, expected.rounding_known) << what;
  EXPECT_EQ(actual.statistics, expected.statistics) << what << ": statistics";
  EXPECT_EQ(actual.rounding, expected.rounding) << what << ": rounding counts";
  EXPECT_EQ(actual.update_known, expected.update_known) << what;
  EXPECT_EQ(actual.update.nonzero, expected.update.nonzero) << what;
  EXPECT_EQ(actual.update.lost, expected.update.lost) << what;
  EXPECT_EQ(actual.update.lost_to_decay, expected.update.lost_to_decay) << what;
  EXPECT_EQ(actual.update.decay_known, expected.update.decay_known) << what;
  const auto expect_same_bits = [&](double a, double e, const char* sum) {
    EXPECT_TRUE(std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(e) || (std::isnan(a) && std::isnan(e)))
        << fmt::format("{}: {} is {:a}, expected {:a}", what, sum, a, e);
  };
  expect_same_bits(actual.quantization_scale, expected.quantization_scale, "the quantization scale");
  expect_same_bits(actual.update.learning_rate, expected.update.learning_rate, "the learning rate");
  expect_same_bits(actual.update.weight_squares, expected.update.weight_squares, "|w|^2");
  expect_same_bits(actual.update.update_squares, expected.update.update_squares, "|d|^2");
  expect_same_bits(actual.update.gradient_dot_update, expected.update.gradient_dot_update, "g d");
  expect_same_bits(actual.update.decay_asked, expected.update.decay_asked, "the decay asked for");
  expect_same_bits(actual.update.decay_applied, expected.update.decay_applied, "the decay applied");
}

bool within(double error, double bound) { return error <= bound; }

void expect_within_bound(const HostTensor& actual, const HostTensor& exact, const HostTensor& magnitude, int64_t terms,
                         const std::string& what) {
  const double u = 0x1p-24, k = static_cast<double>(terms), gamma = k * u / (1 - k * u);
  const FloatFormat& format = *info(actual.view().dtype).format;
  for (int64_t i = 0; i < exact.view().size(); ++i) {
    const double e = exact.get(i), wide = gamma * magnitude.get(i);
    // Half an ulp where the rounded value can lie: at the exact value plus the error of the sum.
    const double reach = std::fabs(e) + wide;
    const int exponent = std::max(reach > 0 ? std::ilogb(reach) : -2000, format.smallest_normal_exponent());
    const double half_ulp = std::ldexp(0.5, exponent - format.fraction_bits);
    const double error = std::fabs(actual.get(i) - e);
    if (!within(error, wide + half_ulp)) {
      ADD_FAILURE() << fmt::format("{}: element {} is {}, exactly {}: error {} above {}", what, i, actual.get(i), e, error,
                                   wide + half_ulp);
      return;
    }
  }
}

void expect_same_pattern(const HostTensor& actual, const HostTensor& expected, const std::string& what) {
  const auto kind = [](double x) { return std::isnan(x) ? 1 : std::isinf(x) ? (x > 0 ? 2 : 3) : 0; };
  for (int64_t i = 0; i < expected.view().size(); ++i) {
    if (kind(actual.get(i)) == kind(expected.get(i))) continue;
    ADD_FAILURE() << fmt::format("{}: element {} is {}, expected {}", what, i, actual.get(i), expected.get(i));
    return;
  }
}

Arithmetic nth_rounding(size_t n) {
  return {.rounding = static_cast<RoundingMode>(n % kRoundingModes), .subnormals = static_cast<Subnormals>(n / kRoundingModes % 4)};
}

void expect_twin(const Case& what, DType dtype, Backend& backend, const std::string& where) {
  const Instance instance(what, dtype);
  const std::string name = fmt::format("{} {} {}", what.name(), info(dtype).name, where);
  const Result actual = instance.run(backend, StatisticsLevel::values);
  const Result expected = instance.run_plain(StatisticsLevel::values);
  const Result unrecorded = instance.run(backend);
  const Result exact = what.terms > 0 ? instance.run_exact() : Result{};
  const Result magnitude = what.terms > 0 ? instance.run_magnitudes() : Result{};
  for (const Result& result : {actual, expected}) {
    for (size_t input = 0; input < what.inputs.size(); ++input) {
      EXPECT_TRUE(result.input_fingerprints[input].known) << name << " input " << input;
      EXPECT_EQ(result.input_fingerprints[input].value, sum_of_bits(Instance(what, dtype).inputs()[input].view()))
          << name << " input " << input;
    }
    for (size_t slot = 0; slot < what.outputs.size(); ++slot) {
      const Fingerprint& fingerprint = result.records[slot].fingerprint;
      EXPECT_EQ(fingerprint.known, !what.outputs[slot].record_only) << name << " output " << slot;
      EXPECT_EQ(fingerprint.value, fingerprint.known ? sum_of_bits(result.outputs[slot].view()) : 0) << name << " output " << slot;
      const BitHash& bits = result.records[slot].bits;
      EXPECT_EQ(bits.known, fingerprint.known) << name << " output " << slot;
      EXPECT_EQ(bits.value, bits.known ? reference_bit_hash(result.outputs[slot].view()) : 0) << name << " output " << slot;
    }
  }
  for (size_t slot = 0; slot < what.outputs.size(); ++slot) {
    const std::string output = fmt::format("{} output {}", name, slot);
    if (!what.outputs[slot].record_only) expect_same(unrecorded.outputs[slot], actual.outputs[slot], output + " without recording");
    if (what.terms > 0) {
      expect_within_bound(actual.outputs[slot], exact.outputs[slot], magnitude.outputs[slot], what.terms, output);
      EXPECT_EQ(actual.records[slot].statistics.count, expected.records[slot].statistics.count) << output;
      EXPECT_EQ(actual.records[slot].rounding_known, dtype != DType::f32) << output;
      continue;
    }
    if (!what.outputs[slot].record_only) expect_same(actual.outputs[slot], expected.outputs[slot], output);
    expect_same_record(actual.records[slot], expected.records[slot], output);
  }
}

void expect_specials_of_twin(const std::vector<Case>& cases, DType dtype, Backend& backend, const std::string& where, int64_t first,
                             int64_t step) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Case& what : cases) {
    Instance instance(what, dtype);
    for (size_t input = 0; input < what.inputs.size(); ++input) {
      HostTensor& tensor = instance.inputs()[input];
      if (!is_float(tensor.view().dtype)) continue;
      for (int64_t i = 0; i < tensor.view().size(); i += i < first ? 1 : step) {
        const double before = tensor.get(i);
        for (const double special : {std::numeric_limits<double>::quiet_NaN(), infinity, -infinity}) {
          tensor.set(i, special);
          const Result actual = instance.run(backend), expected = instance.run_plain();
          for (size_t slot = 0; slot < what.outputs.size(); ++slot) {
            if (what.outputs[slot].record_only) continue;
            expect_same_pattern(actual.outputs[slot], expected.outputs[slot],
                                fmt::format("{} {} {} with {} at element {} of input {}, output {}", what.name(), info(dtype).name,
                                            where, special, i, input, slot));
          }
          if (testing::Test::HasFailure()) return;
        }
        tensor.set(i, before);
      }
    }
  }
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const char* name : {"avx512", "avx2", "sse4"}) {
    try {
      make_cpu_backend({.threads = 1, .isa = name});
      names.emplace_back(name);
    } catch (const Error&) {
    }
  }
  return names;
}

}  // namespace ulpscope::testing_support
