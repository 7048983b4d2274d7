// A reader follows a writer in another process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>

#include "sample_trace.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "ulpscope/trace/run_set.h"
#include "writer_control.h"

namespace ulpscope::trace_test {
namespace {

constexpr uint64_t kLiveSeed = 31;

TEST(LiveTrace, RefreshSeesCommittedStepsAndTheWritersEnd) {
  TemporaryFolder folder;
  const std::string path = folder.file("run.h5");
  WriterProcess writer(path, kLiveSeed);
  writer.wait_for("ready");
  RunSet run(path);
  const Snapshot empty = run.snapshot();
  EXPECT_EQ(empty.step_count(), 0u);
  EXPECT_EQ(empty.writer_state(), WriterState::alive);
  EXPECT_FALSE(run.refresh());
  uint64_t steps = 0;
  for (const uint64_t more : {1, 9, 40, 100, 1, 3}) {
    writer.call("steps " + std::to_string(more));
    steps += more;
    EXPECT_TRUE(run.refresh());
    EXPECT_EQ(run.snapshot().step_count(), steps);
    ASSERT_EQ(read_lines(run.snapshot()), expected_lines(kLiveSeed, steps));
    EXPECT_FALSE(run.refresh());
  }
  writer.call("unended");
  EXPECT_FALSE(run.refresh());
  EXPECT_EQ(run.snapshot().writer_state(), WriterState::alive);
  writer.kill();
  EXPECT_TRUE(run.refresh());
  EXPECT_EQ(run.snapshot().writer_state(), WriterState::dead);
  EXPECT_FALSE(run.refresh());
  EXPECT_EQ(read_lines(run.snapshot()), expected_lines(kLiveSeed, steps));
  EXPECT_EQ(empty.step_count(), 0u);
  EXPECT_EQ(empty.writer_state(), WriterState::alive);
}

TEST(LiveTrace, RefreshSeesThatAnotherFileIsInItsPlace) {
  TemporaryFolder folder;
  const std::string path = folder.file("run.h5"), other = folder.file("other.h5");
  WriterProcess writer(path, kLiveSeed);
  writer.wait_for("ready");
  writer.call("steps 5");
  RunSet run(path);
  const Snapshot snapshot = run.snapshot();
  const auto error_of_refresh = [&]() -> std::string {
    try {
      run.refresh();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unreadable);
      return error.what();
    }
    return "none";
  };
  std::filesystem::rename(path, other);
  EXPECT_THAT(error_of_refresh(), ::testing::HasSubstr("run.h5' was removed while it was read"));
  std::filesystem::copy_file(other, path);
  EXPECT_THAT(error_of_refresh(), ::testing::HasSubstr("run.h5' was replaced by another file while it was read"));
  EXPECT_EQ(read_lines(snapshot), expected_lines(kLiveSeed, 5)) << "what was read stays";
}

// Nobody writes to a trace once its writer has ended: what changes then is no longer what was opened.
TEST(LiveTrace, RefreshSeesThatAnEndedTraceWasChanged) {
  const auto error_after = [](bool is_killed, const std::function<void(const std::string& path)>& change) -> std::string {
    TemporaryFolder folder;
    const std::string path = folder.file("run.h5");
    WriterProcess writer(path, kLiveSeed);
    writer.wait_for("ready");
    writer.call("steps 5");
    if (is_killed) {
      writer.kill();
    } else {
      writer.call("close");
      EXPECT_EQ(writer.finish(), 0);
    }
    RunSet run(path);
    EXPECT_FALSE(run.refresh()) << "it stays as it is";
    change(path);
    try {
      run.refresh();
      return "none";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unreadable);
      EXPECT_THROW(read_lines(run.snapshot()), Error) << "what was not read yet would be of another file";
      return error.what();
    }
  };
  const auto halve = [](const std::string& path) { std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2); };
  const auto overwrite = [](const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file << "other bytes";
  };
  for (const bool is_killed : {false, true}) {
    EXPECT_THAT(error_after(is_killed, halve), ::testing::HasSubstr("run.h5' was truncated while it was read: it has "));
    EXPECT_THAT(error_after(is_killed, overwrite), ::testing::HasSubstr("run.h5' was changed while it was read"));
  }
}

TEST(LiveTrace, RefreshSeesTheCloseOfATrace) {
  TemporaryFolder folder;
  const std::string path = folder.file("run.h5");
  WriterProcess writer(path, kLiveSeed);
  writer.wait_for("ready");
  RunSet run(path);
  writer.call("steps 55");
  writer.call("close");
  EXPECT_EQ(writer.finish(), 0);
  EXPECT_TRUE(run.refresh());
  EXPECT_EQ(run.snapshot().writer_state(), WriterState::closed);
  EXPECT_EQ(read_lines(run.snapshot()), expected_lines(kLiveSeed, 55));
}

// What was handed out stays as it was, rows that were in tails included, while the trace grows and is closed, and in other threads.
TEST(LiveTrace, SnapshotsStayAsTheyWere) {
  TemporaryFolder folder;
  const std::string path = folder.file("run.h5");
  WriterProcess writer(path, kLiveSeed);
  writer.wait_for("ready");
  RunSet run(path);
  std::vector<std::pair<uint64_t, Snapshot>> handed_out;
  uint64_t steps = 0;
  for (const uint64_t more : {1, 30, 40, 9}) {
    writer.call("steps " + std::to_string(more));
    steps += more;
    ASSERT_TRUE(run.refresh());
    handed_out.emplace_back(steps, run.snapshot());
  }
  const std::vector<EventRow>& events = handed_out[1].second.events();
  const size_t event_count = events.size();
  const OpGraph& graph = handed_out[0].second.graph();
  std::atomic<bool> stop = false;
  std::atomic<int> differences = 0, reads = 0;
  std::thread other([&] {
    while (!stop || reads == 0) {
      for (const auto& [count, snapshot] : handed_out) differences += read_lines(snapshot) != expected_lines(kLiveSeed, count);
      ++reads;
    }
  });
  for (int i = 0; i < 5; ++i) {
    writer.call("steps 40");
    EXPECT_TRUE(run.refresh());
  }
  writer.call("close");
  EXPECT_EQ(writer.finish(), 0);
  EXPECT_TRUE(run.refresh());
  stop = true;
  other.join();
  EXPECT_EQ(differences, 0);
  for (const auto& [count, snapshot] : handed_out) EXPECT_EQ(read_lines(snapshot), expected_lines(kLiveSeed, count));
  EXPECT_EQ(events.size(), event_count);
  EXPECT_EQ(&graph, &handed_out[0].second.graph());
  EXPECT_EQ(&graph, &run.snapshot().graph());  // no edge came since
  EXPECT_EQ(&handed_out[0].second.tensors(), &run.snapshot().tensors());
  EXPECT_EQ(read_lines(run.snapshot()), expected_lines(kLiveSeed, steps + 200));
}

// Tails are overwritten all the time while they are read.
TEST(LiveTrace, WhatIsReadIsWholeWhileTheWriterRuns) {
  constexpr uint64_t kSteps = 3000;
  TemporaryFolder folder;
  const std::string path = folder.file("run.h5");
  WriterProcess writer(path, kLiveSeed, 1, 100000);
  writer.wait_for("ready");
  RunSet follower(path);
  writer.send("steps " + std::to_string(kSteps));
  while (follower.snapshot().step_count() < kSteps) {
    if (!follower.refresh()) continue;
    const Snapshot followed = follower.snapshot(), opened(path);
    for (const Snapshot* reader : {&followed, &opened}) {
      // The newest steps, some of them from tails.
      const uint64_t steps = reader->step_count(), first = steps - std::min<uint64_t>(steps, 3);
      Lines lines, expected;
      reader->visit_rows({first, UINT64_MAX}, [&](std::span<const TensorRow> rows) {
        for (const TensorRow& row : rows) lines.push_back(line(row));
        return true;
      });
      for (uint64_t step = first; step < steps; ++step) {
        for (const TensorRow& row : sample_step(kLiveSeed, step).rows) expected.push_back(line(row));
      }
      ASSERT_EQ(lines, expected);
    }
  }
  EXPECT_EQ(writer.wait_for("done"), "");
}

}  // namespace
}  // namespace ulpscope::trace_test
