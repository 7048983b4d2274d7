#include "ulpscope/recorder/aten/tracker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hash.h"

namespace ulpscope::aten {
namespace {

constexpr size_t kBatchNormOutputs = 3;  // its values, and the mean and the inverse deviation of the batch; the buffers come behind

constexpr std::string_view kClips[] = {"mul", "div", "clamp", "clamp_min", "clamp_max", "copy", "minimum", "maximum"};

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

int output_later(ulpscope_recorder* recorder, ulpscope_op op, uint32_t slot, const ulpscope_tensor* tensor,
                 const ulpscope_label* label) {
  ulpscope_statistics nothing{};
  nothing.size = sizeof nothing;
  return ulpscope_output(recorder, op, slot, tensor, label, &nothing);
}

constexpr ulpscope_aten_calls kLibrary{
    ulpscope_intern,        ulpscope_begin_op,        ulpscope_end_op,      ulpscope_drop_op,      output_of,
    ulpscope_set_label,     ulpscope_set_gradient_of, ulpscope_set_update,  ulpscope_set_addition, ulpscope_set_measure,
    ulpscope_wants_capture, ulpscope_was_finite,      ulpscope_set_capture, output_later,          ulpscope_wants_statistics,
    ulpscope_fill,          ulpscope_fill_update,     ulpscope_last_error};

// Tells apart what a call reads beside whole tensors: parts and orders of them that views are, and numbers. 0: nothing of that.
// `written`: the storages that it writes over.
uint64_t hash_of_operands(std::span<const Read> reads, std::span<const uint64_t> written) {
  uint64_t hash = 0;
  const auto add = [&](uint64_t value) { hash = hash_combine(hash, value); };
  for (const Read& read : reads) {
    const Tensor& tensor = *read.tensor;
    const bool is_overwritten = std::find(written.begin(), written.end(), tensor.storage) != written.end();
    if (!tensor.is_on_host || tensor.unreadable != nullptr || tensor.data == nullptr) continue;
    const int64_t size = element_size(tensor);
    if (tensor.rank == 0 && size > 0) {
      if (is_overwritten) continue;  // it holds the result by now
      uint64_t bits = 0;
      std::memcpy(&bits, tensor.data, static_cast<size_t>(size));
      add(read.number);
      add(bits);
      continue;
    }
    int64_t whole = 1;
    bool is_in_order = tensor.data == tensor.storage_data;
    for (int32_t i = tensor.rank; i-- > 0; whole *= tensor.shape[i])
      is_in_order = is_in_order && (tensor.shape[i] == 1 || tensor.strides[i] == whole);
    if (is_in_order && static_cast<uint64_t>(whole * size) == tensor.storage_bytes) continue;
    add(read.number);
    add(static_cast<uint64_t>(static_cast<const std::byte*>(tensor.data) - static_cast<const std::byte*>(tensor.storage_data)));
    for (int32_t i = 0; i < tensor.rank; ++i) {
      add(static_cast<uint64_t>(tensor.shape[i]));
      add(static_cast<uint64_t>(tensor.strides[i]));
    }
  }
  return hash;
}

}  // namespace

Tracker::Tracker(const ulpscope_aten_adapter& adapter, const ulpscope_aten_session& session, const ulpscope_aten_calls& calls)
    : adapter_(adapter),
      session_(session),
      calls_(calls.begin_op == nullptr ? kLibrary : calls),
      memory_(adapter),
      batches_(adapter),
      measures_(adapter) {
  name("");
  state_.step = -1;
}

Tracker::~Tracker() {
  for (const auto& [storage, unread] : unread_) adapter_.release(adapter_.context, storage);
  forget_casts([](uint64_t, const CastData&) { return true; });
  drop_all_in_flight();
  for (const auto& [storage, part] : parts_) adapter_.release(adapter_.context, storage);
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
  schema_names_.push_back(name(schemas_.back().name()));
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

std::vector<Tracker::Entry>& Tracker::stack() {
  const std::thread::id thread = std::this_thread::get_id();
  if (last_stack_ == nullptr || last_thread_ != thread) {
    last_stack_ = &stacks_[thread];
    last_thread_ = thread;
  }
  return *last_stack_;
}

// ---- ops

Bound Tracker::bound_of(const ulpscope_aten_op& op, const Schema& schema) const {
  return {{op.arguments, schema.parameters().size()}, op.tensors};
}

void Tracker::before(const ulpscope_aten_op& op) {
  const Schema& schema = schemas_[op.schema];
  const Bound bound = bound_of(op, schema);
  if (state_.paused > 0 || completes_collective(schema, bound)) return;
  settle(schema, bound);
  // Buffers that are about to change, and gradients, whose norms are taken while they are whole.
  if (!unread_.empty() && state_.is_open && (schema.writes() || schema.is_batch_norm())) {
    source_buffers(schema, bound);
    source_written(schema, bound);
  }
  keep_overwritten(schema, op, bound);
  keep_averages(schema, op, bound);
  keep_sum(schema, op, bound);
  keep_operand(schema, op, bound);
  if (state_.state != ULPSCOPE_ATEN_BACKWARD || state_.optimizing > 0 || op.task != -1 || !schema.writes() ||
      !contains(kClips, schema.base()))
    return;
  for (size_t i = 0; i < schema.parameters().size(); ++i) {
    if (!schema.parameters()[i].is_written) continue;
    bound.visit(i, [&](const Tensor& tensor) {
      const MadePointer made = tensor.unreadable == nullptr ? memory_.last(tensor) : nullptr;
      if (made == nullptr || made->parameter == 0 || !is_gradient(made->role) || !has_statistics(tensor)) return;
      if (!unclipped_.contains(made->parameter) && !measures_.is_capturing(tensor))
        unclipped_.emplace(made->parameter, norm_of(tensor, made->scale * made->scale));
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

void Tracker::join(const Schema& schema, const Bound& bound) {
  std::vector<MadePointer> made;
  bool is_complete = true;
  for (const Read& read : schema.reads(bound)) {
    const Makers makers = read.tensor->unreadable == nullptr ? memory_.find(*read.tensor) : Makers();
    is_complete = is_complete && makers.is_complete;
    if (is_recorded(makers.last)) made.push_back(makers.last);
    std::copy_if(makers.others.begin(), makers.others.end(), std::back_inserter(made), is_recorded);
  }
  forget_written(schema, bound);
  for (size_t i = 0; i < schema.parameters().size(); ++i)
    if (schema.parameters()[i].is_written)
      bound.visit(i, [&](const Tensor& tensor) {
        if (tensor.unreadable == nullptr) memory_.join(tensor, made, is_complete);
      });
}

void Tracker::after(const ulpscope_aten_op& op) {
  const Schema& schema = schemas_[op.schema];
  const Bound bound = bound_of(op, schema);
  if (state_.paused > 0) return forget_written(schema, bound);
  if (completes_collective(schema, bound)) return;
  settle(schema, bound);
  if (schema.is_collective()) return begin_collective(schema, op, bound);
  if (schema.joins()) return join(schema, bound);
  if (!schema.is_recorded()) {
    forget_written(schema, bound);
    if (schema.gathers()) put_together_written(schema, bound);
    return;
  }
  const auto& parameters = schema.parameters();
  std::vector<const Tensor*>&reads = tensors_[0], &written = tensors_[1], &outputs = tensors_[2];
  for (auto& list : tensors_) list.clear();
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
  const Tensor& made_first = *(outputs.empty() ? written : outputs).front();
  if (why == nullptr && measures_.is_capturing(made_first)) why = "captured by a CUDA graph";
  if (why != nullptr) {
    // While code is compiled, ops run on tensors without memory, backward too, which are nobody's training.
    if (!calls_compiled() && !is_in_compiled(op)) ++not_read_[why];
    // Values that gradients go back through were computed by the model, and are no data.
    const bool is_computed = state_.is_open && op.grad_enabled && std::any_of(reads.begin(), reads.end(), [](const Tensor* tensor) {
                               return tensor->requires_grad != 0;
                             });
    for (const Tensor* const tensor : outputs) {
      if (tensor->unreadable != nullptr) continue;
      if (is_computed)
        memory_.write(*tensor, unmade());
      else
        forget(*tensor);
    }
    return forget_written(schema, bound);
  }
  if (!unread_.empty() && state_.is_open) source_buffers(schema, bound);
  follow_backward(schema, op.task);
  if (schema.name() == "_amp_foreach_non_finite_check_and_unscale_") return unscale(schema, bound);
  if (schema.name() == "_amp_update_scale_") {
    if (!state_.is_open) return;
    const Number scale = number_in(*reads.front());
    if (!scale.is_known()) scale_after_ = scale;
    return session_.scaler_updated(session_.context, scale.is_known() ? scale.value : std::nan(""));
  }
  if (schema.name() == "lift_fresh") {  // of what Python made from numbers, in memory that was empty
    for (const Tensor* const tensor : reads)
      if (memory_.last(*tensor) == unmade()) forget(*tensor);
    return;
  }
  if (schema.name() == "detach_") return;  // changes no value
  // It makes a number in the code of another op, as the NaN that logdet gives for negative determinants.
  if (schema.name() == "scalar_tensor") {
    for (const Tensor* const tensor : outputs) memory_.write(*tensor, constant());
    return;
  }
  if (schema.is_empty()) {
    for (const auto* const list : {&outputs, &written})
      for (const Tensor* const tensor : *list) memory_.write(*tensor, unmade());
    return;
  }
  if (schema.is_set()) return forget_written(schema, bound);
  if (!schema.writes() && !reads.empty() && !outputs.empty()) {
    const auto is_read = [&](const Tensor* output) {
      return std::any_of(reads.begin(), reads.end(), [&](const Tensor* read) { return read->storage == output->storage; });
    };
    if (schema.is_view() || std::all_of(outputs.begin(), outputs.end(), is_read)) return view(schema, op, reads);
  }
  const std::optional<Place> place = place_of(schema, op, reads, written);
  if (!place) return prepare(schema, bound, written.empty() ? outputs : written);
  for (const Row& row : rows_of(schema, op, bound, written)) record_row(schema, op, row, *place);
}

void Tracker::follow_backward(const Schema& schema, int64_t task) {
  if (task == -1) {
    ulpscope_aten_start start{};
    if (schema.base() == "ones_like") session_.backward(session_.context, 1, &start);
    if (start.is_found) {
      makes_start_ = true;
      if (start.is_new) scale_ = start.scale;
    } else if (task_ != -1 || makes_start_) {  // where it raised before its first op, too
      task_ = nested_ = -1;
      makes_start_ = false;
      session_.backward_ended(session_.context);
    }
    return;
  }
  if (task == task_ || task == nested_) return;
  ulpscope_aten_start start{};
  session_.backward(session_.context, 0, &start);
  const bool is_outer = task_ == -1 || !start.is_found || !start.is_nested;
  (is_outer ? task_ : nested_) = task;
  if (start.is_found && start.is_new && is_outer) scale_ = start.scale;
  makes_start_ = false;
}

std::optional<Tracker::Place> Tracker::here(int64_t task) {
  if (!state_.is_open) return std::nullopt;
  const std::vector<Entry>& entries = stack();
  const Entry* const top = entries.empty() ? nullptr : &entries.back();
  if (task != -1) return top != nullptr && top->task == task ? Place{Phase::recompute, top->name} : Place{Phase::backward, 0};
  if (top != nullptr) return Place{top->is_evaluating ? Phase::evaluation : Phase::forward, top->name};
  switch (state_.state) {
    case ULPSCOPE_ATEN_FORWARD:
      return Place{Phase::loss, 0};
    case ULPSCOPE_ATEN_BACKWARD:
      return Place{Phase::scaling, 0};
    default:
      return Place{Phase::evaluation, 0};
  }
}

std::optional<Tracker::Place> Tracker::place_of(const Schema& schema, const ulpscope_aten_op& op,
                                                std::span<const Tensor* const> reads, std::span<const Tensor* const> written) {
  if (op.task != -1 || (!stack().empty() && state_.is_open)) return here(op.task);
  std::vector<MadePointer> made;
  bool grows = false;
  for (const Tensor* const tensor : reads) {
    Makers makers = makers_of(*tensor);
    makers.prefer_recorded();
    made.push_back(makers.last);
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
  const bool reads_unknown =
      std::any_of(reads.begin(), reads.end(), [&](const Tensor* tensor) { return memory_.last(*tensor) == unmade(); });
  const bool continues = grows && (reads_unknown || state_.state == ULPSCOPE_ATEN_BACKWARD);
  if (!continues && !any([](const Made& each) { return each.step >= 0; })) return std::nullopt;
  if (!grows && any([](const Made& each) { return each.phase == Phase::evaluation; })) return Place{Phase::evaluation, 0};
  if (state_.state == ULPSCOPE_ATEN_BACKWARD && grows && reads_weight()) {
    session_.enter(session_.context, 0);
    return Place{Phase::forward, 0};
  }
  return Place{state_.state == ULPSCOPE_ATEN_FORWARD ? Phase::loss : Phase::scaling, 0};
}

namespace {

// The number whose reciprocal a factor is. That of a rounded reciprocal of a whole number, as of 1 / 49, need not be that number.
double divisor_of(double factor) {
  const double divisor = 1 / factor, whole = std::round(divisor);
  return 1 / whole == factor ? whole : divisor;
}

}  // namespace

void Tracker::unscale(const Schema& schema, const Bound& bound) {
  const auto gradients = schema.find("self"), found = schema.find("found_inf");
  if (!gradients || !found || bound.tensor(*found) == nullptr) return;
  const Tensor& flag = *bound.tensor(*found);
  const int overflowed = flag.is_on_host ? number_in(flag).value > 0 : -1;
  if (session_.unscaled(session_.context, overflowed) == 0 || !state_.is_open) return;
  const Number count = number_in(flag);  // not before: the session may have settled a step
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
    if (overflowed == 0) return;
    const Number square = norm_of(gradient);
    norms_.push_back({square, square, count});
  });
}

std::vector<Tracker::Row> Tracker::rows_of(const Schema& schema, const ulpscope_aten_op& op, const Bound& bound,
                                           std::span<const Tensor* const> written) {
  std::vector<Row> rows;
  const auto& parameters = schema.parameters();
  std::vector<size_t> lists;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].is_tensor && bound.arguments[i].kind == ULPSCOPE_ATEN_TENSORS) lists.push_back(i);
  if (schema.is_list() && !lists.empty()) {
    std::vector<size_t> changed;
    uint32_t elements = 0;
    for (const size_t i : lists) {
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
  made.reserve(op.results_count);
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
  row.outputs.reserve(made.size() + changed.size());
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

bool Tracker::reads_no_gradient(std::span<const Makers> makers) const {
  return begins_with_ones_ && !makers.empty() && std::all_of(makers.begin(), makers.end(), [](const Makers& each) {
           return each.is_complete && each.others.empty() && is_recorded(each.last) && !is_gradient(each.last->role) &&
                  each.last->role != Role::loss;
         });
}

void Tracker::record_row(const Schema& schema, const ulpscope_aten_op& op, const Row& row, Place place) {
  OpFunction function = schema.function(row.bound);
  Name named = 0;  // in the place of the schema's
  Name parameter = 0, module = place.module;
  uint64_t forward_id = 0;
  std::optional<double> scaled_by;
  Label label;
  const ulpscope_aten_edge* edge = nullptr;
  std::span<const Read> reads = row.reads;
  std::vector<Makers> makers;
  makers.reserve(reads.size());
  for (const Read& read : reads) makers.push_back(makers_of(*read.tensor, op.task));
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
      if (edge == nullptr && op.task != -1 && reads_no_gradient(makers)) label = {};
    }
    if (parameter != 0) {
      forward_id = 0;
      module = module_of(parameter);
    }
  } else if (may_scale && session_.scale_of_call(session_.context, &scale) != 0) {
    function = OpFunction::scale;
    for (size_t i = 1; i < reads.size(); ++i) memory_.write(*reads[i].tensor, constant());
    reads = reads.first(std::min<size_t>(reads.size(), 1));
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
  inputs.reserve(row.bound.arguments.size());
  const bool inputs_unknown = inputs_of(schema, reads, makers, place.phase, inputs) || is_in_compiled(op);
  std::vector<LabelledOutput> outputs;
  outputs.reserve(row.outputs.size());
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
  const Name own = schema_names_[op.schema];
  if (named == 0) named = own;
  call.location = place.phase == Phase::forward || place.phase == Phase::loss ? location_of(place.phase, module, named) : Name{0};
  const std::string_view called = schema.name_of_call(function);
  call.name = named != own ? named : called == schema.name() ? own : name(called);
  call.phase = place.phase;
  call.function = function;
  // Over lists lerp does not say that it is.
  const bool adds_to_average = !additions_.empty() && !outputs.empty() && outputs[0].is_written && reads.size() == 2;
  if (function == OpFunction::other && (schema.is_pointwise() || adds_to_average)) call.kind = OpKind::elementwise;
  call.module = module;
  call.parameter = parameter;
  call.forward_id = forward_id;
  call.inputs = inputs;
  call.inputs_unknown = inputs_unknown;
  call.product = schema.product(row.bound, function, output);
  ++calls_told_;
  uint64_t attributes_place = hash_combine(static_cast<uint64_t>(place.phase), call.name);
  attributes_place = parameter != 0    ? hash_combine(hash_combine(attributes_place, 1), parameter)
                     : forward_id != 0 ? hash_combine(hash_combine(attributes_place, 2), forward_id)
                                       : hash_combine(hash_combine(attributes_place, 3), module);
  std::vector<uint64_t> written;
  for (const LabelledOutput& each : outputs)
    if (each.is_written) written.push_back(each.tensor->storage);
  call.attributes =
      attributes_of(schema, row.bound, attributes_place, state_.hashes_bits != 0 ? hash_of_operands(reads, written) : 0);
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
  Looks looks;
  const auto inputs_are_others = [&](Call& again) {
    if (!tell_unseen({&op, place, reads, makers, outputs})) return false;
    inputs.clear();
    again.inputs_unknown = inputs_of(schema, reads, makers, place.phase, inputs) || is_in_compiled(op);
    again.inputs = inputs;
    return true;
  };
  looks.inputs_are_others = std::ref(inputs_are_others);
  if (is_explained(schema)) looks.explained = std::ref(explained);
  const std::vector<MadePointer> results = emit(call, outputs, cast_from, &looks);
  for (const MadePointer& each : results) each->node = op.task == -1 ? -1 : op.node;
  if (results.empty()) return;
  if (adds_to_average) added_to_average(*outputs[0].tensor, *reads[1].tensor, *results[0]);
  const bool is_sum_of_gradients = function == OpFunction::accumulate && parameter != 0;
  const bool is_kept = !sums_.empty() && outputs[0].is_written && place.phase != Phase::backward;
  if (is_sum_of_gradients || is_kept) added_to_sum(schema, row, outputs[0], *results[0]);
  const bool reads_input = !makers.empty() && is_recorded(makers[0].last) && makers[0].last->role == Role::input;
  measure_loss_of_values(schema, row, outputs[0], *results[0], reads_input);
  Made& result = *results[0];
  result.is_sum = schema.base() == "add" && outputs[0].is_written;
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
      result.divisor = schema.base() == "div" ? *other : divisor_of(*other);
  if (edge != nullptr && parameter == 0)
    if (const auto target = target_of(*edge)) set_gradient_of(result, *target, -1);
  if (place.phase == Phase::backward && op.task == -1)
    for (size_t i = 0; i < row.bound.arguments.size(); ++i)
      if (const Tensor* const tensor = row.bound.tensor(i))
        if (const MadePointer of_loss = memory_.last(*tensor); is_recorded(of_loss)) set_gradient_of(result, of_loss->value, -1);
  map_node(schema, op, row, result, module);
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

Name Tracker::attributes_of(const Schema& schema, const Bound& bound, uint64_t place, uint64_t operands) {
  Counter& counter = counted_[place];
  const auto pass = static_cast<uint64_t>(state_.passes) + 1;
  if (counter.pass != pass) counter = {pass, 0};
  const uint64_t hash = hash_combine(schema.hash_of_attributes(bound), operands);
  const auto [at, is_new] = attributes_.try_emplace(hash_combine(place, counter.count++));
  Attributes& known = at->second;
  if (!is_new && known.hash == hash) return known.text;
  // A text is kept for good, so that attributes that differ from call to call of an op are told as varying.
  std::string attributes = schema.attributes(bound);
  if (operands != 0) attributes += fmt::format("{}operands={:016x}", attributes.empty() ? "" : " ", operands);
  known = {hash, name(is_new ? attributes : merged_attributes(text(known.text), attributes))};
  return known.text;
}

void Tracker::end_step() {
  nodes_.end_step();
  losses_.clear();
  measures_.clear();
  functions_.clear();
  last_function_ = 0;
  drop_all_in_flight();
  cost_.end_step();
}

void Tracker::begin_pass(bool is_evaluation) {
  ++pass_;
  is_evaluation_ = is_evaluation;
  inputs_.clear();
  memory_.prune();
  batches_.prune();
  forget_casts([&](uint64_t storage, const CastData& cast) {
    return state_.step - cast.step > 1 || adapter_.is_expired(adapter_.context, storage) != 0;
  });
  std::erase_if(unread_, [&](const auto& each) {
    if (adapter_.is_expired(adapter_.context, each.first) == 0) return false;
    adapter_.release(adapter_.context, each.first);
    return true;
  });
  std::erase_if(parts_, [&](const auto& each) {
    if (adapter_.is_expired(adapter_.context, each.first) == 0) return false;
    adapter_.release(adapter_.context, each.first);
    return true;
  });
}

void Tracker::forget_all() {
  memory_.clear();
  forget_casts([](uint64_t, const CastData&) { return true; });
  drop_all_in_flight();
  nodes_.end_step();
  unclipped_.clear();
  kept_.clear();
}

}  // namespace ulpscope::aten
