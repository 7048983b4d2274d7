// A Report as one HTML file that needs nothing else: no network, no other file, and no script but for what moves.
#pragma once

#include <cstddef>
#include <string>

#include "ulpscope/analyzers/report/report.h"

namespace ulpscope {

// No document is larger, whatever the report holds. What does not fit is left out and counted.
constexpr size_t kMostHtmlBytes = 5'000'000;

// Tables, pictures and words stand in the document itself; its script sorts, filters and shows numbers under the pointer. Texts of
// a report stay texts, whatever bytes they hold, and the document's content security policy lets nothing run but that script.
std::string render_html(const Report& report);

}  // namespace ulpscope
