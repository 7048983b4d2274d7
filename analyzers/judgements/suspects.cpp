#include "ulpscope/analyzers/judgements/suspects.h"

#include <algorithm>

#include "ulpscope/analyzers/totals/what_if.h"

namespace ulpscope {

size_t Suspects::size() const {
  std::vector<uint32_t> tensors;
  for (const Suspect& suspect : all_) tensors.push_back(suspect.tensor);
  return selection_.count_outputs(tensors);
}

std::vector<Evidence> Suspects::worst() const {
  std::vector<const Suspect*> sorted;
  for (const Suspect& suspect : all_) sorted.push_back(&suspect);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Suspect* a, const Suspect* b) { return a->how_bad > b->how_bad; });
  if (sorted.size() > kMostEvidence) sorted.resize(kMostEvidence);
  std::vector<Evidence> evidence;
  for (const Suspect* suspect : sorted) {
    const uint32_t tensor = suspect->tensor;
    evidence.push_back({suspect->position ? selection_.key(tensor, *suspect->position) : selection_.key(tensor), suspect->values});
  }
  return evidence;
}

uint32_t Suspects::worst_tensor() const {
  return std::max_element(all_.begin(), all_.end(), [](const Suspect& a, const Suspect& b) { return a.how_bad < b.how_bad; })
      ->tensor;
}

Quantity share_of(const char* name, uint64_t count, uint64_t base) { return {name, share(count, base), Unit::share}; }

Extent Suspects::extent() const {
  Extent extent;
  std::optional<RowPosition> first;
  for (const Suspect& suspect : all_) {
    extent.tensors.push_back(suspect.tensor);
    if (!suspect.position || (first && *first <= *suspect.position)) continue;
    first = suspect.position;
    extent.first_step = first->step;
    extent.origin = suspect.tensor;
  }
  return extent;
}

}  // namespace ulpscope
