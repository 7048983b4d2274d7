#include "ulpscope/analyzers/history/scaled_heatmap.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>

#include "ulpscope/analyzers/history/scale_shares.h"
#include "ulpscope/analyzers/totals/followed.h"
#include "ulpscope/analyzers/totals/step_columns.h"
#include "ulpscope/analyzers/totals/what_if_facts.h"

namespace ulpscope {

namespace {

constexpr size_t kMostPicturedCells = size_t{1} << 16;
constexpr size_t kScales = kLargestScale - kLeastScale + 1;
// Of tensors whose rows of one column are not counted yet: each takes a few kilobytes.
constexpr size_t kMostSwept = 4096;

// What is asked of each tensor, and where its answers go.
struct Layout {
  StepColumns columns;
  size_t rows = 0;
  Measured measured = Measured::flushed;
  std::map<uint32_t, std::vector<size_t>> rows_of;                     // of a tensor
  std::map<uint32_t, std::shared_ptr<const SweepQuestion>> questions;  // of a tensor
};

CountBounds RoundingBounds::*bounds_of(Measured measured) {
  return measured == Measured::flushed     ? &RoundingBounds::flushed
         : measured == Measured::subnormal ? &RoundingBounds::subnormal
                                           : &RoundingBounds::overflowed;
}

class ScaledCounts {
 public:
  explicit ScaledCounts(std::shared_ptr<const Layout> layout) : layout_(std::move(layout)), counted_(layout_->columns.count) {}

  void begin(const AnalysisContext& context) { context_ = &context; }
  void update(const Block& block) {
    const size_t column = layout_->columns.column(block.step.step);
    if (column != column_ || swept_.size() > kMostSwept) count();
    column_ = column;
    for (const TensorRow& row : block.rows) {
      const auto question = layout_->questions.find(row.tensor);
      if (question != layout_->questions.end())
        swept_[row.tensor].add(row, context_->selection.tensor(row.tensor), question->second);
    }
  }
  void merge(ScaledCounts&& other) {
    count();
    other.count();
    for (size_t i = 0; i < counted_.size(); ++i) {
      if (counted_[i].empty()) {
        counted_[i] = std::move(other.counted_[i]);
      } else if (!other.counted_[i].empty()) {
        std::transform(counted_[i].begin(), counted_[i].end(), other.counted_[i].begin(), counted_[i].begin(), std::plus<>());
      }
    }
  }
  TablesRead reads() const { return {}; }

  // ScaledHeatmap::counted_.
  std::vector<std::vector<double>> release() {
    count();
    return std::move(counted_);
  }

 private:
  void count() {
    for (const auto& [tensor, rows] : swept_) {
      const std::vector<SweepAnswer> answers = rows.answers();
      if (rows.rows() == 0 || answers.empty()) continue;
      std::vector<double>& counted = counted_[column_];
      if (counted.empty()) counted.resize((kScales + 1) * layout_->rows);
      for (const size_t row : layout_->rows_of.at(tensor)) {
        counted[row] += static_cast<double>(answers.front().bounds.base);
        for (size_t scale = 0; scale < kScales; ++scale) {
          const RoundingBounds& bounds = answers[answers.size() == 1 ? 0 : scale].bounds;
          counted[(scale + 1) * layout_->rows + row] += static_cast<double>((bounds.*bounds_of(layout_->measured)).upper);
        }
      }
    }
    swept_.clear();
  }

  std::shared_ptr<const Layout> layout_;
  const AnalysisContext* context_ = nullptr;
  size_t column_ = 0;
  std::map<uint32_t, SweptRows> swept_;  // of the column, by tensor
  std::vector<std::vector<double>> counted_;
};

}  // namespace

bool depends_on_scale(Measured measured) {
  return measured == Measured::flushed || measured == Measured::subnormal || measured == Measured::overflowed;
}

ScaledHeatmap scaled_heatmap(const Snapshot& trace, const Plot& recorded, std::span<const std::vector<uint32_t>> rows,
                             Measured measured, std::string_view format, const AnalysisOptions& options) {
  ScaledHeatmap heatmap;
  heatmap.measured_ = measured;
  heatmap.plot_ = recorded;
  if (rows.empty() || recorded.series.empty() || recorded.series.front().x.empty()) return heatmap;
  for (Series& series : heatmap.plot_.series) series.x = series.y = {};
  auto layout = std::make_shared<Layout>();
  layout->rows = rows.size();
  layout->measured = measured;
  const auto first = static_cast<uint64_t>(recorded.series.front().x.front()), last = static_cast<uint64_t>(recorded.x_end) - 1;
  const size_t most = std::max<size_t>(1, kMostPicturedCells / rows.size());
  layout->columns = StepColumns::over(first, last, std::min(most, recorded.series.front().x.size()));
  std::map<std::pair<const FloatFormat*, bool>, std::shared_ptr<const SweepQuestion>> questions;
  for (size_t row = 0; row < rows.size(); ++row) {
    for (const uint32_t tensor : rows[row]) {
      layout->rows_of[tensor].push_back(row);
      const TensorInfo& info = trace.tensors()[tensor];
      const FloatFormat& asked = !format.empty() ? parse_format(format) : *ulpscope::info(info.dtype).format;
      const bool is_scaled = contains_loss_scale(info, trace.ops()[info.op]);
      auto& question = questions[{&asked, is_scaled}];
      if (!question) {
        SweepQuestion made{{&asked}, {}, is_scaled};
        if (is_scaled)
          for (int k = kLeastScale; k <= kLargestScale; ++k) made.exponents.push_back(k);
        else
          made.exponents = {0};
        question = std::make_shared<const SweepQuestion>(std::move(made));
      }
      layout->questions[tensor] = question;
    }
  }
  Followed<ScaledCounts> counts([&] { return ScaledCounts(layout); }, options);
  counts.update(trace);
  heatmap.counted_ = counts.release().release();
  for (Series& series : heatmap.plot_.series) layout->columns.begin(series);
  return heatmap;
}

Plot ScaledHeatmap::at(int exponent) const {
  Plot plot = plot_;
  plot.title += fmt::format(", at most, had the loss scale been 2^{}", exponent);
  const size_t rows = plot.series.size(), of_scale = static_cast<size_t>(exponent - kLeastScale + 1) * rows;
  for (size_t column = 0; column < counted_.size(); ++column) {
    const std::vector<double>& counted = counted_[column];
    if (counted.empty()) continue;
    for (size_t row = 0; row < rows; ++row)
      if (counted[row] > 0) plot.series[row].y[column] = counted[of_scale + row] / counted[row];
  }
  return plot;
}

}  // namespace ulpscope
