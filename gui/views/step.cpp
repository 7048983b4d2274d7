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
  return rank.place >= -1 ? with_alpha(theme.dim, 110) : theme.unknown;
}

// A lane for each phase, and of several ranks for each phase of each.
std::string lane_of(const Columns& columns, const TableRow& row) {
  const std::string& phase = std::get<std::string>(row.cells.at(columns.phase));
  if (columns.rank >= row.cells.size()) return phase;
  return fmt::format("rank {} {}", std::get<int64_t>(row.cells[columns.rank]), phase);
}

// Where the rows of a step lie in a picture so many pixels wide, from left to right in order of execution.
struct Lanes {
  struct Pixel {
    size_t lane;
    int x;
    Rank rank;  // of rows that share it that of the worst
  };
  std::vector<std::string> names;
  std::vector<size_t> of_row;
  std::vector<Pixel> pixels;
  float each;  // pixels a row

  Lanes(const Table& table, const Columns& columns, float width)
      : of_row(table.rows.size()), each(width / static_cast<float>(table.rows.size())) {
    std::map<std::string, size_t> places;
    std::map<std::pair<size_t, int>, Rank> ranks;
    for (size_t row = 0; row < table.rows.size(); ++row) {
      const auto [place, is_new] = places.try_emplace(lane_of(columns, table.rows[row]), names.size());
      if (is_new) names.push_back(place->first);
      of_row[row] = place->second;
      Rank& rank = ranks.try_emplace({place->second, begin_of(row)}).first->second;
      rank = std::max(rank, rank_of(columns, table.rows[row]));
    }
    for (const auto& [place, rank] : ranks) pixels.push_back({place.first, place.second, rank});
  }
  int begin_of(size_t row) const { return static_cast<int>(each * static_cast<float>(row)); }
};

// Several where there are micro-batches or ranks.
std::vector<size_t> rows_of(const Table& table, const std::string& tensor) {
  std::vector<size_t> rows;
  for (size_t row = 0; row < table.rows.size() && !tensor.empty(); ++row)
    if (table.rows[row].key.name == tensor) rows.push_back(row);
  return rows;
}

void show_lanes(const Canvas& canvas, const Table& table) {
  if (table.rows.empty()) return;
  const Theme& theme = *canvas.theme;
  const float line = ImGui::GetTextLineHeight(), lane_height = 1.35F * line;
  const Columns columns(table);
  const float left = (columns.rank < table.columns.size() ? 10 : 6.5F) * ImGui::GetFontSize();
  const ImVec2 from = ImGui::GetCursorScreenPos();
  const float width = std::max(10.0F, ImGui::GetContentRegionAvail().x - left - 4);
  const Lanes& lanes =
      canvas.kept->get<Lanes>("lanes", &table, fmt::format("{}", width), [&](uint64_t) { return Lanes(table, columns, width); });
  const auto& chosen = canvas.kept->get<std::vector<size_t>>("chosen rows of the lanes", &table, canvas.state->tensor,
                                                             [&](uint64_t) { return rows_of(table, canvas.state->tensor); });
  ImGui::InvisibleButton("lanes", {left + width, lane_height * static_cast<float>(lanes.names.size()) + 2});
  const bool is_hovered = ImGui::IsItemHovered();
  ImDrawList& list = *ImGui::GetWindowDrawList();
  canvas.names->add(
      "lanes", {{from.x + left, from.y}, {from.x + left + width, from.y + lane_height * static_cast<float>(lanes.names.size())}});
  for (size_t i = 0; i < lanes.names.size(); ++i) {
    const float y = from.y + lane_height * static_cast<float>(i);
    list.AddText({from.x, y + 2}, theme.dim, lanes.names[i].c_str());
    list.AddRectFilled({from.x + left, y}, {from.x + left + width, y + lane_height - 2}, theme.plot);
  }
  const float each = lanes.each;
  for (const Lanes::Pixel& pixel : lanes.pixels) {
    const float x = from.x + left + static_cast<float>(pixel.x), y = from.y + lane_height * static_cast<float>(pixel.lane);
    list.AddRectFilled({x, y + 1}, {x + std::max(1.0F, std::floor(each) - (each >= 3 ? 1 : 0)), y + lane_height - 3},
                       color_of(theme, pixel.rank));
  }
  const auto box_of = [&](size_t row) {
    const float x = from.x + left + static_cast<float>(lanes.begin_of(row));
    const float y = from.y + lane_height * static_cast<float>(lanes.of_row[row]);
    return Rectangle{{x, y}, {x + std::max(2.0F, each), y + lane_height - 2}};
  };
  if (each >= 3)
    for (size_t row = 0; row < table.rows.size(); ++row) canvas.names->add(fmt::format("lane row {}", row), box_of(row));
  for (const size_t row : chosen) {
    const Rectangle box = box_of(row);
    list.AddRect({box.from.x - 1, box.from.y - 1}, {box.to.x + 1, box.to.y + 1}, theme.accent, 0, 0, 2);
    canvas.names->add(fmt::format("lane row {}", row), box);
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

// The exponents from which to which the axis of all rows goes; what lies far beyond FP16 is at its ends. Empty where there are
// none.
std::pair<double, double> axis_of(const Plot& histograms) {
  constexpr double kLowest = -40, kHighest = 20;
  double lowest = INFINITY, highest = -INFINITY;
  for (const Series& row : histograms.series) {
    if (row.points() == 0) continue;
    lowest = std::min(lowest, row.x.front());
    highest = std::max(highest, row.x[row.points() - 1]);
  }
  if (lowest > highest) return {lowest, highest};
  return {std::clamp(lowest, kLowest, kHighest), std::clamp(highest, kLowest, kHighest)};
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
    if (!has_steps(results)) return;
    ViewState& state = *canvas.state;
    const uint64_t first = results.recorded.first, last = std::max(first + 1, results.recorded.last) - 1;
    const uint64_t step = std::clamp(state.step.value_or(first), first, last);
    if (ImGui::Button("<") && step > first) state.step = step - 1;
    canvas.names->add_item("step before");
    ImGui::SameLine();
    uint64_t chosen = step;
    ImGui::SetNextItemWidth(16 * ImGui::GetFontSize());
    if (ImGui::SliderScalar("##step", ImGuiDataType_U64, &chosen, &first, &last, "")) state.step = std::clamp(chosen, first, last);
    canvas.names->add_item("step slider");
    ImGui::SameLine();
    if (ImGui::Button(">") && step < last) state.step = step + 1;
    canvas.names->add_item("step after");
    // Beside the slider, whose handle would cover it.
    ImGui::SameLine();
    ImGui::Text("step %llu", static_cast<unsigned long long>(step));
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
    if (results.flow && results.flow->rows.empty()) {
      say("No edges of the graph lead to it or from it.");
    } else if (results.flow) {
      show_table(canvas, *results.flow, std::max(4 * line, below - 1.5F * line));
    }
    ImGui::TableNextColumn();
    if (results.exponents) show_plot(canvas, *results.exponents, {.height = std::max(6 * line, below - 0.5F * line)});
    ImGui::EndTable();
  }

 private:
  // Of the table of the step, as far as the histograms are those of its rows.
  static DrawnColumn exponents_column(const Canvas& canvas, const Results& results) {
    if (!results.histograms || results.histograms->series.size() != results.step->rows.size()) return {};
    const Plot& histograms = *results.histograms;
    const auto& [lowest, highest] = canvas.kept->get<std::pair<double, double>>("exponents of the step", &histograms, "",
                                                                                [&](uint64_t) { return axis_of(histograms); });
    if (lowest > highest) return {};
    return {"exponents", [&canvas, &histograms, lowest = lowest, highest = highest](size_t row) {
              draw_exponents(canvas, histograms.series[row], lowest, highest);
            }};
  }
};

}  // namespace

std::unique_ptr<ViewPanel> make_step() { return std::make_unique<Step>(); }

}  // namespace ulpscope::gui
