// The tables of a trace as CSV or JSON, row by row, with the columns that the schema declares. Unknown values are an empty field or
// null; nonfinite numbers are NaN, Infinity and -Infinity, in JSON as strings. A histogram is "first exponent:count,count,..." in
// CSV and an object in JSON; a shape is a list, in CSV with blanks between; the id of an op is hexadecimal text. Rows of ops and
// tensors begin with their `index`, which rows of other tables refer to. Where a row refers to a tensor, what names it follows, of
// the first that it refers to: op_id, op_name, module, phase, slot, role, parameter, dtype. Rows of batches end with the `place` of
// their sample, a line of text, which says so where the trace's sources do not have it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/analyzers/subject/selection.h"

namespace ulpscope {

enum class ExportFormat : uint8_t { csv, json };

// The text as a field of CSV: in quotes where it has what would end one.
std::string csv_field(std::string_view text);

// The tables of the schema that have rows of their own, in its order: "run", "ops", ..., "steps", "stats", ...
const std::vector<std::string>& export_tables();

// Gives pieces of text to `write`, in order; `write` returns false to stop. Rows that have a step or refer to a tensor follow the
// options' filters. Throws Error (usage) for a table that does not exist.
void export_table(const Snapshot& reader, std::string_view table, ExportFormat format, const AnalysisOptions& options,
                  const std::function<bool(std::string_view)>& write);

}  // namespace ulpscope
