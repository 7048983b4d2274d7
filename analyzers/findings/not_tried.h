// What `ulpscope nan` has to say beyond a report: an element and its operands, and what came of the changes that are advised.
#pragma once

#include "ulpscope/analyzers/report/report.h"

namespace ulpscope {

class RunFacts;

namespace findings {

// Advice to ask `ulpscope nan` for the element.
extern const Template kNanShowsElement, kNanShowsOperands;

}  // namespace findings

// The advice of the first cause says that none of it was tried, and which command tries it, where that is so: the run failed, and
// can be run again.
void tell_what_is_not_tried(const RunFacts& facts, Report& report);
// Of what `ulpscope nan` is to say itself.
void leave_out_advice_on_nan(Report& report);

}  // namespace ulpscope
