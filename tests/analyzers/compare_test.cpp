// compare.
#include "ulpscope/analyzers/verbs/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "report_access.h"
#include "synthetic_trace.h"
#include "ulpscope/analyzers/subject/selection.h"
#include "ulpscope/analyzers/verbs/all_findings.h"
#include "ulpscope/base/error.h"

namespace ulpscope::analyzers_test {
namespace {

// Two runs of one experiment: same op ids, since each trace numbers them in the same order.
void add_steps(SyntheticTrace& trace, int steps, double value, double drift) {
  const uint32_t a = trace.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f16);
  const uint32_t b = trace.add_tensor("fc", "relu", Phase::forward, Role::activation, DType::f16);
  for (int step = 0; step < steps; ++step) {
    trace.add(a, make_row({value, 1e-9}, DType::f16));
    trace.add(b, make_row({value}, DType::f16));
    trace.end_step(SyntheticTrace::default_step(2.0 + (step >= 3 ? drift : 0.0)));
  }
}

TEST(Compare, MatchesOpsByIdAndFindsTheFirstDifference) {
  SyntheticTrace first, second;
  add_steps(first, 6, 1.0, 0.0);
  add_steps(second, 6, 70000.0, 0.5);
  const Snapshot a = first.read(), b = second.read();
  const Report report = analyze_compare(a, b);
  const Finding* difference = find_finding(report, "compare.first_difference");
  ASSERT_NE(difference, nullptr);
  EXPECT_EQ(difference->evidence[0].key.step, 3u);
  EXPECT_EQ(find_finding(report, "compare.ops_unmatched"), nullptr);
  const Table& tensors = table(report, "tensors");
  ASSERT_EQ(tensors.rows.size(), 2u);
  const size_t linear = row_of(tensors, "fc linear");
  EXPECT_EQ(cell(tensors, linear, "flushed_a"), Cell(0.5));
  EXPECT_EQ(cell(tensors, linear, "overflow_a"), Cell(0.0));
  EXPECT_EQ(cell(tensors, linear, "overflow_b"), Cell(0.5));
  EXPECT_EQ(cell(tensors, row_of(tensors, "fc relu"), "overflow_b"), Cell(1.0));
  const Table& summary = table(report, "summary");
  const size_t loss = row_of(summary, "mean_loss_of_last_6_steps");
  EXPECT_EQ(cell(summary, loss, "a"), Cell(2.0));
  EXPECT_EQ(cell(summary, loss, "b"), Cell(2.25));
  EXPECT_EQ(cell(summary, loss, "b_over_a"), Cell(1.125));
}

// A row of the picture is of an output that both have; its cells are what norms of three and four elements say.
TEST(Compare, DifferencesOverTheStepsAreThoseOfTheNorms) {
  SyntheticTrace first, second;
  const auto add_all = [](SyntheticTrace& trace, bool is_second) {
    const uint32_t same = trace.add_tensor("a", "linear", Phase::forward, Role::activation, DType::f32);
    const uint32_t late = trace.add_tensor("b", "linear", Phase::forward, Role::activation, DType::f32);
    const uint32_t scaled = trace.add_tensor("c", "linear_backward", Phase::backward, Role::activation_gradient, DType::f32);
    const uint32_t broken = trace.add_tensor("d", "linear_backward", Phase::backward, Role::activation_gradient, DType::f32);
    for (int step = 0; step < 6; ++step) {
      const double scale = is_second ? 1024 : 8;
      trace.add(same, make_row({1.0, 2.0, -2.0}, DType::f32));
      // |(0, 3, 4)| = 5 and |(0, 0, 4)| = 4.
      trace.add(late, make_row({0.0, is_second && step >= 4 ? 0.0 : 3.0, 4.0}, DType::f32));
      trace.add(scaled, make_row({0.5 * scale, 0.25 * scale}, DType::f32, scale));
      trace.add(broken, make_row({is_second && step == 5 ? static_cast<double>(INFINITY) : 1.0}, DType::f32));
      trace.end_step(SyntheticTrace::default_step(1.0, scale));
    }
  };
  add_all(first, false);
  add_all(second, true);
  const Snapshot a = first.read(), b = second.read();
  const Report report = analyze_compare(a, b);
  ASSERT_EQ(report.plots.size(), 1u);
  const Plot& plot = report.plots[0];
  EXPECT_EQ(plot.kind, PlotKind::heatmap);
  ASSERT_EQ(plot.series.size(), 2u) << "other loss scales are no difference";
  EXPECT_EQ(plot.series[0].name, "(first) b linear");
  EXPECT_EQ(plot.series[0].key.name, "b linear");
  EXPECT_EQ(plot.series[0].x, (std::vector<double>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(plot.series[0].y, (std::vector<double>{0, 0, 0, 0, 0.2, 0.2}));
  EXPECT_EQ(plot.series[1].name, "d linear_backward");
  EXPECT_EQ(plot.series[1].y, (std::vector<double>{0, 0, 0, 0, 0, 1}));
  ASSERT_EQ(plot.marks.size(), 1u);
  EXPECT_EQ(plot.marks[0].from, 4);
  EXPECT_EQ(plot.marks[0].text, "first difference: b linear, zeros 1 and 2");
  EXPECT_EQ(fact(report, "first_different_step"), Cell(int64_t{4}));
  EXPECT_EQ(fact(report, "first_different_output"), Cell(std::string("b linear")));
  AnalysisOptions options;
  options.steps = {0, 4};
  const Report equal = analyze_compare(a, b, options);
  EXPECT_TRUE(equal.plots.empty());
  EXPECT_EQ(fact(equal, "first_different_step"), Cell(NotApplicable{}));
  options.steps = {7, 8};
  EXPECT_EQ(fact(analyze_compare(a, b, options), "first_different_step"), Cell(Unknown{})) << "nothing was compared";
  options.steps = {};
  options.limit = 1;
  const Report one = analyze_compare(a, b, options);
  ASSERT_EQ(one.plots[0].series.size(), 1u);
  EXPECT_EQ(one.plots[0].series[0].name, "d linear_backward") << "the largest difference";
  EXPECT_EQ(one.plots[0].series_left_out, 1u);
}

// A loss that falls: what a run that ended earlier had not reached yet is no loss of accuracy.
TEST(Compare, LossesOfTheSameStepsAreHeldAgainstEachOther) {
  const auto write = [](SyntheticTrace& trace, int steps, double factor) {
    const uint32_t tensor = trace.add_tensor("a", "linear", Phase::forward, Role::activation, DType::f32);
    for (int step = 0; step < steps; ++step) {
      trace.add(tensor, make_row({1.0}, DType::f32));
      trace.end_step(SyntheticTrace::default_step(factor * 100 / (100.0 + step)));
    }
    return trace.read();
  };
  SyntheticTrace long_run, short_run, worse_run, few_steps;
  const Snapshot all = write(long_run, 400, 1), some = write(short_run, 100, 1), worse = write(worse_run, 150, 1.5);
  for (const auto& [a, b] : {std::pair(&all, &some), std::pair(&some, &all)}) {
    const Report report = analyze_compare(*a, *b);
    EXPECT_EQ(report.verdict, Verdict::ok) << report.verdict_text;
    EXPECT_EQ(report.verdict_text, "the losses of 100 common steps are bit-equal.");
  }
  const Report compared = analyze_compare(all, worse);
  const Finding* const higher = find_finding(compared, "compare.loss_higher");
  ASSERT_NE(higher, nullptr);
  double mean = 0;
  for (int step = 125; step < 150; ++step) mean += 100 / (100.0 + step) / 25;
  EXPECT_NEAR(std::get<double>(higher->evidence[0].values[0].value), mean, 1e-12);
  EXPECT_NEAR(std::get<double>(higher->evidence[0].values[1].value), 1.5 * mean, 1e-12);
  EXPECT_EQ(find_finding(analyze_compare(worse, all), "compare.loss_higher"), nullptr);
  EXPECT_EQ(compared.verdict, Verdict::warning);
  EXPECT_THAT(compared.verdict_text.text(),
              ::testing::StartsWith("The second run loses accuracy: its mean loss over the last 25 common steps is "));
  const Sentence change = higher->title.front()["change"].find<Value::Phrase>()->front();
  EXPECT_NEAR(std::get<double>(change["change"].find<Value::Number>()->cell), 0.5, 1e-12);
  EXPECT_EQ(change.text(), ", +50.0%");
  EXPECT_EQ(analyze_compare(all, write(few_steps, 8, 1.5)).verdict_text,
            "losses were not judged: the runs have 8 common steps, and 10 are needed.");
}

// Losses of other seeds, or of other samples, differ for that alone.
TEST(Compare, LossesOfRunsThatBeginOtherwiseAreNotJudged) {
  // Steps from `first` on; each reads `batch` samples, those of step N from N on.
  const auto write = [](SyntheticTrace& trace, double factor, uint64_t first_sample, uint64_t first = 0, uint64_t batch = 1) {
    for (uint64_t step = first; step < 60; ++step) {
      for (uint64_t i = 0; i < batch; ++i) trace.sink().add_batch({.step = step, .sample = first_sample + step + i});
      StepRow row = SyntheticTrace::default_step(factor * 100 / (100.0 + static_cast<double>(step)));
      row.step = step;
      trace.sink().end_step(row);
    }
    return trace.read();
  };
  RunInfo other;
  other.run_id = "0123456789abcdef0123456789abcdef";
  other.seed = 7;
  SyntheticTrace good, worse, of_other_seed(other), of_other_samples;
  const Snapshot a = write(good, 1, 0);
  EXPECT_NE(find_finding(analyze_compare(a, write(worse, 1.5, 0)), "compare.loss_higher"), nullptr);
  // A run that was resumed, and one of another batch size.
  SyntheticTrace resumed, of_other_batches;
  EXPECT_NE(find_finding(analyze_compare(a, write(resumed, 1.5, 0, 20)), "compare.loss_higher"), nullptr);
  EXPECT_EQ(find_finding(analyze_compare(a, write(of_other_batches, 1.5, 0, 0, 2)), "compare.loss_higher"), nullptr);
  const Report seeds = analyze_compare(a, write(of_other_seed, 1.5, 0)),
               samples = analyze_compare(a, write(of_other_samples, 1.5, 9));
  for (const Report* report : {&seeds, &samples}) {
    EXPECT_EQ(find_finding(*report, "compare.loss_higher"), nullptr);
    EXPECT_EQ(report->verdict, Verdict::ok) << report->verdict_text;
  }
  EXPECT_EQ(fact(seeds, "losses_judged"), Cell(std::string("no: other seeds")));
  EXPECT_EQ(fact(samples, "losses_judged"), Cell(std::string("no: other samples, or another order")));
  EXPECT_EQ(seeds.verdict_text, "losses were not judged, since runs of different seeds end with different ones.");
  EXPECT_EQ(samples.verdict_text, "losses were not judged: the runs trained on different samples, or in another order.");
}

// Where the samples were not recorded, what went in tells that others did, and what the weights were that another seed drew them:
// of types that hold it as it was. A loss that is half as large again is no loss of accuracy then.
TEST(Compare, LossesOfRunsThatWereGivenOtherwiseAreNotJudged) {
  struct Given {
    double input = 2, weight = 1, narrow = 1, evaluated = 1, later = 3;
  };
  const auto write = [](SyntheticTrace& trace, double factor, const Given& given) {
    const auto add = [&](uint64_t id, Role role, DType dtype, Phase phase = Phase::data) {
      OpInfo source{id, 0, "source", "", phase, "", {}};
      source.kind = OpKind::source;
      source.function = OpFunction::source;
      TensorInfo tensor;
      tensor.role = role;
      tensor.dtype = dtype;
      return trace.add_output(source, tensor);
    };
    const uint32_t input = add(1, Role::input, DType::f32), weight = add(2, Role::weight, DType::f32),
                   narrow = add(3, Role::weight, DType::f16), evaluated = add(4, Role::input, DType::f32, Phase::evaluation);
    for (int step = 0; step < 60; ++step) {
      if (step == 0) {
        trace.add(weight, make_row({given.weight, 0.5}, DType::f32));
        trace.add(narrow, make_row({given.narrow}, DType::f16));
        trace.add(evaluated, make_row({given.evaluated}, DType::f32));
      }
      trace.add(input, make_row({step == 0 ? given.input : given.later, 0.25}, DType::f32));
      trace.end_step(SyntheticTrace::default_step(factor * 100 / (100.0 + step)));
    }
    return trace.read();
  };
  SyntheticTrace first;
  const Snapshot a = write(first, 1, {});
  const auto compared = [&](const Given& given) {
    SyntheticTrace second;
    return analyze_compare(a, write(second, 1.5, given));
  };
  for (const Given& same : {Given{}, Given{.narrow = 1.5}, Given{.evaluated = 2}})
    EXPECT_NE(find_finding(compared(same), "compare.loss_higher"), nullptr);
  for (const auto& [given, text] :
       {std::pair(Given{.input = 2.5}, "losses were not judged: the runs trained on different samples, or in another order."),
        {Given{.weight = 1.25}, "losses were not judged: the runs began with different weights."}}) {
    const Report report = compared(given);
    EXPECT_EQ(find_finding(report, "compare.loss_higher"), nullptr);
    EXPECT_EQ(report.verdict, Verdict::ok);
    EXPECT_EQ(report.verdict_text, text);
  }
}

// The verdict has the means that were compared, and what one run each can tell.
TEST(Compare, AVerdictWithoutAFindingSaysWhatWasCompared) {
  const auto verdict = [](double factor, double noise) {
    SyntheticTrace first, second;
    for (int step = 0; step < 60; ++step) {
      const double loss = 0.5 + (step % 2 == 0 ? noise : -noise);
      first.end_step(SyntheticTrace::default_step(loss));
      second.end_step(SyntheticTrace::default_step(factor * loss + 1e-9));
    }
    const Report report = analyze_compare(first.read(), second.read());
    EXPECT_EQ(report.verdict, Verdict::ok) << report.verdict_text;
    for (const Finding& finding : report.findings)
      EXPECT_EQ(finding.suggestion.text().find("ulpscope "), std::string::npos) << "a command has to show what is promised of it";
    return report.verdict_text.text();
  };
  EXPECT_EQ(verdict(0.98, 0),
            "no regression seen: mean loss of the last 25 common steps 0.49 (second run) against 0.5 (first), -2.0%. One run each "
            "resolves 5% at best.");
  EXPECT_EQ(verdict(1.00002, 0),
            "no regression seen: mean loss of the last 25 common steps 0.5 (second run) against 0.5 (first), less than 0.1% "
            "apart. One run each resolves 5% at best.");
  // 13 losses of 0.3 and 12 of 0.7 have the mean 0.492 and the variance 0.0416, and 2 sqrt(0.0416 (1 + 1.06^2) / 25) is 0.1189.
  EXPECT_THAT(verdict(1.06, 0.2),
              ::testing::HasSubstr(", +6.0%. One run each resolves 24.2% here, as these losses vary, and 5% at"));
}

TEST(Compare, OfRunsThatHaveNothingInCommonGivesNoVerdict) {
  const auto run_of_steps = [](uint64_t first, uint64_t last) {
    SyntheticTrace trace;
    StepRow row = SyntheticTrace::default_step();
    for (row.step = first; row.step < last; ++row.step) trace.sink().end_step(row);
    return trace.read();
  };
  const Report report = analyze_compare(run_of_steps(0, 5), run_of_steps(7, 12));
  EXPECT_FALSE(report.verdict);
  EXPECT_EQ(fact(report, "compared"), Cell(std::string("nothing: no row of one run has its like in the other")));
}

// The table that advice sends to begins with what differs most.
TEST(Compare, TheTableOfTensorsBeginsWithWhatDiffersMost) {
  const auto write = [](SyntheticTrace& trace, double factor, double largest) {
    const uint32_t calm = trace.add_tensor("calm", "linear", Phase::forward, Role::activation, DType::f16);
    const uint32_t hot = trace.add_tensor("hot", "linear", Phase::forward, Role::activation, DType::f16);
    for (int step = 0; step < 60; ++step) {
      trace.add(calm, make_row({1.0, factor}, DType::f16));
      trace.add(hot, make_row({largest, 1.0}, DType::f16));
      trace.end_step(SyntheticTrace::default_step(factor));
    }
    return trace.read();
  };
  SyntheticTrace first, second;
  const Report report = analyze_compare(write(first, 1, 2), write(second, 1.5, 70000));
  ASSERT_NE(find_finding(report, "compare.loss_higher"), nullptr);
  EXPECT_EQ(find_finding(report, "compare.loss_higher")->suggestion,
            "See the table of tensors: those whose underflow, overflow, NaN and Inf differ most come first.");
  EXPECT_EQ(cell(table(report, "tensors"), 0, "tensor"), Cell(std::string("hot linear")));
}

// Columns of a long run have the largest of their steps.
TEST(Compare, ALongRunHasColumnsOfSeveralSteps) {
  SyntheticTrace first, second;
  for (SyntheticTrace* trace : {&first, &second}) {
    const uint32_t tensor = trace->add_tensor("a", "linear", Phase::forward, Role::activation, DType::f32);
    for (int step = 0; step < 600; ++step) {
      trace->add(tensor, make_row({trace == &second && step == 333 ? 3.0 : 4.0}, DType::f32));
      trace->end_step();
    }
  }
  const Plot plot = analyze_compare(first.read(), second.read()).plots.at(0);
  ASSERT_EQ(plot.series[0].y.size(), 150u) << "of four steps each";
  for (size_t column = 0; column < 150; ++column) EXPECT_EQ(plot.series[0].y[column], column == 333 / 4 ? 0.25 : 0.0) << column;
  EXPECT_EQ(plot.x_end, 600);
  EXPECT_EQ(plot.marks[0].from, 333);
}

// An output of runs that are read as one is a tensor for each type and arithmetic that it had.
TEST(Compare, AnOutputIsOneRowWhateverItsTypesAndArithmetic) {
  SyntheticTrace first, second;
  const OpInfo linear{1, 0, "linear", "fc", Phase::forward, "", {}};
  TensorInfo nearest, toward_zero, wide;
  nearest.dtype = toward_zero.dtype = DType::f16;
  toward_zero.rounding = RoundingMode::toward_zero;
  first.add(first.add_output(linear, nearest), make_row({1.0, 1e-9, 1.0, 1.0}, DType::f16));
  first.end_step();
  const uint32_t before = second.add_output(linear, nearest), after = second.add_output(linear, toward_zero),
                 last = second.add_output(linear, wide);
  second.add(before, make_row({4.0, 4.0, 4.0, 4.0}, DType::f16));
  second.end_step();
  second.add(after, make_row({1e-9, 1.0, 1.0, 1.0}, DType::f16));
  second.end_step();
  second.add(last, make_row({1e-9, 1.0, 1.0, 1.0}, DType::f32));
  second.end_step();
  const Snapshot a = first.read(), b = second.read();
  const Selection selection(b, {});
  EXPECT_EQ(selection.name(before), "fc linear (FP16) (rounding rne)");
  EXPECT_EQ(selection.name(after), "fc linear (FP16) (rounding rz)");
  EXPECT_EQ(selection.output_name(last), "fc linear");
  const Table tensors = table(analyze_compare(a, b), "tensors");
  ASSERT_EQ(tensors.rows.size(), 1u);
  EXPECT_EQ(cell(tensors, 0, "tensor"), Cell(std::string("fc linear")));
  EXPECT_EQ(tensors.rows[0].key.name, "fc linear");
  EXPECT_EQ(cell(tensors, 0, "type_b"), Cell(std::string("f16 and f32")));
  EXPECT_EQ(cell(tensors, 0, "flushed_a"), Cell(0.25));
  EXPECT_EQ(cell(tensors, 0, "flushed_b"), Cell(0.125));  // of what was rounded to 16 bits
  EXPECT_EQ(cell(tensors, 0, "largest_b"), Cell(2.0));
}

TEST(Compare, SaysWhereMachinesOrTheirThreadsDiffer) {
  RunInfo two, four;
  two.machine = "a CPU, avx2, 2 threads";
  four.machine = "a CPU, avx2, 4 threads";
  SyntheticTrace first(two), second(four);
  const Snapshot a = first.read(), b = second.read();
  const Report report = analyze_compare(a, b);
  const Finding* finding = find_finding(report, "compare.different_machines");
  ASSERT_NE(finding, nullptr);
  EXPECT_NE(finding->title.text().find("2 threads' and 'a CPU, avx2, 4 threads'"), std::string::npos);
  EXPECT_EQ(find_finding(analyze_compare(a, a), "compare.different_machines"), nullptr);
}

TEST(Compare, SaysWhereTheLibraryTookOtherAlgorithms) {
  const std::vector<ProductInfo> products{
      {"4 x 8 x 16", "algorithm 1"}, {"4 x 8 x 32", "algorithm 2"}, {"1 x 1 x 1", "algorithm 3"}};
  SyntheticTrace first, second, third, fourth, none;
  for (const ProductInfo& product : products) first.sink().add_product(product);
  // In another order, one of them by another algorithm, and one that the first run does not have.
  second.sink().add_product({"4 x 8 x 32", "algorithm 7"});
  second.sink().add_product(products[0]);
  second.sink().add_product({"5 x 5 x 5", "algorithm 1"});
  third.sink().add_product(products[2]);
  third.sink().add_product(products[0]);
  // Both of two algorithms for one product are told.
  fourth.sink().add_product(products[0]);
  fourth.sink().add_product({products[0].product, "algorithm 9"});
  for (SyntheticTrace* trace : {&first, &second, &third, &fourth, &none}) trace->end_step(SyntheticTrace::default_step(1.0));
  const Snapshot a = first.read(), b = second.read(), c = third.read(), d = none.read();
  const Report report = analyze_compare(a, b);
  const Finding* finding = find_finding(report, "compare.different_algorithms");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->title,
            "The device's library used different algorithms for 1 of 2 matrix products that both runs have. First '4 x 8 x 32': "
            "'algorithm 2' in the first run, 'algorithm 7' in the second.");
  const Snapshot e = fourth.read();
  const Report several = analyze_compare(a, e);
  ASSERT_NE(find_finding(several, "compare.different_algorithms"), nullptr);
  EXPECT_NE(find_finding(several, "compare.different_algorithms")
                ->title.text()
                .find("'4 x 8 x 16': 'algorithm 1' in the first run, 'algorithm 1 or algorithm 9' in the second"),
            std::string::npos);
  // Another machine's library has other numbers.
  RunInfo elsewhere;
  elsewhere.machine = "another GPU";
  SyntheticTrace fifth(elsewhere);
  fifth.sink().add_product({products[0].product, "algorithm 9"});
  fifth.end_step(SyntheticTrace::default_step(1.0));
  EXPECT_EQ(find_finding(analyze_compare(a, fifth.read()), "compare.different_algorithms"), nullptr);
  for (const Snapshot* other : {&a, &c, &d})
    EXPECT_EQ(find_finding(analyze_compare(a, *other), "compare.different_algorithms"), nullptr);
}

TEST(Compare, EqualRunsAreSaidToBeEqualNansIncluded) {
  SyntheticTrace first, second, third;
  for (SyntheticTrace* trace : {&first, &second, &third}) {
    trace->end_step(SyntheticTrace::default_step(1.0));
    trace->end_step(SyntheticTrace::default_step(NAN));
    if (trace == &third) trace->end_step(SyntheticTrace::default_step(2.0));
  }
  const Snapshot a = first.read(), b = second.read(), c = third.read();
  const Report equal = analyze_compare(a, b);
  EXPECT_NE(find_finding(equal, "compare.losses_equal"), nullptr);
  EXPECT_EQ(find_finding(equal, "compare.first_difference"), nullptr);
  EXPECT_EQ(find_finding(equal, "compare.steps_differ"), nullptr);
  EXPECT_NE(find_finding(analyze_compare(a, c), "compare.steps_differ"), nullptr);
}

TEST(Compare, MeanLossIsThatOfTheLastFiftySteps) {
  SyntheticTrace first, second;
  for (int step = 0; step < 120; ++step) first.end_step(SyntheticTrace::default_step(step));
  for (int step = 0; step < 30; ++step) second.end_step(SyntheticTrace::default_step(step));
  const Snapshot a = first.read(), b = second.read();
  const auto means = [](const Report& report, const char* name) {
    const Table& summary = table(report, "summary");
    const size_t row = row_of(summary, name);
    return std::pair(cell(summary, row, "a"), cell(summary, row, "b"));
  };
  EXPECT_EQ(means(analyze_compare(a, a), "mean_loss_of_last_50_steps"), std::pair(Cell((70 + 119) / 2.0), Cell((70 + 119) / 2.0)));
  // As many steps count in both: those that the shorter run has.
  EXPECT_EQ(means(analyze_compare(a, b), "mean_loss_of_last_30_steps"), std::pair(Cell((90 + 119) / 2.0), Cell(29 / 2.0)));
}

TEST(Compare, ASecondRunThatBreaksIsAnError) {
  SyntheticTrace healthy, broken;
  healthy.end_step();
  broken.end_step(SyntheticTrace::default_step(INFINITY));
  const Snapshot a = healthy.read(), b = broken.read();
  EXPECT_EQ(find_finding(analyze_compare(a, b), "compare.loss_nonfinite")->severity, Severity::error);
  EXPECT_EQ(find_finding(analyze_compare(b, a), "compare.loss_nonfinite")->severity, Severity::info);
  EXPECT_EQ(find_finding(analyze_compare(a, a), "compare.loss_nonfinite"), nullptr);
  EXPECT_EQ(find_finding(analyze_compare(b, b), "compare.loss_nonfinite")->severity, Severity::error)
      << "no run that is NaN is fine";
}

TEST(Compare, OneSkippedStepOfTheSecondRunIsWhatAReportSaysThatItIs) {
  SyntheticTrace first, second;
  for (int step = 0; step < 60; ++step) {
    StepRow row = SyntheticTrace::default_step(1.0 / (1 + step));
    first.end_step(row);
    if (step == 20) {
      row.loss = NAN;
      row.skipped = true;
    }
    second.end_step(row);
  }
  const Snapshot a = first.read(), b = second.read();
  EXPECT_EQ(analyze_all(b, {}).verdict, Verdict::ok);
  const Report compared = analyze_compare(a, b, {});
  EXPECT_EQ(compared.verdict, Verdict::ok) << compared.verdict_text;
  EXPECT_EQ(find_finding(compared, "compare.loss_nonfinite")->severity, Severity::info);
  EXPECT_EQ(compared.verdict_text,
            "losses were not judged: the second run's loss was NaN or Inf in 1 step, which did no lasting harm.");
}

TEST(Compare, NamesWhatOnlyOneTraceHasAndHowFarLossesLieApart) {
  SyntheticTrace left, right;
  left.add(left.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f32), make_row({1.0}, DType::f32));
  const uint32_t both = right.add_tensor("fc", "linear", Phase::forward, Role::activation, DType::f32);
  const uint32_t extra = right.add_tensor("fc", "relu", Phase::forward, Role::activation, DType::f32);
  right.add(both, make_row({1.0}, DType::f32));
  right.add(extra, make_row({1.0}, DType::f32));
  left.end_step(SyntheticTrace::default_step(2.5));
  right.end_step(SyntheticTrace::default_step(2.5 + 0x1p-30));
  const Snapshot a = left.read(), b = right.read();
  const Report report = analyze_compare(a, b);
  const Finding* unmatched = find_finding(report, "compare.ops_unmatched");
  ASSERT_NE(unmatched, nullptr);
  ASSERT_EQ(unmatched->evidence.size(), 1u);
  EXPECT_EQ(unmatched->evidence[0].key.op_name, "relu");
  EXPECT_EQ(unmatched->evidence[0].values[0].value, Cell(std::string("b")));
  const Finding* losses = find_finding(report, "compare.first_difference");
  ASSERT_NE(losses, nullptr);
  EXPECT_EQ(losses->evidence[0].values[2].value, Cell(0x1p-30));
}

}  // namespace
}  // namespace ulpscope::analyzers_test
