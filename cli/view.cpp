// The window and pictures of it: `ulpscope view` and `ulpscope screenshot`.
#include <algorithm>
#include <filesystem>

#include "ulpscope/base/error.h"
#include "ulpscope/base/file.h"
#include "ulpscope/base/text.h"
#include "ulpscope/cli/output.h"
#include "ulpscope/cli/report_options.h"
#include "ulpscope/cli/trace_path.h"
#include "ulpscope/cli/verbs.h"
#include "ulpscope/gui/window.h"

namespace ulpscope::cli {

namespace {

std::vector<OptionSpec> state_options() {
  std::vector<OptionSpec> options;
  for (const gui::StateOption& option : gui::state_options()) {
    options.push_back({std::string("--") + option.name, "", option.argument, option.meaning});
    options.back().list = option.is_list;
    if (options.back().name == "--view") options.back().choices = gui::view_names();
  }
  return options;
}

gui::ViewState state_of(const Arguments& arguments) {
  gui::ViewState state;
  for (const gui::StateOption& option : gui::state_options()) {
    const std::string name = std::string("--") + option.name;
    if (option.is_list)
      for (const std::string& value : arguments.list(name)) set(state, option.name, value);
    else if (arguments.has(name))
      set(state, option.name, arguments.text(name));
  }
  return state;
}

bool asks_for_state(const Arguments& arguments) {
  const auto options = gui::state_options();
  return std::any_of(options.begin(), options.end(),
                     [&](const gui::StateOption& option) { return arguments.has(std::string("--") + option.name); });
}

std::vector<std::string> paths_of(const Arguments& arguments) {
  if (arguments.positionals().size() > 2)
    throw usage_error("one trace is shown, or two are compared; expected at most two, got {}", arguments.positionals().size());
  return arguments.positionals();
}

int run_view(const Arguments& arguments) {
  const std::vector<std::string> paths = paths_of(arguments);
  gui::Layout layout = gui::read_layout(gui::layout_path());
  // A command line that tells what to show shows that alone.
  if (asks_for_state(arguments)) layout.state = state_of(arguments);
  for (const std::string& path : paths) open_run(path);  // what cannot be read is said here
  gui::write_layout(gui::layout_path(), gui::run_window(paths, open_run, layout));
  return kClean;
}

int run_screenshot(const Arguments& arguments) {
  gui::ScreenshotSize size;
  const std::string given = arguments.text("--size", "1280x800");
  const size_t times = given.find('x');
  const auto number = [&](const std::string& text) {
    const bool is_number = !text.empty() && text.size() < 6 && text.find_first_not_of("0123456789") == std::string::npos;
    const int pixels = is_number ? std::stoi(text) : 0;
    if (pixels < 100 || pixels > 8192)
      throw usage_error("--size '{}': expected WIDTHxHEIGHT of 100 to 8192 pixels", one_line(given));
    return pixels;
  };
  size.width = number(given.substr(0, times));
  size.height = number(times == std::string::npos ? "" : given.substr(times + 1));
  size.own_font = arguments.has("--own-font");
  const std::string output = arguments.text("--output");
  if (output.empty()) throw usage_error("screenshot needs -o FILE.png");
  const std::string extension = lower_case(std::filesystem::path(output).extension().string());
  if (!extension.empty() && extension != ".png")
    throw usage_error("-o '{}': a picture is written as PNG; expected a name that ends in .png", one_line(output));
  check_replaceable(output, arguments.has("--force"), arguments.positionals());
  atomic_write_file(output, gui::screenshot(paths_of(arguments), open_run, state_of(arguments), size));
  return kClean;
}

std::vector<PositionalSpec> traces() {
  return {{"TRACE", "a trace file, or a folder of a run's traces; two are compared", false, {}, true}};
}

}  // namespace

Verb view_verb() {
  return {
      "view",
      "a window on a trace, which follows a run while it trains",
      "Views of the same steps and tensors: the verdict, tensors against steps with the exponents of each, the course of the\n"
      "run, why it had NaN, one step op by op, its updates, two runs side by side, a number in all formats. Key ? tells the keys.",
      traces(),
      state_options(),
      {{"ulpscope view run.h5", "beside a run that goes on, or of one that ended"},
       {"ulpscope view run.h5 --view ranges --quantity headroom", "how near each tensor was to its format's limit"},
       {"ulpscope view fp32.h5 fp16.h5 --view compare", "two runs"}},
      run_view};
}

Verb screenshot_verb() {
  return {"screenshot",
          "a picture of what the window shows, made without a display",
          "The same bytes each time. Options say what is shown; the window's button Copy gives them.",
          traces(),
          join({state_options(),
                {{"--output", "-o", "FILE", "the PNG file to write"},
                 {"--force", "", "", "replace it where it exists"},
                 {"--size", "", "WxH", "in pixels", "1280x800"},
                 {"--own-font", "", "", "draw with Dear ImGui's font, which every build has, instead of one of the system"}}}),
          {{"ulpscope screenshot run.h5 -o overview.png", "the verdict and the course of the run"},
           {"ulpscope screenshot run.h5 --view ranges --tensor 'head linear gradient' -o head.png", "a tensor's exponents"}},
          run_screenshot};
}

}  // namespace ulpscope::cli
