// What `whatif` says of every format and scale against roundings of the values themselves, one at a time; and scalers against what
// their rule does when it is told of each step whether a value of it overflows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "report_access.h"
#include "synthetic_trace.h"
#include "ulpscope/analyzers/tables/scaling_replay.h"
#include "ulpscope/analyzers/verbs/what_if_report.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::analyzers_test {
namespace {

const std::vector<const FloatFormat*> kAsked{&binary16, &bfloat16, &e4m3, &e5m2};

// Of the part of the norm: squares of values without their scales.
struct NormTruth {
  double lost = 0, all = 0;
};

void add_norm(NormTruth& truth, const std::vector<double>& values, const FloatFormat& format, double scale, int k) {
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    const double x = value / scale, rounded = round_to_format(format, std::ldexp(x, k));
    truth.all += x * x;
    if (rounded == 0 || !(std::fabs(rounded) <= format.largest_finite())) truth.lost += x * x;
  }
}

void add_row(RoundingTruth& into, const RoundingTruth& other) {
  into.base += other.base;
  into.flushed += other.flushed;
  into.subnormal += other.subnormal;
  into.overflowed += other.overflowed;
}

void expect_share(const Cell& cell, uint64_t count, uint64_t base, const std::string& what) {
  if (base == 0) {
    EXPECT_TRUE(not_applicable(cell)) << what;
    return;
  }
  const double truth = share(count, base);
  EXPECT_LE(lower(cell), truth) << what;
  EXPECT_GE(upper(cell), truth) << what;
}

size_t row_at(const Table& table, const std::string& name, const FloatFormat& format, std::optional<int> k) {
  Cell scale = NotApplicable{};
  if (k) scale = std::ldexp(1.0, *k);
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const std::vector<Cell>& cells = table.rows[i].cells;
    if (cells[0] == Cell(name) && cells[1] == Cell(std::string(format.name)) && cells[2] == scale) return i;
  }
  ADD_FAILURE() << "no row of " << name << " in " << format.name << "; the last is of "
                << std::get<std::string>(table.rows.back().cells[0]);
  return table.rows.size();
}

WhatIfOptions asking(const std::string& scales) {
  WhatIfOptions options;
  options.formats = kAsked;
  options.exponents = parse_scale_exponents("--scale", std::vector<std::string>{scales});
  options.limit = 0;
  return options;
}

// A tensor's rows: values as recorded, and the scale that they contain.
struct RecordedRun {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::pair<std::vector<double>, double>> rows = {};
};

TEST(WhatIfTable, SaysWhatRoundingTheValuesAtEveryScaleSays) {
  std::mt19937 random(21);
  SyntheticTrace trace;
  const uint32_t narrow =
      trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16, "fc.weight");
  const uint32_t wide = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::activation_gradient, DType::f32);
  const uint32_t activation = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
  RecordedRun gradients{"fc.weight gradient", DType::f16}, others{"fc linear_backward"}, activations{"fc linear", DType::f16};
  for (int step = 0; step < 12; ++step) {
    // Another scale in some steps: values without it are what counts.
    const double scale = step < 5 ? 0x1p12 : 0x1p10;
    for (auto [tensor, recorded, center, s] :
         {std::tuple{narrow, &gradients, -14.0, scale}, std::tuple{wide, &others, -18.0, scale},
          std::tuple{activation, &activations, step < 3 ? 14.0 : -24.0, 1.0}}) {
      std::vector<double> values = lognormal(random, center + std::log2(s) - 10, 4, 60);
      // On thresholds of FP16 and E4M3, beside them, and what is no number.
      for (const double edge : {0x1p-25, 0x1.000002p-25, 65519.0, 65520.0, 464.0, 465.0, 0x1p-10, 0x1p-14}) values.push_back(edge);
      if (step % 4 == 1) values.insert(values.end(), {NAN, INFINITY, 0.0});
      trace.add(tensor, make_row(values, recorded->dtype, s));
      recorded->rows.emplace_back(as_floats(values), s);
    }
    trace.end_step(SyntheticTrace::default_step(1.0, scale));
  }
  const Report report = analyze_what_if(trace.read(), asking("2^-3..2^24"));
  const Table& what_if = table(report, "what_if");
  uint64_t exact = 0, cells = 0;
  const auto check = [&](const std::string& name, const std::vector<const RecordedRun*>& tensors, bool scaled) {
    for (const FloatFormat* format : kAsked) {
      for (int k = scaled ? -3 : 0; k <= (scaled ? 24 : 0); ++k) {
        RoundingTruth truth;
        NormTruth norm;
        for (const RecordedRun* tensor : tensors) {
          for (const auto& [values, scale] : tensor->rows) {
            const double contained = scaled ? scale : 1.0;
            add_row(truth, round_all(values, *format, std::ldexp(contained, -k)));
            add_norm(norm, values, *format, contained, k);
          }
        }
        const size_t row = row_at(what_if, name, *format, scaled ? std::optional(k) : std::nullopt);
        const std::string what = name + " " + std::string(format->name) + " 2^" + std::to_string(k);
        expect_share(cell(what_if, row, "flushed"), truth.flushed, truth.base, what + " flushed");
        expect_share(cell(what_if, row, "subnormal"), truth.subnormal, truth.base, what + " subnormal");
        expect_share(cell(what_if, row, "overflow"), truth.overflowed, truth.base, what + " overflow");
        const double part = std::sqrt(norm.lost / norm.all);
        EXPECT_LE(lower(cell(what_if, row, "lost_norm")), part * (1 + 1e-12)) << what;
        EXPECT_GE(upper(cell(what_if, row, "lost_norm")), part * (1 - 1e-12)) << what;
        // Squares within a bin differ by at most 4, so that the part does by 2, but for the bins that the thresholds are in.
        if (part > 0.001) {
          EXPECT_LE(upper(cell(what_if, row, "lost_norm")), 4 * part) << what;
        }
        for (const char* column : {"flushed", "subnormal", "overflow"})
          exact += std::holds_alternative<double>(cell(what_if, row, column));
        cells += 3;
      }
    }
  };
  check("fc.weight gradient", {&gradients}, true);
  check("fc linear_backward", {&others}, true);
  check("all gradients", {&gradients, &others}, true);
  check("fc linear", {&activations}, false);
  EXPECT_GT(exact, cells / 5);  // bounds that always said "0 to all" would pass the rest

  // Steps in which a value overflows, by trying.
  for (const FloatFormat* format : kAsked) {
    for (int k = -3; k <= 24; ++k) {
      uint64_t surely = 0, perhaps = 0;
      for (size_t step = 0; step < 12; ++step) {
        uint64_t overflowed = 0;
        for (const RecordedRun* tensor : {&gradients, &others})
          overflowed += round_all(tensor->rows[step].first, *format, std::ldexp(tensor->rows[step].second, -k)).overflowed;
        // Of a step that holds infinities it is not known what they would have been at a smaller scale.
        const bool nonfinite = step % 4 == 1;
        surely += overflowed > 0 || (nonfinite && std::ldexp(1.0, k) >= gradients.rows[step].second);
        perhaps += overflowed > 0 || nonfinite;
      }
      const Cell steps = cell(what_if, row_at(what_if, "all gradients", *format, k), "steps_overflowing");
      const auto* exactly = std::get_if<int64_t>(&steps);
      EXPECT_EQ(exactly ? static_cast<double>(*exactly) : lower(steps), static_cast<double>(surely)) << format->name << " " << k;
      EXPECT_EQ(exactly ? static_cast<double>(*exactly) : upper(steps), static_cast<double>(perhaps)) << format->name << " " << k;
    }
  }
}

TEST(WhatIfTable, AtTheScaleOfTheRunIsWhatWasRecorded) {
  std::mt19937 random(22);
  SyntheticTrace trace;
  const uint32_t gradient =
      trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16, "fc.weight");
  RoundingBounds recorded;
  for (int step = 0; step < 6; ++step) {
    const TensorRow row = make_row(lognormal(random, -5, 12, 300), DType::f16, 0x1p9);
    recorded += *as_seen(row);
    trace.add(gradient, row);
    trace.end_step(SyntheticTrace::default_step(1.0, 0x1p9));
  }
  ASSERT_GT(recorded.flushed.lower, 0u);
  ASSERT_GT(recorded.overflowed.lower, 0u);
  const Report report = analyze_what_if(trace.read(), asking("2^0..2^24"));
  const Table& what_if = table(report, "what_if");
  const size_t row = row_at(what_if, "all gradients", binary16, 9);
  EXPECT_EQ(cell(what_if, row, "flushed"), Cell(share(recorded.flushed.lower, recorded.base)));
  EXPECT_EQ(cell(what_if, row, "subnormal"), Cell(share(recorded.subnormal.lower, recorded.base)));
  EXPECT_EQ(cell(what_if, row, "overflow"), Cell(share(recorded.overflowed.lower, recorded.base)));
}

// Any rows, and any way to round: what they add up to is what what_if.h says of each.
TEST(WhatIfTable, SweepsAreTheSumsOfWhatIfs) {
  std::mt19937 random(23);
  const auto one_in = [&](uint32_t n) { return random() % n == 0; };
  for (int round = 0; round < 60; ++round) {
    TensorInfo tensor;
    tensor.role = Role::weight_gradient;
    tensor.dtype = std::array{DType::f32, DType::f16, DType::bf16}[random() % 3];
    tensor.rounding = static_cast<RoundingMode>(random() % kRoundingModes);
    tensor.flushes_results = one_in(4);
    const auto question = std::make_shared<const SweepQuestion>(
        SweepQuestion{kAsked, parse_scale_exponents("", std::vector<std::string>{"2^-8", "2^0..2^20", "2^30"}), !one_in(4)});
    SweptRows swept;
    std::vector<TensorRow> rows;
    for (int i = 0; i < 8; ++i) {
      const double scale = one_in(5) ? 1000.0 : std::ldexp(1.0, static_cast<int>(random() % 20));
      std::vector<double> values = lognormal(random, one_in(6) ? -130.0 : static_cast<double>(random() % 60) - 40,
                                             static_cast<double>(random() % 6), 1 + static_cast<int>(random() % 40));
      if (one_in(3)) values.insert(values.end(), {NAN, -INFINITY, 0.0});
      if (one_in(3)) values.push_back(0x1p-25 * scale);
      TensorRow row = make_row(values, tensor.dtype, scale);
      // The counts of make_row are of rounding to nearest.
      if (tensor.rounding != RoundingMode::nearest_even || tensor.flushes_results) row.rounding_known = false;
      if (one_in(5) && tensor.dtype != DType::f32) {
        const RoundingCounts counts = row.rounding;
        const bool known = row.rounding_known;
        row = make_stored_row(values, tensor.dtype, scale);
        row.rounding_known = known;
        row.rounding = counts;
      }
      if (one_in(6)) row.quantization_scale = one_in(2) ? 0.25 : 3.0;
      if (one_in(9)) row = make_health_row(values, tensor.dtype, scale);
      swept.add(row, tensor, question);
      rows.push_back(row);
    }
    const std::vector<SweepAnswer> answers = swept.answers();
    const size_t scales = question->exponents.size();
    ASSERT_EQ(answers.size(), kAsked.size() * scales);
    for (size_t format = 0; format < kAsked.size(); ++format) {
      for (size_t i = 0; i < scales; ++i) {
        RoundingBounds sum;
        uint64_t known = 0;
        for (const TensorRow& row : rows) {
          const double divisor = std::ldexp(question->scaled ? row.scale : 1.0, -question->exponents[i]);
          std::optional<RoundingBounds> bounds;
          if (row.known == StatisticsLevel::values && divisor == 1 && row.rounding_known && row.quantization_scale == 1 &&
              info(tensor.dtype).format == kAsked[format])
            bounds = as_seen(row);
          else
            bounds = what_if(row, tensor, *kAsked[format], divisor);
          if (bounds) sum += *bounds;
          known += bounds.has_value();
        }
        EXPECT_EQ(swept.rows(), known);
        EXPECT_EQ(swept.unknown(), rows.size() - known);
        const RoundingBounds& swept_bounds = answers[format * scales + i].bounds;
        const std::string what = "round " + std::to_string(round) + " " + std::string(kAsked[format]->name) + " 2^" +
                                 std::to_string(question->exponents[i]);
        EXPECT_EQ(swept_bounds.base, sum.base) << what;
        EXPECT_EQ(swept_bounds.flushed, sum.flushed) << what;
        EXPECT_EQ(swept_bounds.subnormal, sum.subnormal) << what;
        EXPECT_EQ(swept_bounds.overflowed, sum.overflowed) << what;
      }
    }
  }
}

// Each row is lost as a whole or not at all at most scales, so that the scale that loses least is plain.
TEST(WhatIfTable, NamesTheScaleThatLosesLeast) {
  SyntheticTrace trace;
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f32);
  for (int step = 0; step < 4; ++step) {
    // 2^-33 needs at least 2^9 so as not to be flushed to zero, of which it is no tie; 3 overflows from 2^15 on.
    trace.add(gradient, make_row({0x1.8p-33, 0x1.8p-33, 3.0}, DType::f32));
    trace.end_step();
  }
  WhatIfOptions options = asking("2^0..2^24");
  options.formats = {&binary16};
  const Report report = analyze_what_if(trace.read(), options);
  EXPECT_FALSE(report.verdict);
  const Table& least = table(report, "least");
  ASSERT_EQ(least.rows.size(), 1u);
  EXPECT_EQ(cell(least, 0, "scale"), Cell(0x1p8));
  EXPECT_EQ(cell(least, 0, "to"), Cell(0x1p14));
  EXPECT_EQ(cell(least, 0, "lost_norm"), Cell(0.0));
  const Plot& lost = report.plots.at(0);
  EXPECT_EQ(lost.kind, PlotKind::heatmap);
  ASSERT_FALSE(lost.marks.empty());
  EXPECT_EQ(lost.marks[0].from, 8);
  EXPECT_DOUBLE_EQ(lost.series.at(0).y.at(7), 2.0 / 3);  // flushed
  EXPECT_DOUBLE_EQ(lost.series.at(0).y.at(8), 0.0);
  EXPECT_DOUBLE_EQ(lost.series.at(0).y.at(15), 1.0 / 3);  // overflowed
}

// A step of several ranks overflows where one of them does, and its elements are those of all.
TEST(WhatIfTable, RanksAddUp) {
  std::mt19937 random(26);
  std::vector<std::vector<double>> values(10);  // by step, of both ranks
  RankedTraces traces(2);
  for (size_t rank = 0; rank < 2; ++rank) {
    SyntheticTrace& trace = traces[rank];
    const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f32);
    for (size_t step = 0; step < values.size(); ++step) {
      // One rank has no row in some steps.
      if (rank == 0 || step % 3 != 0) {
        const std::vector<double> more = lognormal(random, -6, 5, 40);
        trace.add(gradient, make_row(more, DType::f32));
        values[step].insert(values[step].end(), more.begin(), more.end());
      }
      trace.end_step();
    }
  }
  WhatIfOptions options = asking("2^0..2^24");
  options.scalings = {parse_scaling("static:2^14")};
  const Report report = analyze_what_if(Snapshot("run", traces.close()), options);
  const Table &what_if = table(report, "what_if"), &scaling = table(report, "scaling");
  for (size_t format = 0; format < kAsked.size(); ++format) {
    for (int k = 0; k <= 24; ++k) {
      RoundingTruth truth;
      int64_t steps = 0;
      for (const std::vector<double>& of_step : values) {
        const RoundingTruth rounded = round_all(of_step, *kAsked[format], std::ldexp(1.0, -k));
        add_row(truth, rounded);
        steps += rounded.overflowed > 0;
      }
      const size_t row = row_at(what_if, "all gradients", *kAsked[format], k);
      EXPECT_EQ(cell(what_if, row, "steps_overflowing"), Cell(steps)) << kAsked[format]->name << " " << k;
      expect_share(cell(what_if, row, "flushed"), truth.flushed, truth.base, std::to_string(k));
      if (k != 14) continue;
      EXPECT_EQ(cell(scaling, format, "skipped_steps"), Cell(steps)) << kAsked[format]->name;
      expect_share(cell(scaling, format, "flushed"), truth.flushed, truth.base, std::string(kAsked[format]->name));
    }
  }
}

// A scaler over steps whose largest values are known, told by hand: it is the rule that core's scaler runs on.
TEST(WhatIfTable, ScalersSkipTheStepsThatOverflow) {
  std::mt19937 random(24);
  SyntheticTrace trace;
  const uint32_t gradient = trace.add_tensor("fc", "linear_backward", Phase::backward, Role::weight_gradient, DType::f32);
  std::vector<std::vector<double>> steps;
  for (int step = 0; step < 300; ++step) {
    steps.push_back(lognormal(random, step % 50 == 7 ? 4 : -4, 3, 30));
    trace.add(gradient, make_row(steps.back(), DType::f32));
    trace.end_step();
  }
  WhatIfOptions options = asking("2^0..2^24");
  for (const char* text : {"dynamic:init=2^20,growth_interval=5", "static:2^11", "deepspeed:growth_interval=10,cap=2^13",
                           "dynamic:growth_factor=4,backoff_factor=0.25,growth_interval=7,floor=2^9"})
    options.scalings.push_back(parse_scaling(text));
  const Report report = analyze_what_if(trace.read(), options);
  const Table& scaling = table(report, "scaling");
  ASSERT_EQ(scaling.rows.size(), options.scalings.size() * kAsked.size());
  size_t row = 0;
  for (const auto& [name, rule] : options.scalings) {
    for (const FloatFormat* format : kAsked) {
      LossScaleState state = initial_state(rule);
      int64_t skipped = 0;
      double lowest = state.scale, highest = state.scale;
      RoundingTruth truth;
      for (const std::vector<double>& values : steps) {
        const RoundingTruth rounded = round_all(values, *format, 1 / state.scale);
        add_row(truth, rounded);
        update(rule, state, rounded.overflowed > 0);
        skipped += rounded.overflowed > 0;
        lowest = std::min(lowest, state.scale);
        highest = std::max(highest, state.scale);
      }
      const std::string what = name + " " + std::string(format->name);
      EXPECT_EQ(cell(scaling, row, "skipped_steps"), Cell(skipped)) << what;
      EXPECT_EQ(cell(scaling, row, "undecided_steps"), Cell(int64_t{0})) << what;
      EXPECT_EQ(cell(scaling, row, "final_scale"), Cell(state.scale)) << what;
      EXPECT_EQ(cell(scaling, row, "lowest_scale"), Cell(lowest)) << what;
      EXPECT_EQ(cell(scaling, row, "highest_scale"), Cell(highest)) << what;
      expect_share(cell(scaling, row, "flushed"), truth.flushed, truth.base, what);
      EXPECT_LT(upper(cell(scaling, row, "flushed")), 1.0) << what;
      ++row;
    }
  }
}

TEST(WhatIfTable, OfNoGradientsScalersSayNothing) {
  SyntheticTrace trace;
  const uint32_t activation = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f32);
  trace.add(activation, make_row({1e-9, 1.0}, DType::f32));
  trace.end_step();
  WhatIfOptions options = asking("2^0..2^4");
  options.formats = {&binary16};
  options.scalings = {parse_scaling("dynamic")};
  const Report report = analyze_what_if(trace.read(), options);
  const Table &scaling = table(report, "scaling"), &what_if = table(report, "what_if");
  EXPECT_TRUE(is_unknown(cell(scaling, 0, "skipped_steps")));
  EXPECT_TRUE(is_unknown(cell(scaling, 0, "final_scale")));
  EXPECT_NE(scaling.note.find("1 step without recorded gradients"), std::string::npos) << scaling.note;
  // And what holds no loss scale has one row.
  ASSERT_EQ(what_if.rows.size(), 1u);
  EXPECT_TRUE(not_applicable(cell(what_if, 0, "scale")));
  EXPECT_EQ(cell(what_if, 0, "flushed"), Cell(0.5));
}

// Where steps are undecided, every way to decide them is tried.
TEST(WhatIfTable, ScalersFollowBothWaysWhereStepsAreUndecided) {
  std::mt19937 random(25);
  bool some_differ = false;
  for (int round = 0; round < 40; ++round) {
    std::vector<StepGradients> steps;
    std::vector<int> exponents;
    for (int k = 0; k <= 20; ++k) exponents.push_back(k);
    for (uint64_t step = 0; step < 9; ++step) {
      StepGradients one;
      one.step = step;
      const int lower = static_cast<int>(random() % 16);
      one.largest = {{lower, lower + (random() % 2 ? 0 : static_cast<int>(random() % 8))}};
      one.base = 100;
      for (int k = 0; k <= 20; ++k) one.flushed.push_back({static_cast<uint64_t>(40 - 2 * k), static_cast<uint64_t>(50 - 2 * k)});
      steps.push_back(one);
    }
    LossScaleRule rule;
    rule.initial = 0x1p10;
    rule.growth_interval = 1 + static_cast<int64_t>(random() % 3);
    rule.hysteresis = 1 + static_cast<int64_t>(random() % 2);
    const ReplayedScaling replayed = replay_scaling(rule, steps, 0, exponents);
    uint64_t least = UINT64_MAX, most = 0, least_flushed = UINT64_MAX, most_flushed = 0;
    double lowest_final = INFINITY, highest_final = 0;
    for (uint32_t choice = 0; choice < 1u << steps.size(); ++choice) {
      LossScaleState state = initial_state(rule);
      uint64_t skipped = 0;
      CountBounds flushed;
      bool possible = true;
      for (size_t i = 0; i < steps.size() && possible; ++i) {
        const bool overflows = choice >> i & 1;
        const int k = std::ilogb(state.scale);
        possible = overflows ? k > steps[i].largest[0].lower : k <= steps[i].largest[0].upper;
        flushed += k < 0 ? CountBounds{40, 100} : k > 20 ? CountBounds{0, 10} : steps[i].flushed[static_cast<size_t>(k)];
        update(rule, state, overflows);
        skipped += overflows;
      }
      if (!possible) continue;
      least = std::min(least, skipped);
      most = std::max(most, skipped);
      least_flushed = std::min(least_flushed, flushed.lower);
      most_flushed = std::max(most_flushed, flushed.upper);
      lowest_final = std::min(lowest_final, state.scale);
      highest_final = std::max(highest_final, state.scale);
    }
    ASSERT_TRUE(replayed.is_known);
    EXPECT_EQ(replayed.skipped.least, least) << round;
    EXPECT_EQ(replayed.skipped.most, most) << round;
    EXPECT_EQ(replayed.final.least, lowest_final) << round;
    EXPECT_EQ(replayed.final.most, highest_final) << round;
    EXPECT_EQ(replayed.flushed, (CountBounds{least_flushed, most_flushed})) << round;
    some_differ = some_differ || least < most;
  }
  EXPECT_TRUE(some_differ);
}

// For who chooses among scales: a limit of tensors, each at every scale, and what the others are together, in the table and the
// plot.
TEST(WhatIfTable, ALimitOfTensorsHasEachAtEveryScale) {
  constexpr int kTensors = 9, kShown = 4;
  std::mt19937 random(8);
  SyntheticTrace trace;
  std::vector<uint32_t> tensors;
  std::vector<std::vector<double>> values(kTensors);
  for (int i = 0; i < kTensors; ++i)
    tensors.push_back(
        trace.add_tensor("m" + std::to_string(i), "linear_backward", Phase::backward, Role::weight_gradient, DType::f16));
  // Ever wider: the last ones lose most at the best scale.
  for (int i = 0; i < kTensors; ++i) {
    values[static_cast<size_t>(i)] = as_floats(lognormal(random, -10, 2.0 + 1.5 * i, 200));
    trace.add(tensors[static_cast<size_t>(i)], make_row(values[static_cast<size_t>(i)], DType::f16));
  }
  trace.end_step();
  Report report;
  AnalysisOptions options;
  options.limit = kShown;
  add_what_if(trace.read(), options, report);
  const Table& what_if = table(report, "what_if");
  EXPECT_EQ(what_if.rows_left_out, 0u);
  EXPECT_EQ(what_if.rows.size(), 25u * (1 + kShown + 1));
  std::set<std::string> shown;
  for (const TableRow& row : what_if.rows)
    if (!row.key.name.empty()) shown.insert(row.key.name);
  ASSERT_EQ(shown.size(), static_cast<size_t>(kShown));
  EXPECT_TRUE(shown.contains("m8 linear_backward"));
  for (int k = 0; k <= 24; ++k) {
    RoundingTruth others, all;
    for (int i = 0; i < kTensors; ++i) {
      const RoundingTruth truth = round_all(values[static_cast<size_t>(i)], binary16, std::ldexp(1.0, -k));
      add_row(all, truth);
      const std::string name = "m" + std::to_string(i) + " linear_backward";
      if (!shown.contains(name)) {
        add_row(others, truth);
        continue;
      }
      expect_share(cell(what_if, row_at(what_if, name, binary16, k), "flushed"), truth.flushed, truth.base, name);
    }
    for (const auto& [name, truth] :
         {std::pair<std::string, const RoundingTruth*>{"5 other tensors", &others}, {"all gradients", &all}}) {
      const size_t row = row_at(what_if, name, binary16, k);
      expect_share(cell(what_if, row, "flushed"), truth->flushed, truth->base, name);
      expect_share(cell(what_if, row, "overflow"), truth->overflowed, truth->base, name);
    }
  }
  const auto lost = std::find_if(report.plots.begin(), report.plots.end(), [](const Plot& plot) { return plot.name == "lost"; });
  ASSERT_NE(lost, report.plots.end());
  ASSERT_EQ(lost->series.size(), 1u + kShown + 1);
  EXPECT_EQ(lost->series.back().name, "5 other tensors");
}

// A scalar that scaling keeps in FP32 is rounded nowhere: the picture of lost gradients has no row of it.
TEST(WhatIfTable, ThePictureIsOfGradientsThatAreRounded) {
  SyntheticTrace trace;
  const uint32_t loss = trace.add_tensor("", "scale", Phase::scaling, Role::activation_gradient, DType::f32, "", true);
  const uint32_t gradient = trace.add_tensor("m", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  trace.add(loss, make_row({1024}, DType::f32, 1024));
  trace.add(gradient, make_row({1, 2}, DType::f16, 1024));
  trace.end_step(SyntheticTrace::default_step(1, 1024));
  trace.read();
  WhatIfOptions options;
  options.formats = {&binary16};
  options.exponents = {0, 10, 20};
  options.limit = 0;
  const Report report = analyze_what_if(Snapshot(trace.path()), options);
  const auto lost = std::find_if(report.plots.begin(), report.plots.end(), [](const Plot& plot) { return plot.name == "lost"; });
  ASSERT_NE(lost, report.plots.end());
  for (const Series& row : lost->series) EXPECT_NE(row.key.phase, "scaling") << row.name;
  EXPECT_EQ(lost->series.size(), 2u);
}

// A run whose scale lies beyond is asked about there too; one without histograms, or without gradients, about nothing.
TEST(WhatIfTable, AReportAsksOfTheScalesOfItsRun) {
  std::mt19937 random(8);
  SyntheticTrace trace, counts, inference;
  const uint32_t gradient = trace.add_tensor("m", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  trace.add(gradient, make_row(lognormal(random, 2, 3, 50), DType::f16, 0x1p30));
  trace.end_step(SyntheticTrace::default_step(1, 0x1p30));
  Report report;
  add_what_if(trace.read(), {}, report);
  EXPECT_EQ(table(report, "what_if").rows.size(), 2u * 31);
  const uint32_t counted = counts.add_tensor("m", "linear_backward", Phase::backward, Role::weight_gradient, DType::f16);
  counts.add(counted, make_health_row({1, 2}, DType::f16));
  counts.end_step();
  const uint32_t activation = inference.add_tensor("m", "linear", Phase::forward, Role::activation, DType::f16);
  inference.add(activation, make_row({1, 2}, DType::f16));
  inference.end_step();
  for (SyntheticTrace* const without : {&counts, &inference}) {
    Report nothing;
    add_what_if(without->read(), {}, nothing);
    EXPECT_TRUE(nothing.tables.empty() && nothing.plots.empty());
  }
}

}  // namespace
}  // namespace ulpscope::analyzers_test
