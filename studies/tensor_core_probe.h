// Which row of the table of matrix units (emulation/tensor_core.h) explains what a device's give: sums of FP16, BF16 and TF32
// products are computed there and compared with what each row predicts, bit for bit.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ulpscope/emulation/tensor_core.h"
#include "ulpscope/kernels/backend.h"
#include "ulpscope/studies/tensor_core_vectors.h"

namespace ulpscope {

// A sum that is not what a row predicts.
struct ProbedDifference {
  std::string_view shows;  // what it was made to show; "": it is random
  std::vector<uint32_t> a, b;
  uint32_t result = 0, predicted = 0;  // FP32 encodings
};

// Rows of equal numbers give the same sums.
struct ProbedBehaviour {
  TensorCore core;                            // the first of these rows
  std::vector<std::string_view> generations;  // that they belong to
  bool is_own = false;                        // one of them is the GPU's own
  uint64_t made_differ = 0, random_differ = 0;
  std::optional<ProbedDifference> first = {};

  bool explains() const { return made_differ == 0 && random_differ == 0; }
};

// Of the sums that are made to show one thing.
struct ShownCount {
  std::string_view shows;
  uint64_t sums = 0, differ = 0;  // from what the GPU's own row predicts
};

struct ProbedFamily {
  const ProbedFactors* factors;
  // The GPU's matrix units do not multiply such factors, as the table has it, and none are probed: what follows is empty.
  bool is_missing = false;
  uint64_t made = 0, random = 0;  // sums
  std::vector<ProbedBehaviour> behaviours = {};
  std::vector<ShownCount> shown = {};

  const ProbedBehaviour& own() const;
  // With the fewest results that differ; the GPU's own before others.
  const ProbedBehaviour& closest() const;
};

// FP32 rows of mma, wgmma and tcgen05 that multiply such factors by an instruction of their own, rows of equal numbers together;
// `gpu`: whose own ones are marked, with mma.
std::vector<ProbedBehaviour> behaviours_of(const FloatFormat& factors, std::string_view gpu);

// `gpu`: whose matrix units the device has, as tensor_core_gpus() names it. `random`: sums for each kind of factors, beside those
// that are made. Throws what the device throws.
std::vector<ProbedFamily> probe_tensor_cores(Backend& device, std::string_view gpu, uint64_t random, uint64_t seed = 0);

}  // namespace ulpscope
