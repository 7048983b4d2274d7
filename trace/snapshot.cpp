#include "ulpscope/trace/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <tuple>

#include "ulpscope/base/error.h"
#include "ulpscope/trace/decode.h"
#include "ulpscope/trace/run_order.h"

namespace ulpscope {

namespace {

using namespace trace_detail;

// Rows are read from the file in blocks of this many, whole chunks of every table, and given to visitors in spans of fewer: a
// TensorRow has over 2 KB.
constexpr uint64_t kBlockRows = 8192;
constexpr size_t kSpanRows = 256;

// Tables that are held in memory are refused beyond this.
constexpr uint64_t kMostHeldRows = uint64_t{1} << 24;

// Attributes that differ between the runs are said to vary.
std::string merge_attributes(const std::string& a, const std::string& b) {
  if (a == b) return a;
  const auto values_of = [](const std::string& text) {
    std::vector<std::pair<std::string, std::string>> values;
    std::istringstream items(text);
    for (std::string item; items >> item;) values.emplace_back(item.substr(0, item.find('=')), item.substr(item.find('=') + 1));
    return values;
  };
  const auto others = values_of(b);
  std::string merged;
  for (const auto& [name, value] : values_of(a)) {
    const bool same = std::find(others.begin(), others.end(), std::pair(name, value)) != others.end();
    merged += fmt::format("{}{}={}", merged.empty() ? "" : " ", name, same ? value : "varies");
  }
  return merged;
}

}  // namespace

// What a resumed run began with, where no run before it made it by an op of the same id.
constexpr uint32_t kLeftOut = UINT32_MAX;

// One file of those that are read together.
struct Snapshot::Part {
  explicit Part(const std::string& path) : file(path, path), decoder(file) {}

  TraceFile file;
  Decoder decoder;
  RunInfo run;
  StepRange steps;       // those that count
  bool resumed = false;  // from another part
  // Of rows of its tables, those of the reader's, or kLeftOut.
  std::vector<uint32_t> ops, tensors;
  std::map<uint32_t, uint32_t> graphs;
  std::vector<EventRow> events;  // all of the file's
};

struct Snapshot::State {
  State(std::string name, std::span<const std::string> paths);

  std::string name;
  std::vector<std::unique_ptr<Part>> parts;  // by step; the last is the latest run
  RunInfo run;
  std::vector<OpInfo> ops;
  std::vector<TensorInfo> tensors;
  std::vector<EventRow> events;
  // Of several parts: what is known by these already, and the edges of each graph.
  std::map<uint64_t, uint32_t> ops_by_id;
  // Rows are judged by what their tensor says of rounding and subnormals, so those are part of the key.
  using TensorUse = std::tuple<uint32_t, uint8_t, Role, DType, std::string, RoundingMode, bool, bool, bool>;
  std::map<TensorUse, uint32_t> tensors_by_use;
  std::vector<std::vector<GraphEdge>> graphs;

  bool is_merged() const { return parts.size() > 1; }
  // Reads rows [first, last) of a table as they stand in the file.
  template <typename Row, typename Visit>
  static void visit_range(const Part& part, uint64_t first, uint64_t last, bool histograms, Visit&& visit);
  template <typename Row, typename Visit>
  void visit(StepRange range, bool histograms, Visit&& visit) const;
  template <typename Row>
  std::vector<Row> rows_from(const Part& part, uint64_t first) const;
  uint64_t count_rows(TableId table) const;
  uint64_t count_initial_values(const Part& part) const;
  bool is_initial_value(const Part& part, uint64_t step, uint32_t tensor) const;
  template <typename Row>
  void take_over(const Part& part, Row& row) const;
  uint32_t add_op(const Part& part, const OpInfo& op);
  uint32_t add_tensor(const Part& part, const TensorInfo& tensor);
  void add_graphs(Part& part);
  void open(Part& part) const;
  void load(Part& part);
  void collect_events();
};

template <typename Row, typename Visit>
void Snapshot::State::visit_range(const Part& part, uint64_t first, uint64_t last, bool histograms, Visit&& visit) {
  Block block;
  std::vector<Row> rows;
  while (first < last) {
    const auto count = static_cast<size_t>(std::min(kBlockRows - first % kBlockRows, last - first));
    part.file.read(Table<Row>::id, first, count, histograms, block);
    for (size_t begin = 0; begin < count; begin += kSpanRows) {
      rows.resize(std::min(kSpanRows, count - begin));
      for (size_t i = 0; i < rows.size(); ++i) part.decoder.decode(block, begin + i, rows[i]);
      if (!visit(std::span<Row>(rows))) return;
    }
    first += count;
  }
}

// A run that resumes records the values that it begins with, which the step before has made.
bool Snapshot::State::is_initial_value(const Part& part, uint64_t step, uint32_t tensor) const {
  if (tensor == kLeftOut) return true;
  return part.resumed && step == part.steps.first && tensors[tensor].role != Role::input &&
         ops[tensors[tensor].op].name == "source";
}

// Makes what the row refers to that of the reader's tables.
template <typename Row>
void Snapshot::State::take_over(const Part& part, Row& row) const {
  for_each_column<Row>([&](const auto& column, auto) {
    auto& field = column.get(row);
    using Field = std::remove_cvref_t<decltype(field)>;
    if constexpr (std::is_integral_v<Field> && !std::is_same_v<Field, bool>) {
      if (column.refers != Refers::ops && column.refers != Refers::tensors) return;
      if (std::is_signed_v<Field> && field == static_cast<Field>(-1)) return;
      field = static_cast<Field>((column.refers == Refers::ops ? part.ops : part.tensors)[static_cast<size_t>(field)]);
    }
  });
  // A graph without edges has no rows of its own.
  if constexpr (std::is_same_v<Row, StepRow>) {
    const auto graph = part.graphs.find(row.graph);
    row.graph = graph == part.graphs.end() ? UINT32_MAX : graph->second;
  }
}

template <typename Row, typename Visit>
void Snapshot::State::visit(StepRange range, bool histograms, Visit&& visit) const {
  bool goes_on = true;
  for (const auto& part : parts) {
    const StepRange steps{std::max(range.first, part->steps.first), std::min(range.last, part->steps.last)};
    if (!goes_on || steps.first >= steps.last) continue;
    const auto [first, last] = part->file.rows_of(Table<Row>::id, steps);
    visit_range<Row>(*part, first, last, histograms, [&](std::span<Row> rows) {
      if (!is_merged()) return goes_on = visit(std::span<const Row>(rows));
      for (Row& row : rows) take_over(*part, row);
      if constexpr (requires(const Row& row) { row.tensor; }) {
        const auto end =
            std::remove_if(rows.begin(), rows.end(), [&](const Row& row) { return is_initial_value(*part, row.step, row.tensor); });
        rows = rows.first(static_cast<size_t>(end - rows.begin()));
        if (rows.empty()) return true;
      }
      return goes_on = visit(std::span<const Row>(rows));
    });
  }
}

// Rows from `first` on of a table that is held in memory.
template <typename Row>
std::vector<Row> Snapshot::State::rows_from(const Part& part, uint64_t first) const {
  part.file.check_size(Table<Row>::id, kMostHeldRows);
  std::vector<Row> all;
  visit_range<Row>(part, first, part.file.rows(Table<Row>::id), false, [&](std::span<Row> more) {
    all.insert(all.end(), more.begin(), more.end());
    return true;
  });
  return all;
}

uint64_t Snapshot::State::count_rows(TableId table) const {
  uint64_t count = 0;
  for (const auto& part : parts) {
    const auto [first, last] = part->file.rows_of(table, part->steps);
    count += last - first;
  }
  return count;
}

uint32_t Snapshot::State::add_op(const Part& part, const OpInfo& op) {
  const auto index = static_cast<uint32_t>(ops.size());
  const auto [known, is_new] = ops_by_id.emplace(op.id, index);
  if (is_new || !is_merged()) {
    ops.push_back(op);
    return index;
  }
  OpInfo& other = ops[known->second];
  if (std::tie(other.name, other.module, other.phase) != std::tie(op.name, op.module, op.phase)) {
    throw unreadable_error(
        "'{}': the op '{}' of module '{}' has the id of '{}' of '{}' in another trace of '{}'; expected traces of one "
        "experiment",
        part.file.path(), op.name, op.module, other.name, other.module, name);
  }
  other.attributes = merge_attributes(other.attributes, op.attributes);
  return known->second;
}

uint32_t Snapshot::State::add_tensor(const Part& part, const TensorInfo& tensor) {
  const auto index = static_cast<uint32_t>(tensors.size());
  const uint32_t op = part.ops[tensor.op];
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
  if (!is_new && is_merged()) return known->second;
  tensors.push_back(tensor);
  tensors.back().op = op;
  return index;
}

// A graph that another part has is the same one.
void Snapshot::State::add_graphs(Part& part) {
  const auto what = [](const GraphEdge& edge) { return std::tie(edge.consumer, edge.input, edge.producer, edge.slot); };
  std::map<uint32_t, std::vector<GraphEdge>> found;
  for (GraphEdge& edge : rows_from<GraphEdge>(part, 0)) {
    if (part.graphs.contains(edge.graph)) continue;
    take_over(part, edge);
    if (edge.producer != kLeftOut && edge.consumer != kLeftOut) found[edge.graph].push_back(edge);
  }
  for (auto& [graph, edges] : found) {
    const auto known = std::find_if(graphs.begin(), graphs.end(), [&](const std::vector<GraphEdge>& other) {
      return std::equal(edges.begin(), edges.end(), other.begin(), other.end(),
                        [&](const GraphEdge& a, const GraphEdge& b) { return what(a) == what(b); });
    });
    const auto number = static_cast<uint32_t>(known - graphs.begin());
    part.graphs.emplace(graph, number);
    if (known != graphs.end()) continue;
    for (GraphEdge& edge : edges) edge.graph = number;
    graphs.push_back(std::move(edges));
  }
}

// Reads what does not change.
void Snapshot::State::open(Part& part) const {
  part.decoder.load_texts();
  const TraceFile& file = part.file;
  if (file.rows(TableId::run) != 1)
    throw unreadable_error("'{}' is damaged: expected 1 row in table 'run', found {}", file.path(), file.rows(TableId::run));
  part.run = rows_from<RunInfo>(part, 0).front();
}

// What is new in the file's small tables.
void Snapshot::State::load(Part& part) {
  part.decoder.load_texts();
  part.decoder.set_referable(part.file.rows(TableId::ops), part.file.rows(TableId::tensors));
  const std::vector<TensorInfo> new_tensors = rows_from<TensorInfo>(part, part.tensors.size());
  for (const OpInfo& op : rows_from<OpInfo>(part, part.ops.size())) {
    const bool makes_inputs = std::any_of(new_tensors.begin(), new_tensors.end(), [&](const TensorInfo& tensor) {
      return tensor.op == part.ops.size() && tensor.role == Role::input;
    });
    const bool is_left_out = part.resumed && op.name == "source" && !makes_inputs && !ops_by_id.contains(op.id);
    part.ops.push_back(is_left_out ? kLeftOut : add_op(part, op));
  }
  for (const TensorInfo& tensor : new_tensors)
    part.tensors.push_back(part.ops[tensor.op] == kLeftOut ? kLeftOut : add_tensor(part, tensor));
  for (EventRow& event : rows_from<EventRow>(part, part.events.size())) part.events.push_back(std::move(event));
  if (is_merged()) add_graphs(part);
}

void Snapshot::State::collect_events() {
  events.clear();
  for (const auto& part : parts) {
    for (EventRow event : part->events) {
      // A run that another one went on from did not stop there.
      const bool went_on = event.kind == EventKind::stopped && part != parts.back();
      if (went_on || event.step < part->steps.first || event.step >= part->steps.last) continue;
      if (is_merged()) take_over(*part, event);
      if (event.tensor == kLeftOut) event.tensor = -1;
      events.push_back(std::move(event));
    }
  }
}

Snapshot::State::State(std::string all, std::span<const std::string> paths) : name(std::move(all)) {
  for (const std::string& path : paths) {
    parts.push_back(std::make_unique<Part>(path));
    open(*parts.back());
  }
  if (is_merged()) {
    std::vector<RunTrace> traces;
    for (const auto& part : parts) traces.push_back({part->file.path(), part->run});
    std::vector<std::unique_ptr<Part>> ordered;
    for (const RunPlace& place : order_runs(name, traces)) {
      ordered.push_back(std::move(parts[place.trace]));
      ordered.back()->steps = place.steps;
      ordered.back()->resumed = ordered.size() > 1;
    }
    parts = std::move(ordered);
  }
  for (const auto& part : parts) load(*part);
  collect_events();
  run = parts.back()->run;
  const RunInfo& first = parts.front()->run;
  run.parent_run = first.parent_run;
  run.parent_step = first.parent_step;
  run.started = first.started;
}

uint64_t Snapshot::State::count_initial_values(const Part& part) const {
  if (!part.resumed) return 0;
  uint64_t count = 0;
  const auto [first, last] = part.file.rows_of(TableId::stats, {part.steps.first, part.steps.first + 1});
  visit_range<TensorRow>(part, first, last, false, [&](std::span<TensorRow> rows) {
    for (const TensorRow& row : rows) count += is_initial_value(part, row.step, part.tensors[row.tensor]);
    return true;
  });
  return count;
}

Snapshot::Snapshot(const std::string& path) : Snapshot(path, std::span(&path, 1)) {}
Snapshot::Snapshot(const std::string& name, std::span<const std::string> paths) : state_(std::make_unique<State>(name, paths)) {}
Snapshot::~Snapshot() = default;
Snapshot::Snapshot(Snapshot&&) noexcept = default;

const std::string& Snapshot::path() const { return state_->name; }
uint64_t Snapshot::schema_version() const { return state_->parts.back()->file.schema_version(); }
WriterState Snapshot::writer_state() const { return state_->parts.back()->file.writer_state(); }
const RunInfo& Snapshot::run() const { return state_->run; }

std::vector<TracePart> Snapshot::parts() const {
  std::vector<TracePart> parts;
  for (const auto& part : state_->parts) {
    parts.push_back({part->file.path(), part->run, part->steps, {}});
    for (const uint32_t tensor : part->tensors)
      if (tensor != kLeftOut) parts.back().tensors.push_back(tensor);
  }
  return parts;
}

const RunInfo& Snapshot::run_at(uint64_t step) const {
  if (!state_->is_merged()) return state_->run;
  for (const auto& part : state_->parts)
    if (step < part->steps.last) return part->run;
  return state_->run;
}

const std::string& Snapshot::closing_note() const { return state_->parts.back()->file.note(); }

bool Snapshot::refresh() {
  const uint64_t steps = step_count();
  bool more = false;
  for (const auto& part : state_->parts) {
    if (!part->file.refresh()) continue;
    state_->load(*part);
    more = true;
  }
  if (more) state_->collect_events();
  return step_count() > steps;
}

const std::vector<OpInfo>& Snapshot::ops() const { return state_->ops; }
const std::vector<TensorInfo>& Snapshot::tensors() const { return state_->tensors; }
const std::vector<EventRow>& Snapshot::events() const { return state_->events; }
uint64_t Snapshot::step_count() const { return state_->count_rows(TableId::steps); }

uint64_t Snapshot::tensor_row_count() const {
  uint64_t count = state_->count_rows(TableId::stats);
  for (const auto& part : state_->parts) count -= state_->count_initial_values(*part);
  return count;
}

uint64_t Snapshot::file_bytes() const {
  uint64_t bytes = 0;
  for (const auto& part : state_->parts) bytes += part->file.file_bytes();
  return bytes;
}

void Snapshot::visit_steps(StepRange range, const std::function<bool(std::span<const StepRow>)>& visit) const {
  state_->visit<StepRow>(range, false, visit);
}
void Snapshot::visit_rows(StepRange range, const std::function<bool(std::span<const TensorRow>)>& visit) const {
  state_->visit<TensorRow>(range, true, visit);
}
void Snapshot::visit_rows_without_histograms(StepRange range, const std::function<bool(std::span<const TensorRow>)>& visit) const {
  state_->visit<TensorRow>(range, false, visit);
}
void Snapshot::visit_updates(StepRange range, const std::function<bool(std::span<const UpdateRow>)>& visit) const {
  state_->visit<UpdateRow>(range, false, visit);
}
void Snapshot::visit_samples(StepRange range, const std::function<bool(std::span<const SampleRow>)>& visit) const {
  state_->visit<SampleRow>(range, false, visit);
}
void Snapshot::visit_measures(StepRange range, const std::function<bool(std::span<const MeasureRow>)>& visit) const {
  state_->visit<MeasureRow>(range, false, visit);
}

std::vector<CaptureRow> Snapshot::captures(StepRange range) const {
  std::vector<CaptureRow> rows;
  state_->visit<CaptureRow>(range, false, [&](std::span<const CaptureRow> more) {
    rows.insert(rows.end(), more.begin(), more.end());
    return true;
  });
  return rows;
}

std::vector<GraphEdge> Snapshot::edges() const {
  if (!state_->is_merged()) return state_->rows_from<GraphEdge>(*state_->parts.front(), 0);
  std::vector<GraphEdge> edges;
  for (const std::vector<GraphEdge>& graph : state_->graphs) edges.insert(edges.end(), graph.begin(), graph.end());
  return edges;
}

}  // namespace ulpscope
