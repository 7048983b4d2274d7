// Do the numbers fit their format? Per tensor, module, phase or role: the shares flushed to zero, subnormal and overflowed, as the
// recorded roundings counted them and, where asked for, as a what-if in other formats; gradients as scaled and true (divided by the
// loss scale); headroom; and exponent histograms against the format's limits. Worst first. Definitions: docs/numerics.md. Findings
// (codes): range.no_rows, range.nonfinite, range.gradients_vanish, range.gradients_flushed, range.gradients_overflow,
// range.values_overflow, range.values_flushed, range.gradients_raised, range.quantization_flushed, range.quantization_stale,
// range.quantization_unscaled, range.quantization_saturated, range.inputs_flushed, range.saturated, range.gradients_would_flush,
// range.gradients_fit, range.rounding_unknown.
#pragma once

#include "ulpscope/analyzers/fitting_scale.h"
#include "ulpscope/analyzers/range_facts.h"
#include "ulpscope/analyzers/suspects.h"

namespace ulpscope {

enum class GroupBy : uint8_t { tensor, module, phase, role };
const char* name_of(GroupBy by);

struct RangeOptions : AnalysisOptions {
  GroupBy by = GroupBy::tensor;
  std::vector<const FloatFormat*> formats;  // of the what-if tables; the plots stand against the first, or FP16
};

// What the analyses of a trace say of its ranges.
class RangeReport {
  // Where the NaN and infinities that a run is judged by began.
  struct NonfiniteOrigin {
    uint32_t tensor = 0;
    RowPosition position;
    uint64_t overflowed = 0;  // finite values that became infinite when they were rounded
  };

 public:
  // All arguments outlive the report.
  RangeReport(const AnalysisContext& context, const RangeOptions& options, const StepFacts& steps, const RangeFacts& facts,
              const FittingScales& fitting);
  void add_findings(Report& report) const;
  void add_tables(Report& report) const;

 private:
  struct Group;

  // range_tables.cpp
  std::vector<Group> groups() const;
  void add_recorded_table(Report& report, const std::vector<Group>& groups) const;
  void add_what_if_table(Report& report, const std::vector<Group>& groups, const FloatFormat& format) const;
  void add_plots(Report& report, const std::vector<Group>& groups) const;

  // nonfinite_findings.cpp
  NonfiniteRows nonfinite(uint32_t tensor) const;    // of all steps
  std::vector<uint32_t> nonfinite_in_order() const;  // tensors that held NaN or Inf, in order of execution
  // What became of them: an error where a weight or an optimizer state held one or the run broke, a warning where steps were taken
  // or wasted with them, a note where ops or the scaler took them away.
  Severity harm_of_nonfinite() const;
  bool reached_weights() const;
  // Some tensors were not asked for: what became of the others is not known.
  bool is_filtered() const {
    return !options_.modules.empty() || !options_.ops.empty() || !options_.phases.empty() || !options_.roles.empty();
  }
  std::optional<NonfiniteOrigin> origin_of_nonfinite() const;
  void find_nonfinite(Report& report) const;
  std::string story_of(const NonfiniteOrigin& origin) const;
  std::string cause_of_nonfinite(const NonfiniteOrigin& origin) const;

  // model_findings.cpp
  void find_bad_data(Report& report) const;
  void find_dead(Report& report) const;

  // optimizer_findings.cpp
  void find_damped(Report& report) const;

  // gradient_findings.cpp
  bool find_vanished(Report& report) const;
  bool find_gradient_trouble(Report& report) const;
  void find_overflow_kept(Report& report, const Suspects& kept, const StepSet& steps) const;
  std::string flushed_advice(const std::vector<uint32_t>& flushed, uint32_t worst) const;
  bool find_raised(Report& report) const;
  bool find_inputs_flushed(Report& report) const;
  void find_what_if_trouble(Report& report) const;
  void find_gradients_fit(Report& report) const;

  // range_findings.cpp
  void find_value_trouble(Report& report) const;
  void find_saturated(Report& report) const;
  void find_unknown(Report& report) const;

  // quantization_findings.cpp, of tensors in FP8
  void find_quantization_trouble(Report& report) const;
  void find_quantized_without_scale(Report& report) const;
  void find_quantized_to_zero(Report& report) const;
  void find_quantized_beyond_range(Report& report) const;
  std::vector<uint32_t> quantized_tensors() const;  // of which there were rows

  const AnalysisContext& context_;
  const Selection& selection_;
  const RangeOptions& options_;
  const StepFacts& steps_;
  const RangeFacts& facts_;
  const FittingScales& fitting_;
  RunRanges judged_room_, broken_room_;
  const RunRanges &judged_, &broken_;  // of the steps before the run broke, and of the others
  // By tensor, where there was a row: what findings judge, and what they do not.
  std::vector<const TensorRanges*> tensors_, broken_tensors_;
  // What nonfinite_findings.cpp finds out once for all findings.
  std::vector<uint32_t> nonfinite_in_order_;
  std::optional<NonfiniteOrigin> origin_;
  Severity harm_ = Severity::info;
};

// Of a trace each time it is asked, which may have grown: reads only what is new.
class RangeAnalysis {
 public:
  explicit RangeAnalysis(const RangeOptions& options)
      : options_(options),
        seen_([this] { return Together(FittingScale(options_.flushed_limit), RangeFacts(options_.formats)); }, options_) {}
  RangeAnalysis(const RangeAnalysis&) = delete;
  Report report(const Snapshot& reader);

 private:
  const RangeOptions options_;
  Followed<Together<FittingScale, RangeFacts>> seen_;
};
Report analyze_ranges(const Snapshot& reader, const RangeOptions& options = {});

}  // namespace ulpscope
