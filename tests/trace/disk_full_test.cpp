// A disk that is full, played by RLIMIT_FSIZE: the producer goes on, and the trace says where recording stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "sample_trace.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "ulpscope/trace/recover.h"
#include "writer_control.h"

namespace ulpscope::trace_test {
namespace {

constexpr uint64_t kDiskFullSeed = 41;

TEST(DiskFull, TheTraceStaysReadableAndSaysWhereItStopped) {
  // Limits at which different writes are the first to fail: tails lie below a megabyte, chunks above.
  for (const uint64_t limit : {1100000, 1310720, 2000000, 3333333}) {
    SCOPED_TRACE(limit);
    TemporaryFolder folder;
    const std::string path = folder.file("run.h5");
    WriterProcess writer(path, kDiskFullSeed, 5, 200000);
    writer.wait_for("ready");
    writer.call("steps 10");
    writer.call("limit " + std::to_string(limit));
    writer.send("until_failed");
    const std::string failure = writer.wait_for("failed ");
    EXPECT_THAT(failure, testing::HasSubstr("File too large"));
    EXPECT_THAT(failure, testing::HasSubstr("'" + path + "'"));
    EXPECT_THAT(failure, testing::StartsWith("recording stopped after "));

    // While the process goes on.
    const Snapshot reader(path);
    EXPECT_EQ(reader.writer_state(), WriterState::dead);
    EXPECT_EQ(reader.closing_note(), failure);
    EXPECT_GE(reader.step_count(), 10u);
    ASSERT_EQ(read_lines(reader), expected_lines(kDiskFullSeed, reader.step_count()));
    writer.call("steps 5");
    writer.send("close");
    // Rows that came after the failure, or were never committed, do not count.
    EXPECT_EQ(writer.wait_for("rows "), std::to_string(reader.tensor_row_count()));
    writer.wait_for("done");
    EXPECT_EQ(writer.finish(), 1);

    // Nothing was written after the failure.
    const uint64_t steps = reader.step_count();
    ASSERT_EQ(read_lines(Snapshot(path)), expected_lines(kDiskFullSeed, steps));
    const std::string copy = folder.file("copy.h5");
    EXPECT_EQ(recover_trace(path, copy).steps, steps);
    EXPECT_EQ(Snapshot(copy).closing_note(), failure);
    EXPECT_EQ(Snapshot(copy).writer_state(), WriterState::closed);
    ASSERT_EQ(read_lines(Snapshot(copy)), expected_lines(kDiskFullSeed, steps));
  }
}

TEST(DiskFull, ClosingCanFailToo) {
  TemporaryFolder folder;
  const std::string path = folder.file("run.h5");
  WriterProcess writer(path, kDiskFullSeed);
  writer.wait_for("ready");
  writer.call("steps 180");
  // The room before the tails is taken. The last rows are in tails, and no chunk can be written any more.
  writer.call("limit " + std::to_string(std::filesystem::file_size(path)));
  writer.call("close");
  EXPECT_EQ(writer.finish(), 1);
  const Snapshot reader(path);
  EXPECT_THAT(reader.closing_note(), testing::StartsWith("recording stopped after 180 steps: "));
  EXPECT_EQ(read_lines(reader), expected_lines(kDiskFullSeed, 180));
}

}  // namespace
}  // namespace ulpscope::trace_test
