#include "ulpscope/recorder/call_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/base/hash.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/bit_hash.h"
#include "ulpscope/kernels/update_sums.h"
#include "ulpscope/kernels/update_sums_kernel.h"
#include "ulpscope/recorder/op_identity.h"
#include "ulpscope/recorder/running_sum.h"
#include "ulpscope/recorder/value_blocks.h"
#include "ulpscope/trace/histogram_code.h"
#include "ulpscope/trace/op_semantics.h"
#include "ulpscope/trace/row_problem.h"

namespace ulpscope {

namespace {

constexpr uint64_t kMostSteps = uint64_t{1} << 62;
constexpr uint32_t kMostSlots = 1u << 13;  // each up to the largest that is told takes memory
// So many outputs of a step are turned into rows at a time: each takes 2.5 KB meanwhile.
constexpr size_t kOutputsAtATime = 1024;

// The record of an output without what it was asked for, and with its histogram as bytes in a store that outputs share.
class PackedRecord {
 public:
  PackedRecord() = default;
  PackedRecord(const OutputRecord& record, std::vector<uint8_t>& store)
      : known_(record.known), before_rounding_(record.before_rounding), rounding_known_(record.rounding_known) {
    const TensorStatistics& statistics = record.statistics;
    health_ = statistics.health();
    rounding_ = record.rounding;
    if (known_ != StatisticsLevel::values) return;
    negatives_ = statistics.negatives;
    smallest_ = statistics.smallest;
    largest_ = statistics.largest;
    sum_ = statistics.sum;
    sum_of_squares_ = statistics.sum_of_squares;
    below_range_ = statistics.histogram.below_range;
    above_range_ = statistics.histogram.above_range;
    uint8_t bytes[kLargestHistogram];
    histogram_bytes_ = static_cast<uint32_t>(encode_histogram(statistics.histogram, bytes));
    histogram_ = store.size();
    store.insert(store.end(), bytes, bytes + histogram_bytes_);
  }

  const HealthCounts& health() const { return health_; }
  StatisticsLevel known() const { return known_; }
  uint64_t nonfinite() const { return health_.nan + health_.positive_infinity + health_.negative_infinity; }
  bool is_stored_finite() const { return nonfinite() == 0 && !(before_rounding_ && rounding_known_ && rounding_.infinite() > 0); }

  // Level health where no more is `wanted`.
  void unpack(std::span<const uint8_t> store, StatisticsLevel wanted, OutputRecord& record) const {
    record.clear();
    record.known = std::min(known_, wanted);
    record.before_rounding = before_rounding_;
    record.rounding_known = rounding_known_;
    record.statistics.health() = health_;
    record.rounding = rounding_;
    if (record.known != StatisticsLevel::values) return;
    TensorStatistics& statistics = record.statistics;
    statistics.negatives = negatives_;
    statistics.smallest = smallest_;
    statistics.largest = largest_;
    statistics.sum = sum_;
    statistics.sum_of_squares = sum_of_squares_;
    statistics.histogram.below_range = below_range_;
    statistics.histogram.above_range = above_range_;
    decode_histogram(store.subspan(histogram_, histogram_bytes_), statistics.histogram);
  }

 private:
  HealthCounts health_;
  RoundingCounts rounding_;
  uint64_t negatives_ = 0;
  double smallest_ = 0, largest_ = 0, sum_ = 0, sum_of_squares_ = 0;
  uint64_t below_range_ = 0, above_range_ = 0;
  uint64_t histogram_ = 0;  // where its bytes begin
  uint32_t histogram_bytes_ = 0;
  StatisticsLevel known_ = StatisticsLevel::none;
  bool before_rounding_ = false, rounding_known_ = false;
};

void check_length(std::string_view text) {
  if (text.size() > kLongestToldText) throw usage_error("a text has {} bytes; expected at most {}", text.size(), kLongestToldText);
}

}  // namespace

struct CallRecorder::State {
  struct Output {
    uint32_t slot = 0;
    DType dtype = DType::f32;
    uint32_t rank = 0;
    uint64_t shape = 0;  // where it begins in `extents`
    CallLabel label;
    ValueKey gradient_of = {};
    int32_t gradient_input = -1;
    PackedRecord record;
    std::unique_ptr<UpdateCounts> update;
    std::unique_ptr<SumCounts> sum;
    std::optional<uint64_t> bits;
    std::vector<std::pair<TextNumber, double>> measures;
    std::vector<CaptureNode> capture;
    std::vector<std::pair<int64_t, double>> samples;  // elements and their values
  };
  enum class Progress : uint8_t { begun, ended, dropped };
  struct Call {
    TextNumber name, module, attributes, location;
    Phase phase;
    OpFunction function;
    OpKind kind;
    Progress progress = Progress::begun;
    bool inputs_told;
    uint32_t pass;
    uint64_t id, forward_id;
    uint64_t first_input;  // in `inputs`
    uint32_t inputs;
    std::optional<ProductShape> product;
    std::vector<Output> outputs;
  };
  struct Text {
    std::string text;
    uint64_t hash;
  };
  struct Batch {
    uint32_t source;
    std::vector<int64_t> samples;
  };
  struct Pass {
    Phase phase = Phase::forward;
    uint32_t micro_batch = 0;
    uint8_t loss_index = 0;
    std::vector<Batch> batches = {};
  };
  // An id stands for this, in every call.
  struct Identity {
    TextNumber name, module;
    Phase phase;
    OpFunction function;
    OpKind kind;
    bool operator==(const Identity&) const = default;
  };

  State(TraceSink& sink, RecorderOptions chosen) : recorder(sink, std::move(chosen)) { add_text(""); }

  TextNumber add_text(std::string_view text) {
    texts.push_back({std::string(text), hash_text(text)});
    const auto number = static_cast<TextNumber>(texts.size() - 1);
    by_text.emplace(texts.back().text, number);
    return number;
  }
  std::string_view text(TextNumber number) const { return texts[number].text; }
  void check_text(TextNumber number) const {
    if (number >= texts.size())
      throw usage_error("text {} is not known; expected one of the {} that were interned", number, texts.size());
  }
  std::string name_of_call(const Call& call) const {
    return call.module == 0 ? fmt::format("op '{}'", text(call.name))
                            : fmt::format("op '{}' in module '{}'", text(call.name), text(call.module));
  }
  // Throws where there is no such call in this step, or it was dropped.
  Call& find(CallToken token);
  Output& find(CallToken token, uint32_t slot, const Call*& call);
  // What a call of this step told last of the value; nullptr: none told of it.
  const Output* find(const ValueKey& value) const;
  void check_label(const Call& call, const CallLabel& label, DType dtype) const;
  void check_statistics(const Call& call, const Output& output, const OutputRecord& record) const;
  // Where the op is called, as next_op_id has it.
  uint64_t place_of(const BegunCall& begun) const;
  void require_step(std::string_view what) const {
    if (!in_step) throw usage_error("{}: expected a step that began", what);
  }
  std::span<const int64_t> shape_of_output(const Output& output) const { return {extents.data() + output.shape, output.rank}; }
  void find_loss(StepRow& row);
  void write_calls();
  void clear_step();

  mutable std::mutex mutex;
  Recorder recorder;
  std::deque<Text> texts;
  std::unordered_map<std::string_view, TextNumber> by_text;
  std::unordered_map<uint64_t, Identity> identities;  // by id
  std::unordered_set<uint64_t> loss_ops;              // by id: an output of theirs was a loss
  CallCounters counters;
  std::optional<uint64_t> last_step;
  bool in_step = false, settings_closed = false;
  std::string failure;        // why nothing more can be recorded, or ""
  CallToken first_token = 1;  // of this step; so are those that follow
  std::deque<Call> calls;
  std::unordered_map<uint64_t, size_t> last_calls;  // by id
  std::vector<ValueKey> inputs;
  std::vector<int64_t> extents;
  std::vector<uint8_t> histograms;
  std::vector<Pass> passes{1};
};

CallRecorder::CallRecorder(TraceSink& sink, RecorderOptions options) : state_(std::make_unique<State>(sink, std::move(options))) {}
CallRecorder::~CallRecorder() = default;

TextNumber CallRecorder::intern(std::string_view text) {
  check_length(text);
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  const auto known = state.by_text.find(text);
  return known != state.by_text.end() ? known->second : state.add_text(text);
}

void CallRecorder::add_setting(const SettingInfo& setting) {
  State& state = *state_;
  check_length(setting.name);
  check_length(setting.value);
  const std::lock_guard lock(state.mutex);
  if (state.settings_closed) throw usage_error("setting '{}': expected settings before the first step ends", setting.name);
  state.recorder.add_setting(setting);
}

void CallRecorder::add_source(const SourceInfo& source) {
  for (const std::string* const text : {&source.name, &source.part, &source.file, &source.inside, &source.columns})
    check_length(*text);
  if (const std::string problem = problem_of(source); !problem.empty()) throw usage_error("source {}: {}", source.source, problem);
  const std::lock_guard lock(state_->mutex);
  state_->recorder.add_source(source);
}

void CallRecorder::add_batch(uint32_t source, std::span<const int64_t> samples) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  state.require_step("a batch");
  if (std::any_of(samples.begin(), samples.end(), [](int64_t sample) { return sample < 0; }))
    throw usage_error("a batch has a sample below 0; expected numbers of samples, from 0");
  state.passes.back().batches.push_back({source, {samples.begin(), samples.end()}});
}

void CallRecorder::add_metric(std::string_view name, MetricKind kind, double value) {
  check_length(name);
  const std::lock_guard lock(state_->mutex);
  state_->recorder.add_metric(name, kind, value);
}
void CallRecorder::add_note(std::string_view text) {
  check_length(text);
  const std::lock_guard lock(state_->mutex);
  state_->recorder.add_note(text);
}
void CallRecorder::add_warning(std::string_view text) {
  check_length(text);
  const std::lock_guard lock(state_->mutex);
  state_->recorder.add_warning(text);
}

void CallRecorder::begin_step(uint64_t number) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (!state.failure.empty()) throw failed_error("{}", state.failure);
  if (number > kMostSteps) throw usage_error("step {}; expected at most 2^62", number);
  if (state.in_step) throw usage_error("step {} begins before step {} ended", number, *state.last_step);
  if (state.last_step && number <= *state.last_step)
    throw usage_error("step {} comes after step {}; expected growing numbers", number, *state.last_step);
  state.in_step = true;
  state.last_step = number;
  state.recorder.begin_step(number);
  state.counters.reset();
}

void CallRecorder::leave_out_ops() {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  state.require_step("leaving out its ops");
  state.recorder.leave_out_ops();
}

void CallRecorder::begin_pass(Phase phase, uint32_t micro_batch, uint32_t loss) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  state.require_step("a pass");
  if (loss > UINT8_MAX) throw usage_error("a pass of loss {}; expected at most {}", loss, UINT8_MAX);
  state.passes.push_back({phase, micro_batch, static_cast<uint8_t>(loss)});
  state.counters.reset();
}

CallRecorder::State::Call& CallRecorder::State::find(CallToken token) {
  if (token < first_token || token - first_token >= calls.size())
    throw usage_error("call {} is not one of this step; expected one from ulpscope_begin_op", token);
  Call& call = calls[token - first_token];
  if (call.progress == Progress::dropped) throw usage_error("{} was dropped", name_of_call(call));
  return call;
}

CallRecorder::State::Output& CallRecorder::State::find(CallToken token, uint32_t slot, const Call*& call) {
  Call& found = find(token);
  call = &found;
  const auto output =
      std::find_if(found.outputs.begin(), found.outputs.end(), [&](const Output& each) { return each.slot == slot; });
  if (output == found.outputs.end()) throw usage_error("{}: output {} was not told", name_of_call(found), slot);
  return *output;
}

uint64_t CallRecorder::State::place_of(const BegunCall& begun) const {
  if (begun.parameter != 0) return hash_combine(hash_text("parameter"), texts[begun.parameter].hash);
  return begun.forward_id != 0 ? begun.forward_id : texts[begun.module].hash;
}

CallToken CallRecorder::begin(const BegunCall& begun, uint64_t* id) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  for (const TextNumber text : {begun.name, begun.module, begun.attributes, begun.location, begun.parameter})
    state.check_text(text);
  if (begun.name == 0) throw usage_error("an op has no name");
  if (!state.in_step) state.require_step(fmt::format("op '{}'", state.text(begun.name)));
  const State::Pass& pass = state.passes.back();
  const Phase phase = begun.phase.value_or(pass.phase);
  State::Call call{begun.name,
                   begun.module,
                   begun.attributes,
                   begun.location,
                   phase,
                   begun.function,
                   begun.kind.value_or(kind_of(begun.function)),
                   State::Progress::begun,
                   begun.inputs_told,
                   static_cast<uint32_t>(state.passes.size() - 1),
                   0,
                   begun.forward_id,
                   state.inputs.size(),
                   static_cast<uint32_t>(begun.inputs.size()),
                   begun.product,
                   {}};
  OpInfo info;
  info.kind = call.kind;
  info.function = call.function;
  if (const std::string problem = problem_of(info); !problem.empty())
    throw usage_error("{}: {} is no {}: {}", state.name_of_call(call), name_of(call.function), name_of(call.kind), problem);
  if (begun.product) {
    const std::vector<int64_t> numbers = begun.product->numbers();
    if (std::any_of(numbers.begin(), numbers.end(), [](int64_t number) { return number < 0; }))
      throw usage_error("{}: the product {}; expected extents of at least 0", state.name_of_call(call), shape_text(numbers));
  }
  const uint64_t place = state.place_of(begun), name = state.texts[begun.name].hash;
  call.id = begun.id != 0 ? begun.id : next_op_id(state.counters, phase, place, name);
  const State::Identity identity{call.name, call.module, call.phase, call.function, call.kind};
  const auto [known, is_new] = state.identities.try_emplace(call.id, identity);
  if (!is_new && known->second != identity) {
    if (begun.id == 0) take_back_op_id(state.counters, phase, place, name);
    throw usage_error("{}: its id {:#x} is that of op '{}' in module '{}', phase {}; expected one id for each op",
                      state.name_of_call(call), call.id, state.text(known->second.name), state.text(known->second.module),
                      name_of(known->second.phase));
  }
  if (id != nullptr) *id = call.id;
  state.inputs.insert(state.inputs.end(), begun.inputs.begin(), begun.inputs.end());
  state.last_calls[call.id] = state.calls.size();
  state.calls.push_back(std::move(call));
  return state.first_token + state.calls.size() - 1;
}

void CallRecorder::end(CallToken token) {
  const std::lock_guard lock(state_->mutex);
  State::Call& call = state_->find(token);
  if (call.progress == State::Progress::ended) throw usage_error("{} ended twice", state_->name_of_call(call));
  call.progress = State::Progress::ended;
}

void CallRecorder::drop(CallToken token) {
  const std::lock_guard lock(state_->mutex);
  State::Call& call = state_->find(token);
  call.progress = State::Progress::dropped;
  call.outputs.clear();
}

StatisticsLevel CallRecorder::wanted(CallToken token) const {
  const std::lock_guard lock(state_->mutex);
  const State::Call& call = state_->find(token);
  return state_->recorder.wanted(state_->text(call.module), state_->text(call.name), call.phase);
}

uint64_t CallRecorder::id_of(CallToken token) const {
  const std::lock_guard lock(state_->mutex);
  return state_->find(token).id;
}

void CallRecorder::State::check_label(const Call& call, const CallLabel& label, DType dtype) const {
  check_text(label.parameter);
  check_text(label.name);
  TensorInfo info;
  info.role = label.role;
  info.dtype = dtype;
  thread_local TensorRow row;  // large, and nothing of it changes but the scale
  row.scale = label.scale;
  std::string problem = problem_of(info);
  if (problem.empty()) problem = problem_of(row);
  if (!problem.empty()) throw usage_error("{}: {}", name_of_call(call), problem);
}

void CallRecorder::State::check_statistics(const Call& call, const Output& output, const OutputRecord& record) const {
  TensorRow row;
  row.known = record.known;
  row.before_rounding = record.before_rounding;
  row.rounding_known = record.rounding_known;
  row.statistics = record.statistics;
  row.rounding = record.rounding;
  if (const std::string problem = problem_of(row); !problem.empty())
    throw usage_error("{}: output {}: {}", name_of_call(call), output.slot, problem);
  const int64_t elements = elements_in(shape_of_output(output));
  if (record.known != StatisticsLevel::none && record.statistics.count != static_cast<uint64_t>(elements))
    throw usage_error("{}: output {}: statistics of {} of a tensor of the shape {}", name_of_call(call), output.slot,
                      count_of(record.statistics.count, "element"), shape_text(shape_of_output(output)));
}

void CallRecorder::add_output(CallToken token, uint32_t slot, const HostTensor& tensor, const CallLabel& label,
                              const OutputRecord* statistics) {
  State& state = *state_;
  thread_local OutputRecord taken;  // large, and level health touches little of it
  taken.clear();
  taken.wanted = StatisticsLevel::none;
  taken.samples_wanted = 0;
  const TensorView view = folded(tensor);
  bool wants_bits = false;
  if (slot >= kMostSlots) throw usage_error("output {} of a call; expected at most {} outputs", slot, kMostSlots);
  {
    const std::lock_guard lock(state.mutex);
    const State::Call& call = state.find(token);
    state.check_label(call, label, tensor.dtype);
    wants_bits = view.data != nullptr && state.recorder.wants_bits(state.text(call.module), state.text(call.name), call.phase);
    if (statistics == nullptr) {
      taken.wanted = state.recorder.wanted(state.text(call.module), state.text(call.name), call.phase);
      if (taken.wanted == StatisticsLevel::values && state.recorder.wants_samples())
        taken.samples_wanted = OutputRecord::kMaxSamples;
      if (taken.wanted != StatisticsLevel::none && view.data == nullptr && view.size() > 0)
        throw usage_error("{}: output {}: expected its memory, or statistics", state.name_of_call(call), slot);
    }
  }
  // Outside of the lock: it reads all of the tensor.
  if (statistics == nullptr && is_float(tensor.dtype)) {
    collect_statistics(view, taken);
    collect_samples(view, taken);
  }
  std::optional<uint64_t> bits;
  if (wants_bits) bits = bit_hash_of(view);
  const std::lock_guard lock(state.mutex);
  State::Call& call = state.find(token);
  if (std::any_of(call.outputs.begin(), call.outputs.end(), [&](const State::Output& output) { return output.slot == slot; }))
    throw usage_error("{}: output {} was told twice", state.name_of_call(call), slot);
  State::Output output;
  output.slot = slot;
  output.dtype = tensor.dtype;
  output.rank = static_cast<uint32_t>(tensor.shape.size());
  output.shape = state.extents.size();
  output.label = label;
  output.bits = bits;
  state.extents.insert(state.extents.end(), tensor.shape.begin(), tensor.shape.end());
  try {
    if (statistics != nullptr) state.check_statistics(call, output, *statistics);
  } catch (const Error&) {
    state.extents.resize(output.shape);
    throw;
  }
  output.record = PackedRecord(statistics != nullptr ? *statistics : taken, state.histograms);
  for (int i = 0; i < taken.samples; ++i)
    output.samples.emplace_back(taken.sample_elements[static_cast<size_t>(i)], taken.sample_values[static_cast<size_t>(i)]);
  call.outputs.push_back(std::move(output));
}

void CallRecorder::set_label(CallToken token, uint32_t slot, const CallLabel& label) {
  const std::lock_guard lock(state_->mutex);
  const State::Call* call = nullptr;
  State::Output& output = state_->find(token, slot, call);
  state_->check_label(*call, label, output.dtype);
  output.label = label;
}

void CallRecorder::set_statistics(CallToken token, uint32_t slot, const OutputRecord& statistics) {
  const std::lock_guard lock(state_->mutex);
  const State::Call* call = nullptr;
  State::Output& output = state_->find(token, slot, call);
  state_->check_statistics(*call, output, statistics);
  output.record = PackedRecord(statistics, state_->histograms);
}

void CallRecorder::set_gradient_of(CallToken token, uint32_t slot, const ValueKey& value, int32_t input) {
  const std::lock_guard lock(state_->mutex);
  const State::Call* call = nullptr;
  State::Output& output = state_->find(token, slot, call);
  if (input < -1) throw usage_error("{}: output {} is a gradient through input {}", state_->name_of_call(*call), slot, input);
  output.gradient_of = value;
  output.gradient_input = input;
}

void CallRecorder::set_update(CallToken token, uint32_t slot, const UpdateCounts& update) {
  const std::lock_guard lock(state_->mutex);
  const State::Call* call = nullptr;
  State::Output& output = state_->find(token, slot, call);
  ParameterRow row;
  row.nonzero = update.nonzero;
  row.lost = update.lost;
  row.lost_to_decay = update.lost_to_decay;
  if (const std::string problem = problem_of(row); !problem.empty())
    throw usage_error("{}: the update of output {}: {}", state_->name_of_call(*call), slot, problem);
  if (const int64_t elements = elements_in(state_->shape_of_output(output)); update.nonzero > static_cast<uint64_t>(elements))
    throw usage_error("{}: the update of output {}: nonzero is {}; expected at most {}, its elements", state_->name_of_call(*call),
                      slot, update.nonzero, elements);
  if (update.weight_squares < 0 || update.update_squares < 0)
    throw usage_error("{}: the update of output {}: a sum of squares is below 0", state_->name_of_call(*call), slot);
  output.update = std::make_unique<UpdateCounts>(update);
}

void CallRecorder::set_sum(CallToken token, uint32_t slot, const SumCounts& sum) {
  const std::lock_guard lock(state_->mutex);
  const State::Call* call = nullptr;
  State::Output& output = state_->find(token, slot, call);
  if (!loses_terms(output.dtype))
    throw usage_error("{}: output {}: a sum of {}; expected f16 or bf16", state_->name_of_call(*call), slot,
                      info(output.dtype).name);
  if (const int64_t elements = elements_in(state_->shape_of_output(output)); sum.elements > static_cast<uint64_t>(elements))
    throw usage_error("{}: the sum of output {}: {} elements; expected at most {}", state_->name_of_call(*call), slot, sum.elements,
                      elements);
  if (const std::string problem = problem_of(SumRow{.counts = sum}); !problem.empty())
    throw usage_error("{}: the sum of output {}: {}", state_->name_of_call(*call), slot, problem);
  output.sum = std::make_unique<SumCounts>(sum);
}

void CallRecorder::set_measure(CallToken token, uint32_t slot, TextNumber name, double value) {
  const std::lock_guard lock(state_->mutex);
  const State::Call* call = nullptr;
  State::Output& output = state_->find(token, slot, call);
  state_->check_text(name);
  const std::string_view text = state_->text(name);
  if (text.empty()) throw usage_error("{}: a measure of output {} has no name", state_->name_of_call(*call), slot);
  if (!std::isfinite(value))
    throw usage_error("{}: {} of output {} is {}; expected a finite number", state_->name_of_call(*call), text, slot, value);
  output.measures.emplace_back(name, value);
}

const CallRecorder::State::Output* CallRecorder::State::find(const ValueKey& value) const {
  const auto call = last_calls.find(value.op);
  if (call == last_calls.end()) return nullptr;
  const std::vector<Output>& outputs = calls[call->second].outputs;
  const auto output = std::find_if(outputs.begin(), outputs.end(), [&](const Output& each) { return each.slot == value.slot; });
  return output == outputs.end() ? nullptr : &*output;
}

bool CallRecorder::wants_capture(CallToken token, uint32_t slot) const {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  const State::Call* call = nullptr;
  if (state.find(token, slot, call).record.is_stored_finite()) return false;
  const std::span inputs = std::span(state.inputs).subspan(call->first_input, call->inputs);
  return std::none_of(inputs.begin(), inputs.end(), [&](const ValueKey& input) {
    const State::Output* const read = state.find(input);
    return read != nullptr && input.op != call->id && !read->record.is_stored_finite();
  });
}

bool CallRecorder::was_finite(CallToken token, uint32_t slot) const {
  const std::lock_guard lock(state_->mutex);
  const State::Call* call = nullptr;
  const PackedRecord& record = state_->find(token, slot, call).record;
  return record.known() != StatisticsLevel::none && record.is_stored_finite();
}

void CallRecorder::set_capture(CallToken token, uint32_t slot, std::span<const ToldNode> nodes) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  const State::Call* call = nullptr;
  State::Output& output = state.find(token, slot, call);
  const auto refuse = [&](size_t node, const std::string& why) {
    throw usage_error("{}: the capture of output {}: node {}{}", state.name_of_call(*call), slot, node, why);
  };
  if (nodes.empty() || nodes.size() > kMostToldNodes)
    throw usage_error("{}: the capture of output {} has {}; expected 1 to {}", state.name_of_call(*call), slot,
                      count_of(nodes.size(), "node"), kMostToldNodes);
  std::vector<CaptureNode> capture;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const ToldNode& told = nodes[i];
    const int64_t elements = elements_in(told.shape);
    if (told.element < 0 || told.element >= elements)
      refuse(i, fmt::format(" is element {} of the shape {}", told.element, shape_text(told.shape)));
    if (i == 0 ? told.parent != -1 || told.operand != -1
               : told.parent < 0 || told.parent >= static_cast<int64_t>(i) || told.operand < 0)
      refuse(i, fmt::format(" is operand {} of node {}; expected an input of a node before it{}", told.operand, told.parent,
                            i == 0 ? ", and -1 and -1 of node 0" : ""));
    if (told.term < -1 || told.terms < 0) refuse(i, fmt::format(" is term {}, of {}", told.term, told.terms));
    if (i == 0 && std::isfinite(told.value)) refuse(i, fmt::format(" is {}; expected NaN or infinity", told.value));
    CaptureNode node;
    node.parent = told.parent;
    node.operand = told.operand;
    node.term = told.term;
    node.made_by = told.made_by;
    node.view = folded({.data = nullptr, .dtype = DType::f32, .shape = told.shape});
    node.element = told.element;
    node.value = told.value;
    node.overwritten = told.overwritten;
    node.terms = told.terms;
    capture.push_back(node);
  }
  capture.front().made_by = {call->id, slot};
  capture.front().follow = CaptureFollow::followed;
  capture.front().attributes_text = state.text(call->attributes);
  output.capture = std::move(capture);
}

void CallRecorder::State::write_calls() {
  size_t of_pass = 0, waiting = 0;
  std::vector<OutputDescription> descriptions;
  std::vector<std::string_view> names;
  for (const Call& call : calls) {
    // Rows are written in parts: a record is large, and a step may have 10^5 of them.
    if (waiting >= kOutputsAtATime || (waiting > 0 && call.pass != of_pass)) {
      recorder.end_pass();
      waiting = 0;
    }
    of_pass = call.pass;
    if (call.progress != Progress::ended) continue;
    const Pass& pass = passes[call.pass];
    const auto outputs = call.outputs.empty() ? 0
                                              : std::max_element(
                                                    call.outputs.begin(), call.outputs.end(),
                                                    [](const Output& a, const Output& b) {
                                                      return a.slot < b.slot;
                                                    })->slot +
                                                    size_t{1};
    // Slots that were not told are integers, which have no rows.
    descriptions.assign(outputs, {});
    for (OutputDescription& description : descriptions) description.view.dtype = DType::i64;
    for (const Output& output : call.outputs) {
      OutputDescription& description = descriptions[output.slot];
      description.view.dtype = output.dtype;
      description.shape = shape_of_output(output);
      description.role = output.label.role;
      description.parameter = text(output.label.parameter);
      description.name = text(output.label.name);
      description.scale = output.label.scale;
      description.gradient_of = output.gradient_of;
      description.gradient_input = output.gradient_input;
    }
    OpDescription op;
    op.name = text(call.name);
    op.module = text(call.module);
    op.phase = call.phase;
    op.id = call.id;
    op.forward_id = call.forward_id;
    op.function = call.function;
    op.kind = call.kind;
    op.micro_batch = pass.micro_batch;
    op.loss_index = pass.loss_index;
    op.attributes_text = text(call.attributes);
    op.location = text(call.location);
    op.product = call.product;
    op.inputs = {inputs.data() + call.first_input, call.inputs};
    op.inputs_told = call.inputs_told;
    op.outputs = descriptions;
    const std::span<OutputRecord* const> records = recorder.before(op);
    for (const Output& output : call.outputs) {
      if (output.slot >= records.size()) continue;
      OutputRecord& record = *records[output.slot];
      output.record.unpack(histograms, record.wanted, record);
      for (const auto& [element, value] : output.samples) {
        record.sample_elements[static_cast<size_t>(record.samples)] = element;
        record.sample_values[static_cast<size_t>(record.samples++)] = value;
      }
      if (output.update) {
        record.update = *output.update;
        record.update_known = true;
      }
      if (output.bits) record.bits = {record.bits.wanted, true, *output.bits};
      if (output.sum) recorder.add_sum(static_cast<int>(output.slot), *output.sum);
      for (const auto& [name, value] : output.measures) recorder.add_measure({call.id, output.slot}, text(name), value);
    }
    if (const std::optional<int> slot = recorder.after()) {
      const auto origin = std::find_if(call.outputs.begin(), call.outputs.end(),
                                       [&](const Output& output) { return output.slot == static_cast<uint32_t>(*slot); });
      if (origin != call.outputs.end() && !origin->capture.empty()) recorder.add_capture(*slot, origin->capture);
    }
    waiting += records.size();
  }
}

void CallRecorder::State::clear_step() {
  first_token += calls.size();
  calls.clear();
  last_calls.clear();
  inputs.clear();
  extents.clear();
  histograms.clear();
  passes.assign(1, {});
  in_step = false;
  settings_closed = true;
}

// A loop may give up a step because its loss is not finite, so that no backward pass tells the loss: what was the loss of another
// step has its value.
void CallRecorder::State::find_loss(StepRow& row) {
  for (const Call& call : calls)
    if (std::any_of(call.outputs.begin(), call.outputs.end(),
                    [](const Output& each) { return each.label.role == Role::loss && each.label.scale == 1; }))
      loss_ops.insert(call.id);
  if (row.loss_known) return;
  for (const Call& call : calls) {
    if (call.progress != Progress::ended || passes[call.pass].phase == Phase::evaluation || !loss_ops.contains(call.id)) continue;
    for (const Output& output : call.outputs) {
      const HealthCounts& counts = output.record.health();
      if (counts.count != 1 || output.record.nonfinite() == 0) continue;
      constexpr double kInf = std::numeric_limits<double>::infinity();
      row.loss = counts.nan > 0 ? std::nan("") : counts.positive_infinity > 0 ? kInf : -kInf;
      row.loss_known = true;
      return;
    }
  }
}

void CallRecorder::end_step(const StepRow& told) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  state.require_step("the end of a step");
  StepRow row = told;
  if (const std::string problem = problem_of(row); !problem.empty()) throw usage_error("step {}: {}", *state.last_step, problem);
  size_t open = 0;
  std::string first;
  for (const State::Call& call : state.calls) {
    if (call.progress != State::Progress::begun) continue;
    if (open++ == 0) first = state.name_of_call(call);
  }
  try {
    for (const State::Pass& pass : state.passes)
      for (const State::Batch& batch : pass.batches)
        state.recorder.add_batch(pass.phase == Phase::evaluation ? Phase::evaluation : Phase::forward, pass.micro_batch,
                                 batch.source, batch.samples);
    state.find_loss(row);
    state.write_calls();
    state.recorder.end_step(row);
  } catch (const std::exception& error) {
    state.failure = fmt::format("recording stopped in step {}: {}", *state.last_step, error.what());
    state.clear_step();
    throw failed_error("{}", state.failure);
  }
  const uint64_t number = *state.last_step;
  state.clear_step();
  if (open > 0)
    throw usage_error("step {}: {} did not end{}; left out", number, first,
                      open > 1 ? fmt::format(", nor did {}", count_of(open - 1, "other op")) : "");
}

void CallRecorder::trigger(std::string_view why) {
  check_length(why);
  const std::lock_guard lock(state_->mutex);
  state_->recorder.trigger(why);
}

void CallRecorder::finish() {
  const std::lock_guard lock(state_->mutex);
  state_->recorder.finish();
}

SinkStatus CallRecorder::status() const {
  const std::lock_guard lock(state_->mutex);
  SinkStatus status = state_->recorder.status();
  if (!status.failed && !state_->failure.empty()) {
    status.failed = true;
    status.failure = state_->failure;
  }
  return status;
}
bool CallRecorder::stop_requested() const {
  const std::lock_guard lock(state_->mutex);
  return state_->recorder.stop_requested();
}
std::string CallRecorder::stop_reason() const {
  const std::lock_guard lock(state_->mutex);
  return state_->recorder.stop_reason();
}

}  // namespace ulpscope
