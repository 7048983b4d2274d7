#include "ulpscope/analyzers/info.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "ulpscope/analyzers/recording_health.h"

namespace ulpscope {

namespace {

struct StepTotals {
  uint64_t steps = 0, skipped = 0, nonfinite_losses = 0, peak_memory = 0;
  double seconds = 0;
  StepRow first, last;
};

StepTotals total_steps(const Snapshot& reader, const AnalysisOptions& options) {
  StepTotals totals;
  reader.visit_steps(options.steps, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) {
      if (totals.steps++ == 0) totals.first = row;
      totals.last = row;
      totals.skipped += row.skipped;
      totals.nonfinite_losses += row.loss_known && !std::isfinite(row.loss);
      totals.peak_memory = std::max(totals.peak_memory, row.peak_memory);
      totals.seconds += row.seconds;
    }
    return !options.cancelled();
  });
  return totals;
}

Cell loss_cell(const StepTotals& totals, const StepRow& row) {
  if (totals.steps == 0 || !row.loss_known) return Unknown{};
  return row.loss;
}

// What changed how much is recorded.
Table recording_table(const Snapshot& reader) {
  Table table{"recording", "Changes of the recording", {{"step"}, {"kind", ColumnKind::text}, {"text", ColumnKind::text}}, {}, 0,
              ""};
  for (const EventRow& event : reader.events()) {
    if (event.kind != EventKind::level_lowered && event.kind != EventKind::cut_short && event.kind != EventKind::stopped) continue;
    table.rows.push_back({key_of_step(reader, event.step), {count_cell(event.step), std::string(name_of(event.kind)), event.text}});
  }
  return table;
}

Table metrics_table(const Snapshot& reader, const StepRange& steps) {
  Table table{"metrics", "Metrics", {{"metric", ColumnKind::text}, {"step"}, {"value"}}, {}, 0, ""};
  for (const EventRow& event : reader.events()) {
    if (event.kind != EventKind::metric || event.step < steps.first || event.step >= steps.last) continue;
    table.rows.push_back({key_of_step(reader, event.step), {event.text, count_cell(event.step), event.value}});
  }
  return table;
}

// The scales of FP8 tensors, those that came nearest to zero first.
Table quantization_scale_table(const Snapshot& reader, const AnalysisOptions& options) {
  struct Scales {
    double smallest = 0, largest = 0, last = 0;
  };
  std::map<uint32_t, Scales> by_tensor;
  reader.visit_rows_without_histograms(options.steps, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      if (row.tensor >= reader.tensors().size() || !is_quantized(reader.tensors()[row.tensor].dtype)) continue;
      const double scale = row.quantization_scale;
      Scales& scales = by_tensor.try_emplace(row.tensor, Scales{scale, scale, scale}).first->second;
      scales = {std::min(scales.smallest, scale), std::max(scales.largest, scale), scale};
    }
    return !options.cancelled();
  });
  Table table{"quantization_scales",
              "Quantisation scales of FP8 tensors, smallest first",
              {{"tensor", ColumnKind::text}, {"type", ColumnKind::text}, {"smallest"}, {"largest"}, {"last"}},
              {},
              0,
              ""};
  const Selection selection(reader, options);
  std::vector<std::pair<uint32_t, Scales>> sorted(by_tensor.begin(), by_tensor.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.smallest < b.second.smallest; });
  for (const auto& [tensor, scales] : sorted) {
    if (options.limit > 0 && table.rows.size() == options.limit) break;
    table.rows.push_back({selection.key(tensor),
                          {selection.name(tensor), std::string(info(reader.tensors()[tensor].dtype).name), scales.smallest,
                           scales.largest, scales.last}});
  }
  table.rows_left_out = sorted.size() - table.rows.size();
  return table;
}

// The traces that are read as one run.
Table parts_table(const Snapshot& reader, const std::vector<TracePart>& parts) {
  Table table{"parts",
              "Runs resumed from one another, read as one",
              {{"trace", ColumnKind::text},
               {"run", ColumnKind::text},
               {"first_step"},
               {"steps", ColumnKind::number, Unit::count},
               {"precision", ColumnKind::text},
               {"arithmetic", ColumnKind::text}},
              {},
              0,
              ""};
  for (const TracePart& part : parts) {
    uint64_t steps = 0;
    reader.visit_steps(part.steps, [&](std::span<const StepRow> rows) {
      steps += rows.size();
      return true;
    });
    RowKey key;
    key.run = part.run.run_id;
    table.rows.push_back({std::move(key),
                          {part.path, part.run.run_id, count_cell(part.steps.first), count_cell(steps), part.run.precision,
                           text_or_none(part.run.arithmetic)}});
  }
  return table;
}

// Where a fact is shown: `report` has the few that a reader of findings needs, `info` all.
enum Where { kInfoOnly, kInReport };

Report describe_trace(const Snapshot& reader, const AnalysisOptions& options, bool for_report) {
  const RunInfo& run = reader.run();
  const StepTotals totals = total_steps(reader, options);
  const bool any = totals.steps > 0;
  Report report;
  report.analysis = "info";
  report.title = run.experiment_name.empty() ? "Trace" : "Trace of " + run.experiment_name;
  report.sources.push_back(source_of(reader));
  report.complete = !options.cancelled();
  const auto add = [&](Where where, std::string_view name, Cell value, Unit unit = Unit::none) {
    if (where == kInReport || !for_report) report.add_fact(name, std::move(value), unit);
  };

  add(kInReport, "schema_version", count_cell(reader.schema_version()));
  add(kInReport, "writer", std::string(name_of(reader.writer_state())));
  if (!reader.closing_note().empty()) add(kInfoOnly, "closing_note", reader.closing_note());
  add(kInfoOnly, "run_id", run.run_id);
  if (!run.parent_run.empty()) {
    add(kInfoOnly, "parent_run", run.parent_run);
    add(kInfoOnly, "parent_step", run.parent_step);
  }
  add(kInReport, "experiment_name", run.experiment_name);
  add(kInfoOnly, "producer", run.producer);
  add(kInfoOnly, "producer_version", run.producer_version);
  add(kInfoOnly, "started", run.started);
  add(kInReport, "precision", run.precision);
  if (!run.arithmetic.empty()) add(kInReport, "arithmetic", run.arithmetic);
  const std::string recipe = quantization_recipe(reader);
  if (!recipe.empty()) add(kInReport, "quantization_scaling", recipe);
  add(kInReport, "backend", run.backend);
  add(kInfoOnly, "machine", run.machine);
  add(kInfoOnly, "dtypes", run.dtypes);
  add(kInfoOnly, "seed", static_cast<int64_t>(run.seed));
  add(kInfoOnly, "rank", int64_t{run.rank});
  add(kInfoOnly, "world_size", int64_t{run.world_size});
  add(kInReport, "level", std::string(name_of(run.level)));
  if (any && totals.last.level != run.level) add(kInfoOnly, "final_level", std::string(name_of(totals.last.level)));
  add(kInfoOnly, "every", run.every);
  if (!run.filters.empty()) add(kInfoOnly, "filters", run.filters);

  add(kInReport, "steps", count_cell(totals.steps), Unit::count);
  add(kInfoOnly, "first_step", any ? count_cell(totals.first.step) : Cell(Unknown{}));
  add(kInfoOnly, "last_step", any ? count_cell(totals.last.step) : Cell(Unknown{}));
  add(kInReport, "first_loss", loss_cell(totals, totals.first));
  add(kInReport, "final_loss", loss_cell(totals, totals.last));
  add(kInfoOnly, "nonfinite_losses", count_cell(totals.nonfinite_losses), Unit::count);
  const Table metrics = metrics_table(reader, options.steps);
  for (const auto& [name, unit] : {std::pair{"test_loss", Unit::none}, std::pair{"test_accuracy", Unit::share}}) {
    const auto last = std::find_if(metrics.rows.rbegin(), metrics.rows.rend(),
                                   [&](const TableRow& row) { return std::get<std::string>(row.cells[0]) == name; });
    if (last != metrics.rows.rend()) add(kInReport, name, last->cells[2], unit);
  }
  add(kInReport, "skipped_steps", count_cell(totals.skipped), Unit::count);
  add(kInReport, "loss_scale", any ? Cell(totals.last.scale_after) : Cell(Unknown{}), Unit::scale);
  add(kInfoOnly, "seconds", totals.seconds, Unit::seconds);
  add(kInReport, "seconds_per_step", any ? Cell(totals.seconds / static_cast<double>(totals.steps)) : Cell(Unknown{}),
      Unit::seconds);
  add(kInReport, "peak_memory_bytes", any ? count_cell(totals.peak_memory) : Cell(Unknown{}), Unit::bytes);

  add(kInfoOnly, "ops", count_cell(reader.ops().size()), Unit::count);
  add(kInfoOnly, "tensors", count_cell(reader.tensors().size()), Unit::count);
  // Counted for the whole trace.
  add(options.restricts_steps() ? kInfoOnly : kInReport, "tensor_rows", count_cell(reader.tensor_row_count()), Unit::count);
  add(kInfoOnly, "events", count_cell(reader.events().size()), Unit::count);
  add(kInfoOnly, "file_bytes", count_cell(reader.file_bytes()), Unit::bytes);
  const double rows = static_cast<double>(reader.tensor_row_count());
  add(kInfoOnly, "bytes_per_row", rows > 0 ? Cell(static_cast<double>(reader.file_bytes()) / rows) : Cell(Unknown{}));
  if (for_report) return report;
  if (const std::vector<TracePart> parts = reader.parts(); parts.size() > 1) report.tables.push_back(parts_table(reader, parts));
  if (!metrics.rows.empty()) report.tables.push_back(metrics);
  if (!recipe.empty()) report.tables.push_back(quantization_scale_table(reader, options));
  if (Table recording = recording_table(reader); !recording.rows.empty()) report.tables.push_back(std::move(recording));
  return report;
}

}  // namespace

Report analyze_info(const Snapshot& reader, const AnalysisOptions& options) {
  Report report = describe_trace(reader, options, false);
  add_missing_step_findings(reader, options, report);
  return report;
}

Report info_for_report(const Snapshot& reader, const AnalysisOptions& options) { return describe_trace(reader, options, true); }

}  // namespace ulpscope
