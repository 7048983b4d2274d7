// Trains nothing, but runs two ops with the engine: uses the whole of ulpscope.
#include <ulpscope/analyzers/report/report.h>
#include <ulpscope/base/error.h>
#include <ulpscope/core/ops/ops.h>
#include <ulpscope/trace/snapshot.h>

#include <array>
#include <cstdio>

int main() {
  const auto backend = ulpscope::make_cpu_backend();
  ulpscope::Context context;
  context.backend = backend.get();
  const ulpscope::ContextScope scope(context);
  const ulpscope::Tensor x =
      ulpscope::from_host(*backend, ulpscope::DType::f32, std::array<int64_t, 1>{3}, std::array<float, 3>{1, 2, 3});
  const double sum_of_squares = ulpscope::read_scalars(std::array{ulpscope::sum(ulpscope::mul(x, x))})[0];
  std::printf("1 + 4 + 9 = %g\n", sum_of_squares);
  try {
    ulpscope::Snapshot("no such trace");
  } catch (const ulpscope::Error& error) {
    std::printf("%s\n", error.what());
    return sum_of_squares == 14 ? 0 : 1;
  }
  return 1;
}
