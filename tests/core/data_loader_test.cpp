// Generated data, and the order in which a loader yields samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "ulpscope/base/error.h"
#include "ulpscope/core/data/dataset.h"

namespace ulpscope {
namespace {

// Samples whose only feature is their index.
class Numbered : public Dataset {
 public:
  explicit Numbered(int64_t size) : Numbered(size, {size, 1}) {}
  Numbered(int64_t size, Locality locality) : size_(size), locality_(locality) {}
  int64_t size() const override { return size_; }
  const std::vector<int64_t>& input_shape() const override { return shape_; }
  const std::vector<int64_t>& target_shape() const override { return target_; }
  TargetKind target_kind() const override { return TargetKind::labels; }
  int64_t classes() const override { return size_; }
  Locality locality() const override { return locality_; }
  void prefetch(std::span<const int64_t> blocks) const override { prefetched.emplace_back(blocks.begin(), blocks.end()); }
  void fill_batch(std::span<const int64_t> indices, Batch& batch) const override {
    batch.input_shape = {static_cast<int64_t>(indices.size()), 1};
    batch.labels.assign(indices.begin(), indices.end());
  }
  mutable std::vector<std::vector<int64_t>> prefetched;

 private:
  int64_t size_;
  Locality locality_;
  std::vector<int64_t> shape_{1}, target_;
};

std::vector<int64_t> next_labels(Loader& loader) {
  Batch batch;
  loader.next(batch);
  return batch.labels;
}

std::vector<int64_t> epoch_of(Loader& loader) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
    const std::vector<int64_t> labels = next_labels(loader);
    all.insert(all.end(), labels.begin(), labels.end());
  }
  return all;
}

TEST(Loader, EveryEpochIsAnotherPermutation) {
  const Numbered data(103);
  Loader loader(data, {.batch_size = 10, .shuffle = true, .drop_last = false, .seed = 7});
  EXPECT_EQ(loader.batches_per_epoch(), 11);
  std::set<std::vector<int64_t>> orders;
  for (int epoch = 0; epoch < 5; ++epoch) {
    EXPECT_EQ(loader.position(), (LoaderPosition{epoch, 0}));
    std::vector<int64_t> order = epoch_of(loader);
    orders.insert(order);
    std::sort(order.begin(), order.end());
    std::vector<int64_t> all(103);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(order, all);
  }
  EXPECT_EQ(orders.size(), 5u);
}

// Where each of 8 samples comes in 4,000 epochs: 500 times at each place are expected, with a standard deviation of 21; the bound
// is five of them and a half.
TEST(Loader, EveryPlaceIsEquallyLikely) {
  const Numbered data(8);
  Loader loader(data, {.batch_size = 8, .shuffle = true, .drop_last = true, .seed = 3});
  std::array<std::array<int, 8>, 8> counts{};
  for (int epoch = 0; epoch < 4000; ++epoch) {
    const std::vector<int64_t> order = next_labels(loader);
    for (size_t place = 0; place < 8; ++place) ++counts[place][static_cast<size_t>(order[place])];
  }
  for (const auto& row : counts) {
    for (const int count : row) EXPECT_NEAR(count, 500, 115);
  }
}

TEST(Loader, SeeksToWhereAnotherStopped) {
  const Numbered data(50);
  const Loader::Options options{.batch_size = 8, .shuffle = true, .drop_last = false, .seed = 11};
  Loader first(data, options);
  for (int i = 0; i < 17; ++i) next_labels(first);
  EXPECT_EQ(first.position(), (LoaderPosition{2, 3}));
  Loader second(data, options);
  second.seek(first.position());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(next_labels(first), next_labels(second));
  EXPECT_THROW(second.seek({0, 7}), Error);
  EXPECT_THROW(second.seek({-1, 0}), Error);
}

// 103 samples in 15 blocks, the last one of 5, shuffled four blocks at a time.
TEST(Loader, BlocksAreShuffledAndWindowsOfThem) {
  const Numbered data(103, {7, 4});
  const Loader::Options options{.batch_size = 6, .shuffle = true, .drop_last = false, .seed = 7};
  Loader loader(data, options);
  std::set<std::vector<int64_t>> orders;
  std::set<size_t> places_of_last_block;
  for (int epoch = 0; epoch < 30; ++epoch) {
    data.prefetched.clear();
    const std::vector<int64_t> order = epoch_of(loader);
    orders.insert(order);
    ASSERT_EQ(data.prefetched.size(), 4u);
    size_t place = 0;
    std::set<int64_t> blocks_seen;
    for (const std::vector<int64_t>& blocks : data.prefetched) {
      EXPECT_TRUE(std::is_sorted(blocks.begin(), blocks.end()));
      std::set<int64_t> expected, found;
      for (const int64_t block : blocks) {
        EXPECT_TRUE(blocks_seen.insert(block).second);
        if (block == 14) places_of_last_block.insert(place);
        for (int64_t sample = 7 * block; sample < std::min<int64_t>(7 * block + 7, 103); ++sample) expected.insert(sample);
      }
      while (found.size() < expected.size()) found.insert(order.at(place++));
      EXPECT_EQ(found, expected);
    }
    EXPECT_EQ(place, 103u);
    // From any place on.
    Loader other(data, options);
    other.seek({epoch, 9});
    EXPECT_EQ(next_labels(other), std::vector<int64_t>(order.begin() + 54, order.begin() + 60));
  }
  EXPECT_EQ(orders.size(), 30u);
  EXPECT_GT(places_of_last_block.size(), 2u);
}

TEST(Loader, OneWindowIsShuffledAsIfThereWereNone) {
  const Numbered all(100), blocks(100, {7, 15});
  const Loader::Options options{.batch_size = 100, .seed = 3};
  Loader a(all, options), b(blocks, options);
  for (int epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(next_labels(a), next_labels(b));
}

TEST(Loader, BlocksWithoutShufflingComeInOrder) {
  const Numbered data(20, {3, 2});
  Loader loader(data, {.batch_size = 4, .shuffle = false, .drop_last = false, .seed = 0});
  std::vector<int64_t> order = epoch_of(loader), expected(20);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
  EXPECT_TRUE(data.prefetched.empty());
}

TEST(Loader, SeedsDifferAndRepeat) {
  const Numbered data(50);
  Loader a(data, {.batch_size = 50, .seed = 1}), b(data, {.batch_size = 50, .seed = 1}), c(data, {.batch_size = 50, .seed = 2});
  const std::vector<int64_t> order = next_labels(a);
  EXPECT_EQ(order, next_labels(b));
  EXPECT_NE(order, next_labels(c));
}

TEST(Loader, LastBatchIsSmallerOrLeftOut) {
  const Numbered data(10);
  Loader all(data, {.batch_size = 4, .shuffle = false, .drop_last = false, .seed = 0});
  EXPECT_EQ(all.batches_per_epoch(), 3);
  EXPECT_EQ(epoch_of(all), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  Loader even(data, {.batch_size = 4, .shuffle = false, .drop_last = true, .seed = 0});
  EXPECT_EQ(even.batches_per_epoch(), 2);
  EXPECT_EQ(epoch_of(even).size(), 8u);
  EXPECT_THROW(Loader(data, {.batch_size = 11, .shuffle = false, .drop_last = true, .seed = 0}), Error);
  EXPECT_THROW(Loader(data, {.batch_size = 0}), Error);
}

TEST(Targets, MayBeTheInput) {
  DataSettings settings;
  settings.shape = {2, 3, 4};
  settings.train_size = settings.test_size = 5;
  Batch given, reconstructed;
  const std::vector<int64_t> indices{4, 0, 2};
  open_data(settings, 1).train->fill_batch(indices, given);
  settings.target = TargetSource::input;
  const DataSplits splits = open_data(settings, 1);
  EXPECT_EQ(splits.train->target_kind(), TargetKind::values);
  EXPECT_EQ(splits.test->target_shape(), (std::vector<int64_t>{2, 3, 4}));
  splits.train->fill_batch(indices, reconstructed);
  EXPECT_EQ(reconstructed.inputs, given.inputs);
  EXPECT_EQ(reconstructed.values, given.inputs);
  EXPECT_EQ(reconstructed.target_shape, given.input_shape);
  EXPECT_TRUE(reconstructed.labels.empty());

  settings.kind = DataKind::copy_task;
  try {
    open_data(settings, 1);
    FAIL() << "indices are no values to be given";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "data.target: expected inputs that are values, the data has indices");
  }
}

TEST(QuantizedSine, HasItsCoordinatesAndLevels) {
  DataSettings settings;
  settings.kind = DataKind::quantized_sine;
  settings.height = 5;
  settings.width = 9;
  settings.frequency = 1;
  const DataSplits splits = open_data(settings, 0);
  EXPECT_EQ(splits.train->input_shape(), (std::vector<int64_t>{2, 5, 9}));
  EXPECT_EQ(splits.train->target_shape(), (std::vector<int64_t>{1, 5, 9}));
  EXPECT_EQ(splits.train->target_kind(), TargetKind::values);
  Batch batch;
  splits.train->fill_batch(std::array<int64_t, 1>{0}, batch);
  EXPECT_EQ(batch.input_shape, (std::vector<int64_t>{1, 2, 5, 9}));
  EXPECT_EQ(batch.target_shape, (std::vector<int64_t>{1, 1, 5, 9}));
  EXPECT_TRUE(batch.labels.empty());
  const auto at = [](size_t row, size_t column) { return row * 9 + column; };
  EXPECT_EQ(batch.inputs[at(3, 2)], 0.25f);       // x
  EXPECT_EQ(batch.inputs[45 + at(3, 2)], 0.75f);  // y
  EXPECT_EQ(batch.inputs[at(4, 8)], 1.0f);
  // sin(2 pi x) sin(2 pi y) at (1/4, 1/4), (3/4, 1/4), (1/8, 1/4) and (7/8, 1/4): 1, -1, 0.707, -0.707; levels 3, 0, 3, 0 of 0
  // to 3.
  EXPECT_EQ(batch.values[at(1, 2)], 1.0f);
  EXPECT_EQ(batch.values[at(1, 6)], 0.0f);
  EXPECT_EQ(batch.values[at(1, 1)], 1.0f);
  EXPECT_EQ(batch.values[at(1, 7)], 0.0f);
}

TEST(QuantizedSine, ArticleSizeUsesEveryLevel) {
  DataSettings settings;
  settings.kind = DataKind::quantized_sine;
  settings.height = settings.width = 512;
  Batch batch;
  open_data(settings, 0).train->fill_batch(std::array<int64_t, 1>{0}, batch);
  EXPECT_EQ(std::set<float>(batch.values.begin(), batch.values.end()), (std::set<float>{0.0f, 1 / 3.0f, 2 / 3.0f, 1.0f}));
}

TEST(RandomClassification, IsSeededAndShaped) {
  DataSettings settings;
  settings.shape = {3, 4, 5};
  settings.train_size = 20;
  settings.test_size = 7;
  const DataSplits a = open_data(settings, 1), b = open_data(settings, 1), c = open_data(settings, 2);
  EXPECT_EQ(a.train->size(), 20);
  EXPECT_EQ(a.test->size(), 7);
  Batch of_a, of_b, of_c, of_test;
  const std::array<int64_t, 2> indices{5, 3};
  a.train->fill_batch(indices, of_a);
  b.train->fill_batch(indices, of_b);
  c.train->fill_batch(indices, of_c);
  a.test->fill_batch(indices, of_test);
  EXPECT_EQ(of_a.input_shape, (std::vector<int64_t>{2, 3, 4, 5}));
  EXPECT_EQ(of_a.inputs, of_b.inputs);
  EXPECT_EQ(of_a.labels, of_b.labels);
  EXPECT_NE(of_a.inputs, of_c.inputs);
  EXPECT_NE(of_a.inputs, of_test.inputs);
}

// Both splits are labelled by one linear teacher: a linear classifier learns it from the first and holds on the second.
TEST(RandomClassification, ALinearClassifierLearnsIt) {
  DataSettings settings;
  settings.shape = {8};
  settings.classes = 3;
  const DataSplits splits = open_data(settings, 5);
  const auto all_of = [](const Dataset& data) {
    std::vector<int64_t> indices(static_cast<size_t>(data.size()));
    std::iota(indices.begin(), indices.end(), 0);
    Batch batch;
    data.fill_batch(indices, batch);
    return batch;
  };
  double weights[3][8] = {};
  const auto predict = [&](const float* x) {
    std::array<double, 3> scores{};
    for (size_t c = 0; c < 3; ++c) scores[c] = std::inner_product(x, x + 8, weights[c], 0.0);
    return std::max_element(scores.begin(), scores.end()) - scores.begin();
  };
  const Batch train = all_of(*splits.train), test = all_of(*splits.test);
  for (int epoch = 0; epoch < 10; ++epoch) {  // a perceptron
    for (size_t i = 0; i < train.labels.size(); ++i) {
      const float* x = train.inputs.data() + 8 * i;
      const int64_t guess = predict(x);
      if (guess == train.labels[i]) continue;
      for (int k = 0; k < 8; ++k) {
        weights[train.labels[i]][k] += x[k];
        weights[guess][k] -= x[k];
      }
    }
  }
  std::array<int, 3> counts{};
  int right = 0;
  for (size_t i = 0; i < test.labels.size(); ++i) {
    ++counts[static_cast<size_t>(test.labels[i])];
    right += predict(test.inputs.data() + 8 * i) == test.labels[i];
  }
  EXPECT_GT(right, 0.9 * 1024);
  for (const int count : counts) EXPECT_GT(count, 50);
}

TEST(CopyTask, ASampleIsASequenceAndWhatADecoderIsGiven) {
  DataSettings settings;
  settings.kind = DataKind::copy_task;
  settings.classes = 6;
  settings.context = 5;
  settings.train_size = 400;
  const DataSplits splits = open_data(settings, 1);
  EXPECT_EQ(splits.train->size(), 400);
  EXPECT_EQ(splits.test->size(), 1024);
  EXPECT_EQ(splits.train->input_shape(), (std::vector<int64_t>{10}));
  EXPECT_EQ(splits.train->target_shape(), (std::vector<int64_t>{5}));
  EXPECT_EQ(splits.train->input_indices(), 7);
  EXPECT_EQ(splits.train->classes(), 6);
  std::vector<int64_t> all(400);
  std::iota(all.begin(), all.end(), 0);
  Batch batch, test, one;
  splits.train->fill_batch(all, batch);
  EXPECT_EQ(batch.input_shape, (std::vector<int64_t>{400, 10}));
  EXPECT_EQ(batch.target_shape, (std::vector<int64_t>{400, 5}));
  std::array<int, 6> counts{};
  std::set<std::vector<int64_t>> sequences;
  for (size_t sample = 0; sample < 400; ++sample) {
    const std::vector<int64_t> labels(batch.labels.begin() + static_cast<std::ptrdiff_t>(5 * sample),
                                      batch.labels.begin() + static_cast<std::ptrdiff_t>(5 * sample + 5));
    std::vector<int64_t> expected = labels;
    expected.push_back(6);
    expected.insert(expected.end(), labels.begin(), labels.end() - 1);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), batch.indices.begin() + static_cast<std::ptrdiff_t>(10 * sample)));
    for (const int64_t label : labels) ++counts.at(static_cast<size_t>(label));
    sequences.insert(labels);
  }
  // 2000 symbols, 333 of each expected with a standard deviation of 17: within six of them. Of 7776 sequences 400 draws hit 390 in
  // the mean, with a standard deviation of 3.
  for (const int count : counts) EXPECT_NEAR(count, 2000 / 6, 100);
  EXPECT_GT(sequences.size(), 370u);
  splits.test->fill_batch(all, test);
  EXPECT_NE(test.labels, batch.labels);
  splits.train->fill_batch(std::array<int64_t, 1>{7}, one);  // whatever the others of its batch are
  EXPECT_TRUE(std::equal(one.indices.begin(), one.indices.end(), batch.indices.begin() + 70));
  open_data(settings, 2).train->fill_batch(all, test);
  EXPECT_NE(test.labels, batch.labels);
}

}  // namespace
}  // namespace ulpscope
