#include "ulpscope/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <vector>

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

TEST_F(AtomicWriteFile, RemovesWhatKilledProcessesLeftAndNothingElse) {
  const fs::path path = folder_ / "file";
  const auto create = [](const fs::path& file) { std::ofstream(file) << "half of it"; };
  const auto child = [](auto body) {
    const pid_t process = fork();
    if (process == 0) body();
    return process;
  };
  // A process that is killed leaves a name that says which it was.
  const fs::path own = new_name_beside(path);
  const std::string host_part = own.string().substr(0, own.string().rfind('-', own.string().rfind('-') - 1) + 1);
  const pid_t dead = child([] { raise(SIGKILL); }), alive = child([] { pause(); });
  waitpid(dead, nullptr, 0);
  const std::vector<fs::path> left{fmt::format("{}{}-0", host_part, dead), fmt::format("{}{}-12.source", host_part, dead)};
  const std::vector<fs::path> others{
      own,
      fmt::format("{}{}-0", host_part, alive),
      fmt::format("{}{}-0.h5", host_part, dead),
      fmt::format("{}{}", host_part, dead),
      fmt::format("{}.new-0123456789abcdef-{}-0", path.string(), dead),  // of another machine
      fmt::format("{}2.new-0", path.string()),
      folder_ / "file.new",
      folder_ / "file.new-mine",
  };
  for (const auto* files : {&left, &others}) std::for_each(files->begin(), files->end(), create);
  const fs::path folder = fmt::format("{}{}-3", host_part, dead);
  fs::create_directory(folder);
  create(folder / "step.ckpt");
  atomic_write_file(path, "whole");
  for (const fs::path& file : left) EXPECT_FALSE(fs::exists(file)) << file;
  for (const fs::path& file : others) EXPECT_TRUE(fs::exists(file)) << file;
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_EQ(read(path), "whole");
  kill(alive, SIGKILL);
  waitpid(alive, nullptr, 0);
  atomic_write_file(path, "again");
  EXPECT_FALSE(fs::exists(others[1]));
}

}  // namespace
}  // namespace ulpscope
