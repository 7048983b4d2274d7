// What tensors of real runs are called, and of which values their traces say gradients are, against the graph and against what a
// backward pass is.
#include "ulpscope/analyzers/subject/tensor_names.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "tests/support/temporary_folder.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

class TensorNamesOfRuns : public ::testing::Test {
 protected:
  Snapshot trace_of(Experiment experiment, int64_t steps = 2) {
    experiment.training.steps = steps;
    TrainerOptions options;
    options.cpu.threads = 2;
    options.trace_path = folder_.file(fmt::format("{}.h5", count_++));
    train(experiment, options);
    return Snapshot(options.trace_path);
  }
  Snapshot trace_of(const char* preset, std::initializer_list<Override> overrides) {
    Experiment experiment = *find_preset(preset);
    for (const Override& setting : overrides) apply_override(experiment, setting);
    return trace_of(std::move(experiment));
  }
  static std::set<std::string> names_of(const Snapshot& trace) {
    std::set<std::string> names;
    for (const TensorName& name : tensor_names(trace)) names.insert(name.tensor);
    return names;
  }

 private:
  TemporaryFolder folder_;
  int count_ = 0;
};

TEST_F(TensorNamesOfRuns, AreUniqueAndSayWhatTheTensorIs) {
  for (const auto& [preset, precision] : {std::pair{"mlp", "fp16"},
                                          {"mlp", "fp32"},
                                          {"mlp", "fp8"},
                                          {"fashion_cnn", "fp16"},
                                          {"gpt_mini", "fp16"},
                                          {"gpt_mini", "fp8"},
                                          {"lstm_text", "fp16"},
                                          {"gru_text", "bf16"},
                                          {"pure_fp16", "fp16"},
                                          {"resnet20", "bf16"},
                                          {"transformer_seq2seq", "fp16"}}) {
    SCOPED_TRACE(fmt::format("{} {}", preset, precision));
    const Snapshot trace = trace_of(preset, {Override(fmt::format("precision={}", precision))});
    const std::vector<TensorName> names = tensor_names(trace);
    EXPECT_EQ(names_of(trace).size(), names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string& name = names[i].tensor;
      const TensorInfo& tensor = trace.tensors()[i];
      EXPECT_THAT(name, Not(HasSubstr("#")));
      EXPECT_THAT(name, Not(HasSubstr("output")));
      EXPECT_THAT(name, Not(HasSubstr("  ")));
      EXPECT_THAT(name, Not(HasSubstr("(second)")));
      const auto starts = [&](const char* words) { return name.rfind(tensor.parameter + words, 0) == 0; };
      EXPECT_TRUE(tensor.role != Role::weight_gradient || starts(" gradient")) << name;
      EXPECT_TRUE(tensor.role != Role::weight_cast || starts(" (")) << name;
      const bool is_gradient = name.find("gradient") != name.npos || name.find(" backward ") != name.npos;
      EXPECT_TRUE(tensor.role != Role::activation_gradient || is_gradient) << name;
    }
  }
}

// An op that runs in every precision is called the same in each; casts are called by their types.
TEST_F(TensorNamesOfRuns, AreTheSameInEveryPrecision) {
  std::map<std::pair<uint64_t, uint8_t>, std::string> first;
  for (const char* precision : {"fp32", "fp16", "bf16"}) {
    const Snapshot trace = trace_of("gpt_mini", {Override(fmt::format("precision={}", precision)), Override("scaler.enabled=off")});
    const std::vector<TensorName> names = tensor_names(trace);
    size_t same = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      const TensorInfo& tensor = trace.tensors()[i];
      if (trace.ops()[tensor.op].kind == OpKind::cast) continue;
      const auto [known, is_new] = first.try_emplace({trace.ops()[tensor.op].id, tensor.slot}, names[i].tensor);
      EXPECT_EQ(names[i].tensor, known->second);
      same += !is_new;
    }
    EXPECT_EQ(same > 500, precision != std::string("fp32"));
  }
}

// By the edges, which are recorded apart from it: what the differentiated op reads at that input is the value that the gradient is
// of.
TEST_F(TensorNamesOfRuns, GradientsAreOfWhatTheirForwardOpReads) {
  for (const char* preset : {"mlp", "fashion_cnn", "gpt_mini", "lstm_text", "transformer_seq2seq", "checkpointing"}) {
    SCOPED_TRACE(preset);
    const Snapshot trace = trace_of(preset, {Override("precision=fp16")});
    std::map<uint64_t, uint32_t> ops;
    for (uint32_t i = 0; i < trace.ops().size(); ++i) ops.emplace(trace.ops()[i].id, i);
    std::set<std::tuple<uint64_t, int32_t, uint64_t, uint8_t>> reads;
    for (const GraphEdge& edge : trace.edges())
      reads.emplace(trace.ops()[edge.consumer].id, edge.input, trace.ops()[edge.producer].id, edge.slot);
    std::map<std::pair<uint64_t, uint8_t>, std::vector<int64_t>> shapes;
    for (const TensorInfo& tensor : trace.tensors()) shapes[{trace.ops()[tensor.op].id, tensor.slot}] = tensor.shape;
    const auto elements = [](const std::vector<int64_t>& shape) {
      int64_t all = 1;
      for (const int64_t extent : shape) all *= extent;
      return all;
    };
    size_t checked = 0, told = 0, untold = 0;
    for (const TensorInfo& tensor : trace.tensors()) {
      const OpInfo& op = trace.ops()[tensor.op];
      if (tensor.gradient_of == 0) {
        untold += tensor.role == Role::activation_gradient && tensor.parameter.empty() && op.function != OpFunction::copy;
        continue;
      }
      ++told;
      EXPECT_TRUE(tensor.parameter.empty());
      EXPECT_EQ(op.phase, Phase::backward);
      const auto value = shapes.find({tensor.gradient_of, tensor.gradient_slot});
      ASSERT_NE(value, shapes.end()) << op.module << " " << op.name;
      EXPECT_LE(elements(tensor.shape), elements(value->second)) << op.module << " " << op.name;
      if (tensor.gradient_input < 0 || !ops.contains(op.forward_id)) continue;
      EXPECT_TRUE(reads.contains({op.forward_id, tensor.gradient_input, tensor.gradient_of, tensor.gradient_slot}))
          << op.module << " " << op.name;
      ++checked;
    }
    EXPECT_GT(checked, 0u);
    EXPECT_GT(told, 20 * untold);
  }
}

// y = relu(x w0^T + b0) w1^T + b1, cross entropy: every gradient, as one would write them down.
TEST_F(TensorNamesOfRuns, OfASmallNetAreThoseOfItsChainRule) {
  constexpr const char* kNet = R"(
name = "net"
precision = "fp16"
[data]
kind = "random_classification"
shape = [8]
[model]
layers = [
  { type = "linear", name = "in", out_features = 16 },
  { type = "relu", name = "relu" },
  { type = "linear", name = "out", out_features = 10 },
]
[training]
batch_size = 4
evaluation = "never"
[optimizer]
type = "sgd"
learning_rate = 0.1
)";
  EXPECT_THAT(names_of(trace_of(parse_experiment(kNet, "net", {}))), IsSupersetOf({"inputs",
                                                                                   "targets",
                                                                                   "inputs (FP16)",
                                                                                   "in.weight",
                                                                                   "in.weight at the start",
                                                                                   "in.weight (FP16)",
                                                                                   "in linear",
                                                                                   "relu relu",
                                                                                   "out linear",
                                                                                   "out linear (FP32)",
                                                                                   "cross_entropy loss",
                                                                                   "scaled cross_entropy loss",
                                                                                   "scaled cross_entropy loss gradient",
                                                                                   "cross_entropy loss gradient",
                                                                                   "out linear gradient",
                                                                                   "out linear gradient (FP16)",
                                                                                   "relu relu gradient",
                                                                                   "in linear gradient",
                                                                                   "in.weight gradient",
                                                                                   "in.weight gradient (FP32)",
                                                                                   "in.weight unscaled gradient",
                                                                                   "in.bias gradient",
                                                                                   "out.weight gradient",
                                                                                   "in.weight update"}));
}

// In the residual stream gradients meet: the sum is that of the value, and what comes in of the input of the op that hands it on.
TEST_F(TensorNamesOfRuns, GradientsThatMeetAreToldFromTheirSum) {
  const Snapshot trace = trace_of("gpt_mini", {Override("precision=fp16")});
  const std::vector<TensorName> names = tensor_names(trace);
  const auto function_of = [&](const std::string& name) {
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i].tensor == name) return trace.ops()[trace.tensors()[i].op].function;
    ADD_FAILURE() << name;
    return OpFunction::other;
  };
  EXPECT_EQ(function_of("blocks.1.attention add gradient"), OpFunction::add);
  EXPECT_EQ(function_of("blocks.1.feed_forward.norm layer_norm input gradient"), OpFunction::layer_norm_backward);
  EXPECT_EQ(function_of("blocks.1.feed_forward.norm layer_norm gradient"), OpFunction::matmul);
  EXPECT_EQ(function_of("blocks.1.attention.heads masked_softmax gradient"), OpFunction::matmul);
  EXPECT_EQ(function_of("blocks.1.attention.heads first matmul gradient"), OpFunction::softmax_backward);
  // Queries, keys and values are parts of one value, each cast for itself.
  for (const char* part : {"query", "key", "value"})
    EXPECT_EQ(function_of(fmt::format("blocks.1.attention.heads.qkv linear ({}, FP32)", part)), OpFunction::cast);
  for (const char* part : {"first scale", "second scale", "second matmul second"})
    EXPECT_EQ(function_of(fmt::format("blocks.1.attention.heads {} input gradient (FP16)", part)), OpFunction::cast);
  EXPECT_EQ(function_of("blocks.1.attention.heads.qkv linear gradient"), OpFunction::cat);
}

}  // namespace
}  // namespace ulpscope
