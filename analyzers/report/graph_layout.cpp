#include "ulpscope/analyzers/report/graph_layout.h"

#include <algorithm>

namespace ulpscope {

std::vector<PlotLink> links_between(const Plot& plot, size_t nodes, size_t most) {
  std::vector<PlotLink> links;
  for (const PlotLink& link : plot.links)
    if (link.from < nodes && link.to < nodes && link.from != link.to && links.size() < most) links.push_back(link);
  return links;
}

GraphLayout graph_layout(const Plot& plot, size_t nodes, std::span<const PlotLink> links, size_t most_columns) {
  // Nodes stand in an order in which links lead onward. One that leads back moves nothing.
  std::vector<std::vector<size_t>> sources(nodes), layers;
  for (const PlotLink& link : links)
    if (link.from < link.to) sources[link.to].push_back(link.from);
  std::vector<size_t> layer(nodes, 0);
  for (size_t node = 0; node < nodes; ++node) {
    for (const size_t from : sources[node]) layer[node] = std::max(layer[node], layer[from] + 1);
    layers.resize(std::max(layers.size(), layer[node] + 1));
    layers[layer[node]].push_back(node);
  }
  GraphLayout layout;
  layout.row.assign(nodes, 0);
  layout.column.assign(nodes, 0);
  for (std::vector<size_t>& of_layer : layers) {
    const auto wanted = [&](size_t node) {
      if (plot.nodes[node].marked) return -1.0;
      if (sources[node].empty()) return 1e9;
      double sum = 0;
      for (const size_t from : sources[node]) sum += static_cast<double>(layout.column[from]);
      return sum / static_cast<double>(sources[node].size());
    };
    std::stable_sort(of_layer.begin(), of_layer.end(), [&](size_t a, size_t b) { return wanted(a) < wanted(b); });
    for (size_t i = 0; i < of_layer.size(); ++i) {
      if (i % std::max<size_t>(1, most_columns) == 0) layout.in_row.push_back(0);
      layout.row[of_layer[i]] = layout.rows() - 1;
      layout.column[of_layer[i]] = layout.in_row.back()++;
      layout.columns = std::max(layout.columns, layout.in_row.back());
    }
  }
  return layout;
}

}  // namespace ulpscope
