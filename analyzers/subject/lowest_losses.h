// Where the losses of a run were lowest: they vary from batch to batch, so several stand for one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace ulpscope {

// The losses of LowestLosses::kSteps consecutive steps.
struct LossBlock {
  uint64_t first_step = 0;
  double median = 0;
  std::vector<double> losses;  // ascending
};

// Of the blocks of consecutive steps, each with a finite loss, the one with the lowest median. Blocks begin at multiples of kSteps.
class LowestLosses {
 public:
  static constexpr size_t kSteps = 20;

  void add(uint64_t step, double loss);
  void append(const LowestLosses& later);
  const std::optional<LossBlock>& block() const { return lowest_; }

 private:
  void close_if_whole(uint64_t number);
  void keep_ends();
  void keep_lower(const LossBlock& other);

  // The losses of the first and the last block, by its number: what comes before and behind may make them whole.
  std::map<uint64_t, std::vector<double>> open_;
  std::optional<LossBlock> lowest_;
};

}  // namespace ulpscope
