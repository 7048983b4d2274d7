#include "ulpscope/analyzers/findings/not_tried.h"

#include <algorithm>

#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/run_memory.h"
#include "ulpscope/analyzers/subject/producer.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/run_failure.h"
#include "ulpscope/analyzers/subject/sentence_names.h"

namespace ulpscope {

namespace findings {

extern constinit const Template kNanShowsElement{"advice.nan_shows_element", "`ulpscope nan {trace}` shows the element."};
extern constinit const Template kNanShowsOperands{"advice.nan_shows_operands",
                                                  "`ulpscope nan {trace}` shows the element and its operands."};

}  // namespace findings

namespace {

constexpr Template kNanTries{"advice.nan_tries", "Not tried yet: `ulpscope nan {trace}` tries {changes:either it|them}."};
constexpr Template kNanTriesAndShowsElement{
    "advice.nan_tries_and_shows_element",
    "Not tried yet: `ulpscope nan {trace}` tries {changes:either it|them}, and shows the element."};
constexpr Template kNanTriesAndShowsOperands{
    "advice.nan_tries_and_shows_operands",
    "Not tried yet: `ulpscope nan {trace}` tries {changes:either it|them}, and shows the element's operands."};

// As trials have it: to its end every loss is NaN or Inf or every step is skipped, or a weight holds one.
bool has_failed(const RunFacts& facts) {
  FailureWatch watch;
  for (const StepNumbers& one : facts.memory.steps.steps(facts.context))
    watch.add(one.step, one.loss_known ? one.loss : 0, one.skipped);
  const auto is_ruined = [&](const RangeJudgement::Tensor& tensor) {
    const Role role = facts.selection.tensor(tensor.index).role;
    const bool is_weight = role == Role::weight || role == Role::master_weight;
    return is_weight && facts.selection.op(tensor.index).phase == Phase::optimizer &&
           facts.ranges().nonfinite(tensor.index).rows > 0;
  };
  const auto& tensors = facts.ranges().tensors();
  return watch.failure() || std::any_of(tensors.begin(), tensors.end(), is_ruined);
}

bool can_be_run_again(const Snapshot& trace) {
  const std::vector<TracePart> parts = trace.parts();
  const RunInfo& run = parts.front().run;
  return is_of_own_engine(run) && run.parent_run.empty() && run.world_size <= 1 && trace.writer_state() != WriterState::alive;
}

}  // namespace

void tell_what_is_not_tried(const RunFacts& facts, Report& report) {
  if (report.causes.empty() || !can_be_run_again(facts.context.trace)) return;
  Finding& cause = report.findings[report.causes.front().finding];
  if (cause.changes.empty() || !has_failed(facts)) return;
  const auto says = [&](const Template& form) {
    return std::any_of(cause.suggestion.begin(), cause.suggestion.end(),
                       [&](const Sentence& each) { return each.id() == form.id; });
  };
  const Template& tries = says(findings::kNanShowsOperands)  ? kNanTriesAndShowsOperands
                          : says(findings::kNanShowsElement) ? kNanTriesAndShowsElement
                                                             : kNanTries;
  cause.suggestion.drop(findings::kNanShowsOperands);
  cause.suggestion.drop(findings::kNanShowsElement);
  cause.suggestion += tries({{"trace", trace_name(facts.context.trace)}, {"changes", cause.changes.size()}});
}

void leave_out_advice_on_nan(Report& report) {
  for (Finding& finding : report.findings)
    for (const Template* const advice : {&findings::kNanShowsElement, &findings::kNanShowsOperands})
      finding.suggestion.drop(*advice);
}

}  // namespace ulpscope
