// The kinds of data as experiments know them: the keys that each takes, and the files that it is read from.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ulpscope/core/data/dataset.h"

namespace ulpscope {

// Of the keys that not all kinds take, those that this one does: "path", without the name of the table.
std::span<const std::string_view> keys_of(DataKind kind);
// The keys that hold paths of files or folders where data are of this kind.
using PathKeys = std::span<std::string DataSettings::*const>;
PathKeys path_keys(DataKind kind);

}  // namespace ulpscope
