// How NaN and infinities went from op to op: along the recorded edges, in order of execution, through weights and optimizer states
// from step to step, and through collective ops from rank to rank.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope {

// A row in which NaN and infinities began.
struct NonfiniteOrigin {
  uint32_t tensor = 0;
  RowPosition position;
  uint64_t overflowed = 0;              // finite values that became infinite when they were rounded
  std::optional<uint32_t> filled = {};  // the tensor whose infinities, put there on purpose, became NaN here
};

// What NaN and infinities have to get to in order to do the harm that a run is judged by.
struct NonfiniteHarm {
  bool loss = false, weights = false, gradients = false;  // weights, states and running statistics; gradients of parameters
  uint64_t from = 0;                                      // before this step nothing that came of a skipped step did any
  bool operator==(const NonfiniteHarm&) const = default;
};

// A tensor that held NaN or infinities which came from nothing that its op read, as far as that was recorded. In a graph without
// edges all that comes after such a tensor in a step came from it.
struct NonfiniteBeginning {
  uint32_t tensor = 0;
  RowPosition first;
  uint64_t rows = 0;
  uint64_t nan = 0, infinities = 0;  // in these rows
  uint64_t overflowed = 0;           // in the first, as in NonfiniteOrigin
  uint64_t skipped = 0;              // of the rows, those of steps that were skipped
  uint64_t last_step = 0;
  std::optional<uint64_t> loss, weights;  // the steps in which they first reached a loss, and what is kept (is_kept)
  // Finite rows with zeros of an op that divides and read infinities: x / infinity is 0, whatever x and the overflowed value were.
  struct Zeros {
    uint32_t tensor = 0;  // of the first
    uint64_t steps = 0, last_step = 0;
    NonfiniteOrigin origin = {};  // what the first of them came from
  } zeros;
  std::optional<NonfiniteOrigin> statistic;  // the row of a running statistic that it first reached
  std::optional<NonfiniteOrigin> harmed;     // what the first harm came from
  std::optional<NonfiniteOrigin> of_loss;    // what the first loss that it reached came from
};
// What updates are made from: other gradients may hold what a mask takes away.
bool is_gradient_of_parameters(Role role);
// Whether an op divides by what it reads.
bool divides(OpFunction function);
// All of a run, by when they first began in the steps that are asked for. Of tensors that are. `is_mask`: tensors in which
// infinities alone are no fault; empty: none.
std::vector<NonfiniteBeginning> find_beginnings(const AnalysisContext& context, const NonfiniteHarm& harm = {},
                                                const std::vector<bool>& is_mask = {});

// It finds these in a run that grows, each time it is asked: it reads what is new where the question is the same, and all of it
// where ranks exchange values.
class FollowedBeginnings {
 public:
  FollowedBeginnings();
  FollowedBeginnings(FollowedBeginnings&&) noexcept;
  FollowedBeginnings& operator=(FollowedBeginnings&&) noexcept;
  ~FollowedBeginnings();
  // `context`: of the same trace and options each time; it may have grown by rows of the same tensors.
  std::vector<NonfiniteBeginning> find(const AnalysisContext& context, const NonfiniteHarm& harm, const std::vector<bool>& is_mask);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A tensor on the way of what began in another.
struct NonfiniteStop {
  uint32_t tensor = 0;
  RowPosition position;
  uint64_t nonfinite = 0, count = 0;  // elements
};
struct NonfiniteWays {
  std::vector<NonfiniteStop> to_loss, to_weights;  // from the beginning on, both ends included; empty: it did not get there
};
// From a beginning, in its step and the next that was recorded, on its rank.
NonfiniteWays ways_from(const AnalysisContext& context, uint32_t tensor, const RowPosition& position);

}  // namespace ulpscope
