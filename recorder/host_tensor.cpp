#include "ulpscope/recorder/host_tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/update_sums.h"
#include "ulpscope/kernels/update_sums_kernel.h"
#include "ulpscope/recorder/value_blocks.h"

namespace ulpscope {

namespace {

constexpr size_t kMostDimensions = 64;

// Merges dimensions that lie behind each other, from the innermost on.
void merge_dimensions(std::vector<int64_t>& shape, std::vector<int64_t>& strides) {
  std::vector<int64_t> merged_shape, merged_strides;  // innermost first
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    if (!merged_shape.empty() && strides[i] == merged_strides.back() * merged_shape.back()) {
      merged_shape.back() *= shape[i];
    } else {
      merged_shape.push_back(shape[i]);
      merged_strides.push_back(strides[i]);
    }
  }
  shape.assign(merged_shape.rbegin(), merged_shape.rend());
  strides.assign(merged_strides.rbegin(), merged_strides.rend());
}

TensorView readable(const HostTensor& tensor, std::string_view what) {
  const TensorView view = folded(tensor);
  if (view.data == nullptr && view.size() > 0) throw usage_error("{}: expected its memory, got none", what);
  return view;
}

void check_shapes(const HostTensor& a, std::string_view what_a, const HostTensor& b, std::string_view what_b) {
  if (std::equal(a.shape.begin(), a.shape.end(), b.shape.begin(), b.shape.end())) return;
  throw usage_error("{} has the shape {} and {} {}; expected the same", what_a, shape_text(a.shape), what_b, shape_text(b.shape));
}

}  // namespace

std::string shape_text(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

int64_t elements_in(std::span<const int64_t> shape) {
  constexpr int64_t kMost = int64_t{1} << 48;
  if (shape.size() > kMostDimensions)
    throw usage_error("a tensor has {} dimensions; expected at most {}", shape.size(), kMostDimensions);
  int64_t elements = 1;
  for (const int64_t extent : shape) {
    if (extent < 0) throw usage_error("a tensor has the shape {}; expected extents of at least 0", shape_text(shape));
    if (__builtin_mul_overflow(elements, extent, &elements) || elements > kMost)
      throw usage_error("a tensor has the shape {}; expected at most 2^48 elements", shape_text(shape));
  }
  return elements;
}

TensorView folded(const HostTensor& tensor) {
  const int64_t elements = elements_in(tensor.shape);
  std::span<const int64_t> shape = tensor.shape, strides = tensor.strides;
  std::array<int64_t, kMostDimensions> contiguous;
  if (strides.empty()) {
    int64_t stride = 1;
    for (size_t i = shape.size(); i-- > 0; stride *= std::max<int64_t>(shape[i], 1)) contiguous[i] = stride;
    strides = std::span(contiguous).first(shape.size());
  }
  if (strides.size() != shape.size())
    throw usage_error("a tensor has {} and {}; expected one stride for each dimension", count_of(shape.size(), "dimension"),
                      count_of(strides.size(), "stride"));
  if (std::any_of(strides.begin(), strides.end(), [](int64_t stride) { return stride < 0; }))
    throw usage_error("a tensor has the strides {}; expected strides of at least 0", shape_text(strides));
  // The last element's offset, in bytes too, is a number of 64 bits.
  int64_t last = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t extent = 0;
    if (__builtin_mul_overflow(std::max<int64_t>(shape[i] - 1, 0), strides[i], &extent) ||
        __builtin_add_overflow(last, extent, &last) || last > INT64_MAX / 16)
      throw usage_error("a tensor of the shape {} has the strides {}; expected ones within a memory", shape_text(shape),
                        shape_text(strides));
  }
  static constexpr int64_t kNoElements[] = {0}, kOneStride[] = {1};
  std::vector<int64_t> merged_shape, merged_strides;
  if (elements == 0) {
    shape = kNoElements;
    strides = kOneStride;
  } else if (shape.size() > kMaxRank) {
    merged_shape.assign(shape.begin(), shape.end());
    merged_strides.assign(strides.begin(), strides.end());
    merge_dimensions(merged_shape, merged_strides);
    shape = merged_shape;
    strides = merged_strides;
    if (shape.size() > kMaxRank)
      throw usage_error("a tensor of the shape {} has {} dimensions that do not lie behind each other; expected at most {}",
                        shape_text(tensor.shape), shape.size(), kMaxRank);
  }
  TensorView view;
  view.data = const_cast<void*>(tensor.data);  // views are of memory that is written, too; this one is only read
  view.dtype = tensor.dtype;
  view.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), view.shape.begin());
  std::copy(strides.begin(), strides.end(), view.strides.begin());
  return view;
}

void read_values(const TensorView& view, int64_t begin, int64_t n, double* out) {
  if (view.dtype == DType::f32 && is_contiguous(view)) {
    const float* const values = view.as<const float>() + begin;
    std::copy_n(values, n, out);
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = read_element(view, begin + i);
  }
}

namespace {

// Sums and counts of an update whose tensors are read as `Number`.
template <typename Number>
void count_update_as(const TensorView& before, const TensorView& after, const std::optional<TensorView>& gradient,
                     const std::optional<TensorView>& asked, double learning_rate, OutputRecord& record) {
  const auto blocks_of = [](const std::optional<TensorView>& view) {
    return view ? ValueBlocks<Number>(*view) : ValueBlocks<Number>();
  };
  ValueBlocks<Number> w(before), stored(after), g = blocks_of(gradient), d = blocks_of(asked);
  const int64_t elements = before.size(), blocks = (elements + kStatisticsBlock - 1) / kStatisticsBlock;
  std::vector<double> sums(static_cast<size_t>(UpdateSums::kSums * blocks));
  std::vector<Number> changes(asked ? 0 : static_cast<size_t>(kStatisticsBlock));
  UpdateTallies tallies;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t begin = block * kStatisticsBlock, n = std::min(kStatisticsBlock, elements - begin);
    UpdatedBlock<Number> updated{w.at(begin, n), stored.at(begin, n), g.at(begin, n), d.at(begin, n), n};
    if (!asked) {
      std::transform(updated.after, updated.after + n, updated.before, changes.begin(), std::minus<>());
      updated.update = changes.data();
    }
    UpdateSums lanes;
    add_update(updated, lanes, tallies);
    for (int sum = 0; sum < UpdateSums::kSums; ++sum) {
      add_lanes(lanes.lanes[sum]);
      sums[static_cast<size_t>(sum * blocks + block)] = lanes.lanes[sum][0];
    }
  }
  describe_update(record, tallies, sums.data(), blocks, learning_rate, {false, false});
}

}  // namespace

UpdateCounts count_update(const HostUpdate& update) {
  check_shapes(update.before, "the weight before the update", update.after, "the one after it");
  if (update.gradient) check_shapes(update.before, "the weight", *update.gradient, "its gradient");
  if (update.update) check_shapes(update.before, "the weight", *update.update, "its update");
  if (update.before.dtype != update.after.dtype) throw usage_error("a weight is of two types before and after its update");
  const TensorView before = readable(update.before, "the weight before the update"),
                   after = readable(update.after, "the weight after the update");
  std::optional<TensorView> gradient, asked;
  if (update.gradient) gradient = readable(*update.gradient, "the gradient");
  if (update.update) asked = readable(*update.update, "the update");
  bool is_wide = !asked;  // what is a difference of weights may have more bits than they have
  for (const TensorView& view : {before, gradient.value_or(before), asked.value_or(before)}) {
    if (!is_float(view.dtype)) throw usage_error("an update is of {}; expected a floating-point type", info(view.dtype).name);
    is_wide = is_wide || view.dtype == DType::f64;
  }
  if (asked && asked->dtype != DType::f32 && asked->dtype != DType::f64)
    throw usage_error("the update that was asked for is of {}; expected f32 or f64", info(asked->dtype).name);
  OutputRecord record;
  if (is_wide)
    count_update_as<double>(before, after, gradient, asked, update.learning_rate, record);
  else
    count_update_as<float>(before, after, gradient, asked, update.learning_rate, record);
  if (!gradient) record.update.gradient_dot_update = kUnknown;
  return record.update;
}

SumCounts count_addition(const HostTensor& before, const HostTensor& addend, double factor, const HostTensor& after) {
  check_shapes(before, "the sum before the addition", addend, "the addend");
  check_shapes(before, "the sum before the addition", after, "the one after it");
  const TensorView a = readable(before, "the sum before the addition"), b = readable(addend, "the addend"),
                   stored = readable(after, "the sum after the addition");
  for (const TensorView& view : {a, b, stored})
    if (!is_float(view.dtype)) throw usage_error("an addition is of {}; expected a floating-point type", info(view.dtype).name);
  if (!std::isfinite(factor) || factor == 0)
    throw usage_error("an addition of {} times b; expected a finite factor, not 0", factor);
  return count_sum(summed_values(a), summed_values(b), factor, summed_values(stored));
}

OutputRecord count_cast(const HostTensor& from, const HostTensor& to, double scale) {
  check_shapes(from, "what is cast", to, "the cast");
  const TensorView source = readable(from, "what is cast"), result = readable(to, "the cast");
  if (result.dtype != DType::f16 && result.dtype != DType::bf16)
    throw usage_error("a cast to {}; expected one to f16 or bf16, whose roundings are counted", info(result.dtype).name);
  if (!is_float(source.dtype) || is_quantized(source.dtype))
    throw usage_error("a cast from {}; expected one from f64, f32, f16 or bf16", info(source.dtype).name);
  if (!std::isnormal(scale) || scale < 0)
    throw usage_error("a cast of values with the loss scale {}; expected a normal number above 0", scale);
  const FloatFormat& format = *info(result.dtype).format;
  const int64_t elements = source.size(), blocks = (elements + kStatisticsBlock - 1) / kStatisticsBlock;
  OutputRecord record;
  record.wanted = StatisticsLevel::values;
  record.scale = scale;
  bool to_nearest = true;
  {
    StatisticsCollector collector(record, elements, &format);
    std::vector<double> wide(kStatisticsBlock), stored(kStatisticsBlock);
    std::vector<float> values(kStatisticsBlock);
    std::vector<uint16_t> rounded(kStatisticsBlock);
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t begin = block * kStatisticsBlock, n = std::min(kStatisticsBlock, elements - begin);
      read_values(source, begin, n, wide.data());
      read_values(result, begin, n, stored.data());
      if (source.dtype == DType::f64) {
        collector.add_and_encode(block, wide.data(), n, rounded.data());
      } else {
        std::transform(wide.begin(), wide.begin() + n, values.begin(), [](double value) { return static_cast<float>(value); });
        collector.add_and_encode(block, values.data(), n, rounded.data());
      }
      for (int64_t i = 0; i < n && to_nearest; ++i) {
        const auto at = static_cast<size_t>(i);
        const double nearest = value_of(format, rounded[at]);
        to_nearest = nearest == stored[at] || (std::isnan(nearest) && std::isnan(stored[at]));
      }
    }
    collector.finish();
  }
  if (to_nearest) return record;
  record.clear();
  collect_statistics(result, record);
  return record;
}

}  // namespace ulpscope
