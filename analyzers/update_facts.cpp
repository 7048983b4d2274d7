#include "ulpscope/analyzers/update_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/report/text.h"
#include "ulpscope/analyzers/suspects.h"
#include "ulpscope/analyzers/what_if.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

// The share of a parameter's nonzero updates that may be rounded away before that is a finding.
constexpr double kLostLimit = 0.5;

// The share of the weight decay that has to arrive in the stored weights.
constexpr double kDecayLimit = 0.5;

// How a weight's rounding treats updates that are small beside its ulp.
enum class SmallUpdates : uint8_t { nearest, fp32, stochastic, directed };

// An FP32 weight is made by FP32 arithmetic, which rounds to nearest whatever the mode.
SmallUpdates kind_of(const TensorInfo& weight) {
  if (!is_narrow(weight.dtype)) return SmallUpdates::fp32;
  const RoundingMode mode = weight.rounding;
  if (mode == RoundingMode::stochastic) return SmallUpdates::stochastic;
  return is_directed(mode) ? SmallUpdates::directed : SmallUpdates::nearest;
}

// What is said of the parameters that lost more than a share of their nonzero updates.
struct LostText {
  SmallUpdates of;
  double limit;
  const char* code;
  Severity severity;
  const char* title;
  std::string (*suggestion)(const SettingNames& settings);
};
constexpr LostText kLostTexts[] = {
    {SmallUpdates::nearest, kLostLimit, "updates.lost", Severity::warning,
     "{} lost more than {:g}% of the nonzero updates: they were too small to change the weight.",
     [](const SettingNames& settings) {
       const std::string math = settings.changed(SettingKind::update_math, "\"param\"", "\"fp32\"");
       const bool named = settings.has("arithmetic.ops");
       return fmt::format(
           "Keep FP32 master weights, round the update stochastically{}, or raise the learning rate: an update below half an ulp "
           "of "
           "the weight is rounded away.",
           in_brackets(
               {named ? "arithmetic.ops.<optimizer>_update.rounding = \"sr\"" + (math.empty() ? "" : " with " + math) : ""}));
     }},
    {SmallUpdates::fp32, kLostLimit, "updates.lost", Severity::warning,
     "{} lost more than {:g}% of the nonzero updates: they were too small to change the weight.",
     [](const SettingNames&) -> std::string {
       return "An update below half an ulp of an FP32 weight, 2^-25 to 2^-24 of its magnitude, is rounded away, in every rounding "
              "mode: raise the learning rate, or make the weights smaller (initial values, weight decay).";
     }},
    {SmallUpdates::directed, 0, "updates.biased", Severity::warning,
     "{} rounded updates to a side that does not depend on their size: some changed nothing, the others changed the weight by more "
     "than "
     "they were.",
     [](const SettingNames& settings) {
       return fmt::format(
           "What an update below an ulp does then depends on its sign, in mode ro on the last bit of the weight, and not on its "
           "size, "
           "so that errors add up. Round the update stochastically{}, or keep FP32 master weights; to nearest, what is below half "
           "an "
           "ulp would be lost instead.",
           in_brackets({settings.has("arithmetic.rounding") ? "rounding = \"sr\"" : ""}));
     }},
    {SmallUpdates::stochastic, kLostLimit, "updates.lost", Severity::info,
     "{} kept the weight unchanged in more than {:g}% of the nonzero updates, as stochastic rounding does with updates below an "
     "ulp: "
     "one of a tenth of an ulp changes the weight by an ulp one time in ten. On average nothing is lost.",
     [](const SettingNames&) -> std::string { return ""; }},
};

// The larger one; of equals, that of the first tensor.
void keep_larger(std::optional<UpdateRatio>& into, const UpdateRatio& other) {
  if (!into || other.ratio > into->ratio || (other.ratio == into->ratio && other.tensor < into->tensor)) into = other;
}
// The earlier one; of the same step, the larger.
void keep_earlier(std::optional<UpdateRatio>& into, const std::optional<UpdateRatio>& other) {
  if (!other || (into && into->step < other->step)) return;
  if (!into || other->step < into->step) {
    into = other;
  } else {
    keep_larger(into, *other);
  }
}

void add_decay_finding(const AnalysisContext& context, const std::vector<std::pair<uint32_t, UpdateTotals>>& updates,
                       Report& report) {
  Suspects suspects(context.selection);
  double asked = 0, applied = 0;
  std::optional<uint64_t> first;
  for (const auto& [tensor, totals] : updates) {
    if (context.selection.tensor(tensor).rounding == RoundingMode::stochastic) continue;  // on average nothing is lost
    if (!(totals.decay_asked > 0) || !(totals.decay_applied < kDecayLimit * totals.decay_asked)) continue;
    asked += totals.decay_asked;
    applied += totals.decay_applied;
    const double arrived = std::max(0.0, totals.decay_applied) / totals.decay_asked;
    keep_first(first, totals.first_decay_lost);
    suspects.add(1 - arrived, tensor,
                 {{"arrived", arrived, Unit::share}, {"decay_asked", totals.decay_asked}, {"decay_applied", totals.decay_applied}});
  }
  if (suspects.empty()) return;
  Extent extent = suspects.extent();
  extent.first_step = first;
  report.findings.push_back(
      {"updates.decay_lost", Severity::warning,
       fmt::format("Weight decay was rounded away: of what was asked for, {} arrived in the stored values of {}.",
                   cell_text(std::max(0.0, applied) / asked, Unit::share), count_of(suspects.size(), "parameter")),
       suspects.worst(),
       "A decay of less than half an ulp of a weight changes nothing: keep FP32 master weights" +
           in_brackets({context.settings.switched(SettingKind::master_weights, true)}) +
           ", in which it adds up, or round updates stochastically.",
       std::move(extent)});
}

}  // namespace

void UpdateTotals::append(const UpdateTotals& later) {
  rows += later.rows;
  nonzero += later.nonzero;
  lost += later.lost;
  lost_to_decay += later.lost_to_decay;
  decay_asked += later.decay_asked;
  decay_applied += later.decay_applied;
  keep_first(first_lost, later.first_lost);
  keep_first(first_decay_lost, later.first_decay_lost);
}

void RunUpdates::append(const RunUpdates& later) {
  weights.append(later.weights);
  if (!first_large) first_large = later.first_large;
  large_steps += later.large_steps;
  largest = std::max(largest, later.largest);
}

void RunUpdates::beside(const RunUpdates& other) {
  weights.beside(other.weights);
  keep_earlier(first_large, other.first_large);
  large_steps = std::max(large_steps, other.large_steps);
  largest = std::max(largest, other.largest);
}

void UpdateFacts::update(const Block& block) {
  if (block.parameters.empty()) return;
  RunUpdates& run = updates_.at(block.rank, block.step);
  std::optional<UpdateRatio> largest;
  for (const ParameterRow& row : block.parameters) {
    if (!context_->selection.contains(row.tensor)) continue;
    UpdateTotals totals{1, row.nonzero, row.lost, row.lost_to_decay};
    if (2 * row.lost > row.nonzero) totals.first_lost = row.step;
    if (row.decay_known && std::isfinite(row.decay_asked) && std::isfinite(row.decay_applied)) {
      totals.decay_asked = row.decay_asked;
      totals.decay_applied = row.decay_applied;
      if (row.decay_applied < kDecayLimit * row.decay_asked) totals.first_decay_lost = row.step;
    }
    run.weights[row.tensor].append(totals);
    if (context_->selection.tensor(row.tensor).shape.size() < 2 || !(row.weight_norm > 0) || !std::isfinite(row.update_norm))
      continue;
    keep_larger(largest, {row.step, row.tensor, row.update_norm / row.weight_norm});
  }
  if (!largest) return;
  run.largest = std::max(run.largest, largest->ratio);
  if (largest->ratio < RunUpdates::kLarge) return;
  ++run.large_steps;
  if (!run.first_large) run.first_large = largest;
}

void add_update_findings(const AnalysisContext& context, const StepFacts& steps, const UpdateFacts& facts, Report& report) {
  const Selection& selection = context.selection;
  RunUpdates room;
  const PerTensor<UpdateTotals>& by_tensor = facts.updates().judged(room).weights;
  std::vector<std::pair<uint32_t, UpdateTotals>> updates;
  UpdateTotals all;
  for (uint32_t i = 0; i < selection.size(); ++i) {
    if (const UpdateTotals* const totals = by_tensor.find(i)) {
      updates.emplace_back(i, *totals);
      all.append(*totals);
    }
  }
  // Of the run as a whole only, which steps or modules left out could tell another story of.
  const bool is_whole = !context.options.restricts_steps() && context.options.modules.empty() && context.options.ops.empty();
  if (is_whole && all.rows > 0 && all.nonzero == all.lost && 2 * steps.judged().count >= steps.whole().count) {
    std::vector<uint32_t> weights;
    std::vector<Evidence> evidence;
    for (const auto& [tensor, totals] : updates) {
      weights.push_back(tensor);
      if (evidence.size() < kMostEvidence)
        evidence.push_back(
            {selection.key(tensor),
             {{"updates", count_cell(totals.rows), Unit::count}, {"nonzero_updates", count_cell(totals.nonzero), Unit::count}}});
    }
    const bool narrow = std::any_of(updates.begin(), updates.end(),
                                    [&](const auto& each) { return is_narrow(selection.tensor(each.first).dtype); });
    report.findings.push_back(
        {"updates.none_applied",
         Severity::error,
         fmt::format("No update changed any weight in {}: the run learns nothing.", count_of(all.rows, "recorded update")),
         std::move(evidence),
         steps.judged().rate_was_zero ? "The learning rate was 0."
         : all.nonzero == 0 ? "Every update was zero, for every gradient was: the findings on ranges say where they were lost."
         : narrow
             ? "Every update was too small for its weight, less than half an ulp where roundings are to nearest: keep FP32 "
               "master weights" +
                   in_brackets({context.settings.switched(SettingKind::master_weights, true)}) + ", or raise the learning rate."
             : "Every update was too small for its FP32 weight, less than half an ulp: raise the learning rate.",
         {weights, steps.whole().first.step}});
    return;
  }
  for (const LostText& text : kLostTexts) {
    std::vector<std::pair<double, size_t>> lost;
    for (size_t i = 0; i < updates.size(); ++i) {
      const auto& [tensor, totals] = updates[i];
      if (totals.nonzero == 0 || text.of != kind_of(selection.tensor(tensor))) continue;
      if (2 * totals.lost_to_decay > totals.lost) continue;  // a matter of updates.decay_lost
      const double share = static_cast<double>(totals.lost) / static_cast<double>(totals.nonzero);
      if (share > text.limit) lost.emplace_back(share, i);
    }
    if (lost.empty()) continue;
    std::stable_sort(lost.begin(), lost.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    Finding finding{text.code,
                    text.severity,
                    fmt::format(fmt::runtime(text.title), count_of(lost.size(), "parameter"), 100 * text.limit),
                    {},
                    text.suggestion(context.settings)};
    for (size_t i = 0; i < std::min<size_t>(5, lost.size()); ++i) {
      const auto& [tensor, of_tensor] = updates[lost[i].second];
      finding.evidence.push_back({selection.key(tensor),
                                  {{"lost", lost[i].first, Unit::share},
                                   {"nonzero_updates", count_cell(of_tensor.nonzero), Unit::count},
                                   {"lost_to_decay", count_cell(of_tensor.lost_to_decay), Unit::count}}});
    }
    for (const auto& [share, i] : lost) {
      const auto& [tensor, totals] = updates[i];
      finding.extent.tensors.push_back(tensor);
      keep_first(finding.extent.first_step, totals.first_lost);
    }
    report.findings.push_back(std::move(finding));
  }
  add_decay_finding(context, updates, report);
}

}  // namespace ulpscope
