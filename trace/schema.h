// The tables and columns of a trace. columns.h declares them, once; the writer, the reader, `recover`, `export` and the tables of
// docs/trace_format.md all follow that declaration.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/base/hdf5/element_type.h"

namespace ulpscope {

// Readers read every minor version of their major one. An addition raises the minor: a table, a column or an enumerator, each
// behind all others of its kind, so that nothing moves. A column has one of the types that ElementType has, and is never the first.
// Whatever else changes what a file holds or means raises the major: another size of chunks, too.
inline constexpr uint64_t kSchemaMajor = 14, kSchemaMinor = 4;
// "14.4", of the major version that is read.
std::string schema_version_text(uint64_t minor);

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
  sums,
  bits,  // more tables follow this one, since commit records have them in this order
};
inline constexpr size_t kTables = 21;

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
  uint64_t since = 0;                    // files of an earlier minor version do not have it
  std::array<std::byte, 8> absent = {};  // the value that rows of such files have instead, in its first bytes: it is not known
};

struct TableSpec {
  TableId id = TableId::strings;
  std::string name;
  std::string meaning;
  uint64_t chunk_rows = 1024;
  std::vector<ColumnSpec> columns;
  int step_column = -1;  // rows are sorted by it; -1: the table has none
  uint64_t since = 0;    // files of an earlier minor version do not have it

  // Bytes of one row, over all columns.
  size_t row_bytes() const;
};

const std::array<TableSpec, kTables>& trace_schema();
inline const TableSpec& spec(TableId id) { return trace_schema()[static_cast<size_t>(id)]; }
// Nothing where there is no table of that name.
const TableSpec* find_table(std::string_view name);

// Tables and columns in Markdown, as docs/trace_format.md contains them.
std::string schema_markdown(std::span<const TableSpec> tables = trace_schema());

// Attributes and datasets beside the tables.
inline constexpr const char* kFormatAttribute = "format";
inline constexpr const char* kFormatName = "ulpscope trace";
inline constexpr const char* kSchemaAttribute = "schema_version";
inline constexpr const char* kSchemaMinorAttribute = "schema_minor";
inline constexpr const char* kTablesAttribute = "tables";    // of the commit records: the names of their tables
inline constexpr const char* kColumnsAttribute = "columns";  // of a table's group: the names of its columns, as checksums have them
inline constexpr const char* kCommitDataset = "commit";
inline constexpr const char* kNoteDataset = "closing_note";
inline constexpr const char* kTailGroup = "tail";
// Free space before the tails of a trace that is new: its first chunks take it.
inline constexpr uint64_t kRoomBytes = 384u << 10;
inline constexpr uint64_t kNoteBytes = 1024;

// "stats/zeros", "tail/stats/zeros".
std::string column_path(const TableSpec& table, const ColumnSpec& column);
std::string tail_path(const TableSpec& table, std::string_view column);
inline std::string tail_path(const TableSpec& table, const ColumnSpec& column) { return tail_path(table, column.name); }
// A table of one row a chunk has no unfilled chunks.
inline bool has_tail(const TableSpec& table) { return table.chunk_rows > 1; }

}  // namespace ulpscope
