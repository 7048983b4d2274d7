#include "ulpscope/core/run/experiment_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "ulpscope/base/error.h"
#include "ulpscope/core/settings/enumerators.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/quantization.h"

namespace ulpscope {

namespace {

constexpr Range kPositive{.low = 0, .low_open = true};
constexpr Range kNotNegative{.low = 0};
// What FP32 holds: what multiplies or divides its numbers becomes 0 or Inf beyond.
constexpr double kLargest = std::numeric_limits<float>::max(), kSmallestNormal = std::numeric_limits<float>::min();
constexpr Range kNormal{.low = kSmallestNormal, .high = kLargest};
constexpr Range kMagnitude{.low = 0, .high = kLargest};
// Of samples, steps, epochs and what else is counted.
constexpr Range kCount{.low = 0, .high = kMostCounted};
constexpr Range kAtLeastOne{.low = 1, .high = kMostCounted};
constexpr Range kBelowOne{.low = 0, .high = 1, .high_open = true};

template <typename T>
struct is_optional : std::false_type {};
template <typename T>
struct is_optional<std::optional<T>> : std::true_type {};

// An option that stores its value, of the type V of OptionValue, in the field that `access` gives. An unset optional field is not
// written.
template <typename V, typename Settings, typename Access>
Option<Settings> field(std::string key, OptionType type, std::string meaning, Access access, std::string default_text = "") {
  Option<Settings> option{{std::move(key), std::move(type), std::move(meaning), std::move(default_text)}, {}, {}};
  using Field = std::remove_cvref_t<decltype(access(std::declval<Settings&>()))>;
  option.set = [access](Settings& settings, const OptionValue& value) {
    if constexpr (is_optional<Field>::value) {
      access(settings) = std::get<V>(value);
    } else {
      access(settings) = static_cast<Field>(std::get<V>(value));
    }
  };
  option.get = [access](const Settings& settings) -> std::optional<OptionValue> {
    const auto& held = access(settings);
    if constexpr (is_optional<Field>::value) {
      if (!held) return std::nullopt;
      return OptionValue(static_cast<V>(*held));
    } else {
      return OptionValue(static_cast<V>(held));
    }
  };
  return option;
}

template <typename Access>
Option<Experiment> choice(std::string key, std::string meaning, Access access) {
  using Enum = std::remove_cvref_t<decltype(access(std::declval<Experiment&>()))>;
  OptionType type{OptionKind::choice, {}, enumerator_names<Enum>()};
  Option<Experiment> option{{std::move(key), std::move(type), std::move(meaning), ""}, {}, {}};
  option.set = [access](Experiment& experiment, const OptionValue& value) {
    access(experiment) = find_enumerator<Enum>(std::get<std::string>(value));
  };
  option.get = [access](const Experiment& experiment) -> std::optional<OptionValue> {
    return std::string(name_of(access(experiment)));
  };
  return option;
}

#define ULPSCOPE_FIELD(path) \
  [](auto& experiment) -> auto& { return experiment.path; }

template <typename Access>
Option<Experiment> number(std::string key, Range range, std::string meaning, Access access, std::string default_text = "") {
  return field<double, Experiment>(std::move(key), {OptionKind::number, range, {}}, std::move(meaning), access,
                                   std::move(default_text));
}
template <typename Access>
Option<Experiment> integer(std::string key, Range range, std::string meaning, Access access, std::string default_text = "") {
  return field<int64_t, Experiment>(std::move(key), {OptionKind::integer, range, {}}, std::move(meaning), access,
                                    std::move(default_text));
}
template <typename Access>
Option<Experiment> boolean(std::string key, std::string meaning, Access access, std::string default_text = "") {
  return field<bool, Experiment>(std::move(key), {OptionKind::boolean, {}, {}}, std::move(meaning), access,
                                 std::move(default_text));
}
template <typename Access>
Option<Experiment> text(std::string key, std::string meaning, Access access, std::string default_text = "") {
  return field<std::string, Experiment>(std::move(key), {OptionKind::text, {}, {}}, std::move(meaning), access,
                                        std::move(default_text));
}
template <typename Access>
Option<Experiment> text_list(std::string key, std::string meaning, Access access) {
  return field<std::vector<std::string>, Experiment>(std::move(key), {OptionKind::text_list, {}, {}}, std::move(meaning), access);
}

// What the rule of the gradient scaler has.
template <typename T>
auto of_rule(T LossScaleRule::*field) {
  return [field](const Experiment& experiment) { return experiment.scaler_rule().*field; };
}

// Sets model.layers, which are what is written back.
Option<Experiment> model_preset() {
  OptionType type{OptionKind::choice, {}, preset_names()};
  Option<Experiment> option{{"model.preset", std::move(type), "the layers of a preset, instead of model.layers", "none"}, {}, {}};
  option.set = [](Experiment& experiment, const OptionValue& value) {
    experiment.model = find_preset(std::get<std::string>(value))->model;
  };
  option.get = [](const Experiment&) -> std::optional<OptionValue> { return std::nullopt; };
  return option;
}

// The phases that a training run has.
OptionType phase_type(OptionKind kind) {
  std::vector<std::string> phases;
  for (const Phase phase :
       {Phase::data, Phase::forward, Phase::loss, Phase::backward, Phase::scaling, Phase::optimizer, Phase::evaluation})
    phases.emplace_back(name_of(phase));
  return {kind, {}, std::move(phases)};
}

Option<Experiment> recorded_phases() {
  Option<Experiment> option{
      {"recording.phases", phase_type(OptionKind::choice_list), "record rows of these phases only; []: all", ""}, {}, {}};
  option.set = [](Experiment& experiment, const OptionValue& value) {
    experiment.recording.phases.clear();
    for (const std::string& name : std::get<std::vector<std::string>>(value)) {
      experiment.recording.phases.push_back(find_enumerator<Phase>(name));
    }
  };
  option.get = [](const Experiment& experiment) -> std::optional<OptionValue> {
    std::vector<std::string> names;
    for (const Phase phase : experiment.recording.phases) names.emplace_back(name_of(phase));
    return names;
  };
  return option;
}

Option<Experiment> scaler_preset() {
  OptionType type{OptionKind::choice, {}, {"pytorch", "keras", "tensorflow", "deepspeed", "megatron", "apex", "mxnet"}};
  return field<std::string, Experiment>("scaler.preset", std::move(type), "the library whose rule and defaults to follow",
                                        ULPSCOPE_FIELD(scaler.preset), "the precision's, else `\"pytorch\"`");
}

// The key of the run by that of a change.
Option<Experiment> arithmetic_of_run(std::string_view key) {
  const auto& options = arithmetic_options();
  const auto row = std::find_if(options.begin(), options.end(), [&](const auto& option) { return option.key == key; });
  Option<Experiment> option{*row, {}, {}};
  option.key = "arithmetic." + row->key;
  option.set = [set = row->set](Experiment& experiment, const OptionValue& value) {
    ArithmeticChange change;
    set(change, value);
    experiment.arithmetic.run = change.applied_to(experiment.arithmetic.run);
  };
  option.get = [get = row->get](const Experiment& experiment) { return get(ArithmeticChange::to(experiment.arithmetic.run)); };
  return option;
}

std::vector<Option<Experiment>> make_experiment_options() {
  const Range seed_range{.low = 0, .high = 0x1p53, .high_open = true};
  return {
      text("name", "a name for the run", ULPSCOPE_FIELD(name), "the file's name"),
      integer("seed", seed_range, "decides initial weights, generated data and the order of samples", ULPSCOPE_FIELD(seed)),
      choice(
          "precision",
          "the policy of mixed precision ([policies.md](policies.md)): `fp16` is PyTorch's FP16 autocast with a gradient scaler, "
          "`bf16` its BF16 autocast, `fp32` neither; the others do as the libraries that they are named after",
          ULPSCOPE_FIELD(precision))
          .of_kind(SettingKind::precision),

      model_preset(),

      choice(
          "data.kind",
          "`fashion_mnist`; `idx`: labelled images in IDX files; `hdf5`, `npy`, `csv`: numbers in files; `text`: runs of bytes, "
          "the "
          "target of each byte the next one; `quantized_sine`: one image whose channels are x and y in [0, 1], its target a 2-D "
          "sine "
          "quantized to a few levels in [0, 1]; `random_classification`: Gaussian features, labelled by a random linear teacher; "
          "`copy_task`: random sequences as indices, each with what a decoder is given to copy it (a start symbol, then the "
          "sequence "
          "without its last symbol), the target the sequence; `capsule`: the samples that a capsule holds, in its own experiment",
          ULPSCOPE_FIELD(data.kind)),
      text("data.path",
           "fashion_mnist: the folder of its files; text: a file, or a folder of files; hdf5, csv: a file, of csv plain or .gz",
           ULPSCOPE_FIELD(data.path), "fashion_mnist: `$ULPSCOPE_DATA`, else where the Debian package has them"),
      text("data.train_images", "idx: a file of unsigned bytes, plain or .gz; 3 dimensions, or 4 with channels second",
           ULPSCOPE_FIELD(data.train_images)),
      text("data.train_labels", "idx: a file of 1 dimension", ULPSCOPE_FIELD(data.train_labels)),
      text("data.test_images", "idx: the same for the test split; may be left out", ULPSCOPE_FIELD(data.test_images)),
      text("data.test_labels", "idx", ULPSCOPE_FIELD(data.test_labels)),
      text("data.test_path", "hdf5, csv: the file of the test split", ULPSCOPE_FIELD(data.test_path), "none"),
      text("data.inputs",
           "hdf5: the data set of the inputs, of any rank, its first dimension counting samples; npy: the file of the inputs",
           ULPSCOPE_FIELD(data.inputs), "hdf5: `inputs`"),
      text("data.targets", "the same of the targets", ULPSCOPE_FIELD(data.targets), "hdf5: `targets`"),
      text("data.test_inputs", "the same of the test split's inputs; hdf5: in data.test_path, or without it in data.path",
           ULPSCOPE_FIELD(data.test_inputs), "hdf5, with data.test_path: data.inputs"),
      text("data.test_targets", "and of its targets", ULPSCOPE_FIELD(data.test_targets), "hdf5, with data.test_path: data.targets"),
      choice(
          "data.target_kind",
          "hdf5, npy, csv: what the targets are. Labels are whole numbers below data.classes, one a sample or one for each place",
          ULPSCOPE_FIELD(data.target_kind)),
      integer("data.input_indices", {.low = 0, .high = 0x1p31},
              "hdf5, npy, csv: inputs are indices below it, for an embedding; 0: they are numbers",
              ULPSCOPE_FIELD(data.input_indices)),
      boolean("data.header", "csv: the first line has the names of the columns", ULPSCOPE_FIELD(data.header)),
      text("data.delimiter", "csv: the character between fields; `\"\\t\"`: a tab", ULPSCOPE_FIELD(data.delimiter)),
      text_list("data.target_columns",
                "csv: the columns of the targets, by name, or by index: \"0\" is the first, \"-1\" the last; []: the last one",
                ULPSCOPE_FIELD(data.target_columns)),
      text_list("data.input_columns", "csv: the same of the inputs; []: all others", ULPSCOPE_FIELD(data.input_columns)),
      number("data.mean", {}, "files: numbers become (number - mean) / std; those of fashion_mnist and idx are pixel / 255",
             ULPSCOPE_FIELD(data.mean)),
      number("data.std", kNormal, "files", ULPSCOPE_FIELD(data.std)),
      integer("data.train_size", kCount,
              "at most this many training samples; 0: all there are (files), 4096 (random_classification, copy_task)",
              ULPSCOPE_FIELD(data.train_size)),
      integer("data.test_size", kCount,
              "the same for the test split; 0: all there are (files), 1024 (random_classification, copy_task)",
              ULPSCOPE_FIELD(data.test_size)),
      integer("data.classes", {.low = 2, .high = 65536},
              "idx, hdf5, npy, csv, random_classification: the number of classes; copy_task: of symbols, beside the start symbol",
              ULPSCOPE_FIELD(data.classes)),
      field<std::vector<int64_t>, Experiment>("data.shape", {OptionKind::integer_list, kAtLeastOne, {}},
                                              "random_classification: of one sample, [features] or [channels, height, width]",
                                              ULPSCOPE_FIELD(data.shape)),
      integer("data.context", {.low = 1, .high = 1 << 20},
              "text: bytes of a sample; copy_task: symbols of a sequence, half of a sample", ULPSCOPE_FIELD(data.context)),
      integer("data.stride", kCount, "text: bytes from one training sample to the next; 0: data.context",
              ULPSCOPE_FIELD(data.stride)),
      number("data.test_share", kBelowOne,
             "the share that is the test split: text: at the end of each file; hdf5, npy, csv: of the samples, at the end, unless "
             "the test "
             "split has files of its own",
             ULPSCOPE_FIELD(data.test_share)),
      integer("data.height", {.low = 1, .high = 16384}, "quantized_sine: rows", ULPSCOPE_FIELD(data.height)),
      integer("data.width", {.low = 1, .high = 16384}, "quantized_sine: columns", ULPSCOPE_FIELD(data.width)),
      number("data.frequency", kPositive, "quantized_sine: periods across the image", ULPSCOPE_FIELD(data.frequency)),
      integer("data.levels", {.low = 2, .high = 65536}, "quantized_sine: distinct target values", ULPSCOPE_FIELD(data.levels)),
      choice("data.target",
             "what the model is to give: `data`: the target that the data have; `input`: the input, whatever target they have",
             ULPSCOPE_FIELD(data.target)),
      boolean("data.shuffle", "a new order of the training samples in each epoch", ULPSCOPE_FIELD(data.shuffle)),
      boolean("data.drop_last", "leave out an epoch's last batch where it is smaller than the others",
              ULPSCOPE_FIELD(data.drop_last)),

      integer("training.batch_size", {.low = 1, .high = 1 << 24}, "samples a batch", ULPSCOPE_FIELD(training.batch_size))
          .of_kind(SettingKind::batch_size),
      integer("training.accumulation", {.low = 1, .high = 1 << 16},
              "batches a step: their gradients are added up, of their losses divided by their number; the last step of the last "
              "epoch may "
              "go on into the next one",
              ULPSCOPE_FIELD(training.accumulation))
          .of_kind(SettingKind::micro_batches),
      integer("training.epochs", kAtLeastOne, "passes through the training samples", ULPSCOPE_FIELD(training.epochs)),
      integer("training.steps", kCount, "exactly this many steps, through as many epochs as it takes; 0: training.epochs decides",
              ULPSCOPE_FIELD(training.steps)),
      choice("training.evaluation", "when the test split is evaluated: its loss, and of labels the accuracy",
             ULPSCOPE_FIELD(training.evaluation)),
      integer("training.evaluation_batch_size", {.low = 0, .high = 1 << 24}, "samples a batch of it; 0: training.batch_size",
              ULPSCOPE_FIELD(training.evaluation_batch_size)),

      choice("loss.function",
             "of labels: `cross_entropy` of logits, or `nll` of log-probabilities; of values, a mean over elements: `mse`, `l1`, "
             "`huber`, `bce_with_logits`, `binary_cross_entropy` of probabilities, `kl_div` of log-probabilities",
             ULPSCOPE_FIELD(loss.function)),
      number("loss.factor", kNormal, "the loss is multiplied by it before the backward pass", ULPSCOPE_FIELD(loss.factor))
          .of_kind(SettingKind::loss_factor),

      number("loss.label_smoothing", {.low = 0, .high = 1}, "cross_entropy: this share of each target goes to all classes alike",
             ULPSCOPE_FIELD(loss.label_smoothing)),
      integer(
          "loss.ignore_index", {.low = -1048576, .high = 1048576},
          "cross_entropy, nll: the label of targets that have no part in the loss and in the test accuracy; it need not be a class",
          ULPSCOPE_FIELD(loss.ignore_index)),
      number("loss.delta", kPositive, "huber: from here on it is a line", ULPSCOPE_FIELD(loss.delta)),

      choice("optimizer.type", "as in PyTorch; lion as in its paper", ULPSCOPE_FIELD(optimizer.type))
          .of_kind(SettingKind::optimizer),
      number("optimizer.learning_rate", kMagnitude, "", ULPSCOPE_FIELD(optimizer.learning_rate))
          .of_kind(SettingKind::learning_rate),
      number("optimizer.weight_decay", kNotNegative, "decoupled from the gradient with adamw and lion",
             ULPSCOPE_FIELD(optimizer.weight_decay), "0.01 with adamw, else 0")
          .or_else([](const Experiment& experiment) { return experiment.optimizer.effective_weight_decay(); })
          .of_kind(SettingKind::weight_decay),
      number("optimizer.momentum", kNotNegative, "sgd", ULPSCOPE_FIELD(optimizer.momentum)).of_kind(SettingKind::momentum),
      number("optimizer.dampening", {}, "sgd", ULPSCOPE_FIELD(optimizer.dampening)),
      boolean("optimizer.nesterov", "sgd; needs momentum, and no dampening", ULPSCOPE_FIELD(optimizer.nesterov)),
      number("optimizer.beta1", kBelowOne, "adam, adamw, lion", ULPSCOPE_FIELD(optimizer.beta1)).of_kind(SettingKind::momentum),
      number("optimizer.beta2", kBelowOne, "adam, adamw, lion", ULPSCOPE_FIELD(optimizer.beta2), "0.99 with lion, else 0.999")
          .or_else([](const Experiment& experiment) { return experiment.optimizer.effective_beta2(); })
          .of_kind(SettingKind::second_moment),
      number("optimizer.eps", kNotNegative, "adam, adamw", ULPSCOPE_FIELD(optimizer.eps)).of_kind(SettingKind::epsilon),
      choice("optimizer.math",
             "how 16-bit parameters are updated: `param`, rounded to their type after every tensor operation, bit for bit as by "
             "PyTorch's optimizers on the CPU; `fp32`, computed in FP32 and rounded once",
             ULPSCOPE_FIELD(optimizer.math))
          .of_kind(SettingKind::update_math),
      boolean("optimizer.master_weights", "keep 16-bit parameters in FP32 as well, and update those",
              ULPSCOPE_FIELD(optimizer.master_weights), "the precision's")
          .or_else([](const Experiment& experiment) { return row_of(experiment.precision).master_weights; })
          .of_kind(SettingKind::master_weights),

      choice("schedule.type",
             "the learning rate over the run: `constant`; `linear` and `cosine` fall to schedule.end_factor of it; `step` is "
             "multiplied by "
             "schedule.gamma every schedule.step_size steps",
             ULPSCOPE_FIELD(schedule.type)),
      integer("schedule.warmup", kCount, "steps in which it first rises linearly to its full value",
              ULPSCOPE_FIELD(schedule.warmup))
          .of_kind(SettingKind::warmup),
      number("schedule.end_factor", {.low = 0, .high = 1}, "linear, cosine: the share of it that is left after the last step",
             ULPSCOPE_FIELD(schedule.end_factor)),
      integer("schedule.steps", kCount,
              "linear, cosine: the steps until schedule.end_factor is reached; 0: those of the run, so that a run that is cut "
              "short and "
              "resumed needs it to go on as one that went through",
              ULPSCOPE_FIELD(schedule.steps)),
      integer("schedule.step_size", kAtLeastOne, "step", ULPSCOPE_FIELD(schedule.step_size)),
      number("schedule.gamma", {.low = 0, .high = 1, .low_open = true}, "step", ULPSCOPE_FIELD(schedule.gamma)),

      number("clipping.value", kNotNegative, "each element of the unscaled gradients is kept within +-value; 0: not",
             ULPSCOPE_FIELD(clipping.value))
          .of_kind(SettingKind::clip_value),
      number("clipping.norm", kNotNegative,
             "the unscaled gradients together are scaled down to at most this Euclidean norm, after clipping.value; 0: not",
             ULPSCOPE_FIELD(clipping.norm))
          .of_kind(SettingKind::clip_norm),

      choice("scaler.enabled", "the gradient scaler; `auto`: as the precision has it", ULPSCOPE_FIELD(scaler.enabled))
          .of_kind(SettingKind::scale_enabled),
      scaler_preset().or_else(
          [](const Experiment& experiment) { return experiment.scaler.rule_name(row_of(experiment.precision)); }),
      number("scaler.initial", kNormal, "the loss scale at the start", ULPSCOPE_FIELD(scaler.initial), "the preset's")
          .or_else(of_rule(&LossScaleRule::initial))
          .of_kind(SettingKind::scale_initial),
      number("scaler.growth_factor", {.low = 1, .low_open = true}, "the scale grows by it", ULPSCOPE_FIELD(scaler.growth_factor),
             "the preset's")
          .or_else(of_rule(&LossScaleRule::growth_factor))
          .of_kind(SettingKind::scale_growth_factor),
      number("scaler.backoff_factor", {.low = 0, .high = 1, .low_open = true, .high_open = true},
             "and is multiplied by it after an overflow", ULPSCOPE_FIELD(scaler.backoff_factor), "the preset's")
          .or_else(of_rule(&LossScaleRule::backoff_factor))
          .of_kind(SettingKind::scale_backoff_factor),
      integer("scaler.growth_interval", kAtLeastOne, "steps without overflow before it grows",
              ULPSCOPE_FIELD(scaler.growth_interval), "the preset's")
          .or_else(of_rule(&LossScaleRule::growth_interval))
          .of_kind(SettingKind::scale_growth_interval),
      integer("scaler.hysteresis", kAtLeastOne, "overflowing steps before it backs off", ULPSCOPE_FIELD(scaler.hysteresis),
              "the preset's")
          .or_else(of_rule(&LossScaleRule::hysteresis)),
      number("scaler.floor", kMagnitude, "it never backs off below; 0: no floor", ULPSCOPE_FIELD(scaler.floor), "the preset's")
          .or_else(of_rule(&LossScaleRule::floor))
          .of_kind(SettingKind::scale_floor),
      number("scaler.cap", kMagnitude, "it never grows above; 0: no cap", ULPSCOPE_FIELD(scaler.cap), "the preset's")
          .or_else(of_rule(&LossScaleRule::cap))
          .of_kind(SettingKind::scale_cap),
      boolean("scaler.dynamic", "false: the scale stays, and overflowing steps are still skipped", ULPSCOPE_FIELD(scaler.dynamic),
              "the preset's")
          .or_else(of_rule(&LossScaleRule::dynamic))
          .of_kind(SettingKind::scale_dynamic),

      choice(
          "fp8.recipe",
          "where the scales of linear layers in FP8 come from, one a tensor: `current`, from the largest magnitude of the tensor "
          "itself; `delayed`, from those of the steps before",
          ULPSCOPE_FIELD(fp8.recipe))
          .of_kind(SettingKind::quantization_recipe),
      choice("fp8.format", "`hybrid`: E4M3 in the forward pass, E5M2 for gradients; `e4m3`: for both", ULPSCOPE_FIELD(fp8.format)),
      integer("fp8.margin", {.low = 0, .high = kLargestMargin}, "scales are divided by 2^margin", ULPSCOPE_FIELD(fp8.margin))
          .of_kind(SettingKind::quantization_margin),
      boolean("fp8.power_of_two", "scales are rounded down to a power of two", ULPSCOPE_FIELD(fp8.power_of_two)),
      integer("fp8.amax_history", {.low = 1, .high = 1 << 20}, "delayed: how many backward passes are remembered",
              ULPSCOPE_FIELD(fp8.amax_history))
          .of_kind(SettingKind::quantization_history),
      choice("fp8.amax", "delayed: what is taken of them: the `max`, or the `most_recent`", ULPSCOPE_FIELD(fp8.amax)),

      arithmetic_of_run("accumulate"),
      arithmetic_of_run("tf32"),
      arithmetic_of_run("rounding"),
      arithmetic_of_run("subnormals"),

      choice("recording.level",
             "`health`: counts of NaN, Inf, zeros and of what rounding lost; `stats`: all statistics with the exponent histogram; "
             "`full`: "
             "16 values of each tensor as well",
             ULPSCOPE_FIELD(recording.level))
          .of_kind(SettingKind::recording_level),
      boolean("recording.bits", "a hash of each output's bits as well, by which `compare` names the first op that differs",
              ULPSCOPE_FIELD(recording.bits)),
      integer("recording.every", kAtLeastOne, "the level holds in every so manieth step, and `health` in those between",
              ULPSCOPE_FIELD(recording.every))
          .of_kind(SettingKind::recording_interval),
      text_list("recording.modules", "record rows of modules that match one of these patterns only; []: all",
                ULPSCOPE_FIELD(recording.modules)),
      text_list("recording.ops", "record rows of ops that match one of these patterns only; []: all",
                ULPSCOPE_FIELD(recording.ops)),
      recorded_phases(),
      field<int64_t, Experiment>(
          "recording.max_size", {OptionKind::size, {}, {}},
          "near it the level is lowered, at it recording stops; 0: no limit, else at least what a trace without "
          "tensor rows takes, about 1.5 MB",
          ULPSCOPE_FIELD(recording.max_size))
          .of_kind(SettingKind::recording_limit),
      choice("recording.stop_on", "end training after a step with a NaN, an Inf, or a loss scale that backed off",
             ULPSCOPE_FIELD(recording.stop_on)),
      number("recording.flush_interval", {.low = 0, .high = 3600}, "seconds between flushes of the trace",
             ULPSCOPE_FIELD(recording.flush_interval)),

      integer(
          "shadow.every", {.low = 0, .high = 1099511627776},
          "ops whose outputs have 16 bits are computed again, from the same inputs in a wider type, in each step whose number "
          "is a multiple of this: "
          "`errors` shows what each got wrong; 0: in up to eight steps, the first, the last and others between, of runs in which "
          "some op accumulates in FP16 or BF16",
          ULPSCOPE_FIELD(shadow.every)),
      boolean("shadow.enabled", "false: in no step", ULPSCOPE_FIELD(shadow.enabled)),
      text_list("shadow.ops", "ops that match one of these patterns only; []: all", ULPSCOPE_FIELD(shadow.ops)),
      choice("shadow.as", "the wider type", ULPSCOPE_FIELD(shadow.type)),
  };
}

std::vector<Option<InjectedFault>> make_fault_options() {
  const OptionType count{OptionKind::integer, kCount, {}}, any{OptionKind::number, {.takes_infinity = true, .takes_nan = true}, {}};
  const OptionType name{OptionKind::text, {}, {}};
  Option<InjectedFault> phase{{"phase", phase_type(OptionKind::choice), "of the op", ""}, {}, {}};
  phase.set = [](InjectedFault& fault, const OptionValue& value) {
    fault.phase = find_enumerator<Phase>(std::get<std::string>(value));
  };
  phase.get = [](const InjectedFault& fault) -> std::optional<OptionValue> { return std::string(name_of(fault.phase)); };
  return {
      field<std::string, InjectedFault>("parameter", name, "the parameter whose element is changed before the step, by its name",
                                        ULPSCOPE_FIELD(parameter), "none"),
      field<int64_t, InjectedFault>("sample", count,
                                    "or the sample of the training data whose element is changed in the batches of the step",
                                    ULPSCOPE_FIELD(sample), "none"),
      field<std::string, InjectedFault>("op", name, "or the op before which an element of what it reads is changed",
                                        ULPSCOPE_FIELD(op), "none"),
      field<std::string, InjectedFault>("module", name, "of the op, a pattern", ULPSCOPE_FIELD(module)),
      std::move(phase),
      field<int64_t, InjectedFault>("input", count, "which of the op's inputs", ULPSCOPE_FIELD(input)),
      field<int64_t, InjectedFault>("call", count, "which of the step's calls that fit", ULPSCOPE_FIELD(call)),
      field<int64_t, InjectedFault>("element", count, "which element, in row-major order", ULPSCOPE_FIELD(element)),
      field<int64_t, InjectedFault>("step", count, "the first step in which it is changed", ULPSCOPE_FIELD(step)),
      field<int64_t, InjectedFault>("steps", count, "in how many; 0: in all from there on", ULPSCOPE_FIELD(steps)),
      field<double, InjectedFault>("set", any, "what it becomes, rounded to its type", ULPSCOPE_FIELD(set), "none"),
      field<double, InjectedFault>("scale", any, "or what it is multiplied by", ULPSCOPE_FIELD(scale), "none"),
      field<int64_t, InjectedFault>("flip_bit", {OptionKind::integer, {.low = 0, .high = 63}, {}},
                                    "or the bit of its encoding that is flipped, the lowest is 0", ULPSCOPE_FIELD(flip_bit),
                                    "none"),
  };
}

#undef ULPSCOPE_FIELD

// A key whose value is one of these names, `find` and `name` going from a name to a value and back.
template <typename T, typename Find, typename Name>
Option<ArithmeticChange> arithmetic_choice(std::string key, std::vector<std::string> names, std::string meaning,
                                           std::optional<T> ArithmeticChange::*field, Find find, Name name) {
  Option<ArithmeticChange> option{{std::move(key), {OptionKind::choice, {}, std::move(names)}, std::move(meaning), ""}, {}, {}};
  option.set = [=](ArithmeticChange& change, const OptionValue& value) { change.*field = find(std::get<std::string>(value)); };
  option.get = [=](const ArithmeticChange& change) -> std::optional<OptionValue> {
    if (!(change.*field)) return std::nullopt;
    return std::string(name(*(change.*field)));
  };
  return option;
}

std::vector<Option<ArithmeticChange>> make_arithmetic_options() {
  const auto names_of = [](const auto& rows) {
    std::vector<std::string> names;
    for (const auto& row : rows) names.emplace_back(row.name);
    return names;
  };
  return {
      arithmetic_choice(
          "accumulate", names_of(accumulations()),
          "what sums of matrix products and convolutions are kept in: `fp32`; `fp16`, `bf16` or `fp64`, term after term; `exact`, "
          "with no "
          "rounding before that of the output; `mi200`, FP32 with subnormal FP16 and BF16 factors and results flushed, as AMD's "
          "MI200; or as the tensor cores of a GPU",
          &ArithmeticChange::accumulation, find_accumulation, [](const Accumulation* row) { return row->name; })
          .of_kind(SettingKind::accumulation),
      field<bool, ArithmeticChange>(
          "tf32", {OptionKind::boolean, {}, {}},
          "with a GPU that multiplies TF32: FP32 products and convolutions are multiplied so, as with "
          "PyTorch's `allow_tf32`",
          [](auto& change) -> auto& { return change.tf32; })
          .of_kind(SettingKind::arithmetic),
      arithmetic_choice(
          "rounding", names_of(rounding_modes()),
          "how outputs are rounded to FP16 and BF16, and to FP32 where a sum is known better: to nearest, ties to even or away; "
          "toward zero, up, down; to odd; or stochastically, with random bits that follow from the seed",
          &ArithmeticChange::rounding, parse_rounding_mode, [](RoundingMode mode) { return name_of(mode); })
          .of_kind(SettingKind::rounding),
      arithmetic_choice(
          "subnormals", enumerator_names<Subnormals>(),
          "where subnormals of a tensor's own format become zero: nowhere, in what an op reads, in what it writes, or "
          "in both",
          &ArithmeticChange::subnormals, find_enumerator<Subnormals>, [](Subnormals subnormals) { return name_of(subnormals); })
          .of_kind(SettingKind::subnormals),
  };
}

}  // namespace

const std::vector<Option<ArithmeticChange>>& arithmetic_options() {
  static const std::vector<Option<ArithmeticChange>> options = make_arithmetic_options();
  return options;
}

const std::vector<Option<InjectedFault>>& fault_options() {
  static const std::vector<Option<InjectedFault>> options = make_fault_options();
  return options;
}

std::vector<std::pair<std::string, std::string>> given_values(const InjectedFault& fault) {
  static const InjectedFault defaults;
  std::vector<std::pair<std::string, std::string>> values;
  for (const Option<InjectedFault>& option : fault_options())
    if (const auto value = option.get(fault); value && value != option.get(defaults))
      values.emplace_back(option.key, value_text(option.type, *value));
  return values;
}

const std::vector<Option<Experiment>>& experiment_options() {
  static const std::vector<Option<Experiment>> options = make_experiment_options();
  return options;
}

std::vector<std::string> experiment_choices(std::string_view key) {
  for (const Option<Experiment>& option : experiment_options())
    if (option.key == key) return option.type.choices;
  throw failed_error("internal: no key is called '{}'", key);
}

const Option<Experiment>* find_option(std::string_view key) {
  const auto& options = experiment_options();
  const auto found = std::find_if(options.begin(), options.end(), [&](const auto& option) { return option.key == key; });
  return found == options.end() ? nullptr : &*found;
}

std::string NamedTable::text() const {
  std::string text;
  for (const auto& [key, value] : members) text += fmt::format("{}{} = {}", text.empty() ? " " : ", ", key, value);
  return fmt::format("{{{}{}}}", text, text.empty() ? "" : " ");
}

std::vector<NamedTable> named_tables(const Experiment& experiment) {
  const auto of_types = [](std::string_view name, SettingKind kind, const auto& types) {
    NamedTable table{std::string(name), {}, kind};
    for (const auto& [key, precision] : types) table.members.emplace_back(toml_string(key), toml_string(name_of(precision)));
    return table;
  };
  const auto of_changes = [](std::string_view name, SettingKind kind, const auto& changes) {
    NamedTable table{std::string(name), {}, kind};
    for (const auto& [key, change] : changes) {
      NamedTable values;
      for (const auto& option : arithmetic_options())
        if (const auto value = option.get(change)) values.members.emplace_back(option.key, value_text(option.type, *value));
      table.members.emplace_back(toml_string(key), values.text());
    }
    return table;
  };
  return {of_types(kAutocastOps, SettingKind::precision_of_ops, experiment.autocast.ops),
          of_types(kAutocastModules, SettingKind::precision_of_modules, experiment.autocast.modules),
          of_changes(kArithmeticOps, SettingKind::arithmetic_of_ops, experiment.arithmetic.ops),
          of_changes(kArithmeticModules, SettingKind::arithmetic, experiment.arithmetic.modules)};
}

OptimizerSettings Experiment::settings_of(const OptimizerGroup& group) const {
  Experiment changed;
  changed.optimizer = optimizer;
  for (const auto& [key, value] : group.values) find_option("optimizer." + key)->set(changed, value);
  return changed.optimizer;
}

const OptionType& precision_type() {
  static const OptionType type = [] {
    OptionType formats{OptionKind::choice, {}, {}};
    for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16})
      formats.choices.emplace_back(name_of(precision));
    return formats;
  }();
  return type;
}

Precision find_precision(std::string_view name) { return find_enumerator<Precision>(name); }

}  // namespace ulpscope
