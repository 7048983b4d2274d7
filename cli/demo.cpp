#include <fmt/format.h>

#include <filesystem>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/nan.h"
#include "ulpscope/cli/output.h"
#include "ulpscope/cli/parser.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/train.h"
#include "ulpscope/cli/verbs.h"
#include "ulpscope/studies/setting_changes.h"

namespace ulpscope::cli {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "ulpscope-demo";
constexpr const char* kPreset = "overflow";

using Words = std::vector<std::string>;

// As it can be copied into a shell. What begins with a dash is an option.
std::string command_line(const Words& words) {
  std::string line = "ulpscope";
  for (const std::string& word : words) line += " " + (word.starts_with('-') ? word : one_line(shell_word(word)));
  return line;
}

// One thread: a model as small as this one is the faster for it, most of all where other programs run.
Words train_words(const Words& settings, const std::string& trace) {
  Words words{"train", kPreset, "--threads", "1"};
  for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
  words.insert(words.end(), {"-o", trace, "--force"});
  return words;
}

// Shows the command under what it is for, as if it had been typed, and parses it as if it had been.
Command typed(std::string_view purpose, const Words& words) {
  const auto style = [is_colored = text_options_of_stdout().color](const char* code, std::string_view text) {
    return is_colored ? fmt::format("\033[{}m{}\033[0m", code, text) : std::string(text);
  };
  write_stdout(fmt::format("{}\n{}\n", style("2", fmt::format("# {}", purpose)), style("1", "$ " + command_line(words))));
  return parse(verbs(), words);
}

Report train_or_stop(std::string_view purpose, const Words& words) {
  std::optional<Report> trained = train(typed(purpose, words).arguments);
  if (!trained) throw failed_error("the demo ends here");
  write_stdout("\n");
  return std::move(*trained);
}

int run_demo(const Arguments& arguments) {
  fs::path folder = arguments.text("--output", kFolder);
  if (folder.string().starts_with('-')) folder = "." / folder;
  // Files in a folder that somebody named are somebody's. In its own the demo replaces what it wrote.
  make_output_folder(folder, !arguments.has("--output") || arguments.has("--force"), "-o");
  const auto file = [&](const char* name) { return (folder / name).string(); };
  const std::string broken = file("broken.h5"), page = file("broken.html"), repaired = file("repaired.h5");

  train_or_stop("FP16 as PyTorch's autocast and GradScaler have it: watch the loss, then its scale.", train_words({}, broken));
  const Command reported = typed("The report with pictures, for a browser.", {"report", broken, "-o", page, "--force"});
  reported.verb->run(reported.arguments);
  write_stdout("\n");

  const Command asked =
      typed("Why, and what helps? Each change is tried: the steps run again with it.", {"nan", broken, "--only", "fixes"});
  const NanAnswer answer = explain_nan(asked.arguments);
  print(answer.report, asked.arguments);
  write_stdout("\n");
  if (!answer.repaired) throw failed_error("no change that was tried keeps the run from failing: nothing repairs it");
  const std::optional<Words> settings = assignments_between(*answer.as_it_was, *answer.repaired);
  if (!settings) throw failed_error("the change that keeps the run from failing is one that --set cannot make");

  const Report trained = train_or_stop("The same run with the change that was verified.", train_words(*settings, repaired));
  if (trained.verdict != Verdict::ok) throw failed_error("the change that was verified does not leave the run OK");

  write_stdout(fmt::format("Next:\n  {}\n  {}\n  {}\n", command_line({"compare", broken, repaired}),
                           command_line({"report", repaired, "--fail-on", "warning"}),
                           command_line({"train", "mlp", "--precision", "fp16", "-o", file("mlp.h5"), "--force"})));
  return kClean;
}

}  // namespace

Verb demo_verb() {
  return {"demo",
          "see a run break, why, what repairs it, and the repaired run, in seconds",
          "Needs no data and no network. Runs the commands that it shows and keeps their traces, so that each can be typed again.\n"
          "Files that an earlier demo left in its own folder are replaced.",
          {},
          {{"--output", "-o", "FOLDER", "where broken.h5, broken.html and repaired.h5 are written", kFolder},
           {"--force", "", "", "into a FOLDER of -o that holds files too: those three are replaced, others are left alone"}},
          {{"ulpscope demo", "from the symptom to the repaired run"},
           {"ulpscope demo -o /tmp/first-look", "the same in another folder"}},
          run_demo};
}

}  // namespace ulpscope::cli
