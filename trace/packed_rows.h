// Rows of a step as bytes, for sinks that hold steps back: a row of `stats` takes about 140 of them, a fifteenth of what its struct
// does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ulpscope/trace/sink.h"

namespace ulpscope {

class PackedRows {
 public:
  void add(const TensorRow& row);
  void add(const BatchRow& row);
  void add(const ParameterRow& row);
  void add(const FingerprintRow& row);
  void add(const CaptureRow& row);
  void add(const SampleRow& row);
  void add(const MeasureRow& row);
  void add(const SumRow& row);
  void add(const BitsRow& row);

  const MoreRows& rows() const { return rows_; }
  size_t bytes() const { return bytes_.size(); }
  // Makes room for so many bytes.
  void reserve(size_t bytes) { bytes_.reserve(bytes); }
  // Adds all rows to the sink, in their order.
  void write(TraceSink& sink) const;

 private:
  std::vector<uint8_t> bytes_;
  MoreRows rows_;
};

}  // namespace ulpscope
