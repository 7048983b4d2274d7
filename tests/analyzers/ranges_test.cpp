// Ranges of traces made of known values: the tables against roundings of these values, each finding provoked and absent.
#include "ulpscope/analyzers/ranges.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "report_access.h"
#include "synthetic_trace.h"

namespace ulpscope::analyzers_test {
namespace {

std::vector<double> lognormal(std::mt19937& random, double center, double spread, int count) {
  std::normal_distribution<double> exponent(center, spread), sign;
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(std::copysign(std::exp2(exponent(random)), sign(random)));
  return as_floats(values);
}

std::vector<double> scaled(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

double share(uint64_t count, uint64_t base) { return static_cast<double>(count) / static_cast<double>(base); }

TEST(Ranges, TablesSayWhatRoundingTheValuesSays) {
  std::mt19937 random(11);
  SyntheticTrace trace;
  const uint32_t gradient =
      trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16, "fc.weight");
  const uint32_t activation = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
  const uint32_t wide = trace.add_tensor("norm", "batch_norm", Phase::forward, Role::activation, DType::f32);
  const double scale = 1024.0;
  std::vector<double> gradients, activations, wides;
  for (int step = 0; step < 3; ++step) {
    // Before the rounding they contain the scale: centred at 2^-22 they are partly flushed.
    for (auto [all, tensor, center, dtype, s] :
         {std::tuple{&gradients, gradient, -22.0, DType::f16, scale}, std::tuple{&activations, activation, 12.0, DType::f16, 1.0},
          std::tuple{&wides, wide, -20.0, DType::f32, 1.0}}) {
      std::vector<double> values = lognormal(random, center, 3, 500);
      values.push_back(0.0);
      trace.add(tensor, make_row(values, dtype, s));
      all->insert(all->end(), values.begin(), values.end());
    }
    trace.end_step(SyntheticTrace::default_step(1.0, scale));
  }
  const Report report = analyze_ranges(trace.read());

  const RoundingTruth seen = round_all(gradients, binary16, 1.0), unscaled = round_all(gradients, binary16, scale);
  const Table& recorded = table(report, "recorded");
  const size_t row = row_of(recorded, "fc linear_backward (weight)");
  EXPECT_EQ(cell(recorded, row, "flushed"), Cell(share(seen.flushed, seen.base)));
  EXPECT_EQ(cell(recorded, row, "subnormal"), Cell(share(seen.subnormal, seen.base)));
  EXPECT_EQ(cell(recorded, row, "overflow"), Cell(0.0));
  EXPECT_EQ(cell(recorded, row, "zero"), Cell(share(3, gradients.size())));
  uint64_t rescued = 0;
  for (const double value : gradients) {
    rescued += round_all({value}, binary16, 1.0).flushed == 0 && round_all({value}, binary16, scale).flushed == 1;
  }
  EXPECT_GT(rescued, 0u);
  EXPECT_EQ(cell(recorded, row, "rescued"), Cell(share(rescued, seen.base)));
  double largest = 0;
  for (const double value : gradients) largest = std::max(largest, std::fabs(value));
  EXPECT_DOUBLE_EQ(lower(cell(recorded, row, "headroom")), std::log2(65504.0 / largest));

  const size_t norm = row_of(recorded, "norm batch_norm");
  EXPECT_TRUE(not_applicable(cell(recorded, norm, "flushed")));
  EXPECT_TRUE(not_applicable(cell(recorded, norm, "rescued")));

  for (const auto& [name, format] : {std::pair{"what_if_fp16", &binary16}, std::pair{"what_if_bf16", &bfloat16}}) {
    const Table& what_if = table(report, name);
    const size_t g = row_of(what_if, "fc linear_backward (weight)"), w = row_of(what_if, "norm batch_norm");
    const RoundingTruth wide_truth = round_all(wides, *format, 1.0), true_truth = round_all(gradients, *format, scale);
    EXPECT_LE(lower(cell(what_if, w, "flushed")), share(wide_truth.flushed, wide_truth.base));
    EXPECT_GE(upper(cell(what_if, w, "flushed")), share(wide_truth.flushed, wide_truth.base));
    EXPECT_LE(lower(cell(what_if, w, "subnormal")), share(wide_truth.subnormal, wide_truth.base));
    EXPECT_GE(upper(cell(what_if, w, "subnormal")), share(wide_truth.subnormal, wide_truth.base));
    EXPECT_LE(lower(cell(what_if, g, "true_subnormal")), share(true_truth.subnormal, true_truth.base));
    EXPECT_GE(upper(cell(what_if, g, "true_subnormal")), share(true_truth.subnormal, true_truth.base));
    EXPECT_NEAR(lower(cell(what_if, g, "true_headroom")), lower(cell(what_if, g, "headroom")) + 10, 1e-9);
    EXPECT_TRUE(not_applicable(cell(what_if, w, "true_flushed")));
  }
  // In the format that it was rounded to, counts say it exactly, with and without the scale.
  const Table& fp16 = table(report, "what_if_fp16");
  const size_t g = row_of(fp16, "fc linear_backward (weight)");
  EXPECT_EQ(cell(fp16, g, "flushed"), Cell(share(seen.flushed, seen.base)));
  EXPECT_EQ(cell(fp16, g, "true_flushed"), Cell(share(unscaled.flushed, unscaled.base)));
}

TEST(Ranges, PlotsHoldEveryFiniteNonzeroElement) {
  std::mt19937 random(12);
  SyntheticTrace trace;
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  std::vector<double> values = lognormal(random, -10, 4, 1000);
  values.insert(values.end(), {0.0, NAN, INFINITY});
  trace.add(gradient, make_row(values, DType::f16, 256.0));
  trace.end_step();
  trace.add(gradient, make_row(values, DType::f16, 1.0));  // the scale may well be 1 for a while
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  ASSERT_EQ(report.plots.size(), 2u);
  for (const Plot& plot : report.plots) {
    ASSERT_EQ(plot.series.size(), 1u);
    double total = 0;
    for (size_t i = 0; i < plot.series[0].x.size(); ++i) {
      double expected = 0;
      for (const double value : values) {
        if (!std::isfinite(value) || value == 0) continue;
        const double first = &plot == &report.plots[0] ? value : value / 256.0;
        expected += (std::ilogb(first) == plot.series[0].x[i]) + (std::ilogb(value) == plot.series[0].x[i]);
      }
      EXPECT_EQ(plot.series[0].y[i], expected);
      total += plot.series[0].y[i];
    }
    EXPECT_EQ(total, 2000);
    ASSERT_EQ(plot.limits.size(), 3u);
    EXPECT_EQ(plot.limits[0].exponent, -25);
    EXPECT_EQ(plot.limits[1].exponent, -14);
    EXPECT_EQ(plot.limits[2].exponent, 16);
  }
}

TEST(Ranges, GroupsAddUpTheirTensors) {
  std::mt19937 random(13);
  SyntheticTrace trace;
  std::vector<std::pair<uint32_t, std::vector<double>>> tensors;
  std::vector<double> a_values, b_values;
  for (const char* module : {"a", "b"}) {
    for (const Role role : {Role::weight_gradient, Role::activation_gradient}) {
      const uint32_t tensor = trace.add_tensor(module, "linear_backward", Phase::backward, role, DType::f16);
      tensors.emplace_back(tensor, lognormal(random, module[0] == 'a' ? -23 : -5, 2, 300));
      std::vector<double>& all = module[0] == 'a' ? a_values : b_values;
      all.insert(all.end(), tensors.back().second.begin(), tensors.back().second.end());
    }
  }
  for (const auto& [tensor, values] : tensors) trace.add(tensor, make_row(values, DType::f16, 1.0));
  trace.end_step();
  const TraceReader reader = trace.read();
  RangeOptions options;
  options.by = GroupBy::module;
  const Report by_module = analyze_ranges(reader, options);
  const Table& modules = table(by_module, "recorded");
  ASSERT_EQ(modules.rows.size(), 2u);
  EXPECT_EQ(modules.rows[0].cells[0], Cell(std::string("a")));  // worst first
  const RoundingTruth truth = round_all(a_values, binary16, 1.0);
  EXPECT_EQ(cell(modules, 0, "flushed"), Cell(share(truth.flushed, truth.base)));
  EXPECT_EQ(cell(modules, 1, "flushed"), Cell(0.0));
  options.by = GroupBy::role;
  EXPECT_EQ(table(analyze_ranges(reader, options), "recorded").rows.size(), 2u);
  options.by = GroupBy::phase;
  EXPECT_EQ(table(analyze_ranges(reader, options), "recorded").rows.size(), 1u);
  options.by = GroupBy::tensor;
  options.limit = 3;
  const Report limited = analyze_ranges(reader, options);
  EXPECT_EQ(table(limited, "recorded").rows.size(), 3u);
  EXPECT_EQ(table(limited, "recorded").rows_left_out, 1u);
  options.formats = {&bfloat16};
  const Report bf16 = analyze_ranges(reader, options);
  EXPECT_EQ(bf16.tables.size(), 2u);
  EXPECT_EQ(bf16.tables[1].name, "what_if_bf16");
  EXPECT_EQ(bf16.plots[0].limits[0].exponent, -134);
}

TEST(Ranges, FiltersLeaveOutWhatWasNotAskedFor) {
  SyntheticTrace trace;
  const uint32_t inner = trace.add_tensor("features.0", "conv2d", Phase::forward, Role::activation, DType::f16);
  const uint32_t other = trace.add_tensor("classifier", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  for (int step = 0; step < 4; ++step) {
    trace.add(inner, make_row({1.0 + step}, DType::f16));
    trace.add(other, make_row({2.0}, DType::f16));
    trace.end_step();
  }
  const TraceReader reader = trace.read();
  const auto rows = [&](const RangeOptions& options) { return table(analyze_ranges(reader, options), "recorded").rows.size(); };
  RangeOptions options;
  EXPECT_EQ(rows(options), 2u);
  options.modules = {"features"};  // a name holds everything inside it
  EXPECT_EQ(rows(options), 1u);
  options.modules = {"feature"};
  EXPECT_EQ(rows(options), 0u);
  options.modules = {"*s.0"};
  EXPECT_EQ(rows(options), 1u);
  options = {};
  options.ops = {"linear*"};
  EXPECT_EQ(rows(options), 1u);
  options = {};
  options.phases = {Phase::forward, Phase::backward};
  EXPECT_EQ(rows(options), 2u);
  options.roles = {Role::weight_gradient};
  EXPECT_EQ(rows(options), 1u);
  options = {};
  options.steps = {1, 3};
  EXPECT_EQ(cell(table(analyze_ranges(reader, options), "recorded"), 0, "rows"), Cell(int64_t{2}));
  options.steps = {2, 2};
  EXPECT_NE(find_finding(analyze_ranges(reader, options), "range.no_rows"), nullptr);
}

TEST(Ranges, NamesTheFirstRoundingThatFlushesEverything) {
  for (const bool vanishes : {true, false}) {
    SyntheticTrace trace;
    const uint32_t forward = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
    const uint32_t first = trace.add_tensor("fc", "cast", Phase::backward, Role::activation_gradient, DType::f16);
    const uint32_t second = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
    for (int step = 0; step < 4; ++step) {
      trace.add(forward, make_row({1.0, 2.0}, DType::f16));
      trace.add(first, make_row(vanishes ? std::vector{1e-9, -2e-9, 0.0} : std::vector{1e-3, 2e-3, 0.0}, DType::f16));
      trace.add(second, make_row(vanishes ? std::vector{0.0, 0.0} : std::vector{1e-2, 0.5}, DType::f16));
      trace.end_step();
    }
    const Report report = analyze_ranges(trace.read());
    const Finding* finding = find_finding(report, "range.gradients_vanish");
    ASSERT_EQ(finding != nullptr, vanishes);
    EXPECT_EQ(find_finding(report, "range.gradients_fit") == nullptr, vanishes);
    if (!vanishes) continue;
    EXPECT_EQ(finding->severity, Severity::error);
    ASSERT_EQ(finding->evidence.size(), 1u);
    EXPECT_EQ(finding->evidence[0].key.op_name, "cast");
    EXPECT_NE(finding->title.find("4 of 4"), std::string::npos) << finding->title;
    EXPECT_NE(finding->title.find("fc cast"), std::string::npos) << finding->title;
    EXPECT_EQ(finding->evidence[0].values.back().value, Cell(std::string("fc linear")));  // what was made before it
  }
}

// The first rounding of the pass is the first of all, not of those that are looked at.
TEST(Ranges, AFilterDoesNotMakeALaterRoundingTheFirst) {
  SyntheticTrace trace;
  const uint32_t first = trace.add_tensor("b", "cast", Phase::backward, Role::activation_gradient, DType::f16);
  const uint32_t second = trace.add_tensor("a", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  trace.add(first, make_row({1e-3, 2e-3}, DType::f16));
  trace.add(second, make_row({1e-9, 1e-9}, DType::f16));
  trace.end_step();
  const TraceReader reader = trace.read();
  RangeOptions options;
  options.modules = {"a"};
  const Report report = analyze_ranges(reader, options);
  EXPECT_EQ(find_finding(report, "range.gradients_vanish"), nullptr);
  EXPECT_NE(find_finding(report, "range.gradients_flushed"), nullptr);
}

TEST(Ranges, BookkeepingComesLastHoweverBadItsNumbers) {
  SyntheticTrace trace;
  // Second moments are squares of gradients: in FP16 they would all be flushed.
  const uint32_t moment = trace.add_tensor("fc", "adam_update", Phase::optimizer, Role::optimizer_state, DType::f32, "fc.weight");
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f32);
  const uint32_t activation = trace.add_tensor("fc", "relu", Phase::forward, Role::activation, DType::f32);
  trace.add(activation, make_row({1.0, 2.0}, DType::f32));
  trace.add(gradient, make_row({1e-6, 1e-9}, DType::f32));
  trace.add(moment, make_row({1e-12, 1e-18}, DType::f32));
  trace.end_step();
  const TraceReader reader = trace.read();
  RangeOptions options;
  options.formats = {&binary16};
  const Report report = analyze_ranges(reader, options);
  const Table& what_if = table(report, "what_if_fp16");
  ASSERT_EQ(what_if.rows.size(), 3u);
  EXPECT_EQ(what_if.rows[0].key.role, "weight_gradient");
  EXPECT_EQ(what_if.rows[1].key.role, "activation");
  EXPECT_EQ(what_if.rows[2].key.role, "optimizer_state");
  EXPECT_NE(what_if.note.find("1 row"), std::string::npos) << what_if.note;
  EXPECT_EQ(report.plots.at(0).series.at(2).key.role, "optimizer_state");
  // A module's own numbers stand apart from what is kept for it.
  options.by = GroupBy::module;
  const Report by_module = analyze_ranges(reader, options);
  const Table& modules = table(by_module, "what_if_fp16");
  ASSERT_EQ(modules.rows.size(), 2u);
  EXPECT_EQ(cell(modules, 0, "flushed"), Cell(0.25));
  EXPECT_EQ(cell(modules, 1, "flushed"), Cell(1.0));
  // Where it is all that was asked for, nothing is said of it.
  options.roles = {Role::optimizer_state};
  EXPECT_EQ(table(analyze_ranges(reader, options), "what_if_fp16").note.find("come last"), std::string::npos);
}

TEST(Ranges, NoTwoTensorsHaveOneName) {
  SyntheticTrace trace;
  trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
  trace.add_tensor("fc", "cast", Phase::forward, Role::weight_cast, DType::f16, "fc.weight");
  trace.add_tensor("fc", "cast", Phase::backward, Role::accumulated_gradient, DType::f32, "fc.weight");
  trace.add_tensor("fc", "fill", Phase::optimizer, Role::optimizer_state, DType::f32, "fc.weight");
  trace.add_tensor("fc", "fill", Phase::optimizer, Role::optimizer_state, DType::f32, "fc.weight");
  trace.end_step();
  const TraceReader reader = trace.read();
  const Selection selection(reader, {});
  const char* const names[] = {"fc linear", "fc cast (weight)", "fc backward cast (weight)", "fc optimizer fill (weight)",
                               "fc optimizer fill (weight) #2"};
  for (uint32_t i = 0; i < std::size(names); ++i) {
    EXPECT_EQ(selection.name(i), names[i]);
    EXPECT_EQ(selection.key(i).name, names[i]);
  }
}

// What follows once all losses are NaN says nothing about formats and scales.
TEST(Ranges, RowsOfABrokenRunAreNoEvidence) {
  SyntheticTrace trace;
  const uint32_t forward = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  for (int step = 0; step < 6; ++step) {
    const bool broken = step >= 3;
    trace.add(forward, make_row({1.0, broken ? 1e6 : 2.0}, DType::f16));
    trace.add(gradient, make_row(broken ? std::vector{NAN, 1e-9} : std::vector{0.25, 0.5}, DType::f16, 8.0));
    trace.end_step(SyntheticTrace::default_step(step == 1 || broken ? NAN : 1.0, 8.0));  // in step 1 it was the data
  }
  const Report report = analyze_ranges(trace.read());
  const Finding* finding = find_finding(report, "range.nonfinite");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(
      finding->title.find("step 3, was made by fc linear in forward, where 1 finite value became infinite when rounded to fp16"),
      std::string::npos)
      << finding->title;
  ASSERT_EQ(finding->evidence.size(), 2u);
  EXPECT_EQ(finding->evidence[0].key.op_name, "linear");
  EXPECT_EQ(finding->evidence[0].values[2].value, Cell(int64_t{3}));  // infinities of all steps
  EXPECT_EQ(report.findings.size(), 1u) << report.findings[1].code;
  // The tables have all rows.
  EXPECT_EQ(cell(table(report, "recorded"), 0, "rows"), Cell(int64_t{6}));
}

TEST(Ranges, OneSurvivingElementIsNoVanishing) {
  SyntheticTrace trace;
  const uint32_t first = trace.add_tensor("fc", "cast", Phase::backward, Role::activation_gradient, DType::f16);
  trace.add(first, make_row({1e-9, 2e-9, 1e-3}, DType::f16));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  EXPECT_EQ(find_finding(report, "range.gradients_vanish"), nullptr);
  EXPECT_NE(find_finding(report, "range.gradients_flushed"), nullptr);
}

TEST(Ranges, GradientsThatFitAreSaidToFitWithTheirHeadroom) {
  SyntheticTrace trace;
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  trace.add(gradient, make_row({1.0, 4.0, 0.5}, DType::f16, 1024.0));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].code, "range.gradients_fit");
  EXPECT_EQ(report.findings[0].severity, Severity::info);
  EXPECT_DOUBLE_EQ(lower(report.findings[0].evidence[0].values[0].value), std::log2(65504.0 / 4.0));
}

// With 100 elements, r of them flushed and the others m: the norm flushed is at most sqrt(r) 2^-25, the tensor's at least
// sqrt(100 - r) m. So m = 2^-14 hides the flush of 2 below 2^-11 of the norm, and m = 2^-18 does not.
TEST(Ranges, FlushedGradientsAreAFindingAboveTheLimitAndAWarningWhereTheNormFeelsIt) {
  for (const auto& [flushed, others] : {std::pair{2, 0x1p-14}, {2, 0x1p-23}, {1, 0x1p-23}}) {  // 1 of 100 is at the limit of 1%
    SyntheticTrace trace;
    const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
    std::vector<double> values(100, others);
    std::fill_n(values.begin(), flushed, 1e-9);
    trace.add(gradient, make_row(values, DType::f16, 8.0));
    trace.end_step();
    const Report report = analyze_ranges(trace.read());
    const Finding* finding = find_finding(report, "range.gradients_flushed");
    ASSERT_EQ(finding != nullptr, flushed == 2);
    if (finding) {
      const bool felt = others == 0x1p-23;
      EXPECT_EQ(finding->severity, felt ? Severity::warning : Severity::info);
      EXPECT_EQ(finding->evidence[0].values[0].value, Cell(0.02));
      // At the scale 2^3, 1e-9 lies in [2^-30, 2^-29): five powers of two lift it above 2^-25, and 2^-23 stays below 2^16 for 38.
      EXPECT_EQ(finding->suggestion.find("A loss scale of 2^8 keeps them; the largest that fits is 2^41.") != std::string::npos,
                felt)
          << finding->suggestion;
      EXPECT_EQ(finding->suggestion.empty(), !felt);
    }
  }
}

// Where the largest gradients leave no room, a larger scale is no advice; the op that can be changed is the one behind the cast,
// where autocast is what casts.
TEST(Ranges, AdviceOnFlushedGradientsCanBeFollowed) {
  for (const bool autocast : {true, false}) {
    SyntheticTrace trace;
    OpInfo linear{11, 0, "linear", "head", Phase::forward, "", {}}, widen{12, 0, "cast", "", Phase::loss, "", {}},
        narrow{13, 12, "cast", "", Phase::backward, "", {}};
    const uint32_t made = trace.sink().add_op(linear), widened = trace.sink().add_op(widen);
    TensorInfo small;
    small.op = trace.sink().add_op(narrow);
    small.role = Role::activation_gradient;
    small.dtype = DType::f16;
    small.shape = {100};
    const uint32_t cast = trace.sink().add_tensor(small);
    if (autocast) trace.add_tensor("head", "cast", Phase::forward, Role::weight_cast, DType::f16, "head.weight");
    const uint32_t large = trace.add_tensor("body", "matmul", Phase::backward, Role::weight_gradient, DType::f16);
    trace.sink().add_edge({0, widened, 0, made, 0});
    std::vector<double> values(100, 0x1p-22);
    std::fill_n(values.begin(), 50, 0x1.8p-60);
    trace.add(large, make_row({60000.0}, DType::f16, 8.0));
    trace.add(cast, make_row(values, DType::f16, 8.0));
    trace.end_step();
    const Report report = analyze_ranges(trace.read());
    const Finding* finding = find_finding(report, "range.gradients_flushed");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->severity, Severity::warning);
    EXPECT_EQ(
        finding->suggestion,
        std::string(
            "No single loss scale keeps them: it would have to be at least 2^38, and the largest gradients overflow above 2^3. "
            "BF16 has the range") +
            (autocast ? ", and so has FP32 for the module head (autocast.modules)." : "."));
    EXPECT_EQ(finding->evidence[0].values.back().value, Cell(std::string("head linear")));
  }
}

// What was computed from a flushed gradient tells neither which scale it needs nor how large it would be.
TEST(Ranges, AdviceOnFlushedGradientsIsABoundWhereTheyHideOthers) {
  for (const bool hides : {true, false}) {
    SyntheticTrace trace;
    const uint32_t first =
        trace.add_tensor("head", "cast", Phase::backward, hides ? Role::activation_gradient : Role::weight_gradient, DType::f16);
    const uint32_t behind = trace.add_tensor("body", "matmul", Phase::backward, Role::weight_gradient, DType::f16);
    std::vector<double> values(100, 0x1p-22);
    std::fill_n(values.begin(), 50, 0x1.8p-30);
    trace.add(first, make_row(values, DType::f16, 8.0));
    trace.add(behind, make_row(std::vector<double>(100, 0x1p-24), DType::f16, 8.0));
    trace.end_step();
    const Report report = analyze_ranges(trace.read());
    const Finding* finding = find_finding(report, "range.gradients_flushed");
    ASSERT_NE(finding, nullptr);
    // At the scale 2^3, 1.5 2^-30 passes 2^-25 from 2^8 on, and 2^-22 stays below 2^16 up to 2^40.
    const char* const expected =
        hides
            ? "They need a loss scale of at least 2^8, and what was computed from them may need a larger one: a recording in FP32 "
              "tells (`--precision fp32`, then `ulpscope scale`); the largest that fits is at most 2^40. BF16"
            : "A loss scale of 2^8 keeps them; the largest that fits is 2^40. BF16";
    EXPECT_TRUE(finding->suggestion.starts_with(expected)) << finding->suggestion;
  }
}

// Underflow is judged at the rounding of the FP16 gradient, never at the FP32 gradient made from it.
TEST(Ranges, WideGradientsAreNotJudged) {
  SyntheticTrace trace;
  const uint32_t wide = trace.add_tensor("fc", "accumulate", Phase::backward, Role::accumulated_gradient, DType::f32);
  trace.add(wide, make_row({1e-9, 1e-9, 1.0}, DType::f32, 1024.0));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  EXPECT_TRUE(report.findings.empty()) << report.findings[0].code;
}

TEST(Ranges, OverflowIsAnErrorUnlessTheStepWasSkipped) {
  for (const bool skipped : {false, true}) {
    SyntheticTrace trace;
    const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
    trace.add(gradient, make_row({1.0, 32.0}, DType::f16, 1024.0));
    trace.end_step();
    trace.add(gradient, make_row({70000.0, 1.0}, DType::f16, 65536.0));
    StepRow step = SyntheticTrace::default_step(1.0, 65536.0);
    step.skipped = skipped;
    trace.end_step(step);
    const Report report = analyze_ranges(trace.read());
    const Finding* finding = find_finding(report, "range.gradients_overflow");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->severity, skipped ? Severity::info : Severity::error);
    EXPECT_EQ(finding->evidence[0].key.step, 1u);
    const Finding* fit = find_finding(report, "range.gradients_fit");
    ASSERT_EQ(fit != nullptr, skipped);
    // Of the step that was kept.
    if (fit) {
      EXPECT_DOUBLE_EQ(lower(fit->evidence[0].values[0].value), std::log2(65504.0 / 32.0));
    }
  }
}

// 70000 is finite before its rounding to FP16 and Inf after it: it is the cause, though its statistics hold no Inf.
TEST(Ranges, AnOverflowAtTheStoreIsTheFirstNonfiniteValue) {
  SyntheticTrace trace;
  const uint32_t consumer = trace.add_tensor("b", "relu", Phase::forward, Role::activation, DType::f16);
  const uint32_t overflowing = trace.add_tensor("a", "linear", Phase::forward, Role::activation, DType::f16);
  TensorRow first = make_row({70000.0, 1.0}, DType::f16);
  first.micro_batch = 2;
  first.pass = 1;
  trace.add(overflowing, first);
  trace.add(consumer, make_row({INFINITY, 1.0}, DType::f16));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Finding* finding = find_finding(report, "range.nonfinite");
  ASSERT_NE(finding, nullptr);
  ASSERT_EQ(finding->evidence.size(), 2u);
  EXPECT_EQ(finding->evidence[0].key.op_name, "linear");
  EXPECT_EQ(finding->evidence[0].key.micro_batch, 2u);
  EXPECT_EQ(finding->evidence[0].key.pass, 1);
  EXPECT_EQ(finding->evidence[1].key.op_name, "relu");
  const Table& recorded = table(report, "recorded");
  EXPECT_EQ(cell(recorded, row_of(recorded, "a linear"), "nonfinite"), Cell(int64_t{1}));
  EXPECT_EQ(cell(recorded, row_of(recorded, "b relu"), "nonfinite"), Cell(int64_t{1}));
}

// Who made NaN or Inf comes before those that carry it on, whatever their shares; the first of all even where it was computed as
// NaN.
TEST(Ranges, WorstFirstIsWhoMadeTheFirstInfinity) {
  SyntheticTrace trace;
  const uint32_t loss = trace.add_tensor("c", "softmax", Phase::forward, Role::activation, DType::f32);
  const uint32_t carried = trace.add_tensor("b", "relu", Phase::forward, Role::activation, DType::f16);
  const uint32_t made = trace.add_tensor("a", "linear", Phase::forward, Role::activation, DType::f16);
  const uint32_t later = trace.add_tensor("d", "linear", Phase::forward, Role::activation, DType::f16);
  trace.add(made, make_row({70000.0, 1.0, 1.0, 1.0}, DType::f16));
  trace.add(carried, make_row({INFINITY, 1.0}, DType::f16));
  trace.add(loss, make_row({NAN, NAN}, DType::f32));
  trace.add(later, make_row({80000.0, 1.0, 1.0, 1.0, 1.0}, DType::f16));
  trace.end_step(SyntheticTrace::default_step(NAN));
  const Report report = analyze_ranges(trace.read());
  std::vector<std::string> names;
  for (const TableRow& row : table(report, "recorded").rows) names.push_back(std::get<std::string>(row.cells[0]));
  EXPECT_EQ(names, (std::vector<std::string>{"a linear", "d linear", "c softmax", "b relu"}));
}

// At level health the counts still say that nothing was lost.
TEST(Ranges, GradientsFitByTheirCountsToo) {
  SyntheticTrace trace;
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  trace.add(gradient, make_health_row({1.0, 4.0, 0.5}, DType::f16, 1024.0));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Finding* fit = find_finding(report, "range.gradients_fit");
  ASSERT_NE(fit, nullptr);
  EXPECT_NE(fit->title.find("none lost anything to zero"), std::string::npos) << fit->title;
  EXPECT_NE(fit->title.find("`--record stats`"), std::string::npos) << fit->title;
  EXPECT_TRUE(fit->evidence.empty());
}

// One of 100,000 is less than a hundredth of a percent.
TEST(Ranges, AShareThatIsTooSmallToPrintIsSaidToBeBelowOneThatIsNot) {
  SyntheticTrace trace;
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  std::vector<double> values(100000, 0.25);
  values[3] = 1e-9;
  trace.add(gradient, make_row(values, DType::f16));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Finding* fit = find_finding(report, "range.gradients_fit");
  ASSERT_NE(fit, nullptr);
  EXPECT_NE(fit->title.find("none lost as much as 0.01% to zero"), std::string::npos) << fit->title;
}

// With finite logits a mean over targets is NaN where there is none. With others it says nothing.
TEST(Ranges, ALossThatIgnoredEveryTargetIsExplained) {
  for (const double sum : {1.5, static_cast<double>(NAN)}) {
    SyntheticTrace trace;
    const OpInfo op{.id = 900, .name = "cross_entropy", .module = "", .phase = Phase::loss, .attributes = "", .product = {}};
    TensorInfo loss, sums;
    loss.role = Role::loss;
    sums.slot = 1;
    sums.name = "logsumexp";
    const uint32_t of_loss = trace.add_output(op, loss), of_sums = trace.add_output(op, sums);
    trace.add(of_loss, make_row({NAN}, DType::f32));
    trace.add(of_sums, make_row({sum, 2.5}, DType::f32));
    trace.end_step(SyntheticTrace::default_step(NAN));
    const Report report = analyze_ranges(trace.read());
    const Finding* finding = find_finding(report, "range.nonfinite");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->suggestion.find("loss.ignore_index ignored every target") != std::string::npos, sum == 1.5)
        << finding->suggestion;
  }
}

// Of finite p and targets, only the logarithm of a negative number is NaN.
TEST(Ranges, AnOutputThatIsNoProbabilityIsExplained) {
  for (const double output : {1.5, static_cast<double>(NAN)}) {
    SyntheticTrace trace;
    const OpInfo linear{.id = 900, .name = "linear", .module = "fc", .phase = Phase::forward, .attributes = "", .product = {}},
        bce{.id = 901, .name = "binary_cross_entropy", .module = "", .phase = Phase::loss, .attributes = "", .product = {}};
    TensorInfo probability, loss;
    loss.role = Role::loss;
    const uint32_t of_linear = trace.add_output(linear, probability), of_loss = trace.add_output(bce, loss);
    trace.sink().add_edge({0, 1, 0, 0, 0});
    trace.add(of_linear, make_row({output, 0.5}, DType::f32));
    trace.add(of_loss, make_row({NAN}, DType::f32));
    trace.end_step(SyntheticTrace::default_step(NAN));
    const Report report = analyze_ranges(trace.read());
    const Finding* finding = find_finding(report, "range.nonfinite");
    ASSERT_NE(finding, nullptr);
    EXPECT_EQ(finding->suggestion.find("no probability") != std::string::npos, output == 1.5) << finding->suggestion;
  }
}

// A bias before a normalisation: its true gradient is 0, and the sum of 1,000 terms of 2^-24 holds what their last bits leave, at
// most (2^-24 + gamma_1000) * 1000 * 2^-24 = 2^-28.07. A gradient of 2^-26 is more than that.
TEST(Ranges, RoundingNoiseAsksForNoLossScale) {
  for (const bool noise : {true, false}) {
    SyntheticTrace trace;
    const auto op = [](uint64_t id, const char* name) {
      return OpInfo{.id = id, .name = name, .module = "fc", .phase = Phase::backward, .attributes = "", .product = {}};
    };
    TensorInfo terms, bias, weight;
    terms.role = Role::activation_gradient;
    bias.role = weight.role = Role::weight_gradient;
    bias.parameter = "fc.bias";
    const uint32_t of_terms = trace.add_output(op(900, "batch_norm_backward"), terms),
                   of_bias = trace.add_output(op(901, "sum"), bias), of_weight = trace.add_output(op(902, "matmul"), weight);
    trace.sink().add_edge({0, 1, 0, 0, 0});
    std::vector<double> values;
    for (int i = 0; i < 1000; ++i) values.push_back(i % 2 == 0 ? 0x1p-24 : -0x1p-24);
    trace.add(of_terms, make_row(values, DType::f32));
    trace.add(of_bias, make_row({noise ? 0x1p-30 : 0x1p-26}, DType::f32));
    trace.add(of_weight, make_row({1.0}, DType::f32));
    trace.end_step();
    const Report report = analyze_ranges(trace.read());
    EXPECT_EQ(find_finding(report, "range.gradients_would_flush") == nullptr, noise);
  }
}

// Each number stands with the tensor that it is of.
TEST(Ranges, TheFitsEvidencePairsTensorsWithTheirOwnNumbers) {
  SyntheticTrace trace;
  const uint32_t large = trace.add_tensor("a", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  const uint32_t small = trace.add_tensor("b", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  std::vector<double> values(1000, 0.25);
  values[3] = 1e-9;
  trace.add(large, make_row({4096.0, 1.0}, DType::f16));
  trace.add(small, make_row(values, DType::f16));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Finding* fit = find_finding(report, "range.gradients_fit");
  ASSERT_NE(fit, nullptr);
  ASSERT_EQ(fit->evidence.size(), 2u);
  EXPECT_EQ(fit->evidence[0].key.module, "a");
  EXPECT_DOUBLE_EQ(lower(fit->evidence[0].values[0].value), std::log2(65504.0 / 4096.0));
  EXPECT_EQ(fit->evidence[1].key.module, "b");
  EXPECT_EQ(fit->evidence[1].values[0].value, Cell(0.001));
}

TEST(Ranges, GradientsDoNotFitWhereOneWasNotFiniteOrCouldNotBeJudged) {
  for (const bool nan : {true, false}) {
    SyntheticTrace trace;
    const uint32_t good = trace.add_tensor("a", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
    const uint32_t wide = trace.add_tensor("b", "linear_backward", Phase::backward, Role::weight_gradient, DType::f32);
    const uint32_t unseen = trace.add_tensor("c", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
    trace.add(good, make_row({1.0, 2.0}, DType::f16));
    trace.add(wide, make_row({nan ? NAN : 1.0, 2.0}, DType::f32));
    trace.add(unseen, make_stored_row({1.0, 2.0}, DType::f16));
    trace.end_step();
    const Report report = analyze_ranges(trace.read());
    const Finding* finding = find_finding(report, "range.gradients_fit");
    ASSERT_EQ(finding == nullptr, nan);
    if (nan) continue;
    EXPECT_NE(finding->title.find("1 gradient tensor could not be judged"), std::string::npos) << finding->title;
  }
}

TEST(Ranges, NonfiniteValuesAreFoundWhereTheyCount) {
  SyntheticTrace trace;
  const uint32_t forward = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  trace.add(gradient, make_row({INFINITY, 1.0}, DType::f16, 64.0));
  StepRow skipped = SyntheticTrace::default_step(1.0, 64.0);
  skipped.skipped = true;
  const uint32_t norm = trace.add_tensor("", "gradient_norm", Phase::scaling, Role::buffer, DType::f32);
  trace.add(norm, make_row({INFINITY}, DType::f32));
  trace.end_step(skipped);  // how the scaler works: nothing to report
  trace.add(forward, make_row({1.0}, DType::f16));
  trace.end_step();
  trace.add(forward, make_row({NAN, NAN}, DType::f16));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Finding* finding = find_finding(report, "range.nonfinite");
  ASSERT_NE(finding, nullptr);
  ASSERT_EQ(finding->evidence.size(), 1u);
  EXPECT_EQ(finding->evidence[0].key.op_name, "linear");
  EXPECT_EQ(finding->evidence[0].key.step, 2u);
}

TEST(Ranges, ForwardOverflowIsAnErrorAndFlushingANote) {
  SyntheticTrace trace;
  const uint32_t forward = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
  const uint32_t cast = trace.add_tensor("fc", "cast", Phase::forward, Role::weight_cast, DType::f16);
  trace.add(forward, make_row({70000.0, 1.0}, DType::f16));
  trace.add(cast, make_row({1e-9, 1.0}, DType::f16));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  ASSERT_NE(find_finding(report, "range.values_overflow"), nullptr);
  EXPECT_EQ(find_finding(report, "range.values_overflow")->severity, Severity::error);
  EXPECT_EQ(report.findings.front().severity, Severity::error);  // errors first
  EXPECT_EQ(report.findings.back().severity, Severity::info);
  ASSERT_NE(find_finding(report, "range.values_flushed"), nullptr);
  EXPECT_EQ(find_finding(report, "range.values_flushed")->severity, Severity::info);
  EXPECT_EQ(find_finding(report, "range.values_flushed")->evidence[0].key.role, "weight_cast");
}

TEST(Ranges, AnFp32RunIsAskedWhatFp16WouldDo) {
  std::mt19937 random(14);
  for (const bool small : {true, false}) {
    SyntheticTrace trace;
    const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f32);
    trace.add(gradient, make_row(lognormal(random, small ? -26 : -5, 2, 500), DType::f32));
    trace.end_step();
    const Report report = analyze_ranges(trace.read());
    EXPECT_EQ(find_finding(report, "range.gradients_would_flush") != nullptr, small);
    EXPECT_EQ(find_finding(report, "range.gradients_flushed"), nullptr);
    EXPECT_EQ(find_finding(report, "range.gradients_fit"), nullptr);
  }
}

TEST(Ranges, UnknownIsNeverZero) {
  SyntheticTrace trace;
  const uint32_t stored = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
  const uint32_t health = trace.add_tensor("fc", "relu", Phase::forward, Role::activation, DType::f16);
  const uint32_t none = trace.add_tensor("fc", "neg", Phase::forward, Role::activation, DType::f16);
  trace.add(stored, make_stored_row({1e-9, 1.0}, DType::f16));
  trace.add(health, make_health_row({1e-9, 1.0}, DType::f16));
  trace.add(none, TensorRow{});
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Table& recorded = table(report, "recorded");
  const Table& fp16 = table(report, "what_if_fp16");
  for (const char* column : {"flushed", "subnormal", "overflow"}) {
    EXPECT_TRUE(is_unknown(cell(recorded, row_of(recorded, "fc linear"), column)));
    EXPECT_TRUE(is_unknown(cell(fp16, row_of(fp16, "fc linear"), column)));
  }
  EXPECT_EQ(cell(recorded, row_of(recorded, "fc relu"), "flushed"), Cell(0.5));
  EXPECT_TRUE(is_unknown(cell(recorded, row_of(recorded, "fc relu"), "headroom")));
  EXPECT_TRUE(is_unknown(cell(recorded, row_of(recorded, "fc neg"), "zero")));
  const Finding* finding = find_finding(report, "range.rounding_unknown");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->title.find("1 of 2"), std::string::npos) << finding->title;
}

TEST(Ranges, SaysWhichLevelTellsMore) {
  for (const bool health : {true, false}) {
    SyntheticTrace trace;
    const uint32_t tensor = trace.add_tensor("fc", "relu", Phase::forward, Role::activation, DType::f16);
    trace.add(tensor, health ? make_health_row({1.0}, DType::f16) : make_row({1.0}, DType::f16));
    trace.end_step();
    const Report report = analyze_ranges(trace.read());
    for (const char* name : {"recorded", "what_if_fp16"}) {
      EXPECT_EQ(table(report, name).note.find("--record stats") != std::string::npos, health) << name;
    }
  }
}

TEST(Ranges, CopesWithNothingAndWithNonsense) {
  {
    SyntheticTrace trace;
    const Report report = analyze_ranges(trace.read());
    EXPECT_NE(find_finding(report, "range.no_rows"), nullptr);
    EXPECT_TRUE(table(report, "recorded").rows.empty());
  }
  SyntheticTrace trace;
  const uint32_t empty = trace.add_tensor("a", "linear", Phase::forward, Role::activation, DType::f16);
  const uint32_t nan = trace.add_tensor("b", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  const uint32_t zero = trace.add_tensor("c", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  const uint32_t integer = trace.add_tensor("d", "max_pool2d", Phase::forward, Role::activation, DType::u8);
  trace.add(empty, make_row({}, DType::f16));
  trace.add(nan, make_row({NAN, NAN}, DType::f16, 1000.0));
  trace.add(zero, make_row({0.0}, DType::f16, 1000.0));
  trace.add(integer, TensorRow{});
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Table& recorded = table(report, "recorded");
  EXPECT_EQ(recorded.rows.size(), 3u);  // integers have no range
  EXPECT_TRUE(not_applicable(cell(recorded, row_of(recorded, "a linear"), "flushed")));
  EXPECT_TRUE(not_applicable(cell(recorded, row_of(recorded, "b linear_backward"), "headroom")));
  EXPECT_EQ(cell(recorded, row_of(recorded, "b linear_backward"), "nonfinite"), Cell(int64_t{2}));
  EXPECT_EQ(cell(recorded, row_of(recorded, "c linear_backward"), "zero"), Cell(1.0));
}

TEST(Ranges, StopsWhenCancelledAndTellsHowFarItIs) {
  SyntheticTrace trace;
  const uint32_t tensor = trace.add_tensor("a", "linear", Phase::forward, Role::activation, DType::f16);
  for (int step = 0; step < 10; ++step) {
    trace.add(tensor, make_row({1.0}, DType::f16));
    trace.end_step();
  }
  const TraceReader reader = trace.read();
  RangeOptions options;
  double progress = 0;
  options.progress = [&](double share_done) { progress = share_done; };
  EXPECT_TRUE(analyze_ranges(reader, options).complete);
  EXPECT_EQ(progress, 1.0);
  const std::atomic<bool> cancel{true};
  options.cancel = &cancel;
  EXPECT_FALSE(analyze_ranges(reader, options).complete);
}

TEST(Ranges, ScaledUpGradientsKeepTheirTrueRange) {
  std::mt19937 random(15);
  const std::vector<double> values = lognormal(random, -27, 2, 400);
  const double scale = 65536.0;
  SyntheticTrace trace;
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  trace.add(gradient, make_row(scaled(values, scale), DType::f16, scale));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const Table& fp16 = table(report, "what_if_fp16");
  const RoundingTruth truth = round_all(values, binary16, 1.0);
  EXPECT_EQ(cell(fp16, 0, "flushed"), Cell(0.0));
  EXPECT_EQ(cell(fp16, 0, "true_flushed"), Cell(share(truth.flushed, truth.base)));
  EXPECT_EQ(cell(table(report, "recorded"), 0, "rescued"), Cell(share(truth.flushed, truth.base)));
}

// 70000 / 2^42 is flushed and 2^20 / 2^42 is not; both overflowed, so nothing rescued them.
TEST(Ranges, WhatOverflowedCountsAsFlushedWithoutAnEnormousScale) {
  const std::vector<double> values{70000.0, 1.0, 0x1p-30, 0x1p20};
  const double scale = 0x1p42;
  SyntheticTrace trace;
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  trace.add(gradient, make_row(values, DType::f16, scale));
  trace.end_step();
  const Report report = analyze_ranges(trace.read());
  const RoundingTruth truth = round_all(values, binary16, scale);
  EXPECT_EQ(cell(table(report, "recorded"), 0, "rescued"), Cell(share(1, truth.base)));
  const Table& fp16 = table(report, "what_if_fp16");
  EXPECT_EQ(truth.flushed, 3u);
  EXPECT_LE(lower(cell(fp16, 0, "true_flushed")), share(truth.flushed, truth.base));
  EXPECT_GE(upper(cell(fp16, 0, "true_flushed")), share(truth.flushed, truth.base));
}

}  // namespace
}  // namespace ulpscope::analyzers_test
