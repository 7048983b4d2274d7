#include "ulpscope/trace/run_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "ulpscope/base/error.h"
#include "ulpscope/trace/op_semantics.h"
#include "ulpscope/trace/run_order.h"
#include "ulpscope/trace/view.h"

namespace ulpscope {

using namespace trace_detail;

namespace {

// A copy to change of what snapshots share.
template <typename T>
T& copy_of(std::shared_ptr<const T>& shared) {
  auto copy = std::make_shared<T>(*shared);
  T& result = *copy;
  shared = std::move(copy);
  return result;
}

}  // namespace

// Makes views. What they share is copied where it grows.
struct RunSet::State {
  State(std::string name, std::span<const std::string> paths, const ReadOptions& options);

  View view;  // the newest, and what the next one is made of
  std::shared_ptr<const View> newest;
  mutable std::mutex mutex;
  std::vector<std::vector<EventRow>> stored_events;  // of each part's file
  std::vector<uint64_t> edges_read;                  // of each part's file, how many rows
  std::map<uint64_t, uint32_t> ops_by_id;
  // Rows are judged by what their tensor says of rounding and subnormals, so those are part of the key.
  using TensorUse = std::tuple<uint32_t, uint32_t, Role, DType, std::string, RoundingMode, bool, bool, bool>;
  std::map<TensorUse, uint32_t> tensors_by_use;
  std::vector<std::vector<GraphEdge>> graphs;  // of several files, the edges of each graph

  void load_texts(PartView& part) const;
  // What a part is among the others.
  void load_run(PartView& part) const;
  // What is new in the small tables of a part's file.
  void load(size_t part);
  void load_tensors(PartView& part);
  void publish();
  uint32_t add_op(const PartView& part, const OpInfo& op, std::vector<OpInfo>& ops);
  uint32_t add_tensor(const PartTables& tables, const TensorInfo& tensor, std::vector<TensorInfo>& tensors);
  // By the edges from row `first` on.
  void add_graphs(PartView& part, uint64_t first);
  std::vector<EventRow> events_of(size_t part) const;
};

uint32_t RunSet::State::add_op(const PartView& part, const OpInfo& op, std::vector<OpInfo>& ops) {
  const auto index = static_cast<uint32_t>(ops.size());
  const auto [known, is_new] = ops_by_id.emplace(op.id, index);
  if (is_new || !view.is_merged) {
    ops.push_back(op);
    return index;
  }
  OpInfo& other = ops[known->second];
  if (std::tie(other.name, other.module, other.phase) != std::tie(op.name, op.module, op.phase)) {
    throw unreadable_error(
        "'{}': the op '{}' of module '{}' has the id of '{}' of '{}' in another trace of '{}'; expected traces of one "
        "experiment",
        part.file->path(), op.name, op.module, other.name, other.module, view.name);
  }
  other.attributes = merged_attributes(other.attributes, op.attributes);
  return known->second;
}

uint32_t RunSet::State::add_tensor(const PartTables& tables, const TensorInfo& tensor, std::vector<TensorInfo>& tensors) {
  const auto index = static_cast<uint32_t>(tensors.size());
  const uint32_t op = tables.ops[tensor.op];
  const TensorUse use{op,
                      tensor.slot,
                      tensor.role,
                      tensor.dtype,
                      tensor.parameter,
                      tensor.rounding,
                      tensor.flushes_results,
                      tensor.flushes_inputs,
                      tensor.flushes_narrow_products};
  const auto [known, is_new] = tensors_by_use.emplace(use, index);
  if (!is_new && view.is_merged) return known->second;
  tensors.push_back(tensor);
  tensors.back().op = op;
  return index;
}

// A graph that another part has is the same one.
void RunSet::State::add_graphs(PartView& part, uint64_t first) {
  PartTables& tables = copy_of(part.tables);
  const auto what = [](const GraphEdge& edge) { return std::tie(edge.consumer, edge.input, edge.producer, edge.slot); };
  std::map<uint32_t, std::vector<GraphEdge>> found;
  for (GraphEdge& edge : held_rows<GraphEdge>(part, first)) {
    if (tables.graphs.contains(edge.graph)) continue;
    take_over(tables, edge);
    if (edge.producer != kLeftOut && edge.consumer != kLeftOut) found[edge.graph].push_back(edge);
  }
  for (auto& [graph, edges] : found) {
    const auto known = std::find_if(graphs.begin(), graphs.end(), [&](const std::vector<GraphEdge>& other) {
      return std::equal(edges.begin(), edges.end(), other.begin(), other.end(),
                        [&](const GraphEdge& a, const GraphEdge& b) { return what(a) == what(b); });
    });
    const auto number = static_cast<uint32_t>(known - graphs.begin());
    tables.graphs.emplace(graph, number);
    if (known != graphs.end()) continue;
    for (GraphEdge& edge : edges) edge.graph = number;
    graphs.push_back(std::move(edges));
  }
}

void RunSet::State::load_texts(PartView& part) const {
  if (part.file->rows(TableId::strings) > part.texts->size()) copy_of(part.texts).read(*part.file);
}

void RunSet::State::load_run(PartView& part) const {
  load_texts(part);
  const TraceFile& file = *part.file;
  if (file.rows(TableId::run) != 1)
    throw unreadable_error("'{}' is damaged: expected 1 row in table 'run', found {}", file.path(), file.rows(TableId::run));
  part.run = std::make_shared<const RunInfo>(held_rows<RunInfo>(part, 0).front());
}

void RunSet::State::load_tensors(PartView& part) {
  PartTables& tables = copy_of(part.tables);
  std::vector<OpInfo>& ops = copy_of(view.ops);
  std::vector<TensorInfo>& tensors = copy_of(view.tensors);
  const std::vector<TensorInfo> new_tensors = held_rows<TensorInfo>(part, tables.tensors.size());
  for (const OpInfo& op : held_rows<OpInfo>(part, tables.ops.size())) {
    const auto makes_inputs = [&] {
      return std::any_of(new_tensors.begin(), new_tensors.end(),
                         [&](const TensorInfo& tensor) { return tensor.op == tables.ops.size() && tensor.role == Role::input; });
    };
    const bool is_left_out = part.resumed && op.function == OpFunction::source && !ops_by_id.contains(op.id) && !makes_inputs();
    const auto [known, is_new] = tables.rows_by_op_id.emplace(op.id, tables.ops.size());
    if (!is_new && op.id != 0) {
      const TableSpec& table = spec(TableId::ops);
      throw part.file->damaged(table, table.columns[column_named<OpInfo>("id")], tables.ops.size(),
                               fmt::format("has the value {}, as row {}; expected an id of its own", op.id, known->second));
    }
    tables.ops.push_back(is_left_out ? kLeftOut : add_op(part, op, ops));
  }
  for (const TensorInfo& tensor : new_tensors)
    tables.tensors.push_back(tables.ops[tensor.op] == kLeftOut ? kLeftOut : add_tensor(tables, tensor, tensors));
}

void RunSet::State::load(size_t index) {
  PartView& part = view.parts[index];
  const TraceFile& file = *part.file;
  load_texts(part);
  for (EventRow& event : held_rows<EventRow>(part, stored_events[index].size())) stored_events[index].push_back(std::move(event));
  if (file.rows(TableId::ops) > part.tables->ops.size() || file.rows(TableId::tensors) > part.tables->tensors.size())
    load_tensors(part);
  // Of one file, the edges are read where they are asked for.
  if (!view.is_merged || file.rows(TableId::edges) == edges_read[index]) return;
  add_graphs(part, edges_read[index]);
  edges_read[index] = file.rows(TableId::edges);
}

// Those that count.
std::vector<EventRow> RunSet::State::events_of(size_t index) const {
  const PartView& part = view.parts[index];
  const bool went_on = index + 1 < view.parts.size() && view.parts[index + 1].run->rank == part.run->rank;
  std::vector<EventRow> events;
  for (EventRow event : stored_events[index]) {
    // A run that another one went on from did not stop there.
    if ((event.kind == EventKind::stopped && went_on) || event.step < part.steps.first || event.step >= part.steps.last) continue;
    if (view.is_merged) take_over(*part.tables, event);
    event.rank = part.run->rank;
    events.push_back(std::move(event));
  }
  return events;
}

void RunSet::State::publish() {
  for (size_t i = 0; i < view.parts.size(); ++i) {
    const bool same = newest && newest->parts[i].file->rows(TableId::events) == view.parts[i].file->rows(TableId::events);
    if (!same) view.events_by_part[i] = std::make_shared<const std::vector<EventRow>>(events_of(i));
  }
  view.summarize();
  const auto edge_rows = [](const View& of) {
    uint64_t rows = 0;
    for (const PartView& part : of.parts) rows += part.file->rows(TableId::edges);
    return rows;
  };
  if (!newest || edge_rows(*newest) != edge_rows(view) || newest->ops->size() != view.ops->size()) {
    std::function<std::vector<GraphEdge>()> read;
    if (view.is_merged) {
      std::vector<GraphEdge> edges;
      for (const std::vector<GraphEdge>& graph : graphs) edges.insert(edges.end(), graph.begin(), graph.end());
      read = [edges = std::move(edges)] { return edges; };
    } else {
      read = [part = view.parts.front()] { return held_rows<GraphEdge>(part, 0); };
    }
    view.graph = std::make_shared<const SharedGraph>(std::move(read), view.ops);
  }
  newest = std::make_shared<const View>(view);
}

RunSet::State::State(std::string name, std::span<const std::string> paths, const ReadOptions& options) {
  view.name = std::move(name);
  view.ops = std::make_shared<const std::vector<OpInfo>>();
  view.tensors = std::make_shared<const std::vector<TensorInfo>>();
  view.parts.resize(paths.size());
  const auto cache = std::make_shared<RowCache>(options.row_bytes);
  for (size_t i = 0; i < paths.size(); ++i) {
    PartView& part = view.parts[i];
    part.file = std::make_shared<const TraceFile>(paths[i], paths[i]);
    part.stats = std::make_shared<StatsStore>(cache, static_cast<uint32_t>(i));
    load_run(part);
  }
  view.is_merged = view.parts.size() > 1;
  if (view.is_merged) {
    std::vector<RunTrace> traces;
    for (const PartView& part : view.parts) traces.push_back({part.file->path(), *part.run});
    std::vector<PartView> ordered;
    const RunOrder order = order_runs(view.name, traces);
    for (const ReplacedPart& one : order.replaced) {
      const RunTrace& by = traces[one.by];
      view.replaced.push_back({traces[one.trace].path, view.parts[one.trace].file->steps_end(), by.run, by.path});
    }
    for (const RunPlace& place : order.places) {
      PartView& part = ordered.emplace_back(std::move(view.parts[place.trace]));
      part.steps = place.steps;
      part.resumed = ordered.size() > 1 && ordered[ordered.size() - 2].run->rank == part.run->rank;
    }
    view.parts = std::move(ordered);
  }
  stored_events.resize(view.parts.size());
  edges_read.resize(view.parts.size());
  view.events_by_part.resize(view.parts.size());
  for (size_t i = 0; i < view.parts.size(); ++i) {
    view.parts[i].writer_state = view.parts[i].file->writer_state();
    load(i);
  }
  publish();
}

RunSet::RunSet(const std::string& path, const ReadOptions& options) : RunSet(path, std::span(&path, 1), options) {}
RunSet::RunSet(const std::string& name, std::span<const std::string> paths, const ReadOptions& options)
    : state_(std::make_unique<State>(name, paths, options)) {}
RunSet::~RunSet() = default;
RunSet::RunSet(RunSet&&) noexcept = default;

Snapshot RunSet::snapshot() const {
  std::lock_guard lock(state_->mutex);
  return Snapshot(state_->newest);
}

bool RunSet::refresh() {
  State& state = *state_;
  std::lock_guard lock(state.mutex);
  bool changed = false;
  for (size_t i = 0; i < state.view.parts.size(); ++i) {
    PartView& part = state.view.parts[i];
    part.file->check_same_file();
    // First the state: a writer that has ended commits nothing after it.
    const WriterState writer_state = part.file->writer_state();
    changed = changed || writer_state != part.writer_state;
    part.writer_state = writer_state;
    const auto newer = part.file->newer();
    if (!newer) continue;
    part.file = newer;
    state.load(i);
    changed = true;
  }
  if (changed) state.publish();
  return changed;
}

}  // namespace ulpscope
