// What `ulpscope nan` finds out, for verbs that go on from it.
#pragma once

#include <optional>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/cli/verb.h"
#include "ulpscope/core/run/experiment.h"

namespace ulpscope::cli {

struct NanAnswer {
  Report report;
  // How trials began, and with the change that the verdict names; nothing: none was tried that keeps the run from failing.
  std::optional<Experiment> as_it_was, repaired;
};

NanAnswer explain_nan(const Arguments& arguments);

}  // namespace ulpscope::cli
