#include "ulpscope/analyzers/judgements/origin_facts.h"

#include <algorithm>

#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope {

std::string_view plain_name(const OpInfo& op) {
  std::string_view name = op.name;
  if (name.ends_with('_')) name.remove_suffix(1);
  return name;
}

std::optional<TensorRow> row_at(const RunFacts& facts, uint32_t tensor, const RowPosition& position) {
  std::optional<TensorRow> found;
  facts.context.trace.of_rank(position.rank)
      .visit_history(tensor, {position.step, position.step + 1}, [&](std::span<const TensorRow> rows) {
        for (const TensorRow& row : rows)
          if (position_of(row, position.rank) == position) found = row;
        return true;
      });
  return found;
}

OriginFacts::OriginFacts(const RunFacts& run, const NonfiniteOrigin& row)
    : facts(run),
      origin(row),
      op(facts.selection.op(origin.tensor)),
      made(facts.selection.tensor(origin.tensor)),
      capture(first_capture(facts.context.trace.of_rank(origin.position.rank), origin.tensor, origin.position.step,
                            origin.position.micro_batch)) {}

const FloatFormat& OriginFacts::format() const { return *info(made.dtype).format; }

double OriginFacts::limit() const { return magnitude_thresholds(format(), rounding_of(made)).beyond.perhaps_above(); }

OpFunction OriginFacts::function() const {
  const OpInfo* const forward = op.phase == Phase::backward ? facts.context.graph.served_by(op) : nullptr;
  return forward != nullptr ? forward->function : op.function;
}

std::optional<uint32_t> OriginFacts::recorded(uint32_t by, uint32_t slot) const {
  for (const uint32_t i : facts.context.graph.made_by(by, slot))
    if (facts.ranges().find(i)) return i;
  return std::nullopt;
}

std::optional<uint32_t> OriginFacts::read_as(uint32_t input) const {
  const GraphEdge* const edge = facts.context.graph.read_by(made.op, input);
  return edge == nullptr ? std::nullopt : recorded(edge->producer, edge->slot);
}

std::optional<TensorRow> OriginFacts::last_row(uint32_t tensor) const {
  const RowPosition& position = origin.position;
  std::optional<TensorRow> last;
  facts.context.trace.of_rank(position.rank)
      .visit_history(tensor, {position.step - std::min<uint64_t>(position.step, 1), position.step + 1},
                     [&](std::span<const TensorRow> rows) {
                       for (const TensorRow& row : rows)
                         if (position_of(row, position.rank) < position) last = row;
                       return true;
                     });
  return last;
}

std::optional<uint64_t> OriginFacts::unrecorded_from() const {
  std::optional<uint64_t> from;
  facts.context.trace.of_rank(origin.position.rank).visit_steps({0, origin.position.step}, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) {
      if (row.level != RecordLevel::off)
        from.reset();
      else if (!from)
        from = row.step;
    }
    return true;
  });
  return from;
}

bool OriginFacts::reads_step_before() const {
  const OpGraph& graph = facts.context.trace.graph();
  const auto inputs = graph.inputs(made.op);
  return std::any_of(inputs.begin(), inputs.end(), [&](const GraphEdge& edge) { return !graph.is_within_step(edge); });
}

bool OriginFacts::was_finite(uint32_t tensor) const {
  const auto first = facts.ranges().nonfinite(tensor).first;
  return !first || first->step > origin.position.step;
}

}  // namespace ulpscope
