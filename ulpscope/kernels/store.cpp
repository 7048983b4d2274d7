#include "ulpscope/kernels/store.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "ulpscope/emulation/rounding.h"

namespace ulpscope {
namespace {

// FP64 into FP32, counted here: the collector's wide values are FP32.
void store_as_f32(const double* values, int64_t n, float* out, RoundingCounts& counts, double scale) {
  for (int64_t i = 0; i < n; ++i) {
    const double before = values[i];
    const float after = static_cast<float>(before);
    if (out != nullptr) out[i] = after;
    if (before == 0 || !std::isfinite(before)) continue;
    if (after == 0) {
      ++counts.flushed;
    } else if (std::isinf(after)) {
      ++counts.overflowed;
    } else if (std::fabs(after) < 0x1p-126f) {
      ++counts.subnormal;
      counts.inexact_subnormal += static_cast<double>(after) != before;
    }
    counts.rescued += after != 0 && static_cast<float>(before / scale) == 0;
  }
}

}  // namespace

OutputRecord* wanted_record(const OpCall& call, int slot) {
  if (call.records.empty() || call.records[slot] == nullptr) return nullptr;
  OutputRecord* record = call.records[slot];
  return record->wanted == StatisticsLevel::none ? nullptr : record;
}

float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // now truncated
  return std::bit_cast<float>(bits | 1);
}

void store_output(const OpCall& call, int slot, const float* values, const ParallelFor& parallel_for) {
  const TensorView& view = call.outputs[slot];
  const int64_t size = view.size();
  OutputRecord none;
  OutputRecord* record = wanted_record(call, slot);
  const bool narrow = view.data != nullptr && (view.dtype == DType::f16 || view.dtype == DType::bf16);
  StatisticsCollector collector(record != nullptr ? *record : none, size, narrow ? info(view.dtype).format : nullptr);
  parallel_for((size + kStatisticsBlock - 1) / kStatisticsBlock, [&](int64_t block) {
    const int64_t begin = block * kStatisticsBlock;
    const int64_t n = std::min(kStatisticsBlock, size - begin);
    if (narrow) {
      collector.add_and_round(block, values + begin, n, view.as<uint16_t>() + begin);
    } else {
      if (view.data != nullptr) std::memcpy(view.as<float>() + begin, values + begin, static_cast<size_t>(n) * sizeof(float));
      if (collector.active()) collector.add(block, values + begin, n);
    }
  });
  if (collector.active()) collector.finish();
}

void store_output(const OpCall& call, int slot, const double* values, const ParallelFor& parallel_for) {
  TensorView view = call.outputs[slot];
  const auto size = static_cast<size_t>(view.size());
  OutputRecord* record = wanted_record(call, slot);
  if (view.dtype == DType::f64) {
    if (view.data != nullptr) std::memcpy(view.data, values, size * sizeof(double));
    if (record == nullptr) return;
    view.data = const_cast<double*>(values);
    collect_statistics(view, *record, parallel_for);
  } else if (view.dtype == DType::f32) {
    RoundingCounts counts;
    std::vector<float> unstored(view.data == nullptr ? size : 0);
    if (view.data == nullptr) view.data = unstored.data();
    store_as_f32(values, static_cast<int64_t>(size), view.as<float>(), counts, record != nullptr ? record->scale : 1.0);
    if (record == nullptr) return;
    collect_statistics(view, *record, parallel_for);
    record->rounding = counts;
    record->rounding_known = true;
  } else {
    std::vector<float> odd(size);
    std::transform(values, values + size, odd.begin(), round_to_odd);
    store_output(call, slot, odd.data(), parallel_for);
  }
}

void record_stored(const OpCall& call, int slot, const ParallelFor& parallel_for) {
  OutputRecord* record = wanted_record(call, slot);
  if (record != nullptr) collect_statistics(call.outputs[slot], *record, parallel_for);
}

}  // namespace ulpscope
