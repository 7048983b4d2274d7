#include "ulpscope/kernels/cpu/reader.h"

#include <algorithm>

#include "ulpscope/emulation/narrow_format.h"
#include "ulpscope/kernels/cpu/parallel.h"

namespace ulpscope::cpu {
namespace {

template <typename T>
void convert(const void* data, int64_t offset, int64_t stride, int64_t n, float* out) {
  const T* from = static_cast<const T*>(data) + offset;
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(from[i * stride]);
}

// Encodings, gathered first and then widened together.
template <typename Encoding>
void widen_gathered(const void* data, DType dtype, int64_t offset, int64_t stride, int64_t n, float* out) {
  constexpr int64_t kChunk = 512;
  Encoding encodings[kChunk];
  const auto* from = static_cast<const Encoding*>(data) + offset;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t count = std::min(kChunk, n - begin);
    for (int64_t i = 0; i < count; ++i) encodings[i] = from[(begin + i) * stride];
    widen_run(encodings, dtype, 0, 1, count, out + begin);
  }
}

void widen_strided(const void* data, DType dtype, int64_t offset, int64_t stride, int64_t n, float* out) {
  switch (dtype) {
    case DType::f32:
      return convert<float>(data, offset, stride, n, out);
    case DType::f64:
      return convert<double>(data, offset, stride, n, out);
    case DType::i64:
      return convert<int64_t>(data, offset, stride, n, out);
    case DType::i32:
      return convert<int32_t>(data, offset, stride, n, out);
    case DType::u8:
    case DType::boolean:
      return convert<uint8_t>(data, offset, stride, n, out);
    case DType::f16:
    case DType::bf16:
      return widen_gathered<uint16_t>(data, dtype, offset, stride, n, out);
    case DType::f8_e4m3:
    case DType::f8_e5m2:
      return widen_gathered<uint8_t>(data, dtype, offset, stride, n, out);
  }
}

}  // namespace

void widen_run(const void* data, DType dtype, int64_t offset, int64_t stride, int64_t n, float* out) {
  if (stride != 1) {
    widen_strided(data, dtype, offset, stride, n, out);
  } else if (dtype == DType::f32) {
    std::copy_n(static_cast<const float*>(data) + offset, n, out);
  } else if (is_float(dtype) && is_narrow(*info(dtype).format)) {
    const NarrowFormat& narrow = narrow_format(*info(dtype).format);
    narrow.widen_all(narrow.at(data, offset), out, static_cast<size_t>(n));
  } else {
    widen_strided(data, dtype, offset, 1, n, out);
  }
}

Reader::Reader(const TensorView& view, const TensorView& order)
    : data_(view.data), dtype_(view.dtype), elements_(elements_in_order(view, order)) {
  linear_ = elements_.rank == 0 ? order.size() == 1 : elements_.is_linear();
}

const float* Reader::read(int64_t first, int64_t n, float* buffer) const {
  if (linear_) {
    if (dtype_ == DType::f32) return static_cast<const float*>(data_) + first;
    widen_run(data_, dtype_, first, 1, n, buffer);
  } else if (elements_.rank == 0) {
    widen_run(data_, dtype_, 0, 1, 1, buffer);
    std::fill(buffer + 1, buffer + n, buffer[0]);
  } else {
    gather(first, n, buffer);
  }
  return buffer;
}

void Reader::gather(int64_t first, int64_t n, float* out) const {
  const auto& [rank, shape, strides] = elements_;
  Extents place{};
  int64_t rest = first, offset = 0;
  for (int i = rank - 1; i >= 0; --i) {
    place[i] = rest % shape[i];
    rest /= shape[i];
    offset += place[i] * strides[i];
  }
  const int last = rank - 1;
  while (n > 0) {
    const int64_t count = std::min(n, shape[last] - place[last]);
    if (strides[last] == 0) {
      widen_run(data_, dtype_, offset, 1, 1, out);
      std::fill(out + 1, out + count, out[0]);
    } else {
      widen_run(data_, dtype_, offset, strides[last], count, out);
    }
    out += count;
    n -= count;
    offset -= place[last] * strides[last];
    place[last] = 0;
    for (int i = last - 1; i >= 0; --i) {
      offset += strides[i];
      if (++place[i] < shape[i]) break;
      offset -= shape[i] * strides[i];
      place[i] = 0;
    }
  }
}

void read_all(const Context& context, const TensorView& view, const TensorView& order, float* out) {
  const Reader reader(view, order);
  const int64_t size = order.size();
  constexpr int64_t kChunk = 4096;
  parallel_for(context, blocks_of(size, kChunk), size >= kParallelElements, [&](int64_t block) {
    const int64_t begin = block * kChunk, n = std::min(kChunk, size - begin);
    const float* values = reader.read(begin, n, out + begin);
    if (values != out + begin) std::copy_n(values, n, out + begin);
  });
}

}  // namespace ulpscope::cpu
