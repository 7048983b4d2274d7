// Names of tensors, where producers tell little, and where traces are nonsense.
#include "ulpscope/analyzers/subject/tensor_names.h"

#include <gmock/gmock.h>

#include <set>

#include "synthetic_trace.h"
#include "ulpscope/analyzers/subject/selection.h"
#include "ulpscope/analyzers/subject/tensor_place.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::analyzers_test {
namespace {

using ::testing::ElementsAre;

OpInfo named_op(uint64_t id, const char* name, const char* module, Phase phase, OpFunction function, uint64_t forward_id = 0) {
  OpInfo op;
  op.id = id;
  op.name = name;
  op.module = module;
  op.phase = phase;
  op.function = function;
  op.kind = kind_of(function);
  op.forward_id = forward_id;
  return op;
}

TensorInfo named_tensor(Role role, DType dtype = DType::f32, std::vector<int64_t> shape = {4}) {
  TensorInfo tensor;
  tensor.role = role;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  return tensor;
}

TensorInfo gradient_of(uint64_t op, int32_t input = -1, std::vector<int64_t> shape = {4}) {
  TensorInfo tensor = named_tensor(Role::activation_gradient, DType::f32, std::move(shape));
  tensor.gradient_of = op;
  tensor.gradient_input = input;
  return tensor;
}

std::vector<std::string> names_of(SyntheticTrace& trace) {
  trace.end_step();
  std::vector<std::string> names;
  for (const TensorName& name : tensor_names(trace.read())) names.push_back(name.tensor);
  return names;
}

TEST(TensorNames, GradientsOfOneValueAreThoseOfTheInputsThatReadItAndTheirSum) {
  SyntheticTrace trace;
  trace.add_output(named_op(1, "gelu", "a", Phase::forward, OpFunction::gelu), named_tensor(Role::activation));
  trace.add_output(named_op(2, "mul", "b", Phase::forward, OpFunction::mul), named_tensor(Role::activation));
  trace.add_output(named_op(3, "exp", "b", Phase::forward, OpFunction::exp), named_tensor(Role::activation));
  // b mul reads it twice, b exp once, and a matmul that is not recorded a part of it.
  trace.add_output(named_op(4, "mul", "b", Phase::backward, OpFunction::mul, 3), gradient_of(1, 0));
  trace.add_output(named_op(5, "mul", "b", Phase::backward, OpFunction::mul, 2), gradient_of(1, 0));
  trace.add_output(named_op(6, "mul", "b", Phase::backward, OpFunction::mul, 2), gradient_of(1, 1));
  trace.add_output(named_op(7, "add", "a", Phase::backward, OpFunction::add, 1), gradient_of(1));
  trace.add_output(named_op(8, "add", "a", Phase::backward, OpFunction::add, 1), gradient_of(1));
  trace.add_output(named_op(9, "matmul", "c", Phase::backward, OpFunction::matmul, 77), gradient_of(1, 0, {2}));
  EXPECT_THAT(names_of(trace),
              ElementsAre("a gelu", "b mul", "b exp", "b exp input gradient", "b mul first input gradient",
                          "b mul second input gradient", "a gelu partial gradient", "a gelu gradient", "a gelu gradient part"));
}

TEST(TensorNames, CastsHaveTheNamesOfWhatTheyHold) {
  SyntheticTrace trace;
  trace.add_output(named_op(1, "gelu", "a", Phase::forward, OpFunction::gelu), named_tensor(Role::activation));
  trace.add_output(named_op(2, "cast", "b", Phase::forward, OpFunction::cast), named_tensor(Role::activation, DType::f16));
  trace.add_output(named_op(3, "cast", "c", Phase::forward, OpFunction::cast), named_tensor(Role::activation, DType::f16));
  trace.add_output(named_op(4, "cast", "c", Phase::forward, OpFunction::cast), named_tensor(Role::activation, DType::bf16));
  trace.add_output(named_op(5, "matmul", "c", Phase::backward, OpFunction::matmul), gradient_of(4, 0));
  trace.add_output(named_op(6, "cast", "c", Phase::backward, OpFunction::cast, 4), gradient_of(1, 0));
  trace.add_output(named_op(7, "cast", "d", Phase::forward, OpFunction::cast), named_tensor(Role::activation, DType::f16));
  for (const auto& [consumer, producer] : {std::pair{1u, 0u}, {2u, 0u}, {3u, 2u}, {5u, 4u}})
    trace.sink().add_edge({0, consumer, 0, producer, 0});
  EXPECT_THAT(names_of(trace), ElementsAre("a gelu", "a gelu (FP16) for b", "a gelu (FP16) for c", "a gelu (BF16)",
                                           "a gelu gradient", "a gelu gradient (FP32)", "d cast"));
}

// Ops of one name in one module are told apart by their order; evaluation and the start of a run by what they are.
TEST(TensorNames, WhatWouldBeCalledTheSameIsToldApart) {
  SyntheticTrace trace;
  TensorInfo weight = named_tensor(Role::weight);
  weight.parameter = "a.weight";
  trace.add_output(named_op(1, "source", "a", Phase::data, OpFunction::source), weight);
  trace.add_output(named_op(2, "matmul", "a", Phase::forward, OpFunction::matmul), named_tensor(Role::activation));
  trace.add_output(named_op(3, "matmul", "a", Phase::forward, OpFunction::matmul), named_tensor(Role::activation));
  trace.add_output(named_op(4, "sgd_update", "a", Phase::optimizer, OpFunction::sgd_update), weight);
  trace.add_output(named_op(5, "matmul", "a", Phase::evaluation, OpFunction::matmul), named_tensor(Role::activation));
  TensorInfo second = named_tensor(Role::activation);
  second.slot = 1;
  trace.add_output(named_op(5, "matmul", "a", Phase::evaluation, OpFunction::matmul), second);
  trace.add_output(named_op(6, "matmul", "a", Phase::backward, OpFunction::matmul, 3), gradient_of(3, 0));
  trace.add_output(named_op(7, "matmul", "", Phase::backward, OpFunction::matmul), named_tensor(Role::activation_gradient));
  trace.add_output(named_op(8, "mul", "a", Phase::backward, OpFunction::mul, 2), named_tensor(Role::activation_gradient));
  EXPECT_THAT(names_of(trace), ElementsAre("a.weight at the start", "a first matmul", "a second matmul", "a.weight",
                                           "a matmul in evaluation", "a matmul second output", "a second matmul gradient",
                                           "matmul in backward", "a first matmul backward mul"));
}

TEST(TensorNames, AnOrdinalIsAPartOfAName) {
  for (const char* word : {"first", "tenth", "11th", "22nd", "103rd"}) EXPECT_TRUE(is_ordinal(word)) << word;
  for (const char* word : {"", "th", "firsts", "11", "0.th", "blocks", "1st.weight", "4x"}) EXPECT_FALSE(is_ordinal(word)) << word;
  SyntheticTrace trace;
  for (const uint64_t id : {1, 2})
    trace.add_output(named_op(id, "div", "", Phase::forward, OpFunction::div), named_tensor(Role::activation));
  trace.end_step();
  const Snapshot read = trace.read();
  const Selection selection(read, {});
  EXPECT_EQ(tensor_place_in_pass(selection, 1).text(), "`second div` (forward)");
}

// A producer that tells of what a gradient is, and not that this is a parameter's.
TEST(TensorNames, GradientsOfAParameterAreCalledAfterItAndNotAfterItsSource) {
  SyntheticTrace trace;
  TensorInfo weight = named_tensor(Role::weight);
  weight.parameter = "4.weight";
  trace.add_output(named_op(1, "source", "4", Phase::data, OpFunction::source), weight);
  TensorInfo gradient = gradient_of(1);
  gradient.role = Role::weight_gradient;
  trace.add_output(named_op(2, "mm", "4", Phase::backward, OpFunction::matmul), gradient);
  TensorInfo part = gradient;
  part.shape = {2};
  trace.add_output(named_op(3, "slice", "4", Phase::backward, OpFunction::other), part);
  trace.add_output(named_op(4, "adam_update", "4", Phase::optimizer, OpFunction::adam_update), weight);
  EXPECT_THAT(names_of(trace), ElementsAre("4.weight at the start", "4.weight gradient", "4.weight gradient part", "4.weight"));
}

TEST(TensorNames, ManyAreCountedInWords) {
  SyntheticTrace trace;
  for (uint64_t i = 1; i <= 113; ++i)
    trace.add_output(named_op(i, "cell", "lstm", Phase::forward, OpFunction::other), named_tensor(Role::activation));
  const std::vector<std::string> names = names_of(trace);
  EXPECT_EQ(names[0], "lstm first cell");
  EXPECT_EQ(names[9], "lstm tenth cell");
  EXPECT_EQ(names[10], "lstm 11th cell");
  EXPECT_EQ(names[20], "lstm 21st cell");
  EXPECT_EQ(names[21], "lstm 22nd cell");
  EXPECT_EQ(names[22], "lstm 23rd cell");
  EXPECT_EQ(names[111], "lstm 112th cell");
}

// Casts that hold each other, gradients of what is not there, of themselves and of other gradients, and modules that look like
// names.
TEST(TensorNames, NonsenseIsNamedToo) {
  SyntheticTrace trace;
  trace.add_output(named_op(1, "cast", "a", Phase::forward, OpFunction::cast), named_tensor(Role::activation));
  trace.add_output(named_op(2, "cast", "a", Phase::forward, OpFunction::cast), named_tensor(Role::activation));
  trace.add_output(named_op(3, "cast", "a", Phase::backward, OpFunction::cast), gradient_of(3));
  trace.add_output(named_op(4, "mul", "a", Phase::backward, OpFunction::mul, 4), gradient_of(99, 7));
  trace.add_output(named_op(5, "mul", "a", Phase::backward, OpFunction::mul, 3), gradient_of(4, 1 << 30));
  TensorInfo beyond = gradient_of(1);
  beyond.gradient_slot = 255;
  trace.add_output(named_op(6, "mul", "a", Phase::backward, OpFunction::mul, 1), beyond);
  trace.add_output(named_op(7, "", "", Phase::forward, OpFunction::other), named_tensor(Role::activation));
  trace.add_output(named_op(8, "", "", Phase::forward, OpFunction::other), named_tensor(Role::activation));
  trace.add_output(named_op(9, "b", "a", Phase::forward, OpFunction::other), named_tensor(Role::activation));
  trace.add_output(named_op(10, "a b", "", Phase::backward, OpFunction::sum), named_tensor(Role::weight_gradient));
  TensorInfo parameter = named_tensor(Role::weight_gradient);
  parameter.parameter = "a b";
  trace.add_output(named_op(11, "sum", "", Phase::backward, OpFunction::sum), parameter);
  trace.sink().add_edge({0, 0, 0, 1, 0});
  trace.sink().add_edge({0, 1, 0, 0, 0});
  trace.sink().add_edge({0, 2, 0, 2, 0});
  const std::vector<std::string> names = names_of(trace);
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
}

// Of runs that are read as one, an output may have had several types and roundings: one output, and its tensors with them.
TEST(TensorNames, AnOutputOfSeveralTypesIsOneOutput) {
  SyntheticTrace trace;
  const OpInfo gelu = named_op(1, "gelu", "a", Phase::forward, OpFunction::gelu);
  trace.add_output(gelu, named_tensor(Role::activation));
  trace.add_output(gelu, named_tensor(Role::activation, DType::f16));
  trace.end_step();
  const std::vector<TensorName> names = tensor_names(trace.read());
  EXPECT_EQ(names[0].output, "a gelu");
  EXPECT_EQ(names[1].output, "a gelu");
  EXPECT_EQ(names[0].tensor, "a gelu (FP32)");
  EXPECT_EQ(names[1].tensor, "a gelu (FP16)");
}

}  // namespace
}  // namespace ulpscope::analyzers_test
