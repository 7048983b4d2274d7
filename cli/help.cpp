#include "ulpscope/cli/help.h"

#include <fmt/format.h>

#include <algorithm>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/analyzers/report/text_layout.h"
#include "ulpscope/base/text.h"

namespace ulpscope::cli {

namespace {

constexpr size_t kWidth = 100;

std::string usage_line(const Verb& verb) {
  std::string line = "ulpscope " + verb.name;
  for (const PositionalSpec& positional : verb.positionals) line += " " + shown(positional, positional.name);
  if (!verb.options.empty()) line += " [OPTIONS]";
  return line;
}

// "  left       right right", the right part wrapped.
std::string two_columns(std::string_view left, std::string_view right, size_t left_width) {
  std::string text = fmt::format("  {:<{}}  ", left, left_width);
  const size_t indent = left_width + 4;
  if (left.size() > left_width) text += '\n' + std::string(indent, ' ');
  return text + wrap_text(right, kWidth, indent) + "\n";
}

std::string option_left(const OptionSpec& option) {
  std::string left = option.short_name.empty() ? "    " : option.short_name + ", ";
  left += option.name;
  if (!option.argument.empty()) left += " " + option.argument;
  return left;
}

std::string examples_text(std::span<const Example> examples) {
  std::string text;
  for (const Example& example : examples) text += fmt::format("  {}\n      {}\n", example.command, example.meaning);
  return text;
}

}  // namespace

std::string shown(const PositionalSpec& positional, std::string_view name) {
  const std::string text = fmt::format("{}{}", name, positional.repeated ? "..." : "");
  return positional.optional ? "[" + text + "]" : text;
}

std::string describe(const OptionSpec& option) {
  std::string text = option.meaning;
  if (!option.choices.empty()) text += fmt::format(": {}", join_words(option.choices, option.list ? "and" : "or"));
  if (option.list) text += "; several with commas";
  if (!option.default_text.empty()) text += fmt::format(" (default: {})", option.default_text);
  return text;
}

std::string overview(std::span<const Verb> verbs) {
  std::string text = fmt::format("ulpscope: {}\n\nUsage: ulpscope COMMAND [ARGUMENTS]\n\nCommands:\n", kSummary);
  size_t width = 0;
  for (const Verb& verb : verbs) width = std::max(width, verb.name.size());
  for (const Verb& verb : verbs) text += two_columns(verb.name, verb.summary, width);
  text += "\nExamples:\n" + examples_text(kExamples);
  text += "\n`ulpscope COMMAND --help` explains a command.\n\nExit codes:\n";
  for (size_t code = 0; code < std::size(kExitCodes); ++code) text += two_columns(std::to_string(code), kExitCodes[code], 1);
  return text;
}

std::string verb_help(const Verb& verb) {
  std::string text = fmt::format("ulpscope {}: {}\n\nUsage: {}\n", verb.name, verb.summary, usage_line(verb));
  if (!verb.description.empty()) text += "\n" + verb.description + "\n";
  size_t width = 0;
  for (const PositionalSpec& positional : verb.positionals) width = std::max(width, positional.name.size());
  for (const OptionSpec& option : verb.options) width = std::max(width, option_left(option).size());
  width = std::min<size_t>(width, 28);
  if (!verb.positionals.empty()) text += "\nArguments:\n";
  for (const PositionalSpec& positional : verb.positionals) text += two_columns(positional.name, positional.meaning, width);
  text += "\nOptions:\n";
  for (const OptionSpec& option : verb.options) text += two_columns(option_left(option), describe(option), width);
  text += two_columns("-h, --help", "this text", width);
  if (!verb.examples.empty()) text += "\nExamples:\n" + examples_text(verb.examples);
  return text;
}

std::string version_number() { return ULPSCOPE_VERSION; }

std::string version_text() { return fmt::format("ulpscope {} (report version {})\n", version_number(), kReportVersion); }

}  // namespace ulpscope::cli
