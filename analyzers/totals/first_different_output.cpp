#include "ulpscope/analyzers/totals/first_different_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <tuple>
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

// A row of statistics.
struct NormsOfRow {
  PlaceOfOutput place;
  uint32_t sequence;
  double scales;  // that the values contain
  bool before_rounding;
  std::optional<TensorNorms> norms;  // nothing: not known
};

// A value that an op reads as an input.
struct Read {
  OutputId value, origin;     // and what it is behind casts
  std::vector<DType> casts;   // the types of these, the first cast first
  std::optional<DType> type;  // as it is read
  bool is_one = true;         // false: several values, of which one is kept
};

// A run, with what is asked of its ops.
class Side {
 public:
  Side(const Snapshot& trace, const Selection& selection) : trace_(trace), selection_(selection), made_(trace) {
    for (uint32_t op = 0; op < trace.ops().size(); ++op) by_id_.try_emplace(trace.ops()[op].id, op);
    trace.visit_steps({}, [&](std::span<const StepRow> rows) {
      for (const StepRow& row : rows) steps_.emplace(row.step, row);
      return true;
    });
  }

  const Snapshot& trace() const { return trace_; }
  const std::map<uint64_t, StepRow>& steps() const { return steps_; }
  const TensorInfo& tensor(uint32_t index) const { return selection_.tensor(index); }
  const OpInfo& op_of(uint32_t tensor) const { return selection_.op(tensor); }
  bool is_cast(uint32_t tensor) const { return op_of(tensor).kind == OpKind::cast; }
  OutputId output(uint32_t tensor) const { return selection_.output(tensor); }
  const std::string& name(uint32_t tensor) const { return selection_.parameter_name(tensor); }
  // Whether it stays from step to step: a weight, a state, or what a run was given once.
  bool is_kept(uint32_t index) const {
    const Role role = tensor(index).role;
    return role == Role::weight || role == Role::master_weight || role == Role::optimizer_state || role == Role::buffer ||
           op_of(index).function == OpFunction::source;
  }
  // A weight or a state as a run began with it.
  bool is_kept_source(uint32_t tensor) const {
    return op_of(tensor).function == OpFunction::source && this->tensor(tensor).role != Role::input;
  }

  // Only the step's training counts.
  void begin_step(uint64_t step) {
    step_ = &steps_.at(step);
    rows_.clear();
    places_.clear();
    std::map<PlaceOfOutput, uint32_t> seen;
    trace_.visit_bits({step, step + 1}, [&](std::span<const BitsRow> some) {
      for (const BitsRow& each : some) {
        if (op_of(each.tensor).phase == Phase::evaluation) continue;
        PlaceOfOutput place{output(each.tensor), each.micro_batch, each.loss_index, 0};
        place.nth = seen[place]++;
        places_.emplace(place, rows_.size());
        rows_.push_back({place, each.tensor, each.hash});
      }
      return true;
    });
  }
  const StepRow& step() const { return *step_; }
  const std::vector<Recorded>& rows() const { return rows_; }
  const Recorded* find(const PlaceOfOutput& place) const {
    const auto found = places_.find(place);
    return found == places_.end() ? nullptr : &rows_[found->second];
  }

  // The values that an op reads in the step's graph, by input.
  std::map<uint32_t, Read> reads_of(uint64_t op_id) const {
    std::map<uint32_t, Read> reads;
    const auto found = by_id_.find(op_id);
    if (found == by_id_.end()) return reads;
    for (const GraphEdge& edge : trace_.graph().inputs(found->second, step_->graph)) {
      const auto [place, is_new] = reads.try_emplace(edge.input);
      Read& read = place->second;
      if (!is_new) {
        read.is_one = false;
        continue;
      }
      read.value = read.origin = {trace_.ops()[edge.producer].id, edge.slot};
      if (const auto made = made_.made_by(edge.producer, edge.slot); !made.empty()) read.type = tensor(made.back()).dtype;
      follow_casts(edge.producer, read);
    }
    return reads;
  }

  // In order of execution.
  std::vector<NormsOfRow> norms_of(uint64_t step) const {
    std::vector<NormsOfRow> rows;
    std::map<PlaceOfOutput, uint32_t> seen;
    trace_.visit_rows_without_histograms({step, step + 1}, [&](std::span<const TensorRow> some) {
      for (const TensorRow& row : some) {
        if (op_of(row.tensor).phase == Phase::evaluation) continue;
        PlaceOfOutput place{output(row.tensor), row.micro_batch, row.loss_index, 0};
        place.nth = seen[place]++;
        rows.push_back({place, row.sequence, row.scale * row.quantization_scale, row.before_rounding,
                        TensorNorms::of(row, tensor(row.tensor).dtype)});
      }
      return true;
    });
    return rows;
  }

  // The rate of the parameter which the op updates in this step, or where it is not known, the step's.
  double learning_rate_of(uint64_t op_id) const {
    double rate = step_->learning_rate;
    trace_.visit_parameters({step_->step, step_->step + 1}, [&](std::span<const ParameterRow> rows) {
      for (const ParameterRow& row : rows)
        if (output(row.tensor).op == op_id && !std::isnan(row.learning_rate)) rate = row.learning_rate;
      return true;
    });
    return rate;
  }

  std::string name_of(const OutputId& value) const {
    const auto found = by_id_.find(value.op);
    if (found == by_id_.end()) return "";
    if (const auto made = made_.made_by(found->second, value.slot); !made.empty()) return selection_.name(made.back());
    return trace_.ops()[found->second].name;
  }
  // Whether the value's memory was seen to have changed in the step.
  bool has_changed(const OutputId& value) const {
    const std::vector<EventRow>& events = trace_.events();
    return std::any_of(events.begin(), events.end(), [&](const EventRow& event) {
      return event.kind == EventKind::memory_changed && event.step == step_->step && event.tensor >= 0 &&
             output(static_cast<uint32_t>(event.tensor)) == value;
    });
  }

 private:
  void follow_casts(uint32_t producer, Read& read) const {
    // No chain of casts is longer than the graph has ops, whatever a trace says.
    for (size_t left = trace_.ops().size(); left > 0 && trace_.ops()[producer].kind == OpKind::cast; --left) {
      const auto made = made_.made_by(producer, read.origin.slot);
      if (!made.empty()) read.casts.insert(read.casts.begin(), tensor(made.back()).dtype);
      const auto inputs = trace_.graph().inputs(producer, step_->graph);
      if (inputs.empty()) return;
      producer = inputs.front().producer;
      read.origin = {trace_.ops()[producer].id, inputs.front().slot};
    }
  }

  const Snapshot trace_;
  const Selection& selection_;
  const TensorGraph made_;
  std::unordered_map<uint64_t, uint32_t> by_id_;
  std::map<uint64_t, StepRow> steps_;
  const StepRow* step_ = nullptr;
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
std::string dtype_name(DType type) { return std::string(info(type).name); }
std::string casts_text(const std::vector<DType>& casts) {
  std::string text;
  for (const DType type : casts) text += (text.empty() ? "" : ", ") + dtype_name(type);
  return text;
}

std::string rounding_text(const TensorInfo& tensor) {
  std::string text(name_of(tensor.rounding));
  if (tensor.flushes_results) text += ", subnormal results are zero";
  if (tensor.flushes_inputs) text += ", subnormal inputs are zero";
  return text;
}

// One rank of each run.
class BitComparison {
 public:
  BitComparison(const Snapshot& a, const Snapshot& b, const Selection& of_a, const Selection& of_b, std::pair<int, int> ranks,
                bool lacks_ranks)
      : a_(a, of_a), b_(b, of_b), ranks_(ranks), lacks_rows_(may_lack_rows(a, b)), lacks_ranks_(lacks_ranks) {}
  BitComparison(const BitComparison&) = delete;

  // Up to the step `last`.
  void run(uint64_t last, const AnalysisOptions& options) {
    for (const auto& [step, row] : b_.steps()) {
      if (step > last || options.cancelled()) return;
      if (!a_.steps().contains(step)) continue;
      a_.begin_step(step);
      b_.begin_step(step);
      if (a_.rows().empty() || b_.rows().empty()) continue;
      begin_step(step);
      if (found_ = compare_step(equal_[step]); found_) return;
    }
  }
  const std::optional<FirstDifferentOutput>& found() const { return found_; }
  const std::map<uint64_t, uint64_t>& equal() const { return equal_; }  // outputs, by step

 private:
  // A value that was equal before a gap need not be the one that is read behind it.
  void begin_step(uint64_t step) {
    const bool is_first = !previous_;
    const bool is_gap = is_first ? step != b_.steps().begin()->first || step != a_.steps().begin()->first : step != *previous_ + 1;
    if (is_gap) {
      has_gap_ = true;
      known_.clear();
    }
    std::erase_if(known_, [](const auto& value) { return !value.second; });
    is_first_step_ = is_first && !is_gap;
    before_ = is_gap ? std::nullopt : previous_;
    previous_ = step;
  }

  bool is_told_of_one(const Side& side, uint32_t tensor) const {
    return !lacks_rows_ && !side.is_cast(tensor) && !side.is_kept_source(tensor) && side.op_of(tensor).phase != Phase::recompute;
  }

  std::optional<FirstDifferentOutput> compare_step(uint64_t& equal) {
    size_t next_of_a = 0;  // of its rows, the first that is not looked at
    for (size_t i = 0; i < b_.rows().size(); ++i) {
      const Recorded& row = b_.rows()[i];
      const Recorded* const other = a_.find(row.place);
      if (other == nullptr) {
        if (is_told_of_one(b_, row.tensor)) return only_in(DifferenceKind::only_in_b, row, i, next_of_a);
        known_.erase(row.place.output);
        continue;
      }
      const auto place = static_cast<size_t>(other - a_.rows().data());
      for (; next_of_a < place; ++next_of_a)
        if (const Recorded& passed = a_.rows()[next_of_a]; is_only_in_a(passed))
          return only_in(DifferenceKind::only_in_a, passed, i, i);
        else if (b_.find(passed.place) == nullptr)
          known_.erase(passed.place.output);
      next_of_a = std::max(next_of_a, place + 1);
      if (other->hash != row.hash) return differs(*other, row, i);
      known_[row.place.output] = b_.is_kept(row.tensor);
      ++equal;
    }
    for (; next_of_a < a_.rows().size(); ++next_of_a)
      if (const Recorded& passed = a_.rows()[next_of_a]; is_only_in_a(passed))
        return only_in(DifferenceKind::only_in_a, passed, b_.rows().size(), b_.rows().size());
    return std::nullopt;
  }
  bool is_only_in_a(const Recorded& row) const { return is_told_of_one(a_, row.tensor) && b_.find(row.place) == nullptr; }

  FirstDifferentOutput at(DifferenceKind kind, const Recorded& row, size_t place) const {
    FirstDifferentOutput first;
    first.kind = kind;
    first.step = b_.step().step;
    std::tie(first.rank_a, first.rank_b) = ranks_;
    first.micro_batch = row.place.micro_batch;
    first.loss_index = row.place.loss_index;
    first.place = place;
    first.is_behind_gap = has_gap_;
    return first;
  }

  // `from`: of the other run's rows, the first that is not looked at.
  FirstDifferentOutput only_in(DifferenceKind kind, const Recorded& row, size_t place, size_t from) const {
    FirstDifferentOutput first = at(kind, row, place);
    const bool is_in_b = kind == DifferenceKind::only_in_b;
    const Side &side = is_in_b ? b_ : a_, &other = is_in_b ? a_ : b_;
    (is_in_b ? first.tensor_b : first.tensor_a) = row.tensor;
    const OpInfo& op = side.op_of(row.tensor);
    for (size_t i = from; i < other.rows().size(); ++i) {
      const Recorded& each = other.rows()[i];
      const OpInfo& instead = other.op_of(each.tensor);
      if (side.find(each.place) != nullptr || !is_told_of_one(other, each.tensor)) continue;
      if (instead.module != op.module || instead.phase != op.phase || each.place.micro_batch != row.place.micro_batch) continue;
      (is_in_b ? first.tensor_a : first.tensor_b) = each.tensor;
      break;
    }
    return first;
  }

  FirstDifferentOutput differs(const Recorded& a, const Recorded& b, size_t place) const {
    const OpInfo& op = b_.op_of(b.tensor);
    const bool is_given = op.function == OpFunction::source && (is_first_step_ || !b_.is_kept_source(b.tensor));
    FirstDifferentOutput first = at(op.function != OpFunction::source ? DifferenceKind::computed
                                    : is_given                        ? DifferenceKind::given
                                                                      : DifferenceKind::changed,
                                    b, place);
    first.tensor_a = a.tensor;
    first.tensor_b = b.tensor;
    // A collective reads what other ranks have.
    first.inputs_are_told = op.inputs_told && a_.op_of(a.tensor).inputs_told && !(lacks_ranks_ && op.kind == OpKind::collective);
    if (first.kind == DifferenceKind::computed)
      add_changes(a.tensor, b.tensor, first);
    else
      add_changes_of_tensor(a_.tensor(a.tensor), b_.tensor(b.tensor), first);
    add_distances(first);
    return first;
  }

  static void add_changes_of_tensor(const TensorInfo& a, const TensorInfo& b, FirstDifferentOutput& first) {
    if (a.dtype != b.dtype) first.changes.push_back({What::type, "", dtype_name(a.dtype), dtype_name(b.dtype)});
    if (a.shape != b.shape) first.changes.push_back({What::shape, "", shape_text(a.shape), shape_text(b.shape)});
  }

  void add_changes(uint32_t of_a, uint32_t of_b, FirstDifferentOutput& first) const {
    const OpInfo &op_a = a_.op_of(of_a), &op_b = b_.op_of(of_b);
    const TensorInfo &a = a_.tensor(of_a), &b = b_.tensor(of_b);
    const auto add = [&](What what, std::string name, std::string in_a, std::string in_b) {
      if (in_a != in_b) first.changes.push_back({what, std::move(name), std::move(in_a), std::move(in_b)});
    };
    add(What::function, "", std::string(name_of(op_a.function)), std::string(name_of(op_b.function)));
    add(What::role, "", name_of(a.role), name_of(b.role));
    add_changes_of_tensor(a, b, first);
    add(What::rounding, "", rounding_text(a), rounding_text(b));
    auto attributes_a = attributes_of(op_a.attributes);
    const auto attributes_b = attributes_of(op_b.attributes);
    for (const auto& [name, value] : attributes_b) attributes_a.try_emplace(name, "");
    for (const auto& [name, value] : attributes_a) {
      const auto other = attributes_b.find(name);
      const std::string in_b = other == attributes_b.end() ? "" : other->second;
      if (value != "varies" && in_b != "varies") add(What::attribute, name, value, in_b);
    }
    add_reads(op_a, op_b, a.dtype != b.dtype, first);
    if (op_b.phase == Phase::scaling || op_b.phase == Phase::backward || op_b.phase == Phase::loss)
      add(What::loss_scale, "", fmt::format("{}", a_.step().scale_before), fmt::format("{}", b_.step().scale_before));
    if (op_b.phase == Phase::optimizer && op_b.kind == OpKind::update)
      add(What::learning_rate, "", fmt::format("{}", a_.learning_rate_of(op_a.id)),
          fmt::format("{}", b_.learning_rate_of(op_b.id)));
  }

  // A type that the op has, others than the output's inputs follow.
  void add_reads(const OpInfo& op_a, const OpInfo& op_b, bool has_other_type, FirstDifferentOutput& first) const {
    const auto reads_a = a_.reads_of(op_a.id), reads_b = b_.reads_of(op_b.id);
    const auto add = [&](What what, std::string name, std::string in_a, std::string in_b) {
      first.changes.push_back({what, std::move(name), std::move(in_a), std::move(in_b)});
    };
    if (reads_a.size() != reads_b.size())
      add(What::inputs, "", fmt::format("{}", reads_a.size()), fmt::format("{}", reads_b.size()));
    bool told_type = has_other_type;
    for (const auto& [input, b] : reads_b) {
      ++first.inputs;
      const auto found = reads_a.find(input);
      if (found == reads_a.end()) continue;
      const Read& a = found->second;
      const bool changed_in_a = a_.has_changed(a.value), changed_in_b = b_.has_changed(b.value);
      if (changed_in_a || changed_in_b)
        add(What::memory, b_.name_of(b.value), changed_in_a ? "changed" : "", changed_in_b ? "changed" : "");
      if (a.value == b.value) {
        const bool is_equal = a.is_one && b.is_one && known_.contains(b.value) && !changed_in_a && !changed_in_b;
        first.equal_inputs += is_equal;
      } else if (a.origin != b.origin) {
        add(What::input, "", a_.name_of(a.value), b_.name_of(b.value));
      } else if (a.type != b.type && a.type && b.type) {
        if (!std::exchange(told_type, true)) add(What::type_of_input, "", dtype_name(*a.type), dtype_name(*b.type));
      } else if (a.casts != b.casts) {
        add(What::casts, "", casts_text(a.casts), casts_text(b.casts));
      }
    }
  }

  static std::optional<FirstDifferentOutput::Distance> distance_of(const NormsOfRow* a, const NormsOfRow* b) {
    if (a == nullptr || b == nullptr || !a->norms || !b->norms || a->norms->elements != b->norms->elements) return std::nullopt;
    if (a->scales != b->scales || a->before_rounding != b->before_rounding) return std::nullopt;
    return FirstDifferentOutput::Distance{a->norms->least_distance(*b->norms), {}, std::max(a->norms->norm, b->norms->norm)};
  }

  void add_distances(FirstDifferentOutput& first) const {
    const std::vector<NormsOfRow> in_a = a_.norms_of(first.step), in_b = b_.norms_of(first.step);
    const auto by_place = [](const std::vector<NormsOfRow>& rows) {
      std::map<PlaceOfOutput, const NormsOfRow*> places;
      for (const NormsOfRow& row : rows) places.emplace(row.place, &row);
      return places;
    };
    const auto places_a = by_place(in_a), places_b = by_place(in_b);
    const auto at = [](const auto& places, const PlaceOfOutput& place) {
      const auto found = places.find(place);
      return found == places.end() ? nullptr : found->second;
    };
    for (size_t i = first.place; i < b_.rows().size(); ++i) {
      const Recorded& row = b_.rows()[i];
      const Recorded* const other = a_.find(row.place);
      if (other == nullptr || other->hash == row.hash) continue;
      first.grown.push_back({row.tensor, distance_of(at(places_a, row.place), at(places_b, row.place))});
    }
    first.distance = first.grown.front().distance;
    if (!first.distance || first.kind != DifferenceKind::computed || !first.changes.empty() || !first.has_equal_inputs()) return;
    // It read the latest rows before it, in this step or the one before.
    const NormsOfRow& result = *at(places_b, b_.rows()[first.place].place);
    const std::vector<NormsOfRow> earlier = before_ ? b_.norms_of(*before_) : std::vector<NormsOfRow>();
    const OpInfo& op = b_.op_of(*first.tensor_b);
    std::vector<std::optional<TensorNorms>> inputs;
    for (const auto& [input, read] : b_.reads_of(op.id)) {
      if (inputs.size() <= input) inputs.resize(input + 1);
      for (const std::vector<NormsOfRow>* const rows : {&earlier, &in_b})
        for (const NormsOfRow& row : *rows)
          if (row.place.output == read.value && (rows == &earlier || row.sequence < result.sequence)) inputs[input] = row.norms;
    }
    first.distance->bound = rounding_bound(op, b_.tensor(*first.tensor_b), *result.norms, inputs);
  }

  Side a_, b_;
  const std::pair<int, int> ranks_;
  const bool lacks_rows_, lacks_ranks_;
  std::map<OutputId, bool> known_;             // outputs that were equal in the latest row, and whether later steps read that
  std::optional<uint64_t> previous_, before_;  // steps that were compared: the one now, and the one right before it
  bool has_gap_ = false, is_first_step_ = false;
  std::map<uint64_t, uint64_t> equal_;
  std::optional<FirstDifferentOutput> found_;
};

}  // namespace

ComparedBits compare_bits(const Snapshot& a, const Snapshot& b, const Selection& of_a, const Selection& of_b,
                          const AnalysisOptions& options) {
  ComparedBits result;
  std::vector<std::map<uint64_t, uint64_t>> equal;  // outputs of each rank, by step
  uint64_t last = UINT64_MAX;
  size_t found = 0;
  const auto order = [](const FirstDifferentOutput& first) { return std::pair(first.step, first.place); };
  for (const auto& [rank, other] : common_ranks(a, b)) {
    const Snapshot trace_a = a.of_rank(rank), trace_b = b.of_rank(other);
    if (trace_a.row_count("bits") == 0 || trace_b.row_count("bits") == 0) continue;
    result.are_recorded = true;
    BitComparison comparison(trace_a, trace_b, of_a, of_b, {rank, other}, a.lacks_ranks() || b.lacks_ranks());
    comparison.run(last, options);
    if (options.cancelled()) return {};
    equal.push_back(comparison.equal());
    if (!comparison.found()) continue;
    // A difference on one rank reaches the others through collectives, which come behind it where ranks run the same ops.
    if (result.first && order(*result.first) <= order(*comparison.found())) continue;
    result.first = comparison.found();
    last = result.first->step;
    found = equal.size() - 1;
  }
  for (size_t i = 0; i < equal.size(); ++i)
    for (const auto& [step, outputs] : equal[i])
      if (!result.first || step < result.first->step || (step == result.first->step && i == found)) result.outputs += outputs;
  return result;
}

}  // namespace ulpscope
