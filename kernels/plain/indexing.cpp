// Ops that move elements: joining, cutting out, and looking up by index.
#include "ulpscope/kernels/along.h"
#include "ulpscope/kernels/index_error.h"
#include "ulpscope/kernels/plain/element.h"

namespace ulpscope::plain {
namespace {

struct Cat {
  Along out;
  std::vector<Along> inputs;

  explicit Cat(const OpCall& call) : out(call.outputs[0], static_cast<int>(call.attribute("dim"))) {
    for (const TensorView& x : call.inputs) inputs.emplace_back(x, static_cast<int>(call.attribute("dim")));
  }
  auto operator()(auto& in, int /*slot*/, int64_t e) const {
    int64_t index = out.at(e);
    size_t i = 0;
    while (index >= inputs[i].extent) index -= inputs[i++].extent;
    return in(static_cast<int>(i), out.moved(e, inputs[i], index));
  }
};

struct SliceBackward {
  Along out, in_slice;
  int64_t start, step;

  explicit SliceBackward(const OpCall& call)
      : out(call.outputs[0], static_cast<int>(call.attribute("dim"))),
        in_slice(call.inputs[0], static_cast<int>(call.attribute("dim"))),
        start(static_cast<int64_t>(call.attribute("start"))),
        step(static_cast<int64_t>(call.attribute("step"))) {}
  template <class In>
  typename In::Value operator()(In& in, int /*slot*/, int64_t e) const {
    const int64_t from = out.at(e) - start;
    if (from < 0 || from % step != 0 || from / step >= in_slice.extent) return {};
    return in(0, out.moved(e, in_slice, from / step));
  }
};

// Input 1 of a call, each of them one of `rows`.
struct Indices {
  std::vector<int64_t> values;

  Indices(const OpCall& call, int64_t rows) : values(widen<int64_t>(call.inputs[1])) {
    for (size_t i = 0; i < values.size(); ++i)
      if (values[i] < 0 || values[i] >= rows) throw index_out_of_range(call.op, values[i], static_cast<int64_t>(i), rows);
  }
  int64_t operator[](int64_t i) const { return values[static_cast<size_t>(i)]; }
};

// For each index the element that it names in a tensor `x`, which is at its place but for the dimension `dim`.
std::vector<int64_t> indexed_elements(const OpCall& call, const TensorView& x) {
  const auto dim = static_cast<int>(call.attribute("dim"));
  const TensorView& indices = call.inputs[1];
  const Indices rows(call, x.shape[dim]);
  const TensorView logical = contiguous(x);
  TensorView place = logical;  // whose offsets are elements of x, for the shape of the indices
  place.shape = indices.shape;
  place.strides[dim] = 0;
  std::vector<int64_t> elements;
  for (int64_t i = 0; i < indices.size(); ++i) elements.push_back(offset_of(place, i) + rows[i] * logical.strides[dim]);
  return elements;
}

struct Gather {
  std::vector<int64_t> from;

  explicit Gather(const OpCall& call) : from(indexed_elements(call, call.inputs[0])) {}
  auto operator()(auto& in, int /*slot*/, int64_t e) const {
    in(1, e);
    return in(0, from[static_cast<size_t>(e)]);
  }
};

struct GatherBackward {
  Additions additions;

  explicit GatherBackward(const OpCall& call) : additions(indexed_elements(call, call.outputs[0])) {}
  auto operator()(auto& in, int /*slot*/, int64_t e) const {
    auto&& total = in.total();
    additions.for_each(e, [&](int64_t i) { total.term([&] { return in(0, i); }); });
    return total.value();
  }
};

// The values may have elements beyond those of the indices; they are left out.
struct ScatterAdd {
  Additions additions;
  TensorView used;  // of the values: offsets are logical indices

  explicit ScatterAdd(const OpCall& call) : additions(indexed_elements(call, call.inputs[0])), used(contiguous(call.inputs[2])) {
    used.shape = call.inputs[1].shape;
  }
  auto operator()(auto& in, int /*slot*/, int64_t e) const {
    auto&& total = in.total();
    total.start([&] { return in(0, e); });
    additions.for_each(e, [&](int64_t i) { total.term([&] { return in(2, offset_of(used, i)); }); });
    return total.value();
  }
};

struct Embedding {
  Indices rows;
  int64_t n;

  explicit Embedding(const OpCall& call) : rows(call, call.inputs[0].shape[0]), n(call.inputs[0].shape[1]) {}
  auto operator()(auto& in, int /*slot*/, int64_t e) const {
    in(1, e / n);
    return in(0, rows[e / n] * n + e % n);
  }
};

struct EmbeddingBackward {
  Additions additions;
  int64_t n;

  explicit EmbeddingBackward(const OpCall& call)
      : additions(Indices(call, call.outputs[0].shape[0]).values), n(call.outputs[0].shape[1]) {}
  auto operator()(auto& in, int /*slot*/, int64_t e) const {
    auto&& total = in.total();
    additions.for_each(e / n, [&](int64_t i) { total.term([&] { return in(0, i * n + e % n); }); });
    return total.value();
  }
};

}  // namespace

std::vector<Twin> indexing_twins() {
  return {twin<Cat>("cat"),
          twin<SliceBackward>("slice_backward"),
          twin<Embedding>("embedding"),
          twin<EmbeddingBackward>("embedding_backward"),
          twin<Gather>("gather"),
          twin<GatherBackward>("gather_backward"),
          twin<ScatterAdd>("scatter_add")};
}

}  // namespace ulpscope::plain
