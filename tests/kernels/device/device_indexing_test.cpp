// Indexing on devices: sums in the order of the indices, whatever falls together, and indices that are out of range.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/kernels/cpu_support.h"
#include "tests/kernels/device/device_under_test.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/philox.h"

namespace ulpscope {
namespace {

using namespace testing_support;

class DeviceIndexing : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_device_under_test(); !why.empty()) GTEST_SKIP() << "skipped: " << why;
  }
};

TensorSpec indices(const std::vector<int64_t>& shape, int64_t below, Lay lay = Lay::contiguous) {
  return {shape, lay, DType::i64, below};
}

// Keys of several digits, chunks of several warps' steps, and rows with no index, one, and many.
TEST_F(DeviceIndexing, SumsAreInTheOrderOfTheIndices) {
  const auto backend = make_device_under_test(41);
  for (const auto& [count, rows, n] : {std::tuple<int64_t, int64_t, int64_t>{5000, 3, 7},
                                       {1500, 70000, 1},
                                       {777, 257, 33},
                                       {300, 1, 5},
                                       {1, 255, 4},
                                       {0, 256, 3},
                                       {40, 12, 0}}) {
    for (const DType dtype : kFloats)
      expect_twin({"embedding_backward", {{{count, n}}, indices({count}, rows)}, {{{rows, n}}}}, dtype, *backend, "");
  }
  for (const double dim : {0.0, 1.0, 2.0}) {
    for (const Lay lay : {Lay::contiguous, Lay::transposed, Lay::strided}) {
      const std::vector<int64_t> whole{20, 30, 40}, picked{19, 20, 20};
      const TensorSpec named = indices(picked, 20, lay);
      expect_twin({"gather", {{whole, lay}, named}, {{picked}}, {{"dim", dim}}}, DType::f16, *backend, "");
      expect_twin({"gather_backward", {{picked, lay}, named}, {{whole}}, {{"dim", dim}}}, DType::f16, *backend, "");
      expect_twin({"scatter_add", {{whole}, named, {{19, 21, 25}, lay}}, {{whole, Lay::transposed}}, {{"dim", dim}}}, DType::f32,
                  *backend, "");
    }
  }
}

// Terms whose sum depends on their order, in FP32.
TEST_F(DeviceIndexing, EveryOrderOfTermsGivesItsOwnSum) {
  const auto backend = make_device_under_test(42);
  Instance instance({"embedding_backward", {{{900, 3}}, indices({900}, 5)}, {{{5, 3}}}}, DType::f32);
  const Philox random(7, 1);
  for (int64_t i = 0; i < 2700; ++i)
    instance.inputs()[0].set(i, (random.uniform(static_cast<uint64_t>(i)) - 0.5) * static_cast<double>(int64_t{1} << (i * 7 % 31)));
  expect_same(instance.run(*backend).outputs[0], instance.run_plain().outputs[0], "spread over many binades");
}

TEST_F(DeviceIndexing, MovesKeepEveryNumber) {
  const auto backend = make_device_under_test(43);
  for (const Lay lay : {Lay::contiguous, Lay::transposed, Lay::strided, Lay::broadcast}) {
    for (const DType dtype : kFloats) {
      expect_twin({"cat", {{{30, 7, 50}, lay}, {{30, 0, 50}}, {{30, 40, 50}}}, {{{30, 47, 50}, Lay::transposed}}, {{"dim", 1}}},
                  dtype, *backend, "");
      expect_twin(
          {"slice_backward", {{{30, 7, 50}, lay}}, {{{30, 47, 50}, Lay::transposed}}, {{"dim", 1}, {"start", 3}, {"step", 6}}},
          dtype, *backend, "");
      expect_twin({"embedding", {{{300, 41}, lay}, indices({17, 20}, 300, lay)}, {{{17, 20, 41}}}}, dtype, *backend, "");
    }
  }
}

TEST_F(DeviceIndexing, IndicesOutOfRangeAreToldWhenItIsComplete) {
  const auto backend = make_device_under_test(44), cpu = make_cpu_backend({.threads = 1});
  const auto complaint = [](Backend& device, const Instance& instance) -> std::string {
    const CaseCall prepared = instance.prepare(StatisticsLevel::values);
    try {
      device.submit(prepared.call());
    } catch (const Error& error) {
      return std::string(error.what()) + (device.runs_behind() ? " at once" : "");
    }
    try {
      device.complete();
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  const std::vector<int64_t> rows{700};
  for (const Case& what : {Case{"embedding", {{{11, 5}}, indices(rows, 11)}, {{{700, 5}}}},
                           Case{"embedding_backward", {{{700, 5}}, indices(rows, 11)}, {{{11, 5}}}},
                           Case{"gather", {{{11}}, indices(rows, 11)}, {{rows}}, {{"dim", 0}}},
                           Case{"gather_backward", {{rows}, indices(rows, 11)}, {{{11}}}, {{"dim", 0}}},
                           Case{"scatter_add", {{{11}}, indices(rows, 11), {rows}}, {{{11}}}, {{"dim", 0}}}}) {
    for (const double wrong : {-1.0, 11.0, -1e15, 1e15}) {
      Instance instance(what, DType::f16);
      for (const int64_t element : {699, 300, 555}) instance.inputs()[1].set(element, wrong);
      const std::string expected = complaint(*cpu, instance);
      EXPECT_EQ(complaint(*backend, instance), expected);
      EXPECT_NE(expected.find(what.op + ": index"), std::string::npos) << expected;
      EXPECT_NE(expected.find("at element 300 is not one of 11 rows"), std::string::npos) << expected;
      for (const int64_t element : {699, 300, 555}) instance.inputs()[1].set(element, 10);
      EXPECT_EQ(complaint(*backend, instance), "none");
    }
  }
  EXPECT_EQ(backend->allocated_bytes(), 0u);
}

}  // namespace
}  // namespace ulpscope
