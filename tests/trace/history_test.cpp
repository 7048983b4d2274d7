// Random access to tensor rows: what the index and the packed columns give is what a whole reading gives, whatever is kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "sample_trace.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "ulpscope/trace/run_set.h"

namespace ulpscope::trace_test {
namespace {

constexpr uint64_t kHistorySeed = 71, kHistorySteps = 500;  // 41 rows a step: several segments and an unfilled one

class History : public testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    sink_ = create_trace(path_, sample_run(kHistorySeed));
    add_start(*sink_, kHistorySeed);
    for (uint64_t step = 0; step < kHistorySteps; ++step) add_step(*sink_, kHistorySeed, step);
    sink_->flush();
  }
  // The rows of a tensor in the range, as they were written.
  static Lines written(uint32_t tensor, uint64_t first, uint64_t last) {
    Lines lines;
    for (uint64_t step = first; step < last; ++step)
      for (const TensorRow& row : sample_step(kHistorySeed, step).rows)
        if (row.tensor == tensor) lines.push_back(line(row));
    return lines;
  }
  static Lines history(const Snapshot& snapshot, uint32_t tensor, StepRange range) {
    Lines lines;
    snapshot.visit_history(tensor, range, [&](std::span<const TensorRow> rows) {
      for (const TensorRow& row : rows) lines.push_back(line(row));
      return true;
    });
    return lines;
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.file("run.h5");
  std::unique_ptr<TraceSink> sink_;
};

// With room for all rows, for some, and for none.
INSTANTIATE_TEST_SUITE_P(, History, testing::Values(uint64_t{256} << 20, uint64_t{200000}, uint64_t{0}),
                         [](const auto& bytes) { return "Bytes" + std::to_string(bytes.param); });

TEST_P(History, OfATensorIsWhatWasWritten) {
  RunSet run(path_, {.row_bytes = GetParam()});
  const Snapshot snapshot = run.snapshot();
  if (GetParam() > 0) snapshot.load_rows();
  for (const uint32_t tensor : {0u, 1u, 7u}) {
    EXPECT_EQ(history(snapshot, tensor, {}), written(tensor, 0, kHistorySteps));
    EXPECT_EQ(history(snapshot, tensor, {190, 210}), written(tensor, 190, 210));
    EXPECT_EQ(history(snapshot, tensor, {kHistorySteps - 1, UINT64_MAX}), written(tensor, kHistorySteps - 1, kHistorySteps));
    EXPECT_EQ(history(snapshot, tensor, {7, 7}), Lines());
  }
  EXPECT_EQ(history(snapshot, 1u << 30, {}), Lines());
  int visits = 0;
  snapshot.visit_history(0, {}, [&](std::span<const TensorRow>) { return ++visits < 2; });
  EXPECT_EQ(visits, 2);
  // What is committed later is seen by later snapshots only.
  for (uint64_t step = kHistorySteps; step < kHistorySteps + 30; ++step) add_step(*sink_, kHistorySeed, step);
  sink_->flush();
  ASSERT_TRUE(run.refresh());
  EXPECT_EQ(history(run.snapshot(), 1, {}), written(1, 0, kHistorySteps + 30));
  EXPECT_EQ(history(snapshot, 1, {}), written(1, 0, kHistorySteps));
}

TEST_P(History, ColumnsAreThoseOfTheRows) {
  const RunSet run(path_, {.row_bytes = GetParam()});
  const Snapshot snapshot = run.snapshot();
  std::vector<uint64_t> steps, zeros, zeros_of_1;
  std::vector<uint32_t> tensors, sequences;
  std::vector<uint8_t> known;
  std::vector<double> sums, sums_of_1;
  for (uint64_t step = 0; step < kHistorySteps; ++step) {
    for (const TensorRow& row : sample_step(kHistorySeed, step).rows) {
      steps.push_back(row.step);
      tensors.push_back(row.tensor);
      sequences.push_back(row.sequence);
      known.push_back(static_cast<uint8_t>(row.known));
      zeros.push_back(row.statistics.zeros);
      sums.push_back(row.statistics.sum);
      if (row.tensor != 1) continue;
      zeros_of_1.push_back(row.statistics.zeros);
      sums_of_1.push_back(row.statistics.sum);
    }
  }
  const auto bits = [](const std::vector<double>& values) {
    std::vector<uint64_t> encodings;
    for (const double value : values) encodings.push_back(std::bit_cast<uint64_t>(value));
    return encodings;
  };
  EXPECT_EQ(snapshot.column<uint64_t>("step"), steps);
  EXPECT_EQ(snapshot.column<uint32_t>("tensor"), tensors);
  EXPECT_EQ(snapshot.column<uint32_t>("sequence"), sequences);
  EXPECT_EQ(snapshot.column<uint8_t>("known"), known);
  EXPECT_EQ(snapshot.column<uint64_t>("zeros"), zeros);
  EXPECT_EQ(bits(snapshot.column<double>("sum")), bits(sums));
  EXPECT_EQ(snapshot.history<uint64_t>(1, "zeros"), zeros_of_1);
  EXPECT_EQ(bits(snapshot.history<double>(1, "sum")), bits(sums_of_1));
  const auto begin = std::lower_bound(steps.begin(), steps.end(), 300) - steps.begin();
  const auto end = std::lower_bound(steps.begin(), steps.end(), 302) - steps.begin();
  EXPECT_EQ(snapshot.column<uint64_t>("zeros", {300, 302}), std::vector<uint64_t>(zeros.begin() + begin, zeros.begin() + end));
  EXPECT_THROW(snapshot.column<uint64_t>("sum"), Error);
  EXPECT_THROW(snapshot.column<double>("summ"), Error);
  EXPECT_THROW(snapshot.column<uint64_t>("histogram"), Error);
}

// FP32 holds the magnitudes of tensors in it, and in narrower types.
TEST_P(History, MagnitudesAreThoseOfTheRowsWhetherFP32HoldsAllOrNot) {
  for (const bool holds_all : {true, false}) {
    const std::string path = folder_.file(holds_all ? "singles.h5" : "doubles.h5");
    const std::unique_ptr<TraceSink> sink = create_trace(path, sample_run(kHistorySeed));
    add_start(*sink, kHistorySeed);
    std::vector<double> written;
    for (uint64_t step = 0; step < 100; ++step) {
      // The tensor has one element, whose square FP64 holds.
      const int exponent = static_cast<int>(step) - 50;
      const double magnitude =
          std::ldexp(!holds_all && step == 57 ? 1 + 0x1p-25 : 1 + 0x1p-23 * static_cast<double>(step), exponent);
      TensorRow row;
      row.step = step;
      row.known = StatisticsLevel::values;
      TensorStatistics& statistics = row.statistics;
      statistics.count = 1;
      statistics.histogram.bins[static_cast<size_t>(exponent + ExponentHistogram::kBias)] = 1;
      statistics.smallest = statistics.largest = statistics.sum = magnitude;
      statistics.sum_of_squares = magnitude * magnitude;
      sink->add_row(row);
      StepRow end;
      end.step = step;
      sink->end_step(end);
      written.push_back(magnitude);
    }
    sink->close();
    const RunSet run(path, {.row_bytes = GetParam()});
    const Snapshot snapshot = run.snapshot();
    EXPECT_EQ(snapshot.column<double>("largest"), written);
    EXPECT_EQ(snapshot.history<double>(0, "smallest"), written);
    std::vector<double> visited;
    snapshot.visit_rows({}, [&](std::span<const TensorRow> rows) {
      for (const TensorRow& row : rows) visited.push_back(row.statistics.largest);
      return true;
    });
    EXPECT_EQ(visited, written);
  }
}

}  // namespace
}  // namespace ulpscope::trace_test
