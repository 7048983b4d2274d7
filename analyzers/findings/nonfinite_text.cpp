#include "ulpscope/analyzers/findings/nonfinite_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "ulpscope/analyzers/precision_facts.h"
#include "ulpscope/analyzers/range_judgement.h"
#include "ulpscope/analyzers/run_analysis.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/analyzers/suspects.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::findings {

std::string place_of(const RunFacts& facts, const NonfiniteOrigin& origin) {
  const std::string& name = facts.selection.name(origin.tensor);
  return facts.selection.name_tells_phase(origin.tensor)
             ? name
             : fmt::format("{} in {}", name, name_of(facts.selection.op(origin.tensor).phase));
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

namespace {

// The first element of a tensor that was captured in a step, and its operands.
struct Captured {
  std::optional<CaptureRow> element;
  std::vector<CaptureRow> operands;
};

Captured captured_in(const RunFacts& facts, uint32_t tensor, uint64_t step, std::optional<uint32_t> micro_batch) {
  Captured found;
  for (const CaptureRow& node : facts.context.trace.captures({step, step + 1})) {
    if (node.tensor != tensor || (micro_batch && node.micro_batch != *micro_batch)) continue;
    if (node.node == 0) {
      if (found.element) break;
      found.element = node;
    } else if (found.element && node.parent == 0) {
      found.operands.push_back(node);
    }
  }
  return found;
}

std::string story_of_sum(const RunFacts& facts, const CaptureRow& element, uint32_t tensor) {
  const std::string sum =
      fmt::format("Element {} is a sum of {}", element.element, count_of(static_cast<uint64_t>(element.terms), "term"));
  if (element.broke_at == 0) return sum + ", the first of which is no finite number. ";
  if (element.broke_at > 0)
    return fmt::format("{}: the first {} made {:.6g}, and with the next one it was no finite number. ", sum, element.broke_at,
                       element.partial_sum);
  const TensorInfo& made = facts.selection.tensor(tensor);
  const MagnitudeThreshold beyond = magnitude_thresholds(*info(made.dtype).format, rounding_of(made)).beyond;
  if (std::abs(element.partial_sum) < beyond.perhaps_above()) return "";  // something else was done with it
  return fmt::format("{} that was {:.6g} before it was rounded. ", sum, element.partial_sum);
}

}  // namespace

std::string story_of(const RunFacts& facts, const NonfiniteOrigin& origin) {
  const Captured captured = captured_in(facts, origin.tensor, origin.position.step, origin.position.micro_batch);
  if (!captured.element) return "";
  const CaptureRow& element = *captured.element;
  if (std::isfinite(element.partial_sum) && element.terms > 0) return story_of_sum(facts, element, origin.tensor);
  const OpInfo& op = facts.selection.op(origin.tensor);
  const bool is_plain = op.kind == OpKind::elementwise || op.kind == OpKind::cast;
  if (!is_plain || captured.operands.empty() || captured.operands.size() > 3) return "";
  std::string arguments;
  for (const CaptureRow& operand : captured.operands) {
    if (operand.overwritten || operand.row.count > 0) return "";
    arguments += fmt::format("{}{:.6g}", arguments.empty() ? "" : ", ", operand.value);
  }
  const std::string value = std::isnan(element.value) ? "NaN" : element.value > 0 ? "infinity" : "-infinity";
  return fmt::format("Element {} is {}({}) = {}. ", element.element, op.name, arguments, value);
}

std::string advice_on_captures(const RunFacts& facts, const NonfiniteOrigin& origin) {
  const auto command = [&](uint64_t step) {
    return fmt::format("`ulpscope export {} --table captures --step {}`", shell_word(facts.context.trace.path()), step);
  };
  const Captured captured = captured_in(facts, origin.tensor, origin.position.step, std::nullopt);
  if (captured.element)
    return command(origin.position.step) +
           (captured.operands.empty() ? " shows the element." : " shows the element and its operands.");
  // A tensor that held them often is captured less and less often.
  std::optional<uint64_t> other;
  for (const CaptureRow& node : facts.context.trace.captures({0, UINT64_MAX})) {
    if (node.tensor == origin.tensor && node.node == 0 && (!other || node.step <= origin.position.step)) other = node.step;
  }
  return other ? command(*other) + " shows an element of it in another step." : "";
}

const char* const kNoTypeHelps = "No type helps, for its range is that of FP32: look at what made values grow";

void tell_overflow(const RunFacts& facts, const std::string& help, Findings& found) {
  const NonfiniteOrigin& origin = *facts.ranges().origin();
  const bool none_helps = has_range_of_fp32(facts.selection.tensor(origin.tensor).dtype);
  found.add(facts.ranges().harm(),
            fmt::format("{} became too large for {} in step {}, {}: {} held NaN or infinity in the run.", place_of(facts, origin),
                        info(facts.selection.tensor(origin.tensor).dtype).format->name, origin.position.step,
                        count_of(origin.overflowed, "element"), nonfinite_tensors(facts)),
            nonfinite_evidence(facts, origin),
            fmt::format("{}. {}{}", none_helps ? kNoTypeHelps : help, story_of(facts, origin), advice_on_captures(facts, origin)),
            nonfinite_extent(facts, origin));
}

}  // namespace ulpscope::findings
