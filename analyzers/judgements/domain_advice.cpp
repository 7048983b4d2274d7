#include "ulpscope/analyzers/judgements/domain_advice.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ulpscope/analyzers/judgements/cause_text.h"
#include "ulpscope/analyzers/judgements/origin_facts.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/value_losses.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/emulation/magnitude_thresholds.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {

namespace {

// In a format with a small range what people add, 1e-8 as a rule, is 0.
Sentences smallest_eps(const OriginFacts& origin) {
  constexpr double kUsual = 1e-12;
  const double flushed = magnitude_thresholds(origin.format(), rounding_of(origin.made)).flushed.surely_below;
  if (!is_narrow(origin.made.dtype) || !(flushed > kUsual)) return {};
  return cause_words::kEpsTooSmall({{"format", format_name(origin.format())}, {"flushed", Value(flushed, Unit::power_of_two)}});
}

// Its results are summed, and something is divided by their sums, as in a softmax: the largest argument may be subtracted from all.
bool divides_by_sum(const OriginFacts& origin) {
  const Snapshot& trace = origin.facts.context.trace;
  struct Use {
    uint32_t op;
    bool is_sum;
  };
  std::vector<Use> reached{{origin.made.op, false}};
  const auto reach = [&](uint32_t op, bool is_sum) {
    const auto is_it = [&](const Use& one) { return one.op == op && one.is_sum == is_sum; };
    if (std::none_of(reached.begin(), reached.end(), is_it)) reached.push_back({op, is_sum});
  };
  for (size_t i = 0; i < reached.size(); ++i) {
    const auto [op, is_sum] = reached[i];
    for (const GraphEdge& use : trace.graph().uses(op)) {
      const OpFunction function = trace.ops()[use.consumer].function;
      if (trace.ops()[use.consumer].phase == Phase::backward) continue;  // the gradient of a logarithm divides too
      if (is_sum && (function == OpFunction::reciprocal || (function == OpFunction::div && use.input == 1))) return true;
      if (function == OpFunction::cast || function == OpFunction::copy)
        reach(use.consumer, is_sum);
      else if (!is_sum && function == OpFunction::sum)
        reach(use.consumer, true);
    }
  }
  return false;
}

// Where functions are finite that the table of ops has no row for.
Sentences advice_by_name(const OriginFacts& origin) {
  struct Row {
    std::string_view name;
    const Template* words;
    bool (*is_outside)(double);  // what it read is not where it is finite
  };
  constexpr auto kBeyondOne = [](double x) { return std::abs(x) >= 1; };
  constexpr auto kBelowOne = [](double x) { return x < 1; };
  constexpr auto kNotPositive = [](double x) { return x <= 0; };
  static constexpr Row kRows[] = {
      {"acos", &cause_words::kKeepWithinOne, kBeyondOne},      {"asin", &cause_words::kKeepWithinOne, kBeyondOne},
      {"atanh", &cause_words::kKeepWithinOne, kBeyondOne},     {"erfinv", &cause_words::kKeepWithinOne, kBeyondOne},
      {"acosh", &cause_words::kKeepAboveOne, kBelowOne},       {"lgamma", &cause_words::kKeepAboveZero, kNotPositive},
      {"digamma", &cause_words::kKeepAboveZero, kNotPositive}, {"cosh", &cause_words::kBoundArgument, kBeyondOne},
      {"sinh", &cause_words::kBoundArgument, kBeyondOne},      {"expm1", &cause_words::kBoundArgument, kBeyondOne},
      {"exp2", &cause_words::kBoundArgument, kBeyondOne},
  };
  const OpInfo& op = origin.op;
  const CaptureRow* const read = origin.capture ? origin.capture->operand(0) : nullptr;
  if (op.phase == Phase::backward || op.function != OpFunction::other || read == nullptr || !std::isfinite(read->value)) return {};
  for (const Row& row : kRows)
    if (row.name == plain_name(op) && row.is_outside(read->value))
      return Sentences((*row.words)({{"function", Name{NameKind::op, std::string(row.name)}}}));
  return {};
}

}  // namespace

Sentences domain_advice(const OriginFacts& origin, NonfiniteCause cause) {
  // A difference that cancels has advice of its own, and a clamp does not help against it.
  const std::vector<Cancellation>& cancellations = origin.facts.value_losses().cancellations;
  if (std::any_of(cancellations.begin(), cancellations.end(),
                  [&](const Cancellation& each) { return each.reader == origin.made.op; }))
    return {};
  const OpFunction function = origin.function();
  const auto of_function = [&](const Template& words) {
    // Logarithms to other bases are the same function to the table of ops.
    const std::string_view name =
        origin.op.function == OpFunction::log ? plain_name(origin.op) : std::string_view(name_of(function));
    return Sentences(words({{"function", Name{NameKind::op, std::string(name)}}}));
  };
  if (plain_name(origin.op) == kLog1p && (cause == NonfiniteCause::log_of_zero || cause == NonfiniteCause::log_of_negative))
    return Sentences(cause_words::kKeepLog1p());
  if (plain_name(origin.op) == kLogit && cause != NonfiniteCause::unknown) {
    const auto eps = attribute(origin.op, "eps");
    if (!eps) return Sentences(cause_words::kKeepProbability());
    return Sentences(cause_words::kRaiseLogitEps({{"eps", *eps}, {"format", format_name(origin.format())}}));
  }
  switch (cause) {
    case NonfiniteCause::log_of_zero:
      return of_function(cause_words::kKeepArgument) + smallest_eps(origin);
    case NonfiniteCause::log_of_negative:
    case NonfiniteCause::sqrt_of_negative:
      return of_function(cause_words::kKeepPositive);
    case NonfiniteCause::power_domain:
      return of_function(cause_words::kKeepPowerReal);
    case NonfiniteCause::zero_times_infinity:
      return Sentences(cause_words::kFillFinite());
    case NonfiniteCause::overflow_of_exp:
      if (divides_by_sum(origin)) return Sentences(cause_words::kSubtractLargest());
      return Sentences(cause_words::kBoundExponent({{"format", format_name(origin.format())}}));
    case NonfiniteCause::division_by_zero:
    case NonfiniteCause::zero_over_zero:
      switch (function) {
        case OpFunction::log:
        case OpFunction::sqrt:
        case OpFunction::rsqrt:
          return of_function(cause_words::kKeepArgument) + smallest_eps(origin);
        case OpFunction::pow:
          return of_function(cause_words::kKeepBase) + smallest_eps(origin);
        default:
          return Sentences(cause_words::kKeepDivisor()) + smallest_eps(origin);
      }
    default:
      return advice_by_name(origin);
  }
}

}  // namespace ulpscope
