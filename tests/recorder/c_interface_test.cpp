// The C interface: a C99 program's trace against what it computed, and what callers may get wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "tests/support/project_files.h"
#include "ulpscope/recorder/call_recorder.h"
#include "ulpscope/recorder/ulpscope.h"
#include "ulpscope/trace/snapshot.h"
#include "ulpscope/trace/sources.h"

namespace ulpscope {
namespace {

using testing::HasSubstr;

class CInterface : public testing::Test {
 protected:
  void TearDown() override {
    ulpscope_close(recorder_);
    std::filesystem::remove(path_);
  }
  int open() {
    run_.size = sizeof run_;
    options_.size = sizeof options_;
    options_.path = path_.c_str();
    options_.overwrite = 1;
    return ulpscope_open(&run_, &options_, &recorder_);
  }
  ulpscope_text text(const char* text) {
    ulpscope_text number = 0;
    EXPECT_EQ(ulpscope_intern(recorder_, text, std::strlen(text), &number), ULPSCOPE_OK);
    return number;
  }

  std::string path_ = (std::filesystem::path(testing::TempDir()) / ("ulpscope_c_" + std::to_string(getpid()) + ".h5")).string();
  ulpscope_run run_{};
  ulpscope_options options_{};
  ulpscope_recorder* recorder_ = nullptr;
};

TEST_F(CInterface, AProgramInCRecordsWhatItComputed) {
  ASSERT_EQ(std::system(("\"" + built_file("examples/record_from_c") + "\" \"" + path_ + "\"").c_str()), 0);
  const Snapshot trace(path_);
  EXPECT_EQ(trace.writer_state(), WriterState::closed);
  EXPECT_EQ(trace.run().producer, "record_from_c");
  EXPECT_EQ(trace.run().run_id.size(), 32u);
  ASSERT_EQ(trace.step_count(), 20u);
  ASSERT_EQ(trace.ops().size(), 5u);
  EXPECT_EQ(trace.ops()[2].kind, OpKind::loss);
  EXPECT_EQ(trace.tensors()[4].role, Role::weight);
  ASSERT_EQ(trace.edges().size(), 5u);
  // The loss is 7.5 (w - 2)^2, its gradient 15 (w - 2): each step multiplies w - 2 by 1 - 0.05 * 15 = 0.25. In FP32 the steps'
  // roundings, 12 a step, grow with nothing: the factor is below 1.
  double apart = 2;
  trace.visit_steps({}, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) {
      EXPECT_TRUE(row.loss_known);
      EXPECT_NEAR(row.loss, 7.5 * apart * apart, 100 * 0x1p-24 * (7.5 * apart * apart + 8 * apart * 0x1p-22 * 100) + 1e-11);
      EXPECT_EQ(row.learning_rate, 0.05);
      apart *= 0.25;
    }
    return true;
  });
  std::vector<double> losses;
  trace.visit_rows({}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows)
      if (trace.tensors()[row.tensor].role == Role::loss) losses.push_back(row.statistics.sum);
    return true;
  });
  ASSERT_EQ(losses.size(), 20u);
  EXPECT_EQ(losses[0], 30);
}

// Nothing but the interface can be seen of what is inside.
TEST(CInterfaceLibrary, ExportsItsFunctionsOnly) {
  FILE* const pipe = popen(("nm -D --defined-only \"" + built_file("lib/libulpscope.so") + "\"").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::vector<std::string> others;
  bool has_open = false;
  char address[64], kind[8], name[512];
  while (std::fscanf(pipe, "%63s %7s %511s", address, kind, name) == 3) {
    has_open |= std::string(name) == "ulpscope_open";
    if (std::string(name).rfind("ulpscope_", 0) != 0) others.push_back(name);
  }
  pclose(pipe);
  EXPECT_TRUE(has_open);
  EXPECT_THAT(others, testing::IsEmpty());
}

TEST_F(CInterface, NamesHaveTheNumbersOfTheFormat) {
  EXPECT_EQ(ulpscope_phase("backward"), static_cast<int>(Phase::backward));
  EXPECT_EQ(ulpscope_role("optimizer_state"), static_cast<int>(Role::optimizer_state));
  EXPECT_EQ(ulpscope_function("adam_update"), static_cast<int>(OpFunction::adam_update));
  EXPECT_EQ(ulpscope_kind("collective"), static_cast<int>(OpKind::collective));
  EXPECT_EQ(ulpscope_setting_kind("learning_rate"), static_cast<int>(SettingKind::learning_rate));
  EXPECT_EQ(ulpscope_metric_kind("evaluation_loss"), static_cast<int>(MetricKind::evaluation_loss));
  EXPECT_EQ(ulpscope_dtype("bf16"), static_cast<int>(DType::bf16));
  for (const char* unknown : {"", "forwards", static_cast<const char*>(nullptr)}) {
    EXPECT_EQ(ulpscope_phase(unknown), -1);
    EXPECT_EQ(ulpscope_dtype(unknown), -1);
  }
}

TEST_F(CInterface, WhatCannotBeIsRefusedInOneLine) {
  const auto expect = [](int code, int expected, const char* line) {
    EXPECT_EQ(code, expected) << ulpscope_last_error();
    EXPECT_THAT(ulpscope_last_error(), HasSubstr(line));
    EXPECT_EQ(std::strchr(ulpscope_last_error(), '\n'), nullptr);
  };
  expect(ulpscope_open(nullptr, nullptr, &recorder_), ULPSCOPE_REFUSED, "expected a run, got NULL");
  expect(ulpscope_open(&run_, &options_, &recorder_), ULPSCOPE_REFUSED, "a run has the size 0; expected sizeof of it");
  run_.run_id = "../other";
  expect(open(), ULPSCOPE_REFUSED, "run_id '../other'; expected at most 64 letters and digits");
  run_.run_id = nullptr;
  run_.rank = 4;
  expect(open(), ULPSCOPE_REFUSED, "the run: rank is 4; expected from 0 to world_size - 1");
  run_.rank = 0;
  options_.level = "everything";
  expect(open(), ULPSCOPE_REFUSED, "level 'everything'; expected health, stats or full");
  options_.level = nullptr;
  options_.phases = "forward,sideways";
  expect(open(), ULPSCOPE_REFUSED, "phase 'sideways'");
  options_.phases = nullptr;
  const std::string good = std::exchange(path_, "/nowhere/at/all.h5");
  expect(open(), ULPSCOPE_FAILED, "/nowhere/at/all.h5");
  path_ = good;
  std::ofstream(path_) << "something";
  options_.size = sizeof options_;
  options_.path = path_.c_str();
  options_.overwrite = 0;
  expect(ulpscope_open(&run_, &options_, &recorder_), ULPSCOPE_REFUSED, "exists; options.overwrite replaces it");
  std::filesystem::remove(path_);
  EXPECT_EQ(recorder_, nullptr);
  expect(ulpscope_begin_step(nullptr, 0), ULPSCOPE_REFUSED, "ulpscope_begin_step: expected a recorder, got NULL");
  ASSERT_EQ(open(), ULPSCOPE_OK);

  ulpscope_call call{};
  ulpscope_op op = 7;
  call.size = sizeof call;
  call.name = text("mul");
  call.phase = call.function = call.kind = -1;
  expect(ulpscope_begin_op(recorder_, &call, &op, nullptr), ULPSCOPE_REFUSED, "op 'mul': expected a step that began");
  EXPECT_EQ(op, 0u);
  ASSERT_EQ(ulpscope_begin_step(recorder_, 0), ULPSCOPE_OK);
  call.phase = 77;
  expect(ulpscope_begin_op(recorder_, &call, &op, nullptr), ULPSCOPE_REFUSED, "phase 77; expected one from 0 to 8");
  call.phase = -1;
  call.inputs_count = 3;
  expect(ulpscope_begin_op(recorder_, &call, &op, nullptr), ULPSCOPE_REFUSED, "3 inputs without a list");
  call.inputs_count = 0;
  const int64_t product[] = {4, -1, 3, 1, 1};
  call.product = product;
  expect(ulpscope_begin_op(recorder_, &call, &op, nullptr), ULPSCOPE_REFUSED, "the product 4, -1, 3, 1, 1");
  call.product = nullptr;
  const std::string endless(kLongestToldText + 1, 'x');
  expect(ulpscope_note(recorder_, endless.c_str()), ULPSCOPE_REFUSED, "a text is longer than 1048576 bytes");
  ASSERT_EQ(ulpscope_begin_op(recorder_, &call, &op, nullptr), ULPSCOPE_OK);
  ulpscope_tensor tensor{};
  tensor.size = sizeof tensor;
  tensor.rank = 3;
  tensor.dtype = ulpscope_dtype("f32");
  expect(ulpscope_output(recorder_, op, 0, &tensor, nullptr, nullptr), ULPSCOPE_REFUSED, "a tensor of rank 3 without a shape");
  tensor.rank = 0;
  tensor.dtype = 99;
  expect(ulpscope_output(recorder_, op, 0, &tensor, nullptr, nullptr), ULPSCOPE_REFUSED, "data type 99");
  EXPECT_EQ(ulpscope_setting(recorder_, "lr", "1", 0, 1), ULPSCOPE_OK) << "the first step has not ended";
  ulpscope_status status{};
  status.size = sizeof status;
  ASSERT_EQ(ulpscope_get_status(recorder_, &status), ULPSCOPE_OK);
  EXPECT_EQ(status.refused, 7u);
  EXPECT_EQ(status.failed, 0);
  // A struct that is too short is not written to, and one of a newer caller no further than is known here.
  struct {
    uint32_t size = 16;
    unsigned char bytes[sizeof(ulpscope_status)];
  } shorter;
  std::memset(shorter.bytes, 0xAB, sizeof shorter.bytes);
  expect(ulpscope_get_status(recorder_, reinterpret_cast<ulpscope_status*>(&shorter)), ULPSCOPE_REFUSED,
         "a status has the size 16");
  EXPECT_EQ(shorter.bytes[0], 0xAB);
  struct {
    ulpscope_status known;
    unsigned char newer[64];
  } longer{};
  longer.known.size = sizeof longer;
  std::memset(longer.newer, 0xAB, sizeof longer.newer);
  ASSERT_EQ(ulpscope_get_status(recorder_, &longer.known), ULPSCOPE_OK);
  EXPECT_EQ(longer.known.size, sizeof longer);
  EXPECT_EQ(longer.newer[0], 0xAB);
  ASSERT_EQ(ulpscope_drop_op(recorder_, op), ULPSCOPE_OK);
  ulpscope_step step{};
  step.size = sizeof step;
  ASSERT_EQ(ulpscope_end_step(recorder_, &step), ULPSCOPE_OK);
  expect(ulpscope_setting(recorder_, "momentum", "1", 0, 1), ULPSCOPE_REFUSED,
         "setting 'momentum': expected settings before the first step ends");
  expect(ulpscope_begin_step(recorder_, UINT64_MAX), ULPSCOPE_REFUSED, "step 18446744073709551615; expected at most 2^62");
}

// A program that was built when the flight recorder was not there yet, and one that knows more than this library.
TEST_F(CInterface, StructsOfOtherVersionsAreRead) {
  run_.size = sizeof run_;
  options_.path = path_.c_str();
  options_.overwrite = 1;
  options_.keep_last = 50;
  options_.size = offsetof(ulpscope_options, keep_last);
  ASSERT_EQ(ulpscope_open(&run_, &options_, &recorder_), ULPSCOPE_OK) << ulpscope_last_error();
  for (uint64_t step = 0; step < 3; ++step) {
    ASSERT_EQ(ulpscope_begin_step(recorder_, step), ULPSCOPE_OK);
    ASSERT_EQ(ulpscope_begin_pass(recorder_, ulpscope_phase("forward"), 0, 0), ULPSCOPE_OK);
    ulpscope_call call{};
    call.size = sizeof call;
    call.function = call.kind = -1;
    call.name = text("square");
    ulpscope_op op = 0;
    ASSERT_EQ(ulpscope_begin_op(recorder_, &call, &op, nullptr), ULPSCOPE_OK) << ulpscope_last_error();
    const float value = 3;
    ulpscope_tensor tensor{};
    tensor.size = sizeof tensor;
    tensor.data = &value;
    tensor.dtype = ulpscope_dtype("f32");
    ASSERT_EQ(ulpscope_output(recorder_, op, 0, &tensor, nullptr, nullptr), ULPSCOPE_OK) << ulpscope_last_error();
    ASSERT_EQ(ulpscope_end_op(recorder_, op), ULPSCOPE_OK);
    struct {
      ulpscope_step known;
      unsigned char newer[16];
    } longer{};
    longer.known.size = sizeof longer;
    longer.newer[15] = 1;
    ASSERT_EQ(ulpscope_end_step(recorder_, &longer.known), ULPSCOPE_REFUSED);
    EXPECT_THAT(ulpscope_last_error(), HasSubstr("ulpscope_end_step: a step has members that this version"));
    longer.newer[15] = 0;
    ASSERT_EQ(ulpscope_end_step(recorder_, &longer.known), ULPSCOPE_OK) << ulpscope_last_error();
  }
  ASSERT_EQ(ulpscope_close(recorder_), ULPSCOPE_OK);
  recorder_ = nullptr;
  EXPECT_EQ(Snapshot(path_).tensor_row_count(), 3u);  // no flight recorder was asked for
}

TEST_F(CInterface, BatchesNameSamplesOfDataSetsThatMayComeLate) {
  ASSERT_EQ(open(), ULPSCOPE_OK);
  ASSERT_EQ(ulpscope_begin_step(recorder_, 3), ULPSCOPE_OK);
  ulpscope_data data{};
  data.size = sizeof data;
  data.number = 1;
  data.name = "train";
  data.file = "x.npy";
  data.samples = uint64_t{1} << 49;
  EXPECT_EQ(ulpscope_source(recorder_, &data), ULPSCOPE_REFUSED);
  EXPECT_THAT(ulpscope_last_error(), HasSubstr("ulpscope_source: source 1: samples is 562949953421312; expected at most 2^48"));
  data.samples = 2000;
  data.row_step = 2;
  ASSERT_EQ(ulpscope_source(recorder_, &data), ULPSCOPE_OK) << ulpscope_last_error();
  const int64_t samples[] = {1234, 7};
  ASSERT_EQ(ulpscope_batch(recorder_, 1, samples, 2), ULPSCOPE_OK);
  ulpscope_step step{};
  step.size = sizeof step;
  ASSERT_EQ(ulpscope_end_step(recorder_, &step), ULPSCOPE_OK);
  ASSERT_EQ(ulpscope_close(std::exchange(recorder_, nullptr)), ULPSCOPE_OK);
  const Snapshot trace(path_);
  std::vector<std::string> places;
  trace.visit_batches({3, 4}, [&](std::span<const BatchRow> rows) {
    for (const BatchRow& row : rows) places.push_back(find_sample(trace, row).text());
    return true;
  });
  EXPECT_THAT(places,
              testing::ElementsAre("sample 1234 of train: x.npy, row 2468 (from 0)", "sample 7 of train: x.npy, row 14 (from 0)"));
}

// Infinite and zero loss scales occur, and are recorded.
TEST_F(CInterface, StepsTakeTheScalesThatScalersReach) {
  ASSERT_EQ(open(), ULPSCOPE_OK);
  const double scales[] = {0, INFINITY};
  for (uint64_t step = 0; step < 2; ++step) {
    ulpscope_step row{};
    row.size = sizeof row;
    row.known = ULPSCOPE_KNOWS_SCALE;
    row.scale_before = row.scale_after = scales[step];
    row.skipped = 1;
    ASSERT_EQ(ulpscope_begin_step(recorder_, step), ULPSCOPE_OK);
    ASSERT_EQ(ulpscope_end_step(recorder_, &row), ULPSCOPE_OK) << ulpscope_last_error();
  }
  ASSERT_EQ(ulpscope_close(std::exchange(recorder_, nullptr)), ULPSCOPE_OK);
  uint64_t step = 0;
  Snapshot(path_).visit_steps({}, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) EXPECT_EQ(row.scale_after, scales[step++]);
    return true;
  });
  EXPECT_EQ(step, 2u);
}

TEST_F(CInterface, StatisticsAreThoseOfThePlainLoop) {
  const std::vector<double> values{0.0, -0.0, 1.5, -3.0, 1e-300, INFINITY, -INFINITY, NAN};
  const int64_t shape[] = {2, 4};
  ulpscope_tensor tensor{};
  tensor.size = sizeof tensor;
  tensor.data = values.data();
  tensor.dtype = ulpscope_dtype("f64");
  tensor.rank = 2;
  tensor.shape = shape;
  ulpscope_statistics counted{};
  counted.size = sizeof counted;
  ASSERT_EQ(ulpscope_take_statistics(&tensor, 2, &counted), ULPSCOPE_OK) << ulpscope_last_error();
  EXPECT_EQ(counted.known, 2);
  EXPECT_EQ(counted.count, 8u);
  EXPECT_EQ(counted.zeros, 2u);
  EXPECT_EQ(counted.nan, 1u);
  EXPECT_EQ(counted.positive_infinity, 1u);
  EXPECT_EQ(counted.negative_infinity, 1u);
  EXPECT_EQ(counted.negatives, 1u);
  EXPECT_EQ(counted.smallest, 1e-300);
  EXPECT_EQ(counted.largest, 3.0);
  EXPECT_EQ(counted.bins[127], 1u);
  EXPECT_EQ(counted.bins[128], 1u);
  EXPECT_EQ(counted.below_range, 1u);
}

}  // namespace
}  // namespace ulpscope
