#include "ulpscope/gui/app.h"

#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "ulpscope/analyzers/history/scale_shares.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/base/error.h"
#include "ulpscope/base/file.h"
#include "ulpscope/base/text.h"
#include "ulpscope/gui/content.h"
#include "ulpscope/gui/keys.h"
#include "ulpscope/gui/raster.h"
#include "ulpscope/gui/reports.h"

namespace ulpscope::gui {

namespace {

const char* text_of(WriterState writer) {
  return writer == WriterState::alive ? "being written" : writer == WriterState::closed ? "closed" : "its writer died";
}

// "closed  |  60 steps of 2 ranks, 1200 rows".
std::string text_of(const RunNumbers& run) {
  return fmt::format("{}  |  {}{}, {} rows", text_of(run.writer), count_of(run.steps, "step"),
                     run.ranks > 1 ? fmt::format(" of {} ranks", run.ranks) : "", run.rows);
}

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
  if (state_.folded.empty()) revealed_ = state_.tensor;  // who folds modules knows why
}

App::~App() = default;

std::string App::command(const char* verb) const {
  std::string text = fmt::format("ulpscope {}", verb);
  for (const std::string& path : model_.paths()) text += " " + shell_word(path);
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
  hands_ = {};
  take_keys(*results);
  const Canvas canvas{&theme(state_.is_light), &textures_, &names_, &state_, results->recorded, &kept_, &hands_};
  const ImGuiIO& io = ImGui::GetIO();
  ImGui::SetNextWindowPos({0, 0});
  ImGui::SetNextWindowSize(io.DisplaySize);
  ImGui::Begin("ulpscope", nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings |
                   ImGuiWindowFlags_NoBringToFrontOnFocus);
  show_head(canvas, *results);
  // A window that has room for little shows its view.
  const bool has_foot = io.DisplaySize.y > 14 * ImGui::GetTextLineHeight();
  const float foot = has_foot ? ImGui::GetTextLineHeightWithSpacing() + 4 : 0;
  ImGui::BeginChild("view", {0, std::max(1.0F, ImGui::GetContentRegionAvail().y - foot)});
  const bool names_unknown = results->failure.empty() && results->unknown_name;
  if (const std::string& failure = names_unknown ? *results->unknown_name : results->failure; !failure.empty()) {
    ImGui::PushStyleColor(ImGuiCol_Text, canvas.theme->error);
    ImGui::PushTextWrapPos(0);
    ImGui::TextUnformatted(failure.c_str());
    ImGui::PopTextWrapPos();
    ImGui::PopStyleColor();
    names_.add_item("failure");
  }
  panels_[static_cast<size_t>(state_.view)]->show(canvas, *results);
  ImGui::EndChild();
  if (has_foot) show_foot(*results);
  show_finder(*results);
  reveal();
  show_keys();
  ImGui::End();
  if (!(state_ == last_state_)) {
    notice_.clear();
    model_.ask(state_);
    if (state_.tensor != last_state_.tensor) revealed_ = state_.tensor;
    last_state_ = state_;
    // A drag or a word is one change, remembered when it ends.
    if (!ImGui::IsMouseDown(0) && !io.WantTextInput) history_.add(state_);
  } else if (ImGui::IsMouseReleased(0)) {
    history_.add(state_);
  }
}

// In a window too narrow for a row of buttons a list takes one place.
void App::show_views(bool is_narrow) {
  if (is_narrow) {
    ImGui::SetNextItemWidth(std::min(8 * ImGui::GetFontSize(), ImGui::GetContentRegionAvail().x * 0.6F));
    const bool is_open = ImGui::BeginCombo("##views", title_of(state_.view));
    names_.add_item("views");
    if (!is_open) return;
  }
  for (int i = 0; i < kViews; ++i) {
    const auto view = static_cast<View>(i);
    const bool is_chosen = view == state_.view;
    if (is_narrow) {
      if (ImGui::Selectable(title_of(view), is_chosen)) state_.view = view;
    } else {
      if (i > 0) ImGui::SameLine(0, 4);
      const float needed = ImGui::CalcTextSize(title_of(view)).x + 2 * ImGui::GetStyle().FramePadding.x;
      if (i > 0 && ImGui::GetContentRegionAvail().x < needed) ImGui::NewLine();
      if (is_chosen) ImGui::PushStyleColor(ImGuiCol_Button, ImGui::GetStyleColorVec4(ImGuiCol_HeaderActive));
      if (ImGui::Button(title_of(view))) state_.view = view;
      if (is_chosen) ImGui::PopStyleColor();
    }
    names_.add_item(fmt::format("view {}", name_of(view)));
    if (ImGui::IsItemHovered()) ImGui::SetTooltip("%s: key %d", title_of(view), i + 1);
  }
  if (is_narrow) ImGui::EndCombo();
}

void App::show_copy_menu(const Results& results) {
  const auto item = [&](const char* label, const char* key, const char* name, auto&& run) {
    if (ImGui::MenuItem(label, key)) run();
    names_.add_item(name);
  };
  item("The command line that shows this", "Ctrl+L", "copy command", [&] { copy_command(); });
  item("As text", "Ctrl+C", "copy text", [&] { copy_text(results); });
  item("As CSV", "Ctrl+E", "copy csv", [&] { copy_csv(results); });
  item("As a picture, into a file", "Ctrl+S", "copy picture", [&] { want_picture(); });
}

void App::show_head(const Canvas& canvas, const Results& results) {
  const bool is_narrow = ImGui::GetContentRegionAvail().x < 20 * ImGui::GetFontSize();
  show_views(is_narrow);
  const auto button = [&](const char* label, const char* name, const char* meaning) {
    const float needed = ImGui::CalcTextSize(label).x + 3 * ImGui::GetStyle().FramePadding.x;
    ImGui::SameLine();
    if (ImGui::GetContentRegionAvail().x < needed) ImGui::NewLine();
    const bool is_pressed = ImGui::Button(label);
    names_.add_item(name);
    if (ImGui::IsItemHovered()) ImGui::SetTooltip("%s", meaning);
    return is_pressed;
  };
  if (is_narrow) {
    if (button("...", "more", "find, copy, colours, keys")) ImGui::OpenPopup("more menu");
    if (ImGui::BeginPopup("more menu")) {
      if (ImGui::MenuItem("Find", "Ctrl+P")) open_finder();
      show_copy_menu(results);
      if (ImGui::MenuItem(state_.is_light ? "Dark" : "Light", "L")) state_.is_light = !state_.is_light;
      if (ImGui::MenuItem("Keys", "?")) shows_keys_ = !shows_keys_;
      ImGui::EndPopup();
    }
  } else {
    if (button("Find", "find", "any tensor, op, finding, view or command: Ctrl+P")) open_finder();
    if (button("Copy", "copy", "the command line that shows this, what it shows, or a picture of it"))
      ImGui::OpenPopup("copy menu");
    if (ImGui::BeginPopup("copy menu")) {
      show_copy_menu(results);
      ImGui::EndPopup();
    }
    if (button(state_.is_light ? "Dark" : "Light", "theme", "the other colours")) state_.is_light = !state_.is_light;
    if (button("?", "keys", "what keys and the pointer do")) shows_keys_ = !shows_keys_;
  }
  // Reports begin with the verdict themselves.
  const bool has_own = state_.view == View::overview || state_.view == View::why_nan || state_.view == View::updates ||
                       state_.view == View::compare || state_.view == View::number;
  if (!has_own && results.report && results.report->verdict) {
    const Verdict verdict = *results.report->verdict;
    ImGui::PushStyleColor(ImGuiCol_Text, canvas.theme->of(verdict));
    ImGui::TextUnformatted(verdict_word(verdict));
    ImGui::PopStyleColor();
    ImGui::SameLine();
    const std::string sentences = one_line(results.report->verdict_text.text());
    ImGui::TextDisabled("%s", fitted(sentences, ImGui::GetContentRegionAvail().x).c_str());
    if (ImGui::IsItemHovered()) ImGui::SetTooltip("%s", sentences.c_str());
    names_.add_item("verdict line");
  }
  ImGui::Separator();
}

void App::show_foot(const Results& results) {
  std::string text = results.name + "  |  " + text_of(results.run);
  if (!results.other.empty()) text += "  |  and " + results.other + "  |  " + text_of(results.other_run);
  if ((state_.steps.first > 0 || state_.steps.last < UINT64_MAX) && results.recorded.last > results.recorded.first)
    text += fmt::format("  |  steps {} to {}", std::max(state_.steps.first, results.recorded.first),
                        std::min(state_.steps.last, results.recorded.last) - 1);
  if (state_.step) text += fmt::format("  |  step {}", *state_.step);
  if (!state_.tensor.empty()) text += "  |  " + state_.tensor;
  if (model_.is_busy()) text += "  |  reading ...";
  if (!notice_.empty()) text = notice_ + "  |  " + text;
  ImGui::TextDisabled("%s", fitted(one_line(text), ImGui::GetContentRegionAvail().x).c_str());
  names_.add_item("foot");
}

void App::go_to_anomaly(const Results& results, bool forward) {
  // Steps at which something is marked or was found.
  std::set<uint64_t> steps;
  const auto add_marks = [&](const std::vector<Plot>& plots) {
    for (const Plot& plot : plots)
      for (const Mark& mark : plot.marks) steps.insert(static_cast<uint64_t>(mark.from));
  };
  if (results.course) add_marks(*results.course);
  if (state_.view == View::compare && results.compare) add_marks(results.compare->plots);
  if (results.report)
    for (const Finding& finding : results.report->findings)
      if (finding.extent.first_step) steps.insert(*finding.extent.first_step);
  if (steps.empty()) return;
  if (!state_.step) {
    select_step(state_, forward ? *steps.begin() : *steps.rbegin());
  } else if (forward) {
    if (const auto next = steps.upper_bound(*state_.step); next != steps.end()) select_step(state_, *next);
  } else if (const auto at = steps.lower_bound(*state_.step); at != steps.begin()) {
    select_step(state_, *std::prev(at));
  }
}

// Without remembering it as one more.
void App::go_to(const ViewState& state) {
  state_ = last_state_ = state;
  model_.ask(state_);
}

std::string App::take_wanted_picture() { return std::exchange(wanted_picture_, {}); }

void App::copy_command() {
  ImGui::SetClipboardText(command().c_str());
  say("copied: the command line");
}

void App::copy_text(const Results& results) {
  ImGui::SetClipboardText(render_text(content(state_, results), {.all = true}).c_str());
  say(fmt::format("copied as text: {}", title_of(state_.view)));
}

void App::copy_csv(const Results& results) {
  ImGui::SetClipboardText(csv_of(content(state_, results)).c_str());
  say(fmt::format("copied as CSV: {}", title_of(state_.view)));
}

// Of the first name that no file has.
void App::want_picture() {
  for (int number = 1; number < 10000; ++number) {
    const std::string name = fmt::format("ulpscope-{}-{}.png", name_of(state_.view), number);
    std::error_code error;
    if (std::filesystem::exists(name, error)) continue;
    wanted_picture_ = name;
    return;
  }
}

void App::undo() {
  if (const ViewState* const before = history_.undo()) go_to(*before);
}
void App::redo() {
  if (const ViewState* const after = history_.redo()) go_to(*after);
}

void App::show_all() {
  state_.steps = {};
  state_.step.reset();
  state_.tensor.clear();
  state_.module.clear();
}

void App::open_finder() {
  finds_ = true;
  sought_.clear();
  pointed_offer_ = 0;
}

// One module a frame: of those inside it nothing is known before it is unfolded.
void App::reveal() {
  if (revealed_.empty() || model_.is_busy() || state_.view != View::ranges) return;
  const std::shared_ptr<const Results> results = model_.results();
  const std::string tensor = std::exchange(revealed_, "");
  if (state_.tensor != tensor) return;
  const std::optional<size_t> row = folded_row_of(*results, tensor);
  if (!row) return;
  toggle_fold(state_, (*results->matrix_rows)[*row].module);
  revealed_ = tensor;
}

void App::zoom(const Results& results, bool in) {
  const Canvas canvas{.state = &state_, .recorded = results.recorded};
  const StepRange shown = canvas.shown();
  const auto first = static_cast<double>(shown.first), last = static_cast<double>(shown.last), length = last - first;
  if (in && length > 2) canvas.show_steps(std::ceil(first + length / 8), std::floor(last - length / 8));
  if (!in && length >= 1) canvas.show_steps(first - std::max(1.0, length / 6), last + std::max(1.0, length / 6));
}

void App::focus(const Results& results) {
  if (!state_.step) return;
  const Canvas canvas{.state = &state_, .recorded = results.recorded};
  const StepRange shown = canvas.shown();
  const double middle = static_cast<double>(*state_.step);
  const double half = std::min(16.0, static_cast<double>(shown.last - shown.first) / 4);
  canvas.show_steps(middle - half, middle + half + 1);
}

void App::take_keys(const Results& results) {
  const ImGuiIO& io = ImGui::GetIO();
  if (is_pressed(Key::escape)) {
    notice_.clear();
    if (finds_ || shows_keys_)
      finds_ = shows_keys_ = false;
    else if (!io.WantTextInput)
      show_all();
  }
  if (io.KeyCtrl && is_pressed(Key::p)) open_finder();
  if (finds_) {
    if (is_pressed(Key::down)) pointed_offer_ = std::min(pointed_offer_ + 1, std::max(0, offered_ - 1));
    if (is_pressed(Key::up)) pointed_offer_ = std::max(pointed_offer_ - 1, 0);
  }
  if (io.WantTextInput || finds_) return;
  if (io.KeyCtrl) {
    if (is_pressed(Key::z)) io.KeyShift ? redo() : undo();
    if (is_pressed(Key::y)) redo();
    if (is_pressed_once(Key::c)) copy_text(results);
    if (is_pressed_once(Key::e)) copy_csv(results);
    if (is_pressed_once(Key::l)) copy_command();
    if (is_pressed_once(Key::s)) want_picture();
    if (is_pressed_once(Key::q)) closes_ = true;
    return;
  }
  for (int i = 0; i < kViews; ++i)
    if (is_pressed(Key::digit_1, i)) state_.view = static_cast<View>(i);
  if (is_pressed_once(Key::question) && io.KeyShift) shows_keys_ = !shows_keys_;
  if (is_pressed(Key::period)) go_to_anomaly(results, true);
  if (is_pressed(Key::comma)) go_to_anomaly(results, false);
  if (is_pressed_once(Key::l)) state_.is_light = !state_.is_light;
  if (is_pressed(Key::q)) {
    const int next = static_cast<int>(state_.quantity) + (io.KeyShift ? kMeasured - 1 : 1);
    state_.quantity = static_cast<Measured>(next % kMeasured);
  }
  if (is_pressed_once(Key::o)) state_.order = state_.order == TensorOrder::worst ? TensorOrder::execution : TensorOrder::worst;
  if (state_.scale && is_pressed(Key::plus)) state_.scale = std::min(*state_.scale + 1, kLargestScale);
  if (state_.scale && is_pressed(Key::minus)) state_.scale = std::max(*state_.scale - 1, kLeastScale);
  hands_.down = (is_pressed(Key::down) ? 1 : 0) - (is_pressed(Key::up) ? 1 : 0) + (is_pressed(Key::page_down) ? 20 : 0) -
                (is_pressed(Key::page_up) ? 20 : 0);
  hands_.enters = is_pressed_once(Key::enter) || is_pressed_once(Key::space);
  hands_.asks_field = is_pressed_once(Key::tab) || (is_pressed_once(Key::question) && !io.KeyShift);
  hands_.asks_makers = is_pressed_once(Key::m);
  hands_.asks_users = is_pressed_once(Key::u);
  if (is_pressed(Key::n)) hands_.next = io.KeyShift ? -1 : 1;
  const int aside = (is_pressed(Key::right) ? 1 : 0) - (is_pressed(Key::left) ? 1 : 0);
  const bool has_sides = state_.view == View::number || (state_.view == View::ranges && !state_.module.empty());
  if (has_sides) hands_.aside = aside;

  const Canvas canvas{.state = &state_, .recorded = results.recorded};
  const StepRange shown = canvas.shown(), recorded = results.recorded;
  const auto first = static_cast<double>(shown.first), last = static_cast<double>(shown.last), length = last - first;
  if (length < 1) return;
  if (is_pressed(Key::w)) zoom(results, true);
  if (is_pressed(Key::s)) zoom(results, false);
  const double move = std::max(1.0, std::floor(length / 5));
  if (is_pressed(Key::a) && shown.first > recorded.first) {
    const double begin = std::max(static_cast<double>(recorded.first), first - move);
    canvas.show_steps(begin, begin + length);
  }
  if (is_pressed(Key::d) && shown.last < recorded.last) {
    const double end = std::min(static_cast<double>(recorded.last), last + move);
    canvas.show_steps(end - length, end);
  }
  if (is_pressed(Key::f)) focus(results);
  const uint64_t step = state_.step.value_or(recorded.first);
  if (!has_sides && aside < 0 && step > recorded.first) state_.step = step - 1;
  if (!has_sides && aside > 0 && step + 1 < recorded.last) state_.step = step + 1;
}

std::vector<App::Command> App::commands(const Results& results) {
  std::vector<Command> all{
      {"copy the command line that shows this", "Ctrl+L", [this] { copy_command(); }},
      {"copy what is shown as text", "Ctrl+C", [&] { copy_text(results); }},
      {"copy what is shown as CSV", "Ctrl+E", [&] { copy_csv(results); }},
      {"save a picture of the window", "Ctrl+S", [this] { want_picture(); }},
      {"go back to what was shown before", "Ctrl+Z", [this] { undo(); }},
      {"go on to what was shown after that", "Ctrl+Y", [this] { redo(); }},
      {"next step at which something happened", ".", [&] { go_to_anomaly(results, true); }},
      {"last step before at which something happened", ",", [&] { go_to_anomaly(results, false); }},
      {"zoom in along the steps", "W", [&] { zoom(results, true); }},
      {"zoom out along the steps", "S", [&] { zoom(results, false); }},
      {"the steps around the selected one", "F", [&] { focus(results); }},
      {"all steps, and nothing selected", "Esc", [this] { show_all(); }},
      {state_.is_light ? "dark colours" : "light colours", "L", [this] { state_.is_light = !state_.is_light; }},
      {"what keys and the pointer do", "?", [this] { shows_keys_ = true; }},
      {"close the window", "Ctrl+Q", [this] { closes_ = true; }},
      {state_.order == TensorOrder::worst ? "tensors in order of execution" : "the worst tensors first", "O",
       [this] { state_.order = state_.order == TensorOrder::worst ? TensorOrder::execution : TensorOrder::worst; }},
      {state_.is_flat ? "tensors in their modules" : "tensors without their modules", "",
       [this] { state_.is_flat = !state_.is_flat; }},
      {state_.is_true ? "values with the loss scale" : "values without the loss scale", "",
       [this] { state_.is_true = !state_.is_true; }},
      {state_.scale ? "no other loss scale" : "what if the loss scale had been another", "",
       [this] { state_.scale = state_.scale ? std::nullopt : std::optional(12); }}};
  if (!state_.filter.empty()) all.push_back({"no filter", "", [this] { state_.filter.clear(); }});
  if (results.matrix_rows) {
    all.push_back({"fold all modules", "", [&] {
                     for (const ModuleRow& row : *results.matrix_rows)
                       if (!row.module.empty() && !row.is_folded) toggle_fold(state_, row.module);
                   }});
    all.push_back({"unfold all modules", "", [&] {
                     for (const ModuleRow& row : *results.matrix_rows)
                       if (row.is_folded) toggle_fold(state_, row.module);
                   }});
  }
  for (int i = 0; i < kMeasured; ++i) {
    const auto quantity = static_cast<Measured>(i);
    all.push_back({fmt::format("colours of ranges: {}", ulpscope::name_of(quantity)), "Q", [this, quantity] {
                     state_.view = View::ranges;
                     state_.quantity = quantity;
                   }});
  }
  all.push_back({"limits of the tensor's own format", "", [this] { state_.format.clear(); }});
  for (const FloatFormat* format : kFormats)
    all.push_back({fmt::format("limits of {}", format->name), "", [this, format] { state_.format = format->name; }});
  return all;
}

std::vector<App::Offer> App::find_offers(const Results& results) {
  constexpr size_t kMostOffers = 200;
  std::vector<Offer> offers;
  const auto offer = [&](const char* kind, const std::string& text, const std::string& key, std::function<void()> take) {
    if (offers.size() < kMostOffers && contains_in_any_case(text, sought_))
      offers.push_back({fmt::format("{}  {}", kind, one_line(text)), key, std::move(take)});
  };
  for (int i = 0; i < kViews; ++i) {
    const auto view = static_cast<View>(i);
    offer("view", title_of(view), std::to_string(i + 1), [this, view] { state_.view = view; });
  }
  if (results.report)
    for (const Finding& finding : results.report->findings)
      offer("finding", finding.title.text(), "", [this, &finding] { show_place_of(state_, finding); });
  const auto offer_commands = [&] {
    for (const Command& command : commands(results)) offer("command", command.name, command.key, command.run);
  };
  // Commands are few, and are offered before the many tensors once something is sought.
  if (!sought_.empty()) offer_commands();
  if (results.tensors) {
    for (const std::string& tensor : *results.tensors) {
      offer("tensor", tensor, "", [this, &tensor] {
        select_tensor(state_, tensor);
        revealed_ = tensor;  // though it may have been selected before
        if (state_.view != View::step) state_.view = View::ranges;
      });
    }
  }
  if (results.ops) {
    for (const NamedOp& op : *results.ops) {
      offer("op", op.name, "", [this, &results, &op] {
        select_tensor(state_, results.tensors->at(op.tensor));
        state_.view = View::step;
      });
    }
  }
  if (sought_.empty()) offer_commands();
  return offers;
}

void App::show_finder(const Results& results) {
  if (!finds_) return;
  const ImVec2 display = ImGui::GetIO().DisplaySize;
  const float width = std::min(display.x - 20, 46 * ImGui::GetFontSize());
  ImGui::SetNextWindowPos({(display.x - width) / 2, 3 * ImGui::GetFontSize()});
  ImGui::SetNextWindowSize({width, std::min(display.y * 0.7F, 26 * ImGui::GetFontSize())});
  ImGui::SetNextWindowFocus();
  ImGui::PushStyleColor(ImGuiCol_WindowBg, theme(state_.is_light).panel);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowBorderSize, 1);
  ImGui::Begin(
      "find anything", &finds_,
      ImGuiWindowFlags_NoCollapse | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoResize | ImGuiWindowFlags_NoSavedSettings);
  ImGui::SetNextItemWidth(-1);
  if (ImGui::IsWindowAppearing()) ImGui::SetKeyboardFocusHere();
  const std::string before = sought_;
  const bool takes = ImGui::InputTextWithHint("##sought", "a tensor, an op, a finding, a view, a command", &sought_,
                                              ImGuiInputTextFlags_EnterReturnsTrue) ||
                     is_pressed(Key::enter);
  if (sought_ != before) pointed_offer_ = 0;
  names_.add_item("sought");
  int shown = 0;
  ImGui::BeginChild("offers");
  // Of very many tensors they are sought once.
  const std::vector<Offer>& offers = kept_.get<std::vector<Offer>>("offers", &results, sought_ + "\n" + to_options(state_),
                                                                   [&](uint64_t) { return find_offers(results); });
  const Offer* taken = nullptr;
  for (const Offer& offer : offers) {
    const bool is_pointed = shown == pointed_offer_;
    if (ImGui::Selectable(fmt::format("{}##{}", offer.text, shown).c_str(), is_pointed) || (takes && is_pointed)) taken = &offer;
    names_.add_item(fmt::format("found {}", shown));
    if (is_pointed && !ImGui::IsItemVisible()) ImGui::SetScrollHereY();
    if (!offer.key.empty()) {
      ImGui::SameLine(ImGui::GetContentRegionMax().x - ImGui::CalcTextSize(offer.key.c_str()).x);
      ImGui::TextDisabled("%s", offer.key.c_str());
    }
    ++shown;
  }
  if (taken) {
    finds_ = false;
    taken->take();
  }
  if (shown == 0) ImGui::TextDisabled("nothing is called so");
  offered_ = shown;
  ImGui::EndChild();
  ImGui::End();
  ImGui::PopStyleVar();
  ImGui::PopStyleColor();
}

void App::show_keys() {
  if (!shows_keys_) return;
  static constexpr const char* kKeys[][2] = {
      {"1 to 8", "views"},
      {"W, S; wheel", "zoom in and out along the steps"},
      {"A, D", "move along the steps"},
      {"drag", "show the steps that it goes over"},
      {"double click; Esc", "show all steps"},
      {"click", "choose a step, a tensor, a row"},
      {"Left, Right", "the step before, and after"},
      {", and .", "the step before, and after, at which something happened"},
      {"F", "the steps around the chosen one"},
      {"Up, Down, Page Up, Page Down", "the row before, and after"},
      {"Enter", "go to the finding; fold or unfold a module, as Left and Right do; flip a bit"},
      {"Q, O", "ranges: another quantity, another order"},
      {"+, -", "ranges: twice the tried loss scale, and half of it"},
      {"M, U", "step: what the tensor was made of, and what used it"},
      {"N, Shift+N", "number: the next one above, and below"},
      {"L", "light, or dark"},
      {"Tab, /", "write into the view's field for text; Enter ends it"},
      {"Ctrl+P", "find any tensor, op, finding, view or command"},
      {"Ctrl+Z, Ctrl+Y", "what was shown before, and after that"},
      {"Ctrl+C, Ctrl+E, Ctrl+S", "copy it as text, as CSV, as a picture"},
      {"Ctrl+L", "copy the command line that shows it"},
      {"Ctrl+Q", "close the window"},
      {"right click", "copy a plot or table as CSV"}};
  const ImVec2 display = ImGui::GetIO().DisplaySize;
  ImGui::SetNextWindowPos({display.x / 2, display.y / 2}, 0, {0.5F, 0.5F});
  ImGui::PushStyleColor(ImGuiCol_WindowBg, theme(state_.is_light).panel);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowBorderSize, 1);
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
  ImGui::PopStyleVar();
  ImGui::PopStyleColor();
}

void save_picture(App& app, const std::string& path, const Image& image) {
  try {
    atomic_write_file(path, png_of(image));
    app.say("wrote " + path);
  } catch (const Error& error) {
    app.say(one_line(error.what()));
  }
}

}  // namespace ulpscope::gui
