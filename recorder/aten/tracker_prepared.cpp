#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include "ulpscope/recorder/aten/captures.h"
#include "ulpscope/recorder/aten/tracker.h"

namespace ulpscope::aten {

// ---- ops outside of any step, as those that normalize a batch or make weights of its samples

// They are not recorded: they may work on whole data sets. One that makes NaN or infinities of finite values is told when a step
// reads what it made, since nobody finds it by the data.

struct PreparedTensor {
  Tensor tensor = {};
  KeptTensor values = {};

  explicit PreparedTensor(const Tensor& described) : tensor(described) {
    values.keep(described, described.data);
    if (values.strides.empty()) {
      values.strides.resize(values.shape.size(), 1);
      for (size_t i = values.shape.size(); i-- > 1;) values.strides[i - 1] = values.strides[i] * values.shape[i];
    }
    tensor.storage = 0;  // nobody else's memory
    tensor.data = values.room.data();
  }
  Tensor described() const {
    Tensor of = tensor;
    of.shape = values.shape.data();
    of.strides = values.strides.data();
    return of;
  }
};

// The values of a tensor that an op is about to change in place.
struct Overwritten {
  std::thread::id thread;
  const void* data = nullptr;
  PreparedTensor tensor;
};

struct Prepared {
  Name name = 0, attributes = 0, location = 0;
  OpFunction function = OpFunction::other;
  std::optional<OpKind> kind = {};
  PreparedTensor output;
  struct Operand {
    uint32_t number = 0;  // among the inputs
    bool is_in_rows = false;
    PreparedTensor tensor;
  };
  std::vector<Operand> reads = {};
  std::vector<ulpscope_node> nodes = {};  // their shapes are of the tensors above
  MadePointer made = {};                  // where it was told last
};

namespace {

constexpr std::string_view kFills[] = {"full", "full_like", "new_full", "fill"};
constexpr int64_t kMostBytes = int64_t{1} << 26;  // of values that are kept

// Infinities that these write were put there on purpose, as into a mask.
bool writes_what_it_is_told(OpFunction function) {
  return function == OpFunction::fill || function == OpFunction::masked_fill || function == OpFunction::where ||
         function == OpFunction::copy;
}

// Updates by hand of averages and weights are none of these: a copy before each of them would cost as much as they do.
bool may_make_nonfinite(OpFunction function) {
  return function == OpFunction::div || function == OpFunction::reciprocal || function == OpFunction::log ||
         function == OpFunction::sqrt || function == OpFunction::rsqrt || function == OpFunction::exp ||
         function == OpFunction::pow;
}

bool is_finite(const Tensor& tensor) { return first_nonfinite(folded(host_tensor(tensor, tensor.data))) < 0; }

// The program put an infinity there itself, as for a mask: a constant, as is the number in `x * -inf`, and no data.
bool puts_infinity(const Schema& schema, const Tensor& output) {
  if (!contains(kFills, schema.base()) || !output.is_on_host || !has_statistics(output)) return false;
  const auto bytes = static_cast<uint64_t>(count_of_elements(output) * element_size(output));
  if (bytes < output.storage_bytes) return false;  // the rest may be data
  const Nonfinite found = nonfinite_in(host_tensor(output, output.data));
  return found.infinity && !found.nan;
}

}  // namespace

void Tracker::keep_overwritten(const Schema& schema, const ulpscope_aten_op& op, const Bound& bound) {
  overwritten_.reset();  // of an op that raised, too
  const bool is_outside = state_.state == ULPSCOPE_ATEN_IDLE || state_.state == ULPSCOPE_ATEN_ENDED;
  if (!is_outside || state_.optimizing > 0 || op.task != -1 || !schema.writes() || schema.overwrites() || schema.is_list() ||
      !schema.is_pointwise() || !may_make_nonfinite(schema.function(bound)) || !stack().empty())
    return;
  for (size_t i = 0; i < schema.parameters().size(); ++i) {
    if (!schema.parameters()[i].is_written || schema.parameters()[i].is_out) continue;
    bound.visit(i, [&](const Tensor& tensor) {
      const bool is_kept =
          tensor.is_on_host && is_readable(tensor) && count_of_elements(tensor) * element_size(tensor) <= kMostBytes;
      if (is_kept)
        overwritten_ = std::make_shared<Overwritten>(Overwritten{std::this_thread::get_id(), tensor.data, PreparedTensor(tensor)});
    });
  }
}

void Tracker::prepare(const Schema& schema, const Bound& bound, std::span<const Tensor* const> results) {
  const std::vector<Read> reads = schema.reads(bound);
  std::vector<const Tensor*> values;
  for (const Read& read : reads) values.push_back(read.tensor);
  batches_.follow(values, results, schema.keeps_rows(bound));
  keep_loss_of_cast(schema, reads, results);
  const MadePointer prepared = state_.optimizing > 0 ? nullptr : prepared_by(schema, bound, reads, results);
  for (const Tensor* const tensor : results) {
    const MadePointer made = memory_.last(*tensor);
    if (schema.base() == "zero" || puts_infinity(schema, *tensor))
      memory_.write(*tensor, constant());
    else if (state_.optimizing > 0 && is_recorded(made) && is_kept(made->role))
      continue;
    else if (prepared != nullptr)
      memory_.write(*tensor, prepared);
    else
      forget(*tensor);
  }
}

MadePointer Tracker::prepared_by(const Schema& schema, const Bound& bound, std::span<const Read> given,
                                 std::span<const Tensor* const> results) {
  const std::shared_ptr<Overwritten> overwritten = std::exchange(overwritten_, nullptr);
  const auto made = std::make_shared<Made>();
  made->role = Role::input;
  for (const Read& read : given)
    if (const MadePointer last = memory_.last(*read.tensor); last != nullptr && last->prepared != nullptr) {
      made->prepared = last->prepared;
      return made;
    }
  const OpFunction function = schema.function(bound);
  if (results.size() != 1 || given.empty() || writes_what_it_is_told(function)) return nullptr;
  const Tensor& output = *results[0];
  if (!output.is_on_host || !has_statistics(output) || is_finite(output)) return nullptr;
  std::vector<Read> reads(given.begin(), given.end());
  std::vector<bool> are_in_rows;
  for (const Read& read : given) {
    const std::optional<BatchPart> part = batches_.find(*read.tensor);
    are_in_rows.push_back(part && part->is_in_rows);
  }
  Tensor before;
  for (Read& read : reads) {
    const Tensor& tensor = *read.tensor;
    if (!tensor.is_on_host || !has_statistics(tensor) || memory_.last(tensor) == unmade()) return nullptr;
    if (tensor.storage != output.storage) continue;
    const bool is_kept = overwritten != nullptr && overwritten->thread == std::this_thread::get_id() &&
                         overwritten->data == tensor.data && tensor.data == output.data &&
                         have_one_shape(tensor, overwritten->tensor.described());
    if (!is_kept) return nullptr;
    before = overwritten->tensor.described();
    read.tensor = &before;
  }
  int64_t bytes = count_of_elements(output) * element_size(output);
  for (const Read& read : reads) {
    const Tensor& tensor = *read.tensor;
    if (has_statistics(tensor) && !is_finite(tensor)) return nullptr;
    bytes += count_of_elements(tensor) * element_size(tensor);
  }
  if (bytes > kMostBytes) return nullptr;
  const auto prepared = std::make_shared<Prepared>(Prepared{.output = PreparedTensor(output)});
  prepared->name = name(schema.name_of_call(function));
  prepared->attributes = name(schema.attributes(bound));
  prepared->location = session_.line(session_.context);
  prepared->function = function;
  if (function == OpFunction::other && schema.is_pointwise()) prepared->kind = OpKind::elementwise;
  std::vector<ReadValues> values;
  for (const Read& read : reads) {
    prepared->reads.push_back({read.number, are_in_rows[prepared->reads.size()], PreparedTensor(*read.tensor)});
    values.push_back({read, read.tensor->data, {}, false});
  }
  if (is_explained(schema)) prepared->nodes = explain(schema, bound, output, output.data, values);
  for (ulpscope_node& node : prepared->nodes) {
    const PreparedTensor* of = node.operand < 0 ? &prepared->output : nullptr;
    for (const Prepared::Operand& read : prepared->reads)
      if (node.operand >= 0 && read.number == static_cast<uint32_t>(node.operand)) of = &read.tensor;
    node.shape = of == nullptr ? nullptr : of->values.shape.data();
  }
  made->prepared = prepared;
  made->is_own_output = true;
  return made;
}

MadePointer Tracker::prepared_input(const Tensor& tensor, std::string_view name_of_tensor) {
  const MadePointer before = memory_.last(tensor);
  if (before == nullptr || before->prepared == nullptr) return nullptr;
  Prepared& prepared = *before->prepared;
  const Phase phase = is_evaluation_ ? Phase::evaluation : Phase::data;
  if (prepared.made == nullptr || prepared.made->step != state_.step) {
    Call call;
    call.name = prepared.name;
    call.attributes = prepared.attributes;
    call.location = prepared.location;
    call.function = prepared.function;
    call.kind = prepared.kind;
    call.phase = phase;
    std::vector<ulpscope_value> inputs;
    for (const auto& [number, is_in_rows, read] : prepared.reads) {
      // Inputs of which more is known are ops of their own.
      const Name operand = name("data");
      const Tensor described = read.described();
      const LabelledOutput output{0, &described, {Role::input, 0, operand, 1}, false};
      Call source;
      source.name = is_in_rows ? name("data_of_batch") : operand;
      source.attributes = name(is_in_rows ? "samples=rows" : "samples=none");
      source.phase = phase;
      source.function = OpFunction::source;
      const std::vector<MadePointer> told = emit(source, {&output, 1});
      while (inputs.size() < number) inputs.push_back(kNothing);
      inputs.push_back(told.empty() ? kNothing : told[0]->value);
    }
    call.inputs = inputs;
    const auto explained = [&](const Tensor&, const void*) {
      std::vector<ulpscope_node> nodes = prepared.nodes;
      for (ulpscope_node& node : nodes)
        if (node.operand >= 0 && static_cast<size_t>(node.operand) < inputs.size())
          node.made_by = inputs[static_cast<size_t>(node.operand)];
      return nodes;
    };
    const Looks looks{{}, explained};
    const Tensor described = prepared.output.described();
    const LabelledOutput output{0, &described, {Role::input, 0, 0, 1}, false};
    const std::vector<MadePointer> told = emit(call, {&output, 1}, nullptr, &looks);
    if (told.empty()) return nullptr;
    prepared.made = told[0];
    inputs_.push_back(told[0]->value);
  }
  if (const std::optional<BatchPart> part = batches_.find(tensor))
    session_.batch(session_.context, part->batch, part->first, part->count);
  if (before->is_own_output && have_one_shape(tensor, prepared.output.described())) {
    const auto made = std::make_shared<Made>(*prepared.made);
    made->prepared = before->prepared;
    made->is_own_output = true;
    memory_.write(tensor, made);
    return made;
  }
  Call call;
  call.name = name(std::string(name_of_tensor) + "_prepared");  // a name has one function, and this one is no source
  call.phase = phase;
  call.inputs = {&prepared.made->value, 1};
  call.inputs_unknown = true;
  const LabelledOutput output{0, &tensor, {Role::input, 0, name(name_of_tensor), 1}, false};
  const std::vector<MadePointer> told = emit(call, {&output, 1});
  if (told.empty()) return nullptr;
  told[0]->prepared = before->prepared;
  inputs_.push_back(told[0]->value);
  return told[0];
}

}  // namespace ulpscope::aten
