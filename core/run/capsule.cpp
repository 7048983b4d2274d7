#include "ulpscope/core/run/capsule.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "ulpscope/base/hash.h"
#include "ulpscope/core/run/capsule_ring.h"

namespace ulpscope {

const char* name_of(CapsuleEvent event) {
  static constexpr const char* kNames[] = {"nan", "overflow", "backoff", "step"};
  return kNames[static_cast<size_t>(event)];
}

std::string steps_text(uint64_t first, uint64_t last) {
  return first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last);
}

uint64_t hash_of(const Batch& batch) {
  uint64_t hash = hash_text("batch");
  const auto add_all = [&](const auto& values) {
    hash = hash_combine(hash, values.size());
    for (const auto& value : values) {
      if constexpr (std::is_same_v<decltype(value), const float&>) {
        hash = hash_combine(hash, std::bit_cast<uint32_t>(value));
      } else {
        hash = hash_combine(hash, static_cast<uint64_t>(value));
      }
    }
  };
  for (const auto* integers : {&batch.input_shape, &batch.indices, &batch.target_shape, &batch.labels}) add_all(*integers);
  for (const auto* reals : {&batch.inputs, &batch.values}) add_all(*reals);
  return hash;
}

namespace {

// The words of T have the bits of `exponent` set in infinities and NaNs, and in nothing else.
template <typename T>
bool has_all_set(std::span<const std::byte> bytes, T exponent) {
  const T* words = reinterpret_cast<const T*>(bytes.data());
  T found = 0;
  for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) found |= static_cast<T>((words[i] & exponent) == exponent);
  return found != 0;
}

}  // namespace

bool holds_nonfinite(const Tensor& tensor) {
  const HostView host(tensor);
  const std::span<const std::byte> bytes = host.bytes();
  switch (tensor.dtype()) {
    case DType::f64:
      return has_all_set<uint64_t>(bytes, 0x7FF0000000000000);
    case DType::f32:
      return has_all_set<uint32_t>(bytes, 0x7F800000);
    case DType::bf16:
      return has_all_set<uint16_t>(bytes, 0x7F80);
    case DType::f16:
      return has_all_set<uint16_t>(bytes, 0x7C00);
    default:
      return false;
  }
}

void CapsuleRing::begin_step(uint64_t step, const TrainingState& training) {
  if (images_.empty() || step - images_.back().step() >= options_.keep_steps) {
    if (images_.size() < 2) {
      images_.emplace_back();
    } else {
      std::swap(images_.front(), images_.back());
      steps_.erase(steps_.begin(), steps_.end() - static_cast<std::ptrdiff_t>(step - images_.front().step()));
    }
    images_.back().take(training, step);
  }
  steps_.emplace_back();
}

void CapsuleRing::end_step(double loss, double scale, bool skipped) {
  steps_.back().loss = loss;
  steps_.back().scale = scale;
  steps_.back().skipped = skipped;
}

std::vector<int64_t> CapsuleRing::samples() const {
  std::vector<int64_t> all;
  for (const CapsuleStep& step : steps_)
    for (const CapsuleBatch& batch : step.batches) all.insert(all.end(), batch.samples.begin(), batch.samples.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

void CapsuleRing::save(CheckpointInfo info, const Dataset& data, CapsuleSteps end, const KeptSamples* kept) {
  Batch batch;
  for (CapsuleStep& step : steps_) {
    for (CapsuleBatch& each : step.batches) {
      data.fill_batch(each.samples, batch);
      each.hash = hash_of(batch);
      if (kept == nullptr) continue;
      for (int64_t& sample : each.samples) sample = kept->place_of(sample);
    }
  }
  info.step = first_step();
  end.steps = std::move(steps_);
  save_capsule(options_.path, info, images_.front(), end, kept);
}

}  // namespace ulpscope
