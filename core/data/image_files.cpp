// Labelled images in IDX files, Fashion-MNIST among them.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "ulpscope/base/error.h"
#include "ulpscope/core/data/idx.h"
#include "ulpscope/core/data/sample_array.h"
#include "ulpscope/core/data/sources.h"

namespace ulpscope {

namespace {

// Pixels stay bytes in memory, and become floats in a batch.
class ImageDataset : public Dataset {
 public:
  ImageDataset(std::vector<int64_t> shape, std::vector<uint8_t> pixels, std::vector<uint8_t> labels, int64_t classes, double mean,
               double std, std::vector<SourceInfo> sources)
      : shape_(std::move(shape)),
        pixels_(std::move(pixels)),
        labels_(std::move(labels)),
        classes_(classes),
        sources_(std::move(sources)) {
    for (size_t value = 0; value < levels_.size(); ++value) {
      levels_[value] = static_cast<float>((static_cast<double>(value) / 255.0 - mean) / std);
    }
  }

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  const std::vector<int64_t>& input_shape() const override { return shape_; }
  const std::vector<int64_t>& target_shape() const override { return target_shape_; }
  TargetKind target_kind() const override { return TargetKind::labels; }
  int64_t classes() const override { return classes_; }
  std::vector<SourceInfo> sources() const override { return sources_; }

  void fill_batch(std::span<const int64_t> indices, Batch& batch) const override {
    const auto n = static_cast<int64_t>(indices.size());
    const size_t sample = pixels_.size() / labels_.size();
    batch.input_shape = {n, shape_[0], shape_[1], shape_[2]};
    batch.inputs.resize(indices.size() * sample);
    batch.target_shape = {n};
    batch.labels.resize(indices.size());
    batch.values.clear();
    float* out = batch.inputs.data();
    for (size_t i = 0; i < indices.size(); ++i, out += sample) {
      const auto index = static_cast<size_t>(indices[i]);
      const uint8_t* pixels = pixels_.data() + index * sample;
      for (size_t k = 0; k < sample; ++k) out[k] = levels_[pixels[k]];
      batch.labels[i] = labels_[index];
    }
  }

 private:
  std::vector<int64_t> shape_, target_shape_;
  std::vector<uint8_t> pixels_, labels_;
  int64_t classes_;
  std::vector<SourceInfo> sources_;
  std::array<float, 256> levels_;
};

// Of `samples` of an array; a row is one of them.
SourceInfo source_of(const std::string& path, const IdxArray& array, const char* part, int64_t samples) {
  SourceInfo source = source_in(path);
  source.part = part;
  source.samples = static_cast<uint64_t>(samples);
  if (array.is_compressed) return source;
  source.first_byte = array.offset;
  source.byte_step = array.values.size() / static_cast<size_t>(array.shape[0]);
  return source;
}

std::unique_ptr<Dataset> open_images(const std::string& images_path, const std::string& labels_path, int64_t limit,
                                     const DataSettings& settings, const DataUse& use) {
  IdxArray images = read_idx(images_path);
  IdxArray labels = read_idx(labels_path);
  if (images.shape.size() < 3) {
    throw unreadable_error("{}: expected images of 3 dimensions (images, height, width) or 4 (with channels second), found {}",
                           images_path, images.shape.size());
  }
  if (labels.shape.size() != 1) {
    throw unreadable_error("{}: expected labels of 1 dimension, found {}", labels_path, labels.shape.size());
  }
  if (images.shape[0] != labels.shape[0]) {
    throw unreadable_error("{}: expected as many labels as {} has images, {}, found {}", labels_path, images_path, images.shape[0],
                           labels.shape[0]);
  }
  const LabelRange range{settings.classes, use.ignored_label};
  const auto wrong =
      std::find_if(labels.values.begin(), labels.values.end(), [&](uint8_t label) { return !range.contains(label); });
  if (wrong != labels.values.end()) {
    throw unreadable_error("{}: the label of sample {} is {}, expected {}", labels_path, wrong - labels.values.begin(), *wrong,
                           range.text());
  }

  std::vector<int64_t> shape(images.shape.begin() + 1, images.shape.end());
  if (shape.size() == 2) shape.insert(shape.begin(), 1);
  const int64_t samples = limit > 0 ? std::min(limit, images.shape[0]) : images.shape[0];
  std::vector<SourceInfo> sources{source_of(images_path, images, kInputsPart, samples),
                                  source_of(labels_path, labels, kTargetsPart, samples)};
  if (samples < images.shape[0]) {
    images.values.resize(images.values.size() / static_cast<size_t>(images.shape[0]) * static_cast<size_t>(samples));
    labels.values.resize(static_cast<size_t>(samples));
    images.values.shrink_to_fit();
  }
  return std::make_unique<ImageDataset>(std::move(shape), std::move(images.values), std::move(labels.values), settings.classes,
                                        settings.mean, settings.std, std::move(sources));
}

// Compressed or not, in this order; "" where neither is there.
std::string find_file(const std::filesystem::path& folder, const std::string& name) {
  for (const char* ending : {".gz", ""}) {
    const std::filesystem::path path = folder / (name + ending);
    std::error_code error;
    if (std::filesystem::exists(path, error)) return path.string();
  }
  return "";
}

std::filesystem::path find_fashion_mnist(const std::string& path) {
  std::vector<std::string> folders;
  if (!path.empty()) {
    folders.push_back(path);  // what the experiment names is not looked for elsewhere
  } else {
    if (const char* data = std::getenv("ULPSCOPE_DATA"); data != nullptr && *data != '\0') {
      folders.push_back((std::filesystem::path(data) / "fashion-mnist").string());
      folders.emplace_back(data);
    }
    folders.emplace_back("/usr/share/datasets/fashion-mnist");
  }
  for (const std::string& folder : folders) {
    if (!find_file(folder, "train-images-idx3-ubyte").empty()) return folder;
  }
  throw unreadable_error(
      "Fashion-MNIST: no train-images-idx3-ubyte[.gz] in {}; install the Debian package dataset-fashion-mnist, or set data.path or "
      "ULPSCOPE_DATA to the folder of the four files",
      fmt::join(folders, ", "));
}

}  // namespace

DataSplits open_idx(const DataSettings& settings, const DataUse& use) {
  if (settings.train_images.empty() || settings.train_labels.empty()) {
    throw usage_error("data.kind = \"idx\" needs data.train_images and data.train_labels");
  }
  if (settings.test_images.empty() != settings.test_labels.empty()) {
    throw usage_error("data.test_images and data.test_labels: expected both or neither");
  }
  DataSplits splits;
  splits.train = open_images(settings.train_images, settings.train_labels, settings.train_size, settings, use);
  if (!settings.test_images.empty()) {
    splits.test = open_images(settings.test_images, settings.test_labels, settings.test_size, settings, use);
    if (splits.test->input_shape() != splits.train->input_shape()) {
      throw unreadable_error("{}: expected images of {} as in {}, found {}", settings.test_images,
                             fmt::join(splits.train->input_shape(), " x "), settings.train_images,
                             fmt::join(splits.test->input_shape(), " x "));
    }
  }
  splits.description = fmt::format("{}: {} images of {}", settings.train_images, splits.train->size(),
                                   fmt::join(splits.train->input_shape(), " x "));
  return splits;
}

DataSplits open_fashion_mnist(const DataSettings& settings, const DataUse& use) {
  const std::filesystem::path folder = find_fashion_mnist(settings.path);
  DataSettings files = settings;
  files.classes = 10;
  const auto find = [&](const std::string& name) {
    const std::string path = find_file(folder, name);
    if (path.empty()) throw unreadable_error("Fashion-MNIST: {}: no {}[.gz]", folder.string(), name);
    return path;
  };
  files.train_images = find("train-images-idx3-ubyte");
  files.train_labels = find("train-labels-idx1-ubyte");
  files.test_images = find("t10k-images-idx3-ubyte");
  files.test_labels = find("t10k-labels-idx1-ubyte");
  DataSplits splits = open_idx(files, use);
  splits.description = fmt::format("Fashion-MNIST in {}: {} training and {} test images", folder.string(), splits.train->size(),
                                   splits.test->size());
  return splits;
}

}  // namespace ulpscope
