// The table of plain twins, by op.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/kernels/bounds.h"
#include "ulpscope/kernels/op_call.h"

namespace ulpscope::plain {

// A row of the table of twins.
struct Twin {
  std::string_view op;
  void (*in_float)(const OpCall&);
  void (*in_double)(const OpCall&);
  ElementCapture (*capture)(const OpCall&, int slot, int64_t e);
  std::vector<ElementBound> (*bounds)(const OpCall&, int slot, std::span<const int64_t> elements, std::string* formula);
};
// The row of the call's op; an internal error where there is none.
const Twin& twin_of(const OpCall& call);

std::vector<Twin> elementwise_twins();
std::vector<Twin> reduction_twins();
std::vector<Twin> product_twins();
std::vector<Twin> window_twins();
std::vector<Twin> normalization_twins();
std::vector<Twin> row_twins();
std::vector<Twin> indexing_twins();
std::vector<Twin> loss_twins();
std::vector<Twin> quantization_twins();
std::vector<Twin> training_twins();

}  // namespace ulpscope::plain
