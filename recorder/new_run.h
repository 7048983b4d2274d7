// Each run gets these when it begins, whoever records it.
#pragma once

#include <string>

#include "ulpscope/trace/records.h"

namespace ulpscope {

// 32 hexadecimal digits. A run's id must differ from every other's, so it is the one thing that no seed decides.
std::string new_run_id();

// Now, as RunInfo::started has it.
std::string utc_now();

}  // namespace ulpscope
