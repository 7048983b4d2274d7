#include "ulpscope/recorder/ulpscope.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/recorder/call_recorder.h"
#include "ulpscope/recorder/new_run.h"
#include "ulpscope/trace/row_problem.h"

using namespace ulpscope;

struct ulpscope_recorder {
  std::unique_ptr<TraceSink> sink;
  std::unique_ptr<CallRecorder> calls;
  std::atomic<uint64_t> refused = 0;
};

namespace {

thread_local std::string last_error;

int failed_with(int code, const char* function, std::string_view what) {
  try {
    last_error = fmt::format("{}: {}", function, what).substr(0, 1000);
  } catch (...) {
    last_error.clear();  // no memory for the text
  }
  return code;
}

// Runs `body`; an exception becomes a code and the thread's last error.
template <typename Body>
int guarded(const char* function, Body&& body) noexcept {
  try {
    body();
    return ULPSCOPE_OK;
  } catch (const Error& error) {
    const bool is_refused = error.kind() == ErrorKind::usage;
    return failed_with(is_refused ? ULPSCOPE_REFUSED : ULPSCOPE_FAILED, function, error.what());
  } catch (const std::exception& error) {
    return failed_with(ULPSCOPE_FAILED, function, error.what());
  } catch (...) {
    return failed_with(ULPSCOPE_FAILED, function, "an unknown error");
  }
}

template <typename Body>
int with(ulpscope_recorder* recorder, const char* function, Body&& body) noexcept {
  const int code = guarded(function, [&] {
    if (recorder == nullptr) throw usage_error("expected a recorder, got NULL");
    body(*recorder->calls);
  });
  if (code == ULPSCOPE_REFUSED && recorder != nullptr) ++recorder->refused;
  return code;
}

// The size of a struct when ULPSCOPE_ABI became what it is: a caller that was built then has no more. Members that are appended
// leave it.
template <typename Struct>
constexpr size_t kFirstSize = sizeof(Struct);
template <>
constexpr size_t kFirstSize<ulpscope_options> = offsetof(ulpscope_options, keep_last);

template <typename Struct>
uint32_t size_of(const Struct* given, const char* what) {
  if (given == nullptr) throw usage_error("expected {}, got NULL", what);
  uint32_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size < kFirstSize<Struct> || size > 64 * sizeof(Struct))
    throw usage_error("{} has the size {}; expected sizeof of it, {}", what, size, sizeof(Struct));
  return size;
}

// Members that a caller of an older version does not have are zero. A caller of a newer version may have filled in what is not
// known here: that is refused, since what it asks for would not be done.
template <typename Struct>
Struct read(const Struct* given, const char* what) {
  const size_t size = size_of(given, what);
  Struct copy{};
  std::memcpy(static_cast<void*>(&copy), given, std::min(size, sizeof copy));
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  const size_t known = std::min(size, sizeof copy);
  if (std::any_of(bytes + known, bytes + size, [](unsigned char byte) { return byte != 0; }))
    throw usage_error("{} has members that this version, {}, does not know, and they are not 0", what, ULPSCOPE_VERSION);
  return copy;
}

const char* text_or_empty(const char* text) {
  if (text == nullptr) return "";
  if (strnlen(text, kLongestToldText + 1) > kLongestToldText)
    throw usage_error("a text is longer than {} bytes; expected none", kLongestToldText);
  return text;
}

template <typename Enum>
Enum enumerator(int32_t number, int count, const char* what) {
  if (number < 0 || number >= count) throw usage_error("{} {}; expected one from 0 to {}", what, number, count - 1);
  return static_cast<Enum>(number);
}

template <typename Enum>
int32_t number_named(const char* name, int count) {
  for (int i = 0; name != nullptr && i < count; ++i)
    if (std::string_view(name) == name_of(static_cast<Enum>(i))) return i;
  return -1;
}

constexpr int64_t kMostHeldSteps = 1'000'000;

constexpr int kTypes = static_cast<int>(kDTypes.size());

std::vector<std::string> split(const char* list) {
  std::vector<std::string> parts;
  std::istringstream stream{text_or_empty(list)};
  for (std::string part; std::getline(stream, part, ',');)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

RecorderOptions options_of(const ulpscope_options& given) {
  RecorderOptions options;
  if (given.level != nullptr) {
    std::string_view level = given.level;
    constexpr std::string_view kWithBits = ",bits";
    options.bits = level.ends_with(kWithBits);
    if (options.bits) level.remove_suffix(kWithBits.size());
    const auto is_level = [&](RecordLevel each) { return level == name_of(each); };
    constexpr RecordLevel kLevels[] = {RecordLevel::health, RecordLevel::stats, RecordLevel::full};
    const auto found = std::find_if(std::begin(kLevels), std::end(kLevels), is_level);
    if (found == std::end(kLevels))
      throw usage_error("level '{}'; expected health, stats or full, or one of them with ',bits'", given.level);
    options.level = *found;
  }
  if (given.every < 0) throw usage_error("every {}; expected at least 1", given.every);
  options.every = std::max<int64_t>(given.every, 1);
  options.modules = split(given.modules);
  options.ops = split(given.ops);
  for (const std::string& name : split(given.phases)) {
    const int32_t phase = number_named<Phase>(name.c_str(), kPhases);
    if (phase < 0) throw usage_error("phase '{}'; expected one of docs/trace_format.md, as forward or backward", name);
    options.phases.push_back(static_cast<Phase>(phase));
  }
  options.max_bytes = given.max_bytes;
  if (given.stop_on != nullptr) {
    constexpr StopOn kStops[] = {StopOn::nan, StopOn::overflow, StopOn::backoff};
    const auto found = std::find_if(std::begin(kStops), std::end(kStops),
                                    [&](StopOn stop) { return std::string_view(given.stop_on) == name_of(stop); });
    if (found == std::end(kStops)) throw usage_error("stop_on '{}'; expected nan, overflow or backoff", given.stop_on);
    options.stop_on = *found;
    options.ends_training = false;
  }
  if (given.keep_last < 0 || given.keep_last > kMostHeldSteps)
    throw usage_error("keep_last {}; expected 1 to {}, or 0", given.keep_last, kMostHeldSteps);
  if (given.after < 0) throw usage_error("after {}; expected at least 0", given.after);
  options.keep_last = given.keep_last;
  options.after = given.after;
  options.on = triggers_of(split(given.on));
  return options;
}

RunInfo run_of(const ulpscope_run& given, const ulpscope_options& options, const RecorderOptions& chosen) {
  RunInfo run;
  run.run_id = text_or_empty(given.run_id);
  const bool is_id = run.run_id.size() <= 64 && std::all_of(run.run_id.begin(), run.run_id.end(),
                                                            [](unsigned char c) { return c < 128 && std::isalnum(c) != 0; });
  if (!is_id) throw usage_error("run_id '{}'; expected at most 64 letters and digits", run.run_id);
  if (run.run_id.empty()) run.run_id = new_run_id();
  run.producer = text_or_empty(given.producer);
  run.producer_version = text_or_empty(given.producer_version);
  run.experiment_name = text_or_empty(given.name);
  run.precision = text_or_empty(given.precision);
  run.backend = text_or_empty(given.backend);
  run.machine = text_or_empty(given.machine);
  run.seed = given.seed;
  run.rank = given.rank;
  run.world_size = given.world_size == 0 ? 1 : given.world_size;
  run.dynamic_loss_scale = given.dynamic_loss_scale != 0;
  run.growth_factor = given.growth_factor;
  run.backoff_factor = given.backoff_factor;
  run.growth_interval = given.growth_interval;
  run.level = chosen.level;
  run.every = chosen.every;
  for (const auto& [name, list] : {std::pair{"modules", options.modules}, {"ops", options.ops}, {"phases", options.phases}})
    if (list != nullptr && *list != 0) run.filters += fmt::format("{}{}={}", run.filters.empty() ? "" : " ", name, list);
  run.started = utc_now();
  if (const std::string problem = problem_of(run); !problem.empty()) throw usage_error("the run: {}", problem);
  return run;
}

HostTensor tensor_of(const ulpscope_tensor& given) {
  if (given.rank < 0) throw usage_error("a tensor of rank {}; expected at least 0", given.rank);
  const auto rank = static_cast<size_t>(given.rank);
  if (rank > 0 && given.shape == nullptr) throw usage_error("a tensor of rank {} without a shape", rank);
  HostTensor tensor;
  tensor.data = given.data;
  tensor.dtype = enumerator<DType>(given.dtype, kTypes, "data type");
  tensor.shape = {given.shape, rank};
  if (given.strides != nullptr) tensor.strides = {given.strides, rank};
  return tensor;
}

CallLabel label_of(const ulpscope_label* given) {
  CallLabel label;
  if (given == nullptr) return label;
  const ulpscope_label copy = read(given, "a label");
  if (copy.role != -1) label.role = enumerator<Role>(copy.role, kRoles, "role");
  label.parameter = copy.parameter;
  label.name = copy.name;
  label.scale = copy.scale == 0 ? 1.0 : copy.scale;
  return label;
}

static_assert(std::extent_v<decltype(ulpscope_statistics::bins)> == ExponentHistogram::kBins);

// Calls visit(theirs, ours) for each count of the two structs that is known: one list serves both directions.
template <typename Theirs, typename Ours, typename Visit>
void visit_counts(Theirs& theirs, Ours& ours, const Visit& visit) {
  auto& statistics = ours.statistics;
  visit(theirs.count, statistics.count);
  visit(theirs.nan, statistics.nan);
  visit(theirs.positive_infinity, statistics.positive_infinity);
  visit(theirs.negative_infinity, statistics.negative_infinity);
  visit(theirs.zeros, statistics.zeros);
  if (ours.known == StatisticsLevel::values) {
    visit(theirs.negatives, statistics.negatives);
    visit(theirs.smallest, statistics.smallest);
    visit(theirs.largest, statistics.largest);
    visit(theirs.sum, statistics.sum);
    visit(theirs.sum_of_squares, statistics.sum_of_squares);
    for (size_t bin = 0; bin < statistics.histogram.bins.size(); ++bin) visit(theirs.bins[bin], statistics.histogram.bins[bin]);
    visit(theirs.below_range, statistics.histogram.below_range);
    visit(theirs.above_range, statistics.histogram.above_range);
  }
  if (!ours.rounding_known) return;
  visit(theirs.flushed, ours.rounding.flushed);
  visit(theirs.subnormal, ours.rounding.subnormal);
  visit(theirs.inexact_subnormal, ours.rounding.inexact_subnormal);
  visit(theirs.overflowed, ours.rounding.overflowed);
  visit(theirs.rescued, ours.rounding.rescued);
  visit(theirs.saturated, ours.rounding.saturated);
}

OutputRecord record_of(const ulpscope_statistics& given) {
  if (given.known > 2) throw usage_error("statistics of which {} is known; expected 0, 1 or 2", given.known);
  OutputRecord record;
  record.known = static_cast<StatisticsLevel>(given.known);
  record.before_rounding = given.before_rounding != 0;
  record.rounding_known = given.rounding_known != 0;
  visit_counts(given, record, [](const auto& theirs, auto& ours) { ours = theirs; });
  return record;
}

void write(const OutputRecord& record, ulpscope_statistics* statistics) {
  ulpscope_statistics to{};
  to.size = size_of(statistics, "statistics");
  to.known = static_cast<uint8_t>(record.known);
  to.before_rounding = record.before_rounding;
  to.rounding_known = record.rounding_known;
  visit_counts(to, record, [](auto& theirs, const auto& ours) { theirs = ours; });
  std::memcpy(static_cast<void*>(statistics), &to, std::min<size_t>(to.size, sizeof to));
}

// Valid until this thread asks again.
std::span<const ValueKey> keys_of(const ulpscope_value* values, uint32_t count) {
  if (count > 0 && values == nullptr) throw usage_error("{} inputs without a list of them", count);
  thread_local std::vector<ValueKey> keys;
  keys.clear();
  for (uint32_t i = 0; i < count; ++i) keys.push_back({values[i].op, values[i].slot});
  return keys;
}

}  // namespace

uint32_t ulpscope_abi() { return ULPSCOPE_ABI; }
const char* ulpscope_version() { return ULPSCOPE_VERSION; }
const char* ulpscope_last_error() { return last_error.c_str(); }

int32_t ulpscope_phase(const char* name) { return number_named<Phase>(name, kPhases); }
int32_t ulpscope_role(const char* name) { return number_named<Role>(name, kRoles); }
int32_t ulpscope_function(const char* name) { return number_named<OpFunction>(name, kOpFunctions); }
int32_t ulpscope_kind(const char* name) { return number_named<OpKind>(name, kOpKinds); }
int32_t ulpscope_setting_kind(const char* name) { return number_named<SettingKind>(name, kSettingKinds); }
int32_t ulpscope_metric_kind(const char* name) { return number_named<MetricKind>(name, kMetricKinds); }
int32_t ulpscope_dtype(const char* name) {
  for (int i = 0; name != nullptr && i < kTypes; ++i)
    if (kDTypes[static_cast<size_t>(i)].name == std::string_view(name)) return i;
  return -1;
}

int ulpscope_open(const ulpscope_run* run, const ulpscope_options* options, ulpscope_recorder** recorder) {
  return guarded("ulpscope_open", [&] {
    if (recorder == nullptr) throw usage_error("expected where to put the recorder, got NULL");
    *recorder = nullptr;
    const ulpscope_run described = read(run, "a run");
    const ulpscope_options given = read(options, "options");
    if (given.path == nullptr || *given.path == 0) throw usage_error("options.path: expected the name of a file");
    const RecorderOptions chosen = options_of(given);
    TraceOptions how;
    how.overwrite = given.overwrite != 0;
    std::error_code error;
    if (!how.overwrite && std::filesystem::exists(given.path, error))
      throw usage_error("'{}' exists; options.overwrite replaces it", given.path);
    auto made = std::make_unique<ulpscope_recorder>();
    made->sink = create_trace(given.path, run_of(described, given, chosen), how);
    made->calls = std::make_unique<CallRecorder>(*made->sink, chosen);
    *recorder = made.release();
  });
}

int ulpscope_close(ulpscope_recorder* recorder) {
  const std::unique_ptr<ulpscope_recorder> owned(recorder);
  return guarded("ulpscope_close", [&] {
    if (!owned) return;
    owned->calls->finish();
    if (!owned->sink->close()) throw failed_error("{}", owned->sink->status().failure);
  });
}

int ulpscope_get_status(ulpscope_recorder* recorder, ulpscope_status* status) {
  return with(recorder, "ulpscope_get_status", [&](CallRecorder& calls) {
    ulpscope_status to{};
    to.size = size_of(status, "a status");
    const SinkStatus from = calls.status();
    to.failed = from.failed;
    to.stop = calls.stop_requested();
    to.bytes = from.bytes;
    to.committed_steps = from.committed_steps;
    to.tensor_rows = from.tensor_rows;
    to.refused = recorder->refused;
    to.queue_fill = from.queue_fill;
    const std::string why = from.failed ? from.failure : calls.stop_reason();
    why.copy(to.why, sizeof to.why - 1);
    std::memcpy(static_cast<void*>(status), &to, std::min<size_t>(to.size, sizeof to));
  });
}

int ulpscope_flush(ulpscope_recorder* recorder) {
  return with(recorder, "ulpscope_flush", [&](CallRecorder&) {
    if (!recorder->sink->flush()) throw failed_error("{}", recorder->sink->status().failure);
  });
}

int ulpscope_intern(ulpscope_recorder* recorder, const char* text, size_t bytes, ulpscope_text* number) {
  return with(recorder, "ulpscope_intern", [&](CallRecorder& calls) {
    if ((text == nullptr && bytes > 0) || number == nullptr)
      throw usage_error("expected a text and where to put its number, got NULL");
    *number = calls.intern({text, bytes});
  });
}

int ulpscope_setting(ulpscope_recorder* recorder, const char* name, const char* value, int32_t kind, int given) {
  return with(recorder, "ulpscope_setting", [&](CallRecorder& calls) {
    if (name == nullptr || *name == 0) throw usage_error("expected the name of a setting");
    calls.add_setting({name, text_or_empty(value), enumerator<SettingKind>(kind, kSettingKinds, "kind of setting"), given != 0});
  });
}

int ulpscope_source(ulpscope_recorder* recorder, const ulpscope_data* data) {
  return with(recorder, "ulpscope_source", [&](CallRecorder& calls) {
    const ulpscope_data given = read(data, "a data set");
    SourceInfo source;
    source.source = given.number;
    source.name = text_or_empty(given.name);
    source.part = text_or_empty(given.part);
    source.file = text_or_empty(given.file);
    source.inside = text_or_empty(given.inside);
    source.columns = text_or_empty(given.columns);
    source.first_sample = given.first_sample;
    source.samples = given.samples;
    source.first_row = given.first_row;
    source.row_step = given.row_step;
    source.first_byte = given.first_byte;
    source.byte_step = given.byte_step;
    calls.add_source(source);
  });
}

int ulpscope_batch(ulpscope_recorder* recorder, uint32_t source, const int64_t* samples, size_t count) {
  return with(recorder, "ulpscope_batch", [&](CallRecorder& calls) {
    if (count > 0 && samples == nullptr) throw usage_error("{} samples without a list of them", count);
    if (count > UINT32_MAX) throw usage_error("{} samples; expected at most {}", count, UINT32_MAX);
    calls.add_batch(source, {samples, count});
  });
}

int ulpscope_metric(ulpscope_recorder* recorder, const char* name, int32_t kind, double value) {
  return with(recorder, "ulpscope_metric", [&](CallRecorder& calls) {
    if (name == nullptr || *name == 0) throw usage_error("expected the name of a metric");
    calls.add_metric(name, enumerator<MetricKind>(kind, kMetricKinds, "kind of metric"), value);
  });
}

int ulpscope_note(ulpscope_recorder* recorder, const char* text) {
  return with(recorder, "ulpscope_note", [&](CallRecorder& calls) { calls.add_note(text_or_empty(text)); });
}
int ulpscope_warning(ulpscope_recorder* recorder, const char* text) {
  return with(recorder, "ulpscope_warning", [&](CallRecorder& calls) { calls.add_warning(text_or_empty(text)); });
}

int ulpscope_begin_step(ulpscope_recorder* recorder, uint64_t number) {
  return with(recorder, "ulpscope_begin_step", [&](CallRecorder& calls) { calls.begin_step(number); });
}

int ulpscope_leave_out_ops(ulpscope_recorder* recorder) {
  return with(recorder, "ulpscope_leave_out_ops", [&](CallRecorder& calls) { calls.leave_out_ops(); });
}

int ulpscope_trigger(ulpscope_recorder* recorder, const char* why) {
  return with(recorder, "ulpscope_trigger", [&](CallRecorder& calls) { calls.trigger(text_or_empty(why)); });
}

int ulpscope_begin_pass(ulpscope_recorder* recorder, int32_t phase, uint32_t micro_batch, uint32_t loss) {
  return with(recorder, "ulpscope_begin_pass",
              [&](CallRecorder& calls) { calls.begin_pass(enumerator<Phase>(phase, kPhases, "phase"), micro_batch, loss); });
}

int ulpscope_end_step(ulpscope_recorder* recorder, const ulpscope_step* step) {
  return with(recorder, "ulpscope_end_step", [&](CallRecorder& calls) {
    const ulpscope_step given = read(step, "a step");
    StepRow row;
    if (given.known & ULPSCOPE_KNOWS_LOSS) {
      row.loss = given.loss;
      row.loss_known = true;
    }
    if (given.known & ULPSCOPE_KNOWS_LEARNING_RATE) row.learning_rate = given.learning_rate;
    if (given.known & ULPSCOPE_KNOWS_SCALE) {
      row.scale_before = given.scale_before;
      row.scale_after = given.scale_after;
    }
    if (given.known & ULPSCOPE_KNOWS_NORM) {
      row.gradient_norm = given.gradient_norm;
      row.clipped_gradient_norm = given.clipped_gradient_norm;
      row.norm_known = true;
    }
    row.seconds = given.seconds;
    row.peak_memory = given.peak_memory;
    row.skipped = given.skipped != 0;
    calls.end_step(row);
  });
}

int ulpscope_begin_op(ulpscope_recorder* recorder, const ulpscope_call* call, ulpscope_op* op, uint64_t* id) {
  return with(recorder, "ulpscope_begin_op", [&](CallRecorder& calls) {
    if (op == nullptr) throw usage_error("expected where to put the op, got NULL");
    *op = 0;
    const ulpscope_call given = read(call, "a call");
    BegunCall begun;
    begun.name = given.name;
    begun.module = given.module;
    begun.attributes = given.attributes;
    begun.location = given.location;
    begun.parameter = given.parameter;
    if (given.phase != -1) begun.phase = enumerator<Phase>(given.phase, kPhases, "phase");
    if (given.function != -1) begun.function = enumerator<OpFunction>(given.function, kOpFunctions, "function");
    if (given.kind != -1) begun.kind = enumerator<OpKind>(given.kind, kOpKinds, "kind");
    begun.id = given.id;
    begun.forward_id = given.forward_id;
    begun.inputs = keys_of(given.inputs, given.inputs_count);
    begun.inputs_told = given.inputs_unknown == 0;
    if (given.product != nullptr) {
      const int64_t* const numbers = given.product;
      if (std::any_of(numbers, numbers + 4, [](int64_t number) { return number < 0; }) || numbers[4] < 0 || numbers[4] > 1)
        throw usage_error("the product {}, {}, {}, {}, {}; expected M, N, K, how many, and 0 or 1", numbers[0], numbers[1],
                          numbers[2], numbers[3], numbers[4]);
      begun.product = ProductShape{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4] == 1};
    }
    *op = calls.begin(begun, id);
  });
}

int ulpscope_end_op(ulpscope_recorder* recorder, ulpscope_op op) {
  return with(recorder, "ulpscope_end_op", [&](CallRecorder& calls) { calls.end(op); });
}
int ulpscope_drop_op(ulpscope_recorder* recorder, ulpscope_op op) {
  return with(recorder, "ulpscope_drop_op", [&](CallRecorder& calls) { calls.drop(op); });
}
int ulpscope_output(ulpscope_recorder* recorder, ulpscope_op op, uint32_t slot, const ulpscope_tensor* tensor,
                    const ulpscope_label* label, const ulpscope_statistics* statistics) {
  return with(recorder, "ulpscope_output", [&](CallRecorder& calls) {
    const ulpscope_tensor given = read(tensor, "a tensor");
    std::optional<OutputRecord> record;
    if (statistics != nullptr) record = record_of(read(statistics, "statistics"));
    calls.add_output(op, slot, tensor_of(given), label_of(label), record ? &*record : nullptr);
  });
}

int ulpscope_wants_statistics(ulpscope_recorder* recorder, ulpscope_op op, uint8_t* level) {
  return with(recorder, "ulpscope_wants_statistics", [&](CallRecorder& calls) {
    if (level == nullptr) throw usage_error("expected where to put the answer, got NULL");
    *level = static_cast<uint8_t>(calls.wanted(op));
  });
}

int ulpscope_set_label(ulpscope_recorder* recorder, ulpscope_op op, uint32_t slot, const ulpscope_label* label) {
  return with(recorder, "ulpscope_set_label", [&](CallRecorder& calls) { calls.set_label(op, slot, label_of(label)); });
}

int ulpscope_fill(ulpscope_recorder* recorder, ulpscope_op op, uint32_t slot, const ulpscope_statistics* statistics) {
  return with(recorder, "ulpscope_fill",
              [&](CallRecorder& calls) { calls.set_statistics(op, slot, record_of(read(statistics, "statistics"))); });
}

int ulpscope_set_gradient_of(ulpscope_recorder* recorder, ulpscope_op op, uint32_t slot, ulpscope_value value, int32_t input) {
  return with(recorder, "ulpscope_set_gradient_of", [&](CallRecorder& calls) {
    calls.set_gradient_of(op, slot, {value.op, value.slot}, input);
  });
}

int ulpscope_set_update(ulpscope_recorder* recorder, ulpscope_op op, uint32_t slot, const ulpscope_update* update) {
  return with(recorder, "ulpscope_set_update", [&](CallRecorder& calls) {
    const ulpscope_update given = read(update, "an update");
    const ulpscope_tensor before = read(given.before, "the weight before the update"),
                          after = read(given.after, "the weight after the update");
    ulpscope_tensor gradient{}, asked{};
    HostUpdate described;
    described.learning_rate = given.learning_rate;
    described.before = tensor_of(before);
    described.after = tensor_of(after);
    if (given.gradient != nullptr) described.gradient = tensor_of(gradient = read(given.gradient, "the gradient"));
    if (given.update != nullptr) described.update = tensor_of(asked = read(given.update, "the update"));
    calls.set_update(op, slot, count_update(described));
  });
}

int ulpscope_fill_update(ulpscope_recorder* recorder, ulpscope_op op, uint32_t slot, const ulpscope_update_counts* counts) {
  return with(recorder, "ulpscope_fill_update", [&](CallRecorder& calls) {
    const ulpscope_update_counts given = read(counts, "counts of an update");
    UpdateCounts update;
    update.nonzero = given.nonzero;
    update.lost = given.lost;
    update.learning_rate = given.learning_rate;
    update.weight_squares = given.weight_squares;
    update.update_squares = given.update_squares;
    update.gradient_dot_update = given.gradient_dot_update;
    calls.set_update(op, slot, update);
  });
}

int ulpscope_set_addition(ulpscope_recorder* recorder, ulpscope_op op, uint32_t slot, const ulpscope_addition* addition) {
  return with(recorder, "ulpscope_set_addition", [&](CallRecorder& calls) {
    const ulpscope_addition given = read(addition, "an addition");
    const ulpscope_tensor before = read(given.before, "the sum before the addition"), addend = read(given.addend, "the addend"),
                          after = read(given.after, "the sum after the addition");
    calls.set_sum(op, slot, count_addition(tensor_of(before), tensor_of(addend), given.factor, tensor_of(after)));
  });
}

int ulpscope_set_measure(ulpscope_recorder* recorder, ulpscope_op op, uint32_t slot, ulpscope_text name, double value) {
  return with(recorder, "ulpscope_set_measure", [&](CallRecorder& calls) { calls.set_measure(op, slot, name, value); });
}

int ulpscope_take_statistics(const ulpscope_tensor* tensor, int level, ulpscope_statistics* statistics) {
  return guarded("ulpscope_take_statistics", [&] {
    if (level != 1 && level != 2) throw usage_error("level {}; expected 1 or 2", level);
    const ulpscope_tensor given = read(tensor, "a tensor");
    const TensorView view = folded(tensor_of(given));
    if (view.data == nullptr && view.size() > 0) throw usage_error("a tensor without memory");
    OutputRecord record;
    record.wanted = static_cast<StatisticsLevel>(level);
    collect_statistics(view, record);
    write(record, statistics);
  });
}

int ulpscope_take_cast(const ulpscope_tensor* from, const ulpscope_tensor* to, double scale, ulpscope_statistics* statistics) {
  return guarded("ulpscope_take_cast", [&] {
    const ulpscope_tensor source = read(from, "what is cast"), result = read(to, "the cast");
    write(count_cast(tensor_of(source), tensor_of(result), scale == 0 ? 1.0 : scale), statistics);
  });
}

int ulpscope_wants_capture(ulpscope_recorder* recorder, ulpscope_op op, uint32_t slot, uint8_t* wanted) {
  return with(recorder, "ulpscope_wants_capture", [&](CallRecorder& calls) {
    if (wanted == nullptr) throw usage_error("expected where to put the answer, got NULL");
    *wanted = calls.wants_capture(op, slot);
  });
}

int ulpscope_was_finite(ulpscope_recorder* recorder, ulpscope_op op, uint32_t slot, uint8_t* was_finite) {
  return with(recorder, "ulpscope_was_finite", [&](CallRecorder& calls) {
    if (was_finite == nullptr) throw usage_error("expected where to put the answer, got NULL");
    *was_finite = calls.was_finite(op, slot);
  });
}

int ulpscope_set_capture(ulpscope_recorder* recorder, ulpscope_op op, uint32_t slot, const ulpscope_node* nodes, uint32_t count) {
  return with(recorder, "ulpscope_set_capture", [&](CallRecorder& calls) {
    if (count > 0 && nodes == nullptr) throw usage_error("{} nodes without a list of them", count);
    if (count > kMostToldNodes) throw usage_error("{} nodes; expected at most {}", count, kMostToldNodes);
    std::vector<ToldNode> told;
    // A program that was built with another version has structs of another size, one behind the other.
    const auto* at = reinterpret_cast<const char*>(nodes);
    for (uint32_t i = 0; i < count; ++i) {
      const auto* const given = reinterpret_cast<const ulpscope_node*>(at);
      const ulpscope_node node = read(given, "a node");
      at += node.size;
      if (node.rank < 0 || (node.rank > 0 && node.shape == nullptr)) throw usage_error("node {} has no shape", i);
      told.push_back({node.parent,
                      node.operand,
                      node.term,
                      {node.made_by.op, node.made_by.slot},
                      {node.shape, static_cast<size_t>(node.rank)},
                      node.element,
                      node.value,
                      node.overwritten != 0,
                      node.terms});
    }
    calls.set_capture(op, slot, told);
  });
}
