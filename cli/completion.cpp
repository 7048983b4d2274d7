// Shell completion from the table of verbs.
#include <fmt/format.h>

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
std::string choice_cases() {
  std::string cases;
  for (const Verb& verb : verbs()) {
    for (const OptionSpec& option : verb.options) {
      if (option.argument.empty()) continue;
      const std::string short_form = option.short_name.empty() ? "" : fmt::format(" | \"{} {}\"", verb.name, option.short_name);
      cases += fmt::format("    \"{} {}\"{}) candidates=\"{}\"; value=1 ;;\n", verb.name, option.name, short_form,
                           fmt::join(option.choices, " "));
    }
  }
  return cases;
}

// Cases of `case "$verb"` for a word that begins an option.
std::string option_cases() {
  std::string cases;
  for (const Verb& verb : verbs()) cases += fmt::format("      {}) candidates=\"{}\" ;;\n", verb.name, option_words(verb));
  return cases;
}

// The same for a word that does not. A command takes no more choices than one.
std::string positional_cases() {
  std::string cases = fmt::format("      help) candidates=\"{}\" ;;\n", verb_words());
  for (const Verb& verb : verbs()) {
    if (verb.positionals.empty() || verb.positionals[0].choices.empty()) continue;
    cases += fmt::format("      {}) candidates=\"{}\" ;;\n", verb.name, fmt::join(verb.positionals[0].choices, " "));
  }
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
  elif [ -z "$value" ]; then
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
                     verb_words(), choice_cases(), option_cases(), positional_cases());
}

// Works when it is sourced, and as the file _ulpscope in a folder of $fpath, where its text is the function's first call.
std::string zsh() {
  return fmt::format(R"(#compdef ulpscope
_ulpscope() {{
  local previous="${{words[CURRENT-1]}}" verb="${{words[2]}}" current="${{words[CURRENT]}}" value="" candidates=""
  if (( CURRENT == 2 )); then
    compadd -- {} --help --version
    return
  fi
  case "$verb $previous" in
{}  esac
  if [[ -z "$value" && "$current" == -* ]]; then
    case "$verb" in
{}    esac
  elif [[ -z "$value" ]]; then
    case "$verb" in
{}    esac
  fi
  if [[ -n "$candidates" ]]; then
    compadd -- ${{=candidates}}
  else
    _files
  fi
}}
if [[ "$funcstack[1]" == _ulpscope ]]; then
  _ulpscope "$@"
else
  compdef _ulpscope ulpscope
fi
)",
                     verb_words(), choice_cases(), option_cases(), positional_cases());
}

// In single quotes.
std::string quoted_for_fish(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

std::string fish() {
  std::string text =
      "complete -c ulpscope -n __fish_use_subcommand -f -l help -s h -d 'list the commands'\n"
      "complete -c ulpscope -n __fish_use_subcommand -f -l version -d 'print the version'\n"
      "complete -c ulpscope -n __fish_use_subcommand -f -a help -d 'explain a command'\n";
  text += fmt::format("complete -c ulpscope -n '__fish_seen_subcommand_from help' -f -a '{}'\n", verb_words());
  for (const Verb& verb : verbs()) {
    text += fmt::format("complete -c ulpscope -n __fish_use_subcommand -f -a {} -d {}\n", verb.name, quoted_for_fish(verb.summary));
    const std::string within = fmt::format("complete -c ulpscope -n '__fish_seen_subcommand_from {}'", verb.name);
    text += within + " -l help -s h -d 'explain this command'\n";
    if (!verb.positionals.empty() && !verb.positionals[0].choices.empty())
      text += fmt::format("{} -f -a '{}'\n", within, fmt::join(verb.positionals[0].choices, " "));
    for (const OptionSpec& option : verb.options) {
      text += fmt::format("{} -l {}", within, option.name.substr(2));
      if (!option.short_name.empty()) text += " -s " + option.short_name.substr(1);
      if (!option.choices.empty()) {
        text += fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
      } else if (!option.argument.empty()) {
        text += " -r";
      }
      text += fmt::format(" -d {}\n", quoted_for_fish(option.meaning));
    }
  }
  return text;
}

int run_completion(const Arguments& arguments) {
  const std::string& shell = arguments.positional(0);
  write_stdout(shell == "bash" ? bash() : shell == "zsh" ? zsh() : fish());
  return kClean;
}

}  // namespace

Verb completion_verb() {
  return {"completion",
          "a script that completes commands and options in a shell",
          "",
          {{"SHELL", "bash, zsh or fish", false, {"bash", "zsh", "fish"}}},
          {},
          {{"ulpscope completion bash > ~/.local/share/bash-completion/completions/ulpscope", "complete in bash from now on"},
           {"ulpscope completion fish > ~/.config/fish/completions/ulpscope.fish", "the same in fish"}},
          run_completion};
}

}  // namespace ulpscope::cli
