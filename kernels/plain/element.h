// Most plain twins are element functions: a class that is made from a call and says by operator()(in, slot, e) how element e of
// output `slot` comes from elements of the inputs. The twin calls it for every element with Values, which are the inputs' values;
// a capture calls it for one with Reads, which note what it reads; and bounds call it for every element with a BoundsReader, whose
// values carry their errors. All have
//
//   Value                     float, or double where the call computes in FP64
//   WideValue                 double, also where it computes in FP32
//   in(input, e)              element e (logical index) of an input
//   in.sum(n, term, factor)   (term(0) + ... + term(n - 1)) factor, in the order of reduction_order.h
//   in.total()                a sum in the order in which it is written: start(f), term(f), product(input, e, input, e), value()
//   in.output(slot, e)        the wide value of an element of another output, of a slot after the one that asks
//   in.statistic(f)           f(), a number that is formed of many elements and is not itself an output
//
// What is read by a sum's terms are the operands of terms. What is read within a statistic, or for another output, is not an
// operand but part of a row (RowFacts in op_call.h). An output of integers is not captured: index(in, e) says its elements.
#pragma once

#include <algorithm>
#include <any>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "ulpscope/kernels/plain/access.h"
#include "ulpscope/kernels/plain/bounds_reader.h"
#include "ulpscope/kernels/plain/reads.h"
#include "ulpscope/kernels/plain/twins.h"

namespace ulpscope::plain {

template <typename C>
class Values {
 public:
  using Value = C;
  using WideValue = double;

  explicit Values(const OpCall& call) : widened_(call.inputs.size()) {
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const TensorView& view = call.inputs[i];
      const bool as_it_is = view.dtype == (sizeof(C) == sizeof(float) ? DType::f32 : DType::f64) && is_contiguous(view);
      if (!as_it_is) widened_[i] = widen<C>(view);
      data_.push_back(as_it_is ? view.as<const C>() : widened_[i].data());
    }
    for (size_t slot = 0; slot < call.outputs.size(); ++slot) outputs_.emplace_back(call, static_cast<int>(slot));
  }

  C operator()(int input, int64_t e) const { return data_[static_cast<size_t>(input)][e]; }
  template <typename Term>
  auto sum(int64_t n, Term term, decltype(term(int64_t{})) factor = 1) const {
    return ordered_sum<decltype(factor)>(n, term) * factor;
  }
  class Total {
   public:
    explicit Total(const Values& in) : in_(in) {}
    template <typename F>
    void start(F f) {
      value_ = f();
    }
    template <typename F>
    void term(F f) {
      value_ += f();
    }
    void product(int a, int64_t of_a, int b, int64_t of_b) { value_ += in_(a, of_a) * in_(b, of_b); }
    void beside_padding(int /*input*/, int64_t /*e*/) {}
    C value() const { return value_; }

   private:
    const Values& in_;
    C value_{};
  };
  Total total() const { return Total(*this); }
  C output(int slot, int64_t e) { return outputs_[static_cast<size_t>(slot)][e]; }
  template <typename F>
  auto statistic(F f) {
    return f();
  }

  Output<C>& outputs(int slot) { return outputs_[static_cast<size_t>(slot)]; }

 private:
  std::vector<std::vector<C>> widened_;
  std::vector<const C*> data_;
  std::vector<Output<C>> outputs_;
};

// Values that an element function needs for many elements, formed when they are first asked for. Of one type for one reader.
class Memo {
 public:
  explicit Memo(int64_t count) : values_(static_cast<size_t>(count)) {}
  template <typename T, typename Make>
  const T& get(int64_t key, Make make) const {
    std::any& value = values_[static_cast<size_t>(key)];
    if (!value.has_value()) value = T(make());
    return *std::any_cast<T>(&value);
  }

 private:
  mutable std::vector<std::any> values_;
};

// What is added up in each element, in order.
class Additions {
 public:
  // Value i goes to target[i].
  explicit Additions(const std::vector<int64_t>& targets) {
    for (size_t i = 0; i < targets.size(); ++i) all_.emplace_back(targets[i], static_cast<int64_t>(i));
    std::sort(all_.begin(), all_.end());
  }
  template <typename Body>
  void for_each(int64_t target, Body body) const {
    for (auto i = std::lower_bound(all_.begin(), all_.end(), std::pair{target, int64_t{0}}); i != all_.end() && i->first == target;
         ++i)
      body(i->second);
  }

 private:
  std::vector<std::pair<int64_t, int64_t>> all_;
};

template <class Element>
inline constexpr bool kHasIndices = requires(const Element& element, Values<float>& in) {
  element.index(in, int64_t{});
};

template <typename T>
void store_integers(const OpCall& call, int slot, const std::vector<int64_t>& values) {
  const TensorView& view = call.outputs[static_cast<size_t>(slot)];
  for (size_t i = 0; i < values.size(); ++i) view.as<T>()[offset_of(view, static_cast<int64_t>(i))] = static_cast<T>(values[i]);
  record_stored(call, slot);
}

// An integer output, from its elements in logical order.
inline void store_as_integers(const OpCall& call, int slot, const std::vector<int64_t>& values) {
  switch (info(call.outputs[static_cast<size_t>(slot)].dtype).size) {
    case 8:
      return store_integers<int64_t>(call, slot, values);
    case 4:
      return store_integers<int32_t>(call, slot, values);
    default:
      return store_integers<uint8_t>(call, slot, values);
  }
}

// Outputs are computed from the last to the first, for one asks for others only after it, and stored when all are, for they may
// lie where inputs are.
template <class Element, typename C>
void run(const OpCall& call) {
  const Element element(call);
  Values<C> in(call);
  const int slots = static_cast<int>(call.outputs.size());
  std::vector<int64_t> indices;
  for (int slot = slots - 1; slot >= 0; --slot) {
    const TensorView& view = call.outputs[static_cast<size_t>(slot)];
    for (int64_t e = 0, size = view.size(); e < size; ++e) {
      if (is_float(view.dtype)) {
        in.outputs(slot)[e] = static_cast<C>(element(in, slot, e));
      } else if constexpr (kHasIndices<Element>) {
        indices.push_back(element.index(in, e));
      }
    }
  }
  for (int slot = 0; slot < slots; ++slot) {
    if (is_float(call.outputs[static_cast<size_t>(slot)].dtype)) {
      in.outputs(slot).store();
    } else {
      store_as_integers(call, slot, indices);
    }
  }
}

template <class Element, typename C>
ElementCapture capture_as(const OpCall& call, int slot, int64_t e) {
  const Element element(call);
  Reads<C> in(call, slot, e);
  element(in, slot, e);
  return in.take([&](int other, int64_t of_other) { element(in, other, of_other); });
}

template <class Element>
ElementCapture capture(const OpCall& call, int slot, int64_t e) {
  return computes_in_double(call) ? capture_as<Element, double>(call, slot, e) : capture_as<Element, float>(call, slot, e);
}

template <class Element>
Twin twin(std::string_view op) {
  return {op, run<Element, float>, run<Element, double>, capture<Element>, bounds<Element>};
}

}  // namespace ulpscope::plain
