// What --help and --version print, from the table of verbs.
#pragma once

#include "ulpscope/cli/verb.h"

namespace ulpscope::cli {

std::string overview(std::span<const Verb> verbs);
std::string verb_help(const Verb& verb);
std::string version_text();

// A whole decimal integer, or nothing.
std::optional<int64_t> parse_integer(std::string_view text);

}  // namespace ulpscope::cli
