#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/update_text.h"
#include "ulpscope/analyzers/judgements/growth.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kGradientsFall{"model.gradients_fall",
                                  "Gradients vanish from `{from}` back to `{to}`: over {layers} layers they shrink {factor:.3g}x a "
                                  "layer on average, the largest from {first:.3g} to {last:.3g}."};
constexpr Template kUpdatesFallToo{"model.gradients_fall.updates", "Updates of SGD shrink with them."};
constexpr Template kNoFormatMendsFall{"advice.no_format_mends_fall",
                                      "No format and no single learning rate helps: each layer multiplies gradients by its weights "
                                      "and its activation's slope (of a sigmoid 1/4 at most)."};
constexpr Template kKeepGradientsLarge{"advice.keep_gradients_large",
                                       "Use larger initial weights, activations with slope 1 (relu), a norm in each layer, or "
                                       "residual connections."};

// As of values that grow: so many products, each of which halved the gradients on average, and together by 256. Of many layers each
// may take less.
constexpr size_t kLeastProducts = 4;
struct Fall {
  double most_per_product, most_factor;
};
constexpr Fall kFalls[] = {{0.5, 0x1p-8}, {0.75, 0x1p-16}};

// One of the products alone is a matter of its own weights.
bool is_fall(const std::optional<Growth>& fall) {
  if (!fall || fall->results.size() < kLeastProducts) return false;
  const bool is_steep = std::any_of(std::begin(kFalls), std::end(kFalls), [&](const Fall& each) {
    return fall->per_result() <= each.most_per_product && fall->factor() <= each.most_factor;
  });
  if (!is_steep) return false;
  double least = 1;
  for (size_t i = 1; i < fall->results.size(); ++i)
    least = std::min(least, fall->results[i].largest / fall->results[i - 1].largest);
  return least * least >= fall->factor();
}

// The matrices that lost most of their updates to roundings, of rules whose updates are as long as the gradients.
std::vector<UpdateJudgement::Lost> lost_matrices(const RunFacts& facts) {
  std::vector<UpdateJudgement::Lost> lost = facts.updates().lost(SmallUpdates::fp32, kLostLimit);
  const std::vector<UpdateJudgement::Lost> narrow = facts.updates().lost(SmallUpdates::nearest, kLostLimit);
  lost.insert(lost.end(), narrow.begin(), narrow.end());
  std::erase_if(lost, [&](const UpdateJudgement::Lost& each) {
    return facts.selection.tensor(each.weight->tensor).shape.size() < 2 ||
           facts.selection.op(each.weight->tensor).function != OpFunction::sgd_update;
  });
  return lost;
}

// The pass of the step in which the optimizer wrote the weight: of several micro-batches, the last.
RowPosition update_of(const RunFacts& facts, uint32_t weight, RowPosition position) {
  facts.context.trace.of_rank(position.rank)
      .visit_history(weight, {position.step, position.step + 1}, [&](std::span<const TensorRow> rows) {
        position = position_of(rows.back(), position.rank);
        return true;
      });
  return position;
}

void find_fall(const RunFacts& facts, Findings& found) {
  if (!facts.sees_updates() || facts.updates().none_applied()) return;
  const Selection& selection = facts.selection;
  std::optional<Growth> deepest;
  RowPosition seen;  // of the deepest
  std::optional<uint64_t> first;
  bool are_all_behind = true;
  for (const UpdateJudgement::Lost& each : lost_matrices(facts)) {
    if (!each.weight->totals.first_lost) continue;
    const RowPosition position = update_of(facts, each.weight->tensor, *each.weight->totals.first_lost);
    std::optional<Growth> fall = fall_of_gradients(facts.context, each.weight->tensor, position);
    if (!is_fall(fall)) {
      are_all_behind = false;
      continue;
    }
    keep_first(first, std::optional(position.step));
    if (deepest && fall->results.size() <= deepest->results.size()) continue;
    deepest = std::move(fall);
    seen = position;
  }
  if (!deepest) return;
  const Growth::Result &from = deepest->results.front(), &to = deepest->results.back();
  const auto key_of = [&](uint32_t tensor) { return selection.key(tensor, seen.step, seen.rank); };
  Extent extent{{}, first, from.tensor};
  for (const Growth::Result& product : deepest->results) extent.tensors.push_back(product.tensor);
  found.add_judged(are_all_behind ? Severity::warning : Severity::info,
                   {kGradientsFall({{"from", Name{NameKind::module, selection.op(from.tensor).module}},
                                    {"to", Name{NameKind::module, selection.op(to.tensor).module}},
                                    {"factor", 1 / deepest->per_result()},
                                    {"first", from.largest},
                                    {"last", to.largest},
                                    {"layers", deepest->results.size()}}),
                    kUpdatesFallToo()},
                   {{key_of(to.tensor), {{"largest", to.largest}}}, {key_of(from.tensor), {{"largest", from.largest}}}},
                   Sentences{kNoFormatMendsFall(), kKeepGradientsLarge()}, std::move(extent));
}

}  // namespace

extern constinit const FindingRule model_gradients_fall{
    .code = "model.gradients_fall",
    .part = Part::updates,
    .raised =
        "Matrices lost more than half of their SGD updates, and on the way back from the loss to them four matrix products or more "
        "each handed on smaller gradients than the one before: by 2x on average and 256x together, or by 4/3 and 2^16 together, "
        "none by more than all others. A note where other matrices lost updates as well.",
    .meaning = "The layers far from the loss do not learn, in any format; their updates are rounded away for it.",
    .help = "Use larger initial weights, relu, norms or residual connections.",
    .picture = Picture::largest_exponents,
    .explains = {"updates.lost", "run.no_better_than_guessing", "run.loss_stayed", "scale.no_scale_fits", "scale.under_scaled"},
    .shown_by = "experiments/failures/gradients_fall_with_each_sigmoid.toml",
    .find_start = find_fall,
};

}  // namespace ulpscope::findings
