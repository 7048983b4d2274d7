// Calls of the HDF5 C library with every return code checked. Internal to base/hdf5/.
#pragma once

#include <hdf5.h>

#include <string>
#include <string_view>

#include "ulpscope/base/hdf5/hdf5.h"

namespace ulpscope::hdf5 {

// Before the first call in a function: HDF5 prints nothing, in this thread, and closes nothing at exit. Throws Error (failed) where
// the library is not safe to call from several threads.
void prepare();

struct Failure {
  std::string text;
  bool of_system;  // the system's words
};
// HDF5's innermost message; of a failed system call, the system's words only.
Failure innermost_error();

// `where`: a place in what `name` names, as in ", rows 0 to 9".
[[noreturn]] void fail(std::string_view action, const std::string& name, const std::string& where = "");

// Both take what an HDF5 call returned.
Handle checked(hid_t id, std::string_view action, const std::string& name);
void check(herr_t status, std::string_view action, const std::string& name);

}  // namespace ulpscope::hdf5
