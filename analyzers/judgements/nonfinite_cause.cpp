#include "ulpscope/analyzers/judgements/nonfinite_cause.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "ulpscope/analyzers/judgements/captured_arithmetic.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/output_slots.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope {

namespace {

struct CauseInfo {
  NonfiniteCause cause;
  const char *name, *meaning;
};
constexpr std::array kCauses = std::to_array<CauseInfo>({
    {NonfiniteCause::overflow_on_cast, "overflow_on_cast", "a value too large for the type that it is cast to"},
    {NonfiniteCause::overflow_in_arithmetic, "overflow_in_arithmetic", "a result too large for its type"},
    {NonfiniteCause::overflow_of_a_sum, "overflow_of_a_sum", "a sum too large for what it is added up in, or for its type"},
    {NonfiniteCause::overflow_of_exp, "overflow_of_exp", "an exponential too large for its type"},
    {NonfiniteCause::division_by_zero, "division_by_zero", "a number divided by zero"},
    {NonfiniteCause::zero_over_zero, "zero_over_zero", "zero divided by zero"},
    {NonfiniteCause::zero_times_infinity, "zero_times_infinity", "zero times an infinite constant"},
    {NonfiniteCause::log_of_zero, "log_of_zero", "the logarithm of zero"},
    {NonfiniteCause::log_of_negative, "log_of_negative", "the logarithm of a negative number"},
    {NonfiniteCause::sqrt_of_negative, "sqrt_of_negative", "the square root of a negative number"},
    {NonfiniteCause::power_domain, "power_domain", "a power that is no real number"},
    {NonfiniteCause::masked_row, "masked_row", "a softmax of which the mask took every value of the row"},
    {NonfiniteCause::epsilon_flushed, "epsilon_flushed", "an optimizer's eps that is zero in the type of its arithmetic"},
    {NonfiniteCause::denominator_underflow, "denominator_underflow", "an optimizer's denominator that is zero"},
    {NonfiniteCause::second_moment_overflow, "second_moment_overflow", "a squared gradient too large for an optimizer's state"},
    {NonfiniteCause::bad_data, "bad_data", "a batch that held it"},
    {NonfiniteCause::bad_start, "bad_start", "a weight, state or constant that held it before the first op"},
    {NonfiniteCause::memory_changed, "memory_changed", "memory that was changed behind the producer's back"},
    {NonfiniteCause::unknown, "unknown", "not told by what was recorded"},
});
static_assert(kCauses.size() == kNonfiniteCauses);

namespace words {

constexpr Template kMemoryChanged{"cause.memory_changed", "{parameter} was changed in memory before."};
constexpr Template kOperandChanged{
    "cause.operand_changed",
    "Element {element} of {tensor} was finite where it was written, and {value:special} where {op} read it: memory that "
    "was changed in between."};
constexpr Template kBadStart{"cause.bad_start",
                             "It was so before the first op that was recorded in step {step}: look at how it was made or loaded."};
constexpr Template kSecondMoment{
    "cause.second_moment_overflow",
    "Element {element} is (1 - beta2) g^2 of a gradient of {gradient:.6g} and what was there: {square:.6g} and more, and "
    "{format} is infinite from {limit:.6g} on."};
constexpr Template kEpsilonFlushed{
    "cause.epsilon_flushed",
    "The update divides by 0: each of its operations is rounded to {format}{math:brackets}, which makes eps = {eps:g} zero, "
    "as all up to 2^{flushed:g} are, and (1 - beta2) g^2 too for gradients g up to 2^{gradient:.3g}; exp_avg / "
    "(sqrt(exp_avg_sq) + eps) is then exp_avg / 0."};
constexpr Template kMastersInFp32{"advice.masters_update_in_fp32", "{masters} updates in FP32"};
constexpr Template kMastersAreInFp32{"advice.masters_are_in_fp32", "FP32 master weights are updated in FP32"};
constexpr Template kUpdateInFp32{"advice.update_in_fp32", "An update in FP32{math:brackets}"};
constexpr Template kKeepsEpsilon{
    "advice.keeps_epsilon",
    "{masters}; {update} keeps eps, but second moments that are stored as zero leave eps alone to divide by, and updates of "
    "any length."};
constexpr Template kZeroMoments{
    "cause.denominator_underflow",
    "The update divides by 0: eps is 0, and so {moments:either is|are} {moments:count second moment}, as where all gradients "
    "so far were 0."};
constexpr Template kNeedsEpsilon{"advice.needs_epsilon", "Adam needs an eps above 0{epsilon:brackets}."};
constexpr Template kNoTarget{
    "cause.no_target",
    "All logits were finite, so the mean was one over no target, 0 / 0: the loss ignored every target of the batch."};
constexpr Template kNoTargetBySetting{
    "cause.no_target_by_setting",
    "All logits were finite, so the mean was one over no target, 0 / 0: {setting} ignored every target of the batch."};
constexpr Template kNoProbability{
    "cause.no_probability",
    "The model's output was finite but no probability: binary_cross_entropy takes the logarithm of it and of 1 minus it, and "
    "below 0 a logarithm is NaN."};
constexpr Template kEndWithSigmoid{"advice.end_with_sigmoid", "End the model with a sigmoid, or use bce_with_logits."};
constexpr Template kSum{"cause.sum", "Element {element} is a sum of {terms:count term}"};
constexpr Template kFirstTerm{"cause.first_term", "{sum}, the first of which is no finite number."};
constexpr Template kTermsUpTo{"cause.terms_up_to",
                              "{sum}: the first {terms} made {partial:.6g}, and with the next one it was no finite number."};
constexpr Template kWholeSum{"cause.whole_sum",
                             "{sum} that was {partial:.6g} before it was rounded, and {format} is infinite from {limit:.6g} on."};
constexpr Template kScaledSum{
    "cause.scaled_sum",
    "{sum} that was {partial:.6g}; times the inverse scales of its factors, {first:.6g} and {second:.6g}, it is {scaled:.6g}, and "
    "{format} is infinite from {limit:.6g} on."};
constexpr Template kMaskedRow{
    "cause.masked_row",
    "Element {element} stands in a row of {values:count value} of which the mask took every one: its softmax is "
    "exp(-infinity - -infinity), NaN."};
constexpr Template kLeaveOneValue{
    "advice.leave_one_value",
    "Let the mask leave each row one value at least, or add a large finite number to masked values instead."};
constexpr Template kRunningVariance{
    "cause.running_variance",
    "Element {element} is an average with the variance of {values} values from {smallest:.6g} to {largest:.6g}, which is "
    "{variance:.6g} at least; of it {momentum:g} is {added:.6g}, and {format} is infinite from {limit:.6g} on."};
constexpr Template kSmallerInputs{"advice.smaller_inputs_of_norm", "Make what is normalised smaller: its square has to fit."};
constexpr Template kNormOfOne{
    "cause.norm_of_one",
    "Element {element} is normalised by itself, the only value of its group, {value:.6g}: its variance is zero, and with an eps of "
    "zero so is the divisor."};
constexpr Template kRmsOfOne{
    "cause.rms_of_one",
    "Element {element} is normalised by itself, the only value of its group, {value:.6g}: its mean square is zero, and with an eps "
    "of zero so is the divisor."};
constexpr Template kNormOfEqual{
    "cause.norm_of_equal",
    "Element {element} is one of {values} values that were all {value:.6g}: their variance is zero, and with an eps of zero so is "
    "the divisor."};
constexpr Template kRmsOfEqual{
    "cause.rms_of_equal",
    "Element {element} is one of {values} values that were all {value:.6g}: their mean square is zero, and with an eps of zero so "
    "is the divisor."};
constexpr Template kLargerEpsilon{"advice.larger_epsilon_of_norm", "A larger eps keeps it from that."};
constexpr Template kZeroBehind{
    "cause.zero_was_flushed",
    "Before its rounding the zero was none: element {element} of {tensor} was {magnitude:.4g}, and {format} makes zero of all up "
    "to {flushed:.4g}."};
constexpr Template kZeroBehindAtMost{
    "cause.zero_was_flushed_at_most",
    "Before its rounding the zero was none: element {element} of {tensor} was at most {magnitude:.4g}, and {format} makes "
    "zero of all up to {flushed:.4g}."};
constexpr Template kLogSoftmax{"advice.log_softmax", "log_softmax gives the logarithm without the zero."};
constexpr Template kFp32Keeps{"advice.fp32_keeps", "In FP32 {place} keeps it."};
constexpr Template kKeepArgument{"advice.keep_argument",
                                 "Keep its argument from zero: add an epsilon to it, or clamp it to a least value."};
constexpr Template kKeepLogArgument{
    "advice.keep_argument_of_log",
    "Keep the argument of the logarithm from zero: add an epsilon to it, or clamp it to a least value."};
constexpr Template kKeepRadicand{"advice.keep_radicand",
                                 "Keep what the root is taken of from zero: add an epsilon to it, or clamp it to a least value."};
constexpr Template kKeepBase{"advice.keep_base", "Keep the base from zero: add an epsilon to it, or clamp it to a least value."};
constexpr Template kKeepDivisor{"advice.keep_divisor",
                                "Keep the divisor from zero: add an epsilon to it, or clamp it to a least value."};
constexpr Template kKeepPositive{"advice.keep_positive",
                                 "Keep its argument at zero or above: clamp it, or look at what made it negative."};
constexpr Template kNoTypeHolds{"advice.no_type_holds_factor", "No type holds that factor: take a finite one."};
constexpr Template kHoldsNoFactor{"advice.holds_no_factor", "{format} holds no factor above {largest:g}."};
constexpr Template kSmallerFactor{"advice.smaller_factor",
                                  "{format} holds no factor above {largest:g}: take a smaller one, or run this op in FP32."};
constexpr Template kSmallerFactorOrBf16{
    "advice.smaller_factor_or_bf16",
    "{format} holds no factor above {largest:g}: take a smaller one, or run this op in FP32 or BF16."};
constexpr Template kOperand{"cause.operand", "{value:.6g}"};
constexpr Template kOperandReadAsZero{"cause.operand_read_as_zero", "{value:.6g} read as 0"};
constexpr Template kByFactor{"cause.by_factor", " by {factor:g}"};
constexpr Template kOperation{"cause.operation", "Element {element} is {op}({operands:commas}){factor} = {result:special}."};
constexpr Template kTooLarge{
    "cause.too_large",
    "Element {element} is {op}({operands:commas}){factor} = {result:special}: {exact:.6g} is too large, {format} is infinite from "
    "{limit:.6g} on."};
constexpr Template kExceeded{
    "cause.exceeded",
    "All that it read was finite, and it holds infinities and no NaN: the magnitude of a result was above {largest:g}, the largest "
    "finite value of {format}."};
constexpr Template kSumExceeded{
    "cause.sum_exceeded",
    "All that it read was finite, and it holds infinities and no NaN: the magnitude of a sum, or of a part of it, was above "
    "{largest:g}, the largest finite value of {format}."};
constexpr Template kLogsOfZero{"cause.logs_of_zero",
                               "All that it read was finite, and it holds -infinity and no NaN: logarithms of zero."};
constexpr Template kLogsOfNegative{"cause.logs_of_negative",
                                   "All that it read was finite, and it holds NaN: logarithms of negative numbers."};
constexpr Template kRootsOfNegative{"cause.roots_of_negative",
                                    "All that it read was finite, and it holds NaN: square roots of negative numbers."};
constexpr Template kRootsOfZero{
    "cause.roots_of_zero", "All that it read was finite, and it holds infinities and no NaN: one over the square root of zero."};
constexpr Template kExponentials{
    "cause.exponentials",
    "All that it read was finite, and it holds infinities and no NaN: exponentials above {largest:g}, the largest finite value of "
    "{format}."};
constexpr Template kZerosOverZero{"cause.zeros_over_zero", "All that it read was finite, and it holds NaN: zero divided by zero."};
constexpr Template kDividedByZero{
    "cause.divided_by_zero",
    "All that it read was finite, and no quotient of the largest numerator and the smallest nonzero denominator is too large for "
    "{format}: the infinities are numbers divided by zero."};
constexpr Template kKeepNarrow{"advice.keep_exceeded", "Keep {place} in FP32 or BF16, or make its inputs smaller."};
constexpr Template kAddendFlushed{
    "cause.addend_flushed",
    "What was added to keep it from that, {addend:g}, became zero: the least number of {format} is {smallest:.3g}."};
constexpr Template kAddLarger{"advice.add_what_format_holds", "Add one that {format} holds, or run this in FP32."};

}  // namespace words

bool divides_by_second(OpFunction function) {
  return function == OpFunction::div || function == OpFunction::sqrt_backward || function == OpFunction::rsqrt_backward ||
         function == OpFunction::reciprocal_backward;
}

// The function makes infinity of so many operands, where these are finite, only because a result is too large for its type: it
// neither divides nor takes a logarithm. 0: other reasons may be.
size_t operands_of_exact(OpFunction function) {
  switch (function) {
    case OpFunction::cast:
    case OpFunction::copy:
    case OpFunction::scale:
    case OpFunction::sum:
    case OpFunction::mean:
    case OpFunction::accumulate:
      return 1;
    case OpFunction::add:
    case OpFunction::sub:
    case OpFunction::mul:
    case OpFunction::matmul:
    case OpFunction::linear:
    case OpFunction::convolution:
    case OpFunction::convolution_backward_input:
    case OpFunction::convolution_backward_weight:
    case OpFunction::transposed_convolution:
    case OpFunction::transposed_convolution_backward_input:
    case OpFunction::transposed_convolution_backward_weight:
      return 2;
    default:
      return 0;
  }
}

// The origin with what its op is, and what was captured of it.
class Origin {
 public:
  Origin(const RunFacts& facts, const NonfiniteOrigin& origin)
      : facts_(facts),
        origin_(origin),
        op_(facts.selection.op(origin.tensor)),
        made_(facts.selection.tensor(origin.tensor)),
        capture_(first_capture(facts.context.trace.of_rank(origin.position.rank), origin.tensor, origin.position.step,
                               origin.position.micro_batch)) {}

  NonfiniteExplanation explain() {
    NonfiniteExplanation explanation = find();
    explanation.capture = std::move(capture_);
    return explanation;
  }

 private:
  NonfiniteExplanation find() const;
  NonfiniteExplanation of_source() const;
  NonfiniteExplanation of_adam() const;
  NonfiniteExplanation of_loss() const;
  NonfiniteExplanation of_sum() const;
  NonfiniteExplanation of_scaled_sum(const Sentence& sum) const;
  NonfiniteExplanation of_normalisation() const;
  NonfiniteExplanation of_masked_row() const;
  NonfiniteExplanation of_running_variance() const;
  NonfiniteExplanation of_operands() const;
  // The rows alone tell: nothing was captured or counted.
  NonfiniteExplanation of_rows() const;
  // Explains a function that is not defined everywhere, by what its output holds. `read`: the rows of its inputs, all of them
  // finite.
  NonfiniteExplanation of_domain(const TensorRow& made, const std::vector<TensorRow>& read) const;

  NonfiniteCause cause_by_function(double x, double y) const;
  // The cast of a constant that was added so that the operand is not zero, and that became zero itself; nullptr: none.
  const CaptureRow* flushed_addend(const CaptureRow& operand) const;
  // Adds why an operand is zero where a rounding made it so, and what helps; nothing where that is not known.
  void explain_zero(const CaptureRow& operand, NonfiniteExplanation& found) const;
  // Advice that keeps the operands in the domain of the function, or of the one that this is the gradient of, or nothing.
  Sentences help_with_domain(NonfiniteCause cause) const;
  // Advice where a constant of the op is at fault, or nothing.
  Advice help_with_factor(double factor) const;
  // A parameter that the op read, or is, whose memory had changed by then; or "".
  std::string changed_parameter() const;
  // A subnormal, of an op that reads such as zero.
  bool is_read_as_zero(const CaptureRow& operand) const;
  // Says that an operand was captured which is not what its row says, or nothing.
  Sentence changed_operand() const;
  // By the last row before the origin's.
  bool was_written_finite(uint32_t tensor) const;
  // The last row of a tensor before the origin's, of its step or the one before.
  std::optional<TensorRow> last_row(uint32_t tensor) const;
  // Of a gradient that of the op whose result it is of.
  OpFunction function() const {
    const OpInfo* const forward = op_.phase == Phase::backward ? facts_.context.graph.served_by(op_) : nullptr;
    return forward != nullptr ? forward->function : op_.function;
  }
  // From which magnitude on the op's result is infinite in its type.
  double limit() const { return magnitude_thresholds(*info(made_.dtype).format, rounding_of(made_)).beyond.perhaps_above(); }
  // A tensor of which there were rows and that is that output of an op, or that the origin's reads as that input.
  std::optional<uint32_t> recorded(uint32_t op, uint32_t slot) const;
  std::optional<uint32_t> read_as(uint32_t input) const;
  // Second moments that were zero in the step of the origin.
  uint64_t zero_moments(uint32_t moments) const;
  // Up to the step of the origin.
  bool was_finite(uint32_t tensor) const {
    const auto first = facts_.ranges().nonfinite(tensor).first;
    return !first || first->step > origin_.position.step;
  }

  const RunFacts& facts_;
  const NonfiniteOrigin& origin_;
  const OpInfo& op_;
  const TensorInfo& made_;
  std::optional<CaptureTree> capture_;
};

std::optional<uint32_t> Origin::recorded(uint32_t op, uint32_t slot) const {
  for (const uint32_t i : facts_.context.graph.made_by(op, slot))
    if (facts_.ranges().find(i)) return i;
  return std::nullopt;
}

std::optional<uint32_t> Origin::read_as(uint32_t input) const {
  const GraphEdge* const edge = facts_.context.graph.read_by(made_.op, input);
  return edge == nullptr ? std::nullopt : recorded(edge->producer, edge->slot);
}

uint64_t Origin::zero_moments(uint32_t moments) const {
  uint64_t zeros = 0;
  facts_.context.trace.of_rank(origin_.position.rank)
      .visit_history(moments, {origin_.position.step, origin_.position.step + 1}, [&](std::span<const TensorRow> rows) {
        for (const TensorRow& row : rows) zeros += row.statistics.zeros + (row.before_rounding ? row.rounding.flushed : 0);
        return true;
      });
  return zeros;
}

std::string Origin::changed_parameter() const {
  const Snapshot of_rank = facts_.context.trace.of_rank(origin_.position.rank);
  const auto& events = of_rank.events();
  const auto is_of_step = [&](const EventRow& event) {
    return event.kind == EventKind::memory_changed && event.tensor >= 0 && event.step == origin_.position.step;
  };
  if (std::none_of(events.begin(), events.end(), is_of_step)) return "";
  std::set<std::string> read{made_.parameter};
  for (const GraphEdge& edge : facts_.context.trace.graph().edges())
    if (const auto tensor = edge.consumer == made_.op ? recorded(edge.producer, edge.slot) : std::nullopt)
      read.insert(facts_.selection.tensor(*tensor).parameter);
  read.erase("");
  for (const EventRow& event : events) {
    if (!is_of_step(event)) continue;
    const std::string& changed = facts_.selection.tensor(static_cast<uint32_t>(event.tensor)).parameter;
    if (read.contains(changed)) return changed;
  }
  return "";
}

std::optional<TensorRow> Origin::last_row(uint32_t tensor) const {
  const RowPosition& position = origin_.position;
  std::optional<TensorRow> last;
  facts_.context.trace.of_rank(position.rank)
      .visit_history(tensor, {position.step - std::min<uint64_t>(position.step, 1), position.step + 1},
                     [&](std::span<const TensorRow> rows) {
                       for (const TensorRow& row : rows)
                         if (position_of(row, position.rank) < position) last = row;
                       return true;
                     });
  return last;
}

bool Origin::was_written_finite(uint32_t tensor) const {
  const std::optional<TensorRow> last = last_row(tensor);
  return last && stored_nonfinite(*last, facts_.selection.tensor(tensor).dtype) == 0;
}

Sentence Origin::changed_operand() const {
  if (!capture_) return {};
  for (const CaptureRow* const operand : capture_->operands(capture_->element())) {
    if (operand->overwritten || operand->row.count > 0 || std::isfinite(operand->value) || operand->made_by < 0) continue;
    const auto made = static_cast<uint32_t>(operand->made_by);
    if (!facts_.selection.contains(made) || !was_written_finite(made)) continue;
    return words::kOperandChanged({{"element", ordinal(operand->element)},
                                   {"tensor", tensor_name(facts_.selection, made)},
                                   {"value", operand->value},
                                   {"op", Name{NameKind::op, op_.name}}});
  }
  return {};
}

NonfiniteExplanation Origin::find() const {
  if (const std::string changed = changed_parameter(); !changed.empty())
    return {NonfiniteCause::memory_changed, words::kMemoryChanged({{"parameter", Name{NameKind::parameter, changed}}})};
  if (const Sentence changed = changed_operand(); !changed.empty()) return {NonfiniteCause::memory_changed, changed};
  if (op_.kind == OpKind::source) return of_source();
  NonfiniteExplanation found;
  if (op_.function == OpFunction::adam_update) found = of_adam();
  if (op_.kind == OpKind::loss && made_.slot == 0) found = of_loss();
  if (found.cause == NonfiniteCause::unknown && capture_) {
    if (op_.kind == OpKind::normalisation)
      found = of_normalisation();
    else if (std::isfinite(capture_->element().partial_sum) && capture_->element().terms > 0)
      found = of_sum();
    else if (op_.kind == OpKind::elementwise || op_.kind == OpKind::cast)
      found = of_operands();
  }
  // Nothing was captured, but the rounding was counted.
  if (found.cause == NonfiniteCause::unknown && origin_.overflowed > 0)
    found.cause = op_.kind == OpKind::cast ? NonfiniteCause::overflow_on_cast : NonfiniteCause::overflow_in_arithmetic;
  if (found.cause == NonfiniteCause::unknown && !capture_) found = of_rows();
  return found;
}

NonfiniteExplanation Origin::of_domain(const TensorRow& made, const std::vector<TensorRow>& read) const {
  const FloatFormat& format = *info(made_.dtype).format;
  const TensorStatistics& held = made.statistics;
  const bool has_nan = held.nan > 0;
  const auto has_zeros = [](const TensorRow& row) { return row.statistics.zeros > 0; };
  const auto has_negatives = [](const TensorRow& row) {
    return row.known == StatisticsLevel::values && row.statistics.negatives > 0;
  };
  // Numbers as large and as small as those that were read cannot have a quotient that is too large.
  const auto divides_by_zero = [&](double largest, const TensorRow& divisor) {
    const bool is_known = divisor.known == StatisticsLevel::values && has_zeros(divisor);
    return is_known && (divisor.statistics.smallest == 0 || largest / divisor.statistics.smallest < limit());
  };
  const NonfiniteExplanation by_zero{NonfiniteCause::division_by_zero, words::kDividedByZero({{"format", format_name(format)}})};
  switch (op_.function) {
    case OpFunction::log:
      if (has_nan && has_negatives(read[0])) return {NonfiniteCause::log_of_negative, words::kLogsOfNegative()};
      if (!has_nan && held.positive_infinity == 0 && has_zeros(read[0])) return {NonfiniteCause::log_of_zero, words::kLogsOfZero()};
      break;
    case OpFunction::sqrt:
      if (has_nan && has_negatives(read[0])) return {NonfiniteCause::sqrt_of_negative, words::kRootsOfNegative()};
      break;
    case OpFunction::rsqrt:
      if (has_nan && has_negatives(read[0])) return {NonfiniteCause::sqrt_of_negative, words::kRootsOfNegative()};
      if (!has_nan && has_zeros(read[0])) return {NonfiniteCause::division_by_zero, words::kRootsOfZero()};
      break;
    case OpFunction::exp:
      if (has_nan) break;
      return {NonfiniteCause::overflow_of_exp,
              words::kExponentials({{"largest", format.largest_finite()}, {"format", format_name(format)}})};
    case OpFunction::div:
      if (read.size() != 2) break;
      if (has_nan && has_zeros(read[0]) && has_zeros(read[1])) return {NonfiniteCause::zero_over_zero, words::kZerosOverZero()};
      if (!has_nan && read[0].known == StatisticsLevel::values && divides_by_zero(read[0].statistics.largest, read[1]))
        return by_zero;
      break;
    case OpFunction::reciprocal:
      if (!has_nan && divides_by_zero(1, read[0])) return by_zero;
      break;
    default:
      break;
  }
  return {};
}

NonfiniteExplanation Origin::of_rows() const {
  if (!op_.inputs_told || made_.flushes_inputs || !is_float(made_.dtype)) return {};
  std::optional<TensorRow> made;
  facts_.context.trace.of_rank(origin_.position.rank)
      .visit_history(origin_.tensor, {origin_.position.step, origin_.position.step + 1}, [&](std::span<const TensorRow> rows) {
        for (const TensorRow& row : rows)
          if (position_of(row, origin_.position.rank) == origin_.position) made = row;
        return true;
      });
  if (!made) return {};
  std::vector<TensorRow> read;
  for (const GraphEdge& edge : facts_.context.trace.graph().inputs(made_.op)) {
    const auto tensor = recorded(edge.producer, edge.slot);
    const std::optional<TensorRow> row = tensor ? last_row(*tensor) : std::nullopt;
    if (!row || stored_nonfinite(*row, facts_.selection.tensor(*tensor).dtype) > 0) return {};
    read.push_back(*row);
  }
  if (read.empty()) return {};
  if (const NonfiniteExplanation found = of_domain(*made, read); found.cause != NonfiniteCause::unknown) return found;

  size_t operands = operands_of_exact(op_.function);
  const std::optional<double> constant = attribute(op_, "other");  // the second operand, where that is a number
  if (operands == 2 && op_.kind == OpKind::elementwise && constant && std::isfinite(*constant)) operands = 1;
  if (operands == 0 || read.size() < operands || !is_narrow(made_.dtype)) return {};
  if (op_.function == OpFunction::scale && !std::isfinite(attribute(op_, "factor").value_or(kUnknown))) return {};
  if (made->statistics.nan > 0 || stored_infinities(*made, made_.dtype) == 0) return {};
  const FloatFormat& format = *info(made_.dtype).format;
  const bool adds_up = op_.kind == OpKind::product || op_.kind == OpKind::reduction;
  NonfiniteExplanation found{
      op_.kind == OpKind::cast ? NonfiniteCause::overflow_on_cast : NonfiniteCause::overflow_in_arithmetic,
      (adds_up ? words::kSumExceeded : words::kExceeded)({{"largest", format.largest_finite()}, {"format", format_name(format)}})};
  if (has_range_of_fp32(made_.dtype)) return found;
  found.help = words::kKeepNarrow({{"place", typed_place(facts_.precision(), op_)}});
  note_wide_types(facts_.precision(), op_, made_.dtype, found.help);
  return found;
}

NonfiniteExplanation Origin::of_source() const {
  if (made_.role == Role::input) return {NonfiniteCause::bad_data};
  return {NonfiniteCause::bad_start, {}, words::kBadStart({{"step", ordinal(origin_.position.step)}})};
}

// An update of Adam. With each operation rounded eps becomes zero, and with it the divisor.
NonfiniteExplanation Origin::of_adam() const {
  const SettingNames& settings = facts_.context.settings;
  const auto stepwise = attribute(op_, "stepwise"), eps = attribute(op_, "eps"), beta2 = attribute(op_, "beta2");
  const auto squares = recorded(made_.op, kSecondMomentSlot);
  if (!eps || !beta2) return {};
  if (const CaptureRow* const gradient = capture_ ? capture_->operand(1) : nullptr; gradient && squares == origin_.tensor) {
    const double square = (1 - *beta2) * gradient->value * gradient->value;
    if (square >= limit())
      return {NonfiniteCause::second_moment_overflow, words::kSecondMoment({{"element", ordinal(capture_->element().element)},
                                                                            {"gradient", gradient->value},
                                                                            {"square", square},
                                                                            {"format", format_name(*info(made_.dtype).format)},
                                                                            {"limit", limit()}})};
  }
  if (is_narrow(made_.dtype) && stepwise.value_or(0) != 0 && squares) {
    const FloatFormat& format = *info(made_.dtype).format;
    const double flushed = magnitude_thresholds(format, rounding_of(made_)).flushed.surely_below;
    const RangeTotals& totals = facts_.ranges().find(*squares)->judged.totals;
    if (*eps > 0 && *eps <= flushed && totals.seen.flushed.lower + totals.zeros > 0) {
      Advice help;
      const Setting once =
          help.set(settings.changed(SettingKind::update_math, settings.words().parameter_math, settings.words().fp32));
      const Setting masters = help.set(settings.switched(SettingKind::master_weights, true));
      const Value update =
          once.empty() ? Value(words::kUpdateInFp32({{"math", settings.name(SettingKind::update_math)}})) : Value(once);
      help.text = words::kKeepsEpsilon(
          {{"masters", masters.empty() ? words::kMastersAreInFp32() : words::kMastersInFp32({{"masters", masters}})},
           {"update", update}});
      return {NonfiniteCause::epsilon_flushed,
              words::kEpsilonFlushed({{"format", format_name(format)},
                                      {"math", settings.with_value(SettingKind::update_math)},
                                      {"eps", *eps},
                                      {"flushed", {std::log2(flushed), Unit::exponent}},
                                      {"gradient", {0.5 * std::log2(flushed / (1 - *beta2)), Unit::exponent}}}),
              std::move(help)};
    }
  }
  const uint64_t zeros = *eps == 0 && squares ? zero_moments(*squares) : 0;
  if (zeros > 0) {
    Advice help;
    help.text = words::kNeedsEpsilon({{"epsilon", help.raise(settings.now(SettingKind::epsilon))}});
    return {NonfiniteCause::denominator_underflow, words::kZeroMoments({{"moments", zeros}}), std::move(help)};
  }
  return {};
}

// A loss that is NaN for finite inputs.
NonfiniteExplanation Origin::of_loss() const {
  if (facts_.ranges().infinities(origin_.tensor) > 0) return {};
  if (op_.function == OpFunction::binary_cross_entropy) {
    const auto probability = read_as(0), target = read_as(1);
    if (!probability || !was_finite(*probability) || (target && !was_finite(*target))) return {};
    NonfiniteExplanation sum;
    if (capture_ && capture_->element().terms > 0) sum = of_sum();
    Advice help = Sentences{words::kNoProbability(), words::kEndWithSigmoid()};
    const ProducerWords& words = facts_.context.settings.words();
    if (facts_.context.settings.has(words.loss_function))
      help.note({.value = std::string(words.bce_with_logits), .name = std::string(words.loss_function)});
    return {NonfiniteCause::log_of_negative, sum.story, std::move(help)};
  }
  const auto sums = recorded(made_.op, kSumsOfExponentsSlot);
  if (op_.function != OpFunction::cross_entropy || !sums || !was_finite(*sums)) return {};
  const std::string_view ignored = facts_.context.settings.words().ignored_targets;
  const bool is_set = facts_.context.settings.has(ignored);
  return {NonfiniteCause::zero_over_zero,
          {},
          is_set ? words::kNoTargetBySetting({{"setting", Setting{std::string(ignored)}}}) : words::kNoTarget()};
}

// What was added up before its rounding, or before the term at which it broke.
NonfiniteExplanation Origin::of_sum() const {
  const CaptureRow& element = capture_->element();
  const Sentence sum = words::kSum({{"element", ordinal(element.element)}, {"terms", element.terms}});
  if (element.broke_at == 0) return {NonfiniteCause::overflow_of_a_sum, words::kFirstTerm({{"sum", sum}})};
  if (element.broke_at > 0)
    return {NonfiniteCause::overflow_of_a_sum,
            words::kTermsUpTo({{"sum", sum}, {"terms", element.broke_at}, {"partial", element.partial_sum}})};
  if (std::abs(element.partial_sum) < limit()) return of_scaled_sum(sum);
  return {NonfiniteCause::overflow_of_a_sum, words::kWholeSum({{"sum", sum},
                                                               {"partial", element.partial_sum},
                                                               {"format", format_name(*info(made_.dtype).format)},
                                                               {"limit", limit()}})};
}

// What was added up is multiplied by the inverse scales of both factors.
NonfiniteExplanation Origin::of_scaled_sum(const Sentence& sum) const {
  if (op_.function != OpFunction::scaled_matmul) return {};
  const CaptureRow *const first = capture_->operand(kFirstInverseScale), *const second = capture_->operand(kSecondInverseScale);
  if (first == nullptr || second == nullptr) return {};
  const double scaled = capture_->element().partial_sum * first->value * second->value;
  if (!(std::abs(scaled) >= limit())) return {};
  return {NonfiniteCause::overflow_of_a_sum, words::kScaledSum({{"sum", sum},
                                                                {"partial", capture_->element().partial_sum},
                                                                {"first", first->value},
                                                                {"second", second->value},
                                                                {"scaled", scaled},
                                                                {"format", format_name(*info(made_.dtype).format)},
                                                                {"limit", limit()}})};
}

// A softmax over no value, as where each has -infinity added to it.
NonfiniteExplanation Origin::of_masked_row() const {
  constexpr int kMask = 1;
  for (const CaptureRow* const node : capture_->operands(capture_->element())) {
    if (node->operand != kMask || node->overwritten || node->row.count < 1 || !(node->row.smallest > 0)) continue;
    return {NonfiniteCause::masked_row,
            words::kMaskedRow({{"element", ordinal(capture_->element().element)}, {"values", node->row.count}}),
            Advice(words::kLeaveOneValue())};
  }
  return {};
}

// The variance of n values is at least (largest - smallest)^2 / (2 n): that of these two and of n - 2 in their middle.
// momentum times it, unbiased, is added to what is no less than zero.
NonfiniteExplanation Origin::of_running_variance() const {
  const auto momentum = attribute(op_, "momentum");
  if (!momentum) return {};
  for (const CaptureRow* const node : capture_->operands(capture_->element())) {
    const CaptureRow::Row& row = node->row;
    if (row.count < 2 || row.nonfinite > 0) continue;
    const double n = static_cast<double>(row.count), range = row.largest - row.smallest;
    const double least = range * range / (2 * n), added = *momentum * least * n / (n - 1);
    if (!(added >= limit())) continue;
    return {NonfiniteCause::overflow_of_a_sum,
            words::kRunningVariance({{"element", ordinal(capture_->element().element)},
                                     {"values", row.count},
                                     {"smallest", row.smallest},
                                     {"largest", row.largest},
                                     {"variance", least * n / (n - 1)},
                                     {"momentum", *momentum},
                                     {"added", added},
                                     {"format", format_name(*info(made_.dtype).format)},
                                     {"limit", limit()}}),
            Advice(words::kSmallerInputs())};
  }
  return {};
}

// Where all values of a row are the same, their variance is zero.
NonfiniteExplanation Origin::of_normalisation() const {
  if (op_.function == OpFunction::masked_softmax) return of_masked_row();
  if (is_running_statistic(made_, op_)) return made_.slot == kRunningVarianceSlot ? of_running_variance() : NonfiniteExplanation{};
  const auto eps = attribute(op_, "eps");
  const bool has_variance = op_.function == OpFunction::batch_norm || op_.function == OpFunction::layer_norm ||
                            op_.function == OpFunction::group_norm || op_.function == OpFunction::rms_norm;
  if (!has_variance || !eps || *eps != 0) return {};
  for (const CaptureRow* const node : capture_->operands(capture_->element())) {
    const CaptureRow::Row& row = node->row;
    const bool is_rms = op_.function == OpFunction::rms_norm;
    if (row.count < 1 || row.nonfinite > 0 || row.largest != row.smallest || (is_rms && row.largest != 0)) continue;
    Advice help = words::kLargerEpsilon();
    help.note({.kind = SettingKind::epsilon, .way = SettingChange::Way::raise, .module = op_.module});
    const Value element = ordinal(capture_->element().element);
    if (row.count == 1)
      return {NonfiniteCause::zero_over_zero,
              (is_rms ? words::kRmsOfOne : words::kNormOfOne)({{"element", element}, {"value", row.largest}}), std::move(help)};
    return {
        NonfiniteCause::zero_over_zero,
        (is_rms ? words::kRmsOfEqual : words::kNormOfEqual)({{"element", element}, {"values", row.count}, {"value", row.largest}}),
        std::move(help)};
  }
  return {};
}

// Of finite x and y; NaN: there is none.
NonfiniteCause Origin::cause_by_function(double x, double y) const {
  const bool is_nan = std::isnan(capture_->element().value);
  switch (op_.function) {
    case OpFunction::log:
      return x == 0 ? NonfiniteCause::log_of_zero : NonfiniteCause::log_of_negative;
    case OpFunction::sqrt:
      return NonfiniteCause::sqrt_of_negative;
    case OpFunction::rsqrt:
      return x < 0 ? NonfiniteCause::sqrt_of_negative : NonfiniteCause::division_by_zero;
    case OpFunction::reciprocal:
      if (x == 0) return NonfiniteCause::division_by_zero;
      break;
    case OpFunction::div:
      if (y == 0) return x == 0 ? NonfiniteCause::zero_over_zero : NonfiniteCause::division_by_zero;
      break;
    case OpFunction::sqrt_backward:
    case OpFunction::rsqrt_backward:
    case OpFunction::reciprocal_backward:
      if (y == 0) return is_nan ? NonfiniteCause::zero_over_zero : NonfiniteCause::division_by_zero;
      break;
    case OpFunction::pow:
      if (is_nan) return NonfiniteCause::power_domain;
      if (x == 0) return NonfiniteCause::division_by_zero;
      break;
    case OpFunction::exp:
      return NonfiniteCause::overflow_of_exp;
    default:
      break;
  }
  if (is_nan && x == 0 && std::isinf(y)) return NonfiniteCause::zero_times_infinity;
  if (is_nan) return NonfiniteCause::unknown;
  return op_.kind == OpKind::cast ? NonfiniteCause::overflow_on_cast : NonfiniteCause::overflow_in_arithmetic;
}

const CaptureRow* Origin::flushed_addend(const CaptureRow& operand) const {
  const auto op_of = [&](const CaptureRow& node) -> const OpInfo* {
    return node.made_by < 0 ? nullptr : &facts_.selection.op(static_cast<uint32_t>(node.made_by));
  };
  const OpInfo* const sum = op_of(operand);
  if (operand.value != 0 || sum == nullptr || sum->function != OpFunction::add) return nullptr;
  for (const CaptureRow* const addend : capture_->operands(operand)) {
    const OpInfo* const cast = op_of(*addend);
    if (addend->value != 0 || cast == nullptr || cast->kind != OpKind::cast) continue;
    for (const CaptureRow* const from : capture_->operands(*addend))
      if (from->made_by < 0 && std::isfinite(from->value) && from->value != 0) return addend;
  }
  return nullptr;
}

bool Origin::is_read_as_zero(const CaptureRow& operand) const {
  if (!made_.flushes_inputs || operand.value == 0) return false;
  const DType dtype = operand.made_by < 0 ? DType::f32 : facts_.selection.tensor(static_cast<uint32_t>(operand.made_by)).dtype;
  return is_float(dtype) && std::abs(operand.value) < info(dtype).format->smallest_normal();
}

void Origin::explain_zero(const CaptureRow& operand, NonfiniteExplanation& found) const {
  const auto flushed = flushed_element_behind(facts_.selection, *capture_, operand);
  if (!flushed) return;
  const auto tensor = static_cast<uint32_t>(flushed->node->made_by);
  const TensorInfo& made = facts_.selection.tensor(tensor);
  const OpInfo& op = facts_.selection.op(tensor);
  found.story +=
      (flushed->is_bound ? words::kZeroBehindAtMost : words::kZeroBehind)({{"element", ordinal(flushed->node->element)},
                                                                           {"tensor", tensor_name(facts_.selection, tensor)},
                                                                           {"magnitude", flushed->magnitude},
                                                                           {"format", format_name(*info(made.dtype).format)},
                                                                           {"flushed", flushed->flushed_up_to}});
  const bool takes_log = function() == OpFunction::log && op.function == OpFunction::softmax;
  if (takes_log) found.help = Advice(words::kLogSoftmax());
  if (!is_narrow(made.dtype) || flushed->is_bound || flushed->magnitude < binary32.smallest_positive()) return;
  found.fp32_keeps = true;
  Advice wide = words::kFp32Keeps({{"place", op.module.empty() ? Name{NameKind::op, op.name} : Name{NameKind::module, op.module}}});
  note_wide_types(facts_.precision(), op, made.dtype, wide);
  found.help += wide;
}

Sentences Origin::help_with_domain(NonfiniteCause cause) const {
  switch (cause) {
    case NonfiniteCause::log_of_zero:
      return words::kKeepArgument();
    case NonfiniteCause::log_of_negative:
    case NonfiniteCause::sqrt_of_negative:
      return words::kKeepPositive();
    case NonfiniteCause::division_by_zero:
    case NonfiniteCause::zero_over_zero:
      switch (function()) {
        case OpFunction::log:
          return words::kKeepLogArgument();
        case OpFunction::sqrt:
        case OpFunction::rsqrt:
          return words::kKeepRadicand();
        case OpFunction::pow:
          return words::kKeepBase();
        default:
          return words::kKeepDivisor();
      }
    default:
      return {};
  }
}

Advice Origin::help_with_factor(double factor) const {
  Advice help;
  if (std::abs(factor) < limit()) return help;
  if (op_.phase == Phase::loss && op_.module.empty())
    help.note({.kind = SettingKind::loss_factor, .way = SettingChange::Way::lower});
  else
    help.note({.way = SettingChange::Way::lower, .module = op_.module, .now = factor});
  help.text = words::kNoTypeHolds();
  if (!std::isfinite(factor)) return help;
  const FloatFormat& format = *info(made_.dtype).format;
  const auto with_format = [&](const Template& words) {
    return words({{"format", format_name(format)}, {"largest", format.largest_finite()}});
  };
  help.text = with_format(words::kHoldsNoFactor);
  if (!is_narrow(format)) return help;
  help.text = with_format(has_range_of_fp32(made_.dtype) ? words::kSmallerFactor : words::kSmallerFactorOrBf16);
  note_wide_types(facts_.precision(), op_, made_.dtype, help);
  return help;
}

NonfiniteExplanation Origin::of_operands() const {
  const CaptureRow& element = capture_->element();
  const std::vector<const CaptureRow*> operands = capture_->operands(element);
  if (operands.empty() || operands.size() > 3) return {};
  Value::List arguments;
  std::vector<double> read;  // by the op, which may take subnormals as zero
  for (const CaptureRow* const operand : operands) {
    if (operand->overwritten || operand->row.count > 0 || !std::isfinite(operand->value)) return {};
    const bool as_zero = is_read_as_zero(*operand);
    read.push_back(as_zero ? std::copysign(0.0, operand->value) : operand->value);
    arguments.push_back((as_zero ? words::kOperandReadAsZero : words::kOperand)({{"value", operand->value}}));
  }
  const bool has_factor = op_.function == OpFunction::scale && attribute(op_, "factor").has_value();
  const double factor = has_factor ? *attribute(op_, "factor") : kUnknown;
  const double x = read[0], y = read.size() > 1 ? read[1] : factor;
  NonfiniteExplanation found{cause_by_function(x, y)};
  if (has_factor) found.help = help_with_factor(factor);
  const Value at = ordinal(element.element), list = Value::list(std::move(arguments)),
              by = has_factor ? Value(words::kByFactor({{"factor", factor}})) : Value();
  const Name op{NameKind::op, op_.name};
  const std::optional<double> exact = exact_result(op_.function, x, y);
  if (exact && std::isfinite(*exact) && std::abs(*exact) >= limit())
    found.story = words::kTooLarge({{"element", at},
                                    {"op", op},
                                    {"operands", list},
                                    {"factor", by},
                                    {"result", element.value},
                                    {"exact", *exact},
                                    {"format", format_name(*info(made_.dtype).format)},
                                    {"limit", limit()}});
  else
    found.story = words::kOperation({{"element", at}, {"op", op}, {"operands", list}, {"factor", by}, {"result", element.value}});
  const bool is_divided = found.cause == NonfiniteCause::division_by_zero || found.cause == NonfiniteCause::zero_over_zero;
  const CaptureRow* const divisor = operands[divides_by_second(op_.function) && operands.size() > 1 ? 1 : 0];
  if (const CaptureRow* const cast = is_divided ? flushed_addend(*divisor) : nullptr) {
    const FloatFormat& format = *info(facts_.selection.tensor(static_cast<uint32_t>(cast->made_by)).dtype).format;
    found.story += words::kAddendFlushed({{"addend", capture_->operands(*cast).front()->value},
                                          {"format", format_name(format)},
                                          {"smallest", format.smallest_positive()}});
    found.help = Advice(words::kAddLarger({{"format", format_name(format)}}));
    found.help.note({.kind = SettingKind::epsilon, .way = SettingChange::Way::raise, .module = op_.module});
    found.help.note({.kind = SettingKind::precision_of_modules,
                     .value = std::string(facts_.context.settings.words().fp32),
                     .module = op_.module});
  } else if (is_divided || found.cause == NonfiniteCause::log_of_zero) {
    explain_zero(*divisor, found);
  }
  if (found.help.text.empty()) found.help = Advice(help_with_domain(found.cause));
  return found;
}

}  // namespace

const char* name_of(NonfiniteCause cause) { return kCauses[static_cast<size_t>(cause)].name; }
const char* meaning_of(NonfiniteCause cause) { return kCauses[static_cast<size_t>(cause)].meaning; }

NonfiniteExplanation explain(const RunFacts& facts, const NonfiniteOrigin& origin) { return Origin(facts, origin).explain(); }

}  // namespace ulpscope
