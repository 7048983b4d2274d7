// Calls that are told piece by piece, against the same run told whole, and against plain computations.
#include "ulpscope/recorder/call_recorder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <thread>
#include <vector>

#include "tests/recorder/memory_sink.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/bit_hash.h"
#include "ulpscope/trace/columns.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

HostTensor host(const std::vector<float>& values, std::span<const int64_t> shape) {
  return {.data = values.data(), .dtype = DType::f32, .shape = shape};
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
    return error.what();
  }
  return "taken";
}

class Calls : public testing::Test {
 protected:
  BegunCall call(std::string_view name, std::string_view module = "", std::span<const ValueKey> inputs = {}) {
    BegunCall begun;
    begun.name = recorder_.intern(name);
    begun.module = recorder_.intern(module);
    begun.function = function_named(name);
    begun.inputs = inputs;
    return begun;
  }
  // One op with one output.
  CallToken record(const BegunCall& begun, const std::vector<float>& values, const CallLabel& label = {}) {
    const CallToken token = recorder_.begin(begun);
    const int64_t shape[] = {static_cast<int64_t>(values.size())};
    recorder_.add_output(token, 0, host(values, shape), label, nullptr);
    recorder_.end(token);
    return token;
  }

  MemorySink sink_;
  CallRecorder recorder_{sink_, {}};
};

// Three steps of three ops are told to a Recorder whole and to a CallRecorder in pieces, nested, the label last.
TEST(CallRecorder, GivesTheRowsOfARecorder) {
  RecorderOptions options;
  options.level = RecordLevel::full;
  options.bits = true;
  struct Op {
    std::string_view name;
    OpFunction function;
    uint64_t id;
    std::vector<ValueKey> inputs;
    Role role;
    std::vector<float> values;
  };
  std::vector<std::vector<Op>> steps;
  for (int step = 0; step < 3; ++step) {
    std::vector<float> x(1000), y(1000), g(1000);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = std::ldexp(static_cast<float>(i) - 500, static_cast<int>(i % 40) - 30 + step);
      y[i] = x[i] * x[i];
      g[i] = 2 * x[i];
    }
    if (step == 2) y[7] = INFINITY;
    steps.push_back({{"source", OpFunction::source, 11, {}, Role::input, x},
                     {"mul", OpFunction::mul, 22, {{11, 0}, {11, 0}}, Role::activation, y},
                     {"mul_backward", OpFunction::mul, 33, {{22, 0}}, Role::activation_gradient, g}});
  }
  const int64_t shape[] = {10, 100};
  MemorySink whole, pieces;
  {
    Recorder recorder(whole, options);
    for (size_t step = 0; step < steps.size(); ++step) {
      recorder.begin_step(step);
      for (const Op& op : steps[step]) {
        OutputDescription output;
        output.view = folded(host(op.values, shape));
        output.role = op.role;
        OpDescription description;
        description.name = op.name;
        description.phase = Phase::backward;
        description.id = op.id;
        description.function = op.function;
        description.kind = kind_of(op.function);
        description.inputs = op.inputs;
        description.outputs = {&output, 1};
        for (OutputRecord* record : recorder.before(description)) {
          collect_statistics(output.view, *record);
          collect_samples(output.view, *record);
          record->bits = {record->bits.wanted, true, reference_bit_hash(output.view)};
        }
        recorder.after();
      }
      recorder.end_step({.loss = 1.5, .loss_known = true});
    }
  }
  {
    CallRecorder recorder(pieces, options);
    for (size_t step = 0; step < steps.size(); ++step) {
      recorder.begin_step(step);
      std::vector<CallToken> tokens;
      for (const Op& op : steps[step]) {
        BegunCall begun;
        begun.name = recorder.intern(op.name);
        begun.phase = Phase::backward;
        begun.function = op.function;
        begun.id = op.id;
        begun.inputs = op.inputs;
        tokens.push_back(recorder.begin(begun));
      }
      for (size_t i = tokens.size(); i-- > 0;) {
        recorder.add_output(tokens[i], 0, host(steps[step][i].values, shape), {}, nullptr);
        recorder.end(tokens[i]);
        recorder.set_label(tokens[i], 0, {.role = steps[step][i].role});
      }
      recorder.end_step({.loss = 1.5, .loss_known = true});
    }
  }
  EXPECT_EQ(whole.rows.size(), 9u);
  EXPECT_EQ(text_of(whole.ops), text_of(pieces.ops));
  EXPECT_EQ(text_of(whole.tensors), text_of(pieces.tensors));
  EXPECT_EQ(text_of(whole.edges), text_of(pieces.edges));
  EXPECT_EQ(text_of(whole.rows), text_of(pieces.rows));
  EXPECT_EQ(text_of(whole.samples), text_of(pieces.samples));
  EXPECT_EQ(whole.bits.size(), 9u);
  EXPECT_EQ(text_of(whole.bits), text_of(pieces.bits));
  EXPECT_EQ(text_of(whole.events), text_of(pieces.events));
  EXPECT_EQ(text_of(whole.steps), text_of(pieces.steps));
}

TEST_F(Calls, AnIdWhoseTypeChangesIsSeveralTensors) {
  const std::vector<float> wide{1, 2};
  const std::vector<uint16_t> narrow{0x3C00, 0x7C00};
  const int64_t shape[] = {2};
  for (uint64_t step = 0; step < 3; ++step) {
    recorder_.begin_step(step);
    const CallToken token = recorder_.begin(call("mul", "fc"));
    const HostTensor as_half{.data = narrow.data(), .dtype = DType::f16, .shape = shape};
    recorder_.add_output(token, 0, step == 1 ? as_half : host(wide, shape), {}, nullptr);
    recorder_.end(token);
    recorder_.end_step({});
  }
  ASSERT_EQ(sink_.ops.size(), 1u);
  ASSERT_EQ(sink_.tensors.size(), 2u);
  EXPECT_EQ(sink_.tensors[0].dtype, DType::f32);
  EXPECT_EQ(sink_.tensors[1].dtype, DType::f16);
  ASSERT_EQ(sink_.rows.size(), 3u);
  EXPECT_EQ(sink_.rows[0].tensor, 0u);
  EXPECT_EQ(sink_.rows[1].tensor, 1u);
  EXPECT_EQ(sink_.rows[1].statistics.positive_infinity, 1u);
  EXPECT_EQ(sink_.rows[2].tensor, 0u);
  EXPECT_EQ(sink_.rows[2].statistics.positive_infinity, 0u);
}

// More outputs in a later call, and another type of the first: each (slot, type) is one tensor, whatever came first.
TEST_F(Calls, OutputsThatComeLaterKeepTheTensorsThatWere) {
  const std::vector<float> f(2, 1.0f);
  const std::vector<double> d(2, 1.0);
  const int64_t shape[] = {2};
  uint64_t step = 0;
  const auto run = [&](std::vector<DType> types) {
    recorder_.begin_step(step++);
    const CallToken token = recorder_.begin(call("split"));
    for (uint32_t slot = 0; slot < types.size(); ++slot)
      recorder_.add_output(token, slot,
                           {types[slot] == DType::f32 ? static_cast<const void*>(f.data()) : d.data(), types[slot], shape, {}}, {},
                           nullptr);
    recorder_.end(token);
    recorder_.end_step({});
  };
  run({DType::f32});
  run({DType::f64});
  run({DType::f32, DType::f32});
  run({DType::f64});
  run({DType::f64, DType::f64});
  std::vector<std::string> tensors, rows;
  for (const TensorInfo& tensor : sink_.tensors) tensors.push_back(fmt::format("{} {}", tensor.slot, info(tensor.dtype).name));
  EXPECT_THAT(tensors, ElementsAre("0 f32", "0 f64", "1 f32", "1 f64"));
  for (const TensorRow& row : sink_.rows) rows.push_back(tensors[row.tensor]);
  EXPECT_THAT(rows, ElementsAre("0 f32", "0 f64", "0 f32", "1 f32", "0 f64", "0 f64", "1 f64"));
}

// A loop that gives a step up before the backward pass tells no loss of it; the op that made the others has it.
TEST_F(Calls, ALossThatIsNotFiniteAndWasNotToldIsThatOfTheLossesOp) {
  const auto loss_of = [&](uint64_t step, float value, bool is_told, Phase phase = Phase::forward) {
    recorder_.begin_step(step);
    recorder_.begin_pass(phase, 0, 0);
    record(call("other"), {NAN});
    record(call("mean"), {value}, is_told ? CallLabel{.role = Role::loss} : CallLabel{});
    recorder_.end_step(is_told ? StepRow{.loss = value, .loss_known = true} : StepRow{});
    return sink_.steps.back();
  };
  EXPECT_FALSE(loss_of(0, INFINITY, false).loss_known) << "no op is known to make losses yet";
  EXPECT_EQ(loss_of(1, 2, true).loss, 2);
  EXPECT_FALSE(loss_of(2, 3, false).loss_known) << "a finite one may belong to anything";
  EXPECT_FALSE(loss_of(3, INFINITY, false, Phase::evaluation).loss_known);
  EXPECT_EQ(loss_of(4, -INFINITY, false).loss, -INFINITY);
  const StepRow broken = loss_of(5, NAN, false);
  EXPECT_TRUE(broken.loss_known && std::isnan(broken.loss));
}

TEST_F(Calls, AnOpWhoseInputsWereNotToldIsNoOrigin) {
  sink_.keep_rows = true;
  recorder_.begin_step(0);
  BegunCall begun = call("div", "unscale");
  begun.inputs_told = false;
  record(begun, {1.0f, NAN});
  recorder_.end_step({});
  ASSERT_EQ(sink_.ops.size(), 1u);
  EXPECT_FALSE(sink_.ops[0].inputs_told);
  // A recorder that is asked where captures belong finds none.
  MemorySink sink;
  Recorder recorder(sink, {});
  const OutputDescription output = float_output(Role::activation);
  for (const bool told : {true, false}) {
    recorder.begin_step(told ? 0 : 1);
    OpDescription op;
    op.name = "div";
    op.id = told ? 1 : 2;
    op.inputs_told = told;
    op.outputs = {&output, 1};
    for (OutputRecord* each : recorder.before(op)) fill(*each, {.nan = 1});
    EXPECT_EQ(recorder.after().has_value(), told);
    recorder.end_step({});
  }
}

TEST_F(Calls, AFusedOptimizerHasMoreThan256Outputs) {
  constexpr uint32_t kMany = 800;
  recorder_.begin_step(0);
  const CallToken before = recorder_.begin(call("split"));
  const std::vector<float> value{1};
  const int64_t shape[] = {1};
  for (uint32_t i = 0; i < kMany; ++i) recorder_.add_output(before, i, host(value, shape), {}, nullptr);
  recorder_.end(before);
  std::vector<ValueKey> inputs;
  for (uint32_t i = 0; i < kMany; ++i) inputs.push_back({recorder_.id_of(before), i});
  const CallToken update = recorder_.begin(call("adam_update", "", inputs));
  for (uint32_t i = 0; i < kMany; ++i) recorder_.add_output(update, i, host(value, shape), {.role = Role::weight}, nullptr);
  recorder_.end(update);
  recorder_.end_step({});
  ASSERT_EQ(sink_.tensors.size(), 2 * kMany);
  ASSERT_EQ(sink_.edges.size(), kMany);
  for (uint32_t i = 0; i < kMany; ++i) {
    EXPECT_EQ(sink_.tensors[kMany + i].slot, i);
    EXPECT_EQ(sink_.edges[i].input, i);
    EXPECT_EQ(sink_.edges[i].slot, i);
  }
}

TEST_F(Calls, TensorsOfAnyRankAreCounted) {
  // A transpose of 8 dimensions, of which it splits the memory in two.
  const std::vector<int64_t> shape{2, 1, 3, 2, 2, 1, 2, 2}, strides{1, 1, 16, 8, 4, 4, 2, 48};
  std::vector<float> values(96);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::ldexp(1.0f, static_cast<int>(i));
  recorder_.begin_step(0);
  const CallToken token = recorder_.begin(call("permute"));
  recorder_.add_output(token, 0, {.data = values.data(), .dtype = DType::f32, .shape = shape, .strides = strides}, {}, nullptr);
  recorder_.end(token);
  recorder_.end_step({});
  EXPECT_EQ(sink_.tensors[0].shape, shape);
  ASSERT_EQ(sink_.rows.size(), 1u);
  // The elements at the even places of two blocks of 48, from the strides by hand.
  double sum = 0;
  uint64_t count = 0;
  std::array<int64_t, 8> at{};
  for (bool more = true; more; ++count) {
    int64_t offset = 0;
    for (size_t k = 0; k < 8; ++k) offset += at[k] * strides[k];
    sum += values[static_cast<size_t>(offset)];
    more = false;
    for (size_t k = 8; k-- > 0 && !more;) {
      more = ++at[k] < shape[k];
      if (!more) at[k] = 0;
    }
  }
  EXPECT_EQ(sink_.rows[0].statistics.count, count);
  EXPECT_EQ(sink_.rows[0].statistics.sum, sum);  // powers of two: exact
  // Seven that do not lie behind each other.
  const std::vector<int64_t> two(7, 2), apart{1, 3, 9, 27, 81, 243, 729};
  EXPECT_THAT(refusal([&] { folded({.data = values.data(), .dtype = DType::f32, .shape = two, .strides = apart}); }),
              HasSubstr("7 dimensions that do not lie behind each other"));
}

TEST_F(Calls, AnOpThatWasRefusedIsNotCounted) {
  std::vector<uint64_t> ids;
  for (const bool lies : {false, true}) {
    recorder_.begin_step(lies ? 1 : 0);
    if (lies) {
      BegunCall other = call("mul", "fc");
      other.function = OpFunction::matmul;
      EXPECT_THAT(refusal([&] { recorder_.begin(other); }), HasSubstr("is that of op 'mul' in module 'fc'"));
    }
    for (int i = 0; i < 2; ++i) {
      uint64_t id = 0;
      recorder_.drop(recorder_.begin(call("mul", "fc"), &id));
      ids.push_back(id);
    }
    recorder_.end_step({});
  }
  EXPECT_EQ(ids[0], ids[2]);
  EXPECT_EQ(ids[1], ids[3]);
  EXPECT_NE(ids[0], ids[1]);
}

TEST_F(Calls, ThreadsAndNestedCallsAreNumberedWhereTheyBegin) {
  recorder_.begin_step(0);
  const CallToken outer = recorder_.begin(call("attention"));
  const CallToken inner = recorder_.begin(call("softmax"));
  const std::vector<float> value{1};
  const int64_t shape[] = {1};
  for (const CallToken token : {inner, outer}) {
    recorder_.add_output(token, 0, host(value, shape), {}, nullptr);
    recorder_.end(token);
  }
  constexpr int kThreads = 4, kCalls = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      const BegunCall begun = call("mul", fmt::format("thread{}", t));
      for (int i = 0; i < kCalls; ++i) record(begun, {static_cast<float>(t), static_cast<float>(i)});
    });
  for (std::thread& thread : threads) thread.join();
  recorder_.end_step({});
  ASSERT_EQ(sink_.rows.size(), 2u + kThreads * kCalls);
  EXPECT_EQ(sink_.ops[0].name, "attention");
  EXPECT_EQ(sink_.ops[1].name, "softmax");
  std::map<std::string, double> next;
  for (size_t i = 2; i < sink_.rows.size(); ++i) {
    EXPECT_EQ(sink_.rows[i].sequence, i);
    const std::string& module = sink_.ops[sink_.tensors[sink_.rows[i].tensor].op].module;
    EXPECT_EQ(sink_.rows[i].statistics.sum, module.back() - '0' + next[module]++) << module;
  }
}

TEST_F(Calls, WhatIsLearntLaterIsRecorded) {
  recorder_.begin_step(0);
  recorder_.begin_pass(Phase::forward, 0, 0);
  const CallToken forward = record(call("mul", "fc"), {2});
  recorder_.begin_pass(Phase::backward, 0, 0);
  BegunCall backward = call("mul", "fc");
  backward.forward_id = recorder_.id_of(forward);
  const CallToken gradient = record(backward, {3});
  recorder_.set_label(forward, 0, {.role = Role::loss});
  recorder_.set_label(gradient, 0, {.role = Role::activation_gradient, .scale = 1024});
  recorder_.set_gradient_of(gradient, 0, {recorder_.id_of(forward), 0}, 1);
  OutputRecord counted;
  counted.known = StatisticsLevel::health;
  counted.statistics.count = counted.statistics.nan = 1;
  recorder_.set_statistics(gradient, 0, counted);
  const int64_t one[] = {1};
  const float before = 1, after = 1, asked = 0x1p-30f, g = 2;
  const auto refused = [&](const UpdateCounts& update) {
    try {
      recorder_.set_update(forward, 0, update);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  UpdateCounts lie;
  lie.nonzero = lie.lost = 2;
  EXPECT_THAT(refused(lie), testing::HasSubstr("the update of output 0: nonzero is 2; expected at most 1, its elements"));
  lie.nonzero = 1;
  EXPECT_THAT(refused(lie), testing::HasSubstr("lost is 2; expected at most nonzero"));
  lie.lost = 0;
  lie.update_squares = -1;
  EXPECT_THAT(refused(lie), testing::HasSubstr("a sum of squares is below 0"));
  recorder_.set_update(forward, 0,
                       count_update({.learning_rate = 0.5,
                                     .before = {&before, DType::f32, one, {}},
                                     .after = {&after, DType::f32, one, {}},
                                     .gradient = HostTensor{&g, DType::f32, one, {}},
                                     .update = HostTensor{&asked, DType::f32, one, {}}}));
  const uint16_t sum = 0x4380, addend = 0x3f80, pair[] = {0, 0};  // BF16: 256 and 1, whose sum lies half-way to the next number
  const int64_t two[] = {2};
  const HostTensor a{&sum, DType::bf16, one, {}}, b{&addend, DType::bf16, one, {}}, other{pair, DType::bf16, two, {}};
  const CallToken added = recorder_.begin(call("add", "fc"));
  recorder_.add_output(added, 0, a, {}, nullptr);
  recorder_.end(added);
  recorder_.set_sum(added, 0, count_addition(a, b, 1, a));
  const auto fails = [](const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(fails([&] { count_addition(a, other, 1, a); }), testing::HasSubstr("the addend [2]; expected the same"));
  EXPECT_THAT(fails([&] { count_addition(a, b, 0, a); }), testing::HasSubstr("expected a finite factor, not 0"));
  EXPECT_THAT(fails([&] { recorder_.set_sum(forward, 0, {}); }), testing::HasSubstr("a sum of f32; expected f16 or bf16"));
  EXPECT_THAT(fails([&] { recorder_.set_sum(added, 0, {.elements = 2}); }), testing::HasSubstr("2 elements; expected at most 1"));
  EXPECT_THAT(fails([&] { recorder_.set_sum(added, 0, {.elements = 1, .addends = 2}); }), testing::HasSubstr("addends is 2"));
  recorder_.end_step({});
  ASSERT_EQ(sink_.tensors.size(), 3u);
  ASSERT_EQ(sink_.sums.size(), 1u);
  EXPECT_EQ(sink_.sums[0].tensor, 2u);
  EXPECT_EQ(sink_.sums[0].counts.absorbed, 1u);
  EXPECT_EQ(sink_.sums[0].counts.asked, 1);
  EXPECT_EQ(sink_.sums[0].counts.arrived, 0);
  EXPECT_EQ(sink_.tensors[0].role, Role::loss);
  EXPECT_EQ(sink_.ops[1].forward_id, sink_.ops[0].id);
  EXPECT_NE(sink_.ops[1].id, sink_.ops[0].id);
  EXPECT_EQ(sink_.tensors[1].gradient_of, sink_.ops[0].id);
  EXPECT_EQ(sink_.tensors[1].gradient_input, 1);
  ASSERT_EQ(sink_.rows.size(), 3u);
  EXPECT_EQ(sink_.rows[1].scale, 1024);
  EXPECT_EQ(sink_.rows[1].statistics.nan, 1u);
  ASSERT_EQ(sink_.parameters.size(), 1u);
  EXPECT_EQ(sink_.parameters[0].lost, 1u);
  EXPECT_EQ(sink_.parameters[0].learning_rate, 0.5);
  EXPECT_EQ(sink_.parameters[0].gradient_dot_update, 0x1p-29);
}

// An element that became infinite, with its operands: kept where it began, and not where what was read held one already.
TEST_F(Calls, TellHowAnElementCameAbout) {
  recorder_.begin_step(4);
  recorder_.begin_pass(Phase::forward, 0, 0);
  const int64_t shape[] = {2}, one[] = {1};
  const CallToken first = recorder_.begin(call("linear", "fc"));
  const ValueKey made{recorder_.id_of(first), 0};
  recorder_.add_output(first, 0, host({3e38f, 1}, shape), {}, nullptr);
  EXPECT_FALSE(recorder_.wants_capture(first, 0));
  recorder_.end(first);
  const ValueKey inputs[] = {made};
  const CallToken second = recorder_.begin(call("mul", "fc", inputs));
  recorder_.add_output(second, 0, host({INFINITY, 2}, shape), {}, nullptr);
  EXPECT_TRUE(recorder_.wants_capture(second, 0));
  const std::vector<ToldNode> nodes{
      {.shape = shape, .element = 0, .value = INFINITY, .terms = 0},
      {.parent = 0, .operand = 0, .made_by = made, .shape = shape, .element = 0, .value = double{3e38f}},
      {.parent = 0, .operand = 1, .shape = one, .element = 0, .value = 2, .overwritten = true}};
  recorder_.set_capture(second, 0, nodes);
  const auto refused = [&](size_t node, auto&& change) {
    std::vector<ToldNode> wrong = nodes;
    change(wrong[node]);
    return refusal([&] { recorder_.set_capture(second, 0, wrong); });
  };
  EXPECT_THAT(refused(1, [](ToldNode& node) { node.element = 2; }),
              HasSubstr("op 'mul' in module 'fc': the capture of output 0: node 1 is element 2 of the shape [2]"));
  EXPECT_THAT(refused(1, [](ToldNode& node) { node.parent = 1; }), HasSubstr("expected an input of a node before it"));
  EXPECT_THAT(refused(0, [](ToldNode& node) { node.operand = 0; }), HasSubstr("expected an input of a node before it, and -1"));
  EXPECT_THAT(refused(2, [](ToldNode& node) { node.operand = -1; }), HasSubstr("node 2 is operand -1 of node 0"));
  EXPECT_THAT(refused(2, [](ToldNode& node) { node.term = -2; }), HasSubstr("node 2 is term -2, of 0"));
  EXPECT_THAT(refused(0, [](ToldNode& node) { node.value = 1; }), HasSubstr("node 0 is 1; expected NaN or infinity"));
  EXPECT_THAT(refusal([&] { recorder_.set_capture(second, 0, {}); }), HasSubstr("0 nodes; expected 1 to 1024"));
  EXPECT_THAT(refusal([&] { recorder_.set_capture(second, 1, nodes); }), HasSubstr("output 1 was not told"));
  recorder_.end(second);
  const ValueKey spread[] = {{recorder_.id_of(second), 0}};
  const CallToken third = recorder_.begin(call("relu", "fc", spread));
  recorder_.add_output(third, 0, host({INFINITY, 2}, shape), {}, nullptr);
  EXPECT_FALSE(recorder_.wants_capture(third, 0));
  EXPECT_TRUE(recorder_.was_finite(first, 0));
  EXPECT_FALSE(recorder_.was_finite(second, 0));
  recorder_.set_capture(third, 0, std::span(nodes).first(1));
  recorder_.end(third);
  recorder_.end_step({});

  ASSERT_EQ(sink_.captures.size(), 3u) << "the third op is no origin";
  const uint32_t tensor = sink_.rows[1].tensor;
  for (const CaptureRow& row : sink_.captures) EXPECT_EQ(std::pair(row.step, row.tensor), std::pair(uint64_t{4}, tensor));
  EXPECT_EQ(sink_.captures[0].follow, CaptureFollow::followed);
  EXPECT_EQ(sink_.captures[0].made_by, tensor);
  EXPECT_EQ(sink_.captures[1].made_by, sink_.rows[0].tensor);
  EXPECT_EQ(sink_.captures[1].value, double{3e38f});
  EXPECT_EQ(sink_.captures[2].made_by, -1);
  EXPECT_TRUE(sink_.captures[2].overwritten);
  EXPECT_THAT(sink_.captures[2].shape, ElementsAre(1));
}

// The statistics of a cast are of what was cast.
TEST_F(Calls, TellThatACastOverflowed) {
  recorder_.begin_step(0);
  recorder_.begin_pass(Phase::forward, 0, 0);
  const int64_t shape[] = {2};
  const std::vector<float> wide{1e6f, 1};
  const std::vector<uint16_t> infinite{0x7C00, 0x3C00}, finite{0x3C00, 0x3C00};
  const auto is_finite = [&](const HostTensor& from, const std::vector<uint16_t>& narrow) {
    const HostTensor cast{narrow.data(), DType::f16, shape, {}};
    const OutputRecord record = count_cast(from, cast, 1.0);
    const CallToken token = recorder_.begin(call("cast"));
    recorder_.add_output(token, 0, cast, {}, &record);
    const bool was_finite = recorder_.was_finite(token, 0);
    recorder_.end(token);
    return was_finite;
  };
  EXPECT_FALSE(is_finite(host(wide, shape), infinite));
  EXPECT_TRUE(is_finite(host({1, 1}, shape), finite));
  recorder_.end_step({});
}

// A cast that overflowed counts the finite values it was given, and yet its stored output begins what its readers only carry on.
TEST_F(Calls, WantTheCaptureOfACastThatOverflowed) {
  recorder_.begin_step(0);
  recorder_.begin_pass(Phase::forward, 0, 0);
  const int64_t shape[] = {2};
  const std::vector<float> wide{1e6f, 1};
  const std::vector<uint16_t> infinite{0x7C00, 0x3C00};
  const HostTensor cast{infinite.data(), DType::f16, shape, {}};
  const OutputRecord record = count_cast(host(wide, shape), cast, 1.0);

  const CallToken caster = recorder_.begin(call("cast"));
  const ValueKey overflowed[] = {{recorder_.id_of(caster), 0}};
  recorder_.add_output(caster, 0, cast, {}, &record);
  EXPECT_TRUE(recorder_.wants_capture(caster, 0));
  recorder_.end(caster);

  const CallToken reader = recorder_.begin(call("relu", "", overflowed));
  recorder_.add_output(reader, 0, cast, {}, nullptr);
  EXPECT_FALSE(recorder_.wants_capture(reader, 0));
  recorder_.end(reader);
  recorder_.end_step({});
}

TEST(CountUpdate, AgreesWithAPlainLoop) {
  constexpr size_t kElements = 20'000;  // more than two blocks
  std::vector<float> w(kElements), after(kElements), d(kElements), g(kElements);
  uint64_t lost = 0, nonzero = 0;
  double dot = 0, magnitude = 0, squares = 0;
  for (size_t i = 0; i < kElements; ++i) {
    const auto bits = static_cast<double>(hash_combine(i, 3) >> 11) * 0x1p-53;
    w[i] = static_cast<float>(1 + bits);
    d[i] = i % 5 == 0 ? 0.0f : std::ldexp(1.0f, -20 - static_cast<int>(i % 12));
    g[i] = i % 2 == 0 ? -1.0f : 0.5f;
    after[i] = w[i] + d[i];
    nonzero += d[i] != 0;
    lost += d[i] != 0 && after[i] == w[i];
    dot += double{g[i]} * double{d[i]};
    magnitude += std::fabs(double{g[i]} * double{d[i]});
    squares += double{d[i]} * double{d[i]};
  }
  const int64_t shape[] = {100, 200};
  const UpdateCounts counts = count_update({.learning_rate = 0.25,
                                            .before = host(w, shape),
                                            .after = host(after, shape),
                                            .gradient = host(g, shape),
                                            .update = host(d, shape)});
  EXPECT_EQ(counts.nonzero, nonzero);
  EXPECT_EQ(counts.lost, lost);
  EXPECT_GT(lost, 1000u);
  EXPECT_EQ(counts.learning_rate, 0.25);
  // Both sums of n terms round at most n - 1 times.
  const double bound = 2 * kElements * 0x1p-53;
  EXPECT_NEAR(counts.gradient_dot_update, dot, bound * magnitude);
  EXPECT_NEAR(counts.update_squares, squares, bound * squares);
  const UpdateCounts without = count_update({.before = host(w, shape), .after = host(after, shape), .gradient = {}, .update = {}});
  EXPECT_EQ(without.lost, 0u);
  EXPECT_EQ(without.nonzero, nonzero - lost);
  EXPECT_TRUE(std::isnan(without.gradient_dot_update));
}

// Products of FP32 values are exact in FP64, so that one update has the same sums in both types, and in a type that is widened; a
// NaN is an update that did not vanish.
TEST(CountUpdate, IsTheSameInEveryType) {
  constexpr size_t kElements = 8192 + 37;  // a block, and a part of one that fills no vector
  std::vector<float> w(kElements), after(kElements), d(kElements), g(kElements);
  std::vector<uint16_t> narrow_w(kElements), narrow_after(kElements);
  for (size_t i = 0; i < kElements; ++i) {
    narrow_w[i] = static_cast<uint16_t>(0x3F80 + i % 64);  // BF16 is the upper half of FP32
    narrow_after[i] = static_cast<uint16_t>(narrow_w[i] + i % 3);
    w[i] = std::bit_cast<float>(uint32_t{narrow_w[i]} << 16);
    after[i] = std::bit_cast<float>(uint32_t{narrow_after[i]} << 16);
    d[i] = i % 7 == 0 ? 0.0f : std::ldexp(1.0f, -static_cast<int>(i % 20));
    g[i] = std::ldexp(1.0f + static_cast<float>(i), -9);
  }
  d[kElements - 1] = std::numeric_limits<float>::quiet_NaN();
  const auto widened = [](const std::vector<float>& values) { return std::vector<double>(values.begin(), values.end()); };
  const std::vector<double> wide_w = widened(w), wide_after = widened(after), wide_d = widened(d), wide_g = widened(g);
  const int64_t shape[] = {kElements};
  const auto of = [&](const auto& values, DType dtype) {
    return HostTensor{.data = values.data(), .dtype = dtype, .shape = shape};
  };
  const HostUpdate updates[] = {
      {1.0, of(w, DType::f32), of(after, DType::f32), of(g, DType::f32), of(d, DType::f32)},
      {1.0, of(wide_w, DType::f64), of(wide_after, DType::f64), of(wide_g, DType::f64), of(wide_d, DType::f64)},
      {1.0, of(narrow_w, DType::bf16), of(narrow_after, DType::bf16), of(g, DType::f32), of(d, DType::f32)}};
  uint64_t nonzero = 0, lost = 0;
  for (size_t i = 0; i < kElements; ++i) {
    nonzero += !(d[i] == 0);
    lost += !(d[i] == 0) && w[i] == after[i];
  }
  for (const HostUpdate& update : updates) {
    const UpdateCounts counts = count_update(update), first = count_update(updates[0]);
    EXPECT_EQ(counts.nonzero, nonzero);
    EXPECT_EQ(counts.lost, lost);
    EXPECT_EQ(counts.weight_squares, first.weight_squares);
    EXPECT_TRUE(std::isnan(counts.update_squares));
    EXPECT_TRUE(std::isnan(counts.gradient_dot_update));
  }
}

// FP16: what is at most 2^-25 becomes zero, what is at least 65520 infinite.
TEST(CountCast, CountsByTheBordersOfFp16) {
  constexpr double kScale = 1024;
  std::vector<float> wide;
  for (int exponent = -40; exponent <= 20; ++exponent)
    for (const float fraction : {1.0f, 1.25f, 1.9f, -1.5f}) wide.push_back(std::ldexp(fraction, exponent));
  for (const float value : {0.0f, 0x1p-25f, std::nextafter(0x1p-25f, 1.0f), 65519.0f, 65520.0f}) wide.push_back(value);
  std::vector<uint16_t> narrow;
  uint64_t flushed = 0, subnormal = 0, overflowed = 0, rescued = 0;
  for (const float value : wide) {
    narrow.push_back(static_cast<uint16_t>(round_to_encoding(binary16, value)));
    const double magnitude = std::fabs(double{value});
    const bool is_zero = magnitude <= 0x1p-25, is_infinite = magnitude >= 65520;
    flushed += is_zero && value != 0;
    subnormal += !is_zero && magnitude < 0x1p-14 - 0x1p-25;
    overflowed += is_infinite;
    rescued += !is_zero && !is_infinite && magnitude / kScale <= 0x1p-25;
  }
  const int64_t shape[] = {static_cast<int64_t>(wide.size())};
  const OutputRecord record = count_cast(host(wide, shape), {narrow.data(), DType::f16, shape, {}}, kScale);
  ASSERT_TRUE(record.rounding_known);
  EXPECT_TRUE(record.before_rounding);
  EXPECT_EQ(record.rounding.flushed, flushed);
  EXPECT_EQ(record.rounding.subnormal, subnormal);
  EXPECT_EQ(record.rounding.overflowed, overflowed);
  EXPECT_EQ(record.rounding.rescued, rescued);
  // A cast that made subnormals zero rounded otherwise than is counted: nothing is said of it.
  std::vector<uint16_t> without = narrow;
  for (uint16_t& encoding : without)
    if ((encoding & 0x7C00) == 0) encoding &= 0x8000;
  const OutputRecord other = count_cast(host(wide, shape), {without.data(), DType::f16, shape, {}}, kScale);
  EXPECT_FALSE(other.rounding_known);
  EXPECT_FALSE(other.before_rounding);
  EXPECT_EQ(other.statistics.positive_infinity + other.statistics.negative_infinity, overflowed);
}

// Each lie is refused where it is told, in a line that names the call, and the trace has what was true.
TEST_F(Calls, MeasuresStandBesideTheRowsOfTheirOutputs) {
  recorder_.begin_step(3);
  record(call("mul"), {1, 2});
  const CallToken token = record(call("add", "fc"), {3});
  recorder_.set_measure(token, 0, recorder_.intern("error"), 0.25);
  EXPECT_THAT(refusal([&] { recorder_.set_measure(token, 1, recorder_.intern("error"), 1); }), HasSubstr("output 1 was not told"));
  EXPECT_THAT(refusal([&] { recorder_.set_measure(token, 0, recorder_.intern("error"), NAN); }),
              HasSubstr("op 'add' in module 'fc': error of output 0 is nan; expected a finite number"));
  EXPECT_THAT(refusal([&] { recorder_.set_measure(token, 0, 0, 1); }), HasSubstr("a measure of output 0 has no name"));
  EXPECT_THAT(refusal([&] { recorder_.set_measure(token, 0, 99, 1); }), HasSubstr("text 99 is not known"));
  recorder_.end_step({});
  ASSERT_EQ(sink_.measures.size(), 1u);
  EXPECT_EQ(sink_.measures[0].step, 3u);
  EXPECT_EQ(sink_.measures[0].tensor, 1u);
  EXPECT_EQ(sink_.measures[0].name, "error");
  EXPECT_EQ(sink_.measures[0].value, 0.25);
}

TEST_F(Calls, LiesAreRefusedAndTheRestIsRecorded) {
  const std::vector<float> values{1, 2};
  const int64_t shape[] = {2}, negative[] = {-2}, huge[] = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_THAT(refusal([&] { recorder_.begin(call("mul", "fc")); }), HasSubstr("op 'mul': expected a step that began"));
  recorder_.begin_step(3);
  EXPECT_THAT(refusal([&] { recorder_.begin_step(4); }), HasSubstr("step 4 begins before step 3 ended"));
  const CallToken good = recorder_.begin(call("mul", "fc"));
  const auto tell = [&](uint32_t slot, const HostTensor& tensor, const CallLabel& label = {}, const OutputRecord* given = nullptr) {
    return refusal([&] { recorder_.add_output(good, slot, tensor, label, given); });
  };
  EXPECT_THAT(tell(0, host(values, negative)), HasSubstr("the shape [-2]; expected extents of at least 0"));
  EXPECT_THAT(tell(0, host(values, huge)), HasSubstr("expected at most 2^48 elements"));
  const int64_t far[] = {INT64_MAX / 2};
  EXPECT_THAT(tell(0, {values.data(), DType::f32, shape, far}), HasSubstr("expected ones within a memory"));
  EXPECT_THAT(tell(0, {nullptr, DType::f32, shape, {}}), HasSubstr("op 'mul' in module 'fc': output 0: expected its memory"));
  EXPECT_THAT(tell(0, {values.data(), DType::i32, shape, {}}, {.role = Role::weight_gradient}),
              HasSubstr("op 'mul' in module 'fc': expected dtype to be a floating-point type"));
  EXPECT_THAT(tell(0, host(values, shape), {.parameter = 99}), HasSubstr("text 99 is not known"));
  EXPECT_THAT(tell(0, host(values, shape), {.scale = -1}), HasSubstr("scale is -1"));
  EXPECT_THAT(tell(1u << 31, host(values, shape)), HasSubstr("output 2147483648"));
  OutputRecord counted;
  counted.known = StatisticsLevel::health;
  counted.statistics.count = 3;
  EXPECT_THAT(tell(0, host(values, shape), {}, &counted), HasSubstr("statistics of 3 elements of a tensor of the shape [2]"));
  counted.statistics.count = 2;
  counted.statistics.zeros = 3;
  EXPECT_THAT(tell(0, host(values, shape), {}, &counted), HasSubstr("zeros is 3"));
  counted.known = StatisticsLevel::values;
  counted.statistics.zeros = 0;
  counted.statistics.largest = counted.statistics.smallest = 1;
  counted.statistics.sum = 2;
  counted.statistics.sum_of_squares = 2;
  EXPECT_THAT(tell(0, host(values, shape), {}, &counted), HasSubstr("the histogram has 0 elements; expected the 2 finite"));
  recorder_.add_output(good, 0, host(values, shape), {}, nullptr);
  EXPECT_THAT(tell(0, host(values, shape)), HasSubstr("op 'mul' in module 'fc': output 0 was told twice"));
  recorder_.end(good);
  EXPECT_THAT(refusal([&] { recorder_.end(good); }), HasSubstr("op 'mul' in module 'fc' ended twice"));
  EXPECT_THAT(refusal([&] { recorder_.end(good + 1); }), HasSubstr("is not one of this step"));
  EXPECT_THAT(refusal([&] { recorder_.set_label(good, 5, {}); }), HasSubstr("output 5 was not told"));
  BegunCall other = call("add", "fc");
  other.id = recorder_.id_of(good);
  EXPECT_THAT(refusal([&] { recorder_.begin(other); }), HasSubstr("is that of op 'mul' in module 'fc'"));
  BegunCall kind = call("add");
  kind.kind = OpKind::product;
  EXPECT_THAT(refusal([&] { recorder_.begin(kind); }), HasSubstr("op 'add': add is no product"));
  BegunCall nameless;
  EXPECT_THAT(refusal([&] { recorder_.begin(nameless); }), HasSubstr("no name"));
  const CallToken dropped = recorder_.begin(call("sub"));
  recorder_.drop(dropped);
  EXPECT_THAT(refusal([&] { recorder_.end(dropped); }), HasSubstr("op 'sub' was dropped"));
  recorder_.begin(call("div", "open"));
  recorder_.begin(call("div", "open"));
  EXPECT_THAT(refusal([&] { recorder_.end_step({.seconds = -1}); }), HasSubstr("step 3: seconds is -1"));
  EXPECT_THAT(refusal([&] { recorder_.end_step({}); }),
              HasSubstr("step 3: op 'div' in module 'open' did not end, nor did 1 other op; left out"));
  EXPECT_THAT(refusal([&] { recorder_.begin_step(3); }), HasSubstr("step 3 comes after step 3"));
  EXPECT_THAT(refusal([&] { recorder_.id_of(good); }), HasSubstr("is not one of this step"));
  recorder_.begin_step(4);
  record(call("mul", "fc"), values);
  recorder_.end_step({});
  ASSERT_EQ(sink_.steps.size(), 2u);
  ASSERT_EQ(sink_.ops.size(), 1u);
  ASSERT_EQ(sink_.rows.size(), 2u);
  EXPECT_EQ(sink_.rows[0].statistics.sum, 3);
}

}  // namespace
}  // namespace ulpscope
