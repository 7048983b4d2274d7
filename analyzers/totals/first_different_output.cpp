#include "ulpscope/analyzers/totals/first_different_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "ulpscope/analyzers/subject/tensor_graph.h"
#include "ulpscope/analyzers/totals/compared_runs.h"
#include "ulpscope/analyzers/totals/rounding_bound.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {

namespace {

using DifferenceKind = FirstDifferentOutput::Kind;
using What = FirstDifferentOutput::What;

// A row of an output in a step, in either run; `nth` of those that the step has of it.
struct PlaceOfOutput {
  OutputId output;
  uint32_t micro_batch = 0;
  uint8_t loss_index = 0;
  uint32_t nth = 0;
  auto operator<=>(const PlaceOfOutput&) const = default;  // NOLINT(modernize-use-nullptr): of Clang 14's own making
};

struct Recorded {
  PlaceOfOutput place;
  uint32_t tensor;
  uint64_t hash;
};

// A run, with what is asked of its ops.
class Side {
 public:
  Side(const Snapshot& trace, const Selection& selection) : trace_(trace), selection_(selection), made_(trace) {
    for (uint32_t op = 0; op < trace.ops().size(); ++op) by_id_.try_emplace(trace.ops()[op].id, op);
  }

  const Snapshot& trace() const { return trace_; }
  const TensorInfo& tensor(uint32_t index) const { return selection_.tensor(index); }
  const OpInfo& op_of(uint32_t tensor) const { return selection_.op(tensor); }
  bool is_cast(uint32_t tensor) const { return op_of(tensor).kind == OpKind::cast; }
  OutputId output(uint32_t tensor) const { return selection_.output(tensor); }
  const std::string& name(uint32_t tensor) const { return selection_.parameter_name(tensor); }

  void begin_step(const StepRow& row) {
    step_ = row;
    rows_.clear();
    places_.clear();
    std::map<PlaceOfOutput, uint32_t> seen;
    trace_.visit_bits({row.step, row.step + 1}, [&](std::span<const BitsRow> some) {
      for (const BitsRow& each : some) {
        PlaceOfOutput place{output(each.tensor), each.micro_batch, each.loss_index, 0};
        place.nth = seen[place]++;
        places_.emplace(place, rows_.size());
        rows_.push_back({place, each.tensor, each.hash});
      }
      return true;
    });
  }
  const StepRow& step() const { return step_; }
  const std::vector<Recorded>& rows() const { return rows_; }
  const Recorded* find(const PlaceOfOutput& place) const {
    const auto found = places_.find(place);
    return found == places_.end() ? nullptr : &rows_[found->second];
  }

  // What an op reads in the step's graph, by input.
  struct Read {
    OutputId value;  // behind casts that only one of the runs has, what they cast
    std::optional<DType> type;
  };
  std::map<uint32_t, Read> reads_of(uint64_t op_id, const std::set<OutputId>& known) const {
    std::map<uint32_t, Read> reads;
    const auto found = by_id_.find(op_id);
    if (found == by_id_.end()) return reads;
    for (const GraphEdge& edge : trace_.graph().inputs(found->second, step_.graph)) {
      Read read{{trace_.ops()[edge.producer].id, edge.slot}, {}};
      if (const auto made = made_.made_by(edge.producer, edge.slot); !made.empty()) read.type = tensor(made.back()).dtype;
      uint32_t producer = edge.producer;
      while (!known.contains(read.value) && trace_.ops()[producer].kind == OpKind::cast) {
        const auto inputs = trace_.graph().inputs(producer, step_.graph);
        if (inputs.empty()) break;
        producer = inputs.front().producer;
        read.value = {trace_.ops()[producer].id, inputs.front().slot};
      }
      reads.emplace(edge.input, read);
    }
    return reads;
  }

 private:
  const Snapshot trace_;
  const Selection& selection_;
  const TensorGraph made_;
  std::unordered_map<uint64_t, uint32_t> by_id_;
  StepRow step_;
  std::vector<Recorded> rows_;
  std::map<PlaceOfOutput, size_t> places_;
};

// Whether a run may lack rows of what ran.
bool may_lack_rows(const Snapshot& a, const Snapshot& b) {
  const auto was_cut = [](const Snapshot& trace) {
    const std::vector<EventRow>& events = trace.events();
    return std::any_of(events.begin(), events.end(), [](const EventRow& event) { return event.kind == EventKind::cut_short; });
  };
  return a.run().filters != b.run().filters || was_cut(a) || was_cut(b);
}

std::map<std::string, std::string> attributes_of(const std::string& text) {
  std::map<std::string, std::string> attributes;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    attributes[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
  }
  return attributes;
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string rounding_text(const TensorInfo& tensor) {
  std::string text(name_of(tensor.rounding));
  if (tensor.flushes_results) text += ", subnormal results are zero";
  if (tensor.flushes_inputs) text += ", subnormal inputs are zero";
  return text;
}

class BitComparison {
 public:
  BitComparison(const Snapshot& a, const Snapshot& b, const Selection& of_a, const Selection& of_b, int rank)
      : a_(a, of_a), b_(b, of_b), rank_(rank), lacks_rows_(may_lack_rows(a, b)) {}

  // Of the steps that both have.
  void run(StepRange steps, ComparedBits& result) {
    std::map<uint64_t, StepRow> of_a;
    a_.trace().visit_steps(steps, [&](std::span<const StepRow> rows) {
      for (const StepRow& row : rows) of_a.emplace(row.step, row);
      return true;
    });
    b_.trace().visit_steps(steps, [&](std::span<const StepRow> rows) {
      for (const StepRow& row : rows) {
        const auto found = of_a.find(row.step);
        if (found == of_a.end()) continue;
        if (result.first && result.first->step <= row.step) return false;
        a_.begin_step(found->second);
        b_.begin_step(row);
        if (a_.rows().empty() || b_.rows().empty()) continue;
        ++result.steps;
        if (auto first = compare_step(result.outputs)) {
          result.first = std::move(first);
          return false;
        }
      }
      return true;
    });
  }

 private:
  std::optional<FirstDifferentOutput> compare_step(uint64_t& equal) {
    size_t next_of_a = 0;  // of its rows, the first that is not looked at
    for (const Recorded& row : b_.rows()) {
      const Recorded* const other = a_.find(row.place);
      if (other == nullptr) {
        if (lacks_rows_ || b_.is_cast(row.tensor)) continue;
        return only_in(DifferenceKind::only_in_b, row, next_of_a);
      }
      const auto place = static_cast<size_t>(other - a_.rows().data());
      for (; next_of_a < place; ++next_of_a)
        if (const Recorded& passed = a_.rows()[next_of_a]; is_only_in_a(passed))
          return only_in(DifferenceKind::only_in_a, passed, 0);
      next_of_a = std::max(next_of_a, place + 1);
      if (other->hash != row.hash) return differs(*other, row);
      known_.insert(row.place.output);
      ++equal;
    }
    for (; next_of_a < a_.rows().size(); ++next_of_a)
      if (const Recorded& passed = a_.rows()[next_of_a]; is_only_in_a(passed)) return only_in(DifferenceKind::only_in_a, passed, 0);
    return std::nullopt;
  }
  bool is_only_in_a(const Recorded& row) const { return !lacks_rows_ && !a_.is_cast(row.tensor) && b_.find(row.place) == nullptr; }

  FirstDifferentOutput at(DifferenceKind kind, const Recorded& row) const {
    FirstDifferentOutput first;
    first.kind = kind;
    first.step = b_.step().step;
    first.rank = rank_;
    first.micro_batch = row.place.micro_batch;
    first.loss_index = row.place.loss_index;
    return first;
  }

  FirstDifferentOutput only_in(DifferenceKind kind, const Recorded& row, size_t from) const {
    FirstDifferentOutput first = at(kind, row);
    const bool is_in_b = kind == DifferenceKind::only_in_b;
    const Side &side = is_in_b ? b_ : a_, &other = is_in_b ? a_ : b_;
    (is_in_b ? first.tensor_b : first.tensor_a) = row.tensor;
    const OpInfo& op = side.op_of(row.tensor);
    for (size_t i = from; i < other.rows().size(); ++i) {
      const Recorded& each = other.rows()[i];
      const OpInfo& instead = other.op_of(each.tensor);
      if (side.find(each.place) != nullptr || other.is_cast(each.tensor)) continue;
      if (instead.module != op.module || instead.phase != op.phase || each.place.micro_batch != row.place.micro_batch) continue;
      (is_in_b ? first.tensor_a : first.tensor_b) = each.tensor;
      break;
    }
    return first;
  }

  FirstDifferentOutput differs(const Recorded& a, const Recorded& b) {
    const OpInfo& op = b_.op_of(b.tensor);
    FirstDifferentOutput first = at(op.function == OpFunction::source ? DifferenceKind::given : DifferenceKind::computed, b);
    first.tensor_a = a.tensor;
    first.tensor_b = b.tensor;
    first.inputs_are_told = op.inputs_told && a_.op_of(a.tensor).inputs_told;
    add_changes(a.tensor, b.tensor, first);
    add_distances(first);
    return first;
  }

  void add_changes(uint32_t of_a, uint32_t of_b, FirstDifferentOutput& first) const {
    const OpInfo &op_a = a_.op_of(of_a), &op_b = b_.op_of(of_b);
    const TensorInfo &a = a_.tensor(of_a), &b = b_.tensor(of_b);
    const auto add = [&](What what, std::string name, std::string in_a, std::string in_b) {
      if (in_a != in_b) first.changes.push_back({what, std::move(name), std::move(in_a), std::move(in_b)});
    };
    add(What::function, "", std::string(name_of(op_a.function)), std::string(name_of(op_b.function)));
    add(What::type, "", std::string(info(a.dtype).name), std::string(info(b.dtype).name));
    add(What::shape, "", shape_text(a.shape), shape_text(b.shape));
    add(What::rounding, "", rounding_text(a), rounding_text(b));
    const auto attributes_a = attributes_of(op_a.attributes), attributes_b = attributes_of(op_b.attributes);
    for (const auto& [name, value] : attributes_a)
      if (const auto other = attributes_b.find(name); other != attributes_b.end()) add(What::attribute, name, value, other->second);
    const auto reads_a = a_.reads_of(op_a.id, known_), reads_b = b_.reads_of(op_b.id, known_);
    for (const auto& [input, read] : reads_b) {
      ++first.inputs;
      first.unknown_inputs += !known_.contains(read.value);
      const auto other = reads_a.find(input);
      if (other == reads_a.end()) continue;
      const std::string number = fmt::format("{}", input);
      if (other->second.value != read.value) add(What::input, number, text_of(a_, other->second.value), text_of(b_, read.value));
      if (other->second.type && read.type && a.dtype == b.dtype && !has_other_input_type(first))
        add(What::type_of_input, number, std::string(info(*other->second.type).name), std::string(info(*read.type).name));
    }
    for (const auto& [input, read] : reads_b) {
      const std::optional<uint32_t> in_a = changed_memory(a_, read.value, first.step),
                                    in_b = changed_memory(b_, read.value, first.step);
      if (in_a || in_b) add(What::memory, in_b ? b_.name(*in_b) : a_.name(*in_a), in_a ? "changed" : "", in_b ? "changed" : "");
    }
    if (op_b.phase == Phase::scaling || op_b.phase == Phase::backward || op_b.phase == Phase::loss)
      add(What::loss_scale, "", fmt::format("{}", a_.step().scale_before), fmt::format("{}", b_.step().scale_before));
    if (op_b.phase == Phase::optimizer && op_b.kind == OpKind::update)
      add(What::learning_rate, "", fmt::format("{}", a_.step().learning_rate), fmt::format("{}", b_.step().learning_rate));
  }
  static bool has_other_input_type(const FirstDifferentOutput& first) {
    return std::any_of(first.changes.begin(), first.changes.end(),
                       [](const FirstDifferentOutput::Change& change) { return change.what == What::type_of_input; });
  }
  // The tensor of a value whose memory was seen to have changed in the step.
  static std::optional<uint32_t> changed_memory(const Side& side, const OutputId& value, uint64_t step) {
    for (const EventRow& event : side.trace().events()) {
      if (event.kind != EventKind::memory_changed || event.step != step || event.tensor < 0) continue;
      const auto tensor = static_cast<uint32_t>(event.tensor);
      if (side.output(tensor) == value) return tensor;
    }
    return std::nullopt;
  }
  static std::string text_of(const Side& side, const OutputId& value) {
    const std::vector<OpInfo>& ops = side.trace().ops();
    const auto op = std::find_if(ops.begin(), ops.end(), [&](const OpInfo& each) { return each.id == value.op; });
    if (op == ops.end()) return "";
    return op->module.empty() ? op->name : fmt::format("{} {}", op->module, op->name);
  }

  using Norms = std::map<PlaceOfOutput, TensorNorms>;
  static Norms norms_of(const Side& side, uint64_t step) {
    Norms norms;
    std::map<PlaceOfOutput, uint32_t> seen;
    side.trace().visit_rows_without_histograms({step, step + 1}, [&](std::span<const TensorRow> rows) {
      for (const TensorRow& row : rows) {
        PlaceOfOutput place{side.output(row.tensor), row.micro_batch, row.loss_index, 0};
        place.nth = seen[place]++;
        if (const auto of = TensorNorms::of(row, side.tensor(row.tensor).dtype)) norms.emplace(place, *of);
      }
      return true;
    });
    return norms;
  }

  void add_distances(FirstDifferentOutput& first) const {
    const uint64_t step = first.step;
    const Norms in_a = norms_of(a_, step), in_b = norms_of(b_, step);
    const Norms before = step > 0 ? norms_of(b_, step - 1) : Norms();
    const auto distance_at = [&](const PlaceOfOutput& place) -> std::optional<FirstDifferentOutput::Distance> {
      const auto a = in_a.find(place), b = in_b.find(place);
      if (a == in_a.end() || b == in_b.end() || a->second.elements != b->second.elements) return std::nullopt;
      return FirstDifferentOutput::Distance{a->second.least_distance(b->second), {}, std::max(a->second.norm, b->second.norm)};
    };
    bool has_begun = false;
    for (const Recorded& row : b_.rows()) {
      has_begun = has_begun || row.tensor == *first.tensor_b;
      const Recorded* const other = a_.find(row.place);
      if (!has_begun || other == nullptr || other->hash == row.hash) continue;
      first.grown.push_back({row.tensor, distance_at(row.place)});
      if (first.grown.size() == 1) first.distance = first.grown.front().distance;
    }
    if (!first.distance || first.kind != DifferenceKind::computed) return;
    // What it read: of the latest row in this step, or the one before.
    const OpInfo& op = b_.op_of(*first.tensor_b);
    std::vector<std::optional<TensorNorms>> inputs;
    for (const auto& [input, read] : b_.reads_of(op.id, known_)) {
      if (inputs.size() <= input) inputs.resize(input + 1);
      for (const Norms* norms : {&before, &in_b})
        for (const auto& [place, of] : *norms)
          if (place.output == read.value && (norms == &before || place.micro_batch == first.micro_batch || place.micro_batch == 0))
            inputs[input] = of;
    }
    const TensorInfo& tensor = b_.tensor(*first.tensor_b);
    for (const auto& [place, of] : in_b)
      if (place.output == b_.output(*first.tensor_b) && place.micro_batch == first.micro_batch)
        first.distance->bound = rounding_bound(op, tensor.dtype, of, inputs);
  }

  Side a_, b_;
  const int rank_;
  const bool lacks_rows_;
  std::set<OutputId> known_;  // outputs that were equal, in the latest row
};

}  // namespace

ComparedBits compare_bits(const Snapshot& a, const Snapshot& b, const Selection& of_a, const Selection& of_b, StepRange steps) {
  ComparedBits result;
  for (const auto& [rank, other] : common_ranks(a, b)) {
    const Snapshot trace_a = a.of_rank(rank), trace_b = b.of_rank(other);
    if (trace_a.row_count("bits") == 0 || trace_b.row_count("bits") == 0) continue;
    result.are_recorded = true;
    BitComparison(trace_a, trace_b, of_a, of_b, other).run(steps, result);
  }
  return result;
}

}  // namespace ulpscope
