#include "ulpscope/core/run/build_model.h"

#include <algorithm>
#include <set>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

void check_targets(const Experiment& experiment, const SampleShape& output, const Dataset& dataset) {
  const LossType& loss = type_of(experiment.loss.function);
  const TargetKind kind = dataset.target_kind();
  if (loss.targets != kind) {
    std::vector<std::string> fitting;
    for (const LossType& type : loss_types())
      if (type.targets == kind) fitting.emplace_back(type.name);
    throw usage_error("loss.function: {} needs {}, the data has {}; expected {}", loss.name, name_of(loss.targets), name_of(kind),
                      join_words(fitting, "or"));
  }
  if (kind == TargetKind::labels) {
    const std::vector<int64_t>& target = dataset.target_shape();
    const bool fits = output.size() == target.size() + 1 && std::equal(target.begin(), target.end(), output.begin());
    if (!fits || output.back() < dataset.classes()) {
      SampleShape expected = target;
      expected.push_back(dataset.classes());
      throw usage_error("model: expected an output of {} or more, a logit for each class of the data, got {}",
                        describe_shape(expected), describe_shape(output));
    }
  } else if (output != dataset.target_shape()) {
    throw usage_error("model: expected an output of {}, the shape of the targets, got {}", describe_shape(dataset.target_shape()),
                      describe_shape(output));
  }
}

// Each of `patterns` has to match one of `names`, of which "" stands for what lies outside of modules.
void check_patterns(std::string_view what, const std::vector<std::string>& patterns, std::vector<std::string> names) {
  for (const std::string& pattern : patterns) {
    if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return glob_match(pattern, name); })) continue;
    std::erase(names, "");
    throw usage_error("no {} matches '{}'{}", what, one_line(pattern), did_you_mean_or_expected(pattern, names));
  }
}

// A filter or an override without effect is a mistake.
void check_names(const Experiment& experiment, const Model& model) {
  const std::vector<std::string> modules = model.module_paths();
  std::vector<std::string> ops, cast_modules, arithmetic_modules;
  for (const Op* op : all_ops()) ops.emplace_back(op->name);
  for (const auto& [pattern, precision] : experiment.autocast.modules) cast_modules.push_back(pattern);
  for (const auto& [pattern, change] : experiment.arithmetic.modules) arithmetic_modules.push_back(pattern);
  const auto check = [&](std::string_view key, auto body) {
    at_place(fmt::format("{}: {}", experiment.place_of({key}), key), body);
  };
  check("autocast.ops", [&] {
    for (const auto& [op, precision] : experiment.autocast.ops) find_op(op);
  });
  check("autocast.modules", [&] { check_patterns("module of the model", cast_modules, modules); });
  check("arithmetic.ops", [&] { ArithmeticRules{experiment.arithmetic}; });
  check("arithmetic.modules", [&] { check_patterns("module of the model", arithmetic_modules, modules); });
  check("recording.modules", [&] { check_patterns("module of the model", experiment.recording.modules, modules); });
  check("recording.ops", [&] { check_patterns("op", experiment.recording.ops, ops); });
  check("shadow.ops", [&] { check_patterns("op", experiment.shadow.ops, ops); });
}

// Names of tensors and paths of modules stand for what they name, in files and in recordings.
void check_paths(const Model& model) {
  std::set<std::string_view> seen;
  const auto check = [&](std::string_view what, std::string_view name) {
    if (!seen.insert(name).second)
      throw usage_error("model: two {} are called '{}'; expected other names of layers", what, one_line(name));
  };
  const std::vector<std::string> paths = model.module_paths();
  for (const std::string& path : paths) check("modules", path);
  seen.clear();
  for (const NamedTensor& parameter : model.parameters()) check("parameters", *parameter.name);
  for (const NamedTensor& buffer : model.buffers()) check("buffers", *buffer.name);
}

int64_t smallest_batch(const Experiment& experiment, const Dataset& dataset) {
  const int64_t size = experiment.training.batch_size, whole = dataset.size() / size, rest = dataset.size() % size;
  const bool reached = experiment.training.steps == 0 || experiment.training.steps * experiment.training.accumulation > whole;
  return rest > 0 && reached && !experiment.data.drop_last ? rest : size;
}

// An override of autocast takes a layer out, whatever the type.
std::shared_ptr<const Fp8Layers> fp8_layers(const Experiment& experiment) {
  if (!row_of(experiment.precision).fp8 || experiment.autocast.ops.contains("linear")) return nullptr;
  auto layers = std::make_shared<Fp8Layers>();
  layers->settings = experiment.fp8;
  for (const auto& [pattern, precision] : experiment.autocast.modules) layers->excluded.push_back(pattern);
  return layers;
}

void keep_attention_of(std::vector<LayerSpec>& layers, AttentionKind of_precision) {
  for (LayerSpec& layer : layers) {
    for (std::vector<LayerSpec>& within : layer.lists) keep_attention_of(within, of_precision);
    if (layer.type->attends) layer.set("kind", std::string(name_of(attention_kind(layer, of_precision))));
  }
}

}  // namespace

void keep_attention(Experiment& experiment) { keep_attention_of(experiment.model.layers, row_of(experiment.precision).attention); }

std::unique_ptr<Model> build_model(const Experiment& experiment, const Dataset& dataset) {
  const auto make = [&] {
    return std::make_unique<Model>(experiment.model.layers, dataset.input_shape(), smallest_batch(experiment, dataset),
                                   dataset.input_indices(), fp8_layers(experiment), row_of(experiment.precision).attention);
  };
  // A layer's message begins with its own place.
  const std::string of_samples = experiment.overrides_of(
      {"data.kind", "data.shape", "data.height", "data.width", "data.train_size", "data.drop_last", "training.batch_size"});
  auto model = of_samples.empty() ? make() : at_place(of_samples, make);
  at_place(experiment.place_of({"data.kind", "data.classes", "data.shape", "loss.function", "model"}), [&] {
    if (model->parameters().empty()) throw usage_error("model: expected a layer with parameters, found nothing to train");
    check_paths(*model);
    check_targets(experiment, model->output_shape(), dataset);
  });
  check_names(experiment, *model);
  return model;
}

}  // namespace ulpscope
