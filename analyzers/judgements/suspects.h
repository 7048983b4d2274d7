// The evidence of a finding, gathered one by one and ranked at the end.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/subject/selection.h"

namespace ulpscope {

// Of a finding, as many as a reader looks at.
constexpr size_t kMostEvidence = 5;

// Tensors with how bad they are, of which the worst few are named.
class Suspects {
 public:
  // `selection` outlives them.
  explicit Suspects(const Selection& selection) : selection_(selection) {}

  bool empty() const { return all_.empty(); }
  // How many outputs of ops: tensors of one that differ in type or arithmetic, in runs that are read as one, count once.
  size_t size() const;
  // `position`: of the row that shows it.
  void add(double how_bad, uint32_t tensor, std::vector<Quantity> values, std::optional<RowPosition> position = {}) {
    all_.push_back({how_bad, tensor, position, std::move(values)});
  }
  // The worst first; of equally bad ones, the first that were added.
  std::vector<Evidence> worst() const;
  uint32_t worst_tensor() const;  // of some
  // All of them, from the earliest of their positions on.
  Extent extent() const;

 private:
  struct Suspect {
    double how_bad;
    uint32_t tensor;
    std::optional<RowPosition> position;
    std::vector<Quantity> values;
  };
  const Selection& selection_;
  std::vector<Suspect> all_;
};

Quantity share_of(const char* name, uint64_t count, uint64_t base);

}  // namespace ulpscope
