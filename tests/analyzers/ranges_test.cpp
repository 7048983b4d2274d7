// Ranges of traces made of known values: the tables against roundings of these values.
#include "ulpscope/analyzers/verbs/ranges.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "report_access.h"
#include "synthetic_trace.h"
#include "tests/support/said.h"
#include "ulpscope/analyzers/subject/selection.h"

namespace ulpscope::analyzers_test {
namespace {

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
  const Report report = analyze_ranges(trace.read(), what_ifs());

  const RoundingTruth seen = round_all(gradients, binary16, 1.0), unscaled = round_all(gradients, binary16, scale);
  const Table& recorded = table(report, "recorded");
  const size_t row = row_of(recorded, "fc.weight gradient");
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
    const size_t g = row_of(what_if, "fc.weight gradient"), w = row_of(what_if, "norm batch_norm");
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
  const size_t g = row_of(fp16, "fc.weight gradient");
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
  const Report report = analyze_ranges(trace.read(), what_ifs());
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
  const Snapshot reader = trace.read();
  RangeOptions options = what_ifs();
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
  const Snapshot reader = trace.read();
  const auto rows = [&](const RangeOptions& options) { return table(analyze_ranges(reader, options), "recorded").rows.size(); };
  RangeOptions options = what_ifs();
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

// A step that the scaler skipped is no broken run, also where nothing else is looked at.
TEST(Ranges, TheVerdictIsTheRunsWhateverRowsAreAskedFor) {
  SyntheticTrace trace;
  const uint32_t gradient = trace.add_tensor("head", "linear_backward", Phase::backward, Role::activation_gradient, DType::f16);
  const uint32_t activation = trace.add_tensor("head", "linear", Phase::forward, Role::activation, DType::f16);
  for (uint64_t step = 0; step < 60; ++step) {
    trace.add(activation, make_row({1.0, step == 2 ? NAN : 2.0}, DType::f16));
    trace.add(gradient, make_row({0.5, step == 2 ? 1e9 : 0.25}, DType::f16, 1024));
    StepRow row = SyntheticTrace::default_step(step == 2 ? NAN : 1.0 / (1 + static_cast<double>(step)), step <= 2 ? 1024 : 512);
    if (step == 2) {
      row.skipped = true;
      row.scale_after = 512;
    }
    trace.end_step(row);
  }
  const Snapshot reader = trace.read();
  const Report whole = analyze_ranges(reader);
  for (const StepRange steps : {StepRange{2, 3}, StepRange{0, 1}, StepRange{10, 60}}) {
    RangeOptions options;
    options.steps = steps;
    const Report some = analyze_ranges(reader, options);
    EXPECT_EQ(some.verdict, whole.verdict);
    EXPECT_EQ(some.verdict_text, whole.verdict_text);
    EXPECT_EQ(cell(table(some, "recorded"), 0, "rows"), Cell(static_cast<int64_t>(steps.last - steps.first)));
  }
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
    const Report report = analyze_ranges(trace.read(), what_ifs());
    const Finding* finding = find_finding(report, "range.gradients_vanish");
    ASSERT_EQ(finding != nullptr, vanishes);
    EXPECT_EQ(find_finding(report, "range.gradients_fit") == nullptr, vanishes);
    if (!vanishes) continue;
    EXPECT_EQ(finding->severity, Severity::error);
    ASSERT_EQ(finding->evidence.size(), 1u);
    EXPECT_EQ(finding->evidence[0].key.op_name, "cast");
    EXPECT_NE(finding->title.text().find("4 of 4"), std::string::npos) << finding->title;
    EXPECT_NE(finding->title.text().find("`fc cast in backward` is at most 2^-"), std::string::npos) << finding->title;
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
  const Snapshot reader = trace.read();
  RangeOptions options = what_ifs();
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
  const Snapshot reader = trace.read();
  RangeOptions options = what_ifs();
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
  const Snapshot reader = trace.read();
  const Selection selection(reader, {});
  const char* const names[] = {"fc linear", "fc.weight (FP16)", "fc.weight gradient", "fc.weight first state",
                               "fc.weight second state"};
  for (uint32_t i = 0; i < std::size(names); ++i) {
    EXPECT_EQ(selection.name(i), names[i]);
    EXPECT_EQ(selection.key(i).name, names[i]);
  }
}

// Of runs that are read as one: the second tensor of the first op differs in nothing that names say, and the second op is another.
TEST(Ranges, NamesThatWereMadeAreTakenToo) {
  SyntheticTrace trace;
  TensorInfo activation, other;
  other.role = Role::buffer;
  trace.add_output({1, 0, "relu", "", Phase::forward, "", {}}, activation);
  trace.add_output({2, 0, "relu", "", Phase::forward, "", {}}, activation);
  trace.add_output({1, 0, "relu", "", Phase::forward, "", {}}, other);
  trace.end_step();
  const Snapshot reader = trace.read();
  const Selection selection(reader, {});
  EXPECT_EQ(selection.name(0), "first relu");
  EXPECT_EQ(selection.name(1), "second relu");
  EXPECT_EQ(selection.name(2), "first relu (second)");
  EXPECT_EQ(selection.output_name(2), "first relu");
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
  const Report report = analyze_ranges(trace.read(), what_ifs());
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
  EXPECT_NE(finding->title.text().find("1 of 2"), std::string::npos) << finding->title;
}

TEST(Ranges, SaysWhichLevelTellsMore) {
  for (const bool health : {true, false}) {
    SyntheticTrace trace;
    const uint32_t tensor = trace.add_tensor("fc", "relu", Phase::forward, Role::activation, DType::f16);
    trace.add(tensor, health ? make_health_row({1.0}, DType::f16) : make_row({1.0}, DType::f16));
    trace.end_step();
    const Report report = analyze_ranges(trace.read(), what_ifs());
    for (const char* name : {"recorded", "what_if_fp16"}) {
      EXPECT_EQ(table(report, name).note.find("recorded without magnitudes") != std::string::npos, health) << name;
    }
  }
}

TEST(Ranges, CopesWithNothingAndWithNonsense) {
  {
    SyntheticTrace trace;
    const Report report = analyze_ranges(trace.read(), what_ifs());
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
  const Report report = analyze_ranges(trace.read(), what_ifs());
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
  const Snapshot reader = trace.read();
  RangeOptions options = what_ifs();
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
  const Report report = analyze_ranges(trace.read(), what_ifs());
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
  const Report report = analyze_ranges(trace.read(), what_ifs());
  const RoundingTruth truth = round_all(values, binary16, scale);
  EXPECT_EQ(cell(table(report, "recorded"), 0, "rescued"), Cell(share(1, truth.base)));
  const Table& fp16 = table(report, "what_if_fp16");
  EXPECT_EQ(truth.flushed, 3u);
  EXPECT_LE(lower(cell(fp16, 0, "true_flushed")), share(truth.flushed, truth.base));
  EXPECT_GE(upper(cell(fp16, 0, "true_flushed")), share(truth.flushed, truth.base));
}

}  // namespace
}  // namespace ulpscope::analyzers_test
