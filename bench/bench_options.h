// The command line of a program that prints JSON lines: one word, and options that have values.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulpscope/base/error.h"
#include "ulpscope/base/parse_number.h"

namespace ulpscope {

class BenchOptions {
 public:
  // `usage`: "PROGRAM WORD [--option VALUE]...", which has all options. Throws Error (usage) for a word that it has no place for.
  BenchOptions(int argc, char** argv, std::string usage) : usage_(std::move(usage)) {
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      if (argument.starts_with('-')) {
        if (usage_.find("[" + argument + " ") == std::string::npos || i + 1 == argc) throw unexpected(argument);
        values_.emplace_back(argument, argv[++i]);
      } else if (word_.empty()) {
        word_ = argument;
      } else {
        throw unexpected(argument);
      }
    }
  }

  const std::string& word() const { return word_; }
  // Of an option that may be repeated.
  std::vector<std::string> all(std::string_view option) const {
    std::vector<std::string> values;
    for (const auto& [name, value] : values_)
      if (name == option) values.push_back(value);
    return values;
  }
  std::string text(std::string_view option, std::string_view otherwise) const {
    const std::vector<std::string> values = all(option);
    return values.empty() ? std::string(otherwise) : values.back();
  }
  template <typename T>
  T number(std::string_view option, T otherwise) const {
    const std::string value = text(option, "");
    if (value.empty()) return otherwise;
    const std::optional<T> number = parse_number<T>(value);
    if (!number || *number < 0) throw usage_error("{}: expected a number of at least 0, got '{}'", option, value);
    return *number;
  }

 private:
  Error unexpected(const std::string& argument) const {
    return usage_error("unexpected argument '{}'; usage: {}", argument, usage_);
  }

  std::string usage_, word_;
  std::vector<std::pair<std::string, std::string>> values_;
};

// The exit code of a program that is named so: what `run` gives, or 2 and a line where it throws.
inline int run_bench(const char* name, int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return 2;
  }
}

}  // namespace ulpscope
