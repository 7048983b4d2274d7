// Steps that are held, and written when something happens: against a plain recording of the same run.
#include "ulpscope/recorder/flight_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/recorder/memory_sink.h"
#include "ulpscope/base/error.h"

namespace ulpscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

RecorderOptions holding(int64_t keep_last, int64_t after, std::vector<std::string> on) {
  RecorderOptions options;
  options.keep_last = keep_last;
  options.after = after;
  options.on = triggers_of(on);
  return options;
}

StepRow result(double loss, bool skipped = false) {
  StepRow row;
  row.loss = loss;
  row.loss_known = true;
  row.skipped = skipped;
  return row;
}

StepRow with_norm(double norm) {
  StepRow row = result(1);
  row.gradient_norm = row.clipped_gradient_norm = norm;
  row.norm_known = true;
  return row;
}

// A step with an activation, a gradient and an update, whose weight holds so many NaN; and a batch and a metric.
void train(Recorder& recorder, uint64_t step, StepRow row, uint64_t nan_in_weight = 0, uint64_t infinities_in_gradient = 0) {
  recorder.begin_step(step);
  const int64_t samples[] = {static_cast<int64_t>(step), 7};
  recorder.add_batch(Phase::forward, 0, 0, samples);
  record(recorder, {.id = 1, .name = "linear", .module = "head", .fill = [&](OutputRecord& out) {
                      out.statistics.largest = std::sqrt(static_cast<double>(step) + 2);
                      out.statistics.histogram.bins[step % 200] = 3;
                    }});
  record(recorder, {.id = 2,
                    .name = "linear_backward",
                    .phase = Phase::backward,
                    .inputs = {{1, 0}},
                    .infinities = infinities_in_gradient,
                    .outputs = {float_output(Role::weight_gradient, "head.weight")}});
  record(recorder, {.id = 3,
                    .name = "sgd_update",
                    .phase = Phase::optimizer,
                    .inputs = {{2, 0}},
                    .nan = nan_in_weight,
                    .outputs = {float_output(Role::weight, "head.weight")},
                    .fill = [&](OutputRecord& out) {
                      out.update.nonzero = step;
                      out.update_known = true;
                    }});
  recorder.add_metric("pace", MetricKind::other, static_cast<double>(step));
  recorder.end_step(row);
}

std::vector<uint64_t> steps_with_rows(const MemorySink& sink) {
  std::vector<uint64_t> steps;
  for (const TensorRow& row : sink.rows)
    if (steps.empty() || steps.back() != row.step) steps.push_back(row.step);
  return steps;
}

std::vector<uint64_t> range(uint64_t first, uint64_t last) {
  std::vector<uint64_t> steps;
  for (uint64_t step = first; step <= last; ++step) steps.push_back(step);
  return steps;
}

template <typename Row>
std::string text_of_steps(const std::vector<Row>& rows, const std::vector<uint64_t>& steps) {
  std::vector<Row> chosen;
  for (const Row& row : rows)
    if (std::find(steps.begin(), steps.end(), row.step) != steps.end()) chosen.push_back(row);
  return text_of(chosen);
}

TEST(FlightRecorder, KeepsTheRowsThatAFullRecordingHas) {
  MemorySink all, held;
  RecorderOptions options = holding(20, 5, {"nan"});
  options.level = RecordLevel::full;
  {
    Recorder plain(all, {.level = RecordLevel::full}), flight(held, options);
    for (uint64_t step = 0; step < 400; ++step) {
      const StepRow row = result(1.0 / (1 + static_cast<double>(step)));
      for (Recorder* const recorder : {&plain, &flight}) train(*recorder, step, row, step >= 340 ? 2 : 0);
    }
    flight.finish();
  }
  std::vector<uint64_t> kept = range(321, 345);
  kept.insert(kept.begin(), 0);
  EXPECT_EQ(steps_with_rows(held), kept);
  EXPECT_EQ(text_of(held.rows), text_of_steps(all.rows, kept));
  EXPECT_EQ(text_of(held.batches), text_of_steps(all.batches, kept));
  EXPECT_EQ(text_of(held.parameters), text_of_steps(all.parameters, kept));
  EXPECT_EQ(text_of(held.samples), text_of_steps(all.samples, kept));
  EXPECT_EQ(text_of(held.ops) + text_of(held.tensors) + text_of(held.edges),
            text_of(all.ops) + text_of(all.tensors) + text_of(all.edges));

  // Rows that are kept of all steps, in their order.
  EXPECT_TRUE(
      std::is_sorted(held.events.begin(), held.events.end(), [](const EventRow& a, const EventRow& b) { return a.step < b.step; }));
  ASSERT_EQ(held.steps.size(), 400u);
  std::vector<StepRow> steps = all.steps;
  for (StepRow& row : steps)
    if (std::find(kept.begin(), kept.end(), row.step) == kept.end()) row.level = RecordLevel::off;
  EXPECT_EQ(text_of(held.steps), text_of(steps));
  std::vector<EventRow> notes;
  std::erase_if(held.events, [&](const EventRow& event) {
    if (event.kind == EventKind::note) notes.push_back(event);
    return event.kind == EventKind::note;
  });
  EXPECT_EQ(text_of(held.events), text_of(all.events));
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].step, 340u);
  EXPECT_EQ(notes[0].text, "step 340: NaN or Inf in the weight of head.weight: rows of tensors were kept of steps 321 to 340");
}

TEST(FlightRecorder, AHealthyRunHasTheRowsOfItsFirstStep) {
  MemorySink sink;
  Recorder recorder(sink, holding(20, 5, {"nan", "skips:8", "grad_norm:10x"}));
  for (uint64_t step = 0; step < 100; ++step) train(recorder, step, result(1));
  EXPECT_EQ(sink.steps.size(), 80u);  // the others are held
  recorder.finish();
  EXPECT_EQ(steps_with_rows(sink), range(0, 0));
  EXPECT_EQ(sink.steps.size(), 100u);
  EXPECT_EQ(sink.steps.back().level, RecordLevel::off);
  EXPECT_THAT(sink.events_of(EventKind::note), IsEmpty());
  EXPECT_EQ(sink.events_of(EventKind::metric).size(), 100u);
}

// The steps behind the first whose rows are kept, where `train_step` trains 30 steps that are held singly.
template <typename TrainStep>
std::vector<uint64_t> fired(std::vector<std::string> on, const TrainStep& train_step) {
  MemorySink sink;
  Recorder recorder(sink, holding(1, 0, std::move(on)));
  for (uint64_t step = 0; step < 30; ++step) train_step(recorder, step);
  recorder.finish();
  std::vector<uint64_t> steps = steps_with_rows(sink);
  steps.erase(steps.begin());
  return steps;
}

TEST(FlightRecorder, WritesAtNanThatAScalerDoesNotHandle) {
  const auto at_20 = [](const StepRow& row, uint64_t nan, uint64_t infinities) {
    return [=](Recorder& recorder, uint64_t step) {
      const bool is_it = step == 20;
      train(recorder, step, is_it ? row : result(1), is_it ? nan : 0, is_it ? infinities : 0);
    };
  };
  EXPECT_THAT(fired({"nan"}, at_20(result(std::nan("")), 0, 0)), ElementsAre(20));
  EXPECT_THAT(fired({"nan"}, at_20(result(kInfinity, true), 0, 0)), ElementsAre(20));  // no scaler mends a loss
  EXPECT_THAT(fired({"nan"}, at_20(result(1), 3, 0)), ElementsAre(20));
  EXPECT_THAT(fired({"nan"}, at_20(result(1), 0, 4)), ElementsAre(20));
  EXPECT_THAT(fired({"nan"}, at_20(result(1, true), 0, 4)), IsEmpty());
  EXPECT_THAT(fired({"nan"}, at_20(with_norm(kInfinity), 0, 0)), ElementsAre(20));
  EXPECT_THAT(fired({"skips:8"}, at_20(result(std::nan("")), 3, 4)), IsEmpty());
}

TEST(FlightRecorder, WritesAtSkippedStepsInARow) {
  const auto train_step = [](Recorder& recorder, uint64_t step) {
    train(recorder, step, result(1, step == 3 || step == 4 || (step >= 10 && step < 17)));
  };
  EXPECT_THAT(fired({"skips:2"}, train_step), ElementsAre(4));  // and not again before 1,000 clean steps
  EXPECT_THAT(fired({"skips:7"}, train_step), ElementsAre(16));
  EXPECT_THAT(fired({"skips:8"}, train_step), IsEmpty());
}

TEST(FlightRecorder, WritesAtAGradientNormFarAboveTheMedian) {
  // The median of 1, 2, 3, 1, 2, 3, ... is 2.
  const auto with = [](double norm, uint64_t at) {
    return [=](Recorder& recorder, uint64_t step) {
      train(recorder, step, with_norm(step == at ? norm : 1 + static_cast<double>(step % 3)));
    };
  };
  EXPECT_THAT(fired({"grad_norm:10x"}, with(20.5, 25)), ElementsAre(25));
  EXPECT_THAT(fired({"grad_norm:10x"}, with(19.5, 25)), IsEmpty());
  EXPECT_THAT(fired({"grad_norm:5x"}, with(19.5, 25)), ElementsAre(25));
  EXPECT_THAT(fired({"grad_norm:10x"}, with(1e6, 7)), IsEmpty());  // of fewer than eight norms no median is taken
  EXPECT_THAT(fired({"grad_norm:10x"}, with(1e6, 8)), ElementsAre(8));
}

TEST(FlightRecorder, IsArmedAgainAfterAThousandCleanSteps) {
  MemorySink sink;
  Recorder recorder(sink, holding(2, 1, {"nan"}));
  const auto is_nan = [](uint64_t step) { return step == 10 || step == 500 || step == 1501 || step == 2000; };
  for (uint64_t step = 0; step < 2100; ++step) {
    recorder.begin_step(step);
    record(recorder, {.id = 1});
    recorder.end_step(result(is_nan(step) ? std::nan("") : 1));
  }
  EXPECT_THAT(steps_with_rows(sink), ElementsAre(0, 9, 10, 11, 1500, 1501, 1502));
}

TEST(FlightRecorder, WritesWhenItIsAsked) {
  MemorySink sink;
  Recorder recorder(sink, holding(3, 2, {}));
  for (uint64_t step = 0; step < 20; ++step) {
    if (step == 9) recorder.trigger("signal SIGUSR1");
    if (step == 10) recorder.trigger("again");  // while steps behind the first are written
    train(recorder, step, result(1));
  }
  recorder.trigger("ValueError left the recording");  // no step comes behind it
  recorder.finish();
  EXPECT_THAT(steps_with_rows(sink), ElementsAre(0, 7, 8, 9, 10, 11, 12, 17, 18, 19));
  const std::vector<EventRow> notes = sink.events_of(EventKind::note);
  ASSERT_EQ(notes.size(), 3u);
  EXPECT_THAT(notes[0].text, HasSubstr("step 9: signal SIGUSR1: rows of tensors were kept of steps 7 to 9"));
  EXPECT_THAT(notes[2].text, HasSubstr("step 19: ValueError left the recording"));
}

TEST(FlightRecorder, StopsWithTheStepsBeforeIt) {
  MemorySink sink;
  RecorderOptions options = holding(3, 0, {});
  options.stop_on = StopOn::nan;
  options.ends_training = false;
  Recorder recorder(sink, options);
  for (uint64_t step = 0; step < 20 && !recorder.stop_requested(); ++step) train(recorder, step, result(1), step == 12);
  EXPECT_THAT(steps_with_rows(sink), ElementsAre(0, 10, 11, 12));
  const std::vector<EventRow> notes = sink.events_of(EventKind::note);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_THAT(notes[0].text + notes[1].text, HasSubstr("stop_on=nan at step 12: NaN in output 0 of sgd_update"));
  EXPECT_THAT(sink.events_of(EventKind::stopped), IsEmpty());
}

TEST(FlightRecorder, TheOldestStepsThatDoNotFitHaveNoRows) {
  MemorySink sink;
  sink.row_bytes = 100;  // 300 a step
  RecorderOptions options = holding(10, 0, {"nan"});
  options.level = RecordLevel::health;
  options.max_bytes = empty_trace_bytes() + 2000;  // of which rows may take 1,840: six steps, of which the first is one
  Recorder recorder(sink, options);
  for (uint64_t step = 0; step < 30; ++step) train(recorder, step, result(step == 20 ? kInfinity : 1));
  recorder.finish();
  EXPECT_THAT(steps_with_rows(sink), ElementsAre(0, 16, 17, 18, 19, 20));
  EXPECT_EQ(sink.steps.size(), 30u);
  EXPECT_THAT(sink.events_of(EventKind::note).at(0).text, HasSubstr("steps 16 to 20, as far as they are within the size limit"));
}

// Tensors of a step with histograms of 40 binades, as a large layer has them: what is held does not grow behind keep_last steps,
// and a row takes 150 bytes.
TEST(FlightRecorder, HoldsRowsInFewBytes) {
  constexpr size_t kRows = 500, kSteps = 10;
  MemorySink sink;
  sink.keep_rows = false;
  FlightRecorder flight(sink, {.keep_last = kSteps, .after = 0, .triggers = {}, .max_bytes = 0});
  size_t largest = 0;
  for (uint64_t step = 1; step < 10 * kSteps; ++step) {
    for (uint32_t i = 0; i < kRows; ++i) {
      TensorRow row;
      row.step = 100'000 + step;
      row.sequence = row.tensor = 10'000 + i;
      row.scale = 65536;
      row.known = StatisticsLevel::values;
      row.statistics.count = 1 << 20;
      row.statistics.zeros = 1000 + i;
      row.statistics.negatives = 1 << 19;
      row.statistics.smallest = static_cast<double>(1e-12F);
      row.statistics.largest = static_cast<double>(1.234567F);
      row.statistics.sum = std::sqrt(2 + static_cast<double>(i));
      row.statistics.sum_of_squares = std::sqrt(3 + static_cast<double>(i));
      for (uint64_t bin = 90; bin < 130; ++bin) row.statistics.histogram.bins[bin] = uint64_t{1} << (bin - 90) / 2;
      flight.add_row(row);
    }
    StepRow ended;
    ended.step = 100'000 + step;
    flight.end_step(ended);
    largest = std::max(largest, flight.held_bytes());
  }
  EXPECT_LE(largest, kSteps * kRows * 160);
  EXPECT_GE(largest, kSteps * kRows * 80);
  EXPECT_EQ(sink.row_count, kRows);  // of the first step
}

TEST(FlightRecorder, RefusesWhatIsNoTrigger) {
  for (const char* const text : {"nam", "nan:1", "skips", "skips:0", "skips:x", "skips:-1", "grad_norm:10", "grad_norm:1x",
                                 "grad_norm:nanx", "grad_norm:infx", ""}) {
    const std::string texts[] = {text};
    EXPECT_THROW(triggers_of(texts), Error) << text;
  }
  const std::string texts[] = {"nan", "skips:3", "grad_norm:2.5x"};
  const Triggers triggers = triggers_of(texts);
  EXPECT_TRUE(triggers.nan);
  EXPECT_EQ(triggers.skips, 3);
  EXPECT_EQ(triggers.gradient_norm, 2.5);
}

// Ops of these steps are left out: rows of others are as they were, and nothing is said of gradients that nobody saw.
TEST(FlightRecorder, StepsWithoutOps) {
  MemorySink sink;
  Recorder recorder(sink, {});
  StepRow backoff = result(1, true);
  backoff.scale_before = 8;
  backoff.scale_after = 4;
  for (uint64_t step = 0; step < 6; ++step) {
    recorder.begin_step(step);
    if (step % 3 != 0) recorder.leave_out_ops();
    const int64_t samples[] = {1};
    recorder.add_batch(Phase::forward, 0, 0, samples);
    record(recorder, {.id = 1});
    recorder.end_step(step == 4 ? backoff : result(1));
  }
  EXPECT_THAT(steps_with_rows(sink), ElementsAre(0, 3));
  EXPECT_EQ(sink.batches.size(), 2u);
  ASSERT_EQ(sink.steps.size(), 6u);
  for (const StepRow& row : sink.steps) EXPECT_EQ(row.level, row.step % 3 == 0 ? RecordLevel::stats : RecordLevel::off);
  const std::vector<EventRow> backoffs = sink.events_of(EventKind::scale_backoff);
  ASSERT_EQ(backoffs.size(), 1u);
  EXPECT_EQ(backoffs[0].text, "the gradients of this step were not recorded");
}

}  // namespace
}  // namespace ulpscope
