// What analyses over the rows of a trace are, and what they are given; followed.h runs them.
//
// An Analysis
//   begin(context)    is told of the trace, which outlives its use, before the first block and again when it has grown;
//   update(block)     takes rows, each rank's steps in order;
//   merge(analysis)   takes over what another one saw, in each rank, of steps that all lie before or behind its own.
// At any moment between steps it can report what it has seen, and that is the same however the steps came: in one go, in blocks
// over time, or merged.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/subject/selection.h"
#include "ulpscope/analyzers/subject/setting_names.h"
#include "ulpscope/analyzers/subject/softmax_masks.h"
#include "ulpscope/analyzers/subject/step_facts.h"
#include "ulpscope/analyzers/subject/tensor_graph.h"

namespace ulpscope {

// A trace, and what was asked of it.
struct AnalysisContext {
  // `before`: of the same trace and options, when it was shorter; what tables did not grow is taken over from it.
  AnalysisContext(const Snapshot& snapshot, const AnalysisOptions& asked, const AnalysisContext* before = nullptr);

  const Snapshot trace;
  const AnalysisOptions options;
  const std::vector<TracePart> parts;

  // The loss of the step was nothing beside the first one: there is nothing left to learn in it, and what its gradients and updates
  // lose is lost to nobody. docs/numerics.md, "Steps that are fitted".
  bool is_fitted(const StepRow& step) const { return step.loss_known && step.loss >= 0 && step.loss <= fitted_loss_; }

  // Contexts that share selection, graph, masks and settings have the same.
  std::shared_ptr<const void> tables() const { return tables_; }

 private:
  struct Tables {
    Tables(const Snapshot& trace, const AnalysisOptions& options)
        : selection(trace, options),
          graph(trace),
          masks(trace, graph),
          settings(trace.settings(), words_of(trace.run()), trace.run().backend) {}
    const Selection selection;
    const TensorGraph graph;
    const SoftmaxMasks masks;
    const SettingNames settings;
  };
  const std::shared_ptr<const Tables> tables_;
  const double fitted_loss_;  // NaN: no step is fitted

 public:
  const Selection& selection;
  const TensorGraph& graph;
  const SoftmaxMasks& masks;
  const SettingNames& settings;
};

// Rows of one step, of one rank. A step of many rows comes in several blocks.
struct Block {
  size_t part = 0;  // of the context's
  int rank = 0;
  const StepRow& step;
  std::span<const TensorRow> rows;           // in order of execution
  std::span<const ParameterRow> parameters;  // all of the step, with its first block
  std::span<const SumRow> sums;              // the same
  bool begins = true, ends = true;           // the step
};

// What of a trace an analysis reads besides its steps.
struct TablesRead {
  bool rows = true, histograms = true, parameters = false, sums = false;

  static TablesRead none() { return {false, false, false, false}; }
  TablesRead operator|(const TablesRead& other) const {
    return {rows || other.rows, histograms || other.histograms, parameters || other.parameters, sums || other.sums};
  }
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
  TablesRead reads() const { return wanted_ ? TablesRead(analysis_.reads()) : TablesRead::none(); }
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
    TablesRead all = TablesRead::none();
    std::apply([&](const auto&... analysis) { ((all = all | analysis.reads()), ...); }, all_);
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
