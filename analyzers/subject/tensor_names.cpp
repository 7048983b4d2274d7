#include "ulpscope/analyzers/subject/tensor_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ulpscope/analyzers/subject/tensor_graph.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

namespace {

constexpr size_t kNone = SIZE_MAX;

constexpr std::array<std::string_view, 10> kWords = {"first", "second",  "third",  "fourth", "fifth",
                                                     "sixth", "seventh", "eighth", "ninth",  "tenth"};

std::string ordinal(size_t number) {
  if (number >= 1 && number <= kWords.size()) return std::string(kWords[number - 1]);
  const size_t last = number % 100 / 10 == 1 ? 0 : number % 10;
  return fmt::format("{}{}", number, last == 1 ? "st" : last == 2 ? "nd" : last == 3 ? "rd" : "th");
}

std::string join(std::string_view a, std::string_view b) {
  return a.empty() || b.empty() ? fmt::format("{}{}", a, b) : fmt::format("{} {}", a, b);
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

double elements_of(const TensorInfo& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), 1.0,
                         [](double all, int64_t extent) { return all * static_cast<double>(extent); });
}

class Namer {
 public:
  explicit Namer(const Snapshot& trace);
  std::vector<TensorName> names() const;

 private:
  // An output of an op, whatever types and arithmetic it has had.
  struct Output {
    std::vector<uint32_t> tensors;
    size_t root = kNone;                      // what a cast, through any number of them, holds the values of; else itself
    std::string place, what, part, addition;  // part: which output of the op
    bool tells_phase = false;
    std::string name() const { return join(join(place, what), part) + addition; }
    std::string operation() const { return join(place, what) + addition; }
  };
  using Members = std::vector<size_t>;  // of outputs_, in order of execution

  const TensorInfo& tensor(size_t output) const { return tensors_[outputs_[output].tensors.front()]; }
  const OpInfo& op(size_t output) const { return ops_[tensor(output).op]; }
  size_t find(uint64_t op, uint32_t slot) const;
  size_t source_of(size_t output) const;
  bool is_plain_copy(size_t output) const;
  bool is_gradient_value(size_t output) const;
  std::string output_words(size_t output) const;

  void name_value(Output& output, size_t index) const;
  void name_holder(Output& output, size_t index) const;
  void name_gradients(const Members& members);
  void name_gradients_of(const std::string& subject, const Members& members);
  void name_step_of_backward(Output& output, size_t index) const;
  std::string input_gradient(size_t output) const;
  void tell_apart(const Members& members, bool ordinal_before);

  const std::vector<OpInfo>& ops_;
  const std::vector<TensorInfo>& tensors_;
  const TensorGraph graph_;
  std::vector<Output> outputs_;
  std::map<std::pair<uint64_t, uint8_t>, size_t> by_id_;
  std::map<uint64_t, std::set<int32_t>> gradient_inputs_;  // of a forward op: those whose gradients are no parameter's
  std::unordered_set<std::string> taken_;
  bool leaves_out_ops_ = false;  // in some steps: what is given comes in behind them, too
};

Namer::Namer(const Snapshot& trace) : ops_(trace.ops()), tensors_(trace.tensors()), graph_(trace) {
  trace.visit_steps({}, [&](std::span<const StepRow> rows) {
    leaves_out_ops_ = std::any_of(rows.begin(), rows.end(), [](const StepRow& row) { return row.level == RecordLevel::off; });
    return !leaves_out_ops_;
  });
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    const TensorInfo& tensor = tensors_[i];
    const auto [row, is_new] = by_id_.try_emplace({ops_[tensor.op].id, tensor.slot}, outputs_.size());
    if (is_new) outputs_.emplace_back();
    outputs_[row->second].tensors.push_back(i);
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    outputs_[i].root = i;
    // No longer than there are outputs: the edges of a damaged trace may lead in a circle.
    for (size_t steps = 0, source = source_of(i); source != kNone && steps < outputs_.size(); ++steps, source = source_of(source))
      outputs_[i].root = source;
    if (tensor(i).gradient_input >= 0 && tensor(i).parameter.empty())
      gradient_inputs_[op(i).forward_id].insert(tensor(i).gradient_input);
  }
  // Names rest on those of values: casts on what they hold, gradients on what they are of.
  Members values, holders, gradients, gradient_holders;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const size_t root = outputs_[i].root;
    const bool is_gradient = is_gradient_value(root);
    (root != i ? is_gradient ? gradient_holders : holders : is_gradient ? gradients : values).push_back(i);
  }
  for (const size_t i : values) name_value(outputs_[i], i);
  tell_apart(values, true);
  for (const size_t i : holders) name_holder(outputs_[i], i);
  tell_apart(holders, false);
  name_gradients(gradients);
  tell_apart(gradients, false);
  for (const size_t i : gradient_holders) name_holder(outputs_[i], i);
  tell_apart(gradient_holders, false);
}

size_t Namer::find(uint64_t op, uint32_t slot) const {
  const auto found = by_id_.find({op, slot});
  return found == by_id_.end() ? kNone : found->second;
}

// The output whose values a cast, a quantization or an assignment holds in another type, or a copy that is no gradient's of its
// own.
size_t Namer::source_of(size_t output) const {
  const OpInfo& made_by = op(output);
  const bool is_assigned = made_by.function == OpFunction::assign;
  if (made_by.kind != OpKind::cast && made_by.kind != OpKind::quantize && !is_assigned && !is_plain_copy(output)) return kNone;
  const GraphEdge* const edge = graph_.read_by(tensor(output).op, is_assigned ? 1 : 0);
  if (edge == nullptr || edge->producer >= ops_.size() || edge->producer == tensor(output).op) return kNone;
  return find(ops_[edge->producer].id, edge->slot);
}

bool Namer::is_plain_copy(size_t output) const {
  const TensorInfo& info = tensor(output);
  return op(output).function == OpFunction::copy && is_gradient(info.role) && info.gradient_of == 0 && info.parameter.empty();
}

bool Namer::is_gradient_value(size_t output) const {
  const Role role = tensor(output).role;
  // A backward pass makes values of its own, too, on the way to a gradient.
  return is_gradient(role) || (op(output).phase == Phase::backward && (role == Role::loss || role == Role::activation));
}

// What tells an output of an op from the others.
std::string Namer::output_words(size_t output) const {
  const TensorInfo& info = tensor(output);
  if (!info.name.empty()) return info.name;
  return info.slot > 0 ? ordinal(info.slot + 1u) + " output" : "";
}

void Namer::name_value(Output& output, size_t index) const {
  const TensorInfo& info = tensor(index);
  const OpInfo& made_by = op(index);
  if (!info.parameter.empty()) {
    output.place = info.parameter;
    // Else the parameter, or a buffer, itself.
    if (info.role == Role::optimizer_state || info.role == Role::update) {
      output.what = !info.name.empty() ? info.name : info.role == Role::update ? "update" : "state";
    } else if (info.role == Role::weight_cast) {
      output.what = fmt::format("({})", type_text(info.dtype));
    }
    return;
  }
  const size_t first = find(made_by.id, 0);
  const bool beside_parameter =
      info.slot > 0 && first != kNone && !tensor(first).parameter.empty() && is_gradient(tensor(first).role);
  output.place = beside_parameter ? tensor(first).parameter : made_by.module;
  output.what = made_by.name;
  if (info.role == Role::loss) {
    const GraphEdge* const edge = made_by.function == OpFunction::scale ? graph_.read_by(info.op, 0) : nullptr;
    const size_t unscaled = edge != nullptr && edge->producer < ops_.size() ? find(ops_[edge->producer].id, edge->slot) : kNone;
    const size_t loss = unscaled == kNone ? kNone : outputs_[unscaled].root;
    output.what = loss != kNone && tensor(loss).role == Role::loss && loss != index ? "scaled " + op(loss).name : made_by.name;
    output.what += " loss";
    output.tells_phase = made_by.phase == Phase::loss;
  }
  // The op source makes nothing: what came in is what it is called.
  output.part = output_words(index);
  if (made_by.kind == OpKind::source && !output.part.empty()) output.what.clear();
}

// "head.weight (FP16)"; of several of parts of a value, "qkv linear (query, FP32)"
void Namer::name_holder(Output& output, size_t index) const {
  const bool is_scale = op(index).kind == OpKind::quantize && tensor(index).slot > 0;
  const size_t quantized = is_scale ? find(op(index).id, 0) : kNone;
  const TensorInfo& info = tensor(quantized != kNone ? quantized : index);
  const bool is_parameter = !info.parameter.empty() && !is_gradient(info.role);
  output.place = is_parameter ? info.parameter : outputs_[output.root].name();
  output.tells_phase = !is_parameter && outputs_[output.root].tells_phase && op(output.root).phase == op(index).phase;
  output.what = is_scale               ? join("quantization", output_words(index))
                : is_plain_copy(index) ? "copy"
                : info.name.empty()    ? fmt::format("({})", type_text(info.dtype))
                                       : fmt::format("({}, {})", info.name, type_text(info.dtype));
}

void Namer::name_gradients(const Members& members) {
  std::map<std::string, Members> of_parameters;
  std::map<size_t, Members> of_values;
  for (const size_t i : members) {
    const TensorInfo& info = tensor(i);
    const OpFunction function = op(i).function;
    Output& output = outputs_[i];
    output.tells_phase = op(i).phase == Phase::backward;
    const size_t value = info.gradient_of != 0 ? find(info.gradient_of, info.gradient_slot) : kNone;
    const size_t root = value == kNone ? kNone : outputs_[value].root;
    if (!info.parameter.empty() && (info.role == Role::unscaled_gradient || function == OpFunction::accumulate)) {
      output.place = info.parameter;
      output.what = function == OpFunction::accumulate                                   ? "accumulated gradient"
                    : function == OpFunction::clip_norm || function == OpFunction::clamp ? "clipped gradient"
                                                                                         : "unscaled gradient";
    } else if (!info.parameter.empty()) {
      of_parameters[info.parameter].push_back(i);
    } else if (root != kNone && !is_gradient_value(root)) {
      const std::string& parameter = tensor(root).parameter;
      const bool is_whole = elements_of(info) >= elements_of(tensor(root));
      if (!parameter.empty() && is_whole)
        of_parameters[parameter].push_back(i);
      else
        of_values[root].push_back(i);
    } else {
      name_step_of_backward(output, i);
    }
  }
  for (const auto& [parameter, gradients] : of_parameters) name_gradients_of(parameter, gradients);
  for (const auto& [value, gradients] : of_values) {
    // A part is the gradient of what an op reads, not of the value.
    Members whole;
    for (const size_t i : gradients) {
      if (elements_of(tensor(i)) >= elements_of(tensor(value))) {
        whole.push_back(i);
        continue;
      }
      const std::string of_input = input_gradient(i);
      // A parameter is called so whoever made it: a source at the start, or updates.
      const std::string& parameter = tensor(value).parameter;
      outputs_[i].place = !of_input.empty() ? of_input : parameter.empty() ? outputs_[value].name() : parameter;
      if (of_input.empty()) outputs_[i].what = "gradient part";
    }
    name_gradients_of(outputs_[value].name(), whole);
  }
}

// Of one value. Where gradients met, the last sum is that of the value; else what was made last, from the others, is.
void Namer::name_gradients_of(const std::string& subject, const Members& members) {
  if (members.empty()) return;
  const auto is_sum = [&](size_t i) { return op(i).function == OpFunction::add && tensor(i).gradient_input < 0; };
  const auto last_sum = std::find_if(members.rbegin(), members.rend(), is_sum);
  const bool meet = last_sum != members.rend();
  const size_t complete = meet ? *last_sum : members.back();
  for (const size_t i : members) {
    Output& output = outputs_[i];
    output.place = subject;
    output.what = "gradient";
    if (i == complete) continue;
    if (!meet) {
      output.what += " by " + op(i).name;
      continue;
    }
    const std::string of_input = is_sum(i) ? "" : input_gradient(i);
    output.what = of_input.empty() ? "partial gradient" : "";
    if (!of_input.empty()) output.place = of_input;
  }
}

// "blocks.0.norm layer_norm input gradient"; "" where the trace does not say which input it is.
std::string Namer::input_gradient(size_t output) const {
  const int32_t input = tensor(output).gradient_input;
  const uint64_t forward_id = op(output).forward_id;
  const size_t forward = forward_id == 0 ? kNone : find(forward_id, 0);
  if (input < 0 || forward == kNone || outputs_[forward].operation().empty()) return "";
  const auto inputs = gradient_inputs_.find(forward_id);
  const bool is_only = input == 0 && inputs != gradient_inputs_.end() && inputs->second.size() == 1;
  return fmt::format("{} {}input gradient", outputs_[forward].operation(),
                     is_only ? "" : ordinal(static_cast<size_t>(input) + 1) + " ");
}

// What a backward pass computes on its way, or what a producer does not tell more of.
void Namer::name_step_of_backward(Output& output, size_t index) const {
  const OpInfo& made_by = op(index);
  const size_t forward = made_by.forward_id == 0 ? kNone : find(made_by.forward_id, 0);
  const bool is_known = forward != kNone && !is_gradient_value(outputs_[forward].root);
  const bool says_so = made_by.name.find("backward") != std::string::npos;
  output.place = is_known ? outputs_[forward].operation() : made_by.module;
  output.what = is_known && !says_so ? "backward " + made_by.name : made_by.name;
  output.part = output_words(index);
  if (!is_known && !says_so) output.addition = " in backward";
}

void Namer::tell_apart(const Members& members, bool ordinal_before) {
  using Addition = std::function<std::string(size_t)>;
  const auto groups_of = [&] {
    std::unordered_map<std::string, Members> groups;
    for (const size_t i : members) groups[outputs_[i].name()].push_back(i);
    std::erase_if(groups, [](const auto& group) { return group.second.size() == 1; });
    return groups;
  };
  const Addition additions[] = {[&](size_t i) { return op(i).phase == Phase::evaluation ? " in evaluation" : ""; },
                                [&](size_t i) {
                                  const bool is_given = op(i).kind == OpKind::source || op(i).function == OpFunction::fill;
                                  return !is_given ? "" : leaves_out_ops_ ? " as found" : " at the start";
                                },
                                [&](size_t i) { return " by " + op(i).name; },
                                [&](size_t i) { return op(i).module.empty() ? "" : " for " + op(i).module; },
                                [&](size_t i) { return fmt::format(" ({})", type_text(tensor(i).dtype)); }};
  const Addition& of_evaluation = additions[0];
  for (const Addition& addition : additions) {
    for (const auto& [name, group] : groups_of()) {
      std::vector<std::string> texts;
      for (const size_t i : group) texts.push_back(addition(i));
      if (std::adjacent_find(texts.begin(), texts.end(), std::not_equal_to<>()) == texts.end()) continue;
      for (size_t k = 0; k < group.size(); ++k) {
        outputs_[group[k]].addition += texts[k];
        outputs_[group[k]].tells_phase |= &addition == &of_evaluation && !texts[k].empty();
      }
    }
  }
  for (const auto& [name, group] : groups_of()) {
    for (size_t k = 0; k < group.size(); ++k) {
      Output& output = outputs_[group[k]];
      if (ordinal_before && !output.what.empty()) {
        output.what = ordinal(k + 1) + " " + output.what;
      } else {
        output.addition += fmt::format(" ({})", ordinal(k + 1));
      }
    }
  }
  // Two kinds of names may still meet, as where a module is called like an output.
  for (const size_t i : members) {
    const std::string addition = outputs_[i].addition;
    for (size_t number = 2; !taken_.insert(outputs_[i].name()).second; ++number)
      outputs_[i].addition = fmt::format("{} ({})", addition, ordinal(number));
  }
}

std::vector<TensorName> Namer::names() const {
  std::vector<TensorName> names(tensors_.size());
  std::unordered_set<std::string> taken;
  for (const Output& output : outputs_)
    if (output.tensors.size() == 1) taken.insert(output.name());
  for (const Output& output : outputs_) {
    std::set<DType> types;
    std::set<std::string> arithmetics;
    for (const uint32_t i : output.tensors) {
      types.insert(tensors_[i].dtype);
      arithmetics.insert(arithmetic_of(tensors_[i]));
    }
    for (const uint32_t i : output.tensors) {
      names[i] = {output.name(), output.name(), output.tells_phase};
      if (output.tensors.size() == 1) continue;
      if (types.size() > 1) names[i].tensor += fmt::format(" ({})", type_text(tensors_[i].dtype));
      if (arithmetics.size() > 1) names[i].tensor += fmt::format(" ({})", arithmetic_of(tensors_[i]));
      const std::string name = names[i].tensor;
      for (size_t number = 2; !taken.insert(names[i].tensor).second; ++number)
        names[i].tensor = fmt::format("{} ({})", name, ordinal(number));
    }
  }
  return names;
}

}  // namespace

std::string type_text(DType dtype) {
  if (!is_float(dtype)) return std::string(info(dtype).name);
  std::string text(info(dtype).format->name);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return text;
}

bool is_ordinal(std::string_view word) {
  if (std::find(kWords.begin(), kWords.end(), word) != kWords.end()) return true;
  if (word.size() < 3 || word[0] < '0' || word[0] > '9') return false;
  const size_t end = word.find_first_not_of("0123456789");
  return end == word.size() - 2 && word.find_first_of("snrt", end) == end;
}

std::vector<TensorName> tensor_names(const Snapshot& trace) { return Namer(trace).names(); }

}  // namespace ulpscope
