// Every type of layer against what it promises, ops as layers, and layers within layers.
#include "ulpscope/core/nn/layer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <map>
#include <set>

#include "tests/support/engine_fixture.h"
#include "ulpscope/core/nn/model.h"
#include "ulpscope/core/run/experiment.h"

namespace ulpscope {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsNan;

// A layer as a file has it, and the shape of a sample that it takes.
struct LayerRow {
  std::string type, keys;
  SampleShape input;
  int64_t indices = 0;  // not 0: samples are indices below it

  LayerSpec spec() const {
    const std::string text = fmt::format("model.layers = [{{ type = \"{}\", name = \"layer\"{} }}]", type, keys);
    return parse_experiment(text, "test").model.layers.at(0);
  }
};

std::vector<LayerRow> layer_rows() {
  std::vector<LayerRow> rows{
      {"linear", ", out_features = 3", {5}},
      {"linear", ", out_features = 3, bias = false", {5}},
      {"conv2d", ", out_channels = 5, kernel = 3, padding = 1", {2, 7, 8}},
      {"conv2d", ", out_channels = 5, kernel = [3, 2], stride = [2, 3], padding = [0, 1], bias = false", {2, 7, 8}},
      {"conv2d", ", out_channels = 6, kernel = 3, dilation = [2, 1], groups = 2", {4, 7, 8}},
      {"conv1d", ", out_channels = 5, kernel = 3, padding = 1", {2, 9}},
      {"conv1d", ", out_channels = 6, kernel = 2, stride = 2, dilation = 3, groups = 2, bias = false", {4, 9}},
      {"conv_transpose2d", ", out_channels = 5, kernel = 3, stride = 2, padding = 1, output_padding = 1", {2, 4, 3}},
      {"conv_transpose2d", ", out_channels = 6, kernel = [2, 3], dilation = [2, 1], groups = 2, bias = false", {4, 4, 3}},
      {"avg_pool2d", ", kernel = 2", {3, 7, 8}},
      {"avg_pool2d", ", kernel = [3, 2], stride = 1, padding = [1, 0], count_include_pad = false", {3, 7, 8}},
      {"adaptive_avg_pool2d", ", output_size = [3, 5]", {3, 7, 8}},
      {"adaptive_max_pool2d", ", output_size = 1", {3, 7, 8}},
      {"group_norm", ", groups = 2", {4, 3, 5}},
      {"group_norm", ", groups = 1, eps = 0.5", {6}},
      {"max_pool2d", ", kernel = 2", {3, 7, 8}},
      {"max_pool2d", ", kernel = 3, stride = 2, ceil_mode = true", {3, 7, 8}},
      {"avg_pool2d", ", kernel = 2, ceil_mode = true", {3, 7, 8}},
      {"max_pool2d", ", kernel = [3, 2], stride = [1, 2], padding = [1, 0]", {3, 7, 8}},
      {"batch_norm", "", {5}},
      {"batch_norm", ", eps = 0.5, momentum = 0.3", {3, 4, 2}},
      {"linear", ", out_features = 3", {6, 5}},
      {"layer_norm", "", {5}},
      {"layer_norm", ", eps = 0.5", {6, 5}},
      {"rms_norm", "", {6, 5}},
      {"embedding", ", num_embeddings = 7, features = 5", {6}, 7},
      {"position_embedding", "", {6, 5}},
      {"attention", ", heads = 2", {6, 8}},
      {"attention", ", heads = 1, causal = true, bias = false", {6, 8}},
      {"attention", ", heads = 2, causal = true, padding = 2, mask_value = -1e4", {6, 8}},
      {"rms_norm", ", fused = false, eps = 0.5", {6, 5}},
      {"softmax", ", subtract_max = false", {3, 4}},
      {"branches", ", join = \"mul\", layers = [{ type = \"linear\", out_features = 5 }, { type = \"identity\" }]", {5}},
      {"sequential", ", repeat = 2, layers = [{ type = \"linear\", out_features = 5 }, { type = \"relu\" }]", {5}},
      {"residual", ", layers = [{ type = \"linear\", out_features = 5 }]", {5}},
      {"residual",
       ", layers = [{ type = \"linear\", out_features = 3 }], shortcut = [{ type = \"linear\", out_features = 3 }]",
       {5}},
      {"branches", ", layers = [{ type = \"linear\", out_features = 5 }, { type = \"identity\" }]", {5}},
      {"branches",
       ", join = \"concat\", layers = [{ type = \"conv2d\", out_channels = 2, kernel = 1 }, { type = \"identity\" }, "
       "{ type = \"conv2d\", out_channels = 3, kernel = 3, padding = 1 }]",
       {4, 3, 5}},
      {"branches",
       ", join = \"concat\", dim = 1, layers = [{ type = \"linear\", out_features = 3 }, { type = \"identity\" }]",
       {4, 5}},
      {"reshape", ", shape = [4, -1, 3]", {6, 8}},
      {"reshape", ", shape = [12]", {3, 4}},
      {"permute", ", order = [2, 0, 1]", {3, 4, 5}},
      {"identity", "", {3, 4}},
      {"sequential", ", checkpoint = true, layers = [{ type = \"linear\", out_features = 5 }, { type = \"batch_norm\" }]", {5}},
      {"lstm", ", hidden_size = 3", {4, 5}},
      {"lstm", ", hidden_size = 3, num_layers = 2, bias = false, return_sequences = false", {4, 5}},
      {"gru", ", hidden_size = 3", {4, 5}},
      {"gru", ", hidden_size = 3, num_layers = 2, bias = false, return_sequences = false", {4, 5}},
      {"encoder_decoder",
       ", source_size = 3, encoder = [{ type = \"embedding\", num_embeddings = 7, features = 4 }], decoder = [{ type = "
       "\"embedding\", "
       "num_embeddings = 7, features = 6 }, { type = \"cross_attention\", heads = 2 }]",
       {8},
       7},
      {"dropout", ", p = 0.25", {6, 5}},
      {"softmax", "", {3, 4}},
      {"log_softmax", "", {5}},
      {"batch_norm", "", {3, 7}},
      {"flatten", "", {3, 4, 2}},
      {"flatten", "", {5}},
  };
  for (const Op* op : all_ops()) {
    if (op->broadcasts && find_layer_type(op->name)) rows.push_back({std::string(op->name), "", {3, 4}});
  }
  return rows;
}

class LayerTest : public EngineTest {
 protected:
  Tensor batch_of(const SampleShape& sample, int64_t count = 4) {
    std::vector<int64_t> shape{count};
    shape.insert(shape.end(), sample.begin(), sample.end());
    return random(DType::f32, shape);
  }
  Tensor indices_of(const SampleShape& sample, int64_t below) {
    std::vector<int64_t> shape{4};
    shape.insert(shape.end(), sample.begin(), sample.end());
    std::vector<int64_t> values(static_cast<size_t>(4 * sample.at(0)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i * i) % below;
    return from_host(*backend_, shape, values);
  }
};

TEST_F(LayerTest, EveryTypeHasARow) {
  std::set<std::string_view> rows;
  const auto all = layer_rows();
  for (const LayerRow& row : all) rows.insert(row.type);
  rows.insert("cross_attention");  // within an encoder_decoder
  for (const LayerType& type : layer_types()) EXPECT_TRUE(rows.contains(type.name)) << type.name << " has no row in layer_test.cpp";
}

TEST_F(LayerTest, ComputesTheShapeThatItPromisesAndTrainsItsParameters) {
  for (const LayerRow& row : layer_rows()) {
    SCOPED_TRACE(row.type + row.keys);
    const LayerSpec spec = row.spec();
    Model model({&spec, 1}, row.input, {}, row.indices);
    model.create_tensors(0);
    Tensor x = row.indices > 0 ? indices_of(row.input, row.indices) : batch_of(row.input);
    if (row.indices == 0) x.set_requires_grad(true);
    for (const bool training : {false, true}) {
      const Tensor y = model(x, training);
      EXPECT_EQ(y.shape(0), 4);
      EXPECT_EQ(SampleShape(y.shape().begin() + 1, y.shape().end()), model.output_shape());
      if (training) backward(sum(y));
    }
    EXPECT_EQ(x.grad().defined(), row.indices == 0);
    for (const NamedTensor& parameter : model.parameters()) {
      EXPECT_TRUE(parameter.name->starts_with("layer.")) << *parameter.name;
      ASSERT_TRUE(parameter.tensor.grad()) << *parameter.name;
      EXPECT_EQ(parameter.tensor.grad().size(), parameter.tensor.size());
    }
  }
}

// The weights' gradients are one product each, over all places. Beside it the same cells with products and sums place by place: the
// terms g h are equal and |h| < 1, so two orders of adding n of them differ by at most 2 gamma_n times the sum of |g|.
TEST_F(LayerTest, RecurrentWeightsHaveTheGradientOfTheirUseAtEveryPlace) {
  constexpr int64_t kSamples = 4, kPlaces = 5, kFeatures = 3, kHidden = 6;
  const Tensor x = random(DType::f32, {kSamples, kPlaces, kFeatures}),
               upstream = random(DType::f32, {kSamples, kPlaces, kHidden}, 1);
  for (const char* type : {"lstm", "gru"}) {
    SCOPED_TRACE(type);
    const LayerSpec spec = LayerRow{type, ", hidden_size = 6", {kPlaces, kFeatures}}.spec();
    Model model({&spec, 1}, {kPlaces, kFeatures});
    model.create_tensors(0);
    std::map<std::string, Tensor> ours, beside;
    for (const NamedTensor& parameter : model.parameters()) {
      ours[*parameter.name] = parameter.tensor;
      beside[*parameter.name] = copy(parameter.tensor.detach());
      beside[*parameter.name].set_requires_grad(true);
    }
    const auto weight = [&](const char* name) { return beside.at(std::string("layer.") + name + "_l0"); };

    // The last place takes no part in the loss.
    for (const int64_t used : {kPlaces, kPlaces - 1}) {
      for (auto* parameters : {&ours, &beside})
        for (auto& [name, parameter] : *parameters) parameter.set_grad({});
      backward(sum(mul(slice(model(x, true), 1, 0, used), slice(upstream, 1, 0, used))));

      const Tensor rows = reshape(permute(x, std::array{1, 0, 2}), std::array{kPlaces * kSamples, kFeatures});
      const Tensor of_inputs = linear(rows, weight("weight_ih"), weight("bias_ih"));
      std::vector<Tensor> gates;
      Tensor hidden = call("fill", {slice(upstream, 1, 0, 1)}, {{"value", 0}}), loss;
      hidden = reshape(hidden, std::array{kSamples, kHidden});
      Tensor cell = hidden;
      for (int64_t place = 0; place < used; ++place) {
        Tensor of_input = slice(of_inputs, 0, place * kSamples, kSamples).detach();
        of_input.set_requires_grad(true);
        gates.push_back(of_input);
        const Tensor of_hidden = linear(hidden, weight("weight_hh"), weight("bias_hh"));
        if (type == std::string("lstm")) {
          const LstmState state = lstm_cell(of_input, of_hidden, cell);
          hidden = state.hidden;
          cell = state.cell;
        } else {
          hidden = gru_cell(of_input, of_hidden, hidden);
        }
        const Tensor term = sum(mul(hidden, reshape(slice(upstream, 1, place, 1), std::array{kSamples, kHidden})));
        loss = loss ? add(loss, term) : term;
      }
      backward(loss);

      const int64_t width = gates[0].shape(1), n = kSamples * used;
      std::vector<double> magnitude(static_cast<size_t>(width));
      for (const Tensor& gate : gates) {
        const std::vector<double> values = to_host(gate.grad());
        for (size_t i = 0; i < values.size(); ++i) magnitude[i % magnitude.size()] += std::abs(values[i]);
      }
      const double unit = std::ldexp(1.0, -24), gamma = static_cast<double>(n) * unit / (1 - static_cast<double>(n) * unit);
      for (const char* name : {"layer.weight_hh_l0", "layer.bias_hh_l0"}) {
        const std::vector<double> got = to_host(ours.at(name).grad()), expected = to_host(beside.at(name).grad());
        ASSERT_EQ(got.size(), expected.size());
        const size_t columns = got.size() / magnitude.size();
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_NEAR(got[i], expected[i], 2 * gamma * magnitude[i / columns]) << name << ' ' << i << " of " << used;
      }
    }
  }
}

TEST_F(LayerTest, AnElementwiseOpOfOneInputIsALayerOfItsName) {
  const Tensor x = random(DType::f32, {5, 3}, 1);
  for (const char* op : {"relu", "neg"}) {
    const LayerSpec spec = LayerRow{op, "", {3}}.spec();
    Model model({&spec, 1}, {3});
    EXPECT_EQ(to_host(model(x, true)), to_host(call(op, {x}))) << op;
    EXPECT_NE(to_host(model(x, true)), to_host(x)) << op;
  }
  // These need attributes or another input, or are no computation on elements.
  for (const char* op : {"clamp", "scale", "add", "sum", "copy", "cast", "transpose", "source", "relu_backward"}) {
    EXPECT_EQ(find_layer_type(op), nullptr) << op;
  }
}

TEST_F(LayerTest, WeightsBeginWithinTheBoundOfPyTorchWhateverStandsBefore) {
  const LayerSpec linear(*find_layer_type("linear"), "fc", {{"out_features", 64}}), relu(*find_layer_type("relu"), "0");
  const LayerSpec before[] = {relu, linear};
  Model alone({&linear, 1}, {16}), second(before, {16}), other({&linear, 1}, {16});
  alone.create_tensors(3);
  second.create_tensors(3);
  other.create_tensors(4);
  const std::vector<double> weight = to_host(alone.parameters().at(0).tensor);
  EXPECT_EQ(to_host(second.parameters().at(0).tensor), weight);
  EXPECT_NE(to_host(other.parameters().at(0).tensor), weight);
  const auto [least, most] = std::minmax_element(weight.begin(), weight.end());
  const double bound = 1 / std::sqrt(16.0);
  EXPECT_GE(*least, -bound);
  EXPECT_LT(*most, bound);
  EXPECT_LT(*least, -0.9 * bound);  // of 1024 values none below it: a chance of 0.95^1024, 10^-23
  EXPECT_GT(*most, 0.9 * bound);
}

// x + second(relu(first(x))), as a composite layer is written.
class Residual : public Layer {
 public:
  explicit Residual(const LayerArguments& a) : Layer(a) {
    SampleShape shape = add_linear("first", a.spec.integer("width"), a.input);
    shape = add_layer({*find_layer_type("relu"), "relu"}, shape).output_shape();
    add_linear("second", a.input.at(0), shape);
    set_output_shape(a.input);
  }

 private:
  const SampleShape& add_linear(const std::string& name, int64_t width, const SampleShape& input) {
    return add_layer({*find_layer_type("linear"), name, {{"out_features", width}}}, input).output_shape();
  }
  Tensor forward(const Tensor& x, bool training) override {
    Tensor inner = x;
    for (const auto& layer : layers()) inner = (*layer)(inner, training);
    return add(x, inner);
  }
};

class ModuleList : public Observer {
 public:
  void after(const OpEvent& event) override { calls.push_back(fmt::format("{} {}", event.module, event.op.name)); }
  std::vector<std::string> calls;
};

TEST_F(LayerTest, HoldsLayers) {
  const LayerType residual{"residual",
                           {LayerOption{{"width", {OptionKind::integer, {.low = 1}, {}}, "", "required"}, std::nullopt, true}},
                           [](const LayerArguments& a) -> std::unique_ptr<Layer> { return std::make_unique<Residual>(a); }};
  const LayerSpec block(residual, "block", {{"width", 7}});
  Model model({&block, 1}, {5});
  EXPECT_THAT(model.module_paths(), ElementsAre("", "block", "block.first", "block.relu", "block.second"));
  model.create_tensors(0);
  std::vector<std::string> names;
  for (const NamedTensor& parameter : model.parameters()) names.push_back(*parameter.name + " in " + *parameter.module);
  EXPECT_THAT(names, ElementsAre("block.first.weight in block.first", "block.first.bias in block.first",
                                 "block.second.weight in block.second", "block.second.bias in block.second"));

  const Tensor x = batch_of({5});
  const auto p = model.parameters();
  const Tensor hidden = relu(call("linear", {x, p[0].tensor, p[1].tensor}));
  const std::vector<double> expected = to_host(add(x, call("linear", {hidden, p[2].tensor, p[3].tensor})));
  ModuleList modules;
  context_.observers.push_back(&modules);
  EXPECT_EQ(to_host(model(x, true)), expected);
  EXPECT_THAT(modules.calls, ElementsAre("block.first linear", "block.relu relu", "block.second linear", "block add"));

  try {
    const Model images({&block, 1}, {5, 2, 2});
    FAIL() << "a linear layer takes no images";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "block (residual): first (linear): expected samples of [features] or [places, features] (put a flatten before it), "
        "got [5, 2, 2]");
  }
}

// Scores of 102,400 in a head of 64 features, by the formulas of torch 2.13's scaled_dot_product_attention (math path) and
// MultiheadAttention: FP16 holds them behind a division only, and then each query weighs its equal keys alike.
TEST_F(LayerTest, KindsOfAttentionScaleTheirScoresWhereTheirLibrariesDo) {
  Autocast fp16({DType::f16, nullptr, {}, {}});
  const AutocastScope scope(&fp16);
  const int64_t shape[] = {1, 1, 3, 64};
  const Tensor x = from_host(*context().backend, DType::f16, shape, std::vector<double>(3 * 64, 40));
  const auto attend = [&](AttentionKind kind) { return to_host(scaled_dot_product_attention(x, x, x, {.kind = kind})); };
  EXPECT_THAT(attend(AttentionKind::sdpa), Each(40));
  EXPECT_THAT(attend(AttentionKind::mha), Each(40));
  EXPECT_THAT(attend(AttentionKind::explicit_scores), Each(IsNan()));
  // 64 * 300 * 300 / 8 is Inf in FP16 wherever it is divided, and FP32 holds it.
  const Tensor larger = from_host(*context().backend, DType::f16, shape, std::vector<double>(3 * 64, 300));
  const auto of_larger = [&](AttentionKind kind) {
    return to_host(scaled_dot_product_attention(larger, larger, x, {.kind = kind}));
  };
  EXPECT_THAT(of_larger(AttentionKind::sdpa), Each(40));
  EXPECT_THAT(of_larger(AttentionKind::mha), Each(IsNan()));
}

// torch 2.13: _safe_softmax in the math path of scaled_dot_product_attention, softmax in MultiheadAttention.
TEST_F(LayerTest, AQueryWithoutKeysGetsZerosOrNan) {
  const Tensor x = random(DType::f32, {1, 1, 3, 4}, 3), none = attention_mask(3, 3, true, 2);
  for (const std::optional<double> value : {std::optional<double>(), std::optional(-1e9)}) {
    SCOPED_TRACE(value.has_value());
    Autocast fp16({DType::f16, nullptr, {}, {}});
    const AutocastScope scope(&fp16);  // in which -1e9 is -Inf
    const auto first_query = [&](AttentionKind kind) {
      std::vector<double> values = to_host(scaled_dot_product_attention(x, x, x, {kind, none, value}));
      values.resize(4);
      return values;
    };
    EXPECT_THAT(first_query(AttentionKind::sdpa), Each(0));
    EXPECT_THAT(first_query(AttentionKind::mha), Each(IsNan()));
    EXPECT_THAT(first_query(AttentionKind::explicit_scores), Each(IsNan()));
  }
}

// Attention by its definition, for one head after another.
TEST_F(LayerTest, AttentionIsWhatItsDefinitionSays) {
  constexpr int64_t kPlaces = 5, kFeatures = 6, kHeads = 2, kWidth = kFeatures / kHeads;
  struct Mask {
    bool causal;
    int64_t padding;
    double value;  // -INFINITY: masked by softmax
  };
  // With a finite value places that see nothing see what is masked, all alike.
  for (const auto& [causal, padding, value] :
       {Mask{false, 0, -INFINITY}, Mask{true, 0, -INFINITY}, Mask{false, 2, -INFINITY}, Mask{true, 0, -64}, Mask{true, 2, -64}}) {
    std::string keys = fmt::format(", heads = 2, causal = {}, padding = {}", causal, padding);
    if (std::isfinite(value)) keys += fmt::format(", mask_value = {}", value);
    SCOPED_TRACE(keys);
    const LayerRow row{"attention", keys, {kPlaces, kFeatures}};
    const LayerSpec spec = row.spec();
    Model model({&spec, 1}, row.input);
    model.create_tensors(1);
    const auto p = model.parameters();
    const Tensor x = random(DType::f32, {1, kPlaces, kFeatures}, 3);
    const std::vector<double> actual = to_host(model(x, true));
    const std::vector<double> in = to_host(x), wqkv = to_host(p[0].tensor), bqkv = to_host(p[1].tensor),
                              wout = to_host(p[2].tensor), bout = to_host(p[3].tensor);
    const auto project = [&](const std::vector<double>& values, int64_t place, const std::vector<double>& w,
                             const std::vector<double>& b, int64_t feature) {
      double sum = b[static_cast<size_t>(feature)];
      for (int64_t k = 0; k < kFeatures; ++k)
        sum += values[static_cast<size_t>(place * kFeatures + k)] * w[static_cast<size_t>(feature * kFeatures + k)];
      return sum;
    };
    std::vector<double> together(kPlaces * kFeatures);
    for (int64_t head = 0; head < kHeads; ++head) {
      for (int64_t i = 0; i < kPlaces; ++i) {
        std::vector<double> weights;
        double total = 0;
        for (int64_t j = 0; j < kPlaces; ++j) {
          double score = 0;
          for (int64_t c = 0; c < kWidth; ++c)
            score += project(in, i, wqkv, bqkv, head * kWidth + c) * project(in, j, wqkv, bqkv, kFeatures + head * kWidth + c);
          const double mask = j < padding || (causal && j > i) ? value : 0;
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(kWidth)) + mask));
          total += weights.back();
        }
        for (int64_t c = 0; c < kWidth; ++c)
          for (size_t j = 0; j < weights.size(); ++j)
            together[static_cast<size_t>(i * kFeatures + head * kWidth + c)] +=
                weights[j] / total * project(in, static_cast<int64_t>(j), wqkv, bqkv, 2 * kFeatures + head * kWidth + c);
      }
    }
    // Sums of at most 6 products, four one after another, of numbers below 4: within 2^-24 * 4 * 6 * 4 * 4. A score with 64 taken
    // off is rounded to within 2^-18, and weights of it change by as much of themselves, twice for their sum.
    const double bound = 384 * 0x1p-24 + (std::isfinite(value) ? 2 * 0x1p-18 * 4 : 0);
    for (int64_t i = 0; i < kPlaces; ++i)
      for (int64_t c = 0; c < kFeatures; ++c)
        EXPECT_NEAR(actual[static_cast<size_t>(i * kFeatures + c)], project(together, i, wout, bout, c), bound);
  }
}

// Layers that can be made of one op or of several: as the formula says, within 2^-22 of it for sums of five and four roundings.
TEST_F(LayerTest, FormulasOpByOpAreWhatTheySay) {
  const Tensor x = batch_of({5});
  const std::vector<double> in = to_host(x);
  const auto output_of = [&](const char* type, const char* keys) {
    const LayerSpec spec = LayerRow{type, keys, {5}}.spec();
    Model model({&spec, 1}, {5});
    model.create_tensors(0);
    return to_host(model(x, true));
  };
  const std::vector<double> shares = output_of("softmax", ", subtract_max = false"),
                            normed = output_of("rms_norm", ", fused = false, eps = 0.5"),
                            product = output_of("branches", R"(, join = "mul", layers = [{ type = "exp" }, { type = "neg" }])");
  for (size_t row = 0; row < in.size(); row += 5) {
    double exponentials = 0, squares = 0;
    for (size_t i = row; i < row + 5; ++i) exponentials += std::exp(in[i]), squares += in[i] * in[i];
    for (size_t i = row; i < row + 5; ++i) {
      const auto close_to = [](double expected) { return ::testing::DoubleNear(expected, std::abs(expected) * 0x1p-22); };
      EXPECT_THAT(shares[i], close_to(std::exp(in[i]) / exponentials));
      EXPECT_THAT(normed[i], close_to(in[i] / std::sqrt(squares / 5 + 0.5)));
      EXPECT_THAT(product[i], close_to(-in[i] * std::exp(in[i])));
    }
  }
}

TEST_F(LayerTest, BlocksNameTheirModulesAndSayWhatDoesNotFit) {
  const auto model_of = [](const std::string& layers, const SampleShape& input, int64_t indices = 0) {
    const std::vector<LayerSpec> specs = parse_experiment("model.layers = [" + layers + "]", "run.toml").model.layers;
    return std::make_unique<Model>(specs, input, std::nullopt, indices);
  };
  const auto blocks = model_of(R"({ type = "sequential", name = "blocks", repeat = 2, layers = [
      { type = "residual", name = "r", layers = [{ type = "linear", out_features = 5 }], shortcut = [{ type = "relu" }] } ] })",
                               {5});
  EXPECT_THAT(blocks->module_paths(),
              ElementsAre("", "blocks", "blocks.0", "blocks.0.r", "blocks.0.r.0", "blocks.0.r.shortcut", "blocks.0.r.shortcut.0",
                          "blocks.1", "blocks.1.r", "blocks.1.r.0", "blocks.1.r.shortcut", "blocks.1.r.shortcut.0"));
  const auto error_of = [&](const std::string& layers, const SampleShape& input, int64_t indices = 0) -> std::string {
    try {
      model_of(layers, input, indices);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of(R"({ type = "residual", layers = [{ type = "linear", out_features = 3 }] })", {5}),
            "run.toml:1: model.layers[0] (residual): expected layers and shortcut to give the same shape, got [3] and [5]");
  EXPECT_EQ(error_of(R"({ type = "linear", out_features = 3 })", {5}, 7),
            "run.toml:1: model.layers[0] (linear): expected values, got indices below 7 of [5] (put an embedding before it)");
  EXPECT_EQ(
      error_of(R"({ type = "embedding", num_embeddings = 6, features = 3 })", {5}, 7),
      "run.toml:1: model.layers[0] (embedding): expected num_embeddings of at least 7, a row for each index of the data, got 6");
  EXPECT_EQ(error_of(R"({ type = "embedding", num_embeddings = 7, features = 3 })", {5}),
            "run.toml:1: model.layers[0] (embedding): expected indices, as text has them, got [5]");
  EXPECT_EQ(error_of(R"({ type = "attention", heads = 3 })", {4, 8}),
            "run.toml:1: model.layers[0] (attention): expected features that 3 heads share equally, got [4, 8]");
  EXPECT_EQ(error_of(R"({ type = "sequential", layers = [{ type = "relu" }, { type = "linear", out_featres = 3 }] })", {5}),
            "run.toml:1: model.layers[0].layers[1]: linear has no key 'out_featres'; did you mean 'out_features'?");
  EXPECT_EQ(error_of(R"({ type = "branches", layers = [{ type = "identity" }, { type = "linear", out_features = 3 }] })", {5}),
            "run.toml:1: model.layers[0] (branches): expected branches that give the same shape, got [5] and [3]");
  EXPECT_EQ(error_of(R"({ type = "branches", dim = 1, layers = [{ type = "identity" }, { type = "identity" }] })", {5}),
            "run.toml:1: model.layers[0] (branches): dim belongs to join = \"concat\"; join is \"add\"");
  EXPECT_EQ(
      error_of(R"({ type = "branches", join = "concat", layers = [{ type = "identity" }, { type = "max_pool2d", kernel = 2 }] })",
               {3, 4, 4}),
      "run.toml:1: model.layers[0] (branches): expected branches that give the same shape but for dimension 0, got [3, 4, 4] and "
      "[3, 2, 2]");
  EXPECT_EQ(error_of(R"({ type = "reshape", shape = [4, -1] })", {5, 6}),
            "run.toml:1: model.layers[0] (reshape): expected a sample with the elements of [4, -1], got [5, 6]");
  EXPECT_EQ(error_of(R"({ type = "permute", order = [0, 0] })", {5, 6}),
            "run.toml:1: model.layers[0] (permute): order: expected each dimension once, found 0 twice or more in [0, 0]");
  EXPECT_EQ(error_of(R"({ type = "reshape", shape = [-1, -1] })", {5, 6}),
            "run.toml:1: model.layers[0] (reshape): shape: expected at most one extent that is -1, found [-1, -1]");
  EXPECT_EQ(error_of(R"({ type = "conv2d", out_channels = 6, kernel = 1, groups = 4 })", {6, 2, 2}),
            "run.toml:1: model.layers[0] (conv2d): expected channels that 4 groups share equally, got [6, 2, 2]");
  EXPECT_EQ(error_of(R"({ type = "conv1d", out_channels = 6, kernel = 3, dilation = 2 })", {6, 4}),
            "run.toml:1: model.layers[0] (conv1d): expected a length of at least the kernel, 5, with padding 0, got [6, 4]");
  EXPECT_EQ(
      error_of(R"({ type = "conv_transpose2d", out_channels = 6, kernel = 3, output_padding = 1 })", {6, 4, 4}),
      "run.toml:1: model.layers[0] (conv_transpose2d): output_padding: expected less than the stride or the dilation, found 1 x 1");
  EXPECT_EQ(error_of(R"({ type = "group_norm", groups = 4 })", {6, 2, 2}),
            "run.toml:1: model.layers[0] (group_norm): expected channels that 4 groups share equally, got [6, 2, 2]");
  EXPECT_EQ(error_of(R"({ type = "sequential" })", {5}),
            "run.toml:1: model.layers[0]: sequential needs layers: expected a list of layers");
  EXPECT_EQ(error_of(R"({ type = "sequential", layers = 3 })", {5}),
            "run.toml:1: model.layers[0].layers: expected a list of tables, found 3");
}

}  // namespace
}  // namespace ulpscope
