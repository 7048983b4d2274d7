#include <algorithm>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/findings/tensor_evidence.h"
#include "ulpscope/analyzers/judgements/op_errors.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/tensor_place.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::findings {

namespace {

constexpr Template kInexactOps{"precision.op_error",
                               "{outputs} of {all:count output} of ops {outputs:either is|are} {limit:%} or more of "
                               "{outputs:either its|their} norm off, by the arithmetic of the op alone."};
constexpr Template kWorstOp{"precision.op_error.worst",
                            "Worst: {worst}, {error} in the median of {steps:count step}; one rounding of the exact result costs "
                            "{floor}."};
constexpr Template kSumsInFp32{"advice.sums_in_fp32", "Add up in FP32{accumulation:brackets}."};
constexpr Template kOpInFp32{"advice.op_in_fp32", "Compute it in FP32."};

// The one that says how sums are kept: of all ops, or a table for some of them.
SettingMention accumulation_of(const SettingNames& settings) {
  const std::string_view fp32 = settings.words().fp32;
  for (const SettingInfo& each : settings.all())
    if (each.kind == SettingKind::accumulation && each.value != fp32) return settings.proposed(SettingKind::accumulation, fp32);
  for (const SettingInfo& each : settings.all()) {
    const bool is_table = each.value.starts_with("{") && each.value != "{}";
    if (is_table && (each.kind == SettingKind::arithmetic || each.kind == SettingKind::arithmetic_of_ops))
      return settings.now_named(each.name);
  }
  return {SettingKind::accumulation};
}

void find_op_errors(const RunFacts& facts, Findings& found) {
  const std::vector<OpError>& errors = facts.op_errors();  // the largest first
  TensorEvidence told;
  for (const OpError& error : errors)
    if (error.is_felt())
      told.add(facts.selection, error.tensor, error.first_step,
               {{"injected_error", error.injected, Unit::share},
                {"rounding_floor", error.floor, Unit::share},
                {"shadowed_steps", count_cell(error.steps), Unit::count}});
  if (told.evidence.empty()) return;
  const OpError* const worst = &*std::find_if(errors.begin(), errors.end(), [](const OpError& error) { return error.is_felt(); });
  Sentences title{
      kInexactOps({{"outputs", told.extent.tensors.size()}, {"all", errors.size()}, {"limit", {OpError::kFelt, Unit::share}}})};
  title += kWorstOp({{"worst", tensor_place(facts.selection, worst->tensor)},
                     {"error", {worst->injected, Unit::share}},
                     {"steps", worst->steps},
                     {"floor", {worst->floor, Unit::share}}});
  Advice advice;
  const OpSemantics& semantics = semantics_of(facts.selection.op(worst->tensor).function);
  const bool adds_up = semantics.product != ProductKind::none || has_trait(semantics.function, kSumsProducts) ||
                       semantics.reduces != Reduction::nothing;
  if (adds_up)
    advice.text = kSumsInFp32({{"accumulation", advice.set(accumulation_of(facts.context.settings))}});
  else
    advice.text = kOpInFp32();
  found.add(Severity::warning, std::move(title), std::move(told.evidence), std::move(advice), std::move(told.extent));
}

}  // namespace

extern constinit const FindingRule precision_op_error{
    .code = "precision.op_error",
    .part = Part::errors,
    .raised =
        "Outputs in 16 bits differ from what the same op gives in a wider type, from the same inputs, by 10% of its norm or more, "
        "and "
        "by more than twice what one rounding costs.",
    .meaning = "Sums of many terms were kept in too few bits, as in an accumulator of 16, or of factors that were rounded.",
    .help = "Sums in FP32.",
    .explains = {"run.no_better_than_guessing", "run.loss_rose", "run.loss_stayed"},
    .shown_by = "experiments/failures/gradient_added_in_fp16.toml",
    .find = find_op_errors,
};

}  // namespace ulpscope::findings
