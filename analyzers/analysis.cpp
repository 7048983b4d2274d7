#include "ulpscope/analyzers/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <tuple>
#include <unordered_map>

#include "ulpscope/analyzers/what_if.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

namespace {

// A name matches by itself or inside what it names: "features" has "features.0" in it.
bool module_matches(const std::string& pattern, std::string_view module) {
  if (glob_match(pattern, module)) return true;
  for (size_t dot = module.rfind('.'); dot != std::string_view::npos; dot = module.substr(0, dot).rfind('.')) {
    if (glob_match(pattern, module.substr(0, dot))) return true;
  }
  return false;
}

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

template <typename Enum>
std::optional<Enum> find_name(std::string_view name, int count) {
  for (int i = 0; i < count; ++i) {
    if (name == name_of(static_cast<Enum>(i))) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Phase> find_phase(std::string_view name) { return find_name<Phase>(name, kPhases); }
std::optional<Role> find_role(std::string_view name) { return find_name<Role>(name, kRoles); }

Selection::Selection(const Snapshot& reader, const AnalysisOptions& options) : reader_(reader) {
  const std::vector<OpInfo>& ops = reader.ops();
  selected_.reserve(reader.tensors().size());
  for (const TensorInfo& tensor : reader.tensors()) {
    if (tensor.op >= ops.size()) {
      throw unreadable_error("{}: tensor {} names op {}, but the trace has {}", reader.path(), selected_.size(), tensor.op,
                             count_of(ops.size(), "op"));
    }
    const OpInfo& op = ops[tensor.op];
    const auto any = [](const std::vector<std::string>& patterns, auto&& matches) {
      return patterns.empty() || std::any_of(patterns.begin(), patterns.end(), matches);
    };
    selected_.push_back(any(options.modules, [&](const std::string& pattern) { return module_matches(pattern, op.module); }) &&
                        any(options.ops, [&](const std::string& pattern) { return glob_match(pattern, op.name); }) &&
                        passes(options.phases, op.phase) && passes(options.roles, tensor.role));
  }
  names_ = names_of(reader);
}

std::vector<Selection::Names> Selection::names_of(const Snapshot& reader) {
  const std::vector<OpInfo>& ops = reader.ops();
  const std::vector<TensorInfo>& tensors = reader.tensors();
  struct Output {
    std::string name;
    std::vector<uint32_t> tensors;
  };
  std::vector<Output> outputs;
  std::map<std::tuple<uint32_t, uint8_t, std::string_view, std::string_view>, size_t> rows;  // of `outputs`
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& tensor = tensors[i];
    const auto [row, is_new] = rows.try_emplace({tensor.op, tensor.slot, tensor.name, tensor.parameter}, outputs.size());
    if (is_new) outputs.push_back({name_of(ops[tensor.op], tensor, false), {}});
    outputs[row->second].tensors.push_back(i);
  }
  std::unordered_map<std::string, int> times;
  for (const Output& output : outputs) ++times[output.name];
  for (Output& output : outputs) {
    const TensorInfo& tensor = tensors[output.tensors.front()];
    if (times[output.name] > 1) output.name = name_of(ops[tensor.op], tensor, true);
  }
  times.clear();
  std::vector<Names> names(tensors.size());
  for (Output& output : outputs) {
    tell_apart(output.name, times);
    std::set<DType> types;
    std::set<std::string> arithmetics;
    for (const uint32_t i : output.tensors) {
      types.insert(tensors[i].dtype);
      arithmetics.insert(arithmetic_of(tensors[i]));
    }
    for (const uint32_t i : output.tensors) {
      names[i] = {output.name, output.name};
      if (types.size() > 1) names[i].tensor += fmt::format(" ({})", info(tensors[i].dtype).name);
      if (arithmetics.size() > 1) names[i].tensor += fmt::format(" ({})", arithmetic_of(tensors[i]));
    }
  }
  times.clear();
  for (Names& name : names) tell_apart(name.tensor, times);
  return names;
}

size_t Selection::count_outputs(std::span<const uint32_t> tensors) const {
  std::set<std::string_view> outputs;
  for (const uint32_t tensor : tensors) outputs.insert(output_name(tensor));
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

RowKey Selection::key(uint32_t tensor, uint64_t step, uint32_t micro_batch, uint8_t pass) const {
  RowKey result = key(tensor);
  result.run = reader_.run_at(step).run_id;
  result.step = step;
  result.micro_batch = micro_batch;
  result.pass = pass;
  return result;
}

const OpInfo* Selection::serves(uint32_t index) const {
  const std::vector<OpInfo>& ops = reader_.ops();
  const uint64_t forward_id = op(index).forward_id;
  const auto found = std::find_if(ops.begin(), ops.end(), [&](const OpInfo& op) { return op.id == forward_id; });
  if (forward_id == 0 || found == ops.end()) return nullptr;
  size_t forward = found - ops.begin();
  for (size_t tries = 0; ops[forward].name == "cast" && tries < ops.size(); ++tries) {
    const auto inputs = reader_.graph().inputs(static_cast<uint32_t>(forward));
    if (inputs.empty()) return nullptr;
    forward = inputs.front().producer;
  }
  return &ops[forward];
}

bool Selection::is_bookkeeping(uint32_t index) const {
  const TensorInfo& info = tensor(index);
  const Phase phase = op(index).phase;
  if (phase == Phase::scaling || phase == Phase::optimizer || info.shape.empty()) return true;
  return info.role == Role::weight || info.role == Role::master_weight || info.role == Role::buffer || info.role == Role::loss;
}

bool visit_selected(const Snapshot& reader, const Selection& selection, const AnalysisOptions& options,
                    std::span<RowConsumer* const> consumers) {
  const double total = static_cast<double>(std::max<uint64_t>(1, reader.tensor_row_count()));
  uint64_t seen = 0;
  bool cancelled = options.cancelled();
  if (!cancelled)
    reader.visit_rows(options.steps, [&](std::span<const TensorRow> rows) {
      for (const TensorRow& row : rows) {
        const bool selected = selection.contains(row);
        for (RowConsumer* consumer : consumers) {
          consumer->see(row);
          if (selected) consumer->add(row);
        }
      }
      seen += rows.size();
      if (options.progress) options.progress(std::min(1.0, static_cast<double>(seen) / total));
      cancelled = options.cancelled();
      return !cancelled;
    });
  for (RowConsumer* consumer : consumers) consumer->finish();
  return !cancelled;
}

PrecisionFacts precision_facts(const Snapshot& reader) {
  PrecisionFacts facts;
  std::set<std::string_view> narrow, masters;
  for (const TensorInfo& tensor : reader.tensors()) {
    facts.casts_weights = facts.casts_weights || tensor.role == Role::weight_cast;
    if (tensor.role == Role::weight && is_narrow(tensor.dtype)) narrow.insert(tensor.parameter);
    if (tensor.role == Role::master_weight) masters.insert(tensor.parameter);
  }
  facts.updates_narrow_weights = !std::includes(masters.begin(), masters.end(), narrow.begin(), narrow.end());
  facts.adapts_scale = reader.run().dynamic_loss_scale;
  facts.scales_loss = facts.adapts_scale;
  reader.visit_steps({}, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) facts.scales_loss = facts.scales_loss || row.scale_before != 1;
    return !facts.scales_loss;
  });
  return facts;
}

std::string scaling_advice(const PrecisionFacts& facts) {
  if (facts.adapts_scale) return "Begin with a larger loss scale (scaler.initial), or let it grow sooner (scaler.growth_interval)";
  if (facts.scales_loss) return "Use a larger loss scale (scaler.initial), or one that adapts (scaler.dynamic = true)";
  if (!facts.updates_narrow_weights) return "Switch the gradient scaler on (scaler.enabled = \"on\")";
  return "Keep FP32 master weights and switch the gradient scaler on (optimizer.master_weights = true, scaler.enabled = \"on\")";
}

std::string quantization_recipe(const Snapshot& reader) {
  const auto has = [&](std::string_view name) {
    return std::any_of(reader.ops().begin(), reader.ops().end(), [&](const OpInfo& op) { return op.name == name; });
  };
  if (!has("quantize")) return "";
  return has("amax_history_update") ? "delayed" : "current";
}

std::optional<double> attribute(const OpInfo& op, std::string_view name) {
  std::istringstream items(op.attributes);
  for (std::string item; items >> item;) {
    if (!item.starts_with(name) || item.size() <= name.size() || item[name.size()] != '=') continue;
    double value = 0;
    const char* const end = item.data() + item.size();
    const auto [stop, error] = std::from_chars(item.data() + name.size() + 1, end, value);
    return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
  }
  return std::nullopt;
}

bool StepFacts::was_skipped(uint64_t step) const { return std::binary_search(skipped.begin(), skipped.end(), step); }

StepFacts step_facts(const Snapshot& reader, StepRange range) {
  StepFacts facts;
  reader.visit_steps(range, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) {
      if (row.skipped) facts.skipped.push_back(row.step);
      const bool broken = row.loss_known && !std::isfinite(row.loss);
      facts.broken_from = broken ? std::min(facts.broken_from, row.step) : UINT64_MAX;
    }
    return true;
  });
  return facts;
}

RowKey key_of_step(const Snapshot& reader, uint64_t step) {
  RowKey key;
  key.run = reader.run_at(step).run_id;
  key.rank = reader.run().rank;
  key.step = step;
  return key;
}

void check_asked_for(std::initializer_list<const Snapshot*> readers, const AnalysisOptions& options) {
  std::set<std::string> modules, ops;
  std::optional<uint64_t> first, last;
  bool any_step = false;
  for (const Snapshot* reader : readers) {
    for (const OpInfo& op : reader->ops()) {
      if (!op.module.empty()) modules.insert(op.module);
      ops.insert(op.name);
    }
    if (!options.restricts_steps()) continue;
    reader->visit_steps(options.steps, [&](std::span<const StepRow> rows) {
      any_step = any_step || !rows.empty();
      return !any_step;
    });
    if (any_step) continue;
    reader->visit_steps({}, [&](std::span<const StepRow> rows) {
      for (const StepRow& row : rows) {
        first = std::min(first.value_or(row.step), row.step);
        last = std::max(last.value_or(row.step), row.step);
      }
      return true;
    });
  }
  const auto check = [](const char* what, const std::vector<std::string>& patterns, const std::set<std::string>& known,
                        auto&& matches) {
    const std::vector<std::string> names(known.begin(), known.end());
    for (const std::string& pattern : patterns) {
      if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return matches(pattern, name); })) continue;
      throw usage_error("no {} of the trace matches '{}'{}", what, pattern, did_you_mean_or_expected(pattern, names));
    }
  };
  // Names without a module are at top level, which "*" takes too.
  check("module", options.modules, modules, [](const std::string& pattern, const std::string& name) {
    return module_matches(pattern, name) || glob_match(pattern, "");
  });
  check("op", options.ops, ops, [](const std::string& pattern, const std::string& name) { return glob_match(pattern, name); });
  if (options.restricts_steps() && !any_step && first) {
    throw usage_error("no step of the trace is in what --step asks for; expected one of {} to {}", *first, *last);
  }
}

std::string shell_word(const std::string& path) {
  const bool plain = !path.empty() && path.front() != '-' && std::all_of(path.begin(), path.end(), [](unsigned char c) {
    return std::isalnum(c) || c >= 0x80 || std::string_view("_-./+=:,@").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return path;
  std::string word = "'";
  for (const char c : path) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

ReportSource source_of(const Snapshot& reader) { return {reader.path(), reader.run().run_id, reader.run().rank}; }

}  // namespace ulpscope
