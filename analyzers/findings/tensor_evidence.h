// The evidence of a finding on several tensors, the worst first, and its extent.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

struct TensorEvidence {
  std::vector<Evidence> evidence;  // of the first kMostEvidence tensors
  Extent extent;

  void add(const Selection& selection, uint32_t tensor, std::optional<uint64_t> first_step, std::vector<Quantity> values) {
    if (evidence.size() < kMostEvidence) evidence.push_back({selection.key(tensor), std::move(values)});
    extent.tensors.push_back(tensor);
    keep_first(extent.first_step, first_step);
  }
};

}  // namespace ulpscope::findings
