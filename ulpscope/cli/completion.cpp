// Shell completion from the table of verbs.
#include <fmt/format.h>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/output.h"
#include "ulpscope/cli/verbs.h"

namespace ulpscope::cli {

namespace {

std::string option_words(const Verb& verb) {
  std::string words = "--help";
  for (const OptionSpec& option : verb.options) words += " " + option.name;
  return words;
}

std::string verb_words() {
  std::string words = "help";
  for (const Verb& verb : verbs()) words += " " + verb.name;
  return words;
}

// Cases of a shell's `case "$verb $previous"` that set `candidates` to an option's choices. Others complete files.
std::string choice_cases(std::string_view indent) {
  std::string cases;
  for (const Verb& verb : verbs()) {
    for (const OptionSpec& option : verb.options) {
      if (option.argument.empty()) continue;
      const std::string short_form = option.short_name.empty() ? "" : fmt::format(" | \"{} {}\"", verb.name, option.short_name);
      cases += fmt::format("{}\"{} {}\"{}) candidates=\"{}\"; value=1 ;;\n", indent, verb.name, option.name, short_form,
                           fmt::join(option.choices, " "));
    }
  }
  return cases;
}

std::string option_cases(std::string_view indent) {
  std::string cases;
  for (const Verb& verb : verbs()) cases += fmt::format("{}{}) candidates=\"{}\" ;;\n", indent, verb.name, option_words(verb));
  return cases;
}

std::string bash() {
  return fmt::format(R"(_ulpscope() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" verb="${{COMP_WORDS[1]}}" candidates="" value=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$current"))
    return
  fi
  case "$verb $previous" in
{}  esac
  if [ -z "$value" ] && [ "${{current#-}}" != "$current" ]; then
    case "$verb" in
{}    esac
  fi
  if [ -n "$candidates" ]; then
    COMPREPLY=($(compgen -W "$candidates" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _ulpscope ulpscope
)",
                     verb_words(), choice_cases("    "), option_cases("      "));
}

std::string zsh() {
  return fmt::format(R"(#compdef ulpscope
_ulpscope() {{
  local previous="${{words[CURRENT-1]}}" verb="${{words[2]}}" current="${{words[CURRENT]}}" value=""
  if (( CURRENT == 2 )); then
    compadd -- {} --help --version
    return
  fi
  local candidates=""
  case "$verb $previous" in
{}  esac
  if [[ -z "$value" && "$current" == -* ]]; then
    case "$verb" in
{}    esac
  fi
  if [[ -n "$candidates" ]]; then
    compadd -- ${{=candidates}}
  else
    _files
  fi
}}
compdef _ulpscope ulpscope
)",
                     verb_words(), choice_cases("    "), option_cases("      "));
}

// For fish, in single quotes.
std::string quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

std::string fish() {
  std::string text;
  for (const Verb& verb : verbs()) {
    text += fmt::format("complete -c ulpscope -n __fish_use_subcommand -f -a {} -d {}\n", verb.name, quoted(verb.summary));
    for (const OptionSpec& option : verb.options) {
      text += fmt::format("complete -c ulpscope -n '__fish_seen_subcommand_from {}' -l {}", verb.name, option.name.substr(2));
      if (!option.short_name.empty()) text += " -s " + option.short_name.substr(1);
      if (!option.choices.empty()) {
        text += fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
      } else if (!option.argument.empty()) {
        text += " -r";
      }
      text += fmt::format(" -d {}\n", quoted(option.meaning));
    }
  }
  return text;
}

int run(const Arguments& arguments) {
  const std::string& shell = arguments.positional(0);
  const std::vector<std::string> shells{"bash", "zsh", "fish"};
  if (shell == "bash") {
    write_stdout(bash());
  } else if (shell == "zsh") {
    write_stdout(zsh());
  } else if (shell == "fish") {
    write_stdout(fish());
  } else {
    throw usage_error("completion is for {}, not '{}'{}", join_words(shells, "or"), shell, did_you_mean(shell, shells));
  }
  return kClean;
}

}  // namespace

Verb completion_verb() {
  return {"completion",
          "a script that completes commands and options in a shell",
          "",
          {{"SHELL", "bash, zsh or fish"}},
          {},
          {{"ulpscope completion bash > ~/.local/share/bash-completion/completions/ulpscope", "complete in bash from now on"},
           {"ulpscope completion fish > ~/.config/fish/completions/ulpscope.fish", "the same in fish"}},
          run};
}

}  // namespace ulpscope::cli
