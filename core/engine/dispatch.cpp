#include "ulpscope/core/engine/dispatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/base/text.h"
#include "ulpscope/core/engine/tape.h"

namespace ulpscope {

namespace {

bool is_narrow(DType dtype) { return is_float(dtype) && is_narrow(*info(dtype).format); }

int width_of(DType dtype) { return dtype == DType::f64 ? 3 : dtype == DType::f32 ? 2 : 1; }

// Whether input `i` is one that autocast and promotion change the type of.
bool is_cast(const Op& op, std::span<const Tensor> inputs, size_t i) {
  return has_bit(op.cast_inputs, i) && is_float(inputs[i].dtype());
}

// The type that mixed floating-point inputs are promoted to. A 0-dim tensor never raises the type of a tensor that has dimensions.
// FP16 with BF16 gives FP32, which holds both.
DType widest(const Op& op, std::span<const Tensor> inputs) {
  std::optional<DType> with_dimensions, scalars;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_cast(op, inputs, i)) continue;
    const Tensor& input = inputs[i];
    std::optional<DType>& slot = input.rank() > 0 ? with_dimensions : scalars;
    if (!slot) {
      slot = input.dtype();
    } else if (*slot != input.dtype()) {
      const int a = width_of(*slot), b = width_of(input.dtype());
      slot = a == b ? DType::f32 : a > b ? *slot : input.dtype();
    }
  }
  return with_dimensions ? *with_dimensions : scalars.value_or(DType::f32);
}

// The type that the inputs of `op` are cast to; nothing: they are left as they are.
struct InputType {
  std::optional<DType> promoted;    // the widest of their own
  std::optional<DType> autocasted;  // what autocast asks for instead; nothing: it is off, or leaves the op alone
  std::optional<DType> type() const { return autocasted ? autocasted : promoted; }
};

InputType input_type(Context& context, const Op& op, std::span<const Tensor> inputs, const CallOptions& options) {
  if (op.autocast == AutocastClass::exempt || op.is_view) return {};
  const DType wide = widest(op, inputs);
  // In backward it is on only within a function that has it so.
  if (!context.autocast || wide == DType::f64) return {wide, {}};
  return {wide, context.autocast->input_type(op, inputs, options.dtype)};
}

// Whether the op runs in the lower precision where autocast is on: as autocast has it, or else by its class and the values that it
// gets (TensorBody::lowered). Of `inputs`, those that autocast cast are the casts.
bool runs_lowered(const Context& context, const Op& op, std::span<const Tensor> inputs, const InputType& type,
                  const CallOptions& options) {
  if (op.autocast == AutocastClass::exempt) return !inputs.empty() && inputs[0].body()->lowered;
  if (type.autocasted) return is_narrow(*type.autocasted);
  if (computes_forward(context.phase) && !context.autocast) {
    if (context.layer_type) return is_narrow(*context.layer_type);
    switch (op.autocast) {
      case AutocastClass::lower_precision:
        return true;
      case AutocastClass::fp32:
      case AutocastClass::loss:
      case AutocastClass::forbidden:
        return false;
      case AutocastClass::fp32_unless_dtype:
        return options.dtype && is_narrow(*options.dtype);
      case AutocastClass::input_type:
      case AutocastClass::inferred:
      case AutocastClass::exempt:
        break;
    }
  }
  // As in widest(): one wide input makes the op wide, and a scalar counts only where there is nothing else.
  bool any[2] = {}, all_lowered[2] = {true, true};
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_cast(op, inputs, i)) continue;
    const bool has_dimensions = inputs[i].rank() > 0;
    any[has_dimensions] = true;
    all_lowered[has_dimensions] = all_lowered[has_dimensions] && inputs[i].body()->lowered;
  }
  return any[1] ? all_lowered[1] : any[0] && all_lowered[0];
}

const Op& cast_op() {
  static const Op& op = find_op("cast");
  return op;
}

Tensor expand_to(const Op& op, const Tensor& input, const OutputSpec& spec) {
  const TensorView& view = input.view();
  if (view.rank == spec.rank && std::equal(view.shape.begin(), view.shape.begin() + view.rank, spec.shape.begin())) return input;
  Extents strides{};
  const int shift = spec.rank - view.rank;
  for (int i = 0; i < view.rank; ++i) {
    if (view.shape[i] == spec.shape[i + shift]) {
      strides[i + shift] = view.strides[i];
    } else if (view.shape[i] != 1) {
      throw usage_error("{}{}: {} does not broadcast to {}", op.name, in_module(), input.describe(),
                        describe_shape({spec.shape.data(), static_cast<size_t>(spec.rank)}));
    }
  }
  const auto rank = static_cast<size_t>(spec.rank);
  return make_view(input, {spec.shape.data(), rank}, {strides.data(), rank});
}

Tensor make_output(Context& context, const OutputSpec& spec, std::span<const Tensor> inputs) {
  const std::span<const int64_t> shape(spec.shape.data(), static_cast<size_t>(spec.rank));
  if (spec.alias >= 0) return inputs[static_cast<size_t>(spec.alias)].detach();
  if (spec.record_only) {
    Tensor tensor(new TensorBody);
    TensorView& view = tensor.body()->view;
    view.dtype = spec.dtype;
    view.rank = spec.rank;
    view.shape = spec.shape;
    int64_t stride = 1;
    for (int i = spec.rank - 1; i >= 0; --i) {
      view.strides[i] = stride;
      stride *= spec.shape[i];
    }
    return tensor;
  }
  Tensor tensor = empty(*context.backend, spec.dtype, shape, spec.layout);
  if (spec.like >= 0) {
    const TensorView& like = inputs[static_cast<size_t>(spec.like)].view();
    if (is_dense(like) && like.rank == spec.rank && std::equal(shape.begin(), shape.end(), like.shape.begin()))
      tensor.body()->view.strides = like.strides;
  }
  return tensor;
}

// What the backend does not compute is told with its layer.
void submit(Context& context, const OpCall& call) {
  try {
    context.backend->submit(call);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    throw usage_error("{}{}{}", error.what(), context.module->empty() ? "" : ",", in_module());
  }
}

// Runs the call, and shows it to the observers before and after.
void run_observed(Context& context, OpCall& call, OpEvent event) {
  const std::span<OutputRecord* const> records = context.records.outputs().take(event.outputs.size());
  for (size_t i = 0; i < records.size(); ++i) records[i]->scale = event.outputs[i].body()->loss_scale;
  event.input_fingerprints = context.records.inputs().take(event.inputs.size());
  for (Observer* observer : context.observers) observer->before(event, records);
  const auto asked = [](const OutputRecord* record) {
    return record->wanted != StatisticsLevel::none || record->samples_wanted > 0 || record->fingerprint.wanted ||
           record->bits.wanted;
  };
  if (std::any_of(records.begin(), records.end(), asked)) call.records = records;
  const auto is_wanted = [](const Fingerprint* fingerprint) { return fingerprint->wanted; };
  if (std::any_of(event.input_fingerprints.begin(), event.input_fingerprints.end(), is_wanted))
    call.input_fingerprints = event.input_fingerprints;
  submit(context, call);
  for (Observer* observer : context.observers) observer->after(event);
}

void record_on_tape(const Op& op, uint64_t id, std::span<const Tensor> inputs, Tensors& outputs, const OutputSpecs& specs,
                    const Attributes& attributes, bool lowered) {
  const Ref<Node> node = make_node(op, id, inputs, outputs.size());
  node->attributes = attributes;
  for (size_t i = 0; i < inputs.size(); ++i)
    node->inputs[i].lowered = node->inputs[i].lowered || (lowered && is_cast(op, inputs, i));
  for (size_t i = 0; i < outputs.size(); ++i) {
    Node::Output& kept = node->outputs[i];
    kept.saved = has_bit(op.saves_outputs, i);
    if (kept.saved) {
      kept.value = outputs[i].detach();
      kept.version = outputs[i].storage().version;
    }
    if (has_bit(op.differentiable_outputs, i) && is_float(outputs[i].dtype()) && specs[i].alias < 0)
      set_output(*node, i, outputs[i]);
  }
}

void check_inputs(const Context& context, const Op& op, std::span<const Tensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) throw usage_error("{}{}: input {} is an undefined tensor", op.name, in_module(), i);
    const Backend& device = inputs[i].storage().backend();
    if (&device != context.backend)
      throw usage_error("{}{}: input {} lies on another device, {}, than the op runs on, {}", op.name, in_module(), i,
                        device.name(), context.backend->name());
  }
  if (!op.takes_quantized && !op.is_view) {
    for (const Tensor& input : inputs)
      if (is_quantized(input.dtype()))
        throw usage_error("{}{}: expected no FP8 tensor, which only scaled_matmul reads, got {}", op.name, in_module(),
                          input.describe());
  }
  const size_t count = inputs.size();
  if (op.inputs == kVariadic) return;
  const int least = op.inputs - op.optional_inputs;
  if (static_cast<int>(count) < least || static_cast<int>(count) > op.inputs)
    throw usage_error(
        "{}{}: expected {}, got {}", op.name, in_module(),
        least == op.inputs ? count_of(static_cast<uint64_t>(least), "input") : fmt::format("{} to {} inputs", least, op.inputs),
        count);
}

// Whether the call belongs on the tape.
bool is_differentiated(const Op& op, const Context& context, std::span<const Tensor> inputs, const OutputSpecs& specs) {
  if (!context.grad_enabled) return false;
  if (std::none_of(inputs.begin(), inputs.end(), [](const Tensor& input) { return input.requires_grad(); })) return false;
  if (op.backward) return true;
  // A gradient that gets lost without a word makes training go wrong. Integers have none.
  if (std::any_of(specs.begin(), specs.end(), [](const OutputSpec& spec) { return is_float(spec.dtype); }))
    throw usage_error("{}{}: an input requires a gradient, and the op has none; expected detached inputs, or NoGrad", op.name,
                      in_module());
  return false;
}

uint64_t next_id(Context& context, const Op& op) {
  return next_op_id(context.counters, context.phase, context.forward_id ? context.forward_id : context.module_hash, op.hash);
}

void cast_inputs(const Op& op, uint64_t id, DType type, Tensors& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (is_cast(op, inputs, i) && inputs[i].dtype() != type) inputs[i] = autocast_input(inputs[i], type, id, i);
  }
}

Tensors make_views(const Tensor& input, const OutputSpecs& specs) {
  Tensors views;
  for (const OutputSpec& spec : specs) {
    const auto rank = static_cast<size_t>(spec.rank);
    views.push_back(make_view(input, {spec.shape.data(), rank}, {spec.strides.data(), rank}, spec.offset));
  }
  return views;
}

void set_arithmetic(OpCall& call, Context& context, const Op& op, uint64_t stream) {
  call.arithmetic = context.arithmetic->of(op, context.forward_op, context.module);
  call.seed = context.seed;
  call.stream = hash_combine(stream, hash_combine(context.step, context.micro_batch << 8 | context.loss_index));
}

// The random bits of a parameter's cast. Evaluation comes after the step's update and casts anew.
uint64_t cached_cast_stream(const Context& context, std::string_view parameter) {
  return hash_combine(hash_text("cast"), hash_combine(hash_text(parameter), context.phase == Phase::evaluation));
}

// What the outputs of a call are marked with (TensorBody).
struct OutputMarks {
  double loss_scale;
  bool lowered, kept_fp32;
};

Tensors make_outputs(Context& context, uint64_t id, std::span<const Tensor> operands, const OutputSpecs& specs,
                     const OutputMarks& marks, std::span<const OutputHint> hints) {
  Tensors outputs;
  for (size_t i = 0; i < specs.size(); ++i) {
    Tensor output = make_output(context, specs[i], operands);
    TensorBody& body = *output.body();
    body.value = {id, static_cast<uint32_t>(i)};
    body.loss_scale = specs[i].loss_scale_power == 1 ? marks.loss_scale : std::pow(marks.loss_scale, specs[i].loss_scale_power);
    body.kept_fp32 = marks.kept_fp32;
    if (specs[i].alias < 0) {
      body.lowered = marks.lowered && !specs[i].stays_wide;
      if (i < hints.size() && hints[i].lowered) body.lowered = *hints[i].lowered;
      if (is_narrow(specs[i].dtype)) body.lowered = true;
    }
    outputs.push_back(std::move(output));
  }
  return outputs;
}

// What the outputs are, for observers.
using OutputLabels = SmallVector<OutputLabel, 5>;
OutputLabels labels_of(const Context& context, const Tensors& outputs, const OutputSpecs& specs,
                       std::span<const OutputHint> hints) {
  const Role otherwise = context.phase == Phase::backward ? Role::activation_gradient : Role::activation;
  OutputLabels labels;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorBody& body = *outputs[i].body();
    const OutputHint hint = i < hints.size() ? hints[i] : OutputHint{{}, body.parameter};
    labels.push_back({hint.role.value_or(specs[i].role.value_or(otherwise)), hint.parameter, !body.lowered,
                      hint.name.empty() ? specs[i].name : hint.name, hint.gradient_of, hint.gradient_input});
  }
  return labels;
}

// An input that was changed in place is now the output of the op.
void mark_changed(const Tensors& inputs, Tensors& outputs, const OutputSpecs& specs) {
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].alias < 0) continue;
    ++outputs[i].storage().version;
    TensorBody& changed = *inputs[static_cast<size_t>(specs[i].alias)].body();
    changed.value = outputs[i].body()->value;
    changed.loss_scale = outputs[i].body()->loss_scale;
  }
}

}  // namespace

Tensor autocast_input(const Tensor& input, DType dtype, uint64_t served, size_t index) {
  Context& context = ulpscope::context();
  const bool is_parameter = input.body()->parameter && input.dtype() == DType::f32;  // or a view of one
  const bool is_cached = is_parameter && input.is_leaf() && context.autocast && context.autocast->casts_once();
  if (is_cached) {
    if (const Tensor* cached = context.autocast->cached_cast(input, dtype)) return *cached;
  }
  const OutputHint hint{is_parameter ? Role::weight_cast : Role::activation, input.body()->parameter};
  CallOptions options;
  options.dtype = dtype;
  options.hints = {&hint, 1};
  options.id = hash_combine(hash_combine(served, hash_text("cast")), index);
  if (is_cached && context.arithmetic != nullptr) options.stream = cached_cast_stream(context, *input.body()->parameter);
  const Tensor inputs[] = {input};
  Tensor result = dispatch(cast_op(), inputs, {}, options)[0];
  result.body()->parameter = input.body()->parameter;
  result.body()->module = input.body()->module;
  if (is_cached) context.autocast->remember_cast(input, result);
  return result;
}

DType type_of_inputs(const Op& op, std::span<const Tensor> inputs) {
  return input_type(context(), op, inputs, {}).type().value_or(widest(op, inputs));
}

Tensors dispatch(const Op& op, std::span<const Tensor> arguments, const Attributes& attributes, const CallOptions& options) {
  Context& context = ulpscope::context();
  check_inputs(context, op, arguments);
  const uint64_t id = options.id ? *options.id : next_id(context, op);
  Tensors inputs(arguments);
  const InputType chosen = input_type(context, op, arguments, options);
  if (const auto type = chosen.type()) cast_inputs(op, id, *type, inputs);
  ++context.calls;

  OutputSpecs specs;
  op.shape_rule({op, inputs, attributes, options.dtype}, specs);
  const bool differentiated = is_differentiated(op, context, inputs, specs);
  if (op.is_view) {
    Tensors views = make_views(inputs[0], specs);
    if (differentiated) record_on_tape(op, id, inputs, views, specs, attributes, inputs[0].body()->lowered);
    return views;
  }

  Tensors expanded;
  std::span<const Tensor> operands = inputs;
  if (op.broadcasts) {
    for (const Tensor& input : inputs) expanded.push_back(expand_to(op, input, specs[0]));
    operands = expanded;
  }
  const OutputMarks marks{
      .loss_scale = op.loss_scale    ? op.loss_scale(inputs, attributes)
                    : inputs.empty() ? 1.0
                                     : inputs[0].body()->loss_scale,
      .lowered = runs_lowered(context, op, inputs, chosen, options),
      .kept_fp32 = context.autocast && computes_forward(context.phase) && context.autocast->keeps_fp32(op, arguments)};
  Tensors outputs = make_outputs(context, id, operands, specs, marks, options.hints);

  SmallVector<TensorView, 5> input_views, output_views;
  for (const Tensor& operand : operands) input_views.push_back(operand.view());
  for (const Tensor& output : outputs) output_views.push_back(output.view());
  OpCall call;
  call.op = op.name;
  call.inputs = input_views;
  call.outputs = output_views;
  call.attributes = &attributes;
  if (context.arithmetic != nullptr) set_arithmetic(call, context, op, options.stream.value_or(id));
  if (context.observers.empty()) {
    submit(context, call);
  } else {
    const OutputLabels labels = labels_of(context, outputs, specs, options.hints);
    run_observed(context, call,
                 {op, id, context.forward_id, context.recomputing ? Phase::recompute : context.phase, *context.module,
                  context.micro_batch, context.loss_index, attributes, inputs, outputs, labels, call});
  }

  mark_changed(inputs, outputs, specs);
  if (differentiated) record_on_tape(op, id, inputs, outputs, specs, attributes, marks.lowered);
  return outputs;
}

Tensor call(std::string_view name, std::initializer_list<Tensor> inputs, const Attributes& attributes, const CallOptions& options) {
  return dispatch(find_op(name), {inputs.begin(), inputs.size()}, attributes, options)[0];
}

std::vector<double> read_scalars(std::span<const Tensor> scalars) {
  Context& context = ulpscope::context();
  ++context.host_reads;
  context.backend->complete();
  std::vector<double> values;
  for (const Tensor& scalar : scalars) values.push_back(to_host(scalar)[0]);
  return values;
}

}  // namespace ulpscope
