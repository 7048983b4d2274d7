// Statistics of tensors, taken in one pass over blocks, and roundings that count what they lose. Needs Highway and nothing else of
// the engine: parallel loops are passed in. Plain twins in statistics_reference.h give the same bits.
#pragma once

#include <array>
#include <cstdint>

#include "ulpscope/base/parallel_for.h"
#include "ulpscope/emulation/tensor_statistics.h"
#include "ulpscope/kernels/view.h"

namespace ulpscope {

struct NarrowFormat;

// Of an optimizer update by d, per element. Sums are FP64 ones of FP64 terms, in the order of sum_order.h: the elements in memory
// order, in blocks of kStatisticsBlock. w and g are as the update read them.
struct UpdateCounts {
  uint64_t nonzero = 0;        // d != 0
  uint64_t lost = 0;           // of those: the stored weight did not change
  uint64_t lost_to_decay = 0;  // of those: d came from weight decay alone (the gradient's share of it was zero)
  double learning_rate = 0;
  double weight_squares = 0;       // of w before the update
  double update_squares = 0;       // of d
  double gradient_dot_update = 0;  // g d
  // The rule adds decay c to the rest of d, as a term of its own. Where there is none, the sums are 0.
  bool decay_known = false;
  double decay_asked = 0;    // |c|
  double decay_applied = 0;  // sign(c) (w' - w''): the stored weight, and the one without c, rounded alike
};

// A number that is asked for, and comes back.
struct RequestedNumber {
  bool wanted = false;
  bool known = false;
  uint64_t value = 0;
};
// The sum modulo 2^64 of the bit patterns of a tensor's elements, as unsigned integers of their size, in any order. An element that
// strides repeat counts once (fingerprint.h).
using Fingerprint = RequestedNumber;
// A hash of a tensor's bits and of where they are (bit_hash.h).
using BitHash = RequestedNumber;

// What one op output was asked for and what came back. A backend that cannot know the rounding counts leaves rounding_known false.
struct OutputRecord {
  static constexpr int kMaxSamples = 16;

  // The request.
  StatisticsLevel wanted = StatisticsLevel::none;
  int samples_wanted = 0;   // at most kMaxSamples values, at evenly spaced logical indices
  double scale = 1.0;       // the loss scale S that the values contain (for rescued)
  Fingerprint fingerprint;  // as stored; request and answer
  BitHash bits;             // the same

  // The answer.
  StatisticsLevel known = StatisticsLevel::none;
  bool before_rounding = false;     // the statistics are of the values before rounding, else as stored
  double quantization_scale = 1.0;  // what the values were multiplied by before they were rounded (op quantize)
  bool rounding_known = false;
  bool update_known = false;
  int samples = 0;
  TensorStatistics statistics;
  RoundingCounts rounding;
  InputFlushCounts input;  // the same in all records of a call
  UpdateCounts update;
  std::array<int64_t, kMaxSamples> sample_elements{};
  std::array<double, kMaxSamples> sample_values{};

  void clear();
};

// Elements are taken in blocks of this many, in the order in which they lie in memory (views with gaps or repeats: in logical
// order); the last block is shorter. Sums are formed in 16 lanes within a block (element i in lane i mod 16), the lanes by a
// pairwise tree, and the blocks by a pairwise tree.
inline constexpr int64_t kStatisticsBlock = 8192;

// Collects the statistics of one tensor from its blocks, given in any order and from any threads, each block once.
class StatisticsCollector {
 public:
  // `count` elements; the blocks are those of kStatisticsBlock. `format`, where not nullptr, is the narrower format that the blocks
  // are rounded to.
  StatisticsCollector(OutputRecord& record, int64_t count, const FloatFormat* format);
  ~StatisticsCollector();
  StatisticsCollector(const StatisticsCollector&) = delete;

  bool active() const { return state_ != nullptr; }  // false: level none, the calls below only round
  // Block `block` as wide values.
  void add(int64_t block, const float* values, int64_t n);
  void add(int64_t block, const double* values, int64_t n);
  // Block `block` as it is stored, in encodings of `stored` (narrow_format.h).
  void add(int64_t block, const FloatFormat& stored, const void* encodings, int64_t n);
  // Counts the block and rounds it into `encodings` of the format, or to FP32 values.
  void add_and_encode(int64_t block, const float* values, int64_t n, void* encodings);
  void add_and_encode(int64_t block, const double* values, int64_t n, void* encodings);
  void add_and_round(int64_t block, const double* values, int64_t n, float* out);
  // Merges the blocks into the record. Once, after all blocks, from one thread.
  void finish();

 private:
  struct State;
  OutputRecord& record_;
  int64_t count_;
  const FloatFormat* format_;
  const NarrowFormat* narrow_;  // of format_, where tensors are stored in it as encodings
  State* state_ = nullptr;
};

// Statistics of a view as it is stored (any floating-point dtype; integer views give count and zeros only). Clears the record's
// answer.
void collect_statistics(const TensorView& view, OutputRecord& record, const ParallelFor& parallel_for = serial_for);

// Fills in the samples that the record wants: element k * size / samples for k = 0, 1, ...
void collect_samples(const TensorView& view, OutputRecord& record);

// The logical index of the first element that is NaN or Inf, or -1.
int64_t first_nonfinite(const TensorView& view);

// The element at logical index `index`, any dtype.
double read_element(const TensorView& view, int64_t index);

}  // namespace ulpscope
