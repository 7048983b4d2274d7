#include <algorithm>
#include <cmath>

#include "ulpscope/recorder/aten/tracker.h"

namespace ulpscope::aten {

namespace {

// The program filled a part in; the rest is data.
bool is_partly_constant(const Makers& makers) { return makers.last == constant() && makers.others.empty() && !makers.is_complete; }

// It has no rows of samples: a matrix that others are multiplied by, or one that is broadcast along the first dimension of another.
bool has_no_rows(const Schema& schema, const Read& read, std::span<const Read> reads) {
  const Tensor& tensor = *read.tensor;
  const std::string& parameter = schema.parameters()[read.argument].name;
  if (schema.base() == "mm" || schema.base() == "mv") return parameter != "self";
  if (schema.base() == "addmm") return parameter != "mat1";
  return schema.is_pointwise() && std::any_of(reads.begin(), reads.end(), [&](const Read& other) {
           const int32_t more = other.tensor->rank - tensor.rank;
           if (more < 0 || other.tensor->rank == 0 || other.tensor->shape[0] == 1) return false;
           if (more == 0) return tensor.shape[0] == 1;
           return tensor.rank == 0 || tensor.shape[0] != other.tensor->shape[0];
         });
}

}  // namespace

// ---- inputs

bool Tracker::is_new_input(const MadePointer& made) const {
  if (made == nullptr) return true;
  return made->role == Role::input &&
         std::none_of(inputs_.begin(), inputs_.end(), [&](const ulpscope_value& value) { return is_same(value, made->value); });
}

MadePointer Tracker::loss_input(const Schema& schema, const Read& read, std::span<const Read> reads) {
  const Tensor& tensor = *read.tensor;
  const std::string& parameter = schema.parameters()[read.argument].name;
  const bool is_of_classes = parameter == "pos_weight" || (parameter == "weight" && schema.base().starts_with("nll_loss"));
  const MadePointer before = memory_.last(tensor);
  const bool is_prepared = before != nullptr && before->prepared != nullptr;
  // A constant belongs to the loss and not to a batch, whose samples a report would send its reader to.
  const bool is_constant = is_of_classes || has_no_rows(schema, read, reads);
  if (!is_constant || is_prepared || batches_.find(tensor)) return input(tensor, "target");
  return source(tensor, Role::buffer, 0, 0, name(is_of_classes ? "loss_weight" : "constant"));
}

bool Tracker::inputs_of(const Schema& schema, std::span<const Read> reads, std::vector<Makers>& makers, Phase phase,
                        std::vector<ulpscope_value>& inputs) {
  std::vector<ulpscope_value> others;
  bool unknown = false;
  uint32_t last = 0;
  for (size_t i = 0; i < reads.size(); ++i) {
    const Read& read = reads[i];
    Makers& each = makers[i];
    last = std::max(last, read.number);
    if (each.last == constant() && each.others.empty() && each.is_complete) continue;
    const bool holds_data = is_partly_constant(each);
    each.prefer_recorded();
    const Tensor& tensor = *read.tensor;
    if (phase == Phase::loss && (is_new_input(each.last) || holds_data)) {
      const MadePointer target = loss_input(schema, read, reads);
      each = {target, {}, target != nullptr};
    }
    if (is_recorded(each.last)) {
      while (inputs.size() < read.number) inputs.push_back(kNothing);
      inputs.push_back(each.last->value);
      for (const MadePointer& made : each.others)
        if (is_recorded(made)) others.push_back(made->value);
    }
    unknown = unknown || (!each.is_complete && has_statistics(tensor) && count_of_elements(tensor) > 0);
  }
  if (!others.empty()) {  // behind all that the function counts
    while (inputs.size() < last + 1) inputs.push_back(kNothing);
    inputs.insert(inputs.end(), others.begin(), others.end());
  }
  return unknown;
}

bool Tracker::tell_output(ulpscope_op token, const LabelledOutput& output, const Tensor* cast_from) {
  const Tensor& tensor = *output.tensor;
  const ulpscope_label label = label_of(output.label);
  if (tensor.is_on_host) {
    const ulpscope_tensor told = told_tensor(tensor, tensor.data);
    ulpscope_tensor from{};
    const bool counts_roundings = cast_from != nullptr && cast_from->is_on_host;
    if (counts_roundings) from = told_tensor(*cast_from, cast_from->data);
    return check(calls_.output(recorder_, token, output.slot, &told, &label, counts_roundings ? &from : nullptr));
  }
  const ulpscope_tensor told = told_tensor(tensor, nullptr);
  if (!check(calls_.output_later(recorder_, token, output.slot, &told, &label))) return false;
  uint8_t level = 0;
  if (check(calls_.wants_statistics(recorder_, token, &level)) && level > 0 && !measures_.is_capturing(tensor))
    measures_.take_output(token, output.slot, tensor, cast_from, label.scale, level);
  return true;
}

std::vector<MadePointer> Tracker::emit(const Call& described, std::span<const LabelledOutput> outputs, const Tensor* cast_from,
                                       const Looks* looks) {
  ulpscope_call call{};
  call.size = sizeof call;
  call.name = told(described.name);
  call.module = told(described.module);
  call.attributes = told(described.attributes);
  call.location = told(described.location);
  call.parameter = told(described.parameter);
  call.phase = static_cast<int32_t>(described.phase);
  call.function = static_cast<int32_t>(described.function);
  call.kind = described.kind ? static_cast<int32_t>(*described.kind) : -1;
  call.id = described.id;
  call.forward_id = described.forward_id;
  call.inputs = described.inputs.data();
  call.inputs_count = static_cast<uint32_t>(described.inputs.size());
  call.inputs_unknown = described.inputs_unknown;
  std::vector<int64_t> product;
  if (described.product) {
    product = described.product->numbers();
    call.product = product.data();
  }
  ulpscope_op token = 0;
  uint64_t id = 0;
  if (!check(calls_.begin_op(recorder_, &call, &token, &id))) {
    for (const LabelledOutput& output : outputs) forget(*output.tensor);
    return {};
  }
  const uint64_t order = ++told_;
  std::vector<MadePointer> results;
  results.reserve(outputs.size());
  for (const LabelledOutput& output : outputs) {
    const Tensor& tensor = *output.tensor;
    auto made = std::make_shared<Made>();
    made->op = token;
    made->value = {id, output.slot};
    made->step = state_.step;
    made->phase = described.phase;
    made->module = described.module;
    made->function = described.function;
    made->role = output.label.role;
    made->parameter = output.label.parameter;
    made->name = output.label.name;
    made->scale = output.label.scale;
    made->order = order;
    if (has_statistics(tensor)) {
      if (!tell_output(token, output, cast_from)) {
        forget(tensor);
        continue;
      }
      // Operands in the memory of a device are gone when its NaN is known.
      uint8_t is_wanted = 0;
      if (looks != nullptr && tensor.is_on_host && check(calls_.wants_capture(recorder_, token, output.slot, &is_wanted)) &&
          is_wanted) {
        Call again = described;
        if (looks->inputs_are_others && looks->inputs_are_others(again)) {
          check(calls_.drop_op(recorder_, token));
          again.id = id;
          const Looks rest{{}, looks->explained};
          return emit(again, outputs, cast_from, &rest);
        }
        const bool is_explained = looks->explained && !described.inputs_unknown;
        const std::vector<ulpscope_node> nodes =
            is_explained ? looks->explained(tensor, tensor.data) : std::vector<ulpscope_node>();
        if (!nodes.empty())
          check(calls_.set_capture(recorder_, token, output.slot, nodes.data(), static_cast<uint32_t>(nodes.size())));
      }
    } else if (state_.hashes_bits != 0 && tensor.is_on_host && tensor.unreadable == nullptr && integer_type_of(tensor) &&
               is_foldable(tensor)) {
      tell_output(token, output, nullptr);
    }
    memory_.write(tensor, made);
    results.push_back(std::move(made));
  }
  check(calls_.end_op(recorder_, token));
  return results;
}

// ---- tensors that no op made

MadePointer Tracker::source(const Tensor& tensor, Role role, Name parameter, Name module, Name name_of_tensor) {
  Call call;
  call.name = parameter != 0 ? name("source") : name_of_tensor;
  call.phase = Phase::data;
  call.function = OpFunction::source;
  call.module = module;
  call.parameter = parameter;
  const LabelledOutput output{0, &tensor, {role, parameter, name_of_tensor, 1}, false};
  const std::vector<MadePointer> made = emit(call, {&output, 1});
  return made.empty() ? nullptr : made[0];
}

void Tracker::delivered(std::span<const Tensor> tensors, uint32_t batch, int64_t samples, bool is_in_rows) {
  for (const Tensor& tensor : tensors) batches_.deliver(tensor, {batch, 0, samples, is_in_rows});
}

MadePointer Tracker::input(const Tensor& tensor, std::string_view name_of_tensor) {
  if (const MadePointer made = prepared_input(tensor, name_of_tensor)) return made;
  const std::optional<BatchPart> part = batches_.find(tensor);
  const bool is_told = part && session_.batch(session_.context, part->batch, part->first, part->count) != 0;
  // An op has one text of attributes, so that inputs of which more is known, or less, are ops of their own.
  const auto [suffix, attributes] = !is_told           ? std::pair("", "samples=none")
                                    : part->is_in_rows ? std::pair("_of_batch", "samples=rows")
                                                       : std::pair("_of_unordered_batch", "samples=unordered");
  Call call;
  call.name = name(std::string(name_of_tensor) + suffix);
  call.phase = is_evaluation_ ? Phase::evaluation : Phase::data;
  call.function = OpFunction::source;
  call.attributes = name(attributes);
  const LabelledOutput output{0, &tensor, {Role::input, 0, name(name_of_tensor), 1}, false};
  const auto first_nonfinite = [](const Tensor& values, const void* data) { return nonfinite_element(values, data); };
  const Looks looks{{}, first_nonfinite};
  const std::vector<MadePointer> made = emit(call, {&output, 1}, nullptr, &looks);
  for (const MadePointer& each : made) inputs_.push_back(each->value);
  if (!made.empty()) tell_loss_of_cast(tensor, *made[0]);
  return made.empty() ? nullptr : made[0];
}

void Tracker::source_later(const Tensor& tensor, Name parameter, Name module, Name name_of_tensor) {
  Unread unread{KeptDescription(tensor), parameter, module, name_of_tensor};
  if (unread_.insert_or_assign(tensor.storage, std::move(unread)).second) adapter_.retain(adapter_.context, tensor.storage);
}

void Tracker::source_unread(const Tensor& seen) {
  const auto at = unread_.find(seen.storage);
  if (at == unread_.end()) return;
  Unread unread = std::move(at->second);
  unread_.erase(at);
  Tensor tensor = unread.tensor.described();
  // The memory may have moved since.
  if (tensor.storage_data == seen.storage_data && tensor.storage_bytes == seen.storage_bytes) {
    tensor.handle = seen.handle;  // the one that it had may be gone
    source(tensor, Role::buffer, unread.parameter, unread.module, unread.name);
  }
  adapter_.release(adapter_.context, tensor.storage);
}

void Tracker::source_buffers(const Schema& schema, const Bound& bound) {
  for (const Read& read : schema.reads(bound)) source_unread(*read.tensor);
}

// A buffer that is written as a whole, and not read, had nothing that matters: it is the op's from then on.
void Tracker::source_written(const Schema& schema, const Bound& bound) {
  for (size_t i = 0; i < schema.parameters().size(); ++i) {
    if (!schema.parameters()[i].is_written) continue;
    bound.visit(i, [&](const Tensor& tensor) {
      const auto at = unread_.find(tensor.storage);
      if (tensor.unreadable != nullptr || at == unread_.end()) return;
      const bool is_whole = static_cast<uint64_t>(count_of_elements(tensor) * element_size(tensor)) >= tensor.storage_bytes;
      if (!is_whole || !schema.overwrites()) return source_unread(tensor);
      unread_.erase(at);
      adapter_.release(adapter_.context, tensor.storage);
    });
  }
}

void Tracker::inputs(std::span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors) settle(tensor);
  for (const Tensor& tensor : tensors) {
    if (!tensor.is_present || tensor.unreadable != nullptr) continue;
    const Makers makers = makers_of(tensor);
    if (is_new_input(makers.last) || is_partly_constant(makers)) input(tensor, "input");
  }
}

// ---- backward passes

void Tracker::set_label(Made& made, const Label& label) {
  made.role = label.role;
  made.parameter = label.parameter;
  made.scale = label.scale;
  if (made.step != state_.step || !state_.is_open) return;
  const ulpscope_label told = label_of(label);
  check(calls_.set_label(recorder_, made.op, made.value.slot, &told));
}

void Tracker::set_gradient_of(Made& made, const ulpscope_value& value, int32_t input) {
  if (made.has_gradient_of || made.step != state_.step || made.parameter != 0 || is_same(made.value, value)) return;
  made.has_gradient_of = true;
  check(calls_.set_gradient_of(recorder_, made.op, made.value.slot, value, input));
}

std::optional<ulpscope_value> Tracker::target_of(const ulpscope_aten_edge& edge) const {
  const Node* const node = edge.to_parameter ? nullptr : nodes_.find(edge.sequence);
  if (node == nullptr || node->of_parameter) return std::nullopt;
  return node->viewed ? *node->viewed : ulpscope_value{node->op, static_cast<uint32_t>(edge.slot)};
}

namespace {

// A loss that one op made of all samples, so that nothing divided it.
bool is_whole_loss(OpFunction function) { return function == OpFunction::mean || kind_of(function) == OpKind::loss; }

}  // namespace

ulpscope_aten_backward Tracker::begin_backward(std::span<const Tensor> roots, bool takes_losses) {
  ulpscope_aten_backward backward{1.0, 0.0, std::nan(""), 0, 0};
  std::vector<Number> losses;
  begins_with_ones_ =
      begins_with_ones_ && std::all_of(roots.begin(), roots.end(), [](const Tensor& root) { return count_of_elements(root) == 1; });
  for (const Tensor& root : roots) {
    settle(root);
    if (root.unreadable != nullptr) continue;
    const MadePointer made = makers_of(root).last;
    if (!is_recorded(made)) continue;
    if (made->scale != 1) backward.scale = made->scale;  // of several roots some may have none
    if (!takes_losses || count_of_elements(root) != 1) continue;
    if (!made->unscaled_loss && measures_.is_capturing(root)) continue;
    losses.push_back(made->unscaled_loss ? *made->unscaled_loss : number_in(root));
    backward.has_loss = 1;
    const MadePointer loss = made->function == OpFunction::scale ? made->source : made;
    if (loss == nullptr || !is_recorded(loss)) continue;
    backward.divisor = loss->divisor.value_or(is_whole_loss(loss->function) ? 1 : std::nan(""));
    set_label(*loss, {Role::loss, loss->parameter, loss->name, loss->scale});
  }
  if (std::all_of(losses.begin(), losses.end(), [](const Number& loss) { return loss.is_known(); })) {
    for (const Number& loss : losses) backward.loss += loss.value;
  } else {
    losses_.push_back(std::move(losses));
    backward.later = static_cast<uint32_t>(losses_.size());
  }
  return backward;
}

void Tracker::handed_on(int64_t node, const char* name_of_node, std::span<const ulpscope_aten_edge> edges,
                        std::span<const Tensor> gradients, std::span<const Tensor> arrived) {
  if (name_of_node != nullptr) handed_on_by_program(node, name_of_node, gradients, arrived);
  handed_on_.begin(node);
  for (size_t i = 0; i < edges.size(); ++i) {
    const ulpscope_aten_edge& edge = edges[i];
    const Tensor& gradient = gradients[i];
    if (!edge.exists || !gradient.is_present || gradient.unreadable != nullptr || !has_statistics(gradient)) continue;
    handed_on_.add(gradient.storage, edge);
    const MadePointer made = memory_.last(gradient);
    if (made == nullptr || made->step != state_.step || made->phase != Phase::backward) continue;
    if (made->role == Role::activation) set_label(*made, {Role::activation_gradient, made->parameter, made->name, scale_});
    if (!edge.to_parameter) {
      if (const auto target = target_of(edge)) {
        const Node* const from = nodes_.find(node);
        set_gradient_of(*made, *target, from != nullptr && i < from->inputs.size() ? from->inputs[i] : -1);
      }
      continue;
    }
    const Name parameter = parameter_of(edge.handle);
    if (parameter == 0 || made->role != Role::activation_gradient) continue;
    Role role = Role::weight_gradient;
    if (made->function == OpFunction::cast && made->source != nullptr && made->source->step == made->step) {
      Made& source = *made->source;
      set_label(source, {Role::weight_gradient, parameter, source.name, source.scale});
      role = Role::accumulated_gradient;
    }
    set_label(*made, {role, parameter, made->name, made->scale});
  }
}

void Tracker::end_backward() {
  handed_on_.clear();
  begins_with_ones_ = true;
}

// ---- numbers in tensors: those of devices are told when the step ends

Number Tracker::number_in(const Tensor& tensor, double divisor) {
  if (!tensor.is_on_host) return measures_.take_number(tensor, divisor);
  const std::vector<int64_t> index(static_cast<size_t>(tensor.rank));
  return {element_at(tensor, tensor.data, index) / divisor};
}

Number Tracker::norm_of(const Tensor& tensor, double divisor) {
  if (!tensor.is_on_host) return measures_.take_square(tensor, divisor);
  return {square_of_norm_of(host_tensor(tensor, tensor.data)) / divisor};
}

void Tracker::settle_devices() {
  measures_.settle([&](ulpscope_op op, uint32_t slot,
                       const ulpscope_statistics& statistics) { check(calls_.fill(recorder_, op, slot, &statistics)); },
                   [&](ulpscope_op op, uint32_t slot, const ulpscope_update_counts& counts) {
                     check(calls_.fill_update(recorder_, op, slot, &counts));
                   });
  double before = 0, after = 0;
  bool has_norms = false;
  for (const Norms& each : norms_) {
    if (!(measures_.value_of(each.counts) > 0)) continue;
    has_norms = true;
    before += measures_.value_of(each.before);
    after += measures_.value_of(each.after);
  }
  norms_.clear();
  if (has_norms) session_.norms(session_.context, before, after);
  if (scale_after_) session_.scale_told(session_.context, measures_.value_of(*scale_after_));
  scale_after_.reset();
  for (auto& [parameter, square] : unclipped_) square = {measures_.value_of(square)};
}

double Tracker::loss(uint32_t later) const {
  double sum = 0;
  for (const Number& part : losses_[later - 1]) sum += measures_.value_of(part);
  return sum;
}

}  // namespace ulpscope::aten
