#include "ulpscope/trace/recover.h"

#include "ulpscope/base/text.h"
#include "ulpscope/cli/output.h"
#include "ulpscope/cli/trace_path.h"
#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

namespace {

int run_recover(const Arguments& arguments) {
  const std::string from = trace_path(arguments.positional(0)), to = arguments.positional(1);
  const bool force = arguments.has("--force");
  check_replaceable(to, force, {from});
  const RecoverResult result = recover_trace(from, to, force);
  for (const std::string& loss : result.losses) say("ulpscope: warning: {}: {}", from, loss);
  const std::string of = result.lost_steps > 0 ? fmt::format("{} of ", result.steps) : std::string();
  say("{}: {}{}, {}{}", to, of, count_of(result.steps + result.lost_steps, "step"), count_of(result.tensor_rows, "tensor row"),
      result.losses.empty() ? "; all of the file could be read" : "");
  return kClean;
}

}  // namespace

Verb recover_verb() {
  return {"recover",
          "copy what can be read of a trace whose writer was killed, or that is damaged, into a new, closed trace",
          "All whole steps are copied, and what was lost is said. The trace itself is left as it is.",
          {{"TRACE", "a trace file, or a folder with one"}, {"NEW", "the file to write"}},
          {{"--force", "", "", "replace NEW where it exists"}},
          {{"ulpscope recover run.h5 recovered.h5", "after a crash: a trace that every HDF5 tool reads"}},
          run_recover};
}

}  // namespace ulpscope::cli
