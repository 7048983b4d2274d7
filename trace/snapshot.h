// A trace, or several that are parts of one run, as committed at one moment. A snapshot never changes: what was got from it stays
// valid and the same while newer ones are made (run_set.h) and as long as it lives, in any thread. Copies share all they hold.
//
// Small tables (ops, tensors, events) are held in memory. Tensor rows are read on demand and kept packed, column by column, within
// a number of bytes that all snapshots of a run set share; what was not used for longest is dropped, and read again when needed.
//
// Parts are by rank, and those of one rank by time. Rows come part by part, those of each part in the order in which they were
// written. Steps count for each rank on its own, so the rows of several ranks are no sequence: analyses take the parts one by one
// (of_part) or the ranks (of_rank), side by side if they like, and merge what they found. Ops, tensors and graphs have the same
// numbers in all of them. The rank that rows are of is that of the snapshot that they were read from; events say it themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/trace/op_graph.h"
#include "ulpscope/trace/records.h"

namespace ulpscope {

namespace trace_detail {
struct View;
}

// Which rows to visit: steps first <= step < last.
struct StepRange {
  uint64_t first = 0;
  uint64_t last = UINT64_MAX;

  bool contains(uint64_t step) const { return step >= first && step < last; }
  bool operator==(const StepRange&) const = default;
};

// A trace that is read as part of a run.
struct TracePart {
  std::string path;
  RunInfo run;                    // its rank among others
  StepRange steps;                // those that are read from it
  std::vector<uint32_t> tensors;  // of the snapshot's, those that it has
};

// A trace of a folder that counts for no step.
struct ReplacedTrace {
  std::string path;
  uint64_t end = 0;  // one more than its last step
  RunInfo by;        // the run that was resumed later, no later than where this one began
  std::string by_path;
};

// A trace that a newer program wrote, of which something was not read.
struct NewerTrace {
  std::string path;
  std::string schema;                // "14.3"
  uint64_t tables = 0, columns = 0;  // that this program does not know, and that have rows
};

class Snapshot {
 public:
  // RunSet(...).snapshot(), for who does not follow a run.
  explicit Snapshot(const std::string& path);
  Snapshot(const std::string& name, std::span<const std::string> paths);
  explicit Snapshot(std::shared_ptr<const trace_detail::View> view) : view_(std::move(view)) {}

  const std::string& path() const;
  WriterState writer_state() const;            // when the snapshot was made; of several ranks: dead before alive before closed
  const RunInfo& run() const;                  // the latest; of several ranks, that of the first
  const RunInfo& run_at(uint64_t step) const;  // that of its part
  std::vector<TracePart> parts() const;        // by rank, then by step
  const std::string& closing_note() const;     // why the trace ends where it does, or ""
  std::vector<int32_t> ranks() const;          // ascending
  std::string schema_version() const;          // "14.3"; where its parts have several, all of them: "14.0, 14.3"
  std::vector<NewerTrace> newer_traces() const;
  // What is odd about how the ranks fit together and prevents no analysis, a line each: "rank 1 ends 3 steps before rank 0".
  std::vector<std::string> rank_notes() const;
  // Whether it is the trace of one rank of several that was read without the others.
  bool lacks_ranks() const;
  // Those of the folder that no part is of.
  const std::vector<ReplacedTrace>& replaced_traces() const;
  // The same run, of which one part or one rank is read. Throws Error (usage) where there is none of that number.
  Snapshot of_part(size_t part) const;
  Snapshot of_rank(int32_t rank) const;

  const std::vector<OpInfo>& ops() const;
  const std::vector<TensorInfo>& tensors() const;
  const std::vector<EventRow>& events() const;
  const OpGraph& graph() const;  // built once for all snapshots with these edges
  const std::vector<GraphEdge>& edges() const { return graph().edges(); }
  uint64_t step_count() const;  // of several ranks, of all together
  uint64_t tensor_row_count() const;
  // Rows of the table of that name, whose rows are those of steps ("batches"), as many as are visited but for what a resumed run
  // began with. Throws Error (usage) where there is no such table.
  uint64_t row_count(std::string_view table) const;
  uint64_t file_bytes() const;

  // The span is valid during the call only. `visit` returns false to stop early. Reading throws Error (unreadable) where what is
  // read is damaged.
  void visit_steps(StepRange range, const std::function<bool(std::span<const StepRow>)>& visit) const;
  void visit_rows(StepRange range, const std::function<bool(std::span<const TensorRow>)>& visit) const;
  // The same without the histograms (left empty): reads a fraction of the bytes.
  void visit_rows_without_histograms(StepRange range, const std::function<bool(std::span<const TensorRow>)>& visit) const;
  void visit_batches(StepRange range, const std::function<bool(std::span<const BatchRow>)>& visit) const;
  void visit_parameters(StepRange range, const std::function<bool(std::span<const ParameterRow>)>& visit) const;
  void visit_fingerprints(StepRange range, const std::function<bool(std::span<const FingerprintRow>)>& visit) const;
  void visit_samples(StepRange range, const std::function<bool(std::span<const SampleRow>)>& visit) const;
  void visit_measures(StepRange range, const std::function<bool(std::span<const MeasureRow>)>& visit) const;
  void visit_sums(StepRange range, const std::function<bool(std::span<const SumRow>)>& visit) const;
  void visit_bits(StepRange range, const std::function<bool(std::span<const BitsRow>)>& visit) const;
  std::vector<CaptureRow> captures(StepRange range = {}) const;
  // Of the latest run; of several ranks, those of the first.
  std::vector<SettingInfo> settings() const;
  // Of all parts, with those that are there more than once left out.
  std::vector<SourceInfo> sources() const;
  std::vector<ProductInfo> products() const;

  // Random access. The rows of one tensor, found by an index, with their histograms.
  void visit_history(uint32_t tensor, StepRange range, const std::function<bool(std::span<const TensorRow>)>& visit) const;
  // One column of table `stats`, by its name there, of all rows or of those of one tensor, in the order in which rows are visited.
  // T is the column's type (docs/trace_format.md): uint8_t, uint32_t, uint64_t or double. Throws Error (usage) where there is no
  // such column of that type.
  template <typename T>
  std::vector<T> column(std::string_view name, StepRange range = {}) const;
  template <typename T>
  std::vector<T> history(uint32_t tensor, std::string_view name, StepRange range = {}) const;
  // Reads and indexes all tensor rows now, as far as they fit into the bytes that are kept: random access is then fast.
  void load_rows() const;

 private:
  std::shared_ptr<const trace_detail::View> view_;
};

}  // namespace ulpscope
