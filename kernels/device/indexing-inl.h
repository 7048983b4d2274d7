// Ops that move elements, and sums into the elements that indices name.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

#include "ulpscope/base/error.h"
#include "ulpscope/kernels/device/indexing.h"
#include "ulpscope/kernels/device/indices-inl.h"
#include "ulpscope/kernels/device/launcher-inl.h"
#include "ulpscope/kernels/device/ops-inl.h"
#include "ulpscope/kernels/index_error.h"

namespace ulpscope::device {

template <class L>
void cat(L& launcher, const OpCall& call) {
  const auto dim = static_cast<int>(call.attribute("dim"));
  int64_t start = 0;
  for (const TensorView& x : call.inputs) {
    const TensorView part = part_of(call.outputs[0], dim, start, x.shape[dim]);
    const int64_t size = x.size();
    if (size > 0) launcher.machine().launch(grid_over(size), CopyElements{input_of(x), part.data, input_of(part).elements, size});
    start += x.shape[dim];
  }
  source(launcher, call);
}

template <class L>
void slice_backward(L& launcher, const OpCall& call) {
  const auto dim = static_cast<int>(call.attribute("dim"));
  SliceGradient kernel{Along(call.outputs[0], dim),
                       Along(call.inputs[0], dim),
                       static_cast<int64_t>(call.attribute("start")),
                       static_cast<int64_t>(call.attribute("step")),
                       input_of(call, 0, contiguous(call.inputs[0])),
                       output_of(call, 0)};
  on_elements(launcher, call, kernel);
}

// Input 1 of a call, each of them one of `rows`.
template <class L>
Indices rows_of(L& launcher, const OpCall& call, int64_t rows) {
  Indices indices{input_of(call.inputs[1]), call.inputs[1].size(), rows, false, 0, nullptr};
  check_indices(launcher, indices,
                [op = call.op, rows](int64_t index, int64_t element) { return index_out_of_range(op, index, element, rows); });
  return indices;
}

// The elements of a tensor of the shape of x, in logical order, that indices of this shape name along `dim`, with index 0.
inline ElementOrder named_elements(const TensorView& x, const TensorView& indices, int dim) {
  TensorView places = contiguous(x);
  places.shape = indices.shape;
  places.strides[dim] = 0;
  return input_of(places).elements;
}
inline int64_t stride_along(const TensorView& x, int dim) { return contiguous(x).strides[dim]; }

template <class L>
void look_up(L& launcher, const OpCall& call, int64_t rows, const ElementOrder& places, int64_t stride, int64_t run) {
  LookUp kernel{
      input_of(call, 0, contiguous(call.inputs[0])), rows_of(launcher, call, rows), places, stride, run, output_of(call, 0)};
  on_elements(launcher, call, kernel);
}
template <class L>
void embedding(L& launcher, const OpCall& call) {
  const TensorView& weight = call.inputs[0];
  look_up(launcher, call, weight.shape[0], {}, 1, weight.shape[1]);
}
template <class L>
void gather(L& launcher, const OpCall& call) {
  const TensorView& x = call.inputs[0];
  const auto dim = static_cast<int>(call.attribute("dim"));
  look_up(launcher, call, x.shape[dim], named_elements(x, call.inputs[1], dim), stride_along(x, dim), 1);
}

// Sorts n keys of at most `bits` bits. `a` and `b`: room for them, of which `a` holds them; the result is in the one that it gives.
template <class L>
Sorted sort_keys(L& launcher, Sorted a, Sorted b, int64_t n, int bits) {
  constexpr int64_t kMostChunks = 1024;
  const int64_t chunk = std::max<int64_t>(256, (n + kMostChunks - 1) / kMostChunks), chunks = (n + chunk - 1) / chunk;
  const typename L::Scratch places(launcher, sizeof(uint32_t) * static_cast<size_t>(DigitCounts::kSize * chunks));
  for (int shift = 0; shift < bits; shift += DigitCounts::kBits) {
    const SortByDigit by{a, b, n, chunk, shift, places.template as<uint32_t>()};
    launcher.machine().launch(Grid{chunks, kWarpThreads}, CountDigits{by});
    launcher.machine().launch(Grid{1, kMostThreads}, AddCounts{by.places, DigitCounts::kSize * chunks});
    launcher.machine().launch(Grid{chunks, kWarpThreads}, PutDigits{by});
    std::swap(a, b);
  }
  return a;
}

// Output 0 of a call: `start`, an input or -1, and the values, each added to the element, or run of elements, that its index names.
template <class L>
void add_values(L& launcher, const OpCall& call, int start, const Input& values, int64_t rows, const ElementOrder& places,
                int64_t stride, int64_t run) {
  const TensorView& out = call.outputs[0];
  const Indices indices = rows_of(launcher, call, rows);
  const int64_t n = indices.size, keys = run > 0 ? out.size() / run : 0;
  if (std::max(n, keys) >= std::numeric_limits<uint32_t>::max())
    throw usage_error("{}: {} values for {} elements; a device adds up less than 2^32", call.op, n, keys);
  const typename L::Scratch room(launcher, 4 * sizeof(uint32_t) * static_cast<size_t>(n));
  const typename L::Scratch firsts(launcher, sizeof(uint32_t) * static_cast<size_t>(keys));
  launcher.machine().clear(firsts.template as<void>(), sizeof(uint32_t) * static_cast<size_t>(keys));
  auto* const place = room.template as<uint32_t>();
  Sorted sorted{place, place + n};
  if (n > 0 && keys > 0) {
    launcher.machine().launch(grid_over(n), MakeKeys{indices, places, stride, static_cast<uint32_t>(keys), sorted});
    sorted = sort_keys(launcher, sorted, {place + 2 * n, place + 3 * n}, n, std::bit_width(static_cast<uint64_t>(keys)));
    launcher.machine().launch(grid_over(n), FindFirsts{sorted.keys, n, keys, firsts.template as<uint32_t>()});
  }
  AddValues kernel{start >= 0, {}, values, sorted, n, run, firsts.template as<uint32_t>(), output_of(call, 0)};
  if (start >= 0) kernel.start = input_of(call, static_cast<size_t>(start), contiguous(call.inputs[static_cast<size_t>(start)]));
  on_elements(launcher, call, kernel);
}
template <class L>
void embedding_backward(L& launcher, const OpCall& call) {
  const TensorView& out = call.outputs[0];
  add_values(launcher, call, -1, input_of(call, 0, contiguous(call.inputs[0])), out.shape[0], {}, 1, out.shape[1]);
}
template <class L>
void gather_backward(L& launcher, const OpCall& call) {
  const TensorView& out = call.outputs[0];
  const auto dim = static_cast<int>(call.attribute("dim"));
  add_values(launcher, call, -1, input_of(call, 0, contiguous(call.inputs[0])), out.shape[dim],
             named_elements(out, call.inputs[1], dim), stride_along(out, dim), 1);
}
// The values may have elements beyond those of the indices; they are left out.
template <class L>
void scatter_add(L& launcher, const OpCall& call) {
  const TensorView& x = call.inputs[0];
  const auto dim = static_cast<int>(call.attribute("dim"));
  TensorView used = call.inputs[2];
  used.shape = call.inputs[1].shape;
  Input values = input_of(used);
  values.flushes = flushes_input(call, call.inputs[2].dtype);
  add_values(launcher, call, 0, values, x.shape[dim], named_elements(x, call.inputs[1], dim), stride_along(x, dim), 1);
}

template <class L>
void add_indexing(Kernels<L>& kernels) {
  kernels.emplace("cat", &cat<L>);
  kernels.emplace("slice_backward", &slice_backward<L>);
  kernels.emplace("embedding", &embedding<L>);
  kernels.emplace("embedding_backward", &embedding_backward<L>);
  kernels.emplace("gather", &gather<L>);
  kernels.emplace("gather_backward", &gather_backward<L>);
  kernels.emplace("scatter_add", &scatter_add<L>);
}

}  // namespace ulpscope::device
