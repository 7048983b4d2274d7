// One computation, described plainly: what a backend is asked to do, and what observers see of it.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "ulpscope/kernels/op_call_arithmetic.h"
#include "ulpscope/kernels/statistics.h"
#include "ulpscope/kernels/view.h"

namespace ulpscope {

// Named numbers that belong to an op call (stride, padding, alpha). Integers up to 2^53 are exact. Names are string literals. Some
// differ from call to call of one op (the step of an optimizer): those do not belong to what the op is, but to the call.
class Attributes {
 public:
  struct Item {
    std::string_view name;
    double value;
  };
  static constexpr int kCapacity = 16;

  Attributes() = default;
  Attributes(std::initializer_list<Item> constant);
  Attributes(std::initializer_list<Item> constant, std::initializer_list<Item> varying);
  // A constant one, where the name is new.
  void set(std::string_view name, double value);
  // The value of `name`; an internal error where it is missing.
  double operator[](std::string_view name) const;
  double value_or(std::string_view name, double otherwise) const;
  std::span<const Item> items() const { return {items_.data(), static_cast<size_t>(size_)}; }
  bool varies(size_t item) const { return (varying_ >> item & 1) != 0; }

 private:
  std::array<Item, kCapacity> items_{};
  int size_ = 0;
  uint16_t varying_ = 0;  // bit i: item i
};

// The output `slot` of the op with the id `op`.
struct ValueKey {
  uint64_t op = 0;
  uint32_t slot = 0;
};

struct OpCall {
  std::string_view op;  // the op's name, a string literal
  std::span<const TensorView> inputs;
  std::span<const TensorView> outputs;  // allocated by the caller. May alias an input where the op is an in-place one; data is
                                        // nullptr where only the record of an output is asked for (an update d)
  const Attributes* attributes = nullptr;
  // One per output, or empty where nothing was asked for. The backend fills them in until it is complete.
  std::span<OutputRecord* const> records;
  // One per input, or empty where none is wanted: of what the call read.
  std::span<Fingerprint* const> input_fingerprints = {};
  const Arithmetic* arithmetic = nullptr;  // nullptr: the default. FP64 calls have no other
  // Of stochastic rounding: the numbers of the element at place i of output `slot` are those of element i of the stream
  // hash_combine(stream, slot).
  uint64_t seed = 0, stream = 0;

  double attribute(std::string_view name) const { return (*attributes)[name]; }
};

// Whether the call is computed in FP64: an input or output is.
bool computes_in_double(const OpCall& call);

// What one number of a call was formed of where that is many elements of an input: the row of a softmax or of a normalization, a
// channel, a group, or the whole tensor that a scale follows from. The elements are `count` ones of the input from `first` on:
// `run` of them that follow each other, and `step` further on the next so many (0: there is one run).
struct RowFacts {
  int input = 0;
  int64_t first = 0, count = 0, run = 0, step = 0;
  // Of the values as they are after the call; largest and smallest of those that are no NaN, NaN where there are none; the sums in
  // FP64, with all of them.
  double largest = std::numeric_limits<double>::quiet_NaN(), smallest = std::numeric_limits<double>::quiet_NaN();
  double sum = 0, sum_of_squares = 0;
  int64_t nonfinite = 0;     // how many are; the first is among the operands
  bool overwritten = false;  // as an operand (below) is
};

// How one element of an output came about: what explaining a NaN needs later, without the engine.
struct ElementCapture {
  struct Operand {
    int input;        // which input of the call
    int64_t element;  // its logical (row-major) index there
    double value;
    // An output overwrote the input (weights and states of an update, gradients that are accumulated, unscaled or clipped, running
    // statistics), and `value` is the one after the call. To keep the one before would mean to copy every such input in every step.
    // An update d is formed from the states after the call, so these explain it.
    bool overwritten = false;
    int64_t term = -1;  // of the sum, where it belongs to one of its terms
  };
  int64_t element = -1;  // logical index in the output
  double value = 0;
  // In the order in which the op reads them. Of a sum those of the first 64 terms, pairs where they are products (of the first 32
  // where a term has four), and of the one at which it broke; at most 128 beside these.
  std::vector<Operand> operands;
  std::vector<RowFacts> rows;  // one for each input of which many elements went into the element
  int64_t terms = 0;           // how many terms a sum had in all (0: not a sum)
  // The first term after which the partial sum, in index order, was not finite. It is FP32, FP64 where the op adds in it, or what
  // the call's arithmetic accumulates products in: FP16, or FP64 (also for exact sums).
  int64_t broke_at = -1;
  // The partial sum before that term; of a sum that stayed finite all of it, which what the op does after it (a division, the
  // rounding to the output's type) made nonfinite. NaN: nothing was summed.
  double partial_sum = std::numeric_limits<double>::quiet_NaN();
};

}  // namespace ulpscope
