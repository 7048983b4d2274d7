// How a verb writes: data to stdout, messages to stderr, reports to a file when asked to. All of it is UTF-8, whatever bytes names
// from files and the command line have: JSON has to be, and terminals and spreadsheets expect it (valid_utf8). Characters are given
// whole.
#pragma once

#include <fmt/core.h>

#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/cli/verb.h"

namespace ulpscope::cli {

// Standard files that are closed are opened on nothing, so that no other file takes their place. Writing to them fails as before.
void reserve_standard_files();

// False where nobody reads stdout any more (a closed pipe), which is no error. Throws Error (failed) where it cannot be written.
bool write_stdout(std::string_view text);

// What cannot be written to stderr is dropped: the terminal may be gone, and what the command does matters more.
void write_stderr(std::string_view text);
// A line of its own on stderr.
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  write_stderr(fmt::format(format, std::forward<Args>(args)...) + "\n");
}

// Replaces the file at `path`. Throws Error (failed).
void write_text_file(const std::string& path, std::string_view text);

// True iff the standard file is a terminal that can move its cursor and show colours.
bool is_capable_terminal(int file);

// Width and colour of stdout as it stands: it has a width if it is a terminal or COLUMNS says so, and colours on a capable terminal
// only, and not with NO_COLOR.
TextOptions text_options_of_stdout();

// True iff both exist, or could, as one file.
bool is_same_file(const std::string& a, const std::string& b);

// Before anything else is done: throws Error (usage) where the file exists and may not be replaced, without `force`, where it is no
// regular file, or where it is one of the command's other files, and Error (failed) where its folder does not exist or takes no
// file.
void check_replaceable(const std::string& path, bool force, const std::vector<std::string>& others = {});

// A folder that a verb writes files into, which `option` names: created where it is missing. Throws Error (usage) where it is a
// file, or holds files and may not, and (failed) where it cannot be created.
void make_output_folder(const std::filesystem::path& folder, bool may_hold_files, std::string_view option);

}  // namespace ulpscope::cli
