// The tables and columns of a trace. columns.h declares them, once; the writer, the reader, `recover`, `export` and the tables of
// docs/trace_format.md all follow that declaration.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/base/hdf5/element_type.h"

namespace ulpscope {

// A new table, column or enumerator, or another size of chunks, raises the version. Readers read this one.
inline constexpr uint64_t kSchemaVersion = 13;

enum class TableId : uint8_t {
  strings,
  string_bytes,
  run,
  settings,
  sources,
  products,
  ops,
  tensors,
  edges,
  steps,
  batches,
  stats,
  histograms,
  parameters,
  fingerprints,
  events,
  captures,
  samples,
  measures,
};
inline constexpr size_t kTables = 19;

// How the elements of a column are to be understood.
enum class ValueKind : uint8_t {
  number,
  boolean,
  enumeration,  // index into `values`
  text,         // row of the table strings
  histogram,    // end of the row's bytes in the table histograms; they begin where those of the row before end
};

struct ColumnSpec {
  std::string name;
  ElementType type = ElementType::u64;
  ValueKind kind = ValueKind::number;
  std::string unit;  // "" where the meaning says it all
  std::string meaning;
  std::vector<std::string> values = {};  // of an enumeration
  std::string refers_to = {};            // the table whose rows the values are, or ""
  bool compress = true;
  double fill = 0;
};

struct TableSpec {
  TableId id = TableId::strings;
  std::string name;
  std::string meaning;
  uint64_t chunk_rows = 1024;
  std::vector<ColumnSpec> columns;
  int step_column = -1;  // rows are sorted by it; -1: the table has none

  // Bytes of one row, over all columns.
  size_t row_bytes() const;
};

const std::array<TableSpec, kTables>& trace_schema();
inline const TableSpec& spec(TableId id) { return trace_schema()[static_cast<size_t>(id)]; }
// Nothing where there is no table of that name.
const TableSpec* find_table(std::string_view name);

// The tables and columns in Markdown, as docs/trace_format.md contains them.
std::string schema_markdown();

// Attributes and datasets beside the tables.
inline constexpr const char* kFormatAttribute = "format";
inline constexpr const char* kFormatName = "ulpscope trace";
inline constexpr const char* kSchemaAttribute = "schema_version";
inline constexpr const char* kCommitDataset = "commit";
inline constexpr const char* kNoteDataset = "closing_note";
inline constexpr const char* kTailGroup = "tail";
// Free space before the tails of a trace that is new: its first chunks take it.
inline constexpr uint64_t kRoomBytes = 384u << 10;
inline constexpr uint64_t kNoteBytes = 1024;

// "stats/zeros", "tail/stats/zeros".
std::string column_path(const TableSpec& table, const ColumnSpec& column);
std::string tail_path(const TableSpec& table, const ColumnSpec& column);
// A table of one row a chunk has no unfilled chunks.
inline bool has_tail(const TableSpec& table) { return table.chunk_rows > 1; }

}  // namespace ulpscope
