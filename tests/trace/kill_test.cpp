// A writer that is killed leaves every step whole that it had acknowledged.
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "sample_trace.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/trace/recover.h"
#include "writer_control.h"

namespace ulpscope::trace_test {
namespace {

// Kills writers after the acknowledgement of step k, k from the seed, while they go on writing as fast as they can.
void kill_writers(uint64_t trials, uint64_t seed) {
  const Philox random(seed, 0);
  for (uint64_t trial = 0; trial < trials; ++trial) {
    TemporaryFolder folder;
    const std::string path = folder.file("run.h5");
    const uint64_t k = 1 + random.below(trial, 400);
    SCOPED_TRACE(testing::Message() << "trial " << trial << ", killed after step " << k);
    // A small queue and an interval of a millisecond: a commit is nearly always on its way.
    WriterProcess writer(path, trial, 1, 200000);
    writer.wait_for("ready");
    writer.send("run");
    writer.wait_for_steps(k);
    const uint64_t acknowledged = writer.kill();
    ASSERT_GE(acknowledged, k);

    const Snapshot reader(path);
    EXPECT_EQ(reader.writer_state(), WriterState::dead);
    ASSERT_GE(reader.step_count(), acknowledged);
    ASSERT_EQ(read_lines(reader), expected_lines(trial, reader.step_count()));
  }
}

TEST(KilledWriter, LeavesEveryAcknowledgedStepWhole) { kill_writers(5, 1); }
TEST(KilledWriter, SlowLeavesEveryAcknowledgedStepWholeFiftyTimes) { kill_writers(50, 2); }

// The same at every place where it can happen: before the n-th write to the file.
void die_at_writes(const std::vector<uint64_t>& writes) {
  for (const uint64_t write : writes) {
    SCOPED_TRACE(testing::Message() << "killed before write " << write);
    TemporaryFolder folder;
    const std::string path = folder.file("run.h5");
    WriterProcess writer(path, 3);
    writer.wait_for("ready");
    writer.call("die_at " + std::to_string(write));
    writer.send("batches 30");
    while (!writer.wait_for("committed ").empty()) {
    }
    const uint64_t acknowledged = writer.kill();
    const Snapshot reader(path);
    ASSERT_GE(reader.step_count(), acknowledged);
    ASSERT_EQ(read_lines(reader), expected_lines(3, reader.step_count()));
  }
}

// A commit takes some 150 writes and moves some tails into place.
TEST(KilledWriter, LeavesWholeStepsWhereverItDies) {
  std::vector<uint64_t> writes;
  for (uint64_t i = 0; i < 25; ++i) writes.push_back(1 + Philox(4, 0).below(i, 700));
  die_at_writes(writes);
}
TEST(KilledWriter, SlowLeavesWholeStepsWhereverItDies) {
  std::vector<uint64_t> writes;
  for (uint64_t write = 1; write < 1500; write += 7) writes.push_back(write);
  die_at_writes(writes);
}

TEST(KilledWriter, LeavesTheOlderTraceWhereItHadNotStarted) {
  // The new trace takes the name of the old one only once it is good: nothing of the old one is touched before.
  TemporaryFolder folder;
  const std::string path = folder.file("run.h5");
  WriterProcess first(path, 5);
  first.wait_for("ready");
  first.call("steps 3");
  first.kill();
  WriterProcess second(path, 6);
  EXPECT_THROW(second.wait_for("ready"), std::runtime_error);  // exists
  EXPECT_EQ(read_lines(Snapshot(path)), expected_lines(5, 3));
}

TEST(KilledWriter, RecoveryNeverChangesTheSource) {
  TemporaryFolder folder;
  const std::string path = folder.file("run.h5");
  WriterProcess writer(path, 7);
  writer.wait_for("ready");
  writer.call("steps 70");
  writer.kill();
  const std::string before = read_file(path);
  recover_trace(path, folder.file("copy.h5"));
  EXPECT_EQ(read_file(path), before);
  // A target that cannot be written leaves nothing behind, and the source as it was.
  EXPECT_THROW(recover_trace(path, path), Error);
  EXPECT_THROW(recover_trace(path, folder.file("missing/copy.h5")), Error);
  EXPECT_EQ(read_file(path), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
  // In place, once asked for.
  recover_trace(path, path, true);
  EXPECT_EQ(Snapshot(path).writer_state(), WriterState::closed);
  EXPECT_EQ(read_lines(Snapshot(path)), expected_lines(7, 70));
}

}  // namespace
}  // namespace ulpscope::trace_test
