// Tensors against steps, coloured by a quantity that is chosen; under them the exponents of the selected one against the limits of
// a format.
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_stdlib.h>

#include <algorithm>
#include <optional>

#include "ulpscope/analyzers/history/scale_shares.h"
#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/gui/plots.h"
#include "ulpscope/gui/views/view.h"

namespace ulpscope::gui {

namespace {

// Why the map is empty, and what to do about it.
std::string lack_of_values(const ViewState& state) {
  if (!state.filter.empty()) return "No tensor that passes the filter has a value of it here.";
  const bool is_of_rounding = state.quantity == Measured::flushed || state.quantity == Measured::subnormal ||
                              state.quantity == Measured::overflowed || state.quantity == Measured::rescued;
  return is_of_rounding ? "Nothing was rounded to 16 or 8 bits here: choose another quantity, as headroom."
                        : "No tensor of the trace has a value of it here.";
}

class Ranges : public ViewPanel {
 public:
  void show(const Canvas& canvas, const Results& results) override {
    ViewState& state = *canvas.state;
    const float em = ImGui::GetFontSize();
    ImGui::SetNextItemWidth(11 * em);
    if (ImGui::BeginCombo("##quantity", ulpscope::name_of(state.quantity))) {
      for (int i = 0; i < kMeasured; ++i) {
        const auto quantity = static_cast<Measured>(i);
        if (ImGui::Selectable(ulpscope::name_of(quantity), quantity == state.quantity)) state.quantity = quantity;
      }
      ImGui::EndCombo();
    }
    canvas.names->add_item("quantity");
    go_on_beside(ImGui::GetFrameHeight(), "worst first");
    bool is_worst = state.order == TensorOrder::worst;
    if (ImGui::Checkbox("worst first", &is_worst)) state.order = is_worst ? TensorOrder::worst : TensorOrder::execution;
    canvas.names->add_item("worst first");
    go_on_beside(ImGui::GetFrameHeight(), "in modules");
    bool in_modules = !state.is_flat;
    if (ImGui::Checkbox("in modules", &in_modules)) state.is_flat = !in_modules;
    canvas.names->add_item("in modules");
    go_on_beside(14 * em);
    ImGui::SetNextItemWidth(14 * em);
    take_field_keys(canvas);
    ImGui::InputTextWithHint("##filter", "filter, as *.weight gradient*", &state.filter);
    canvas.names->add_item("filter");
    go_on_beside(ImGui::GetFrameHeight(), "without the loss scale");
    ImGui::Checkbox("without the loss scale", &state.is_true);
    canvas.names->add_item("true");
    go_on_beside(8 * em, "limits");
    ImGui::SetNextItemWidth(8 * em);
    if (ImGui::BeginCombo("limits", state.format.empty() ? "its own" : state.format.c_str())) {
      if (ImGui::Selectable("its own", state.format.empty())) state.format.clear();
      for (const FloatFormat* format : kFormats) {
        const std::string name(format->name);
        if (ImGui::Selectable(name.c_str(), state.format == name)) state.format = name;
      }
      ImGui::EndCombo();
    }
    canvas.names->add_item("limits");
    if (!results.is_coarse) show_scale(canvas);
    if (results.is_coarse && (state.quantity == Measured::headroom || state.quantity == Measured::largest_exponent))
      say("Recorded without histograms: record with --record stats to see magnitudes.");
    if (results.is_coarse && state.scale) say("Recorded without histograms: record with --record stats to try another loss scale.");
    if (!has_steps(results)) return;
    const float room = ImGui::GetContentRegionAvail().y;
    if (is_there(results.matrix, results, "the tensors")) {
      if (results.matrix->series.empty())
        say(lack_of_values(state).c_str());
      else
        show_matrix(canvas, results, state.tensor.empty() ? room - 3 * ImGui::GetTextLineHeightWithSpacing() : room * 0.5F);
    }
    if (state.tensor.empty()) {
      if (results.matrix && !results.matrix->series.empty()) say("Click a tensor to see its exponents.");
      return;
    }
    if (results.is_coarse) {
      say("Recorded without histograms: record with --record stats to see exponents.");
      return;
    }
    show_shares(canvas, results);
    if (!is_there(results.exponents, results, "its histograms")) return;
    // At the scale 2^k a value v is rounded as v 2^k: its limits lie k binades lower.
    show_plot(canvas, *results.exponents,
              {.height = std::max(9 * em, ImGui::GetContentRegionAvail().y - em / 2),
               .label_width = labels(canvas, results),
               .raised_limits = -state.scale.value_or(0)});
  }

 private:
  // At the scale that is tried, which is looked up, or as recorded.
  static const Plot& shown_matrix(const Canvas& canvas, const Results& results) {
    const ViewState& state = *canvas.state;
    if (!follows_scale(state, results)) return *results.matrix;
    return canvas.kept->get<Plot>("matrix at a scale", results.scaled.get(), fmt::format("{}", *state.scale),
                                  [&](uint64_t) { return results.scaled->at(*state.scale); });
  }

  // Both plots have their steps under one another.
  static float labels(const Canvas& canvas, const Results& results) {
    const float room = ImGui::GetContentRegionAvail().x;
    float width = 0;
    if (results.matrix && !results.matrix->series.empty())
      width = label_width(canvas, shown_matrix(canvas, results), results.matrix_rows.get(), room);
    if (!canvas.state->tensor.empty() && results.exponents)
      width = std::max(width, label_width(canvas, *results.exponents, nullptr, room));
    return width;
  }

  static void show_matrix(const Canvas& canvas, const Results& results, float height) {
    PlotLook look{.height = height, .label_width = labels(canvas, results)};
    if (results.matrix_rows) {
      look.tree = results.matrix_rows.get();
      look.row_of_selected =
          canvas.kept->get<std::optional<size_t>>("row of the selected tensor", look.tree, canvas.state->tensor,
                                                  [&](uint64_t) { return folded_row_of(results, canvas.state->tensor); });
    }
    show_plot(canvas, shown_matrix(canvas, results), look);
  }

  static void show_scale(const Canvas& canvas) {
    ViewState& state = *canvas.state;
    constexpr const char* kLabel = "what if the loss scale had been";
    const float slider = 18 * ImGui::GetFontSize();
    bool is_tried = state.scale.has_value();
    go_on_beside(ImGui::GetFrameHeight() + (is_tried ? slider + ImGui::GetStyle().ItemSpacing.x : 0), kLabel);
    if (ImGui::Checkbox(kLabel, &is_tried)) state.scale = is_tried ? std::optional(12) : std::nullopt;
    canvas.names->add_item("try scale");
    if (!state.scale) return;
    go_on_beside(slider, "2^-24");
    int k = *state.scale;
    ImGui::SetNextItemWidth(slider);
    // The number stands beside the slider, whose handle would cover it.
    if (ImGui::SliderInt(fmt::format("2^{}###scale", k).c_str(), &k, kLeastScale, kLargestScale, ""))
      state.scale = std::clamp(k, kLeastScale, kLargestScale);
    canvas.names->add_item("scale");
  }

  // Of the selected tensor, at the scale that is tried.
  static void show_shares(const Canvas& canvas, const Results& results) {
    const ViewState& state = *canvas.state;
    if (!state.scale) return;
    if (!is_there(results.scales, results, "what that takes")) return;
    if (results.scales->rows.empty()) {
      say(results.scales->note.c_str());
      return;
    }
    const TableRow& row = results.scales->rows.at(static_cast<size_t>(*state.scale - kLeastScale));
    std::string text = fmt::format("{} at 2^{}: ", results.scales->title, *state.scale);
    for (size_t i = 1; i < row.cells.size(); ++i) {
      const Column& column = results.scales->columns[i];
      text += fmt::format("{}{} {}", i > 1 ? ", " : "", column.name, cell_text(row.cells[i], column.unit));
    }
    ImGui::TextUnformatted(text.c_str());
    canvas.names->add_item("scale shares");
  }
};

}  // namespace

std::unique_ptr<ViewPanel> make_ranges() { return std::make_unique<Ranges>(); }

}  // namespace ulpscope::gui
