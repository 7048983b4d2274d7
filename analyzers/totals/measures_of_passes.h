// The further measures of outputs, by name, in each pass that has them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

namespace ulpscope {

struct AnalysisContext;

using PassKey = std::tuple<uint64_t, uint32_t, uint8_t>;  // step, micro-batch, loss
// Has by tensor, of each pass, the values, one for each name that was asked for, in their order.
using MeasuresOfPasses = std::map<uint32_t, std::map<PassKey, std::vector<std::optional<double>>>>;

// Reads those of the tensors and steps that are looked at, but for negative values and NaN. Throws Error (unreadable).
MeasuresOfPasses measures_of_passes(const AnalysisContext& context, std::initializer_list<std::string_view> names);

}  // namespace ulpscope
