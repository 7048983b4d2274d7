// Pooling on devices: windows that overlap, leave elements out and lie in the padding, sums in their order, NaN and equal values.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/cpu_support.h"
#include "tests/kernels/device/device_under_test.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/kernels/cases/op_cases.h"
#include "ulpscope/kernels/pool_windows.h"

namespace ulpscope {
namespace {

using namespace testing_support;

class DevicePooling : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_device_under_test(); !why.empty()) GTEST_SKIP() << "skipped: " << why;
  }
};

constexpr double kInf = std::numeric_limits<double>::infinity();

// What pooling with some windows, or into adaptive ones, takes and gives.
struct Pooled {
  std::vector<int64_t> image, pooled;
  std::vector<Attributes::Item> attributes = {};
  bool is_adaptive = false;

  DType index_type() const { return is_adaptive ? DType::i32 : DType::u8; }
  std::string op(const std::string& name) const { return is_adaptive ? "adaptive_" + name : name; }
  Case largest(Lay in, Lay out) const {
    return {op("max_pool2d"), {{image, in}}, {{pooled, out}, {pooled, out, index_type()}}, attributes};
  }
  Case average(Lay in, Lay out) const { return {op("avg_pool2d"), {{image, in}}, {{pooled, out}}, attributes}; }
  Case average_backward(Lay in, Lay out) const { return {op("avg_pool2d_backward"), {{pooled, in}}, {{image, out}}, attributes}; }
  // `indices`: what the forward op gave.
  Case largest_backward(const HostTensor& indices, Lay in, Lay out) const {
    TensorSpec given{pooled, in, index_type()};
    for (int64_t i = 0; i < indices.view().size(); ++i) given.values.push_back(indices.get(i));
    return {op("max_pool2d_backward"), {{pooled, in}, given}, {{image, out}}, attributes};
  }
};

Pooled sliding(const std::vector<int64_t>& image, const Windows& windows, bool count_padding = false) {
  const auto& [y, x] = windows;
  Pooled pooled{image, {image[0], image[1], y.outputs(image[2]), x.outputs(image[3])}};
  const auto set = [&](std::string_view name, int64_t value) { pooled.attributes.push_back({name, static_cast<double>(value)}); };
  set("kernel_y", y.kernel);
  set("kernel_x", x.kernel);
  set("stride_y", y.stride);
  set("stride_x", x.stride);
  set("padding_y", y.padding);
  set("padding_x", x.padding);
  set("ceil_mode", y.ceil_mode);
  set("count_include_pad", count_padding);
  return pooled;
}
Pooled adaptive(const std::vector<int64_t>& image, int64_t rows, int64_t columns) {
  return {image, {image[0], image[1], rows, columns}, {}, true};
}

std::vector<Pooled> many_windows() {
  const auto both = [](const Window& y, const Window& x) { return Windows{y, x}; };
  std::vector<Pooled> all;
  for (const bool count_padding : {false, true}) {
    all.push_back(sliding({2, 3, 9, 11}, both({3, 1, 1}, {4, 1, 2}), count_padding));                   // overlap, padding
    all.push_back(sliding({2, 3, 9, 11}, both({2, 3, 0}, {1, 4, 0}), count_padding));                   // leave elements out
    all.push_back(sliding({1, 5, 7, 6}, both({3, 2, 1, 1, true}, {5, 3, 2, 1, true}), count_padding));  // beyond the padding
    all.push_back(sliding({2, 2, 5, 140}, both({1, 1, 0}, {128, 1, 64}), count_padding));               // the largest index
    all.push_back(sliding({3, 1, 1, 1}, both({2, 1, 1}, {2, 1, 1}), count_padding));                    // mostly padding
  }
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {3, 5}, {7, 10}, {8, 11}, {13, 25}})
    all.push_back(adaptive({2, 3, 7, 10}, rows, columns));
  return all;
}

void expect_pooling(Backend& backend, const Pooled& pooled, DType dtype, Lay in, Lay out) {
  expect_twin(pooled.average(in, out), dtype, backend, "");
  expect_twin(pooled.average_backward(in, out), dtype, backend, "");
  const Case largest = pooled.largest(in, out);
  expect_twin(largest, dtype, backend, "");
  expect_twin(pooled.largest_backward(Instance(largest, dtype).run(backend).outputs[1], in, out), dtype, backend, "");
}

TEST_F(DevicePooling, GivesTheBitsOfItsTwins) {
  const auto backend = make_device_under_test(61);
  std::vector<Case> cases = other_cases();
  std::erase_if(cases, [](const Case& what) { return what.op.find("_pool2d") == std::string::npos; });
  EXPECT_GT(cases.size(), 100u);
  for (const Case& what : cases) {
    for (const DType dtype : {DType::f32, DType::bf16}) expect_twin(what, dtype, *backend, "");
  }
}

TEST_F(DevicePooling, AnyWindowsAndLayouts) {
  const auto backend = make_device_under_test(62);
  for (const Pooled& pooled : many_windows()) {
    for (const Lay in : {Lay::contiguous, Lay::channels_last, Lay::strided, Lay::transposed, Lay::broadcast}) {
      for (const Lay out : {Lay::contiguous, Lay::channels_last, Lay::transposed})
        expect_pooling(*backend, pooled, DType::f16, in, out);
    }
    for (const DType dtype : kFloats) expect_pooling(*backend, pooled, dtype, Lay::contiguous, Lay::channels_last);
  }
}

TEST_F(DevicePooling, IndicesMayLieOtherwiseThanTheValues) {
  const auto backend = make_device_under_test(69);
  for (const Pooled& pooled : many_windows()) {
    Case what = pooled.largest(Lay::contiguous, Lay::channels_last);
    what.outputs[1].lay = Lay::transposed;
    expect_twin(what, DType::f16, *backend, "");
  }
}

// More than a tile of each tensor.
TEST_F(DevicePooling, ManyElements) {
  const auto backend = make_device_under_test(63);
  for (const Pooled& pooled : {sliding({3, 5, 40, 43}, {{3, 1, 1}, {3, 1, 1}}), sliding({2, 9, 45, 47}, {{2, 2, 0}, {2, 2, 0}}),
                               adaptive({2, 7, 50, 31}, 33, 20)})
    expect_pooling(*backend, pooled, DType::f32, Lay::channels_last, Lay::channels_last);
}

TEST_F(DevicePooling, NothingToPool) {
  const auto backend = make_device_under_test(64);
  for (const std::vector<int64_t>& image : {std::vector<int64_t>{0, 3, 6, 6}, {3, 0, 6, 6}}) {
    expect_pooling(*backend, sliding(image, {{2, 2, 0}, {2, 2, 0}}), DType::f16, Lay::contiguous, Lay::contiguous);
    expect_pooling(*backend, adaptive(image, 2, 4), DType::f16, Lay::contiguous, Lay::contiguous);
  }
}

// Of terms of many binades every order has its own sum, in FP32.
TEST_F(DevicePooling, SumsAreInTheOrderOfTheirWindows) {
  const auto backend = make_device_under_test(65);
  const Philox random(9, 1);
  const auto spread = [&](int64_t i) {
    return (random.uniform(static_cast<uint64_t>(i)) - 0.5) * std::ldexp(1.0, static_cast<int>(i * 7 % 31));
  };
  for (const Pooled& pooled :
       {sliding({1, 4, 30, 30}, {{5, 1, 2}, {4, 1, 1}}), sliding({1, 4, 30, 30}, {{4, 2, 1}, {6, 3, 2}}, true),
        adaptive({1, 4, 30, 30}, 7, 8), adaptive({1, 4, 7, 8}, 30, 30)}) {
    const auto expect_same_sums = [&](const Case& what) {
      Instance instance(what, DType::f32);
      for (int64_t i = 0; i < instance.inputs()[0].view().size(); ++i) instance.inputs()[0].set(i, spread(i));
      expect_same(instance.run(*backend).outputs[0], instance.run_plain().outputs[0], what.name());
    };
    expect_same_sums(pooled.average(Lay::contiguous, Lay::contiguous));
    expect_same_sums(pooled.average_backward(Lay::contiguous, Lay::contiguous));
    const Result forward = Instance(pooled.largest(Lay::contiguous, Lay::contiguous), DType::f32).run(*backend);
    expect_same_sums(pooled.largest_backward(forward.outputs[1], Lay::contiguous, Lay::contiguous));
  }
}

// Equal values, zeros of both signs, infinities and several NaN fall into windows together.
TEST_F(DevicePooling, TheFirstOfEqualValuesAndTheFirstNan) {
  const auto backend = make_device_under_test(66), cpu = make_cpu_backend({.threads = 1});
  const double values[] = {0.0, -0.0, 1, 1, -kInf, kInf, std::nan(""), -1};
  const Philox random(4, 1);
  int nan = 0;
  for (const Pooled& pooled : many_windows()) {
    for (const uint32_t kinds : {2u, 4u, 5u, 6u, 8u}) {
      Instance instance(pooled.largest(Lay::channels_last, Lay::channels_last), DType::bf16);
      for (int64_t i = 0; i < instance.inputs()[0].view().size(); ++i)
        instance.inputs()[0].set(i, values[random.below(static_cast<uint64_t>(i), kinds)]);
      const std::string name = fmt::format("{} of {} kinds", instance.what().name(), kinds);
      const Result actual = instance.run(*backend, StatisticsLevel::values);
      for (const Result& expected : {instance.run(*cpu, StatisticsLevel::values), instance.run_plain(StatisticsLevel::values)}) {
        for (size_t slot = 0; slot < 2; ++slot) {
          expect_same(actual.outputs[slot], expected.outputs[slot], name);
          expect_same_record(actual.records[slot], expected.records[slot], name);
        }
      }
      for (int64_t i = 0; i < actual.outputs[0].view().size(); ++i) nan += std::isnan(actual.outputs[0].get(i));
      const Case backward = pooled.largest_backward(actual.outputs[1], Lay::channels_last, Lay::channels_last);
      expect_twin(backward, DType::bf16, *backend, name);
      const Instance gradient(backward, DType::bf16);
      expect_same(gradient.run(*backend).outputs[0], gradient.run(*cpu).outputs[0], name + " backward");
    }
  }
  EXPECT_GT(nan, 500);
}

TEST_F(DevicePooling, IndicesAreThoseOfTheDocumentation) {
  const auto backend = make_device_under_test(67);
  const auto indices_of = [&](const Pooled& pooled, int64_t place, double value) {
    Instance instance(pooled.largest(Lay::contiguous, Lay::contiguous), DType::f32);
    instance.inputs()[0].set(place, value);
    const HostTensor indices = instance.run(*backend).outputs[1].copy();
    std::vector<double> all;
    for (int64_t i = 0; i < indices.view().size(); ++i) all.push_back(indices.get(i));
    return all;
  };
  // Windows of 2 x 3 that begin at rows -1 and 2 and at columns -1 and 1 of an image of 3 x 4; element (2, 1) is in both of row 2.
  const Pooled windows = sliding({1, 1, 3, 4}, {{2, 3, 1}, {3, 2, 1}});
  ASSERT_EQ(windows.pooled, (std::vector<int64_t>{1, 1, 2, 2}));
  const std::vector<double> is_largest = indices_of(windows, 9, 7), is_nan = indices_of(windows, 9, std::nan(""));
  EXPECT_EQ(is_largest[2], 2);
  EXPECT_EQ(is_largest[3], 0);
  EXPECT_EQ(is_nan[2], 130);
  EXPECT_EQ(is_nan[3], 128);
  EXPECT_EQ(indices_of(adaptive({1, 1, 3, 4}, 1, 2), 9, 7)[0], 9);
  EXPECT_EQ(indices_of(adaptive({1, 1, 3, 4}, 1, 2), 9, std::nan(""))[0], -10);
}

TEST_F(DevicePooling, RefusesWindowsThatTheCpuRefuses) {
  const auto backend = make_device_under_test(68), cpu = make_cpu_backend({.threads = 1});
  const auto complaint = [](Backend& device, const Case& what) -> std::string {
    try {
      Instance(what, DType::f32).run(device);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  for (const Windows& windows : {Windows{{12, 1, 0}, {12, 1, 0}}, Windows{{2, 1, 0}, {2, 1, 2}}, Windows{{129, 1, 0}, {1, 1, 0}}}) {
    const Pooled pooled = sliding({1, 1, 150, 20}, windows);
    for (const Case& what :
         {pooled.largest(Lay::contiguous, Lay::channels_last),
          pooled.largest_backward(HostTensor(pooled.pooled, DType::u8, Lay::contiguous), Lay::contiguous, Lay::channels_last)}) {
      const std::string expected = complaint(*cpu, what);
      EXPECT_NE(expected, "none");
      EXPECT_EQ(complaint(*backend, what), expected);
    }
  }
}

}  // namespace
}  // namespace ulpscope
