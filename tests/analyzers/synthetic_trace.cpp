#include "synthetic_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tests/support/train_settings.h"
#include "ulpscope/emulation/rounding.h"
#include "ulpscope/kernels/statistics.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::analyzers_test {

namespace {

RunInfo default_run() {
  RunInfo run;
  run.run_id = "0123456789abcdef0123456789abcdef";
  run.producer = "test";
  run.experiment_name = "synthetic";
  run.precision = "fp16";
  run.backend = "cpu";
  run.dynamic_loss_scale = true;
  return run;
}

TensorStatistics statistics_of(const std::vector<double>& values, DType dtype) {
  std::vector<float> floats(values.begin(), values.end());
  std::vector<uint16_t> narrow(values.size());
  TensorView view;
  view.rank = 1;
  view.shape[0] = static_cast<int64_t>(values.size());
  view.strides[0] = 1;
  view.dtype = dtype;
  view.data = floats.data();
  if (dtype == DType::f16 || dtype == DType::bf16) {
    for (size_t i = 0; i < values.size(); ++i) narrow[i] = dtype == DType::f16 ? round_to_f16(floats[i]) : round_to_bf16(floats[i]);
    view.data = narrow.data();
  }
  OutputRecord record;
  record.clear();
  record.wanted = StatisticsLevel::values;
  collect_statistics(view, record);
  return record.statistics;
}

bool is_narrow_type(DType dtype) { return is_float(dtype) && is_narrow(*info(dtype).format); }

}  // namespace

std::vector<double> as_floats(std::vector<double> values) {
  for (double& value : values) value = static_cast<float>(value);
  return values;
}

std::vector<double> lognormal(std::mt19937& random, double center, double spread, int count) {
  std::normal_distribution<double> exponent(center, spread), sign;
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(std::copysign(std::exp2(exponent(random)), sign(random)));
  return as_floats(values);
}

RoundingTruth round_all(const std::vector<double>& values, const FloatFormat& format, double scale) {
  RoundingTruth truth;
  for (const double value : values) {
    if (!std::isfinite(value) || value == 0) continue;
    // FP64 has the range and, for the values that tests take, the bits to hold the quotient so that it rounds the same way.
    const double x = value / scale, rounded = round_to_format(format, x);
    ++truth.base;
    truth.flushed += rounded == 0;
    truth.overflowed += !(std::fabs(rounded) <= format.largest_finite());  // Inf, or NaN in a format without it
    const bool subnormal = rounded != 0 && std::fabs(rounded) < format.smallest_normal();
    truth.subnormal += subnormal;
    truth.inexact_subnormal += subnormal && rounded != x;
  }
  return truth;
}

TensorRow make_row(const std::vector<double>& values, DType dtype, double scale) {
  const std::vector<double> floats = as_floats(values);
  TensorRow row;
  row.known = StatisticsLevel::values;
  row.scale = scale;
  row.statistics = statistics_of(floats, DType::f32);
  if (!is_narrow_type(dtype)) return row;
  const FloatFormat& format = *info(dtype).format;
  const RoundingTruth truth = round_all(floats, format, 1.0);
  row.before_rounding = row.rounding_known = true;
  row.rounding = {truth.flushed, truth.subnormal, truth.inexact_subnormal, truth.overflowed, 0};
  for (const double value : floats) {
    if (!std::isfinite(value) || value == 0) continue;
    const double rounded = round_to_format(format, value);
    row.rounding.rescued += rounded != 0 && std::isfinite(rounded) && round_to_format(format, value / scale) == 0;
  }
  return row;
}

TensorRow make_stored_row(const std::vector<double>& values, DType dtype, double scale) {
  TensorRow row;
  row.known = StatisticsLevel::values;
  row.scale = scale;
  row.statistics = statistics_of(as_floats(values), dtype);
  return row;
}

TensorRow make_health_row(const std::vector<double>& values, DType dtype, double scale) {
  TensorRow row = make_row(values, dtype, scale);
  row.known = StatisticsLevel::health;
  TensorStatistics counts;
  counts.count = row.statistics.count;
  counts.nan = row.statistics.nan;
  counts.positive_infinity = row.statistics.positive_infinity;
  counts.negative_infinity = row.statistics.negative_infinity;
  counts.zeros = row.statistics.zeros;
  row.statistics = counts;
  return row;
}

namespace {

// The ops of these tests are called what they are.
OpInfo with_function(OpInfo op) {
  op.function = function_named(op.name);
  op.kind = kind_of(op.function);
  return op;
}

}  // namespace

SyntheticTrace::SyntheticTrace() : SyntheticTrace(default_run()) {}

SyntheticTrace::SyntheticTrace(const RunInfo& run) : SyntheticTrace(run, train_settings()) {}

SyntheticTrace::SyntheticTrace(const RunInfo& run, const std::vector<SettingInfo>& settings) {
  std::string pattern = (std::filesystem::temp_directory_path() / "ulpscope_analyzers_XXXXXX").string();
  folder_ = mkdtemp(pattern.data());
  path_ = folder_ + "/trace.h5";
  sink_ = create_trace(path_, run);
  for (const SettingInfo& setting : settings) sink_->add_setting(setting);
}

SyntheticTrace::~SyntheticTrace() {
  sink_.reset();
  std::filesystem::remove_all(folder_);
}

uint32_t SyntheticTrace::add_tensor(const std::string& module, const std::string& op, Phase phase, Role role, DType dtype,
                                    const std::string& parameter, bool stays_wide) {
  OpInfo made_by;
  made_by.id = next_id_++;
  made_by.name = op;
  made_by.module = module;
  made_by.phase = phase;
  TensorInfo tensor;
  tensor.op = sink_->add_op(with_function(made_by));
  tensor.role = role;
  tensor.dtype = dtype;
  tensor.stays_wide = stays_wide;
  tensor.parameter = parameter;
  tensor.shape = {1};
  return sink_->add_tensor(tensor);
}

uint32_t SyntheticTrace::add_output(const OpInfo& op, TensorInfo tensor) {
  if (!ops_.contains(op.id)) ops_[op.id] = sink_->add_op(with_function(op));
  tensor.op = ops_[op.id];
  return sink_->add_tensor(tensor);
}

void SyntheticTrace::add(uint32_t tensor, TensorRow row) {
  row.step = step_;
  row.tensor = tensor;
  row.sequence = sequence_++;
  sink_->add_row(row);
}

void SyntheticTrace::add_event(EventKind kind, int64_t tensor, uint64_t count, double value, const std::string& text) {
  const MetricKind metric = text == "test_loss"       ? MetricKind::evaluation_loss
                            : text == "test_accuracy" ? MetricKind::evaluation_accuracy
                                                      : MetricKind::other;
  sink_->add_event({step_, kind, tensor, 0, 0, count, value, text, kind == EventKind::metric ? metric : MetricKind::other});
}

void SyntheticTrace::add_update(uint32_t tensor, uint64_t nonzero, uint64_t lost, uint64_t lost_to_decay) {
  sink_->add_parameter({.step = step_, .tensor = tensor, .nonzero = nonzero, .lost = lost, .lost_to_decay = lost_to_decay});
}

void SyntheticTrace::add_sum(SumRow row) {
  row.step = step_;
  sink_->add_sum(row);
}

StepRow SyntheticTrace::default_step(double loss, double scale) {
  StepRow row;
  row.loss = loss;
  row.loss_known = true;
  row.scale_before = row.scale_after = scale;
  row.seconds = 0.25;
  row.peak_memory = 1000;
  row.level = RecordLevel::stats;
  return row;
}

void SyntheticTrace::end_step(StepRow row) {
  row.step = step_++;
  sequence_ = 0;
  sink_->end_step(row);
}

Snapshot SyntheticTrace::read() {
  EXPECT_TRUE(sink_->close());
  sink_.reset();
  return Snapshot(path_);
}

RankedTraces::RankedTraces(int ranks, const std::string& precision) {
  for (int rank = 0; rank < ranks; ++rank) {
    RunInfo run;
    run.run_id = "0123456789abcdef0123456789abcdef";
    run.producer = "test";
    run.precision = precision;
    run.rank = rank;
    run.world_size = ranks;
    traces_.push_back(std::make_unique<SyntheticTrace>(run));
  }
}

const std::vector<std::string>& RankedTraces::close() {
  for (const auto& trace : traces_) {
    EXPECT_TRUE(trace->sink().close());
    paths_.push_back(trace->path());
  }
  return paths_;
}

}  // namespace ulpscope::analyzers_test
