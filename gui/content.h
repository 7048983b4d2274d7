// What a view shows, as a report: what is copied of it, as text and as CSV.
#pragma once

#include <string>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/gui/view_model.h"

namespace ulpscope::gui {

// Its plots and tables are those of the view, as far as they are read.
Report content(const ViewState& state, const Results& results);

// A block a table or plot, each headed by its title in a line of its own, blank lines between them.
std::string csv_of(const Report& report);
std::string csv_of(const Table& table);
// One line a point.
std::string csv_of(const Plot& plot);

}  // namespace ulpscope::gui
