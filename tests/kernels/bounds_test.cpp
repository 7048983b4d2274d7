#include "ulpscope/kernels/bounds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cpu_support.h"
#include "ulpscope/kernels/cases/op_cases.h"
#include "ulpscope/kernels/plain/plain.h"

namespace ulpscope::testing_support {
namespace {

std::vector<Case> checked_cases() {
  std::vector<Case> all = elementwise_cases({3, 37});
  for (const Case& each : small_cases(other_cases(), 800)) all.push_back(each);
  return all;
}

class BoundsOf : public ::testing::TestWithParam<DType> {};

TEST_P(BoundsOf, HoldForTheBackendAndFollowTheDefinition) {
  const auto backend = make_cpu_backend();
  double worst = 0;
  for (const Case& what : checked_cases()) {
    const Instance instance(what, GetParam());
    const Result stored = instance.run(*backend), wide = instance.run_exact();
    const CaseCall before = instance.prepare();
    for (size_t slot = 0; slot < what.outputs.size(); ++slot) {
      if (what.outputs[slot].record_only) continue;
      const std::vector<ElementBound> bounds = bounds_of(before.call(), static_cast<int>(slot));
      for (size_t e = 0; e < bounds.size(); ++e) {
        const ElementBound& bound = bounds[e];
        if (!(bound.bound < HUGE_VAL)) continue;
        const double got = stored.outputs[slot].get(static_cast<int64_t>(e)), exact = bound.exact.value();
        const std::string where = fmt::format("{} {} output {} element {}: {} beside {}, bound {}", what.name(),
                                              info(GetParam()).name, slot, e, got, exact, bound.bound);
        if (!bound.exact.is_finite()) {
          EXPECT_TRUE(got == exact || (std::isnan(got) && std::isnan(exact))) << where;
          continue;
        }
        const double error = std::fabs((Real(got) - bound.exact).value());
        EXPECT_LE(error, bound.bound) << where;
        if (bound.bound > 0) worst = std::max(worst, error / bound.bound);
        // FP64 is another way to the same numbers.
        if (wide.outputs[slot].view().dtype != DType::f64) continue;
        const double beside = wide.outputs[slot].get(static_cast<int64_t>(e));
        EXPECT_LE(std::fabs(beside - exact), 1e-9 * (1 + std::fabs(exact))) << where;
      }
    }
  }
  EXPECT_GT(worst, 0.5);
}

INSTANTIATE_TEST_SUITE_P(Kernels, BoundsOf, ::testing::Values(DType::f32, DType::f16, DType::bf16, DType::f64),
                         [](const auto& tested) { return std::string(::ulpscope::info(tested.param).name); });

}  // namespace
}  // namespace ulpscope::testing_support
