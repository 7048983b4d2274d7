#include "ulpscope/cli/output.h"
#include "ulpscope/cli/verbs.h"
#include "ulpscope/trace/reader.h"

namespace ulpscope::cli {

namespace {

int run(const Arguments& arguments) {
  const std::string to = arguments.positional(1);
  const bool force = arguments.has("--force");
  check_replaceable(to, force, {arguments.positional(0)});
  const RecoverResult result = recover_trace(arguments.positional(0), to, force);
  say("{}: {} steps, {} tensor rows", to, result.steps, result.tensor_rows);
  return kClean;
}

}  // namespace

Verb recover_verb() {
  return {"recover",
          "copy all whole steps of a trace whose writer was killed into a new, closed trace",
          "The trace itself is left as it is.",
          {{"TRACE", "a trace file"}, {"NEW", "the file to write"}},
          {{"--force", "", "", "replace NEW where it exists"}},
          {{"ulpscope recover run.h5 recovered.h5", "after a crash: a trace that every HDF5 tool reads"}},
          run};
}

}  // namespace ulpscope::cli
