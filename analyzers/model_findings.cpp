// What is wrong with what goes in and what comes out, whatever the format: data that hold NaN, outputs that are all zero.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/ranges.h"
#include "ulpscope/base/text.h"
#include "ulpscope/trace/sources.h"

namespace ulpscope {

namespace {

// The sample that an element of a batch belongs to, where the captures tell which element it was: "" where they do not.
std::string place_of_first(const Snapshot& trace, uint32_t tensor, uint64_t step) {
  const TensorInfo& batch = trace.tensors()[tensor];
  for (const CaptureRow& capture : trace.captures({step, step + 1})) {
    if (capture.tensor != tensor || capture.node != 0 || capture.element < 0 || capture.shape.empty()) continue;
    int64_t of_sample = 1;
    bool fits = true;
    for (size_t i = 1; i < capture.shape.size(); ++i)
      fits = fits && !__builtin_mul_overflow(of_sample, capture.shape[i], &of_sample);
    if (!fits || of_sample <= 0) continue;
    const int64_t wanted = capture.element / of_sample;
    const bool is_evaluation = trace.ops()[batch.op].phase == Phase::evaluation;
    int64_t next = 0;
    std::string place;
    trace.visit_batches({step, step + 1}, [&](std::span<const BatchRow> rows) {
      for (const BatchRow& row : rows) {
        if (row.micro_batch != capture.micro_batch || (row.phase == Phase::evaluation) != is_evaluation || next++ != wanted)
          continue;
        place = fmt::format("element {} of {}", capture.element % of_sample, find_sample(trace, row).text());
        return false;
      }
      return true;
    });
    if (!place.empty()) return place;
  }
  return "";
}

// Functions whose result is zero for some of the numbers, and that a model has for the others.
bool may_die(OpFunction function) {
  switch (function) {
    case OpFunction::relu:
    case OpFunction::clamp:
    case OpFunction::silu:
    case OpFunction::gelu:
    case OpFunction::gelu_tanh:
    case OpFunction::dropout:
      return true;
    default:
      return false;
  }
}

// Whether every way from what a batch brings to the loss, its targets apart, leads through these ops.
bool hides_batch(const Snapshot& trace, const std::vector<uint32_t>& ops) {
  std::vector<bool> seen(trace.ops().size());
  for (const uint32_t op : ops) seen[op] = true;
  std::vector<uint32_t> open;
  const auto visit = [&](uint32_t op) {
    if (!seen[op]) open.push_back(op);
    seen[op] = true;
  };
  bool any = false;
  for (uint32_t op = 0; op < trace.ops().size(); ++op) {
    const OpInfo& loss = trace.ops()[op];
    if (loss.kind != OpKind::loss || loss.phase != Phase::loss) continue;
    for (const GraphEdge& edge : trace.graph().inputs(op))
      if (edge.input == 0) visit(edge.producer);
    any = true;
  }
  while (!open.empty()) {
    const uint32_t op = open.back();
    open.pop_back();
    if (trace.ops()[op].kind == OpKind::source && trace.ops()[op].phase == Phase::data && trace.graph().inputs(op).empty()) {
      for (const TensorInfo& tensor : trace.tensors())
        if (tensor.op == op && tensor.role == Role::input) return false;
    }
    // Within a step: edges from later ops come from the step before, through the weights.
    for (const GraphEdge& edge : trace.graph().inputs(op))
      if (edge.producer < op) visit(edge.producer);
  }
  return any;
}

}  // namespace

void RangeReport::find_bad_data(Report& report) const {
  Suspects suspects(selection_);
  std::optional<std::pair<RowPosition, uint32_t>> first;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i] || selection_.tensor(i).role != Role::input || selection_.op(i).kind != OpKind::source) continue;
    const NonfiniteRows held = nonfinite(i);
    if (held.rows == 0 || held.overflowed > 0) continue;
    const RangeTotals none, &judged = tensors_[i]->totals, &broken = broken_tensors_[i] ? broken_tensors_[i]->totals : none;
    suspects.add(static_cast<double>(held.rows), i,
                 {{"batches", count_cell(held.rows), Unit::count},
                  {"elements", count_cell(judged.nonfinite() + broken.nonfinite()), Unit::count}},
                 held.first);
    if (!first || *held.first < first->first) first = {*held.first, i};
  }
  if (!first) return;
  const uint64_t rows = nonfinite(first->second).rows;
  const std::string place = place_of_first(context_.trace.of_rank(first->first.rank), first->second, first->first.step);
  report.findings.push_back({"data.nonfinite", std::max(harm_, Severity::warning),
                             fmt::format("The data held NaN or infinity: {} of {}, first in step {}{}.",
                                         rows == 1 ? "one batch" : fmt::format("{} batches", rows), selection_.name(first->second),
                                         first->first.step, place.empty() ? "" : ": " + place),
                             suspects.worst(),
                             "Mend or leave out that sample: no format and no loss scale helps. `ulpscope export --table batches` "
                             "lists the samples of each step.",
                             suspects.extent()});
}

// Outputs of which every element was zero to the end, while what went in was not: no rounding made them so. Of ops of one input,
// where nothing else can be the reason.
void RangeReport::find_dead(Report& report) const {
  constexpr uint64_t kLeastRows = 10;
  const auto is_dead = [&](uint32_t i) { return tensors_[i]->zeros.rows >= kLeastRows; };
  Suspects dead(selection_), dropped(selection_);
  std::vector<uint32_t> dead_ops;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    const TensorInfo& tensor = selection_.tensor(i);
    const OpInfo& op = selection_.op(i);
    if (!tensors_[i] || tensor.role != Role::activation || op.phase != Phase::forward || !may_die(op.function)) continue;
    if (!is_float(tensor.dtype) || tensor.slot != 0 || !is_dead(i)) continue;
    const std::span<const GraphEdge> inputs = context_.trace.graph().inputs(tensor.op);
    if (inputs.empty() || context_.graph.read_by(tensor.op, 1) != nullptr) continue;
    const std::span<const uint32_t> read = context_.graph.made_by(inputs.front().producer, inputs.front().slot);
    if (std::none_of(read.begin(), read.end(), [&](uint32_t r) {
          return tensors_[r] && tensors_[r]->totals.rows > 0 && !is_dead(r) && nonfinite(r).rows == 0;
        }))
      continue;
    const ZeroTail& zeros = tensors_[i]->zeros;
    const RowPosition position{*zeros.since, context_.trace.run().rank};
    const bool drops = op.function == OpFunction::dropout;
    if (drops && !zeros.all) continue;
    (drops ? dropped : dead)
        .add(static_cast<double>(zeros.rows), i, {{"rows_of_zeros_to_the_end", count_cell(zeros.rows), Unit::count}}, position);
    if (drops) continue;
    dead_ops.push_back(tensor.op);
  }
  if (!dropped.empty()) {
    report.findings.push_back(
        {"model.drops_everything", Severity::error,
         fmt::format("{} set every element to zero in every training step: nothing that lies before learns through it.",
                     dropped.size() == 1 ? "A dropout" : count_of(dropped.size(), "dropout")),
         dropped.worst(), "Drop a smaller share: one of 1 drops everything.", dropped.extent()});
  }
  if (dead.empty()) return;
  // Where the loss sees nothing of the batch but through them, the run is broken.
  const Severity severity = hides_batch(context_.trace, dead_ops) ? Severity::error : Severity::warning;
  const std::string which = dead.size() == 1 ? dead.worst().front().key.name : count_of(dead.size(), "activation");
  report.findings.push_back(
      {"model.dead_output", severity,
       fmt::format(
           "{} gave nothing but zeros{} from step {} to the end, though what went in was not zero, and no rounding made it so: "
           "nothing before it learns through it.",
           which, dead.size() == 1 ? "" : ", the first", *dead.extent().first_step),
       dead.worst(),
       "Look at the sign of what goes in: a bias far below zero, or an update that threw it there, leaves a relu nothing to pass "
       "on; a "
       "smaller learning rate keeps it alive.",
       dead.extent()});
}

}  // namespace ulpscope
