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
#include "ulpscope/kernels/bounds.h"
#include "ulpscope/kernels/formulas.h"

namespace ulpscope::testing_support {
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

void expect_within_bound(const HostTensor& actual, const OpCall& call, int slot, int64_t terms, const std::string& what) {
  constexpr int64_t kMostTerms = 40000;
  const int64_t size = actual.view().size(), step = std::max<int64_t>(1, size * std::max<int64_t>(1, terms) / kMostTerms);
  std::vector<int64_t> elements;
  for (int64_t e = 0; e < size; e += step) elements.push_back(e);
  const std::vector<ElementBound> bounds = bounds_of(call, slot, elements);
  for (size_t i = 0; i < elements.size(); ++i) {
    const double got = actual.get(elements[i]), error = bounds[i].error_of(got);
    EXPECT_TRUE(bounds[i].is_known()) << what << ": nothing is known of element " << elements[i];
    if (!within(error, bounds[i].bound)) {
      ADD_FAILURE() << fmt::format("{}: element {} is {}, exactly {}: error {} above {}", what, elements[i], got, bounds[i].exact,
                                   error, bounds[i].bound);
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
  const CaseCall before = instance.prepare();
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
      expect_within_bound(actual.outputs[slot], before.call(), static_cast<int>(slot), what.terms, output);
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
