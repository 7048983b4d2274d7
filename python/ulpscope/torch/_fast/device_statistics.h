// Statistics of tensors by PyTorch's own ops, on the device and the stream where the tensors are, so that nothing waits for them
// until the step ends. ulpscope_aten.h has what a row is; ulpscope/torch/device.py computes the same for the dispatch mode.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/threshold.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ulpscope_aten.h"

namespace {

constexpr int64_t kRowsOfChunk = 256;
// A larger tensor is taken in parts, so that what is computed from it stays small.
constexpr int64_t kPart = int64_t{1} << 22;
// Counts of a large part are added up in several places: threads that add to one wait for each other.
constexpr int64_t kSmallPart = int64_t{1} << 14, kMostPlaces = 256;

// Ops inside are seen by no callback, mode, autocast or autograd.
class Unseen {
  at::DisableRecordFunctionGuard record_function_;
  at::AutoDispatchBelowADInplaceOrView autograd_;
  c10::impl::ExcludeDispatchKeyGuard others_{
      c10::autocast_dispatch_keyset |
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                           c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode})};
};

at::Tensor tensor_of(const ulpscope_aten_tensor& described) {
  return at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::unsafe_reclaim_from_nonowning(
      reinterpret_cast<c10::TensorImpl*>(described.handle)));
}

// The tensor as it is described: that of the handle may be another view of its memory.
at::Tensor view_of(const ulpscope_aten_tensor* given) {
  if (given == nullptr) return {};
  const ulpscope_aten_tensor& described = *given;
  const Unseen unseen;
  const at::Tensor tensor = tensor_of(described);
  const at::IntArrayRef shape(described.shape, described.rank), strides(described.strides, described.rank);
  if (tensor.sizes() == shape && tensor.strides() == strides && tensor.const_data_ptr() == described.data) return tensor;
  const auto bytes = static_cast<const char*>(described.data) - static_cast<const char*>(described.storage_data);
  return tensor.as_strided(shape, strides, bytes / static_cast<int64_t>(tensor.element_size()));
}

class DeviceStatistics {
 public:
  // Asks Python, where this version of PyTorch does not say.
  int (*asks_python)() = nullptr;

  bool is_capturing(const at::Tensor& tensor) const { return is_capturing(stream_of(tensor.device())); }

  // The update that a rule asks for; undefined: of tensors that there are not.
  static at::Tensor asked_update(const ulpscope_aten_asked& asked, const at::Tensor& weight, const at::Tensor& gradient,
                                 const at::Tensor& first, const at::Tensor& second, const at::Tensor& steps) {
    const Unseen unseen;
    const ulpscope_aten_update& rule = *asked.rule;
    const at::ScalarType type = weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const auto typed = [&](const at::Tensor& tensor) { return tensor.to(type, true).contiguous(); };
    const at::Tensor w = typed(weight);
    if (rule.rule == ULPSCOPE_ATEN_ADAM) {
      const at::Tensor count = steps.defined() ? steps.to(at::kDouble).reshape({}) : at::scalar_tensor(asked.count, at::kDouble);
      const auto left = [&](double decay) { return at::pow(decay, count).neg().add(1); };
      const at::Tensor mean_factor = left(rule.first_decay).reciprocal().to(type),
                       root_factor = left(rule.second_decay).sqrt().reciprocal().to(type);
      const at::Tensor root = second.to(at::kDouble, true).sqrt().to(type).contiguous();  // rounded once, as roots of FP32 in FP32
      const at::Tensor moved = typed(first).mul(mean_factor).div(root.mul(root_factor).add(rule.epsilon));
      return moved.add(w.mul(rule.decoupled ? rule.weight_decay : 0.0)).mul(-rule.learning_rate);
    }
    if (first.defined() && rule.nesterov == 0) return typed(first).mul(-rule.learning_rate);
    const at::Tensor unscaled = rule.factor == 1 ? typed(gradient) : typed(gradient.to(at::kDouble, true).div(rule.factor));
    const at::Tensor decayed = unscaled.mul(rule.maximize ? -1.0 : 1.0).add(w.mul(rule.weight_decay));
    return (first.defined() ? decayed.add(typed(first).mul(rule.momentum)) : decayed).mul(-rule.learning_rate);
  }

  // `given` holds the values of `cast_from`, or that is undefined.
  ulpscope_aten_rows take(const ulpscope_aten_measure& measure, const at::Tensor& given, const at::Tensor& cast_from,
                          const at::Tensor& before, const at::Tensor& update, const at::Tensor& gradient) {
    const Unseen unseen;
    if (std::exchange(is_settled_, false))
      for (auto& [unused, stream] : streams_) stream.used = stream.rows = 0;
    Stream& stream = streams_[stream_of(given.device())];
    const bool is_cast = cast_from.defined() && cast_from.device() == given.device();
    const at::Tensor& counted = is_cast ? cast_from : given;
    const int64_t elements = measure.kind == ULPSCOPE_ATEN_NUMBER ? 1 : counted.numel();
    const int64_t part_size = std::max(kPart, (elements + kRowsOfChunk - 1) / kRowsOfChunk);
    const int64_t parts = (elements + part_size - 1) / part_size;
    ulpscope_aten_rows rows{0, static_cast<uint32_t>(parts)};
    const at::Tensor taken = rows_of(stream, given.device(), parts, rows.first);
    if (measure.kind == ULPSCOPE_ATEN_NUMBER) {
      real(taken[0], 0).copy_(counted.reshape({-1})[0], true);
      return rows;
    }
    // A tensor that is not contiguous is copied by this, once.
    const auto in_a_row = [&](const at::Tensor& tensor) { return parts == 1 || !tensor.defined() ? tensor : tensor.reshape({-1}); };
    const at::Tensor counted_row = in_a_row(counted), given_row = is_cast ? in_a_row(given) : at::Tensor(),
                     before_row = in_a_row(before), update_row = in_a_row(update), gradient_row = in_a_row(gradient);
    for (int64_t part = 0; part < parts; ++part) {
      const auto values_of = [&](const at::Tensor& whole) {
        const at::Tensor piece =
            parts == 1 ? whole : whole.narrow(0, part * part_size, std::min(part_size, elements - part * part_size));
        return piece.to(at::kDouble, true, false, at::MemoryFormat::Contiguous).contiguous().view({-1});
      };
      const at::Tensor values = values_of(counted_row), row = taken[part];
      if (measure.kind == ULPSCOPE_ATEN_SQUARE) {
        at::Tensor square = real(row, 0);
        at::sum_out(square, values * values, {0});
        continue;
      }
      if (measure.kind == ULPSCOPE_ATEN_COUNTS_OF_UPDATE) {
        const at::Tensor w = values_of(before_row), d = update.defined() ? values_of(update_row) : values - w;
        take_update(values, w, d, gradient.defined() ? values_of(gradient_row).div(measure.factor) : at::Tensor(), row);
        continue;
      }
      const at::Tensor magnitudes = take_values(stream, measure, values, row);
      if (is_cast) take_roundings(stream, measure, values, magnitudes, values_of(given_row), row);
    }
    return rows;
  }

  // Waits for each stream on which rows were taken. False: it cannot, since one of them is being captured.
  bool wait() {
    const Unseen unseen;
    is_settled_ = true;
    for (const auto& [at, unused] : streams_)
      if (is_capturing(at) || is_capturing(stream_of(at.device()))) return false;
    for (const auto& [at, stream] : streams_) {
      if (is_host(at) || stream.rows == 0) continue;
      const c10::impl::VirtualGuardImpl guard(at.device_type());
      const c10::Stream current = guard.exchangeStream(at);
      for (size_t i = 0; i < stream.used; ++i) chunks_[stream.chunks[i]].host.copy_(chunks_[stream.chunks[i]].rows, true);
      guard.exchangeStream(current);
    }
    for (const auto& [at, stream] : streams_)
      if (!is_host(at) && stream.rows > 0) at.synchronize();
    return true;
  }
  const int64_t* row(uint64_t number) const {
    return chunks_[number / kRowsOfChunk].host.const_data_ptr<int64_t>() + number % kRowsOfChunk * ULPSCOPE_ATEN_ROW;
  }

 private:
  // Rows on a device, and in the host's memory, which for tensors of the host is the same.
  struct Chunk {
    at::Tensor rows, host;
  };
  // Memory that was made on a stream is used on it alone.
  struct Stream {
    std::vector<size_t> chunks;
    size_t used = 0;   // of these in this step
    int64_t rows = 0;  // of the last one
    at::Tensor one;
    std::map<const double*, at::Tensor> edges;
  };

  static bool is_host(const c10::Stream& stream) { return stream.device_type() == c10::DeviceType::CPU; }
  static c10::Stream stream_of(const at::Device& device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }
  template <typename AnyStream>
  bool is_capturing(const AnyStream& stream) const {
    if constexpr (requires { stream.is_capturing(); })
      if (!is_host(stream)) return stream.is_capturing();
    return asks_python() != 0;
  }

  // Rows that are 0, one behind the other; `first`: the number of the first.
  at::Tensor rows_of(Stream& stream, const at::Device& device, int64_t count, uint64_t& first) {
    if (stream.used == 0 || stream.rows + count > kRowsOfChunk) {
      if (stream.used == stream.chunks.size()) {
        const auto options = at::TensorOptions().dtype(at::kLong);
        Chunk chunk;
        chunk.rows = at::zeros({kRowsOfChunk, ULPSCOPE_ATEN_ROW}, options.device(device));
        chunk.host = device.is_cpu() ? chunk.rows : at::empty({kRowsOfChunk, ULPSCOPE_ATEN_ROW}, options.pinned_memory(true));
        stream.chunks.push_back(chunks_.size());
        chunks_.push_back(std::move(chunk));
      } else {
        chunks_[stream.chunks[stream.used]].rows.zero_();
      }
      ++stream.used;
      stream.rows = 0;
    }
    const size_t chunk = stream.chunks[stream.used - 1];
    first = chunk * kRowsOfChunk + static_cast<uint64_t>(stream.rows);
    const at::Tensor rows = chunks_[chunk].rows.narrow(0, stream.rows, count);
    stream.rows += count;
    return rows;
  }
  static at::Tensor real(const at::Tensor& row, int64_t index) { return row[ULPSCOPE_ATEN_REALS + index].view(at::kDouble); }

  const at::Tensor& edges_of(Stream& stream, const double* edges, int64_t count, const at::Tensor& like) {
    at::Tensor& known = stream.edges[edges];
    if (!known.defined()) known = at::from_blob(const_cast<double*>(edges), {count}, at::kDouble).clone().to(like.options(), true);
    return known;
  }

  // Adds 1 for each of the places, in `counts`.
  void count(Stream& stream, const at::Tensor& places, const at::Tensor& counts) {
    if (!stream.one.defined()) stream.one = at::ones({1}, places.options());
    const int64_t elements = places.numel(), lists = elements < kSmallPart ? 1 : std::gcd(elements, kMostPlaces);
    if (lists == 1) {
      counts.scatter_add_(0, places, stream.one.expand({elements}));
      return;
    }
    const at::Tensor several = at::zeros({lists, counts.numel()}, counts.options());
    several.scatter_add_(1, places.view({lists, -1}), stream.one.expand({lists, elements / lists}));
    at::Tensor sum = counts;
    at::sum_out(sum, several, {0});
  }

  // Gives the magnitudes, 0 where a value is not finite, if the level needs them.
  at::Tensor take_values(Stream& stream, const ulpscope_aten_measure& measure, const at::Tensor& values, const at::Tensor& row) {
    const at::Tensor& edges = edges_of(stream, measure.edges, ULPSCOPE_ATEN_EDGES, values);
    count(stream, at::bucketize(values, edges), row.narrow(0, 0, ULPSCOPE_ATEN_ROUNDINGS));
    if (measure.level < 2) return {};
    at::Tensor sum = real(row, 0), squares = real(row, 1), largest = real(row, 2), smallest = real(row, 3);
    const at::Tensor finite = values.nan_to_num(0, 0, 0);
    at::sum_out(sum, finite, {0});
    at::sum_out(squares, finite * finite, {0});
    const at::Tensor magnitudes = finite.abs();
    at::amax_out(largest, magnitudes, {0});
    at::amin_out(smallest, at::threshold(magnitudes, 0, std::numeric_limits<double>::infinity()), {0});
    return magnitudes;
  }

  static void take_update(const at::Tensor& after, const at::Tensor& before, const at::Tensor& update, const at::Tensor& gradient,
                          const at::Tensor& row) {
    at::Tensor nonzero = row[0], lost = row[1], weights = real(row, 0), updates = real(row, 1), products = real(row, 2);
    const at::Tensor is_nonzero = update.ne(0);
    at::sum_out(nonzero, is_nonzero, {0});
    at::sum_out(lost, is_nonzero.logical_and(after.eq(before)), {0});
    at::sum_out(weights, before * before, {0});
    at::sum_out(updates, update * update, {0});
    if (gradient.defined()) at::sum_out(products, gradient * update, {0});
  }

  void take_roundings(Stream& stream, const ulpscope_aten_measure& measure, const at::Tensor& values, const at::Tensor& magnitudes,
                      const at::Tensor& cast, const at::Tensor& row) {
    const at::Tensor& edges = edges_of(stream, measure.rounding_edges, ULPSCOPE_ATEN_ROUNDING_EDGES, values);
    const at::Tensor places = at::bucketize(magnitudes.defined() ? magnitudes : values.nan_to_num(0, 0, 0).abs(), edges);
    count(stream, values.ne(cast).add(places, 2),
          row.narrow(0, ULPSCOPE_ATEN_ROUNDINGS, ULPSCOPE_ATEN_REALS - ULPSCOPE_ATEN_ROUNDINGS));
  }

  std::unordered_map<c10::Stream, Stream> streams_;
  std::vector<Chunk> chunks_;
  bool is_settled_ = false;
};

}  // namespace
