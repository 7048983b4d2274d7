// How far the numbers of one array are from those of another, and which of them is nearer to exact ones: of dumps that any program
// made, as of two versions of a kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ulpscope/analyzers/report/report.h"
#include "ulpscope/core/data/npy_file.h"
#include "ulpscope/emulation/format.h"

namespace ulpscope {

// The numbers of a file of numpy.save, in C order.
class NumberArray {
 public:
  // `encodings`: the format of bytes that NumPy has no type for, and of unsigned integers; nullptr where nobody said. Throws Error
  // (unreadable) for what open_npy_file refuses, and for other types of numbers.
  NumberArray(const std::string& path, const FloatFormat* encodings);

  const std::string& path() const { return path_; }
  const FloatFormat& format() const { return *format_; }
  const std::vector<int64_t>& shape() const { return file_.shape; }
  size_t size() const { return size_; }
  // The numbers from `first` on, which FP64 holds.
  void read(size_t first, std::span<double> numbers) const;

 private:
  std::string path_;
  NpyFile file_;
  const FloatFormat* format_ = nullptr;
  size_t bytes_ = 0, size_ = 1;
  bool reversed_ = false;
};

struct ArrayDifferenceOptions {
  const FloatFormat* format =
      nullptr;        // of which ulps are, and to which exact numbers are rounded; nullptr: the narrower one's of both
  size_t limit = 10;  // rows of tables; 0: all
};

struct ArrayDifference {
  Report report;
  // With exact numbers, norms of errors: of the candidate, of the reference, and what correctly rounded numbers may have at most,
  // half an ulp each.
  double candidate_error = 0, reference_error = 0, rounding_bound = 0;
  // Elements where the candidate has NaN or Inf that the reference has not.
  uint64_t made_nonfinite = 0;

  // The candidate's error over the larger one of the others: no candidate whose errors are within correct rounding is worse. 0 of
  // 0.
  double judged_ratio() const;
};

// Errors are differences in FP64, and norms Euclidean, over the elements where all is finite. Throws a usage Error where shapes
// differ, and where the exact numbers are of a type that is no wider than the format.
ArrayDifference compare_arrays(const NumberArray& candidate, const NumberArray& reference, const NumberArray* exact,
                               const ArrayDifferenceOptions& options);

}  // namespace ulpscope
