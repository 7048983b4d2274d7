// How large the numbers are that a model is trained on.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ulpscope {

class RunFacts;

struct DataMoments {
  uint32_t tensor;
  double mean = 0, mean_square = 0;
  bool is_target = false;  // a loss reads it as what a model is to give

  double deviation() const;
  bool is_constant() const;  // all elements are the same number, as far as sums of FP32 numbers in FP64 tell
  // By a factor of 30: standardized numbers are near 1, as are pixels between 0 and 1, and bytes between 0 and 255 are not.
  bool is_far_from_1() const;
};

// The inputs of training that are floating-point numbers, over the steps before the run broke; nullopt: statistics of one of them
// were not recorded, or were not finite.
std::optional<std::vector<DataMoments>> input_moments(const RunFacts& facts);

}  // namespace ulpscope
