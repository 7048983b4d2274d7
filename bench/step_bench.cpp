// Times whole training steps in every precision and at every recording level, in turns, so that their ratios are of one run.
//
//   step_bench WORKLOAD [--threads N] [--seconds S] [--device D]     S seconds for each of them; a JSON line for each: precision,
//   record, median ms, and what the writer took
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/kernels/devices.h"

namespace {

using namespace ulpscope;
using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

struct Run {
  Precision precision;
  RecordLevel level;
  std::filesystem::path trace;
  std::unique_ptr<Trainer> trainer;
  std::vector<double> ms;

  Run(const std::string& workload, Precision precision_, RecordLevel level_, int threads, const std::string& device)
      : precision(precision_), level(level_) {
    auto experiment = find_preset(workload);
    if (!experiment) throw usage_error("step_bench: no preset '{}'", workload);
    experiment->precision = precision;
    experiment->recording.level = level;
    experiment->training.steps = int64_t{1} << 40;
    experiment->training.evaluation = Evaluation::never;
    TrainerOptions options;
    options.cpu.threads = threads;
    options.make_backend = maker_of_device(device);
    options.overwrite = true;
    if (level != RecordLevel::off) {
      trace = std::filesystem::temp_directory_path() / fmt::format("step_bench_{}_{}.h5", name_of(precision), name_of(level));
      options.trace_path = trace;
    }
    trainer = std::make_unique<Trainer>(*experiment, options);
  }

  // Steps for about `budget` ms, the first two untimed: the others' data were in the caches.
  void burst(double budget) {
    for (int i = 0; i < 2; ++i) trainer->step();
    const auto start = Clock::now();
    do {
      const auto begin = Clock::now();
      trainer->step();
      ms.push_back(ms_since(begin));
    } while (ms_since(start) < budget);
  }
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

int run(int argc, char** argv) {
  std::string workload, device = "cpu";
  int threads = 2;
  double seconds = 3;
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (!std::strcmp(argv[i], "--threads") && has_value) {
      threads = std::atoi(argv[++i]);
    } else if (!std::strcmp(argv[i], "--seconds") && has_value) {
      seconds = std::atof(argv[++i]);
    } else if (!std::strcmp(argv[i], "--device") && has_value) {
      device = argv[++i];
    } else if (argv[i][0] != '-' && workload.empty()) {
      workload = argv[i];
    } else {
      throw usage_error("step_bench: unexpected argument '{}'; usage: step_bench WORKLOAD [--threads N] [--seconds S] [--device D]",
                        argv[i]);
    }
  }
  std::vector<std::unique_ptr<Run>> runs;
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16})
    for (const RecordLevel level : {RecordLevel::off, RecordLevel::health, RecordLevel::stats})
      runs.push_back(std::make_unique<Run>(workload, precision, level, threads, device));
  for (auto& each : runs)
    for (int i = 0; i < 3; ++i) each->trainer->step();

  const int turns = 10;
  for (int turn = 0; turn < turns; ++turn)
    for (auto& each : runs) each->burst(seconds * 1000 / turns);

  for (auto& each : runs) {
    const TrainResult result = each->trainer->finish();
    const double rows = static_cast<double>(std::max<uint64_t>(result.trace.tensor_rows, 1));
    fmt::print(R"({{"workload":"{}","precision":"{}","record":"{}","ms":{:.4f},"steps":{},"peak_memory_bytes":{})", workload,
               name_of(each->precision), name_of(each->level), median(each->ms), each->ms.size(), result.peak_memory_bytes);
    if (!each->trace.empty()) {
      fmt::print(R"(,"rows_per_step":{:.1f},"writer_us_per_row":{:.3f},"bytes_per_row":{:.1f})",
                 rows / static_cast<double>(result.steps), result.trace.writer_seconds * 1e6 / rows,
                 static_cast<double>(result.trace.bytes) / rows);
      std::filesystem::remove(each->trace);
    }
    fmt::print("}}\n");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
