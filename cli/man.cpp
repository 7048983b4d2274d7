// Man pages from the table of verbs, in the macros of man(7).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "ulpscope/base/error.h"
#include "ulpscope/base/file.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/help.h"
#include "ulpscope/cli/output.h"
#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

namespace {

// As roff shows it: every character as it stands, so that what is copied from a page can be run.
std::string escaped(std::string_view text) {
  std::string result;
  if (!text.empty() && (text[0] == '.' || text[0] == '\'')) result += "\\&";
  for (const char c : text) {
    switch (c) {
      case '\\':
        result += "\\e";
        break;
      case '-':
        result += "\\-";
        break;
      case '\'':
        result += "\\(aq";
        break;
      case '`':
        result += "\\(ga";
        break;
      case '^':
        result += "\\(ha";
        break;
      case '~':
        result += "\\(ti";
        break;
      case '\n':
        result += ' ';
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string bold(std::string_view text) { return fmt::format("\\fB{}\\fR", escaped(text)); }
std::string italic(std::string_view text) { return fmt::format("\\fI{}\\fR", escaped(text)); }
std::string item(const std::string& left, std::string_view right) { return fmt::format(".TP\n{}\n{}\n", left, escaped(right)); }

// Without a date, so that the same program prints the same pages.
std::string heading(const std::string& name, std::string_view summary) {
  std::string title = name;
  std::transform(title.begin(), title.end(), title.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return fmt::format(".TH \"{}\" 1 \"\" \"ulpscope {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n", escaped(title), version_number(),
                     escaped(name), escaped(summary));
}

std::string examples(std::span<const Example> all) {
  std::string text = ".SH EXAMPLES\n";
  for (const Example& example : all) text += item(bold(example.command), example.meaning);
  return text;
}

std::string exit_status() {
  std::string text = ".SH EXIT STATUS\n";
  for (size_t code = 0; code < std::size(kExitCodes); ++code) text += item(bold(std::to_string(code)), kExitCodes[code]);
  return text;
}

std::string page_name(const Verb& verb) { return "ulpscope-" + verb.name; }

std::string overview_page() {
  std::string text = heading("ulpscope", kSummary);
  text += fmt::format(".SH SYNOPSIS\n{} {} [{}]\n.SH COMMANDS\n", bold("ulpscope"), italic("COMMAND"), italic("ARGUMENTS"));
  for (const Verb& verb : verbs()) text += item(bold(page_name(verb)) + "(1)", verb.summary);
  text += ".SH OPTIONS\n" + item(bold("-h") + ", " + bold("--help"), "list the commands; after a command: explain it");
  text += item(bold("--version"), "print the version");
  text += ".SH ENVIRONMENT\n" + item(bold("NO_COLOR"), "where it is set and not empty, terminals get no colours");
  text += item(bold("COLUMNS"), "width of the text where stdout is no terminal");
  return text + exit_status() + examples(kExamples);
}

std::string verb_page(const Verb& verb) {
  std::string text = heading(page_name(verb), verb.summary);
  text += ".SH SYNOPSIS\n" + bold("ulpscope " + verb.name);
  for (const PositionalSpec& positional : verb.positionals) {
    text += " " + shown(positional, italic(positional.name));
  }
  text += fmt::format(" [{}]\n", italic("OPTIONS"));
  if (!verb.description.empty()) text += ".SH DESCRIPTION\n" + escaped(verb.description) + "\n";
  if (!verb.positionals.empty()) text += ".SH ARGUMENTS\n";
  for (const PositionalSpec& positional : verb.positionals) text += item(italic(positional.name), positional.meaning);
  text += ".SH OPTIONS\n";
  for (const OptionSpec& option : verb.options) {
    std::string names = option.short_name.empty() ? "" : bold(option.short_name) + ", ";
    names += bold(option.name);
    if (!option.argument.empty()) names += fmt::format(" {}", italic(option.argument));
    text += item(names, describe(option));
  }
  text += item(bold("-h") + ", " + bold("--help"), "print this in short");
  return text + exit_status() + examples(verb.examples) + ".SH SEE ALSO\n" + bold("ulpscope") + "(1)\n";
}

int run_man(const Arguments& arguments) {
  if (arguments.has("--output")) {
    if (!arguments.positionals().empty()) throw usage_error("man: --output writes all pages, and takes no COMMAND");
    const std::filesystem::path folder = arguments.text("--output");
    const auto write = [&](const std::string& name, const std::string& page) {
      const std::string path = folder / (name + ".1");
      check_replaceable(path, arguments.has("--force"));
      atomic_write_file(path, page);
    };
    write("ulpscope", overview_page());
    for (const Verb& verb : verbs()) write(page_name(verb), verb_page(verb));
    return kClean;
  }
  if (arguments.positionals().empty()) {
    write_stdout(overview_page());
  } else {
    write_stdout(verb_page(find_verb(verbs(), arguments.positional(0))));
  }
  return kClean;
}

}  // namespace

Verb man_verb(std::vector<std::string> commands) {
  return {"man",
          "the manual as man pages",
          "",
          {{"COMMAND", "the page of this command; without it, that of ulpscope itself", true, std::move(commands)}},
          {{"--output", "-o", "FOLDER", "write all pages there instead"}, {"--force", "", "", "replace those that exist"}},
          {{"ulpscope man train | man -l -", "read one"}, {"ulpscope man -o ~/.local/share/man/man1", "install all of them"}},
          run_man};
}

}  // namespace ulpscope::cli
