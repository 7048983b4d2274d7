#include "ulpscope/analyzers/judgements/nonfinite_cause.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "ulpscope/analyzers/judgements/cause_of_capture.h"
#include "ulpscope/analyzers/judgements/cause_of_rows.h"
#include "ulpscope/analyzers/judgements/cause_text.h"
#include "ulpscope/analyzers/judgements/origin_facts.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope {

namespace {

namespace words = cause_words;

struct CauseInfo {
  NonfiniteCause cause;
  const char *name, *meaning;
};
constexpr std::array kCauses = std::to_array<CauseInfo>({
    {NonfiniteCause::overflow_on_cast, "overflow_on_cast", "a value beyond the range of the type that it is cast to"},
    {NonfiniteCause::overflow_in_arithmetic, "overflow_in_arithmetic", "a result beyond the range of its type"},
    {NonfiniteCause::overflow_of_a_sum, "overflow_of_a_sum", "a sum beyond the range of its accumulator, or of its type"},
    {NonfiniteCause::overflow_of_exp, "overflow_of_exp", "exp(x) beyond the range of its type"},
    {NonfiniteCause::division_by_zero, "division_by_zero", "x / 0"},
    {NonfiniteCause::zero_over_zero, "zero_over_zero", "0 / 0"},
    {NonfiniteCause::zero_times_infinity, "zero_times_infinity", "0 * Inf, where Inf is a constant"},
    {NonfiniteCause::log_of_zero, "log_of_zero", "log(0)"},
    {NonfiniteCause::log_of_negative, "log_of_negative", "the log of a negative number"},
    {NonfiniteCause::sqrt_of_negative, "sqrt_of_negative", "the square root of a negative number"},
    {NonfiniteCause::power_domain, "power_domain", "a power that is not a real number"},
    {NonfiniteCause::masked_row, "masked_row", "a softmax over a row in which every value is masked"},
    {NonfiniteCause::epsilon_flushed, "epsilon_flushed", "an optimizer's eps that underflows to 0 in its arithmetic"},
    {NonfiniteCause::denominator_underflow, "denominator_underflow", "an optimizer's denominator that is 0"},
    {NonfiniteCause::second_moment_overflow, "second_moment_overflow",
     "a squared gradient beyond the range of the optimizer's state"},
    {NonfiniteCause::bad_data, "bad_data", "NaN or Inf in a batch"},
    {NonfiniteCause::bad_start, "bad_start", "NaN or Inf in a weight, state or constant before the first op"},
    {NonfiniteCause::memory_changed, "memory_changed", "memory that changed between being written and being read"},
    {NonfiniteCause::opaque, "opaque", "a kernel that cannot be looked into"},
    {NonfiniteCause::not_recorded, "not_recorded", "NaN or Inf that came in a step that was not recorded"},
    {NonfiniteCause::unknown, "unknown", "not known from what was recorded"},
});
static_assert(kCauses.size() == kNonfiniteCauses);

// ---- memory

// A parameter that the op read, or is, whose memory had changed by then; or "".
std::string changed_parameter(const OriginFacts& origin) {
  const RunFacts& facts = origin.facts;
  const RowPosition& position = origin.origin.position;
  const Snapshot of_rank = facts.context.trace.of_rank(position.rank);
  const auto& events = of_rank.events();
  const auto is_of_step = [&](const EventRow& event) {
    return event.kind == EventKind::memory_changed && event.tensor >= 0 && event.step == position.step;
  };
  if (std::none_of(events.begin(), events.end(), is_of_step)) return "";
  std::set<std::string> read{origin.made.parameter};
  for (const GraphEdge& edge : facts.context.trace.graph().edges())
    if (const auto tensor = edge.consumer == origin.made.op ? origin.recorded(edge.producer, edge.slot) : std::nullopt)
      read.insert(facts.selection.tensor(*tensor).parameter);
  read.erase("");
  for (const EventRow& event : events) {
    if (!is_of_step(event)) continue;
    const std::string& changed = facts.selection.tensor(static_cast<uint32_t>(event.tensor)).parameter;
    if (read.contains(changed)) return changed;
  }
  return "";
}

// Says that an operand was captured which is not what its row says, or nothing.
Sentence changed_operand(const OriginFacts& origin) {
  if (!origin.capture) return {};
  const Selection& selection = origin.facts.selection;
  for (const CaptureRow* const operand : origin.capture->operands(origin.capture->element())) {
    if (operand->overwritten || operand->row.count > 0 || std::isfinite(operand->value) || operand->made_by < 0) continue;
    const auto made = static_cast<uint32_t>(operand->made_by);
    if (!selection.contains(made)) continue;
    const std::optional<TensorRow> last = origin.last_row(made);
    if (!last || stored_nonfinite(*last, selection.tensor(made).dtype) > 0) continue;
    return words::kOperandChanged({{"place", tensor_place(selection, made)},
                                   {"element", element_name(*operand)},
                                   {"value", operand->value},
                                   {"op", Name{NameKind::op, origin.op.name}}});
  }
  return {};
}

NonfiniteExplanation explain_memory(Sentence story) {
  return {.cause = NonfiniteCause::memory_changed, .story = std::move(story), .help = Advice(words::kFindWriter())};
}

NonfiniteExplanation explain_source(const OriginFacts& origin) {
  if (origin.made.role == Role::input) return {.cause = NonfiniteCause::bad_data};
  if (const auto from = origin.unrecorded_from())
    return {.cause = NonfiniteCause::not_recorded,
            .story = words::kCameUnrecorded({{"first", ordinal(*from)}, {"last", ordinal(origin.origin.position.step - 1)}}),
            .help = Advice(words::kRecordAllSteps({{"step", ordinal(*from)}}))};
  return {.cause = NonfiniteCause::bad_start, .help = Advice(words::kCheckStart())};
}

// ---- an update

// The learning rate of the update is NaN or Inf. NaN stands for one that is not known too, which those of a run are in all steps.
NonfiniteExplanation explain_rate(const OriginFacts& origin) {
  const RowPosition& position = origin.origin.position;
  std::optional<double> last_finite, here;
  origin.facts.context.trace.of_rank(position.rank)
      .visit_parameters({0, position.step + 1}, [&](std::span<const ParameterRow> rows) {
        for (const ParameterRow& row : rows) {
          if (origin.facts.selection.tensor(row.tensor).op != origin.made.op) continue;
          if (row.step == position.step)
            here = row.learning_rate;
          else if (std::isfinite(row.learning_rate))
            last_finite = row.learning_rate;
        }
        return true;
      });
  if (!here || std::isfinite(*here) || (std::isnan(*here) && !last_finite)) return {};
  NonfiniteExplanation found{.story = words::kRateIsSpecial({{"rate", *here}}), .help = Advice(words::kCheckSchedule())};
  if (last_finite) found.story += words::kRateWas({{"before", *last_finite}});
  return found;
}

// ---- what cannot be looked into

// "NaN", "Inf", or both, of what the origin's row held.
Value held_by(const OriginFacts& origin) {
  const std::optional<TensorRow> row = origin.row();
  const uint64_t nan = row ? row->statistics.nan : 0, infinities = row ? stored_infinities(*row, origin.made.dtype) : 0;
  return nan > 0 && infinities > 0 ? words::kNanAndInf() : nan > 0 ? words::kNan() : words::kInf();
}

enum class InputsRead : uint8_t { finite, not_recorded, nothing_known };
// How the inputs of the origin's op were; nothing is said of values that were not finite in an earlier step.
InputsRead inputs_read(const OriginFacts& origin) {
  bool were_finite = false;
  for (const GraphEdge& edge : origin.facts.context.trace.graph().edges()) {
    if (edge.consumer != origin.made.op) continue;
    const std::optional<uint32_t> tensor = origin.recorded(edge.producer, edge.slot);
    if (!tensor) return InputsRead::not_recorded;
    if (!origin.was_finite(*tensor)) return InputsRead::nothing_known;
    were_finite = true;
  }
  if (!origin.op.inputs_told) return InputsRead::not_recorded;
  return were_finite ? InputsRead::finite : InputsRead::nothing_known;
}

NonfiniteExplanation explain_opaque(const OriginFacts& origin) {
  const OpInfo& op = origin.op;
  const Value held = held_by(origin), name = Name{NameKind::op, op.name};
  Value::List where;
  if (const std::string& line = origin.facts.selection.location(origin.origin.tensor); !line.empty())
    where.push_back(Name{NameKind::file, line});
  if (!op.module.empty()) where.push_back(words::kInModule({{"module", Name{NameKind::module, op.module}}}));
  if (op.phase != Phase::forward) where.push_back(Name{NameKind::phase, std::string(name_of(op.phase))});
  const InputsRead read = inputs_read(origin);
  Advice help(read == InputsRead::finite ? words::kCheckKernel({{"op", name}, {"held", held}})
                                         : words::kCheckKernelAndInputs({{"op", name}, {"held", held}}));
  const ProducerWords& producer = origin.facts.context.settings.words();
  if (!producer.observe.empty())
    help.text += words::kObserveInside({{"observe", Name{NameKind::function, std::string(producer.observe)}},
                                        {"eager", Name{NameKind::function, std::string(producer.eager)}}});
  return {.cause = NonfiniteCause::opaque,
          .headline = words::kCameOut({{"held", held}, {"op", name}, {"where", Value::list(std::move(where))}}),
          .story = read == InputsRead::finite         ? Sentences(words::kFiniteInputs())
                   : read == InputsRead::not_recorded ? Sentences(words::kUnknownInputs())
                                                      : Sentences(),
          .help = std::move(help)};
}

// ---- an update that divides by a state

// Elements of a state in the step of the origin.
struct Moments {
  uint64_t zeros = 0, count = 0;
};
Moments moments_of(const OriginFacts& origin, uint32_t tensor) {
  const RowPosition& position = origin.origin.position;
  Moments moments;
  origin.facts.context.trace.of_rank(position.rank)
      .visit_history(tensor, {position.step, position.step + 1}, [&](std::span<const TensorRow> rows) {
        for (const TensorRow& row : rows) {
          moments.zeros += row.statistics.zeros + (row.before_rounding ? row.rounding.flushed : 0);
          moments.count += row.statistics.count;
        }
        return true;
      });
  return moments;
}

// An optimizer of PyTorch whose rule is not recorded divides by such a state, plus eps.
NonfiniteExplanation explain_divisor(const OriginFacts& origin) {
  static constexpr std::string_view kDivisors[] = {"square_avg", "sum", "exp_inf", "exp_avg_sq"};
  const SettingNames& settings = origin.facts.context.settings;
  const std::vector<double> all_eps = settings.numbers(SettingKind::epsilon);  // of groups that differ
  const std::optional<TensorRow> row = origin.row();
  if (origin.made.role != Role::weight || all_eps.empty() || !row) return {};
  if (std::any_of(all_eps.begin(), all_eps.end(), [](double eps) { return eps != 0; })) return {};
  const uint64_t nonfinite = stored_nonfinite(*row, origin.made.dtype);
  for (const uint32_t state : origin.facts.context.graph.made_by(origin.made.op)) {
    const TensorInfo& tensor = origin.facts.selection.tensor(state);
    const bool divides = std::find(std::begin(kDivisors), std::end(kDivisors), tensor.name) != std::end(kDivisors);
    const Moments moments = divides ? moments_of(origin, state) : Moments{};
    if (moments.zeros == 0 || moments.zeros < nonfinite) continue;
    Advice help;
    help.text = words::kSetEpsilon({{"epsilon", help.raise(settings.now_of(SettingKind::epsilon, 0))}});
    return {.cause = NonfiniteCause::denominator_underflow,
            .headline = words::kZeroState({{"optimizer", Name{NameKind::op, origin.op.name}},
                                           {"step", ordinal(origin.origin.position.step)},
                                           {"zeros", moments.zeros},
                                           {"count", moments.count},
                                           {"state", Name{NameKind::parameter, tensor.name}}}),
            .help = std::move(help)};
  }
  return {};
}

NonfiniteExplanation explain_second_moment(const OriginFacts& origin, double gradient, double square) {
  Advice help;
  const SettingNames& settings = origin.facts.context.settings;
  if (is_narrow(origin.made.dtype))
    help.text = words::kMastersHaveMoments({{"masters", help.set(settings.switched(SettingKind::master_weights, true))}});
  else
    help.text = words::kClipBeforeMoments();
  return {.cause = NonfiniteCause::second_moment_overflow,
          .story = words::kSecondMoment({{"at", origin.capture ? at_element(origin.capture->element()) : Sentence()},
                                         {"square", square},
                                         {"beyond", too_large(square, origin.format())},
                                         {"gradient", gradient}}),
          .help = std::move(help)};
}

// With each operation rounded eps becomes zero, and with it the divisor.
NonfiniteExplanation explain_flushed_epsilon(const OriginFacts& origin, double eps, double beta2, double flushed) {
  const SettingNames& settings = origin.facts.context.settings;
  const Value format = format_name(origin.format());
  const Value step = ordinal(origin.origin.position.step);
  Advice help;
  const Setting masters = help.set(settings.switched(SettingKind::master_weights, true));
  const Setting once = help.set(settings.changed(SettingKind::update_math, settings.words().parameter_math, settings.words().fp32));
  help.text = words::kMastersOrFp32Update(
      {{"masters", masters}, {"math", once.empty() ? settings.name(SettingKind::update_math).words : once}});
  help.text += words::kMomentsUnderflow({{"format", format}});
  return {.cause = NonfiniteCause::epsilon_flushed,
          .headline = words::kEpsilonFlushed({{"step", step},
                                              {"format", format},
                                              {"eps", eps},
                                              {"gradient", {0.5 * std::log2(flushed / (1 - beta2)), Unit::exponent}}}),
          .story = words::kUpdateMath({{"format", format}, {"math", settings.with_value(SettingKind::update_math)}}),
          .help = std::move(help)};
}

// The gradient of the captured element, or else the largest one that the update read; NaN: neither is known.
double gradient_of_update(const OriginFacts& origin) {
  constexpr uint32_t kGradient = 1;
  if (const CaptureRow* const captured = origin.capture ? origin.capture->operand(kGradient) : nullptr) return captured->value;
  const auto read = origin.read_as(kGradient);
  const std::optional<TensorRow> row = read ? origin.last_row(*read) : std::nullopt;
  return row && row->known == StatisticsLevel::values ? row->statistics.largest / row->scale : kUnknown;
}

NonfiniteExplanation explain_adam(const OriginFacts& origin) {
  const RunFacts& facts = origin.facts;
  const auto stepwise = attribute(origin.op, "stepwise"), eps = attribute(origin.op, "eps"), beta2 = attribute(origin.op, "beta2");
  const auto squares = origin.recorded(origin.made.op, *slot_of(origin.op.function, Meaning::second_moment));
  if (!eps || !beta2) return {};
  if (squares == origin.origin.tensor) {
    const double gradient = gradient_of_update(origin), square = (1 - *beta2) * gradient * gradient;
    if (square >= origin.limit()) return explain_second_moment(origin, gradient, square);
  }
  if (is_narrow(origin.made.dtype) && stepwise.value_or(0) != 0 && squares) {
    const double flushed = magnitude_thresholds(origin.format(), rounding_of(origin.made)).flushed.surely_below;
    const RangeTotals& totals = facts.ranges().find(*squares)->judged.totals;
    if (*eps > 0 && *eps <= flushed && totals.seen.flushed.lower + totals.zeros > 0)
      return explain_flushed_epsilon(origin, *eps, *beta2, flushed);
  }
  const Moments moments = *eps == 0 && squares ? moments_of(origin, *squares) : Moments{};
  if (moments.zeros == 0) return {};
  Advice help;
  help.text = words::kNeedsEpsilon({{"epsilon", help.raise(facts.context.settings.now_of(SettingKind::epsilon, *eps))}});
  return {.cause = NonfiniteCause::denominator_underflow,
          .headline = words::kZeroMoments(
              {{"step", ordinal(origin.origin.position.step)}, {"moments", moments.zeros}, {"count", moments.count}}),
          .story = words::kWhyZeroMoments(),
          .help = std::move(help)};
}

// ---- a loss that is NaN for finite inputs

NonfiniteExplanation explain_loss(const OriginFacts& origin) {
  const RunFacts& facts = origin.facts;
  const ProducerWords& producer = facts.context.settings.words();
  if (facts.ranges().infinities(origin.origin.tensor) > 0) return {};
  if (origin.op.function == OpFunction::binary_cross_entropy) {
    const auto probability = origin.read_as(0), target = origin.read_as(1);
    if (!probability || !origin.was_finite(*probability) || (target && !origin.was_finite(*target))) return {};
    Advice help;
    Setting function;
    if (facts.context.settings.has(producer.loss_function)) {
      help.note({.value = std::string(producer.bce_with_logits), .name = std::string(producer.loss_function)});
      function = {.name = std::string(producer.loss_function), .to = std::string(producer.bce_with_logits)};
    }
    help.text = words::kEndWithSigmoid({{"setting", function}});
    return {.cause = NonfiniteCause::log_of_negative, .story = words::kNoProbability(), .help = std::move(help)};
  }
  if (origin.op.function == OpFunction::nll) {
    const auto logs = origin.read_as(0), weights = origin.read_as(2);
    if (!logs || !origin.was_finite(*logs) || (weights && !origin.was_finite(*weights))) return {};
    return {
        .cause = NonfiniteCause::zero_over_zero,
        .story = words::kNoWeightOfTargets(),
        .help = Advice(words::kKeepBatchesWithTargets({{"setting", facts.context.settings.now_named(producer.ignored_targets)}}))};
  }
  if (origin.op.function != OpFunction::cross_entropy) return {};
  const auto sums = origin.recorded(origin.made.op, *slot_of(origin.op.function, Meaning::log_sum_exp));
  if (!sums || !origin.was_finite(*sums)) return {};
  return {.cause = NonfiniteCause::zero_over_zero,
          .story = words::kNoTarget(),
          .help = Advice(words::kLeaveTargets({{"setting", facts.context.settings.now_named(producer.ignored_targets)}}))};
}

NonfiniteExplanation find_cause(const OriginFacts& origin) {
  const OpInfo& op = origin.op;
  if (const std::string changed = changed_parameter(origin); !changed.empty())
    return explain_memory(words::kMemoryChanged({{"parameter", Name{NameKind::parameter, changed}}}));
  if (Sentence changed = changed_operand(origin); !changed.empty()) return explain_memory(std::move(changed));
  if (op.kind == OpKind::source) return explain_source(origin);
  if (op.kind == OpKind::opaque) return explain_opaque(origin);
  NonfiniteExplanation found;
  if (op.kind == OpKind::update) found = explain_rate(origin);
  if (!found.story.empty()) return found;
  if (op.function == OpFunction::adam_update) found = explain_adam(origin);
  if (op.kind == OpKind::update && op.function == OpFunction::assign) found = explain_divisor(origin);
  if (op.kind == OpKind::loss && origin.made.slot == 0) found = explain_loss(origin);
  if (found.cause == NonfiniteCause::unknown && origin.capture) {
    const CaptureRow& element = origin.capture->element();
    if (op.kind == OpKind::normalization)
      found = explain_normalization(origin);
    else if (std::isfinite(element.partial_sum) && element.terms > 0)
      found = explain_sum(origin);
    else if (op.kind == OpKind::elementwise || op.kind == OpKind::cast)
      found = explain_operands(origin);
  }
  // Where what was captured does not tell, as of an op in place or of a sum without its value, the rows may.
  if (found.cause == NonfiniteCause::unknown && found.story.empty()) found = explain_by_rows(origin);
  const bool is_unknown = found.cause == NonfiniteCause::unknown && found.story.empty() && !origin.capture;
  if (const auto from = is_unknown && origin.reads_step_before() ? origin.unrecorded_from() : std::nullopt)
    return {.cause = NonfiniteCause::not_recorded,
            .story = words::kMayBeOlder({{"step", ordinal(origin.origin.position.step - 1)}}),
            .help = Advice(words::kRecordAllSteps({{"step", ordinal(*from)}}))};
  return found;
}

}  // namespace

const char* name_of(NonfiniteCause cause) { return kCauses[static_cast<size_t>(cause)].name; }
const char* meaning_of(NonfiniteCause cause) { return kCauses[static_cast<size_t>(cause)].meaning; }

bool is_overflow(NonfiniteCause cause) {
  return cause == NonfiniteCause::overflow_on_cast || cause == NonfiniteCause::overflow_in_arithmetic ||
         cause == NonfiniteCause::overflow_of_a_sum || cause == NonfiniteCause::overflow_of_exp;
}

NonfiniteExplanation explain(const RunFacts& facts, const NonfiniteOrigin& origin) {
  OriginFacts of(facts, origin);
  NonfiniteExplanation explanation = find_cause(of);
  explanation.capture = std::move(of.capture);
  return explanation;
}

}  // namespace ulpscope
