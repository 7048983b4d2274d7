// All that findings on one run are computed from, in one pass over its rows; it may have grown each time it is looked at.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/subject/analysis.h"

namespace ulpscope {

struct AnalysisContext;
struct FittingScales;
class RangeFacts;
class RunFacts;
class StepFacts;
class UpdateHistory;

// Those of a report, and those of them that the verdict on a run is made of.
inline constexpr std::array kReportParts{Part::recording, Part::run,     Part::ranges,      Part::scale,
                                         Part::errors,    Part::updates, Part::tensor_cores};
inline constexpr std::span<const Part> kPartsOnRun = std::span(kReportParts).first(kReportParts.size() - 1);

// What is asked besides what findings need.
struct AskedBesides {
  std::optional<std::vector<const FloatFormat*>> range_formats = {};  // of what-ifs, where the tables of ranges are made
  const FloatFormat* scale_format = nullptr;  // whose fitting scales are asked for, instead of the run's own
  bool update_history = false;
};

class FollowedRun {
 public:
  // `parts`: those whose findings will be asked for. What only others need is not read.
  explicit FollowedRun(const AnalysisOptions& options, std::span<const Part> parts = kPartsOnRun, const AskedBesides& besides = {});
  ~FollowedRun();

  // Takes in the steps that it has not seen: of the same trace each time, grown or not. False: cancelled.
  bool update(const Snapshot& trace);

  // Of the last update.
  const AnalysisContext& context() const;
  const StepFacts& steps() const;
  const RunFacts& facts() const;
  // Where Part::ranges is among the parts; for the fitting scales Part::scale will do; where the history was asked for.
  const RangeFacts& range_facts() const;
  const FittingScales& fitting() const;
  const UpdateHistory& update_history() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What was asked of a run, for tables, and the run as a whole, for its verdict: one pass where they are the same.
class JudgedRun {
 public:
  explicit JudgedRun(const AnalysisOptions& options, const AskedBesides& besides = {})
      : own_(std::make_unique<FollowedRun>(options, kPartsOnRun, besides)), asked_(*own_) {
    if (options.selects()) whole_ = std::make_unique<FollowedRun>(options.of_all());
  }
  // Of what others follow too, which outlives it: with kPartsOnRun at least, and of all rows.
  explicit JudgedRun(FollowedRun& run) : asked_(run) {}

  // As FollowedRun has it.
  bool update(const Snapshot& trace) { return asked_.update(trace) && (!whole_ || whole_->update(trace)); }
  const FollowedRun& asked() const { return asked_; }
  const FollowedRun& whole() const { return whole_ ? *whole_ : asked_; }

 private:
  const std::unique_ptr<FollowedRun> own_;
  FollowedRun& asked_;
  std::unique_ptr<FollowedRun> whole_;
};

}  // namespace ulpscope
