#include "ulpscope/analyzers/history/history.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/totals/what_if.h"

namespace ulpscope {

namespace {

// All tensors together have at most so many cells, of about 60 bytes.
constexpr size_t kMostKeptCells = size_t{1} << 21;
constexpr size_t kLeastColumns = 16;

constexpr std::array<const char*, kMeasured> kNames{"flushed", "subnormal", "overflowed", "rescued",
                                                    "zeros",   "nonfinite", "headroom",   "largest_exponent"};

double share_or_unknown(uint64_t count, uint64_t base) {
  return base == 0 ? kUnknown : static_cast<double>(count) / static_cast<double>(base);
}

void take_last(double& into, double later) {
  if (!std::isnan(later)) into = later;
}

}  // namespace

const char* name_of(Measured measured) { return kNames[static_cast<size_t>(measured)]; }

std::optional<Measured> find_measured(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<Measured>(i);
  return std::nullopt;
}

Unit unit_of(Measured measured) {
  return measured == Measured::headroom ? Unit::bits : measured == Measured::largest_exponent ? Unit::exponent : Unit::share;
}

void HistoryCell::add(const HistoryCell& other) {
  for (const auto count : counts()) this->*count += other.*count;
  largest = std::max(largest, other.largest);
  least_headroom = std::min(least_headroom, other.least_headroom);
  rows += other.rows;
  rows_with_values += other.rows_with_values;
}

double HistoryCell::value(Measured measured) const {
  switch (measured) {
    case Measured::flushed:
      return share_or_unknown(flushed, base);
    case Measured::subnormal:
      return share_or_unknown(subnormal, base);
    case Measured::overflowed:
      return share_or_unknown(overflowed, base);
    case Measured::rescued:
      return share_or_unknown(rescued, base);
    case Measured::zeros:
      return share_or_unknown(zeros, elements);
    case Measured::nonfinite:
      return share_or_unknown(nonfinite, elements);
    case Measured::headroom:
      return rows_with_values > 0 && std::isfinite(least_headroom) ? least_headroom : kUnknown;
    case Measured::largest_exponent:
      return largest > 0 ? std::ilogb(largest) : kUnknown;
  }
  return kUnknown;
}

namespace {

std::optional<double> higher(const std::optional<double>& a, const std::optional<double>& b) {
  if (!a || !b) return a ? a : b;
  return std::isnan(*a) || *a >= *b ? a : b;
}

}  // namespace

void StepCell::append(const StepCell& later) {
  steps += later.steps;
  skipped += later.skipped;
  if (later.loss) loss = later.loss;
  if (later.gradient_norm) gradient_norm = later.gradient_norm;
  take_last(learning_rate, later.learning_rate);
  take_last(scale, later.scale);
  highest_loss = higher(highest_loss, later.highest_loss);
  highest_norm = higher(highest_norm, later.highest_norm);
  lowest_scale = std::fmin(lowest_scale, later.lowest_scale);
  highest_scale = std::fmax(highest_scale, later.highest_scale);
  seconds += later.seconds;
  peak_memory = std::max(peak_memory, later.peak_memory);
}

template <typename Cell>
Cell& History::Cells<Cell>::at(uint64_t column) {
  if (cells.empty()) first = column;
  if (column < first) {
    cells.insert(cells.begin(), first - column, Cell());
    first = column;
  }
  if (column - first >= cells.size()) cells.resize(column - first + 1);
  return cells[column - first];
}

template <typename Cell>
template <typename Join>
void History::Cells<Cell>::halve(Join&& join) {
  Cells wider;
  for (size_t i = 0; i < cells.size(); ++i) join(wider.at((first + i) / 2), cells[i]);
  *this = std::move(wider);
}

bool History::TensorCells::SmallCell::set(const HistoryCell& cell) {
  for (size_t i = 0; i < counts.size(); ++i) {
    const uint64_t count = cell.*HistoryCell::counts()[i];
    if (count > UINT32_MAX) return false;
    counts[i] = static_cast<uint32_t>(count);
  }
  rows = cell.rows;
  rows_with_values = cell.rows_with_values;
  largest = cell.largest;
  least_headroom = cell.least_headroom;
  return true;
}

HistoryCell History::TensorCells::SmallCell::get() const {
  HistoryCell cell{.largest = largest, .least_headroom = least_headroom, .rows = rows, .rows_with_values = rows_with_values};
  for (size_t i = 0; i < counts.size(); ++i) cell.*HistoryCell::counts()[i] = counts[i];
  return cell;
}

void History::TensorCells::add(uint64_t column, const HistoryCell& cell) {
  if (large_.cells.empty()) {
    SmallCell& small = small_.at(column);
    HistoryCell sum = small.get();
    sum.add(cell);
    if (small.set(sum)) return;
    large_.first = small_.first;
    for (const SmallCell& each : small_.cells) large_.cells.push_back(each.get());
    small_ = {};
  }
  large_.at(column).add(cell);
}

HistoryCell History::TensorCells::cell(uint64_t column) const {
  if (const HistoryCell* const large = large_.find(column)) return *large;
  const SmallCell* const small = small_.find(column);
  return small ? small->get() : HistoryCell();
}

template <typename Visit>
void History::TensorCells::visit(Visit&& visit) const {
  const uint64_t first = large_.cells.empty() ? small_.first : large_.first;
  for (uint64_t column = first; column < first + std::max(small_.cells.size(), large_.cells.size()); ++column)
    if (const HistoryCell each = cell(column); each.rows > 0) visit(column, each);
}

void History::TensorCells::halve() {
  TensorCells wider;
  visit([&](uint64_t column, const HistoryCell& cell) { wider.add(column / 2, cell); });
  *this = std::move(wider);
}

void History::begin(const AnalysisContext& context) {
  context_ = &context;
  tensors_.resize(std::max(tensors_.size(), context.selection.size()));
}

void History::widen() {
  width_ *= 2;
  for (TensorCells& cells : tensors_) cells.halve();
  steps_.halve([](StepCell& into, const StepCell& cell) { into.append(cell); });
}

void History::see(uint64_t step) {
  if (!seen_) seen_ = StepRange{step, step};
  seen_->first = std::min(seen_->first, step);
  seen_->last = std::max(seen_->last, step);
  const size_t most = std::clamp(kMostKeptCells / std::max<size_t>(1, tensors_.size()), kLeastColumns, most_columns_);
  while (seen_->last / width_ - seen_->first / width_ >= most) widen();
}

void History::update(const Block& block) {
  const StepRow& row = block.step;
  see(row.step);
  const uint64_t column = row.step / width_;
  if (block.begins && (!rank_ || *rank_ >= block.rank)) {
    if (!rank_ || *rank_ > block.rank) {
      steps_ = {};
      first_step_ = row.step;
    }
    rank_ = block.rank;
    steps_.at(column).append({.steps = 1,
                              .skipped = row.skipped ? uint64_t{1} : 0,
                              .loss = row.loss_known ? std::optional(row.loss) : std::nullopt,
                              .gradient_norm = row.norm_known ? std::optional(row.gradient_norm) : std::nullopt,
                              .learning_rate = row.learning_rate,
                              .scale = row.scale_before,
                              .highest_loss = row.loss_known ? std::optional(row.loss) : std::nullopt,
                              .highest_norm = row.norm_known ? std::optional(row.gradient_norm) : std::nullopt,
                              .lowest_scale = row.scale_before,
                              .highest_scale = row.scale_before,
                              .seconds = row.seconds,
                              .peak_memory = row.peak_memory});
  }
  for (const TensorRow& tensor_row : block.rows) {
    if (!context_->selection.contains(tensor_row) || tensor_row.known == StatisticsLevel::none) continue;
    const DType dtype = context_->selection.tensor(tensor_row.tensor).dtype;
    HistoryCell cell{.rows = 1};
    const TensorStatistics& statistics = tensor_row.statistics;
    cell.elements = statistics.count;
    cell.zeros = statistics.zeros;
    cell.nonfinite = stored_nonfinite(tensor_row, dtype);
    if (const auto seen = as_seen(tensor_row); seen && is_narrow(dtype)) {
      cell.base = seen->base;
      cell.flushed = seen->flushed.lower;
      cell.subnormal = seen->subnormal.lower;
      cell.overflowed = seen->overflowed.lower;
      cell.rescued = tensor_row.rounding.rescued;
    }
    if (tensor_row.known == StatisticsLevel::values) {
      cell.rows_with_values = 1;
      cell.largest = statistics.largest / tensor_row.quantization_scale;
      const double room = is_float(dtype) ? headroom(*info(dtype).format, statistics.largest) : kUnknown;
      if (!std::isnan(room)) cell.least_headroom = room;
    }
    tensors_[tensor_row.tensor].add(column, cell);
  }
}

void History::merge(History&& other) {
  if (!other.seen_) return;
  if (!seen_) {
    const AnalysisContext* const context = context_;
    *this = std::move(other);
    context_ = context;
    return;
  }
  see(other.seen_->first);
  see(other.seen_->last);
  while (other.width_ < width_) other.widen();
  while (width_ < other.width_) widen();
  tensors_.resize(std::max(tensors_.size(), other.tensors_.size()));
  for (size_t tensor = 0; tensor < other.tensors_.size(); ++tensor) {
    other.tensors_[tensor].visit([&](uint64_t column, const HistoryCell& cell) { tensors_[tensor].add(column, cell); });
    other.tensors_[tensor] = {};
  }
  if (!other.rank_ || (rank_ && *rank_ < *other.rank_)) return;
  if (!rank_ || *other.rank_ < *rank_) {
    rank_ = other.rank_;
    first_step_ = other.first_step_;
    steps_ = std::move(other.steps_);
    return;
  }
  // Of a column in which one of them ends and the other begins, what comes first stands in front.
  if (other.first_step_ < first_step_) {
    std::swap(steps_, other.steps_);
    std::swap(first_step_, other.first_step_);
  }
  for (size_t i = 0; i < other.steps_.cells.size(); ++i) steps_.at(other.steps_.first + i).append(other.steps_.cells[i]);
}

StepColumns History::columns() const {
  if (!seen_) return {};
  const uint64_t first = seen_->first / width_;
  return {width_, first, static_cast<size_t>(seen_->last / width_ - first + 1)};
}

const StepCell& History::step(size_t column) const {
  static const StepCell kNone;
  const StepCell* const cell = steps_.find(columns().first + column);
  return cell ? *cell : kNone;
}

HistoryCell History::total(uint32_t tensor) const {
  HistoryCell total;
  tensors_[tensor].visit([&](uint64_t, const HistoryCell& cell) { total.add(cell); });
  return total;
}

}  // namespace ulpscope
