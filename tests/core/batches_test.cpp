// Which samples a step was about, and where they are: runs record their batches, and what the traces say of them is held against
// the files, which are read by other means.
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "tests/support/python.h"
#include "tests/support/temporary_folder.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/trace/snapshot.h"
#include "ulpscope/trace/sources.h"

namespace ulpscope {
namespace {

using ::testing::ElementsAre;

// A batch of 4 samples has 16 elements, all of which level full keeps.
constexpr size_t kFeatures = 4, kBatch = 4;
constexpr int kMarked = 11;  // a sample that differs from all others

// Of each batch of a phase, its samples, and the elements of a tensor as they were recorded.
struct RecordedBatch {
  uint64_t step = 0;
  std::vector<BatchRow> rows;
  std::vector<double> inputs, targets, embedded;
};

std::vector<RecordedBatch> batches_of(const Snapshot& trace, Phase phase) {
  std::map<std::pair<uint64_t, uint32_t>, RecordedBatch> batches;
  trace.visit_batches({}, [&](std::span<const BatchRow> rows) {
    for (const BatchRow& row : rows)
      if (row.phase == phase) batches[{row.step, row.micro_batch}].rows.push_back(row);
    return true;
  });
  // The inputs are made before the targets.
  std::vector<uint32_t> made, embedded;
  for (uint32_t i = 0; i < trace.tensors().size(); ++i) {
    const OpInfo& op = trace.ops()[trace.tensors()[i].op];
    const bool is_of_phase = (op.phase == Phase::evaluation) == (phase == Phase::evaluation);
    if (is_of_phase && op.name == "source" && trace.tensors()[i].role == Role::input) made.push_back(i);
    if (is_of_phase && op.name == "embedding") embedded.push_back(i);
  }
  EXPECT_EQ(made.size(), 2u);
  trace.visit_samples({}, [&](std::span<const SampleRow> rows) {
    for (const SampleRow& row : rows) {
      RecordedBatch& batch = batches[{row.step, row.micro_batch}];
      if (row.tensor == made.at(0)) batch.inputs.push_back(row.value);
      if (row.tensor == made.at(1)) batch.targets.push_back(row.value);
      if (!embedded.empty() && row.tensor == embedded[0]) batch.embedded.push_back(row.value);
    }
    return true;
  });
  std::vector<RecordedBatch> all;
  for (auto& [key, batch] : batches) {
    batch.step = key.first;
    if (!batch.rows.empty()) all.push_back(std::move(batch));
  }
  return all;
}

template <typename T>
T number_at(const std::string& path, uint64_t byte) {
  const std::string bytes = read_file(path);
  T number{};
  EXPECT_LE(byte + sizeof(T), bytes.size());
  if (byte + sizeof(T) <= bytes.size()) std::memcpy(&number, bytes.data() + byte, sizeof(T));
  return number;
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

class Batches : public ::testing::Test {
 protected:
  using ReadNumber = std::function<double(const SamplePlace& place, size_t feature)>;

  // Trains for two epochs.
  Snapshot train(const std::string& data, const std::string& layers, const std::vector<Override>& overrides = {}) {
    const std::string text = fmt::format(
        "[data]\n{}\n[model]\nlayers = [{}]\n[training]\nbatch_size = {}\nepochs = 2\n[recording]\nlevel = \"full\"\n"
        "[optimizer]\nlearning_rate = 0\n",
        data, layers, kBatch);
    TrainerOptions options;
    options.cpu.threads = 1;
    options.trace_path = folder_.file("trace.h5");
    options.overwrite = true;
    ulpscope::train(parse_experiment(text, "test", overrides), options);
    return Snapshot(options.trace_path);
  }
  Snapshot train_on_values(const std::string& data, const std::vector<Override>& overrides = {}) {
    return train(data + "\ntarget_kind = \"values\"\n", R"({ type = "linear", out_features = 1 })", [&] {
      std::vector<Override> all{"loss.function=mse"};
      all.insert(all.end(), overrides.begin(), overrides.end());
      return all;
    }());
  }

  // Every element of every batch, by where the trace says that it is. Gives the places of those samples that have a NaN.
  std::vector<SamplePlace> check(const Snapshot& trace, Phase phase, const ReadNumber& read) {
    std::set<std::string> names;
    std::vector<SamplePlace> with_nan;
    size_t samples = 0;
    for (const RecordedBatch& batch : batches_of(trace, phase)) {
      EXPECT_EQ(batch.inputs.size(), batch.rows.size() * kFeatures);
      for (size_t i = 0; i < batch.inputs.size(); ++i) {
        const FoundSample found = find_sample(trace, batch.rows.at(i / kFeatures));
        EXPECT_EQ(found.problem, "");
        if (found.places.empty()) continue;
        names.insert(found.name);
        const SamplePlace& place = found.places[0];
        EXPECT_PRED2(same, batch.inputs[i], read(place, i % kFeatures)) << found.text() << " element " << i % kFeatures;
        if (std::isnan(batch.inputs[i])) with_nan.push_back(place);
      }
      for (size_t i = 0; i < batch.targets.size(); ++i) {
        const FoundSample found = find_sample(trace, batch.rows.at(i));
        EXPECT_EQ(found.places.size(), 2u);
        if (found.places.size() < 2) continue;
        EXPECT_EQ(found.places[0].part, "inputs");
        EXPECT_EQ(found.places[1].part, "targets");
        EXPECT_PRED2(same, batch.targets[i], read(found.places[1], 0)) << found.text();
      }
      samples += batch.rows.size();
    }
    EXPECT_GT(samples, 0u);
    // Each is in each epoch once.
    EXPECT_EQ(names.size(), phase == Phase::evaluation ? samples : samples / 2);
    return with_nan;
  }

  TemporaryFolder folder_;
};

// Numbers that FP32 holds; that of a sample is found in no other one.
double input_of(int row, size_t feature) {
  return row == kMarked && feature == 2 ? std::numeric_limits<double>::quiet_NaN() : 10 * row + static_cast<double>(feature);
}
double target_of(int row) { return 1000 + row; }

// In the form of version 1, padded to 128 bytes, which nothing demands.
std::string npy(const std::string& type, const std::string& shape, const std::string& numbers) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", type, shape);
  header.resize(117, ' ');
  header += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header + numbers;
}

template <typename T>
std::string bytes_of(T number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof(T));
}

TEST_F(Batches, OfNpyFiles) {
  std::string inputs, targets;
  for (int row = 0; row < 23; ++row) {
    for (size_t feature = 0; feature < kFeatures; ++feature) inputs += bytes_of(input_of(row, feature));
    targets += bytes_of(static_cast<float>(target_of(row)));
  }
  write_file(folder_.file("x.npy"), npy("<f8", "(23, 4)", inputs));
  write_file(folder_.file("y.npy"), npy("<f4", "(23,)", targets));
  const Snapshot trace = train_on_values(fmt::format("kind = \"npy\"\ninputs = \"{}\"\ntargets = \"{}\"\ntest_share = 0.3\n",
                                                     folder_.file("x.npy"), folder_.file("y.npy")));
  const auto read = [&](const SamplePlace& place, size_t feature) {
    EXPECT_EQ(place.file, folder_.file(place.part == "inputs" ? "x.npy" : "y.npy"));
    return place.part == "inputs" ? number_at<double>(place.file, place.byte.value() + feature * sizeof(double))
                                  : number_at<float>(place.file, place.byte.value());
  };
  const std::vector<SamplePlace> marked = check(trace, Phase::forward, read);
  EXPECT_EQ(marked.size(), 2u);  // in each epoch
  for (const SamplePlace& place : marked) {
    EXPECT_EQ(place.row, kMarked);
    EXPECT_EQ(place.text(), fmt::format("inputs in {}, row 11 (from 0), from byte {} on", folder_.file("x.npy"), 128 + 11 * 32));
  }
  // The test split is the end of the same file.
  EXPECT_TRUE(check(trace, Phase::evaluation, read).empty());
  EXPECT_EQ(batches_of(trace, Phase::evaluation).size(), 2u);
  EXPECT_EQ(find_sample(trace, batches_of(trace, Phase::evaluation)[0].rows[0]).places[0].row, 17u);
}

TEST_F(Batches, OfFewerSamplesThanThereAre) {
  std::string inputs, targets;
  for (int row = 0; row < 23; ++row) {
    for (size_t feature = 0; feature < kFeatures; ++feature) inputs += bytes_of(static_cast<float>(input_of(row, feature)));
    targets += bytes_of(static_cast<float>(target_of(row)));
  }
  write_file(folder_.file("x.npy"), npy("<f4", "(23, 4)", inputs));
  write_file(folder_.file("y.npy"), npy("<f4", "(23,)", targets));
  const Snapshot trace = train_on_values(
      fmt::format("kind = \"npy\"\ninputs = \"{}\"\ntargets = \"{}\"\ntest_share = 0.3\ntrain_size = 13\ntest_size = 3\n",
                  folder_.file("x.npy"), folder_.file("y.npy")));
  const auto read = [&](const SamplePlace& place, size_t feature) {
    return number_at<float>(place.file, place.byte.value() + feature * sizeof(float));
  };
  EXPECT_EQ(check(trace, Phase::forward, read).size(), 2u);
  check(trace, Phase::evaluation, read);
  std::vector<uint64_t> samples;
  for (const SourceInfo& source : trace.sources()) samples.push_back(source.samples);
  EXPECT_THAT(samples, ElementsAre(13, 13, 3, 3));
}

// A file with a header, an empty line and a quoted line break in a column that nothing reads.
TEST_F(Batches, OfCsvFiles) {
  const auto write = [&](const std::string& name, int first, int last) {
    std::string text = "a,remark,b,c,d,y\n";
    for (int row = first; row < last; ++row) {
      text += fmt::format("{},{},{},{},{},{}\n", input_of(row, 0), row == 3 ? "\"two\nlines\"" : "-", input_of(row, 1),
                          input_of(row, 2), input_of(row, 3), target_of(row));
      if (row == 5) text += "\n";
    }
    write_file(folder_.file(name), text);
  };
  write("train.csv", 0, 18);
  write("test.csv", 18, 25);
  const Snapshot trace = train_on_values(
      fmt::format("kind = \"csv\"\npath = \"{}\"\ntest_path = \"{}\"\ninput_columns = [\"a\", \"b\", \"c\", \"d\"]\n",
                  folder_.file("train.csv"), folder_.file("test.csv")));
  // A reader for these files, whose line breaks within quotes stand in row 3 of the first.
  const auto read = [&](const SamplePlace& place, size_t feature) {
    std::string text = read_file(place.file);
    if (const size_t quoted = text.find("\"two\nlines\""); quoted != std::string::npos) text.replace(quoted, 11, "-");
    std::istringstream lines(text);
    std::string line;
    std::getline(lines, line);
    for (uint64_t row = 0; std::getline(lines, line);) {
      if (line.empty() || row++ != place.row.value()) continue;
      std::vector<double> fields;
      std::istringstream items(line);
      for (std::string item; std::getline(items, item, ',');) fields.push_back(item == "-" ? 0 : std::stod(item));
      std::vector<size_t> columns;
      std::istringstream numbers(place.columns);
      for (std::string number; std::getline(numbers, number, ',');) columns.push_back(std::stoul(number));
      return fields.at(columns.at(feature));
    }
    ADD_FAILURE() << "no row " << *place.row;
    return 0.0;
  };
  const std::vector<SamplePlace> marked = check(trace, Phase::forward, read);
  EXPECT_EQ(marked.size(), 2u);
  for (const SamplePlace& place : marked) {
    EXPECT_EQ(place.text(), fmt::format("inputs in {}, row 11 (from 0), columns 0 and 2 to 4", folder_.file("train.csv")));
    EXPECT_FALSE(place.byte);
  }
  check(trace, Phase::evaluation, read);
  EXPECT_EQ(find_sample(trace, batches_of(trace, Phase::evaluation)[0].rows[0]).text(),
            fmt::format("sample 0 of test: inputs in {0}, row 0 (from 0), columns 0 and 2 to 4; targets in {0}, row 0 (from 0), "
                        "column 5",
                        folder_.file("test.csv")));
}

TEST_F(Batches, OfHdf5Files) {
  const std::string python = find_python("h5py, numpy");
  if (python.empty()) GTEST_SKIP() << "no python3 with h5py and numpy";
  std::string rows;
  for (int row = 0; row < 23; ++row) {
    rows += "    [";
    for (size_t feature = 0; feature < kFeatures; ++feature)
      rows += fmt::format("{},", std::isnan(input_of(row, feature)) ? "np.nan" : fmt::format("{}", input_of(row, feature)));
    rows += "],\n";
  }
  write_file(folder_.file("write.py"), fmt::format("import h5py, numpy as np\nx = np.array([\n{}])\n"
                                                   "with h5py.File('data.h5', 'w') as file:\n"
                                                   "    file.create_dataset('deep/x', data=x, chunks=(5, 4), compression='gzip')\n"
                                                   "    file['y'] = 1000 + np.arange(23)\n",
                                                   rows));
  const auto run = [&](const std::string& command) {
    return std::system(fmt::format("cd {} && {}", folder_.path(), command).c_str());
  };
  ASSERT_EQ(run(python + " write.py"), 0);
  const Snapshot trace = train_on_values(fmt::format(
      "kind = \"hdf5\"\npath = \"{}\"\ninputs = \"deep/x\"\ntargets = \"y\"\ntest_share = 0.3\n", folder_.file("data.h5")));
  // h5py prints the rows that the trace names: each once.
  write_file(folder_.file("read.py"),
             "import h5py, sys\nfor line in open('places'):\n"
             "    name, row = line.split()\n"
             "    with h5py.File('data.h5') as file: print(name, row, *file[name][int(row)].reshape(-1))\n");
  std::set<std::string> places;
  for (const Phase phase : {Phase::forward, Phase::evaluation}) {
    for (const RecordedBatch& batch : batches_of(trace, phase)) {
      for (const BatchRow& row : batch.rows) {
        for (const SamplePlace& place : find_sample(trace, row).places) {
          EXPECT_EQ(place.file, folder_.file("data.h5"));
          places.insert(fmt::format("{} {}\n", place.inside, place.row.value()));
        }
      }
    }
  }
  write_file(folder_.file("places"), fmt::format("{}", fmt::join(places, "")));
  ASSERT_EQ(run(python + " read.py > numbers"), 0);
  std::map<std::pair<std::string, uint64_t>, std::vector<double>> numbers;
  std::istringstream lines(read_file(folder_.file("numbers")));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream items(line);
    std::string name, item;
    uint64_t row = 0;
    items >> name >> row;
    while (items >> item) numbers[{name, row}].push_back(std::stod(item));
  }
  const auto read = [&](const SamplePlace& place, size_t feature) { return numbers.at({place.inside, *place.row}).at(feature); };
  const std::vector<SamplePlace> marked = check(trace, Phase::forward, read);
  EXPECT_EQ(marked.size(), 2u);
  for (const SamplePlace& place : marked)
    EXPECT_EQ(place.text(), fmt::format("inputs in {}: deep/x, row 11 (from 0)", folder_.file("data.h5")));
  check(trace, Phase::evaluation, read);
}

std::string idx(std::initializer_list<uint32_t> extents, const std::string& elements) {
  std::string bytes{0, 0, 8, static_cast<char>(extents.size())};
  for (const uint32_t extent : extents)
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(extent >> shift);
  return bytes + elements;
}

// What gzip -d gives, or the bytes as they are.
std::string decompressed(const std::string& path) {
  std::string bytes;
  const gzFile file = gzopen(path.c_str(), "rb");
  char buffer[4096];
  for (int size = 0; (size = gzread(file, buffer, sizeof(buffer))) > 0;) bytes.append(buffer, static_cast<size_t>(size));
  gzclose(file);
  return bytes;
}

// Images of 2 x 2, in which the first pixel is the image's number; plain ones, and those that gzip compressed.
TEST_F(Batches, OfIdxFiles) {
  std::string pixels, labels;
  for (int image = 0; image < 21; ++image) {
    pixels +=
        std::string{static_cast<char>(image), static_cast<char>(100 + image), static_cast<char>(image == kMarked ? 255 : 0), 7};
    labels += static_cast<char>(image % 10);
  }
  const std::string images = idx({21, 2, 2}, pixels);
  write_file(folder_.file("images"), images);
  write_file(folder_.file("labels"), idx({21}, labels));
  const gzFile packed = gzopen(folder_.file("images.gz").c_str(), "wb");
  ASSERT_EQ(gzwrite(packed, images.data(), static_cast<unsigned>(images.size())), static_cast<int>(images.size()));
  gzclose(packed);
  for (const std::string name : {"images", "images.gz"}) {
    SCOPED_TRACE(name);
    const Snapshot trace = train(
        fmt::format("kind = \"idx\"\ntrain_images = \"{}\"\ntrain_labels = \"{}\"\n", folder_.file(name), folder_.file("labels")),
        R"({ type = "flatten" }, { type = "linear", out_features = 10 })", {"data.train_size=19"});
    const auto read = [&](const SamplePlace& place, size_t pixel) -> double {
      EXPECT_EQ(place.file, folder_.file(name));
      EXPECT_EQ(place.byte.has_value(), name == "images");
      const uint64_t byte = place.byte.value_or(16 + place.row.value() * kFeatures) + pixel;
      return static_cast<float>(static_cast<uint8_t>(decompressed(place.file).at(byte)) / 255.0);
    };
    check(trace, Phase::forward, read);
    size_t marked = 0;
    for (const RecordedBatch& batch : batches_of(trace, Phase::forward)) {
      for (size_t i = 0; i < batch.inputs.size(); ++i) {
        const std::vector<SamplePlace> places = find_sample(trace, batch.rows.at(i / kFeatures)).places;
        if (batch.inputs[i] == 1) {
          EXPECT_EQ(places.at(0).row, kMarked);
          ++marked;
        }
        // The label, which no float tensor has, is of the same image.
        const uint8_t image = number_at<uint8_t>(folder_.file("images"), 16 + places.at(0).row.value() * kFeatures);
        EXPECT_EQ(places.at(1).part, "targets");
        EXPECT_EQ(number_at<uint8_t>(places.at(1).file, places.at(1).byte.value()), image % 10);
      }
    }
    EXPECT_EQ(marked, 2u);
  }
}

// Windows of two files in steps of 3 bytes. What was embedded tells bytes apart: the weights, which do not change, are different
// numbers for each.
TEST_F(Batches, OfText) {
  std::filesystem::create_directory(folder_.file("text"));
  std::string first, second;
  for (int i = 0; i < 47; ++i) first += static_cast<char>('a' + (i * i) % 23);
  for (int i = 0; i < 31; ++i) second += static_cast<char>('A' + (i * i * i) % 19);
  second[17] = '!';
  write_file(folder_.file("text/1.txt"), first);
  write_file(folder_.file("text/2.txt"), second);
  write_file(folder_.file("text/3.txt"), "ab");  // no window fits
  const Snapshot trace =
      train(fmt::format("kind = \"text\"\npath = \"{}\"\ncontext = 4\nstride = 3\ntest_share = 0.2\n", folder_.file("text")),
            R"({ type = "embedding", num_embeddings = 256, features = 1 }, { type = "linear", out_features = 256 })");
  for (const Phase phase : {Phase::forward, Phase::evaluation}) {
    std::map<char, double> weights;
    std::map<double, char> bytes;
    std::set<std::string> files;
    size_t marked = 0;
    for (const RecordedBatch& batch : batches_of(trace, phase)) {
      ASSERT_EQ(batch.embedded.size(), batch.rows.size() * kFeatures);
      for (size_t i = 0; i < batch.embedded.size(); ++i) {
        const FoundSample found = find_sample(trace, batch.rows[i / kFeatures]);
        ASSERT_EQ(found.places.size(), 1u) << found.text();
        EXPECT_FALSE(found.places[0].row);
        EXPECT_EQ(found.text(),
                  fmt::format("{}: {}, from byte {} on", found.name, found.places[0].file, found.places[0].byte.value()));
        files.insert(found.places[0].file);
        const char byte = number_at<char>(found.places[0].file, *found.places[0].byte + i % kFeatures);
        EXPECT_EQ(weights.emplace(byte, batch.embedded[i]).first->second, batch.embedded[i]) << found.text();
        EXPECT_EQ(bytes.emplace(batch.embedded[i], byte).first->second, byte) << found.text();
        marked += byte == '!';
      }
    }
    EXPECT_EQ(files.size(), 2u);
    EXPECT_GT(weights.size(), 8u);
    // Byte 17 is in the windows from 15 on only, in both epochs.
    EXPECT_EQ(marked, phase == Phase::forward ? 2u : 0u);
  }
}

TEST_F(Batches, OfGeneratedData) {
  const Snapshot trace = train("kind = \"random_classification\"\nshape = [4]\ntrain_size = 10\ntest_size = 6\nclasses = 3",
                               R"({ type = "linear", out_features = 3 })", {"training.accumulation=2"});
  const std::vector<RecordedBatch> batches = batches_of(trace, Phase::forward);
  ASSERT_EQ(batches.size(), 6u);  // two a step; the third and sixth of 2 samples
  std::multiset<uint64_t> samples;
  for (const RecordedBatch& batch : batches)
    for (const BatchRow& row : batch.rows) samples.insert(row.sample);
  for (uint64_t sample = 0; sample < 10; ++sample) EXPECT_EQ(samples.count(sample), 2u);
  EXPECT_EQ(batches[1].rows[0].micro_batch, 1u);
  EXPECT_EQ(batches[1].rows[0].step, 0u);
  const FoundSample found = find_sample(trace, batches_of(trace, Phase::evaluation)[1].rows[1]);
  EXPECT_EQ(found.text(), "sample 5 of test: generated by random_classification");
}

TEST_F(Batches, AnAutoencoderHasNoPlaceOfTargets) {
  write_file(folder_.file("x.npy"), npy("<f4", "(5, 4)", std::string(80, '\0')));
  write_file(folder_.file("y.npy"), npy("<f4", "(5,)", std::string(20, '\0')));
  const Snapshot trace =
      train(fmt::format("kind = \"npy\"\ninputs = \"{}\"\ntargets = \"{}\"\ntarget_kind = \"values\"\ntarget = \"input\"\n",
                        folder_.file("x.npy"), folder_.file("y.npy")),
            R"({ type = "linear", out_features = 4 })", {"loss.function=mse"});
  const FoundSample found = find_sample(trace, batches_of(trace, Phase::forward)[0].rows[0]);
  ASSERT_EQ(found.places.size(), 1u);
  EXPECT_EQ(found.places[0].part, "");
  EXPECT_EQ(found.places[0].file, folder_.file("x.npy"));
}

}  // namespace
}  // namespace ulpscope
