#include <algorithm>
#include <optional>
#include <utility>

#include "ulpscope/analyzers/findings/finding_rule.h"
#include "ulpscope/analyzers/findings/silence.h"
#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/silent_outputs.h"
#include "ulpscope/analyzers/subject/precision_facts.h"
#include "ulpscope/analyzers/subject/run_analysis.h"

namespace ulpscope::findings {

namespace {

constexpr Template kNearlyDrops{"model.drops_everything.nearly",
                                "{dropout} keeps {kept:.3g} of {elements:g} elements of a sample on average, and multiplies them "
                                "by {factor:.4g}."};
constexpr Template kSeveralNearlyDrop{"model.drops_everything.several_nearly",
                                      "{dropout} and {others:count other dropout} keep less than one element of a sample on "
                                      "average: the first {kept:.3g} of {elements:g}, multiplied by {factor:.4g}."};
constexpr Template kHardlyLearns{"model.drops_everything.hardly_learns", "Layers before it hardly learn through it."};
constexpr Template kDropLess{"advice.drop_less", "Lower the dropped share (now {share:g})."};
constexpr Template kDropsEverything{"model.drops_everything", "{dropout} drops every element in every training step."};
constexpr Template kSeveralDropEverything{"model.drops_everything.several",
                                          "{dropouts:count dropout} drop every element in every training step."};
constexpr Template kNothingBeforeLearns{"model.drops_everything.nothing_learns", "Layers before it learn nothing through it."};
constexpr Template kDropLessThanAll{"advice.drop_less_than_all", "Lower the dropped share: at 1 it is everything."};

// A dropout that leaves less than one element of a sample on average, and less than one of ten of all, which leaves out those of a
// few elements.
struct Kept {
  double elements = 0, of = 0;  // of a sample
  double share = 0;
};
std::optional<Kept> kept_of_a_sample(const OpInfo& op, const TensorInfo& output) {
  constexpr double kLeastShare = 0.1;
  const auto dropped = attribute(op, "p");
  if (op.function != OpFunction::dropout || op.phase != Phase::forward || output.role != Role::activation) return std::nullopt;
  if (!dropped || !(*dropped > 0 && *dropped < 1) || output.shape.size() < 2) return std::nullopt;
  Kept kept{.of = 1, .share = 1 - *dropped};
  for (size_t i = 1; i < output.shape.size(); ++i) kept.of *= static_cast<double>(output.shape[i]);
  kept.elements = kept.share * kept.of;
  if (kept.share >= kLeastShare || kept.elements >= 1) return std::nullopt;
  return kept;
}

void find_nearly_dropped(const RunFacts& facts, Findings& found) {
  Suspects suspects(facts.selection);
  std::optional<Kept> worst;
  for (const auto& [i, judged, unused] : facts.ranges().tensors()) {
    const auto kept = kept_of_a_sample(facts.selection.op(i), facts.selection.tensor(i));
    const auto& all = facts.silent().dropped;  // told of already
    if (!kept || judged.totals.rows == 0 || std::find(all.begin(), all.end(), i) != all.end()) continue;
    suspects.add(-kept->elements, i, {{"kept_of_a_sample", kept->elements}, {"of_elements", kept->of, Unit::count}});
    if (!worst || kept->elements < worst->elements) worst = kept;
  }
  if (!worst) return;
  const uint32_t tensor = suspects.worst_tensor();
  Extent extent = suspects.extent();
  extent.first_step = facts.steps().first.step;
  Advice advice = kDropLess({{"share", {1 - worst->share, Unit::share}}});
  advice.note({.way = SettingChange::Way::lower, .module = facts.selection.op(tensor).module, .now = 1 - worst->share});
  const Sentence dropout = silent_place(facts, tensor);
  const Value all(worst->of, Unit::count);
  const double factor = 1 / worst->share;
  Sentences title = suspects.size() == 1
                        ? kNearlyDrops({{"dropout", dropout}, {"kept", worst->elements}, {"elements", all}, {"factor", factor}})
                        : kSeveralNearlyDrop({{"dropout", dropout},
                                              {"others", suspects.size() - 1},
                                              {"kept", worst->elements},
                                              {"elements", all},
                                              {"factor", factor}});
  title += kHardlyLearns();
  found.add_judged(Severity::warning, std::move(title), suspects.worst(), std::move(advice), std::move(extent));
}

void find_dropped(const RunFacts& facts, Findings& found) {
  find_nearly_dropped(facts, found);
  const Suspects dropped = silent_suspects(facts, facts.silent().dropped);
  if (dropped.empty()) return;
  Sentences title = dropped.size() == 1 ? kDropsEverything({{"dropout", silent_place(facts, dropped.worst_tensor())}})
                                        : kSeveralDropEverything({{"dropouts", dropped.size()}});
  title += kNothingBeforeLearns();
  found.add_judged(Severity::error, std::move(title), dropped.worst(), kDropLessThanAll(), dropped.extent());
}

}  // namespace

extern constinit const FindingRule model_drops_everything{
    .code = "model.drops_everything",
    .part = Part::ranges,
    .raised =
        "A dropout set every element of its output to zero in every recorded training step: an error. Or it keeps less than a "
        "tenth of them, and less than one element of a sample on average: a warning.",
    .meaning = "Layers before it learn nothing, or next to nothing, and what it keeps is multiplied by as much.",
    .help = "Lower the dropped share: at 1 it is everything.",
    .explains = {"model.dead_output", "updates.none_applied", "run.no_better_than_guessing", "run.loss_stayed", "run.loss_rose",
                 "run.diverged"},
    .shown_by = "experiments/failures/dropout_of_everything.toml",
    .find_start = find_dropped,
};

}  // namespace ulpscope::findings
