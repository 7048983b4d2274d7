// What trials add to a report on NaN (analyzers/verbs/nan.h).
#pragma once

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/studies/fixes.h"
#include "ulpscope/trace/snapshot.h"

namespace ulpscope {

// How the run of the trace failed; nothing: it did not, or neither its steps nor the rows of its weights tell.
std::optional<RunFailure> failure_of(const Snapshot& trace);

// The start of trials of the trace's run: its experiment, from the first step on, with as many threads and the instruction set that
// the run had, where the trace tells (else cpu.threads is 0) and this machine has it. Throws Error (usage) where they cannot start
// there: another producer's run, one that was resumed, or one that goes on.
Trial trial_from_start(const Snapshot& trace);

// Facts: run_again, the reference and the loss that counts as training. Table: fixes. The trial whose change the verdict then
// names, which keeps the run from failing; nullptr: none does.
const FixTrial* add_fixes(const FixStudy& study, Report& report);

}  // namespace ulpscope
