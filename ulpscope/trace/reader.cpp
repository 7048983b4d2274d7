#include "ulpscope/trace/reader.h"

#include <algorithm>

#include "ulpscope/base/error.h"
#include "ulpscope/trace/columns.h"
#include "ulpscope/trace/encode.h"
#include "ulpscope/trace/trace_file.h"

namespace ulpscope {

namespace {

using namespace trace_detail;

// Rows are read from the file in blocks of this many, whole chunks of every table, and given to visitors in spans of fewer: a
// TensorRow has over 2 KB.
constexpr uint64_t kBlockRows = 8192;
constexpr size_t kSpanRows = 256;

// Tables that are held in memory are refused beyond this.
constexpr uint64_t kLargestHeldTable = uint64_t{1} << 24;
constexpr uint64_t kLargestHeldText = uint64_t{1} << 30;

}  // namespace

struct TraceReader::State {
  explicit State(const std::string& path) : file(path) {}

  TraceFile file;
  std::vector<uint64_t> string_ends;
  std::string string_bytes;
  RunInfo run;
  std::vector<OpInfo> ops;
  std::vector<TensorInfo> tensors;
  std::vector<EventRow> events;

  std::string_view text(uint32_t id) const {
    const uint64_t begin = id == 0 ? 0 : string_ends[id - 1];
    return std::string_view(string_bytes).substr(begin, string_ends[id] - begin);
  }

  template <typename Row>
  void decode(const Block& block, size_t row, Row& out) const;
  template <typename Row, typename Visit>
  void visit_range(uint64_t first, uint64_t last, bool histograms, Visit&& visit) const;
  template <typename Row, typename Visit>
  void visit(StepRange range, bool histograms, Visit&& visit) const {
    const auto [first, last] = file.rows_of(Table<Row>::id, range);
    visit_range<Row>(first, last, histograms, visit);
  }
  template <typename Row>
  void hold(std::vector<Row>& rows) const;
  void check_held(TableId table, uint64_t largest) const;
  void load();
};

// Every value is checked before it is believed: enumerators, references to other tables, texts, histograms.
template <typename Row>
void TraceReader::State::decode(const Block& block, size_t row, Row& out) const {
  for_each_column<Row>([&](const auto& column, auto index) {
    auto& field = column.get(out);
    using Field = std::remove_cvref_t<decltype(field)>;
    using Type = typename Storage<Field>::Type;
    const auto fail = [&](const std::string& what) {
      throw file.damaged(*block.table, block.table->columns[index], block.first + row, what);
    };
    if constexpr (std::is_same_v<Field, ExponentHistogram>) {
      field.bins.fill(0);
      if (block.columns[index].empty()) return;
      const uint64_t begin = row == 0 ? block.histograms_begin : block.value<uint64_t>(index, row - 1);
      const uint64_t end = block.value<uint64_t>(index, row);
      const std::span bytes = std::span(block.histograms).subspan(begin - block.histograms_begin, end - begin);
      if (!decode_histogram(bytes, field)) fail("has a damaged histogram");
    } else {
      const Type value = block.value<Type>(index, row);
      if constexpr (Storage<Field>::kind == ColumnKind::text) {
        if (value >= string_ends.size()) fail(fmt::format("refers to text {} of {}", value, string_ends.size()));
        if constexpr (std::is_same_v<Field, std::string>)
          field = text(value);
        else if (!parse_shape(text(value), field))
          fail("has a damaged shape");
      } else {
        if constexpr (std::is_enum_v<Field>) {
          if (value >= enumerators<Field>()) fail(fmt::format("has the unknown value {}", value));
        }
        field = static_cast<Field>(value);
      }
    }
    if constexpr (std::is_integral_v<Field> && !std::is_same_v<Field, bool>) {
      if (column.limit > 0 && static_cast<uint64_t>(field) >= column.limit) fail(fmt::format("has the unknown value {}", field));
      if (column.refers != Refers::nothing) {
        const uint64_t limit = file.rows(column.refers == Refers::ops ? TableId::ops : TableId::tensors);
        const bool none = std::is_signed_v<Field> && field == static_cast<Field>(-1);
        if (!none && static_cast<uint64_t>(field) >= limit) fail(fmt::format("refers to row {} of {}", field, limit));
      }
    }
  });
}

template <typename Row, typename Visit>
void TraceReader::State::visit_range(uint64_t first, uint64_t last, bool histograms, Visit&& visit) const {
  Block block;
  std::vector<Row> rows;
  while (first < last) {
    const auto count = static_cast<size_t>(std::min(kBlockRows - first % kBlockRows, last - first));
    file.read(Table<Row>::id, first, count, histograms, block);
    for (size_t begin = 0; begin < count; begin += kSpanRows) {
      rows.resize(std::min(kSpanRows, count - begin));
      for (size_t i = 0; i < rows.size(); ++i) decode(block, begin + i, rows[i]);
      if (!visit(std::span<const Row>(rows))) return;
    }
    first += count;
  }
}

void TraceReader::State::check_held(TableId table, uint64_t largest) const {
  if (file.rows(table) > largest) {
    throw unreadable_error("'{}': table '{}' has {} rows, over {}", file.path(), spec(table).name, file.rows(table), largest);
  }
}

// Adds what is new in the file.
template <typename Row>
void TraceReader::State::hold(std::vector<Row>& rows) const {
  check_held(Table<Row>::id, kLargestHeldTable);
  visit_range<Row>(rows.size(), file.rows(Table<Row>::id), false, [&](std::span<const Row> more) {
    rows.insert(rows.end(), more.begin(), more.end());
    return true;
  });
}

void TraceReader::State::load() {
  check_held(TableId::strings, kLargestHeldTable);
  check_held(TableId::string_bytes, kLargestHeldText);
  Block block;
  const TableSpec& strings = spec(TableId::strings);
  while (string_ends.size() < file.rows(TableId::strings)) {
    const size_t count = std::min<size_t>(kBlockRows, file.rows(TableId::strings) - string_ends.size());
    file.read(TableId::strings, string_ends.size(), count, false, block);
    for (size_t i = 0; i < count; ++i) {
      const auto end = block.value<uint64_t>(0, i);
      if (end < (string_ends.empty() ? 0 : string_ends.back()) || end > file.rows(TableId::string_bytes)) {
        throw file.damaged(strings, strings.columns[0], string_ends.size(), "ends outside the texts");
      }
      string_ends.push_back(end);
    }
  }
  while (string_bytes.size() < file.rows(TableId::string_bytes)) {
    const size_t count = std::min<size_t>(1 << 20, file.rows(TableId::string_bytes) - string_bytes.size());
    file.read(TableId::string_bytes, string_bytes.size(), count, false, block);
    string_bytes.append(reinterpret_cast<const char*>(block.columns[0].data()), count);
  }
  if (file.rows(TableId::run) != 1)
    throw unreadable_error("'{}': table 'run' has {} rows, 1 was expected", file.path(), file.rows(TableId::run));
  visit_range<RunInfo>(0, 1, false, [&](std::span<const RunInfo> rows) {
    run = rows[0];
    return true;
  });
  hold(ops);
  hold(tensors);
  hold(events);
}

TraceReader::TraceReader(const std::string& path) : state_(std::make_unique<State>(path)) { state_->load(); }
TraceReader::~TraceReader() = default;
TraceReader::TraceReader(TraceReader&&) noexcept = default;

const std::string& TraceReader::path() const { return state_->file.path(); }
uint64_t TraceReader::schema_version() const { return state_->file.schema_version(); }
WriterState TraceReader::writer_state() const { return state_->file.writer_state(); }
const RunInfo& TraceReader::run() const { return state_->run; }

std::string TraceReader::closing_note() const {
  if (!state_->file.note().empty()) return state_->file.note();
  const auto& events = state_->events;
  const auto last =
      std::find_if(events.rbegin(), events.rend(), [](const EventRow& row) { return row.kind == EventKind::stopped; });
  return last == events.rend() ? "" : last->text;
}

bool TraceReader::refresh() {
  const uint64_t steps = step_count();
  if (state_->file.refresh()) state_->load();
  return step_count() > steps;
}

const std::vector<OpInfo>& TraceReader::ops() const { return state_->ops; }
const std::vector<TensorInfo>& TraceReader::tensors() const { return state_->tensors; }
const std::vector<EventRow>& TraceReader::events() const { return state_->events; }
uint64_t TraceReader::step_count() const { return state_->file.rows(TableId::steps); }
uint64_t TraceReader::tensor_row_count() const { return state_->file.rows(TableId::stats); }
uint64_t TraceReader::file_bytes() const { return state_->file.file_bytes(); }

void TraceReader::visit_steps(StepRange range, const std::function<bool(std::span<const StepRow>)>& visit) const {
  state_->visit<StepRow>(range, false, visit);
}
void TraceReader::visit_rows(StepRange range, const std::function<bool(std::span<const TensorRow>)>& visit) const {
  state_->visit<TensorRow>(range, true, visit);
}
void TraceReader::visit_rows_without_histograms(StepRange range,
                                                const std::function<bool(std::span<const TensorRow>)>& visit) const {
  state_->visit<TensorRow>(range, false, visit);
}
void TraceReader::visit_updates(StepRange range, const std::function<bool(std::span<const UpdateRow>)>& visit) const {
  state_->visit<UpdateRow>(range, false, visit);
}
void TraceReader::visit_samples(StepRange range, const std::function<bool(std::span<const SampleRow>)>& visit) const {
  state_->visit<SampleRow>(range, false, visit);
}
void TraceReader::visit_measures(StepRange range, const std::function<bool(std::span<const MeasureRow>)>& visit) const {
  state_->visit<MeasureRow>(range, false, visit);
}

std::vector<CaptureRow> TraceReader::captures(StepRange range) const {
  std::vector<CaptureRow> rows;
  state_->visit<CaptureRow>(range, false, [&](std::span<const CaptureRow> more) {
    rows.insert(rows.end(), more.begin(), more.end());
    return true;
  });
  return rows;
}

std::vector<GraphEdge> TraceReader::edges(uint32_t graph) const {
  std::vector<GraphEdge> edges;
  state_->visit_range<GraphEdge>(0, state_->file.rows(TableId::edges), false, [&](std::span<const GraphEdge> rows) {
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(edges), [&](const GraphEdge& edge) { return edge.graph == graph; });
    return true;
  });
  return edges;
}

}  // namespace ulpscope
