#include "ulpscope/analyzers/judgements/cause_of_capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "ulpscope/analyzers/judgements/captured_arithmetic.h"
#include "ulpscope/analyzers/judgements/cause_text.h"
#include "ulpscope/analyzers/judgements/domain_advice.h"
#include "ulpscope/analyzers/judgements/origin_facts.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/wide_scope.h"
#include "ulpscope/analyzers/subject/output_slots.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/base/parse_number.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {

namespace {

namespace words = cause_words;

Name module_name(const OpInfo& op) { return op.module.empty() ? Name{NameKind::op, op.name} : Name{NameKind::module, op.module}; }

// ---- sums

// What was added up is multiplied by the inverse scales of both factors.
NonfiniteExplanation explain_scaled_sum(const OriginFacts& origin) {
  if (origin.op.function != OpFunction::scaled_matmul) return {};
  // The scales of both factors stand one behind the other.
  const auto scale = static_cast<int>(*input_of(OpFunction::scaled_matmul, Meaning::inverse_scale));
  const CaptureRow *const first = origin.capture->operand(scale), *const second = origin.capture->operand(scale + 1);
  if (first == nullptr || second == nullptr) return {};
  const CaptureRow& element = origin.capture->element();
  const double scaled = element.partial_sum * first->value * second->value;
  if (!(std::abs(scaled) >= origin.limit())) return {};
  return {.cause = NonfiniteCause::overflow_of_a_sum,
          .story = words::kScaledSum({{"at", at_element(element)},
                                      {"terms", element.terms},
                                      {"partial", element.partial_sum},
                                      {"first", first->value},
                                      {"second", second->value},
                                      {"scaled", scaled},
                                      {"beyond", too_large(scaled, origin.format())}})};
}

// ---- norms

// A softmax over no value, as where each has -Inf added to it.
NonfiniteExplanation explain_masked_row(const OriginFacts& origin) {
  constexpr int kMask = 1;
  const CaptureRow& element = origin.capture->element();
  for (const CaptureRow* const node : origin.capture->operands(element)) {
    if (node->operand != kMask || node->overwritten || node->row.count < 1 || !(node->row.smallest > 0)) continue;
    return {.cause = NonfiniteCause::masked_row,
            .story = words::kMaskedRow({{"at", at_element(element)}, {"values", node->row.count}}),
            .help = Advice(words::kLeaveOneValue())};
  }
  return {};
}

// The variance of n values is at least (largest - smallest)^2 / (2 n): that of these two and of n - 2 in their middle.
// momentum times it, unbiased, is added to what is no less than zero.
NonfiniteExplanation explain_running_variance(const OriginFacts& origin) {
  const auto momentum = attribute(origin.op, "momentum");
  if (!momentum) return {};
  const CaptureRow& element = origin.capture->element();
  for (const CaptureRow* const node : origin.capture->operands(element)) {
    const CaptureRow::Row& row = node->row;
    if (row.count < 2 || row.nonfinite > 0) continue;
    const double n = static_cast<double>(row.count), range = row.largest - row.smallest;
    const double least = range * range / (2 * n), added = *momentum * least * n / (n - 1);
    if (!(added >= origin.limit())) continue;
    return {.cause = NonfiniteCause::overflow_of_a_sum,
            .story = words::kRunningVariance({{"at", at_element(element)},
                                              {"values", row.count},
                                              {"smallest", row.smallest},
                                              {"largest", row.largest},
                                              {"variance", least * n / (n - 1)},
                                              {"momentum", *momentum},
                                              {"added", added},
                                              {"beyond", too_large(added, origin.format())}}),
            .help = Advice(words::kSmallerInputs())};
  }
  return {};
}

// ---- functions of a few operands

bool divides_by_second(OpFunction function) { return reads_as(function, 1, Meaning::divisor); }

// x and y are finite, or infinite constants; NaN: there is none.
NonfiniteCause cause_by_function(const OriginFacts& origin, double x, double y) {
  const bool is_nan = std::isnan(origin.capture->element().value);
  if (!is_nan && (std::isinf(x) || std::isinf(y))) return NonfiniteCause::unknown;  // the infinity goes through
  switch (origin.op.function) {
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
      if (y == 0) return is_nan ? NonfiniteCause::zero_over_zero : NonfiniteCause::division_by_zero;
      break;
    case OpFunction::pow:
      if (is_nan) return NonfiniteCause::power_domain;
      if (x == 0) return NonfiniteCause::division_by_zero;
      break;
    case OpFunction::exp:
      return NonfiniteCause::overflow_of_exp;
    case OpFunction::other:
      if (plain_name(origin.op) == kLog1p) return x == -1 ? NonfiniteCause::log_of_zero : NonfiniteCause::log_of_negative;
      if (plain_name(origin.op) == kLogit && x == 0) return NonfiniteCause::log_of_zero;
      if (plain_name(origin.op) == kLogit && x == 1) return NonfiniteCause::division_by_zero;
      if (!is_nan) return NonfiniteCause::unknown;  // it may have a pole there
      break;
    default:
      break;
  }
  if (is_nan && ((x == 0 && std::isinf(y)) || (std::isinf(x) && y == 0))) return NonfiniteCause::zero_times_infinity;
  if (is_nan) return NonfiniteCause::unknown;
  return origin.op.kind == OpKind::cast ? NonfiniteCause::overflow_on_cast : NonfiniteCause::overflow_in_arithmetic;
}

// Whether so many digits tell all of the value.
bool is_told_by(double value, const char* digits) {
  return parse_number<double>(fmt::format(fmt::runtime(digits), value)) == value;
}

// "35,584 + 40,928", "exp(12.5)". `second`: of a product with a factor that.
Sentence expression_of(const OpInfo& op, std::vector<Sentence> operands, Value second) {
  if (op.function == OpFunction::cast && operands.size() == 1) return operands.front();
  const Template* infix = nullptr;
  switch (op.function) {
    case OpFunction::add:
      infix = &words::kSumOf;
      break;
    case OpFunction::sub:
      infix = &words::kDifferenceOf;
      break;
    case OpFunction::mul:
    case OpFunction::scale:
      infix = &words::kProductOf;
      break;
    case OpFunction::div:
      infix = &words::kQuotientOf;
      break;
    default:
      break;
  }
  if (operands.size() == 2) second = operands.back();
  if (infix != nullptr && operands.size() <= 2 && !second.empty())
    return (*infix)({{"first", operands.front()}, {"second", std::move(second)}});
  return words::kFunctionOf(
      {{"op", Name{NameKind::op, op.name}}, {"operands", Value::list(Value::List(operands.begin(), operands.end()))}});
}

// The cast of a constant that was added so that the operand is not zero, and that became zero itself; nullptr: none.
const CaptureRow* flushed_addend(const OriginFacts& origin, const CaptureRow& operand) {
  const auto op_of = [&](const CaptureRow& node) -> const OpInfo* {
    return node.made_by < 0 ? nullptr : &origin.facts.selection.op(static_cast<uint32_t>(node.made_by));
  };
  const OpInfo* const sum = op_of(operand);
  if (operand.value != 0 || sum == nullptr || sum->function != OpFunction::add) return nullptr;
  for (const CaptureRow* const addend : origin.capture->operands(operand)) {
    const OpInfo* const cast = op_of(*addend);
    if (addend->value != 0 || cast == nullptr || cast->kind != OpKind::cast) continue;
    for (const CaptureRow* const from : origin.capture->operands(*addend))
      if (from->made_by < 0 && std::isfinite(from->value) && from->value != 0) return addend;
  }
  return nullptr;
}

// A subnormal, of an op that reads such as zero.
bool is_read_as_zero(const OriginFacts& origin, const CaptureRow& operand) {
  if (!origin.made.flushes_inputs || operand.value == 0) return false;
  const DType dtype =
      operand.made_by < 0 ? DType::f32 : origin.facts.selection.tensor(static_cast<uint32_t>(operand.made_by)).dtype;
  return is_float(dtype) && std::abs(operand.value) < info(dtype).format->smallest_normal();
}

void explain_flushed_addend(const OriginFacts& origin, const CaptureRow& cast, NonfiniteExplanation& found) {
  const FloatFormat& format = *info(origin.facts.selection.tensor(static_cast<uint32_t>(cast.made_by)).dtype).format;
  const double addend = origin.capture->operands(cast).front()->value;
  const Value smallest{format.smallest_positive(), Unit::power_of_two};
  found.story += words::kAddendFlushed({{"addend", addend}, {"format", format_name(format)}, {"smallest", smallest}});
  found.help.note({.kind = SettingKind::epsilon, .way = SettingChange::Way::raise, .module = origin.op.module});
  const Sentence wide = keep_in_fp32(origin.facts, origin.origin.tensor, Clause::other, found.help);
  found.help.text =
      words::kRaiseAddend({{"module", module_name(origin.op)}, {"smallest", smallest}, {"addend", addend}, {"wide", wide}});
}

// The zero is too small a result: the op that made it gives none for what it read, which was finite and, of factors, without zeros.
void explain_underflow(const OriginFacts& origin, const CaptureRow& operand, NonfiniteExplanation& found) {
  if (operand.made_by < 0 || operand.value != 0) return;
  const Selection& selection = origin.facts.selection;
  const auto made = static_cast<uint32_t>(operand.made_by);
  const OpInfo& op = selection.op(made);
  const bool is_product = plain_name(op) == kProduct, multiplies = is_product || plain_name(op) == kCumulativeProduct;
  const bool is_positive =
      op.function == OpFunction::exp || op.function == OpFunction::softmax || op.function == OpFunction::sigmoid;
  if ((!multiplies && !is_positive) || !op.inputs_told) return;
  const std::optional<TensorRow> result = origin.last_row(made);
  if (!result || result->known == StatisticsLevel::none || result->statistics.zeros == 0) return;  // it was written since
  const std::span<const uint32_t> read = origin.facts.context.graph.tensors_read_by(selection.tensor(made).op, 0);
  const std::optional<TensorRow> row = read.size() == 1 ? origin.last_row(read.front()) : std::nullopt;
  if (!row || row->known == StatisticsLevel::none || stored_nonfinite(*row, selection.tensor(read.front()).dtype) > 0) return;
  // Where it read more than that tensor has, the rest may be infinities that the program filled in.
  if ((!is_product && row->statistics.count != result->statistics.count) || (multiplies && row->statistics.zeros > 0)) return;
  const Value name = Name{NameKind::op, op.name};
  found.story += words::kZeroUnderflowed({{"op", name}});
  if (op.function == OpFunction::softmax)
    found.help = Advice(words::kLogSoftmax());
  else if (multiplies)
    found.help = Advice(words::kSumOfLogs({{"op", name}}));
  else
    found.help = Advice(words::kLogsFromLogits({{"op", name}}));
}

// Why an operand is zero, where a rounding made it so, and what helps; nothing where that is not known.
void explain_zero(const OriginFacts& origin, const CaptureRow& operand, NonfiniteExplanation& found) {
  const RunFacts& facts = origin.facts;
  const auto flushed = flushed_element_behind(facts.selection, *origin.capture, operand);
  if (!flushed) return explain_underflow(origin, operand, found);
  const auto tensor = static_cast<uint32_t>(flushed->node->made_by);
  const TensorInfo& made = facts.selection.tensor(tensor);
  found.story += (flushed->is_bound ? words::kZeroBehindAtMost
                                    : words::kZeroBehind)({{"element", ordinal(flushed->node->element)},
                                                           {"place", tensor_place(facts.selection, tensor)},
                                                           {"magnitude", flushed->magnitude},
                                                           {"format", format_name(*info(made.dtype).format)},
                                                           {"flushed", Value(flushed->flushed_up_to, Unit::power_of_two)}});
  if (origin.function() == OpFunction::log && facts.selection.op(tensor).function == OpFunction::softmax)
    found.help = Advice(words::kLogSoftmax());
  if (!is_narrow(made.dtype) || flushed->is_bound || flushed->magnitude < binary32.smallest_positive()) return;
  found.fp32_keeps = true;
  const Sentence wide = keep_in_fp32(facts, tensor, Clause::first, found.help);
  found.help.text += words::kFp32Keeps({{"wide", wide}, {"magnitude", flushed->magnitude}});
}

// A constant of the op that its type does not hold; or nothing.
Advice factor_advice(const OriginFacts& origin, double factor) {
  constexpr double kUsual = 1e4;  // what masks are made with in FP16
  Advice help;
  if (std::abs(factor) < origin.limit()) return help;
  const double proposed = std::copysign(kUsual, factor);
  if (origin.op.phase == Phase::loss && origin.op.module.empty())
    help.note({.kind = SettingKind::loss_factor, .way = SettingChange::Way::lower});
  else
    help.note({.value = fmt::format("{:g}", proposed), .module = origin.op.module, .now = factor});
  if (!std::isfinite(factor)) {
    help.text = words::kFiniteFactor({{"proposed", proposed}, {"factor", factor}});
  } else {
    const FloatFormat& format = origin.format();
    help.text = words::kFactorInRange(
        {{"largest", format.largest_finite()}, {"format", format_name(format)}, {"proposed", proposed}, {"factor", factor}});
  }
  return help;
}

}  // namespace

NonfiniteExplanation explain_sum(const OriginFacts& origin) {
  const CaptureRow& element = origin.capture->element();
  const Sentence at = at_element(element);
  const auto found = [](Sentence story) {
    return NonfiniteExplanation{.cause = NonfiniteCause::overflow_of_a_sum, .story = std::move(story)};
  };
  if (element.broke_at == 0) return found(words::kFirstTerm({{"at", at}, {"terms", element.terms}}));
  if (element.broke_at > 0)
    return found(
        words::kTermsUpTo({{"at", at}, {"before", element.broke_at}, {"terms", element.terms}, {"partial", element.partial_sum}}));
  if (std::abs(element.partial_sum) < origin.limit()) return explain_scaled_sum(origin);
  return found(words::kWholeSum({{"at", at},
                                 {"terms", element.terms},
                                 {"partial", element.partial_sum},
                                 {"beyond", too_large(element.partial_sum, origin.format())}}));
}

// Where all values of a row are the same, their variance is zero.
NonfiniteExplanation explain_normalization(const OriginFacts& origin) {
  const OpInfo& op = origin.op;
  if (op.function == OpFunction::masked_softmax) return explain_masked_row(origin);
  if (is_running_statistic(origin.made, op))
    return makes_as(op.function, origin.made.slot, Meaning::running_variance) ? explain_running_variance(origin)
                                                                              : NonfiniteExplanation{};
  const auto eps = attribute(op, "eps");
  if (!has_trait(op.function, kHasVariance) || !eps || *eps != 0) return {};
  const CaptureRow& element = origin.capture->element();
  for (const CaptureRow* const node : origin.capture->operands(element)) {
    const CaptureRow::Row& row = node->row;
    const bool is_rms = op.function == OpFunction::rms_norm;
    if (row.count < 1 || row.nonfinite > 0 || row.largest != row.smallest || (is_rms && row.largest != 0)) continue;
    NonfiniteExplanation found{.cause = NonfiniteCause::zero_over_zero,
                               .help = Advice(words::kLargerEpsilon({{"module", module_name(op)}, {"eps", *eps}}))};
    found.help.note({.kind = SettingKind::epsilon, .way = SettingChange::Way::raise, .module = op.module});
    const Sentence at = at_element(element);
    if (row.count == 1)
      found.story = (is_rms ? words::kRmsOfOne : words::kNormOfOne)({{"at", at}, {"value", row.largest}});
    else
      found.story =
          (is_rms ? words::kRmsOfEqual : words::kNormOfEqual)({{"at", at}, {"values", row.count}, {"value", row.largest}});
    return found;
  }
  return {};
}

// The name of the op that adds up logarithms of probabilities, those that the mask took to 0 too, and was infinite in that step.
std::optional<Name> adds_masked_logarithms(const OriginFacts& origin) {
  const Snapshot& trace = origin.facts.context.trace;
  const auto is_nonfinite_from_there = [&](uint32_t op) {
    const auto made = origin.recorded(op, 0);
    const auto first = made ? origin.facts.ranges().nonfinite(*made).first : std::nullopt;
    return first && first->step == origin.origin.position.step;
  };
  std::vector<uint32_t> ops{origin.made.op};  // that hand the mask on, and the logarithms of it
  for (size_t i = 0; i < ops.size(); ++i) {
    const bool are_logarithms = trace.ops()[ops[i]].function == OpFunction::log_softmax;
    for (const GraphEdge& use : trace.graph().uses(ops[i])) {
      const OpFunction function = trace.ops()[use.consumer].function;
      const bool adds = function == OpFunction::sum || function == OpFunction::mean;
      if (are_logarithms && adds && is_nonfinite_from_there(use.consumer))
        return Name{NameKind::op, trace.ops()[use.consumer].name};
      const bool goes_on = has_trait(function, kSameValues) || function == OpFunction::log_softmax;
      if (goes_on && std::find(ops.begin(), ops.end(), use.consumer) == ops.end()) ops.push_back(use.consumer);
    }
  }
  return std::nullopt;
}

NonfiniteExplanation explain_operands(const OriginFacts& origin) {
  const CaptureRow& element = origin.capture->element();
  const std::vector<const CaptureRow*> operands = origin.capture->operands(element);
  if (operands.empty() || operands.size() > 3) return {};
  const double filled = attribute(origin.op, "value").value_or(kUnknown);
  if (origin.op.function == OpFunction::masked_fill && !std::isfinite(filled) && element.value == filled) {
    if (const auto sum = adds_masked_logarithms(origin))
      return {.story = words::kAddsLogarithms({{"value", filled}, {"reader", *sum}}), .help = Advice(words::kLeaveOutOfSum())};
    return {.story = words::kPutsInfinity({{"value", filled}}), .help = Advice(words::kFillFinite())};
  }
  if (origin.op.function == OpFunction::where) {
    for (const CaptureRow* const operand : operands) {
      const bool is_taken = operand->value == element.value || (std::isnan(operand->value) && std::isnan(element.value));
      if (operand->made_by >= 0 || operand->row.count > 0 || std::isfinite(operand->value) || !is_taken) continue;
      return {.story = words::kPutsInfinity({{"value", operand->value}}),
              .help = Advice(std::isnan(operand->value) ? words::kNanOnPurpose() : words::kFillFinite())};
    }
  }
  std::vector<Sentence> arguments;
  std::vector<double> read;  // by the op, which may take subnormals as zero
  for (const CaptureRow* const operand : operands) {
    if (operand->overwritten || operand->row.count > 0 || std::isnan(operand->value)) return {};
    const bool is_constant = operand->made_by < 0;
    if (!std::isfinite(operand->value) && !is_constant) return {};
    const bool as_zero = is_read_as_zero(origin, *operand);
    read.push_back(as_zero ? std::copysign(0.0, operand->value) : operand->value);
    const bool is_behind_sign = !arguments.empty() && operand->value < 0;
    arguments.push_back((std::isinf(operand->value) ? words::kSpecialOperand
                         : as_zero                  ? words::kOperandReadAsZero
                         : is_behind_sign           ? words::kNegativeOperand
                                                    : words::kOperand)({{"value", operand->value}}));
  }
  const bool is_scaled = origin.op.function == OpFunction::scale && attribute(origin.op, "factor").has_value();
  const bool is_power = origin.op.function == OpFunction::pow && read.size() == 1 && attribute(origin.op, "exponent").has_value();
  const double factor = is_scaled ? *attribute(origin.op, "factor") : is_power ? *attribute(origin.op, "exponent") : kUnknown;
  if (is_power) arguments.push_back((factor < 0 ? words::kNegativeOperand : words::kOperand)({{"value", factor}}));
  const double x = read[0], y = read.size() > 1 ? read[1] : factor;
  NonfiniteExplanation found{.cause = cause_by_function(origin, x, y)};
  Value second;
  if (is_scaled) {
    found.help = factor_advice(origin, factor);
    second = (!std::isfinite(factor) ? words::kSpecialOperand
              : factor < 0           ? words::kNegativeOperand
                                     : words::kOperand)({{"value", factor}});
  }
  const std::optional<double> exact = exact_result(origin.op.function, x, y);
  const Sentence at = at_element(element), expression = expression_of(origin.op, std::move(arguments), second);
  if (exact && std::isfinite(*exact) && std::abs(*exact) >= origin.limit()) {
    const Sentence beyond = too_large(*exact, origin.format());
    if (origin.op.function == OpFunction::cast)
      found.story = words::kCastTooLarge({{"at", at}, {"expression", expression}, {"beyond", beyond}});
    else  // An equality holds for the digits that stand there.
      found.story = (is_told_by(x, "{:.6g}") && (std::isnan(y) || is_told_by(y, "{:.6g}")) && is_told_by(*exact, "{:.10g}")
                         ? words::kTooLarge
                         : words::kAboutTooLarge)({{"at", at}, {"expression", expression}, {"exact", *exact}, {"beyond", beyond}});
  } else {
    found.story = words::kOperation({{"at", at}, {"expression", expression}, {"result", element.value}});
  }
  const auto is_mask = [&](const CaptureRow* operand) {
    if (operand->made_by < 0) return true;
    const OpFunction made = origin.facts.selection.op(static_cast<uint32_t>(operand->made_by)).function;
    return has_trait(made, kTakesConstants) || has_trait(made, kSameValues) || made == OpFunction::mul || made == OpFunction::fill;
  };
  if (origin.op.function == OpFunction::add && x == -origin.format().largest_finite() && y == x &&
      std::all_of(operands.begin(), operands.end(), is_mask)) {
    found.story += words::kTwoMasks({{"format", format_name(origin.format())}});
    found.help = Advice(words::kJoinMasks());
    found.is_of_constants = true;
  }
  const bool is_divided = found.cause == NonfiniteCause::division_by_zero || found.cause == NonfiniteCause::zero_over_zero;
  const CaptureRow* const divisor = operands[divides_by_second(origin.op.function) && operands.size() > 1 ? 1 : 0];
  if (const CaptureRow* const cast = is_divided ? flushed_addend(origin, *divisor) : nullptr)
    explain_flushed_addend(origin, *cast, found);
  else if (is_divided || found.cause == NonfiniteCause::log_of_zero)
    explain_zero(origin, *divisor, found);
  if (found.help.text.empty()) found.help = Advice(domain_advice(origin, found.cause));
  return found;
}

}  // namespace ulpscope
