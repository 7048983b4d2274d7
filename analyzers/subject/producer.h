// Who wrote a trace, where what is known of its program decides what can be said.
#pragma once

#include "ulpscope/trace/records.h"

namespace ulpscope {

// Our own engine: its ops are those of docs/ops.md, and its runs can be run again.
inline bool is_of_own_engine(const RunInfo& run) { return run.producer == "ulpscope train"; }

}  // namespace ulpscope
