// What the rows of each tensor say of its range: the counts behind `ulpscope ranges`, and what findings need besides them.
#pragma once

#include <optional>

#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/totals/read_as_zero.h"
#include "ulpscope/analyzers/totals/rounding_noise.h"
#include "ulpscope/analyzers/totals/tensor_ranges.h"

namespace ulpscope {

class RangeFacts {
 public:
  // `tabled`: the formats of the what-if tables; nothing: only findings are asked for.
  explicit RangeFacts(std::optional<std::vector<const FloatFormat*>> tabled = {});
  void begin(const AnalysisContext& context);
  void update(const Block& block);
  void merge(RangeFacts&& other) { ranges_.merge(std::move(other.ranges_)); }
  TablesRead reads() const { return {}; }

  const ByRank<RunRanges>& ranges() const { return ranges_; }
  // In RangeTotals::what_if, of one that tables or plots have.
  size_t what_if_index(const FloatFormat& format) const;

 private:
  void see(const TensorRow& row);
  void add(const TensorRow& row, const Block& block, RunRanges& ranges);

  std::optional<std::vector<const FloatFormat*>> tabled_;  // with FP16, against which plots stand
  const AnalysisContext* context_ = nullptr;
  bool delays_scales_ = false;              // FP8 tensors take theirs from a history
  bool rounds_gradients_ = false;           // some computed gradient is in a narrow type
  std::optional<ReadAsZero> read_in_fp16_;  // where the gradients were not rounded
  std::optional<RoundingNoise> noise_;
  ByRank<RunRanges> ranges_;

  // Of the step that blocks are of.
  std::vector<std::pair<uint32_t, uint8_t>> passes_seen_;  // (micro-batch, loss) whose backward pass has had its first rounding
  std::optional<uint32_t> previous_, before_;              // the tensors of the current row and of the one before
  bool first_rounding_ = false;                            // the current row is that of a backward pass
};

}  // namespace ulpscope
