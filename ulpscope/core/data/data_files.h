// The files that data are read from.
#pragma once

#include <string>
#include <vector>

#include "ulpscope/core/data/dataset.h"

namespace ulpscope {

// The keys that hold paths of files or folders where data are of this kind.
std::vector<std::string DataSettings::*> path_keys(DataKind kind);

}  // namespace ulpscope
