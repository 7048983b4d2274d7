#include "ulpscope/recorder/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ulpscope/base/text.h"
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

// A gradient scaler skips the step for what these hold.
bool decides_skip(Phase phase, Role role) { return (phase == Phase::backward || phase == Phase::scaling) && is_gradient(role); }

// An output, in order of execution the first, of which something holds.
struct Finding {
  std::optional<uint32_t> entry;  // of its op
  uint32_t micro_batch = 0;
  uint8_t pass = 0;
  uint32_t slot = 0;
  int64_t tensor = -1;
  uint64_t count = 0;

  explicit operator bool() const { return entry.has_value(); }
  void set_once(const Finding& other) {
    if (!entry) *this = other;
  }
  std::string text(const OpTable& ops) const {
    if (!entry) return "unknown op";
    return fmt::format("output {} of {} ({}), {}", slot, ops[*entry].label, name_of(ops[*entry].phase), count_of(count, "value"));
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
    bool full, samples;  // what was asked for; records that are shared may know more
  };

  State(TraceSink& trace, RecorderOptions chosen)
      : sink(trace), options(std::move(chosen)), ops(trace, options), control(options, trace) {}

  bool writing() const { return options.level != RecordLevel::off && !failed && !control.steps_stopped(); }
  // Whether ops are asked for anything. A recorder that no longer writes still watches for what training should stop on.
  bool watching() const { return writing() || (options.level != RecordLevel::off && options.stop_on != StopOn::never); }
  bool repeats(uint32_t tensor) const { return streak >= kRepeats && streak_tensor == tensor; }

  // In this step: between those of options.every, health.
  RecordLevel recorded_level() const { return want_full ? level : std::min(level, RecordLevel::health); }

  EventRow event(EventKind kind) const {
    EventRow row;
    row.step = step;
    row.kind = kind;
    return row;
  }
  EventRow event(EventKind kind, const Finding& finding) const {
    EventRow row = event(kind);
    row.tensor = finding.tensor;
    row.micro_batch = finding.micro_batch;
    row.pass = finding.pass;
    row.count = finding.count;
    return row;
  }

  void begin_pass();
  void end_pass();
  void update_limits();
  void write_rows(bool rows);
  void write_row(const Call& call, uint32_t sequence, uint32_t tensor, const OutputRecord& record);
  void write_events(const StepRow& row);
  void decide_stop(const StepRow& row);

  TraceSink& sink;
  const RecorderOptions options;
  OpTable ops;
  GraphTable graphs;
  RecordArena arena;
  LevelControl control;

  // Of this step, as it began.
  uint64_t step = 0;
  RecordLevel level = RecordLevel::off;
  bool written = false, watched = false;
  bool want_full = false, want_samples = false;

  std::vector<Call> calls;       // of this pass
  uint32_t first_sequence = 0;   // of them
  Findings findings;             // of the passes that ended, in this step
  bool found_nonfinite = false;  // by `after`, in this step
  uint32_t capture_tensor = 0;
  TensorRow tensor_row;  // kept: its histogram is large, and zero between calls of write_row
  uint32_t graph = 0;    // of the last step that had one

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

void Recorder::State::begin_pass() {
  calls.clear();
  arena.reset();
}

void Recorder::begin_step(uint64_t step) {
  State& state = *state_;
  state.step = step;
  state.level = state.control.level();
  state.written = state.writing();
  state.watched = state.watching();
  state.first_sequence = 0;
  state.findings = {};
  state.found_nonfinite = false;
  state.ops.begin_step();
  state.graphs.begin_step();
  state.begin_pass();
  const auto every = static_cast<uint64_t>(std::max<int64_t>(state.options.every, 1));
  state.want_full = state.level >= RecordLevel::stats && step % every == 0 && !state.control.rows_stopped();
  state.want_samples = state.level >= RecordLevel::full && state.want_full;
}

std::span<OutputRecord* const> Recorder::before(const OpDescription& op) {
  State& state = *state_;
  const bool any_float = std::any_of(op.outputs.begin(), op.outputs.end(),
                                     [](const OutputDescription& output) { return is_float(output.view.dtype); });
  if (!state.watched || !any_float) {
    before(op, {});
    return {};
  }
  const std::span<OutputRecord* const> records = state.arena.take(op.outputs.size());
  for (size_t slot = 0; slot < records.size(); ++slot) records[slot]->scale = op.outputs[slot].scale;
  before(op, records);
  return records;
}

void Recorder::before(const OpDescription& op, std::span<OutputRecord* const> records) {
  State& state = *state_;
  if (!state.watched) return;
  const uint32_t index = state.ops.find_or_add(op);
  const OpEntry& entry = state.ops[index];
  state.graphs.add(op, entry.op);

  const bool full = state.want_full && entry.rows_wanted, samples = full && state.want_samples;
  const auto outputs = static_cast<uint32_t>(entry.any_float ? records.size() : 0);
  state.calls.push_back({index, op.micro_batch, records.data(), outputs, op.pass, full, samples});
  for (size_t slot = 0; slot < outputs; ++slot) {
    if (!is_float(op.outputs[slot].view.dtype)) continue;
    OutputRecord& record = *records[slot];
    record.wanted = std::max(record.wanted, full ? StatisticsLevel::full : StatisticsLevel::health);
    record.samples_wanted = std::max(record.samples_wanted, samples ? kSamples : 0);
  }
}

std::optional<int> Recorder::after() {
  State& state = *state_;
  if (state.found_nonfinite || state.calls.empty() || !state.written) return std::nullopt;
  const State::Call& call = state.calls.back();
  for (uint32_t slot = 0; slot < call.outputs; ++slot) {
    if (stored_nonfinite(*call.records[slot], state.ops.tensor(state.ops[call.entry], slot).dtype) == 0) continue;
    state.found_nonfinite = true;
    state.capture_tensor = state.ops.tensor(state.ops[call.entry], slot).tensor;
    if (state.repeats(state.capture_tensor) || state.control.rows_stopped()) return std::nullopt;
    return static_cast<int>(slot);
  }
  return std::nullopt;
}

void Recorder::add_capture(int slot, const ElementCapture& capture, const OpCall& call) {
  State& state = *state_;
  if (!state.written || state.calls.empty() || slot < 0 || static_cast<uint32_t>(slot) >= state.calls.back().outputs) return;
  const auto shape_of = [](const TensorView& view) {
    return std::vector<int64_t>(view.shape.begin(), view.shape.begin() + view.rank);
  };
  const State::Call& last = state.calls.back();
  CaptureRow row;
  row.step = state.step;
  row.micro_batch = last.micro_batch;
  row.pass = last.pass;
  row.tensor = state.ops.tensor(state.ops[last.entry], static_cast<uint32_t>(slot)).tensor;
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
  for (const RowFacts& facts : capture.rows) {
    const std::pair<const char*, double> measures[] = {{"first", static_cast<double>(facts.first)},
                                                       {"count", static_cast<double>(facts.count)},
                                                       {"run", static_cast<double>(facts.run)},
                                                       {"step", static_cast<double>(facts.step)},
                                                       {"largest", facts.largest},
                                                       {"smallest", facts.smallest},
                                                       {"sum", facts.sum},
                                                       {"sum_of_squares", facts.sum_of_squares},
                                                       {"nonfinite", static_cast<double>(facts.nonfinite)}};
    for (const auto& [name, value] : measures)
      state.sink.add_measure({state.step, last.micro_batch, last.pass, row.tensor,
                              fmt::format("captured row of input {}: {}", facts.input, name), value});
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
  if (state.options.level == RecordLevel::off || state.failed || !state.control.has_room_for_metric()) return;
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
  tensor_row.quantization_scale = record.quantization_scale;
  const StatisticsLevel known = call.full ? record.known : std::min(record.known, StatisticsLevel::health);
  tensor_row.known = known;
  tensor_row.before_rounding = record.before_rounding;
  tensor_row.rounding_known = record.rounding_known;
  tensor_row.rounding = record.rounding_known ? record.rounding : RoundingCounts{};
  tensor_row.input = record.input;
  if (known == StatisticsLevel::full) {
    tensor_row.statistics = record.statistics;
    sink.add_row(tensor_row);
    tensor_row.statistics = TensorStatistics{};
  } else {
    tensor_row.statistics.health() = known == StatisticsLevel::health ? record.statistics.health() : HealthCounts{};
    sink.add_row(tensor_row);
  }
  for (int i = 0; i < (call.samples ? record.samples : 0); ++i) {
    const auto k = static_cast<size_t>(i);
    sink.add_sample({step, call.micro_batch, call.pass, tensor, record.sample_elements[k], record.sample_values[k]});
  }
}

// Looks through the pass's records in order of execution and, where `rows`, writes their rows.
void Recorder::State::write_rows(bool rows) {
  for (uint32_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i];
    const OpEntry& entry = ops[call.entry];
    for (uint32_t slot = 0; slot < call.outputs; ++slot) {
      const TensorEntry& tensor = ops.tensor(entry, slot);
      if (!tensor.is_float) continue;
      const OutputRecord& record = *call.records[slot];
      const uint64_t nonfinite = stored_nonfinite(record, tensor.dtype);
      bool row_wanted = entry.rows_wanted;
      if (nonfinite > 0) {
        const uint64_t nan = record.statistics.nan;
        row_wanted |= !findings.nonfinite || !repeats(static_cast<uint32_t>(findings.nonfinite.tensor));
        const auto found = [&](uint64_t count) {
          return Finding{call.entry, call.micro_batch, call.pass, slot, tensor.tensor, count};
        };
        findings.nonfinite.set_once(found(nonfinite));
        if (nan > 0) findings.nan.set_once(found(nan));
        if (nonfinite > nan) findings.infinite.set_once(found(nonfinite - nan));
        if (decides_skip(entry.phase, tensor.role)) findings.gradient.set_once(found(nonfinite));
      }
      if (!rows) continue;
      if (row_wanted) write_row(call, first_sequence + i, tensor.tensor, record);
      if (record.update_known) {
        uint32_t weight = tensor.tensor;
        for (uint32_t other = 0; other < call.outputs; ++other) {
          const Role role = ops.tensor(entry, other).role;
          if (role == Role::master_weight || role == Role::weight) weight = ops.tensor(entry, other).tensor;
        }
        if (entry.rows_wanted)
          sink.add_update({step, weight, record.update.nonzero, record.update.lost, record.update.lost_to_decay});
      }
    }
  }
}

// Asks the sink how it stands. The step in which the limit was reached carries the message.
void Recorder::State::update_limits() {
  if (!written || failed) return;
  const SinkStatus status = sink.status();
  failed = status.failed;
  if (failed) return;
  uint64_t rows = 0, samples = 0;
  for (const Call& call : calls) {
    if (!ops[call.entry].rows_wanted) continue;
    rows += call.outputs;
    if (call.samples) samples += call.outputs * uint64_t{kSamples};
  }
  std::vector<EventRow> events;
  control.update(status, rows, samples, step, events);
  for (const EventRow& event : events) sink.add_event(event);
}

void Recorder::State::end_pass() {
  update_limits();
  if (watched) write_rows(written && !failed && !control.rows_stopped());
  first_sequence += static_cast<uint32_t>(calls.size());
  begin_pass();
}

void Recorder::end_pass() { state_->end_pass(); }

void Recorder::State::write_events(const StepRow& step_row) {
  if (step_row.scale_after < step_row.scale_before) {
    EventRow backoff = event(EventKind::scale_backoff, findings.gradient);
    backoff.value = step_row.scale_after;
    backoff.text = findings.gradient ? findings.gradient.text(ops) : "no gradient with nonfinite values was seen";
    sink.add_event(backoff);
  } else if (step_row.scale_after > step_row.scale_before) {
    EventRow growth = event(EventKind::scale_growth);
    growth.value = step_row.scale_after;
    sink.add_event(growth);
  } else if (step_row.skipped && notes <= kMaximumWarnings && (!findings.gradient || streak < kRepeats)) {
    // A static scale, one at its floor, or one whose hysteresis is not used up.
    EventRow skipped = event(EventKind::note, findings.gradient);
    skipped.text = notes++ < kMaximumWarnings
                       ? fmt::format("step skipped, scale kept: {}", findings.gradient.text(ops))
                       : fmt::format("more than {} steps skipped with the scale kept: no more are noted", kMaximumWarnings);
    sink.add_event(skipped);
  }
  if (findings.nonfinite) sink.add_event(event(EventKind::nonfinite, findings.nonfinite));
}

void Recorder::State::decide_stop(const StepRow& step_row) {
  if (stop) return;
  std::string reason;
  Finding finding;
  if (options.stop_on == StopOn::nan && findings.nan) {
    finding = findings.nan;
    reason = fmt::format("NaN in {}", finding.text(ops));
  } else if (options.stop_on == StopOn::overflow && findings.infinite) {
    finding = findings.infinite;
    reason = fmt::format("Inf in {}", finding.text(ops));
  } else if (options.stop_on == StopOn::backoff && step_row.scale_after < step_row.scale_before) {
    finding = findings.gradient;
    reason = fmt::format("loss scale {} backed off to {}", step_row.scale_before, step_row.scale_after);
    if (finding) reason += fmt::format(": {}", finding.text(ops));
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
  state.end_pass();
  const bool had_stopped = state.stop;
  if (state.watched) {
    if (state.written && !state.failed) state.write_events(row);
    state.decide_stop(row);
    const Finding& nonfinite = state.findings.nonfinite;
    const auto tensor = static_cast<uint32_t>(nonfinite.tensor);
    if (!nonfinite) {
      state.streak = 0;
    } else {
      state.streak = state.streak > 0 && state.streak_tensor == tensor ? state.streak + 1 : 1;
      state.streak_tensor = tensor;
    }
  }
  // The step in which the limit was reached is written still.
  if (!state.failed && (state.written || state.metric_added || state.stop != had_stopped)) {
    if (state.watched) state.graph = state.graphs.end_step(state.sink, state.ops);
    row.step = state.step;
    row.graph = state.graph;
    row.level = state.recorded_level();
    state.sink.end_step(row);
    state.metric_added = false;
  }
}

bool Recorder::stop_requested() const { return state_->stop; }
const std::string& Recorder::stop_reason() const { return state_->stop_reason; }
std::string Recorder::limits_met() const { return state_->control.limits_met(); }
SinkStatus Recorder::status() const { return state_->sink.status(); }

}  // namespace ulpscope
