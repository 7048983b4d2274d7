#include "ulpscope/analyzers/verbs/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/findings/verdict.h"
#include "ulpscope/analyzers/judgements/mean_losses.h"
#include "ulpscope/analyzers/subject/coverage.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/step_losses.h"
#include "ulpscope/analyzers/tables/compared_steps.h"
#include "ulpscope/analyzers/totals/compared_runs.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

constexpr Template kNoLossCompared{"verdict.no_loss_compared", "no loss was compared: the runs have none in a common step."};
constexpr Template kLossesAreEqual{"verdict.losses_are_equal", "the losses of {steps:count common step} are bit-equal."};
constexpr Template kNoMeansCompared{"verdict.no_means_compared",
                                    "losses were not judged: the first run's loss was NaN or Inf in {steps:count step}, the second "
                                    "run's is finite."};
constexpr Template kNoMeansOfSecond{"verdict.no_means_of_second",
                                    "losses were not judged: the second run's loss was NaN or Inf in {steps:count step}, which did "
                                    "no lasting harm."};
constexpr Template kSeedsUnjudged{"verdict.other_seeds",
                                  "losses were not judged, since runs of different seeds end with different ones."};
constexpr Template kWeightsUnjudged{"verdict.other_weights", "losses were not judged: the runs began with different weights."};
constexpr Template kSamplesUnjudged{"verdict.other_samples",
                                    "losses were not judged: the runs trained on different samples, or in another order."};
constexpr Template kTooFewLosses{"verdict.too_few_losses",
                                 "losses were not judged: the runs have {steps:count common step}, and {least} are needed."};
constexpr Template kLossesNotHigher{
    "verdict.losses_not_higher",
    "no regression seen: mean loss of the last {steps:count common step} {b:.4g} (second run) against "
    "{a:.4g} (first){change}."};
constexpr Template kResolvesBest{"verdict.one_run_resolves", "One run each resolves {best:%} at best."};
constexpr Template kResolvesHere{"verdict.one_run_resolves_here",
                                 "One run each resolves {here:.1f%} here, as these losses vary, and {best:%} at best."};

// More than any difference of two tensors.
constexpr double kBehindAll = 1e3;

// The last value of each metric event.
std::map<std::string, EventRow> metrics_of(const Snapshot& reader) {
  std::map<std::string, EventRow> metrics;
  for (const EventRow& event : reader.events()) {
    if (event.kind == EventKind::metric && !is_of_coverage(event)) metrics[event.text] = event;
  }
  return metrics;
}

Cell ratio(const Cell& a, const Cell& b) {
  const auto number = [](const Cell& cell) -> std::optional<double> {
    if (const double* real = std::get_if<double>(&cell)) return *real;
    if (const int64_t* count = std::get_if<int64_t>(&cell)) return static_cast<double>(*count);
    return std::nullopt;
  };
  const auto left = number(a), right = number(b);
  if (!left || !right || *left == 0) return NotApplicable{};
  return *right / *left;
}

struct Metric {
  std::string name;
  Cell a, b;
  Unit unit = Unit::none;
};

Table summary_table(const ComparedRun& a, const ComparedRun& b) {
  std::vector<Metric> metrics;
  const auto add = [&](std::string name, Unit unit, auto&& cell_of) {
    metrics.push_back({std::move(name), cell_of(a), cell_of(b), unit});
  };
  add("precision", Unit::none, [](const ComparedRun& run) { return Cell(run.trace().run().precision); });
  if (!a.trace().run().arithmetic.empty() || !b.trace().run().arithmetic.empty())
    add("arithmetic", Unit::none, [](const ComparedRun& run) { return Cell(run.trace().run().arithmetic); });
  if (!quantization_recipe(a.trace()).empty() || !quantization_recipe(b.trace()).empty())
    add("quantization_scaling", Unit::none, [](const ComparedRun& run) { return text_or_none(quantization_recipe(run.trace())); });
  add("steps", Unit::count, [](const ComparedRun& run) { return count_cell(run.steps.count); });
  const auto lacks_some = [](const ComparedRun& run) { return run.steps.with_ops < run.steps.count; };
  if (lacks_some(a) || lacks_some(b))
    add("detailed_steps", Unit::count, [](const ComparedRun& run) { return count_cell(run.steps.with_ops); });
  add("first_loss", Unit::none,
      [](const ComparedRun& run) { return run.steps.first.loss_known ? Cell(run.steps.first.loss) : Cell(Unknown{}); });
  add("final_loss", Unit::none,
      [](const ComparedRun& run) { return run.steps.last.loss_known ? Cell(run.steps.last.loss) : Cell(Unknown{}); });
  // Of as many steps in both runs.
  if (const size_t last = std::min(a.steps.last_losses.size(), b.steps.last_losses.size()); last > 0) {
    add(fmt::format("mean_loss_of_last_{}_steps", last), Unit::none,
        [last](const ComparedRun& run) { return Cell(run.steps.mean_loss(last)); });
  }
  add("nonfinite_losses", Unit::count, [](const ComparedRun& run) { return count_cell(run.steps.nonfinite_losses.size()); });
  const auto metrics_a = metrics_of(a.trace()), metrics_b = metrics_of(b.trace());
  const auto unit_of = [](const EventRow& event) {
    return event.metric == MetricKind::evaluation_accuracy ? Unit::share : Unit::none;
  };
  for (const auto& [name, event] : metrics_a) {
    const auto other = metrics_b.find(name);
    metrics.push_back({name, event.value, other == metrics_b.end() ? Cell(Unknown{}) : Cell(other->second.value), unit_of(event)});
  }
  for (const auto& [name, event] : metrics_b) {
    if (!metrics_a.count(name)) metrics.push_back({name, Unknown{}, event.value, unit_of(event)});
  }
  add("seconds", Unit::seconds, [](const ComparedRun& run) { return Cell(run.steps.seconds()); });
  add("seconds_per_step", Unit::seconds, [](const ComparedRun& run) {
    return run.steps.count > 0 ? Cell(run.steps.seconds() / static_cast<double>(run.steps.count)) : Cell(Unknown{});
  });
  add("peak_memory_bytes", Unit::bytes, [](const ComparedRun& run) { return count_cell(run.steps.peak_memory); });
  add("skipped_steps", Unit::count, [](const ComparedRun& run) { return count_cell(run.steps.skipped.size()); });
  add("lowest_loss_scale", Unit::scale, [](const ComparedRun& run) { return known_or_unknown(run.steps.lowest_scale_after); });
  add("final_loss_scale", Unit::scale,
      [](const ComparedRun& run) { return known_or_unknown(run.steps.count > 0 ? run.steps.last.scale_after : kUnknown); });

  Table table{
      "summary", "Side by side", {{"metric", ColumnKind::text}, {"a"}, {"b"}, {"b_over_a", ColumnKind::number, Unit::ratio}}, {}, 0,
      ""};
  for (Metric& metric : metrics) {
    const Cell over = ratio(metric.a, metric.b);
    table.rows.push_back({{}, {metric.name, std::move(metric.a), std::move(metric.b), over}, metric.unit});
  }
  return table;
}

Cell largest_cell(const RangeTotals& totals) {
  if (totals.rows_with_values == 0) return Unknown{};
  return totals.unscaled.largest > 0 ? Cell(std::log2(totals.unscaled.largest)) : Cell(NotApplicable{});
}

Table tensor_table(const ComparedRuns& runs, size_t limit) {
  Table table{"tensors",
              "Ranges of tensors of both runs, largest differences first",
              {{"tensor", ColumnKind::text},
               {"type_a", ColumnKind::text},
               {"type_b", ColumnKind::text},
               {"flushed_a", ColumnKind::number, Unit::share},
               {"flushed_b", ColumnKind::number, Unit::share},
               {"overflow_a", ColumnKind::number, Unit::share},
               {"overflow_b", ColumnKind::number, Unit::share},
               {"nonfinite_a", ColumnKind::number, Unit::count},
               {"nonfinite_b", ColumnKind::number, Unit::count},
               {"largest_a", ColumnKind::number, Unit::exponent},
               {"largest_b", ColumnKind::number, Unit::exponent}},
              {},
              0,
              "Largest: log2 of the largest finite magnitude, without the loss scale and, in FP8, the quantization scale. Weights, "
              "losses, and tensors of scaling and the optimizer come last."};
  std::vector<std::pair<double, TableRow>> rows;
  for (const auto& [unused, match] : runs.outputs) {
    if (!match.a || !match.b) continue;
    const RangeTotals &left = match.a->totals, &right = match.b->totals;
    const auto loss_of = [](const RangeTotals& totals) {
      return share(totals.seen.flushed.lower + totals.seen.overflowed.lower, totals.seen.base) +
             (totals.nonfinite() > 0 ? 1.0 : 0.0);
    };
    double difference = std::fabs(loss_of(left) - loss_of(right));
    if (left.unscaled.largest > 0 && right.unscaled.largest > 0) {
      difference += 1e-6 * std::fabs(std::log2(left.unscaled.largest / right.unscaled.largest));  // breaks ties
    }
    const uint32_t tensor = match.b->tensor;
    if (runs.b.selection().is_bookkeeping(tensor)) difference -= kBehindAll;
    rows.emplace_back(
        difference,
        TableRow{runs.b.output_key(tensor),
                 {runs.b.selection().output_name(tensor), join_words(match.a->types), join_words(match.b->types),
                  seen_cell(left, &RoundingBounds::flushed), seen_cell(right, &RoundingBounds::flushed),
                  seen_cell(left, &RoundingBounds::overflowed), seen_cell(right, &RoundingBounds::overflowed),
                  count_cell(left.nonfinite()), count_cell(right.nonfinite()), largest_cell(left), largest_cell(right)}});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& x, const auto& y) { return x.first > y.first; });
  for (auto& [unused, row] : rows) {
    if (limit > 0 && table.rows.size() >= limit) {
      ++table.rows_left_out;
    } else {
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

// How the first difference grew in its step. Where not all rows are asked for: the first, the loss, and each that is twice as far
// off as all before it.
Table growth_table(const ComparedRuns& runs, size_t limit) {
  Table table{"growth",
              fmt::format("How the difference grew in step {}, in order of execution", runs.bits.first->step),
              {{"tensor", ColumnKind::text}, {"role", ColumnKind::text}, {"least_distance"}},
              {},
              0,
              "Least distance: how far the two lie apart at least, over their Euclidean norm, by what the statistics tell."};
  const Selection& selection = runs.b.selection();
  double largest = 0;
  for (const FirstDifferentOutput::Grown& output : runs.bits.first->grown) {
    const double distance = output.distance ? output.distance->relative() : 0;
    const bool is_told =
        table.rows.empty() || (distance > 0 && distance >= 2 * largest) || selection.tensor(output.tensor).role == Role::loss;
    if (limit > 0 && (!is_told || table.rows.size() >= limit)) {
      ++table.rows_left_out;
      continue;
    }
    largest = std::max(largest, distance);
    table.rows.push_back({runs.b.output_key(output.tensor),
                          {selection.name(output.tensor), std::string(name_of(selection.tensor(output.tensor).role)),
                           output.distance ? Cell(output.distance->relative()) : Cell(Unknown{})}});
  }
  return table;
}

// What a verdict rests on where nothing was found.
Sentences without_cause(const ComparedRuns& runs) {
  const LossComparison& losses = runs.losses;
  if (losses.common == 0) return kNoLossCompared();
  if (losses.equal == losses.common) return kLossesAreEqual({{"steps", losses.common}});
  if (const size_t broken = runs.b.steps.nonfinite_losses.size(); broken > 0) return kNoMeansOfSecond({{"steps", broken}});
  if (const size_t broken = runs.a.steps.nonfinite_losses.size(); broken > 0) return kNoMeansCompared({{"steps", broken}});
  if (!runs.have_equal_seeds) return kSeedsUnjudged();
  if (!runs.have_equal_weights) return kWeightsUnjudged();
  if (!runs.have_equal_samples) return kSamplesUnjudged();
  if (!runs.have_enough_losses()) return kTooFewLosses({{"steps", losses.common}, {"least", ComparedRuns::kFewestLosses}});
  const MeanLosses last = mean_losses(runs);
  Sentences text = kLossesNotHigher({{"steps", last.steps}, {"b", last.b}, {"a", last.a}, {"change", last.change()}});
  const Value best{MeanLosses::kResolved, Unit::share};
  const double resolved = last.limit() / std::fabs(last.a);
  if (resolved > MeanLosses::kResolved && std::isfinite(resolved))
    text += kResolvesHere({{"here", {resolved, Unit::share}}, {"best", best}});
  else
    text += kResolvesBest({{"best", best}});
  return text;
}

}  // namespace

Report analyze_compare(const Snapshot& a, const Snapshot& b, const AnalysisOptions& options) {
  Report report;
  report.analysis = "compare";
  report.title = "Two runs side by side";
  report.sources = {source_of(a), source_of(b)};
  const ComparedRuns runs(a, b, options);
  report.complete = runs.a.complete && runs.b.complete;
  find_all(runs, report);
  const ComparedSteps steps = compare_steps(runs, options, options.limit);
  if (runs.losses.common > 0 || steps.rows > 0 || has_finding(report, Severity::warning)) {
    Sentences text = without_cause(runs);
    for (const Finding& finding : report.findings)
      if (finding.code == "compare.first_op") text += finding.title;
    add_verdict(b, report, text);
  } else {
    sort_by_severity(report.findings);
    report.add_fact("compared", std::string("nothing: no row of one run has its like in the other"));
  }
  const auto of_first = [&](auto&& cell) {
    return steps.first ? Cell(cell(*steps.first)) : steps.rows > 0 ? Cell(NotApplicable{}) : Cell(Unknown{});
  };
  if (!runs.are_comparable()) {
    report.add_fact("losses_judged", std::string(!runs.have_equal_seeds     ? "no: other seeds"
                                                 : !runs.have_equal_weights ? "no: other weights at the start"
                                                                            : "no: other samples, or another order"));
  }
  if (runs.bits.are_recorded) report.add_fact("outputs_with_equal_bits", count_cell(runs.bits.outputs), Unit::count);
  if (const auto& first = runs.bits.first) {
    const bool is_of_b = first->kind != FirstDifferentOutput::Kind::only_in_a;
    report.add_fact("first_different_step", count_cell(first->step));
    report.add_fact("first_different_output",
                    is_of_b ? runs.b.selection().output_name(*first->tensor_b) : runs.a.selection().output_name(*first->tensor_a));
  } else {
    report.add_fact("first_different_step", of_first([](const auto& row) { return count_cell(row.step); }));
    report.add_fact("first_different_output",
                    of_first([&](const auto& row) { return runs.b.selection().output_name(row.tensor); }));
  }
  if (!steps.plot.series.empty()) report.plots.push_back(steps.plot);
  report.tables.push_back(summary_table(runs.a, runs.b));
  if (runs.bits.first && !runs.bits.first->grown.empty()) report.tables.push_back(growth_table(runs, options.limit));
  report.tables.push_back(tensor_table(runs, options.limit));
  return report;
}

}  // namespace ulpscope
