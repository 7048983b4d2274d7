// Whether what a tensor's roundings flushed to zero matters: a share of elements says nothing about their magnitude. Definition:
// docs/numerics.md, "Flushing that matters".
#pragma once

#include <cstdint>

#include "ulpscope/emulation/number.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

// At most this share of the row's Euclidean norm was flushed by the rounding to `format`; 0 where nothing was, 1 where all was.
// Without magnitudes the counts bound the norm from below.
double flushed_norm_bound(const TensorRow& row, const FloatFormat& format, const Rounding& rounding = {});

// The part of a row's norm above which flushing is felt: a hundredth, without which a gradient points less than 0.6 degrees
// elsewhere, or more where the format's rounding changes more anyway.
double felt_part(const FloatFormat& format);

struct FlushLoss {
  uint64_t rows = 0;     // with an element that was not zero
  uint64_t felt = 0;     // those of which more may have been flushed than felt_part
  double most_norm = 0;  // the largest bound

  void add(const TensorRow& row, const FloatFormat& format, const Rounding& rounding = {});
  void add(const FlushLoss& other);
  bool matters() const { return matters(felt, rows); }
  // Felt in more than a tenth of the rows.
  static bool matters(uint64_t felt, uint64_t rows) { return 10 * felt > rows; }
};

}  // namespace ulpscope
