#include "bench_trace.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "ulpscope/base/philox.h"

namespace ulpscope::bench {

BenchTrace::BenchTrace(int tensors, int steps) : tensors_(tensors) {
  const Philox random(1, 0);
  uint64_t draw = 0;
  for (int step = 0; step < steps; ++step) {
    for (int tensor = 0; tensor < tensors; ++tensor) {
      TensorRow row;
      row.tensor = static_cast<uint32_t>(tensor);
      row.sequence = static_cast<uint32_t>(tensor);
      row.known = StatisticsLevel::values;
      const bool half = tensor % 2 == 0;
      row.before_rounding = row.rounding_known = half;
      row.scale = half ? 65536.0 : 1.0;
      TensorStatistics& statistics = row.statistics;
      statistics.count = static_cast<uint64_t>(std::pow(10.0, 1 + 5.0 * tensor / tensors));
      const double deviation = std::exp2(-12.0 * tensor / tensors);
      const auto count = static_cast<double>(statistics.count);
      for (int bin = 0; bin < ExponentHistogram::kBins; ++bin) {
        // P(2^e <= |x| < 2^(e+1)), and Poisson noise on the expected count.
        const double low = std::exp2(bin - ExponentHistogram::kBias) / deviation;
        const double expected = count * (std::erf(2 * low / std::sqrt(2.0)) - std::erf(low / std::sqrt(2.0)));
        if (expected < 0.01) continue;
        const double noisy = expected + std::sqrt(expected) * random.normal(draw++);
        statistics.histogram.bins[static_cast<size_t>(bin)] = noisy < 0.5 ? 0 : static_cast<uint64_t>(noisy);
      }
      const uint64_t counted = statistics.histogram.total();
      statistics.zeros = counted < statistics.count ? statistics.count - counted : 0;
      statistics.count = counted + statistics.zeros;  // readers check that they add up
      statistics.negatives = std::min(counted, counted / 2 + random.below(draw, static_cast<uint32_t>(std::sqrt(count)) + 1));
      statistics.smallest = static_cast<float>(deviation / count * random.uniform(draw + 1));
      statistics.largest = static_cast<float>(deviation * (4 + random.uniform(draw + 2)));
      statistics.sum = deviation * std::sqrt(count) * random.normal(draw + 3);
      statistics.sum_of_squares = deviation * deviation * count * (1 + 0.01 * random.normal(draw + 4));
      statistics.sum_of_squares = std::max(statistics.sum_of_squares, statistics.largest * statistics.largest);
      draw += 5;
      if (counted == 0) statistics.smallest = statistics.largest = statistics.sum = statistics.sum_of_squares = 0;
      if (half)
        row.rounding.subnormal = row.rounding.inexact_subnormal = random.below(draw++, 1 + static_cast<uint32_t>(count / 1000));
      rows_.push_back(row);
    }
  }
}

void BenchTrace::add_tables(TraceSink& sink) const {
  for (int tensor = 0; tensor < tensors_; ++tensor) {
    OpInfo op;
    op.id = static_cast<uint64_t>(tensor) + 1;
    op.module = "layer" + std::to_string(tensor);
    op.name = "op";
    op.phase = tensor < tensors_ / 2 ? Phase::forward : Phase::backward;
    TensorInfo info;
    info.op = sink.add_op(op);
    info.role = tensor < tensors_ / 2 ? Role::activation : Role::activation_gradient;
    info.dtype = tensor % 2 == 0 ? DType::f16 : DType::f32;
    info.shape = {64, 32, 14, 14};
    sink.add_tensor(info);
  }
}

void BenchTrace::add_step(TraceSink& sink, uint64_t step, bool is_nan) const {
  for (uint64_t tensor = 0; tensor < rows_per_step(); ++tensor) {
    TensorRow row = rows_[(step * rows_per_step() + tensor) % rows_.size()];
    row.step = step;
    row.statistics.nan += is_nan;
    row.statistics.count += is_nan;
    sink.add_row(row);
  }
  StepRow row;
  row.step = step;
  row.loss = is_nan ? NAN : 1.0 / static_cast<double>(step + 1);
  row.loss_known = true;
  row.seconds = 0.01;
  sink.end_step(row);
}

}  // namespace ulpscope::bench
