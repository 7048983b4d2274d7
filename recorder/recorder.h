// Turns op calls, described plainly, into the rows of a trace. Knows no engine: any program that can describe its ops records.
//
//   recorder.begin_step(step);
//   for each op:  records = recorder.before(description);  compute, filling in the records;  recorder.after();
//   recorder.end_step(row);
//
// Records may be filled in at any time before end_step, so a device needs one synchronisation a step. A step of many passes (the
// batches of an evaluation) ends each with end_pass, and so needs memory for the records of one.
//
// Steps in which everything is NaN cost no more than others: a step has at most one nonfinite event and one capture (of at most 160
// operands), no capture from the 17th step in a row whose first nonfinite output is the same, and a run has at most 1,000 warnings.
// Where the sink failed the recorder goes quiet; the caller, who sees it in status(), tells the user.
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
#include "ulpscope/trace/sink.h"

namespace ulpscope {

// The output `slot` of the op with the id `op`.
struct ValueKey {
  uint64_t op = 0;
  uint8_t slot = 0;
};

struct OutputDescription {
  TensorView view;
  Role role = Role::activation;
  std::string_view parameter;  // its parameter's name, or ""
  double scale = 1.0;          // the loss scale that its values contain
  bool stays_wide = false;     // as TensorInfo has it
  std::string_view name = {};  // what the op calls it, or ""
  RoundingMode rounding = RoundingMode::nearest_even;
  bool flushes_results = false;
};

struct OpDescription {
  std::string_view name;
  std::string_view module;
  Phase phase = Phase::forward;
  uint64_t id = 0;
  uint64_t forward_id = 0;
  uint32_t micro_batch = 0;
  uint8_t pass = 0;
  const Attributes* attributes = nullptr;
  std::optional<ProductShape> product = {};  // of a matrix product
  bool flushes_inputs = false;               // reads subnormals as zero
  bool flushes_narrow_products = false;      // as TensorInfo has it
  std::span<const ValueKey> inputs;
  std::span<const OutputDescription> outputs;
};

enum class StopOn : uint8_t { never, nan, overflow, backoff };
const char* name_of(StopOn stop);

struct RecorderOptions {
  RecordLevel level = RecordLevel::stats;
  int64_t every = 1;                      // histograms every N steps
  std::vector<std::string> modules = {};  // glob patterns; empty: all. Rows of other ops are not recorded
  std::vector<std::string> ops = {};
  std::vector<Phase> phases = {};
  uint64_t max_bytes = 0;  // 0: no limit. Near it the level is lowered to health, at it recording stops
  StopOn stop_on = StopOn::never;
};

class Recorder {
 public:
  // The sink outlives the recorder.
  Recorder(TraceSink& sink, RecorderOptions options);
  ~Recorder();

  void begin_step(uint64_t step);

  // One record per output, to be filled in; empty where nothing is wanted of any output. Valid until the pass or step ends.
  std::span<OutputRecord* const> before(const OpDescription& op);
  // The same with records of the caller's, one per output, that others may ask for something too: what they ask for is raised to
  // what the recorder wants, and it records no more than that. They must stay valid until the pass or step ends.
  void before(const OpDescription& op, std::span<OutputRecord* const> records);
  // After the op of the last `before` ran. Returns the output slot whose element should be captured: the first nonfinite output of
  // the step, where its counts are known already.
  std::optional<int> after();
  // `call` is the op's: its attributes and shapes are kept with the capture. Facts of rows become measures of the output
  // (docs/trace_format.md).
  void add_capture(int slot, const ElementCapture& capture, const OpCall& call);

  void add_warning(std::string_view text);
  void add_metric(std::string_view name, double value);

  // Writes the rows of the ops since the last pass, all of whose records are filled in.
  void end_pass();
  // Fills in row.step, row.graph and row.level, writes the rows of the step, and its events: a scale change is one where
  // scale_after differs from scale_before, and a skipped step blames the first gradient with nonfinite values.
  void end_step(StepRow row);

  // True after a step in which what options.stop_on names happened; the reason is in the trace.
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
