// What guessing gives where the loss of a run is that of a classifier.
#pragma once

#include <optional>

namespace ulpscope {

struct AnalysisContext;

namespace findings {

struct Guessing {
  double classes = 0;
  std::optional<double> loss;  // log(classes); nothing where a factor makes another loss of it
  double least = 0;            // what knowing all labels gives: more than 0 where they are smoothed
  double accuracy() const { return 1 / classes; }
};
// Nothing where the loss is another, or the trace does not say how many classes there are.
std::optional<Guessing> guessing_of(const AnalysisContext& context);

}  // namespace findings
}  // namespace ulpscope
