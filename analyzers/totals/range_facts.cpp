#include "ulpscope/analyzers/totals/range_facts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

RangeFacts::RangeFacts(std::optional<std::vector<const FloatFormat*>> tabled) : tabled_(std::move(tabled)) {
  if (tabled_ && what_if_index(binary16) == tabled_->size()) tabled_->push_back(&binary16);
}

size_t RangeFacts::what_if_index(const FloatFormat& format) const {
  return std::find(tabled_->begin(), tabled_->end(), &format) - tabled_->begin();
}

void RangeFacts::begin(const AnalysisContext& context) {
  context_ = &context;
  delays_scales_ = quantization_recipe(context.trace) == "delayed";
  // A trace that has grown may answer otherwise than when it had no ops.
  read_in_fp16_.reset();
  if (format_to_ask(context.trace) == &binary16) read_in_fp16_.emplace(context, &binary16);
  noise_.emplace(context);
}

void RangeFacts::update(const Block& block) {
  if (block.begins) {
    noise_->begin_step();
    passes_seen_.clear();
    previous_.reset();
  }
  RunRanges& ranges = ranges_.at(block.rank, block.step);
  for (const TensorRow& row : block.rows) {
    const bool selected = context_->selection.contains(row);
    see(row);
    if (selected) add(row, block, ranges);
  }
}

void RangeFacts::see(const TensorRow& row) {
  const Selection& selection = context_->selection;
  first_rounding_ = false;
  if (row.known == StatisticsLevel::none) return;
  before_ = std::exchange(previous_, row.tensor);
  noise_->see(row);
  if (selection.op(row.tensor).phase != Phase::backward || !is_plainly_narrow(selection.tensor(row.tensor).dtype)) return;
  if (!row.rounding_known || share_base(row) == 0) return;
  const std::pair pass{row.micro_batch, row.loss_index};
  first_rounding_ = std::find(passes_seen_.begin(), passes_seen_.end(), pass) == passes_seen_.end();
  if (first_rounding_) passes_seen_.push_back(pass);
}

void RangeFacts::add(const TensorRow& row, const Block& block, RunRanges& ranges) {
  TensorRanges& facts = ranges.tensors[row.tensor];
  const TensorInfo& tensor = context_->selection.tensor(row.tensor);
  facts.totals.add(row, tensor, tabled_);
  if (row.known == StatisticsLevel::none) return;
  const bool knows_rounding = row.rounding_known || !is_narrow(tensor.dtype);
  facts.zeros.add(row.statistics.count > 0 && row.statistics.zeros == row.statistics.count && knows_rounding &&
                      row.rounding.flushed == 0 && row.input.flushed == 0,
                  row.step);
  const RowPosition position = position_of(row, block.rank);
  const bool skipped = block.step.skipped, fitted = context_->is_fitted(block.step);
  const bool is_used = !((skipped || fitted) && is_gradient(tensor.role));
  // Gradients that overflow in a skipped step are how a dynamic loss scale finds its level.
  if (stored_nonfinite(row, tensor.dtype) > 0 && !(skipped && comes_after_loss(context_->selection.op(row.tensor).phase))) {
    NonfiniteRows held{1, position, became_infinite(row, tensor.dtype), stored_infinities(row, tensor.dtype) > 0 ? uint64_t{1} : 0};
    held.steps.add(row.step);
    (context_->masks.may_be(row.tensor) && holds_mask(row) ? facts.masked : facts.nonfinite).add(held);
  }
  facts.noise_rows += noise_->fills(row);
  ranges.gradients_without_values += is_computed_gradient(tensor.role) && row.known == StatisticsLevel::health;
  if (first_rounding_) {
    ++ranges.backward_passes;
    if (!fitted && row.rounding.flushed == share_base(row) && facts.vanished_steps++ == 0) {
      facts.vanished_after = before_;
      facts.first_vanished = position;
    }
  }
  facts.least_scale = std::min(facts.least_scale, row.scale);
  facts.input.nonzero += row.input.nonzero;
  facts.input.flushed += row.input.flushed;
  facts.starved_rows += row.input.nonzero > 0 && row.input.flushed == row.input.nonzero;
  if (!is_float(tensor.dtype)) return;
  const FloatFormat& format = *info(tensor.dtype).format;
  if (row.known == StatisticsLevel::values && !skipped && row.statistics.largest > facts.kept_largest) {
    facts.kept_largest = row.statistics.largest;
    facts.kept_headroom = headroom(format, facts.kept_largest);
  }
  if (is_computed_gradient(tensor.role)) {
    // The gradients in FP16 say nothing where one was rounded.
    rounds_gradients_ = rounds_gradients_ || is_narrow(tensor.dtype);
    if (!rounds_gradients_) facts.in_fp16.add(what_if(row, tensor, binary16, row.scale));
  }
  if (read_in_fp16_ && is_computed_gradient(tensor.role) && read_in_fp16_->contains(block.part, row.tensor)) {
    Rounding flushing = rounding_of(tensor, binary16);
    flushing.subnormals = SubnormalResults::flush;
    if (const auto read = what_if(row, tensor, binary16, row.scale, flushing)) facts.read_in_fp16 += *read;
  }
  if (!is_narrow(tensor.dtype)) return;
  const bool quantized = is_quantized(tensor.dtype);
  const auto seen = as_seen(row);
  if (seen && is_used) facts.used += *seen;
  if (seen && is_gradient(tensor.role) && !quantized && tensor.rounding != RoundingMode::nearest_even) {
    if (const auto nearest = what_if(row, tensor, format, 1.0, {.subnormals = rounding_of(tensor).subnormals})) {
      const auto beyond = [&](uint64_t flushed) { return flushed > seen->flushed.lower ? flushed - seen->flushed.lower : 0; };
      facts.raised += {beyond(nearest->flushed.lower), beyond(nearest->flushed.upper)};
    }
  }
  if (quantized && fitted && is_gradient(tensor.role)) return;
  const bool has_no_history = quantized && delays_scales_ && row.quantization_scale == 1 && facts.scaled.seen.base == 0;
  ScaledRows& scaled = has_no_history ? facts.before_history : facts.scaled;
  if (seen && quantized) {
    ++scaled.rows;
    scaled.seen += *seen;
    scaled.largest_excess = std::max(scaled.largest_excess, row.statistics.largest / format.largest_finite());
  }
  RoundingBounds of_own_scale;
  if (quantized && row.statistics.largest > 0) {
    // what_if divides by row.quantization_scale as well.
    if (const auto own = what_if(row, tensor, format, row.statistics.largest / (format.largest_finite() * row.quantization_scale)))
      of_own_scale = *own;
    scaled.at_own_scale += of_own_scale;
  }
  if (seen && quantized) {
    const double limit = context_->options.flushed_limit;
    if (!scaled.first_lossy && share(seen->flushed.lower, seen->base) > limit) scaled.first_lossy = position;
    if (!scaled.first_stale && is_stale(*seen, of_own_scale, limit)) scaled.first_stale = position;
  }
  if (is_used) scaled.flush_loss.add(row, format, rounding_of(tensor));
  if (row.rounding_known && row.rounding.saturated > 0) {
    if (!facts.first_saturated) facts.first_saturated = position;
    if (is_gradient(tensor.role) && row.scale > 100000) ranges.saturated_above_100000 = true;
  }
  if (is_used && seen && !facts.first_flushed && share(seen->flushed.lower, seen->base) > context_->options.flushed_limit)
    facts.first_flushed = position;
  if (row.rounding_known && row.rounding.infinite() > 0) {
    (skipped ? scaled.overflow_skipped : scaled.overflow_kept).add(row.step);
    if (!scaled.first_overflow) scaled.first_overflow = position;
  }
}

}  // namespace ulpscope
