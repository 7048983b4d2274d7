#include "ulpscope/analyzers/findings/nonfinite_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/range_judgement.h"
#include "ulpscope/analyzers/run_analysis.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/suspects.h"
#include "ulpscope/base/text.h"

namespace ulpscope::findings {

std::string place_of(const RunFacts& facts, const NonfiniteOrigin& origin) {
  const std::string name = facts.selection.name(origin.tensor), phase = name_of(facts.selection.op(origin.tensor).phase);
  return name + (name.find(phase) == std::string::npos ? fmt::format(" in {}", phase) : "");
}

std::string nonfinite_tensors(const RunFacts& facts) {
  std::vector<uint32_t> all;
  for (const auto& [i, judged, broken] : facts.ranges().tensors()) {
    if (judged.totals.nonfinite() > 0 || (broken && broken->totals.nonfinite() > 0)) all.push_back(i);
  }
  return count_of(facts.selection.count_outputs(all), "tensor");
}

std::vector<Evidence> nonfinite_evidence(const RunFacts& facts, const NonfiniteOrigin& origin) {
  const RangeJudgement& ranges = facts.ranges();
  std::vector<Evidence> evidence;
  const auto add = [&](uint32_t i, const RowPosition& position) {
    evidence.push_back(
        {facts.selection.key(i, position),
         {{"nan", count_cell(ranges.nan(i)), Unit::count}, {"infinity", count_cell(ranges.infinities(i)), Unit::count}}});
  };
  add(origin.tensor, origin.position);
  for (const uint32_t i : ranges.nonfinite_in_order()) {
    if (evidence.size() == kMostEvidence) break;
    if (i != origin.tensor) add(i, *ranges.nonfinite(i).first);
  }
  return evidence;
}

Extent nonfinite_extent(const RunFacts& facts, const NonfiniteOrigin& origin) {
  Extent extent{facts.ranges().nonfinite_in_order(), origin.position.step, origin.tensor};
  std::vector<uint32_t>& tensors = extent.tensors;
  if (std::find(tensors.begin(), tensors.end(), origin.tensor) == tensors.end()) tensors.push_back(origin.tensor);
  return extent;
}

std::string story_of(const RunFacts& facts, const NonfiniteOrigin& origin) {
  const std::vector<CaptureRow> captures = facts.context.trace.captures({origin.position.step, origin.position.step + 1});
  const CaptureRow* root = nullptr;
  std::vector<const CaptureRow*> operands;
  for (const CaptureRow& node : captures) {
    if (node.tensor != origin.tensor || node.micro_batch != origin.position.micro_batch) continue;
    if (node.node == 0) {
      if (root != nullptr) break;
      root = &node;
    } else if (root != nullptr && node.parent == 0) {
      operands.push_back(&node);
    }
  }
  if (root == nullptr) return "";
  const OpInfo& op = facts.selection.op(origin.tensor);
  const std::string value = std::isnan(root->value) ? "NaN" : root->value > 0 ? "infinity" : "-infinity";
  if (std::isfinite(root->partial_sum) && root->terms > 0) {
    return fmt::format("Element {} is a sum of {} that was {:.6g} before it was rounded. ", root->element,
                       count_of(static_cast<uint64_t>(root->terms), "term"), root->partial_sum);
  }
  const bool is_plain = op.kind == OpKind::elementwise || op.kind == OpKind::cast;
  if (!is_plain || operands.empty() || operands.size() > 3) return "";
  std::string arguments;
  for (const CaptureRow* operand : operands) {
    if (operand->overwritten || operand->row.count > 0) return "";
    arguments += fmt::format("{}{:.6g}", arguments.empty() ? "" : ", ", operand->value);
  }
  return fmt::format("Element {} is {}({}) = {}. ", root->element, op.name, arguments, value);
}

std::string advice_on_captures(const RunFacts& facts, const NonfiniteOrigin& origin) {
  return fmt::format("`ulpscope export {} --table captures --step {}` shows the element and its operands.",
                     shell_word(facts.context.trace.path()), origin.position.step);
}

void tell_overflow(const RunFacts& facts, const std::string& help, Findings& found) {
  const NonfiniteOrigin& origin = *facts.ranges().origin();
  found.add(facts.ranges().harm(),
            fmt::format("{} became too large for {} in step {}, {}: {} held NaN or infinity in the run.", place_of(facts, origin),
                        info(facts.selection.tensor(origin.tensor).dtype).format->name, origin.position.step,
                        count_of(origin.overflowed, "element"), nonfinite_tensors(facts)),
            nonfinite_evidence(facts, origin),
            fmt::format("{}. {}{}", help, story_of(facts, origin), advice_on_captures(facts, origin)),
            nonfinite_extent(facts, origin));
}

}  // namespace ulpscope::findings
