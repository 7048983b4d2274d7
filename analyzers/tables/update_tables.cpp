#include "ulpscope/analyzers/tables/update_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/totals/step_columns.h"

namespace ulpscope {

namespace {

Cell share_cell(const LostUpdates& updates) {
  const std::optional<double> share = updates.share();
  return share ? Cell(*share) : Cell(NotApplicable{});
}

// The step, and how it is known.
std::pair<Cell, Cell> stall_cells(std::span<const UpdateStep> steps) {
  const std::optional<Stall> stall = find_stall(steps);
  if (!stall) return {NotApplicable{}, NotApplicable{}};
  if (!stall->extrapolated) return {count_cell(stall->first), std::string("recorded")};
  return {bounded(static_cast<double>(stall->first), static_cast<double>(stall->last)), std::string("extrapolated")};
}

double arrived(const UpdateTotals& totals) { return std::max(0.0, totals.decay_applied) / totals.decay_asked; }

}  // namespace

UpdateTables::UpdateTables(const RunFacts& facts, const UpdateHistory& history) : facts_(facts), judged_(facts.updates()) {
  const PerTensor<UpdateSeries>& series = history.series().judged(room_).weights;
  for (size_t i = 0; i < judged_.weights().size(); ++i) {
    const UpdateJudgement::Weight& weight = judged_.weights()[i];
    const UpdateSeries& of_weight = *series.find(weight.tensor);
    weights_.push_back({weight.tensor, i, of_weight.steps, add_up(of_weight.steps)});
    all_.beside(of_weight);
    if (weight.rounding != SmallUpdates::stochastic) not_stochastic_.beside(of_weight);
  }
  std::stable_sort(weights_.begin(), weights_.end(), [](const Weight& a, const Weight& b) {
    return a.updates.share().value_or(-1) > b.updates.share().value_or(-1);
  });
}

bool UpdateTables::is_full(const Table& table) const {
  return facts_.context.options.limit > 0 && table.rows.size() >= facts_.context.options.limit;
}

void UpdateTables::add_to(Report& report) const {
  report.add_fact("steps", count_cell(facts_.steps().count), Unit::count);
  if (facts_.steps().with_ops < facts_.steps().count)
    report.add_fact("detailed_steps", count_cell(facts_.steps().with_ops), Unit::count);
  report.add_fact("parameters", count_cell(weights_.size()), Unit::count);
  report.add_fact("nonzero_updates", count_cell(judged_.sum().all.nonzero), Unit::count);
  report.add_fact("lost", share_cell({judged_.sum().all.nonzero, judged_.sum().all.lost}), Unit::share);
  report.add_fact("lost_to_decay", share_cell({judged_.sum().all.nonzero, judged_.sum().all.lost_to_decay}), Unit::share);
  report.add_fact("lost_in_first_tenth", share_cell(add_up(first_tenth(all_.steps))), Unit::share);
  report.add_fact("lost_in_last_tenth", share_cell(add_up(last_tenth(all_.steps))), Unit::share);
  const bool decays = judged_.sum().decay_asked > 0;
  report.add_fact("decay_arrived", decays ? Cell(arrived(judged_.sum())) : Cell(NotApplicable{}), Unit::share);
  auto [step, known] = stall_cells(not_stochastic_.steps);
  report.add_fact("learning_stalls_in_step", std::move(step));
  if (!not_stochastic_.steps.empty() && !std::holds_alternative<std::string>(known))
    known = std::string("none recorded, and no clear trend towards one");
  report.add_fact("stall", std::move(known));
  report.tables.push_back(parameters_table());
  if (decays) report.tables.push_back(decay_table());
  if (!judged_.running_sums().empty()) report.tables.push_back(sums_table());
  for (Plot& plot : std::array{lost_plot(), lost_heatmap()})
    if (!plot.series.empty()) report.plots.push_back(std::move(plot));
}

Table UpdateTables::parameters_table() const {
  Table table{
      "parameters",
      "Updates of each parameter, most lost first",
      {{"tensor", ColumnKind::text},
       {"type", ColumnKind::text},
       {"updates", ColumnKind::number, Unit::count},
       {"nonzero", ColumnKind::number, Unit::count},
       {"lost", ColumnKind::number, Unit::share},
       {"lost_to_decay", ColumnKind::number, Unit::share},
       {"first_tenth", ColumnKind::number, Unit::share},
       {"last_tenth", ColumnKind::number, Unit::share},
       {"update_over_weight", ColumnKind::number},
       {"learning_rate", ColumnKind::number},
       {"stalls_in_step", ColumnKind::number},
       {"stalls", ColumnKind::text}},
      {},
      0,
      fmt::format(
          "Lost: the share of nonzero element updates that left the stored weight as it was; lost to decay: of these, where "
          "only weight decay asked for a change. First and last tenth: the share lost in these updates. Update over weight: the "
          "median of |d| / |w|. Learning rate: the last one. Stalls: the step from which on {}% are lost; extrapolated: if the "
          "trend of the second half of the steps continues.",
          kStalledPercent)};
  bool any_stochastic = false;
  for (const Weight& weight : weights_) {
    const bool stochastic = judged_.weights()[weight.judged].rounding == SmallUpdates::stochastic;
    any_stochastic = any_stochastic || stochastic;
    if (is_full(table)) {
      ++table.rows_left_out;
      continue;
    }
    const std::optional<double> ratio = median_ratio(weight.steps);
    auto [step, known] = stochastic ? std::pair<Cell, Cell>{NotApplicable{}, NotApplicable{}} : stall_cells(weight.steps);
    table.rows.push_back(
        {facts_.selection.key(weight.tensor),
         {facts_.selection.name(weight.tensor), std::string(info(facts_.selection.tensor(weight.tensor).dtype).name),
          count_cell(weight.steps.size()), count_cell(weight.updates.nonzero), share_cell(weight.updates),
          share_cell({weight.updates.nonzero, judged_.weights()[weight.judged].totals.all.lost_to_decay}),
          share_cell(add_up(first_tenth(weight.steps))), share_cell(add_up(last_tenth(weight.steps))),
          ratio ? Cell(*ratio) : Cell(Unknown{}), known_or_unknown(weight.steps.back().learning_rate), std::move(step),
          std::move(known)}});
  }
  if (any_stochastic)
    table.note += " Stochastic rounding loses nothing on average, though most updates below an ulp leave a weight as it was.";
  if (facts_.broke()) {
    table.note +=
        fmt::format(" Judged: the steps before step {}, from which on all losses are NaN or Inf.", facts_.step_facts.broken_from());
  }
  return table;
}

Table UpdateTables::decay_table() const {
  Table table{
      "decay",
      "Weight decay of each parameter, most lost first",
      {{"tensor", ColumnKind::text}, {"asked"}, {"applied"}, {"arrived", ColumnKind::number, Unit::share}},
      {},
      0,
      "Asked: the sum of the decay's magnitudes over elements and updates. Applied: how much closer to zero it moved the stored "
      "weights."};
  std::vector<const UpdateJudgement::Weight*> decayed;
  for (const UpdateJudgement::Weight& weight : judged_.weights())
    if (weight.totals.decay_asked > 0) decayed.push_back(&weight);
  std::stable_sort(decayed.begin(), decayed.end(),
                   [](const auto* a, const auto* b) { return arrived(a->totals) < arrived(b->totals); });
  for (const UpdateJudgement::Weight* weight : decayed) {
    if (is_full(table)) {
      ++table.rows_left_out;
      continue;
    }
    table.rows.push_back({facts_.selection.key(weight->tensor),
                          {facts_.selection.name(weight->tensor), weight->totals.decay_asked, weight->totals.decay_applied,
                           arrived(weight->totals)}});
  }
  return table;
}

Table UpdateTables::sums_table() const {
  Table table{
      "sums",
      "Sums in 16 bits, most lost first",
      {{"tensor", ColumnKind::text},
       {"type", ColumnKind::text},
       {"additions", ColumnKind::number, Unit::count},
       {"absorbed", ColumnKind::number, Unit::share},
       {"lost", ColumnKind::number, Unit::share}},
      {},
      0,
      "Absorbed: the share of nonzero addends that left the stored sum as it was. Lost: the share of their magnitudes that did not "
      "arrive in it."};
  std::vector<const UpdateJudgement::RunningSum*> sums;
  for (const UpdateJudgement::RunningSum& sum : judged_.running_sums()) sums.push_back(&sum);
  std::stable_sort(sums.begin(), sums.end(),
                   [](const auto* a, const auto* b) { return a->totals.lost_share() > b->totals.lost_share(); });
  for (const UpdateJudgement::RunningSum* sum : sums) {
    if (is_full(table)) {
      ++table.rows_left_out;
      continue;
    }
    const SumTotals& totals = sum->totals;
    table.rows.push_back({facts_.selection.key(sum->tensor),
                          {facts_.selection.name(sum->tensor), std::string(info(facts_.selection.tensor(sum->tensor).dtype).name),
                           count_cell(totals.additions), share_cell({totals.counts.addends, totals.counts.absorbed}),
                           totals.counts.asked > 0 ? Cell(totals.lost_share()) : Cell(NotApplicable{})}});
  }
  return table;
}

StepColumns UpdateTables::columns_of_updates() const {
  return StepColumns::over(all_.steps.front().step, all_.steps.back().step, kMostHeatmapColumns);
}

std::vector<LostUpdates> UpdateTables::lost_in(const StepColumns& columns, std::span<const UpdateStep> steps) {
  std::vector<LostUpdates> lost(columns.count);
  for (const UpdateStep& step : steps) {
    LostUpdates& column = lost[columns.column(step.step)];
    column.nonzero += step.nonzero;
    column.lost += step.lost;
  }
  return lost;
}

Plot UpdateTables::lost_plot() const {
  constexpr size_t kMostSeries = 5;
  Plot plot{"lost", "Lost updates over the steps", PlotKind::steps, {"step", Unit::count}, {"lost", Unit::share}};
  if (add_up(all_.steps).lost == 0) return plot;
  const StepColumns columns = columns_of_updates();
  if (columns.width > 1) plot.title += fmt::format(", share per {} steps", columns.width);
  plot.x_end = columns.end();
  const auto add = [&](const std::string& name, RowKey key, std::span<const UpdateStep> steps) {
    Series series{name, std::move(key), {}, {}};
    const std::vector<LostUpdates> lost = lost_in(columns, steps);
    for (size_t column = 0; column < columns.count; ++column) {
      const std::optional<double> share = lost[column].share();
      if (!share) continue;
      series.x.push_back(static_cast<double>(columns.step(column)));
      series.y.push_back(*share);
    }
    if (!series.x.empty()) plot.series.push_back(std::move(series));
  };
  add("all parameters", key_of_step(facts_.context.trace, all_.steps.front().step), all_.steps);
  const size_t limit = facts_.context.options.limit;
  for (const Weight& weight : weights_) {
    if (weight.updates.lost == 0) break;
    if (plot.series.size() > (limit == 0 ? weights_.size() : std::min(limit, kMostSeries))) {
      ++plot.series_left_out;
      continue;
    }
    add(facts_.selection.name(weight.tensor), facts_.selection.key(weight.tensor), weight.steps);
  }
  return plot;
}

Plot UpdateTables::lost_heatmap() const {
  Plot plot{"lost_updates",
            "Lost updates of each parameter over the steps, most lost first",
            PlotKind::heatmap,
            {"step", Unit::count},
            {"lost", Unit::share}};
  plot.rows = {"parameter", Unit::none};
  plot.only_pictured = true;  // the table of parameters has the shares
  if (add_up(all_.steps).lost == 0) return plot;
  const StepColumns columns = columns_of_updates();
  plot.x_end = columns.end();
  const size_t limit = facts_.context.options.limit, most = limit > 0 ? std::min(limit, kMostHeatmapRows) : kMostHeatmapRows;
  for (const Weight& weight : weights_) {
    if (plot.series.size() == most) {
      ++plot.series_left_out;
      continue;
    }
    Series& row =
        plot.series.emplace_back(Series{facts_.selection.name(weight.tensor), facts_.selection.key(weight.tensor), {}, {}});
    const std::vector<LostUpdates> lost = lost_in(columns, weight.steps);
    columns.begin(row);
    for (size_t column = 0; column < columns.count; ++column) row.y[column] = lost[column].share().value_or(row.y[column]);
  }
  return plot;
}

}  // namespace ulpscope
