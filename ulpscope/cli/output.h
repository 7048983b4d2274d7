// How a verb writes: data to stdout, messages to stderr, reports to a file when asked to.
#pragma once

#include <string_view>
#include <vector>

#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/cli/verb.h"

namespace ulpscope::cli {

// False where nobody reads stdout any more (a closed pipe), which is no error. Throws Error (failed) where it cannot be written.
bool write_stdout(std::string_view text);

// Width and colour of stdout as it stands: colours on a terminal only, and not with NO_COLOR or TERM=dumb.
TextOptions text_options_of_stdout();

// Throws Error (usage) where the file exists and may not be replaced: without `force`, where it is no regular file, or where it is
// one of the command's inputs.
void check_replaceable(const std::string& path, bool force, const std::vector<std::string>& inputs = {});

}  // namespace ulpscope::cli
