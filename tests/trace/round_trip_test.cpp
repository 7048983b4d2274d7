// What is read is what was written: every field, every table, in the same process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sample_trace.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "ulpscope/trace/packed_rows.h"
#include "ulpscope/trace/recover.h"
#include "ulpscope/trace/run_set.h"
#include "ulpscope/trace/schema.h"

namespace ulpscope::trace_test {
namespace {

constexpr uint64_t kRoundTripSeed = 11;

class RoundTrip : public testing::Test {
 protected:
  std::unique_ptr<TraceSink> write(uint64_t steps, const TraceOptions& options = {}) {
    auto sink = create_trace(path_, sample_run(kRoundTripSeed), options);
    add_start(*sink, kRoundTripSeed);
    for (uint64_t step = 0; step < steps; ++step) add_step(*sink, kRoundTripSeed, step);
    return sink;
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.file("run.h5");
};

TEST_F(RoundTrip, EveryFieldOfAClosedTrace) {
  // 300 steps of 41 rows: six chunks of tensor rows and a rest, several of histograms and samples.
  constexpr uint64_t kSteps = 300;
  const auto sink = write(kSteps);
  EXPECT_TRUE(sink->close());
  const SinkStatus status = sink->status();
  EXPECT_FALSE(status.failed);
  EXPECT_EQ(status.committed_steps, kSteps);
  EXPECT_EQ(status.tensor_rows, kSteps * 41);
  EXPECT_GT(status.writer_seconds, 0);

  const Snapshot reader(path_);
  EXPECT_EQ(status.bytes, reader.file_bytes());
  EXPECT_EQ(reader.path(), path_);
  EXPECT_EQ(reader.writer_state(), WriterState::closed);
  EXPECT_EQ(reader.step_count(), kSteps);
  EXPECT_EQ(reader.tensor_row_count(), kSteps * 41);
  EXPECT_EQ(read_lines(reader), expected_lines(kRoundTripSeed, kSteps));
}

TEST_F(RoundTrip, OfRowsThatWereHeldAsBytes) {
  const auto sink = write(0);
  for (uint64_t number = 0; number < 60; ++number) {
    const Step step = sample_step(kRoundTripSeed, number);
    PackedRows packed;
    const auto add = [&](const auto& rows) {
      for (const auto& row : rows) packed.add(row);
    };
    add(step.rows);
    add(step.batches);
    add(step.parameters);
    add(step.fingerprints);
    add(step.captures);
    add(step.samples);
    add(step.measures);
    add(step.sums);
    add(step.bits);
    EXPECT_EQ(packed.rows().tensors, step.rows.size());
    EXPECT_EQ(packed.rows().samples, step.samples.size());
    packed.write(*sink);
    for (const EventRow& event : step.events) sink->add_event(event);
    sink->end_step(step.row);
  }
  EXPECT_TRUE(sink->close());
  EXPECT_EQ(read_lines(Snapshot(path_)), expected_lines(kRoundTripSeed, 60));
}

TEST_F(RoundTrip, FromTailsWhileTheWriterIsAlive) {
  const auto sink = write(100);
  EXPECT_TRUE(sink->flush());
  EXPECT_EQ(sink->status().committed_steps, 100u);
  RunSet run(path_);
  EXPECT_EQ(run.snapshot().writer_state(), WriterState::alive);
  EXPECT_EQ(read_lines(run.snapshot()), expected_lines(kRoundTripSeed, 100));
  for (uint64_t step = 100; step < 170; ++step) add_step(*sink, kRoundTripSeed, step);
  sink->flush();
  EXPECT_TRUE(run.refresh());
  EXPECT_FALSE(run.refresh());
  EXPECT_EQ(read_lines(run.snapshot()), expected_lines(kRoundTripSeed, 170));
  EXPECT_TRUE(sink->close());
  EXPECT_TRUE(run.refresh());
  EXPECT_EQ(run.snapshot().writer_state(), WriterState::closed);
  EXPECT_EQ(read_lines(run.snapshot()), expected_lines(kRoundTripSeed, 170));
}

TEST_F(RoundTrip, ATraceWithoutSteps) {
  write(0)->close();
  const Snapshot reader(path_);
  EXPECT_EQ(reader.run().experiment, sample_run(kRoundTripSeed).experiment);
  EXPECT_EQ(reader.step_count(), 0u);
  EXPECT_EQ(reader.ops().size(), sample_ops(kRoundTripSeed).size());
  reader.visit_rows({}, [](std::span<const TensorRow>) {
    ADD_FAILURE() << "a row";
    return true;
  });
}

// The estimate is an upper bound and off by a tenth at most, so that the size limits that it rules out could not be kept.
TEST_F(RoundTrip, ATraceWithoutStepsIsAsLargeAsSaid) {
  create_trace(path_, RunInfo{})->close();
  const uint64_t bytes = Snapshot(path_).file_bytes();
  EXPECT_LE(bytes, empty_trace_bytes());
  EXPECT_LE(empty_trace_bytes(), bytes + bytes / 10);
}

// Magnitudes are not compressed, and a chunk of rows that have none does not exist: the first row that has makes one, of which rows
// at level health alone foretell nothing.
TEST_F(RoundTrip, ChunksOfMagnitudesAreForetoldWhereRowsHaveThem) {
  const uint64_t chunk = spec(TableId::stats).chunk_rows, magnitudes = 4 * chunk * sizeof(double),
                 histograms = spec(TableId::histograms).chunk_rows;
  const auto sink = create_trace(path_, RunInfo{});
  sink->add_op({});
  sink->add_tensor({});
  TensorRow row;
  row.statistics.count = 7;
  const auto add = [&](StatisticsLevel known, uint64_t rows) {
    row.known = known;
    row.statistics.smallest = row.statistics.largest = row.statistics.sum = row.statistics.sum_of_squares =
        known == StatisticsLevel::values ? 1.5 : 0;
    for (uint64_t i = 0; i < rows; ++i) sink->add_row(row);
  };
  add(StatisticsLevel::values, 8 * chunk);  // more than the free room of a new trace
  add(StatisticsLevel::health, chunk + 50);
  sink->end_step({});
  EXPECT_TRUE(sink->flush());
  // Without magnitudes, and with them and with the first chunk of histograms, which is not compressed either.
  const MoreRows at_health{.tensors = 10}, with_values{.tensors = 10, .histograms = 10};
  const uint64_t before = sink->closed_bytes(at_health), foretold = sink->closed_bytes(with_values);
  EXPECT_GE(foretold, before + magnitudes + histograms);
  // In the chunk that the rows at health began.
  row.step = 1;
  add(StatisticsLevel::values, 1);
  EXPECT_GE(sink->closed_bytes(at_health), before + magnitudes);
  StepRow step;
  step.step = 1;
  sink->end_step(step);
  EXPECT_TRUE(sink->flush());
  EXPECT_GE(sink->closed_bytes(at_health), before + magnitudes);
  EXPECT_LT(sink->closed_bytes(with_values), sink->closed_bytes(at_health) + magnitudes + histograms) << "the chunk is there";
  sink->close();
  EXPECT_LE(Snapshot(path_).file_bytes(), foretold);
}

// Never less than what it becomes, and after a flush not much more.
TEST_F(RoundTrip, TheSizeOfTheClosedTraceIsForetold) {
  for (const uint64_t steps : {0u, 1u, 30u, 170u, 400u}) {
    SCOPED_TRACE(steps);
    TraceOptions options;
    options.overwrite = true;
    const auto sink = write(steps, options);
    const uint64_t before_flush = sink->closed_bytes({});
    sink->flush();
    const uint64_t foretold = sink->closed_bytes({});
    for (const MoreRows& more : {MoreRows{.tensors = 1}, MoreRows{.histograms = 1}, MoreRows{.samples = 1}, MoreRows{.batches = 1},
                                 MoreRows{.parameters = 1}, MoreRows{.fingerprints = 1}, MoreRows{.sums = 1}, MoreRows{.bits = 1}})
      EXPECT_GE(sink->closed_bytes(more), foretold);
    sink->close();
    const uint64_t bytes = Snapshot(path_).file_bytes();
    EXPECT_GE(before_flush, bytes);
    EXPECT_GE(foretold, bytes);
    EXPECT_LE(foretold, bytes + bytes / 10);
  }
}

TEST_F(RoundTrip, HistogramsAreLeftOutWhereNotWanted) {
  write(60)->close();
  const Snapshot reader(path_);
  Lines lines, expected;
  reader.visit_rows_without_histograms({}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) lines.push_back(line(row));
    return true;
  });
  for (uint64_t step = 0; step < 60; ++step) {
    for (TensorRow row : sample_step(kRoundTripSeed, step).rows) {
      row.statistics.histogram.bins.fill(0);
      expected.push_back(line(row));
    }
  }
  EXPECT_EQ(lines, expected);
}

TEST_F(RoundTrip, StepRangesFindTheirRows) {
  write(260)->close();
  const Snapshot reader(path_);
  const std::vector<StepRange> ranges = {{0, 1},     {0, 260},   {5, 6},          {49, 51},         {259, 260}, {259, UINT64_MAX},
                                         {260, 300}, {100, 100}, {UINT64_MAX, 0}, {99, UINT64_MAX}, {7, 3}};
  for (const StepRange range : ranges) {
    Lines rows, expected, steps, expected_steps;
    reader.visit_rows(range, [&](std::span<const TensorRow> batch) {
      for (const TensorRow& row : batch) rows.push_back(line(row));
      return true;
    });
    reader.visit_steps(range, [&](std::span<const StepRow> batch) {
      for (const StepRow& row : batch) steps.push_back(line(row));
      return true;
    });
    for (uint64_t step = range.first; step < std::min<uint64_t>(range.last, 260); ++step) {
      const Step sample = sample_step(kRoundTripSeed, step);
      for (const TensorRow& row : sample.rows) expected.push_back(line(row));
      expected_steps.push_back(line(sample.row));
    }
    EXPECT_EQ(rows, expected) << range.first << " " << range.last;
    EXPECT_EQ(steps, expected_steps) << range.first << " " << range.last;
  }
  EXPECT_EQ(reader.captures({2, 3}).size(), sample_step(kRoundTripSeed, 2).captures.size());
  EXPECT_TRUE(reader.captures({3, 9}).empty());
}

TEST_F(RoundTrip, VisitorsCanStopAndSeeBoundedSpans) {
  write(300)->close();
  const Snapshot reader(path_);
  size_t calls = 0, largest = 0;
  reader.visit_rows({}, [&](std::span<const TensorRow> rows) {
    largest = std::max(largest, rows.size());
    return ++calls < 3;
  });
  EXPECT_EQ(calls, 3u);
  EXPECT_LE(largest, 1024u);
}

TEST_F(RoundTrip, AnUnendedStepIsNotSeenButItsEventsAre) {
  const auto sink = write(3);
  const Step step = sample_step(kRoundTripSeed, 3);
  for (const TensorRow& row : step.rows) sink->add_row(row);
  for (const SampleRow& row : step.samples) sink->add_sample(row);
  sink->add_event({3, EventKind::metric, -1, 0, 0, 0, 0.5, "test_accuracy"});
  sink->flush();
  EXPECT_EQ(read_lines(Snapshot(path_)), expected_lines(kRoundTripSeed, 3));
  sink->close();
  TraceLines expected = expected_lines(kRoundTripSeed, 3);
  const Snapshot reader(path_);
  TraceLines lines = read_lines(reader);
  ASSERT_EQ(lines.events.size(), expected.events.size() + 1);
  EXPECT_EQ(reader.events().back().text, "test_accuracy");
  lines.events.pop_back();
  EXPECT_EQ(lines, expected);
}

TEST_F(RoundTrip, AFullQueueWaitsAndLosesNothing) {
  TraceOptions options;
  options.queue_bytes = 5000;  // less than one step
  const auto sink = write(120, options);
  EXPECT_LE(sink->status().queue_fill, 1.0);
  EXPECT_TRUE(sink->close());
  EXPECT_EQ(read_lines(Snapshot(path_)), expected_lines(kRoundTripSeed, 120));
}

TEST_F(RoundTrip, CommitsAreAnnouncedInOrder) {
  TraceOptions options;
  options.flush_interval = std::chrono::milliseconds(1);
  std::vector<uint64_t> announced;
  options.on_commit = [&](uint64_t steps) { announced.push_back(steps); };
  const auto sink = write(0, options);
  for (uint64_t step = 0; step < 20; ++step) {
    add_step(*sink, kRoundTripSeed, step);
    if (step % 5 == 4) sink->flush();
  }
  sink->close();
  ASSERT_FALSE(announced.empty());
  EXPECT_EQ(announced.back(), 20u);
  EXPECT_TRUE(std::is_sorted(announced.begin(), announced.end()));
}

TEST_F(RoundTrip, CallsAfterCloseDoNothing) {
  const auto sink = write(2);
  EXPECT_TRUE(sink->close());
  add_step(*sink, kRoundTripSeed, 2);
  EXPECT_TRUE(sink->flush());
  EXPECT_TRUE(sink->close());
  EXPECT_EQ(Snapshot(path_).step_count(), 2u);
}

// Such chunks are not stored, in uncompressed columns either.
TEST_F(RoundTrip, ChunksOfZerosAreRead) {
  const auto sink = write(0);
  TensorRow row;
  for (uint64_t step = 0; step < 5000; ++step) {
    row.step = step;
    // Of three chunks the second holds something in its uncompressed columns.
    row.statistics.smallest = row.statistics.largest = step == 3000 ? 1.0 : 0.0;
    sink->add_row(row);
    sink->end_step(StepRow{.step = step});
  }
  EXPECT_TRUE(sink->close());
  const Snapshot reader(path_);
  for (const uint64_t first : {0, 100, 2500, 4999}) {
    std::vector<uint64_t> found;
    uint64_t next = first;
    reader.visit_rows({first, UINT64_MAX}, [&](std::span<const TensorRow> rows) {
      for (const TensorRow& each : rows) {
        EXPECT_EQ(each.step, next++);
        if (each.statistics.smallest != 0) found.push_back(each.step);
      }
      return true;
    });
    EXPECT_EQ(next, 5000u);
    EXPECT_EQ(found, first <= 3000 ? std::vector<uint64_t>{3000} : std::vector<uint64_t>());
  }
}

TEST_F(RoundTrip, RecoveredTracesAreEqual) {
  const std::string copy = folder_.file("copy.h5"), second = folder_.file("second.h5");
  const auto sink = write(150);
  sink->flush();
  RecoverResult result = recover_trace(path_, copy);
  EXPECT_EQ(result.steps, 150u);
  EXPECT_EQ(result.tensor_rows, 150u * 41);
  EXPECT_EQ(result.lost_steps, 0u);
  EXPECT_TRUE(result.losses.empty());
  const Snapshot reader(copy);
  EXPECT_EQ(reader.writer_state(), WriterState::closed);
  EXPECT_EQ(reader.closing_note(), "copied while the trace was being written");
  EXPECT_EQ(read_lines(reader), expected_lines(kRoundTripSeed, 150));
  sink->close();
  recover_trace(path_, second);
  EXPECT_EQ(Snapshot(second).closing_note(), "");
  EXPECT_EQ(read_lines(Snapshot(second)), expected_lines(kRoundTripSeed, 150));
  // Onto itself.
  recover_trace(copy, copy, true);
  EXPECT_EQ(read_lines(Snapshot(copy)), expected_lines(kRoundTripSeed, 150));
}

}  // namespace
}  // namespace ulpscope::trace_test
