// Statistics and single elements of views: what any dtype and any strides need around the blocks of FP32 values.
#include <algorithm>
#include <cmath>

#include "ulpscope/base/error.h"
#include "ulpscope/emulation/narrow_format.h"
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
    case DType::bf16:
    case DType::f8_e4m3:
    case DType::f8_e5m2:
      return f32_to_double(narrow_format(*info(view.dtype).format).widen_at(view.data, offset));
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
    const auto add_encodings = [&](const auto* encodings) { collector.add(block, stored, encodings, n); };
    if (info(view.dtype).size == sizeof(uint8_t)) {
      add_values<uint8_t>(view, dense, begin, n, add_encodings);
    } else {
      add_values<uint16_t>(view, dense, begin, n, add_encodings);
    }
  }
}

template <typename T>
uint64_t count_zeros(const TensorView& view) {
  const T* data = view.as<const T>();
  if (is_dense(view)) return std::count(data, data + view.size(), T{0});
  uint64_t zeros = 0;
  for_offsets(view, 0, view.size(), [&](int64_t, int64_t offset) { zeros += data[offset] == 0; });
  return zeros;
}

// The logical index of the first element whose magnitude is above the largest finite one, or -1.
template <typename Bits>
int64_t first_above_largest(const TensorView& view, const FloatFormat& format) {
  const int64_t size = view.size();
  const Bits* data = view.as<const Bits>();
  const auto magnitude = static_cast<Bits>(format.last_magnitude()), largest = static_cast<Bits>(format.largest_encoding());
  const auto found = [=](Bits bits) { return static_cast<Bits>(bits & magnitude) > largest; };
  if (is_contiguous(view)) {
    // Whole blocks first, in loops without a way out, which compilers vectorise.
    for (int64_t begin = 0; begin < size; begin += kStatisticsBlock) {
      const Bits *first = data + begin, *end = data + std::min(begin + kStatisticsBlock, size);
      Bits any = 0;
      for (const Bits* bits = first; bits != end; ++bits) any |= found(*bits);
      if (any) return std::find_if(first, end, found) - data;
    }
    return -1;
  }
  int64_t result = -1;
  for (int64_t begin = 0; begin < size && result < 0; begin += kStatisticsBlock) {
    for_offsets(view, begin, std::min(kStatisticsBlock, size - begin), [&](int64_t place, int64_t offset) {
      if (result < 0 && found(data[offset])) result = begin + place;
    });
  }
  return result;
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
    switch (info(view.dtype).size) {
      case 8:
        record.statistics.zeros = count_zeros<int64_t>(view);
        break;
      case 4:
        record.statistics.zeros = count_zeros<int32_t>(view);
        break;
      default:
        record.statistics.zeros = count_zeros<uint8_t>(view);
    }
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
  const FloatFormat& format = *info(view.dtype).format;
  switch (info(view.dtype).size) {
    case 8:
      return first_above_largest<uint64_t>(view, format);
    case 4:
      return first_above_largest<uint32_t>(view, format);
    case 2:
      return first_above_largest<uint16_t>(view, format);
    default:
      return first_above_largest<uint8_t>(view, format);
  }
}

double read_element(const TensorView& view, int64_t index) { return element_at(view, offset_of(view, index)); }

}  // namespace ulpscope
