// What guessing gives where the loss of a run is that of a classifier.
#pragma once

#include <cmath>
#include <optional>

namespace ulpscope {

struct AnalysisContext;
class RunFacts;

// Of fewer steps nothing is said of what a run learned.
inline constexpr size_t kLeastJudged = 30;

struct Guessing {
  double classes = 0;
  std::optional<double> loss;  // log(classes); nothing where a factor makes another loss of it
  double least = 0;            // what knowing all labels gives: more than 0 where they are smoothed
  double accuracy() const { return 1 / classes; }
};
// Nothing where the loss is another, or the trace does not say how many classes there are.
std::optional<Guessing> guessing_of(const AnalysisContext& context);

// What giving the mean of all targets would have cost where the loss is the mean of squared errors.
struct MeanGuess {
  double mean = 0;                              // of the targets of the steps that are judged
  double loss = 0;                              // of the last steps, with it
  double run_loss = 0;                          // the mean loss of the run in these
  size_t steps = 0;                             // as many of them
  double median_loss = 0, median_variance = 0;  // of the run, and of the targets within each step, in these

  // The run did hardly better: its batches are the same. Nor did it in most of them, of which a few may decide the mean: no number
  // costs less in a step than its own mean, the variance.
  bool is_not_beaten() const { return loss > 0 && run_loss >= 0.98 * loss && median_loss >= 0.98 * median_variance; }
  // By a hundred in their deviation, or by three of these, where that is more than outputs begin with: a model, whose outputs begin
  // near 0, has to get there first.
  bool lies_far() const { return (mean * mean > 10 * loss && std::abs(mean) > 3) || loss > 1e4; }
};
// Nothing where the loss is another, is multiplied by a factor, or the targets' statistics were not recorded.
std::optional<MeanGuess> mean_guess_of(const RunFacts& facts);

}  // namespace ulpscope
