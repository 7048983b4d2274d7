// What one op call costs: the way through dispatch, with the output allocated and a tape node made, recording off.
#include <benchmark/benchmark.h>

#include "ulpscope/core/ops/ops.h"

namespace ulpscope {
namespace {

Tensor ones(Backend& backend, std::vector<int64_t> shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return from_host(backend, DType::f32, shape, std::vector<float>(static_cast<size_t>(count), 1.0f));
}

void call_twice(benchmark::State& state, std::string_view name, std::vector<int64_t> left, std::vector<int64_t> right) {
  const auto backend = make_cpu_backend({.threads = 2, .isa = ""});
  Context context;
  context.backend = backend.get();
  const ContextScope scope(context);
  const Op& op = find_op(name);
  Tensor inputs[] = {ones(*backend, std::move(left)), ones(*backend, std::move(right))};
  inputs[0].set_requires_grad(true);
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(dispatch(op, inputs));
}

void add_of_two_scalars_with_gradient(benchmark::State& state) { call_twice(state, "add", {1}, {1}); }
void matmul_1x8x8(benchmark::State& state) { call_twice(state, "matmul", {1, 8}, {8, 8}); }

BENCHMARK(add_of_two_scalars_with_gradient);
BENCHMARK(matmul_1x8x8);

}  // namespace
}  // namespace ulpscope

BENCHMARK_MAIN();
