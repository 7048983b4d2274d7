#include "ulpscope/analyzers/findings/checked.h"

#include <algorithm>

#include "ulpscope/analyzers/judgements/op_errors.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/run_memory.h"
#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/subject/coverage.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/step_losses.h"

namespace ulpscope {

namespace {

constexpr Template kChecked{"checked.matters", "{matters:commas}."};
constexpr Template kNothing{"checked.nothing", "nothing."};
constexpr Template kNotChecked{"checked.not", "Not checked: {matters:commas}."};
constexpr Template kLosses{"checked.losses", "losses"};
constexpr Template kNoLoss{"checked.no_loss", "the loss (the trace has none)"};
constexpr Template kNonfinite{"checked.nonfinite", "NaN and Inf"};
constexpr Template kRanges{"checked.ranges", "underflow and overflow"};
constexpr Template kNoRows{"checked.no_rows", "values (the trace has no tensor rows)"};
constexpr Template kStepsLeftOut{"checked.steps_left_out", "tensors of {left_out} of {steps:count step} (not recorded)"};
constexpr Template kUnseen{"checked.unseen_roundings", "{unseen} of {roundings} roundings (not counted by the producer)"};
constexpr Template kScale{"checked.loss_scale", "loss scale"};
constexpr Template kUpdates{"checked.updates", "lost updates"};
constexpr Template kUnknownRule{"checked.unknown_rule", "lost updates of `{optimizer}` (what it asks for is not recorded)"};
constexpr Template kNoUpdates{"checked.no_updates", "lost updates (no update was recorded)"};
constexpr Template kOtherUpdates{"checked.other_updates",
                                 "lost updates of {parameters:count parameter} that the program changes itself ({first})"};
constexpr Template kNoUpdatesBeforeBreak{"checked.no_updates_before_break",
                                         "lost updates (no update was recorded before the run broke)"};
constexpr Template kNotRead{"checked.calls_not_read", "{not_read} of {calls} calls (on tensors that are {kinds:and})"};
constexpr Template kKind{"checked.kind_of_tensors", "{kind}"};
constexpr Template kRefused{"checked.calls_refused", "{refused:count call} that the recorder refused"};
constexpr Template kCompiled{"checked.compiled", "what is not dispatched inside of {modules:count compiled module}"};
constexpr Template kThreads{"checked.other_threads", "{calls:count call} of modules in other threads"};
constexpr Template kPaused{"checked.paused", "{blocks:count block} in which recording was paused"};
constexpr Template kOtherRanks{"checked.other_ranks", "{others:count other rank} (not read)"};
constexpr Template kStepsWithoutLoss{"checked.steps_without_loss", "the loss of {lacking} of {steps:count step} (not known)"};
constexpr Template kFiltered{"checked.filtered", "what was not recorded ({filters})"};
constexpr Template kGradientSums{"checked.gradient_sums", "sums of gradients in 16 bits"};
constexpr Template kSums{"checked.sums", "rounding error of sums"};
constexpr Template kOtherSums{"checked.other_sums", "rounding error of other sums"};
constexpr Template kOpErrors{"checked.op_errors", "rounding errors of ops in {steps:count step}"};

// The recording left these out, where they may hide something.
void add_left_out(const Snapshot& trace, Value::List& unseen) {
  constexpr double kFelt = 0.01;  // of the calls
  const Coverage coverage = coverage_of(trace);
  const uint64_t not_read = coverage.calls_not_read(), calls = coverage.calls + not_read;
  if (!trace.run().filters.empty()) unseen.push_back(kFiltered({{"filters", Name{NameKind::value, trace.run().filters}}}));
  if (trace.lacks_ranks()) unseen.push_back(kOtherRanks({{"others", trace.run().world_size - 1}}));
  if (not_read > 0 && static_cast<double>(not_read) >= kFelt * static_cast<double>(calls)) {
    Value::List kinds;
    for (const auto& [kind, unused] : coverage.not_read) kinds.push_back(kKind({{"kind", Name{NameKind::value, kind}}}));
    unseen.push_back(kNotRead({{"not_read", not_read}, {"calls", calls}, {"kinds", Value::list(std::move(kinds))}}));
  }
  if (coverage.refused > 0) unseen.push_back(kRefused({{"refused", coverage.refused}}));
  if (coverage.compiled_modules > 0) unseen.push_back(kCompiled({{"modules", coverage.compiled_modules}}));
  if (coverage.calls_of_other_threads > 0) unseen.push_back(kThreads({{"calls", coverage.calls_of_other_threads}}));
  if (coverage.paused_blocks > 0) unseen.push_back(kPaused({{"blocks", coverage.paused_blocks}}));
}

// Names of parameters that ops of the program write, as those of an average of weights: none of these is an update whose rule is
// known.
std::vector<std::string> changed_by_program(const RunFacts& facts) {
  std::vector<std::string> names;
  const std::span<const UpdateJudgement::Weight> judged = facts.updates().weights();
  for (uint32_t i = 0; i < facts.selection.size(); ++i) {
    const OpInfo& op = facts.selection.op(i);
    const TensorInfo& tensor = facts.selection.tensor(i);
    const bool is_changed = tensor.role == Role::weight && op.phase == Phase::optimizer && op.kind == OpKind::elementwise;
    if (!is_changed || tensor.parameter.empty()) continue;
    const auto is_it = [&](const UpdateJudgement::Weight& weight) {
      return facts.selection.tensor(weight.tensor).parameter == tensor.parameter;
    };
    if (std::any_of(judged.begin(), judged.end(), is_it)) continue;
    if (std::find(names.begin(), names.end(), tensor.parameter) == names.end()) names.push_back(tensor.parameter);
  }
  return names;
}

}  // namespace

Sentences what_was_checked(const RunFacts& facts, std::span<const Part> parts) {
  if (facts.steps().count == 0) return kNothing();
  const auto has = [&](Part part) { return std::find(parts.begin(), parts.end(), part) != parts.end(); };
  Value::List seen, unseen;
  if (has(Part::run)) {
    const std::vector<StepNumbers>& steps = facts.memory.steps.steps(facts.context);
    const auto lacking =
        static_cast<uint64_t>(std::count_if(steps.begin(), steps.end(), [](const StepNumbers& one) { return !one.loss_known; }));
    const bool knows = lacking < steps.size() || knows_a_loss(facts.context.trace);
    (knows ? seen : unseen).push_back((knows ? kLosses : kNoLoss)());
    if (knows && lacking > 0) unseen.push_back(kStepsWithoutLoss({{"lacking", lacking}, {"steps", steps.size()}}));
  }
  if (has(Part::ranges)) {
    uint64_t counted = 0, uncounted = 0;
    for (const RangeJudgement::Tensor& tensor : facts.ranges().tensors()) {
      counted += tensor.judged.totals.rows_seen;
      uncounted += tensor.judged.totals.rows_unseen;
    }
    if (facts.ranges().tensors().empty()) {
      unseen.push_back(kNoRows());
    } else {
      seen.push_back(kNonfinite());
      if (counted > 0 || uncounted == 0) seen.push_back(kRanges());
    }
    const StepTotals& steps = facts.steps();
    if (steps.with_ops < steps.count)
      unseen.push_back(kStepsLeftOut({{"left_out", steps.count - steps.with_ops}, {"steps", steps.count}}));
    if (uncounted > 0) unseen.push_back(kUnseen({{"unseen", uncounted}, {"roundings", counted + uncounted}}));
  }
  if (has(Part::scale) && facts.scale().scaling == LossScaling::scaled) seen.push_back(kScale());
  if (has(Part::updates)) {
    const std::vector<UpdateJudgement::Weight>& weights = facts.updates().weights();
    const auto has_rule = [&](const UpdateJudgement::Weight& weight) {
      return facts.selection.op(weight.tensor).function != OpFunction::assign;
    };
    const auto other = std::find_if_not(weights.begin(), weights.end(), has_rule);
    if (weights.empty())
      unseen.push_back((facts.broke() ? kNoUpdatesBeforeBreak : kNoUpdates)());
    else if (std::any_of(weights.begin(), weights.end(), has_rule))
      seen.push_back(kUpdates());
    if (other != weights.end())
      unseen.push_back(kUnknownRule({{"optimizer", Name{NameKind::op, facts.selection.op(other->tensor).name}}}));
    if (const std::vector<std::string> others = changed_by_program(facts); !others.empty())
      unseen.push_back(kOtherUpdates({{"parameters", others.size()}, {"first", Name{NameKind::parameter, others.front()}}}));
  }
  const auto of_gradients = [](const UpdateJudgement::RunningSum& sum) { return sum.of_gradients; };
  const bool saw_sums =
      has(Part::updates) && std::any_of(facts.updates().running_sums().begin(), facts.updates().running_sums().end(), of_gradients);
  if (saw_sums) seen.push_back(kGradientSums());
  add_left_out(facts.context.trace, unseen);
  // The sentence holds where all ops were shadowed, not some that were asked for.
  const std::vector<SettingInfo>& settings = facts.context.settings.all();
  const bool is_of_all = std::none_of(settings.begin(), settings.end(), [](const SettingInfo& setting) {
    return setting.name == "shadow.ops" && setting.value != "[]";
  });
  uint64_t shadowed = 0;
  if (has(Part::errors) && is_of_all)
    for (const OpError& error : facts.op_errors()) shadowed = std::max(shadowed, error.steps);
  if (shadowed > 0)
    seen.push_back(kOpErrors({{"steps", shadowed}}));
  else if (has(Part::ranges))
    unseen.push_back((saw_sums ? kOtherSums : kSums)());
  Sentences checked;
  if (!seen.empty()) checked += kChecked({{"matters", Value::list(std::move(seen))}});
  if (!unseen.empty()) checked += kNotChecked({{"matters", Value::list(std::move(unseen))}});
  return checked;
}

}  // namespace ulpscope
