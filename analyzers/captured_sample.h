// Which sample of a batch an element is of that was captured.
#pragma once

#include <cstdint>
#include <string>

#include "ulpscope/trace/snapshot.h"

namespace ulpscope {

// "element 3 of sample 77 of train: inputs in x.npy, row 77 (from 0)" of an element of the batch `tensor`, whose first dimension
// counts samples; "" where it has no place or shape, or no such sample was recorded.
std::string sample_of(const Snapshot& of_rank, uint32_t tensor, const CaptureRow& node);

}  // namespace ulpscope
