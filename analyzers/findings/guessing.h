// What guessing gives where the loss of a run is that of a classifier.
#pragma once

#include <optional>

namespace ulpscope {

struct AnalysisContext;
class RunFacts;

namespace findings {

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
  double mean = 0;      // of the targets of the steps that are judged
  double loss = 0;      // of the last steps, with it
  double run_loss = 0;  // the mean loss of the run in these
  size_t steps = 0;     // as many of them
};
// Nothing where the loss is another, is multiplied by a factor, or the targets' statistics were not recorded.
std::optional<MeanGuess> mean_guess_of(const RunFacts& facts);

}  // namespace findings
}  // namespace ulpscope
