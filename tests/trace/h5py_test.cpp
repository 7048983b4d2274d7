// Traces are read without our code: with h5py, by the functions that docs/trace_format.md gives, and with h5dump.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <sstream>

#include "sample_trace.h"
#include "tests/support/project_files.h"
#include "tests/support/python.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "ulpscope/trace/recover.h"
#include "ulpscope/trace/run_set.h"
#include "writer_control.h"

namespace ulpscope::trace_test {
namespace {

constexpr uint64_t kH5pySeed = 23;
const std::string kDocs = project_file("docs/trace_format.md"), kScript = project_file("tests/trace/dump_trace.py");

// What `command` prints, and its exit status.
struct Output {
  int status = -1;
  std::string text;
};

Output run(const std::string& command) {
  Output output;
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return output;
  char buffer[65536];
  for (size_t count; (count = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.text.append(buffer, count);
  const int status = pclose(pipe);
  output.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

const std::string& python() {
  static const std::string found = find_python("h5py");
  return found;
}

Lines split_lines(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

class H5py : public testing::Test {
 protected:
  void SetUp() override {
    if (python().empty()) GTEST_SKIP() << "no python3 with h5py";
  }
  Output dump(const std::string& path, const std::string& mode) {
    return run(fmt::format("{} {} {} {} {} 2>&1", python(), kScript, path, kDocs, mode));
  }
  // Compares with the sample's first `steps` steps.
  void expect_steps(const std::string& path, const std::string& mode, uint64_t steps, const Lines& more = {}) {
    const Output output = dump(path, mode);
    ASSERT_EQ(output.status, 0) << output.text;
    Lines expected = flat(expected_lines(kH5pySeed, steps));
    expected.insert(expected.end(), more.begin(), more.end());
    const Lines found = split_lines(output.text);
    const auto [first, wanted] = std::mismatch(found.begin(), found.end(), expected.begin(), expected.end());
    EXPECT_TRUE(first == found.end()) << *first;
    EXPECT_TRUE(wanted == expected.end()) << *wanted;
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.file("run.h5");
};

TEST_F(H5py, ReadsATraceThatIsBeingWritten) {
  WriterProcess writer(path_, kH5pySeed);
  writer.wait_for("ready");
  writer.call("steps 20");
  expect_steps(path_, "swmr", 20);
  // Beyond a chunk, so that part of the rows is in place and part in the tail.
  writer.call("steps 60");
  expect_steps(path_, "swmr", 80);
}

TEST_F(H5py, ReadsATraceWhoseWriterWasKilledAndItsRecoveredCopy) {
  {
    WriterProcess writer(path_, kH5pySeed);
    writer.wait_for("ready");
    writer.call("steps 110");
    writer.kill();
  }
  expect_steps(path_, "swmr", 110);
  EXPECT_NE(dump(path_, "plain").status, 0);
  const std::string copy = folder_.file("copy.h5");
  recover_trace(path_, copy);
  expect_steps(copy, "plain", 110, {"note the writer ended without closing the trace"});
}

TEST_F(H5py, ReadsAClosedTrace) {
  WriterProcess writer(path_, kH5pySeed);
  writer.wait_for("ready");
  writer.call("steps 120");
  writer.call("close");
  EXPECT_EQ(writer.finish(), 0);
  expect_steps(path_, "plain", 120);
  expect_steps(path_, "swmr", 120);
}

// What random access gives is what h5py reads.
TEST_F(H5py, HasTheRowsOfATensorOfAStepAndOfAColumn) {
  {
    const auto sink = create_trace(path_, sample_run(kH5pySeed));
    add_start(*sink, kH5pySeed);
    for (uint64_t step = 0; step < 300; ++step) add_step(*sink, kH5pySeed, step);
    ASSERT_TRUE(sink->close());
  }
  Lines history, step;
  std::vector<uint64_t> zeros, sums;
  for (const std::string& read : split_lines(dump(path_, "plain").text)) {
    if (!read.starts_with("stats ")) continue;
    const std::string row = read.substr(6) + " ";
    const auto value = [&](const std::string& name) {
      const size_t at = row.find(" " + name + "=") + name.size() + 2;
      return row.substr(at, row.find(' ', at) - at);
    };
    if (value("tensor") == "3") history.push_back(read.substr(6));
    if (value("step") == "257") step.push_back(read.substr(6));
    zeros.push_back(std::stoull(value("zeros")));
    if (value("tensor") == "3") sums.push_back(std::stoull(value("sum"), nullptr, 16));
  }
  ASSERT_EQ(zeros.size(), 300u * 41);
  ASSERT_FALSE(history.empty());
  const Snapshot snapshot(path_);
  const auto into = [](Lines& lines) {
    return [&lines](std::span<const TensorRow> rows) {
      for (const TensorRow& row : rows) lines.push_back(line(row));
      return true;
    };
  };
  Lines found;
  snapshot.visit_history(3, {}, into(found));
  EXPECT_EQ(found, history);
  found.clear();
  snapshot.visit_rows({257, 258}, into(found));
  EXPECT_EQ(found, step);
  EXPECT_EQ(snapshot.column<uint64_t>("zeros"), zeros);
  const std::vector<double> read = snapshot.history<double>(3, "sum");
  ASSERT_EQ(read.size(), sums.size());
  for (size_t i = 0; i < read.size(); ++i) EXPECT_EQ(std::bit_cast<uint64_t>(read[i]), sums[i]);
}

TEST_F(H5py, RunsTheExampleOfTheDocs) {
  const auto sink = create_trace(path_, sample_run(1));
  OpInfo op;
  op.module = "features.3";
  sink->add_op(op);
  sink->add_tensor({});
  TensorRow row;
  row.statistics.count = 100;
  row.rounding.flushed = 25;
  sink->add_row(row);
  sink->end_step({});
  sink->flush();
  const Output output = dump(path_, "swmr reading");
  EXPECT_EQ(output.text, "features.3 25 of 100\n");
}

// What h5py writes is read as if our writer had written it.
TEST_F(H5py, WritesTracesOfTwoRanks) {
  constexpr uint64_t kSteps = 70;
  {
    const auto sink = create_trace(path_, sample_run(kH5pySeed));
    add_start(*sink, kH5pySeed);
    for (uint64_t step = 0; step < kSteps; ++step) add_step(*sink, kH5pySeed, step);
    ASSERT_TRUE(sink->close());
  }
  const Output output = run(fmt::format("{} {} {} {} plain writing 2>&1", python(), kScript, path_, kDocs));
  ASSERT_EQ(output.status, 0) << output.text;
  const std::vector<std::string> paths = {folder_.file("rank0.h5"), folder_.file("rank1.h5")};
  for (size_t rank = 0; rank < paths.size(); ++rank) {
    const Snapshot trace(paths[rank]);
    const RunInfo expected = sample_run(kH5pySeed);
    EXPECT_EQ(trace.run().rank, static_cast<int32_t>(rank));
    EXPECT_EQ(trace.run().world_size, 2);
    EXPECT_EQ(trace.run().run_id, expected.run_id);
    EXPECT_EQ(trace.run().experiment, expected.experiment);
    EXPECT_EQ(trace.tensor_row_count(), Snapshot(path_).tensor_row_count());
  }
  const RunSet both("both", paths);
  EXPECT_EQ(both.snapshot().step_count(), 2 * kSteps);  // of each rank
  EXPECT_EQ(both.snapshot().tensor_row_count(), 2 * Snapshot(path_).tensor_row_count());
}

TEST(H5dump, ReadsClosedAndRecoveredTracesPlainly) {
  if (run("h5dump --version 2>/dev/null").status != 0) GTEST_SKIP() << "no h5dump";
  TemporaryFolder folder;
  const std::string path = folder.file("run.h5"), copy = folder.file("copy.h5");
  {
    WriterProcess writer(path, kH5pySeed);
    writer.wait_for("ready");
    writer.call("steps 60");
    EXPECT_NE(run(fmt::format("h5dump -H {} 2>&1", path)).status, 0);
    writer.kill();
  }
  EXPECT_NE(run(fmt::format("h5dump -H {} 2>&1", path)).status, 0);
  recover_trace(path, copy);
  const std::string closed = folder.file("closed.h5");
  WriterProcess writer(closed, kH5pySeed);
  writer.wait_for("ready");
  writer.call("steps 60");
  writer.call("close");
  writer.finish();
  std::string expected;
  for (uint64_t step = 0; step < 60; ++step) {
    for (const TensorRow& row : sample_step(kH5pySeed, step).rows) expected += fmt::format("{} ", row.statistics.count);
  }
  for (const std::string& file : {copy, closed}) {
    EXPECT_EQ(run(fmt::format("h5dump {} >/dev/null 2>&1", file)).status, 0);
    const Output output = run(fmt::format("h5dump -y -d /stats/count {} 2>&1", file));
    ASSERT_EQ(output.status, 0) << output.text;
    const size_t begin = output.text.find("DATA {");
    ASSERT_NE(begin, std::string::npos) << output.text;
    std::string values;
    std::istringstream stream(output.text.substr(begin + 6, output.text.find('}', begin) - begin - 6));
    for (std::string word; stream >> word;) values += word.substr(0, word.find(',')) + " ";
    EXPECT_EQ(values, expected);
  }
}

}  // namespace
}  // namespace ulpscope::trace_test
