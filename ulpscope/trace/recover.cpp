// Copies the committed rows of a trace, column by column and as they are stored.
#include "ulpscope/base/error.h"
#include "ulpscope/trace/file_writer.h"
#include "ulpscope/trace/new_file.h"
#include "ulpscope/trace/reader.h"
#include "ulpscope/trace/trace_file.h"

namespace ulpscope {

using namespace trace_detail;

namespace {

constexpr uint64_t kCopyRows = 65536;

std::string note_for(const TraceReader& trace) {
  if (!trace.closing_note().empty()) return trace.closing_note();
  switch (trace.writer_state()) {
    case WriterState::alive:
      return "copied while the trace was being written";
    case WriterState::dead:
      return "the writer ended without closing the trace";
    case WriterState::closed:
      break;
  }
  return "";
}

}  // namespace

RecoverResult recover_trace(const std::string& from, const std::string& to, bool overwrite) {
  // Reads and checks the small tables.
  const std::string note = note_for(TraceReader(from));
  const TraceFile source(from);
  NewFile target(to, overwrite);
  TraceFileWriter copy(target.temporary(), TraceFileWriter::Mode::copy);
  Block block;
  for (const TableSpec& table : trace_schema()) {
    TableBuffer rows(table);
    for (uint64_t first = 0; first < source.rows(table.id); first += kCopyRows) {
      const auto count = static_cast<size_t>(std::min(kCopyRows, source.rows(table.id) - first));
      source.read(table.id, first, count, true, block);
      rows.clear();
      rows.extend(count);
      for (size_t i = 0; i < table.columns.size(); ++i)
        std::memcpy(rows.column(i), block.columns[i].data(), block.columns[i].size());
      copy.append(table.id, rows);
    }
  }
  copy.close(note);
  target.take_name();
  return {source.rows(TableId::steps), source.rows(TableId::stats)};
}

}  // namespace ulpscope
