#include "ulpscope/analyzers/tables/range_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/totals/range_facts.h"
#include "ulpscope/base/text.h"

namespace ulpscope {

struct RangeTables::Group {
  std::string name, types;
  RowKey key;
  RangeTotals merged;                   // of groups of more than one tensor
  const RangeTotals* totals = nullptr;  // merged, or the one tensor's
  bool gradient = false;
  double made_nonfinite = 0;  // the origin's is the largest, then larger: earlier; 0: holds no NaN or Inf, or only what others made
  bool bookkeeping = true;    // all of it

  const RangeTotals& get() const { return totals ? *totals : merged; }
  bool comes_last() const { return bookkeeping && made_nonfinite == 0; }
};

namespace {

// Larger is worse: what made NaN or Inf before all, then lost values, then lost bits, then how near the limit is.
using Badness = std::tuple<double, double, double, double>;

Badness badness(double made_nonfinite, const RoundingBounds& bounds, double nonfinite_share, double headroom_bits) {
  return {made_nonfinite,
          std::max({share(bounds.flushed.upper, bounds.base), share(bounds.overflowed.upper, bounds.base), nonfinite_share}),
          share(bounds.subnormal.upper, bounds.base), std::isnan(headroom_bits) ? -1e9 : -headroom_bits};
}

// Sorted copies of pointers, worst first; equals keep their order. Bookkeeping that made no NaN or Inf comes behind all others, for
// its numbers are meant to be small, or large.
template <typename Group, typename Key>
std::vector<const Group*> worst_first(const std::vector<Group>& groups, Key&& key) {
  std::vector<std::pair<Badness, const Group*>> keyed;
  for (const Group& group : groups) keyed.emplace_back(key(group), &group);
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) {
    return std::pair(!a.second->comes_last(), a.first) > std::pair(!b.second->comes_last(), b.first);
  });
  std::vector<const Group*> sorted;
  for (const auto& [unused, group] : keyed) sorted.push_back(group);
  return sorted;
}

Cell headroom_cell(const FloatFormat& format, const MagnitudeRange& range, const RangeTotals& totals) {
  if (totals.rows_with_values == 0) return Unknown{};
  if (!(range.largest > 0)) return NotApplicable{};
  return headroom(format, range.largest);
}

template <typename Member>
Cell what_if_cell(const WhatIfTotals& what_if, Member member) {
  if (what_if.rows == 0) return Unknown{};
  return share_cell(what_if.bounds.*member, what_if.bounds.base);
}

// What a table's note says of the rows that come last.
template <typename Group>
std::string bookkeeping_note(const std::vector<Group>& groups, size_t limit) {
  const auto rows = std::count_if(groups.begin(), groups.end(), [](const Group& group) { return group.comes_last(); });
  if (rows == 0 || static_cast<size_t>(rows) == groups.size()) return "";
  return fmt::format(" Weights, losses, scaler and optimizer state come last: {}{}.", count_of(static_cast<uint64_t>(rows), "row"),
                     limit > 0 ? " (--limit 0 shows them)" : "");
}

// `note`, where some rows hold values times a quantization scale.
template <typename Group>
std::string quantized_note(const std::vector<Group>& groups, std::string note) {
  const bool any = std::any_of(groups.begin(), groups.end(), [](const Group& group) { return group.get().quantized; });
  return any ? std::move(note) : "";
}

// What a table's note says where rows of the level health leave its cells unknown.
template <typename Group>
std::string level_note(const std::vector<Group>& groups) {
  const bool any =
      std::any_of(groups.begin(), groups.end(), [](const Group& group) { return group.get().rows_with_values < group.get().rows; });
  return any ? " Some rows were recorded without magnitudes, which headroom and what-ifs need." : "";
}

// Cuts a table to the limit.
void cut(Table& table, size_t limit) {
  if (limit == 0 || table.rows.size() <= limit) return;
  table.rows_left_out = table.rows.size() - limit;
  table.rows.resize(limit);
}

Series histogram_series(std::string name, const RowKey& key, const ExponentHistogram& histogram) {
  Series series{
      std::move(name), key, {}, {}, static_cast<double>(histogram.below_range), static_cast<double>(histogram.above_range)};
  for (int bin = 0; bin < ExponentHistogram::kBins; ++bin) {
    if (histogram.bins[bin] == 0) continue;
    series.x.push_back(ExponentHistogram::exponent(bin));
    series.y.push_back(static_cast<double>(histogram.bins[bin]));
  }
  return series;
}

Plot histogram_plot(std::string name, std::string title, const FloatFormat& format) {
  Plot plot{std::move(name), std::move(title), PlotKind::histogram, {"exponent", Unit::exponent}, {"elements", Unit::count}};
  plot.limits = {{"subnormal", format.smallest_exponent() - 1},
                 {"normal", format.smallest_normal_exponent()},
                 {"overflow", format.largest_exponent() + 1}};
  return plot;
}

// By what was rounded as the run had it.
template <typename Group>
Badness recorded_badness(const Group& group) {
  const RangeTotals& totals = group.get();
  return badness(group.made_nonfinite, totals.seen, share(totals.nonfinite(), totals.elements), totals.least_headroom);
}

}  // namespace

const char* name_of(GroupBy by) {
  static constexpr std::array<const char*, 4> kNames{"tensor", "module", "phase", "role"};
  return kNames[static_cast<size_t>(by)];
}

RangeTables::RangeTables(const AnalysisContext& context, const RangeTableOptions& options, const RangeFacts& facts,
                         const RangeJudgement& ranges)
    : context_(context), selection_(context.selection), options_(options), facts_(facts), ranges_(ranges) {}

std::vector<RangeTables::Group> RangeTables::groups() const {
  std::vector<Group> groups;
  std::map<std::string, size_t> index;
  const std::vector<uint32_t>& in_order = ranges_.nonfinite_in_order();
  std::vector<double> made_nonfinite(selection_.size());  // by tensor: Group::made_nonfinite
  for (size_t i = 0; i < in_order.size(); ++i) {
    if (i == 0 || ranges_.nonfinite(in_order[i]).overflowed > 0)
      made_nonfinite[in_order[i]] = static_cast<double>(in_order.size() - i);
  }
  for (const NonfiniteOrigin& origin : ranges_.origins()) made_nonfinite[origin.tensor] = static_cast<double>(in_order.size() + 1);
  for (const auto& [i, facts, broken] : ranges_.tensors()) {
    const TensorInfo& tensor = selection_.tensor(i);
    const OpInfo& op = selection_.op(i);
    if (!is_float(tensor.dtype)) continue;
    const bool gradient = is_gradient(tensor.role), bookkeeping = selection_.is_bookkeeping(i);
    const std::string type(info(tensor.dtype).name);
    if (options_.by == GroupBy::tensor) {
      Group& group = groups.emplace_back();
      group.name = selection_.name(i);
      group.types = type;
      group.key = selection_.key(i);
      group.totals = &facts.totals;
      if (broken) {
        group.totals = nullptr;
        group.merged.add(facts.totals);
        group.merged.add(broken->totals);
      }
      group.gradient = gradient;
      group.made_nonfinite = made_nonfinite[i];
      group.bookkeeping = bookkeeping;
      continue;
    }
    std::string name = options_.by == GroupBy::phase ? name_of(op.phase) : name_of(tensor.role);
    if (options_.by == GroupBy::module) {
      // A module's own values would drown in what is kept for its weights.
      name = (op.module.empty() ? "(top level)" : op.module) + (bookkeeping ? " (weights, scaling, optimizer)" : "");
    }
    const auto [found, is_new] = index.try_emplace(name, groups.size());
    if (is_new) {
      Group& group = groups.emplace_back();
      group.name = name;
      group.key.run = context_.trace.run().run_id;
      group.key.rank = only_rank(context_.trace);
      if (options_.by == GroupBy::module) group.key.module = op.module;
      if (options_.by == GroupBy::phase) group.key.phase = name;
      if (options_.by == GroupBy::role) group.key.role = name;
    }
    Group& group = groups[found->second];
    group.merged.add(facts.totals);
    if (broken) group.merged.add(broken->totals);
    group.gradient = group.gradient || gradient;
    group.made_nonfinite = std::max(group.made_nonfinite, made_nonfinite[i]);
    group.bookkeeping = group.bookkeeping && bookkeeping;
    if (group.types.find(type) == std::string::npos) group.types += (group.types.empty() ? "" : ", ") + type;
  }
  return groups;
}

void RangeTables::add_recorded_table(Report& report, const std::vector<Group>& groups) const {
  Table table{
      "recorded",
      "As recorded, worst first",
      {{name_of(options_.by), ColumnKind::text},
       {"type", ColumnKind::text},
       {"rows", ColumnKind::number, Unit::count},
       {"nonfinite", ColumnKind::number, Unit::count},
       {"zero", ColumnKind::number, Unit::share},
       {"flushed", ColumnKind::number, Unit::share},
       {"subnormal", ColumnKind::number, Unit::share},
       {"overflow", ColumnKind::number, Unit::share},
       {"rescued", ColumnKind::number, Unit::share},
       {"headroom", ColumnKind::number, Unit::bits}},
      {},
      0,
      "Shares are of the elements that were finite and nonzero before rounding; zero: of all elements. Headroom: bits up to the "
      "format's largest number. -: not rounded to a narrower format. ?: not known." +
          quantized_note(groups, " FP8: of the values at their quantization scale; overflow: saturated.") + level_note(groups) +
          bookkeeping_note(groups, context_.options.limit)};
  for (const Group* group : worst_first(groups, recorded_badness<Group>)) {
    const RangeTotals& totals = group->get();
    const bool health = totals.elements > 0;
    const Cell rescued = totals.scaled ? seen_cell(totals, &RoundingBounds::flushed) : Cell(NotApplicable{});
    table.rows.push_back(
        {group->key,
         {group->name, group->types, count_cell(totals.rows), count_cell(totals.nonfinite()),
          health ? Cell(share(totals.zeros, totals.elements)) : Cell(Unknown{}), seen_cell(totals, &RoundingBounds::flushed),
          seen_cell(totals, &RoundingBounds::subnormal), seen_cell(totals, &RoundingBounds::overflowed),
          std::holds_alternative<double>(rescued) ? Cell(share(totals.rescued, totals.seen.base)) : rescued,
          totals.rows_with_values == 0
              ? Cell(Unknown{})
              : (std::isnan(totals.least_headroom) ? Cell(NotApplicable{}) : Cell(totals.least_headroom))}});
  }
  cut(table, context_.options.limit);
  report.tables.push_back(std::move(table));
}

void RangeTables::add_quantized_table(Report& report, const std::vector<Group>& groups) const {
  Table table{
      "quantization",
      "FP8 tensors over the run, worst first",
      {{name_of(options_.by), ColumnKind::text},
       {"type", ColumnKind::text},
       {"smallest_amax"},
       {"largest_amax"},
       {"smallest_scale"},
       {"largest_scale"}},
      {},
      0,
      "amax: the largest magnitude of a tensor in a step. scale: the quantization scale that its values were multiplied by."};
  for (const Group* group : worst_first(groups, recorded_badness<Group>)) {
    const RangeTotals& totals = group->get();
    if (!totals.quantized) continue;
    const auto cell = [](const MagnitudeRange& range, double value) { return range.largest > 0 ? Cell(value) : Cell(Unknown{}); };
    const MagnitudeRange &amax = totals.amax, &scales = totals.quantization_scales;
    table.rows.push_back({group->key,
                          {group->name, group->types, cell(amax, amax.smallest), cell(amax, amax.largest),
                           cell(scales, scales.smallest), cell(scales, scales.largest)}});
  }
  if (table.rows.empty()) return;
  cut(table, context_.options.limit);
  report.tables.push_back(std::move(table));
}

void RangeTables::add_what_if_table(Report& report, const std::vector<Group>& groups, const FloatFormat& format) const {
  constexpr size_t kColumnsWithoutScale = 6;
  const std::string local_note = "Each rounding by itself, on the recorded inputs: a rerun differs." +
                                 quantized_note(groups, " FP8 tensors: without their quantization scale.") + level_note(groups) +
                                 bookkeeping_note(groups, context_.options.limit);
  const size_t index = facts_.what_if_index(format);
  Table table{fmt::format("what_if_{}", format.name),
              fmt::format("What if every tensor were {}, worst first", upper_case(format.name)),
              {{name_of(options_.by), ColumnKind::text},
               {"type", ColumnKind::text},
               {"flushed", ColumnKind::number, Unit::share},
               {"subnormal", ColumnKind::number, Unit::share},
               {"overflow", ColumnKind::number, Unit::share},
               {"headroom", ColumnKind::number, Unit::bits},
               {"true_flushed", ColumnKind::number, Unit::share},
               {"true_subnormal", ColumnKind::number, Unit::share},
               {"true_overflow", ColumnKind::number, Unit::share},
               {"true_headroom", ColumnKind::number, Unit::bits}},
              {},
              0,
              fmt::format("{} true: values without the loss scale.", local_note)};
  const auto key = [&](const Group& group) {
    const RangeTotals& totals = group.get();
    return badness(0.0, totals.what_if[index].as_scaled.bounds, 0.0,
                   totals.recorded.largest > 0 ? headroom(format, totals.recorded.largest) : kUnknown);
  };
  for (const Group* group : worst_first(groups, key)) {
    const RangeTotals& totals = group->get();
    const auto& [scaled, unscaled] = totals.what_if[index];
    const auto true_cell = [&](Cell cell) { return totals.scaled ? std::move(cell) : Cell(NotApplicable{}); };
    table.rows.push_back(
        {group->key,
         {group->name, group->types, what_if_cell(scaled, &RoundingBounds::flushed),
          what_if_cell(scaled, &RoundingBounds::subnormal), what_if_cell(scaled, &RoundingBounds::overflowed),
          headroom_cell(format, totals.recorded, totals), true_cell(what_if_cell(unscaled, &RoundingBounds::flushed)),
          true_cell(what_if_cell(unscaled, &RoundingBounds::subnormal)),
          true_cell(what_if_cell(unscaled, &RoundingBounds::overflowed)),
          true_cell(headroom_cell(format, totals.unscaled, totals))}});
  }
  // Where no value contained a loss scale there is nothing true to tell from the recorded.
  if (std::none_of(groups.begin(), groups.end(), [](const Group& group) { return group.get().scaled; })) {
    table.columns.resize(kColumnsWithoutScale);
    for (TableRow& row : table.rows) row.cells.resize(kColumnsWithoutScale);
    table.note = local_note;
  }
  cut(table, context_.options.limit);
  report.tables.push_back(std::move(table));
}

void RangeTables::add_plots(Report& report, const std::vector<Group>& groups) const {
  const FloatFormat& format = options_.formats.empty() ? binary16 : *options_.formats.front();
  const size_t index = facts_.what_if_index(format);
  const std::string limits = upper_case(format.name) + "'s limits";
  Plot recorded = histogram_plot("exponents", fmt::format("Exponents against {}, worst first", limits), format);
  Plot unscaled = histogram_plot("true_exponents", fmt::format("Exponents without the loss scale, against {}", limits), format);
  const auto key = [&](const Group& group) {
    const RangeTotals& totals = group.get();
    return badness(0.0, totals.what_if[index].as_scaled.bounds, 0.0,
                   totals.recorded.largest > 0 ? headroom(format, totals.recorded.largest) : kUnknown);
  };
  // Who asks for a format wants to see all of it against its limits; else a few, of which the true ones tell no more.
  const size_t few = std::min(context_.options.limit, std::max<size_t>(5, context_.options.limit / 5));
  const size_t shown = options_.formats.empty() ? few : context_.options.limit;
  const size_t limit = context_.options.limit == 0 ? groups.size() : shown;
  const auto add = [&](Plot& plot, const Group& group, const ExponentHistogram& histogram) {
    if (plot.series.size() < limit) {
      plot.series.push_back(histogram_series(group.name, group.key, histogram));
    } else {
      ++plot.series_left_out;
    }
  };
  const bool in_fp8 = std::any_of(groups.begin(), groups.end(), [](const Group& group) { return group.get().quantized; });
  if (in_fp8 && options_.formats.empty()) {
    // What FP8 rounded stood against its limits at scales of its own; those of another format say nothing of it.
    for (const DType dtype : {DType::f8_e4m3, DType::f8_e5m2}) {
      const FloatFormat& fp8 = *info(dtype).format;
      Plot quantized =
          histogram_plot(fmt::format("exponents_{}", fp8.name),
                         fmt::format("Exponents of {0} tensors at their quantization scales against {0}'s limits, worst first",
                                     upper_case(fp8.name)),
                         fp8);
      for (const Group* group : worst_first(groups, recorded_badness<Group>))
        if (const auto& histogram = group->get().quantized_histograms[fp8_place(dtype)]) add(quantized, *group, *histogram);
      if (!quantized.series.empty()) report.plots.push_back(std::move(quantized));
    }
    return;
  }
  for (const Group* group : worst_first(groups, key)) {
    const RangeTotals& totals = group->get();
    if (totals.recorded.largest == 0) continue;
    if (totals.histogram) add(recorded, *group, *totals.histogram);
    if (group->gradient && totals.true_histogram) add(unscaled, *group, *totals.true_histogram);
  }
  if (!recorded.series.empty()) report.plots.push_back(std::move(recorded));
  if (!unscaled.series.empty() && !options_.formats.empty()) report.plots.push_back(std::move(unscaled));
}

void RangeTables::add_to(Report& report) const {
  const std::vector<Group> all = groups();
  add_recorded_table(report, all);
  add_quantized_table(report, all);
  for (const FloatFormat* format : options_.formats) add_what_if_table(report, all, *format);
  add_plots(report, all);
}

}  // namespace ulpscope
