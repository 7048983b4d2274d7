// What a device's matrix units are, and what a probe of them came to, as reports.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

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

// Sums as CSV: the names of the columns, and a line of one. Factors, what the sum begins with and the result are encodings of their
// formats in hexadecimal, factors side by side with a space between; TF32 factors are those of FP32.
inline constexpr std::string_view kProbedSumColumns = "instruction,a_format,b_format,output,shows,a,b,c,result\n";
std::string csv_of(const MatrixInstruction& instruction, const ProbedSum& sum);

}  // namespace ulpscope
