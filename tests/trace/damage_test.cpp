// Damaged traces give an Error or what was written, and never a crash: rows, indices and commit records all carry checksums.
#include <gtest/gtest.h>

#include "sample_trace.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/philox.h"
#include "writer_control.h"

namespace ulpscope::trace_test {
namespace {

constexpr uint64_t kDamagedSeed = 51, kDamagedSteps = 60;

// Opens and reads everything. True: it could be read, and is right.
bool readable(const std::string& path, const TraceLines& expected) {
  try {
    const Snapshot reader(path);
    // Where the newer commit record is damaged, the older one counts: fewer steps, and they are whole.
    const uint64_t steps = reader.step_count();
    EXPECT_TRUE(read_lines(reader) == (steps == kDamagedSteps ? expected : expected_lines(kDamagedSeed, steps)));
    reader.closing_note();
    reader.writer_state();
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unreadable) << error.what();
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    return false;
  }
}

class Damage : public testing::TestWithParam<bool> {
 protected:
  // A closed trace, or one whose writer was killed.
  std::string make() {
    const std::string path = folder_.file("run.h5");
    WriterProcess writer(path, kDamagedSeed);
    writer.wait_for("ready");
    writer.call("steps " + std::to_string(kDamagedSteps));
    if (GetParam()) {
      writer.call("close");
      writer.finish();
    } else {
      writer.kill();
    }
    return read_file(path);
  }

  void flip_bits(uint32_t first, uint32_t last) {
    const std::string good = make();
    const Philox random(kDamagedSeed, GetParam());
    uint32_t unreadable = 0;
    for (uint32_t trial = first; trial < last; ++trial) {
      std::string bytes = good;
      // Half of them near the start, where most of HDF5's own structures are.
      const uint32_t limit = trial % 2 ? 60000 : static_cast<uint32_t>(bytes.size());
      const uint32_t position = random.below(2 * trial, limit);
      bytes[position] = static_cast<char>(bytes[position] ^ (1 << random.below(2 * trial + 1, 8)));
      write_file(damaged_, bytes);
      SCOPED_TRACE(position);
      if (!readable(damaged_, expected_)) ++unreadable;
    }
    EXPECT_GT(unreadable, (last - first) / 20);
  }

  void truncate(uint32_t first, uint32_t last) {
    const std::string good = make();
    const Philox random(kDamagedSeed, 2 + GetParam());
    uint32_t unreadable = 0;
    for (uint32_t trial = first; trial < last; ++trial) {
      const size_t size = random.below(trial, static_cast<uint32_t>(good.size()));
      write_file(damaged_, good.substr(0, size));
      SCOPED_TRACE(size);
      if (!readable(damaged_, expected_)) ++unreadable;
    }
    EXPECT_GT(unreadable, (last - first) / 2);
  }

  void add_noise(uint32_t first, uint32_t last) {
    const std::string good = make();
    const Philox random(kDamagedSeed, 4 + GetParam());
    uint32_t unreadable = 0;
    for (uint32_t trial = first; trial < last; ++trial) {
      std::string bytes = good;
      const size_t begin = random.below(1000000 + trial, static_cast<uint32_t>(bytes.size() - 4096));
      for (uint32_t i = 0; i < 4096; ++i) bytes[begin + i] = static_cast<char>(random.bits(10000 * trial + i));
      write_file(damaged_, bytes);
      SCOPED_TRACE(begin);
      if (!readable(damaged_, expected_)) ++unreadable;
    }
    EXPECT_GT(unreadable, (last - first) / 20);
  }

  const TraceLines expected_ = expected_lines(kDamagedSeed, kDamagedSteps);
  TemporaryFolder folder_;
  const std::string damaged_ = folder_.file("damaged.h5");
};

INSTANTIATE_TEST_SUITE_P(, Damage, testing::Values(true, false),
                         [](const auto& closed) { return closed.param ? "Closed" : "Dead"; });

TEST_P(Damage, FlippedBits) { flip_bits(0, 150); }
TEST_P(Damage, SlowFlippedBits) { flip_bits(150, 1000); }
TEST_P(Damage, Truncated) { truncate(0, 60); }
TEST_P(Damage, SlowTruncated) { truncate(60, 400); }
TEST_P(Damage, NoiseInTheMiddle) { add_noise(0, 60); }
TEST_P(Damage, SlowNoiseInTheMiddle) { add_noise(60, 400); }

}  // namespace
}  // namespace ulpscope::trace_test
