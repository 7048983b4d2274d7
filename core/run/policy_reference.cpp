// docs/policies.md, from the table of precisions and the classes of all ops.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "ulpscope/core/run/precision.h"
#include "ulpscope/emulation/loss_scale.h"

namespace ulpscope {

namespace {

constexpr std::string_view kPoliciesIntroduction = R"(# Policies of mixed precision

`precision` in an experiment, or `--precision` on the command line, names a policy: which type parameters, gradients, activations and the
loss have, what autocast does with each op, and which gradient scaler follows. They do as the libraries that they are named after, with
the ops that exist here.

```toml
precision = "apex_o2"
```

<!-- Generated from the tables in core/run/precision.cpp; a test fails when the two differ, and ULPSCOPE_UPDATE_DOCS=1 with that
     test writes it anew. -->

## Types

| precision | what it is | parameters | gradients | master weights | batch_norm's parameters | output layer | loss | scaler |
|---|---|---|---|---|---|---|---|---|
)";

constexpr std::string_view kTypesText = R"(
- **Gradients** have the type of their parameter. Without 16-bit parameters they come from 16-bit ops through a cast.
- **Master weights** are FP32 parameters of the optimizer, of which the model's are 16-bit copies. They begin as the copies' values, as in
  Apex. 16-bit gradients are cast to FP32, unscaled, clipped and used there; after the update the copies are rounded from them.
  `optimizer.master_weights` keeps or drops them.
- **Updates of 16-bit parameters** round where PyTorch's optimizers do, after each of their tensor operations, or once: `optimizer.math`
  ([numerics.md](numerics.md#updates)). AdamW's decay is such an operation, p *= 1 - lr weight_decay, and in BF16 all of it is lost where
  lr weight_decay is below 2^-9. With Adam in FP16 the first loses small gradients: the square of 1e-5 is
  zero there, and eps = 1e-8 added to zero is zero, so that the step is divided by zero, in PyTorch too.
- **batch_norm** computes in FP32 whatever its types; 16-bit running statistics are rounded once a step.
- **Output layer**: where it says FP32, what comes out of the model is cast. A layer may ask for a type by itself, as the last one of a
  Keras model should: `{ type = "linear", out_features = 10, dtype = "fp32" }`.
- **Scaler**: the preset that `scaler.enabled = "auto"` turns on; `scaler` has keys for all of it. With FP16 gradients and no master
  weights a scaler is an error, as in PyTorch (Apex would unscale them): in FP16, unscaling flushes what the scale kept.
  `optimizer.master_weights = true` is what a scaler takes. BF16 gradients are unscaled in place, in their own type.

## Ops

What the floating-point inputs of an op are cast to in forward and loss. Ops that are not here (views, casts, backward ops, updates) take
their inputs as they are. `autocast.ops`, `autocast.modules` and a layer's `dtype` replace it ([experiments.md](experiments.md)).

)";

constexpr std::string_view kAttentionText = R"(
- **own**: the type that the inputs have; mixed inputs go to the widest.
- **16 bits**: FP16 or BF16. **FP32**: FP32.
- **inferred**: 16 bits where an input comes in 16 bits and none was kept in FP32, else FP32 or what came.
- **error**: refused, with a message that says what to use.

## Attention

The layers `attention` and `cross_attention` divide scores, the products of queries and keys, by sqrt(E), E the features of a head. Where they
do, and in which type scores are kept, is their `kind`; `auto`, the default, takes that of the precision. Every op of them is recorded.

| kind | scores | of FP16 scores, Inf from | of the precisions |
|---|---|---|---|
)";

constexpr std::string_view kEnd = R"(
- `sdpa` is the math path of PyTorch's `scaled_dot_product_attention` (2.13): query and key, FP32 from here on, are multiplied by E^-1/4 each,
  and what the softmax weighs is rounded to 16 bits once. What is added where `mask_value` masks is rounded to the query's type first. A query
  whose keys are all at -Inf gets zeros. What autocast makes of `matmul` decides the type that comes in and out, and nothing else of it does.
  Its FP32 products are TF32 with a GPU's name in `arithmetic.accumulate`, unless `arithmetic.tf32` is false, as it is in PyTorch at first.
- `mha` is the order of `torch.nn.MultiheadAttention` (with `need_weights`) and of Keras' and GluonNLP's layers. Autocast, or the type of the
  model, rounds each op. A query whose keys are all masked gets NaN.
- `explicit` is how attention is often written by hand.

## What differs from the libraries

- **PyTorch**: the CUDA lists.
- **Keras**: a layer casts its inputs to its compute type, and all within it is of that type: softmax too, unless the layer says
  `dtype = "fp32"`. Layers that normalize widen their input and round their output; here layer_norm, rms_norm and group_norm hand on
  FP32, and what takes it rounds it. The loss is FP32. A weight is cast at each use, and not once in a forward pass: the gradients of its
  uses add up in FP32.
- **Apex**: O1's lists know less names than PyTorch's, which came from them: what they do not name keeps the type of its inputs. O2 and O3
  cast the model's input and parameters, O2 all parameters but batch_norm's, and the model's output to FP32. Gradients that are accumulated
  over several batches add up in FP16.
- **TensorFlow**: the graph rewrite sees the whole graph before it runs; here an op is cast when it is called. An op on the infer or clear
  list becomes FP16 in the rewrite where it lies between ops of the allow list; here where FP16 comes in, since what follows is not known.
  So an op behind the last product is FP16 here and FP32 there, and a clear op before the first one FP32 here and FP16 there. What comes
  from an op of the deny list keeps an inferred op in FP32 in both. Ops that TensorFlow makes of others have the class of the worst of
  them: layer_norm has a mean, gelu_tanh a pow. rsqrt is on none of the lists and stays FP32.
- **MXNet**: products of two activations (batch_dot) take the widest type of their inputs, so attention runs in FP16 only where both come
  in FP16.
- **fp64**: the model, its input and the loss are FP64, and every op is computed in it, without SIMD and without oneDNN: what rounding did
  in a run shows beside it (`ulpscope replay --as fp64`). `arithmetic`, `autocast` and a layer's `dtype` have no part in it.
- **pure_fp16, pure_bf16**: the model, its input, the targets of a regression and the loss are cast. A loss is computed in FP32 and rounded
  once. There are no master weights and no scaler.
- **fp8**: as in Transformer Engine (Float8CurrentScaling, DelayedScaling), and under its fp8_autocast within BF16 autocast. The input of a
  linear layer, cast to BF16, and its FP32 weight are quantized to E4M3, the gradient that comes back to E5M2 (`fp8.format`), each with a
  scale of its own ([numerics.md](numerics.md)). The three products have FP8 factors and BF16 results; the bias and its gradient are not
  quantized. So in place of `linear` and `matmul` a trace has `quantize` and `scaled_matmul`. The projections of attention are linear
  layers; lstm and gru are not. There is no scaler (`scaler.enabled = "on"` turns one on): the quantization scales move gradients into
  range. A layer with a `dtype`, one that `autocast.modules` names, and all with `autocast.ops.linear` compute in that type instead.
  `arithmetic` acts on quantize and scaled_matmul as on other ops, and what `arithmetic.ops` says of linear holds for all that a linear
  layer is made of in FP8 ([emulation.md](emulation.md#training-as-on-a-gpu)). Hardware multiplies FP8 in tiles of 16; here any extents will do. Delayed scaling takes amaxes into its histories when a layer's
  backward pass ends, Transformer Engine at the end of the forward and of the backward pass: the scales are the same.
)";

std::string shown_type(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return "FP16";
    case DType::bf16:
      return "BF16";
    case DType::f64:
      return "FP64";
    default:
      return "FP32";
  }
}

std::string types_row(const PrecisionRow& row) {
  const ParameterTypes types = row.parameter_types();
  const std::string parameters = shown_type(types.others), narrow = shown_type(row.dtype);
  const std::string gradients = row.master_weights ? parameters + ", FP32 for the master weights" : parameters;
  const std::string output = row.dtype == DType::f32 || row.output_fp32 ? "FP32" : row.casts_model ? narrow : "as computed";
  std::string scaler = "none";
  if (row.scaler != nullptr) {
    const LossScaleRule rule = *find_loss_scale_rule(row.scaler);
    scaler = fmt::format("`{}`: from {:g}", row.scaler, rule.initial);
  }
  return fmt::format("| `{}` | {} | {} | {} | {} | {} | {} | {} | {} |\n", row.name, row.meaning, parameters, gradients,
                     row.master_weights                      ? "FP32"
                     : is_narrow(*info(types.others).format) ? "none"
                                                             : "the parameters",
                     shown_type(types.of_batch_norm), output, row.narrow_loss || row.dtype == DType::f64 ? narrow : "FP32", scaler);
}

std::string class_name(AutocastClass autocast) {
  switch (autocast) {
    case AutocastClass::lower_precision:
      return "16 bits";
    case AutocastClass::fp32:
    case AutocastClass::fp32_unless_dtype:
    case AutocastClass::loss:
      return "FP32";
    case AutocastClass::forbidden:
      return "error";
    case AutocastClass::inferred:
      return "inferred";
    case AutocastClass::input_type:
    case AutocastClass::exempt:
      break;
  }
  return "own";
}

// Policies with the same lists share a column, ops with the same row a row.
std::string class_table() {
  std::vector<std::pair<const AutocastLists*, std::string>> columns;
  for (const PrecisionRow& row : precision_rows()) {
    if (!is_narrow(*info(row.dtype).format)) continue;
    const auto same = [&](const auto& column) { return column.first == row.lists; };
    const auto found = std::find_if(columns.begin(), columns.end(), same);
    const std::string name = fmt::format("`{}`", row.name);
    if (found == columns.end()) {
      columns.emplace_back(row.lists, name);
    } else {
      found->second += ", " + name;
    }
  }
  std::string head = "| ops |", rule = "|---|";
  for (const auto& [lists, names] : columns) {
    head += fmt::format(" {} |", names);
    rule += "---|";
  }
  std::vector<std::string> cells;
  std::map<std::string, std::string> ops;
  for (const Op* op : all_ops()) {
    if (op->backward == nullptr || op->is_view || op->autocast == AutocastClass::exempt) continue;
    std::string row;
    for (const auto& [lists, names] : columns)
      row += fmt::format(" {} |", class_name(lists != nullptr ? lists->class_of(*op) : op->autocast));
    std::string& names = ops[row];
    if (names.empty()) cells.push_back(row);
    names += fmt::format("{}{}", names.empty() ? "" : ", ", op->name);
  }
  std::string text = head + '\n' + rule + '\n';
  for (const std::string& row : cells) text += fmt::format("| {} |{}\n", ops[row], row);
  return text;
}

std::string attention_table() {
  struct Kind {
    AttentionKind kind;
    std::string_view scores, overflow;
  };
  static constexpr Kind kKinds[] = {
      {AttentionKind::sdpa, "(q E^-1/4) (k E^-1/4), FP32 of 16-bit inputs", "none: they are FP32"},
      {AttentionKind::mha, "(q / sqrt(E)) k, in the type of `matmul`", "q k of 65,520 sqrt(E)"},
      {AttentionKind::explicit_scores, "(q k) / sqrt(E), in the type of `matmul`", "q k of 65,520"},
  };
  std::string text;
  for (const auto& [kind, scores, overflow] : kKinds) {
    std::string names;
    for (const PrecisionRow& row : precision_rows())
      if (row.attention == kind) names += fmt::format("{}`{}`", names.empty() ? "" : ", ", row.name);
    text += fmt::format("| `{}` | {} | {} | {} |\n", name_of(kind), scores, overflow, names.empty() ? "none" : names);
  }
  return text;
}

}  // namespace

std::string policy_reference() {
  std::string text(kPoliciesIntroduction);
  for (const PrecisionRow& row : precision_rows()) text += types_row(row);
  return text + std::string(kTypesText) + class_table() + std::string(kAttentionText) + attention_table() + std::string(kEnd);
}

}  // namespace ulpscope
