// Times every op of the CPU backend, forward and backward ones, in FP32 and FP16: on the largest of the rows that its tests run
// over, and elementwise ones on 2^14 elements.
//
//   ops_bench [--threads=N] [Google Benchmark's options, e.g. --benchmark_filter=softmax]
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "tests/kernels/cpu_support.h"
#include "ulpscope/kernels/cases/op_cases.h"

namespace ulpscope {
namespace {

using testing_support::Case;

int64_t elements(const Case& what) {
  int64_t count = 0;
  const auto add = [&](const std::vector<int64_t>& shape) {
    int64_t size = 1;
    for (const int64_t extent : shape) size *= extent;
    count += size;
  };
  for (const auto& input : what.inputs) add(input.shape);
  for (const auto& output : what.outputs) add(output.shape);
  return count;
}

std::map<std::string, Case> largest_by_op() {
  std::map<std::string, Case> largest;
  for (const auto& cases : {testing_support::elementwise_cases({1 << 14}), testing_support::other_cases()}) {
    for (const Case& what : cases) {
      const auto [found, added] = largest.emplace(what.op, what);
      if (!added && elements(what) > elements(found->second)) found->second = what;
    }
  }
  return largest;
}

// Google Benchmark comes back several times: the inputs are made once.
auto timing_of(Backend& backend, const Case& what, DType dtype) {
  return [&backend, &what, dtype, instance = std::shared_ptr<testing_support::Instance>()](benchmark::State& state) mutable {
    if (!instance) instance = std::make_shared<testing_support::Instance>(what, dtype);
    const testing_support::CaseCall prepared = instance->prepare();
    for ([[maybe_unused]] auto _ : state) run(backend, prepared.call());
  };
}

}  // namespace
}  // namespace ulpscope

int main(int argc, char** argv) {
  using namespace ulpscope;
  CpuOptions options;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--threads=", 10) == 0) {
      options.threads = std::atoi(argv[i] + 10);
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  const auto backend = make_cpu_backend(options);
  const auto cases = largest_by_op();
  for (const std::string_view op : backend->ops()) {
    const auto found = cases.find(std::string(op));
    if (found == cases.end()) {
      fmt::print(stderr, "ops_bench: {} has no row in tests/kernels/cpu_support.cpp\n", op);
      return 4;
    }
    for (const DType dtype : {DType::f32, DType::f16}) {
      const std::string name = fmt::format("{}/{}", found->second.name(), info(dtype).name);
      benchmark::RegisterBenchmark(name.c_str(), timing_of(*backend, found->second, dtype))->Unit(benchmark::kMicrosecond);
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("backend", backend->description());
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
