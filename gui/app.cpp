#include "ulpscope/gui/app.h"

#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/base/text.h"
#include "ulpscope/gui/keys.h"
#include "ulpscope/gui/reports.h"

namespace ulpscope::gui {

namespace {

const char* text_of(WriterState writer) {
  return writer == WriterState::alive ? "being written" : writer == WriterState::closed ? "closed" : "its writer died";
}

bool contains(std::string_view text, std::string_view part) { return lower_case(text).find(lower_case(part)) != std::string::npos; }

}  // namespace

App::App(ViewModel& model, Textures& textures, const ViewState& state, float scale)
    : model_(model), textures_(textures), state_(state), scale_(scale), panels_{make_overview(), make_ranges(), make_timeline(),
                                                                                make_why_nan(),  make_step(),   make_updates(),
                                                                                make_compare(),  make_number()} {
  apply(theme(state_.is_light), scale_);
  is_light_applied_ = state_.is_light;
  history_.add(state_);
  model_.ask(state_);
  last_state_ = state_;
}

App::~App() = default;

std::string App::command(const char* verb) const {
  std::string text = fmt::format("ulpscope {}", verb);
  for (const std::string& path : model_.paths()) {
    const bool plain =
        path.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-") == std::string::npos;
    std::string word = path;
    for (size_t at = 0; !plain && (at = word.find('\'', at)) != std::string::npos; at += 4) word.replace(at, 1, "'\\''");
    text += plain ? " " + path : " '" + word + "'";
  }
  return text + " " + to_options(state_);
}

void App::frame() {
  const std::shared_ptr<const Results> results = model_.results();
  names_.clear();
  if (state_.is_light != is_light_applied_) {
    apply(theme(state_.is_light), scale_);
    is_light_applied_ = state_.is_light;
  }
  kept_.begin_frame(results);
  const Canvas canvas{&theme(state_.is_light), &textures_, &names_, &state_, results->recorded, &kept_};
  take_keys(*results);
  const ImGuiIO& io = ImGui::GetIO();
  ImGui::SetNextWindowPos({0, 0});
  ImGui::SetNextWindowSize(io.DisplaySize);
  ImGui::Begin("ulpscope", nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings |
                   ImGuiWindowFlags_NoBringToFrontOnFocus);
  show_head(canvas, *results);
  const float foot = ImGui::GetTextLineHeightWithSpacing() + 4;
  ImGui::BeginChild("view", {0, std::max(1.0F, ImGui::GetContentRegionAvail().y - foot)});
  if (!results->failure.empty()) {
    ImGui::PushStyleColor(ImGuiCol_Text, canvas.theme->error);
    ImGui::PushTextWrapPos(0);
    ImGui::TextUnformatted(results->failure.c_str());
    ImGui::PopTextWrapPos();
    ImGui::PopStyleColor();
    names_.add_item("failure");
  }
  panels_[static_cast<size_t>(state_.view)]->show(canvas, *results);
  ImGui::EndChild();
  show_foot(*results);
  show_finder(*results);
  show_keys();
  ImGui::End();
  if (!(state_ == last_state_)) {
    model_.ask(state_);
    last_state_ = state_;
    // A drag or a word is one change, remembered when it ends.
    if (!ImGui::IsMouseDown(0) && !io.WantTextInput) history_.add(state_);
  } else if (ImGui::IsMouseReleased(0)) {
    history_.add(state_);
  }
}

void App::show_head(const Canvas& canvas, const Results& results) {
  for (int i = 0; i < kViews; ++i) {
    const auto view = static_cast<View>(i);
    const std::string name = fmt::format("view {}", name_of(view));
    const bool is_chosen = view == state_.view;
    if (i > 0) ImGui::SameLine(0, 4);
    const float needed = ImGui::CalcTextSize(title_of(view)).x + 2 * ImGui::GetStyle().FramePadding.x;
    if (i > 0 && ImGui::GetContentRegionAvail().x < needed) ImGui::NewLine();
    if (is_chosen) ImGui::PushStyleColor(ImGuiCol_Button, ImGui::GetStyleColorVec4(ImGuiCol_HeaderActive));
    if (ImGui::Button(title_of(view))) state_.view = view;
    if (is_chosen) ImGui::PopStyleColor();
    names_.add_item(name);
    if (ImGui::IsItemHovered()) ImGui::SetTooltip("%s: key %d", title_of(view), i + 1);
  }
  const auto button = [&](const char* label, const char* name, const char* meaning) {
    const float needed = ImGui::CalcTextSize(label).x + 3 * ImGui::GetStyle().FramePadding.x;
    ImGui::SameLine();
    if (ImGui::GetContentRegionAvail().x < needed) ImGui::NewLine();
    const bool is_pressed = ImGui::Button(label);
    names_.add_item(name);
    if (ImGui::IsItemHovered()) ImGui::SetTooltip("%s", meaning);
    return is_pressed;
  };
  if (button("Find", "find", "any tensor, finding or view: Ctrl+P")) {
    finds_ = true;
    sought_.clear();
  }
  if (button("Copy", "copy", "the command line that shows this")) ImGui::SetClipboardText(command().c_str());
  if (button(state_.is_light ? "Dark" : "Light", "theme", "the other colours")) state_.is_light = !state_.is_light;
  if (button("?", "keys", "what keys and the pointer do")) shows_keys_ = !shows_keys_;
  // Reports begin with the verdict themselves.
  const bool has_own = state_.view == View::overview || state_.view == View::why_nan || state_.view == View::updates ||
                       state_.view == View::compare || state_.view == View::number;
  if (!has_own && results.report && results.report->verdict) {
    const std::string line = ulpscope::verdict_line(*results.report);
    ImGui::PushStyleColor(ImGuiCol_Text, canvas.theme->of(*results.report->verdict));
    ImGui::TextUnformatted(line.substr(0, line.find(':')).c_str());
    ImGui::PopStyleColor();
    ImGui::SameLine();
    const size_t rest = line.find(": ");
    if (rest != std::string::npos) ImGui::TextDisabled("%s", line.substr(rest + 2).c_str());
    names_.add_item("verdict line");
  }
  ImGui::Separator();
}

void App::show_foot(const Results& results) {
  std::string text = results.name;
  if (!results.other.empty()) text += " and " + results.other;
  text += fmt::format("  |  {}  |  {}, {} rows", text_of(results.writer), count_of(results.steps, "step"), results.rows);
  if (state_.steps.first > 0 || state_.steps.last < UINT64_MAX)
    text += fmt::format("  |  steps {} to {}", std::max(state_.steps.first, results.recorded.first),
                        std::min(state_.steps.last, results.recorded.last) - 1);
  if (state_.step) text += fmt::format("  |  step {}", *state_.step);
  if (!state_.tensor.empty()) text += "  |  " + state_.tensor;
  if (model_.is_busy()) text += "  |  reading ...";
  ImGui::TextDisabled("%s", one_line(text).c_str());
  names_.add_item("foot");
}

void App::go_to_anomaly(const Results& results, bool forward) {
  // Steps at which something is marked or was found.
  std::set<uint64_t> steps;
  if (results.course)
    for (const Plot& plot : *results.course)
      for (const Mark& mark : plot.marks) steps.insert(static_cast<uint64_t>(mark.from));
  if (results.report)
    for (const Finding& finding : results.report->findings)
      if (finding.extent.first_step) steps.insert(*finding.extent.first_step);
  if (steps.empty()) return;
  if (!state_.step) {
    state_.step = forward ? *steps.begin() : *steps.rbegin();
  } else if (forward) {
    if (const auto next = steps.upper_bound(*state_.step); next != steps.end()) state_.step = *next;
  } else if (const auto at = steps.lower_bound(*state_.step); at != steps.begin()) {
    state_.step = *std::prev(at);
  }
}

// Without remembering it as one more.
void App::go_to(const ViewState& state) {
  state_ = last_state_ = state;
  model_.ask(state_);
}

void App::take_keys(const Results& results) {
  const ImGuiIO& io = ImGui::GetIO();
  if (is_pressed(Key::escape)) {
    if (finds_ || shows_keys_) {
      finds_ = shows_keys_ = false;
    } else if (!io.WantTextInput) {
      state_.steps = {};
      state_.step.reset();
      state_.tensor.clear();
    }
  }
  if (io.KeyCtrl && is_pressed(Key::p)) {
    finds_ = true;
    sought_.clear();
  }
  if (io.WantTextInput || finds_) return;
  if (io.KeyCtrl && is_pressed(Key::z)) {
    if (const ViewState* const before = history_.undo()) go_to(*before);
  }
  if (io.KeyCtrl && is_pressed(Key::y)) {
    if (const ViewState* const after = history_.redo()) go_to(*after);
  }
  if (io.KeyCtrl) return;
  for (int i = 0; i < kViews; ++i)
    if (is_pressed(Key::digit_1, i)) state_.view = static_cast<View>(i);
  if (is_pressed(Key::question) && io.KeyShift) shows_keys_ = !shows_keys_;
  if (is_pressed(Key::period)) go_to_anomaly(results, true);
  if (is_pressed(Key::comma)) go_to_anomaly(results, false);
  const Canvas canvas{nullptr, nullptr, nullptr, &state_, results.recorded};
  const StepRange shown = canvas.shown();
  const auto first = static_cast<double>(shown.first), last = static_cast<double>(shown.last), length = last - first;
  if (length < 1) return;
  if (is_pressed(Key::w) && length > 2) canvas.show_steps(std::ceil(first + length / 8), std::floor(last - length / 8));
  if (is_pressed(Key::s)) canvas.show_steps(first - std::max(1.0, length / 6), last + std::max(1.0, length / 6));
  const double move = std::max(1.0, std::floor(length / 5));
  if (is_pressed(Key::a) && shown.first > results.recorded.first)
    canvas.show_steps(std::max(static_cast<double>(results.recorded.first), first - move),
                      std::max(static_cast<double>(results.recorded.first), first - move) + length);
  if (is_pressed(Key::d) && shown.last < results.recorded.last)
    canvas.show_steps(std::min(static_cast<double>(results.recorded.last), last + move) - length,
                      std::min(static_cast<double>(results.recorded.last), last + move));
  if (is_pressed(Key::f) && state_.step) {
    const double middle = static_cast<double>(*state_.step), half = std::min(16.0, length / 4);
    canvas.show_steps(middle - half, middle + half + 1);
  }
  const uint64_t step = state_.step.value_or(results.recorded.first);
  if (is_pressed(Key::left) && step > results.recorded.first) state_.step = step - 1;
  if (is_pressed(Key::right) && step + 1 < results.recorded.last) state_.step = step + 1;
}

void App::show_finder(const Results& results) {
  if (!finds_) return;
  const ImVec2 display = ImGui::GetIO().DisplaySize;
  const float width = std::min(display.x - 20, 46 * ImGui::GetFontSize());
  ImGui::SetNextWindowPos({(display.x - width) / 2, 3 * ImGui::GetFontSize()});
  ImGui::SetNextWindowSize({width, std::min(display.y * 0.7F, 26 * ImGui::GetFontSize())});
  ImGui::SetNextWindowFocus();
  ImGui::PushStyleColor(ImGuiCol_WindowBg, theme(state_.is_light).panel);
  ImGui::Begin(
      "find anything", &finds_,
      ImGuiWindowFlags_NoCollapse | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoResize | ImGuiWindowFlags_NoSavedSettings);
  ImGui::SetNextItemWidth(-1);
  if (ImGui::IsWindowAppearing()) ImGui::SetKeyboardFocusHere();
  const bool takes_first =
      ImGui::InputTextWithHint("##sought", "a tensor, a finding, a view", &sought_, ImGuiInputTextFlags_EnterReturnsTrue);
  names_.add_item("sought");
  int shown = 0;
  const auto offer = [&](const std::string& kind, const std::string& text) {
    if (shown >= 200 || !(sought_.empty() || contains(text, sought_))) return false;
    const bool is_taken =
        ImGui::Selectable(fmt::format("{}  {}##{}", kind, one_line(text), shown).c_str()) || (takes_first && shown == 0);
    names_.add_item(fmt::format("found {}", shown));
    ++shown;
    if (is_taken) finds_ = false;
    return is_taken;
  };
  for (int i = 0; i < kViews; ++i)
    if (offer("view", title_of(static_cast<View>(i)))) state_.view = static_cast<View>(i);
  if (results.report) {
    for (const Finding& finding : results.report->findings) {
      if (!offer("finding", finding.title)) continue;
      if (!finding.evidence.empty() && !finding.evidence.front().key.name.empty())
        state_.tensor = finding.evidence.front().key.name;
      if (finding.extent.first_step) state_.step = finding.extent.first_step;
    }
  }
  if (results.tensors) {
    for (const std::string& tensor : *results.tensors) {
      if (!offer("tensor", tensor)) continue;
      state_.tensor = tensor;
      if (state_.view != View::step) state_.view = View::ranges;
    }
  }
  if (shown == 0) ImGui::TextDisabled("nothing is called so");
  ImGui::End();
  ImGui::PopStyleColor();
}

void App::show_keys() {
  if (!shows_keys_) return;
  static constexpr const char* kKeys[][2] = {{"1 to 8", "views"},
                                             {"W, S; wheel", "zoom in and out along the steps"},
                                             {"A, D", "move along the steps"},
                                             {"drag", "show the steps that it goes over"},
                                             {"double click; Esc", "show all steps"},
                                             {"click", "choose a step, a tensor, a row"},
                                             {"Left, Right", "the step before, and after"},
                                             {", and .", "the step before, and after, at which something happened"},
                                             {"F", "the steps around the chosen one"},
                                             {"Ctrl+P", "find any tensor, finding or view"},
                                             {"Ctrl+Z, Ctrl+Y", "what was shown before, and after that"},
                                             {"right click", "copy a plot or table as CSV"}};
  const ImVec2 display = ImGui::GetIO().DisplaySize;
  ImGui::SetNextWindowPos({display.x / 2, display.y / 2}, 0, {0.5F, 0.5F});
  ImGui::PushStyleColor(ImGuiCol_WindowBg, theme(state_.is_light).panel);
  ImGui::Begin("Keys and pointer", &shows_keys_,
               ImGuiWindowFlags_AlwaysAutoResize | ImGuiWindowFlags_NoCollapse | ImGuiWindowFlags_NoSavedSettings);
  if (ImGui::BeginTable("keys", 2)) {
    for (const auto& [key, meaning] : kKeys) {
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      ImGui::TextUnformatted(key);
      ImGui::TableNextColumn();
      ImGui::TextDisabled("%s", meaning);
    }
    ImGui::EndTable();
  }
  ImGui::End();
  ImGui::PopStyleColor();
}

}  // namespace ulpscope::gui
