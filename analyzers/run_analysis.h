// Runs analyses over the rows of a trace: over its parts side by side, and on from where they stopped when it has grown.
//
// An Analysis
//   begin(context)    is told of the trace, which outlives its use, before the first block and again when it has grown;
//   update(block)     takes rows, each rank's steps in order;
//   merge(analysis)   takes over what another one saw, in each rank, of steps that all lie before or behind its own.
// At any moment between steps it can report what it has seen, and that is the same however the steps came: in one go, in blocks
// over time, or merged.
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/selection.h"
#include "ulpscope/analyzers/setting_names.h"
#include "ulpscope/analyzers/step_facts.h"
#include "ulpscope/analyzers/tensor_graph.h"

namespace ulpscope {

// A trace, and what was asked of it.
struct AnalysisContext {
  // `before`: of the same trace and options, when it was shorter; what tables did not grow is taken over from it.
  AnalysisContext(const Snapshot& snapshot, const AnalysisOptions& asked, const AnalysisContext* before = nullptr);

  const Snapshot trace;
  const AnalysisOptions options;
  const std::vector<TracePart> parts;

 private:
  struct Tables {
    Tables(const Snapshot& trace, const AnalysisOptions& options)
        : selection(trace, options), graph(trace), settings(trace.settings()) {}
    const Selection selection;
    const TensorGraph graph;
    const SettingNames settings;
  };
  const std::shared_ptr<const Tables> tables_;

 public:
  const Selection& selection;
  const TensorGraph& graph;
  const SettingNames& settings;
};

// Rows of one step, of one rank. A step of many rows comes in several blocks.
struct Block {
  size_t part = 0;  // of the context's
  int rank = 0;
  const StepRow& step;
  std::span<const TensorRow> rows;           // in order of execution
  std::span<const ParameterRow> parameters;  // all of the step, with its first block
  bool begins = true, ends = true;           // the step
};

// What of a trace an analysis reads besides its steps.
struct TablesRead {
  bool rows = true, histograms = true, parameters = false;
};

template <typename A>
concept Analysis = std::movable<A> && requires(A analysis, const A& constant, const AnalysisContext& context, const Block& block) {
  analysis.begin(context);
  analysis.update(block);
  analysis.merge(std::move(analysis));
  { constant.reads() } -> std::convertible_to<TablesRead>;
};

// Steps of a part of a trace.
struct PartSteps {
  size_t part;
  StepRange steps;
};

// Calls visit(block) for these steps, in order. `seen`: told how many rows each block had; false ends it, and then the result is
// false.
bool visit_blocks(const AnalysisContext& context, PartSteps steps, TablesRead tables,
                  const std::function<void(const Block&)>& visit, const std::function<bool(size_t)>& seen);

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

  // Takes in the steps that it has not seen: of the same trace each time, grown or not. False: cancelled.
  bool update(const Snapshot& trace) {
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

  // Of the last update.
  const AnalysisContext& context() const { return *context_; }
  const StepFacts& steps() const { return steps_; }
  const A& analysis() const { return analysis_; }

 private:
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
};

// An analysis that may not be wanted, and then reads nothing.
template <Analysis A>
class Wanted {
 public:
  Wanted(A analysis, bool wanted) : analysis_(std::move(analysis)), wanted_(wanted) {}
  void begin(const AnalysisContext& context) {
    if (wanted_) analysis_.begin(context);
  }
  void update(const Block& block) {
    if (wanted_) analysis_.update(block);
  }
  void merge(Wanted&& other) { analysis_.merge(std::move(other.analysis_)); }
  TablesRead reads() const { return wanted_ ? TablesRead(analysis_.reads()) : TablesRead{false, false, false}; }
  const A& get() const { return analysis_; }
  explicit operator bool() const { return wanted_; }

 private:
  A analysis_;
  bool wanted_;
};

// Analyses as one, so that a report reads the trace once for all of them.
template <Analysis... Some>
class Together {
 public:
  explicit Together(Some... some) : all_(std::move(some)...) {}
  void begin(const AnalysisContext& context) {
    each([&](auto& analysis) { analysis.begin(context); });
  }
  void update(const Block& block) {
    each([&](auto& analysis) { analysis.update(block); });
  }
  void merge(Together&& other) {
    [&]<size_t... I>(std::index_sequence<I...>) { (std::get<I>(all_).merge(std::move(std::get<I>(other.all_))), ...); }
    (std::index_sequence_for<Some...>());
  }
  TablesRead reads() const {
    TablesRead all{false, false, false};
    std::apply(
        [&](const auto&... analysis) {
          ((all = {all.rows || analysis.reads().rows, all.histograms || analysis.reads().histograms,
                   all.parameters || analysis.reads().parameters}),
           ...);
        },
        all_);
    return all;
  }
  template <typename A>
  const A& get() const {
    return std::get<A>(all_);
  }

 private:
  template <typename Body>
  void each(Body&& body) {
    std::apply([&](auto&... analysis) { (body(analysis), ...); }, all_);
  }
  std::tuple<Some...> all_;
};

}  // namespace ulpscope
