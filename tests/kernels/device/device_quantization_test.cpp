// FP8 on devices: scales that the device forms, encodings and what their rounding lost, and the amaxes of the steps before.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/cpu_support.h"
#include "tests/kernels/device/device_under_test.h"
#include "tests/kernels/statistics_support.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/bit_hash.h"
#include "ulpscope/kernels/cases/op_cases.h"
#include "ulpscope/kernels/device/output.h"
#include "ulpscope/kernels/quantization.h"
#include "ulpscope/kernels/statistics_reference.h"

namespace ulpscope {
namespace {

using namespace testing_support;

class DeviceQuantization : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_device_under_test(); !why.empty()) GTEST_SKIP() << "skipped: " << why;
  }
};

constexpr DType kQuantized[] = {DType::f8_e4m3, DType::f8_e5m2};
constexpr double kInfinite = std::numeric_limits<double>::infinity();
const TensorSpec kNumber{{}, Lay::contiguous, DType::f32, 0, 1, 1};

// With a scale, or one that follows from the largest magnitude.
Case quantization(const std::vector<int64_t>& shape, DType type, std::optional<double> scale, double margin = 0,
                  double power_of_two = 0, Lay in = Lay::contiguous, Lay out = Lay::contiguous) {
  const OutputSpec number{{}, Lay::contiguous, DType::f32};
  Case what{"quantize", {{shape, in}}, {{shape, out, type}, number, number, number}, {}};
  if (!scale) {
    what.attributes = {{"margin", margin}, {"power_of_two", power_of_two}};
  } else {
    what.inputs.push_back({{}, Lay::contiguous, DType::f32, 0, *scale, *scale});
  }
  return what;
}
Case history_update(int64_t size, DType type, double most_recent, double margin = 0, double power_of_two = 0) {
  return {"amax_history_update",
          {{{size}, Lay::contiguous, DType::f32, 0, 0, 3}, kNumber, {{}, Lay::contiguous, DType::f32, 0, 0, 2}},
          {{{size}, Lay::contiguous, DType::f32, 0}, {{}, Lay::contiguous, DType::f32, 1}},
          {{"dtype", static_cast<double>(type)}, {"most_recent", most_recent}, {"margin", margin}, {"power_of_two", power_of_two}}};
}

void expect_same_results(const Instance& instance, Backend& backend, const std::string& name) {
  const auto cpu = make_cpu_backend({.threads = 1});
  const Result actual = instance.run(backend, StatisticsLevel::values);
  for (const Result& expected : {instance.run(*cpu, StatisticsLevel::values), instance.run_plain(StatisticsLevel::values)}) {
    for (size_t slot = 0; slot < expected.outputs.size(); ++slot) {
      const std::string output = fmt::format("{} output {}", name, slot);
      expect_same(actual.outputs[slot], expected.outputs[slot], output);
      expect_same_record(actual.records[slot], expected.records[slot], output);
      EXPECT_EQ(actual.records[slot].fingerprint.value, sum_of_bits(actual.outputs[slot].view())) << output;
      EXPECT_EQ(actual.records[slot].bits.value, reference_bit_hash(actual.outputs[slot].view())) << output;
    }
  }
}

TEST(QuantizationScale, IsThePowerOfTwoBelow) {
  for (float value = 0x1p-149f; std::isfinite(value); value *= 1.37f + (value < 0x1p-140f ? 1 : 0)) {
    for (const float near : {value, std::nextafter(value, HUGE_VALF), std::ldexp(1.0f, std::ilogb(value))})
      EXPECT_EQ(power_of_two_below(near), std::ldexp(1.0f, std::ilogb(near))) << near;
  }
  EXPECT_EQ(power_of_two_below(std::numeric_limits<float>::max()), 0x1p127f);
}

TEST_F(DeviceQuantization, GivesTheBitsOfItsTwins) {
  const auto backend = make_device_under_test(71);
  std::vector<Case> cases = other_cases();
  std::erase_if(cases, [](const Case& what) { return what.op != "quantize" && what.op != "amax_history_update"; });
  EXPECT_GT(cases.size(), 40u);
  for (const Case& what : cases) {
    for (const DType dtype : kFloats) expect_twin(what, dtype, *backend, "");
  }
}

TEST_F(DeviceQuantization, AnyScaleAndLayout) {
  const auto backend = make_device_under_test(72);
  for (const DType type : kQuantized) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{3, 5, 7, 9}, {4, 7, 50, 30}, {0, 5, 7, 9}, {1, 1, 1, 1}}) {
      for (const Lay in : {Lay::contiguous, Lay::channels_last, Lay::strided, Lay::transposed, Lay::broadcast}) {
        for (const double margin : {0.0, 1.0, 6.0}) {
          for (const double power_of_two : {0.0, 1.0})
            expect_twin(quantization(shape, type, {}, margin, power_of_two, in, Lay::channels_last), DType::f16, *backend, "");
        }
        for (const double scale : {1e-3, 1.0, 300.0, 1e30})
          expect_twin(quantization(shape, type, scale, 0, 0, in, Lay::transposed), DType::bf16, *backend, "");
      }
    }
  }
}

// The largest of tiles, in any place of any of them.
TEST_F(DeviceQuantization, TheLargestMagnitudeOfAnyElement) {
  const auto backend = make_device_under_test(73);
  for (const int64_t place : {0, 31, 32, 255, 256, 8191, 8192, 20000, 24999}) {
    for (const double value : {3.0, -3.0}) {
      Instance instance(quantization({25000}, DType::f8_e4m3, {}), DType::f32);
      instance.inputs()[0].set(place, value);
      const Result actual = instance.run(*backend);
      EXPECT_EQ(actual.outputs[3].get(0), 3) << place;
      EXPECT_EQ(actual.outputs[1].get(0), static_cast<float>(448) / 3.0f) << place;
      EXPECT_EQ(actual.outputs[0].get(place), value < 0 ? -448 : 448) << place;
    }
  }
}

// What no scale follows from, and scales at the ends of FP32.
TEST_F(DeviceQuantization, ExtremeMagnitudes) {
  const auto backend = make_device_under_test(74);
  const double tiny = 0x1p-149, huge = std::numeric_limits<float>::max();
  for (const DType type : kQuantized) {
    for (const double power_of_two : {0.0, 1.0}) {
      for (const double margin : {0.0, 6.0, 30.0}) {
        for (const double value :
             {0.0, -0.0, tiny, 0x1p-126, 1e-30, 0.999, 1.0, 1e30, huge, -huge, kInfinite, -kInfinite, std::nan("")}) {
          Instance instance(quantization({700}, type, {}, margin, power_of_two), DType::f32);
          for (int64_t i = 0; i < 700; ++i) instance.inputs()[0].set(i, i % 3 == 0 ? 0 : value / static_cast<double>(1 + i % 40));
          expect_same_results(instance, *backend, fmt::format("{} {} {} {}", info(type).name, value, margin, power_of_two));
        }
      }
    }
    for (const double scale : {0.0, -2.0, tiny, huge, kInfinite, std::nan("")}) {
      Instance instance(quantization({300}, type, 1), DType::f32);
      instance.inputs()[1].set(0, scale);
      for (int64_t i = 0; i < 5; ++i)
        instance.inputs()[0].set(i * 50, std::vector<double>{0, kInfinite, -kInfinite, std::nan(""), huge}[i]);
      expect_same_results(instance, *backend, fmt::format("{} scale {}", info(type).name, scale));
    }
  }
}

// All numbers of FP8, those half way between them, and the FP32 numbers beside these, of both signs.
TEST_F(DeviceQuantization, RoundsEveryTieAndSaturates) {
  const auto backend = make_device_under_test(75);
  for (const DType type : kQuantized) {
    const FloatFormat& format = *info(type).format;
    std::vector<float> values;
    float last = 0;
    for (uint64_t encoding = 0; encoding <= format.largest_encoding() + 1; ++encoding) {
      // The one after the largest, as if there were another.
      const float value = encoding <= format.largest_encoding() ? static_cast<float>(value_of(format, encoding))
                                                                : 2 * last - values[values.size() - 7];
      for (const float at : {(value + last) / 2, value}) {
        for (const float near : {at, std::nextafter(at, HUGE_VALF), std::nextafter(at, -HUGE_VALF)}) {
          values.push_back(near);
          values.push_back(-near);
        }
      }
      last = value;
    }
    for (const float special : {HUGE_VALF, -HUGE_VALF, std::nanf(""), -std::nanf(""), 1e30f}) values.push_back(special);
    Instance instance(quantization({static_cast<int64_t>(values.size())}, type, 1), DType::f32);
    for (size_t i = 0; i < values.size(); ++i) instance.inputs()[0].set(static_cast<int64_t>(i), values[i]);
    expect_same_results(instance, *backend, std::string(info(type).name));
    const Result actual = instance.run(*backend);
    for (size_t i = 0; i < values.size(); ++i) {
      const double expected = round_to_format(format, double{values[i]}, {.overflow = Overflow::saturate});
      const double is = actual.outputs[0].get(static_cast<int64_t>(i));
      EXPECT_TRUE(is == expected || (std::isnan(is) && std::isnan(expected))) << values[i] << " became " << is;
    }
  }
}

// As ops and records read them.
TEST_F(DeviceQuantization, EveryEncodingIsRead) {
  const auto backend = make_device_under_test(76);
  std::vector<uint8_t> encodings(256);
  for (size_t i = 0; i < 256; ++i) encodings[i] = static_cast<uint8_t>(i);
  for (const DType type : kQuantized) {
    std::vector<float> values;
    for (const uint8_t encoding : encodings) values.push_back(static_cast<float>(value_of(*info(type).format, encoding)));
    const TensorView view = vector_view(encodings.data(), type, 256);
    OutputRecord record = wanting(StatisticsLevel::values), expected;
    record.samples_wanted = expected.samples_wanted = OutputRecord::kMaxSamples;
    collect_samples(view, expected);
    OutputRecord* const wanted = &record;
    const Attributes attributes;
    run(*backend, {"source", {&view, 1}, {&view, 1}, &attributes, {&wanted, 1}});
    expect_same(record.statistics, reference_statistics(values.data(), 256));
    EXPECT_EQ(record.sample_values, expected.sample_values);
  }
}

TEST_F(DeviceQuantization, EveryEncodingIsKnownToBeFiniteOrNot) {
  for (const DType type : {DType::f8_e4m3, DType::f8_e5m2, DType::f16, DType::bf16}) {
    const FloatFormat& format = *info(type).format;
    const uint32_t bits = device::nonfinite_bits(type);
    for (uint32_t encoding = 0; encoding < 1u << 8 * info(type).size; ++encoding)
      EXPECT_EQ((encoding & bits) == bits, !std::isfinite(value_of(format, encoding))) << info(type).name << " " << encoding;
  }
}

TEST_F(DeviceQuantization, TheFirstNanIsFound) {
  const auto backend = make_device_under_test(77);
  for (const DType type : kQuantized) {
    for (const int64_t element : {-1, 0, 77, 8192, 9999}) {
      Instance instance(quantization({100, 100}, type, 3, 0, 0, Lay::contiguous, Lay::transposed), DType::f32);
      instance.inputs()[0].set(5, kInfinite);  // saturates
      if (element >= 0) instance.inputs()[0].set(element, std::nan(""));
      const CaseCall prepared = instance.prepare();
      run(*backend, prepared.call());
      EXPECT_EQ(backend->capture_nonfinite(prepared.call(), 0).element, element);
    }
  }
}

TEST_F(DeviceQuantization, HistoriesOfAnyLength) {
  const auto backend = make_device_under_test(78);
  for (const DType type : kQuantized) {
    for (const int64_t size : {1, 2, 31, 32, 33, 1024, 9001}) {
      for (const double most_recent : {0.0, 1.0}) {
        for (const double power_of_two : {0.0, 1.0})
          expect_twin(history_update(size, type, most_recent, 2, power_of_two), DType::f32, *backend, "");
      }
    }
  }
}

// The newest, the first of the others and the last, which is dropped.
TEST_F(DeviceQuantization, WhatAHistoryTells) {
  const auto backend = make_device_under_test(79);
  const double kinds[] = {0, 5, kInfinite, std::nan("")};
  for (const double most_recent : {0.0, 1.0}) {
    for (const double newest : kinds) {
      for (const double first : kinds) {
        for (const double middle : kinds) {
          for (const double last : kinds) {
            Instance instance(history_update(50, DType::f8_e4m3, most_recent), DType::f32);
            for (int64_t i = 0; i < 50; ++i) instance.inputs()[0].set(i, middle == 0 ? 0 : 0.125);
            instance.inputs()[0].set(0, first);
            instance.inputs()[0].set(40, middle);
            instance.inputs()[0].set(49, last);
            instance.inputs()[1].set(0, 17);
            instance.inputs()[2].set(0, newest);
            expect_same_results(instance, *backend, fmt::format("{} {} {} {} {}", most_recent, newest, first, middle, last));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ulpscope
