// What casts, additions and subtractions lost of the values that they read, by samples of elements in some of the steps
// (docs/numerics.md, "What casts and additions lose").
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ulpscope {

class RunFacts;

// What one output lost, the median of the passes in which it was measured.
struct ValueLoss {
  // From so much on it is told.
  static constexpr double kFelt = 0.1;

  uint32_t tensor = 0;
  uint64_t first_step = 0;  // in which it was felt
  uint64_t steps = 0;       // that have a measure
  double share = 0;
};

// A result that is all but gone, of which another op then takes a root, a logarithm or a quotient.
struct Cancellation {
  ValueLoss loss;       // the share of its elements
  uint32_t reader = 0;  // that op
};

// A cast of whole numbers.
struct WholeNumbersLoss {
  ValueLoss loss;           // the share that it changed
  double merged_pairs = 0;  // of neighbours that differ
};

// A cast of data.
struct FeaturesLoss {
  ValueLoss loss;  // the share of the places in a sample at which samples became equal
  uint64_t first_feature = 0;
};

// The largest share first.
struct ValueLosses {
  std::vector<ValueLoss> addends;  // of sums of two activations
  std::vector<Cancellation> cancellations;
  std::vector<WholeNumbersLoss> whole_numbers;
  std::vector<FeaturesLoss> features;
};

// In the steps that are asked for. Throws Error (unreadable).
ValueLosses value_losses_of(const RunFacts& facts);

}  // namespace ulpscope
