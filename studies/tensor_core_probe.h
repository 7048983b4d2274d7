// Which row of the table of matrix units (emulation/tensor_core.h) explains what a device's give: sums of products are computed
// there, one instruction at a time, and compared with what each row predicts, bit for bit.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/emulation/tensor_core.h"
#include "ulpscope/kernels/matrix_instructions.h"
#include "ulpscope/studies/tensor_core_vectors.h"

namespace ulpscope {

// A sum that is not what a row predicts. Results and what the sum begins with are encodings of the sums' type.
struct ProbedDifference {
  std::string_view shows;  // what it was made to show; "": it is random
  std::vector<uint32_t> a, b;
  uint32_t c = 0, result = 0, predicted = 0;
};

// Rows of equal numbers give the same sums.
struct ProbedBehaviour {
  TensorCore core;                // the first of these rows
  std::vector<std::string> rows;  // "hopper wgmma"; mma is not named
  bool is_own = false;            // one of them is the GPU's own, of the instruction
  uint64_t made_differ = 0;       // of all made sums
  // Random sums that were compared: with the GPU's own row all, with others the first ones, and those where that is not what came
  // back and what lies beside them.
  uint64_t random = 0, random_differ = 0;
  std::optional<ProbedDifference> first = {};

  bool explains() const { return made_differ == 0 && random_differ == 0; }
};

// Of the sums that are made to show one thing.
struct ShownCount {
  std::string_view shows;
  uint64_t sums = 0, differ = 0;  // from what the GPU's own row predicts
};

struct ProbedInstruction {
  MatrixInstruction instruction;
  // The table has a row of it for the GPU, but the device no kernel: what follows is empty.
  bool is_missing = false;
  uint64_t made = 0, random = 0;  // sums
  std::vector<ProbedBehaviour> behaviours = {};
  std::vector<ShownCount> shown = {};

  const ProbedBehaviour& own() const;
  // Of which the fewest made sums differ, then the smallest share of random ones, and of such the GPU's own.
  const ProbedBehaviour& closest() const;
};

// "rz-fp32": how sums become results.
std::string conversion_of(const TensorCoreModel& model);
// In what `model` adds otherwise than `other`, "zero exponent -133 instead of -132"; nothing: they give the same sums.
std::vector<std::string> differences_of(const TensorCoreModel& model, const TensorCoreModel& other);

// Rows that have such factors and results, without scales, rows of equal numbers together; those of the instruction's family and
// of `gpu` are marked.
std::vector<ProbedBehaviour> behaviours_of(const MatrixInstruction& instruction, std::string_view gpu);

// A sum and what came back of it, as encodings. What they point to is gone after the call that is given it.
struct ProbedSum {
  std::string_view shows;          // what it was made to show; "": it is random
  std::span<const uint32_t> a, b;  // factors of the instruction's types
  uint32_t c = 0, result = 0;      // of the type of the sums
};
struct ProbeObserver {
  std::function<void(double share)> progress;                           // called with how much is done
  std::function<void(const MatrixInstruction&, const ProbedSum&)> sum;  // called with each sum
};

// `gpu`: whose matrix units the device has, as tensor_core_gpus() names it. `random`: sums for each instruction, beside those
// that are made. Throws what the device and the observer throw.
std::vector<ProbedInstruction> probe_tensor_cores(MatrixInstructions& device, std::string_view gpu, uint64_t random,
                                                  uint64_t seed = 0, const ProbeObserver& observer = {});

}  // namespace ulpscope
