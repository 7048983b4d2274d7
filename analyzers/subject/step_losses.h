// The losses of steps. Not every producer tells them: where a row of the step table has none, the rows of the tensors with role
// loss do. Analyses visit the steps through here.
#pragma once

#include <functional>
#include <span>

#include "ulpscope/trace/snapshot.h"

namespace ulpscope {

// Snapshot::visit_steps, with the losses that the step table lacks, as far as the tensors tell them. The loss of a step is the mean
// over its micro-batches, of each the sum over its losses. The loss of a pass is the last tensor of one element with role loss that
// was computed in forward, divided by the loss scale that it contains; one without a loss scale goes before one with it.
void visit_steps_with_losses(const Snapshot& trace, StepRange range, const std::function<bool(std::span<const StepRow>)>& visit);

// Whether the loss of any step is known.
bool knows_a_loss(const Snapshot& trace);

}  // namespace ulpscope
