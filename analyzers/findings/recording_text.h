// What findings on the recording share.
#pragma once

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/trace/records.h"

namespace ulpscope::findings {

// What a program said of something that ended, to stand before a full stop of the sentence.
Name event_name(std::string text);
// How the committed steps of that trace are saved.
Sentence recover(const std::string& path);

// What events of that kind say: the first of them as the title, a few as evidence.
void tell_events(const RunFacts& facts, EventKind kind, Severity severity, const Advice& advice, Findings& found);

// Of the first events by which a recording, or a run, ended early, those of that kind. Each says something else: no more rows, no
// more steps, training. A producer writes a few.
std::vector<const EventRow*> ends(const RunFacts& facts, EventKind kind);

}  // namespace ulpscope::findings
