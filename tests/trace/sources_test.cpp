// From the number of a sample to its place, and what is said where a producer's numbers lead nowhere.
#include "ulpscope/trace/sources.h"

#include <gtest/gtest.h>

#include "sample_trace.h"
#include "tests/support/temporary_folder.h"

namespace ulpscope {
namespace {

SourceInfo source(uint32_t number, const std::string& name, const std::string& part, const std::string& file, uint64_t first,
                  uint64_t samples) {
  SourceInfo source;
  source.source = number;
  source.name = name;
  source.part = part;
  source.file = file;
  source.first_sample = first;
  source.samples = samples;
  return source;
}

TEST(Sources, ASampleOfSeveralFilesIsInOne) {
  std::vector<SourceInfo> sources;
  for (const auto& [first, samples] : {std::pair<uint64_t, uint64_t>{40, 3}, {0, 10}, {10, 30}}) {
    sources.push_back(source(5, "train", "", std::to_string(first) + ".txt", first, samples));
    sources.back().row_step = 0;
    sources.back().first_byte = 1000;
    sources.back().byte_step = 7;
  }
  const SampleFinder finder(sources);
  EXPECT_EQ(finder.find(5, 0).text(), "sample 0 of train: 0.txt, from byte 1000 on");
  EXPECT_EQ(finder.find(5, 9).text(), "sample 9 of train: 0.txt, from byte 1063 on");
  EXPECT_EQ(finder.find(5, 10).text(), "sample 10 of train: 10.txt, from byte 1000 on");
  EXPECT_EQ(finder.find(5, 39).text(), "sample 39 of train: 10.txt, from byte 1203 on");
  EXPECT_EQ(finder.find(5, 42).text(), "sample 42 of train: 40.txt, from byte 1014 on");
}

TEST(Sources, PartsArePlacesOfTheirOwn) {
  std::vector<SourceInfo> sources{source(0, "test", "targets", "y.npy", 0, 8), source(0, "test", "inputs", "x.h5", 0, 8),
                                  source(1, "other", "", "z.csv", 0, 8)};
  sources[0].first_row = 92;
  sources[0].first_byte = 864;
  sources[0].byte_step = 8;
  sources[1].first_row = 92;
  sources[1].row_step = 3;
  sources[1].inside = "deep/x";
  sources[1].columns = "0,1,2,3,7";
  const FoundSample found = SampleFinder(sources).find(0, 5);
  ASSERT_EQ(found.places.size(), 2u);
  EXPECT_EQ(found.problem, "");
  EXPECT_EQ(found.places[0].row, 107u);
  EXPECT_FALSE(found.places[0].byte);
  EXPECT_EQ(found.places[1].row, 97u);
  EXPECT_EQ(found.places[1].byte, 904u);
  EXPECT_EQ(found.text(),
            "sample 5 of test: inputs in x.h5: deep/x, row 107 (from 0), columns 0 to 3 and 7; targets in y.npy, row 97 (from 0), "
            "from byte 904 on");
}

TEST(Sources, AnElementIsOfTheColumnThatHasIt) {
  std::vector<SourceInfo> sources{source(0, "train", "inputs", "t.csv", 0, 8), source(0, "train", "targets", "t.csv", 0, 8)};
  sources[0].columns = "0,1,b,7";
  sources[1].columns = "3";
  const auto text = [&](uint64_t element, uint64_t elements) {
    return SampleFinder(sources).find(0, 5).narrowed_to(element, elements).text();
  };
  const std::string all = SampleFinder(sources).find(0, 5).text();
  EXPECT_EQ(text(2, 4), "sample 5 of train: inputs in t.csv, row 5 (from 0), column b");
  EXPECT_EQ(text(3, 4), "sample 5 of train: inputs in t.csv, row 5 (from 0), column 7");
  EXPECT_EQ(text(0, 1), "sample 5 of train: targets in t.csv, row 5 (from 0), column 3");
  EXPECT_EQ(text(4, 4), all);
  EXPECT_EQ(text(0, 2), all);
  sources[1].columns = "3,4,5,6";
  EXPECT_EQ(text(2, 4), SampleFinder(sources).find(0, 5).text());
  sources[1].columns = "";  // any
  EXPECT_EQ(text(2, 4), SampleFinder(sources).find(0, 5).text());
}

TEST(Sources, WhereNothingIsKnownButTheNumber) {
  const SampleFinder finder({source(0, "TensorDataset", "", "", 0, 8)});
  EXPECT_EQ(finder.find(0, 5).text(), "sample 5 of TensorDataset");
  EXPECT_EQ(finder.find(0, 8).text(), "sample 8 of TensorDataset: this source does not have it, the last of its samples is 7");
}

TEST(Sources, ColumnsAreNumbersOrNames) {
  SamplePlace place;
  place.file = "t.csv";
  const auto columns = [&](const std::string& text) {
    place.columns = text;
    return place.text();
  };
  EXPECT_EQ(columns("4"), "t.csv, column 4");
  EXPECT_EQ(columns("0,1"), "t.csv, columns 0 and 1");
  EXPECT_EQ(columns("0,2,3,4,9,8"), "t.csv, columns 0, 2 to 4, 9 and 8");
  EXPECT_EQ(columns("width,height,3"), "t.csv, columns width, height and 3");
  EXPECT_EQ(columns("18446744073709551615,0"), "t.csv, columns 18446744073709551615 and 0");
}

TEST(Sources, WhatAProducerGotWrongIsALine) {
  std::vector<SourceInfo> sources{source(0, "train", "", "a.npy", 10, 20), source(1, "", "", "b.npy", 0, 0),
                                  source(2, "", "", "c.npy", 0, UINT64_MAX), source(4, "line\nbreak", "", "d\x1b[2J", 0, 1)};
  sources[2].first_row = 5;
  sources[2].byte_step = 1 << 20;
  const SampleFinder finder(sources);
  EXPECT_EQ(finder.find(99, 3).text(), "sample 3 of source 99: the trace does not have this source");
  EXPECT_EQ(finder.find(0, 30).text(), "sample 30 of train: this source does not have it, the last of its samples is 29");
  EXPECT_TRUE(finder.find(0, 30).places.empty());
  EXPECT_EQ(finder.find(0, 9).text(), "sample 9 of train: this source does not have it, the last of its samples is 29");
  EXPECT_EQ(finder.find(1, 0).text(), "sample 0 of source 1: this source has no samples");
  EXPECT_EQ(finder.find(2, UINT64_MAX - 1).text(), "sample 18446744073709551614 of source 2: c.npy; beyond what any file has");
  EXPECT_EQ(finder.find(2, UINT64_MAX).places.size(), 0u);
  EXPECT_EQ(finder.find(4, 0).text().find_first_of("\n\x1b"), std::string::npos);
  EXPECT_EQ(SampleFinder({}).find(0, 0).text(), "sample 0 of source 0: the trace does not have this source");
}

// The sources of the part that the step is from: a resumed run may read other files under the same number.
TEST(Sources, OfAResumedRunAreThoseOfThePart) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& file, const std::string& id, const std::string& parent, int64_t parent_step,
                         const std::string& data, uint64_t first_step) {
    RunInfo run;
    run.run_id = std::string(32, id[0]);
    run.parent_run = parent.empty() ? "" : std::string(32, parent[0]);
    run.parent_step = parent_step;
    const std::unique_ptr<TraceSink> sink = create_trace(folder.file(file), run);
    sink->add_source(source(0, "train", "", data, 0, 100));
    for (uint64_t step = first_step; step < first_step + 2; ++step) {
      BatchRow row;
      row.step = step;
      row.sample = step;
      sink->add_batch(row);
      StepRow end;
      end.step = step;
      sink->end_step(end);
    }
    sink->close();
  };
  write("1.h5", "a", "", -1, "before.npy", 0);
  write("2.h5", "b", "a", 2, "after.npy", 2);
  const std::vector<std::string> paths{folder.file("1.h5"), folder.file("2.h5")};
  const Snapshot run("all", paths);
  std::vector<std::string> texts;
  run.visit_batches({}, [&](std::span<const BatchRow> rows) {
    for (const BatchRow& row : rows) texts.push_back(find_sample(run, row).text());
    return true;
  });
  ASSERT_EQ(texts.size(), 4u);
  EXPECT_EQ(texts[1], "sample 1 of train: before.npy, row 1 (from 0)");
  EXPECT_EQ(texts[2], "sample 2 of train: after.npy, row 2 (from 0)");
}

}  // namespace
}  // namespace ulpscope
