#include "ulpscope/analyzers/info.h"

#include <algorithm>
#include <cmath>

namespace ulpscope {

namespace {

struct StepTotals {
  uint64_t steps = 0, skipped = 0, nonfinite_losses = 0, peak_memory = 0;
  double seconds = 0;
  StepRow first, last;
};

StepTotals total_steps(const TraceReader& reader, const AnalysisOptions& options) {
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
Table recording_table(const TraceReader& reader) {
  Table table{"recording", "Changes of the recording", {{"step"}, {"kind", ColumnKind::text}, {"text", ColumnKind::text}}, {}, 0,
              ""};
  for (const EventRow& event : reader.events()) {
    if (event.kind != EventKind::level_lowered && event.kind != EventKind::stopped) continue;
    RowKey key;
    key.step = event.step;
    table.rows.push_back({key, {count_cell(event.step), std::string(name_of(event.kind)), event.text}});
  }
  return table;
}

Table metrics_table(const TraceReader& reader) {
  Table table{"metrics", "Metrics", {{"metric", ColumnKind::text}, {"step"}, {"value"}}, {}, 0, ""};
  for (const EventRow& event : reader.events()) {
    if (event.kind != EventKind::metric) continue;
    RowKey key;
    key.step = event.step;
    table.rows.push_back({key, {event.text, count_cell(event.step), event.value}});
  }
  return table;
}

}  // namespace

Report analyze_info(const TraceReader& reader, const AnalysisOptions& options) {
  const RunInfo& run = reader.run();
  const StepTotals totals = total_steps(reader, options);
  const bool any = totals.steps > 0;
  Report report;
  report.analysis = "info";
  report.title = run.experiment_name.empty() ? "Trace" : "Trace of " + run.experiment_name;
  report.sources.push_back(source_of(reader));
  report.complete = !options.cancelled();

  report.add_fact("schema_version", count_cell(reader.schema_version()));
  report.add_fact("writer", std::string(name_of(reader.writer_state())));
  if (!reader.closing_note().empty()) report.add_fact("closing_note", reader.closing_note());
  report.add_fact("run_id", run.run_id);
  if (!run.parent_run.empty()) {
    report.add_fact("parent_run", run.parent_run);
    report.add_fact("parent_step", run.parent_step);
  }
  report.add_fact("experiment_name", run.experiment_name);
  report.add_fact("producer", run.producer);
  report.add_fact("producer_version", run.producer_version);
  report.add_fact("started", run.started);
  report.add_fact("precision", run.precision);
  report.add_fact("backend", run.backend);
  report.add_fact("machine", run.machine);
  report.add_fact("dtypes", run.dtypes);
  report.add_fact("seed", static_cast<int64_t>(run.seed));
  report.add_fact("rank", int64_t{run.rank});
  report.add_fact("world_size", int64_t{run.world_size});
  report.add_fact("level", std::string(name_of(run.level)));
  if (any && totals.last.level != run.level) report.add_fact("final_level", std::string(name_of(totals.last.level)));
  report.add_fact("every", run.every);
  if (!run.filters.empty()) report.add_fact("filters", run.filters);

  report.add_fact("steps", count_cell(totals.steps), Unit::count);
  report.add_fact("first_step", any ? count_cell(totals.first.step) : Cell(Unknown{}));
  report.add_fact("last_step", any ? count_cell(totals.last.step) : Cell(Unknown{}));
  report.add_fact("first_loss", loss_cell(totals, totals.first));
  report.add_fact("final_loss", loss_cell(totals, totals.last));
  report.add_fact("nonfinite_losses", count_cell(totals.nonfinite_losses), Unit::count);
  const Table metrics = metrics_table(reader);
  for (auto row = metrics.rows.rbegin(); row != metrics.rows.rend(); ++row) {
    if (std::get<std::string>(row->cells[0]) != "test_accuracy") continue;
    report.add_fact("test_accuracy", row->cells[2], Unit::share);
    break;
  }
  report.add_fact("skipped_steps", count_cell(totals.skipped), Unit::count);
  report.add_fact("loss_scale", any ? Cell(totals.last.scale_after) : Cell(Unknown{}));
  report.add_fact("seconds", totals.seconds, Unit::seconds);
  report.add_fact("seconds_per_step", any ? Cell(totals.seconds / static_cast<double>(totals.steps)) : Cell(Unknown{}),
                  Unit::seconds);
  report.add_fact("peak_memory_bytes", any ? count_cell(totals.peak_memory) : Cell(Unknown{}), Unit::bytes);

  report.add_fact("ops", count_cell(reader.ops().size()), Unit::count);
  report.add_fact("tensors", count_cell(reader.tensors().size()), Unit::count);
  report.add_fact("tensor_rows", count_cell(reader.tensor_row_count()), Unit::count);
  report.add_fact("events", count_cell(reader.events().size()), Unit::count);
  report.add_fact("file_bytes", count_cell(reader.file_bytes()), Unit::bytes);
  const double rows = static_cast<double>(reader.tensor_row_count());
  report.add_fact("bytes_per_row", rows > 0 ? Cell(static_cast<double>(reader.file_bytes()) / rows) : Cell(Unknown{}));
  if (!metrics.rows.empty()) report.tables.push_back(metrics);
  if (Table recording = recording_table(reader); !recording.rows.empty()) report.tables.push_back(std::move(recording));
  return report;
}

}  // namespace ulpscope
