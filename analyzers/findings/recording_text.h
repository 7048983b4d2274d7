// What findings on the recording share.
#pragma once

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/trace/records.h"

namespace ulpscope::findings {

inline constexpr Template kRecover{"advice.recover",
                                   "`ulpscope recover` copies the steps that were committed into a closed trace."};

// What events of that kind say: the first of them as the title, a few as evidence.
void tell_events(const RunFacts& facts, EventKind kind, Severity severity, const Advice& advice, Findings& found);

// Of the first events by which a recording, or a run, ended early, those of that kind. Each says something else: no more rows, no
// more steps, training. A producer writes a few.
std::vector<const EventRow*> ends(const RunFacts& facts, EventKind kind);

}  // namespace ulpscope::findings
