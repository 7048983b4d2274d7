// A reader would refuse such rows: it is asked before the row is written. For producers that are told rows by others.
#pragma once

#include <string>

#include "ulpscope/trace/records.h"

namespace ulpscope {

// "" of a row that can be read, else one line: "zeros is 7; expected with the nonfinite elements at most count".
std::string problem_of(const RunInfo& run);
std::string problem_of(const SourceInfo& source);
std::string problem_of(const OpInfo& op);
std::string problem_of(const TensorInfo& tensor);
std::string problem_of(const TensorRow& row);
std::string problem_of(const ParameterRow& row);
std::string problem_of(const SumRow& row);
std::string problem_of(const StepRow& row);

}  // namespace ulpscope
