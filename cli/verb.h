// A verb of the command line, described as data: help, parsing, shell completion and man pages all come from the same table.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ulpscope::cli {

enum ExitCode : int { kClean = 0, kFindings = 1, kUsage = 2, kUnreadable = 3, kFailed = 4 };

struct OptionSpec {
  std::string name;                       // "--step"
  std::string short_name;                 // "-o", or ""
  std::string argument;                   // "A..B"; "" for a flag
  std::string meaning;                    // one line
  std::string default_text = {};          // as help shows it, or ""
  std::vector<std::string> choices = {};  // what the argument can be; empty: anything
  bool list = false;                      // several values, separated by commas or given by repeating the option
};

struct PositionalSpec {
  std::string name;  // "TRACE"
  std::string meaning;
  bool optional = false;                  // may be missing; none that may not comes after it
  std::vector<std::string> choices = {};  // what it can be; empty: anything
  bool repeated = false;                  // may come any number of times; the last one only
  bool is_number = false;                 // so that -inf is one, and no options; the last one only
};

// "TRACE", "[TRACE]", "VALUE...".
std::string shown(const PositionalSpec& positional, std::string_view name);

struct Example {
  std::string command;
  std::string meaning;
};

// The parsed command line of one verb. Choices are checked; what a value means is up to the verb.
class Arguments {
 public:
  bool has(std::string_view option) const;
  // The last value given, or `otherwise`.
  std::string text(std::string_view option, std::string_view otherwise = "") const;
  // All values given, lists taken apart.
  std::vector<std::string> list(std::string_view option) const;
  // Throws Error (usage) where the value is no integer of at least `least`.
  std::optional<int64_t> integer(std::string_view option, int64_t least) const;
  // A time such as 90, 90s, 2m or 1h in seconds. Throws Error (usage) where the value is none above zero.
  std::optional<double> duration(std::string_view option) const;
  const std::string& positional(size_t index) const { return positionals_.at(index); }
  const std::vector<std::string>& positionals() const { return positionals_; }

  void add(const OptionSpec& option, std::string value);
  void add_positional(std::string value) { positionals_.push_back(std::move(value)); }

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
  std::vector<std::string> positionals_;
};

struct Verb {
  std::string name;
  std::string summary;      // one line, without a full stop
  std::string description;  // what help says above the options, or ""
  std::vector<PositionalSpec> positionals;
  std::vector<OptionSpec> options;
  std::vector<Example> examples;
  int (*run)(const Arguments&);  // returns an exit code, or throws Error
};

// All verbs, in the order in which help lists them.
const std::vector<Verb>& verbs();
// Throws Error (usage) where there is none of that name.
const Verb& find_verb(std::span<const Verb> verbs, std::string_view name);

}  // namespace ulpscope::cli
