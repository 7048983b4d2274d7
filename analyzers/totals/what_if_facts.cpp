#include "ulpscope/analyzers/totals/what_if_facts.h"

#include <algorithm>
#include <cmath>

namespace ulpscope {

namespace {

constexpr ExponentBounds kAnything{};
constexpr ExponentBounds kAlwaysFits{ExponentBounds::kNoUpper, ExponentBounds::kNoUpper};

// Up to which exponent the row's rounding to the format overflows nowhere, with all that was recorded of it.
ExponentBounds fits_up_to(const TensorRow& row, const TensorInfo& tensor, const FloatFormat& format) {
  const bool nonfinite = row.known != StatisticsLevel::none && row.statistics.nonfinite() > 0;
  ExponentBounds bounds = kAnything;
  if (row.known == StatisticsLevel::values) {
    if (const auto largest = largest_fitting(row, tensor, format)) {
      bounds = *largest;
    } else if (!nonfinite && row.scale >= 0x1p-700 && row.scale <= 0x1p700) {
      bounds = kAlwaysFits;  // all is zero
    }
  }
  // What the backend counted holds at the scale that the values contain, and says the same of all on one side of it.
  int exponent = 0;
  const bool is_power = std::frexp(row.scale, &exponent) == 0.5;
  if (row.known == StatisticsLevel::none || !row.rounding_known || info(tensor.dtype).format != &format || !is_power) return bounds;
  const int own = exponent - 1;
  if (row.rounding.overflowed > 0 || nonfinite) {
    bounds.upper = std::min(bounds.upper, own - 1);
  } else {
    bounds.lower = std::max(bounds.lower, own);
  }
  return bounds;
}

void narrow(ExponentBounds& into, const ExponentBounds& other) {
  into.lower = std::min(into.lower, other.lower);
  into.upper = std::min(into.upper, other.upper);
}

}  // namespace

bool contains_loss_scale(const TensorInfo& tensor, const OpInfo& op) {
  return is_computed_gradient(tensor.role) || tensor.role == Role::accumulated_gradient ||
         (tensor.role == Role::loss && op.phase == Phase::scaling);
}

bool is_judged_gradient(const TensorInfo& tensor) {
  return is_computed_gradient(tensor.role) && !tensor.stays_wide && is_float(tensor.dtype) && !is_quantized(tensor.dtype);
}

void StepGradients::beside(const StepGradients& other) {
  for (size_t i = 0; i < largest.size(); ++i) narrow(largest[i], other.largest[i]);
  for (size_t i = 0; i < flushed.size(); ++i) flushed[i] += other.flushed[i];
  base += other.base;
}

void RunWhatIf::append(const RunWhatIf& later) {
  tensors.append(later.tensors);
  steps.insert(steps.end(), later.steps.begin(), later.steps.end());
  rows_without_values += later.rows_without_values;
  rows_behind_flushed += later.rows_behind_flushed;
}

void RunWhatIf::beside(const RunWhatIf& other) {
  tensors.beside(other.tensors);
  rows_without_values += other.rows_without_values;
  rows_behind_flushed += other.rows_behind_flushed;
  std::vector<StepGradients> all;
  auto mine = steps.begin();
  auto its = other.steps.begin();
  while (mine != steps.end() || its != other.steps.end()) {
    if (its == other.steps.end() || (mine != steps.end() && mine->step < its->step)) {
      all.push_back(std::move(*mine++));
    } else if (mine == steps.end() || its->step < mine->step) {
      all.push_back(*its++);
    } else {
      all.push_back(std::move(*mine++));
      all.back().beside(*its++);
    }
  }
  steps = std::move(all);
}

WhatIfFacts::WhatIfFacts(const std::vector<const FloatFormat*>& formats, const std::vector<int>& exponents,
                         const std::vector<int>& replayed)
    : scaled_(std::make_shared<const SweepQuestion>(SweepQuestion{formats, exponents, true})),
      unscaled_(std::make_shared<const SweepQuestion>(SweepQuestion{formats, {0}, false})),
      replayed_(std::make_shared<const SweepQuestion>(SweepQuestion{formats, replayed, true})) {}

void WhatIfFacts::begin(const AnalysisContext& context) {
  context_ = &context;
  upstream_.emplace(context.trace, context.options.flushed_limit);
}

void WhatIfFacts::update(const Block& block) {
  if (block.begins) upstream_->begin_step(block.step.graph);
  RunWhatIf& run = run_.at(block.rank, block.step);
  for (const TensorRow& row : block.rows) {
    upstream_->see(row);
    if (!context_->selection.contains(row)) continue;
    const TensorInfo& tensor = context_->selection.tensor(row.tensor);
    if (!is_float(tensor.dtype)) continue;
    run.rows_without_values += row.known == StatisticsLevel::health;
    const bool scaled = contains_loss_scale(tensor, context_->selection.op(row.tensor));
    run.tensors[row.tensor].add(row, tensor, scaled ? scaled_ : unscaled_);
    if (!is_judged_gradient(tensor)) continue;
    run.rows_behind_flushed += upstream_->is_behind(row);
    add_to_step(row, tensor);
  }
  if (!block.ends || !step_) return;
  step_->step = block.step.step;
  run.steps.push_back(end_step());
}

void WhatIfFacts::add_to_step(const TensorRow& row, const TensorInfo& tensor) {
  const std::vector<const FloatFormat*>& formats = scaled_->formats;
  if (!step_) {
    step_.emplace();
    step_->largest.assign(formats.size(), kAlwaysFits);
  }
  for (size_t i = 0; i < formats.size(); ++i) narrow(step_->largest[i], fits_up_to(row, tensor, *formats[i]));
  if (replayed_->exponents.empty()) return;
  const Rounds rounds{tensor.rounding, tensor.flushes_results, tensor.flushes_narrow_products && tensor.slot == 0};
  step_rows_[rounds].add(row, tensor, replayed_);
}

StepGradients WhatIfFacts::end_step() {
  StepGradients step = std::move(*step_);
  step_.reset();
  step.flushed.resize(replayed_->formats.size() * replayed_->exponents.size());
  for (auto& [unused, rows] : step_rows_) {
    const std::vector<SweepAnswer> answers = rows.answers();
    for (size_t i = 0; i < answers.size(); ++i) step.flushed[i] += answers[i].bounds.flushed;
    if (!answers.empty()) step.base += answers.front().bounds.base;
    rows.clear();
  }
  return step;
}

}  // namespace ulpscope
