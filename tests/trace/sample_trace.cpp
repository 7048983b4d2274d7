#include "sample_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

#include "ulpscope/base/hash.h"
#include "ulpscope/base/philox.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::trace_test {

namespace {

constexpr int kOps = 5, kTensors = 7, kRowsPerStep = 41;
// All but stopped: its text would be the closing note.
constexpr EventKind kKinds[] = {EventKind::scale_growth, EventKind::nonfinite, EventKind::warning, EventKind::metric};

// Draws one after the other from the numbers of one stream.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t stream) : random_(seed, stream) {}
  uint32_t below(uint32_t bound) { return random_.below(next_++, bound); }
  uint64_t bits() {
    const uint64_t high = random_.bits(next_++);
    return high << 32 | random_.bits(next_++);
  }
  // Of any size up to 64 bits, often zero.
  uint64_t count() { return below(3) == 0 ? 0 : bits() >> below(64); }
  // Of elements: 300 of them are no more than a tensor may have.
  uint64_t elements() { return count() >> 25; }
  // At most `whole`.
  uint64_t part(uint64_t whole) { return bits() % (whole + 1); }
  // Positive, of any size; neither it nor its reciprocal is infinite or subnormal.
  double factor() { return std::ldexp(1 + 0x1p-32 * static_cast<double>(bits() >> 32), static_cast<int>(below(2000)) - 1000); }
  double value() {
    switch (below(8)) {
      case 0:
        return std::numeric_limits<double>::quiet_NaN();
      case 1:
        return -std::numeric_limits<double>::infinity();
      case 2:
        return -0.0;
      case 3:
        return std::numeric_limits<double>::denorm_min();
      default:
        return std::ldexp(static_cast<double>(bits()), static_cast<int>(below(200)) - 100);
    }
  }

 private:
  Philox random_;
  uint64_t next_ = 0;
};

using Fields = std::vector<std::pair<std::string_view, std::string>>;

std::string text_of(const std::string& text) {
  std::string encoded;
  for (const char c : text) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-' || c == '~';
    encoded += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<uint8_t>(c));
  }
  return encoded;
}
std::string text_of(const std::vector<int64_t>& shape) { return text_of(fmt::format("{}", fmt::join(shape, ","))); }
std::string text_of(double value) { return fmt::format("{:016x}", std::bit_cast<uint64_t>(value)); }
std::string text_of(bool value) { return value ? "1" : "0"; }
template <typename T>
requires std::is_integral_v<T> std::string text_of(T value) { return std::to_string(value); }
template <typename T>
requires std::is_enum_v<T> std::string text_of(T value) { return std::to_string(static_cast<int>(value)); }
std::string text_of(const ExponentHistogram& histogram) {
  std::string text;
  for (size_t bin = 0; bin < histogram.bins.size(); ++bin) {
    if (histogram.bins[bin] > 0) text += fmt::format("{}{}:{}", text.empty() ? "" : ",", bin, histogram.bins[bin]);
  }
  return text;
}

std::string joined(Fields fields) {
  std::sort(fields.begin(), fields.end());
  std::string line;
  for (const auto& [name, value] : fields) {
    if (!line.empty()) line += ' ';
    line += name;
    line += '=';
    line += value;
  }
  return line;
}

}  // namespace

// One entry of a Fields: the column, and the member of `r` that it holds.
#define NAMED(name, member) \
  { name, text_of(r.member) }
#define SAME(name) NAMED(#name, name)

static std::string line(const RunInfo& r) {
  return joined({SAME(run_id),
                 SAME(parent_run),
                 SAME(parent_step),
                 SAME(producer),
                 SAME(producer_version),
                 SAME(rank),
                 SAME(world_size),
                 SAME(mesh_position),
                 SAME(experiment),
                 SAME(experiment_name),
                 SAME(seed),
                 SAME(precision),
                 SAME(backend),
                 SAME(machine),
                 SAME(dtypes),
                 SAME(level),
                 SAME(every),
                 SAME(filters),
                 SAME(dynamic_loss_scale),
                 SAME(growth_interval),
                 SAME(arithmetic),
                 SAME(growth_factor),
                 SAME(backoff_factor),
                 SAME(started)});
}
static std::string line(const OpInfo& r) {
  return joined({SAME(id), SAME(forward_id), SAME(name), SAME(module), SAME(phase), SAME(kind), SAME(function), SAME(attributes),
                 SAME(product), SAME(inputs_told), SAME(location), SAME(first_step), SAME(first_sequence)});
}
static std::string line(const TensorInfo& r) {
  return joined({SAME(op), SAME(slot), SAME(role), SAME(dtype), SAME(stays_wide), SAME(parameter), SAME(shape), SAME(shard_offset),
                 SAME(replicated), SAME(name), SAME(gradient_of), SAME(gradient_slot), SAME(gradient_input), SAME(rounding),
                 SAME(flushes_results), SAME(flushes_inputs), SAME(flushes_narrow_products)});
}
static std::string line(const GraphEdge& r) {
  return joined({SAME(graph), SAME(consumer), SAME(input), SAME(producer), SAME(slot)});
}
static std::string line(const SettingInfo& r) { return joined({SAME(name), SAME(value), SAME(kind), SAME(given)}); }
static std::string line(const SourceInfo& r) {
  return joined({SAME(source), SAME(name), SAME(part), SAME(file), SAME(inside), SAME(columns), SAME(first_sample), SAME(samples),
                 SAME(first_row), SAME(row_step), SAME(first_byte), SAME(byte_step)});
}
static std::string line(const ProductInfo& r) { return joined({SAME(product), SAME(algorithm)}); }
static std::string line(const BatchRow& r) {
  return joined({SAME(step), SAME(micro_batch), SAME(phase), SAME(source), SAME(sample)});
}
static std::string line(const ParameterRow& r) {
  return joined({SAME(step), SAME(tensor), SAME(learning_rate), SAME(weight_norm), SAME(update_norm), SAME(gradient_dot_update),
                 SAME(decay_known), SAME(decay_asked), SAME(decay_applied), SAME(nonzero), SAME(lost), SAME(lost_to_decay)});
}
static std::string line(const FingerprintRow& r) { return joined({SAME(step), SAME(tensor), SAME(written)}); }
static std::string line(const EventRow& r) {
  return joined({SAME(step), SAME(kind), SAME(tensor), SAME(micro_batch), SAME(loss_index), SAME(count), SAME(value), SAME(text),
                 SAME(metric)});
}
static std::string line(const CaptureRow& r) {
  return joined({SAME(step),
                 SAME(micro_batch),
                 SAME(loss_index),
                 SAME(tensor),
                 SAME(node),
                 SAME(parent),
                 SAME(operand),
                 SAME(term),
                 SAME(made_by),
                 SAME(element),
                 SAME(shape),
                 SAME(value),
                 SAME(overwritten),
                 SAME(follow),
                 SAME(terms),
                 SAME(broke_at),
                 SAME(partial_sum),
                 SAME(attributes),
                 NAMED("row_first", row.first),
                 NAMED("row_count", row.count),
                 NAMED("row_run", row.run),
                 NAMED("row_step", row.step),
                 NAMED("row_largest", row.largest),
                 NAMED("row_smallest", row.smallest),
                 NAMED("row_sum", row.sum),
                 NAMED("row_sum_of_squares", row.sum_of_squares),
                 NAMED("row_nonfinite", row.nonfinite)});
}
static std::string line(const SampleRow& r) {
  return joined({SAME(step), SAME(micro_batch), SAME(loss_index), SAME(tensor), SAME(element), SAME(value)});
}
static std::string line(const MeasureRow& r) {
  return joined({SAME(step), SAME(micro_batch), SAME(loss_index), SAME(tensor), SAME(name), SAME(value)});
}

static std::string line(const SumRow& r) {
  return joined({SAME(step), SAME(tensor), SAME(additions), NAMED("elements", counts.elements), NAMED("addends", counts.addends),
                 NAMED("absorbed", counts.absorbed), NAMED("asked", counts.asked), NAMED("arrived", counts.arrived),
                 NAMED("magnitude", counts.magnitude)});
}
static std::string line(const BitsRow& r) {
  return joined({SAME(step), SAME(micro_batch), SAME(loss_index), SAME(tensor), SAME(hash)});
}

std::string line(const TensorRow& r) {
  return joined({SAME(step),
                 SAME(micro_batch),
                 SAME(loss_index),
                 SAME(sequence),
                 SAME(tensor),
                 SAME(scale),
                 SAME(quantization_scale),
                 SAME(known),
                 SAME(before_rounding),
                 SAME(rounding_known),
                 NAMED("count", statistics.count),
                 NAMED("nan", statistics.nan),
                 NAMED("positive_infinity", statistics.positive_infinity),
                 NAMED("negative_infinity", statistics.negative_infinity),
                 NAMED("zeros", statistics.zeros),
                 NAMED("negatives", statistics.negatives),
                 NAMED("smallest", statistics.smallest),
                 NAMED("largest", statistics.largest),
                 NAMED("sum", statistics.sum),
                 NAMED("sum_of_squares", statistics.sum_of_squares),
                 NAMED("histogram", statistics.histogram),
                 NAMED("below_range", statistics.histogram.below_range),
                 NAMED("above_range", statistics.histogram.above_range),
                 NAMED("flushed", rounding.flushed),
                 NAMED("subnormal", rounding.subnormal),
                 NAMED("inexact_subnormal", rounding.inexact_subnormal),
                 NAMED("overflowed", rounding.overflowed),
                 NAMED("rescued", rounding.rescued),
                 NAMED("saturated", rounding.saturated),
                 NAMED("input_nonzero", input.nonzero),
                 NAMED("input_flushed", input.flushed)});
}

std::string line(const StepRow& r) {
  return joined({SAME(step), SAME(graph), SAME(loss), SAME(loss_known), SAME(learning_rate), SAME(scale_before), SAME(scale_after),
                 SAME(skipped), SAME(gradient_norm), SAME(clipped_gradient_norm), SAME(norm_known), SAME(seconds),
                 SAME(peak_memory), SAME(level)});
}

#undef SAME
#undef NAMED

namespace {

template <typename Rows>
void add_lines(Lines& lines, const Rows& rows) {
  for (const auto& row : rows) lines.push_back(line(row));
}

}  // namespace

RunInfo sample_run(uint64_t seed) {
  RunInfo run;
  run.run_id = fmt::format("{:032x}", seed);
  run.parent_run = "00112233445566778899aabbccddeeff";
  run.parent_step = 17;
  run.producer = "trace tests";
  run.producer_version = "1.2.3";
  run.rank = 3;
  run.world_size = 4;
  run.mesh_position = "1,1";
  run.experiment = "# a comment\n[model]\npreset = \"mlp\"\n\t\u00e9\u20ac = 1\n";
  run.experiment_name = "sample";
  run.seed = seed;
  run.precision = "fp16";
  run.backend = "cpu";
  run.machine = "a machine";
  run.dtypes = "f32,f16";
  run.level = RecordLevel::full;
  run.every = 5;
  run.filters = "module=features.*";
  run.dynamic_loss_scale = true;
  run.growth_interval = 150;
  run.arithmetic = "accumulate=a100 rounding=sr";
  run.growth_factor = 2.5;
  run.backoff_factor = 0.25;
  run.started = "2026-01-02T03:04:05Z";
  return run;
}

std::vector<OpInfo> sample_ops(uint64_t seed) {
  std::vector<OpInfo> ops;
  for (int i = 0; i < kOps; ++i) {
    OpInfo op;
    op.id = Draws(seed, 1000 + static_cast<uint64_t>(i)).bits();
    if (i > 0) op.forward_id = ops[0].id;
    op.name = i % 2 ? "linear" : "relu_backward";
    op.module = i == 0 ? "" : fmt::format("features.{}", i);
    op.phase = static_cast<Phase>(i);
    op.function = i % 2 != 0 ? static_cast<OpFunction>(i * 20) : OpFunction::other;
    op.kind = i % 2 != 0 ? kind_of(op.function) : static_cast<OpKind>(kOpKinds - 1 - i);
    op.attributes = i == 3 ? "stride=1 padding=1" : "";
    if (i % 2 != 0) op.product = {i, 1 << i, 0, 7, 0};
    op.inputs_told = i != 2;
    if (i == 2) op.location = "train.py:41";
    op.first_step = i - 1;
    if (i > 0) op.first_sequence = static_cast<uint32_t>(i);
    ops.push_back(op);
  }
  return ops;
}

std::vector<TensorInfo> sample_tensors(uint64_t) {
  std::vector<TensorInfo> tensors;
  for (int i = 0; i < kTensors; ++i) {
    TensorInfo tensor;
    tensor.op = static_cast<uint32_t>(i % kOps);
    tensor.slot = static_cast<uint32_t>(i / kOps);
    tensor.role = static_cast<Role>(i);
    // Every size; gradients are of floating-point types.
    constexpr DType kTypes[] = {DType::i64, DType::u8, DType::f16, DType::bf16, DType::i32, DType::f32, DType::f64};
    tensor.dtype = kTypes[i];
    tensor.stays_wide = i == 1;
    if (i == 2) tensor.parameter = "features.2.weight";
    for (int k = 0; k < i; ++k) tensor.shape.push_back((int64_t{1} << (8 * k)) * k);
    if (i == 4) tensor.shard_offset = {0, 1, 2, 3};
    tensor.replicated = i != 4;
    tensor.name = i == 2 ? "exp_avg" : "";
    if (i == 3 || i == 5) tensor.gradient_of = UINT64_MAX - static_cast<uint64_t>(i);
    tensor.gradient_slot = i == 5 ? UINT32_MAX : 0;
    if (i == 3) tensor.gradient_input = INT32_MAX;
    tensor.rounding = static_cast<RoundingMode>(i % kRoundingModes);
    tensor.flushes_results = i % 2 != 0;
    tensor.flushes_inputs = i % 3 != 0;
    tensor.flushes_narrow_products = i % 4 == 1;
    tensors.push_back(tensor);
  }
  return tensors;
}

std::vector<GraphEdge> sample_edges(uint64_t) { return {{0, 1, 0, 0, 0}, {0, 2, 0, 1, 0}, {0, 2, 1, 0, 1}, {1, 4, 255, 3, 7}}; }

Step sample_step(uint64_t seed, uint64_t number) {
  Draws draws(seed, number);
  Step step;
  for (uint32_t i = 0; i < kRowsPerStep; ++i) {
    TensorRow row;
    row.step = number;
    row.micro_batch = draws.below(2);
    row.loss_index = static_cast<uint8_t>(draws.below(3));
    row.sequence = i;
    row.tensor = draws.below(kTensors);
    row.scale = draws.below(2) ? 65536.0 : 1.0;
    row.quantization_scale = draws.below(2) ? 1.0 : draws.factor();
    row.known = static_cast<StatisticsLevel>(draws.below(3));
    row.before_rounding = draws.below(2);
    row.rounding_known = draws.below(2);
    TensorStatistics& statistics = row.statistics;
    const uint32_t shape = draws.below(20);
    const int first = shape == 0 ? 0 : static_cast<int>(draws.below(240)),
              last = shape == 0 ? ExponentHistogram::kBins : first + 15;
    for (int bin = first; shape != 1 && bin < last; ++bin) statistics.histogram.bins[static_cast<size_t>(bin)] = draws.elements();
    for (uint64_t* count : {&statistics.nan, &statistics.positive_infinity, &statistics.negative_infinity, &statistics.zeros,
                            &statistics.histogram.below_range, &statistics.histogram.above_range}) {
      *count = draws.elements();
    }
    const uint64_t finite_nonzero = statistics.histogram.total();
    statistics.count = finite_nonzero + statistics.nonfinite() + statistics.zeros;
    statistics.negatives = draws.part(finite_nonzero);
    statistics.smallest = finite_nonzero == 0 ? 0 : draws.factor();
    statistics.largest = statistics.smallest * (1 + draws.below(1000));
    // Any where they mean nothing; else of values between the smallest and the largest.
    const bool is_measured = row.known == StatisticsLevel::values;
    const double share = 2.0 * draws.below(1u << 30) / (1u << 30) - 1;
    const double value = draws.value(), factor = draws.factor();
    statistics.sum = is_measured ? share * statistics.largest * static_cast<double>(finite_nonzero) : value;
    statistics.sum_of_squares = is_measured ? (2 + share) * statistics.largest * statistics.largest : factor;
    RoundingCounts& rounding = row.rounding;
    rounding.flushed = draws.part(statistics.count);
    rounding.subnormal = draws.part(statistics.count - rounding.flushed);
    rounding.overflowed = draws.part(statistics.count - rounding.flushed - rounding.subnormal);
    rounding.inexact_subnormal = draws.part(rounding.subnormal);
    rounding.rescued = draws.part(statistics.count - rounding.flushed);
    rounding.saturated = draws.part(rounding.overflowed);
    row.input.nonzero = draws.elements();
    row.input.flushed = draws.part(row.input.nonzero);
    step.rows.push_back(row);
  }
  for (uint32_t i = 0; i < 2; ++i) {
    const uint64_t nonzero = draws.elements(), lost = draws.part(nonzero);
    step.parameters.push_back({number, draws.below(kTensors), draws.value(), draws.factor(), draws.factor(), draws.value(),
                               draws.below(2) == 1, draws.factor(), draws.value(), nonzero, lost, draws.part(lost)});
    step.fingerprints.push_back({number, draws.below(kTensors), draws.bits()});
    step.batches.push_back({number, draws.below(3), static_cast<Phase>(draws.below(kPhases)), draws.below(5), draws.bits()});
  }
  if (number % 3 == 0) {
    step.events.push_back({number, kKinds[draws.below(4)], static_cast<int64_t>(draws.below(kTensors)) - 1, draws.below(3),
                           static_cast<uint8_t>(draws.below(3)), draws.elements(), draws.value(),
                           fmt::format("event {}", number % 50)});
  }
  if (number % 7 == 2) {
    const CaptureRow key{.step = number,
                         .micro_batch = draws.below(3),
                         .loss_index = static_cast<uint8_t>(draws.below(3)),
                         .tensor = draws.below(kTensors)};
    for (uint32_t node = 0; node < 4; ++node) {
      CaptureRow capture = key;
      capture.node = node;
      capture.parent = node == 0 ? -1 : static_cast<int64_t>(draws.below(node));
      capture.operand = static_cast<int32_t>(draws.below(4)) - 1;
      capture.term = static_cast<int64_t>(draws.below(4)) - 1;
      capture.made_by = static_cast<int64_t>(draws.below(kTensors + 1)) - 1;
      capture.shape.assign(draws.below(4), 1 + static_cast<int64_t>(draws.below(999)));
      const int64_t elements = std::accumulate(capture.shape.begin(), capture.shape.end(), int64_t{1}, std::multiplies<>());
      capture.element = static_cast<int64_t>(draws.part(static_cast<uint64_t>(elements))) - 1;
      capture.value = draws.value();
      capture.overwritten = draws.below(2);
      capture.follow = static_cast<CaptureFollow>(draws.below(kCaptureFollows));
      capture.terms = static_cast<int64_t>(draws.below(64));
      capture.broke_at = static_cast<int64_t>(draws.below(static_cast<uint32_t>(capture.terms) + 1)) - 1;
      capture.partial_sum = draws.value();
      capture.attributes = node == 0 ? fmt::format("step={}", number) : "";
      if (node == 3) {
        const auto count = static_cast<int64_t>(1 + draws.below(1000)),
                   run = 1 + static_cast<int64_t>(draws.below(2)) * (count - 1);
        capture.row = {static_cast<int64_t>(draws.below(1000)),
                       count,
                       run,
                       static_cast<int64_t>(draws.below(100)),
                       draws.value(),
                       draws.value(),
                       draws.value(),
                       draws.value(),
                       static_cast<int64_t>(draws.part(static_cast<uint64_t>(count)))};
      }
      step.captures.push_back(capture);
    }
  }
  for (int64_t i = 0; i < 16; ++i)
    step.samples.push_back(
        {number, draws.below(3), static_cast<uint8_t>(draws.below(3)), draws.below(kTensors), i * 1000, draws.value()});
  step.measures.push_back({number, draws.below(3), static_cast<uint8_t>(draws.below(3)), draws.below(kTensors),
                           number % 2 ? "inherited" : "injected", draws.value()});
  const uint64_t elements = draws.below(5000);
  step.sums.push_back({number,
                       draws.below(kTensors),
                       draws.below(1000),
                       {elements, elements, elements / 3, static_cast<double>(draws.below(1000)) / 8,
                        -static_cast<double>(draws.below(1000)) / 8, static_cast<double>(draws.below(1000)) / 8}});
  for (uint64_t i = 0; i < 3; ++i)
    step.bits.push_back(
        {number, draws.below(3), static_cast<uint8_t>(draws.below(3)), draws.below(kTensors), hash_combine(number, i)});
  StepRow& row = step.row;
  row.step = number;
  row.graph = static_cast<uint32_t>(number % 2);
  row.loss_known = draws.below(2) == 1;
  row.skipped = draws.below(2) == 1;
  row.norm_known = draws.below(2) == 1;
  row.level = static_cast<RecordLevel>(draws.below(4));
  row.peak_memory = draws.count() >> 7;
  row.loss = draws.value();
  row.learning_rate = draws.value();
  for (double* value : {&row.scale_before, &row.scale_after, &row.gradient_norm, &row.clipped_gradient_norm, &row.seconds})
    *value = draws.factor();
  return step;
}

std::vector<SettingInfo> sample_settings(uint64_t) {
  return {{"optimizer.lr", "0.1", SettingKind::learning_rate, true},
          {"scaler.enabled", "\"on\"", SettingKind::scale_enabled, false}};
}

std::vector<SourceInfo> sample_sources(uint64_t) {
  return {{0, "train", "inputs", "data/images \u00e9.idx", "", "", 0, 60000, 0, 1, 16, 784},
          {0, "train", "targets", "data/labels.h5", "/group/labels", "", 0, 60000, 3, 2, 0, 0},
          {1, "test", "", "", "random_classification", "0,1,2", 7, 100, 0, 1, 0, 0}};
}

std::vector<ProductInfo> sample_products(uint64_t) {
  return {{"32 x 256 x 128 (1 of them), f16 by 0, 128 and 1", "algorithm 66, tile 18"}, {"10 x 1 x 4", "algorithm \u03b1"}};
}

void add_start(TraceSink& sink, uint64_t seed) {
  for (const SettingInfo& setting : sample_settings(seed)) sink.add_setting(setting);
  for (const SourceInfo& source : sample_sources(seed)) sink.add_source(source);
  for (const ProductInfo& product : sample_products(seed)) sink.add_product(product);
  for (const OpInfo& op : sample_ops(seed)) sink.add_op(op);
  for (const TensorInfo& tensor : sample_tensors(seed)) sink.add_tensor(tensor);
  for (const GraphEdge& edge : sample_edges(seed)) sink.add_edge(edge);
}

void add_step(TraceSink& sink, uint64_t seed, uint64_t number) {
  const Step step = sample_step(seed, number);
  for (const TensorRow& row : step.rows) sink.add_row(row);
  for (const BatchRow& row : step.batches) sink.add_batch(row);
  for (const ParameterRow& row : step.parameters) sink.add_parameter(row);
  for (const FingerprintRow& row : step.fingerprints) sink.add_fingerprint(row);
  for (const EventRow& row : step.events) sink.add_event(row);
  for (const CaptureRow& row : step.captures) sink.add_capture(row);
  for (const SampleRow& row : step.samples) sink.add_sample(row);
  for (const MeasureRow& row : step.measures) sink.add_measure(row);
  for (const SumRow& row : step.sums) sink.add_sum(row);
  for (const BitsRow& row : step.bits) sink.add_bits(row);
  sink.end_step(step.row);
}

TraceLines expected_lines(uint64_t seed, uint64_t steps) {
  TraceLines lines;
  lines.run.push_back(line(sample_run(seed)));
  if (steps == 0) return lines;
  add_lines(lines.settings, sample_settings(seed));
  add_lines(lines.sources, sample_sources(seed));
  add_lines(lines.products, sample_products(seed));
  add_lines(lines.ops, sample_ops(seed));
  add_lines(lines.tensors, sample_tensors(seed));
  add_lines(lines.edges, sample_edges(seed));
  for (uint64_t number = 0; number < steps; ++number) {
    const Step step = sample_step(seed, number);
    lines.steps.push_back(line(step.row));
    add_lines(lines.stats, step.rows);
    add_lines(lines.batches, step.batches);
    add_lines(lines.parameters, step.parameters);
    add_lines(lines.fingerprints, step.fingerprints);
    add_lines(lines.events, step.events);
    add_lines(lines.captures, step.captures);
    add_lines(lines.samples, step.samples);
    add_lines(lines.measures, step.measures);
    add_lines(lines.sums, step.sums);
    add_lines(lines.bits, step.bits);
  }
  return lines;
}

TraceLines read_lines(const Snapshot& reader) {
  TraceLines lines;
  lines.run.push_back(line(reader.run()));
  add_lines(lines.settings, reader.settings());
  add_lines(lines.sources, reader.sources());
  add_lines(lines.products, reader.products());
  add_lines(lines.ops, reader.ops());
  add_lines(lines.tensors, reader.tensors());
  add_lines(lines.edges, reader.edges());
  const auto into = [](Lines& target) {
    return [&target](const auto& rows) {
      add_lines(target, rows);
      return true;
    };
  };
  reader.visit_steps({}, into(lines.steps));
  reader.visit_rows({}, into(lines.stats));
  reader.visit_batches({}, into(lines.batches));
  reader.visit_parameters({}, into(lines.parameters));
  reader.visit_fingerprints({}, into(lines.fingerprints));
  add_lines(lines.events, reader.events());
  add_lines(lines.captures, reader.captures());
  reader.visit_samples({}, into(lines.samples));
  reader.visit_measures({}, into(lines.measures));
  reader.visit_sums({}, into(lines.sums));
  reader.visit_bits({}, into(lines.bits));
  return lines;
}

Lines flat(const TraceLines& lines) {
  Lines all;
  const auto add = [&](const char* table, const Lines& rows) {
    for (const std::string& row : rows) all.push_back(fmt::format("{} {}", table, row));
  };
  add("run", lines.run);
  add("settings", lines.settings);
  add("sources", lines.sources);
  add("products", lines.products);
  add("ops", lines.ops);
  add("tensors", lines.tensors);
  add("edges", lines.edges);
  add("steps", lines.steps);
  add("stats", lines.stats);
  add("batches", lines.batches);
  add("parameters", lines.parameters);
  add("fingerprints", lines.fingerprints);
  add("events", lines.events);
  add("captures", lines.captures);
  add("samples", lines.samples);
  add("measures", lines.measures);
  add("sums", lines.sums);
  add("bits", lines.bits);
  return all;
}

}  // namespace ulpscope::trace_test
