#include "ulpscope/analyzers/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "ulpscope/analyzers/precision_facts.h"
#include "ulpscope/analyzers/range_totals.h"
#include "ulpscope/analyzers/run_analysis.h"
#include "ulpscope/analyzers/suspects.h"
#include "ulpscope/analyzers/verdict.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

// More than any difference of two tensors.
constexpr double kBehindAll = 1e3;

// The last value of each metric event.
std::map<std::string, double> metrics_of(const Snapshot& reader) {
  std::map<std::string, double> metrics;
  for (const EventRow& event : reader.events()) {
    if (event.kind == EventKind::metric) metrics[event.text] = event.value;
  }
  return metrics;
}

struct StepPair {
  uint64_t step;
  double a, b;
};

// Finds the first step whose losses differ in any bit. Reads `a` once and `b` in batches of what `a` gave.
struct LossComparison {
  uint64_t common = 0, equal = 0;
  std::optional<StepPair> first_difference;
};

LossComparison compare_losses(const Snapshot& a, const Snapshot& b, const AnalysisOptions& options) {
  LossComparison result;
  a.visit_steps(options.steps, [&](std::span<const StepRow> rows) {
    if (rows.empty()) return true;
    size_t next = 0;
    b.visit_steps({rows.front().step, rows.back().step + 1}, [&](std::span<const StepRow> others) {
      for (const StepRow& other : others) {
        while (next < rows.size() && rows[next].step < other.step) ++next;
        if (next == rows.size()) return false;
        if (rows[next].step != other.step || !rows[next].loss_known || !other.loss_known) continue;
        ++result.common;
        const double left = rows[next].loss, right = other.loss;
        // NaN equals NaN here: both runs broke in the same step.
        const bool same =
            std::bit_cast<uint64_t>(left) == std::bit_cast<uint64_t>(right) || (std::isnan(left) && std::isnan(right));
        result.equal += same;
        if (!same && !result.first_difference) result.first_difference = StepPair{other.step, left, right};
      }
      return true;
    });
    return !options.cancelled();
  });
  return result;
}

// An output of an op: several tensors where its type or its arithmetic changed between runs that are read as one.
struct Output {
  uint32_t tensor = 0;  // the first of them
  std::vector<std::string> types;
  RangeTotals totals;
};

// What the rows of each tensor add up to.
class TensorTotals {
 public:
  void begin(const AnalysisContext& context) { context_ = &context; }
  void update(const Block& block) {
    PerTensor<RangeTotals>& totals = totals_.at(block.rank, block.step);
    for (const TensorRow& row : block.rows) {
      if (!context_->selection.contains(row)) continue;
      const TensorInfo& tensor = context_->selection.tensor(row.tensor);
      if (is_float(tensor.dtype)) totals[row.tensor].add(row, tensor);
    }
  }
  void merge(TensorTotals&& other) { totals_.merge(std::move(other.totals_)); }
  TablesRead reads() const { return {}; }
  PerTensor<RangeTotals> whole() const { return totals_.whole(); }

 private:
  const AnalysisContext* context_ = nullptr;
  ByRank<PerTensor<RangeTotals>> totals_;
};

struct Side {
  Side(const Snapshot& reader, const AnalysisOptions& options) : seen([] { return TensorTotals(); }, options) {
    complete = seen.update(reader);
    run = seen.steps().whole();
    const PerTensor<RangeTotals> totals = seen.analysis().whole();
    for (const uint32_t tensor : totals.tensors()) {
      Output& output = outputs.try_emplace(selection().output(tensor), Output{tensor, {}, {}}).first->second;
      std::string type(info(selection().tensor(tensor).dtype).name);
      if (std::find(output.types.begin(), output.types.end(), type) == output.types.end()) output.types.push_back(std::move(type));
      output.totals.add(*totals.find(tensor));
    }
  }

  const Snapshot& reader() const { return seen.context().trace; }
  const Selection& selection() const { return seen.context().selection; }

  Followed<TensorTotals> seen;
  std::map<OutputId, Output> outputs;
  StepTotals run;
  bool complete = true;
};

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

Table summary_table(const Side& a, const Side& b) {
  std::vector<Metric> metrics;
  const auto add = [&](std::string name, Unit unit, auto&& cell_of) {
    metrics.push_back({std::move(name), cell_of(a), cell_of(b), unit});
  };
  add("precision", Unit::none, [](const Side& side) { return Cell(side.reader().run().precision); });
  if (!a.reader().run().arithmetic.empty() || !b.reader().run().arithmetic.empty())
    add("arithmetic", Unit::none, [](const Side& side) { return Cell(side.reader().run().arithmetic); });
  if (!quantization_recipe(a.reader()).empty() || !quantization_recipe(b.reader()).empty())
    add("quantization_scaling", Unit::none, [](const Side& side) { return text_or_none(quantization_recipe(side.reader())); });
  add("steps", Unit::count, [](const Side& side) { return count_cell(side.run.count); });
  add("first_loss", Unit::none,
      [](const Side& side) { return side.run.first.loss_known ? Cell(side.run.first.loss) : Cell(Unknown{}); });
  add("final_loss", Unit::none,
      [](const Side& side) { return side.run.last.loss_known ? Cell(side.run.last.loss) : Cell(Unknown{}); });
  // Of as many steps in both runs.
  if (const size_t last = std::min(a.run.last_losses.size(), b.run.last_losses.size()); last > 0) {
    add(fmt::format("mean_loss_of_last_{}_steps", last), Unit::none,
        [last](const Side& side) { return Cell(side.run.mean_loss(last)); });
  }
  add("nonfinite_losses", Unit::count, [](const Side& side) { return count_cell(side.run.nonfinite_losses.size()); });
  const auto metrics_a = metrics_of(a.reader()), metrics_b = metrics_of(b.reader());
  for (const auto& [name, value] : metrics_a) {
    const auto other = metrics_b.find(name);
    const Unit unit = name == "test_accuracy" ? Unit::share : Unit::none;
    metrics.push_back({name, value, other == metrics_b.end() ? Cell(Unknown{}) : Cell(other->second), unit});
  }
  for (const auto& [name, value] : metrics_b) {
    const Unit unit = name == "test_accuracy" ? Unit::share : Unit::none;
    if (!metrics_a.count(name)) metrics.push_back({name, Unknown{}, value, unit});
  }
  add("seconds", Unit::seconds, [](const Side& side) { return Cell(side.run.seconds()); });
  add("seconds_per_step", Unit::seconds, [](const Side& side) {
    return side.run.count > 0 ? Cell(side.run.seconds() / static_cast<double>(side.run.count)) : Cell(Unknown{});
  });
  add("peak_memory_bytes", Unit::bytes, [](const Side& side) { return count_cell(side.run.peak_memory); });
  add("skipped_steps", Unit::count, [](const Side& side) { return count_cell(side.run.skipped.size()); });
  add("lowest_loss_scale", Unit::scale, [](const Side& side) { return known_or_unknown(side.run.lowest_scale_after); });
  add("final_loss_scale", Unit::scale,
      [](const Side& side) { return known_or_unknown(side.run.count > 0 ? side.run.last.scale_after : kUnknown); });

  Table table{
      "summary", "Side by side", {{"metric", ColumnKind::text}, {"a"}, {"b"}, {"b_over_a", ColumnKind::number, Unit::ratio}}, {}, 0,
      ""};
  for (Metric& metric : metrics) {
    const Cell over = ratio(metric.a, metric.b);
    table.rows.push_back({{}, {metric.name, std::move(metric.a), std::move(metric.b), over}, metric.unit});
  }
  return table;
}

// An output in both traces, or in one.
struct Match {
  const Output* a = nullptr;
  const Output* b = nullptr;
};
using Matches = std::map<OutputId, Match>;

Matches match_outputs(const Side& a, const Side& b) {
  Matches matches;
  for (const auto& [key, output] : a.outputs) matches[key].a = &output;
  for (const auto& [key, output] : b.outputs) matches[key].b = &output;
  return matches;
}

Cell largest_cell(const RangeTotals& totals) {
  if (totals.rows_with_values == 0) return Unknown{};
  return totals.unscaled.largest > 0 ? Cell(std::log2(totals.unscaled.largest)) : Cell(NotApplicable{});
}

// Of all tensors that are the output.
RowKey output_key(const Selection& selection, uint32_t tensor) {
  RowKey key = selection.key(tensor);
  key.name = selection.output_name(tensor);
  return key;
}

Table tensor_table(const Selection& b, const Matches& matches, size_t limit) {
  Table table{"tensors",
              "Ranges of the tensors that both have, largest differences first",
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
              "Largest: log2 of the largest finite magnitude, divided by the loss scale, and in FP8 by the quantisation scale. "
              "Weights, the loss, and what scaling and the "
              "optimizer keep come last."};
  std::vector<std::pair<double, TableRow>> rows;
  for (const auto& [unused, match] : matches) {
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
    if (b.is_bookkeeping(tensor)) difference -= kBehindAll;
    rows.emplace_back(difference, TableRow{output_key(b, tensor),
                                           {b.output_name(tensor), join_words(match.a->types), join_words(match.b->types),
                                            seen_cell(left, &RoundingBounds::flushed), seen_cell(right, &RoundingBounds::flushed),
                                            seen_cell(left, &RoundingBounds::overflowed),
                                            seen_cell(right, &RoundingBounds::overflowed), count_cell(left.nonfinite()),
                                            count_cell(right.nonfinite()), largest_cell(left), largest_cell(right)}});
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

bool has_enough_losses(const StepTotals& a, const StepTotals& b) {
  return std::min(a.last_losses.size(), b.last_losses.size()) >= 10 && a.nonfinite_losses.empty() && b.nonfinite_losses.empty();
}

// Whether the second run's last losses are higher than the first's by more than these vary: twice the error of the difference of
// their means, and a twentieth.
void add_loss_finding(const StepTotals& a, const StepTotals& b, Report& report) {
  if (!has_enough_losses(a, b)) return;
  const size_t n = std::min(a.last_losses.size(), b.last_losses.size()) / 2;
  const double mean_a = a.mean_loss(n), mean_b = b.mean_loss(n);
  const auto variance = [n](const std::vector<double>& losses, double mean) {
    double sum = 0;
    for (size_t i = losses.size() - n; i < losses.size(); ++i) sum += (losses[i] - mean) * (losses[i] - mean);
    return sum / static_cast<double>(n - 1);
  };
  const double error = std::sqrt((variance(a.last_losses, mean_a) + variance(b.last_losses, mean_b)) / static_cast<double>(n));
  if (!(mean_b - mean_a > 2 * error) || !(mean_b - mean_a > 0.05 * std::fabs(mean_a))) return;
  report.findings.push_back(
      {"compare.loss_higher",
       Severity::warning,
       fmt::format("The second run's loss is higher: its last {} losses have the mean {:.4g}, those of the first run {:.4g}.", n,
                   mean_b, mean_a),
       {{{}, {{"mean_a", mean_a}, {"mean_b", mean_b}, {"error_of_the_difference", error}}}},
       "`ulpscope report` of the second trace says what was lost there; the table below, where its numbers differ most."});
}

void add_findings(const Side& a, const Side& b, const Matches& matches, const LossComparison& losses, Report& report) {
  const RunInfo &run_a = a.reader().run(), &run_b = b.reader().run();
  const auto find = [&](const char* code, Severity severity, std::string title, std::vector<Evidence> evidence = {}) {
    report.findings.push_back({code, severity, std::move(title), std::move(evidence), ""});
  };
  if (run_a.experiment_name != run_b.experiment_name) {
    find("compare.different_experiments", Severity::warning,
         fmt::format("The traces are of different experiments: '{}' and '{}'.", run_a.experiment_name, run_b.experiment_name));
  }
  if (run_a.seed != run_b.seed) {
    find("compare.different_seeds", Severity::info, fmt::format("The seeds differ: {} and {}.", run_a.seed, run_b.seed));
  }
  if (run_a.machine != run_b.machine) {
    find("compare.different_machines", Severity::info,
         fmt::format("The machines or their threads differ, and bits of products depend on both: '{}' and '{}'.", run_a.machine,
                     run_b.machine));
  }
  if (a.run.count != b.run.count) {
    find("compare.steps_differ", Severity::info,
         fmt::format("The runs have {} and {}; times and losses are of all of each.", a.run.count, count_of(b.run.count, "step")));
  }
  if (losses.first_difference) {
    RowKey key;  // of both runs
    key.step = losses.first_difference->step;
    find("compare.first_difference", Severity::info,
         fmt::format("The losses differ from step {} on: {} of {} common steps are bit-equal.", losses.first_difference->step,
                     losses.equal, losses.common),
         {{key,
           {{"loss_a", losses.first_difference->a},
            {"loss_b", losses.first_difference->b},
            {"b_minus_a", losses.first_difference->b - losses.first_difference->a}}}});
  } else if (losses.common > 0) {
    find("compare.losses_equal", Severity::info, fmt::format("The losses of all {} common steps are bit-equal.", losses.common));
  }
  if (a.run.nonfinite_losses.size() > 0 || b.run.nonfinite_losses.size() > 0) {
    const bool only_b = a.run.nonfinite_losses.size() == 0;
    find("compare.loss_nonfinite",
         only_b                           ? Severity::error
         : b.run.nonfinite_losses.empty() ? Severity::info
                                          : Severity::warning,
         fmt::format("The loss was NaN or infinity in {} of the first run and {} of the second.",
                     count_of(a.run.nonfinite_losses.size(), "step"), b.run.nonfinite_losses.size()));
  }
  add_loss_finding(a.run, b.run, report);
  // Casts come and go with the precision.
  uint64_t only_a = 0, only_b = 0;
  std::vector<Evidence> unmatched;
  const auto name_some = [&](const Side& side, const Output& output, const char* which) {
    if (side.selection().op(output.tensor).kind == OpKind::cast) return 0;  // backward ones too
    if (unmatched.size() < kMostEvidence)
      unmatched.push_back({output_key(side.selection(), output.tensor), {{"only_in", std::string(which)}}});
    return 1;
  };
  for (const auto& [unused, match] : matches) {
    if (!match.b) only_a += name_some(a, *match.a, "a");
    if (!match.a) only_b += name_some(b, *match.b, "b");
  }
  if (only_a + only_b > 0) {
    find("compare.ops_unmatched", Severity::info,
         fmt::format("{} recorded outputs, casts apart, are in the first trace only, and {} in the second only.", only_a, only_b),
         std::move(unmatched));
  }
}

}  // namespace

Report analyze_compare(const Snapshot& a, const Snapshot& b, const AnalysisOptions& options) {
  Report report;
  report.analysis = "compare";
  report.title = "Two runs side by side";
  report.sources = {source_of(a), source_of(b)};
  const Side left(a, options), right(b, options);
  report.complete = left.complete && right.complete;
  const auto matches = match_outputs(left, right);
  add_findings(left, right, matches, compare_losses(a, b, options), report);
  add_verdict(b, report,
              has_enough_losses(left.run, right.run)
                  ? "the second run's loss is not clearly higher than the first's: by a twentieth, and more than it varies."
                  : "there are too few losses to compare.");
  report.tables.push_back(summary_table(left, right));
  report.tables.push_back(tensor_table(right.selection(), matches, options.limit));
  return report;
}

}  // namespace ulpscope
