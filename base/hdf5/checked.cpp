#include "ulpscope/base/hdf5/checked.h"

#include <mutex>

#include "ulpscope/base/error.h"

namespace ulpscope::hdf5 {

// The error stack belongs to the thread, and so does the switch that keeps HDF5 from printing it.
void prepare() {
  static std::once_flag once;
  std::call_once(once, [] {
    // A thread writes the trace while others write checkpoints, and a window reads beside both.
    hbool_t is_threadsafe = false;
    if (H5is_library_threadsafe(&is_threadsafe) < 0 || !is_threadsafe)
      throw failed_error("HDF5 was built without thread safety; expected a library built with it, as Debian's is");
    // Without this, exit() would close files that a thread may still be writing.
    H5dont_atexit();
  });
  thread_local bool quiet = false;
  if (!quiet) {
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    quiet = true;
  }
}

Failure innermost_error() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* error, void* result) -> herr_t {
        auto& message = *static_cast<std::string*>(result);
        if (message.empty() && error->desc) message = error->desc;
        return 0;
      },
      &text);
  H5Eclear2(H5E_DEFAULT);
  constexpr std::string_view kSystem = "error message = '";
  if (const size_t at = text.find(kSystem); at != std::string::npos) {
    const size_t begin = at + kSystem.size();
    return {text.substr(begin, text.find('\'', begin) - begin), true};
  }
  if (const size_t end = text.find('\n'); end != std::string::npos) text.resize(end);
  return {text.empty() ? "unknown HDF5 error" : text, false};
}

void fail(std::string_view action, const std::string& name, const std::string& where) {
  const Failure failure = innermost_error();
  const bool reading = action == "open" || action == "read";
  throw failed_error("cannot {} '{}'{}: {}", action, name, where, reading && !failure.of_system ? "damaged" : failure.text);
}

Handle checked(hid_t id, std::string_view action, const std::string& name) {
  if (id < 0) fail(action, name);
  return Handle(id);
}

void check(herr_t status, std::string_view action, const std::string& name) {
  if (status < 0) fail(action, name);
}

}  // namespace ulpscope::hdf5
