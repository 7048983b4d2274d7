// What a recording costs: bytes a tensor row, CPU time of the producer and of the writer, and the time to open, to read, to index
// to follow a trace, and to follow the report of a run that failed.
//   trace_bench [ROWS]... [--keep FILE] [--json]      100000 and 1000000 rows; --keep leaves the last trace, --json prints an
//   object a trace
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench_trace.h"
#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
#include "ulpscope/base/error.h"
#include "ulpscope/trace/run_set.h"
#include "ulpscope/trace/sink.h"
#include "ulpscope/trace/snapshot.h"

namespace {

using namespace ulpscope;
using bench::BenchTrace;

constexpr int kRowsPerStep = 60;

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <typename Body>
double seconds_of(Body&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// By name, in the order in which they are printed.
using Figures = std::vector<std::pair<std::string, double>>;

// Of this process, now.
double resident_bytes() {
  std::ifstream status("/proc/self/statm");
  double pages = 0, resident = 0;
  status >> pages >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// Refreshing, and look(snapshot, first new step), 10,000 rows that were committed since, of a trace that is being written: the
// middle of several times. `before`: steps that it has by then. From step `nan_from` on it has failed.
template <typename Look>
double follow(const std::string& path, const BenchTrace& source, uint64_t before, uint64_t nan_from, Look&& look) {
  constexpr uint64_t kSteps = 10000 / kRowsPerStep + 1, kTimes = 9;
  const std::string live = path + ".live";
  TraceOptions options;
  options.overwrite = true;
  const auto sink = create_trace(live, RunInfo(), options);
  source.add_tables(*sink);
  std::optional<RunSet> run;
  std::vector<double> times;
  uint64_t step = 0;
  for (uint64_t time = 0; time <= kTimes; ++time) {
    const uint64_t first = step;
    for (; step < before + (time + 1) * kSteps; ++step) source.add_step(*sink, step, step >= nan_from);
    sink->flush();
    if (!run) run.emplace(live);
    times.push_back(seconds_of([&] {
      run->refresh();
      look(run->snapshot(), first);
    }));
  }
  sink->close();
  std::filesystem::remove(live);
  std::sort(times.begin() + 1, times.end());
  return times[1 + kTimes / 2];
}

double follow_rows(const std::string& path, const BenchTrace& source) {
  return follow(path, source, 0, UINT64_MAX, [](const Snapshot& trace, uint64_t first) {
    trace.visit_rows({first, UINT64_MAX}, [](std::span<const TensorRow>) { return true; });
  });
}

// The run is NaN from its middle on.
double follow_failed_report(const std::string& path, const BenchTrace& source, uint64_t steps) {
  ReportAnalysis analysis{ReportOptions{}};
  return follow(path, source, steps, steps / 2, [&](const Snapshot& trace, uint64_t) {
    if (!analysis.report(trace).verdict) throw Error(ErrorKind::failed, "nothing was judged");
  });
}

Figures measure(uint64_t rows_wanted, const BenchTrace& source, const std::string& path) {
  const uint64_t steps = rows_wanted / kRowsPerStep;
  TraceOptions options;
  options.overwrite = true;
  double producer = 0;
  SinkStatus status;
  const double wall = seconds_of([&] {
    const auto sink = create_trace(path, RunInfo(), options);
    source.add_tables(*sink);
    const double start = thread_seconds();
    for (uint64_t step = 0; step < steps; ++step) source.add_step(*sink, step);
    producer = thread_seconds() - start;
    sink->close();
    status = sink->status();
  });
  if (status.failed) throw Error(ErrorKind::failed, status.failure);
  const auto rows = static_cast<double>(steps * kRowsPerStep);
  uint64_t seen = 0;
  double largest = 0;
  const auto visit = [&](std::span<const TensorRow> batch) {
    for (const TensorRow& row : batch) largest = std::max(largest, row.statistics.largest);
    return true;
  };
  // Without what was kept of rows that were read before.
  const auto fresh_seconds = [&](auto&& body) {
    const Snapshot reader(path);
    return seconds_of([&] { body(reader); });
  };
  const double open = seconds_of([&] { seen = Snapshot(path).tensor_row_count(); });
  const double with = fresh_seconds([&](const Snapshot& reader) { reader.visit_rows({}, visit); });
  const double without = fresh_seconds([&](const Snapshot& reader) { reader.visit_rows_without_histograms({}, visit); });
  const double one_step = fresh_seconds([&](const Snapshot& reader) { reader.visit_rows({steps / 2, steps / 2 + 1}, visit); });
  std::optional<Snapshot> indexed;
  const double index = seconds_of([&] {
    indexed.emplace(path);
    indexed->load_rows();
  });
  const double indexed_bytes = resident_bytes();
  const double history = seconds_of([&] { indexed->visit_history(kRowsPerStep / 2, {}, visit); });
  double smallest = 0;
  const double column = seconds_of([&] { smallest = indexed->column<double>("smallest").back(); });
  const double again = seconds_of([&] { indexed->visit_rows({}, visit); });
  indexed.reset();
  if (largest == 0 || smallest == 0) throw Error(ErrorKind::failed, "no rows were read");
  return {{"rows", static_cast<double>(seen)},
          {"bytes_per_row", static_cast<double>(std::filesystem::file_size(path)) / rows},
          {"producer_us_per_row", 1e6 * producer / rows},  // with a copy of the row
          {"writer_us_per_row", 1e6 * status.writer_seconds / rows},
          {"write_seconds", wall},
          {"open_seconds", open},
          {"visit_seconds", with},
          {"visit_without_histograms_seconds", without},
          {"visit_one_step_seconds", one_step},
          {"index_seconds", index},                   // opening, and reading all rows into memory
          {"index_megabytes", 1e-6 * indexed_bytes},  // all that the process has
          {"history_seconds", history},               // of one tensor, then
          {"column_seconds", column},
          {"visit_indexed_seconds", again},
          {"follow_seconds", follow_rows(path, source)},
          {"follow_failed_report_seconds", follow_failed_report(path, source, steps)}};
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::vector<uint64_t> sizes;
    std::string keep;
    bool json = false;
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      if (argument == "--json") {
        json = true;
      } else if (argument == "--keep" && i + 1 < argc) {
        keep = argv[++i];
      } else if (std::strtoull(argv[i], nullptr, 10) >= kRowsPerStep) {
        sizes.push_back(std::strtoull(argv[i], nullptr, 10));
      } else {
        throw ulpscope::usage_error("trace_bench [ROWS]... [--json] [--keep TRACE], ROWS of {} and more; '{}' came", kRowsPerStep,
                                    argument);
      }
    }
    if (sizes.empty()) sizes = {100000, 1000000};
    const BenchTrace source(kRowsPerStep, 100);
    const std::string temporary = (std::filesystem::temp_directory_path() / "ulpscope_trace_bench.h5").string();
    for (const uint64_t size : sizes) {
      const Figures figures = measure(size, source, keep.empty() ? temporary : keep);
      std::string text;
      for (const auto& [name, value] : figures) {
        text +=
            json ? fmt::format("{}\"{}\": {}", text.empty() ? "" : ", ", name, value) : fmt::format("{:<34}{:.4g}\n", name, value);
      }
      fmt::print("{}\n", json ? "{" + text + "}" : text);
    }
    if (keep.empty()) std::filesystem::remove(temporary);
  } catch (const ulpscope::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.kind() == ulpscope::ErrorKind::usage ? 2 : 4;
  }
}
