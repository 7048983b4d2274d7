// Unscaling and the updates of optimizers on devices, against the plain twins and the CPU: weights, states, d, and what became of
// the update.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/cpu_support.h"
#include "tests/kernels/device/device_under_test.h"
#include "ulpscope/base/error.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/cases/op_cases.h"

namespace ulpscope {
namespace {

using namespace testing_support;

class DeviceTraining : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_device_under_test(); !why.empty()) GTEST_SKIP() << "skipped: " << why;
  }
};

std::vector<Case> updates() {
  std::vector<Case> cases = other_cases();
  std::erase_if(cases, [](const Case& what) { return !what.op.ends_with("_update") || what.op == "amax_history_update"; });
  return cases;
}
double attribute(const Case& what, std::string_view name) {
  for (const Attributes::Item& item : what.attributes)
    if (item.name == name) return item.value;
  return 0;
}
// Of two tiles and a bit, whose last part is not whole.
Case resized(Case what, const std::vector<int64_t>& shape) {
  for (TensorSpec& input : what.inputs) input.shape = shape;
  for (OutputSpec& output : what.outputs) output.shape = shape;
  return what;
}
std::vector<Case> updates_of_tiles() {
  std::vector<Case> cases;
  for (const Case& what : updates())
    if (what.inputs[0].shape[0] == 37) cases.push_back(resized(what, {2 * 8192 + 777}));
  return cases;
}

void expect_same_result(const Case& what, const Result& actual, const Result& expected, const std::string& name) {
  for (size_t slot = 0; slot < what.outputs.size(); ++slot) {
    const std::string output = fmt::format("{} output {}", name, slot);
    if (!what.outputs[slot].record_only) expect_same(actual.outputs[slot], expected.outputs[slot], output);
    expect_same_record(actual.records[slot], expected.records[slot], output);
    EXPECT_EQ(actual.records[slot].input, expected.records[slot].input) << output;
  }
}

TEST_F(DeviceTraining, UpdatesGiveTheBitsOfTheirTwins) {
  const auto backend = make_device_under_test(21);
  std::vector<Case> cases = small_cases(updates(), 37);
  for (const Case& what : updates_of_tiles()) cases.push_back(what);
  EXPECT_EQ(cases.size(), 4 * 24u);
  for (const Case& what : cases) {
    for (const DType dtype : kFloats) expect_twin(what, dtype, *backend, "");
  }
}

// Values around each format's smallest and largest numbers, so that everything that is counted occurs.
TEST_F(DeviceTraining, UpdatesCountAsTheCpuAtEveryLevel) {
  const auto backend = make_device_under_test(22), cpu = make_cpu_backend({.threads = 1});
  RoundingCounts rounding;
  uint64_t nonzero = 0, lost = 0, lost_to_decay = 0;
  size_t turn = 0;
  for (Case what : updates_of_tiles()) {
    for (const DType dtype : kFloats) {
      const double magnitude = std::array{0x1p-24, 0x1p-13, 1.0, 65504.0, 0x1p-135}[turn++ % 5];
      for (size_t input = 0; input < 2; ++input) {
        what.inputs[input].low = -magnitude;
        what.inputs[input].high = magnitude;
      }
      what.outputs.back().record_only = turn % 2 == 0;
      Instance instance(what, dtype);
      for (int64_t i = 0; i < 8192; i += 3) instance.inputs()[1].set(i, 0);
      for (const StatisticsLevel level : {StatisticsLevel::health, StatisticsLevel::values}) {
        const Result actual = instance.run(*backend, level), expected = instance.run(*cpu, level);
        const std::string name = fmt::format("{} {} {} {}", what.name(), info(dtype).name, magnitude, static_cast<int>(level));
        expect_same_result(what, actual, expected, name);
        rounding.merge(actual.records[0].rounding);
        const UpdateCounts& counts = actual.records.back().update;
        nonzero += counts.nonzero;
        lost += counts.lost;
        lost_to_decay += counts.lost_to_decay;
      }
    }
  }
  for (const uint64_t count : {rounding.flushed, rounding.subnormal, rounding.inexact_subnormal, rounding.overflowed,
                               rounding.rescued, nonzero, lost, lost_to_decay})
    EXPECT_GT(count, 10u);
}

TEST_F(DeviceTraining, UpdatesRoundAndFlushAsTheCpu) {
  const auto backend = make_device_under_test(23), cpu = make_cpu_backend({.threads = 1});
  size_t turn = 0;
  for (Case what : updates_of_tiles()) {
    if (attribute(what, "stepwise") != 0) continue;
    for (const double magnitude : {1.0, 0x1p-13, 0x1p-125}) {
      what.inputs[0].low = -magnitude;
      what.inputs[0].high = magnitude;
      for (const DType dtype : kFloats) {
        const Arithmetic how{.rounding = static_cast<RoundingMode>(turn % kRoundingModes),
                             .subnormals = static_cast<Subnormals>(turn / kRoundingModes % 4)};
        what.outputs.back().record_only = turn++ % 2 == 0;
        const Instance instance(what, dtype);
        const StatisticsLevel level = turn % 3 == 0 ? StatisticsLevel::health : StatisticsLevel::values;
        expect_same_result(what, run(instance.prepare(level), *backend, how), run(instance.prepare(level), *cpu, how),
                           fmt::format("{} {} {} {} {}", what.name(), info(dtype).name, magnitude, name_of(how.rounding),
                                       name_of(how.subnormals)));
      }
    }
  }
}

TEST_F(DeviceTraining, NanAndInfAreCounted) {
  const auto backend = make_device_under_test(24), cpu = make_cpu_backend({.threads = 1});
  for (const Case& what : updates_of_tiles()) {
    for (size_t input = 0; input < what.inputs.size(); ++input) {
      for (const double special : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
        Instance instance(what, DType::f16);
        for (const int64_t element : {0, 1023, 8191, 8192, 9000}) instance.inputs()[input].set(element, special);
        expect_same_result(what, instance.run(*backend, StatisticsLevel::values), instance.run(*cpu, StatisticsLevel::values),
                           fmt::format("{} with {} in input {}", what.name(), special, input));
      }
    }
  }
}

// A sum of gradient and decay that overflows in a step, and meets -Inf: without the steps it is finite.
TEST_F(DeviceTraining, WhatBecomesNanInStepsCountsAsNan) {
  const auto backend = make_device_under_test(27), cpu = make_cpu_backend({.threads = 1});
  int tried = 0;
  for (const Case& what : updates_of_tiles()) {
    if (what.op != "sgd_update" || what.inputs.size() != 3 || attribute(what, "stepwise") == 0 || attribute(what, "first") != 0 ||
        attribute(what, "weight_decay") == 0)
      continue;
    Instance instance(what, DType::f16);
    for (const int64_t element : {5, 9000}) {
      instance.inputs()[0].set(element, 65504);
      instance.inputs()[1].set(element, 65504);
      instance.inputs()[2].set(element, -HUGE_VAL);
    }
    const Result actual = instance.run(*backend, StatisticsLevel::values);
    expect_same_result(what, actual, instance.run(*cpu, StatisticsLevel::values), what.name());
    EXPECT_EQ(actual.records[1].statistics.nan, 2u);
    ++tried;
  }
  EXPECT_EQ(tried, 1);
}

// A gradient may lie otherwise than the weight, and weights in any dense order.
TEST_F(DeviceTraining, GradientsMayLieAnywhere) {
  const auto backend = make_device_under_test(25);
  for (const Case& row : updates_of_tiles()) {
    for (const Lay lay : {Lay::strided, Lay::transposed, Lay::broadcast}) {
      Case what = resized(row, {3, 5, 7, 90});
      for (size_t i = 0; i < what.inputs.size(); ++i) what.inputs[i].lay = i == 1 ? lay : Lay::channels_last;
      for (OutputSpec& output : what.outputs) output.lay = Lay::channels_last;
      expect_twin(what, DType::bf16, *backend, "");
    }
  }
  Case what = resized(updates_of_tiles().front(), {3, 5, 7, 90});
  what.inputs[2].lay = what.outputs[1].lay = Lay::transposed;
  EXPECT_THROW(Instance(what, DType::f32).run(*backend), Error);
}

TEST_F(DeviceTraining, AnUpdateInStepsRoundsToNearest) {
  const auto backend = make_device_under_test();
  for (const Case& what : updates_of_tiles()) {
    const Arithmetic how{.rounding = RoundingMode::up};
    const Instance instance(what, DType::bf16);
    if (attribute(what, "stepwise") != 0) {
      EXPECT_THROW(run(instance.prepare(), *backend, how), Error) << what.name();
    } else {
      run(instance.prepare(), *backend, how);
    }
  }
}

TEST_F(DeviceTraining, UnscaleRaisesItsFlagForAnyElement) {
  const auto backend = make_device_under_test(26);
  const TensorSpec flag{{}, Lay::contiguous, DType::f32, 0, 0, 0};
  const std::vector<int64_t> shape{2 * 8192 + 33};
  const Case what{"unscale",
                  {{shape}, flag},
                  {{shape, Lay::contiguous, {}, 0}, {{}, Lay::contiguous, DType::f32, 1}},
                  {{"inverse_scale", 0.125}}};
  for (const DType dtype : kFloats) expect_twin(what, dtype, *backend, "");
  for (const int64_t element : {0, 31, 2048, 8192, 2 * 8192 + 32}) {
    for (const double special : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      Instance instance(what, DType::f16);
      instance.inputs()[0].set(element, special);
      EXPECT_EQ(instance.run(*backend).outputs[1].get(0), 1) << special << " at " << element;
    }
  }
  Instance raised(what, DType::f32);
  raised.inputs()[1].set(0, 1);
  EXPECT_EQ(raised.run(*backend).outputs[1].get(0), 1);
  EXPECT_EQ(Instance(what, DType::f32).run(*backend).outputs[1].get(0), 0);
}

}  // namespace
}  // namespace ulpscope
