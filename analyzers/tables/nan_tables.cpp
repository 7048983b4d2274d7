#include "ulpscope/analyzers/tables/nan_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ulpscope/analyzers/judgements/range_judgement.h"
#include "ulpscope/analyzers/judgements/run_facts.h"
#include "ulpscope/analyzers/judgements/update_judgement.h"
#include "ulpscope/analyzers/subject/run_analysis.h"
#include "ulpscope/analyzers/subject/step_losses.h"
#include "ulpscope/analyzers/tables/nan_plots.h"
#include "ulpscope/base/text.h"
#include "ulpscope/emulation/rounding.h"

namespace ulpscope {

namespace {

// How far back ancestors are looked for, and how many.
constexpr size_t kGenerations = 3, kMostAncestors = 8;
// Before the step in which it began.
constexpr uint64_t kStepsBack[] = {50, 20, 10, 5, 2, 1};

std::string coordinates_of(int64_t element, const std::vector<int64_t>& shape) {
  if (element < 0) return "";
  std::string text;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] <= 0) return fmt::format("[{}]", element);
    text = fmt::format("{}{}{}", element % shape[i], text.empty() ? "" : ", ", text);
    element /= shape[i];
  }
  return fmt::format("[{}]", text);
}

std::string encoding_text(DType dtype, double value) {
  if (!is_float(dtype)) return "";
  const FloatFormat& format = *info(dtype).format;
  return fmt::format("0x{:0{}x}", round_to_encoding(format, value), (format.storage_bits() + 3) / 4);
}

// From where on, to the position, every loss was more than twice the least one before it.
std::optional<uint64_t> loss_doubled_since(const Snapshot& trace, const RowPosition& before) {
  double least = INFINITY;
  std::optional<uint64_t> since;
  visit_steps_with_losses(trace.of_rank(before.rank), {0, before.step}, [&](std::span<const StepRow> rows) {
    for (const StepRow& row : rows) {
      if (!row.loss_known) continue;
      if (row.loss > 2 * least)
        since = since.value_or(row.step);
      else
        since.reset();
      least = std::min(least, row.loss);
    }
    return true;
  });
  return since;
}

}  // namespace

void NanTables::add_story(const NonfiniteOrigin& origin, Report& report) const {
  const NonfiniteBeginning* const beginning = facts_.ranges().beginning_of(origin);
  const NonfiniteExplanation explanation = explain(facts_, origin);
  const OpInfo& op = facts_.selection.op(origin.tensor);
  const TensorInfo& made = facts_.selection.tensor(origin.tensor);
  const NonfiniteWays ways = ways_from(facts_.context, origin.tensor, origin.position);
  const auto& [to_loss, to_weights] = ways;
  const std::vector<uint32_t> tensors = with_ancestors(origin.tensor, origin.position.step, origin.position.rank);
  std::vector<HeadroomHistory> histories;
  for (const uint32_t tensor : tensors) histories.push_back(headroom_before(facts_.context.trace, tensor, origin.position));
  const HeadroomHistory& own = histories.front();

  report.add_fact("tensor", facts_.selection.name(origin.tensor));
  report.add_fact("made_by", op.name);
  report.add_fact("module", text_or_none(op.module));
  report.add_fact("phase", std::string(name_of(op.phase)));
  if (const std::string& line = facts_.selection.location(origin.tensor); !line.empty()) report.add_fact("line", line);
  report.add_fact("step", count_cell(origin.position.step), Unit::count);
  if (facts_.context.trace.ranks().size() > 1) report.add_fact("rank", count_cell(static_cast<uint64_t>(origin.position.rank)));
  report.add_fact("type", std::string(info(made.dtype).name));
  if (explanation.capture) {
    const CaptureRow& element = explanation.capture->element();
    report.add_fact("element", coordinates_of(element.element, element.shape));
  }
  report.add_fact("cause", std::string(name_of(explanation.cause)));
  report.add_fact("that_is", std::string(meaning_of(explanation.cause)));
  const auto reached = [](const std::optional<uint64_t>& step) { return step ? count_cell(*step) : Cell(NotApplicable{}); };
  // It may have begun before and gone away.
  const auto got_to = [&](const std::vector<NonfiniteStop>& way, std::optional<uint64_t> ever) -> std::optional<uint64_t> {
    if (!way.empty()) return way.back().position.step;
    return ever && *ever >= origin.position.step ? ever : std::nullopt;
  };
  report.add_fact("reached_loss_in_step", reached(got_to(to_loss, beginning ? beginning->loss : std::nullopt)), Unit::count);
  report.add_fact("reached_weights_in_step", reached(got_to(to_weights, beginning ? beginning->weights : std::nullopt)),
                  Unit::count);
  if (!own.steps.empty()) {
    report.add_fact("headroom_before", own.steps.back().bits, Unit::bits);
    report.add_fact("headroom_lost_a_step", own.shrinks ? Cell(*own.shrinks) : Cell(NotApplicable{}), Unit::bits);
  }
  report.tables.push_back(beginnings_table());
  if (explanation.capture) report.tables.push_back(operands_table("operands", origin.tensor, *explanation.capture));
  if (Table headroom = headroom_table(origin.position.step, tensors, histories); !headroom.rows.empty())
    report.tables.push_back(std::move(headroom));
  if (origin.position.step > 0) report.tables.push_back(alarms_table(origin, own));
  if (!to_loss.empty()) report.tables.push_back(way_table("way_to_loss", "Path to the loss", to_loss));
  if (!to_weights.empty()) report.tables.push_back(way_table("way_to_weights", "Path to the weights", to_weights));
  report.plots.push_back(way_plot(facts_.selection, facts_.context.trace.path(), origin, explanation, ways));
  if (Plot headroom = headroom_plot(facts_.selection, tensors, histories); !headroom.series.empty())
    report.plots.push_back(std::move(headroom));
}

Table NanTables::beginnings_table() const {
  Table table{
      "beginnings",
      "Where NaN and Inf began",
      {{"tensor", ColumnKind::text},
       {"made_by", ColumnKind::text},
       {"cause", ColumnKind::text},
       {"step"},
       {"last_step"},
       {"rows"},
       {"nan"},
       {"infinities"},
       {"became", ColumnKind::text}},
      {},
      0,
      "The inputs of these ops held no NaN or Inf, as far as recorded. Counts are over all such steps; the cause is that of the "
      "first. States are those of optimizers, and running statistics."};
  const bool has_ranks = facts_.context.trace.ranks().size() > 1;
  if (has_ranks) table.columns.push_back({"rank"});
  const size_t limit = facts_.context.options.limit;
  for (const NonfiniteBeginning& one : facts_.ranges().beginnings()) {
    if (limit > 0 && table.rows.size() == limit) {
      ++table.rows_left_out;
      continue;
    }
    std::string became = one.weights               ? fmt::format("reached weights or states in step {}", *one.weights)
                         : one.loss                ? fmt::format("reached the loss in step {}", *one.loss)
                         : one.skipped == one.rows ? "its steps were skipped"
                                                   : "reached neither loss nor weights";
    const NonfiniteExplanation explanation = explain(facts_, {one.tensor, one.first, one.overflowed});
    table.rows.push_back({facts_.selection.key(one.tensor, one.first),
                          {facts_.selection.name(one.tensor), facts_.selection.op(one.tensor).name,
                           std::string(name_of(explanation.cause)), count_cell(one.first.step), count_cell(one.last_step),
                           count_cell(one.rows), count_cell(one.nan), count_cell(one.infinities), std::move(became)}});
    if (has_ranks) table.rows.back().cells.push_back(count_cell(static_cast<uint64_t>(one.first.rank)));
  }
  return table;
}

Table NanTables::operands_table(const char* name, uint32_t of, const CaptureTree& tree) const {
  Table table{
      name,
      fmt::format("Operands of element {} of {}, step {}", tree.element().element, facts_.selection.name(of), tree.element().step),
      {{"value_of", ColumnKind::text},
       {"element", ColumnKind::text},
       {"value", ColumnKind::text},
       {"encoding", ColumnKind::text},
       {"made_by", ColumnKind::text},
       {"note", ColumnKind::text}},
      {},
      0,
      ""};
  const size_t limit = facts_.context.options.limit;
  const auto add = [&](const auto& self, const CaptureRow& node, size_t depth) -> void {
    const bool is_known = node.made_by >= 0;
    const auto tensor = static_cast<uint32_t>(std::max<int64_t>(node.made_by, 0));
    const DType dtype = is_known ? facts_.selection.tensor(tensor).dtype : DType::f64;
    std::string note;
    const auto say = [&](std::string text) { note += (note.empty() ? "" : "; ") + text; };
    if (node.terms > 0) {
      say(fmt::format("a sum of {}", count_of(static_cast<uint64_t>(node.terms), "term")));
      std::set<int64_t> captured;
      for (const CaptureRow* const operand : tree.operands(node))
        if (operand->term >= 0) captured.insert(operand->term);
      if (!captured.empty() && static_cast<int64_t>(captured.size()) < node.terms) say(fmt::format("{} captured", captured.size()));
      if (node.broke_at > 0)
        say(fmt::format("{:.9g} before term {}", node.partial_sum, node.broke_at));
      else if (node.broke_at < 0 && !std::isnan(node.partial_sum))
        say(fmt::format("they add up to {:.9g}", node.partial_sum));
    }
    if (node.term >= 0) say(fmt::format("term {}", node.term));
    if (node.row.count > 0)
      say(fmt::format("{} values from {:.9g} to {:.9g}", node.row.count, node.row.smallest, node.row.largest));
    if (node.overwritten) say("after the call");
    if (node.follow == CaptureFollow::given) say("from before the pass");
    if (node.follow == CaptureFollow::gone) say("its operands were overwritten");
    const bool is_value = node.row.count == 0;
    table.rows.push_back(
        {is_known ? facts_.selection.key(tensor) : RowKey{},
         {std::string(2 * depth, ' ') + (is_known ? facts_.selection.name(tensor) : "?"),
          text_or_none(coordinates_of(node.element, node.shape)),
          is_value ? Cell(fmt::format("{:.9g}", node.value)) : NotApplicable{},
          is_value && is_known ? text_or_none(encoding_text(dtype, node.value)) : NotApplicable{},
          is_known ? text_or_none(facts_.selection.op(tensor).name) : Cell(Unknown{}), text_or_none(std::move(note))}});
    const std::vector<const CaptureRow*> operands = tree.operands_by_size(node);
    // Fewer of what is further away, and the two factors of a term together.
    const size_t shown = limit == 0 ? operands.size() : std::min(operands.size(), std::max<size_t>(limit >> depth * 2, 2));
    table.rows_left_out += operands.size() - shown;
    for (size_t i = 0; i < shown; ++i) self(self, *operands[i], depth + 1);
  };
  add(add, tree.element(), 0);
  return table;
}

std::vector<uint32_t> NanTables::with_ancestors(uint32_t tensor, uint64_t step, int rank) const {
  std::optional<uint32_t> graph;
  facts_.context.trace.of_rank(rank).visit_steps({step, step + 1}, [&](std::span<const StepRow> rows) {
    graph = rows.front().graph;
    return false;
  });
  std::vector<uint32_t> all{tensor};
  size_t begin = 0;
  for (size_t generation = 0; graph && generation < kGenerations; ++generation) {
    const size_t end = all.size();
    for (; begin < end; ++begin) {
      for (const GraphEdge& edge : facts_.context.trace.graph().inputs(facts_.selection.tensor(all[begin]).op, *graph)) {
        for (const uint32_t made : facts_.context.graph.made_by(edge.producer, edge.slot)) {
          if (all.size() > kMostAncestors || !facts_.ranges().find(made) || std::find(all.begin(), all.end(), made) != all.end())
            continue;
          all.push_back(made);
        }
      }
    }
  }
  return all;
}

Table NanTables::headroom_table(uint64_t step, const std::vector<uint32_t>& tensors,
                                const std::vector<HeadroomHistory>& histories) const {
  Table table{
      "headroom",
      fmt::format("Headroom of the tensor and its inputs, before step {}", step),
      {{"tensor", ColumnKind::text}, {"type", ColumnKind::text}},
      {},
      0,
      fmt::format(
          "Headroom: bits between the largest magnitude and the type's largest number, so many steps before step {0}, or in "
          "the last step before in which it is known. In step: in step {0}. Lost a step: the median slope, where there is a "
          "trend. Low since: below {1} bits from that step on.",
          step, kLowHeadroom)};
  for (const uint64_t back : kStepsBack) table.columns.push_back({fmt::format("{}_before", back), ColumnKind::number, Unit::bits});
  table.columns.push_back({"in_step", ColumnKind::number, Unit::bits});
  table.columns.push_back({"lost_a_step", ColumnKind::number, Unit::bits});
  table.columns.push_back({"low_since", ColumnKind::number, Unit::count});
  for (size_t i = 0; i < tensors.size(); ++i) {
    const HeadroomHistory& history = histories[i];
    if (history.steps.empty() && !history.last) continue;
    std::vector<Cell> cells{facts_.selection.name(tensors[i]), std::string(info(facts_.selection.tensor(tensors[i]).dtype).name)};
    const auto cell = [](const std::optional<double>& bits) { return bits ? Cell(*bits) : Cell(NotApplicable{}); };
    for (const uint64_t back : kStepsBack) cells.push_back(cell(history.before(step, back)));
    cells.push_back(history.last ? Cell(history.last->bits) : Cell(NotApplicable{}));
    cells.push_back(history.shrinks ? Cell(*history.shrinks) : Cell(NotApplicable{}));
    cells.push_back(history.low_since ? count_cell(*history.low_since) : Cell(NotApplicable{}));
    table.rows.push_back({facts_.selection.key(tensors[i]), std::move(cells)});
  }
  return table;
}

Table NanTables::alarms_table(const NonfiniteOrigin& origin, const HeadroomHistory& own) const {
  Table table{"alarms",
              "Early warnings",
              {{"alarm", ColumnKind::text},
               {"from_step", ColumnKind::number, Unit::count},
               {"steps_before", ColumnKind::number, Unit::count}},
              {},
              0,
              ""};
  std::string silent;
  const auto add = [&](std::string alarm, std::optional<uint64_t> since) {
    if (!since || *since >= origin.position.step) {
      silent += (silent.empty() ? "" : "; ") + alarm;
      return;
    }
    table.rows.push_back({RowKey{}, {std::move(alarm), count_cell(*since), count_cell(origin.position.step - *since)}});
  };
  add(fmt::format("headroom of {} below {} bits", facts_.selection.name(origin.tensor), kLowHeadroom), own.low_since);
  if (facts_.sees_updates()) {
    const auto& large = facts_.updates().whole().first_large;
    add("an update as large as its weight", large ? std::optional(large->step) : std::nullopt);
  }
  add("a loss twice the lowest so far", loss_doubled_since(facts_.context.trace, origin.position));
  if (!silent.empty()) table.note = fmt::format("Not seen before that step: {}.", silent);
  return table;
}

Table NanTables::way_table(const char* name, std::string title, const std::vector<NonfiniteStop>& way) const {
  Table table{
      name,
      std::move(title),
      {{"tensor", ColumnKind::text}, {"made_by", ColumnKind::text}, {"phase", ColumnKind::text}, {"step"}, {"nonfinite"}, {"of"}},
      {},
      0,
      ""};
  const size_t limit = facts_.context.options.limit, count = way.size();
  for (size_t i = 0; i < count; ++i) {
    // The beginning and the end are what a reader looks for.
    if (limit > 0 && count > limit && i >= (limit + 1) / 2 && i < count - limit / 2) {
      ++table.rows_left_out;
      continue;
    }
    const NonfiniteStop& stop = way[i];
    const OpInfo& op = facts_.selection.op(stop.tensor);
    table.rows.push_back({facts_.selection.key(stop.tensor, stop.position),
                          {facts_.selection.name(stop.tensor), op.name, std::string(name_of(op.phase)),
                           count_cell(stop.position.step), count_cell(stop.nonfinite), count_cell(stop.count)}});
  }
  if (table.rows_left_out > 0) table.note = "The middle of the path is left out.";
  return table;
}

}  // namespace ulpscope
