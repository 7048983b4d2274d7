// What a snapshot holds: of each of its parts the file up to a commit, and the tables that are shared with other snapshots where
// they did not grow since. Internal to trace/.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ulpscope/trace/decode.h"
#include "ulpscope/trace/snapshot.h"
#include "ulpscope/trace/stats_store.h"
#include "ulpscope/trace/trace_file.h"

namespace ulpscope::trace_detail {

// What a resumed run began with, where no run before it made it by an op of the same id.
inline constexpr uint32_t kLeftOut = UINT32_MAX;

// Of rows of a part's tables, those of the run set's, or kLeftOut.
struct PartTables {
  std::vector<uint32_t> ops, tensors;
  std::map<uint32_t, uint32_t> graphs;
  std::map<uint64_t, size_t> rows_by_op_id;  // of the part's own
};

struct PartView {
  std::shared_ptr<const TraceFile> file;
  std::shared_ptr<const Texts> texts = std::make_shared<Texts>();
  std::shared_ptr<const PartTables> tables = std::make_shared<PartTables>();
  std::shared_ptr<StatsStore> stats;
  std::shared_ptr<const RunInfo> run;
  WriterState writer_state = WriterState::closed;
  StepRange steps;       // those that count
  bool resumed = false;  // from another part

  Decoder decoder() const { return {*file, *texts, file->rows(TableId::ops), file->rows(TableId::tensors)}; }
};

// Built where it is first asked for.
class SharedGraph {
 public:
  SharedGraph(std::function<std::vector<GraphEdge>()> read, std::shared_ptr<const std::vector<OpInfo>> ops)
      : read_(std::move(read)), ops_(std::move(ops)) {}
  const OpGraph& get() const {
    std::call_once(built_, [&] { graph_.emplace(read_(), *ops_); });
    return *graph_;
  }

 private:
  std::function<std::vector<GraphEdge>()> read_;
  std::shared_ptr<const std::vector<OpInfo>> ops_;
  mutable std::once_flag built_;
  mutable std::optional<OpGraph> graph_;
};

struct View {
  std::string name;
  bool is_merged = false;       // of several files
  std::vector<PartView> parts;  // by rank, then by step
  std::vector<ReplacedTrace> replaced;
  std::vector<std::shared_ptr<const std::vector<EventRow>>> events_by_part;
  std::shared_ptr<const std::vector<EventRow>> events;  // of all parts
  std::shared_ptr<const RunInfo> run;
  std::shared_ptr<const std::vector<OpInfo>> ops;
  std::shared_ptr<const std::vector<TensorInfo>> tensors;
  std::shared_ptr<const SharedGraph> graph;

  // The parts for which `is_wanted` holds.
  template <typename Wanted>
  std::shared_ptr<View> with(Wanted&& is_wanted) const;
  // What follows from the parts: their events, and the run.
  void summarize();
};

// Rows are read from the file in blocks of this many, whole chunks of every table, and given to visitors in spans of fewer: a
// TensorRow has over 2 KB, and so many stay in a core's first cache. No more rows come to a span whose texts take so much.
inline constexpr uint64_t kBlockRows = 8192;
inline constexpr size_t kSpanRows = 16;
inline constexpr uint64_t kSpanTextBytes = uint64_t{1} << 24;

// Rows are sorted by step, each of which has one row in `steps`: what is not was not written so. Only events may be of any step.
class StepOrder {
 public:
  template <typename Row>
  void check(const TraceFile& file, const Block& block, size_t row, const Row& decoded) {
    if constexpr (requires { decoded.step; }) {
      const uint64_t least = before_ ? *before_ + (Table<Row>::id == TableId::steps ? 1 : 0) : 0;
      if (decoded.step < least || decoded.step > kLargestStep)
        throw file.misplaced(*block.table, block.row_number(row), decoded.step, before_);
      constexpr bool is_of_any_step = Table<Row>::id == TableId::steps || Table<Row>::id == TableId::events;
      if (!is_of_any_step && before_ != decoded.step && !file.has_step(decoded.step))
        throw file.misplaced(*block.table, block.row_number(row), decoded.step, std::nullopt);
      before_ = decoded.step;
    }
  }

 private:
  std::optional<uint64_t> before_;
};

// Visits rows [first, last) of a part's table as they stand in the file; `visit` takes a span that it may change.
template <typename Row, typename Visit>
void visit_stored(const PartView& part, uint64_t first, uint64_t last, bool histograms, Visit&& visit) {
  const Decoder decoder = part.decoder();
  StepOrder order;
  Block block;
  std::vector<Row> rows;
  while (first < last) {
    const auto count = static_cast<size_t>(std::min(kBlockRows - first % kBlockRows, last - first));
    if constexpr (Table<Row>::id == TableId::stats)
      part.stats->read(*part.file, first, count, histograms, block);
    else
      part.file->read(Table<Row>::id, first, count, false, block);
    for (size_t begin = 0; begin < count;) {
      rows.resize(std::min(kSpanRows, count - begin));
      size_t filled = 0;
      uint64_t texts = 0;
      if constexpr (std::is_same_v<Row, TensorRow>) {  // without texts
        decoder.decode_rows(block, begin, std::span(rows));
        for (; filled < rows.size(); ++filled) order.check(*part.file, block, begin + filled, rows[filled]);
      } else {
        for (; filled < rows.size() && texts <= kSpanTextBytes; ++filled) {
          Row& row = rows[filled];
          decoder.decode(block, begin + filled, row);
          order.check(*part.file, block, begin + filled, row);
          texts += text_bytes(row);
        }
      }
      if (!visit(std::span<Row>(rows).first(filled))) return;
      begin += filled;
      if (texts > kSpanTextBytes) rows.clear();
    }
    first += count;
  }
}

// Tables that are held in memory are refused beyond this many bytes.
inline constexpr uint64_t kMostHeldBytes = uint64_t{1} << 30;

// Rows from `first` on of a table that is held in memory.
template <typename Row>
std::vector<Row> held_rows(const PartView& part, uint64_t first) {
  part.file->check_size(Table<Row>::id, kMostHeldBytes / sizeof(Row));
  std::vector<Row> all;
  HeldTexts texts;
  visit_stored<Row>(part, first, part.file->rows(Table<Row>::id), false, [&](std::span<Row> more) {
    for (size_t i = 0; i < more.size(); ++i) texts.add(*part.file, first + all.size() + i, more[i]);
    all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    return true;
  });
  return all;
}

// Makes what the row refers to that of the run set's tables.
template <typename Row>
void take_over(const PartTables& tables, Row& row) {
  for_each_column<Row>([&](const auto& column, auto) {
    auto& field = column.get(row);
    using Field = std::remove_cvref_t<decltype(field)>;
    if constexpr (std::is_integral_v<Field> && !std::is_same_v<Field, bool>) {
      if (column.refers != Refers::ops && column.refers != Refers::tensors) return;
      if (std::is_signed_v<Field> && field == static_cast<Field>(-1)) return;
      const uint32_t taken = (column.refers == Refers::ops ? tables.ops : tables.tensors)[static_cast<size_t>(field)];
      field = std::is_signed_v<Field> && taken == kLeftOut ? static_cast<Field>(-1) : static_cast<Field>(taken);
    }
  });
  // A graph without edges has no rows of its own.
  if constexpr (std::is_same_v<Row, StepRow>) {
    const auto graph = tables.graphs.find(row.graph);
    row.graph = graph == tables.graphs.end() ? UINT32_MAX : graph->second;
  }
}

}  // namespace ulpscope::trace_detail
