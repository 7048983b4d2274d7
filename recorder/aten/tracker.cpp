#include "ulpscope/recorder/aten/tracker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/recorder/aten/update_rule.h"

namespace ulpscope::aten {
namespace {

constexpr ulpscope_value kNothing{0, 0};  // in the place of an output that was not recorded
constexpr size_t kBatchNormOutputs = 3;  // its values, and the mean and the inverse deviation of the batch; the buffers come behind

// Views whose gradients are computed: they are ops of their own to their backward ops.
constexpr std::string_view kViewsWithGradients[] = {"expand", "select", "slice", "as_strided", "unfold", "diagonal"};
constexpr std::string_view kClips[] = {"mul", "div", "clamp", "clamp_min", "clamp_max", "copy", "minimum", "maximum"};

template <size_t N>
bool contains(const std::string_view (&list)[N], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

bool is_same(const ulpscope_value& a, const ulpscope_value& b) { return a.op == b.op && a.slot == b.slot; }

// Roundings of a cast to 16 bits are counted.
bool narrows(const Tensor& given, const Tensor& cast) {
  return element_size(cast) == 2 && has_statistics(cast) && given.type != cast.type && have_one_shape(given, cast);
}

int output_of(ulpscope_recorder* recorder, ulpscope_op op, uint32_t slot, const ulpscope_tensor* tensor,
              const ulpscope_label* label, const ulpscope_tensor* cast_from) {
  if (cast_from == nullptr) return ulpscope_output(recorder, op, slot, tensor, label, nullptr);
  ulpscope_statistics statistics{};
  statistics.size = sizeof statistics;
  const int code = ulpscope_take_cast(cast_from, tensor, label->scale, &statistics);
  return code != ULPSCOPE_OK ? code : ulpscope_output(recorder, op, slot, tensor, label, &statistics);
}

constexpr ulpscope_aten_calls kLibrary{ulpscope_intern,          ulpscope_begin_op,   ulpscope_end_op,
                                       ulpscope_drop_op,         output_of,           ulpscope_set_label,
                                       ulpscope_set_gradient_of, ulpscope_set_update, ulpscope_wants_capture,
                                       ulpscope_set_capture,     ulpscope_last_error};

ulpscope_tensor told_tensor(const Tensor& tensor, const void* data) {
  ulpscope_tensor told{};
  told.size = sizeof told;
  told.data = data;
  told.dtype = static_cast<int32_t>(*dtype_of(tensor));
  told.rank = tensor.rank;
  told.shape = tensor.shape;
  // A copy from a device lies in the logical order.
  told.strides = tensor.is_on_host ? tensor.strides : nullptr;
  return told;
}

ulpscope_tensor told_tensor(const HostTensor& tensor) {
  ulpscope_tensor told{};
  told.size = sizeof told;
  told.data = tensor.data;
  told.dtype = static_cast<int32_t>(tensor.dtype);
  told.rank = static_cast<int32_t>(tensor.shape.size());
  told.shape = tensor.shape.data();
  told.strides = tensor.strides.empty() ? nullptr : tensor.strides.data();
  return told;
}

HostTensor host_tensor(const Tensor& tensor, const void* data) {
  return {data, *dtype_of(tensor), shape_of(tensor), tensor.is_on_host ? strides_of(tensor) : std::span<const int64_t>()};
}

// Sums in FP64.
double square_of_norm_of(const HostTensor& tensor) {
  constexpr int64_t kBlock = 4096, kLanes = 8;
  const TensorView view = folded(tensor);
  std::vector<double> values(static_cast<size_t>(std::min(kBlock, view.size())));
  double sums[kLanes] = {};
  for (int64_t begin = 0; begin < view.size(); begin += kBlock) {
    const int64_t n = std::min(kBlock, view.size() - begin);
    read_values(view, begin, n, values.data());
    const double* const value = values.data();
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += value[i + lane] * value[i + lane];
    for (; i < n; ++i) sums[0] += value[i] * value[i];
  }
  return std::accumulate(std::begin(sums), std::end(sums), 0.0);
}

// The values, divided by a number.
KeptTensor divided(const HostTensor& tensor, double divisor) {
  const TensorView view = folded(tensor);
  KeptTensor quotient;
  quotient.dtype = DType::f64;
  quotient.shape.assign(tensor.shape.begin(), tensor.shape.end());
  std::vector<double> values(static_cast<size_t>(view.size()));
  read_values(view, 0, view.size(), values.data());
  for (double& value : values) value /= divisor;
  quotient.bytes.resize(values.size() * sizeof(double));
  std::memcpy(quotient.bytes.data(), values.data(), quotient.bytes.size());
  return quotient;
}

}  // namespace

Tracker::Tracker(const ulpscope_aten_adapter& adapter, const ulpscope_aten_session& session, const ulpscope_aten_calls& calls)
    : adapter_(adapter), session_(session), calls_(calls.begin_op == nullptr ? kLibrary : calls), memory_(adapter) {
  name("");
  state_.step = -1;
}

Tracker::~Tracker() {
  for (const auto& [storage, unread] : unread_) adapter_.release(adapter_.context, storage);
}

// ---- names

Name Tracker::name(std::string_view text) {
  const auto [at, is_new] = by_text_.try_emplace(std::string(text), static_cast<Name>(names_.size()));
  if (is_new) names_.push_back({std::string(text), {}});
  return at->second;
}

ulpscope_text Tracker::told(Name name) {
  if (name == 0) return 0;
  NamedText& text = names_[name];
  if (!text.told) {
    ulpscope_text number = 0;
    check(calls_.intern(recorder_, text.text.data(), text.text.size(), &number));
    text.told = number;
  }
  return *text.told;
}

uint32_t Tracker::add_schema(const ulpscope_aten_schema& schema) {
  schemas_.emplace_back(schema);
  return static_cast<uint32_t>(schemas_.size() - 1);
}

void Tracker::name_parameter(uint64_t handle, Name name, Name module) {
  if (!parameters_.try_emplace(handle, name).second) return;
  modules_.try_emplace(name, module);
}

Name Tracker::parameter_of(uint64_t handle) const {
  const auto at = parameters_.find(handle);
  return at == parameters_.end() ? 0 : at->second;
}

Name Tracker::module_of(Name parameter) const {
  const auto at = modules_.find(parameter);
  return at == modules_.end() ? 0 : at->second;
}

bool Tracker::check(int code) {
  if (code == ULPSCOPE_OK) return true;
  const std::string why = calls_.last_error();
  if (code != ULPSCOPE_REFUSED) throw failed_error("{}", why);
  session_.refused(session_.context, why.c_str());
  return false;
}

ulpscope_label Tracker::label_of(const Label& label) {
  ulpscope_label to{};
  to.size = sizeof to;
  to.role = static_cast<int32_t>(label.role);
  to.parameter = told(label.parameter);
  to.name = told(label.name);
  to.scale = label.scale;
  return to;
}

std::vector<Tracker::Entry>& Tracker::stack() { return stacks_[std::this_thread::get_id()]; }

const void* Tracker::on_host(const Tensor& tensor) const {
  return tensor.is_on_host ? tensor.data : adapter_.copy_to_host(adapter_.context, &tensor);
}

double Tracker::number_in(const Tensor& tensor) const {
  const std::vector<int64_t> index(static_cast<size_t>(tensor.rank));
  return element_at(tensor, on_host(tensor), index);
}

double Tracker::square_of_norm(const Tensor& tensor) const { return square_of_norm_of(host_tensor(tensor, on_host(tensor))); }

// ---- ops

Bound Tracker::bound_of(const ulpscope_aten_op& op, const Schema& schema) const {
  return {{op.arguments, schema.parameters().size()}, op.tensors};
}

void Tracker::before(const ulpscope_aten_op& op) {
  const Schema& schema = schemas_[op.schema];
  const Bound bound = bound_of(op, schema);
  if (state_.paused > 0) return;
  // Buffers that are about to change, and gradients, whose norms are taken while they are whole.
  if (!unread_.empty() && state_.is_open && (schema.writes() || schema.is_batch_norm())) source_buffers(schema, bound);
  if (state_.state != ULPSCOPE_ATEN_BACKWARD || state_.optimizing > 0 || op.task != -1 || !schema.writes() ||
      !contains(kClips, schema.base()))
    return;
  for (size_t i = 0; i < schema.parameters().size(); ++i) {
    if (!schema.parameters()[i].is_written) continue;
    bound.visit(i, [&](const Tensor& tensor) {
      const MadePointer made = tensor.unreadable == nullptr ? memory_.last(tensor) : nullptr;
      if (made == nullptr || made->parameter == 0 || !is_gradient(made->role) || !has_statistics(tensor)) return;
      if (!unclipped_.contains(made->parameter))
        unclipped_.emplace(made->parameter, square_of_norm(tensor) / (made->scale * made->scale));
    });
  }
}

void Tracker::forget_written(const Schema& schema, const Bound& bound) {
  const auto& parameters = schema.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    // The schema of batch norm does not say that it writes these.
    const bool is_statistic =
        schema.is_batch_norm() && (parameters[i].name == "running_mean" || parameters[i].name == "running_var");
    if (parameters[i].is_written || is_statistic)
      bound.visit(i, [&](const Tensor& tensor) {
        if (tensor.unreadable == nullptr) forget(tensor);
      });
  }
}

void Tracker::after(const ulpscope_aten_op& op) {
  const Schema& schema = schemas_[op.schema];
  const Bound bound = bound_of(op, schema);
  if (state_.paused > 0) return forget_written(schema, bound);
  if (!schema.is_recorded()) return;
  const auto& parameters = schema.parameters();
  if (schema.is_collective()) {  // other processes write what it is given
    for (size_t i = 0; i < parameters.size(); ++i)
      bound.visit(i, [&](const Tensor& tensor) {
        if (tensor.unreadable == nullptr) forget(tensor);
      });
    return;
  }
  std::vector<const Tensor*> reads, written, outputs;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].is_tensor) continue;
    bound.visit(i, [&](const Tensor& tensor) {
      reads.push_back(&tensor);
      if (parameters[i].is_written) written.push_back(&tensor);
    });
  }
  for (uint32_t i = 0; i < op.results_count; ++i)
    if (op.results[i].is_present) outputs.push_back(&op.results[i]);
  if (outputs.empty() && written.empty()) return;
  const auto why_unreadable = [](const std::vector<const Tensor*>& tensors) -> const char* {
    for (const Tensor* const tensor : tensors)
      if (tensor->unreadable != nullptr) return tensor->unreadable;
    return nullptr;
  };
  const char* why = why_unreadable(reads);
  if (why == nullptr) why = why_unreadable(outputs);
  if (why != nullptr) {
    // While code is compiled, ops run on tensors without memory, backward too, which are nobody's training.
    if (!calls_compiled() && !is_in_compiled(op)) ++not_read_[why];
    for (const Tensor* const tensor : outputs)
      if (tensor->unreadable == nullptr) forget(*tensor);
    return;
  }
  if (!unread_.empty() && state_.is_open) source_buffers(schema, bound);
  follow_backward(schema, op.task);
  if (schema.name() == "_amp_foreach_non_finite_check_and_unscale_") return unscale(schema, bound);
  if (schema.name() == "_amp_update_scale_") {
    if (state_.is_open) session_.scaler_updated(session_.context, number_in(*reads.front()));
    return;
  }
  if (schema.is_empty()) {
    for (const Tensor* const tensor : outputs) memory_.write(*tensor, unmade());
    return;
  }
  if (!schema.writes() && !reads.empty() && !outputs.empty()) {
    const auto is_read = [&](const Tensor* output) {
      return std::any_of(reads.begin(), reads.end(), [&](const Tensor* read) { return read->storage == output->storage; });
    };
    if (schema.is_view() || std::all_of(outputs.begin(), outputs.end(), is_read)) return view(schema, op, reads);
  }
  const std::optional<Place> place = place_of(schema, op, reads, written);
  if (!place) {
    for (const Tensor* const tensor : written.empty() ? outputs : written) {
      const MadePointer made = memory_.last(*tensor);
      if (schema.base() == "zero")
        memory_.write(*tensor, constant());
      else if (!(state_.optimizing > 0 && made != nullptr && is_recorded(made) && is_kept(made->role)))
        forget(*tensor);
    }
    return;
  }
  for (const Row& row : rows_of(schema, op, bound, written)) record_row(schema, op, row, *place);
}

void Tracker::follow_backward(const Schema& schema, int64_t task) {
  if (task == -1) {
    ulpscope_aten_start start{};
    if (schema.base() == "ones_like") session_.backward(session_.context, 1, &start);
    if (start.is_found) {
      makes_start_ = true;
      if (start.is_new) scale_ = start.scale;
    } else if (task_ != -1) {
      task_ = -1;
      session_.backward_ended(session_.context);
    }
    return;
  }
  if (task == task_) return;
  ulpscope_aten_start start{};
  session_.backward(session_.context, 0, &start);
  const bool is_outer = task_ == -1 || !start.is_found || !start.is_nested;
  if (is_outer) task_ = task;
  if (start.is_found && start.is_new && is_outer) scale_ = start.scale;
  makes_start_ = false;
}

std::optional<Tracker::Place> Tracker::place_of(const Schema& schema, const ulpscope_aten_op& op,
                                                std::span<const Tensor* const> reads, std::span<const Tensor* const> written) {
  const std::vector<Entry>& entries = stack();
  const Entry* const top = entries.empty() ? nullptr : &entries.back();
  if (op.task != -1) {
    if (!state_.is_open) return std::nullopt;
    if (top != nullptr && top->task == op.task) return Place{Phase::recompute, top->name};
    return Place{Phase::backward, 0};
  }
  if (top != nullptr && state_.is_open) return Place{top->is_evaluating ? Phase::evaluation : Phase::forward, top->name};
  std::vector<MadePointer> made;
  bool grows = false;
  for (const Tensor* const tensor : reads) {
    made.push_back(memory_.last(*tensor));
    grows = grows || (op.grad_enabled && tensor->requires_grad);
  }
  const auto any = [&](const auto& matches) {
    return std::any_of(made.begin(), made.end(), [&](const MadePointer& each) { return each != nullptr && matches(*each); });
  };
  const auto reads_weight = [&] { return any([](const Made& each) { return each.role == Role::weight; }); };
  if (state_.optimizing > 0 && !grows) return std::nullopt;
  if (schema.base() == "ones_like" && makes_start_ && state_.is_open) return Place{Phase::backward, 0};
  if (state_.state == ULPSCOPE_ATEN_IDLE || state_.state == ULPSCOPE_ATEN_ENDED) {
    if (grows && reads_weight()) {
      session_.enter(session_.context, 0);
      return Place{Phase::forward, 0};
    }
    if (!grows && state_.is_open) {
      const auto is_state = [&](const Tensor* tensor) {
        const MadePointer each = memory_.last(*tensor);
        return is_recorded(each) && is_kept(each->role);
      };
      if (schema.base() != "zero" && std::any_of(written.begin(), written.end(), is_state)) return Place{Phase::optimizer, 0};
      if (any([&](const Made& each) { return each.phase == Phase::evaluation && each.step == state_.step; }))
        return Place{Phase::evaluation, 0};
    }
    return std::nullopt;
  }
  if (!written.empty() && schema.base() == "zero") return std::nullopt;
  if (!any([](const Made& each) { return each.step >= 0; }) && !(grows && state_.state == ULPSCOPE_ATEN_BACKWARD))
    return std::nullopt;
  if (!grows && any([](const Made& each) { return each.phase == Phase::evaluation; })) return Place{Phase::evaluation, 0};
  if (state_.state == ULPSCOPE_ATEN_BACKWARD && grows && reads_weight()) {
    session_.enter(session_.context, 0);
    return Place{Phase::forward, 0};
  }
  return Place{state_.state == ULPSCOPE_ATEN_FORWARD ? Phase::loss : Phase::scaling, 0};
}

namespace {

// Whether autograd makes a node of an op that reads these.
bool makes_node(const ulpscope_aten_op& op, std::span<const Tensor* const> reads) {
  return op.grad_enabled &&
         std::any_of(reads.begin(), reads.end(), [](const Tensor* tensor) { return tensor->requires_grad != 0; });
}

}  // namespace

void Tracker::view(const Schema& schema, const ulpscope_aten_op& op, std::span<const Tensor* const> reads) {
  if (!state_.is_open || !makes_node(op, reads)) return;
  const MadePointer made = memory_.last(*reads[0]);
  if (!is_recorded(made)) return;
  Node node{made->value.op, made->module, made->value, made->role == Role::weight || made->role == Role::weight_cast, {0}, false};
  const std::vector<Entry>& entries = stack();
  if (contains(kViewsWithGradients, schema.base()) && op.task == -1 && !entries.empty()) {
    node.module = entries.back().name;
    ulpscope_call call{};
    call.size = sizeof call;
    call.name = told(name(schema.base()));
    call.module = told(node.module);
    call.phase = static_cast<int32_t>(Phase::forward);
    call.function = call.kind = -1;
    call.inputs = &made->value;
    call.inputs_count = 1;
    ulpscope_op token = 0;
    if (check(calls_.begin_op(recorder_, &call, &token, &node.op))) check(calls_.drop_op(recorder_, token));
  }
  nodes_.add(op.made_node, std::move(node));
}

void Tracker::unscale(const Schema& schema, const Bound& bound) {
  const auto gradients = schema.find("self"), found = schema.find("found_inf");
  if (!gradients || !found || bound.tensor(*found) == nullptr) return;
  const bool overflowed = number_in(*bound.tensor(*found)) > 0;
  if (session_.unscaled(session_.context, overflowed) == 0 || !state_.is_open) return;
  double total = 0;
  bound.visit(*gradients, [&](const Tensor& gradient) {
    const MadePointer made = memory_.last(gradient);
    const bool is_known = is_recorded(made);
    const Name parameter = made == nullptr ? 0 : made->parameter;
    Call call;
    call.name = name("unscale");
    call.phase = Phase::scaling;
    call.function = OpFunction::unscale;
    call.module = module_of(parameter);
    call.parameter = parameter;
    if (is_known) call.inputs = {&made->value, 1};
    call.inputs_unknown = !is_known;
    const LabelledOutput output{0, &gradient, {Role::unscaled_gradient, parameter, 0, 1}, false};
    emit(call, {&output, 1});
    if (overflowed) total += square_of_norm(gradient);
  });
  if (overflowed) session_.norms(session_.context, total, total);
}

std::vector<Tracker::Row> Tracker::rows_of(const Schema& schema, const ulpscope_aten_op& op, const Bound& bound,
                                           std::span<const Tensor* const> written) {
  std::vector<Row> rows;
  const auto& parameters = schema.parameters();
  if (schema.is_list()) {
    std::vector<size_t> lists, changed;
    uint32_t elements = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].is_tensor || bound.arguments[i].kind != ULPSCOPE_ATEN_TENSORS) continue;
      lists.push_back(i);
      if (parameters[i].is_written) changed.push_back(i);
      elements = std::max(elements, bound.arguments[i].count);
    }
    for (uint32_t element = 0; element < elements; ++element) {
      Row row;
      row.arguments.assign(bound.arguments.begin(), bound.arguments.end());
      for (const size_t list : lists) {
        Argument& argument = row.arguments[list];
        const bool is_there = element < argument.count;
        argument.kind = is_there ? ULPSCOPE_ATEN_TENSOR : ULPSCOPE_ATEN_NOTHING;
        argument.first += is_there ? element : 0;
        argument.count = is_there;
      }
      rows.push_back(std::move(row));
      Row& kept = rows.back();
      kept.bound = {kept.arguments, op.tensors};
      kept.reads = schema.reads(kept.bound);
      uint32_t slot = 0;
      for (const size_t argument : changed)
        if (const Tensor* const tensor = kept.bound.tensor(argument)) kept.outputs.push_back({slot++, tensor, true});
      if (changed.empty() && element < op.results_count && op.results[element].is_present)
        kept.outputs.push_back({0, &op.results[element], false});
    }
    return rows;
  }
  // The results by their slots that are none of what the op changed; nullptr where one was not asked for.
  std::vector<const Tensor*> made, changed(written.begin(), written.end());
  for (uint32_t i = 0; i < op.results_count; ++i) made.push_back(op.results[i].is_present ? &op.results[i] : nullptr);
  if (schema.base() == "convolution_backward" && !schema.gives_gradient_of_input(bound) && !made.empty()) made.erase(made.begin());
  if (!changed.empty())
    std::erase_if(made, [&](const Tensor* tensor) {
      return tensor == nullptr ||
             std::any_of(changed.begin(), changed.end(), [&](const Tensor* each) { return each->storage == tensor->storage; });
    });
  if (schema.function(bound) == OpFunction::batch_norm) {
    // Some overloads do not say that they write their buffers, and others write none outside of training.
    const bool is_training = schema.number(bound, "training").value_or(!changed.empty()) != 0;
    changed.clear();
    for (const char* const buffer : {"running_mean", "running_var"})
      if (const auto index = schema.find(buffer); index && is_training && bound.tensor(*index) != nullptr)
        changed.push_back(bound.tensor(*index));
    if (made.size() > kBatchNormOutputs) made.resize(kBatchNormOutputs);
  }
  rows.emplace_back();
  Row& row = rows.back();
  row.bound = bound;
  row.reads = schema.reads(bound);
  uint32_t slot = 0;
  for (const Tensor* const tensor : made) {
    if (tensor != nullptr) row.outputs.push_back({slot, tensor, false});
    ++slot;
  }
  for (const Tensor* const tensor : changed) row.outputs.push_back({slot++, tensor, true});
  return rows;
}

const ulpscope_aten_edge* Tracker::sum_of(const Schema& schema, const ulpscope_aten_op& op, const Row& row) const {
  if (schema.base() != "add" || row.reads.size() != 2) return nullptr;
  if (op.node != -1 && op.node != handed_on_.node()) return nullptr;
  for (const Read& read : row.reads)
    if (const ulpscope_aten_edge* const edge = handed_on_.find(read.tensor->storage)) return edge;
  return nullptr;
}

bool Tracker::calls_compiled() {
  const std::vector<Entry>& entries = stack();
  return std::any_of(entries.begin(), entries.end(), [](const Entry& entry) { return entry.is_compiled; });
}

bool Tracker::is_in_compiled(const ulpscope_aten_op& op) {
  if (op.task == -1) return calls_compiled();
  return op.node_name != nullptr && std::string_view(op.node_name) == "CompiledFunctionBackward";
}

void Tracker::record_row(const Schema& schema, const ulpscope_aten_op& op, const Row& row, Place place) {
  OpFunction function = schema.function(row.bound);
  Name named = 0;  // in the place of the schema's
  Name parameter = 0, module = place.module;
  uint64_t forward_id = 0;
  std::optional<double> scaled_by;
  Label label;
  const ulpscope_aten_edge* edge = nullptr;
  std::vector<Read> reads = row.reads;
  std::vector<Makers> makers;
  for (const Read& read : reads) makers.push_back(memory_.find(*read.tensor));
  double scale = 1;
  const bool may_scale = function == OpFunction::mul && (place.phase == Phase::loss || place.phase == Phase::scaling);
  if (place.phase == Phase::backward) {
    label = {Role::activation_gradient, 0, 0, op.task != -1 ? scale_ : 1.0};
    if (op.is_accumulate_grad) {
      parameter = parameter_of(op.variable);
      label = {Role::accumulated_gradient, parameter, 0, scale_};
      if (schema.base() == "add") {
        named = name("accumulate");
        function = OpFunction::accumulate;
      }
    } else {
      edge = sum_of(schema, op, row);
      const Node* forward = op.node == -1 ? nullptr : nodes_.find(op.node);
      if (edge != nullptr) {
        named = name("accumulate");
        function = OpFunction::accumulate;
        if (edge->to_parameter && parameter_of(edge->handle) != 0) {
          parameter = parameter_of(edge->handle);
          label = {Role::accumulated_gradient, parameter, 0, scale_};
        } else {
          forward = nodes_.find(edge->sequence);
        }
      }
      if (forward != nullptr) {
        forward_id = forward->op;
        module = forward->module;
      } else if (op.node != -1 && op.node_name != nullptr) {
        ++unmapped_[op.node_name];
      }
    }
    if (parameter != 0) {
      forward_id = 0;
      module = module_of(parameter);
    }
  } else if (may_scale && session_.scale_of_call(session_.context, &scale) != 0) {
    function = OpFunction::scale;
    for (size_t i = 1; i < reads.size(); ++i) memory_.write(*reads[i].tensor, constant());
    reads.resize(std::min<size_t>(reads.size(), 1));
    makers.resize(reads.size());
    scaled_by = scale;
    label = {Role::loss, 0, 0, scale};
    place.phase = Phase::scaling;
  } else if (place.phase == Phase::scaling) {
    const auto is_of_gradient = [](const Makers& each) {
      return each.last != nullptr && is_recorded(each.last) && is_gradient(each.last->role);
    };
    const auto gradient = std::find_if(makers.begin(), makers.end(), is_of_gradient);
    if (gradient != makers.end()) {
      label.scale = gradient->last->scale;
      parameter = gradient->last->parameter;
      module = module_of(parameter);
    }
  }
  const Tensor* const first = reads.empty() ? nullptr : reads[0].tensor;
  const Tensor* const output = row.outputs.empty() ? nullptr : row.outputs[0].tensor;
  if (schema.base() == "copy" && first != nullptr && output != nullptr && first->type != output->type) function = OpFunction::cast;
  const MadePointer source = makers.empty() ? nullptr : makers[0].last;
  const bool source_is_recorded = is_recorded(source);
  if (function == OpFunction::cast) {
    if (source_is_recorded && (source->role == Role::weight || source->role == Role::weight_cast) &&
        place.phase != Phase::backward) {
      parameter = source->parameter;
      label = {Role::weight_cast, parameter, 0, 1};
    } else if (source_is_recorded && source->role == Role::loss) {
      label = {Role::loss, 0, 0, source->scale};
    }
    if (first == nullptr || output == nullptr)
      function = OpFunction::other;
    else if (!has_statistics(*first) || !has_statistics(*output))
      function = first->type == output->type ? OpFunction::copy : OpFunction::other;
    else if (first->type == output->type)
      function = OpFunction::copy;
    if (parameter != 0) module = module_of(parameter);
  }
  std::vector<ulpscope_value> inputs;
  const bool inputs_unknown = inputs_of(reads, makers, place.phase, inputs) || is_in_compiled(op);
  std::vector<LabelledOutput> outputs;
  for (const Output& each : row.outputs) {
    Label of_output = label;
    const MadePointer before = each.is_written ? memory_.last(*each.tensor) : nullptr;
    if (is_recorded(before) && is_kept(before->role) && place.phase != Phase::backward) {
      of_output = {before->role, before->parameter, before->name, before->scale};
      if (is_gradient(before->role) && place.phase == Phase::scaling && schema.base() == "mul") function = OpFunction::clip_norm;
      if ((place.phase == Phase::scaling || place.phase == Phase::optimizer) && before->parameter != 0) {
        parameter = before->parameter;
        module = module_of(parameter);
      }
    }
    outputs.push_back({each.slot, each.tensor, of_output, each.is_written});
  }
  Call call;
  const Name own = name(schema.name());
  if (named == 0) named = own;
  call.location = place.phase == Phase::forward || place.phase == Phase::loss ? location_of(place.phase, module, named) : Name{0};
  call.name = named == own ? name(schema.name_of_call(function)) : named;
  call.phase = place.phase;
  call.function = function;
  call.module = module;
  call.parameter = parameter;
  call.forward_id = forward_id;
  call.inputs = inputs;
  call.inputs_unknown = inputs_unknown;
  call.product = schema.product(row.bound, function, output);
  uint64_t attributes_place = hash_combine(static_cast<uint64_t>(place.phase), call.name);
  attributes_place = parameter != 0    ? hash_combine(hash_combine(attributes_place, 1), parameter)
                     : forward_id != 0 ? hash_combine(hash_combine(attributes_place, 2), forward_id)
                                       : hash_combine(hash_combine(attributes_place, 3), module);
  call.attributes = attributes_of(schema, row.bound, attributes_place);
  const auto explained = [&](const Tensor& tensor, const void* data) {
    std::vector<ReadValues> values;
    for (size_t i = 0; i < reads.size(); ++i) {
      const uint64_t storage = reads[i].tensor->storage;
      const bool is_overwritten = std::any_of(outputs.begin(), outputs.end(), [&](const LabelledOutput& each) {
        return each.is_written && each.tensor->storage == storage;
      });
      if (!reads[i].tensor->is_on_host) return std::vector<ulpscope_node>();
      values.push_back(
          {reads[i], reads[i].tensor->data, is_recorded(makers[i].last) ? makers[i].last->value : kNothing, is_overwritten});
    }
    return explain(schema, row.bound, tensor, data, values);
  };
  const Tensor* const cast_from =
      function == OpFunction::cast && first != nullptr && output != nullptr && narrows(*first, *output) ? first : nullptr;
  const std::vector<MadePointer> results =
      is_explained(schema) ? emit(call, outputs, cast_from, explained) : emit(call, outputs, cast_from);
  if (results.empty()) return;
  Made& result = *results[0];
  if (function == OpFunction::cast || scaled_by) {
    result.source = source;
    // A chain of casts from step to step would be kept for good.
    if (source != nullptr && source->step != state_.step && source->source != nullptr) {
      result.source = std::make_shared<Made>(*source);
      result.source->source.reset();
    }
  }
  if (scaled_by && first != nullptr) result.unscaled_loss = number_in(*first);
  if (schema.base() == "div" || schema.base() == "mul")
    if (const auto other = schema.number(row.bound, "other"); other && *other != 0)
      result.divisor = schema.base() == "div" ? *other : 1.0 / *other;
  if (edge != nullptr && parameter == 0)
    if (const auto target = target_of(*edge)) set_gradient_of(result, *target, -1);
  if (place.phase == Phase::backward && op.task == -1)
    for (size_t i = 0; i < row.bound.arguments.size(); ++i)
      if (const Tensor* const tensor = row.bound.tensor(i))
        if (const MadePointer of_loss = memory_.last(*tensor); is_recorded(of_loss)) set_gradient_of(result, of_loss->value, -1);
  map_node(schema, op, row, result, module);
}

void Tracker::map_node(const Schema& schema, const ulpscope_aten_op& op, const Row& row, const Made& made, Name module) {
  std::vector<const Tensor*> tensors;
  for (size_t i = 0; i < row.bound.arguments.size(); ++i)
    row.bound.visit(i, [&](const Tensor& tensor) { tensors.push_back(&tensor); });
  const bool is_node = makes_node(op, tensors);
  if (!is_node && op.grad_enabled) return;
  Node node{made.value.op, module, {}, made.role == Role::weight_cast, {}, false};
  for (size_t i = 0; i < schema.parameters().size(); ++i) {
    if (!schema.parameters()[i].is_tensor) continue;
    if (row.bound.arguments[i].kind == ULPSCOPE_ATEN_NOTHING) node.inputs.push_back(-1);
    size_t index = 0;
    row.bound.visit(i, [&](const Tensor& tensor) {
      const size_t wanted = index++;
      if (!has_statistics(tensor)) return;
      size_t seen = 0;
      int32_t number = -1;
      for (const Read& read : row.reads)
        if (read.argument == i && seen++ == wanted) number = static_cast<int32_t>(read.number);
      node.inputs.push_back(number);
    });
  }
  node.wrote_view = std::any_of(row.outputs.begin(), row.outputs.end(),
                                [](const Output& each) { return each.is_written && each.tensor->is_view; });
  if (is_node)
    nodes_.add(op.made_node, std::move(node));
  else
    nodes_.add_custom(op.made_node, std::move(node));
}

// ---- texts of calls

Name Tracker::location_of(Phase phase, Name module, Name name) {
  const uint64_t place = hash_combine(hash_combine(static_cast<uint64_t>(phase), module), name);
  Counter& counter = located_[place];
  if (counter.pass != pass_) counter = {pass_, 0};
  const auto [at, is_new] = locations_.try_emplace(hash_combine(place, counter.count++));
  if (is_new) at->second = session_.line(session_.context);
  return at->second;
}

Name Tracker::attributes_of(const Schema& schema, const Bound& bound, uint64_t place) {
  Counter& counter = counted_[place];
  const auto pass = static_cast<uint64_t>(state_.passes) + 1;
  if (counter.pass != pass) counter = {pass, 0};
  const uint64_t hash = schema.hash_of_attributes(bound);
  const auto [at, is_new] = attributes_.try_emplace(hash_combine(place, counter.count++));
  Attributes& known = at->second;
  if (!is_new && known.hash == hash) return known.text;
  // A text is kept for good, so that attributes that differ from call to call of an op are told as varying.
  const std::string attributes = schema.attributes(bound);
  known = {hash, name(is_new ? attributes : attributes_of_all(text(known.text), attributes))};
  return known.text;
}

void Tracker::begin_pass() {
  ++pass_;
  inputs_.clear();
  memory_.prune();
  std::erase_if(unread_, [&](const auto& each) {
    if (adapter_.is_expired(adapter_.context, each.first) == 0) return false;
    adapter_.release(adapter_.context, each.first);
    return true;
  });
}

// ---- inputs

bool Tracker::is_new_input(const MadePointer& made) const {
  if (made == nullptr) return true;
  return made->role == Role::input &&
         std::none_of(inputs_.begin(), inputs_.end(), [&](const ulpscope_value& value) { return is_same(value, made->value); });
}

bool Tracker::inputs_of(std::span<const Read> reads, std::vector<Makers>& makers, Phase phase,
                        std::vector<ulpscope_value>& inputs) {
  std::vector<ulpscope_value> others;
  bool unknown = false;
  uint32_t last = 0;
  for (size_t i = 0; i < reads.size(); ++i) {
    const Read& read = reads[i];
    Makers& each = makers[i];
    last = std::max(last, read.number);
    if (each.last == constant() && each.others.empty()) continue;
    const Tensor& tensor = *read.tensor;
    if (phase == Phase::loss && is_new_input(each.last)) {
      const MadePointer target = source(tensor, Role::input, 0, 0, name("target"));
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

std::vector<MadePointer> Tracker::emit(const Call& described, std::span<const LabelledOutput> outputs, const Tensor* cast_from,
                                       const std::function<std::vector<ulpscope_node>(const Tensor&, const void*)>& explained) {
  ulpscope_call call{};
  call.size = sizeof call;
  call.name = told(described.name);
  call.module = told(described.module);
  call.attributes = told(described.attributes);
  call.location = told(described.location);
  call.parameter = told(described.parameter);
  call.phase = static_cast<int32_t>(described.phase);
  call.function = static_cast<int32_t>(described.function);
  call.kind = -1;
  call.forward_id = described.forward_id;
  call.inputs = described.inputs.data();
  call.inputs_count = static_cast<uint32_t>(described.inputs.size());
  call.inputs_unknown = described.inputs_unknown;
  int64_t product[5];
  if (described.product) {
    const ProductShape& shape = *described.product;
    const int64_t numbers[] = {shape.m, shape.n, shape.k, shape.batch, shape.m_is_padded ? 1 : 0};
    std::copy(std::begin(numbers), std::end(numbers), product);
    call.product = product;
  }
  ulpscope_op token = 0;
  uint64_t id = 0;
  if (!check(calls_.begin_op(recorder_, &call, &token, &id))) {
    for (const LabelledOutput& output : outputs) forget(*output.tensor);
    return {};
  }
  std::vector<MadePointer> results;
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
    if (has_statistics(tensor)) {
      const void* const data = on_host(tensor);
      const ulpscope_tensor told = told_tensor(tensor, data);
      ulpscope_tensor from{};
      if (cast_from != nullptr) from = told_tensor(*cast_from, on_host(*cast_from));
      const ulpscope_label label = label_of(output.label);
      if (!check(calls_.output(recorder_, token, output.slot, &told, &label, cast_from == nullptr ? nullptr : &from))) {
        forget(tensor);
        continue;
      }
      uint8_t is_wanted = 0;
      if (explained && check(calls_.wants_capture(recorder_, token, output.slot, &is_wanted)) && is_wanted) {
        const std::vector<ulpscope_node> nodes = tensor.is_on_host ? explained(tensor, data) : std::vector<ulpscope_node>();
        if (!nodes.empty())
          check(calls_.set_capture(recorder_, token, output.slot, nodes.data(), static_cast<uint32_t>(nodes.size())));
      }
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
  if (role == Role::input)
    for (const MadePointer& each : made) inputs_.push_back(each->value);
  return made.empty() ? nullptr : made[0];
}

void Tracker::source_later(const Tensor& tensor, Name parameter, Name module, Name name_of_tensor) {
  Unread unread{{shape_of(tensor).begin(), shape_of(tensor).end()},
                {strides_of(tensor).begin(), strides_of(tensor).end()},
                tensor,
                parameter,
                module,
                name_of_tensor};
  if (unread_.insert_or_assign(tensor.storage, std::move(unread)).second) adapter_.retain(adapter_.context, tensor.storage);
}

void Tracker::source_buffers(const Schema& schema, const Bound& bound) {
  for (const Read& read : schema.reads(bound)) {
    const auto at = unread_.find(read.tensor->storage);
    if (at == unread_.end()) continue;
    Unread unread = std::move(at->second);
    unread_.erase(at);
    unread.tensor.shape = unread.shape.data();
    unread.tensor.strides = unread.strides.data();
    source(unread.tensor, Role::buffer, unread.parameter, unread.module, unread.name);
    adapter_.release(adapter_.context, unread.tensor.storage);
  }
}

void Tracker::inputs(std::span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors)
    if (tensor.is_present && tensor.unreadable == nullptr && is_new_input(memory_.last(tensor)))
      source(tensor, Role::input, 0, 0, name("input"));
}

// ---- what cannot be looked into

bool Tracker::has_no_maker(const Tensor& tensor) const {
  if (!tensor.is_present || tensor.unreadable != nullptr || !has_statistics(tensor) || count_of_elements(tensor) == 0) return false;
  const Makers makers = memory_.find(tensor);
  return !is_recorded(makers.last) && makers.last != constant();
}

bool Tracker::values_of(std::span<const Tensor> tensors, std::vector<ulpscope_value>& values) const {
  bool is_known = true;
  for (const Tensor& tensor : tensors) {
    if (!tensor.is_present) continue;
    const Makers makers = tensor.unreadable == nullptr ? memory_.find(tensor) : Makers();
    const bool has_value = is_recorded(makers.last);
    if (has_value && std::none_of(values.begin(), values.end(), [&](const auto& each) { return is_same(each, makers.last->value); }))
      values.push_back(makers.last->value);
    const bool matters = tensor.unreadable != nullptr || has_statistics(tensor);
    is_known = is_known && (!matters || makers.last == constant() || (has_value && makers.is_complete));
  }
  return is_known;
}

bool Tracker::is_opaque(std::span<const Tensor> outputs) const {
  return state_.is_open && state_.paused == 0 &&
         std::any_of(outputs.begin(), outputs.end(), [&](const Tensor& output) { return has_no_maker(output); });
}

void Tracker::opaque(Name module, Name class_name, int64_t task, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                     const int64_t* nodes, const uint32_t* slots) {
  const std::vector<Entry>& entries = stack();
  const bool is_evaluating = !entries.empty() && entries.back().is_evaluating;
  std::vector<ulpscope_value> values;
  Call call;
  call.inputs_unknown = !values_of(inputs, values);
  call.inputs = values;
  call.name = class_name;
  call.phase = is_evaluating ? Phase::evaluation : task != -1 ? Phase::recompute : Phase::forward;
  call.module = module;
  if (call.phase == Phase::forward) call.location = location_of(call.phase, module, class_name);
  std::vector<LabelledOutput> told;
  std::vector<size_t> told_outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool is_told = std::any_of(told.begin(), told.end(), [&](const LabelledOutput& each) { return each.slot == slots[i]; });
    if (!has_no_maker(outputs[i]) || is_told) continue;
    told.push_back({slots[i], &outputs[i], {}, false});
    told_outputs.push_back(i);
  }
  const std::vector<MadePointer> made = emit(call, told);
  if (made.empty()) return;
  for (const size_t i : told_outputs)
    if (nodes[i] != -1) nodes_.add(nodes[i], Node{made[0]->value.op, module, {}, false, {}, false});
}

// ---- backward passes

void Tracker::set_label(Made& made, const Label& label) {
  made.role = label.role;
  made.parameter = label.parameter;
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

ulpscope_aten_backward Tracker::begin_backward(std::span<const Tensor> roots, bool takes_losses) {
  ulpscope_aten_backward backward{1.0, 0.0, std::nan(""), 0};
  for (const Tensor& root : roots) {
    const MadePointer made = memory_.last(root);
    if (root.unreadable != nullptr || !is_recorded(made)) continue;
    backward.scale = made->scale;
    if (!takes_losses || count_of_elements(root) != 1) continue;
    backward.loss += made->unscaled_loss ? *made->unscaled_loss : number_in(root);
    backward.has_loss = 1;
    const MadePointer loss = made->function == OpFunction::scale ? made->source : made;
    if (loss == nullptr || !is_recorded(loss)) continue;
    backward.divisor = loss->divisor.value_or(std::nan(""));
    set_label(*loss, {Role::loss, loss->parameter, loss->name, loss->scale});
  }
  return backward;
}

void Tracker::handed_on(int64_t node, const char* name_of_node, std::span<const ulpscope_aten_edge> edges,
                        std::span<const Tensor> gradients, std::span<const Tensor> arrived) {
  if (name_of_node != nullptr && is_opaque(gradients)) {
    const Node* const forward = nodes_.find(node);
    std::vector<ulpscope_value> values;
    Call call;
    call.inputs_unknown = !values_of(arrived, values);
    call.inputs = values;
    call.name = name(name_of_node);
    call.phase = Phase::backward;
    if (forward != nullptr) {
      call.module = forward->module;
      call.forward_id = forward->op;
    }
    std::vector<LabelledOutput> told;
    for (size_t i = 0; i < gradients.size(); ++i)
      if (has_no_maker(gradients[i]))
        told.push_back({static_cast<uint32_t>(i), &gradients[i], {Role::activation_gradient, 0, 0, scale_}, false});
    emit(call, told);
  }
  handed_on_.begin(node);
  for (size_t i = 0; i < edges.size(); ++i) {
    const ulpscope_aten_edge& edge = edges[i];
    const Tensor& gradient = gradients[i];
    if (!edge.exists || !gradient.is_present || gradient.unreadable != nullptr || !has_statistics(gradient)) continue;
    handed_on_.add(gradient.storage, edge);
    const MadePointer made = memory_.last(gradient);
    if (made == nullptr || made->step != state_.step || made->phase != Phase::backward) continue;
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

// ---- updates

void Tracker::keep(const Tensor& parameter, const Tensor* gradient, bool with_gradient) {
  const auto is_kept_here = [](const Tensor& tensor) { return tensor.unreadable == nullptr && has_statistics(tensor); };
  if (!is_kept_here(parameter) || (gradient != nullptr && !is_kept_here(*gradient)) || (gradient == nullptr && with_gradient))
    return;
  Tensor weight = parameter;
  const auto copy = [&](Tensor tensor) {
    const void* const data = on_host(tensor);
    std::vector<int64_t> strides;
    if (!tensor.is_on_host) {  // the copy lies in the logical order
      strides.resize(static_cast<size_t>(tensor.rank));
      int64_t stride = 1;
      for (size_t i = strides.size(); i-- > 0; stride *= std::max<int64_t>(tensor.shape[i], 1)) strides[i] = stride;
      tensor.strides = strides.data();
    }
    return kept(tensor, data);
  };
  Kept copies{copy(weight), {}};
  if (with_gradient) copies.gradient = copy(*gradient);
  kept_.insert_or_assign(parameter.handle, std::move(copies));
}

bool Tracker::updated(const ulpscope_aten_update& update, bool is_skipped, double& before, double& after) {
  const Tensor& weight = *update.parameter;
  const auto at = kept_.find(weight.handle);
  if (at == kept_.end()) return false;
  const Kept copies = std::move(at->second);
  kept_.erase(at);
  const bool has_gradient = update.gradient != nullptr && update.gradient->is_present && update.gradient->unreadable == nullptr &&
                            has_statistics(*update.gradient);
  if (!copies.gradient && !has_gradient) return false;
  HostTensor gradient = copies.gradient ? copies.gradient->view() : host_tensor(*update.gradient, on_host(*update.gradient));
  const Name parameter = parameter_of(weight.handle);
  const double square = square_of_norm_of(gradient) / (update.factor * update.factor);
  after += square;
  const auto unclipped = unclipped_.find(parameter);
  before += unclipped == unclipped_.end() ? square : unclipped->second;
  if (unclipped != unclipped_.end()) unclipped_.erase(unclipped);
  if (is_skipped || weight.unreadable != nullptr || !has_statistics(weight)) return true;

  KeptTensor unscaled;
  if (update.factor != 1) {
    unscaled = divided(gradient, update.factor);
    gradient = unscaled.view();
  }
  std::vector<OptimizerState> states;
  const auto is_state = [&](const Tensor& state) {
    return state.is_present && state.unreadable == nullptr && has_statistics(state) && have_one_shape(state, weight);
  };
  for (uint32_t i = 0; i < update.states_count; ++i)
    if (is_state(update.states[i]))
      states.push_back({text(update.state_names[i]), host_tensor(update.states[i], on_host(update.states[i]))});
  const HostTensor before_step = copies.weight.view();
  const bool says_steps = update.steps != nullptr && update.steps->is_present && update.steps->unreadable == nullptr;
  const double steps = says_steps && count_of_elements(*update.steps) == 1 ? number_in(*update.steps) : 0;
  const std::optional<AskedUpdate> asked = asked_update(update, steps, before_step, &gradient, states);

  std::vector<ulpscope_value> inputs;
  bool unknown = false;
  const auto read = [&](const Tensor& tensor, bool must_be_known) {
    const Makers found = memory_.find(tensor);
    if (is_recorded(found.last))
      inputs.push_back(found.last->value);
    else if (must_be_known && !found.is_complete)
      unknown = true;
  };
  read(weight, true);
  if (has_gradient) read(*update.gradient, true);
  std::vector<LabelledOutput> outputs{{0, &weight, {Role::weight, parameter, 0, 1}, true}};
  for (uint32_t i = 0; i < update.states_count; ++i) {
    if (!is_state(update.states[i])) continue;
    read(update.states[i], !has_gradient && i == 0);
    outputs.push_back({static_cast<uint32_t>(outputs.size()),
                       &update.states[i],
                       {Role::optimizer_state, parameter, update.state_names[i], 1},
                       true});
  }
  std::vector<int64_t> strides(static_cast<size_t>(weight.rank));
  Tensor asked_tensor = weight;
  if (asked) {
    int64_t stride = 1;
    for (size_t i = strides.size(); i-- > 0; stride *= std::max<int64_t>(weight.shape[i], 1)) strides[i] = stride;
    asked_tensor.data = asked->data();
    asked_tensor.strides = strides.data();
    asked_tensor.type = static_cast<int32_t>(asked->dtype == DType::f64 ? ScalarType::f64 : ScalarType::f32);
    asked_tensor.storage = 0;  // memory of ours, which no op reads
    asked_tensor.is_on_host = 1;
    outputs.push_back({static_cast<uint32_t>(outputs.size()), &asked_tensor, {Role::update, parameter, 0, 1}, false});
  }
  Call call;
  call.function = update.rule == ULPSCOPE_ATEN_SGD    ? OpFunction::sgd_update
                  : update.rule == ULPSCOPE_ATEN_ADAM ? OpFunction::adam_update
                                                      : OpFunction::assign;
  call.name = update.rule == ULPSCOPE_ATEN_UNKNOWN_RULE ? update.optimizer : name(name_of(call.function));
  call.phase = Phase::optimizer;
  call.module = module_of(parameter);
  call.parameter = parameter;
  if (update.rule == ULPSCOPE_ATEN_ADAM)
    call.attributes = name(fmt::format("beta1={:g} beta2={:g} eps={:g}{}", update.first_decay, update.second_decay, update.epsilon,
                                       update.is_stepwise ? " stepwise=1" : ""));
  call.inputs = inputs;
  call.inputs_unknown = unknown;
  const std::vector<MadePointer> made = emit(call, outputs);
  if (made.empty() || made[0]->value.slot != 0) return true;
  const ulpscope_tensor told_before = told_tensor(before_step), told_after = told_tensor(weight, on_host(weight)),
                        told_gradient = told_tensor(gradient);
  ulpscope_tensor told_update{};
  if (asked) told_update = told_tensor(asked_tensor, asked_tensor.data);
  ulpscope_update counts{};
  counts.size = sizeof counts;
  counts.learning_rate = update.learning_rate;
  counts.before = &told_before;
  counts.after = &told_after;
  counts.gradient = &told_gradient;
  counts.update = asked ? &told_update : nullptr;
  check(calls_.set_update(recorder_, made[0]->op, 0, &counts));
  return true;
}

}  // namespace ulpscope::aten
