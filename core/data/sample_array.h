// Arrays of numbers in files, whose first dimension counts samples, and the data set that two of them make. Neither is held in
// memory: samples are read in blocks, of which as many stay as the loader shuffles with each other.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/core/data/dataset.h"

namespace ulpscope {

class SampleArray {
 public:
  virtual ~SampleArray() = default;
  virtual const std::string& name() const = 0;            // what messages begin with: the file, and what in it
  virtual const std::vector<int64_t>& shape() const = 0;  // at least one extent
  virtual int64_t chunk() const { return 1; }             // samples that are stored as one piece
  // The file, what in it, and where sample 0 of the array is; {}: not known. The part and how many samples there are follow from
  // the data set.
  virtual SourceInfo source() const { return {}; }
  // Samples [first, first + count), row-major.
  virtual void read(int64_t first, int64_t count, double* values) const = 0;
};

struct ArrayPair {
  std::shared_ptr<const SampleArray> inputs, targets;
};

// Whether a number of a file is a whole one in [0, limit).
inline bool is_index(double value, int64_t limit) {
  return value >= 0 && value < static_cast<double>(limit) && value == std::floor(value);
}

// The labels that data may have: the classes, and one that the loss ignores.
struct LabelRange {
  int64_t classes = 0;
  std::optional<int64_t> ignored;

  bool contains(double label) const { return is_index(label, classes) || (ignored && label == static_cast<double>(*ignored)); }
  std::string text() const;  // "0 to 9 for 10 classes (data.classes), or -100 (loss.ignore_index)"
};

// The splits of a data set in files. Without `test`, data.test_share of the training samples, those at the end, are the test split.
// Throws Error (unreadable) where arrays do not fit each other or a label is no class.
DataSplits open_arrays(const DataSettings& settings, const DataUse& use, ArrayPair train, ArrayPair test);

}  // namespace ulpscope
