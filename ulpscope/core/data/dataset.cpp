#include "ulpscope/core/data/dataset.h"

#include <algorithm>
#include <numeric>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/core/data/sources.h"

namespace ulpscope {

namespace {

struct DataSource {
  const char* name;
  DataSplits (*open)(const DataSettings& settings, uint64_t seed);
};
// In the order of DataKind.
constexpr DataSource kSources[] = {{"fashion_mnist", open_fashion_mnist},
                                   {"idx", open_idx},
                                   {"text", open_text},
                                   {"quantized_sine", make_quantized_sine},
                                   {"random_classification", make_random_classification},
                                   {"copy_task", make_copy_task}};

const DataSource& source_of(DataKind kind) { return kSources[static_cast<size_t>(kind)]; }

}  // namespace

const char* name_of(DataKind kind) { return source_of(kind).name; }

DataSplits open_data(const DataSettings& settings, uint64_t seed) { return source_of(settings.kind).open(settings, seed); }

Loader::Loader(const Dataset& dataset, const Options& options) : dataset_(dataset), options_(options) {
  if (options.batch_size < 1) throw usage_error("training.batch_size is {}, expected at least 1", options.batch_size);
  if (batches_per_epoch() == 0) {
    throw usage_error("training.batch_size is {}, expected at most the {} samples of the data while data.drop_last is true",
                      options.batch_size, dataset.size());
  }
}

int64_t Loader::batches_per_epoch() const {
  return (dataset_.size() + (options_.drop_last ? 0 : options_.batch_size - 1)) / options_.batch_size;
}

void Loader::seek(const LoaderPosition& position) {
  if (position.epoch < 0 || position.batch < 0 || position.batch >= batches_per_epoch()) {
    throw usage_error("batch {} of epoch {}: expected a batch from 0 to {}", position.batch, position.epoch,
                      batches_per_epoch() - 1);
  }
  position_ = position;
}

void Loader::order_epoch(int64_t epoch) {
  if (ordered_epoch_ == epoch) return;
  order_.resize(static_cast<size_t>(dataset_.size()));
  std::iota(order_.begin(), order_.end(), 0);
  if (options_.shuffle) {
    // Fisher and Yates.
    const Philox random(options_.seed, hash_combine(hash_text("loader.shuffle"), static_cast<uint64_t>(epoch)));
    for (size_t i = order_.size() - 1; i > 0; --i) std::swap(order_[i], order_[random.below(i, static_cast<uint32_t>(i + 1))]);
  }
  ordered_epoch_ = epoch;
}

void Loader::next(Batch& batch) {
  order_epoch(position_.epoch);
  const auto first = static_cast<size_t>(position_.batch * options_.batch_size);
  const size_t count = std::min(static_cast<size_t>(options_.batch_size), order_.size() - first);
  dataset_.fill_batch(std::span(order_).subspan(first, count), batch);
  if (++position_.batch == batches_per_epoch()) position_ = {position_.epoch + 1, 0};
}

}  // namespace ulpscope
