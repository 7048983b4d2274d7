// A program without the engine records through the recorder; its trace is read back.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/project_files.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

TEST(SmallProducer, RecordsWithoutAnEngine) {
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / ("ulpscope_small_producer_" + std::to_string(getpid()) + ".h5");
  std::filesystem::remove(path);
  ASSERT_EQ(std::system(("\"" + built_file("tests/recorder/small_producer") + "\" \"" + path.string() + "\"").c_str()), 0);

  const Snapshot trace(path.string());
  EXPECT_EQ(trace.writer_state(), WriterState::closed);
  EXPECT_EQ(trace.run().producer, "small_producer");
  EXPECT_EQ(trace.step_count(), 8u);
  ASSERT_EQ(trace.ops().size(), 1u);
  EXPECT_EQ(trace.ops()[0].name, "square");
  EXPECT_EQ(trace.ops()[0].module, "loop");
  ASSERT_EQ(trace.tensors().size(), 1u);
  EXPECT_EQ(trace.tensors()[0].shape, (std::vector<int64_t>{4}));
  const std::vector<GraphEdge> edges = trace.edges();
  ASSERT_EQ(edges.size(), 1u);
  EXPECT_EQ(edges[0].producer, 0u);

  // 0, 1, 3^(2^(n+1)) and 10^(-20 * 2^(n+1)): the last is 0 from 1e-80 on, the third Inf from 3^128 = 1.2e61 on.
  std::vector<TensorRow> rows;
  trace.visit_rows({}, [&](std::span<const TensorRow> batch) {
    rows.insert(rows.end(), batch.begin(), batch.end());
    return true;
  });
  ASSERT_EQ(rows.size(), 8u);
  for (uint64_t step = 0; step < 8; ++step) {
    const TensorStatistics& statistics = rows[step].statistics;
    const double third = std::pow(3.0, std::exp2(static_cast<double>(step + 1)));
    const bool overflowed = third > 3.5e38;
    EXPECT_EQ(rows[step].step, step);
    EXPECT_EQ(statistics.count, 4u);
    EXPECT_EQ(statistics.negatives, 0u);
    EXPECT_EQ(statistics.positive_infinity, overflowed ? 1u : 0u);
    EXPECT_EQ(statistics.zeros, step == 0 ? 1u : 2u);
    // `step + 1` roundings of FP32, each error doubled by the squarings after it: below 2^(step + 1) half ulps.
    EXPECT_NEAR(statistics.largest / (overflowed ? 1 : third), 1, std::exp2(static_cast<double>(step)) * 0x1p-23);
    EXPECT_EQ(statistics.histogram.bins[127], 1u);  // the 1
  }
  ASSERT_EQ(trace.events().size(), 2u);  // steps 6 and 7
  EXPECT_EQ(trace.events()[0].kind, EventKind::nonfinite);
  EXPECT_EQ(trace.events()[0].step, 6u);
  EXPECT_EQ(trace.events()[0].count, 1u);
  std::filesystem::remove(path);
}

// These tests link what the recorder links, and nothing of an engine comes with it.
TEST(SmallProducer, NeedsNeitherOneDnnNorOpenMp) {
  std::ifstream maps("/proc/self/maps");
  if (!maps) GTEST_SKIP() << "no /proc/self/maps here";
  for (std::string line; std::getline(maps, line);) {
    EXPECT_EQ(line.find("libdnnl"), std::string::npos) << line;
    EXPECT_EQ(line.find("libgomp"), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace ulpscope
