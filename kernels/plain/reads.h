// Notes what an element function reads for one element (element.h): its operands, how far its sum came, and the rows that its
// statistics were formed of. Values are read as they are after the call, and those that an in-place op overwrote are marked.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "ulpscope/emulation/arithmetic.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/op_call.h"
#include "ulpscope/kernels/plain/access.h"

namespace ulpscope::plain {

// Element e of an input or of an output.
struct TensorElement {
  int tensor;
  int64_t e;
  auto operator<=>(const TensorElement&) const = default;
};

template <typename C>
class Reads {
 public:
  using Value = C;
  using WideValue = double;

  Reads(const OpCall& call, int slot, int64_t e) : call_(call) {
    if (call.arithmetic != nullptr && slot == 0 && is_product(call.op)) {
      accumulator_ = call.arithmetic->accumulation->accumulator;
      narrow_ = call.arithmetic->accumulation->narrow;
    }
    capture_.element = e;
    capture_.value = read_element(call.outputs[static_cast<size_t>(slot)], e);
  }

  C operator()(int input, int64_t e) {
    note(input, e);
    return at<C>(call_.inputs[static_cast<size_t>(input)], e);
  }
  void note(int input, int64_t e) {
    if (in_statistic_) {
      noted().statistics.push_back({input, e});
    } else if (in_term_) {
      term_.operands.push_back({input, e});
    } else if (direct_operands_ < kOperandsKept) {
      ++direct_operands_;
      keep({input, e});
    }
  }

  template <typename Term>
  auto sum(int64_t n, Term term, decltype(term(int64_t{})) factor = 1) {
    if (in_statistic_) return ordered_sum<decltype(factor)>(n, term) * factor;
    int64_t i = 0;
    for (; i < n && !settled(); ++i) this->term([&] { return term(i) * factor; });
    capture_.terms += n - i;
    return static_cast<decltype(factor)>(partial_sum_);
  }

  // The element has one sum, so its total is kept here.
  Reads& total() { return *this; }
  template <typename F>
  void start(F f) {
    term(f);
  }
  template <typename F>
  void term(F f) {
    add([&] { return sum_with(f()); });
  }
  void product(int a, int64_t of_a, int b, int64_t of_b) {
    add([&] {
      const C first = (*this)(a, of_a), second = (*this)(b, of_b);
      return sum_with_product(first, second);
    });
  }
  // A factor that meets padding. It is no term, but some of oneDNN's implementations multiply it by a zero: where no term explains
  // the element, the first that is not finite does (docs/ops.md).
  void beside_padding(int input, int64_t e) {
    if (!padding_ && !settled() && !std::isfinite(at<C>(call_.inputs[static_cast<size_t>(input)], e))) padding_ = {input, e};
  }
  C value() const { return static_cast<C>(partial_sum_); }

  C output(int slot, int64_t e) {
    noted().outputs.push_back({slot, e});
    return at<C>(call_.outputs[static_cast<size_t>(slot)], e);
  }
  template <typename F>
  auto statistic(F f) {
    const bool before = std::exchange(in_statistic_, true);
    const auto value = f();
    in_statistic_ = before;
    return value;
  }

  // Once the element was read: explain(slot, e) reads each element of another output that it asked for, as a statistic.
  template <typename Explain>
  ElementCapture take(Explain explain) {
    if (has_sum_ && capture_.broke_at < 0) {
      capture_.partial_sum = partial_sum_;
      if (padding_) keep(*padding_);
    }
    in_statistic_ = true;
    for (size_t i = 0; i < element_.outputs.size(); ++i) explain(element_.outputs[i].tensor, element_.outputs[i].e);
    std::vector<TensorElement>& rows = element_.statistics;
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    for (auto begin = rows.begin(), end = begin; begin != rows.end(); begin = end) {
      end = std::find_if(begin, rows.end(), [&](const TensorElement& other) { return other.tensor != begin->tensor; });
      add_facts({&*begin, static_cast<size_t>(end - begin)});
    }
    return std::move(capture_);
  }

 private:
  static constexpr int64_t kTermsKept = 64;
  static constexpr size_t kOperandsKept = 2 * kTermsKept;

  // What was read for the element, or for one term of its sum.
  struct Noted {
    std::vector<TensorElement> operands, statistics, outputs;
  };
  Noted& noted() { return in_term_ ? term_ : element_; }
  bool settled() const { return capture_.broke_at >= 0 && capture_.terms >= kTermsKept; }

  bool is_overwritten(int input) const {
    if (call_.op == "source") return false;  // gives its input back as it was
    const void* data = call_.inputs[static_cast<size_t>(input)].data;
    return std::any_of(call_.outputs.begin(), call_.outputs.end(),
                       [&](const TensorView& output) { return output.data != nullptr && output.data == data; });
  }
  void keep(const TensorElement& of, int64_t term = -1) {
    const double value = read_element(call_.inputs[static_cast<size_t>(of.tensor)], of.e);
    capture_.operands.push_back({of.tensor, of.e, value, is_overwritten(of.tensor), term});
  }

  // One term; next() is the sum with it. Only the first terms and the one at which the sum breaks are kept, and what that one was
  // formed of beside its operands. None is read once the sum is known to be broken.
  template <typename Next>
  void add(Next next) {
    if (!settled()) {
      term_ = {};
      in_term_ = has_sum_ = true;
      const double sum = next();
      in_term_ = false;
      const bool breaks = capture_.broke_at < 0 && !std::isfinite(sum);
      if (breaks) {
        capture_.broke_at = capture_.terms;
        capture_.partial_sum = partial_sum_;
        element_.statistics.insert(element_.statistics.end(), term_.statistics.begin(), term_.statistics.end());
        element_.outputs.insert(element_.outputs.end(), term_.outputs.begin(), term_.outputs.end());
      }
      partial_sum_ = sum;
      const bool has_room = capture_.operands.size() - direct_operands_ + term_.operands.size() <= kOperandsKept;
      if (breaks || (capture_.terms < kTermsKept && has_room))
        for (const TensorElement& operand : term_.operands) keep(operand, capture_.terms);
    }
    ++capture_.terms;
  }
  // The sum with a value and with a product, in what the call accumulates in. That of tensor cores is FP32 as well, whose terms are
  // cut off (docs/emulation.md).
  template <typename T>
  double sum_with(T value) const {
    const bool in_fp64 = std::is_same_v<T, double> || accumulator_ == Accumulator::fp64 || accumulator_ == Accumulator::exact;
    return in_fp64 ? partial_sum_ + value : static_cast<double>(static_cast<T>(partial_sum_) + value);
  }
  double sum_with_product(C a, C b) const {
    if (narrow_ != nullptr) {
      const auto number = [](double value) { return decode(binary64, encoding_of(value)); };
      return value_of(*narrow_, encode(*narrow_, fused_multiply_add(number(a), number(b), number(partial_sum_))));
    }
    if (accumulator_ == Accumulator::fp64 || accumulator_ == Accumulator::exact)
      return partial_sum_ + static_cast<double>(a) * static_cast<double>(b);
    return sum_with(a * b);
  }

  void add_facts(std::span<const TensorElement> row) {
    RowFacts facts;
    facts.input = row[0].tensor;
    facts.overwritten = is_overwritten(facts.input);
    facts.first = row[0].e;
    facts.count = static_cast<int64_t>(row.size());
    size_t run = 1;
    while (run < row.size() && row[run].e == facts.first + static_cast<int64_t>(run)) ++run;
    facts.run = static_cast<int64_t>(run);
    facts.step = run < row.size() ? row[run].e - facts.first : 0;
    std::optional<TensorElement> culprit;
    for (const TensorElement& member : row) {
      const double value = read_element(call_.inputs[static_cast<size_t>(member.tensor)], member.e);
      facts.sum += value;
      facts.sum_of_squares += value * value;
      facts.largest = std::fmax(facts.largest, value);  // of a NaN and a number the number
      facts.smallest = std::fmin(facts.smallest, value);
      if (!std::isfinite(value) && facts.nonfinite++ == 0) culprit = member;
    }
    const auto is_culprit = [&](const ElementCapture::Operand& of) { return of.input == facts.input && of.element == culprit->e; };
    if (culprit && std::none_of(capture_.operands.begin(), capture_.operands.end(), is_culprit)) keep(*culprit);
    capture_.rows.push_back(facts);
  }

  const OpCall& call_;
  ElementCapture capture_;
  Accumulator accumulator_ = Accumulator::fp32;
  const FloatFormat* narrow_ = nullptr;
  double partial_sum_ = 0;
  bool has_sum_ = false, in_term_ = false, in_statistic_ = false;
  size_t direct_operands_ = 0;
  std::optional<TensorElement> padding_;
  Noted element_, term_;
};

}  // namespace ulpscope::plain
