// What the window costs on a trace of 10^6 tensor rows: until there is a picture, until all views are there, memory, the CPU time
// of a frame of each view, and dragging the loss scale. Prints a JSON object.
//   gui_bench TENSORS TRACE       writes the trace, with steps of so many tensors, in a process of its own, and measures
//   gui_bench --compare TRACE     instead measures the view that compares it with a copy
//   gui_bench --gl TRACE          instead measures whole frames of a real window
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench_trace.h"
#include "ulpscope/base/error.h"
#include "ulpscope/gui/headless.h"
#include "ulpscope/gui/window.h"
#include "ulpscope/trace/run_set.h"

namespace {

using namespace ulpscope;
using namespace ulpscope::gui;

constexpr uint64_t kRows = 1000000;
constexpr int kFrames = 60;

using Figures = std::vector<std::pair<std::string, double>>;

RunSet open(const std::string& path) { return RunSet(path); }

double cpu_seconds(clockid_t of) {
  timespec time{};
  clock_gettime(of, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class Clock {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// The most that the process ever had.
double peak_megabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmHWM:" && status >> word) return 1.024e-3 * std::stod(word);
  return 0;
}

void write_trace(int tensors, const std::string& path) {
  TraceOptions options;
  options.overwrite = true;
  const auto sink = create_trace(path, RunInfo(), options);
  const bench::BenchTrace content(tensors, std::max(2, 6000 / tensors));
  content.add_tables(*sink);
  for (uint64_t step = 0; step < kRows / content.rows_per_step(); ++step) content.add_step(*sink, step);
  sink->close();
  if (sink->status().failed) throw Error(ErrorKind::failed, sink->status().failure);
}

// The view as it is looked at: with a tensor, a step and a loss scale that is tried, where it has such.
ViewState state_of(View view, const Results& results) {
  ViewState state;
  state.view = view;
  if (view == View::ranges || view == View::step) {
    state.tensor =
        results.matrix && !results.matrix->series.empty() ? results.matrix->series.front().name : results.tensors->front();
    state.step = (results.recorded.first + results.recorded.last) / 2;
  }
  if (view == View::ranges) state.scale = 10;
  return state;
}

void settle(const ViewModel& model, Headless& host, App& app) {
  for (int i = 0; i < 4; ++i) {
    host.run(app);
    model.wait();
  }
}

Figures measure(const std::string& path) {
  Figures figures;
  const Clock clock;
  ViewModel model({path}, open, false);
  Headless host(1920, 1080);
  App app(model, host.textures(), {});
  while (!model.results()->course && model.is_busy()) host.run(app);
  host.draw(app);
  figures.emplace_back("first_picture_seconds", clock.seconds());
  // A view is ready when all that it shows was read and its frame has run.
  model.wait();
  figures.emplace_back("overview_seconds", clock.seconds());
  for (int i = 1; i < kViews; ++i) {
    const Clock of_view;
    app.state() = state_of(static_cast<View>(i), *model.results());
    host.run(app);
    model.wait();
    host.run(app);
    figures.emplace_back(fmt::format("ready_seconds/{}", name_of(static_cast<View>(i))), of_view.seconds());
  }
  figures.emplace_back("all_views_seconds", clock.seconds());
  figures.emplace_back("all_views_cpu_seconds", cpu_seconds(CLOCK_PROCESS_CPUTIME_ID));  // of all threads
  figures.emplace_back("megabytes", peak_megabytes());
  model.check();

  for (int i = 0; i < kViews; ++i) {
    const auto view = static_cast<View>(i);
    app.state() = state_of(view, *model.results());
    settle(model, host, app);
    std::vector<double> seconds;
    for (int frame = 0; frame < kFrames; ++frame) {
      host.move_to({200.0F + static_cast<float>(frame * 20), 200.0F + static_cast<float>(frame * 10)});
      const double start = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
      host.run(app);
      seconds.push_back(cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - start);
    }
    host.move_to({-1, -1});
    figures.emplace_back(fmt::format("frame_ms/{}", name_of(view)), 1e3 * median(seconds));
    figures.emplace_back(fmt::format("slowest_frame_ms/{}", name_of(view)),
                         1e3 * *std::max_element(seconds.begin(), seconds.end()));
  }

  // The first scale that is tried is when all of them are counted, for other limits than before.
  app.state() = state_of(View::ranges, *model.results());
  app.state().scale.reset();
  app.state().format = "e5m2";
  settle(model, host, app);
  app.state().scale = 0;
  const Clock tried;
  host.run(app);
  model.wait();
  figures.emplace_back("try_scale_ms", 1e3 * tried.seconds());
  std::vector<double> seconds, worker;
  for (int k = 0; k < 24; ++k) {
    app.state().scale = k;
    const double start = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    host.run(app);
    seconds.push_back(cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - start);
    const Clock waited;
    model.wait();
    worker.push_back(waited.seconds());
  }
  figures.emplace_back("drag_scale_ms", 1e3 * *std::max_element(seconds.begin(), seconds.end()));
  figures.emplace_back("drag_scale_worker_ms", 1e3 * *std::max_element(worker.begin(), worker.end()));

  // A tenth of the steps, all others of them each time.
  std::vector<double> zooms;
  const uint64_t steps = model.results()->recorded.last;
  for (uint64_t i = 0; i < 5; ++i) {
    app.state().steps = {steps * i / 10, steps * (i + 1) / 10};
    const Clock zoom;
    host.run(app);
    model.wait();
    host.run(app);
    zooms.push_back(zoom.seconds());
  }
  figures.emplace_back("zoom_seconds", median(zooms));
  return figures;
}

// Two runs of which every row is compared, from opening them on.
Figures measure_comparison(const std::string& path) {
  Figures figures;
  const std::string other = path + ".other";
  std::filesystem::copy_file(path, other, std::filesystem::copy_options::overwrite_existing);
  const Clock clock;
  ViewModel model({path, other}, open, false);
  Headless host(1920, 1080);
  App app(model, host.textures(), {});
  app.state().view = View::compare;
  settle(model, host, app);
  model.check();
  figures.emplace_back("compare_seconds", clock.seconds());
  std::vector<double> seconds;
  for (int frame = 0; frame < kFrames; ++frame) {
    const double start = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    host.run(app);
    seconds.push_back(cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - start);
  }
  figures.emplace_back("compare_frame_ms", 1e3 * median(seconds));
  return figures;
}

Figures measure_window(const std::string& path) {
  Figures figures;
  std::vector<ViewState> states;
  {
    ViewModel model({path}, open, false);
    ViewState state;
    state.view = View::ranges;
    model.ask(state);
    model.wait();
    model.check();
    for (int i = 0; i < kViews; ++i) states.push_back(state_of(static_cast<View>(i), *model.results()));
  }
  const std::vector<std::vector<double>> seconds = time_window({path}, open, states, 1280, 720, kFrames);
  for (size_t i = 0; i < states.size(); ++i)
    figures.emplace_back(fmt::format("window_frame_ms/{}", name_of(states[i].view)), 1e3 * median(seconds[i]));
  return figures;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string what = argc == 3 ? argv[1] : "";
    const bool is_gl = what == "--gl", compares = what == "--compare";
    const int tensors = std::atoi(what.c_str());
    if (!is_gl && !compares && (tensors < 2 || tensors > 100000))
      throw usage_error("gui_bench TENSORS TRACE, TENSORS from 2 to 100000, or gui_bench --compare TRACE, or gui_bench --gl TRACE");
    const std::string path = argv[2];
    if (!is_gl && !compares) {
      // Memory is that of reading alone.
      const pid_t child = fork();
      if (child == 0) {
        write_trace(tensors, path);
        std::_Exit(0);
      }
      int status = 0;
      if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        throw failed_error("the trace '{}' could not be written", path);
    }
    std::string text;
    for (const auto& [name, value] : is_gl ? measure_window(path) : compares ? measure_comparison(path) : measure(path))
      text += fmt::format("{}\"{}\": {}", text.empty() ? "" : ", ", name, value);
    fmt::print("{{{}}}\n", text);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.kind() == ErrorKind::usage ? 2 : 4;
  }
}
