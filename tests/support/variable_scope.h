// A variable of the environment, which tests of one process share.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace ulpscope {

// Sets a variable within its lifetime.
class VariableScope {
 public:
  VariableScope(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~VariableScope() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  VariableScope(const VariableScope&) = delete;
  VariableScope& operator=(const VariableScope&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace ulpscope
