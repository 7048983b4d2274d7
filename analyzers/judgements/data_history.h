// The numbers that a model is trained on, in a run that may grow: a few for each batch.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace ulpscope {

struct AnalysisContext;
class Selection;

// Whether a tensor is of floating-point numbers that come in for training: features, targets that are no labels, masks.
bool is_training_data(const Selection& selection, uint32_t tensor);

struct DataRow {
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  bool has_values = false;  // the sums and the largest magnitude are known
  uint64_t count = 0, nonfinite = 0;
  double largest = 0, sum = 0, sum_of_squares = 0;
};

// Rows of tensors, of which each is read once.
class DataHistory {
 public:
  // The rows of all steps, in order. `context`: of the same trace each time, which may have grown by rows of the same tensors. What
  // is given changes with the next call for the same tensor and rank.
  const std::vector<DataRow>& rows(const AnalysisContext& context, uint32_t tensor, int rank);

 private:
  std::map<std::pair<uint32_t, int>, std::vector<DataRow>> rows_;
};

}  // namespace ulpscope
