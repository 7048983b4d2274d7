#include "ulpscope/recorder/aten/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/update_sums_kernel.h"
#include "ulpscope/recorder/value_blocks.h"

namespace ulpscope::aten {

std::optional<DType> dtype_of(const Tensor& tensor) {
  switch (static_cast<ScalarType>(tensor.type)) {
    case ScalarType::f16:
      return DType::f16;
    case ScalarType::f32:
      return DType::f32;
    case ScalarType::f64:
      return DType::f64;
    case ScalarType::bf16:
      return DType::bf16;
    default:
      return std::nullopt;
  }
}

std::optional<DType> integer_type_of(const Tensor& tensor) {
  switch (static_cast<ScalarType>(tensor.type)) {
    case ScalarType::u8:
    case ScalarType::i8:
      return DType::u8;
    case ScalarType::boolean:
      return DType::boolean;
    case ScalarType::i32:
      return DType::i32;
    case ScalarType::i64:
      return DType::i64;
    default:
      return std::nullopt;
  }
}

int64_t element_size(const Tensor& tensor) {
  switch (static_cast<ScalarType>(tensor.type)) {
    case ScalarType::u8:
    case ScalarType::i8:
    case ScalarType::boolean:
      return 1;
    case ScalarType::i16:
    case ScalarType::f16:
    case ScalarType::bf16:
      return 2;
    case ScalarType::i32:
    case ScalarType::f32:
      return 4;
    case ScalarType::i64:
    case ScalarType::f64:
      return 8;
  }
  return 0;
}

int64_t count_of_elements(const Tensor& tensor) {
  int64_t count = 1;
  for (const int64_t extent : shape_of(tensor)) count *= extent;
  return count;
}

bool is_foldable(const Tensor& tensor) {
  if (tensor.rank <= kMaxRank || !tensor.is_on_host || count_of_elements(tensor) == 0) return true;
  int dimensions = 0;
  int64_t behind = 0;  // where the next one lies that is one with those so far
  for (int32_t i = tensor.rank; i-- > 0;) {
    if (tensor.shape[i] == 1) continue;
    dimensions += dimensions == 0 || tensor.strides[i] != behind;
    behind = tensor.strides[i] * tensor.shape[i];
  }
  return dimensions <= kMaxRank;
}

bool have_one_shape(const Tensor& a, const Tensor& b) { return std::ranges::equal(shape_of(a), shape_of(b)); }

Extent extent_of(const Tensor& tensor) {
  int64_t span = 1;
  for (int32_t i = 0; i < tensor.rank; ++i) span += (tensor.shape[i] - 1) * tensor.strides[i];
  const auto begin = reinterpret_cast<uint64_t>(tensor.data);
  return {begin, begin + static_cast<uint64_t>(span * element_size(tensor)), count_of_elements(tensor) >= span};
}

namespace {

template <typename Value>
double value_at(const void* data, int64_t offset) {
  Value value;
  std::memcpy(&value, static_cast<const char*>(data) + offset * static_cast<int64_t>(sizeof value), sizeof value);
  return static_cast<double>(value);
}

}  // namespace

double element_at(const Tensor& tensor, const void* data, std::span<const int64_t> index) {
  int64_t offset = 0;
  for (size_t i = 0; i < index.size(); ++i) offset += index[i] * tensor.strides[i];
  switch (static_cast<ScalarType>(tensor.type)) {
    case ScalarType::u8:
    case ScalarType::boolean:
      return value_at<uint8_t>(data, offset);
    case ScalarType::i8:
      return value_at<int8_t>(data, offset);
    case ScalarType::i16:
      return value_at<int16_t>(data, offset);
    case ScalarType::i32:
      return value_at<int32_t>(data, offset);
    case ScalarType::i64:
      return value_at<int64_t>(data, offset);
    case ScalarType::f32:
      return value_at<float>(data, offset);
    case ScalarType::f64:
      return value_at<double>(data, offset);
    case ScalarType::f16:
    case ScalarType::bf16: {
      uint16_t bits = 0;
      std::memcpy(&bits, static_cast<const char*>(data) + offset * 2, sizeof bits);
      return value_of(*info(*dtype_of(tensor)).format, bits);
    }
  }
  return 0;
}

void KeptTensor::keep(const Tensor& tensor, const void* data) {
  shape.assign(shape_of(tensor).begin(), shape_of(tensor).end());
  strides.clear();
  dtype = *dtype_of(tensor);
  const int64_t elements = count_of_elements(tensor), size = element_size(tensor);
  if (elements == 0) return;
  if (const Extent extent = extent_of(tensor); extent.is_dense) {  // an expanded one has more elements than memory
    strides.assign(strides_of(tensor).begin(), strides_of(tensor).end());
    std::memcpy(room.of(extent.end - extent.begin), data, extent.end - extent.begin);
    return;
  }
  std::byte* const to = room.of(static_cast<size_t>(elements * size));
  for (int64_t element = 0; element < elements; ++element) {
    int64_t offset = 0, rest = element;
    for (size_t i = shape.size(); i-- > 0; rest /= shape[i]) offset += rest % shape[i] * tensor.strides[i];
    std::memcpy(to + element * size, static_cast<const char*>(data) + offset * size, static_cast<size_t>(size));
  }
}

HostTensor host_tensor(const Tensor& tensor, const void* data) {
  return {data, *dtype_of(tensor), shape_of(tensor), tensor.is_on_host ? strides_of(tensor) : std::span<const int64_t>()};
}

ulpscope_tensor told_tensor(const Tensor& tensor, const void* data) {
  const std::optional<DType> type = dtype_of(tensor);
  ulpscope_tensor told{};
  told.size = sizeof told;
  told.data = data;
  told.dtype = static_cast<int32_t>(type ? *type : *integer_type_of(tensor));
  told.rank = tensor.rank;
  told.shape = tensor.shape;
  // A copy from a device lies in the logical order.
  told.strides = tensor.is_on_host ? tensor.strides : nullptr;
  return told;
}

ulpscope_tensor told_tensor(const HostTensor& tensor) {
  ulpscope_tensor told{};
  told.size = sizeof told;
  told.data = tensor.data;
  told.dtype = static_cast<int32_t>(tensor.dtype);
  told.rank = static_cast<int32_t>(tensor.shape.size());
  told.shape = tensor.shape.data();
  told.strides = tensor.strides.empty() ? nullptr : tensor.strides.data();
  return told;
}

Nonfinite nonfinite_in(const HostTensor& tensor) {
  constexpr int64_t kBlock = 4096;
  const TensorView view = folded(tensor);
  std::vector<double> values(static_cast<size_t>(std::min(kBlock, view.size())));
  Nonfinite found;
  for (int64_t begin = 0; begin < view.size() && !found.nan; begin += kBlock) {
    const int64_t n = std::min(kBlock, view.size() - begin);
    read_values(view, begin, n, values.data());
    for (int64_t i = 0; i < n; ++i) {
      found.nan = found.nan || std::isnan(values[static_cast<size_t>(i)]);
      found.infinity = found.infinity || std::isinf(values[static_cast<size_t>(i)]);
    }
  }
  return found;
}

double square_of_norm_of(const HostTensor& tensor) {
  const TensorView view = folded(tensor);
  const auto sum = [&]<typename Number>(ValueBlocks<Number> blocks) {
    double total = 0;
    for (int64_t begin = 0; begin < view.size(); begin += kStatisticsBlock) {
      const int64_t n = std::min(kStatisticsBlock, view.size() - begin);
      total += sum_of_squares(blocks.at(begin, n), n);
    }
    return total;
  };
  return view.dtype == DType::f64 ? sum(ValueBlocks<double>(view)) : sum(ValueBlocks<float>(view));
}

}  // namespace ulpscope::aten
