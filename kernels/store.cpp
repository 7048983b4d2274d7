#include "ulpscope/kernels/store.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "ulpscope/emulation/narrow_format.h"

namespace ulpscope {
namespace {

template <typename C>
void store(const OpCall& call, int slot, const C* values, const ParallelFor& parallel_for) {
  const TensorView& view = call.outputs[slot];
  const int64_t size = view.size();
  const bool narrower = view.data != nullptr && info(view.dtype).size < sizeof(C);
  OutputRecord nothing_wanted;
  OutputRecord* record = wanted_record(call, slot);
  StatisticsCollector collector(record != nullptr ? *record : nothing_wanted, size, narrower ? info(view.dtype).format : nullptr);
  parallel_for((size + kStatisticsBlock - 1) / kStatisticsBlock, [&](int64_t block) {
    const int64_t begin = block * kStatisticsBlock;
    const int64_t n = std::min(kStatisticsBlock, size - begin);
    if (!narrower) {
      if (view.data != nullptr) std::memcpy(view.as<C>() + begin, values + begin, static_cast<size_t>(n) * sizeof(C));
      collector.add(block, values + begin, n);
    } else if (is_narrow(*info(view.dtype).format)) {
      collector.add_and_encode(block, values + begin, n, view.as<char>() + begin * static_cast<int64_t>(info(view.dtype).size));
    } else if constexpr (std::is_same_v<C, double>) {
      collector.add_and_round(block, values + begin, n, view.as<float>() + begin);
    }
  });
  collector.finish();
}

}  // namespace

OutputRecord* wanted_record(const OpCall& call, int slot) {
  if (call.records.empty() || call.records[slot] == nullptr) return nullptr;
  OutputRecord* record = call.records[slot];
  return record->wanted == StatisticsLevel::none ? nullptr : record;
}

void store_output(const OpCall& call, int slot, const float* values, const ParallelFor& parallel_for) {
  store(call, slot, values, parallel_for);
}

void store_output(const OpCall& call, int slot, const double* values, const ParallelFor& parallel_for) {
  store(call, slot, values, parallel_for);
}

StepwiseOutput::StepwiseOutput(const OpCall& call, int slot)
    : view_(call.outputs[slot]),
      narrow_(narrow_format(*info(view_.dtype).format)),
      record_(wanted_record(call, slot)),
      rounding_(stepwise_rounding(call, slot)) {
  if (record_ != nullptr) collector_.emplace(*record_, view_.size(), narrow_.format);
}

void StepwiseOutput::put(int64_t block, const float* values, float* wide, int64_t n) {
  narrow_.round_all(values, narrow_.at(view_.data, block * kStatisticsBlock), static_cast<size_t>(n));
  if (!recorded()) return;
  RoundingCounts counts;
  for (int64_t i = 0; i < n; ++i) {
    if (std::isnan(values[i])) wide[i] = values[i];
    rounding_.count(wide[i], values[i], counts);
  }
  collector_->add(block, wide, n);
  const std::lock_guard lock(mutex_);
  counts_.merge(counts);
}

void StepwiseOutput::finish() {
  if (!recorded()) return;
  collector_->finish();
  record_->rounding = counts_;
}

void record_stored(const OpCall& call, int slot, const ParallelFor& parallel_for) {
  OutputRecord* record = wanted_record(call, slot);
  if (record != nullptr) collect_statistics(call.outputs[slot], *record, parallel_for);
}

void record_moved(const OpCall& call, int slot, const ParallelFor& parallel_for) {
  OutputRecord* record = wanted_record(call, slot);
  const TensorView& view = call.outputs[slot];
  if (record == nullptr || !is_float(view.dtype) || !is_narrow(*info(view.dtype).format))
    return record_stored(call, slot, parallel_for);
  const NarrowFormat& narrow = narrow_format(*info(view.dtype).format);
  const int64_t size = view.size();
  StatisticsCollector collector(*record, size, narrow.format);
  parallel_for((size + kStatisticsBlock - 1) / kStatisticsBlock, [&](int64_t block) {
    alignas(64) float wide[kStatisticsBlock];
    const int64_t begin = block * kStatisticsBlock, n = std::min(kStatisticsBlock, size - begin);
    narrow.widen_all(narrow.at(view.data, begin), wide, static_cast<size_t>(n));
    collector.add(block, wide, n);
  });
  collector.finish();
}

}  // namespace ulpscope
