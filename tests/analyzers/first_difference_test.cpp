// Where two recordings first part by their bits, in traces made for it: ranks, gaps, casts, graphs that go round; and how far apart
// rounding can put two results, against sums in other orders.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "synthetic_trace.h"
#include "ulpscope/analyzers/totals/first_different_output.h"
#include "ulpscope/analyzers/totals/rounding_bound.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {
namespace {

using namespace analyzers_test;
using Kind = FirstDifferentOutput::Kind;
using What = FirstDifferentOutput::What;

ComparedBits compare(const Snapshot& a, const Snapshot& b) {
  const AnalysisOptions options;
  return compare_bits(a, b, Selection(a, options), Selection(b, options), options);
}

// A chain of ops, each of which reads the one before; hashes are 0 unless told.
struct Chain {
  explicit Chain(SyntheticTrace& into, const std::vector<std::string>& names = {"linear", "relu", "linear"}) : trace(into) {
    tensors.push_back(trace.add_tensor("", "source", Phase::data, Role::input, DType::f32));
    for (const std::string& name : names) {
      tensors.push_back(trace.add_tensor(fmt::format("m{}", tensors.size()), name, Phase::forward, Role::activation, DType::f32));
      trace.sink().add_edge({0, static_cast<uint32_t>(tensors.size() - 1), 0, static_cast<uint32_t>(tensors.size() - 2), 0});
    }
  }
  void step(const std::map<size_t, uint64_t>& hashes = {}) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto found = hashes.find(i);
      trace.sink().add_bits({trace.step(), 0, 0, tensors[i], found == hashes.end() ? 0 : found->second});
    }
    trace.end_step();
  }
  SyntheticTrace& trace;
  std::vector<uint32_t> tensors;
};

TEST(FirstDifference, IsTheFirstInOrderWithItsInputsEqual) {
  SyntheticTrace a, b;
  Chain of_a(a), of_b(b);
  of_a.step();
  of_b.step();
  of_a.step({{2, 5}, {3, 5}});
  of_b.step({{2, 6}, {3, 6}});
  const Snapshot first = a.read(), second = b.read();
  const ComparedBits bits = compare(first, second);
  ASSERT_TRUE(bits.first.has_value());
  EXPECT_EQ(bits.first->step, 1u);
  EXPECT_EQ(bits.first->tensor_b, of_b.tensors[2]);
  EXPECT_EQ(bits.outputs, 6u);
  EXPECT_EQ(bits.first->kind, Kind::computed);
  EXPECT_EQ(bits.first->inputs, 1u);
  EXPECT_TRUE(bits.first->has_equal_inputs());
  EXPECT_TRUE(bits.first->changes.empty());
  EXPECT_EQ(bits.first->grown.size(), 2u);
  EXPECT_FALSE(bits.first->is_behind_gap);
  EXPECT_FALSE(compare(first, first).first.has_value());
  EXPECT_EQ(compare(first, first).outputs, 8u);
}

// Rank 1 is given other data; what rank 0 gets of it comes later in the step.
TEST(FirstDifference, OfSeveralRanksIsWhereItCameFrom) {
  RankedTraces a(2), b(2);
  for (RankedTraces* run : {&a, &b}) {
    const uint64_t other = run == &b;
    for (size_t rank = 0; rank < 2; ++rank) {
      Chain chain((*run)[rank]);
      chain.step();
      chain.step(rank == 0 ? std::map<size_t, uint64_t>{{3, other}}
                           : std::map<size_t, uint64_t>{{0, other}, {1, other}, {2, other}, {3, other}});
    }
  }
  const ComparedBits bits = compare(Snapshot("a", a.close()), Snapshot("b", b.close()));
  ASSERT_TRUE(bits.first.has_value());
  EXPECT_EQ(bits.first->rank_b, 1);
  EXPECT_EQ(bits.first->step, 1u);
  EXPECT_EQ(bits.first->kind, Kind::given);
  EXPECT_EQ(bits.outputs, 8u);  // of both in step 0
}

// The weight that a product reads was written in a step that one run did not record: it is not known to be equal, though it was
// before.
TEST(FirstDifference, BehindAGapNothingIsKnownOfWhatWasReadBefore) {
  for (const bool has_gap : {false, true}) {
    SyntheticTrace a, b;
    for (SyntheticTrace* trace : {&a, &b}) {
      const uint32_t input = trace->add_tensor("", "source", Phase::data, Role::input, DType::f32),
                     result = trace->add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f32),
                     weight = trace->add_tensor("fc", "sgd_update", Phase::optimizer, Role::weight, DType::f32, "fc.weight");
      trace->sink().add_edge({0, 1, 0, 0, 0});
      trace->sink().add_edge({0, 1, 1, 2, 0});
      for (uint64_t step = 0; step < 3; ++step) {
        const bool is_told = !(has_gap && step == 1 && trace == &a);
        for (const uint32_t tensor : {input, result, weight})
          if (is_told) trace->sink().add_bits({step, 0, 0, tensor, step == 2 && tensor == result && trace == &b ? 1u : 0u});
        trace->end_step();
      }
    }
    const ComparedBits bits = compare(a.read(), b.read());
    ASSERT_TRUE(bits.first.has_value());
    EXPECT_EQ(bits.first->step, 2u);
    EXPECT_EQ(bits.first->inputs, 2u);
    EXPECT_EQ(bits.first->is_behind_gap, has_gap);
    EXPECT_EQ(bits.first->equal_inputs, has_gap ? 1u : 2u);  // the input of this step, and the weight
  }
}

// An op whose cast reads itself, as only a broken producer writes it.
TEST(FirstDifference, ACastThatReadsItselfEnds) {
  SyntheticTrace a, b;
  for (SyntheticTrace* trace : {&a, &b}) {
    Chain chain(*trace, {"cast", "linear"});
    trace->sink().add_edge({0, 1, 0, 1, 0});
    chain.step({{2, trace == &b}});
  }
  const ComparedBits bits = compare(a.read(), b.read());
  ASSERT_TRUE(bits.first.has_value());
  EXPECT_EQ(bits.first->tensor_b, 2u);
}

TEST(FirstDifference, CastsOfOneRunAreToldByWhatReadsThem) {
  SyntheticTrace a, b;
  Chain of_a(a, {"linear"});
  of_a.step({{1, 1}});
  const uint32_t input = b.add_tensor("", "source", Phase::data, Role::input, DType::f32);
  OpInfo cast;
  cast.id = 100;
  cast.name = "cast";
  TensorInfo narrow;
  narrow.dtype = DType::f16;
  narrow.shape = {1};
  OpInfo linear;
  linear.id = 2;
  linear.name = "linear";
  linear.module = "m1";
  TensorInfo result;
  result.shape = {1};
  const uint32_t between = b.add_output(cast, narrow), last = b.add_output(linear, result);
  b.sink().add_edge({0, 1, 0, 0, 0});
  b.sink().add_edge({0, 2, 0, 1, 0});
  for (const auto& [tensor, hash] : {std::pair(input, 0), {between, 9}, {last, 2}})
    b.sink().add_bits({0, 0, 0, tensor, static_cast<uint64_t>(hash)});
  b.end_step();
  const ComparedBits bits = compare(a.read(), b.read());
  ASSERT_TRUE(bits.first.has_value());
  EXPECT_EQ(bits.first->kind, Kind::computed);
  EXPECT_EQ(bits.first->tensor_b, last);
  EXPECT_FALSE(bits.first->has_equal_inputs());
  ASSERT_EQ(bits.first->changes.size(), 1u);
  EXPECT_EQ(bits.first->changes[0].what, What::type_of_input);
  EXPECT_EQ(bits.first->changes[0].b, "f16");
}

TensorNorms norms_of(const std::vector<float>& values) {
  TensorNorms norms;
  norms.elements = static_cast<double>(values.size());
  double squares = 0;
  for (const float value : values) {
    squares += double{value} * value;
    norms.sum += value;
    norms.largest = std::max(norms.largest, std::fabs(double{value}));
  }
  norms.norm = norms.most = std::sqrt(squares);
  return norms;
}
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(squares);
}

// Products of matrices whose terms cancel, added up from the front and from the back: each has its own rounding errors, and the
// bound holds for their difference, which is larger than one rounding of the result.
TEST(RoundingBound, HoldsForSumsInOtherOrders) {
  std::mt19937 random(3);
  for (const int64_t k : {3, 64, 700}) {
    constexpr int64_t kRows = 8, kColumns = 9;
    const auto draw = [&](int64_t n) {
      std::vector<float> values;
      for (const double value : lognormal(random, 0, 4, static_cast<int>(n))) values.push_back(static_cast<float>(value));
      return values;
    };
    const std::vector<float> x = draw(kRows * k), weight = draw(kColumns * k);
    std::vector<float> forwards, backwards, sums, sums_back;
    for (int64_t row = 0; row < kRows; ++row) {
      float sum = 0, back = 0;
      for (int64_t i = 0; i < k; ++i) {
        sum += x[static_cast<size_t>(row * k + i)];
        back += x[static_cast<size_t>(row * k + k - 1 - i)];
      }
      sums.push_back(sum);
      sums_back.push_back(back);
      for (int64_t column = 0; column < kColumns; ++column) {
        float up = 0, down = 0;
        for (int64_t i = 0; i < k; ++i) {
          const auto term = [&](int64_t at) {
            return x[static_cast<size_t>(row * k + at)] * weight[static_cast<size_t>(column * k + at)];
          };
          up += term(i);
          down += term(k - 1 - i);
        }
        forwards.push_back(up);
        backwards.push_back(down);
      }
    }
    OpInfo op;
    op.function = OpFunction::linear;
    op.product = {kRows, kColumns, k, 1, 1, 8};
    const std::vector<std::optional<TensorNorms>> inputs{norms_of(x), norms_of(weight)};
    const std::optional<double> bound = rounding_bound(op, TensorInfo(), norms_of(forwards), inputs);
    ASSERT_TRUE(bound.has_value());
    EXPECT_LE(distance(forwards, backwards), *bound) << k;
    EXPECT_LE(norms_of(forwards).least_distance(norms_of(backwards)), distance(forwards, backwards)) << k;
    op.function = OpFunction::sum;
    op.product.clear();
    const std::optional<double> of_sum = rounding_bound(op, TensorInfo(), norms_of(sums), {inputs.data(), 1});
    ASSERT_TRUE(of_sum.has_value());
    EXPECT_LE(distance(sums, sums_back), *of_sum) << k;
  }
}

// Terms of one sign, whose sum errs in one direction: naively added up the error is a fiftieth of the bound, and far above one
// rounding.
TEST(RoundingBound, IsNotFarAboveWhatSumsOfOneSignErrBy) {
  constexpr int64_t kTerms = 100'000;
  float naive = 0;
  for (int64_t i = 0; i < kTerms; ++i) naive += 0.1F;
  const std::vector<float> terms(kTerms, 0.1F), ones(kTerms, 1.0F), exact{static_cast<float>(double{0.1F} * kTerms)}, sum{naive};
  OpInfo op;
  op.function = OpFunction::linear;
  op.product = {1, 1, kTerms, 1, 1, 8};
  const std::vector<std::optional<TensorNorms>> inputs{norms_of(terms), norms_of(ones)};
  const double off = distance(sum, exact);
  EXPECT_GT(off, 100 * 0x1p-24 * exact[0]);
  for (const OpFunction function : {OpFunction::linear, OpFunction::sum}) {
    op.function = function;
    const std::optional<double> bound =
        rounding_bound(op, TensorInfo(), norms_of(sum), {inputs.data(), function == OpFunction::sum ? size_t{1} : size_t{2}});
    ASSERT_TRUE(bound.has_value());
    EXPECT_LE(off, *bound);
    EXPECT_LE(*bound, 200 * off);
  }
}

// Where an op's attributes or roundings say that more happens, or an input is not known, there is none.
TEST(RoundingBound, IsNotGivenWhereItWouldBeAGuess) {
  const std::optional<TensorNorms> some = TensorNorms{6, 1, 1, 1, 1};
  const std::vector<std::optional<TensorNorms>> two{some, some}, unknown{some, std::nullopt};
  OpInfo op;
  op.function = OpFunction::linear;
  op.product = {2, 3, 3, 1, 1, 8};
  EXPECT_TRUE(rounding_bound(op, TensorInfo(), *some, two).has_value());
  EXPECT_FALSE(rounding_bound(op, TensorInfo(), *some, unknown).has_value());
  EXPECT_FALSE(rounding_bound(op, TensorInfo(), TensorNorms{7, 1, 1, 1, 1}, two).has_value());
  TensorInfo tensor;
  tensor.rounding = RoundingMode::toward_zero;
  EXPECT_FALSE(rounding_bound(op, tensor, *some, two).has_value());
  tensor = {};
  tensor.dtype = DType::f64;
  EXPECT_FALSE(rounding_bound(op, tensor, *some, two).has_value());
  op.function = OpFunction::add;
  EXPECT_TRUE(rounding_bound(op, TensorInfo(), *some, two).has_value());
  op.attributes = "alpha=-3";
  EXPECT_FALSE(rounding_bound(op, TensorInfo(), *some, two).has_value());
  op.attributes.clear();
  op.function = OpFunction::sum;
  EXPECT_FALSE(rounding_bound(op, TensorInfo(), *some, {two.data(), 1}).has_value());  // of as many elements: sums up to each
  op.function = OpFunction::exp;
  EXPECT_FALSE(rounding_bound(op, TensorInfo(), *some, {two.data(), 1}).has_value());
}

}  // namespace
}  // namespace ulpscope
