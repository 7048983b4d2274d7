#include "ulpscope/analyzers/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

bool module_matches(const std::string& pattern, std::string_view module) {
  if (glob_match(pattern, module)) return true;
  for (size_t dot = module.rfind('.'); dot != std::string_view::npos; dot = module.substr(0, dot).rfind('.')) {
    if (glob_match(pattern, module.substr(0, dot))) return true;
  }
  return false;
}

namespace {

template <typename T>
bool passes(const std::vector<T>& wanted, T value) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), value) != wanted.end();
}

std::string name_of(const OpInfo& op, const TensorInfo& tensor, bool with_phase) {
  std::string name = op.module;
  const auto add = [&](std::string_view word) {
    if (!name.empty()) name += ' ';
    name += word;
  };
  if (with_phase && op.phase != Phase::forward) add(name_of(op.phase));
  add(op.name);
  if (!tensor.name.empty())
    add(tensor.name);
  else if (tensor.slot > 0)
    add(fmt::format("output {}", tensor.slot));
  // A parameter of the op's own module needs only its last name.
  if (!tensor.parameter.empty()) {
    const std::string prefix = op.module + ".";
    const bool own = !op.module.empty() && tensor.parameter.starts_with(prefix);
    add(fmt::format("({})", own ? tensor.parameter.substr(prefix.size()) : tensor.parameter));
  }
  return name;
}

// "rounding rz, subnormal results and inputs flushed"
std::string arithmetic_of(const TensorInfo& tensor) {
  std::string text = fmt::format("rounding {}", name_of(tensor.rounding));
  if (tensor.flushes_results || tensor.flushes_inputs) {
    text += fmt::format(", subnormal {}{}{} flushed", tensor.flushes_results ? "results" : "",
                        tensor.flushes_results && tensor.flushes_inputs ? " and " : "", tensor.flushes_inputs ? "inputs" : "");
  }
  if (tensor.flushes_narrow_products) text += ", subnormals of FP16 and BF16 products flushed";
  return text;
}

// Says from the second on the how-many-th of its name it is. `taken`: all names, with the last number that each was told apart by.
void tell_apart(std::string& name, std::unordered_map<std::string, int>& taken) {
  const auto [found, is_new] = taken.try_emplace(name, 1);
  if (is_new) return;
  int& number = found->second;
  std::string other;
  do {
    other = fmt::format("{} #{}", name, ++number);
  } while (!taken.try_emplace(other, 1).second);
  name = std::move(other);
}

}  // namespace

Selection::Selection(const Snapshot& reader, const AnalysisOptions& options)
    : reader_(reader), ops_(reader_.ops()), tensors_(reader_.tensors()) {
  for (const TracePart& part : reader.parts()) runs_.push_back({part.run.rank, part.steps, part.run.run_id});
  selected_.reserve(tensors_.size());
  for (const TensorInfo& tensor : tensors_) {
    if (tensor.op >= ops_.size()) {
      throw unreadable_error("{}: tensor {} names op {}, but the trace has {}", reader.path(), selected_.size(), tensor.op,
                             count_of(ops_.size(), "op"));
    }
    const OpInfo& op = ops_[tensor.op];
    const auto any = [](const std::vector<std::string>& patterns, auto&& matches) {
      return patterns.empty() || std::any_of(patterns.begin(), patterns.end(), matches);
    };
    selected_.push_back(any(options.modules, [&](const std::string& pattern) { return module_matches(pattern, op.module); }) &&
                        any(options.ops, [&](const std::string& pattern) { return glob_match(pattern, op.name); }) &&
                        passes(options.phases, op.phase) && passes(options.roles, tensor.role));
  }
}

std::vector<Selection::Names> Selection::make_names() const {
  struct Output {
    std::string name;
    std::vector<uint32_t> tensors;
  };
  std::vector<Output> outputs;
  std::map<OutputId, size_t> rows;  // of `outputs`
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    const TensorInfo& tensor = tensors_[i];
    const auto [row, is_new] = rows.try_emplace(output(i), outputs.size());
    if (is_new) outputs.push_back({name_of(ops_[tensor.op], tensor, false), {}});
    outputs[row->second].tensors.push_back(i);
  }
  std::unordered_map<std::string, int> times;
  for (const Output& output : outputs) ++times[output.name];
  for (Output& output : outputs) {
    const TensorInfo& tensor = tensors_[output.tensors.front()];
    if (times[output.name] > 1) output.name = name_of(ops_[tensor.op], tensor, true);
  }
  times.clear();
  std::vector<Names> names(tensors_.size());
  for (Output& output : outputs) {
    tell_apart(output.name, times);
    std::set<DType> types;
    std::set<std::string> arithmetics;
    for (const uint32_t i : output.tensors) {
      types.insert(tensors_[i].dtype);
      arithmetics.insert(arithmetic_of(tensors_[i]));
    }
    for (const uint32_t i : output.tensors) {
      names[i] = {output.name, output.name};
      if (types.size() > 1) names[i].tensor += fmt::format(" ({})", info(tensors_[i].dtype).name);
      if (arithmetics.size() > 1) names[i].tensor += fmt::format(" ({})", arithmetic_of(tensors_[i]));
    }
  }
  times.clear();
  for (Names& name : names) tell_apart(name.tensor, times);
  return names;
}

const std::vector<Selection::Names>& Selection::names() const {
  std::call_once(named_, [&] { names_ = make_names(); });
  return names_;
}

size_t Selection::count_outputs(std::span<const uint32_t> tensors) const {
  std::set<OutputId> outputs;
  for (const uint32_t tensor : tensors) outputs.insert(output(tensor));
  return outputs.size();
}

bool Selection::contains(uint32_t tensor) const {
  if (tensor >= selected_.size()) {
    throw unreadable_error("{}: a row names tensor {}, but the trace has {}", reader_.path(), tensor,
                           count_of(selected_.size(), "tensor"));
  }
  return selected_[tensor];
}

RowKey Selection::key(uint32_t index) const {
  const TensorInfo& info = tensor(index);
  const OpInfo& made_by = op(index);
  RowKey key;
  key.run = reader_.run().run_id;
  key.rank = reader_.run().rank;
  key.phase = name_of(made_by.phase);
  key.op = made_by.id;
  key.op_name = made_by.name;
  key.module = made_by.module;
  key.slot = info.slot;
  key.role = name_of(info.role);
  key.parameter = info.parameter;
  key.name = name(index);
  return key;
}

RowKey Selection::key(uint32_t tensor, const RowPosition& position) const {
  RowKey result = key(tensor);
  const auto run = std::find_if(runs_.begin(), runs_.end(), [&](const PartRun& candidate) {
    return candidate.rank == position.rank && position.step < candidate.steps.last;
  });
  if (run != runs_.end()) result.run = run->id;
  result.rank = position.rank;
  result.step = position.step;
  result.micro_batch = position.micro_batch;
  result.loss_index = position.loss_index;
  return result;
}

bool Selection::is_bookkeeping(uint32_t index) const {
  const TensorInfo& info = tensor(index);
  const Phase phase = op(index).phase;
  if (phase == Phase::scaling || phase == Phase::optimizer || info.shape.empty()) return true;
  return info.role == Role::weight || info.role == Role::master_weight || info.role == Role::buffer || info.role == Role::loss;
}

}  // namespace ulpscope
