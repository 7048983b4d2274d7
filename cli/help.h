// What --help and --version print, from the table of verbs, and what man pages say in the same words.
#pragma once

#include "ulpscope/cli/verb.h"

namespace ulpscope::cli {

inline constexpr const char* kSummary = "a numerical debugger for mixed-precision training";
inline constexpr std::string_view kExitCodes[] = {"clean", "findings at or above --fail-on", "usage", "unreadable input",
                                                  "anything else that failed"};
// Of the program as a whole.
inline const Example kExamples[] = {
    {"ulpscope train fashion_cnn --precision fp16 -o run.h5", "train a small network, and record the numbers of every op"},
    {"ulpscope report run.h5", "what was found in them"}};

// "meaning: choice or choice (default: text)".
std::string describe(const OptionSpec& option);

std::string overview(std::span<const Verb> verbs);
std::string verb_help(const Verb& verb);
std::string version_text();
// "0.1.0".
std::string version_number();

}  // namespace ulpscope::cli
