// Records op calls that are told piece by piece: for producers that learn what an op was while it runs or after it, whose ops nest,
// and who call from several threads. A call is a token from its beginning to the end of its step; what is told of it is kept,
// packed, until the step ends, and written then by a Recorder in the order in which the calls began.
//
// Whatever cannot be, in the trace or by the order of calls, is refused: a usage Error that names the call is thrown, and the
// recording stays as it was.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "ulpscope/recorder/host_tensor.h"
#include "ulpscope/recorder/recorder.h"

namespace ulpscope {

// A call of this step; 0: none.
using CallToken = uint64_t;
// A text that calls refer to; 0: "".
using TextNumber = uint32_t;
// Longer texts are refused, in bytes: a trace has room for as long ones, and no use.
inline constexpr size_t kLongestToldText = size_t{1} << 20;

struct BegunCall {
  TextNumber name = 0, module = 0, attributes = 0, location = 0;
  TextNumber parameter = 0;    // where it is given, the id is made from it in the place of forward_id and module
  std::optional<Phase> phase;  // nothing: the pass's
  OpFunction function = OpFunction::other;
  std::optional<OpKind> kind;  // nothing: the function's
  uint64_t id = 0;             // 0: by the rule (op_identity.h)
  uint64_t forward_id = 0;
  std::span<const ValueKey> inputs;
  bool inputs_told = true;
  std::optional<ProductShape> product;
};

struct CallLabel {
  Role role = Role::activation;
  TextNumber parameter = 0, name = 0;
  double scale = 1.0;
};

// A node of how an element of an output came about, as CaptureRow has it: node 0 is the element, the others what it was computed
// from.
struct ToldNode {
  int64_t parent = -1;   // the node that this is an operand of, one before it; -1 of node 0
  int32_t operand = -1;  // the input of the parent's op that it is an element of; -1 of node 0
  int64_t term = -1;     // of the sum that the parent is, its term; -1: of none
  ValueKey made_by = {};
  std::span<const int64_t> shape = {};  // of its tensor
  int64_t element = 0;                  // logical index
  double value = 0;
  bool overwritten = false;  // the op wrote over it, and `value` is the one after the call
  int64_t terms = 0;         // of a sum, how many; else 0
};
inline constexpr size_t kMostToldNodes = 1024;

class CallRecorder {
 public:
  // The sink outlives it.
  CallRecorder(TraceSink& sink, RecorderOptions options);
  ~CallRecorder();

  TextNumber intern(std::string_view text);

  void add_setting(const SettingInfo& setting);  // before the first step ends
  void add_source(const SourceInfo& source);
  void add_batch(uint32_t source, std::span<const int64_t> samples);
  void add_metric(std::string_view name, MetricKind kind, double value);
  void add_note(std::string_view text);
  void add_warning(std::string_view text);

  void begin_step(uint64_t number);
  // Calls of the step that goes on are left out, those that began too, and with them all but its row and events.
  void leave_out_ops();
  void begin_pass(Phase phase, uint32_t micro_batch, uint32_t loss);
  // Writes the step. Calls that did not end are left out, and told in an Error that is thrown after it was written.
  void end_step(const StepRow& row);

  // `id`, where not nullptr, gets the op's id.
  CallToken begin(const BegunCall& call, uint64_t* id = nullptr);
  void end(CallToken call);
  void drop(CallToken call);
  uint64_t id_of(CallToken call) const;
  // So much is wanted of its outputs.
  StatisticsLevel wanted(CallToken call) const;
  // Once for each slot. Statistics nullptr: taken now.
  void add_output(CallToken call, uint32_t slot, const HostTensor& tensor, const CallLabel& label, const OutputRecord* statistics);
  // Until the step ends.
  void set_label(CallToken call, uint32_t slot, const CallLabel& label);
  void set_statistics(CallToken call, uint32_t slot, const OutputRecord& statistics);
  void set_gradient_of(CallToken call, uint32_t slot, const ValueKey& value, int32_t input);
  void set_update(CallToken call, uint32_t slot, const UpdateCounts& update);
  void set_sum(CallToken call, uint32_t slot, const SumCounts& sum);
  // Another measure of the output, a finite number by its name.
  void set_measure(CallToken call, uint32_t slot, TextNumber name, double value);
  // Whether the output holds NaN or Inf that no known input of this step had, so that it is worth telling how the first came about.
  bool wants_capture(CallToken call, uint32_t slot) const;
  // Whether the output's statistics were taken, and have no NaN and no Inf.
  bool was_finite(CallToken call, uint32_t slot) const;
  // Kept where the recorder wants it when the step ends: not all of many.
  void set_capture(CallToken call, uint32_t slot, std::span<const ToldNode> nodes);

  // As the Recorder's.
  void trigger(std::string_view why);
  void finish();

  SinkStatus status() const;
  bool stop_requested() const;
  std::string stop_reason() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulpscope
