// The evidence of a finding, gathered one by one and ranked at the end.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/analysis.h"

namespace ulpscope {

// Of a finding, as many as a reader looks at.
constexpr size_t kMostEvidence = 5;

// Evidence with how bad it is, of which the worst few are kept.
class Suspects {
 public:
  bool empty() const { return all_.empty(); }
  // How many outputs of ops: tensors of one that differ in type or arithmetic, in runs that are read as one, count once.
  size_t size() const;
  void add(double how_bad, RowKey key, std::vector<Quantity> values) {
    all_.emplace_back(how_bad, Evidence{std::move(key), std::move(values)});
  }
  // The worst first; of equally bad ones, the first that were added.
  std::vector<Evidence> worst() const;

 private:
  std::vector<std::pair<double, Evidence>> all_;
};

Quantity share_of(const char* name, uint64_t count, uint64_t base);

}  // namespace ulpscope
