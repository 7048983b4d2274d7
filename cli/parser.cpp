#include "ulpscope/cli/parser.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "ulpscope/base/error.h"
#include "ulpscope/base/parse_number.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/help.h"

namespace ulpscope::cli {

namespace {

// The choice as help writes it: E4M3 is e4m3.
std::string choice_of(const std::string& name, const std::vector<std::string>& choices, const std::string& value) {
  if (choices.empty()) return value;
  for (const std::string& choice : choices)
    if (lower_case(choice) == lower_case(value)) return choice;
  throw usage_error("{} takes {}, not '{}'{}", name, join_words(choices, "or"), value, did_you_mean(value, choices));
}

[[noreturn]] void refuse_without_value(const OptionSpec& option) {
  throw usage_error("{} needs a value ({})", option.name, option.argument);
}

// Values of an option, lists taken apart at commas.
void add_values(const OptionSpec& option, const std::string& value, Arguments& arguments) {
  size_t begin = 0;
  do {
    const size_t end = option.list ? value.find(',', begin) : std::string::npos;
    const std::string part = value.substr(begin, end == std::string::npos ? end : end - begin);
    if (part.empty()) refuse_without_value(option);
    arguments.add(option, choice_of(option.name, option.choices, part));
    begin = end == std::string::npos ? end : end + 1;
  } while (begin != std::string::npos);
}

[[noreturn]] void refuse(const Verb& verb, const std::string& word) {
  if (word.size() < 2 || word[0] != '-') throw usage_error("{} has no place for '{}'", verb.name, word);
  const std::string name = word.substr(0, word.find('='));
  std::vector<std::string> names{"--help"};
  for (const OptionSpec& option : verb.options) names.push_back(option.name);
  throw usage_error("{} has no option {}{}", verb.name, name, did_you_mean(name, names));
}

// CLI11 takes -inf and -.5 for options. Behind this mark, which no word has by itself, they are none.
constexpr char kNumberMark = '\x1F';

bool is_negative_number(const std::string& word) {
  const std::string lower = lower_case(word);
  if (lower == "-inf" || lower == "-infinity" || lower == "-nan") return true;
  return word.size() > 1 && word[0] == '-' && (word[1] == '.' || (word[1] >= '0' && word[1] <= '9'));
}

void unmark(std::vector<std::string>& words) {
  for (std::string& word : words)
    if (word.starts_with(kNumberMark)) word.erase(0, 1);
}

Command parse_verb(const Verb& verb, std::vector<std::string> words) {
  if (!verb.positionals.empty() && verb.positionals.back().is_number) {
    for (std::string& word : words)
      if (is_negative_number(word)) word.insert(word.begin(), kNumberMark);
  }
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  bool help = false;
  app.add_flag("-h,--help", help);
  // Storage must not move while CLI11 holds references to it.
  std::vector<std::vector<std::string>> values(verb.options.size());
  std::vector<std::string> positionals;
  for (size_t i = 0; i < verb.options.size(); ++i) {
    const OptionSpec& option = verb.options[i];
    const std::string names = option.short_name.empty() ? option.name : option.short_name + "," + option.name;
    if (option.argument.empty()) {
      app.add_flag(names, values[i]);
    } else {
      app.add_option(names, values[i])->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
    }
  }
  app.add_option("positionals", positionals)->expected(-1);
  std::reverse(words.begin(), words.end());  // as CLI11 takes a vector
  try {
    app.parse(std::move(words));
  } catch (const CLI::ArgumentMismatch& error) {
    for (const OptionSpec& option : verb.options) {
      if (std::string_view(error.what()).starts_with(option.name + ":")) refuse_without_value(option);
    }
    throw usage_error("{}: {}", verb.name, error.what());
  } catch (const CLI::ParseError& error) {
    std::string message = error.what();
    std::replace(message.begin(), message.end(), '\n', ' ');
    throw usage_error("{}: {}", verb.name, message);
  }
  unmark(positionals);
  for (std::vector<std::string>& of_option : values) unmark(of_option);
  Command command;
  if (help) {
    command.show = verb_help(verb);
    return command;
  }
  for (const std::string& word : app.remaining())
    if (word != "--") refuse(verb, word);  // which ends the options
  for (size_t i = 0; i < verb.options.size(); ++i) {
    const OptionSpec& option = verb.options[i];
    for (const std::string& value : values[i]) {
      if (option.argument.empty()) {
        if (value != "true") throw usage_error("{} takes no value, and '{}' came", option.name, value);
        command.arguments.add(option, value);
      } else {
        add_values(option, value, command.arguments);
      }
    }
  }
  const bool is_open = !verb.positionals.empty() && verb.positionals.back().repeated;
  if (positionals.size() > verb.positionals.size() && !is_open) refuse(verb, positionals[verb.positionals.size()]);
  if (positionals.size() < verb.positionals.size() && !verb.positionals[positionals.size()].optional) {
    const PositionalSpec& missing = verb.positionals[positionals.size()];
    throw usage_error("{} needs {} ({}); `ulpscope {} --help` shows how", verb.name, missing.name, missing.meaning, verb.name);
  }
  for (size_t i = 0; i < positionals.size(); ++i) {
    const PositionalSpec& positional = verb.positionals[std::min(i, verb.positionals.size() - 1)];
    command.arguments.add_positional(choice_of(positional.name, positional.choices, positionals[i]));
  }
  command.verb = &verb;
  return command;
}

}  // namespace

bool Arguments::has(std::string_view option) const { return values_.find(option) != values_.end(); }

std::string Arguments::text(std::string_view option, std::string_view otherwise) const {
  const auto found = values_.find(option);
  return found == values_.end() ? std::string(otherwise) : found->second.back();
}

std::vector<std::string> Arguments::list(std::string_view option) const {
  const auto found = values_.find(option);
  return found == values_.end() ? std::vector<std::string>() : found->second;
}

std::optional<int64_t> Arguments::integer(std::string_view option, int64_t least) const {
  if (!has(option)) return std::nullopt;
  const std::string value = text(option);
  const std::optional<int64_t> number = parse_number<int64_t>(value);
  const bool is_whole = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
  if (!number && is_whole) throw usage_error("{} takes an integer below 2^63, not '{}'", option, value);
  if (!number || *number < least) throw usage_error("{} takes an integer of at least {}, not '{}'", option, least, value);
  return number;
}

std::optional<double> Arguments::duration(std::string_view option) const {
  if (!has(option)) return std::nullopt;
  const std::string value = text(option);
  const size_t unit_at = value.find_last_not_of("smh") + 1;
  const std::string_view unit = std::string_view(value).substr(unit_at);
  const std::optional<double> number = parse_number<double>(std::string_view(value).substr(0, unit_at));
  const double seconds = unit == "h" ? 3600 : unit == "m" ? 60 : unit.size() <= 1 ? 1 : 0;
  if (!number || !std::isfinite(*number) || !(*number * seconds > 0))
    throw usage_error("{} takes a time such as 90s, 2m or 1h, not '{}'", option, one_line(value));
  return *number * seconds;
}

void Arguments::add(const OptionSpec& option, std::string value) { values_[option.name].push_back(std::move(value)); }

const Verb& find_verb(std::span<const Verb> verbs, std::string_view name) {
  std::vector<std::string> names;
  for (const Verb& verb : verbs) {
    if (verb.name == name) return verb;
    names.push_back(verb.name);
  }
  throw usage_error("there is no command '{}'{}", name, did_you_mean(name, names));
}

Command parse(std::span<const Verb> verbs, std::vector<std::string> words) {
  Command command;
  if (words.empty()) throw usage_error("a command is missing; `ulpscope --help` lists them");
  const std::string first = words.front();
  if (first == "--help" || first == "-h" || first == "help") {
    command.show = words.size() > 1 && first == "help" ? verb_help(find_verb(verbs, words[1])) : overview(verbs);
    return command;
  }
  if (first == "--version" || first == "-V" || first == "version") {
    command.show = version_text();
    return command;
  }
  if (first.size() > 1 && first[0] == '-') {
    const std::vector<std::string> names{"--help", "--version"};
    throw usage_error("a command comes first, not {}{}", first, did_you_mean(first, names));
  }
  const Verb& verb = find_verb(verbs, first);
  words.erase(words.begin());
  return parse_verb(verb, std::move(words));
}

}  // namespace ulpscope::cli
