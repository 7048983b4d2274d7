// The kernels of devices against the plain twins: equal bits, equal counts, and sums in the same order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "tests/kernels/cpu_support.h"
#include "tests/kernels/device/device_under_test.h"
#include "tests/kernels/statistics_support.h"
#include "ulpscope/base/error.h"
#include "ulpscope/emulation/narrow_format.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/cases/op_cases.h"
#include "ulpscope/kernels/formulas.h"
#include "ulpscope/kernels/statistics_reference.h"

namespace ulpscope {
namespace {

using namespace testing_support;

class DeviceBackend : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_device_under_test(); !why.empty()) GTEST_SKIP() << "skipped: " << why;
  }
};
class DeviceStatistics : public DeviceBackend {};

// Cases of ops that the device has, but products (device_products_test.cpp).
std::vector<Case> of_device(std::vector<Case> cases) {
  const auto backend = make_device_under_test();
  const std::vector<std::string_view> ops = backend->ops();
  std::erase_if(cases,
                [&](const Case& what) { return is_product(what.op) || std::find(ops.begin(), ops.end(), what.op) == ops.end(); });
  return cases;
}

bool is_overwritten(const Case& what, size_t input) {
  return std::any_of(what.outputs.begin(), what.outputs.end(),
                     [&](const OutputSpec& output) { return output.in_place_of == static_cast<int>(input); });
}
bool is_stepwise(const Case& what) {
  return std::any_of(what.attributes.begin(), what.attributes.end(),
                     [](const Attributes::Item& item) { return item.name == "stepwise" && item.value != 0; });
}

template <class... F>
void expect_formulas(lanes::FormulaList<F...>, const std::vector<std::string_view>& ops) {
  for (const char* op : {F::kName...}) EXPECT_TRUE(std::find(ops.begin(), ops.end(), op) != ops.end()) << op;
}

TEST_F(DeviceBackend, HasEveryFormula) { expect_formulas(lanes::Formulas(), make_device_under_test()->ops()); }

TEST_F(DeviceBackend, ElementwiseOpsGiveTheBitsOfTheirTwins) {
  const auto backend = make_device_under_test(3);
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {0}, {3, 0}, {1}, {7}, {33}, {1025}}) {
    for (const Case& what : of_device(elementwise_cases(shape))) {
      for (const DType dtype : kFloats) expect_twin(what, dtype, *backend, "");
    }
  }
  // More than a tile.
  for (const Case& what : of_device(elementwise_cases({5, 13, 129}))) expect_twin(what, DType::bf16, *backend, "");
}

TEST_F(DeviceBackend, ElementwiseOpsReadAnyLayout) {
  const auto backend = make_device_under_test(4);
  for (const Lay out : {Lay::contiguous, Lay::channels_last, Lay::transposed}) {
    for (const Lay lay : {Lay::contiguous, Lay::channels_last, Lay::strided, Lay::transposed, Lay::broadcast}) {
      for (Case what : of_device(elementwise_cases({3, 4, 5, 7}))) {
        if (what.outputs[0].in_place_of >= 0) continue;
        what.outputs[0].lay = out;
        for (size_t i = 0; i < what.inputs.size(); ++i) what.inputs[i].lay = i % 2 == 0 ? lay : out;
        expect_twin(what, DType::f16, *backend, "");
      }
    }
  }
}

TEST_F(DeviceBackend, OtherOpsGiveTheBitsOfTheirTwins) {
  const auto backend = make_device_under_test(12);
  std::vector<Case> cases = small_cases(of_device(other_cases()), 10000);
  EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), [](const Case& what) { return what.op == "dropout"; }));
  cases.push_back({"dropout", {{{130, 70}}}, {{{130, 70}}}, {{"p", 1}, {"seed", 7}, {"stream", 11}}});
  for (const Case& what : cases) {
    for (const DType dtype : {DType::f32, DType::f16}) expect_twin(what, dtype, *backend, "");
  }
}

// Blocks that take several rows or outputs, and sums of several branches of the tree.
TEST_F(DeviceBackend, ManyRowsAndLongSums) {
  const auto backend = make_device_under_test(16);
  const std::vector<int64_t> many{2500, 3}, line{2500};
  const TensorSpec row{many};
  const std::vector<Attributes::Item> attributes{{"dims", 2}, {"keep", 0}, {"correction", 1}};
  const auto reduced = [&](const char* op, size_t slots) {
    return Case{op, {row}, std::vector<OutputSpec>(slots, OutputSpec{line}), attributes};
  };
  for (const Case& what : {Case{"softmax", {row}, {{many}}}, Case{"logsumexp", {row}, {{line}}}, reduced("sum", 1),
                           reduced("norm", 1), reduced("var", 2), reduced("max", 2)}) {
    for (const DType dtype : {DType::f32, DType::f16}) expect_twin(what, dtype, *backend, "");
  }
  const std::vector<int64_t> long_row{2 * 262144 + 777};
  for (const char* op : {"sum", "norm"})
    expect_twin({op, {{long_row}}, {{{}}}, {{"dims", 1}, {"keep", 0}}}, DType::f32, *backend, "");
}

TEST_F(DeviceBackend, TheLargestIsTheFirstOfEqualZeros) {
  const auto backend = make_device_under_test(17);
  for (int64_t place = 0; place < 300; place += 7) {
    Instance instance({"max", {{{300}, Lay::contiguous, {}, 0, -2, -1}}, {{{}}, {{}}}, {{"dims", 1}, {"keep", 0}}}, DType::f32);
    for (int64_t i = 0; i < 300; i += 50) instance.inputs()[0].set(i, 0.0);
    instance.inputs()[0].set(place, -0.0);
    const Result actual = instance.run(*backend), expected = instance.run_plain();
    for (size_t slot = 0; slot < 2; ++slot)
      expect_same(actual.outputs[slot], expected.outputs[slot], fmt::format("-0 at {}", place));
  }
}

TEST_F(DeviceBackend, OtherOpsReadAndWriteAnyLayout) {
  const auto backend = make_device_under_test(15);
  for (const Lay lay : {Lay::strided, Lay::transposed, Lay::broadcast}) {
    for (Case what : small_cases(of_device(other_cases()), 450)) {
      for (size_t i = 0; i < what.inputs.size(); ++i)
        if (!is_overwritten(what, i)) what.inputs[i].lay = lay;
      for (OutputSpec& output : what.outputs) output.lay = lay == Lay::transposed ? lay : output.lay;
      expect_twin(what, DType::f32, *backend, "");
    }
  }
}

TEST_F(DeviceBackend, CopiesCastsAndFillsIntegers) {
  const auto backend = make_device_under_test(13);
  const std::vector<int64_t> shape{7, 30, 41};  // a block of the grid and more
  for (const DType from : {DType::f32, DType::f16, DType::i64, DType::i32, DType::boolean}) {
    for (const DType to : {DType::i64, DType::i32, DType::u8, DType::boolean}) {
      for (const Lay lay : {Lay::contiguous, Lay::strided, Lay::transposed, Lay::broadcast}) {
        const int64_t largest = from == DType::boolean || to == DType::boolean ? 2 : 100;
        const TensorSpec input{shape, lay, from, is_float(from) ? 0 : largest, 0, static_cast<double>(largest)};
        const Lay out = lay == Lay::contiguous ? Lay::transposed : Lay::contiguous;
        for (const char* op : {"copy", "cast"}) expect_twin({op, {input}, {{shape, out, to}}}, DType::f32, *backend, "integers");
      }
      for (const double value : {0, 1})
        expect_twin({"fill", {}, {{shape, Lay::contiguous, to}}, {{"value", value}}}, DType::f32, *backend, "integers");
    }
  }
}

TEST_F(DeviceBackend, NanAndInfComeThroughElementwiseOpsFromEveryElement) {
  const auto backend = make_device_under_test(5);
  for (const DType dtype : kFloats) expect_specials_of_twin(of_device(elementwise_cases({5})), dtype, *backend, "", 5, 1);
}

TEST_F(DeviceBackend, NanAndInfComeThroughOtherOps) {
  const auto backend = make_device_under_test(14);
  const std::vector<Case> cases = small_cases(of_device(other_cases()), 150);
  EXPECT_GT(cases.size(), 15u);
  expect_specials_of_twin(cases, DType::f32, *backend, "", 2, 41);
  // Both in one row, in any place.
  for (int64_t nan = 0; nan < 70; nan += 3) {
    Instance instance({"logsumexp", {{{1, 70}}}, {{{1}}}}, DType::f32);
    instance.inputs()[0].set(35, HUGE_VAL);
    EXPECT_EQ(instance.run(*backend).outputs[0].get(0), HUGE_VAL);
    instance.inputs()[0].set(nan, std::nan(""));
    EXPECT_TRUE(std::isnan(instance.run(*backend).outputs[0].get(0))) << nan;
  }
}

// Every mode and treatment of subnormals, of values around each format's smallest and largest numbers.
TEST_F(DeviceBackend, RoundsAndFlushesAsTheCpu) {
  const auto backend = make_device_under_test(11), cpu = make_cpu_backend({.threads = 1});
  size_t turn = 0;
  uint64_t saturated = 0, flushed = 0;
  std::vector<Case> cases = of_device(elementwise_cases({3, 5, 11}));
  for (const Case& what : small_cases(of_device(other_cases()), 150)) cases.push_back(what);
  std::erase_if(cases, is_stepwise);
  for (Case what : cases) {
    for (const double magnitude : {0x1p-140, 0x1p-125, 0x1p-13, 1.0, 0x1p16}) {
      for (size_t i = 0; i < what.inputs.size(); ++i) {
        what.inputs[i].low = i == 0 ? -magnitude : -1;
        what.inputs[i].high = i == 0 ? magnitude : 1;
      }
      for (const DType dtype : kFloats) {
        const Arithmetic how = nth_rounding(turn++);
        const Instance instance(what, dtype);
        const Result actual = run(instance.prepare(StatisticsLevel::values), *backend, how);
        const Result expected = run(instance.prepare(StatisticsLevel::values), *cpu, how);
        const std::string name =
            fmt::format("{} {} {} {} {}", what.name(), info(dtype).name, magnitude, name_of(how.rounding), name_of(how.subnormals));
        const Result unrecorded = run(instance.prepare(), *backend, how);
        for (size_t slot = 0; slot < what.outputs.size(); ++slot) {
          if (!what.outputs[slot].record_only) {
            expect_same(actual.outputs[slot], expected.outputs[slot], name);
            expect_same(unrecorded.outputs[slot], expected.outputs[slot], name + " without recording");
          }
          expect_same_record(actual.records[slot], expected.records[slot], name);
          EXPECT_EQ(actual.records[slot].input, expected.records[slot].input) << name;
        }
        saturated += actual.records[0].rounding.saturated;
        flushed += actual.records[0].input.flushed;
      }
    }
  }
  EXPECT_GT(saturated, 100u);
  EXPECT_GT(flushed, 1000u);
}

// It reads nothing, so that nothing can be flushed of what was there.
TEST_F(DeviceBackend, FillReadsNothingAsZero) {
  const auto backend = make_device_under_test(18), cpu = make_cpu_backend();
  const Case what{"fill", {{{64}}}, {{{64}, Lay::contiguous, {}, 0}}, {{"value", 2}}};
  for (Backend* each : {backend.get(), cpu.get()}) {
    Instance instance(what, DType::f16);
    for (int64_t i = 0; i < 64; ++i) instance.inputs()[0].set(i, 0x1p-20);
    const Arithmetic how{&accumulations()[0], RoundingMode::nearest_even, Subnormals::flush};
    const CaseCall prepared = instance.prepare(StatisticsLevel::values);
    EXPECT_EQ(run(prepared, *each, how).records[0].input, InputFlushCounts{}) << each->name();
  }
}

TEST_F(DeviceBackend, SaysWhatItDoesNotCompute) {
  const auto backend = make_device_under_test();
  EXPECT_THROW(Instance({"add", {{{5}}, {{5}}}, {{{5}}}}, DType::f64).run(*backend), Error);
  EXPECT_THROW(Instance({"neg", {{{5}}}, {{{5}, Lay::contiguous, DType::i64}}}, DType::f32).run(*backend), Error);
}

TEST_F(DeviceBackend, RecordsComeWhenItIsComplete) {
  const auto backend = make_device_under_test();
  ASSERT_TRUE(backend->runs_behind());
  const Instance instance({"mul", {{{100}}, {{100}}}, {{{100}}}}, DType::f16);
  const CaseCall prepared = instance.prepare(StatisticsLevel::values);
  backend->submit(prepared.call());
  EXPECT_EQ(prepared.call().records[0]->known, StatisticsLevel::none);
  const size_t in_use = backend->allocated_bytes();
  EXPECT_GT(in_use, 3 * 200 + sizeof(uint64_t) * ExponentHistogram::kBins);
  EXPECT_EQ(backend->peak_bytes(), in_use);
  backend->complete();
  EXPECT_EQ(prepared.call().records[0]->known, StatisticsLevel::values);
  EXPECT_EQ(backend->allocated_bytes(), 0u);
  EXPECT_EQ(backend->peak_bytes(), in_use);
  backend->reset_peak();
  EXPECT_EQ(backend->peak_bytes(), 0u);
}

// Ops on one array of FP32 values, for the counts.
struct Counted {
  OutputRecord record;
  std::vector<uint16_t> stored;
};
Counted cast(Backend& backend, const std::vector<float>& values, DType dtype, StatisticsLevel level, double scale) {
  Counted counted{wanting(level, scale), std::vector<uint16_t>(values.size())};
  const auto n = static_cast<int64_t>(values.size());
  const TensorView input = vector_view(values.data(), DType::f32, n), output = vector_view(counted.stored.data(), dtype, n);
  OutputRecord* const record = &counted.record;
  const Attributes attributes;
  run(backend, {"cast", {&input, 1}, {&output, 1}, &attributes, {&record, 1}});
  return counted;
}
OutputRecord counted_as_stored(Backend& backend, const void* data, DType dtype, int64_t n) {
  OutputRecord record = wanting(StatisticsLevel::values);
  const TensorView view = vector_view(data, dtype, n);
  OutputRecord* const wanted = &record;
  const Attributes attributes;
  run(backend, {"source", {&view, 1}, {&view, 1}, &attributes, {&wanted, 1}});
  return record;
}

void expect_counts(Backend& backend, const std::vector<float>& values) {
  const auto n = static_cast<int64_t>(values.size());
  const TensorStatistics expected = reference_statistics(values.data(), n);
  expect_same(counted_as_stored(backend, values.data(), DType::f32, n).statistics, expected);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const FloatFormat& format = *info(dtype).format;
    std::vector<uint16_t> encodings(values.size());
    narrow_format(format).round_all(values.data(), encodings.data(), values.size());
    for (const double scale : {1.0, 1024.0, 65536.0 * 65536}) {
      const Counted counted = cast(backend, values, dtype, StatisticsLevel::values, scale);
      expect_same(counted.record.statistics, expected);
      expect_same(counted.record.rounding, reference_rounding(format, values.data(), n, scale));
      for (size_t i = 0; i < values.size(); ++i) {
        const float is = narrow_format(format).widen(counted.stored[i]), expects = narrow_format(format).widen(encodings[i]);
        ASSERT_TRUE(std::bit_cast<uint32_t>(is) == std::bit_cast<uint32_t>(expects) || (std::isnan(is) && std::isnan(expects)))
            << values[i] << " became " << is << ", not " << expects;
      }
    }
    const OutputRecord health = cast(backend, values, dtype, StatisticsLevel::health, 1024).record;
    EXPECT_EQ(health.statistics.health(), expected.health());
    EXPECT_EQ(health.statistics.histogram.total(), 0u);
    expect_same(health.rounding, reference_rounding(format, values.data(), n, 1024));
  }
}

TEST_F(DeviceStatistics, CountsAreThoseOfTheReferenceForAnyDataAndSize) {
  const auto backend = make_device_under_test(6);
  for (const Data kind : kAllData) {
    for (const int64_t n : {0, 1, 31, 32, 33, 1023, 8191, 8193, 2 * 8192 + 17}) {
      expect_counts(*backend, make(kind, n));
      if (testing::Test::HasFailure()) FAIL() << "data " << static_cast<int>(kind) << ", " << n << " elements";
    }
  }
}

TEST_F(DeviceStatistics, CountsOfAMillionValuesInOneBinade) {
  const auto backend = make_device_under_test(7);
  std::vector<float> values((1 << 20) + 7);
  const Philox random(1, 1);
  for (size_t i = 0; i < values.size(); ++i) values[i] = from_bits(0x3F800000 | random.bits(i) >> 9);
  const auto n = static_cast<int64_t>(values.size());
  const OutputRecord record = counted_as_stored(*backend, values.data(), DType::f32, n);
  expect_same(record.statistics, reference_statistics(values.data(), n));
  EXPECT_EQ(record.statistics.histogram.bins[ExponentHistogram::kBias], values.size());
  // The sum passes 512 additions in its lane, 4 in the lanes' tree and 8 in that of the 129 blocks (docs/numerics.md).
  long double exact = 0;
  for (const float value : values) exact += value;
  const double gamma = 524 * 0x1p-53 / (1 - 524 * 0x1p-53);
  EXPECT_LE(std::abs(record.statistics.sum - static_cast<double>(exact)), gamma * static_cast<double>(exact));
}

TEST_F(DeviceStatistics, CountsOfEveryEncodingOf16Bits) {
  const auto backend = make_device_under_test(8);
  std::vector<uint16_t> encodings(1 << 16);
  for (size_t i = 0; i < encodings.size(); ++i) encodings[i] = static_cast<uint16_t>(i);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    std::vector<float> values(encodings.size());
    narrow_format(*info(dtype).format).widen_all(encodings.data(), values.data(), values.size());
    const OutputRecord record = counted_as_stored(*backend, encodings.data(), dtype, 1 << 16);
    expect_same(record.statistics, reference_statistics(values.data(), 1 << 16));
    EXPECT_TRUE(record.rounding_known);
    expect_same(record.rounding, reference_rounding(*info(dtype).format, values.data(), 1 << 16, 1));
    expect_counts(*backend, values);
  }
}

TEST_F(DeviceStatistics, FindTheFirstElementThatIsNotFinite) {
  const auto backend = make_device_under_test(9);
  const auto found = [&](int64_t element, double value) {
    Instance instance({"copy", {{{3, 70, 90}}}, {{{3, 70, 90}, Lay::transposed}}}, DType::f16);
    if (element >= 0) {
      instance.inputs()[0].set(element, value);
      instance.inputs()[0].set(3 * 70 * 90 - 1, value);
    }
    const CaseCall prepared = instance.prepare();
    run(*backend, prepared.call());
    return backend->capture_nonfinite(prepared.call(), 0).element;
  };
  EXPECT_EQ(found(-1, 0), -1);
  for (const int64_t element : {0, 1, 31, 8191, 8192, 12345}) {
    EXPECT_EQ(found(element, HUGE_VAL), element);
    EXPECT_EQ(found(element, -HUGE_VAL), element);
    EXPECT_EQ(found(element, std::nan("")), element);
  }
}

TEST_F(DeviceStatistics, SamplesAreThoseOfTheHost) {
  const auto backend = make_device_under_test(10);
  for (const int64_t n : {0, 1, 5, 16, 1000}) {
    const std::vector<float> values = make(Data::normal, n);
    const TensorView view = vector_view(values.data(), DType::f32, n);
    OutputRecord expected, record;
    expected.samples_wanted = record.samples_wanted = 10;
    collect_samples(view, expected);
    OutputRecord* const wanted = &record;
    const Attributes attributes;
    run(*backend, {"source", {&view, 1}, {&view, 1}, &attributes, {&wanted, 1}});
    EXPECT_EQ(record.samples, expected.samples);
    EXPECT_EQ(record.sample_elements, expected.sample_elements);
    EXPECT_EQ(record.sample_values, expected.sample_values);
  }
}

}  // namespace
}  // namespace ulpscope
