// Arrays in HDF5, NPY and CSV files, written by h5py and NumPy, or as text, and what is said of those that do not fit.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>

#include "tests/support/python.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/variable_scope.h"
#include "ulpscope/base/error.h"
#include "ulpscope/core/data/dataset.h"
#include "ulpscope/core/data/sample_array.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Batch read_all(const Dataset& data) {
  std::vector<int64_t> indices(static_cast<size_t>(data.size()));
  std::iota(indices.begin(), indices.end(), 0);
  Batch batch;
  data.fill_batch(indices, batch);
  return batch;
}

std::string array_error(const DataSettings& settings, const DataUse& use = 0) {
  try {
    open_data(settings, use);
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "no error";
}

// Runs Python in a folder of its own, once for all tests. Element (i, j, k) of `x`, of shape [7, 2, 3], is 100 i + 10 j + k / 2 -
// 3, which float16 holds.
class PythonFiles : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string python = find_python("h5py, numpy");
    if (python.empty()) return;
    folder_ = new TemporaryFolder;
    write_file(folder_->file("write.py"), R"(
import h5py, numpy as np
i, j, k = np.indices((7, 2, 3))
x = 100.0 * i + 10 * j + k / 2 - 3
y = np.arange(7) % 3
for name in ("f2", "f4", "f8", ">f4", ">f8"):
    np.save("x_" + name.replace(">", "big_"), x.astype(name))
whole = 2 * (x + 3)
for name in ("u2", "u4", "u8", "i2", "i4", "i8", ">i2", ">i8"):
    np.save("whole_" + name.replace(">", "big_"), whole.astype(name))
np.save("bytes", (whole % 251).astype("u1"))
np.save("signed", (whole % 201 - 100).astype("i1"))
np.save("truths", whole % 4 == 1)
np.save("y", y)
np.save("y_float", y.astype("f4"))
np.save("y_column", y.reshape(7, 1))
np.save("y_half", y + 0.5)
np.save("y6", y[:6])
np.save("y_places", np.stack([y, 2 - y], 1))
np.save("fortran", np.asfortranarray(x))
np.save("scalar", np.float32(1))
np.save("records", np.zeros(7, dtype=[("a", "f4")]))
np.save("texts", np.array(["a"] * 7))
np.save("none", np.zeros((0, 3)))
np.savez("archive", x)
np.zeros(21, "f4").tofile("raw.bin")
with h5py.File("data.h5", "w") as file:
    file["inputs"] = x
    file["targets"] = y.astype("u1")
    file.create_dataset("deep/x", data=x.astype("f2"), chunks=(2, 1, 3), compression="gzip", shuffle=True)
    file.create_dataset("deep/y", data=y.astype(">i4"), chunks=(5,), compression="gzip")
    file["lost"] = h5py.SoftLink("/nowhere")
    file["values"] = x[:, :, 0].astype(">f8")
    file["one"] = x[:, 0, 0]
    file["large"] = np.full((7, 2), 1e39)
    file["texts"] = ["a"] * 7
    file["scalar"] = 1.0
    file["none"] = np.zeros((0, 3))
    file["big_indices"] = np.full((7, 2), 2 ** 62)
    file.create_dataset("lzf", data=x, compression="lzf")
    file.create_dataset("endless", shape=(2 ** 41, 1), dtype="u1", chunks=(2 ** 20, 1))
    file.create_dataset("unwritten", shape=(2 ** 31, 24), dtype="f4")
    file.create_dataset("few", shape=(7, 3), dtype="f4")
    file.create_dataset("few_chunks", shape=(7, 3), dtype="f4", chunks=(2, 3))
    file.create_dataset("elsewhere", shape=(7, 3), dtype="f4", external=[("raw.bin", 0, 84)])
    layout = h5py.VirtualLayout((7, 3), "f4")
    layout[:] = h5py.VirtualSource("absent.h5", "x", (7, 3))
    file.create_virtual_dataset("joined", layout)
    compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    compact.set_layout(h5py.h5d.COMPACT)
    h5py.h5d.create(file.id, b"compact", h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple((7, 3)), compact).write(
        h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(x[:, 0]))
    file["test_x"] = x[:2]
    file["test_y"] = y[:2]
with h5py.File("latest.h5", "w", libver="latest") as file:
    file["inputs"] = x[:3]
    file["targets"] = y[:3]
)");
    const std::string command = fmt::format("cd {} && {} write.py", folder_->path(), python);
    written_ = std::system(command.c_str()) == 0;
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  void SetUp() override {
    if (!folder_) GTEST_SKIP() << "no python3 with h5py and numpy";
    ASSERT_TRUE(written_);
  }

  static double x(size_t i, size_t j, size_t k) {
    return 100 * static_cast<double>(i) + 10 * static_cast<double>(j) + static_cast<double>(k) / 2 - 3;
  }
  static DataSettings npy(const std::string& inputs, const std::string& targets) {
    DataSettings settings;
    settings.kind = DataKind::npy;
    settings.inputs = folder_->file(inputs + ".npy");
    settings.targets = folder_->file(targets + ".npy");
    settings.classes = 3;
    settings.test_share = 0;
    return settings;
  }
  static DataSettings hdf5(const std::string& inputs, const std::string& targets) {
    DataSettings settings;
    settings.kind = DataKind::hdf5;
    settings.path = folder_->file("data.h5");
    settings.inputs = inputs;
    settings.targets = targets;
    settings.classes = 3;
    settings.test_share = 0;
    return settings;
  }
  // Seven samples in another order than the file's, of which each number has to be `expected(x)`.
  template <typename Expected>
  static void expect_inputs(const DataSettings& settings, Expected expected) {
    const DataSplits splits = open_data(settings, 0);
    ASSERT_EQ(splits.train->size(), 7);
    EXPECT_EQ(splits.train->input_shape(), (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(splits.test, nullptr);
    const std::array<int64_t, 7> order{3, 0, 6, 5, 1, 2, 4};
    Batch batch;
    splits.train->fill_batch(order, batch);
    EXPECT_EQ(batch.input_shape, (std::vector<int64_t>{7, 2, 3}));
    EXPECT_EQ(batch.target_shape, (std::vector<int64_t>{7}));
    for (size_t place = 0; place < 7; ++place) {
      const auto i = static_cast<size_t>(order[place]);
      EXPECT_EQ(batch.labels[place], order[place] % 3);
      for (size_t j = 0; j < 2; ++j) {
        for (size_t k = 0; k < 3; ++k)
          EXPECT_EQ(batch.inputs[place * 6 + j * 3 + k], static_cast<float>(expected(x(i, j, k)))) << i << ' ' << j << ' ' << k;
      }
    }
  }

  static TemporaryFolder* folder_;
  static bool written_;
};
TemporaryFolder* PythonFiles::folder_ = nullptr;
bool PythonFiles::written_ = false;

TEST_F(PythonFiles, NpyOfEveryTypeAndByteOrder) {
  const auto whole = [](double x) { return 2 * (x + 3); };
  for (const char* name : {"x_f2", "x_f4", "x_f8", "x_big_f4", "x_big_f8"}) {
    SCOPED_TRACE(name);
    expect_inputs(npy(name, "y"), [](double value) { return value; });
  }
  for (const char* name :
       {"whole_u2", "whole_u4", "whole_u8", "whole_i2", "whole_i4", "whole_i8", "whole_big_i2", "whole_big_i8"}) {
    SCOPED_TRACE(name);
    expect_inputs(npy(name, "y_float"), whole);
  }
  expect_inputs(npy("bytes", "y"), [&](double value) { return std::fmod(whole(value), 251); });
  expect_inputs(npy("signed", "y_column"), [&](double value) { return std::fmod(whole(value), 201) - 100; });
  expect_inputs(npy("truths", "y"), [&](double value) { return std::fmod(whole(value), 4) == 1 ? 1.0 : 0.0; });
}

TEST_F(PythonFiles, Hdf5OfAnyLayout) {
  const auto same = [](double value) { return value; };
  expect_inputs(hdf5("", ""), same);  // inputs and targets
  expect_inputs(hdf5("deep/x", "deep/y"), same);
  DataSettings latest = hdf5("", "");
  latest.path = folder_->file("latest.h5");
  EXPECT_EQ(open_data(latest, 0).train->size(), 3);
}

TEST_F(PythonFiles, NumbersAreNormalizedInFp64AndRoundedOnce) {
  DataSettings settings = hdf5("deep/x", "");
  settings.mean = 0.1;
  settings.std = 3;
  expect_inputs(settings, [](double value) { return (value - 0.1) / 3; });
}

TEST_F(PythonFiles, TargetsAreLabelsOrValuesOfAnyShape) {
  DataSettings settings = npy("x_f4", "y_places");
  DataSplits splits = open_data(settings, 0);
  EXPECT_EQ(splits.train->target_shape(), (std::vector<int64_t>{2}));
  EXPECT_THAT(read_all(*splits.train).labels, ElementsAre(0, 2, 1, 1, 2, 0, 0, 2, 1, 1, 2, 0, 0, 2));
  settings = hdf5("", "values");
  settings.target_kind = TargetKind::values;
  splits = open_data(settings, 0);
  EXPECT_EQ(splits.train->target_kind(), TargetKind::values);
  EXPECT_EQ(splits.train->classes(), 0);
  EXPECT_EQ(splits.train->target_shape(), (std::vector<int64_t>{2}));
  const Batch batch = read_all(*splits.train);
  EXPECT_TRUE(batch.labels.empty());
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(batch.values[2 * i], x(i, 0, 0));
    EXPECT_EQ(batch.values[2 * i + 1], x(i, 1, 0));
  }
  settings.targets = "one";
  EXPECT_EQ(open_data(settings, 0).train->target_shape(), (std::vector<int64_t>{1}));
}

TEST_F(PythonFiles, InputsCanBeIndices) {
  DataSettings settings = npy("y_places", "y");
  settings.input_indices = 3;
  const DataSplits splits = open_data(settings, 0);
  EXPECT_EQ(splits.train->input_indices(), 3);
  const Batch batch = read_all(*splits.train);
  EXPECT_TRUE(batch.inputs.empty());
  EXPECT_THAT(batch.indices, ElementsAre(0, 2, 1, 1, 2, 0, 0, 2, 1, 1, 2, 0, 0, 2));
  settings.input_indices = 2;
  EXPECT_EQ(array_error(settings),
            settings.inputs + ": the index of element 1 of sample 0 is 2, expected 0 to 1 for data.input_indices = 2");
}

TEST_F(PythonFiles, SplitsAreFilesDataSetsOrAShareOfTheSamples) {
  DataSettings settings = npy("x_f4", "y");
  settings.test_share = 0.3;
  DataSplits splits = open_data(settings, 0);
  EXPECT_EQ(splits.train->size(), 5);
  ASSERT_EQ(splits.test->size(), 2);
  Batch batch;
  splits.test->fill_batch(std::array<int64_t, 2>{1, 0}, batch);
  EXPECT_THAT(batch.labels, ElementsAre(0, 2));
  EXPECT_EQ(batch.inputs[0], x(6, 0, 0));
  settings.train_size = 3;
  settings.test_size = 1;
  splits = open_data(settings, 0);
  EXPECT_EQ(splits.train->size(), 3);
  EXPECT_EQ(splits.test->size(), 1);
  settings.test_inputs = settings.inputs;
  settings.test_targets = settings.targets;
  settings.train_size = settings.test_size = 0;
  splits = open_data(settings, 0);
  EXPECT_EQ(splits.train->size(), 7);
  EXPECT_EQ(splits.test->size(), 7);
  DataSettings named = hdf5("", "");
  named.test_inputs = "test_x";
  named.test_targets = "test_y";
  EXPECT_EQ(open_data(named, 0).test->size(), 2);
  named = hdf5("", "");
  named.test_path = folder_->file("latest.h5");
  EXPECT_EQ(open_data(named, 0).test->size(), 3);
}

TEST_F(PythonFiles, WhatCannotBeReadSaysWhy) {
  const auto in_file = [&](const std::string& name) { return folder_->file(name + ".npy: "); };
  EXPECT_THAT(array_error(npy("fortran", "y")), HasSubstr(in_file("fortran") + "in Fortran order"));
  EXPECT_EQ(array_error(npy("scalar", "y")), in_file("scalar") + "expected an array, found a single value");
  EXPECT_EQ(array_error(npy("records", "y")), in_file("records") + "expected an array of numbers, found one of records");
  EXPECT_THAT(array_error(npy("texts", "y")), HasSubstr("found the type '<U1'"));
  EXPECT_EQ(array_error(npy("none", "none")), in_file("none") + "empty, of shape 0 x 3; expected at least one sample");
  EXPECT_EQ(array_error(npy("x_f4", "y6")),
            in_file("y6") + "expected as many targets as " + folder_->file("x_f4.npy") + " has inputs, 7, found 6");
  EXPECT_EQ(array_error(npy("x_f4", "y_half")),
            in_file("y_half") + "the label of sample 0 is 0.5, expected 0 to 2 for 3 classes (data.classes)");
  DataSettings settings = npy("x_f4", "y");
  settings.classes = 2;
  EXPECT_EQ(array_error(settings), in_file("y") + "the label of sample 2 is 2, expected 0 to 1 for 2 classes (data.classes)");
  settings = npy("x_f4", "y");
  settings.inputs = folder_->file("archive.npz");
  EXPECT_THAT(array_error(settings), HasSubstr("but an archive (.npz)"));
  settings.inputs = folder_->file("write.py");
  EXPECT_EQ(array_error(settings), settings.inputs + ": not a file of numpy.save");
  settings = npy("x_f4", "y");
  settings.test_inputs = folder_->file("y_places.npy");
  settings.test_targets = settings.targets;
  EXPECT_THAT(array_error(settings), HasSubstr("expected samples of 2 x 3 as in " + settings.inputs + ", found 2"));

  const std::string file = folder_->file("data.h5");
  EXPECT_EQ(array_error(hdf5("input", "")), "'" + file + "' has no data set 'input'; did you mean 'inputs'?");
  EXPECT_THAT(array_error(hdf5("lost", "")), HasSubstr("'" + file + "': cannot open 'lost': "));
  EXPECT_THAT(array_error(hdf5("deep", "")), HasSubstr("has no data set 'deep', but a group of that name"));
  EXPECT_EQ(array_error(hdf5("texts", "")), file + ": texts: expected integers or floating-point numbers, found texts");
  EXPECT_EQ(array_error(hdf5("scalar", "")), file + ": scalar: expected an array, found a single value");
  EXPECT_EQ(array_error(hdf5("none", "none")), file + ": none: empty, of shape 0 x 3; expected at least one sample");
  EXPECT_EQ(array_error(hdf5("endless", "endless")),
            file + ": endless: expected 2199023255552 x 1 numbers, found 0 bytes of them in the file");
  // A data set that was made and never filled reads as zeros.
  for (const auto& [name, shape] : {std::pair("unwritten", "2147483648 x 24"), {"few", "7 x 3"}, {"few_chunks", "7 x 3"}}) {
    const std::string expected = fmt::format("{}: {}: expected {} numbers, found 0 bytes of them in the file", file, name, shape);
    EXPECT_EQ(array_error(hdf5(name, "")), expected);
  }
  EXPECT_EQ(array_error(hdf5("elsewhere", "")),
            file + ": elsewhere: expected numbers in this file, found external storage, in other files");
  EXPECT_EQ(array_error(hdf5("joined", "")),
            file + ": joined: expected numbers in this file, found a virtual data set, of numbers that are in others");
  EXPECT_EQ(array_error(hdf5("compact", "")), "no error");
  EXPECT_THAT(array_error(hdf5("lzf", "")),
              HasSubstr("compressed with the filter 'lzf' (32000), which the HDF5 library does not have"));
  EXPECT_THAT(array_error(hdf5("", "large")), HasSubstr("the label of element 0 of sample 0 is 1e+39, expected 0 to 2"));
  DataSettings large = hdf5("large", "");
  Batch batch;
  EXPECT_THROW(open_data(large, 0).train->fill_batch(std::array<int64_t, 1>{4}, batch), Error);
  large.std = 10;  // 1e38 fits
  open_data(large, 0).train->fill_batch(std::array<int64_t, 1>{4}, batch);
  EXPECT_EQ(batch.inputs[0], 1e38f);
  settings = hdf5("", "");
  settings.path = folder_->file("x_f4.npy");
  EXPECT_EQ(array_error(settings), "'" + settings.path + "' is not an HDF5 file");
  settings.path = folder_->file("absent.h5");
  EXPECT_EQ(array_error(settings), "cannot open '" + settings.path + "': No such file or directory");
}

TEST_F(PythonFiles, ALabelThatTheLossIgnoresNeedsNoClass) {
  DataSettings settings = npy("x_f4", "y");
  settings.classes = 2;
  EXPECT_THAT(read_all(*open_data(settings, {0, 2}).train).labels, ElementsAre(0, 1, 2, 0, 1, 2, 0));
  EXPECT_EQ(array_error(settings, {0, -100}),
            folder_->file("y.npy: the label of sample 2 is 2, expected 0 to 1 for 2 classes (data.classes), or -100 "
                          "(loss.ignore_index)"));
}

class Csv : public ::testing::Test {
 protected:
  DataSettings table(const std::string& text) {
    DataSettings settings;
    settings.kind = DataKind::csv;
    settings.path = folder_.file("table.csv");
    settings.classes = 3;
    settings.test_share = 0;
    write_file(settings.path, text);
    return settings;
  }
  std::string error(
      const std::string& text, const std::function<void(DataSettings&)>& change = [](DataSettings&) {}) {
    DataSettings settings = table(text);
    change(settings);
    std::string message = array_error(settings);
    const size_t at = message.find(settings.path);
    return at == std::string::npos ? message : message.replace(at, settings.path.size(), "FILE");
  }

  TemporaryFolder folder_;
};

TEST_F(Csv, NumbersInAnySpelling) {
  const DataSplits splits = open_data(table("\xEF\xBB\xBFwidth,\"height, outer\",kind\r\n"
                                            "1.5,-2e-3,0\r\n\r\n"
                                            " +0.25 ,\"16777217\",2\r\n"
                                            "nan,-inf,1"),
                                      0);
  EXPECT_EQ(splits.train->size(), 3);
  EXPECT_EQ(splits.train->input_shape(), (std::vector<int64_t>{2}));
  EXPECT_TRUE(splits.train->target_shape().empty());
  const Batch batch = read_all(*splits.train);
  EXPECT_THAT(batch.labels, ElementsAre(0, 2, 1));
  EXPECT_EQ(batch.inputs[0], 1.5f);
  EXPECT_EQ(batch.inputs[1], -2e-3f);
  EXPECT_EQ(batch.inputs[2], 0.25f);
  EXPECT_EQ(batch.inputs[3], 16777216.0f);  // a tie, to even
  EXPECT_TRUE(std::isnan(batch.inputs[4]));
  EXPECT_EQ(batch.inputs[5], -INFINITY);
}

TEST_F(Csv, ColumnsAreChosenByNameOrIndex) {
  const std::string text = "a;b;c;d\n1;2;0;4\n5;6;1;8\n";
  DataSettings settings = table(text);
  settings.delimiter = ";";
  settings.target_columns = {"c"};
  EXPECT_THAT(read_all(*open_data(settings, 0).train).inputs, ElementsAre(1, 2, 4, 5, 6, 8));
  settings.input_columns = {"-1", "a"};
  EXPECT_THAT(read_all(*open_data(settings, 0).train).inputs, ElementsAre(4, 1, 8, 5));
  settings.input_columns = {"a"};
  settings.target_columns = {"1", "3"};
  settings.target_kind = TargetKind::values;
  const DataSplits splits = open_data(settings, 0);
  EXPECT_EQ(splits.train->target_shape(), (std::vector<int64_t>{2}));
  EXPECT_THAT(read_all(*splits.train).values, ElementsAre(2, 4, 6, 8));
  settings = table("1,2\n3,0\n");
  settings.header = false;
  EXPECT_THAT(read_all(*open_data(settings, 0).train).labels, ElementsAre(2, 0));
}

TEST_F(Csv, CompressedFilesAndSplits) {
  DataSettings settings = table("x,y\n1,0\n2,1\n3,2\n4,0\n");
  settings.test_path = settings.path + ".gz";
  const gzFile file = gzopen(settings.test_path.c_str(), "wb");
  EXPECT_EQ(gzputs(file, "x,y\n7,1\n"), 8);
  gzclose(file);
  DataSplits splits = open_data(settings, 0);
  EXPECT_EQ(splits.train->size(), 4);
  EXPECT_THAT(read_all(*splits.test).inputs, ElementsAre(7));
  settings.test_path.clear();
  settings.test_share = 0.25;
  splits = open_data(settings, 0);
  EXPECT_EQ(splits.train->size(), 3);
  EXPECT_THAT(read_all(*splits.test).inputs, ElementsAre(4));
}

TEST_F(Csv, ALabelThatTheLossIgnoresNeedsNoClass) {
  const DataSettings settings = table("x,y\n1,-100\n2,1\n");
  EXPECT_THAT(read_all(*open_data(settings, {0, -100}).train).labels, ElementsAre(-100, 1));
  EXPECT_EQ(array_error(settings),
            settings.path + ":2:2: column 'y': the label is -100, expected 0 to 2 for 3 classes (data.classes)");
}

TEST_F(Csv, AColumnIsUsedOnce) {
  const auto error_with = [&](std::vector<std::string> inputs, std::vector<std::string> targets) {
    return error("a,b,c\n1,2,0\n", [&](DataSettings& settings) {
      settings.input_columns = std::move(inputs);
      settings.target_columns = std::move(targets);
      settings.target_kind = TargetKind::values;
    });
  };
  EXPECT_EQ(error_with({"a", "b", "0"}, {}), "data.input_columns: column '0' of FILE stands twice");
  EXPECT_EQ(error_with({}, {"c", "c"}), "data.target_columns: column 'c' of FILE stands twice");
  EXPECT_EQ(error_with({"a", "c"}, {}), "data.input_columns: column 'c' of FILE is a target as well");
  EXPECT_EQ(error_with({"b", "a"}, {"c", "0"}), "data.input_columns: column 'a' of FILE is a target as well");
  EXPECT_EQ(error_with({"b", "a"}, {"c"}), "no error");
}

// A folder that is not there.
TEST_F(Csv, TheFolderOfScratchFilesIsNamed) {
  const std::string missing = folder_.file("missing");
  const VariableScope scratch("TMPDIR", missing);
  EXPECT_EQ(error("a,b\n1,0\n"), "cannot write a scratch file for CSV data in '" + missing +
                                     "': No such file or directory; TMPDIR names another folder");
}

TEST_F(Csv, MistakesAreNamedWithTheirPlace) {
  EXPECT_EQ(error("a,b\n1,0\n\nx1,1\n"), "FILE:4:1: column 'a': expected a number that FP64 holds, found 'x1'");
  EXPECT_EQ(error("a,b\n1,0\n,1\n"), "FILE:3:1: column 'a': expected a number, found nothing");
  EXPECT_EQ(error("a,b\n1e999,0\n"), "FILE:2:1: column 'a': expected a number that FP64 holds, found '1e999'");
  EXPECT_EQ(error("a,b\n1,0\n1,3\n"), "FILE:3:2: column 'b': the label is 3, expected 0 to 2 for 3 classes (data.classes)");
  EXPECT_EQ(error("a,b\n1,0.5\n"), "FILE:2:2: column 'b': the label is 0.5, expected 0 to 2 for 3 classes (data.classes)");
  EXPECT_EQ(error("a,b\n1,0\n1\n"), "FILE:3: expected 2 fields as in the first line, found 1");
  EXPECT_EQ(error("a,b\n1,\"0\n"), "FILE:3: a quote within a field, or one that is not closed");
  EXPECT_EQ(error("a,b\n1,0\"0\n"), "FILE:2: a quote within a field, or one that is not closed");
  EXPECT_EQ(error(""), "FILE: expected rows of numbers below the header, found none");
  EXPECT_EQ(error("a,b\n"), "FILE: expected rows of numbers below the header, found none");
  EXPECT_EQ(error("a\n0\n"), "FILE: expected a column beside the targets, found 1 column");
  EXPECT_THAT(error("1,2\n3,0\n"), HasSubstr("FILE:1: expected the names of the columns, found numbers; data.header = false"));
  EXPECT_EQ(error("alpha,beta\n1,0\n", [](DataSettings& settings) { settings.target_columns = {"bet"}; }),
            "data.target_columns: FILE has no column 'bet'; did you mean 'beta'?");
  EXPECT_EQ(error("a,a,b\n1,1,0\n", [](DataSettings& settings) { settings.input_columns = {"a"}; }),
            "data.input_columns: two columns of FILE are called 'a'; expected an index");
  EXPECT_EQ(error("a,b\n1,0\n", [](DataSettings& settings) { settings.target_columns = {"2"}; }),
            "data.target_columns: column 2 is none of FILE, expected -2 to 1");
  EXPECT_THAT(error("a,b\n1,0\n", [](DataSettings& settings) { settings.path += "x"; }),
              HasSubstr("no such file, expected CSV data"));
}

// Samples that are their number, many times over, in chunks; counts how often each chunk is read.
class Counted : public SampleArray {
 public:
  Counted(int64_t samples, int64_t elements, int64_t chunk) : shape_{samples, elements}, chunk_(chunk) {}
  const std::string& name() const override { return name_; }
  const std::vector<int64_t>& shape() const override { return shape_; }
  int64_t chunk() const override { return chunk_; }
  void read(int64_t first, int64_t count, double* values) const override {
    EXPECT_EQ(first % chunk_, 0);
    EXPECT_TRUE(count % chunk_ == 0 || first + count == shape_[0]) << count;
    for (int64_t i = 0; i < count; ++i) {
      std::fill_n(values + i * shape_[1], shape_[1], static_cast<double>(first + i));
      ++reads[(first + i) / chunk_];
    }
  }
  mutable std::map<int64_t, int64_t> reads;  // of samples

 private:
  std::string name_ = "counted";
  std::vector<int64_t> shape_;
  int64_t chunk_;
};

// 250 MB, of which 64 MiB are held at a time.
TEST(SampleArrays, AShuffledEpochReadsEachChunkOnce) {
  constexpr int64_t kSamples = 1900, kChunk = 16, kElements = 1 << 15;
  const auto inputs = std::make_shared<Counted>(kSamples, kElements, kChunk), targets = std::make_shared<Counted>(kSamples, 1, 1);
  DataSettings settings;
  settings.target_kind = TargetKind::values;
  settings.test_share = 0;
  const DataSplits splits = open_arrays(settings, 0, {inputs, targets}, {});
  const Locality locality = splits.train->locality();
  EXPECT_EQ(locality.block, kChunk);
  ASSERT_LT(locality.window, kSamples / kChunk / 3);
  ASSERT_GT(locality.window, 20);
  Loader loader(*splits.train, {.batch_size = 40, .shuffle = true, .drop_last = false, .seed = 5});
  std::vector<float> order;
  Batch batch;
  for (int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
    loader.next(batch);
    for (size_t sample = 0; sample < batch.values.size(); ++sample) {
      EXPECT_EQ(batch.inputs[sample * kElements], batch.values[sample]);
      EXPECT_EQ(batch.inputs[(sample + 1) * kElements - 1], batch.values[sample]);
      order.push_back(batch.values[sample]);
    }
  }
  EXPECT_EQ(inputs->reads.size(), static_cast<size_t>((kSamples - 1) / kChunk + 1));
  for (const auto& [chunk, samples] : inputs->reads) EXPECT_EQ(samples, std::min(kChunk, kSamples - chunk * kChunk)) << chunk;
  // Blocks come from all of the file: the first window's samples are spread over it.
  const auto first = order.begin(), last = order.begin() + locality.window * kChunk / 2;
  EXPECT_LT(*std::min_element(first, last), kSamples / 10);
  EXPECT_GT(*std::max_element(first, last), kSamples - kSamples / 10);
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], static_cast<float>(i));
}

// 10^7 samples in 41 GB, of which no more than the window may come into memory, its order with it. The file is one hole.
TEST(SampleArrays, TenMillionSamplesAreStreamed) {
  const TemporaryFolder folder;
  constexpr int64_t kSamples = 10'000'000, kElements = 4096;
  DataSettings settings;
  settings.kind = DataKind::npy;
  settings.inputs = folder.file("inputs.npy");
  settings.targets = folder.file("targets.npy");
  for (const auto& [path, shape, bytes] :
       {std::tuple{settings.inputs, fmt::format("{}, {}", kSamples, kElements), kSamples * kElements},
        std::tuple{settings.targets, fmt::format("{},", kSamples), kSamples}}) {
    std::string header = fmt::format("{{'descr': '|u1', 'fortran_order': False, 'shape': ({}), }}", shape);
    header.resize(117, ' ');
    header += '\n';
    write_file(path, std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header);
    std::filesystem::resize_file(path, 128 + static_cast<uintmax_t>(bytes));
  }
  const auto allocated = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<double>(info.uordblks + info.hblkhd);
  };
  const double before = allocated();
  double most = 0;
  const DataSplits splits = open_data(settings, 0);
  EXPECT_EQ(splits.train->size(), 9'000'000);
  Loader loader(*splits.train, {.batch_size = 256, .shuffle = true, .drop_last = false, .seed = 1});
  Batch batch;
  for (int i = 0; i < 40; ++i) {
    loader.next(batch);
    most = std::max(most, allocated() - before);
  }
  const Locality locality = splits.train->locality();
  EXPECT_LT(locality.block * locality.window, 40 * 256 / 2) << "the batches span windows";
  // The window, a batch, the 8 bytes of each of 600,000 blocks of 15 samples, and what reads a block.
  EXPECT_LT(most, 0x1p26 + 256 * kElements * 4 + 8 * 600'000 + 0x1p21);
  loader.seek({7, 30000});  // any place at once
  loader.next(batch);
  EXPECT_EQ(batch.input_shape, (std::vector<int64_t>{256, kElements}));
}

}  // namespace
}  // namespace ulpscope
