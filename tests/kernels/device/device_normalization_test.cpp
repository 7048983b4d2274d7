// Batch and group normalization on devices: large and many channels, and values of few digits above a large mean.
#include <gtest/gtest.h>

#include "tests/kernels/cpu_support.h"
#include "tests/kernels/device/device_under_test.h"
#include "ulpscope/kernels/cases/op_cases.h"

namespace ulpscope {
namespace {

using namespace testing_support;

class DeviceNormalization : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_device_under_test(); !why.empty()) GTEST_SKIP() << "skipped: " << why;
  }
};

std::vector<Case> normalizations() {
  std::vector<Case> cases = other_cases();
  std::erase_if(cases, [](const Case& what) { return !what.op.starts_with("batch_norm") && !what.op.starts_with("group_norm"); });
  return cases;
}

TEST_F(DeviceNormalization, GivesTheBitsOfItsTwins) {
  const auto backend = make_device_under_test(51);
  const std::vector<Case> cases = normalizations();
  EXPECT_GT(cases.size(), 60u);
  for (const Case& what : cases) {
    for (const DType dtype : {DType::f32, DType::bf16}) expect_twin(what, dtype, *backend, "");
  }
}

Case batch_norm(const std::vector<int64_t>& x) {
  const std::vector<int64_t> c{x[1]};
  const OutputSpec wide{c, Lay::contiguous, DType::f32};
  return {"batch_norm",
          {{x, Lay::contiguous, {}, 0, 1000, 1001}, {c}, {c}, {c}, {c, Lay::contiguous, {}, 0, 0.5, 2}},
          {{x}, wide, wide, {c, Lay::contiguous, {}, 3}, {c, Lay::contiguous, {}, 4}},
          {{"eps", 1e-5}, {"momentum", 0.1}, {"training", 1}}};
}

// Two blocks of a channel whose means nearly cancel: what is left has the last bits of FP64 in it.
TEST_F(DeviceNormalization, MomentsAreMergedInTheirOrder) {
  const auto backend = make_device_under_test(56);
  constexpr int64_t kRows = 812, kChannels = 200;
  Instance instance(batch_norm({kRows, kChannels}), DType::f32);
  for (int64_t c = 0; c < kChannels; ++c) {
    const double value = 1 + 0.0137 * static_cast<double>(c);
    for (int64_t row = 0; row < kRows; ++row) instance.inputs()[0].set(row * kChannels + c, row < 512 ? value : -value * 512 / 300);
  }
  const Result actual = instance.run(*backend), expected = instance.run_plain();
  for (size_t slot = 0; slot < 5; ++slot) expect_same(actual.outputs[slot], expected.outputs[slot], "means that cancel");
}

// Channels of more blocks of terms than are merged together at first, and more channels than blocks of the grid.
TEST_F(DeviceNormalization, LargeAndManyChannels) {
  const auto backend = make_device_under_test(52);
  expect_twin(batch_norm({513 * 512 + 700, 1}), DType::f32, *backend, "");
  expect_twin(batch_norm({3, 1100, 2}), DType::f16, *backend, "");
  const std::vector<int64_t> many{2, 700, 3}, statistic{2, 1}, c{700};
  const OutputSpec wide{statistic, Lay::contiguous, DType::f32};
  expect_twin({"group_norm", {{many}, {c}, {c}}, {{many}, wide, wide}, {{"groups", 1}, {"eps", 1e-5}}}, DType::f32, *backend, "");
}

TEST_F(DeviceNormalization, ReadsAndWritesAnyLayout) {
  const auto backend = make_device_under_test(53);
  for (const Case& row : small_cases(normalizations(), 2500)) {
    for (const Lay lay : {Lay::strided, Lay::transposed, Lay::broadcast, Lay::channels_last}) {
      Case what = row;
      for (size_t i = 0; i < 2 && i < what.inputs.size(); ++i)
        if (what.inputs[i].shape.size() > 1) what.inputs[i].lay = lay;
      expect_twin(what, DType::f16, *backend, "");
    }
  }
}

TEST_F(DeviceNormalization, NanAndInfComeThrough) {
  const auto backend = make_device_under_test(54);
  expect_specials_of_twin(small_cases(normalizations(), 2500), DType::f32, *backend, "", 1, 467);
}

TEST_F(DeviceNormalization, RoundsAndFlushesAsTheCpu) {
  const auto backend = make_device_under_test(55), cpu = make_cpu_backend({.threads = 1});
  size_t turn = 0;
  for (Case what : small_cases(normalizations(), 2500)) {
    for (const DType dtype : kFloats) {
      const Arithmetic how = nth_rounding(turn++);
      const Instance instance(what, dtype);
      const Result actual = run(instance.prepare(StatisticsLevel::values), *backend, how);
      const Result expected = run(instance.prepare(StatisticsLevel::values), *cpu, how);
      for (size_t slot = 0; slot < what.outputs.size(); ++slot) {
        expect_same(actual.outputs[slot], expected.outputs[slot], what.name());
        expect_same_record(actual.records[slot], expected.records[slot], what.name());
      }
    }
  }
}

}  // namespace
}  // namespace ulpscope
