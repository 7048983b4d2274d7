#include "ulpscope/analyzers/judgements/cause_of_rows.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "ulpscope/analyzers/judgements/cause_text.h"
#include "ulpscope/analyzers/judgements/domain_advice.h"
#include "ulpscope/analyzers/judgements/origin_facts.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {

namespace {

namespace words = cause_words;

// The function makes Inf of so many operands, where these are finite, only because a result is too large for its type: it neither
// divides nor takes a logarithm. A bias may be missing, and so may what is added to in place. 0: other reasons may be.
size_t operands_of_exact(OpFunction function) {
  if (function == OpFunction::norm) return 1;
  const OpSemantics& semantics = semantics_of(function);
  if (!has_trait(function, kSumsProducts)) return 0;
  const std::span<const Meaning> inputs = semantics.inputs;
  return inputs.size() - semantics.optional_inputs - static_cast<size_t>(std::count(inputs.begin(), inputs.end(), Meaning::state));
}

// The divisor is a tensor, and no tensor of floating-point numbers.
bool divides_by_integers(const OriginFacts& origin) {
  const GraphEdge* const divisor = origin.facts.context.graph.read_by(origin.made.op, 1);
  if (divisor == nullptr || attribute(origin.op, "other") || attribute(origin.op, "rounding_mode")) return false;
  const std::span<const uint32_t> made = origin.facts.context.graph.made_by(divisor->producer, divisor->slot);
  return std::none_of(made.begin(), made.end(),
                      [&](uint32_t each) { return is_float(origin.facts.context.trace.tensors()[each].dtype); });
}

// A function that is not defined everywhere, by what its output holds. `read`: the rows of its inputs, all of them finite.
NonfiniteExplanation explain_domain(const OriginFacts& origin, const TensorRow& made, const std::vector<TensorRow>& read) {
  const TensorStatistics& held = made.statistics;
  const bool has_nan = held.nan > 0;
  const Value format = format_name(origin.format());
  const auto has_zeros = [](const TensorRow& row) { return row.statistics.zeros > 0; };
  const auto has_negatives = [](const TensorRow& row) {
    return row.known == StatisticsLevel::values && row.statistics.negatives > 0;
  };
  // Numbers as large and as small as those that were read cannot have a quotient that is too large.
  const auto divides_by_zero = [&](double largest, const TensorRow& divisor) {
    const bool is_known = divisor.known == StatisticsLevel::values && has_zeros(divisor);
    return is_known && (divisor.statistics.smallest == 0 || largest / divisor.statistics.smallest < origin.limit());
  };
  const auto found = [&](NonfiniteCause cause, Sentence story) {
    return NonfiniteExplanation{.cause = cause, .story = std::move(story), .help = domain_advice(origin, cause)};
  };
  switch (origin.op.function) {
    case OpFunction::log:
      if (has_nan && has_negatives(read[0])) return found(NonfiniteCause::log_of_negative, words::kLogsOfNegative());
      if (!has_nan && held.positive_infinity == 0 && has_zeros(read[0]))
        return found(NonfiniteCause::log_of_zero, words::kLogsOfZero());
      break;
    case OpFunction::sqrt:
      if (has_nan && has_negatives(read[0])) return found(NonfiniteCause::sqrt_of_negative, words::kRootsOfNegative());
      break;
    case OpFunction::rsqrt:
      if (has_nan && has_negatives(read[0])) return found(NonfiniteCause::sqrt_of_negative, words::kRootsOfNegative());
      if (!has_nan && has_zeros(read[0])) return found(NonfiniteCause::division_by_zero, words::kRootsOfZero());
      break;
    case OpFunction::exp:
      if (has_nan) break;
      return found(NonfiniteCause::overflow_of_exp,
                   words::kExponentials({{"largest", origin.format().largest_finite()}, {"format", format}}));
    case OpFunction::div:
      // Integers have no rows: the quotient of a number by one is NaN for 0 / 0 alone, and too large for none but 0.
      if (read.size() == 1 && divides_by_integers(origin))
        return has_nan ? found(NonfiniteCause::zero_over_zero, words::kZerosOverZero())
                       : found(NonfiniteCause::division_by_zero, words::kDividedByIntegerZero());
      if (read.size() != 2) break;
      if (has_nan && has_zeros(read[0]) && has_zeros(read[1]))
        return found(NonfiniteCause::zero_over_zero, words::kZerosOverZero());
      if (!has_nan && read[0].known == StatisticsLevel::values && divides_by_zero(read[0].statistics.largest, read[1]))
        return found(NonfiniteCause::division_by_zero, words::kDividedByZero({{"format", format}}));
      break;
    case OpFunction::mean:
      if (has_nan && read[0].statistics.count == 0)
        return {.cause = NonfiniteCause::zero_over_zero, .story = words::kMeanOfNothing(), .help = Advice(words::kDivideSum())};
      break;
    case OpFunction::reciprocal:
      if (!has_nan && divides_by_zero(1, read[0]))
        return found(NonfiniteCause::division_by_zero, words::kDividedByZero({{"format", format}}));
      break;
    default:
      break;
  }
  return {};
}

// An input that holds infinities, with the last row of it before the origin's.
struct ReadRow {
  uint32_t input = 0, tensor = 0;
  TensorRow row;
  DType dtype = DType::f32;
};

// Explains an op whose inputs held infinities and no NaN, and which made NaN of them.
NonfiniteExplanation explain_infinities(const OriginFacts& origin, const TensorRow& made, const std::vector<ReadRow>& read) {
  if (made.known == StatisticsLevel::none || made.statistics.nan == 0) return {};
  uint64_t positive = 0, negative = 0;
  for (const ReadRow& each : read) {
    if (each.row.known == StatisticsLevel::none || each.row.statistics.nan > 0) return {};
    positive += each.row.statistics.positive_infinity;
    negative += each.row.statistics.negative_infinity;
  }
  if (has_trait(origin.op.function, kWeighsRow) && origin.op.function != OpFunction::masked_softmax) {
    if (positive > 0 || negative == 0) return {};
    return {.cause = NonfiniteCause::masked_row, .story = words::kMaskedRows(), .help = Advice(words::kLeaveOneValue())};
  }
  if (!origin.origin.filled || positive + negative == 0) return {};
  switch (origin.op.function) {
    case OpFunction::mul:
      return {
          .cause = NonfiniteCause::zero_times_infinity, .story = words::kZeroTimesInfinity(), .help = Advice(words::kFillFinite())};
    case OpFunction::add:
    case OpFunction::sub:
      return {.cause = NonfiniteCause::unknown, .story = words::kInfinityMinusInfinity(), .help = Advice(words::kFillFinite())};
    default:
      return {.help = Advice(words::kFillFinite())};
  }
}

// A batch norm reads finite values, so that a mean or a variance of it which is Inf is too large for its type.
NonfiniteExplanation explain_statistic(const OriginFacts& origin, const TensorRow& made) {
  if (!is_running_statistic(origin.made, origin.op) || !is_narrow(origin.made.dtype)) return {};
  const auto value = origin.read_as(0);
  if (!value || !origin.was_finite(*value)) return {};
  if (made.statistics.nan > 0 || stored_infinities(made, origin.made.dtype) == 0) return {};
  const Name module{origin.op.module.empty() ? NameKind::op : NameKind::module,
                    origin.op.module.empty() ? origin.op.name : origin.op.module};
  return {
      .cause = NonfiniteCause::overflow_of_a_sum,
      .story = words::kRunningStatistic({{"largest", origin.format().largest_finite()}, {"format", format_name(origin.format())}}),
      .help = Advice(words::kWideStatistics({{"module", module}}))};
}

constexpr Template kNormsOfZero{"cause.norms_of_zero",
                                "{zeros} of {count:count norm} {zeros:either is|are} 0, which the weight is divided by."};
constexpr Template kNoRowOfZeros{"advice.no_row_of_zeros",
                                 "Check how the weight was initialized or loaded: no row that has its own norm may be all zeros."};

// The kernel of PyTorch's weight_norm divides a weight by its norms, which are its second output.
NonfiniteExplanation explain_weight_norm(const OriginFacts& origin, const TensorRow& made) {
  if (origin.op.name != "_weight_norm_interface" || origin.made.slot != 0) return {};
  const auto norms = origin.recorded(origin.made.op, 1);
  if (!norms) return {};
  const std::optional<TensorRow> row = row_at(origin.facts, *norms, origin.origin.position);
  if (!row || row->statistics.zeros == 0) return {};
  return {.cause = made.statistics.nan > 0 ? NonfiniteCause::zero_over_zero : NonfiniteCause::division_by_zero,
          .story = kNormsOfZero({{"zeros", row->statistics.zeros}, {"count", row->statistics.count}}),
          .help = Advice(kNoRowOfZeros())};
}

// Where the rounding was counted, the row holds the values before it.
NonfiniteExplanation explain_rounding(const OriginFacts& origin) {
  NonfiniteExplanation found{.cause = origin.op.kind == OpKind::cast ? NonfiniteCause::overflow_on_cast
                                                                     : NonfiniteCause::overflow_in_arithmetic};
  const std::optional<TensorRow> row = origin.row();
  if (!row || !row->before_rounding || row->known != StatisticsLevel::values) return found;
  const double largest = row->statistics.largest;
  if (std::isfinite(largest) && largest >= origin.limit())
    found.story = words::kLargestBefore({{"value", largest}, {"beyond", too_large(largest, origin.format())}});
  return found;
}

}  // namespace

NonfiniteExplanation explain_by_rows(const OriginFacts& origin) {
  if (origin.origin.overflowed > 0) return explain_rounding(origin);
  const TensorInfo& made = origin.made;
  const OpInfo& op = origin.op;
  if (!op.inputs_told || made.flushes_inputs || !is_float(made.dtype)) return {};
  const std::optional<TensorRow> row = origin.row();
  if (!row) return {};
  if (NonfiniteExplanation found = explain_statistic(origin, *row); found.cause != NonfiniteCause::unknown) return found;
  if (NonfiniteExplanation found = explain_weight_norm(origin, *row); found.cause != NonfiniteCause::unknown) return found;
  std::vector<ReadRow> all;
  for (const GraphEdge& edge : origin.facts.context.trace.graph().inputs(made.op)) {
    const std::span<const uint32_t> made_by = origin.facts.context.graph.made_by(edge.producer, edge.slot);
    const auto is_a_float = [&](uint32_t each) { return is_float(origin.facts.selection.tensor(each).dtype); };
    // Integers have no rows, and are finite.
    const bool may_be_left_out = made_by.empty() && origin.facts.ranges().is_filtered();
    if (!may_be_left_out && std::none_of(made_by.begin(), made_by.end(), is_a_float)) continue;
    const auto tensor = origin.recorded(edge.producer, edge.slot);
    // Several graphs of a run have the same edge.
    const auto is_it = [&](const ReadRow& each) { return each.input == edge.input && each.tensor == tensor; };
    if (tensor && std::any_of(all.begin(), all.end(), is_it)) continue;
    const std::optional<TensorRow> last = tensor ? origin.last_row(*tensor) : std::nullopt;
    if (!last) return {};
    all.push_back({edge.input, *tensor, *last, origin.facts.selection.tensor(*tensor).dtype});
  }
  if (all.empty()) return {};
  std::vector<TensorRow> read;
  for (const ReadRow& each : all) {
    if (stored_nonfinite(each.row, each.dtype) > 0) return explain_infinities(origin, *row, all);
    read.push_back(each.row);
  }
  if (const auto number = attribute(op, "other"); number && !std::isfinite(*number) && op.kind == OpKind::elementwise)
    return {.story = words::kNumberIsSpecial({{"value", *number}}),
            .help = Advice(std::isnan(*number) ? words::kCheckNumber() : words::kFillFinite())};
  if (NonfiniteExplanation found = explain_domain(origin, *row, read); found.cause != NonfiniteCause::unknown) return found;

  size_t operands = operands_of_exact(op.function);
  const std::optional<double> constant = attribute(op, "other");  // the second operand, where that is a number
  if (operands == 2 && op.kind == OpKind::elementwise && constant && std::isfinite(*constant)) operands = 1;
  if (operands == 0 || read.size() < operands || !is_narrow(made.dtype)) return {};
  if (op.function == OpFunction::scale && !std::isfinite(attribute(op, "factor").value_or(kUnknown))) return {};
  if (row->statistics.nan > 0 || stored_infinities(*row, made.dtype) == 0) return {};
  const bool adds_up = semantics_of(op.function).reduces != Reduction::nothing && op.function != OpFunction::norm;
  return {.cause = op.kind == OpKind::cast ? NonfiniteCause::overflow_on_cast : NonfiniteCause::overflow_in_arithmetic,
          .story = (adds_up ? words::kSumExceeded : words::kExceeded)(
              {{"largest", origin.format().largest_finite()}, {"format", format_name(origin.format())}})};
}

}  // namespace ulpscope
