// Outputs of shape [n, 1] and targets of shape [n], which broadcast to all pairs: from the tables of tensors and of the graph, and
// rows of the last step.
#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/data_history.h"
#include "ulpscope/analyzers/judgements/data_moments.h"
#include "ulpscope/analyzers/judgements/guesses.h"
#include "ulpscope/analyzers/judgements/loss_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/run_memory.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/tensor_place.h"
#include "ulpscope/analyzers/subject/training_loss.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::findings {

namespace {

constexpr Template kTargetsBroadcast{
    "data.targets_broadcast",
    "The loss sets each of {count} outputs against {count} numbers of the data: their shapes broadcast to [{count}, {count}] in "
    "{place}."};
constexpr Template kAlikeOutputs{"data.targets_broadcast.alike",
                                 "At the end outputs had a standard deviation of {outputs:.3g}, and the data {data:.3g}."};
constexpr Template kGiveOneShape{
    "advice.give_one_shape",
    "Give outputs and targets one shape, so that each output has its own: `squeeze(-1)` of the one that is [{count}, 1]."};

// Elementwise ops of one operand make data of a batch, as of targets that a loop standardizes.
bool is_data(const AnalysisContext& context, uint32_t tensor) {
  constexpr int kOps = 8;  // more in a row are no preparation of data
  for (int i = 0; i < kOps; ++i) {
    const TensorInfo& info = context.selection.tensor(tensor);
    const OpInfo& op = context.selection.op(tensor);
    if (op.kind == OpKind::source) return info.role == Role::input;
    const std::span<const uint32_t> read = context.graph.tensors_read_by(info.op, 0);
    const bool is_alone = context.graph.read_by(info.op, 1) == nullptr;
    if (read.empty() || !is_alone || (op.kind != OpKind::elementwise && !has_trait(op.function, kSameValues))) return false;
    tensor = read.front();
  }
  return false;
}

bool compares(const OpInfo& op) {
  if (op.phase != Phase::loss && op.phase != Phase::forward) return false;
  if (op.kind == OpKind::loss) return op.function != OpFunction::cross_entropy && op.function != OpFunction::nll;
  // Within a model differences of all pairs are made on purpose.
  return op.phase == Phase::loss && op.function == OpFunction::sub;
}

using Shape = std::vector<int64_t>;

// The shape that the operands broadcast to: of a loss, whose own result may be one number, that of its gradient; nullptr: it is not
// known.
const Shape* shape_of_pairs(const AnalysisContext& context, uint32_t op) {
  const std::optional<uint32_t> backward = backward_op_of(context, op);
  if (!backward) return nullptr;
  const std::span<const uint32_t> made = context.graph.made_by(context.trace.ops()[op].kind == OpKind::loss ? *backward : op, 0);
  return made.empty() ? nullptr : &context.selection.tensor(made.front()).shape;
}

int64_t count_of(const Shape& shape) { return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies()); }

// n numbers of a model and n of the data, or what they were expanded to, that make n^2 pairs.
struct Broadcast {
  uint32_t outputs, data;  // tensors
  uint64_t count;
};

std::optional<Broadcast> broadcast_of(const AnalysisContext& context, uint32_t op) {
  const std::span<const uint32_t> first = context.graph.tensors_read_by(op, 0), second = context.graph.tensors_read_by(op, 1);
  if (first.empty() || second.empty() || context.graph.read_by(op, 2) != nullptr) return std::nullopt;
  const bool is_first_data = is_data(context, first.front());
  if (is_first_data == is_data(context, second.front())) return std::nullopt;
  Broadcast found{first.front(), second.front(), 0};
  if (is_first_data) std::swap(found.outputs, found.data);
  const Shape& outputs = context.selection.tensor(found.outputs).shape;
  const Shape& data = context.selection.tensor(found.data).shape;
  const int64_t count = count_of(outputs);
  const Shape* const pairs = shape_of_pairs(context, op);
  // PyTorch expands what a loss of its own reads.
  const bool is_expanded = context.trace.ops()[op].kind == OpKind::loss && pairs != nullptr && data == *pairs;
  if (count < 2 || pairs == nullptr || *pairs != Shape{count, count} || (count_of(data) != count && !is_expanded))
    return std::nullopt;
  found.count = static_cast<uint64_t>(count);
  return found;
}

// The standard deviation in the last step that has rows of the tensor.
std::optional<double> deviation_in_last_step(const RunFacts& facts, uint32_t tensor) {
  const std::vector<DataRow>& rows = facts.memory.data.rows(facts.context, tensor, facts.context.trace.ranks().front());
  double count = 0, sum = 0, squares = 0;
  for (const DataRow& row : rows) {
    if (row.step != rows.back().step) continue;
    if (!row.has_values || row.nonfinite > 0) return std::nullopt;
    count += static_cast<double>(row.count);
    sum += row.sum;
    squares += row.sum_of_squares;
  }
  if (count == 0) return std::nullopt;
  return DataMoments{.tensor = tensor, .mean = sum / count, .mean_square = squares / count}.deviation();
}

void find_broadcast(const RunFacts& facts, Findings& found) {
  // Outputs that all pairs draw to one number; those of a loss that is meant for all pairs differ as the data do.
  constexpr double kAlike = 0.5;
  const AnalysisContext& context = facts.context;
  const std::vector<OpInfo>& ops = context.trace.ops();
  if (facts.judged_steps().count < kLeastJudged) return;
  for (uint32_t i = 0; i < ops.size(); ++i) {
    const std::optional<Broadcast> all = compares(ops[i]) ? broadcast_of(context, i) : std::nullopt;
    if (!all) continue;
    const auto of_outputs = deviation_in_last_step(facts, all->outputs), of_data = deviation_in_last_step(facts, all->data);
    if (!of_outputs || !of_data || !(*of_outputs < kAlike * *of_data)) continue;
    const uint32_t made = context.graph.made_by(i, 0).front();
    const Argument count{"count", all->count};
    found.add(ended_no_better(facts) ? Severity::error : Severity::warning,
              {kTargetsBroadcast({count, {"place", tensor_place(facts.selection, made)}}),
               kAlikeOutputs({{"outputs", *of_outputs}, {"data", *of_data}})},
              {{facts.selection.key(made), {{"output_deviation", *of_outputs}, {"data_deviation", *of_data}}}},
              Advice(kGiveOneShape({count})), {{made}});
    return;
  }
}

}  // namespace

extern constinit const FindingRule data_targets_broadcast{
    .code = "data.targets_broadcast",
    .part = Part::run,
    .raised =
        "The loss takes differences of n outputs and n numbers of a batch whose shapes, as [n, 1] and [n], broadcast to [n, n], "
        "and "
        "at the end the outputs' standard deviation is less than half of the data's. An error where the run ended no better than "
        "it "
        "began.",
    .meaning =
        "Broadcasting pairs each output with every target, so that the least loss is at the mean of the targets, whatever the "
        "input.",
    .help = "Give outputs and targets one shape.",
    .explains = {"run.no_better_than_guessing", "run.loss_stayed", "run.loss_rose"},
    .find = find_broadcast,
};

}  // namespace ulpscope::findings
