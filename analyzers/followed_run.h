// All that findings on one run are computed from, in one pass over its rows; it may have grown each time it is looked at.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "ulpscope/analyzers/analysis.h"
#include "ulpscope/analyzers/findings/finding_rule.h"

namespace ulpscope {

struct AnalysisContext;
struct FittingScales;
class RangeFacts;
class RunFacts;
class StepFacts;

// Those that the verdict on a run is made of.
inline constexpr std::array kPartsOnRun{Part::recording, Part::run, Part::ranges, Part::scale, Part::updates};

class FollowedRun {
 public:
  // `parts`: those whose findings will be asked for. What only others need is not read.
  // `formats`: in which ranges are asked about as well.
  FollowedRun(const AnalysisOptions& options, std::span<const Part> parts, const std::vector<const FloatFormat*>& formats = {});
  ~FollowedRun();

  // Takes in the steps that it has not seen: of the same trace each time, grown or not. False: cancelled.
  bool update(const Snapshot& trace);

  // Of the last update.
  const AnalysisContext& context() const;
  const StepFacts& steps() const;
  const RunFacts& facts() const;
  // What the facts of these parts are judged from.
  const RangeFacts& range_facts() const;
  const FittingScales& fitting() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulpscope
