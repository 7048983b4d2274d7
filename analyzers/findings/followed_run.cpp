#include "ulpscope/analyzers/findings/followed_run.h"

#include <algorithm>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/run_memory.h"
#include "ulpscope/analyzers/totals/fitting_scale.h"
#include "ulpscope/analyzers/totals/followed.h"
#include "ulpscope/analyzers/totals/range_facts.h"
#include "ulpscope/analyzers/totals/update_facts.h"
#include "ulpscope/analyzers/totals/update_history.h"

namespace ulpscope {

namespace {

using Seen = Together<Wanted<FittingScale>, Wanted<RangeFacts>, Wanted<UpdateFacts>, Wanted<UpdateHistory>>;

template <typename A>
const A* get(const Seen& seen) {
  const Wanted<A>& wanted = seen.get<Wanted<A>>();
  return wanted ? &wanted.get() : nullptr;
}

}  // namespace

struct FollowedRun::State {
  State(const AnalysisOptions& options, std::span<const Part> asked, const AskedBesides& besides)
      : parts(asked.begin(), asked.end()),
        seen(
            [this, besides, limit = options.flushed_limit] {
              return Seen(Wanted(FittingScale(limit, besides.scale_format), wants(Part::ranges) || wants(Part::scale)),
                          Wanted(RangeFacts(besides.range_formats),
                                 std::any_of(parts.begin(), parts.end(), [](Part part) { return part != Part::recording; })),
                          Wanted(UpdateFacts(), wants(Part::updates)), Wanted(UpdateHistory(), besides.update_history));
            },
            options) {}
  bool wants(Part part) const { return std::find(parts.begin(), parts.end(), part) != parts.end(); }

  const std::vector<Part> parts;
  Followed<Seen> seen;
  std::optional<FittingScales> fitting;
  RunMemory memory;
  std::unique_ptr<RunFacts> facts;
};

FollowedRun::FollowedRun(const AnalysisOptions& options, std::span<const Part> parts, const AskedBesides& besides)
    : state_(std::make_unique<State>(options, parts, besides)) {}
FollowedRun::~FollowedRun() = default;

bool FollowedRun::update(const Snapshot& trace) {
  State& state = *state_;
  state.facts.reset();
  const bool complete = state.seen.update(trace);
  const Seen& seen = state.seen.analysis();
  if (const FittingScale* const scales = get<FittingScale>(seen)) state.fitting = scales->result();
  state.facts = std::make_unique<RunFacts>(
      state.seen.context(), state.seen.steps(),
      RunFacts::Seen{get<RangeFacts>(seen), state.fitting ? &*state.fitting : nullptr, get<UpdateFacts>(seen)}, state.memory);
  return complete;
}

const AnalysisContext& FollowedRun::context() const { return state_->seen.context(); }
const StepFacts& FollowedRun::steps() const { return state_->seen.steps(); }
const RunFacts& FollowedRun::facts() const { return *state_->facts; }
const RangeFacts& FollowedRun::range_facts() const { return *get<RangeFacts>(state_->seen.analysis()); }
const FittingScales& FollowedRun::fitting() const { return *state_->fitting; }
const UpdateHistory& FollowedRun::update_history() const { return *get<UpdateHistory>(state_->seen.analysis()); }

}  // namespace ulpscope
