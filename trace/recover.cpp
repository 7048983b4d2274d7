// Copies what can be read of a trace, chunk by chunk and row by row, into a new one.
#include "ulpscope/trace/recover.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "ulpscope/base/error.h"
#include "ulpscope/base/text.h"
#include "ulpscope/trace/decode.h"
#include "ulpscope/trace/file_writer.h"
#include "ulpscope/trace/new_file.h"

namespace ulpscope {

using namespace trace_detail;

namespace {

// Rows are handed to the file when they are this large.
constexpr size_t kBatchBytes = 4u << 20;
// Of the texts of a table, so many bytes are left to what is said of losses.
constexpr uint64_t kLossTextBytes = 1u << 24;

// Steps first <= step <= last.
struct Steps {
  uint64_t first = 0, last = UINT64_MAX;

  std::string text() const {
    if (first == 0 && last == UINT64_MAX) return "all steps";
    if (first == last) return fmt::format("step {}", first);
    return last == UINT64_MAX ? fmt::format("steps from {} on", first) : fmt::format("steps {} to {}", first, last);
  }
};

// Neighbouring rows of a table that cannot be read.
struct Loss {
  TableId table;
  std::string column;  // "stats/zeros", the first that is damaged; "histograms": of stats, theirs
  uint64_t first, last;
  Steps steps;  // that they belong to
};

// Neighbouring rows of one step.
struct StepRun {
  uint64_t step, first, rows;
};

// Which runs to keep, so that steps do not decrease, or increase where each may be there `once`, and the most rows are kept.
std::vector<bool> longest_in_order(std::span<const StepRun> runs, bool once) {
  std::vector<uint64_t> steps;
  for (const StepRun& run : runs) steps.push_back(run.step);
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  // Of the best sequences that end at one of the first so many steps: rows, and the last run; a Fenwick tree of maxima.
  struct Best {
    uint64_t rows = 0;
    size_t last = SIZE_MAX;
  };
  std::vector<Best> tree(steps.size() + 1);
  std::vector<size_t> before(runs.size());
  Best best;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto place = static_cast<size_t>(std::lower_bound(steps.begin(), steps.end(), runs[i].step) - steps.begin()) + 1;
    Best reached;
    for (size_t at = once ? place - 1 : place; at > 0; at &= at - 1)
      if (tree[at].rows > reached.rows) reached = tree[at];
    before[i] = reached.last;
    reached = {reached.rows + runs[i].rows, i};
    for (size_t at = place; at < tree.size(); at += at & (~at + 1))
      if (reached.rows > tree[at].rows) tree[at] = reached;
    if (reached.rows > best.rows) best = reached;
  }
  std::vector<bool> kept(runs.size());
  for (size_t i = best.last; i != SIZE_MAX; i = before[i]) kept[i] = true;
  return kept;
}

class Salvage {
 public:
  // `whole`: the steps that are whole, where they are known; nothing: they are taken for it.
  Salvage(const TraceFile& source, TraceFileWriter& copy, const std::optional<std::vector<uint64_t>>& whole)
      : source_(source), copy_(copy), whole_(whole) {}

  // Nothing where steps were taken for whole and are not: the copy is of no use then, and another one takes copied().
  std::optional<RecoverResult> run();
  const std::vector<uint64_t>& copied() const { return copied_; }

 private:
  template <typename Row>
  void write(const Row& row) {
    encoder_.add(row, batch_);
    if (batch_.bytes() < kBatchBytes) return;
    copy_.append(batch_);
    batch_.clear();
  }

  // The rows of a chunk that can be read have true in `readable`, the others are lost.
  void read_chunk(const TableSpec& table, uint64_t first, size_t count, Block& block, std::vector<bool>& readable);
  // Of rows of stats in a block that has all but the histograms, each by itself.
  void read_histograms(Block& block, std::vector<bool>& readable);
  // Appends the bytes [begin, end) of the histograms. False: they cannot be read.
  bool append_histogram(uint64_t begin, uint64_t end, std::vector<uint8_t>& bytes);
  // Of the table that is visited.
  void lose(const TableSpec& table, const std::string& column, uint64_t first, size_t count);
  Steps steps_of(uint64_t first, size_t count) const;
  // Calls visit(row) for the rows of a table that can be read. Those whose step is not in order are lost.
  template <typename Row, typename Visit>
  void visit_readable(Visit&& visit);
  // Sets `in_order_`, and returns the rows of the table whose step is not where such a step can be, ascending.
  std::vector<uint64_t> find_misplaced(const TableSpec& table);
  // Each field by itself: without one the steps are whole all the same.
  void copy_run();
  // Rows that others refer to by number: up to the first that cannot be read; change(row) before. Returns how many.
  template <typename Row, typename Change>
  uint64_t copy_referable(Change&& change);
  // With their steps. False: as run() has it.
  bool copy_stats(const std::vector<StepRow>& steps);
  // Those to which none of the losses from that one on belongs.
  std::vector<uint64_t> whole_steps(const std::vector<StepRow>& steps, size_t first_loss) const;
  // Rows of steps that are copied.
  template <typename Row>
  void copy_rows();
  void copy_captures();
  // Counts enumerators of a newer file that this program does not know and reads as another.
  template <typename Row>
  void count_replaced(const Block& block, size_t row);
  // The copy of a newer file lacks this, or has it otherwise, a line each.
  std::vector<std::string> losses_of_newer() const;

  bool is_copied(uint64_t step) const { return std::binary_search(copied_.begin(), copied_.end(), step); }
  // Rows of steps that nothing is known of are counted.
  template <typename Row>
  bool is_to_be_copied(const Row& row) {
    if (is_copied(row.step)) return true;
    if (!std::binary_search(steps_.begin(), steps_.end(), row.step)) ++rows_without_step_[static_cast<size_t>(Table<Row>::id)];
    return false;
  }
  std::string loss_text(const Loss& loss) const;

  const TraceFile& source_;
  TraceFileWriter& copy_;
  const std::optional<std::vector<uint64_t>>& whole_;
  Texts texts_;
  uint64_t ops_ = 0, tensors_ = 0;  // that were copied: others may not be referred to
  Encoder encoder_;
  TraceBuffer batch_;
  std::vector<StepRun> in_order_;  // of the table that is visited, the rows whose step can be read and is in order
  struct {
    uint64_t number = UINT64_MAX;
    std::vector<uint8_t> bytes;  // none where it cannot be read
  } histogram_chunk_;            // that was read last
  std::vector<Loss> losses_;
  std::vector<uint64_t> copied_;  // the steps, ascending
  std::vector<uint64_t> steps_;   // all that can be read, ascending
  std::array<uint64_t, kTables> rows_without_step_{};
  uint64_t ops_without_id_ = 0;
  uint64_t incomplete_captures_ = 0;
  // So many enumerators of a newer file's columns are another one in the copy.
  struct Replaced {
    uint64_t values = 0;
    std::string by;
  };
  std::map<std::string, Replaced> replaced_;
  RecoverResult result_;
};

void Salvage::lose(const TableSpec& table, const std::string& column, uint64_t first, size_t count) {
  const Steps steps = steps_of(first, count);
  Loss* const before = losses_.empty() ? nullptr : &losses_.back();
  // Between rows without their histograms there may be some that have none to lose.
  const auto follows = [&] {
    return column == spec(TableId::histograms).name ? steps.first == before->steps.last || steps.first == before->steps.last + 1
                                                    : first == before->last + 1;
  };
  if (before && before->table == table.id && before->column == column && follows()) {
    before->last = first + count - 1;
    before->steps.last = steps.last;
  } else {
    losses_.push_back({table.id, column, first, first + count - 1, steps});
  }
}

// The steps that rows can belong to: by their own numbers, or else by those around them.
Steps Salvage::steps_of(uint64_t first, size_t count) const {
  Steps steps;
  const auto begins_behind = [](uint64_t row, const StepRun& run) { return row < run.first; };
  if (const auto next = std::upper_bound(in_order_.begin(), in_order_.end(), first, begins_behind); next != in_order_.begin())
    steps.first = std::prev(next)->step;
  const auto ends_before = [](const StepRun& run, uint64_t row) { return run.first + run.rows <= row; };
  if (const auto run = std::lower_bound(in_order_.begin(), in_order_.end(), first + count - 1, ends_before); run != in_order_.end())
    steps.last = run->step;
  return steps;
}

void Salvage::read_chunk(const TableSpec& table, uint64_t first, size_t count, Block& block, std::vector<bool>& readable) {
  readable.assign(count, true);
  try {
    return source_.read(table.id, first, count, true, block);
  } catch (const Error&) {
    // Looked into below.
  }
  std::vector<std::byte> values;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    values.resize(count * size_of(table.columns[i].type));
    try {
      source_.read_column(table.id, i, first, count, values.data());
    } catch (const Error&) {
      lose(table, column_path(table, table.columns[i]), first, count);
      readable.assign(count, false);
      return;
    }
  }
  source_.read(table.id, first, count, false, block);
  if (table.id == TableId::stats) read_histograms(block, readable);
}

void Salvage::read_histograms(Block& block, std::vector<bool>& readable) {
  constexpr size_t kKnown = column_named<TensorRow>("known");
  const TableSpec& stats = *block.table;
  std::vector<uint64_t> ends(block.rows);
  source_.read_column(stats.id, kHistogramColumn, block.first, block.rows, reinterpret_cast<std::byte*>(ends.data()));
  std::optional<uint64_t> begin = 0;
  if (block.first > 0) {
    try {
      source_.read_column(stats.id, kHistogramColumn, block.first - 1, 1, reinterpret_cast<std::byte*>(&*begin));
    } catch (const Error&) {
      begin.reset();
    }
  }
  // In the block they lie one after the other, without those that cannot be read.
  block.histograms_begin = 0;
  block.columns[kHistogramColumn].resize(block.rows * sizeof(uint64_t));
  for (size_t i = 0; i < block.rows; ++i) {
    const bool has_none = static_cast<StatisticsLevel>(block.value<uint8_t>(kKnown, i)) != StatisticsLevel::values;
    if (!begin && has_none) begin = ends[i];
    std::string damaged = begin ? "" : spec(TableId::histograms).name;
    if (begin) {
      try {
        source_.check_histogram(block.first + i, *begin, ends[i]);
        if (!append_histogram(*begin, ends[i], block.histograms)) damaged = spec(TableId::histograms).name;
      } catch (const Error&) {
        damaged = column_path(stats, stats.columns[kHistogramColumn]);
      }
    }
    if (!damaged.empty()) {
      lose(stats, damaged, block.first + i, 1);
      readable[i] = false;
    }
    const uint64_t size = block.histograms.size();
    std::memcpy(block.columns[kHistogramColumn].data() + i * sizeof(size), &size, sizeof(size));
    begin = ends[i];
  }
}

bool Salvage::append_histogram(uint64_t begin, uint64_t end, std::vector<uint8_t>& bytes) {
  const uint64_t chunk_rows = spec(TableId::histograms).chunk_rows;
  const size_t size = bytes.size();
  while (begin < end) {
    const uint64_t number = begin / chunk_rows, chunk_begin = number * chunk_rows;
    if (histogram_chunk_.number != number) {
      histogram_chunk_.number = number;
      histogram_chunk_.bytes.resize(source_.rows_in_chunk(TableId::histograms, chunk_begin));
      try {
        source_.read_column(TableId::histograms, 0, chunk_begin, histogram_chunk_.bytes.size(),
                            reinterpret_cast<std::byte*>(histogram_chunk_.bytes.data()));
      } catch (const Error&) {
        histogram_chunk_.bytes.clear();
      }
    }
    if (histogram_chunk_.bytes.empty()) {
      bytes.resize(size);
      return false;
    }
    const auto from = histogram_chunk_.bytes.begin() + static_cast<ptrdiff_t>(begin - chunk_begin);
    const uint64_t count = std::min(end, chunk_begin + chunk_rows) - begin;
    bytes.insert(bytes.end(), from, from + static_cast<ptrdiff_t>(count));
    begin += count;
  }
  return true;
}

std::vector<uint64_t> Salvage::find_misplaced(const TableSpec& table) {
  const auto column = static_cast<size_t>(table.step_column);
  const bool once = table.id == TableId::steps;
  std::vector<StepRun> runs;
  std::vector<uint64_t> steps;
  for (uint64_t first = 0; first < source_.rows(table.id); first += steps.size()) {
    steps.resize(source_.rows_in_chunk(table.id, first));
    try {
      source_.read_column(table.id, column, first, steps.size(), reinterpret_cast<std::byte*>(steps.data()));
    } catch (const Error&) {
      continue;  // lost where its rows are read
    }
    for (size_t i = 0; i < steps.size(); ++i) {
      if (!once && !runs.empty() && runs.back().step == steps[i] && runs.back().first + runs.back().rows == first + i)
        ++runs.back().rows;
      else
        runs.push_back({steps[i], first + i, 1});
    }
  }
  const std::vector<bool> in_order = longest_in_order(runs, once);
  for (size_t i = 0; i < runs.size(); ++i)
    if (in_order[i]) in_order_.push_back(runs[i]);
  std::vector<uint64_t> misplaced;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (in_order[i]) continue;
    // They may belong to any step from the one before to the one behind.
    lose(table, column_path(table, table.columns[column]), runs[i].first, runs[i].rows);
    for (uint64_t row = 0; row < runs[i].rows; ++row) misplaced.push_back(runs[i].first + row);
  }
  return misplaced;
}

template <typename Row, typename Visit>
void Salvage::visit_readable(Visit&& visit) {
  const TableSpec& table = spec(Table<Row>::id);
  const Decoder decoder(source_, texts_, ops_, tensors_);
  std::vector<uint64_t> misplaced;
  in_order_.clear();
  if (table.step_column >= 0) misplaced = find_misplaced(table);
  Block block;
  std::vector<bool> readable;
  Row row;
  HeldTexts texts(kLossTextBytes);
  for (uint64_t first = 0; first < source_.rows(table.id);) {
    const size_t count = source_.rows_in_chunk(table.id, first);
    read_chunk(table, first, count, block, readable);
    for (size_t i = 0; i < count; ++i) {
      if (!readable[i]) continue;
      try {
        decoder.decode(block, i, row);
        texts.add(source_, first + i, row);
      } catch (const Error&) {
        lose(table, table.name, first + i, 1);
        continue;
      }
      if (std::binary_search(misplaced.begin(), misplaced.end(), first + i)) continue;
      if (source_.is_newer()) count_replaced<Row>(block, i);
      visit(row);
    }
    first += count;
  }
}

template <typename Row>
void Salvage::count_replaced(const Block& block, size_t row) {
  for_each_column<Row>([&](const auto& column, auto index) {
    using Field = FieldOf<Row, decltype(column.get)>;
    if constexpr (std::is_enum_v<Field>) {
      constexpr std::optional<Field> kBy = in_place_of_unknown<Field>();
      if (!kBy || block.value<uint8_t>(index, row) < enumerators<Field>()) return;
      const ColumnSpec& spec = block.table->columns[index];
      Replaced& replaced = replaced_[column_path(*block.table, spec)];
      ++replaced.values;
      replaced.by = spec.values[static_cast<size_t>(*kBy)];
    }
  });
}

std::vector<std::string> Salvage::losses_of_newer() const {
  const TraceFile::Unread unread = source_.unread();
  const uint64_t items = unread.tables + unread.columns;
  if (!source_.is_newer() || (items == 0 && losses_.empty() && replaced_.empty())) return {};
  std::vector<std::string> lines{
      fmt::format("written by a newer ulpscope (schema {})", schema_version_text(source_.schema_minor()))};
  std::vector<std::string> counts;
  if (unread.tables > 0) counts.push_back(count_of(unread.tables, "table"));
  if (unread.columns > 0) counts.push_back(count_of(unread.columns, "column"));
  if (items > 0) lines[0] += fmt::format(": {} {} not read", join_words(counts), items == 1 ? "was" : "were");
  for (const auto& [column, replaced] : replaced_) {
    lines.push_back(fmt::format("'{}' has {} that this ulpscope does not know: the copy has '{}' instead", column,
                                count_of(replaced.values, "value"), replaced.by));
  }
  return lines;
}

void Salvage::copy_run() {
  const TableSpec& table = spec(TableId::run);
  Block block;
  block.table = &table;
  block.rows = 1;
  std::vector<bool> lost(table.columns.size());
  for (size_t i = 0; i < table.columns.size(); ++i) {
    std::vector<std::byte>& value = block.columns.emplace_back(size_of(table.columns[i].type));
    try {
      source_.read_column(table.id, i, 0, 1, value.data());
    } catch (const Error&) {
      lost[i] = true;
    }
  }
  RunInfo run;
  Decoder(source_, texts_, 0, 0).decode_around(block, 0, lost, run);
  for (size_t i = 0; i < lost.size(); ++i)
    if (lost[i]) lose(table, column_path(table, table.columns[i]), 0, 1);
  write(run);
}

template <typename Row, typename Change>
uint64_t Salvage::copy_referable(Change&& change) {
  const size_t losses = losses_.size();
  uint64_t copied = 0;
  visit_readable<Row>([&](Row& row) {
    if (losses_.size() > losses) return;
    change(row);
    write(row);
    ++copied;
  });
  return copied;
}

std::vector<uint64_t> Salvage::whole_steps(const std::vector<StepRow>& steps, size_t first_loss) const {
  std::vector<Steps> lost;
  for (const Loss& loss : std::span(losses_).subspan(first_loss)) lost.push_back(loss.steps);
  std::sort(lost.begin(), lost.end(), [](const Steps& a, const Steps& b) { return a.first < b.first; });
  std::vector<uint64_t> whole;
  auto next = lost.begin();
  std::optional<uint64_t> last_lost;  // of the losses that begin at this step or before
  for (const StepRow& row : steps) {
    for (; next != lost.end() && next->first <= row.step; ++next) last_lost = std::max(last_lost.value_or(0), next->last);
    if (!last_lost || *last_lost < row.step) whole.push_back(row.step);
  }
  return whole;
}

// No row is held back until it is known whether its step is whole, since a step may have any number of them. Most traces lack none.
bool Salvage::copy_stats(const std::vector<StepRow>& steps) {
  const size_t first_loss = losses_.size();
  const auto misjudged = [&] { return !whole_ && losses_.size() > first_loss; };
  copied_ = whole_ ? *whole_ : whole_steps(steps, first_loss);
  auto step = steps.begin();
  const auto end_steps = [&](auto&& is_over) {
    for (; step != steps.end() && is_over(*step); ++step)
      if (is_copied(step->step)) write(*step);
  };
  visit_readable<TensorRow>([&](const TensorRow& row) {
    if (misjudged()) return;
    end_steps([&](const StepRow& other) { return other.step < row.step; });
    if (step == steps.end() || step->step != row.step) {
      ++rows_without_step_[static_cast<size_t>(TableId::stats)];
    } else if (is_copied(row.step)) {
      write(row);
      ++result_.tensor_rows;
    }
  });
  if (misjudged()) {
    copied_ = whole_steps(steps, first_loss);
    return false;
  }
  end_steps([](const StepRow&) { return true; });
  return true;
}

template <typename Row>
void Salvage::copy_rows() {
  visit_readable<Row>([&](const Row& row) {
    if (is_to_be_copied(row)) write(row);
  });
}

// A capture is a tree of rows that refer to each other: it is copied whole or not at all.
void Salvage::copy_captures() {
  constexpr size_t kMostNodes = 65536;  // of one: hundreds are recorded
  std::vector<CaptureRow> capture;
  size_t losses = losses_.size();
  const auto end_capture = [&] {
    const bool is_whole = losses_.size() == losses && capture.size() <= kMostNodes;
    if (!is_whole) ++incomplete_captures_;
    for (const CaptureRow& row : capture)
      if (is_to_be_copied(row) && is_whole) write(row);
    capture.clear();
  };
  visit_readable<CaptureRow>([&](const CaptureRow& row) {
    if (row.node == 0) {
      end_capture();
      losses = losses_.size();
    }
    if (capture.size() <= kMostNodes) capture.push_back(row);
  });
  end_capture();
}

std::string Salvage::loss_text(const Loss& loss) const {
  const bool is_one = loss.first == loss.last, has_no_histogram = loss.column == spec(TableId::histograms).name;
  const std::string_view column = has_no_histogram ? spec(loss.table).name : loss.column;
  std::string rows = is_one ? fmt::format("row {} of '{}'", loss.first, column)
                            : fmt::format("rows {} to {} of '{}'", loss.first, loss.last, column);
  if (has_no_histogram) rows = fmt::format("{} {}", is_one ? "the histogram of" : "histograms of", rows);
  switch (loss.table) {
    case TableId::run:
      return fmt::format("'{}' cannot be read: the copy has it as if it had not been told", column);
    case TableId::stats:
      return fmt::format("{} cannot be read: {} {} lost", rows, loss.steps.text(),
                         loss.steps.first == loss.steps.last ? "is" : "are");
    case TableId::steps:
      return fmt::format("{} cannot be read: {} lost", rows, loss.first == loss.last ? "its step is" : "their steps are");
    case TableId::ops:
    case TableId::tensors:
      return fmt::format("{} cannot be read: steps that have them, or later ones, are lost", rows);
    default:
      return fmt::format("{} cannot be read: {} left out", rows, loss.first == loss.last ? "it is" : "they are");
  }
}

std::optional<RecoverResult> Salvage::run() {
  try {
    texts_.read(source_);
  } catch (const Error&) {
    // Rows whose text is missing are found when they are decoded.
  }
  copy_run();
  visit_readable<SettingInfo>([&](const SettingInfo& setting) { write(setting); });
  visit_readable<SourceInfo>([&](const SourceInfo& source) { write(source); });
  visit_readable<ProductInfo>([&](const ProductInfo& product) { write(product); });
  // Of several ops with one id, which has it is not known: the first.
  std::set<uint64_t> ids;
  ops_ = copy_referable<OpInfo>([&](OpInfo& op) {
    if (op.id == 0 || ids.insert(op.id).second) return;
    op.id = 0;
    ++ops_without_id_;
  });
  tensors_ = copy_referable<TensorInfo>([](TensorInfo&) {});
  visit_readable<GraphEdge>([&](const GraphEdge& edge) { write(edge); });
  std::vector<StepRow> steps;
  visit_readable<StepRow>([&](const StepRow& row) {
    steps.push_back(row);
    steps_.push_back(row.step);
  });
  if (!copy_stats(steps)) return std::nullopt;
  copy_rows<BatchRow>();
  copy_rows<ParameterRow>();
  copy_rows<FingerprintRow>();
  copy_captures();
  copy_rows<SampleRow>();
  copy_rows<MeasureRow>();
  copy_rows<SumRow>();
  copy_rows<BitsRow>();
  std::vector<EventRow> events;
  visit_readable<EventRow>([&](const EventRow& row) { events.push_back(row); });
  result_.steps = copied_.size();
  result_.lost_steps = source_.rows(TableId::steps) - result_.steps;
  const auto say = [&](uint64_t step, const std::string& text) {
    result_.losses.push_back(text);
    EventRow warning;
    warning.step = step;
    warning.text = fmt::format("recovered from a damaged {}trace: {}", source_.is_newer() ? "or newer " : "", text);
    events.push_back(warning);
  };
  for (const std::string& line : losses_of_newer()) say(0, line);
  for (const Loss& loss : losses_) say(loss.steps.first, loss_text(loss));
  for (const std::string& loss : source_.losses()) say(0, loss);
  for (const TableSpec& table : trace_schema()) {
    const uint64_t rows = rows_without_step_[static_cast<size_t>(table.id)];
    if (rows > 0)
      say(0, fmt::format("{} of '{}' {} that 'steps' does not have: {} left out", count_of(rows, "row"), table.name,
                         rows == 1 ? "is of a step" : "are of steps", rows == 1 ? "it is" : "they are"));
  }
  if (ops_without_id_ > 0)
    say(0, fmt::format("{} of 'ops' {} the id of another: {} none in the copy", count_of(ops_without_id_, "row"),
                       ops_without_id_ == 1 ? "has" : "have", ops_without_id_ == 1 ? "it has" : "they have"));
  if (incomplete_captures_ > 0)
    say(0, fmt::format("{} lost rows and {} left out", count_of(incomplete_captures_, "capture"),
                       incomplete_captures_ == 1 ? "is" : "are"));
  if (result_.steps == 0 && result_.lost_steps > 0) {
    throw unreadable_error("'{}': none of {} can be read: {}", source_.path(), count_of(result_.lost_steps, "step"),
                           result_.losses.front());
  }
  std::stable_sort(events.begin(), events.end(), [](const EventRow& a, const EventRow& b) { return a.step < b.step; });
  for (const EventRow& event : events) write(event);
  copy_.append(batch_);
  return result_;
}

std::string note_for(const TraceFile& trace) {
  if (!trace.note().empty()) return trace.note();
  switch (trace.writer_state()) {
    case WriterState::alive:
      return "copied while the trace was being written";
    case WriterState::dead:
      return "the writer ended without closing the trace";
    case WriterState::closed:
      break;
  }
  return "";
}

// A copy of a truncated file that has the size that it should have, since HDF5 opens no other. Zeros stand for what is missing.
class PaddedCopy {
 public:
  PaddedCopy(const std::string& from, uint64_t bytes, const NewFile& beside) : path_(beside.temporary() + ".source") {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::copy_file(from, path_, fs::copy_options::overwrite_existing, error);
    if (!error) fs::resize_file(path_, bytes, error);
    if (!error) return;
    fs::remove(path_);
    throw failed_error("cannot write a copy of '{}' beside '{}': {}", from, beside.path(), error.message());
  }
  ~PaddedCopy() {
    std::error_code error;
    std::filesystem::remove(path_, error);
  }
  PaddedCopy(const PaddedCopy&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

RecoverResult recover_trace(const std::string& from, const std::string& to, bool overwrite) {
  const auto truncation = hdf5::check_signature(from, "trace");
  NewFile target(to, overwrite);
  std::optional<PaddedCopy> padded;
  if (truncation) padded.emplace(from, truncation->expected, target);
  RecoverResult result;
  try {
    const TraceFile source(padded ? padded->path() : from, from, OnDamage::read_around);
    std::optional<std::vector<uint64_t>> whole;
    for (bool copied = false; !copied;) {
      TraceFileWriter copy(target.temporary(), to, TraceFileWriter::Mode::copy);
      Salvage salvage(source, copy, whole);
      if (const std::optional<RecoverResult> done = salvage.run()) {
        copy.close(note_for(source));
        result = *done;
        copied = true;
      } else {
        whole = salvage.copied();
        std::filesystem::remove(target.temporary());
      }
    }
  } catch (const Error& error) {
    // Zeros stand for what is missing: what they were taken for is no cause.
    if (!truncation || error.kind() != ErrorKind::unreadable) throw;
    throw unreadable_error("'{}' is truncated: it has {} of {} bytes, and no step is whole in them", from, truncation->bytes,
                           truncation->expected);
  }
  target.take_name();
  if (truncation) {
    result.losses.insert(result.losses.begin(),
                         fmt::format("the file is truncated: it has {} of {} bytes", truncation->bytes, truncation->expected));
  }
  return result;
}

}  // namespace ulpscope
