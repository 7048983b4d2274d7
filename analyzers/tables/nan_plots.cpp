#include "ulpscope/analyzers/tables/nan_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

// Of a way, and of the operands of an element.
constexpr size_t kMostStops = 10, kMostOperands = 6, kMostHistories = 6;

class WayGraph {
 public:
  WayGraph(const Selection& selection, const std::string& trace, Plot& plot) : selection_(selection), trace_(trace), plot_(plot) {}

  // The place of the stop's node, which is made where it is new.
  size_t place(const NonfiniteStop& stop) {
    const auto [place, is_new] = places_.try_emplace({stop.tensor, stop.position}, plot_.nodes.size());
    if (is_new) {
      const OpInfo& op = selection_.op(stop.tensor);
      plot_.nodes.push_back({selection_.name(stop.tensor),
                             fmt::format("{}, {}, step {}: {} of {} NaN or Inf", op.name, name_of(op.phase), stop.position.step,
                                         stop.nonfinite, stop.count),
                             selection_.key(stop.tensor, stop.position), true});
    }
    return place->second;
  }

  void add(const std::vector<NonfiniteStop>& way, const char* end) {
    std::optional<size_t> before;
    for (size_t i = 0; i < way.size(); ++i) {
      size_t at = 0;
      if (way.size() > kMostStops && i == kMostStops / 2) {
        const size_t left_out = way.size() - kMostStops;
        at = plot_.nodes.size();
        plot_.nodes.push_back({fmt::format("... {} more ...", left_out),
                               fmt::format("`ulpscope nan {} --limit 0` lists them", shell_word(trace_)),
                               {},
                               false});
        i += left_out - 1;
      } else {
        at = place(way[i]);
      }
      if (before) link(*before, at, true);
      before = at;
    }
    if (!before) return;
    plot_.nodes.push_back({end, "", {}, true});
    link(*before, plot_.nodes.size() - 1, true);
  }

  void link(size_t from, size_t to, bool marked) {
    const bool is_there = std::any_of(plot_.links.begin(), plot_.links.end(),
                                      [&](const PlotLink& link) { return link.from == from && link.to == to; });
    if (!is_there) plot_.links.push_back({from, to, marked});
  }

 private:
  const Selection& selection_;
  const std::string& trace_;
  Plot& plot_;
  std::map<std::pair<uint32_t, RowPosition>, size_t> places_;
};

}  // namespace

Plot way_plot(const Selection& selection, const std::string& trace, const NonfiniteOrigin& origin,
              const NonfiniteExplanation& explanation, const NonfiniteWays& ways) {
  Plot plot;
  plot.name = "way";
  plot.title = "Where it came from, and where it went";
  plot.kind = PlotKind::graph;
  plot.only_pictured = true;
  std::vector<size_t> operands;
  if (explanation.capture) {
    const CaptureTree& tree = *explanation.capture;
    for (const CaptureRow* const operand : tree.operands_by_size(tree.element())) {
      if (operands.size() == kMostOperands) break;
      const bool is_known = operand->made_by >= 0;
      const auto tensor = static_cast<uint32_t>(std::max<int64_t>(operand->made_by, 0));
      operands.push_back(plot.nodes.size());
      const std::string value = operand->row.count > 0 ? fmt::format("{} values from {:.9g} to {:.9g}", operand->row.count,
                                                                     operand->row.smallest, operand->row.largest)
                                                       : fmt::format("element {}: {:.9g}", operand->element, operand->value);
      plot.nodes.push_back({is_known ? selection.name(tensor) : "not recorded", value, is_known ? selection.key(tensor) : RowKey{},
                            operand->row.count == 0 && !std::isfinite(operand->value)});  // what is not finite came on that way
    }
  }
  WayGraph graph(selection, trace, plot);
  const std::vector<NonfiniteStop>& any = ways.to_loss.empty() ? ways.to_weights : ways.to_loss;
  const size_t beginning = graph.place(any.empty() ? NonfiniteStop{origin.tensor, origin.position, 0, 0} : any.front());
  PlotNode& node = plot.nodes[beginning];
  if (any.empty()) node.detail = fmt::format("step {}", origin.position.step);
  if (explanation.capture)
    node.detail = fmt::format(
        "element {}: {:.9g}{}; {}", explanation.capture->element().element, explanation.capture->element().value,
        explanation.capture->element().terms > 0 ? fmt::format(", of {} terms", explanation.capture->element().terms) : "",
        node.detail);
  for (const size_t operand : operands) graph.link(operand, beginning, plot.nodes[operand].marked);
  graph.add(ways.to_loss, "the loss");
  graph.add(ways.to_weights, "the weights");
  return plot;
}

Plot headroom_plot(const Selection& selection, std::span<const uint32_t> tensors, std::span<const HeadroomHistory> histories) {
  Plot plot;
  plot.name = "headroom_before";
  plot.title = "Headroom of the tensor and its inputs, before the first NaN or Inf";
  plot.kind = PlotKind::steps;
  plot.only_pictured = true;
  plot.x = {"step", Unit::count};
  plot.y = {"headroom", Unit::bits};
  for (size_t i = 0; i < tensors.size() && plot.series.size() < kMostHistories; ++i) {
    if (histories[i].steps.empty() && !histories[i].last) continue;
    Series& series = plot.series.emplace_back();
    series.name = selection.name(tensors[i]);
    series.key = selection.key(tensors[i]);
    const auto add = [&](const HeadroomHistory::Step& step) {
      series.x.push_back(static_cast<double>(step.step));
      series.y.push_back(step.bits);
    };
    std::for_each(histories[i].steps.begin(), histories[i].steps.end(), add);
    if (histories[i].last) add(*histories[i].last);
  }
  return plot;
}

}  // namespace ulpscope
