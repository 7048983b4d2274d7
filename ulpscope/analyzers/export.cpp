#include "ulpscope/analyzers/export.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

// Pieces are handed on when they are this large.
constexpr size_t kPiece = 1 << 16;

// Writes rows of named fields. Every row names the same fields in the same order; CSV takes its header from the first.
class RowWriter {
 public:
  RowWriter(ExportFormat format, const std::function<bool(std::string_view)>& write)
      : json_(format == ExportFormat::json), write_(write) {
    if (json_) text_ = "[";
  }
  // The header of a table without rows.
  void header(std::initializer_list<std::string_view> names) {
    if (json_) return;
    for (const std::string_view name : names) {
      if (name != *names.begin()) text_ += ',';
      text_ += name;
    }
    text_ += '\n';
  }
  // False: nobody reads any more.
  bool begin_row() {
    if (json_) text_ += rows_ == 0 ? "\n{" : ",\n{";
    ++rows_;
    first_field_ = true;
    return !stopped_;
  }
  bool end_row() {
    text_ += json_ ? "}" : "\n";
    if (text_.size() >= kPiece) flush();
    return !stopped_;
  }
  void finish() {
    if (json_) text_ += "\n]\n";
    flush();
  }

  void add(std::string_view name, double value) {
    if (std::isfinite(value)) {
      raw(name, fmt::format("{}", value));
    } else {
      word(name, std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
    }
  }
  void add(std::string_view name, uint64_t value) { raw(name, fmt::format("{}", value)); }
  void add(std::string_view name, int64_t value) { raw(name, fmt::format("{}", value)); }
  void add(std::string_view name, int value) { add(name, int64_t{value}); }
  void add(std::string_view name, bool value) { raw(name, value ? "true" : "false"); }
  void add(std::string_view name, std::string_view value) {
    begin_field(name);
    json_ ? add_json_text(value) : add_csv_text(value);
  }
  void add(std::string_view name, const char* value) { add(name, std::string_view(value)); }
  void add(std::string_view name, const std::string& value) { add(name, std::string_view(value)); }
  void unknown(std::string_view name) { raw(name, json_ ? "null" : ""); }
  template <typename T>
  void add_known(std::string_view name, bool known, T value) {
    known ? add(name, value) : unknown(name);
  }
  void add_op_id(std::string_view name, uint64_t id) { add(name, fmt::format("{:016x}", id)); }
  void add_list(std::string_view name, const std::vector<int64_t>& values) {
    std::string list;
    for (const int64_t value : values) list += fmt::format("{}{}", list.empty() ? "" : json_ ? "," : " ", value);
    raw(name, json_ ? fmt::format("[{}]", list) : list);
  }
  void add_histogram(std::string_view name, const ExponentHistogram& histogram) {
    int first = 0, last = ExponentHistogram::kBins - 1;
    while (first <= last && histogram.bins[first] == 0) ++first;
    while (last > first && histogram.bins[last] == 0) --last;
    std::string counts;
    for (int bin = first; bin <= last; ++bin) counts += fmt::format("{}{}", bin == first ? "" : ",", histogram.bins[bin]);
    const int exponent = first <= last ? ExponentHistogram::exponent(first) : 0;
    if (json_) {
      raw(name, fmt::format(R"({{"first_exponent":{},"counts":[{}],"below_range":{},"above_range":{}}})", exponent, counts,
                            histogram.below_range, histogram.above_range));
    } else {
      add(name, counts.empty() ? std::string() : fmt::format("{}:{}", exponent, counts));
    }
  }

 private:
  void flush() {
    if (!stopped_ && !text_.empty()) stopped_ = !write_(text_);
    text_.clear();
  }
  void begin_field(std::string_view name) {
    if (!first_field_) text_ += ',';
    first_field_ = false;
    if (!json_) return;
    text_ += '"';
    text_ += name;
    text_ += "\":";
  }
  void raw(std::string_view name, std::string_view value) {
    begin_field(name);
    text_ += value;
  }
  // A word that JSON quotes and CSV does not.
  void word(std::string_view name, std::string_view value) {
    begin_field(name);
    if (json_) text_ += '"';
    text_ += value;
    if (json_) text_ += '"';
  }
  void add_csv_text(std::string_view value) {
    if (value.find_first_of(",\"\r\n") == std::string_view::npos) {
      text_ += value;
      return;
    }
    text_ += '"';
    for (const char c : value) {
      if (c == '"') text_ += '"';
      text_ += c;
    }
    text_ += '"';
  }
  void add_json_text(std::string_view value) {
    text_ += '"';
    for (const char c : value) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        text_ += '\\';
        text_ += c;
      } else if (byte < 0x20) {
        text_ += fmt::format("\\u{:04x}", byte);
      } else {
        text_ += c;
      }
    }
    text_ += '"';
  }

  bool json_;
  const std::function<bool(std::string_view)>& write_;
  std::string text_;
  uint64_t rows_ = 0;
  bool first_field_ = true, stopped_ = false;
};

bool in_range(const StepRange& range, uint64_t step) { return step >= range.first && step < range.last; }

void export_rows(const TraceReader& reader, const Selection& selection, const AnalysisOptions& options, RowWriter& out) {
  static constexpr const char* kLevels[] = {"none", "health", "full"};
  out.header({"step",
              "micro_batch",
              "pass",
              "sequence",
              "tensor",
              "op",
              "op_name",
              "module",
              "phase",
              "slot",
              "role",
              "parameter",
              "dtype",
              "scale",
              "known",
              "before_rounding",
              "count",
              "nan",
              "positive_infinity",
              "negative_infinity",
              "zeros",
              "negatives",
              "smallest",
              "largest",
              "sum",
              "sum_of_squares",
              "flushed",
              "subnormal",
              "inexact_subnormal",
              "overflowed",
              "rescued",
              "histogram"});
  reader.visit_rows(options.steps, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      if (!selection.contains(row)) continue;
      const TensorInfo& tensor = selection.tensor(row.tensor);
      const OpInfo& op = selection.op(row.tensor);
      const bool health = row.known != StatisticsLevel::none, full = row.known == StatisticsLevel::full;
      const TensorStatistics& statistics = row.statistics;
      if (!out.begin_row()) return false;
      out.add("step", row.step);
      out.add("micro_batch", uint64_t{row.micro_batch});
      out.add("pass", int{row.pass});
      out.add("sequence", uint64_t{row.sequence});
      out.add("tensor", uint64_t{row.tensor});
      out.add_op_id("op", op.id);
      out.add("op_name", op.name);
      out.add("module", op.module);
      out.add("phase", name_of(op.phase));
      out.add("slot", int{tensor.slot});
      out.add("role", name_of(tensor.role));
      out.add("parameter", tensor.parameter);
      out.add("dtype", info(tensor.dtype).name);
      out.add("scale", row.scale);
      out.add("known", kLevels[static_cast<size_t>(row.known)]);
      out.add_known("before_rounding", health, row.before_rounding);
      out.add_known("count", health, statistics.count);
      out.add_known("nan", health, statistics.nan);
      out.add_known("positive_infinity", health, statistics.positive_infinity);
      out.add_known("negative_infinity", health, statistics.negative_infinity);
      out.add_known("zeros", health, statistics.zeros);
      out.add_known("negatives", full, statistics.negatives);
      out.add_known("smallest", full, statistics.smallest);
      out.add_known("largest", full, statistics.largest);
      out.add_known("sum", full, statistics.sum);
      out.add_known("sum_of_squares", full, statistics.sum_of_squares);
      out.add_known("flushed", row.rounding_known, row.rounding.flushed);
      out.add_known("subnormal", row.rounding_known, row.rounding.subnormal);
      out.add_known("inexact_subnormal", row.rounding_known, row.rounding.inexact_subnormal);
      out.add_known("overflowed", row.rounding_known, row.rounding.overflowed);
      out.add_known("rescued", row.rounding_known, row.rounding.rescued);
      if (full) {
        out.add_histogram("histogram", statistics.histogram);
      } else {
        out.unknown("histogram");
      }
      if (!out.end_row()) return false;
    }
    return !options.cancelled();
  });
}

void export_steps(const TraceReader& reader, const AnalysisOptions& options, RowWriter& out) {
  out.header({"step", "graph", "loss", "learning_rate", "scale_before", "scale_after", "skipped", "gradient_norm",
              "clipped_gradient_norm", "seconds", "peak_memory", "level"});
  reader.visit_steps(options.steps, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) {
      if (!out.begin_row()) return false;
      out.add("step", row.step);
      out.add("graph", uint64_t{row.graph});
      out.add_known("loss", row.loss_known != 0, row.loss);
      out.add_known("learning_rate", !std::isnan(row.learning_rate), row.learning_rate);
      out.add("scale_before", row.scale_before);
      out.add("scale_after", row.scale_after);
      out.add("skipped", row.skipped != 0);
      out.add_known("gradient_norm", row.norm_known != 0, row.gradient_norm);
      out.add_known("clipped_gradient_norm", row.norm_known != 0, row.clipped_gradient_norm);
      out.add("seconds", row.seconds);
      out.add("peak_memory", row.peak_memory);
      out.add("level", row.level <= static_cast<uint8_t>(RecordLevel::full) ? name_of(static_cast<RecordLevel>(row.level)) : "");
      if (!out.end_row()) return false;
    }
    return !options.cancelled();
  });
}

void export_ops(const TraceReader& reader, RowWriter& out) {
  out.header({"index", "id", "forward_id", "name", "module", "phase", "attributes"});
  uint64_t index = 0;
  for (const OpInfo& op : reader.ops()) {
    if (!out.begin_row()) return;
    out.add("index", index++);
    out.add_op_id("id", op.id);
    if (op.forward_id != 0) {
      out.add_op_id("forward_id", op.forward_id);
    } else {
      out.unknown("forward_id");
    }
    out.add("name", op.name);
    out.add("module", op.module);
    out.add("phase", name_of(op.phase));
    out.add("attributes", op.attributes);
    if (!out.end_row()) return;
  }
}

void export_tensors(const TraceReader& reader, const Selection& selection, RowWriter& out) {
  out.header({"index", "op", "op_name", "module", "slot", "role", "dtype", "parameter", "shape", "shard_offset", "replicated"});
  for (uint32_t index = 0; index < reader.tensors().size(); ++index) {
    if (!selection.contains(index)) continue;
    const TensorInfo& tensor = selection.tensor(index);
    const OpInfo& op = selection.op(index);
    if (!out.begin_row()) return;
    out.add("index", uint64_t{index});
    out.add_op_id("op", op.id);
    out.add("op_name", op.name);
    out.add("module", op.module);
    out.add("slot", int{tensor.slot});
    out.add("role", name_of(tensor.role));
    out.add("dtype", info(tensor.dtype).name);
    out.add("parameter", tensor.parameter);
    out.add_list("shape", tensor.shape);
    out.add_list("shard_offset", tensor.shard_offset);
    out.add("replicated", tensor.replicated);
    if (!out.end_row()) return;
  }
}

void export_events(const TraceReader& reader, const AnalysisOptions& options, RowWriter& out) {
  out.header({"step", "kind", "tensor", "count", "value", "text"});
  for (const EventRow& event : reader.events()) {
    if (!in_range(options.steps, event.step)) continue;
    if (!out.begin_row()) return;
    out.add("step", event.step);
    out.add("kind", name_of(event.kind));
    out.add_known("tensor", event.tensor >= 0, event.tensor);
    out.add("count", event.count);
    out.add("value", event.value);
    out.add("text", event.text);
    if (!out.end_row()) return;
  }
}

void export_updates(const TraceReader& reader, const Selection& selection, const AnalysisOptions& options, RowWriter& out) {
  out.header({"step", "tensor", "parameter", "nonzero", "lost", "lost_to_decay"});
  reader.visit_updates(options.steps, [&](std::span<const UpdateRow> rows) {
    for (const UpdateRow& row : rows) {
      if (!selection.contains(row.tensor)) continue;
      if (!out.begin_row()) return false;
      out.add("step", row.step);
      out.add("tensor", uint64_t{row.tensor});
      out.add("parameter", selection.tensor(row.tensor).parameter);
      out.add("nonzero", row.nonzero);
      out.add("lost", row.lost);
      out.add("lost_to_decay", row.lost_to_decay);
      if (!out.end_row()) return false;
    }
    return !options.cancelled();
  });
}

void export_captures(const TraceReader& reader, const Selection& selection, const AnalysisOptions& options, RowWriter& out) {
  out.header({"step", "tensor", "op_name", "module", "operand", "element", "shape", "value", "overwritten", "terms", "broke_at",
              "partial_sum", "attributes"});
  for (const CaptureRow& row : reader.captures(options.steps)) {
    if (!selection.contains(row.tensor)) continue;
    const bool element = row.operand < 0;  // the element itself, whose row says how it was summed
    if (!out.begin_row()) return;
    out.add("step", row.step);
    out.add("tensor", uint64_t{row.tensor});
    out.add("op_name", selection.op(row.tensor).name);
    out.add("module", selection.op(row.tensor).module);
    out.add_known("operand", !element, int64_t{row.operand});
    out.add("element", row.element);
    out.add_list("shape", row.shape);
    out.add("value", row.value);
    out.add_known("overwritten", !element, row.overwritten);
    out.add_known("terms", element, row.terms);
    out.add_known("broke_at", element && row.broke_at >= 0, row.broke_at);
    out.add_known("partial_sum", element && row.broke_at >= 0, row.partial_sum);
    out.add_known("attributes", element, row.attributes);
    if (!out.end_row()) return;
  }
}

void export_samples(const TraceReader& reader, const Selection& selection, const AnalysisOptions& options, RowWriter& out) {
  out.header({"step", "tensor", "element", "value"});
  reader.visit_samples(options.steps, [&](std::span<const SampleRow> rows) {
    for (const SampleRow& row : rows) {
      if (!selection.contains(row.tensor)) continue;
      if (!out.begin_row()) return false;
      out.add("step", row.step);
      out.add("tensor", uint64_t{row.tensor});
      out.add("element", row.element);
      out.add("value", row.value);
      if (!out.end_row()) return false;
    }
    return !options.cancelled();
  });
}

void export_measures(const TraceReader& reader, const Selection& selection, const AnalysisOptions& options, RowWriter& out) {
  out.header({"step", "tensor", "name", "value"});
  reader.visit_measures(options.steps, [&](std::span<const MeasureRow> rows) {
    for (const MeasureRow& row : rows) {
      if (!selection.contains(row.tensor)) continue;
      if (!out.begin_row()) return false;
      out.add("step", row.step);
      out.add("tensor", uint64_t{row.tensor});
      out.add("name", row.name);
      out.add("value", row.value);
      if (!out.end_row()) return false;
    }
    return !options.cancelled();
  });
}

}  // namespace

const std::vector<std::string>& export_tables() {
  static const std::vector<std::string> tables{"stats",   "steps",    "ops",     "tensors", "events",
                                               "updates", "captures", "samples", "measures"};
  return tables;
}

void export_table(const TraceReader& reader, std::string_view table, ExportFormat format, const AnalysisOptions& options,
                  const std::function<bool(std::string_view)>& write) {
  const Selection selection(reader, options);
  RowWriter out(format, write);
  if (table == "stats" || table == "rows") {
    export_rows(reader, selection, options, out);
  } else if (table == "steps") {
    export_steps(reader, options, out);
  } else if (table == "ops") {
    export_ops(reader, out);
  } else if (table == "tensors") {
    export_tensors(reader, selection, out);
  } else if (table == "events") {
    export_events(reader, options, out);
  } else if (table == "updates") {
    export_updates(reader, selection, options, out);
  } else if (table == "captures") {
    export_captures(reader, selection, options, out);
  } else if (table == "samples") {
    export_samples(reader, selection, options, out);
  } else if (table == "measures") {
    export_measures(reader, selection, options, out);
  } else {
    throw usage_error("a trace has no table '{}'{}", table, did_you_mean(table, export_tables()));
  }
  out.finish();
}

}  // namespace ulpscope
