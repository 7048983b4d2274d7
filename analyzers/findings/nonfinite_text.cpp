#include "ulpscope/analyzers/findings/nonfinite_text.h"

#include <algorithm>
#include <optional>

#include "ulpscope/analyzers/findings/batch_text.h"
#include "ulpscope/analyzers/findings/not_tried.h"
#include "ulpscope/analyzers/findings/overflow_text.h"
#include "ulpscope/analyzers/judgements/nonfinite_cause.h"
#include "ulpscope/analyzers/judgements/origin_facts.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/judgements/wide_scope.h"
#include "ulpscope/analyzers/subject/captured_sample.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_place.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"

namespace ulpscope::findings {

extern constinit const Template kNoTypeHelps{"advice.no_type_helps",
                                             "No type helps: {format} has FP32's range. Find what makes the values grow."};
extern constinit const Template kNoScaleHelps{"advice.no_scale_helps_forward", "Loss scaling does not affect forward values."};

namespace {

constexpr Template kOfRank{"place.of_rank", ", rank {rank}"};
constexpr Template kNan{"nonfinite.nan", "NaN"};
constexpr Template kInf{"nonfinite.inf", "Inf"};
constexpr Template kNanAndInf{"nonfinite.nan_and_inf", "NaN and Inf"};
constexpr Template kInForward{"pass.forward", "in the forward pass"};
constexpr Template kInLoss{"pass.loss", "in the loss"};
constexpr Template kInBackward{"pass.backward", "in the backward pass"};
constexpr Template kInScaling{"pass.scaling", "in unscaling or clipping"};
constexpr Template kInCommunication{"pass.communication", "between ranks"};
constexpr Template kInOptimizer{"pass.optimizer", "in the optimizer"};
constexpr Template kInEvaluation{"pass.evaluation", "in evaluation"};
constexpr Template kInData{"pass.data", "in the data"};
constexpr Template kExportShows{"advice.export_shows_element",
                                "`ulpscope export {trace} --table captures --step {step}` shows an element of it in another "
                                "step."};
constexpr Template kWideOnGpu{"advice.wide_on_gpu", "On CUDA autocast computes `{op}` in FP32; on the CPU it does not."};
constexpr Template kStatisticHoldsIt{
    "nonfinite.statistic_holds_it",
    "{place} holds it from step {step} on. Skipped steps do not undo that, and evaluation reads it."};
constexpr Template kDividedByIt{"nonfinite.divided_by_it",
                                "{place} divided by that Inf and returned 0 in {zeros} of {steps:count step}."};
constexpr Template kTensorsHeldIt{"nonfinite.tensors", "{tensors} tensors held NaN or Inf in the run."};
constexpr Template kTensorsBeganIt{"nonfinite.tensors_began",
                                   "{tensors} tensors held NaN or Inf in the run; in {beginnings} of these it began."};
constexpr Template kTensorsEachBeganIt{"nonfinite.tensors_each", "{tensors} tensors held NaN or Inf in the run, each on its own."};
constexpr Template kBecameTooLarge{"overflow.became_too_large",
                                   "{format} overflow {pass}: {place}{rank}, step {step}, {elements} of {count:count element}."};
constexpr Template kNormalizeData{"advice.normalize_data", "Normalize the inputs: {place} overflows when it is cast."};
constexpr Template kCastLater{"advice.cast_later",
                              "Divide or normalize the values before they become {format}, or keep them in FP32."};
constexpr Template kOneBecameTooLarge{"overflow.one_became_too_large", "{format} overflow {pass}: {place}{rank}, step {step}."};

}  // namespace

Sentence of_rank(const RunFacts& facts, int rank) {
  return facts.context.trace.ranks().size() > 1 ? kOfRank({{"rank", ordinal(rank)}}) : Sentence();
}

Sentence in_pass(Phase phase) {
  switch (phase) {
    case Phase::data:
      return kInData();
    case Phase::forward:
    case Phase::recompute:
      return kInForward();
    case Phase::loss:
      return kInLoss();
    case Phase::backward:
      return kInBackward();
    case Phase::scaling:
      return kInScaling();
    case Phase::communication:
      return kInCommunication();
    case Phase::optimizer:
      return kInOptimizer();
    case Phase::evaluation:
      return kInEvaluation();
  }
  return {};
}

Sentence kind_of(uint64_t nan, uint64_t infinities) { return nan > 0 && infinities > 0 ? kNanAndInf() : nan > 0 ? kNan() : kInf(); }

size_t count_nonfinite_tensors(const RunFacts& facts) {
  std::vector<uint32_t> all;
  for (const auto& [i, judged, broken] : facts.ranges().tensors()) {
    if (facts.ranges().is_mask(i) && facts.ranges().nonfinite(i).rows == 0) continue;
    if (judged.totals.nonfinite() > 0 || (broken && broken->totals.nonfinite() > 0)) all.push_back(i);
  }
  return facts.selection.count_outputs(all);
}

Sentence nonfinite_tensors(const RunFacts& facts) {
  const size_t tensors = count_nonfinite_tensors(facts), beginnings = facts.ranges().beginnings().size();
  if (tensors < 2) return {};
  if (beginnings < 2) return kTensorsHeldIt({{"tensors", tensors}});
  if (beginnings >= tensors) return kTensorsEachBeganIt({{"tensors", tensors}});
  return kTensorsBeganIt({{"tensors", tensors}, {"beginnings", beginnings}});
}

std::vector<Evidence> nonfinite_evidence(const RunFacts& facts, const NonfiniteOrigin& origin) {
  const RangeJudgement& ranges = facts.ranges();
  std::vector<Evidence> evidence;
  // What that row held, as it stands beside its step: over the run there may be many more.
  const auto add = [&](uint32_t i, const RowPosition& position) {
    const std::optional<TensorRow> row = row_at(facts, i, position);
    const uint64_t nan = row ? row->statistics.nan : 0;
    const uint64_t infinities = row ? stored_infinities(*row, facts.selection.tensor(i).dtype) : 0;
    evidence.push_back({facts.selection.key(i, position),
                        {{"nan", count_cell(nan), Unit::count}, {"infinity", count_cell(infinities), Unit::count}}});
  };
  add(origin.tensor, origin.position);
  for (const uint32_t i : ranges.nonfinite_in_order()) {
    if (evidence.size() == kMostEvidence) break;
    if (i != origin.tensor) add(i, *ranges.nonfinite(i).first);
  }
  return evidence;
}

namespace {

// The batch whose cast `made` is; nothing where it is anything else.
std::optional<uint32_t> data_cast_by(const RunFacts& facts, const TensorInfo& made) {
  if (facts.context.trace.ops()[made.op].kind != OpKind::cast) return std::nullopt;
  const std::span<const uint32_t> read = facts.context.graph.tensors_read_by(made.op, 0);
  if (read.empty() || facts.selection.tensor(read.front()).role != Role::input ||
      facts.selection.op(read.front()).kind != OpKind::source)
    return std::nullopt;
  return read.front();
}

// In many steps something was divided by what it made infinite.
bool gives_zeros(const RunFacts& facts, const NonfiniteOrigin& origin) {
  const NonfiniteBeginning* const one = facts.ranges().beginning_of(origin);
  return one != nullptr && !one->statistic && wastes_many(one->zeros.steps, facts.steps().with_ops);
}

}  // namespace

Extent nonfinite_extent(const RunFacts& facts, const NonfiniteOrigin& origin) {
  Extent extent{facts.ranges().nonfinite_in_order(), origin.position.step, origin.tensor};
  std::vector<uint32_t>& tensors = extent.tensors;
  if (std::find(tensors.begin(), tensors.end(), origin.tensor) == tensors.end()) tensors.push_back(origin.tensor);
  extent.gives_zeros = gives_zeros(facts, origin);
  // Of a gradient steps that were taken; where there are none, those that were skipped for it.
  const uint64_t taken = facts.ranges().nonfinite(origin.tensor).steps.size();
  const RangeJudgement::Tensor* const rows = facts.ranges().find(origin.tensor);
  const uint64_t steps = taken > 0 || rows == nullptr ? taken : rows->judged.scaled.overflow_skipped.size();
  if (steps > 0) extent.steps = steps;
  return extent;
}

namespace {

constexpr Template kMadeOfSample{"range.nonfinite.made_of_sample", "The element was made of {sample}."};

// The sample of a prepared batch: that of the captured element's first operand that is known to have one, or "".
std::string sample_of_operand(const RunFacts& facts, const NonfiniteOrigin& origin, const NonfiniteExplanation& explanation) {
  if (!explanation.capture) return "";
  const Snapshot of_rank = facts.context.trace.of_rank(origin.position.rank);
  for (const CaptureRow* const operand : explanation.capture->operands(explanation.capture->element())) {
    if (operand->made_by < 0) continue;
    if (std::string sample = sample_of(of_rank, static_cast<uint32_t>(operand->made_by), *operand); !sample.empty()) return sample;
  }
  return "";
}

}  // namespace

Sentence advice_on_captures(const RunFacts& facts, const NonfiniteOrigin& origin, const NonfiniteExplanation& explanation) {
  const Name trace = trace_name(facts.context.trace);
  const bool is_of_data = facts.selection.op(origin.tensor).phase == Phase::data;
  if (is_of_data && facts.selection.op(origin.tensor).kind != OpKind::source && facts.context.trace.row_count("batches") > 0) {
    if (const std::string sample = sample_of_operand(facts, origin, explanation); !sample.empty())
      return kMadeOfSample({{"sample", Name{NameKind::data, sample}}});
    return kExportListsBatch({{"trace", trace}, {"step", ordinal(origin.position.step)}});
  }
  if (explanation.capture && facts.ranges().main_origin()->tensor == origin.tensor) {
    const std::vector<const CaptureRow*> operands = explanation.capture->operands(explanation.capture->element());
    const bool has_operands =
        std::any_of(operands.begin(), operands.end(), [](const CaptureRow* operand) { return !operand->overwritten; });
    return (has_operands ? kNanShowsOperands : kNanShowsElement)({{"trace", trace}});
  }
  // A tensor that held them often is captured less and less often.
  std::optional<uint64_t> other;
  for (const CaptureRow& node : facts.context.trace.captures({0, UINT64_MAX})) {
    if (node.tensor == origin.tensor && node.node == 0 && (!other || node.step <= origin.position.step)) other = node.step;
  }
  if (!other) return {};
  return kExportShows({{"trace", trace}, {"step", ordinal(*other)}});
}

Sentence wide_on_gpu(const RunFacts& facts, const NonfiniteOrigin& origin) {
  const OpInfo& op = facts.selection.op(origin.tensor);
  const std::span<const OpFunction> wide = facts.context.settings.words().wide_on_gpu;
  const bool is_narrowed = facts.precision().casts_weights && facts.context.trace.run().backend == "cpu" &&
                           computes_forward(op.phase) && is_narrow(facts.selection.tensor(origin.tensor).dtype);
  if (!is_narrowed || std::find(wide.begin(), wide.end(), op.function) == wide.end()) return {};
  return kWideOnGpu({{"op", Name{NameKind::op, op.name}}});
}

Sentence further_harm(const RunFacts& facts, const NonfiniteOrigin& origin) {
  const RangeJudgement& ranges = facts.ranges();
  if (ranges.harm() == Severity::info) return {};
  const NonfiniteBeginning* const one = ranges.beginning_of(origin);
  if (one == nullptr) return {};
  if (one->statistic)
    return kStatisticHoldsIt(
        {{"place", tensor_place(facts.selection, one->statistic->tensor)}, {"step", ordinal(one->statistic->position.step)}});
  if (!gives_zeros(facts, origin)) return {};
  return kDividedByIt({{"place", tensor_place(facts.selection, one->zeros.tensor)},
                       {"zeros", one->zeros.steps},
                       {"steps", facts.steps().with_ops}});
}

Advice overflow_advice(const RunFacts& facts, const NonfiniteOrigin& origin, const NonfiniteExplanation& explanation) {
  const TensorInfo& made = facts.selection.tensor(origin.tensor);
  const OpInfo& op = facts.selection.op(origin.tensor);
  Advice advice = explanation.help;
  const bool is_scaled_loss = made.role == Role::loss && op.function == OpFunction::scale && op.phase != Phase::forward;
  if (is_gradient(made.role) || is_scaled_loss) return advice + lower_scale_advice(facts, made.dtype);
  if (!is_narrow(made.dtype)) return advice;
  if (has_range_of_fp32(made.dtype)) {
    if (advice.text.empty()) advice.text = kNoTypeHelps({{"format", format_name(*info(made.dtype).format)}});
    return advice;
  }
  if (op.phase == Phase::data) {  // before the model sees it, whatever its own precision is
    advice.text = kCastLater({{"format", format_name(*info(made.dtype).format)}});
    return advice;
  }
  if (const auto data = data_cast_by(facts, made)) advice.text += kNormalizeData({{"place", tensor_place(facts.selection, *data)}});
  advice.text += kNoScaleHelps();
  return advice + widen(facts, origin.tensor);
}

void tell_overflow(const RunFacts& facts, const NonfiniteOrigin& origin, Findings& found) {
  Extent extent = nonfinite_extent(facts, origin);
  const NonfiniteExplanation explanation = explain(facts, origin);
  const std::optional<TensorRow> row = row_at(facts, origin.tensor, origin.position);
  std::vector<Argument> words{{"format", format_name(*info(facts.selection.tensor(origin.tensor).dtype).format)},
                              {"pass", in_pass(facts.selection.op(origin.tensor).phase)},
                              {"place", tensor_place(facts.selection, origin.tensor)},
                              {"rank", of_rank(facts, origin.position.rank)},
                              {"step", ordinal(origin.position.step)}};
  const bool has_several = row && row->statistics.count > 1;
  if (has_several) {
    extent.value = {"elements", count_cell(origin.overflowed), Unit::count};
    words.push_back({"elements", origin.overflowed});
    words.push_back({"count", row->statistics.count});
  }
  Sentences title = Sentence(has_several ? kBecameTooLarge : kOneBecameTooLarge, std::move(words));
  title += explanation.story;
  title += further_harm(facts, origin);
  title += nonfinite_tensors(facts);
  found.add(
      facts.ranges().harm(), std::move(title), nonfinite_evidence(facts, origin),
      overflow_advice(facts, origin, explanation) + wide_on_gpu(facts, origin) + advice_on_captures(facts, origin, explanation),
      std::move(extent));
}

}  // namespace ulpscope::findings
