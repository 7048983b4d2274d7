// From an experiment to its model: the presets' sizes, and what does not fit together.
#include "ulpscope/core/run/build_model.h"

#include <gmock/gmock.h>

#include "tests/support/engine_fixture.h"

namespace ulpscope {
namespace {

using ::testing::HasSubstr;

template <typename Body>
std::string model_error(Body body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "no error";
}

std::vector<LayerSpec> layers_of(const std::string& layers) {
  return parse_experiment("model.layers = [" + layers + "]", "run.toml").model.layers;
}

std::string shape_error(const std::string& layers, const SampleShape& input) {
  return model_error([&] { Model(layers_of(layers), input); });
}

// What the preset "mlp", on a few generated samples, has against these settings.
std::string build_error(const std::vector<Override>& overrides) {
  Experiment experiment = *find_preset("mlp");
  apply_override(experiment, "data.train_size=4");
  apply_override(experiment, "data.test_size=4");
  for (const Override& setting : overrides) apply_override(experiment, setting);
  return model_error([&] { build_model(experiment, *open_data(experiment.data, 0).train); });
}

class ModelPresets : public EngineTest {
 protected:
  int64_t parameters_of(const std::string& preset, const SampleShape& input, int64_t indices = 0) {
    Model model(find_preset(preset)->model.layers, input, {}, indices);
    model.create_tensors(0);
    int64_t count = 0;
    for (const NamedTensor& parameter : model.parameters()) count += parameter.tensor.size();
    return count;
  }
};

// What PyTorch counts in the same models.
TEST_F(ModelPresets, HaveAsManyParametersAsInPyTorch) {
  EXPECT_EQ(parameters_of("mlp", {128}), 101386);
  EXPECT_EQ(parameters_of("mlp_big", {784}), 1863690);
  EXPECT_EQ(parameters_of("conv_sine", {2, 128, 128}), 134145);
  EXPECT_EQ(parameters_of("fashion_cnn", {1, 28, 28}), 421642);
  EXPECT_EQ(parameters_of("gpt_mini", {128}, 256), 875264);
  EXPECT_EQ(parameters_of("resnet20", {3, 32, 32}), 272474);
  EXPECT_EQ(parameters_of("autoencoder", {1, 28, 28}), 111521);
}

TEST_F(ModelPresets, FitTheirData) {
  for (const std::string& name : preset_names()) {
    Experiment experiment = *find_preset(name);
    if (experiment.data.kind == DataKind::fashion_mnist) {  // may not be installed
      apply_override(experiment, "data.kind=random_classification");
      apply_override(experiment, "data.shape=1,28,28");
      apply_override(experiment, "data.train_size=4");
    }
    EXPECT_NO_THROW(build_model(experiment, *open_data(experiment.data, experiment.seed).train)) << name;
  }
}

TEST(BuildModel, RefusesAModelWithNothingToTrain) {
  Experiment experiment = *find_preset("mlp");
  experiment.model.layers = layers_of("{ type = \"neg\" }");
  experiment.data.shape = {10};
  experiment.data.train_size = experiment.data.test_size = 4;
  EXPECT_EQ(model_error([&] { build_model(experiment, *open_data(experiment.data, 0).train); }),
            "preset mlp: model: expected a layer with parameters, found nothing to train");
}

// One value has no variance. PyTorch refuses it as well, when it gets there.
TEST(Shapes, BatchNormNeedsTwoValuesForEachChannel) {
  Experiment experiment = *find_preset("mlp");
  experiment.model.layers = layers_of("{ type = \"batch_norm\" }, { type = \"linear\", out_features = 10 }");
  apply_override(experiment, "data.test_size=4");
  apply_override(experiment, "data.train_size=9");
  apply_override(experiment, "training.batch_size=4");
  const auto error = [&] { return model_error([&] { build_model(experiment, *open_data(experiment.data, 0).train); }); };
  EXPECT_EQ(error(),
            "--set data.train_size=9, --set training.batch_size=4: run.toml:1: model.layers[0] (batch_norm): expected at least 2 "
            "samples in every training batch, got a batch of 1 "
            "(data.drop_last = true leaves out a smaller last one)");
  apply_override(experiment, "training.steps=2");
  EXPECT_EQ(error(), "no error") << "the last batch is not reached";
  apply_override(experiment, "training.steps=3");
  EXPECT_THAT(error(), HasSubstr("batch of 1"));
  apply_override(experiment, "data.drop_last=true");
  EXPECT_EQ(error(), "no error");
}

TEST(Shapes, FollowPyTorchsRules) {
  const std::vector<LayerSpec> layers = layers_of(
      "{ type = \"conv2d\", out_channels = 4, kernel = [3, 5], stride = 2, padding = [1, 0] }, { type = \"batch_norm\" },"
      "{ type = \"max_pool2d\", kernel = 3, stride = 2, padding = 1 }, { type = \"relu\" }, { type = \"flatten\" },"
      "{ type = \"linear\", out_features = 7 }");
  const auto after = [&](size_t count) { return Model(std::span(layers).first(count), {2, 11, 12}).output_shape(); };
  EXPECT_EQ(after(0), (SampleShape{2, 11, 12}));
  EXPECT_EQ(after(1), (SampleShape{4, 6, 4}));  // (11 + 2 - 3) / 2 + 1, (12 - 5) / 2 + 1
  EXPECT_EQ(after(2), (SampleShape{4, 6, 4}));
  EXPECT_EQ(after(3), (SampleShape{4, 3, 2}));
  EXPECT_EQ(after(4), (SampleShape{4, 3, 2}));
  EXPECT_EQ(after(5), (SampleShape{24}));
  EXPECT_EQ(after(6), (SampleShape{7}));
}

TEST(Shapes, MismatchesNameTheFileTheLayerWhatCameAndWhatWasExpected) {
  EXPECT_EQ(shape_error("{ type = \"relu\" }, { type = \"linear\", in_features = 10, out_features = 2 }", {12}),
            "run.toml:1: model.layers[1] (linear): expected in_features = 10, got [12]");
  EXPECT_EQ(shape_error("{ type = \"relu\" },\n{ type = \"linear\", out_features = 2, name = \"classifier\" }", {1, 28, 28}),
            "run.toml:2: model.layers[1] \"classifier\" (linear): expected samples of [features] or [places, features] "
            "(put a flatten before it), got "
            "[1, 28, 28]");
  EXPECT_EQ(shape_error("{ type = \"conv2d\", in_channels = 3, out_channels = 2, kernel = 1 }", {1, 4, 4}),
            "run.toml:1: model.layers[0] (conv2d): expected in_channels = 3, got [1, 4, 4]");
  EXPECT_EQ(
      shape_error("{ type = \"conv2d\", out_channels = 2, kernel = 5, padding = [1, 0] }", {1, 4, 4}),
      "run.toml:1: model.layers[0] (conv2d): expected an image of at least the kernel, 5 x 5, with padding 1 x 0, got [1, 4, 4]");
  EXPECT_THAT(shape_error("{ type = \"conv2d\", out_channels = 2, kernel = 3, stride = 4 }", {1, 2, 4}),
              HasSubstr("expected an image of at least the kernel"));
  EXPECT_EQ(shape_error("{ type = \"max_pool2d\", kernel = 2 }", {16}),
            "run.toml:1: model.layers[0] (max_pool2d): expected samples of [channels, height, width], got [16]");
  EXPECT_EQ(shape_error("{ type = \"max_pool2d\", kernel = 2, padding = 2 }", {1, 4, 4}),
            "run.toml:1: model.layers[0] (max_pool2d): padding: expected at most half the kernel of 2 x 2, found 2 x 2");
  EXPECT_EQ(shape_error("{ type = \"max_pool2d\", kernel = 12 }", {1, 40, 40}),
            "run.toml:1: model.layers[0] (max_pool2d): kernel: expected at most 128 elements, found 12 x 12");
  EXPECT_EQ(shape_error("{ type = \"batch_norm\", features = 3 }", {2, 4, 4}),
            "run.toml:1: model.layers[0] (batch_norm): expected features = 3, got [2, 4, 4]");
  EXPECT_THAT(shape_error("{ type = \"conv2d\", out_channels = 2147483648, kernel = 1 }", {1, 4096, 4096}),
              HasSubstr("(conv2d): its output of [2147483648, 4096, 4096] is larger than the 2147483648 elements"));
  EXPECT_THAT(shape_error("{ type = \"linear\", out_features = 2147483648 }", {2}),
              HasSubstr("(linear): its weight has 4.29e+09 elements, more than the 2147483648"));
}

TEST(Shapes, ModelAndLossMustFitTheTargets) {
  EXPECT_EQ(build_error({}), "no error");
  EXPECT_EQ(
      build_error({"data.classes=11"}),
      "preset mlp, --set data.classes=11: model: expected an output of [11] or more, a logit for each class of the data, got [10]");
  EXPECT_EQ(
      build_error({"loss.function=mse"}),
      "preset mlp, --set loss.function=mse: loss.function: mse needs values, the data has labels; expected cross_entropy or nll");
  EXPECT_EQ(
      build_error({"data.shape=64"}),
      "--set data.shape=64, --set data.train_size=4: preset mlp:7: model.layers[0] (linear): expected in_features = 128, got [64]");
  const std::string sine = "data.kind=quantized_sine", model = "model.preset=conv_sine";
  EXPECT_EQ(build_error({sine, model}),
            "preset mlp, --set data.kind=quantized_sine, --set model.preset=conv_sine: loss.function: cross_entropy needs labels, "
            "the data "
            "has values; expected mse, l1, huber, bce_with_logits, binary_cross_entropy or kl_div");
  EXPECT_EQ(build_error({sine, model, "loss.function=mse"}), "no error");
}

// A filter or an override that matches nothing would do nothing, and nobody would see it.
TEST(Names, OfParametersAndModulesStandForOne) {
  const auto error_of = [](const std::string& layers) {
    Experiment experiment = *find_preset("mlp");
    experiment.model.layers = layers_of(layers);
    return model_error([&] { build_model(experiment, *open_data(experiment.data, 0).train); });
  };
  const std::string linear = R"({ type = "linear", out_features = 128 })";
  EXPECT_EQ(error_of(R"({ type = "residual", name = "r", layers = [{ type = "sequential", name = "shortcut", layers = [)" + linear +
                     "] }], shortcut = [" + linear + "] }"),
            "preset mlp: model: two modules are called 'r.shortcut'; expected other names of layers");
  EXPECT_EQ(error_of(R"({ type = "sequential", name = "a", layers = [{ type = "relu", name = "b" }] },
                        { type = "linear", name = "a.b", out_features = 10 })"),
            "preset mlp: model: two modules are called 'a.b'; expected other names of layers");
}

TEST(Names, OfModulesAndOpsHaveToMatchSomething) {
  for (const char* fits : {"recording.modules=0,4", "recording.modules=*", "recording.modules=?", "recording.ops=linear,*_backward",
                           "autocast.modules.4=fp32", "autocast.modules.\"*\"=fp32", "autocast.ops.linear=fp32"}) {
    EXPECT_EQ(build_error({fits}), "no error") << fits;
  }
  EXPECT_EQ(build_error({"recording.modules=0,layer"}),
            "preset mlp, --set recording.modules=0,layer: recording.modules: no module of the model matches 'layer'; expected 0, "
            "1, 2, 3 or 4");
  EXPECT_EQ(build_error({"autocast.modules.features.*=fp32"}),
            "preset mlp, --set autocast.modules.features.*=fp32: autocast.modules: no module of the model matches 'features.*'; "
            "expected 0, 1, 2, 3 or 4");
  EXPECT_EQ(build_error({"recording.ops=linear,lineer"}),
            "preset mlp, --set recording.ops=linear,lineer: recording.ops: no op matches 'lineer'; did you mean 'linear'?");
  EXPECT_THAT(build_error({"recording.ops=swish*"}), HasSubstr("no op matches 'swish*'"));
  EXPECT_EQ(build_error({"autocast.ops.liner=fp32"}),
            "preset mlp, --set autocast.ops.liner=fp32: autocast.ops: unknown op 'liner'; did you mean 'linear'?");
}

}  // namespace
}  // namespace ulpscope
