#include "ulpscope/studies/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

std::string steps_of(const TrialOutcome& outcome) {
  return steps_text(outcome.start.step, outcome.start.step + outcome.steps.size() - 1);
}

std::string difference_text(const TraceDifference::First& first) {
  const std::string where =
      first.name.empty() ? "what is recorded of the step" : op_place(first.key.op_name, first.key.module, first.key.phase);
  if (first.what.empty())
    return fmt::format("{} in step {}: {} in the trace, {} in the replay", where, *first.key.step, first.first, first.second);
  return fmt::format("{} in step {}: {} {} in the trace, {} in the replay", where, *first.key.step, first.what, first.first,
                     first.second);
}

// Of a trial that is not as before: the first thing that shows it.
std::string what_differs(const TrialOutcome& outcome) {
  if (const TrialStep* step = outcome.first_different_step()) {
    const uint64_t number = step->result.step;
    if (!step->original) return fmt::format("the capsule has no step {}", number);
    if (step->original->skipped != step->result.skipped)
      return fmt::format("step {} was {}", number, step->result.skipped ? "skipped" : "not skipped");
    const bool is_same_loss = std::bit_cast<uint64_t>(step->original->loss) == std::bit_cast<uint64_t>(step->result.loss);
    return fmt::format("the loss{} of step {} is another", is_same_loss ? " scale" : "", number);
  }
  if (outcome.steps.size() < outcome.original.steps.size())
    return fmt::format("it took {} of {} steps", outcome.steps.size(), outcome.original.steps.size());
  return "losses, loss scales and skipped steps are, but not the weights at the end";
}

// "another run (ID), of another experiment ('cnn')"
std::string run_text(const RunInfo& run, const CheckpointInfo& start) {
  if (run.run_id == start.run_id) return "that of the capsule";
  const std::string_view which = run.parent_run == start.run_id ? "another run, which resumed that of the capsule" : "another run";
  return fmt::format("{} ({}), of {}", which, one_line(run.run_id),
                     run.experiment == start.experiment ? "the same experiment"
                                                        : fmt::format("another experiment ('{}')", one_line(run.experiment_name)));
}

void add_difference(const AgainstTrace& against, const CheckpointInfo& start, Report& report) {
  const TraceDifference& difference = against.difference;
  report.add_fact("run_of_trace", run_text(against.run, start));
  report.add_fact("steps_compared", count_cell(difference.steps), Unit::count);
  if (difference.first_missing_step) {
    report.add_fact("steps_not_in_trace", count_cell(difference.missing_steps), Unit::count);
    report.add_fact("first_step_not_in_trace", count_cell(*difference.first_missing_step));
  }
  report.add_fact("rows_compared", count_cell(difference.rows), Unit::count);
  if (difference.unrecorded_rows > 0)
    report.add_fact("rows_not_recorded_in_one_of_them", count_cell(difference.unrecorded_rows), Unit::count);
  report.add_fact("rows_identical", !difference.difference.has_value());
  const auto& first = difference.difference;
  if (!first) return;
  report.add_fact("first_difference", difference_text(*first));
  report.add_fact("first_different_op", text_or_none(first->key.op_name));
  report.add_fact("first_different_module", text_or_none(first->key.module));
  report.add_fact("first_different_op_step", count_cell(first->key.step.value_or(0)));
}

std::string title_of(const Trial& trial, const TrialOutcome& outcome) {
  const std::string steps = fmt::format("{} of {}", steps_of(outcome), one_line(outcome.experiment.name));
  if (!trial.changes.empty()) {
    std::vector<std::string> changes;
    for (const Override& change : trial.changes)
      if (changes.empty() || changes.back() != change.place) changes.push_back(change.place);
    return fmt::format("Replayed {} with {}", steps, join_words(changes));
  }
  if (outcome.is_as_before()) return fmt::format("Replayed {}: bit-equal", steps);
  return fmt::format("Replayed {}: NOT bit-equal: {}", steps, what_differs(outcome));
}

void add_nonfinite(const TrialOutcome& outcome, Report& report) {
  const TrialStep* step = outcome.first_nonfinite_step();
  report.add_fact("losses_finite", std::all_of(outcome.steps.begin(), outcome.steps.end(),
                                               [](const TrialStep& each) { return std::isfinite(each.result.loss); }));
  report.add_fact("weights_finite", outcome.weights_are_finite);
  if (step == nullptr) return;
  const NonfiniteOutput& found = *step->result.nonfinite;
  report.add_fact("first_nonfinite_step", count_cell(step->result.step));
  report.add_fact("first_nonfinite_op", found.name);
  report.add_fact("first_nonfinite_module", found.module);
  report.add_fact("first_nonfinite_phase", std::string(name_of(found.phase)));
  report.add_fact("first_nonfinite_count", count_cell(found.nan + found.infinite), Unit::count);
  const auto lost = std::find_if(outcome.steps.begin(), outcome.steps.end(),
                                 [](const TrialStep& each) { return !std::isfinite(each.result.loss); });
  if (lost != outcome.steps.end()) report.add_fact("first_nonfinite_loss_step", count_cell(lost->result.step));
}

void add_ops(const TrialOutcome& outcome, size_t limit, Report& report) {
  std::vector<OpDifference> ops;
  std::vector<std::string> of_other_shapes;
  for (const OpDifference& op : outcome.ops) {
    if (op.has_other_shape) {
      of_other_shapes.push_back(fmt::format("{} of {}", op.output, op_place(op.op, op.module, name_of(op.phase))));
    } else {
      ops.push_back(op);
    }
  }
  std::stable_sort(ops.begin(), ops.end(), [](const OpDifference& a, const OpDifference& b) {
    return a.nonfinite_in_one != b.nonfinite_in_one ? a.nonfinite_in_one > b.nonfinite_in_one : a.largest > b.largest;
  });
  report.add_fact("outputs_compared", count_cell(ops.size()), Unit::count);
  constexpr size_t kMostNamed = 5;
  if (const size_t count = of_other_shapes.size(); count > 0) {
    of_other_shapes.resize(std::min(count, kMostNamed));
    report.add_fact("outputs_of_other_shapes",
                    join_words(of_other_shapes) + (count > kMostNamed ? fmt::format(" and {} more", count - kMostNamed) : ""));
  }
  if (!outcome.has_all_ops)
    report.add_fact("not_all_outputs_compared",
                    fmt::format("those of the first {} MiB of each step were", OpDifferences::kMostBytes >> 20));
  if (outcome.original_differs_in)
    report.add_fact(
        "original_did_not_come_again",
        fmt::format("what ops are compared with is not as the capsule has it from step {} on", *outcome.original_differs_in));
  Table table{"ops",
              "What ops gave beside the original's, the furthest apart first",
              {{"op", ColumnKind::text},
               {"output", ColumnKind::text},
               {"original_type", ColumnKind::text},
               {"type", ColumnKind::text},
               {"first_difference"},
               {"largest_difference"},
               {"in_step"},
               {"roundings"},
               {"nonfinite_in_one", ColumnKind::number, Unit::count}},
              {},
              0,
              "Difference: a Euclidean norm, as a share of the larger of the two, in the first of the steps and where it is "
              "largest; roundings: the largest in units of half a last place of the narrower type. Steps begin with equal weights, "
              "and go apart."};
  const size_t end = limit > 0 ? std::min(limit, ops.size()) : ops.size();
  for (size_t i = 0; i < end; ++i) {
    const OpDifference& op = ops[i];
    std::string name = op_place(op.op, op.module, name_of(op.phase));
    if (op.micro_batch > 0) name += fmt::format(", batch {}", op.micro_batch);
    table.rows.push_back({{},
                          {std::move(name), op.output, std::string(info(op.original_type).name), std::string(info(op.type).name),
                           op.first, op.largest, count_cell(op.largest_step), op.in_roundings(), count_cell(op.nonfinite_in_one)}});
  }
  table.rows_left_out = ops.size() - end;
  report.tables.push_back(std::move(table));
}

}  // namespace

Report report_of(const Trial& trial, const TrialOutcome& outcome, const std::optional<AgainstTrace>& against, size_t limit) {
  Report report;
  report.analysis = "replay";
  report.title = title_of(trial, outcome);
  report.add_fact("capsule", trial.capsule);
  report.add_fact("event", outcome.original.event);
  report.add_fact("first_step", count_cell(outcome.start.step));
  report.add_fact("steps", count_cell(outcome.steps.size()), Unit::count);
  report.add_fact("precision", std::string(name_of(outcome.experiment.precision)));
  report.add_fact("identical", outcome.is_as_before());
  if (!outcome.is_as_before()) report.add_fact("difference", what_differs(outcome));
  if (const TrialStep* step = outcome.first_different_step())
    report.add_fact("first_different_step", count_cell(step->result.step));
  report.add_fact("weights_fingerprint", fmt::format("{:016x}", outcome.weights_fingerprint));
  report.add_fact("original_weights_fingerprint", fmt::format("{:016x}", outcome.original.weights_fingerprint));
  add_nonfinite(outcome, report);
  if (against) add_difference(*against, outcome.start, report);
  if (!outcome.is_as_before() && outcome.machine != outcome.original.machine) {
    report.add_fact("original_machine", outcome.original.machine);
    report.add_fact("machine", outcome.machine);
  }
  if (!trial.trace_path.empty()) report.add_fact("trace", trial.trace_path);

  Table table{"steps",
              "Each step beside the original",
              {{"step"},
               {"original_loss"},
               {"loss"},
               {"original_scale", ColumnKind::number, Unit::scale},
               {"scale", ColumnKind::number, Unit::scale},
               {"skipped", ColumnKind::flag},
               {"bit_equal", ColumnKind::flag},
               {"first_nonfinite", ColumnKind::text}},
              {},
              0,
              ""};
  const size_t begin = limit > 0 && outcome.steps.size() > limit ? outcome.steps.size() - limit : 0;
  for (size_t i = begin; i < outcome.steps.size(); ++i) {
    const TrialStep& step = outcome.steps[i];
    const auto& found = step.result.nonfinite;
    table.rows.push_back({{},
                          {count_cell(step.result.step), step.original ? Cell(step.original->loss) : Cell(NotApplicable{}),
                           step.result.loss, step.original ? Cell(step.original->scale) : Cell(NotApplicable{}), step.result.scale,
                           step.result.skipped, step.is_as_before(), found ? Cell(found->place()) : Cell(NotApplicable{})}});
  }
  table.rows_left_out = begin;
  if (begin > 0) table.note = "The steps before these are left out.";
  report.tables.push_back(std::move(table));
  if (trial.by_op) add_ops(outcome, limit, report);
  return report;
}

}  // namespace ulpscope
