// Values that grow from product to product, in chains of known magnitudes.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>

#include "report_access.h"
#include "synthetic_trace.h"
#include "tests/support/said.h"
#include "ulpscope/analyzers/verbs/all_findings.h"

namespace ulpscope::analyzers_test {
namespace {

// So many linear layers, each of which multiplies the largest magnitude by `factor`, with a relu behind each; then one whose result
// is infinite.
Report report_of_chain(double factor, int layers) {
  SyntheticTrace trace;
  double largest = 60000 / std::pow(factor, layers - 1);
  int64_t before = -1;
  const auto add = [&](const std::string& module, const char* name, OpKind kind, const std::vector<double>& values) {
    OpInfo op{static_cast<uint64_t>(before + 2), 0, name, module, Phase::forward, "", {}};
    op.kind = kind;
    TensorInfo tensor;
    tensor.role = Role::activation;
    tensor.dtype = DType::f16;
    const uint32_t made = trace.add_output(op, tensor);
    if (before >= 0) trace.sink().add_edge({0, static_cast<uint32_t>(before + 1), 0, static_cast<uint32_t>(before), 0});
    trace.add(made, make_stored_row(values, DType::f16));
    before = made;
  };
  for (int i = 0; i < layers; ++i) {
    const std::string module = "stack." + std::to_string(i);
    add(module, "linear", OpKind::product, {largest, -largest / 3, 0.25});
    add(module, "relu", OpKind::elementwise, {largest, 0.25});
    largest *= factor;
  }
  add("head", "linear", OpKind::product, {INFINITY, 1});
  trace.end_step(SyntheticTrace::default_step(NAN));
  return analyze_all(trace.read());
}

TEST(Growth, IsToldOfFourProductsThatDoubleOrMore) {
  for (const auto& [factor, layers, is_growth] : {std::tuple{8.0, 4, true},
                                                  {2.5, 8, true},
                                                  {8.0, 3, false},     // too few
                                                  {1.5, 20, false},    // too slow
                                                  {4.0, 4, false},     // 64 times only
                                                  {0.5, 8, false}}) {  // the other way
    const Report report = report_of_chain(factor, layers);
    const Finding* finding = find_finding(report, "model.values_grow");
    ASSERT_EQ(finding != nullptr, is_growth) << factor << ' ' << layers;
    if (finding == nullptr) continue;
    EXPECT_EQ(finding->title.front().id(), "model.values_grow");
    EXPECT_EQ(finding->title.front()["count"].text(""), std::to_string(layers));
    EXPECT_EQ(finding->evidence.front().key.module, "stack." + std::to_string(layers - 1));
    EXPECT_EQ(finding->evidence.back().key.module, "stack.0");
  }
}

// A chain of linear layers whose gradients are multiplied by `factor` on the way back, and an FP32 matrix in the last that lost so
// many of 100 updates by that rule.
Report report_of_fall(double factor, int layers, uint64_t lost, const char* rule = "sgd_update", int rank = 0,
                      uint32_t micro_batch = 0) {
  RunInfo run;
  run.run_id = "0123456789abcdef0123456789abcdef";
  run.producer = "test";
  run.precision = "fp16";
  run.rank = rank;
  run.world_size = rank + 1;
  SyntheticTrace trace(run);
  double largest = 1;
  int64_t before = -1;
  const auto add = [&](OpInfo op, TensorInfo tensor, const std::vector<double>& values) {
    op.id = static_cast<uint64_t>(before + 2);
    const uint32_t made = trace.add_output(op, tensor);
    if (before >= 0) trace.sink().add_edge({0, static_cast<uint32_t>(before + 1), 0, static_cast<uint32_t>(before), 0});
    TensorRow row = make_stored_row(values, DType::f32);
    row.micro_batch = micro_batch;
    trace.add(made, row);
    before = made;
    return made;
  };
  OpInfo product{0, 0, "linear", "", Phase::backward, "", {}};
  product.kind = OpKind::product;
  TensorInfo gradient;
  gradient.role = Role::activation_gradient;
  gradient.dtype = DType::f32;
  for (int i = layers; i > 0; --i) {
    product.module = "stack." + std::to_string(i);
    add(product, gradient, {largest, -largest / 3});
    largest *= factor;
  }
  product.module = "stack.0";
  gradient.role = Role::weight_gradient;
  gradient.slot = 0;
  add(product, gradient, {largest, largest / 5});
  OpInfo update{0, 0, rule, "stack.0", Phase::optimizer, "", {}};
  TensorInfo weight;
  weight.role = Role::master_weight;
  weight.dtype = DType::f32;
  weight.parameter = "stack.0.weight";
  weight.shape = {10, 10};
  trace.add_update(add(update, weight, {0.5, 0.25}), 100, lost, 0);
  trace.end_step();
  return analyze_all(trace.read());
}

TEST(Growth, UpdatesThatAreLostBecauseGradientsVanishAreToldAsThat) {
  const Report report = report_of_fall(1.0 / 8, 5, 75);
  ASSERT_EQ(report.causes.size(), 1u);
  const Finding& cause = report.findings[report.causes.front().finding];
  EXPECT_EQ(cause.code, "model.gradients_fall");
  ASSERT_EQ(report.causes.front().consequences.size(), 1u);
  EXPECT_EQ(report.findings[report.causes.front().consequences.front()].code, "updates.lost");
  // 8^-4 over five layers.
  EXPECT_EQ(cause.title,
            "Gradients vanish from `stack.5` back to `stack.1`: over 5 layers they shrink 8x a layer on average, the largest from "
            "1 to 0.000244. "
            "Updates of SGD shrink with them.");
}

// The optimizer runs with the last of a step's micro-batches, and a trace may be that of any rank.
TEST(Growth, VanishingGradientsAreThoseOfTheRankAndThePassOfTheUpdate) {
  for (const auto& [rank, micro_batch] : {std::pair{1, 0u}, {0, 3u}, {2, 1u}}) {
    const Report report = report_of_fall(1.0 / 8, 5, 75, "sgd_update", rank, micro_batch);
    const Finding* const fall = find_finding(report, "model.gradients_fall");
    ASSERT_NE(fall, nullptr) << rank << ' ' << micro_batch;
    EXPECT_EQ(fall->evidence.at(0).key.rank, rank);
  }
}

TEST(Growth, OfUpdatesThatAreLostForOtherReasonsNothingVanishes) {
  EXPECT_EQ(find_finding(report_of_fall(1.0 / 8, 5, 25), "model.gradients_fall"), nullptr);   // not lost
  EXPECT_EQ(find_finding(report_of_fall(1.0 / 8, 3, 75), "model.gradients_fall"), nullptr);   // too few
  EXPECT_EQ(find_finding(report_of_fall(1 / 1.5, 20, 75), "model.gradients_fall"), nullptr);  // too slowly
  EXPECT_EQ(find_finding(report_of_fall(8, 5, 75), "model.gradients_fall"), nullptr);         // the other way
  // Adam's updates are as long however short gradients are.
  EXPECT_EQ(find_finding(report_of_fall(1.0 / 8, 5, 75, "adam_update"), "model.gradients_fall"), nullptr);
}

}  // namespace
}  // namespace ulpscope::analyzers_test
