// Values that grow from product to product, in chains of known magnitudes.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>

#include "report_access.h"
#include "synthetic_trace.h"
#include "ulpscope/analyzers/all_findings.h"

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
    EXPECT_EQ(finding->title.find("Values grew with each of " + std::to_string(layers) + " products"), 0u) << finding->title;
    EXPECT_EQ(finding->evidence.front().key.module, "stack." + std::to_string(layers - 1));
    EXPECT_EQ(finding->evidence.back().key.module, "stack.0");
  }
}

}  // namespace
}  // namespace ulpscope::analyzers_test
