#include "ulpscope/analyzers/scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace ulpscope {

namespace {

const char* kind_of(bool skipped, double before, double after) {
  if (after < before) return "backoff";
  if (after > before) return "growth";
  return skipped ? "skip" : "none";
}

}  // namespace

ScaleAnalysis::ScaleAnalysis(const Snapshot& reader, const Selection& selection, const ScaleOptions& options,
                             const StepFacts& steps, const FittingScale& fitting)
    : reader_(reader), selection_(selection), options_(options), step_facts_(steps), fitting_(fitting), flushed_(selection.size()) {
  read_steps();
  blame_events();
}

void ScaleAnalysis::read_steps() {
  bool only_skips = true;
  reader_.visit_steps(options_.steps, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) {
      const bool skipped = row.skipped, broken = row.step >= step_facts_.broken_from;
      if (steps_++ == 0) {
        first_scale_ = lowest_ = highest_ = row.scale_before;
        first_step_ = row.step;
      }
      last_step_ = row.step;
      scaled_ = scaled_ || row.scale_before != 1.0 || row.scale_after != 1.0;
      lowest_ = std::min({lowest_, row.scale_before, row.scale_after});
      highest_ = std::max({highest_, row.scale_before, row.scale_after});
      final_scale_ = row.scale_after;
      if (!broken) judged_scale_ = row.scale_after;
      // Of runs that are read as one some may be without a scaler.
      const bool has_scale = row.scale_before != 1 || row.scale_after != 1 || reader_.run_at(row.step).dynamic_loss_scale;
      for (auto [zone, inside] : {std::pair{&below_100_, row.scale_before < 100}, std::pair{&below_1000_, row.scale_before < 1000},
                                  std::pair{&above_100000_, row.scale_before > 100000}}) {
        zone->steps += inside && has_scale && !broken;
        zone->skipped += inside && has_scale && !broken && skipped;
      }
      skipped_ += skipped;
      only_skips = only_skips && skipped;
      leading_skips_ += only_skips;
      trailing_skips_ = skipped ? trailing_skips_ + 1 : 0;
      longest_skip_run_ = std::max(longest_skip_run_, trailing_skips_);
      if (skipped || row.scale_after != row.scale_before) {
        changes_.push_back({row.step, row.scale_before, row.scale_after, skipped, clean_steps_});
        clean_steps_ = 0;
      } else {
        ++clean_steps_;
      }
    }
    return !options_.cancelled();
  });
}

// The first nonfinite output of a step, of any phase, is the cause. A backoff's event names the first gradient with nonfinite
// values, which is asked where the other is missing.
void ScaleAnalysis::blame_events() {
  for (const EventKind kind : {EventKind::scale_backoff, EventKind::nonfinite}) {
    for (const EventRow& event : reader_.events()) {
      if (event.kind != kind || event.tensor < 0) continue;
      const auto change = std::lower_bound(changes_.begin(), changes_.end(), event.step,
                                           [](const Change& left, uint64_t step) { return left.step < step; });
      if (change == changes_.end() || change->step != event.step || !change->skipped) continue;
      selection_.contains(static_cast<uint32_t>(event.tensor));  // the index exists
      change->blame = &event;
    }
  }
}

void ScaleAnalysis::add(const TensorRow& row) {
  if (row.step >= step_facts_.broken_from) return;
  const TensorInfo& tensor = selection_.tensor(row.tensor);
  rows_without_values_ += is_computed_gradient(tensor.role) && row.known == StatisticsLevel::health;
  if (!is_gradient(tensor.role) || !is_narrow(tensor.dtype)) return;
  if (const auto rounding = as_seen(row)) {
    Flushed& flushed = flushed_[row.tensor];
    flushed.seen += *rounding;
    if (is_quantized(tensor.dtype)) return;
    saturated_ = saturated_ || row.rounding.saturated > 0;
    saturated_above_100000_ = saturated_above_100000_ || (row.rounding.saturated > 0 && row.scale > 100000);
    flushed.loss.add(row, *info(tensor.dtype).format, rounding_of(tensor));
  }
}

// The share of the worst gradient tensor that flushing hurts.
double ScaleAnalysis::flushed_share() const {
  double worst = 0;
  for (const auto& [seen, loss] : flushed_) {
    if (seen.base > 0 && loss.matters())
      worst = std::max(worst, static_cast<double>(seen.flushed.lower) / static_cast<double>(seen.base));
  }
  return worst;
}

std::optional<Evidence> ScaleAnalysis::most_blamed() const {
  std::map<int64_t, uint64_t> blamed;
  for (const Change& change : changes_) {
    if (change.blame) ++blamed[change.blame->tensor];
  }
  const auto most =
      std::max_element(blamed.begin(), blamed.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == blamed.end()) return std::nullopt;
  return Evidence{selection_.key(static_cast<uint32_t>(most->first)), {{"skipped_steps", count_cell(most->second), Unit::count}}};
}

void ScaleAnalysis::add_facts_and_tables(Report& report) const {
  report.add_fact("steps", count_cell(steps_), Unit::count);
  report.add_fact("dynamic_loss_scale", reader_.run().dynamic_loss_scale);
  const auto of_steps = [&](double scale) { return steps_ > 0 ? Cell(scale) : Cell(Unknown{}); };
  report.add_fact("first_scale", of_steps(first_scale_), Unit::scale);
  report.add_fact("final_scale", of_steps(final_scale_), Unit::scale);
  report.add_fact("lowest_scale", of_steps(lowest_), Unit::scale);
  report.add_fact("highest_scale", of_steps(highest_), Unit::scale);
  report.add_fact("skipped_steps", count_cell(skipped_), Unit::count);
  const auto fits_for = [&](const char* which) { return fmt::format("{}_fitting_scale", which); };
  report.add_fact(fits_for("largest"), scale_cell(fitting_.run().largest), Unit::scale);
  report.add_fact(fits_for("smallest"), scale_cell(fitting_.run().smallest), Unit::scale);
  report.add_fact("fitting_scales_for", std::string(fitting_.what_if() ? fitting_.what_if()->name : "the recorded types"));

  Table changes{"changes",
                "Changes of the loss scale, and skipped steps",
                {{"step"},
                 {"kind", ColumnKind::text},
                 {"before", ColumnKind::number, Unit::scale},
                 {"after", ColumnKind::number, Unit::scale},
                 {"clean_steps_before", ColumnKind::number, Unit::count},
                 {"nonfinite_tensor", ColumnKind::text},
                 {"nonfinite", ColumnKind::number, Unit::count}},
                {},
                0,
                ""};
  for (const Change& change : changes_) {
    if (options_.limit > 0 && changes.rows.size() >= options_.limit) {
      ++changes.rows_left_out;
      continue;
    }
    RowKey key = key_of_step(reader_, change.step);
    Cell tensor = change.skipped ? Cell(Unknown{}) : Cell(NotApplicable{}), count = tensor;
    if (change.blame) {
      const auto blamed = static_cast<uint32_t>(change.blame->tensor);
      key = selection_.key(blamed, change.step, change.blame->micro_batch, change.blame->pass);
      tensor = selection_.name(blamed);
      count = count_cell(change.blame->count);
    }
    changes.rows.push_back({std::move(key),
                            {count_cell(change.step), std::string(kind_of(change.skipped, change.before, change.after)),
                             change.before, change.after, count_cell(change.clean_steps), std::move(tensor), std::move(count)}});
  }
  report.tables.push_back(std::move(changes));

  Table fits{
      "fitting_scales",
      "Fitting scales of each gradient over the run, tightest first",
      {{"tensor", ColumnKind::text},
       {"type", ColumnKind::text},
       {"largest", ColumnKind::number, Unit::scale},
       {"smallest", ColumnKind::number, Unit::scale}},
      {},
      0,
      fmt::format("Largest: no recorded rounding overflows. Smallest: at most {:g}% of the nonzero elements are flushed.{}",
                  100 * options_.flushed_limit,
                  fitting_.run().hidden ? " ? and bounds: some rows were computed from gradients that had been flushed." : "")};
  if (step_facts_.broken_from != UINT64_MAX) {
    fits.note +=
        fmt::format(" Judged: the steps before step {}, from which on all losses were NaN or infinite.", step_facts_.broken_from);
  }
  if (rows_without_values_ > 0) {
    fits.note += " Rows that hold counts only tell no scale: `--record stats` keeps the magnitudes that do.";
  }
  std::vector<std::pair<double, uint32_t>> order;
  for (uint32_t i = 0; i < fitting_.tensors().size(); ++i) {
    const auto& fit = fitting_.tensors()[i];
    if (!fit || (!fit->largest && !fit->smallest)) continue;
    const double largest = fit->largest ? fit->largest->upper : 1e6;
    const double smallest = fit->smallest && fit->smallest->lower != ExponentBounds::kNoLower ? fit->smallest->lower : -1e6;
    order.emplace_back(largest - smallest, i);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [unused, i] : order) {
    if (options_.limit > 0 && fits.rows.size() >= options_.limit) {
      ++fits.rows_left_out;
      continue;
    }
    const auto& fit = *fitting_.tensors()[i];
    const auto cell = [](const std::optional<ExponentBounds>& bounds) {
      return bounds ? scale_cell(bounds) : Cell(NotApplicable{});
    };
    fits.rows.push_back(
        {selection_.key(i),
         {selection_.name(i), std::string(info(selection_.tensor(i).dtype).name), cell(fit.largest), cell(fit.smallest)}});
  }
  report.tables.push_back(std::move(fits));

  Plot plot{"scale", "Loss scale over the steps", PlotKind::steps, {"step", Unit::none}, {"scale", Unit::exponent}, {}, {}};
  if (steps_ > 0) {
    Series history{"loss scale", key_of_step(reader_, first_step_), {static_cast<double>(first_step_)}, {std::log2(first_scale_)}};
    for (const Change& change : changes_) {
      if (change.after == change.before) continue;
      history.x.push_back(static_cast<double>(change.step) + 1);  // holds from the next step on
      history.y.push_back(std::log2(change.after));
    }
    history.x.push_back(static_cast<double>(last_step_));
    history.y.push_back(history.y.back());
    if (history.x.size() > 2 && history.x[history.x.size() - 2] > history.x.back())
      history.x.back() = history.x[history.x.size() - 2];
    plot.series.push_back(std::move(history));
  }
  Series largest{"largest fitting (at most)", {}, {}, {}}, smallest{"smallest fitting (at least)", {}, {}, {}};
  for (const FittingScale::StepFit& step : fitting_.steps()) {
    if (step.largest && step.largest->upper != ExponentBounds::kNoUpper) {
      largest.x.push_back(static_cast<double>(step.step));
      largest.y.push_back(step.largest->upper);
    }
    if (step.smallest && step.smallest->lower != ExponentBounds::kNoLower) {
      smallest.x.push_back(static_cast<double>(step.step));
      smallest.y.push_back(step.smallest->lower);
    }
  }
  for (Series* series : {&largest, &smallest}) {
    if (!series->x.empty()) plot.series.push_back(std::move(*series));
  }
  if (!plot.series.empty()) report.plots.push_back(std::move(plot));
}

Report analyze_scale(const Snapshot& reader, const ScaleOptions& options) {
  Report report;
  report.analysis = "scale";
  report.title = "Loss scale";
  report.sources.push_back(source_of(reader));
  const Selection selection(reader, options);
  const StepFacts steps = step_facts(reader, options.steps);
  FittingScale fitting(reader, selection, options.format ? options.format : format_to_ask(reader), options.flushed_limit,
                       steps.broken_from);
  ScaleAnalysis analysis(reader, selection, options, steps, fitting);
  RowConsumer* const consumers[] = {&fitting, &analysis};
  report.complete = visit_selected(reader, selection, options, consumers);
  analysis.add_findings(report);
  sort_by_severity(report.findings);
  analysis.add_facts_and_tables(report);
  return report;
}

}  // namespace ulpscope
