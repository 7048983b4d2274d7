// The tables and plots of `ulpscope ranges`, worst first.
#pragma once

#include <cstdint>
#include <vector>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/emulation/format.h"

namespace ulpscope {

struct AnalysisContext;
class RangeFacts;
class RangeJudgement;
class Selection;

enum class GroupBy : uint8_t { tensor, module, phase, role };
const char* name_of(GroupBy by);

struct RangeTableOptions {
  GroupBy by = GroupBy::tensor;
  std::vector<const FloatFormat*>
      formats;  // of the what-if tables; the plots stand against the first, or FP16, or FP8 where it was used
};

class RangeTables {
 public:
  // All arguments outlive them.
  RangeTables(const AnalysisContext& context, const RangeTableOptions& options, const RangeFacts& facts,
              const RangeJudgement& ranges);
  void add_to(Report& report) const;

 private:
  struct Group;

  std::vector<Group> groups() const;
  void add_recorded_table(Report& report, const std::vector<Group>& groups) const;
  void add_quantized_table(Report& report, const std::vector<Group>& groups) const;  // of those in FP8
  void add_what_if_table(Report& report, const std::vector<Group>& groups, const FloatFormat& format) const;
  void add_plots(Report& report, const std::vector<Group>& groups) const;

  const AnalysisContext& context_;
  const Selection& selection_;
  const RangeTableOptions& options_;
  const RangeFacts& facts_;
  const RangeJudgement& ranges_;
};

}  // namespace ulpscope
