// What the findings of a report come to: a verdict in one line, and the causes, each with what came of it.
//
// A finding came of another where the other's rule says that it may (findings/), where it was not seen in an earlier step,
// and where recorded edges lead from a tensor of the other to one of its own: in one step in order of execution, and from step to
// step through weights and the optimizer's states, which updates wrote and later steps read. What is about the run as a whole, and
// has no tensors, can come of any, and is the cause of such findings only. Of what became of updates one finding comes of another
// where all its parameters are among the other's. Two findings that no edges connect stay two causes.
#pragma once

#include <functional>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {

// Sorts the findings by severity, and fills in verdict, verdict_text and causes. A cause is as severe as the worst that came of it.
// `nothing_found`: what is said where there is none.
void add_verdict(const Snapshot& trace, Report& report, const Sentences& nothing_found);

// What a report on one matter says of a run.
struct Matter {
  Sentence nothing_found;  // that does harm to it
  std::function<bool(const Finding&)> has;

  static Matter of(Part part, Sentence nothing_found);
};
// The same, of all findings on the run: the verdict is the run's, and of the findings those on the matter stay, with the causes
// that they came of and all else that came of these.
void add_verdict_on(const Matter& matter, const Snapshot& trace, Report& report);

}  // namespace ulpscope
