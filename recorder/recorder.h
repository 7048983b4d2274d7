// Turns op calls, described plainly, into the rows of a trace. Knows no engine: any program that can describe its ops records.
//
//   recorder.begin_step(step);
//   for each op:  records = recorder.before(description);  compute, filling in the records and the fingerprints of inputs;
//                 recorder.after();
//   recorder.end_step(row);
//
// A step of many passes (the batches of an evaluation) ends each with end_pass, and so needs memory for the records of one.
//
// Records are filled in when their pass ends, or later: passes that end while a device is behind keep theirs until write_ended(),
// and a step may begin before the rows of the one before are written. So a device is waited for once a step.
//
// Captures go to origins: outputs with nonfinite values while all inputs of their op were finite. Steps in which everything is NaN
// cost no more than others: a step has at most one nonfinite event and eight captures, of which four may be of outputs that were
// captured before; an output with the same kinds of nonfinite values (NaN, +Inf, -Inf) is captured the first 16 times, and then
// each time that the number of times has doubled; and a run has at most 1,000 warnings. Where the sink failed the recorder goes
// quiet; the caller, who sees it in status(), tells the user.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/emulation/product_shape.h"
#include "ulpscope/kernels/op_call.h"
#include "ulpscope/recorder/flight_recorder.h"
#include "ulpscope/trace/op_semantics.h"
#include "ulpscope/trace/sink.h"

namespace ulpscope {

struct OutputDescription {
  TensorView view;
  Role role = Role::activation;
  std::string_view parameter;  // its parameter's name, or ""
  double scale = 1.0;          // the loss scale that its values contain
  bool stays_wide = false;     // as TensorInfo has it
  std::string_view name = {};  // what the op calls it, or ""
  // As TensorInfo has them.
  ValueKey gradient_of = {};
  int32_t gradient_input = -1;
  RoundingMode rounding = RoundingMode::nearest_even;
  bool flushes_results = false;
  std::span<const int64_t> shape = {};  // of a tensor of a higher rank than views have; empty: the view's
};

struct OpDescription {
  std::string_view name;
  std::string_view module;
  Phase phase = Phase::forward;
  uint64_t id = 0;
  uint64_t forward_id = 0;
  OpFunction function = OpFunction::other;
  OpKind kind = kind_of(function);  // where the function is `other`, of any kind
  uint32_t micro_batch = 0;
  uint8_t loss_index = 0;
  const Attributes* attributes = nullptr;
  std::string_view attributes_text = {};     // where these are none: as OpInfo has them
  std::string_view location = {};            // as OpInfo has it
  std::optional<ProductShape> product = {};  // of a matrix product
  bool flushes_inputs = false;               // reads subnormals as zero
  bool flushes_narrow_products = false;      // as TensorInfo has it
  std::span<const ValueKey> inputs;
  bool inputs_told = true;  // as OpInfo has it; false: no origin is looked for in its outputs
  // Theirs, as the op reads them; empty: not told, and their memory is not watched.
  std::span<const TensorView> input_views = {};
  std::span<const OutputDescription> outputs;
};

// A node of a capture, as CaptureRow has it; its number is its place in the list.
struct CaptureNode {
  int64_t parent = -1;
  int32_t operand = -1;
  int64_t term = -1;
  ValueKey made_by = {};
  TensorView view = {};  // of its tensor, in the call: its shape is kept
  int64_t element = -1;
  double value = 0;
  bool overwritten = false;
  CaptureFollow follow = CaptureFollow::none;
  int64_t terms = 0, broke_at = -1;
  double partial_sum = kUnknown;
  const Attributes* attributes = nullptr;  // of the call that made what is followed
  std::string_view attributes_text = {};   // where these are none: as OpInfo has them
  std::optional<RowFacts> row = {};        // of a node that stands for many elements; `operand` is its input
};

enum class StopOn : uint8_t { never, nan, overflow, backoff };
const char* name_of(StopOn stop);

struct RecorderOptions {
  RecordLevel level = RecordLevel::stats;
  bool bits = false;                      // a hash of each output's bits as well (BitsRow)
  int64_t every = 1;                      // histograms every N steps
  std::vector<std::string> modules = {};  // glob patterns; empty: all. Rows of other ops are not recorded
  std::vector<std::string> ops = {};
  std::vector<Phase> phases = {};
  uint64_t max_bytes = 0;  // 0: no limit. Near it the level is lowered to health, at it recording stops
  StopOn stop_on = StopOn::never;
  bool ends_training = true;  // at what stop_on names; false: who is told decides
  // Rows of these last steps are held, and written when something happens (flight_recorder.h), with those of so many steps behind
  // it; 0: all rows are written.
  int64_t keep_last = 0, after = 0;
  Triggers on = {};
};

// An output with nonfinite values while all inputs of its op were finite.
struct Origin {
  uint64_t step = 0;
  uint64_t op = 0;  // its id
  int slot = 0;
  uint32_t tensor = 0;  // index in the trace's tensor table
  uint32_t micro_batch = 0;
  uint8_t loss_index = 0;
  Phase phase = Phase::forward;
};

class Recorder {
 public:
  // The sink outlives the recorder.
  Recorder(TraceSink& sink, RecorderOptions options);
  ~Recorder();

  // What the run has, and where its samples come from: before the first step ends.
  void add_setting(const SettingInfo& setting);
  void add_source(const SourceInfo& source);

  // What the device's library multiplied for the first time, at any time; it is seen with the step that ends next.
  void add_product(const ProductInfo& product);

  void begin_step(uint64_t step);
  uint64_t step() const;  // the number of the last that began
  // No op of the step that goes on is told: of the step, which then has level off, only the row and events are recorded.
  void leave_out_ops();
  // So much is wanted in this step of the outputs of such an op: records that know less are rows that know less.
  StatisticsLevel wanted(std::string_view module, std::string_view name, Phase phase) const;
  bool wants_samples() const;                                                          // of values as well
  bool wants_bits(std::string_view module, std::string_view name, Phase phase) const;  // the same of a hash of the bits
  // The samples of a batch that this pass is about, in its order, by their numbers in data set `source`. Phase: as BatchRow has it.
  // Filters do not leave them out, except where they leave out the phase evaluation.
  void add_batch(Phase phase, uint32_t micro_batch, uint32_t source, std::span<const int64_t> samples);

  // One record per output, to be filled in; empty where nothing is wanted of any output. Valid until the pass's rows are written.
  std::span<OutputRecord* const> before(const OpDescription& op);
  // The same with records of the caller's, one per output, that others may ask for something too: what they ask for is raised to
  // what the recorder wants, and it records no more than that. They must stay valid until the pass's rows are written.
  // `input_fingerprints` are the caller's as well, one per input or none.
  void before(const OpDescription& op, std::span<OutputRecord* const> records,
              std::span<Fingerprint* const> input_fingerprints = {});
  // After `before` with records of the recorder's: what it wants of the inputs, one per input, or empty. To be filled in, too, of
  // the inputs as they are before the op changes them.
  std::span<Fingerprint* const> input_fingerprints() const;
  // After the op of the last `before` ran, where all records are filled in. Returns the output slot whose first nonfinite element
  // should be captured: one that is an origin.
  std::optional<int> after();
  // Of that slot. The first node is the element, and each stands behind its parent.
  void add_capture(int slot, std::span<const CaptureNode> nodes);
  // Takes another measure of an output of the op of the last `before`: a number by its name, written beside the output's row,
  // where that is recorded. Of another op's output nothing is kept.
  void add_measure(const ValueKey& output, std::string_view name, double value);
  // Tells what became of the terms that this op added to its output in slot `slot`, a running sum: all of a step make one row.
  void add_sum(int slot, const SumCounts& counts);
  // For a device that is behind, when all records are filled in: the origins to be captured among the ops since it was last asked.
  // Valid until it is asked again.
  std::span<const Origin> find_origins();
  // Before the rows of the origin's step are written.
  void add_capture(const Origin& origin, std::span<const CaptureNode> nodes);

  // What the step's trace is to say of it, beyond what is found in its rows.
  void add_warning(std::string_view text);
  void add_note(std::string_view text);
  void add_metric(std::string_view name, MetricKind kind, double value);

  // Ends a pass: that of the ops since the last. Where the records are `known`, writes what ended so far.
  void end_pass(bool known = true);
  // The same with the step. Of that row.step, row.graph and row.level are filled in, and its events are written: a scale change is
  // one where scale_after differs from scale_before, and a skipped step blames the first gradient with nonfinite values.
  void end_step(const StepRow& row, bool known = true);
  // Writes the rows of the passes and steps that ended, all of whose records are filled in by now.
  void write_ended();
  // How many ops there are in passes that ended and are not written.
  size_t waiting_ops() const;

  // Makes a recorder that holds steps write them when the one that goes on ends, or the next one, for that reason.
  void trigger(std::string_view why);
  // Writes steps that are held, behind the last one and before the sink is closed.
  void finish();

  // True once a step is written in which what options.stop_on names happened; the reason is in the trace.
  bool stop_requested() const;
  const std::string& stop_reason() const;  // one line, or ""
  // Where less was recorded than options.level says: from which step on, and why. One line, or "".
  std::string limits_met() const;
  SinkStatus status() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulpscope
