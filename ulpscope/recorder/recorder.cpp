#include "ulpscope/recorder/recorder.h"

#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/recorder/identity.h"
#include "ulpscope/recorder/level_control.h"
#include "ulpscope/recorder/record_arena.h"

namespace ulpscope {

namespace {

constexpr int kSamples = OutputRecord::kMaxSamples;
// After so many steps in a row whose first nonfinite output is the same, nothing new is to be learnt: such a step keeps its event
// and the row of that output, but no capture, and no rows of outputs outside the filters.
constexpr int64_t kRepeats = 16;
// Of a capture: 64 pairs of a dot product, and room for a bias and the like.
constexpr size_t kMaximumOperands = 160;
constexpr int kMaximumWarnings = 1000;

bool is_gradient(Phase phase, Role role) {
  return (phase == Phase::backward || phase == Phase::scaling) &&
         (role == Role::activation_gradient || role == Role::weight_gradient || role == Role::accumulated_gradient ||
          role == Role::unscaled_gradient);
}

// An output, in order of execution the first, of which something holds.
struct Finding {
  const OpEntry* op = nullptr;
  uint32_t slot = 0;
  int64_t tensor = -1;
  uint64_t count = 0;

  void set_once(const OpEntry& entry, uint32_t output, uint32_t index, uint64_t values) {
    if (op == nullptr) *this = {&entry, output, index, values};
  }
  std::string text() const {
    return op == nullptr ? std::string("unknown op")
                         : fmt::format("output {} of {} ({}), {} values", slot, op->label, name_of(op->phase), count);
  }
};

struct Findings {
  Finding nonfinite, nan, infinite, gradient;
};

}  // namespace

const char* name_of(StopOn stop) {
  static constexpr const char* kNames[] = {"never", "nan", "overflow", "backoff"};
  return kNames[static_cast<size_t>(stop)];
}

struct Recorder::State {
  struct Call {
    uint32_t entry;
    uint32_t micro_batch;
    OutputRecord* const* records;
    uint32_t outputs;
    uint8_t pass;
  };

  State(TraceSink& trace, RecorderOptions chosen)
      : sink(trace), options(std::move(chosen)), ops(trace, options), control(options) {}

  bool writing() const { return options.level != RecordLevel::off && !failed && !control.steps_stopped(); }
  // Whether ops are asked for anything. A recorder that no longer writes still watches for what training should stop on.
  bool watching() const { return writing() || (options.level != RecordLevel::off && options.stop_on != StopOn::never); }
  bool repeats(uint32_t tensor) const { return streak >= kRepeats && streak_tensor == tensor; }

  uint64_t pending_rows(const SinkStatus& status) const {
    const uint64_t steps = steps_ended - std::min(steps_ended, status.committed_steps);
    return steps * rows_added / std::max<uint64_t>(steps_ended, 1);
  }

  EventRow event(EventKind kind) const {
    EventRow row;
    row.step = step;
    row.kind = kind;
    return row;
  }
  EventRow event(EventKind kind, const Finding& finding) const {
    EventRow row = event(kind);
    row.tensor = finding.tensor;
    row.count = finding.count;
    return row;
  }

  Findings write_rows(bool rows);
  void write_row(const Call& call, uint32_t sequence, uint32_t tensor, const OutputRecord& record);
  void write_events(const StepRow& row, const Findings& findings);
  void decide_stop(const StepRow& row, const Findings& findings);

  TraceSink& sink;
  const RecorderOptions options;
  OpTable ops;
  GraphTable graphs;
  RecordArena arena;
  LevelControl control;

  uint64_t step = 0;
  bool want_full = false, want_samples = false;  // in this step
  std::vector<Call> calls;
  bool found_nonfinite = false;  // by `after`, in this step
  uint32_t capture_tensor = 0;
  TensorRow tensor_row;  // kept: its histogram is large, and zero between calls of write_row
  uint32_t graph = 0;    // of the last step that had one
  uint64_t rows_added = 0, steps_ended = 0;

  uint32_t streak_tensor = 0;  // the first nonfinite output of the last step
  int64_t streak = 0;          // steps in a row with that one
  int warnings = 0, notes = 0;
  bool metric_added = false;  // since the last step ended
  bool failed = false;
  bool stop = false;
  std::string stop_reason;
};

Recorder::Recorder(TraceSink& sink, RecorderOptions options) : state_(std::make_unique<State>(sink, std::move(options))) {}
Recorder::~Recorder() = default;

void Recorder::begin_step(uint64_t step) {
  State& state = *state_;
  state.step = step;
  state.calls.clear();
  state.found_nonfinite = false;
  state.ops.begin_step();
  state.graphs.begin_step();
  state.arena.begin_step();
  const RecordLevel level = state.control.level();
  const auto every = static_cast<uint64_t>(std::max<int64_t>(state.options.every, 1));
  state.want_full = level >= RecordLevel::stats && step % every == 0 && !state.control.rows_stopped();
  state.want_samples = level >= RecordLevel::full && state.want_full;
}

std::span<OutputRecord* const> Recorder::before(const OpDescription& op) {
  State& state = *state_;
  if (!state.watching()) return {};
  const uint32_t index = state.ops.find_or_add(op);
  const OpEntry& entry = state.ops[index];
  state.graphs.add(op, entry.op);

  const size_t outputs = entry.any_float ? op.outputs.size() : 0;
  OutputRecord* const* records = outputs > 0 ? state.arena.take(outputs) : nullptr;
  state.calls.push_back({index, op.micro_batch, records, static_cast<uint32_t>(outputs), op.pass});
  const bool full = state.want_full && entry.rows_wanted;
  for (size_t slot = 0; slot < outputs; ++slot) {
    if (!is_float(op.outputs[slot].view.dtype)) continue;
    OutputRecord& record = *records[slot];
    record.wanted = full ? StatisticsLevel::full : StatisticsLevel::health;
    record.samples_wanted = full && state.want_samples ? kSamples : 0;
    record.scale = op.outputs[slot].scale;
  }
  return {records, outputs};
}

std::optional<int> Recorder::after() {
  State& state = *state_;
  if (state.found_nonfinite || state.calls.empty() || !state.writing()) return std::nullopt;
  const State::Call& call = state.calls.back();
  for (uint32_t slot = 0; slot < call.outputs; ++slot) {
    if (stored_nonfinite(*call.records[slot]) == 0) continue;
    state.found_nonfinite = true;
    state.capture_tensor = state.ops.tensor(state.ops[call.entry], slot).tensor;
    if (state.repeats(state.capture_tensor) || state.control.rows_stopped()) return std::nullopt;
    return static_cast<int>(slot);
  }
  return std::nullopt;
}

void Recorder::add_capture(int slot, const ElementCapture& capture, const OpCall& call) {
  State& state = *state_;
  if (!state.writing() || state.calls.empty() || slot < 0 || static_cast<uint32_t>(slot) >= state.calls.back().outputs) return;
  const auto shape_of = [](const TensorView& view) {
    return std::vector<int64_t>(view.shape.begin(), view.shape.begin() + view.rank);
  };
  CaptureRow row;
  row.step = state.step;
  row.tensor = state.ops.tensor(state.ops[state.calls.back().entry], static_cast<uint32_t>(slot)).tensor;
  CaptureRow element = row;
  element.element = capture.element;
  element.shape = shape_of(call.outputs[static_cast<size_t>(slot)]);
  element.value = capture.value;
  element.terms = capture.terms;
  element.broke_at = capture.broke_at;
  element.partial_sum = capture.partial_sum;
  element.attributes = attributes_text(call.attributes, AttributesOf::call);
  state.sink.add_capture(element);
  for (size_t i = 0; i < std::min(capture.operands.size(), kMaximumOperands); ++i) {
    const ElementCapture::Operand& operand = capture.operands[i];
    row.operand = operand.input;
    row.element = operand.element;
    row.shape = shape_of(call.inputs[static_cast<size_t>(operand.input)]);
    row.value = operand.value;
    row.overwritten = operand.overwritten;
    state.sink.add_capture(row);
  }
}

void Recorder::add_warning(std::string_view text) {
  State& state = *state_;
  if (!state.writing() || state.warnings > kMaximumWarnings) return;
  EventRow row = state.event(EventKind::warning);
  row.text = state.warnings++ < kMaximumWarnings ? std::string(text)
                                                 : fmt::format("more than {} warnings: no more are recorded", kMaximumWarnings);
  state.sink.add_event(row);
}

void Recorder::add_metric(std::string_view name, double value) {
  State& state = *state_;
  if (state.options.level == RecordLevel::off || state.failed) return;
  EventRow row = state.event(EventKind::metric);
  row.text = name;
  row.value = value;
  state.sink.add_event(row);
  state.metric_added = true;
}

void Recorder::State::write_row(const Call& call, uint32_t sequence, uint32_t tensor, const OutputRecord& record) {
  tensor_row.step = step;
  tensor_row.micro_batch = call.micro_batch;
  tensor_row.pass = call.pass;
  tensor_row.sequence = sequence;
  tensor_row.tensor = tensor;
  tensor_row.scale = record.scale;
  tensor_row.known = record.known;
  tensor_row.before_rounding = record.before_rounding;
  tensor_row.rounding_known = record.rounding_known;
  tensor_row.rounding = record.rounding_known ? record.rounding : RoundingCounts{};
  if (record.known == StatisticsLevel::full) {
    tensor_row.statistics = record.statistics;
    sink.add_row(tensor_row);
    tensor_row.statistics = TensorStatistics{};
  } else {
    if (record.known == StatisticsLevel::health) {
      tensor_row.statistics.count = record.statistics.count;
      tensor_row.statistics.nan = record.statistics.nan;
      tensor_row.statistics.positive_infinity = record.statistics.positive_infinity;
      tensor_row.statistics.negative_infinity = record.statistics.negative_infinity;
      tensor_row.statistics.zeros = record.statistics.zeros;
    } else {
      tensor_row.statistics.count = tensor_row.statistics.nan = tensor_row.statistics.positive_infinity =
          tensor_row.statistics.negative_infinity = 0;
      tensor_row.statistics.zeros = 0;
    }
    sink.add_row(tensor_row);
  }
  ++rows_added;
  for (int i = 0; i < record.samples; ++i) {
    const auto k = static_cast<size_t>(i);
    sink.add_sample({step, tensor, record.sample_elements[k], record.sample_values[k]});
  }
}

// Looks through the step's records in order of execution and, where `rows`, writes their rows.
Findings Recorder::State::write_rows(bool rows) {
  Findings findings;
  for (uint32_t sequence = 0; sequence < calls.size(); ++sequence) {
    const Call& call = calls[sequence];
    const OpEntry& entry = ops[call.entry];
    for (uint32_t slot = 0; slot < call.outputs; ++slot) {
      const OutputRecord& record = *call.records[slot];
      if (record.wanted == StatisticsLevel::none) continue;
      const TensorEntry& tensor = ops.tensor(entry, slot);
      const uint64_t nonfinite = stored_nonfinite(record);
      bool row_wanted = entry.rows_wanted;
      if (nonfinite > 0) {
        const uint64_t nan = record.statistics.nan;
        row_wanted |= findings.nonfinite.op == nullptr || !repeats(static_cast<uint32_t>(findings.nonfinite.tensor));
        findings.nonfinite.set_once(entry, slot, tensor.tensor, nonfinite);
        if (nan > 0) findings.nan.set_once(entry, slot, tensor.tensor, nan);
        if (nonfinite > nan) findings.infinite.set_once(entry, slot, tensor.tensor, nonfinite - nan);
        if (is_gradient(entry.phase, tensor.role)) findings.gradient.set_once(entry, slot, tensor.tensor, nonfinite);
      }
      if (!rows) continue;
      if (row_wanted) write_row(call, sequence, tensor.tensor, record);
      if (record.update_known) {
        uint32_t weight = tensor.tensor;
        for (uint32_t other = 0; other < call.outputs; ++other) {
          if (ops.tensor(entry, other).role == Role::master_weight) weight = ops.tensor(entry, other).tensor;
        }
        if (entry.rows_wanted)
          sink.add_update({step, weight, record.update.nonzero, record.update.lost, record.update.lost_to_decay});
      }
    }
  }
  return findings;
}

void Recorder::State::write_events(const StepRow& step_row, const Findings& findings) {
  if (step_row.scale_after < step_row.scale_before) {
    EventRow backoff = event(EventKind::scale_backoff, findings.gradient);
    backoff.value = step_row.scale_after;
    backoff.text = findings.gradient.op == nullptr ? "no gradient with nonfinite values was seen" : findings.gradient.text();
    sink.add_event(backoff);
  } else if (step_row.scale_after > step_row.scale_before) {
    EventRow growth = event(EventKind::scale_growth);
    growth.value = step_row.scale_after;
    sink.add_event(growth);
  } else if (step_row.skipped != 0 && notes <= kMaximumWarnings && (findings.gradient.op == nullptr || streak < kRepeats)) {
    // A static scale, one at its floor, or one whose hysteresis is not used up.
    EventRow skipped = event(EventKind::note, findings.gradient);
    skipped.text = notes++ < kMaximumWarnings
                       ? fmt::format("step skipped, scale kept: {}", findings.gradient.text())
                       : fmt::format("more than {} steps skipped with the scale kept: no more are noted", kMaximumWarnings);
    sink.add_event(skipped);
  }
  if (findings.nonfinite.op != nullptr) sink.add_event(event(EventKind::nonfinite, findings.nonfinite));
}

void Recorder::State::decide_stop(const StepRow& step_row, const Findings& findings) {
  if (stop) return;
  std::string reason;
  Finding finding;
  if (options.stop_on == StopOn::nan && findings.nan.op != nullptr) {
    finding = findings.nan;
    reason = fmt::format("NaN in {}", finding.text());
  } else if (options.stop_on == StopOn::overflow && findings.infinite.op != nullptr) {
    finding = findings.infinite;
    reason = fmt::format("Inf in {}", finding.text());
  } else if (options.stop_on == StopOn::backoff && step_row.scale_after < step_row.scale_before) {
    finding = findings.gradient;
    reason = fmt::format("loss scale {} backed off to {}", step_row.scale_before, step_row.scale_after);
    if (finding.op != nullptr) reason += fmt::format(": {}", finding.text());
  }
  if (reason.empty()) return;
  stop = true;
  stop_reason = reason;
  if (failed) return;
  EventRow stopped = event(EventKind::stopped, finding);
  stopped.text = fmt::format("training stopped: {}", reason);
  sink.add_event(stopped);
}

void Recorder::end_step(StepRow row) {
  State& state = *state_;
  if (state.options.level == RecordLevel::off) return;
  const bool watched = state.watching();
  const RecordLevel level = state.control.level();
  const bool was_writing = state.writing();
  if (was_writing) {
    const SinkStatus status = state.sink.status();
    state.failed = status.failed;
    std::vector<EventRow> events;
    if (!state.failed) state.control.update(status, state.pending_rows(status), events);
    for (EventRow& event : events) {
      event.step = state.step;
      state.sink.add_event(event);
    }
  }
  const bool had_stopped = state.stop;
  if (watched) {
    const bool rows = was_writing && !state.failed && !state.control.rows_stopped();
    const Findings findings = state.write_rows(rows);
    if (was_writing && !state.failed) state.write_events(row, findings);
    state.decide_stop(row, findings);
    const auto tensor = static_cast<uint32_t>(findings.nonfinite.tensor);
    if (findings.nonfinite.op == nullptr) {
      state.streak = 0;
    } else {
      state.streak = state.streak > 0 && state.streak_tensor == tensor ? state.streak + 1 : 1;
      state.streak_tensor = tensor;
    }
  }
  // The step in which the limit was reached is written still, and carries the message.
  if (!state.failed && (was_writing || state.metric_added || state.stop != had_stopped)) {
    if (watched) state.graph = state.graphs.end_step(state.sink, state.ops);
    row.step = state.step;
    row.graph = state.graph;
    row.level = static_cast<uint8_t>(level);
    state.sink.end_step(row);
    ++state.steps_ended;
    state.metric_added = false;
  }
}

bool Recorder::stop_requested() const { return state_->stop; }
const std::string& Recorder::stop_reason() const { return state_->stop_reason; }
SinkStatus Recorder::status() const { return state_->sink.status(); }

}  // namespace ulpscope
