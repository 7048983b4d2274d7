// What the height of a picture of series stands for, and which numbers are written at it: the same in every renderer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ulpscope/analyzers/report/report.h"

namespace ulpscope {

struct ValueScale {
  double lowest = 0, highest = 1;  // what the height reaches from and to
  bool is_logarithmic = false;
  bool is_empty = true;        // no value is finite
  bool has_nonfinite = false;  // some value is NaN or infinite
  std::vector<double> ticks;   // ascending; of a constant the constant alone

  // 0 at the lowest, 1 at the highest. Of finite values.
  double place(double value) const;
};

// Of the values of the first `most_series` that hold somewhere between the two x. Values that are counted or measured from zero
// begin there; magnitudes over many binades, as the losses of a run that fails, are seen on a logarithmic scale only. `most_ticks`:
// about so many, and never fewer than one.
ValueScale value_scale(const Plot& plot, size_t most_series, double first, double end, size_t most_ticks);

// Round numbers between the two, about as many as asked for; whole ones where `is_whole`.
std::vector<double> round_numbers(double from, double to, size_t count, bool is_whole);

// What is written at an axis: as a cell has it, but for small shares, of which "<0.01%" would tell nothing.
std::string axis_text(double value, Unit unit);

}  // namespace ulpscope
