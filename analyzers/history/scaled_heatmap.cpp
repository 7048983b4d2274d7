#include "ulpscope/analyzers/history/scaled_heatmap.h"

#include <fmt/format.h>

#include <algorithm>
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

  size_t cells() const { return rows * columns.count; }
};

CountBounds RoundingBounds::*bounds_of(Measured measured) {
  return measured == Measured::flushed     ? &RoundingBounds::flushed
         : measured == Measured::subnormal ? &RoundingBounds::subnormal
                                           : &RoundingBounds::overflowed;
}

// Counts of the cells, by scale.
class ScaledCounts {
 public:
  explicit ScaledCounts(std::shared_ptr<const Layout> layout)
      : layout_(std::move(layout)), bases_(layout_->cells()), counts_(kScales * layout_->cells()) {}

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
    for (size_t i = 0; i < bases_.size(); ++i) bases_[i] += other.bases_[i];
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  }
  TablesRead reads() const { return {}; }

  // Shares of the elements; unknown where there are none.
  std::vector<double> shares() const {
    ScaledCounts whole = *this;
    whole.count();
    const size_t cells = layout_->cells();
    for (size_t i = 0; i < whole.counts_.size(); ++i) {
      const double base = whole.bases_[i % cells];
      whole.counts_[i] = base > 0 ? whole.counts_[i] / base : kUnknown;
    }
    return std::move(whole.counts_);
  }

 private:
  void count() {
    for (const auto& [tensor, rows] : swept_) {
      const std::vector<SweepAnswer> answers = rows.answers();
      if (rows.rows() == 0 || answers.empty()) continue;
      for (const size_t row : layout_->rows_of.at(tensor)) {
        const size_t cell = row * layout_->columns.count + column_;
        bases_[cell] += static_cast<double>(answers.front().bounds.base);
        for (size_t scale = 0; scale < kScales; ++scale) {
          const RoundingBounds& bounds = answers[answers.size() == 1 ? 0 : scale].bounds;
          counts_[scale * layout_->cells() + cell] += static_cast<double>((bounds.*bounds_of(layout_->measured)).upper);
        }
      }
    }
    swept_.clear();
  }

  std::shared_ptr<const Layout> layout_;
  const AnalysisContext* context_ = nullptr;
  size_t column_ = 0;
  std::map<uint32_t, SweptRows> swept_;  // of the column, by tensor
  std::vector<double> bases_, counts_;
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
  heatmap.shares_ = counts.analysis().shares();
  for (Series& series : heatmap.plot_.series) {
    series.x.clear();
    series.y.clear();
    layout->columns.begin(series);
  }
  heatmap.plot_.x_end = recorded.x_end;
  return heatmap;
}

Plot ScaledHeatmap::at(int exponent) const {
  Plot plot = plot_;
  plot.title += fmt::format(", at most, had the loss scale been 2^{}", exponent);
  if (shares_.empty()) return plot;
  const size_t columns = plot.series.front().y.size();
  auto from = shares_.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(exponent - kLeastScale) * columns * plot.series.size());
  for (Series& series : plot.series) {
    std::copy(from, from + static_cast<ptrdiff_t>(columns), series.y.begin());
    from += static_cast<ptrdiff_t>(columns);
  }
  return plot;
}

}  // namespace ulpscope
