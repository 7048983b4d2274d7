// Ops of ATen, as an adapter tells of them, into calls of a recorder: where each stands in its step, what its inputs are, and which
// part its outputs play.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "ulpscope/recorder/aten/batches.h"
#include "ulpscope/recorder/aten/captures.h"
#include "ulpscope/recorder/aten/cost.h"
#include "ulpscope/recorder/aten/graph.h"
#include "ulpscope/recorder/aten/measures.h"
#include "ulpscope/recorder/aten/memory.h"
#include "ulpscope/recorder/aten/schema.h"
#include "ulpscope/recorder/value_loss.h"

namespace ulpscope::aten {

// The part that an output plays.
struct Label {
  Role role = Role::activation;
  Name parameter = 0, name = 0;
  double scale = 1;
};

// Failures of the recorder are thrown as Error.
class Tracker {
 public:
  Tracker(const ulpscope_aten_adapter& adapter, const ulpscope_aten_session& session, const ulpscope_aten_calls& calls);
  ~Tracker();
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  ulpscope_aten_state& state() { return state_; }
  const ulpscope_aten_session& session() const { return session_; }
  // One thread at a time is between these, and in the members below.
  void lock() {
    mutex_.lock();
    cost_.enter();
  }
  bool try_lock() {
    if (!mutex_.try_lock()) return false;
    cost_.enter();
    return true;
  }
  void unlock() {
    cost_.leave();
    mutex_.unlock();
  }
  void record(ulpscope_recorder* recorder) { recorder_ = recorder; }

  Name name(std::string_view text);
  const std::string& text(Name name) const { return names_[name].text; }
  uint32_t add_schema(const ulpscope_aten_schema& schema);
  void name_parameter(uint64_t handle, Name name, Name module);
  bool is_named(uint64_t handle) const { return parameters_.contains(handle); }

  void before(const ulpscope_aten_op& op);
  void after(const ulpscope_aten_op& op);

  void begin_pass(bool is_evaluation);
  // Waits for what devices took in the step, and tells it.
  void settle_devices();
  double loss(uint32_t later) const;
  const Measures& measures() const { return measures_; }
  void forget_all();
  void end_step();

  struct Entry {
    Name name = 0;
    bool is_evaluating = false, is_compiled = false;
    int64_t task = -1;
  };
  std::vector<Entry>& stack();  // the modules that this thread is in

  bool has_maker(const Tensor& tensor) const { return is_recorded(memory_.last(tensor)); }
  MadePointer source(const Tensor& tensor, Role role, Name parameter, Name module, Name name);
  void source_later(const Tensor& tensor, Name parameter, Name module, Name name);
  void inputs(std::span<const Tensor> tensors);
  void unsharded(const Tensor& tensor, const Tensor& part);
  // A data loader handed over samples 0 to `samples` of a batch.
  void delivered(std::span<const Tensor> tensors, uint32_t batch, int64_t samples, bool is_in_rows);

  bool begin_function(std::string_view name, int64_t sequence, int64_t task, std::span<const Tensor> inputs);
  void end_function();
  bool is_opaque(std::span<const Tensor> outputs) const;
  void opaque(Name module, Name class_name, int64_t task, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
              const int64_t* nodes, const uint32_t* slots);
  void observe(Name name, double scale, int64_t task, const Tensor& tensor);

  ulpscope_aten_backward begin_backward(std::span<const Tensor> roots, bool takes_losses);
  void handed_on(int64_t node, const char* name, std::span<const ulpscope_aten_edge> edges, std::span<const Tensor> gradients,
                 std::span<const Tensor> arrived);
  void end_backward();

  void keep(std::span<const Tensor> pairs, bool changes_gradients);
  void updated(const ulpscope_aten_update& update, bool is_skipped, double& before, double& after);
  void clear_norms() { unclipped_.clear(); }

  const std::map<std::string, uint64_t>& not_read() const { return not_read_; }
  const std::map<std::string, uint64_t>& unmapped() const { return unmapped_; }
  uint64_t calls() const { return calls_told_; }
  const Cost& cost() const { return cost_; }

 private:
  struct Place {
    Phase phase = Phase::forward;
    Name module = 0;
  };
  struct Output {
    uint32_t slot = 0;
    const Tensor* tensor = nullptr;
    bool is_written = false;  // an argument that the op changed
  };
  // One call to be recorded: of ops over lists, that of one element.
  struct Row {
    std::vector<Argument> arguments;
    Bound bound;
    std::vector<Read> reads;
    std::vector<Output> outputs;
  };
  struct LabelledOutput {
    uint32_t slot = 0;
    const Tensor* tensor = nullptr;
    Label label;
    bool is_written = false;
  };
  struct Call {
    Name name = 0;
    Phase phase = Phase::forward;
    OpFunction function = OpFunction::other;
    std::optional<OpKind> kind = {};  // nothing: the function's
    Name module = 0, attributes = 0, location = 0, parameter = 0;
    uint64_t id = 0;  // 0: by the recorder's rule
    uint64_t forward_id = 0;
    std::span<const ulpscope_value> inputs = {};
    bool inputs_unknown = false;
    std::optional<ProductShape> product = {};
  };
  // A call that cannot be looked into.
  struct OpaqueCall {
    Name name = 0;
    Place place = {};
    Name location = 0;
    uint64_t forward_id = 0;
    std::vector<ulpscope_value> inputs = {};
    bool inputs_unknown = true;
    uint64_t began = 0;     // how many calls had been told by then
    bool has_node = false;  // its node of autograd is known to be this call's
  };
  // The inputs that a call reads, beside what made them, and what it writes.
  struct Reading {
    const ulpscope_aten_op* op = nullptr;
    Place place = {};
    std::span<const Read> reads;
    std::span<Makers> makers;
    std::span<const LabelledOutput> outputs;
  };
  // Looked at where an output is not finite and no input was.
  struct Looks {
    // Whether the inputs of the call are others than it said, which were told; then it is told again.
    std::function<bool(Call&)> inputs_are_others = {};
    std::function<std::vector<ulpscope_node>(const Tensor&, const void*)> explained = {};
  };
  struct NamedText {
    std::string text;
    std::optional<ulpscope_text> told;  // the recorder's number
  };
  struct Unread {
    KeptDescription tensor;
    Name parameter, module, name;
  };
  struct Collective {
    struct Output {
      KeptDescription tensor;
      Label label;
    };
    Name name = 0, module = 0, parameter = 0, location = 0;
    Phase phase = Phase::communication;
    OpFunction function = OpFunction::other;
    std::vector<ulpscope_value> inputs;
    bool inputs_unknown = false;
    std::vector<Output> outputs;
  };
  struct Counter {
    uint64_t pass = 0;
    uint32_t count = 0;
  };
  struct Attributes {
    uint64_t hash = 0;
    Name text = 0;
  };
  // Copies of what a step was going to change; their memory stays for the next one.
  struct Kept {
    KeptTensor weight, gradient;
    std::optional<DeviceTensor> weight_on_device, gradient_on_device;  // in their places
    bool is_there = false, has_gradient = false;
    void trim() {
      is_there = false;
      weight.room.trim();
      gradient.room.trim();
      weight_on_device.reset();
      gradient_on_device.reset();
    }
  };
  // An op that goes on is about to add this to a running average of weights.
  struct Addition {
    std::thread::id thread = {};
    const void* data = nullptr;  // of the average
    double part = 0;             // of the weights that is added
    bool is_towards = false;     // of their difference to the average instead
    KeptTensor average = {};
    std::optional<DeviceTensor> average_on_device = {};
  };
  // A running sum as the op that goes on found it: as summed_values() has it.
  struct Sum {
    std::thread::id thread = {};
    const void* data = nullptr;
    std::vector<float> before;
  };
  // Holds what an addition in place is about to overwrite.
  struct Operand {
    std::thread::id thread = {};
    const void* data = nullptr;
    SampledValues values;
  };
  // A parameter as an optimizer's step left it.
  struct Updated {
    const Tensor &weight, &gradient;
    const Tensor* steps;  // how many there were, among the states; nullptr: none has that name
    std::span<const Tensor> states;
  };

  static bool is_state(const Updated& left, size_t state);
  void updated(const ulpscope_aten_update& update, const Updated& left, const Kept& copies, bool is_skipped, double& before,
               double& after);
  Bound bound_of(const ulpscope_aten_op& op, const Schema& schema) const;
  void forget_written(const Schema& schema, const Bound& bound);
  void put_together(const Tensor& tensor, const Tensor& part);
  void put_together_written(const Schema& schema, const Bound& bound);
  // Follows what an op outside of any step makes of the samples of batches, and of values that are finite.
  void prepare(const Schema& schema, const Bound& bound, std::span<const Tensor* const> results);
  // Keeps what such an op is about to change in place, where it may make NaN or infinities of it.
  void keep_overwritten(const Schema& schema, const ulpscope_aten_op& op, const Bound& bound);
  // Gives what is to be told of the output; nullptr: nothing.
  MadePointer prepared_by(const Schema& schema, const Bound& bound, std::span<const Read> given,
                          std::span<const Tensor* const> results);
  // Tells that op where the tensor holds what it made, as what the model or the loss reads; nullptr: there is none.
  MadePointer prepared_input(const Tensor& tensor, std::string_view name_of_tensor);
  void source_buffers(const Schema& schema, const Bound& bound);
  void source_written(const Schema& schema, const Bound& bound);
  void source_unread(const Tensor& seen);
  void follow_backward(const Schema& schema, int64_t task);
  std::optional<Place> place_of(const Schema& schema, const ulpscope_aten_op& op, std::span<const Tensor* const> reads,
                                std::span<const Tensor* const> written);
  void view(const Schema& schema, const ulpscope_aten_op& op, std::span<const Tensor* const> reads);
  void unscale(const Schema& schema, const Bound& bound);
  void join(const Schema& schema, const Bound& bound);
  void begin_collective(const Schema& schema, const ulpscope_aten_op& op, const Bound& bound);
  // An op ends a collective one while the program waits for it: gloo's reduce_scatter copies its result then.
  bool completes_collective(const Schema& schema, const Bound& bound) const;
  // Tells of the collective op that wrote what is read.
  void settle(const Tensor& seen);
  void settle(const Schema& schema, const Bound& bound);
  void drop_in_flight(uint64_t storage, const Collective* of);
  void drop_all_in_flight();
  std::vector<Row> rows_of(const Schema& schema, const ulpscope_aten_op& op, const Bound& bound,
                           std::span<const Tensor* const> written);
  void record_row(const Schema& schema, const ulpscope_aten_op& op, const Row& row, Place place);
  void map_node(const Schema& schema, const ulpscope_aten_op& op, const Row& row, const Made& made, Name module);
  // This thread is in a module that torch.compile made, or in code that it made.
  bool calls_compiled();
  bool is_in_compiled(const ulpscope_aten_op& op);
  // A value that a backward op works out before it meets the gradient: it holds no loss scale.
  bool reads_no_gradient(std::span<const Makers> makers) const;
  const ulpscope_aten_edge* sum_of(const Schema& schema, const ulpscope_aten_op& op, const Row& row) const;
  Name location_of(Phase phase, Name module, Name name);
  // `operands`: a number of what else the call reads than whole tensors, or 0.
  Name attributes_of(const Schema& schema, const Bound& bound, uint64_t place, uint64_t operands);
  // Where what this thread does just now stands in the step; nothing: outside of one.
  std::optional<Place> here(int64_t task);
  // Nobody is known to have made all of it.
  bool has_no_maker(const Tensor& tensor) const;
  bool is_of_function(const Tensor& tensor, ulpscope_aten_function& function) const;
  // A call that cannot be looked into returned it, and no op has written it since that began: it is that call's from then on.
  // `otherwise`: the call, where it was not seen to begin.
  bool adopt(const Tensor& tensor, const Makers& makers, const OpaqueCall& otherwise);
  // Who made it, adopted where it has to be.
  Makers makers_of(const Tensor& tensor, int64_t task = -1);
  MadePointer tell_opaque(const OpaqueCall& call, const Tensor& tensor, uint32_t slot, const Label& label);
  // Inputs that hold what no op wrote are outputs of ops of kind opaque from then on.
  bool tell_unseen(const Reading& reading);
  OpaqueCall writer_of(const Reading& reading, const Tensor& tensor, const MadePointer& made);
  // The values that these are; false where one is not known.
  bool values_of(std::span<const Tensor> tensors, std::vector<ulpscope_value>& values) const;
  // Tells of the update of a parameter; `asked`: what its rule asked for, or nullptr.
  std::vector<MadePointer> emit_update(const ulpscope_aten_update& update, const Updated& left, const Tensor* asked);
  // Keeps running averages of weights in 16 bits that an op is about to add to, and tells of those that it has not met.
  void keep_averages(const Schema& schema, const ulpscope_aten_op& op, const Bound& bound);
  void keep_average(const Tensor& average, const Tensor& weights, double part, bool is_towards);
  // Counts what became of such an addition.
  void added_to_average(const Tensor& average, const Tensor& weights, const Made& made);
  // Keeps what an op is about to add to, where it may be a running sum in 16 bits.
  bool may_be_sum(const Schema& schema, const ulpscope_aten_op& op, const Bound& bound, const Tensor& sum);
  bool adds_to_parameter(const Schema& schema, const Bound& bound) const;
  void keep_sum(const Schema& schema, const ulpscope_aten_op& op, const Bound& bound);
  // Counts what became of an addition, to such a sum or of the gradients of a parameter.
  void added_to_sum(const Schema& schema, const Row& row, const LabelledOutput& output, const Made& made);
  // Keeps what an addition or a subtraction of a forward pass is about to overwrite, where it is measured.
  void keep_operand(const Schema& schema, const ulpscope_aten_op& op, const Bound& bound);
  struct CastData {
    int64_t step = 0;  // that was the last to begin
    const void* data = nullptr;
    std::vector<ValueMeasure> measured;
  };
  // Keep what a cast of data lost that is no op of the step, until the data is an input of it.
  void keep_loss_of_cast(const Schema& schema, std::span<const Read> reads, std::span<const Tensor* const> results);
  void keep_cast(const Tensor& tensor, CastData cast);
  void forget_cast(uint64_t storage);
  void forget_casts(const std::function<bool(uint64_t storage, const CastData& cast)>& is_gone);
  void tell_loss_of_cast(const Tensor& tensor, const Made& made);
  void tell_measures(const Made& made, std::span<const ValueMeasure> measured);
  bool measures_values() const;  // in this step, and outside of an optimizer's
  // Measures what the op lost of the values that it read; gives nothing of most ops. `reads_input`: its first operand is data.
  std::vector<ValueMeasure> loss_of_values(const Schema& schema, const Row& row, const LabelledOutput& output, const Made& made,
                                           bool reads_input) const;
  std::optional<SampledValues> operand_of_addition(const Tensor& tensor, const Tensor& result, bool is_overwritten) const;
  std::vector<ValueMeasure> loss_of_addition(const Schema& schema, const Row& row, const LabelledOutput& output,
                                             OpFunction function) const;
  void measure_loss_of_values(const Schema& schema, const Row& row, const LabelledOutput& output, const Made& made,
                              bool reads_input);
  void updated_on_host(const ulpscope_aten_update& update, const Updated& left, const Kept& copies);
  void updated_on_device(const ulpscope_aten_update& update, const Updated& left, const Kept& copies);
  bool inputs_of(const Schema& schema, std::span<const Read> reads, std::vector<Makers>& makers, Phase phase,
                 std::vector<ulpscope_value>& inputs);
  bool tell_output(ulpscope_op token, const LabelledOutput& output, const Tensor* cast_from);
  // Tells the recorder of a call that has run; an empty list where it refused it.
  std::vector<MadePointer> emit(const Call& call, std::span<const LabelledOutput> outputs, const Tensor* cast_from = nullptr,
                                const Looks* looks = nullptr);

  Name parameter_of(uint64_t handle) const;
  Name module_of(Name parameter) const;
  void forget(const Tensor& tensor) { memory_.forget(tensor); }
  bool is_new_input(const MadePointer& made) const;
  MadePointer input(const Tensor& tensor, std::string_view name);
  // Tells what a loss reads that no recorded op made: a target, the weights of its classes, or another constant of the loss.
  MadePointer loss_input(const Schema& schema, const Read& read, std::span<const Read> reads);
  void set_label(Made& made, const Label& label);
  void set_gradient_of(Made& made, const ulpscope_value& value, int32_t input);
  // A node that the program defined ended: gradients that none of its ops made are its own.
  void handed_on_by_program(int64_t node, const char* name, std::span<const Tensor> gradients, std::span<const Tensor> arrived);
  std::optional<ulpscope_value> target_of(const ulpscope_aten_edge& edge) const;
  Number number_in(const Tensor& tensor, double divisor = 1);
  // The rows of its square.
  Number norm_of(const Tensor& tensor, double divisor = 1);
  ulpscope_text told(Name name);
  ulpscope_label label_of(const Label& label);
  // False where the recorder refused; a failure is thrown.
  bool check(int code);

  ulpscope_aten_adapter adapter_;
  ulpscope_aten_session session_;
  ulpscope_aten_calls calls_;
  ulpscope_recorder* recorder_ = nullptr;
  ulpscope_aten_state state_{};
  std::recursive_mutex mutex_;
  std::vector<NamedText> names_;
  std::unordered_map<std::string, Name> by_text_;
  std::vector<Schema> schemas_;
  std::vector<Name> schema_names_;
  Memory memory_;
  Batches batches_;
  Nodes nodes_;
  HandedOn handed_on_;
  // No values were given for the gradients of the roots of the backward pass that runs, or of one around it.
  bool begins_with_ones_ = true;
  std::unordered_map<uint64_t, Name> parameters_;  // by handle
  std::unordered_map<Name, Name> modules_;         // of parameters
  std::unordered_map<std::thread::id, std::vector<Entry>> stacks_;
  std::thread::id last_thread_;  // that asked for its stack
  std::vector<Entry>* last_stack_ = nullptr;
  std::unordered_map<int64_t, OpaqueCall> functions_;                  // of this step, by the numbers of their nodes
  std::unordered_map<std::thread::id, std::vector<int64_t>> running_;  // functions that each thread is in
  uint64_t last_function_ = 0;                                         // how many calls had been told when the last one began
  std::unordered_map<uint64_t, Unread> unread_;                        // by storage: buffers that nothing has read
  std::unordered_map<uint64_t, KeptDescription> parts_;  // by storage of an unsharded parameter: this process's part of it
  std::unordered_map<uint64_t, std::shared_ptr<Collective>> in_flight_;  // by storage that one writes
  std::vector<ulpscope_value> inputs_;                                   // in this pass
  bool is_evaluation_ = false;                                           // this pass
  std::shared_ptr<Overwritten> overwritten_;                             // by an op that goes on
  std::array<std::vector<const Tensor*>, 3> tensors_;  // of the op that is told: reads, written arguments, and results
  std::vector<Addition> additions_;                    // by an op that goes on
  std::vector<Sum> sums_;                              // that one adds to
  std::vector<Operand> operands_;                      // that one overwrites
  std::unordered_map<uint64_t, CastData> cast_data_;   // by storage
  std::unordered_map<Name, Number> unclipped_;         // squares of norms, by parameter
  std::unordered_map<uint64_t, Kept> kept_;            // by handle of the parameter
  KeptTensor unscaled_;                                // the gradient of an update
  Room asked_;                                         // for the update itself
  Measures measures_;
  // These are told when the step is settled.
  std::vector<std::vector<Number>> losses_;  // each the sum of several
  struct Norms {
    Number before, after;
    Number counts = {1};  // above 0: they are told
  };
  std::vector<Norms> norms_;
  std::optional<Number> scale_after_;
  std::map<std::string, uint64_t> not_read_, unmapped_;
  uint64_t calls_told_ = 0;  // of ops
  Cost cost_;
  int64_t nested_ = -1;       // one in it, that began last
  int64_t task_ = -1;         // the graph task that began last
  double scale_ = 1;          // the loss scale in the gradients of the backward pass that goes on
  bool makes_start_ = false;  // the gradient that a backward pass begins with was made, and its graph task did not begin
  uint64_t pass_ = 1;
  uint64_t told_ = 0;  // calls
  std::unordered_map<uint64_t, Counter> located_, counted_;
  std::unordered_map<uint64_t, Name> locations_;
  std::unordered_map<uint64_t, Attributes> attributes_;
};

}  // namespace ulpscope::aten
