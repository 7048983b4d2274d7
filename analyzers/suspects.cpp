#include "ulpscope/analyzers/suspects.h"

#include <algorithm>
#include <optional>
#include <set>

#include "ulpscope/analyzers/what_if.h"

namespace ulpscope {

size_t Suspects::size() const {
  std::set<std::pair<std::optional<uint64_t>, std::optional<int>>> outputs;
  for (const auto& [unused, evidence] : all_) outputs.emplace(evidence.key.op, evidence.key.slot);
  return outputs.size();
}

std::vector<Evidence> Suspects::worst() const {
  std::vector<const std::pair<double, Evidence>*> sorted;
  for (const auto& suspect : all_) sorted.push_back(&suspect);
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->first > b->first; });
  if (sorted.size() > kMostEvidence) sorted.resize(kMostEvidence);
  std::vector<Evidence> evidence;
  for (const auto* suspect : sorted) evidence.push_back(suspect->second);
  return evidence;
}

Quantity share_of(const char* name, uint64_t count, uint64_t base) { return {name, share(count, base), Unit::share}; }

}  // namespace ulpscope
