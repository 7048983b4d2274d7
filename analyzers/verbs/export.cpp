#include "ulpscope/analyzers/verbs/export.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/trace/columns.h"
#include "ulpscope/trace/sources.h"

namespace ulpscope {

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

namespace {

using trace_detail::Refers;

// Pieces are handed on when they are this large.
constexpr size_t kPiece = 1 << 16;

// Writes rows of named fields. Every row has the same fields in the same order.
class RowWriter {
 public:
  RowWriter(ExportFormat format, const std::function<bool(std::string_view)>& write)
      : json_(format == ExportFormat::json), write_(write) {
    if (json_) text_ += '[';
  }
  // The fields that follow, until end_row, are the header of CSV; of JSON they are dropped.
  void begin_header() {
    in_header_ = true;
    first_field_ = true;
  }
  void begin_row() {
    if (json_) text_ += rows_ == 0 ? "\n{" : ",\n{";
    ++rows_;
    first_field_ = true;
  }
  // False: nobody reads any more.
  bool end_row() {
    if (!json_) text_ += '\n';
    if (json_ && !in_header_) text_ += '}';
    in_header_ = false;
    if (text_.size() >= kPiece) flush();
    return !stopped_;
  }
  void finish() {
    if (json_) text_ += "\n]\n";
    flush();
  }

  void add(std::string_view name, double value) {
    const std::string text = exact_text(value);
    raw(name, json_ && !std::isfinite(value) ? fmt::format("\"{}\"", text) : text);
  }
  void add(std::string_view name, bool value) { raw(name, value ? "true" : "false"); }
  template <typename T>
  requires std::is_integral_v<T>
  void add(std::string_view name, T value) { raw(name, fmt::format("{}", value)); }
  void add(std::string_view name, std::string_view value) { raw(name, json_ ? json_text(value) : csv_field(value)); }
  void add(std::string_view name, const char* value) { add(name, std::string_view(value)); }
  void add(std::string_view name, const std::string& value) { add(name, std::string_view(value)); }
  void add(std::string_view name, const std::vector<int64_t>& values) {
    const std::string list = fmt::format("{}", fmt::join(values, json_ ? "," : " "));
    raw(name, json_ ? fmt::format("[{}]", list) : list);
  }
  void add(std::string_view name, const ExponentHistogram& histogram) {
    int first = 0, last = ExponentHistogram::kBins - 1;
    while (first <= last && histogram.bins[first] == 0) ++first;
    while (last > first && histogram.bins[last] == 0) --last;
    std::string counts;
    for (int bin = first; bin <= last; ++bin) counts += fmt::format("{}{}", bin == first ? "" : ",", histogram.bins[bin]);
    const int exponent = first <= last ? ExponentHistogram::exponent(first) : 0;
    if (json_) {
      raw(name, fmt::format(R"({{"first_exponent":{},"counts":[{}]}})", exponent, counts));
    } else {
      add(name, counts.empty() ? std::string() : fmt::format("{}:{}", exponent, counts));
    }
  }
  void add_op_id(std::string_view name, uint64_t id) { id == 0 ? add_unknown(name) : add(name, fmt::format("{:016x}", id)); }
  void add_unknown(std::string_view name) { raw(name, json_ ? "null" : ""); }

 private:
  void flush() {
    if (!stopped_ && !text_.empty()) stopped_ = !write_(text_);
    text_.clear();
  }
  void raw(std::string_view name, std::string_view value) {
    if (in_header_ && json_) return;
    if (!first_field_) text_ += ',';
    first_field_ = false;
    if (json_) text_ += fmt::format("\"{}\":", name);
    text_ += in_header_ ? name : value;
  }
  static std::string json_text(std::string_view value) {
    std::string text = "\"";
    for (const char c : value) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        text += '\\';
        text += c;
      } else if (byte < 0x20) {
        text += fmt::format("\\u{:04x}", byte);
      } else {
        text += c;
      }
    }
    return text + '"';
  }

  bool json_;
  const std::function<bool(std::string_view)>& write_;
  std::string text_;
  uint64_t rows_ = 0;
  bool first_field_ = true, in_header_ = false, stopped_ = false;
};

// Writes the rows of one table, with the columns that the schema declares for `Row`.
template <typename Row>
class TableExport {
 public:
  TableExport(const Selection& selection, RowWriter& out) : selection_(selection), out_(out) {}

  // Of the part that the next rows are from. `rank`: where the rows of several stand in one table; before the header too.
  void set_rank(std::optional<int32_t> rank) { rank_ = rank; }
  void set_sources(SampleFinder finder) { finder_ = std::move(finder); }

  void write_header() {
    out_.begin_header();
    write_fields(Row{}, 0, nullptr);
    out_.end_row();
  }
  // Rows of a table, `first` being the index of the first. False: nobody reads any more.
  bool write(std::span<const Row> rows, uint64_t first) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::optional<uint32_t> tensor = tensor_of(rows[i], first + i);
      if (tensor && !selection_.contains(*tensor)) continue;
      out_.begin_row();
      write_fields(rows[i], first + i, tensor ? &*tensor : nullptr);
      if (!out_.end_row()) return false;
    }
    return true;
  }

 private:
  static constexpr bool kIsTensor = std::is_same_v<Row, TensorInfo>;
  static constexpr bool kHasIndex = kIsTensor || std::is_same_v<Row, OpInfo>;

  // The tensor that the row is, or that it is about: that of the first column that refers to one.
  static std::optional<uint32_t> tensor_of(const Row& row, uint64_t index) {
    std::optional<uint32_t> tensor;
    if (kIsTensor) tensor = static_cast<uint32_t>(index);
    trace_detail::for_each_column<Row>([&](const auto& column, auto) {
      if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(column.get(row))>>) {
        if (!tensor && column.refers == Refers::tensors && static_cast<int64_t>(column.get(row)) >= 0) {
          tensor = static_cast<uint32_t>(column.get(row));
        }
      }
    });
    return tensor;
  }

  void write_fields(const Row& row, uint64_t index, const uint32_t* tensor) {
    if (rank_) out_.add("rank", *rank_);
    if (kHasIndex) out_.add("index", index);
    const TableSpec& table = spec(trace_detail::Table<Row>::id);
    bool named = false;
    trace_detail::for_each_column<Row>([&](const auto& column, auto position) {
      const auto& field = column.get(row);
      using Field = std::remove_cvref_t<decltype(field)>;
      if (!column.known(row)) {
        out_.add_unknown(column.name);
      } else if constexpr (std::is_enum_v<Field>) {
        out_.add(column.name, table.columns[position].values[static_cast<size_t>(field)]);
      } else if constexpr (std::is_same_v<Field, uint64_t>) {
        column.refers == Refers::op_ids ? out_.add_op_id(column.name, field) : out_.add(column.name, field);
      } else if constexpr (std::is_same_v<Field, int64_t>) {
        column.refers == Refers::tensors&& field < 0 ? out_.add_unknown(column.name) : out_.add(column.name, field);
      } else {
        out_.add(column.name, field);
      }
      if (column.refers == Refers::tensors && !std::exchange(named, true)) {
        write_op(tensor);
        write_tensor(tensor);
      } else if (column.refers == Refers::ops && kIsTensor) {
        write_op(tensor);
      }
    });
    if constexpr (std::is_same_v<Row, BatchRow>) out_.add("place", finder_.find(row).text());
  }
  void write_op(const uint32_t* tensor) {
    static const OpInfo none;
    const OpInfo& op = tensor ? selection_.op(*tensor) : none;
    const auto add = [&](const char* name, std::string_view value) { tensor ? out_.add(name, value) : out_.add_unknown(name); };
    out_.add_op_id("op_id", op.id);
    add("op_name", op.name);
    add("module", op.module);
    add("phase", name_of(op.phase));
  }
  void write_tensor(const uint32_t* index) {
    static const TensorInfo none;
    const TensorInfo& tensor = index ? selection_.tensor(*index) : none;
    const auto add = [&](const char* name, const auto& value) { index ? out_.add(name, value) : out_.add_unknown(name); };
    add("slot", tensor.slot);
    add("role", name_of(tensor.role));
    add("parameter", tensor.parameter);
    add("dtype", info(tensor.dtype).name);
  }

  const Selection& selection_;
  RowWriter& out_;
  std::optional<int32_t> rank_;
  SampleFinder finder_{{}};
};

// Calls visit(rows, index of the first) for the rows of a table that lie in the range of steps. visit returns false to stop.
template <typename Row, typename Visit>
void visit_table(const Snapshot& reader, StepRange range, Visit&& visit) {
  const auto visit_steps = [&](std::span<const Row> rows) { return visit(rows, 0); };
  if constexpr (std::is_same_v<Row, RunInfo>) {
    visit(std::span(&reader.run(), 1), 0);
  } else if constexpr (std::is_same_v<Row, OpInfo>) {
    visit(std::span(reader.ops()), 0);
  } else if constexpr (std::is_same_v<Row, SettingInfo>) {
    visit(std::span<const Row>(reader.settings()), 0);
  } else if constexpr (std::is_same_v<Row, SourceInfo>) {
    visit(std::span<const Row>(reader.sources()), 0);
  } else if constexpr (std::is_same_v<Row, ProductInfo>) {
    visit(std::span<const Row>(reader.products()), 0);
  } else if constexpr (std::is_same_v<Row, TensorInfo>) {
    visit(std::span(reader.tensors()), 0);
  } else if constexpr (std::is_same_v<Row, GraphEdge>) {
    visit(std::span(reader.graph().edges()), 0);
  } else if constexpr (std::is_same_v<Row, EventRow>) {
    for (const EventRow& event : reader.events()) {
      if (event.step >= range.first && event.step < range.last && !visit(std::span(&event, 1), 0)) return;
    }
  } else if constexpr (std::is_same_v<Row, StepRow>) {
    reader.visit_steps(range, visit_steps);
  } else if constexpr (std::is_same_v<Row, TensorRow>) {
    reader.visit_rows(range, visit_steps);
  } else if constexpr (std::is_same_v<Row, BatchRow>) {
    reader.visit_batches(range, visit_steps);
  } else if constexpr (std::is_same_v<Row, ParameterRow>) {
    reader.visit_parameters(range, visit_steps);
  } else if constexpr (std::is_same_v<Row, FingerprintRow>) {
    reader.visit_fingerprints(range, visit_steps);
  } else if constexpr (std::is_same_v<Row, CaptureRow>) {
    visit(std::span<const Row>(reader.captures(range)), 0);
  } else if constexpr (std::is_same_v<Row, SampleRow>) {
    reader.visit_samples(range, visit_steps);
  } else if constexpr (std::is_same_v<Row, MeasureRow>) {
    reader.visit_measures(range, visit_steps);
  } else if constexpr (std::is_same_v<Row, SumRow>) {
    reader.visit_sums(range, visit_steps);
  } else {
    static_assert(std::is_same_v<Row, BitsRow>);
    reader.visit_bits(range, visit_steps);
  }
}

// Calls body.operator()<Row>() for every row struct of the schema.
template <typename Body>
void for_each_row_struct(Body&& body) {
  [&]<typename... Row>(std::type_identity<std::tuple<Row...>>) {
    (body.template operator()<Row>(), ...);
  }(std::type_identity<trace_detail::RowStructs>());
}

template <typename Row>
const std::string& table_name() {
  return spec(trace_detail::Table<Row>::id).name;
}

}  // namespace

const std::vector<std::string>& export_tables() {
  static const std::vector<std::string> tables = [] {
    std::vector<std::string> names;
    for_each_row_struct([&]<typename Row>() { names.push_back(table_name<Row>()); });
    return names;
  }();
  return tables;
}

void export_table(const Snapshot& reader, std::string_view table, ExportFormat format, const AnalysisOptions& options,
                  const std::function<bool(std::string_view)>& write) {
  const Selection selection(reader, options);
  bool found = false;
  for_each_row_struct([&]<typename Row>() {
    if (table != table_name<Row>()) return;
    found = true;
    RowWriter out(format, write);
    TableExport<Row> rows(selection, out);
    constexpr bool kIsOfSteps = requires(Row row) { row.step; };
    const bool has_ranks = kIsOfSteps && !only_rank(reader);
    if (has_ranks) rows.set_rank(0);
    rows.write_header();
    const auto write_rows = [&](std::span<const Row> some, uint64_t first) {
      return rows.write(some, first) && !options.cancelled();
    };
    if constexpr (kIsOfSteps) {
      const std::vector<TracePart> parts = reader.parts();
      bool goes_on = true;
      for (size_t i = 0; i < parts.size() && goes_on; ++i) {
        const Snapshot part = reader.of_part(i);
        if (has_ranks) rows.set_rank(parts[i].run.rank);
        if (std::is_same_v<Row, BatchRow>) rows.set_sources(SampleFinder(part.sources()));
        visit_table<Row>(part, options.steps,
                         [&](std::span<const Row> some, uint64_t first) { return goes_on = write_rows(some, first); });
      }
    } else {
      visit_table<Row>(reader, options.steps, write_rows);
    }
    out.finish();
  });
  if (!found) throw usage_error("a trace has no table '{}'{}", table, did_you_mean(table, export_tables()));
}

}  // namespace ulpscope
