// The one exception type of ulpscope. A message says what was expected and what came, and names the op, file or key; it is one
// line without a final newline.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace ulpscope {

// What went wrong, which decides the exit code of the command line.
enum class ErrorKind {
  usage,       // the caller asked for something that does not exist or does not fit: exit code 2
  unreadable,  // a file is missing, truncated, or not what it claims to be: exit code 3
  failed,      // anything else: exit code 4
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

template <typename... Args>
Error usage_error(fmt::format_string<Args...> format, Args&&... args) {
  return Error(ErrorKind::usage, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
Error unreadable_error(fmt::format_string<Args...> format, Args&&... args) {
  return Error(ErrorKind::unreadable, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
Error failed_error(fmt::format_string<Args...> format, Args&&... args) {
  return Error(ErrorKind::failed, fmt::format(format, std::forward<Args>(args)...));
}

// Runs `body`; the message of an Error that it throws gets "PLACE: " in front.
template <typename Body>
decltype(auto) at_place(std::string_view place, Body body) {
  try {
    return body();
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", place, error.what()));
  }
}

}  // namespace ulpscope
