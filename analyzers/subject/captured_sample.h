// Which sample of a batch an element is of that was captured.
#pragma once

#include <cstdint>
#include <string>

#include "ulpscope/trace/snapshot.h"
#include "ulpscope/trace/sources.h"

namespace ulpscope {

// As sentences have a sample: "sample 77 of train (inputs in x.npy, row 77, counted from 0)".
std::string sample_text(const FoundSample& sample);

// Whether what a source gave is of the batch whose samples were recorded, as far as the trace says: noise is not.
bool is_of_batch(const OpInfo& source);

// "element 3 of sample 77 of train (inputs in x.npy, row 77, counted from 0)" of an element of the batch `tensor`. `node`: the
// batch's own, or an operand, which may be a view of the batch: its shape has to be one that no slice has, and no permutation of
// the samples. "" where that is not sure, as where the samples lie in another order, where the element or its shape is not known,
// and where the samples of the batch were not recorded.
std::string sample_of(const Snapshot& of_rank, uint32_t tensor, const CaptureRow& node);

}  // namespace ulpscope
