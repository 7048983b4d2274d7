#include "ulpscope/analyzers/nonfinite_flow.h"

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

#include "ulpscope/analyzers/output_slots.h"
#include "ulpscope/analyzers/precision_facts.h"
#include "ulpscope/analyzers/tensor_ranges.h"

namespace ulpscope {

namespace {

constexpr TablesRead kRowsOnly{.rows = true, .histograms = false};

NonfiniteOrigin origin_of(const TensorRow& row, DType dtype, int rank) {
  return {row.tensor, position_of(row, rank), became_infinite(row, dtype)};
}

// Follows the rows of one rank.
class Flow {
 public:
  explicit Flow(const AnalysisContext& context) : context_(context), outputs_(context.trace.tensors().size()) {}

  // Calls visit(row, from) of each row with NaN or infinities, which gives the row a mark. `from`: the least mark of what its op
  // read and was not finite; none: there was no such thing.
  using Visit = std::function<uint32_t(const TensorRow& row, std::optional<uint32_t> from)>;
  // Calls absorb(row, from) of each row without any whose op read some.
  using Absorb = std::function<void(const TensorRow& row, uint32_t from)>;
  void take(const Block& block, const Visit& visit, const Absorb& absorb = {}) {
    if (block.begins) {
      last_in_step_.reset();
      call_.reset();
    }
    for (const TensorRow& row : block.rows) {
      const TensorInfo& tensor = context_.selection.tensor(row.tensor);
      const RowPosition position = position_of(row, block.rank);
      // An op that works in place read what its outputs were before its call.
      if (!call_ || *call_ != position || call_op_ != tensor.op) {
        call_ = position;
        call_op_ = tensor.op;
        std::tie(call_read_, call_read_for_statistics_) = read_by(tensor.op, block.step);
      }
      const bool is_statistic = is_running_statistic(tensor, context_.trace.ops()[tensor.op]);
      std::optional<uint32_t>& read = is_statistic ? call_read_for_statistics_ : call_read_;
      State& state = outputs_[output_of(row.tensor)];
      state = {row.step, std::nullopt};
      if (stored_nonfinite(row, tensor.dtype) == 0) {
        if (absorb && read && !context_.trace.graph().edges().empty()) absorb(row, *read);
        continue;
      }
      state.mark = visit(row, read);
      if (!read) read = state.mark;  // the outputs of one call began together
      last_in_step_ = std::min(last_in_step_.value_or(UINT32_MAX), *state.mark);
    }
  }

 private:
  struct State {
    uint64_t step = 0;
    std::optional<uint32_t> mark;  // none: it was finite
  };

  // The first tensor that is the same output of its op, whatever its type.
  uint32_t output_of(uint32_t tensor) const {
    const TensorInfo& made = context_.selection.tensor(tensor);
    return context_.graph.made_by(made.op, made.slot).front();
  }

  // The least mark of what the op read, and of what its running statistics are made from: in training batch_norm reads their old
  // values for these alone.
  std::pair<std::optional<uint32_t>, std::optional<uint32_t>> read_by(uint32_t op, const StepRow& step) const {
    const OpGraph& graph = context_.trace.graph();
    if (graph.edges().empty()) return {last_in_step_, last_in_step_};
    const OpInfo& info = context_.trace.ops()[op];
    const bool is_training = info.function == OpFunction::batch_norm && attribute(info, "training").value_or(0) != 0;
    std::optional<uint32_t> least, of_all;
    for (const GraphEdge& edge : graph.inputs(op, step.graph)) {
      const auto made = context_.graph.made_by(edge.producer, edge.slot);
      if (made.empty()) continue;
      const State& state = outputs_[made.front()];
      // The table has the ops in the order in which they first ran: what comes from an earlier one is of the same step.
      if (!state.mark || (edge.producer < op && state.step != step.step)) continue;
      of_all = std::min(of_all.value_or(UINT32_MAX), *state.mark);
      if (!is_training || edge.input < kRunningStatisticsSlot) least = std::min(least.value_or(UINT32_MAX), *state.mark);
    }
    return {least, of_all};
  }

  const AnalysisContext& context_;
  std::vector<State> outputs_;            // by output_of
  std::optional<uint32_t> last_in_step_;  // the least mark of the step
  std::optional<RowPosition> call_;       // whose rows come
  uint32_t call_op_ = 0;
  std::optional<uint32_t> call_read_, call_read_for_statistics_;
};

}  // namespace

bool is_gradient_of_parameters(Role role) {
  return role == Role::weight_gradient || role == Role::accumulated_gradient || role == Role::unscaled_gradient;
}

bool divides(OpFunction function) {
  return function == OpFunction::div || function == OpFunction::reciprocal || function == OpFunction::rsqrt;
}

std::vector<NonfiniteBeginning> find_beginnings(const AnalysisContext& context, const NonfiniteHarm& harm) {
  std::vector<NonfiniteBeginning> found;
  std::vector<NonfiniteOrigin> latest;                     // of each
  std::map<std::pair<int, uint32_t>, uint32_t> of_tensor;  // by rank
  std::map<int, Flow> ranks;
  for (size_t part = 0; part < context.parts.size(); ++part) {
    const int rank = context.parts[part].run.rank;
    Flow& flow = ranks.try_emplace(rank, context).first->second;
    visit_blocks(
        context, {part, context.parts[part].steps}, kRowsOnly,
        [&](const Block& block) {
          flow.take(
              block,
              [&](const TensorRow& row, std::optional<uint32_t> from) {
                const TensorInfo& tensor = context.selection.tensor(row.tensor);
                if (!from) {
                  const auto [entry, is_new] = of_tensor.try_emplace({rank, row.tensor}, found.size());
                  from = entry->second;
                  const NonfiniteOrigin origin = origin_of(row, tensor.dtype, rank);
                  if (is_new) {
                    found.emplace_back();
                    found.back().tensor = row.tensor;
                    found.back().first = origin.position;
                    found.back().overflowed = origin.overflowed;
                    latest.emplace_back();
                  }
                  latest[*from] = origin;
                  NonfiniteBeginning& beginning = found[*from];
                  ++beginning.rows;
                  beginning.nan += row.statistics.nan;
                  beginning.infinities += stored_infinities(row, tensor.dtype);
                  beginning.skipped += block.step.skipped;
                  beginning.last_step = row.step;
                }
                NonfiniteBeginning& beginning = found[*from];
                if (tensor.role == Role::loss && !beginning.loss) {
                  beginning.loss = row.step;
                  beginning.of_loss = latest[*from];
                }
                const bool is_kept = ulpscope::is_kept(tensor, context.selection.op(row.tensor));
                if (is_kept && !beginning.weights) beginning.weights = row.step;
                const bool is_statistic = is_running_statistic(tensor, context.selection.op(row.tensor));
                if (!beginning.statistic && is_statistic) beginning.statistic = origin_of(row, tensor.dtype, rank);
                const bool does_harm = (harm.loss && tensor.role == Role::loss) || (harm.weights && is_kept) ||
                                       (harm.gradients && is_gradient_of_parameters(tensor.role));
                // A skipped step leaves what a running statistic took.
                const bool lasts = !block.step.skipped || is_statistic || row.step >= harm.from;
                if (does_harm && !beginning.harmed && lasts) beginning.harmed = latest[*from];
                return *from;
              },
              [&](const TensorRow& row, uint32_t from) {
                if (row.statistics.zeros == 0 || !divides(context.selection.op(row.tensor).function)) return;
                NonfiniteBeginning& beginning = found[from];
                if (beginning.zeros.steps == 0) {
                  beginning.zeros.tensor = row.tensor;
                  beginning.zeros.origin = latest[from];
                }
                if (beginning.zeros.steps == 0 || beginning.zeros.last_step != row.step) ++beginning.zeros.steps;
                beginning.zeros.last_step = row.step;
              });
        },
        [&](size_t) { return !context.options.cancelled(); });
  }
  std::erase_if(found, [&](const NonfiniteBeginning& beginning) {
    return !context.selection.contains(beginning.tensor) || !context.options.asks_for(beginning.first.step);
  });
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return found;
}

NonfiniteWays ways_from(const AnalysisContext& context, uint32_t tensor, const RowPosition& position) {
  struct Node {
    NonfiniteStop stop;
    std::optional<uint32_t> from;
  };
  std::vector<Node> nodes;
  constexpr uint32_t kElsewhere = UINT32_MAX - 1;  // began in another tensor
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
          flow.take(block, [&](const TensorRow& row, std::optional<uint32_t> from) {
            const RowPosition at = position_of(row, position.rank);
            const bool begins = nodes.empty() && row.tensor == tensor && at == position;
            if (!begins && (!from || *from == kElsewhere)) return kElsewhere;
            const TensorInfo& made = context.selection.tensor(row.tensor);
            const auto index = static_cast<uint32_t>(nodes.size());
            nodes.push_back(
                {{row.tensor, at, stored_nonfinite(row, made.dtype), row.statistics.count}, begins ? std::nullopt : from});
            if (made.role == Role::loss && !loss) loss = index;
            if (is_kept(made, context.selection.op(row.tensor)) && !weights) weights = index;
            return index;
          });
        },
        [&](size_t) { return !context.options.cancelled(); });
  }
  const auto way = [&](std::optional<uint32_t> to) {
    std::vector<NonfiniteStop> stops;
    for (; to; to = nodes[*to].from) stops.push_back(nodes[*to].stop);
    std::reverse(stops.begin(), stops.end());
    return stops;
  };
  return {way(loss), way(weights)};
}

}  // namespace ulpscope
