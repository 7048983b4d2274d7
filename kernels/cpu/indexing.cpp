// Ops that move elements. Copies keep the stored bits; only embedding_backward adds, in FP32.
#include <algorithm>
#include <array>
#include <cstring>

#include "ulpscope/kernels/along.h"
#include "ulpscope/kernels/cpu/context.h"
#include "ulpscope/kernels/cpu/parallel.h"
#include "ulpscope/kernels/cpu/reader.h"
#include "ulpscope/kernels/index_error.h"
#include "ulpscope/kernels/plain/plain.h"
#include "ulpscope/kernels/store.h"

namespace ulpscope::cpu {
namespace {

template <typename T>
void copy_run(const TensorView& from, int64_t from_offset, const TensorView& to, int64_t to_offset, int64_t from_stride,
              int64_t to_stride, int64_t n) {
  const T* source = from.as<const T>() + from_offset;
  T* target = to.as<T>() + to_offset;
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(target, source, static_cast<size_t>(n) * sizeof(T));
  } else {
    for (int64_t i = 0; i < n; ++i) target[i * to_stride] = source[i * from_stride];
  }
}

// The elements of `from` into the places of `to`, which has its shape and type.
template <typename T>
void copy_elements(const Context& context, const TensorView& from, const TensorView& to) {
  if (from.size() == 0) return;
  const int last = from.rank - 1;
  const int64_t n = from.rank > 0 ? from.shape[last] : 1, runs = from.size() / n;
  const int64_t from_stride = from.rank > 0 ? from.strides[last] : 1, to_stride = from.rank > 0 ? to.strides[last] : 1;
  const int64_t share = std::max<int64_t>(1, kParallelElements / n);
  parallel_for(context, blocks_of(runs, share), from.size() >= kParallelElements, [&](int64_t part) {
    std::array<int64_t, kMaxRank> place{};
    int64_t rest = part * share, from_offset = 0, to_offset = 0;
    for (int i = last - 1; i >= 0; --i) {
      place[static_cast<size_t>(i)] = rest % from.shape[i];
      rest /= from.shape[i];
      from_offset += place[static_cast<size_t>(i)] * from.strides[i];
      to_offset += place[static_cast<size_t>(i)] * to.strides[i];
    }
    for (int64_t run = part * share; run < std::min(runs, (part + 1) * share); ++run) {
      copy_run<T>(from, from_offset, to, to_offset, from_stride, to_stride, n);
      for (int i = last - 1; i >= 0; --i) {
        from_offset += from.strides[i];
        to_offset += to.strides[i];
        if (++place[static_cast<size_t>(i)] < from.shape[i]) break;
        from_offset -= from.shape[i] * from.strides[i];
        to_offset -= to.shape[i] * to.strides[i];
        place[static_cast<size_t>(i)] = 0;
      }
    }
  });
}

void copy_elements(const Context& context, const TensorView& from, const TensorView& to) {
  if (info(from.dtype).size == sizeof(uint16_t)) {
    copy_elements<uint16_t>(context, from, to);
  } else {
    copy_elements<float>(context, from, to);
  }
}

void record(const Context& context, const OpCall& call) {
  record_moved(call, 0, [&](int64_t n, const std::function<void(int64_t)>& body) { parallel_for(context, n, n > 4, body); });
}

void cat(Context& context, const OpCall& call) {
  const auto dim = static_cast<int>(call.attribute("dim"));
  int64_t start = 0;
  for (const TensorView& x : call.inputs) {
    copy_elements(context, x, part_of(call.outputs[0], dim, start, x.shape[dim]));
    start += x.shape[dim];
  }
  record(context, call);
}

void slice_backward(Context& context, const OpCall& call) {
  const auto dim = static_cast<int>(call.attribute("dim"));
  const TensorView &g = call.inputs[0], &out = call.outputs[0];
  std::memset(out.data, 0, static_cast<size_t>(out.size()) * info(out.dtype).size);
  copy_elements(
      context, g,
      part_of(out, dim, static_cast<int64_t>(call.attribute("start")), g.shape[dim], static_cast<int64_t>(call.attribute("step"))));
  record(context, call);
}

// The offsets of the elements of an index tensor, checked.
class Indices {
 public:
  Indices(const OpCall& call, const TensorView& view, int64_t rows) : view_(view) {
    for (int64_t i = 0; i < size(); ++i) {
      if ((*this)[i] >= 0 && (*this)[i] < rows) continue;
      throw index_out_of_range(call.op, (*this)[i], i, rows);
    }
  }
  int64_t size() const { return view_.size(); }
  int64_t operator[](int64_t i) const { return view_.as<const int64_t>()[i]; }

 private:
  const TensorView& view_;
};

void embedding(Context& context, const OpCall& call) {
  const TensorView &weight = call.inputs[0], &index_view = call.inputs[1], &out = call.outputs[0];
  if (out.size() == 0 || !is_contiguous(weight) || !is_contiguous(index_view)) return run_plain(call);
  const Indices indices(call, index_view, weight.shape[0]);
  const size_t bytes = static_cast<size_t>(weight.shape[1]) * info(weight.dtype).size;
  parallel_for(context, indices.size(), out.size() >= kParallelElements, [&](int64_t i) {
    std::memcpy(out.as<char>() + static_cast<size_t>(i) * bytes, weight.as<const char>() + static_cast<size_t>(indices[i]) * bytes,
                bytes);
  });
  record(context, call);
}

// Each thread adds up the gradients of its share of the rows.
void embedding_backward(Context& context, const OpCall& call) {
  const TensorView &g = call.inputs[0], &index_view = call.inputs[1], &out = call.outputs[0];
  if (out.size() == 0 || g.size() == 0 || !is_contiguous(index_view)) return run_plain(call);
  const int64_t rows = out.shape[0], n = out.shape[1];
  const Indices indices(call, index_view, rows);
  const Reader reader(g, contiguous(g));
  const Scratch sums(context.allocator, bytes_of(rows * n));
  std::memset(sums.as<void>(), 0, bytes_of(rows * n));
  const bool parallel = g.size() >= kParallelElements;
  const int64_t shares = parallel ? context.threads : 1;
  const ThreadScratch buffers(context.allocator, static_cast<int>(shares), bytes_of(n));
  parallel_for(context, shares, parallel, [&](int64_t share) {
    const int64_t begin = rows * share / shares, end = rows * (share + 1) / shares;
    for (int64_t i = 0; i < indices.size(); ++i) {
      if (indices[i] < begin || indices[i] >= end) continue;
      const float* values = reader.read(i * n, n, buffers.of(static_cast<int>(share)));
      float* sum = sums.as<float>() + indices[i] * n;
      for (int64_t c = 0; c < n; ++c) sum[c] += values[c];
    }
  });
  store_output(call, 0, sums.as<float>());
}

}  // namespace

std::vector<NamedKernel> indexing_ops() {
  return {{"cat", cat}, {"slice_backward", slice_backward}, {"embedding", embedding}, {"embedding_backward", embedding_backward}};
}

}  // namespace ulpscope::cpu
