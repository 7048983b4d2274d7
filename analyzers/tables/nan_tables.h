// What `ulpscope nan` shows of where NaN and Inf began.
#pragma once

#include <vector>

#include "ulpscope/analyzers/judgements/nonfinite_cause.h"
#include "ulpscope/analyzers/judgements/nonfinite_flow.h"
#include "ulpscope/analyzers/totals/headroom.h"

namespace ulpscope {

class NanTables {
 public:
  explicit NanTables(const RunFacts& facts) : facts_(facts) {}  // which outlive it

  // Of one of the beginnings: facts, and all tables.
  void add_story(const NonfiniteOrigin& origin, Report& report) const;

 private:
  Table beginnings_table() const;
  Table operands_table(const char* name, uint32_t of, const CaptureTree& tree) const;
  // Before and in step `step`.
  Table headroom_table(uint64_t step, const std::vector<uint32_t>& tensors, const std::vector<HeadroomHistory>& histories) const;
  Table alarms_table(const NonfiniteOrigin& origin, const HeadroomHistory& own) const;
  Table way_table(const char* name, std::string title, const std::vector<NonfiniteStop>& way) const;
  // The tensor, and those that it is made from, nearest first.
  std::vector<uint32_t> with_ancestors(uint32_t tensor, uint64_t step, int rank) const;

  const RunFacts& facts_;
};

}  // namespace ulpscope
