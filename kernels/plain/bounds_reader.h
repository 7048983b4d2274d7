// The third reader of element functions (element.h): its values carry error bounds.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ulpscope/kernels/bounds.h"
#include "ulpscope/kernels/plain/access.h"
#include "ulpscope/kernels/plain/bounded.h"
#include "ulpscope/kernels/plain/product_bound.h"

namespace ulpscope::plain {

// The elements of an input in logical order, as the call reads them.
std::vector<double> values_read(const OpCall& call, size_t input);

template <class A>
std::vector<std::vector<Bounded<A>>> bounded_inputs(const OpCall& call) {
  std::vector<std::vector<Bounded<A>>> inputs(call.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    for (const double value : values_read(call, i)) inputs[i].emplace_back(value);
  return inputs;
}

template <class A>
class BoundsReader {
 public:
  using Value = Bounded<A>;
  using WideValue = Bounded<InDouble>;

  // `form`: how an element of an output is formed, which others ask for.
  BoundsReader(const OpCall& call, std::function<Value(int slot, int64_t e)> form)
      : call_(call), inputs_(bounded_inputs<A>(call)), form_(std::move(form)) {
    for (const TensorView& output : call.outputs) outputs_.emplace_back(static_cast<size_t>(output.size()));
  }

  const Value& operator()(int input, int64_t e) const { return inputs_[static_cast<size_t>(input)][static_cast<size_t>(e)]; }
  template <typename Term>
  auto sum(int64_t n, Term term, decltype(term(int64_t{})) factor = 1) const {
    return ordered_sum<decltype(factor)>(n, term) * factor;
  }
  // The sum of a product call is a ProductBound's; those of others run in the order in which they are written.
  class Total {
   public:
    explicit Total(BoundsReader& in) : in_(in), product_(in.call_) {}
    template <typename F>
    void start(F f) {
      term(f);
    }
    template <typename F>
    void term(F f) {
      if (product_.is_any()) {
        product_.term(Value(f()).exact());
      } else {
        value_ += f();
      }
    }
    void product(int a, int64_t of_a, int b, int64_t of_b) { product_.product(in_(a, of_a).exact(), in_(b, of_b).exact()); }
    void beside_padding(int /*input*/, int64_t /*e*/) {}
    Value value() const {
      if (!product_.is_any()) return value_;
      if (in_.tells_formulas) in_.formula = product_.formula();
      return {product_.exact(), product_.error(), product_.held()};
    }

   private:
    BoundsReader& in_;
    ProductBound product_;
    Value value_;
  };
  Total total() { return Total(*this); }
  const Value& output(int slot, int64_t e) {
    std::optional<Value>& value = outputs_[static_cast<size_t>(slot)][static_cast<size_t>(e)];
    if (!value) value = form_(slot, e);
    return *value;
  }
  template <typename F>
  auto statistic(F f) const {
    return f();
  }

  // The formula of the last product's bound, where it is asked for.
  bool tells_formulas = false;
  std::string formula;

 private:
  const OpCall& call_;
  std::vector<std::vector<Value>> inputs_;
  std::vector<std::vector<std::optional<Value>>> outputs_;
  std::function<Value(int, int64_t)> form_;
};

// The bound of a value that was computed in a format, and may be known to be a number of a narrower one, once it is stored as an
// element of output `slot`.
ElementBound stored_bound(const OpCall& call, int slot, const Real& exact, double error, const FloatFormat& computed,
                          const FloatFormat* held);
template <class A>
ElementBound stored_bound(const OpCall& call, int slot, const Bounded<A>& value) {
  return stored_bound(call, slot, value.exact(), value.error(), A::kFormat, value.held());
}

// Where `formula` is not nullptr it becomes that of a product's bound, or stays as it is.
template <class Element, class A>
std::vector<ElementBound> bounds_as(const OpCall& call, int slot, std::span<const int64_t> elements, std::string* formula) {
  const Element element(call);
  std::vector<ElementBound> bounds;
  BoundsReader<A>* reader = nullptr;
  BoundsReader<A> in(call, [&](int other, int64_t e) { return static_cast<Bounded<A>>(element(*reader, other, e)); });
  reader = &in;
  in.tells_formulas = formula != nullptr;
  for (const int64_t e : elements) bounds.push_back(stored_bound(call, slot, in.output(slot, e)));
  if (!in.formula.empty()) *formula = in.formula;
  return bounds;
}

template <class Element>
std::vector<ElementBound> bounds(const OpCall& call, int slot, std::span<const int64_t> elements, std::string* formula) {
  return (computes_in_double(call) ? bounds_as<Element, InDouble> : bounds_as<Element, InFloat>)(call, slot, elements, formula);
}

}  // namespace ulpscope::plain
