// What a picture of a run shows over its steps: of each tensor, and of the run as a whole, what was recorded, added up in columns
// of steps. Counts add, extremes stay extremes, so that nothing disappears in a wide column. One pass over the rows, without their
// histograms; follows a trace that grows. plots.h makes plots of it.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/totals/step_columns.h"

namespace ulpscope {

// What a cell can be asked for.
enum class Measured : uint8_t {
  flushed,  // shares of the elements that were finite and nonzero before their rounding
  subnormal,
  overflowed,
  rescued,  // by the loss scale
  zeros,    // shares of all elements
  nonfinite,
  headroom,          // the least
  largest_exponent,  // e of the largest magnitude 2^e
};
inline constexpr int kMeasured = 8;
const char* name_of(Measured measured);
std::optional<Measured> find_measured(std::string_view name);
Unit unit_of(Measured measured);

// Of one tensor over the steps of a column. Ranks add up.
struct HistoryCell {
  uint64_t elements = 0, zeros = 0, nonfinite = 0;
  uint64_t base = 0, flushed = 0, subnormal = 0, overflowed = 0, rescued = 0;  // of rows whose rounding was counted
  double largest = 0;                                                          // magnitude, without the scale of a quantization
  double least_headroom = std::numeric_limits<double>::infinity();
  uint32_t rows = 0, rows_with_values = 0;

  void add(const HistoryCell& other);
  // NaN: not known, or there is nothing of which it could be a share.
  double value(Measured measured) const;

  // All that add up.
  static constexpr std::array<uint64_t HistoryCell::*, 8> counts() {
    return {&HistoryCell::elements, &HistoryCell::zeros,     &HistoryCell::nonfinite,  &HistoryCell::base,
            &HistoryCell::flushed,  &HistoryCell::subnormal, &HistoryCell::overflowed, &HistoryCell::rescued};
  }
};

// Of the steps of a column; of several ranks, those of the first.
struct StepCell {
  uint64_t steps = 0, skipped = 0;
  std::optional<double> loss, gradient_norm;          // of its last step of which it is known
  double learning_rate = kUnknown, scale = kUnknown;  // as well
  std::optional<double> highest_loss, highest_norm;   // of those that are known: NaN where one is, for that is above all numbers
  double lowest_scale = kUnknown, highest_scale = kUnknown;
  double seconds = 0;
  uint64_t peak_memory = 0;

  void append(const StepCell& later);
};

class History {
 public:
  // Of at most so many columns, and fewer where there are very many tensors.
  explicit History(size_t most_columns = 512) : most_columns_(most_columns) {}

  void begin(const AnalysisContext& context);
  void update(const Block& block);
  void merge(History&& other);
  TablesRead reads() const { return {.histograms = false}; }

  StepRange steps() const { return seen_ ? StepRange{seen_->first, seen_->last + 1} : StepRange{0, 0}; }
  StepColumns columns() const;
  const StepCell& step(size_t column) const;
  // Empty where the tensor has no rows in the column.
  HistoryCell cell(uint32_t tensor, size_t column) const { return tensors_[tensor].cell(columns().first + column); }
  HistoryCell total(uint32_t tensor) const;
  size_t tensors() const { return tensors_.size(); }

 private:
  // Cells of consecutive columns.
  template <typename Cell>
  struct Cells {
    uint64_t first = 0;
    std::vector<Cell> cells;

    Cell& at(uint64_t column);
    const Cell* find(uint64_t column) const {
      return column >= first && column - first < cells.size() ? &cells[column - first] : nullptr;
    }
    template <typename Join>
    void halve(Join&& join);
  };

  // The cells of a tensor, kept small as long as no count is beyond that, for there are many.
  class TensorCells {
   public:
    void add(uint64_t column, const HistoryCell& cell);
    HistoryCell cell(uint64_t column) const;
    // Calls visit(column, cell) for those with rows.
    template <typename Visit>
    void visit(Visit&& visit) const;
    void halve();

   private:
    struct SmallCell {
      std::array<uint32_t, HistoryCell::counts().size()> counts{};
      uint32_t rows = 0, rows_with_values = 0;
      double largest = 0, least_headroom = std::numeric_limits<double>::infinity();

      // False: a count is too large.
      bool set(const HistoryCell& cell);
      HistoryCell get() const;
    };
    Cells<SmallCell> small_;
    Cells<HistoryCell> large_;  // in place of small_, once there is one
  };

  void see(uint64_t step);
  void widen();

  size_t most_columns_;
  const AnalysisContext* context_ = nullptr;
  uint64_t width_ = 1;
  std::optional<StepRange> seen_;  // both inside
  std::optional<int> rank_;        // of the steps' cells, which begin with first_step_
  uint64_t first_step_ = 0;
  std::vector<TensorCells> tensors_;
  Cells<StepCell> steps_;
};

}  // namespace ulpscope
