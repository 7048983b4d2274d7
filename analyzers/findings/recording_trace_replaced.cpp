#include <algorithm>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kTraceReplaced{"recording.trace_replaced",
                                  "'{trace}' is not read: '{later}' was resumed later, at step {step}, and replaces it."};
constexpr Template kReplacedEnds{"recording.replaced_trace_ends", "It ends with step {last}{end}."};
constexpr Template kRunReadEnds{"recording.run_read_ends", ", the run as read with step {step}"};
constexpr Template kReadByItself{"advice.read_by_itself", "If you mean '{trace}', read it alone."};

void find_replaced_traces(const RunFacts& facts, Findings& found) {
  const AnalysisContext& context = facts.context;
  for (const ReplacedTrace& trace : context.trace.replaced_traces()) {
    if (trace.end == 0) continue;
    uint64_t end = 0;
    for (const TracePart& part : context.parts) {
      const StepSet steps = facts.step_facts.steps_of(part);
      if (part.run.rank == trace.by.rank && !steps.empty()) end = std::max(end, steps.last() + 1);
    }
    // A run that goes on may still come to the steps that the earlier one had.
    const bool is_missed = trace.end > end && context.trace.writer_state() != WriterState::alive;
    const Name path{NameKind::file, trace.path};
    Value run_end;
    if (is_missed && end > 0) run_end = kRunReadEnds({{"step", ordinal(end - 1)}});
    found.add(is_missed ? Severity::warning : Severity::info,
              {kTraceReplaced({{"trace", path},
                               {"later", Name{NameKind::file, trace.by_path}},
                               {"step", ordinal(std::max<int64_t>(0, trace.by.parent_step))}}),
               kReplacedEnds({{"last", ordinal(trace.end - 1)}, {"end", run_end}})},
              {}, kReadByItself({{"trace", path}}));
  }
}

}  // namespace

extern constinit const FindingRule recording_trace_replaced{
    .code = "recording.trace_replaced",
    .part = Part::recording,
    .raised =
        "A trace of the folder begins no earlier than another one that was resumed later. A warning where the later one ends "
        "before it.",
    .meaning = "The later run replaces the earlier one in all of its steps.",
    .help = "Read the earlier trace alone.",
    .is_about_run = false,
    .find = find_replaced_traces,
};

}  // namespace ulpscope::findings
