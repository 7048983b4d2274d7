// What the parts of the HTML renderer share: text that is safe, room that is left, and where each part begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/analyzers/report/report.h"

namespace ulpscope {

// Bytes of a text that are shown, of one name, and of one or more sentences. What is longer ends in an ellipsis.
constexpr size_t kMostNameBytes = 300, kMostSentenceBytes = 3000;

// The text as it may stand in HTML, between tags and inside quoted attributes: what has a meaning there is written as a character
// reference, control characters as the text renderer writes them, and what is no character as U+FFFD.
std::string html_text(std::string_view text, size_t most_bytes = kMostNameBytes);
// Of sentences: what stands between two grave accents is a command.
std::string html_sentence(std::string_view text);

// The bytes that a part of the document may still take.
class HtmlRoom {
 public:
  explicit HtmlRoom(size_t bytes) : left_(bytes) {}
  // False where they are not left. Once that was so, smaller pieces find no room either: what is left out is the end.
  bool take(size_t bytes);

 private:
  size_t left_;
};

// "and 12 more: `--limit 0 --json` has all", or "".
std::string html_left_out(uint64_t count, std::string_view noun);

// "and 12 more lines that are not drawn", or "".
std::string html_not_drawn(uint64_t count, std::string_view noun);

// A table as a card. `number` tells it apart in the document.
std::string table_html(const Table& table, size_t number, HtmlRoom& room);

// A plot as a card, or where there is no room for it a card that says so.
std::string plot_html(const Plot& plot, size_t number, HtmlRoom& room);

// What is in such a card, by the kind of the plot.
std::string steps_html(const Plot& plot);
std::string histogram_html(const Plot& plot);
std::string heatmap_html(const Plot& plot);
std::string graph_html(const Plot& plot, size_t number);

// A place of an axis, as a share of its length, and what is written there.
struct AxisTick {
  double place = 0;
  std::string text;
};
// The first tick says what the axis is of: "step 0".
void name_axis(std::span<AxisTick> ticks, const Axis& axis);
// Words below a plot, or in two lines where `is_staggered`, so that neighbours do not touch.
std::string axis_html(std::span<const AxisTick> ticks, bool is_staggered = false);
// Marks of a plot, drawn over an area of x from `first` to `end`, and the list of them below it.
std::string mark_shapes_html(const Plot& plot, double first, double end);
std::string mark_list_html(const Plot& plot);

// Lines of a plot that each have a name: the first few, and the others where they are asked for. `what` are its lines: "tensors".
std::string named_lines_html(std::span<const std::string> names, std::span<const std::string> lines, size_t shown);

std::string_view html_style();
std::string_view html_script();

}  // namespace ulpscope
