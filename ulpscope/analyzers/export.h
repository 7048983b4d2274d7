// The tables of a trace as CSV or JSON, row by row. Unknown values are an empty field or null; nonfinite numbers are NaN, Infinity
// and -Infinity, in JSON as strings. A histogram is "first exponent:count,count,..." in CSV and an object in JSON.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/analyzers/analysis.h"

namespace ulpscope {

enum class ExportFormat : uint8_t { csv, json };

// "stats" (also "rows"), "steps", "ops", "tensors", "events", "updates", "captures", "samples", "measures".
const std::vector<std::string>& export_tables();

// Gives pieces of text to `write`, in order; `write` returns false to stop. Rows of tensors follow the options' filters.
// Throws Error (usage) for a table that does not exist.
void export_table(const TraceReader& reader, std::string_view table, ExportFormat format, const AnalysisOptions& options,
                  const std::function<bool(std::string_view)>& write);

}  // namespace ulpscope
