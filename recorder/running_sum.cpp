#include "ulpscope/recorder/running_sum.h"

#include <algorithm>
#include <cmath>

#include "ulpscope/emulation/narrow_format.h"
#include "ulpscope/kernels/statistics.h"
#include "ulpscope/trace/sink.h"

namespace ulpscope {

namespace {

constexpr int64_t kRuns = 16;

void read_run(const TensorView& view, bool is_linear, int64_t first, int64_t n, float* values) {
  if (is_linear && loses_terms(view.dtype)) {
    const NarrowFormat& format = narrow_format(*info(view.dtype).format);
    format.widen_all(format.at(view.data, first), values, static_cast<size_t>(n));
  } else if (is_linear && view.dtype == DType::f32) {
    std::copy_n(view.as<const float>() + first, n, values);
  } else {
    for (int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(read_element(view, first + i));
  }
}

}  // namespace

bool loses_terms(DType stored) { return stored == DType::f16 || stored == DType::bf16; }

std::vector<float> summed_values(const TensorView& view, int64_t most) {
  const int64_t size = view.size(), in_run = most / kRuns;
  const bool is_linear = is_contiguous(view);
  std::vector<float> values(static_cast<size_t>(std::min(size, most)));
  if (size <= most) {
    read_run(view, is_linear, 0, size, values.data());
  } else {
    for (int64_t run = 0; run < kRuns; ++run) {
      const int64_t room = size - in_run;
      // Without a product that could overflow.
      const int64_t first = room / (kRuns - 1) * run + room % (kRuns - 1) * run / (kRuns - 1);
      read_run(view, is_linear, first, in_run, values.data() + run * in_run);
    }
  }
  return values;
}

SumCounts count_sum(std::span<const float> before, std::span<const float> addend, double factor, std::span<const float> after) {
  SumCounts counts;
  for (size_t i = 0; i < before.size(); ++i) {
    const double a = before[i], b = factor * addend[i], stored = after[i];
    if (!std::isfinite(a) || !std::isfinite(b) || !std::isfinite(stored)) continue;
    ++counts.elements;
    counts.magnitude += std::abs(stored);
    if (b == 0) continue;
    ++counts.addends;
    counts.absorbed += stored == a;
    counts.asked += std::abs(b);
    counts.arrived += b > 0 ? stored - a : a - stored;
  }
  return counts;
}

void SumsOfStep::add(uint32_t tensor, const SumCounts& counts) {
  SumRow& row = rows_[tensor];
  ++row.additions;
  row.counts += counts;
}

void SumsOfStep::write(uint64_t step, TraceSink& sink) {
  for (auto& [tensor, row] : rows_) {
    row.step = step;
    row.tensor = tensor;
    sink.add_sum(row);
  }
  rows_.clear();
}

}  // namespace ulpscope
