// From a command line to a verb and its arguments, by the table of verbs.
#pragma once

#include "ulpscope/cli/verb.h"

namespace ulpscope::cli {

struct Command {
  const Verb* verb = nullptr;  // nullptr: what is asked for is in `show`
  Arguments arguments;
  std::string show;  // help or version, for stdout
};

// `words` without the program's name. Throws Error (usage).
Command parse(std::span<const Verb> verbs, std::vector<std::string> words);

}  // namespace ulpscope::cli
