#include "ulpscope/analyzers/tables/scale_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ulpscope/analyzers/judgements/scale_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/totals/flush_loss.h"

namespace ulpscope {

namespace {

const char* kind_of(bool skipped, double before, double after) {
  if (after < before) return "backoff";
  if (after > before) return "growth";
  return skipped ? "skip" : "none";
}

}  // namespace

ScaleTables::ScaleTables(const AnalysisContext& context, const StepTotals& steps, const ScaleJudgement& scale,
                         const FittingScales& fitting)
    : context_(context), selection_(context.selection), steps_(steps), scale_(scale), fitting_(fitting) {}

void ScaleTables::add_to(Report& report) const {
  report.add_fact("steps", count_cell(steps_.count), Unit::count);
  report.add_fact("dynamic_loss_scale", context_.trace.run().dynamic_loss_scale);
  const auto of_steps = [&](double scale) { return steps_.count > 0 ? Cell(scale) : Cell(Unknown{}); };
  report.add_fact("first_scale", of_steps(steps_.first.scale_before), Unit::scale);
  report.add_fact("final_scale", of_steps(steps_.last.scale_after), Unit::scale);
  report.add_fact("lowest_scale", of_steps(steps_.lowest_scale), Unit::scale);
  report.add_fact("highest_scale", of_steps(steps_.highest_scale), Unit::scale);
  report.add_fact("skipped_steps", count_cell(steps_.skipped.size()), Unit::count);
  // Whether some gradient was rounded to a format of less range than FP32, or is asked about in one.
  const auto needs_scale = [&](const FloatFormat& format) { return format.largest_exponent() < binary32.largest_exponent(); };
  bool judged = fitting_.what_if != nullptr;
  for (const TensorInfo& tensor : context_.trace.tensors())
    judged = judged || (is_computed_gradient(tensor.role) && is_float(tensor.dtype) && !is_quantized(tensor.dtype) &&
                        needs_scale(*info(tensor.dtype).format));
  const auto fit_cell = [&](const std::optional<ExponentBounds>& bounds) {
    return judged ? scale_cell(bounds) : Cell(NotApplicable{});
  };
  report.add_fact("largest_fitting_scale", fit_cell(fitting_.run.largest), Unit::scale);
  report.add_fact("smallest_fitting_scale", fit_cell(fitting_.run.smallest), Unit::scale);
  report.add_fact("fitting_scales_for", std::string(!judged            ? "none: no gradient has less range than FP32"
                                                    : fitting_.what_if ? fitting_.what_if->name
                                                                       : "the recorded types"));
  report.tables.push_back(changes_table());
  report.tables.push_back(fits_table());
  if (Plot plot = history_plot(); !plot.series.empty()) report.plots.push_back(std::move(plot));
}

Table ScaleTables::changes_table() const {
  Table changes{"changes",
                "Loss scale changes and skipped steps",
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
  for (size_t i = 0; i < steps_.changes.size(); ++i) {
    const ScaleChange& change = steps_.changes[i];
    if (context_.options.limit > 0 && changes.rows.size() >= context_.options.limit) {
      ++changes.rows_left_out;
      continue;
    }
    RowKey key = key_of_step(context_.trace, change.step);
    Cell tensor = NotApplicable{}, count = NotApplicable{};
    if (change.skipped) tensor = count = Unknown{};
    if (const EventRow* const blame = scale_.blame()[i]) {
      const auto blamed = static_cast<uint32_t>(blame->tensor);
      key = selection_.key(blamed, RowPosition{change.step, blame->rank, 0, blame->micro_batch, blame->loss_index});
      tensor = selection_.name(blamed);
      count = count_cell(blame->count);
    }
    changes.rows.push_back({std::move(key),
                            {count_cell(change.step), std::string(kind_of(change.skipped, change.before, change.after)),
                             change.before, change.after, count_cell(change.clean_steps), std::move(tensor), std::move(count)}});
  }
  return changes;
}

Table ScaleTables::fits_table() const {
  Table fits{
      "fitting_scales",
      "Loss scales that fit each gradient, tightest first",
      {{"tensor", ColumnKind::text},
       {"type", ColumnKind::text},
       {"largest", ColumnKind::number, Unit::scale},
       {"smallest", ColumnKind::number, Unit::scale}},
      {},
      0,
      fmt::format("Largest: at which no recorded rounding overflows. Smallest: at which at most {:g}% of the nonzero elements are "
                  "flushed to zero, or in 90% of the rows at most {:g}% of the norm.{}",
                  100 * context_.options.flushed_limit, 100 * felt_part(fitting_.what_if ? *fitting_.what_if : binary16),
                  fitting_.run.hidden ? " ? and bounds: some rows were computed from gradients that had underflowed." : "")};
  if (scale_.broken_from != UINT64_MAX) {
    fits.note += fmt::format(" Judged: the steps before step {}, from which on all losses are NaN or Inf.", scale_.broken_from);
  }
  if (scale_.ranges().gradients_without_values > 0) {
    fits.note += " Rows without magnitudes are left out.";
  }
  std::vector<std::pair<double, uint32_t>> order;
  for (uint32_t i = 0; i < fitting_.tensors.size(); ++i) {
    const auto& fit = fitting_.tensors[i];
    if (!fit || (!fit->largest && !fit->smallest)) continue;
    const double largest = fit->largest ? fit->largest->upper : 1e6;
    const double smallest = fit->smallest && fit->smallest->lower != ExponentBounds::kNoLower ? fit->smallest->lower : -1e6;
    order.emplace_back(largest - smallest, i);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [unused, i] : order) {
    if (context_.options.limit > 0 && fits.rows.size() >= context_.options.limit) {
      ++fits.rows_left_out;
      continue;
    }
    const auto& fit = *fitting_.tensors[i];
    const auto cell = [](const std::optional<ExponentBounds>& bounds) {
      return bounds ? scale_cell(bounds) : Cell(NotApplicable{});
    };
    fits.rows.push_back(
        {selection_.key(i),
         {selection_.name(i), std::string(info(selection_.tensor(i).dtype).name), cell(fit.largest), cell(fit.smallest)}});
  }
  return fits;
}

Plot ScaleTables::history_plot() const {
  Plot plot{"scale", "Loss scale over the steps", PlotKind::steps, {"step", Unit::none}, {"scale", Unit::exponent}};
  if (steps_.count > 0) {
    Series history{"loss scale",
                   key_of_step(context_.trace, steps_.first.step),
                   {static_cast<double>(steps_.first.step)},
                   {std::log2(steps_.first.scale_before)}};
    for (const ScaleChange& change : steps_.changes) {
      if (change.after == change.before) continue;
      history.x.push_back(static_cast<double>(change.step) + 1);  // holds from the next step on
      history.y.push_back(std::log2(change.after));
    }
    history.x.push_back(static_cast<double>(steps_.last.step));
    history.y.push_back(history.y.back());
    if (history.x.size() > 2 && history.x[history.x.size() - 2] > history.x.back())
      history.x.back() = history.x[history.x.size() - 2];
    plot.series.push_back(std::move(history));
  }
  Series largest{"largest fitting (at most)", {}, {}, {}}, smallest{"smallest fitting (at least)", {}, {}, {}};
  for (const StepFit& step : fitting_.steps) {
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
  return plot;
}

}  // namespace ulpscope
