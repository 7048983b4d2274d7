#include "ulpscope/analyzers/ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "ulpscope/base/text.h"

namespace ulpscope {

const char* name_of(GroupBy by) {
  static constexpr std::array<const char*, 4> kNames{"tensor", "module", "phase", "role"};
  return kNames[static_cast<size_t>(by)];
}

struct RangeAnalysis::Group {
  std::string name, types;
  RowKey key;
  RangeTotals merged;                   // of groups of more than one tensor
  const RangeTotals* totals = nullptr;  // merged, or the one tensor's
  bool gradient = false;
  double made_nonfinite = 0;  // larger: earlier; 0: holds no NaN or Inf, or only what others made
  bool bookkeeping = true;    // all of it

  const RangeTotals& get() const { return totals ? *totals : merged; }
};

namespace {

// Larger is worse: what made NaN or Inf before all, then lost values, then lost bits, then how near the limit is.
using Badness = std::tuple<double, double, double, double>;

Badness badness(double made_nonfinite, const RoundingBounds& bounds, double nonfinite_share, double headroom_bits) {
  return {made_nonfinite,
          std::max({share(bounds.flushed.upper, bounds.base), share(bounds.overflowed.upper, bounds.base), nonfinite_share}),
          share(bounds.subnormal.upper, bounds.base), std::isnan(headroom_bits) ? -1e9 : -headroom_bits};
}

// Sorted copies of pointers, worst first; equals keep their order. Bookkeeping comes behind all others, for its numbers are meant
// to be small, or large.
template <typename Group, typename Key>
std::vector<const Group*> worst_first(const std::vector<Group>& groups, Key&& key) {
  std::vector<std::pair<Badness, const Group*>> keyed;
  for (const Group& group : groups) keyed.emplace_back(key(group), &group);
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) {
    return std::pair(!a.second->bookkeeping, a.first) > std::pair(!b.second->bookkeeping, b.first);
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
std::string bookkeeping_note(const std::vector<Group>& groups) {
  const auto rows = std::count_if(groups.begin(), groups.end(), [](const Group& group) { return group.bookkeeping; });
  if (rows == 0 || static_cast<size_t>(rows) == groups.size()) return "";
  return fmt::format(" Weights, the loss, and what scaling and the optimizer keep come last: {} (--limit 0 shows them).",
                     count_of(static_cast<uint64_t>(rows), "row"));
}

// `note`, where some rows hold values times a quantisation scale.
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
  return any ? " Some rows hold counts only: `--record stats` keeps the magnitudes that tell more." : "";
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
  Plot plot{
      std::move(name), std::move(title), PlotKind::histogram, {"exponent", Unit::exponent}, {"elements", Unit::count}, {}, {}};
  plot.limits = {{"subnormal", format.smallest_exponent() - 1},
                 {"normal", format.smallest_normal_exponent()},
                 {"overflow", format.largest_exponent() + 1}};
  return plot;
}

}  // namespace

RangeAnalysis::RangeAnalysis(const Snapshot& reader, const Selection& selection, const RangeOptions& options,
                             const StepFacts& steps, const FittingScale& fitting)
    : reader_(reader),
      selection_(selection),
      options_(options),
      steps_(steps),
      fitting_(fitting),
      delays_scales_(quantization_recipe(reader) == "delayed"),
      what_ifs_(options.formats),
      tensors_(reader.tensors().size()),
      terms_of_(reader.tensors().size()),
      terms_(reader.tensors().size()) {
  if (what_if_index(binary16) == what_ifs_.size()) what_ifs_.push_back(&binary16);
  find_terms();
}

// Gradients of biases: sums over the elements of the gradient that the op reads first.
void RangeAnalysis::find_terms() {
  struct BiasGradient {
    std::string_view op;
    uint8_t slot;
  };
  static constexpr BiasGradient kBiasGradients[] = {
      {"sum", 0}, {"conv2d_backward_weight", 1}, {"conv_transpose2d_backward_weight", 1}};
  const std::vector<TensorInfo>& tensors = reader_.tensors();
  std::map<std::pair<uint32_t, uint8_t>, uint32_t> by_output;
  for (uint32_t i = 0; i < tensors.size(); ++i) by_output.emplace(std::pair(tensors[i].op, tensors[i].slot), i);
  const auto first_input = [&](uint32_t op) -> std::optional<uint32_t> {
    for (const GraphEdge& edge : reader_.graph().inputs(op)) {
      const auto producer = edge.input == 0 ? by_output.find({edge.producer, edge.slot}) : by_output.end();
      if (producer != by_output.end()) return producer->second;
    }
    return std::nullopt;
  };
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].role != Role::weight_gradient) continue;
    if (std::none_of(std::begin(kBiasGradients), std::end(kBiasGradients), [&](const BiasGradient& gradient) {
          return gradient.op == selection_.op(i).name && gradient.slot == tensors[i].slot;
        }))
      continue;
    terms_of_[i] = first_input(tensors[i].op);
    if (terms_of_[i]) terms_[*terms_of_[i]].wanted = true;
  }
}

// Whether no element is larger than the rounding errors of its sum: of k terms t, each known to half an ulp of its type, added in
// FP32, at most (u + gamma_k) * sum |t|, and sum |t| <= sqrt(k * sum t^2).
bool RangeAnalysis::is_rounding_noise(const TensorRow& row) const {
  if (!terms_of_[row.tensor] || row.known != StatisticsLevel::full || row.statistics.count == 0) return false;
  const uint32_t summed = *terms_of_[row.tensor];
  const double k = terms_[summed].count / static_cast<double>(row.statistics.count), u = std::ldexp(1.0, -24);
  const double of_term = std::ldexp(0.5, -info(selection_.tensor(summed).dtype).format->fraction_bits);
  return row.statistics.largest <= (of_term + k * u / (1 - k * u)) * std::sqrt(k * terms_[summed].squares);
}

size_t RangeAnalysis::what_if_index(const FloatFormat& format) const {
  return std::find(what_ifs_.begin(), what_ifs_.end(), &format) - what_ifs_.begin();
}

void RangeAnalysis::see(const TensorRow& row) {
  if (step_ != row.step) {
    step_ = row.step;
    step_skipped_ = steps_.was_skipped(row.step);
    step_broken_ = row.step >= steps_.broken_from;
    passes_seen_.clear();
    previous_.reset();
  }
  first_rounding_ = false;
  if (row.known == StatisticsLevel::none) return;
  before_ = std::exchange(previous_, row.tensor);
  if (Terms& terms = terms_[row.tensor]; terms.wanted) {
    terms.count = static_cast<double>(row.statistics.count);
    terms.squares = row.known == StatisticsLevel::full ? row.statistics.sum_of_squares : kUnknown;
  }
  if (selection_.op(row.tensor).phase != Phase::backward || !is_plainly_narrow(selection_.tensor(row.tensor).dtype)) return;
  if (!row.rounding_known || share_base(row) == 0) return;
  const std::pair pass{row.micro_batch, row.pass};
  first_rounding_ = std::find(passes_seen_.begin(), passes_seen_.end(), pass) == passes_seen_.end();
  if (first_rounding_) passes_seen_.push_back(pass);
}

void RangeAnalysis::add(const TensorRow& row) {
  if (!tensors_[row.tensor]) tensors_[row.tensor] = std::make_unique<TensorFacts>();
  TensorFacts& facts = *tensors_[row.tensor];
  const TensorInfo& tensor = selection_.tensor(row.tensor);
  if (step_broken_ && !facts.broken) facts.broken = std::make_unique<RangeTotals>();
  (step_broken_ ? *facts.broken : facts.totals).add(row, tensor, what_ifs_);
  if (row.known == StatisticsLevel::none) return;
  const Place place{row.step, row.sequence, row.micro_batch, row.pass};
  // Gradients that overflow in a skipped step are how a dynamic loss scale finds its level.
  if (stored_nonfinite(row, tensor.dtype) > 0 && !(step_skipped_ && comes_after_loss(selection_.op(row.tensor).phase))) {
    if (facts.nonfinite_steps++ == 0) {
      facts.first_nonfinite = place;
      if (row.statistics.nonfinite() == 0 && !is_quantized(tensor.dtype)) facts.first_overflowed = row.rounding.infinite();
    }
  }
  if (step_broken_) return;
  facts.noise_rows += is_rounding_noise(row);
  if (first_rounding_) {
    ++backward_passes_;
    if (row.rounding.flushed == share_base(row) && facts.vanished_steps++ == 0) facts.vanished_after = before_;
  }
  if (row.known == StatisticsLevel::full && is_float(tensor.dtype) && !step_skipped_) {
    facts.kept_headroom = std::fmin(facts.kept_headroom, headroom(*info(tensor.dtype).format, row.statistics.largest));
  }
  const auto seen = as_seen(row);
  const bool has_no_history = is_quantized(tensor.dtype) && delays_scales_ && row.quantization_scale == 1 && facts.scaled.base == 0;
  if (seen && has_no_history) {
    facts.unscaled += *seen;
    ++facts.unscaled_rows;
  } else if (seen && is_quantized(tensor.dtype)) {
    facts.scaled += *seen;
    facts.largest_excess = std::max(facts.largest_excess, row.statistics.largest / info(tensor.dtype).format->largest_finite());
  }
  if (seen && is_gradient(tensor.role) && is_plainly_narrow(tensor.dtype) && tensor.rounding != RoundingMode::nearest_even) {
    const FloatFormat& format = *info(tensor.dtype).format;
    if (const auto nearest = what_if(row, tensor, format, 1.0, {.subnormals = rounding_of(tensor).subnormals})) {
      const auto beyond = [&](uint64_t flushed) { return flushed > seen->flushed.lower ? flushed - seen->flushed.lower : 0; };
      facts.raised += {beyond(nearest->flushed.lower), beyond(nearest->flushed.upper)};
    }
  }
  if (is_quantized(tensor.dtype) && !has_no_history && row.statistics.largest > 0) {
    const FloatFormat& format = *info(tensor.dtype).format;
    // what_if divides by row.quantization_scale as well.
    if (const auto own = what_if(row, tensor, format, row.statistics.largest / (format.largest_finite() * row.quantization_scale)))
      facts.at_own_scale += *own;
  }
  if (is_narrow(tensor.dtype) && !has_no_history) facts.flush_loss.add(row, *info(tensor.dtype).format, rounding_of(tensor));
  if (fitting_.what_if() == &binary16 && is_computed_gradient(tensor.role) && fitting_.is_read_as_zero(row)) {
    Rounding flushing = rounding_of(tensor, binary16);
    flushing.subnormals = SubnormalResults::flush;
    if (const auto read = what_if(row, tensor, binary16, row.scale, flushing)) facts.read_in_fp16 += *read;
  }
  facts.least_scale = std::min(facts.least_scale, row.scale);
  facts.input.nonzero += row.input.nonzero;
  facts.input.flushed += row.input.flushed;
  facts.starved_rows += row.input.nonzero > 0 && row.input.flushed == row.input.nonzero;
  if (row.rounding_known && row.rounding.infinite() > 0 && !has_no_history) {
    ++(step_skipped_ ? facts.overflow_steps_skipped : facts.overflow_steps_kept);
    if (!facts.first_overflow) facts.first_overflow = place;
  }
}

std::vector<uint32_t> RangeAnalysis::nonfinite_in_order() const {
  std::vector<uint32_t> in_order;
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i] && tensors_[i]->first_nonfinite) in_order.push_back(i);
  }
  std::stable_sort(in_order.begin(), in_order.end(),
                   [&](uint32_t a, uint32_t b) { return *tensors_[a]->first_nonfinite < *tensors_[b]->first_nonfinite; });
  return in_order;
}

std::vector<RangeAnalysis::Group> RangeAnalysis::groups() const {
  std::vector<Group> groups;
  std::map<std::string, size_t> index;
  const std::vector<uint32_t> nonfinite = nonfinite_in_order();
  const auto made_nonfinite = [&](uint32_t i) {
    const auto place = std::find(nonfinite.begin(), nonfinite.end(), i);
    if (place == nonfinite.end() || (place != nonfinite.begin() && tensors_[i]->first_overflowed == 0)) return 0.0;
    return static_cast<double>(nonfinite.end() - place);
  };
  for (uint32_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i]) continue;
    const TensorFacts& facts = *tensors_[i];
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
      if (facts.broken) {
        group.totals = nullptr;
        group.merged.add(facts.totals);
        group.merged.add(*facts.broken);
      }
      group.gradient = gradient;
      group.made_nonfinite = made_nonfinite(i);
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
      group.key.run = reader_.run().run_id;
      group.key.rank = reader_.run().rank;
      if (options_.by == GroupBy::module) group.key.module = op.module;
      if (options_.by == GroupBy::phase) group.key.phase = name;
      if (options_.by == GroupBy::role) group.key.role = name;
    }
    Group& group = groups[found->second];
    group.merged.add(facts.totals);
    if (facts.broken) group.merged.add(*facts.broken);
    group.gradient = group.gradient || gradient;
    group.made_nonfinite = std::max(group.made_nonfinite, made_nonfinite(i));
    group.bookkeeping = group.bookkeeping && bookkeeping;
    if (group.types.find(type) == std::string::npos) group.types += (group.types.empty() ? "" : ", ") + type;
  }
  return groups;
}

void RangeAnalysis::add_recorded_table(Report& report, const std::vector<Group>& groups) const {
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
      "Shares are of the elements that were finite and nonzero before rounding; zeros are of all. Headroom in powers of two. "
      "- no rounding into a narrower format, ? not known." +
          quantized_note(groups, " FP8: of the values times their quantisation scale; overflow is what saturated.") +
          level_note(groups) + bookkeeping_note(groups)};
  const auto key = [](const Group& group) {
    const RangeTotals& totals = group.get();
    return badness(group.made_nonfinite, totals.seen, share(totals.nonfinite(), totals.elements), totals.least_headroom);
  };
  for (const Group* group : worst_first(groups, key)) {
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
  cut(table, options_.limit);
  report.tables.push_back(std::move(table));
}

void RangeAnalysis::add_what_if_table(Report& report, const std::vector<Group>& groups, const FloatFormat& format) const {
  constexpr size_t kColumnsWithoutScale = 6;
  const std::string local_note = "Each rounding by itself, with the inputs that were recorded: a rerun differs." +
                                 quantized_note(groups, " FP8 tensors: their values without their quantisation scale.") +
                                 level_note(groups) + bookkeeping_note(groups);
  const size_t index = what_if_index(format);
  Table table{
      fmt::format("what_if_{}", format.name),
      fmt::format("What if every tensor were {}, worst first", format.name),
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
      fmt::format("{} Columns named true: values divided by the loss scale that they contain, as they would be without one.",
                  local_note)};
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
  cut(table, options_.limit);
  report.tables.push_back(std::move(table));
}

void RangeAnalysis::add_plots(Report& report, const std::vector<Group>& groups) const {
  if (options_.formats.empty()) return;
  const FloatFormat& format = *options_.formats.front();
  const size_t index = what_if_index(format);
  Plot recorded = histogram_plot("exponents", fmt::format("Exponents against {}'s limits, worst first", format.name), format);
  Plot unscaled = histogram_plot("true_exponents",
                                 fmt::format("Exponents divided by the loss scale, against {}'s limits", format.name), format);
  const auto key = [&](const Group& group) {
    const RangeTotals& totals = group.get();
    return badness(0.0, totals.what_if[index].as_scaled.bounds, 0.0,
                   totals.recorded.largest > 0 ? headroom(format, totals.recorded.largest) : kUnknown);
  };
  const size_t limit = options_.limit == 0 ? groups.size() : options_.limit;
  for (const Group* group : worst_first(groups, key)) {
    const RangeTotals& totals = group->get();
    if (totals.histogram && totals.recorded.largest > 0 && recorded.series.size() < limit) {
      recorded.series.push_back(histogram_series(group->name, group->key, *totals.histogram));
    }
    if (group->gradient && totals.true_histogram && totals.recorded.largest > 0 && unscaled.series.size() < limit) {
      unscaled.series.push_back(histogram_series(group->name, group->key, *totals.true_histogram));
    }
  }
  if (!recorded.series.empty()) report.plots.push_back(std::move(recorded));
  if (!unscaled.series.empty()) report.plots.push_back(std::move(unscaled));
}

void RangeAnalysis::add_tables(Report& report) const {
  const std::vector<Group> all = groups();
  add_recorded_table(report, all);
  for (const FloatFormat* format : options_.formats) add_what_if_table(report, all, *format);
  add_plots(report, all);
}

Report analyze_ranges(const Snapshot& reader, const RangeOptions& options) {
  Report report;
  report.analysis = "ranges";
  report.title = fmt::format("Ranges by {}", name_of(options.by));
  report.sources.push_back(source_of(reader));
  const Selection selection(reader, options);
  const StepFacts steps = step_facts(reader, options.steps);
  FittingScale fitting(reader, selection, format_to_ask(reader), options.flushed_limit, steps.broken_from);
  RangeAnalysis analysis(reader, selection, options, steps, fitting);
  RowConsumer* const consumers[] = {&fitting, &analysis};
  report.complete = visit_selected(reader, selection, options, consumers);
  analysis.add_findings(report);
  sort_by_severity(report.findings);
  analysis.add_tables(report);
  return report;
}

}  // namespace ulpscope
