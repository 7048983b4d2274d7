// Captures: what an element was made of, against runs of the plain twin with one input element changed, and against FP64.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "cpu_support.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/kernels/cases/op_cases.h"
#include "ulpscope/kernels/plain/plain.h"

namespace ulpscope::testing_support {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Runs a call and captures. Outputs that are in place of an input overwrite it.
ElementCapture capture(Backend& backend, const Case& what, const std::vector<HostTensor>& inputs, DType dtype, int slot = 0,
                       const Arithmetic* arithmetic = nullptr) {
  std::vector<TensorView> in, out;
  std::vector<HostTensor> outputs;
  for (const HostTensor& tensor : inputs) in.push_back(tensor.view());
  for (const OutputSpec& spec : what.outputs) outputs.emplace_back(spec.shape, spec.dtype.value_or(dtype), spec.lay);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int input = what.outputs[i].in_place_of;
    out.push_back(input >= 0 ? in[static_cast<size_t>(input)] : outputs[i].view());
    if (what.outputs[i].record_only) out.back().data = nullptr;
  }
  Attributes attributes;
  for (const auto& item : what.attributes) attributes.set(item.name, item.value);
  OpCall call{what.op, in, out, &attributes, {}};
  call.arithmetic = arithmetic;
  run(backend, call);
  return backend.capture_nonfinite(call, slot);
}

TEST(CpuCapture, ElementwiseOperandsOfTheFirstNonfiniteElement) {
  const auto backend = make_cpu_backend();
  const Case what{"div", {{{2, 3}}, {{2, 3}}}, {{{2, 3}}}};
  Instance instance(what, DType::f32);
  instance.inputs()[1].set(4, 0);
  const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f32);
  EXPECT_EQ(found.element, 4);
  EXPECT_TRUE(std::isinf(found.value));
  ASSERT_EQ(found.operands.size(), 2u);
  EXPECT_EQ(found.operands[0].value, instance.inputs()[0].get(4));
  EXPECT_EQ(found.operands[1].element, 4);
  EXPECT_EQ(found.operands[1].value, 0);
}

TEST(CpuCapture, NothingWhereAllIsFinite) {
  const auto backend = make_cpu_backend();
  const Case what{"neg", {{{5}}}, {{{5}}}};
  Instance instance(what, DType::f32);
  EXPECT_EQ(capture(*backend, what, instance.inputs(), DType::f32).element, -1);
}

// Row 1 of a holds 1e38 throughout: the FP32 sum of the products with ones breaks at the fourth term.
TEST(CpuCapture, TheTermAtWhichASumBreaks) {
  const auto backend = make_cpu_backend();
  const int64_t k = 100;
  const Case what{"matmul", {{{2, k}}, {{k, 3}}}, {{{2, 3}}}};
  Instance instance(what, DType::f32);
  for (int64_t i = 0; i < k; ++i) instance.inputs()[0].set(k + i, 1e38);
  for (int64_t i = 0; i < 3 * k; ++i) instance.inputs()[1].set(i, 1);
  const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f32);
  EXPECT_EQ(found.element, 3);
  EXPECT_EQ(found.terms, k);
  EXPECT_EQ(found.broke_at, 3);
  EXPECT_EQ(found.partial_sum, static_cast<double>(1e38f + 1e38f + 1e38f));
  ASSERT_EQ(found.operands.size(), 128u);
  EXPECT_EQ(found.operands[6].input, 0);
  EXPECT_EQ(found.operands[6].element, k + 3);
  EXPECT_EQ(found.operands[7].input, 1);
  EXPECT_EQ(found.operands[7].element, 3 * 3);
}

// 40 products of 3000: the 22nd takes an FP16 sum beyond 65520, an FP32 or FP64 sum holds all of them.
TEST(CpuCapture, ASumBreaksInWhatTheProductsAccumulateIn) {
  const auto backend = make_cpu_backend();
  const int64_t k = 40;
  const Case what{"matmul", {{{1, k}}, {{k, 1}}}, {{{1, 1}}}};
  Instance instance(what, DType::f16);
  for (int64_t i = 0; i < k; ++i) {
    instance.inputs()[0].set(i, 3000);
    instance.inputs()[1].set(i, 1);
  }
  const auto captured = [&](std::string_view name) {
    const Arithmetic how{.accumulation = find_accumulation(name)};
    return capture(*backend, what, instance.inputs(), DType::f16, 0, &how);
  };
  const ElementCapture in_fp16 = captured("fp16");
  EXPECT_EQ(in_fp16.value, kInf);
  EXPECT_EQ(in_fp16.broke_at, 21);
  EXPECT_NEAR(in_fp16.partial_sum, 63000, 21 * 16) << "each addition rounds by half an ulp, 16 at most";
  for (const char* name : {"fp32", "fp64", "exact", "a100"}) {
    const ElementCapture wide = captured(name);
    EXPECT_EQ(wide.value, kInf) << name << ": only the output's type does not hold it";
    EXPECT_EQ(wide.broke_at, -1) << name;
    EXPECT_EQ(wide.partial_sum, 120000) << name;
  }
}

TEST(CpuCapture, ARoundingThatOverflowsBreaksNoSum) {
  const auto backend = make_cpu_backend();
  const Case what{"sum", {{{4}}}, {{{}}}, {{"dims", 1}, {"keep", 0}}};
  Instance instance(what, DType::f16);
  for (int64_t i = 0; i < 4; ++i) instance.inputs()[0].set(i, 60000);
  const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f16);
  EXPECT_EQ(found.value, kInf);
  EXPECT_EQ(found.broke_at, -1);
  EXPECT_EQ(found.partial_sum, 240000) << "which FP16 does not hold";
  EXPECT_EQ(found.terms, 4);
  EXPECT_EQ(found.operands.size(), 4u);
}

// The target's logit of row 2 is -Inf: the row's log_sum_exp is finite, its term is not.
TEST(CpuCapture, CrossEntropyNamesTheRowWhoseTermIsNotFinite) {
  const auto backend = make_cpu_backend();
  const Case what{"cross_entropy", {{{4, 3}}, {{4}, Lay::contiguous, DType::i64, 3}}, {{{}}, {{4}}}};
  Instance instance(what, DType::f32);
  for (int64_t row = 0; row < 4; ++row) instance.inputs()[1].set(row, 1);
  instance.inputs()[0].set(2 * 3 + 1, -kInf);
  const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f32);
  EXPECT_EQ(found.value, kInf);
  EXPECT_EQ(found.broke_at, 2);
  ASSERT_EQ(found.operands.size(), 4u) << "the logits of the targets";
  EXPECT_EQ(found.operands[2].element, 2 * 3 + 1);
  EXPECT_EQ(found.operands[2].value, -kInf);
  ASSERT_EQ(found.rows.size(), 1u);
  EXPECT_EQ(found.rows[0].first, 2 * 3);
  EXPECT_EQ(found.rows[0].count, 3);
  EXPECT_EQ(found.rows[0].smallest, -kInf);
}

// Every term is finite; the sum of rows 0 and 1 is not.
TEST(CpuCapture, CrossEntropyNamesTheRowAtWhichTheSumOverflows) {
  const auto backend = make_cpu_backend();
  const Case what{"cross_entropy", {{{3, 2}}, {{3}, Lay::contiguous, DType::i64, 2}}, {{{}}, {{3}}}};
  Instance instance(what, DType::f32);
  for (int64_t row = 0; row < 3; ++row) {
    instance.inputs()[0].set(2 * row, row < 2 ? 3e38 : 0);
    instance.inputs()[0].set(2 * row + 1, 0);
    instance.inputs()[1].set(row, 1);
  }
  const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f32);
  EXPECT_EQ(found.value, kInf);
  EXPECT_EQ(found.broke_at, 1);
  ASSERT_EQ(found.rows.size(), 1u);
  EXPECT_EQ(found.rows[0].first, 2);
  EXPECT_EQ(found.rows[0].largest, static_cast<double>(3e38f));
}

std::vector<Case> all_cases() {
  std::vector<Case> cases = elementwise_cases({37});
  for (const Case& what : other_cases()) cases.push_back(what);
  return cases;
}

// A value that an in-place op has overwritten must not be reported as what went in.
TEST(CpuCapture, OverwrittenOperandsAreMarked) {
  const auto backend = make_cpu_backend();
  int overwriting = 0;
  for (const Case& what : all_cases()) {
    if (what.op == "source") continue;  // ASourceOverwritesNothing
    const auto is_overwritten = [&](int input) {
      return std::any_of(what.outputs.begin(), what.outputs.end(),
                         [&](const OutputSpec& output) { return output.in_place_of == input; });
    };
    if (std::none_of(what.outputs.begin(), what.outputs.end(), [](const OutputSpec& out) { return out.in_place_of >= 0; }))
      continue;
    for (size_t bad = 0; bad < what.inputs.size(); ++bad) {
      Instance instance(what, DType::f32);
      if (instance.inputs()[bad].view().size() == 0) continue;
      instance.inputs()[bad].set(0, kNan);
      std::vector<HostTensor> before;
      for (const HostTensor& input : instance.inputs()) before.push_back(input.copy());
      const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f32);
      bool named = false;
      for (const auto& operand : found.operands) {
        EXPECT_EQ(operand.overwritten, is_overwritten(operand.input)) << what.name();
        const auto& tensors = operand.overwritten ? instance.inputs() : before;
        const double expected = tensors[static_cast<size_t>(operand.input)].get(operand.element);
        EXPECT_TRUE(operand.value == expected || (std::isnan(operand.value) && std::isnan(expected))) << what.name();
        named = named || operand.input == static_cast<int>(bad);
      }
      if (found.element < 0) continue;
      EXPECT_TRUE(named) << what.name() << " input " << bad;
      ++overwriting;
    }
  }
  EXPECT_GT(overwriting, 30);
}

// Of the gradients of weights [4, 1, 2, 1] over 7 x 2 pixels with a pixel of padding on the left and the right, oneDNN multiplies
// the padding by g as well: so the NaN in g's first column is in gradients of which no term holds it.
TEST(CpuCapture, AFactorThatOnlyPaddingMeetsIsNamed) {
  const auto backend = make_cpu_backend({.threads = 1});
  const Case what{"conv2d_backward_weight",
                  {{{1, 4, 6, 4}, Lay::channels_last}, {{1, 1, 7, 2}, Lay::channels_last}},
                  {{{4, 1, 2, 1}}},
                  {{"stride_y", 1}, {"stride_x", 1}, {"padding_y", 0}, {"padding_x", 1}}};
  Instance instance(what, DType::f32);
  instance.inputs()[0].set(0, kNan);
  const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f32);
  if (found.element < 0) GTEST_SKIP() << "this oneDNN does not multiply padding";
  EXPECT_EQ(found.broke_at, -1);
  ASSERT_FALSE(found.operands.empty());
  EXPECT_EQ(found.operands.back().input, 0);
  EXPECT_EQ(found.operands.back().element, 0);
  EXPECT_TRUE(std::isnan(found.operands.back().value));
}

// Initial weights are what they are: a source gives its input back.
TEST(CpuCapture, ASourceOverwritesNothing) {
  const auto backend = make_cpu_backend();
  OutputSpec itself{{5}};
  itself.in_place_of = 0;
  const Case what{"source", {{{5}}}, {itself}};
  Instance instance(what, DType::f32);
  instance.inputs()[0].set(3, kInf);
  const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f32);
  ASSERT_EQ(found.operands.size(), 1u);
  EXPECT_EQ(found.operands[0].element, 3);
  EXPECT_EQ(found.operands[0].value, kInf);
  EXPECT_FALSE(found.operands[0].overwritten);
}

// Every op explains itself: an output that is NaN names at least one operand that is not finite.
TEST(CpuCapture, EveryOpNamesTheNonfiniteOperand) {
  const auto backend = make_cpu_backend();
  std::set<std::string> explained;
  for (const Case& what : all_cases()) {
    for (size_t input = 0; input < what.inputs.size(); ++input) {
      if (!is_float(what.inputs[input].dtype.value_or(DType::f32)) || what.op == "correct_count") continue;
      Instance instance(what, DType::f32);
      HostTensor& tensor = instance.inputs()[input];
      if (tensor.view().size() == 0) continue;
      tensor.set(std::min<int64_t>(1, tensor.view().size() - 1), kNan);
      const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f32);
      if (found.element < 0) continue;  // strides can pass an element by, and so can a maximum
      bool named = false;
      for (const auto& operand : found.operands)
        named = named || (operand.input == static_cast<int>(input) && (operand.overwritten || !std::isfinite(operand.value)));
      EXPECT_TRUE(named) << what.name() << " input " << input;
      explained.insert(what.op);
    }
  }
  for (const std::string_view op : backend->ops()) {
    if (op == "fill" || op == "correct_count") continue;  // no inputs; no output that could be NaN
    EXPECT_TRUE(explained.contains(std::string(op))) << op << " has no row in tests/kernels/cpu_support.cpp whose output is NaN";
  }
}

// A captured operand or a member of a row, as (input, element).
using Member = std::pair<int, int64_t>;

std::set<Member> members_of(const RowFacts& row) {
  std::set<Member> members;
  for (int64_t i = 0; i < row.count; ++i) members.insert({row.input, row.first + i / row.run * row.step + i % row.run});
  return members;
}

// An element of an output and what its capture says it was made of.
struct Captured {
  size_t slot;
  int64_t element;
  ElementCapture capture;
  std::set<Member> operands, row_members;
  std::set<Member> changing;  // of both: those that were seen to change the element
  bool complete;              // every operand was kept
};

// A case in FP32 on contiguous or at least distinct elements, the capture of some of its output elements, and what changes them.
class Perturbed {
 public:
  Perturbed(const Case& what, uint64_t seed) : case_(what), instance_(distinct(what), DType::f32, seed) {
    const CaseCall prepared = instance_.prepare();
    run_plain(prepared.call());
    before_ = prepared.result();
    const Philox random(seed, 1000);
    for (size_t slot = 0; slot < what.outputs.size(); ++slot) {
      const TensorView view = before_.outputs[slot].view();
      if (!is_float(view.dtype) || what.outputs[slot].record_only || view.size() == 0) continue;
      for (uint64_t draw = 0; draw < 6; ++draw) {
        Captured one;
        one.slot = slot;
        one.element = random.below(6 * slot + draw, static_cast<uint32_t>(view.size()));
        one.capture = capture_element(prepared.call(), static_cast<int>(slot), one.element);
        for (const auto& operand : one.capture.operands) one.operands.insert({operand.input, operand.element});
        for (const RowFacts& row : one.capture.rows) one.row_members.merge(members_of(row));
        one.complete = one.capture.terms <= 32 || (one.capture.terms <= 64 && one.capture.operands.size() < 128);
        captured_.push_back(one);
      }
    }
  }

  std::vector<Captured>& captured() { return captured_; }
  Instance& instance() { return instance_; }

  // Sets one input element to other values, one after the other; body(element) for each captured one that changes.
  template <typename Body>
  void change(const Member& member, Body body) {
    const TensorSpec& spec = case_.inputs[static_cast<size_t>(member.first)];
    HostTensor& tensor = instance_.inputs()[static_cast<size_t>(member.first)];
    const double value = tensor.get(member.second);
    std::vector<double> others{kNan, 1e4, -value, value / 2};
    if (!is_float(tensor.view().dtype)) {
      others.clear();
      for (int64_t other = 0; other < std::min<int64_t>(spec.integers, 4); ++other) others.push_back(static_cast<double>(other));
    }
    for (const double other : others) {
      tensor.set(member.second, other);
      const Result now = instance_.run_plain();
      for (Captured& one : captured_) {
        const double a = now.outputs[one.slot].get(one.element), b = before_.outputs[one.slot].get(one.element);
        if (!(a == b || (std::isnan(a) && std::isnan(b)))) body(one);
      }
    }
    tensor.set(member.second, value);
  }

  // Every operand and every member of a row, and, of each floating-point or boolean input, up to `others` elements beside them.
  std::set<Member> members(int64_t others) const {
    std::set<Member> members;
    for (const Captured& one : captured_) {
      members.insert(one.operands.begin(), one.operands.end());
      members.insert(one.row_members.begin(), one.row_members.end());
    }
    for (size_t input = 0; input < case_.inputs.size(); ++input) {
      const TensorView view = instance_.what().inputs.empty() ? TensorView{} : inputs()[input].view();
      if (!is_float(view.dtype) && view.dtype != DType::boolean) continue;
      const int64_t step = std::max<int64_t>(1, view.size() / others);
      for (int64_t e = 0; e < view.size(); e += step) members.insert({static_cast<int>(input), e});
    }
    return members;
  }
  // What an element reads may be hidden by a choice that another operand makes: that one is changed first.
  bool changes_after_another(const Captured& of, const Member& member) {
    for (const Member& other : of.operands) {
      if (other == member) continue;
      HostTensor& tensor = instance_.inputs()[static_cast<size_t>(other.first)];
      const double value = tensor.get(other.second);
      bool found = false;
      for (const double chosen : {0.0, 1.0}) {
        tensor.set(other.second, chosen);
        Result before = instance_.run_plain();
        std::swap(before, before_);
        change(member, [&](Captured& one) { found = found || (one.slot == of.slot && one.element == of.element); });
        std::swap(before, before_);
      }
      tensor.set(other.second, value);
      if (found) return true;
    }
    return false;
  }

 private:
  static Case distinct(Case what) {
    for (TensorSpec& input : what.inputs)
      if (input.lay == Lay::broadcast) input.lay = Lay::contiguous;
    return what;
  }
  const std::vector<HostTensor>& inputs() const { return const_cast<Instance&>(instance_).inputs(); }

  Case case_;
  Instance instance_;
  Result before_;
  std::vector<Captured> captured_;
};

int64_t largest_input(const Case& what) {
  int64_t largest = 0;
  for (const TensorSpec& input : what.inputs) {
    int64_t size = 1;
    for (const int64_t extent : input.shape) size *= extent;
    largest = std::max(largest, size);
  }
  return largest;
}

// Each captured operand changes the element, and nothing else does.
TEST(CpuCapture, WhatIsCapturedIsWhatChangesTheElement) {
  std::map<std::string, int> tested;
  std::map<std::pair<std::string, int>, bool> of_rows;  // whether any value of a row of an input changes an element
  std::map<std::pair<std::string, int>, bool> chosen;   // of ops that read all and choose: whether any operand of an input changes
  for (const Case& what : all_cases()) {
    if (largest_input(what) > 450) continue;
    Perturbed perturbed(what, 5);
    for (const Member& member : perturbed.members(30)) {
      perturbed.change(member, [&](Captured& one) {
        const bool is_captured = one.operands.contains(member) || one.row_members.contains(member);
        if (is_captured) one.changing.insert(member);
        // Of a loss of rows, those of the row at which its sum breaks are told alone.
        if (!one.complete || (what.op == "cross_entropy" && one.slot == 0)) return;
        // An index that names another element may be made to name this one.
        const DType type = perturbed.instance().inputs()[static_cast<size_t>(member.first)].view().dtype;
        if (!is_float(type) && type != DType::boolean) return;
        EXPECT_TRUE(is_captured) << fmt::format("{}: element {} of input {} changes element {} of output {} and is not captured",
                                                what.name(), member.second, member.first, one.element, one.slot);
      });
    }
    const bool chooses = what.outputs.size() > 0 && (what.op.ends_with("_update") || largest_input(what) == 37);
    for (Captured& one : perturbed.captured()) {
      ++tested[what.op];
      for (const Member& operand : one.operands) {
        const bool has_one_value = what.inputs[static_cast<size_t>(operand.first)].integers == 1;
        const bool changes =
            has_one_value || one.changing.contains(operand) || (!chooses && perturbed.changes_after_another(one, operand));
        if (chooses) {
          bool& any = chosen[{what.op, operand.first}];
          any = any || changes;
        } else {
          EXPECT_TRUE(changes) << fmt::format("{}: element {} of input {} is captured and does not change element {} of output {}",
                                              what.name(), operand.second, operand.first, one.element, one.slot);
        }
      }
      for (const RowFacts& row : one.capture.rows) {
        const std::set<Member> members = members_of(row);
        bool& any = of_rows[{what.op, row.input}];
        any = any || std::any_of(members.begin(), members.end(), [&](const Member& m) { return one.changing.contains(m); });
      }
    }
  }
  // Inputs whose values random ones never let through: those at a place that is no maximum, a prediction of which the gradient
  // holds none, a destination, and a scale that only an amax of zero keeps.
  const std::set<std::pair<std::string, int>> hidden{{"max_backward", 0},    {"max_backward", 1}, {"max_backward", 3},
                                                     {"kl_div_backward", 1}, {"assign", 0},       {"amax_history_update", 1}};
  for (const auto& [input, changes] : chosen)
    EXPECT_EQ(changes, !hidden.contains(input))
        << input.first << ": no operand captured of input " << input.second << " changes an element";
  for (const auto& [input, changes] : of_rows)
    EXPECT_TRUE(changes) << input.first << ": no row of input " << input.second << " changes an element";
  for (const std::string_view op : make_cpu_backend()->ops())
    EXPECT_TRUE(tested.contains(std::string(op)) || op == "correct_count") << op << " was not tested";
}

// The facts of a row, from its values.
TEST(CpuCapture, RowFactsAreThoseOfTheRowsValues) {
  int rows = 0;
  for (const Case& what : all_cases()) {
    if (largest_input(what) > 3000) continue;
    Perturbed perturbed(what, 6);
    for (const Captured& one : perturbed.captured()) {
      for (const RowFacts& row : one.capture.rows) {
        if (row.overwritten) continue;
        const std::set<Member> members = members_of(row);
        ASSERT_EQ(static_cast<int64_t>(members.size()), row.count) << what.name();
        double largest = -kInf, smallest = kInf, sum = 0, squares = 0, magnitudes = 0;
        for (const auto& [input, element] : members) {
          const double value = perturbed.instance().inputs()[static_cast<size_t>(input)].get(element);
          largest = std::max(largest, value);
          smallest = std::min(smallest, value);
          sum += value;
          magnitudes += std::fabs(value);
          squares += value * value;
        }
        const double gamma = static_cast<double>(row.count) * 0x1p-52;
        EXPECT_EQ(row.largest, largest) << what.name();
        EXPECT_EQ(row.smallest, smallest) << what.name();
        EXPECT_LE(std::fabs(row.sum - sum), gamma * magnitudes) << what.name();
        EXPECT_LE(std::fabs(row.sum_of_squares - squares), gamma * squares) << what.name();
        EXPECT_EQ(row.nonfinite, 0);
        ++rows;
      }
    }
  }
  EXPECT_GT(rows, 300);
}

// How one term of a sum follows from its operands, and from those that the op reads beside its terms and come first.
struct TermRule {
  std::string op;
  size_t slot = 0, beside = 0, in_term = 1;
  std::function<double(const ElementCapture::Operand* term, const ElementCapture& capture)> value;
};

std::vector<TermRule> term_rules() {
  using Operand = ElementCapture::Operand;
  const auto itself = [](const Operand* term, const ElementCapture&) { return term[0].value; };
  const auto square = [](const Operand* term, const ElementCapture&) { return term[0].value * term[0].value; };
  const auto product = [](const Operand* term, const ElementCapture&) { return term[0].value * term[1].value; };
  std::vector<TermRule> rules;
  for (const char* op :
       {"sum", "mean", "embedding_backward", "gather_backward", "scatter_add", "avg_pool2d", "adaptive_avg_pool2d"})
    rules.push_back({op, 0, 0, 1, itself});
  for (const char* op : {"norm", "gradient_norm"}) rules.push_back({op, 0, 0, 1, square});
  for (const char* op : {"matmul", "conv2d", "conv2d_backward_input", "conv2d_backward_weight", "conv_transpose2d",
                         "conv_transpose2d_backward_input", "conv_transpose2d_backward_weight"})
    rules.push_back({op, 0, 0, 2, product});
  rules.push_back({"linear", 0, 0, 2, product});
  rules.push_back({"scaled_matmul", 0, 2, 2, product});
  for (const char* op : {"conv2d_backward_weight", "layer_norm_backward_weight"}) rules.push_back({op, 1, 0, 1, itself});
  for (const char* op : {"batch_norm_backward", "group_norm_backward"}) rules.push_back({op, 2, 0, 1, itself});
  rules.push_back({"var", 0, 0, 1, [](const Operand* term, const ElementCapture& capture) {
                     const double mean = capture.rows[0].sum / static_cast<double>(capture.rows[0].count);
                     return (term[0].value - mean) * (term[0].value - mean);
                   }});
  rules.push_back({"layer_norm_backward_weight", 0, 0, 4, [](const Operand* term, const ElementCapture&) {
                     return term[0].value * (term[1].value - term[2].value) * term[3].value;
                   }});
  rules.push_back({"rms_norm_backward_weight", 0, 0, 3,
                   [](const Operand* term, const ElementCapture&) { return term[0].value * term[1].value * term[2].value; }});
  rules.push_back({"batch_norm_backward", 1, 2, 2, [](const Operand* term, const ElementCapture& capture) {
                     return term[0].value * (term[1].value - capture.operands[0].value) * capture.operands[1].value;
                   }});
  rules.push_back({"mse", 0, 0, 2, [](const Operand* term, const ElementCapture&) {
                     return (term[0].value - term[1].value) * (term[0].value - term[1].value);
                   }});
  return rules;
}

// Partial sums of whole sums, and of sums that an infinity in the middle breaks.
TEST(CpuCapture, PartialSumsAreThoseOfTheTerms) {
  std::map<std::pair<std::string, size_t>, int> sums, broken;
  for (const TermRule& rule : term_rules()) {
    for (const Case& what : other_cases()) {
      if (what.op != rule.op || rule.slot >= what.outputs.size() || largest_input(what) > 3000) continue;
      Perturbed perturbed(what, 7);
      for (const Captured& one : perturbed.captured()) {
        const ElementCapture& whole = one.capture;
        if (one.slot != rule.slot || !one.complete || whole.terms == 0) continue;
        // The terms before number `end`: their sum and that of their magnitudes. A bias comes last, alone.
        const auto sum_of = [&](const ElementCapture& capture, int64_t end) {
          std::pair<double, double> sum;
          for (int64_t term = 0; term < end; ++term) {
            const size_t first = rule.beside + static_cast<size_t>(term) * rule.in_term;
            const bool is_bias = first + 1 == capture.operands.size() && rule.in_term > 1;
            const double value = is_bias ? capture.operands[first].value : rule.value(&capture.operands[first], capture);
            sum.first += value;
            sum.second += std::fabs(value);
          }
          return sum;
        };
        // Each term of FP32 factors has at most four roundings of its own.
        const auto check = [&](const ElementCapture& capture, int64_t end) {
          const auto [sum, magnitude] = sum_of(capture, end);
          const double k = static_cast<double>(end + 6) * 0x1p-24;
          // The mean of a variance is rounded as well, and taken twice.
          const double of_mean = rule.op == "var" ? 8 * k : 0;
          EXPECT_LE(std::fabs(capture.partial_sum - sum), k / (1 - k) * magnitude * 4 + of_mean)
              << fmt::format("{}: element {} of output {}: {} of {} terms", what.name(), one.element, one.slot, end, capture.terms);
        };
        if (std::isfinite(whole.value)) {
          check(whole, whole.terms);
          ++sums[{rule.op, rule.slot}];
        }
        if (rule.op == "var" || what.inputs[0].dtype.has_value()) continue;  // an infinity makes the mean infinite; FP8 has none
        const int64_t middle = whole.terms / 2;
        const auto& operand = whole.operands[rule.beside + static_cast<size_t>(middle) * rule.in_term];
        HostTensor& tensor = perturbed.instance().inputs()[static_cast<size_t>(operand.input)];
        tensor.set(operand.element, kInf);
        const CaseCall prepared = perturbed.instance().prepare();
        run_plain(prepared.call());
        const ElementCapture capture = capture_element(prepared.call(), static_cast<int>(one.slot), one.element);
        tensor.set(operand.element, operand.value);
        EXPECT_EQ(capture.broke_at, middle) << what.name();
        check(capture, middle);
        ++broken[{rule.op, rule.slot}];
      }
      if (testing::Test::HasFailure()) return;
    }
    const auto key = std::pair{rule.op, rule.slot};
    EXPECT_GT(sums[key], 0) << rule.op << " output " << rule.slot;
    EXPECT_EQ(broken[key] > 0, rule.op != "var" && rule.op != "scaled_matmul") << rule.op << " output " << rule.slot;
  }
}

// A capture of a large product reads no more terms than it keeps once the sum is broken: here the others are out of bounds.
TEST(CpuCapture, ReadsNothingOnceTheSumIsBroken) {
  const int64_t k = int64_t{1} << 40, kept = 64;
  std::vector<float> a(kept, 1e38f);
  TensorView left, right, out;
  left.data = right.data = a.data();
  left.rank = right.rank = out.rank = 1;
  left.shape[0] = k;
  left.strides[0] = 1;
  float total = static_cast<float>(kInf);
  out = {};
  out.data = &total;
  const Attributes attributes{{"dims", 1}, {"keep", 0}};
  const TensorView inputs[] = {left}, outputs[] = {out};
  const ElementCapture found = capture_nonfinite({"sum", inputs, outputs, &attributes, {}}, 0);
  EXPECT_EQ(found.terms, k);
  EXPECT_EQ(found.broke_at, 3);
  EXPECT_EQ(found.operands.size(), static_cast<size_t>(kept));
}

// A row of 1000 logits has facts of the row, and few operands.
TEST(CpuCapture, ARowIsToldByItsFacts) {
  const auto backend = make_cpu_backend();
  const Case what{"softmax", {{{3, 1000}}}, {{{3, 1000}}}};
  Instance instance(what, DType::f32);
  instance.inputs()[0].set(1000 + 7, kInf);
  instance.inputs()[0].set(1000 + 9, -9);
  const ElementCapture found = capture(*backend, what, instance.inputs(), DType::f32);
  EXPECT_EQ(found.element, 1000);
  ASSERT_EQ(found.operands.size(), 2u);
  EXPECT_EQ(found.operands[0].element, 1000);
  EXPECT_EQ(found.operands[1].element, 1007);
  ASSERT_EQ(found.rows.size(), 1u);
  EXPECT_EQ(found.rows[0].first, 1000);
  EXPECT_EQ(found.rows[0].count, 1000);
  EXPECT_EQ(found.rows[0].run, 1000);
  EXPECT_EQ(found.rows[0].largest, kInf);
  EXPECT_EQ(found.rows[0].smallest, -9);
  EXPECT_EQ(found.rows[0].sum, kInf);
  EXPECT_EQ(found.rows[0].nonfinite, 1);
}

}  // namespace
}  // namespace ulpscope::testing_support
