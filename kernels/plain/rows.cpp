// Ops on rows along the last dimension by the shared definitions of rows.h, in plain loops.
#include <set>
#include <span>

#include "ulpscope/kernels/plain/element.h"
#include "ulpscope/kernels/plain/loops.h"

namespace ulpscope::plain {
namespace {

// How many values a row has.
template <class R>
int64_t row_length(const OpCall& call) {
  int64_t n = 1;
  for (size_t i = 0; i < std::size(R::kInputs); ++i)
    if (R::kInputs[i] == RowOperand::row && call.inputs[i].rank > 0) n = call.inputs[i].shape[call.inputs[i].rank - 1];
  return n;
}

// The wide values of the outputs of a row op, from those of its inputs; of some rows, or where `asked` is empty of all.
template <class R, typename C>
std::vector<std::vector<C>> row_values(const OpCall& call, const std::vector<std::vector<C>>& inputs,
                                       std::span<const int64_t> asked) {
  constexpr size_t kInputs = std::size(R::kInputs), kOutputs = std::size(R::kOutputs);
  static_assert(kInputs <= kMaxRowInputs && kOutputs <= kMaxRowOutputs);
  const int64_t n = row_length<R>(call);
  int64_t rows = 0;
  std::vector<std::vector<C>> outputs(kOutputs);
  for (size_t i = 0; i < kInputs; ++i)
    if (R::kInputs[i] == RowOperand::row) rows = n > 0 ? call.inputs[i].size() / n : 0;
  for (size_t i = 0; i < kOutputs; ++i) outputs[i].resize(static_cast<size_t>(call.outputs[i].size()));
  const R op(*call.attributes);
  const auto form = [&](int64_t r) {
    RowCall<C> row;
    row.n = n;
    for (size_t i = 0; i < kInputs; ++i) row.inputs[i] = inputs[i].data() + r * R::kInputs[i].stride(n);
    for (size_t i = 0; i < kOutputs; ++i) row.outputs[i] = outputs[i].data() + r * R::kOutputs[i].stride(n);
    op(PlainLoops<C>(), row);
  };
  if (asked.empty()) {
    for (int64_t r = 0; r < rows; ++r) form(r);
  } else {
    for (const int64_t r : asked) form(r);
  }
  return outputs;
}

template <class R, typename C>
void row_op(const OpCall& call) {
  std::vector<std::vector<C>> inputs;
  for (const TensorView& input : call.inputs) inputs.push_back(widen<C>(input));
  std::vector<std::vector<C>> outputs = row_values<R, C>(call, inputs, {});
  for (size_t i = 0; i < outputs.size(); ++i) {
    Output<C> out(call, static_cast<int>(i));
    for (size_t e = 0; e < outputs[i].size(); ++e) out[static_cast<int64_t>(e)] = outputs[i][e];
    out.store();
  }
}

template <class R, class A>
std::vector<ElementBound> row_bounds_as(const OpCall& call, int slot, std::span<const int64_t> elements) {
  const int64_t n = row_length<R>(call);
  const int64_t stride = std::max<int64_t>(1, R::kOutputs[slot].stride(n));
  std::set<int64_t> rows;
  for (const int64_t e : elements) rows.insert(e / stride);
  if (rows.empty()) return {};
  const auto values = row_values<R, Bounded<A>>(call, bounded_inputs<A>(call), std::vector<int64_t>(rows.begin(), rows.end()));
  std::vector<ElementBound> bounds;
  for (const int64_t e : elements)
    bounds.push_back(stored_bound(call, slot, values[static_cast<size_t>(slot)][static_cast<size_t>(e)]));
  return bounds;
}

template <class R>
std::vector<ElementBound> row_bounds(const OpCall& call, int slot, std::span<const int64_t> elements, std::string* /*formula*/) {
  return (computes_in_double(call) ? row_bounds_as<R, InDouble> : row_bounds_as<R, InFloat>)(call, slot, elements);
}

// A value of a row and the parts of inputs, one bit each, whose values at the same place it follows from. What is formed of it
// otherwise, by sums and single values, follows from rows.
template <typename C>
struct Traced {
  C value{};
  uint32_t parts = 0;

  Traced() = default;
  Traced(C value_, uint32_t parts_ = 0) : value(value_), parts(parts_) {}
  operator C() const { return value; }
};

// PlainLoops that trace, and know the parts that sums and maxima were formed of.
template <typename C>
struct TracingLoops {
  using Value = Traced<C>;
  uint32_t& summed;

  template <class F, class... P>
  void map(const F& f, int64_t n, Value* out, const P*... in) const {
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t parts = (0 | ... | in[i].parts);
      out[i] = evaluate<C>(f, in[i].value...);
      out[i].parts = parts;
    }
  }
  template <class F, class... P>
  C sum(const F& f, int64_t n, const P*... in) const {
    for (int64_t i = 0; i < n; ++i) summed |= (0 | ... | in[i].parts);
    return ordered_sum<C>(n, [&](int64_t i) { return evaluate<C>(f, in[i].value...); });
  }
  C largest(int64_t n, const Value* x) const {
    std::vector<C> values;
    for (int64_t i = 0; i < n; ++i) {
      summed |= x[i].parts;
      values.push_back(x[i].value);
    }
    return PlainLoops<C>().largest(n, values.data());
  }
  template <class F, class... T>
  C apply(const F& f, T... values) const {
    return evaluate<C>(f, static_cast<C>(values)...);
  }
};

// What an element of a row op reads: of the inputs that it follows from the value at its place, of each scalar its row's, and of
// inputs that numbers of the row are formed of all values.
template <class R, typename C>
ElementCapture capture_row_as(const OpCall& call, int slot, int64_t e) {
  const std::span<const RowOperand> kinds = R::kInputs;
  const int64_t n = row_length<R>(call);
  const RowOperand output = R::kOutputs[slot];
  const int64_t row = e / output.stride(n), place = e % output.stride(n);
  // body(i, k, part): value k of the row in input i, and the number of its part among those of all inputs.
  const auto for_each_value = [&](auto body) {
    for (int i = 0, parts = 0; i < static_cast<int>(kinds.size()); parts += kinds[i++].parts())
      for (int64_t k = 0; k < (kinds[i] == RowOperand::scalar ? 1 : kinds[i].parts() * n); ++k)
        body(i, k, parts + static_cast<int>(k / n));
  };
  std::array<std::vector<Traced<C>>, kMaxRowInputs> inputs;
  std::array<std::vector<Traced<C>>, kMaxRowOutputs> outputs;
  for_each_value(
      [&](int i, int64_t k, int part) { inputs[i].emplace_back(at<C>(call.inputs[i], row * kinds[i].stride(n) + k), 1u << part); });
  RowCall<Traced<C>> traced;
  traced.n = n;
  for (size_t i = 0; i < kinds.size(); ++i) traced.inputs[i] = inputs[i].data();
  for (size_t i = 0; i < std::size(R::kOutputs); ++i) {
    outputs[i].resize(static_cast<size_t>(R::kOutputs[i].stride(n)));
    traced.outputs[i] = outputs[i].data();
  }
  uint32_t summed = 0;
  R (*call.attributes)(TracingLoops<C>{summed}, traced);

  const uint32_t same_place = outputs[slot][static_cast<size_t>(place)].parts;
  Reads<C> in(call, slot, e);
  for_each_value([&](int i, int64_t k, int part) {
    const bool is_read = kinds[i] == RowOperand::scalar || ((same_place >> part & 1) != 0 && k % n == place % n);
    if (is_read) in.note(i, row * kinds[i].stride(n) + k);
  });
  in.statistic([&] {
    for_each_value([&](int i, int64_t k, int part) {
      if ((summed >> part & 1) != 0) in.note(i, row * kinds[i].stride(n) + k);
    });
    return 0;
  });
  return in.take([](int, int64_t) {});
}

template <class R>
ElementCapture capture_row(const OpCall& call, int slot, int64_t e) {
  return computes_in_double(call) ? capture_row_as<R, double>(call, slot, e) : capture_row_as<R, float>(call, slot, e);
}

// Gradients of a normalization's weight and bias. Inputs g, x, the rows' means where it has them, and their inverse deviations.
struct WeightGradient {
  int64_t n, rows;
  int inverse;  // the input
  IndexList bias_rows;

  explicit WeightGradient(const OpCall& call)
      : n(call.inputs[1].shape[call.inputs[1].rank - 1]),
        rows(n > 0 ? call.inputs[1].size() / n : 0),
        inverse(static_cast<int>(call.inputs.size()) - 1),
        bias_rows(IndexList::reduced(call.inputs[0], (1u << (call.inputs[0].rank - 1)) - 1)) {}
  template <class In>
  typename In::Value operator()(In& in, int slot, int64_t c) const {
    using C = typename In::Value;
    // The terms of a sum lie in the memory order of its tensor.
    if (slot == 1) return in.sum(rows, [&](int64_t r) { return in(0, bias_rows[r] + c); });
    return in.sum(rows, [&](int64_t r) {
      const C g = in(0, r * n + c), x = in(1, r * n + c), mean = inverse == 3 ? in(2, r) : C{};
      return lanes::WeightTerms(mean, in(inverse, r))(g, x);
    });
  }
};

template <class... R>
void add_row_ops(lanes::RowOpList<R...>, std::vector<Twin>& twins) {
  (twins.push_back({R::kName, row_op<R, float>, row_op<R, double>, capture_row<R>, row_bounds<R>}), ...);
}

}  // namespace

std::vector<Twin> row_twins() {
  std::vector<Twin> twins{twin<WeightGradient>("layer_norm_backward_weight"), twin<WeightGradient>("rms_norm_backward_weight")};
  add_row_ops(lanes::RowOps{}, twins);
  return twins;
}

}  // namespace ulpscope::plain
