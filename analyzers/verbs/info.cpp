#include "ulpscope/analyzers/verbs/info.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/findings/all.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/run_memory.h"
#include "ulpscope/analyzers/subject/coverage.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/totals/followed.h"

namespace ulpscope {

namespace {

// What changed how much is recorded.
Table recording_table(const AnalysisContext& context) {
  Table table{"recording", "Changes of what is recorded", {{"step"}, {"kind", ColumnKind::text}, {"text", ColumnKind::text}}, {}, 0,
              ""};
  for (const EventRow& event : context.trace.events()) {
    if (event.kind != EventKind::level_lowered && event.kind != EventKind::cut_short && event.kind != EventKind::stopped) continue;
    table.rows.push_back({context.selection.key_of_step(event.step, event.rank),
                          {count_cell(event.step), std::string(name_of(event.kind)), event.text}});
  }
  return table;
}

Table metrics_table(const AnalysisContext& context, const StepRange& steps) {
  Table table{"metrics", "Metrics", {{"metric", ColumnKind::text}, {"step"}, {"value"}}, {}, 0, ""};
  for (const EventRow& event : context.trace.events()) {
    if (event.kind != EventKind::metric || is_of_coverage(event) || event.step < steps.first || event.step >= steps.last) continue;
    table.rows.push_back(
        {context.selection.key_of_step(event.step, event.rank), {event.text, count_cell(event.step), event.value}});
  }
  return table;
}

// Tells what was left out, and why.
Table coverage_table(const Coverage& coverage) {
  Table table{
      "not_recorded", "What was not recorded", {{"what", ColumnKind::text}, {"count", ColumnKind::number, Unit::count}}, {}, 0, ""};
  const auto add = [&](std::string what, uint64_t count) {
    if (count > 0) table.rows.push_back({RowKey(), {std::move(what), count_cell(count)}});
  };
  for (const auto& [kind, count] : coverage.not_read)
    add(fmt::format("calls of ops on tensors that are not read: {}", kind), count);
  add("calls that the recorder refused", coverage.refused);
  for (const auto& [name, count] : coverage.unmapped) add(fmt::format("forward ops of backward ops: {}", name), count);
  add("modules that were compiled: what is not dispatched in them", coverage.compiled_modules);
  add("calls of modules in other threads", coverage.calls_of_other_threads);
  add("blocks in which recording was paused", coverage.paused_blocks);
  return table;
}

// The quantization scales of FP8 tensors.
class QuantizationScales {
 public:
  struct Scales {
    double smallest = INFINITY, largest = 0, last = 0;
    void append(const Scales& later) {
      smallest = std::min(smallest, later.smallest);
      largest = std::max(largest, later.largest);
      last = later.last;
    }
    void beside(const Scales& other) { append(other); }
  };
  void begin(const AnalysisContext& context) { context_ = &context; }
  void update(const Block& block) {
    PerTensor<Scales>& scales = scales_.at(block.rank, block.step);
    for (const TensorRow& row : block.rows) {
      const double scale = row.quantization_scale;
      if (row.tensor < context_->selection.size() && is_quantized(context_->selection.tensor(row.tensor).dtype))
        scales[row.tensor].append({scale, scale, scale});
    }
  }
  void merge(QuantizationScales&& other) { scales_.merge(std::move(other.scales_)); }
  TablesRead reads() const { return {.histograms = false}; }
  PerTensor<Scales> whole() const { return scales_.whole(); }

 private:
  const AnalysisContext* context_ = nullptr;
  ByRank<PerTensor<Scales>> scales_;
};

// Those that came nearest to zero first.
Table quantization_scale_table(const AnalysisContext& context, const QuantizationScales& seen) {
  Table table{"quantization_scales",
              "Quantization scales of FP8 tensors, smallest first",
              {{"tensor", ColumnKind::text}, {"type", ColumnKind::text}, {"smallest"}, {"largest"}, {"last"}},
              {},
              0,
              ""};
  const Selection& selection = context.selection;
  const PerTensor<QuantizationScales::Scales> by_tensor = seen.whole();
  std::vector<uint32_t> sorted = by_tensor.tensors();
  std::sort(sorted.begin(), sorted.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(by_tensor.find(a)->smallest, a) < std::pair(by_tensor.find(b)->smallest, b);
  });
  for (const uint32_t tensor : sorted) {
    if (context.options.limit > 0 && table.rows.size() == context.options.limit) break;
    const auto& [smallest, largest, last] = *by_tensor.find(tensor);
    table.rows.push_back(
        {selection.key(tensor),
         {selection.name(tensor), std::string(info(selection.tensor(tensor).dtype).name), smallest, largest, last}});
  }
  table.rows_left_out = sorted.size() - table.rows.size();
  return table;
}

// The traces that are read as one run.
Table parts_table(const AnalysisContext& context, const StepFacts& steps) {
  Table table{"parts",
              "Traces that are read as one run",
              {{"trace", ColumnKind::text},
               {"run", ColumnKind::text},
               {"rank"},
               {"first_step"},
               {"steps", ColumnKind::number, Unit::count},
               {"precision", ColumnKind::text},
               {"arithmetic", ColumnKind::text}},
              {},
              0,
              ""};
  for (const TracePart& part : context.parts) {
    RowKey key;
    key.run = part.run.run_id;
    key.rank = part.run.rank;
    table.rows.push_back({std::move(key),
                          {part.path, part.run.run_id, int64_t{part.run.rank}, count_cell(part.steps.first),
                           count_cell(steps.steps_of(part).size()), part.run.precision, text_or_none(part.run.arithmetic)}});
  }
  return table;
}

Table sources_table(const Snapshot& reader, size_t limit) {
  Table table{"sources",
              "Where samples come from",
              {{"source"},
               {"name", ColumnKind::text},
               {"part", ColumnKind::text},
               {"file", ColumnKind::text},
               {"inside", ColumnKind::text},
               {"columns", ColumnKind::text},
               {"first_sample"},
               {"samples", ColumnKind::number, Unit::count}},
              {},
              0,
              ""};
  const std::vector<SourceInfo> sources = reader.sources();
  for (const SourceInfo& source : sources) {
    if (limit > 0 && table.rows.size() == limit) break;
    table.rows.push_back({RowKey(),
                          {count_cell(source.source), source.name, source.part, source.file, source.inside, source.columns,
                           count_cell(source.first_sample), count_cell(source.samples)}});
  }
  table.rows_left_out = sources.size() - table.rows.size();
  return table;
}

Table products_table(const std::vector<ProductInfo>& products, size_t limit) {
  Table table{"products",
              "Algorithms of the device's library for matrix products",
              {{"product", ColumnKind::text}, {"algorithm", ColumnKind::text}},
              {},
              0,
              "The last bits of sums depend on the algorithm."};
  for (const ProductInfo& product : products) {
    if (limit > 0 && table.rows.size() == limit) break;
    table.rows.push_back({RowKey(), {product.product, product.algorithm}});
  }
  table.rows_left_out = products.size() - table.rows.size();
  return table;
}

// Where a fact is shown: `report` has the few that a reader of findings needs, `info` all.
enum Where { kInfoOnly, kInReport };

Report describe_trace(const AnalysisContext& context, const StepFacts& steps, bool for_report) {
  const Snapshot& reader = context.trace;
  const AnalysisOptions& options = context.options;
  const RunInfo& run = reader.run();
  const StepTotals totals = steps.whole();
  const bool any = totals.count > 0;
  const auto loss_cell = [&](const StepRow& row) { return any && row.loss_known ? Cell(row.loss) : Cell(Unknown{}); };
  Report report;
  report.analysis = "info";
  report.title = run.experiment_name.empty() ? "Trace" : "Trace of " + run.experiment_name;
  report.sources.push_back(source_of(reader));
  report.complete = !options.cancelled();
  const auto add = [&](Where where, std::string_view name, Cell value, Unit unit = Unit::none) {
    if (where == kInReport || !for_report) report.add_fact(name, std::move(value), unit);
  };

  add(kInfoOnly, "schema_version", reader.schema_version());
  add(kInfoOnly, "writer", std::string(name_of(reader.writer_state())));
  if (!reader.closing_note().empty()) add(kInfoOnly, "closing_note", reader.closing_note());
  add(kInfoOnly, "run_id", run.run_id);
  if (!run.parent_run.empty()) {
    add(kInfoOnly, "parent_run", run.parent_run);
    add(kInfoOnly, "parent_step", run.parent_step);
  }
  add(kInfoOnly, "experiment_name", run.experiment_name);
  add(kInfoOnly, "producer", run.producer);
  add(kInfoOnly, "producer_version", run.producer_version);
  add(kInfoOnly, "started", run.started);
  add(kInReport, "precision", run.precision);
  if (!run.arithmetic.empty()) add(kInReport, "arithmetic", run.arithmetic);
  const std::string recipe = quantization_recipe(reader);
  if (!recipe.empty()) add(kInReport, "quantization_scaling", recipe);
  add(kInfoOnly, "backend", run.backend);
  add(kInfoOnly, "machine", run.machine);
  add(kInfoOnly, "dtypes", run.dtypes);
  add(kInfoOnly, "seed", static_cast<int64_t>(run.seed));
  if (const std::optional<int32_t> rank = only_rank(reader); rank && for_report && reader.lacks_ranks())
    add(kInReport, "rank", fmt::format("{} of {}", *rank, run.world_size));
  else if (rank)
    add(kInfoOnly, "rank", int64_t{*rank});
  else
    add(kInReport, "ranks", fmt::format("{}; losses and loss scale of rank {}", reader.ranks().size(), run.rank));
  add(kInfoOnly, "world_size", int64_t{run.world_size});
  add(kInfoOnly, "level", std::string(name_of(run.level)));
  const bool has_ops = totals.last.level != RecordLevel::off;
  if (any && has_ops && totals.last.level != run.level) add(kInfoOnly, "final_level", std::string(name_of(totals.last.level)));
  add(kInfoOnly, "every", run.every);
  if (!run.filters.empty()) add(kInfoOnly, "filters", run.filters);

  add(kInReport, "steps", count_cell(totals.count), Unit::count);
  if (totals.with_ops < totals.count) add(kInReport, "detailed_steps", count_cell(totals.with_ops), Unit::count);
  add(kInfoOnly, "first_step", any ? count_cell(totals.first.step) : Cell(Unknown{}));
  add(kInfoOnly, "last_step", any ? count_cell(totals.last.step) : Cell(Unknown{}));
  add(kInReport, "first_loss", loss_cell(totals.first));
  add(kInReport, "final_loss", loss_cell(totals.last));
  add(kInfoOnly, "nonfinite_losses", count_cell(totals.nonfinite_losses.size()), Unit::count);
  const Table metrics = metrics_table(context, options.steps);
  for (const MetricKind kind : {MetricKind::evaluation_loss, MetricKind::evaluation_accuracy}) {
    const std::vector<EventRow>& events = context.trace.events();
    const auto last = std::find_if(events.rbegin(), events.rend(), [&](const EventRow& event) {
      return event.metric == kind && event.step >= options.steps.first && event.step < options.steps.last;
    });
    if (last == events.rend()) continue;
    const bool is_share = kind == MetricKind::evaluation_accuracy;
    add(is_share ? kInReport : kInfoOnly, last->text, last->value, is_share ? Unit::share : Unit::none);
  }
  add(kInReport, "skipped_steps", count_cell(totals.skipped.size()), Unit::count);
  if (!totals.fitted.empty()) add(kInReport, "fitted_steps", count_cell(totals.fitted.size()), Unit::count);
  add(kInReport, "loss_scale", any ? Cell(totals.last.scale_after) : Cell(Unknown{}), Unit::scale);
  add(kInfoOnly, "seconds", totals.seconds(), Unit::seconds);
  add(kInfoOnly, "seconds_per_step", any ? Cell(totals.seconds() / static_cast<double>(totals.count)) : Cell(Unknown{}),
      Unit::seconds);
  add(kInfoOnly, "peak_memory_bytes", any ? count_cell(totals.peak_memory) : Cell(Unknown{}), Unit::bytes);

  const Coverage coverage = coverage_of(reader);
  if (coverage.is_told) add(kInfoOnly, "calls_recorded", count_cell(coverage.calls), Unit::count);
  if (coverage.timed_seconds > 0)
    add(kInfoOnly, "time_spent_in_recording", coverage.recording_seconds / coverage.timed_seconds, Unit::share);

  add(kInfoOnly, "ops", count_cell(reader.ops().size()), Unit::count);
  add(kInfoOnly, "tensors", count_cell(reader.tensors().size()), Unit::count);
  add(kInfoOnly, "tensor_rows", count_cell(reader.tensor_row_count()), Unit::count);
  for (const auto& [fact, rows_of] : {std::pair{"batch_rows", "batches"},
                                      {"parameter_rows", "parameters"},
                                      {"fingerprints", "fingerprints"},
                                      {"capture_rows", "captures"}})
    add(kInfoOnly, fact, count_cell(reader.row_count(rows_of)), Unit::count);
  const std::vector<SettingInfo> settings = reader.settings();
  add(kInfoOnly, "settings", count_cell(settings.size()), Unit::count);
  add(kInfoOnly, "settings_given",
      count_cell(static_cast<uint64_t>(
          std::count_if(settings.begin(), settings.end(), [](const SettingInfo& setting) { return setting.given; }))),
      Unit::count);
  const std::vector<ProductInfo> products = reader.products();
  if (!products.empty()) add(kInfoOnly, "library_products", count_cell(products.size()), Unit::count);
  add(kInfoOnly, "events", count_cell(reader.events().size()), Unit::count);
  add(kInfoOnly, "file_bytes", count_cell(reader.file_bytes()), Unit::bytes);
  const double rows = static_cast<double>(reader.tensor_row_count());
  add(kInfoOnly, "bytes_per_row", rows > 0 ? Cell(static_cast<double>(reader.file_bytes()) / rows) : Cell(Unknown{}));
  if (for_report) return report;
  if (context.parts.size() > 1) report.tables.push_back(parts_table(context, steps));
  if (Table sources = sources_table(reader, options.limit); !sources.rows.empty()) report.tables.push_back(std::move(sources));
  if (!products.empty()) report.tables.push_back(products_table(products, options.limit));
  if (!metrics.rows.empty()) report.tables.push_back(metrics);
  if (Table left_out = coverage_table(coverage); !left_out.rows.empty()) report.tables.push_back(std::move(left_out));
  return report;
}

}  // namespace

Report analyze_info(const Snapshot& reader, const AnalysisOptions& options) {
  const bool has_scales = !quantization_recipe(reader).empty();
  Followed<Wanted<QuantizationScales>> seen([&] { return Wanted(QuantizationScales(), has_scales); }, options);
  seen.update(reader);
  const AnalysisContext& context = seen.context();
  Report report = describe_trace(context, seen.steps(), false);
  if (has_scales) report.tables.push_back(quantization_scale_table(context, seen.analysis().get()));
  if (Table recording = recording_table(context); !recording.rows.empty()) report.tables.push_back(std::move(recording));
  RunMemory memory;
  const RunFacts facts(context, seen.steps(), {}, memory);
  for (const char* code : {"recording.missing_steps", "recording.ranks_differ", "recording.other_ranks", "recording.trace_replaced",
                           "recording.newer_trace"})
    find_one(code, facts, report);
  return report;
}

Report info_for_report(const AnalysisContext& context, const StepFacts& steps) { return describe_trace(context, steps, true); }

}  // namespace ulpscope
