// Statistics and single elements of views: what any dtype and any strides need around the blocks of FP32 values.
#include <algorithm>
#include <cmath>

#include "ulpscope/base/error.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/statistics.h"

namespace ulpscope {

namespace {

double element_at(const TensorView& view, int64_t offset) {
  switch (view.dtype) {
    case DType::f64:
      return view.as<const double>()[offset];
    case DType::f32:
      return f32_to_double(view.as<const float>()[offset]);
    case DType::f16:
      return f32_to_double(f16_to_float(view.as<const uint16_t>()[offset]));
    case DType::bf16:
      return f32_to_double(bf16_to_float(view.as<const uint16_t>()[offset]));
    case DType::i64:
      return static_cast<double>(view.as<const int64_t>()[offset]);
    case DType::i32:
      return view.as<const int32_t>()[offset];
    case DType::u8:
    case DType::boolean:
      return view.as<const uint8_t>()[offset];
  }
  throw failed_error("a view has the unknown data type {}", static_cast<int>(view.dtype));
}

// Calls body(place, offset) for n elements from the logical index `begin` on.
template <typename Body>
void for_offsets(const TensorView& view, int64_t begin, int64_t n, const Body& body) {
  Extents position{};
  int64_t offset = 0;
  for (int i = view.rank - 1; i >= 0; --i) {
    position[i] = begin % view.shape[i];
    begin /= view.shape[i];
    offset += position[i] * view.strides[i];
  }
  for (int64_t place = 0; place < n; ++place) {
    body(place, offset);
    for (int i = view.rank - 1; i >= 0; --i) {
      offset += view.strides[i];
      if (++position[i] < view.shape[i]) break;
      offset -= view.shape[i] * view.strides[i];
      position[i] = 0;
    }
  }
}

template <typename T, typename Add>
void add_values(const TensorView& view, bool dense, int64_t begin, int64_t n, const Add& add) {
  if (dense) return add(view.as<const T>() + begin);
  alignas(64) thread_local T gathered[kStatisticsBlock];
  const T* data = view.as<const T>();
  for_offsets(view, begin, n, [&](int64_t place, int64_t offset) { gathered[place] = data[offset]; });
  add(gathered);
}

void add_block(const TensorView& view, bool dense, int64_t block, int64_t n, StatisticsCollector& collector) {
  const int64_t begin = block * kStatisticsBlock;
  const auto add = [&](const auto* values) { collector.add(block, values, n); };
  if (view.dtype == DType::f32) {
    add_values<float>(view, dense, begin, n, add);
  } else if (view.dtype == DType::f64) {
    add_values<double>(view, dense, begin, n, add);
  } else {
    const FloatFormat& stored = *info(view.dtype).format;
    add_values<uint16_t>(view, dense, begin, n, [&](const uint16_t* encodings) { collector.add(block, stored, encodings, n); });
  }
}

}  // namespace

void collect_statistics(const TensorView& view, OutputRecord& record, const ParallelFor& parallel_for) {
  if (record.wanted == StatisticsLevel::none) return;
  const int64_t count = view.size();
  if (!is_float(view.dtype)) {
    record.known = record.wanted;
    record.before_rounding = record.rounding_known = false;
    record.statistics = {};
    record.rounding = {};
    record.statistics.count = count;
    for_offsets(view, 0, count, [&](int64_t, int64_t offset) { record.statistics.zeros += element_at(view, offset) == 0; });
    return;
  }
  StatisticsCollector collector(record, count, nullptr);
  const bool dense = is_dense(view);
  const auto body = [&](int64_t block) {
    add_block(view, dense, block, std::min(kStatisticsBlock, count - block * kStatisticsBlock), collector);
  };
  const int64_t blocks = (count + kStatisticsBlock - 1) / kStatisticsBlock;
  if (blocks == 1) {
    body(0);
  } else {
    parallel_for(blocks, std::ref(body));
  }
  collector.finish();
}

void collect_samples(const TensorView& view, OutputRecord& record) {
  const int64_t size = view.size();
  record.samples = static_cast<int>(std::min<int64_t>({record.samples_wanted, OutputRecord::kMaxSamples, size}));
  for (int i = 0; i < record.samples; ++i) {
    record.sample_elements[i] = i * size / record.samples;
    record.sample_values[i] = read_element(view, record.sample_elements[i]);
  }
}

int64_t first_nonfinite(const TensorView& view) {
  if (!is_float(view.dtype)) return -1;
  int64_t found = -1;
  const int64_t size = view.size();
  for (int64_t begin = 0; begin < size && found < 0; begin += kStatisticsBlock) {
    for_offsets(view, begin, std::min(kStatisticsBlock, size - begin), [&](int64_t place, int64_t offset) {
      if (found < 0 && !std::isfinite(element_at(view, offset))) found = begin + place;
    });
  }
  return found;
}

double read_element(const TensorView& view, int64_t index) { return element_at(view, offset_of(view, index)); }

}  // namespace ulpscope
