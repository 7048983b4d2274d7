// Where the nodes of a graph stand: in rows from the top down, each below all that it comes of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ulpscope/analyzers/report/report.h"

namespace ulpscope {

struct GraphLayout {
  std::vector<size_t> row, column;  // of each node
  std::vector<size_t> in_row;       // nodes, of each row
  size_t columns = 0;               // of the row that has most

  size_t rows() const { return in_row.size(); }
  // Whether a link passes over rows where boxes stand in its way: it is drawn around them, at the left.
  bool goes_around(const PlotLink& link) const {
    return row[link.from] + 1 != row[link.to] && column[link.from] == 0 && column[link.to] == 0;
  }
};

// At most so many links of the plot, those that lead from one of its first `nodes` nodes to another.
std::vector<PlotLink> links_between(const Plot& plot, size_t nodes, size_t most = SIZE_MAX);

// Of the plot's first `nodes` nodes, which the links are between. What is marked stands first in its row, so that the marked path
// runs straight down the left side; other nodes stand below what they come of. Where a layer has more than `most_columns`, it goes
// on in the next row.
GraphLayout graph_layout(const Plot& plot, size_t nodes, std::span<const PlotLink> links, size_t most_columns);

}  // namespace ulpscope
