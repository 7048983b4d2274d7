// Traces made of known values, and the plain computation of what an analyzer must say of them: one rounding at a time, in FP64.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ulpscope/trace/sink.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope::analyzers_test {

// The truth about rounding `values` / `scale` to a format.
struct RoundingTruth {
  uint64_t base = 0, flushed = 0, subnormal = 0, inexact_subnormal = 0, overflowed = 0, rescued = 0;
};
RoundingTruth round_all(const std::vector<double>& values, const FloatFormat& format, double scale);

// A row whose statistics are those of `values` (made FP32 first), as a backend would record it: before the rounding into `dtype`
// where that is narrower than FP32.
TensorRow make_row(const std::vector<double>& values, DType dtype, double scale = 1.0);
// The same for a backend that does not see the rounding: statistics of the rounded values, no counts.
TensorRow make_stored_row(const std::vector<double>& values, DType dtype, double scale = 1.0);
// Without values: counts only.
TensorRow make_health_row(const std::vector<double>& values, DType dtype, double scale = 1.0);

std::vector<double> as_floats(std::vector<double> values);
// Of both signs, their binary logarithms normally distributed; as floats.
std::vector<double> lognormal(std::mt19937& random, double center, double spread, int count);

class SyntheticTrace {
 public:
  SyntheticTrace();
  // Its settings are those of train_settings.h, unless others are given.
  explicit SyntheticTrace(const RunInfo& run);
  SyntheticTrace(const RunInfo& run, const std::vector<SettingInfo>& settings);
  ~SyntheticTrace();

  // Index of a new tensor, made by an op of its own.
  uint32_t add_tensor(const std::string& module, const std::string& op, Phase phase, Role role, DType dtype,
                      const std::string& parameter = "", bool stays_wide = false);
  // The same, as one of the outputs of an op that is added where it is new: one of another id.
  uint32_t add_output(const OpInfo& op, TensorInfo tensor);
  void add(uint32_t tensor, TensorRow row);  // to the current step
  void add_event(EventKind kind, int64_t tensor = -1, uint64_t count = 0, double value = 0, const std::string& text = "");
  void add_update(uint32_t tensor, uint64_t nonzero, uint64_t lost, uint64_t lost_to_decay);
  void add_sum(SumRow row);  // to the current step
  TraceSink& sink() { return *sink_; }
  uint64_t step() const { return step_; }
  // Ends the step; unless the row says otherwise, the loss is known and the scale stays.
  void end_step() { end_step(default_step()); }
  void end_step(StepRow row);
  static StepRow default_step(double loss = 1.0, double scale = 1.0);

  // Closes the trace; once.
  Snapshot read();
  const std::string& path() const { return path_; }

 private:
  std::string folder_, path_;
  std::unique_ptr<TraceSink> sink_;
  uint64_t step_ = 0, next_id_ = 1;
  uint32_t sequence_ = 0;
  std::map<uint64_t, uint32_t> ops_;  // of add_output, by id
};

// Those of the ranks of one run.
class RankedTraces {
 public:
  explicit RankedTraces(int ranks, const std::string& precision = "fp32");

  SyntheticTrace& operator[](size_t rank) { return *traces_[rank]; }
  // Closes all; once.
  const std::vector<std::string>& close();

 private:
  std::vector<std::unique_ptr<SyntheticTrace>> traces_;
  std::vector<std::string> paths_;
};

}  // namespace ulpscope::analyzers_test
