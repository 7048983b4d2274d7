// Casts, additions and subtractions that lose much of the values that they read, by samples of elements in some of the steps
// (docs/numerics.md, "What casts and additions lose").
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ulpscope {

class RunFacts;

// One output's loss: the median of the passes in which it was measured, of the last half of the run, since a branch that begins
// with zeros grows.
struct ValueLoss {
  // From so much on it is told.
  static constexpr double kFelt = 0.1;

  uint32_t tensor = 0;
  uint64_t first_step = 0;  // in which it was felt
  uint64_t steps = 0;       // that have a measure
  double share = 0;
};

// A sum of two activations, of which the smaller one is lost.
struct AddendLoss {
  // From so much on the sum tells next to nothing of it, and so much of the larger one it has to be for that to matter.
  static constexpr double kHarmful = 0.5, kLeast = 0x1p-11;

  ValueLoss loss;
  double size = 0;  // the sum of its magnitudes over that of the larger one's

  bool is_harmful() const { return loss.share >= kHarmful && size >= kLeast; }
};

// A result that is all but gone, of which another op then takes a root, a logarithm or a quotient.
struct Cancellation {
  ValueLoss loss;       // the share of its elements
  uint32_t reader = 0;  // that op
};

// A cast of whole numbers.
struct WholeNumbersLoss {
  ValueLoss loss;             // the share that it changed
  double merged_pairs = 0;    // of neighbours
  bool makes_angles = false;  // a sine or cosine is taken of them, or of multiples

  bool is_harmful() const { return makes_angles && (loss.share >= ValueLoss::kFelt || merged_pairs >= ValueLoss::kFelt); }
};

// A cast of data.
struct FeaturesLoss {
  ValueLoss loss;                   // the share of the places in a sample at which roundings hide what samples differ by
  std::optional<uint64_t> feature;  // one of them
};

// Each has the largest share first.
struct ValueLosses {
  std::vector<AddendLoss> addends;
  std::vector<Cancellation> cancellations;
  std::vector<WholeNumbersLoss> whole_numbers;
  std::vector<FeaturesLoss> features;
};

// Looks at the steps that are asked for. Throws Error (unreadable).
ValueLosses value_losses_of(const RunFacts& facts);

}  // namespace ulpscope
