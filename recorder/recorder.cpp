#include "ulpscope/recorder/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "ulpscope/base/text.h"
#include "ulpscope/recorder/capture_budget.h"
#include "ulpscope/recorder/identity.h"
#include "ulpscope/recorder/level_control.h"
#include "ulpscope/recorder/memory_watch.h"
#include "ulpscope/recorder/record_arena.h"
#include "ulpscope/recorder/running_sum.h"

namespace ulpscope {

namespace {

constexpr int kSamples = OutputRecord::kMaxSamples;
// After so many steps in a row whose first nonfinite output is the same, nothing new is to be learnt: such a step keeps its event
// and the row of that output, but no rows of outputs outside the filters.
constexpr int64_t kRepeats = 16;
constexpr int kMaximumWarnings = 1000;

// A gradient scaler skips the step for what these hold.
bool decides_skip(Phase phase, Role role) { return (phase == Phase::backward || phase == Phase::scaling) && is_gradient(role); }

// An output, in order of execution the first, of which something holds.
struct Finding {
  std::optional<uint32_t> entry;  // of its op
  uint32_t micro_batch = 0;
  uint8_t loss_index = 0;
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

// With 24 significant bits, so that columns of such values compress; to nearest even.
double with_24_bits(double value) {
  if (!std::isfinite(value)) return value;
  constexpr int kDropped = 53 - 24;
  constexpr uint64_t kHalf = uint64_t{1} << (kDropped - 1), kMask = (uint64_t{1} << kDropped) - 1;
  const auto bits = std::bit_cast<uint64_t>(value);
  return std::bit_cast<double>((bits + kHalf - 1 + (bits >> kDropped & 1)) & ~kMask);
}

ParameterRow parameter_row(uint64_t step, uint32_t tensor, const UpdateCounts& update) {
  ParameterRow row;
  row.step = step;
  row.tensor = tensor;
  row.learning_rate = update.learning_rate;
  row.weight_norm = with_24_bits(std::sqrt(update.weight_squares));
  row.update_norm = with_24_bits(std::sqrt(update.update_squares));
  row.gradient_dot_update = with_24_bits(update.gradient_dot_update);
  row.decay_known = update.decay_known;
  row.decay_asked = with_24_bits(update.decay_asked);
  row.decay_applied = with_24_bits(update.decay_applied);
  row.nonzero = update.nonzero;
  row.lost = update.lost;
  row.lost_to_decay = update.lost_to_decay;
  return row;
}

}  // namespace

const char* name_of(StopOn stop) {
  static constexpr const char* kNames[] = {"never", "nan", "overflow", "backoff"};
  return kNames[static_cast<size_t>(stop)];
}

struct Recorder::State {
  struct Call {
    uint32_t entry;
    uint32_t first_tensor;  // of its outputs, in the table of ops
    uint32_t micro_batch;
    OutputRecord* const* records;
    uint32_t outputs;
    uint8_t loss_index;
    bool inputs_told;
    bool full, samples;  // what was asked for; records that are shared may know more
    uint32_t first_input, inputs;
  };

  struct BatchOfPass {
    Phase phase;
    uint32_t micro_batch, source;
    size_t samples;
  };

  // A measure of an output of one of the pass's calls.
  struct Measure {
    uint32_t call, slot;
    std::string name;
    double value;
  };

  // Of a step what does not change from its beginning on, and what is known of it so far.
  struct Step {
    uint64_t number = 0;
    RecordLevel level = RecordLevel::off;
    bool written = false, watched = false;
    bool want_full = false, want_samples = false;
    StepGraph graph;
    std::vector<EventRow> events;  // that wait for the step before to be written
    bool metric_added = false;
    bool is_looked_at = false;  // for origins
    bool leaves_out_ops = false;
    std::optional<StepRow> row;   // once it has ended
    uint32_t first_sequence = 0;  // of the next pass to be written
    Findings findings;            // of the passes that were
    SumsOfStep sums;

    // Between steps of options.every, health.
    RecordLevel recorded_level() const {
      return leaves_out_ops ? RecordLevel::off : want_full ? level : std::min(level, RecordLevel::health);
    }
  };
  struct Pass {
    Step* step = nullptr;
    bool ends_step = false;
    std::vector<Call> calls;
    std::vector<ValueKey> inputs;  // of the calls, one after the other
    size_t looked_at = 0;          // of the calls, for origins
    // The batches share the memory of their samples.
    std::vector<BatchOfPass> batches;
    std::vector<int64_t> samples_of_batches;
    std::vector<Measure> measures;
    MemoryWatch::Pass sums;
    RecordArena arena;
    FingerprintArena fingerprints;

    void clear() {
      ends_step = false;
      calls.clear();
      inputs.clear();
      looked_at = 0;
      batches.clear();
      samples_of_batches.clear();
      measures.clear();
      arena.reset();
      fingerprints.reset();
    }
  };

  State(TraceSink& trace, RecorderOptions chosen)
      : options(std::move(chosen)),
        flight(flight_recorder(trace, options)),
        sink(flight ? *flight : trace),
        ops(sink, options),
        memory(sink),
        control(options, sink) {
    steps.push_back(std::make_unique<Step>());
    pass->step = &step();
  }

  // nullptr where no steps are held.
  static std::unique_ptr<FlightRecorder> flight_recorder(TraceSink& trace, const RecorderOptions& options) {
    if (options.keep_last <= 0) return nullptr;
    return std::make_unique<FlightRecorder>(
        trace, FlightRecorder::Options{static_cast<size_t>(options.keep_last), options.after, options.on, options.max_bytes});
  }

  bool writing() const { return options.level != RecordLevel::off && !failed && !control.steps_stopped(); }
  // Whether ops are asked for anything. A recorder that no longer writes still watches for what training should stop on.
  bool watching() const { return writing() || (options.level != RecordLevel::off && options.stop_on != StopOn::never); }
  bool repeats(uint32_t tensor) const { return streak >= kRepeats && streak_tensor == tensor; }

  static EventRow event(const Step& step, EventKind kind) {
    EventRow row;
    row.step = step.number;
    row.kind = kind;
    return row;
  }
  static EventRow event(const Step& step, EventKind kind, const Finding& finding) {
    EventRow row = event(step, kind);
    row.tensor = finding.tensor;
    row.micro_batch = finding.micro_batch;
    row.loss_index = finding.loss_index;
    row.count = finding.count;
    return row;
  }

  // In the order of steps.
  void add_event(const EventRow& row) {
    if (steps.size() == 1) {
      sink.add_event(row);
    } else {
      step().events.push_back(row);
    }
  }

  Step& step() const { return *steps.back(); }
  // Whether an input of the call held nonfinite values.
  bool reads_nonfinite(const Pass& in, const Call& call) const {
    const auto first = in.inputs.begin() + call.first_input;
    return std::any_of(first, first + call.inputs, [&](const ValueKey& input) { return ops.is_nonfinite(input); });
  }
  // Of each op at most one.
  std::optional<Origin> look_at(const Pass& in, const Call& call);
  void begin_pass();
  void write_ended();
  void end_pass(Pass& pass);
  void end_step(Step& step);
  void leave_first_step();
  void update_limits(Pass& pass);
  void write_batches(const Pass& pass);
  void write_measures(const Pass& pass);
  void write_rows(const Pass& pass, bool rows);
  void write_row(const Step& step, const Call& call, uint32_t sequence, uint32_t tensor, const OutputRecord& record);
  void write_events(const Step& step);
  void decide_stop(const Step& step);

  const RecorderOptions options;
  const std::unique_ptr<FlightRecorder> flight;
  TraceSink& sink;
  OpTable ops;
  GraphTable graphs;
  std::span<Fingerprint* const> last_fingerprints;  // of the recorder's own, of the last call
  MemoryWatch memory;
  LevelControl control;

  // Those that are not written, in their order; the last is the one that goes on, or was the last to end.
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<std::unique_ptr<Pass>> ended;
  std::unique_ptr<Pass> pass = std::make_unique<Pass>();  // that goes on
  std::vector<std::unique_ptr<Pass>> idle;                // whose memory is used again
  std::vector<Origin> origins;                            // that were found last
  CaptureBudget budget;
  TensorRow tensor_row;  // kept: its histogram is large, and zero between calls of write_row
  uint32_t graph = 0;    // of the last step that had one

  uint32_t streak_tensor = 0;  // the first nonfinite output of the last step
  int64_t streak = 0;          // steps in a row with that one
  int warnings = 0, notes = 0;
  bool failed = false;
  bool stop = false;
  std::string stop_reason;
};

Recorder::Recorder(TraceSink& sink, RecorderOptions options) : state_(std::make_unique<State>(sink, std::move(options))) {}
Recorder::~Recorder() = default;

void Recorder::State::begin_pass() {
  memory.forget(pass->sums);
  pass->clear();
  pass->step = &step();
  last_fingerprints = {};
}

void Recorder::begin_step(uint64_t number) {
  State& state = *state_;
  // One that is written, or was given up, makes room.
  const bool is_waited_for = state.step().row || !state.ended.empty();
  if (is_waited_for) state.steps.push_back(std::make_unique<State::Step>());
  State::Step& step = state.step();
  step.number = number;
  step.level = state.control.level();
  step.written = state.writing();
  step.watched = state.watching();
  step.graph.clear();
  step.metric_added = step.is_looked_at = step.leaves_out_ops = false;
  step.first_sequence = 0;
  step.findings = {};
  step.sums.clear();
  state.ops.begin_step(number);
  state.begin_pass();
  const auto every = static_cast<uint64_t>(std::max<int64_t>(state.options.every, 1));
  step.want_full = step.level >= RecordLevel::stats && number % every == 0 && !state.control.rows_stopped();
  step.want_samples = step.level >= RecordLevel::full && step.want_full;
}

void Recorder::leave_out_ops() {
  State::Step& step = state_->step();
  step.leaves_out_ops = true;
  step.watched = step.want_full = step.want_samples = false;
}

uint64_t Recorder::step() const { return state_->step().number; }

StatisticsLevel Recorder::wanted(std::string_view module, std::string_view name, Phase phase) const {
  const State::Step& step = state_->step();
  if (!step.watched) return StatisticsLevel::none;
  return step.want_full && state_->ops.wants_rows(module, name, phase) ? StatisticsLevel::values : StatisticsLevel::health;
}

bool Recorder::wants_samples() const { return state_->step().want_samples; }

bool Recorder::wants_bits(std::string_view module, std::string_view name, Phase phase) const {
  return state_->options.bits && state_->step().watched && state_->step().written && state_->ops.wants_rows(module, name, phase);
}

std::span<OutputRecord* const> Recorder::before(const OpDescription& op) {
  State& state = *state_;
  const auto has_rows = [&](const OutputDescription& output) { return is_float(output.view.dtype) || state.options.bits; };
  if (!state.step().watched || std::none_of(op.outputs.begin(), op.outputs.end(), has_rows)) {
    before(op, {});
    return {};
  }
  const std::span<OutputRecord* const> records = state.pass->arena.take(op.outputs.size());
  for (size_t slot = 0; slot < records.size(); ++slot) records[slot]->scale = op.outputs[slot].scale;
  const bool has_views = op.input_views.size() == op.inputs.size();
  before(op, records, has_views ? state.pass->fingerprints.take(op.inputs.size()) : std::span<Fingerprint* const>());
  return records;
}

void Recorder::before(const OpDescription& op, std::span<OutputRecord* const> records,
                      std::span<Fingerprint* const> input_fingerprints) {
  State& state = *state_;
  state.last_fingerprints = input_fingerprints;
  State::Step& step = state.step();
  State::Pass& pass = *state.pass;
  if (!step.watched) return;
  const uint32_t index = state.ops.find_or_add(op);
  const OpEntry& entry = state.ops[index];
  step.graph.add(op, entry.op);

  const bool full = step.want_full && entry.rows_wanted, samples = full && step.want_samples;
  const auto outputs = static_cast<uint32_t>(entry.any_float || state.options.bits ? records.size() : 0);
  pass.calls.push_back({index, entry.first_tensor, op.micro_batch, records.data(), outputs, op.loss_index, op.inputs_told, full,
                        samples, static_cast<uint32_t>(pass.inputs.size()), static_cast<uint32_t>(op.inputs.size())});
  pass.inputs.insert(pass.inputs.end(), op.inputs.begin(), op.inputs.end());
  for (size_t slot = 0; slot < outputs; ++slot) {
    records[slot]->bits.wanted |= state.options.bits && step.written && entry.rows_wanted;
    if (!is_float(op.outputs[slot].view.dtype)) continue;
    OutputRecord& record = *records[slot];
    record.wanted = std::max(record.wanted, full ? StatisticsLevel::values : StatisticsLevel::health);
    record.samples_wanted = std::max(record.samples_wanted, samples ? kSamples : 0);
  }
  if (step.written) state.memory.before(op, index, state.ops, step.number, records.first(outputs), input_fingerprints, pass.sums);
}

std::span<Fingerprint* const> Recorder::input_fingerprints() const { return state_->last_fingerprints; }

std::optional<Origin> Recorder::State::look_at(const Pass& in, const Call& call) {
  const OpEntry& entry = ops[call.entry];
  Step& of = *in.step;
  if (!std::exchange(of.is_looked_at, true)) budget.begin_step();
  const auto is_nonfinite = [&](uint32_t slot) {
    return stored_nonfinite(*call.records[slot], ops.tensor(call.first_tensor, slot).dtype) > 0;
  };
  std::optional<Origin> origin;
  for (uint32_t i = 0; i < call.outputs && !origin; ++i) {
    const uint32_t tensor = ops.tensor(call.first_tensor, i).tensor;
    if (is_nonfinite(i) && call.inputs_told && !reads_nonfinite(in, call) && budget.take(tensor, *call.records[i]))
      origin = Origin{of.number, entry.id, static_cast<int>(i), tensor, call.micro_batch, call.loss_index, entry.phase};
  }
  for (uint32_t i = 0; i < call.outputs; ++i) ops.set_nonfinite(call.entry, i, is_nonfinite(i));
  return of.written && !control.rows_stopped() ? origin : std::nullopt;
}

std::span<const Origin> Recorder::find_origins() {
  State& state = *state_;
  state.origins.clear();
  const auto look_through = [&](State::Pass& pass) {
    for (; pass.looked_at < pass.calls.size(); ++pass.looked_at)
      if (const auto origin = state.look_at(pass, pass.calls[pass.looked_at])) state.origins.push_back(*origin);
  };
  for (const auto& pass : state.ended) look_through(*pass);
  look_through(*state.pass);
  return state.origins;
}

std::optional<int> Recorder::after() {
  const State& state = *state_;
  const std::span<const Origin> found = find_origins();
  if (found.empty() || found.back().op != state.ops[state.pass->calls.back().entry].id) return std::nullopt;
  return found.back().slot;
}

void Recorder::add_capture(int slot, std::span<const CaptureNode> nodes) {
  State& state = *state_;
  const std::vector<State::Call>& calls = state.pass->calls;
  if (!state.step().written || calls.empty() || slot < 0 || static_cast<uint32_t>(slot) >= calls.back().outputs) return;
  const State::Call& last = calls.back();
  const OpEntry& entry = state.ops[last.entry];
  add_capture({state.step().number, entry.id, slot, state.ops.tensor(last.first_tensor, static_cast<uint32_t>(slot)).tensor,
               last.micro_batch, last.loss_index, entry.phase},
              nodes);
}

void Recorder::add_capture(const Origin& origin, std::span<const CaptureNode> nodes) {
  State& state = *state_;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const CaptureNode& node = nodes[i];
    CaptureRow row;
    row.step = origin.step;
    row.micro_batch = origin.micro_batch;
    row.loss_index = origin.loss_index;
    row.tensor = origin.tensor;
    row.node = static_cast<uint32_t>(i);
    row.parent = node.parent;
    row.operand = node.operand;
    row.term = node.term;
    if (const TensorEntry* made_by = state.ops.find_tensor(node.made_by)) row.made_by = made_by->tensor;
    row.element = node.element;
    row.shape.assign(node.view.shape.begin(), node.view.shape.begin() + node.view.rank);
    row.value = node.value;
    row.overwritten = node.overwritten;
    row.follow = node.follow;
    row.terms = node.terms;
    row.broke_at = node.broke_at;
    row.partial_sum = node.partial_sum;
    row.attributes = node.attributes != nullptr ? attributes_text(node.attributes, AttributesOf::call) : node.attributes_text;
    if (node.row) {
      const RowFacts& facts = *node.row;
      row.row = {facts.first, facts.count,          facts.run,      facts.step, facts.largest, facts.smallest,
                 facts.sum,   facts.sum_of_squares, facts.nonfinite};
    }
    state.sink.add_capture(row);
  }
}

void Recorder::add_measure(const ValueKey& output, std::string_view name, double value) {
  State& state = *state_;
  State::Pass& pass = *state.pass;
  if (!state.step().written || pass.calls.empty()) return;
  const State::Call& call = pass.calls.back();
  const OpEntry& entry = state.ops[call.entry];
  if (entry.id != output.op || output.slot >= call.outputs || !entry.rows_wanted) return;
  pass.measures.push_back({static_cast<uint32_t>(pass.calls.size() - 1), output.slot, std::string(name), value});
}

void Recorder::add_sum(int slot, const SumCounts& counts) {
  State& state = *state_;
  if (!state.step().written || state.pass->calls.empty()) return;
  const State::Call& call = state.pass->calls.back();
  if (slot < 0 || static_cast<uint32_t>(slot) >= call.outputs || !state.ops[call.entry].rows_wanted) return;
  state.step().sums.add(state.ops.tensor(call.first_tensor, static_cast<uint32_t>(slot)).tensor, counts);
}

void Recorder::add_setting(const SettingInfo& setting) {
  if (state_->options.level != RecordLevel::off) state_->sink.add_setting(setting);
}
void Recorder::add_source(const SourceInfo& source) {
  if (state_->options.level != RecordLevel::off) state_->sink.add_source(source);
}

void Recorder::add_product(const ProductInfo& product) {
  if (state_->options.level != RecordLevel::off) state_->sink.add_product(product);
}

void Recorder::add_batch(Phase phase, uint32_t micro_batch, uint32_t source, std::span<const int64_t> samples) {
  State& state = *state_;
  const std::vector<Phase>& phases = state.options.phases;
  const bool wanted =
      phase != Phase::evaluation || phases.empty() || std::find(phases.begin(), phases.end(), phase) != phases.end();
  if (!state.step().written || state.step().leaves_out_ops || !wanted) return;
  State::Pass& pass = *state.pass;
  pass.batches.push_back({phase, micro_batch, source, samples.size()});
  pass.samples_of_batches.insert(pass.samples_of_batches.end(), samples.begin(), samples.end());
}

void Recorder::add_warning(std::string_view text) {
  State& state = *state_;
  if (!state.writing() || state.warnings > kMaximumWarnings) return;
  EventRow row = State::event(state.step(), EventKind::warning);
  row.text = state.warnings++ < kMaximumWarnings ? std::string(text)
                                                 : fmt::format("more than {} warnings: no more are recorded", kMaximumWarnings);
  state.add_event(row);
}

void Recorder::add_note(std::string_view text) {
  if (!state_->writing()) return;
  EventRow row = State::event(state_->step(), EventKind::note);
  row.text = text;
  state_->add_event(row);
}

void Recorder::add_metric(std::string_view name, MetricKind kind, double value) {
  State& state = *state_;
  if (state.options.level == RecordLevel::off || state.failed || !state.control.has_room_for_metric()) return;
  EventRow row = State::event(state.step(), EventKind::metric);
  row.text = name;
  row.metric = kind;
  row.value = value;
  state.add_event(row);
  state.step().metric_added = true;
}

void Recorder::State::write_row(const Step& of, const Call& call, uint32_t sequence, uint32_t tensor, const OutputRecord& record) {
  tensor_row.step = of.number;
  tensor_row.micro_batch = call.micro_batch;
  tensor_row.loss_index = call.loss_index;
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
  if (known == StatisticsLevel::values) {
    tensor_row.statistics = record.statistics;
    sink.add_row(tensor_row);
    tensor_row.statistics = TensorStatistics{};
  } else {
    tensor_row.statistics.health() = known == StatisticsLevel::health ? record.statistics.health() : HealthCounts{};
    sink.add_row(tensor_row);
  }
  for (int i = 0; i < (call.samples ? record.samples : 0); ++i) {
    const auto k = static_cast<size_t>(i);
    sink.add_sample({of.number, call.micro_batch, call.loss_index, tensor, record.sample_elements[k], record.sample_values[k]});
  }
}

void Recorder::State::write_batches(const Pass& in) {
  BatchRow row;
  row.step = in.step->number;
  auto sample = in.samples_of_batches.begin();
  for (const BatchOfPass& batch : in.batches) {
    row.phase = batch.phase;
    row.micro_batch = batch.micro_batch;
    row.source = batch.source;
    for (size_t i = 0; i < batch.samples; ++i) {
      row.sample = static_cast<uint64_t>(*sample++);
      sink.add_batch(row);
    }
  }
}

void Recorder::State::write_measures(const Pass& in) {
  for (const Measure& measure : in.measures) {
    const Call& call = in.calls[measure.call];
    sink.add_measure({in.step->number, call.micro_batch, call.loss_index, ops.tensor(call.first_tensor, measure.slot).tensor,
                      measure.name, measure.value});
  }
}

// Looks through the pass's records in order of execution and, where `rows`, writes their rows.
void Recorder::State::write_rows(const Pass& in, bool rows) {
  Step& of = *in.step;
  Findings& findings = of.findings;
  for (uint32_t i = 0; i < in.calls.size(); ++i) {
    const Call& call = in.calls[i];
    const OpEntry& entry = ops[call.entry];
    for (uint32_t slot = 0; slot < call.outputs; ++slot) {
      const TensorEntry& tensor = ops.tensor(call.first_tensor, slot);
      const OutputRecord& record = *call.records[slot];
      if (rows && options.bits && entry.rows_wanted && record.bits.known)
        sink.add_bits({of.number, call.micro_batch, call.loss_index, tensor.tensor, record.bits.value});
      if (!tensor.is_float()) continue;
      const uint64_t nonfinite = stored_nonfinite(record, tensor.dtype);
      bool row_wanted = entry.rows_wanted;
      if (nonfinite > 0) {
        const uint64_t nan = record.statistics.nan;
        row_wanted |= !findings.nonfinite || !repeats(static_cast<uint32_t>(findings.nonfinite.tensor));
        const auto found = [&](uint64_t count) {
          return Finding{call.entry, call.micro_batch, call.loss_index, slot, tensor.tensor, count};
        };
        findings.nonfinite.set_once(found(nonfinite));
        if (nan > 0) findings.nan.set_once(found(nan));
        if (nonfinite > nan) findings.infinite.set_once(found(nonfinite - nan));
        if (decides_skip(entry.phase, tensor.role)) findings.gradient.set_once(found(nonfinite));
      }
      if (!rows) continue;
      if (row_wanted) write_row(of, call, of.first_sequence + i, tensor.tensor, record);
      if (record.update_known) {
        uint32_t weight = tensor.tensor;
        for (uint32_t other = 0; other < call.outputs; ++other) {
          const Role role = ops.tensor(call.first_tensor, other).role;
          if (role == Role::master_weight || role == Role::weight) weight = ops.tensor(call.first_tensor, other).tensor;
        }
        if (entry.rows_wanted) sink.add_parameter(parameter_row(of.number, weight, record.update));
      }
    }
  }
}

// Asks the sink how it stands, and lowers the level of rows that do not fit. The step in which the limit was reached carries the
// message.
void Recorder::State::update_limits(Pass& in) {
  if (!in.step->written || failed) return;
  const SinkStatus status = sink.status();
  failed = status.failed;
  if (failed) return;
  MoreRows rows;
  rows.batches = in.samples_of_batches.size();
  rows.fingerprints = in.sums.rows();
  rows.measures = in.measures.size();
  rows.sums = in.step->sums.size();
  for (const Call& call : in.calls) {
    if (!ops[call.entry].rows_wanted) continue;
    rows.tensors += call.outputs;
    if (options.bits) rows.bits += call.outputs;
    if (call.full) rows.histograms += call.outputs;
    if (call.samples) rows.samples += call.outputs * uint64_t{kSamples};
    for (uint32_t slot = 0; slot < call.outputs; ++slot) rows.parameters += call.records[slot]->update_known;
  }
  std::vector<EventRow> events;
  control.update(status, rows, in.step->number, events);
  for (const EventRow& event : events) sink.add_event(event);
  if (!control.lowers_rows()) return;
  in.step->want_full = in.step->want_samples = false;
  for (Call& call : in.calls) call.full = call.samples = false;
}

void Recorder::State::end_pass(Pass& in) {
  update_limits(in);
  const Step& of = *in.step;
  const bool rows = of.written && !failed && !control.rows_stopped();
  if (rows) write_batches(in);
  if (of.watched) write_rows(in, rows);
  if (of.written && !failed) {
    memory.end_pass(in.sums, ops, of.number, rows);
  } else {
    memory.forget(in.sums);
  }
  if (rows) write_measures(in);
  in.step->first_sequence += static_cast<uint32_t>(in.calls.size());
}

void Recorder::State::write_ended() {
  for (std::unique_ptr<Pass>& in : ended) {
    while (steps.front().get() != in->step) leave_first_step();  // which was given up
    end_pass(*in);
    if (in->ends_step) end_step(*in->step);
    in->clear();
    idle.push_back(std::move(in));
  }
  ended.clear();
}

void Recorder::end_pass(bool known) {
  State& state = *state_;
  state.ended.push_back(std::move(state.pass));
  if (known) state.write_ended();
  if (state.idle.empty()) state.idle.push_back(std::make_unique<State::Pass>());
  state.pass = std::move(state.idle.back());
  state.idle.pop_back();
  state.begin_pass();
}

void Recorder::write_ended() { state_->write_ended(); }

void Recorder::trigger(std::string_view why) {
  if (state_->flight) state_->flight->trigger(why);
}

void Recorder::finish() {
  if (state_->flight) state_->flight->finish();
}

size_t Recorder::waiting_ops() const {
  size_t ops = 0;
  for (const auto& pass : state_->ended) ops += pass->calls.size();
  return ops;
}

void Recorder::State::write_events(const Step& of) {
  const StepRow& step_row = *of.row;
  const Findings& findings = of.findings;
  if (step_row.scale_after < step_row.scale_before) {
    EventRow backoff = event(of, EventKind::scale_backoff, findings.gradient);
    backoff.value = step_row.scale_after;
    backoff.text = findings.gradient   ? findings.gradient.text(ops)
                   : of.leaves_out_ops ? "the gradients of this step were not recorded"
                                       : "no gradient with nonfinite values was seen";
    sink.add_event(backoff);
  } else if (step_row.scale_after > step_row.scale_before) {
    EventRow growth = event(of, EventKind::scale_growth);
    growth.value = step_row.scale_after;
    sink.add_event(growth);
  } else if (step_row.skipped && notes <= kMaximumWarnings && (!findings.gradient || streak < kRepeats)) {
    // A static scale, one at its floor, or one whose hysteresis is not used up.
    EventRow skipped = event(of, EventKind::note, findings.gradient);
    skipped.text =
        notes++ < kMaximumWarnings
            ? fmt::format("step skipped, scale kept: {}",
                          of.leaves_out_ops ? "the gradients of this step were not recorded" : findings.gradient.text(ops))
            : fmt::format("more than {} steps skipped with the scale kept: no more are noted", kMaximumWarnings);
    sink.add_event(skipped);
  }
  if (findings.nonfinite) sink.add_event(event(of, EventKind::nonfinite, findings.nonfinite));
}

void Recorder::State::decide_stop(const Step& of) {
  if (stop) return;
  const StepRow& step_row = *of.row;
  const Findings& findings = of.findings;
  std::string reason;
  Finding finding;
  if (options.stop_on == StopOn::nan && findings.nan) {
    finding = findings.nan;
    reason = fmt::format("NaN in {}", finding.text(ops));
  } else if (options.stop_on == StopOn::overflow && findings.infinite) {
    finding = findings.infinite;
    reason = fmt::format("Inf in {}", finding.text(ops));
  } else if (of.leaves_out_ops && step_row.loss_known &&
             (options.stop_on == StopOn::nan ? std::isnan(step_row.loss)
                                             : options.stop_on == StopOn::overflow && std::isinf(step_row.loss))) {
    reason = fmt::format("the loss is {}", step_row.loss);
  } else if (options.stop_on == StopOn::backoff && step_row.scale_after < step_row.scale_before) {
    finding = findings.gradient;
    reason = fmt::format("loss scale {} backed off to {}", step_row.scale_before, step_row.scale_after);
    if (finding) reason += fmt::format(": {}", finding.text(ops));
  }
  if (reason.empty()) return;
  stop = true;
  stop_reason = reason;
  if (failed) return;
  EventRow stopped = event(of, options.ends_training ? EventKind::stopped : EventKind::note, finding);
  stopped.text = options.ends_training ? fmt::format("training stopped: {}", reason)
                                       : fmt::format("stop_on={} at step {}: {}", name_of(options.stop_on), of.number, reason);
  sink.add_event(stopped);
  if (flight) flight->trigger(reason);
}

void Recorder::State::end_step(Step& of) {
  const bool had_stopped = stop;
  if (of.leaves_out_ops) {
    if (of.written && !failed) write_events(of);
    decide_stop(of);
  } else if (of.watched) {
    if (of.written && !failed) write_events(of);
    decide_stop(of);
    const Finding& nonfinite = of.findings.nonfinite;
    const auto tensor = static_cast<uint32_t>(nonfinite.tensor);
    if (!nonfinite) {
      streak = 0;
    } else {
      streak = streak > 0 && streak_tensor == tensor ? streak + 1 : 1;
      streak_tensor = tensor;
    }
  }
  // The step in which the limit was reached is written still.
  if (!failed && (of.written || of.metric_added || stop != had_stopped)) {
    if (of.watched) graph = graphs.number_of(of.graph, sink, ops);
    if (of.written && !control.rows_stopped()) of.sums.write(of.number, sink);
    StepRow& row = *of.row;
    row.step = of.number;
    row.graph = graph;
    row.level = of.recorded_level();
    sink.end_step(row);
  }
  of.row.reset();
  if (steps.size() > 1) leave_first_step();
}

void Recorder::State::leave_first_step() {
  steps.erase(steps.begin());
  for (const EventRow& event : steps.front()->events) sink.add_event(event);
  steps.front()->events.clear();
}

void Recorder::end_step(const StepRow& row, bool known) {
  State& state = *state_;
  if (state.options.level == RecordLevel::off) return;
  state.step().row = row;
  state.pass->ends_step = true;
  end_pass(known);
}

bool Recorder::stop_requested() const { return state_->stop; }
const std::string& Recorder::stop_reason() const { return state_->stop_reason; }
std::string Recorder::limits_met() const { return state_->control.limits_met(); }
SinkStatus Recorder::status() const { return state_->sink.status(); }

}  // namespace ulpscope
