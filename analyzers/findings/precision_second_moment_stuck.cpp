#include <algorithm>
#include <cmath>
#include <map>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/scale_text.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/suspects.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/sentence_names.h"
#include "ulpscope/trace/op_semantics.h"

namespace ulpscope::findings {

namespace {

// Updates are divided by the root of the second moment: by 1.4 and more times too much.
constexpr double kTooLarge = 2;

constexpr Template kStuck{"precision.second_moment_stuck",
                          "Adam's second moments in {formats} cannot fall: {beta2:g} v rounds back to v."};
constexpr Template kGrewTooLarge{
    "precision.second_moment_stuck.too_large",
    "{moments} of {all:count moment} {moments:either is|are} {limit:g} times what the gradients give or "
    "more (worst: `{worst}`, {ratio:.3g} times)."};
constexpr Template kShorterUpdates{"precision.second_moment_stuck.shorter_updates", "Updates are shorter by the root of that."};
constexpr Template kStatesInFp32{
    "advice.second_moments_in_fp32",
    "Keep Adam's states in FP32, as with FP32 weights{masters:brackets}, or lower beta2{beta2:brackets} "
    "to {largest:g} or below."};

// The largest beta2 of which each normal number in the format times it falls: 1 - 2^-p, p the bits of its significand.
double largest_falling(const FloatFormat& format) { return 1 - std::ldexp(1.0, -format.fraction_bits - 1); }

// The distance to v is below half an ulp of it whatever v is.
bool cannot_fall(const TensorInfo& moment, double beta2) {
  if (!is_narrow(moment.dtype) || is_quantized(moment.dtype) || moment.rounding != RoundingMode::nearest_even) return false;
  const FloatFormat& format = *info(moment.dtype).format;
  return beta2 < 1 && 1 - beta2 < std::ldexp(1.0, -format.fraction_bits - 2);
}

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

// By step, the last row's value. Nothing where one is not known.
template <typename Value>
std::map<uint64_t, double> series(const RunFacts& facts, uint32_t tensor, int32_t rank, const Value& value) {
  std::map<uint64_t, double> found;
  const StepRange steps{0, std::min(facts.context.options.steps.last, facts.step_facts.broken_from())};
  facts.context.trace.of_rank(rank).visit_history(tensor, steps, [&](std::span<const TensorRow> rows) {
    for (const TensorRow& row : rows)
      found[row.step] = row.known == StatisticsLevel::values && row.statistics.nonfinite() == 0 ? value(row) : NAN;
    return true;
  });
  return found;
}

// How many times the sum of the moment's elements is, at the end, what the gradients give: s' = beta2 s + (1 - beta2) |g|^2 holds
// of the sums as of each element. In how many updates that is seen.
struct Drift {
  double ratio = 1;
  uint64_t updates = 0;
};
std::optional<Drift> drift_of(const RunFacts& facts, uint32_t moment, double beta2) {
  const std::optional<uint32_t> gradient = gradient_read(facts, moment);
  if (!gradient) return std::nullopt;
  const int32_t rank = facts.context.trace.ranks().front();
  const auto sums = series(facts, moment, rank, [](const TensorRow& row) { return row.statistics.sum; });
  const auto squares =
      series(facts, *gradient, rank, [](const TensorRow& row) { return row.statistics.sum_of_squares / (row.scale * row.scale); });
  Drift drift;
  double exact = 0, last = 0;
  for (const auto& [step, sum] : sums) {
    if (drift.updates++ == 0) {
      exact = sum;
    } else {
      const auto of_step = squares.find(step);
      exact = of_step == squares.end() ? NAN : beta2 * exact + (1 - beta2) * of_step->second;
    }
    last = sum;
  }
  drift.ratio = last / exact;
  return exact > 0 && std::isfinite(drift.ratio) ? std::optional(drift) : std::nullopt;
}

void find_stuck_moments(const RunFacts& facts, Findings& found) {
  Suspects stuck(facts.selection), too_large(facts.selection);
  std::map<std::string, Name> formats;
  double worst_beta2 = 0, largest = 1;
  for (const auto& [i, judged, unused] : facts.ranges().tensors()) {
    const OpInfo& op = facts.selection.op(i);
    const TensorInfo& moment = facts.selection.tensor(i);
    if (!makes_as(op.function, moment.slot, Meaning::second_moment) || judged.totals.rows < 2) continue;
    const auto beta2 = attribute(op, "beta2");
    if (!beta2 || !cannot_fall(moment, *beta2)) continue;
    // Weight decay that is a part of the gradient is in no row of one.
    const bool has_all = attribute(op, "decoupled").value_or(0) != 0 || attribute(op, "weight_decay").value_or(0) == 0;
    const std::optional<Drift> drift = has_all ? drift_of(facts, i, *beta2) : std::nullopt;
    const FloatFormat& format = *info(moment.dtype).format;
    formats.emplace(format.name, format_name(format));
    worst_beta2 = std::max(worst_beta2, *beta2);
    largest = std::min(largest, largest_falling(format));
    const double ratio = drift ? drift->ratio : 1;
    const std::vector<Quantity> values{{"over_exact", drift ? Cell(ratio) : Cell(Unknown{})},
                                       {"updates", count_cell(judged.totals.rows), Unit::count}};
    stuck.add(ratio, i, values);
    if (ratio >= kTooLarge) too_large.add(ratio, i, values);
  }
  if (stuck.empty()) return;
  Value::List names;
  for (const auto& [unused, format] : formats) names.push_back(format);
  Sentences title{kStuck({{"formats", Value::list(std::move(names))}, {"beta2", worst_beta2}})};
  const bool harms = 2 * too_large.size() > stuck.size();
  if (!too_large.empty()) {
    const uint32_t worst = too_large.worst_tensor();
    title += kGrewTooLarge({{"moments", too_large.size()},
                            {"all", stuck.size()},
                            {"limit", kTooLarge},
                            {"worst", parameter_name(facts.selection, worst)},
                            {"ratio", std::get<double>(too_large.worst().front().values.front().value)}});
    title += kShorterUpdates();
  }
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
        "most "
        "of them are twice what the gradients give or more, else a note.",
    .meaning =
        "A second moment keeps the size that its largest gradients gave it, and updates, which are divided by its root, stay as "
        "short.",
    .help = "Adam's states in FP32, or a smaller beta2.",
    .explains = {"run.loss_stayed"},
    .shown_by = "experiments/failures/second_moments_stuck_bf16.toml",
    .find = find_stuck_moments,
};

}  // namespace ulpscope::findings
