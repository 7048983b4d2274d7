// What rounding x * 2^k / S to several formats does to the rows of a tensor, for many loss scales 2^k at once: the answers of
// what_if.h, added up over the rows. Nearly all rows are added to one histogram of exponents divided by their scales, on which
// another k is another place: only the bins of a row's smallest and largest magnitudes say more than how many are in them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "ulpscope/analyzers/totals/what_if.h"

namespace ulpscope {

// Squares that add up to something between two bounds.
struct SquareBounds {
  double lower = 0, upper = 0;

  SquareBounds& operator+=(const SquareBounds& other) {
    lower += other.lower;
    upper += other.upper;
    return *this;
  }
};

// A sum of positive doubles with twice their bits, so that what comes of it does not depend on the order.
class LongSum {
 public:
  void add(double value);
  void add(const LongSum& other) {
    add(other.high_);
    low_ += other.low_;
  }
  double value() const { return high_ + low_; }

 private:
  double high_ = 0, low_ = 0;
};

struct SweepQuestion {
  std::vector<const FloatFormat*> formats;
  std::vector<int> exponents;  // k, ascending
  bool scaled = true;          // false: whatever loss scale values contain is part of them, and k is 0
};

// Of one format and scale.
struct SweepAnswer {
  RoundingBounds bounds;
  SquareBounds lost;  // squares of the values divided by S that the rounding flushes or that overflow
  SquareBounds all;   // of those that are finite

  SweepAnswer& operator+=(const SweepAnswer& other);
  CountBounds lost_elements() const;
  // Of the Euclidean norm, the part that is lost; NotApplicable where nothing is finite and nonzero.
  Cell lost_norm() const;
};

// Rows of tensors whose ops round alike.
class SweptRows {
 public:
  // The question is the same at every call.
  void add(const TensorRow& row, const TensorInfo& tensor, const std::shared_ptr<const SweepQuestion>& question);
  void add(const SweptRows& other);
  void append(const SweptRows& later) { add(later); }
  void beside(const SweptRows& other) { add(other); }
  void clear();

  uint64_t rows() const { return rows_; }        // answered
  uint64_t unknown() const { return unknown_; }  // without a histogram, or stored in a narrow type and not counted
  // By format, and by exponent within it: answers[format * exponents + exponent].
  std::vector<SweepAnswer> answers() const;
  bool is_empty() const { return question_ == nullptr; }

 private:
  // A threshold significand * 2^exponent of magnitudes. Where `is_edge`, all below 2^exponent lie under it, and no others.
  struct Place {
    double significand;
    int exponent;
    bool is_edge;
    bool operator==(const Place&) const = default;
  };
  struct Places {
    Place sure, maybe;  // up to which all lie under it, and some
  };
  enum Side : uint8_t { flushed, below_normal, in_range };
  static constexpr size_t kSides = 3;
  // Of the bin that holds a threshold: elements that surely lie under it, and that surely do not.
  struct InBin {
    int64_t under = 0, above = 0;
  };

  static Place place_of(double threshold);
  void begin(const TensorInfo& tensor);
  bool add_aligned(const TensorRow& row, const TensorInfo& tensor);
  bool add_alone(const TensorRow& row, const TensorInfo& tensor);
  void see_extremes(const TensorRow& row, size_t format, int shift, int skipped);
  void see_counts(const TensorRow& row, size_t format, int shift, int exponent);
  int index_of(int exponent) const;
  InBin& in_bin(size_t format, size_t side, size_t exponent);
  const InBin& in_bin(size_t format, size_t side, size_t exponent) const;

  static constexpr int kFirst = -192, kLast = 192;  // exponents of values divided by their scales

  std::shared_ptr<const SweepQuestion> question_;
  std::vector<std::array<Places, kSides>> places_;  // by format
  uint64_t rows_ = 0, unknown_ = 0;
  std::vector<uint64_t> bins_;  // of the aligned rows
  std::vector<InBin> in_bins_;
  LongSum squares_;  // of the aligned rows, divided by their scales
  // Of the other rows, by format and exponent; empty: there were none.
  std::vector<SweepAnswer> alone_;
};

}  // namespace ulpscope
