// docs/experiments.md, from the tables that parse experiments.
#include <fmt/format.h>

#include "ulpscope/base/text.h"
#include "ulpscope/core/run/experiment_options.h"

namespace ulpscope {

namespace {

constexpr std::string_view kExperimentsIntroduction = R"(# Experiments

An experiment is a TOML file that says everything about a training run. `ulpscope train FILE` runs it; `--set key=value` sets a key by
its full name, after the file and in the order given, for instance `--set optimizer.learning_rate=0.01`. The trace keeps the effective
text. Unknown keys, wrong types and values out of range are errors that name the file, the line and what was expected.

So are keys that the chosen kind of data, loss, optimizer or schedule does not take, unless they have their default value. What has no
effect with the precision is no error, so that one file runs in several: a scaler's rule, `optimizer.math`, `optimizer.master_weights`
and overrides of autocast.

A number may also be written as a power of two in quotes: `"2^-20"`. In `--set`, strings need no quotes, and lists may be written with
commas: `--set recording.ops=conv2d*,linear`. Patterns know `*` (any characters, dots too) and `?` (one character).

Relative paths in a file are relative to the folder it is in, those in `--set` to the current folder.

The files in `experiments/` are presets as well, and `ulpscope train NAME` runs one without its file:
{}.
`underflow` shows FP16 gradients that are lost without a scaler.

<!-- Generated from the tables in core/run/experiment_options.cpp and core/nn/; a test fails when the two differ, and
     ULPSCOPE_UPDATE_DOCS=1 with that test writes it anew. -->
)";

constexpr std::string_view kLayersText = R"(
`model.layers` is a list of tables, one for each layer in order. Each has a `type` and may have a `name`, its module path; without one
it is the layer's index, as in PyTorch's `Sequential`. Besides the layers with weights or settings of their own, every elementwise op of
one input that needs no attributes is a layer by its name ([ops.md](ops.md) says what it computes).

```toml
[model]
layers = [
  { type = "conv2d", out_channels = 32, kernel = 3, padding = 1 },
  { type = "relu" },
  { type = "max_pool2d", kernel = 2 },
  { type = "flatten" },
  { type = "linear", name = "classifier", out_features = 10 },
]
```

A layer may also have a `dtype`, `fp32`, `fp16` or `bf16`: what autocast casts the inputs of its ops to, and of the layers within it.

`sequential`, `residual` and `branches` hold lists of layers, in which layers are written in the same way; their module paths follow the block's. A
block of a transformer:

```toml
{ type = "residual", layers = [
  { type = "layer_norm" },
  { type = "attention", heads = 4, causal = true },
] }
```

| layer | key | type | default | meaning |
|---|---|---|---|---|
)";

constexpr std::string_view kDataText = R"(
The kinds `hdf5`, `npy` and `csv` take an array of inputs and one of targets, whose first dimension counts samples: integers, truth
values (npy) or floating-point numbers of any size and byte order. The shape of a sample is what follows; a number alone is one feature.
An `npy` file has to be in C order, as `numpy.save(FILE, numpy.ascontiguousarray(x))` writes it: in Fortran order the numbers of a
sample lie apart. Numbers are read as FP64, normalized, and rounded to FP32 once; NaN and infinities pass, and a finite number that FP32 cannot hold is an
error. Labels and indices may be stored in any of these types, and are all checked before training begins. In `csv`, only the columns
that are used have to be numbers; fields may stand in quotes, and empty lines are passed over. The numbers of an `hdf5` data set have to
be in its file: one that was made and never filled, a virtual one, and one in external storage are errors, since HDF5 reads what is
missing of them as zeros.

```toml
[data]
kind = "hdf5"
path = "images.h5"
inputs = "x_train"
targets = "y_train"
test_inputs = "x_test"
test_targets = "y_test"
classes = 10
std = 255
```

No such data set is loaded as a whole. Samples are read in blocks of about 256 KiB, in HDF5 of whole chunks, since a chunk that is
compressed can only be read as one piece; about 64 MiB of blocks are in memory at a time, two chunks at least. Each epoch draws all
blocks in a random order and shuffles the samples of as many of them as are in memory with each other. So every chunk is read and
decompressed once in an epoch, two samples of a batch come from blocks anywhere in the file, and what fits into 64 MiB as FP32 is
shuffled as a whole. A file whose chunks are larger than a few megabytes, or whose targets are sorted, shuffles better in small chunks.
`csv` is read once when it is opened, into a scratch file in `$TMPDIR` that takes 8 bytes a number.
)";

constexpr std::string_view kOptimizersText = R"(
### optimizers

`optimizers` is a list of tables, one for each further optimizer. `modules` says by patterns which modules' parameters it has; a parameter
belongs to the first that fits, or else to `optimizer`. Its other keys are those of `optimizer`, whose values hold where it has none; on the
command line `--set optimizers[0].learning_rate=0.01` sets the first one's. The
schedule multiplies each learning rate, clipping is about all gradients together, and a gradient scaler skips the step of each optimizer by
itself.

```toml
[[optimizers]]
modules = ["head*"]
type = "sgd"
learning_rate = 0.01
```
)";

constexpr std::string_view kInjectText = R"(
## inject

`inject` is a list of tables, one for each fault that training is to meet, to see what comes of it: one element is changed in memory, as
a flipped bit or a foreign write changes it. The trace has a note of each, and `replay` injects them again.

```toml
[[inject]]
parameter = "head.weight"
element = 5
step = 20
flip_bit = 30
```

| key | type | default | meaning |
|---|---|---|---|
)";

constexpr std::string_view kAutocastText = R"(
## autocast

Which type an op's floating-point inputs are cast to in the forward pass: by default what the lists of the precision say for it
([policies.md](policies.md)). `autocast.ops` replaces that for an op everywhere, a layer's `dtype` for its ops, `autocast.modules` for the
modules whose path matches a pattern, the first that fits; of these the last wins. Values are `fp32`, `fp16` or `bf16`. With a precision
that casts nothing they have no effect. With `fp8`, a linear layer whose type one of them says does not compute in FP8.

```toml
[autocast.ops]
linear = "fp32"

[autocast.modules]
"classifier" = "fp32"
"features.*" = "bf16"
```
)";

constexpr std::string_view kArithmeticText = R"(
`arithmetic.ops` changes these keys for an op and for the ops of its backward, those of `linear` in FP8 also for the ops that stand in its
place (`quantize`, `scaled_matmul`), `arithmetic.modules` for the modules whose path matches a
pattern, the first that fits. Key by key, a module's value comes first, then that of the op's own name, of the op whose backward it
belongs to, and of the run. Ops that only move elements (views, `cat`, `copy`, `embedding`, `gather`) do no arithmetic, and those in FP64 none but
FP64's. One file serves every precision, so keys that a precision leaves nothing to do are no mistake: `accumulate` acts on matrix
products and convolutions, with a GPU's name on those whose types its tensor cores take; `tf32` on FP32 ones with such a GPU; `rounding`
on FP16 and BF16 outputs, and on FP32 products with `fp64` or `exact`; `subnormals` on every type but FP64. Updates of 16-bit parameters that round after every operation (`optimizer.math = "param"`) take neither `rounding` nor
`subnormals`. [emulation.md](emulation.md#training-as-on-a-gpu) says what is computed, in which order, and what is not modelled.

```toml
[arithmetic]
accumulate = "a100"

[arithmetic.ops]
linear = { accumulate = "fp16", rounding = "rz" }
adam_update = { rounding = "sr" }

[arithmetic.modules]
"classifier" = { accumulate = "fp32" }
```

On the command line: `--set arithmetic.ops.linear.accumulate=fp16`.
)";

std::string cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string default_of(const OptionInfo& option, const std::optional<OptionValue>& value) {
  if (!option.default_text.empty()) return option.default_text;
  return value ? fmt::format("`{}`", value_text(option.type, *value)) : std::string();
}

std::string type_of(const OptionType& type) {
  if (type.kind != OptionKind::choice && type.kind != OptionKind::choice_list) return type.description();
  std::string text = type.kind == OptionKind::choice ? "" : "a list of ";
  for (size_t i = 0; i < type.choices.size(); ++i) text += fmt::format("{}`{}`", i > 0 ? ", " : "", type.choices[i]);
  return text;
}

std::string layer_rows() {
  std::string text;
  for (const LayerType& type : layer_types()) {
    if (type.options.empty() && type.lists.empty()) text += fmt::format("| {} | | | | |\n", type.name);
    for (const LayerOption& option : type.options) {
      text += fmt::format("| {} | `{}` | {} | {} | {} |\n", type.name, option.key, cell(type_of(option.type)),
                          default_of(option, option.value), cell(option.meaning));
    }
    for (const LayerList& list : type.lists) {
      text += fmt::format("| {} | `{}` | a list of layers | {} | {} |\n", type.name, list.key, list.required ? "required" : "none",
                          list.meaning);
    }
  }
  return text;
}

}  // namespace

std::string experiment_reference() {
  std::vector<std::string> presets;
  for (const std::string& name : preset_names()) presets.push_back('`' + name + '`');
  std::string text = fmt::format(kExperimentsIntroduction, join_words(presets)), table = "none yet";
  const auto add_row = [&](const OptionInfo& option, const std::optional<OptionValue>& by_default) {
    text += fmt::format("| `{}` | {} | {} | {} |\n", option.key, cell(type_of(option.type)), default_of(option, by_default),
                        cell(option.meaning));
  };
  for (const auto& option : experiment_options()) {
    const size_t dot = option.key.find('.');
    const std::string of = dot == std::string::npos ? "" : option.key.substr(0, dot);
    if (of != table) {
      if (table == "model") text += fmt::format("{}{}", kLayersText, layer_rows());
      if (table == "data") text += kDataText;
      if (table == "optimizer") text += kOptimizersText;
      if (table == "scaler") text += kAutocastText;
      if (table == "arithmetic") text += kArithmeticText;
      text += fmt::format("\n## {}\n\n| key | type | default | meaning |\n|---|---|---|---|\n", of.empty() ? "The run" : of);
      table = of;
    }
    add_row(option, option.get(Experiment{}));
  }
  text += kInjectText;
  for (const auto& option : fault_options()) add_row(option, option.get(InjectedFault{}));
  return text;
}

}  // namespace ulpscope
