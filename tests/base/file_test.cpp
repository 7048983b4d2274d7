#include "ulpscope/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>

#include "ulpscope/base/error.h"

namespace ulpscope {
namespace {

namespace fs = std::filesystem;

class AtomicWriteFile : public testing::Test {
 protected:
  AtomicWriteFile() : folder_(fs::temp_directory_path() / ("ulpscope_file_test_" + std::to_string(getpid()))) {
    fs::create_directory(folder_);
  }
  ~AtomicWriteFile() override { fs::remove_all(folder_); }

  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t files() const { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); }

  fs::path folder_;
};

TEST_F(AtomicWriteFile, WritesAndReplacesWholeFiles) {
  const fs::path path = folder_ / "state.toml";
  const std::string large(3 << 20, 'x');
  atomic_write_file(path, large);
  EXPECT_EQ(read(path), large);
  atomic_write_file(path, std::string_view("a\0b", 3));
  EXPECT_EQ(read(path), std::string("a\0b", 3));
  atomic_write_file(path, "");
  EXPECT_EQ(read(path), "");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicWriteFile, KeepsTheModeOfTheFileThatItReplaces) {
  const fs::path path = folder_ / "private";
  atomic_write_file(path, "1");
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  atomic_write_file(path, "2");
  EXPECT_EQ(fs::status(path).permissions(), static_cast<fs::perms>(0640));
}

TEST_F(AtomicWriteFile, NamesTheFileThatCannotBeWritten) {
  const fs::path path = folder_ / "missing" / "file";
  try {
    atomic_write_file(path, "x");
    FAIL() << "a file in a folder that does not exist was written";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::failed);
    EXPECT_THAT(error.what(), testing::HasSubstr(path.string()));
  }
}

TEST_F(AtomicWriteFile, LeavesTheOldFileWhereTheNewOneDoesNotFit) {
  const fs::path path = folder_ / "file";
  atomic_write_file(path, "old");
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(atomic_write_file(path, std::string(1 << 20, 'x')), Error);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(read(path), "old");
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace ulpscope
