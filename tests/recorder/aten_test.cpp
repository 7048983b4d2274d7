// Ops of PyTorch told by hand, without PyTorch: what the trace says of who made what memory holds, against the program written
// here.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <filesystem>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ulpscope/recorder/ulpscope_aten.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

constexpr int32_t kFloat = 6, kLong = 4;  // numbers of c10::ScalarType
constexpr int64_t kNowhere = -1;          // no node of autograd, no graph task

struct Parameter {
  const char* name;
  bool is_tensor = true, is_written = false;
};
using Tensors = std::vector<ulpscope_aten_tensor>;
using Given = std::variant<std::monostate, ulpscope_aten_tensor, Tensors, double, int64_t>;

// Where an op runs.
struct At {
  int64_t task = kNowhere, node = kNowhere, made_node = kNowhere;
  const char* node_name = nullptr;
};

struct Value {
  std::string op;
  uint32_t slot = 0;
  bool operator==(const Value&) const = default;
};
void PrintTo(const Value& value, std::ostream* out) { *out << value.op << '.' << value.slot; }

class Aten : public testing::Test {
 protected:
  void SetUp() override {
    ulpscope_run run{};
    run.size = sizeof run;
    ulpscope_options options{};
    options.size = sizeof options;
    options.path = path_.c_str();
    options.overwrite = 1;
    ASSERT_EQ(ulpscope_open(&run, &options, &recorder_), ULPSCOPE_OK) << ulpscope_last_error();
    ulpscope_aten_adapter adapter{};
    adapter.context = this;
    adapter.retain = [](void* context, uint64_t storage) { ++static_cast<Aten*>(context)->retained_[storage]; };
    adapter.release = [](void* context, uint64_t storage) { --static_cast<Aten*>(context)->retained_[storage]; };
    adapter.is_expired = [](void* context, uint64_t storage) {
      return static_cast<int>(static_cast<Aten*>(context)->freed_.contains(storage));
    };
    ulpscope_aten_session session{};
    session.context = this;
    session.enter = [](void*, int) {};
    session.backward = [](void* context, int, ulpscope_aten_start* start) { *start = static_cast<Aten*>(context)->start_; };
    session.backward_ended = [](void*) {};
    session.scale_of_call = [](void*, double*) { return 0; };
    session.unscaled = [](void*, int) { return 1; };
    session.scaler_updated = [](void*, double) {};
    session.scale_told = [](void*, double) {};
    session.norms = [](void*, double, double) {};
    session.batch = [](void* context, uint32_t batch, int64_t first, int64_t count) {
      static_cast<Aten*>(context)->read_.push_back({batch, first, count});
      return 1;
    };
    session.line = [](void*) { return ulpscope_name{0}; };
    session.refused = [](void* context, const char* why) { static_cast<Aten*>(context)->refused_.push_back(why); };
    session.failed = [](void*, const char* why) { ADD_FAILURE() << why; };
    ASSERT_EQ(ulpscope_aten_open(&adapter, &session, nullptr, &aten_), ULPSCOPE_OK);
    ulpscope_aten_record(aten_, recorder_);
    begin_step();
  }
  void TearDown() override {
    if (aten_ != nullptr) finish();
    std::filesystem::remove(path_);
  }

  void begin_step() {
    ulpscope_aten_state& state = *ulpscope_aten_state_of(aten_);
    ++state.step;
    ++state.passes;
    state.is_open = 1;
    state.state = ULPSCOPE_ATEN_FORWARD;
    ASSERT_EQ(ulpscope_begin_step(recorder_, static_cast<uint64_t>(state.step)), ULPSCOPE_OK);
    ASSERT_EQ(ulpscope_begin_pass(recorder_, ulpscope_phase("forward"), 0, 0), ULPSCOPE_OK);
    ulpscope_aten_begin_pass(aten_, 0);
  }
  void end_step() {
    ulpscope_step step{};
    step.size = sizeof step;
    ulpscope_aten_state_of(aten_)->is_open = 0;
    ASSERT_EQ(ulpscope_end_step(recorder_, &step), ULPSCOPE_OK) << ulpscope_last_error();
    ulpscope_aten_end_step(aten_);
  }
  // Ends the step and the recording; the trace can be read then.
  void finish() {
    end_step();
    ulpscope_aten_close(aten_);
    aten_ = nullptr;
    ASSERT_EQ(ulpscope_close(recorder_), ULPSCOPE_OK) << ulpscope_last_error();
    for (const auto& [storage, times] : retained_) EXPECT_EQ(times, 0) << storage;
  }

  ulpscope_name name(const char* text) { return ulpscope_aten_name(aten_, text); }
  void enter(const char* module) { ulpscope_aten_begin_module(aten_, name(module), 0, 0, kNowhere); }
  void leave(const char* module) { ulpscope_aten_end_module(aten_, name(module)); }

  // Memory of its own, with these values.
  ulpscope_aten_tensor make(std::vector<int64_t> shape, std::vector<float> values) {
    std::vector<float>& kept = values_.emplace_back(std::move(values));
    ulpscope_aten_tensor tensor{};
    tensor.storage = ++storages_;
    tensor.storage_bytes = kept.size() * sizeof(float);
    tensor.storage_data = tensor.data = kept.data();
    tensor.handle = 1000 + tensor.storage;
    tensor.type = kFloat;
    tensor.is_present = tensor.is_on_host = 1;
    return shaped(tensor, std::move(shape));
  }
  ulpscope_aten_tensor make(int64_t count) { return make({count}, std::vector<float>(static_cast<size_t>(count), 1.0F)); }
  // A view of the memory, from an element on, with elements one behind the other.
  ulpscope_aten_tensor part(ulpscope_aten_tensor tensor, int64_t first, std::vector<int64_t> shape) {
    tensor.data = static_cast<const float*>(tensor.storage_data) + first;
    tensor.is_view = 1;
    return shaped(tensor, std::move(shape));
  }
  ulpscope_aten_tensor transposed(ulpscope_aten_tensor tensor) {
    tensor.is_view = 1;
    tensor.shape = lists_.emplace_back(std::vector{tensor.shape[1], tensor.shape[0]}).data();
    tensor.strides = lists_.emplace_back(std::vector{tensor.strides[1], tensor.strides[0]}).data();
    return tensor;
  }
  void source(const ulpscope_aten_tensor& tensor, const char* parameter) {
    ulpscope_aten_source(aten_, &tensor, ulpscope_role("weight"), name(parameter), 0, 0, 0);
  }

  // Tells of a call of the op: its parameters are those of the overload.
  void run(const char* op, const std::vector<Parameter>& parameters, const std::vector<Given>& given, const Tensors& results,
           const At& at = {}) {
    const auto [known, is_new] = schemas_.try_emplace(op);
    if (is_new) {
      std::vector<ulpscope_aten_parameter> told(parameters.size());
      for (size_t i = 0; i < parameters.size(); ++i) {
        told[i].name = parameters[i].name;
        told[i].is_tensor = parameters[i].is_tensor;
        told[i].is_written = parameters[i].is_written;
      }
      ulpscope_aten_schema schema{};
      schema.name = op;
      schema.parameters = told.data();
      schema.parameters_count = static_cast<uint32_t>(told.size());
      known->second = ulpscope_aten_add_schema(aten_, &schema);
    }
    std::vector<ulpscope_aten_argument> arguments;
    Tensors tensors;
    for (const Given& each : given) {
      ulpscope_aten_argument argument{};
      argument.first = static_cast<uint32_t>(tensors.size());
      if (const auto* const tensor = std::get_if<ulpscope_aten_tensor>(&each)) {
        argument.kind = ULPSCOPE_ATEN_TENSOR;
        argument.count = 1;
        tensors.push_back(*tensor);
      } else if (const auto* const list = std::get_if<Tensors>(&each)) {
        argument.kind = ULPSCOPE_ATEN_TENSORS;
        argument.count = static_cast<uint32_t>(list->size());
        tensors.insert(tensors.end(), list->begin(), list->end());
      } else if (const auto* const real = std::get_if<double>(&each)) {
        argument.kind = ULPSCOPE_ATEN_REAL;
        argument.real = *real;
      } else if (const auto* const integer = std::get_if<int64_t>(&each)) {
        argument.kind = ULPSCOPE_ATEN_INTEGER;
        argument.integer = *integer;
      }
      arguments.push_back(argument);
    }
    ulpscope_aten_op call{};
    call.schema = known->second;
    call.arguments = arguments.data();
    call.tensors = tensors.data();
    call.grad_enabled = 1;
    call.task = at.task;
    call.node = at.node;
    call.made_node = at.made_node;
    call.node_name = at.node_name;
    ulpscope_aten_before(aten_, &call);
    call.results = results.data();
    call.results_count = static_cast<uint32_t>(results.size());
    ulpscope_aten_after(aten_, &call);
  }
  void empty(const ulpscope_aten_tensor& made) { run("aten::empty", {{"size", false}}, {int64_t{1}}, {made}); }
  void relu(const ulpscope_aten_tensor& read, const ulpscope_aten_tensor& made) { run("aten::relu", {{"self"}}, {read}, {made}); }
  void copy(const ulpscope_aten_tensor& to, const ulpscope_aten_tensor& from) {
    run("aten::copy_", {{"self", true, true}, {"src"}}, {to, from}, {to});
  }

  // The outputs that a call read, by the names of their ops, of which the n-th with a name is "name#n" from the second on.
  static std::string shown(const Snapshot& trace, uint32_t op) {
    const auto& ops = trace.ops();
    const auto before = std::count_if(ops.begin(), ops.begin() + op, [&](const OpInfo& each) { return each.name == ops[op].name; });
    const std::string named = ops[op].name == "source" ? parameter_of(trace, op) : ops[op].name;
    return before == 0 || ops[op].name == "source" ? named : named + "#" + std::to_string(before + 1);
  }
  static std::string parameter_of(const Snapshot& trace, uint32_t op) {
    for (const TensorInfo& tensor : trace.tensors())
      if (tensor.op == op) return tensor.parameter;
    return "";
  }
  static std::map<uint32_t, Value> read_by(const Snapshot& trace, const std::string& op) {
    std::map<uint32_t, Value> read;
    for (const GraphEdge& edge : trace.edges())
      if (shown(trace, edge.consumer) == op) read[edge.input] = {shown(trace, edge.producer), edge.slot};
    return read;
  }
  static const OpInfo& op_named(const Snapshot& trace, const std::string& name) {
    for (uint32_t op = 0; op < trace.ops().size(); ++op)
      if (shown(trace, op) == name) return trace.ops()[op];
    ADD_FAILURE() << "no op " << name;
    return trace.ops().front();
  }
  using Inputs = std::map<uint32_t, Value>;

  std::string path_ = (std::filesystem::path(testing::TempDir()) / ("ulpscope_aten_" + std::to_string(getpid()) + ".h5")).string();
  ulpscope_recorder* recorder_ = nullptr;
  ulpscope_aten* aten_ = nullptr;
  ulpscope_aten_start start_{};
  std::map<uint64_t, int> retained_;
  std::set<uint64_t> freed_;
  std::vector<std::string> refused_;
  std::vector<std::array<int64_t, 3>> read_;  // of batches: which, the first sample, how many
  uint64_t storages_ = 0;

 private:
  ulpscope_aten_tensor shaped(ulpscope_aten_tensor tensor, std::vector<int64_t> shape) {
    std::vector<int64_t> strides(shape.size());
    int64_t stride = 1;
    for (size_t i = shape.size(); i-- > 0; stride *= shape[i]) strides[i] = stride;
    tensor.rank = static_cast<int32_t>(shape.size());
    tensor.shape = lists_.emplace_back(std::move(shape)).data();
    tensor.strides = lists_.emplace_back(std::move(strides)).data();
    return tensor;
  }

  std::deque<std::vector<float>> values_;
  std::deque<std::vector<int64_t>> lists_;
  std::map<std::string, uint32_t> schemas_;
};

TEST_F(Aten, InputsStandInTheOrderOfTheFunctionAndViewsAreWhatTheyShow) {
  const auto x = make({2, 3}, {1, 2, 3, 4, 5, 6}), weight = make({4, 3}, std::vector<float>(12, 2)), bias = make(4);
  const auto sum = make({2, 4}, {12, 12, 12, 12, 30, 30, 30, 30}), positive = make({2, 4}, std::vector<float>(8, 1));
  ulpscope_aten_inputs(aten_, &x, 1);
  source(weight, "fc.weight");
  source(bias, "fc.bias");
  enter("fc");
  run("aten::t", {{"self"}}, {weight}, {transposed(weight)});
  run("aten::addmm", {{"self"}, {"mat1"}, {"mat2"}, {"beta", false}, {"alpha", false}},
      {bias, x, transposed(weight), int64_t{1}, int64_t{1}}, {sum});
  relu(sum, positive);
  leave("fc");
  finish();
  const Snapshot trace(path_);
  EXPECT_EQ(read_by(trace, "addmm"), (Inputs{{0, {"input"}}, {1, {"fc.weight"}}, {2, {"fc.bias"}}}));
  EXPECT_EQ(read_by(trace, "relu"), (Inputs{{0, {"addmm"}}}));
  const OpInfo& product = op_named(trace, "addmm");
  EXPECT_EQ(product.function, OpFunction::linear);
  EXPECT_EQ(product.kind, OpKind::product);
  EXPECT_EQ(product.module, "fc");
  ASSERT_GE(product.product.size(), 4u);
  EXPECT_EQ((std::vector(product.product.begin(), product.product.begin() + 4)), (std::vector<int64_t>{2, 4, 3, 1}));
  EXPECT_EQ(trace.ops().size(), 5u) << "a view is no op";
}

TEST_F(Aten, PartsOfMemoryHaveMakersOfTheirOwn) {
  const auto first = make(4), second = make(4), both = make(8), a = make(4), b = make(4), c = make(8), d = make(8);
  enter("");
  relu(make(4), first);
  run("aten::exp", {{"self"}}, {first}, {second});
  empty(both);
  copy(part(both, 0, {4}), first);
  relu(part(both, 0, {4}), a);
  relu(both, c);  // of its other half nobody knows what it holds
  copy(part(both, 4, {4}), second);
  relu(part(both, 4, {4}), b);
  relu(both, d);
  finish();
  const Snapshot trace(path_);
  EXPECT_EQ(read_by(trace, "relu#2"), (Inputs{{0, {"copy_"}}}));
  EXPECT_TRUE(op_named(trace, "relu#2").inputs_told);
  EXPECT_EQ(read_by(trace, "relu#3"), (Inputs{{0, {"copy_"}}}));
  EXPECT_FALSE(op_named(trace, "relu#3").inputs_told);
  EXPECT_EQ(read_by(trace, "relu#4"), (Inputs{{0, {"copy_#2"}}}));
  EXPECT_TRUE(op_named(trace, "relu#4").inputs_told);
  EXPECT_EQ(read_by(trace, "relu#5"), (Inputs{{0, {"copy_#2"}}, {1, {"copy_"}}}));
  EXPECT_TRUE(op_named(trace, "relu#5").inputs_told);
}

TEST_F(Aten, MemoryThatWasFreedAndTakenAgainHasAnotherMaker) {
  const auto x = make(4), before = make(4);
  enter("");
  relu(x, before);
  leave("");
  end_step();
  freed_.insert(before.storage);
  begin_step();
  freed_.clear();
  enter("");
  const auto after = make(4);
  run("aten::exp", {{"self"}}, {before}, {after});  // the same number, of memory that no op wrote
  finish();
  const Snapshot trace(path_);
  EXPECT_EQ(read_by(trace, "exp"), Inputs{});
  EXPECT_FALSE(op_named(trace, "exp").inputs_told);
}

TEST_F(Aten, AnOpOverListsIsACallForEachElement) {
  const auto x = make(2), y = make({2}, {3, 4}), three = make(2);
  enter("");
  run("aten::exp", {{"self"}}, {make(2)}, {x});
  run("aten::sin", {{"self"}}, {make(2)}, {y});
  run("aten::_foreach_mul_", {{"self", true, true}, {"scalar", false}}, {Tensors{x, y}, 2.0}, {});
  relu(y, three);
  finish();
  const Snapshot trace(path_);
  EXPECT_EQ(read_by(trace, "_foreach_mul_"), (Inputs{{0, {"exp"}}}));
  EXPECT_EQ(read_by(trace, "_foreach_mul_#2"), (Inputs{{0, {"sin"}}}));
  EXPECT_EQ(op_named(trace, "_foreach_mul_").function, OpFunction::mul);
  EXPECT_EQ(read_by(trace, "relu"), (Inputs{{0, {"_foreach_mul_#2"}}}));
}

TEST_F(Aten, TensorsThatAreNotReadAreCountedAndTheirReadersKnowIt) {
  auto sparse = make(4);
  sparse.unreadable = "sparse";
  const auto dense = make(4), next = make(4);
  auto indices = make(4);
  indices.type = kLong;
  enter("");
  run("aten::to_dense", {{"self"}}, {sparse}, {dense});
  relu(dense, next);
  run("aten::embedding", {{"weight"}, {"indices"}}, {next, indices}, {make(4)});
  const char* kind = nullptr;
  uint64_t count = 0;
  ASSERT_EQ(ulpscope_aten_not_read(aten_, 0, &kind, &count), 1);
  EXPECT_STREQ(kind, "sparse");
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(ulpscope_aten_not_read(aten_, 1, &kind, &count), 0);
  finish();
  const Snapshot trace(path_);
  EXPECT_FALSE(op_named(trace, "relu").inputs_told);
  EXPECT_TRUE(op_named(trace, "embedding").inputs_told) << "numbers of rows have no statistics";
}

TEST_F(Aten, GradientsBelongToTheForwardOpAndToTheParameter) {
  constexpr int64_t kMul = 5, kTask = 1;
  auto weight = make(4);
  weight.requires_grad = 1;
  const auto x = make(4), arrived = make(4), of_weight = make({4}, {8, 16, 24, 32}), loss = make({}, {4});
  auto y = make(4);
  y.requires_grad = 1;
  ulpscope_aten_name_parameter(aten_, weight.handle, name("w"), name("fc"));
  source(weight, "w");
  ulpscope_aten_inputs(aten_, &x, 1);
  enter("fc");
  run("aten::mul", {{"self"}, {"other"}}, {x, weight}, {y}, {.made_node = kMul});
  run("aten::sum", {{"self"}}, {y}, {loss}, {.made_node = kMul + 1});
  leave("fc");
  start_ = {.is_found = 1, .is_nested = 0, .is_new = 1, .scale = 8};
  ulpscope_aten_backward backward{};
  ulpscope_aten_begin_backward(aten_, &loss, 1, 1, &backward);
  EXPECT_EQ(backward.loss, 4);
  EXPECT_TRUE(std::isnan(backward.divisor));
  ulpscope_aten_state_of(aten_)->state = ULPSCOPE_ATEN_BACKWARD;
  run("aten::mul", {{"self"}, {"other"}}, {arrived, x}, {of_weight}, {.task = kTask, .node = kMul, .node_name = "MulBackward0"});
  ulpscope_aten_edge edge{};
  edge.exists = edge.to_parameter = 1;
  edge.handle = weight.handle;
  ulpscope_aten_handed_on(aten_, kMul, nullptr, &edge, &of_weight, 1, &arrived, 1);
  ulpscope_aten_end_backward(aten_);
  finish();
  const Snapshot trace(path_);
  const OpInfo &forward = op_named(trace, "mul"), &gradient = op_named(trace, "mul#2");
  EXPECT_EQ(gradient.forward_id, forward.id);
  EXPECT_EQ(gradient.phase, Phase::backward);
  EXPECT_EQ(gradient.module, "fc");
  const auto of = [&](const OpInfo& op) {
    return *std::find_if(trace.tensors().begin(), trace.tensors().end(),
                         [&](const TensorInfo& tensor) { return trace.ops()[tensor.op].id == op.id; });
  };
  EXPECT_EQ(of(gradient).role, Role::weight_gradient);
  EXPECT_EQ(of(gradient).parameter, "w");
  EXPECT_EQ(of(op_named(trace, "sum")).role, Role::loss);
  trace.visit_rows({}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows)
      if (trace.ops()[trace.tensors()[row.tensor].op].id == gradient.id) {
        EXPECT_EQ(row.scale, 8);
        EXPECT_EQ(row.statistics.sum, 80);
      }
    return true;
  });
}

// Each thread counts the nodes that it makes, as a device's does in a backward pass whose graph is kept: its numbers are the
// others' too.
TEST_F(Aten, NodesOfTwoThreadsHaveTheSameNumbers) {
  constexpr int64_t kThread = int64_t{1} << ULPSCOPE_ATEN_SEQUENCE_BITS, kTask = 1;
  auto weight = make(4), scaled = make(4), there = make(4), here = make(4), loss = make({}, {4});
  for (auto* const each : {&weight, &scaled, &there, &here, &loss}) each->requires_grad = 1;
  const auto arrived = make(4), of_there = make(4), of_here = make(4);
  ulpscope_aten_name_parameter(aten_, weight.handle, name("w"), name("fc"));
  source(weight, "w");
  enter("fc");
  run("aten::mul", {{"self"}, {"other"}}, {weight, 2.0}, {scaled}, {.made_node = 900});
  run("aten::relu", {{"self"}}, {scaled}, {there}, {.made_node = kThread | 901});
  run("aten::tanh", {{"self"}}, {there}, {here}, {.made_node = 901});
  run("aten::sum", {{"self"}}, {here}, {loss}, {.made_node = 902});
  leave("fc");
  start_ = {.is_found = 1, .is_nested = 0, .is_new = 1, .scale = 1};
  ulpscope_aten_backward backward{};
  ulpscope_aten_begin_backward(aten_, &loss, 1, 1, &backward);
  ulpscope_aten_state_of(aten_)->state = ULPSCOPE_ATEN_BACKWARD;
  run("aten::tanh_backward", {{"grad_output"}, {"output"}}, {arrived, here}, {of_here},
      {.task = kTask, .node = 901, .node_name = "TanhBackward0"});
  run("aten::threshold_backward", {{"grad_output"}, {"self"}}, {of_here, there}, {of_there},
      {.task = kTask, .node = kThread | 901, .node_name = "ReluBackward0"});
  ulpscope_aten_end_backward(aten_);
  finish();
  const Snapshot trace(path_);
  EXPECT_EQ(op_named(trace, "tanh_backward").forward_id, op_named(trace, "tanh").id);
  EXPECT_EQ(op_named(trace, "threshold_backward").forward_id, op_named(trace, "relu").id);
}

TEST_F(Aten, ACollectiveHasTheValuesThatAreThereOnceTheyAreRead) {
  const auto x = make(4), y = make(4);
  source(x, "w");
  enter("fc");
  relu(x, y);
  run("c10d::allreduce_", {{"tensors"}}, {Tensors{y}}, {y});
  std::fill_n(static_cast<float*>(const_cast<void*>(y.data)), 4, 7.0F);  // it ends
  relu(y, make(4));
  finish();
  const Snapshot trace(path_);
  EXPECT_EQ(op_named(trace, "allreduce_").kind, OpKind::collective);
  EXPECT_EQ(read_by(trace, "allreduce_"), (Inputs{{0, {"relu"}}}));
  EXPECT_EQ(read_by(trace, "relu#2"), (Inputs{{0, {"allreduce_"}}}));
  double sum = 0;
  trace.visit_rows({}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows)
      if (trace.ops()[trace.tensors()[row.tensor].op].name == "allreduce_") sum += row.statistics.sum;
    return true;
  });
  EXPECT_EQ(sum, 28);
}

TEST_F(Aten, WhatOneProcessHasOfAParameterIsNotAllThatItIsMadeOf) {
  const auto mine = make(4), whole = make(8), y = make(8);
  source(mine, "w");
  ulpscope_aten_unsharded(aten_, &whole, &mine);
  run("fsdp::split_with_sizes_copy", {{"all_gather_output"}, {"out", true, true}}, {make(8), Tensors{whole}}, {});
  enter("fc");
  relu(whole, y);
  finish();
  const Snapshot trace(path_);
  EXPECT_EQ(read_by(trace, "relu"), (Inputs{{0, {"w"}}}));
  EXPECT_FALSE(op_named(trace, "relu").inputs_told);
}

TEST_F(Aten, SamplesOfABatchAreFollowedToWhatAModelReads) {
  const auto batch = make({4, 3}, std::vector<float>(12, 1)), cast = make({2, 3}, std::vector<float>(6, 1)),
             moved = make({4, 3}, std::vector<float>(12, 1)), two = make({2, 3}, std::vector<float>(6, 1));
  ulpscope_aten_delivered(aten_, &batch, 1, 9, 4, 1);
  run("aten::_to_copy", {{"self"}}, {part(batch, 6, {2, 3})}, {cast});  // its last two rows
  run("aten::index", {{"self"}}, {batch}, {moved});
  run("aten::index_select", {{"self"}}, {batch}, {two});  // some of its rows
  for (const auto& input : {cast, moved, two, make(3)}) ulpscope_aten_inputs(aten_, &input, 1);
  finish();
  EXPECT_EQ(read_, (std::vector<std::array<int64_t, 3>>{{9, 2, 2}, {9, 0, 4}}));
  std::map<std::string, std::string> attributes;
  const Snapshot trace(path_);
  for (const OpInfo& op : trace.ops()) attributes[op.name] += op.attributes + ";";
  EXPECT_EQ(attributes, (std::map<std::string, std::string>{{"input", "samples=none;samples=none;"},
                                                            {"input_of_batch", "samples=rows;"},
                                                            {"input_of_unordered_batch", "samples=unordered;"}}));
}

TEST_F(Aten, ANameThatTheRecorderRefusesIsLeftOutAndTheCallIsNot) {
  const auto y = make(4);
  const std::string too_long(size_t{2} << 20, 'a');
  enter(too_long.c_str());
  relu(make(4), y);
  leave(too_long.c_str());
  ASSERT_EQ(refused_.size(), 1u);
  EXPECT_NE(refused_[0].find("2097152 bytes; expected at most 1048576"), std::string::npos) << refused_[0];
  enter("");
  run("aten::exp", {{"self"}}, {y}, {make(4)});
  finish();
  const Snapshot trace(path_);
  EXPECT_EQ(op_named(trace, "relu").module, "");
  EXPECT_EQ(read_by(trace, "exp"), (Inputs{{0, {"relu"}}}));
}

}  // namespace
}  // namespace ulpscope
