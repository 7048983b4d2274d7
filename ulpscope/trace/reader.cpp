#include "ulpscope/trace/reader.h"

#include <algorithm>

#include "ulpscope/base/error.h"
#include "ulpscope/trace/decode.h"

namespace ulpscope {

namespace {

using namespace trace_detail;

// Rows are read from the file in blocks of this many, whole chunks of every table, and given to visitors in spans of fewer: a
// TensorRow has over 2 KB.
constexpr uint64_t kBlockRows = 8192;
constexpr size_t kSpanRows = 256;

// Tables that are held in memory are refused beyond this.
constexpr uint64_t kMostHeldRows = uint64_t{1} << 24;

}  // namespace

struct TraceReader::State {
  explicit State(const std::string& path) : file(path, path), decoder(file) {}

  TraceFile file;
  Decoder decoder;
  RunInfo run;
  std::vector<OpInfo> ops;
  std::vector<TensorInfo> tensors;
  std::vector<EventRow> events;

  template <typename Row, typename Visit>
  void visit_range(uint64_t first, uint64_t last, bool histograms, Visit&& visit) const;
  template <typename Row, typename Visit>
  void visit(StepRange range, bool histograms, Visit&& visit) const {
    const auto [first, last] = file.rows_of(Table<Row>::id, range);
    visit_range<Row>(first, last, histograms, visit);
  }
  template <typename Row>
  void hold(std::vector<Row>& rows) const;
  void load();
};

template <typename Row, typename Visit>
void TraceReader::State::visit_range(uint64_t first, uint64_t last, bool histograms, Visit&& visit) const {
  Block block;
  std::vector<Row> rows;
  while (first < last) {
    const auto count = static_cast<size_t>(std::min(kBlockRows - first % kBlockRows, last - first));
    file.read(Table<Row>::id, first, count, histograms, block);
    for (size_t begin = 0; begin < count; begin += kSpanRows) {
      rows.resize(std::min(kSpanRows, count - begin));
      for (size_t i = 0; i < rows.size(); ++i) decoder.decode(block, begin + i, rows[i]);
      if (!visit(std::span<const Row>(rows))) return;
    }
    first += count;
  }
}

// Adds what is new in the file.
template <typename Row>
void TraceReader::State::hold(std::vector<Row>& rows) const {
  file.check_size(Table<Row>::id, kMostHeldRows);
  visit_range<Row>(rows.size(), file.rows(Table<Row>::id), false, [&](std::span<const Row> more) {
    rows.insert(rows.end(), more.begin(), more.end());
    return true;
  });
}

void TraceReader::State::load() {
  decoder.load_texts();
  decoder.set_referable(file.rows(TableId::ops), file.rows(TableId::tensors));
  if (file.rows(TableId::run) != 1)
    throw unreadable_error("'{}' is damaged: expected 1 row in table 'run', found {}", file.path(), file.rows(TableId::run));
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

const std::string& TraceReader::closing_note() const { return state_->file.note(); }

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

std::vector<GraphEdge> TraceReader::edges() const {
  std::vector<GraphEdge> edges;
  state_->hold(edges);
  return edges;
}

}  // namespace ulpscope
