// Which gradients are evidence, in graphs that are known.
#include "ulpscope/analyzers/totals/upstream.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report_access.h"
#include "synthetic_trace.h"
#include "tests/support/said.h"
#include "ulpscope/analyzers/verbs/scale.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::analyzers_test {
namespace {

constexpr double kLimit = 0.01;

// A backward pass of two layers behind a cast, and a weight gradient that does not read the cast. Ops are numbered as tensors are.
struct BackwardTrace {
  SyntheticTrace trace;
  uint32_t loss_gradient, cast, first_weight, first_input, second_weight, aside;

  explicit BackwardTrace(bool edges) {
    const auto add = [&](const char* module, const char* op, Role role, DType dtype = DType::f16) {
      return trace.add_tensor(module, op, Phase::backward, role, dtype);
    };
    loss_gradient = add("", "cross_entropy_backward", Role::activation_gradient, DType::f32);
    cast = add("", "cast", Role::activation_gradient);
    first_weight = add("b", "matmul", Role::weight_gradient);
    first_input = add("b", "matmul", Role::activation_gradient);
    second_weight = add("a", "matmul", Role::weight_gradient);
    aside = add("c", "sum", Role::weight_gradient);
    if (!edges) return;
    for (const auto& [consumer, producer] :
         {std::pair{cast, loss_gradient}, std::pair{first_weight, cast}, std::pair{first_input, cast},
          std::pair{second_weight, first_input}, std::pair{aside, loss_gradient}}) {
      trace.sink().add_edge({0, consumer, 0, producer, 0});
    }
  }
  // A step in which `flushed` of 100 elements of a tensor are, beside `others`, and none of the other tensors.
  void add_step(uint32_t tensor, int flushed, uint32_t micro_batch = 0, double others = 0x1p-24) {
    for (const uint32_t each : {loss_gradient, cast, first_weight, first_input, second_weight, aside}) {
      std::vector<double> values(100, others);
      if (each == tensor) std::fill_n(values.begin(), flushed, 0x1p-26);
      TensorRow row = make_row(values, each == loss_gradient ? DType::f32 : DType::f16);
      row.micro_batch = micro_batch;
      trace.add(each, row);
    }
  }
};

// The tensors of which some row is behind a flushed gradient, step by step.
std::vector<std::vector<uint32_t>> behind(const Snapshot& reader) {
  FlushedUpstream upstream(reader, kLimit);
  std::vector<std::vector<uint32_t>> found(reader.step_count());
  reader.visit_rows({}, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      if (row.sequence == 0) upstream.begin_step(0);
      upstream.see(row);
      if (upstream.is_behind(row)) found[row.step].push_back(row.tensor);
    }
    return true;
  });
  return found;
}

using Tensors = std::vector<uint32_t>;

TEST(Upstream, WhatIsComputedFromAFlushedGradientIsBehindIt) {
  BackwardTrace backward(true);
  const auto step = [&](uint32_t tensor, int flushed, double others = 0x1p-24) {
    backward.add_step(tensor, flushed, 0, others);
    backward.trace.end_step();
  };
  step(backward.cast, 100);
  step(backward.cast, 2);            // above the limit
  step(backward.cast, 1);            // at it
  step(backward.cast, 50, 0x1p-18);  // above it, and no norm feels it
  step(backward.first_input, 50);    // one layer on
  step(backward.first_weight, 100);  // which nothing reads
  const Tensors all{backward.first_weight, backward.first_input, backward.second_weight};
  EXPECT_EQ(behind(backward.trace.read()), (std::vector<Tensors>{all, all, {}, {}, {backward.second_weight}, {}}));
}

TEST(Upstream, WithoutEdgesAllThatComesLaterIsBehind) {
  BackwardTrace backward(false);
  backward.add_step(backward.first_input, 50);
  backward.trace.end_step();
  backward.add_step(backward.first_weight, 50);  // no other gradient is computed from a weight's
  backward.trace.end_step();
  EXPECT_EQ(behind(backward.trace.read()), (std::vector<Tensors>{{backward.second_weight, backward.aside}, {}}));
}

TEST(Upstream, MicroBatchesAreApart) {
  for (const bool edges : {true, false}) {
    BackwardTrace backward(edges);
    backward.add_step(backward.first_input, 50, 0);
    backward.add_step(backward.first_input, 0, 1);
    backward.trace.end_step();
    const auto found = behind(backward.trace.read());
    EXPECT_EQ(std::count(found[0].begin(), found[0].end(), backward.second_weight), 1);
  }
}

// What a rounding that flushes all leaves behind it is zeros, which would fit at any scale.
TEST(Upstream, FittingScalesAreOnlyBoundsBehindAFlushedGradient) {
  // The gradients further on need a larger scale.
  const double first = 0x1p-28, further = 0x1p-32;
  const auto least_scale = [](double value) {
    int k = -100;
    while (round_to_format(binary16, std::ldexp(value, k)) == 0) ++k;
    return std::ldexp(1.0, k);
  };
  for (const bool scaled : {false, true}) {
    RunInfo run;
    run.precision = "fp16";
    BackwardTrace backward(true);
    const double scale = scaled ? 4 * least_scale(further) : 1.0;
    for (int step = 0; step < 3; ++step) {
      const auto add = [&](uint32_t tensor, double value, DType dtype) {
        backward.trace.add(tensor, make_row(std::vector<double>(100, value * scale), dtype, scale));
      };
      add(backward.loss_gradient, first, DType::f32);
      add(backward.cast, first, DType::f16);
      for (const uint32_t tensor : {backward.first_weight, backward.first_input, backward.second_weight})
        add(tensor, scaled ? further : 0.0, DType::f16);
      backward.trace.end_step(SyntheticTrace::default_step(1.0, scale));
    }
    const Report report = analyze_scale(backward.trace.read());
    const Cell smallest = fact(report, "smallest_fitting_scale"), largest = fact(report, "largest_fitting_scale");
    const Finding* finding = find_finding(report, "scale.fit_hidden");
    ASSERT_EQ(finding == nullptr, scaled);
    if (scaled) {
      EXPECT_EQ(smallest, Cell(least_scale(further)));
      continue;
    }
    // Only the cast is known, and needs less.
    EXPECT_EQ(lower(smallest), least_scale(first));
    EXPECT_EQ(upper(smallest), INFINITY);
    EXPECT_EQ(lower(largest), 0.0);
    EXPECT_NE(finding->title.text().find("3 of 3 steps"), std::string::npos) << finding->title;
    EXPECT_NE(finding->suggestion.text().find("Record the run in FP32 (precision, now \"fp8\")"), std::string::npos);
    const Table& fits = table(report, "fitting_scales");
    EXPECT_TRUE(is_unknown(cell(fits, row_of(fits, "a matmul in backward"), "smallest")));
  }
}

}  // namespace
}  // namespace ulpscope::analyzers_test
