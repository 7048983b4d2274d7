// IDX files as they should be, and as they should not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "tests/support/variable_scope.h"
#include "ulpscope/base/error.h"
#include "ulpscope/core/data/dataset.h"
#include "ulpscope/core/data/idx.h"

namespace ulpscope {
namespace {

using ::testing::HasSubstr;

class DataFiles : public ::testing::Test {
 protected:
  DataFiles() {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("ulpscope_idx_" + std::to_string(getpid()) + '_' + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~DataFiles() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string write_compressed(const std::string& name, const std::string& bytes) const {
    std::string path = (folder_ / name).string();
    const gzFile file = gzopen(path.c_str(), "wb");
    EXPECT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())), static_cast<int>(bytes.size()));
    gzclose(file);
    return path;
  }
  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static std::string header(std::initializer_list<uint32_t> extents, char type = 8) {
    std::string bytes{0, 0, type, static_cast<char>(extents.size())};
    for (const uint32_t extent : extents) {
      for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(extent >> shift);
    }
    return bytes;
  }

  // Two images of 2 x 3 with labels 1 and 0.
  DataSettings small_set() const {
    DataSettings settings;
    settings.kind = DataKind::idx;
    settings.classes = 2;
    settings.train_images = write("images", header({2, 2, 3}) + std::string{0, 1, 2, 3, 4, char(255), 10, 20, 30, 40, 50, 60});
    settings.train_labels = write("labels", header({2}) + std::string{1, 0});
    return settings;
  }

  // The message of the unreadable error that `body` throws; one line.
  template <typename Body>
  static std::string error_of(Body body) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unreadable) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
    return "no error";
  }
  std::string idx_error(const std::string& path) const {
    std::string message = error_of([&] { read_idx(path); });
    EXPECT_THAT(message, HasSubstr(path));
    return message;
  }

  std::filesystem::path folder_;
};

TEST_F(DataFiles, PlainAndCompressedFilesGiveTheSameArray) {
  const std::string bytes = header({2, 3}) + std::string{1, 2, 3, 4, 5, 6};
  for (const std::string& path : {write("plain", bytes), write_compressed("packed.gz", bytes)}) {
    const IdxArray array = read_idx(path);
    EXPECT_EQ(array.shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(array.values, (std::vector<uint8_t>{1, 2, 3, 4, 5, 6}));
  }
}

TEST_F(DataFiles, PixelsAreScaledAndLabelsKept) {
  DataSettings settings = small_set();
  const DataSplits splits = open_data(settings, 0);
  ASSERT_EQ(splits.train->size(), 2);
  EXPECT_EQ(splits.test, nullptr);
  EXPECT_EQ(splits.train->input_shape(), (std::vector<int64_t>{1, 2, 3}));
  Batch batch;
  splits.train->fill_batch(std::array<int64_t, 3>{1, 0, 1}, batch);
  EXPECT_EQ(batch.input_shape, (std::vector<int64_t>{3, 1, 2, 3}));
  EXPECT_EQ(batch.target_shape, (std::vector<int64_t>{3}));
  EXPECT_EQ(batch.labels, (std::vector<int64_t>{0, 1, 0}));
  ASSERT_EQ(batch.inputs.size(), 18u);
  EXPECT_EQ(batch.inputs[0], 10 / 255.0f);
  EXPECT_EQ(batch.inputs[6 + 5], 1.0f);

  settings.mean = 0.5;
  settings.std = 0.25;
  open_data(settings, 0).train->fill_batch(std::array<int64_t, 1>{0}, batch);
  EXPECT_EQ(batch.inputs[0], -2.0f);
  EXPECT_EQ(batch.inputs[5], 2.0f);
}

TEST_F(DataFiles, FewerSamplesCanBeAskedFor) {
  DataSettings settings = small_set();
  settings.train_size = 1;
  const DataSplits splits = open_data(settings, 0);
  ASSERT_EQ(splits.train->size(), 1);
  Batch batch;
  splits.train->fill_batch(std::array<int64_t, 1>{0}, batch);
  EXPECT_EQ(batch.labels, (std::vector<int64_t>{1}));
  EXPECT_EQ(batch.inputs.size(), 6u);
}

TEST_F(DataFiles, NotIdxAtAll) {
  EXPECT_THAT(idx_error((folder_ / "none").string()), HasSubstr("no such file"));
  EXPECT_THAT(idx_error(folder_.string()), HasSubstr("a folder"));
  EXPECT_THAT(idx_error(write("empty", "")), HasSubstr("shorter than the 4 bytes"));
  EXPECT_THAT(idx_error(write("text", "hello, world")), HasSubstr("expected it to begin with 00 00, found 68 65"));
  EXPECT_THAT(idx_error(write("floats", header({1}, 0x0D) + std::string(4, '\0'))), HasSubstr("found type 0d"));
  EXPECT_THAT(idx_error(write("ranks", std::string{0, 0, 8, 9})), HasSubstr("expected 1 to 4 dimensions, found 9"));
  EXPECT_THAT(idx_error(write("rank0", std::string{0, 0, 8, 0})), HasSubstr("found 0"));
}

TEST_F(DataFiles, HeadersThatLie) {
  EXPECT_THAT(idx_error(write("short_header", header({2, 3}).substr(0, 9))), HasSubstr("expected 2 extents, found 1"));
  EXPECT_THAT(idx_error(write("truncated", header({2, 3}) + "abcde")), HasSubstr("promises 6 bytes of data, found 5"));
  EXPECT_THAT(idx_error(write("trailing", header({2, 3}) + "abcdefg")), HasSubstr("expected 6 bytes of data (2 x 3), found more"));
  EXPECT_THAT(idx_error(write("zero", header({0, 3}))), HasSubstr("extent 0 in the header is 0"));
  EXPECT_THAT(idx_error(write("absurd", header({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 2}))), HasSubstr("claims more than"));
  // 4 GiB promised by 20 bytes: found out without asking for the memory.
  EXPECT_THAT(idx_error(write("large", header({1u << 16, 1u << 16}) + "abcdefgh")), HasSubstr("found 8"));
}

TEST_F(DataFiles, DamagedCompression) {
  std::string noise(20000, '\0');
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<char>((i * i * 2654435761u) >> 13);
  const std::string bytes = read(write_compressed("whole.gz", header({20000}) + noise));
  EXPECT_THAT(idx_error(write("cut.gz", bytes.substr(0, bytes.size() / 2))), HasSubstr("truncated"));
  EXPECT_THAT(idx_error(write("cut_checksum.gz", bytes.substr(0, bytes.size() - 6))), HasSubstr("truncated"));
  std::string flipped = bytes;
  flipped[bytes.size() - 6] ^= 1;  // of the checksum
  EXPECT_THAT(idx_error(write("flipped.gz", flipped)), HasSubstr("damaged gzip data"));
}

TEST_F(DataFiles, ImagesAndLabelsThatDoNotFit) {
  DataSettings settings = small_set();
  settings.train_labels = write("three", header({3}) + std::string{1, 0, 1});
  EXPECT_THAT(error_of([&] { open_data(settings, 0); }), HasSubstr("2, found 3"));
  settings.train_labels = write("beyond", header({2}) + std::string{0, 7});
  EXPECT_THAT(error_of([&] { open_data(settings, 0); }),
              HasSubstr("beyond: the label of sample 1 is 7, expected 0 to 1 for 2 classes"));
  EXPECT_NO_THROW(open_data(settings, {0, 7})) << "the loss ignores it";
  settings = small_set();
  settings.train_labels = settings.train_images;
  EXPECT_THAT(error_of([&] { open_data(settings, 0); }), HasSubstr("expected labels of 1 dimension, found 3"));
  settings = small_set();
  settings.train_images = settings.train_labels;
  EXPECT_THAT(error_of([&] { open_data(settings, 0); }), HasSubstr("expected images of 3 dimensions"));
  settings = small_set();
  settings.test_images = write("other", header({1, 1, 1}) + "a");
  settings.test_labels = write("other_labels", header({1}) + std::string{0});
  EXPECT_THAT(error_of([&] { open_data(settings, 0); }), HasSubstr("expected images of 1 x 2 x 3"));
}

TEST_F(DataFiles, MissingFashionMnistNamesThePackage) {
  DataSettings settings;
  settings.kind = DataKind::fashion_mnist;
  settings.path = folder_.string();
  const std::string message = error_of([&] { open_data(settings, 0); });
  EXPECT_THAT(message, HasSubstr("dataset-fashion-mnist"));
  EXPECT_THAT(message, HasSubstr(folder_.string()));
}

TEST_F(DataFiles, FashionMnistIsFoundThroughTheEnvironment) {
  std::filesystem::create_directories(folder_ / "fashion-mnist");
  for (const std::string split : {"train", "t10k"}) {
    write("fashion-mnist/" + split + "-images-idx3-ubyte", header({1, 28, 28}) + std::string(784, 'a'));
    write("fashion-mnist/" + split + "-labels-idx1-ubyte", header({1}) + std::string{3});
  }
  DataSettings settings;
  settings.kind = DataKind::fashion_mnist;
  settings.classes = 2;  // of other data: these have 10
  const VariableScope data("ULPSCOPE_DATA", folder_);
  const DataSplits splits = open_data(settings, 0);
  EXPECT_EQ(splits.train->size(), 1);
  EXPECT_EQ(splits.train->classes(), 10);
  EXPECT_THAT(splits.description, HasSubstr(folder_.string()));
}

// The published figures: 6,000 images of each class, mean 0.2860 and standard deviation 0.3530 of the training pixels.
TEST(FashionMnist, HasTheKnownMoments) {
  DataSettings settings;
  settings.kind = DataKind::fashion_mnist;
  DataSplits splits;
  try {
    splits = open_data(settings, 0);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  ASSERT_EQ(splits.train->size(), 60000);
  ASSERT_EQ(splits.test->size(), 10000);
  std::array<int, 10> counts{};
  double sum = 0, squares = 0;
  Batch batch;
  std::vector<int64_t> indices(1000);
  for (int64_t first = 0; first < 60000; first += 1000) {
    std::iota(indices.begin(), indices.end(), first);
    splits.train->fill_batch(indices, batch);
    for (const int64_t label : batch.labels) ++counts[static_cast<size_t>(label)];
    for (const float value : batch.inputs) {
      sum += value;
      squares += static_cast<double>(value) * value;
    }
  }
  for (const int count : counts) EXPECT_EQ(count, 6000);
  const double mean = sum / (60000.0 * 784);
  EXPECT_NEAR(mean, 0.2860, 0.00005);
  EXPECT_NEAR(std::sqrt(squares / (60000.0 * 784) - mean * mean), 0.3530, 0.00005);
}

TEST_F(DataFiles, TextGivesRunsOfBytesAndTheBytesThatFollow) {
  write("b", std::string(30, 'b') + std::string(10, 'B'));
  write("a", "0123456789abcdefghij");
  std::filesystem::create_symlink(folder_ / "a", folder_ / "link");  // the same text once more: passed over
  DataSettings settings;
  settings.kind = DataKind::text;
  settings.path = folder_.string();
  settings.context = 4;
  settings.stride = 3;
  settings.test_share = 0.25;
  const DataSplits splits = open_data(settings, 0);
  // a: 15 bytes for training, samples at 0, 3, 6, 9 (and the byte after each); b: 30 bytes, at 0, 3, ..., 24.
  EXPECT_EQ(splits.train->size(), 4 + 9);
  EXPECT_EQ(splits.train->input_indices(), 256);
  EXPECT_EQ(splits.train->classes(), 256);
  Batch batch;
  const int64_t indices[] = {3, 4, 1};
  splits.train->fill_batch(indices, batch);
  EXPECT_EQ(batch.input_shape, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(batch.target_shape, batch.input_shape);
  const auto text = [](const std::vector<int64_t>& bytes) { return std::string(bytes.begin(), bytes.end()); };
  EXPECT_EQ(text(batch.indices), "9abcbbbb3456");
  EXPECT_EQ(text(batch.labels), "abcdbbbb4567");
  settings.train_size = 2;
  settings.test_size = 1;
  EXPECT_EQ(open_data(settings, 0).train->size(), 2);
  EXPECT_EQ(open_data(settings, 0).test->size(), 1);
  // The last quarter of each file, without overlap: fghij, BBBBBBBBBB.
  ASSERT_TRUE(splits.test);
  EXPECT_EQ(splits.test->size(), 1 + 2);
  splits.test->fill_batch(std::array<int64_t, 1>{0}, batch);
  EXPECT_EQ(text(batch.indices), "fghi");
  EXPECT_EQ(text(batch.labels), "ghij");
}

TEST_F(DataFiles, TextThatCannotBeReadSaysWhy) {
  const auto error_of = [](const std::string& path) -> std::string {
    DataSettings settings;
    settings.kind = DataKind::text;
    settings.path = path;
    settings.context = 100;
    try {
      open_data(settings, 0);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string small = write("small", "too small"), empty = write("empty", ""), missing = (folder_ / "missing").string();
  EXPECT_EQ(error_of(""), "data.path: text needs a file or a folder");
  EXPECT_EQ(error_of(missing), "cannot read '" + missing + "': No such file or directory");
  EXPECT_EQ(error_of("/dev/zero"), "cannot read '/dev/zero': it is not a file");
  for (const std::string& path : {small, empty}) {
    EXPECT_THAT(error_of(path), HasSubstr("expected a file with more than data.context = 100 bytes beside its test split "
                                          "(data.test_share = 0.1), found none in "))
        << path;
  }
}

}  // namespace
}  // namespace ulpscope
