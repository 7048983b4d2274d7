// Phrases on which tensor something is said of, and on which formats.
#pragma once

#include <cstdint>
#include <span>

#include "ulpscope/analyzers/report/sentence.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

class RunFacts;

namespace findings {

// "the gradient of `head` (linear)", "the gradient of `head.weight`", "`head` (linear) in evaluation", "`inputs`": without the
// type, and where module and op do not make the tensor's name, that name.
Sentence tensor_place(const RunFacts& facts, uint32_t tensor);
// The types of the tensors, each once: "FP16", "FP16 and BF16".
Value formats_of(const RunFacts& facts, std::span<const uint32_t> tensors);
// The same with their largest numbers: "FP16 65,504", "E4M3 448 and E5M2 57,344".
Value maxima_of(const RunFacts& facts, std::span<const uint32_t> tensors);
// The modes in which their ops round, each once: "rz".
Value rounding_modes(const RunFacts& facts, std::span<const uint32_t> tensors);

}  // namespace findings
}  // namespace ulpscope
