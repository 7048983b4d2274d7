// Models: the presets' sizes, and shapes that fit or do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ulpscope/base/error.h"
#include "ulpscope/core/run/experiment.h"

namespace ulpscope {
namespace {

using Shape = std::vector<int64_t>;

Experiment with_layers(const std::string& layers) { return parse_experiment("model.layers = [" + layers + "]", "run.toml"); }

std::string shape_error(const std::string& layers, const Shape& input) {
  try {
    check_shapes(with_layers(layers), input);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "no error";
}

// Learnable parameters, from the shapes.
int64_t parameters_of(const Experiment& experiment, const Shape& input) {
  const std::vector<LayerShape> shapes = check_shapes(experiment, input);
  int64_t count = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const LayerSpec& layer = experiment.model.layers[i];
    const int64_t in = shapes[i].input[0];
    if (layer.type == LayerType::linear) count += in * layer.out + layer.out;
    if (layer.type == LayerType::conv2d) count += in * layer.out * layer.kernel_y * layer.kernel_x + layer.out;
    if (layer.type == LayerType::batch_norm) count += 2 * in;
  }
  return count;
}

// What PyTorch counts in the same models.
TEST(ModelPresets, HaveAsManyParametersAsInPyTorch) {
  EXPECT_EQ(parameters_of(*find_preset("mlp"), {128}), 101386);
  EXPECT_EQ(parameters_of(*find_preset("mlp_big"), {784}), 1863690);
  EXPECT_EQ(parameters_of(*find_preset("conv_sine"), {2, 128, 128}), 134145);
  EXPECT_EQ(parameters_of(*find_preset("fashion_cnn"), {1, 28, 28}), 421642);
}

TEST(ModelPresets, FitTheirData) {
  for (const std::string& name : preset_names()) {
    const Experiment experiment = *find_preset(name);
    if (experiment.data.kind == DataKind::fashion_mnist) continue;  // may not be installed
    EXPECT_NO_THROW(check_shapes(experiment, *open_data(experiment.data, experiment.seed).train)) << name;
  }
  Experiment generated = *find_preset("fashion_cnn");
  apply_override(generated, "data.kind=random_classification");
  apply_override(generated, "data.shape=1,28,28");
  EXPECT_NO_THROW(check_shapes(generated, *open_data(generated.data, 0).train));
}

TEST(Shapes, FollowPyTorchsRules) {
  const Experiment experiment = with_layers(
      "{ type = \"conv2d\", out_channels = 4, kernel = [3, 5], stride = 2, padding = [1, 0] }, { type = \"batch_norm\" },"
      "{ type = \"max_pool2d\", kernel = 3, stride = 2, padding = 1 }, { type = \"relu\" }, { type = \"flatten\" },"
      "{ type = \"linear\", out_features = 7 }");
  const std::vector<LayerShape> shapes = check_shapes(experiment, {2, 11, 12});
  ASSERT_EQ(shapes.size(), 6u);
  EXPECT_EQ(shapes[0].output, (Shape{4, 6, 4}));  // (11 + 2 - 3) / 2 + 1, (12 - 5) / 2 + 1
  EXPECT_EQ(shapes[1].output, (Shape{4, 6, 4}));
  EXPECT_EQ(shapes[2].output, (Shape{4, 3, 2}));
  EXPECT_EQ(shapes[4].output, (Shape{24}));
  EXPECT_EQ(shapes[5].input, (Shape{24}));
  EXPECT_EQ(shapes[5].output, (Shape{7}));
}

TEST(Shapes, MismatchesNameTheLayerWhatCameAndWhatWasExpected) {
  EXPECT_EQ(shape_error("{ type = \"relu\" }, { type = \"linear\", in_features = 10, out_features = 2 }", {12}),
            "model.layers[1] (linear): expected in_features = 10, got [12]");
  EXPECT_EQ(shape_error("{ type = \"linear\", out_features = 2, name = \"classifier\" }", {1, 28, 28}),
            "model.layers[0] \"classifier\" (linear): expected samples of [features] (put a flatten before it), got [1, 28, 28]");
  EXPECT_EQ(shape_error("{ type = \"conv2d\", in_channels = 3, out_channels = 2, kernel = 1 }", {1, 4, 4}),
            "model.layers[0] (conv2d): expected in_channels = 3, got [1, 4, 4]");
  EXPECT_EQ(shape_error("{ type = \"conv2d\", out_channels = 2, kernel = 5, padding = [1, 0] }", {1, 4, 4}),
            "model.layers[0] (conv2d): expected an image of at least the kernel, 5 x 5, with padding 1 x 0, got [1, 4, 4]");
  EXPECT_EQ(shape_error("{ type = \"max_pool2d\", kernel = 2 }", {16}),
            "model.layers[0] (max_pool2d): expected samples of [channels, height, width], got [16]");
  EXPECT_EQ(shape_error("{ type = \"max_pool2d\", kernel = 2, padding = 2 }", {1, 4, 4}),
            "model.layers[0] (max_pool2d): padding: expected at most half the kernel of 2 x 2, found 2 x 2");
  EXPECT_EQ(shape_error("{ type = \"max_pool2d\", kernel = 12 }", {1, 40, 40}),
            "model.layers[0] (max_pool2d): kernel: expected at most 128 elements, found 12 x 12");
  EXPECT_EQ(shape_error("{ type = \"batch_norm\", features = 3 }", {2, 4, 4}),
            "model.layers[0] (batch_norm): expected features = 3, got [2, 4, 4]");
  EXPECT_THAT(shape_error("{ type = \"conv2d\", out_channels = 2147483648, kernel = 1 }", {1, 4096, 4096}),
              ::testing::HasSubstr("larger than the 2147483648 elements"));
}

TEST(Shapes, ModelAndLossMustFitTheTargets) {
  const auto error_of = [](std::vector<std::string> overrides) {
    Experiment experiment = *find_preset("mlp");
    apply_override(experiment, "data.train_size=4");
    apply_override(experiment, "data.test_size=4");
    for (const std::string& assignment : overrides) apply_override(experiment, assignment);
    try {
      check_shapes(experiment, *open_data(experiment.data, 0).train);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error_of({}), "no error");
  EXPECT_EQ(error_of({"data.classes=11"}), "model: expected an output of [11], one logit for each class of the data, got [10]");
  EXPECT_EQ(error_of({"loss.function=mse"}), "loss.function: mse needs values, the data has labels; expected cross_entropy");
  EXPECT_EQ(error_of({"data.shape=64"}), "model.layers[0] (linear): expected in_features = 128, got [64]");
  const std::string sine = "data.kind=quantized_sine";
  EXPECT_EQ(error_of({sine, "model.preset=conv_sine"}),
            "loss.function: cross_entropy needs labels, the data has values; expected mse");
  EXPECT_EQ(error_of({sine, "model.preset=conv_sine", "loss.function=mse"}), "no error");
}

TEST(AutocastOverrides, NameKnownOps) {
  Experiment experiment = *find_preset("mlp");
  const std::vector<std::string> ops{"linear", "conv2d"};
  EXPECT_NO_THROW(check_op_names(experiment, ops));
  experiment.autocast.ops["liner"] = Precision::fp32;
  try {
    check_op_names(experiment, ops);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "autocast.ops: unknown op 'liner'; did you mean 'linear'?");
  }
}

}  // namespace
}  // namespace ulpscope
