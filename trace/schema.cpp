#include "ulpscope/trace/schema.h"

#include <fmt/format.h>

#include <cstring>

#include "ulpscope/base/text.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/trace/columns.h"
#include "ulpscope/trace/op_semantics.h"
#include "ulpscope/trace/sink.h"

namespace ulpscope {

namespace {

using trace_detail::FieldOf;
using trace_detail::Storage;

const char* name_of_enumerator(StatisticsLevel level) {
  constexpr const char* kNames[] = {"none", "health", "values"};
  return kNames[static_cast<size_t>(level)];
}
std::string_view name_of_enumerator(DType dtype) { return info(dtype).name; }
std::string_view name_of_enumerator(RoundingMode mode) { return name_of(mode); }
std::string_view name_of_enumerator(OpFunction function) { return name_of(function); }
template <typename Enum>
const char* name_of_enumerator(Enum value) {
  return name_of(value);
}

// No text has this number: there are fewer. A field that is one gets its default where it is read.
constexpr std::byte kAbsentText{0xFF};

template <typename Row>
TableSpec table_of(std::string name, uint64_t chunk_rows, std::string meaning, uint64_t since = 0) {
  const Row unread{};
  TableSpec table;
  table.since = since;
  table.id = trace_detail::Table<Row>::id;
  table.name = std::move(name);
  table.meaning = std::move(meaning);
  table.chunk_rows = chunk_rows;
  trace_detail::for_each_column<Row>([&](const auto& column, auto index) {
    using Field = FieldOf<Row, decltype(column.get)>;
    ColumnSpec spec;
    spec.name = column.name;
    spec.type = trace_detail::element_type<typename Storage<Field>::Type>();
    spec.kind = Storage<Field>::kind;
    spec.unit = column.unit;
    spec.meaning = column.meaning;
    if (spec.kind == ValueKind::text) spec.refers_to = "strings";
    if (spec.kind == ValueKind::histogram) spec.refers_to = "histograms";
    if (column.refers == trace_detail::Refers::ops) spec.refers_to = "ops";
    if (column.refers == trace_detail::Refers::tensors) spec.refers_to = "tensors";
    spec.compress = column.packing == trace_detail::Packing::gzip;
    spec.fill = column.fill;
    spec.since = column.first_minor;
    if constexpr (Storage<Field>::kind == ValueKind::text) {
      spec.absent.fill(kAbsentText);
    } else if constexpr (Storage<Field>::kind != ValueKind::histogram) {
      const auto value = static_cast<typename Storage<Field>::Type>(column.get(unread));
      std::memcpy(spec.absent.data(), &value, sizeof(value));
    }
    if constexpr (std::is_enum_v<Field>) {
      for (int i = 0; i < trace_detail::enumerators<Field>(); ++i)
        spec.values.emplace_back(name_of_enumerator(static_cast<Field>(i)));
    }
    if (spec.name == "step" && spec.type == ElementType::u64) table.step_column = static_cast<int>(index());
    table.columns.push_back(std::move(spec));
  });
  return table;
}

TableSpec plain_table(TableId id, std::string name, uint64_t chunk_rows, std::string meaning, ColumnSpec column) {
  TableSpec table;
  table.id = id;
  table.name = std::move(name);
  table.meaning = std::move(meaning);
  table.chunk_rows = chunk_rows;
  table.columns = {std::move(column)};
  return table;
}

// Chunk sizes: large enough that HDF5's cost a chunk and column (20 us) disappears, small enough that the tails, which stay in the
// file uncompressed, do too.
std::array<TableSpec, kTables> declare() {
  return {
      plain_table(TableId::strings, "strings", 512,
                  "Texts: each ends in string_bytes where this says, and begins where the one before ends.",
                  {"end", ElementType::u64, ValueKind::number, "bytes", "end of the text in string_bytes", {}, {}, true, 0}),
      plain_table(TableId::string_bytes, "string_bytes", 8192, "The bytes of all texts, UTF-8, one after the other.",
                  {"byte", ElementType::u8, ValueKind::number, "", "one byte", {}, {}, true, 0}),
      table_of<RunInfo>("run", 1, "The run: one row."),
      table_of<SettingInfo>("settings", 64, "The settings that the run has, under the producer's names."),
      table_of<SourceInfo>(
          "sources", 16,
          "Where samples come from: sample i, from first_sample on, is row first_row + (i - first_sample) row_step "
          "of a file, and begins at byte first_byte + (i - first_sample) byte_step of it."),
      table_of<ProductInfo>("products", 64,
                            "Matrix products that the library of the device multiplied, each once, in the order of first use."),
      table_of<OpInfo>("ops", 256, "The ops of the experiment, each once; rows elsewhere refer to an op by its row here."),
      table_of<TensorInfo>("tensors", 256,
                           "The tensors of the experiment, each once per op and output; what does not change from step to step."),
      table_of<GraphEdge>("edges", 1024, "Which op reads the output of which, once per distinct graph."),
      table_of<StepRow>("steps", 64, "The steps, one row each."),
      table_of<BatchRow>("batches", 1024, "The samples of each batch, one row each, in the order of the batch."),
      table_of<TensorRow>("stats", 2048, "One row per tensor and step, in the order of execution: what its values were like."),
      plain_table(TableId::histograms, "histograms", 65536, "The exponent histograms of stats, one after the other.",
                  {"byte", ElementType::u8, ValueKind::number, "", "one byte", {}, {}, false, 0}),
      table_of<ParameterRow>("parameters", 512, "Updates of weights w by d: one row per parameter and step."),
      table_of<FingerprintRow>("fingerprints", 512, "Weights and optimizer states where they were written, one row each."),
      table_of<EventRow>("events", 256, "What happened, by step."),
      table_of<CaptureRow>(
          "captures", 256,
          "How elements came about that were not finite while all inputs of their op were: trees of values, one row each."),
      table_of<SampleRow>("samples", 1024, "Values of tensors (level full) at evenly spaced indices."),
      table_of<MeasureRow>("measures", 512, "Further measures of tensors by name."),
      table_of<SumRow>("sums", 512, "What arrived of what was added to running sums in 16 bits: one row per sum and step.", 3),
      table_of<BitsRow>("bits", 1024,
                        "Outputs of ops bit for bit, one row each, in the order of execution, where that is recorded.", 4),
  };
}

}  // namespace

std::string schema_version_text(uint64_t minor) { return fmt::format("{}.{}", kSchemaMajor, minor); }

size_t TableSpec::row_bytes() const {
  size_t bytes = 0;
  for (const ColumnSpec& column : columns) bytes += size_of(column.type);
  return bytes;
}

const std::array<TableSpec, kTables>& trace_schema() {
  static std::array<TableSpec, kTables> schema = declare();
  return schema;
}

const TableSpec* find_table(std::string_view name) {
  for (const TableSpec& table : trace_schema()) {
    if (table.name == name) return &table;
  }
  return nullptr;
}

std::string column_path(const TableSpec& table, const ColumnSpec& column) { return table.name + "/" + column.name; }

std::string tail_path(const TableSpec& table, std::string_view column) {
  return fmt::format("{}/{}/{}", kTailGroup, table.name, column);
}

uint64_t empty_trace_bytes() {
  constexpr uint64_t kBytesPerDataset = 640, kBytesPerIndex = 750;  // of HDF5's own, as measured
  uint64_t bytes = kRoomBytes;
  for (const TableSpec& table : trace_schema()) {
    bytes += (kBytesPerDataset + kBytesPerIndex) * table.columns.size();
    if (has_tail(table)) bytes += kBytesPerDataset * table.columns.size() + table.chunk_rows * table.row_bytes();
  }
  return bytes;
}

std::string schema_markdown(std::span<const TableSpec> tables) {
  std::string text;
  for (const TableSpec& table : tables) {
    const std::string since = table.since > 0 ? fmt::format(" Since {}.", schema_version_text(table.since)) : "";
    text += fmt::format("### {}\n{} {} row{} a chunk.{}\n\n| column | type | unit | meaning |\n|---|---|---|---|\n", table.name,
                        table.meaning, table.chunk_rows, table.chunk_rows == 1 ? "" : "s", since);
    for (const ColumnSpec& column : table.columns) {
      std::string meaning = column.meaning;
      const auto add = [&](const std::string& more) { meaning += (meaning.empty() ? "" : ": ") + more; };
      if (column.kind == ValueKind::text) add("row in strings");
      if (column.kind == ValueKind::histogram) add("end of its bytes in histograms");
      if (column.kind == ValueKind::enumeration) {
        std::string values;
        for (size_t i = 0; i < column.values.size(); ++i) values += fmt::format("{}{} {}", i ? ", " : "", i, column.values[i]);
        add(values);
      }
      if (column.since > table.since) add("since " + schema_version_text(column.since));
      text += fmt::format("| {} | {} | {} | {} |\n", column.name, name_of(column.type), column.unit, meaning);
    }
    text += "\n";
  }
  return text;
}

}  // namespace ulpscope
