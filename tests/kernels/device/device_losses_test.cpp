// Losses and norms on devices: sums of many parts, rows that are ignored, NaN, and targets that are out of range.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/cpu_support.h"
#include "tests/kernels/device/device_under_test.h"
#include "ulpscope/base/error.h"

namespace ulpscope {
namespace {

using namespace testing_support;

class DeviceLosses : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_device_under_test(); !why.empty()) GTEST_SKIP() << "skipped: " << why;
  }
};

constexpr OutputSpec kScalar{{}, Lay::contiguous, DType::f32};

std::string message_of(Backend& backend, const OpCall& call) {
  try {
    run(backend, call);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

Case class_loss(const std::string& op, int64_t rows, int64_t classes, double ignored, double smoothing = 0.1) {
  const std::vector<int64_t> shape{rows, classes}, row{rows};
  const TensorSpec target{row, Lay::contiguous, DType::i64, classes}, g{{}, Lay::contiguous, DType::f32, 0, 1, 2};
  const std::vector<Attributes::Item> attributes{{"label_smoothing", smoothing}, {"ignore_index", ignored}};
  if (op == "cross_entropy") return {op, {{shape}, target}, {kScalar, {row, Lay::contiguous, DType::f32}}, attributes};
  if (op == "cross_entropy_backward")
    return {op, {g, {shape}, target, {row, Lay::contiguous, DType::f32, 0, 1, 3}}, {{shape}}, attributes};
  if (op == "nll_backward") return {op, {g, target}, {{shape}}, attributes};
  if (op == "nll") return {op, {{shape}, target}, {kScalar}, attributes};
  return {op, {{shape}, target}, {{{}, Lay::contiguous, DType::i64}}, attributes};
}
const char* const kClassOps[] = {"cross_entropy", "cross_entropy_backward", "nll", "nll_backward", "correct_count"};

// More rows than blocks of the grid, and sums of several parts.
TEST_F(DeviceLosses, ManyRowsAndParts) {
  const auto backend = make_device_under_test(31);
  for (const char* op : kClassOps) {
    for (const double ignored : {-100.0, 1.0}) {
      for (const double smoothing : {0.0, 0.1}) expect_twin(class_loss(op, 9000, 3, ignored, smoothing), DType::f16, *backend, "");
    }
  }
  const std::vector<int64_t> large{3, 50, 201};
  for (const char* op : {"mse", "l1", "huber", "bce_with_logits", "binary_cross_entropy", "kl_div"}) {
    for (const Lay lay : {Lay::contiguous, Lay::transposed, Lay::strided}) {
      const Case what{
          op, {{large, lay, {}, 0, 0.01, 0.99}, {large, Lay::contiguous, {}, 0, 0.01, 0.99}}, {kScalar}, {{"delta", 0.3}}};
      for (const DType dtype : kFloats) expect_twin(what, dtype, *backend, "");
    }
  }
  // More tensors than a launch takes.
  Case norm{"gradient_norm", {}, {kScalar}};
  for (int64_t i = 0; i < 19; ++i)
    norm.inputs.push_back({{i % 5 == 2 ? 0 : 1 + i * i * i * 5}, i % 2 == 0 ? Lay::contiguous : Lay::strided});
  for (const DType dtype : kFloats) expect_twin(norm, dtype, *backend, "");
  // Of more parts than are added together at first.
  expect_twin({"gradient_norm", {{{8192 * 512 + 8192 * 3 + 5}}}, {kScalar}}, DType::f16, *backend, "");
}

TEST_F(DeviceLosses, WeightGradientsOfManyColumnsAndRows) {
  const auto backend = make_device_under_test(32);
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 1100}, {3, 700, 5}}) {
    const std::vector<int64_t> scalars(shape.begin(), shape.end() - 1), vector{shape.back()};
    const TensorSpec inverse{scalars, Lay::contiguous, DType::f32, 0, 0.5, 2};
    for (const Lay lay : {Lay::contiguous, Lay::transposed}) {
      expect_twin({"layer_norm_backward_weight", {{shape, lay}, {shape}, {scalars}, inverse}, {{vector}, {vector}}}, DType::f16,
                  *backend, "");
      expect_twin({"rms_norm_backward_weight", {{shape}, {shape, lay}, inverse}, {{vector}}}, DType::bf16, *backend, "");
    }
  }
}

TEST_F(DeviceLosses, NoRowWithNanIsRight) {
  const auto backend = make_device_under_test(33);
  Instance instance(class_loss("correct_count", 40, 7, 2), DType::f32);
  for (int64_t row = 0; row < 40; ++row) {
    const int64_t target = row % 7;
    instance.inputs()[1].set(row, static_cast<double>(target));
    instance.inputs()[0].set(row * 7 + target, 5);
    if (row % 10 == 1) instance.inputs()[0].set(row * 7 + row % 3, std::nan(""));
    if (row % 10 == 3) instance.inputs()[0].set(row * 7, 5);  // equal to a later one: the first is the largest
  }
  const double expected = instance.run_plain().outputs[0].get(0);
  EXPECT_EQ(instance.run(*backend, StatisticsLevel::values).outputs[0].get(0), expected);
  EXPECT_GT(expected, 20);
  EXPECT_LT(expected, 36);
}

TEST_F(DeviceLosses, TargetsOutOfRangeAreToldWhenItIsComplete) {
  const auto backend = make_device_under_test(34), cpu = make_cpu_backend({.threads = 1});
  for (const char* op : kClassOps) {
    for (const double wrong : {-1.0, 7.0, 1e15}) {
      Instance instance(class_loss(op, 3000, 7, 3), DType::f32);
      HostTensor& targets = instance.inputs()[std::string_view(op) == "cross_entropy_backward" ? 2 : 1];
      for (const int64_t row : {2999, 777, 1500}) targets.set(row, wrong);
      const CaseCall prepared = instance.prepare();
      backend->submit(prepared.call());
      std::string told = "none";
      try {
        backend->complete();
      } catch (const Error& error) {
        told = error.what();
      }
      const std::string expected = message_of(*cpu, instance.prepare().call());
      EXPECT_EQ(told, expected);
      EXPECT_NE(expected.find("of row 777 is not one of 7 classes"), std::string::npos) << expected;
      // And no later one.
      targets.set(777, 0);
      EXPECT_EQ(message_of(*backend, instance.prepare().call()), message_of(*cpu, instance.prepare().call()));
      for (const int64_t row : {2999, 1500}) targets.set(row, 3);
      EXPECT_EQ(message_of(*backend, instance.prepare().call()), "none");
    }
  }
  EXPECT_EQ(backend->allocated_bytes(), 0u);
}

}  // namespace
}  // namespace ulpscope
