#include "ulpscope/analyzers/captured_sample.h"

#include <fmt/format.h>

#include <span>

#include "ulpscope/trace/sources.h"

namespace ulpscope {

std::string sample_of(const Snapshot& of_rank, uint32_t tensor, const CaptureRow& node) {
  if (node.element < 0 || node.shape.empty()) return "";
  int64_t of_sample = 1;
  for (size_t i = 1; i < node.shape.size(); ++i)
    if (__builtin_mul_overflow(of_sample, node.shape[i], &of_sample)) return "";
  if (of_sample <= 0) return "";
  const int64_t wanted = node.element / of_sample, element = node.element % of_sample;
  const bool is_evaluation = of_rank.ops()[of_rank.tensors()[tensor].op].phase == Phase::evaluation;
  int64_t next = 0;
  std::string text;
  of_rank.visit_batches({node.step, node.step + 1}, [&](std::span<const BatchRow> rows) {
    for (const BatchRow& row : rows) {
      if (row.micro_batch != node.micro_batch || (row.phase == Phase::evaluation) != is_evaluation || next++ != wanted) continue;
      const FoundSample sample = find_sample(of_rank, row);
      text = fmt::format("element {} of {}", element,
                         sample.narrowed_to(static_cast<uint64_t>(element), static_cast<uint64_t>(of_sample)).text());
      return false;
    }
    return true;
  });
  return text;
}

}  // namespace ulpscope
