// What `ulpscope train` does, for verbs that train on the way.
#pragma once

#include <optional>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/cli/verb.h"

namespace ulpscope::cli {

// Trains, and prints the result, with the verdict on its trace. Nothing: a signal ended it early, which was said.
std::optional<Report> train(const Arguments& arguments);

}  // namespace ulpscope::cli
