// Elementwise ops by the shared formulas, on float or double, and those that no formula says.
#include "ulpscope/kernels/plain/elementwise.h"

#include "ulpscope/kernels/dropout.h"
#include "ulpscope/kernels/formulas.h"
#include "ulpscope/kernels/plain/loops.h"

namespace ulpscope::plain {
namespace {

// At the same element of every input.
template <class F>
struct Elementwise : SameElements {
  F formula;

  explicit Elementwise(const OpCall& call) : SameElements(call), formula(*call.attributes) {}
  template <class In>
  typename In::Value operator()(In& in, int /*slot*/, int64_t e) const {
    return value<typename In::Value>(in, e, std::make_index_sequence<F::kInputs>());
  }
  int64_t index(auto& in, int64_t e) const {
    return static_cast<int64_t>(value<double>(in, e, std::make_index_sequence<F::kInputs>()));
  }

 private:
  template <typename C, class In, size_t... i>
  C value([[maybe_unused]] In& in, [[maybe_unused]] int64_t e, std::index_sequence<i...>) const {
    const std::array<C, sizeof...(i)> values{static_cast<C>(in(i, element(i, e)))...};  // read from the first to the last
    return evaluate<C>(formula, values[i]...);
  }
};

// Integers go through formulas (copy, cast, fill) as FP64 values.
template <class F, typename C>
void run_formula(const OpCall& call) {
  (is_float(call.outputs[0].dtype) ? run<Elementwise<F>, C> : run<Elementwise<F>, double>)(call);
}

template <typename... F>
void add_formulas(lanes::FormulaList<F...>, std::vector<Twin>& twins) {
  (twins.push_back({F::kName, run_formula<F, float>, run_formula<F, double>, capture<Elementwise<F>>, bounds<Elementwise<F>>}),
   ...);
}

struct DroppedOut : SameElements {
  Dropout rule;

  explicit DroppedOut(const OpCall& call) : SameElements(call), rule(*call.attributes) {}
  template <class In>
  typename In::Value operator()(In& in, int /*slot*/, int64_t e) const {
    return in(0, e) * static_cast<typename In::Value>(rule.factor(static_cast<uint64_t>(e)));
  }
};

void source(const OpCall& call) {
  if (is_dense(call.outputs[0])) {
    record_moved(call, 0);
  } else {
    record_stored(call, 0);
  }
}

}  // namespace

std::vector<Twin> elementwise_twins() {
  std::vector<Twin> twins{{"source", source, source, capture<SameElements>, nullptr}, twin<DroppedOut>("dropout")};
  add_formulas(lanes::Formulas{}, twins);
  return twins;
}

}  // namespace ulpscope::plain
