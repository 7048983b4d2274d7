#include "ulpscope/gui/view_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ulpscope/analyzers/history/scale_shares.h"
#include "ulpscope/analyzers/subject/analysis.h"
#include "ulpscope/analyzers/verbs/float_explanation.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/parse_number.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/format.h"

namespace ulpscope::gui {

namespace {

struct ViewName {
  const char* name;
  const char* title;
};
constexpr std::array<ViewName, kViews> kViewNames{{{"overview", "Overview"},
                                                   {"ranges", "Ranges"},
                                                   {"timeline", "Timeline"},
                                                   {"why-nan", "Why NaN"},
                                                   {"step", "Step"},
                                                   {"updates", "Updates"},
                                                   {"compare", "Compare"},
                                                   {"number", "Number"}}};

constexpr std::array kOptions{
    StateOption{"view", "NAME", "which view"},
    StateOption{"steps", "A..B", "the steps that are shown: 7, 3..7, 3.. or ..7"},
    StateOption{"step", "N", "the step that is selected"},
    StateOption{"tensor", "NAME", "the tensor that is selected, as reports call it"},
    StateOption{"module", "NAME", "the module that is selected instead"},
    StateOption{"quantity", "NAME",
                "what colours stand for: flushed, subnormal, overflowed, rescued, zeros, nonfinite, headroom, largest_exponent"},
    StateOption{"order", "ORDER", "how tensors stand: worst or execution"},
    StateOption{"flat", "", "tensors without the modules that they lie in"},
    StateOption{"fold", "MODULE", "one that is folded, or unfolded where there are more than 2000 tensors", true},
    StateOption{"filter", "PATTERN", "show tensors whose names match, or contain it"},
    StateOption{"limits", "FORMAT", "the format whose limits are drawn, instead of the tensor's own"},
    StateOption{"true", "", "values without the loss scale"},
    StateOption{"scale", "2^K", "what if the loss scale had been 2^K, K from -16 to 40"},
    StateOption{"number", "VALUE", "the number or encoding that the view of that name is about: 0.1, 0x3C00, fp16:0x3C00"},
    StateOption{"light", "", "dark on light"},
};

uint64_t parse_step(std::string_view text) {
  const std::optional<uint64_t> step = parse_number<uint64_t>(text);
  if (!step) throw usage_error("--step takes a step, not '{}'", one_line(text));
  return *step;
}

int parse_scale(std::string_view text) {
  const std::optional<int> exponent = text.starts_with("2^") ? parse_number<int>(text.substr(2)) : std::nullopt;
  if (!exponent || *exponent < kLeastScale || *exponent > kLargestScale)
    throw usage_error("'{}' is no scale; expected 2^K with K from {} to {}", one_line(text), kLeastScale, kLargestScale);
  return *exponent;
}

std::string text_of(const StepRange& steps) {
  return fmt::format("{}..{}", steps.first > 0 ? std::to_string(steps.first) : "",
                     steps.last < UINT64_MAX ? std::to_string(steps.last - 1) : "");
}

}  // namespace

const char* name_of(View view) { return kViewNames[static_cast<size_t>(view)].name; }
const char* title_of(View view) { return kViewNames[static_cast<size_t>(view)].title; }

const std::vector<std::string>& view_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const ViewName& view : kViewNames) all.emplace_back(view.name);
    return all;
  }();
  return names;
}

std::span<const StateOption> state_options() { return kOptions; }

void set(ViewState& state, std::string_view option, const std::string& value) {
  if (option == "view") {
    const auto found = std::find(view_names().begin(), view_names().end(), value);
    if (found == view_names().end())
      throw usage_error("no view '{}'{}", one_line(value), did_you_mean_or_expected(value, view_names()));
    state.view = static_cast<View>(found - view_names().begin());
  } else if (option == "steps") {
    state.steps = parse_step_range("--steps", value);
  } else if (option == "step") {
    state.step = parse_step(value);
  } else if (option == "tensor") {
    state.tensor = value;
  } else if (option == "module") {
    state.module = value;
  } else if (option == "flat") {
    state.is_flat = true;
  } else if (option == "fold") {
    state.folded.insert(value);
  } else if (option == "quantity") {
    std::vector<std::string> names;
    for (int i = 0; i < kMeasured; ++i) names.emplace_back(ulpscope::name_of(static_cast<Measured>(i)));
    const auto found = find_measured(value);
    if (!found) throw usage_error("no quantity '{}'{}", one_line(value), did_you_mean_or_expected(value, names));
    state.quantity = *found;
  } else if (option == "order") {
    if (value != "worst" && value != "execution") throw usage_error("no order '{}'; expected worst or execution", one_line(value));
    state.order = value == "worst" ? TensorOrder::worst : TensorOrder::execution;
  } else if (option == "filter") {
    state.filter = value;
  } else if (option == "limits") {
    parse_format(value);
    state.format = value;
  } else if (option == "true") {
    state.is_true = true;
  } else if (option == "scale") {
    state.scale = parse_scale(value);
  } else if (option == "number") {
    explain_number(value);  // throws where it is none
    state.number = value;
  } else if (option == "light") {
    state.is_light = true;
  } else {
    throw usage_error("no option '{}'", one_line(option));
  }
}

std::string to_options(const ViewState& state) {
  const ViewState fresh = {};
  std::string text = fmt::format("--view {}", name_of(state.view));
  if (state.steps.first > 0 || state.steps.last < UINT64_MAX) text += " --steps " + text_of(state.steps);
  if (state.step) text += fmt::format(" --step {}", *state.step);
  if (!state.tensor.empty()) text += " --tensor " + shell_word(state.tensor);
  if (!state.module.empty()) text += " --module " + shell_word(state.module);
  if (state.quantity != fresh.quantity) text += fmt::format(" --quantity {}", ulpscope::name_of(state.quantity));
  if (state.order != fresh.order) text += " --order execution";
  if (state.is_flat) text += " --flat";
  for (const std::string& module : state.folded) text += " --fold " + shell_word(module);
  if (!state.filter.empty()) text += " --filter " + shell_word(state.filter);
  if (!state.format.empty()) text += " --limits " + shell_word(state.format);
  if (state.is_true) text += " --true";
  if (state.scale) text += fmt::format(" --scale 2^{}", *state.scale);
  if (state.number != fresh.number) text += " --number " + shell_word(state.number);
  if (state.is_light) text += " --light";
  return text;
}

void select_tensor(ViewState& state, const std::string& tensor) {
  state.tensor = tensor;
  state.module.clear();
}

void select_place(ViewState& state, const RowKey& key) {
  if (!key.name.empty()) select_tensor(state, key.name);
  if (key.step) select_step(state, *key.step);
}

void select_step(ViewState& state, uint64_t step) {
  state.step = step;
  if (step < state.steps.first || step >= state.steps.last) state.steps = {};
}

void toggle_fold(ViewState& state, const std::string& module) {
  if (state.folded.erase(module) == 0) state.folded.insert(module);
}

bool passes(const ViewState& state, std::string_view name) {
  return state.filter.empty() || name.find(state.filter) != std::string_view::npos || glob_match(state.filter, name);
}

void ViewHistory::add(const ViewState& state) {
  if (!states_.empty() && states_[current_] == state) return;
  if (!states_.empty()) states_.resize(current_ + 1);
  states_.push_back(state);
  current_ = states_.size() - 1;
}

const ViewState* ViewHistory::undo() { return current_ > 0 ? &states_[--current_] : nullptr; }

const ViewState* ViewHistory::redo() { return current_ + 1 < states_.size() ? &states_[++current_] : nullptr; }

}  // namespace ulpscope::gui
