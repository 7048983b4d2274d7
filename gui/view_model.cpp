#include "ulpscope/gui/view_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <optional>
#include <set>

#include "ulpscope/analyzers/findings/followed_run.h"
#include "ulpscope/analyzers/history/scale_shares.h"
#include "ulpscope/analyzers/history/tensor_flow.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/totals/followed.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
#include "ulpscope/analyzers/verbs/compare.h"
#include "ulpscope/analyzers/verbs/float_explanation.h"
#include "ulpscope/analyzers/verbs/nan.h"
#include "ulpscope/analyzers/verbs/updates.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"

namespace ulpscope::gui {

namespace {

// The reading thread must not end the window, whatever a trace makes it ask for.
std::string what_failed(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "out of memory: the rest of the trace is not shown";
  return one_line(error.what());
}

constexpr size_t kMostMatrixRows = 2000;
constexpr auto kFollowInterval = std::chrono::milliseconds(500);
constexpr auto kWatchInterval = std::chrono::seconds(1);  // of traces that nobody writes any more

bool is_whole(const StepRange& steps) { return steps.first == 0 && steps.last == UINT64_MAX; }

// The course of a run by its steps alone, which are read in no time: what there is to look at until all rows were read.
struct CourseOfSteps : History {
  TablesRead reads() const { return {.rows = false, .histograms = false}; }
};

Error no_such_tensor(const std::string& tensor, const std::vector<std::string>& names) {
  return usage_error("no tensor '{}' in the trace{}", one_line(tensor), did_you_mean(tensor, names));
}

// A piece of the results, and what it was made of: it is made again where that is another.
template <typename Piece>
struct Made {
  std::string of;
  std::shared_ptr<const Piece> piece;
};

}  // namespace

// All that the reading thread keeps between two looks at the trace.
namespace {

// Why the trace has nothing of what the state names, or "".
std::string unknown_name_in(const ViewState& state, const Results& results) {
  const auto& [first, last] = results.recorded;
  if (last <= first) return "";
  if (!state.tensor.empty() && std::find(results.tensors->begin(), results.tensors->end(), state.tensor) == results.tensors->end())
    return no_such_tensor(state.tensor, *results.tensors).what();
  for (const std::set<std::string>& modules : {std::set<std::string>{state.module}, state.folded}) {
    for (const std::string& module : modules) {
      if (module.empty() || results.modules->contains(module)) continue;
      const std::vector<std::string> all(results.modules->begin(), results.modules->end());
      return fmt::format("no module '{}' in the trace{}", one_line(module), did_you_mean_or_expected(module, all));
    }
  }
  if (state.step && (*state.step < first || *state.step >= last))
    return fmt::format("no step {} in the trace; expected one of {} to {}", *state.step, first, last - 1);
  if (state.steps.first >= last || state.steps.last <= first)
    return fmt::format("no step of {} to {} in the trace; expected some of {} to {}", state.steps.first, state.steps.last - 1,
                       first, last - 1);
  return "";
}

}  // namespace

class ViewModel::Reader {
 public:
  // All arguments outlive it. `cancel`: what is read then is of no further use.
  Reader(const std::vector<std::string>& paths, const Open& open, const std::atomic<bool>& cancel)
      : paths_(paths), open_(open), cancel_(cancel) {}

  bool is_open() const { return run_.has_value(); }
  // False where the run has not begun.
  bool open() {
    std::optional<RunSet> run = open_(paths_.front());
    if (!run) return false;
    if (paths_.size() > 1) {
      std::optional<RunSet> other = open_(paths_[1]);
      if (!other) return false;
      other_run_.emplace(std::move(*other));
      take_other();
    }
    run_.emplace(std::move(*run));
    take(run_->snapshot());
    return true;
  }
  // True iff there was something new.
  bool refresh() {
    const bool is_first_new = run_->refresh(), is_other_new = other_run_ && other_run_->refresh();
    if (is_first_new) take(run_->snapshot());
    if (is_other_new) take_other();
    return is_first_new || is_other_new;
  }
  bool is_alive() const {
    const auto is_written = [](const std::optional<Snapshot>& run) { return run && run->writer_state() == WriterState::alive; };
    return is_written(snapshot_) || is_written(other_);
  }

  // The next piece that the state needs and that is not there, the first of those that the view shows; false where all are.
  bool read_next(const ViewState& state, Results& results) {
    if (!snapshot_) return false;
    results.run = numbers_;
    if (other_) results.other = paths_[1];
    results.other_run = other_numbers_;
    const std::string now = std::to_string(number_);
    const std::string steps = fmt::format("{} {} {}", now, state.steps.first, state.steps.last);
    if (state.view == View::number) {
      if (make(
              number_piece_, state.number, [&] { return explain_number(state.number); }, results.number))
        return true;
    }
    if (!results.course) {
      Followed<CourseOfSteps> steps_only([] { return CourseOfSteps(); }, options<AnalysisOptions>());
      steps_only.update(*snapshot_);
      results.recorded = steps_only.analysis().steps();
      results.course = std::make_shared<const std::vector<Plot>>(course_plots(steps_only.analysis(), steps_only.context()));
      return true;
    }
    if (history_number_ != number_) {
      history_.update(*snapshot_);
      history_number_ = number_;
      describe(results);
      return true;
    }
    if (make(
            unknown_name_, fmt::format("{} {}", now, to_options(state)), [&] { return unknown_name_in(state, results); },
            results.unknown_name))
      return true;
    if (make(
            course_, steps, [&] { return course_plots(shown(state).analysis(), shown(state).context()); }, results.course))
      return true;
    const std::string matrix =
        fmt::format("{} {} {} {} {} {} {}", steps, static_cast<int>(state.quantity), static_cast<int>(state.order), state.is_flat,
                    state.is_true, fmt::join(state.folded, "\n"), state.filter);
    if (state.view == View::ranges && make(
                                          matrix_, matrix,
                                          [&] {
                                            results.scaled.reset();  // of other rows
                                            Plot plot = matrix_of(state, results.matrix_rows);
                                            // The exponents of the selected tensor are without it then.
                                            if (state.is_true && state.quantity == Measured::largest_exponent)
                                              plot.title += ", with the loss scale";
                                            return plot;
                                          },
                                          results.matrix))
      return true;
    if (state.view == View::ranges && state.scale && depends_on_scale(state.quantity) && !results.is_coarse &&
        make(
            scaled_, matrix + "\n" + state.format,
            [&] {
              return scaled_heatmap(*snapshot_, *results.matrix, matrix_tensors_, state.quantity, state.format,
                                    of_steps(state.steps));
            },
            results.scaled))
      return true;
    const std::string exponents = fmt::format("{} {} {} {}", steps, state.tensor, state.format, state.is_true || state.scale);
    const bool has_tensor = find_tensor(state.tensor) < names_->size();
    if ((state.view == View::ranges || state.view == View::step) && has_tensor &&
        make(
            exponents_, exponents, [&] { return exponents_of(state); }, results.exponents))
      return true;
    if (state.view == View::ranges && has_tensor && state.scale &&
        make(
            scales_, fmt::format("{} {} {}", steps, state.tensor, state.format), [&] { return scales_of(state); }, results.scales))
      return true;
    const std::string step = fmt::format("{} {} {}", now, chosen_step(state), state.filter);
    if (state.view == View::step && make(
                                        step_, step, [&] { return step_of(state); }, results.step))
      return true;
    if (state.view == View::step && has_tensor &&
        make(
            flow_, fmt::format("{} {}", now, state.tensor), [&] { return tensor_flow(history_.context(), chosen_tensor(state)); },
            results.flow))
      return true;
    if (state.view == View::step && make(
                                        histograms_, step, [&] { return histograms_of(state); }, results.histograms))
      return true;
    if (state.view == View::why_nan && make(
                                           nan_, now, [&] { return nan_analysis_.report(*snapshot_); }, results.nan))
      return true;
    if (state.view == View::updates && make(
                                           updates_, now, [&] { return update_analysis_.report(*snapshot_); }, results.updates))
      return true;
    if (state.view == View::updates &&
        make(
            errors_, steps, [&] { return measure_plots(history_.context(), state.steps); }, results.errors))
      return true;
    if (state.view == View::compare && other_ &&
        make(
            compare_, fmt::format("{} {}", now, other_number_),
            [&] { return analyze_compare(*snapshot_, *other_, options<AnalysisOptions>()); }, results.compare))
      return true;
    return make(
        report_, now, [&] { return report_analysis_.report(*snapshot_); }, results.report);
  }

  uint64_t chosen_step(const ViewState& state) const {
    const StepRange steps = history_.analysis().steps();
    return std::clamp(state.step.value_or(steps.first), steps.first, std::max(steps.first, steps.last - (steps.last > 0 ? 1 : 0)));
  }

 private:
  // All rows, until the window closes.
  template <typename Options>
  Options options() const {
    Options options;
    options.limit = 0;
    options.cancel = &cancel_;
    return options;
  }

  AnalysisOptions of_steps(const StepRange& steps) const {
    auto of_steps = options<AnalysisOptions>();
    of_steps.steps = steps;
    return of_steps;
  }

  void take(Snapshot snapshot) {
    snapshot_.emplace(std::move(snapshot));
    numbers_ = numbers_of(*snapshot_);
    ++number_;
  }
  void take_other() {
    other_.emplace(other_run_->snapshot());
    other_numbers_ = numbers_of(*other_);
    ++other_number_;
  }
  static RunNumbers numbers_of(const Snapshot& run) {
    RunNumbers numbers{run.writer_state(), 0, 0, run.tensor_row_count()};
    for (const int32_t rank : run.ranks()) {
      numbers.steps = std::max(numbers.steps, run.of_rank(rank).step_count());
      ++numbers.ranks;
    }
    return numbers;
  }

  template <typename Piece, typename Make>
  static bool make(Made<Piece>& made, const std::string& of, Make&& how, std::shared_ptr<const Piece>& result) {
    if (made.piece && made.of == of) {
      result = made.piece;
      return false;
    }
    made.piece = std::make_shared<const Piece>(how());
    made.of = of;
    result = made.piece;
    return true;
  }

  void describe(Results& results) {
    const History& history = history_.analysis();
    const AnalysisContext& context = history_.context();
    results.recorded = history.steps();
    if (!names_ || names_->size() != context.selection.size()) {
      auto names = std::make_shared<std::vector<std::string>>();
      for (uint32_t tensor = 0; tensor < context.selection.size(); ++tensor) names->push_back(context.selection.name(tensor));
      names_ = std::move(names);
      auto ops = std::make_shared<std::vector<NamedOp>>();
      std::set<uint32_t> named;
      for (uint32_t tensor = 0; tensor < context.selection.size(); ++tensor) {
        if (!named.insert(context.selection.tensor(tensor).op).second) continue;
        const OpInfo& op = context.selection.op(tensor);
        ops->push_back({fmt::format("{}{}{}, {}", op.module, op.module.empty() ? "" : " ", op.name, name_of(op.phase)), tensor});
      }
      ops_ = std::move(ops);
      auto modules = std::make_shared<std::set<std::string>>();
      for (uint32_t tensor = 0; tensor < context.selection.size(); ++tensor) {
        const std::string& module = context.selection.op(tensor).module;
        for (size_t end = module.find('.'); end != std::string::npos; end = module.find('.', end + 1))
          modules->insert(module.substr(0, end));
        if (!module.empty()) modules->insert(module);
      }
      modules_ = std::move(modules);
    }
    results.ops = ops_;
    results.tensors = names_;
    results.modules = modules_;
    results.is_coarse = results.recorded.last > 0;
    for (uint32_t tensor = 0; tensor < history.tensors() && results.is_coarse; ++tensor)
      results.is_coarse = history.total(tensor).rows_with_values == 0;
  }

  // The history of the steps that are shown: of fewer, with columns of their own.
  const Followed<History>& shown(const ViewState& state) {
    if (is_whole(state.steps)) return history_;
    const std::string of = fmt::format("{} {}", state.steps.first, state.steps.last);
    if (zoomed_of_ == of) {
      if (zoomed_number_ != number_) zoomed_->update(*snapshot_);  // what a run has written since
    } else {
      zoomed_ = std::make_unique<Followed<History>>([] { return History(); }, of_steps(state.steps));
      zoomed_->update(*snapshot_);
      zoomed_of_ = of;
    }
    zoomed_number_ = number_;
    return *zoomed_;
  }

  Plot matrix_of(const ViewState& state, std::shared_ptr<const std::vector<ModuleRow>>& rows) {
    const Followed<History>& history = shown(state);
    std::vector<uint32_t> tensors = ordered_tensors(history.analysis(), history.context(), state.quantity, state.order);
    std::erase_if(tensors, [&](uint32_t tensor) { return !passes(state, history.context().selection.name(tensor)); });
    // Whatever is filtered or has a value, so that folds keep their meaning.
    const bool are_many = history.context().selection.size() > kMostMatrixRows;
    matrix_tensors_.clear();
    const auto cut = [](auto& all) {
      const size_t left_out = all.size() - std::min(all.size(), kMostMatrixRows);
      all.resize(all.size() - left_out);
      return left_out;
    };
    if (state.is_flat) {
      rows.reset();
      const size_t left_out = cut(tensors);
      for (const uint32_t tensor : tensors) matrix_tensors_.push_back({tensor});
      Plot plot = tensor_heatmap(history.analysis(), history.context(), state.quantity, tensors);
      plot.series_left_out = left_out;
      return plot;
    }
    std::vector<ModuleRow> in_modules = module_rows(
        history.context(), tensors, [&](const std::string& module) { return state.folded.contains(module) != are_many; });
    const size_t left_out = cut(in_modules);
    Plot plot = module_heatmap(history.analysis(), history.context(), state.quantity, in_modules);
    plot.series_left_out = left_out;
    for (const ModuleRow& row : in_modules) matrix_tensors_.push_back(row.tensors);
    rows = std::make_shared<const std::vector<ModuleRow>>(std::move(in_modules));
    return plot;
  }

  Table step_of(const ViewState& state) {
    Table table = step_table(history_.context(), chosen_step(state));
    std::erase_if(table.rows, [&](const TableRow& row) { return !passes(state, row.key.name); });
    return table;
  }
  Plot histograms_of(const ViewState& state) {
    Plot plot = step_histograms(history_.context(), chosen_step(state));
    std::erase_if(plot.series, [&](const Series& row) { return !passes(state, row.name); });
    return plot;
  }

  // Its place, or the number of all: there is none of that name.
  size_t find_tensor(const std::string& name) const {
    return static_cast<size_t>(std::find(names_->begin(), names_->end(), name) - names_->begin());
  }
  uint32_t chosen_tensor(const ViewState& state) const { return static_cast<uint32_t>(find_tensor(state.tensor)); }

  const FloatFormat& chosen_format(const ViewState& state, uint32_t tensor) const {
    if (!state.format.empty()) return parse_format(state.format);
    const DType dtype = history_.context().selection.tensor(tensor).dtype;
    return is_narrow(dtype) ? *info(dtype).format : binary16;
  }

  Plot exponents_of(const ViewState& state) {
    const uint32_t tensor = chosen_tensor(state);
    ExponentPlotOptions options;
    options.steps = state.steps;
    options.is_true = state.is_true || state.scale;
    options.formats = {&chosen_format(state, tensor)};
    return exponent_heatmap(*snapshot_, tensor, state.tensor, options);
  }

  Table scales_of(const ViewState& state) {
    const uint32_t tensor = chosen_tensor(state);
    return scale_shares(history_.context(), tensor, chosen_format(state, tensor), state.steps);
  }

  const std::vector<std::string>& paths_;
  const Open& open_;
  const std::atomic<bool>& cancel_;
  std::optional<RunSet> run_, other_run_;
  std::optional<Snapshot> snapshot_, other_;
  RunNumbers numbers_, other_numbers_;
  uint64_t number_ = 0, other_number_ = 0, history_number_ = 0, zoomed_number_ = 0;  // of the snapshots
  Followed<History> history_{[] { return History(); }, options<AnalysisOptions>()};
  std::unique_ptr<Followed<History>> zoomed_;
  std::string zoomed_of_;
  // One pass over the rows for all of them.
  FollowedRun followed_{options<ReportOptions>(), kReportParts, AskedBesides{.update_history = true}};
  ReportAnalysis report_analysis_{options<ReportOptions>(), followed_};
  NanAnalysis nan_analysis_{followed_};
  UpdateAnalysis update_analysis_{followed_};
  std::shared_ptr<const std::vector<std::string>> names_;
  std::shared_ptr<const std::vector<NamedOp>> ops_;
  std::shared_ptr<const std::set<std::string>> modules_;
  Made<Report> report_, nan_, updates_, compare_, number_piece_;
  Made<std::string> unknown_name_;
  Made<std::vector<Plot>> course_, errors_;
  Made<Plot> matrix_, exponents_, histograms_;
  std::vector<std::vector<uint32_t>> matrix_tensors_;  // that each row of the matrix stands for
  Made<ScaledHeatmap> scaled_;
  Made<Table> step_, scales_, flow_;
};

bool follows_scale(const ViewState& state, const Results& results) {
  return state.scale && depends_on_scale(state.quantity) && results.scaled && results.scaled->measured() == state.quantity;
}

std::optional<size_t> folded_row_of(const Results& results, const std::string& tensor) {
  if (!results.matrix_rows || !results.tensors || tensor.empty()) return std::nullopt;
  const std::vector<ModuleRow>& rows = *results.matrix_rows;
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto is_sought = [&](uint32_t other) { return results.tensors->at(other) == tensor; };
    if (rows[row].is_folded && std::any_of(rows[row].tensors.begin(), rows[row].tensors.end(), is_sought)) return row;
  }
  return std::nullopt;
}

ViewModel::ViewModel(std::vector<std::string> paths, Open open, bool follow)
    : paths_(std::move(paths)), open_(std::move(open)), follow_(follow) {
  auto first = std::make_shared<Results>();
  first->name = paths_.front();
  results_ = first;
  thread_ = std::thread([this] { work(); });
}

ViewModel::~ViewModel() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ViewModel::ask(const ViewState& state) {
  const std::lock_guard lock(mutex_);
  if (state == asked_ && asked_number_ > 1) return;
  asked_ = state;
  ++asked_number_;
  changed_.notify_all();
}

std::shared_ptr<const Results> ViewModel::results() const {
  const std::lock_guard lock(mutex_);
  return results_;
}

bool ViewModel::is_busy() const {
  const std::lock_guard lock(mutex_);
  return done_number_ != asked_number_;
}

void ViewModel::wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_number_ == asked_number_; });
}

void ViewModel::check() const {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

void ViewModel::on_news(std::function<void()> news) {
  const std::lock_guard lock(mutex_);
  news_ = std::move(news);
}

void ViewModel::work() {
  Reader reader(paths_, open_, stopped_);
  Results results;
  results.name = paths_.front();
  std::string lost;  // why what was to be followed cannot be read any more, or ""
  std::unique_lock lock(mutex_);
  const auto publish = [&] {
    results_ = std::make_shared<const Results>(results);
    if (news_) news_();
    changed_.notify_all();
  };
  const auto interval = [&]() -> std::chrono::steady_clock::duration {
    if (!reader.is_open() || reader.is_alive()) return kFollowInterval;
    return kWatchInterval;
  };
  auto looked = std::chrono::steady_clock::now();
  bool is_held = false;  // something new is not published yet
  while (!stopped_) {
    const ViewState state = asked_;
    const uint64_t number = asked_number_;
    lock.unlock();
    bool is_new = false, more = false;
    std::string failure;
    std::exception_ptr thrown;
    try {
      const auto now = std::chrono::steady_clock::now();
      if (!reader.is_open() && lost.empty()) {
        is_new = reader.open();
        results.is_awaited = !is_new;
      } else if (follow_ && lost.empty() && now - looked >= interval()) {
        looked = now;
        is_new = reader.refresh();
      }
    } catch (const std::exception& error) {
      failure = lost = what_failed(error);
      thrown = std::current_exception();
    }
    try {
      more = reader.read_next(state, results);
    } catch (const std::exception& error) {
      if (failure.empty()) failure = what_failed(error);
      if (!thrown) thrown = std::current_exception();
    }
    lock.lock();
    const bool is_new_failure = failure != results.failure;
    if (!failure.empty()) {
      results.failure = failure;
      error_ = thrown;
    } else if (number != done_number_ || is_new) {
      results.failure = lost;
      if (lost.empty()) error_ = nullptr;
    }
    // What nobody asked for, as what a run has written since, comes all at once: each redraw costs the run.
    is_held = is_held || more || is_new;
    const bool is_asked_for = number != done_number_ || (!failure.empty() && is_new_failure);
    if (is_asked_for || (is_held && !more)) {
      publish();
      is_held = false;
    }
    if (more && failure.empty()) continue;
    done_number_ = number;
    changed_.notify_all();
    const auto is_asked = [&] { return stopped_ || asked_number_ != done_number_; };
    if (follow_ && lost.empty())
      changed_.wait_for(lock, interval(), is_asked);
    else
      changed_.wait(lock, is_asked);
  }
}

}  // namespace ulpscope::gui
