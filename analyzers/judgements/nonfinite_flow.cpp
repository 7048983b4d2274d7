#include "ulpscope/analyzers/judgements/nonfinite_flow.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "ulpscope/analyzers/subject/output_slots.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/totals/tensor_ranges.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {

namespace {

constexpr TablesRead kRowsOnly{.rows = true, .histograms = false};

// What a flow takes of a row: a TensorRow has over 2 KB.
struct Held {
  uint32_t tensor = 0;
  RowPosition position;
  uint64_t count = 0, nan = 0, infinities = 0, nonfinite = 0, zeros = 0, overflowed = 0;
  bool has_mask = false;
};

Held held_by(const TensorRow& row, DType dtype, int rank) {
  const TensorStatistics& statistics = row.statistics;
  return {row.tensor,       position_of(row, rank),        statistics.count,
          statistics.nan,   stored_infinities(row, dtype), stored_nonfinite(row, dtype),
          statistics.zeros, became_infinite(row, dtype),   holds_mask(row)};
}

// A row with NaN or infinities came from this beginning, and from this one of its rows.
struct FlowMark {
  uint32_t beginning = 0;
  uint32_t row = 0;
  auto operator<=>(const FlowMark&) const = default;
};

NonfiniteOrigin origin_of(const Held& row) { return {row.tensor, row.position, row.overflowed}; }

// Follows the rows of one rank.
class Flow {
 public:
  explicit Flow(const AnalysisContext& context) : context_(&context), outputs_(context.trace.tensors().size()) {}
  // Goes on with what the same trace has grown by, of the same tables.
  void follow(const AnalysisContext& grown) { context_ = &grown; }

  // Calls visit(row, from) of a row with NaN or infinities, which gives the row a mark. `from`: the least mark of what its op read
  // and was not finite; none: there was no such thing.
  using Visit = std::function<FlowMark(const Held& row, std::optional<FlowMark> from)>;
  // Calls absorb(row, from) of a row without any whose op read some.
  using Absorb = std::function<void(const Held& row, FlowMark from)>;

  void begin(const StepRow& step) {
    step_ = {step.step, step.graph};
    last_in_step_.reset();
    call_.reset();
  }
  // A row of the step that began last. `handed`: the mark that a collective op got from other ranks.
  // `is_mask`: the row's tensor holds masks, whose infinities are as good as finite where the op read none.
  void take(const Held& row, const Visit& visit, const Absorb& absorb = {}, std::optional<FlowMark> handed = {},
            bool is_mask = false) {
    const TensorInfo& tensor = context_->selection.tensor(row.tensor);
    // An op that works in place read what its outputs were before its call.
    if (!call_ || *call_ != row.position || call_op_ != tensor.op) {
      call_ = row.position;
      call_op_ = tensor.op;
      std::tie(call_read_, call_read_for_statistics_) = read_by(tensor.op);
    }
    const bool is_statistic = is_running_statistic(tensor, context_->trace.ops()[tensor.op]);
    std::optional<FlowMark>& read = is_statistic ? call_read_for_statistics_ : call_read_;
    State& state = outputs_[output_of(row.tensor)];
    state = {step_.number, std::nullopt};
    if (row.nonfinite == 0) {
      if (!is_statistic) note_harmless(tensor.op);
      if (absorb && read && !context_->trace.graph().edges().empty()) absorb(row, *read);
      return;
    }
    if (is_mask && row.has_mask && !read) return;
    if (!read) read = handed;
    state.mark = visit(row, read);
    if (!read) read = state.mark;  // the outputs of one call began together
    last_in_step_ = std::min(last_in_step_.value_or(*state.mark), *state.mark);
  }
  // The least mark of what the op reads now.
  std::optional<FlowMark> reads(uint32_t op) const { return read_by(op).first; }
  // Of what the call read that was taken last, or made where it read nothing of the kind.
  std::optional<FlowMark> mark_of_call() const { return call_read_; }

 private:
  struct State {
    uint64_t step = 0;
    std::optional<FlowMark> mark;  // none: it was finite
  };

  // The first tensor that is the same output of its op, whatever its type.
  uint32_t output_of(uint32_t tensor) const {
    const TensorInfo& made = context_->selection.tensor(tensor);
    return context_->graph.made_by(made.op, made.slot).front();
  }

  // Calls visit(edge, mark) of what the op read that was not finite.
  template <typename Visit_>
  void visit_marked(uint32_t op, Visit_&& visit) const {
    for (const GraphEdge& edge : context_->trace.graph().inputs(op, step_.graph)) {
      const auto made = context_->graph.made_by(edge.producer, edge.slot);
      if (made.empty()) continue;
      const State& state = outputs_[made.front()];
      if (!state.mark || (context_->trace.graph().is_within_step(edge) && state.step != step_.number)) continue;
      visit(edge, *state.mark);
    }
  }
  // What the op read and was not finite did its output no harm.
  void note_harmless(uint32_t op) {
    visit_marked(op, [&](const GraphEdge& edge, FlowMark) { harmless_.emplace(op, edge.input); });
  }

  // The least mark of what the op read, and of what its running statistics are made from: in training batch_norm reads their old
  // values for these alone. What the op once read without harm counts where all is of that kind.
  std::pair<std::optional<FlowMark>, std::optional<FlowMark>> read_by(uint32_t op) const {
    const OpGraph& graph = context_->trace.graph();
    if (graph.edges().empty()) return {last_in_step_, last_in_step_};
    const OpInfo& info = context_->trace.ops()[op];
    const bool is_training = attribute(info, "training").value_or(0) != 0;
    const auto is_old_statistic = [&](uint32_t input) {
      return is_training &&
             (reads_as(info.function, input, Meaning::running_mean) || reads_as(info.function, input, Meaning::running_variance));
    };
    using Rank = std::pair<bool, FlowMark>;  // harmless, mark
    std::optional<Rank> least, of_all;
    visit_marked(op, [&](const GraphEdge& edge, FlowMark mark) {
      const Rank rank{harmless_.contains({op, edge.input}), mark};
      of_all = std::min(of_all.value_or(rank), rank);
      if (!is_old_statistic(edge.input)) least = std::min(least.value_or(rank), rank);
    });
    if (!info.inputs_told && !of_all) return {last_in_step_, last_in_step_};  // it may have read any of what was there
    const auto mark_of = [](const std::optional<Rank>& rank) { return rank ? std::optional(rank->second) : std::nullopt; };
    return {mark_of(least), mark_of(of_all)};
  }

  const AnalysisContext* context_;
  struct {
    uint64_t number = 0;
    uint32_t graph = 0;
  } step_;
  std::vector<State> outputs_;                        // by output_of
  std::set<std::pair<uint32_t, uint32_t>> harmless_;  // ops, and which of their inputs
  std::optional<FlowMark> last_in_step_;              // the least mark of the step
  std::optional<RowPosition> call_;                   // whose rows come
  uint32_t call_op_ = 0;
  std::optional<FlowMark> call_read_, call_read_for_statistics_;
};

// Calls take(flow, row, step, handed), which has the flow take the row, for all rows of a run: of each rank in order of execution.
// `handed`: the mark that a collective op got from other ranks.
using Take = std::function<void(Flow& flow, const Held& row, const StepRow& step, std::optional<FlowMark> handed)>;

// A step of all ranks. Each goes on up to its next collective op, which all that have the call take together.
class StepOfRanks {
 public:
  explicit StepOfRanks(const AnalysisContext& context) : context_(context) {}

  // Of the step; `flow`: of the block's rank.
  void add(const Block& block, Flow& flow) {
    if (block.begins) ranks_.push_back({flow, block.step, {}, {}});
    for (const TensorRow& row : block.rows) ranks_.back().add(held_by(row, dtype_of(row), block.rank), *this);
  }

  void take(const Take& take) {
    for (Rank& rank : ranks_) rank.flow.begin(rank.step);
    while (true) {
      for (Rank& rank : ranks_)
        while (rank.has_more() && !is_collective(rank.head())) take(rank.flow, rank.rows[rank.next++], rank.step, {});
      const std::optional<Call> call = next_call();
      if (!call) return;
      const auto at_call = [&](const Rank& rank) { return rank.has_more() && call_of(rank.head()) == *call; };
      std::optional<FlowMark> handed;
      for (const Rank& rank : ranks_)
        if (at_call(rank)) keep_first(handed, rank.flow.reads(std::get<0>(*call)));
      for (Rank& rank : ranks_) {
        if (!at_call(rank)) continue;
        const RowPosition position = rank.head().position;
        while (rank.has_more() && rank.head().position == position) take(rank.flow, rank.rows[rank.next++], rank.step, handed);
        if (!handed) handed = rank.flow.mark_of_call();
      }
    }
  }

 private:
  using Call = std::tuple<uint32_t, uint32_t, uint8_t>;  // op, micro-batch, loss
  struct Rank {
    Flow& flow;
    StepRow step;
    std::vector<Held> rows;
    std::map<Call, size_t> last;  // the last row of each collective call
    size_t next = 0;

    bool has_more() const { return next < rows.size(); }
    const Held& head() const { return rows[next]; }
    void add(Held row, const StepOfRanks& of) {
      if (of.is_collective(row)) last[of.call_of(row)] = rows.size();
      rows.push_back(row);
    }
    bool has_later(const Call& call) const {
      const auto found = last.find(call);
      return found != last.end() && found->second >= next;
    }
  };

  DType dtype_of(const TensorRow& row) const { return context_.selection.tensor(row.tensor).dtype; }
  bool is_collective(const Held& row) const { return context_.selection.op(row.tensor).kind == OpKind::collective; }
  Call call_of(const Held& row) const {
    return {context_.selection.tensor(row.tensor).op, row.position.micro_batch, row.position.loss_index};
  }

  // Of the calls that ranks have come to, one that no rank has yet to come to. Where they wait for each other, for what was
  // recorded of them does not fit together, the first.
  std::optional<Call> next_call() const {
    const Rank* first = nullptr;
    for (const Rank& rank : ranks_) {
      if (!rank.has_more()) continue;
      const Call call = call_of(rank.head());
      if (std::all_of(ranks_.begin(), ranks_.end(),
                      [&](const Rank& other) { return !other.has_later(call) || call_of(other.head()) == call; }))
        return call;
      if (first == nullptr || rank.head().position < first->head().position) first = &rank;
    }
    return first == nullptr ? std::nullopt : std::optional(call_of(first->head()));
  }

  const AnalysisContext& context_;
  std::vector<Rank> ranks_;
};

bool exchanges_values(const AnalysisContext& context) {
  const std::vector<OpInfo>& ops = context.trace.ops();
  return context.trace.ranks().size() > 1 &&
         std::any_of(ops.begin(), ops.end(), [](const OpInfo& op) { return op.kind == OpKind::collective; });
}

// Where ranks exchange values: step by step.
void take_side_by_side(const AnalysisContext& context, std::map<int, Flow>& flows, const Take& take) {
  constexpr uint64_t kRowsAtOnce = uint64_t{1} << 17;
  const auto goes_on = [&](size_t) { return !context.options.cancelled(); };
  std::set<uint64_t> numbers;
  context.trace.visit_steps({}, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) numbers.insert(row.step);
    return true;
  });
  const std::vector<uint64_t> steps(numbers.begin(), numbers.end());
  const uint64_t rows = context.trace.tensor_row_count();
  const size_t at_once = std::clamp<uint64_t>(kRowsAtOnce * steps.size() / std::max<uint64_t>(rows, 1), 1, 1000);
  for (size_t begin = 0; begin < steps.size() && goes_on(0); begin += at_once) {
    const size_t end = begin + at_once;
    std::map<uint64_t, StepOfRanks> some;
    for (size_t part = 0; part < context.parts.size(); ++part) {
      const StepRange& of = context.parts[part].steps;
      const StepRange range{std::max(of.first, steps[begin]), std::min(of.last, end < steps.size() ? steps[end] : UINT64_MAX)};
      if (range.first >= range.last) continue;
      Flow& flow = flows.try_emplace(context.parts[part].run.rank, context).first->second;
      visit_blocks(
          context, {part, range}, kRowsOnly,
          [&](const Block& block) { some.try_emplace(block.step.step, context).first->second.add(block, flow); }, goes_on);
    }
    for (auto& [number, step] : some) step.take(take);
  }
}

// `next`: of each part, the step to go on from, which is moved on.
void take_rank_by_rank(const AnalysisContext& context, std::map<int, Flow>& flows, std::vector<uint64_t>& next, const Take& take) {
  for (size_t part = 0; part < context.parts.size(); ++part) {
    Flow& flow = flows.try_emplace(context.parts[part].run.rank, context).first->second;
    flow.follow(context);
    const StepRange steps{std::max(context.parts[part].steps.first, next[part]), context.parts[part].steps.last};
    if (steps.first >= steps.last) continue;
    visit_blocks(
        context, {part, steps}, kRowsOnly,
        [&](const Block& block) {
          if (block.begins) flow.begin(block.step);
          for (const TensorRow& row : block.rows)
            take(flow, held_by(row, context.selection.tensor(row.tensor).dtype, block.rank), block.step, {});
          if (block.ends) next[part] = block.step.step + 1;
        },
        [&](size_t) { return !context.options.cancelled(); });
  }
}

}  // namespace

bool is_gradient_of_parameters(Role role) {
  return role == Role::weight_gradient || role == Role::accumulated_gradient || role == Role::unscaled_gradient;
}

bool divides(OpFunction function) {
  return input_of(function, Meaning::divisor).has_value() && !reads_as(function, 0, Meaning::gradient);
}

namespace {

void add_row(const Held& row, bool skipped, NonfiniteBeginning& beginning) {
  if (beginning.rows == 0) {
    beginning.tensor = row.tensor;
    beginning.first = row.position;
    beginning.overflowed = row.overflowed;
  }
  ++beginning.rows;
  beginning.nan += row.nan;
  beginning.infinities += row.infinities;
  beginning.skipped += skipped;
  beginning.last_step = row.position.step;
}

// So many rows of one beginning are told apart, which bounds the memory of runs that go on with NaN; the last stands for those
// behind it.
constexpr size_t kMostRows = size_t{1} << 14;

}  // namespace

struct FollowedBeginnings::State {
  State(const AnalysisContext& context, const NonfiniteHarm& asked, const std::vector<bool>& masks)
      : harm(asked), is_mask(masks), next(context.parts.size()) {}

  // Whether all that was found holds on, and only grows.
  bool goes_on(const NonfiniteHarm& asked, const std::vector<bool>& masks) const { return asked == harm && masks == is_mask; }
  // Takes what is new, or all where ranks exchange values.
  void take(const AnalysisContext& context);

  const NonfiniteHarm harm;
  const std::vector<bool> is_mask;
  std::vector<uint64_t> next;  // of each part, the step to go on from
  std::map<int, Flow> flows;   // by rank
  std::vector<NonfiniteBeginning> found;
  std::vector<std::vector<NonfiniteOrigin>> rows;          // of each, those from which what holds NaN now, or did harm, may come
  std::map<std::pair<int, uint32_t>, uint32_t> of_tensor;  // by rank
};

void FollowedBeginnings::State::take(const AnalysisContext& context) {
  const Take take = [&](Flow& flow, const Held& held, const StepRow& step, std::optional<FlowMark> handed) {
    flow.take(
        held,
        [&](const Held& row, std::optional<FlowMark> from) {
          const TensorInfo& tensor = context.selection.tensor(row.tensor);
          const RowPosition& at = row.position;
          if (!from) {
            const auto [entry, is_new] = of_tensor.try_emplace({at.rank, row.tensor}, found.size());
            if (is_new) {
              found.emplace_back();
              rows.emplace_back();
            }
            std::vector<NonfiniteOrigin>& began = rows[entry->second];
            if (began.size() < kMostRows)
              began.push_back(origin_of(row));
            else
              began.back() = origin_of(row);
            from = FlowMark{entry->second, static_cast<uint32_t>(began.size() - 1)};
            if (context.options.asks_for(at.step)) add_row(row, step.skipped, found[from->beginning]);
          }
          NonfiniteBeginning& beginning = found[from->beginning];
          const NonfiniteOrigin& origin = rows[from->beginning][from->row];
          if (beginning.rows == 0) return *from;  // not in the steps that are asked for
          if (tensor.role == Role::loss && !beginning.loss) {
            beginning.loss = at.step;
            beginning.of_loss = origin;
          }
          const bool is_kept = ulpscope::is_kept(tensor, context.selection.op(row.tensor));
          if (is_kept && !beginning.weights) beginning.weights = at.step;
          const bool is_statistic = is_running_statistic(tensor, context.selection.op(row.tensor));
          if (!beginning.statistic && is_statistic) beginning.statistic = origin_of(row);
          const bool does_harm = (harm.loss && tensor.role == Role::loss) || (harm.weights && is_kept) ||
                                 (harm.gradients && is_gradient_of_parameters(tensor.role));
          // A skipped step leaves what a running statistic took.
          const bool lasts = !step.skipped || is_statistic || at.step >= harm.from;
          if (does_harm && !beginning.harmed && lasts) beginning.harmed = origin;
          return *from;
        },
        [&](const Held& row, FlowMark from) {
          if (row.zeros == 0 || !divides(context.selection.op(row.tensor).function)) return;
          NonfiniteBeginning& beginning = found[from.beginning];
          const NonfiniteOrigin& origin = rows[from.beginning][from.row];
          if (beginning.rows == 0) return;
          // An exponential beyond FP32's range divides what it divides to 0 in any format, as in a sigmoid.
          const TensorInfo& began = context.selection.tensor(origin.tensor);
          const bool is_exponential = context.selection.op(origin.tensor).function == OpFunction::exp;
          if (is_exponential && (!is_narrow(began.dtype) || has_range_of_fp32(began.dtype))) return;
          if (beginning.zeros.steps == 0) {
            beginning.zeros.tensor = row.tensor;
            beginning.zeros.origin = origin;
          }
          if (beginning.zeros.steps == 0 || beginning.zeros.last_step != row.position.step) ++beginning.zeros.steps;
          beginning.zeros.last_step = row.position.step;
        },
        handed, !is_mask.empty() && is_mask[held.tensor]);
  };
  if (exchanges_values(context))
    take_side_by_side(context, flows, take);
  else
    take_rank_by_rank(context, flows, next, take);
}

FollowedBeginnings::FollowedBeginnings() = default;
FollowedBeginnings::FollowedBeginnings(FollowedBeginnings&&) noexcept = default;
FollowedBeginnings& FollowedBeginnings::operator=(FollowedBeginnings&&) noexcept = default;
FollowedBeginnings::~FollowedBeginnings() = default;

std::vector<NonfiniteBeginning> FollowedBeginnings::find(const AnalysisContext& context, const NonfiniteHarm& harm,
                                                         const std::vector<bool>& is_mask) {
  // An exception on the way leaves nothing behind that has half a step.
  std::unique_ptr<State> state = std::move(state_);
  if (!state || !state->goes_on(harm, is_mask)) state = std::make_unique<State>(context, harm, is_mask);
  state->take(context);
  std::vector<NonfiniteBeginning> found = state->found;
  std::erase_if(found, [&](const NonfiniteBeginning& beginning) {
    return beginning.rows == 0 || !context.selection.contains(beginning.tensor);
  });
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  if (!context.options.cancelled() && !exchanges_values(context)) state_ = std::move(state);
  return found;
}

std::vector<NonfiniteBeginning> find_beginnings(const AnalysisContext& context, const NonfiniteHarm& harm,
                                                const std::vector<bool>& is_mask) {
  return FollowedBeginnings().find(context, harm, is_mask);
}

NonfiniteWays ways_from(const AnalysisContext& context, uint32_t tensor, const RowPosition& position) {
  struct Node {
    NonfiniteStop stop;
    std::optional<FlowMark> from;
  };
  std::vector<Node> nodes;
  constexpr FlowMark kElsewhere{UINT32_MAX};  // began in another tensor
  std::optional<uint32_t> loss, weights;
  Flow flow(context);
  uint64_t last = position.step;
  context.trace.of_rank(position.rank).visit_steps({position.step + 1, UINT64_MAX}, [&](std::span<const StepRow> rows) {
    last = rows.front().step;
    return false;
  });
  for (size_t part = 0; part < context.parts.size(); ++part) {
    const TracePart& of = context.parts[part];
    if (of.run.rank != position.rank) continue;
    visit_blocks(
        context, {part, {std::max(of.steps.first, position.step), std::min(of.steps.last, last + 1)}}, kRowsOnly,
        [&](const Block& block) {
          if (block.begins) flow.begin(block.step);
          for (const TensorRow& stored : block.rows)
            flow.take(held_by(stored, context.selection.tensor(stored.tensor).dtype, position.rank),
                      [&](const Held& row, std::optional<FlowMark> from) {
                        const bool begins = nodes.empty() && row.tensor == tensor && row.position == position;
                        if (!begins && (!from || *from == kElsewhere)) return kElsewhere;
                        const TensorInfo& made = context.selection.tensor(row.tensor);
                        const auto index = static_cast<uint32_t>(nodes.size());
                        nodes.push_back({{row.tensor, row.position, row.nonfinite, row.count}, begins ? std::nullopt : from});
                        if (made.role == Role::loss && !loss) loss = index;
                        if (is_kept(made, context.selection.op(row.tensor)) && !weights) weights = index;
                        return FlowMark{index};
                      });
        },
        [&](size_t) { return !context.options.cancelled(); });
  }
  const auto way = [&](std::optional<uint32_t> to) {
    std::vector<NonfiniteStop> stops;
    for (; to; to = nodes[*to].from ? std::optional(nodes[*to].from->beginning) : std::nullopt) stops.push_back(nodes[*to].stop);
    std::reverse(stops.begin(), stops.end());
    return stops;
  };
  return {way(loss), way(weights)};
}

}  // namespace ulpscope
