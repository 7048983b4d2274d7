// Times whole training steps in every precision and at every recording level, in turns, so that their ratios are of one run.
//
//   step_bench EXPERIMENT     a preset or a file; S seconds for each precision and level, and a JSON line for each: precision,
//   record, median ms, parameters of the model, and what the writer took. With --seconds 0 nothing is timed
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench_options.h"
#include "ulpscope/core/nn/model.h"
#include "ulpscope/core/run/trainer.h"
#include "ulpscope/kernels/devices.h"

namespace {

using namespace ulpscope;
using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

struct Run {
  std::string precision, level;
  std::filesystem::path trace;
  std::unique_ptr<Trainer> trainer;
  std::vector<double> ms;

  Run(const std::string& workload, std::vector<Override> settings, std::string precision_, std::string level_,
      const TrainerOptions& common)
      : precision(std::move(precision_)), level(std::move(level_)) {
    settings.emplace_back("precision=" + precision);
    settings.emplace_back("recording.level=" + level);
    settings.emplace_back("training.evaluation=never");
    Experiment experiment = named_experiment(workload, settings);
    experiment.training.steps = int64_t{1} << 40;
    TrainerOptions options = common;
    options.overwrite = true;
    if (experiment.recording.level != RecordLevel::off) {
      trace = std::filesystem::temp_directory_path() / fmt::format("step_bench_{}_{}.h5", precision, level);
      options.trace_path = trace;
    }
    trainer = std::make_unique<Trainer>(experiment, options);
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

int64_t parameters_of(Trainer& trainer) {
  int64_t count = 0;
  for (const NamedTensor& parameter : trainer.model().parameters()) count += parameter.tensor.size();
  return count;
}

int run(int argc, char** argv) {
  const BenchOptions given(argc, argv,
                           "step_bench EXPERIMENT [--set KEY=VALUE]... [--precision NAME]... [--record LEVEL]... [--threads N] "
                           "[--seconds S] [--turns N] [--device D]");
  const std::string& workload = given.word();
  if (workload.empty()) throw usage_error("expected EXPERIMENT, a preset or a file");
  const auto listed = [&](const char* option, std::vector<std::string> otherwise) {
    const std::vector<std::string> values = given.all(option);
    return values.empty() ? otherwise : values;
  };
  const std::vector<std::string> assignments = given.all("--set");
  const std::vector<Override> settings(assignments.begin(), assignments.end());
  TrainerOptions options;
  options.cpu.threads = given.number("--threads", 2);
  options.make_backend = maker_of_device(given.text("--device", "cpu"));
  const auto seconds = given.number("--seconds", 3.0);
  const int turns = seconds > 0 ? std::max(given.number("--turns", 10), 1) : 0;
  std::vector<std::unique_ptr<Run>> runs;
  for (const std::string& precision : listed("--precision", {"fp32", "fp16", "bf16"}))
    for (const std::string& level : listed("--record", {"off", "health", "stats"}))
      runs.push_back(std::make_unique<Run>(workload, settings, precision, level, options));
  for (auto& each : runs)
    for (int i = 0; i < 3 && turns > 0; ++i) each->trainer->step();
  for (int turn = 0; turn < turns; ++turn)
    for (auto& each : runs) each->burst(seconds * 1000 / turns);

  for (auto& each : runs) {
    const int64_t parameters = parameters_of(*each->trainer);
    const TrainResult result = each->trainer->finish();
    fmt::print(R"({{"workload":"{}","precision":"{}","record":"{}","parameters":{})", workload, each->precision, each->level,
               parameters);
    if (turns > 0)
      fmt::print(R"(,"ms":{:.4f},"steps":{},"peak_memory_bytes":{})", median(each->ms), each->ms.size(), result.peak_memory_bytes);
    if (turns > 0 && !each->trace.empty()) {
      const double rows = static_cast<double>(std::max<uint64_t>(result.trace.tensor_rows, 1));
      fmt::print(R"(,"rows_per_step":{:.1f},"writer_us_per_row":{:.3f},"bytes_per_row":{:.1f})",
                 rows / static_cast<double>(result.steps), result.trace.writer_seconds * 1e6 / rows,
                 static_cast<double>(result.trace.bytes) / rows);
    }
    if (!each->trace.empty()) std::filesystem::remove(each->trace);
    fmt::print("}}\n");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return ulpscope::run_bench("step_bench", run, argc, argv); }
