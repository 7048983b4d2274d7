// Saves what can be read of a damaged, truncated or unfinished trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ulpscope {

// Copies the committed steps of the trace at `from` (closed, dead or alive) into a new, closed trace at `to`. Of a damaged or
// truncated trace these are the steps whose row in `steps` and whose rows in `stats` can be read; rows of other tables that cannot
// be are left out, and warnings in the new trace say what was lost. The copy has this program's schema: of a newer trace it lacks
// what that does not have. Throws Error where nothing can be read of `from` or where `to` cannot be written; `to` is not left
// behind half-written.
struct RecoverResult {
  uint64_t steps = 0, tensor_rows = 0;
  uint64_t lost_steps = 0;          // committed, and not copied
  std::vector<std::string> losses;  // a line each: "'stats/zeros' rows 0 to 2047 cannot be read: steps 0 to 27 are lost"
};
RecoverResult recover_trace(const std::string& from, const std::string& to, bool overwrite = false);

}  // namespace ulpscope
