// A check of ops as a report and as files.
#pragma once

#include <cstddef>
#include <string>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/studies/op_check.h"

namespace ulpscope {

// `limit`: rows of tables; 0: all. `explains`: with a table of what bounds are made of.
Report op_check_report(const OpCheck& check, size_t limit, bool explains);

// Writes of each row shown the inputs, the output and its exact numbers in FP64 into a folder that is there, as files of
// numpy.save, and a text with what else the call had. `backend` makes the calls again. Throws Error (failed) where a file cannot be
// written.
void save_op_check(const OpCheck& check, size_t limit, const std::string& folder, Backend& backend);

}  // namespace ulpscope
