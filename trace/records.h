// The data model of a recording: what the rows of a trace are. docs/trace_format.md describes their HDF5 form; schema.h declares
// it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ulpscope/emulation/number.h"
#include "ulpscope/emulation/tensor_statistics.h"
#include "ulpscope/trace/op_kind.h"

namespace ulpscope {

enum class Phase : uint8_t { data, forward, recompute, loss, backward, scaling, communication, optimizer, evaluation };
inline constexpr int kPhases = 9;
const char* name_of(Phase phase);
// The ops of the model and its loss: those that autocast is about.
constexpr bool computes_forward(Phase phase) {
  return phase == Phase::forward || phase == Phase::recompute || phase == Phase::loss || phase == Phase::evaluation;
}
// What a skipped step is about: gradients, and what is made of them.
constexpr bool comes_after_loss(Phase phase) {
  return phase == Phase::backward || phase == Phase::scaling || phase == Phase::communication || phase == Phase::optimizer;
}

enum class Role : uint8_t {
  input,
  activation,
  activation_gradient,
  weight,
  weight_cast,
  weight_gradient,       // as computed, in the type of the backward op
  accumulated_gradient,  // what is added up in the parameter's grad
  unscaled_gradient,
  master_weight,
  optimizer_state,
  update,
  loss,
  buffer,
};
inline constexpr int kRoles = 13;
const char* name_of(Role role);
// Those that an op computed and, below FP32, rounded: where underflow is judged. FP32 gradients made from them inherit it.
constexpr bool is_computed_gradient(Role role) { return role == Role::activation_gradient || role == Role::weight_gradient; }
// Gradients contain the loss scale from the loss to unscaling.
constexpr bool is_gradient(Role role) {
  return is_computed_gradient(role) || role == Role::accumulated_gradient || role == Role::unscaled_gradient;
}

enum class RecordLevel : uint8_t { off, health, stats, full };
const char* name_of(RecordLevel level);

// How the run that wrote the trace stands.
enum class WriterState : uint8_t { alive, closed, dead };
const char* name_of(WriterState state);

// The run, written once at the start. JSON and TOML texts are stored as they are.
struct RunInfo {
  std::string run_id;      // 32 hexadecimal digits
  std::string parent_run;  // the run that this one resumed from, or ""
  int64_t parent_step = -1;
  std::string producer;  // "ulpscope train"
  std::string producer_version;
  int32_t rank = 0, world_size = 1;
  std::string mesh_position;  // the rank's coordinates in the device mesh, or ""
  std::string experiment;     // the TOML text, overrides applied
  std::string experiment_name;
  uint64_t seed = 0;
  std::string precision;   // "fp32", "fp16", "bf16"
  std::string arithmetic;  // what differs from FP32 sums, one rounding to nearest even, and subnormals kept; or ""
  std::string backend;     // "cpu"
  std::string machine;     // Backend::description
  std::string dtypes;      // data types in use, comma-separated
  RecordLevel level = RecordLevel::stats;
  int64_t every = 1;
  std::string filters;  // as given, or ""
  bool dynamic_loss_scale = false;
  // Of the gradient scaler that adapts it; 0: none, or not told.
  int64_t growth_interval = 0;  // clean steps
  double growth_factor = 0, backoff_factor = 0;
  std::string started;  // UTC, ISO 8601
};

// What a setting of a run is, whatever its producer calls it: what advice is about.
enum class SettingKind : uint8_t {
  other,
  precision,      // which types ops run in
  scale_enabled,  // whether losses are scaled
  scale_dynamic,  // whether the loss scale adapts
  scale_initial,  // the first loss scale, or the only one
  scale_growth_interval,
  scale_growth_factor,
  scale_backoff_factor,
  optimizer,  // its rule
  learning_rate,
  weight_decay,
  epsilon,         // what an optimizer adds to a denominator
  momentum,        // or the share of an old first moment
  second_moment,   // the share of an old second moment
  master_weights,  // whether FP32 copies of narrow weights are updated
  update_math,     // in which type updates are computed
  clip_norm,       // to which gradients are clipped
  batch_size,
  arithmetic,            // of the run, and none of the following
  accumulation,          // what sums of products are kept in
  rounding,              // how results are rounded into narrower types
  subnormals,            // where they become zero
  arithmetic_of_ops,     // other arithmetic for some ops
  precision_of_ops,      // other types for some ops
  precision_of_modules,  // other types for some modules
  clip_value,            // within which elements of gradients are kept
  warmup,                // steps in which the learning rate rises
  loss_factor,           // by which the loss is multiplied, besides its scale
  scale_cap,             // above which the loss scale does not grow
  quantization_recipe,   // where the scales of 8-bit tensors come from
  quantization_margin,   // binades that these scales leave free
  quantization_history,  // how many steps they are taken from
  recording_level,       // what is recorded of a tensor
  recording_interval,    // in which steps
  recording_limit,       // how large the trace may grow
  scale_floor,           // below which the loss scale does not fall
  micro_batches,         // how many batches' gradients are added up for a step
};
inline constexpr int kSettingKinds = 37;
const char* name_of(SettingKind kind);

// A setting that the run has, under the producer's name for it, so that advice can name it.
struct SettingInfo {
  std::string name;   // "optimizer.lr"
  std::string value;  // as the producer would read it
  SettingKind kind = SettingKind::other;
  bool given = false;  // it was asked for; false: a default
};

// A matrix product that the library of the device multiplied, and how: what bits depend on where the library chooses.
struct ProductInfo {
  std::string product;    // as the backend writes it: shape, types and places of factors
  std::string algorithm;  // as the library tells it apart from others

  bool operator==(const ProductInfo&) const = default;
};

// Where samples come from. A data set is one or more of these with the same number `source`: its files, and in each what is read as
// inputs and as targets. Sample i, of samples first_sample <= i < first_sample + samples, is row first_row + (i - first_sample) *
// row_step of `file`, unless row_step is 0, and, where byte_step is not 0, begins at byte first_byte + (i - first_sample) *
// byte_step of it. BatchRow has the numbers of samples; sources.h follows them.
struct SourceInfo {
  uint32_t source = 0;
  std::string name = {};     // of the data set: "train", "test"
  std::string part = {};     // "inputs", "targets", or "" where a row is both
  std::string file = {};     // its path as given, or "" of generated data
  std::string inside = {};   // the data set within an HDF5 file, the generator's name, or ""
  std::string columns = {};  // of a row, those that are read, comma-separated, or "": all
  uint64_t first_sample = 0, samples = 0;
  uint64_t first_row = 0, row_step = 1;
  uint64_t first_byte = 0, byte_step = 0;  // of what is not compressed

  bool operator==(const SourceInfo&) const = default;
};

// An op of the experiment, once per distinct id. Rows refer to it by its index in the table.
struct OpInfo {
  uint64_t id = 0;
  uint64_t forward_id = 0;  // of a backward op: the forward op that it belongs to; else 0
  std::string name;         // "conv2d", "conv2d_backward"
  std::string module;       // "features.0"; "" at top level
  Phase phase = Phase::forward;
  std::string attributes;        // "stride=1 padding=1"; "step=varies" where calls differ
  std::vector<int64_t> product;  // of a matrix product: ProductShape::numbers(); empty: none, or not known
  OpKind kind = OpKind::other;
  OpFunction function = OpFunction::other;
  // The edges have all that it reads. False: its producer does not know some of it, so that where values came from is not known.
  bool inputs_told = true;
  std::string location = {};  // where it stands in the user's source, "train.py:41", or ""
  // Where its rank or run ran it first: the step, or -1: not known, and its sequence there, as TensorRow has it.
  int64_t first_step = -1;
  uint32_t first_sequence = 0;
};

// A tensor of the experiment, once per distinct (op, slot): what does not change from step to step.
struct TensorInfo {
  uint32_t op = 0;    // index in the op table
  uint32_t slot = 0;  // which output
  Role role = Role::activation;
  DType dtype = DType::f32;
  bool stays_wide = false;            // autocast to 16 bits leaves it, and what is made of it, in `dtype`
  std::string parameter;              // "features.0.weight", or ""
  std::vector<int64_t> shape;         // global, when it was first seen: a smaller last batch shows in a TensorRow's count
  std::vector<int64_t> shard_offset;  // empty: not sharded
  bool replicated = true;
  std::string name;  // what the op calls it, "exp_avg", or ""
  // Of a gradient, where the producer tells and no parameter says it: the value that it is the gradient of, an op's id and which
  // of its outputs; 0: none. A view of a value, or a part of it, counts as that value.
  uint64_t gradient_of = 0;
  uint32_t gradient_slot = 0;
  // Of what is handed on by one op: which input of its forward op it belongs to; -1: a sum over several, or not told.
  int32_t gradient_input = -1;
  RoundingMode rounding = RoundingMode::nearest_even;  // in which the op rounds it to `dtype`
  bool flushes_results = false;                        // results that are subnormal in `dtype` become zero
  bool flushes_inputs = false;                         // the op reads subnormals of an input's format as zero
  // A product whose FP16 and BF16 factors and results (its output 0) that are subnormal become zero, whichever it has now.
  bool flushes_narrow_products = false;
};

// An edge of the graph: input `input` of op `consumer` is output `slot` of op `producer`. Stored once per distinct graph.
struct GraphEdge {
  uint32_t graph = 0;
  uint32_t consumer = 0;  // index in the op table
  uint32_t input = 0;
  uint32_t producer = 0;
  uint32_t slot = 0;
};

// One tensor in one step.
struct TensorRow {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  uint8_t loss_index = 0;  // which loss
  uint32_t sequence = 0;   // order of execution within the step, taken at dispatch
  uint32_t tensor = 0;     // index in the tensor table
  double scale = 1.0;      // the loss scale that the values contain
  // The factor that the values were multiplied by before they were rounded to FP8: statistics and counts are of the products.
  double quantization_scale = 1.0;
  StatisticsLevel known = StatisticsLevel::none;
  bool before_rounding = false;
  bool rounding_known = false;
  TensorStatistics statistics;
  RoundingCounts rounding;
  InputFlushCounts input;  // of the op
};

// Infinities and nonfinite values as stored in that type, of a TensorRow or an OutputRecord. Where the statistics are of the values
// before rounding, those that overflowed and did not saturate came on top; roundings to FP8 saturate.
template <typename Recorded>
uint64_t stored_infinities(const Recorded& recorded, DType dtype) {
  if (recorded.known == StatisticsLevel::none || (recorded.before_rounding && is_quantized(dtype))) return 0;
  return recorded.statistics.infinities() +
         (recorded.before_rounding && recorded.rounding_known ? recorded.rounding.infinite() : 0);
}
template <typename Recorded>
uint64_t stored_nonfinite(const Recorded& recorded, DType dtype) {
  return recorded.known == StatisticsLevel::none ? 0 : recorded.statistics.nan + stored_infinities(recorded, dtype);
}

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// A sample of a batch, in the order of the batch.
struct BatchRow {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  Phase phase = Phase::forward;  // forward: training; evaluation
  uint32_t source = 0;           // SourceInfo::source
  uint64_t sample = 0;
};

// The update d of one parameter w in one step (docs/numerics.md). Norms are Euclidean, all sums in FP64, of w and g as the update
// read them. A NaN among the values makes them NaN. They have 24 significant bits, and the exponents of FP64.
struct ParameterRow {
  uint64_t step = 0;
  uint32_t tensor = 0;  // the index in the tensor table of the weight that was updated
  double learning_rate = kUnknown;
  double weight_norm = kUnknown;          // |w|, before the update
  double update_norm = kUnknown;          // |d|
  double gradient_dot_update = kUnknown;  // g . d, below 0 where the update descends
  // Weight decay c is a part of d that the rule adds to the rest (AdamW, Lion, SGD without momentum); elsewhere it goes through the
  // moments, and is unknown.
  bool decay_known = false;
  double decay_asked = 0;      // the sum of |c|
  double decay_applied = 0;    // the sum of sign(c) (stored weight - that without c): what of it arrived
  uint64_t nonzero = 0;        // updates d != 0
  uint64_t lost = 0;           // those that left the stored weight unchanged
  uint64_t lost_to_decay = 0;  // those lost whose d came from weight decay alone
};

// The sum modulo 2^64 of the bit patterns of a weight's or an optimizer state's elements, as unsigned integers of their size: what
// it was where it was written, and whether it was the same where it is next read. What changes one bit changes the sum.
struct FingerprintRow {
  uint64_t step = 0;  // in which it was written
  uint32_t tensor = 0;
  uint64_t written = 0;
};

// One step. A step is committed, with all its rows, when this row is.
struct StepRow {
  uint64_t step = 0;
  uint32_t graph = 0;
  double loss = kUnknown;   // unscaled
  bool loss_known = false;  // a NaN loss is known
  double learning_rate = kUnknown;
  double scale_before = 1.0;
  double scale_after = 1.0;
  bool skipped = false;
  double gradient_norm = kUnknown;          // of the unscaled gradients, before clipping
  double clipped_gradient_norm = kUnknown;  // after; equal where nothing was clipped
  bool norm_known = false;
  double seconds = 0;
  uint64_t peak_memory = 0;              // bytes
  RecordLevel level = RecordLevel::off;  // in force
};

enum class EventKind : uint8_t {
  scale_growth,   // value: new scale
  scale_backoff,  // value: new scale; tensor, count: the first gradient with nonfinite values and how many
  nonfinite,      // first nonfinite output of a step; tensor, count
  warning,        // text
  level_lowered,  // text says why (size limit, slow writer)
  stopped,        // training stopped early; text says why
  metric,         // text: name ("test_accuracy"); value
  // A weight or state was not what had been written, where it was next read: memory was written behind the producer's back, a bit
  // flipped, or another tensor shares the memory. tensor; count: the step that wrote it; text says more.
  memory_changed,
  note,       // text; nothing to worry about: a skipped step that kept the scale, a writer that caught up
  cut_short,  // less is recorded from here on, for the size limit; text
};
inline constexpr int kEventKinds = 10;
const char* name_of(EventKind kind);

// Tells what a metric is, whatever its producer calls it.
enum class MetricKind : uint8_t {
  other,
  evaluation_loss,      // of data that is not trained on, unscaled
  evaluation_accuracy,  // share of right answers there, 0 to 1
};
inline constexpr int kMetricKinds = 3;
const char* name_of(MetricKind kind);

struct EventRow {
  uint64_t step = 0;
  EventKind kind = EventKind::warning;
  int64_t tensor = -1;       // index in the tensor table, or -1
  uint32_t micro_batch = 0;  // these of the tensor's row, where there is a tensor
  uint8_t loss_index = 0;
  uint64_t count = 0;
  double value = 0;
  std::string text;
  MetricKind metric = MetricKind::other;  // of an event of that kind
  int32_t rank = 0;                       // of the trace that it stands in: a snapshot says so, no column does
};

// Whether what a captured value was made of is captured as well.
enum class CaptureFollow : uint8_t {
  none,      // it is not looked for: far enough from the origin, or of too many
  followed,  // its operands are in the rows whose `parent` is its node
  gone,      // its op ran, and its memory or that of its inputs holds other values by now
  given,     // it was there when the pass began: a weight, a state, a batch, what an earlier micro-batch accumulated
};
inline constexpr int kCaptureFollows = 4;
const char* name_of(CaptureFollow follow);

// A node of a capture: how one element of an output that was not finite, while all inputs of its op were, came about
// (kernels/op_call.h, ElementCapture). The element is node 0; its operands, and theirs, are nodes of their own, behind the node
// that they are operands of. A node whose row.count is not 0 stands for many elements of an input at once, as the row of a softmax.
struct CaptureRow {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  uint8_t loss_index = 0;
  uint32_t tensor = 0;  // the output that was not finite: of all nodes of a capture
  uint32_t node = 0;
  int64_t parent = -1;              // the node that this is an operand of, or -1
  int32_t operand = -1;             // input of the op that made the parent, or -1
  int64_t term = -1;                // of the sum that the parent is, the term that it belongs to; -1: to none
  int64_t made_by = -1;             // index in the tensor table of the tensor that it is an element of, or -1: not known
  int64_t element = -1;             // logical index
  std::vector<int64_t> shape = {};  // of its tensor, as the call had it
  double value = 0;
  bool overwritten = false;  // the op wrote over the operand: `value` is the one after the call
  CaptureFollow follow = CaptureFollow::none;
  int64_t terms = 0;  // these of nodes that are followed
  int64_t broke_at = -1;
  double partial_sum = kUnknown;
  std::string attributes = {};  // of the call that made it, as OpInfo has them
  // Elements first, first + 1, ... of the input: `count` in all, `run` of them together and `step` to the next so many.
  struct Row {
    int64_t first = 0, count = 0, run = 0, step = 0;
    double largest = kUnknown, smallest = kUnknown;
    double sum = 0, sum_of_squares = 0;
    int64_t nonfinite = 0;
  } row = {};
};

// Some values of a tensor (level full): elements at evenly spaced logical indices.
struct SampleRow {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  uint8_t loss_index = 0;
  uint32_t tensor = 0;
  int64_t element = 0;
  double value = 0;
};

// Further measures, so that new analyses need no new schema. Refers to the tensor row of the same step, micro-batch, loss and
// tensor.
struct MeasureRow {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  uint8_t loss_index = 0;
  uint32_t tensor = 0;
  std::string name;
  double value = 0;
};

// Terms b that were added to a running sum a: a' = round(a + b), over and over. Elements where a, b or a' is NaN or infinite are
// left out.
struct SumCounts {
  uint64_t elements = 0;  // that were looked at, over all additions
  uint64_t addends = 0;   // those with b != 0
  uint64_t absorbed = 0;  // those of the addends with a' == a
  double asked = 0;       // the sum of |b|
  double arrived = 0;     // the sum of sign(b) (a' - a)
  double magnitude = 0;   // the sum of |a'|, behind the last addition

  SumCounts& operator+=(const SumCounts& later) {
    elements += later.elements;
    addends += later.addends;
    absorbed += later.absorbed;
    asked += later.asked;
    arrived += later.arrived;
    magnitude = later.magnitude;
    return *this;
  }
};

// The terms that a step added to a sum in 16 bits. A sum of more than kMostSummed elements is looked at in so many, the same in
// each addition.
struct SumRow {
  uint64_t step = 0;
  uint32_t tensor = 0;     // the sum
  uint64_t additions = 0;  // a' = round(a + b) of the whole tensor
  SumCounts counts = {};
};

// An output of an op, bit for bit: two outputs of one type and shape with one hash are equal (kernels/bit_hash.h). Views have none.
struct BitsRow {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  uint8_t loss_index = 0;
  uint32_t tensor = 0;
  uint64_t hash = 0;
};

}  // namespace ulpscope
