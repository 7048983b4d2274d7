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
// `healthy`: what is said where there is none.
void add_verdict(const Snapshot& trace, Report& report, const Sentences& healthy);

// Where the loss of no step is known, a run of which nothing is found is not called healthy.
void admit_unknown_loss(const Snapshot& trace, Report& report);

// What a report on one matter says of a run.
struct Matter {
  // The words where nothing was found that does harm to it.
  Sentence healthy;
  // The verdict's words on another matter: "But that is no matter of the loss scale: {healthy}", and "Of the loss scale:
  // {said}".
  const Template& no_matter;
  const Template& opening;
  std::function<bool(const Finding&)> has;

  static Matter of(Part part, Sentence healthy, const Template& no_matter, const Template& opening);
};
// The same, of all findings on the run: the verdict is the run's, and of the findings those on the matter stay, with the causes
// that they came of and all else that came of these.
void add_verdict_on(const Matter& matter, const Snapshot& trace, Report& report);

// Gives the finding another suggestion, in the verdict as well where that is about it.
void replace_suggestion(Report& report, size_t finding, Sentences suggestion);

}  // namespace ulpscope
