#include "ulpscope/analyzers/judgements/nonfinite_cause.h"

#include <fmt/format.h>

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
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/base/text.h"

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

bool divides_by_second(OpFunction function) {
  return function == OpFunction::div || function == OpFunction::sqrt_backward || function == OpFunction::rsqrt_backward ||
         function == OpFunction::reciprocal_backward;
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
  NonfiniteExplanation of_scaled_sum(const std::string& sum) const;
  NonfiniteExplanation of_normalisation() const;
  NonfiniteExplanation of_masked_row() const;
  NonfiniteExplanation of_running_variance() const;
  NonfiniteExplanation of_operands() const;

  NonfiniteCause cause_by_function(double x, double y) const;
  // The cast of a constant that was added so that the operand is not zero, and that became zero itself; nullptr: none.
  const CaptureRow* flushed_addend(const CaptureRow& operand) const;
  // What is said of an operand that is zero because a rounding made it so, and what helps; "" where that is not known.
  void explain_zero(const CaptureRow& operand, NonfiniteExplanation& found) const;
  // What keeps the operands in the domain of the function, or of the one that this is the gradient of, or "".
  std::string help_with_domain(NonfiniteCause cause) const;
  // What helps where a constant of the op is at fault, or "".
  Advice help_with_factor(double factor) const;
  // A parameter that the op read, or is, whose memory had changed by then; or "".
  std::string changed_parameter() const;
  // A subnormal, of an op that reads such as zero.
  bool is_read_as_zero(const CaptureRow& operand) const;
  // That an operand was captured which is not what its row says, or "".
  std::string changed_operand() const;
  // By the last row before the origin's.
  bool was_written_finite(uint32_t tensor) const;
  // Of a gradient that of the op whose result it is of.
  OpFunction function() const {
    const OpInfo* const forward = op_.phase == Phase::backward ? facts_.context.graph.served_by(op_) : nullptr;
    return forward != nullptr ? forward->function : op_.function;
  }
  // From which magnitude on the op's result is infinite in its type.
  double limit() const { return magnitude_thresholds(*info(made_.dtype).format, rounding_of(made_)).beyond.perhaps_above(); }
  // A tensor of which there were rows and that is that output of an op, or that the origin's reads as that input.
  std::optional<uint32_t> recorded(uint32_t op, uint8_t slot) const;
  std::optional<uint32_t> read_as(uint8_t input) const;
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

std::optional<uint32_t> Origin::recorded(uint32_t op, uint8_t slot) const {
  for (const uint32_t i : facts_.context.graph.made_by(op, slot))
    if (facts_.ranges().find(i)) return i;
  return std::nullopt;
}

std::optional<uint32_t> Origin::read_as(uint8_t input) const {
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

bool Origin::was_written_finite(uint32_t tensor) const {
  const RowPosition& position = origin_.position;
  std::optional<uint64_t> nonfinite;  // of the last row before the origin's
  facts_.context.trace.of_rank(position.rank)
      .visit_history(tensor, {position.step - std::min<uint64_t>(position.step, 1), position.step + 1},
                     [&](std::span<const TensorRow> rows) {
                       for (const TensorRow& row : rows)
                         if (position_of(row, position.rank) < position)
                           nonfinite = stored_nonfinite(row, facts_.selection.tensor(tensor).dtype);
                       return true;
                     });
  return nonfinite == 0u;
}

std::string Origin::changed_operand() const {
  if (!capture_) return "";
  for (const CaptureRow* const operand : capture_->operands(capture_->element())) {
    if (operand->overwritten || operand->row.count > 0 || std::isfinite(operand->value) || operand->made_by < 0) continue;
    const auto made = static_cast<uint32_t>(operand->made_by);
    if (!facts_.selection.contains(made) || !was_written_finite(made)) continue;
    return fmt::format(
        "Element {} of {} was finite where it was written, and {} where {} read it: memory that was changed in between. ",
        operand->element, facts_.selection.name(made),
        std::isnan(operand->value) ? "NaN"
        : operand->value > 0       ? "infinity"
                                   : "-infinity",
        op_.name);
  }
  return "";
}

NonfiniteExplanation Origin::find() const {
  if (const std::string changed = changed_parameter(); !changed.empty())
    return {NonfiniteCause::memory_changed, fmt::format("{} was changed in memory before. ", changed)};
  if (const std::string changed = changed_operand(); !changed.empty()) return {NonfiniteCause::memory_changed, changed};
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
  return found;
}

NonfiniteExplanation Origin::of_source() const {
  if (made_.role == Role::input) return {NonfiniteCause::bad_data};
  return {NonfiniteCause::bad_start, "",
          fmt::format("It was so before the first op that was recorded in step {}: look at how it was made or loaded. ",
                      origin_.position.step)};
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
      return {NonfiniteCause::second_moment_overflow,
              fmt::format("Element {} is (1 - beta2) g^2 of a gradient of {:.6g} and what was there: {:.6g} and more, and {} is "
                          "infinite from {:.6g} on. ",
                          capture_->element().element, gradient->value, square, info(made_.dtype).format->name, limit())};
  }
  if (is_narrow(made_.dtype) && stepwise.value_or(0) != 0 && squares) {
    const FloatFormat& format = *info(made_.dtype).format;
    const double flushed = magnitude_thresholds(format, rounding_of(made_)).flushed.surely_below;
    const RangeTotals& totals = facts_.ranges().find(*squares)->judged.totals;
    if (*eps > 0 && *eps <= flushed && totals.seen.flushed.lower + totals.zeros > 0) {
      Advice help;
      std::string once = help.set(settings.changed(SettingKind::update_math, "\"param\"", "\"fp32\""));
      std::string masters = help.set(settings.switched(SettingKind::master_weights, true));
      if (once.empty()) once = "An update in FP32" + in_brackets({settings.name(SettingKind::update_math)});
      masters = masters.empty() ? "FP32 master weights are updated in FP32" : masters + " updates in FP32";
      help.text = fmt::format(
          "{}; {} keeps eps, but second moments that are stored as zero leave eps alone to divide by, and updates of any length. ",
          masters, once);
      return {NonfiniteCause::epsilon_flushed,
              fmt::format("The update divides by 0: each of its operations is rounded to {0}{1}, which makes eps = {2:g} zero, as "
                          "all up to 2^{3:g} are, and (1 - beta2) g^2 too for gradients g up to 2^{4:.3g}; exp_avg / "
                          "(sqrt(exp_avg_sq) + eps) is then exp_avg / 0. ",
                          format.name, in_brackets({settings.with_value(SettingKind::update_math)}), *eps, std::log2(flushed),
                          0.5 * std::log2(flushed / (1 - *beta2))),
              std::move(help)};
    }
  }
  const uint64_t zeros = *eps == 0 && squares ? zero_moments(*squares) : 0;
  if (zeros > 0) {
    Advice help;
    help.text = fmt::format("Adam needs an eps above 0{}. ", in_brackets({help.raise(settings.now(SettingKind::epsilon))}));
    return {NonfiniteCause::denominator_underflow,
            fmt::format("The update divides by 0: eps is 0, and so {} {}, as where all gradients so far were 0. ",
                        zeros == 1 ? "is" : "are", count_of(zeros, "second moment")),
            std::move(help)};
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
    Advice help =
        "The model's output was finite but no probability: binary_cross_entropy takes the logarithm of it and of 1 minus it, "
        "and below 0 a logarithm is NaN. End the model with a sigmoid, or use bce_with_logits. ";
    if (facts_.context.settings.has("loss.function")) help.note({.value = "\"bce_with_logits\"", .name = "loss.function"});
    return {NonfiniteCause::log_of_negative, sum.story, std::move(help)};
  }
  const auto sums = recorded(made_.op, kSumsOfExponentsSlot);
  if (op_.function != OpFunction::cross_entropy || !sums || !was_finite(*sums)) return {};
  return {NonfiniteCause::zero_over_zero, "",
          fmt::format("All logits were finite, so the mean was one over no target, 0 / 0: {} every target of the batch. ",
                      facts_.context.settings.has("loss.ignore_index") ? "loss.ignore_index ignored" : "the loss ignored")};
}

// What was added up before its rounding, or before the term at which it broke.
NonfiniteExplanation Origin::of_sum() const {
  const CaptureRow& element = capture_->element();
  const std::string sum =
      fmt::format("Element {} is a sum of {}", element.element, count_of(static_cast<uint64_t>(element.terms), "term"));
  if (element.broke_at == 0) return {NonfiniteCause::overflow_of_a_sum, sum + ", the first of which is no finite number. "};
  if (element.broke_at > 0)
    return {NonfiniteCause::overflow_of_a_sum, fmt::format("{}: the first {} made {:.6g}, and with the next one it was no finite "
                                                           "number. ",
                                                           sum, element.broke_at, element.partial_sum)};
  if (std::abs(element.partial_sum) < limit()) return of_scaled_sum(sum);
  return {NonfiniteCause::overflow_of_a_sum,
          fmt::format("{} that was {:.6g} before it was rounded, and {} is infinite from {:.6g} on. ", sum, element.partial_sum,
                      info(made_.dtype).format->name, limit())};
}

// What was added up is multiplied by the inverse scales of both factors.
NonfiniteExplanation Origin::of_scaled_sum(const std::string& sum) const {
  if (op_.function != OpFunction::scaled_matmul) return {};
  const CaptureRow *const first = capture_->operand(kFirstInverseScale), *const second = capture_->operand(kSecondInverseScale);
  if (first == nullptr || second == nullptr) return {};
  const double scaled = capture_->element().partial_sum * first->value * second->value;
  if (!(std::abs(scaled) >= limit())) return {};
  return {NonfiniteCause::overflow_of_a_sum,
          fmt::format("{} that was {:.6g}; times the inverse scales of its factors, {:.6g} and {:.6g}, it is {:.6g}, and {} is "
                      "infinite from {:.6g} on. ",
                      sum, capture_->element().partial_sum, first->value, second->value, scaled, info(made_.dtype).format->name,
                      limit())};
}

// A softmax over no value, as where each has -infinity added to it.
NonfiniteExplanation Origin::of_masked_row() const {
  constexpr int kMask = 1;
  for (const CaptureRow* const node : capture_->operands(capture_->element())) {
    if (node->operand != kMask || node->overwritten || node->row.count < 1 || !(node->row.smallest > 0)) continue;
    return {NonfiniteCause::masked_row,
            fmt::format("Element {} stands in a row of {} of which the mask took every one: its softmax is "
                        "exp(-infinity - -infinity), NaN. ",
                        capture_->element().element, count_of(static_cast<uint64_t>(node->row.count), "value")),
            "Let the mask leave each row one value at least, or add a large finite number to masked values instead. "};
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
            fmt::format("Element {} is an average with the variance of {} values from {:.6g} to {:.6g}, which is {:.6g} at least; "
                        "of it {:g} is "
                        "{:.6g}, and {} is infinite from {:.6g} on. ",
                        capture_->element().element, row.count, row.smallest, row.largest, least * n / (n - 1), *momentum, added,
                        info(made_.dtype).format->name, limit()),
            "Make what is normalised smaller: its square has to fit. "};
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
    Advice help = "A larger eps keeps it from that. ";
    help.note({.kind = SettingKind::epsilon, .way = SettingChange::Way::raise, .module = op_.module});
    return {NonfiniteCause::zero_over_zero,
            fmt::format("Element {} is {} {:.6g}: {} {} is zero, and with an eps of zero so is the divisor. ",
                        capture_->element().element,
                        row.count == 1 ? "normalised by itself, the only value of its group,"
                                       : fmt::format("one of {} values that were all", row.count),
                        row.largest, row.count == 1 ? "its" : "their", is_rms ? "mean square" : "variance"),
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
      fmt::format("Before its rounding the zero was none: element {} of {} was {}{:.4g}, and {} makes zero of all up to {:.4g}. ",
                  flushed->node->element, facts_.selection.name(tensor), flushed->is_bound ? "at most " : "", flushed->magnitude,
                  info(made.dtype).format->name, flushed->flushed_up_to);
  const bool takes_log = function() == OpFunction::log && op.function == OpFunction::softmax;
  if (takes_log) found.help = "log_softmax gives the logarithm without the zero. ";
  if (!is_narrow(made.dtype) || flushed->is_bound || flushed->magnitude < binary32.smallest_positive()) return;
  const std::string_view where = op.module.empty() ? op.name : op.module;
  found.fp32_keeps = true;
  Advice wide = fmt::format("In FP32 {} keeps it. ", where);
  note_wide_types(facts_.precision(), op, made.dtype, wide);
  found.help += wide;
}

std::string Origin::help_with_domain(NonfiniteCause cause) const {
  const auto keep = [&](std::string_view operand) {
    return fmt::format("Keep {} from zero: add an epsilon to it, or clamp it to a least value. ", operand);
  };
  switch (cause) {
    case NonfiniteCause::log_of_zero:
      return keep("its argument");
    case NonfiniteCause::log_of_negative:
    case NonfiniteCause::sqrt_of_negative:
      return "Keep its argument at zero or above: clamp it, or look at what made it negative. ";
    case NonfiniteCause::division_by_zero:
    case NonfiniteCause::zero_over_zero:
      switch (function()) {
        case OpFunction::log:
          return keep("the argument of the logarithm");
        case OpFunction::sqrt:
        case OpFunction::rsqrt:
          return keep("what the root is taken of");
        case OpFunction::pow:
          return keep("the base");
        default:
          return keep("the divisor");
      }
    default:
      return "";
  }
}

Advice Origin::help_with_factor(double factor) const {
  Advice help;
  if (std::abs(factor) < limit()) return help;
  if (op_.phase == Phase::loss && op_.module.empty())
    help.note({.kind = SettingKind::loss_factor, .way = SettingChange::Way::lower});
  else
    help.note({.way = SettingChange::Way::lower, .module = op_.module, .now = factor});
  help.text = "No type holds that factor: take a finite one. ";
  if (!std::isfinite(factor)) return help;
  const FloatFormat& format = *info(made_.dtype).format;
  const std::string holds = fmt::format("{} holds no factor above {:g}", format.name, format.largest_finite());
  help.text = holds + ". ";
  if (!is_narrow(format)) return help;
  const bool may_be_bf16 = !has_range_of_fp32(made_.dtype);
  help.text = fmt::format("{}: take a smaller one, or run this op in FP32{}. ", holds, may_be_bf16 ? " or BF16" : "");
  note_wide_types(facts_.precision(), op_, made_.dtype, help);
  return help;
}

NonfiniteExplanation Origin::of_operands() const {
  const CaptureRow& element = capture_->element();
  const std::vector<const CaptureRow*> operands = capture_->operands(element);
  if (operands.empty() || operands.size() > 3) return {};
  std::string arguments;
  std::vector<double> read;  // by the op, which may take subnormals as zero
  for (const CaptureRow* const operand : operands) {
    if (operand->overwritten || operand->row.count > 0 || !std::isfinite(operand->value)) return {};
    const bool as_zero = is_read_as_zero(*operand);
    read.push_back(as_zero ? std::copysign(0.0, operand->value) : operand->value);
    arguments += fmt::format("{}{:.6g}{}", arguments.empty() ? "" : ", ", operand->value, as_zero ? " read as 0" : "");
  }
  const bool has_factor = op_.function == OpFunction::scale && attribute(op_, "factor").has_value();
  const double factor = has_factor ? *attribute(op_, "factor") : kUnknown;
  const double x = read[0], y = read.size() > 1 ? read[1] : factor;
  const std::string value = std::isnan(element.value) ? "NaN" : element.value > 0 ? "infinity" : "-infinity";
  NonfiniteExplanation found{cause_by_function(x, y)};
  found.story = fmt::format("Element {} is {}({}){} = {}", element.element, op_.name, arguments,
                            has_factor ? fmt::format(" by {:g}", factor) : "", value);
  if (has_factor) found.help = help_with_factor(factor);
  const std::optional<double> exact = exact_result(op_.function, x, y);
  if (exact && std::isfinite(*exact) && std::abs(*exact) >= limit())
    found.story +=
        fmt::format(": {:.6g} is too large, {} is infinite from {:.6g} on", *exact, info(made_.dtype).format->name, limit());
  found.story += ". ";
  const bool is_divided = found.cause == NonfiniteCause::division_by_zero || found.cause == NonfiniteCause::zero_over_zero;
  const CaptureRow* const divisor = operands[divides_by_second(op_.function) && operands.size() > 1 ? 1 : 0];
  if (const CaptureRow* const cast = is_divided ? flushed_addend(*divisor) : nullptr) {
    const FloatFormat& format = *info(facts_.selection.tensor(static_cast<uint32_t>(cast->made_by)).dtype).format;
    found.story += fmt::format("What was added to keep it from that, {:g}, became zero: the least number of {} is {:.3g}. ",
                               capture_->operands(*cast).front()->value, format.name, format.smallest_positive());
    found.help = fmt::format("Add one that {} holds, or run this in FP32. ", format.name);
    found.help.note({.kind = SettingKind::epsilon, .way = SettingChange::Way::raise, .module = op_.module});
    found.help.note({.kind = SettingKind::precision_of_modules, .value = "\"fp32\"", .module = op_.module});
  } else if (is_divided || found.cause == NonfiniteCause::log_of_zero) {
    explain_zero(*divisor, found);
  }
  if (found.help.text.empty()) found.help = help_with_domain(found.cause);
  return found;
}

}  // namespace

const char* name_of(NonfiniteCause cause) { return kCauses[static_cast<size_t>(cause)].name; }
const char* meaning_of(NonfiniteCause cause) { return kCauses[static_cast<size_t>(cause)].meaning; }

NonfiniteExplanation explain(const RunFacts& facts, const NonfiniteOrigin& origin) { return Origin(facts, origin).explain(); }

}  // namespace ulpscope
