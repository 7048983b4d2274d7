// What views show, read from traces by a thread of its own. The thread that draws asks for what a state needs and takes what there
// is; it never waits for a file. What is published never changes: newer results replace older ones whole.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ulpscope/analyzers/history/module_rows.h"
#include "ulpscope/analyzers/history/scaled_heatmap.h"
#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/gui/view_state.h"
#include "ulpscope/trace/run_set.h"

namespace ulpscope::gui {

struct NamedOp {
  std::string name;     // "features.0 conv2d, forward"
  uint32_t tensor = 0;  // the first that it makes
};

// A run that is shown, in numbers.
struct RunNumbers {
  WriterState writer = WriterState::closed;
  uint64_t steps = 0;  // of several ranks, of the one that has most
  size_t ranks = 1;
  uint64_t rows = 0;  // of all ranks

  bool operator==(const RunNumbers&) const = default;
};

// Pieces that were not read yet are nullptr.
struct Results {
  std::string name;         // of the first trace
  std::string other;        // of the second, or ""
  std::string failure;      // why it cannot be read, or no longer followed; ""
  bool is_awaited = false;  // the run has not begun
  RunNumbers run, other_run;
  StepRange recorded = {0, 0};                              // first <= step < last
  std::shared_ptr<const std::vector<std::string>> tensors;  // the names of all, in order of execution
  std::shared_ptr<const std::vector<NamedOp>> ops;          // all, in order of execution
  std::shared_ptr<const std::set<std::string>> modules;     // the paths of all, and of those that they lie in
  std::shared_ptr<const std::string> unknown_name;          // why the trace has nothing of what the state names, or ""
  std::shared_ptr<const Report> report, nan, updates, compare, number;
  std::shared_ptr<const std::vector<Plot>> course;            // course_plots, of the shown steps
  std::shared_ptr<const Plot> matrix;                         // module_heatmap or tensor_heatmap, of the shown steps
  std::shared_ptr<const std::vector<ModuleRow>> matrix_rows;  // of the matrix, where they stand in their modules; else nullptr
  std::shared_ptr<const ScaledHeatmap> scaled;                // the matrix at every loss scale, where one is tried
  std::shared_ptr<const Plot> exponents;                      // of the selected tensor
  std::shared_ptr<const Table> scales;                        // scale_shares, of the selected tensor
  std::shared_ptr<const Table> step;                          // of the selected step, what passes the filter
  std::shared_ptr<const Plot> histograms;                     // of its rows
  std::shared_ptr<const Table> flow;                          // tensor_flow, of the selected tensor
  std::shared_ptr<const std::vector<Plot>> errors;            // measure_plots, of the shown steps
  bool is_coarse = false;                                     // no row has values: recorded at level health
};

// True iff the matrix is shown as it would be at the loss scale that is tried: that of results.scaled.
bool follows_scale(const ViewState& state, const Results& results);

// The row of the folded module in which the tensor is, of the matrix; none where it is not folded, or not among them.
std::optional<size_t> folded_row_of(const Results& results, const std::string& tensor);

class ViewModel {
 public:
  // `open` opens what a path names, called by the thread that reads; where it gives nothing the run has not begun, and it is called
  // again. `follow`: look twice a second for new steps, so that they are seen within two seconds of a writer that flushes once a
  // second.
  using Open = std::function<std::optional<RunSet>(const std::string& path)>;
  ViewModel(std::vector<std::string> paths, Open open, bool follow);
  ~ViewModel();
  ViewModel(const ViewModel&) = delete;

  const std::vector<std::string>& paths() const { return paths_; }
  // What this state needs is read next. Never waits for what is being read.
  void ask(const ViewState& state);
  std::shared_ptr<const Results> results() const;
  bool is_busy() const;
  // Until all that the last state needs was read, or cannot be.
  void wait() const;
  // Throws the Error that kept it from reading, if one did.
  void check() const;
  // Called, by the thread that reads, when there is something new.
  void on_news(std::function<void()> news);

 private:
  class Reader;
  void work();

  const std::vector<std::string> paths_;
  const Open open_;
  const bool follow_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::shared_ptr<const Results> results_ = std::make_shared<Results>();
  ViewState asked_;
  uint64_t asked_number_ = 1, done_number_ = 0;
  std::atomic<bool> stopped_ = false;  // read by analyses that run, which end then
  std::exception_ptr error_;
  std::function<void()> news_;
  std::thread thread_;
};

}  // namespace ulpscope::gui
