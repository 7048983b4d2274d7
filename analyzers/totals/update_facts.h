// Adds up what the tables `parameters` and `sums` say: which updates were lost, what became of weight decay, how large updates are
// beside the weights that they change, and what arrived of what was added to running sums.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

struct CountedUpdates {
  uint64_t nonzero = 0, lost = 0, lost_to_decay = 0;

  CountedUpdates& operator+=(const CountedUpdates& other);
};

// Of one weight.
struct UpdateTotals {
  // The share of the weight decay that has to arrive in the stored weights.
  static constexpr double kDecayLimit = 0.5;

  uint64_t rows = 0;
  CountedUpdates all, missed;                 // missed: of steps that were not fitted
  double decay_asked = 0, decay_applied = 0;  // of rows in which they are known
  // The first steps in which more than half was lost, those that were fitted left out, and of which rank.
  std::optional<RowPosition> first_lost = {};
  std::optional<uint64_t> first_decay_lost = {};

  void append(const UpdateTotals& later);
  void beside(const UpdateTotals& other) { append(other); }
};

// Tells what became of one running sum.
struct SumTotals {
  // The share of what is added that may be lost, and of the sum.
  static constexpr double kMostLost = 0.1;

  uint64_t additions = 0;
  SumCounts counts = {};                    // their magnitude is that of the last step
  double sums = 0, largest = 0;             // of the magnitudes of all steps, and the largest of them
  std::optional<uint64_t> first_lost = {};  // the first step in which the limit was reached

  // A sum that rounding carries further than was asked lost nothing.
  double lost() const { return std::max(0.0, counts.asked - counts.arrived); }
  double lost_share() const { return counts.asked > 0 ? lost() / counts.asked : 0; }
  void append(const SumTotals& later);
  void beside(const SumTotals& other) { append(other); }
};

// |d| / |w|, of a weight of two dimensions or more: biases may begin at zero. Nothing of others, of a weight that is zero, and
// where a norm is not known or infinite.
std::optional<double> update_over_weight(const ParameterRow& row, const TensorInfo& weight);

// The largest of one step.
struct UpdateRatio {
  uint64_t step = 0;
  uint32_t tensor = 0;
  double ratio = 0;
  int rank = 0;
  bool operator==(const UpdateRatio&) const = default;
};

struct RunUpdates {
  // Nothing of a weight is left in one that was changed by more than itself. Of 49 runs it was reached, by a factor of 5 and more,
  // in the three whose learning rate no format could have borne; all others stayed below 0.13.
  static constexpr double kLarge = 1;

  PerTensor<UpdateTotals> weights;  // and running averages of weights
  PerTensor<SumTotals> running_sums;
  std::optional<UpdateRatio> first_large;  // of the first step in which it was kLarge or more
  uint64_t large_steps = 0;                // in which it was
  std::optional<UpdateRatio> longest;      // of all steps

  // The second update of a weight that began with zeros is as large as the weight once, and no harm.
  bool has_large() const { return first_large && (large_steps > 1 || longest->ratio > 1.5 * kLarge); }

  void append(const RunUpdates& later);
  void beside(const RunUpdates& other);
};

class UpdateFacts {
 public:
  void begin(const AnalysisContext& context);
  void update(const Block& block);
  void merge(UpdateFacts&& other) { updates_.merge(std::move(other.updates_)); }
  TablesRead reads() const { return {.rows = false, .histograms = false, .parameters = true, .sums = true}; }
  const ByRank<RunUpdates>& updates() const { return updates_; }

 private:
  uint32_t sum_of(uint32_t tensor) const;
  void add_sums(const Block& block, RunUpdates& run);

  const AnalysisContext* context_ = nullptr;
  std::map<std::pair<std::string, DType>, uint32_t> gradient_sums_;  // the first tensor, by parameter and type
  ByRank<RunUpdates> updates_;
};

}  // namespace ulpscope
