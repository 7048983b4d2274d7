#include "ulpscope/trace/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/trace/run_set.h"
#include "ulpscope/trace/view.h"

namespace ulpscope {

using namespace trace_detail;

template <typename Wanted>
std::shared_ptr<View> View::with(Wanted&& is_wanted) const {
  auto view = std::make_shared<View>(*this);
  view->parts.clear();
  view->events_by_part.clear();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!is_wanted(i)) continue;
    view->parts.push_back(parts[i]);
    view->events_by_part.push_back(events_by_part[i]);
  }
  view->summarize();
  return view;
}

namespace {

// The rows of a table in a part that are in the range and count.
template <typename Row>
std::pair<uint64_t, uint64_t> rows_of(const PartView& part, StepRange range) {
  const StepRange steps{std::max(range.first, part.steps.first), std::min(range.last, part.steps.last)};
  if (steps.first >= steps.last) return {0, 0};
  if constexpr (Table<Row>::id == TableId::stats) return part.stats->rows_of(*part.file, steps);
  return part.file->rows_of(Table<Row>::id, steps);
}

bool is_last_of_rank(const View& view, size_t part) {
  return part + 1 == view.parts.size() || view.parts[part + 1].run->rank != view.parts[part].run->rank;
}

// A run that resumes records the values that it begins with, which the step before has made. `tensor`: of the run set's.
bool is_initial_value(const View& view, const PartView& part, uint64_t step, uint32_t tensor) {
  if (tensor == kLeftOut) return true;
  const TensorInfo& info = (*view.tensors)[tensor];
  return part.resumed && step == part.steps.first && info.role != Role::input &&
         (*view.ops)[info.op].function == OpFunction::source;
}

// The rows of a table that count.
template <typename Row>
uint64_t count_rows(const View& view) {
  uint64_t count = 0;
  for (const PartView& part : view.parts) {
    const auto [first, last] = rows_of<Row>(part, {});
    count += last - first;
    if constexpr (requires(const Row& row) { requires std::is_same_v<decltype(row.tensor), uint32_t>; }) {
      if (!part.resumed) continue;
      // Of its first step some may not.
      const uint64_t next = rows_of<Row>(part, {part.steps.first, part.steps.first + 1}).second;
      visit_stored<Row>(part, first, next, false, [&](std::span<Row> rows) {
        for (const Row& row : rows) count -= is_initial_value(view, part, row.step, part.tables->tensors[row.tensor]);
        return true;
      });
    }
  }
  return count;
}

// Gives rows as they stand in a part to `visit` as rows of the run set.
template <typename Row, typename Visit>
bool give(const View& view, const PartView& part, std::span<Row> rows, Visit&& visit) {
  if (view.is_merged) {
    for (Row& row : rows) take_over(*part.tables, row);
    if constexpr (requires(const Row& row) { row.tensor; }) {
      const auto end = std::remove_if(rows.begin(), rows.end(),
                                      [&](const Row& row) { return is_initial_value(view, part, row.step, row.tensor); });
      rows = rows.first(static_cast<size_t>(end - rows.begin()));
      if (rows.empty()) return true;
    }
  }
  return visit(std::span<const Row>(rows));
}

template <typename Row, typename Visit>
void visit_all(const View& view, StepRange range, bool histograms, Visit&& visit) {
  bool goes_on = true;
  for (const PartView& part : view.parts) {
    const auto [first, last] = rows_of<Row>(part, range);
    visit_stored<Row>(part, first, last, histograms, [&](std::span<Row> rows) { return goes_on = give(view, part, rows, visit); });
    if (!goes_on) return;
  }
}

// The numbers that a tensor of the run set has in a part.
std::vector<uint32_t> numbers_of(const PartView& part, uint32_t tensor) {
  std::vector<uint32_t> numbers;
  for (uint32_t i = 0; i < part.tables->tensors.size(); ++i)
    if (part.tables->tensors[i] == tensor) numbers.push_back(i);
  return numbers;
}

// Calls visit(part, segment, offsets of rows in it) for the rows of a tensor that count; visit returns false to stop.
template <typename Visit>
void visit_places(const View& view, uint32_t tensor, StepRange range, Visit&& visit) {
  std::vector<uint16_t> rows;
  for (const PartView& part : view.parts) {
    const std::vector<uint32_t> numbers = numbers_of(part, tensor);
    auto [first, last] = rows_of<TensorRow>(part, range);
    if (numbers.empty() || first == last) continue;
    // What a resumed run began with.
    if (view.is_merged && is_initial_value(view, part, part.steps.first, tensor))
      first = std::max(first, rows_of<TensorRow>(part, {part.steps.first, part.steps.first + 1}).second);
    for (uint64_t segment = first / StatsStore::kSegmentRows; segment * StatsStore::kSegmentRows < last; ++segment) {
      const uint64_t begin = segment * StatsStore::kSegmentRows;
      const auto index = part.stats->index(*part.file, segment);
      rows.clear();
      for (const uint32_t number : numbers)
        for (const uint16_t row : index->rows_of(number))
          if (begin + row >= first && begin + row < last) rows.push_back(row);
      if (numbers.size() > 1) std::sort(rows.begin(), rows.end());
      if (!rows.empty() && !visit(part, segment, std::span<const uint16_t>(rows))) return;
    }
  }
}

// The column of table stats of that name, whose elements are T.
template <typename T>
size_t column_of(std::string_view name) {
  const auto& columns = spec(TableId::stats).columns;
  std::vector<std::string> names;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].type == element_type<T>() && columns[i].kind != ValueKind::histogram) names.push_back(columns[i].name);
    if (!names.empty() && names.back() == name) return i;
  }
  throw usage_error("table 'stats' has no column '{}' of {}{}", name, name_of(element_type<T>()),
                    did_you_mean_or_expected(name, names));
}

bool is_tensor_column(size_t column) { return spec(TableId::stats).columns[column].refers_to == spec(TableId::tensors).name; }

}  // namespace

void View::summarize() {
  events = events_by_part.size() == 1 ? events_by_part.front() : [&] {
    std::vector<EventRow> all;
    for (const auto& of_part : events_by_part) all.insert(all.end(), of_part->begin(), of_part->end());
    return std::make_shared<const std::vector<EventRow>>(std::move(all));
  }();
  // The latest of the first rank, which began as the first of its parts did.
  size_t last = 0;
  while (!is_last_of_rank(*this, last)) ++last;
  RunInfo latest = *parts[last].run;
  const RunInfo& first = *parts.front().run;
  latest.parent_run = first.parent_run;
  latest.parent_step = first.parent_step;
  latest.started = first.started;
  run = std::make_shared<const RunInfo>(std::move(latest));
}

Snapshot::Snapshot(const std::string& path) : Snapshot(RunSet(path).snapshot()) {}
Snapshot::Snapshot(const std::string& name, std::span<const std::string> paths) : Snapshot(RunSet(name, paths).snapshot()) {}

const std::string& Snapshot::path() const { return view_->name; }
WriterState Snapshot::writer_state() const {
  const auto any = [&](WriterState state) {
    const auto& parts = view_->parts;
    for (size_t i = 0; i < parts.size(); ++i)
      if (is_last_of_rank(*view_, i) && parts[i].writer_state == state) return true;
    return false;
  };
  return any(WriterState::dead) ? WriterState::dead : any(WriterState::alive) ? WriterState::alive : WriterState::closed;
}
const RunInfo& Snapshot::run() const { return *view_->run; }
const std::vector<OpInfo>& Snapshot::ops() const { return *view_->ops; }
const std::vector<TensorInfo>& Snapshot::tensors() const { return *view_->tensors; }
const std::vector<EventRow>& Snapshot::events() const { return *view_->events; }
const OpGraph& Snapshot::graph() const { return view_->graph->get(); }

const std::string& Snapshot::closing_note() const {
  for (size_t i = 0; i < view_->parts.size(); ++i)
    if (is_last_of_rank(*view_, i) && !view_->parts[i].file->note().empty()) return view_->parts[i].file->note();
  return view_->parts.back().file->note();
}

std::vector<TracePart> Snapshot::parts() const {
  std::vector<TracePart> parts;
  for (const PartView& part : view_->parts) {
    parts.push_back({part.file->path(), *part.run, part.steps, {}});
    for (const uint32_t tensor : part.tables->tensors)
      if (tensor != kLeftOut) parts.back().tensors.push_back(tensor);
  }
  return parts;
}

const RunInfo& Snapshot::run_at(uint64_t step) const {
  if (view_->parts.size() == 1) return *view_->run;
  for (const PartView& part : view_->parts)
    if (step < part.steps.last) return *part.run;
  return *view_->run;
}

Snapshot Snapshot::of_part(size_t part) const {
  if (part >= view_->parts.size())
    throw usage_error("'{}' has no part {}; expected one of 0 to {}", path(), part, view_->parts.size() - 1);
  return Snapshot(view_->with([&](size_t i) { return i == part; }));
}

Snapshot Snapshot::of_rank(int32_t rank) const {
  const std::vector<int32_t> known = ranks();
  if (std::find(known.begin(), known.end(), rank) == known.end())
    throw usage_error("'{}' has no trace of rank {}; expected one of {}", path(), rank, fmt::join(known, ", "));
  return Snapshot(view_->with([&](size_t i) { return view_->parts[i].run->rank == rank; }));
}

std::vector<int32_t> Snapshot::ranks() const {
  std::vector<int32_t> ranks;
  for (const PartView& part : view_->parts)
    if (ranks.empty() || ranks.back() != part.run->rank) ranks.push_back(part.run->rank);
  return ranks;
}

std::string Snapshot::schema_version() const {
  std::set<uint64_t> minors;
  for (const PartView& part : view_->parts) minors.insert(part.file->schema_minor());
  std::vector<std::string> versions;
  for (const uint64_t minor : minors) versions.push_back(schema_version_text(minor));
  return fmt::format("{}", fmt::join(versions, ", "));
}

std::vector<NewerTrace> Snapshot::newer_traces() const {
  std::vector<NewerTrace> traces;
  for (const PartView& part : view_->parts) {
    const TraceFile::Unread unread = part.file->unread();
    if (unread.tables + unread.columns == 0) continue;
    traces.push_back({part.file->path(), schema_version_text(part.file->schema_minor()), unread.tables, unread.columns});
  }
  return traces;
}

const std::vector<ReplacedTrace>& Snapshot::replaced_traces() const { return view_->replaced; }

std::vector<std::string> Snapshot::rank_notes() const {
  struct Last {
    int32_t rank;
    uint64_t steps;  // up to the last one
  };
  std::vector<Last> lasts;
  for (size_t i = 0; i < view_->parts.size(); ++i) {
    if (!is_last_of_rank(*view_, i)) continue;
    const PartView& part = view_->parts[i];
    lasts.push_back({part.run->rank, part.file->steps_end()});
  }
  const auto longest = std::max_element(lasts.begin(), lasts.end(), [](const Last& a, const Last& b) { return a.steps < b.steps; });
  std::vector<std::string> notes;
  for (const Last& last : lasts) {
    if (last.steps == longest->steps) continue;
    notes.push_back(
        fmt::format("rank {} ends {} before rank {}", last.rank, count_of(longest->steps - last.steps, "step"), longest->rank));
  }
  return notes;
}

// Of several traces, none may be missing.
bool Snapshot::lacks_ranks() const { return !view_->is_merged && run().world_size > 1; }

uint64_t Snapshot::step_count() const {
  uint64_t count = 0;
  for (const PartView& part : view_->parts) {
    const auto [first, last] = rows_of<StepRow>(part, {});
    count += last - first;
  }
  return count;
}

uint64_t Snapshot::tensor_row_count() const { return count_rows<TensorRow>(*view_); }

uint64_t Snapshot::row_count(std::string_view table) const {
  uint64_t count = 0;
  std::vector<std::string> names;
  const auto add = [&]<typename Row>(std::type_identity<Row>) {
    if constexpr (requires(const Row& row) { row.step; }) {
      names.push_back(spec(Table<Row>::id).name);
      if (names.back() == table) count = count_rows<Row>(*view_);
    }
  };
  [&]<typename... Row>(std::type_identity<std::tuple<Row...>>) {
    (add(std::type_identity<Row>()), ...);
  }(std::type_identity<RowStructs>());
  if (std::find(names.begin(), names.end(), table) == names.end())
    throw usage_error("a trace has no table '{}' of steps{}", table, did_you_mean_or_expected(table, names));
  return count;
}

uint64_t Snapshot::file_bytes() const {
  uint64_t bytes = 0;
  for (const PartView& part : view_->parts) bytes += part.file->file_bytes();
  return bytes;
}

void Snapshot::visit_steps(StepRange range, const std::function<bool(std::span<const StepRow>)>& visit) const {
  visit_all<StepRow>(*view_, range, false, visit);
}
void Snapshot::visit_rows(StepRange range, const std::function<bool(std::span<const TensorRow>)>& visit) const {
  visit_all<TensorRow>(*view_, range, true, visit);
}
void Snapshot::visit_rows_without_histograms(StepRange range, const std::function<bool(std::span<const TensorRow>)>& visit) const {
  visit_all<TensorRow>(*view_, range, false, visit);
}
void Snapshot::visit_batches(StepRange range, const std::function<bool(std::span<const BatchRow>)>& visit) const {
  visit_all<BatchRow>(*view_, range, false, visit);
}
void Snapshot::visit_parameters(StepRange range, const std::function<bool(std::span<const ParameterRow>)>& visit) const {
  visit_all<ParameterRow>(*view_, range, false, visit);
}
void Snapshot::visit_fingerprints(StepRange range, const std::function<bool(std::span<const FingerprintRow>)>& visit) const {
  visit_all<FingerprintRow>(*view_, range, false, visit);
}
void Snapshot::visit_samples(StepRange range, const std::function<bool(std::span<const SampleRow>)>& visit) const {
  visit_all<SampleRow>(*view_, range, false, visit);
}
void Snapshot::visit_measures(StepRange range, const std::function<bool(std::span<const MeasureRow>)>& visit) const {
  visit_all<MeasureRow>(*view_, range, false, visit);
}
void Snapshot::visit_sums(StepRange range, const std::function<bool(std::span<const SumRow>)>& visit) const {
  visit_all<SumRow>(*view_, range, false, visit);
}
void Snapshot::visit_bits(StepRange range, const std::function<bool(std::span<const BitsRow>)>& visit) const {
  visit_all<BitsRow>(*view_, range, false, visit);
}

std::vector<CaptureRow> Snapshot::captures(StepRange range) const {
  std::vector<CaptureRow> rows;
  for (const PartView& part : view_->parts) {
    HeldTexts texts;
    const auto [first, last] = rows_of<CaptureRow>(part, range);
    part.file->check_count(TableId::captures, last - first, kMostHeldBytes / sizeof(CaptureRow));
    uint64_t number = first;
    visit_stored<CaptureRow>(part, first, last, false, [&](std::span<CaptureRow> stored) {
      for (const CaptureRow& row : stored) texts.add(*part.file, number++, row);
      return give(*view_, part, stored, [&](std::span<const CaptureRow> more) {
        rows.insert(rows.end(), more.begin(), more.end());
        return true;
      });
    });
  }
  return rows;
}

std::vector<SettingInfo> Snapshot::settings() const {
  size_t last = 0;
  while (!is_last_of_rank(*view_, last)) ++last;
  return held_rows<SettingInfo>(view_->parts[last], 0);
}

namespace {

template <typename Row>
std::vector<Row> rows_of_all_parts(const View& view) {
  std::vector<Row> rows;
  for (const PartView& part : view.parts) {
    for (Row& row : held_rows<Row>(part, 0))
      if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::vector<SourceInfo> Snapshot::sources() const { return rows_of_all_parts<SourceInfo>(*view_); }
std::vector<ProductInfo> Snapshot::products() const { return rows_of_all_parts<ProductInfo>(*view_); }

void Snapshot::visit_history(uint32_t tensor, StepRange range, const std::function<bool(std::span<const TensorRow>)>& visit) const {
  Block block;
  std::vector<TensorRow> rows;
  visit_places(*view_, tensor, range, [&](const PartView& part, uint64_t segment, std::span<const uint16_t> places) {
    part.stats->gather(*part.file, segment, places, true, block);
    const Decoder decoder = part.decoder();
    for (size_t begin = 0; begin < block.rows; begin += kSpanRows) {
      rows.resize(std::min(kSpanRows, block.rows - begin));
      decoder.decode_rows(block, begin, std::span(rows));
      if (!give(*view_, part, std::span(rows), visit)) return false;
    }
    return true;
  });
}

template <typename T>
std::vector<T> Snapshot::history(uint32_t tensor, std::string_view name, StepRange range) const {
  const size_t column = column_of<T>(name);
  std::vector<T> values;
  visit_places(*view_, tensor, range, [&](const PartView& part, uint64_t segment, std::span<const uint16_t> places) {
    const size_t known = values.size();
    values.resize(known + places.size());
    part.stats->gather_column(*part.file, column, segment, places, reinterpret_cast<std::byte*>(values.data() + known));
    if (is_tensor_column(column)) std::fill(values.begin() + static_cast<ptrdiff_t>(known), values.end(), static_cast<T>(tensor));
    return true;
  });
  return values;
}

template <typename T>
std::vector<T> Snapshot::column(std::string_view name, StepRange range) const {
  const size_t column = column_of<T>(name);
  std::vector<T> values;
  for (const PartView& part : view_->parts) {
    const auto [first, last] = rows_of<TensorRow>(part, range);
    const size_t known = values.size();
    values.resize(known + (last - first));
    part.stats->read_column(*part.file, column, first, last - first, reinterpret_cast<std::byte*>(values.data() + known));
    if (!view_->is_merged) continue;
    const size_t tensor_column = column_of<uint32_t>("tensor");
    // Those of its first step that it began with are left out.
    const uint64_t next = part.resumed ? rows_of<TensorRow>(part, {part.steps.first, part.steps.first + 1}).second : first;
    const size_t mapped = is_tensor_column(column) ? last - first : std::max(first, next) - first;
    std::vector<uint32_t> tensors(mapped);
    part.stats->read_column(*part.file, tensor_column, first, mapped, reinterpret_cast<std::byte*>(tensors.data()));
    size_t kept = known;
    for (size_t i = 0; i < last - first; ++i) {
      T value = values[known + i];
      if (i < mapped) {
        if (tensors[i] >= part.tables->tensors.size()) {
          const TableSpec& stats = spec(TableId::stats);
          throw part.file->damaged(stats, stats.columns[tensor_column], first + i,
                                   fmt::format("refers to row {} of {}", tensors[i], part.tables->tensors.size()));
        }
        const uint32_t tensor = part.tables->tensors[tensors[i]];
        if (tensor == kLeftOut || (first + i < next && is_initial_value(*view_, part, part.steps.first, tensor))) continue;
        if (is_tensor_column(column)) value = static_cast<T>(tensor);
      }
      values[kept++] = value;
    }
    values.resize(kept);
  }
  return values;
}

template std::vector<uint8_t> Snapshot::column(std::string_view, StepRange) const;
template std::vector<uint32_t> Snapshot::column(std::string_view, StepRange) const;
template std::vector<uint64_t> Snapshot::column(std::string_view, StepRange) const;
template std::vector<double> Snapshot::column(std::string_view, StepRange) const;
template std::vector<uint8_t> Snapshot::history(uint32_t, std::string_view, StepRange) const;
template std::vector<uint32_t> Snapshot::history(uint32_t, std::string_view, StepRange) const;
template std::vector<uint64_t> Snapshot::history(uint32_t, std::string_view, StepRange) const;
template std::vector<double> Snapshot::history(uint32_t, std::string_view, StepRange) const;

void Snapshot::load_rows() const {
  for (const PartView& part : view_->parts) part.stats->load(*part.file);
}

}  // namespace ulpscope
