// A sink that keeps everything in memory, and tests' helpers to feed a recorder.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "ulpscope/recorder/recorder.h"
#include "ulpscope/trace/columns.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {

class MemorySink : public TraceSink {
 public:
  uint32_t add_op(const OpInfo& op) override {
    ops.push_back(op);
    return static_cast<uint32_t>(ops.size() - 1);
  }
  uint32_t add_tensor(const TensorInfo& tensor) override {
    tensors.push_back(tensor);
    return static_cast<uint32_t>(tensors.size() - 1);
  }
  void add_edge(const GraphEdge& edge) override { edges.push_back(edge); }
  void add_row(const TensorRow& row) override {
    ++row_count;
    if (keep_rows) rows.push_back(row);
  }
  void add_setting(const SettingInfo& setting) override { settings.push_back(setting); }
  void add_source(const SourceInfo& source) override { sources.push_back(source); }
  void add_product(const ProductInfo& product) override { products.push_back(product); }
  void add_batch(const BatchRow& row) override { batches.push_back(row); }
  void add_parameter(const ParameterRow& row) override { parameters.push_back(row); }
  void add_fingerprint(const FingerprintRow& row) override { fingerprints.push_back(row); }
  void add_event(const EventRow& row) override { events.push_back(row); }
  void add_capture(const CaptureRow& row) override { captures.push_back(row); }
  void add_sample(const SampleRow& row) override { samples.push_back(row); }
  void add_measure(const MeasureRow& row) override { measures.push_back(row); }
  void add_sum(const SumRow& row) override { sums.push_back(row); }
  void add_bits(const BitsRow& row) override { bits.push_back(row); }
  void end_step(const StepRow& row) override { steps.push_back(row); }
  SinkStatus status() const override { return state; }
  uint64_t closed_bytes(const MoreRows& more) const override {
    return empty_trace_bytes() + state.bytes + (row_count + more.tensors) * row_bytes + more.histograms * histogram_bytes +
           (batches.size() + more.batches) * batch_bytes;
  }
  bool flush() override { return true; }
  bool close() override { return true; }

  std::vector<EventRow> events_of(EventKind kind) const {
    std::vector<EventRow> found;
    for (const EventRow& event : events) {
      if (event.kind == kind) found.push_back(event);
    }
    return found;
  }
  std::vector<TensorRow> rows_of(uint64_t step) const {
    std::vector<TensorRow> found;
    for (const TensorRow& row : rows) {
      if (row.step == step) found.push_back(row);
    }
    return found;
  }

  std::vector<OpInfo> ops;
  std::vector<TensorInfo> tensors;
  std::vector<GraphEdge> edges;
  std::vector<TensorRow> rows;
  std::vector<SettingInfo> settings;
  std::vector<SourceInfo> sources;
  std::vector<ProductInfo> products;
  std::vector<BatchRow> batches;
  std::vector<ParameterRow> parameters;
  std::vector<FingerprintRow> fingerprints;
  std::vector<EventRow> events;
  std::vector<CaptureRow> captures;
  std::vector<SampleRow> samples;
  std::vector<MeasureRow> measures;
  std::vector<SumRow> sums;
  std::vector<BitsRow> bits;
  std::vector<StepRow> steps;
  SinkStatus state;
  bool keep_rows = true;  // a row is large
  size_t row_count = 0, row_bytes = 0, histogram_bytes = 0, batch_bytes = 0;
};

// All columns of the rows, a row a line.
template <typename Row>
std::string text_of(const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows) {
    trace_detail::for_each_column<Row>([&](const auto& column, auto) {
      const auto& field = column.get(row);
      using Field = std::remove_cvref_t<decltype(field)>;
      if constexpr (std::is_enum_v<Field>)
        text += fmt::format("{} ", static_cast<int>(field));
      else if constexpr (std::is_same_v<Field, ExponentHistogram>)
        text += fmt::format("{} ", fmt::join(field.bins, ","));
      else if constexpr (std::is_same_v<Field, std::vector<int64_t>>)
        text += fmt::format("{} ", fmt::join(field, ","));
      else
        text += fmt::format("{} ", field);
    });
    text += '\n';
  }
  return text;
}

// An op of one output, unless more are given.
struct FakeOp {
  uint64_t id = 0;
  std::string name = "add";
  std::string module = "";
  Phase phase = Phase::forward;
  Role role = Role::activation;
  std::vector<ValueKey> inputs = {};
  uint64_t nan = 0, infinities = 0;  // that its output holds
  double scale = 1.0;
  uint32_t micro_batch = 0;
  uint8_t loss_index = 0;
  std::vector<OutputDescription> outputs = {};   // instead of the one
  std::function<void(OutputRecord&)> fill = {};  // instead of the counts above
};

inline OutputDescription float_output(Role role, std::string_view parameter = "", DType dtype = DType::f32) {
  OutputDescription output;
  output.view.dtype = dtype;
  output.view.rank = 1;
  output.view.shape[0] = 8;
  output.view.strides[0] = 1;
  output.role = role;
  output.parameter = parameter;
  return output;
}

// Fills in a record as a backend would that knows everything at once.
inline void fill(OutputRecord& out, const FakeOp& op) {
  if (out.bits.wanted) out.bits = {true, true, 1000 + op.id};
  if (out.wanted == StatisticsLevel::none) return;
  out.known = out.wanted;
  out.statistics.count = 8;
  out.statistics.nan = op.nan;
  out.statistics.positive_infinity = op.infinities;
  if (out.wanted == StatisticsLevel::values) {
    out.statistics.sum = 4;
    out.statistics.histogram.bins[127] = 8 - op.nan - op.infinities;
  }
  for (out.samples = 0; out.samples < out.samples_wanted; ++out.samples) {
    out.sample_elements[static_cast<size_t>(out.samples)] = out.samples;
    out.sample_values[static_cast<size_t>(out.samples)] = 0.5;
  }
  if (op.fill) op.fill(out);
}

// Records `op`. Returns what `after` did.
inline std::optional<int> record(Recorder& recorder, const FakeOp& op) {
  std::vector<OutputDescription> outputs = op.outputs;
  if (outputs.empty()) outputs.push_back(float_output(op.role));
  for (OutputDescription& output : outputs) output.scale = op.scale;
  OpDescription description;
  description.name = op.name;
  description.function = function_named(op.name);
  description.kind = kind_of(description.function);
  description.module = op.module;
  description.phase = op.phase;
  description.id = op.id;
  description.micro_batch = op.micro_batch;
  description.loss_index = op.loss_index;
  description.inputs = op.inputs;
  description.outputs = outputs;
  for (OutputRecord* const out : recorder.before(description)) fill(*out, op);
  return recorder.after();
}

inline void record_step(Recorder& recorder, uint64_t step, const std::vector<FakeOp>& ops, StepRow row = {}) {
  recorder.begin_step(step);
  for (const FakeOp& op : ops) record(recorder, op);
  recorder.end_step(row);
}

}  // namespace ulpscope
