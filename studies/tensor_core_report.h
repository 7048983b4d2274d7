// What a device's matrix units are, and what a probe of them came to, as reports.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/studies/tensor_core_probe.h"

namespace ulpscope {

struct DescribedDevice {
  std::string name, description;  // "cuda:1", and what its backend says of it
  std::string gpu;                // as tensor_core_gpus() names it; "": none of these
};

// With the rows of the table for its instructions.
Report describe_device(const DescribedDevice& device);

// True iff the GPU's own rows explain every instruction that was probed, and one was.
bool is_explained(std::span<const ProbedInstruction> probed);
// `limit`: rows of a table of terms, 0: all.
Report describe_probe(const DescribedDevice& device, std::span<const ProbedInstruction> probed, size_t limit);

}  // namespace ulpscope
