// A trace that somebody cuts while it is written: recording ends with one reason, and the producer goes on to its end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "sample_trace.h"
#include "tests/support/temporary_folder.h"
#include "writer_control.h"

namespace ulpscope::trace_test {
namespace {

constexpr uint64_t kCutSeed = 43;

// Cut between two steps, at places that hold what HDF5 reads (a header, the index of a column, a tail) or nothing of it.
TEST(CutWhileWritten, RecordingEndsAndTheProducerGoesOn) {
  for (const uint64_t bytes : {0, 100, 50000, 300000, 700000, 1100000}) {
    SCOPED_TRACE(bytes);
    TemporaryFolder folder;
    const std::string path = folder.file("run.h5");
    WriterProcess writer(path, kCutSeed, 5, 200000);
    writer.wait_for("ready");
    writer.call("steps 200");
    const uint64_t before = std::filesystem::file_size(path);
    ASSERT_GT(before, bytes);
    std::filesystem::resize_file(path, bytes);
    writer.send("until_failed");
    EXPECT_EQ(writer.wait_for("failed "), "recording stopped after 200 steps: '" + path +
                                              "' was truncated while it was written: it has " + std::to_string(bytes) + " of " +
                                              std::to_string(before) + " bytes");
    writer.call("steps 5");
    writer.call("close");
    EXPECT_EQ(writer.finish(), 1);
  }
}

// While HDF5 or the writer itself is about to write: neither waits for what is no longer there.
TEST(CutWhileWritten, NoWriteWaitsForWhatIsCutAway) {
  for (uint64_t write = 1; write < 400; write += 37) {
    SCOPED_TRACE(write);
    TemporaryFolder folder;
    WriterProcess writer(folder.file("run.h5"), kCutSeed, 5, 200000);
    writer.wait_for("ready");
    writer.call("steps 10");
    writer.call("cut_at " + std::to_string(write) + " 20000");
    writer.call("steps 600");
    writer.call("close");
    // Where the cut went unseen, the trace was closed.
    EXPECT_LE(writer.finish(), 1);
  }
}

TEST(CutWhileWritten, ClosingEndsToo) {
  TemporaryFolder folder;
  const std::string path = folder.file("run.h5");
  WriterProcess writer(path, kCutSeed);
  writer.wait_for("ready");
  writer.call("steps 180");
  std::filesystem::resize_file(path, 300000);
  writer.call("close");
  EXPECT_EQ(writer.finish(), 1);
}

}  // namespace
}  // namespace ulpscope::trace_test
