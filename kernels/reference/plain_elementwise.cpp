// Elementwise ops by the shared formulas, on float or double, and those that no formula says.
#include <utility>

#include "ulpscope/kernels/dropout.h"
#include "ulpscope/kernels/formulas.h"
#include "ulpscope/kernels/reference/plain_loops.h"

namespace ulpscope::plain {
namespace {

template <typename T>
void store_integers(const OpCall& call, const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    call.outputs[0].as<T>()[offset_of(call.outputs[0], static_cast<int64_t>(i))] = static_cast<T>(values[i]);
  }
  record_stored(call, 0);
}

// Values of an integer output (copy and fill), in logical order.
void store_as_integers(const OpCall& call, const std::vector<double>& values) {
  switch (info(call.outputs[0].dtype).size) {
    case 8:
      return store_integers<int64_t>(call, values);
    case 4:
      return store_integers<int32_t>(call, values);
    default:
      return store_integers<uint8_t>(call, values);
  }
}

template <typename F, typename C, size_t... i>
void run_formula(const OpCall& call, std::index_sequence<i...>) {
  const F formula(*call.attributes);
  const int64_t size = call.outputs[0].size();
  if (!is_float(call.outputs[0].dtype)) {
    std::vector<double> values;
    for (int64_t e = 0; e < size; ++e) values.push_back(formula.template operator()<double>(at<double>(call.inputs[i], e)...));
    return store_as_integers(call, values);
  }
  Output<C> out(call, 0);
  for (int64_t e = 0; e < size; ++e) out[e] = evaluate<C>(formula, at<C>(call.inputs[i], e)...);
  out.store();
}

template <typename F, typename C>
void elementwise(const OpCall& call) {
  run_formula<F, C>(call, std::make_index_sequence<F::kInputs>());
}

template <typename... F>
void add_formulas(lanes::FormulaList<F...>, std::vector<NamedKernel>& kernels) {
  (kernels.push_back({F::kName, elementwise<F, float>, elementwise<F, double>, capture::elementwise}), ...);
}

template <typename C>
void dropout(const OpCall& call) {
  const Dropout rule(*call.attributes);
  Output<C> out(call, 0);
  for (int64_t i = 0; i < call.outputs[0].size(); ++i)
    out[i] = at<C>(call.inputs[0], i) * static_cast<C>(rule.factor(static_cast<uint64_t>(i)));
  out.store();
}

void source(const OpCall& call) {
  if (is_dense(call.outputs[0])) {
    record_moved(call, 0);
  } else {
    record_stored(call, 0);
  }
}

}  // namespace

std::vector<NamedKernel> elementwise_kernels() {
  std::vector<NamedKernel> kernels{{"source", source, source, capture::elementwise},
                                   {"dropout", dropout<float>, dropout<double>, capture::elementwise}};
  add_formulas(lanes::Formulas{}, kernels);
  return kernels;
}

}  // namespace ulpscope::plain
