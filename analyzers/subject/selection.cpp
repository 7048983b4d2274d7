#include "ulpscope/analyzers/subject/selection.h"

#include <algorithm>
#include <set>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"

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
bool is_wanted(const std::vector<T>& wanted, T value) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), value) != wanted.end();
}

}  // namespace

Selection::Selection(const Snapshot& reader, const AnalysisOptions& options)
    : reader_(reader), ops_(reader_.ops()), tensors_(reader_.tensors()) {
  only_rank_ = only_rank(reader);
  for (uint32_t i = 0; i < ops_.size(); ++i)
    if (!ops_[i].location.empty()) located_.emplace(ops_[i].id, i);
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
                        is_wanted(options.phases, op.phase) && is_wanted(options.roles, tensor.role));
  }
}

const std::vector<TensorName>& Selection::names() const {
  std::call_once(named_, [&] { names_ = tensor_names(reader_); });
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

const std::string& Selection::location(uint32_t tensor) const {
  const OpInfo& made_by = op(tensor);
  const auto forward = made_by.location.empty() ? located_.find(made_by.forward_id) : located_.end();
  return forward == located_.end() ? made_by.location : ops_[forward->second].location;
}

RowKey Selection::key(uint32_t index) const {
  const TensorInfo& info = tensor(index);
  const OpInfo& made_by = op(index);
  RowKey key;
  key.run = reader_.run().run_id;
  key.rank = only_rank_;
  key.phase = name_of(made_by.phase);
  key.op = made_by.id;
  key.op_name = made_by.name;
  key.module = made_by.module;
  key.slot = info.slot;
  key.role = name_of(info.role);
  key.parameter = info.parameter;
  key.name = name(index);
  key.location = location(index);
  return key;
}

RowKey Selection::key(uint32_t tensor, const RowPosition& position) const {
  RowKey result = key(tensor, position.step, position.rank);
  result.micro_batch = position.micro_batch;
  result.loss_index = position.loss_index;
  return result;
}

RowKey Selection::key(uint32_t tensor, uint64_t step, int rank) const { return at(key(tensor), step, rank); }

RowKey Selection::key_of_step(uint64_t step, int rank) const {
  RowKey key;
  key.run = reader_.run().run_id;
  return at(std::move(key), step, rank);
}

RowKey Selection::at(RowKey key, uint64_t step, int rank) const {
  const auto run = std::find_if(runs_.begin(), runs_.end(),
                                [&](const PartRun& candidate) { return candidate.rank == rank && step < candidate.steps.last; });
  if (run != runs_.end()) key.run = run->id;
  key.rank = rank;
  key.step = step;
  return key;
}

bool Selection::is_bookkeeping(uint32_t index) const {
  const TensorInfo& info = tensor(index);
  const Phase phase = op(index).phase;
  if (phase == Phase::scaling || phase == Phase::optimizer || info.shape.empty()) return true;
  return info.role == Role::weight || info.role == Role::master_weight || info.role == Role::buffer || info.role == Role::loss;
}

}  // namespace ulpscope
