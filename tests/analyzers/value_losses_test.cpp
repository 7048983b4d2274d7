// Findings on what casts and additions lose: what is told, and what is not, by what reads a result.
#include <gtest/gtest.h>

#include <map>

#include "report_access.h"
#include "synthetic_trace.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
#include "ulpscope/trace/measure_names.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::analyzers_test {
namespace {

using Measures = std::map<std::string_view, double>;

// One op of a forward pass, and which of those before it, by their numbers, it reads.
struct Made {
  OpFunction function = OpFunction::other;
  std::vector<uint32_t> reads = {};
  std::string attributes = {};
  Role role = Role::activation;
  std::string name = {};  // "": the function's
  Measures measures = {};
};

Report report_of(const std::vector<Made>& ops, int steps = 4, DType dtype = DType::bf16) {
  SyntheticTrace trace;
  std::vector<uint32_t> tensors;
  for (const Made& made : ops) {
    OpInfo op;
    op.id = tensors.size() + 1;
    op.name = made.name.empty() ? name_of(made.function) : made.name;
    op.module = "m" + std::to_string(tensors.size());
    op.phase = Phase::forward;
    op.function = made.function;
    op.kind = kind_of(made.function);
    op.attributes = made.attributes;
    TensorInfo tensor;
    tensor.role = made.role;
    tensor.dtype = dtype;
    tensor.shape = {4, 4};
    tensors.push_back(trace.add_output(op, tensor));
    for (uint32_t input = 0; input < made.reads.size(); ++input)
      trace.sink().add_edge({0, static_cast<uint32_t>(tensors.size() - 1), input, made.reads[input], 0});
  }
  for (int step = 0; step < steps; ++step) {
    for (size_t i = 0; i < ops.size(); ++i) {
      trace.add(tensors[i], make_row({1.0}, dtype));
      for (const auto& [name, value] : ops[i].measures)
        trace.sink().add_measure({static_cast<uint64_t>(step), 0, 0, tensors[i], std::string(name), value});
    }
    trace.end_step();
  }
  return analyze_all(trace.read());
}

bool warns(const Report& report, const std::string& code) {
  const Finding* const found = find_finding(report, code);
  return found != nullptr && found->severity >= Severity::warning;
}

// data -> square and mean -> sub, which cancels down to `left` -> `between` -> a root -> the loss.
Report cancelled(const std::vector<Made>& between, OpFunction root = OpFunction::rsqrt, bool reaches_loss = true,
                 double left = 0.25) {
  std::vector<Made> ops{{OpFunction::source, {}, "", Role::input},
                        {OpFunction::mean, {0}},
                        {OpFunction::mul, {1, 1}},
                        {OpFunction::sub, {1, 2}, "", Role::activation, "", {{kCancelled, 0.5}, {kCancelledSize, left}}}};
  for (Made made : between) {
    if (made.reads.empty()) made.reads = {static_cast<uint32_t>(ops.size() - 1)};
    ops.push_back(made);
  }
  const auto last = static_cast<uint32_t>(ops.size() - 1);
  ops.push_back({root, root == OpFunction::div ? std::vector<uint32_t>{0, last} : std::vector<uint32_t>{last}});
  ops.push_back({OpFunction::mse, {reaches_loss ? last + 1 : 0}, "", Role::loss});
  return report_of(ops);
}

TEST(ValueLosses, ACancellationIsToldWhereItsRelativeErrorMatters) {
  for (const OpFunction root : {OpFunction::sqrt, OpFunction::rsqrt, OpFunction::log, OpFunction::reciprocal, OpFunction::div})
    EXPECT_TRUE(warns(cancelled({}, root), "precision.cancellation")) << name_of(root);
  for (const OpFunction other : {OpFunction::exp, OpFunction::mul, OpFunction::tanh, OpFunction::abs})
    EXPECT_FALSE(warns(cancelled({}, other), "precision.cancellation")) << name_of(other);
  EXPECT_FALSE(warns(cancelled({}, OpFunction::rsqrt, false), "precision.cancellation")) << "no loss depends on it";
}

TEST(ValueLosses, ACancellationIsFollowedThroughWhatHandsItOn) {
  const std::vector<std::vector<Made>> go_on{{{OpFunction::cast}},
                                             {{OpFunction::relu}},
                                             {{OpFunction::add, {}, "other=1e-05"}},
                                             {{OpFunction::clamp, {}, "min=1e-05"}},
                                             {{OpFunction::div, {}, "other=3"}},
                                             {{OpFunction::cast}, {OpFunction::abs}, {OpFunction::add, {}, "other=0.125"}}};
  for (const std::vector<Made>& between : go_on)
    EXPECT_TRUE(warns(cancelled(between), "precision.cancellation")) << name_of(between.front().function);
  // A constant as large as what is left makes the noise a small part; another tensor may.
  const std::vector<std::vector<Made>> end_it{
      {{OpFunction::add, {}, "other=1"}}, {{OpFunction::clamp, {}, "min=0.25"}}, {{OpFunction::clamp, {}, "min=varies"}},
      {{OpFunction::add, {3, 0}}},        {{OpFunction::mul, {3, 0}}},           {{OpFunction::mean}}};
  for (const std::vector<Made>& between : end_it)
    EXPECT_FALSE(warns(cancelled(between), "precision.cancellation")) << name_of(between.front().function);
}

// A logarithm that is only printed does not hide the root that the loss depends on.
TEST(ValueLosses, AReaderThatNoLossDependsOnHidesNone) {
  const Report report = report_of({{OpFunction::source, {}, "", Role::input},
                                   {OpFunction::mean, {0}},
                                   {OpFunction::sub, {0, 1}, "", Role::activation, "", {{kCancelled, 1}, {kCancelledSize, 1}}},
                                   {OpFunction::log, {2}},
                                   {OpFunction::sqrt, {2}},
                                   {OpFunction::mse, {4}, "", Role::loss}});
  const Finding* const found = find_finding(report, "precision.cancellation");
  ASSERT_NE(found, nullptr);
  EXPECT_NE(found->title.text().find("sqrt takes the root"), std::string::npos) << found->title.text();
}

Report added(const Measures& measures, bool are_of_one_source = false) {
  return report_of({{OpFunction::source, {}, "", Role::input},
                    {OpFunction::linear, {0}},
                    {OpFunction::linear, {1}},
                    {OpFunction::tanh, {are_of_one_source ? 1u : 2u}},
                    {OpFunction::add, {1, 3}, "", Role::activation, "", measures},
                    {OpFunction::mse, {4}, "", Role::loss}});
}

TEST(ValueLosses, AnAddendIsLostFromHalfOnWhereItIsSomething) {
  EXPECT_TRUE(warns(added({{kAddendLost, 0.5}, {kAddendSize, 0x1p-11}}), "precision.addend_lost"));
  for (const Measures& measures :
       {Measures{{kAddendLost, 0.49}, {kAddendSize, 0.01}}, {{kAddendLost, 1}, {kAddendSize, 0x1p-12}}}) {
    const Report report = added(measures);
    ASSERT_NE(find_finding(report, "precision.addend_lost"), nullptr);
    EXPECT_FALSE(warns(report, "precision.addend_lost"));
  }
  EXPECT_EQ(find_finding(added({{kAddendLost, 0.09}, {kAddendSize, 0.01}}), "precision.addend_lost"), nullptr);
  EXPECT_EQ(find_finding(added({{kAddendLost, 1}, {kAddendSize, 0.01}}, true), "precision.addend_lost"), nullptr)
      << "x + tanh(x) is a function of x";
}

TEST(ValueLosses, WholeNumbersMatterAsAngles) {
  const auto positions = [](std::vector<Made> between) {
    std::vector<Made> ops{
        {OpFunction::source, {}, "", Role::input},
        {OpFunction::source, {}, "", Role::weight},
        {OpFunction::cast, {0}, "", Role::activation, "", {{kWholeNumbersRounded, 0.4}, {kNeighboursMerged, 0.4}}}};
    for (Made made : between) {
      made.reads.insert(made.reads.begin(), static_cast<uint32_t>(ops.size() - 1));
      ops.push_back(made);
    }
    ops.push_back({OpFunction::cos, {static_cast<uint32_t>(ops.size() - 1)}});
    return report_of(ops);
  };
  EXPECT_TRUE(warns(positions({}), "precision.values_merged"));
  EXPECT_TRUE(warns(positions({{OpFunction::matmul, {0}}}), "precision.values_merged"));
  EXPECT_TRUE(warns(positions({{OpFunction::mul, {0}}, {OpFunction::cat}}), "precision.values_merged"));
  // Weights learn what they make of numbers, and other functions are no multiples.
  for (const Made& made : {Made{OpFunction::linear, {1}}, Made{OpFunction::exp}}) {
    const Report report = positions({made});
    ASSERT_NE(find_finding(report, "precision.values_merged"), nullptr);
    EXPECT_FALSE(warns(report, "precision.values_merged")) << name_of(made.function);
  }
}

TEST(ValueLosses, DataThatRoundingHidesIsToldWithAPlaceWhereItHasOne) {
  const auto data = [](const Measures& measures) {
    return report_of({{OpFunction::source, {}, "", Role::input}, {OpFunction::cast, {0}, "", Role::activation, "", measures}});
  };
  const Report report = data({{kFeaturesMerged, 0.25}, {kMergedFeature, 7}});
  EXPECT_TRUE(warns(report, "precision.values_merged"));
  EXPECT_NE(find_finding(report, "precision.values_merged")->title.text().find("One is element 7 of a sample."), std::string::npos);
  // A producer of another kind may measure one without the other, or what is none.
  for (const Measures& measures : {Measures{{kFeaturesMerged, 0.05}}, {{kFeaturesMerged, 0.05}, {kMergedFeature, 1e300}}}) {
    const Report without = data(measures);
    ASSERT_NE(find_finding(without, "precision.values_merged"), nullptr);
    EXPECT_FALSE(warns(without, "precision.values_merged"));
    EXPECT_EQ(find_finding(without, "precision.values_merged")->title.text().find("element"), std::string::npos);
  }
}

// The median is of the last half: what only the first steps lost is not told.
TEST(ValueLosses, TheLastHalfOfTheStepsCounts) {
  for (const bool is_lost_late : {false, true}) {
    SyntheticTrace trace;
    TensorInfo tensor;
    tensor.dtype = DType::bf16;
    tensor.shape = {4, 4};
    const auto op = [](uint64_t id, OpFunction function) {
      OpInfo info;
      info.id = id;
      info.name = name_of(function);
      info.function = function;
      info.kind = kind_of(function);
      return info;
    };
    trace.add_output(op(1, OpFunction::linear), tensor);
    trace.add_output(op(2, OpFunction::linear), tensor);
    const uint32_t sum = trace.add_output(op(3, OpFunction::add), tensor);
    for (const uint32_t input : {0u, 1u}) trace.sink().add_edge({0, 2, input, input, 0});
    for (uint64_t step = 0; step < 10; ++step) {
      trace.add(sum, make_row({1.0}, DType::bf16));
      trace.sink().add_measure({step, 0, 0, sum, std::string(kAddendLost), (step < 5) != is_lost_late ? 1.0 : 0.0});
      trace.sink().add_measure({step, 0, 0, sum, std::string(kAddendSize), 0.01});
      trace.end_step();
    }
    EXPECT_EQ(warns(analyze_all(trace.read()), "precision.addend_lost"), is_lost_late);
  }
}

}  // namespace
}  // namespace ulpscope::analyzers_test
