// A reader follows a writer in another process.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "sample_trace.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "writer_control.h"

namespace ulpscope::trace_test {
namespace {

constexpr uint64_t kSeed = 31;

TEST(LiveTrace, RefreshSeesCommittedStepsAndTheWritersEnd) {
  TemporaryFolder folder;
  const std::string path = folder.file("run.h5");
  WriterProcess writer(path, kSeed);
  writer.wait_for("ready");
  Snapshot reader(path);
  EXPECT_EQ(reader.step_count(), 0u);
  EXPECT_EQ(reader.writer_state(), WriterState::alive);
  EXPECT_FALSE(reader.refresh());
  uint64_t steps = 0;
  for (const uint64_t more : {1, 9, 40, 100, 1, 3}) {
    writer.call("steps " + std::to_string(more));
    steps += more;
    EXPECT_TRUE(reader.refresh());
    EXPECT_EQ(reader.step_count(), steps);
    ASSERT_EQ(read_lines(reader), expected_lines(kSeed, steps));
    EXPECT_FALSE(reader.refresh());
  }
  writer.call("unended");
  EXPECT_FALSE(reader.refresh());
  EXPECT_EQ(reader.writer_state(), WriterState::alive);
  writer.kill();
  EXPECT_EQ(reader.writer_state(), WriterState::dead);
  EXPECT_FALSE(reader.refresh());
  EXPECT_EQ(read_lines(reader), expected_lines(kSeed, steps));
}

TEST(LiveTrace, AReaderSeesTheCloseOfATrace) {
  TemporaryFolder folder;
  const std::string path = folder.file("run.h5");
  WriterProcess writer(path, kSeed);
  writer.wait_for("ready");
  Snapshot reader(path);
  writer.call("steps 55");
  writer.call("close");
  EXPECT_EQ(writer.finish(), 0);
  EXPECT_EQ(reader.writer_state(), WriterState::closed);
  EXPECT_TRUE(reader.refresh());
  EXPECT_EQ(reader.writer_state(), WriterState::closed);
  EXPECT_EQ(read_lines(reader), expected_lines(kSeed, 55));
}

// Tails are overwritten all the time while they are read.
TEST(LiveTrace, WhatIsReadIsWholeWhileTheWriterRuns) {
  constexpr uint64_t kSteps = 3000;
  TemporaryFolder folder;
  const std::string path = folder.file("run.h5");
  WriterProcess writer(path, kSeed, 1, 100000);
  writer.wait_for("ready");
  Snapshot follower(path);
  writer.send("steps " + std::to_string(kSteps));
  while (follower.step_count() < kSteps) {
    if (!follower.refresh()) continue;
    const Snapshot opened(path);
    for (const Snapshot* reader : {&std::as_const(follower), &opened}) {
      // The newest steps, some of them from tails.
      const uint64_t steps = reader->step_count(), first = steps - std::min<uint64_t>(steps, 3);
      Lines lines, expected;
      reader->visit_rows({first, UINT64_MAX}, [&](std::span<const TensorRow> rows) {
        for (const TensorRow& row : rows) lines.push_back(line(row));
        return true;
      });
      for (uint64_t step = first; step < steps; ++step) {
        for (const TensorRow& row : sample_step(kSeed, step).rows) expected.push_back(line(row));
      }
      ASSERT_EQ(lines, expected);
    }
  }
  EXPECT_EQ(writer.wait_for("done"), "");
}

}  // namespace
}  // namespace ulpscope::trace_test
