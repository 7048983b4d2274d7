// All ops of one step in order of execution: phases as lanes, a table with the exponents of each, and of the selected tensor what
// it was made of, what used it, and its exponents over the steps.
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/gui/plots.h"
#include "ulpscope/gui/reports.h"
#include "ulpscope/gui/views/view.h"

namespace ulpscope::gui {

namespace {

// Where the table has what lanes show.
struct Columns {
  size_t phase, rank, nonfinite, flushed, overflowed;

  explicit Columns(const Table& table)
      : phase(find(table, "phase")),
        rank(find(table, "rank")),
        nonfinite(find(table, "nonfinite")),
        flushed(find(table, "flushed")),
        overflowed(find(table, "overflowed")) {}

 private:
  static size_t find(const Table& table, const char* name) {
    const auto found =
        std::find_if(table.columns.begin(), table.columns.end(), [&](const Column& column) { return column.name == name; });
    return static_cast<size_t>(found - table.columns.begin());
  }
};

// What colour a row has: how bad it is, from nothing on.
struct Rank {
  double place = -2;  // 2: NaN or infinities; 1 to 0: the share that was flushed or overflowed, on the map; -1: none; -2: not known
  bool operator<(const Rank& other) const { return place < other.place; }
};

Rank rank_of(const Columns& columns, const TableRow& row) {
  if (const auto* const count = std::get_if<int64_t>(&row.cells.at(columns.nonfinite)); count && *count > 0) return {2};
  Rank rank;
  for (const size_t column : {columns.flushed, columns.overflowed}) {
    const Cell& cell = row.cells.at(column);
    if (const auto* const share = std::get_if<double>(&cell))
      rank = std::max(rank, Rank{std::max(-1.0, place_on_map(*share, Unit::share, 0, 1))});
    if (const auto* const share = std::get_if<Interval>(&cell))
      rank = std::max(rank, Rank{std::max(-1.0, place_on_map(share->lower, Unit::share, 0, 1))});
    if (std::holds_alternative<NotApplicable>(cell)) rank = std::max(rank, Rank{-1});
  }
  return rank;
}

ImU32 color_of(const Theme& theme, Rank rank) {
  if (rank.place >= 2) return theme.error;
  if (rank.place >= 0) return map_color(rank.place, theme.is_light);
  return rank.place >= -1 ? (theme.dim & ~IM_COL32_A_MASK) | (110U << IM_COL32_A_SHIFT) : theme.unknown;
}

// A lane for each phase, and of several ranks for each phase of each.
std::string lane_of(const Columns& columns, const TableRow& row) {
  const std::string& phase = std::get<std::string>(row.cells.at(columns.phase));
  if (columns.rank >= row.cells.size()) return phase;
  return fmt::format("rank {} {}", std::get<int64_t>(row.cells[columns.rank]), phase);
}

// Rows from left to right in order of execution, in lanes.
void show_lanes(const Canvas& canvas, const Table& table) {
  if (table.rows.empty()) return;
  const Theme& theme = *canvas.theme;
  const float line = ImGui::GetTextLineHeight(), lane_height = 1.35F * line;
  const Columns columns(table);
  const float left = (columns.rank < table.columns.size() ? 10 : 6.5F) * ImGui::GetFontSize();
  std::vector<std::string> lanes;
  std::vector<size_t> lane(table.rows.size());
  for (size_t row = 0; row < table.rows.size(); ++row) {
    const std::string name = lane_of(columns, table.rows[row]);
    const auto found = std::find(lanes.begin(), lanes.end(), name);
    lane[row] = static_cast<size_t>(found - lanes.begin());
    if (found == lanes.end()) lanes.push_back(name);
  }
  const ImVec2 from = ImGui::GetCursorScreenPos();
  const float width = std::max(10.0F, ImGui::GetContentRegionAvail().x - left - 4);
  ImGui::InvisibleButton("lanes", {left + width, lane_height * static_cast<float>(lanes.size()) + 2});
  const bool is_hovered = ImGui::IsItemHovered();
  ImDrawList& list = *ImGui::GetWindowDrawList();
  canvas.names->add("lanes",
                    {{from.x + left, from.y}, {from.x + left + width, from.y + lane_height * static_cast<float>(lanes.size())}});
  const float each = width / static_cast<float>(table.rows.size());
  for (size_t i = 0; i < lanes.size(); ++i) {
    const float y = from.y + lane_height * static_cast<float>(i);
    list.AddText({from.x, y + 2}, theme.dim, lanes[i].c_str());
    list.AddRectFilled({from.x + left, y}, {from.x + left + width, y + lane_height - 2}, theme.plot);
  }
  // Of rows that share a pixel the worst is seen.
  std::map<std::pair<size_t, int>, Rank> pixels;
  const auto begin_of = [&](size_t row) { return static_cast<int>(each * static_cast<float>(row)); };
  for (size_t row = 0; row < table.rows.size(); ++row) {
    Rank& rank = pixels.try_emplace({lane[row], begin_of(row)}).first->second;
    rank = std::max(rank, rank_of(columns, table.rows[row]));
  }
  for (const auto& [place, rank] : pixels) {
    const float x = from.x + left + static_cast<float>(place.second), y = from.y + lane_height * static_cast<float>(place.first);
    list.AddRectFilled({x, y + 1}, {x + std::max(1.0F, std::floor(each) - (each >= 3 ? 1 : 0)), y + lane_height - 3},
                       color_of(theme, rank));
  }
  for (size_t row = 0; row < table.rows.size(); ++row) {
    const float x = from.x + left + static_cast<float>(begin_of(row)), y = from.y + lane_height * static_cast<float>(lane[row]);
    const Rectangle box{{x, y}, {x + std::max(2.0F, each), y + lane_height - 2}};
    const bool is_chosen = table.rows[row].key.name == canvas.state->tensor;
    if (is_chosen) list.AddRect({box.from.x - 1, box.from.y - 1}, {box.to.x + 1, box.to.y + 1}, theme.accent, 0, 0, 2);
    if (each >= 3 || is_chosen) canvas.names->add(fmt::format("lane row {}", row), box);
  }
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  if (!is_hovered || mouse.x < from.x + left) return;
  const auto row = std::min(static_cast<size_t>((mouse.x - from.x - left) / each), table.rows.size() - 1);
  std::string told = table.rows[row].key.name;
  for (size_t i = 1; i < table.columns.size(); ++i)
    told += fmt::format("\n{}: {}", shown_name(table.columns[i].name), cell_text(table.rows[row].cells[i], table.columns[i].unit));
  ImGui::SetTooltip("%s", told.c_str());
  if (ImGui::IsMouseReleased(0)) select_tensor(*canvas.state, table.rows[row].key.name);
}

// Heights are square roots, so that what is rare is seen too.
void draw_exponents(const Canvas& canvas, const Series& row, double lowest, double highest) {
  const ImVec2 from = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x, height = ImGui::GetTextLineHeight();
  if (row.y.empty() || width < 4) return;
  const double tallest = *std::max_element(row.y.begin(), row.y.end());
  if (!(tallest > 0)) return;
  const float column = width / static_cast<float>(highest - lowest + 1);
  for (size_t i = 0; i < row.x.size(); ++i) {
    if (!(row.y[i] > 0)) continue;
    const float x = from.x + column * static_cast<float>(std::clamp(row.x[i], lowest, highest) - lowest);
    const float tall = std::max(1.0F, static_cast<float>(std::sqrt(row.y[i] / tallest)) * height);
    ImGui::GetWindowDrawList()->AddRectFilled({x, from.y + height - tall}, {x + std::max(1.0F, column - 0.5F), from.y + height},
                                              canvas.theme->series[0]);
  }
  ImGui::Dummy({width, height});
  if (ImGui::IsItemHovered()) ImGui::SetTooltip("values from 2^%.0f to 2^%.0f", row.x.front(), row.x.back() + 1);
}

// To the first tensor of that relation.
void follow(const Canvas& canvas, const Table& flow, const char* relation) {
  for (const TableRow& row : flow.rows) {
    if (row.cells.at(0) != Cell(std::string(relation))) continue;
    select_tensor(*canvas.state, row.key.name);
    return;
  }
}

class Step : public ViewPanel {
 public:
  void show(const Canvas& canvas, const Results& results) override {
    ViewState& state = *canvas.state;
    const uint64_t first = results.recorded.first, last = std::max(first + 1, results.recorded.last) - 1;
    const uint64_t step = std::clamp(state.step.value_or(first), first, last);
    if (ImGui::Button("<") && step > first) state.step = step - 1;
    canvas.names->add_item("step before");
    ImGui::SameLine();
    uint64_t chosen = step;
    ImGui::SetNextItemWidth(16 * ImGui::GetFontSize());
    if (ImGui::SliderScalar("##step", ImGuiDataType_U64, &chosen, &first, &last, "step %llu"))
      state.step = std::clamp(chosen, first, last);
    canvas.names->add_item("step slider");
    ImGui::SameLine();
    if (ImGui::Button(">") && step < last) state.step = step + 1;
    canvas.names->add_item("step after");
    go_on_beside(14 * ImGui::GetFontSize());
    ImGui::SetNextItemWidth(14 * ImGui::GetFontSize());
    take_field_keys(canvas);
    ImGui::InputTextWithHint("##filter", "filter, as *.weight gradient*", &state.filter);
    canvas.names->add_item("filter");
    if (!is_there(results.step, results, "the step")) return;
    if (!results.step->rows.empty()) show_lanes(canvas, *results.step);
    const bool has_tensor = !state.tensor.empty();
    if (has_tensor && results.flow && canvas.hands) {
      if (std::exchange(canvas.hands->asks_makers, false)) follow(canvas, *results.flow, "made of");
      if (std::exchange(canvas.hands->asks_users, false)) follow(canvas, *results.flow, "used by");
    }
    const float room = ImGui::GetContentRegionAvail().y;
    show_table(canvas, *results.step, room * (has_tensor ? 0.5F : 0.93F), exponents_column(canvas, results));
    if (!has_tensor) return;
    const float below = ImGui::GetContentRegionAvail().y;
    if (!ImGui::BeginTable("selected", 2, ImGuiTableFlags_SizingStretchProp)) return;
    ImGui::TableSetupColumn("flow", ImGuiTableColumnFlags_WidthStretch, 0.45F);
    ImGui::TableSetupColumn("exponents", ImGuiTableColumnFlags_WidthStretch, 0.55F);
    ImGui::TableNextColumn();
    const float line = ImGui::GetTextLineHeightWithSpacing();
    if (results.flow && results.flow->rows.empty())
      ImGui::TextDisabled("%s", "No edges of the graph lead to it or from it.");
    else if (results.flow)
      show_table(canvas, *results.flow, std::max(4 * line, below - 1.5F * line));
    ImGui::TableNextColumn();
    if (results.exponents) show_plot(canvas, *results.exponents, std::max(6 * line, below - 0.5F * line));
    ImGui::EndTable();
  }

 private:
  // Of the table of the step, as far as the histograms are those of its rows.
  static DrawnColumn exponents_column(const Canvas& canvas, const Results& results) {
    if (!results.histograms || results.histograms->series.size() != results.step->rows.size()) return {};
    // All rows on one axis; what lies far beyond FP16 is at its ends.
    constexpr double kLowest = -40, kHighest = 20;
    double lowest = INFINITY, highest = -INFINITY;
    for (const Series& row : results.histograms->series) {
      if (row.x.empty()) continue;
      lowest = std::min(lowest, row.x.front());
      highest = std::max(highest, row.x.back());
    }
    if (lowest > highest) return {};
    lowest = std::clamp(lowest, kLowest, kHighest);
    highest = std::clamp(highest, kLowest, kHighest);
    return {"exponents", [&canvas, &results, lowest, highest](size_t row) {
              draw_exponents(canvas, results.histograms->series[row], lowest, highest);
            }};
  }
};

}  // namespace

std::unique_ptr<ViewPanel> make_step() { return std::make_unique<Step>(); }

}  // namespace ulpscope::gui
