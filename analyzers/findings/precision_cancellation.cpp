#include "ulpscope/analyzers/findings/families.h"
#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/tensor_evidence.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/value_losses.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"
#include "ulpscope/trace/measure_names.h"

namespace ulpscope::findings {

namespace {

constexpr Template kCancels{
    "precision.cancellation",
    "{place} cancels: {share} of its nonzero elements that were looked at are {units} units in the last place of "
    "an operand or less."};
constexpr Template kRoundingsLeft{
    "precision.cancellation.reader",
    "An operand that was rounded may be off by half a unit, and {reader} takes the {function} of what comes of "
    "it."};
constexpr Template kDividesByRest{
    "precision.cancellation.divisor",
    "An operand that was rounded may be off by half a unit, and {reader} divides by what comes of it."};
constexpr Template kOtherCancellations{"precision.cancellation.others", "So are {others:count other result}."};
constexpr Template kAvoidDifference{"advice.avoid_difference",
                                    "Compute it in {format}, or without the difference: of a variance, subtract the mean first."};
constexpr Template kClampHides{"advice.clamp_hides", "A clamp or an eps hides it."};

constexpr Template kRoot{"precision.root", "root"};
constexpr Template kLogarithm{"precision.logarithm", "logarithm"};
constexpr Template kPower{"precision.power", "power"};
constexpr Template kReciprocal{"precision.reciprocal", "reciprocal"};

Sentence taken_by(OpFunction reader) {
  switch (reader) {
    case OpFunction::sqrt:
    case OpFunction::rsqrt:
      return kRoot();
    case OpFunction::log:
      return kLogarithm();
    case OpFunction::pow:
      return kPower();
    default:
      return kReciprocal();
  }
}

void find_cancellations(const RunFacts& facts, Findings& found) {
  const std::vector<Cancellation>& cancellations = facts.value_losses().cancellations;  // the largest first
  if (cancellations.empty()) return;
  TensorEvidence told;
  for (const auto& [loss, unused] : cancellations)
    told.add(facts.selection, loss.tensor, loss.first_step,
             {{"cancelled", loss.share, Unit::share}, {"measured_steps", count_cell(loss.steps), Unit::count}});
  const auto& [worst, reader] = cancellations.front();
  const OpInfo& op = facts.context.trace.ops()[reader];
  Sentences title{kCancels({{"place", tensor_place(facts.selection, worst.tensor)},
                            {"share", {worst.share, Unit::share}},
                            {"units", static_cast<uint64_t>(kCancelledUnits)}})};
  const Name name{NameKind::op, op.name};
  title += op.function == OpFunction::div ? kDividesByRest({{"reader", name}})
                                          : kRoundingsLeft({{"reader", name}, {"function", taken_by(op.function)}});
  if (cancellations.size() > 1) title += kOtherCancellations({{"others", cancellations.size() - 1}});
  const bool is_narrow = size_of(facts.selection.tensor(worst.tensor).dtype) < 4;
  Advice advice = kAvoidDifference({{"format", Name{NameKind::format, is_narrow ? "FP32" : "FP64"}}});
  advice.text += kClampHides();
  found.add(Severity::warning, std::move(title), std::move(told.evidence), std::move(advice), std::move(told.extent));
}

}  // namespace

extern constinit const FindingRule precision_cancellation{
    .code = "precision.cancellation",
    .part = Part::errors,
    .raised =
        "A sum or difference of two tensors cancels in 10% of its elements or more, to 4 units in the last place of an operand, "
        "and its root, logarithm, or reciprocal is taken.",
    .meaning =
        "The subtraction is exact. What is left holds the roundings of its operands, up to a quarter of it or more, and may have "
        "the wrong sign.",
    .help = "The difference in a wider type, or a formula without it.",
    .explains = kOfNonfinite,
    .shown_by = "experiments/failures/variance_by_difference.toml",
    .find = find_cancellations,
};

}  // namespace ulpscope::findings
