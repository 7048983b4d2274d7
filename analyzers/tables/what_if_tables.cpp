#include "ulpscope/analyzers/tables/what_if_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

namespace {

constexpr const char* kAllGradients = "all gradients";
// Of groups that are shown at every scale: of three formats and 25 scales, fewer than two hundred groups.
constexpr size_t kMostLines = 5000;

double upper_of(const Cell& cell) {
  if (const double* value = std::get_if<double>(&cell)) return *value;
  if (const Interval* interval = std::get_if<Interval>(&cell)) return interval->upper;
  return 0;
}
double lower_of(const Cell& cell) {
  if (const Interval* interval = std::get_if<Interval>(&cell)) return interval->lower;
  return upper_of(cell);
}

double at_most_lost(const SweepAnswer& answer) { return share(answer.lost_elements().upper, answer.bounds.base); }

// Larger is worse: the part of the norm that is lost, then the elements that are, then those that lose bits.
using SweepBadness = std::tuple<double, double, double>;
SweepBadness sweep_badness(const SweepAnswer& answer) {
  return {upper_of(answer.lost_norm()), at_most_lost(answer), share(answer.bounds.subnormal.upper, answer.bounds.base)};
}

double scale_of(int exponent) { return std::ldexp(1.0, exponent); }

// "2^0..2^4, 2^8".
std::string scales_text(const std::vector<int>& exponents) {
  std::string text;
  for (size_t i = 0; i < exponents.size();) {
    size_t last = i;
    while (last + 1 < exponents.size() && exponents[last + 1] == exponents[last] + 1) ++last;
    text += fmt::format("{}2^{}", text.empty() ? "" : ", ", exponents[i]);
    if (last > i) text += fmt::format("..2^{}", exponents[last]);
    i = last + 1;
  }
  return text;
}

std::vector<Cell> cells_of(const std::string& name, const FloatFormat& format, Cell scale, const SweepAnswer& answer, Cell steps) {
  const auto& [base, flushed, subnormal, overflowed] = answer.bounds;
  return {name,
          std::string(format.name),
          std::move(scale),
          share_cell(flushed, base),
          share_cell(subnormal, base),
          share_cell(overflowed, base),
          answer.lost_norm(),
          std::move(steps)};
}

Cell counts_cell(const CountBounds& counts) {
  return counts.exact() ? count_cell(counts.lower) : bounded(static_cast<double>(counts.lower), static_cast<double>(counts.upper));
}

}  // namespace

WhatIfTables::WhatIfTables(const AnalysisContext& context, const WhatIfOptions& options, const std::vector<int>& replayed,
                           RunWhatIf run, StepTotals steps)
    : context_(context), options_(options), replayed_(replayed), run_(std::move(run)), steps_(std::move(steps)) {
  add_groups();
  judge();
}

size_t WhatIfTables::place(size_t format, size_t scale) const { return format * options_.exponents.size() + scale; }

void WhatIfTables::add_groups() {
  const Selection& selection = context_.selection;
  std::map<std::string, size_t> index;
  std::vector<uint32_t> tensors = run_.tensors.tensors();
  std::sort(tensors.begin(), tensors.end());
  gradients_.resize(options_.formats.size() * options_.exponents.size());
  for (const uint32_t i : tensors) {
    const SweptRows& rows = *run_.tensors.find(i);
    rows_ += rows.rows();
    unknown_ += rows.unknown();
    if (rows.rows() == 0) continue;
    const TensorInfo& tensor = selection.tensor(i);
    const OpInfo& op = selection.op(i);
    const bool bookkeeping = selection.is_bookkeeping(i);
    std::string name;
    switch (options_.by) {
      case GroupBy::tensor:
        name = selection.name(i);
        break;
      case GroupBy::module:
        name = (op.module.empty() ? "(top level)" : op.module) + (bookkeeping ? " (weights, scaling, optimizer)" : "");
        break;
      case GroupBy::phase:
        name = name_of(op.phase);
        break;
      case GroupBy::role:
        name = name_of(tensor.role);
        break;
    }
    // Tensors that share a name stay apart.
    const std::string group_name = options_.by == GroupBy::tensor ? fmt::format("{}", i) : name;
    const auto [found, is_new] = index.try_emplace(group_name, groups_.size());
    if (is_new) {
      Group& group = groups_.emplace_back();
      group.name = name;
      group.key.run = context_.trace.run().run_id;
      group.key.rank = only_rank(context_.trace);
      if (options_.by == GroupBy::tensor) group.key = selection.key(i);
      if (options_.by == GroupBy::module) group.key.module = op.module;
      if (options_.by == GroupBy::phase) group.key.phase = name;
      if (options_.by == GroupBy::role) group.key.role = name;
    }
    Group& group = groups_[found->second];
    group.comes_last = group.comes_last && bookkeeping;
    const std::vector<SweepAnswer> answers = rows.answers();
    std::vector<SweepAnswer>& into = contains_loss_scale(tensor, op) ? group.scaled : group.unscaled;
    into.resize(answers.size());
    for (size_t j = 0; j < answers.size(); ++j) {
      into[j] += answers[j];
      if (is_judged_gradient(tensor)) gradients_[j] += answers[j];
    }
  }
}

bool WhatIfTables::tells_of_gradients() const {
  return std::any_of(least_.begin(), least_.end(), [](const Least& least) { return least.known; });
}

void WhatIfTables::judge() {
  const size_t scales = options_.exponents.size();
  for (size_t format = 0; format < options_.formats.size(); ++format) {
    Least least{0, 0, scales - 1, false};
    double most = INFINITY;
    for (size_t i = 0; i < scales; ++i) {
      const SweepAnswer& answer = gradients_[place(format, i)];
      least.known = least.known || answer.bounds.base > 0;
      const double upper = upper_of(answer.lost_norm());
      if (upper >= most) continue;
      most = upper;
      least.scale = i;
    }
    const auto may_be = [&](size_t i) { return lower_of(gradients_[place(format, i)].lost_norm()) <= most; };
    while (least.from < least.scale && !may_be(least.from)) ++least.from;
    while (least.to > least.scale && !may_be(least.to)) --least.to;
    least_.push_back(least);
  }
}

CountBounds WhatIfTables::overflowing_steps(size_t format, int exponent) const {
  CountBounds steps;
  for (const StepGradients& step : run_.steps) {
    steps.lower += exponent > step.largest[format].upper;
    steps.upper += exponent > step.largest[format].lower;
  }
  return steps;
}

Table WhatIfTables::least_table() const {
  Table table{"least",
              "Loss scale at which the gradients lose least of their norm",
              {{"format", ColumnKind::text},
               {"scale", ColumnKind::number, Unit::scale},
               {"lost_norm", ColumnKind::number, Unit::share},
               {"flushed", ColumnKind::number, Unit::share},
               {"overflow", ColumnKind::number, Unit::share},
               {"steps_overflowing", ColumnKind::number, Unit::count},
               {"from", ColumnKind::number, Unit::scale},
               {"to", ColumnKind::number, Unit::scale}},
              {},
              0,
              "Lost: flushed to zero or overflowed. From, to: within the recording's bounds these scales may lose as little."};
  for (size_t format = 0; format < options_.formats.size(); ++format) {
    const Least& least = least_[format];
    if (!least.known) continue;
    const SweepAnswer& answer = gradients_[place(format, least.scale)];
    const auto scale = [&](size_t i) { return Cell(scale_of(options_.exponents[i])); };
    table.rows.push_back(
        {{},
         {std::string(options_.formats[format]->name), scale(least.scale), answer.lost_norm(),
          share_cell(answer.bounds.flushed, answer.bounds.base), share_cell(answer.bounds.overflowed, answer.bounds.base),
          counts_cell(overflowing_steps(format, options_.exponents[least.scale])), scale(least.from), scale(least.to)}});
  }
  return table;
}

Table WhatIfTables::what_if_table() const {
  Table table{
      "what_if",
      fmt::format("What if, by {0}: all gradients at every loss scale, then {1}", name_of(options_.by),
                  options_.at_every_scale ? fmt::format("each {} (sorted at the scale that loses least)", name_of(options_.by))
                                          : "the worst at the scale that loses least, then the others"),
      {{name_of(options_.by), ColumnKind::text},
       {"format", ColumnKind::text},
       {"scale", ColumnKind::number, Unit::scale},
       {"flushed", ColumnKind::number, Unit::share},
       {"subnormal", ColumnKind::number, Unit::share},
       {"overflow", ColumnKind::number, Unit::share},
       {"lost_norm", ColumnKind::number, Unit::share},
       {"steps_overflowing", ColumnKind::number, Unit::count}},
      {},
      0,
      "Each rounding by itself, on the recorded inputs: a rerun differs. Shares are of the elements that were finite and "
      "nonzero. -: values without a loss scale."};
  if (unknown_ > 0)
    table.note += fmt::format(" {} told nothing: no histogram, or no counts of the rounding.", count_of(unknown_, "row"));
  if (run_.rows_behind_flushed > 0)
    table.note += fmt::format(" {} of gradients had been computed from flushed gradients: at another scale they would differ.",
                              count_of(run_.rows_behind_flushed, "row"));
  const std::vector<int>& exponents = options_.exponents;
  for (size_t format = 0; format < options_.formats.size(); ++format) {
    for (size_t i = 0; i < exponents.size() && least_[format].known; ++i)
      table.rows.push_back({{},
                            cells_of(kAllGradients, *options_.formats[format], scale_of(exponents[i]), gradients_[place(format, i)],
                                     counts_cell(overflowing_steps(format, exponents[i])))});
  }
  if (options_.at_every_scale)
    add_whole_groups(table);
  else
    add_worst_lines(table);
  return table;
}

void WhatIfTables::add_worst_lines(Table& table) const {
  const std::vector<int>& exponents = options_.exponents;
  struct Line {
    const Group* group;
    size_t format;
    std::optional<size_t> scale;
    const SweepAnswer* answer;
    std::tuple<bool, bool, SweepBadness> key;
  };
  std::vector<Line> lines;
  for (const Group& group : groups_) {
    for (size_t format = 0; format < options_.formats.size(); ++format) {
      if (!group.unscaled.empty()) {
        const SweepAnswer& answer = group.unscaled[format];
        lines.push_back({&group, format, {}, &answer, {true, !group.comes_last, sweep_badness(answer)}});
      }
      for (size_t i = 0; i < exponents.size() && !group.scaled.empty(); ++i) {
        const SweepAnswer& answer = group.scaled[place(format, i)];
        lines.push_back({&group, format, i, &answer, {i == least_[format].scale, !group.comes_last, sweep_badness(answer)}});
      }
    }
  }
  std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.key > b.key; });
  const size_t limit = options_.limit == 0 ? lines.size() : std::min(lines.size(), options_.limit);
  table.rows_left_out = lines.size() - limit;
  lines.resize(limit);
  for (const auto& [group, format, scale, answer, unused] : lines) {
    table.rows.push_back(
        {group->key, cells_of(group->name, *options_.formats[format],
                              scale ? Cell(scale_of(exponents[*scale])) : Cell(NotApplicable{}), *answer, NotApplicable{})});
  }
}

WhatIfTables::WholeGroups WhatIfTables::whole_groups() const {
  const size_t scales = options_.exponents.size(), formats = options_.formats.size();
  struct Ranked {
    const Group* group;
    std::tuple<bool, bool, SweepBadness, double> key;
  };
  std::vector<Ranked> ranked;
  for (const Group& group : groups_) {
    SweepBadness worst{};
    double over_all_scales = 0;
    for (size_t format = 0; format < formats; ++format) {
      const bool is_scaled = !group.scaled.empty();
      worst =
          std::max(worst, sweep_badness(is_scaled ? group.scaled[place(format, least_[format].scale)] : group.unscaled[format]));
      for (size_t i = 0; i < scales && is_scaled; ++i) over_all_scales += upper_of(group.scaled[place(format, i)].lost_norm());
    }
    ranked.push_back({&group, {!group.scaled.empty(), !group.comes_last, worst, over_all_scales}});
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) { return a.key > b.key; });
  WholeGroups whole;
  size_t lines = 0;
  for (const auto& [group, unused] : ranked) {
    lines += formats * ((group->scaled.empty() ? 0 : scales) + (group->unscaled.empty() ? 0 : 1));
    const bool is_full = options_.limit > 0 && (whole.shown.size() == options_.limit || lines > kMostLines);
    if (!is_full && whole.other_groups == 0) {
      whole.shown.push_back(group);
      continue;
    }
    ++whole.other_groups;
    for (const auto& [into, from] : {std::pair(&whole.others.scaled, &group->scaled), {&whole.others.unscaled, &group->unscaled}}) {
      into->resize(std::max(into->size(), from->size()));
      for (size_t i = 0; i < from->size(); ++i) (*into)[i] += (*from)[i];
    }
  }
  whole.others.name = count_of(whole.other_groups, fmt::format("other {}", name_of(options_.by)));
  return whole;
}

void WhatIfTables::add_whole_groups(Table& table) const {
  const WholeGroups whole = whole_groups();
  const auto add = [&](const Group& group) {
    for (size_t format = 0; format < options_.formats.size(); ++format) {
      const auto add_row = [&](Cell scale, const SweepAnswer& answer) {
        table.rows.push_back(
            {group.key, cells_of(group.name, *options_.formats[format], std::move(scale), answer, NotApplicable{})});
      };
      for (size_t i = 0; i < options_.exponents.size() && !group.scaled.empty(); ++i)
        add_row(scale_of(options_.exponents[i]), group.scaled[place(format, i)]);
      if (!group.unscaled.empty()) add_row(NotApplicable{}, group.unscaled[format]);
    }
  };
  for (const Group* group : whole.shown) add(*group);
  if (whole.other_groups > 0) add(whole.others);
}

Plot WhatIfTables::lost_plot() const {
  const std::vector<int>& exponents = options_.exponents;
  Plot plot{"lost",
            "Share of the gradients' elements that is lost (flushed or overflowed) at each loss scale, at most",
            PlotKind::heatmap,
            {"scale", Unit::exponent},
            {"lost", Unit::share}};
  plot.rows = {"format"};
  plot.x_end = exponents.back() + 1;
  const auto add = [&](std::string name, const RowKey& key, size_t format, const std::vector<SweepAnswer>& answers) {
    Series series{std::move(name), key, {}, {}};
    for (size_t i = 0; i < exponents.size(); ++i) {
      series.x.push_back(exponents[i]);
      series.y.push_back(at_most_lost(answers[place(format, i)]));
    }
    plot.series.push_back(std::move(series));
  };
  // What scaling itself keeps in FP32 is rounded nowhere: at most scales a scalar would look lost.
  const auto is_drawn = [](const Group& group) { return !group.scaled.empty() && !group.comes_last; };
  const bool one = options_.formats.size() == 1;
  for (size_t format = 0; format < options_.formats.size(); ++format) {
    if (!least_[format].known) continue;
    const std::string name(options_.formats[format]->name);
    add(one ? kAllGradients : name, {}, format, gradients_);
    const double at = exponents[least_[format].scale];
    plot.marks.push_back({at, at, fmt::format("{} loses least of the norm", name), Severity::info});
  }
  if (one && !plot.series.empty()) {
    plot.rows = {name_of(options_.by)};
    if (options_.at_every_scale) {
      const WholeGroups whole = whole_groups();
      for (const Group* group : whole.shown)
        if (is_drawn(*group)) add(group->name, group->key, 0, group->scaled);
      if (!whole.others.scaled.empty()) add(whole.others.name, {}, 0, whole.others.scaled);
    }
    std::vector<const Group*> worst;
    for (const Group& group : groups_)
      if (is_drawn(group) && !options_.at_every_scale) worst.push_back(&group);
    std::stable_sort(worst.begin(), worst.end(), [&](const Group* a, const Group* b) {
      const auto key = [&](const Group* group) { return sweep_badness(group->scaled[least_[0].scale]); };
      return key(a) > key(b);
    });
    if (options_.limit > 0 && worst.size() > options_.limit) worst.resize(options_.limit);
    for (const Group* group : worst) add(group->name, group->key, 0, group->scaled);
  }
  if (steps_.scaled && !plot.series.empty() && steps_.lowest_scale > 0)
    plot.marks.push_back(
        {std::log2(steps_.lowest_scale), std::log2(steps_.highest_scale), "the scales of the run itself", Severity::info});
  return plot;
}

void WhatIfTables::add_to(Report& report) const {
  std::string formats;
  for (const FloatFormat* format : options_.formats) formats += fmt::format("{}{}", formats.empty() ? "" : ", ", format->name);
  report.add_fact("formats", formats);
  report.add_fact("scales", scales_text(options_.exponents));
  report.add_fact("steps", count_cell(steps_.count), Unit::count);
  report.add_fact("steps_with_gradients", count_cell(run_.steps.size()), Unit::count);
  report.add_fact("rows_answered", count_cell(rows_), Unit::count);
  report.add_fact("rows_not_known", count_cell(unknown_), Unit::count);
  report.add_fact("gradient_rows_behind_flushed", count_cell(run_.rows_behind_flushed), Unit::count);
  if (steps_.scaled) {
    report.add_fact("lowest_scale", steps_.lowest_scale, Unit::scale);
    report.add_fact("highest_scale", steps_.highest_scale, Unit::scale);
  }
  if (Table least = least_table(); !least.rows.empty()) report.tables.push_back(std::move(least));
  report.tables.push_back(what_if_table());
  if (Plot lost = lost_plot(); !lost.series.empty()) report.plots.push_back(std::move(lost));
  if (options_.scalings.empty()) return;
  std::vector<ReplayedScaling> replayed;
  for (const Scaling& scaling : options_.scalings)
    for (size_t format = 0; format < options_.formats.size(); ++format)
      replayed.push_back(replay_scaling(scaling.rule, run_.steps, format, replayed_));
  report.tables.push_back(scaling_table(replayed));
  if (Plot scales = scaling_plot(replayed); !scales.series.empty()) report.plots.push_back(std::move(scales));
}

Table WhatIfTables::scaling_table(const std::vector<ReplayedScaling>& replayed) const {
  Table table{"scaling",
              "What loss scalers would have done",
              {{"scaling", ColumnKind::text},
               {"format", ColumnKind::text},
               {"skipped_steps", ColumnKind::number, Unit::count},
               {"undecided_steps", ColumnKind::number, Unit::count},
               {"final_scale", ColumnKind::number, Unit::scale},
               {"lowest_scale", ColumnKind::number, Unit::scale},
               {"highest_scale", ColumnKind::number, Unit::scale},
               {"flushed", ColumnKind::number, Unit::share}},
              {},
              0,
              "A step is skipped where a gradient overflows. Undecided: the recording does not tell whether it does, and both ways "
              "are followed. Flushed: of the elements of all steps, at the scales of these steps."};
  if (steps_.count > run_.steps.size())
    table.note += fmt::format(" {} without recorded gradients of the selection are left out.",
                              count_of(steps_.count - run_.steps.size(), "step"));
  if (steps_.scaled)
    table.rows.push_back(
        {{},
         {std::string("as recorded"), std::string(context_.trace.run().precision), count_cell(steps_.skipped.size()),
          NotApplicable{}, steps_.last.scale_after, steps_.lowest_scale, steps_.highest_scale, Unknown{}}});
  for (size_t i = 0; i < replayed.size(); ++i) {
    const ReplayedScaling& replay = replayed[i];
    const auto scale = [&](const Between<double>& scales) {
      return replay.is_known ? bounded(scales.least, scales.most) : Cell(Unknown{});
    };
    table.rows.push_back(
        {{},
         {options_.scalings[i / options_.formats.size()].name, std::string(options_.formats[i % options_.formats.size()]->name),
          replay.is_known ? counts_cell({replay.skipped.least, replay.skipped.most}) : Cell(Unknown{}),
          count_cell(replay.undecided), scale(replay.final), scale(replay.lowest), scale(replay.highest),
          replay.is_known ? share_cell(replay.flushed, replay.base) : Cell(Unknown{})}});
  }
  return table;
}

Plot WhatIfTables::scaling_plot(const std::vector<ReplayedScaling>& replayed) const {
  Plot plot{"scaling", "Loss scales over the steps", PlotKind::steps, {"step"}, {"scale", Unit::exponent}};
  const bool one = options_.formats.size() == 1;
  if (steps_.scaled) {
    Series series{"as recorded", {}, {static_cast<double>(steps_.first.step)}, {std::log2(steps_.first.scale_before)}};
    for (const ScaleChange& change : steps_.changes) {
      if (change.after == change.before) continue;
      series.x.push_back(static_cast<double>(change.step) + 1);  // holds from the next step on
      series.y.push_back(std::log2(change.after));
    }
    plot.series.push_back(std::move(series));
  }
  for (size_t i = 0; i < replayed.size(); ++i) {
    const ReplayedScaling& replay = replayed[i];
    if (replay.changes.empty()) continue;
    const size_t format = i % options_.formats.size();
    const std::string name =
        options_.scalings[i / options_.formats.size()].name + (one ? "" : fmt::format(", {}", options_.formats[format]->name));
    Series least{name, {}, {}, {}}, most{name + ", at most", {}, {}, {}};
    bool differ = false;
    for (size_t j = 0; j < replay.changes.size(); ++j) {
      for (Series* series : {&least, &most}) series->x.push_back(static_cast<double>(replay.changes[j]));
      least.y.push_back(std::log2(replay.scales[j].least));
      most.y.push_back(std::log2(replay.scales[j].most));
      differ = differ || replay.scales[j].least != replay.scales[j].most;
    }
    if (differ) least.name += ", at least";
    plot.series.push_back(std::move(least));
    if (differ) plot.series.push_back(std::move(most));
  }
  // All hold to the end.
  const double last = static_cast<double>(std::max(steps_.last.step, run_.steps.empty() ? 0 : run_.steps.back().step));
  for (Series& series : plot.series) {
    if (series.x.back() >= last) continue;
    series.x.push_back(last);
    series.y.push_back(series.y.back());
  }
  return plot;
}

}  // namespace ulpscope
