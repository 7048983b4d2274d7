// Pictures of how a NaN or an infinity came about and went on. They show what tables say, so that only pictures have them
// (Plot::only_pictured).
#pragma once

#include <span>
#include <string>

#include "ulpscope/analyzers/judgements/nonfinite_cause.h"
#include "ulpscope/analyzers/judgements/nonfinite_flow.h"
#include "ulpscope/analyzers/totals/headroom.h"

namespace ulpscope {

// `trace`: its path, for what is left out. From what the element was made of to the loss and the weights. Of a long way its
// beginning and its end.
Plot way_plot(const Selection& selection, const std::string& trace, const NonfiniteOrigin& origin,
              const NonfiniteExplanation& explanation, const NonfiniteWays& ways);
// Of the tensor and of what it is made from, over the steps before. Tensors and histories go together.
Plot headroom_plot(const Selection& selection, std::span<const uint32_t> tensors, std::span<const HeadroomHistory> histories);

}  // namespace ulpscope
