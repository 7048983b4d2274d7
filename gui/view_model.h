// What views show, read from traces by a thread of its own. The thread that draws asks for what a state needs and takes what there
// is; it never waits for a file. What is published never changes: newer results replace older ones whole.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/gui/view_state.h"
#include "ulpscope/trace/run_set.h"

namespace ulpscope::gui {

// Pieces that were not read yet are nullptr.
struct Results {
  std::string name;     // of the first trace
  std::string other;    // of the second, or ""
  std::string failure;  // why it cannot be read, or no longer followed; ""
  WriterState writer = WriterState::closed;
  uint64_t steps = 0, rows = 0;
  StepRange recorded = {0, 0};                              // first <= step < last
  std::shared_ptr<const std::vector<std::string>> tensors;  // the names of all, in order of execution
  std::shared_ptr<const Report> report, nan, updates, compare, number;
  std::shared_ptr<const std::vector<Plot>> course;  // course_plots, of the shown steps
  std::shared_ptr<const Plot> matrix;               // tensor_heatmap, of the shown steps
  std::shared_ptr<const Plot> exponents;            // of the selected tensor
  std::shared_ptr<const Table> scales;              // scale_shares, of the selected tensor
  std::shared_ptr<const Table> step;                // of the selected step
  bool is_coarse = false;                           // no row has values: recorded at level health
};

class ViewModel {
 public:
  // `open` opens what a path names; called by the thread that reads. `follow`: look for new steps once a second.
  using Open = std::function<RunSet(const std::string& path)>;
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
  bool stopped_ = false;
  std::exception_ptr error_;
  std::function<void()> news_;
  std::thread thread_;
};

}  // namespace ulpscope::gui
