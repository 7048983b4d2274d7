#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/analyzers/subject/tensor_rounding.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::findings {

namespace {

// Updates are divided by the root of the second moment, 1.4 times too much at least.
constexpr double kTooLarge = 2;

constexpr Template kStuck{"precision.second_moment_stuck",
                          "Adam's second moments in {formats} cannot fall: {beta2:g} v rounds back to v."};
constexpr Template kOftenStuck{"precision.second_moment_stuck.often",
                               "Adam's second moments in {formats} fall too little: {beta2:g} v rounds back to v for many v."};
constexpr Template kGrewTooLarge{
    "precision.second_moment_stuck.too_large",
    "{moments} of {all:count moment} {moments:either is|are} {limit:g} times what the gradients give or "
    "more (worst: `{worst}`, {ratio:.3g} times)."};
constexpr Template kStatesInFp32{
    "advice.second_moments_in_fp32",
    "Keep Adam's states in FP32, as with FP32 weights{masters:brackets}, or lower beta2{beta2:brackets} "
    "to {largest:.3g} or below."};

// 1 - beta2 in units of 2^-p, p the bits of the significand: half an ulp of v is between half of that and all of it, times v.
// Nothing where the moment is not rounded to nearest in 16 bits.
std::optional<double> fall_in_half_ulps(const TensorInfo& moment, double beta2) {
  if (!is_narrow(moment.dtype) || is_quantized(moment.dtype) || moment.rounding != RoundingMode::nearest_even || !(beta2 < 1))
    return std::nullopt;
  return std::ldexp(1 - beta2, info(moment.dtype).format->fraction_bits + 1);
}
// Below it beta2 v rounds back to v for some v, and for every v.
constexpr double kSomeStuck = 1, kAllStuck = 0.5;
// At so many a moment follows its gradients but for some percent.
constexpr double kFollows = 4;

// The gradient that the update of a moment reads; nothing where that is not one.
std::optional<uint32_t> gradient_read(const RunFacts& facts, uint32_t moment) {
  const AnalysisContext& context = facts.context;
  std::optional<uint32_t> found;
  for (const GraphEdge& edge : context.trace.graph().inputs(facts.selection.tensor(moment).op))
    for (const uint32_t made : context.graph.made_by(edge.producer, edge.slot)) {
      if (!is_gradient(facts.selection.tensor(made).role) || found == made) continue;
      if (found) return std::nullopt;
      found = made;
    }
  return found;
}

struct Moment {
  uint32_t tensor;
  double beta2, eps, elements;
};

struct Taken {
  uint64_t step;
  double value;
};

// The value of each step's last row, NaN where it is not known.
template <typename Value>
std::vector<Taken> series(const RunFacts& facts, uint32_t tensor, int32_t rank, const Value& value) {
  std::vector<Taken> found;
  const StepRange steps{0, std::min(facts.context.options.steps.last, facts.step_facts.broken_from())};
  facts.context.trace.of_rank(rank).visit_history(tensor, steps, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows) {
      if (found.empty() || found.back().step != row.step) found.push_back({row.step, NAN});
      found.back().value = row.known == StatisticsLevel::values && row.statistics.nonfinite() == 0 ? value(row) : NAN;
    }
    return true;
  });
  return found;
}

// The optimizer took no step between these two.
bool follows(const RunFacts& facts, uint64_t first, uint64_t second) {
  for (uint64_t step = first + 1; step < second; ++step)
    if (!facts.steps().skipped.contains(step)) return false;
  return true;
}

// How many times the sum of the moment's elements is, at the end, what the gradients give: s' = beta2 s + (1 - beta2) |g|^2 holds
// of the sums as of each element. Behind steps that were not recorded the sum is taken as it is. Nothing where a row is not known,
// and where eps is not small beside the roots.
std::optional<double> over_exact(const RunFacts& facts, const Moment& moment, uint32_t gradient, int32_t rank) {
  const auto sums = series(facts, moment.tensor, rank, [](const TensorRow& row) { return row.statistics.sum; });
  const auto squares =
      series(facts, gradient, rank, [](const TensorRow& row) { return row.statistics.sum_of_squares / (row.scale * row.scale); });
  if (sums.empty()) return std::nullopt;
  double exact = sums.front().value;
  auto square = squares.begin();
  for (size_t i = 1; i < sums.size(); ++i) {
    const uint64_t step = sums[i].step;
    square = std::find_if(square, squares.end(), [&](const Taken& taken) { return taken.step >= step; });
    const bool is_known = square != squares.end() && square->step == step && follows(facts, sums[i - 1].step, step);
    exact = is_known ? moment.beta2 * exact + (1 - moment.beta2) * square->value : sums[i].value;
  }
  const double ratio = sums.back().value / exact;
  return exact > 0 && std::isfinite(ratio) && std::sqrt(exact / moment.elements) > moment.eps ? std::optional(ratio) : std::nullopt;
}

// Whether updates are divided by the root of this moment: amsgrad takes the largest that there was. Weight decay that is a part of
// the gradient, or may be, is in no row of one.
bool is_comparable(const RunFacts& facts, uint32_t moment) {
  const OpInfo& op = facts.selection.op(moment);
  if (attribute(op, "decoupled").value_or(0) == 0 && attribute(op, "weight_decay") != 0) return false;
  const std::vector<TensorInfo>& tensors = facts.context.trace.tensors();
  return std::none_of(tensors.begin(), tensors.end(), [&](const TensorInfo& other) {
    return other.op == facts.selection.tensor(moment).op && other.name == "max_exp_avg_sq";
  });
}

// The largest of all ranks.
std::optional<double> drift_of(const RunFacts& facts, const Moment& moment) {
  const std::optional<uint32_t> gradient = gradient_read(facts, moment.tensor);
  if (!gradient || !is_comparable(facts, moment.tensor)) return std::nullopt;
  std::optional<double> largest;
  for (const int32_t rank : facts.context.trace.ranks())
    if (const auto ratio = over_exact(facts, moment, *gradient, rank); ratio && !(largest && *largest >= *ratio)) largest = ratio;
  return largest;
}

void find_stuck_moments(const RunFacts& facts, Findings& found) {
  Suspects stuck(facts.selection), too_large(facts.selection);
  FormatNames formats;
  double worst_beta2 = 0, worst_ratio = 0, largest = 1;
  bool cannot_fall = false;
  for (const auto& [i, judged, unused] : facts.ranges().tensors()) {
    const OpInfo& op = facts.selection.op(i);
    const TensorInfo& moment = facts.selection.tensor(i);
    if (!makes_as(op.function, moment.slot, Meaning::second_moment) || judged.totals.rows < 2) continue;
    const auto beta2 = attribute(op, "beta2");
    const std::optional<double> fall = beta2 ? fall_in_half_ulps(moment, *beta2) : std::nullopt;
    if (!fall || *fall >= kSomeStuck) continue;
    const auto elements = static_cast<double>(judged.totals.elements) / static_cast<double>(judged.totals.rows);
    const auto drift = drift_of(facts, {i, *beta2, attribute(op, "eps").value_or(0), elements});
    const double ratio = drift.value_or(1);
    if (*fall >= kAllStuck && ratio < kTooLarge) continue;
    cannot_fall = cannot_fall || *fall < kAllStuck;
    const FloatFormat& format = *info(moment.dtype).format;
    formats.add(moment.dtype);
    worst_beta2 = std::max(worst_beta2, *beta2);
    worst_ratio = std::max(worst_ratio, ratio);
    largest = std::min(largest, 1 - kFollows * std::ldexp(1.0, -format.fraction_bits - 1));
    const std::vector<Quantity> values{{"over_exact", drift ? Cell(ratio) : Cell(Unknown{})},
                                       {"updates", count_cell(judged.totals.rows), Unit::count}};
    stuck.add(ratio, i, values);
    if (ratio >= kTooLarge) too_large.add(ratio, i, values);
  }
  if (stuck.empty()) return;
  Sentences title{(cannot_fall ? kStuck : kOftenStuck)({{"formats", formats.list()}, {"beta2", worst_beta2}})};
  const bool harms = 2 * too_large.size() > stuck.size();
  if (!too_large.empty())
    title += kGrewTooLarge({{"moments", too_large.size()},
                            {"all", stuck.size()},
                            {"limit", kTooLarge},
                            {"worst", parameter_name(facts.selection, too_large.worst_tensor())},
                            {"ratio", worst_ratio}});
  const SettingNames& settings = facts.context.settings;
  Advice advice;
  const Setting masters = advice.set(settings.switched(SettingKind::master_weights, true));
  advice.text =
      kStatesInFp32({{"masters", masters}, {"beta2", settings.now_or_name(SettingKind::second_moment)}, {"largest", largest}});
  const Suspects& shown = harms ? too_large : stuck;
  found.add_judged(harms ? Severity::warning : Severity::info, std::move(title), shown.worst(), advice, shown.extent());
}

}  // namespace

extern constinit const FindingRule precision_second_moment_stuck{
    .code = "precision.second_moment_stuck",
    .part = Part::updates,
    .raised =
        "Adam's second moments are in 16 bits, rounded to nearest, and beta2 times one of them rounds back to it: a warning where "
        "most of them are twice what the gradients give or more, else a note where none can fall.",
    .meaning =
        "A second moment keeps the size that its largest gradients gave it, and updates, which are divided by its root, stay as "
        "short.",
    .help = "Adam's states in FP32, or a smaller beta2.",
    .explains = {"run.loss_stayed"},
    .shown_by = "experiments/failures/second_moments_stuck_bf16.toml",
    .find = find_stuck_moments,
};

}  // namespace ulpscope::findings
