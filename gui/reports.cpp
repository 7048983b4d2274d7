#include "ulpscope/gui/reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/base/text.h"
#include "ulpscope/gui/content.h"
#include "ulpscope/gui/plots.h"

namespace ulpscope::gui {

namespace {

// To the picture that shows the finding.
void open_picture_of(ViewState& state, const Finding& finding) {
  const auto show_tensors = [&](Measured quantity) {
    state.view = View::ranges;
    state.quantity = quantity;
  };
  switch (finding.picture) {
    case Picture::none:
      break;
    case Picture::course:
      state.view = View::timeline;
      break;
    case Picture::flushed:
      show_tensors(Measured::flushed);
      break;
    case Picture::overflowed:
      show_tensors(Measured::overflowed);
      break;
    case Picture::nonfinite_elements:
      show_tensors(Measured::nonfinite);
      break;
    case Picture::largest_exponents:
      show_tensors(Measured::largest_exponent);
      break;
    case Picture::nonfinite_flow:
      state.view = View::why_nan;
      break;
    case Picture::updates:
      state.view = View::updates;
      break;
  }
}

constexpr size_t kShownEvidence = 3;       // of a finding
constexpr size_t kMostVerdictBytes = 900;  // a name in it may be of any length
constexpr float kWidestName = 30;          // of a table's row, in letters

std::string first_bytes_of(const std::string& text, size_t most) {
  return text.size() <= most ? text : valid_utf8(text.substr(0, most)) + "...";
}

const RowKey* place_of(const Finding& finding) { return finding.evidence.empty() ? nullptr : &finding.evidence.front().key; }

void show_finding(const Canvas& canvas, const Finding& finding, const std::string& name) {
  ImGui::PushID(name.c_str());
  const ImU32 color = canvas.theme->of(finding.severity);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float line = ImGui::GetTextLineHeight();
  ImGui::Indent(line);
  ImGui::PushTextWrapPos(0);
  ImGui::TextUnformatted(finding.title.text().c_str());
  const bool is_clicked = ImGui::IsItemClicked();
  const float foot = ImGui::GetItemRectMax().y;
  canvas.names->add_item(name);
  if (ImGui::IsItemHovered()) ImGui::SetTooltip("%s\nclick: go to where and when it was", finding.code.c_str());
  ImGui::PushStyleColor(ImGuiCol_Text, canvas.theme->dim);
  for (size_t i = 0; i < std::min(finding.evidence.size(), kShownEvidence); ++i) {
    const Evidence& evidence = finding.evidence[i];
    std::string text = key_text(evidence.key);
    const char* separator = text.empty() ? "" : ": ";
    for (const Quantity& quantity : evidence.values) {
      text += separator + shown_name(quantity.name) + " " + cell_text(quantity.value, quantity.unit);
      separator = ", ";
    }
    ImGui::TextUnformatted(one_line(text).c_str());
    if (ImGui::IsItemClicked()) {
      select_place(*canvas.state, evidence.key);
      open_picture_of(*canvas.state, finding);
    }
  }
  if (finding.evidence.size() > kShownEvidence)
    ImGui::TextUnformatted(fmt::format("and {} more", finding.evidence.size() - kShownEvidence).c_str());
  ImGui::PopStyleColor();
  if (!finding.suggestion.empty()) {
    ImGui::PushStyleColor(ImGuiCol_Text, canvas.theme->accent);
    ImGui::TextUnformatted(finding.suggestion.text().c_str());
    ImGui::PopStyleColor();
  }
  ImGui::PopTextWrapPos();
  ImGui::Unindent(line);
  ImGui::GetWindowDrawList()->AddRectFilled({at.x, at.y}, {at.x + 4, std::max(foot, at.y + line)}, color, 2);
  if (is_clicked) show_place_of(*canvas.state, finding);
  ImGui::PopID();
}

// What a column of numbers is sorted by; NaN: nobody knows, or it does not apply.
double sort_value(const Cell& cell) {
  if (const auto* value = std::get_if<double>(&cell)) return *value;
  if (const auto* value = std::get_if<int64_t>(&cell)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<Interval>(&cell)) return value->lower;
  if (const auto* value = std::get_if<bool>(&cell)) return *value ? 1 : 0;
  return NAN;
}

std::string_view text_of(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* text = std::get_if<LongText>(&cell)) return text->text;
  return "";
}

std::vector<size_t> sorted_rows(const Table& table, const ImGuiTableColumnSortSpecs* by, bool has_drawn_column) {
  std::vector<size_t> order(table.rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!by) return order;
  // A drawn column is the second one.
  const auto index = static_cast<size_t>(by->ColumnIndex);
  const size_t column = has_drawn_column && index > 0 ? index - 1 : index;
  const bool descends = by->SortDirection == ImGuiSortDirection_Descending;
  const bool is_text = column < table.columns.size() && table.columns[column].kind == ColumnKind::text;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Cell &first = table.rows[a].cells[column], &second = table.rows[b].cells[column];
    if (is_text) return descends ? text_of(second) < text_of(first) : text_of(first) < text_of(second);
    const double x = sort_value(first), y = sort_value(second);
    if (std::isnan(x) || std::isnan(y)) return !std::isnan(x);  // what nobody knows comes last both ways
    return descends ? y < x : x < y;
  });
  return order;
}

const std::vector<size_t>& sorted_rows(const Canvas& canvas, const Table& table, const ImGuiTableSortSpecs* specs,
                                       bool has_drawn_column) {
  const ImGuiTableColumnSortSpecs* const by = specs && specs->SpecsCount > 0 ? specs->Specs : nullptr;
  const std::string version = by ? fmt::format("{} {}", by->ColumnIndex, static_cast<int>(by->SortDirection)) : "";
  return canvas.kept->get<std::vector<size_t>>("order of " + table.name, &table, version,
                                               [&](uint64_t) { return sorted_rows(table, by, has_drawn_column); });
}

}  // namespace

void show_place_of(ViewState& state, const Finding& finding) {
  if (place_of(finding)) select_place(state, *place_of(finding));
  open_picture_of(state, finding);
}

void show_verdict(const Canvas& canvas, const Report& report) {
  if (!report.verdict) return;
  const ImU32 color = canvas.theme->of(*report.verdict);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float line = ImGui::GetTextLineHeight(), width = ImGui::GetContentRegionAvail().x;
  std::string text = first_bytes_of(verdict_line(report), kMostVerdictBytes);
  if (!report.checked.empty()) text += "\nChecked: " + report.checked.text();
  const ImVec2 size = ImGui::CalcTextSize(text.c_str(), nullptr, false, width - 2 * line);
  ImDrawList& list = *ImGui::GetWindowDrawList();
  list.AddRectFilled(at, {at.x + width, at.y + size.y + line}, canvas.theme->panel, 4);
  list.AddRectFilled(at, {at.x + 5, at.y + size.y + line}, color, 2);
  ImGui::SetCursorScreenPos({at.x + line, at.y + line / 2});
  ImGui::PushTextWrapPos(ImGui::GetCursorPosX() + width - 2 * line);
  ImGui::TextUnformatted(text.c_str());
  canvas.names->add_item("verdict");
  ImGui::PopTextWrapPos();
  ImGui::SetCursorScreenPos({at.x, at.y + size.y + 1.4F * line});
  ImGui::Dummy({0, 0});
}

// Keys go from one finding to the next, to its tensor and step, and Enter to the view that shows it.
void take_finding_keys(const Canvas& canvas, const Report& report) {
  if (!canvas.hands || (canvas.hands->down == 0 && !canvas.hands->enters)) return;
  std::vector<size_t> order;
  for (const Cause& cause : report.causes) order.push_back(cause.finding);
  for (size_t i = 0; i < report.findings.size(); ++i)
    if (std::find(order.begin(), order.end(), i) == order.end()) order.push_back(i);
  std::erase_if(order, [&](size_t i) { return !place_of(report.findings[i]); });
  // Of several findings on one place it is the one that a key led to, and else the first.
  const auto is_selected = [&](size_t finding) {
    const RowKey& key = *place_of(report.findings[finding]);
    return key.name == canvas.state->tensor && (!key.step || key.step == canvas.state->step) && !(key.name.empty() && !key.step);
  };
  int& led_to = *ImGui::GetStateStorage()->GetIntRef(ImGui::GetID("finding that keys led to"), -1);
  auto found = std::find(order.begin(), order.end(), static_cast<size_t>(led_to));
  if (found == order.end() || !is_selected(*found)) found = std::find_if(order.begin(), order.end(), is_selected);
  const auto selected = found == order.end() ? std::nullopt : std::optional(static_cast<size_t>(found - order.begin()));
  if (selected && std::exchange(canvas.hands->enters, false)) open_picture_of(*canvas.state, report.findings[order[*selected]]);
  if (const size_t row = canvas.hands->take_row(order.size(), selected); row != SIZE_MAX) {
    led_to = static_cast<int>(order[row]);
    select_place(*canvas.state, *place_of(report.findings[order[row]]));
  }
}

void show_findings(const Canvas& canvas, const Report& report) {
  take_finding_keys(canvas, report);
  if (report.findings.empty()) {
    ImGui::TextDisabled("No findings.");
    return;
  }
  std::vector<bool> is_shown(report.findings.size(), false);
  for (const Cause& cause : report.causes) {
    is_shown[cause.finding] = true;
    show_finding(canvas, report.findings[cause.finding], fmt::format("finding {}", cause.finding));
    if (cause.consequences.empty()) continue;
    for (const size_t i : cause.consequences) is_shown[i] = true;
    ImGui::Indent(ImGui::GetTextLineHeight());
    const std::string title = fmt::format("then: {}###came of {}", count_of(cause.consequences.size(), "finding"), cause.finding);
    if (ImGui::TreeNode(title.c_str())) {
      for (const size_t i : cause.consequences) show_finding(canvas, report.findings[i], fmt::format("finding {}", i));
      ImGui::TreePop();
    }
    canvas.names->add_item(fmt::format("came of {}", cause.finding));
    ImGui::Unindent(ImGui::GetTextLineHeight());
  }
  for (size_t i = 0; i < report.findings.size(); ++i)
    if (!is_shown[i]) show_finding(canvas, report.findings[i], fmt::format("finding {}", i));
}

void show_facts(const Canvas& canvas, const Report& report) {
  if (report.facts.empty() || !ImGui::BeginTable("facts", 2)) return;
  ImGui::TableSetupColumn("fact", ImGuiTableColumnFlags_WidthFixed);
  ImGui::TableSetupColumn("value", ImGuiTableColumnFlags_WidthStretch);
  for (const Quantity& fact : report.facts) {
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    ImGui::TextDisabled("%s", shown_name(fact.name).c_str());
    ImGui::TableNextColumn();
    ImGui::PushTextWrapPos(0);
    ImGui::TextUnformatted(one_line(cell_text(fact.value, fact.unit)).c_str());
    ImGui::PopTextWrapPos();
    canvas.names->add_item("fact " + fact.name);
  }
  ImGui::EndTable();
}

void show_table(const Canvas& canvas, const Table& table, float height, const DrawnColumn& drawn) {
  ImGui::PushID(table.name.c_str());
  const float line = ImGui::GetTextLineHeightWithSpacing();
  if (!table.title.empty()) {
    ImGui::TextUnformatted(fitted(table.title, ImGui::GetContentRegionAvail().x).c_str());
    if (ImGui::IsItemHovered()) ImGui::SetTooltip("%s", table.title.c_str());
  }
  if (table.rows.empty()) {
    ImGui::TextDisabled("no rows");
    ImGui::PopID();
    return;
  }
  const float wanted = line * (static_cast<float>(std::min<size_t>(table.rows.size(), 12)) + 2.2F);
  constexpr ImGuiTableFlags kFlags = ImGuiTableFlags_RowBg | ImGuiTableFlags_ScrollY | ImGuiTableFlags_ScrollX |
                                     ImGuiTableFlags_Sortable | ImGuiTableFlags_SortTristate | ImGuiTableFlags_Resizable |
                                     ImGuiTableFlags_BordersInnerV | ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_Hideable;
  const size_t columns = table.columns.size() + (drawn.name ? 1 : 0);
  if (ImGui::BeginTable("table", static_cast<int>(columns), kFlags, {0, height > 0 ? height : wanted})) {
    ImGui::TableSetupScrollFreeze(1, 1);
    for (const Column& column : table.columns) {
      ImGui::TableSetupColumn((shown_name(column.name) + (column.unit == Unit::bits ? ", bits" : "")).c_str(),
                              column.kind == ColumnKind::number ? ImGuiTableColumnFlags_PreferSortDescending : 0);
      if (drawn.name && &column == &table.columns.front())
        ImGui::TableSetupColumn(drawn.name, ImGuiTableColumnFlags_NoSort | ImGuiTableColumnFlags_WidthFixed, 8 * line);
    }
    ImGui::TableHeadersRow();
    const std::vector<size_t>& order = sorted_rows(canvas, table, ImGui::TableGetSortSpecs(), drawn.name != nullptr);
    const auto is_chosen = [&](const TableRow& row) {
      return (!row.key.name.empty() && row.key.name == canvas.state->tensor) ||
             (row.key.name.empty() && row.key.step && row.key.step == canvas.state->step);
    };
    if (canvas.hands && canvas.hands->down != 0) {
      // Of several rows of one tensor the one from which the key leads out of them.
      std::optional<size_t> selected;
      for (size_t i = 0; i < order.size() && !(selected && canvas.hands->down < 0); ++i)
        if (is_chosen(table.rows[order[i]])) selected = i;
      const size_t row = canvas.hands->take_row(order.size(), selected);  // there are some
      select_place(*canvas.state, table.rows[order[row]].key);
    }
    // What was selected, here or elsewhere, is brought into view once.
    const auto selection =
        static_cast<int>(ImGui::GetID(fmt::format("{} {}", canvas.state->tensor, canvas.state->step.value_or(UINT64_MAX)).c_str()));
    if (int& seen = *ImGui::GetStateStorage()->GetIntRef(ImGui::GetID("seen")); seen != selection) {
      seen = selection;
      const auto found = std::find_if(order.begin(), order.end(), [&](size_t row) { return is_chosen(table.rows[row]); });
      const float row_height = ImGui::GetTextLineHeight() + 2 * ImGui::GetStyle().CellPadding.y, room = ImGui::GetWindowHeight();
      const float top = row_height * static_cast<float>(found - order.begin());
      if (found != order.end() && (top < ImGui::GetScrollY() || top + 2 * row_height > ImGui::GetScrollY() + room))
        ImGui::SetScrollY(std::max(0.0F, top - room / 2));
    }
    ImGuiListClipper clipper;
    clipper.Begin(static_cast<int>(order.size()));
    while (clipper.Step()) {
      for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
        const TableRow& row = table.rows[order[static_cast<size_t>(i)]];
        ImGui::TableNextRow();
        for (size_t c = 0; c < row.cells.size() && c < table.columns.size(); ++c) {
          ImGui::TableNextColumn();
          const std::string text = one_line(cell_text(row.cells[c], cell_unit(table.columns[c], row)));
          if (c == 0) {
            if (ImGui::Selectable(fmt::format("{}##{}", fitted_name(text, kWidestName * ImGui::GetFontSize()), i).c_str(),
                                  is_chosen(row), ImGuiSelectableFlags_SpanAllColumns))
              select_place(*canvas.state, row.key);
            canvas.names->add_item(fmt::format("table {} row {}", table.name, i));
            if (drawn.name && ImGui::TableNextColumn()) drawn.draw(order[static_cast<size_t>(i)]);
          } else {
            if (table.columns[c].kind == ColumnKind::number) {
              const float room = ImGui::GetContentRegionAvail().x - ImGui::CalcTextSize(text.c_str()).x;
              if (room > 0) ImGui::SetCursorPosX(ImGui::GetCursorPosX() + room);
            }
            ImGui::TextUnformatted(text.c_str());
          }
        }
      }
    }
    ImGui::EndTable();
  }
  if (ImGui::BeginPopupContextItem("table menu")) {
    if (ImGui::MenuItem("Copy as CSV")) ImGui::SetClipboardText(csv_of(table).c_str());
    ImGui::EndPopup();
  }
  if (table.rows_left_out > 0) ImGui::TextDisabled("and %llu more", static_cast<unsigned long long>(table.rows_left_out));
  if (!table.note.empty()) {
    ImGui::PushTextWrapPos(0);
    ImGui::TextDisabled("%s", table.note.c_str());
    ImGui::PopTextWrapPos();
  }
  ImGui::PopID();
}

void show_report(const Canvas& canvas, const Report& report) {
  show_verdict(canvas, report);
  show_facts(canvas, report);
  ImGui::Spacing();
  // Steps of one plot stand under those of another.
  PlotLook look;
  for (const Plot& plot : report.plots)
    if (plot.kind == PlotKind::heatmap)
      look.label_width = std::max(look.label_width, label_width(canvas, plot, nullptr, ImGui::GetContentRegionAvail().x));
  for (const Plot& plot : report.plots) {
    show_plot(canvas, plot, look);
    ImGui::Spacing();
  }
  for (const Table& table : report.tables) {
    show_table(canvas, table);
    ImGui::Spacing();
  }
  if (!report.findings.empty()) show_findings(canvas, report);
}

}  // namespace ulpscope::gui
