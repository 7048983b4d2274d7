// Do the numbers fit their format? Per tensor, module, phase or role: the shares flushed to zero, subnormal and overflowed, as the
// recorded roundings counted them and as a what-if in other formats; gradients as scaled and true (divided by the loss scale);
// headroom; and exponent histograms against the format's limits. Worst first. Definitions: docs/numerics.md.
// Findings (codes): range.no_rows, range.nonfinite, range.gradients_vanish, range.gradients_flushed, range.gradients_overflow,
// range.values_overflow, range.values_flushed, range.gradients_raised, range.quantization_flushed, range.quantization_stale,
// range.quantization_unscaled, range.quantization_saturated, range.inputs_flushed, range.saturated, range.gradients_would_flush,
// range.gradients_fit, range.rounding_unknown.
#pragma once

#include <cmath>

#include "ulpscope/analyzers/analysis.h"
#include "ulpscope/analyzers/fitting_scale.h"
#include "ulpscope/analyzers/flush_loss.h"
#include "ulpscope/analyzers/range_totals.h"

namespace ulpscope {

enum class GroupBy : uint8_t { tensor, module, phase, role };
const char* name_of(GroupBy by);

struct RangeOptions : AnalysisOptions {
  GroupBy by = GroupBy::tensor;
  std::vector<const FloatFormat*> formats{&binary16, &bfloat16};  // of the what-if tables; the plots stand against the first
};

// The analysis as a consumer of rows, so that a report reads the trace once for several. Rows come in the trace's order.
class RangeAnalysis : public RowConsumer {
 public:
  // `steps`: of the options' range. `fitting` takes the same rows. All arguments outlive the analysis.
  RangeAnalysis(const Snapshot& reader, const Selection& selection, const RangeOptions& options, const StepFacts& steps,
                const FittingScale& fitting);
  void see(const TensorRow& row) override;
  void add(const TensorRow& row) override;
  void add_findings(Report& report) const;
  void add_tables(Report& report) const;

 private:
  // Where a row stands, in order of execution.
  struct Place {
    uint64_t step;
    uint32_t sequence, micro_batch;
    uint8_t pass;
    auto operator<=>(const Place&) const = default;  // NOLINT(modernize-use-nullptr): of Clang 14's own making
  };
  // What the findings need of a tensor besides its totals.
  struct TensorFacts {
    RangeTotals totals;                   // of the steps before the run broke: what findings judge
    std::unique_ptr<RangeTotals> broken;  // of the others
    uint64_t overflow_steps_kept = 0;     // rows with overflow in steps that were not skipped
    uint64_t overflow_steps_skipped = 0;
    uint64_t nonfinite_steps = 0;  // rows with NaN or Inf; for gradients those of steps that were not skipped
    std::optional<Place> first_nonfinite;
    uint64_t first_overflowed = 0;  // of that row: finite values that became infinite when they were rounded
    uint64_t noise_rows = 0;        // rows of sums that hold nothing but what their terms were rounded by
    uint64_t vanished_steps = 0;    // rows that were the first rounding of a backward pass, and flushed every nonzero element
    FlushLoss flush_loss;
    // Of rows in FP8, with the quantisation scale that takes the row's own largest magnitude to the format's largest.
    RoundingBounds at_own_scale;
    InputFlushCounts input;       // of its op, over its rows
    RoundingBounds read_in_fp16;  // of rows that an op would read as zero where they were subnormal in FP16, without their scale
    CountBounds raised;           // elements that to nearest would be zero, and are not
    RoundingBounds unscaled;      // of the first rows of delayed scaling, whose scale is 1 for want of a history
    uint64_t unscaled_rows = 0;
    RoundingBounds scaled;          // of the other rows in FP8
    double largest_excess = 0;      // of those: the largest magnitude over the format's largest
    double least_scale = INFINITY;  // the least loss scale that its rows contained
    uint64_t starved_rows = 0;      // those in which all of an input was read as zero
    std::optional<Place> first_overflow;
    double kept_headroom = kUnknown;         // the least, of steps that were not skipped
    std::optional<uint32_t> vanished_after;  // the tensor recorded before the one that vanished
  };
  struct Group;

  std::vector<Group> groups() const;
  std::vector<uint32_t> nonfinite_in_order() const;  // tensors that held NaN or Inf, in order of execution
  void add_recorded_table(Report& report, const std::vector<Group>& groups) const;
  size_t what_if_index(const FloatFormat& format) const;  // in RangeTotals::what_if
  void add_what_if_table(Report& report, const std::vector<Group>& groups, const FloatFormat& format) const;
  void add_plots(Report& report, const std::vector<Group>& groups) const;

  RowKey key_at(uint32_t tensor, const Place& place) const;
  void find_nonfinite(Report& report) const;
  std::string cause_of_nonfinite(uint32_t tensor) const;
  bool find_vanished(Report& report) const;
  bool find_gradient_trouble(Report& report) const;
  std::string flushed_advice(const std::vector<uint32_t>& flushed, uint32_t worst) const;
  void find_terms();
  bool is_rounding_noise(const TensorRow& row) const;
  void find_value_trouble(Report& report) const;
  bool find_raised(Report& report) const;
  bool find_inputs_flushed(Report& report) const;
  void find_saturated(Report& report) const;
  // Of tensors in FP8 (quantization_findings.cpp).
  void find_quantization_trouble(Report& report) const;
  void find_quantized_without_scale(Report& report) const;
  void find_quantized_to_zero(Report& report) const;
  void find_quantized_beyond_range(Report& report) const;
  std::vector<uint32_t> quantized_tensors() const;  // of which there were rows
  void find_what_if_trouble(Report& report) const;
  void find_gradients_fit(Report& report) const;
  void find_unknown(Report& report) const;

  const Snapshot& reader_;
  const Selection& selection_;
  const RangeOptions& options_;
  const StepFacts& steps_;
  const FittingScale& fitting_;
  const bool delays_scales_;                           // FP8 tensors take theirs from a history
  std::vector<const FloatFormat*> what_ifs_;           // that are answered: the options', and FP16, which a finding asks for
  std::vector<std::unique_ptr<TensorFacts>> tensors_;  // by tensor index; empty where no row came
  std::optional<uint64_t> step_;                       // the current one
  bool step_skipped_ = false, step_broken_ = false;
  std::vector<std::pair<uint32_t, uint8_t>> passes_seen_;  // of it: (micro-batch, pass) whose backward has had its first rounding
  std::optional<uint32_t> previous_, before_;              // the tensors of the current row and of the one before, in the same step
  bool first_rounding_ = false;                            // the current row is that of a backward pass
  // Of a tensor that is a sum over another's elements: that one. Of that one: what its last row tells.
  struct Terms {
    bool wanted = false;
    double count = 0, squares = kUnknown;
  };
  std::vector<std::optional<uint32_t>> terms_of_;
  std::vector<Terms> terms_;
  uint64_t backward_passes_ = 0;
};

Report analyze_ranges(const Snapshot& reader, const RangeOptions& options = {});

}  // namespace ulpscope
