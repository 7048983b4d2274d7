#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/findings/nonfinite_text.h"
#include "ulpscope/analyzers/output_slots.h"
#include "ulpscope/analyzers/precision_facts.h"
#include "ulpscope/analyzers/range_judgement.h"
#include "ulpscope/analyzers/run_analysis.h"
#include "ulpscope/analyzers/run_facts.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope::findings {

namespace {

// A tensor of which there were rows and that the op reads as that input.
std::optional<uint32_t> read_by(const RunFacts& facts, uint32_t op, uint8_t input) {
  const GraphEdge* const edge = facts.context.graph.read_by(op, input);
  if (edge == nullptr) return std::nullopt;
  for (const uint32_t i : facts.context.graph.made_by(edge->producer, edge->slot))
    if (facts.ranges().find(i)) return i;
  return std::nullopt;
}

// The same of the op's outputs.
std::optional<uint32_t> made_by(const RunFacts& facts, uint32_t op, uint8_t slot) {
  for (const uint32_t i : facts.context.graph.made_by(op, slot))
    if (facts.ranges().find(i)) return i;
  return std::nullopt;
}

// Up to the step of the origin.
bool was_finite(const RunFacts& facts, const NonfiniteOrigin& origin, uint32_t tensor) {
  const auto first = facts.ranges().nonfinite(tensor).first;
  return !first || first->step > origin.position.step;
}

// Second moments that were zero in the step of the origin.
uint64_t zero_moments(const RunFacts& facts, const NonfiniteOrigin& origin, uint32_t moments) {
  uint64_t zeros = 0;
  facts.context.trace.visit_history(moments, {origin.position.step, origin.position.step + 1},
                                    [&](std::span<const TensorRow> rows) {
                                      for (const TensorRow& row : rows)
                                        zeros += row.statistics.zeros + (row.before_rounding ? row.rounding.flushed : 0);
                                      return true;
                                    });
  return zeros;
}

// An update of Adam whose divisor is zero: eps was, or each operation is rounded and eps becomes it.
std::string cause_in_adam(const RunFacts& facts, const NonfiniteOrigin& origin) {
  const OpInfo& op = facts.selection.op(origin.tensor);
  const TensorInfo& made = facts.selection.tensor(origin.tensor);
  if (attribute(op, "eps") == 0.0) {
    const auto moments = made_by(facts, made.op, kSecondMomentSlot);
    const uint64_t zeros = moments ? zero_moments(facts, origin, *moments) : 0;
    return zeros == 0 ? ""
                      : fmt::format(
                            "The update divides by 0: eps is 0, and so {} {}, as where all gradients so far were 0. Adam "
                            "needs an eps above 0{}. ",
                            zeros == 1 ? "is" : "are", count_of(zeros, "second moment"),
                            in_brackets({facts.context.settings.now(SettingKind::epsilon)}));
  }
  if (!is_narrow(made.dtype)) return "";
  const auto stepwise = attribute(op, "stepwise"), eps = attribute(op, "eps"), beta2 = attribute(op, "beta2");
  const FloatFormat& format = *info(made.dtype).format;
  const double flushed = magnitude_thresholds(format, rounding_of(made)).flushed.surely_below;
  const auto squares = made_by(facts, made.op, kSecondMomentSlot);
  if (stepwise.value_or(0) == 0 || !eps || *eps > flushed || !beta2 || !squares) return "";
  const RangeTotals& totals = facts.ranges().find(*squares)->judged.totals;
  if (totals.seen.flushed.lower + totals.zeros == 0) return "";
  const SettingNames& settings = facts.context.settings;
  std::string once = settings.changed(SettingKind::update_math, "\"param\"", "\"fp32\"");
  std::string masters = settings.switched(SettingKind::master_weights, true);
  if (once.empty()) once = "An update in FP32" + in_brackets({settings.name(SettingKind::update_math)});
  masters = masters.empty() ? "FP32 master weights are updated in FP32" : masters + " updates in FP32";
  return fmt::format(
      "The update divides by 0: each of its operations is rounded to {0}{4}, which makes eps = {1:g} zero, as all up to 2^{2:g} "
      "are, and (1 - beta2) g^2 too for gradients g up to 2^{3:.3g}; exp_avg / (sqrt(exp_avg_sq) + eps) is then exp_avg / 0. {5} "
      "rounds once at the end; {6}. ",
      format.name, *eps, std::log2(flushed), 0.5 * std::log2(flushed / (1 - *beta2)),
      in_brackets({settings.with_value(SettingKind::update_math)}), once, masters);
}

// A loss that is NaN for finite inputs.
std::string cause_in_loss(const RunFacts& facts, const NonfiniteOrigin& origin) {
  const uint32_t op = facts.selection.tensor(origin.tensor).op;
  if (facts.selection.op(origin.tensor).function == OpFunction::binary_cross_entropy) {
    const auto probability = read_by(facts, op, 0), target = read_by(facts, op, 1);
    if (!probability || !was_finite(facts, origin, *probability) || (target && !was_finite(facts, origin, *target))) return "";
    return "The model's output was finite but no probability: binary_cross_entropy takes the logarithm of it and of 1 minus it, "
           "and below 0 a logarithm is NaN. End the model with a sigmoid, or use bce_with_logits. ";
  }
  const auto sums = made_by(facts, op, kSumsOfExponentsSlot);
  if (!sums || !was_finite(facts, origin, *sums)) return "";
  return fmt::format("All logits were finite, so the mean was one over no target, 0 / 0: {} every target of the batch. ",
                     facts.context.settings.has("loss.ignore_index") ? "loss.ignore_index ignored" : "the loss ignored");
}

// Where the op and what was recorded beside it leave one way only in which the first NaN or infinity came about: that, and what
// helps. "" otherwise.
std::string cause_of(const RunFacts& facts, const NonfiniteOrigin& origin) {
  const OpInfo& op = facts.selection.op(origin.tensor);
  const TensorInfo& made = facts.selection.tensor(origin.tensor);
  if (op.kind == OpKind::source && made.role != Role::input)
    return fmt::format("It was so before the first op that was recorded in step {}: look at how it was made or loaded. ",
                       origin.position.step);
  if (op.function == OpFunction::adam_update) return cause_in_adam(facts, origin);
  const bool is_loss = op.function == OpFunction::binary_cross_entropy || op.function == OpFunction::cross_entropy;
  return is_loss && made.slot == 0 && facts.ranges().infinities(origin.tensor) == 0 ? cause_in_loss(facts, origin) : "";
}

void find_nonfinite(const RunFacts& facts, Findings& found) {
  const RangeJudgement& ranges = facts.ranges();
  if (ranges.start() != NonfiniteStart::other) return;
  const NonfiniteOrigin& origin = *ranges.origin();
  const std::vector<uint32_t>& in_order = ranges.nonfinite_in_order();
  const char* const which =
      origin.position.step == 0 || in_order.empty() || ranges.nonfinite(in_order.front()).first->step == origin.position.step
          ? "The first"
          : "The one that lasted";
  const bool came_in = facts.selection.op(origin.tensor).kind == OpKind::source;
  found.add(ranges.harm(),
            fmt::format("{} held NaN or infinity{}. {}, in step {}, {}{}.", nonfinite_tensors(facts),
                        ranges.harm() == Severity::info && !ranges.is_filtered() ? ", and none of it reached a weight" : "", which,
                        origin.position.step, came_in ? "came in as " : "is ", place_of(facts, origin)),
            nonfinite_evidence(facts, origin),
            story_of(facts, origin) + cause_of(facts, origin) + advice_on_captures(facts, origin), nonfinite_extent(facts, origin));
}

}  // namespace

extern constinit const FindingRule range_nonfinite{
    .code = "range.nonfinite",
    .part = Part::ranges,
    .raised = "Tensors held NaN or infinity.",
    .meaning = "The first of them in order of execution is where to look; the others follow from it.",
    .help = "Its capture has the element and its operands: `ulpscope export --table captures`.",
    .explains = kOfNonfinite,
    .shown_by = "experiments/failures/log_of_zero.toml",
    .find_start = find_nonfinite,
};

}  // namespace ulpscope::findings
