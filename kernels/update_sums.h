// What became of an optimizer update, from counts and sums of its blocks: the same on hosts and devices.
#pragma once

#include <cstdint>
#include <functional>

#include "ulpscope/kernels/statistics.h"
#include "ulpscope/kernels/sum_order.h"

namespace ulpscope {

// The sums of an update (UpdateCounts) over a block: term i in lane i mod kSumLanes.
struct UpdateSums {
  enum Sum { weight_squares, update_squares, gradient_dot_update, decay_asked, decay_applied, kSums };
  alignas(64) double lanes[kSums][kSumLanes] = {};
};

// Its numbers of elements.
struct UpdateTallies {
  uint64_t nonzero = 0, lost = 0, lost_to_decay = 0;
};

// Whether a rule adds decay as a term of its own, and whether there is some.
struct DecayTerm {
  bool is_added, is_some;
};

// `sums`: for each of UpdateSums those of all blocks, which are merged in place.
inline void describe_update(OutputRecord& record, const UpdateTallies& tallies, double* sums, int64_t blocks, double learning_rate,
                            DecayTerm decay) {
  const auto sum = [&](UpdateSums::Sum which) {
    double* const of_blocks = sums + which * blocks;
    merge_by_tree(of_blocks, blocks, std::plus<>());
    return blocks == 0 ? 0 : of_blocks[0];
  };
  record.update = {.nonzero = tallies.nonzero,
                   .lost = tallies.lost,
                   .lost_to_decay = tallies.lost_to_decay,
                   .learning_rate = learning_rate,
                   .weight_squares = sum(UpdateSums::weight_squares),
                   .update_squares = sum(UpdateSums::update_squares),
                   .gradient_dot_update = sum(UpdateSums::gradient_dot_update),
                   .decay_known = decay.is_added,
                   .decay_asked = decay.is_some ? sum(UpdateSums::decay_asked) : 0,
                   .decay_applied = decay.is_some ? sum(UpdateSums::decay_applied) : 0};
  record.update_known = true;
}

}  // namespace ulpscope
