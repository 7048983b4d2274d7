// Where a trace may be written, and what is no trace.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "sample_trace.h"
#include "tests/support/python.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/hdf5/hdf5.h"
#include "ulpscope/trace/commit.h"
#include "ulpscope/trace/recover.h"
#include "ulpscope/trace/schema.h"
#include "writer_control.h"

namespace ulpscope::trace_test {
namespace {

using namespace trace_detail;
using testing::AllOf;
using testing::HasSubstr;

// The message of the Error that `body` throws, after its kind has been checked.
template <typename Body>
std::string error_of(ErrorKind kind, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << error.what();
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

class Target : public testing::Test {
 protected:
  std::string create_error(ErrorKind kind, const std::string& path, bool overwrite = false) {
    TraceOptions options;
    options.overwrite = overwrite;
    return error_of(kind, [&] { create_trace(path, sample_run(1), options); });
  }
  std::string open_error(const std::string& path) {
    return error_of(ErrorKind::unreadable, [&] { Snapshot reader(path); });
  }
  // Closed, with `steps` steps.
  void write_trace(const std::string& path, uint64_t steps, bool overwrite = false) {
    TraceOptions options;
    options.overwrite = overwrite;
    const auto sink = create_trace(path, sample_run(1), options);
    add_start(*sink, 1);
    for (uint64_t step = 0; step < steps; ++step) add_step(*sink, 1, step);
    EXPECT_TRUE(sink->close());
  }
  // Nothing is left behind beside these.
  void expect_files(const std::vector<std::string>& names) {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) found.push_back(entry.path().filename());
    EXPECT_THAT(found, testing::UnorderedElementsAreArray(names));
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.file("run.h5");
};

TEST_F(Target, AnExistingFileIsKeptUnlessForced) {
  write_trace(path_, 2);
  const std::string before = read_file(path_);
  EXPECT_THAT(create_error(ErrorKind::usage, path_), AllOf(HasSubstr(path_), HasSubstr("--force")));
  EXPECT_EQ(read_file(path_), before);
  write_trace(path_, 4, true);
  EXPECT_EQ(Snapshot(path_).step_count(), 4u);
  expect_files({"run.h5"});
}

TEST_F(Target, WhatIsNoTraceIsKeptEvenWhenForced) {
  write_file(path_, "model.preset = \"mlp\"\n");
  EXPECT_THAT(create_error(ErrorKind::usage, path_, true), AllOf(HasSubstr(path_), HasSubstr("not a trace")));
  EXPECT_EQ(read_file(path_), "model.preset = \"mlp\"\n");
  write_file(path_, "");
  write_trace(path_, 1, true);
  EXPECT_EQ(Snapshot(path_).step_count(), 1u);
}

TEST_F(Target, ATraceThatIsBeingWrittenIsNotOverwritten) {
  WriterProcess writer(path_, 1);
  writer.wait_for("ready");
  EXPECT_THAT(create_error(ErrorKind::usage, path_, true), AllOf(HasSubstr(path_), HasSubstr("being written")));
  EXPECT_THROW(recover_trace(path_, path_, true), Error);
  writer.kill();
  write_trace(path_, 1, true);
  EXPECT_EQ(Snapshot(path_).step_count(), 1u);
}

TEST_F(Target, PlacesThatCannotBeWritten) {
  EXPECT_THAT(create_error(ErrorKind::failed, folder_.file("missing/run.h5")),
              AllOf(HasSubstr("missing/run.h5"), HasSubstr("no folder")));
  EXPECT_THAT(create_error(ErrorKind::failed, "/proc/run.h5"), HasSubstr("/proc/run.h5"));
  EXPECT_THAT(create_error(ErrorKind::usage, folder_.path(), true), HasSubstr("not a regular file"));
  EXPECT_THAT(create_error(ErrorKind::usage, "/dev/full", true), HasSubstr("not a regular file"));
  write_file(path_, "a file");
  EXPECT_THAT(create_error(ErrorKind::failed, path_ + "/run.h5"), HasSubstr("run.h5"));
  expect_files({"run.h5"});
}

TEST_F(Target, ALinkStaysALink) {
  write_trace(path_, 1);
  std::filesystem::create_symlink("run.h5", folder_.file("latest.h5"));
  write_trace(folder_.file("latest.h5"), 3, true);
  EXPECT_TRUE(std::filesystem::is_symlink(folder_.file("latest.h5")));
  EXPECT_EQ(Snapshot(path_).step_count(), 3u);
}

TEST_F(Target, WhatIsNoTrace) {
  EXPECT_THAT(open_error(path_), AllOf(HasSubstr(path_), HasSubstr("No such file")));
  EXPECT_THAT(open_error(folder_.path()), HasSubstr("not a file"));
  EXPECT_THAT(open_error("/dev/zero"), HasSubstr("not a file"));
  write_file(path_, "");
  EXPECT_THAT(open_error(path_), HasSubstr("empty"));
  write_file(path_, "step,loss\n1,0.5\n");
  EXPECT_THAT(open_error(path_), HasSubstr("not an HDF5 file"));
  write_file(path_, "\x89HDF\r\n\x1a\n");
  EXPECT_THAT(open_error(path_), HasSubstr("not an HDF5 file"));
  write_file(path_, std::string("\x89HDF\r\n\x1a\n\x03", 9) + std::string(1000, 'x'));
  EXPECT_THAT(open_error(path_), HasSubstr(path_));
  const std::string other = folder_.file("other.h5");
  hdf5::File::create(other, other).close();
  EXPECT_THAT(open_error(other), HasSubstr("not a trace"));
}

TEST_F(Target, NewerAndOlderSchemasAreToldApart) {
  const auto with_version = [&](uint64_t version) {
    const std::string path = folder_.file("version.h5");
    std::filesystem::remove(path);
    hdf5::File file = hdf5::File::create(path, path);
    file.set_attribute("/", kSchemaAttribute, version);
    file.close();
    return open_error(path);
  };
  EXPECT_THAT(with_version(kSchemaMajor + 1),
              AllOf(HasSubstr("newer"), HasSubstr(fmt::format("schema version {}", kSchemaMajor + 1))));
  EXPECT_THAT(with_version(kSchemaMajor - 1),
              AllOf(HasSubstr(fmt::format("has schema version {}, older than {}", kSchemaMajor - 1, kSchemaMajor)),
                    HasSubstr("record again")));
  EXPECT_THAT(with_version(UINT64_MAX), HasSubstr("newer"));
}

TEST_F(Target, ASchemaVersionIsShownAsItStands) {
  const std::string python = find_python("h5py");
  if (python.empty()) GTEST_SKIP() << "no python3 with h5py";
  write_file(folder_.file("make.py"),
             fmt::format("import h5py\nh5py.File('{}', 'w', libver='latest').attrs['{}'] = -1\n", path_, kSchemaAttribute));
  ASSERT_EQ(std::system((python + " " + folder_.file("make.py")).c_str()), 0);
  EXPECT_THAT(open_error(path_), HasSubstr(fmt::format("has schema version -1, older than {}", kSchemaMajor)));
}

TEST_F(Target, ADatasetThatIsMissingIsNamed) {
  hdf5::File file = hdf5::File::create(path_, path_);
  file.set_attribute("/", kSchemaAttribute, kSchemaMajor);
  file.set_attribute("/", kSchemaMinorAttribute, kSchemaMinor);
  file.close();
  EXPECT_EQ(open_error(path_), "'" + path_ + "': dataset 'commit' is missing; without it nothing can be recovered");
}

// A trace of which only the commit record is there, and says that there are two texts.
TEST_F(Target, WhatIsDamagedSaysSoAndWhetherItCanBeRecovered) {
  const auto make = [&](uint64_t extent, bool whole) {
    std::filesystem::remove(path_);
    hdf5::File file = hdf5::File::create(path_, path_);
    file.set_attribute("/", kSchemaAttribute, kSchemaMajor);
    file.set_attribute("/", kSchemaMinorAttribute, kSchemaMinor);
    CommitRecord record;
    record.generation = 1;
    record.state = RecordingState::closed;
    record[TableId::strings] = {2, 2, 0};
    std::vector<uint64_t> words(extent * kCommitWords);
    if (whole) std::copy_n(encode(record).begin(), kCommitWords, words.begin());
    file.create_fixed(kCommitDataset, ElementType::u64, {extent, kCommitWords}).write_all(words.data());
    const std::vector<uint8_t> note(kNoteBytes);
    file.create_fixed(kNoteDataset, ElementType::u8, {kNoteBytes}).write_all(note.data());
    file.close();
    return open_error(path_);
  };
  const std::string path = "'" + path_ + "'", hint = "; `ulpscope recover` may save a part of it";
  EXPECT_EQ(make(2, true), path + ": dataset 'strings/end' is missing" + hint);
  EXPECT_EQ(make(2, false), path + ": 'commit' is damaged");
  EXPECT_EQ(make(3, true), fmt::format("{} is damaged: expected 'commit' to have the shape [2, {}], found [3, {}]", path,
                                       kCommitWords, kCommitWords) +
                               "; without it nothing can be recovered");
}

// A data set is not replaced, whether it is in the file format of ours or in an older one.
TEST_F(Target, OtherHdf5FilesAreNotReplaced) {
  const std::string data = folder_.file("data.h5"), old = folder_.file("old.h5");
  {
    hdf5::File file = hdf5::File::create(data, data);
    file.create_array("inputs", ElementType::f32, {2}).write_all(std::array<float, 2>{1, 2}.data());
    file.close();
  }
  write_file(old, std::string("\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0", 16));
  for (const std::string& path : {data, old}) {
    const std::string before = read_file(path);
    EXPECT_EQ(create_error(ErrorKind::usage, path, true), "'" + path + "' is not a trace, so none replaces it; remove it first");
    EXPECT_EQ(read_file(path), before);
  }
}

}  // namespace
}  // namespace ulpscope::trace_test
