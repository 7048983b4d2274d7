#include "ulpscope/analyzers/totals/fitting_scale.h"

#include <algorithm>

#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/analyzers/totals/tensor_ranges.h"

namespace ulpscope {

namespace {

// Of a step or a tensor some of whose rows are no evidence.
template <typename Fit>
void open_bounds(Fit& fit) {
  if (!fit.largest) fit.largest.emplace();
  if (!fit.smallest) fit.smallest.emplace();
  fit.largest->lower = ExponentBounds::kNoLower;
  fit.smallest->upper = ExponentBounds::kNoUpper;
}

}  // namespace

void TensorFit::append(const TensorFit& later) {
  if (later.largest) narrow_from_above(largest, *later.largest);
  for (size_t i = 0; i < flushes.size(); ++i) {
    if (!later.flushes[i]) continue;
    if (!flushes[i]) flushes[i] = std::make_unique<FlushCounts>(later.flushes[i]->flushing());
    flushes[i]->add(*later.flushes[i]);
  }
  hidden = hidden || later.hidden;
  more_than_noise = more_than_noise || later.more_than_noise;
}

void StepFit::beside(const StepFit& other) {
  if (other.largest) narrow_from_above(largest, *other.largest);
  if (other.smallest) raise(smallest, *other.smallest);
  hidden = hidden || other.hidden;
}

void RunFits::append(const RunFits& later) {
  tensors.append(later.tensors);
  flushed.append(later.flushed);
  const bool goes_on = !steps.empty() && !later.steps.empty() && later.steps.front().fits_like(steps.back());
  steps.insert(steps.end(), later.steps.begin() + goes_on, later.steps.end());
  hidden_steps.add(later.hidden_steps);
}

void RunFits::beside(const RunFits& other) {
  tensors.beside(other.tensors);
  flushed.beside(other.flushed);
  hidden_steps.add(other.hidden_steps);
  std::vector<StepFit> all;
  std::optional<StepFit> mine, its;  // that hold
  size_t i = 0, j = 0;
  while (i < steps.size() || j < other.steps.size()) {
    const uint64_t next =
        std::min(i < steps.size() ? steps[i].step : UINT64_MAX, j < other.steps.size() ? other.steps[j].step : UINT64_MAX);
    if (i < steps.size() && steps[i].step == next) mine = steps[i++];
    if (j < other.steps.size() && other.steps[j].step == next) its = other.steps[j++];
    StepFit both;
    both.step = next;
    for (const auto& fit : {mine, its})
      if (fit) both.beside(*fit);
    if (all.empty() || !all.back().fits_like(both)) all.push_back(both);
  }
  steps = std::move(all);
}

void FittingScale::begin(const AnalysisContext& context) {
  context_ = &context;
  what_if_ = asked_ ? asked_ : format_to_ask(context.trace);
  upstream_.emplace(context.trace, limit_);
  read_as_zero_.emplace(context, what_if_);
  noise_.emplace(context);
}

void FittingScale::update(const Block& block) {
  RunFits& fits = fits_.at(block.rank, block.step);
  if (block.begins) {
    upstream_->begin_step(block.step.graph);
    noise_->begin_step();
    nonfinite_forward_.clear();
    overflowed_.clear();
  }
  for (const TensorRow& row : block.rows) {
    noise_->see(row);
    see_nonfinite(row);
    if (upstream_->see(row)) ++fits.flushed[row.tensor].rows;
    if (context_->selection.contains(row)) add(row, block, fits);
  }
  if (!block.ends || !step_) return;
  if (step_->hidden) {
    open_bounds(*step_);
    fits.hidden_steps.add(step_->step);
  }
  if (fits.steps.empty() || !fits.steps.back().fits_like(*step_)) fits.steps.push_back(*step_);
  step_.reset();
}

void FittingScale::see_nonfinite(const TensorRow& row) {
  const TensorInfo& tensor = context_->trace.tensors()[row.tensor];
  const Phase phase = context_->trace.ops()[tensor.op].phase;
  if ((phase == Phase::forward || phase == Phase::loss) && row.scale == 1 &&
      (row.statistics.nonfinite() > 0 || became_infinite(row, tensor.dtype) > 0) &&
      !(context_->masks.may_be(row.tensor) && holds_mask(row)))
    nonfinite_forward_.insert(row.micro_batch);
  if (is_gradient(tensor.role) && became_infinite(row, tensor.dtype) > 0) overflowed_.insert({row.micro_batch, row.loss_index});
}

bool FittingScale::is_of_forward(const TensorRow& row) const {
  return row.statistics.nonfinite() > 0 && nonfinite_forward_.contains(row.micro_batch) &&
         !overflowed_.contains({row.micro_batch, row.loss_index});
}

void FittingScale::add(const TensorRow& row, const Block& block, RunFits& fits) {
  const TensorInfo& tensor = context_->selection.tensor(row.tensor);
  // Gradients contain the loss scale until they are unscaled, and so does the scaled loss, which is FP32 in mixed precision too
  // unless it was rounded here.
  const bool computed = is_computed_gradient(tensor.role) && !tensor.stays_wide;
  const bool carries_scale = computed || tensor.role == Role::accumulated_gradient ||
                             (tensor.role == Role::loss && row.scale != 1.0 && is_narrow(tensor.dtype));
  // What FP8 holds is scaled anew: no loss scale changes what fits there.
  if (!carries_scale || !is_float(tensor.dtype) || is_quantized(tensor.dtype)) return;
  const FloatFormat& format = computed && what_if_ ? *what_if_ : *info(tensor.dtype).format;
  // With the range of FP32 a gradient needs no loss scale, and bears any that a scaler would try.
  if (format.largest_exponent() >= binary32.largest_exponent() && asked_ == nullptr) return;
  if (has_nonfinite_loss(block.step) || context_->is_fitted(block.step) || is_of_forward(row)) return;
  if (!step_) step_.emplace().step = row.step;
  TensorFit& fit = fits.tensors[row.tensor];
  if (upstream_->is_behind(row)) {
    fit.hidden = step_->hidden = true;
    return;
  }
  if (const auto largest = largest_fitting(row, tensor, format)) {
    narrow_from_above(step_->largest, *largest);
    narrow_from_above(fit.largest, *largest);
  }
  // Underflow is judged where a gradient is rounded, or would be.
  const bool judged = is_narrow(tensor.dtype) ? is_gradient(tensor.role) : computed && what_if_;
  if (!judged) return;
  const bool read_as_zero = read_as_zero_->contains(block.part, row.tensor);
  std::unique_ptr<FlushCounts>& counts = fit.flushes[read_as_zero];
  if (!counts) {
    Rounding rounding = rounding_of(tensor, format);
    if (read_as_zero) rounding.subnormals = SubnormalResults::flush;
    counts = std::make_unique<FlushCounts>(flushing_of(format, rounding));
  }
  row_.restart(counts->flushing());
  if (!row_.add(row, tensor)) return;
  counts->add(row_);
  if (noise_->fills(row)) return;
  fit.more_than_noise = true;
  if (const auto smallest = row_.smallest_fitting(limit_)) raise(step_->smallest, *smallest);
}

FittingScales FittingScale::result() const {
  FittingScales result;
  result.what_if = what_if_;
  RunFits room, other_room;
  const RunFits& judged = fits_.judged(room);
  result.steps = judged.steps;
  result.hidden_steps = judged.hidden_steps.size();
  result.run.hidden = result.hidden_steps > 0;
  for (const StepFit& step : judged.steps)
    if (step.largest) narrow_from_above(result.run.largest, *step.largest);
  const size_t tensors = context_->selection.size();
  result.tensors.resize(tensors);
  for (uint32_t i = 0; i < tensors; ++i) {
    const TensorFit* const fit = judged.tensors.find(i);
    if (fit == nullptr) continue;
    FittingScales::Tensor& tensor = result.tensors[i].emplace(FittingScales::Tensor{fit->largest, {}, fit->hidden});
    for (const auto& counts : fit->flushes) {
      if (const auto smallest = counts && fit->more_than_noise ? counts->smallest_fitting(limit_) : std::nullopt)
        raise(tensor.smallest, *smallest);
    }
    if (tensor.hidden) open_bounds(tensor);
    const auto& [largest, smallest, hidden] = tensor;
    std::optional<uint32_t>&most = result.decides_largest, &least = result.decides_smallest;
    if (largest && (!most || largest->upper < result.tensors[*most]->largest->upper)) most = i;
    if (!smallest) continue;
    raise(result.run.smallest, *smallest);
    if (!least || smallest->lower > result.tensors[*least]->smallest->lower) least = i;
  }
  result.flushed_rows.resize(tensors);
  for (const bool broken : {false, true}) {
    const PerTensor<RunFits::Count>& flushed = (broken ? fits_.broken(other_room) : judged).flushed;
    for (const uint32_t i : flushed.tensors()) result.flushed_rows[i] += flushed.find(i)->rows;
  }
  return result;
}

}  // namespace ulpscope
