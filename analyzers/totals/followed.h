// Runs analyses over the rows of a trace: over its parts side by side, and on from where they stopped when it has grown.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

// What is new in a trace since a reader of it stopped, and how to share it between threads.
class StepCursor {
 public:
  // Moves on to the end of the trace, and adds the steps on its way to `facts`. Those that the options ask for are given back, in
  // pieces of about the same number of steps: as many as `pieces`, where there are so many rows that threads pay off.
  std::vector<std::vector<PartSteps>> advance(const AnalysisContext& context, StepFacts& facts, size_t pieces);

 private:
  std::vector<uint64_t> next_;  // by part
  uint64_t rows_ = 0;
};

// An analysis that follows a trace.
template <Analysis A>
class Followed {
 public:
  // `make` gives an empty analysis. `threads`: at most so many work on what is new.
  explicit Followed(std::function<A()> make, const AnalysisOptions& options = {}, size_t threads = 2)
      : make_(std::move(make)), options_(options), threads_(threads), analysis_(make_()), steps_(options.steps) {}

  // Takes in the steps that it has not seen: of the same trace each time, grown or not. False: cancelled, and of no further use.
  // Throws Error (unreadable) where rows are damaged, and from then on each time: what was seen of the rest is no whole.
  bool update(const Snapshot& trace) {
    if (failure_) std::rethrow_exception(failure_);
    try {
      return take_in(trace);
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }

  // Of the last update.
  const AnalysisContext& context() const { return *context_; }
  const StepFacts& steps() const { return steps_; }
  const A& analysis() const { return analysis_; }
  // Gives the analysis away, with which this is of no further use.
  A release() { return std::move(analysis_); }

 private:
  bool take_in(const Snapshot& trace) {
    context_ = std::make_unique<AnalysisContext>(trace, options_, context_.get());
    const AnalysisContext& context = *context_;
    analysis_.begin(context);
    Progress progress(context);
    std::vector<std::vector<PartSteps>> pieces = cursor_.advance(context, steps_, threads_);
    std::vector<std::future<A>> others;
    for (size_t i = 1; i < pieces.size(); ++i) {
      others.push_back(std::async(std::launch::async, [&, i] {
        A other = make_();
        other.begin(context);
        run(other, context, pieces[i], progress, false);
        return other;
      }));
    }
    if (!pieces.empty()) run(analysis_, context, pieces.front(), progress, true);
    for (std::future<A>& other : others) analysis_.merge(other.get());
    return !options_.cancelled();
  }

  // Of all threads; told of by the first.
  class Progress {
   public:
    explicit Progress(const AnalysisContext& context)
        : options_(context.options), total_(static_cast<double>(std::max<uint64_t>(1, context.trace.tensor_row_count()))) {}
    bool add(size_t rows, bool tell) {
      seen_ += rows;
      if (tell && options_.progress) options_.progress(std::min(1.0, static_cast<double>(seen_) / total_));
      return !options_.cancelled();
    }

   private:
    const AnalysisOptions& options_;
    const double total_;
    std::atomic<uint64_t> seen_ = 0;
  };

  static void run(A& analysis, const AnalysisContext& context, const std::vector<PartSteps>& piece, Progress& progress, bool tell) {
    for (const PartSteps& steps : piece) {
      if (!visit_blocks(
              context, steps, analysis.reads(), [&](const Block& block) { analysis.update(block); },
              [&](size_t rows) { return progress.add(rows, tell); }))
        return;
    }
  }

  std::function<A()> make_;
  AnalysisOptions options_;
  size_t threads_;
  std::unique_ptr<AnalysisContext> context_;
  A analysis_;
  StepFacts steps_;
  StepCursor cursor_;
  std::exception_ptr failure_;
};

}  // namespace ulpscope
