// The third reader of element functions (element.h): its values carry error bounds.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ulpscope/kernels/bounds.h"
#include "ulpscope/kernels/plain/access.h"
#include "ulpscope/kernels/plain/bounded.h"
#include "ulpscope/kernels/plain/product_bound.h"

namespace ulpscope::plain {

template <class A>
class BoundsReader {
 public:
  using Value = Bounded<A>;
  using WideValue = Bounded<InDouble>;

  explicit BoundsReader(const OpCall& call) : call_(call) {
    for (const TensorView& input : call.inputs) {
      std::vector<Value>& values = inputs_.emplace_back();
      for (int64_t i = 0; i < input.size(); ++i) values.emplace_back(at<double>(input, i));
    }
    for (const TensorView& output : call.outputs) outputs_.emplace_back(static_cast<size_t>(output.size()));
  }
  // How an element of an output is formed, which others ask for.
  void form_by(std::function<Value(int slot, int64_t e)> form) { form_ = std::move(form); }

  const Value& operator()(int input, int64_t e) const { return inputs_[static_cast<size_t>(input)][static_cast<size_t>(e)]; }
  template <typename Term>
  auto sum(int64_t n, Term term, decltype(term(int64_t{})) factor = 1) const {
    return ordered_sum<decltype(factor)>(n, term) * factor;
  }
  // The sum of a product call is a ProductBound's; those of others run in the order in which they are written.
  class Total {
   public:
    explicit Total(const BoundsReader& in) : in_(in), product_(in.call_) {}
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
      return {product_.exact(), product_.error()};
    }

   private:
    const BoundsReader& in_;
    ProductBound product_;
    Value value_;
  };
  Total total() const { return Total(*this); }
  const Value& output(int slot, int64_t e) {
    std::optional<Value>& value = outputs_[static_cast<size_t>(slot)][static_cast<size_t>(e)];
    if (!value) value = form_(slot, e);
    return *value;
  }
  template <typename F>
  auto statistic(F f) const {
    return f();
  }

 private:
  const OpCall& call_;
  std::vector<std::vector<Value>> inputs_;
  std::vector<std::vector<std::optional<Value>>> outputs_;
  std::function<Value(int, int64_t)> form_;
};

// The bound of a value that was computed in a format, once it is stored as an element of output `slot`.
ElementBound stored_bound(const OpCall& call, int slot, const Real& exact, double error, const FloatFormat& computed);

template <class Element, class A>
std::vector<ElementBound> bounds_as(const OpCall& call, int slot, std::span<const int64_t> elements) {
  const Element element(call);
  BoundsReader<A> in(call);
  in.form_by([&](int other, int64_t e) { return static_cast<Bounded<A>>(element(in, other, e)); });
  std::vector<ElementBound> bounds;
  for (const int64_t e : elements) {
    const Bounded<A>& value = in.output(slot, e);
    bounds.push_back(stored_bound(call, slot, value.exact(), value.error(), A::kFormat));
  }
  return bounds;
}

template <class Element>
std::vector<ElementBound> bounds(const OpCall& call, int slot, std::span<const int64_t> elements) {
  return (computes_in_double(call) ? bounds_as<Element, InDouble> : bounds_as<Element, InFloat>)(call, slot, elements);
}

}  // namespace ulpscope::plain
