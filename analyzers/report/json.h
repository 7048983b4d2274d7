// A Report as JSON. Members: report_version, analysis, title, sources, complete, every fact under its own name, findings, tables,
// plots. Nonfinite numbers are the strings "NaN", "Infinity" and "-Infinity"; what is not known or does not apply is null; bounds
// are {"lower": a, "upper": b}; op ids are strings of 16 hexadecimal digits.
#pragma once

#include <string>

#include "ulpscope/analyzers/report/report.h"

namespace ulpscope {

std::string render_json(const Report& report);
// Of a report with a verdict, one line: {"steps": 120, "verdict": "broken", "verdict_text": "...", "causes": ["range.nonfinite"]}.
std::string verdict_json(const Report& report, uint64_t steps);

}  // namespace ulpscope
